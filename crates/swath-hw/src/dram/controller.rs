//! The controller of one channel: which command comes next, and when.
//!
//! Requests wait in a queue, each for its bank. Of all commands that would
//! bring a waiting request forward, the one issued is that which can come
//! **first**; of those that can come in the same cycle, a column command (a
//! *bank hit*: the row is open) goes before one that opens or closes a row,
//! and an older request before a younger one (FR-FCFS, first ready, first
//! come first served; Rixner et al., ISCA 2000). In full:
//!
//! * **Open page.** A row stays open until a request wants another one of its
//!   bank, or a refresh is due. While any request that may be served hits the
//!   open row, the row is not closed, however old those are that want another,
//!   until their patience ends.
//! * **Patience.** The oldest request of a bank lets
//!   [`bank_bypasses_max`](Scheduling::bank_bypasses_max) column commands of the
//!   bank pass; then it alone is considered there until it is served, so that
//!   bank hits do not go on for ever at its cost. The oldest request of all lets
//!   [`bypasses_max`](Scheduling::bypasses_max) column commands of the channel
//!   pass; then no other gets a column command until it is served, so that none
//!   waits for ever, wherever its bank and whatever turning the bus would cost.
//! * **Refresh.** Each rank is due every
//!   [`refresh_interval_cycles`](crate::dram::timing::Part::refresh_interval_cycles), the ranks of a
//!   channel at evenly spread times. From then on the rank gets no other command until its banks
//!   are closed (by one precharge for all) and the refresh is issued.
//!   Refreshes are neither postponed nor brought forward.
//! * **Writes** follow a [`WritePolicy`].
//! * **Order.** Requests for the same burst keep theirs: a read that finds a
//!   write waiting is answered with its data, in the cycle after it came,
//!   without touching the memory; a write that finds a read waiting is not considered until
//!   that read is issued. Requests for different bursts pass each other freely.
//!
//! A request holds its place in the queue until its column command is issued;
//! the place is free from the next cycle on. A request may bring about a command in the
//! cycle in which it is accepted.
//!
//! **Time moves from command to command.** The next command and its cycle are
//! known as soon as nothing else arrives, so nothing is done for the cycles between.
//! Each bank knows its oldest request and its oldest hit, so a decision
//! looks at the banks, not at the queue.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::clock::Cycle;
use crate::dram::queue::{Arrival, Bank, CLOSED, NIL, Needed, Queue, READ, Slot, WRITE, bits};
use crate::dram::request::{Completion, IssuedCommand};
use crate::dram::scheduling::{Scheduling, WritePolicy};
use crate::dram::state::TimingState;
use crate::dram::stats::ChannelStats;
use crate::dram::timing::{BankIndex, Command, Part, PartError};

/// The command that comes next if nothing else arrives.
#[derive(Clone, Copy, Debug)]
struct Plan {
    cycle: Cycle,
    command: Command,
    bank: BankIndex,
    slot: u16,
}

/// Number of column commands that have passed the request that was the oldest, of
/// all or of a bank.
#[derive(Clone, Copy, Debug)]
struct Bypasses {
    order: u64,
    count: u32,
}

impl Bypasses {
    const NONE: Self = Self { order: u64::MAX, count: 0 };

    /// Returns the number that have passed this one.
    fn of(self, order: u64) -> u32 {
        if order == self.order { self.count } else { 0 }
    }

    /// Counts a request that is served while `oldest` is the oldest.
    fn serve(&mut self, order: u64, oldest: u64) {
        *self = if order == oldest {
            Self::NONE
        } else {
            Self { order: oldest, count: self.of(oldest).saturating_add(1) }
        };
    }
}

/// No command ever.
const NOTHING: Plan = Plan { cycle: Cycle::MAX, command: Command::Refresh, bank: 0, slot: NIL };
/// The bit that makes the age of a row command greater than that of any column command.
const ROW: u64 = 1 << 63;

/// The result of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accepted {
    Full,
    Queued,
    /// A read that a waiting write answers, at this cycle.
    Forwarded(Cycle),
}

/// One channel.
///
/// Invariants, which [`check`](Self::check) tests:
/// * Those of the queue.
/// * `first_due` is the least of `due`.
/// * `plan` is what [`replan`](Self::replan) would find, and not before `now`.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    plan: Plan,
    now: Cycle,
    timing: TimingState,
    queue: Queue,
    draining: bool,
    scheduling: Scheduling,
    /// The order of the oldest request that may be served.
    oldest: u64,
    bypasses: Bypasses,
    bank_bypasses: Box<[Bypasses]>,
    /// For each rank, when its next refresh is due.
    due: Box<[Cycle]>,
    /// The first of them.
    first_due: Cycle,
    refresh_interval: Cycle,
    rank_banks: u32,
    latency: [Cycle; 2],
    burst_cycles: u64,
    stats: ChannelStats,
    stats_since: Cycle,
    queue_changed: Cycle,
}

