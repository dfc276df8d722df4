//! Reasons why operations are refused: one type for each operation. Nothing has
//! changed, except where a variant says so.

use swath_arch::{BusError, Extent, Order, Pfn, PhysAddr, Vpn};
use swath_frame::{FrameAllocateError, FrameFreeError};

use crate::table::flush::Flush;

/// Reasons why a space is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NewSpaceError {
    /// A contiguity field beside the table has a width that half an entry does
    /// not hold.
    #[error("a contiguity field of {bits} bits: 1 to {bits_max} fit")]
    Width {
        /// The width asked for.
        bits: u8,
        /// The largest there is; the smallest is 1.
        bits_max: u32,
    },
    /// The distance between anchors is none of 2^1 to 2^16 pages.
    #[error("anchors 2^{distance} pages apart: 2^1 to 2^16 are possible")]
    Distance {
        /// The distance asked for.
        distance: Order,
    },
    /// The format has no superpage of this order.
    #[error("the format has no superpage of order {order}")]
    NoSuchSize {
        /// The order.
        order: Order,
    },
    /// No frames for the root table.
    #[error("no frames for the root table: {0}")]
    NoTable(FrameAllocateError),
    /// The root's frame lies beyond what the format can address.
    #[error("root table at frame {frame} is too high")]
    TableOutOfReach {
        /// The frame.
        frame: Pfn,
    },
    /// The root could not be cleared.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Reasons why an extent is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapPagesError {
    /// The range holds no pages.
    #[error("a range of no pages")]
    Empty,
    /// A page is none that the format translates.
    #[error("page {page} is not translated")]
    NotCanonical {
        /// The first such page.
        page: Vpn,
    },
    /// A frame lies beyond what a descriptor of the format can say.
    #[error("frame {frame} fits no descriptor")]
    FrameOutOfReach {
        /// The first such frame.
        frame: Pfn,
    },
    /// A page is mapped already, by a base page or by a larger one.
    #[error("page {page} is mapped already")]
    AlreadyMapped {
        /// The first such page.
        page: Vpn,
    },
    /// No frame for a table.
    #[error("no frame for a table: {0}")]
    NoTable(FrameAllocateError),
    /// The frame for a table lies beyond what the format can address.
    #[error("a table at frame {frame} is too high")]
    TableOutOfReach {
        /// The frame.
        frame: Pfn,
    },
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Reasons why a page of a given size is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageSizeError {
    /// The format has no page of this order.
    #[error("the format has no page of order {order}")]
    NoSuchSize {
        /// The order asked for.
        order: Order,
    },
    /// The page number is no multiple of 2^order.
    #[error("page {page} is not aligned to order {order}")]
    PageMisaligned {
        /// The page.
        page: Vpn,
        /// The order.
        order: Order,
    },
    /// The frame number is no multiple of 2^order.
    #[error("frame {frame} is not aligned to order {order}")]
    FrameMisaligned {
        /// The frame.
        frame: Pfn,
        /// The order.
        order: Order,
    },
    /// As for an extent.
    #[error(transparent)]
    Map(MapPagesError),
}

/// Reasons why eager paging does not allocate and map a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EagerPagingError {
    /// Fewer frames are free than the chunk has pages.
    #[error("{wanted} frames wanted, {free} free")]
    OutOfFrames {
        /// Frames wanted.
        wanted: u64,
        /// Frames free.
        free: u64,
    },
    /// The frames were there, but could not be mapped.
    #[error(transparent)]
    Map(MapPagesError),
}

/// Reasons why demand paging does not map a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DemandPagingError {
    /// No frame is free.
    #[error("no frame is free")]
    OutOfFrames,
    /// The frame was there, but could not be mapped.
    #[error(transparent)]
    Map(MapPagesError),
}

/// Reasons why a range is not unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnmapError {
    /// The range holds no pages.
    #[error("a range of no pages")]
    Empty,
    /// A page is none that the format translates.
    #[error("page {page} is not translated")]
    NotCanonical {
        /// The first such page.
        page: Vpn,
    },
    /// A page is not mapped.
    #[error("page {page} is not mapped")]
    NotMapped {
        /// The first such page.
        page: Vpn,
    },
    /// The range holds a part of a larger page only.
    #[error("the page of order {order} at {page} lies in the range in part")]
    Partial {
        /// The larger page's first base page.
        page: Vpn,
        /// Its order.
        order: Order,
    },
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The range *is* unmapped, but the allocator denied that frames of the
    /// space were taken from it: somebody else has freed them. The rest of the
    /// frames went back.
    #[error("unmapped, but frames {extent} were not taken back: {error}")]
    Refused {
        /// The first extent refused.
        extent: Extent,
        /// The allocator's error.
        error: FrameFreeError,
        /// The maintenance owed, as after success.
        flush: Flush,
    },
}

