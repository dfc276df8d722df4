//! The state of a channel's timing: a [`Part`]'s table applied to the commands issued.
//!
//! Each bank, bank group and rank keeps, for each command, the first cycle at which
//! it may come. A command that is issued moves these forward, one step for each line of
//! the table that begins with it; the earliest cycle of a command is the latest
//! of the three that concern it. That of the bank itself moves only with the bank's own commands
//! and its set's refreshes, so the controller keeps it and asks for the others alone.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::dram::timing::{BANKS_MAX, BankIndex, Command, Part, PartError, Scope};

/// For each command, a first cycle. As long as a cache line, and wider than the commands.
pub(crate) type Ready = [Cycle; 8];

/// A line of the table for one command: what it holds back, and for how long.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    to: u8,
    cycles: u32,
}

/// The lines that begin with one command, by the row that they move.
#[derive(Clone, Default, Debug)]
struct Lines {
    bank: Vec<Spacing>,
    group: Vec<Spacing>,
    rank: Vec<Spacing>,
    /// Those to the refresh of the bank's set, which waits in the row of the set's first bank.
    to_set: Vec<Spacing>,
    /// Those from the refresh of a set to the commands of its banks.
    of_set: Vec<Spacing>,
    other_ranks: Vec<Spacing>,
}

/// A bank: what it holds back itself, and where the rest stands.
#[derive(Clone, Debug)]
pub(crate) struct BankTiming {
    ready: Ready,
    rank: u8,
    group: u8,
    /// The first bank of its set.
    set: u8,
}

/// A rank: what it holds back, and the activates that count towards its limit of four.
#[derive(Clone, Debug)]
pub(crate) struct RankTiming {
    /// Its banks, by bit.
    pub(crate) banks: u64,
    pub(crate) ready: Ready,
    /// For each of the last four activates, when it leaves the window.
    leaves: [Cycle; 4],
    /// The oldest of them.
    oldest: u8,
}

impl BankTiming {
    /// Returns the first cycle at which `command` may be issued as far as the bank itself
    /// holds it back: the same until a command to the bank or a refresh of its set.
    #[inline]
    pub(crate) fn own(&self, command: Command) -> Cycle {
        self.ready[command as usize]
    }
}

/// The clockwork of one channel.
///
/// Knows the table, not the rows: whether a bank is open is for the caller.
///
/// Invariants: `lines` holds the part's table by the earlier command, those of groups among those
/// of ranks where a rank is one group, and then no group holds anything back. The first cycle of an
/// activate in a rank's row is not before its window has room.
#[derive(Clone, Debug)]
pub struct TimingState {
    bus_free: Cycle,
    lines: [Lines; Command::COUNT],
    banks: Box<[BankTiming]>,
    groups: Box<[Ready]>,
    ranks: Box<[RankTiming]>,
    bus_cycles: [u32; Command::COUNT],
    rank_shift: u32,
    four_activates_cycles: Cycle,
    /// True if there are lines that move other rows than the bank's and its rank's.
    spreads: bool,
    /// True if a rank has several groups.
    grouped: bool,
    /// Sets of banks in a rank that are refreshed together.
    sets: u32,
}

/// Moves a row forward by the lines of a command that is issued.
#[inline(always)]
fn raise(row: &mut Ready, lines: &[Spacing], cycle: Cycle) {
    for line in lines {
        let ready = &mut row[usize::from(line.to) % 8];
        *ready = (*ready).max(cycle + Cycle::from(line.cycles));
    }
}

impl TimingState {
    /// Creates a channel of `ranks` ranks of a part, in which nothing has happened.
    /// O(banks + lines of the table).
    ///
    /// # Errors
    /// [`PartError`], for the part and for ranks that are no power of two or make more
    /// than [`BANKS_MAX`] banks.
    pub fn new(part: &Part, ranks: u32) -> Result<Self, PartError> {
        part.validate()?;
        if !ranks.is_power_of_two() || ranks > BANKS_MAX / part.banks() {
            return Err(PartError::Size { field: "ranks", value: ranks });
        }
        let grouped = part.groups > 1;
        let mut lines: [Lines; Command::COUNT] = Default::default();
        for constraint in part.constraints.iter() {
            let Lines { bank, group, rank, to_set, of_set, other_ranks } =
                &mut lines[constraint.from as usize];
            let list = match constraint.scope {
                Scope::Bank => bank,
                Scope::Group if grouped => group,
                Scope::Group | Scope::Rank => rank,
                Scope::Set if constraint.to == Command::RefreshSet => to_set,
                Scope::Set => of_set,
                Scope::OtherRanks if ranks > 1 => other_ranks,
                Scope::OtherRanks => continue,
            };
            list.push(Spacing { to: constraint.to as u8, cycles: constraint.cycles });
        }
        let group_shift = part.banks_per_group.trailing_zeros();
        let rank_shift = part.banks().trailing_zeros();
        let sets = part.set_refresh.map_or(1, |refresh| refresh.sets);
        let bank = |bank| {
            let (rank, in_rank) = (bank >> rank_shift, bank & (part.banks() - 1));
            let [rank, group, set] =
                [rank, bank >> group_shift, bank - in_rank + in_rank % sets].map(|of| of as u8);
            BankTiming { ready: [0; 8], rank, group, set }
        };
        let banks = u64::MAX >> (64 - part.banks());
        let rank = |rank| RankTiming {
            banks: banks << (rank << rank_shift),
            ready: [0; 8],
            leaves: [0; 4],
            oldest: 0,
        };
        Ok(Self {
            bus_free: 0,
            spreads: lines.iter().any(|Lines { group, to_set, of_set, other_ranks, .. }| {
                [group, to_set, of_set, other_ranks].iter().any(|list| !list.is_empty())
            }),
            lines,
            banks: (0..ranks * part.banks()).map(bank).collect(),
            groups: vec![[0; 8]; (ranks * part.groups) as usize].into(),
            ranks: (0..ranks).map(rank).collect(),
            bus_cycles: part.bus_cycles,
            rank_shift,
            four_activates_cycles: part.four_activates_cycles.into(),
            grouped,
            sets,
        })
    }

