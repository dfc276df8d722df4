//! The global bitmap's overhead over granularities, its search as Table 1 has it, on one thread and on
//! several, and runs of free memory under requests and releases, with migration and without (Zhang, Lu
//! and Zhang, section 4.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{BASE_PAGE_BYTES, Order};
use swath_frame::segment::{AreaSpace, GlobalBitmap, Window};

use crate::papers::clmalloc::areas::{AreasPlan, MIB_FRAMES};
use crate::papers::clmalloc::bitmap::churn::{Churn, Churned, mib};
use crate::papers::clmalloc::bitmap::mutex::{Locking, contend};
use crate::papers::clmalloc::bitmap::readings::Reading;
use crate::papers::clmalloc::segments::Candidate;
use crate::source::memory::random;
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{CellView, Grid, Metrics, Missing, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// The overhead of one bitmap over all areas, and what it gives.
pub struct BitmapCosts;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BitmapPlan {
    /// Name, title, seed.
    pub about: Head,
    /// log2 of the frames of one bit.
    pub unit_orders: Ascending<Bounded<0, 12>>,
    /// Requests after memory has been filled for the first time.
    pub requests: Forms<Bounded<1, 1_000_000>>,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// The share of memory that segments in use have, at most.
    pub fill: Share,
    /// The largest request in areas; the smallest is a page.
    pub request_areas: f64,
    /// Numbers of threads that ask at the same time.
    pub threads: Ascending<Bounded<1, 256>>,
    /// The machines, of areas of one size each. The claims are judged on the one with the paper's.
    pub machines: Vec<AreasPlan>,
}

crate::plan!(BitmapPlan, check);

fn check(plan: &BitmapPlan) -> Result<(), Refused> {
    require((1..=4).contains(&plan.machines.len()), "machines", || "not 1 to 4".into())?;
    for (at, machine) in plan.machines.iter().enumerate() {
        machine.check(&format!("machines.{at}"))?;
        let twice = plan.machines[..at].iter().any(|other| other.name == machine.name);
        require(!twice, &format!("machines.{at}.name"), || {
            format!("{:?} stands twice", machine.name)
        })?;
        let most = plan.request_frames(machine) as f64;
        let room = (machine.total_mib() * MIB_FRAMES) as f64 * plan.fill.get();
        require(most >= 1.0 && most <= room, "request_areas", || {
            format!("{most} frames on {}: not 1 to {room}", machine.name)
        })?;
    }
    Ok(())
}

impl BitmapPlan {
    /// The most frames of a request: a multiple of the largest area.
    fn request_frames(&self, machine: &AreasPlan) -> u64 {
        let largest = machine.areas().map(|(_, len)| len).max().unwrap_or(0);
        (largest as f64 * MIB_FRAMES as f64 * self.request_areas.max(0.0)) as u64
    }

    /// The load of requests and releases on a machine.
    fn load(&self, quick: bool, machine: &AreasPlan, moving: Option<Window>) -> Churn {
        Churn {
            requests: self.requests.of(quick).get(),
            fill: self.fill.get(),
            request_frames: self.request_frames(machine),
            moving,
        }
    }

    /// The machine of the claims.
    fn papers(&self) -> &AreasPlan {
        self.machines.iter().find(|machine| machine.is_papers()).unwrap_or(&self.machines[0])
    }
}

/// The measurements.
pub struct BitmapFound {
    /// By machine, frames of a bit and allocator.
    churned: Grid,
    /// By machine and allocator, with one frame for each bit or the fewest of the plan: segments are
    /// moved where a request finds no place.
    moved: Grid,
    /// By machine, reading of the mutex and number of threads, with as many frames for each bit.
    contended: Grid,
    /// By machine and frames of a bit; nothing in it is random.
    sizes: Grid,
    /// By reading of the blocks' places, on the machine of the claims; nothing in it is random.
    readings: Grid,
}

const MACHINE: &str = "machine";
const UNIT: &str = "frames_of_a_bit";
const ALLOCATOR: &str = "allocator";
const READING: &str = "reading";
const LOCKING: &str = "locking";
const THREADS: &str = "threads";

/// The request of the paper's Table 2 and Fig. 6.
const REQUEST_MIB: u64 = 20;

const READINGS: &str = "Readings";
const OVERHEAD: &str = "Overhead";
const WORDS: &str = "Table 1";
const REFUSED: &str = "Refused";
const LONGEST: &str = "Longest run";
const IN_VAIN: &str = "In vain";
const MOVED: &str = "Migration";
const STILL_REFUSED: &str = "Refused with migration";
const SPEEDUP: &str = "Threads";
const WAITED: &str = "Waiting";
const COLLISIONS: &str = "Found twice";

const COMPARED: [Candidate; 3] =
    [Candidate::Baseline, Candidate::GlobalBitmap, Candidate::PreAllocated];

/// A machine, an order of units and an allocator.
type BitmapPoint<'a> = (&'a AreasPlan, Order, Candidate);

