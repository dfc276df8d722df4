//! TODO tree.

pub mod dense;
pub mod layered;
pub mod sparse;
