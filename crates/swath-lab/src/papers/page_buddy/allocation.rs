//! The cost of allocation (section V-D, Fig. 19 and 20): instructions, counted
//! exactly in a child process, and times as ratios within one run.
//!
//! The number of blocks that serve a request follows from the plan; all that
//! depends on the machine stands apart as a host result.

use std::path::PathBuf;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::Extent;
use swath_trace::machine::UnknownFrames;

use crate::host::count::{CountError, Counter, Marks};
use crate::host::machine::host_name;
use crate::papers::page_buddy::lists::{self, BBS, MaxOrder, PBS, PbsVariant};
use crate::papers::page_buddy::setting::{BlockFrames, check_free};
use crate::papers::page_buddy::subject::{
    Demands, Fault, Memory, Structure, Subject, Work, perform,
};
use crate::source::memory::random;
use crate::source::memory::scattered_bytes;
use crate::source::real::Machine;
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::child;
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{
    CellView, Evidence, Grid, Metrics, Missing, Value, largest, mean, median, metrics,
};
use crate::study::kind::{Drawn, HostShown, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// The most steps of one counted region.
const STEPS_MAX: u64 = 20_000_000;

/// Timed runs of each point with each seed, of which the median counts.
const TIMED_RUNS: usize = 31;

/// The cost of allocation.
pub struct Allocation;

/// Number of frames of a memory or request.
pub type Frames = Bounded<1, { 1 << 24 }>;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllocationPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is counted and timed.
    pub repeats: Forms<Repeats>,
    /// Number of free lists of BBS.
    pub bbs_max_order: MaxOrder,
    /// The variants of PBS.
    pub pbs: Vec<PbsVariant>,
    /// Number of these variants whose instructions are counted, from the first.
    pub counted_variants: Forms<u64>,
    /// Sizes of the free blocks, one point of the x axis each.
    pub block_frames: Forms<Ascending<BlockFrames>>,
    /// Frames that are free in all.
    pub free_frames: Forms<Frames>,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// Frames in the request of eager paging.
    pub request_frames: Forms<Frames>,
    /// Single frames allocated one after the other for demand paging.
    pub demand_frames: Forms<Frames>,
}

crate::plan!(AllocationPlan, check);

fn check(plan: &AllocationPlan) -> Result<(), Refused> {
    lists::check(plan.bbs_max_order, &plan.pbs)?;
    check_free("", 1.0, plan.free_share)?;
    for quick in [false, true] {
        let free = plan.free_frames.of(quick).get();
        for (key, frames) in
            [("request_frames", plan.request_frames), ("demand_frames", plan.demand_frames)]
        {
            let frames = frames.of(quick).get();
            require(frames <= free, key, || format!("{frames} of {free} free frames"))?;
        }
    }
    Ok(())
}

impl AllocationPlan {
    fn demands(&self, quick: bool) -> Demands {
        Demands {
            request_frames: self.request_frames.of(quick).get(),
            demand_frames: self.demand_frames.of(quick).get(),
        }
    }

    /// BBS, then each PBS, each on every structure. Lists are left out on a real
    /// machine: putting tens of thousands of extents into order takes them minutes.
    fn subjects(&self, real: bool) -> Result<Vec<Subject>, StudyError> {
        let structures = if real { &Structure::ALL[1..] } else { &Structure::ALL };
        let mut subjects = Vec::new();
        for (design, config) in lists::designs(self.bbs_max_order, &self.pbs)? {
            subjects.extend(structures.iter().map(|&structure| Subject {
                design: design.clone(),
                structure,
                config,
            }));
        }
        Ok(subjects)
    }

