//! `swath replay`: a recording or a synthetic load through allocators side by
//! side, as a table over time.

use std::path::PathBuf;

use serde::Serialize;
use swath_arch::Order;
use swath_frame::zone::linux::PAGEBLOCK_ORDER;
use swath_trace::container::FileError;
use swath_trace::machine::{Snapshot, UnknownFrames};

use crate::film::Film;
use crate::host::count::CountError;
use crate::papers::green::machine::age::{AgeError, AgeTarget};
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::computer::drive_from;
use crate::papers::green::machine::config::{DaemonConfig, GreenConfig, GreenError, MachineName};
use crate::papers::green::machine::places::Places;
use crate::papers::green::machine::start::{Begin, MachineStart, StartError};
use crate::papers::green::machine::view::{Look, MachineView};
use crate::papers::green::pages::load::{LoadKind, LoadMachine, PageLoad};
use crate::papers::green::pages::recordings::{HOURS_MAX, RecordingError, RecordingFile};
use crate::papers::green::pages::runs::Requests;
use crate::papers::green::reel::{self, Maps};

/// The source of requests.
#[derive(Clone, PartialEq, Debug)]
pub enum RequestSource {
    /// A recording of a real kernel's page events.
    Recording(PathBuf),
    /// A synthetic load for so many simulated hours.
    Load(LoadKind, f64),
}

/// The state in which the machines begin.
#[derive(Clone, PartialEq, Debug)]
pub enum StartSource {
    /// A snapshot of a real machine, whose memory takes the place of the named machine's.
    Snapshot {
        /// Its file.
        file: PathBuf,
        /// The counting of frames whose state is unknown.
        unknown: UnknownFrames,
        /// True if the recording may be of another machine; its frames are then other ones.
        other_machine: bool,
    },
    /// The named machine, in pieces.
    Age(AgeTarget),
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
    /// The seed of a synthetic load, and of what is drawn for the start.
    pub seed: u64,
    /// The state in which the machines begin, if not all free.
    pub start: Option<StartSource>,
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
    /// The snapshot cannot be read.
    #[error("{}: {error}", file.display())]
    Snapshot {
        /// The file.
        file: PathBuf,
        /// The fault.
        error: FileError,
    },
    /// The machine of the snapshot cannot be simulated.
    #[error("{}: {error}", file.display())]
    Start {
        /// The file.
        file: PathBuf,
        /// The fault.
        error: StartError,
    },
    /// Memory cannot be in such pieces.
    #[error(transparent)]
    Age(#[from] AgeError),
    /// The snapshot and the recording are of machines of different sizes.
    #[error(
        "{} is of a machine of {snapshot_frames} frames, the recording {} of one of \
         {recording_frames}; --other-machine replays it there all the same",
        snapshot.display(),
        recording.display()
    )]
    OtherMachine {
        /// The snapshot.
        snapshot: PathBuf,
        /// The frames of its machine that the kernel manages.
        snapshot_frames: u64,
        /// The recording.
        recording: PathBuf,
        /// Those of its machine.
        recording_frames: u64,
    },
    /// The free frames are too few, or too many, for a load.
    #[error("a load needs 2^16 to 2^30 frames, and {frames} are free")]
    Room {
        /// The free frames.
        frames: u64,
    },
    /// Several seeds were asked for where nothing is drawn.
    #[error("nothing here depends on a seed: a recording on machines that begin all free")]
    Seeds,
    /// The run failed.
    #[error("{}: {error}", allocator.title())]
    Run {
        /// The allocator.
        allocator: AllocatorName,
        /// The fault.
        error: GreenError,
    },
    /// The instructions cannot be counted.
    #[error("the allocators' instructions: {0}")]
    Count(#[from] CountError),
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
    /// The places for pages of 2 MiB.
    pub huge: Places,
    /// The places for pages of 1 GiB.
    pub gigantic: Places,
}

/// The order of a page of 1 GiB.
const GIGANTIC_ORDER: Order = Order::known(18);

/// The frames in use with which the machines begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct StartSummary {
    /// Frames of memory.
    pub frames: u64,
    /// Frames in use.
    pub used_frames: u64,
    /// Blocks that the recording gives back without having taken them.
    pub held_blocks: u64,
    /// Those of them whose frames are in use at the start, so that it gives back these.
    pub held_there: u64,
}

/// The course of an allocator under the requests.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplayTable {
    /// The allocator.
    pub allocator: AllocatorName,
    /// The state in which it began, if not all free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartSummary>,
    /// In the order of time; the first at time 0 if it did not begin all free.
    pub rows: Vec<ReplayRow>,
    /// The maps of memory, if they were asked for.
    #[serde(skip)]
    maps: Maps,
}

