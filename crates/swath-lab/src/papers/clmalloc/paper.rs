//! The citation of the paper, and its studies.

use crate::entry;
use crate::papers::clmalloc::availability;
use crate::papers::clmalloc::bitmap::study as bitmap;
use crate::papers::clmalloc::large;
use crate::papers::clmalloc::latency;
use crate::papers::clmalloc::order;
use crate::papers::clmalloc::structures;
use crate::papers::clmalloc::translation::study as translation;
use crate::study::citation::Citation;
use crate::study::paper::Paper;

/// The paper and its studies.
pub const PAPER: Paper = Paper {
    citation: Citation {
        key: "Zhang, Lu and Zhang",
        authors: "Y. Zhang, K. Lu and W. Zhang",
        title: "CLMalloc: Contiguous memory management mechanism for large-scale CPU-accelerator hybrid architectures",
        venue: "National University of Defense Technology",
        year: None,
        doi: None,
    },
    studies: &[
        entry!(availability::Availability, "availability.toml"),
        entry!(order::RequestOrder, "order.toml"),
        entry!(bitmap::BitmapCosts, "bitmap/study.toml"),
        entry!(latency::Latency, "latency.toml"),
        entry!(large::Large, "large.toml"),
        entry!(structures::Structures, "structures.toml"),
        entry!(translation::SegmentTranslation, "translation/study.toml"),
    ],
};
