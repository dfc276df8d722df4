//! The traits of the published crate `x86_64`, by which its page tables take and return frames: all page sizes.

#![allow(unsafe_code, reason = "the traits are unsafe")]

use lock_api::RawMutex;
use x86_64::PhysAddr;
use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};

use crate::{KernelFrames, address, extent, order};

/// A mapper's source of frames over [`KernelFrames`].
#[derive(Clone, Copy, Debug)]
pub struct TableFrames<'f, 'm, R>(pub &'f KernelFrames<'m, R>);

// SAFETY: a frame that the allocator hands out is nobody's until it is freed.
unsafe impl<R: RawMutex, S: PageSize> FrameAllocator<S> for TableFrames<'_, '_, R> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<S>> {
        let block = self.0.take_order(order(S::SIZE as usize)?)?;
        PhysFrame::from_start_address(PhysAddr::new(address(block) as u64)).ok()
    }
}

impl<R: RawMutex, S: PageSize> FrameDeallocator<S> for TableFrames<'_, '_, R> {
    /// Frees a frame; one that is not held changes nothing.
    ///
    /// # Safety
    /// Nobody uses it any more.
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<S>) {
        let _ = self.0.give(extent(frame.start_address().as_u64() as usize, S::SIZE as usize));
    }
}
