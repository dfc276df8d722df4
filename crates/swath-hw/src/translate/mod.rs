//! Translation of virtual addresses by reading page tables as bytes of memory.
//!
//! A [`Walk`] reads one descriptor after another and [`decode()`] says what each of them means.
//! An [`Mmu`] is a TLB in front of such walks; a [`Hierarchy`] has two TLBs and a page-walk
//! cache; [`Nested`] walks a guest's table through its host's. [`SegmentRegisters`] have no table of pages but a list of extents. All implement
//! [`Translate`], the interface through which a timed model drives them one memory read at a time.

pub mod decode;
pub mod hierarchy;
pub(crate) mod line;
pub mod miss;
pub mod mmu;
pub mod nested;
pub mod permit;
pub mod regime;
pub mod segments;
pub mod translator;
pub mod walker;
#[cfg(test)]
mod walker_cases;
#[cfg(test)]
mod walker_model;

pub use decode::{Descriptor, Leaf, TableRights, decode};
pub use hierarchy::{Hierarchy, HierarchyConfig};
pub use miss::{Miss, Resolved, TlbOutcome, TranslatedAccess, WalkOrder, WalkStats};
pub use mmu::{Mmu, MmuStats};
pub use nested::{Nested, NestedFault, NestedStats};
pub use permit::{AccessKind, Denied, Operation, permit};
pub use regime::MmuConfigError;
pub use segments::{SegmentMiss, SegmentRegisters};
pub use translator::{PendingMiss, Translate, TranslationStats};
pub use walker::{LeafContiguity, Translation, TranslationFault, Walk, WalkStep, walk};
