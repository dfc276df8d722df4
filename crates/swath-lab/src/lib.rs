//! The laboratory: workloads, traces, machine snapshots, studies and reports.

#![forbid(unsafe_code)]

pub mod access;
pub mod access_champsim;
pub mod access_lackey;
pub mod access_record;
pub mod access_swath;
mod axis;
mod claim;
pub mod count;
pub mod figure;
mod input;
pub mod memory;
mod output;
mod page;
mod palette;
pub mod report;
pub mod results;
pub mod snapshot;
pub mod snapshot_file;
pub mod snapshot_live;
pub mod workload;
