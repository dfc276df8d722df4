//! What each allocation and each release costs against its size, on both systems (Fig. 5
//! and 6 of 004_0cb2f33903da1556.txt), and what accesses take.

use std::collections::{BTreeMap, BTreeSet};

use swath_region::{RegionHeapStatistics, TAG_PAGES_MAX};

use crate::host::count::CountError;
use crate::papers::page_buddy::allocation::host_name;
use crate::papers::real_time::plan::{RtPlan, StepSampling};
use crate::papers::real_time::run::{CountJob, Counts, Found, Step, words_max};
use crate::papers::real_time::system::{PAGES, SystemName};
use crate::papers::real_time::{real, run};
use crate::study::results::{Claim, Figure, FigureKind, HostResult, Series, StudyResult, Unit};
use crate::study::run::{Outcome, Run, StudyError};

const ALLOCATIONS: &str = "Fig. 5";
const RELEASES: &str = "Fig. 6";
const RELEASES_REGIONS: &str = "Fig. 6a";
const WORST: &str = "Worst case, memory accesses";
const ACCESS: &str = "Access time";
const ALLOCATIONS_COUNTED: &str = "Fig. 5, instructions";
const RELEASES_COUNTED: &str = "Fig. 6, instructions";
const RELEASES_REGIONS_COUNTED: &str = "Fig. 6a, instructions";
const WORST_COUNTED: &str = "Worst case, instructions";

/// Maxima in microseconds on the synthetic workload (Table I): allocation and release, with the
/// RTMMU and with the conventional MMU.
const PAPER_RT: [f64; 2] = [339.0, 945.0];
const PAPER_CONVENTIONAL: [f64; 2] = [237.0, 4_145_462.0];

const KIB: f64 = 1024.0;
/// Points of a scatter plot fall into so many columns and rows; of each cell one is drawn.
const COLUMNS: f64 = 400.0;
const ROWS: f64 = 200.0;

/// One point for each cell that has any, and each is one that was measured.
fn distinct(points: impl Iterator<Item = (f64, f64)> + Clone) -> Vec<(f64, f64)> {
    let most = |of: fn(&(f64, f64)) -> f64| points.clone().map(|p| of(&p)).fold(1.0, f64::max);
    let (x_max, y_max) = (most(|p| p.0), most(|p| p.1));
    let mut seen = BTreeSet::new();
    let cell = |(x, y): (f64, f64)| ((x / x_max * COLUMNS) as u32, (y / y_max * ROWS) as u32);
    points.filter(|&point| seen.insert(cell(point))).collect()
}

fn scatter(steps: &[Step]) -> Vec<(f64, f64)> {
    distinct(steps.iter().map(|step| (step.size_bytes as f64 / KIB, step.words as f64)))
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &RtPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let failed = |what: String| StudyError::Machine { study: about.study.clone(), what };
    let found = run.points(about, &SystemName::ALL, |&name| {
        let actions = plan.workload(run.quick).actions();
        run::run(name, plan.size, true, actions).map_err(|error| failed(error.to_string()))
    })?;
    let [regions, conventional] = &found[..] else {
        return Err(failed("two systems were to be measured".to_owned()));
    };
    let mut result = StudyResult {
        figures: figures(),
        notes: notes(plan, run.quick, regions, conventional),
        ..crate::study::run::result(about, plan, run, about.purpose.clone())
    };
    for (name, found) in SystemName::ALL.iter().zip(&found) {
        let name = name.name();
        for (figure, steps) in [(ALLOCATIONS, &found.allocations), (RELEASES, &found.releases)] {
            let series = Series::new(figure, "size_kib", "words", name, scatter(steps));
            result.series.push(series);
        }
        let walk = [&found.bare, &found.with_tlb].map(|stats| stats.cycles_max as f64);
        let mean = [&found.bare, &found.with_tlb]
            .map(|stats| stats.cycles as f64 / stats.accesses.max(1) as f64);
        let points = [
            ("mean without TLB", mean[0]),
            ("worst without TLB", walk[0]),
            ("mean with TLB", mean[1]),
            ("worst with TLB", walk[1]),
        ];
        result.series.push(Series::new(ACCESS, "access", "cycles", name, points));
    }
    let alone = scatter(&regions.releases);
    result.series.push(Series::new(RELEASES_REGIONS, "size_kib", "words", "regions", alone));
    result.series.extend(worst_words(regions, conventional));
    if plan.claims {
        result.claims = claims(regions, conventional);
    }

    let mut host = HostResult::new(&about.study, host_name(), Vec::new());
    let sampling = if run.quick { plan.sampling_quick } else { plan.sampling };
    if let Some(sampling) = sampling {
        count(plan, run, &sampling, &found, &mut host)?;
    }
    if let Some(real) = plan.real.as_ref().filter(|_| run.real.measure) {
        real::add(real, run.quick, &mut host).map_err(failed)?;
    }
    Ok(Outcome { result, host: Some(host) })
}

