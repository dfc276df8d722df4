//! The caches of a heap: for each class, slots at hand, the last one freed on top.
//!
//! A cached slot is neither live nor free. To allocate is to take the top one and set its live bit; to
//! free is to clear that bit and put the slot on top. Nothing else is counted or written, so that a
//! superblock knows of a slot only when an empty cache is refilled, or a full one lets it through
//! ([`spill`](crate::heap::spill)).
//!
//! An entry stands as two numbers, of granule and address, which say the same: no flipped bit of either is
//! believed. Of a third word only the highest two places of a class have anything, the mark that the
//! cache is full below it. Entries of three words also guard the place of the top: a flipped bit moves it by a power
//! of two bytes, which is no multiple of an entry, and what lies there is no entry. Nor is what lies below
//! the lowest, so that an empty cache needs no test of its own.

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::superblock::class::{
    CLASSES, GRANULE_SHIFT, LAYOUTS, SLOT_BYTES_MAX, SLOT_BYTES_MIN, class_of,
};
use crate::superblock::owner::Owner;
use crate::superblock::register::in_register;

/// Entries of a class at most; few for the model checker.
pub(crate) const ENTRIES_MAX: usize = if cfg!(loom) { 4 } else { 128 };

/// Bytes of an entry.
const ENTRY_BYTES: usize = 24;

/// Bytes up to the last place where a top can lie.
const TOP_BYTES_MAX: usize = u16::MAX as usize;

/// Bytes of all entries, as far as a top can lie, and two entries beyond: the top one, and the next. The
/// model checker's stacks have no room for more than are used.
const CACHE_BYTES: usize =
    if cfg!(loom) { CLASSES * (ENTRIES_MAX + 1) } else { TOP_BYTES_MAX / ENTRY_BYTES + 3 }
        * ENTRY_BYTES;

// From any top on: its own two words, and the three of the next entry.
const _: () = assert!(cfg!(loom) || CACHE_BYTES >= TOP_BYTES_MAX + 2 * ENTRY_BYTES);

/// Bins, of which only the first ones have a class: any byte is the number of one. The model checker, whose stacks have
/// no room for so many, has no byte that was overwritten.
const BINS: usize = if cfg!(loom) { 1 << 7 } else { 1 << u8::BITS };

/// The bin of requests for no bytes: it is no class's, and has no owner and no entry.
const NOTHING: usize = BINS - 1;

/// Says that a cache is full.
const FULL: u64 = u64::MAX;

/// Where a class's entries lie.
#[derive(Clone, Copy)]
struct Place {
    /// Bytes from the first entry of all to the place below the class's lowest.
    below: u16,
    /// Number of entries.
    entries: u16,
}

/// Fewer entries of longer slots.
const fn entries_of(class: usize) -> usize {
    let entries = match LAYOUTS[class].size {
        0..=128 => 128,
        129..=512 => 36,
        513..=2048 => 28,
        2049..=8192 => 22,
        _ => 16,
    };
    if entries < ENTRIES_MAX { entries } else { ENTRIES_MAX }
}

static PLACES: [Place; CLASSES] = {
    let mut places = [Place { below: 0, entries: 0 }; CLASSES];
    let (mut class, mut below) = (0, 0);
    while class < CLASSES {
        let entries = entries_of(class);
        places[class] = Place { below: below as u16, entries: entries as u16 };
        below += (entries + 1) * ENTRY_BYTES;
        assert!(below <= 1 << u16::BITS, "all entries lie where a top can");
        class += 1;
    }
    places
};

/// Bytes from the first entry of all to a class's entry at `index`.
#[inline(always)]
fn place(class: usize, index: usize) -> usize {
    usize::from(PLACES[class].below) + (index + 1) * ENTRY_BYTES
}

/// The classes of requests by their granules: so that what no flipped bit may change lies in no heap. Each crate that looks
/// there has its own, beside its code.
const SHORT: &[u8; SLOT_BYTES_MAX / SLOT_BYTES_MIN + 1] = &{
    let mut table = [0; SLOT_BYTES_MAX / SLOT_BYTES_MIN + 1];
    table[0] = NOTHING as u8;
    let mut granules = 1;
    while granules < table.len() {
        table[granules] = class_of(granules * SLOT_BYTES_MIN) as u8;
        granules += 1;
    }
    table
};

