#![doc = include_str!("../README.md")]
#![no_std]

mod error;
mod heap;
mod options;
#[cfg(all(test, not(loom), not(miri)))]
mod plain;
mod pool;
mod source;
mod superblock;

pub use error::{BufferAllocateError, BufferFreeError, BufferPoolError, BufferResizeError};
pub use heap::front::{Freed, Front, Unplaced};
pub use heap::local::LocalHeap;
pub use heap::reach::Reach;
pub use heap::slot::HeapSlot;
pub use heap::spill::Due;
pub use options::BufferOptions;
pub use pool::buffer_pool::{BlockPlace, BufferPool};
pub use pool::check::BufferFault;
pub use pool::stats::BufferStats;
pub use pool::storage::{Storage, dirty_words};
pub use source::first_fit::FirstFit;
pub use source::segment_source::{MakeUsable, Placement, SegmentSource};
#[cfg(loom)]
pub use superblock::atomic::order_loads;
pub use superblock::claim::Claim;
pub use superblock::class::{CLASSES, SLOT_BYTES_MAX, SLOT_BYTES_MIN, UNIT_BYTES, UNIT_SHIFT};
pub use superblock::live::Live;
pub use superblock::record::Superblock;
pub use superblock::returned::Returned;
