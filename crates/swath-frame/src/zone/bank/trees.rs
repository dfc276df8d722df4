//! Banks of which each kind of request keeps one for itself (LLFree's trees: Wrenger et al., ATC 2023, section 4.2).
//!
//! Unmovable frames, movable ones and huge pages have a bank *reserved* each, and are served from there as long as it
//! can. Then the next one is looked for, from there on and round the zone:
//!
//! 1. a bank that is partly free, of the same mobility: so much is free that the search is not soon again;
//! 2. a bank that is wholly free;
//! 3. any of the same mobility.
//!
//! None of them is another's reserved one. If there is none, any bank that can serves, and is not reserved. A bank has
//! the mobility for which it was reserved when it was wholly free last. So unmovable memory stays in few banks
//! as long as memory is plenty, and banks that were filled long ago are left to become free.
//!
//! LLFree has such a reservation for each processor, and takes frames by atomic operations on words;
//! here is its choice of memory alone, in a zone that one lock holds. Each choice is O(1) while the reserved
//! bank serves, else O(B) for B banks.

use crate::bits::store::{Keep, Kept};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::placement::{ABSENT, KERNEL, POOLS, Pick, Placement, USER, note_movable};
use crate::zone::bank::ranges::BankPool;
use crate::zone::bank::scan::close_all;

/// The kind of requests for huge pages, beside [`KERNEL`] and [`USER`].
const HUGE: usize = 2;

/// Of a bank, the part that is free at least where it counts as partly free, as the inverse.
const PARTLY: u64 = 16;

/// A reserved bank for each kind of request; see the [module](self).
///
/// Invariant: a bank with frames is noted as [`KERNEL`] or [`USER`].
#[derive(Clone, Copy, Debug)]
pub struct TreePlacement {
    huge_order: u32,
    /// By kind of request, the bank; the greatest number where there is none.
    reserved: [usize; 3],
}

impl TreePlacement {
    /// A zone in which nothing is reserved. Movable requests from `huge_order` on have a bank of their own.
    pub const fn new(huge_order: u32) -> Self {
        Self { huge_order, reserved: [usize::MAX; 3] }
    }

    const fn kind(&self, order: u32, movable: bool) -> usize {
        match (movable, order >= self.huge_order) {
            (false, _) => KERNEL,
            (true, false) => USER,
            (true, true) => HUGE,
        }
    }

    /// The bank that is reserved next, when the one that was cannot serve.
    fn next<S: Kept + ?Sized>(
        &self,
        b: &BankBlocks,
        s: &S,
        (order, kind): (u32, usize),
    ) -> Option<usize> {
        let is_candidate =
            |bank: &usize| b.may_serve(s, *bank, order) && !self.reserved.contains(bank);
        let mobility = kind.min(USER) as u32;
        let is_of_kind = |bank: &usize| b.note(s, *bank) == mobility;
        let is_partly_free = |bank: &usize| {
            let (free, all) = (b.free_of(s, *bank), b.frames_of(s, *bank));
            !b.can_rest(s, *bank) && u64::from(free) * PARTLY >= u64::from(all)
        };
        let candidates = || around(self.reserved[kind], b.reach).filter(is_candidate);
        let partly = candidates().find(|bank| is_of_kind(bank) && is_partly_free(bank));
        let found = partly.or_else(|| candidates().find(|bank| b.can_rest(s, *bank)));
        found.or_else(|| candidates().find(is_of_kind))
    }
}

/// All banks, from the one after `bank` on.
fn around(bank: usize, count: usize) -> impl Iterator<Item = usize> {
    let first = if bank < count { bank + 1 } else { 0 };
    (first..count).chain(0..first)
}

impl Placement for TreePlacement {
    fn build(&mut self, b: &BankBlocks, s: &mut [u64], _at: usize) {
        self.reserved = [usize::MAX; 3];
        note_movable(b, s);
    }

    fn choose<S: Keep + ?Sized>(
        &mut self,
        b: &mut BankBlocks,
        s: &mut S,
        order: u32,
        movable: bool,
    ) -> Option<(usize, Pick)> {
        if order > 0 {
            close_all(b, s);
        }
        let kind = self.kind(order, movable);
        let own = self.reserved[kind];
        if own < b.reach && b.may_serve(s, own, order) {
            return Some((own, Pick::Open));
        }
        if let Some(bank) = self.next(b, s, (order, kind)) {
            if b.can_rest(s, bank) {
                b.set_note(s, bank, kind.min(USER) as u32);
            }
            self.reserved[kind] = bank;
            return Some((bank, Pick::Open));
        }
        let any = around(own, b.reach).find(|bank| b.may_serve(s, *bank, order));
        any.map(|bank| (bank, Pick::Open))
    }

    fn keeps(&self, bank: usize, movable: bool) -> bool {
        self.reserved[self.kind(0, movable)] == bank
    }

    fn pool<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S, bank: usize) -> Option<BankPool> {
        POOLS[b.note(s, bank) as usize & 3]
    }

    fn check<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S) -> Result<(), &'static str> {
        let wrong = |&bank: &usize| match b.frames_of(s, bank) {
            0 => b.note(s, bank) != ABSENT as u32,
            _ => b.note(s, bank) > USER as u32,
        };
        match (0..b.count).find(wrong) {
            Some(_) => Err("a bank is noted for no mobility"),
            None => Ok(()),
        }
    }
}
