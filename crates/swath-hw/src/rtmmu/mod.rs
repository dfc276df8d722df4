//! The real-time memory management unit (RTMMU) of *Böhnert and Scholl*, with time.
//!
//! The RTMMU decides in a constant number of cycles whether a page belongs to a mapped region:
//! the region's start is looked up, and the page must stand on that region's stack. [`RtTables`]
//! is the pure function over the tables' bytes, an [`RtWalk`] reads the same words through the
//! unit's three ports, and the [`Rtmmu`] runs such walks one behind the other. The conventional
//! unit with one direct page table is the baseline.

pub mod tables;
pub mod unit;
pub mod walk;

pub use tables::{
    MappedPage, PageRights, PageTable, PortReads, RtFault, RtTables, RtTablesError, UnmappedCause,
};
pub use unit::{RtAccess, RtStats, Rtmmu};
pub use walk::{RtLatency, RtWalk};
