//! Requests that are served (Zhang, Lu and Zhang, section 5.2, Table 2), on the paper's machine, on one
//! with areas of unequal size and on one with the areas of 4 GiB of section 3.2; and the memory that
//! requests of each size can have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::Order;

use crate::host::machine::host_name;
use crate::papers::clmalloc::areas::{AreasPlan, MIB_FRAMES, Mib};
use crate::papers::clmalloc::real;
use crate::papers::clmalloc::real::{RealPlan, UNKNOWN};
use crate::papers::clmalloc::rounds::where_possible;
use crate::papers::clmalloc::segments::{Candidate, serve};
use crate::study::bounds::{Ascending, Bounded, Distinct};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, largest, metrics};
use crate::study::kind::{Drawn, HostShown, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Requests served by each allocator on each machine.
pub struct Availability;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AvailabilityPlan {
    /// Name, title, seed.
    pub about: Head,
    /// log2 of the frames that one bit stands for, up to a MiB.
    pub unit_order: Bounded<0, 8>,
    /// The machines. The paper's claims are judged on the one with its areas.
    pub machines: Vec<AreasPlan>,
    /// The rows of the table. A machine is asked for those whose single request it could hold.
    pub requests: Distinct<RequestRow>,
    /// Sizes of which as many are requested as are served, on machines of which they are no more than all
    /// memory and no less than a 256th.
    pub sizes_mib: Ascending<Mib>,
    /// The library itself on this machine.
    pub real: RealPlan,
}

/// A row of Table 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestRow {
    /// MiB of each request.
    pub mib: Mib,
    /// Number of requests, one after the other.
    pub count: Bounded<1, 65_536>,
}

crate::plan!(AvailabilityPlan, check);

fn check(plan: &AvailabilityPlan) -> Result<(), Refused> {
    let machines = &plan.machines;
    require((1..=16).contains(&machines.len()), "machines", || "not 1 to 16".into())?;
    for (at, machine) in machines.iter().enumerate() {
        machine.check(&format!("machines.{at}"))?;
        let twice = machines[..at].iter().any(|other| other.name == machine.name);
        require(!twice, &format!("machines.{at}.name"), || {
            format!("{:?} stands twice", machine.name)
        })?;
    }
    let most = machines.iter().map(AreasPlan::total_mib).max().unwrap_or(0);
    let largest = plan.sizes_mib.last().map_or(0, |size| size.get());
    require(largest <= most, "sizes_mib", || format!("{largest} of {most} MiB"))
}

/// Returns true if the memory that requests of `mib` have together is measured on a machine: more than
/// 256 of them would not be told apart.
fn is_measured(machine: &AreasPlan, mib: u64) -> bool {
    (machine.total_mib().div_ceil(256)..=machine.total_mib()).contains(&mib)
}

impl AvailabilityPlan {
    fn unit(&self) -> Order {
        Order::new(self.unit_order.tiny()).unwrap_or(Order::BASE)
    }

    /// The machine with the paper's areas.
    fn papers(&self) -> Option<&AreasPlan> {
        self.machines.iter().find(|machine| machine.is_papers())
    }
}

/// The measurements; nothing in them is random, but for the host's.
pub struct AvailabilityFound {
    /// By machine, row of the table and allocator.
    rows: Grid,
    /// By machine, size and allocator.
    sizes: Grid,
    /// By machine and allocator.
    whole: Grid,
    /// Of the library itself, by row of the table: a child is a repeat.
    real: Grid,
    /// The parts that this machine could not measure, and why.
    lacking: Vec<String>,
}

const MACHINE: &str = "machine";
const ALLOCATOR: &str = "allocator";
const REQUEST: &str = "request";
const SIZE: &str = "request_mib";

const TABLE: &str = "Table 2";
const LARGEST: &str = "Largest";
const SERVED: &str = "Served";
const LOST: &str = "Lost";
const SPACE: &str = "Space";

/// The request that the paper measures everything with: 20 MiB of 256, and as large a share of other
/// machines.
fn request_mib(machine: &AreasPlan) -> u64 {
    (machine.total_mib() * 20 / 256).max(1)
}

/// The name of a row in figures.
fn row_title(mib: u64, count: u64) -> String {
    if count == 1 { format!("{mib} MiB") } else { format!("{mib} MiB × {count}") }
}

/// A machine with one of the allocators on it.
type Pair<'a> = (&'a AreasPlan, Candidate);

impl Study for Availability {
    const KIND: &'static str = "cl-availability";
    type Plan = AvailabilityPlan;
    type Found = AvailabilityFound;

