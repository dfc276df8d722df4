//! Contiguity of a machine's memory, and the frames that keep it from being more contiguous.
//!
//! [`MachineMemory`] holds what each aligned 2 MiB of RAM is used for, from a
//! [`Snapshot`](crate::machine::Snapshot) or from the running machine, of which any part can be
//! read anew at little cost. [`HugePages`] says from it how many huge pages can be had at once,
//! how many once movable frames are moved out of the way, how many never, and which kinds of
//! frames are in their way. [`Unmarked`] accounts for the frames that Linux marks as nothing,
//! [`processes()`] for the memory of each process. [`DeviceHeap`] has what Swath's module holds for devices.

mod device_heap;
mod free_blocks;
mod huge;
mod memory;
#[cfg(target_os = "linux")]
mod pagemap;
mod processes;
mod unmarked;

pub use device_heap::{DeviceHeap, HeapArea};
pub use huge::{Blocker, GIGANTIC_FRAMES, HugePages};
pub use memory::{HUGE_FRAMES, MachineMemory, Unit};
pub use processes::{InTheWay, ProcessMemory, Processes, processes};
pub use unmarked::{BlockTypes, KernelSums, Unmarked, block_types};
