//! The citation of the paper, and its studies.

use crate::study::citation::Citation;
use crate::study::paper::Paper;

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    citation: Citation {
        key: "Panwar and Gopinath 2015",
        authors: "A. Panwar and K. Gopinath",
        title: "Towards Practical Page Placement for a Green Memory Manager",
        venue: "IEEE International Conference on High Performance Computing, Data, and Analytics (HiPC)",
        year: Some(2015),
        doi: None,
    },
    studies: &[],
};