impl Study for BitmapCosts {
    const KIND: &'static str = "cl-bitmap";
    type Plan = BitmapPlan;
    type Found = BitmapFound;

    fn seeds(plan: &BitmapPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &BitmapPlan, _: &Run<'_>) -> Needs {
        let most = plan.machines.iter().map(AreasPlan::total_mib).max().unwrap_or(0);
        Needs::small().each("machines.0.areas_mib", bytes(&[1, MIB_FRAMES, most]))
    }

    fn measure(plan: &BitmapPlan, run: &Run<'_>) -> Result<BitmapFound, StudyError> {
        let failed = |what| StudyError::Machine { study: plan.about.study.clone(), what };
        let orders: Vec<Order> =
            plan.unit_orders.iter().filter_map(|order| Order::new(order.tiny())).collect();
        let pairs: Vec<(&AreasPlan, Order)> = plan
            .machines
            .iter()
            .flat_map(|machine| orders.iter().map(move |&order| (machine, order)))
            .collect();
        let places: Vec<BitmapPoint<'_>> = pairs
            .iter()
            .flat_map(|&(machine, order)| COMPARED.map(|candidate| (machine, order, candidate)))
            .collect();
        let churned = run.grid(
            &plan.about,
            &[MACHINE, UNIT, ALLOCATOR],
            plan.repeats.of(run.quick).get(),
            &places,
            |(machine, order, candidate)| {
                vec![machine.name.as_str().into(), order.frames().into(), candidate.name().into()]
            },
            |(machine, order, candidate), repeat| {
                let point = (*machine, *order, *candidate);
                churn(plan, run.quick, point, None, repeat).map_err(failed)
            },
        )?;
        let unit = orders.first().copied().unwrap_or(Order::BASE);
        let pairs_moved: Vec<(&AreasPlan, Candidate)> = plan
            .machines
            .iter()
            .flat_map(|machine| COMPARED.map(|candidate| (machine, candidate)))
            .collect();
        let moved = run.grid(
            &plan.about,
            &[MACHINE, ALLOCATOR],
            plan.repeats.of(run.quick).get(),
            &pairs_moved,
            |(machine, candidate)| vec![machine.name.as_str().into(), candidate.name().into()],
            |(machine, candidate), repeat| {
                let point = (*machine, unit, *candidate);
                let window = Some(window(*candidate));
                churn(plan, run.quick, point, window, repeat).map_err(failed)
            },
        )?;
        let threads: Vec<(&AreasPlan, Locking, u64)> = plan
            .machines
            .iter()
            .flat_map(|machine| Locking::ALL.map(|locking| (machine, locking)))
            .flat_map(|(machine, locking)| {
                plan.threads.iter().map(move |threads| (machine, locking, threads.get()))
            })
            .collect();
        let contended = run.grid(
            &plan.about,
            &[MACHINE, LOCKING, THREADS],
            plan.repeats.of(run.quick).get(),
            &threads,
            |(machine, locking, threads)| {
                vec![machine.name.as_str().into(), locking.name().into(), (*threads).into()]
            },
            |(machine, locking, threads), repeat| {
                let load = plan.load(run.quick, machine, None);
                let found = machine.with_space(unit, |space| {
                    let random = &mut random(plan.about.seed, repeat);
                    let lines = lines_max(&space);
                    contend(load, &space, *locking, *threads as usize, lines, random)
                });
                let found = found.map_err(failed)?;
                let each = |sum: u64, of: u64| sum as f64 / of.max(1) as f64;
                Ok(metrics([
                    ("requests_per_kiloline", 1000.0 * each(found.served, found.time)),
                    ("waited_share", each(found.waited, found.busy)),
                    ("collision_share", each(found.collisions, found.served + found.collisions)),
                ]))
            },
        )?;
        let sizes = run.grid(
            &plan.about,
            &[MACHINE, UNIT],
            0,
            &pairs,
            |(machine, order)| vec![machine.name.as_str().into(), order.frames().into()],
            |(machine, order), _| overhead(machine, *order).map_err(failed),
        )?;
        let readings = run.grid(
            &plan.about,
            &[READING],
            0,
            &Reading::ALL,
            |reading| vec![reading.name().into()],
            |reading, _| {
                let served = reading.served(plan.papers(), REQUEST_MIB);
                Ok(metrics([("served", served as f64)]))
            },
        )?;
        Ok(BitmapFound { churned, moved, contended, sizes, readings })
    }

