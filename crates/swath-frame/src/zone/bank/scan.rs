//! The array and the lists of banks: the bank-buddy allocators of sections
//! IV-A and IV-B, whose searches walk over the banks.
//!
//! Their worst case is O(B) for B banks, which is what the paper measures and
//! improves on; it is not hidden here. Freeing finds its bank by the frame's
//! number.

use crate::bits::store::{Keep, Kept};
use crate::zone::bank::blocks::{BankBlocks, NONE, half, set_half};
use crate::zone::bank::open::Record;
use crate::zone::bank::placement::{ABSENT, KERNEL, OFFLINE, POOLS, Pick, Placement, USER};
use crate::zone::bank::ranges::BankPool;

/// The banks as an array: kernel memory comes from the lowest bank that can
/// serve, user memory from the highest (Fig. 4). Each search starts at its end
/// of the array. When the two meet, they share banks: that is the fallback.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrayPlacement;

impl ArrayPlacement {
    /// The outermost bank that serves the order.
    #[inline(always)]
    fn outermost<S: Kept + ?Sized>(
        b: &BankBlocks,
        s: &S,
        order: u32,
        movable: bool,
    ) -> Option<usize> {
        match movable {
            true => b.last_serving(s, order),
            false => (0..b.reach).find(|&bank| b.may_serve(s, bank, order)),
        }
    }
}

impl Placement for ArrayPlacement {
    fn build(&mut self, _b: &BankBlocks, _s: &mut [u64], _at: usize) {}

    #[inline]
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
        Self::outermost(b, s, order, movable).map(|bank| (bank, Pick::Open))
    }

    /// The outermost bank, where no open word is to be closed before.
    #[inline(always)]
    fn at_hand<S: Kept + ?Sized>(
        &self,
        b: &BankBlocks,
        s: &S,
        order: u32,
        movable: bool,
    ) -> Option<usize> {
        let closes = order > 0 && (b.open_bank(0).is_some() || b.open_bank(1).is_some());
        if closes { None } else { Self::outermost(b, s, order, movable) }
    }

    /// The outermost bank may be another one by now.
    #[inline]
    fn keeps(&self, _bank: usize, _movable: bool) -> bool {
        false
    }

    fn pool<S: Kept + ?Sized>(&self, _b: &BankBlocks, _s: &S, _bank: usize) -> Option<BankPool> {
        None
    }

    fn check<S: Kept + ?Sized>(&self, _b: &BankBlocks, _s: &S) -> Result<(), &'static str> {
        Ok(())
    }
}

/// Closes the open words, so that the banks' records say all.
pub(crate) fn close_all<S: Keep + ?Sized>(b: &mut BankBlocks, s: &mut S) {
    for slot in 0..2 {
        b.close(s, slot);
    }
}

/// The banks in three lists: LIST_KERNEL, LIST_USER and LIST_FREE (Fig. 5).
///
/// A request is served by the first bank of its list that can, else by one of
/// LIST_FREE, which goes to the head of the list. If there is none either, it
/// falls back to the other list: a movable request to the largest block of
/// LIST_KERNEL (Linux's own fallback), where the bank stays; another one to
/// the bank of LIST_USER with the most free frames, which moves to the head of
/// LIST_KERNEL. A bank that is wholly free goes back to LIST_FREE, unless it
/// crosses into another zone: such banks stay in LIST_KERNEL.
///
/// Every search is O(B) for B banks. Of the paper's two remedies the first is
/// the switch of [`new`](Self::new), the second
/// [`lift_emptiest`](crate::zone::bank::buddy::ListBuddy::lift_emptiest), to be
/// called at an interval.
///
/// Invariants: a bank with frames that is not isolated is in the list that its
/// note says, and in no other; LIST_FREE has the wholly free banks that do not
/// cross, and no others; `recent` are banks of their lists.
#[derive(Clone, Copy, Debug)]
pub struct ListPlacement {
    recent_first: bool,
    /// The start of the heads' halves.
    heads: usize,
    recent: [u32; 2],
}

impl ListPlacement {
    /// Empty lists. With `recent_first`, the bank that served last is asked
    /// before the list is walked.
    pub const fn new(recent_first: bool) -> Self {
        Self { recent_first, heads: 0, recent: [NONE; 2] }
    }

    fn banks<'a, S: Kept + ?Sized>(
        &self,
        b: &'a BankBlocks,
        s: &'a S,
        list: usize,
    ) -> impl Iterator<Item = usize> + use<'a, S> {
        b.list(s, half(s, self.heads + list))
    }

    fn unlink<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize) {
        let (record, links) = b.linked_record(s, bank);
        b.unlink(s, self.heads + (record.note() as usize & 3), bank, links);
        for recent in &mut self.recent {
            if *recent == bank as u32 {
                *recent = NONE;
            }
        }
    }

    fn link<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize, list: usize) {
        let (record, links) = b.linked_record(s, bank);
        BankBlocks::change_note(s, bank, record, list as u32);
        b.link(s, self.heads + list, bank, links);
    }

    fn shift<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize, list: usize) {
        self.unlink(b, s, bank);
        self.link(b, s, bank, list);
    }

    /// The bank of a list with the most free frames that serves the order.
    fn emptiest<S: Kept + ?Sized>(
        &self,
        b: &BankBlocks,
        s: &S,
        list: usize,
        order: u32,
    ) -> Option<usize> {
        let serving = self.banks(b, s, list).filter(|&bank| b.serves(s, bank, order));
        serving.reduce(
            |best, bank| {
                if b.free_of(s, bank) > b.free_of(s, best) { bank } else { best }
            },
        )
    }

    pub(crate) fn lift_emptiest<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S) {
        for list in [KERNEL, USER] {
            if let Some(bank) = self.emptiest(b, s, list, 0) {
                let recent = self.recent;
                self.shift(b, s, bank, list);
                self.recent = recent;
            }
        }
    }
}

