//! Bit fields of a descriptor word.

use crate::word::Word;

/// `width` bits of a word, the lowest of them at bit `low`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The number of the field's lowest bit.
    pub low: u32,
    /// Number of bits of the field: 1 to 63.
    pub width: u32,
}

impl Field {
    /// Bits `high` down to `low`, as a specification writes `[high:low]`.
    pub const fn bits(high: u32, low: u32) -> Self {
        assert!(high < 64 && low <= high && high - low < 63);
        Self { low, width: high - low + 1 }
    }

    /// The single bit `at`.
    pub const fn bit(at: u32) -> Self {
        Self::bits(at, at)
    }

    /// The largest value that the field can say.
    #[inline]
    pub const fn max(self) -> u64 {
        (1 << self.width) - 1
    }

    /// The bits of a word that belong to the field.
    #[inline]
    pub const fn mask(self) -> u64 {
        self.max() << self.low
    }

    /// The field's value in `word`.
    #[inline]
    pub fn get<W: Word>(self, word: W) -> W {
        (word >> self.low as usize) & W::from(self.max())
    }

    /// Returns true if the field's value in `word` is `value`.
    #[inline]
    pub fn is<W: Word>(self, word: W, value: u64) -> bool {
        self.get(word) == W::from(value)
    }

    /// `word` with the field set to `value`; bits of `value` beyond the width
    /// are dropped.
    #[inline]
    #[must_use]
    pub fn set<W: Word>(self, word: W, value: u64) -> W {
        self.put(word, W::from(value))
    }

    /// As [`set`](Self::set) for a value in any word.
    #[inline]
    #[must_use]
    pub fn put<W: Word>(self, word: W, value: W) -> W {
        (word & !W::from(self.mask())) | ((value & W::from(self.max())) << self.low as usize)
    }
}

/// One number spread over several fields, its lowest bits in the first: what
/// remains free in a descriptor is seldom in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scattered(pub &'static [Field]);

impl Scattered {
    /// Returns the number's bits.
    pub const fn width(self) -> u32 {
        let mut sum = 0;
        let mut i = 0;
        while i < self.0.len() {
            sum += self.0[i].width;
            i += 1;
        }
        sum
    }

    /// The largest value that the fields can say together.
    pub const fn max(self) -> u64 {
        (1 << self.width()) - 1
    }

    /// The number in `word`.
    #[inline]
    pub fn get<W: Word>(self, word: W) -> W {
        let mut value = W::ZERO;
        let mut at = 0;
        for field in self.0 {
            value |= field.get(word) << at;
            at += field.width as usize;
        }
        value
    }

    /// `word` with the number set to `value`; a value beyond [`Self::max`]
    /// saturates, since a shorter run is a true statement about a longer one.
    #[inline]
    #[must_use]
    pub fn set_saturating<W: Word>(self, mut word: W, value: W) -> W {
        let mut rest = value.min(W::from(self.max()));
        for field in self.0 {
            word = field.put(word, rest);
            rest = rest >> field.width as usize;
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_changes_its_own_bits_only() {
        let field = Field::bits(11, 4);
        assert_eq!(field.set(u64::MAX, 0), !0xff0);
        assert_eq!(field.get(field.set(0, 0xa5)), 0xa5);
        assert_eq!(field.set(0, 0x1ff), 0xff0);
    }

    #[test]
    fn scattered_numbers_round_trip_and_saturate() {
        const S: Scattered = Scattered(&[Field::bits(2, 1), Field::bits(62, 60)]);
        assert_eq!(S.width(), 5);
        for value in 0..32 {
            let word = S.set_saturating(0x0fff_ffff_ffff_fff9, value);
            assert_eq!(S.get(word), value);
            assert_eq!(word & !0x7000_0000_0000_0006, 0x0fff_ffff_ffff_fff9);
        }
        assert_eq!(S.get(S.set_saturating(0, 1 << 40)), 31);
    }
}
