//! The daemon's rules over the memory blocks of a machine.
//!
//! Which block is emptied next, and whether that is worth it, is decided by
//! [`swath_vm::migrate::Daemon`], as in the studies and in a kernel. Linux moves what lies in the
//! block by itself, all of it at once or nothing, while it takes it offline; so a bank's isolation
//! is the whole work here, and a bank that Linux refuses is one with a pinned frame.
//!
//! What is added is the way back: when free memory falls below a threshold, the block that went
//! offline last comes online again, and so do all of them at the end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use swath_arch::{Extent, Order, Pfn};
use swath_vm::migrate::{
    BankCandidate, Daemon, MigrationConfig, MigrationStep, MovableBanks, Owners, Stuck,
};

use crate::live::error::LiveError;

/// The number of times that a block's pause after a refusal is doubled.
const DOUBLINGS_MAX: u32 = 6;

/// The number of times that the interval is doubled while there is nothing to do.
const IN_VAIN_MAX: u32 = 4;

/// The use of a memory block.
///
/// Invariant: the counts sum to at most the block's frames; the rest are holes.
#[derive(Clone, Debug)]
pub struct BlockUse {
    /// Its number.
    pub number: u64,
    /// Its frames.
    pub frames: Extent,
    /// True if the kernel puts nothing into its zone that cannot move.
    pub in_movable_zone: bool,
    /// True if it lies in one zone, not below an address that devices need, and the kernel
    /// can take it offline.
    pub can_go: bool,
    /// Frames that are free.
    pub free: u64,
    /// Frames in use that the kernel can move.
    pub movable: u64,
    /// Frames that it cannot.
    pub unmovable: u64,
    /// Frames that Linux marks as nothing.
    pub unmarked: u64,
    /// Frames of its zone in per-CPU lists: what an unmarked frame may be.
    pub in_cpu_lists: u64,
}

impl BlockUse {
    /// Frames that are not known to be free.
    fn used(&self) -> u64 {
        self.frames.count - self.free.min(self.frames.count)
    }

    /// Returns true if everything in it can move, as far as its frames tell.
    pub fn is_movable(&self) -> bool {
        let marked = self.free + self.movable + self.unmarked + self.unmovable;
        let has_holes = marked < self.frames.count;
        let unmarked_are_free = self.in_movable_zone || self.unmarked <= self.in_cpu_lists;
        self.can_go && !has_holes && self.unmovable == 0 && unmarked_are_free
    }
}

/// Reasons why a block is not offline.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The kernel could not move what lies in it.
    #[error("something in it cannot move")]
    Busy,
    /// The timeout was over.
    #[error("it took too long")]
    TimedOut,
    /// Programs needed the memory.
    #[error("memory became scarce meanwhile")]
    Scarce,
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
    /// Any other reason of the system's.
    #[error("{0}")]
    System(String),
}

/// The memory that is online.
#[derive(Clone, Copy, Debug)]
pub struct OnlineFrames {
    /// All of them.
    pub total: u64,
    /// Those that are free.
    pub free: u64,
}

/// A machine whose memory blocks go offline and online.
pub trait Machine {
    /// Nanoseconds since some time.
    fn now_ns(&self) -> u64;

    /// Lets time pass.
    fn rest(&mut self, ns: u64);

    /// Returns true if the daemon is to end.
    fn is_stopped(&self) -> bool;

    /// Counts the frames of the memory that is online, and those of them that are free.
    ///
    /// # Errors
    /// What the kernel does not tell.
    fn frames(&mut self) -> Result<OnlineFrames, LiveError>;

    /// Reads the use of the blocks that are online.
    ///
    /// # Errors
    /// What the kernel does not tell.
    fn blocks(&mut self) -> Result<Vec<BlockUse>, LiveError>;

    /// Takes a block offline; not if free memory falls below `low_frames` meanwhile.
    ///
    /// # Errors
    /// A [`Refusal`]; the block is online as before.
    fn offline(&mut self, block: &BlockUse, low_frames: u64) -> Result<(), Refusal>;

    /// Brings a block online that [`offline`](Self::offline) took.
    ///
    /// # Errors
    /// A [`Refusal`]; the block is offline as before.
    fn online(&mut self, number: u64) -> Result<(), Refusal>;

    /// Asks the system to free so many frames of what it can read again.
    fn reclaim(&mut self, frames: u64);
}

