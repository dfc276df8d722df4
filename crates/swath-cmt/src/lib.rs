#![doc = include_str!("../README.md")]
// A library that overrides `malloc` can then do without `std` (see `swath-malloc`).
#![cfg_attr(all(not(test), target_arch = "x86_64", target_os = "linux"), no_std)]

mod allocate;
pub mod c;
mod contiguous;
mod error;
mod extents;
mod foreign;
mod global;
mod lock;
mod options;
mod physical;
mod pin;
mod process;
mod purge;
mod report;
mod reserve;
mod source;
mod stats;

pub use allocate::{allocate, allocate_aligned, allocate_zeroed, free, resize, usable_size};
pub use contiguous::allocate_contiguous;
pub use error::{
    BeginError, ContiguousError, ExtentsError, FreeError, OptionError, OutOfMemory,
    PhysicalUnknown, PinError, ResizeError,
};
pub use extents::{PhysicalExtent, extents, virt2phys};
pub use foreign::{Foreign, override_malloc};
pub use global::Cmt;
pub use options::{Hugetlb, OnError, Options, Populate};
pub use physical::areas::areas;
pub use pin::{Held, Pin, pin};
pub use process::begin::{begin, begin_with};
pub use purge::{Purge, purge};
pub use report::abort;
pub use reserve::extent::{Pages, ReserveExtent};
pub use stats::{Stats, reserve_extents, stats};
pub use swath_pool::Placement;
