//! Virtual memory with constant bounds, and its RTMMU (Böhnert and Scholl).

use crate::study::paper::Paper;

pub mod footprint;
pub mod heap;
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

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    key: "Böhnert and Scholl 2014",
    authors: "M. Böhnert and C. Scholl",
    title: "A Dynamic Virtual Memory Management under Real-Time Constraints",
    venue: "IEEE International Conference on Embedded and Real-Time Computing Systems and Applications (RTCSA)",
    year: Some(2014),
    doi: None,
    studies: &[],
};
