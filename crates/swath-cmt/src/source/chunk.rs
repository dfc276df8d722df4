//! Chunks: what the arena's memory is mapped in.

use swath_pool::UNIT_BYTES;

/// Bytes of a chunk: a huge page of x86-64 and of ARMv8 with granule 4 KiB.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;
/// Units of a chunk.
pub(crate) const CHUNK_UNITS: u32 = (CHUNK_BYTES / UNIT_BYTES) as u32;
/// Chunks of a page of 1 GiB.
pub(crate) const GIANT_CHUNKS: usize = 512;
/// Bytes of a page of 1 GiB.
pub(crate) const GIANT_BYTES: usize = GIANT_CHUNKS * CHUNK_BYTES;

/// The pages that back a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Chunk {
    /// Nothing yet.
    Reserved = 0,
    /// Ordinary pages.
    Small = 1,
    /// Ordinary pages, and a transparent huge page asked for.
    Advised = 2,
    /// A page of the hugetlb pool.
    Huge = 3,
    /// A part of a page of 1 GiB.
    Giant = 4,
    /// Ordinary pages, of which not all are usable.
    Pieces = 5,
    /// Memory of a dma-heap.
    Heap = 6,
}

/// Counts of chunks by the pages that back them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Chunks {
    pub(crate) small: u64,
    pub(crate) advised: u64,
    pub(crate) huge: u64,
    pub(crate) giant: u64,
    pub(crate) heap: u64,
    /// Number of chunks that were picked and ordered by their frames.
    pub(crate) ordered: u64,
}

impl Chunks {
    /// Returns the count of one kind.
    pub(crate) fn of(&mut self, what: u32) -> Option<&mut u64> {
        Some(match what {
            what if what == Chunk::Small as u32 || what == Chunk::Pieces as u32 => &mut self.small,
            what if what == Chunk::Advised as u32 => &mut self.advised,
            what if what == Chunk::Huge as u32 => &mut self.huge,
            what if what == Chunk::Giant as u32 => &mut self.giant,
            what if what == Chunk::Heap as u32 => &mut self.heap,
            _ => return None,
        })
    }
}
