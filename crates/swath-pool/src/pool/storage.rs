//! The tables that a caller supplies for a pool's metadata.

use crate::heap::slot::HeapSlot;
use crate::superblock::record::{Returned, Superblock};

/// Storage for a pool's metadata, supplied by the caller. The tables have one record for each
/// unit, zeroed or as `new` makes them; records of units never used are not
/// touched, so that they may lie in memory that has no pages yet.
pub struct Storage<'m> {
    /// Records of units, 640 bytes each: their number is the arena's length.
    pub superblocks: &'m [Superblock],
    /// Bits of returned slots, 576 bytes for each unit, touched only where other threads free.
    pub returned: &'m [Returned],
    /// Processor heaps, as many as there can be threads with one.
    pub heaps: &'m [HeapSlot],
    /// Bits of free units whose memory is still there: [`dirty_words`] words, zeroed.
    pub dirty: &'m mut [u64],
}

/// Returns the number of words that [`Storage::dirty`] needs over `units` units.
#[must_use]
pub const fn dirty_words(units: usize) -> usize {
    2 * units.div_ceil(64)
}
