//! The instructions of a sample of allocations, releases and page faults, counted in children.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_region::RegionHeapStatistics;

use crate::papers::real_time::run::{CountJob, Counts, Observed, Step, words_max};
use crate::papers::real_time::system::Size;
use crate::papers::real_time::system::SystemName;
use crate::papers::real_time::words::{BOUND, KIB, OPERATIONS, SYSTEM};
use crate::papers::real_time::workload::Synthetic;
use crate::study::bounds::{Bounded, Repeats};
use crate::study::grid::{Grid, Metrics, View, metrics};
use crate::study::kind::Drawn;
use crate::study::results::{Figure, FigureKind, Series};

const ALLOCATIONS: &str = "Fig. 5, instructions";
const RELEASES: &str = "Fig. 6, instructions";
const RELEASES_REGIONS: &str = "Fig. 6a, instructions";
const WORST: &str = "Worst case, instructions";

/// Instructions at most of a page fault on regions: what `bench` gates as `region-fault`.
const FAULT_INSTRUCTIONS: f64 = 420.0;

/// The sample of calls that are stepped.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSampling {
    /// Number of allocations and of releases, spread over the run, of a quarter as many of those
    /// that touch most words, and of page faults.
    pub calls: Bounded<1, 100_000>,
    /// One that touches more words is left out.
    pub words_max: Bounded<1, { 1 << 40 }>,
    /// Number of seeds whose workload is stepped.
    pub repeats: Repeats,
}

impl StepSampling {
    /// Number of the longest that are stepped.
    const fn longest(&self) -> u64 {
        self.calls.get().div_ceil(4)
    }
}

/// A job of a child, with what its counts are of.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sampled {
    pub(crate) job: CountJob,
    allocations: Vec<Step>,
    releases: Vec<Step>,
    /// True if no longer release was left out.
    has_longest: bool,
}

/// The counts of all systems and seeds.
pub(crate) struct Counted {
    /// Metrics of the longest calls by [`SYSTEM`].
    pub(crate) grid: Grid,
    /// Samples of the first seed with their counts.
    first: Vec<(Sampled, Counts)>,
}

/// The calls to step, ascending: spread over the run, and those that touch most words.
fn choose(steps: &[Step], sampling: &StepSampling) -> Vec<u64> {
    let count = steps.len() as u64;
    let calls = sampling.calls.get().min(count);
    let allowed = |&at: &u64| steps[at as usize].words <= sampling.words_max.get();
    let spread = (0..calls).map(|n| n * count / calls);
    let mut chosen: BTreeSet<u64> = spread.filter(allowed).collect();
    let mut longest: Vec<u64> = (0..count).filter(allowed).collect();
    longest.sort_by_key(|&at| std::cmp::Reverse(steps[at as usize].words));
    chosen.extend(longest.iter().take(sampling.longest() as usize));
    chosen.into_iter().collect()
}

impl Sampled {
    /// The sample of a run.
    pub(crate) fn of(
        system: SystemName,
        size: Size,
        workload: Synthetic,
        observed: &Observed,
        sampling: &StepSampling,
    ) -> Self {
        let Synthetic { actions, size_bytes_max, seed, repeat } = workload;
        let allocations = choose(&observed.allocations, sampling);
        let releases = choose(&observed.releases, sampling);
        let steps = |all: &[Step], chosen: &[u64]| -> Vec<Step> {
            chosen.iter().map(|&at| all[at as usize]).collect()
        };
        Self {
            allocations: steps(&observed.allocations, &allocations),
            releases: steps(&observed.releases, &releases),
            has_longest: words_max(&observed.releases) <= sampling.words_max.get(),
            job: CountJob {
                system,
                size,
                actions,
                size_bytes_max,
                seed,
                repeat,
                allocations,
                releases,
                faults: sampling.calls.get(),
            },
        }
    }

    /// The longest of each operation. The longest release is none where longer ones were left
    /// out: `release_counted` is the longest of those counted.
    fn numbers(&self, counts: &Counts) -> Metrics {
        let max = |counts: &[u64]| counts.iter().copied().max().unwrap_or(0) as f64;
        let mut numbers = metrics([
            ("allocation", max(&counts.allocations)),
            ("release_counted", max(&counts.releases)),
            ("fault", max(&counts.faults)),
        ]);
        if self.has_longest {
            numbers.extend(metrics([("release", max(&counts.releases))]));
        }
        numbers
    }
}

impl Counted {
    /// Gathers samples and their counts, each system's seeds together.
    pub(crate) fn of(sampled: Vec<(Sampled, Counts)>, repeats: usize) -> Self {
        let mut grid = Grid::new(&[SYSTEM], repeats);
        for runs in sampled.chunks(repeats.max(1)) {
            let Some((first, _)) = runs.first() else { continue };
            let numbers: Vec<Metrics> =
                runs.iter().map(|(sampled, counts)| sampled.numbers(counts)).collect();
            grid.add(vec![first.job.system.name().into()], &numbers);
        }
        let first = sampled.into_iter().step_by(repeats.max(1)).collect();
        Self { grid, first }
    }

