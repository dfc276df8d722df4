//! The queue of a channel's controller: requests in lists, one for each bank
//! and class, by age.
//!
//! The scheduler asks of each bank only for its oldest request and its oldest
//! hit (the first that wants the row that is open), of each class. The lists
//! keep both at hand, so that a decision does not look at the whole queue.
//!
//! A write that arrives behind a read of the same burst is **parked**: it has
//! its place, but is in no list until that read has been issued.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::dram::timing::BankIndex;

/// No slot.
pub(crate) const NIL: u16 = u16::MAX;
/// No row.
pub(crate) const CLOSED: u32 = u32::MAX;
/// The key of an empty slot.
const EMPTY: u64 = u64::MAX;

/// The class of reads.
pub(crate) const READ: usize = 0;
/// The class of writes.
pub(crate) const WRITE: usize = 1;

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

impl Arrival {
    /// [`READ`] or [`WRITE`].
    pub(crate) fn class(&self) -> usize {
        usize::from(self.write)
    }
}

/// The row command that was issued for a request before its column command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needed {
    Nothing,
    Activate,
    Precharge,
}

/// A request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) arrival: Arrival,
    pub(crate) accepted: Cycle,
    pub(crate) needed: Needed,
    /// Neighbours in the list of the bank, by age.
    older: u16,
    younger: u16,
}

/// The lists of a bank, by class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bank {
    /// The open row, or [`CLOSED`].
    pub(crate) row: u32,
    pub(crate) oldest: [u16; 2],
    youngest: [u16; 2],
    pub(crate) hit: [u16; 2],
}

/// The queue.
///
/// Invariants, which [`check`](Self::check) tests:
/// * A slot is free (its key is empty), or in the list of its bank and class,
///   or parked; a parked one is a write behind a read of the same burst.
/// * A list is in order of age; `hit` is its first request for the open row.
/// * `listed` and `occupied` count slots by class, without the parked ones and with
///   them; `waiting` has a bit for each bank with a list that is not empty, `open`
///   for each open bank.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    banks: Box<[Bank]>,
    waiting: u64,
    open: u64,
    listed: [u32; 2],
    occupied: [u32; 2],
    slots: Box<[Slot]>,
    /// For each slot, its burst twice, plus 1 for a write.
    keys: Box<[u64]>,
    free: Vec<u16>,
    parked: Vec<u16>,
}

impl Queue {
    /// Creates a queue of `entries` places (at most 2^15) for `banks` closed banks (at most 64).
    pub(crate) fn new(entries: u32, banks: u32) -> Self {
        let bank = Bank { row: CLOSED, oldest: [NIL; 2], youngest: [NIL; 2], hit: [NIL; 2] };
        let arrival = Arrival { id: 0, order: 0, burst: 0, bank: 0, row: 0, write: false };
        let needed = Needed::Nothing;
        let slot = Slot { arrival, accepted: 0, needed, older: NIL, younger: NIL };
        Self {
            banks: vec![bank; banks as usize].into(),
            waiting: 0,
            open: 0,
            listed: [0; 2],
            occupied: [0; 2],
            slots: vec![slot; entries as usize].into(),
            keys: vec![EMPTY; entries as usize].into(),
            free: (0..entries as u16).rev().collect(),
            parked: Vec::new(),
        }
    }

    /// Returns the banks with listed requests, by bit.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns the open banks, by bit.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Returns the requests that are listed, by class.
    pub(crate) fn listed(&self) -> [u32; 2] {
        self.listed
    }

    /// Returns the places that are taken, by class.
    pub(crate) fn occupied(&self) -> [u32; 2] {
        self.occupied
    }

    /// Returns the places that are taken.
    pub(crate) fn len(&self) -> u32 {
        self.occupied[READ] + self.occupied[WRITE]
    }

    pub(crate) fn bank(&self, bank: BankIndex) -> &Bank {
        &self.banks[bank as usize]
    }

    pub(crate) fn slot(&self, index: u16) -> &Slot {
        &self.slots[usize::from(index)]
    }

