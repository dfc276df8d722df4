//! A design under a load: the state of the machine over time, and the numbers
//! that the studies take from it.

use serde::{Deserialize, Serialize};
use swath_frame::machine::{MemoryUnit, UnitState};
use swath_hw::power::{BankEnergy, PowerState, PowerTable};

use crate::papers::green::machine::allocator::FallbackTally;
use crate::papers::green::machine::computer::drive;
use crate::papers::green::machine::config::{GreenConfig, Interleaved};
use crate::papers::green::machine::view::{FreeBlocks, Look, MachineCounts, MachineView};
use crate::papers::green::pages::load::{BOOT_US, PageLoad};
use crate::papers::green::pages::requests::{TimedOp, handles};
use crate::papers::green::pages::runs::{Recorded, Requests, Stretch};
use crate::papers::green::reel::Maps;
use crate::papers::green::setting::{DaemonPlan, Design, LoadRun};
use crate::source::memory::random;
use crate::study::grid::{Metrics, metrics};
use crate::study::plan::Head;
use crate::study::run::{Run, StudyError};
use rand::RngExt;

/// Simulated time from one look to the next.
pub(crate) const EVERY_US: u64 = 5_000_000;

/// The frames of a section by their use.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct SectionUse {
    pub(crate) present: u64,
    pub(crate) free: u64,
    pub(crate) movable: u64,
    pub(crate) unmovable: u64,
}

impl From<UnitState> for SectionUse {
    fn from(state: UnitState) -> Self {
        let UnitState { present, free, movable, unmovable, .. } = state;
        Self { present, free, movable, unmovable }
    }
}

/// Looks in a minute of simulated time.
pub(crate) const LOOKS_A_MINUTE: u64 = 60_000_000 / EVERY_US;

/// Bytes of a look in a track that grows, and of the banks emptied until then.
pub(crate) const LOOK_BYTES: u64 = 2 * size_of::<Look>() as u64;

/// Bytes of a machine of so many frames under a load: the allocators, the owner of each
/// frame, its mappings, and the load's own lists.
pub(crate) const fn machine_bytes(frames: u64) -> u64 {
    frames.saturating_mul(48)
}

/// Sections at one moment.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Sections {
    pub(crate) look: Look,
    pub(crate) states: Vec<SectionUse>,
    /// The sections in which zones begin, ascending.
    pub(crate) zone_starts: Vec<usize>,
}

/// The course of a design under a load.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Track {
    /// After boot, evenly over time.
    pub(crate) looks: Vec<Look>,
    /// Memory's maps over the same time, of the first repeat.
    pub(crate) maps: Maps,
    /// The moment of the second half at which the least memory was in use.
    pub(crate) lowest: Sections,
    energy: Energy,
    /// Frames that each bank held that a daemon emptied.
    pub(crate) emptied: Vec<u64>,
    /// Linux's fallbacks at the end, and when the tail began.
    pub(crate) tally: Option<FallbackTally>,
    pub(crate) tally_before: Option<FallbackTally>,
    pub(crate) end: Look,
    pub(crate) end_blocks: FreeBlocks,
    pub(crate) bank_frames: u64,
    /// Banks of the power model that are holes: always in active idle.
    hole_banks: u64,
}

/// Energy of the memory's banks, and their time together.
#[derive(Clone, Serialize, Deserialize)]
struct Energy {
    /// Thousandths of a bank's full power × nanoseconds.
    permille_ns: u128,
    /// The same if only the cells of what rests take less, and the interface stays on.
    cells_permille_ns: u128,
    residency_ns: u64,
}

/// Nanoseconds for which a bank reads or writes a frame that is copied: 4 KiB at the 12.8 GB/s
/// of a channel of DDR3-1600.
const COPY_NS: u64 = 320;

impl From<BankEnergy> for Energy {
    fn from(energy: BankEnergy) -> Self {
        let residency_ns = energy.residency_ns.iter().sum();
        let cells_permille_ns = energy.with(&PowerTable::SUB_ARRAYS);
        Self { permille_ns: energy.permille_ns, cells_permille_ns, residency_ns }
    }
}

/// Requests after the load's, as a recording has them, and their duration.
pub(crate) struct Tail<'a> {
    pub(crate) ops: &'a [TimedOp],
    pub(crate) duration_us: u64,
}

/// A load until a time, and then recorded requests. The load's handles follow theirs.
struct AgedRecording<'r> {
    load: PageLoad,
    load_us: u64,
    ids_from: u32,
    recorded: Recorded<'r>,
    is_aged: bool,
}

