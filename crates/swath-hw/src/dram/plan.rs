//! The next command of a channel, and the order of two.

use crate::clock::Cycle;
use crate::dram::queue::NIL;
use crate::dram::timing::{BankIndex, Command};

/// The command that comes next if nothing else arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) cycle: Cycle,
    /// Of two commands that can come in the same cycle, the one with the lesser age goes: a
    /// claim, a refresh, a column or a row command, and the order of its request.
    pub(crate) age: u64,
    pub(crate) command: Command,
    pub(crate) bank: BankIndex,
    pub(crate) slot: u16,
}

/// No command ever.
pub(crate) const NOTHING: Plan =
    Plan { cycle: Cycle::MAX, age: u64::MAX, command: Command::Refresh, bank: 0, slot: NIL };

impl Plan {
    /// Takes another command if it comes first.
    #[inline]
    pub(crate) fn consider(&mut self, other: Self) {
        if other.comes_before(self) {
            *self = other;
        }
    }

    #[inline]
    fn comes_before(&self, other: &Self) -> bool {
        self.cycle < other.cycle || (self.cycle == other.cycle && self.age < other.age)
    }
}
