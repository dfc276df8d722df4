//! Large requests on threads: `cmt_malloc` beside `malloc` (Zhang, Lu and Zhang, section 5.3,
//! Fig. 7).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::machine::host_name;
#[cfg(target_os = "linux")]
use crate::papers::clmalloc::blocks::times;
use crate::papers::clmalloc::load::sizes;
use crate::papers::clmalloc::peers;
use crate::papers::clmalloc::peers::{ALLOCATOR, Allocator, OURS, PeerPlan, Program, against_best};
use crate::papers::clmalloc::rounds::{
    Times, oversubscribed, side_by_side, threads_remark, threads_title,
};
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms, Repeats};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{CellView, Grid, Metrics, Missing, Value, View, mean, metrics};
use crate::study::kind::{Drawn, HostShown, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Large requests of programs.
pub struct Large;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LargePlan {
    /// Name, title, seed.
    pub about: Head,
    /// Numbers of threads.
    pub threads: Forms<Ascending<Bounded<1, 64>>>,
    /// Numbers of requests of all threads together, one point of the x axis each.
    pub requests: Forms<Ascending<Bounded<1, 10_000_000>>>,
    /// The least and the largest size in KiB; all between have the same chance.
    pub size_kib: (Bounded<1, 65_536>, Bounded<1, 65_536>),
    /// The uses that the program makes of a block.
    pub uses: Forms<Distinct<Use>>,
    /// Number of blocks that each thread has at a time.
    pub live: Bounded<1, 64>,
    /// Number of rounds that measure each point, each with other random sizes.
    pub repeats: Forms<Repeats>,
    /// Allocators beside which the largest number of requests is measured, too, if they are installed.
    pub peers: Vec<PeerPlan>,
}

crate::plan!(LargePlan, check);

fn check(plan: &LargePlan) -> Result<(), Refused> {
    let (least, most) = plan.size_kib;
    require(least <= most, "size_kib", || format!("{least} is more than {most}"))?;
    peers::check("peers", plan.peers.iter().map(|peer| peer.name.as_str()), 8)
}

/// The measurements.
pub struct LargeFound {
    /// By threads and number of requests; a matter of the seed alone.
    sizes: Grid,
    /// By use, threads and number of requests; each round is a repeat.
    times: Grid,
    /// By use, threads and allocator, for the most requests of the plan; each round is a repeat.
    beside: Grid,
    /// The allocators of these, and those that are not installed, in words.
    others: Vec<Allocator>,
    lacking: Vec<String>,
}

const USE: &str = "use";
const THREADS: &str = "threads";
const REQUESTS: &str = "requests";

const SIZES: &str = "Sizes";

/// Requests that a round makes at least of each point, in as many passes as it takes: the time of
/// a hundred is less than that of a thread's start.
const ROUND_REQUESTS: u64 = 1000;

/// The use that a program makes of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// It writes the first and the last word.
    Ends,
    /// It writes a word of each page.
    Pages,
}

impl Use {
    const ALL: [Self; 2] = [Self::Ends, Self::Pages];

    const fn ratio_figure(self) -> &'static str {
        match self {
            Self::Ends => "Fig. 7",
            Self::Pages => "Fig. 7, pages written",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Ends => "both ends of each block are written",
            Self::Pages => "each page of each block is written",
        }
    }
}

impl Study for Large {
    const KIND: &'static str = "cl-large";
    type Plan = LargePlan;
    type Found = LargeFound;

    fn seeds(plan: &LargePlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &LargePlan, run: &Run<'_>) -> Needs {
        let (quick, most_kib) = (run.quick, plan.size_kib.1.get());
        let last = |list: &Ascending<Bounded<1, 64>>| list.last().map_or(1, |last| last.get());
        let threads = last(plan.threads.of(quick));
        let requests = plan.requests.of(quick).last().map_or(1, |last| last.get());
        // Blocks in use, of which both allocators keep some after they were freed.
        let blocks = bytes(&[threads, plan.live.get(), most_kib << 10]);
        Needs::small()
            .once("size_kib", bytes(&[3, blocks]))
            .once("requests", bytes(&[32, requests.max(ROUND_REQUESTS)]))
            .each("requests", bytes(&[16, requests]))
    }