    /// The figures.
    pub(crate) fn drawn(&self, sampling: &StepSampling) -> Vec<Drawn> {
        let plot = |id, title| {
            let caption = format!(
                "A sample of the first seed: {} calls spread over the run, and {} that touch most \
                 words, up to {}.",
                sampling.calls,
                sampling.longest(),
                sampling.words_max
            );
            Figure::new(id, title, FigureKind::Scatter, "size (KiB)", "instructions")
                .with_caption(&caption)
        };
        let lines = |id, releases: bool, regions_alone: bool| -> Vec<Series> {
            let kept = |system| !regions_alone || system == SystemName::Regions;
            let first = self.first.iter().filter(|(sampled, _)| kept(sampled.job.system));
            let line = |(sampled, counts): &(Sampled, Counts)| {
                let (steps, counts) = if releases {
                    (&sampled.releases, &counts.releases)
                } else {
                    (&sampled.allocations, &counts.allocations)
                };
                let sizes = steps.iter().map(|step| step.size_bytes as f64 / KIB);
                let points = sizes.zip(counts.iter().map(|&count| count as f64));
                Series::new(id, "size_kib", "instructions", sampled.job.system.name(), points)
            };
            first.map(line).collect()
        };
        let drawn = |id, title, releases, alone| Drawn {
            figure: plot(id, title),
            series: lines(id, releases, alone),
        };
        vec![
            drawn(ALLOCATIONS, "of allocations", false, false),
            drawn(RELEASES, "of releases", true, false),
            drawn(RELEASES_REGIONS, "of releases, regions alone", true, true),
            self.worst(),
        ]
    }

    /// The table of the longest.
    fn worst(&self) -> Drawn {
        let figure =
            Figure::new(WORST, "of each", FigureKind::Table, "operation", "instructions")
                .with_caption(
                    "The heap's own instructions, in both systems alike, are in them. The longest \
                     of those counted, means over seeds, not adversarial ones; a bound is gated for \
                     the page fault alone.",
                );
        let bounds = [(OPERATIONS[2].0, FAULT_INSTRUCTIONS)];
        let name = format!("{BOUND}, {}", SystemName::Regions.name());
        let mut series = vec![Series::new(WORST, "operation", "instructions", &name, bounds)];
        series.extend(SystemName::ALL.map(|system| {
            let metrics = ["allocation", "release_counted", "fault"];
            let points = OPERATIONS.into_iter().zip(metrics).filter_map(|((row, _), metric)| {
                let select = |view: &View<'_>| view.select().is(SYSTEM, system.name()).one(metric);
                Some(self.grid.evidence(select).ok()?.point(row))
            });
            Series::new(WORST, "operation", "instructions", system.name(), points)
        }));
        Drawn { figure, series }
    }

    /// The cost of allocations, in words.
    pub(crate) fn notes(&self) -> Vec<String> {
        let notes = self.first.iter().map(|(sampled, counts)| {
            let fault = counts.faults.iter().copied().max().unwrap_or(0);
            price(sampled.job.system.name(), &sampled.allocations, &counts.allocations, fault)
        });
        notes.collect()
    }
}

/// Says the cost of allocations by their operations on regions.
fn price(name: &str, steps: &[Step], counts: &[u64], fault: u64) -> String {
    let mut by_work: BTreeMap<[u64; 3], u64> = BTreeMap::new();
    for (step, &count) in steps.iter().zip(counts) {
        let RegionHeapStatistics { mapped, cuts, faults, .. } = step.operations;
        let most = by_work.entry([mapped, cuts, faults]).or_default();
        *most = count.max(*most);
    }
    let parts = by_work.iter().map(|([mapped, cuts, faults], most)| match (mapped, cuts, faults) {
        (0, 0, 0) => format!("{most} instructions without an operation on regions"),
        _ => format!("{most} with {mapped} region mapped, {cuts} cuts and {faults} pages for tags"),
    });
    let parts: Vec<String> = parts.collect();
    format!(
        "{name}, first seed, an allocation at most: {}; a page fault alone {fault}.",
        parts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_chosen_up_to_a_bound() {
        let step = |words| Step {
            size_bytes: 1,
            words,
            pages: 0,
            operations: RegionHeapStatistics::default(),
        };
        let steps: Vec<Step> = (0..100).map(step).collect();
        let sampling: StepSampling =
            toml::from_str("calls = 4\nwords_max = 90\nrepeats = 1").unwrap();
        let chosen = choose(&steps, &sampling);
        assert_eq!(chosen, [0, 25, 50, 75, 90]);
    }
}