    fn claims(plan: &BitmapPlan, _: &Run<'_>) -> Vec<Statement<BitmapFound>> {
        claims(plan)
    }

    fn show(plan: &BitmapPlan, run: &Run<'_>, found: &BitmapFound) -> Shown {
        let mut figures = vec![overhead_figure(plan, found), words_figure(plan, found)];
        figures.extend(churn_figures(plan, found));
        figures.extend(moved_figures(found));
        figures.extend(threads_figures(plan, found));
        figures.push(readings_figure(plan, found));
        Shown { finding: finding(plan, found), figures, notes: notes(plan, run), host: None }
    }
}

/// The least that has to be emptied for a request: CLMalloc's segments begin anywhere.
const fn window(candidate: Candidate) -> Window {
    match candidate {
        Candidate::PreAllocated => Window::Frames,
        _ => Window::Areas,
    }
}

/// The load on one allocator.
fn churn(
    plan: &BitmapPlan,
    quick: bool,
    (machine, unit, candidate): BitmapPoint<'_>,
    moving: Option<Window>,
    repeat: u64,
) -> Result<Metrics, String> {
    let churn = plan.load(quick, machine, moving);
    // The table's own bitmap knows nothing of segments that move.
    let by_table_1 = candidate == Candidate::PreAllocated && moving.is_none();
    let found = candidate.with(machine, unit, |allocator| {
        churn.run(allocator, by_table_1, &mut random(plan.about.seed, repeat))
    })??;
    let Churned { requests, refused, asked, held, in_vain, .. } = found;
    let each = |sum: f64, count: u64| sum / count.max(1) as f64;
    Ok(metrics([
        ("refused_share", each(refused as f64, requests)),
        ("waste", each(held as f64, asked) - 1.0),
        ("by_moving_share", each(found.by_moving as f64, requests)),
        ("moved_mib", each(mib(found.moved), requests)),
        ("in_vain_mib", each(mib(in_vain), requests)),
        ("longest_share", each(found.longest, found.looks)),
        ("words", each(found.words_read as f64, found.searches)),
        ("words_max", found.words_max as f64),
        ("areas_passed", each(found.areas_passed as f64, found.searches)),
    ]))
}

/// The bytes of Table 1's bitmap and of the global bitmap with summaries and segments as shares of
/// memory, and the lines of memory that a search of the summaries reads at most.
fn overhead(machine: &AreasPlan, unit: Order) -> Result<Metrics, String> {
    machine.with_space(unit, |space| {
        let memory_bytes = (space.total_frames() * BASE_PAGE_BYTES) as f64;
        let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
        metrics([
            ("bitmap_share", space.units() as f64 / 8.0 / memory_bytes),
            ("tree_share", words as f64 * 8.0 / memory_bytes),
            ("lines_max", lines_max(&space) as f64),
        ])
    })
}

