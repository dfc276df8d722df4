//! Data structures under YCSB's workloads on threads: `cmt_malloc` beside `malloc` (Zhang, Lu and
//! Zhang, section 5.3, Fig. 8).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::machine::host_name;
use crate::papers::clmalloc::load::{Part, Structure, parts};
use crate::papers::clmalloc::peers;
use crate::papers::clmalloc::peers::{
    ALLOCATOR, Allocator, HeapsPlan, OURS, PeerPlan, Program, against_best,
};
#[cfg(target_os = "linux")]
use crate::papers::clmalloc::records;
use crate::papers::clmalloc::rounds::{
    Times, oversubscribed, seed, side_by_side, threads_remark, threads_title,
};
use crate::papers::clmalloc::ycsb::Workload;
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms, Repeats};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, Missing, View, mean, metrics};
use crate::study::kind::{Drawn, HostShown, Shown, Study};
use crate::study::needs::{Needs, THREAD_RESERVED_BYTES, bytes};
use crate::study::plan::{Head, Refused};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Frequent requests of programs.
pub struct Structures;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StructuresPlan {
    /// Name, title, seed.
    pub about: Head,
    /// The data structures.
    pub structures: Distinct<Structure>,
    /// The workloads.
    pub workloads: Distinct<Workload>,
    /// Numbers of threads.
    pub threads: Forms<Ascending<Bounded<1, 64>>>,
    /// Number of records of all threads together, and of operations.
    pub records: Forms<Bounded<640, 1_000_000>>,
    /// Number of rounds that measure each point, each with other random keys.
    pub repeats: Forms<Repeats>,
    /// Allocators beside which the first workload is measured, too, if they are installed.
    pub peers: Vec<PeerPlan>,
    /// Other parameters of the heaps with which it is measured.
    pub heaps: Vec<HeapsPlan>,
}

crate::plan!(StructuresPlan, check);

fn check(plan: &StructuresPlan) -> Result<(), Refused> {
    peers::check("peers", plan.peers.iter().map(|peer| peer.name.as_str()), 8)?;
    peers::check("heaps", plan.heaps.iter().map(|heaps| heaps.name.as_str()), 8)
}

/// The measurements.
pub struct StructuresFound {
    /// By structure and workload; a matter of the seed alone.
    requests: Grid,
    /// By structure, threads and workload; each round is a repeat.
    times: Grid,
    /// By structure, threads and allocator, for the first workload; each round is a repeat.
    beside: Grid,
    /// The allocators of these, and those that are not installed, in words.
    others: Vec<Allocator>,
    lacking: Vec<String>,
}

const STRUCTURE: &str = "structure";
const WORKLOAD: &str = "workload";
const THREADS: &str = "threads";

const FIGURE: &str = "Fig. 8";
const REQUESTS: &str = "Allocations";
/// Bytes of a record in the largest structure, with its operation.
const RECORD_BYTES: u64 = 4096;

const PEAK: &str = "Memory";

impl Study for Structures {
    const KIND: &'static str = "cl-structures";
    type Plan = StructuresPlan;
    type Found = StructuresFound;

    fn seeds(plan: &StructuresPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &StructuresPlan, run: &Run<'_>) -> Needs {
        let records = plan.records.of(run.quick).get();
        // Those of a child, which has the limit of this process.
        let threads = plan.threads.of(run.quick).iter().map(|threads| threads.get()).max();
        Needs::small()
            .once("records", bytes(&[RECORD_BYTES, 2, records]))
            .each("records", bytes(&[RECORD_BYTES, records]))
            .reserved("threads", bytes(&[THREAD_RESERVED_BYTES, threads.unwrap_or(1)]))
    }

    fn measure(plan: &StructuresPlan, run: &Run<'_>) -> Result<StructuresFound, StudyError> {
        let records = plan.records.of(run.quick).get();
        let points: Vec<(Structure, Workload)> = plan
            .structures
            .iter()
            .flat_map(|&structure| {
                plan.workloads.iter().map(move |&workload| (structure, workload))
            })
            .collect();
        let requests = run.grid(
            &plan.about,
            &[STRUCTURE, WORKLOAD],
            Self::seeds(plan, run.quick),
            &points,
            |(structure, workload)| vec![structure.name().into(), workload.name().into()],
            |&(structure, workload), repeat| {
                let parts =
                    parts(workload, records, 1, |thread| seed(plan.about.seed, repeat, thread));
                requests(structure, &parts, records).map_err(|what| failed(plan, what))
            },
        )?;
        let times = measure_times(plan, run)?;
        let (mut others, mut lacking) = Allocator::found(&plan.peers);
        others.extend(plan.heaps.iter().map(Allocator::with_heaps));
        let beside = measure_beside(plan, run, &others, &mut lacking)?;
        Ok(StructuresFound { requests, times, beside, others, lacking })
    }