/// The class of a request for `size` bytes at a multiple of 16, if slots are so long. Of one for no bytes it is the
/// number of a bin without a class: its cache is empty always.
#[inline(always)]
pub(crate) fn short_class(size: usize) -> Option<u8> {
    if size > SLOT_BYTES_MAX { None } else { Some(SHORT[size.div_ceil(SLOT_BYTES_MIN)]) }
}

/// A slot in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CachedSlot {
    pub(crate) granule: usize,
    pub(crate) address: usize,
}

impl CachedSlot {
    /// The granule that begins at an address so many bytes behind the arena's first; outside the arena if none does.
    #[inline(always)]
    pub(crate) const fn at(address: usize, offset: usize) -> Self {
        Self { granule: offset.rotate_right(GRANULE_SHIFT), address }
    }
}

/// What a heap knows of a class: both words are found by one register.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bin {
    /// The owner word of the heap's superblocks.
    owner: u32,
    /// Bytes from the first entry of all to the class's top one, for which 16 bits have room. A word of 32, read once
    /// by a call and written once, as every call waits for what the one before wrote: a processor passes 16 bits, or a
    /// sum made in memory, on later.
    top: u32,
}

/// The caches of one heap.
///
/// Invariants: a class's entries from its lowest to its top are slots of the heap's superblocks of that
/// class, each once, neither live nor free.
#[repr(C)]
pub(crate) struct Caches {
    entries: UnsafeCell<[u64; CACHE_BYTES / 8]>,
    bins: UnsafeCell<[Bin; BINS]>,
    /// The granule of the slot that was last put back as the first free one of its word. Any number may stand here.
    last: UnsafeCell<usize>,
}

// Nothing is atomic, so that a compiler may add to it and compare with it where it lies.
// SAFETY: all is read and written by the thread that has the heap only; whoever has it after, or
// looks at all heaps while no call is under way, comes after it by the pool's lock.
unsafe impl Sync for Caches {}

impl Caches {
    pub(crate) const fn new() -> Self {
        Self {
            entries: UnsafeCell::new([0; CACHE_BYTES / 8]),
            bins: UnsafeCell::new([Bin { owner: 0, top: 0 }; BINS]),
            last: UnsafeCell::new(0),
        }
    }

    /// Makes all caches empty, of the heap whose owner words are `owner`'s.
    pub(crate) fn begin(&self, owner: impl Fn(usize) -> Owner) {
        for class in 0..BINS {
            let place = PLACES.get(class);
            // No superblock has the owner word of a class that is none.
            let owner = place.map_or(u32::MAX, |_| owner(class).0);
            let top = place.map_or(0, |place| place.below).into();
            // SAFETY: this thread has the heap.
            unsafe { (*self.bins.get())[class] = Bin { owner, top } };
        }
    }

    /// The owner word of the heap's superblocks of a class.
    #[inline(always)]
    pub(crate) fn owner(&self, class: u8) -> u32 {
        // SAFETY: this thread has the heap.
        unsafe { (*self.bins.get())[usize::from(class)].owner }
    }

    /// The [owner word](Self::owner), found by the register by which the top is found after.
    #[inline(always)]
    pub(crate) fn owner_before_top(&self, class: u8) -> u32 {
        // SAFETY: of one of the bins, of this thread alone.
        unsafe { (&raw const (*self.bin(class)).owner).read() }
    }

    /// The bin of a class.
    #[inline(always)]
    fn bin(&self, class: u8) -> *mut Bin {
        // The place of all is the constant, and what the class adds is in the register.
        let base = ptr::from_ref(self).cast_mut().cast::<Bin>();
        let from = in_register(base.wrapping_add(usize::from(class)));
        from.wrapping_byte_add(offset_of!(Self, bins))
    }

    /// The word of a class's top.
    #[inline(always)]
    pub(crate) fn whole_top(&self, class: u8) -> u32 {
        self.top_word(class).load(Relaxed)
    }

    /// A top as an atomic word, though no other thread is here: so that a compiler neither narrows a load nor does it twice.
    #[inline(always)]
    fn top_word(&self, class: u8) -> &AtomicU32 {
        // SAFETY: of one of the bins, of this thread alone.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.bin(class)).top) }
    }

    /// Where a class's top entry lies. Of a top that was overwritten it is some place.
    #[inline(always)]
    pub(crate) fn top(&self, class: u8) -> u16 {
        self.whole_top(class) as u16
    }

    #[inline(always)]
    fn set_top(&self, class: u8, top: u16) {
        // SAFETY: this thread has the heap.
        unsafe { (*self.bins.get())[usize::from(class)].top = top.into() };
    }

