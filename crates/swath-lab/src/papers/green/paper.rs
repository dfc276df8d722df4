//! The citation of the paper, and its studies.

use crate::entry;
use crate::papers::green::cost;
use crate::papers::green::hotplug;
use crate::papers::green::layout;
use crate::papers::green::migration;
use crate::papers::green::power;
use crate::papers::green::recorded;
use crate::papers::green::working_set;
use crate::study::citation::Citation;
use crate::study::paper::Paper;

/// The paper and its studies.
pub const PAPER: Paper = Paper {
    citation: Citation {
        key: "Panwar and Gopinath 2015",
        authors: "A. Panwar and K. Gopinath",
        title: "Towards Practical Page Placement for a Green Memory Manager",
        venue: "IEEE International Conference on High Performance Computing, Data, and Analytics (HiPC)",
        year: Some(2015),
        doi: None,
    },
    studies: &[
        entry!(layout::Layout, "layout.toml"),
        entry!(hotplug::Hotplug, "hotplug.toml"),
        entry!(power::Power, "power.toml"),
        entry!(migration::Migration, "migration.toml"),
        entry!(recorded::Recorded, "recorded.toml"),
        entry!(cost::study::Cost, "cost/study.toml"),
        entry!(cost::operations::Operations, "cost/operations.toml"),
        entry!(working_set::WorkingSet, "working_set.toml"),
    ],
};
