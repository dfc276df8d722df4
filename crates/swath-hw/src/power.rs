//! The power of memory whose banks are managed one by one, in simulated time.
//!
//! A bank here is what can be powered by itself: 256 MiB in *Panwar and Gopinath*
//! (section I), not a bank of rows within
//! a chip. It is in one of four [states](PowerState), takes the power that its
//! state's line of Table I says, and needs time to come back. What a state
//! costs is a [`PowerTable`], so that another part is another table.
//!
//! ```text
//!              access              idle               idle
//!  READ/WRITE <-------- ACTIVE IDLE ------> SELF-REFRESH
//!      100% -----------> 63%  ^    <------  7%
//!               done          |   exit time
//!                             |  exit time, content lost
//!                         DEEP POWER-DOWN  (< 1%, not refreshed)
//! ```
//!
//! **A bank in deep power-down is not refreshed and loses its content.** The
//! model does what the hardware does: it tells the caller's `lose` which frames
//! are gone, when the bank goes down and again when it comes back (what was
//! written in between did not stay either). [`destroy`] is such a `lose` over
//! bytes of physical memory, so a bank that was taken down while it was used
//! shows up as corrupted data.
//!
//! BankEnergy is the sum over a bank's states of power × time, in units of
//! **thousandths of a bank's full power × nanoseconds**, exact in integers.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

use swath_arch::{BASE_PAGE_BYTES, BusError, Extent, Pfn, PhysAddr, PhysMemory};

/// The states of a bank (Table I).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PowerState {
    /// It transfers data.
    ReadWrite,
    /// Clocked, refreshed, ready at once.
    ActiveIdle,
    /// Without its clock; it refreshes itself and keeps its content.
    SelfRefresh,
    /// Not refreshed (masked out by partial array self-refresh, PASR): its content is lost.
    DeepPowerDown,
}

impl PowerState {
    /// Every state, from the highest power down.
    pub const ALL: [Self; 4] =
        [Self::ReadWrite, Self::ActiveIdle, Self::SelfRefresh, Self::DeepPowerDown];
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadWrite => "read/write",
            Self::ActiveIdle => "active idle",
            Self::SelfRefresh => "self-refresh",
            Self::DeepPowerDown => "deep power-down",
        })
    }
}

/// The costs of the states, each by [`PowerState`] in the order of
/// [`ALL`](PowerState::ALL).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerTable {
    /// Power in thousandths of a bank's full power.
    pub power_permille: [u32; 4],
    /// Nanoseconds from leaving the state until the bank serves accesses. The
    /// bank takes the power of active idle meanwhile.
    pub exit_ns: [u64; 4],
    /// BankEnergy of entering and leaving the state once, in full power ×
    /// nanoseconds.
    pub transition_full_power_ns: [u64; 4],
}

impl PowerTable {
    /// Table I of the paper: 100%, 63%, 7% and below 1% (taken as 0.9%). The
    /// paper gives no times. Mobile DRAM leaves self-refresh within the time of
    /// a refresh (about 200 ns) and deep power-down by its whole initialization
    /// (200 µs); a transition is charged as a refresh of the bank's rows, which
    /// is what going down and coming back take besides: 200 ns at full power.
    pub const PAPER: Self = Self {
        power_permille: [1000, 630, 70, 9],
        exit_ns: [0, 0, 200, 200_000],
        transition_full_power_ns: [0, 0, 200, 200],
    };
}

impl PowerTable {
    /// Table I for groups of sub-arrays of banks that are all interleaved (GreenDIMM: Lee et al.,
    /// MICRO 2021), where the clocked interface, which other groups need, stays on: what a group
    /// in deep power-down saves is at most what its cells and their refresh take, the 7% of
    /// self-refresh. A table of one's own says otherwise; with [`PAPER`](Self::PAPER) a group
    /// would save all that a bank does.
    pub const SUB_ARRAYS: Self = {
        let [_, active, refresh, down] = Self::PAPER.power_permille;
        let mut table = Self::PAPER;
        table.power_permille[PowerState::DeepPowerDown as usize] = active - refresh + down;
        table
    };
}

/// Reasons why a bank does not change its state. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PowerError {
    /// There is no such bank.
    #[error("bank {bank} of {banks}")]
    NoBank {
        /// The number asked for.
        bank: usize,
        /// Number of banks.
        banks: usize,
    },
    /// Time does not run backwards.
    #[error("{now_ns} ns lies before the last change at {last_ns} ns")]
    Past {
        /// The time given.
        now_ns: u64,
        /// The bank's last change.
        last_ns: u64,
    },
    /// The bank is in deep power-down: it serves no access.
    #[error("bank {bank} is in deep power-down")]
    Down {
        /// The bank.
        bank: usize,
    },
    /// The address belongs to no bank.
    #[error("frame {frame} is in no bank")]
    NoMemory {
        /// The frame.
        frame: Pfn,
    },
}