    pub(crate) fn slot_mut(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// Returns true if a request of a class for a burst has a place. O(entries), O(1)
    /// where there is none of the class.
    pub(crate) fn holds(&self, class: usize, burst: u64) -> bool {
        self.occupied[class] > 0 && self.keys.contains(&(burst << 1 | class as u64))
    }

    /// Adds a request in a free place. Returns true if it is now the oldest of its
    /// class in its bank, or the oldest hit; `None` if there is no place.
    /// O(1), for a write O(entries).
    pub(crate) fn push(&mut self, arrival: Arrival, accepted: Cycle) -> Option<bool> {
        let index = self.free.pop()?;
        let class = arrival.class();
        let behind_read = arrival.write && self.holds(READ, arrival.burst);
        let needed = Needed::Nothing;
        *self.slot_mut(index) = Slot { arrival, accepted, needed, older: NIL, younger: NIL };
        self.keys[usize::from(index)] = arrival.burst << 1 | class as u64;
        self.occupied[class] += 1;
        if behind_read {
            self.parked.push(index);
            return Some(false);
        }
        Some(self.list(index))
    }

    /// Puts a request into the list of its bank, in order of age. Tells whether
    /// it is the oldest there, or the oldest hit.
    fn list(&mut self, index: u16) -> bool {
        let arrival = self.slot(index).arrival;
        let class = arrival.class();
        let bank = &mut self.banks[arrival.bank as usize];
        let mut older = bank.youngest[class];
        let mut younger = NIL;
        // A new request is the youngest; only a parked one may have to go further.
        while older != NIL && self.slots[usize::from(older)].arrival.order > arrival.order {
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
        self.waiting |= 1 << arrival.bank;
        let hit = bank.hit[class];
        let first_hit = arrival.row == bank.row
            && (hit == NIL || self.slots[usize::from(hit)].arrival.order > arrival.order);
        if first_hit {
            bank.hit[class] = index;
        }
        first_hit || older == NIL
    }

    /// Takes the oldest hit of a list out, and lists the writes that no read
    /// holds back any more. O(requests until the next hit), and O(entries) if
    /// writes are parked.
    pub(crate) fn remove(&mut self, index: u16) {
        let Slot { arrival, older, younger, .. } = *self.slot(index);
        let class = arrival.class();
        let hit = self.first_of_row(younger, arrival.row);
        let bank = &mut self.banks[arrival.bank as usize];
        match older {
            NIL => bank.oldest[class] = younger,
            _ => self.slots[usize::from(older)].younger = younger,
        }
        match younger {
            NIL => bank.youngest[class] = older,
            _ => self.slots[usize::from(younger)].older = older,
        }
        bank.hit[class] = hit;
        if bank.oldest == [NIL; 2] {
            self.waiting &= !(1 << arrival.bank);
        }
        self.keys[usize::from(index)] = EMPTY;
        self.free.push(index);
        self.listed[class] -= 1;
        self.occupied[class] -= 1;
        if !self.parked.is_empty() && class == READ && !self.holds(READ, arrival.burst) {
            let mut parked = core::mem::take(&mut self.parked);
            parked.retain(|&index| {
                let freed = self.slot(index).arrival.burst == arrival.burst;
                if freed {
                    self.list(index);
                }
                !freed
            });
            self.parked = parked;
        }
    }

    /// Opens a row of a closed bank. O(requests until the first hit).
    pub(crate) fn open_row(&mut self, bank: BankIndex, row: u32) {
        let oldest = self.bank(bank).oldest;
        let hit = oldest.map(|at| self.first_of_row(at, row));
        let state = &mut self.banks[bank as usize];
        state.row = row;
        state.hit = hit;
        self.open |= 1 << bank;
    }

    /// Closes the banks of `mask`. O(banks).
    pub(crate) fn close(&mut self, mask: u64) {
        for bank in bits(self.open & mask) {
            let state = &mut self.banks[bank as usize];
            state.row = CLOSED;
            state.hit = [NIL; 2];
        }
        self.open &= !mask;
    }

    /// Returns the first request for `row` from `at` on, along the list.
    #[inline]
    fn first_of_row(&self, mut at: u16, row: u32) -> u16 {
        while at != NIL && self.slot(at).arrival.row != row {
            at = self.slot(at).younger;
        }
        at
    }

    /// Tests every invariant. O(entries²).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        let mut listed = [0; 2];
        for (number, bank) in self.banks.iter().enumerate() {
            for class in [READ, WRITE] {
                let (mut older, mut at, mut hit) = (NIL, bank.oldest[class], NIL);
                while at != NIL {
                    let slot = self.slot(at);
                    let key = slot.arrival.burst << 1 | class as u64;
                    ensure(self.keys[usize::from(at)] == key, "a listed slot has another key")?;
                    ensure(slot.arrival.class() == class, "a request is of another class")?;
                    ensure(slot.arrival.bank as usize == number, "a request is of another bank")?;
                    ensure(slot.older == older, "a list's links disagree")?;
                    ensure(
                        older == NIL || self.slot(older).arrival.order < slot.arrival.order,
                        "a list is not in order of age",
                    )?;
                    if hit == NIL && slot.arrival.row == bank.row {
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
            let burst = self.slot(index).arrival.burst;
            ensure(self.holds(READ, burst), "a parked write waits for nothing")?;
        }
        ensure(self.free.len() + self.len() as usize == self.slots.len(), "slots are lost")
    }
}

/// Returns the numbers of the bits that are set.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}
