//! The cost of each allocation and each release against its size, on both systems (*Böhnert and
//! Scholl 2014*, Fig. 5 and 6), and the cost of accesses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::count::CountError;
use crate::host::memory::HostFacts;
use crate::papers::real_time::instructions::{Counted, Sampled, StepSampling};
use crate::papers::real_time::plan::{FITTED, SizePlan, SyntheticPlan};
use crate::papers::real_time::real::{RealReleases, Releases};
use crate::papers::real_time::run::{Counts, count, count_child, run as run_workload};
use crate::papers::real_time::system::SystemName;
use crate::papers::real_time::words;
use crate::papers::real_time::words::{SYSTEM, Scatter, numbers, ratio};
use crate::study::bounds::{Forms, Repeats};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, Missing, View, largest};
use crate::study::kind::{HostShown, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Allocations and releases of a heap on two systems.
pub struct Runtimes;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuntimesPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds of the workload.
    pub repeats: Forms<Repeats>,
    /// Pages of the heap's pool, frames of memory.
    pub size: SizePlan,
    /// The synthetic workload.
    pub synthetic: SyntheticPlan,
    /// The calls that are counted in instructions.
    pub sampling: Forms<StepSampling>,
    /// Measurements of the machine that runs the study, if it is to be measured.
    pub real: RealReleases,
}

crate::plan!(RuntimesPlan, check);

fn check(plan: &RuntimesPlan) -> Result<(), Refused> {
    plan.size.check()?;
    for (repeats, sampling) in
        [(plan.repeats.full, plan.sampling.full), (plan.repeats.quick, plan.sampling.quick)]
    {
        require(sampling.repeats <= repeats, "sampling", || {
            format!("{} seeds are stepped of {repeats}", sampling.repeats)
        })?;
    }
    Ok(())
}

/// The measurements.
pub struct RuntimesFound {
    /// Words and cycles by system.
    words: Grid,
    /// The first seed.
    first: Vec<(SystemName, Scatter)>,
    /// Instructions by system, or the reason why they were not counted.
    counted: Result<Counted, String>,
    /// This machine.
    real: Option<Releases>,
}

/// One run: its numbers, its sample of calls if they are to be stepped, and for the first seed
/// the points of its figures.
#[derive(Serialize, Deserialize)]
struct Ran {
    numbers: Metrics,
    sampled: Option<Sampled>,
    first: Option<Scatter>,
}

impl Study for Runtimes {
    const KIND: &'static str = "rt-runtimes";
    const USES: Uses = Uses { machine: true, ..Uses::NOTHING };
    type Plan = RuntimesPlan;
    type Found = RuntimesFound;

    fn seeds(plan: &RuntimesPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &RuntimesPlan, run: &Run<'_>) -> Needs {
        let actions = plan.synthetic.actions.of(run.quick).get();
        plan.size.needs(run.quick, actions).each("synthetic.actions", bytes(&[48, actions]))
    }

    fn measure(plan: &RuntimesPlan, run: &Run<'_>) -> Result<RuntimesFound, StudyError> {
        let failed = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
        let (seeds, sampling) = (Self::seeds(plan, run.quick), plan.sampling.of(run.quick));
        let jobs: Vec<(SystemName, u64)> = SystemName::ALL
            .iter()
            .flat_map(|&system| (0..seeds).map(move |r| (system, r)))
            .collect();
        let ran = run.points(&plan.about, &jobs, |&(system, repeat)| {
            let workload = plan.synthetic.workload(run.quick, plan.about.seed, repeat);
            let observed =
                run_workload(system, plan.size.size(run.quick), true, workload.actions());
            let observed = observed.map_err(|error| failed(error.to_string()))?;
            let sample =
                || Sampled::of(system, plan.size.size(run.quick), workload, &observed, sampling);
            let sampled = (repeat < sampling.repeats.get()).then(sample);
            let numbers = numbers(&observed);
            let first = (repeat == 0).then(|| Scatter::of(&observed));
            Ok(Ran { numbers, sampled, first })
        })?;
        let seeds = usize::try_from(seeds).unwrap_or(usize::MAX);
        let mut words = Grid::new(&[SYSTEM], seeds);
        for (system, runs) in SystemName::ALL.into_iter().zip(ran.chunks(seeds)) {
            let runs: Vec<Metrics> = runs.iter().map(|ran| ran.numbers.clone()).collect();
            words.add(vec![system.name().into()], &runs);
        }
        let (mut first, mut sampled) = (Vec::new(), Vec::new());
        for ((system, _), ran) in jobs.into_iter().zip(ran) {
            first.extend(ran.first.map(|found| (system, found)));
            sampled.extend(ran.sampled);
        }
        let counted = counted(plan, run, sampled)?;
        let measured: &[()] = if run.real.measure { &[()] } else { &[] };
        let measured = run.points_in_turn(&plan.about, measured, |()| {
            Releases::measure(&plan.real, run.quick).map_err(failed)
        })?;
        let real = measured.into_iter().next();
        Ok(RuntimesFound { words, first, counted, real })
    }