impl Placement for ListPlacement {
    fn words(&self, _banks: usize, _top: u32) -> usize {
        2
    }

    fn build(&mut self, b: &BankBlocks, s: &mut [u64], at: usize) {
        *self = Self { heads: at * 2, ..Self::new(self.recent_first) };
        for list in 0..4 {
            set_half(s, self.heads + list, NONE);
        }
        for bank in (0..b.count).rev() {
            if b.frames_of(s, bank) == 0 {
                b.set_note(s, bank, ABSENT as u32);
            } else {
                self.link(b, s, bank, if b.can_rest(s, bank) { OFFLINE } else { KERNEL });
            }
        }
    }

    fn stop(&mut self) {
        self.recent = [NONE; 2];
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.heads = self.heads - from * 2 + to * 2;
    }

    #[inline]
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
        let list = if movable { USER } else { KERNEL };
        let recent = self.recent[list];
        if self.recent_first && recent != NONE && b.serves(s, recent as usize, order) {
            return Some((recent as usize, Pick::Open));
        }
        if S::CHECKED && b.reach == 0 {
            return None;
        }
        let first = |b: &BankBlocks, s: &S, list| {
            self.banks(b, s, list).find(|&bank| b.serves(s, bank, order))
        };
        let mut found = first(b, s, list);
        if found.is_none() {
            found = first(b, s, OFFLINE);
            match found {
                Some(bank) => self.shift(b, s, bank, list),
                None if movable => {
                    close_all(b, s);
                    let serving = self.banks(b, s, KERNEL);
                    let serving = serving.filter(|&bank| b.serves(s, bank, order));
                    // The first of those with the largest block.
                    let largest = serving.reduce(|best, bank| {
                        let order = |bank| b.classes(s, bank).ilog2();
                        if order(bank) > order(best) { bank } else { best }
                    });
                    return largest.map(|bank| (bank, Pick::Largest));
                }
                None => {
                    found = self.emptiest(b, s, USER, order);
                    if let Some(bank) = found {
                        self.shift(b, s, bank, KERNEL);
                    }
                }
            }
        }
        let bank = found?;
        self.recent[list] = bank as u32;
        Some((bank, Pick::Open))
    }

    #[inline]
    fn keeps(&self, bank: usize, movable: bool) -> bool {
        self.recent_first && self.recent[usize::from(movable)] == bank as u32
    }

    #[inline]
    fn freed<S: Keep + ?Sized>(
        &mut self,
        b: &BankBlocks,
        s: &mut S,
        bank: usize,
        record: impl FnOnce(&S) -> Record,
        _frames: u32,
    ) {
        let record = record(s);
        if record.is_whole(0) && !record.is_isolated() {
            self.shift(b, s, bank, OFFLINE);
        }
    }

    fn isolate<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize) {
        self.unlink(b, s, bank);
    }

    fn rejoin<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize) {
        let list = if b.can_rest(s, bank) { OFFLINE } else { b.note(s, bank) as usize & 3 };
        self.link(b, s, bank, list);
    }

    fn pool<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S, bank: usize) -> Option<BankPool> {
        POOLS[b.note(s, bank) as usize & 3]
    }

    fn check<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S) -> Result<(), &'static str> {
        let mut linked = 0;
        for list in [KERNEL, USER, OFFLINE] {
            let mut before = NONE;
            // A list that runs in a circle ends here too.
            for bank in self.banks(b, s, list).take(b.count + 1) {
                if b.note(s, bank) as usize != list || b.is_isolated(s, bank) {
                    return Err("a bank is in a list that it does not belong to");
                }
                if b.previous(s, bank) != before {
                    return Err("a list's links differ");
                }
                if b.can_rest(s, bank) != (list == OFFLINE) {
                    return Err("LIST_FREE has a bank in use, or another list a free one");
                }
                before = bank as u32;
                linked += 1;
            }
        }
        let present = |&bank: &usize| b.frames_of(s, bank) > 0 && !b.is_isolated(s, bank);
        if linked != (0..b.count).filter(present).count() {
            return Err("a bank is in no list");
        }
        for (list, &recent) in self.recent.iter().enumerate() {
            let bank = recent as usize;
            if recent != NONE && (b.note(s, bank) as usize != list || b.is_isolated(s, bank)) {
                return Err("the bank that served last has left its list");
            }
        }
        Ok(())
    }
}
