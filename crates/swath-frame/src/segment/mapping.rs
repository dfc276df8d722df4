//! Mapping and unmapping with each request.
//!
//! Where all frames are acquired at start (section 4.2 of the CLMalloc paper), a
//! request still maps the pages of its segment, and a release unmaps them. Elsewhere
//! the frames are acquired before and released after. Neither page tables nor the frames
//! behind areas are this crate's: a [`SegmentMapping`] has both, and
//! [`MappedSegments`] puts it around any allocator. [`CountedPages`] only counts.

use swath_arch::Extent;

use crate::segment::allocator::{
    AreaFrames, SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest,
};
use crate::segment::space::{AreaSpace, Segment, SegmentExtents};

/// The mapping could not be made; nothing has been mapped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MappingRefused;

/// Maps segments as they are handed out, and unmaps them when they are freed.
pub trait SegmentMapping: AreaFrames {
    /// Maps the frames of `segment`, which lie at `extents`; all or nothing.
    ///
    /// # Errors
    /// [`MappingRefused`]; the request for the segment fails then.
    fn map(&mut self, segment: Segment, extents: SegmentExtents<'_>) -> Result<(), MappingRefused>;

    /// Unmaps what [`map`](Self::map) mapped for `segment`.
    fn unmap(&mut self, segment: Segment, extents: SegmentExtents<'_>);
}

/// No page tables and no frames: counts the pages that would be mapped and unmapped, and the frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CountedPages {
    /// Frames acquired since the start.
    pub acquired: u64,
    /// Frames released since the start.
    pub released: u64,
    /// Pages mapped since the start.
    pub mapped: u64,
    /// Pages unmapped since the start.
    pub unmapped: u64,
}

impl AreaFrames for CountedPages {
    fn acquire(&mut self, run: Extent) {
        self.acquired += run.count;
    }

    fn release(&mut self, run: Extent) {
        self.released += run.count;
    }
}

impl SegmentMapping for CountedPages {
    fn map(
        &mut self,
        segment: Segment,
        _extents: SegmentExtents<'_>,
    ) -> Result<(), MappingRefused> {
        self.mapped += segment.count;
        Ok(())
    }

    fn unmap(&mut self, segment: Segment, _extents: SegmentExtents<'_>) {
        self.unmapped += segment.count;
    }
}

/// An allocator whose segments are mapped while they are handed out.
///
/// Invariant: exactly the segments handed out are mapped, and the frames that the allocator acquires
/// for them are acquired.
#[derive(Clone, Debug)]
pub struct MappedSegments<A, M = CountedPages> {
    allocator: A,
    mapping: M,
}

impl<A: SegmentAllocator, M: SegmentMapping> MappedSegments<A, M> {
    /// Maps what `allocator`, which has handed out nothing yet, will hand out.
    pub const fn new(allocator: A, mapping: M) -> Self {
        Self { allocator, mapping }
    }

    /// The allocator behind.
    pub const fn allocator(&self) -> &A {
        &self.allocator
    }

    /// The mapping.
    pub const fn mapping(&self) -> &M {
        &self.mapping
    }
}

impl<A: SegmentAllocator, M: SegmentMapping> SegmentAllocator for MappedSegments<A, M> {
    fn space(&self) -> AreaSpace<'_> {
        self.allocator.space()
    }

    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        self.allocator.find(request)
    }

    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let segment = self.allocator.allocate_from(request, &mut self.mapping)?;
        let extents = self.allocator.space().extents(segment);
        if self.mapping.map(segment, extents).is_err() {
            let given_back = self.allocator.free_to(segment, &mut self.mapping);
            debug_assert_eq!(given_back, Ok(()), "a segment just handed out");
            return Err(SegmentError::NotMapped { segment });
        }
        Ok(segment)
    }

    /// Nothing is unmapped if the segment is refused; frames are released when they are unmapped.
    fn free(&mut self, segment: Segment) -> Result<(), SegmentFreeError> {
        self.allocator.free(segment)?;
        let space = self.allocator.space();
        self.mapping.unmap(segment, space.extents(segment));
        let acquired = space.pieces(self.allocator.acquired(segment));
        acquired.for_each(|run| self.mapping.release(run));
        Ok(())
    }

    /// None: the frames are the mapping's.
    fn acquired(&self, segment: Segment) -> Segment {
        Segment::new(segment.start, 0)
    }

    fn free_frames(&self) -> u64 {
        self.allocator.free_frames()
    }

    fn largest_frames(&self) -> u64 {
        self.allocator.largest_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Segment)) {
        self.allocator.for_each_free(visit);
    }
}