    fn seeds(_: &AvailabilityPlan, _: bool) -> u64 {
        0
    }

    fn needs(plan: &AvailabilityPlan, _: &Run<'_>) -> Needs {
        let most = plan.machines.iter().map(AreasPlan::total_mib).max().unwrap_or(0);
        let sizes = (plan.sizes_mib.len() + plan.requests.len()) as u64;
        let points = bytes(&[plan.machines.len() as u64, 4, sizes]);
        Needs::small()
            .once("sizes_mib", bytes(&[1024, points]))
            .each("machines.0.areas_mib", bytes(&[2, MIB_FRAMES, most]))
    }

    fn measure(plan: &AvailabilityPlan, run: &Run<'_>) -> Result<AvailabilityFound, StudyError> {
        let about = &plan.about;
        let unit = plan.unit();
        let failed = |what| StudyError::Machine { study: about.study.clone(), what };
        let pairs: Vec<Pair<'_>> = plan
            .machines
            .iter()
            .flat_map(|machine| Candidate::ALL.map(|candidate| (machine, candidate)))
            .collect();
        let name = |&(machine, candidate): &Pair<'_>| {
            [machine.name.as_str().into(), candidate.name().into()]
        };
        let with = |pair: &Pair<'_>, mib: u64, most: u64| {
            let served = pair.1.with(pair.0, unit, |allocator| serve(allocator, mib, most));
            served.map_err(failed)
        };
        let rows: Vec<(&Pair<'_>, RequestRow)> = pairs
            .iter()
            .flat_map(|pair| plan.requests.iter().map(move |&row| (pair, row)))
            .filter(|(pair, row)| row.mib.get() <= pair.0.total_mib())
            .collect();
        let sizes: Vec<(&Pair<'_>, u64)> = pairs
            .iter()
            .flat_map(|pair| plan.sizes_mib.iter().map(move |size| (pair, size.get())))
            .filter(|(pair, mib)| is_measured(pair.0, *mib))
            .collect();
        let rows = run.grid(
            about,
            &[MACHINE, ALLOCATOR, REQUEST],
            0,
            &rows,
            |(pair, RequestRow { mib, count })| {
                let [machine, allocator] = name(pair);
                vec![machine, allocator, row_title(mib.get(), count.get()).into()]
            },
            |(pair, RequestRow { mib, count }), _| {
                let (served, count) = (with(pair, mib.get(), count.get())?, count.get());
                let all = f64::from(u8::from(served == count));
                Ok(metrics([("share", served as f64 / count as f64), ("all", all)]))
            },
        )?;
        let sizes = run.grid(
            about,
            &[MACHINE, ALLOCATOR, SIZE],
            0,
            &sizes,
            |(pair, mib)| {
                let [machine, allocator] = name(pair);
                vec![machine, allocator, (*mib).into()]
            },
            |(pair, mib), _| {
                let served = with(pair, *mib, u64::MAX)?;
                let share = (mib * served) as f64 / pair.0.total_mib() as f64;
                Ok(metrics([("served", served as f64), ("memory_share", share)]))
            },
        )?;
        let one = |pair: &Pair<'_>, _| whole(pair, unit).map_err(failed);
        let axes = [MACHINE, ALLOCATOR];
        let whole = run.grid(about, &axes, 0, &pairs, |pair| name(pair).to_vec(), one)?;
        let (real, lacking) = measure_real(plan, run)?;
        Ok(AvailabilityFound { rows, sizes, whole, real, lacking })
    }

    fn claims(plan: &AvailabilityPlan, _: &Run<'_>) -> Vec<Statement<AvailabilityFound>> {
        let first = &plan.machines[0];
        let machine = plan.papers().unwrap_or(first);
        let mut claims = table_claims(&machine.conditions(), &machine.name);
        claims.extend(space_claims(&machine.conditions(), &machine.name));
        claims
    }

    fn show(plan: &AvailabilityPlan, _: &Run<'_>, found: &AvailabilityFound) -> Shown {
        let mut figures: Vec<Drawn> =
            plan.machines.iter().map(|machine| table_figure(plan, machine, found)).collect();
        figures.extend(plan.machines.iter().map(|machine| space_figure(plan, machine, found)));
        figures.extend(whole_figures(plan, found));
        let notes_here = found.lacking.clone();
        let real = if found.real.is_empty() { vec![] } else { vec![real_figure(plan, found)] };
        let host = HostShown { machine: host_name(), figures: real, notes: notes_here };
        Shown { finding: finding(plan, found), figures, notes: notes(plan), host: Some(host) }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        real::child(&serde_json::from_str(job)?)
    }
}

