//! TODO segment.

pub mod allocator;
pub mod baseline;
pub mod bitmap;
pub mod huge;
pub(crate) mod ledger;
pub mod mapping;
pub(crate) mod place;
pub(crate) mod runs;
pub mod space;
