//! The allocated segments.
//!
//! Two bits a unit: whether it is handed out, and whether the unit after it
//! belongs to the same segment. With them a segment that is freed is told
//! from a part of one, from several, and from the units that are held beside
//! one without belonging to it.

use crate::bits::words::{all_set, any_set, clear, first_clear, set};
use crate::segment::allocator::SegmentFreeError;
use crate::segment::space::{AreaSpace, Segment};

/// The segments handed out, in words of a slice that each method is given.
///
/// Invariants: a unit is `joined` only if it and the unit after it are both
/// `asked`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger {
    /// The place in the slice at which `asked` starts; `joined` follows it.
    at: usize,
    /// Words of each of the two.
    words: usize,
}

impl Ledger {
    /// Words of storage for so many units.
    pub(crate) const fn storage_words(units: u64) -> u64 {
        2 * units.div_ceil(64)
    }

    /// Nothing handed out, in the words from `storage[at]` on. O(words).
    pub(crate) fn new(storage: &mut [u64], at: usize, units: u64) -> Self {
        let words = units.div_ceil(64) as usize;
        storage[at..at + 2 * words].fill(0);
        Self { at, words }
    }

    fn asked<'s>(&self, storage: &'s [u64]) -> &'s [u64] {
        &storage[self.at..self.at + self.words]
    }

    fn joined<'s>(&self, storage: &'s [u64]) -> &'s [u64] {
        &storage[self.at + self.words..self.at + 2 * self.words]
    }

    fn split<'s>(&self, storage: &'s mut [u64]) -> (&'s mut [u64], &'s mut [u64]) {
        storage[self.at..self.at + 2 * self.words].split_at_mut(self.words)
    }

    /// Notes that the units from `start` on to below `past` are a segment now.
    #[inline]
    pub(crate) fn hand_out(&self, storage: &mut [u64], start: u64, past: u64) {
        let (first, count) = (start as usize, (past - start) as usize);
        let (asked, joined) = self.split(storage);
        set(asked, first, count);
        if count > 1 {
            set(joined, first, count - 1);
        }
    }

    /// As [`hand_out`](Self::hand_out), if none of the units is handed out: if not, nothing changes.
    #[inline]
    pub(crate) fn hand_out_free(&self, storage: &mut [u64], start: u64, past: u64) -> bool {
        let (first, count) = (start as usize, (past - start) as usize);
        let (asked, joined) = self.split(storage);
        let (low, high) = (first / 64, (first + count - 1) / 64);
        let above = u64::MAX << (first % 64);
        let below = u64::MAX >> (63 - (first + count - 1) % 64);
        if low == high {
            if asked[low] & above & below != 0 {
                return false;
            }
            asked[low] |= above & below;
        } else {
            let words = &mut asked[low..=high];
            let [start, inside @ .., end] = words else { return false };
            // One test for all words, which costs less than one for each.
            let any = inside.iter().fold(*start & above | *end & below, |any, word| any | word);
            if any != 0 {
                return false;
            }
            inside.fill(u64::MAX);
            *start |= above;
            *end |= below;
        }
        if count > 1 {
            set(joined, first, count - 1);
        }
        true
    }

    /// The word of a unit's bit among those handed out.
    pub(crate) fn word(&self, unit: u64) -> usize {
        self.at + (unit / 64) as usize
    }

    /// Returns true if one of some units, at least one, is handed out.
    pub(crate) fn any_out(&self, storage: &[u64], start: u64, past: u64) -> bool {
        any_set(self.asked(storage), start as usize, (past - start) as usize)
    }

    /// The first of the words that say what is joined to the next.
    pub(crate) fn first_joined(&self) -> usize {
        self.at + self.words
    }

    /// Notes that the segment of these units has been freed.
    #[inline]
    pub(crate) fn take_back(&self, storage: &mut [u64], start: u64, past: u64) {
        let (first, count) = (start as usize, (past - start) as usize);
        let (asked, joined) = self.split(storage);
        clear(asked, first, count);
        if count > 1 {
            clear(joined, first, count - 1);
        }
    }

    /// The units of a segment that has been handed out: the first, and the one
    /// past the last. O(c/64) for a segment of c units.
    ///
    /// # Errors
    /// A [`SegmentFreeError`] if it has not.
    pub(crate) fn find(
        &self,
        storage: &[u64],
        space: &AreaSpace<'_>,
        segment: Segment,
    ) -> Result<(u64, u64), SegmentFreeError> {
        let (start, past) = segment.units(space)?;
        let (first, count) = (start as usize, (past - start) as usize);
        let (asked, joined) = (self.asked(storage), self.joined(storage));
        let is = |words: &[u64], index: usize| words[index / 64] >> (index % 64) & 1 == 1;
        // What is joined is handed out, and so is what it is joined to.
        let one = if count > 1 { all_set(joined, first, count - 1) } else { is(asked, first) };
        if one && (first == 0 || !is(joined, first - 1)) && !is(joined, first + count - 1) {
            return Ok((start, past));
        }
        Err(match first_clear(asked, first, count) {
            Some(free) => {
                SegmentFreeError::NotAllocated { frame: (free as u64) << space.unit().k() }
            }
            None => SegmentFreeError::NotSegment { segment },
        })
    }

    /// Returns by how many segments there are fewer once `count` units from `first` on are taken back,
    /// all of which are handed out: those that end there, less one whose beginning stays. O(c/64).
    pub(crate) fn segments_less(&self, storage: &[u64], first: u64, count: u64) -> i64 {
        let joined = self.joined(storage);
        let (mut at, mut ends) = (first, 0);
        while at < first + count {
            let here = (64 - at % 64).min(first + count - at);
            let mask = (u64::MAX >> (64 - here)) << (at % 64);
            ends += i64::from((!joined[(at / 64) as usize] & mask).count_ones());
            at += here;
        }
        let begins_before = first
            .checked_sub(1)
            .is_some_and(|unit| joined[(unit / 64) as usize] >> (unit % 64) & 1 == 1);
        ends - i64::from(begins_before)
    }

    /// Notes that units from `start` on to below `past`, all of them handed out, have been freed,
    /// whatever segments they are of.
    pub(crate) fn take_back_part(&self, storage: &mut [u64], start: u64, past: u64) {
        let (first, count) = (start as usize, (past - start) as usize);
        let (asked, joined) = self.split(storage);
        clear(asked, first, count);
        clear(joined, first, count);
        if first > 0 {
            clear(joined, first - 1, 1);
        }
    }

    /// The first of some units that is not handed out.
    pub(crate) fn first_free(&self, storage: &[u64], start: u64, past: u64) -> Option<u64> {
        let unit = first_clear(self.asked(storage), start as usize, (past - start) as usize);
        unit.map(|unit| unit as u64)
    }

    /// Visits the segments handed out, ascending: the first unit of each, and
    /// the one past its last.
    pub(crate) fn for_each(&self, storage: &[u64], visit: &mut dyn FnMut(u64, u64)) {
        let (asked, joined) = (self.asked(storage), self.joined(storage));
        let mut start = 0;
        for unit in 0..64 * self.words {
            let has = |words: &[u64]| words[unit / 64] >> (unit % 64) & 1 == 1;
            if !has(asked) {
                start = unit + 1;
            } else if !has(joined) {
                visit(start as u64, unit as u64 + 1);
                start = unit + 1;
            }
        }
    }

    /// The first unit that is joined to the next though one of the two is not handed out, and that one.
    fn ill_joined(&self, storage: &[u64]) -> Option<(u64, u64)> {
        let (asked, joined) = (self.asked(storage), self.joined(storage));
        joined.iter().enumerate().find_map(|(index, &word)| {
            let next = asked.get(index + 1).copied().unwrap_or(0);
            let wrong = word & !(asked[index] & (asked[index] >> 1 | next << 63));
            let bit = wrong.trailing_zeros();
            let unit = index as u64 * 64 + u64::from(bit);
            (wrong != 0).then(|| (unit, unit + (asked[index] >> bit & 1)))
        })
    }

    /// Compares the ledger with what else tells which units are free: the first unit that contradicts
    /// it, and the number of segments. `held_end` is one past what is held for a segment.
    pub(crate) fn compare(
        &self,
        storage: &[u64],
        units: u64,
        held_end: impl Fn(u64, u64) -> u64,
        is_free: impl Fn(u64) -> bool,
    ) -> (Option<u64>, u64) {
        let (mut at, mut held, mut wrong) = (0, 0, None);
        let mut compare = |start: u64, past: u64, free: bool| {
            wrong = wrong.or_else(|| (start..past.min(units)).find(|&unit| is_free(unit) != free));
        };
        self.for_each(storage, &mut |start, past| {
            compare(at, start, true);
            at = held_end(start, past);
            compare(start, at, false);
            held += 1;
        });
        compare(at, units, true);
        (wrong, held)
    }

    /// The word of the unit that is joined to the next though one of the two is not handed out, or
    /// the word of the other's bit: the one that is at fault.
    pub(crate) fn wrong_join(
        &self,
        storage: &[u64],
        units: u64,
        is_free: impl Fn(u64) -> bool,
    ) -> Option<usize> {
        let (unit, other) = self.ill_joined(storage)?;
        let joined = self.word(unit) - self.word(0) + self.first_joined();
        let is_join = other >= units || is_free(other);
        Some(if is_join { joined } else { self.word(other) })
    }

    /// Walks the invariants in O(units); the first that does not hold is named.
    pub(crate) fn check(&self, storage: &[u64]) -> Result<(), &'static str> {
        match self.ill_joined(storage) {
            Some(_) => Err("a unit is joined to one that is not handed out"),
            None => Ok(()),
        }
    }
}
