//! The state of a channel's timing: a [`Part`]'s table applied to the commands issued.
//!
//! Each bank, bank group and rank keeps, for each command, the first cycle at which
//! it may come. A command that is issued moves these forward, one step for each line of
//! the table that begins with it; the earliest cycle of a command is the latest
//! of the three that concern it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::dram::timing::{BANKS_MAX, BankIndex, Command, Part, PartError, Scope};

type Ready = [Cycle; Command::COUNT];

#[derive(Clone, Copy, Debug)]
struct Line {
    to: usize,
    scope: Scope,
    cycles: Cycle,
}

/// The clockwork of one channel.
///
/// Knows the table, not the rows: whether a bank is open is for the caller.
///
/// Invariants: `lines` holds the part's table in the order of the earlier
/// command, and `starts[c]..starts[c + 1]` are those of the command c.
#[derive(Clone, Debug)]
pub struct TimingState {
    lines: Box<[Line]>,
    starts: [u16; Command::COUNT + 1],
    bus_cycles: [u32; Command::COUNT],
    four_activates_cycles: Cycle,
    banks_per_rank: u32,
    bank_shift: u32,
    rank_shift: u32,
    banks: Box<[Ready]>,
    groups: Box<[Ready]>,
    ranks: Box<[RankState]>,
    bus_free: Cycle,
}

#[derive(Clone, Copy, Debug)]
struct RankState {
    ready: Ready,
    /// For each of the last four activates, when it leaves the window.
    window: [Cycle; 4],
    /// The oldest of them.
    oldest: u8,
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
        let mut starts = [0; Command::COUNT + 1];
        let mut lines = Vec::with_capacity(part.constraints.len());
        for from in Command::ALL {
            for constraint in part.constraints.iter().filter(|c| c.from == from) {
                lines.push(Line {
                    to: constraint.to as usize,
                    scope: constraint.scope,
                    cycles: constraint.cycles.into(),
                });
            }
            starts[from as usize + 1] = lines.len() as u16;
        }
        let never = [0; Command::COUNT];
        let rank = RankState { ready: never, window: [0; 4], oldest: 0 };
        Ok(Self {
            lines: lines.into(),
            starts,
            bus_cycles: part.bus_cycles,
            four_activates_cycles: part.four_activates_cycles.into(),
            banks_per_rank: part.banks(),
            bank_shift: part.banks_per_group.trailing_zeros(),
            rank_shift: part.banks().trailing_zeros(),
            banks: vec![never; (ranks * part.banks()) as usize].into(),
            groups: vec![never; (ranks * part.groups) as usize].into(),
            ranks: vec![rank; ranks as usize].into(),
            bus_free: 0,
        })
    }

    /// Returns the rank of a bank.
    #[inline]
    pub const fn rank_of(&self, bank: BankIndex) -> u32 {
        bank >> self.rank_shift
    }

    /// Returns the first bank of a rank.
    pub const fn first_bank(&self, rank: u32) -> BankIndex {
        rank << self.rank_shift
    }

    /// Returns the number of cycles for which a command occupies the command bus.
    pub fn bus_cycles(&self, command: Command) -> Cycle {
        self.bus_cycles[command as usize].into()
    }

    /// Returns the first cycle at which `command` may be issued to `bank`, or to its
    /// rank if it is one for ranks. O(1).
    ///
    /// # Panics
    /// `bank` is not one of the channel.
    #[inline]
    pub fn earliest(&self, command: Command, bank: BankIndex) -> Cycle {
        let c = command as usize;
        let rank = &self.ranks[self.rank_of(bank) as usize];
        let mut cycle = rank.ready[c].max(self.bus_free);
        if !command.is_for_rank() {
            let group = &self.groups[(bank >> self.bank_shift) as usize];
            cycle = cycle.max(group[c]).max(self.banks[bank as usize][c]);
        }
        if command == Command::Activate {
            cycle = cycle.max(rank.window[usize::from(rank.oldest)]);
        }
        cycle
    }

    /// Issues `command` at `cycle`, which is not before [`earliest`](Self::earliest).
    /// O(lines that begin with the command, times ranks).
    ///
    /// # Panics
    /// `bank` is not one of the channel; with debug assertions, also where `cycle` is too early.
    pub fn issue(&mut self, cycle: Cycle, command: Command, bank: BankIndex) {
        debug_assert!(cycle >= self.earliest(command, bank));
        let c = command as usize;
        let own = self.rank_of(bank) as usize;
        self.bus_free = cycle + self.bus_cycles(command);
        for line in &self.lines[self.starts[c].into()..self.starts[c + 1].into()] {
            let ready = cycle + line.cycles;
            let push = |slot: &mut Cycle| *slot = ready.max(*slot);
            match line.scope {
                Scope::Bank => push(&mut self.banks[bank as usize][line.to]),
                Scope::Group => push(&mut self.groups[(bank >> self.bank_shift) as usize][line.to]),
                Scope::Rank => push(&mut self.ranks[own].ready[line.to]),
                Scope::OtherRanks => {
                    for (index, rank) in self.ranks.iter_mut().enumerate() {
                        if index != own {
                            push(&mut rank.ready[line.to]);
                        }
                    }
                }
            }
        }
        if command == Command::Activate {
            let rank = &mut self.ranks[own];
            rank.window[usize::from(rank.oldest)] = cycle + self.four_activates_cycles;
            rank.oldest = (rank.oldest + 1) % 4;
        }
    }

    /// Returns the number of banks of the channel.
    pub fn banks(&self) -> u32 {
        self.banks_per_rank * self.ranks.len() as u32
    }
}
