//! TODO source.

pub mod memory;
pub mod real;
