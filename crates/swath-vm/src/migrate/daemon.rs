//! The migration daemon: empties banks of movable memory, so that they can be
//! powered down (Panwar and Gopinath, section IV-E).
//!
//! It is a state machine that the caller steps, with a budget of frames and
//! the time as arguments, so that it runs in a kernel's thread, in a
//! simulation or from a timer alike. It knows neither allocator nor page
//! tables: [`MovableBanks`] says what is free where ([`units`](crate::migrate::units) has it for
//! a machine of `swath-frame`), [`Owners`] moves the content and the mappings of
//! a block ([`relocate`](crate::migrate::relocate) has it for a [`Pmap`](crate::Pmap)).
//! Taking memory offline on demand is the same work on a bank that somebody
//! names ([`begin`](Daemon::begin)).
//!
//! ```text
//!        interval over, settled, a candidate
//!   WAITING ------------------------------> MOVING bank b
//!      ^                                      | each step: next allocated block of b
//!      |   b is empty: rejoin -> offline      |   take a target elsewhere
//!      +--------------------------------------+   relocate
//!      |   a block cannot move: rejoin        |   give the old frames back
//!      +--------------------------------------+
//! ```
//!
//! **The candidate** is the bank with the fewest frames in use; nothing else is
//! worth its migration (Fig. 9c). It must be at most
//! [`occupied_permille_max`](MigrationConfig::occupied_permille_max) full, and the rest
//! of the pool must have room for what it holds and
//! [`reserve_frames`](MigrationConfig::reserve_frames) besides, or its frames would only
//! open another bank.
//!
//! **Hysteresis.** Memory whose use goes up and down within seconds opens a bank with each rise,
//! and would have it emptied after each fall; so does a large block for which the pool has frames
//! enough but none together. So the daemon begins with no bank for
//! [`settle_ns`](MigrationConfig::settle_ns) after one was opened, which it sees at its steps: fewer
//! banks rest than at the one before.
//!
//! **Blocks move whole** while there is a target for them, so that a superpage
//! stays one. Where there is none, the owner is asked to split the block, and
//! its parts move.
//!
//! **Failure puts all back.** What is not yet moved stays where it is, with its
//! mappings; a target taken for it goes back; the bank's free frames may be
//! handed out again. Blocks that have moved are as good where they are. The bank
//! that failed is not tried again before
//! [`retry_ns`](MigrationConfig::retry_ns) have passed, of up to [`AVOIDED_MAX`] such
//! banks: the daemon goes on with the next best instead of coming back to the
//! same pinned frames. A frame that its owner frees meanwhile saves its move.
//!
//! # What it costs
//! Beside the owners' work ([`relocation`](crate::pmap::relocation)): a block costs one
//! search for it, one target, and one return of the old frames; a bank one scan,
//! one isolation and one rejoining. Nothing else grows with banks or frames.

use swath_arch::{Extent, Order, Pfn};

/// A bank that could be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BankCandidate {
    /// Its number.
    pub bank: usize,
    /// Its frames.
    pub frames: Extent,
    /// Number of them that are in use.
    pub occupied_frames: u64,
}

/// The banks of movable memory (POOL_USER), as the daemon needs them.
pub trait MovableBanks {
    /// Returns the bank with the fewest frames in use of those that have some, could be
    /// offline without them, are not isolated and not `avoided`.
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate>;

    /// Counts the free frames in the pool's banks other than `bank`: room for what is
    /// moved out of it.
    fn room_frames(&self, bank: usize) -> u64;

    /// Counts the banks that rest or are offline: fewer than at the step before mean that one was
    /// opened. Asked at each step of a daemon with hysteresis.
    fn resting_banks(&self) -> usize;

    /// Isolates the bank: its free frames are no longer handed out, nor are those
    /// freed from now on. Returns true if that could be done.
    fn isolate(&mut self, bank: usize) -> bool;

    /// Ends the isolation. A bank without a frame in use goes offline.
    fn rejoin(&mut self, bank: usize);

    /// Returns the first frame in use from `from` on in the bank.
    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn>;

    /// Takes a block from the pool's other banks; never from one that is offline.
    fn allocate_target(&mut self, order: Order) -> Option<Pfn>;

    /// Gives back a block that was taken, or moved away from.
    fn free(&mut self, start: Pfn, order: Order);
}

/// Reasons why a block stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stuck {
    /// Kernel memory, whose users are not known.
    #[error("unmovable")]
    Unmovable,
    /// Its owner holds on to it for now: I/O is under way, or it is wired.
    #[error("pinned")]
    Pinned,
    /// Its content could not be copied or a mapping not be changed; all is as
    /// before.
    #[error("copying or mapping failed")]
    Failed,
}

