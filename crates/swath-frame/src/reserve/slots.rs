//! The state of reservations by frame: bits, slots and queues.
//!
//! A **slot** of level l is an aligned range of 2^order frames, whether or not
//! anything is reserved there, so that the slot of a frame is a shift away.
//! The slots of all levels are numbered through and have a record each; one
//! record more owns the queue of all reservations.

use core::marker::PhantomData;
use core::ops::Range;

use swath_arch::{Extent, Order, Pfn};

use crate::bits::words;
use crate::hardening::Hardening;
use crate::map::MemoryMap;
use crate::reserve::levels::{LEVELS_MAX, ReservationLevels};

/// The number of a slot among those of all levels.
pub(crate) type Slot = u32;

/// No slot.
pub(crate) const NONE: Slot = Slot::MAX;

/// No word of any storage, nor is one of those that follow.
pub(crate) const NOWHERE: usize = usize::MAX >> 1;

/// Words of a record, which are these.
const RECORD_WORDS: usize = 6;
const OBJECT: usize = 0;
const INDEX: usize = 1;
/// Populated frames; above them the flag of a root.
const COUNT: usize = 2;
/// The time at which the slot joined its queue or was moved last.
const STAMP: usize = 3;
/// The slots before and after it in its queue.
const LINKS: usize = 4;
/// First and last slot of the queue that it owns.
const QUEUE: usize = 5;

/// In `COUNT`: the slot is a reservation, not a part of one.
const ROOT: u64 = 1 << 63;

const fn pair(low: Slot, high: Slot) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A word of a slot's record among all records.
#[inline(always)]
fn place(slot: Slot, word: usize) -> usize {
    (slot as usize).wrapping_mul(RECORD_WORDS).wrapping_add(word)
}

/// The slots before and after `slot` in its queue.
#[inline(always)]
fn linked(records: &[u64], slot: Slot) -> (Slot, Slot) {
    let links = records.get(place(slot, LINKS)).copied().unwrap_or(pair(NONE, NONE));
    (links as Slot, (links >> 32) as Slot)
}

/// The last slot of the queue of `owner`.
#[inline(always)]
fn tail(records: &[u64], owner: Slot) -> Slot {
    records.get(place(owner, QUEUE)).map_or(NONE, |queue| (queue >> 32) as Slot)
}

/// Takes `slot` out of the queue of `owner`.
#[inline(always)]
fn unlink(records: &mut [u64], owner: Slot, slot: Slot) {
    let (before, after) = linked(records, slot);
    link(records, owner, before, after);
}

/// Makes `after` follow `before` in the queue of `owner`; [`NONE`] is either end.
#[inline(always)]
fn link(records: &mut [u64], owner: Slot, before: Slot, after: Slot) {
    let low = |word: &mut u64, slot: Slot| *word = *word & !0xffff_ffff | u64::from(slot);
    let high = |word: &mut u64, slot: Slot| *word = *word & 0xffff_ffff | u64::from(slot) << 32;
    let mut change = |at: usize, change: &dyn Fn(&mut u64)| records.get_mut(at).map(change);
    match before {
        NONE => change(place(owner, QUEUE), &|word| low(word, after)),
        _ => change(place(before, LINKS), &|word| high(word, after)),
    };
    match after {
        NONE => change(place(owner, QUEUE), &|word| high(word, before)),
        _ => change(place(after, LINKS), &|word| low(word, before)),
    };
}

/// The place of the state of each frame and slot. The words are given to each
/// method.
#[derive(Debug)]
pub(crate) struct Slots<H> {
    pub(crate) levels: ReservationLevels,
    /// The frames from the map's first to its last.
    pub(crate) span: Extent,
    /// The frame that the first bit of the storage would have, a multiple of 64, modulo 2^64.
    bits_base: u64,
    /// One past the words of the bits. They are the first, and the records follow; in the checked
    /// tier the records are first, so that one compare tells that a place is in them.
    bits_end: usize,
    records_words: usize,
    /// For each level: frame number by order of the first slot, the slot's
    /// number, how many there are.
    first: [u64; LEVELS_MAX],
    number: [Slot; LEVELS_MAX],
    count: [u32; LEVELS_MAX],
    /// The record that owns the queue of all reservations.
    pub(crate) all: Slot,
    /// In the checked tier, where the bits stand once more; [`NOWHERE`] once it has stopped, so that a call
    /// which looks at a copy finds none and needs no test of its own.
    pub(crate) copy_at: usize,
    hardening: PhantomData<H>,
}