/// The operations of a table of worst cases, as its rows.
const OPERATIONS: [&str; 4] = ["allocation", "release", "page fault", "access"];

/// The most words that each of [`OPERATIONS`] touches on regions, from the table of
/// `swath_region::space` for 2^20 pages: finding the region of a page takes 18, mapping one 27,
/// splitting 16, a fault 21, unmapping 39. An allocation maps a region and cuts two pages for tags
/// below and above each (find, two splits, fault); a release finds and unmaps five regions.
const REGIONS_BOUNDS: [u64; 4] =
    [27 + TAG_PAGES_MAX * (18 + 2 * 16 + 21), REGIONS_MAX * (18 + 39), 21, 5];

/// The same of the page table, where a page is looked at, mapped or unmapped by at most three
/// words; a release may unmap all of them.
const TABLE_BOUNDS: [u64; 4] = [TAG_PAGES_MAX * (1 + 3), 3 * PAGES, 3, 1];

/// The most regions that a release ends.
const REGIONS_MAX: u64 = 5;

/// Instructions at most of a page fault on regions: what `bench` gates as `region-fault`.
const FAULT_INSTRUCTIONS: f64 = 420.0;

/// Bounds beside the longest of the run, in words.
fn worst_words(regions: &Found, conventional: &Found) -> [Series; 4] {
    let measured = |found: &Found| {
        let calls = [&found.allocations, &found.releases].map(|steps| words_max(steps));
        [calls[0], calls[1], found.fault_words_max, found.access_words_max]
    };
    let column = |name: &str, words: [u64; 4]| {
        let points = OPERATIONS.into_iter().zip(words.map(|words| words as f64));
        Series::new(WORST, "operation", "words", name, points)
    };
    [
        column(&format!("{BOUND}, regions"), REGIONS_BOUNDS),
        column("regions", measured(regions)),
        column(&format!("{BOUND}, conventional"), TABLE_BOUNDS),
        column("conventional", measured(conventional)),
    ]
}

const BOUND: &str = "bound";

fn figures() -> Vec<Figure> {
    let (x, y) = ("size (KiB)", "words touched");
    let plot = |id, title| Figure::new(id, title, FigureKind::Scatter, x, y);
    vec![
        plot(ALLOCATIONS, "words touched by each allocation").with_caption(
            "Bands as in the paper: lowest where nothing is mapped anew, above it where a region is \
             mapped, highest where a page is cut off for a tag and gets a frame. Points that fall \
             together are drawn once.",
        ),
        plot(RELEASES, "words touched by each release").with_caption(
            "The conventional system touches nothing, unless the footprint shrinks: then all of \
             its pages up to the last block left. Points of the regions lie on the axis; the next \
             figure has them alone.",
        ),
        plot(RELEASES_REGIONS, "words touched by each release, regions alone").with_caption(
            "Bands by how many regions end: the inside of the block, and up to two pages of tags \
             on either side.",
        ),
        Figure::new(WORST, "of each operation", FigureKind::Table, "operation", "words touched")
            .with_caption(
                "Bounds for 2^20 pages, for any alignment and history, beside the longest of the run.                  The page table's bound for a release is that of all its pages.",
            ),
        Figure::new(ACCESS, "of users' reads and writes", FigureKind::Bars, "", "cycles")
            .with_caption(
                "A page fault ends sooner and counts as an access of its own, so means are those of \
                 the workload. Simulated units; fast memories take 1 cycle, page table and data 2, as at the \
                 paper's double speed. TLB: 32 entries, fully associative, 1 cycle.",
            ),
    ]
}

