//! The green memory manager (Panwar and Gopinath).

use crate::study::paper::Paper;

pub mod allocator;
pub(crate) mod blocks;
pub mod cost;
pub mod hotplug;
pub mod layout;
pub mod machine;
pub mod migration;
pub mod plan;
pub mod plan_cost;
pub mod power;
pub mod recorded;
pub mod replay;
pub mod sample;
pub(crate) mod track;
pub mod view;
pub mod working_set;
pub(crate) mod zone;

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    key: "Panwar and Gopinath 2015",
    authors: "A. Panwar and K. Gopinath",
    title: "Towards Practical Page Placement for a Green Memory Manager",
    venue: "IEEE International Conference on High Performance Computing, Data, and Analytics (HiPC)",
    year: Some(2015),
    doi: None,
    studies: &[],
};
