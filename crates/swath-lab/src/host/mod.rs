//! TODO host.

pub mod count;
pub mod memory;