    /// The top entry was taken, of a class whose top has this [word](Self::whole_top).
    #[inline(always)]
    pub(crate) fn pop_from(&self, class: u8, whole: u32) {
        self.top_word(class).store(whole.wrapping_sub(ENTRY_BYTES as u32), Relaxed);
    }

    #[inline(always)]
    fn at(&self, place: usize) -> *mut u64 {
        self.entries.get().wrapping_byte_add(place).cast()
    }

    /// The first word at `top`: an entry's granule, if [the address](Self::address_at) is the granule's.
    #[inline(always)]
    pub(crate) fn granule_at(&self, top: u16) -> usize {
        self.word_at(top, 0)
    }

    /// The second word at `top`, as [`granule_at`](Self::granule_at).
    #[inline(always)]
    pub(crate) fn address_at(&self, top: u16) -> usize {
        self.word_at(top, 1)
    }

    #[inline(always)]
    fn word_at(&self, top: u16, index: usize) -> usize {
        let at = self.at(usize::from(top)).wrapping_add(index);
        // SAFETY: any top and the two words from it on lie in the array, which this thread alone uses. A
        // top that was overwritten may be no multiple of 8.
        unsafe { at.read_unaligned() as usize }
    }

    /// Writes an entry.
    ///
    /// # Safety
    /// It lies at most an entry beyond where a top can.
    #[inline(always)]
    unsafe fn write(&self, place: usize, entry: CachedSlot) {
        let at = self.at(place);
        // SAFETY: as for `word_at`, as the caller says.
        unsafe {
            at.write_unaligned(entry.granule as u64);
            at.add(1).write_unaligned(entry.address as u64);
        }
    }

    /// Returns true if there is room for another slot.
    #[inline(always)]
    pub(crate) fn has_room(&self, class: u8) -> bool {
        let top = usize::from(self.top(class)) + ENTRY_BYTES;
        // SAFETY: the third word of an entry beyond the top.
        unsafe { self.at(top).add(2).read_unaligned() == 0 }
    }

    /// Puts a slot on top, and returns true, if there is room for it.
    #[inline(always)]
    pub(crate) fn push(&self, class: u8, entry: CachedSlot) -> bool {
        let whole = self.whole_top(class);
        let next = usize::from(whole as u16) + ENTRY_BYTES;
        // SAFETY: the third word of an entry beyond the top.
        if unsafe { self.at(next).add(2).read_unaligned() } != 0 {
            return false;
        }
        self.top_word(class).store(whole.wrapping_add(ENTRY_BYTES as u32), Relaxed);
        // SAFETY: an entry beyond the top.
        unsafe { self.write(next, entry) };
        true
    }

    /// Says which slot was put back as the first free one of its word, and returns the one before.
    #[inline(always)]
    pub(crate) fn change_last(&self, granule: usize) -> usize {
        // SAFETY: this thread has the heap.
        unsafe { core::mem::replace(&mut *self.last.get(), granule) }
    }

    /// Number of entries of a class; `None` if its top was overwritten.
    pub(crate) fn len(&self, class: usize) -> Option<usize> {
        let Place { below, entries } = PLACES[class];
        let bytes = self.whole_top(class as u8).checked_sub(below.into())? as usize;
        let len = bytes / ENTRY_BYTES;
        (bytes.is_multiple_of(ENTRY_BYTES) && len <= usize::from(entries)).then_some(len)
    }

    /// The entry at `index` from the lowest on.
    #[inline(always)]
    pub(crate) fn get(&self, class: usize, index: usize) -> CachedSlot {
        let at = self.at(place(class, index));
        // SAFETY: a place of the table.
        let [granule, address] = unsafe { [at.read(), at.add(1).read()] };
        CachedSlot { granule: granule as usize, address: address as usize }
    }

    /// The top entry was not one: leaves it out, or all if the top is none of the class's. Returns false if
    /// the cache is empty.
    #[inline(always)]
    pub(crate) fn leave_out(&self, class: usize) -> bool {
        // As nearly always.
        self.whole_top(class as u8) != PLACES[class].below.into() && self.leave_out_one(class)
    }

    #[inline(never)]
    fn leave_out_one(&self, class: usize) -> bool {
        let len = self.len(class).unwrap_or(0);
        self.set_len(class, len.saturating_sub(1));
        len != 0
    }