/// The users of the frames in use, who move content and mappings.
pub trait Owners {
    /// Returns the block that the frame belongs to, to be moved as a whole: its first frame and its
    /// order. `Ok(None)` if it was freed in the meantime.
    ///
    /// # Errors
    /// [`Stuck`].
    fn block(&self, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck>;

    /// Copies the content of 2^`order` frames from `from` to `to` and changes
    /// every mapping of them; TLBs are to be invalidated before it returns.
    /// `Ok(false)` if that is no longer the block that [`block`](Self::block)
    /// said, since frames were freed meanwhile: nothing has changed.
    ///
    /// # Errors
    /// [`Stuck`]; nothing has changed.
    fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> Result<bool, Stuck>;

    /// Makes smaller blocks of a block for which there is no target. Returns true if
    /// it is less now; it is not if it can move only as a whole.
    ///
    /// # Errors
    /// [`Stuck`]; who uses the frames is as before.
    fn split(&mut self, start: Pfn, order: Order) -> Result<bool, Stuck> {
        let _ = (start, order);
        Ok(false)
    }
}

/// The daemon's settings: its pace and its choice of banks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MigrationConfig {
    /// Nanoseconds between the end of one bank and the search for the next.
    pub interval_ns: u64,
    /// Nanoseconds for which a bank that failed is left alone.
    pub retry_ns: u64,
    /// The most of a candidate's frames that may be in use, in thousandths.
    pub occupied_permille_max: u32,
    /// Free frames that must remain in the pool when all has moved.
    pub reserve_frames: u64,
    /// Nanoseconds after a bank was opened in which none is begun with; 0 for no hysteresis.
    pub settle_ns: u64,
}

impl MigrationConfig {
    /// A pass a second, but none in the minute after a bank was opened, which was chosen by the
    /// paper's average of 40% of a bank's frames that move (Fig. 9c); a bank may be up to 90% full;
    /// 16 MiB remain free.
    pub const DEFAULT: Self = Self {
        interval_ns: 1_000_000_000,
        retry_ns: 30_000_000_000,
        occupied_permille_max: 900,
        reserve_frames: 4096,
        settle_ns: 60_000_000_000,
    };
}

impl Default for MigrationConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Counts of the daemon's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MigrationStatistics {
    /// Times that a candidate was looked for.
    pub scans: u64,
    /// Banks that were emptied and handed over to go offline.
    pub emptied_banks: u64,
    /// Frames that were moved, also out of banks that then failed.
    pub moved_frames: u64,
    /// Banks given up: a frame was unmovable.
    pub unmovable: u64,
    /// Banks given up: a frame was pinned.
    pub pinned: u64,
    /// Banks given up: no frame for what should move.
    pub no_target: u64,
    /// Banks given up: copying or mapping failed.
    pub failed: u64,
    /// Banks given up: frames that nobody owned were still in use at the end.
    pub in_use: u64,
}

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationStep {
    /// Nothing to do before this time, unless memory is released in bulk.
    Wait {
        /// Time of the next scan, if no bank is opened until then.
        until_ns: u64,
    },
    /// The budget is used up; the bank is not empty yet.
    Moving {
        /// Frames moved in this step.
        moved_frames: u64,
    },
    /// A bank is empty and went offline.
    Emptied {
        /// Its number.
        bank: usize,
        /// Frames that had to be moved for it, over all steps.
        moved_frames: u64,
    },
    /// A bank was given up.
    GaveUp {
        /// Its number.
        bank: usize,
        /// The frame that stays.
        frame: Pfn,
        /// The cause.
        cause: GiveUpCause,
    },
}

/// Reasons why a bank is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GiveUpCause {
    /// A block stays where it is.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The rest of the pool had no block for it.
    #[error("no frame to move to")]
    NoTarget,
    /// Its owner has freed it, and yet it is in use: it lies in a per-CPU list,
    /// which is to be drained.
    #[error("in use without an owner")]
    InUse,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting { until_ns: u64 },
    Moving { candidate: BankCandidate, next: Pfn, moved_frames: u64 },
}

/// The number of banks that failed and are remembered; of more, those whose time is
/// over first are forgotten.
pub const AVOIDED_MAX: usize = 8;

/// No bank: bank 0 would take each such place when it fails, beside its own.
const NO_BANK: usize = usize::MAX;