/// The order in which blocks are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Choice {
    /// The one with the fewest frames in use of those in which all can move.
    Emptiest,
    /// The one at the highest address that the kernel calls removable, as chmem does, whatever lies
    /// in it.
    Highest,
}

/// The daemon's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The order in which blocks are tried.
    pub choice: Choice,
    /// Pace and choice, as in a kernel.
    pub migration: MigrationConfig,
    /// Below so many free frames a block comes online.
    pub low_frames: u64,
    /// Frames that may be offline.
    pub offline_frames_max: u64,
    /// Frames that may be moved in a second, on average.
    pub moved_frames_per_s: u64,
    /// Frames that may be reclaimed in an interval for the sake of a block.
    pub reclaimed_frames: u64,
    /// Nanoseconds from one look at the free memory to the next.
    pub poll_ns: u64,
    /// Ends when nothing is worth it any more.
    pub ends_when_idle: bool,
    /// Ends after so many nanoseconds.
    pub for_ns: Option<u64>,
}

/// Something that happened to a block.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It went offline.
    Emptied {
        /// The block.
        number: u64,
        /// Frames that were moved out of it.
        moved_frames: u64,
        /// Nanoseconds that it took.
        took_ns: u64,
    },
    /// It did not.
    Refused {
        /// The block.
        number: u64,
        /// The reason.
        refusal: Refusal,
        /// Nanoseconds until it was given up.
        took_ns: u64,
    },
    /// It came online again.
    Opened {
        /// The block.
        number: u64,
        /// Frames that were free before.
        free_frames: u64,
        /// Nanoseconds that it took.
        took_ns: u64,
    },
    /// It did not, and is tried again.
    StaysOffline {
        /// The block.
        number: u64,
        /// The reason.
        refusal: Refusal,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: &u64| *ns as f64 / 1e6;
        let mib = |frames: &u64| frames >> 8;
        match self {
            Self::Emptied { number, moved_frames, took_ns } => {
                let (mib, ms) = (mib(moved_frames), ms(took_ns));
                write!(to, "memory{number} offline, {mib} MiB moved in {ms:.0} ms")
            }
            Self::Refused { number, refusal, took_ns } => {
                let ms = ms(took_ns);
                write!(to, "memory{number} stays online after {ms:.0} ms: {refusal}")
            }
            Self::Opened { number, free_frames, took_ns } => {
                let (mib, ms) = (mib(free_frames), ms(took_ns));
                write!(to, "memory{number} online in {ms:.0} ms, as {mib} MiB were free")
            }
            Self::StaysOffline { number, refusal } => {
                write!(to, "memory{number} does not come online: {refusal}")
            }
        }
    }
}

/// The daemon's work in figures.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Seconds that it ran.
    pub seconds: f64,
    /// Blocks taken offline.
    pub offlined: u64,
    /// Blocks that were tried and stayed online, but for those given up as memory was needed or
    /// the user interrupted.
    pub failed: u64,
    /// Blocks given up as memory was needed.
    pub given_up: u64,
    /// Blocks brought online as memory was needed.
    pub opened: u64,
    /// Frames that were moved.
    pub moved_frames: u64,
    /// Frames that the system was asked to free.
    pub reclaimed_frames: u64,
    /// Of the free memory, online and offline, the share that was offline, on average over time;
    /// none if no time passed.
    pub offline_share: Option<f64>,
    /// Blocks that could not be brought online at the end.
    pub left: Vec<u64>,
}

/// The blocks, as the migration daemon sees them.
///
/// Invariant: `outcome` is of the block that was isolated last.
struct Banks<'a, M> {
    machine: &'a mut M,
    settings: &'a Settings,
    /// Of the whole memory that is online.
    frames: OnlineFrames,
    /// None of them while nothing could be taken offline.
    blocks: Vec<BlockUse>,
    offline_blocks: usize,
    offline_frames: u64,
    refusals: &'a BTreeMap<u64, (u32, u64)>,
    now_ns: u64,
    outcome: Option<(BlockUse, Result<(), Refusal>, u64)>,
    /// Frames that were missing for the candidate.
    lacks: Cell<u64>,
}