/// The lines of memory that a search of the summaries reads at most.
fn lines_max(space: &AreaSpace<'_>) -> u64 {
    // Levels of summaries: see `GlobalBitmap`.
    let mut levels = 1;
    while 256_u64 << (2 * (levels - 1)) < space.units() {
        levels += 1;
    }
    2 * levels + 1
}

fn overhead_figure(plan: &BitmapPlan, found: &BitmapFound) -> Drawn {
    let machine = plan.papers();
    let title = format!("of the bitmap and of rounding, {}", machine.name);
    let figure = Figure::new(
        OVERHEAD,
        &title,
        FigureKind::Lines,
        "frames of one bit",
        "log10 of the share of memory",
    );
    let figure = figure.with_caption(
        "Rounded up: what the segments in use have beyond their requests, as a share of these; \
         with one frame for each bit nothing.",
    );
    let of = |grid: &Grid, name: &str, metric: &'static str, candidate: Option<Candidate>| {
        let points = grid.points(
            UNIT,
            |all| {
                let all = all.is(MACHINE, machine.name.as_str());
                candidate.map_or(all.clone(), |one| all.is(ALLOCATOR, one.name()))
            },
            // What is nothing has no logarithm, and no point.
            |cell| Ok(cell.get(metric)?.log10()),
        );
        Series::new(OVERHEAD, UNIT, "log10_share", name, points)
    };
    let clmalloc = Some(Candidate::PreAllocated);
    let series = vec![
        of(&found.sizes, "Bitmap of Table 1", "bitmap_share", None),
        of(&found.sizes, "With summaries and segments", "tree_share", None),
        of(&found.churned, "Rounded up", "waste", clmalloc),
    ];
    Drawn { figure, series }
}

fn words_figure(plan: &BitmapPlan, found: &BitmapFound) -> Drawn {
    let title = "words that a search reads";
    let (x, y) = ("frames of one bit", "log10 of words, or of lines");
    let figure = Figure::new(WORDS, title, FigureKind::Lines, x, y).with_caption(
        "Table 1 reads the bitmap from its first word on, under a mutex. The tree of summaries \
         reads at most so many lines of eight words, for the same place.",
    );
    let series = plan.machines.iter().flat_map(|machine| {
        type Of = fn(&CellView<'_>) -> Result<f64, Missing>;
        let name = machine.name.as_str();
        let draw = |grid: &Grid, what: &str, candidate: Option<Candidate>, of: Of| {
            let points = grid.points(
                UNIT,
                |all| {
                    let all = all.is(MACHINE, name);
                    candidate.map_or(all.clone(), |one| all.is(ALLOCATOR, one.name()))
                },
                of,
            );
            Series::new(WORDS, UNIT, "log10_words", &format!("{what}, {name}"), points)
        };
        let table = Some(Candidate::PreAllocated);
        [
            draw(&found.churned, "Table 1", table, |cell| Ok(cell.get("words")?.log10())),
            draw(&found.sizes, "Tree at most", None, |cell| Ok(cell.get("lines_max")?.log10())),
        ]
    });
    let series = series.collect();
    Drawn { figure, series }
}

/// Bars by machine: what migration costs each allocator, and what it cannot serve.
fn moved_figures(found: &BitmapFound) -> Vec<Drawn> {
    let bars = |id: &str, title: &str, y: &str, caption: &str, metric: &'static str| {
        let series = |candidate: Candidate| {
            let of = |cell: &CellView<'_>| cell.get(metric);
            let all = found.moved.points(MACHINE, |all| all.is(ALLOCATOR, candidate.name()), of);
            Series::new(id, MACHINE, metric, candidate.name(), all)
        };
        let figure = Figure::new(id, title, FigureKind::Bars, "", y).with_caption(caption);
        Drawn { figure, series: COMPARED.into_iter().map(series).collect() }
    };
    vec![
        bars(
            MOVED,
            "memory moved for a request, on average",
            "MiB",
            "Where a request finds no place though enough is free, the segments in its way are moved \
             whole to other places of the allocator: those of whole areas, or, for CLMalloc, of as \
             many frames as are asked for, wherever least has to move.",
            "moved_mib",
        ),
        bars(
            STILL_REFUSED,
            "requests refused though enough is free",
            "share of requests",
            "Some segment in every window has no place outside it.",
            "refused_share",
        ),
    ]
}

