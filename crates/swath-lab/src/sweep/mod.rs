//! Sweeps: one plan at every combination of values of its keys, as one table.
//!
//! ```text
//!   SWEEP.toml ──► Sweep ──► points, side by side ──► journal ──► points.parquet
//!                              shard i of n                  merge ──┘
//! ```
//!
//! A point is a study whose plan has one value for each swept key. It runs on one thread, and what
//! it gave is written into the [journal](crate::study::journal) when it is whole, as the points of a
//! study are, so that a sweep that was killed goes on where it was. A shard is every n-th point.

pub mod definition;
pub mod folder;
pub mod key;
pub mod merge;
pub mod run;
pub mod slurm;
