//! The laboratory: workloads, traces, machine snapshots, studies and reports.

#![forbid(unsafe_code)]

pub mod access;
pub mod count;
pub mod figure;
pub mod memory;
pub mod report;
pub mod results;
pub mod snapshot;
pub mod workload;
