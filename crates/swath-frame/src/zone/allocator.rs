//! Blocks with a mobility, zone by zone: what stands beneath Linux's per-CPU
//! lists, and what the green memory manager of Panwar and Gopinath replaces.
//!
//! A [`ZoneAllocator`] holds the free memory of one zone and hands out aligned
//! blocks of 2^order frames. Every request says whether its owner could be
//! moved ([`Mobility`]): what an allocator does with that is its whole
//! difference from the others. Above it stand zones, watermarks and per-CPU
//! lists, which are the same for all of them.

use core::fmt;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::hardening::WordFault;

/// The mobility of frames: whether their owner could be moved elsewhere
/// (Linux's migrate types). The paper counts all but anonymous and page-cache
/// pages as unmovable, so [`Reclaimable`](Self::Reclaimable) is unmovable
/// there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mobility {
    /// Kernel memory, reached by its physical address: it stays where it is.
    Unmovable,
    /// Pages of processes and of the page cache: reached through mappings that can be changed.
    Movable,
    /// Kernel memory that can be dropped on demand, but not moved.
    Reclaimable,
}

impl Mobility {
    /// Every mobility, in the order of Linux's migrate types.
    pub const ALL: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];
}

impl fmt::Display for Mobility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unmovable => "unmovable",
            Self::Movable => "movable",
            Self::Reclaimable => "reclaimable",
        })
    }
}

/// Reasons why frames were not isolated or rejoined. Nothing has changed. If
/// there are several reasons, the first in this order is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IsolateError {
    /// The extent holds no frames.
    #[error("an extent of no frames")]
    Empty,
    /// A border of the extent lies within an isolation unit.
    #[error("extent {extent} is not aligned to order {order}")]
    Misaligned {
        /// The extent.
        extent: Extent,
        /// The order of the units.
        order: Order,
    },
    /// A frame of the extent does not belong to the zone.
    #[error("frame {frame} is not the zone's")]
    Foreign {
        /// The first such frame.
        frame: Pfn,
    },
    /// A unit of the extent is isolated already (or, when rejoining, is not).
    #[error("the unit at frame {frame} is in the other state")]
    State {
        /// The unit's first frame.
        frame: Pfn,
    },
    /// The checked tier has found a word of the zone's storage that is wrong.
    #[error(transparent)]
    Corrupt(WordFault),
}

/// The free memory of one zone.
///
/// **Isolated** frames are not handed out: those that were free when
/// [`isolate`](Self::isolate) was called, and those freed since. So a
/// section can be emptied, and taken offline by leaving it isolated.
pub trait ZoneAllocator {
    /// Allocates an aligned block of 2^`order` frames for an owner of this
    /// mobility, by the allocator's own rules and fallbacks; `None` if no rule
    /// finds one.
    fn allocate(&mut self, order: Order, mobility: Mobility) -> Option<Pfn>;

    /// Like [`allocate`](Self::allocate), but rather `None` than a block that would mix
    /// mobilities where the allocator keeps them apart (Linux's
    /// `ALLOC_NOFRAGMENT`: a lower zone is tried first). An allocator without
    /// such a rule just allocates.
    fn allocate_unmixed(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        self.allocate(order, mobility)
    }

    /// Allocates up to `count` blocks in one go, in the order in which `sink` gets
    /// them, and returns how many: what refills a per-CPU list. `unmixed` as in
    /// [`allocate_unmixed`](Self::allocate_unmixed).
    fn allocate_batch(
        &mut self,
        order: Order,
        mobility: Mobility,
        unmixed: bool,
        count: u32,
        sink: &mut dyn FnMut(Pfn),
    ) -> u32 {
        for taken in 0..count {
            let block = if unmixed {
                self.allocate_unmixed(order, mobility)
            } else {
                self.allocate(order, mobility)
            };
            match block {
                Some(start) => sink(start),
                None => return taken,
            }
        }
        count
    }

    /// For owners of which mobility a frame would serve again if it were given
    /// now: that decides in which per-CPU list it waits. `None` if that is
    /// simply what it was allocated for.
    fn mobility_of(&self, frame: Pfn) -> Option<Mobility> {
        let _ = frame;
        None
    }

    /// Frees 2^`order` frames from `start` on, aligned: a block that was
    /// allocated, or an aligned part of one.
    ///
    /// # Errors
    /// [`FrameFreeError::Misaligned`] if `start` is not a multiple of 2^`order`, whatever else is
    /// wrong; else another [`FrameFreeError`] if any of the frames is not allocated. Nothing changes.
    fn free(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError>;

    /// Frees blocks of one order, as [`free`](Self::free) does one after the other: what
    /// empties a per-CPU list.
    ///
    /// # Errors
    /// That of the first block that cannot be freed. Those before it have been freed, those
    /// behind it have not.
    fn free_batch(&mut self, order: Order, blocks: &[Pfn]) -> Result<(), FrameFreeError> {
        blocks.iter().try_for_each(|&start| self.free(start, order))
    }

    /// Frames that are free and not isolated.
    fn free_frames(&self) -> u64;

    /// Returns the number of the zone's frames.
    fn total_frames(&self) -> u64;

    /// The largest order of which an aligned block is free and not isolated.
    fn largest_free(&self) -> Option<Order>;

    /// Visits the free blocks that are not isolated, in no particular order.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent));

    /// Isolates whole units (pageblocks, or banks, as the allocator says in its
    /// [`isolation_order`](Self::isolation_order)).
    ///
    /// # Errors
    /// [`IsolateError`]; nothing changes.
    fn isolate(&mut self, extent: Extent) -> Result<(), IsolateError>;

    /// Ends the isolation: the frames of the extent that are free may be handed out again.
    ///
    /// # Errors
    /// [`IsolateError`]; nothing changes.
    fn rejoin(&mut self, extent: Extent) -> Result<(), IsolateError>;

    /// The order of the units that can be isolated.
    fn isolation_order(&self) -> Order;

    /// Bytes of the management structures: what Table II counts (all that the
    /// zone holds beside what each frame has).
    fn structure_bytes(&self) -> usize;

    /// Walks all invariants; the first that does not hold is named.
    ///
    /// # Errors
    /// What does not hold.
    fn check(&self) -> Result<(), &'static str>;
}
