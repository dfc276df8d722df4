//! The refreshes of a channel: which banks are refreshed together, and when they are due.

use alloc::boxed::Box;

use crate::clock::Cycle;
use crate::dram::queue::bits;
use crate::dram::scheduling::RefreshMode;
use crate::dram::timing::{BankIndex, Command, Part, SetRefresh};

/// The refreshes that a channel is due.
///
/// A *unit* is what one command refreshes: the banks of a rank, or one set of them. The units of a
/// rank are due one after another, those of different ranks together.
///
/// Invariants, which [`check`](Self::check) tests: `units` has each bank of the channel once; the
/// banks of a unit are due together, and `first_due` is the least of `due`.
#[derive(Clone, Debug)]
pub(crate) struct Refreshes {
    command: Command,
    /// For each unit its banks, by bit.
    units: Box<[u64]>,
    /// For each bank, when its next refresh is due.
    due: Box<[Cycle]>,
    first_due: Cycle,
    /// Cycles until the same unit is due again.
    period: Cycle,
}

impl Refreshes {
    /// Creates those of `ranks` ranks at cycle 0. Without sets of banks, whole ranks are refreshed.
    pub(crate) fn new(part: &Part, ranks: u32, mode: RefreshMode) -> Self {
        let (command, sets, interval) = match (mode, part.set_refresh) {
            (RefreshMode::SameBank, Some(SetRefresh { sets, interval_cycles })) => {
                (Command::RefreshSet, sets, Cycle::from(interval_cycles))
            }
            _ => (Command::Refresh, 1, part.refresh_interval_cycles.into()),
        };
        let banks = ranks * part.banks();
        let unit = (0..part.banks()).step_by(sets as usize).fold(0_u64, |unit, at| unit | 1 << at);
        let firsts = (0..banks).filter(|bank| bank % part.banks() < sets);
        Self {
            command,
            units: firsts.map(|first| unit << first).collect(),
            due: (0..banks).map(|bank| interval * Cycle::from(bank % sets + 1)).collect(),
            first_due: interval,
            period: interval * Cycle::from(sets),
        }
    }

    /// Returns the command that refreshes a unit.
    #[inline]
    pub(crate) fn command(&self) -> Command {
        self.command
    }

    /// Returns the units, each as its banks, by bit.
    pub(crate) fn units(&self) -> &[u64] {
        &self.units
    }

    /// Returns the cycles until the same unit is due again.
    pub(crate) fn period(&self) -> Cycle {
        self.period
    }

    /// Returns the cycle from which the next refresh of a bank is due.
    #[inline]
    pub(crate) fn due(&self, bank: BankIndex) -> Cycle {
        self.due[bank as usize]
    }

    /// Returns the cycle from which the next refresh of all is due.
    #[inline]
    pub(crate) fn first_due(&self) -> Cycle {
        self.first_due
    }

    /// Returns the banks that are refreshed with one, by bit. O(units).
    pub(crate) fn unit_of(&self, bank: BankIndex) -> u64 {
        self.units.iter().filter(|&&unit| unit >> bank & 1 == 1).sum()
    }

    /// Makes the unit of a bank due a period later. O(banks).
    // Out of line, as other commands would pay for it.
    #[inline(never)]
    pub(crate) fn refresh(&mut self, bank: BankIndex) {
        for bank in bits(self.unit_of(bank)) {
            self.due[bank as usize] += self.period;
        }
        self.first_due = self.due.iter().copied().fold(Cycle::MAX, Cycle::min);
    }

    /// Makes every unit due so many periods later. O(banks).
    pub(crate) fn skip(&mut self, periods: u64) {
        for due in &mut self.due {
            *due += periods * self.period;
        }
        self.first_due += periods * self.period;
    }

    /// Tests every invariant.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        let (mut all, mut count) = (0, 0);
        for &unit in &self.units {
            all |= unit;
            count += unit.count_ones() as usize;
            let due = self.due(unit.trailing_zeros());
            ensure(bits(unit).all(|bank| self.due(bank) == due), "a unit's banks are due apart")?;
        }
        let banks = self.due.len();
        let once = count == banks && all.count_ones() as usize == banks;
        ensure(once, "a bank is in no unit or in two")?;
        let first_due = self.due.iter().min();
        ensure(first_due == Some(&self.first_due), "the first refresh is due at another time")
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::dram::parts::DDR5_4800;

    #[test]
    fn periods_that_are_skipped_move_every_unit() {
        for mode in [RefreshMode::AllBank, RefreshMode::SameBank] {
            let mut refreshes = Refreshes::new(&DDR5_4800, 2, mode);
            refreshes.refresh(0);
            let before = refreshes.clone();
            refreshes.skip(3);
            let later = 3 * refreshes.period();
            assert!(before.first_due() > 0 && refreshes.first_due() == before.first_due() + later);
            for bank in 0..2 * DDR5_4800.banks() {
                assert_eq!(refreshes.due(bank), before.due(bank) + later);
            }
            assert_eq!(refreshes.check(), Ok(()));
        }
    }

    /// Each invariant is broken by itself.
    #[test]
    fn what_does_not_hold_is_found() {
        let sound = Refreshes::new(&DDR5_4800, 2, RefreshMode::SameBank);
        let broken = |change: fn(&mut Refreshes)| {
            let mut refreshes = sound.clone();
            change(&mut refreshes);
            refreshes.check().unwrap_err()
        };
        assert_eq!(sound.check(), Ok(()));
        assert_eq!(broken(|all| all.due[0] += 1), "a unit's banks are due apart");
        assert_eq!(broken(|all| all.first_due += 1), "the first refresh is due at another time");
        let once = "a bank is in no unit or in two";
        assert_eq!(broken(|all| all.units[0] &= all.units[0] - 1), once);
        // Twice one and never another, so that the number of banks is right.
        assert_eq!(broken(|all| all.units[0] = all.units[1]), once);
        // One twice and all of them once: their number is wrong, and no bank is missing.
        let unit = sound.units[0] | sound.units[1];
        let mut refreshes = sound.clone();
        refreshes.units[0] = unit;
        refreshes.due.fill(refreshes.first_due);
        assert_eq!(refreshes.check(), Err(once));
    }
}
