//! The cost of allocation and de-allocation (section V-D, Fig. 19 and 20): instructions,
//! counted exactly in a child process, times as ratios within one run, and the steps of the
//! paper's lists.
//!
//! Where valgrind is installed, instructions are counted by its callgrind, on the paper's load in
//! both forms. Elsewhere the child is stepped, which takes half an hour for that load; a quick run
//! then counts a smaller one, on which nothing is judged.
//!
//! Blocks and steps follow from the plan; all that depends on the machine stands
//! apart as a host result.

use std::path::PathBuf;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::Extent;
use swath_trace::machine::UnknownFrames;

use crate::host::callgrind::{self, Regions};
use crate::host::count::{CountError, Counter, Marks};
use crate::papers::page_buddy::costs::{self, COST_AXES, Costs, at};
use crate::papers::page_buddy::design::allocators::{self, AllocatorsPlan, allocators};
use crate::papers::page_buddy::lists::{self, MaxOrder, PbsVariant};
use crate::papers::page_buddy::savings::{DESIGN, LEVEL};
use crate::papers::page_buddy::setting::{BlockFrames, check_free};
use crate::papers::page_buddy::subject::{
    Act, BBS_WRITING, Demands, Fault, Load, Memory, PBS_INSIDE, Structure, Subject, Work,
};
use crate::source::memory::random;
use crate::source::memory::scattered_bytes;
use crate::source::real::Machine;
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::child;
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Metrics, median, metrics};
use crate::study::kind::{Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::run::{Run, StudyError};

/// The most steps of one counted region.
const STEPS_MAX: u64 = 20_000_000;

/// Timed runs of each point with each seed, of which the median counts.
const TIMED_RUNS: usize = 15;

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
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// Number of free lists of BBS.
    pub bbs_max_order: MaxOrder,
    /// The variants of PBS.
    pub pbs: Vec<PbsVariant>,
    /// The allocators; BBS, all variants and what other crates added if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub designs: AllocatorsPlan,
    /// Number of these variants whose instructions are counted, from the first; all where `designs` are
    /// given.
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
    /// Number of seeds with which instructions are counted where valgrind is installed; those of the
    /// times if not given.
    pub simulated_repeats: Option<Forms<Repeats>>,
    /// The load under which instructions are counted by stepping, if not the one above.
    pub counted: Option<CountedLoad>,
}

/// The way in which instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Counting {
    /// By stepping the child.
    Stepped,
    /// By valgrind's callgrind.
    Simulated,
}

impl Counting {
    /// Returns the better one of those that this machine has.
    pub fn here() -> Self {
        if callgrind::is_here() { Self::Simulated } else { Self::Stepped }
    }
}

/// The load under which instructions are counted by stepping.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountedLoad {
    /// Number of seeds with which each point is counted.
    pub repeats: Forms<Repeats>,
    /// Sizes of the free blocks.
    pub block_frames: Forms<Ascending<BlockFrames>>,
    /// Frames that are free in all.
    pub free_frames: Forms<Frames>,
    /// Frames in the request of eager paging.
    pub request_frames: Forms<Frames>,
    /// Single frames allocated one after the other for demand paging.
    pub demand_frames: Forms<Frames>,
}

crate::plan!(AllocationPlan, check);

fn check(plan: &AllocationPlan) -> Result<(), Refused> {
    let own = [BBS_WRITING, PBS_INSIDE];
    allocators::check(&plan.designs, plan.bbs_max_order, &plan.pbs, &own)?;
    for (nth, variant) in plan.pbs.iter().enumerate() {
        let taken = own.contains(&variant.design.as_str());
        require(!taken, &format!("pbs.{nth}.design"), || {
            format!("the design {:?} is one of the study's own", variant.design)
        })?;
    }
    check_free("", 1.0, plan.free_share)?;
    for quick in [false, true] {
        let stepped = plan.counted_load(quick, Counting::Stepped);
        for (table, load) in [("", plan.load(quick)), ("counted.", stepped)] {
            let (free, demands) = (load.free_frames, load.demands);
            for (key, frames) in [
                ("request_frames", demands.request_frames),
                ("demand_frames", demands.demand_frames),
            ] {
                require(frames <= free, &format!("{table}{key}"), || {
                    format!("{frames} of {free} free frames")
                })?;
            }
        }
    }
    Ok(())
}

