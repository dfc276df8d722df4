//! The bits of slots that other threads returned.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::superblock::atomic::Shared64;
use crate::superblock::class::WORDS;

/// The bits of slots that came back from other threads: storage that the caller
/// supplies, one for each unit. All zeroes is a valid and the initial value.
///
/// A position has two bits in one word, so that one access sets both: where a flipped bit has left one, nothing
/// came back. An odd number of cache lines, so that the first ones of neighbours do not
/// compete for one set of a cache.
#[repr(C, align(64))]
pub struct Returned {
    /// The bits of 32 positions each.
    words: [Shared64; 2 * WORDS],
    _odd: [u64; 8],
}

/// The two bits of a word's first position.
const BOTH: u64 = 1 << 32 | 1;

impl Returned {
    /// Makes a record without returned slots.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self { words: core::array::from_fn(|_| Shared64::new(0)), _odd: [0; 8] }
    }

    /// The word with the bits of a position, and those.
    #[inline(always)]
    pub(crate) fn place(&self, position: u32) -> (&Shared64, u64) {
        let word = &self.words[(position as usize / 32) % (2 * WORDS)];
        (word, BOTH << (position % 32))
    }

    #[inline]
    pub(crate) fn has(&self, position: u32) -> bool {
        let (word, bits) = self.place(position);
        word.load(Relaxed) & bits == bits
    }

    /// Pairs of 64 positions with bits, as a summary.
    pub(crate) fn summary(&self) -> u32 {
        let words = self.words.iter().enumerate();
        words.fold(0, |bits, (i, word)| bits | u32::from(word.load(Relaxed) != 0) << (i / 4))
    }

    /// Counts the slots returned and not collected.
    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| both(word.load(Relaxed)).count_ones()).sum()
    }

    /// The slots of 64 positions that were returned, one bit each.
    pub(crate) fn word(&self, index: usize) -> u64 {
        let half = |half: usize| u64::from(both(self.words[2 * index + half].load(Relaxed)));
        half(0) | half(1) << 32
    }

    /// Returns true if one of a position's bits is set without the other, among those of 64 positions.
    pub(crate) fn is_overwritten(&self, index: usize) -> bool {
        let mut words = self.words[2 * index..][..2].iter().map(|word| word.load(Relaxed));
        words.any(|word| word != BOTH * u64::from(both(word)))
    }

    /// Takes the slots of 64 positions that were returned.
    pub(crate) fn take(&self, index: usize) -> u64 {
        take(&self.words[2 * index]) | take(&self.words[2 * index + 1]) << 32
    }
}

/// Takes the slots of a word that were returned.
// The model checker's stacks have no room for four of its accesses side by side.
#[cfg_attr(loom, inline(never))]
fn take(word: &Shared64) -> u64 {
    // If one comes later, so does the bit of the summary.
    if word.load(Relaxed) == 0 { 0 } else { both(word.swap(0, Acquire)).into() }
}

/// The 32 positions of a word that have both bits, one bit each.
fn both(word: u64) -> u32 {
    (word >> 32) as u32 & word as u32
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// A record with bits in the words of `set`.
    fn returned(set: impl IntoIterator<Item = usize>) -> Returned {
        let returned = Returned::new();
        for index in set {
            let (word, bits) = returned.place((64 * index + index * 7 % 64) as u32);
            word.store(bits, Relaxed);
        }
        returned
    }

    /// One bit for each two words, set if either of them has any.
    #[test]
    fn the_summary_names_the_pairs_of_words_with_bits() {
        assert_eq!(returned([]).summary(), 0);
        assert_eq!(returned(0..WORDS).summary(), u32::MAX);
        for index in 0..WORDS {
            let pair = 1 << (index / 2);
            assert_eq!(returned([index]).summary(), pair, "word {index}");
            assert_eq!(returned([index, index ^ 1]).summary(), pair, "words of pair {index}");
            let others = (0..WORDS).filter(|other| other / 2 != index / 2);
            assert_eq!(returned(others).summary(), !pair, "all but pair {index}");
            let far = (index + 2) % WORDS;
            assert_eq!(returned([index, far]).summary(), pair | 1 << (far / 2));
        }
    }

    /// A full word counts as one bit does, and a slot is found where its bit is.
    #[test]
    fn slots_are_counted_and_found_by_their_bits() {
        let returned = returned([3, 40]);
        returned.words[80..82].iter().for_each(|word| word.store(u64::MAX, Relaxed));
        assert_eq!((returned.count(), returned.summary()), (65, 1 << 1 | 1 << 20));
        for position in 0..64 * WORDS as u32 {
            let set = position == 3 * 64 + 21 || position / 64 == 40;
            assert_eq!(returned.has(position), set, "position {position}");
            assert_eq!(returned.word(position as usize / 64) >> (position % 64) & 1 != 0, set);
        }
    }

    /// A bit that was flipped returns nothing, and shows.
    #[test]
    fn one_bit_of_a_position_is_none() {
        for (index, bit) in [(0, 0), (1, 63), (2 * WORDS - 1, 17)] {
            for before in [0, BOTH << (bit % 32), u64::MAX] {
                let returned = Returned::new();
                returned.words[index].store(before, Relaxed);
                let waiting = returned.word(index / 2);
                assert!(!returned.is_overwritten(index / 2));
                returned.words[index].fetch_xor(1 << bit, Relaxed);
                assert!(returned.is_overwritten(index / 2));
                let position = (32 * index + bit % 32) as u32;
                assert!(!returned.has(position));
                let rest = waiting & !(1 << (position % 64));
                assert_eq!((returned.count(), returned.word(index / 2)), (rest.count_ones(), rest));
                assert_eq!((returned.take(index / 2), returned.count()), (rest, 0));
            }
        }
    }
}