    fn claims(plan: &StructuresPlan, run: &Run<'_>) -> Vec<Statement<StructuresFound>> {
        let records = plan.records.of(run.quick).get();
        claims(&Conditions::new().same("records", 100_000, records))
    }

    fn show(plan: &StructuresPlan, run: &Run<'_>, found: &StructuresFound) -> Shown {
        let structures = || plan.structures.iter();
        let mut figures: Vec<Drawn> =
            structures().map(|&structure| ratio_figure(plan, run, found, structure)).collect();
        figures.extend(structures().map(|&structure| time_figure(plan, run, found, structure)));
        if !found.beside.is_empty() {
            figures.extend(beside_figures(plan, run, found));
        }
        let host = HostShown { machine: host_name(), figures, notes: found.lacking.clone() };
        Shown {
            finding: String::new(),
            figures: request_figures(plan, run, found),
            notes: notes(plan, run),
            host: Some(host),
        }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        peers::child(job)
    }
}

/// `cmt_malloc`, the others, and `cmt_malloc` with other parameters, on the first workload.
fn measure_beside(
    plan: &StructuresPlan,
    run: &Run<'_>,
    others: &[Allocator],
    lacking: &mut Vec<String>,
) -> Result<Grid, StudyError> {
    let records = plan.records.of(run.quick).get();
    let mut points = Vec::new();
    for &structure in plan.structures.iter() {
        for threads in peers::side_by_side(threads(plan, run)) {
            points.extend(plan.workloads.iter().take(1).map(|&workload| {
                let program = Program::Structure { structure, workload, records };
                (vec![structure.name().into(), threads.into()], program, threads)
            }));
        }
    }
    let allocators: Vec<Allocator> =
        [Allocator::ours()].into_iter().chain(others.to_vec()).collect();
    let (repeats, axes) = (Structures::seeds(plan, run.quick), [STRUCTURE, THREADS]);
    peers::measure(
        Structures::KIND,
        &plan.about,
        run,
        repeats,
        (&axes, &points),
        &allocators,
        lacking,
    )
}

/// For each structure and number of threads the time of `cmt_malloc` as a ratio to each other allocator's
/// and to the best one's, and with other parameters to that with its own.
fn beside_figures(plan: &StructuresPlan, run: &Run<'_>, found: &StructuresFound) -> Vec<Drawn> {
    let workload = plan.workloads.iter().next().map_or("", |workload| workload.name());
    let title = format!("workload {workload}, {} records", plan.records.of(run.quick));
    let places: Vec<(Structure, u64)> = plan
        .structures
        .iter()
        .flat_map(|&structure| {
            peers::side_by_side(threads(plan, run)).map(move |threads| (structure, threads))
        })
        .collect();
    let log = |view: &View<'_>, name: &str, (structure, threads): (Structure, u64)| {
        let cell = view.select().is(STRUCTURE, structure.name()).is(THREADS, threads);
        cell.is(ALLOCATOR, name).numbers("log_ns")
    };
    type Ratio<'r> = &'r dyn Fn(&View<'_>, (Structure, u64)) -> Result<f64, Missing>;
    let series = |id: &str, name: &str, ratio: Ratio<'_>| {
        let points = places.iter().filter_map(|&place| {
            let ratio = found.beside.evidence(|view| ratio(view, place)).ok()?;
            let at = format!("{}, {}", place.0.name(), threads_title(place.1));
            Some(ratio.point(at.as_str()))
        });
        Series::new(id, "structure", "time_ratio", name, points)
    };
    let against = |id: &str, name: &str, others: &[Allocator]| {
        series(id, name, &|view, place| {
            against_best(view, OURS, others, |view, name| log(view, name, place))
        })
    };
    let (theirs, ours): (Vec<Allocator>, Vec<Allocator>) =
        found.others.iter().cloned().partition(|other| !other.is_ours());
    let id = format!("{FIGURE}, other allocators");
    let figure = Figure::new(&id, &title, FigureKind::Bars, "", "time (CLMalloc / other)");
    let figure = figure.with_caption(
        "Each allocator is preloaded into a process of its own, where it has run the same operations \
         once before. Below 1 cmt_malloc is faster.",
    );
    let each = theirs.iter().map(|other| against(&id, &other.name, std::slice::from_ref(other)));
    let best = (theirs.len() > 1).then(|| against(&id, "the best of them", &theirs));
    let mut figures = vec![Drawn { figure, series: each.chain(best).collect() }];
    if !ours.is_empty() {
        let id = "Heap parameters";
        let figure = Figure::new(id, &title, FigureKind::Bars, "", "time (with them / by default)");
        let figure = figure.with_caption(
            "Of cmt_malloc: the threshold f from which a superblock may go to other heaps, K, the number \
             of such superblocks that a heap keeps all the same, and P heaps, beyond which threads share \
             one. Each in processes of its own.",
        );
        let one = |other: &Allocator| {
            series(id, &other.name, &|view, place| {
                let of = |name: &str| Ok::<_, Missing>(mean(&log(view, name, place)?));
                Ok((of(&other.name)? - of(OURS)?).exp())
            })
        };
        figures.push(Drawn { figure, series: ours.iter().map(one).collect() });
    }
    figures
}

