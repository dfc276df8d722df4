//! The `swath` program: a thin layer of arguments, progress and exit codes over
//! the library.
//!
//! It is a library itself, so that a program with designs of its own is two lines longer than its
//! designs: [add them](swath_lab::papers::page_buddy::design::add), then call [`main()`].
//!
//! ```no_run
//! use std::process::ExitCode;
//! use swath_hw::DrainRule;
//! use swath_lab::papers::page_buddy::dram::add_write_rule;
//!
//! fn main() -> ExitCode {
//!     // A plan names it: `write_rule = "more-writes"` under `[dram]`.
//!     let rule = DrainRule { name: "more-writes", drains: |now| now.writes > now.reads };
//!     if let Err(error) = add_write_rule(rule) {
//!         eprintln!("{error}");
//!         return ExitCode::FAILURE;
//!     }
//!     swath_cli::main()
//! }
//! ```

#![forbid(unsafe_code)]

/// Prints a line. A reader who has seen enough and closed the pipe is no error; any other failure
/// is the command's, told at its end.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        crate::failure::note_output(writeln!(std::io::stdout(), $($text)*));
    }};
}

mod age;
mod compare;
mod export;
mod failure;
mod film;
mod green;
mod inspect;
mod progress;
mod record;
mod replay;
mod report;
mod resources;
mod show;
mod snapshot;
mod study;
mod sweep;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use swath_lab::study::registry;

use crate::failure::Failure;

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
    /// Run a plan at every combination of values of its keys, and write one
    /// table.
    Sweep(sweep::SweepArgs),
    /// Put the shards of a sweep together as one run would have written them.
    Merge(sweep::MergeArgs),
    /// Render a report anew from the results in it: drawings, rows and the page.
    Report(report::ReportArgs),
    /// Say what changed from one report to another, beyond what other seeds change.
    Compare(compare::CompareArgs),
    /// Read which frames of this Linux machine are free and what the others
    /// hold.
    Snapshot(snapshot::SnapshotArgs),
    /// Show snapshots of a machine in sequence, as a map that plays.
    Film(film::FilmArgs),
    /// Say how many huge pages this Linux machine can have, at once, after
    /// compaction and never, and what blocks each.
    Inspect(inspect::InspectArgs),
    /// Bring the free memory of this Linux machine into a stated shape, and keep
    /// it there.
    Age(age::AgeArgs),
    /// Take the memory blocks that this Linux machine does not need offline, as
    /// the green memory manager does, and bring them online again.
    Green(green::GreenArgs),
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
    /// Write the state of a memory block, in a process that can be killed.
    #[command(hide = true)]
    SetMemoryBlock {
        /// The block's file `state`.
        file: PathBuf,
        /// What to write.
        state: String,
    },
    /// Write a setting when standard input ends.
    #[command(hide = true)]
    RestoreSetting {
        /// The setting's file.
        file: PathBuf,
        /// What to write.
        value: String,
    },
    /// Do a job of a study in a process of its own.
    #[command(hide = true)]
    Child {
        /// The kind of study.
        kind: String,
        /// The job, as JSON.
        job: String,
    },
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut code = ExitCode::SUCCESS;
    let result = match cli.command {
        Command::Study(args) => study::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Merge(args) => sweep::merge(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => {
            compare::run(&args).map(|changed| code = ExitCode::from(u8::from(changed)))
        }
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Film(args) => film::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Age(args) => age::run(&args),
        Command::Green(args) => green::run(&args),
        Command::SetMemoryBlock { file, state } => {
            code = swath_lab::live::set_memory_block(&file, &state);
            Ok(())
        }
        Command::RestoreSetting { file, value } => {
            swath_lab::live::restore_setting(&file, &value).map_err(|error| Failure::new(1, error))
        }
        Command::Record(command) => record::run(command).map(|exit| code = exit),
        Command::Export(args) => export::run(&args),
        Command::Replay(args) => replay::run(args),
        Command::Show { file, json } => show::show(&file, json),
        Command::Completions { shell } => {
            // Into memory first: on a failure to write it panics.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "swath", &mut script);
            failure::note_output(std::io::stdout().write_all(&script));
            Ok(())
        }
        Command::Man => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
            failure::note_output(std::io::stdout().write_all(&page));
            rendered.map_err(|error| Failure::new(1, error))
        }
        Command::Child { kind, job } => {
            registry::child(&kind, &job).map_err(|error| Failure::new(1, error))
        }
    };
    failure::note_output(std::io::stdout().flush());
    match result.and_then(|()| failure::of_output()) {
        Ok(()) => code,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "swath: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
