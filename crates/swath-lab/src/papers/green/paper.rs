//! The citation of the paper, and its studies.

use crate::entry;
use crate::papers::green::cost::study::Cost;
use crate::papers::green::hotplug::Hotplug;
use crate::papers::green::layout::Layout;
use crate::papers::green::migration::Migration;
use crate::papers::green::power::Power;
use crate::papers::green::recorded::Recorded;
use crate::papers::green::working_set::WorkingSet;
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
    studies: &[
        entry!(Layout, "layout.toml"),
        entry!(Hotplug, "hotplug.toml"),
        entry!(Power, "power.toml"),
        entry!(Migration, "migration.toml"),
        entry!(Recorded, "recorded.toml"),
        entry!(Cost, "cost/study.toml"),
        entry!(WorkingSet, "working_set.toml"),
    ],
};
