//! TODO access.

pub mod champsim;
pub mod event;
pub mod lackey;
pub mod record;
#[cfg(target_os = "linux")]
pub(crate) mod sample;
pub mod stream;
pub mod swath;
pub(crate) mod syscall;
