//! Sources of units: the pool acquires runs of them and releases them again.

pub(crate) mod first_fit;
pub(crate) mod masks;
#[cfg(all(test, not(loom)))]
mod model;
pub(crate) mod segment_source;
