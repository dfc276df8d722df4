//! The global heap: superblocks without a thread, and free units whose memory is still there.

use crate::heap::kept::Kept;
use crate::source::masks::word_masks;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::CLASSES;
use crate::superblock::list::List;

/// The state under the lock.
///
/// Invariants: `partial` holds the global heap's superblocks with free slots; units from
/// `high` on were never used, nor heaps from `heaps_high` on; a dirty bit is set only for a free unit.
pub(crate) struct Global<'m, S> {
    pub(crate) source: S,
    pub(crate) partial: [List; CLASSES],
    /// Units released since the last purge, then those released before it.
    dirty: &'m mut [u64],
    pub(crate) high: u32,
    pub(crate) heaps_high: usize,
    /// Slots of its superblocks that came back.
    pub(crate) remote_frees: u64,
    /// Number of releases so far, which says if another try may succeed.
    pub(crate) releases: u64,
}

impl<'m, S: SegmentSource> Global<'m, S> {
    /// `dirty` is all zero.
    pub(crate) fn new(source: S, dirty: &'m mut [u64]) -> Self {
        Self {
            source,
            partial: [const { List::new() }; CLASSES],
            dirty,
            high: 0,
            heaps_high: 0,
            remote_frees: 0,
            releases: 0,
        }
    }

    /// Acquires units from the source; true beside them if they read as zero.
    pub(crate) fn acquire(&mut self, units: u32, align_units: u32) -> Option<(u32, bool)> {
        let first = self.source.acquire(units, align_units)?;
        Some((first, self.note_acquired(first, units)))
    }

    /// Notes that units are in use now, and returns true if they read as zero.
    pub(crate) fn note_acquired(&mut self, first: u32, units: u32) -> bool {
        self.high = self.high.max(first + units);
        let (new, old) = self.dirty.split_at_mut(self.dirty.len() / 2);
        let mut dirty = 0;
        for (index, mask) in word_masks(first, units) {
            dirty |= (new[index] | old[index]) & mask;
            new[index] &= !mask;
            old[index] &= !mask;
        }
        dirty == 0 && self.source.reads_zero()
    }

    /// Units that no record could name stay in use: nothing else has them then.
    pub(crate) fn release(&mut self, first: u32, units: u32) {
        if units == 0 || first.checked_add(units).is_none_or(|end| end > self.high) {
            return;
        }
        for (index, mask) in word_masks(first, units) {
            self.dirty[index] |= mask;
        }
        self.releases += 1;
        self.source.release(first, units);
    }

    /// Releases the units that a heap keeps.
    pub(crate) fn release_kept(&mut self, kept: &Kept) {
        kept.gather().for_each(|run| self.release(run.first, run.units));
    }

    /// Returns the memory of units released before the last call, or of all free ones, to the
    /// system, and the number of these units.
    pub(crate) fn purge(&mut self, all: bool) -> u64 {
        let half = self.dirty.len() / 2;
        let mut purged = 0;
        // A run of units, across words.
        let (mut start, mut end) = (0, 0);
        for index in 0..self.high.div_ceil(64) as usize {
            let mut due = self.dirty[half + index];
            if all {
                due |= core::mem::take(&mut self.dirty[index]);
                self.dirty[half + index] = due;
            }
            // No unit above `high` was ever used, whatever a bit that was overwritten says.
            let above = (index as u32 * 64 + 64).saturating_sub(self.high);
            due &= u64::MAX >> above.min(63);
            while due != 0 {
                let skip = due.trailing_zeros();
                let run = (due >> skip).trailing_ones();
                due &= !((u64::MAX >> (64 - run)) << skip);
                let at = index as u32 * 64 + skip;
                if at != end {
                    purged += self.purge_run(start, end);
                    start = at;
                }
                end = at + run;
            }
        }
        purged += self.purge_run(start, end);
        let (new, old) = self.dirty.split_at_mut(half);
        for (new, old) in new.iter_mut().zip(old) {
            *old |= core::mem::take(new);
        }
        purged
    }

    fn purge_run(&mut self, start: u32, end: u32) -> u64 {
        if start == end || !self.source.purge(start, end - start) {
            return 0;
        }
        let half = self.dirty.len() / 2;
        for (index, mask) in word_masks(start, end - start) {
            self.dirty[half + index] &= !mask;
        }
        u64::from(end - start)
    }

    /// Free units whose memory is still there.
    pub(crate) fn dirty_units(&self) -> u64 {
        self.dirty.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(crate) fn is_dirty(&self, unit: u32) -> bool {
        let (new, old) = self.dirty.split_at(self.dirty.len() / 2);
        (new[unit as usize / 64] | old[unit as usize / 64]) >> (unit % 64) & 1 != 0
    }
}
