//! `swath replay`: runs recorded or synthetic page events through page allocators.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use swath_lab::host::callgrind;
use swath_lab::host::count::CountError;
use swath_lab::papers::green::machine::age::AgeTarget;
use swath_lab::papers::green::machine::allocator::AllocatorName;
use swath_lab::papers::green::machine::config::MachineName;
use swath_lab::papers::green::replay::{
    self, ReplayError, ReplayOptions, ReplayTable, RequestSource, StartSource,
};
use swath_lab::papers::green::setting::LoadName;
use swath_lab::papers::green::shootout::{self, CountInstructions, shoot_out};
use swath_lab::report::film::write;
use swath_trace::machine::UnknownFrames;

use crate::failure::Failure;
use crate::progress::{INTERRUPTED, bytes_bar, watch_for_interrupts};

/// Arguments of `swath replay`.
#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// A recording, from `swath record pages`; "compile", "files" and those of a kernel's operations
    /// ("fork_test" and others, docs/formats.md) come with the program.
    #[arg(required_unless_present = "load")]
    file: Option<PathBuf>,
    /// A synthetic load instead: 10 to 50% or 30 to 80% of memory in use.
    #[arg(long, value_enum, conflicts_with = "file")]
    load: Option<LoadName>,
    /// For so many simulated hours.
    #[arg(long, value_name = "N", conflicts_with = "file", default_value_t = 1.0)]
    hours: f64,
    /// The random numbers of a load, and of the state in which the machines begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The memory: 4 GiB, or 32 GiB in two nodes.
    #[arg(long, value_enum, default_value = "4g")]
    machine: MachineName,
    /// Begin in the state of a machine's snapshot, from `swath snapshot`, to the frame, with its
    /// memory instead of the one above. A load then takes its share of what is free.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "age"])]
    memory: Option<PathBuf>,
    /// Count the frames of the snapshot whose state is unknown as free, not as unmovable.
    #[arg(long, requires = "memory")]
    unknown_free: bool,
    /// The recording may be of another machine than the snapshot: what it gives back without having
    /// taken it is not looked for there.
    #[arg(long, requires = "memory")]
    other_machine: bool,
    /// Begin with memory in pieces: which share is in use, which of the rest is in free 2 MiB, which
    /// of what is in use cannot be moved, and in which share of the other 2 MiB it lies; what is not
    /// named is used=0.7,huge=0.1,unmovable=0.15,mixed=0.5.
    #[arg(long, value_name = "TARGET")]
    age: Option<AgeTarget>,
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
    /// Write memory over time, the allocators side by side, as a picture that plays (`.svg`) or a
    /// page in which it can be paused and scrubbed.
    #[arg(long, value_name = "FILE")]
    film: Option<PathBuf>,
    /// Replay with so many seeds, from --seed on, and say where each allocator has left the machine, with
    /// 95% intervals.
    #[arg(long, value_name = "N", conflicts_with_all = ["rows", "film"],
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Draw it.
    #[arg(long, value_name = "FILE", requires = "seeds")]
    figure: Option<PathBuf>,
    /// Count each allocator's instructions in the first seed's replay, too: of its calls, for each request, by
    /// valgrind, which takes some fifty times the replay's time.
    #[arg(long, requires = "seeds")]
    instructions: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        let code = match error {
            ReplayError::Interrupted => 130,
            ReplayError::Hours { .. }
            | ReplayError::Age(_)
            | ReplayError::OtherMachine { .. }
            | ReplayError::Seeds => 2,
            _ => 1,
        };
        Self::new(code, error)
    }
}

/// This program with its own arguments, for one allocator and the first seed alone.
fn alone(allocator: AllocatorName) -> Result<Command, CountError> {
    let mut command = Command::new(std::env::current_exe().map_err(CountError::Spawn)?);
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        let name = text.split_once('=').map_or(&*text, |(name, _)| name);
        match name {
            "--instructions" | "--json" => {}
            "--seeds" | "--figure" | "--allocator" => {
                if name.len() == text.len() {
                    args.next();
                }
            }
            _ => {
                command.arg(arg);
            }
        }
    }
    let name = allocator.to_possible_value();
    command.args(["--rows", "1", "--allocator"]);
    command.arg(name.map_or_else(String::new, |name| name.get_name().to_owned()));
    Ok(command)
}

/// Replays and prints a table for each allocator.
pub(crate) fn run(args: ReplayArgs) -> Result<(), Failure> {
    let source = match (args.load, args.file) {
        (Some(load), _) => RequestSource::Load(load.kind(), args.hours),
        (None, Some(file)) => RequestSource::Recording(file),
        (None, None) => return Err(Failure::new(2, "neither a recording nor a load")),
    };
    let mut allocators = args.allocator;
    if allocators.is_empty() {
        allocators = AllocatorName::ALL.to_vec();
    }
    let start = match (args.memory, args.age) {
        (Some(file), _) => {
            let unknown = if args.unknown_free { UnknownFrames::Free } else { UnknownFrames::Used };
            Some(StartSource::Snapshot { file, unknown, other_machine: args.other_machine })
        }
        (None, age) => age.map(StartSource::Age),
    };
    let ReplayArgs { machine, migrate, rows, seed, film, json, .. } = args;
    watch_for_interrupts();
    let bar = bytes_bar("rows");
    bar.0.set_length(rows * allocators.len() as u64);
    let film_is_wanted = film.is_some();
    let options = ReplayOptions {
        source,
        machine,
        allocators,
        migrate,
        rows,
        film: film_is_wanted,
        seed,
        start,
    };
    if let Some(seeds) = args.seeds {
        bar.0.set_length(options.allocators.len() as u64 * seeds);
        if args.instructions && !callgrind::is_here() {
            return Err(Failure::new(2, "--instructions: valgrind is not installed"));
        }
        let count: CountInstructions<'_> = &|allocator| callgrind::count_calls(&alone(allocator)?);
        let count = args.instructions.then_some(count);
        let contestants = shoot_out(&options, seeds, count, &|_| {
            bar.0.inc(1);
            !INTERRUPTED.load(Ordering::Relaxed)
        })?;
        bar.0.finish_and_clear();
        if let Some(path) = args.figure {
            shootout::write(&path, &contestants, &replay::title(&options))?;
        }
        if json {
            say!("{}", serde_json::json!(contestants));
            return Ok(());
        }
        for line in shootout::lines(&contestants) {
            say!("{line}");
        }
        return Ok(());
    }
    let tables = replay::run(&options, &mut |_| {
        bar.0.inc(1);
        !INTERRUPTED.load(Ordering::Relaxed)
    })?;
    bar.0.finish_and_clear();
    if let Some((path, film)) = film.zip(replay::film(&options, &tables)) {
        write(&path, &film)?;
    }
    if json {
        say!("{}", serde_json::json!(tables));
        return Ok(());
    }
    if let Some(start) = tables.first().and_then(|table| table.start) {
        say!("{}", start.line());
    }
    for table in &tables {
        say!("{}", table.allocator.title());
        say!("{}", ReplayTable::HEAD);
        for line in table.lines() {
            say!("{line}");
        }
        say!("{}", ReplayTable::PLACES);
        for line in table.places() {
            say!("{line}");
        }
    }
    for line in ReplayTable::ends(&tables) {
        say!("{line}");
    }
    Ok(())
}
