//! What allocation costs (section V-D, Fig. 19 and 20): instructions, counted
//! exactly in a child process, and times as ratios within one run.
//!
//! Both of Swath's structures are measured: the paper's ordered lists, scanned
//! from the highest order down, and the bitmaps that find the same blocks
//! without a scan. How many blocks serve a request follows from the plan; what
//! depends on the machine stands apart as a host result.

use std::cell::RefCell;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use swath_arch::{Attributes, Coalescing, Extent, Format, PageRange, SliceMemory, Vpn};
use swath_frame::testing::lists::PaperLists;
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap};
use swath_vm::AddressSpace;

use crate::host::count::{CountError, Counter, Marks};
use crate::papers::page_buddy::freelist::designs;
use crate::papers::page_buddy::translation::{reach_frames, table_extent};
use crate::source::memory::{Allocator, PrepareError, Source, new_allocator, random};
use crate::source::real::Machine;
use crate::study::old::plan::{ContiguityBits, ListsPlan};
use crate::study::results::{
    Claim, Figure, FigureKind, HostResult, Point, Series, StudyResult, Unit,
};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};
use swath_trace::machine::snapshot::UnknownFrames;

/// Single frames that are taken and counted for one point of Fig. 20.
const DEMAND_FRAMES: u64 = 32;

/// The most steps of one counted region.
const STEPS_MAX: u64 = 20_000_000;

/// Timed runs of each point, of which the median counts.
const TIMED_RUNS: usize = 31;

/// How the free lists are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Structure {
    PaperLists,
    Bitmaps,
}

/// An allocator that is measured.
#[derive(Clone, PartialEq, Debug)]
struct Subject {
    name: String,
    structure: Structure,
    config: BuddyConfig,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// Fig. 19, all of Fig. 4: a request with its page table and contiguity.
    Eager,
    /// The request alone, without lines 17 to 21 of Fig. 4.
    Request,
    /// Fig. 20: single frames.
    Demand,
}

impl Work {
    const ALL: [Self; 3] = [Self::Eager, Self::Request, Self::Demand];

    fn figure(self) -> &'static str {
        match self {
            Self::Eager => "Fig. 19",
            Self::Request => "Fig. 19, allocator alone",
            Self::Demand => "Fig. 20",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Eager => "Eager paging, page table and contiguity included",
            Self::Request => "Eager paging, without the page table",
            Self::Demand => "Demand paging, a frame at a time",
        }
    }
}

/// BBS, then each PBS, each on every structure. Lists are left out on a real
/// machine: putting tens of thousands of extents into order takes them minutes.
fn subjects(plan: &ListsPlan, real: bool) -> Result<Vec<Subject>, StudyError> {
    let mut subjects = Vec::new();
    for (name, config) in designs(plan)? {
        if !real {
            let lists = format!("{name} (lists)");
            subjects.push(Subject { name: lists, structure: Structure::PaperLists, config });
        }
        subjects.push(Subject { name, structure: Structure::Bitmaps, config });
    }
    Ok(subjects)
}

/// The memory of one point.
#[derive(Clone, Copy)]
enum Memory<'a> {
    /// Free blocks of so many frames.
    Blocks(u64),
    /// A real machine's.
    Machine(&'a Machine),
}

impl Memory<'_> {
    /// The points of a study.
    fn all<'a>(plan: &ListsPlan, machine: Option<&'a Machine>) -> Vec<Memory<'a>> {
        match machine {
            Some(machine) => vec![Memory::Machine(machine)],
            None => plan.block_frames.iter().map(|&size| Memory::Blocks(size)).collect(),
        }
    }

    fn source(&self, plan: &ListsPlan) -> Source<'_> {
        match self {
            Memory::Blocks(size) => Source::blocks(*size, plan.free_frames, plan.free_share),
            Memory::Machine(machine) => Source::Free(&machine.free),
        }
    }

    /// The point with this value.
    fn point(&self, y: f64) -> Point {
        match self {
            Memory::Blocks(size) => Point::at(*size as f64, y),
            Memory::Machine(machine) => Point::named(machine.name.clone(), y),
        }
    }
}

