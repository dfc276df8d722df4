//! `swath replay`: a recording or a synthetic load through allocators side by
//! side, as a table over time.

use std::path::PathBuf;

use serde::Serialize;

use crate::film::Film;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::computer::drive;
use crate::papers::green::machine::config::{DaemonConfig, GreenConfig, GreenError, MachineName};
use crate::papers::green::machine::view::Look;
use crate::papers::green::pages::load::{LoadKind, PageLoad};
use crate::papers::green::pages::recordings::{HOURS_MAX, RecordingError, read_recording};
use crate::papers::green::pages::runs::{Recorded, Requests};
use crate::papers::green::reel::{self, Maps};

/// The source of requests.
#[derive(Clone, PartialEq, Debug)]
pub enum RequestSource {
    /// A recording of a real kernel's page events.
    Recording(PathBuf),
    /// A synthetic load for so many simulated hours.
    Load(LoadKind, f64),
}

/// Requests to replay, and the machines.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplayOptions {
    /// The requests.
    pub source: RequestSource,
    /// The memory.
    pub machine: MachineName,
    /// The allocators, one table each.
    pub allocators: Vec<AllocatorName>,
    /// True if banks are emptied by migration.
    pub migrate: bool,
    /// Rows of a table.
    pub rows: u64,
    /// True if memory's maps are kept for a [`film`].
    pub film: bool,
    /// The seed of a synthetic load.
    pub seed: u64,
}

/// Reasons why nothing is replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording gives no requests.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A number of hours that is none.
    #[error("{hours} hours are not more than 0 and at most {HOURS_MAX}")]
    Hours {
        /// The number.
        hours: f64,
    },
    /// The run failed.
    #[error("{}: {error}", allocator.title())]
    Run {
        /// The allocator.
        allocator: AllocatorName,
        /// The fault.
        error: GreenError,
    },
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// A row: the state of the machine, and the blocks of its free memory.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ReplayRow {
    /// Banks, sections, failures.
    #[serde(flatten)]
    pub look: Look,
    /// Free blocks in the zones' lists, resting banks included.
    pub free_blocks: u64,
    /// Frames of the largest of them.
    pub largest_free_frames: u64,
}

/// The course of an allocator under the requests.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplayTable {
    /// The allocator.
    pub allocator: AllocatorName,
    /// In the order of time.
    pub rows: Vec<ReplayRow>,
    /// The maps of memory, if they were asked for.
    #[serde(skip)]
    maps: Maps,
}

/// The film of these courses, allocators side by side; `None` if no maps were kept.
pub fn film(options: &ReplayOptions, tables: &[ReplayTable]) -> Option<Film> {
    let suffix = if options.migrate { " + migration" } else { "" };
    let design = |table: &ReplayTable| format!("{}{suffix}", table.allocator.title());
    let kept = tables.iter().filter(|table| !table.maps.maps.is_empty());
    let designs: Vec<_> = kept.map(|table| (design(table), &table.maps)).collect();
    let load = match &options.source {
        RequestSource::Recording(file) => {
            file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
        }
        RequestSource::Load(kind, _) => {
            let (low, high) = kind.bounds_percent();
            format!("{}, {low}% to {high}% in use", options.machine.title())
        }
    };
    reel::film(&load, &designs)
}

/// Runs the requests on each allocator. `go_on` is called at each row, and ends
/// the run by `false`.
///
/// # Errors
/// A [`ReplayError`].
pub fn run(
    options: &ReplayOptions,
    go_on: &mut dyn FnMut(AllocatorName) -> bool,
) -> Result<Vec<ReplayTable>, ReplayError> {
    let (recorded, cpus, until_us) = match &options.source {
        RequestSource::Recording(file) => {
            let (ops, cpus) = read_recording(file)?;
            let last_us = ops.last().map_or(0, |op| op.time_us);
            (Some(ops), cpus, last_us + 1)
        }
        &RequestSource::Load(_, hours) => {
            if !(hours > 0.0 && hours <= HOURS_MAX as f64) {
                return Err(ReplayError::Hours { hours });
            }
            (None, options.machine.load().cpus, (hours * 3600e6) as u64)
        }
    };
    let mut tables = Vec::new();
    for &allocator in &options.allocators {
        let mut config = GreenConfig::new(allocator, options.machine);
        config.cpus = cpus;
        config.daemon = options.migrate.then_some(DaemonConfig::DEFAULT);
        let mut load = match options.source {
            RequestSource::Load(kind, _) => {
                PageLoad::new(options.machine.load(), kind, options.seed)
            }
            RequestSource::Recording(_) => None,
        };
        let mut recorded = Recorded::new(recorded.as_deref().unwrap_or_default(), 0);
        let requests: &mut dyn Requests = match &mut load {
            Some(load) => load,
            None => &mut recorded,
        };
        let (mut rows, mut maps, mut stopped) = (Vec::new(), Maps::default(), false);
        let every_us = until_us.div_ceil(options.rows.max(1));
        // A film looks at every tick, as its moments are not the table's.
        let look_us = if options.film { 1 } else { every_us };
        let mut next_row_us = every_us;
        let driven = drive(config, requests, until_us, look_us, &mut |view| {
            let look = view.look();
            if options.film {
                maps.see(view, look.time_us, (0, until_us));
            }
            if look.time_us < next_row_us && look.time_us < until_us {
                return true;
            }
            next_row_us = look.time_us + every_us;
            let blocks = view.free_blocks();
            let row = ReplayRow {
                look,
                free_blocks: blocks.count,
                largest_free_frames: blocks.largest_frames,
            };
            // The end may be a look of its own.
            if rows.last().is_none_or(|last: &ReplayRow| last.look.time_us < row.look.time_us) {
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
        tables.push(ReplayTable { allocator, rows, maps });
    }
    Ok(tables)
}

impl ReplayTable {
    /// The headings of [`lines`](Self::lines).
    pub const HEAD: &'static str = "  time s  used MiB   banks used  resting  removable  kernel   failed  fallbacks  \
                                    spoiled  free blocks  largest KiB";

    /// The rows as text: of sections, how many are removable and how many hold
    /// kernel memory; of requests, how many failed or fell back; of free
    /// memory, the blocks.
    pub fn lines(&self) -> Vec<String> {
        let line = |row: &ReplayRow| {
            let ReplayRow { look, free_blocks, largest_free_frames } = row;
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
