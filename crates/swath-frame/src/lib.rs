#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
extern crate alloc;

pub mod allocator;
pub(crate) mod areas;
pub mod bits;
pub mod buddy;
pub mod contiguous;
pub mod front;
pub mod guest;
pub mod hardening;
pub mod hotplug;
pub mod layout;
pub mod machine;
pub mod map;
pub mod reclaim;
pub mod reserve;
pub mod segment;
#[cfg(feature = "testing")]
pub mod testing;
pub mod zone;

pub use allocator::{BuildError, FrameAllocateError, FrameAllocator, FrameFreeError};
pub use buddy::{
    BestFit, BuddyConfig, BuddyConfigError, ByFit, CLASSES_MAX, Fit, FreeRuns, HeadOfList,
    PageBuddy, QuickFit, Rule,
};
pub use contiguous::{ContiguousAllocator, ContiguousError, ContiguousRequest};
pub use hardening::{Checked, Hardening, Trusting, WordFault};
pub use hotplug::{FrameHotplug, FrameHotplugError};
pub use layout::{Layout, LayoutConfig, ZoneKind};
pub use machine::{
    BlockRequest, HotplugError, Isolation, Machine, MachineConfig, MachineHandle, MemoryUnit,
    PerCpuLists, UnitState,
};
pub use map::{ByteRange, MemoryMap, MemoryMapError};
pub use reserve::{PopulateError, Populated, Reservation, ReservationLevels, Reservations};
pub use zone::linux::LinuxZone;
pub use zone::{IsolateError, Mobility, PageZone, ZoneAllocator};
