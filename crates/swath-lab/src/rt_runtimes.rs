//! What each allocation and each release costs against its size, on both systems (Fig. 5
//! and 6 of 004_0cb2f33903da1556.txt), and what accesses take.

use std::collections::BTreeSet;

use crate::count::CountError;
use crate::pbs_allocation::host_name;
use crate::plan_rt::{RtPlan, StepSampling};
use crate::results::{Claim, Figure, FigureKind, HostResult, Series, StudyResult, Unit};
use crate::rt_real;
use crate::rt_run::{self, CountJob, Found, Step};
use crate::rt_system::SystemName;
use crate::study::{self, Outcome, Run, StudyError};

const ALLOCATIONS: &str = "Fig. 5";
const RELEASES: &str = "Fig. 6";
const RELEASES_REGIONS: &str = "Fig. 6a";
const WORST: &str = "Worst case, words";
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

fn worst(steps: &[Step]) -> u64 {
    steps.iter().map(|step| step.words).max().unwrap_or(0)
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
        rt_run::run(name, plan.size, actions).map_err(|error| failed(error.to_string()))
    })?;
    let [regions, conventional] = &found[..] else {
        return Err(failed("two systems were to be measured".to_owned()));
    };
    let mut result = StudyResult {
        figures: figures(),
        notes: notes(plan, run.quick, regions, conventional),
        ..study::result(about, plan, run, about.purpose.clone())
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

    let mut host = HostResult {
        study: about.study.clone(),
        host: host_name(),
        figures: Vec::new(),
        series: Vec::new(),
        claims: Vec::new(),
        notes: Vec::new(),
    };
    let sampling = if run.quick { plan.sampling_quick } else { plan.sampling };
    if let Some(sampling) = sampling {
        count(plan, run, &sampling, &found, &mut host)?;
    }
    if let Some(real) = plan.real.as_ref().filter(|_| run.real.measure) {
        rt_real::add(real, run.quick, &mut host).map_err(failed)?;
    }
    Ok(Outcome { result, host: Some(host) })
}

/// The worst case of each operation in words. In a release of the conventional system
/// it is that of this run: there is no other bound than the space.
fn worst_words(regions: &Found, conventional: &Found) -> [Series; 2] {
    let of = |name: &str, found: &Found, reads: f64| {
        let points = [
            ("allocation", worst(&found.allocations) as f64),
            ("release", worst(&found.releases) as f64),
            ("page fault", found.fault_words_max as f64),
            ("access", reads),
        ]
        .map(|(operation, words)| (operation, words.max(1.0).log10()));
        Series::new(WORST, "operation", "log10_words", name, points)
    };
    // The words that the units read at most: section IV-B.
    [of("regions", regions, 5.0), of("conventional", conventional, 1.0)]
}

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
        Figure::new(WORST, "of each operation", FigureKind::Bars, "operation", "log10 of words")
            .with_caption("The longest of the run. A step of 1 is a factor of 10."),
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
             all with the same chance. The paper gives the chances of the actions but not the \
             sizes; these are chosen so that the conventional system's footprint comes near the \
             paper's. {} allocations found no room.",
            workload.actions,
            regions.allocations.len(),
            regions.releases.len(),
            workload.size_bytes_max / 1024,
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
    let measured = ratio(worst(&conventional.releases), worst(&regions.releases));
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
            ratio(worst(&large), worst(&small)),
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