impl Controller {
    /// Creates a channel of `ranks` ranks at cycle 0, with a scheduling that has been tested.
    pub(crate) fn new(part: &Part, ranks: u32, scheduling: Scheduling) -> Result<Self, PartError> {
        let timing = TimingState::new(part, ranks)?;
        let entries = match scheduling.writes {
            WritePolicy::Unified => scheduling.entries,
            WritePolicy::Watermark { entries, .. } => scheduling.entries + entries,
        };
        let interval = Cycle::from(part.refresh_interval_cycles);
        let burst = Cycle::from(part.burst_cycles());
        let latency = [part.read_latency_cycles, part.write_latency_cycles];
        let mut controller = Self {
            plan: NOTHING,
            now: 0,
            queue: Queue::new(entries, timing.banks()),
            timing,
            draining: false,
            scheduling,
            oldest: u64::MAX,
            bypasses: Bypasses::NONE,
            bank_bypasses: vec![Bypasses::NONE; (ranks * part.banks()) as usize].into(),
            first_due: interval / Cycle::from(ranks),
            due: (1..=Cycle::from(ranks)).map(|n| n * interval / Cycle::from(ranks)).collect(),
            refresh_interval: interval,
            rank_banks: part.banks(),
            latency: latency.map(|first| Cycle::from(first) + burst),
            burst_cycles: burst,
            stats: ChannelStats::default(),
            stats_since: 0,
            queue_changed: 0,
        };
        controller.replan();
        Ok(controller)
    }

    /// Returns a cycle before which no request leaves the queue: the one after the next
    /// command, and if that is no column command, the one after the bus is free for another.
    /// `None` if none waits.
    pub(crate) fn next_change(&self) -> Option<Cycle> {
        let Plan { cycle, command, .. } = self.plan;
        let before = match command {
            Command::Read | Command::Write => cycle,
            _ => cycle + self.timing.bus_cycles(command),
        };
        (self.queue.waiting() != 0).then_some(before + 1)
    }