impl<H> Clone for Slots<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Slots<H> {}

impl<H: Hardening> Slots<H> {
    /// The slots of the frames of `map`; `None` if there are too many.
    pub(crate) fn new(map: &MemoryMap<'_>, levels: ReservationLevels) -> Option<Self> {
        let span = map.span();
        let (start, end) = (span.start.raw(), span.end().raw());
        let lowest = levels.lowest().k();
        let bits_base = start >> lowest << lowest & !63;
        let bits_end = end.checked_add(levels.lowest().frames() - 1)? >> lowest << lowest;
        let mut this = Self {
            levels,
            span,
            bits_base,
            bits_end: usize::try_from((bits_end - bits_base).div_ceil(64)).ok()?,
            records_words: 0,
            first: [0; LEVELS_MAX],
            number: [0; LEVELS_MAX],
            count: [0; LEVELS_MAX],
            all: 0,
            copy_at: 0,
            hardening: PhantomData,
        };
        for (level, order) in levels.orders().iter().enumerate() {
            this.first[level] = start >> order.k();
            let count = ((end - 1) >> order.k()) - this.first[level] + 1;
            this.count[level] = u32::try_from(count).ok()?;
            this.number[level] = this.all;
            this.all = this.all.checked_add(this.count[level])?;
        }
        this.records_words = (this.all as usize).checked_add(1)?.checked_mul(RECORD_WORDS)?;
        if H::CHECKED {
            this.bits_base = bits_base.wrapping_sub(64 * this.records_words as u64);
            this.bits_end = this.bits_end.checked_add(this.records_words)?;
        }
        (this.all != NONE).then_some(this)
    }

    /// Returns the words of the bits.
    pub(crate) fn bits_range(&self) -> Range<usize> {
        (if H::CHECKED { self.records_words } else { 0 })..self.bits_end
    }

    /// Returns the bit of a frame within the span, counted from the first of the storage.
    #[inline(always)]
    fn bit(&self, frame: u64) -> u64 {
        frame.wrapping_sub(self.bits_base)
    }

    /// Returns the frame of a bit.
    fn frame(&self, bit: usize) -> u64 {
        self.bits_base.wrapping_add(bit as u64)
    }

    /// Returns true if `test` does for each word of the bits of `extent`, given with the bits in
    /// it; the first for which it does not is the last. Most extents lie in one word.
    #[inline(always)]
    fn all_words(&self, extent: Extent, mut test: impl FnMut(usize, u64) -> bool) -> bool {
        if extent.count == 1 && self.span.contains(extent.start) {
            let bit = self.bit(extent.start.raw());
            return test((bit / 64) as usize, 1 << (bit % 64));
        }
        let (first, count) = self.bits(extent);
        if count == 0 {
            return true;
        }
        let last = first + count - 1;
        let (mut mask, end) = (u64::MAX << (first % 64), u64::MAX >> (63 - last % 64));
        for word in first / 64..last / 64 {
            if !test(word, mask) {
                return false;
            }
            mask = u64::MAX;
        }
        test(last / 64, mask & end)
    }

    /// Returns true if a word of the bits, which has this value, is that of the copy.
    #[inline(always)]
    fn is_copied(&self, words: &[u64], word: usize, value: u64) -> bool {
        words.get(self.copy_at + word) == Some(&value)
    }

    /// Returns true if the words of the bits of `extent` are those of their copy.
    #[inline]
    pub(crate) fn agree(&self, words: &[u64], extent: Extent) -> bool {
        self.all_words(extent, |word, _| self.is_copied(words, word, words[word]))
    }

