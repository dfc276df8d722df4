//! The cost of a kernel's operations, and of whole programs, under each allocator (Panwar and Gopinath, Tables V and VI).
//!
//! The paper runs AIM9's micro-benchmarks and PARSEC's programs on two kernels and compares operations a second and
//! execution times. Here each was run on a real kernel, and what it asked of the page allocator recorded; the recordings
//! are replayed on machines whose memory is in pieces, one for each allocator, and the instructions of its calls counted by
//! valgrind. What an operation takes besides is the paper's: its time on Linux. A program's is the time of its own run.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::callgrind::{self, Regions};
use crate::host::count::CountError;
use crate::host::machine::host_name;
use crate::papers::green::cost::rows::{PaperRow, TABLE_V, TABLE_VI};
use crate::papers::green::machine::age::AgeTarget;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::computer::drive_from;
use crate::papers::green::machine::config::{GreenConfig, MachineName};
use crate::papers::green::machine::start::Begin;
use crate::papers::green::machine::view::MachineView;
use crate::papers::green::pages::recordings::{RecordingError, read_recording, requests_bytes};
use crate::papers::green::pages::requests::{ReplayOp, TimedOp, duration_us, handles};
use crate::papers::green::pages::runs::{Recorded, Requests, Stretch};
use crate::papers::green::track::machine_bytes;
use crate::study::bounds::{Bounded, Distinct, Forms, Repeats, Share};
use crate::study::child::child_command;
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Metrics, Missing, metrics};
use crate::study::kind::{Drawn, HostShown, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Costs of a kernel's operations and of programs.
pub struct Operations;

/// Recorded tests of a kernel, and programs, on machines of each allocator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationsPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of memories in other pieces.
    pub repeats: Forms<Repeats>,
    /// The allocators.
    pub allocators: Forms<Distinct<AllocatorName>>,
    /// The memory.
    pub machine: MachineName,
    /// The share of it that is in use, 0.2 to 0.9.
    pub used_share: Share,
    /// The share of what is free that is in pages of 2 MiB, at most 0.9.
    pub huge_share: Share,
    /// Picoseconds that are taken for an instruction.
    pub instruction_ps: Bounded<1, 1_000_000>,
    /// The tests.
    pub tests: Distinct<TestPlan>,
    /// The programs.
    pub programs: Distinct<ProgramPlan>,
}

/// A recorded test.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestPlan {
    /// The recording: a file, or the name of one that comes with the program.
    pub recording: String,
    /// The operations that were done in it.
    pub operations: Bounded<1, 1_000_000_000_000>,
}

/// A recorded program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramPlan {
    /// The recording: a file, or the name of one that comes with the program.
    pub recording: String,
    /// The time of all processors that the run took, in milliseconds.
    pub run_ms: Bounded<1, 1_000_000_000_000>,
}

crate::plan!(OperationsPlan, check);

fn check(plan: &OperationsPlan) -> Result<(), Refused> {
    let (used, huge) = (plan.used_share.get(), plan.huge_share.get());
    require((0.2..=0.9).contains(&used), "used_share", || {
        format!("{used} is not between 0.2 and 0.9")
    })?;
    require(huge <= 0.9, "huge_share", || format!("{huge} is more than 0.9"))?;
    let recordings = plan.recordings();
    for (nth, this) in recordings.iter().enumerate() {
        let first = recordings.iter().position(|other| other.name == this.name);
        let key = match nth.checked_sub(plan.tests.len()) {
            None => format!("tests.{nth}.recording"),
            Some(nth) => format!("programs.{nth}.recording"),
        };
        require(first == Some(nth), &key, || format!("{:?} stands there already", this.name))?;
    }
    Ok(())
}

/// A recording, and how often it has what is counted: an operation, or a program as a whole.
#[derive(Clone, Copy)]
struct Recording<'p> {
    name: &'p String,
    operations: u64,
}

impl OperationsPlan {
    /// The recordings of tests, and those of programs, in the order in which they are replayed.
    fn recordings(&self) -> Vec<Recording<'_>> {
        let tests = self.tests.iter().map(|test| (&test.recording, test.operations.get()));
        let programs = self.programs.iter().map(|program| (&program.recording, 1));
        let all = tests.chain(programs);
        all.map(|(name, operations)| Recording { name, operations }).collect()
    }

    fn target(&self) -> AgeTarget {
        let (used, huge) = (self.used_share.get(), self.huge_share.get());
        AgeTarget { used, huge, ..AgeTarget::default() }
    }
}

