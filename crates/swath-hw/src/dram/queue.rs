//! The queue of a channel's controller: requests in lists, one for each bank
//! and class, by age.
//!
//! The scheduler asks of each bank only for its oldest hit (the first request that
//! wants the row that is open) and its oldest miss (the first that wants another),
//! of each class. The lists keep both at hand, so that a decision does not look at
//! the whole queue.
//!
//! A request for which a row was opened has a **claim** to it: its place in the queue is
//! free again, as it waits at its bank now, and the row stays open until it is served.
//!
//! A write that arrives behind a read of the same burst is **parked**: it has
//! its place, but is in no list until that read has been issued.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::dram::timing::{BANKS_MAX, BankIndex, Command};

/// [`BANKS_MAX`] as a length: rows of so many banks are asked without a test of the number.
pub(crate) const BANKS: usize = BANKS_MAX as usize;

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
pub(crate) struct QueueSlot {
    pub(crate) arrival: Arrival,
    pub(crate) accepted: Cycle,
    pub(crate) needed: Needed,
    /// Neighbours in the lists, [`OF_BANK`] and [`OF_CLASS`].
    links: [Ends; 2],
}

/// The list of a bank and class.
const OF_BANK: usize = 0;
/// The list of a class.
const OF_CLASS: usize = 1;

/// The two slots at the ends of a list in order of age, or next to a slot in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ends {
    older: u16,
    younger: u16,
}

impl Ends {
    const NONE: Self = Self { older: NIL, younger: NIL };

    /// Puts a slot into its place in the list with these ends, whose links are those of `list`.
    /// O(1) for the youngest; only what was parked has further to go.
    #[inline]
    fn insert(&mut self, slots: &mut [QueueSlot], list: usize, index: u16) {
        let order = slots[usize::from(index)].arrival.order;
        let mut links = Self { older: self.younger, younger: NIL };
        while links.older != NIL && slots[usize::from(links.older)].arrival.order > order {
            links.younger = links.older;
            links.older = slots[usize::from(links.older)].links[list].older;
        }
        slots[usize::from(index)].links[list] = links;
        self.join(slots, list, links, Self { older: index, younger: index });
    }

    /// Returns the slots of the list, the oldest first, after testing their order, their links and
    /// both ends. O(slots).
    fn check(self, slots: &[QueueSlot], list: usize) -> Result<Vec<u16>, &'static str> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        let (mut older, mut at, mut found) = (NIL, self.older, Vec::new());
        while at != NIL {
            let slot = &slots[usize::from(at)];
            ensure(slot.links[list].older == older, "a list's links disagree")?;
            let before = slots.get(usize::from(older)).map(|older| older.arrival.order);
            ensure(before < Some(slot.arrival.order), "a list is not in order of age")?;
            found.push(at);
            (older, at) = (at, slot.links[list].younger);
        }
        ensure(self.younger == older, "a list does not end at its youngest")?;
        Ok(found)
    }

    /// Takes a slot out of the list. O(1).
    #[inline]
    fn remove(&mut self, slots: &mut [QueueSlot], list: usize, index: u16) {
        let links = slots[usize::from(index)].links[list];
        self.join(slots, list, links, Self { older: links.younger, younger: links.older });
    }

    /// Makes `next.older` what follows the slot `links.older`, and `next.younger` what precedes
    /// `links.younger`; where there is no such slot, the end of the list.
    #[inline]
    fn join(&mut self, slots: &mut [QueueSlot], list: usize, links: Self, next: Self) {
        match links.older {
            NIL => self.older = next.older,
            older => slots[usize::from(older)].links[list].younger = next.older,
        }
        match links.younger {
            NIL => self.younger = next.younger,
            younger => slots[usize::from(younger)].links[list].older = next.younger,
        }
    }
}

impl QueueSlot {
    /// A request that is in no list.
    fn alone(arrival: Arrival, accepted: Cycle) -> Self {
        Self { arrival, accepted, needed: Needed::Nothing, links: [Ends::NONE; 2] }
    }
}

/// The first of some requests in a list: its order, which no two share, and its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct First {
    pub(crate) order: u64,
    pub(crate) slot: u16,
}

impl First {
    /// There is none.
    pub(crate) const NONE: Self = Self { order: u64::MAX, slot: NIL };

    /// Returns the older of two.
    #[inline(always)]
    pub(crate) fn or_older(self, other: Self) -> Self {
        if other.order < self.order { other } else { self }
    }
}