/// Lines over the number of threads, on the machine of the claims and the others.
fn threads_figures(plan: &BitmapPlan, found: &BitmapFound) -> Vec<Drawn> {
    let lines = |id: &str, title: &str, y: &str, caption: &str, metric: &'static str| {
        let series = plan.machines.iter().flat_map(|machine| {
            Locking::ALL.map(|locking| {
                let points = found.contended.points(
                    THREADS,
                    |all| all.is(MACHINE, machine.name.as_str()).is(LOCKING, locking.name()),
                    |cell| cell.get(metric),
                );
                let name = format!("{}, {}", locking.name(), machine.name);
                Series::new(id, THREADS, metric, &name, points)
            })
        });
        let series = series.collect();
        let figure = Figure::new(id, title, FigureKind::LinesLog2, THREADS, y);
        Drawn { figure: figure.with_caption(caption), series }
    };
    vec![
        lines(
            SPEEDUP,
            "requests served under cma_mutex",
            "requests in the time of 1000 lines",
            "Simulated: to read or write a line of 64 bytes takes a unit of time; a thread searches, \
             sets bits, writes a descriptor for each page, and asks again.",
            "requests_per_kiloline",
        ),
        lines(
            WAITED,
            "for cma_mutex",
            "share of the threads' time",
            "The same runs.",
            "waited_share",
        ),
        lines(
            COLLISIONS,
            "ranges that two threads were given",
            "share of the searches",
            "Table 1 unlocks its mutex in line 11, before a bit of the range is set.",
            "collision_share",
        ),
    ]
}

/// Bars by machine, of the finest granularity.
fn churn_figures(plan: &BitmapPlan, found: &BitmapFound) -> Vec<Drawn> {
    let bars = |figure: Figure, y: &str, metric: &'static str| {
        let series = |candidate: Candidate| {
            let points = found.churned.points(
                MACHINE,
                |all| all.is(UNIT, finest(plan)).is(ALLOCATOR, candidate.name()),
                |cell| cell.get(metric),
            );
            Series::new(&figure.id, MACHINE, y, candidate.name(), points)
        };
        let series = COMPARED.into_iter().map(series).collect();
        Drawn { figure, series }
    };
    let figure = |id: &str, title: &str, y: &str| Figure::new(id, title, FigureKind::Bars, "", y);
    let refused = figure(REFUSED, "requests refused though enough is free", "share of requests");
    let longest = figure(LONGEST, "the longest request that is served", "share of the free memory");
    let in_vain = figure(IN_VAIN, "acquired and released again for a request", "MiB");
    vec![
        bars(
            refused.with_caption("Each would be a migration, or fail."),
            "share",
            "refused_share",
        ),
        bars(longest.with_y_range(0.0, 1.0), "share", "longest_share"),
        bars(
            in_vain.with_caption(
                "The excess of the last area, and areas that the walk took before it met one in use.",
            ),
            "mib",
            "in_vain_mib",
        ),
    ]
}

fn readings_figure(plan: &BitmapPlan, found: &BitmapFound) -> Drawn {
    let title = format!("of blocks' places: requests of 20 MiB served, {}", plan.papers().name);
    let figure = Figure::new(READINGS, &title, FigureKind::Bars, "", "requests").with_caption(
        "Of the global bitmap with frames on demand. The paper has one more than the baseline's \
         eight, and tells of the rounding to a power of two, not of the places.",
    );
    let of = |cell: &CellView<'_>| cell.get("served");
    let points = found.readings.points(READING, |all| all, of);
    Drawn { figure, series: vec![Series::new(READINGS, READING, "served", "served", points)] }
}

/// Frames of a bit at the finest granularity of the plan.
fn finest(plan: &BitmapPlan) -> u64 {
    plan.unit_orders.first().map_or(1, |order| 1 << order.get())
}

