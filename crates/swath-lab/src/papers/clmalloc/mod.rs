//! CLMalloc: contiguous memory over scattered areas (Zhang, Lu and Zhang).

#[cfg(target_os = "linux")]
pub(crate) mod allocator;
pub mod availability;
#[cfg(target_os = "linux")]
pub mod large;
pub mod latency;
#[cfg(target_os = "linux")]
pub(crate) mod memory;
pub mod order;
pub mod paper;
pub mod plan;
#[cfg(target_os = "linux")]
pub(crate) mod records;
#[cfg(target_os = "linux")]
pub(crate) mod rounds;
pub(crate) mod segments;
#[cfg(target_os = "linux")]
pub mod structures;
pub(crate) mod variant;
#[cfg(target_os = "linux")]
pub(crate) mod ycsb;