impl<M: Machine> MovableBanks for Banks<'_, M> {
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        let waits = |number| {
            self.refusals.get(&number).is_some_and(|(_, until_ns)| self.now_ns < *until_ns)
        };
        let may_go = |block: &&BlockUse| {
            let is_too_much =
                self.offline_frames + block.frames.count > self.settings.offline_frames_max;
            !avoided(block.number as usize) && !waits(block.number) && !is_too_much
        };
        let blocks = self.blocks.iter().filter(may_go);
        let block = match self.settings.choice {
            Choice::Emptiest => blocks
                .filter(|block| block.is_movable())
                .min_by_key(|block| (block.used(), std::cmp::Reverse(block.number))),
            Choice::Highest => blocks.filter(|block| block.can_go).max_by_key(|block| block.number),
        }?;
        let (bank, occupied_frames) = (block.number as usize, block.used());
        let needed = occupied_frames + self.settings.migration.reserve_frames;
        self.lacks.set(needed.saturating_sub(self.room_frames(bank)));
        Some(BankCandidate { bank, frames: block.frames, occupied_frames })
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let own = self.blocks.iter().find(|block| block.number == bank as u64);
        self.frames.free.saturating_sub(own.map_or(0, |block| block.free))
    }

    fn resting_banks(&self) -> usize {
        self.offline_blocks
    }

    fn isolate(&mut self, bank: usize) -> bool {
        let Some(block) = self.blocks.iter().find(|block| block.number == bank as u64) else {
            return false;
        };
        let began = self.machine.now_ns();
        let outcome = self.machine.offline(block, self.settings.low_frames);
        let took_ns = self.machine.now_ns().saturating_sub(began);
        self.outcome = Some((block.clone(), outcome, took_ns));
        true
    }

    fn rejoin(&mut self, _: usize) {
        // Linux has put back what it isolated.
    }

    fn next_occupied(&self, _: usize, from: Pfn) -> Option<Pfn> {
        match &self.outcome {
            Some((_, Ok(()), _)) => None,
            _ => Some(from),
        }
    }

    fn allocate_target(&mut self, _: Order) -> Option<Pfn> {
        None
    }

    fn free(&mut self, _: Pfn, _: Order) {}
}

/// The owners of what Linux did not move.
struct Pinned;

impl Owners for Pinned {
    fn block(&self, _: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
        Err(Stuck::Pinned)
    }

    fn relocate(&mut self, _: Pfn, _: Pfn, _: Order) -> Result<bool, Stuck> {
        Err(Stuck::Pinned)
    }
}

/// Blocks that are offline, and what happened so far.
///
/// Invariant: `offline` has the blocks that the daemon took offline and that are so still, in the
/// order in which they went.
struct State {
    offline: Vec<(u64, u64)>,
    /// How often each block was refused in a row, and until when it is left alone.
    refusals: BTreeMap<u64, (u32, u64)>,
    summary: Summary,
}

/// Runs the daemon until it is stopped, and brings everything online again.
///
/// # Errors
/// What the machine could not tell; everything is brought online all the same. The summary names
/// the blocks that could not be.
pub fn serve<M: Machine>(
    machine: &mut M,
    settings: &Settings,
    tell: &mut dyn FnMut(&Event),
) -> (Summary, Result<(), LiveError>) {
    let mut state =
        State { offline: Vec::new(), refusals: BTreeMap::new(), summary: Summary::default() };
    let result = state.work(machine, settings, tell);
    state.put_back(machine, tell);
    (state.summary, result)
}