/// The measurements.
pub struct OperationsFound {
    /// Requests of an operation in each test, and of each program.
    requests: Grid,
    /// Instructions of the allocator in an operation of each test and in each program, or the reason why they were not
    /// counted.
    counted: Result<Grid, String>,
}

const ALLOCATOR: &str = "allocator";
const TEST: &str = "test";
const INSTRUCTIONS: &str = "instructions";
const REQUESTS: &str = "requests";

impl Study for Operations {
    const KIND: &'static str = "green-operations";
    type Plan = OperationsPlan;
    type Found = OperationsFound;

    fn seeds(plan: &OperationsPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &OperationsPlan, _: &Run<'_>) -> Needs {
        let files = requests_bytes(plan.recordings().iter().map(|recording| recording.name));
        // Valgrind has a copy of what is known of each byte.
        let machine = bytes(&[3, machine_bytes(plan.machine.load().frames)]);
        Needs::small()
            .each("machine", machine)
            .each("tests", files.saturating_add(RECORDINGS_BYTES))
    }

    fn measure(plan: &OperationsPlan, run: &Run<'_>) -> Result<OperationsFound, StudyError> {
        measure(plan, run)
    }

    fn claims(plan: &OperationsPlan, _: &Run<'_>) -> Vec<Statement<OperationsFound>> {
        let each = TABLE_VI.iter().chain(&TABLE_V).flat_map(|row| {
            let asks = asks(plan, row);
            [AllocatorName::Adaptive, AllocatorName::AdaptivePacked]
                .map(|name| claim(plan, row, name, asks))
        });
        each.collect()
    }

    fn show(plan: &OperationsPlan, run: &Run<'_>, found: &OperationsFound) -> Shown {
        let host = HostShown {
            machine: host_name(),
            figures: host_figures(plan, run, found),
            notes: host_notes(plan, found),
        };
        let drawn = |id: &str, y: &str, names: Vec<&str>| {
            let title = "requests for blocks of frames";
            let figure = Figure::new(id, title, FigureKind::Bars, "", y);
            let requests = &found.requests;
            let points = requests.points(
                TEST,
                |all| all.all(TEST, names.iter().copied()),
                |cell| cell.get(REQUESTS),
            );
            let series = vec![Series::new(id, TEST, REQUESTS, "a real kernel", points)];
            Drawn { figure, series }
        };
        let tests = plan.tests.iter().map(|test| test.recording.as_str());
        let figures = vec![
            drawn("Requests of tests", "requests an operation", tests.collect()),
            drawn("Requests of programs", "requests a run", programs(plan)),
        ];
        Shown { finding: finding(plan, found), figures, notes: notes(plan, run), host: Some(host) }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        let job: OneAllocator = serde_json::from_str(job)?;
        let start = job.plan.target().start(job.plan.machine, job.seed)?;
        let (mut all, mut cpus) = (InTurn::default(), 1);
        for recording in job.plan.recordings() {
            let (own, its_cpus) = read_recording(Path::new(recording.name))?;
            all.append(&own);
            cpus = its_cpus.max(cpus);
        }
        let until_us = all.until_us;
        let begin = Begin { start: &start, held: &[], handles_from: all.handles };
        let config = GreenConfig { cpus, ..GreenConfig::new(job.allocator, job.plan.machine) };
        let mut requests = Tests::new(&all);
        let look = &mut |_: &dyn MachineView| true;
        drive_from(Some(begin), config, &mut requests, until_us, until_us, look)?;
        Ok(())
    }
}

/// The requests of recordings, one recording after the other.
#[derive(Default)]
struct InTurn {
    ops: Vec<TimedOp>,
    /// The number of requests up to the end of each.
    ends: Vec<usize>,
    /// Handles, and microseconds, of all.
    handles: u32,
    until_us: u64,
}