fn failed(plan: &StructuresPlan, what: String) -> StudyError {
    StudyError::Machine { study: plan.about.study.clone(), what }
}

/// The requests of a structure on one thread to its allocator, for each record.
#[cfg(target_os = "linux")]
fn requests(structure: Structure, parts: &[Part], records: u64) -> Result<Metrics, String> {
    let [part] = parts else { return Err("one thread has one part".to_owned()) };
    let (counts, _) = records::count(structure, part);
    let per = |count: u64| count as f64 / records as f64;
    Ok(metrics([
        ("allocations_per_record", per(counts.allocations)),
        ("bytes_per_record", per(counts.live_bytes_max)),
    ]))
}

#[cfg(target_os = "linux")]
fn times(structure: Structure, parts: &[Part], round: u64) -> Result<Times, String> {
    records::times(structure, parts, round).map(|(times, _)| times)
}

#[cfg(not(target_os = "linux"))]
fn requests(_: Structure, _: &[Part], _: u64) -> Result<Metrics, String> {
    Err(crate::papers::clmalloc::rounds::ELSEWHERE.to_owned())
}

#[cfg(not(target_os = "linux"))]
fn times(_: Structure, _: &[Part], _: u64) -> Result<Times, String> {
    Err(crate::papers::clmalloc::rounds::ELSEWHERE.to_owned())
}

/// Every point in each round, one after the other, so that none disturbs another.
fn measure_times(plan: &StructuresPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
    let mut points = Vec::new();
    for &structure in plan.structures.iter() {
        for threads in plan.threads.of(run.quick) {
            points.extend(plan.workloads.iter().map(|&one| (structure, threads.get(), one)));
        }
    }
    let repeats = Structures::seeds(plan, run.quick);
    let mut warm = false;
    let rounds = run.rounds(&plan.about, repeats, &points, |&point, repeat| {
        for &point in points.iter().filter(|_| !warm) {
            // So that no round pays for memory that the pool never had.
            round(plan, run, point, 0)?;
        }
        warm = true;
        round(plan, run, point, repeat)
    })?;
    let repeats = usize::try_from(repeats).unwrap_or(usize::MAX);
    let mut grid = Grid::new(&[STRUCTURE, THREADS, WORKLOAD], repeats);
    for (&(structure, threads, workload), runs) in points.iter().zip(&rounds) {
        let at = vec![structure.name().into(), threads.into(), workload.name().into()];
        grid.add(at, runs);
    }
    Ok(grid)
}

fn round(
    plan: &StructuresPlan,
    run: &Run<'_>,
    (structure, threads, workload): (Structure, u64, Workload),
    repeat: u64,
) -> Result<Metrics, StudyError> {
    let records = plan.records.of(run.quick).get();
    let parts = parts(workload, records, threads, |thread| seed(plan.about.seed, repeat, thread));
    let found = times(structure, &parts, repeat);
    let found = found.map_err(|what| {
        failed(plan, format!("{}, {}: {what}", structure.name(), workload.name()))
    })?;
    Ok(found.metrics(records as f64))
}

fn request_figures(plan: &StructuresPlan, run: &Run<'_>, found: &StructuresFound) -> Vec<Drawn> {
    let records = plan.records.of(run.quick);
    let of = format!("{records} records, as many operations, one thread");
    let bars = FigureKind::Bars;
    let drawn = |figure: Figure, metric: &str| {
        let series = |structure: &Structure| {
            let points = found.requests.points(
                WORKLOAD,
                |all| all.is(STRUCTURE, structure.name()),
                |cell| cell.get(metric),
            );
            Series::new(&figure.id, "workload", metric, structure.name(), points)
        };
        let series = plan.structures.iter().map(series).collect();
        Drawn { figure, series }
    };
    vec![
        drawn(
            Figure::new(REQUESTS, &of, bars, "workload", "allocations for each record loaded")
                .with_caption("A record is ten blocks of 100 bytes, and an update replaces one."),
            "allocations_per_record",
        ),
        drawn(
            Figure::new(
                PEAK,
                "most bytes in use, as requested",
                bars,
                "workload",
                "bytes for each record",
            ),
            "bytes_per_record",
        ),
    ]
}

