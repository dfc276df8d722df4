//! The plan of the studies on virtual memory with constant bounds.

use serde::{Deserialize, Serialize};

use crate::papers::real_time::system::{PAGES, Size};
use crate::papers::real_time::workload::Synthetic;
use crate::study::old::check::{Checked, require};
use crate::study::old::plan::About;

/// A heap over regions beside the same heap over a page table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's claims are judged.
    pub claims: bool,
    /// Pages of the heap's pool, frames of memory.
    pub size: Size,
    /// The synthetic workload.
    pub synthetic: SyntheticPlan,
    /// What is counted in instructions.
    pub sampling: Option<StepSampling>,
    /// The same in a quick run.
    pub sampling_quick: Option<StepSampling>,
    /// What is measured of the machine that runs the study.
    pub real: Option<RealReleases>,
}

fn one() -> u64 {
    1
}

/// The synthetic workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticPlan {
    /// How many actions.
    pub actions: u64,
    /// The same in a quick run.
    pub actions_quick: u64,
    /// The largest size; all up to it have the same chance.
    pub size_bytes_max: u64,
    /// How many seeds, from 1 on: what is said of the workload's most pages is the median
    /// over them.
    #[serde(default = "one")]
    pub seeds: u64,
    /// The same in a quick run.
    #[serde(default = "one")]
    pub seeds_quick: u64,
    /// Other largest sizes that the footprint is measured at, in a run that is not quick.
    #[serde(default)]
    pub size_bytes_sweep: Vec<u64>,
}

/// How many calls are stepped.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSampling {
    /// Allocations and releases each, spread over the run, a quarter as many of those that
    /// touch most words, and as many page faults.
    pub calls: u64,
    /// One that touches more words is left out.
    pub words_max: u64,
}

impl StepSampling {
    /// How many of the longest are stepped.
    pub fn longest(&self) -> u64 {
        self.calls.div_ceil(4)
    }
}

/// Releases on the machine that runs the study.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealReleases {
    /// Lengths in MiB, ascending.
    pub release_mib: Vec<u64>,
    /// The longest of them that a quick run measures.
    pub release_mib_quick: u64,
    /// Processes of each kind of memory.
    pub repeats: u32,
}

impl RtPlan {
    /// The synthetic workload of a run.
    pub fn workload(&self, quick: bool) -> Synthetic {
        let SyntheticPlan { actions, actions_quick, size_bytes_max, .. } = self.synthetic;
        let actions = if quick { actions_quick } else { actions };
        Synthetic { actions, size_bytes_max, seed: self.about.seed }
    }

    /// The seeds of a run.
    pub fn seeds(&self, quick: bool) -> std::ops::RangeInclusive<u64> {
        1..=if quick { self.synthetic.seeds_quick } else { self.synthetic.seeds }
    }

    pub(crate) fn check(&self) -> Checked {
        let Size { pool_pages, frames } = self.size;
        require((16..=PAGES).contains(&pool_pages), "size.pool_pages", || {
            format!("{pool_pages} is not between 16 and {PAGES}")
        })?;
        require((16..=1 << 24).contains(&frames), "size.frames", || {
            format!("{frames} is not between 16 and 2^24")
        })?;
        let SyntheticPlan { actions, actions_quick, size_bytes_max, .. } = self.synthetic;
        for (key, actions) in
            [("synthetic.actions", actions), ("synthetic.actions_quick", actions_quick)]
        {
            require((1000..=1 << 30).contains(&actions), key, || {
                format!("{actions} is not between 1000 and 2^30")
            })?;
        }
        let is_size = |bytes: &u64| (1..=1 << 30).contains(bytes);
        require(is_size(&size_bytes_max), "synthetic.size_bytes_max", || {
            format!("{size_bytes_max} is not between 1 and 2^30")
        })?;
        let sweep = &self.synthetic.size_bytes_sweep;
        let rises = sweep.is_sorted_by(|a, b| a < b);
        require(rises && sweep.iter().all(is_size), "synthetic.size_bytes_sweep", || {
            "not ascending numbers from 1 to 2^30".into()
        })?;
        let SyntheticPlan { seeds, seeds_quick, .. } = self.synthetic;
        for (key, seeds) in [("synthetic.seeds", seeds), ("synthetic.seeds_quick", seeds_quick)] {
            require((1..=100).contains(&seeds), key, || {
                format!("{seeds} is not between 1 and 100")
            })?;
        }
        for (table, sampling) in
            [("sampling", self.sampling), ("sampling_quick", self.sampling_quick)]
        {
            let Some(StepSampling { calls, .. }) = sampling else { continue };
            require((1..=100_000).contains(&calls), &format!("{table}.calls"), || {
                format!("{calls} is not between 1 and 100000")
            })?;
        }
        if let Some(real) = &self.real {
            let lengths = &real.release_mib;
            let fits = |mib: &u64| (1..=4096).contains(mib);
            require(!lengths.is_empty() && lengths.iter().all(fits), "real.release_mib", || {
                "not numbers from 1 to 4096".into()
            })?;
            require(lengths.is_sorted_by(|a, b| a < b), "real.release_mib", || {
                "not ascending".into()
            })?;
            require((1..=100).contains(&real.repeats), "real.repeats", || {
                format!("{} is not between 1 and 100", real.repeats)
            })?;
        }
        Ok(())
    }
}