    fn measure(plan: &LargePlan, run: &Run<'_>) -> Result<LargeFound, StudyError> {
        let times = measure_times(plan, run)?;
        let mut points = Vec::new();
        for threads in plan.threads.of(run.quick) {
            let requests = plan.requests.of(run.quick).iter();
            points.extend(requests.map(|count| (threads.get(), count.get())));
        }
        let sizes = run.grid(
            &plan.about,
            &[THREADS, REQUESTS],
            Self::seeds(plan, run.quick),
            &points,
            |&(threads, count)| vec![threads.into(), count.into()],
            |&(threads, count), repeat| {
                let parts = sizes(plan.sizes(), plan.about.seed, repeat, threads, count);
                let bytes: usize = parts.iter().flatten().sum();
                Ok(metrics([("gib", bytes as f64 / f64::from(1 << 30))]))
            },
        )?;
        let (others, mut lacking) = Allocator::found(&plan.peers);
        let beside = measure_beside(plan, run, &others, &mut lacking)?;
        Ok(LargeFound { sizes, times, beside, others, lacking })
    }

    fn claims(plan: &LargePlan, _: &Run<'_>) -> Vec<Statement<LargeFound>> {
        claims(&conditions(plan))
    }

    fn show(plan: &LargePlan, run: &Run<'_>, found: &LargeFound) -> Shown {
        let mut figures = vec![];
        for &how in plan.uses.of(run.quick) {
            figures.push(ratio_figure(plan, run, found, how));
        }
        for &how in plan.uses.of(run.quick) {
            let threads = plan.threads.of(run.quick).iter();
            figures.extend(threads.map(|threads| time_figure(found, how, threads.get())));
        }
        if !found.beside.is_empty() {
            figures.extend(beside_figures(plan, run, found));
        }
        let host = HostShown { machine: host_name(), figures, notes: found.lacking.clone() };
        Shown {
            finding: String::new(),
            figures: vec![sizes_figure(plan, run, found)],
            notes: notes(plan, run),
            host: Some(host),
        }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        peers::child(job)
    }
}

/// `cmt_malloc` and the others on the most requests of the plan.
fn measure_beside(
    plan: &LargePlan,
    run: &Run<'_>,
    others: &[Allocator],
    lacking: &mut Vec<String>,
) -> Result<Grid, StudyError> {
    let requests = plan.requests.of(run.quick).last().map_or(1, |last| last.get());
    let mut points = Vec::new();
    for &how in plan.uses.of(run.quick) {
        for threads in beside_threads(plan, run) {
            let program = Program::Large {
                size_kib: plan.sizes(),
                live: plan.live.size(),
                every_page: how == Use::Pages,
                requests: requests.max(ROUND_REQUESTS),
            };
            points.push((vec![how.title().into(), threads.into()], program, threads));
        }
    }
    let allocators: Vec<Allocator> =
        [Allocator::ours()].into_iter().chain(others.to_vec()).collect();
    let (repeats, axes) = (Large::seeds(plan, run.quick), [USE, THREADS]);
    peers::measure(Large::KIND, &plan.about, run, repeats, (&axes, &points), &allocators, lacking)
}

fn beside_threads(plan: &LargePlan, run: &Run<'_>) -> impl Iterator<Item = u64> {
    peers::side_by_side(plan.threads.of(run.quick).iter().map(|threads| threads.get()))
}

