//! `swath replay`: runs recorded or synthetic page events through page allocators.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;
use swath_lab::papers::green::machine::allocator::AllocatorName;
use swath_lab::papers::green::machine::config::MachineName;
use swath_lab::papers::green::replay::{
    self, ReplayError, ReplayOptions, ReplayTable, RequestSource,
};
use swath_lab::papers::green::setting::LoadName;
use swath_lab::report::film::write;

use crate::failure::Failure;
use crate::progress::{INTERRUPTED, bytes_bar, watch_for_interrupts};

/// Arguments of `swath replay`.
#[derive(Args)]
pub(crate) struct ReplayArgs {
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
    /// Write memory over time, the allocators side by side, as a picture that plays (`.svg`) or a
    /// page in which it can be paused and scrubbed.
    #[arg(long, value_name = "FILE")]
    film: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
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
    let ReplayArgs { machine, migrate, rows, seed, film, json, .. } = args;
    watch_for_interrupts();
    let bar = bytes_bar("rows");
    bar.0.set_length(rows * allocators.len() as u64);
    let options =
        ReplayOptions { source, machine, allocators, migrate, rows, film: film.is_some(), seed };
    let tables = replay::run(&options, &mut |_| {
        bar.0.inc(1);
        !INTERRUPTED.load(Ordering::Relaxed)
    })
    .map_err(|error| match error {
        ReplayError::Interrupted => Failure::new(130, error),
        ReplayError::Hours { .. } => Failure::new(2, error),
        error => Failure::new(1, error),
    })?;
    bar.0.finish_and_clear();
    if let Some((path, film)) = film.zip(replay::film(&options, &tables)) {
        write(&path, &film)?;
    }
    if json {
        say!("{}", serde_json::json!(tables));
        return Ok(());
    }
    for table in &tables {
        say!("{}", table.allocator.title());
        say!("{}", ReplayTable::HEAD);
        for line in table.lines() {
            say!("{line}");
        }
    }
    Ok(())
}
