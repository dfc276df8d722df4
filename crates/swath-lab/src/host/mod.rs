//! TODO host.

pub mod count;
pub(crate) mod machine;
pub mod memory;