/// The library itself: the rows of the table that its reserve has room for, each in children of its own.
fn measure_real(plan: &AvailabilityPlan, run: &Run<'_>) -> Result<(Grid, Vec<String>), StudyError> {
    let reserve_mib = plan.real.reserve_mib.get();
    let fits = |row: &&RequestRow| row.mib.get() * row.count.get() <= reserve_mib;
    let job = |row: &RequestRow| {
        let (request_mib, count) = (row.mib.get(), row.count.get());
        real::BlocksJob { reserve_mib, request_mib, count }
    };
    let points: Vec<real::BlocksJob> = plan.requests.iter().filter(fits).map(job).collect();
    let repeats = plan.real.repeats.of(run.quick).get();
    let found = where_possible(run, &plan.about, repeats, &points, |job, _| {
        real::run(Availability::KIND, job)
    })?;
    let found = match found {
        Ok(found) => found,
        Err(why) => {
            let lacking = format!("The library itself was not measured: {why}.");
            return Ok((Grid::new(&[REQUEST], 0), vec![lacking]));
        }
    };
    let mut grid = Grid::new(&[REQUEST], usize::try_from(repeats).unwrap_or(usize::MAX));
    for (job, runs) in points.iter().zip(&found) {
        let row = row_title(job.request_mib, job.count);
        let runs: Vec<Metrics> = runs.iter().map(|ran| ran.metrics(job.count)).collect();
        grid.add(vec![row.as_str().into()], &runs);
    }
    let unknown = found.iter().flatten().any(|ran| !ran.knows_frames());
    Ok((grid, unknown.then(|| UNKNOWN.to_owned()).into_iter().collect()))
}

/// Table 2 of the library itself beside the simulation of its allocator.
fn real_figure(plan: &AvailabilityPlan, found: &AvailabilityFound) -> Drawn {
    let id = format!("{TABLE}, the library");
    let title = format!("cmt_malloc itself, with a reserve of {} MiB", plan.real.reserve_mib);
    let figure = Figure::new(&id, &title, FigureKind::Bars, "", "share of the blocks");
    let figure = figure.with_y_range(0.0, 1.0).with_caption(
        "Allocated, and one run of physical memory each, as read from /proc/self/pagemap; nothing is drawn \
         where frame numbers cannot be read. The last is the simulation on the paper's areas.",
    );
    let of = |metric: &'static str, name: &str, of_count: bool| {
        let rows = plan
            .requests
            .iter()
            .map(|row| (row_title(row.mib.get(), row.count.get()), row.count.get() as f64));
        let points = rows.filter_map(|(row, count)| {
            let found = found.real.evidence(|view| {
                let found = view.select().is(REQUEST, row.as_str()).one(metric)?;
                Ok(if of_count { found / count } else { found })
            });
            Some(found.ok()?.point(row.as_str()))
        });
        Series::new(&id, "request", "share", name, points)
    };
    let mut series =
        vec![of("served", "allocated", true), of("one_run_share", "one physical run", false)];
    if let Some(machine) = plan.papers() {
        let points = found.rows.points(
            REQUEST,
            |all| {
                let all = all.is(MACHINE, machine.name.as_str());
                all.is(ALLOCATOR, Candidate::PreAllocated.name())
            },
            |cell| cell.get("share"),
        );
        series.push(Series::new(&id, "request", "share", "simulated", points));
    }
    Drawn { figure, series }
}

/// The largest single request, and the memory left after requests of 20 MiB of 256.
fn whole((machine, candidate): &Pair<'_>, unit: Order) -> Result<Metrics, String> {
    candidate.with(machine, unit, |allocator| {
        let (largest, request_mib) = (allocator.largest_frames(), request_mib(machine));
        let served = serve(allocator, request_mib, u64::MAX);
        let (free, total) = (allocator.free_frames(), allocator.space().total_frames());
        let all = machine.total_mib() * MIB_FRAMES;
        let share = |frames: u64| frames as f64 / all as f64;
        metrics([
            ("largest_share", share(largest)),
            ("served", served as f64),
            ("free_share", share(free)),
            ("held_share", share(total - free - served * request_mib * MIB_FRAMES)),
            ("out_share", share(all - total)),
        ])
    })
}

