//! TODO tlb.

pub(crate) mod check;
pub mod fill;
pub mod geometry;
pub mod ranges;
pub mod split;
pub mod stats;
