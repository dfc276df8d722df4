//! The records of banks: what each has free, which orders it serves, what its placement
//! notes, and its neighbours in a list.

use crate::bits::store::{Store, Words};
use crate::zone::bank::blocks::{
    BankBlocks, CLASSES, NEXT, NONE, NOTE, PREV, RECORD_WORDS, half, record, set_half,
};
use crate::zone::bank::open::{CROSSES, FLAGS, ISOLATED, Record};

impl BankBlocks {
    /// The bank's free frames.
    #[inline]
    pub(crate) fn free_of<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        self.filed_of(s, bank) + self.open_of(s, bank)
    }

    /// The bank's record.
    #[inline(always)]
    pub(crate) fn record<S: Words + ?Sized>(&self, s: &S, bank: usize) -> Record {
        let [counts, state] = s.two(bank * RECORD_WORDS);
        Record { counts, state }
    }

    /// Writes a bank's record, which was `was`; whether the orders that it serves have changed.
    #[inline(always)]
    pub(crate) fn put_record<S: Store + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        was: Record,
        record: Record,
    ) -> bool {
        s.put(bank * RECORD_WORDS, record.counts);
        let reordered = record.state != was.state;
        if reordered {
            s.put(bank * RECORD_WORDS + 1, record.state);
        }
        reordered
    }

    /// The bank's free frames but for those of open words.
    #[inline(always)]
    pub(crate) fn filed_of<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        s.word(bank * RECORD_WORDS) as u32
    }

    /// Counts frames of a bank that its trees have got: its record now, and whether the
    /// bank is isolated, or all of it could be free. O(1), a cache line.
    #[inline(always)]
    pub(crate) fn file<S: Store + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        frames: u32,
    ) -> (Record, bool) {
        let mut record = self.record(s, bank);
        record.counts += u64::from(frames);
        s.put(bank * RECORD_WORDS, record.counts);
        // Two open words may have the rest.
        let could_rest = (record.counts >> 32) as u32 - record.filed() <= 128;
        (record, could_rest || (record.state >> 32) as u32 & ISOLATED != 0)
    }

    #[inline(always)]
    pub(crate) fn frames_of<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        (s.word(bank * RECORD_WORDS) >> 32) as u32
    }

    /// The orders whose trees are not empty, as bits; order 0, too, while a word
    /// of the bank is open.
    #[inline(always)]
    pub(crate) fn classes<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        s.word(bank * RECORD_WORDS + CLASSES / 2) as u32
    }

    /// Returns true if the bank has a free block of this order, at most 31, or
    /// a larger one.
    #[inline(always)]
    pub(crate) fn serves<S: Words + ?Sized>(&self, s: &S, bank: usize, order: u32) -> bool {
        self.classes(s, bank) >> order != 0
    }

    #[inline(always)]
    pub(crate) fn is_isolated<S: Words + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.state(s, bank) & ISOLATED != 0
    }

    /// Returns the placement's note, with the flags.
    #[inline(always)]
    pub(crate) fn state<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        (s.word(bank * RECORD_WORDS + NOTE / 2) >> 32) as u32
    }

    pub(crate) fn crosses<S: Words + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.state(s, bank) & CROSSES != 0
    }

    /// Returns true if the bank's trees have all of it, and it may rest.
    #[inline(always)]
    pub(crate) fn is_whole<S: Words + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.filed_of(s, bank) == self.frames_of(s, bank) && !self.crosses(s, bank)
    }

    /// Returns true if all of the bank is free, and it may rest.
    #[inline]
    pub(crate) fn can_rest<S: Words + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.free_of(s, bank) == self.frames_of(s, bank) && !self.crosses(s, bank)
    }

    /// Returns the placement's note, below 2^30.
    #[inline(always)]
    pub(crate) fn note<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        self.state(s, bank) & !FLAGS
    }

    pub(crate) fn set_note<S: Store + ?Sized>(&self, s: &mut S, bank: usize, note: u32) {
        let at = record(bank, NOTE);
        set_half(s, at, self.state(s, bank) & FLAGS | note);
    }

    /// Isolates a bank or ends that.
    pub(crate) fn set_isolated<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        isolated: bool,
    ) {
        let at = record(bank, NOTE);
        let free = u64::from(self.free_of(s, bank));
        set_half(s, at, half(s, at) & !ISOLATED | if isolated { ISOLATED } else { 0 });
        self.isolated = if isolated { self.isolated + free } else { self.isolated - free };
    }

    /// The bank after this one in its list.
    #[inline(always)]
    pub(crate) fn next<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        half(s, record(bank, NEXT))
    }

    /// The bank before this one in its list.
    pub(crate) fn previous<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        half(s, record(bank, PREV))
    }

    /// Puts a bank at the head of the list whose head is the half `head`. O(1).
    pub(crate) fn link<S: Store + ?Sized>(&self, s: &mut S, head: usize, bank: usize) {
        let first = half(s, head);
        set_half(s, record(bank, NEXT), first);
        set_half(s, record(bank, PREV), NONE);
        if first != NONE {
            set_half(s, record(first as usize, PREV), bank as u32);
        }
        set_half(s, head, bank as u32);
    }

    /// Takes a bank out of the list whose head is the half `head`; whether the
    /// list is empty now. O(1).
    pub(crate) fn unlink<S: Store + ?Sized>(&self, s: &mut S, head: usize, bank: usize) -> bool {
        let (next, prev) = (self.next(s, bank), self.previous(s, bank));
        if next != NONE {
            set_half(s, record(next as usize, PREV), prev);
        }
        if prev != NONE {
            set_half(s, record(prev as usize, NEXT), next);
        } else {
            set_half(s, head, next);
        }
        prev == NONE && next == NONE
    }

    /// The banks of a list, from its head `first` on.
    pub(crate) fn list<S: Words + ?Sized>(&self, s: &S, first: u32) -> impl Iterator<Item = usize> {
        let some = |bank: u32| (bank != NONE).then_some(bank as usize);
        core::iter::successors(some(first), move |&bank| some(self.next(s, bank)))
    }
}
