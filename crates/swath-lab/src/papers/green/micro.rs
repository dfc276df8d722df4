//! The cost of what system calls ask of the page allocator, in instructions (Panwar and Gopinath,
//! Table VI).
//!
//! AIM9 counts operations in a second. What an operation does beside asking for pages is the same
//! under every allocator and is left out here, so a difference is larger than the paper's of the
//! whole operation. The requests of an operation are those of the kernel for a small process:
//!
//! | test | requests |
//! |---|---|
//! | `page_test` | 256 page faults in a heap of 1 MiB, which is then given back |
//! | `brk_test` | a page at the heap's end that is touched |
//! | `exec_test` | a stack of order 2, 4 page tables, 64 pages of the new image |
//! | `fork_test` | a stack of order 2, a slab of order 3, 4 page tables, 16 pages that are copied |
//! | `shared_memory` | a page of shared memory |
//!
//! They go to a machine with watermarks and per-CPU lists whose memory is aged: blocks of mixed
//! orders fill a share of it and are renewed at random.

use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::ZoneKind;
use swath_frame::{BlockRequest, Mobility};

use crate::host::count::{CountError, Counter, Marks};
use crate::host::machine::host_name;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::build::{Pages, pages};
use crate::papers::green::machine::config::{GreenConfig, MachineName};
use crate::papers::green::track::machine_bytes;
use crate::source::memory::random;
use crate::study::bounds::{Bounded, Distinct, Forms, Repeats, Share};
use crate::study::child::child_command;
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Metrics, metrics};
use crate::study::kind::{Drawn, HostShown, Shown, Study};
use crate::study::needs::Needs;
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// The cost of what system calls ask of the allocators.
pub struct Micro;

/// Operations on aged memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MicroPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of memories, each aged with other random numbers.
    pub repeats: Forms<Repeats>,
    /// The allocators.
    pub designs: Distinct<AllocatorName>,
    /// The share of memory in use, 0.05 to 0.95.
    pub used_share: Share,
    /// Times that as many blocks as there are have been renewed.
    pub rounds: Bounded<0, 100>,
    /// Operations of each test that are stepped.
    pub operations: Forms<Bounded<1, 1000>>,
}

crate::plan!(MicroPlan, check);

fn check(plan: &MicroPlan) -> Result<(), Refused> {
    let share = plan.used_share.get();
    require((0.05..=0.95).contains(&share), "used_share", || {
        format!("{share} is not between 0.05 and 0.95")
    })
}

/// A test of Table VI.
struct Test {
    name: &'static str,
    /// The paper's operations a second, Linux and Adaptive-Buddy.
    paper: [f64; 2],
    /// What an operation takes: how many blocks, of which order, for whom. All are given back.
    asks: &'static [(usize, u8, Mobility)],
}

const TESTS: [Test; 5] = {
    use Mobility::{Movable, Unmovable};
    [
        Test { name: "page_test", paper: [552_330.0, 559_781.0], asks: &[(256, 0, Movable)] },
        Test { name: "brk_test", paper: [3_716_713.0, 3_949_383.0], asks: &[(1, 0, Movable)] },
        Test {
            name: "exec_test",
            paper: [1396.0, 1390.0],
            asks: &[(1, 2, Unmovable), (4, 0, Unmovable), (64, 0, Movable)],
        },
        Test {
            name: "fork_test",
            paper: [3260.0, 3193.0],
            asks: &[(1, 2, Unmovable), (1, 3, Unmovable), (4, 0, Unmovable), (16, 0, Movable)],
        },
        Test { name: "shared_memory", paper: [1_054_128.0, 1_053_623.0], asks: &[(1, 0, Movable)] },
    ]
};

/// The largest difference in Table VI, that of `brk_test`: the paper sees "no apparent
/// difference" in what is no larger.
const LARGEST: f64 = 0.0626;

/// The measurements.
pub struct MicroFound {
    grid: Grid,
    uncounted: Option<String>,
}

const DESIGN: &str = "design";
const TEST: &str = "test";
const INSTRUCTIONS: &str = "instructions";

/// The most steps of one test.
const STEPS_MAX: u64 = 200_000_000;

impl Study for Micro {
    const KIND: &'static str = "green-micro";
    type Plan = MicroPlan;
    type Found = MicroFound;