fn finding(plan: &BitmapPlan, found: &BitmapFound) -> String {
    let of = |machine: &AreasPlan| {
        let refused = COMPARED.iter().filter_map(|candidate| {
            let share = found.churned.evidence(|view| {
                let all = view.select().is(MACHINE, machine.name.as_str());
                all.is(UNIT, finest(plan)).is(ALLOCATOR, candidate.name()).one("refused_share")
            });
            let share = 100.0 * share.ok()?.estimate().value;
            Some(format!("{} {share:.1}%", candidate.name()))
        });
        format!("{}: {}", machine.name, refused.collect::<Vec<_>>().join(", "))
    };
    let all: Vec<String> = plan.machines.iter().map(of).collect();
    format!("Requests refused though as much memory was free. {}.", all.join(". "))
}

fn notes(plan: &BitmapPlan, run: &Run<'_>) -> Vec<String> {
    let (requests, fill) = (plan.requests.of(run.quick), 100.0 * plan.fill.get());
    vec![
        format!(
            "Requests are of one page to {} areas, each size as likely. Before a request that would \
             have segments use more than {fill:.0}% of the memory, random ones are released, and \
             one after a request that is refused; {requests} requests are counted, after memory \
             has been filled once.",
            plan.request_areas,
        ),
        "In line 6, \"index of the next zero in bitmap\" is taken as Linux's search for a range of \
         zeros, as the text has it calculate the available range. Its place is held against the \
         tree's at each request. Table 1 releases its mutex before a bit of the range is set, so \
         that two requests at the same time find the same place; the other two readings set the bits \
         before it is released."
            .to_owned(),
    ]
}

/// The paper's answers to its questions, which it does not measure. "Negligible" is taken for a
/// hundredth, "significantly" for a fifth; all were chosen before looking.
fn claims(plan: &BitmapPlan) -> Vec<Statement<BitmapFound>> {
    const PLACE: &str = "Section 4.1";
    let (machine, unit) = (plan.papers(), finest(plan));
    let conditions: Conditions = machine.conditions();
    let name = machine.name.clone();
    let churned = move |candidate: Candidate, metric: &'static str| {
        let name = name.clone();
        move |found: &BitmapFound| {
            found.churned.evidence(|view| {
                let all = view.select().is(MACHINE, name.as_str()).is(UNIT, unit);
                all.is(ALLOCATOR, candidate.name()).one(metric)
            })
        }
    };
    let (name, other) = (machine.name.clone(), machine.name.clone());
    let share = "the bitmap's overhead is negligible: of the memory, with summaries and segments";
    let waste = "the global bitmap causes the most negligible waste: beyond the requests";
    let migration = "memory migration is significantly less likely than with the baseline: \
                     requests refused though enough is free, fewer by";
    let vain = "the baseline does repetitive work: MiB acquired and released for each request, \
                a tenth at least";
    let claims = vec![
        Statement::at_most(PLACE, share, 0.01, 0.0).unit(Unit::Share).measured(
            move |found: &BitmapFound| {
                found.sizes.evidence(|view| {
                    view.select().is(MACHINE, name.as_str()).is(UNIT, unit).one("tree_share")
                })
            },
        ),
        Statement::at_most(PLACE, waste, 0.01, 0.0)
            .unit(Unit::Share)
            .measured(churned(Candidate::PreAllocated, "waste")),
        Statement::at_least(PLACE, migration, 0.2, 0.0).unit(Unit::Share).measured(
            move |found: &BitmapFound| {
                found.churned.evidence(|view| {
                    let of = |candidate: Candidate| {
                        let all = view.select().is(MACHINE, other.as_str()).is(UNIT, unit);
                        all.is(ALLOCATOR, candidate.name()).one("refused_share")
                    };
                    Ok(1.0 - of(Candidate::PreAllocated)? / of(Candidate::Baseline)?)
                })
            },
        ),
        Statement::at_least("Section 3.2", vain, 0.1, 0.0)
            .measured(churned(Candidate::Baseline, "in_vain_mib")),
    ];
    claims.into_iter().map(|statement| statement.under(&conditions)).collect()
}
