//! A superblock's descriptor: its free slots and its owner.
//!
//! Three bits belong to a slot. The first says that it is **live**: its user has it. Its thread's heap sets it when the
//! slot is handed out and clears it when it is freed, so that a double free shows at once. The second says that it is
//! **free** with its superblock. A slot that is neither is in the cache of the superblock's heap. Both are written by
//! the superblock's owner alone. The third says that another thread has **returned** it, and is set by that thread and
//! taken by the owner; until then the slot is live. Above free and returned there is a summary, one bit for 64
//! positions or for 128:
//!
//! ```text
//!   owner:      open ──► free[0] free[1] …        plain loads and stores
//!   others: queued ──► returned[0] returned[1] …      one fetch_or each
//! ```
//!
//! No flipped bit of these hands a slot out twice. A free one is believed only if the slot is not live and, since a
//! cache is empty when it is refilled, not at hand either; a returned one stands there twice.
//!
//! The live bits stand in a table by themselves, one for each 16 bytes of the arena: from an address to its bit it
//! takes one shift, and where no block begins there is no bit. The bits of free and returned slots stand by position
//! ([`class`](crate::superblock::class)): those of short slots lie as the live ones do, so that slots come back and are
//! collected by whole words.
//!
//! A thread that returns a slot sets its bit with one `fetch_or`; the old value tells a double free. If the word was
//! empty, it sets the word's bit in `queued`; if that was empty too, it alone has the right to push the superblock on
//! its owner's list. (`queued` and the owner are one word: the owner sees by one comparison that a superblock is its
//! own and nothing waits.) So a superblock lies on at most one list, and it lies on one (or is about to be pushed, or
//! was taken off and not yet read) exactly while `queued` is not zero. The owner takes the whole list by one swap,
//! reads a superblock's link, and only then takes `queued` and the words that it names: nothing is popped one by one,
//! so there is no ABA.
//!
//! A heap that finds a superblock on its list that is no longer its own pushes it on to the owner; `queued` stays as it
//! is, and with it the right to push.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

use crate::superblock::atomic::{Shared32, Shared64};
use crate::superblock::class::{
    LAYOUTS, OPEN, STARTS, SuperblockLayout, UNIT_GRANULES_SHIFT, WORDS, position_of, slot_at,
    word_of,
};
use crate::superblock::live::LiveBits;
use crate::superblock::owner::Owner;
use crate::superblock::returned::Returned;

/// The record of one unit: storage that the caller supplies, one for each unit of
/// the arena. All zeroes is a valid and the initial value.
///
/// Invariants, for the first unit of a superblock: a word of `free` that is not zero has its bit in `open`; no slot is both
/// free and live or returned, except after a double free that met a return under way; `left + mark` is the number of slots
/// that are not free, except for a current superblock, which is not counted; and those that came back to the global
/// heap's superblock count as in use until it reads its list.
#[repr(C, align(64))]
pub struct Superblock {
    // What every thread reads.
    /// The owner in the low half; in the high half, for each 128 positions of
    /// `returned` that may have bits, one bit: the summary `queued`.
    state: Shared64,
    pub(crate) slots: AtomicU32,
    pub(crate) inverse: AtomicU32,
    pub(crate) twos: AtomicU32,
    pub(crate) class: AtomicU8,
    _beside: [u8; 3],
    /// Units of the superblock or segment.
    pub(crate) units: AtomicU32,
    /// The next superblock on the list of those with returned slots, plus one.
    pub(crate) link: Shared32,
    /// See [`SuperblockLayout::reciprocal`].
    reciprocal: AtomicU64,
    _apart: [u32; 6],
    // What the owner writes.
    /// The words of `free` that may have bits.
    pub(crate) open: AtomicU64,
    /// Frees until something is to be done.
    pub(crate) left: AtomicI32,
    /// Slots in use when `left` is zero.
    pub(crate) mark: AtomicU32,
    /// Neighbours in the list of a heap, plus one.
    pub(crate) before: AtomicU32,
    pub(crate) after: AtomicU32,
    /// 1 if no slot is free: it is in its heap's list of full ones.
    full: AtomicU32,
    _owned: u32,
    pub(crate) free: [Shared64; WORDS],
}