    fn seeds(plan: &MicroPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(_: &MicroPlan, _: &Run<'_>) -> Needs {
        Needs::small().each("designs", machine_bytes(MachineName::FourGib.load().frames))
    }

    fn measure(plan: &MicroPlan, run: &Run<'_>) -> Result<MicroFound, StudyError> {
        let repeats = plan.repeats.of(run.quick).get();
        let of = |&design: &AllocatorName| (0..repeats).map(move |repeat| (design, repeat));
        let jobs: Vec<MicroJob> = plan
            .designs
            .iter()
            .flat_map(of)
            .map(|(design, repeat)| MicroJob {
                plan: plan.clone(),
                quick: run.quick,
                design,
                repeat,
            })
            .collect();
        let counted = run.points(&plan.about, &jobs, |job| match count(job) {
            Ok(counts) => Ok(Ok(counts)),
            // What is left of the study says why there are no counts.
            Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
                Ok(Err(error.to_string()))
            }
            Err(error) => {
                let what = error.to_string();
                Err(StudyError::Machine { study: plan.about.study.clone(), what })
            }
        })?;
        let mut grid = Grid::new(&[DESIGN, TEST], usize::try_from(repeats).unwrap_or(usize::MAX));
        let uncounted = counted.iter().find_map(|counts| counts.clone().err());
        let counted: Vec<Vec<f64>> = counted.into_iter().filter_map(Result::ok).collect();
        if uncounted.is_none() {
            for (design, runs) in plan.designs.iter().zip(counted.chunks(repeats as usize)) {
                for (nth, test) in TESTS.iter().enumerate() {
                    let metrics: Vec<Metrics> =
                        runs.iter().map(|run| metrics([(INSTRUCTIONS, run[nth])])).collect();
                    grid.add(vec![design.title().into(), test.name.into()], &metrics);
                }
            }
        }
        Ok(MicroFound { grid, uncounted })
    }

    fn claims(_: &MicroPlan, _: &Run<'_>) -> Vec<Statement<MicroFound>> {
        let names = [(AllocatorName::Adaptive, ""), (AllocatorName::AdaptivePacked, "Beyond, ")];
        let of = |test: &'static Test| names.map(|(name, beyond)| claim(test, name, beyond));
        TESTS.iter().flat_map(of).collect()
    }

    fn show(plan: &MicroPlan, run: &Run<'_>, found: &MicroFound) -> Shown {
        let title = "what an operation's requests for pages cost";
        let figure = Figure::new("Table VI", title, FigureKind::Bars, "test", "instructions");
        let series = plan.designs.iter().map(|design| {
            let title = design.title();
            let of = |grid: &Grid| {
                grid.points(TEST, |all| all.is(DESIGN, title), |cell| cell.get(INSTRUCTIONS))
            };
            Series::new("Table VI", TEST, INSTRUCTIONS, title, of(&found.grid))
        });
        let drawn = Drawn { figure, series: series.collect() };
        let counted = match &found.uncounted {
            Some(why) => format!("Instructions were not measured: {why}."),
            None => format!(
                "The mean of {} operations in a row on one processor, after as many that were not \
                 counted.",
                plan.operations.of(run.quick),
            ),
        };
        let notes = vec![
            format!(
                "A machine of 4 GiB, {:.0}% in use by blocks of orders 0 to 9 that have come and \
                 gone {} times.",
                100.0 * plan.used_share.get(),
                plan.rounds,
            ),
            "The requests for pages alone, of the kernel's work in each operation; the paper's \
             other tests ask for single pages as `brk_test` does, or for none."
                .to_owned(),
        ];
        let figures = if found.uncounted.is_some() { Vec::new() } else { vec![drawn] };
        let host = HostShown { machine: host_name(), figures, notes: vec![counted] };
        Shown { finding: String::new(), figures: Vec::new(), notes, host: Some(host) }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        count_child(&serde_json::from_str(job)?)
    }
}

/// The statement on a test: a slowdown no larger than what the paper calls none.
fn claim(test: &'static Test, name: AllocatorName, beyond: &str) -> Statement<MicroFound> {
    let [linux, own] = test.paper;
    let says = format!(
        "{beyond}{}: the requests of {} take no longer than Linux's, within the table's largest \
         difference (the paper's operations a second: {:+.2}%)",
        name.title(),
        test.name,
        100.0 * (own / linux - 1.0),
    );
    let statement = Statement::at_most("Table VI", &says, 1.0, LARGEST).unit(Unit::Ratio).cause(
        "Only what is asked of the page allocator is counted, so that nothing else of the \
         operation makes the difference small.",
    );
    statement.on_host().measured(move |found: &MicroFound| {
        found.grid.evidence(|view| {
            let of = |name: AllocatorName| {
                view.select().is(DESIGN, name.title()).is(TEST, test.name).one(INSTRUCTIONS)
            };
            Ok(of(name)? / of(AllocatorName::Linux)?)
        })
    })
}

