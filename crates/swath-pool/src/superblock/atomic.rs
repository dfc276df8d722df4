//! The atomic words that several threads write: the model checker's own under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::AtomicU32 as Shared32;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::AtomicU64 as Shared64;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicU32 as Shared32;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicU64 as Shared64;
