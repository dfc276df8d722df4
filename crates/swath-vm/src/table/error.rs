//! Why an operation was refused: one type for each operation. Nothing has
//! changed, except where a variant says so.

use core::fmt;

use swath_arch::{BusError, Extent, Order, Pfn, PhysAddr, Vpn};
use swath_frame::{FrameAllocateError, FrameFreeError};

use crate::table::unmap::Flush;

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
    /// The format has no superpage of this order.
    NoSuchSize {
        /// The order.
        order: Order,
    },
    /// No frames for the root table.
    NoTable(FrameAllocateError),
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
    NoTable(FrameAllocateError),
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
        error: FrameFreeError,
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

/// What about the pages there kept a promotion from being made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// A page is not mapped.
    NotMapped {
        /// The page.
        page: Vpn,
    },
    /// Not every entry of the table is in use.
    NotFull {
        /// Entries in use.
        entries: u64,
    },
    /// A superpage of this order or a larger one is there already.
    Superpage {
        /// Its order.
        order: Order,
    },
    /// A page has not yet the size that the superpage is made of; promote it
    /// first.
    Smaller {
        /// The page.
        page: Vpn,
    },
    /// The first frame is not aligned as the superpage has to be.
    Misaligned {
        /// The frame.
        frame: Pfn,
    },
    /// The first page has not been accessed.
    NotAccessed,
    /// A page permits or leads to something else than the first one's place
    /// would, or its reverse map's flags differ.
    Different {
        /// The page, the last such one.
        page: Vpn,
    },
}

/// Why pages did not become a superpage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PromoteError {
    /// The space was not made for superpages.
    NotForSuperpages,
    /// No superpage of this order is on.
    NoSuchSize {
        /// The order asked for.
        order: Order,
    },
    /// The page is none that the format translates.
    NotCanonical {
        /// The page.
        page: Vpn,
    },
    /// The pages there do not permit it: what happens every day.
    Refused {
        /// What is in the way.
        why: Refusal,
        /// Words of tables that were read to find that out.
        words_read: u64,
    },
    /// Memory did not answer.
    Bus(BusError),
}

/// Why a superpage was not demoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DemoteError {
    /// The space was not made for superpages.
    NotForSuperpages,
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
    /// It is a base page already.
    BasePage {
        /// The page.
        page: Vpn,
    },
    /// No table was kept, and there is no frame for a new one: the superpage
    /// can only be removed as a whole.
    NoTable(FrameAllocateError),
    /// The frame for a table lies beyond what the format can address.
    TableOutOfReach {
        /// The frame.
        frame: Pfn,
    },
    /// A supersection leads to frames that no section can lead to.
    FrameOutOfReach {
        /// The first frame.
        frame: Pfn,
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
    /// The word beside a link counts other entries than are in use.
    Occupancy {
        /// The entry that links the table.
        link: PhysAddr,
        /// The number written.
        said: u64,
        /// Entries in use.
        in_use: u64,
    },
    /// A kept table begins as its superpage does and goes on otherwise.
    Kept {
        /// The superpage's entry.
        entry: PhysAddr,
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
            Self::NoSuchSize { order } => {
                write!(f, "the format has no superpage of order {order}")
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMapped { page } => write!(f, "page {page} is not mapped"),
            Self::NotFull { entries } => write!(f, "only {entries} entries are in use"),
            Self::Superpage { order } => write!(f, "a page of order {order} is there already"),
            Self::Smaller { page } => write!(f, "page {page} has not been promoted itself"),
            Self::Misaligned { frame } => write!(f, "the first frame, {frame}, is not aligned"),
            Self::NotAccessed => write!(f, "the first page has not been accessed"),
            Self::Different { page } => write!(f, "page {page} is unlike the first"),
        }
    }
}

impl fmt::Display for PromoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotForSuperpages => write!(f, "the space was not made for superpages"),
            Self::NoSuchSize { order } => write!(f, "no superpage of order {order} is on"),
            Self::NotCanonical { page } => write!(f, "page {page} is not translated"),
            Self::Refused { why, .. } => why.fmt(f),
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for DemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotForSuperpages => write!(f, "the space was not made for superpages"),
            Self::NotCanonical { page } => write!(f, "page {page} is not translated"),
            Self::NotMapped { page } => write!(f, "page {page} is not mapped"),
            Self::BasePage { page } => write!(f, "page {page} is a base page"),
            Self::NoTable(error) => write!(f, "no frame for a table: {error}"),
            Self::TableOutOfReach { frame } => write!(f, "a table at frame {frame} is too high"),
            Self::FrameOutOfReach { frame } => write!(f, "frame {frame} fits no section"),
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
            Self::Occupancy { link, said, in_use } => {
                write!(f, "the table of the entry at {link} has {in_use} entries, not {said}")
            }
            Self::Kept { entry } => {
                write!(f, "the table kept beside the entry at {entry} is neither stale nor right")
            }
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
    PromoteError,
    DemoteError,
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

impl From<BusError> for PromoteError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<BusError> for DemoteError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}