    fn memories<'a>(&self, quick: bool, machine: Option<&'a Machine>) -> Vec<Memory<'a>> {
        let (free_frames, free_share) = (self.free_frames.of(quick).get(), self.free_share.get());
        match machine {
            Some(machine) => vec![Memory::Machine(machine)],
            None => {
                let sizes = self.block_frames.of(quick).iter();
                let of = |size: &BlockFrames| {
                    let block_frames = size.get();
                    Memory::Blocks { block_frames, free_frames, free_share }
                };
                sizes.map(of).collect()
            }
        }
    }

    fn failed(&self, what: impl std::fmt::Display) -> StudyError {
        StudyError::Machine { study: self.about.study.clone(), what: what.to_string() }
    }
}

/// Costs and blocks.
pub struct AllocationFound {
    /// Instructions, or the reason why there are none.
    pub counts: Result<Grid, String>,
    /// Nanoseconds.
    pub times: Grid,
    /// Blocks that serve the request.
    pub blocks: Grid,
}

const WORK: &str = "work";
const DESIGN: &str = "design";
const STRUCTURE: &str = "structure";
const LEVEL: &str = "free_block_frames";
const COST_AXES: [&str; 4] = [WORK, DESIGN, STRUCTURE, LEVEL];

fn at(work: Work, subject: &Subject, memory: &Memory<'_>) -> Vec<Value> {
    let structure = subject.structure.title();
    vec![work.figure().into(), subject.design.as_str().into(), structure.into(), memory.x()]
}

impl Study for Allocation {
    const KIND: &'static str = "allocation";
    const USES: Uses = Uses { memory: true, accesses: false, machine: false };
    type Plan = AllocationPlan;
    type Found = AllocationFound;

    fn seeds(plan: &AllocationPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &AllocationPlan, run: &Run<'_>) -> Needs {
        let free = plan.free_frames.of(run.quick).get();
        let sizes = plan.block_frames.of(run.quick);
        let least = sizes.first().map_or(1, |size| size.get());
        let most = sizes.last().map_or(1, |size| size.get());
        let blocks = scattered_bytes(free.max(most), least, plan.free_share.get());
        let demands = plan.demands(run.quick);
        let frames = demands.request_frames.max(demands.demand_frames);
        // The paper's lists have a node for each block. A child holds the same.
        Needs::small()
            .each("free_frames", bytes(&[2, blocks.saturating_add(bytes(&[64, free]))]))
            .each("request_frames", bytes(&[2, 192, frames]))
    }