/// One bank's account.
#[derive(Clone, Copy, Debug)]
struct Bank {
    state: PowerState,
    since_ns: u64,
    ready_ns: u64,
    residency_ns: [u64; 4],
    entries: [u64; 4],
}

/// The banks of a memory and the energy that they take.
///
/// Invariant: for each bank, the residencies add up to its time since 0, up to
/// its last change.
#[derive(Clone, Debug)]
pub struct BankPower {
    first: Pfn,
    bank_frames: u64,
    table: PowerTable,
    banks: Box<[Bank]>,
}

/// The energy that banks have taken until some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BankEnergy {
    /// Thousandths of a bank's full power × nanoseconds.
    pub permille_ns: u128,
    /// Nanoseconds in each state, summed over the banks, in the order of [`PowerState::ALL`].
    pub residency_ns: [u64; 4],
    /// Number of entries into each state.
    pub entries: [u64; 4],
}

impl BankEnergy {
    /// Returns the energy that the same times in the states and the same entries take with other
    /// costs: thousandths of a bank's full power × nanoseconds.
    pub fn with(&self, table: &PowerTable) -> u128 {
        let of = |state: PowerState| {
            let at = state as usize;
            u128::from(self.residency_ns[at]) * u128::from(table.power_permille[at])
                + u128::from(self.entries[at])
                    * u128::from(table.transition_full_power_ns[at])
                    * 1000
        };
        PowerState::ALL.into_iter().map(of).sum()
    }
}

impl BankPower {
    /// Creates `banks` banks of `bank_frames` frames each from frame `first` on, in
    /// active idle since time 0. O(banks). A bank of no frames holds no
    /// address.
    pub fn new(first: Pfn, bank_frames: u64, banks: usize, table: PowerTable) -> Self {
        let idle = Bank {
            state: PowerState::ActiveIdle,
            since_ns: 0,
            ready_ns: 0,
            residency_ns: [0; 4],
            entries: [0; 4],
        };
        Self { first, bank_frames, table, banks: vec![idle; banks].into_boxed_slice() }
    }

    /// Returns the number of banks.
    pub fn banks(&self) -> usize {
        self.banks.len()
    }

    /// Returns the bank that holds the frame. O(1).
    pub fn bank_of(&self, frame: Pfn) -> Option<usize> {
        let offset = frame.raw().checked_sub(self.first.raw())?;
        let bank = usize::try_from(offset.checked_div(self.bank_frames)?).ok()?;
        (bank < self.banks.len()).then_some(bank)
    }

    /// Returns the frames of a bank.
    ///
    /// # Errors
    /// [`PowerError::NoBank`].
    pub fn frames(&self, bank: usize) -> Result<Extent, PowerError> {
        if bank >= self.banks.len() {
            return Err(PowerError::NoBank { bank, banks: self.banks.len() });
        }
        let start = self.first.raw() + bank as u64 * self.bank_frames;
        Ok(Extent::new(Pfn::new(start), self.bank_frames))
    }

    /// Returns the state that a bank is in.
    ///
    /// # Errors
    /// [`PowerError::NoBank`].
    pub fn state(&self, bank: usize) -> Result<PowerState, PowerError> {
        let banks = self.banks.len();
        self.banks.get(bank).map(|bank| bank.state).ok_or(PowerError::NoBank { bank, banks })
    }

    /// Puts a bank into a state at `now_ns` and gives the time from which on it
    /// serves accesses. Going into deep power-down, and out of it, the bank's
    /// frames are handed to `lose`. O(1) and `lose`.
    ///
    /// # Errors
    /// [`PowerError`]; nothing has changed and `lose` was not called.
    pub fn set(
        &mut self,
        now_ns: u64,
        bank: usize,
        state: PowerState,
        lose: &mut dyn FnMut(Extent),
    ) -> Result<u64, PowerError> {
        let frames = self.frames(bank)?;
        let account = &mut self.banks[bank];
        if now_ns < account.since_ns {
            return Err(PowerError::Past { now_ns, last_ns: account.since_ns });
        }
        let left = account.state;
        if left == state {
            return Ok(account.ready_ns.max(now_ns));
        }
        account.residency_ns[left as usize] += now_ns - account.since_ns;
        account.since_ns = now_ns;
        account.state = state;
        account.entries[state as usize] += 1;
        // A bank that is still coming back is not ready any earlier.
        account.ready_ns =
            account.ready_ns.max(now_ns).saturating_add(self.table.exit_ns[left as usize]);
        let ready_ns = account.ready_ns;
        if left == PowerState::DeepPowerDown || state == PowerState::DeepPowerDown {
            lose(frames);
        }
        Ok(ready_ns)
    }

