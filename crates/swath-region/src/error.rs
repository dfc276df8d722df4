//! What a space of regions refuses, and what its check finds.

use core::fmt;

use swath_arch::{BusError, Extent, PageRange, PhysAddr, Vpn};

use crate::frames::QuotaError;
use crate::header::Rights;
use crate::tree::dense::TreeError;

/// Why a space of regions was not made. Words of the stack ends may have been
/// cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewRegionsError {
    /// The tables are for another number of pages than the tree, or for one that no tables
    /// are for.
    Pages {
        /// log2 of the pages of the tables.
        tables_log2: u32,
        /// Pages of the tree.
        tree_pages: u64,
    },
    /// The tree has regions already.
    TreeInUse {
        /// The first start above page 0.
        start: Vpn,
    },
    /// An array of the tables has no aligned base, or ends beyond the last address.
    Base {
        /// The base.
        base: PhysAddr,
    },
    /// An array shares bytes with another one, or with a frame of the pool.
    Overlap {
        /// The array's base.
        base: PhysAddr,
        /// What it overlaps.
        with: PhysAddr,
    },
    /// Fewer header words than needed.
    Headers {
        /// Words needed.
        needed: u64,
        /// Words given.
        given: usize,
    },
    /// The pool did not grant the quota.
    Quota(QuotaError),
    /// Memory did not answer.
    Bus(BusError),
}

/// Why a space of regions did not do what it was asked. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionError {
    /// The range holds no pages.
    Empty {
        /// Where it would start.
        start: Vpn,
    },
    /// A page is none of the space's.
    OutOfRange {
        /// The first such page.
        page: Vpn,
    },
    /// The range shares pages with a region.
    Overlap {
        /// The range.
        range: PageRange,
        /// The start of the first such region.
        start: Vpn,
    },
    /// The page lies in no region.
    NoRegion {
        /// The page.
        page: Vpn,
    },
    /// The page is not the start of its region.
    NotStart {
        /// The page.
        page: Vpn,
        /// The start.
        start: Vpn,
    },
    /// The page starts its region already.
    IsStart {
        /// The page.
        page: Vpn,
    },
    /// A page is mapped that may not be: above the place of a split, or in a region that
    /// is to become part of another.
    Mapped {
        /// The highest page that was mapped there.
        page: Vpn,
    },
    /// The region below has other rights, or there is none.
    NoNeighbour {
        /// The start of the region that was to become part of it.
        start: Vpn,
    },
    /// The region does not give the right for the access.
    Denied {
        /// The page.
        page: Vpn,
        /// What the access needs.
        access: Rights,
        /// What the region gives.
        rights: Rights,
    },
    /// The page is mapped already.
    AlreadyMapped {
        /// The page.
        page: Vpn,
    },
    /// The space has as many frames as it may have.
    LimitReached {
        /// The limit.
        limit: u32,
    },
    /// No frame is free that is not kept for others.
    OutOfFrames,
    /// The tree has no room for another start.
    Tree(TreeError),
    /// Memory did not answer.
    Bus(BusError),
}

/// What [`RegionSpace::check`](crate::space::RegionSpace::check) found wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionFault {
    /// The tree's own invariants do not hold.
    Tree,
    /// Two free intervals are neighbours.
    Uncoalesced {
        /// The start of the second.
        start: Vpn,
    },
    /// A page that starts no region has a stack end above itself.
    StackEnd {
        /// The page.
        page: Vpn,
        /// What its entry says.
        end: u32,
    },
    /// A region's stack holds a page that is not mapped by it, or twice.
    Stack {
        /// The region.
        start: Vpn,
        /// The entry.
        at: u32,
    },
    /// A mapped page's entries are wrong, or it lies above the highest known.
    Page {
        /// The page.
        page: Vpn,
    },
    /// A region's list is not as long as its stack, or ends elsewhere.
    List {
        /// The region.
        start: Vpn,
    },
    /// The regions have another number of frames than the space counted.
    Frames {
        /// In lists.
        found: u64,
        /// As counted.
        counted: u32,
    },
    /// Memory did not answer.
    Bus(BusError),
}

impl fmt::Display for NewRegionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pages { tables_log2, tree_pages } => {
                write!(f, "tables for 2^{tables_log2} pages, a tree for {tree_pages}")
            }
            Self::TreeInUse { start } => write!(f, "the tree has a start at page {start}"),
            Self::Base { base } => write!(f, "no array can start at {base}"),
            Self::Overlap { base, with } => {
                write!(f, "the array at {base} overlaps what is at {with}")
            }
            Self::Headers { needed, given } => {
                write!(f, "{given} words for headers, {needed} are needed")
            }
            Self::Quota(error) => error.fmt(f),
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { start } => write!(f, "no pages at {start}"),
            Self::OutOfRange { page } => write!(f, "page {page} is not in the space"),
            Self::Overlap { range, start } => {
                write!(f, "pages {range} overlap the region at {start}")
            }
            Self::NoRegion { page } => write!(f, "page {page} is in no region"),
            Self::NotStart { page, start } => {
                write!(f, "page {page} is inside the region at {start}")
            }
            Self::IsStart { page } => write!(f, "page {page} starts a region already"),
            Self::Mapped { page } => write!(f, "page {page} was mapped"),
            Self::NoNeighbour { start } => {
                write!(f, "no region with the same rights ends before {start}")
            }
            Self::Denied { page, access, rights } => {
                write!(f, "page {page} gives {rights}, the access needs {access}")
            }
            Self::AlreadyMapped { page } => write!(f, "page {page} is mapped already"),
            Self::LimitReached { limit } => write!(f, "the space has its {limit} frames"),
            Self::OutOfFrames => write!(f, "no frame is free"),
            Self::Tree(error) => error.fmt(f),
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for RegionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree => write!(f, "the tree's invariants do not hold"),
            Self::Uncoalesced { start } => {
                write!(f, "free pages before and from {start} are not one interval")
            }
            Self::StackEnd { page, end } => {
                write!(f, "page {page} starts no region and has stack end {end}")
            }
            Self::Stack { start, at } => {
                write!(f, "entry {at} of the stack of the region at {start} is wrong")
            }
            Self::Page { page } => write!(f, "the entries of page {page} are wrong"),
            Self::List { start } => write!(f, "the list of the region at {start} is wrong"),
            Self::Frames { found, counted } => {
                write!(f, "{found} frames in lists, {counted} counted")
            }
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NewRegionsError {}
impl core::error::Error for RegionError {}
impl core::error::Error for RegionFault {}

impl From<BusError> for RegionError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<BusError> for RegionFault {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<BusError> for NewRegionsError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

/// The first and the last byte of frames, to compare with arrays.
pub(crate) fn bytes_of(frames: Extent) -> (u64, u64) {
    (frames.start.address().raw(), frames.end().address().raw())
}
