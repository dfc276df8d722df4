//! Processor heaps: the superblocks of one thread, from which it allocates and to which it frees
//! without a lock, the slots of them that it has at hand, and the segments that it keeps.

pub(crate) mod cache;
pub(crate) mod front;
pub(crate) mod kept;
#[cfg(all(test, not(loom)))]
mod kept_model;
pub(crate) mod local;
pub(crate) mod reach;
pub(crate) mod run;
pub(crate) mod segment;
#[cfg(all(test, not(loom), not(miri)))]
mod segment_faults;
pub(crate) mod short;
pub(crate) mod slot;
pub(crate) mod spill;