impl<'r> AgedRecording<'r> {
    fn new(load: PageLoad, load_us: u64, ops: &'r [TimedOp]) -> Self {
        let (ids_from, recorded) = (handles(ops), Recorded::new(ops, load_us));
        Self { load, load_us, ids_from, recorded, is_aged: false }
    }
}

impl Requests for AgedRecording<'_> {
    fn next_stretch(&mut self) -> Option<Stretch<'_>> {
        if !self.is_aged {
            let stretch = self.load.next_stretch()?;
            if stretch.start_us < self.load_us {
                return Some(Stretch { ids_from: self.ids_from, ..stretch });
            }
            self.is_aged = true;
        }
        self.recorded.next_stretch()
    }
}

/// The seed of a load's random numbers: the plan's for the first repeat.
pub(crate) fn load_seed(seed: u64, repeat: u64) -> u64 {
    if repeat == 0 { seed } else { random(seed, repeat).random() }
}

/// A design on one of the repeats of a load.
#[derive(Clone, Copy)]
pub(crate) struct Trial<'p> {
    pub(crate) about: &'p Head,
    pub(crate) daemon: &'p DaemonPlan,
    pub(crate) load: LoadRun,
    pub(crate) design: Design,
    pub(crate) repeat: u64,
}

impl Trial<'_> {
    /// All that its track follows from: studies have trials in common.
    pub(crate) fn key(&self, quick: bool) -> String {
        let Self { about, daemon, load, design, repeat } = self;
        // The other form's minutes make no difference; what else a row gets does, and stands here.
        let LoadRun { machine, load: name, interleaving, bank_mib: _, system_mib, minutes: _ } =
            load;
        let (minutes, seed) = (load.minutes(quick), load_seed(about.seed, *repeat));
        let daemon = daemon.config(design.migration);
        // What is powered as one says all of interleaving but for the daemon's pace.
        let unit = (load.unit_bytes(), *interleaving == Interleaved::None);
        format!("{machine:?} {name:?} {system_mib} {unit:?} {minutes} {design:?} {daemon:?} {seed}")
    }
}

/// Runs a design under a load, and then the tail's requests, if any. Looks are
/// those of the tail then.
pub(crate) fn track(
    trial: &Trial<'_>,
    run: &Run<'_>,
    tail: Option<&Tail<'_>>,
) -> Result<Track, StudyError> {
    let Trial { about, daemon, load: row, design, repeat } = *trial;
    let fault = |what: String| {
        let what = format!("{}, {}: {what}", row.title(), design.title());
        StudyError::Machine { study: about.study.clone(), what }
    };
    let load_us = row.minutes(run.quick) * 60_000_000;
    let (from_us, until_us) = match tail {
        Some(tail) => (load_us, load_us + tail.duration_us),
        None => (BOOT_US, load_us),
    };
    let seed = load_seed(about.seed, repeat);
    let load = PageLoad::with_system(row.machine.load(), row.load.kind(), seed, row.system());
    let load = load.ok_or_else(|| fault("a machine that is no load's".to_owned()))?;
    // Handles of the load follow those of the tail.
    let mut requests = AgedRecording::new(load, load_us, tail.map_or(&[], |tail| tail.ops));
    let config = GreenConfig {
        interleaving: row.interleaving,
        bank_frames: row.bank_mib.get() << 8,
        daemon: daemon.config(design.migration),
        ..GreenConfig::new(design.allocator, row.machine)
    };
    let every_us = if tail.is_some() { (until_us - from_us).div_ceil(40) } else { EVERY_US };
    let shows_maps = repeat == 0 && tail.is_none();
    let mut watcher = Watcher { from_us, until_us, shows_maps, ..Watcher::default() };
    let mut observe = |view: &dyn MachineView| {
        watcher.see(view);
        !run.watch.cancelled()
    };
    drive(config, &mut requests, until_us, every_us, &mut observe)
        .map_err(|error| fault(error.to_string()))?;
    let track = watcher.track().ok_or_else(|| match run.watch.cancelled() {
        true => StudyError::Interrupted,
        false => fault("its requests ended early".to_owned()),
    })?;
    match track.end.counts.lost_frames {
        0 => Ok(track),
        lost => Err(fault(format!("{lost} frames lost their content"))),
    }
}

/// The observer of a run: it makes a [`Track`] of what it sees.
#[derive(Default)]
struct Watcher {
    from_us: u64,
    until_us: u64,
    shows_maps: bool,
    looks: Vec<Look>,
    maps: Maps,
    lowest: Option<Sections>,
    tally_before: Option<FallbackTally>,
    end: Option<End>,
}