impl AllocationPlan {
    /// The load of times, steps and blocks.
    pub(crate) fn load(&self, quick: bool) -> Load<'_> {
        Load {
            repeats: self.repeats.of(quick).get(),
            block_frames: self.block_frames.of(quick),
            free_frames: self.free_frames.of(quick).get(),
            free_share: self.free_share.get(),
            demands: Demands {
                request_frames: self.request_frames.of(quick).get(),
                demand_frames: self.demand_frames.of(quick).get(),
            },
        }
    }

    /// The load of instructions.
    pub(crate) fn counted_load(&self, quick: bool, counting: Counting) -> Load<'_> {
        if counting == Counting::Simulated {
            let repeats = self.simulated_repeats.as_ref().unwrap_or(&self.repeats);
            return Load { repeats: repeats.of(quick).get(), ..self.load(quick) };
        }
        let Some(counted) = &self.counted else { return self.load(quick) };
        Load {
            repeats: counted.repeats.of(quick).get(),
            block_frames: counted.block_frames.of(quick),
            free_frames: counted.free_frames.of(quick).get(),
            free_share: self.free_share.get(),
            demands: Demands {
                request_frames: counted.request_frames.of(quick).get(),
                demand_frames: counted.demand_frames.of(quick).get(),
            },
        }
    }

    /// The plan's designs, or BBS, then each PBS, then the allocators that other crates added, each on
    /// every structure that it has. Lists are left out on a real machine: putting tens of thousands of
    /// extents into order takes them minutes.
    fn subjects(&self, real: bool) -> Result<Vec<Vec<Subject>>, StudyError> {
        let structures = if real { &Structure::ALL[1..] } else { &Structure::ALL };
        let designs = allocators(&self.designs, self.bbs_max_order, &self.pbs)?.into_iter();
        Ok(designs.map(|(design, frames)| Subject::of(&design, frames, structures)).collect())
    }

    /// Those of these subjects whose instructions are counted: all that a plan names, or else the first
    /// variants, and what was added.
    fn counted<'s>(&self, quick: bool, subjects: &'s [Vec<Subject>]) -> Vec<&'s Subject> {
        if self.designs.is_some() {
            return subjects.iter().flatten().collect();
        }
        let variants = usize::try_from(*self.counted_variants.of(quick)).unwrap_or(usize::MAX);
        let (own, added) = subjects.split_at(1 + self.pbs.len());
        own[..variants.min(self.pbs.len()) + 1].iter().chain(added).flatten().collect()
    }

    fn failed(&self, what: impl std::fmt::Display) -> StudyError {
        StudyError::Machine { study: self.about.study.clone(), what: what.to_string() }
    }
}

impl Study for Allocation {
    const KIND: &'static str = "allocation";
    const USES: Uses = Uses { memory: true, accesses: false, machine: false };
    type Plan = AllocationPlan;
    type Found = Costs;