fn notes(plan: &RtPlan, quick: bool, regions: &Found, conventional: &Found) -> Vec<String> {
    let workload = plan.workload(quick);
    let forget = |found: &Found| found.forget_cycles.1;
    vec![
        format!(
            "The workload: {} actions, {} allocations and {} releases; sizes from 1 byte to {} KiB, \
             all with the same chance, from seed {}. The paper gives the chances of the actions but \
             not the sizes: rt-footprint says how their bound was chosen. {} allocations found no \
             room.",
            workload.actions,
            regions.allocations.len(),
            regions.releases.len(),
            workload.size_bytes_max / 1024,
            workload.seed,
            regions.failures + conventional.failures,
        ),
        "Words are those of the structures that differ: arrays, headers, frame links and tree of \
         regions, or page table and frame links. A call of the tree counts as the most words that \
         it may touch. The heap's own tags and lists are the same in both systems and do not count \
         here; in instructions they do."
            .to_owned(),
        format!(
            "A release ended at most {} regions. To make the TLB forget what was released took at \
             most {} cycle with regions and {} with the page table.",
            regions.ended_max,
            forget(regions),
            forget(conventional),
        ),
    ]
}

fn claims(regions: &Found, conventional: &Found) -> Vec<Claim> {
    let ratio = |of: u64, to: u64| of as f64 / to.max(1) as f64;
    let paper = PAPER_CONVENTIONAL[1] / PAPER_RT[1];
    let measured = ratio(words_max(&conventional.releases), words_max(&regions.releases));
    let middle = regions.releases.iter().map(|step| step.size_bytes).max().unwrap_or(0) / 2;
    let (large, small): (Vec<Step>, Vec<Step>) =
        regions.releases.iter().partition(|step| step.size_bytes > middle);
    let cycles = |found: &Found| found.bare.cycles_max as f64;
    vec![
        Claim::at_least(
            "Table I, synthetic",
            "longest release, conventional / RTMMU (4,145,462 µs against 945); measured in words \
             touched",
            paper,
            measured,
            0.0,
        )
        .with_unit(Unit::Ratio)
        .with_cause(
            "In the paper a page of the loop takes 23 µs, a 41st of the longest bounded release; here \
             two or three words of about 200. And the heap shrinks by fewer pages at once than the \
             paper's footprint has.",
        ),
        Claim::within(
            "Section V-B, Fig. 6",
            "a strict upper limit whatever the size: longest release of the larger half of \
             sizes / of the smaller half, in words",
            1.0,
            ratio(words_max(&large), words_max(&small)),
            0.1,
        )
        .with_unit(Unit::Ratio),
        Claim::exactly(
            "Section IV-A2b, IV-B",
            "original access times are preserved with memories at double speed: longest access, \
             RTMMU / conventional, without TLB",
            1.0,
            cycles(regions) / cycles(conventional).max(1.0),
        )
        .with_unit(Unit::Ratio),
    ]
}

/// What allocations take by what they do to regions: where the price comes from.
fn price(name: &str, chosen: &[u64], steps: &[Step], counts: &[u64], fault: f64) -> String {
    let mut by_work: BTreeMap<[u64; 3], u64> = BTreeMap::new();
    for (&at, &count) in chosen.iter().zip(counts) {
        let RegionHeapStatistics { mapped, cuts, faults, .. } = steps[at as usize].operations;
        let most = by_work.entry([mapped, cuts, faults]).or_default();
        *most = count.max(*most);
    }
    let parts = by_work.iter().map(|([mapped, cuts, faults], most)| match (mapped, cuts, faults) {
        (0, 0, 0) => format!("{most} instructions without an operation on regions"),
        _ => format!("{most} with {mapped} region mapped, {cuts} cuts and {faults} pages for tags"),
    });
    let parts: Vec<String> = parts.collect();
    format!("{name} at most: {}; a page fault alone {fault}.", parts.join("; "))
}