impl State {
    fn work<M: Machine>(
        &mut self,
        machine: &mut M,
        settings: &Settings,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(), LiveError> {
        let mut daemon = Daemon::new(settings.migration);
        let began = machine.now_ns();
        let (mut next, mut seen, mut share, mut scarce_until) = (began, began, 0.0, 0);
        let mut in_vain = 0;
        loop {
            let now = machine.now_ns();
            let frames = machine.frames()?;
            let (free, offline) = (frames.free, self.offline_frames());
            share += offline as f64 / (offline + free).max(1) as f64 * (now - seen) as f64;
            seen = now;
            self.summary.seconds = (now - began) as f64 / 1e9;
            self.summary.offline_share = (now > began).then(|| share / (now - began) as f64);
            if machine.is_stopped() || settings.for_ns.is_some_and(|ns| now - began >= ns) {
                return Ok(());
            }
            if free < settings.low_frames && !self.offline.is_empty() {
                scarce_until = now.saturating_add(settings.migration.settle_ns);
                in_vain = 0;
                if self.open(machine, free, tell) {
                    continue;
                }
            } else if now >= next {
                // Reading the use of all frames is the expensive part.
                let may_suffice = free.saturating_add(settings.reclaimed_frames)
                    > settings.migration.reserve_frames;
                let mut banks = Banks {
                    frames,
                    blocks: if may_suffice { machine.blocks()? } else { Vec::new() },
                    machine,
                    settings,
                    offline_blocks: self.offline.len(),
                    offline_frames: offline,
                    refusals: &self.refusals,
                    now_ns: now,
                    outcome: None,
                    lacks: Cell::new(0),
                };
                let step = daemon.step(now, u64::MAX, &mut banks, &mut Pinned);
                let (lacks, outcome) = (banks.lacks.get(), banks.outcome);
                let moved = match outcome {
                    Some((block, outcome, took_ns)) => {
                        in_vain = 0;
                        let event = self.note(settings, now, &block, outcome, took_ns);
                        tell(&event);
                        if matches!(event, Event::Emptied { .. }) { block.movable } else { 0 }
                    }
                    None if settings.ends_when_idle => return Ok(()),
                    None => {
                        in_vain = if may_suffice { (in_vain + 1).min(IN_VAIN_MAX) } else { 0 };
                        let ask = lacks.min(settings.reclaimed_frames);
                        if ask > 0 && lacks <= settings.reclaimed_frames && now >= scarce_until {
                            machine.reclaim(ask);
                            self.summary.reclaimed_frames += ask;
                        }
                        0
                    }
                };
                let until = match step {
                    MigrationStep::Wait { until_ns } => until_ns,
                    _ => now.saturating_add(settings.migration.interval_ns),
                };
                let pause = settings.migration.interval_ns.saturating_mul((1 << in_vain) - 1);
                let until = until.saturating_add(pause);
                let paid = u128::from(moved) * 1_000_000_000
                    / u128::from(settings.moved_frames_per_s.max(1));
                next = until.max(now.saturating_add(u64::try_from(paid).unwrap_or(u64::MAX)));
            }
            machine.rest(settings.poll_ns);
        }
    }

    fn offline_frames(&self) -> u64 {
        self.offline.iter().map(|(_, frames)| frames).sum()
    }

    fn note(
        &mut self,
        settings: &Settings,
        now: u64,
        block: &BlockUse,
        outcome: Result<(), Refusal>,
        took_ns: u64,
    ) -> Event {
        let number = block.number;
        let summary = &mut self.summary;
        match outcome {
            Ok(()) => {
                summary.offlined += 1;
                summary.moved_frames += block.movable;
                self.offline.push((number, block.frames.count));
                self.refusals.remove(&number);
                Event::Emptied { number, moved_frames: block.movable, took_ns }
            }
            Err(refusal) => {
                match refusal {
                    Refusal::Scarce | Refusal::Interrupted => summary.given_up += 1,
                    Refusal::Busy | Refusal::TimedOut | Refusal::System(_) => {
                        summary.failed += 1;
                        let (times, until_ns) = self.refusals.entry(number).or_insert((0, 0));
                        let pause = settings.migration.retry_ns.saturating_mul(1 << *times);
                        *until_ns = now.saturating_add(pause);
                        *times = (*times + 1).min(DOUBLINGS_MAX);
                    }
                }
                Event::Refused { number, refusal, took_ns }
            }
        }
    }

    /// Brings the block online that went offline last; true if one came.
    fn open<M: Machine>(
        &mut self,
        machine: &mut M,
        free_frames: u64,
        tell: &mut dyn FnMut(&Event),
    ) -> bool {
        let Some((number, frames)) = self.offline.pop() else { return false };
        let began = machine.now_ns();
        match machine.online(number) {
            Ok(()) => {
                self.summary.opened += 1;
                let took_ns = machine.now_ns().saturating_sub(began);
                tell(&Event::Opened { number, free_frames, took_ns });
                true
            }
            Err(refusal) => {
                // The others first.
                self.offline.insert(0, (number, frames));
                tell(&Event::StaysOffline { number, refusal });
                false
            }
        }
    }

    fn put_back<M: Machine>(&mut self, machine: &mut M, tell: &mut dyn FnMut(&Event)) {
        for (number, _) in std::mem::take(&mut self.offline).into_iter().rev() {
            if let Err(refusal) = machine.online(number) {
                tell(&Event::StaysOffline { number, refusal });
                self.summary.left.push(number);
            }
        }
    }
}