    fn seeds(plan: &AllocationPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &AllocationPlan, run: &Run<'_>) -> Needs {
        let of = |load: Load<'_>| {
            let least = load.block_frames.first().map_or(1, |size| size.get());
            let most = load.block_frames.last().map_or(1, |size| size.get());
            let blocks = scattered_bytes(load.free_frames.max(most), least, load.free_share);
            let frames = load.demands.request_frames.max(load.demands.demand_frames);
            // The paper's lists have a node for each block. A child holds the same.
            let free = blocks.saturating_add(bytes(&[64, load.free_frames]));
            (bytes(&[2, free]), bytes(&[2, 208, frames]))
        };
        let counted = plan.counted_load(run.quick, Counting::here());
        let (load, counted) = (of(plan.load(run.quick)), of(counted));
        Needs::small()
            .each("free_frames", load.0.max(counted.0))
            .each("request_frames", load.1.max(counted.1))
    }

    fn measure(plan: &AllocationPlan, run: &Run<'_>) -> Result<Costs, StudyError> {
        let machine = run.real.memory.as_deref();
        let subjects = plan.subjects(machine.is_some())?;
        let counts = count_all(plan, run, &subjects)?;
        let subjects = subjects.concat();
        let times = time_all(plan, run, &subjects)?;
        let steps = steps_all(plan, run, &subjects)?;
        let blocks = blocks_all(plan, run, &subjects)?;
        Ok(Costs { counts, times, steps, blocks })
    }

    fn claims(plan: &AllocationPlan, run: &Run<'_>) -> Vec<Statement<Costs>> {
        claims_counted(plan, run, Counting::here())
    }

    fn show(plan: &AllocationPlan, run: &Run<'_>, found: &Costs) -> Shown {
        let machine = run.real.memory.is_some();
        let counted = plan.counted_load(run.quick, Counting::here());
        costs::show(&plan.load(run.quick), &counted, machine, found)
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        let job: Job = serde_json::from_str(job)?;
        let unknown = if job.unknown_free { UnknownFrames::Free } else { UnknownFrames::Used };
        let machine =
            job.file.as_ref().map(|file| Machine::load(Some(file), unknown)).transpose()?;
        let machine = machine.as_ref();
        let subjects = job.plan.subjects(machine.is_some())?;
        let counted = job.plan.counted(job.quick, &subjects);
        let subject = counted.get(job.subject).ok_or("no such subject")?;
        let load = job.plan.counted_load(job.quick, job.counting);
        let mut regions = CountedRegions::begin(job.counting)?;
        for memory in load.memories(machine) {
            for &work in subject.works() {
                let mut marked = Ok(());
                let random = random(job.plan.about.seed, job.repeat);
                subject.over(memory, random, |allocator| {
                    let measure = &mut |act: Act, work: &mut dyn FnMut()| match act {
                        Act::Allocate => marked = regions.region(work),
                        // Walking ordered lists node by node would be stepped for hours.
                        Act::Free => work(),
                    };
                    subject.perform(allocator, load.demands, work, measure)
                })?;
                marked?;
            }
        }
        Ok(())
    }
}

/// The regions of a counted child.
enum CountedRegions {
    Stepped(Marks),
    Simulated(Regions),
}

impl CountedRegions {
    fn begin(counting: Counting) -> Result<Self, CountError> {
        Ok(match counting {
            Counting::Stepped => Self::Stepped(Marks::begin()?),
            Counting::Simulated => Self::Simulated(Regions::begin()),
        })
    }

    fn region(&mut self, work: &mut dyn FnMut()) -> Result<(), CountError> {
        match self {
            Self::Stepped(marks) => marks.region("", work)?,
            Self::Simulated(regions) => regions.region(work),
        }
        Ok(())
    }
}

/// The statements of a plan whose instructions are counted in one way or the other.
pub fn claims_counted(
    plan: &AllocationPlan,
    run: &Run<'_>,
    counting: Counting,
) -> Vec<Statement<Costs>> {
    let conditions = lists::conditions(plan.bbs_max_order, &plan.pbs)
        .met(run.real.memory.is_none(), "the free memory of a real machine");
    costs::claims(&conditions, &plan.counted_load(run.quick, counting))
}

/// The work of a counted child: all works of one subject on all memories of one
/// seed.
#[derive(Serialize, Deserialize)]
struct Job {
    plan: AllocationPlan,
    quick: bool,
    counting: Counting,
    subject: usize,
    repeat: u64,
    file: Option<PathBuf>,
    unknown_free: bool,
}

/// Instructions of one job: each work of each memory.
type Counts = Vec<Vec<u64>>;

/// Counts the regions of a job's child, which [`Study::child`] marks.
fn count(job: &Job, memories: usize, works: usize) -> Result<Counts, CountError> {
    let json = serde_json::to_string(job).unwrap_or_default();
    let command = child::child_command(Allocation::KIND, &json).map_err(CountError::Spawn)?;
    let regions = match job.counting {
        Counting::Simulated => callgrind::count(&command)?,
        Counting::Stepped => {
            let mut counter = Counter::spawn(command, STEPS_MAX)?;
            let mut regions = Vec::new();
            while let Some(region) = counter.next_region()? {
                regions.push(region.instructions);
            }
            regions
        }
    };
    if regions.len() != memories * works {
        let what = format!("{} regions, not {}", regions.len(), memories * works);
        return Err(CountError::Protocol(what));
    }
    Ok(regions.chunks(works).map(<[u64]>::to_vec).collect())
}

