//! CLMalloc: contiguous memory over scattered areas (Zhang, Lu and Zhang).

use crate::study::paper::Paper;

#[cfg(target_os = "linux")]
pub(crate) mod allocator;
pub mod availability;
#[cfg(target_os = "linux")]
pub mod large;
pub mod latency;
#[cfg(target_os = "linux")]
pub(crate) mod memory;
pub mod order;
pub mod plan;
#[cfg(target_os = "linux")]
pub(crate) mod records;
#[cfg(target_os = "linux")]
pub(crate) mod rounds;
pub(crate) mod segments;
#[cfg(target_os = "linux")]
pub mod structures;
pub(crate) mod variant;
#[cfg(target_os = "linux")]
pub(crate) mod ycsb;

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    key: "Zhang, Lu and Zhang",
    authors: "Y. Zhang, K. Lu and W. Zhang",
    title: "CLMalloc: Contiguous memory management mechanism for large-scale CPU-accelerator hybrid architectures",
    venue: "National University of Defense Technology",
    year: None,
    doi: None,
    studies: &[],
};
