//! TODO heap.

#[cfg(target_os = "linux")]
pub(crate) mod calls;
pub mod events;
pub mod file;
#[cfg(target_os = "linux")]
pub(crate) mod live;
pub mod record;
pub mod summary;
