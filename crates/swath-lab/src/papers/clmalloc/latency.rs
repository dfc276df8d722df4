//! The cost of requests, from the baseline to CLMalloc (Zhang, Lu and Zhang, section 5.3, Fig. 6).
//!
//! How many are served, and how many pages are taken and mapped for them, follows
//! from the plan. Time is taken in children on real memory ([`timing`]),
//! and the allocators' own instructions are stepped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_frame::segment::{CountedPages, FrameSupply};

use crate::host::count::CountError;
use crate::host::machine::host_name;
use crate::papers::clmalloc::areas::{AreasPlan, Mib};
use crate::papers::clmalloc::real;
use crate::papers::clmalloc::real::{RealPlan, UNKNOWN};
use crate::papers::clmalloc::rounds::where_possible;
use crate::papers::clmalloc::timing;
use crate::papers::clmalloc::timing::{Job, RoundTimes, allocate_all, search_us};
use crate::papers::clmalloc::variant::{Setting, Variant};
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{CellView, Grid, Metrics, Missing, metrics};
use crate::study::kind::{Drawn, HostShown, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// The cost of requests on four designs.
pub struct Latency;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyPlan {
    /// Name, title, seed.
    pub about: Head,
    /// The machine.
    pub machine: AreasPlan,
    /// MiB of each request.
    pub request_mib: Mib,
    /// Numbers of requests, one point of the x axis each.
    pub counts: Forms<Ascending<Bounded<1, 256>>>,
    /// Number of times that a child makes and frees all requests; the first time memory is new.
    pub rounds: Forms<Bounded<2, 1000>>,
    /// Number of children that measure each point, each of them once.
    pub repeats: Forms<Repeats>,
    /// The library itself on this machine.
    pub real: RealPlan,
}

crate::plan!(LatencyPlan, check);

fn check(plan: &LatencyPlan) -> Result<(), Refused> {
    plan.machine.check("machine")?;
    let (total, request) = (plan.machine.total_mib(), plan.request_mib);
    require(total <= 4096, "machine.areas_mib", || {
        format!("{total} MiB of real memory, more than 4096")
    })?;
    require(request.get() <= total, "request_mib", || format!("{request} of {total} MiB"))
}

/// The measurements.
pub struct LatencyFound {
    /// By design; nothing in it is random.
    simulated: Grid,
    /// By design and number of requests; a child is a repeat.
    times: Grid,
    /// By design and place of the request; the same in every run of a program.
    instructions: Grid,
    /// Of the library itself: by reserve and number of requests; a child is a repeat.
    real: Grid,
    /// The parts that this machine could not measure, and why.
    lacking: Vec<String>,
}

const DESIGN: &str = "design";
const REQUESTS: &str = "requests";
const REQUEST: &str = "request";
const RESERVE: &str = "reserve_mib";

const SERVED: &str = "Requests served";
const PAGES: &str = "Pages";
const FIRST: &str = "Fig. 6, new memory";
const LATER: &str = "Fig. 6";
const BOTH: &str = "Fig. 6, with releases";
const SEARCH: &str = "Search";
const READINGS: &str = "Readings";
const REAL: &str = "Fig. 6, the library";
const RUNS: &str = "Runs";
const INSTRUCTIONS: &str = "Instructions";

impl Study for Latency {
    const KIND: &'static str = "cl-latency";
    type Plan = LatencyPlan;
    type Found = LatencyFound;

    /// Times are of the host; all else is no matter of chance.
    fn seeds(_: &LatencyPlan, _: bool) -> u64 {
        0
    }

    fn needs(plan: &LatencyPlan, _: &Run<'_>) -> Needs {
        // A child takes all memory of the machine before the first request, one at a time.
        Needs::small().once("machine.areas_mib", bytes(&[1 << 20, plan.machine.total_mib()]))
    }

    fn measure(plan: &LatencyPlan, run: &Run<'_>) -> Result<LatencyFound, StudyError> {
        let settings = Variant::ALL.map(|variant| Setting {
            variant,
            clears: false,
            machine: plan.machine.clone(),
            request_mib: plan.request_mib.get(),
        });
        let simulated = run.grid(
            &plan.about,
            &[DESIGN],
            0,
            &settings,
            |setting| vec![setting.variant.name().into()],
            |setting, _| simulate(plan, setting).map_err(|what| failed(plan, what)),
        )?;
        let served = |setting: &Setting| {
            let design = setting.variant.name();
            let served = simulated.evidence(|view| view.select().is(DESIGN, design).one("served"));
            served.map_or(0, |served| served.estimate().value as u64)
        };
        let settings: Vec<(Setting, u64)> =
            settings.into_iter().map(|setting| (setting.clone(), served(&setting))).collect();
        let mut lacking = Vec::new();
        let times = times(plan, run, &settings, &mut lacking)?;
        let instructions = instructions(plan, run, &settings, &mut lacking)?;
        let real = measure_real(plan, run, &mut lacking)?;
        Ok(LatencyFound { simulated, times, instructions, real, lacking })
    }

    fn claims(plan: &LatencyPlan, _: &Run<'_>) -> Vec<Statement<LatencyFound>> {
        let conditions =
            plan.machine.conditions().same("MiB of a request", 20, plan.request_mib.get());
        let mut claims = served_claims(&conditions);
        claims.extend(time_claims(&conditions));
        claims
    }

    fn show(plan: &LatencyPlan, run: &Run<'_>, found: &LatencyFound) -> Shown {
        let figures = host_figures(plan, found);
        let lacking = found.lacking.clone();
        let host = HostShown { machine: host_name(), figures, notes: lacking };
        Shown {
            finding: finding(found),
            figures: vec![served_figure(plan, found), pages_figure(plan, found)],
            notes: notes(plan, run),
            host: Some(host),
        }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        match serde_json::from_str(job) {
            Ok(job) => real::child(&job),
            Err(_) => timing::child(job),
        }
    }
}

fn failed(plan: &LatencyPlan, what: String) -> StudyError {
    StudyError::Machine { study: plan.about.study.clone(), what }
}

/// The number of requests at which designs are compared: the most that all serve on the paper's machine.
const COMPARED: u64 = 8;

/// The rounds of the figure of pages, and what is counted in each.
const COUNTED: [[&str; 3]; 2] = [
    ["first: acquired", "first: released", "first: mapped"],
    ["later: acquired", "later: released", "later: mapped"],
];

/// Numbers that follow from the plan for one design: requests served of as many as there can
/// be, and frames acquired, released and mapped while each of the fewest requests is served, or of as
/// many as are, in the first round and in the next.
fn simulate(plan: &LatencyPlan, setting: &Setting) -> Result<Metrics, String> {
    let served = setting.simulate(|requests| {
        std::iter::from_fn(|| requests.allocate().then_some(())).count() as u64
    })?;
    let requests = plan.counts.full.first().map_or(1, |count| count.get()).min(served);
    let rounds = setting.simulate(|all| {
        let mut round = || {
            let before = all.pages();
            allocate_all(all, requests)?;
            let after = all.pages();
            all.free_all()?;
            let of = |count: fn(CountedPages) -> u64| {
                (count(after) - count(before)) as f64 / requests.max(1) as f64
            };
            Ok::<_, String>([of(|n| n.acquired), of(|n| n.released), of(|n| n.mapped)])
        };
        Ok::<_, String>([round()?, round()?])
    })??;
    let names = COUNTED.as_flattened().iter().copied();
    let counts = names.zip(rounds.into_iter().flatten());
    let mut all = metrics([("served", served as f64)]);
    all.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    Ok(all)
}

/// Times one child after the other, so that none disturbs another, the designs in turn.
fn times(
    plan: &LatencyPlan,
    run: &Run<'_>,
    settings: &[(Setting, u64)],
    lacking: &mut Vec<String>,
) -> Result<Grid, StudyError> {
    let rounds = Some(plan.rounds.of(run.quick).small());
    let repeats = plan.repeats.of(run.quick).get();
    let axes = [DESIGN, REQUESTS];
    let mut points: Vec<Job> = plan
        .counts
        .of(run.quick)
        .iter()
        .flat_map(|count| {
            let served = settings.iter().filter(|(_, served)| count.get() <= *served);
            served.map(|(setting, _)| Job { setting: setting.clone(), count: count.get(), rounds })
        })
        .collect();
    // The other reading of when frames are cleared, where any are acquired.
    let cleared = points.iter().filter(|job| {
        job.count == COMPARED && job.setting.variant.frames() == FrameSupply::OnDemand
    });
    let cleared =
        cleared.map(|job| Job { setting: Setting { clears: true, ..job.setting.clone() }, ..*job });
    let cleared: Vec<Job> = cleared.collect();
    points.extend(cleared);
    let rounds = where_possible(run, &plan.about, repeats, &points, |job, _| times_of(job))?;
    let rounds = match rounds {
        Ok(rounds) => rounds,
        Err(why) => {
            lacking.push(format!("Times were not measured: {why}."));
            return Ok(Grid::new(&axes, 0));
        }
    };
    let mut grid = Grid::new(&axes, usize::try_from(repeats).unwrap_or(usize::MAX));
    for (job, runs) in points.iter().zip(&rounds) {
        grid.add(vec![job.setting.name().as_str().into(), job.count.into()], runs);
    }
    Ok(grid)
}

fn times_of(job: &Job) -> Result<Metrics, String> {
    let RoundTimes { first_us, later_us, with_releases_us } = timing::times(Latency::KIND, job)?;
    Ok(metrics([
        ("first_us", first_us),
        ("later_us", later_us),
        ("with_releases_us", with_releases_us),
        ("search_us", search_us(&job.setting, job.count)?),
    ]))
}

/// The library itself with a reserve and without one, each number of requests in children of their own.
fn measure_real(
    plan: &LatencyPlan,
    run: &Run<'_>,
    lacking: &mut Vec<String>,
) -> Result<Grid, StudyError> {
    let reserves = [plan.real.reserve_mib.get(), 0];
    let counts = plan.counts.of(run.quick).iter().map(|count| count.get());
    let points: Vec<real::BlocksJob> = counts
        .flat_map(|count| reserves.map(|reserve_mib| (count, reserve_mib)))
        .map(|(count, reserve_mib)| real::BlocksJob {
            reserve_mib,
            request_mib: plan.request_mib.get(),
            count,
        })
        .collect();
    let repeats = plan.real.repeats.of(run.quick).get();
    let found =
        where_possible(run, &plan.about, repeats, &points, |job, _| real::run(Latency::KIND, job))?;
    let axes = [RESERVE, REQUESTS];
    let mut grid = Grid::new(&axes, usize::try_from(repeats).unwrap_or(usize::MAX));
    match found {
        Ok(found) => {
            for (job, runs) in points.iter().zip(&found) {
                let place = vec![job.reserve_mib.into(), job.count.into()];
                grid.add(place, &runs.iter().map(|ran| ran.metrics(job.count)).collect::<Vec<_>>());
            }
            if found.iter().flatten().any(|ran| !ran.knows_frames()) {
                lacking.push(UNKNOWN.to_owned());
            }
            Ok(grid)
        }
        Err(why) => {
            lacking.push(format!("The library itself was not measured: {why}."));
            Ok(Grid::new(&axes, 0))
        }
    }
}

/// Instructions of each request, of as many as the plan has and are served.
fn instructions(
    plan: &LatencyPlan,
    run: &Run<'_>,
    settings: &[(Setting, u64)],
    lacking: &mut Vec<String>,
) -> Result<Grid, StudyError> {
    let most = plan.counts.full.last().map_or(0, |count| count.get());
    let job = |(setting, served): &(Setting, u64)| Job {
        setting: setting.clone(),
        count: most.min(*served),
        rounds: None,
    };
    let jobs: Vec<Job> = settings.iter().map(job).collect();
    let counted = run.points(&plan.about, &jobs, |job| {
        match timing::count(Latency::KIND, job) {
            Ok(counts) => Ok(Ok(counts)),
            // The rest of the study does not need the counts.
            Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(failed(plan, error.to_string())),
        }
    })?;
    let mut grid = Grid::new(&[DESIGN, REQUEST], 0);
    for (job, counts) in jobs.iter().zip(counted) {
        let counts = match counts {
            Ok(counts) => counts,
            Err(why) => {
                lacking.push(format!("Instructions were not measured: {why}."));
                return Ok(Grid::new(&[DESIGN, REQUEST], 0));
            }
        };
        for (at, count) in (1_u64..).zip(counts) {
            let place = vec![job.setting.variant.name().into(), at.into()];
            grid.add(place, &[metrics([("instructions", count as f64)])]);
        }
    }
    Ok(grid)
}

fn served_figure(plan: &LatencyPlan, found: &LatencyFound) -> Drawn {
    let title = format!("of so many of {} MiB", plan.request_mib);
    let lines = FigureKind::Lines;
    let series = |variant: Variant| {
        let points = plan.counts.full.iter().filter_map(|count| {
            let served = found.simulated.evidence(|view| {
                let served = view.select().is(DESIGN, variant.name()).one("served")?;
                Ok(served.min(count.get() as f64))
            });
            Some(served.ok()?.point(count.get()))
        });
        Series::new(SERVED, "requests", "served", variant.name(), points)
    };
    Drawn {
        figure: Figure::new(SERVED, &title, lines, "requests made", "requests served"),
        series: Variant::ALL.into_iter().map(series).collect(),
    }
}

fn pages_figure(plan: &LatencyPlan, found: &LatencyFound) -> Drawn {
    let title = format!("of 4 KiB for each request of {} MiB", plan.request_mib);
    let figure = Figure::new(PAGES, &title, FigureKind::Bars, "", "pages").with_caption(
        "All requests are made, released, and made again. Acquired: from the areas' buddy systems; \
         released: again, before the request is served, as the excess of the last area that the \
         baseline takes.",
    );
    let series = |variant: Variant| {
        let columns = COUNTED.as_flattened().iter();
        let points = columns.filter_map(|&column| {
            let pages = found
                .simulated
                .evidence(|view| view.select().is(DESIGN, variant.name()).one(column));
            Some(pages.ok()?.point(column))
        });
        Series::new(PAGES, "round", "pages", variant.name(), points)
    };
    Drawn { figure, series: Variant::ALL.into_iter().map(series).collect() }
}

/// What is drawn of a cell.
type Of = fn(&CellView<'_>) -> Result<f64, Missing>;

fn host_figures(plan: &LatencyPlan, found: &LatencyFound) -> Vec<Drawn> {
    let lines = FigureKind::Lines;
    let drawn = |grid: &Grid, axis: &str, figure: Figure, y: &str, of: Of| {
        let series = |variant: Variant| {
            let points = grid.points(axis, |all| all.is(DESIGN, variant.name()), of);
            Series::new(&figure.id, axis, y, variant.name(), points)
        };
        let series = Variant::ALL.into_iter().map(series).collect();
        Drawn { figure, series }
    };
    let mut figures = Vec::new();
    if !found.times.is_empty() {
        let (x, y) = (format!("requests of {} MiB", plan.request_mib), "log10 of microseconds");
        let all: [(&str, &str, &str, Of); 4] = [
            (
                LATER,
                "time of all requests, memory used before",
                "Means of children. A step of 1 is a factor of 10. A line ends where a request is \
                 not served any more.",
                |cell| Ok(cell.get("later_us")?.log10()),
            ),
            (
                FIRST,
                "time of all requests, the first round",
                "Where all memory was taken before, that is not in the time; the pool maps \
                 its memory for the first time.",
                |cell| Ok(cell.get("first_us")?.log10()),
            ),
            (BOTH, "time of all requests and of all releases", "", |cell| {
                Ok(cell.get("with_releases_us")?.log10())
            }),
            (
                SEARCH,
                "time of all requests without memory behind them",
                "The allocators alone, with their calls for frames: none is taken, cleared or mapped.",
                |cell| Ok(cell.get("search_us")?.log10()),
            ),
        ];
        for (id, title, caption, of) in all {
            let figure = Figure::new(id, title, lines, &x, y).with_caption(caption);
            figures.push(drawn(&found.times, REQUESTS, figure, "log10_us", of));
        }
        figures.push(readings_figure(found));
    }
    if !found.real.is_empty() {
        figures.extend(real_figures(plan, found));
    }
    if !found.instructions.is_empty() {
        let title = "the allocators' own, of each request";
        let figure = Figure::new(INSTRUCTIONS, title, lines, "request", "instructions");
        let figure = figure.with_caption(
            "Exact, of the second round. Pages are not mapped here: only the search for a place \
             and the notes of it are counted.",
        );
        let of: Of = |cell| cell.get("instructions");
        figures.push(drawn(&found.instructions, REQUEST, figure, "instructions", of));
    }
    // What a plan leaves out, or this machine does not let it know, is no figure.
    figures.retain(|drawn| drawn.series.iter().any(|series| !series.points.is_empty()));
    figures
}

/// The time of the library itself, and the runs of physical memory of its blocks.
fn real_figures(plan: &LatencyPlan, found: &LatencyFound) -> Vec<Drawn> {
    let reserve_mib = plan.real.reserve_mib.get();
    let words = |mib: u64| match mib {
        0 => "no reserve".to_owned(),
        mib => format!("reserve of {mib} MiB"),
    };
    let series = |id: &str, y: &str, mib: u64, name: &str, of: Of| {
        let points = found.real.points(REQUESTS, |all| all.is(RESERVE, mib), of);
        Series::new(id, REQUESTS, y, &format!("{}{name}", words(mib)), points)
    };
    let x = format!("requests of {} MiB", plan.request_mib);
    let y = "log10 of microseconds";
    let title = "cmt_malloc itself: time of all requests, each page written";
    let time = Figure::new(REAL, title, FigureKind::Lines, &x, y).with_caption(
        "Each point in processes of its own. The reserve is taken and ordered at start, which is not in \
         the time.",
    );
    let title = "cmt_malloc itself: runs of physical memory of a block";
    let runs = Figure::new(RUNS, title, FigureKind::Lines, &x, "log10 of runs, on average");
    let runs = runs.with_caption(
        "Read from /proc/self/pagemap. 0 is one run: what Table 2 asks for. Nothing is drawn where frame \
         numbers cannot be read.",
    );
    let both = [reserve_mib, 0];
    let times = both.into_iter().flat_map(|mib| {
        [
            series(REAL, "log10_us", mib, ", first round", |cell| {
                Ok(cell.get("first_us")?.log10())
            }),
            series(REAL, "log10_us", mib, ", used before", |cell| {
                Ok(cell.get("later_us")?.log10())
            }),
        ]
    });
    let counts = both.map(|mib| {
        series(RUNS, "log10_runs", mib, "", |cell| Ok(cell.get("runs_per_block")?.log10()))
    });
    vec![
        Drawn { figure: time, series: times.collect() },
        Drawn { figure: runs, series: counts.into() },
    ]
}

/// The time that CLMalloc saves, by each reading of what it is compared with and of what is timed.
fn readings_figure(found: &LatencyFound) -> Drawn {
    let title = "time that CLMalloc saves, 8 requests";
    let figure = Figure::new(READINGS, title, FigureKind::Bars, "", "share of the time");
    let figure = figure.with_caption(
        "The paper says 80% to 90%, and neither of which design nor whether memory had been used before; \
         nor whether frames are cleared as they are acquired, the excess of areas too, or only as they \
         are mapped.",
    );
    let baseline = Variant::Baseline.name();
    let others = [
        ("baseline", baseline.to_owned()),
        ("baseline, cleared as acquired", format!("{baseline}, cleared as acquired")),
        ("pre-allocation", Variant::PreAllocation.name().to_owned()),
    ];
    let series = others.map(|(title, other)| {
        let timed = [
            ("first round", "first_us"),
            ("memory used before", "later_us"),
            ("with releases", "with_releases_us"),
        ];
        let points = timed.into_iter().filter_map(|(words, metric)| {
            let saved = found.times.evidence(|view| {
                let of =
                    |name: &str| view.select().is(DESIGN, name).is(REQUESTS, COMPARED).one(metric);
                Ok(1.0 - of(Variant::Pool.name())? / of(&other)?)
            });
            Some(saved.ok()?.point(words))
        });
        Series::new(READINGS, "timed", "saved", &format!("against {title}"), points)
    });
    Drawn { figure, series: series.into() }
}

fn finding(found: &LatencyFound) -> String {
    let served = |variant: Variant| {
        let served =
            found.simulated.evidence(|view| view.select().is(DESIGN, variant.name()).one("served"));
        Some(format!("{} {}", variant.name(), served.ok()?.estimate().value))
    };
    let served: Vec<String> = Variant::ALL.into_iter().filter_map(served).collect();
    format!("Requests served: {}.", served.join(", "))
}

fn notes(plan: &LatencyPlan, run: &Run<'_>) -> Vec<String> {
    vec![
        format!(
            "{} areas, {} MiB. Physical memory is a file of memory. The first two designs have the \
             kernel take its pages as they are acquired, which is without clearing them (as \
             contiguous memory is in Linux), and give them back as they are released; those that \
             are mapped, it clears. The others have all taken and cleared before. A segment is \
             mapped extent by extent at its place in the accelerator's space.",
            plan.machine.areas_mib.len(),
            plan.machine.total_mib(),
        ),
        format!(
            "{} children measure each time, the designs in turn. Each makes and frees all requests \
             {} times: the first round, and the median of the others.",
            plan.repeats.of(run.quick),
            plan.rounds.of(run.quick),
        ),
        "Acquired are whole areas by the baseline, whose excess is released, and by the global \
         bitmap blocks of a power of two, with what they have beyond the request."
            .to_owned(),
        "The pool gives nothing back to the areas between rounds: its delay has not passed. Its \
         arena is the accelerator's space, in units of 64 KiB from the global bitmap."
            .to_owned(),
    ]
}

/// The statements on numbers of requests, which are exact; "2×" has a tenth.
fn served_claims(conditions: &Conditions) -> Vec<Statement<LatencyFound>> {
    let place = "Section 5.2, 5.3";
    let served = |variant: Variant| {
        move |found: &LatencyFound| {
            found.simulated.evidence(|view| view.select().is(DESIGN, variant.name()).one("served"))
        }
    };
    let baseline = "Baseline supports up to 8 allocations of 20 MB";
    let bitmap = "the global bitmap supports one more allocation than the baseline";
    let pool = "CLMalloc supports 12 allocations of 20 MB";
    let space = "space utilization is increased by 2×: requests served, CLMalloc / Baseline";
    let claims = vec![
        Statement::exactly(place, baseline, 8.0).measured(served(Variant::Baseline)),
        Statement::exactly(place, bitmap, 9.0).measured(served(Variant::GlobalBitmap)).cause(
            "How blocks of a power of two are placed is not told. Here the piece of a segment in \
             each area is one block, aligned to its size from the area's start on. The study \
             cl-bitmap has seven readings: they serve 8, 10 or 12, and none 9. The baseline serves 8 in \
             every reading of its own blocks, as each request needs two whole areas of sixteen.",
        ),
        Statement::exactly(place, pool, 12.0).measured(served(Variant::Pool)),
        Statement::about("Abstract", space, 2.0, 0.1)
            .unit(Unit::Ratio)
            .identity(
                "The quotient of two numbers that have verdicts of their own. The paper's are 12 and \
                 8 as well, and it says of no size that it is 2; the study cl-availability has the \
                 size at which it is most.",
            )
            .measured(|found: &LatencyFound| {
                found.simulated.evidence(|view| {
                    let of =
                        |variant: Variant| view.select().is(DESIGN, variant.name()).one("served");
                    Ok(of(Variant::Pool)? / of(Variant::Baseline)?.max(1.0))
                })
            }),
    ];
    claims.into_iter().map(|statement| statement.under(conditions)).collect()
}

/// The statements on times, of 8 requests: the most that all designs serve. The bounds "80% to
/// 90%" have no tolerance. The paper gives no number for "a certain improvement", which is
/// taken for any, nor for "significantly", which is taken for a fifth.
fn time_claims(conditions: &Conditions) -> Vec<Statement<LatencyFound>> {
    let claim = |place: &str, says: &str, paper: f64, slack: f64| {
        let says = format!("8 requests: {says}");
        Statement::at_least(place, &says, paper, slack)
            .unit(Unit::Share)
            .under(conditions)
            .on_host()
    };
    let saved = |variant: Variant, metric: &'static str| {
        move |found: &LatencyFound| {
            found.times.evidence(|view| {
                let of = |variant: Variant| {
                    view.select().is(DESIGN, variant.name()).is(REQUESTS, COMPARED).one(metric)
                };
                Ok(1.0 - of(variant)? / of(Variant::Baseline)?)
            })
        }
    };
    let bitmap = "the global bitmap is somewhat faster than the baseline; time saved";
    let pre = "pre-allocation reduces the delay significantly; time saved against the baseline";
    let first = "latency is reduced by 80% to 90%, CLMalloc against the baseline, the first round";
    let later =
        "latency is reduced by 80% to 90%, CLMalloc against the baseline, memory used before";
    vec![
        claim("Section 5.3", bitmap, 0.0, 0.0)
            .cause(
                "To take, clear and map the pages is nearly all of the time, and the same in \
                 both: the figure Search has the rest.",
            )
            .measured(saved(Variant::GlobalBitmap, "later_us")),
        claim("Section 5.3", pre, 0.2, 0.0)
            .cause("The paper gives no number; a fifth is taken for significant.")
            .measured(saved(Variant::PreAllocation, "later_us")),
        claim("Abstract", first, 0.8, 0.0)
            .cause(
                "Frames were taken and cleared before; the pool maps each for the first time, all 5120 \
                 pages of a request (figure Pages). The figure Readings has what it saves against \
                 other readings of the baseline.",
            )
            .measured(saved(Variant::Pool, "first_us")),
        claim("Abstract", later, 0.8, 0.0)
            .cause("The pool still has the memory, mapped: nothing is left but its own work.")
            .measured(saved(Variant::Pool, "later_us")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::clmalloc::areas::machine;
    use crate::papers::clmalloc::variant::Requests;

    fn setting(variant: Variant) -> Setting {
        let areas: Vec<(u64, u64)> = (0..16).map(|i| (i * 32, 16)).collect();
        Setting { variant, clears: false, machine: machine("16", &areas), request_mib: 20 }
    }

    #[test]
    fn as_many_are_served_as_there_can_be() {
        let served = |variant| {
            let count =
                |requests: &mut dyn Requests| (0..100).take_while(|_| requests.allocate()).count();
            setting(variant).simulate(count).unwrap()
        };
        assert_eq!(Variant::ALL.map(served), [8, 10, 12, 12]);
    }

    /// Whole areas for the baseline, of each 32 MiB of which 12 go back; for the global bitmap 20 and
    /// 24 MiB in turn; and the pool maps once.
    #[test]
    fn pages_are_those_of_the_design() {
        for (variant, acquired, released) in [
            (Variant::Baseline, 8 * 8192, 8 * 3072),
            (Variant::GlobalBitmap, 4 * (5120 + 6144), 0),
            (Variant::PreAllocation, 0, 0),
            (Variant::Pool, 0, 0),
        ] {
            let rounds = setting(variant)
                .simulate(|requests| {
                    allocate_all(requests, 8).unwrap();
                    let first = requests.pages();
                    requests.free_all().unwrap();
                    let freed = requests.pages();
                    allocate_all(requests, 8).unwrap();
                    [first, freed, requests.pages()]
                })
                .unwrap();
            let mapped = 8 * 5120;
            let first = CountedPages { acquired, released, mapped, unmapped: 0 };
            let freed = CountedPages { released: acquired, unmapped: mapped, ..first };
            let again = CountedPages {
                acquired: 2 * acquired,
                released: acquired + released,
                mapped: 2 * mapped,
                unmapped: mapped,
            };
            let pooled = variant == Variant::Pool;
            let expected = if pooled { [first; 3] } else { [first, freed, again] };
            assert_eq!(rounds, expected, "{variant:?}");
        }
    }
}