/// The last look.
struct End {
    look: Look,
    blocks: FreeBlocks,
    energy: BankEnergy,
    emptied: Vec<u64>,
    tally: Option<FallbackTally>,
    bank_frames: u64,
    hole_banks: u64,
}

impl Watcher {
    fn see(&mut self, view: &dyn MachineView) {
        let look = view.look();
        if look.time_us >= self.from_us {
            self.looks.push(look);
            if self.shows_maps {
                self.maps.see(view, look.time_us, (self.from_us, self.until_us));
            }
        } else {
            self.tally_before = view.tally();
        }
        let half = self.from_us + (self.until_us - self.from_us) / 2;
        let lowest = self.lowest.as_ref();
        let lower = lowest.is_none_or(|lowest| look.free_frames > lowest.look.free_frames);
        let layout = view.layout();
        if look.time_us >= half && lower {
            let states = (0..layout.sections()).filter_map(|s| view.unit(MemoryUnit::Section(s)));
            let zones = layout.zones().iter().filter_map(|z| layout.section_of(z.span.start));
            let mut zone_starts: Vec<usize> = zones.collect();
            zone_starts.sort_unstable();
            zone_starts.dedup();
            self.lowest =
                Some(Sections { look, states: states.map(Into::into).collect(), zone_starts });
        }
        if look.time_us >= self.until_us {
            self.end = Some(End {
                look,
                blocks: view.free_blocks(),
                energy: view.energy(),
                emptied: view.emptied().to_vec(),
                tally: view.tally(),
                bank_frames: layout.bank_frames(),
                hole_banks: layout.banks() as u64 - look.banks,
            });
        }
    }

    /// The track, if the run came to its end.
    fn track(self) -> Option<Track> {
        let (lowest, end) = (self.lowest?, self.end?);
        Some(Track {
            looks: self.looks,
            maps: self.maps,
            lowest,
            energy: end.energy.into(),
            emptied: end.emptied,
            tally: end.tally,
            tally_before: self.tally_before,
            end: end.look,
            end_blocks: end.blocks,
            bank_frames: end.bank_frames,
            hole_banks: end.hole_banks,
        })
    }
}

impl Track {
    /// The mean of a number over the looks.
    pub(crate) fn mean(&self, of: impl Fn(&Look) -> f64) -> f64 {
        self.looks.iter().map(of).sum::<f64>() / self.looks.len().max(1) as f64
    }

    /// The largest of a number over the looks.
    pub(crate) fn max(&self, of: impl Fn(&Look) -> f64) -> f64 {
        self.looks.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
    }

    /// c of section V-D from average amounts: resting by free memory.
    pub(crate) fn c(&self) -> f64 {
        self.mean(|look| look.resting_frames as f64) / self.mean(|look| look.free_frames as f64)
    }

    /// Energy of the memory's banks, of which this much was taken in states and transitions, as
    /// a share of what they take in active idle. The copies of frames that were moved come
    /// on top: each is read by a bank and written by another.
    fn energy_share(&self, permille_ns: u128) -> f64 {
        let power = PowerTable::PAPER.power_permille.map(u128::from);
        let idle = power[PowerState::ActiveIdle as usize];
        let hole_ns = u128::from(self.hole_banks * self.end.time_us * 1000);
        let idle_energy = (u128::from(self.energy.residency_ns) - hole_ns) * idle;
        (permille_ns - hole_ns * idle + self.copy_energy()) as f64 / idle_energy as f64
    }

    /// Energy of the copies beyond active idle.
    fn copy_energy(&self) -> u128 {
        let power = PowerTable::PAPER.power_permille.map(u128::from);
        let more = power[PowerState::ReadWrite as usize] - power[PowerState::ActiveIdle as usize];
        u128::from(self.end.moved_frames * 2 * COPY_NS) * more
    }

    /// Frames moved for each bank that was emptied, as a share of a bank; not a
    /// number if none was.
    pub(crate) fn moved_share(&self) -> f64 {
        let moved: u64 = self.emptied.iter().sum();
        moved as f64 / (self.emptied.len() as u64 * self.bank_frames) as f64
    }

    /// Counts at the end.
    pub(crate) fn counts(&self) -> MachineCounts {
        self.end.counts
    }

    /// Of the sections with kernel memory, the share that stands side by side
    /// from the first section of a zone on; not a number if there is none.
    fn kernel_in_rows(&self) -> f64 {
        let Sections { look, states, zone_starts } = &self.lowest;
        let ends = zone_starts.iter().skip(1).copied().chain([states.len()]);
        let rows = zone_starts.iter().zip(ends).map(|(&start, end)| &states[start..end]);
        let in_row = |row: &[SectionUse]| row.iter().take_while(|s| s.unmovable > 0).count();
        rows.map(in_row).sum::<usize>() as f64 / look.kernel_sections as f64
    }

