//! The work of a kernel's page allocator, event by event.
//!
//! A recording is a row of [`PageEvent`]s: the tracepoints `kmem:mm_page_*` of
//! a Linux kernel, in the order of time over all processors.
//! [`record_pages`](crate::pages::record_pages) takes one, and a
//! [`PageReader`](crate::pages::PageReader) reads it from its file.
//!
//! | event | tracepoint | says |
//! |---|---|---|
//! | [`Alloc`](PageChange::Alloc) | `mm_page_alloc` | a request was served |
//! | [`AllocFailed`](PageChange::AllocFailed) | `mm_page_alloc` without a frame | a request was refused |
//! | [`Free`](PageChange::Free) | `mm_page_free` | a block came back; **every** free has one, a batched one too |
//! | [`FreeBatched`](PageChange::FreeBatched) | `mm_page_free_batched` | a block that a `Free` named before went into a per-CPU list with others of its batch |
//! | [`Drain`](PageChange::Drain) | `mm_page_pcpu_drain` | a block left a per-CPU list for the zone's free lists |
//! | [`Take`](PageChange::Take) | `mm_page_alloc_zone_locked` | a block left the zone's free lists, for a request or (most of them) to refill a per-CPU list |
//! | [`Fallback`](PageChange::Fallback) | `mm_page_alloc_extfrag` | the block just taken is of another migrate type |
//! | [`Lost`](PageChange::Lost) | the ring buffer | events of one processor were overwritten before they were read |
//!
//! So requests are `Alloc` and `Free` alone; the others say what went on
//! beneath, between the per-CPU lists and the zone. Frames that the kernel
//! takes in bulk (`alloc_pages_bulk`: `vmalloc`, network buffers) or by range
//! (compaction) have no `Alloc`, in any kernel so far.

use serde::Serialize;
use swath_arch::{Order, Pfn};

/// The largest order that a recording may hold: the kernel's own limit is 10
/// for frames of 4 KiB and 13 for larger ones.
pub const ORDER_MAX: Order = Order::known(15);

/// Frame numbers end below this: 2^52 frames of 4 KiB.
pub const FRAMES_END: u64 = 1 << 52;

/// The most processors.
pub const CPUS_MAX: u16 = 1 << 12;

/// A migrate type by the kernel's own number.
///
/// 0 to 2 are the mobilities of requests. What follows belongs to pageblocks
/// alone and depends on how the kernel was built: 3 is the reserve for urgent
/// requests, then contiguous-memory areas if built in, then isolated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct MigrateType(u8);

impl MigrateType {
    /// Number of types that a recording can tell apart.
    pub const COUNT: u8 = 8;

    /// The type of allocations that stay where they are.
    pub const UNMOVABLE: Self = Self(0);
    /// The type of allocations whose contents can be moved.
    pub const MOVABLE: Self = Self(1);
    /// The type of caches that can be dropped.
    pub const RECLAIMABLE: Self = Self(2);

    /// The migrate type of a number, or `None` from [`Self::COUNT`] on.
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// The kernel's number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The highest kind of zone that may serve a request; the lower ones may as
/// well. From bits 0 to 3 of the request's flags, which no kernel so far has
/// moved. High memory, which machines of 64 bits do not have, counts as
/// [`Normal`](Self::Normal).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ZoneMax {
    /// The first 16 MiB.
    Dma = 0,
    /// The first 4 GiB.
    Dma32 = 1,
    /// All but `ZONE_MOVABLE`.
    Normal = 2,
    /// All.
    Movable = 3,
}

impl ZoneMax {
    /// Every kind, in the order of the codes in the file.
    pub const ALL: [Self; 4] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];

    /// The highest zone that the kernel's request flags allow.
    pub const fn of_flags(gfp: u64) -> Self {
        const DMA: u64 = 1;
        const HIGH_MOVABLE: u64 = 2 | 8;
        const DMA32: u64 = 4;
        match gfp {
            _ if gfp & DMA != 0 => Self::Dma,
            _ if gfp & DMA32 != 0 => Self::Dma32,
            _ if gfp & HIGH_MOVABLE == HIGH_MOVABLE => Self::Movable,
            _ => Self::Normal,
        }
    }
}

/// Returns true if a request with the kernel's flags is for a page of a file that is read ahead: movable, tried
/// once, with no word of a failure, not to be written, and no huge page of a process. Such a page is clean, and can
/// be dropped at once. From bits that no kernel has moved since 4.14.
pub const fn reads_ahead(gfp: u64) -> bool {
    const MOVABLE: u64 = 1 << 3;
    const WRITE: u64 = 1 << 12;
    const NO_WARN: u64 = 1 << 13;
    const NO_RETRY: u64 = 1 << 16;
    const NO_RESERVE: u64 = 1 << 19;
    let wanted = MOVABLE | NO_WARN | NO_RETRY;
    gfp & (wanted | WRITE | NO_RESERVE) == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the names that Linux 6.18 prints.
    #[test]
    fn flags_of_requests_that_read_ahead() {
        const HIGH_USER_MOVABLE: u64 = 1 << 1 | 1 << 3 | 1 << 6 | 1 << 7 | 3 << 10 | 1 << 20;
        const READ_AHEAD: u64 = HIGH_USER_MOVABLE | 1 << 13 | 1 << 16 | 1 << 18;
        assert!(reads_ahead(READ_AHEAD));
        let others = [
            ("anonymous", HIGH_USER_MOVABLE | 1 << 8),
            ("to be written", READ_AHEAD | 1 << 12),
            ("huge, of a process", READ_AHEAD | 1 << 19),
            ("unmovable", READ_AHEAD & !(1 << 3)),
            ("nothing", 0),
        ];
        for (what, flags) in others {
            assert!(!reads_ahead(flags), "{what}");
        }
    }
}