    fn claims(plan: &RuntimesPlan, run: &Run<'_>) -> Vec<Statement<RuntimesFound>> {
        let conditions = plan.synthetic.conditions(plan.size.conditions(run.quick), run.quick);
        claims(&conditions)
    }

    fn show(plan: &RuntimesPlan, run: &Run<'_>, found: &RuntimesFound) -> Shown {
        let mut host = HostShown { machine: HostFacts::here().describe(), ..HostShown::default() };
        match &found.counted {
            Ok(counted) => {
                host.figures.extend(counted.drawn(plan.sampling.of(run.quick)));
                host.notes.extend(counted.notes());
            }
            Err(why) => host.notes.push(format!("Instructions were not measured: {why}.")),
        }
        if let Some(real) = &found.real {
            host.figures.push(real.drawn());
            host.notes.extend(real.notes());
        }
        let mut figures = words::drawn(&found.words, &found.first);
        figures.extend(words::drawn_in_microseconds(&found.first));
        Shown {
            finding: String::new(),
            figures,
            notes: notes(plan, run.quick, &found.words),
            host: Some(host),
        }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        count_child(job)
    }
}

/// The instructions of all samples, or the reason why this machine does not count them.
fn counted(
    plan: &RuntimesPlan,
    run: &Run<'_>,
    sampled: Vec<Sampled>,
) -> Result<Result<Counted, String>, StudyError> {
    let counts = run.points(&plan.about, &sampled, |sampled| match count(&sampled.job) {
        Ok(counts) => Ok(Ok(counts)),
        // The rest of the study does not need the counts.
        Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => {
            Err(StudyError::Machine { study: plan.about.study.clone(), what: error.to_string() })
        }
    })?;
    let counts: Result<Vec<Counts>, String> = counts.into_iter().collect();
    let repeats = plan.sampling.of(run.quick).repeats.size();
    Ok(counts.map(|counts| Counted::of(sampled.into_iter().zip(counts).collect(), repeats)))
}

fn notes(plan: &RuntimesPlan, quick: bool, words: &Grid) -> Vec<String> {
    let max = |system: SystemName, metric: &'static str| {
        let select = |view: &View<'_>| view.select().is(SYSTEM, system.name()).one(metric);
        words.evidence(select).map_or(0.0, |found| found.estimate().value)
    };
    let all = |metric: &'static str| {
        let sum = |view: &View<'_>| Ok(view.select().numbers(metric)?.iter().sum());
        words.evidence(sum).map_or(0.0, |found| found.estimate().value)
    };
    let (regions, conventional) = (SystemName::Regions, SystemName::Conventional);
    vec![
        format!(
            "The workload: {} actions with each of {} seeds from {} on, in the mean {:.0} \
             allocations and {:.0} releases; sizes from 1 byte to {} KiB, all with the same chance. \
             The paper gives the chances of the actions but not the sizes: their bound is the power \
             of two with which, over runs of any course, the conventional footprint comes nearest to \
             the paper's. {:.1} allocations found no room.",
            plan.synthetic.actions.of(quick),
            plan.repeats.of(quick),
            plan.about.seed,
            max(regions, "allocations"),
            max(regions, "releases"),
            plan.synthetic.size_bytes_max.get() / 1024,
            all("failures"),
        ),
        "Words are those of the structures that differ: arrays, headers, frame links and tree of \
         regions, or page table and frame links. A call of the tree counts as the most words that \
         it may touch. The heap's own tags and lists are the same in both systems and do not count \
         here; in instructions they do."
            .to_owned(),
        format!(
            "A release ended at most {:.1} regions, in the mean over seeds. To make the TLB forget \
             what was released took at most {:.1} cycles with regions and {:.0} with the page table.",
            max(regions, "ended_max"),
            max(regions, "forget_cycles_max"),
            max(conventional, "forget_cycles_max"),
        ),
    ]
}

