#![doc = include_str!("../README.md")]
#![no_std]
#![deny(unsafe_code)]

pub mod error;
pub mod frames;
pub mod header;
#[allow(unsafe_code, reason = "a source of pages is an unsafe trait, a free of a pointer unsafe")]
pub mod heap;
pub mod space;
pub mod tree;

pub use error::{NewRegionsError, RegionError, RegionFault};
pub use frames::{FramePool, FramePoolError, Quota, QuotaError};
pub use header::Rights;
pub use heap::{
    HeapRegions, NewRegionHeapError, RegionHeap, RegionHeapFault, RegionHeapStatistics,
    TAG_PAGES_MAX,
};
pub use space::{Region, RegionSpace, SparseRegionSpace, UnmappedRegion};
pub use tree::{
    DenseTree, LayeredTree, RegionTree, SparseTree, TreeError, TreeTooShort, dense_tree_words,
};
