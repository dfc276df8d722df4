//! TODO machine.

pub mod handle;
pub mod hotplug;
pub mod nodes;
pub mod per_cpu;
pub(crate) mod types;
pub mod usage;
pub mod watermark;