/// Maxima in microseconds on the synthetic workload (Table I): allocation and release, with the
/// RTMMU and with the conventional MMU.
pub(crate) const PAPER_RT: [f64; 2] = [339.0, 945.0];
pub(crate) const PAPER_CONVENTIONAL: [f64; 2] = [237.0, 4_145_462.0];

/// The statements of Table I's first row and of section V-B on times. Tolerances: ratios of Table I
/// are bounds without any, as the paper gives maxima to the microsecond; a limit "whatever the
/// size" has a tenth.
fn claims(conditions: &Conditions) -> Vec<Statement<RuntimesFound>> {
    let (regions, conventional) = (SystemName::Regions, SystemName::Conventional);
    let ratio_of = |statement: Statement<RuntimesFound>| statement.unit(Unit::Ratio);
    let place = "Table I, synthetic";
    let uncounted =
        |why: &String| Missing { axis: "metric".to_owned(), lacks: format!("instructions: {why}") };
    vec![
        ratio_of(Statement::at_least(
            place,
            "longest release, conventional / RTMMU (4,145,462 µs against 945); measured in words \
             touched",
            PAPER_CONVENTIONAL[1] / PAPER_RT[1],
            0.0,
        ))
        .cause(RELEASE_CAUSE)
        .fitted(FITTED)
        .under(conditions)
        .measured(move |found: &RuntimesFound| {
            found.words.evidence(|view| ratio(view, "release_words", conventional, regions))
        }),
        ratio_of(Statement::within(
            "Section V-B, Fig. 6",
            "a strict upper limit whatever the size: longest release of the larger half of \
             sizes / of the smaller half, in words",
            1.0,
            0.1,
        ))
        .under(conditions)
        .measured(move |found: &RuntimesFound| {
            found.words.evidence(|view| {
                let cell = view.select().is(SYSTEM, regions.name());
                let small = largest(&[cell.one("small_release_words")?, 1.0]);
                Ok(cell.one("large_release_words")? / small)
            })
        }),
        ratio_of(Statement::exactly(
            "Section IV-A2b, IV-B",
            "original access times are preserved with memories at double speed: longest access, \
             RTMMU / conventional, without TLB",
            1.0,
        ))
        .identity(
            "the unit's latencies are the paper's: two reads of the fast memory take as long as \
             one of the page table",
        )
        .under(conditions)
        .measured(move |found: &RuntimesFound| {
            found.words.evidence(|view| ratio(view, "access_cycles_max", regions, conventional))
        }),
        ratio_of(Statement::at_most(
            place,
            "small runtime penalty: longest allocation, RTMMU / conventional (339 µs against 237); \
             measured in instructions",
            PAPER_RT[0] / PAPER_CONVENTIONAL[0],
            0.0,
        ))
        .cause(ALLOCATION_CAUSE)
        .under(conditions)
        .on_host()
        .measured(move |found: &RuntimesFound| {
            let counted = found.counted.as_ref().map_err(uncounted)?;
            counted.grid.evidence(|view| ratio(view, "allocation", regions, conventional))
        }),
        ratio_of(Statement::at_least(
            place,
            "longest release, conventional / RTMMU (4,145,462 µs against 945); measured in \
             instructions",
            PAPER_CONVENTIONAL[1] / PAPER_RT[1],
            0.0,
        ))
        .cause(RELEASE_CAUSE)
        .fitted(FITTED)
        .under(conditions)
        .on_host()
        .measured(move |found: &RuntimesFound| {
            let counted = found.counted.as_ref().map_err(uncounted)?;
            counted.grid.evidence(|view| ratio(view, "release", conventional, regions))
        }),
    ]
}

const RELEASE_CAUSE: &str = "In the paper a page of the loop takes 23 µs, a 41st of the longest bounded release; here \
     two or three words of about 200. And the heap shrinks by fewer pages at once than the \
     paper's footprint has.";
const ALLOCATION_CAUSE: &str = "The notes give the instructions by the operations on regions: mapping a region and cutting \
     pages off for tags cost most.";
