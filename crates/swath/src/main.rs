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
mod study;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use swath_lab::source::real::InputError;
use swath_lab::study::registry;
use swath_lab::study::run::{StudyError, Watch};

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
    Study(study::StudyArgs),
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
    /// Print shell completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man,
    /// Do a job of a study in a process of its own.
    #[command(hide = true)]
    Child {
        /// The kind of study.
        kind: String,
        /// The job, as JSON.
        job: String,
    },
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
        Command::Study(args) => study::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Record(command) => match record::run(command) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Export(args) => export::run(&args),
        Command::Replay(args) => replay::run(args),
        Command::Show { file, json } => show::show(&file, json),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "swath", &mut std::io::stdout());
            Ok(())
        }
        Command::Man => clap_mangen::Man::new(Cli::command())
            .render(&mut std::io::stdout())
            .map_err(|error| Failure::new(1, error)),
        Command::Child { kind, job } => {
            registry::child(&kind, &job).map_err(|error| Failure::new(1, error))
        }
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

fn bytes_bar(what: &'static str) -> Bar {
    let bar = Bar::new();
    bar.0.set_message(what);
    bar
}
