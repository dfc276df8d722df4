//! The records of banks: what each has free, which orders it serves, what its placement
//! notes, and its neighbours in a list.

use crate::bits::store::{Keep, Kept, with_half};
use crate::zone::bank::blocks::{BankBlocks, CLASSES, FRAMES, NEXT, NONE, NOTE, PREV, half};
use crate::zone::bank::open::{CROSSES, FLAGS, ISOLATED, Record};

/// The words of a record.
const COUNTS: usize = FRAMES / 2;
const STATE: usize = CLASSES / 2;
const LINKS: usize = NEXT / 2;

/// A bank's neighbours in its list: the next one, and the previous one above it.
#[derive(Clone, Copy)]
pub(crate) struct Links(u64);

impl Links {
    const fn new(next: u32, previous: u32) -> Self {
        Self(with_half(next as u64, PREV % 2, previous))
    }

    const fn next(self) -> u32 {
        self.0 as u32
    }

    const fn previous(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl BankBlocks {
    /// The bank's free frames.
    #[inline]
    pub(crate) fn free_of<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        self.filed_of(s, bank) + self.open_of(bank)
    }

    /// The bank's record; `None` in the checked tier if its state was changed. Its counts are the
    /// first copy's: what is chosen by them is no frame.
    #[inline(always)]
    pub(crate) fn record<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> Option<Record> {
        let [counts, state] = s.record(bank)?;
        Some(Record { counts, state })
    }

    /// The bank's record, looked at.
    pub(crate) fn known_record<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> Record {
        Record { counts: s.field(bank, COUNTS), state: s.field(bank, STATE) }
    }

    /// Writes the state of a bank's record, which was `was`, and counts frames that its trees have
    /// lost: the record now, and whether the orders that the bank serves have changed.
    #[inline(always)]
    pub(crate) fn put_record<S: Keep + ?Sized>(
        words: &mut [u64],
        bank: usize,
        was: Record,
        record: Record,
        lost: u32,
    ) -> (Record, bool) {
        let less = u64::from(lost).wrapping_neg();
        let counts = S::put(words, bank, less, was.state, record.state);
        (Record { counts, ..record }, record.state != was.state)
    }

    /// As [`put_record`](Self::put_record), by the bits of the state that change: the record now.
    #[inline(always)]
    pub(crate) fn change_record<S: Keep + ?Sized>(
        words: &mut [u64],
        bank: usize,
        changes: u64,
        lost: u32,
    ) -> Record {
        let [counts, state] = S::flip(words, bank, u64::from(lost).wrapping_neg(), changes);
        Record { counts, state }
    }

    /// The bank's free frames but for those of open words.
    #[inline(always)]
    pub(crate) fn filed_of<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        s.field(bank, COUNTS) as u32
    }

