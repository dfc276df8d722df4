//! The memory of the timed system as a plan says it: `[dram]`, and parts in files of their own.

pub mod part;
pub mod plan;

pub use part::{PartFault, PartName};
pub use plan::{DramPlan, RefreshName};
