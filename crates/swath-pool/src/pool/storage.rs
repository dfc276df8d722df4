//! The tables that a caller supplies for a pool's metadata.

use crate::heap::slot::HeapSlot;
use crate::superblock::claim::Claim;
use crate::superblock::live::Live;
use crate::superblock::record::Superblock;
use crate::superblock::returned::Returned;

/// Storage for a pool's metadata, supplied by the caller, one record for each unit. It may hold
/// anything: [`BufferPool::new`](crate::BufferPool::new) clears it. The pool has it for itself for
/// as long as it lives, so that two pools cannot share it:
///
/// ```compile_fail,E0499
/// use swath_pool::{HeapSlot, Storage};
///
/// let mut heaps = [HeapSlot::new()];
/// let one = Storage { superblocks: &mut [], returned: &mut [], live: &mut [], claims: &mut [], heaps: &mut heaps, dirty: &mut [] };
/// let two = Storage { superblocks: &mut [], returned: &mut [], live: &mut [], claims: &mut [], heaps: &mut heaps, dirty: &mut [] };
/// drop((one, two));
/// ```
pub struct Storage<'m> {
    /// Records of units, 640 bytes each: their number is the arena's length.
    pub superblocks: &'m mut [Superblock],
    /// Bits of returned slots, 1,088 bytes for each unit, touched only where other threads free.
    pub returned: &'m mut [Returned],
    /// Live bits, 512 bytes for each unit, touched only for superblocks.
    pub live: &'m mut [Live],
    /// Claims of fronts to free slots, 8 bytes for each unit, touched only for superblocks.
    pub claims: &'m mut [Claim],
    /// Processor heaps, 67 KiB each, as many as there can be threads with one; touched only as far as classes
    /// are used.
    pub heaps: &'m mut [HeapSlot],
    /// Bits of free units whose memory is still there, and their seals: [`dirty_words`] words.
    pub dirty: &'m mut [u64],
}

impl Storage<'_> {
    /// Forgets whatever an earlier pool has left.
    pub(crate) fn clear(&mut self) {
        self.superblocks.fill_with(Superblock::new);
        self.returned.fill_with(Returned::new);
        self.live.fill_with(Live::new);
        self.claims.fill_with(Claim::new);
        self.heaps.fill_with(HeapSlot::new);
        self.dirty.fill(0);
    }
}

/// Returns the number of words that [`Storage::dirty`] needs over `units` units.
#[must_use]
pub const fn dirty_words(units: usize) -> usize {
    3 * units.div_ceil(64)
}
