//! The controller of one channel: which command comes next, and when.
//!
//! Requests wait in a queue, each for its bank. Of all commands that would
//! bring a waiting request forward, the one issued is that which can come
//! **first**; of those that can come in the same cycle, the one for the oldest request
//! (FR-FCFS, first ready, first come first served; Rixner et al., ISCA 2000). In full:
//!
//! * **Claims.** A request for which a row was opened has a claim to it: the row is not
//!   closed until the request is served, its column command goes before any other command
//!   of the same cycle, and it no longer holds a place in the queue.
//! * **Open page.** A row without a claim stays open until a request wants another one of its
//!   bank, or a refresh is due. With [`hits_first`](Scheduling::hits_first) it is not
//!   closed while a request that may be served wants it (a *bank hit*), however old those are
//!   that want another, and of commands in the same cycle a column command goes before one that
//!   opens or closes a row.
//! * **Patience.** The oldest request of all lets [`bypasses_max`](Scheduling::bypasses_max)
//!   column commands of the channel pass; then no other gets a command, but for those with a
//!   claim, until it is served: none waits for ever.
//! * **Refresh.** The ranks of a channel are due together, every
//!   [`refresh_interval_cycles`](crate::dram::timing::Part::refresh_interval_cycles). From then
//!   on a rank gets no other command, but for its claims, until its banks are closed (by one
//!   precharge for all) and the refresh is issued. With [`SameBank`](crate::dram::scheduling::RefreshMode::SameBank) one set of each
//!   rank's banks is due every [`interval_cycles`](crate::dram::timing::SetRefresh::interval_cycles),
//!   the next one each time, and the rule is that of the set: its banks get nothing but their claims
//!   until they are closed, each by a precharge of its own as soon as it has no claim, and the set
//!   is refreshed; all others go on. Of what refreshes want in the same cycle, the lowest bank goes
//!   first. Refreshes are neither postponed nor brought forward.
//! * **Writes** follow a [`WritePolicy`]. Which class is served is decided anew in each cycle,
//!   after its arrivals.
//! * **Order.** Requests for the same burst keep theirs: a read that finds a
//!   write waiting is answered with its data, in the cycle after it came,
//!   without touching the memory; a write that finds a read waiting is not considered until
//!   that read is issued. Requests for different bursts pass each other freely.
//!
//! A request holds its place in the queue until a row is opened for it or its column command is
//! issued; the place is free from the next cycle on. A request may bring about a command in the
//! cycle in which it is accepted.
//!
//! **Time moves from command to command.** The next command and its cycle are
//! known as soon as nothing else arrives, so nothing is done for the cycles between.
//! Each bank knows its claim, its oldest hit and its oldest miss, so a decision
//! looks at the banks, not at the queue, and an arrival at its own bank alone. What would bring a
//! bank forward, and how long the bank itself holds that back, is kept until a command to the bank;
//! the rest of the table is asked in each decision, two numbers for a command.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::dram::bypasses::Bypasses;
use crate::dram::ends::Ends;
use crate::dram::plan::{NOTHING, Plan};
use crate::dram::queue::{Arrival, BANKS, First, NIL, Needed, Queue, QueueSlot, READ, WRITE, bits};
use crate::dram::refresh::Refreshes;
use crate::dram::request::{Completion, IssuedCommand};
use crate::dram::scheduling::{Scheduling, WaitingRequests, WritePolicy};
use crate::dram::state::{RankTiming, TimingState};
use crate::dram::stats::ChannelStats;
use crate::dram::timing::{BankIndex, Command, Part, PartError};

/// A command that would bring a request of a bank forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Choice {
    /// The first cycle at which the bank itself lets it come.
    own: Cycle,
    /// Its [`Plan::age`].
    age: u64,
    slot: u16,
    bank: u8,
    command: Command,
}

impl Choice {
    const NONE: Self =
        Self { own: Cycle::MAX, age: u64::MAX, slot: NIL, bank: 0, command: Command::Refresh };

    /// Returns its plan for a cycle.
    #[inline]
    fn plan(&self, cycle: Cycle) -> Plan {
        let Self { age, command, bank, slot, .. } = *self;
        Plan { cycle, age, command, bank: bank.into(), slot }
    }
}

/// The commands among which to choose for a bank, by place: one for its claim, or for a miss if it
/// has none, and one for a hit of each class.
const CHOICES: usize = 3;