    /// Issues all commands before the cycle `until`. O(banks) for each.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        until: Cycle,
        done: &mut BinaryHeap<Reverse<Completion>>,
        mut log: Option<(&mut Vec<IssuedCommand>, u32)>,
    ) {
        while self.plan.cycle < until {
            if self.queue.waiting() | self.queue.open() == 0 && log.is_none() {
                self.skip(until);
            }
            self.execute(done, &mut log);
        }
    }

    /// Passes over the refresh intervals before `until` but the last one: with all banks
    /// closed and nothing waiting, one is like the other. O(ranks).
    fn skip(&mut self, until: Cycle) {
        let intervals = ((until - self.plan.cycle) / self.refresh_interval).saturating_sub(1);
        if intervals > 0 {
            for due in &mut self.due {
                *due += intervals * self.refresh_interval;
            }
            self.first_due += intervals * self.refresh_interval;
            self.stats.refreshes += intervals * self.due.len() as u64;
            self.replan();
        }
    }

    /// Returns true if a read or a write would find a place.
    pub(crate) fn has_room(&self, write: bool) -> bool {
        let [reads, writes] = self.queue.occupied();
        match self.scheduling.writes {
            WritePolicy::Unified => reads + writes < self.scheduling.entries,
            WritePolicy::Watermark { entries, .. } if write => writes < entries,
            WritePolicy::Watermark { .. } => reads < self.scheduling.entries,
        }
    }

    /// Takes a request in at the cycle `now`, before which everything has been
    /// issued. O(banks + entries).
    pub(crate) fn accept(&mut self, now: Cycle, arrival: &Arrival) -> Accepted {
        if !arrival.write && self.queue.holds(WRITE, arrival.burst) {
            self.stats.forwarded_reads += 1;
            self.stats.read_latency.record(1);
            return Accepted::Forwarded(now + 1);
        }
        if !self.has_room(arrival.write) {
            self.stats.full += 1;
            return Accepted::Full;
        }
        self.queue_change(now);
        let Some(changed) = self.queue.push(*arrival, now) else {
            return Accepted::Full;
        };
        self.now = now;
        self.stats.queued_max = self.stats.queued_max.max(self.queue.len());
        if self.choose_class() || changed {
            self.replan();
        }
        Accepted::Queued
    }

    /// Returns true if requests of a class may be served.
    #[inline]
    fn is_served(&self, class: usize) -> bool {
        match self.scheduling.writes {
            WritePolicy::Unified => true,
            WritePolicy::Watermark { .. } => self.draining == (class == WRITE),
        }
    }

    /// Begins or ends a drain as the counts want it. Returns true if it did.
    #[inline]
    fn choose_class(&mut self) -> bool {
        let WritePolicy::Watermark { high, low, .. } = self.scheduling.writes else {
            return false;
        };
        let [reads, writes] = self.queue.listed();
        let draining = if self.draining {
            writes > low || (writes > 0 && reads == 0)
        } else {
            writes >= high || (writes > 0 && reads == 0)
        };
        core::mem::replace(&mut self.draining, draining) != draining
    }

    /// Finds the next command. O(banks).
    fn replan(&mut self) {
        let (mut best, oldest) = self.choose(None);
        let (order, slot) = oldest;
        if slot != NIL && self.bypasses.of(order) >= self.scheduling.bypasses_max {
            best = self.choose(Some(slot)).0;
        }
        self.oldest = order;
        self.plan = best;
    }

    /// Returns the best command, and the order and slot of the oldest request that may be served.
    /// With a `favoured` request, no other one gets a column command, nor any
    /// command in the same bank. O(banks).
    fn choose(&self, favoured: Option<u16>) -> (Plan, (u64, u16)) {
        let mut best = NOTHING;
        let mut best_age = u64::MAX;
        // `age` is the order of a column command's request; row commands come after those.
        let mut consider = |command: Command, bank: BankIndex, slot: u16, age: u64| {
            let cycle = self.timing.earliest(command, bank).max(self.now);
            let better = cycle < best.cycle || (cycle == best.cycle && age < best_age);
            // From the time that its refresh is due, a rank gets nothing else.
            if better
                && (cycle < self.first_due || cycle < self.due[self.timing.rank_of(bank) as usize])
            {
                best = Plan { cycle, command, bank, slot };
                best_age = age;
            }
        };
        // Classes that are not served, or of which nothing waits, are not looked for.
        let listed = self.queue.listed();
        let classes = match [READ, WRITE].map(|class| self.is_served(class) && listed[class] > 0) {
            [true, true] => &[READ, WRITE][..],
            [true, false] => &[READ],
            [false, true] => &[WRITE],
            [false, false] => &[],
        };
        let mut oldest = (u64::MAX, NIL);
        for number in bits(self.queue.waiting()) {
            let bank = self.queue.bank(number);
            let mut first = (u64::MAX, NIL, READ);
            for &class in classes {
                let slot = bank.oldest[class];
                if slot != NIL {
                    let order = self.queue.slot(slot).arrival.order;
                    if order < first.0 {
                        first = (order, slot, class);
                    }
                }
            }
            let (order, slot, class) = first;
            if slot == NIL {
                continue;
            }
            if order < oldest.0 {
                oldest = (order, slot);
            }
            let limit = self.scheduling.bank_bypasses_max;
            if favoured == Some(slot) || self.bank_bypasses[number as usize].of(order) >= limit {
                if self.queue.slot(slot).arrival.row != bank.row {
                    consider(row_command(bank), number, slot, ROW | order);
                } else if favoured.is_none_or(|favoured| favoured == slot) {
                    consider(COLUMN[class], number, slot, order);
                }
                continue;
            }
            let mut hit = false;
            for &class in classes {
                let column = bank.hit[class];
                if column != NIL {
                    hit = true;
                    if favoured.is_none() {
                        let age = self.queue.slot(column).arrival.order;
                        consider(COLUMN[class], number, column, age);
                    }
                }
            }
            if !hit {
                consider(row_command(bank), number, slot, ROW | order);
            }
        }
        if best.cycle >= self.first_due {
            let refresh = self.plan_refresh();
            if refresh.cycle <= best.cycle {
                best = refresh;
            }
        }
        (best, oldest)
    }

    /// Returns the next refresh, or the precharge that must come before it. O(ranks).
    fn plan_refresh(&self) -> Plan {
        let mut best = NOTHING;
        for (rank, due) in (0..).zip(&self.due) {
            let bank = self.timing.first_bank(rank);
            let closed = self.queue.open() & self.rank_mask(rank) == 0;
            let command = if closed { Command::Refresh } else { Command::PrechargeAll };
            let cycle = self.timing.earliest(command, bank).max(*due).max(self.now);
            if cycle < best.cycle {
                best = Plan { cycle, command, bank, slot: NIL };
            }
        }
        best
    }

    fn rank_mask(&self, rank: u32) -> u64 {
        (u64::MAX >> (64 - self.rank_banks)) << self.timing.first_bank(rank)
    }

    /// Issues the planned command and plans the next.
    fn execute(
        &mut self,
        done: &mut BinaryHeap<Reverse<Completion>>,
        log: &mut Option<(&mut Vec<IssuedCommand>, u32)>,
    ) {
        let Plan { cycle, command, bank: number, slot } = self.plan;
        self.now = cycle;
        self.timing.issue(cycle, command, number);
        let mut row = self.queue.bank(number).row;
        match command {
            Command::Refresh => {
                self.due[self.timing.rank_of(number) as usize] += self.refresh_interval;
                self.first_due = self.due.iter().copied().fold(Cycle::MAX, Cycle::min);
                self.stats.refreshes += 1;
            }
            Command::PrechargeAll => {
                let mask = self.rank_mask(self.timing.rank_of(number));
                self.queue.close(mask);
                self.stats.precharges += 1;
            }
            Command::Precharge => {
                self.queue.close(1 << number);
                self.queue.slot_mut(slot).needed = Needed::Precharge;
                self.stats.precharges += 1;
            }
            Command::Activate => {
                let request = self.queue.slot_mut(slot);
                row = request.arrival.row;
                if request.needed == Needed::Nothing {
                    request.needed = Needed::Activate;
                }
                self.queue.open_row(number, row);
                self.stats.activates += 1;
            }
            Command::Read | Command::Write => self.column(cycle, slot, done),
        }
        if let Some((log, channel)) = log {
            log.push(IssuedCommand { cycle, channel: *channel, command, bank: number, row });
        }
        self.replan();
    }

    fn column(&mut self, cycle: Cycle, index: u16, done: &mut BinaryHeap<Reverse<Completion>>) {
        let Slot { arrival, accepted, needed, .. } = *self.queue.slot(index);
        let Arrival { id, order, write, .. } = arrival;
        let bank = self.queue.bank(arrival.bank);
        let oldest = [READ, WRITE]
            .into_iter()
            .filter(|&class| self.is_served(class) && bank.oldest[class] != NIL)
            .map(|class| self.queue.slot(bank.oldest[class]).arrival.order)
            .fold(order, u64::min);
        self.bank_bypasses[arrival.bank as usize].serve(order, oldest);
        self.bypasses.serve(order, self.oldest);
        self.queue_change(cycle + 1);
        self.queue.remove(index);
        match needed {
            Needed::Nothing => self.stats.row_hits += 1,
            Needed::Activate => self.stats.row_misses += 1,
            Needed::Precharge => self.stats.row_conflicts += 1,
        }
        self.stats.data_cycles += self.burst_cycles;
        let end = cycle + self.latency[arrival.class()];
        if write {
            self.stats.writes += 1;
            self.stats.write_latency.record(end - accepted);
        } else {
            self.stats.reads += 1;
            self.stats.read_latency.record(end - accepted);
        }
        self.choose_class();
        done.push(Reverse(Completion { cycle: end, order, id, write }));
    }

    /// Accounts for the requests in the queue before `cycle`.
    fn queue_change(&mut self, cycle: Cycle) {
        let queued = u128::from(self.queue.len());
        self.stats.queued_cycles += queued * u128::from(cycle - self.queue_changed);
        self.queue_changed = cycle;
    }

    /// Returns the number of requests in the queue.
    pub(crate) fn queued(&self) -> u32 {
        self.queue.len()
    }

    /// Returns the counters up to the cycle `now`, which no command lies behind.
    pub(crate) fn stats(&self, now: Cycle) -> ChannelStats {
        let mut stats = self.stats.clone();
        let since = now.saturating_sub(self.queue_changed);
        stats.queued_cycles += u128::from(self.queue.len()) * u128::from(since);
        stats.elapsed_cycles = now - self.stats_since;
        stats
    }

    /// Sets every counter to 0 at the cycle `now`.
    pub(crate) fn reset_stats(&mut self, now: Cycle) {
        self.stats = ChannelStats { queued_max: self.queued(), ..ChannelStats::default() };
        self.stats_since = now;
        self.queue_changed = now;
    }

    /// Tests every invariant. O(entries²).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        self.queue.check()?;
        let first_due = self.due.iter().min();
        ensure(first_due == Some(&self.first_due), "the first refresh is due at another time")?;
        ensure(self.plan.cycle >= self.now, "the plan lies in the past")?;
        let mut fresh = self.clone();
        fresh.replan();
        ensure(
            (fresh.plan.cycle, fresh.plan.command, fresh.plan.bank, fresh.plan.slot)
                == (self.plan.cycle, self.plan.command, self.plan.bank, self.plan.slot),
            "the plan is out of date",
        )
    }
}

/// The column commands, by class.
const COLUMN: [Command; 2] = [Command::Read, Command::Write];

/// Returns the command for a request that does not find its row open.
fn row_command(bank: &Bank) -> Command {
    if bank.row == CLOSED { Command::Activate } else { Command::Precharge }
}
