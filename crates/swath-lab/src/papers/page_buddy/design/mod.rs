//! The designs that studies compare: the paper's, and those that other crates add.

pub mod allocators;
pub mod compared;
pub mod plan;
pub mod tlb_kind;

pub use allocators::{AllocatorPlan, AllocatorsPlan};
pub use compared::{
    AddError, Added, AddedFrames, Design, DesignFrames, NewFrames, NewTables, OwnHardware, Scheme,
    add,
};
pub use plan::{DesignPlan, DesignsPlan};
pub use tlb_kind::{NewTlb, TlbKind};
