//! Translation lookaside buffers (TLBs) whose entries map ranges of pages.
//!
//! One entry holds a base page, a superpage, a coalesced block (PCAD) or an anchor with
//! the pages behind it (AT), so a single store serves every design. A [`Tlb`] is one array of
//! sets and ways with true LRU, or another [`Replacement`]; a [`SplitTlb`] is several of them, split by page size.

pub mod array;
pub(crate) mod check;
pub mod fill;
pub mod geometry;
#[cfg(test)]
mod model;
pub mod split;
#[cfg(test)]
mod split_model;
pub mod stats;

pub use array::Tlb;
pub use fill::{EntryKind, TlbFill, TlbHit};
pub use geometry::{Geometry, GeometryError, Indexing, Replacement};
pub use split::{SplitTlb, TlbArray, TlbForm};
pub use stats::{SizeStats, TlbStats};