/// A figure's id on a machine: the paper's own is that of the machine with its areas.
fn id(plan: &AvailabilityPlan, of: &str, machine: &AreasPlan) -> String {
    if plan.papers() == Some(machine) { of.to_owned() } else { format!("{of}, {}", machine.name) }
}

fn table_figure(plan: &AvailabilityPlan, machine: &AreasPlan, found: &AvailabilityFound) -> Drawn {
    let id = id(plan, TABLE, machine);
    let title = format!("requests served, {}", machine.name);
    let series = |candidate: Candidate| {
        let points = found.rows.points(
            REQUEST,
            |all| all.is(MACHINE, machine.name.as_str()).is(ALLOCATOR, candidate.name()),
            |cell| cell.get("share"),
        );
        Series::new(&id, "request", "served_share", candidate.name(), points)
    };
    let figure = Figure::new(&id, &title, FigureKind::Bars, "", "share of the requests");
    let figure = figure.with_y_range(0.0, 1.0);
    let figure = figure.with_caption("A full bar is the table's √, all others its ×.");
    Drawn { figure, series: Candidate::ALL.into_iter().map(series).collect() }
}

fn space_figure(plan: &AvailabilityPlan, machine: &AreasPlan, found: &AvailabilityFound) -> Drawn {
    let id = id(plan, SPACE, machine);
    let title = format!("memory that requests of one size can have, {}", machine.name);
    let series = |candidate: Candidate| {
        let points = found.sizes.points(
            SIZE,
            |all| all.is(MACHINE, machine.name.as_str()).is(ALLOCATOR, candidate.name()),
            |cell| cell.get("memory_share"),
        );
        Series::new(&id, "request_mib", "memory_share", candidate.name(), points)
    };
    let (x, y) = ("size of each request (MiB)", "share of all memory");
    let figure = Figure::new(&id, &title, FigureKind::Lines, x, y).with_y_range(0.0, 1.0);
    Drawn { figure, series: Candidate::ALL.into_iter().map(series).collect() }
}

fn whole_figures(plan: &AvailabilityPlan, found: &AvailabilityFound) -> Vec<Drawn> {
    let bars = FigureKind::Bars;
    let by_machine = |figure: Figure, y: &str, metric: &str| {
        let series = |candidate: Candidate| {
            let points = found.whole.points(
                MACHINE,
                |all| all.is(ALLOCATOR, candidate.name()),
                |cell| cell.get(metric),
            );
            Series::new(&figure.id, "machine", y, candidate.name(), points)
        };
        let series = Candidate::ALL.into_iter().map(series).collect();
        Drawn { figure, series }
    };
    let title = "memory that is left when no request of 20 MiB of 256 is served";
    let lost = Figure::new(LOST, title, bars, "", "share of all memory").with_caption(
        "Free, in pieces too short or not in reach; held by blocks of a power of two beyond their \
         requests; or in no whole unit of an area. Huge pages are 2 MiB, and no request gets more \
         than one.",
    );
    let left = |candidate: Candidate| {
        let point = |machine: &AreasPlan, words: &str, metric: &str| {
            let value = found.whole.evidence(|view| {
                let cell = view.select().is(MACHINE, machine.name.as_str());
                cell.is(ALLOCATOR, candidate.name()).one(metric)
            });
            Some(value.ok()?.point(format!("{}: {words}", machine.name).as_str()))
        };
        let points = plan.machines.iter().flat_map(|machine| {
            [("free", "free_share"), ("held", "held_share"), ("in no unit", "out_share")]
                .into_iter()
                .filter_map(move |(words, metric)| point(machine, words, metric))
        });
        Series::new(LOST, "machine", "share", candidate.name(), points.collect::<Vec<Point>>())
    };
    vec![
        by_machine(
            Figure::new(LARGEST, "single request on free memory", bars, "", "share of all memory"),
            "largest_share",
            "largest_share",
        ),
        by_machine(
            Figure::new(SERVED, "requests of 20 MiB of 256", bars, "", "requests"),
            "requests",
            "served",
        ),
        Drawn { figure: lost, series: Candidate::ALL.into_iter().map(left).collect() },
    ]
}

fn finding(plan: &AvailabilityPlan, found: &AvailabilityFound) -> String {
    let on = |machine: &AreasPlan| {
        let served = |candidate: Candidate| {
            let served = found.whole.evidence(|view| {
                let cell = view.select().is(MACHINE, machine.name.as_str());
                cell.is(ALLOCATOR, candidate.name()).one("served")
            });
            Some(format!("{} {}", candidate.name(), served.ok()?.estimate().value))
        };
        let served: Vec<String> = Candidate::ALL.into_iter().filter_map(served).collect();
        format!("{}: {}", machine.name, served.join(", "))
    };
    let all: Vec<String> = plan.machines.iter().map(on).collect();
    format!("Requests of 20 MiB of 256 served. {}.", all.join(". "))
}

