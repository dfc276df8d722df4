//! The `swath` program: a thin layer of arguments, progress and exit codes over
//! the library.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use swath_hw::dram_trace::TraceFormat;
use swath_lab::access::{AccessKind, TraceError};
use swath_lab::access_event::Sampling;
use swath_lab::access_record::{RecordError, RecordOptions, record};
use swath_lab::content::FileError;
use swath_lab::green_allocator::AllocatorName;
use swath_lab::green_machine::MachineName;
use swath_lab::green_replay::{self, ReplayError, ReplayOptions, Source, Table};
use swath_lab::heap_events::HeapTotals;
use swath_lab::heap_events_file::HeapReader;
use swath_lab::heap_summary::HeapSummary;
use swath_lab::page_events::PageChange;
use swath_lab::page_events_file::PageReader;
use swath_lab::page_events_live::{self, PageRecordError, PageRecordOptions};
use swath_lab::plan::Plan;
use swath_lab::plan_green::LoadName;
use swath_lab::real::{InputError, Machine, RealInput, Trace};
use swath_lab::snapshot::{FrameKind, RunLengths, Snapshot, UnknownFrames};
use swath_lab::studies::{self, BUILT_IN};
use swath_lab::study::{Run, StudyError, Watch};
use swath_lab::workload::WorkloadName;
use swath_lab::{
    cl_latency, green_cost, heap_record, page_replay, pbs_allocation, pbs_system, real_memory,
    report, rt_run, snapshot_live,
};

/// The laboratory of contiguous memory: what an allocator, a TLB or a memory
/// policy does on a workload.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 done; 1 a study, a file or a system call failed; \
                  2 wrong arguments or a plan that cannot be run; 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run studies and write the report: figures, tables, data.
    Study(StudyArgs),
    /// Read which frames of this Linux machine are free and what the others
    /// hold.
    Snapshot {
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        out: PathBuf,
        /// Print the summary as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Record a real program.
    #[command(subcommand)]
    Record(RecordCommand),
    /// Write what the memory is asked for in the timed system, as a trace that
    /// Ramulator 2.1 or DRAMsim3 reads.
    Export {
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        out: PathBuf,
        /// The simulator.
        #[arg(long, value_enum, default_value = "dramsim3")]
        format: Simulator,
        /// TRAD, PCAD, AT or PBS.
        #[arg(long, default_value = "PBS")]
        design: String,
        /// The size of the free blocks that memory is made of.
        #[arg(long, value_name = "FRAMES", default_value_t = 4,
              value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
        block_frames: u64,
        /// The workload, as a plan writes it: rotated-display.
        workload: String,
    },
    /// Run a recording of page events, or a synthetic load, through page
    /// allocators and compare what they leave of the memory.
    Replay(ReplayArgs),
    /// Say what a snapshot, a recording of page events or of a heap, or a
    /// trace holds.
    Show {
        /// The file.
        file: PathBuf,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure one kind of this machine's memory, for a study.
    #[command(hide = true)]
    MeasureMemory {
        /// What to measure, as JSON.
        request: String,
    },
    /// Run the regions of one subject whose instructions a study counts.
    #[command(hide = true)]
    CountAllocation {
        /// The plan, as JSON.
        plan: String,
        /// Which subject.
        subject: usize,
        /// A real machine's memory.
        #[arg(long, value_name = "FILE")]
        memory: Option<PathBuf>,
        /// Count its unknown frames as free.
        #[arg(long)]
        unknown_free: bool,
    },
    /// Run the calls of a heap that a study counts.
    #[command(hide = true)]
    CountHeap {
        /// What is to be done, as JSON.
        job: String,
    },
    /// Run the allocations that a study counts.
    #[command(hide = true)]
    CountTakes {
        /// What is to be done, as JSON.
        job: String,
    },
    /// Make the requests that a study counts or times.
    #[command(hide = true)]
    MeasureRequests {
        /// What is to be done, as JSON.
        job: String,
    },
}

/// Whose trace format.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Simulator {
    Ramulator,
    Dramsim3,
}