/// Reasons why a page has no translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TranslateError {
    /// The page is none that the format translates.
    #[error("page {page} is not translated")]
    NotCanonical {
        /// The page.
        page: Vpn,
    },
    /// The page is not mapped.
    #[error("page {page} is not mapped")]
    NotMapped {
        /// The page.
        page: Vpn,
    },
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Properties of the pages that prevent a promotion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// A page is not mapped.
    #[error("page {page} is not mapped")]
    NotMapped {
        /// The page.
        page: Vpn,
    },
    /// Not every entry of the table is in use.
    #[error("only {entries} entries are in use")]
    NotFull {
        /// Entries in use.
        entries: u64,
    },
    /// A superpage of this order or a larger one is there already.
    #[error("a page of order {order} is there already")]
    Superpage {
        /// Its order.
        order: Order,
    },
    /// A page has not yet the size that the superpage is made of; promote it
    /// first.
    #[error("page {page} has not been promoted itself")]
    Smaller {
        /// The page.
        page: Vpn,
    },
    /// The first frame is not aligned as the superpage has to be.
    #[error("the first frame, {frame}, is not aligned")]
    Misaligned {
        /// The frame.
        frame: Pfn,
    },
    /// The first page has not been accessed.
    #[error("the first page has not been accessed")]
    NotAccessed,
    /// A page permits or leads to something else than the first one's place
    /// would, or its reverse map's flags differ.
    #[error("page {page} is unlike the first")]
    Different {
        /// The page, the last such one.
        page: Vpn,
    },
}

/// Reasons why pages do not become a superpage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PromoteError {
    /// The space was not made for superpages.
    #[error("the space was not made for superpages")]
    NotForSuperpages,
    /// No superpage of this order is on.
    #[error("no superpage of order {order} is on")]
    NoSuchSize {
        /// The order asked for.
        order: Order,
    },
    /// The page is none that the format translates.
    #[error("page {page} is not translated")]
    NotCanonical {
        /// The page.
        page: Vpn,
    },
    /// The pages there do not permit it: what happens every day.
    #[error("{why}")]
    Refused {
        /// The property of the pages that prevents it.
        why: Refusal,
        /// Words of tables that were read to find that out.
        words_read: u64,
    },
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Reasons why a superpage is not demoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DemoteError {
    /// The space was not made for superpages.
    #[error("the space was not made for superpages")]
    NotForSuperpages,
    /// The page is none that the format translates.
    #[error("page {page} is not translated")]
    NotCanonical {
        /// The page.
        page: Vpn,
    },
    /// The page is not mapped.
    #[error("page {page} is not mapped")]
    NotMapped {
        /// The page.
        page: Vpn,
    },
    /// It is a base page already.
    #[error("page {page} is a base page")]
    BasePage {
        /// The page.
        page: Vpn,
    },
    /// No table was kept, and there is no frame for a new one: the superpage
    /// can only be removed as a whole.
    #[error("no frame for a table: {0}")]
    NoTable(FrameAllocateError),
    /// The frame for a table lies beyond what the format can address.
    #[error("a table at frame {frame} is too high")]
    TableOutOfReach {
        /// The frame.
        frame: Pfn,
    },
    /// A supersection leads to frames that no section can lead to.
    #[error("frame {frame} fits no section")]
    FrameOutOfReach {
        /// The first frame.
        frame: Pfn,
    },
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// A breach of an invariant, found by [`AddressSpace::check`](crate::AddressSpace::check).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpaceFault {
    /// Memory did not answer.
    #[error(transparent)]
    Bus(BusError),
    /// The tables that the root reaches take another number of frames than
    /// were taken for tables.
    #[error("{taken} frames were taken for tables, {reached} are reached")]
    TableFrames {
        /// Frames of the tables reached.
        reached: u64,
        /// Frames taken.
        taken: u64,
    },
    /// A page claims contiguity that the mapping does not have.
    #[error("page {page} claims too much contiguity")]
    Contiguity {
        /// The page.
        page: Vpn,
    },
    /// One of the 16 entries of a page differs from its first, or the page is
    /// not aligned.
    #[error("the entry of page {page} is unlike its fellows")]
    Copies {
        /// The first page that the entry maps.
        page: Vpn,
    },
    /// The word beside a link counts other entries than are in use.
    #[error("the table of the entry at {link} has {in_use} entries, not {said}")]
    Occupancy {
        /// The entry that links the table.
        link: PhysAddr,
        /// The number written.
        said: u64,
        /// Entries in use.
        in_use: u64,
    },
    /// A kept table begins as its superpage does and goes on otherwise.
    #[error("the table kept beside the entry at {entry} is neither stale nor right")]
    Kept {
        /// The superpage's entry.
        entry: PhysAddr,
    },
}
