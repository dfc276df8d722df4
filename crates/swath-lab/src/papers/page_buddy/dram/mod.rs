//! The memory of the timed system as a plan says it: `[dram]`, parts in files of their own,
//! and rules for writes that other crates add.

pub mod part;
pub mod plan;
pub mod policy;

pub use part::{PartFault, PartName};
pub use plan::{DramPlan, RefreshName};
pub use policy::{RuleTaken, add_write_rule};