/// Hands `visit` the subject over this memory.
fn with_subject<T>(
    subject: &Subject,
    plan: &ListsPlan,
    memory: Memory<'_>,
    visit: impl FnOnce(&RefCell<dyn FrameAllocator>) -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    let source = memory.source(plan);
    let mut random = random(plan.about.seed, 0);
    let failed = |error: PrepareError| plan_failed(plan, &error);
    match subject.structure {
        Structure::Bitmaps => {
            let prepared: Allocator =
                source.prepare(subject.config, &mut random).map_err(failed)?;
            visit(&RefCell::new(prepared))
        }
        Structure::PaperLists => {
            // The same blocks, as the areas of a map that is wholly free.
            let mut ranges = Vec::new();
            let blocks: Allocator =
                source.prepare(BuddyConfig::BBS, &mut random).map_err(failed)?;
            blocks.for_each_free(&mut |block| ranges.push(ByteRange::of_frames(block)));
            let mut areas = vec![Extent::default(); ranges.len()];
            let map = MemoryMap::new(&ranges, &mut areas).map_err(|error| failed(error.into()))?;
            visit(&RefCell::new(PaperLists::new(&map, subject.config)))
        }
    }
}

fn plan_failed(plan: &ListsPlan, error: &dyn std::fmt::Display) -> StudyError {
    StudyError::Machine { study: plan.about.study.clone(), what: error.to_string() }
}

/// Prepares the work, lets `measure` run it once, and checks what it did.
fn perform(
    allocator: &RefCell<dyn FrameAllocator>,
    plan: &ListsPlan,
    work: Work,
    measure: &mut dyn FnMut(&mut dyn FnMut()),
) -> Result<(), StudyError> {
    let request = PageRange::new(Vpn::new(0x100), plan.request_frames);
    let mut frames = 0;
    let before = allocator.borrow().free_frames();
    match work {
        Work::Request => measure(&mut || {
            let sink = &mut |block: Extent| frames += block.count;
            black_box(allocator.borrow_mut().allocate(request.count, sink).is_ok());
        }),
        Work::Demand => {
            let mut allocator = allocator.borrow_mut();
            measure(&mut || {
                for _ in 0..DEMAND_FRAMES {
                    frames += u64::from(black_box(allocator.allocate_frame()).is_some());
                }
            });
        }
        Work::Eager => {
            let failed = |error: &dyn std::fmt::Display| plan_failed(plan, error);
            let extent = table_extent(reach_frames(Format::ArmV7), &[request]);
            let mut words = vec![0; extent.count as usize * 512];
            let memory = SliceMemory::new(extent.start, &mut words);
            let tables: RefCell<Allocator> = RefCell::new(
                new_allocator(extent, BuddyConfig::BBS, true).map_err(|error| failed(&error))?,
            );
            let coalescing = Coalescing::Pcad(ContiguityBits::Ideal(16).field());
            let mut space =
                AddressSpace::new(Format::ArmV7, coalescing, &memory, allocator, &tables)
                    .map_err(|error| failed(&error))?;
            measure(&mut || {
                let sink = &mut |block: Extent| frames += block.count;
                black_box(space.allocate_eager(request, Attributes::USER_DATA, sink).is_ok());
            });
            drop(space);
            // The space has given everything back.
            return check_taken(plan, frames, before - allocator.borrow().free_frames(), 0);
        }
    }
    let taken = before - allocator.borrow().free_frames();
    check_taken(plan, frames, taken, frames)
}

/// The frames that the allocator says it gave are those that are missing.
fn check_taken(plan: &ListsPlan, frames: u64, taken: u64, expected: u64) -> Result<(), StudyError> {
    if frames == 0 || taken != expected {
        let what = format!("{frames} frames handed out, {taken} missing, not {expected}");
        return Err(plan_failed(plan, &what));
    }
    Ok(())
}

/// The child: runs every region of one subject between marks.
///
/// # Errors
/// What went wrong, for the program to say.
pub fn count_child(
    plan: &str,
    subject: usize,
    machine: Option<&Machine>,
) -> Result<(), Box<dyn std::error::Error>> {
    let plan: ListsPlan = serde_json::from_str(plan)?;
    let subjects = subjects(&plan, machine.is_some())?;
    let subject = subjects.get(subject).ok_or("no such subject")?;
    let mut marks = Marks::begin()?;
    for memory in Memory::all(&plan, machine) {
        for work in Work::ALL {
            let mut marked = Ok(());
            with_subject(subject, &plan, memory, |allocator| {
                perform(allocator, &plan, work, &mut |work| marked = marks.region("", work))
            })?;
            marked?;
        }
    }
    Ok(())
}

/// Instructions of one subject: each work of each counted size.
type Counts = Vec<[u64; Work::ALL.len()]>;

