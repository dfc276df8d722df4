//! TODO zone.

pub mod allocator;
pub mod bank;
pub mod linux;
