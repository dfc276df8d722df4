//! The `swath` program: a thin layer of arguments, progress and exit codes over
//! the library.

#![forbid(unsafe_code)]

/// Prints a line. A reader who has seen enough and closed the pipe is no error.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod export;
mod record;
mod replay;
mod show;
mod snapshot;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use swath_lab::host::memory;
use swath_lab::papers::clmalloc::latency;
use swath_lab::papers::green::cost;
use swath_lab::papers::page_buddy::allocation;
use swath_lab::papers::real_time::run;
use swath_lab::report::write;
use swath_lab::source::real::{InputError, Machine, RealInput};
use swath_lab::study::plan::Plan;
use swath_trace::machine::UnknownFrames;

use swath_lab::study::registry;
use swath_lab::study::registry::BUILT_IN;
use swath_lab::study::run::{Run, StudyError, Watch};

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
    Snapshot(snapshot::SnapshotArgs),
    /// Record a real program.
    #[command(subcommand)]
    Record(record::RecordCommand),
    /// Write what the memory is asked for in the timed system, as a trace that
    /// Ramulator 2.1 or DRAMsim3 reads.
    Export(export::ExportArgs),
    /// Run a recording of page events, or a synthetic load, through page
    /// allocators and compare what they leave of the memory.
    Replay(replay::ReplayArgs),
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
            StudyError::Plan(_) | StudyError::TooFull(_) | StudyError::NoDesign { .. } => 2,
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
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Record(command) => match record::run(command) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Export(args) => export::run(&args),
        Command::Replay(args) => replay::run(args),
        Command::Show { file, json } => show::show(&file, json),
        Command::MeasureMemory { request } => memory::child(&request)
            .map(|answer| say!("{answer}"))
            .map_err(|error| Failure::new(1, error)),
        Command::CountAllocation { plan, subject, memory, unknown_free } => {
            count_allocation(&plan, subject, memory.as_deref(), unknown_free)
        }
        Command::CountHeap { job } => {
            run::count_child(&job).map_err(|error| Failure::new(1, error))
        }
        Command::CountTakes { job } => {
            cost::count_child(&job).map_err(|error| Failure::new(1, error))
        }
        Command::MeasureRequests { job } => latency::child(&job)
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
    allocation::count_child(plan, subject, machine.as_ref()).map_err(|error| Failure::new(1, error))
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
        let outcome = pool.install(|| registry::run(plan, &run))?;
        let name = plan.about().study.clone();
        write::write_study(&args.out, &outcome.result, outcome.host.as_ref())
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
    let index = write::write_index(&args.out).map_err(|error| Failure::new(1, error))?;
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