/// The slots that a superblock collected.
#[derive(Clone, Copy, Default)]
pub(crate) struct Collected {
    /// Slots that are free now and were not.
    pub(crate) slots: u32,
    /// Slots that were free already: freed twice, at once by the owner and
    /// another thread.
    pub(crate) twice: u32,
}

/// A free that was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Twice;

impl Superblock {
    /// Makes the record of a free unit.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self {
            state: Shared64::new(0),
            slots: AtomicU32::new(0),
            inverse: AtomicU32::new(0),
            twos: AtomicU32::new(0),
            class: AtomicU8::new(0),
            _beside: [0; 3],
            units: AtomicU32::new(0),
            link: Shared32::new(0),
            reciprocal: AtomicU64::new(0),
            _apart: [0; 6],
            open: AtomicU64::new(0),
            left: AtomicI32::new(0),
            mark: AtomicU32::new(0),
            before: AtomicU32::new(0),
            after: AtomicU32::new(0),
            full: AtomicU32::new(0),
            _owned: 0,
            free: core::array::from_fn(|_| Shared64::new(0)),
        }
    }

    /// Returns the summary of returned slots, for whoever has just opened fronts.
    pub(crate) fn queued_now(&self) -> u32 {
        (self.state.fetch_or(0, AcqRel) >> 32) as u32
    }

    /// Relaxed: a thread that frees a slot of it has it from one that saw the superblock made, and an owner that changes
    /// meanwhile is noticed by who reads the list.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        Owner(self.state.load(Relaxed) as u32)
    }

    /// Returns true if it is in its heap's list of full ones.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Relaxed) != 0
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full.into(), Relaxed);
    }

    /// The slot that begins so many bytes after the superblock does.
    #[inline(always)]
    pub(crate) fn slot(&self, within: u32) -> Option<u32> {
        let slot = slot_at(within, self.inverse.load(Relaxed), self.twos.load(Relaxed));
        (slot < self.slots.load(Relaxed)).then_some(slot)
    }

    /// The caller alone may change the owner now.
    #[inline(always)]
    pub(crate) fn set_owner(&self, owner: Owner) {
        self.state.fetch_xor(u64::from(self.owner().0 ^ owner.0), AcqRel);
    }

    /// Ends the segment that begins here, if there is one: its units are the caller's alone then.
    pub(crate) fn end_segment(&self) -> Option<u32> {
        while self.owner() == Owner::SEGMENT {
            if self.end_segment_now() {
                return self.segment_units();
            }
        }
        None
    }

    /// Ends the segment that begins here, and returns true; false also where another thread changes the record
    /// meanwhile.
    fn end_segment_now(&self) -> bool {
        self.segment_state().is_some_and(|state| self.end_segment_in(state))
    }

    /// The state of the record, if a segment begins here.
    #[inline(always)]
    pub(crate) fn segment_state(&self) -> Option<u64> {
        let state = self.state.load(Relaxed);
        (Owner(state as u32) == Owner::SEGMENT).then_some(state)
    }

    /// Ends the segment that begins here by its [state](Self::segment_state), and returns true, if that is still the
    /// record's.
    #[inline(always)]
    pub(crate) fn end_segment_in(&self, state: u64) -> bool {
        let ended = state ^ u64::from(Owner::SEGMENT.0);
        self.state.compare_exchange(state, ended, AcqRel, Relaxed).is_ok()
    }

    /// The units of the segment that begins here, if the record is whole.
    #[inline(always)]
    pub(crate) fn segment_units(&self) -> Option<u32> {
        let units = self.units.load(Relaxed);
        (self.slots.load(Relaxed) == !units).then_some(units)
    }

    /// The class of the superblock that begins here, if the record is whole: all of its layout is
    /// the class's. What is not on the way of nearly every call asks this before it believes any.
    pub(crate) fn class(&self) -> Option<usize> {
        let class = usize::from(self.class.load(Relaxed));
        let layout = LAYOUTS.get(class)?;
        let whole = self.reciprocal.load(Relaxed) == layout.reciprocal
            && self.slots.load(Relaxed) == layout.slots
            && self.inverse.load(Relaxed) == layout.inverse
            && self.twos.load(Relaxed) == layout.twos
            && self.units.load(Relaxed) == layout.units;
        whole.then_some(class)
    }

    /// Begins a segment of units that are the caller's alone.
    #[inline(always)]
    pub(crate) fn begin_segment(&self, units: u32) {
        self.units.store(units, Relaxed);
        // A segment has no slots: their number says if the units are right.
        self.slots.store(!units, Relaxed);
        self.set_owner(Owner::SEGMENT);
    }

    /// Begins a superblock of `class` with all slots free. The link and the summary of returned slots stay: a list may still
    /// hold the unit from an earlier use.
    pub(crate) fn begin(&self, class: usize, owner: Owner) {
        self.left.store(0, Relaxed);
        self.mark.store(0, Relaxed);
        self.set_full(false);
        self.open.store(OPEN[class], Relaxed);
        // Where one of this class has ended it is still laid so: of longer slots, a few words tell.
        let is_told = OPEN[class].count_ones() <= 16;
        if !(is_told && self.class() == Some(class) && self.has_all_free(class)) {
            self.lay(class);
        }
        self.set_owner(owner);
    }

    /// Sets the layout of a superblock of `class`, and the bits of its free slots, which are all.
    fn lay(&self, class: usize) {
        let SuperblockLayout { slots, inverse, twos, units, reciprocal, .. } = LAYOUTS[class];
        self.slots.store(slots, Relaxed);
        self.inverse.store(inverse, Relaxed);
        self.twos.store(twos, Relaxed);
        self.class.store(class as u8, Relaxed);
        self.reciprocal.store(reciprocal, Relaxed);
        self.units.store(units, Relaxed);
        for (word, &starts) in self.free.iter().zip(&STARTS[class]) {
            word.store(starts, Relaxed);
        }
    }

    /// The position of what begins so many granules after the superblock does.
    #[inline(always)]
    pub(crate) fn position(&self, granules: usize) -> u32 {
        // Of a number that was overwritten some position.
        position_of(granules, self.reciprocal.load(Relaxed))
    }

    /// Slots that are not free: those returned and not yet taken count, and those that are live, whatever
    /// the bits of free ones say. The live bits are as for [`collect_slots`](Self::collect_slots).
    pub(crate) fn count_used(&self, live: LiveBits<'_>, first: usize) -> u32 {
        let slots = self.slots.load(Relaxed);
        // Of a record that was overwritten nothing is free.
        let Some(class) = self.class() else { return slots };
        let SuperblockLayout { units, step, .. } = LAYOUTS[class];
        // As nearly all are when their thread ends.
        if self.has_all_free(class) && !live.any((first >> UNIT_GRANULES_SHIFT) as u32, units) {
            return 0;
        }
        let words = self.free.iter().zip(&STARTS[class]);
        let free = words.enumerate().map(|(index, (word, starts))| {
            let free = word.load(Relaxed) & starts;
            (free & !live.among(first, index, step, free)).count_ones()
        });
        slots.saturating_sub(free.sum())
    }

    /// Returns true if the bits of free slots say that all slots of this class are.
    pub(crate) fn has_all_free(&self, class: usize) -> bool {
        let all = u64::BITS - OPEN[class].leading_zeros();
        let mut words = self.free.iter().zip(&STARTS[class]).take(all as usize);
        words.all(|(word, starts)| word.load(Relaxed) & starts == *starts)
    }

    /// Sets the summary and the count from the bits, as the owner.
    pub(crate) fn recount(&self, live: LiveBits<'_>, first: usize) {
        self.open.store(summary(&self.free), Relaxed);
        self.set_used(self.count_used(live, first), 0);
    }

    /// The next on its list of those with returned slots.
    pub(crate) fn link(&self) -> Option<u32> {
        self.link.load(Relaxed).checked_sub(1)
    }

    /// The summary of returned slots.
    pub(crate) fn queued(&self) -> u32 {
        (self.state.load(Relaxed) >> 32) as u32
    }

    /// Returns the slot at `position`, which was live, from a thread that does not own it. With an owner
    /// comes the right, and the duty, to push the superblock on his list.
    pub(crate) fn return_slot(
        &self,
        position: u32,
        returned: &Returned,
    ) -> Result<Option<Owner>, Twice> {
        let (word, bits) = returned.place(position);
        // What the user wrote comes before what the next user reads.
        let before = word.fetch_or(bits, AcqRel);
        if before & bits == bits {
            return Err(Twice);
        }
        if before != 0 {
            return Ok(None);
        }
        let state = self.state.fetch_or(1 << (32 + word_of(position) / 2), AcqRel);
        Ok((state >> 32 == 0).then_some(Owner(state as u32)))
    }

    /// Leaves the list and returns the summary of the words that have bits. Only after the link was read.
    pub(crate) fn leave_list(&self) -> u32 {
        (self.state.fetch_and(u64::from(u32::MAX), AcqRel) >> 32) as u32
    }

    /// Frees the slot at `position`, which is neither free nor live, as the owner, and returns true if
    /// something is to be done.
    #[inline(always)]
    pub(crate) fn free_slot(&self, position: u32) -> bool {
        self.set_free(position);
        self.count_free()
    }

    /// Sets a slot's bit, which is to be [counted](Self::count_free), and returns true if it is the first of its word.
    #[inline(always)]
    pub(crate) fn set_free(&self, position: u32) -> bool {
        let index = word_of(position);
        let free = self.free[index].load(Relaxed);
        self.free[index].store(free | 1 << (position % 64), Relaxed);
        if free == 0 {
            self.open.store(self.open.load(Relaxed) | 1 << index, Relaxed);
        }
        free == 0
    }

    /// Counts a slot that came back, and returns true if something is to be done.
    #[inline(always)]
    pub(crate) fn count_free(&self) -> bool {
        let left = self.left.load(Relaxed).wrapping_sub(1);
        self.left.store(left, Relaxed);
        left == 0
    }

    /// Frees `count` slots of a word, as [`free_slot`](Self::free_slot) does one.
    #[inline(always)]
    pub(crate) fn free_slots(&self, index: usize, bits: u64, count: i32) -> bool {
        let word = &self.free[index % WORDS];
        word.store(word.load(Relaxed) | bits, Relaxed);
        self.open.store(self.open.load(Relaxed) | 1 << index, Relaxed);
        let left = self.left.load(Relaxed).wrapping_sub(count);
        self.left.store(left, Relaxed);
        left <= 0
    }

    /// Collects the returned slots of the words in `summary`, as the owner; the superblock's live bits are
    /// `live` from granule `first` on.
    pub(crate) fn collect_slots(
        &self,
        mut summary: u32,
        returned: &Returned,
        live: LiveBits<'_>,
        first: usize,
    ) -> Collected {
        let mut taken = Collected::default();
        // Of a record that was overwritten nothing is known.
        let Some(class) = self.class() else { return taken };
        let (starts, step) = (&STARTS[class], LAYOUTS[class].step);
        let mut open = self.open.load(Relaxed);
        while summary != 0 {
            let pair = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            for index in [2 * pair % WORDS, (2 * pair + 1) % WORDS] {
                let bits = returned.take(index) & starts[index];
                if bits == 0 {
                    continue;
                }
                let freed = live.clear_among(first, index, step, bits);
                if bits != freed {
                    taken.twice += (bits & !freed).count_ones();
                }
                taken.slots += freed.count_ones();
                self.free[index].store(self.free[index].load(Relaxed) | freed, Relaxed);
                open |= 1 << index;
            }
        }
        self.open.store(open, Relaxed);
        let left = self.left.load(Relaxed).wrapping_sub(taken.slots as i32);
        self.left.store(left, Relaxed);
        taken
    }

    /// Makes all slots free that are not live: those that a heap which is gone had in its cache, too.
    pub(crate) fn free_all_but_live(&self, live: LiveBits<'_>, first: usize) {
        let Some(class) = self.class() else { return };
        for (index, (word, &starts)) in self.free.iter().zip(&STARTS[class]).enumerate() {
            word.store(starts & !live.among(first, index, LAYOUTS[class].step, starts), Relaxed);
        }
    }

    /// Sets `left` and `mark` for `used` slots in use, with the mark at `low`
    /// or, once that is passed, at none.
    pub(crate) fn set_used(&self, used: u32, low: u32) {
        let mark = if used > low { low } else { 0 };
        self.mark.store(mark, Relaxed);
        self.left.store((used as i32).wrapping_sub(mark as i32), Relaxed);
    }

    /// Has no free slot: something is to be done at the first one that comes back.
    pub(crate) fn fill(&self) {
        self.set_full(true);
        let slots = self.slots.load(Relaxed);
        self.set_used(slots, slots.saturating_sub(1));
    }

    /// Becomes, or stays, current: frees are not counted until all slots are taken.
    pub(crate) fn stop_count(&self) {
        self.left.store(i32::MAX, Relaxed);
    }

    /// Slots that are not free, as the owner counts them.
    pub(crate) fn used(&self) -> i32 {
        self.left.load(Relaxed).wrapping_add(self.mark.load(Relaxed) as i32)
    }
}

