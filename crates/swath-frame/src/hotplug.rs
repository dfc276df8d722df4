//! Memory that comes late and goes again.
//!
//! A hypervisor adds memory to a running guest, a driver brings its own, boot code has what it used itself
//! to give away. An allocator is laid out for the span of frame numbers that may come
//! ([`MemoryMap::reaching`](crate::MemoryMap::reaching)), most of which may be a hole at first: memory that comes
//! fills holes, memory that goes leaves them.

use swath_arch::{Extent, Pfn};

use crate::allocator::FrameAllocator;
use crate::hardening::WordFault;

/// Reasons why frames were not added or removed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameHotplugError {
    /// The extent holds no frames.
    #[error("an extent of no frames")]
    Empty,
    /// The extent's end lies beyond the last frame number there is.
    #[error("extent {extent} overflows")]
    Overflow {
        /// The extent.
        extent: Extent,
    },
    /// A frame lies outside the span that the allocator was laid out for.
    #[error("frame {frame} lies outside the allocator's span, {span}")]
    OutOfSpan {
        /// The first such frame.
        frame: Pfn,
        /// The span.
        span: Extent,
    },
    /// A frame that was to be added is the allocator's already.
    #[error("frame {frame} is the allocator's already")]
    Present {
        /// A frame of the extent that is; the first of those that are free, if any is.
        frame: Pfn,
    },
    /// A frame that was to be removed is not the allocator's.
    #[error("frame {frame} is not the allocator's")]
    Absent {
        /// The first such frame.
        frame: Pfn,
    },
    /// A frame that was to be removed is allocated.
    #[error("frame {frame} is allocated")]
    InUse {
        /// The first such frame.
        frame: Pfn,
    },
    /// The checked tier keeps a record of each area, and its storage has room for no more.
    #[error("no room for the record of one more area than {areas}")]
    TooManyAreas {
        /// Areas that there is room for.
        areas: usize,
    },
    /// The checked tier has found a word of the allocator's storage that is wrong.
    #[error(transparent)]
    Corrupt(#[from] WordFault),
}

/// The first and one past the last frame of an extent, at least one frame, of a span.
pub(crate) fn within(extent: Extent, span: Extent) -> Result<(u64, u64), FrameHotplugError> {
    if extent.is_empty() {
        return Err(FrameHotplugError::Empty);
    }
    let end = extent.checked_end().ok_or(FrameHotplugError::Overflow { extent })?;
    if !span.contains(extent.start) {
        return Err(FrameHotplugError::OutOfSpan { frame: extent.start, span });
    }
    if end > span.end() {
        return Err(FrameHotplugError::OutOfSpan { frame: span.end(), span });
    }
    Ok((extent.start.raw(), end.raw()))
}

/// A frame allocator whose memory comes and goes.
pub trait FrameHotplug: FrameAllocator {
    /// Returns the span of frames that the allocator was laid out for.
    fn span(&self) -> Extent;

    /// Adds frames, none of which is the allocator's so far. They are free.
    ///
    /// # Errors
    /// A [`FrameHotplugError`]; nothing changes.
    fn add_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError>;

    /// Removes frames, all of which are free: they are the allocator's no more.
    ///
    /// # Errors
    /// A [`FrameHotplugError`] that names the first frame at fault; nothing changes.
    fn remove_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError>;
}

impl<A: FrameHotplug + ?Sized> FrameHotplug for &mut A {
    fn span(&self) -> Extent {
        (**self).span()
    }

    fn add_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        (**self).add_frames(extent)
    }

    fn remove_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        (**self).remove_frames(extent)
    }
}
