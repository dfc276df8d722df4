//! `swath replay`: a recording or a synthetic load through allocators side by
//! side, as a table over time.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::papers::green::allocator::AllocatorName;
use crate::papers::green::machine::{
    DaemonPlan, GreenConfig, GreenError, Look, MachineName, drive,
};
use crate::source::follow::FollowError;
use crate::source::load::{LoadKind, PageLoad};
use crate::source::replay::{TimedOp, held_before, replay};
use swath_trace::container::FileError;
use swath_trace::pages::PageReader;

/// Where requests come from.
#[derive(Clone, PartialEq, Debug)]
pub enum Source {
    /// A recording of a real kernel's page events.
    Recording(PathBuf),
    /// A synthetic load for so many simulated hours.
    Load(LoadKind, f64),
}

/// What to replay on which machines.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplayOptions {
    /// The requests.
    pub source: Source,
    /// The memory.
    pub machine: MachineName,
    /// The allocators, one table each.
    pub allocators: Vec<AllocatorName>,
    /// Whether banks are emptied by migration.
    pub migrate: bool,
    /// Rows of a table.
    pub rows: u64,
    /// The seed of a synthetic load.
    pub seed: u64,
}

/// Why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording, or the snapshot of its machine, cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        error: FileError,
    },
    /// The recording cannot be followed.
    #[error("{0}")]
    Follow(#[from] FollowError),
    /// The recording asks for nothing.
    #[error("{}: no request in it", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A number of hours that is none.
    #[error("{hours} hours are not more than 0 and at most 1000")]
    Hours {
        /// What was given.
        hours: f64,
    },
    /// The run failed.
    #[error("{}: {error}", allocator.title())]
    Run {
        /// On which allocator.
        allocator: AllocatorName,
        /// Why.
        error: GreenError,
    },
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// A row: what the machine looks like, and how its free memory is broken up.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Banks, sections, failures.
    #[serde(flatten)]
    pub look: Look,
    /// Free blocks in the zones' lists, resting banks included.
    pub free_blocks: u64,
    /// Frames of the largest of them.
    pub largest_free_frames: u64,
}

/// What an allocator did with the requests.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// The allocator.
    pub allocator: AllocatorName,
    /// In the order of time.
    pub rows: Vec<Row>,
}

/// The requests of a recording, what was held before it began among them, and
/// the number of processors of its machine. A name of [`SHIPPED`] will do, too.
///
/// # Errors
/// [`ReplayError::File`] or [`ReplayError::Empty`].
pub fn read_recording(file: &Path) -> Result<(Vec<TimedOp>, u16), ReplayError> {
    let failed = |error| ReplayError::File { file: file.to_owned(), error };
    let second = open(file)?;
    let cpus = second.head().cpus.max(1);
    let held = held_before(open(file)?).map_err(failed)?;
    let mut ops = Vec::new();
    replay(second, &held, &mut |op| ops.push(op)).map_err(failed)?;
    if ops.is_empty() {
        return Err(ReplayError::Empty { file: file.to_owned() });
    }
    Ok((ops, cpus))
}