/// The column commands, by class.
const COMMAND: [Command; 2] = [Command::Read, Command::Write];

const CLAIM: u64 = 0;
const REFRESH: u64 = 1 << 62;
const COLUMN: u64 = 2 << 62;
const ROW: u64 = 3 << 62;

/// The result of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accepted {
    Full,
    Queued,
    /// A read that a waiting write has answered.
    Forwarded,
}

/// One channel.
///
/// Invariants, which [`check`](Self::check) tests:
/// * Those of the queue and of the refreshes.
/// * `plan` is what [`replan`](Self::replan) would find, and not before `now`.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    plan: Plan,
    now: Cycle,
    timing: TimingState,
    queue: Queue,
    /// The cycle of [`next_change`](Self::next_change).
    change: Cycle,
    /// True if writes are served, where they have a queue of their own.
    draining: bool,
    /// True for each class that is served.
    served: [bool; 2],
    /// What it was before the cycle in which it was decided, and that cycle: another arrival
    /// in it decides again.
    drained: bool,
    decided: Cycle,
    scheduling: Scheduling,
    bypasses: Bypasses,
    /// For each bank its choices, and by bit, for each place among them, the banks that have one
    /// there, as far as requests wait for them; and the banks of which they may be others now.
    choices: Box<[[Choice; BANKS]; CHOICES]>,
    wanting: [u64; CHOICES],
    stale: u64,
    refreshes: Refreshes,
    latency: [Cycle; 2],
    /// Cycles from a command until a place may be free: those until the next one, but for commands
    /// that free a place themselves.
    place_free: [Cycle; Command::COUNT],
    burst_cycles: u64,
    stats: ChannelStats,
    stats_since: Cycle,
    /// The sum over requests of the cycle in which each left the queue, less that in which it came,
    /// modulo 2^128; of those that are there, only the latter.
    queued_before: u128,
}

impl Controller {
    /// Creates a channel of `ranks` ranks at cycle 0, with a scheduling that has been tested.
    pub(crate) fn new(part: &Part, ranks: u32, scheduling: Scheduling) -> Result<Self, PartError> {
        let timing = TimingState::new(part, ranks)?;
        let entries = match scheduling.writes {
            WritePolicy::Unified => scheduling.entries,
            WritePolicy::Watermark { entries, .. } | WritePolicy::Own { entries, .. } => {
                scheduling.entries + entries
            }
        };
        let banks = timing.banks();
        let burst = Cycle::from(part.burst_cycles());
        let latency = [part.read_latency_cycles, part.write_latency_cycles];
        let mut controller = Self {
            plan: NOTHING,
            now: 0,
            queue: Queue::new(entries, banks),
            change: Cycle::MAX,
            timing,
            draining: false,
            served: [true, scheduling.writes == WritePolicy::Unified],
            drained: false,
            decided: 0,
            scheduling,
            bypasses: Bypasses::NONE,
            choices: Box::new([[Choice::NONE; BANKS]; CHOICES]),
            wanting: [0; CHOICES],
            stale: u64::MAX,
            refreshes: Refreshes::new(part, ranks, scheduling.refresh),
            place_free: Command::ALL.map(|command| match command {
                Command::Read | Command::Write | Command::Activate => 1,
                _ => 1 + Cycle::from(part.bus_cycles[command as usize]),
            }),
            latency: latency.map(|first| Cycle::from(first) + burst),
            burst_cycles: burst,
            stats: ChannelStats::default(),
            stats_since: 0,
            queued_before: 0,
        };
        controller.replan();
        Ok(controller)
    }

    /// Returns a cycle before which no place in the queue gets free: the one after the next
    /// command, and if that frees none, the one after the bus is free for another; the greatest
    /// if none waits.
    #[inline]
    pub(crate) fn next_change(&self) -> Cycle {
        self.change
    }

    #[inline]
    fn find_change(&self) -> Cycle {
        let Plan { cycle, command, .. } = self.plan;
        match self.queue.waiting() {
            0 => Cycle::MAX,
            _ => cycle + self.place_free[command as usize],
        }
    }

    /// Returns the cycle of the next command, if nothing else arrives.
    #[inline]
    pub(crate) fn next_command(&self) -> Cycle {
        self.plan.cycle
    }