impl InTurn {
    /// Appends requests with handles of their own, which begin when those before them have ended.
    fn append(&mut self, more: &[TimedOp]) {
        let (ids_from, later_us) = (self.handles, self.until_us);
        self.ops.extend(more.iter().map(|&TimedOp { time_us, op }| TimedOp {
            time_us: time_us + later_us,
            op: op.renamed(|id| id + ids_from),
        }));
        self.ends.push(self.ops.len());
        self.handles += handles(more);
        self.until_us += duration_us(more);
    }
}

/// The requests of tests, one test after the other, with an empty region at the end of each: there callgrind says
/// what it has counted since the one before.
struct Tests<'r> {
    recorded: Recorded<'r>,
    regions: Regions,
    /// Requests that were handed out, and the numbers of them after which tests end.
    handed: usize,
    ends: &'r [usize],
}

impl<'r> Tests<'r> {
    fn new(InTurn { ops, ends, .. }: &'r InTurn) -> Self {
        Self { recorded: Recorded::new(ops, 0), regions: Regions::begin(), handed: 0, ends }
    }
}

impl Requests for Tests<'_> {
    fn next_stretch(&mut self) -> Option<Stretch<'_>> {
        while let [end, others @ ..] = self.ends
            && *end == self.handed
        {
            self.regions.region(&mut || ());
            self.ends = others;
        }
        self.handed += 1;
        self.recorded.next_stretch()
    }
}

/// Bytes of the requests of the recordings that come with the program.
const RECORDINGS_BYTES: u64 = 64 << 20;

/// The child's work: all recordings on one allocator with memory of one seed.
#[derive(Serialize, Deserialize)]
struct OneAllocator {
    plan: OperationsPlan,
    allocator: AllocatorName,
    seed: u64,
}

impl Recording<'_> {
    /// Requests of an operation.
    fn requests(self) -> Result<f64, RecordingError> {
        let (ops, _) = read_recording(Path::new(self.name))?;
        let requests = ops.iter().filter(|op| matches!(op.op, ReplayOp::Alloc { .. })).count();
        Ok(requests as f64 / self.operations as f64)
    }
}

fn measure(plan: &OperationsPlan, run: &Run<'_>) -> Result<OperationsFound, StudyError> {
    let failed = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
    let mut asked = Grid::new(&[TEST], 0);
    let recordings = plan.recordings();
    for recording in &recordings {
        let each = recording.requests().map_err(|error| failed(error.to_string()))?;
        asked.add(vec![recording.name.as_str().into()], &[metrics([(REQUESTS, each)])]);
    }
    if !callgrind::is_here() {
        let why = "valgrind is not installed".to_owned();
        return Ok(OperationsFound { requests: asked, counted: Err(why) });
    }
    let allocators = plan.allocators.of(run.quick);
    let repeats = Operations::seeds(plan, run.quick);
    let job = |allocator, repeat| OneAllocator {
        plan: plan.clone(),
        allocator,
        seed: plan.about.seed.wrapping_add(repeat),
    };
    let jobs = allocators.iter().flat_map(|&name| (0..repeats).map(move |nth| job(name, nth)));
    let jobs: Vec<OneAllocator> = jobs.collect();
    let counts = run.points(&plan.about, &jobs, |job| match count(job) {
        Ok(counts) => Ok(Ok(counts)),
        // The requests stand all the same.
        Err(error) => Ok(Err(format!("under valgrind, {error}"))),
    })?;
    let counts: Result<Vec<Vec<u64>>, String> = counts.into_iter().collect();
    let counted = counts.map(|counts| {
        let seeds = usize::try_from(repeats).unwrap_or(usize::MAX);
        let mut grid = Grid::new(&[ALLOCATOR, TEST], seeds);
        for (name, runs) in allocators.iter().zip(counts.chunks(seeds)) {
            for (nth, recording) in recordings.iter().enumerate() {
                let of = |counts: &Vec<u64>| counts[nth] as f64 / recording.operations as f64;
                let runs: Vec<Metrics> =
                    runs.iter().map(|run| metrics([(INSTRUCTIONS, of(run))])).collect();
                grid.add(vec![name.title().into(), recording.name.as_str().into()], &runs);
            }
        }
        grid
    });
    Ok(OperationsFound { requests: asked, counted })
}