/// The lists of a bank, by class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bank {
    /// The open row, or [`CLOSED`].
    pub(crate) row: u32,
    /// The request for which it was opened, until it is served; or [`NIL`].
    pub(crate) claim: u16,
    lists: [Ends; 2],
    pub(crate) hit: [First; 2],
    /// The oldest request for another row; of a closed bank, the oldest of all.
    pub(crate) miss: [First; 2],
}

impl Bank {
    /// Returns the command for a request that does not find its row open.
    #[inline]
    pub(crate) fn row_command(&self) -> Command {
        if self.row == CLOSED { Command::Activate } else { Command::Precharge }
    }
}

/// The queue.
///
/// Invariants, which [`check`](Self::check) tests:
/// * A slot is free (its key is empty), or in the list of its bank and class,
///   or parked; a parked one is a write behind a read of the same burst.
/// * A slot that is in the list of its bank is in that of its class too.
/// * A list is in order of age; `hit` is its first request for the open row, `miss` its
///   first for another one. A claim is in a list of its bank, and a hit.
/// * `listed` and `held` count slots by class, without the parked ones and with
///   them, and `claimed` those with a claim; `waiting` has a bit for each bank with a
///   list that is not empty, `open` for each open bank, `claims` for each with a claim.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    banks: Box<[Bank; BANKS]>,
    waiting: u64,
    open: u64,
    claims: u64,
    listed: [u32; 2],
    held: [u32; 2],
    claimed: [u32; 2],
    /// The lists of the classes.
    classes: [Ends; 2],
    slots: Box<[QueueSlot]>,
    /// For each slot, its burst twice, plus 1 for a write.
    keys: Box<[u64]>,
    free: Vec<u16>,
    parked: Vec<u16>,
}

