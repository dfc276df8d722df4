//! The timing constraints of a DRAM part as a table.
//!
//! A memory chip is commanded over a bus, one command at a time. Its data
//! sheet says how many cycles must lie between two commands: a
//! [`Constraint`] is one such line (from this command to that one, where, how
//! many cycles), and a [`Part`] is a list of them beside the sizes of banks and
//! rows. Nothing in the model knows a parameter by name: [`TimingState`]
//! applies whatever the list says.
//! **A new part is a new constant** of [`Part`] here: its sizes, its two
//! latencies, and one line for each constraint.
//!
//! Cycles are periods of the command clock, [`Part::clock_period_ps`] each.
//! Data move at twice that rate, so a burst of 8 takes 4 cycles, or faster where they
//! have a clock of their own ([`Part::transfers_per_cycle`]).
//!
//! [`TimingState`]: crate::dram::state::TimingState

use alloc::borrow::Cow;

/// The number of a bank of a channel, counted over ranks, groups and the banks of a group.
pub type BankIndex = u32;

/// Banks on a channel, at most: they are kept as bits of a word.
pub const BANKS_MAX: u32 = 64;

/// Lines of a table, at most.
const LINES_MAX: usize = 1024;

/// The commands of a controller to a chip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Command {
    /// Opens a row of a bank.
    Activate,
    /// Closes the open row of a bank.
    Precharge,
    /// Closes the open rows of all banks of a rank.
    PrechargeAll,
    /// Reads one burst from the open row.
    Read,
    /// Writes one burst to the open row.
    Write,
    /// Refreshes all banks of a rank, which must be closed.
    Refresh,
    /// Refreshes one set of the banks of a rank ([`SetRefresh`]), which must be closed.
    RefreshSet,
}

impl Command {
    /// Number of commands.
    pub const COUNT: usize = 7;

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Activate,
        Self::Precharge,
        Self::PrechargeAll,
        Self::Read,
        Self::Write,
        Self::Refresh,
        Self::RefreshSet,
    ];

    /// Returns true if it is told to a whole rank, not to one bank.
    pub const fn is_for_rank(self) -> bool {
        matches!(self, Self::PrechargeAll | Self::Refresh)
    }
}

/// The later commands that a constraint holds back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// Those to the same bank.
    Bank,
    /// Those to any bank of the same bank group, the same bank included.
    Group,
    /// Those to the same set of banks that are refreshed together, where one of the two commands
    /// is [`Command::RefreshSet`].
    Set,
    /// Those to the same rank, the same bank included.
    Rank,
    /// Those to the other ranks of the channel.
    OtherRanks,
}

/// One line of the table: after `from`, a `to` within `scope` is not before
/// `cycles` cycles later. Where several lines apply, the longest one counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constraint {
    /// The data sheet's name of it.
    pub name: &'static str,
    /// The earlier command.
    pub from: Command,
    /// The later command.
    pub to: Command,
    /// The banks in which the later command is held back.
    pub scope: Scope,
    /// Cycles from the earlier command to the later one, at least.
    pub cycles: u32,
}

/// The sets of a rank's banks that a part refreshes one after another with
/// [`Command::RefreshSet`], while the other banks work.
///
/// A set holds the banks whose numbers in the rank leave the same remainder by `sets`. With as
/// many sets as a group has banks it is the same bank of every group (DDR5's same-bank refresh),
/// with half as many as the rank has banks a pair (LPDDR5's per-bank refresh of 16 banks).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetRefresh {
    /// Sets in a rank: a power of two, up to its banks.
    pub sets: u32,
    /// Cycles between the refreshes of sets that a rank is due: the next set each time.
    pub interval_cycles: u32,
}

/// A DRAM part as one channel sees it: all chips of a rank in step.
///
/// Invariants, which [`Part::validate`] tests: the sizes that are counted are powers of two
/// and not 0; a burst moves at least a byte; a rank can recover from a refresh of either kind
/// before the next is due; every constraint is one that can be met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The name.
    pub name: &'static str,
    /// One cycle in picoseconds.
    pub clock_period_ps: u32,
    /// Bank groups in a rank; 1 where the part has none.
    pub groups: u32,
    /// Banks in a group.
    pub banks_per_group: u32,
    /// log2 of the rows in a bank.
    pub row_bits: u32,
    /// log2 of the columns in a row; a column is as wide as the data bus.
    pub column_bits: u32,
    /// Width of a channel's data bus in bytes.
    pub bus_bytes: u32,
    /// Transfers in a burst: a burst moves this many times `bus_bytes`.
    pub burst_transfers: u32,
    /// Transfers of the data bus in a cycle of the command clock.
    pub transfers_per_cycle: u32,
    /// Cycles from a read command to its first data.
    pub read_latency_cycles: u32,
    /// Cycles from a write command to its first data.
    pub write_latency_cycles: u32,
    /// Cycles between the refreshes that a rank is due (tREFI).
    pub refresh_interval_cycles: u32,
    /// The sets of banks that can be refreshed in place of whole ranks, if the part has them.
    pub set_refresh: Option<SetRefresh>,
    /// Cycles in which a rank takes at most four activates (tFAW); 0 without such a limit.
    pub four_activates_cycles: u32,
    /// Cycles for which each command occupies the command bus, by [`Command`].
    pub bus_cycles: [u32; Command::COUNT],
    /// The table.
    pub constraints: Cow<'static, [Constraint]>,
}

