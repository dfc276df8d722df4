//! Segments: frames that are contiguous to an accelerator, after *Zhang, Lu
//! and Zhang* (CLMalloc).
//!
//! An [`AreaSpace`] lays a machine's memory areas end to end, so that the
//! vacuums between them vanish. A [`SegmentAllocator`] hands out runs of that
//! space: [`GlobalBitmap`] across any number of areas, [`Baseline`] within one
//! area or over whole ones, [`HugePages`] one page at a time. [`MappedSegments`]
//! adds to any of them a mapping with each request, and [`allocate_by_moving`] makes room by moving
//! segments.

pub mod allocator;
pub mod baseline;
pub mod global_bitmap;
pub mod huge;
pub(crate) mod ledger;
pub mod mapping;
pub mod migrate;
pub(crate) mod place;
pub(crate) mod runs;
pub mod space;

pub use allocator::{AreaFrames, SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest};
pub use baseline::Baseline;
pub use global_bitmap::{FrameSupply, GlobalBitmap};
pub use huge::HugePages;
pub use mapping::{CountedPages, MappedSegments, MappingRefused, SegmentMapping};
pub use migrate::{Moved, Window, allocate_by_moving};
pub use space::{Area, AreaSpace, Segment, SegmentExtents};
