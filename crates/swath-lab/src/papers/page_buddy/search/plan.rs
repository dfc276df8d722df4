//! The plan of a search.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::dram::DramPlan;
use crate::papers::page_buddy::savings::Scope;
use crate::papers::page_buddy::search::space::SpacePlan;
use crate::papers::page_buddy::setting::{BlockFrames, MachinePlan, check_free};
use crate::papers::page_buddy::timed::SystemMachine;
use crate::papers::page_buddy::workload::{Category, WorkloadName};
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms, Repeats, Share};
use crate::study::plan::{Head, Refused, require};

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchPlan {
    /// Name, title, seed.
    pub about: Head,
    /// The most readings that are measured: all of the space, or a sample.
    pub readings_max: Forms<Bounded<1, 100_000>>,
    /// Number of seeds with which each is measured.
    pub repeats: Forms<Repeats>,
    /// Number of seeds with which those of the front are measured again, on all workloads and
    /// sizes of the paper; 0 if they are not.
    pub repeats_of_front: Forms<Bounded<0, 1000>>,
    /// Sizes of the free blocks for category II: 1, one from 2 to 64 and one from 128 to 256 at least.
    pub block_frames: Ascending<BlockFrames>,
    /// Those for category I.
    pub category_i_block_frames: Ascending<BlockFrames>,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// The workloads, of both categories.
    pub workloads: Distinct<WorkloadName>,
    /// The machine.
    pub machine: MachinePlan,
    /// The base reading, from which parameters are counted.
    #[serde(default)]
    pub system: SystemMachine,
    /// The memory; Table 3's if not given.
    #[serde(default)]
    pub dram: DramPlan,
    /// The axes.
    pub search: SpacePlan,
}

crate::plan!(SearchPlan, check);

fn check(plan: &SearchPlan) -> Result<(), Refused> {
    plan.machine.check()?;
    plan.system.check("system.walks_max")?;
    let anchors = plan.machine.anchor_log2.is_none();
    require(anchors, "machine.anchor_log2", || {
        "the readings' own, system.anchor_log2, is searched".to_owned()
    })?;
    plan.dram.check()?;
    check_free("", plan.free_per_requested, plan.free_share)?;
    for (category, name) in [(Category::I, "I"), (Category::II, "II")] {
        let has = plan.workloads.iter().any(|one| one.category() == category);
        require(has, "workloads", || format!("none of category {name}"))?;
    }
    let Scope { small, large, .. } = plan.scope();
    let has_one = plan.block_frames.iter().any(|size| size.get() == 1);
    require(has_one && !small.is_empty() && !large.is_empty(), "block_frames", || {
        "1, one from 2 to 64 and one from 128 to 256 are needed".to_owned()
    })?;
    plan.search.check()
}

impl SearchPlan {
    /// The cells that are measured for each reading.
    pub(crate) fn scope(&self) -> Scope {
        let of = |from: u64, to: u64| {
            let sizes = self.block_frames.iter().map(|size| size.get());
            sizes.filter(|size| (from..=to).contains(size)).collect()
        };
        Scope {
            workloads: self.workloads.to_vec(),
            linear: self.category_i_block_frames.iter().map(|size| size.get()).collect(),
            small: of(2, 64),
            large: of(128, 256),
        }
    }
}
