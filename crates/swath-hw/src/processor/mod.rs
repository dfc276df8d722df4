//! An in-order core with data caches in front of the timed memory.
//!
//! A [`Processor`] makes one [`MemoryAccess`] at a time, translated by any
//! [`Translate`](crate::translate::Translate), so that its driver can act as a kernel between two
//! accesses: map the page that an [`Exception`] names, then make the access again. The
//! [presets] are processors that exist, with the source of each number.

pub mod access;
pub mod cache;
#[cfg(test)]
mod cache_model;
pub mod config;
pub(crate) mod data_path;
pub mod in_order;
pub(crate) mod patterns;
pub mod presets;

pub use access::{Exception, ExceptionCause, MemoryAccess};
pub use cache::{Cache, CacheConfig, CacheConfigError, CacheOutcome, CacheStats, Victim};
pub use config::{ProcessorConfig, ProcessorConfigError, WalksFrom};
pub use in_order::{Processor, ProcessorStats};
pub use presets::{NumberSource, ProcessorPreset};