    /// Issues all commands before the cycle `until`. O(banks) for each.
    #[inline(always)]
    pub(crate) fn advance(&mut self, until: Cycle, ends: &mut Ends) {
        while self.plan.cycle < until {
            if self.queue.waiting() | self.queue.open() == 0 {
                self.skip(until);
            }
            self.execute(ends);
        }
    }

    /// Issues all commands before the cycle `until`, and keeps each. O(banks) for each.
    pub(crate) fn advance_logged(
        &mut self,
        until: Cycle,
        ends: &mut Ends,
        (log, channel): (&mut Vec<IssuedCommand>, u32),
    ) {
        while self.plan.cycle < until {
            log.push(self.issued(channel));
            self.execute(ends);
        }
    }

    /// Returns the planned command as one that is issued.
    fn issued(&self, channel: u32) -> IssuedCommand {
        let Plan { cycle, command, bank, slot, .. } = self.plan;
        let row = match command {
            Command::Activate => self.queue.slot(slot).arrival.row,
            _ => self.queue.bank(bank).row,
        };
        IssuedCommand { cycle, channel, command, bank, row }
    }

    /// Passes over the refreshes before `until` but those of the last period: with all banks
    /// closed and nothing waiting, one period is like the other. O(banks).
    fn skip(&mut self, until: Cycle) {
        let periods = ((until - self.plan.cycle) / self.refreshes.period()).saturating_sub(1);
        if periods > 0 {
            self.refreshes.skip(periods);
            self.count_refreshes(periods * self.refreshes.units().len() as u64);
            self.replan();
        }
    }

    fn count_refreshes(&mut self, count: u64) {
        match self.refreshes.command() {
            Command::RefreshSet => self.stats.set_refreshes += count,
            _ => self.stats.refreshes += count,
        }
    }

    /// Returns true if a read or a write would find a place.
    pub(crate) fn has_room(&self, write: bool) -> bool {
        let [reads, writes] = self.queue.occupied();
        match self.scheduling.writes {
            WritePolicy::Unified => reads + writes < self.scheduling.entries,
            WritePolicy::Watermark { entries, .. } | WritePolicy::Own { entries, .. } if write => {
                writes < entries
            }
            WritePolicy::Watermark { .. } | WritePolicy::Own { .. } => {
                reads < self.scheduling.entries
            }
        }
    }

    /// Takes a request in at the cycle `now`, before which everything has been
    /// issued. O(banks + entries).
    pub(crate) fn accept(&mut self, now: Cycle, arrival: &Arrival, ends: &mut Ends) -> Accepted {
        if !arrival.write && self.queue.holds(WRITE, arrival.burst) {
            self.stats.forwarded_reads += 1;
            self.stats.read_latency.record(1);
            let Arrival { id, order, write, .. } = *arrival;
            ends.add(Completion { cycle: now + 1, order, id, write });
            return Accepted::Forwarded;
        }
        if !self.has_room(arrival.write) {
            self.stats.full += 1;
            return Accepted::Full;
        }
        let Some(leads) = self.queue.push(*arrival, now) else {
            return Accepted::Full;
        };
        self.queued_before = self.queued_before.wrapping_sub(now.into());
        self.now = now;
        self.stats.queued_max = self.stats.queued_max.max(self.queue.len());
        if self.decide_class(now) {
            self.replan();
        } else if leads && self.served[arrival.class()] {
            self.replan_for(arrival.bank);
        }
        self.change = self.find_change();
        Accepted::Queued
    }

    /// Begins or ends a drain from `cycle` on, as the counts want it. Returns true if the
    /// class that is served is another one now.
    #[inline]
    fn decide_class(&mut self, cycle: Cycle) -> bool {
        if matches!(self.scheduling.writes, WritePolicy::Unified) {
            return false;
        }
        let [reads, writes] = self.queue.listed();
        // As it was and will be, whatever was decided before in this cycle.
        if writes == 0 && !self.draining {
            return false;
        }
        if cycle > self.decided {
            self.drained = self.draining;
            self.decided = cycle;
        }
        let draining = match self.scheduling.writes {
            WritePolicy::Watermark { high, low, .. } => {
                let mark = if self.drained { writes > low } else { writes >= high };
                mark || (writes > 0 && reads == 0)
            }
            _ => self.ask_rule(reads, writes),
        };
        let other = core::mem::replace(&mut self.draining, draining) != draining;
        if other {
            self.served = [!draining, draining];
            self.stale = u64::MAX;
        }
        other
    }