/// Returns the recording's or the load's name.
pub fn title(options: &ReplayOptions) -> String {
    match &options.source {
        RequestSource::Recording(file) => {
            file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
        }
        RequestSource::Load(kind, _) => {
            let (low, high) = kind.bounds_percent();
            format!("{}, {low}% to {high}% in use", options.machine.title())
        }
    }
}

/// The film of these courses, allocators side by side; `None` if no maps were kept.
pub fn film(options: &ReplayOptions, tables: &[ReplayTable]) -> Option<Film> {
    let suffix = if options.migrate { " + migration" } else { "" };
    let design = |table: &ReplayTable| format!("{}{suffix}", table.allocator.title());
    let kept = tables.iter().filter(|table| !table.maps.maps.is_empty());
    let designs: Vec<_> = kept.map(|table| (design(table), &table.maps)).collect();
    reel::film(&title(options), &designs)
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
    let recording = match &options.source {
        RequestSource::Recording(file) => Some(RecordingFile::open(file)?),
        &RequestSource::Load(_, hours) if !(hours > 0.0 && hours <= HOURS_MAX as f64) => {
            return Err(ReplayError::Hours { hours });
        }
        RequestSource::Load(..) => None,
    };
    let (cpus, until_us) = match (&recording, &options.source) {
        (Some(recording), _) => (recording.cpus(), recording.outline().last_us + 1),
        (None, &RequestSource::Load(_, hours)) => {
            (options.machine.load().cpus, (hours * 3600e6) as u64)
        }
        (None, RequestSource::Recording(_)) => (1, 0),
    };
    let start = options.start.as_ref().map(|from| start(from, options, recording.as_ref()));
    let start = start.transpose()?;
    // Frames of another machine, or of one that never was, are not the recording's.
    let is_same = matches!(options.start, Some(StartSource::Snapshot { other_machine: false, .. }));
    let outline = recording.as_ref().map(RecordingFile::outline);
    let held = outline.filter(|_| is_same).map_or(&[][..], |outline| &outline.held);
    let load_machine = match &start {
        None => options.machine.load(),
        Some(start) => LoadMachine {
            frames: start.frames() - start.used_frames(),
            nodes: start.nodes().len() as u16,
            ..options.machine.load()
        },
    };
    // A load never has more handles than frames.
    let handles = outline.map_or(load_machine.frames, |outline| outline.handles as u64);
    let begin = start.as_ref().map(|start| Begin { start, held, handles_from: handles as u32 });
    let summary = begin.map(|begin| StartSummary {
        frames: begin.start.frames(),
        used_frames: begin.start.used_frames(),
        held_blocks: outline.map_or(0, |outline| outline.held.len() as u64),
        held_there: held.iter().filter(|block| begin.has(**block)).count() as u64,
    });
    let mut tables = Vec::new();
    for &allocator in &options.allocators {
        let mut config = GreenConfig::new(allocator, options.machine);
        config.cpus = cpus;
        config.daemon = options.migrate.then_some(DaemonConfig::EAGER);
        let (mut load, mut streamed) = (None, None);
        let requests: &mut dyn Requests = match (&recording, &options.source) {
            (Some(recording), _) => {
                let is_there = |block| is_same && begin.is_some_and(|begin| begin.has(block));
                streamed.insert(recording.requests(is_there)?)
            }
            (None, &RequestSource::Load(kind, _)) => {
                let made = PageLoad::new(load_machine, kind, options.seed);
                let made = made.ok_or(ReplayError::Room { frames: load_machine.frames })?;
                load.insert(made)
            }
            (None, RequestSource::Recording(_)) => break,
        };
        let (mut rows, mut maps, mut stopped) = (Vec::new(), Maps::default(), false);
        let every_us = until_us.div_ceil(options.rows.max(1));
        // A film looks at every tick, as its moments are not the table's.
        let look_us = if options.film { 1 } else { every_us };
        let mut next_row_us = if begin.is_some() { 0 } else { every_us };
        let driven = drive_from(begin, config, requests, until_us, look_us, &mut |view| {
            let look = view.look();
            if options.film {
                maps.see(view, look.time_us, (0, until_us));
            }
            if look.time_us < next_row_us && look.time_us < until_us {
                return true;
            }
            next_row_us = look.time_us + every_us;
            let row = ReplayRow::of(view, look);
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
        let fault = streamed.and_then(|requests| requests.fault());
        if let (Some(error), Some(recording)) = (fault, &recording) {
            let file = recording.file().to_owned();
            return Err(RecordingError::File { file, error }.into());
        }
        tables.push(ReplayTable { allocator, start: summary, rows, maps });
    }
    Ok(tables)
}

/// The state in which the machines begin.
fn start(
    from: &StartSource,
    options: &ReplayOptions,
    recording: Option<&RecordingFile>,
) -> Result<MachineStart, ReplayError> {
    let (file, unknown, other_machine) = match from {
        StartSource::Age(target) => return Ok(target.start(options.machine, options.seed)?),
        StartSource::Snapshot { file, unknown, other_machine } => (file, *unknown, *other_machine),
    };
    let snapshot = Snapshot::load(file)
        .map_err(|error| ReplayError::Snapshot { file: file.clone(), error })?;
    let snapshot_frames = snapshot.facts().total_frames;
    if let Some(recording) = recording.filter(|_| !other_machine) {
        let recording_frames = recording.head().facts.total_frames;
        if recording_frames != snapshot_frames {
            let (snapshot, recording) = (file.clone(), recording.file().to_owned());
            return Err(ReplayError::OtherMachine {
                snapshot,
                snapshot_frames,
                recording,
                recording_frames,
            });
        }
    }
    MachineStart::of_snapshot(&snapshot, unknown, options.seed)
        .map_err(|error| ReplayError::Start { file: file.clone(), error })
}

impl ReplayRow {
    fn of(view: &dyn MachineView, look: Look) -> Self {
        let blocks = view.free_blocks();
        Self {
            look,
            free_blocks: blocks.count,
            largest_free_frames: blocks.largest_frames,
            huge: view.places(PAGEBLOCK_ORDER),
            gigantic: view.places(GIGANTIC_ORDER),
        }
    }

    /// Times that a request had to wait: it was refused at first, or for a bank.
    pub(crate) fn stalls(&self) -> u64 {
        self.look.counts.stalled + self.look.counts.woken
    }

    /// Of the pages of 2 MiB for which free memory has room, the share that can be had at once.
    fn huge_share(&self) -> String {
        let share = self.huge.share_of(self.look.free_frames);
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", 100.0 * share))
    }
}

impl StartSummary {
    /// Returns the summary as a line of text.
    pub fn line(&self) -> String {
        let Self { frames, used_frames, held_blocks, held_there } = self;
        let mib = |frames: u64| frames / 256;
        let held = match held_blocks {
            0 => String::new(),
            _ => format!(
                "; of {held_blocks} blocks that the recording gives back without having taken them, \
                 {held_there} are there"
            ),
        };
        format!("begins with {} of {} MiB in use{held}", mib(*used_frames), mib(*frames))
    }
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
            let ReplayRow { look, free_blocks, largest_free_frames, .. } = row;
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

    /// The headings of [`places`](Self::places).
    pub const PLACES: &'static str = "  time s  2 MiB free  of room  movable  blocked  to move  1 GiB free  movable  \
                                      blocked  requests  in one  moved MiB   stalls";

    /// The rows as text: of the places for pages of 2 MiB and of 1 GiB, how many are free, can be emptied
    /// by moving frames, or hold one that cannot be moved; the free ones as a share of those for which free
    /// memory has room; the frames to move for the next; requests for 2 MiB and more, and those that got
    /// one block; what the daemons moved; times that a request had to wait.
    pub fn places(&self) -> Vec<String> {
        let line = |row: &ReplayRow| {
            let ReplayRow { look, huge, gigantic, .. } = row;
            let next = huge.next_moves.map_or_else(|| "-".to_owned(), |moves| moves.to_string());
            format!(
                "{:>8.1}  {:>10}  {:>7}  {:>7}  {:>7}  {next:>7}  {:>10}  {:>7}  {:>7}  {:>8}  {:>6}  {:>9}  {:>7}",
                look.time_us as f64 / 1e6,
                huge.free,
                row.huge_share(),
                huge.movable,
                huge.blocked,
                gigantic.free,
                gigantic.movable,
                gigantic.blocked,
                look.counts.huge_requests,
                look.counts.huge_served,
                look.moved_frames / 256,
                row.stalls(),
            )
        };
        self.rows.iter().map(line).collect()
    }

    /// The last rows of all allocators side by side, with headings.
    pub fn ends(tables: &[Self]) -> Vec<String> {
        let head = "at the end              2 MiB free  of room  movable  blocked  1 GiB free  blocked  resting  \
                    moved MiB   stalls  fallbacks   failed";
        let line = |table: &Self| {
            let row = table.rows.last()?;
            let ReplayRow { look, huge, gigantic, .. } = row;
            let fallbacks = look.fallbacks.map_or_else(|| "-".to_owned(), |n| n.to_string());
            Some(format!(
                "{:22}  {:>10}  {:>7}  {:>7}  {:>7}  {:>10}  {:>7}  {:>7}  {:>9}  {:>7}  {fallbacks:>9}  {:>7}",
                table.allocator.title(),
                huge.free,
                row.huge_share(),
                huge.movable,
                huge.blocked,
                gigantic.free,
                gigantic.blocked,
                look.resting_banks,
                look.moved_frames / 256,
                row.stalls(),
                look.counts.failed,
            ))
        };
        std::iter::once(head.to_owned()).chain(tables.iter().filter_map(line)).collect()
    }
}
