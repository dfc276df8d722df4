//! The free memory of one zone, in blocks that have a mobility.
//!
//! [`ZoneAllocator`] is the trait. [`linux`] implements it as the kernel does,
//! [`bank`] as the green memory manager of *Panwar and Gopinath*, which keeps
//! each memory bank's blocks apart so that banks can rest.

pub mod allocator;
pub mod bank;
pub mod linux;

pub use allocator::{IsolateError, Mobility, ZoneAllocator};
