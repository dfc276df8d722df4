//! A zone as Linux manages it: the baseline of the bank-aware allocators.
//!
//! [`LinuxZone`] keeps the kernel's free lists by order and mobility, with its
//! pageblocks, claims and [fallbacks](fallback). It can start in the state of a
//! recorded kernel and follow the recording.

pub mod build;
pub(crate) mod codes;
pub mod fallback;
pub(crate) mod follow;
pub(crate) mod lists;
pub(crate) mod plausible;
pub(crate) mod walk;
pub mod zone;

pub use build::{LinuxBuildError, ORDER_MAX, PAGEBLOCK_ORDER};
pub use fallback::{Fallback, Observe, fallbacks};
pub use zone::LinuxZone;
