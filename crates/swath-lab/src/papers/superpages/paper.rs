//! The citation of the paper, and its studies.

use crate::entry;
use crate::papers::superpages::study;
use crate::study::citation::Citation;
use crate::study::paper::Paper;

/// The paper and its studies.
pub const PAPER: Paper = Paper {
    citation: Citation {
        key: "Bodek 2014",
        authors: "Z. Bodek",
        title: "Transparent Superpages Support for FreeBSD on ARM",
        venue: "BSDCan, Ottawa",
        year: Some(2014),
        doi: None,
    },
    studies: &[entry!(study::Superpages, "superpages.toml")],
};