/// Change to a block of 2^`order` frames from `start` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageChange {
    /// A request was served.
    Alloc {
        /// The block's first frame.
        start: Pfn,
        /// Its order.
        order: Order,
        /// Migrate type asked for.
        migrate_type: MigrateType,
        /// The highest zone that it allowed.
        zone_max: ZoneMax,
        /// True if a file is [read ahead](reads_ahead).
        read_ahead: bool,
    },
    /// A request was refused.
    AllocFailed {
        /// The order asked for.
        order: Order,
        /// The migrate type asked for.
        migrate_type: MigrateType,
        /// The highest zone allowed.
        zone_max: ZoneMax,
    },
    /// A block was given back: all of what was allocated, or an aligned part.
    Free {
        /// The block's first frame.
        start: Pfn,
        /// Its order.
        order: Order,
    },
    /// A block given back went into a per-CPU list as one of a batch.
    FreeBatched {
        /// The block's first frame; the kernel does not say its order.
        start: Pfn,
    },
    /// A block went from a per-CPU list back to the zone.
    Drain {
        /// The block's first frame.
        start: Pfn,
        /// Its order.
        order: Order,
        /// That of its pageblock, so of the free list it goes to.
        migrate_type: MigrateType,
    },
    /// A block was taken from the zone's free lists.
    Take {
        /// The block's first frame.
        start: Pfn,
        /// Its order.
        order: Order,
        /// Migrate type asked for.
        migrate_type: MigrateType,
        /// True if per-CPU lists hold blocks of this order and type; most such
        /// blocks are taken to refill them.
        per_cpu: bool,
    },
    /// A request had to take from the free lists of another migrate type.
    Fallback {
        /// The first frame that the request got. If the pageblock was claimed,
        /// the request got the smallest fitting block of it, which need not be
        /// the block found.
        start: Pfn,
        /// The order asked for.
        order: Order,
        /// The order of the block found.
        fallback_order: Order,
        /// The migrate type asked for.
        wanted: MigrateType,
        /// That of the block found.
        found: MigrateType,
        /// True if the pageblock changed over to the type asked for.
        claimed: bool,
    },
    /// Events of this processor are missing here.
    Lost {
        /// Number of events, 0 if the kernel did not say. Below 2^63.
        count: u64,
    },
}

impl PageChange {
    /// Number of kinds.
    pub const KINDS: usize = 8;

    /// The kinds' names, by [`kind`](Self::kind).
    pub const NAMES: [&'static str; Self::KINDS] =
        ["alloc", "alloc_failed", "free", "free_batched", "drain", "take", "fallback", "lost"];

    /// Returns the number of the kind: an index into [`NAMES`](Self::NAMES).
    pub const fn kind(self) -> usize {
        match self {
            Self::Alloc { .. } => 0,
            Self::AllocFailed { .. } => 1,
            Self::Free { .. } => 2,
            Self::FreeBatched { .. } => 3,
            Self::Drain { .. } => 4,
            Self::Take { .. } => 5,
            Self::Fallback { .. } => 6,
            Self::Lost { .. } => 7,
        }
    }

    /// Returns the reason why no kernel reports this, if there is one.
    pub fn fault(self) -> Option<&'static str> {
        let (start, order) = match self {
            Self::Alloc { start, order, .. }
            | Self::Free { start, order }
            | Self::Drain { start, order, .. }
            | Self::Take { start, order, .. } => (start, order),
            // Larger than what is asked for, or the kernel would not split it.
            Self::Fallback { order, fallback_order, .. } if fallback_order < order => {
                return Some("a fallback to a block smaller than asked for");
            }
            Self::Fallback { order, fallback_order, .. } if fallback_order > ORDER_MAX => {
                (Pfn::new(0), fallback_order.max(order))
            }
            // What the request got: after a claim not always a part of the block found.
            Self::Fallback { start, order, .. } => (start, order),
            Self::FreeBatched { start } => (start, Order::BASE),
            Self::AllocFailed { order, .. } => (Pfn::new(0), order),
            Self::Lost { count } => {
                return (count >> 63 != 0).then_some("a count of lost events beyond 2^63");
            }
        };
        match () {
            () if order > ORDER_MAX => Some("an order beyond 15"),
            () if start.raw() >= FRAMES_END => Some("a frame number beyond 2^52"),
            () if !start.is_aligned(order.k()) => Some("a block that is not aligned to its order"),
            () => None,
        }
    }
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageEvent {
    /// Time in microseconds since the first event; never before the event
    /// before.
    pub time_us: u64,
    /// On which processor, by the kernel's number.
    pub cpu: u16,
    /// Change that happened.
    pub change: PageChange,
}