    /// Returns true if writes are to be served by the user's rule.
    // Out of line: the marks, which are decided after each command, are the common case.
    #[cold]
    #[inline(never)]
    fn ask_rule(&self, reads: u32, writes: u32) -> bool {
        let WritePolicy::Own { entries, rule } = self.scheduling.writes else {
            return false;
        };
        let waiting = WaitingRequests { reads, writes, entries, draining: self.drained };
        writes > 0 && (reads == 0 || (rule.drains)(waiting))
    }

    /// Returns the oldest request that may be served.
    #[inline]
    fn oldest(&self) -> First {
        let of = |class: usize| match self.served[class] {
            true => self.queue.oldest(class),
            false => First::NONE,
        };
        of(READ).or_older(of(WRITE))
    }

    /// Finds the next command. O(banks), each of which is only compared.
    #[inline]
    fn replan(&mut self) {
        if self.queue.waiting() == 0 {
            self.plan_idle();
        } else {
            self.plan_waiting();
        }
    }

    /// Finds the next command where nothing waits.
    #[inline]
    fn plan_idle(&mut self) {
        (self.plan, self.change) = (self.plan_refresh(), Cycle::MAX);
    }

    /// Finds the next command where something waits.
    // Inline, as it follows each command.
    #[inline(always)]
    fn plan_waiting(&mut self) {
        if self.stale & self.queue.waiting() != 0 {
            self.renew_stale();
        }
        self.plan = match self.timing.is_grouped() {
            true => self.first::<true, false>(),
            false => self.first::<false, false>(),
        };
        if self.plan.cycle >= self.refreshes.first_due() || self.is_passed_over() {
            self.replan_rarely();
        }
        self.change = self.plan.cycle + self.place_free[self.plan.command as usize];
    }

    /// Finds the next command where a request has waited for long, or some refresh is due before
    /// the first of all choices.
    // Out of line, as it is rare.
    #[inline(never)]
    fn replan_rarely(&mut self) {
        let passed_over = self.is_passed_over();
        if passed_over {
            self.plan = self.plan_for_oldest();
        }
        if self.plan.cycle >= self.refreshes.first_due() {
            if !passed_over {
                self.plan = self.first::<true, true>();
            }
            let refresh = self.plan_refresh();
            self.plan.consider(refresh);
        }
    }

    /// Returns the first of all choices; with `DUE`, of those that the refreshes allow. Groups are
    /// asked where `GROUPED` says that there are several.
    #[inline(always)]
    fn first<const GROUPED: bool, const DUE: bool>(&self) -> Plan {
        let from = self.now.max(self.timing.bus_free());
        let (mut best, mut first) = (u128::MAX, &Choice::NONE);
        for RankTiming { banks, ready, .. } in self.timing.ranks() {
            let waiting = self.queue.waiting() & banks;
            for (choices, wanting) in self.choices.iter().zip(self.wanting) {
                for number in bits(wanting & waiting) {
                    let choice = &choices[number as usize % BANKS];
                    let of_rank = ready[choice.command as usize].max(from);
                    let mut cycle = choice.own.max(of_rank);
                    if GROUPED {
                        cycle = cycle.max(self.timing.of_group(choice.command, number));
                    }
                    let key = u128::from(cycle) << 64 | u128::from(choice.age);
                    if key < best && (!DUE || self.may_come(number, cycle, choice.age)) {
                        (best, first) = (key, choice);
                    }
                }
            }
        }
        first.plan((best >> 64) as Cycle)
    }

    /// Finds the next command after a request for a bank has become its oldest hit or miss.
    /// O(1), or that of [`replan`](Self::replan) where the request forbids what was planned.
    #[inline]
    fn replan_for(&mut self, number: BankIndex) {
        let closes = self.plan.bank == number && self.plan.command == Command::Precharge;
        if closes || self.is_passed_over() {
            self.stale |= 1 << number;
            self.replan();
            return;
        }
        self.renew(number);
        self.stale &= !(1 << number);
        for (choices, wanting) in self.choices.iter().zip(self.wanting) {
            if wanting >> number & 1 == 0 {
                continue;
            }
            let choice = &choices[number as usize % BANKS];
            let cycle = self.timing.earliest(choice.command, number).max(self.now);
            if self.may_come(number, cycle, choice.age) {
                self.plan.consider(choice.plan(cycle));
            }
        }
    }