    /// Puts the top entry below the next one, if there is one, so that the slot that was just freed is not the next
    /// to be handed out.
    pub(crate) fn bury(&self, class: usize) {
        if let Some(len) = self.len(class)
            && len >= 2
        {
            let [top, next] = [len - 1, len - 2].map(|index| self.get(class, index));
            self.set(class, len - 2, top);
            self.set(class, len - 1, next);
        }
    }

    #[inline(always)]
    pub(crate) fn set_len(&self, class: usize, len: usize) {
        let top = PLACES[class].below + (len * ENTRY_BYTES) as u16;
        self.set_top(class as u8, top);
    }

    /// Takes out the entries for which `leaves` returns true.
    pub(crate) fn drain(&self, class: usize, mut leaves: impl FnMut(CachedSlot) -> bool) {
        let mut kept = 0;
        for index in 0..self.len(class).unwrap_or(0) {
            let entry = self.get(class, index);
            if !leaves(entry) {
                if kept != index {
                    self.set(class, kept, entry);
                }
                kept += 1;
            }
        }
        self.set_len(class, kept);
    }

    /// Half of a class's entries: as many as an empty cache is refilled with.
    #[inline]
    pub(crate) fn half(class: usize) -> usize {
        PLACES.get(class).map_or(0, |place| usize::from(place.entries) / 2)
    }

    /// Sets entries of an empty cache from below `index`, which is not 0, down, which has them once it is
    /// [settled](Self::settle). No more are taken than there is room for. Returns the index of the last one.
    #[inline(always)]
    pub(crate) fn set_below(
        &self,
        class: usize,
        mut index: usize,
        entries: impl Iterator<Item = CachedSlot>,
    ) -> usize {
        let mut at = place(class, index);
        for entry in entries {
            at = at.wrapping_sub(ENTRY_BYTES);
            index -= 1;
            // SAFETY: a place of the table: there was room below the index.
            unsafe { self.write(at, entry) };
            // Asked before the next is taken, which would have no room.
            if index == 0 {
                break;
            }
        }
        index
    }

    /// Sets entries as [`set_below`](Self::set_below) does, of so many slots, each so many granules behind the one before, as
    /// far as there is room.
    #[inline(always)]
    pub(crate) fn set_run_below(
        &self,
        class: usize,
        index: usize,
        mut slot: CachedSlot,
        granules: usize,
        count: usize,
    ) -> usize {
        let (mut at, count) = (place(class, index), count.min(index));
        for _ in 0..count {
            at = at.wrapping_sub(ENTRY_BYTES);
            // SAFETY: a place of the table: there was room below the index for as many.
            unsafe { self.write(at, slot) };
            slot.granule += granules;
            slot.address = slot.address.wrapping_add(granules << GRANULE_SHIFT);
        }
        index - count
    }

    /// Sets an entry of the cache, which has it with its length.
    #[inline(always)]
    fn set(&self, class: usize, index: usize, entry: CachedSlot) {
        // SAFETY: a place of the table.
        unsafe { self.write(place(class, index), entry) };
    }

    /// Gives an empty cache the entries that were set, those of `first..end`.
    #[inline]
    pub(crate) fn settle(&self, class: usize, first: usize, end: usize) {
        if first != 0 {
            self.lower(class, first, end);
        }
        self.set_len(class, end - first);
        self.mark_full(class);
    }

    /// Moves the entries of `first..end` down to the lowest places.
    #[inline(never)]
    fn lower(&self, class: usize, first: usize, end: usize) {
        (first..end).for_each(|index| self.set(class, index - first, self.get(class, index)));
    }

    /// Marks the places above the highest entry; two, so that no flipped bit lets one class's entries grow into
    /// another's.
    fn mark_full(&self, class: usize) {
        let entries = usize::from(PLACES[class].entries);
        self.mark(class, entries - 2, FULL);
        self.mark(class, entries - 1, FULL);
    }

    /// Returns true if the class's marks stand where they belong, and nowhere else; or nowhere, in a cache
    /// that was never filled.
    pub(crate) fn is_marked(&self, class: usize) -> bool {
        let entries = usize::from(PLACES[class].entries);
        // SAFETY: as for `mark`.
        let mark = |index| unsafe { self.at(place(class, index)).add(2).read() };
        let high = mark(entries - 1);
        let mut lower = 0..entries - 2;
        lower.all(|index| mark(index) == 0)
            && (high == 0 || high == FULL)
            && mark(entries - 2) == high
    }

