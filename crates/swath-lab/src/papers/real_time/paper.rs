//! The citation of the paper, and its studies.

use crate::entry;
use crate::papers::real_time::footprint;
use crate::papers::real_time::hardware;
use crate::papers::real_time::programs;
use crate::papers::real_time::runtimes;
use crate::study::citation::Citation;
use crate::study::paper::Paper;

/// The paper and its studies.
pub const PAPER: Paper = Paper {
    citation: Citation {
        key: "Böhnert and Scholl 2014",
        authors: "M. Böhnert and C. Scholl",
        title: "A Dynamic Virtual Memory Management under Real-Time Constraints",
        venue: "IEEE International Conference on Embedded and Real-Time Computing Systems and Applications (RTCSA)",
        year: Some(2014),
        doi: None,
    },
    studies: &[
        entry!(runtimes::Runtimes, "runtimes.toml"),
        entry!(footprint::Footprint, "footprint.toml"),
        entry!(programs::Programs, "programs.toml"),
        entry!(hardware::InHardware, "hardware.toml"),
    ],
};
