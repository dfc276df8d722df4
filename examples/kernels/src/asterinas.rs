//! The interface of Asterinas' OSTD.
//!
//! Its crate builds by its own tool for a bare machine only, so that its trait is not named here: the methods are those
//! of `ostd::mm::frame::GlobalFrameAllocator` (0.17), and a kernel forwards to them in three lines. OSTD frees what was
//! allocated together in any pieces, adds memory when it has found some, and never asks who
//! calls.

use core::alloc::Layout;

use lock_api::RawMutex;
use swath_frame::FrameHotplugError;

use crate::{FRAME_BYTES, KernelFrames, address, extent, order};

/// OSTD's frames over [`KernelFrames`].
#[derive(Clone, Copy, Debug)]
pub struct GlobalFrames<'f, 'm, R>(pub &'f KernelFrames<'m, R>);

impl<R: RawMutex> GlobalFrames<'_, '_, R> {
    /// Allocates frames in a row; the size is a multiple of a frame.
    pub fn alloc(&self, layout: Layout) -> Option<usize> {
        let align = order(layout.align().max(FRAME_BYTES))?;
        self.0.take((layout.size() / FRAME_BYTES) as u64, align).map(address)
    }

    /// Frees frames in a row, whichever calls they came from. What is not held changes nothing.
    pub fn dealloc(&self, addr: usize, size: usize) {
        let _ = self.0.give(extent(addr, size));
    }

    /// Adds memory.
    ///
    /// # Errors
    /// OSTD's method has none: [`FrameHotplugError`] is for its log.
    pub fn add_free_memory(&self, addr: usize, size: usize) -> Result<(), FrameHotplugError> {
        self.0.add_memory(addr, size)
    }
}