#[derive(Subcommand)]
enum RecordCommand {
    /// Every memory access of a command, and what it does to its address
    /// space, by valgrind's lackey.
    Accesses {
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        out: PathBuf,
        /// Stop after so many accesses.
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// Write only so many accesses at a stretch, and what can fault in
        /// between; with --every.
        #[arg(long, value_name = "N", requires = "every")]
        burst: Option<u64>,
        /// Begin such a stretch every so many accesses.
        #[arg(long, value_name = "N", requires = "burst")]
        every: Option<u64>,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// What a command does with its heap: every allocation and release, and
    /// the accesses to what is allocated, by valgrind's lackey.
    Heap {
        /// The file to write.
        #[arg(short, long, value_name = "FILE", default_value = "heap.swheap")]
        out: PathBuf,
        /// Stop after so many accesses, fetches and all others included.
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// Write only so many accesses to blocks at a stretch, and the first
        /// to each piece of a block in between; with --every.
        #[arg(long, value_name = "N", requires = "every")]
        burst: Option<u64>,
        /// Begin such a stretch every so many accesses to blocks.
        #[arg(long, value_name = "N", requires = "burst")]
        every: Option<u64>,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// What the kernel's page allocator does while a command runs.
    ///
    /// Reads the kernel's tracepoints kmem:mm_page_* through tracefs, as root.
    Pages {
        /// The file to write.
        #[arg(short, long, value_name = "FILE", default_value = "pages.swpages")]
        out: PathBuf,
        /// The whole system instead of the command and its children.
        #[arg(long)]
        system: bool,
        /// The kernel's buffer for each processor.
        #[arg(long, value_name = "N", default_value_t = page_events_live::BUFFER_KIB,
              value_parser = clap::value_parser!(u64).range(64..=1 << 22))]
        buffer_kib: u64,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(Args)]
struct ReplayArgs {
    /// A recording, from `swath record pages`; "compile" and "files" come with
    /// the program.
    #[arg(required_unless_present = "load")]
    file: Option<PathBuf>,
    /// A synthetic load instead: 10 to 50% or 30 to 80% of memory in use.
    #[arg(long, value_enum, conflicts_with = "file")]
    load: Option<LoadName>,
    /// For so many simulated hours.
    #[arg(long, value_name = "N", conflicts_with = "file", default_value_t = 1.0)]
    hours: f64,
    /// Its random numbers.
    #[arg(long, value_name = "N", conflicts_with = "file", default_value_t = 1)]
    seed: u64,
    /// The memory: 4 GiB, or 32 GiB in two nodes.
    #[arg(long, value_enum, default_value = "4g")]
    machine: MachineName,
    /// An allocator; can be repeated; all if none is named.
    #[arg(long, value_enum, value_name = "NAME")]
    allocator: Vec<AllocatorName>,
    /// Empty banks by migration.
    #[arg(long)]
    migrate: bool,
    /// Rows of each table, evenly over the time.
    #[arg(long, value_name = "N", default_value_t = 6,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rows: u64,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct StudyArgs {
    /// The studies; all of them, in their quick form, if none is named.
    names: Vec<String>,
    /// A plan of your own instead of the built-in ones; can be repeated.
    #[arg(long, value_name = "FILE", conflicts_with = "names")]
    plan: Vec<PathBuf>,
    /// Where the report goes.
    #[arg(long, value_name = "DIR", default_value = "report")]
    out: PathBuf,
    /// Fewer repeats of each point.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All repeats of each point, also when no study is named.
    #[arg(long)]
    full: bool,
    /// Use the free frames of a real machine, from `swath snapshot`.
    #[arg(long, value_name = "FILE")]
    memory: Option<PathBuf>,
    /// Count the frames of a snapshot whose state is unknown as free.
    #[arg(long, requires = "memory")]
    unknown_free: bool,
    /// Use the accesses of a real program: valgrind lackey's text, ChampSim's
    /// records or `swath record accesses`, plain or compressed.
    #[arg(long, value_name = "FILE")]
    accesses: Option<PathBuf>,
    /// Measure this machine, too: superpages in the study of that name.
    #[arg(long)]
    real: bool,
    /// Another seed than the plan's.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; as many as processors if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
    /// List the built-in studies and stop.
    #[arg(long)]
    list: bool,
}

/// Prints a line. A reader who has seen enough and closed the pipe is no error.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// A failure and its exit code.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: impl std::fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::new(1, error)
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        let code = match error {
            StudyError::Interrupted => 130,
            StudyError::Plan(_) | StudyError::TooFull(_) => 2,
            _ => 1,
        };
        Self::new(code, error)
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Study(args) => study(&args),
        Command::Snapshot { out, json } => snapshot(&out, json),
        Command::Record(RecordCommand::Accesses { out, limit, burst, every, command }) => {
            record_accesses(&out, limit, sampling(burst, every), &command)
        }
        Command::Record(RecordCommand::Heap { out, limit, burst, every, command }) => {
            record_heap(&out, limit, sampling(burst, every), &command)
        }
        Command::Record(RecordCommand::Pages { out, system, buffer_kib, command }) => {
            record_pages(&out, system, buffer_kib, &command)
        }
        Command::Export { out, format, design, block_frames, workload } => {
            export(&out, format, &design, block_frames, &workload)
        }
        Command::Replay(args) => replay(args),
        Command::Show { file, json } => show(&file, json),
        Command::MeasureMemory { request } => real_memory::child(&request)
            .map(|answer| say!("{answer}"))
            .map_err(|error| Failure::new(1, error)),
        Command::CountAllocation { plan, subject, memory, unknown_free } => {
            count_allocation(&plan, subject, memory.as_deref(), unknown_free)
        }
        Command::CountHeap { job } => {
            rt_run::count_child(&job).map_err(|error| Failure::new(1, error))
        }
        Command::CountTakes { job } => {
            green_cost::count_child(&job).map_err(|error| Failure::new(1, error))
        }
        Command::MeasureRequests { job } => cl_latency::child(&job)
            .map(|answer| say!("{answer}"))
            .map_err(|error| Failure::new(1, error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "swath: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

/// A bar on standard error, none where that is not a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{msg:18} {bar:40} {pos:>4}/{len:4} {elapsed:>4} left {eta}",
        );
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Watch for Bar {
    fn begin(&self, study: &str, points: u64) {
        self.0.reset();
        self.0.set_length(points);
        self.0.set_message(study.to_owned());
    }

    fn point(&self) {
        self.0.inc(1);
    }

    fn cancelled(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}

/// The first Ctrl-C stops at the next point, the second at once.
fn watch_for_interrupts() {
    // Without a handler Ctrl-C still stops the program, and temporary files are
    // all that it can leave.
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

fn plans(args: &StudyArgs) -> Result<Vec<Plan>, Failure> {
    let parse =
        |name: &str, text: &str| Plan::parse(name, text).map_err(|error| Failure::new(2, error));
    if !args.plan.is_empty() {
        return args
            .plan
            .iter()
            .map(|path| {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Failure::new(2, format!("{}: {error}", path.display())))?;
                parse(&path.display().to_string(), &text)
            })
            .collect();
    }
    if args.names.is_empty() {
        return BUILT_IN.iter().map(|(name, text)| parse(name, text)).collect();
    }
    args.names
        .iter()
        .map(|wanted| match BUILT_IN.iter().find(|(name, _)| name == wanted) {
            Some((name, text)) => parse(name, text),
            None => {
                let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                Err(Failure::new(2, format!("no study {wanted:?}; there are {}", names.join(", "))))
            }
        })
        .collect()
}

fn machine(file: Option<&Path>, unknown_free: bool) -> Result<Option<Machine>, Failure> {
    let unknown = if unknown_free { UnknownFrames::Free } else { UnknownFrames::Used };
    Ok(file.map(|file| Machine::load(Some(file), unknown)).transpose()?)
}

fn real_input(args: &StudyArgs) -> Result<RealInput, Failure> {
    let memory = machine(args.memory.as_deref(), args.unknown_free)?.map(Arc::new);
    Ok(RealInput { memory, accesses: args.accesses.clone(), measure: args.real })
}

fn count_allocation(
    plan: &str,
    subject: usize,
    memory: Option<&Path>,
    unknown_free: bool,
) -> Result<(), Failure> {
    let machine = machine(memory, unknown_free)?;
    pbs_allocation::count_child(plan, subject, machine.as_ref())
        .map_err(|error| Failure::new(1, error))
}

fn study(args: &StudyArgs) -> Result<(), Failure> {
    let mut plans = plans(args)?;
    if args.list {
        for plan in &plans {
            say!("{:18} {}", plan.about().study, plan.about().title);
        }
        return Ok(());
    }
    if args.real && !plans.iter().any(|plan| plan.about().kind.measures_machine()) {
        return Err(Failure::new(2, "--real: none of these studies measures this machine"));
    }
    if let Some(seed) = args.seed {
        plans.iter_mut().for_each(|plan| plan.about_mut().seed = seed);
    }
    for (i, plan) in plans.iter().enumerate() {
        let study = &plan.about().study;
        if plans[..i].iter().any(|other| other.about().study == *study) {
            return Err(Failure::new(2, format!("study {study:?} is given twice")));
        }
    }
    let real = real_input(args)?;
    watch_for_interrupts();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.jobs.unwrap_or(0).into())
        .build()
        .map_err(|error| Failure::new(1, error))?;
    let bar = Bar::new();
    let named = !args.names.is_empty() || !args.plan.is_empty();
    let run = Run { quick: args.quick || !(named || args.full), real: &real, watch: &bar };
    let mut written = Vec::new();
    for plan in &plans {
        let outcome = pool.install(|| studies::run(plan, &run))?;
        let name = plan.about().study.clone();
        report::write_study(&args.out, &outcome.result, outcome.host.as_ref())
            .map_err(|error| Failure::new(1, error))?;
        let claims = outcome.result.claims.iter();
        let claims = claims.chain(outcome.host.iter().flat_map(|host| &host.claims));
        let (held, of) = claims.fold((0, 0), |(h, n), claim| (h + i32::from(claim.holds()), n + 1));
        bar.0.suspend(|| {
            if !args.json {
                let dir = args.out.join(&name);
                say!("{name:18} {held:>3} of {of:<3} claims hold   {}", dir.display());
            }
        });
        written.push(serde_json::json!({
            "study": name,
            "results": args.out.join(&name).join("results.json"),
            "claims": of,
            "held": held,
        }));
    }
    bar.0.finish_and_clear();
    let index = report::write_index(&args.out).map_err(|error| Failure::new(1, error))?;
    if args.json {
        say!("{}", serde_json::json!({ "studies": written, "index": index }));
    } else {
        say!("open {}", index.display());
    }
    Ok(())
}

fn bytes_bar(what: &'static str) -> Bar {
    let bar = Bar::new();
    bar.0.set_message(what);
    bar
}

fn snapshot(out: &Path, json: bool) -> Result<(), Failure> {
    let bar = bytes_bar("reading frames");
    let snapshot = snapshot_live::capture(&mut |done, of| {
        bar.0.set_length(of);
        bar.0.set_position(done);
    })
    .map_err(|error| Failure::new(1, error))?;
    bar.0.finish_and_clear();
    let failed = |error| Failure::new(1, format!("{}: {error}", out.display()));
    snapshot.save(out).map_err(failed)?;
    print_snapshot(&snapshot, json);
    Ok(())
}

/// How contiguous a machine's memory is.
fn print_snapshot(snapshot: &Snapshot, json: bool) {
    let summary = snapshot.summary();
    if json {
        say!("{}", serde_json::json!({ "facts": snapshot.facts(), "summary": summary }));
        return;
    }
    say!("Linux {}, {} frames of 4 KiB", snapshot.facts().kernel_release, summary.total_frames());
    for kind in FrameKind::ALL {
        let frames = summary.count(kind);
        if frames > 0 {
            let share = 100.0 * frames as f64 / summary.total_frames() as f64;
            say!("  {:12} {frames:>12}  {share:5.1}%", kind.name());
        }
    }
    print_runs("free", &summary.free);
    print_runs("free, unknown frames counted too", &summary.free_or_unknown);
}

fn print_runs(what: &str, runs: &RunLengths) {
    say!(
        "{what}: {} frames in {} extents, the longest {} frames",
        runs.frames,
        runs.extents,
        runs.longest_frames
    );
    for (log2, bin) in runs.bins.iter().enumerate().filter(|(_, bin)| bin.extents > 0) {
        let share = 100.0 * bin.frames as f64 / runs.frames as f64;
        say!("  from {:>8} frames {:>9} extents  {share:5.1}%", 1u64 << log2, bin.extents);
    }
}

fn sampling(burst: Option<u64>, every: Option<u64>) -> Option<Sampling> {
    let (burst_accesses, period_accesses) = burst.zip(every)?;
    Some(Sampling { burst_accesses, period_accesses })
}

/// Records with valgrind, a bar of accesses beside it.
fn with_valgrind<T>(
    limit: Option<u64>,
    sampling: Option<Sampling>,
    record: impl FnOnce(&mut RecordOptions<'_>) -> Result<T, RecordError>,
) -> Result<T, Failure> {
    watch_for_interrupts();
    let bar = bytes_bar("accesses");
    let recording = record(&mut RecordOptions {
        accesses_max: limit,
        sampling,
        level: 12,
        valgrind: PathBuf::from("valgrind"),
        cancel: Some(&INTERRUPTED),
        progress: &mut |accesses| bar.0.set_position(accesses),
    })
    .map_err(|error| match error {
        RecordError::Cancelled => Failure::new(130, "interrupted"),
        RecordError::Sampling => Failure::new(2, error),
        error => Failure::new(1, error),
    })?;
    bar.0.finish_and_clear();
    Ok(recording)
}

fn record_heap(
    out: &Path,
    limit: Option<u64>,
    sampling: Option<Sampling>,
    command: &[OsString],
) -> Result<(), Failure> {
    let recording =
        with_valgrind(limit, sampling, |options| heap_record::record_heap(command, out, options))?;
    let HeapTotals { reads, writes, failed_calls, unknown_calls, lost_calls, .. } =
        recording.totals;
    say!(
        "{} events of {reads} reads and {writes} writes, {failed_calls} failed calls, \
         {unknown_calls} unknown, {lost_calls} lost, {} bytes, {}",
        recording.events,
        recording.file_bytes,
        out.display()
    );
    Ok(())
}

fn record_accesses(
    out: &Path,
    limit: Option<u64>,
    sampling: Option<Sampling>,
    command: &[OsString],
) -> Result<(), Failure> {
    let recording = with_valgrind(limit, sampling, |options| record(command, out, options))?;
    let (accesses, events) = (recording.accesses, recording.events);
    let of = match recording.run_accesses {
        run if run == accesses => String::new(),
        run => format!(" of {run}"),
    };
    let bytes = recording.file_bytes;
    say!("{accesses}{of} accesses, {events} events, {bytes} bytes, {}", out.display());
    Ok(())
}

fn record_pages(
    out: &Path,
    whole_system: bool,
    buffer_kib: u64,
    command: &[OsString],
) -> Result<(), Failure> {
    // No way out at once here: the kernel's buffer has to be given back, and
    // the recording looks at the flag ten times a second.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    let bar = bytes_bar("page events");
    let recording = page_events_live::record(
        command,
        out,
        &mut PageRecordOptions {
            whole_system,
            buffer_kib,
            level: 12,
            tracefs: &page_events_live::usual_tracefs(),
            cancel: Some(&INTERRUPTED),
            progress: &mut |events| bar.0.set_position(events),
        },
    )
    .map_err(|error| match error {
        PageRecordError::Cancelled => Failure::new(130, "interrupted"),
        error => Failure::new(1, error),
    })?;
    bar.0.finish_and_clear();
    say!(
        "{} page events in {:.1} s, {} lost, {} bytes, {}",
        recording.events,
        recording.duration_us as f64 / 1e6,
        recording.lost,
        recording.file_bytes,
        out.display()
    );
    Ok(())
}

fn export(
    out: &Path,
    format: Simulator,
    design: &str,
    block_frames: u64,
    workload: &str,
) -> Result<(), Failure> {
    let plans = BUILT_IN.iter().filter_map(|(name, text)| Plan::parse(name, text).ok());
    let plan = plans.into_iter().find_map(|plan| match plan {
        Plan::System(plan) => Some(plan),
        _ => None,
    });
    let Some(plan) = plan else { return Err(Failure::new(1, "no study of the timed system")) };
    let workload = WorkloadName::named(workload).ok_or_else(|| {
        let names: Vec<_> = WorkloadName::ALL.iter().map(|name| name.as_str()).collect();
        Failure::new(2, format!("no workload {workload:?}; there are {}", names.join(", ")))
    })?;
    let format = match format {
        Simulator::Ramulator => TraceFormat::Ramulator,
        Simulator::Dramsim3 => TraceFormat::DramSim3,
    };
    let count = pbs_system::export(&plan, workload, design, block_frames, format, out)?;
    say!("{count} transactions, {}", out.display());
    Ok(())
}

fn replay(args: ReplayArgs) -> Result<(), Failure> {
    let source = match (args.load, args.file) {
        (Some(load), _) => Source::Load(load.kind(), args.hours),
        (None, Some(file)) => Source::Recording(file),
        (None, None) => return Err(Failure::new(2, "neither a recording nor a load")),
    };
    let mut allocators = args.allocator;
    if allocators.is_empty() {
        allocators = AllocatorName::ALL.to_vec();
    }
    let ReplayArgs { machine, migrate, rows, seed, json, .. } = args;
    watch_for_interrupts();
    let bar = bytes_bar("rows");
    bar.0.set_length(rows * allocators.len() as u64);
    let options = ReplayOptions { source, machine, allocators, migrate, rows, seed };
    let tables = green_replay::run(&options, &mut |_| {
        bar.0.inc(1);
        !INTERRUPTED.load(Ordering::Relaxed)
    })
    .map_err(|error| match error {
        ReplayError::Interrupted => Failure::new(130, error),
        ReplayError::Hours { .. } => Failure::new(2, error),
        error => Failure::new(1, error),
    })?;
    bar.0.finish_and_clear();
    if json {
        say!("{}", serde_json::json!(tables));
        return Ok(());
    }
    for table in &tables {
        say!("{}", table.allocator.title());
        say!("{}", Table::HEAD);
        for line in table.lines() {
            say!("{line}");
        }
    }
    Ok(())
}

/// What a recording of page events holds, and what pairing makes of it.
fn print_pages(mut reader: PageReader<std::fs::File>, json: bool) -> Result<(), FileError> {
    let head = reader.head().clone();
    let mut counts = [0u64; PageChange::KINDS];
    let mut duration_us = 0;
    let events = reader.by_ref().inspect(|event| {
        if let Ok(event) = event {
            counts[event.change.kind()] += 1;
            duration_us = event.time_us;
        }
    });
    let replayed = page_replay::replay(events, &[], &mut |_| {})?;
    let lost = reader.lost();
    let all: u64 = counts.iter().sum();
    let kinds = PageChange::NAMES.into_iter().zip(counts);
    if json {
        let kinds: std::collections::BTreeMap<_, _> = kinds.collect();
        say!(
            "{}",
            serde_json::json!({ "facts": head.facts, "program": head.program,
                                "whole_system": head.whole_system, "cpus": head.cpus,
                                "events": kinds, "duration_us": duration_us,
                                "lost": lost, "replay": replayed })
        );
        return Ok(());
    }
    let whose = if head.whole_system { "the whole system during" } else { "the processes of" };
    say!("Linux {}, {} processors, {whose} {}", head.facts.kernel_release, head.cpus, head.program);
    let seconds = duration_us as f64 / 1e6;
    let lost: u64 = lost.iter().sum();
    say!("{all} events in {seconds:.1} s, {:.0} a second, {lost} lost", all as f64 / seconds);
    for (name, count) in kinds.filter(|&(_, count)| count > 0) {
        say!("  {name:12} {count:>12}");
    }
    say!(
        "{} blocks allocated, {} freed ({} of them unseen, {} in parts), {} left; at most {} frames \
         at once; {} frames freed that were allocated before",
        replayed.allocs,
        replayed.frees,
        replayed.frees_implied,
        replayed.frees_in_parts,
        replayed.live_blocks,
        replayed.peak_frames,
        replayed.unseen_frames
    );
    Ok(())
}

/// What a recording of a heap holds.
fn print_heap(mut reader: HeapReader<std::fs::File>, json: bool) -> Result<(), FileError> {
    let summary = HeapSummary::of(&mut reader)?;
    if json {
        say!("{}", serde_json::json!({ "head": reader.head(), "summary": summary }));
        return Ok(());
    }
    for line in summary.lines(reader.head()) {
        say!("{line}");
    }
    Ok(())
}

/// A snapshot, page events, a heap or a trace: the signature says which.
fn show(file: &Path, json: bool) -> Result<(), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(1, format!("{}: {error}", file.display()));
    match Snapshot::load(file) {
        Ok(snapshot) => {
            print_snapshot(&snapshot, json);
            return Ok(());
        }
        Err(FileError::Magic { .. }) => {}
        Err(error) => return Err(failed(&error)),
    }
    match PageReader::open(file) {
        Ok(reader) => return print_pages(reader, json).map_err(|error| failed(&error)),
        Err(FileError::Magic { .. }) => {}
        Err(error) => return Err(failed(&error)),
    }
    match HeapReader::open(file) {
        Ok(reader) => return print_heap(reader, json).map_err(|error| failed(&error)),
        Err(FileError::Magic { .. }) => {}
        Err(error) => return Err(failed(&error)),
    }
    let mut counts = [0u64; 3];
    let mut pages = std::collections::BTreeSet::new();
    let accesses = Trace::new(Some(file)).open().map_err(|error: TraceError| failed(&error))?;
    let format = accesses.format();
    for access in accesses {
        let access = access.map_err(|error| failed(&error))?;
        counts[match access.kind {
            AccessKind::Read => 0,
            AccessKind::Write => 1,
            AccessKind::Fetch => 2,
        }] += 1;
        pages.extend(access.pages().iter());
    }
    let [reads, writes, fetches] = counts;
    if json {
        say!(
            "{}",
            serde_json::json!({ "format": format, "reads": reads, "writes": writes,
                                "fetches": fetches, "pages": pages.len() })
        );
    } else {
        say!("{reads} reads, {writes} writes, {fetches} fetches, {} pages touched", pages.len());
    }
    Ok(())
}