/// The instructions of each recording of a job.
fn count(job: &OneAllocator) -> Result<Vec<u64>, CountError> {
    let json = serde_json::to_string(job).unwrap_or_default();
    let child = child_command(Operations::KIND, &json).map_err(CountError::Spawn)?;
    let counts = callgrind::count_calls_of_regions(&child)?;
    match counts.len() == job.plan.recordings().len() {
        true => Ok(counts),
        false => Err(CountError::Protocol(format!("{} regions", counts.len()))),
    }
}

/// Below so many requests an operation the page allocator is no part of a test.
const NO_PART: f64 = 0.01;

/// The seconds of an operation in the paper, or those that a program's run took.
fn seconds(plan: &OperationsPlan, row: &PaperRow) -> Option<f64> {
    let program = || plan.programs.iter().find(|program| program.recording == row.test);
    row.seconds.or_else(|| Some(program()?.run_ms.get() as f64 / 1000.0))
}

/// The share of so many seconds by which another allocator changes them, in both directions.
fn change(plan: &OperationsPlan, seconds: f64, own: f64, linux: f64) -> f64 {
    let instruction_s = plan.instruction_ps.get() as f64 * 1e-12;
    (own - linux).abs() * instruction_s / seconds
}

/// Returns false if the plan's recording of a test is known to ask for no memory to speak of.
fn asks(plan: &OperationsPlan, row: &PaperRow) -> bool {
    let recordings = plan.recordings();
    let recording = recordings.iter().find(|recording| recording.name == row.test);
    let asked = recording.and_then(|recording| recording.requests().ok());
    asked.is_none_or(|asked| asked >= NO_PART)
}

fn claim(
    plan: &OperationsPlan,
    row: &'static PaperRow,
    name: AllocatorName,
    asks: bool,
) -> Statement<OperationsFound> {
    let beyond = if name == AllocatorName::Adaptive { "" } else { "beyond the paper, " };
    let says = format!(
        "{}: {beyond}{} changes {} by no more than the runs of the paper differ{}",
        row.test,
        name.title(),
        if row.seconds.is_some() { "the time of an operation" } else { "the execution time" },
        if row.rounding > 0.0 { ", whose user times are whole seconds" } else { "" },
    );
    let statement = Statement::at_most(row.table, &says, row.difference, row.rounding)
        .unit(Unit::Share)
        .on_host();
    let statement =
        statement.cause("It counts in both directions which allocator takes more: the figures have the instructions of each.");
    let statement = match asks {
        true => statement,
        false => statement.identity(
            "the test asks for no memory once it has begun, so that no allocator could change it",
        ),
    };
    let plan = plan.clone();
    statement.measured(move |found: &OperationsFound| {
        let none = Grid::default();
        found.counted.as_ref().unwrap_or(&none).evidence(|view| {
            let cells = view.select().is(TEST, row.test);
            let of =
                |name: AllocatorName| cells.clone().is(ALLOCATOR, name.title()).one(INSTRUCTIONS);
            let (own, linux) = (of(name)?, of(AllocatorName::Linux)?);
            let no_time = || Missing { axis: TEST.to_owned(), lacks: "time of a run".to_owned() };
            Ok(change(&plan, seconds(&plan, row).ok_or_else(no_time)?, own, linux))
        })
    })
}

fn host_figures(plan: &OperationsPlan, run: &Run<'_>, found: &OperationsFound) -> Vec<Drawn> {
    let Ok(grid) = &found.counted else { return Vec::new() };
    let drawn = |id: &str, y: &str, tests: Vec<&str>| {
        let title = "instructions of the page allocator";
        let figure = Figure::new(id, title, FigureKind::Bars, "", y);
        let of = |name: &AllocatorName| {
            let title = name.title();
            let points = grid.points(
                TEST,
                |all| all.is(ALLOCATOR, title).all(TEST, tests.iter().copied()),
                |cell| cell.get(INSTRUCTIONS),
            );
            Series::new(id, TEST, INSTRUCTIONS, title, points)
        };
        Drawn { figure, series: plan.allocators.of(run.quick).iter().map(of).collect() }
    };
    let many = |asked: f64| asked >= MANY;
    let some = |asked: f64| asked >= NO_PART && !many(asked);
    let y = "instructions an operation";
    vec![
        drawn("Table VI, some requests", y, tests_by(plan, found, &some)),
        drawn("Table VI, many requests", y, tests_by(plan, found, &many)),
        drawn("Table V", "instructions a run", programs(plan)),
    ]
}

