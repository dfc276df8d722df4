//! The one interface of the segment allocators.
//!
//! A segment allocator hands out frames that are contiguous in an
//! [`AreaSpace`], however many areas they lie in. Four are here, the rows and
//! columns of the CLMalloc paper's Table 2 and Fig. 6:
//! [`Baseline`](crate::segment::baseline::Baseline), the contiguous memory of
//! section 3.2; [`HugePages`](crate::segment::huge::HugePages); and
//! [`GlobalBitmap`](crate::segment::global_bitmap::GlobalBitmap) with its frames taken
//! on demand or all at start. [`MappedSegments`](crate::segment::mapping::MappedSegments) adds
//! to any of them what is mapped and unmapped with each request.

use core::fmt;

use swath_arch::{Extent, Order};

use crate::hardening::WordFault;
use crate::segment::space::{AreaSpace, Segment};

/// A request for a segment. Numbers of frames are those of the accelerator's
/// space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentRequest {
    /// Number of frames; rounded up to whole units.
    pub count: u64,
    /// The first frame's number is to be a multiple of 2^`align`.
    pub align: Order,
    /// No frame below this one.
    pub lower: u64,
    /// No frame from this one on.
    pub upper: u64,
    /// No two frames on two sides of a multiple of 2^`boundary`.
    pub boundary: Option<Order>,
    /// All frames in one area, for a device without a segment map.
    pub one_area: bool,
}

impl SegmentRequest {
    /// A request for `count` frames, wherever they are.
    #[inline]
    pub const fn new(count: u64) -> Self {
        let (lower, upper) = (0, u64::MAX);
        Self { count, align: Order::BASE, lower, upper, boundary: None, one_area: false }
    }
}

impl fmt::Display for SegmentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames from {:#x} to {:#x}", self.count, self.lower, self.upper)?;
        match self.boundary {
            Some(order) => write!(f, " without crossing a boundary of order {order}"),
            None => Ok(()),
        }
    }
}

/// Reasons why no segment is allocated. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentError {
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
    /// Between two boundaries, or between the limits, there is no room for so
    /// many frames, free or not.
    #[error("no place for {request}")]
    Unsatisfiable {
        /// The request.
        request: SegmentRequest,
    },
    /// Frames are free, but there is no place for the request.
    #[error("no free segment of {wanted} frames")]
    NoSegment {
        /// Frames asked for.
        wanted: u64,
    },
    /// The mapping was refused.
    #[error("segment {segment} could not be mapped")]
    NotMapped {
        /// The segment that was not mapped; it is free again.
        segment: Segment,
    },
    /// The checked tier has found a word of the allocator's storage that is wrong.
    #[error(transparent)]
    Corrupt(WordFault),
}

/// Reasons why a segment is not freed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentFreeError {
    /// The segment holds no frames.
    #[error("a segment of no frames")]
    Empty,
    /// The segment's end lies beyond the last number there is.
    #[error("segment {segment} overflows")]
    Overflow {
        /// The segment.
        segment: Segment,
    },
    /// A frame does not belong to the accelerator's space.
    #[error("frame {frame:#x} is beyond the areas")]
    Foreign {
        /// The first such frame.
        frame: u64,
    },
    /// The segment's ends are not those of units.
    #[error("segment {segment} is not whole units")]
    Misaligned {
        /// The segment.
        segment: Segment,
    },
    /// A frame is not handed out: freed already, or never asked for.
    #[error("frame {frame:#x} is not handed out")]
    NotAllocated {
        /// The first frame of the first such unit.
        frame: u64,
    },
    /// The frames are handed out, but not as this segment: it is a part of
    /// one, or holds more than one.
    #[error("segment {segment} is not one that was handed out")]
    NotSegment {
        /// The segment.
        segment: Segment,
    },
    /// The checked tier has found a word of the allocator's storage that is wrong.
    #[error(transparent)]
    Corrupt(WordFault),
}

impl Segment {
    /// Its first unit and the one past its last; an error unless it is whole
    /// units of the space.
    pub(crate) fn units(self, space: &AreaSpace<'_>) -> Result<(u64, u64), SegmentFreeError> {
        if self.count == 0 {
            return Err(SegmentFreeError::Empty);
        }
        let end = self.checked_end().ok_or(SegmentFreeError::Overflow { segment: self })?;
        let total = space.total_frames();
        if end > total {
            return Err(SegmentFreeError::Foreign { frame: self.start.max(total) });
        }
        let unit = space.unit();
        if (self.start | end) & (unit.frames() - 1) != 0 {
            return Err(SegmentFreeError::Misaligned { segment: self });
        }
        Ok((self.start >> unit.k(), end >> unit.k()))
    }
}

/// The frames behind the areas, which an allocator acquires and releases with its segments: a kernel's
/// buddy system. Each call names frames of one area.
pub trait AreaFrames {
    /// Acquires the frames of `run`, none of which is acquired.
    fn acquire(&mut self, run: Extent);

    /// Releases the frames of `run`, all of which were acquired.
    fn release(&mut self, run: Extent);
}

/// Allocates segments of an accelerator's address space and frees them.
///
/// A segment is freed as it was allocated, whole. So a stale segment is
/// told from those that lie in its place since, unless it has the very start
/// and count of one of them.
pub trait SegmentAllocator {
    /// The areas that the segments are taken from.
    fn space(&self) -> AreaSpace<'_>;

    /// The segment that [`allocate`](Self::allocate) would return now, or
    /// its error.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), but for
    /// [`NotMapped`](SegmentError::NotMapped).
    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError>;

    /// Allocates a segment that meets the request. Its count is the request's,
    /// rounded up to whole units.
    ///
    /// # Errors
    /// A [`SegmentError`]; nothing has changed then.
    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError>;

    /// Frees a segment as it was allocated.
    ///
    /// # Errors
    /// A [`SegmentFreeError`]; nothing has changed then.
    fn free(&mut self, segment: Segment) -> Result<(), SegmentFreeError>;

    /// Returns the frames that are acquired for a segment that is handed out, and released with it:
    /// itself, unless blocks hold more or all frames were acquired at start (then none).
    fn acquired(&self, segment: Segment) -> Segment {
        segment
    }

    /// Allocates as [`allocate`](Self::allocate) does, and acquires the frames behind the segment. An
    /// allocator that acquires on its way what it does not keep releases that again.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); all that was acquired is released then.
    fn allocate_from(
        &mut self,
        request: &SegmentRequest,
        frames: &mut dyn AreaFrames,
    ) -> Result<Segment, SegmentError> {
        let segment = self.allocate(request)?;
        let acquired = self.acquired(segment);
        self.space().pieces(acquired).for_each(|run| frames.acquire(run));
        Ok(segment)
    }

    /// Frees as [`free`](Self::free) does, and releases the frames that were acquired for the segment.
    ///
    /// # Errors
    /// As [`free`](Self::free); nothing has changed then.
    fn free_to(
        &mut self,
        segment: Segment,
        frames: &mut dyn AreaFrames,
    ) -> Result<(), SegmentFreeError> {
        self.free(segment)?;
        let acquired = self.acquired(segment);
        self.space().pieces(acquired).for_each(|run| frames.release(run));
        Ok(())
    }

    /// Returns the number of free frames. All others are **held**: what the
    /// held frames exceed the requests by is waste.
    fn free_frames(&self) -> u64;

    /// The most frames that one request without constraints could get now.
    fn largest_frames(&self) -> u64;

    /// Visits the free frames as runs that are as long as the accelerator's
    /// space lets them be, ascending.
    fn for_each_free(&self, visit: &mut dyn FnMut(Segment));
}
