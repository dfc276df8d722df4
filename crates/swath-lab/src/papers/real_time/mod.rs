//! Virtual memory with constant bounds, and its RTMMU (Böhnert and Scholl).

pub mod footprint;
pub mod heap;
pub mod paper;
pub mod plan;
pub mod program;
pub mod programs;
pub(crate) mod real;
pub mod run;
pub mod runtimes;
pub mod system;
pub mod table;
pub mod table_heap;
pub mod workload;
