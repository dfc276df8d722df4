//! The free memory of one zone, in blocks that have a mobility.
//!
//! [`ZoneAllocator`] is the trait. [`linux`] implements it as the kernel does,
//! [`bank`] as the green memory manager of *Panwar and Gopinath*, which keeps
//! each memory bank's blocks apart so that banks can rest, and [`pages`] as the page buddy system
//! of *Duong and Hur*, or its binary one.

pub mod allocator;
pub mod bank;
pub mod linux;
pub mod pages;

pub use allocator::{IsolateError, Mobility, ZoneAllocator};
pub use pages::PageZone;