fn threads(plan: &StructuresPlan, run: &Run<'_>) -> impl Iterator<Item = u64> {
    plan.threads.of(run.quick).iter().map(|threads| threads.get())
}

fn ratio_figure(
    plan: &StructuresPlan,
    run: &Run<'_>,
    found: &StructuresFound,
    structure: Structure,
) -> Drawn {
    let caption = format!(
        "{} records and as many operations, divided among the threads. Below 1 cmt_malloc is \
         faster. Geometric means of rounds, in each of which both take their turn. {}",
        plan.records.of(run.quick),
        oversubscribed(threads(plan, run)),
    );
    let id = format!("{FIGURE}, {}", structure.name());
    let (bars, y) = (FigureKind::Bars, "time (CLMalloc / malloc)");
    let figure = Figure::new(&id, "YCSB's workloads", bars, "workload", y);
    let series = |threads: u64| {
        let points = found.times.points(
            WORKLOAD,
            |all| all.is(STRUCTURE, structure.name()).is(THREADS, threads),
            |cell| Ok(cell.get("log_ratio")?.exp()),
        );
        Series::new(&id, "workload", "time_ratio", &threads_remark(threads), points)
    };
    let series = threads(plan, run).map(series).collect();
    Drawn { figure: figure.with_caption(caption.trim_end()), series }
}

fn time_figure(
    plan: &StructuresPlan,
    run: &Run<'_>,
    found: &StructuresFound,
    structure: Structure,
) -> Drawn {
    let id = format!("{FIGURE}, {}, time", structure.name());
    let (title, y) = ("geometric mean over YCSB's workloads", "µs for each record");
    let figure = Figure::new(&id, title, FigureKind::LinesLog2, "threads", y);
    let figure = figure.with_caption(&oversubscribed(threads(plan, run)));
    let series = [("malloc", "malloc_us"), ("CLMalloc", "cmt_us")].map(|(name, metric)| {
        let points = threads(plan, run).filter_map(|threads| {
            let time = found.times.evidence(|view| {
                let cells = view.select().is(STRUCTURE, structure.name()).is(THREADS, threads);
                Ok(mean(&cells.each(|cell| Ok(cell.get(metric)?.ln()))?).exp())
            });
            Some(time.ok()?.point(threads))
        });
        Series::new(&id, "threads", "us_per_record", name, points)
    });
    Drawn { figure, series: series.into() }
}

fn notes(plan: &StructuresPlan, run: &Run<'_>) -> Vec<String> {
    vec![
        "A run loads the records, makes the operations and drops all; its time is from the first \
         thread's start to the last one's end. Each thread has a structure of its own, so that \
         threads meet in the allocator only. Operations are drawn before."
            .to_owned(),
        "Keys by YCSB's scrambled zipfian generator, in D by its latest one; scans of 1 to 100 \
         records. The maps have no order: a scan reads the records inserted next. A priority queue \
         finds its first record only: that is read; an update takes it out, and puts it back with \
         another key; a scan takes out as many, and puts them back."
            .to_owned(),
        format!(
            "The same code for both allocators, which differ in a type parameter. The words read \
             are summed, and the sums have to be the same. {} rounds, each with other keys, after \
             one that does not count.",
            Structures::seeds(plan, run.quick),
        ),
    ]
}

/// The statement on Fig. 8, for each structure and number of threads, over all of YCSB's
/// workloads: the paper does not say which. "Outperforms" has no tolerance.
fn claims(conditions: &Conditions) -> Vec<Statement<StructuresFound>> {
    let mut claims = Vec::new();
    for structure in Structure::ALL {
        for threads in [1_u64, 2, 4, 8] {
            let says = format!(
                "CLMalloc outperforms malloc and free, {}, {}: time, mean over the workloads",
                structure.name(),
                threads_title(threads),
            );
            let statement = Statement::at_most("Section 5.3, Fig. 8", &says, 1.0, 0.0)
                .unit(Unit::Ratio)
                .under(&side_by_side(conditions.clone(), threads))
                .on_host();
            claims.push(statement.measured(move |found: &StructuresFound| {
                found.times.evidence(|view| {
                    let cells = view.select().is(STRUCTURE, structure.name()).is(THREADS, threads);
                    let cells = cells.all(WORKLOAD, Workload::ALL.map(Workload::name));
                    Ok(mean(&cells.numbers("log_ratio")?).exp())
                })
            }));
        }
    }
    claims
}
