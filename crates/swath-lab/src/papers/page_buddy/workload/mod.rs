//! Workloads as streams of 64-byte transactions: those of Table 4 of Duong and Hur, those that
//! other crates add, and those that a plan composes of recorded programs and others.

pub mod added;
pub mod mixed;
pub mod streams;
pub mod table4;

pub use added::{AddWorkloadError, add};
pub use mixed::{MixMaster, MixPlan};
pub use streams::{
    Category, Direction, Master, Stream, TRANSACTION_BYTES, Tiles, Traffic, Transaction, Workload,
};
pub use table4::{Shapes, WorkloadName};
