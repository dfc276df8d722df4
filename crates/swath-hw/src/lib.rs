//! Models of translation hardware, read from bytes of physical memory.
//!
//! A master presents a virtual address. The [`Tlb`] answers at once, or the
//! [`Mmu`] walks the tables: a [`Walk`] is a sequence of memory reads, each a
//! [`step`](Walk::step), decoded by [`decode()`]. What comes back is filled into
//! the TLB. Nothing here knows how the software side writes its tables: the
//! two meet in [`PhysMemory`](swath_arch::PhysMemory) and in the fields of
//! `swath-arch`, so that a wrong table shows up as a wrong translation.
//!
//! The models are functional: they count hits, misses, walks and reads, and
//! know no time. A timed model drives the same parts one read at a time
//! ([`Mmu::lookup`], [`Mmu::begin`], [`Miss::next_read`], [`Miss::step`],
//! [`Mmu::complete`]).
//!
//! Three designs, chosen by [`Regime::coalescing`](swath_arch::Regime):
//! **TRAD** (one base page to an entry), **PCAD** (page-table contiguity
//! ascending descending, the PBS paper's section III-B) and **AT** (anchor
//! translation: Park et al., "Hybrid TLB coalescing", ISCA 2017).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod decode;
pub mod fill;
pub mod geometry;
pub mod mmu;
pub mod tlb;
pub mod walker;

pub use decode::{Descriptor, Leaf, Rights, decode};
pub use fill::{EntryKind, Fill, Hit};
pub use geometry::{Geometry, GeometryError};
pub use mmu::{Access, ConfigError, Miss, Mmu, Outcome, Resolved, Stats, WalkOrder, WalkStats};
pub use tlb::{Tlb, TlbStats};
pub use walker::{
    AccessKind, Contiguity, Denied, Fault, Operation, Step, Translation, Walk, permit, walk,
};