/// The outcome for one block.
enum Moved {
    /// It is elsewhere.
    Block(Pfn, Order),
    /// Its owner has freed it.
    Freed,
    /// It is not what it was; it is to be looked at again.
    Changed,
}

/// The daemon.
///
/// Invariant: while it is moving, the bank is isolated; otherwise it has
/// isolated none.
#[derive(Clone, Debug)]
pub struct Daemon {
    config: MigrationConfig,
    state: State,
    /// Banks that failed, and until when each is left alone; [`NO_BANK`] where none is remembered.
    avoided: [(usize, u64); AVOIDED_MAX],
    /// The banks that rested at the last step.
    resting_banks: usize,
    /// The time before which no bank is begun with, as one was opened.
    settled_ns: u64,
    statistics: MigrationStatistics,
}

impl Daemon {
    /// Makes a daemon that begins with a scan.
    pub const fn new(config: MigrationConfig) -> Self {
        Self {
            config,
            state: State::Waiting { until_ns: 0 },
            avoided: [(NO_BANK, 0); AVOIDED_MAX],
            resting_banks: 0,
            settled_ns: 0,
            statistics: MigrationStatistics {
                scans: 0,
                emptied_banks: 0,
                moved_frames: 0,
                unmovable: 0,
                pinned: 0,
                no_target: 0,
                failed: 0,
                in_use: 0,
            },
        }
    }

    /// Returns the counts so far.
    pub const fn statistics(&self) -> MigrationStatistics {
        self.statistics
    }

    /// Returns the bank being emptied.
    pub const fn moving(&self) -> Option<usize> {
        match self.state {
            State::Moving { candidate, .. } => Some(candidate.bank),
            State::Waiting { .. } => None,
        }
    }

    /// Makes the next step scan without waiting for the interval's end: much memory was freed at once
    /// (a process has exited, a cache was dropped). The triggers of Panwar and Gopinath
    /// come down to this call; calling it often costs a scan each time.
    pub const fn wake(&mut self) {
        if let State::Waiting { until_ns } = &mut self.state {
            *until_ns = 0;
        }
    }

    /// Begins to empty a bank that the caller has isolated because somebody
    /// wants it offline, whatever the [`MigrationConfig`] says; [`step`](Self::step) goes
    /// on with it. Returns true if it does: not while another bank is being emptied.
    pub fn begin(&mut self, isolated: BankCandidate) -> bool {
        let begins = self.moving().is_none();
        if begins {
            let next = isolated.frames.start;
            self.state = State::Moving { candidate: isolated, next, moved_frames: 0 };
        }
        begins
    }

    /// Gives up the bank that is being emptied, if any.
    pub fn stop<B: MovableBanks>(&mut self, now_ns: u64, banks: &mut B) {
        if let State::Moving { candidate, .. } = self.state {
            banks.rejoin(candidate.bank);
            self.wait(now_ns);
        }
    }

    /// Works until `budget_frames` have been moved, a bank is done, or there is
    /// nothing to do. A block larger than the rest of the budget still moves,
    /// so that every step with a budget gets on; a block that was freed or changed
    /// meanwhile counts as a frame. One scan, and per block one search, one
    /// target and one relocation.
    pub fn step<B: MovableBanks, O: Owners>(
        &mut self,
        now_ns: u64,
        budget_frames: u64,
        banks: &mut B,
        owners: &mut O,
    ) -> MigrationStep {
        if self.config.settle_ns > 0 {
            let before = core::mem::replace(&mut self.resting_banks, banks.resting_banks());
            if self.resting_banks < before {
                self.settled_ns = self.settled_ns.max(now_ns.saturating_add(self.config.settle_ns));
            }
        }
        if let State::Waiting { until_ns } = self.state {
            let until_ns = until_ns.max(self.settled_ns);
            if now_ns < until_ns {
                return MigrationStep::Wait { until_ns };
            }
            self.statistics.scans += 1;
            let Some(candidate) = self.scan(now_ns, banks) else {
                return MigrationStep::Wait { until_ns: self.wait(now_ns) };
            };
            let next = candidate.frames.start;
            self.state = State::Moving { candidate, next, moved_frames: 0 };
        }
        let (mut spent, mut moved) = (0, 0);
        loop {
            let State::Moving { candidate, next, moved_frames } = self.state else {
                return MigrationStep::Wait { until_ns: now_ns };
            };
            let bank = candidate.bank;
            let Some(frame) = banks.next_occupied(bank, next) else {
                // What its owner had freed may still lie in a per-CPU list.
                if let Some(frame) = banks.next_occupied(bank, candidate.frames.start) {
                    return self.give_up(now_ns, candidate, frame, GiveUpCause::InUse, banks);
                }
                banks.rejoin(bank);
                self.wait(now_ns);
                self.statistics.emptied_banks += 1;
                return MigrationStep::Emptied { bank, moved_frames };
            };
            if spent >= budget_frames {
                return MigrationStep::Moving { moved_frames: moved };
            }
            match move_block(frame, banks, owners) {
                Ok(Moved::Freed) => {
                    spent += 1;
                    self.state =
                        State::Moving { candidate, next: after(frame, Order::BASE), moved_frames };
                }
                Ok(Moved::Changed) => spent += 1,
                Ok(Moved::Block(start, order)) => {
                    spent += order.frames();
                    moved += order.frames();
                    self.statistics.moved_frames += order.frames();
                    self.state = State::Moving {
                        candidate,
                        next: after(start, order),
                        moved_frames: moved_frames + order.frames(),
                    };
                }
                Err(cause) => return self.give_up(now_ns, candidate, frame, cause, banks),
            }
        }
    }

