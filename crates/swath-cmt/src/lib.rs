#![doc = include_str!("../README.md")]

mod allocate;
pub mod c;
mod error;
mod extents;
mod global;
mod lock;
mod options;
mod physical;
mod process;
mod purge;
mod report;
mod source;
mod stats;

pub use allocate::{allocate, allocate_aligned, allocate_zeroed, free, resize, usable_size};
pub use error::{
    BeginError, ExtentsError, FreeError, OptionError, OutOfMemory, PhysicalUnknown, ResizeError,
};
pub use extents::{PhysicalExtent, extents};
pub use global::Cmt;
pub use options::{OnError, Options, Populate};
pub use physical::areas::areas;
pub use process::begin::{begin, begin_with};
pub use purge::{Purge, purge};
pub use source::backing::set_populate_default;
pub use stats::{Stats, stats};
