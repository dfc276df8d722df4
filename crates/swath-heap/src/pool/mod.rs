//! Pools: the ranges of memory that are added to a heap, each with a record in its first granule.

pub(crate) mod change;
pub(crate) mod record;
