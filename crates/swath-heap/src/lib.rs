//! Byte allocators whose every call takes bounded time.
//!
//! A [`Heap`] hands out bytes of **pools** that the caller lends. Free blocks
//! lie in lists by size class, and a bit map of two levels says which lists
//! have anything: a request is one bit scan, a free looks at its two
//! neighbours, and nothing depends on how much is in use or what happened
//! before. Two policies share all of the code and differ in one number, how
//! finely a power of two is divided into classes ([`fit`]):
//!
//! * [`Tlsf`], two-level segregated fit (Masmano and others, ECRTS 2004), 32
//!   classes in each power of two: at most 1/32 of a block is lost by rounding;
//! * [`HalfFit`] (Ogasawara 1995, as rounded by o1heap), one class: fewer
//!   instructions (a third less), but up to half of a block lost: 1.36 times the
//!   bytes asked for on the benchmarks' trace, where TLSF takes 1.01 times.
//!
//! Pools may lie over a [`PageSource`]: then pages that lie wholly inside a
//! free block go back to it at once, in one call whatever their number, as the
//! paper on real-time regions wants it (004_0cb2f33903da1556.txt, sections I
//! and V-B), and the pages of the boundary tags stay.
//!
//! Bad pointers and overwritten headers are found as far as the tier of
//! [`hardening`] looks; each is a typed error and changes nothing.
//!
//! ```
//! use core::alloc::Layout;
//! use core::mem::MaybeUninit;
//! use swath_heap::{ByteAllocator, FreeError, Tlsf};
//!
//! let mut pool = [MaybeUninit::uninit(); 4096];
//! let mut heap: Tlsf = Tlsf::new();
//! heap.add_pool(&mut pool)?;
//! let bytes = heap.allocate(Layout::new::<[u8; 100]>())?;
//! // SAFETY: the heap gave it, and it is not used after.
//! unsafe {
//!     heap.free(bytes)?;
//!     assert!(matches!(heap.free(bytes), Err(FreeError::NotAllocated { .. })));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate is `no_std`, allocates nothing itself and has no global state.

#![no_std]

#[cfg(feature = "testing")]
extern crate alloc;

mod allocator;
mod block;
mod check;
#[cfg(feature = "testing")]
pub mod conformance;
mod doubt;
mod error;
pub mod fit;
mod global;
pub mod hardening;
mod heap;
mod lend;
mod pages;
mod pools;
mod resize;
mod sizing;

pub use allocator::ByteAllocator;
pub use block::{GRANULE_BYTES, HEADER_BYTES, MIN_BLOCK_BYTES};
pub use check::BlockInfo;
pub use error::{AllocError, Fault, FaultKind, FreeError, PoolError, ResizeError};
pub use fit::{Bins, Fit, PowersOfTwo, TwoLevel};
pub use global::Global;
pub use hardening::{Hardening, Headers, Links, Trusting};
pub use heap::Heap;
pub use pages::{PageSource, Resident, SourceError};
pub use pools::{POOL_OVERHEAD_BYTES, PoolId};
pub use sizing::{Demand, pool_bytes};

/// Two-level segregated fit: 32 classes in each power of two.
pub type Tlsf<'p, S = Resident, H = Headers> = Heap<'p, TwoLevel, S, H>;

/// Half-fit: every block is a power of two of granules.
pub type HalfFit<'p, S = Resident, H = Headers> = Heap<'p, PowersOfTwo, S, H>;
