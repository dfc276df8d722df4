//! The global heap: superblocks without a thread, and free units whose memory is still there.

use crate::heap::kept::Kept;
use crate::pool::dirty::Dirty;
use crate::source::segment_source::{Placement, SegmentSource};
use crate::superblock::class::CLASSES;
use crate::superblock::list::List;

/// The state under the lock.
///
/// Invariants: `partial` holds the global heap's superblocks with free slots; units from
/// `high` on were never used, nor heaps from `heaps_high` on; a dirty bit is set only for a free unit.
pub(crate) struct Global<'m, S> {
    pub(crate) source: S,
    pub(crate) partial: [List; CLASSES],
    dirty: Dirty<'m>,
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
            dirty: Dirty::new(dirty),
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

    /// Acquires units for a segment, as [`acquire`](Self::acquire).
    pub(crate) fn acquire_segment(&mut self, units: u32, align_units: u32) -> Option<(u32, bool)> {
        let first = self.source.acquire_segment(units, align_units)?;
        Some((first, self.note_acquired(first, units)))
    }

    /// Acquires units at a place in physical memory, as [`acquire`](Self::acquire).
    pub(crate) fn acquire_placed(
        &mut self,
        units: u32,
        placement: &Placement,
    ) -> Option<(u32, bool)> {
        let first = self.source.acquire_placed(units, placement)?;
        Some((first, self.note_acquired(first, units)))
    }

    /// Notes that units are in use now, and returns true if they read as zero.
    pub(crate) fn note_acquired(&mut self, first: u32, units: u32) -> bool {
        self.high = self.high.max(first + units);
        let were_dirty = self.dirty.clear(first, units);
        !were_dirty && self.source.reads_zero()
    }

    /// Units that no record could name stay in use: nothing else has them then.
    pub(crate) fn release(&mut self, first: u32, units: u32) {
        if units == 0 || first.checked_add(units).is_none_or(|end| end > self.high) {
            return;
        }
        self.dirty.set(first, units);
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
        let Self { source, dirty, .. } = self;
        dirty.purge(all, self.high, |first, units| source.purge(first, units))
    }

    /// Free units whose memory is still there.
    pub(crate) fn dirty_units(&self) -> u64 {
        self.dirty.count(self.high)
    }

    pub(crate) fn is_dirty(&self, unit: u32) -> bool {
        self.dirty.has(unit)
    }

    /// The first unit whose word of dirty bits was overwritten.
    pub(crate) fn overwritten_dirty(&self) -> Option<u32> {
        self.dirty.overwritten()
    }
}