/// The parent's side of [`count_child`].
fn count(
    plan: &ListsPlan,
    subject: usize,
    machine: Option<&Machine>,
) -> Result<Counts, CountError> {
    let mut command = Command::new(std::env::current_exe().map_err(CountError::Spawn)?);
    let json = serde_json::to_string(plan).unwrap_or_default();
    let file = machine.and_then(|machine| machine.file.clone());
    let unknown_free = machine.is_some_and(|machine| machine.unknown == UnknownFrames::Free);
    let job = serde_json::to_string(&(json, subject, file, unknown_free)).unwrap_or_default();
    command.args(["child", "count-allocation", &job]);
    let mut counter = Counter::spawn(command, STEPS_MAX)?;
    let mut counts = vec![[0; Work::ALL.len()]; Memory::all(plan, machine).len()];
    for count in counts.iter_mut().flatten() {
        match counter.next_region()? {
            Some(region) => *count = region.instructions,
            None => return Err(CountError::Protocol("fewer regions than expected".to_owned())),
        }
    }
    Ok(counts)
}

/// Nanoseconds of each subject's work on one memory, medians, the subjects
/// taken in turn.
fn time(
    plan: &ListsPlan,
    subjects: &[Subject],
    memory: Memory<'_>,
    work: Work,
) -> Result<Vec<f64>, StudyError> {
    let mut times = vec![Vec::with_capacity(TIMED_RUNS); subjects.len()];
    for _ in 0..TIMED_RUNS {
        for (subject, times) in subjects.iter().zip(&mut times) {
            with_subject(subject, plan, memory, |allocator| {
                perform(allocator, plan, work, &mut |work| {
                    let start = Instant::now();
                    work();
                    times.push(start.elapsed().as_nanos() as f64);
                })
            })?;
        }
    }
    Ok(times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[TIMED_RUNS / 2]
        })
        .collect())
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &ListsPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let plan = &if run.quick { plan.quick() } else { plan.clone() };
    let about = &plan.about;
    let machine = run.real.memory.as_deref();
    let subjects = subjects(plan, machine.is_some())?;
    let memories = Memory::all(plan, machine);
    // How many structures each design has.
    let structures = if machine.is_some() { 1 } else { 2 };
    // A quick run counts the paper's two designs alone.
    let counted = if run.quick { 2 * structures } else { subjects.len() };
    let indices: Vec<usize> = (0..counted).collect();
    let counted = run.points(about, &indices, |&i| match count(plan, i, machine) {
        Ok(counts) => Ok(Ok(counts)),
        // The rest of the study does not need the counts.
        Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(plan_failed(plan, &error)),
    })?;
    let counted: Result<Vec<Counts>, String> = counted.into_iter().collect();

    let (kind, x, x_label) = if machine.is_some() {
        (FigureKind::Bars, "memory", "memory")
    } else {
        (FigureKind::LinesLog2, "free_block_frames", "free block size (pages)")
    };
    let mut host = HostResult::new(&about.study, host_name(), Vec::new());
    match &counted {
        Err(why) => host.notes.push(format!("Instructions were not measured: {why}.")),
        Ok(counted) => {
            for (w, work) in Work::ALL.into_iter().enumerate() {
                let id = work.figure();
                let (per, frames) = match work {
                    Work::Demand => ("instructions for a page".to_owned(), DEMAND_FRAMES),
                    _ => (format!("instructions for {} pages", plan.request_frames), 1),
                };
                host.figures.push(Figure::new(id, work.title(), kind, x_label, &per));
                for (subject, counts) in subjects.iter().zip(counted) {
                    let points = memories.iter().zip(counts);
                    let points = points
                        .map(|(memory, counts)| memory.point(counts[w] as f64 / frames as f64));
                    host.series.push(Series::new(id, x, "instructions", &subject.name, points));
                }
            }
            if plan.claims && machine.is_none() {
                host.claims = claims(&plan.block_frames, counted);
            }
        }
    }
    for work in Work::ALL {
        let id = format!("{}, time", work.figure());
        let y = "time (PBS / BBS)";
        host.figures.push(
            Figure::new(&id, work.title(), kind, x_label, y).with_caption(
                "Medians of runs taken in turn, PBS against BBS on the same structure.",
            ),
        );
        let mut ratios: Vec<Vec<Point>> = vec![Vec::new(); subjects.len()];
        for memory in &memories {
            let times = time(plan, &subjects, *memory, work)?;
            for (i, ratios) in ratios.iter_mut().enumerate().skip(structures) {
                ratios.push(memory.point(times[i] / times[i % structures].max(1.0)));
            }
        }
        for (subject, points) in subjects.iter().zip(ratios).skip(structures) {
            host.series.push(Series::new(&id, x, "time_ratio", &subject.name, points));
        }
    }

    let blocks_id = "Blocks for a request";
    let figures = vec![Figure::new(
        blocks_id,
        &format!("Blocks that serve {} pages", plan.request_frames),
        kind,
        x_label,
        "blocks",
    )];
    let mut series = Vec::new();
    for subject in subjects.iter().filter(|subject| subject.structure == Structure::Bitmaps) {
        let mut points = Vec::new();
        for memory in &memories {
            let blocks = with_subject(subject, plan, *memory, |allocator| {
                let mut blocks = 0u64;
                let sink = &mut |_| blocks += 1;
                let served = allocator.borrow_mut().allocate(plan.request_frames, sink);
                served.map_err(|error| plan_failed(plan, &error))?;
                Ok(blocks)
            })?;
            points.push(memory.point(blocks as f64));
        }
        series.push(Series::new(blocks_id, x, "blocks", &subject.name, points));
    }
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            notes: vec![
                "\"Lists\" are the paper's structure: linked lists ordered by frame number, \
                 scanned from the highest order down. Without that word the same blocks come \
                 from bitmaps, where no order is scanned."
                    .to_owned(),
            ],
            ..run::result(about, plan, run, about.purpose.clone())
        },
        host: Some(host),
    })
}