    /// Returns true if the words of the bits of `extent` are those of their copy, and none is held.
    #[inline]
    pub(crate) fn may_hold(&self, words: &[u64], extent: Extent) -> bool {
        let (first, count) = self.bits(extent);
        if count == 0 {
            return true;
        }
        let last = first + count - 1;
        let (low, high) = (first / 64, last / 64);
        let (above, below) = (u64::MAX << (first % 64), u64::MAX >> (63 - last % 64));
        if low == high {
            let value = words[low];
            return value & above & below == 0 && self.is_copied(words, low, value);
        }
        let Some(copies) = words.get(self.copy_at + low..=self.copy_at + high) else {
            return false;
        };
        let own = &words[low..=high];
        // One test for all words, which costs less than one for each.
        let held = match own {
            [start, inside @ .., end] => {
                inside.iter().fold(*start & above | *end & below, |held, word| held | word)
            }
            _ => u64::MAX,
        };
        own.iter().zip(copies).fold(held, |any, (own, copy)| any | own ^ copy) == 0
    }

    /// Returns true if no frame of a slot, whose frames these are, is held by the words of the bits or
    /// by those of their copy. One that overlaps the span's ends, which is never reserved, may be told
    /// as one that has some.
    #[inline]
    pub(crate) fn is_clear(&self, words: &[u64], frames: Extent) -> bool {
        let (low, len) = (self.bit(frames.start.raw()), frames.count / 64);
        if len == 0 {
            return self.may_hold(words, frames);
        }
        let (low, len) = ((low / 64) as usize, len as usize);
        if low < self.bits_range().start {
            return false;
        }
        // What is no place of a bit is none of a word, nor of one of the copy.
        let of = |at: usize| words.get(at..).and_then(|words| words.get(..len));
        let (Some(own), Some(copies)) = (of(low), of(self.copy_at + low)) else {
            return false;
        };
        own.iter().zip(copies).fold(0, |any, (own, copy)| any | own | copy) == 0
    }

    /// Returns true if the words of the bits of a slot, whose frames these are, are those of their
    /// copy, and as many frames are held.
    pub(crate) fn counts(&self, words: &[u64], frames: Extent, held: u64) -> bool {
        // Most reservations that go have none left, and counting is much work.
        if held == 0 {
            return self.is_clear(words, frames);
        }
        let mut count = 0;
        self.all_words(frames, |word, mask| {
            count += u64::from((words[word] & mask).count_ones());
            self.is_copied(words, word, words[word])
        }) && count == held
    }

    /// The first word of the bits that is not that of their copy.
    pub(crate) fn first_differing(&self, words: &[u64]) -> Option<usize> {
        self.bits_range().find(|&word| words[word] != words[self.copy_at + word])
    }

    /// Returns the number of words that bits and records take.
    pub(crate) fn storage_words(&self) -> Option<u64> {
        (self.bits_range().len() as u64).checked_add(self.records_words as u64)
    }

    /// Makes the words, all 0, those of no reservation.
    pub(crate) fn build(&self, words: &mut [u64]) {
        for slot in 0..=self.all {
            self.forget(words, slot);
        }
    }

    /// Returns the slots of `level`.
    pub(crate) fn slots(&self, level: usize) -> Range<Slot> {
        self.number[level]..self.number[level] + self.count[level]
    }

    pub(crate) fn order(&self, level: usize) -> Order {
        self.levels.orders()[level]
    }

    /// The slot of `level` around `frame`, which lies in the span.
    #[inline(always)]
    pub(crate) fn slot(&self, level: usize, frame: u64) -> Slot {
        self.number[level] + ((frame >> self.order(level).k()) - self.first[level]) as Slot
    }

    /// The level of a slot. O(levels).
    pub(crate) fn level(&self, slot: Slot) -> usize {
        (0..self.levels.orders().len()).rfind(|&level| self.number[level] <= slot).unwrap_or(0)
    }

