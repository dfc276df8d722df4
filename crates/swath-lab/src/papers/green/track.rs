//! What the studies of the green memory manager share: a design under a load,
//! looked at over time.

use swath_frame::machine::{MemoryUnit, UnitState};
use swath_hw::power::{BankEnergy, PowerState, PowerTable};

use crate::papers::green::allocator::{AllocatorName, FallbackTally};
use crate::papers::green::machine::{Counts, FreeBlocks, GreenConfig, Look, View, drive};
use crate::papers::green::plan::{Design, GreenPlan, GreenRun};
use crate::source::load::{BOOT_US, PageLoad};
use crate::source::replay::TimedOp;
use crate::study::results::Point;
use crate::study::run::{Run, StudyError};

/// Simulated time from one look to the next.
const EVERY_US: u64 = 5_000_000;

/// The most points of a line.
const POINTS_MAX: usize = 200;

/// Sections at one moment.
pub(crate) struct Sections {
    pub(crate) look: Look,
    pub(crate) states: Vec<UnitState>,
    /// The sections in which zones begin, ascending.
    pub(crate) zone_starts: Vec<usize>,
}

/// What a design did under a load.
pub(crate) struct Track {
    /// After boot, evenly over time.
    pub(crate) looks: Vec<Look>,
    /// When the least memory was in use, in the second half.
    pub(crate) lowest: Sections,
    pub(crate) energy: BankEnergy,
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

/// Requests after the load's, as a recording has them, and for how long.
pub(crate) struct Tail<'a> {
    pub(crate) ops: &'a [TimedOp],
    pub(crate) duration_us: u64,
}

/// The tracks of every design under a load.
pub(crate) type Tracks = Vec<(Design, Track)>;

/// The track of a design, if the plan has it.
pub(crate) fn find(
    tracks: &[(Design, Track)],
    allocator: AllocatorName,
    migrate: bool,
) -> Option<&Track> {
    let wanted = Design { allocator, migrate };
    tracks.iter().find(|(design, _)| *design == wanted).map(|(_, track)| track)
}

/// Runs a design under a load, and then the tail's requests, if any. Looks are
/// those of the tail then.
pub(crate) fn track(
    plan: &GreenPlan,
    run: &Run<'_>,
    row: GreenRun,
    design: Design,
    tail: Option<&Tail<'_>>,
) -> Result<Track, StudyError> {
    let fault = |what: String| {
        let what = format!("{}, {}: {what}", row.title(), design.title());
        StudyError::Machine { study: plan.about.study.clone(), what }
    };
    let load_us = row.minutes(run.quick) * 60_000_000;
    let (from_us, until_us) = match tail {
        Some(tail) => (load_us, load_us + tail.duration_us),
        None => (BOOT_US, load_us),
    };
    let load = PageLoad::new(row.machine.load(), row.load.kind(), plan.about.seed);
    let load = load.ok_or_else(|| fault("a machine that is no load's".to_owned()))?;
    // Handles of the load are even, those of the tail odd.
    let load = load.take_while(|op| op.time_us < load_us).map(|op| op.renamed(|id| id * 2, 0));
    let tail_ops = tail.map_or(&[][..], |tail| tail.ops).iter();
    let mut ops = load.chain(tail_ops.map(|op| op.renamed(|id| id * 2 + 1, load_us)));
    let config = GreenConfig {
        interleaved: row.interleaved,
        bank_frames: row.bank_mib << 8,
        daemon: design.migrate.then_some(plan.daemon),
        ..GreenConfig::new(design.allocator, row.machine)
    };
    let mut looks = Vec::new();
    let mut lowest: Option<Sections> = None;
    let (mut end, mut tally_before) = (None, None);
    let every_us = if tail.is_some() { (until_us - from_us).div_ceil(40) } else { EVERY_US };
    let mut observe = |view: &dyn View| {
        let look = view.look();
        if look.time_us >= from_us {
            looks.push(look);
        } else {
            tally_before = view.tally();
        }
        let half = from_us + (until_us - from_us) / 2;
        let lower = lowest.as_ref().is_none_or(|lowest| look.free_frames > lowest.look.free_frames);
        if look.time_us >= half && lower {
            let states =
                (0..view.layout().sections()).filter_map(|s| view.unit(MemoryUnit::Section(s)));
            let layout = view.layout();
            let zones = layout.zones().iter().filter_map(|z| layout.section_of(z.span.start));
            let mut zone_starts: Vec<usize> = zones.collect();
            zone_starts.sort_unstable();
            zone_starts.dedup();
            lowest = Some(Sections { look, states: states.collect(), zone_starts });
        }
        if look.time_us >= until_us {
            end = Some((
                look,
                view.free_blocks(),
                view.energy(),
                view.emptied().to_vec(),
                view.tally(),
                view.layout().bank_frames(),
                view.layout().banks() as u64 - look.banks,
            ));
        }
        !run.watch.cancelled()
    };
    drive(config, &mut ops, until_us, every_us, &mut observe)
        .map_err(|error| fault(error.to_string()))?;
    let (Some(lowest), Some(end)) = (lowest, end) else {
        return Err(if run.watch.cancelled() {
            StudyError::Interrupted
        } else {
            fault("its requests ended early".to_owned())
        });
    };
    let (end, end_blocks, energy, emptied, tally, bank_frames, hole_banks) = end;
    if end.counts.lost_frames > 0 {
        return Err(fault(format!("{} frames lost their content", end.counts.lost_frames)));
    }
    Ok(Track {
        looks,
        lowest,
        energy,
        emptied,
        tally,
        tally_before,
        end,
        end_blocks,
        bank_frames,
        hole_banks,
    })
}

