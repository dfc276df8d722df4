//! The extents of the reserve.

use swath_arch::PhysAddr;

use crate::source::chunk::Chunk;

/// The pages that back memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pages {
    /// Pages of 1 GiB of the kernel's hugetlb pool.
    Hugetlb1G,
    /// Pages of 2 MiB of the kernel's hugetlb pool.
    Hugetlb2M,
    /// Pages for which transparent huge pages of 2 MiB were asked for.
    Transparent,
    /// Pages of 4 KiB.
    Small,
    /// Memory of one of the kernel's dma-heaps, which stays in its frames.
    DmaHeap,
}

impl Pages {
    /// Returns the record of a chunk that is backed so.
    pub(crate) fn chunk(self) -> Chunk {
        match self {
            Self::Hugetlb1G => Chunk::Giant,
            Self::Hugetlb2M => Chunk::Huge,
            Self::Transparent => Chunk::Advised,
            Self::Small => Chunk::Small,
            Self::DmaHeap => Chunk::Heap,
        }
    }

    /// Returns the pages of a chunk's record, if it has any.
    pub(crate) fn of(chunk: u32) -> Option<Self> {
        [Self::Hugetlb1G, Self::Hugetlb2M, Self::Transparent, Self::Small, Self::DmaHeap]
            .into_iter()
            .find(|pages| pages.chunk() as u32 == chunk)
            .or((chunk == Chunk::Pieces as u32).then_some(Self::Small))
    }
}

/// An extent of the reserve: a run of addresses which was one run of physical memory when it was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveExtent {
    /// Its first address.
    pub address: usize,
    /// Number of its bytes.
    pub len_bytes: u64,
    /// Physical address of its first byte; `None` if it is not known, and its frames are simulated.
    pub physical: Option<PhysAddr>,
    /// The pages that back it.
    pub pages: Pages,
}