/// The work of a counted child: every test on one memory.
#[derive(Serialize, Deserialize)]
struct MicroJob {
    plan: MicroPlan,
    quick: bool,
    design: AllocatorName,
    repeat: u64,
}

/// Instructions of an operation of each test, which the job's child marks.
fn count(job: &MicroJob) -> Result<Vec<f64>, CountError> {
    let json = serde_json::to_string(job).unwrap_or_default();
    let command = child_command(Micro::KIND, &json).map_err(CountError::Spawn)?;
    let mut counter = Counter::spawn(command, STEPS_MAX)?;
    let mut counts = Vec::new();
    while let Some(region) = counter.next_region()? {
        counts.push(region.instructions as f64 / job.plan.operations.of(job.quick).get() as f64);
    }
    match counts.len() == TESTS.len() {
        true => Ok(counts),
        false => Err(CountError::Protocol(format!("{} regions", counts.len()))),
    }
}

/// A request on the first processor.
const fn request(order: Order, mobility: Mobility) -> BlockRequest {
    BlockRequest { order, mobility, highest: ZoneKind::Movable, node: 0, cpu: 0, urgent: false }
}

fn count_child(job: &MicroJob) -> Result<(), Box<dyn std::error::Error>> {
    let config = GreenConfig::new(job.design, MachineName::FourGib);
    let mut machine = pages(&config)?;
    age(&mut *machine, &job.plan, job.repeat)?;
    let operations = job.plan.operations.of(job.quick).get();
    let mut marks = Marks::begin()?;
    let mut held = Vec::with_capacity(1024);
    for test in &TESTS {
        let mut served = true;
        let mut work = || {
            for _ in 0..operations {
                served &= operation(&mut *machine, test.asks, &mut held);
            }
        };
        work();
        marks.region(test.name, &mut work)?;
        if !served {
            return Err(format!("{}: a request was refused", test.name).into());
        }
    }
    Ok(())
}

/// Takes what an operation asks for and gives it back. Returns true if all was served.
fn operation(
    machine: &mut dyn Pages,
    asks: &[(usize, u8, Mobility)],
    held: &mut Vec<Extent>,
) -> bool {
    let mut served = true;
    for &(count, order, mobility) in asks {
        let order = Order::known(order);
        for _ in 0..count {
            match machine.allocate(request(order, mobility)) {
                Some(start) => held.push(Extent::new(start, order.frames())),
                None => served = false,
            }
        }
    }
    for extent in held.drain(..) {
        served &= machine.free(extent, 0);
    }
    served
}

/// Fills a share of a machine's memory with blocks of mixed orders and renews them at random.
fn age(machine: &mut dyn Pages, plan: &MicroPlan, repeat: u64) -> Result<(), String> {
    let mut random = random(plan.about.seed, repeat);
    let frames = MachineName::FourGib.load().frames as f64;
    let goal = (frames * plan.used_share.get()) as u64;
    let (mut held, mut used): (Vec<(Pfn, Order)>, u64) = (Vec::new(), 0);
    let mut renewals = None;
    loop {
        while used < goal {
            // As many frames in each order as in any other.
            let order = Order::known(random.random_range(0..10_u8));
            let few = random.random_range(0..order.frames()) == 0;
            let mobility = match random.random_range(0..10) {
                0 => Mobility::Unmovable,
                _ => Mobility::Movable,
            };
            if !few {
                continue;
            }
            let Some(start) = machine.allocate(request(order, mobility)) else { break };
            held.push((start, order));
            used += order.frames();
        }
        let left = renewals.get_or_insert(held.len() as u64 * plan.rounds.get());
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        let (start, order) = held.swap_remove(random.random_range(0..held.len()));
        used -= order.frames();
        if !machine.free(Extent::new(start, order.frames()), 0) {
            return Err(format!("block {start} was not in use"));
        }
    }
}