    /// Finds and isolates the next bank.
    fn scan<B: MovableBanks>(&mut self, now_ns: u64, banks: &mut B) -> Option<BankCandidate> {
        let avoided = self.avoided;
        let candidate = banks.candidate(&|bank| {
            avoided.iter().any(|&(b, until_ns)| b == bank && now_ns < until_ns)
        })?;
        let BankCandidate { bank, frames, occupied_frames } = candidate;
        let limit = u128::from(frames.count) * u128::from(self.config.occupied_permille_max);
        let needed = occupied_frames.saturating_add(self.config.reserve_frames);
        let worth =
            u128::from(occupied_frames) * 1000 <= limit && banks.room_frames(bank) >= needed;
        (worth && banks.isolate(bank)).then_some(candidate)
    }

    fn give_up<B: MovableBanks>(
        &mut self,
        now_ns: u64,
        candidate: BankCandidate,
        frame: Pfn,
        cause: GiveUpCause,
        banks: &mut B,
    ) -> MigrationStep {
        let bank = candidate.bank;
        banks.rejoin(bank);
        self.wait(now_ns);
        if let Some(oldest) =
            self.avoided.iter_mut().min_by_key(|(b, until_ns)| (*b != bank, *until_ns))
        {
            *oldest = (bank, now_ns.saturating_add(self.config.retry_ns));
        }
        let statistics = &mut self.statistics;
        *match cause {
            GiveUpCause::Stuck(Stuck::Unmovable) => &mut statistics.unmovable,
            GiveUpCause::Stuck(Stuck::Pinned) => &mut statistics.pinned,
            GiveUpCause::Stuck(Stuck::Failed) => &mut statistics.failed,
            GiveUpCause::NoTarget => &mut statistics.no_target,
            GiveUpCause::InUse => &mut statistics.in_use,
        } += 1;
        MigrationStep::GaveUp { bank, frame, cause }
    }

    fn wait(&mut self, now_ns: u64) -> u64 {
        let until_ns = now_ns.saturating_add(self.config.interval_ns);
        self.state = State::Waiting { until_ns };
        until_ns
    }
}

/// Moves the block that the frame belongs to, or a part of it around the frame
/// if there is no target for the whole.
fn move_block<B: MovableBanks, O: Owners>(
    frame: Pfn,
    banks: &mut B,
    owners: &mut O,
) -> Result<Moved, GiveUpCause> {
    let mut larger = None;
    loop {
        let Some((start, order)) = owners.block(frame).map_err(GiveUpCause::Stuck)? else {
            return Ok(Moved::Freed);
        };
        // Splitting comes to an end, whatever the owners say.
        if larger.is_some_and(|larger| order >= larger) {
            return Err(GiveUpCause::NoTarget);
        }
        if let Some(target) = banks.allocate_target(order) {
            let relocated = owners.relocate(start, target, order);
            let old = if relocated == Ok(true) { start } else { target };
            banks.free(old, order);
            return match relocated {
                Ok(true) => Ok(Moved::Block(start, order)),
                Ok(false) => Ok(Moved::Changed),
                Err(stuck) => Err(GiveUpCause::Stuck(stuck)),
            };
        }
        if order == Order::BASE || !owners.split(start, order).map_err(GiveUpCause::Stuck)? {
            return Err(GiveUpCause::NoTarget);
        }
        larger = Some(order);
    }
}

/// Returns the frame after a block.
fn after(start: Pfn, order: Order) -> Pfn {
    start + order.frames()
}
