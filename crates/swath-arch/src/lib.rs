//! The contract between memory-management software and hardware.
//!
//! Software writes page tables as bytes, hardware reads them as bytes, and
//! both sides agree only on what stands here: how addresses are numbered
//! ([`addr`]), where the fields of a descriptor lie ([`armv7`], [`armv8`],
//! [`x86_64`], gathered by [`Format`]; of a table of regions, [`validity`]), and
//! how a byte of physical memory is reached ([`PhysMemory`]). There is no encoder
//! and no decoder here on purpose: `swath-vm` has the one, `swath-hw` the other,
//! so that each checks the other.
//!
//! The crate is `no_std`, has no dependencies and allocates nothing.

#![no_std]
#![forbid(unsafe_code)]

pub mod addr;
pub mod formats;
pub mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod validity;

pub use addr::{Extent, Order, PageRange, Pfn, PhysAddr, VirtAddr, Vpn};
pub use formats::field::{Field, Scattered};
pub use formats::format::{
    Attributes, Coalescing, ContiguityField, Format, Level, MemoryKind, Regime,
};
pub use memory::{BusError, PhysMemory, SliceMemory};
pub use validity::{NodeTables, ValidityTables};

/// log2 of the base page size: all three formats use 4 KiB base pages.
pub const BASE_PAGE_SHIFT: u32 = 12;

/// Bytes in a base page and in a frame: 4096.
pub const BASE_PAGE_BYTES: u64 = 1 << BASE_PAGE_SHIFT;
