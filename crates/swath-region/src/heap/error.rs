//! Errors of a heap of regions, and breaches of its invariants.

use swath_arch::Vpn;

use crate::error::{RegionError, RegionFault};

/// Reasons why a heap of regions is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NewRegionHeapError {
    /// The pool has no pages, or more than the space.
    #[error("a pool of {pages} pages in a space of {space_pages}")]
    Pages {
        /// Pages of the pool.
        pages: u64,
        /// Pages of the space.
        space_pages: u64,
    },
    /// Fewer words than pages of the pool.
    #[error("{given} words for a pool of {needed} pages")]
    Words {
        /// Words needed.
        needed: u64,
        /// Words given.
        given: usize,
    },
    /// The heap refuses the pool: it does not consist of whole pages, or the space has no
    /// frames for the first tags.
    #[error(transparent)]
    Pool(#[from] swath_heap::HeapPoolError),
    /// The space refuses the first tags.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// A breach of an invariant, found by [`RegionHeap::check`](crate::RegionHeap::check).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegionHeapFault {
    /// The heap's own check failed.
    #[error(transparent)]
    Heap(#[from] swath_heap::HeapFault),
    /// The space's own check failed.
    #[error(transparent)]
    Region(#[from] RegionFault),
    /// A region counts no committed pages, or more than it has.
    #[error("{left} of {count} pages of the region at {start} are left")]
    Left {
        /// The region's start.
        start: Vpn,
        /// Its committed pages, as counted.
        left: u32,
        /// Its pages.
        count: u64,
    },
}