/// From so many requests an operation on, a test stands in a figure of its own.
const MANY: f64 = 10.0;

fn host_notes(plan: &OperationsPlan, found: &OperationsFound) -> Vec<String> {
    match &found.counted {
        Err(why) => vec![format!("Instructions were not counted: {why}.")],
        Ok(_) => vec![format!(
            "Instructions of the calls of a machine's page allocator, its per-CPU lists included, by valgrind. To \
             compare them with an operation's time in the paper, or with the time of a program's run, an instruction is taken for {:.2} ns.",
            plan.instruction_ps.get() as f64 / 1000.0,
        )],
    }
}

/// The names of the programs.
fn programs(plan: &OperationsPlan) -> Vec<&str> {
    plan.programs.iter().map(|program| program.recording.as_str()).collect()
}

/// The tests of which an operation asks so often.
fn tests_by<'p>(
    plan: &'p OperationsPlan,
    found: &OperationsFound,
    so_often: &dyn Fn(f64) -> bool,
) -> Vec<&'p str> {
    let tests = plan.tests.iter().map(|test| test.recording.as_str());
    let is_its = |test: &&str| {
        let asked = found.requests.evidence(|view| view.select().is(TEST, *test).one(REQUESTS));
        asked.is_ok_and(|asked| so_often(asked.estimate().value))
    };
    tests.filter(is_its).collect()
}

fn finding(plan: &OperationsPlan, found: &OperationsFound) -> String {
    let asking = tests_by(plan, found, &|asked| asked >= NO_PART);
    format!(
        "Of {} tests {} ask the page allocator for memory while they run: {}.",
        plan.tests.len(),
        asking.len(),
        asking.join(", "),
    )
}