    /// Counts frames of a bank that its trees have got: its record now, and whether the
    /// bank is isolated, or all of it could be free. O(1), a cache line.
    #[inline(always)]
    pub(crate) fn file<S: Keep + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        frames: u32,
    ) -> (Record, bool) {
        let [counts, state] = s.add(bank, frames.into());
        let record = Record { counts, state };
        // Two open words may have the rest.
        let could_rest = ((counts >> 32) as u32).wrapping_sub(record.filed()) <= 128;
        (record, could_rest || (record.state >> 32) as u32 & ISOLATED != 0)
    }

    #[inline(always)]
    pub(crate) fn frames_of<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        (s.field(bank, COUNTS) >> 32) as u32
    }

    /// The orders whose trees are not empty, as bits; order 0, too, while a word
    /// of the bank is open.
    #[inline(always)]
    pub(crate) fn classes<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        s.field(bank, STATE) as u32
    }

    /// Returns true if the bank has a free block of this order, at most 31, or
    /// a larger one, by the first copy of its record: what serves is looked at then.
    #[inline(always)]
    pub(crate) fn serves<S: Kept + ?Sized>(&self, s: &S, bank: usize, order: u32) -> bool {
        s.second(bank) as u32 >> order != 0
    }

    /// Returns true if [`serves`](Self::serves) says so of a bank that is not isolated.
    #[inline(always)]
    pub(crate) fn may_serve<S: Kept + ?Sized>(&self, s: &S, bank: usize, order: u32) -> bool {
        let state = s.second(bank);
        state as u32 >> order != 0 && (state >> 32) as u32 & ISOLATED == 0
    }

    /// The last bank that [may serve](Self::may_serve) an order.
    #[inline(always)]
    pub(crate) fn last_serving<S: Kept + ?Sized>(&self, s: &S, order: u32) -> Option<usize> {
        s.last(self.reach, (u32::MAX << order).into(), u64::from(ISOLATED) << 32)
    }

    #[inline(always)]
    pub(crate) fn is_isolated<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.state(s, bank) & ISOLATED != 0
    }

    /// Returns the placement's note, with the flags.
    #[inline(always)]
    pub(crate) fn state<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        (s.field(bank, STATE) >> 32) as u32
    }

    pub(crate) fn crosses<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.state(s, bank) & CROSSES != 0
    }

    /// Returns true if the bank's trees have all of it, and it may rest.
    #[inline(always)]
    pub(crate) fn is_whole<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.known_record(s, bank).is_whole(0)
    }

    /// Returns true if all of the bank is free, and it may rest.
    #[inline]
    pub(crate) fn can_rest<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> bool {
        self.known_record(s, bank).is_whole(self.open_of(bank))
    }

    /// Returns the placement's note, below 2^30.
    #[inline(always)]
    pub(crate) fn note<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        self.state(s, bank) & !FLAGS
    }

    /// The bank's record and its links, looked at together.
    #[inline(always)]
    pub(crate) fn linked_record<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> (Record, Links) {
        let [counts, state, links] = s.fields(bank);
        (Record { counts, state }, Links(links))
    }

    /// Changes the placement's note of a bank that has this record.
    #[inline(always)]
    pub(crate) fn change_note<S: Keep + ?Sized>(s: &mut S, bank: usize, record: Record, note: u32) {
        let was = (record.state >> 32) as u32;
        s.set_half(bank, NOTE, was, was & FLAGS | note);
    }

    #[inline]
    pub(crate) fn set_note<S: Keep + ?Sized>(&self, s: &mut S, bank: usize, note: u32) {
        s.update(bank, STATE, |state| {
            with_half(state, NOTE % 2, (state >> 32) as u32 & FLAGS | note)
        });
    }

    /// Isolates a bank or ends that.
    pub(crate) fn set_isolated<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        isolated: bool,
    ) {
        let free = u64::from(self.free_of(s, bank));
        let flag = u64::from(ISOLATED) << 32;
        s.update(bank, STATE, |state| state & !flag | if isolated { flag } else { 0 });
        let isolated_frames = if isolated { free } else { free.wrapping_neg() };
        self.isolated = self.isolated.wrapping_add(isolated_frames);
    }

    /// The bank after this one in its list.
    #[inline(always)]
    pub(crate) fn next<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        s.field(bank, LINKS) as u32
    }

    /// The bank before this one in its list.
    pub(crate) fn previous<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        (s.field(bank, LINKS) >> 32) as u32
    }

    /// Puts a bank, whose links are `links`, at the head of the list whose head is the half `head`.
    /// O(1).
    #[inline(always)]
    pub(crate) fn link<S: Keep + ?Sized>(&self, s: &mut S, head: usize, bank: usize, links: Links) {
        let first = half(s, head);
        s.set_field(bank, LINKS, links.0, Links::new(first, NONE).0);
        if first != NONE {
            s.set_half(first as usize, PREV, NONE, bank as u32);
        }
        s.keep_half(head, first, bank as u32);
    }

    /// Takes a bank, whose links are `links`, out of the list whose head is the half `head`; returns
    /// true if the list is empty now. The links stay as they are. O(1).
    #[inline(always)]
    pub(crate) fn unlink<S: Keep + ?Sized>(
        &self,
        s: &mut S,
        head: usize,
        bank: usize,
        links: Links,
    ) -> bool {
        let (next, prev) = (links.next(), links.previous());
        // What the neighbours have is this bank: nothing is to be read.
        if next != NONE {
            s.set_half(next as usize, PREV, bank as u32, prev);
        }
        if prev != NONE {
            s.set_half(prev as usize, NEXT, bank as u32, next);
        } else {
            s.keep_half(head, bank as u32, next);
        }
        prev == NONE && next == NONE
    }

    /// The banks of a list, from its head `first` on.
    pub(crate) fn list<S: Kept + ?Sized>(&self, s: &S, first: u32) -> impl Iterator<Item = usize> {
        // A bank beyond the last is one that more than one flipped bit made.
        let some = |bank: u32| ((bank as usize) < self.count).then_some(bank as usize);
        core::iter::successors(some(first), move |&bank| some(self.next(s, bank)))
    }
}
