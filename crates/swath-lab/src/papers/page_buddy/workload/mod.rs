//! Workloads as streams of 64-byte transactions: those of Table 4 of Duong and Hur, and those that
//! other crates add.

pub mod added;
pub mod streams;
pub mod table4;

pub use added::{AddWorkloadError, add};
pub use streams::{
    Category, Direction, Master, Stream, TRANSACTION_BYTES, Tiles, Traffic, Transaction, Workload,
};
pub use table4::{Shapes, WorkloadName};