    pub(crate) fn frames(&self, level: usize, slot: Slot) -> Extent {
        let order = self.order(level);
        let start = (self.first[level] + u64::from(slot - self.number[level])) << order.k();
        Extent::new(Pfn::new(start), order.frames())
    }

    /// The frames of `extent` that lie in the span, as bits: first and count.
    fn bits(&self, extent: Extent) -> (usize, usize) {
        let inside = extent.intersect(self.span);
        (self.bit(inside.start.raw()) as usize, inside.count as usize)
    }

    /// Marks frames as held, in the copy too.
    pub(crate) fn hold(&self, words: &mut [u64], extent: Extent) {
        self.change(words, extent, |word, mask| word | mask);
    }

    /// Changes the bits of `extent`, and makes the words of the copy the same.
    #[inline(always)]
    fn change(&self, words: &mut [u64], extent: Extent, change: impl Fn(u64, u64) -> u64) {
        self.all_words(extent, |word, mask| {
            let changed = change(words[word], mask);
            words[word] = changed;
            if H::CHECKED
                && let Some(copy) = words.get_mut(self.copy_at + word)
            {
                *copy = changed;
            }
            true
        });
    }

    /// Marks `frame`, within the span, as held; `Ok(false)` if it is already.
    ///
    /// # Errors
    /// In the checked tier, if its word is not that of the copy. Nothing changes.
    #[inline(always)]
    pub(crate) fn hold_one(&self, words: &mut [u64], frame: u64) -> Result<bool, ()> {
        let bit = self.bit(frame);
        let (word, mask) = ((bit / 64) as usize, 1 << (bit % 64));
        let was = words[word];
        if H::CHECKED && !self.is_copied(words, word, was) {
            return Err(());
        }
        if was & mask != 0 {
            return Ok(false);
        }
        words[word] = was | mask;
        if H::CHECKED
            && let Some(copy) = words.get_mut(self.copy_at + word)
        {
            *copy = was | mask;
        }
        Ok(true)
    }

    /// Marks frames as not held, in the copy too.
    #[inline]
    pub(crate) fn let_go(&self, words: &mut [u64], extent: Extent) {
        self.change(words, extent, |word, mask| word & !mask);
    }

    /// Marks the frames of `extent`, which begins in the span, as not held, in the copy too; false, and
    /// nothing changes, if one does not lie in the span or is not held, in the checked tier by words
    /// that are those of their copy.
    #[inline(always)]
    pub(crate) fn let_go_held(&self, words: &mut [u64], extent: Extent) -> bool {
        if extent.count == 1 {
            let bit = self.bit(extent.start.raw());
            let (word, mask) = ((bit / 64) as usize, 1 << (bit % 64));
            let was = words[word];
            if was & mask == 0 || (H::CHECKED && !self.is_copied(words, word, was)) {
                return false;
            }
            words[word] = was & !mask;
            if H::CHECKED
                && let Some(copy) = words.get_mut(self.copy_at + word)
            {
                *copy = was & !mask;
            }
            return true;
        }
        let may = extent.end() <= self.span.end()
            && self.all_words(extent, |word, mask| {
                let value = words[word];
                !value & mask == 0 && (!H::CHECKED || self.is_copied(words, word, value))
            });
        if may {
            self.let_go(words, extent);
        }
        may
    }

    /// Returns true if the aligned 2^`order` frames around `frame`, in a
    /// reservation of that order or a higher, are all held: one word up to
    /// order 6.
    #[inline]
    pub(crate) fn all_held(&self, words: &[u64], frame: u64, order: Order) -> bool {
        let count = order.frames();
        let first = self.bit(frame & !(count - 1));
        if count <= 64 {
            let ones = words::ones::<u64>(count as usize);
            return words[(first / 64) as usize] >> (first % 64) & ones == ones;
        }
        words::all_set(&words[..self.bits_end], first as usize, count as usize)
    }

