//! The one interface of every frame allocator.

use core::cell::RefCell;

use swath_arch::{Extent, Order, Pfn};

use crate::hardening::WordFault;

/// Reasons why an allocation is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameAllocateError {
    /// The request was for no frames at all.
    #[error("a request for no frames")]
    Empty,
    /// Fewer frames are free than were asked for.
    #[error("{wanted} frames wanted, {free} free")]
    OutOfFrames {
        /// Frames asked for.
        wanted: u64,
        /// Frames free.
        free: u64,
    },
    /// Frames are free, but no aligned block of this order.
    #[error("no aligned free block of order {order}")]
    NoBlock {
        /// The order asked for.
        order: Order,
    },
    /// The checked tier has found a word of the allocator's storage that is wrong.
    /// What went to a sink before that is allocated.
    #[error(transparent)]
    Corrupt(#[from] WordFault),
}

/// Reasons why frames are not freed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameFreeError {
    /// The extent holds no frames.
    #[error("an extent of no frames")]
    Empty,
    /// The extent's end lies beyond the last frame number there is.
    #[error("extent {extent} overflows")]
    Overflow {
        /// The extent.
        extent: Extent,
    },
    /// The first frame of a block is not a multiple of the block's size. Only what is freed as a
    /// block of an order, as in a zone, has to be aligned.
    #[error("frame {frame} is not aligned to order {order}")]
    Misaligned {
        /// The first frame.
        frame: Pfn,
        /// The block's order.
        order: Order,
    },
    /// A frame of the extent does not belong to the allocator.
    #[error("frame {frame} is not the allocator's")]
    Foreign {
        /// The first such frame.
        frame: Pfn,
    },
    /// A frame of the extent is free already.
    #[error("frame {frame} is free already")]
    NotAllocated {
        /// The first such frame.
        frame: Pfn,
    },
    /// The checked tier has found a word of the allocator's storage that is wrong.
    #[error(transparent)]
    Corrupt(WordFault),
}

/// Reasons why an allocator cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The storage is too small.
    #[error("{needed_words} words of storage needed, {given_words} given")]
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
    /// The rule cannot tell so many frames apart.
    #[error("a span of {frames} frames is too long for the rule")]
    Span {
        /// Frames from the first to the last of the map.
        frames: u64,
    },
    /// The allocator behind has other frames than the map.
    #[error("the allocator has other frames than the map")]
    OtherMap,
}

/// Allocates frames and frees them.
///
/// A request of any count is served by one **block** or more: an allocator
/// decides in [`allocate_block`](Self::allocate_block) how large a piece of the rest
/// it allocates next, and [`allocate`](Self::allocate) is the loop around it (line
/// 1 of Fig. 4 in the PBS paper). What has been allocated may be freed in any
/// pieces.
pub trait FrameAllocator {
    /// Allocates one block of 1 to `frames_max` frames, chosen by the
    /// allocator's own rule; `None` if no frame is free or `frames_max` is 0.
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent>;

    /// Allocates 2^order frames whose first is a multiple of 2^order.
    ///
    /// # Errors
    /// [`FrameAllocateError::OutOfFrames`] or [`FrameAllocateError::NoBlock`]; nothing changes.
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError>;

    /// Frees frames, which may be any part of what was allocated.
    ///
    /// # Errors
    /// A [`FrameFreeError`] if any frame of `extent` is not allocated; nothing
    /// changes.
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError>;

    /// Returns the number of free frames.
    fn free_frames(&self) -> u64;

    /// Returns the number of frames, free or not.
    fn total_frames(&self) -> u64;

    /// Visits the free blocks as the allocator holds them (the nodes of its
    /// free lists), ascending within each list, the lists in ascending order.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent));

    /// Allocates `count_frames` frames, handing each block to `sink` in the order
    /// of allocation. The whole request succeeds or nothing changes: since any free
    /// frame can serve as a block, comparing with
    /// [`free_frames`](Self::free_frames) first is enough.
    ///
    /// # Errors
    /// [`FrameAllocateError::Empty`] or [`FrameAllocateError::OutOfFrames`].
    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        let free = self.free_frames();
        if count_frames == 0 {
            return Err(FrameAllocateError::Empty);
        }
        if count_frames > free {
            return Err(FrameAllocateError::OutOfFrames { wanted: count_frames, free });
        }
        let mut rest = count_frames;
        while rest > 0 {
            let Some(block) = self.allocate_block(rest) else {
                debug_assert!(false, "a free frame that no block holds");
                return Err(FrameAllocateError::OutOfFrames { wanted: count_frames, free });
            };
            rest -= block.count;
            sink(block);
        }
        Ok(())
    }

    /// Allocates a single frame.
    fn allocate_frame(&mut self) -> Option<Pfn> {
        self.allocate_block(1).map(|block| block.start)
    }

    /// Returns the contradiction at which an allocator of the checked tier has stopped.
    fn fault(&self) -> Option<WordFault> {
        None
    }
}

/// An allocator that is lent.
impl<A: FrameAllocator + ?Sized> FrameAllocator for &mut A {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        (**self).allocate_block(frames_max)
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        (**self).allocate_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        (**self).free(extent)
    }

    fn free_frames(&self) -> u64 {
        (**self).free_frames()
    }

    fn total_frames(&self) -> u64 {
        (**self).total_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        (**self).for_each_free(visit);
    }

    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        (**self).allocate(count_frames, sink)
    }

    fn allocate_frame(&mut self) -> Option<Pfn> {
        (**self).allocate_frame()
    }

    fn fault(&self) -> Option<WordFault> {
        (**self).fault()
    }
}

/// An allocator that several owners share on one CPU, each through a
/// reference: a borrow lasts for one call.
impl<A: FrameAllocator + ?Sized> FrameAllocator for &RefCell<A> {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.borrow_mut().allocate_block(frames_max)
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.borrow_mut().allocate_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
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

    fn fault(&self) -> Option<WordFault> {
        self.borrow().fault()
    }
}