    fn mark(&self, class: usize, index: usize, mark: u64) {
        // SAFETY: the third word of an entry, as for `write`.
        unsafe { self.at(place(class, index)).add(2).write(mark) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    const OWNER: Owner = Owner::of(1, 0);
    /// Where the arena begins.
    const BASE: usize = 7 << 16;

    fn slot(granule: usize) -> CachedSlot {
        CachedSlot { granule, address: BASE.wrapping_add(granule.rotate_left(GRANULE_SHIFT)) }
    }

    fn begun() -> Box<Caches> {
        let caches = Box::new(Caches::new());
        caches.begin(|_| OWNER);
        caches
    }

    /// What the top says, if it is believed.
    fn top(caches: &Caches, class: usize) -> Option<CachedSlot> {
        let top = caches.top(class as u8);
        let read = CachedSlot { granule: caches.granule_at(top), address: caches.address_at(top) };
        (read == slot(read.granule)).then_some(read)
    }

    #[test]
    fn requests_have_the_class_of_their_granules() {
        assert!(short_class(0).is_some_and(|class| usize::from(class) >= CLASSES));
        for size in 1..=SLOT_BYTES_MAX {
            let class = class_of(size.next_multiple_of(SLOT_BYTES_MIN)) as u8;
            assert_eq!(short_class(size), Some(class), "{size} bytes");
            assert!(LAYOUTS[usize::from(class)].size as usize >= size, "{size} bytes");
        }
        assert_eq!(short_class(SLOT_BYTES_MAX + 1), None);
        assert_eq!(short_class(usize::MAX), None);
    }

    #[test]
    fn only_classes_have_an_owner_and_a_place() {
        let caches = begun();
        for class in 0..BINS {
            let owner = if class < CLASSES { OWNER.0 } else { u32::MAX };
            assert_eq!(caches.owner(class as u8), owner, "class {class}");
        }
        let entries = |size: usize| PLACES[class_of(size)].entries;
        let sizes = [16, 128, 144, 512, 576, 2048, 2304, 8192, 9216, SLOT_BYTES_MAX];
        assert_eq!(sizes.map(entries), [128, 128, 36, 36, 28, 28, 22, 22, 16, 16]);
        assert!((0..CLASSES).all(|class| 2 * Caches::half(class) == PLACES[class].entries.into()));
        // Below a class's lowest entry is a place that is no other's.
        for (class, next) in
            PLACES.iter().enumerate().skip(1).map(|(class, next)| (class - 1, next))
        {
            let highest = place(class, usize::from(PLACES[class].entries) - 1);
            assert_eq!(usize::from(next.below), highest + ENTRY_BYTES, "class {class}");
        }
    }

    /// Of as many slots as half a cache has room for, more or fewer: what is taken comes out first
    /// to last, and nothing else is taken.
    #[test]
    fn entries_are_set_downwards_as_far_as_there_is_room() {
        for class in [0, 9, 30, CLASSES - 1] {
            let half = Caches::half(class);
            for (given, is_run) in
                [half, half + 3, 2].map(|given| [(given, false), (given, true)]).concat()
            {
                let caches = begun();
                let mut slots = (1..=given).map(slot);
                let first = if is_run {
                    caches.set_run_below(class, half, slot(1), 1, given)
                } else {
                    caches.set_below(class, half, &mut slots)
                };
                let taken = given.min(half);
                assert_eq!(first, half - taken, "class {class}");
                assert!(is_run || slots.count() == given - taken, "class {class}");
                caches.settle(class, first, half);
                assert_eq!(caches.len(class), Some(taken));
                assert!(caches.is_marked(class));
                for granule in 1..=taken {
                    assert_eq!(top(&caches, class), Some(slot(granule)), "class {class}");
                    caches.pop_from(class as u8, caches.whole_top(class as u8));
                }
                assert_eq!(top(&caches, class), None);
            }
        }
    }

    /// A mark in any other place shows, and so does one of the two without the other.
    #[test]
    fn marks_stand_in_the_two_highest_places() {
        for class in [0, 9, CLASSES - 1] {
            let caches = begun();
            assert!(caches.is_marked(class));
            caches.settle(class, 0, 0);
            let entries = usize::from(PLACES[class].entries);
            for index in 0..entries {
                let high = index >= entries - 2;
                caches.mark(class, index, if high { 0 } else { FULL });
                assert!(!caches.is_marked(class), "class {class}, place {index}");
                caches.mark(class, index, if high { FULL } else { 0 });
            }
            assert!(caches.is_marked(class));
        }
    }

    #[test]
    fn a_buried_entry_comes_second() {
        let caches = begun();
        for (class, len) in (0..4).map(|len| (len * 9, len)) {
            (1..=len).for_each(|granule| assert!(caches.push(class as u8, slot(granule))));
            caches.bury(class);
            let mut left: Vec<usize> = (1..=len).rev().collect();
            if len >= 2 {
                left.swap(0, 1);
            }
            for granule in left {
                assert_eq!(top(&caches, class), Some(slot(granule)), "class {class}");
                caches.pop_from(class as u8, caches.whole_top(class as u8));
            }
            assert_eq!((top(&caches, class), caches.len(class)), (None, Some(0)));
        }
    }

    #[test]
    fn the_last_one_comes_first_and_a_full_cache_says_so() {
        for (class, place) in PLACES.iter().enumerate() {
            let caches = begun();
            caches.settle(class, 0, 0);
            assert_eq!((top(&caches, class), caches.len(class)), (None, Some(0)));
            let entries = usize::from(place.entries) - 2;
            for granule in 1..=entries {
                assert!(caches.push(class as u8, slot(granule)), "class {class}");
                assert_eq!(caches.len(class), Some(granule));
            }
            assert!(!caches.push(class as u8, slot(entries + 1)), "class {class}");
            assert_eq!(caches.len(class), Some(entries));
            let mut drained = Vec::new();
            caches.drain(class, |entry| {
                let leaves = entry.granule % 2 == 1;
                drained.extend(leaves.then_some(entry));
                leaves
            });
            assert!(drained.into_iter().eq((1..=entries).step_by(2).map(slot)), "class {class}");
            for granule in (1..=entries / 2).rev().map(|half| 2 * half) {
                assert_eq!(top(&caches, class), Some(slot(granule)), "class {class}");
                caches.pop_from(class as u8, caches.whole_top(class as u8));
            }
            assert_eq!((top(&caches, class), caches.len(class)), (None, Some(0)));
            assert!(caches.is_marked(class));
        }
    }

    /// A top is that of as many entries as there are places at most.
    #[test]
    fn a_top_beyond_a_class_is_none() {
        for (class, &Place { below, entries }) in PLACES.iter().enumerate() {
            let caches = begun();
            for len in 0..=usize::from(entries) + 2 {
                let top = u32::from(below) + (len * ENTRY_BYTES) as u32;
                caches.top_word(class as u8).store(top, Relaxed);
                let is_one = len <= entries.into();
                assert_eq!(caches.len(class), is_one.then_some(len), "class {class}");
            }
        }
    }

    /// Each bit of each word of a class with three entries among full ones: what is believed after
    /// is one of the three, or nothing.
    #[test]
    fn a_flipped_bit_serves_nothing_else() {
        for class in [0, 5, 30, CLASSES - 1] {
            let fill = || {
                let caches = begun();
                for class in 0..CLASSES {
                    caches.settle(class, 0, 0);
                    (0..3).for_each(|index| {
                        _ = caches.push(class as u8, slot(class * 64 + index + 1));
                    });
                }
                caches
            };
            let own = |slot: CachedSlot| (class * 64 + 1..class * 64 + 4).contains(&slot.granule);
            for bit in 0..32 {
                let caches = fill();
                let whole = caches.whole_top(class as u8);
                caches.top_word(class as u8).store(whole ^ 1 << bit, Relaxed);
                assert_eq!(caches.len(class), None, "class {class}, bit {bit} of the top");
                assert!(top(&caches, class).is_none_or(own), "class {class}, bit {bit} of the top");
                // What is pushed there is what comes back.
                if caches.push(class as u8, slot(9999)) {
                    assert_eq!(top(&caches, class), Some(slot(9999)));
                    caches.pop_from(class as u8, caches.whole_top(class as u8));
                }
                assert!(top(&caches, class).is_none_or(own), "class {class}, bit {bit} of the top");
            }
            for (word, bit) in (0..3).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
                let caches = fill();
                let at = caches.at(place(class, 2)).wrapping_add(word);
                // SAFETY: a word of the class's top entry.
                unsafe { at.write(at.read() ^ 1 << bit) };
                assert_eq!(top(&caches, class).is_some(), word == 2, "word {word}, bit {bit}");
                assert!(caches.leave_out(class));
                assert_eq!(top(&caches, class), Some(slot(class * 64 + 2)));
            }
        }
    }
}
