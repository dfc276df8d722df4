//! The pool that all threads share: its tables, the global heap behind one lock, and the exchange
//! of superblocks between it and the threads' heaps.

pub(crate) mod buffer_pool;
pub(crate) mod check;
#[cfg(all(test, not(loom), not(miri)))]
mod check_faults;
pub(crate) mod dirty;
#[cfg(all(test, not(loom)))]
mod dirty_model;
pub(crate) mod exchange;
pub(crate) mod fork;
pub(crate) mod global;
#[cfg(all(test, not(loom), not(miri)))]
mod overwritten;
pub(crate) mod stats;
pub(crate) mod storage;
