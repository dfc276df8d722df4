//! Virtual address spaces of regions: [`RegionSpace`] with arrays as long as the space,
//! [`SparseRegionSpace`] with nodes where pages are mapped.

pub mod dense;
mod region;
pub mod sparse;

pub use dense::RegionSpace;
pub use region::{Region, UnmappedRegion};
pub use sparse::SparseRegionSpace;
