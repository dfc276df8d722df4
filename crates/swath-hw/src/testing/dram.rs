//! The memory against a naive one that goes from cycle to cycle.
//!
//! The naive model keeps every command that it ever issued and every request
//! in one list. In each cycle it tries all commands that the documented rules
//! allow, testing each against the whole table and as much of the history as any line of it reaches
//! back. The two must issue the same commands in the same cycles, turn away the same
//! offers, and end the same requests at the same time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use alloc::{format, vec};

use swath_arch::PhysAddr;
use swath_arch::testing::Random;

use crate::clock::Cycle;
use crate::dram::config::DramConfig;
use crate::dram::mapping::Location;
use crate::dram::memory::Dram;
use crate::dram::request::{Completion, DramRequest, IssuedCommand, OfferError};
use crate::dram::scheduling::{RefreshMode, Scheduling, WaitingRequests, WritePolicy};
use crate::dram::timing::{Command, Part, Scope, SetRefresh};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Hit,
    Miss,
    Conflict,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: DramRequest,
    order: u64,
    accepted: Cycle,
    burst: u64,
    bank: u32,
    row: u32,
    class: Class,
    /// A row was opened for it.
    claim: bool,
}

#[derive(Default)]
struct Tallies {
    classes: [u64; 3],
    forwarded: u64,
    latency: u64,
    queued_cycles: u128,
}

struct Channel {
    config: DramConfig,
    /// What was issued so many cycles ago holds nothing back any more.
    longest: Cycle,
    queue: Vec<Waiting>,
    rows: Vec<Option<u32>>,
    history: Vec<(Cycle, Command, u32)>,
    /// For each rank, or for each set of each rank, when its refresh is due.
    due: Vec<Cycle>,
    draining: bool,
    passed: Option<(u64, u32)>,
    counts: Tallies,
}

/// Returns the most cycles for which a command of the part holds another back.
fn longest(part: &Part) -> Cycle {
    let lines = part.constraints.iter().map(|line| line.cycles);
    let all = lines.chain(part.bus_cycles).chain([part.four_activates_cycles]);
    all.max().unwrap_or(0).into()
}

impl Channel {
    fn new(config: &DramConfig) -> Self {
        let due = match (config.scheduling.refresh, config.part.set_refresh) {
            (RefreshMode::SameBank, Some(SetRefresh { sets, interval_cycles })) => (0..config
                .ranks)
                .flat_map(|_| (1..=sets).map(|nth| u64::from(nth * interval_cycles)))
                .collect(),
            _ => vec![config.part.refresh_interval_cycles.into(); config.ranks as usize],
        };
        Self {
            due,
            queue: Vec::new(),
            rows: vec![None; (config.ranks * config.part.banks()) as usize],
            history: Vec::new(),
            draining: false,
            passed: None,
            counts: Tallies::default(),
            longest: longest(&config.part),
            config: config.clone(),
        }
    }

    fn rank(&self, bank: u32) -> u32 {
        bank / self.config.part.banks()
    }

    fn sets(&self) -> u32 {
        self.config.part.set_refresh.map_or(1, |refresh| refresh.sets)
    }

    fn refreshes_sets(&self) -> bool {
        self.config.scheduling.refresh == RefreshMode::SameBank
    }

    /// The place in `due` of what a bank is refreshed with.
    fn refreshed_with(&self, bank: u32) -> usize {
        let rank = self.rank(bank);
        let place = if self.refreshes_sets() {
            rank * self.sets() + bank % self.config.part.banks() % self.sets()
        } else {
            rank
        };
        place as usize
    }

    fn is_legal(&self, now: Cycle, command: Command, bank: u32) -> bool {
        let part = &self.config.part;
        let mut activates = 0;
        let mut recent = self.history.iter().rev().take_while(|past| now < past.0 + self.longest);
        recent.all(|&(then, before, at)| {
            let same_rank = self.rank(at) == self.rank(bank);
            if before == Command::Activate && command == Command::Activate && same_rank {
                activates += 1;
                if activates == 4 && now < then + u64::from(part.four_activates_cycles) {
                    return false;
                }
            }
            now >= then + u64::from(part.bus_cycles[before as usize])
                && part.constraints.iter().all(|line| {
                    let applies = line.from == before
                        && line.to == command
                        && match line.scope {
                            Scope::Bank => at == bank,
                            Scope::Group => {
                                at / part.banks_per_group == bank / part.banks_per_group
                            }
                            Scope::Set => same_rank && at % self.sets() == bank % self.sets(),
                            Scope::Rank => same_rank,
                            Scope::OtherRanks => !same_rank,
                        };
                    !applies || now >= then + u64::from(line.cycles)
                })
        })
    }

