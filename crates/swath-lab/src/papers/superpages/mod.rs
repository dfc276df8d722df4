//! Transparent superpages by reservation (Bodek).

use crate::study::paper::Paper;

pub mod benchmark;
pub mod execute;
pub(crate) mod figures;
pub mod kernel;
pub(crate) mod objects;
pub mod plan;
pub mod process;
pub(crate) mod real;
pub mod talk;

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    key: "Bodek 2014",
    authors: "Z. Bodek",
    title: "Transparent Superpages Support for FreeBSD on ARM",
    venue: "BSDCan, Ottawa",
    year: Some(2014),
    doi: None,
    studies: &[],
};
