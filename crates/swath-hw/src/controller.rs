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
//!   open row, the row is not closed, however old those are that want another.
//! * **Patience.** A request that was the oldest while
//!   [`bypasses_max`](Scheduling::bypasses_max) column commands went to younger
//!   ones is favoured: until it is served, no other gets a column command,
//!   or any command in its bank; other banks may open and close rows. So
//!   none waits for ever, and no bank hits go on for ever at another's cost.
//! * **Refresh.** Each rank is due every
//!   [`refresh_interval_cycles`](crate::timing::Part::refresh_interval_cycles), the ranks of a
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

use crate::dram::{Completion, Issued};
use crate::dram_stats::ChannelStats;
use crate::timing::{Command, Cycle, Part};
use crate::timing_state::{BankIndex, TimingState};

/// When writes are served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WritePolicy {
    /// Reads and writes share the queue, and are treated alike.
    Unified,
    /// Writes wait in a queue of their own. They are served, and reads are
    /// not, from the time that `high` of them wait, or that no read waits,
    /// until no more than `low` of them wait and a read does, or none is left.
    Watermark {
        /// Places in the queue of writes.
        entries: u32,
        /// So many waiting writes begin a drain: 1 to `entries`.
        high: u32,
        /// So many end it: less than `high`.
        low: u32,
    },
}

/// How a controller schedules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scheduling {
    /// Places in the queue; in that of the reads, if writes have their own.
    pub entries: u32,
    /// When writes are served.
    pub writes: WritePolicy,
    /// How many column commands may pass the oldest request. 0 serves in order
    /// of age.
    pub bypasses_max: u32,
}

/// No slot.
const NIL: u16 = u16::MAX;
/// No row.
const CLOSED: u32 = u32::MAX;
/// The key of an empty slot.
const EMPTY: u64 = u64::MAX;

const READ: usize = 0;
const WRITE: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Slot {
    id: u64,
    order: u64,
    accepted: Cycle,
    row: u32,
    bank: BankIndex,
    /// Neighbours in the list of the bank, by age.
    older: u16,
    younger: u16,
    needed: Needed,
}

/// What was done for a request before its column command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needed {
    Nothing,
    Activate,
    Precharge,
}

/// The lists of a bank, by [`READ`] and [`WRITE`].
#[derive(Clone, Copy, Debug)]
struct Bank {
    row: u32,
    oldest: [u16; 2],
    youngest: [u16; 2],
    hit: [u16; 2],
}

/// The command that comes next if nothing else arrives.
#[derive(Clone, Copy, Debug)]
struct Plan {
    cycle: Cycle,
    command: Command,
    bank: BankIndex,
    slot: u16,
}

/// A command that may be next. The least key is: its cycle, whether it is for
/// a refresh (0), a column (1) or a row (2), and the age of its request.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    key: (Cycle, u8, u64),
    plan: Plan,
}

/// A request as a channel sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) id: u64,
    /// The count of requests accepted before.
    pub(crate) order: u64,
    /// The number of the burst in the memory.
    pub(crate) burst: u64,
    pub(crate) bank: BankIndex,
    pub(crate) row: u32,
    pub(crate) write: bool,
}

/// What came of an arrival.
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
/// * A slot is free (its key is empty), or in the list of its bank and class, or parked:
///   a write behind a read of the same burst.
/// * A list is in order of age; `hit` is its first request for the open row.
/// * `listed`, `parked` and `occupied` count slots by class; `waiting` has a bit
///   for each bank with a list that is not empty, `open` for each open bank.
/// * `plan` is what [`replan`](Self::replan) would find, and not before `now`.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    plan: Plan,
    now: Cycle,
    timing: TimingState,
    banks: Box<[Bank]>,
    waiting: u64,
    open: u64,
    slots: Box<[Slot]>,
    /// For each slot, its burst twice, plus 1 for a write.
    keys: Box<[u64]>,
    free: Vec<u16>,
    listed: [u32; 2],
    occupied: [u32; 2],
    parked: Vec<u16>,
    draining: bool,
    scheduling: Scheduling,
    /// The order of the oldest request that may be served, and of the one that
    /// the last column commands passed, how many they were.
    oldest: u64,
    passed: u64,
    bypasses: u32,
    /// For each rank, when its next refresh is due.
    due: Box<[Cycle]>,
    refresh_interval: Cycle,
    rank_banks: u32,
    latency: [Cycle; 2],
    burst_cycles: u64,
    stats: ChannelStats,
    stats_since: Cycle,
    queue_changed: Cycle,
}