/// The calls to step, ascending: spread over the run, and those that touch most words.
fn choose(steps: &[Step], sampling: &StepSampling) -> Vec<u64> {
    let count = steps.len() as u64;
    let allowed = |&at: &u64| steps[at as usize].words <= sampling.words_max;
    let spread = (0..sampling.calls.min(count)).map(|n| n * count / sampling.calls.min(count));
    let mut chosen: BTreeSet<u64> = spread.filter(allowed).collect();
    let mut longest: Vec<u64> = (0..count).filter(allowed).collect();
    longest.sort_by_key(|&at| std::cmp::Reverse(steps[at as usize].words));
    chosen.extend(longest.iter().take(sampling.calls.div_ceil(4) as usize));
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
        })
        .collect();
    let counted = run.points(&plan.about, &jobs, |job| match rt_run::count(job) {
        Ok(counts) => Ok(Ok(counts)),
        // The rest of the study does not need the counts.
        Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => {
            Err(StudyError::Machine { study: plan.about.study.clone(), what: error.to_string() })
        }
    })?;
    let counted: Vec<[Vec<u64>; 2]> = match counted.into_iter().collect() {
        Ok(counted) => counted,
        Err(why) => {
            host.notes.push(format!("Instructions were not measured: {why}."));
            return Ok(());
        }
    };
    let (x, y) = ("size (KiB)", "instructions");
    let plot = |id, title| Figure::new(id, title, FigureKind::Scatter, x, y);
    let caption = format!(
        "A sample: {} calls spread over the run, and those that touch most words, up to {}.",
        sampling.calls, sampling.words_max
    );
    host.figures.extend([
        plot(ALLOCATIONS_COUNTED, "of allocations").with_caption(&caption),
        plot(RELEASES_COUNTED, "of releases").with_caption(&caption),
        plot(RELEASES_REGIONS_COUNTED, "of releases, regions alone").with_caption(&caption),
        Figure::new(
            WORST_COUNTED,
            "of those counted",
            FigureKind::Bars,
            "operation",
            "log10 of instructions",
        )
        .with_caption(
            "The heap's own instructions, in both systems alike, are in them. A step of 1 is a \
             factor of 10.",
        ),
    ]);
    let mut most = Vec::new();
    for ((job, counts), found) in jobs.iter().zip(&counted).zip(found) {
        let name = job.system.name();
        let points = |at: &[u64], steps: &[Step], counts: &[u64]| -> Vec<(f64, f64)> {
            let size = |&at: &u64| steps[at as usize].size_bytes as f64 / KIB;
            at.iter().map(size).zip(counts.iter().map(|&count| count as f64)).collect()
        };
        let allocations = points(&job.allocations, &found.allocations, &counts[0]);
        let releases = points(&job.releases, &found.releases, &counts[1]);
        let series = |figure, points| Series::new(figure, "size_kib", "instructions", name, points);
        host.series.push(series(ALLOCATIONS_COUNTED, allocations));
        if job.system == SystemName::Regions {
            host.series.push(series(RELEASES_REGIONS_COUNTED, releases.clone()));
        }
        host.series.push(series(RELEASES_COUNTED, releases));
        let max = |counts: &[u64]| counts.iter().copied().max().unwrap_or(0) as f64;
        let (allocation, release) = (max(&counts[0]), max(&counts[1]));
        let bars = [("allocation", allocation), ("release", release)]
            .map(|(operation, count)| (operation, count.max(1.0).log10()));
        let y = "log10_instructions";
        host.series.push(Series::new(WORST_COUNTED, "operation", y, name, bars));
        host.notes.push(format!(
            "{name}: at most {allocation} instructions for an allocation and {release} for a \
             release, of {} and {} that were counted.",
            counts[0].len(),
            counts[1].len(),
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
            .with_cause(
                "A page fault's way into the system and back is in the paper's times, in both \
                 alike, and not in instructions of the handler.",
            ),
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
                found.last().map_or(0, |found| worst(&found.releases)),
            )),
        ];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_fall_together_are_drawn_once() {
        let points = [(1.0, 5.0), (1.01, 5.0), (400.0, 5.0), (400.0, 1000.0)];
        assert_eq!(distinct(points.into_iter()), [points[0], points[2], points[3]]);
        assert_eq!(distinct(std::iter::empty()), []);
    }

    #[test]
    fn the_longest_are_chosen_up_to_a_bound() {
        let step = |words| Step { size_bytes: 1, words, pages: 0 };
        let steps: Vec<Step> = (0..100).map(step).collect();
        let chosen = choose(&steps, &StepSampling { calls: 4, words_max: 90 });
        assert_eq!(chosen, [0, 25, 50, 75, 90]);
    }
}