    /// Returns true if `frame`, within the span, is held.
    #[inline(always)]
    pub(crate) fn is_held(&self, words: &[u64], frame: u64) -> bool {
        let bit = self.bit(frame);
        words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// The first frame of `extent`, within the span, that is not held.
    pub(crate) fn first_not_held(&self, words: &[u64], extent: Extent) -> Option<u64> {
        let (first, count) = self.bits(extent);
        if count == 0 {
            return None;
        }
        let bit = words::first_clear(&words[..self.bits_end], first, count)?;
        Some(self.frame(bit))
    }

    /// The first frame of `extent`, within the span, that is held.
    pub(crate) fn first_held(&self, words: &[u64], extent: Extent) -> Option<u64> {
        let (first, count) = self.bits(extent);
        let (mut word, mut mask) = (first / 64, u64::MAX << (first % 64));
        while word * 64 < first + count {
            let ones = words[word] & mask;
            if ones != 0 {
                let bit = word * 64 + ones.trailing_zeros() as usize;
                return (bit < first + count).then(|| self.frame(bit));
            }
            (word, mask) = (word + 1, u64::MAX);
        }
        None
    }

    /// The first longest piece of `extent` of which no frame is held.
    pub(crate) fn next_free(&self, words: &[u64], extent: Extent) -> Option<Extent> {
        let start = self.first_not_held(words, extent)?;
        let rest = Extent::between(Pfn::new(start), extent.end());
        let end = self.first_held(words, rest).map_or(rest.end(), Pfn::new);
        Some(Extent::between(rest.start, end))
    }

    /// Visits the pieces of `extent` of which no frame is held, ascending.
    pub(crate) fn for_each_free(
        &self,
        words: &[u64],
        extent: Extent,
        visit: &mut dyn FnMut(Extent),
    ) {
        let mut rest = extent;
        while let Some(piece) = self.next_free(words, rest) {
            visit(piece);
            rest = Extent::between(piece.end(), rest.end());
        }
    }

    /// The first aligned 2^k frames of `extent`, which is a slot's, that are
    /// not held. O(words of the slot's bits + held runs).
    pub(crate) fn find_free(&self, words: &[u64], extent: Extent, order: Order) -> Option<Extent> {
        let mut rest = extent;
        while let Some(piece) = self.next_free(words, rest) {
            let whole = piece.align_inward(order.k());
            if !whole.is_empty() {
                return Some(Extent::new(whole.start, order.frames()));
            }
            rest = Extent::between(piece.end(), rest.end());
        }
        None
    }

    /// Counts the frames that are held.
    pub(crate) fn held(&self, words: &[u64]) -> u64 {
        words[self.bits_range()].iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(crate) fn held_of(&self, words: &[u64], extent: Extent) -> u64 {
        let mut free = 0;
        self.for_each_free(words, extent, &mut |piece| free += piece.count);
        extent.count - free
    }

    #[inline(always)]
    fn record(&self, slot: Slot) -> usize {
        let at = slot as usize * RECORD_WORDS;
        if H::CHECKED { at } else { self.bits_end + at }
    }

    /// The level and slot of the reservation around `frame`. O(levels).
    #[inline]
    pub(crate) fn root_of(&self, words: &[u64], frame: u64) -> Option<(usize, Slot)> {
        if !self.span.contains(Pfn::new(frame)) {
            return None;
        }
        (0..self.levels.orders().len()).rev().find_map(|level| {
            let slot = self.slot(level, frame);
            self.is_root(words, slot).then_some((level, slot))
        })
    }

    /// Returns true if a slot, which may be any number, is one of `level`, and by its record the
    /// reservation of an object's pages from `first` on.
    #[inline(always)]
    pub(crate) fn is_root_of(
        &self,
        words: &[u64],
        level: usize,
        slot: Slot,
        object: u64,
        first: u64,
    ) -> bool {
        if slot.wrapping_sub(self.number[level]) >= self.count[level] {
            return false;
        }
        let at = self.record(slot);
        let Some(&[its_object, its_first, count]) = words.get(at..at + 3) else { return false };
        (its_object ^ object) | (its_first ^ first) == 0 && count & ROOT != 0
    }

    #[inline(always)]
    pub(crate) fn is_root(&self, words: &[u64], slot: Slot) -> bool {
        words[self.record(slot) + COUNT] & ROOT != 0
    }

    /// Returns the number of the slot's frames that are populated.
    #[inline(always)]
    pub(crate) fn populated(&self, words: &[u64], slot: Slot) -> u64 {
        words[self.record(slot) + COUNT] & !ROOT
    }

    #[inline(always)]
    pub(crate) fn set_populated(&self, words: &mut [u64], slot: Slot, populated: u64) {
        let count = &mut words[self.record(slot) + COUNT];
        *count = *count & ROOT | populated;
    }

    #[inline(always)]
    pub(crate) fn object(&self, words: &[u64], slot: Slot) -> u64 {
        words[self.record(slot) + OBJECT]
    }

    #[inline(always)]
    pub(crate) fn index(&self, words: &[u64], slot: Slot) -> u64 {
        words[self.record(slot) + INDEX]
    }

    /// Makes the slot a reservation.
    pub(crate) fn make_root(&self, words: &mut [u64], slot: Slot, object: u64, index: u64) {
        let at = self.record(slot);
        words[at + OBJECT] = object;
        words[at + INDEX] = index;
        words[at + COUNT] |= ROOT;
    }

    /// Makes the slot one in which nothing is reserved.
    pub(crate) fn forget(&self, words: &mut [u64], slot: Slot) {
        let at = self.record(slot);
        words[at..at + RECORD_WORDS].copy_from_slice(&[
            0,
            0,
            0,
            0,
            pair(NONE, NONE),
            pair(NONE, NONE),
        ]);
    }

    #[inline(always)]
    pub(crate) fn stamp(&self, words: &[u64], slot: Slot) -> u64 {
        words[self.record(slot) + STAMP]
    }

    #[inline(always)]
    pub(crate) fn set_stamp(&self, words: &mut [u64], slot: Slot, now: u64) {
        words[self.record(slot) + STAMP] = now;
    }

    /// First and last slot of the queue of `owner`.
    #[inline(always)]
    pub(crate) fn queue(&self, words: &[u64], owner: Slot) -> (Slot, Slot) {
        let queue = words[self.record(owner) + QUEUE];
        (self.known(queue as Slot), self.known((queue >> 32) as Slot))
    }

    /// A slot that a queue names; in the checked tier none if that was overwritten and is no slot.
    #[inline(always)]
    fn known(&self, slot: Slot) -> Slot {
        if !H::CHECKED || slot < self.all { slot } else { NONE }
    }

    /// The slots before and after `slot` in its queue.
    #[inline(always)]
    pub(crate) fn links(&self, words: &[u64], slot: Slot) -> (Slot, Slot) {
        let links = words[self.record(slot) + LINKS];
        (self.known(links as Slot), self.known((links >> 32) as Slot))
    }

    /// The words of a slot's record: object, page, count, time, links, queue.
    pub(crate) fn record_words(&self, slot: Slot) -> [usize; RECORD_WORDS] {
        core::array::from_fn(|word| self.record(slot) + word)
    }

    /// Returns true if a slot may stand in the queue of `owner`: it is partially populated, and a reservation
    /// if that is the queue of all, or else a part of `owner`. O(levels).
    fn may_queue(&self, words: &[u64], owner: Slot, slot: Slot) -> bool {
        let level = self.level(slot);
        let frames = self.frames(level, slot);
        let is_own = if owner == self.all {
            self.is_root(words, slot)
        } else {
            self.level(owner) == level + 1 && self.slot(level + 1, frames.start.raw()) == owner
        };
        is_own && (1..frames.count).contains(&self.populated(words, slot))
    }

    /// The first word of the queue of `owner` that does not fit the others: a link that names no slot
    /// which may be there, or whose slot does not name the one before it, or the end. O(its slots).
    pub(crate) fn wrong_link(&self, words: &[u64], owner: Slot) -> Option<usize> {
        let raw = |word: u64| (word as Slot, (word >> 32) as Slot);
        let (mut slot, last) = raw(words[self.record(owner) + QUEUE]);
        let (mut before, mut at) = (NONE, self.record(owner) + QUEUE);
        for _ in 0..=self.all {
            if slot == NONE {
                return (before != last).then_some(at);
            }
            if slot >= self.all || !self.may_queue(words, owner, slot) {
                return Some(at);
            }
            at = self.record(slot) + LINKS;
            let links = raw(words[at]);
            if links.0 != before {
                return Some(at);
            }
            (before, slot) = (slot, links.1);
        }
        Some(at)
    }

    /// The slot before `after` in the queue of `owner`; before [`NONE`], its
    /// tail.
    #[inline(always)]
    pub(crate) fn before(&self, words: &[u64], owner: Slot, after: Slot) -> Slot {
        match after {
            NONE => self.queue(words, owner).1,
            _ => self.links(words, after).0,
        }
    }

    /// The words of all records; in the checked tier no others, so that what leads to a record by a
    /// link that was overwritten leads to one of them or to none.
    #[inline(always)]
    fn records<'w>(&self, words: &'w mut [u64]) -> Option<&'w mut [u64]> {
        match H::CHECKED {
            true => words.get_mut(..self.records_words),
            false => words.get_mut(self.bits_end..),
        }
    }

