//! Errors of a space of regions, and the faults that its check finds.

use swath_arch::{BusError, PageRange, PhysAddr, Vpn};

use crate::frames::QuotaError;
use crate::header::Rights;
use crate::tree::partition::TreeError;

/// Reasons why a space of regions is not made. Words of the stack ends may have been
/// cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NewRegionsError {
    /// The tables are for another number of pages than the tree, or for one that no tables
    /// are for.
    #[error("tables for 2^{tables_log2} pages, a tree for {tree_pages}")]
    Pages {
        /// log2 of the pages of the tables.
        tables_log2: u32,
        /// Pages of the tree.
        tree_pages: u64,
    },
    /// The tree has regions already.
    #[error("the tree has a start at page {start}")]
    TreeInUse {
        /// The first start above page 0.
        start: Vpn,
    },
    /// An array of the tables has no aligned base, or ends beyond the last address.
    #[error("no array can start at {base}")]
    Base {
        /// The base.
        base: PhysAddr,
    },
    /// An array shares bytes with another one, or with a frame of the pool.
    #[error("the array at {base} overlaps what is at {with}")]
    Overlap {
        /// The array's base.
        base: PhysAddr,
        /// The base of the other array, or the first frame of the pool.
        with: PhysAddr,
    },
    /// Fewer header words than needed.
    #[error("{given} words for headers, {needed} are needed")]
    Headers {
        /// Words needed.
        needed: u64,
        /// Words given.
        given: usize,
    },
    /// The pool did not grant the quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Reasons why an operation on regions is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegionError {
    /// The range holds no pages.
    #[error("no pages at {start}")]
    Empty {
        /// The range's start.
        start: Vpn,
    },
    /// A page is none of the space's.
    #[error("page {page} is not in the space")]
    OutOfRange {
        /// The first such page.
        page: Vpn,
    },
    /// The range shares pages with a region.
    #[error("pages {range} overlap the region at {start}")]
    Overlap {
        /// The range.
        range: PageRange,
        /// The start of the first such region.
        start: Vpn,
    },
    /// The page lies in no region.
    #[error("page {page} is in no region")]
    NoRegion {
        /// The page.
        page: Vpn,
    },
    /// The page is not the start of its region.
    #[error("page {page} is inside the region at {start}")]
    NotStart {
        /// The page.
        page: Vpn,
        /// The start.
        start: Vpn,
    },
    /// The page starts its region already.
    #[error("page {page} starts a region already")]
    IsStart {
        /// The page.
        page: Vpn,
    },
    /// A page is mapped that may not be: above the place of a split, or in a region that
    /// is to become part of another.
    #[error("page {page} was mapped")]
    Mapped {
        /// The highest page that was mapped there.
        page: Vpn,
    },
    /// The region below has other rights, or there is none.
    #[error("no region with the same rights ends before {start}")]
    NoNeighbour {
        /// The start of the region that was to become part of it.
        start: Vpn,
    },
    /// The region does not give the right for the access.
    #[error("page {page} gives {rights}, the access needs {access}")]
    Denied {
        /// The page.
        page: Vpn,
        /// Rights that the access needs.
        access: Rights,
        /// Rights that the region gives.
        rights: Rights,
    },
    /// The page is mapped already.
    #[error("page {page} is mapped already")]
    AlreadyMapped {
        /// The page.
        page: Vpn,
    },
    /// The space has as many frames as it may have.
    #[error("the space has its {limit} frames")]
    LimitReached {
        /// The limit.
        limit: u32,
    },
    /// No frame is free that is not kept for others.
    #[error("no frame is free")]
    OutOfFrames,
    /// The tree has no room for another start.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// A breach of an invariant, found by [`RegionSpace::check`](crate::RegionSpace::check).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegionFault {
    /// The tree's own invariants do not hold.
    #[error("the tree's invariants do not hold")]
    Tree,
    /// Two free intervals are neighbours.
    #[error("free pages before and from {start} are not one interval")]
    Uncoalesced {
        /// The start of the second.
        start: Vpn,
    },
    /// A page that starts no region has a stack end above itself.
    #[error("page {page} starts no region and has stack end {end}")]
    StackEnd {
        /// The page.
        page: Vpn,
        /// The stack end in its entry.
        end: u32,
    },
    /// A region's stack holds a page that is not mapped by it, or twice.
    #[error("entry {at} of the stack of the region at {start} is wrong")]
    Stack {
        /// The region.
        start: Vpn,
        /// The entry.
        at: u32,
    },
    /// A mapped page's entries are wrong, or it lies above the highest known.
    #[error("the entries of page {page} are wrong")]
    Page {
        /// The page.
        page: Vpn,
    },
    /// A region's list is not as long as its stack, or ends elsewhere.
    #[error("the list of the region at {start} is wrong")]
    List {
        /// The region.
        start: Vpn,
    },
    /// The regions have another number of frames than the space counted.
    #[error("{found} frames in lists, {counted} counted")]
    Frames {
        /// In lists.
        found: u64,
        /// As counted.
        counted: u32,
    },
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}