    /// Returns the rank of a bank.
    #[inline]
    pub const fn rank_of(&self, bank: BankIndex) -> u32 {
        bank >> self.rank_shift
    }

    /// Returns the number of cycles for which a command occupies the command bus.
    #[inline]
    pub fn bus_cycles(&self, command: Command) -> Cycle {
        self.bus_cycles[command as usize].into()
    }

    /// Returns the cycle from which the command bus is free.
    #[inline]
    pub(crate) fn bus_free(&self) -> Cycle {
        self.bus_free
    }

    /// Returns true if a rank has several groups.
    #[inline]
    pub(crate) fn is_grouped(&self) -> bool {
        self.grouped
    }

    /// Returns a bank.
    #[inline]
    pub(crate) fn bank(&self, bank: BankIndex) -> &BankTiming {
        &self.banks[bank as usize]
    }

    /// Returns the ranks.
    #[inline]
    pub(crate) fn ranks(&self) -> &[RankTiming] {
        &self.ranks
    }

    /// Returns the first cycle at which `command` may be issued to `bank` as far as its group
    /// holds it back.
    #[inline]
    pub(crate) fn of_group(&self, command: Command, bank: BankIndex) -> Cycle {
        self.groups[usize::from(self.bank(bank).group)][command as usize]
    }

    /// Returns the first cycle at which `command` may be issued to `bank`, or to its
    /// rank if it is one for ranks, or to the set of which it is the first bank. O(1).
    ///
    /// # Panics
    /// `bank` is not one of the channel.
    #[inline]
    pub fn earliest(&self, command: Command, bank: BankIndex) -> Cycle {
        // No line of a bank or a group holds back a command for a rank.
        let timing = self.bank(bank);
        let of_rank = self.ranks[usize::from(timing.rank)].ready[command as usize];
        let around = of_rank.max(self.of_group(command, bank));
        timing.own(command).max(around).max(self.bus_free)
    }

    /// Issues `command` at `cycle`, which is not before [`earliest`](Self::earliest).
    /// O(lines that begin with the command, times ranks).
    ///
    /// # Panics
    /// `bank` is not one of the channel; with debug assertions, also where `cycle` is too early.
    #[inline]
    pub fn issue(&mut self, cycle: Cycle, command: Command, bank: BankIndex) {
        debug_assert!(cycle >= self.earliest(command, bank));
        self.bus_free = cycle + self.bus_cycles(command);
        let lines = &self.lines[command as usize];
        let own = &mut self.banks[bank as usize];
        raise(&mut own.ready, &lines.bank, cycle);
        let RankTiming { ready, leaves, oldest, .. } = &mut self.ranks[usize::from(own.rank)];
        raise(ready, &lines.rank, cycle);
        if command == Command::Activate {
            leaves[usize::from(*oldest) % 4] = cycle + self.four_activates_cycles;
            *oldest = (*oldest + 1) % 4;
            let ready = &mut ready[Command::Activate as usize];
            *ready = (*ready).max(leaves[usize::from(*oldest) % 4]);
        }
        if self.spreads {
            self.spread(cycle, command, bank);
        }
    }

    /// Applies the lines that move other rows than the bank's and its rank's.
    // Out of line, as it would cost the parts that need none of it.
    #[inline(never)]
    fn spread(&mut self, cycle: Cycle, command: Command, bank: BankIndex) {
        let BankTiming { rank, group, set, .. } = self.banks[bank as usize];
        let end = (self.rank_of(bank) + 1) << self.rank_shift;
        let lines = &self.lines[command as usize];
        raise(&mut self.groups[usize::from(group)], &lines.group, cycle);
        raise(&mut self.banks[usize::from(set)].ready, &lines.to_set, cycle);
        if !lines.of_set.is_empty() {
            for of in (usize::from(set)..end as usize).step_by(self.sets as usize) {
                raise(&mut self.banks[of].ready, &lines.of_set, cycle);
            }
        }
        if !lines.other_ranks.is_empty() {
            let own = usize::from(rank);
            for (_, other) in self.ranks.iter_mut().enumerate().filter(|&(rank, _)| rank != own) {
                raise(&mut other.ready, &lines.other_ranks, cycle);
            }
        }
    }

    /// Returns the number of banks of the channel.
    #[inline]
    pub fn banks(&self) -> u32 {
        self.banks.len() as u32
    }
}