/// For each use the time of `cmt_malloc` as a ratio to each other allocator's and to the best one's.
fn beside_figures(plan: &LargePlan, run: &Run<'_>, found: &LargeFound) -> Vec<Drawn> {
    let figure = |&how: &Use| {
        let id = format!("{}, other allocators", how.ratio_figure());
        let requests = plan.requests.of(run.quick).last().map_or(1, |last| last.get());
        let title = format!("{} requests, {}", requests.max(ROUND_REQUESTS), how.title());
        let y = "time (CLMalloc / other)";
        let figure = Figure::new(&id, &title, FigureKind::Bars, "", y).with_caption(
            "Each allocator is preloaded into a process of its own, where it has run the same requests \
             once before. Below 1 cmt_malloc is faster.",
        );
        let log = |view: &View<'_>, name: &str, threads: u64| {
            let cell = view.select().is(USE, how.title()).is(THREADS, threads);
            cell.is(ALLOCATOR, name).numbers("log_ns")
        };
        let series = |name: &str, others: &[Allocator]| {
            let points = beside_threads(plan, run).filter_map(|threads| {
                let ratio = found.beside.evidence(|view| {
                    against_best(view, OURS, others, |view, name| log(view, name, threads))
                });
                Some(ratio.ok()?.point(threads_title(threads).as_str()))
            });
            Series::new(&id, "threads", "time_ratio", name, points)
        };
        let each =
            found.others.iter().map(|other| series(&other.name, std::slice::from_ref(other)));
        let best = (found.others.len() > 1).then(|| series("the best of them", &found.others));
        Drawn { figure, series: each.chain(best).collect() }
    };
    plan.uses.of(run.quick).iter().map(figure).collect()
}

#[cfg(not(target_os = "linux"))]
fn times(_: &[Vec<usize>], _: usize, _: bool, _: u64) -> Result<Times, String> {
    Err(crate::papers::clmalloc::rounds::ELSEWHERE.to_owned())
}

/// Every point in each round, one after the other, so that none disturbs another.
fn measure_times(plan: &LargePlan, run: &Run<'_>) -> Result<Grid, StudyError> {
    let mut points = Vec::new();
    for &how in plan.uses.of(run.quick) {
        for threads in plan.threads.of(run.quick) {
            let requests = plan.requests.of(run.quick).iter();
            points.extend(requests.map(|count| (how, threads.get(), count.get())));
        }
    }
    let repeats = Large::seeds(plan, run.quick);
    let mut warm = false;
    let rounds = run.rounds(&plan.about, repeats, &points, |&point, repeat| {
        for &(how, threads, _) in points.iter().filter(|_| !warm) {
            // So that no round pays for memory that the pool never had.
            round(plan, (how, threads, ROUND_REQUESTS), 0)?;
        }
        warm = true;
        round(plan, point, repeat)
    })?;
    let repeats = usize::try_from(repeats).unwrap_or(usize::MAX);
    let mut grid = Grid::new(&[USE, THREADS, REQUESTS], repeats);
    for (&(how, threads, count), runs) in points.iter().zip(&rounds) {
        grid.add(vec![how.title().into(), threads.into(), count.into()], runs);
    }
    Ok(grid)
}

fn round(
    plan: &LargePlan,
    (how, threads, count): (Use, u64, u64),
    repeat: u64,
) -> Result<Metrics, StudyError> {
    let parts = sizes(plan.sizes(), plan.about.seed, repeat, threads, count);
    let passes = ROUND_REQUESTS.div_ceil(count);
    let pass = |pass| times(&parts, plan.live.size(), how == Use::Pages, repeat + pass);
    let sum = (0..passes).try_fold(Times::default(), |sum, nth| Ok(sum.plus(pass(nth)?)));
    let sum: Times = sum.map_err(|what: String| {
        let what = format!("{count} requests, {}: {what}", threads_title(threads));
        StudyError::Machine { study: plan.about.study.clone(), what }
    })?;
    Ok(sum.metrics((passes * count) as f64))
}

impl LargePlan {
    fn sizes(&self) -> (u64, u64) {
        (self.size_kib.0.get(), self.size_kib.1.get())
    }
}

/// The geometric mean of the ratios of a cell.
fn ratio(cell: &CellView<'_>) -> Result<f64, Missing> {
    Ok(cell.get("log_ratio")?.exp())
}

fn sizes_figure(plan: &LargePlan, run: &Run<'_>, found: &LargeFound) -> Drawn {
    let lines = FigureKind::LinesLog2;
    let figure = Figure::new(SIZES, "of the requests", lines, "requests", "GiB in all")
        .with_caption("The same for both allocators and any number of threads, about.");
    let series = |threads: u64| {
        let points =
            found.sizes.points(REQUESTS, |all| all.is(THREADS, threads), |cell| cell.get("gib"));
        Series::new(SIZES, "requests", "gib", &threads_title(threads), points)
    };
    let threads = plan.threads.of(run.quick).iter();
    Drawn { figure, series: threads.map(|threads| series(threads.get())).collect() }
}