    fn measure(plan: &AllocationPlan, run: &Run<'_>) -> Result<AllocationFound, StudyError> {
        let machine = run.real.memory.as_deref();
        let subjects = plan.subjects(machine.is_some())?;
        let counts = count_all(plan, run, &subjects)?;
        let times = time_all(plan, run, &subjects)?;
        let bitmaps = subjects.iter().filter(|subject| subject.structure == Structure::Bitmaps);
        let memories = plan.memories(run.quick, machine);
        let of = |subject| memories.iter().map(move |memory| (subject, memory));
        let points: Vec<(&Subject, &Memory<'_>)> = bitmaps.flat_map(of).collect();
        let at = |(subject, memory): &(&Subject, &Memory<'_>)| {
            vec![subject.design.as_str().into(), memory.x()]
        };
        let seeds = Self::seeds(plan, run.quick);
        let axes = [DESIGN, LEVEL];
        let blocks =
            run.grid(&plan.about, &axes, seeds, &points, at, |(subject, memory), repeat| {
                blocks(plan, run.quick, subject, **memory, repeat).map_err(|what| plan.failed(what))
            })?;
        Ok(AllocationFound { counts, times, blocks })
    }

    fn claims(plan: &AllocationPlan, run: &Run<'_>) -> Vec<Statement<AllocationFound>> {
        let demands = plan.demands(run.quick);
        let conditions = lists::conditions(plan.bbs_max_order, &plan.pbs)
            .same("free frames", 1024, plan.free_frames.of(run.quick).get())
            .met(run.real.memory.is_none(), "the free memory of a real machine");
        let eager = conditions.clone().same("pages requested", 900, demands.request_frames);
        let demand = conditions.same("single pages requested", 900, demands.demand_frames);
        Structure::ALL.iter().flat_map(|&structure| claims(structure, &eager, &demand)).collect()
    }

    fn show(plan: &AllocationPlan, run: &Run<'_>, found: &AllocationFound) -> Shown {
        let machine = run.real.memory.is_some();
        let x = match machine {
            true => (FigureKind::Bars, "memory", "memory"),
            false => (FigureKind::LinesLog2, "free_block_frames", "free block size (pages)"),
        };
        let mut host = HostShown { machine: host_name(), ..HostShown::default() };
        match &found.counts {
            Err(why) => host.notes.push(format!("Instructions were not measured: {why}.")),
            Ok(counts) => host.figures = count_figures(plan, run.quick, counts, x),
        }
        host.figures.extend(time_figures(&found.times, x));
        let notes = [
            "\"Lists\" are the paper's structure: linked lists ordered by frame number, scanned \
             from the highest order down. Without that word the same blocks come from bitmaps, \
             where no order is scanned.",
            "A quick run requests fewer pages than the paper, so that it cannot be compared.",
        ];
        let notes = notes[..1 + usize::from(run.quick)].iter().map(|&note| note.to_owned());
        let (figures, notes) = (vec![block_figure(plan, run.quick, found, x)], notes.collect());
        Shown { finding: String::new(), figures, notes, host: Some(host) }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        let job: Job = serde_json::from_str(job)?;
        let unknown = if job.unknown_free { UnknownFrames::Free } else { UnknownFrames::Used };
        let machine =
            job.file.as_ref().map(|file| Machine::load(Some(file), unknown)).transpose()?;
        let machine = machine.as_ref();
        let subjects = job.plan.subjects(machine.is_some())?;
        let subject = subjects.get(job.subject).ok_or("no such subject")?;
        let demands = job.plan.demands(job.quick);
        let mut marks = Marks::begin()?;
        for memory in job.plan.memories(job.quick, machine) {
            for work in Work::ALL {
                let mut marked = Ok(());
                let random = random(job.plan.about.seed, job.repeat);
                subject.over(memory, random, |allocator| {
                    perform(allocator, demands, work, &mut |work| marked = marks.region("", work))
                })?;
                marked?;
            }
        }
        Ok(())
    }
}

/// The work of a counted child: all works of one subject on all memories of one
/// seed.
#[derive(Serialize, Deserialize)]
struct Job {
    plan: AllocationPlan,
    quick: bool,
    subject: usize,
    repeat: u64,
    file: Option<PathBuf>,
    unknown_free: bool,
}

/// Instructions of one job: each work of each memory.
type Counts = Vec<[u64; Work::ALL.len()]>;

/// Counts the regions of a job's child, which [`Study::child`] marks.
fn count(job: &Job, memories: usize) -> Result<Counts, CountError> {
    let json = serde_json::to_string(job).unwrap_or_default();
    let command = child::child_command(Allocation::KIND, &json).map_err(CountError::Spawn)?;
    let mut counter = Counter::spawn(command, STEPS_MAX)?;
    let mut counts = vec![[0; Work::ALL.len()]; memories];
    for count in counts.iter_mut().flatten() {
        match counter.next_region()? {
            Some(region) => *count = region.instructions,
            None => return Err(CountError::Protocol("fewer regions than expected".to_owned())),
        }
    }
    Ok(counts)
}

/// Counts the instructions of the subjects that the plan wants counted; the
/// reason instead if the machine does not let them be counted.
fn count_all(
    plan: &AllocationPlan,
    run: &Run<'_>,
    subjects: &[Subject],
) -> Result<Result<Grid, String>, StudyError> {
    let machine = run.real.memory.as_deref();
    let memories = plan.memories(run.quick, machine);
    let designs =
        1 + usize::try_from(*plan.counted_variants.of(run.quick)).unwrap_or(usize::MAX - 1);
    let structures = if machine.is_some() { 1 } else { Structure::ALL.len() };
    let counted = designs.saturating_mul(structures).min(subjects.len());
    let seeds = Allocation::seeds(plan, run.quick);
    let job = |subject, repeat| Job {
        plan: plan.clone(),
        quick: run.quick,
        subject,
        repeat,
        file: machine.and_then(|machine| machine.file.clone()),
        unknown_free: machine.is_some_and(|machine| machine.unknown == UnknownFrames::Free),
    };
    let jobs: Vec<Job> = (0..counted)
        .flat_map(|subject| (0..seeds).map(move |repeat| (subject, repeat)))
        .map(|(subject, repeat)| job(subject, repeat))
        .collect();
    let found = run.points(&plan.about, &jobs, |job| match count(job, memories.len()) {
        Ok(counts) => Ok(Ok(counts)),
        // The rest of the study does not need the counts.
        Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(plan.failed(error)),
    })?;
    let found: Result<Vec<Counts>, String> = found.into_iter().collect();
    Ok(found.map(|found| {
        let seeds_each = usize::try_from(seeds).unwrap_or(usize::MAX);
        let mut grid = Grid::new(&COST_AXES, seeds_each);
        for (subject, runs) in subjects.iter().zip(found.chunks(seeds_each)) {
            for (m, memory) in memories.iter().enumerate() {
                for (w, work) in Work::ALL.into_iter().enumerate() {
                    let runs = runs.iter().map(|counts| counts[m][w] as f64);
                    let runs: Vec<Metrics> =
                        runs.map(|count| metrics([("instructions", count)])).collect();
                    grid.add(at(work, subject, memory), &runs);
                }
            }
        }
        grid
    }))
}

/// Times every subject at every work, one after the other on this thread.
fn time_all(
    plan: &AllocationPlan,
    run: &Run<'_>,
    subjects: &[Subject],
) -> Result<Grid, StudyError> {
    let seeds = Allocation::seeds(plan, run.quick);
    let demands = plan.demands(run.quick);
    let seeds_each = usize::try_from(seeds).unwrap_or(usize::MAX);
    let mut grid = Grid::new(&COST_AXES, seeds_each);
    let memories = plan.memories(run.quick, run.real.memory.as_deref());
    let cells = memories.iter().flat_map(|memory| Work::ALL.map(|work| (memory, work)));
    let cells: Vec<(&Memory<'_>, Work)> = cells.collect();
    let jobs = cells.iter().flat_map(|cell| (0..seeds).map(move |repeat| (cell, repeat)));
    let jobs: Vec<(&(&Memory<'_>, Work), u64)> = jobs.collect();
    let times = run.points_in_turn(&plan.about, &jobs, |&(&(memory, work), repeat)| {
        let times = time(plan.about.seed, demands, subjects, *memory, work, repeat);
        times.map_err(|what| plan.failed(what))
    })?;
    for (&(memory, work), times) in cells.iter().zip(times.chunks(seeds_each)) {
        for (s, subject) in subjects.iter().enumerate() {
            let runs = times.iter().map(|of_seed| metrics([("nanoseconds", of_seed[s])]));
            grid.add(at(work, subject, memory), &runs.collect::<Vec<_>>());
        }
    }
    Ok(grid)
}

/// Nanoseconds of each subject's work on one memory, medians, the subjects in
/// turn.
fn time(
    seed: u64,
    demands: Demands,
    subjects: &[Subject],
    memory: Memory<'_>,
    work: Work,
    repeat: u64,
) -> Result<Vec<f64>, Fault> {
    let mut times = vec![Vec::with_capacity(TIMED_RUNS); subjects.len()];
    for _ in 0..TIMED_RUNS {
        for (subject, times) in subjects.iter().zip(&mut times) {
            subject.over(memory, random(seed, repeat), |allocator| {
                perform(allocator, demands, work, &mut |work| {
                    let start = Instant::now();
                    work();
                    times.push(start.elapsed().as_nanos() as f64);
                })
            })?;
        }
    }
    // No ratio is made of a clock that stands still.
    Ok(times.iter().map(|times| median(times).max(1.0)).collect())
}

/// Blocks that serve the request.
fn blocks(
    plan: &AllocationPlan,
    quick: bool,
    subject: &Subject,
    memory: Memory<'_>,
    repeat: u64,
) -> Result<Metrics, Fault> {
    subject.over(memory, random(plan.about.seed, repeat), |allocator| {
        let mut blocks = 0;
        let sink = &mut |_: Extent| blocks += 1;
        let request = plan.request_frames.of(quick).get();
        let served = allocator.borrow_mut().allocate(request, sink);
        served.map_err(|error| error.to_string())?;
        Ok(metrics([("blocks", f64::from(blocks))]))
    })
}

/// The x axis: kind, name with unit, and words.
type XAxis = (FigureKind, &'static str, &'static str);

/// Every subject in a grid's order.
fn lines(grid: &Grid) -> Vec<(String, &'static str, String)> {
    let designs = grid.values(DESIGN).into_iter();
    let structures: Vec<Structure> = Structure::ALL
        .into_iter()
        .filter(|structure| grid.values(STRUCTURE).contains(&&structure.title().into()))
        .collect();
    designs
        .flat_map(|design| structures.iter().map(move |structure| (design.to_string(), *structure)))
        .map(|(design, structure)| {
            let name = structure.named(&design);
            (design, structure.title(), name)
        })
        .collect()
}

fn count_figures(
    plan: &AllocationPlan,
    quick: bool,
    grid: &Grid,
    (kind, x, x_label): XAxis,
) -> Vec<Drawn> {
    let demands = plan.demands(quick);
    let drawn = |work: Work| {
        let (id, pages) = (work.figure(), demands.request_frames);
        let (y_label, per) = match work {
            Work::Demand => ("instructions for a page".to_owned(), demands.demand_frames),
            Work::Eager | Work::Request => (format!("instructions for {pages} pages"), 1),
        };
        let series = lines(grid).into_iter().map(|(design, structure, name)| {
            let points = grid.points(
                LEVEL,
                |all| all.is(WORK, id).is(DESIGN, design.as_str()).is(STRUCTURE, structure),
                |cell| Ok(cell.get("instructions")? / per as f64),
            );
            Series::new(id, x, "instructions", &name, points)
        });
        let figure = Figure::new(id, work.title(), kind, x_label, &y_label);
        Drawn { figure, series: series.collect() }
    };
    Work::ALL.map(drawn).to_vec()
}

fn time_figures(grid: &Grid, (kind, x, x_label): XAxis) -> Vec<Drawn> {
    let caption = "Medians of runs taken in turn, PBS against BBS on the same structure.";
    let drawn = |work: Work| {
        let id = format!("{}, time", work.figure());
        let figure = Figure::new(&id, work.title(), kind, x_label, "time (PBS / BBS)");
        let others = lines(grid).into_iter().filter(|(design, ..)| design != BBS);
        let series = others.map(|(design, structure, name)| {
            let points = grid.values(LEVEL).into_iter().filter_map(|level| {
                let ratio = grid.evidence(|view| {
                    let cells = view.select().is(WORK, work.figure()).is(STRUCTURE, structure);
                    let of = |pbs: &CellView<'_>, bbs: &CellView<'_>| {
                        Ok(pbs.get("nanoseconds")? / bbs.get("nanoseconds")?)
                    };
                    let cells = cells.is(LEVEL, level.clone());
                    Ok(mean(&cells.pairs(DESIGN, design.as_str(), BBS, of)?))
                });
                Some(ratio.ok()?.point(level.clone()))
            });
            Series::new(&id, x, "time_ratio", &name, points.collect::<Vec<_>>())
        });
        let series = series.collect();
        Drawn { figure: figure.with_caption(caption), series }
    };
    Work::ALL.map(drawn).to_vec()
}

fn block_figure(
    plan: &AllocationPlan,
    quick: bool,
    found: &AllocationFound,
    (kind, x, x_label): XAxis,
) -> Drawn {
    let id = "Blocks for a request";
    let title = format!("Blocks that serve {} pages", plan.request_frames.of(quick));
    let figure = Figure::new(id, &title, kind, x_label, "blocks");
    let of = |design: &&Value| {
        let points = found.blocks.points(
            LEVEL,
            |all| all.is(DESIGN, (*design).clone()),
            |cell| cell.get("blocks"),
        );
        Series::new(id, x, "blocks", &design.to_string(), points)
    };
    Drawn { figure, series: found.blocks.values(DESIGN).iter().map(of).collect() }
}

const ALL_LEVELS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The shares of instructions that PBS saves at these sizes.
fn savings(
    found: &AllocationFound,
    structure: Structure,
    work: Work,
    sizes: &'static [u64],
    statistic: impl Fn(&[f64]) -> f64,
) -> Result<Evidence, Missing> {
    let missing = |why: &String| Missing { axis: "instructions".to_owned(), lacks: why.clone() };
    found.counts.as_ref().map_err(missing)?.evidence(|view| {
        let cells = view.select().is(WORK, work.figure()).is(STRUCTURE, structure.title());
        let of = |pbs: &CellView<'_>, bbs: &CellView<'_>| {
            Ok(1.0 - pbs.get("instructions")? / bbs.get("instructions")?)
        };
        let cells = cells.all(LEVEL, sizes.iter().copied());
        Ok(statistic(&cells.pairs(DESIGN, PBS, BBS, of)?))
    })
}

/// The statements of section V-D, judged on instructions, for each structure.
/// The paper gives whole per cent of times that it reads off small figures: 5
/// points.
fn claims(
    structure: Structure,
    eager: &Conditions,
    demand: &Conditions,
) -> Vec<Statement<AllocationFound>> {
    let (name, demand_cause) = match structure {
        Structure::Lists => (
            "the paper's lists",
            "The gain depends on how a list implementation takes one frame from a longer node. \
             Here it shortens the node where it stands, while BBS splits a block once for each \
             order.",
        ),
        Structure::Bitmaps => (
            "Swath's bitmaps",
            "No order is scanned in either allocator. What BBS pays is the splitting of large \
             blocks, order by order, so its cost grows with the size of the free blocks.",
        ),
    };
    let fewer = "PBS serves the request in less than half as many blocks, and a block costs the \
                 same in both allocators; the paper's own code pays more for a block of PBS.";
    let no_cost = "No cost that BBS does not have too: neighbours are not looked for when a block \
                   is taken, and contiguity is written for both. What is left is the smaller \
                   number of blocks.";
    let statement = |place: &str, says: &str, paper: f64, cause: &str, conditions: &Conditions| {
        let says = format!("{says} ({name}, instructions)");
        let statement = Statement::within(place, &says, paper, 0.05).unit(Unit::Share);
        statement.under(conditions).cause(cause).on_host()
    };
    let place = "Section V-D, 1, Fig. 19";
    let says = "Eager, block sizes 1 to 16: PBS is up to 25% better than BBS";
    let small = statement(place, says, 0.25, fewer, eager)
        .measured(move |found| savings(found, structure, Work::Eager, &ALL_LEVELS[..5], largest));
    let says = "Eager, block size 256: PBS is up to 9% worse than BBS";
    let large = statement(place, says, 0.09, no_cost, eager).measured(move |found| {
        savings(found, structure, Work::Eager, &ALL_LEVELS[8..], |saved| -largest(saved))
    });
    let says = "Eager: PBS is on average 8% better than BBS";
    let average = statement(place, says, 0.08, fewer, eager)
        .measured(move |found| savings(found, structure, Work::Eager, &ALL_LEVELS, mean));
    let says = "Demand: PBS is on average 17% better than BBS";
    let single = statement("Section V-D, 2, Fig. 20", says, 0.17, demand_cause, demand)
        .measured(move |found| savings(found, structure, Work::Demand, &ALL_LEVELS, mean));
    vec![small, large, average, single]
}