    /// Takes `slot` out of the queue of `owner`.
    #[inline]
    pub(crate) fn dequeue(&self, words: &mut [u64], owner: Slot, slot: Slot) {
        unlink(self.records(words).unwrap_or_default(), owner, slot);
    }

    /// Puts `slot` into the queue of `owner` before `after`, or at its tail if
    /// that is [`NONE`].
    #[inline]
    pub(crate) fn enqueue(&self, words: &mut [u64], owner: Slot, slot: Slot, after: Slot) {
        let records = self.records(words).unwrap_or_default();
        let before = if after == NONE { tail(records, owner) } else { linked(records, after).0 };
        link(records, owner, before, slot);
        link(records, owner, slot, after);
    }

    /// Takes `slot` out of the queue of `owner` if it is full now, or else puts it at the tail, at the
    /// time `now`. Few populations come here.
    #[inline(never)]
    pub(crate) fn turn(&self, words: &mut [u64], owner: Slot, slot: Slot, full: bool, now: u64) {
        if full {
            self.dequeue(words, owner, slot);
        } else {
            self.enqueue(words, owner, slot, NONE);
        }
        self.set_stamp(words, slot, now);
    }

    /// Moves `slot` to the tail of the queue of `owner`, where it is already.
    #[inline]
    pub(crate) fn move_to_tail(&self, words: &mut [u64], owner: Slot, slot: Slot) {
        let Some(records) = self.records(words) else { return };
        let last = tail(records, owner);
        if last != slot {
            unlink(records, owner, slot);
            link(records, owner, last, slot);
            link(records, owner, slot, NONE);
        }
    }

    /// Checks that the queue of `owner` is linked well and holds none but partially populated slots of
    /// its own, and returns their number.
    pub(crate) fn check_queue(&self, words: &[u64], owner: Slot) -> Result<u64, &'static str> {
        let (mut slot, last) = self.queue(words, owner);
        let (mut before, mut len) = (NONE, 0);
        while slot != NONE {
            if slot >= self.all || len > u64::from(self.all) {
                return Err("a queue runs in a circle or off the slots");
            }
            if self.links(words, slot).0 != before {
                return Err("a slot in a queue does not know the one before it");
            }
            if !self.may_queue(words, owner, slot) {
                return Err("a queue holds a slot that is not its own or not partially populated");
            }
            len += 1;
            before = slot;
            slot = self.links(words, slot).1;
        }
        if before != last { Err("a queue does not end with its last slot") } else { Ok(len) }
    }
}
