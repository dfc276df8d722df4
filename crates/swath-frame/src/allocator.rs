//! The one interface of every frame allocator.

use core::cell::RefCell;
use core::fmt;

use swath_arch::{Extent, Order, Pfn};

/// Why a request was not served. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// The request was for no frames at all.
    Empty,
    /// Fewer frames are free than were asked for.
    OutOfFrames {
        /// Frames asked for.
        wanted: u64,
        /// Frames free.
        free: u64,
    },
    /// Frames are free, but no aligned block of this order.
    NoBlock {
        /// The order asked for.
        order: Order,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a request for no frames"),
            Self::OutOfFrames { wanted, free } => {
                write!(f, "{wanted} frames wanted, {free} free")
            }
            Self::NoBlock { order } => write!(f, "no aligned free block of order {order}"),
        }
    }
}

impl core::error::Error for AllocError {}

/// Why frames were not taken back. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// The extent holds no frames.
    Empty,
    /// The extent's end lies beyond the last frame number there is.
    Overflow {
        /// The extent.
        extent: Extent,
    },
    /// A frame of the extent does not belong to the allocator.
    Foreign {
        /// The first such frame.
        frame: Pfn,
    },
    /// A frame of the extent is free already.
    NotAllocated {
        /// The first such frame.
        frame: Pfn,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "an extent of no frames"),
            Self::Overflow { extent } => write!(f, "extent {extent} overflows"),
            Self::Foreign { frame } => write!(f, "frame {frame} is not the allocator's"),
            Self::NotAllocated { frame } => write!(f, "frame {frame} is free already"),
        }
    }
}

impl core::error::Error for FreeError {}

/// Hands out frames and takes them back.
///
/// A request of any count is served by one **block** or more: an allocator
/// decides in [`take_block`](Self::take_block) how large a piece of the rest
/// it takes next, and [`allocate`](Self::allocate) is the loop around it (line
/// 1 of Fig. 4 in the PBS paper). What has been allocated may be freed in any
/// pieces.
pub trait FrameAllocator {
    /// Takes one free block of 1 to `frames_max` frames, chosen by the
    /// allocator's own rule; `None` if no frame is free or `frames_max` is 0.
    fn take_block(&mut self, frames_max: u64) -> Option<Extent>;

    /// Takes 2^order frames whose first is a multiple of 2^order.
    ///
    /// # Errors
    /// [`AllocError::OutOfFrames`] or [`AllocError::NoBlock`]; nothing changes.
    fn take_aligned(&mut self, order: Order) -> Result<Extent, AllocError>;

    /// Takes back frames, which may be any part of what was allocated.
    ///
    /// # Errors
    /// A [`FreeError`] if any frame of `extent` is not allocated; nothing
    /// changes.
    fn free(&mut self, extent: Extent) -> Result<(), FreeError>;

    /// How many frames are free.
    fn free_frames(&self) -> u64;

    /// How many frames there are, free or not.
    fn total_frames(&self) -> u64;

    /// Visits the free blocks as the allocator holds them (the nodes of its
    /// free lists), ascending within each list, the lists in ascending order.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent));

    /// Takes `count_frames` frames, handing each block to `sink` in the order
    /// taken. The whole request succeeds or nothing is taken: since any free
    /// frame can serve as a block, comparing with
    /// [`free_frames`](Self::free_frames) first is enough.
    ///
    /// # Errors
    /// [`AllocError::Empty`] or [`AllocError::OutOfFrames`].
    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), AllocError> {
        let free = self.free_frames();
        if count_frames == 0 {
            return Err(AllocError::Empty);
        }
        if count_frames > free {
            return Err(AllocError::OutOfFrames { wanted: count_frames, free });
        }
        let mut rest = count_frames;
        while rest > 0 {
            let Some(block) = self.take_block(rest) else {
                debug_assert!(false, "a free frame that no block holds");
                return Err(AllocError::OutOfFrames { wanted: count_frames, free });
            };
            rest -= block.count;
            sink(block);
        }
        Ok(())
    }

    /// Takes a single frame.
    fn take_frame(&mut self) -> Option<Pfn> {
        self.take_block(1).map(|block| block.start)
    }
}

/// An allocator that several owners share on one CPU, each through a
/// reference: a borrow lasts for one call.
impl<A: FrameAllocator + ?Sized> FrameAllocator for &RefCell<A> {
    fn take_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.borrow_mut().take_block(frames_max)
    }

    fn take_aligned(&mut self, order: Order) -> Result<Extent, AllocError> {
        self.borrow_mut().take_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FreeError> {
        self.borrow_mut().free(extent)
    }

    fn free_frames(&self) -> u64 {
        self.borrow().free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.borrow().total_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.borrow().for_each_free(visit);
    }
}
