//! A whole machine's frames: nodes of zones under watermarks and per-CPU
//! lists, as the kernel has them, above any
//! [`ZoneAllocator`](crate::zone::ZoneAllocator).
//!
//! [`Machine`] serves a [`BlockRequest`] from the zones of a
//! [`Layout`](crate::layout::Layout), knows of each frame whether it is in use
//! and by whom, and takes sections and banks offline. Many requests that are alike are served
//! as a run ([`Machine::allocate_run`]). A [`MachineHandle`] is
//! the part of it that one kind of owner sees, as a
//! [`FrameAllocator`](crate::FrameAllocator).

pub mod config;
pub mod handle;
pub mod hotplug;
pub mod nodes;
pub mod per_cpu;
pub mod request;
pub(crate) mod runs;
pub mod usage;
pub mod watermark;

pub use config::{CPUS_MAX, MachineConfig, MachineError, MachineSize};
pub use handle::MachineHandle;
pub use hotplug::HotplugError;
pub use nodes::Machine;
pub use per_cpu::PerCpuLists;
pub use request::{BlockRequest, MachineAllocateError, MachineFreeError};
pub use usage::{Isolation, MemoryUnit, UnitState};
pub use watermark::Watermarks;
