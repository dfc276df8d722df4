//! The tables that a caller supplies for a pool's metadata.

use crate::heap::slot::HeapSlot;
use crate::superblock::record::{Returned, Superblock};

/// What the caller gives for a pool's metadata. The tables have one record for each
/// unit, zeroed or as `new` makes them; records of units never used are not
/// touched, so that they may lie in memory that has no pages yet.
pub struct Storage<'m> {
    /// 640 bytes for each unit: their number is the arena's length.
    pub superblocks: &'m [Superblock],
    /// 576 bytes for each unit, touched only where other threads free.
    pub returned: &'m [Returned],
    /// As many as there can be threads with a heap.
    pub heaps: &'m [HeapSlot],
    /// [`dirty_words`] words, zeroed.
    pub dirty: &'m mut [u64],
}

/// Words for [`Storage::dirty`] over `units` units.
#[must_use]
pub const fn dirty_words(units: usize) -> usize {
    2 * units.div_ceil(64)
}