    /// Applies partial array self-refresh: the banks whose `refreshed` is false go into
    /// deep power-down, those that were there and are refreshed again come back
    /// to active idle. Banks beyond the mask keep their state. O(banks).
    ///
    /// # Errors
    /// [`PowerError::NoBank`] if the mask is longer than the memory,
    /// [`PowerError::Past`]; nothing has changed.
    pub fn apply_pasr(
        &mut self,
        now_ns: u64,
        refreshed: &[bool],
        lose: &mut dyn FnMut(Extent),
    ) -> Result<(), PowerError> {
        if refreshed.len() > self.banks.len() {
            return Err(PowerError::NoBank { bank: refreshed.len() - 1, banks: self.banks.len() });
        }
        if let Some(bank) = self.banks.iter().take(refreshed.len()).find(|b| now_ns < b.since_ns) {
            return Err(PowerError::Past { now_ns, last_ns: bank.since_ns });
        }
        for (bank, &refreshed) in refreshed.iter().enumerate() {
            let down = self.banks[bank].state == PowerState::DeepPowerDown;
            if refreshed == down {
                let state =
                    if refreshed { PowerState::ActiveIdle } else { PowerState::DeepPowerDown };
                self.set(now_ns, bank, state, lose)?;
            }
        }
        Ok(())
    }

    /// Accesses a frame, asked for at `now_ns`, that keeps the bank busy for
    /// `busy_ns`: it waits until the accesses before it are over, and a bank in
    /// self-refresh wakes first. Gives the time at which it is over; the bank is
    /// in active idle from then on. O(1).
    ///
    /// # Errors
    /// [`PowerError::Down`] in deep power-down, [`PowerError::NoMemory`];
    /// nothing has changed.
    pub fn access(&mut self, now_ns: u64, frame: Pfn, busy_ns: u64) -> Result<u64, PowerError> {
        let bank = self.bank_of(frame).ok_or(PowerError::NoMemory { frame })?;
        let account = self.banks[bank];
        if account.state == PowerState::DeepPowerDown {
            return Err(PowerError::Down { bank });
        }
        let now_ns = now_ns.max(account.since_ns);
        let nothing_lost = &mut |_| {};
        let ready_ns = self.set(now_ns, bank, PowerState::ActiveIdle, nothing_lost)?;
        let over_ns = ready_ns.saturating_add(busy_ns);
        self.set(ready_ns, bank, PowerState::ReadWrite, nothing_lost)?;
        self.set(over_ns, bank, PowerState::ActiveIdle, nothing_lost)?;
        Ok(over_ns)
    }

    /// Returns the energy of all banks until `now_ns`; a bank that changed later is
    /// counted up to its change. O(banks).
    pub fn energy(&self, now_ns: u64) -> BankEnergy {
        let mut sum = BankEnergy::default();
        for bank in &self.banks {
            let mut residency_ns = bank.residency_ns;
            residency_ns[bank.state as usize] += now_ns.saturating_sub(bank.since_ns);
            for state in PowerState::ALL.map(|state| state as usize) {
                sum.residency_ns[state] += residency_ns[state];
                sum.entries[state] += bank.entries[state];
            }
        }
        sum.permille_ns = sum.with(&self.table);
        sum
    }
}

