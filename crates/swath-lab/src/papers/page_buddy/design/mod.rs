//! The designs that studies compare: the paper's, and those that other crates add.

pub mod compared;
pub mod tlb_kind;

pub use compared::{Added, AddedFrames, Design, DesignFrames, NameTaken, NewFrames, Scheme, add};
pub use tlb_kind::{NewTlb, TlbKind};
