//! The bits of dirty units, free ones whose memory is still there, and their seals.
//!
//! A bit too much would return the memory of a unit in use to the system, and one too few would pass
//! dirty memory off as zero. So beside each two words, of units released since the last purge and of
//! those released before it, stands a **seal**, which any flipped bit of the three breaks. The units of
//! a broken seal are not purged, and none of them reads as zero; it stays broken, for `check` to find.

use crate::source::masks::word_masks;

/// The bits, in words that the caller gives: units released since the last purge, then those
/// released before it, then the seals.
///
/// Invariants: a unit has its bit in at most one of the two; a seal is what
/// [`seal_of`] says of its words.
pub(crate) struct Dirty<'m> {
    new: &'m mut [u64],
    old: &'m mut [u64],
    seals: &'m mut [u64],
}

/// The seal of two words; 0 of no dirty units.
const fn seal_of(new: u64, old: u64) -> u64 {
    new ^ old
}

impl<'m> Dirty<'m> {
    /// Tables for a 64th of as many units as there are words in a third of `words`, which are all zero.
    pub(crate) fn new(words: &'m mut [u64]) -> Self {
        let third = words.len() / 3;
        let (new, rest) = words.split_at_mut(third);
        let (old, seals) = rest.split_at_mut(third);
        Self { new, old, seals }
    }

    fn is_sealed(&self, index: usize) -> bool {
        seal_of(self.new[index], self.old[index]) == self.seals[index]
    }

    /// Gives both words of `index` new values; a seal that was broken stays so.
    fn store(&mut self, index: usize, new: u64, old: u64) {
        let before = seal_of(self.new[index], self.old[index]);
        self.seals[index] ^= before ^ seal_of(new, old);
        (self.new[index], self.old[index]) = (new, old);
    }

    /// Notes that units were released, dirty.
    pub(crate) fn set(&mut self, first: u32, units: u32) {
        for (index, mask) in word_masks(first, units) {
            self.store(index, self.new[index] | mask, self.old[index] & !mask);
        }
    }

    /// Notes that units are in use, and returns true if any of them may have been dirty.
    pub(crate) fn clear(&mut self, first: u32, units: u32) -> bool {
        let mut dirty = false;
        for (index, mask) in word_masks(first, units) {
            let (new, old) = (self.new[index], self.old[index]);
            dirty |= (new | old) & mask != 0 || !self.is_sealed(index);
            self.store(index, new & !mask, old & !mask);
        }
        dirty
    }

    /// Calls `purge` with the runs of units below `high` that are in the older bits, or in `all`, and
    /// returns the number of units for which it returned true: they are no longer dirty. The newer
    /// bits are older ones then.
    pub(crate) fn purge(
        &mut self,
        all: bool,
        high: u32,
        mut purge: impl FnMut(u32, u32) -> bool,
    ) -> u64 {
        let mut purged = 0;
        // A run of units, across words.
        let (mut start, mut end) = (0, 0);
        let mut run_ends = |dirty: &mut Self, start: u32, end: u32| {
            if start != end && purge(start, end - start) {
                for (index, mask) in word_masks(start, end - start) {
                    dirty.store(index, dirty.new[index], dirty.old[index] & !mask);
                }
                purged += u64::from(end - start);
            }
        };
        for index in 0..high.div_ceil(64) as usize {
            if !self.is_sealed(index) {
                continue;
            }
            if all {
                self.store(index, 0, self.new[index] | self.old[index]);
            }
            let mut due = self.old[index];
            while due != 0 {
                let skip = due.trailing_zeros();
                let run = (due >> skip).trailing_ones();
                due &= !((u64::MAX >> (64 - run)) << skip);
                let at = index as u32 * 64 + skip;
                if at != end {
                    run_ends(self, start, end);
                    start = at;
                }
                end = at + run;
            }
        }
        run_ends(self, start, end);
        for index in 0..high.div_ceil(64) as usize {
            if self.is_sealed(index) && self.new[index] != 0 {
                self.store(index, 0, self.new[index] | self.old[index]);
            }
        }
        purged
    }

    /// Counts the dirty units, all of which are below `high`.
    pub(crate) fn count(&self, high: u32) -> u64 {
        let words = high.div_ceil(64) as usize;
        let words = self.new[..words].iter().chain(&self.old[..words]);
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    pub(crate) fn has(&self, unit: u32) -> bool {
        let index = unit as usize / 64;
        (self.new[index] | self.old[index]) >> (unit % 64) & 1 != 0
    }

    /// The first unit of the first words whose seal is broken.
    pub(crate) fn overwritten(&self) -> Option<u32> {
        (0..self.seals.len()).find(|&index| !self.is_sealed(index)).map(|index| index as u32 * 64)
    }
}