    fn is_parked(&self, waiting: &Waiting) -> bool {
        waiting.request.write
            && self.queue.iter().any(|other| {
                !other.request.write && other.burst == waiting.burst && other.order < waiting.order
            })
    }

    /// The requests that may be served, by age.
    fn served(&self) -> Vec<Waiting> {
        let mut served: Vec<_> = self
            .queue
            .iter()
            .filter(|waiting| !self.is_parked(waiting))
            .filter(|waiting| match self.config.scheduling.writes {
                WritePolicy::Unified => true,
                _ => waiting.request.write == self.draining,
            })
            .copied()
            .collect();
        served.sort_by_key(|waiting| waiting.order);
        served
    }

    fn choose_class(&mut self) {
        let policy = self.config.scheduling.writes;
        if policy == WritePolicy::Unified {
            return;
        }
        let count = |write| {
            let waits = |waiting: &&Waiting| !waiting.claim && !self.is_parked(waiting);
            self.queue.iter().filter(waits).filter(|waiting| waiting.request.write == write).count()
                as u32
        };
        let (reads, writes) = (count(false), count(true));
        let wanted = || match policy {
            WritePolicy::Unified => false,
            WritePolicy::Watermark { low, .. } if self.draining => writes > low,
            WritePolicy::Watermark { high, .. } => writes >= high,
            WritePolicy::Own { entries, rule } => {
                let draining = self.draining;
                (rule.drains)(WaitingRequests { reads, writes, entries, draining })
            }
        };
        let draining = writes > 0 && (reads == 0 || wanted());
        self.draining = draining;
    }

    /// The completion of a read that is forwarded, nothing, or `Err` if full.
    fn accept(&mut self, now: Cycle, waiting: Waiting) -> Result<Option<Completion>, ()> {
        let DramRequest { id, write, .. } = waiting.request;
        let same = |other: &&Waiting| other.request.write && other.burst == waiting.burst;
        if !write && self.queue.iter().find(same).is_some() {
            self.counts.forwarded += 1;
            self.counts.latency += 1;
            return Ok(Some(Completion { cycle: now + 1, order: waiting.order, id, write }));
        }
        let places = |write| {
            let holds = |waiting: &&Waiting| !waiting.claim && waiting.request.write == write;
            self.queue.iter().filter(holds).count() as u32
        };
        let (reads, writes) = (places(false), places(true));
        let scheduling = self.config.scheduling;
        let full = match scheduling.writes {
            WritePolicy::Unified => reads + writes >= scheduling.entries,
            WritePolicy::Watermark { entries, .. } | WritePolicy::Own { entries, .. } if write => {
                writes >= entries
            }
            WritePolicy::Watermark { .. } | WritePolicy::Own { .. } => reads >= scheduling.entries,
        };
        if full {
            return Err(());
        }
        self.queue.push(waiting);
        Ok(None)
    }

    /// The refresh that is due, or a precharge before it; of several, that of the lowest bank.
    fn choose_for_refresh(&self, now: Cycle) -> Option<(Command, u32)> {
        let banks = 0..self.rows.len() as u32;
        let mut wanted = Vec::new();
        for (place, _) in self.due.iter().enumerate().filter(|(_, due)| now >= **due) {
            let own: Vec<u32> =
                banks.clone().filter(|&bank| self.refreshed_with(bank) == place).collect();
            let open = |bank: &u32| self.rows[*bank as usize].is_some();
            let claimed = |bank: &u32| {
                self.queue.iter().any(|waiting| waiting.claim && waiting.bank == *bank)
            };
            if !own.iter().any(open) {
                let sets = self.refreshes_sets();
                let refresh = if sets { Command::RefreshSet } else { Command::Refresh };
                wanted.push((own[0], refresh));
            } else if self.refreshes_sets() {
                let closing = own.iter().filter(|bank| open(bank) && !claimed(bank));
                wanted.extend(closing.map(|&bank| (bank, Command::Precharge)));
            } else if !own.iter().any(claimed) {
                wanted.push((own[0], Command::PrechargeAll));
            }
        }
        wanted.sort();
        let ready = wanted.iter().find(|&&(bank, command)| self.is_legal(now, command, bank));
        ready.map(|&(bank, command)| (command, bank))
    }

