//! The interface of Twizzler: frames that hold zeros, or anything.
//!
//! Its kernel builds as a whole only, so that the calls are those of its module of frames. A frame is asked for zeroed or
//! as it is, and who gives one back knows whether it still holds zeros: then the next one who wants zeros
//! need not wait for them to be written.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;
use swath_arch::{Extent, Order, Pfn};

use crate::{FRAME_BYTES, KernelFrames, address, extent};

/// A frame that its holder owns.
#[derive(PartialEq, Eq, Debug)]
pub struct Frame {
    start: usize,
    is_zeroed: bool,
}

impl Frame {
    /// Address of the first byte.
    #[must_use]
    pub fn start_address(&self) -> usize {
        self.start
    }

    /// Returns true if it holds zeros only.
    #[must_use]
    pub fn is_zeroed(&self) -> bool {
        self.is_zeroed
    }

    /// Notes that something else may have been written into it.
    pub fn set_not_zero(&mut self) {
        self.is_zeroed = false;
    }
}

/// Frames that may hold zeros over [`KernelFrames`].
#[derive(Debug)]
pub struct ZeroedFrames<'f, 'm, R> {
    frames: &'f KernelFrames<'m, R>,
    /// The frame of the first bit.
    first: Pfn,
    /// A bit for each frame: set if it is free and holds zeros. The locks that a frame passes through
    /// order its bit as they do its bytes.
    zeroed: &'f [AtomicUsize],
    /// Writes zeros over the frame at an address.
    zero: fn(usize),
}

impl<'f, 'm, R: RawMutex> ZeroedFrames<'f, 'm, R> {
    /// Frames of `frames`, none of which holds zeros as far as the bits, from `first` on, tell. `zero` writes
    /// zeros over the frame at an address.
    pub fn new(
        frames: &'f KernelFrames<'m, R>,
        first: Pfn,
        zeroed: &'f [AtomicUsize],
        zero: fn(usize),
    ) -> Self {
        Self { frames, first, zeroed, zero }
    }

    /// Allocates a frame, which holds zeros if that is asked for. `None` if none is free.
    #[must_use]
    pub fn try_alloc_frame(&self, zeroed: bool) -> Option<Frame> {
        let start = address(self.frames.take(1, Order::known(0))?);
        let is_zeroed = self.bit(start).is_some_and(|(word, bit)| {
            // Most frames hold anything, and their words are then read only.
            word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0
        });
        if zeroed && !is_zeroed {
            (self.zero)(start);
        }
        Some(Frame { start, is_zeroed: is_zeroed || zeroed })
    }

    /// Frees a frame.
    pub fn free_frame(&self, frame: Frame) {
        if frame.is_zeroed
            && let Some((word, bit)) = self.bit(frame.start)
        {
            word.fetch_or(bit, Relaxed);
        }
        let given = self.frames.give(extent(frame.start, FRAME_BYTES));
        debug_assert!(given, "a frame has one owner");
    }

    /// The word with a frame's bit, and the bit.
    fn bit(&self, start: usize) -> Option<(&AtomicUsize, usize)> {
        let first = address(Extent::new(self.first, 1));
        let index = start.checked_sub(first)? / FRAME_BYTES;
        let bits = usize::BITS as usize;
        Some((self.zeroed.get(index / bits)?, 1 << (index % bits)))
    }
}