    /// Finds the choices of the banks of which they may be others. O(banks).
    // Out of line, as it is rare.
    #[inline(never)]
    fn renew_stale(&mut self) {
        for number in bits(self.stale & self.queue.waiting()) {
            self.renew(number);
        }
        self.stale &= !self.queue.waiting();
    }

    /// Finds the choices of a bank. O(1).
    #[inline(always)]
    fn renew(&mut self, number: BankIndex) {
        let (bank, timing, bit) = (self.queue.bank(number), self.timing.bank(number), 1 << number);
        let choice = |age, command, slot| {
            let own = timing.own(command);
            Choice { own, age, slot, bank: number as u8, command }
        };
        let [first, hits @ ..] =
            self.choices.each_mut().map(|choices| &mut choices[number as usize % BANKS]);
        let [mut wanting, mut wanting_hits @ ..] = self.wanting.map(|wanting| wanting & !bit);
        let hits_first = self.scheduling.hits_first;
        let mut keeps_row = bank.claim != NIL;
        if keeps_row {
            let arrival = &self.queue.slot(bank.claim).arrival;
            *first = choice(CLAIM | arrival.order, COMMAND[arrival.class()], bank.claim);
            wanting |= bit;
        }
        let mut miss = First::NONE;
        for class in [READ, WRITE] {
            if self.served[class] {
                let First { order, slot } = bank.hit[class];
                if slot != NIL && slot != bank.claim {
                    let tier = if hits_first { COLUMN } else { ROW };
                    *hits[class] = choice(tier | order, COMMAND[class], slot);
                    wanting_hits[class] |= bit;
                    keeps_row |= hits_first;
                }
                miss = miss.or_older(bank.miss[class]);
            }
        }
        if !keeps_row && miss.slot != NIL {
            *first = choice(ROW | miss.order, bank.row_command(), miss.slot);
            wanting |= bit;
        }
        self.wanting = [wanting, wanting_hits[READ], wanting_hits[WRITE]];
    }

    /// Returns true if a command of a bank is allowed at a cycle: from the time that its refresh
    /// is due, it gets nothing but its claim.
    #[inline]
    fn may_come(&self, number: BankIndex, cycle: Cycle, age: u64) -> bool {
        cycle < self.refreshes.first_due() || age < REFRESH || cycle < self.refreshes.due(number)
    }

    /// Returns true if so many have passed the oldest request that no other may.
    #[inline]
    fn is_passed_over(&self) -> bool {
        self.bypasses.count >= self.scheduling.bypasses_max && {
            let First { order, slot } = self.oldest();
            slot != NIL && self.bypasses.of(order) >= self.scheduling.bypasses_max
        }
    }

    /// Returns the best command of the claims and the oldest request. O(banks).
    fn plan_for_oldest(&self) -> Plan {
        let mut best = NOTHING;
        for number in bits(self.queue.claims()) {
            let Choice { age, command, slot, .. } = self.choices[0][number as usize % BANKS];
            best.consider(self.plan_for(age, command, number, slot));
        }
        let First { order, slot } = self.oldest();
        let arrival = &self.queue.slot(slot).arrival;
        let (number, bank) = (arrival.bank, self.queue.bank(arrival.bank));
        let own = if arrival.row == bank.row {
            self.plan_for(COLUMN | order, COMMAND[arrival.class()], number, slot)
        } else if bank.claim == NIL {
            self.plan_for(ROW | order, bank.row_command(), number, slot)
        } else {
            NOTHING
        };
        if own.cycle < self.refreshes.due(number) {
            best.consider(own);
        }
        best
    }

    fn plan_for(&self, age: u64, command: Command, bank: BankIndex, slot: u16) -> Plan {
        let cycle = self.timing.earliest(command, bank).max(self.now);
        Plan { cycle, age, command, bank, slot }
    }

