#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "testing"))]
extern crate alloc;

pub mod addr;
pub mod formats;
pub mod memory;
pub mod segments;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod validity;
pub mod word;

pub use addr::{
    BASE_PAGE_BYTES, BASE_PAGE_SHIFT, Extent, Order, PageRange, Pfn, PhysAddr, VirtAddr, Vpn,
};
pub use formats::{
    Attributes, Coalescing, ContiguityField, Field, Format, Level, MemoryKind, Regime, Scattered,
};
pub use memory::{BusError, PhysMemory, SliceMemory};
pub use segments::SegmentList;
pub use validity::{NodeTables, ValidityTables};
pub use word::Word;
