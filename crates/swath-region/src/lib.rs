//! Real-time regions of pages.

#![no_std]
#![forbid(unsafe_code)]

pub mod error;
pub mod frames;
pub mod header;
pub mod nodes;
pub mod space;
pub mod tree;

pub use error::{NewRegionsError, RegionError, RegionFault};
pub use frames::{FramePool, PoolError, Quota, QuotaError};
pub use header::Rights;
pub use nodes::SparseRegionSpace;
pub use space::{Region, RegionSpace, Unmapped};
pub use tree::dense::{DenseTree, RegionTree, TreeError, TreeTooShort, dense_tree_words};
pub use tree::layered::LayeredTree;
pub use tree::sparse::SparseTree;