/// Counts the instructions of the subjects that the plan wants counted; the
/// reason instead if the machine does not let them be counted.
fn count_all(
    plan: &AllocationPlan,
    run: &Run<'_>,
    subjects: &[Vec<Subject>],
) -> Result<Result<Grid, String>, StudyError> {
    let machine = run.real.memory.as_deref();
    let counting = Counting::here();
    let load = plan.counted_load(run.quick, counting);
    let memories = load.memories(machine);
    let counted = plan.counted(run.quick, subjects);
    let job = |subject, repeat| Job {
        plan: plan.clone(),
        quick: run.quick,
        counting,
        subject,
        repeat,
        file: machine.and_then(|machine| machine.file.clone()),
        unknown_free: machine.is_some_and(|machine| machine.unknown == UnknownFrames::Free),
    };
    let jobs: Vec<Job> = (0..counted.len())
        .flat_map(|subject| (0..load.repeats).map(move |repeat| (subject, repeat)))
        .map(|(subject, repeat)| job(subject, repeat))
        .collect();
    let found = run.points(&plan.about, &jobs, |job| {
        match count(job, memories.len(), counted[job.subject].works().len()) {
            Ok(counts) => Ok(Ok(counts)),
            // The rest of the study does not need the counts.
            Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
                Ok(Err(error.to_string()))
            }
            Err(error) if job.counting == Counting::Simulated => {
                Ok(Err(format!("under valgrind, {error}")))
            }
            Err(error) => Err(plan.failed(error)),
        }
    })?;
    let found: Result<Vec<Counts>, String> = found.into_iter().collect();
    Ok(found.map(|found| {
        let seeds = usize::try_from(load.repeats).unwrap_or(usize::MAX);
        let mut grid = Grid::new(&COST_AXES, seeds);
        for (subject, runs) in counted.iter().zip(found.chunks(seeds)) {
            for (m, memory) in memories.iter().enumerate() {
                for (w, &work) in subject.works().iter().enumerate() {
                    let runs = runs.iter().map(|counts| counts[m][w] as f64);
                    let runs: Vec<Metrics> =
                        runs.map(|count| metrics([("instructions", count)])).collect();
                    grid.add(at(work, Act::Allocate, subject, memory), &runs);
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
    let load = plan.load(run.quick);
    let seeds = usize::try_from(load.repeats).unwrap_or(usize::MAX);
    let mut grid = Grid::new(&COST_AXES, seeds);
    let memories = load.memories(run.real.memory.as_deref());
    let cells = memories.iter().flat_map(|memory| Work::ALL.map(|work| (memory, work)));
    let cells: Vec<(&Memory<'_>, Work)> = cells.collect();
    let jobs = cells.iter().flat_map(|cell| (0..load.repeats).map(move |repeat| (cell, repeat)));
    let jobs: Vec<(&(&Memory<'_>, Work), u64)> = jobs.collect();
    let at_work = |work: Work| subjects.iter().filter(move |one| one.works().contains(&work));
    let times = run.points_in_turn(&plan.about, &jobs, |&(&(memory, work), repeat)| {
        let subjects: Vec<&Subject> = at_work(work).collect();
        let times = time(plan.about.seed, load.demands, &subjects, *memory, work, repeat);
        times.map_err(|what| plan.failed(what))
    })?;
    for (&(memory, work), times) in cells.iter().zip(times.chunks(seeds)) {
        for (s, subject) in at_work(work).enumerate() {
            for act in Act::ALL {
                let runs =
                    times.iter().map(|seed| metrics([("nanoseconds", seed[s][act as usize])]));
                grid.add(at(work, act, subject, memory), &runs.collect::<Vec<_>>());
            }
        }
    }
    Ok(grid)
}

/// Nanoseconds of both halves of each subject's work on one memory, medians, the
/// subjects in turn.
fn time(
    seed: u64,
    demands: Demands,
    subjects: &[&Subject],
    memory: Memory<'_>,
    work: Work,
    repeat: u64,
) -> Result<Vec<[f64; 2]>, Fault> {
    let mut times = vec![Act::ALL.map(|_| Vec::with_capacity(TIMED_RUNS)); subjects.len()];
    for _ in 0..TIMED_RUNS {
        for (subject, times) in subjects.iter().zip(&mut times) {
            subject.over(memory, random(seed, repeat), |allocator| {
                subject.perform(allocator, demands, work, &mut |act, work| {
                    let start = Instant::now();
                    work();
                    times[act as usize].push(start.elapsed().as_nanos() as f64);
                })
            })?;
        }
    }
    // No ratio is made of a clock that stands still.
    Ok(times
        .iter()
        .map(|times| Act::ALL.map(|act| median(&times[act as usize]).max(1.0)))
        .collect())
}

/// Counts the steps of the paper's lists at every work without a page table.
fn steps_all(
    plan: &AllocationPlan,
    run: &Run<'_>,
    subjects: &[Subject],
) -> Result<Grid, StudyError> {
    let load = plan.load(run.quick);
    let memories = load.memories(run.real.memory.as_deref());
    let on_lists = |one: &&Subject| one.structure == Structure::Lists && !one.eager_alone;
    let of = |subject| {
        let works = Work::ALL[1..].iter();
        works.flat_map(|work| memories.iter().map(move |memory| (subject, *work, memory))).collect()
    };
    let points: Vec<(&Subject, Work, &Memory<'_>)> =
        subjects.iter().filter(on_lists).flat_map(|subject| -> Vec<_> { of(subject) }).collect();
    let jobs: Vec<_> = points
        .iter()
        .flat_map(|point| (0..load.repeats).map(move |repeat| (point, repeat)))
        .collect();
    let steps = run.points(&plan.about, &jobs, |&(&(subject, work, memory), repeat)| {
        let steps = subject.steps(*memory, random(plan.about.seed, repeat), load.demands, work);
        steps
            .map(|acts| acts.map(|one| one.lists + one.nodes + one.changes))
            .map_err(|what| plan.failed(what))
    })?;
    let seeds = usize::try_from(load.repeats).unwrap_or(usize::MAX);
    let mut grid = Grid::new(&COST_AXES, seeds);
    for (&(subject, work, memory), runs) in points.iter().zip(steps.chunks(seeds)) {
        for act in Act::ALL {
            let runs = runs.iter().map(|acts| metrics([("steps", acts[act as usize] as f64)]));
            grid.add(at(work, act, subject, memory), &runs.collect::<Vec<_>>());
        }
    }
    Ok(grid)
}

/// Counts the blocks that serve the request, on all structures but the lists, whose are those of the bitmaps.
fn blocks_all(
    plan: &AllocationPlan,
    run: &Run<'_>,
    subjects: &[Subject],
) -> Result<Grid, StudyError> {
    let load = plan.load(run.quick);
    let memories = load.memories(run.real.memory.as_deref());
    let no_lists = |one: &&Subject| one.structure != Structure::Lists && !one.eager_alone;
    let of = |subject| memories.iter().map(move |memory| (subject, memory));
    let points: Vec<(&Subject, &Memory<'_>)> =
        subjects.iter().filter(no_lists).flat_map(of).collect();
    let at = |(subject, memory): &(&Subject, &Memory<'_>)| {
        vec![subject.design.as_str().into(), memory.x()]
    };
    run.grid(&plan.about, &[DESIGN, LEVEL], load.repeats, &points, at, |point, repeat| {
        let (subject, memory) = *point;
        let request = load.demands.request_frames;
        let found = subject.over(*memory, random(plan.about.seed, repeat), |allocator| {
            let mut blocks = 0;
            let sink = &mut |_: Extent| blocks += 1;
            let served = allocator.borrow_mut().allocate(request, sink);
            served.map_err(|error| error.to_string())?;
            Ok(metrics([("blocks", f64::from(blocks))]))
        });
        found.map_err(|what| plan.failed(what))
    })
}
