//! Runs of frames for a device: aligned, below an address, within a boundary.
//!
//! A device that sees 32 bits of an address, or whose counter wraps at 64 KiB, needs frames at a place that
//! it can reach. [`ContiguousRequest`] states that; [`ContiguousAllocator`] is what serves it.

use core::fmt;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameAllocator;
use crate::hardening::WordFault;

/// A request for frames in one run, and where they may be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContiguousRequest {
    /// Number of frames.
    pub count: u64,
    /// The first frame is to be a multiple of 2^`align`.
    pub align: Order,
    /// No frame below this one.
    pub lower: Pfn,
    /// No frame from this one on: of a device with a 32-bit address, frame 2^20.
    pub upper: Pfn,
    /// No two frames on two sides of a multiple of 2^`boundary` frames.
    pub boundary: Option<Order>,
}

impl ContiguousRequest {
    /// A request for `count` frames in a row, wherever they are.
    #[inline]
    pub const fn new(count: u64) -> Self {
        let (lower, upper) = (Pfn::new(0), Pfn::new(u64::MAX));
        Self { count, align: Order::BASE, lower, upper, boundary: None }
    }

    /// Succeeds if there is a place at which the request could be served at all.
    ///
    /// # Errors
    /// [`ContiguousError::Empty`] or [`ContiguousError::Unsatisfiable`].
    pub fn check(&self) -> Result<(), ContiguousError> {
        if self.count == 0 {
            return Err(ContiguousError::Empty);
        }
        let fits = self.boundary.is_none_or(|boundary| self.count <= boundary.frames());
        if !fits || self.admit(0).is_none() {
            return Err(ContiguousError::Unsatisfiable { request: *self });
        }
        Ok(())
    }

    /// Returns the lowest admissible start from a frame on, of a request whose count is at most its
    /// boundary. O(1).
    pub(crate) fn admit(&self, from: u64) -> Option<u64> {
        let align = |start: u64| start.checked_next_multiple_of(self.align.frames());
        let mut start = align(from.max(self.lower.raw()))?;
        if let Some(boundary) = self.boundary {
            let last = start.checked_add(self.count - 1)?;
            if start >> boundary.k() != last >> boundary.k() {
                // Where the alignment is the coarser, a start stands at a boundary already.
                start = align(last >> boundary.k() << boundary.k())?;
            }
        }
        (start.checked_add(self.count)? <= self.upper.raw()).then_some(start)
    }
}

impl fmt::Display for ContiguousRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames in a row", self.count)?;
        if self.align != Order::BASE {
            write!(f, ", aligned to order {}", self.align)?;
        }
        if self.lower.raw() > 0 {
            write!(f, ", from frame {} on", self.lower)?;
        }
        if self.upper.raw() < u64::MAX {
            write!(f, ", below frame {}", self.upper)?;
        }
        match self.boundary {
            Some(order) => write!(f, ", within a boundary of order {order}"),
            None => Ok(()),
        }
    }
}

/// Reasons why a contiguous request is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContiguousError {
    /// The request was for no frames at all.
    #[error("a request for no frames")]
    Empty,
    /// No place meets the request, free or not: it is longer than its boundary or than what lies
    /// between its limits.
    #[error("there is no place for {request}")]
    Unsatisfiable {
        /// The request.
        request: ContiguousRequest,
    },
    /// Fewer frames are free than were asked for.
    #[error("{wanted} frames wanted, {free} free")]
    OutOfFrames {
        /// Frames asked for.
        wanted: u64,
        /// Frames free.
        free: u64,
    },
    /// Frames are free, but no run at such a place.
    #[error("no free run for {request}")]
    NoRun {
        /// The request.
        request: ContiguousRequest,
    },
    /// The checked tier has found a word of the allocator's storage that is wrong.
    #[error(transparent)]
    Corrupt(WordFault),
}

/// A frame allocator that serves contiguous requests.
pub trait ContiguousAllocator: FrameAllocator {
    /// Allocates the lowest free run that meets the request, whichever blocks it lies in.
    ///
    /// # Errors
    /// A [`ContiguousError`]: no such run is free; nothing changes.
    fn allocate_contiguous(
        &mut self,
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError>;
}

impl<A: ContiguousAllocator + ?Sized> ContiguousAllocator for &mut A {
    fn allocate_contiguous(
        &mut self,
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError> {
        (**self).allocate_contiguous(request)
    }
}
