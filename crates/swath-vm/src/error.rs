//! Why an operation was refused: one type for each operation. Nothing has
//! changed, except where a variant says so.

use core::fmt;

use swath_arch::{BusError, Extent, Order, Pfn, Vpn};
use swath_frame::{AllocError, FreeError};

use crate::unmap::Flush;

/// Why a space was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewError {
    /// A contiguity field beside the table has a width that half an entry does
    /// not hold.
    Width {
        /// The width asked for.
        bits: u8,
        /// The largest there is; the smallest is 1.
        bits_max: u32,
    },
    /// The distance between anchors is none of 2^1 to 2^16 pages.
    Distance {
        /// The distance asked for.
        distance: Order,
    },
    /// No frames for the root table.
    NoTable(AllocError),
    /// The root's frame lies beyond what the format can address.
    TableOutOfReach {
        /// The frame.
        frame: Pfn,
    },
    /// The root could not be cleared.
    Bus(BusError),
}

/// Why an extent was not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// The range holds no pages.
    Empty,
    /// A page is none that the format translates.
    NotCanonical {
        /// The first such page.
        page: Vpn,
    },
    /// A frame lies beyond what a descriptor of the format can say.
    FrameOutOfReach {
        /// The first such frame.
        frame: Pfn,
    },
    /// A page is mapped already, by a base page or by a larger one.
    AlreadyMapped {
        /// The first such page.
        page: Vpn,
    },
    /// No frame for a table.
    NoTable(AllocError),
    /// The frame for a table lies beyond what the format can address.
    TableOutOfReach {
        /// The frame.
        frame: Pfn,
    },
    /// Memory did not answer.
    Bus(BusError),
}

/// Why a page of a given size was not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageSizeError {
    /// The format has no page of this order.
    NoSuchSize {
        /// The order asked for.
        order: Order,
    },
    /// The page number is no multiple of 2^order.
    PageMisaligned {
        /// The page.
        page: Vpn,
        /// The order.
        order: Order,
    },
    /// The frame number is no multiple of 2^order.
    FrameMisaligned {
        /// The frame.
        frame: Pfn,
        /// The order.
        order: Order,
    },
    /// As for an extent.
    Map(MapError),
}

/// Why eager paging did not take and map a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocateError {
    /// Fewer frames are free than the chunk has pages.
    OutOfFrames {
        /// Frames wanted.
        wanted: u64,
        /// Frames free.
        free: u64,
    },
    /// The frames were there, but could not be mapped.
    Map(MapError),
}

/// Why demand paging did not map a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// No frame is free.
    OutOfFrames,
    /// The frame was there, but could not be mapped.
    Map(MapError),
}

/// Why a range was not unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnmapError {
    /// The range holds no pages.
    Empty,
    /// A page is none that the format translates.
    NotCanonical {
        /// The first such page.
        page: Vpn,
    },
    /// A page is not mapped.
    NotMapped {
        /// The first such page.
        page: Vpn,
    },
    /// The range holds a part of a larger page only.
    Partial {
        /// The larger page's first base page.
        page: Vpn,
        /// Its order.
        order: Order,
    },
    /// Memory did not answer.
    Bus(BusError),
    /// The range *is* unmapped, but the allocator denied that frames of the
    /// space were taken from it: somebody else has freed them. The rest of the
    /// frames went back.
    Refused {
        /// The first extent refused.
        extent: Extent,
        /// What the allocator said.
        error: FreeError,
        /// The maintenance owed, as after success.
        flush: Flush,
    },
}

/// Why a page has no translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TranslateError {
    /// The page is none that the format translates.
    NotCanonical {
        /// The page.
        page: Vpn,
    },
    /// The page is not mapped.
    NotMapped {
        /// The page.
        page: Vpn,
    },
    /// Memory did not answer.
    Bus(BusError),
}

/// What [`AddressSpace::check`](crate::AddressSpace::check) found wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckError {
    /// Memory did not answer.
    Bus(BusError),
    /// The tables that the root reaches take another number of frames than
    /// were taken for tables.
    TableFrames {
        /// Frames of the tables reached.
        reached: u64,
        /// Frames taken.
        taken: u64,
    },
    /// A page claims contiguity that the mapping does not have.
    Contiguity {
        /// The page.
        page: Vpn,
    },
    /// One of the 16 entries of a page differs from its first, or the page is
    /// not aligned.
    Copies {
        /// The first page that the entry maps.
        page: Vpn,
    },
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Width { bits, bits_max } => {
                write!(f, "a contiguity field of {bits} bits: 1 to {bits_max} fit")
            }
            Self::Distance { distance } => {
                write!(f, "anchors 2^{distance} pages apart: 2^1 to 2^16 are possible")
            }
            Self::NoTable(error) => write!(f, "no frames for the root table: {error}"),
            Self::TableOutOfReach { frame } => write!(f, "root table at frame {frame} is too high"),
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a range of no pages"),
            Self::NotCanonical { page } => write!(f, "page {page} is not translated"),
            Self::FrameOutOfReach { frame } => write!(f, "frame {frame} fits no descriptor"),
            Self::AlreadyMapped { page } => write!(f, "page {page} is mapped already"),
            Self::NoTable(error) => write!(f, "no frame for a table: {error}"),
            Self::TableOutOfReach { frame } => write!(f, "a table at frame {frame} is too high"),
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for PageSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchSize { order } => write!(f, "the format has no page of order {order}"),
            Self::PageMisaligned { page, order } => {
                write!(f, "page {page} is not aligned to order {order}")
            }
            Self::FrameMisaligned { frame, order } => {
                write!(f, "frame {frame} is not aligned to order {order}")
            }
            Self::Map(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for AllocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfFrames { wanted, free } => write!(f, "{wanted} frames wanted, {free} free"),
            Self::Map(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfFrames => write!(f, "no frame is free"),
            Self::Map(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for UnmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a range of no pages"),
            Self::NotCanonical { page } => write!(f, "page {page} is not translated"),
            Self::NotMapped { page } => write!(f, "page {page} is not mapped"),
            Self::Partial { page, order } => {
                write!(f, "the page of order {order} at {page} lies in the range in part")
            }
            Self::Bus(error) => error.fmt(f),
            Self::Refused { extent, error, .. } => {
                write!(f, "unmapped, but frames {extent} were not taken back: {error}")
            }
        }
    }
}

impl fmt::Display for TranslateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCanonical { page } => write!(f, "page {page} is not translated"),
            Self::NotMapped { page } => write!(f, "page {page} is not mapped"),
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bus(error) => error.fmt(f),
            Self::TableFrames { reached, taken } => {
                write!(f, "{taken} frames were taken for tables, {reached} are reached")
            }
            Self::Contiguity { page } => write!(f, "page {page} claims too much contiguity"),
            Self::Copies { page } => write!(f, "the entry of page {page} is unlike its fellows"),
        }
    }
}

macro_rules! errors {
    ($($name:ident),*) => { $(impl core::error::Error for $name {})* };
}
errors!(
    NewError,
    MapError,
    PageSizeError,
    AllocateError,
    FaultError,
    UnmapError,
    TranslateError,
    CheckError
);

impl From<BusError> for NewError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<BusError> for MapError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<BusError> for UnmapError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<BusError> for TranslateError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}