impl Queue {
    /// Creates a queue of `entries` places (at most 2^14) for `banks` closed banks (at most 64).
    /// Claims need a slot for each bank beside them.
    pub(crate) fn new(entries: u32, banks: u32) -> Self {
        let (lists, first) = ([Ends::NONE; 2], [First::NONE; 2]);
        let bank = Bank { row: CLOSED, claim: NIL, lists, hit: first, miss: first };
        let slots = entries + banks;
        let arrival = Arrival { id: 0, order: 0, burst: 0, bank: 0, row: 0, write: false };
        let slot = QueueSlot::alone(arrival, 0);
        Self {
            banks: Box::new([bank; BANKS]),
            waiting: 0,
            open: 0,
            claims: 0,
            listed: [0; 2],
            held: [0; 2],
            claimed: [0; 2],
            classes: lists,
            slots: vec![slot; slots as usize].into(),
            keys: vec![EMPTY; slots as usize].into(),
            free: (0..slots as u16).rev().collect(),
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

    /// Returns the banks with a claim, by bit.
    pub(crate) fn claims(&self) -> u64 {
        self.claims
    }

    /// Returns the requests that wait for a row or for the bus, by class: neither parked nor
    /// with a claim.
    #[inline]
    pub(crate) fn listed(&self) -> [u32; 2] {
        [self.listed[READ] - self.claimed[READ], self.listed[WRITE] - self.claimed[WRITE]]
    }

    /// Returns the places that are taken, by class.
    #[inline]
    pub(crate) fn occupied(&self) -> [u32; 2] {
        [self.held[READ] - self.claimed[READ], self.held[WRITE] - self.claimed[WRITE]]
    }

    /// Returns the requests that have not been served.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.held[READ] + self.held[WRITE]
    }

    /// Returns the oldest listed request of a class.
    #[inline]
    pub(crate) fn oldest(&self, class: usize) -> First {
        self.first(self.classes[class].older)
    }

    #[inline]
    fn first(&self, slot: u16) -> First {
        match slot {
            NIL => First::NONE,
            _ => First { order: self.slot(slot).arrival.order, slot },
        }
    }

    #[inline]
    pub(crate) fn bank(&self, bank: BankIndex) -> &Bank {
        &self.banks[bank as usize % BANKS]
    }

    pub(crate) fn slot(&self, index: u16) -> &QueueSlot {
        &self.slots[usize::from(index)]
    }

    pub(crate) fn slot_mut(&mut self, index: u16) -> &mut QueueSlot {
        &mut self.slots[usize::from(index)]
    }

    /// Returns true if a request of a class for a burst has a place. O(entries), O(1)
    /// where there is none of the class.
    pub(crate) fn holds(&self, class: usize, burst: u64) -> bool {
        self.held[class] > 0 && self.keys.contains(&(burst << 1 | class as u64))
    }

    /// Adds a request in a free place. Returns true if it is now the oldest hit or miss of its
    /// class in its bank; `None` if there is no place.
    /// O(1), for a write O(entries).
    pub(crate) fn push(&mut self, arrival: Arrival, accepted: Cycle) -> Option<bool> {
        let index = self.free.pop()?;
        let class = arrival.class();
        let behind_read = arrival.write && self.holds(READ, arrival.burst);
        *self.slot_mut(index) = QueueSlot::alone(arrival, accepted);
        self.keys[usize::from(index)] = arrival.burst << 1 | class as u64;
        self.held[class] += 1;
        if behind_read {
            self.parked.push(index);
            return Some(false);
        }
        Some(self.list(index))
    }

    /// Puts a request into the lists of its bank and its class, in order of age. Tells whether
    /// it is the oldest hit or miss there.
    #[inline(always)]
    fn list(&mut self, index: u16) -> bool {
        let arrival = self.slot(index).arrival;
        let class = arrival.class();
        self.classes[class].insert(&mut self.slots, OF_CLASS, index);
        let bank = &mut self.banks[arrival.bank as usize % BANKS];
        bank.lists[class].insert(&mut self.slots, OF_BANK, index);
        self.listed[class] += 1;
        self.waiting |= 1 << arrival.bank;
        let first =
            if arrival.row == bank.row { &mut bank.hit[class] } else { &mut bank.miss[class] };
        let own = First { order: arrival.order, slot: index };
        let leads = own.order < first.order;
        *first = first.or_older(own);
        leads
    }

    /// Takes the oldest hit of a list or a claim out, and lists the writes that no read
    /// holds back any more. O(requests until the next hit), and O(entries) if
    /// writes are parked.
    #[inline(always)]
    pub(crate) fn remove(&mut self, index: u16) {
        let QueueSlot { arrival, links, .. } = *self.slot(index);
        let class = arrival.class();
        // A write that was parked may be listed before the claim.
        let hit = match self.bank(arrival.bank).hit[class] {
            hit if hit.slot == index => self.first_of_row(links[OF_BANK].younger, arrival.row),
            hit => hit,
        };
        self.classes[class].remove(&mut self.slots, OF_CLASS, index);
        let bank = &mut self.banks[arrival.bank as usize % BANKS];
        bank.lists[class].remove(&mut self.slots, OF_BANK, index);
        bank.hit[class] = hit;
        if bank.claim == index {
            bank.claim = NIL;
            self.claims &= !(1 << arrival.bank);
            self.claimed[class] -= 1;
        }
        if bank.lists == [Ends::NONE; 2] {
            self.waiting &= !(1 << arrival.bank);
        }
        self.keys[usize::from(index)] = EMPTY;
        self.free.push(index);
        self.listed[class] -= 1;
        self.held[class] -= 1;
        if !self.parked.is_empty() && class == READ {
            self.list_parked(arrival.burst);
        }
    }

    /// Lists the writes that were parked for a burst, if no read of it is left. O(entries).
    // Out of line, as it is rare.
    #[inline(never)]
    fn list_parked(&mut self, burst: u64) {
        if self.holds(READ, burst) {
            return;
        }
        let mut parked = core::mem::take(&mut self.parked);
        parked.retain(|&index| {
            let freed = self.slot(index).arrival.burst == burst;
            if freed {
                self.list(index);
            }
            !freed
        });
        self.parked = parked;
    }

    /// Opens the row that a request of a closed bank wants, and gives it the claim.
    /// O(requests until the first hit and the first miss).
    #[inline(always)]
    pub(crate) fn open_row(&mut self, index: u16) {
        let arrival = self.slot(index).arrival;
        let oldest = self.bank(arrival.bank).lists.map(|list| list.older);
        for (class, at) in oldest.into_iter().enumerate() {
            // Of a closed bank, all are misses.
            if at != NIL {
                let hit = self.first_of_row(at, arrival.row);
                let miss = self.first_of_another(at, arrival.row);
                let bank = &mut self.banks[arrival.bank as usize % BANKS];
                (bank.hit[class], bank.miss[class]) = (hit, miss);
            }
        }
        let bank = &mut self.banks[arrival.bank as usize % BANKS];
        (bank.row, bank.claim) = (arrival.row, index);
        self.open |= 1 << arrival.bank;
        self.claims |= 1 << arrival.bank;
        self.claimed[arrival.class()] += 1;
    }

    /// Closes the banks of `mask`, none of which has a claim. O(banks).
    pub(crate) fn close(&mut self, mask: u64) {
        for bank in bits(self.open & mask) {
            self.close_bank(bank);
        }
    }

    /// Closes a bank without a claim.
    #[inline(always)]
    pub(crate) fn close_bank(&mut self, number: BankIndex) {
        let bank = &mut self.banks[number as usize % BANKS];
        bank.row = CLOSED;
        for class in [READ, WRITE] {
            // The oldest of all is the oldest hit or the oldest miss.
            bank.miss[class] = bank.miss[class].or_older(bank.hit[class]);
            bank.hit[class] = First::NONE;
        }
        self.open &= !(1 << number);
    }

    /// Returns the first request for another row than `row` from `at` on, along the list.
    fn first_of_another(&self, mut at: u16, row: u32) -> First {
        while at != NIL && self.slot(at).arrival.row == row {
            at = self.slot(at).links[OF_BANK].younger;
        }
        self.first(at)
    }

    /// Returns the first request for `row` from `at` on, along the list.
    #[inline]
    fn first_of_row(&self, mut at: u16, row: u32) -> First {
        while at != NIL && self.slot(at).arrival.row != row {
            at = self.slot(at).links[OF_BANK].younger;
        }
        self.first(at)
    }

    /// Tests every invariant. O(entries²).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        let (mut listed, mut claimed) = ([0_u32; 2], [0; 2]);
        for (number, bank) in self.banks.iter().enumerate() {
            let mut claim_listed = false;
            for class in [READ, WRITE] {
                let (mut hit, mut miss) = (NIL, NIL);
                for at in bank.lists[class].check(&self.slots, OF_BANK)? {
                    let slot = self.slot(at);
                    let key = slot.arrival.burst << 1 | class as u64;
                    ensure(self.keys[usize::from(at)] == key, "a listed slot has another key")?;
                    ensure(slot.arrival.class() == class, "a request is of another class")?;
                    ensure(slot.arrival.bank as usize == number, "a request is of another bank")?;
                    let first = if slot.arrival.row == bank.row { &mut hit } else { &mut miss };
                    if *first == NIL {
                        *first = at;
                    }
                    claim_listed |= at == bank.claim && slot.arrival.row == bank.row;
                    listed[class] += 1;
                }
                ensure(bank.hit[class] == self.first(hit), "the oldest hit is another one")?;
                ensure(bank.miss[class] == self.first(miss), "the oldest miss is another one")?;
            }
            ensure(claim_listed || bank.claim == NIL, "a claim is no hit of its bank")?;
            if bank.claim != NIL {
                claimed[self.slot(bank.claim).arrival.class()] += 1;
            }
            let bit = |mask: u64| mask >> number & 1 == 1;
            ensure(
                bit(self.waiting) == (bank.lists != [Ends::NONE; 2]),
                "waiting banks are wrong",
            )?;
            ensure(bit(self.open) == (bank.row != CLOSED), "open banks are wrong")?;
            ensure(bit(self.claims) == (bank.claim != NIL), "banks with a claim are wrong")?;
        }
        ensure(claimed == self.claimed, "claims are miscounted")?;
        ensure(listed == self.listed, "listed requests are miscounted")?;
        for class in [READ, WRITE] {
            let slots = self.classes[class].check(&self.slots, OF_CLASS)?;
            let own = slots.iter().all(|&at| self.slot(at).arrival.class() == class);
            ensure(own && slots.len() == listed[class] as usize, "a class lacks a request")?;
            let keys = self.keys.iter().filter(|&&key| key != EMPTY && key & 1 == class as u64);
            let parked = if class == WRITE { self.parked.len() } else { 0 };
            ensure(keys.count() == self.held[class] as usize, "slots are miscounted")?;
            ensure(
                listed[class] as usize + parked == self.held[class] as usize,
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
#[inline]
pub(crate) fn bits(mask: u64) -> Bits {
    Bits(mask)
}

/// The numbers of the bits that are set.
pub(crate) struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(bit)
    }
}