    /// What to issue in this cycle, and for which request.
    fn choose(&self, now: Cycle) -> Option<(Command, u32, Option<u64>)> {
        let column = |waiting: &Waiting| {
            if waiting.request.write { Command::Write } else { Command::Read }
        };
        let claims = || self.queue.iter().filter(|waiting| waiting.claim);
        let mut ready: Vec<_> =
            claims().filter(|waiting| self.is_legal(now, column(waiting), waiting.bank)).collect();
        ready.sort_by_key(|waiting| waiting.order);
        if let Some(claim) = ready.first() {
            return Some((column(claim), claim.bank, Some(claim.order)));
        }
        if let Some((command, bank)) = self.choose_for_refresh(now) {
            return Some((command, bank, None));
        }
        let Scheduling { hits_first, bypasses_max, .. } = self.config.scheduling;
        let served = self.served();
        let favoured = served.first().filter(|oldest| {
            let bypasses = self.passed.filter(|passed| passed.0 == oldest.order);
            bypasses.map_or(0, |passed| passed.1) >= bypasses_max
        });
        let hits = |waiting: &Waiting| self.rows[waiting.bank as usize] == Some(waiting.row);
        let mut ready = Vec::new();
        for waiting in &served {
            let bank = waiting.bank;
            let others = favoured.is_some_and(|favoured| favoured.order != waiting.order);
            let claimed = claims().any(|claim| claim.bank == bank);
            let wanted = served.iter().any(|other| other.bank == bank && hits(other));
            let kept = claimed || (hits_first && wanted && favoured.is_none());
            let command = match self.rows[bank as usize] {
                _ if waiting.claim || others => continue,
                Some(_) if hits(waiting) => column(waiting),
                Some(_) if kept => continue,
                Some(_) => Command::Precharge,
                None => Command::Activate,
            };
            if now < self.due[self.refreshed_with(bank)] && self.is_legal(now, command, bank) {
                ready.push((hits_first && !hits(waiting), waiting.order, command, bank));
            }
        }
        ready.sort();
        ready.first().map(|&(_, order, command, bank)| (command, bank, Some(order)))
    }

    /// One cycle: the command that is issued, and the request that it ends.
    fn cycle(&mut self, now: Cycle) -> Option<((Command, u32, u32), Option<Completion>)> {
        self.choose_class();
        // It waits until the end of the cycle of its column command.
        self.counts.queued_cycles += self.queue.len() as u128;
        let issued = self.choose(now);
        issued.map(|(command, bank, order)| self.issue(now, command, bank, order))
    }

    fn issue(
        &mut self,
        now: Cycle,
        command: Command,
        bank: u32,
        order: Option<u64>,
    ) -> ((Command, u32, u32), Option<Completion>) {
        self.history.push((now, command, bank));
        let part = self.config.part.clone();
        let mut row = self.rows[bank as usize].unwrap_or(u32::MAX);
        let index = self.queue.iter().position(|waiting| Some(waiting.order) == order);
        let mut done = None;
        match (command, index) {
            (Command::Refresh, None) => {
                let rank = self.rank(bank) as usize;
                self.due[rank] += u64::from(part.refresh_interval_cycles);
            }
            (Command::RefreshSet, None) => {
                let SetRefresh { sets, interval_cycles } = part.set_refresh.unwrap();
                let place = self.refreshed_with(bank);
                self.due[place] += u64::from(sets * interval_cycles);
            }
            (Command::Precharge, None) => self.rows[bank as usize] = None,
            (Command::PrechargeAll, None) => {
                self.rows[bank as usize..][..part.banks() as usize].fill(None);
            }
            (Command::Precharge, Some(index)) => {
                self.rows[bank as usize] = None;
                self.queue[index].class = Class::Conflict;
            }
            (Command::Activate, Some(index)) => {
                let waiting = &mut self.queue[index];
                row = waiting.row;
                waiting.claim = true;
                self.rows[bank as usize] = Some(row);
                if waiting.class == Class::Hit {
                    waiting.class = Class::Miss;
                }
            }
            (Command::Read | Command::Write, Some(index)) => {
                let oldest = self.served().first().map(|oldest| oldest.order);
                let waiting = self.queue.remove(index);
                self.passed = match self.passed {
                    _ if Some(waiting.order) == oldest => None,
                    Some((passed, bypasses)) if Some(passed) == oldest => {
                        Some((passed, bypasses + 1))
                    }
                    _ => oldest.map(|oldest| (oldest, 1)),
                };
                let first = match command {
                    Command::Read => part.read_latency_cycles,
                    _ => part.write_latency_cycles,
                };
                let cycle = now + u64::from(first + part.burst_cycles());
                let DramRequest { id, write, .. } = waiting.request;
                self.counts.classes[waiting.class as usize] += 1;
                if !write {
                    self.counts.latency += cycle - waiting.accepted;
                }
                done = Some(Completion { cycle, order: waiting.order, id, write });
            }
            impossible => panic!("{impossible:?}"),
        }
        ((command, bank, row), done)
    }
}

