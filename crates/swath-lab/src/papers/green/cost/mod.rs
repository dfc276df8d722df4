//! Costs of the allocators (Tables II and III): instructions and time of single
//! frames taken one after the other, and bytes of the management structures.

pub(crate) mod count;
pub mod plan;
pub mod sample;
pub(crate) mod sequence;
pub(crate) mod structures;
pub mod study;
