//! Which frames of physical memory are free.
//!
//! A [`MemoryMap`] says which frames there are; a [`FrameAllocator`] hands
//! them out and takes them back. The crate is `no_std` and allocates nothing:
//! ask a structure for the size of its metadata first, then hand over a slice.
//!
//! The feature `testing` adds what needs a heap: the paper's lists as they are
//! written, and the suite that every allocator has to pass.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
extern crate alloc;

pub mod allocator;
pub mod bits;
pub mod buddy;
pub mod front;
pub mod layout;
pub mod machine;
pub mod map;
pub mod reserve;
pub mod segment;
pub mod testing;
pub mod zone;

pub use allocator::{AllocError, FrameAllocator, FreeError};
pub use buddy::config::{BuildError, CLASSES_MAX, Config, ConfigError};
pub use buddy::page_buddy::PageBuddy;
pub use buddy::quick_fit::QuickFit;
pub use buddy::rule::{BestFit, HeadOfList, Rule};
pub use layout::{Layout, LayoutConfig, ZoneKind};
pub use machine::handle::Handle;
pub use machine::hotplug::HotplugError;
pub use machine::nodes::{Machine, MachineConfig, Request};
pub use machine::per_cpu::PerCpu;
pub use machine::usage::{Isolation, Unit, UnitState};
pub use map::{ByteRange, MapError, MemoryMap};
pub use reserve::reservations::{Levels, PopulateError, Populated, Reservation, Reservations};
pub use zone::allocator::{IsolateError, Mobility, ZoneAllocator};
pub use zone::linux::zone::LinuxZone;