/// The statements of section V-D, judged on instructions, for each structure.
fn claims(sizes: &[u64], counted: &[Counts]) -> Vec<Claim> {
    let mut claims = Vec::new();
    // As `subjects` has them: BBS on lists, BBS on bitmaps, then PBS likewise.
    for (structure, name) in [(0, "the paper's lists"), (1, "Swath's bitmaps")] {
        let (Some(bbs), Some(pbs)) = (counted.get(structure), counted.get(structure + 2)) else {
            return claims;
        };
        let ratio = |work: usize| {
            bbs.iter().zip(pbs).map(move |(bbs, pbs)| pbs[work] as f64 / bbs[work] as f64)
        };
        const EAGER: usize = 0;
        const DEMAND: usize = 2;
        let sized = || sizes.iter().zip(ratio(EAGER));
        let best = sized().filter(|(size, _)| **size <= 16).map(|(_, ratio)| 1.0 - ratio);
        let mean = |work| ratio(work).map(|r| 1.0 - r).sum::<f64>() / bbs.len() as f64;
        let mut claim = |place: &str, says: &str, paper: f64, measured: f64, cause: &str| {
            let says = format!("{says} ({name}, instructions)");
            let claim = Claim::within(place, &says, paper, measured, 0.05).with_unit(Unit::Share);
            claims.push(if claim.holds() { claim } else { claim.with_cause(cause) });
        };
        let fewer = "PBS serves the request in less than half as many blocks, and a block costs \
                     the same in both allocators; the paper's own code pays more for a block of \
                     PBS.";
        let place = "Section V-D, 1, Fig. 19";
        let says = "Eager, block sizes 1 to 16: PBS is up to 25% better than BBS";
        claim(place, says, 0.25, best.fold(f64::MIN, f64::max), fewer);
        if let Some((_, ratio)) = sized().find(|(size, _)| **size == 256) {
            let says = "Eager, block size 256: PBS is up to 9% worse than BBS";
            let cause = "No cost that BBS does not have too: neighbours are not looked for when a \
                         block is taken, and contiguity is written for both. What is left is the \
                         smaller number of blocks.";
            claim(place, says, 0.09, ratio - 1.0, cause);
        }
        claim(place, "Eager: PBS is on average 8% better than BBS", 0.08, mean(EAGER), fewer);
        let place = "Section V-D, 2, Fig. 20";
        let cause = if structure == 0 {
            "The gain depends on how a list implementation takes one frame from a longer node. \
             Here it shortens the node where it stands, while BBS splits a block once for each \
             order."
        } else {
            "No order is scanned in either allocator. What BBS pays is the splitting of large \
             blocks, order by order, so its cost grows with the size of the free blocks."
        };
        let says = "Demand: PBS is on average 17% better than BBS";
        claim(place, says, 0.17, mean(DEMAND), cause);
    }
    claims
}

/// The machine in words.
pub(crate) fn host_name() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = cpu.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!("{cpu}, {cores} cores, {}", std::env::consts::OS)
}
