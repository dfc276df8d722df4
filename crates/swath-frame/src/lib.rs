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

mod adaptive;
pub mod allocator;
pub mod area_space;
mod bank_blocks;
pub mod bank_buddy;
mod bank_open;
mod bank_rules;
mod bank_walk;
pub mod banks;
pub mod bitmap;
mod class;
mod classes;
pub mod config;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod front;
pub mod handle;
pub mod hotplug;
pub mod layout;
pub mod linux;
mod linux_follow;
mod linux_state;
#[cfg(feature = "testing")]
pub mod lists;
pub mod machine;
mod machine_types;
pub mod map;
pub mod page_buddy;
pub mod per_cpu;
pub mod quick_fit;
pub mod reservation;
mod reservation_allocator;
mod reservation_check;
mod reservation_levels;
mod reservation_slots;
mod reservation_table;
mod reservation_types;
pub mod rule;
pub mod segment;
pub mod segment_baseline;
pub mod segment_bitmap;
#[cfg(feature = "testing")]
pub mod segment_conformance;
pub mod segment_huge;
mod segment_ledger;
pub mod segment_mapping;
mod segment_place;
mod segment_runs;
mod short;
mod tree;
pub mod usage;
pub mod watermark;
#[cfg(feature = "testing")]
pub mod zone_conformance;
pub mod zoned;

pub use allocator::{AllocError, FrameAllocator, FreeError};
pub use config::{BuildError, CLASSES_MAX, Config, ConfigError};
pub use handle::Handle;
pub use hotplug::HotplugError;
pub use layout::{Layout, LayoutConfig, ZoneKind};
pub use linux::LinuxZone;
pub use machine::{Machine, MachineConfig, Request};
pub use map::{ByteRange, MapError, MemoryMap};
pub use page_buddy::PageBuddy;
pub use per_cpu::PerCpu;
pub use quick_fit::QuickFit;
pub use reservation::{Levels, PopulateError, Populated, Reservation, Reservations};
pub use rule::{BestFit, HeadOfList, Rule};
pub use usage::{Isolation, Unit, UnitState};
pub use zoned::{IsolateError, Mobility, ZoneAllocator};