    /// The share of sections that are wholly free.
    fn whole_share(&self) -> f64 {
        let Sections { look, states, .. } = &self.lowest;
        let whole = states.iter().filter(|s| s.present > 0 && s.free == s.present);
        whole.count() as f64 / look.sections as f64
    }

    /// Of the banks emptied, the share that held less than a tenth.
    fn nearly_empty_share(&self) -> f64 {
        let nearly = self.emptied.iter().filter(|&&moved| moved < self.bank_frames / 10);
        nearly.count() as f64 / self.emptied.len() as f64
    }

    /// The most frames that came free from one look to the next, on balance.
    fn released_most(&self) -> u64 {
        let pairs = self.looks.windows(2);
        let more = pairs.map(|pair| pair[1].free_frames.saturating_sub(pair[0].free_frames));
        more.max().unwrap_or(0)
    }

    /// The look at which the least of the free memory rests.
    fn least_c(&self) -> Look {
        let least = self.looks.iter().min_by(|a, b| a.c().total_cmp(&b.c()));
        least.copied().unwrap_or(self.end)
    }

    /// The look at which the most of it does.
    fn largest_c(&self) -> Look {
        let largest = self.looks.iter().max_by(|a, b| a.c().total_cmp(&b.c()));
        largest.copied().unwrap_or(self.end)
    }

    /// Every number of a run. One that has no value in it, as the frames of
    /// banks emptied where none was, is not a number, and a grid leaves it out.
    pub(crate) fn metrics(&self) -> Metrics {
        let (lowest, counts) = (&self.lowest.look, self.counts());
        let (least, largest) = (self.least_c(), self.largest_c());
        let awake = |look: &Look| (look.free_frames - look.resting_frames) as f64;
        metrics([
            ("resting_mean", self.mean(Look::resting_share)),
            ("resting_max", self.max(Look::resting_share)),
            ("c", self.c()),
            ("c_least", least.c()),
            ("c_largest", largest.c()),
            ("banks_free_at_least_c", least.free_frames as f64 / self.bank_frames as f64),
            ("awake_banks_at_largest_c", awake(&largest) / self.bank_frames as f64),
            ("nearly_free_banks_most", self.max(|look| look.nearly_free_banks as f64)),
            ("released_most_banks", self.released_most() as f64 / self.bank_frames as f64),
            ("free_mean", self.mean(free_share)),
            ("free_max", self.max(free_share)),
            ("energy_share", self.energy_share(self.energy.permille_ns)),
            ("energy_share_cells", self.energy_share(self.energy.cells_permille_ns)),
            ("opened_banks", self.end.opened_banks as f64),
            ("waited_ms", counts.waited_ns as f64 / 1e6),
            ("awake_free_banks", self.mean(awake) / self.bank_frames as f64),
            ("removable_mean", self.mean(removable_share)),
            ("spoiled", counts.spoiled as f64),
            ("failed", counts.failed as f64),
            ("used_at_lowest", 1.0 - free_share(lowest)),
            ("resting_banks_at_lowest", lowest.resting_banks as f64),
            ("kernel_sections_at_lowest", lowest.kernel_sections as f64),
            ("whole_share_at_lowest", self.whole_share()),
            ("kernel_share_at_lowest", lowest.kernel_sections as f64 / lowest.sections as f64),
            ("kernel_in_rows_at_lowest", self.kernel_in_rows()),
            ("emptied_banks", self.emptied.len() as f64),
            ("moved_gib", gib(self.end.moved_frames)),
            ("moved_share", self.moved_share()),
            ("moved_in_all_share", self.moved_in_all_share()),
            ("nearly_empty_share", self.nearly_empty_share()),
            ("end_removable_share", removable_share(&self.end)),
            ("end_free_blocks", self.end_blocks.count as f64),
        ])
    }

    /// Frames moved in all, in vain as well, by those of the banks emptied.
    fn moved_in_all_share(&self) -> f64 {
        self.end.moved_frames as f64 / (self.end.emptied_banks * self.bank_frames) as f64
    }
}

/// GiB of so many frames.
pub(crate) fn gib(frames: u64) -> f64 {
    frames as f64 / f64::from(1 << 18)
}

/// Free memory as a share of all.
pub(crate) fn free_share(look: &Look) -> f64 {
    look.free_frames as f64 / look.total_frames as f64
}

/// Removable sections as a share of all.
pub(crate) fn removable_share(look: &Look) -> f64 {
    look.removable_sections as f64 / look.sections as f64
}
