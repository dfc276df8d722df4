//! TODO pmap.

pub mod error;
pub mod mappings;
pub(crate) mod range;
pub mod relocation;
pub mod reverse;
