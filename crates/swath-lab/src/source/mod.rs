//! TODO source.

pub mod follow;
pub mod load;
pub mod memory;
pub mod real;
pub mod replay;
pub(crate) mod steps;