fn ratio_figure(plan: &LargePlan, run: &Run<'_>, found: &LargeFound, how: Use) -> Drawn {
    let (least, most) = plan.size_kib;
    let threads = || plan.threads.of(run.quick).iter().map(|threads| threads.get());
    let caption = format!(
        "Blocks of {least} to {most} KiB, {} at a time on each thread; {}. Below 1 cmt_malloc is \
         faster. Geometric means of rounds, in each of which both take their turn. {}",
        plan.live,
        how.title(),
        oversubscribed(threads()),
    );
    let (id, lines) = (how.ratio_figure(), FigureKind::LinesLog2);
    let figure = Figure::new(id, how.title(), lines, "requests", "time (CLMalloc / malloc)");
    let series = |threads: u64| {
        let points = found.times.points(
            REQUESTS,
            |all| all.is(USE, how.title()).is(THREADS, threads),
            ratio,
        );
        Series::new(id, "requests", "time_ratio", &threads_remark(threads), points)
    };
    Drawn {
        figure: figure.with_caption(caption.trim_end()),
        series: threads().map(series).collect(),
    }
}

fn time_figure(found: &LargeFound, how: Use, threads: u64) -> Drawn {
    let id = format!("{}, {}", how.ratio_figure(), threads_title(threads));
    let title = format!("{}, {}", threads_remark(threads), how.title());
    let y = "time of a request and its free (µs)";
    let figure = Figure::new(&id, &title, FigureKind::LinesLog2, "requests", y);
    let series = [("malloc", "malloc_us"), ("CLMalloc", "cmt_us")].map(|(name, metric)| {
        let points = found.times.points(
            REQUESTS,
            |all| all.is(USE, how.title()).is(THREADS, threads),
            |cell| cell.get(metric),
        );
        Series::new(&id, "requests", "us_per_request", name, points)
    });
    Drawn { figure, series: series.into() }
}

fn notes(plan: &LargePlan, run: &Run<'_>) -> Vec<String> {
    let (least, most) = plan.size_kib;
    vec![
        format!(
            "The paper does not say how large its requests are, how many blocks a program holds, \
             or what it does with them: here {least} to {most} KiB, {}; each figure says the use. The requests \
             of a point are divided among its threads; time is from the first thread's start to \
             the last one's end. The words written are compared before each free.",
            plan.live,
        ),
        format!(
            "{} rounds, each with other sizes, after one that does not count. Fewer than \
             {ROUND_REQUESTS} requests are made several times in a round.",
            Large::seeds(plan, run.quick),
        ),
    ]
}

/// The reading of Fig. 7, for which the paper gives no sizes of requests: one, so that nobody
/// can choose the sizes with which its claims hold.
fn conditions(plan: &LargePlan) -> Conditions {
    let (least, most) = plan.size_kib;
    Conditions::new()
        .same("KiB of a request", "64 to 2048".to_owned(), format!("{least} to {most}"))
        .same("blocks of a thread at a time", 8, plan.live.get())
}

/// The statement on Fig. 7, for each number of threads and each use, over the paper's numbers
/// of requests. "Similar performance" is read as at most a tenth slower.
fn claims(conditions: &Conditions) -> Vec<Statement<LargeFound>> {
    const REQUESTS_OF_PAPER: [u64; 4] = [100, 1000, 10_000, 100_000];
    let mut claims = Vec::new();
    for how in Use::ALL {
        for threads in [1_u64, 2, 4, 8] {
            let says = format!(
                "similar performance to malloc and free, {}, {}: time, mean over the numbers of \
                 requests",
                threads_title(threads),
                how.title(),
            );
            let statement = Statement::at_most("Section 5.3, Fig. 7", &says, 1.0, 0.1)
                .unit(Unit::Ratio)
                .under(&side_by_side(conditions.clone(), threads))
                .on_host();
            claims.push(statement.measured(move |found: &LargeFound| {
                found.times.evidence(|view| {
                    let cells = view.select().is(USE, how.title()).is(THREADS, threads);
                    let cells = cells.all(REQUESTS, REQUESTS_OF_PAPER.map(Value::from));
                    Ok(mean(&cells.numbers("log_ratio")?).exp())
                })
            }));
        }
    }
    claims
}
