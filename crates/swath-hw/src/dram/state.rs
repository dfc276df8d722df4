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

/// For each command, a first cycle. As long as a cache line, and wider than the commands.
type Ready = [Cycle; 8];

/// A line of the table for one command: what it holds back, and for how long.
#[derive(Clone, Copy, Debug)]
struct Line {
    to: u8,
    /// The place of the row that it moves among the four of a bank.
    place: u8,
    cycles: u32,
}

/// The rows of `ready` that concern a bank: its own, its group's, its rank's, and that of the
/// first bank of its refresh set, which holds what the set's refresh waits for.
type Places = [u32; 4];

/// The clockwork of one channel.
///
/// Knows the table, not the rows: whether a bank is open is for the caller.
///
/// Invariants: `lines` holds the part's table in the order of the earlier command, but for the
/// lines to other ranks (`others`) and those from the refresh of a set to the commands of its
/// banks (`set_lines`), and `starts[c]..starts[c + 1]` are those of the command c;
/// `ready` has a row for each bank, then for each group, then for each rank, and `places` those
/// of a bank. The first cycle of an activate in a rank's row is not before its window has room.
#[derive(Clone, Debug)]
pub struct TimingState {
    lines: Box<[Line]>,
    starts: [u16; Command::COUNT + 1],
    others: Box<[(Command, Command, Cycle)]>,
    set_lines: Box<[(Command, Cycle)]>,
    /// True if any of either can apply.
    spreads: bool,
    /// Sets of banks in a rank that are refreshed together.
    sets: u32,
    /// For each command, the commands to other banks that it may hold back, by bit.
    moves: [u8; Command::COUNT],
    bus_cycles: [u32; Command::COUNT],
    four_activates_cycles: Cycle,
    banks_per_rank: u32,
    rank_shift: u32,
    places: Box<[Places]>,
    ready: Box<[Ready]>,
    windows: Box<[Window]>,
    bus_free: Cycle,
}

