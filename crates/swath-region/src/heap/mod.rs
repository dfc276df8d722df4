//! A heap of bytes whose pages are real-time regions (Böhnert and Scholl, section V).
//!
//! A [`RegionHeap`] is TLSF over one pool. A page gets its frame at its first access, and
//! the pages inside a free block go back at once. The bytes that an allocation commits
//! become one region (mapVRH). A page with a boundary tag outlives the block before it, so
//! it is cut off as a region of its own when the tag is written, before anything else in
//! the region is touched: a released range is then whole regions, at most five, whatever
//! its length (two pages of the tag and links at either end, and the inside).
//!
//! The heap writes its tags through the slice that it is made over, and then gives their
//! pages their frames in the space. That slice has to be memory that is there without the
//! space's tables, as a kernel's own window to the pool. A kernel without one lets its heap write to the
//! pages themselves, and hands its faults to [`HeapRegions::tag`]: `rtl/system/program` does so.

mod allocator;
mod error;
mod regions;
mod source;

pub use allocator::RegionHeap;
pub use error::{NewRegionHeapError, RegionHeapFault};
pub use regions::{HeapRegions, RegionHeapStatistics, TAG_PAGES_MAX};