impl Controller {
    /// A channel of `ranks` ranks at cycle 0. The arguments have been tested.
    pub(crate) fn new(part: &Part, ranks: u32, scheduling: Scheduling) -> Self {
        let timing = TimingState::new(part, ranks);
        let entries = match scheduling.writes {
            WritePolicy::Unified => scheduling.entries,
            WritePolicy::Watermark { entries, .. } => scheduling.entries + entries,
        };
        let bank = Bank { row: CLOSED, oldest: [NIL; 2], youngest: [NIL; 2], hit: [NIL; 2] };
        let slot = Slot {
            id: 0,
            order: 0,
            accepted: 0,
            row: 0,
            bank: 0,
            older: NIL,
            younger: NIL,
            needed: Needed::Nothing,
        };
        let interval = Cycle::from(part.refresh_interval_cycles);
        let burst = Cycle::from(part.burst_cycles());
        let latency = [part.read_latency_cycles, part.write_latency_cycles];
        let plan = Plan { cycle: 0, command: Command::Refresh, bank: 0, slot: NIL };
        let mut controller = Self {
            plan,
            now: 0,
            banks: vec![bank; timing.banks() as usize].into(),
            timing,
            waiting: 0,
            open: 0,
            slots: vec![slot; entries as usize].into(),
            keys: vec![EMPTY; entries as usize].into(),
            free: (0..entries as u16).rev().collect(),
            listed: [0; 2],
            occupied: [0; 2],
            parked: Vec::new(),
            draining: false,
            scheduling,
            oldest: u64::MAX,
            passed: u64::MAX,
            bypasses: 0,
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
        controller
    }

    /// The cycle after that of the next command; no request leaves the queue before.
    /// `None` if none waits.
    pub(crate) fn next_change(&self) -> Option<Cycle> {
        (self.waiting != 0).then_some(self.plan.cycle + 1)
    }

    /// Issues all commands before the cycle `until`. O(banks) for each.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        until: Cycle,
        done: &mut BinaryHeap<Reverse<Completion>>,
        mut log: Option<(&mut Vec<Issued>, u32)>,
    ) {
        while self.plan.cycle < until {
            if self.waiting == 0 && self.open == 0 && log.is_none() {
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
            self.stats.refreshes += intervals * self.due.len() as u64;
            self.replan();
        }
    }

    /// Takes a request in at the cycle `now`, before which everything has been
    /// issued. O(banks + entries).
    pub(crate) fn accept(&mut self, now: Cycle, arrival: &Arrival) -> Accepted {
        let class = usize::from(arrival.write);
        let key = arrival.burst << 1 | u64::from(arrival.write);
        if !arrival.write && self.occupied[WRITE] > 0 && self.keys.contains(&(key | 1)) {
            self.stats.forwarded_reads += 1;
            self.stats.read_latency.record(1);
            return Accepted::Forwarded(now + 1);
        }
        let full = match self.scheduling.writes {
            WritePolicy::Watermark { entries, .. } if arrival.write => {
                self.occupied[WRITE] >= entries
            }
            WritePolicy::Watermark { .. } => self.occupied[READ] >= self.scheduling.entries,
            WritePolicy::Unified => self.free.is_empty(),
        };
        let free = if full { None } else { self.free.pop() };
        let Some(index) = free else {
            self.stats.full += 1;
            return Accepted::Full;
        };
        self.now = now;
        self.queue_change(now);
        self.occupied[class] += 1;
        self.stats.queued_max =
            self.stats.queued_max.max(self.occupied[READ] + self.occupied[WRITE]);
        self.slots[usize::from(index)] = Slot {
            id: arrival.id,
            order: arrival.order,
            accepted: now,
            row: arrival.row,
            bank: arrival.bank,
            older: NIL,
            younger: NIL,
            needed: Needed::Nothing,
        };
        let behind_read =
            arrival.write && self.occupied[READ] > 0 && self.keys.contains(&(key & !1));
        self.keys[usize::from(index)] = key;
        if behind_read {
            self.parked.push(index);
            return Accepted::Queued;
        }
        let changed = self.list(index, class);
        if self.choose_class() || changed {
            self.replan();
        }
        Accepted::Queued
    }

    /// Puts a request into the list of its bank, in order of age. Tells whether
    /// it is the oldest there, or the oldest hit.
    fn list(&mut self, index: u16, class: usize) -> bool {
        let Slot { order, row, bank: number, .. } = self.slots[usize::from(index)];
        let bank = &mut self.banks[number as usize];
        let mut older = bank.youngest[class];
        let mut younger = NIL;
        while older != NIL && self.slots[usize::from(older)].order > order {
            younger = older;
            older = self.slots[usize::from(older)].older;
        }
        self.slots[usize::from(index)].older = older;
        self.slots[usize::from(index)].younger = younger;
        match older {
            NIL => bank.oldest[class] = index,
            _ => self.slots[usize::from(older)].younger = index,
        }
        match younger {
            NIL => bank.youngest[class] = index,
            _ => self.slots[usize::from(younger)].older = index,
        }
        self.listed[class] += 1;
        self.waiting |= 1 << number;
        let hit = bank.hit[class];
        let first_hit =
            row == bank.row && (hit == NIL || self.slots[usize::from(hit)].order > order);
        if first_hit {
            bank.hit[class] = index;
        }
        first_hit || older == NIL
    }

    /// Takes a request out of the list of its bank and frees its slot.
    fn remove(&mut self, index: u16, class: usize) {
        let Slot { row, bank: number, older, younger, .. } = self.slots[usize::from(index)];
        let bank = &mut self.banks[number as usize];
        match older {
            NIL => bank.oldest[class] = younger,
            _ => self.slots[usize::from(older)].younger = younger,
        }
        match younger {
            NIL => bank.youngest[class] = older,
            _ => self.slots[usize::from(younger)].older = older,
        }
        let hit = first_of_row(&self.slots, younger, row);
        let bank = &mut self.banks[number as usize];
        bank.hit[class] = hit;
        if bank.oldest == [NIL; 2] {
            self.waiting &= !(1 << number);
        }
        self.keys[usize::from(index)] = EMPTY;
        self.free.push(index);
        self.listed[class] -= 1;
        self.occupied[class] -= 1;
    }

    /// Lists the writes that no read holds back any more.
    fn unpark(&mut self, burst: u64) {
        let read = burst << 1;
        if self.keys.contains(&read) {
            return;
        }
        let mut at = 0;
        while at < self.parked.len() {
            let index = self.parked[at];
            if self.keys[usize::from(index)] == read | 1 {
                self.parked.remove(at);
                self.list(index, WRITE);
            } else {
                at += 1;
            }
        }
    }

    /// Whether requests of a class may be served.
    #[inline]
    fn is_served(&self, class: usize) -> bool {
        match self.scheduling.writes {
            WritePolicy::Unified => true,
            WritePolicy::Watermark { .. } => self.draining == (class == WRITE),
        }
    }

    /// Begins or ends a drain as the counts want it. Tells whether it did.
    #[inline]
    fn choose_class(&mut self) -> bool {
        let WritePolicy::Watermark { high, low, .. } = self.scheduling.writes else {
            return false;
        };
        let [reads, writes] = self.listed;
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
        let bypasses = if order == self.passed { self.bypasses } else { 0 };
        if slot != NIL && bypasses >= self.scheduling.bypasses_max {
            best = self.choose(Some(slot)).0;
        }
        self.oldest = order;
        self.plan = best.plan;
    }

    /// The best command, and the order and slot of the oldest request that may be served.
    /// With a `favoured` request, no other one gets a column command, nor any
    /// command in the same bank. O(banks).
    fn choose(&self, favoured: Option<u16>) -> (Candidate, (u64, u16)) {
        let floor = self.now.max(self.timing.bus_free());
        let mut best = self.plan_refresh(floor);
        let mut consider = |command: Command, bank: BankIndex, slot: u16| {
            let cycle = self.timing.earliest(command, bank).max(floor);
            let row_command = !matches!(command, Command::Read | Command::Write);
            let key = (cycle, 1 + u8::from(row_command), self.slots[usize::from(slot)].order);
            // From the time that its refresh is due, a rank gets nothing else.
            if key < best.key && cycle < self.due[self.timing.rank_of(bank) as usize] {
                best = Candidate { key, plan: Plan { cycle, command, bank, slot } };
            }
        };
        let served = [self.is_served(READ), self.is_served(WRITE)];
        let mut oldest = (u64::MAX, NIL);
        for number in bits(self.waiting) {
            let bank = &self.banks[number as usize];
            let mut first = (u64::MAX, NIL);
            let mut hit = false;
            for class in [READ, WRITE] {
                let slot = bank.oldest[class];
                if !served[class] || slot == NIL {
                    continue;
                }
                first = first.min((self.slots[usize::from(slot)].order, slot));
                let column = bank.hit[class];
                if column != NIL {
                    hit = true;
                    if favoured.is_none_or(|favoured| favoured == column) {
                        consider(COLUMN[class], number, column);
                    }
                }
            }
            let (_, slot) = first;
            oldest = oldest.min(first);
            if slot != NIL
                && (!hit || favoured == Some(slot))
                && self.slots[usize::from(slot)].row != bank.row
            {
                consider(bank.row_command(), number, slot);
            }
        }
        (best, oldest)
    }

    /// The next refresh, or the precharge that must come before it. O(ranks).
    fn plan_refresh(&self, floor: Cycle) -> Candidate {
        let plan = Plan { cycle: Cycle::MAX, command: Command::Refresh, bank: 0, slot: NIL };
        let mut best = Candidate { key: (Cycle::MAX, 0, 0), plan };
        for (rank, due) in (0..).zip(&self.due) {
            let bank = self.timing.first_bank(rank);
            let closed = self.open & self.rank_mask(rank) == 0;
            let command = if closed { Command::Refresh } else { Command::PrechargeAll };
            let cycle = self.timing.earliest(command, bank).max(*due).max(floor);
            let key = (cycle, 0, u64::from(rank));
            if key < best.key {
                best = Candidate { key, plan: Plan { cycle, command, bank, slot: NIL } };
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
        log: &mut Option<(&mut Vec<Issued>, u32)>,
    ) {
        let Plan { cycle, command, bank: number, slot } = self.plan;
        self.now = cycle;
        self.timing.issue(cycle, command, number);
        let mut row = self.banks[number as usize].row;
        match command {
            Command::Refresh => {
                self.due[self.timing.rank_of(number) as usize] += self.refresh_interval;
                self.stats.refreshes += 1;
            }
            Command::PrechargeAll => {
                let mask = self.rank_mask(self.timing.rank_of(number));
                for open in bits(self.open & mask) {
                    self.banks[open as usize].close();
                }
                self.open &= !mask;
                self.stats.precharges += 1;
            }
            Command::Precharge => {
                self.banks[number as usize].close();
                self.open &= !(1 << number);
                self.slots[usize::from(slot)].needed = Needed::Precharge;
                self.stats.precharges += 1;
            }
            Command::Activate => {
                let request = &mut self.slots[usize::from(slot)];
                row = request.row;
                if request.needed == Needed::Nothing {
                    request.needed = Needed::Activate;
                }
                let bank = &mut self.banks[number as usize];
                bank.row = row;
                for class in [READ, WRITE] {
                    bank.hit[class] = first_of_row(&self.slots, bank.oldest[class], row);
                }
                self.open |= 1 << number;
                self.stats.activates += 1;
            }
            Command::Read => self.column(cycle, slot, READ, done),
            Command::Write => self.column(cycle, slot, WRITE, done),
        }
        if let Some((log, channel)) = log {
            log.push(Issued { cycle, channel: *channel, command, bank: number, row });
        }
        self.replan();
    }

    fn column(
        &mut self,
        cycle: Cycle,
        index: u16,
        class: usize,
        done: &mut BinaryHeap<Reverse<Completion>>,
    ) {
        let Slot { id, order, accepted, needed, .. } = self.slots[usize::from(index)];
        let burst = self.keys[usize::from(index)] >> 1;
        self.queue_change(cycle + 1);
        self.remove(index, class);
        if order == self.oldest {
            self.passed = u64::MAX;
            self.bypasses = 0;
        } else if self.passed == self.oldest {
            self.bypasses += 1;
        } else {
            self.passed = self.oldest;
            self.bypasses = 1;
        }
        let end = cycle + self.latency[class];
        match needed {
            Needed::Nothing => self.stats.row_hits += 1,
            Needed::Activate => self.stats.row_misses += 1,
            Needed::Precharge => self.stats.row_conflicts += 1,
        }
        self.stats.data_cycles += self.burst_cycles;
        if class == READ {
            self.stats.reads += 1;
            self.stats.read_latency.record(end - accepted);
            if !self.parked.is_empty() {
                self.unpark(burst);
            }
        } else {
            self.stats.writes += 1;
            self.stats.write_latency.record(end - accepted);
        }
        self.choose_class();
        done.push(Reverse(Completion { cycle: end, order, id, write: class == WRITE }));
    }

    /// Accounts for the requests in the queue before `cycle`.
    fn queue_change(&mut self, cycle: Cycle) {
        let queued = u128::from(self.occupied[READ] + self.occupied[WRITE]);
        self.stats.queued_cycles += queued * u128::from(cycle - self.queue_changed);
        self.queue_changed = cycle;
    }

    /// Requests in the queue.
    pub(crate) fn queued(&self) -> u32 {
        self.occupied[READ] + self.occupied[WRITE]
    }

    /// What has been counted up to the cycle `now`, which no command lies behind.
    pub(crate) fn stats(&self, now: Cycle) -> ChannelStats {
        let mut stats = self.stats.clone();
        let since = now.saturating_sub(self.queue_changed);
        stats.queued_cycles += u128::from(self.queued()) * u128::from(since);
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
        let mut listed = [0; 2];
        for (number, bank) in self.banks.iter().enumerate() {
            for class in [READ, WRITE] {
                let (mut older, mut at, mut hit) = (NIL, bank.oldest[class], NIL);
                while at != NIL {
                    let slot = &self.slots[usize::from(at)];
                    let key = self.keys[usize::from(at)];
                    ensure(key != EMPTY && key & 1 == class as u64, "a free slot is listed")?;
                    ensure(slot.bank as usize == number, "a request is in another bank's list")?;
                    ensure(slot.older == older, "a list's links disagree")?;
                    ensure(
                        older == NIL || self.slots[usize::from(older)].order < slot.order,
                        "a list is not in order of age",
                    )?;
                    if hit == NIL && slot.row == bank.row {
                        hit = at;
                    }
                    listed[class] += 1;
                    (older, at) = (at, slot.younger);
                }
                ensure(bank.youngest[class] == older, "a list does not end at its youngest")?;
                ensure(bank.hit[class] == hit, "the oldest hit is another one")?;
            }
            let bit = |mask: u64| mask >> number & 1 == 1;
            ensure(bit(self.waiting) == (bank.oldest != [NIL; 2]), "waiting banks are wrong")?;
            ensure(bit(self.open) == (bank.row != CLOSED), "open banks are wrong")?;
        }
        ensure(listed == self.listed, "listed requests are miscounted")?;
        for class in [READ, WRITE] {
            let keys = self.keys.iter().filter(|&&key| key != EMPTY && key & 1 == class as u64);
            let parked = if class == WRITE { self.parked.len() } else { 0 };
            ensure(keys.count() == self.occupied[class] as usize, "slots are miscounted")?;
            ensure(
                listed[class] as usize + parked == self.occupied[class] as usize,
                "a request is neither listed nor parked",
            )?;
        }
        for &index in &self.parked {
            let read = self.keys[usize::from(index)] & !1;
            ensure(self.keys.contains(&read), "a parked write waits for nothing")?;
        }
        let occupied = self.occupied[READ] + self.occupied[WRITE];
        ensure(self.free.len() + occupied as usize == self.slots.len(), "slots are lost")?;
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

impl Bank {
    /// What a request needs that does not find its row open.
    fn row_command(&self) -> Command {
        if self.row == CLOSED { Command::Activate } else { Command::Precharge }
    }

    fn close(&mut self) {
        self.row = CLOSED;
        self.hit = [NIL; 2];
    }
}

/// The first request for `row` from `at` on, along the list. O(list).
#[inline]
fn first_of_row(slots: &[Slot], mut at: u16, row: u32) -> u16 {
    while at != NIL && slots[usize::from(at)].row != row {
        at = slots[usize::from(at)].younger;
    }
    at
}

/// The numbers of the bits that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}