/// Every design under every load, loads first: the rows, the designs and what
/// they did.
pub(crate) fn track_all(
    plan: &GreenPlan,
    run: &Run<'_>,
) -> Result<Vec<(GreenRun, Tracks)>, StudyError> {
    let rows = plan.runs(run.quick);
    let designs = &plan.designs;
    let points: Vec<(GreenRun, Design)> =
        rows.iter().flat_map(|&row| designs.iter().map(move |&design| (row, design))).collect();
    let tracks =
        run.points(&plan.about, &points, |&(row, design)| track(plan, run, row, design, None))?;
    let mut tracks = tracks.into_iter();
    let of_row =
        |row| (row, designs.iter().copied().zip(tracks.by_ref().take(designs.len())).collect());
    Ok(rows.into_iter().map(of_row).collect())
}

impl Track {
    /// The mean of a number over the looks.
    pub(crate) fn mean(&self, of: impl Fn(&Look) -> f64) -> f64 {
        self.looks.iter().map(of).sum::<f64>() / self.looks.len().max(1) as f64
    }

    /// The largest of a number over the looks.
    pub(crate) fn max(&self, of: impl Fn(&Look) -> f64) -> f64 {
        self.looks.iter().map(of).fold(0.0, f64::max)
    }

    /// The least of a number over the looks.
    pub(crate) fn min(&self, of: impl Fn(&Look) -> f64) -> f64 {
        self.looks.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    /// A number over time in minutes, thinned out.
    pub(crate) fn line(&self, of: impl Fn(&Look) -> f64) -> Vec<Point> {
        let every = self.looks.len().div_ceil(POINTS_MAX).max(1);
        let thinned = self.looks.iter().step_by(every);
        thinned.map(|look| Point::at(look.time_us as f64 / 60e6, of(look))).collect()
    }

    /// c of section V-D from average amounts: resting by free memory.
    pub(crate) fn c(&self) -> f64 {
        self.mean(|look| look.resting_frames as f64) / self.mean(|look| look.free_frames as f64)
    }

    /// Energy of the memory's banks as a share of what they take in active idle.
    pub(crate) fn energy_share(&self) -> f64 {
        let idle = u128::from(PowerTable::PAPER.power_permille[PowerState::ActiveIdle as usize]);
        let all_ns: u64 = self.energy.residency_ns.iter().sum();
        let hole_ns = self.hole_banks * self.end.time_us * 1000;
        let hole_energy = u128::from(hole_ns) * idle;
        let idle_energy = u128::from(all_ns - hole_ns) * idle;
        (self.energy.permille_ns - hole_energy) as f64 / idle_energy as f64
    }

    /// Frames moved for each bank that was emptied, as a share of a bank.
    pub(crate) fn moved_share(&self) -> f64 {
        let moved: u64 = self.emptied.iter().sum();
        moved as f64 / (self.emptied.len().max(1) as u64 * self.bank_frames) as f64
    }

    /// Counts at the end.
    pub(crate) fn counts(&self) -> Counts {
        self.end.counts
    }
}

/// What a reader must know of every such study.
pub(crate) fn notes(plan: &GreenPlan, run: &Run<'_>) -> Vec<String> {
    let rows: Vec<String> = plan
        .runs(run.quick)
        .iter()
        .map(|row| format!("{} for {} minutes", row.title(), row.minutes(run.quick)))
        .collect();
    let mut notes = vec![format!(
        "Synthetic load, in simulated time: {}. The first minute is boot and is not counted. \
         Each design gets the same requests.",
        rows.join("; ")
    )];
    if run.quick {
        notes.push(
            "This is a quick run: shorter, and without the larger machines. The full run is \
             asked for by name or with --full."
                .to_owned(),
        );
    }
    notes.push(
        "A bank rests if it is in POOL_OFFLINE. Designs without pools are favoured: a bank of \
         theirs rests as soon as it happens to be wholly free, although they do not know it, or \
         while hotplug has taken it offline. Banks that cross zones or have holes never rest."
            .to_owned(),
    );
    notes
}