/// Offers requests to both memories for so many cycles, in `load` of 100 when it is not quiet, and
/// compares: what is offered and turned away at once, commands and completions at the end, the
/// memory's invariants where the numbers say so and at the end. When given bytes are spent, what
/// they would say is the same for ever: there is a request in one cycle of 16.
///
/// # Panics
/// If the two differ, or the configuration is refused.
pub fn compare(config: &DramConfig, mut random: Random, cycles: Cycle, load: u64) {
    let what = format!("{}, {:?}", config.part.name, config.scheduling);
    let mut dram = Dram::new(config).unwrap();
    dram.record_commands();
    let mut channels: Vec<_> = (0..config.channels).map(|_| Channel::new(config)).collect();
    let mut expected_commands = vec![Vec::new(); config.channels as usize];
    let (mut expected_done, mut done) = (Vec::new(), Vec::new());
    let mut order = 0;
    let mut full = 0;
    let part = &config.part;
    let mut last = (PhysAddr::new(0), false);
    let mut retry = false;
    for now in 0..cycles {
        let spent = random.is_spent();
        // Some spells are quiet, so that reads run out and drains begin.
        let busy = now / 500 % 3 != 2 || now % 40 == 0;
        if busy && (!spent || now % 16 == 0) && random.below(100) < load {
            if !retry {
                // Few rows and columns: hits, conflicts and equal bursts are common.
                let location = Location {
                    channel: random.below(config.channels.into()) as u32,
                    rank: random.below(config.ranks.into()) as u32,
                    group: random.below(part.groups.into()) as u32,
                    bank: random.below(part.banks_per_group.into()) as u32,
                    row: random.below(3) as u32,
                    column: random.below(4) as u32 * part.burst_transfers,
                    byte: 0,
                };
                last = (config.mapping.address(&location), random.below(3) == 0);
            }
            let (addr, write) = last;
            let request = DramRequest { id: now, addr, write };
            let Location { channel, rank, group, bank, row, .. } = dram.locate(addr).unwrap();
            let waiting = Waiting {
                request,
                order,
                accepted: now,
                burst: addr.raw() / u64::from(part.burst_bytes()),
                bank: rank * part.banks() + group * part.banks_per_group + bank,
                row,
                class: Class::Hit,
                claim: false,
            };
            dram.advance(now);
            let room = dram.has_room(channel, write);
            let ours = dram.offer(now, request);
            assert!(!room || ours.is_ok(), "{what}, cycle {now}");
            match channels[channel as usize].accept(now, waiting) {
                Ok(completion) => {
                    assert_eq!(ours, Ok(()), "{what}, cycle {now}");
                    expected_done.extend(completion);
                    order += 1;
                    retry = false;
                }
                Err(()) => {
                    assert_eq!(ours, Err(OfferError::Full { channel }), "{what}, cycle {now}");
                    full += 1;
                    retry = random.below(2) == 0;
                }
            }
            if random.below(16) == 0 && (!spent || now % 64 == 0) {
                dram.check().unwrap_or_else(|error| panic!("{error}: {what}, cycle {now}"));
            }
        } else if random.below(4) == 0 {
            dram.advance(now);
        }
        for (number, channel) in (0..).zip(&mut channels) {
            if let Some(((command, bank, row), completion)) = channel.cycle(now) {
                let issued = IssuedCommand { cycle: now, channel: number, command, bank, row };
                expected_commands[number as usize].push(issued);
                expected_done.extend(completion);
            }
        }
        if random.below(8) == 0 {
            while let Some(completion) = dram.take_done(now) {
                done.push(completion);
            }
        }
    }
    dram.advance(cycles);
    dram.check().unwrap_or_else(|error| panic!("{error}: {what}"));
    let commands = dram.take_commands();
    for (number, expected) in (0..).zip(&expected_commands) {
        let ours: Vec<_> =
            commands.iter().filter(|issued| issued.channel == number).copied().collect();
        for (nth, (ours, expected)) in ours.iter().zip(expected).enumerate() {
            assert_eq!(ours, expected, "{what}, command {nth}");
        }
        assert_eq!(ours.len(), expected.len(), "{what}");
    }
    let stats = dram.stats();
    for (channel, stats) in channels.iter().zip(&stats.channels) {
        let counts = &channel.counts;
        assert_eq!(
            [stats.row_hits, stats.row_misses, stats.row_conflicts],
            counts.classes,
            "{what}"
        );
        assert_eq!(stats.forwarded_reads, counts.forwarded, "{what}");
        assert_eq!(stats.queued_cycles, counts.queued_cycles, "{what}");
        assert_eq!(stats.elapsed_cycles, cycles);
        let latency = stats.read_latency.mean_cycles() * stats.read_latency.count() as f64;
        assert!((latency - counts.latency as f64).abs() < 0.5, "{what}");
        let counted = |which: &[Command]| {
            channel.history.iter().filter(|(_, command, _)| which.contains(command)).count() as u64
        };
        assert_eq!(stats.reads, counted(&[Command::Read]));
        assert_eq!(stats.writes, counted(&[Command::Write]));
        assert_eq!(stats.activates, counted(&[Command::Activate]));
        assert_eq!(stats.precharges, counted(&[Command::Precharge, Command::PrechargeAll]));
        assert_eq!(stats.refreshes, counted(&[Command::Refresh]));
        assert_eq!(stats.set_refreshes, counted(&[Command::RefreshSet]));
    }
    assert_eq!(stats.total().full, full);
    // Let what waits come to its end; what the naive one has ended must be among it.
    while let Some(completion) = dram.take_done(cycles) {
        done.push(completion);
    }
    while let Some(cycle) = dram.next_event() {
        assert!(cycle >= dram.now(), "{what}");
        // Until then there is nothing to see.
        let mut before = dram.clone();
        before.advance(cycle - 1);
        for channel in 0..config.channels {
            assert_eq!(before.queued(channel), dram.queued(channel), "{what}");
        }
        assert_eq!(before.take_done(cycle - 1), None, "{what}");
        dram.advance(cycle);
        while let Some(completion) = dram.take_done(cycle) {
            done.push(completion);
        }
    }
    expected_done.sort();
    let known: BTreeSet<_> = expected_done.iter().map(|end| end.order).collect();
    assert!(done.is_sorted(), "{what}");
    assert_eq!(done.len() as u64, order, "{what}: all that was accepted ends");
    done.retain(|completion| known.contains(&completion.order));
    assert_eq!(done, expected_done, "{what}");
}

/// The part with refreshes as often as it can bear, so that they matter in short runs.
///
/// # Panics
/// If the part has no constraints.
pub fn hurried(part: &Part) -> Part {
    let interval_without = |command: Command| {
        let lines = part.constraints.iter();
        let lines = lines.filter(|line| line.from != command && line.to != command);
        3 * (lines.map(|line| line.cycles).max().unwrap() + 1) + 7
    };
    let set_refresh = part.set_refresh.map(|refresh| SetRefresh {
        interval_cycles: interval_without(Command::Refresh),
        ..refresh
    });
    let refresh_interval_cycles = interval_without(Command::RefreshSet);
    Part { refresh_interval_cycles, set_refresh, ..part.clone() }
}