/// The activates of a rank that count towards its limit of four.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// For each of the last four, when it leaves the window.
    leaves: [Cycle; 4],
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
        let (mut others, mut set_lines) = (Vec::new(), Vec::new());
        for from in Command::ALL {
            for constraint in part.constraints.iter().filter(|c| c.from == from) {
                let place = match constraint.scope {
                    Scope::Bank => 0,
                    Scope::Group => 1,
                    Scope::Rank => 2,
                    Scope::Set if constraint.to == Command::RefreshSet => 3,
                    Scope::Set => {
                        set_lines.push((constraint.to, constraint.cycles.into()));
                        continue;
                    }
                    Scope::OtherRanks => {
                        others.push((from, constraint.to, constraint.cycles.into()));
                        continue;
                    }
                };
                lines.push(Line { to: constraint.to as u8, place, cycles: constraint.cycles });
            }
            starts[from as usize + 1] = lines.len() as u16;
        }
        let mut moves = [0; Command::COUNT];
        for constraint in part.constraints.iter().filter(|c| c.scope != Scope::Bank) {
            moves[constraint.from as usize] |= 1 << constraint.to as u8;
        }
        moves[Command::Activate as usize] |= 1 << Command::Activate as u8;
        let (banks, groups) = (ranks * part.banks(), ranks * part.groups);
        let group_shift = part.banks_per_group.trailing_zeros();
        let rank_shift = part.banks().trailing_zeros();
        let sets = part.set_refresh.map_or(1, |refresh| refresh.sets);
        let places = (0..banks).map(|bank| {
            let (rank, in_rank) = (bank >> rank_shift, bank & (part.banks() - 1));
            let first_of_set = bank - in_rank + in_rank % sets;
            [bank, banks + (bank >> group_shift), banks + groups + rank, first_of_set]
        });
        let window = Window { leaves: [0; 4], oldest: 0 };
        Ok(Self {
            lines: lines.into(),
            starts,
            spreads: ranks > 1 || !set_lines.is_empty(),
            others: others.into(),
            set_lines: set_lines.into(),
            sets,
            moves,
            bus_cycles: part.bus_cycles,
            four_activates_cycles: part.four_activates_cycles.into(),
            banks_per_rank: part.banks(),
            rank_shift,
            places: places.collect(),
            ready: vec![[0; 8]; (banks + groups + ranks) as usize].into(),
            windows: vec![window; ranks as usize].into(),
            bus_free: 0,
        })
    }

    /// Returns the rank of a bank.
    #[inline]
    pub const fn rank_of(&self, bank: BankIndex) -> u32 {
        bank >> self.rank_shift
    }

    /// Returns the number of cycles for which a command occupies the command bus.
    pub fn bus_cycles(&self, command: Command) -> Cycle {
        self.bus_cycles[command as usize].into()
    }

    /// Returns the commands, by bit, of which one to another bank may be held back by `command`.
    #[inline]
    pub(crate) fn moves(&self, command: Command) -> u8 {
        self.moves[command as usize]
    }

    /// Returns the cycle from which the command bus is free.
    #[inline]
    pub(crate) fn bus_free(&self) -> Cycle {
        self.bus_free
    }

    /// Returns the first cycle at which `command` may be issued to `bank`, or to its
    /// rank if it is one for ranks, or to the set of which it is the first bank. O(1).
    ///
    /// # Panics
    /// `bank` is not one of the channel.
    #[inline]
    pub fn earliest(&self, command: Command, bank: BankIndex) -> Cycle {
        let [own, group, rank, _] = self.places[bank as usize];
        let ready = |row: u32| self.ready[row as usize][command as usize % 8];
        let cycle = ready(rank).max(self.bus_free);
        if command.is_for_rank() { cycle } else { cycle.max(ready(group)).max(ready(own)) }
    }

    /// Issues `command` at `cycle`, which is not before [`earliest`](Self::earliest).
    /// O(lines that begin with the command, times ranks).
    ///
    /// # Panics
    /// `bank` is not one of the channel; with debug assertions, also where `cycle` is too early.
    pub fn issue(&mut self, cycle: Cycle, command: Command, bank: BankIndex) {
        debug_assert!(cycle >= self.earliest(command, bank));
        let c = command as usize;
        self.bus_free = cycle + self.bus_cycles(command);
        let places = self.places[bank as usize];
        let own = self.rank_of(bank) as usize;
        let rows = &mut *self.ready;
        for line in &self.lines[self.starts[c].into()..self.starts[c + 1].into()] {
            let row = places[usize::from(line.place) % 4] as usize;
            let ready = &mut rows[row][usize::from(line.to) % 8];
            *ready = (*ready).max(cycle + Cycle::from(line.cycles));
        }
        if command == Command::Activate {
            let Window { leaves, oldest } = &mut self.windows[own];
            leaves[usize::from(*oldest) % 4] = cycle + self.four_activates_cycles;
            *oldest = (*oldest + 1) % 4;
            let ready = &mut rows[places[2] as usize][c];
            *ready = (*ready).max(leaves[usize::from(*oldest) % 4]);
        }
        if self.spreads {
            self.spread(cycle, command, bank);
        }
    }

    /// Applies the lines that move other rows than the four of the bank: those to other ranks, and
    /// those from the refresh of a set to its banks.
    // Out of line, as it would cost the commands that need none of it.
    #[inline(never)]
    fn spread(&mut self, cycle: Cycle, command: Command, bank: BankIndex) {
        let own = self.rank_of(bank);
        let rows = &mut *self.ready;
        let first = rows.len() - self.windows.len();
        for &(_, to, cycles) in self.others.iter().filter(|other| other.0 == command) {
            for (rank, row) in (0..).zip(&mut rows[first..]) {
                if rank != own {
                    row[to as usize] = row[to as usize].max(cycle + cycles);
                }
            }
        }
        if command == Command::RefreshSet {
            let [.., first] = self.places[bank as usize];
            for of in (first..(own + 1) << self.rank_shift).step_by(self.sets as usize) {
                for &(to, cycles) in &self.set_lines {
                    let ready = &mut rows[of as usize][to as usize];
                    *ready = (*ready).max(cycle + cycles);
                }
            }
        }
    }

    /// Returns the number of banks of the channel.
    pub fn banks(&self) -> u32 {
        self.banks_per_rank * self.windows.len() as u32
    }
}