/// The words that have bits.
fn summary(words: &[Shared64; WORDS]) -> u64 {
    let words = words.iter().enumerate();
    words.fold(0, |bits, (i, word)| bits | u64::from(word.load(Relaxed) != 0) << i)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::format;
    use std::vec::Vec;

    use swath_arch::testing::Random;

    use super::*;
    use crate::superblock::class::{CLASSES, GRANULE_SHIFT, SLOT_BYTES_MIN, UNIT_GRANULES_SHIFT};
    use crate::superblock::live::Live;

    /// Words of 64 positions that a record has.
    fn waiting(returned: &Returned) -> [u64; WORDS] {
        core::array::from_fn(|index| returned.word(index))
    }

    /// The position of a slot of a class.
    fn position(class: usize, slot: u32) -> u32 {
        if class < 8 { (slot * LAYOUTS[class].size) >> GRANULE_SHIFT } else { slot }
    }

    /// A class whose superblocks have full words and a part of one, and one word that is not full.
    const CLASSES_HERE: [usize; 4] = [0, 2, 20, CLASSES - 1];

    fn bits(words: [u64; WORDS]) -> Vec<bool> {
        (0..64 * WORDS).map(|i| words[i / 64] >> (i % 64) & 1 != 0).collect()
    }

    fn free_words(superblock: &Superblock) -> [u64; WORDS] {
        superblock.free.each_ref().map(|word| word.load(Relaxed))
    }

    /// A live table with no block in it.
    const NOTHING: LiveBits<'static> = LiveBits::new(&[]);

    #[test]
    fn a_superblock_begins_with_all_slots_of_its_class_free() {
        for (class, layout) in LAYOUTS.iter().enumerate() {
            let superblock = Superblock::new();
            superblock.state.store(5 << 32, Relaxed);
            superblock.begin(class, Owner::of(7, class));
            let starts: BTreeSet<u32> =
                (0..layout.slots).map(|slot| position(class, slot)).collect();
            let free: Vec<bool> =
                (0..64 * WORDS as u32).map(|position| starts.contains(&position)).collect();
            assert_eq!(bits(free_words(&superblock)), free, "class {class}");
            let open = starts.iter().fold(0, |open, position| open | 1_u64 << (position / 64));
            assert_eq!(superblock.open.load(Relaxed), open, "class {class}");
            superblock.fill();
            assert!(superblock.is_full() && superblock.used() == layout.slots as i32);
            assert_eq!(superblock.left.load(Relaxed), 1, "class {class}");
            assert_eq!((superblock.class(), superblock.count_used(NOTHING, 0)), (Some(class), 0));
            assert_eq!((superblock.owner(), superblock.queued()), (Owner::of(7, class), 5));
            for slot in [0, 1, layout.slots - 1] {
                assert_eq!(superblock.slot(slot * layout.size), Some(slot), "class {class}");
                assert_eq!(superblock.slot(slot * layout.size + 1), None, "class {class}");
            }
            assert_eq!(superblock.slot(layout.slots * layout.size), None, "class {class}");
        }
    }

    /// The class is believed only if the whole layout is its.
    #[test]
    fn a_record_that_was_overwritten_has_no_class() {
        for class in CLASSES_HERE {
            let superblock = Superblock::new();
            superblock.begin(class, Owner::of(1, class));
            let Superblock { slots, inverse, twos, units, .. } = &superblock;
            for word in [slots, inverse, twos, units] {
                let was = word.fetch_xor(1, Relaxed);
                assert_eq!(superblock.class(), None, "class {class}");
                word.store(was, Relaxed);
                assert_eq!(superblock.class(), Some(class));
            }
            for other in (0..=u8::MAX).filter(|&other| usize::from(other) != class) {
                superblock.class.store(other, Relaxed);
                assert_eq!(superblock.class(), None);
            }
        }
    }

    /// Of numbers of slots beyond all words, or below the free ones, all count as in use.
    #[test]
    fn counts_of_an_overwritten_record_stay_in_bounds() {
        let superblock = Superblock::new();
        superblock.begin(0, Owner::of(1, 0));
        superblock.reciprocal.store(u64::MAX, Relaxed);
        assert_eq!((superblock.class(), superblock.slot(0)), (None, Some(0)));
        superblock.slots.store(u32::MAX, Relaxed);
        assert_eq!(superblock.count_used(NOTHING, 0), u32::MAX);
        superblock.recount(NOTHING, 0);
        assert_eq!(superblock.open.load(Relaxed), u64::MAX);
        assert!(word_of(superblock.position(usize::MAX)) < WORDS);
        superblock.slots.store(3, Relaxed);
        assert_eq!(superblock.count_used(NOTHING, 0), 3);
    }

    #[test]
    fn a_segment_ends_once() {
        let superblock = Superblock::new();
        assert_eq!(superblock.end_segment(), None);
        superblock.state.store(9 << 32, Relaxed);
        for units in [1, 2, 77] {
            superblock.begin_segment(units);
            assert_eq!((superblock.owner(), superblock.queued()), (Owner::SEGMENT, 9));
            assert_eq!((superblock.segment_units(), superblock.class()), (Some(units), None));
            assert_eq!(superblock.end_segment(), Some(units));
            assert_eq!((superblock.owner(), superblock.queued()), (Owner::FREE, 9));
            assert_eq!(superblock.end_segment(), None);
        }
        superblock.begin_segment(3);
        superblock.units.store(4, Relaxed);
        assert_eq!(superblock.segment_units(), None);
    }

    #[test]
    fn a_superblock_is_undisturbed_while_it_is_its_owners_and_nothing_waits() {
        let superblock = Superblock::new();
        let state = || superblock.state.load(Relaxed);
        let is_undisturbed = |owner: Owner| state() == u64::from(owner.0);
        superblock.begin(2, Owner::of(4, 2));
        assert!(is_undisturbed(Owner::of(4, 2)));
        assert!(!is_undisturbed(Owner::of(5, 2)));
        assert!(!is_undisturbed(Owner::of(4, 3)));
        superblock.set_owner(Owner::of(6, 2));
        assert!(is_undisturbed(Owner::of(6, 2)));
        superblock.state.fetch_or(1 << 40, Relaxed);
        assert!(!is_undisturbed(Owner::of(6, 2)));
        superblock.set_owner(Owner::of(1, 2));
        assert_eq!((superblock.owner(), superblock.queued()), (Owner::of(1, 2), 1 << 8));
        assert_eq!(superblock.link(), None);
        superblock.link.store(6, Relaxed);
        assert_eq!(superblock.link(), Some(5));
    }

    #[test]
    fn frees_are_counted_from_the_mark_on() {
        let superblock = Superblock::new();
        let read = || (superblock.left.load(Relaxed), superblock.mark.load(Relaxed));
        for (used, low, left, mark) in [(5, 3, 2, 3), (4, 3, 1, 3), (3, 3, 3, 0), (2, 3, 2, 0)] {
            superblock.set_used(used, low);
            assert_eq!((read(), superblock.used()), ((left, mark), used as i32));
        }
        superblock.stop_count();
        assert_eq!(read(), (i32::MAX, 0));
    }

    /// Slots that are taken, returned and collected, beside lists of them: who has to push the
    /// superblock, which word waits, and what is free then.
    #[test]
    fn returned_slots_agree_with_a_model() {
        for (seed, class) in (0..).zip(CLASSES_HERE) {
            let mut random = Random::new(seed);
            let (superblock, returned) = (Superblock::new(), Returned::new());
            let owner = Owner::of(3, class);
            superblock.begin(class, owner);
            let layout = &LAYOUTS[class];
            let SuperblockLayout { slots, size, .. } = *layout;
            // It begins at unit 1 of eight.
            const FIRST: usize = 1 << UNIT_GRANULES_SHIFT;
            let units: Vec<Live> = (0..8).map(|_| Live::new()).collect();
            let live = || LiveBits::new(&units);
            let granule = |slot: u32| FIRST + (slot * size) as usize / SLOT_BYTES_MIN;
            let (mut used, mut back) = (BTreeSet::new(), BTreeSet::new());
            let mut queued = 0;
            for step in 0..500 {
                let place = format!("class {class}, step {step}");
                let slot = random.below(slots.into()) as u32;
                // Words and bits stand by position.
                let at = |slot: u32| position(class, slot);
                let pair = |slot: u32| at(slot) / 128;
                let (index, bit) = (word_of(at(slot)), 1_u64 << (at(slot) % 64));
                match random.below(16) {
                    0 => {
                        assert_eq!(superblock.leave_list(), queued, "{place}");
                        assert_eq!((superblock.queued(), superblock.owner()), (0, owner));
                        // Some word may have been read before its bit of the summary was set.
                        let names = queued & random.word() as u32;
                        superblock.set_used((used.len() + back.len()) as u32, 1);
                        let before = superblock.used();
                        let named = |slot: &u32| names >> pair(*slot) & 1 != 0;
                        let (taken, left) = back.into_iter().partition(named);
                        let (taken, left): (BTreeSet<u32>, BTreeSet<u32>) = (taken, left);
                        // A double free that met a return: the owner's bit is set already.
                        let twice = taken.iter().filter(|_| random.below(8) == 0);
                        let twice: BTreeSet<u32> = twice.copied().collect();
                        for slot in &twice {
                            let (index, bit) = (word_of(at(*slot)), 1 << (at(*slot) % 64));
                            superblock.free[index].fetch_or(bit, Relaxed);
                            let cleared = live().clear_among(FIRST, index, layout.step, bit);
                            assert_eq!(cleared, bit);
                        }
                        let got = superblock.collect_slots(names, &returned, live(), FIRST);
                        let expected = (taken.len() - twice.len(), twice.len());
                        assert_eq!((got.slots as usize, got.twice as usize), expected, "{place}");
                        assert_eq!(superblock.used(), before - got.slots as i32, "{place}");
                        back = left;
                        // The rest is queued anew, as its threads would have done.
                        let rest = back.iter().fold(0, |bits, slot| bits | 1_u64 << pair(*slot));
                        superblock.state.fetch_or(rest << 32, Relaxed);
                        queued = rest as u32;
                    }
                    1..9 if !used.contains(&slot) && !back.contains(&slot) => {
                        superblock.free[index].fetch_and(!bit, Relaxed);
                        live().set(granule(slot));
                        used.insert(slot);
                    }
                    _ if live().has(granule(slot)) => {
                        let first = !back.iter().any(|other| at(*other) / 64 == at(slot) / 64);
                        let expected = match used.remove(&slot) {
                            false => Err(Twice),
                            true if first && queued == 0 => Ok(Some(owner)),
                            true => Ok(None),
                        };
                        assert_eq!(
                            superblock.return_slot(at(slot), &returned),
                            expected,
                            "{place}"
                        );
                        if expected.is_ok() {
                            back.insert(slot);
                            queued |= 1 << pair(slot);
                        }
                    }
                    _ => assert!(!used.contains(&slot) && !back.contains(&slot), "{place}"),
                }
                for slot in 0..slots {
                    let lives = used.contains(&slot) || back.contains(&slot);
                    assert_eq!(live().has(granule(slot)), lives, "{place}, slot {slot}");
                }
                assert_eq!(live().count(1, 7), (used.len() + back.len()) as u32, "{place}");
                let expected = |has: &dyn Fn(u32) -> bool| {
                    let mut bits = std::vec![false; 64 * WORDS];
                    (0..slots).for_each(|slot| bits[at(slot) as usize] = has(slot));
                    bits
                };
                let free = expected(&|slot: u32| !used.contains(&slot) && !back.contains(&slot));
                assert_eq!(bits(free_words(&superblock)), free, "{place}");
                let waits = expected(&|slot: u32| back.contains(&slot));
                assert_eq!(bits(waiting(&returned)), waits, "{place}");
                assert_eq!((superblock.queued(), superblock.owner()), (queued, owner), "{place}");
                let count = (used.len() + back.len()) as u32;
                assert_eq!(superblock.count_used(live(), FIRST), count, "{place}");
                let open = superblock.open.load(Relaxed);
                superblock.recount(live(), FIRST);
                let exact = superblock.open.load(Relaxed);
                let words = superblock.free.iter().enumerate();
                let expected =
                    words.fold(0, |open, (i, word)| open | u64::from(word.load(Relaxed) != 0) << i);
                assert_eq!((exact, open & exact), (expected, exact), "{place}");
                assert_eq!(superblock.used(), count as i32, "{place}");
            }
        }
    }
}