    /// Returns the next refresh, or the precharge that must come before it: one for a rank without
    /// a claim, or one for each bank of a set that has none. O(banks).
    // Out of line, as it is rare but where nothing waits.
    #[inline(never)]
    fn plan_refresh(&self) -> Plan {
        let mut best = NOTHING;
        for &unit in self.refreshes.units() {
            let first = unit.trailing_zeros();
            let due = self.refreshes.due(first).max(self.now);
            let plan = |command, bank: BankIndex| {
                let cycle = self.timing.earliest(command, bank).max(due);
                Plan { cycle, age: REFRESH | u64::from(bank), command, bank, slot: NIL }
            };
            let (open, claims) = (self.queue.open() & unit, self.queue.claims() & unit);
            if open == 0 {
                best.consider(plan(self.refreshes.command(), first));
            } else if self.refreshes.command() == Command::RefreshSet {
                for bank in bits(open & !claims) {
                    best.consider(plan(Command::Precharge, bank));
                }
            } else if claims == 0 {
                best.consider(plan(Command::PrechargeAll, first));
            }
        }
        best
    }

    /// Issues the planned command and plans the next.
    #[inline(always)]
    fn execute(&mut self, ends: &mut Ends) {
        let Plan { cycle, command, bank: number, slot, .. } = self.plan;
        self.now = cycle;
        self.timing.issue(cycle, command, number);
        match command {
            Command::Read | Command::Write => self.column(cycle, slot, ends),
            Command::Activate => {
                let request = self.queue.slot_mut(slot);
                if request.needed == Needed::Nothing {
                    request.needed = Needed::Activate;
                }
                self.queue.open_row(slot);
                self.decide_class(cycle + 1);
                self.stats.activates += 1;
            }
            Command::Precharge => {
                self.queue.close_bank(number);
                // A refresh closes a bank for no request.
                if slot != NIL {
                    self.queue.slot_mut(slot).needed = Needed::Precharge;
                }
                self.stats.precharges += 1;
            }
            Command::PrechargeAll => {
                let mask = self.refreshes.unit_of(number);
                self.queue.close(mask);
                self.stale |= mask;
                self.stats.precharges += 1;
            }
            Command::Refresh | Command::RefreshSet => {
                // The refresh of a set holds each of its banks back by itself.
                self.stale |= self.refreshes.unit_of(number);
                self.refreshes.refresh(number);
                self.count_refreshes(1);
            }
        }
        if self.queue.waiting() == 0 {
            self.stale |= 1 << number;
            self.plan_idle();
            return;
        }
        self.renew(number);
        if self.stale != 0 {
            self.stale &= !(1 << number);
        }
        self.plan_waiting();
    }

    #[inline(always)]
    fn column(&mut self, cycle: Cycle, index: u16, ends: &mut Ends) {
        let QueueSlot { arrival, accepted, needed, .. } = *self.queue.slot(index);
        let Arrival { id, order, write, .. } = arrival;
        self.bypasses.serve(order, self.oldest().order);
        self.queued_before = self.queued_before.wrapping_add((cycle + 1).into());
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
        self.decide_class(cycle + 1);
        ends.add(Completion { cycle: end, order, id, write });
    }

    /// Returns the sum over the cycles before `now` of the requests in the queue.
    fn queued_cycles(&self, now: Cycle) -> u128 {
        self.queued_before.wrapping_add(u128::from(self.queue.len()) * u128::from(now))
    }

    /// Returns the number of requests in the queue.
    pub(crate) fn queued(&self) -> u32 {
        self.queue.len()
    }

    /// Returns the counters up to the cycle `now`, which no command lies behind.
    pub(crate) fn stats(&self, now: Cycle) -> ChannelStats {
        let mut stats = self.stats.clone();
        stats.queued_cycles = self.queued_cycles(now);
        stats.elapsed_cycles = now - self.stats_since;
        stats
    }

    /// Sets every counter to 0 at the cycle `now`.
    pub(crate) fn reset_stats(&mut self, now: Cycle) {
        self.stats = ChannelStats { queued_max: self.queued(), ..ChannelStats::default() };
        self.stats_since = now;
        self.queued_before = self.queued_before.wrapping_sub(self.queued_cycles(now));
    }

    /// Tests every invariant. O(entries²).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        self.queue.check()?;
        self.refreshes.check()?;
        ensure(self.plan.cycle >= self.now, "the plan lies in the past")?;
        let mut fresh = self.clone();
        fresh.replan();
        ensure(fresh.plan == self.plan, "the plan is out of date")?;
        fresh.stale = u64::MAX;
        fresh.replan();
        ensure(fresh.plan == self.plan, "the choices of a bank are out of date")?;
        ensure(self.change == self.find_change(), "the next change is another one")
    }
}