/// Overwrites the frames with what decayed cells could hold: nothing that
/// anybody wrote. O(bytes).
///
/// # Errors
/// [`BusError`] where no memory is.
pub fn destroy<M: PhysMemory + ?Sized>(memory: &M, frames: Extent) -> Result<(), BusError> {
    for frame in frames.iter() {
        for offset in (0..BASE_PAGE_BYTES).step_by(8) {
            let addr = frame.address().raw() + offset;
            // Different in each word, so that neighbours cannot pass for each other.
            memory.write_u64(PhysAddr::new(addr), 0xdead_0000_0000_0000 | addr >> 3)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use swath_arch::SliceMemory;

    fn two_banks() -> BankPower {
        BankPower::new(Pfn::new(16), 4, 2, PowerTable::PAPER)
    }

    /// Table I as a closed formula: each state alone for a second.
    #[test]
    fn a_second_in_each_state() {
        for (state, permille) in PowerState::ALL.into_iter().zip([1000, 630, 70, 9]) {
            let mut power = BankPower::new(Pfn::new(0), 1, 1, PowerTable::PAPER);
            power.set(0, 0, state, &mut |_| {}).unwrap();
            let energy = power.energy(1_000_000_000);
            let entered = u128::from(energy.entries[state as usize]);
            let once = u128::from(PowerTable::PAPER.transition_full_power_ns[state as usize]);
            assert_eq!(energy.permille_ns, permille * 1_000_000_000 + entered * once * 1000);
            assert_eq!(energy.residency_ns.iter().sum::<u64>(), 1_000_000_000);
        }
    }

    /// Accesses to one bank follow one another; to two banks they do not.
    #[test]
    fn accesses_wait_for_each_other() {
        let mut power = two_banks();
        assert_eq!(power.access(100, Pfn::new(16), 50), Ok(150));
        assert_eq!(power.access(110, Pfn::new(17), 50), Ok(200));
        assert_eq!(power.access(110, Pfn::new(20), 50), Ok(160));
        assert_eq!(power.energy(300).residency_ns, [150, 450, 0, 0]);
    }

    /// The bank is not ready a nanosecond before its exit time.
    #[test]
    fn coming_back_takes_its_time() {
        let mut power = two_banks();
        power.set(1_000, 0, PowerState::SelfRefresh, &mut |_| {}).unwrap();
        assert_eq!(power.access(2_000, Pfn::new(17), 50), Ok(2_000 + 200 + 50));
        power.set(5_000, 1, PowerState::DeepPowerDown, &mut |_| {}).unwrap();
        assert_eq!(power.access(6_000, Pfn::new(20), 50), Err(PowerError::Down { bank: 1 }));
        let ready = power.set(6_000, 1, PowerState::ActiveIdle, &mut |_| {});
        assert_eq!(ready, Ok(206_000));
        assert_eq!(power.access(6_000, Pfn::new(20), 50), Ok(206_050));
    }

    /// Going down loses the content, and so does what is written while down.
    #[test]
    fn deep_power_down_destroys() {
        let mut words = vec![7; 24 * 512];
        let memory = SliceMemory::new(Pfn::new(0), &mut words);
        let mut power = two_banks();
        let read = |frame: u64| memory.read_u64(Pfn::new(frame).address()).unwrap();
        let mut lose = |frames| destroy(&memory, frames).unwrap();
        power.apply_pasr(10, &[true, false], &mut lose).unwrap();
        assert_eq!(read(19), 7, "the bank before keeps its content");
        assert!((20..24).all(|frame| read(frame) != 7));
        memory.write_u64(Pfn::new(21).address(), 7).unwrap();
        power.apply_pasr(20, &[true, true], &mut lose).unwrap();
        assert_ne!(read(21), 7, "written while nothing was refreshed");
        // Self-refresh keeps everything.
        memory.write_u64(Pfn::new(21).address(), 8).unwrap();
        power.set(30, 1, PowerState::SelfRefresh, &mut lose).unwrap();
        power.set(40, 1, PowerState::ActiveIdle, &mut lose).unwrap();
        assert_eq!(read(21), 8);
    }

    /// Where the interface stays on, a second of a bank in deep power-down takes 56.9% of a bank's
    /// power: the 63% of active idle but for the 7% of self-refresh, and its own 0.9%.
    #[test]
    fn sub_arrays_save_their_cells_alone() {
        let mut power = two_banks();
        power.set(0, 1, PowerState::DeepPowerDown, &mut |_| {}).unwrap();
        let energy = power.energy(1_000_000_000);
        let both = |down: u128| 1_000_000_000 * (630 + down) + 200 * 1000;
        assert_eq!(energy.permille_ns, both(9));
        assert_eq!(energy.with(&PowerTable::PAPER), both(9));
        assert_eq!(energy.with(&PowerTable::SUB_ARRAYS), both(569));
    }

    /// Errors name what was wrong and change nothing.
    #[test]
    fn bad_input() {
        let mut power = two_banks();
        power.set(100, 0, PowerState::SelfRefresh, &mut |_| {}).unwrap();
        let before = power.energy(1_000);
        let mut lost = Vec::new();
        let mut lose = |frames| lost.push(frames);
        let no_bank = Err(PowerError::NoBank { bank: 2, banks: 2 });
        assert_eq!(power.set(200, 2, PowerState::ActiveIdle, &mut lose), no_bank);
        let past = PowerError::Past { now_ns: 99, last_ns: 100 };
        assert_eq!(power.set(99, 0, PowerState::DeepPowerDown, &mut lose), Err(past));
        assert_eq!(power.apply_pasr(99, &[false, false], &mut lose), Err(past));
        let long = Err(PowerError::NoBank { bank: 2, banks: 2 });
        assert_eq!(power.apply_pasr(200, &[false; 3], &mut lose), long);
        for frame in [15, 24, u64::MAX] {
            let frame = Pfn::new(frame);
            assert_eq!(power.access(200, frame, 1), Err(PowerError::NoMemory { frame }));
        }
        assert!(lost.is_empty());
        assert_eq!(power.energy(1_000), before);
        assert_eq!(BankPower::new(Pfn::new(0), 0, 1, PowerTable::PAPER).bank_of(Pfn::new(0)), None);
    }
}