/// Runs the requests on each allocator. `go_on` is asked at
/// each row.
///
/// # Errors
/// A [`ReplayError`].
pub fn run(
    options: &ReplayOptions,
    go_on: &mut dyn FnMut(AllocatorName) -> bool,
) -> Result<Vec<Table>, ReplayError> {
    let (recorded, cpus, until_us) = match &options.source {
        Source::Recording(file) => {
            let (ops, cpus) = read_recording(file)?;
            let last_us = ops.last().map_or(0, |op| op.time_us);
            (Some(ops), cpus, last_us + 1)
        }
        &Source::Load(_, hours) => {
            if !(hours > 0.0 && hours <= 1000.0) {
                return Err(ReplayError::Hours { hours });
            }
            (None, options.machine.load().cpus, (hours * 3600e6) as u64)
        }
    };
    let mut tables = Vec::new();
    for &allocator in &options.allocators {
        let mut config = GreenConfig::new(allocator, options.machine);
        config.cpus = cpus;
        config.daemon = options.migrate.then_some(DaemonPlan::DEFAULT);
        let mut load = match options.source {
            Source::Load(kind, _) => PageLoad::new(options.machine.load(), kind, options.seed),
            Source::Recording(_) => None,
        };
        let mut recorded = recorded.iter().flatten().copied();
        let ops: &mut dyn Iterator<Item = TimedOp> = match &mut load {
            Some(load) => load,
            None => &mut recorded,
        };
        let (mut rows, mut stopped) = (Vec::new(), false);
        let every_us = until_us.div_ceil(options.rows.max(1));
        let driven = drive(config, ops, until_us, every_us, &mut |view| {
            let blocks = view.free_blocks();
            let row = Row {
                look: view.look(),
                free_blocks: blocks.count,
                largest_free_frames: blocks.largest_frames,
            };
            // The end may be a look of its own.
            if rows.last().is_none_or(|last: &Row| last.look.time_us < row.look.time_us) {
                rows.push(row);
            } else if let Some(last) = rows.last_mut() {
                *last = row;
            }
            stopped = !go_on(allocator);
            !stopped
        });
        if stopped {
            return Err(ReplayError::Interrupted);
        }
        driven.map_err(|error| ReplayError::Run { allocator, error })?;
        tables.push(Table { allocator, rows });
    }
    Ok(tables)
}

impl Table {
    /// The headings of [`lines`](Self::lines).
    pub const HEAD: &'static str = "  time s  used MiB   banks used  resting  removable  kernel   failed  fallbacks  \
                                    spoiled  free blocks  largest KiB";

    /// The rows as text: of sections, how many are removable and how many hold
    /// kernel memory; of requests, how many failed or fell back; of free
    /// memory, the blocks.
    pub fn lines(&self) -> Vec<String> {
        let line = |row: &Row| {
            let Row { look, free_blocks, largest_free_frames } = row;
            let used_mib = (look.total_frames - look.free_frames) / 256;
            let fallbacks = look.fallbacks.map_or_else(|| "-".to_owned(), |n| n.to_string());
            format!(
                "{:>8.1}  {used_mib:>8}  {:>5} of {:>3}  {:>7}  {:>9}  {:>6}  {:>7}  {fallbacks:>9}  \
                 {:>7}  {free_blocks:>11}  {:>11}",
                look.time_us as f64 / 1e6,
                look.used_banks,
                look.banks,
                look.resting_banks,
                look.removable_sections,
                look.kernel_sections,
                look.counts.failed,
                look.counts.spoiled,
                largest_free_frames * 4,
            )
        };
        self.rows.iter().map(line).collect()
    }
}

/// The recordings that come with the program, by name.
pub const SHIPPED: [(&str, &[u8]); 2] = [
    ("compile", include_bytes!("../../../data/compile.swpages")),
    ("files", include_bytes!("../../../data/files.swpages")),
];

/// A whole system's recording that comes with the program, to be
/// [followed](crate::source::follow): its name, its events, and the machine's snapshot.
pub const FOLLOWED: (&str, &[u8], &[u8]) = (
    "fragmented",
    include_bytes!("../../../data/fragmented.swpages"),
    include_bytes!("../../../data/fragmented.swsnap"),
);

/// The file of a recording, opened where it is not one of [`SHIPPED`].
///
/// # Errors
/// [`ReplayError::File`].
pub fn open(name: &Path) -> Result<PageReader<Box<dyn std::io::Read + Send>>, ReplayError> {
    let failed = |error| ReplayError::File { file: name.to_owned(), error };
    let shipped = SHIPPED.iter().find(|(shipped, _)| name == Path::new(shipped));
    let from: Box<dyn std::io::Read + Send> = match shipped {
        Some((_, bytes)) => Box::new(*bytes),
        None => Box::new(File::open(name).map_err(|error| failed(error.into()))?),
    };
    PageReader::new(from).map_err(failed)
}