fn notes(plan: &AvailabilityPlan) -> Vec<String> {
    let machines = plan.machines.iter().map(|machine| {
        let list: Vec<String> =
            machine.areas().map(|(first, len)| format!("{len} at {first}")).collect();
        format!("{}, in MiB: {}.", machine.name, list.join(", "))
    });
    let units = format!(
        "One bit stands for {} frames of 4 KiB. Each request finds memory as those before it \
         left it; nothing is migrated.",
        plan.unit().frames(),
    );
    [units].into_iter().chain(machines).collect()
}

/// The cells of Table 2: MiB, number of requests, and whether huge pages, the baseline and
/// CLMalloc serve them all. Each is a yes or a no, so there is no tolerance.
fn table_claims(conditions: &Conditions, machine: &str) -> Vec<Statement<AvailabilityFound>> {
    const PAPER: [(u64, u64, [bool; 3]); 6] = [
        (1, 1, [true, true, true]),
        (8, 1, [false, true, true]),
        (100, 1, [false, true, true]),
        (20, 8, [false, true, true]),
        (20, 9, [false, false, true]),
        (20, 12, [false, false, true]),
    ];
    const COLUMNS: [Candidate; 3] =
        [Candidate::HugePages, Candidate::Baseline, Candidate::PreAllocated];
    let mut claims = Vec::new();
    for (mib, count, expected) in PAPER {
        for (candidate, expected) in COLUMNS.into_iter().zip(expected) {
            let word = if expected { "served" } else { "not served" };
            let (row, name) = (row_title(mib, count), candidate.name());
            let says = format!("{row}, {name}: {word}");
            let paper = f64::from(u8::from(expected));
            let machine = machine.to_owned();
            let statement = Statement::exactly(TABLE, &says, paper);
            let statement = statement.measured(move |found: &AvailabilityFound| {
                found.rows.evidence(|view| {
                    let cell = view.select().is(MACHINE, machine.as_str());
                    cell.is(ALLOCATOR, name).is(REQUEST, row.as_str()).one("all")
                })
            });
            let page = candidate == Candidate::HugePages && !expected;
            let statement = match page {
                true => statement.identity("a request gets one huge page of 2 MiB or nothing"),
                false => statement,
            };
            claims.push(statement.under(conditions));
        }
    }
    claims
}

/// Sizes of requests over which space utilization is compared: all whole numbers
/// of MiB up to two areas.
const SPACE_MIB: std::ops::RangeInclusive<u64> = 1..=32;

/// The statements on space utilization. "2×" and "nearly 2×" have a tenth.
fn space_claims(conditions: &Conditions, machine: &str) -> [Statement<AvailabilityFound>; 2] {
    let at = |machine: &str| machine.to_owned();
    let (first, second) = (at(machine), at(machine));
    let (ours, baseline) = (Candidate::PreAllocated.name(), Candidate::Baseline.name());
    let says = "space utilization is increased by 2×: requests of 20 MiB, CLMalloc / Baseline";
    let of_20 = Statement::about("Abstract", says, 2.0, 0.1)
        .identity(
            "The quotient of two numbers that have verdicts of their own. The paper's are 12 and 8 \
             as well, and it says of no size that it is 2; the next row has the size at which it is most.",
        )
        .measured(move |found: &AvailabilityFound| {
            found.whole.evidence(|view| {
                let of = |name| {
                    let cell = view.select().is(MACHINE, first.as_str());
                    cell.is(ALLOCATOR, name).one("served")
                };
                Ok(of(ours)? / of(baseline)?.max(1.0))
            })
        });
    let says = "space utilization is increased by nearly 2×: most over all sizes of requests";
    let best =
        Statement::about("Section 1", says, 2.0, 0.1).measured(move |found: &AvailabilityFound| {
            found.sizes.evidence(|view| {
                let cells = view.select().is(MACHINE, second.as_str()).all(SIZE, SPACE_MIB);
                let ratios = cells.pairs(ALLOCATOR, ours, baseline, |ours, baseline| {
                    Ok(ours.get("served")? / baseline.get("served")?.max(1.0))
                });
                Ok(largest(&ratios?))
            })
        });
    [of_20, best].map(|statement| statement.unit(Unit::Ratio).under(conditions))
}