/// Reasons why a part is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartError {
    /// A size that is 0, or not a power of two, or too large.
    #[error("{field} cannot be {value}")]
    Size {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// A line whose scope its commands do not have: narrower than a rank where one is for a
    /// whole rank, a bank or a group where one is for a set of banks, a set where none is.
    #[error("{} ({:?} to {:?}) has no scope {:?}", .constraint.name, .constraint.from, .constraint.to, .constraint.scope)]
    Scope {
        /// The line.
        constraint: Constraint,
    },
    /// A refresh and the precharge before it take longer than a refresh interval.
    #[error("refreshing takes {needed_cycles} cycles and is due every {interval_cycles}")]
    Refresh {
        /// The interval.
        interval_cycles: u32,
        /// Cycles that are needed.
        needed_cycles: u64,
    },
}

impl Part {
    /// Returns the number of banks in a rank.
    pub const fn banks(&self) -> u32 {
        self.groups * self.banks_per_group
    }

    /// Returns the number of cycles that a burst occupies the data bus.
    pub const fn burst_cycles(&self) -> u32 {
        self.burst_transfers / self.transfers_per_cycle
    }

    /// Returns the number of bytes that a burst moves.
    pub const fn burst_bytes(&self) -> u32 {
        self.burst_transfers * self.bus_bytes
    }

    /// Returns the number of bytes of a row.
    pub const fn row_bytes(&self) -> u64 {
        (self.bus_bytes as u64) << self.column_bits
    }

    /// Returns the number of bytes of a rank.
    pub const fn rank_bytes(&self) -> u64 {
        (self.row_bytes() << self.row_bits) * self.banks() as u64
    }

    /// Tests the invariants. O(constraints).
    ///
    /// # Errors
    /// [`PartError`] names the first that does not hold.
    pub fn validate(&self) -> Result<(), PartError> {
        let powers = [
            ("groups", self.groups, 16),
            ("banks_per_group", self.banks_per_group, 16),
            ("bus_bytes", self.bus_bytes, 1 << 10),
            ("burst_transfers", self.burst_transfers, 1 << 10),
            ("transfers_per_cycle", self.transfers_per_cycle, 1 << 10),
        ];
        for (field, value, max) in powers {
            if !value.is_power_of_two() || value > max {
                return Err(PartError::Size { field, value });
            }
        }
        let counts = [
            ("clock_period_ps", self.clock_period_ps, 1, 1 << 20),
            ("burst_transfers", self.burst_transfers, 2, 1 << 10),
            ("transfers_per_cycle", self.transfers_per_cycle, 1, self.burst_transfers),
            ("row_bits", self.row_bits, 1, 24),
            ("column_bits", self.column_bits, self.burst_transfers.trailing_zeros(), 16),
            ("read_latency_cycles", self.read_latency_cycles, 1, 1 << 20),
            ("write_latency_cycles", self.write_latency_cycles, 1, 1 << 20),
            ("refresh_interval_cycles", self.refresh_interval_cycles, 1, 1 << 30),
            ("four_activates_cycles", self.four_activates_cycles, 0, 1 << 20),
        ];
        for (field, value, min, max) in counts {
            if !(min..=max).contains(&value) {
                return Err(PartError::Size { field, value });
            }
        }
        for value in self.bus_cycles {
            if !(1..=1 << 10).contains(&value) {
                return Err(PartError::Size { field: "bus_cycles", value });
            }
        }
        if self.constraints.len() > LINES_MAX {
            let value = u32::try_from(self.constraints.len()).unwrap_or(u32::MAX);
            return Err(PartError::Size { field: "constraints", value });
        }
        if self.banks() > BANKS_MAX {
            return Err(PartError::Size { field: "banks", value: self.banks() });
        }
        let sets = self.set_refresh.map_or(1, |refresh| refresh.sets);
        if !sets.is_power_of_two() || sets > self.banks() {
            return Err(PartError::Size { field: "set_refresh.sets", value: sets });
        }
        // The longest lines that a memory meets which refreshes ranks, and which refreshes sets.
        let (mut longest, mut longest_of_sets) = (0, 0);
        for constraint in self.constraints.iter() {
            let either = |command| constraint.from == command || constraint.to == command;
            let rank = constraint.from.is_for_rank() || constraint.to.is_for_rank();
            let set = either(Command::RefreshSet);
            let fits = match constraint.scope {
                Scope::Bank | Scope::Group => !rank && !set,
                Scope::Set => !rank && set && self.set_refresh.is_some(),
                Scope::Rank | Scope::OtherRanks => true,
            };
            if !fits {
                return Err(PartError::Scope { constraint: *constraint });
            }
            if constraint.cycles > 1 << 20 {
                return Err(PartError::Size { field: constraint.name, value: constraint.cycles });
            }
            longest = longest.max(if set { 0 } else { constraint.cycles });
            let of_ranks = either(Command::Refresh);
            longest_of_sets = longest_of_sets.max(if of_ranks { 0 } else { constraint.cycles });
        }
        let recovers = |interval_cycles: u32, longest: u32| {
            // From the moment that it is due: what runs ends, all banks are closed,
            // and the refresh itself runs. None takes longer than the longest line.
            let needed_cycles = 3 * (u64::from(longest) + 1);
            if needed_cycles > u64::from(interval_cycles) {
                return Err(PartError::Refresh { interval_cycles, needed_cycles });
            }
            Ok(())
        };
        recovers(self.refresh_interval_cycles, longest)?;
        self.set_refresh
            .map_or(Ok(()), |refresh| recovers(refresh.interval_cycles, longest_of_sets))
    }
}
