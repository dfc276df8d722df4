//! TODO system.

pub mod interconnect;
pub mod iommu;
pub mod master;
pub mod run;
pub mod stats;