fn notes(plan: &OperationsPlan, run: &Run<'_>) -> Vec<String> {
    vec![
        format!(
            "AIM9's tests were written anew from their descriptions and ran on Linux 6.18; what a process asked of the page \
             allocator was recorded (docs/formats.md). They are replayed, one after the other, on memory of which {:.0}% is in use and {:.0}% \
             of the rest lies in free pages of 2 MiB, in {} random ways.",
            100.0 * plan.used_share.get(),
            100.0 * plan.huge_share.get(),
            plan.repeats.of(run.quick),
        ),
        "So were PARSEC's programs, with 16 threads and smaller inputs. A run's time is that of all processors, as the \
         paper's system and user times together; the latter are whole seconds, and a second is added to what its runs \
         differ by. A short run asks for memory more often in its time than the paper's long ones."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::plan::read;
    use crate::study::verdict::Verdict;

    fn plan() -> OperationsPlan {
        read("green-operations", include_str!("operations.toml")).unwrap()
    }

    /// The plan's numbers of operations are those of the script that made the recordings.
    #[test]
    fn a_test_has_as_many_operations_as_were_recorded() {
        let script = include_str!("../../../../data/operations/record.sh");
        let (_, list) = script.split_once("<<'END'\n").unwrap();
        let lines = list.lines().take_while(|line| *line != "END");
        let of = |test: &TestPlan| format!("{} {}", test.recording, test.operations);
        assert!(lines.eq(plan().tests.iter().map(of)));
    }

    #[test]
    fn each_test_ends_with_a_region_and_its_handles_follow_the_one_before() {
        let op = |time_us, id| TimedOp { time_us, op: ReplayOp::Free { id } };
        let mut all = InTurn::default();
        for more in [&[op(3, 1), op(5, 0)][..], &[], &[op(1, 0)]] {
            all.append(more);
        }
        let mut tests = Tests::new(&all);
        let ops = tests.ops_before(u64::MAX).collect::<Vec<_>>();
        assert_eq!(ops, [op(3, 1), op(5, 0), op(7, 2)]);
        assert!(tests.ends.is_empty());
    }

    fn found(plan: &OperationsPlan, own: [f64; 3]) -> OperationsFound {
        let mut grid = Grid::new(&[ALLOCATOR, TEST], 3);
        for (name, runs) in [("Linux", [1000.0, 1001.0, 1002.0]), ("Adaptive-Buddy", own)] {
            for recording in plan.recordings() {
                let runs = runs.map(|count| metrics([(INSTRUCTIONS, count)]));
                grid.add(vec![name.into(), recording.name.as_str().into()], &runs);
            }
        }
        OperationsFound { requests: Grid::new(&[TEST], 0), counted: Ok(grid) }
    }

    /// The plan's programs are those of the script that made the recordings.
    #[test]
    fn programs_are_those_that_were_recorded() {
        let script = include_str!("../../../../data/programs/record.sh");
        let (_, list) = script.split_once("<<'END'\n").unwrap();
        assert!(list.lines().take_while(|line| *line != "END").eq(programs(&plan())));
        assert!(TABLE_V.iter().map(|row| row.test).all(|test| programs(&plan()).contains(&test)));
    }

    /// A fork takes 307 µs in the paper, which has a difference of 2.05%: 18,885 instructions of a
    /// third of a nanosecond.
    #[test]
    fn a_change_is_judged_by_the_time_of_the_operation() {
        let plan = plan();
        let judged = |own| {
            let fork = TABLE_VI.iter().find(|row| row.test == "fork_test").unwrap();
            claim(&plan, fork, AllocatorName::Adaptive, true).judge(&found(&plan, own)).verdict()
        };
        assert_eq!(judged([19_800.0, 19_801.0, 19_802.0]), Verdict::Holds);
        assert_eq!(judged([19_950.0, 19_951.0, 19_952.0]), Verdict::Differs);
        let none = OperationsFound { counted: Err(String::new()), ..found(&plan, [0.0; 3]) };
        let fork = TABLE_VI.iter().find(|row| row.test == "fork_test").unwrap();
        let claim = claim(&plan, fork, AllocatorName::Adaptive, true).judge(&none);
        assert_eq!(claim.verdict(), Verdict::NotMeasured);
    }

    /// Freqmine took 989.360 s on Linux and 983.382 s under Adaptive-Buddy: 0.604%, and 0.101% for the second. Of a run
    /// of a second that is 21.18 million instructions of a third of a nanosecond.
    #[test]
    fn a_program_is_judged_by_the_time_of_its_run() {
        let text = include_str!("operations.toml");
        let (_, after) = text.split_once("recording = \"freqmine\"\n").unwrap();
        let line = after.lines().next().unwrap();
        let plan = read("green-operations", &text.replace(line, "run_ms = 1000")).unwrap();
        let row = TABLE_V.iter().find(|row| row.test == "freqmine").unwrap();
        let judged = |own| {
            claim(&plan, row, AllocatorName::Adaptive, true).judge(&found(&plan, own)).verdict()
        };
        let claim = claim(&plan, row, AllocatorName::Adaptive, true);
        assert!(claim.describe().0.ends_with("differ, whose user times are whole seconds"));
        assert_eq!(judged([21_100_000.0, 21_100_001.0, 21_100_002.0]), Verdict::Holds);
        assert_eq!(judged([21_250_000.0, 21_250_001.0, 21_250_002.0]), Verdict::Differs);
    }

    /// A message through a pipe asks for no memory.
    #[test]
    fn what_asks_for_no_memory_is_no_claim() {
        let plan = plan();
        let verdict = |test| {
            let row = TABLE_VI.iter().find(|row| row.test == test).unwrap();
            let found = found(&plan, [1000.0; 3]);
            claim(&plan, row, AllocatorName::Adaptive, asks(&plan, row)).judge(&found).verdict()
        };
        assert_eq!(verdict("pipe_cpy"), Verdict::Identity);
        assert_eq!(verdict("exec_test"), Verdict::Holds);
    }

    #[test]
    fn a_test_stands_in_a_plan_once() {
        let text = include_str!("operations.toml").replace("\"tcp_test\"", "\"fifo_test\"");
        let refused = read::<OperationsPlan>("green-operations", &text).unwrap_err().to_string();
        assert!(refused.contains("tests.13.recording"), "{refused}");
        let text = include_str!("operations.toml").replace("\"x264\"", "\"fork_test\"");
        let refused = read::<OperationsPlan>("green-operations", &text).unwrap_err().to_string();
        assert!(refused.contains("programs.11.recording"), "{refused}");
    }
}
