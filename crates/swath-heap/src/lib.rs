#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(feature = "testing")]
extern crate alloc;

mod allocator;
mod block;
mod check;
#[cfg(feature = "testing")]
pub mod conformance;
mod error;
pub mod fit;
pub mod hardening;
mod heap;
mod locked;
mod pages;
mod plausible;
mod pool;
mod resize;
mod sizing;

pub use allocator::ByteAllocator;
pub use block::{GRANULE_BYTES, HEADER_BYTES, MIN_BLOCK_BYTES};
pub use check::BlockInfo;
pub use error::{
    AllocateBytesError, FreeBytesError, HeapFault, HeapFaultKind, HeapPoolError, ResizeBytesError,
};
pub use fit::{Bins, Fit, PowersOfTwo, TwoLevel};
pub use hardening::{Hardening, Headers, Links, Trusting};
pub use heap::Heap;
pub use locked::LockedHeap;
pub use pages::{PageSource, Resident, SourceError};
pub use pool::record::{POOL_OVERHEAD_BYTES, PoolId};
pub use sizing::{Demand, pool_bytes};

/// A heap by two-level segregated fit: 32 classes in each power of two.
pub type Tlsf<'p, S = Resident, H = Headers> = Heap<'p, TwoLevel, S, H>;

/// A heap by half-fit: every block is a power of two of granules.
pub type HalfFit<'p, S = Resident, H = Headers> = Heap<'p, PowersOfTwo, S, H>;