/// The calls to step, ascending: spread over the run, and those that touch most words.
fn choose(steps: &[Step], sampling: &StepSampling) -> Vec<u64> {
    let count = steps.len() as u64;
    let allowed = |&at: &u64| steps[at as usize].words <= sampling.words_max;
    let spread = (0..sampling.calls.min(count)).map(|n| n * count / sampling.calls.min(count));
    let mut chosen: BTreeSet<u64> = spread.filter(allowed).collect();
    let mut longest: Vec<u64> = (0..count).filter(allowed).collect();
    longest.sort_by_key(|&at| std::cmp::Reverse(steps[at as usize].words));
    chosen.extend(longest.iter().take(sampling.longest() as usize));
    chosen.into_iter().collect()
}

/// Counts instructions of a sample in children, and adds figures and claims.
fn count(
    plan: &RtPlan,
    run: &Run<'_>,
    sampling: &StepSampling,
    found: &[Found],
    host: &mut HostResult,
) -> Result<(), StudyError> {
    let workload = plan.workload(run.quick);
    let jobs: Vec<CountJob> = SystemName::ALL
        .into_iter()
        .zip(found)
        .map(|(system, found)| CountJob {
            system,
            size: plan.size,
            actions: workload.actions,
            size_bytes_max: workload.size_bytes_max,
            seed: workload.seed,
            allocations: choose(&found.allocations, sampling),
            releases: choose(&found.releases, sampling),
            faults: sampling.calls,
        })
        .collect();
    let counted = run.points(&plan.about, &jobs, |job| match run::count(job) {
        Ok(counts) => Ok(Ok(counts)),
        // The rest of the study does not need the counts.
        Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => {
            Err(StudyError::Machine { study: plan.about.study.clone(), what: error.to_string() })
        }
    })?;
    let counted: Vec<Counts> = match counted.into_iter().collect() {
        Ok(counted) => counted,
        Err(why) => {
            host.notes.push(format!("Instructions were not measured: {why}."));
            return Ok(());
        }
    };
    let (x, y) = ("size (KiB)", "instructions");
    let plot = |id, title| Figure::new(id, title, FigureKind::Scatter, x, y);
    let caption = format!(
        "A sample: {} calls spread over the run, and {} that touch most words, up to {}.",
        sampling.calls,
        sampling.longest(),
        sampling.words_max
    );
    host.figures.extend([
        plot(ALLOCATIONS_COUNTED, "of allocations").with_caption(&caption),
        plot(RELEASES_COUNTED, "of releases").with_caption(&caption),
        plot(RELEASES_REGIONS_COUNTED, "of releases, regions alone").with_caption(&caption),
        Figure::new(WORST_COUNTED, "of each", FigureKind::Table, "operation", "instructions")
            .with_caption(
                "The heap's own instructions, in both systems alike, are in them. The longest of those \
                 counted, not adversarial ones; a bound is gated for the page fault alone.",
            ),
    ]);
    let bounds = [(OPERATIONS[2], FAULT_INSTRUCTIONS)];
    let name = format!("{BOUND}, regions");
    host.series.push(Series::new(WORST_COUNTED, "operation", "instructions", &name, bounds));
    let mut most = Vec::new();
    let mut priced = Vec::new();
    for ((job, counts), found) in jobs.iter().zip(&counted).zip(found) {
        let name = job.system.name();
        let points = |at: &[u64], steps: &[Step], counts: &[u64]| -> Vec<(f64, f64)> {
            let size = |&at: &u64| steps[at as usize].size_bytes as f64 / KIB;
            at.iter().map(size).zip(counts.iter().map(|&count| count as f64)).collect()
        };
        let allocations = points(&job.allocations, &found.allocations, &counts.allocations);
        let releases = points(&job.releases, &found.releases, &counts.releases);
        let series = |figure, points| Series::new(figure, "size_kib", "instructions", name, points);
        host.series.push(series(ALLOCATIONS_COUNTED, allocations));
        if job.system == SystemName::Regions {
            host.series.push(series(RELEASES_REGIONS_COUNTED, releases.clone()));
        }
        host.series.push(series(RELEASES_COUNTED, releases));
        let max = |counts: &[u64]| counts.iter().copied().max().unwrap_or(0) as f64;
        let worst = [&counts.allocations, &counts.releases, &counts.faults].map(|all| max(all));
        let [allocation, release, fault] = worst;
        let cells = OPERATIONS.into_iter().zip(worst);
        host.series.push(Series::new(WORST_COUNTED, "operation", "instructions", name, cells));
        priced.push(price(name, &job.allocations, &found.allocations, &counts.allocations, fault));
        host.notes.push(format!(
            "{name}: at most {allocation} instructions for an allocation and {release} for a \
             release, of {} and {} that were counted.",
            counts.allocations.len(),
            counts.releases.len(),
        ));
        most.push([allocation, release]);
    }
    if let ([regions, conventional], true) = (&most[..], plan.claims) {
        host.claims = vec![
            Claim::at_most(
                "Table I, synthetic",
                "small runtime penalty: longest allocation, RTMMU / conventional (339 µs against \
                 237); measured in instructions",
                PAPER_RT[0] / PAPER_CONVENTIONAL[0],
                regions[0] / conventional[0].max(1.0),
                0.0,
            )
            .with_unit(Unit::Ratio)
            .with_cause(&priced.join(" ")),
            Claim::at_least(
                "Table I, synthetic",
                "longest release, conventional / RTMMU (4,145,462 µs against 945); measured in \
                 instructions",
                PAPER_CONVENTIONAL[1] / PAPER_RT[1],
                conventional[1] / regions[1].max(1.0),
                0.0,
            )
            .with_unit(Unit::Ratio)
            .with_cause(&format!(
                "Releases that touch more than {} words were not stepped; the longest touches {}.",
                sampling.words_max,
                found.last().map_or(0, |found| words_max(&found.releases)),
            )),
        ];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::real_time::system::Size;
    use crate::papers::real_time::workload::Action;

    #[test]
    fn points_that_fall_together_are_drawn_once() {
        let points = [(1.0, 5.0), (1.01, 5.0), (400.0, 5.0), (400.0, 1000.0)];
        assert_eq!(distinct(points.into_iter()), [points[0], points[2], points[3]]);
        assert_eq!(distinct(std::iter::empty()), []);
    }

    /// Blocks whose borders fall on each granule of a page, released between neighbours that
    /// are free, and allocations in the middle of what is free then.
    fn adversarial() -> Vec<Action> {
        let mut actions = Vec::new();
        let allocate = |id, size_bytes: u64, align_bytes, to: &mut Vec<Action>| {
            to.push(Action::Allocate { id, size_bytes, align_bytes });
            for offset in [0, size_bytes / 2, size_bytes - 1] {
                to.push(Action::Access { id, offset, write: true });
            }
        };
        for granule in 1..=256_u64 {
            // Each of these stays and moves all borders by two granules; one is of three.
            allocate(10 + granule as u32, if granule == 128 { 40 } else { 8 }, 16, &mut actions);
            for id in 1..4 {
                allocate(id, (1 + granule % 3 * 40) * 4096 - 8, 16, &mut actions);
            }
            allocate(4, 8, 16, &mut actions);
            actions.extend([1, 3, 2].map(|id| Action::Free { id }));
            for (id, align_bytes) in [(1, 64), (2, 4096), (3, 16 * 4096)] {
                allocate(id, 4096 * (granule % 2) + 8, align_bytes, &mut actions);
            }
            actions.extend([2, 4, 1, 3].map(|id| Action::Free { id }));
        }
        actions
    }

    #[test]
    fn no_bound_is_passed() {
        let size = Size { pool_pages: 1024, frames: 2048 };
        let run = |system| run::run(system, size, true, adversarial().into_iter()).unwrap();
        let [regions, conventional] = SystemName::ALL.map(run);
        assert_eq!(regions.failures + conventional.failures, 0);
        assert!(regions.ended_max > 2 && regions.ended_max <= REGIONS_MAX);
        let [_, measured, _, other] = worst_words(&regions, &conventional);
        for (measured, bounds) in [(measured, REGIONS_BOUNDS), (other, TABLE_BOUNDS)] {
            for (point, bound) in measured.points.iter().zip(bounds) {
                assert!(point.y() <= bound as f64, "{point:?} of {bound}");
            }
        }
    }

    #[test]
    fn the_longest_are_chosen_up_to_a_bound() {
        let step = |words| Step {
            size_bytes: 1,
            words,
            pages: 0,
            operations: RegionHeapStatistics::default(),
        };
        let steps: Vec<Step> = (0..100).map(step).collect();
        let chosen = choose(&steps, &StepSampling { calls: 4, words_max: 90 });
        assert_eq!(chosen, [0, 25, 50, 75, 90]);
    }
}
