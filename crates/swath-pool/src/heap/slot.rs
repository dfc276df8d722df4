//! The storage of one processor heap, and the one step that nearly every allocation is.

use core::num::NonZeroU64;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use crate::heap::kept::Kept;
use crate::superblock::atomic::Shared64;
use crate::superblock::class::{
    CLASSES, LAYOUTS, SLOT_BYTES_MIN, TABLE_BYTES_MAX, WORDS, class_of, slot_bytes,
};
use crate::superblock::list::{List, ReturnList};
use crate::superblock::owner::Owner;
use crate::superblock::record::Superblock;

/// Short requests by their granules: so that what no flipped bit may change lies in no heap.
static SHORT: [Short; GRANULES] = {
    let mut table = [Short { class_bytes: 0, slot_bytes: 0 }; GRANULES];
    let mut granules = 0;
    while granules < GRANULES {
        let class = class_of(granules * SLOT_BYTES_MIN);
        table[granules].class_bytes = (class * size_of::<Current>()) as u16;
        table[granules].slot_bytes = slot_bytes(class) as u16;
        granules += 1;
    }
    table
};

/// Granules of the longest request whose class the table holds, and none.
const GRANULES: usize = TABLE_BYTES_MAX / SLOT_BYTES_MIN + 1;

/// What serves a short request.
#[derive(Clone, Copy)]
struct Short {
    /// How far the class's current word lies from that of class 0.
    class_bytes: u16,
    slot_bytes: u16,
}

/// The word of free slots that a class is served from, of the class's current superblock.
///
/// Invariants: `seal` is what [`sealed`](Current::sealed) says of the two addresses, or [`NO_WORD`]
/// where both are null; the bits of `ready` are set in the word.
#[repr(C)]
pub(crate) struct Current {
    /// The word in use.
    word: AtomicPtr<Shared64>,
    /// The first of that word's slots.
    first: AtomicPtr<u8>,
    /// What a flipped bit of either address, or of itself, breaks.
    seal: AtomicU64,
    /// Slots of the word that are allocated next, from the lowest on.
    ready: AtomicU64,
}

/// The seal of a class without a word.
const NO_WORD: u64 = u64::MAX;

/// The place of a word of free slots.
#[derive(Clone, Copy)]
pub(crate) struct WordPlace {
    /// The superblock.
    pub(crate) index: u32,
    /// The word's number.
    pub(crate) word: usize,
}

impl Current {
    const fn new() -> Self {
        Self {
            word: AtomicPtr::new(ptr::null_mut()),
            first: AtomicPtr::new(ptr::null_mut()),
            seal: AtomicU64::new(NO_WORD),
            ready: AtomicU64::new(0),
        }
    }

    fn clear(&self) {
        self.set(ptr::null(), ptr::null_mut());
        self.seal.store(NO_WORD, Relaxed);
    }

    /// Serves the class from `word`, whose slots lie from `first` on.
    pub(crate) fn set(&self, word: *const Shared64, first: *mut u8) {
        self.word.store(word.cast_mut(), Relaxed);
        self.first.store(first, Relaxed);
        self.seal.store(Self::sealed(word.cast_mut(), first), Relaxed);
        self.ready.store(0, Relaxed);
    }

    /// What the seal is of: a flipped bit changes it, and no flipped bit makes it [`NO_WORD`] of no word.
    #[inline(always)]
    fn sealed(word: *mut Shared64, first: *mut u8) -> u64 {
        word.addr().wrapping_add(first.addr()) as u64
    }

    /// Returns true if both addresses are those that were stored, of a word.
    #[inline(always)]
    fn is_sealed(&self, word: *mut Shared64, first: *mut u8) -> bool {
        // SAFETY: only the thread that has the heap writes its words, and it alone is here. Not an
        // atomic load, so that it can be compared where it lies.
        Self::sealed(word, first) == unsafe { self.seal.as_ptr().read() }
    }

    /// Takes a slot of `size` bytes, if the word has a free one.
    #[inline(always)]
    fn take(&self, size: usize) -> Option<NonNull<u8>> {
        let (word, first) = (self.word.load(Relaxed), self.first.load(Relaxed));
        if !self.is_sealed(word, first) {
            return None;
        }
        // SAFETY: `set` stores the seal with a word of a superblock, which outlives the pool.
        let word = unsafe { &*word };
        let free = word.load(Relaxed);
        let ready = match NonZeroU64::new(self.ready.load(Relaxed)) {
            Some(ready) => ready,
            None => Self::next_ready(free)?,
        };
        let rest = ready.get() & (ready.get() - 1);
        self.ready.store(rest, Relaxed);
        // Less by the slot's bit, if that is set.
        let taken = free ^ ready.get() ^ rest;
        if taken > free {
            // Overwritten: the next call looks at the word.
            self.ready.store(0, Relaxed);
            return None;
        }
        word.store(taken, Relaxed);
        let at = ready.trailing_zeros() as usize * size;
        // SAFETY: a slot of a superblock, which is not at address 0.
        Some(unsafe { NonNull::new_unchecked(first.wrapping_add(at)) })
    }

    /// The free ones of eight neighbours: few, so that what was just freed soon comes back, while it
    /// is in the cache.
    #[inline(always)]
    fn next_ready(free: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(free & (0xFF << (free.trailing_zeros() & 56)))
    }

    /// Where the word lies; none without one.
    ///
    /// # Errors
    /// [`Overwritten`]: the addresses are not those that were stored.
    pub(crate) fn place(
        &self,
        superblocks: &[Superblock],
    ) -> Result<Option<WordPlace>, Overwritten> {
        let (word, first) = (self.word.load(Relaxed), self.first.load(Relaxed));
        if word.is_null() && first.is_null() && self.seal.load(Relaxed) == NO_WORD {
            return Ok(None);
        }
        if !self.is_sealed(word, first) {
            return Err(Overwritten);
        }
        let index = word.addr().wrapping_sub(superblocks.as_ptr().addr()) / size_of::<Superblock>();
        let superblock = superblocks.get(index).ok_or(Overwritten)?;
        let word =
            word.addr().wrapping_sub(superblock.free.as_ptr().addr()) / size_of::<Shared64>();
        Ok(Some(WordPlace { index: index as u32, word: word & (WORDS - 1) }))
    }

    /// Returns true if the slots that are ready are free in `word`.
    pub(crate) fn is_sound(&self, word: &Shared64) -> bool {
        self.ready.load(Relaxed) & !word.load(Relaxed) == 0
    }
}

/// A word of a heap that was overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overwritten;

/// A class's superblocks beside the current one that are partly used.
pub(crate) struct Partial {
    pub(crate) list: List,
    /// Number of superblocks in the list that are as empty as the threshold says.
    pub(crate) sparse: AtomicU32,
}

/// Storage for one processor heap, supplied by the caller.
///
/// Invariants: a superblock of this heap is current for its class, or in the
/// class's list, or full and in the list of full ones. `sparse` counts the
/// superblocks in a class's list whose mark is zero, and is at most the slack
/// of the pool's options. No single flipped bit does harm: addresses stand there more than once, or
/// are sealed, and a count or a link that was overwritten leads to no memory in use.
#[repr(C, align(64))]
pub struct HeapSlot {
    /// The pool, three times; its types are those of the [`LocalHeap`](crate::LocalHeap) that the
    /// slot is in.
    pool: [AtomicPtr<()>; 3],
    /// The owner word of its superblocks that are not full.
    token: AtomicU32,
    /// [`ATTACHED`] if a thread has the heap, else 0; changes under the pool's lock.
    attached: AtomicU32,
    pub(crate) current: [Current; CLASSES],
    pub(crate) partial: [Partial; CLASSES],
    pub(crate) full: List,
    pub(crate) kept: Kept,
    /// Slots that other threads returned.
    pub(crate) remote_frees: AtomicU64,
    _apart: [u64; 8],
    pub(crate) returned: ReturnList,
}

/// Says that a thread has the heap: no flipped bit makes it 0.
const ATTACHED: u32 = u32::MAX;

impl HeapSlot {
    /// Makes a heap that no thread has.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self {
            pool: [const { AtomicPtr::new(ptr::null_mut()) }; 3],
            token: AtomicU32::new(0),
            attached: AtomicU32::new(0),
            current: [const { Current::new() }; CLASSES],
            partial: core::array::from_fn(|_| Partial {
                list: List::new(),
                sparse: AtomicU32::new(0),
            }),
            full: List::new(),
            kept: Kept::new(),
            remote_frees: AtomicU64::new(0),
            _apart: [0; 8],
            returned: ReturnList::new(),
        }
    }

    /// Makes the slot an empty heap of the pool at `pool`.
    pub(crate) fn begin(&self, pool: NonNull<()>, token: Owner) {
        self.attached.store(ATTACHED, Relaxed);
        self.pool.iter().for_each(|place| place.store(pool.as_ptr(), Relaxed));
        self.token.store(token.0, Relaxed);
        for (current, partial) in self.current.iter().zip(&self.partial) {
            current.clear();
            partial.list.clear();
            partial.sparse.store(0, Relaxed);
        }
        self.full.clear();
    }

    /// Returns true if a thread has the heap.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Relaxed) != 0
    }

    pub(crate) fn detach(&self) {
        self.attached.store(0, Relaxed);
    }

    /// The pool that the slot was begun with, if it stands there unchanged: looks at two of the three.
    #[inline(always)]
    pub(crate) fn pool(&self) -> Option<*mut ()> {
        let pool = self.pool[0].load(Relaxed);
        // SAFETY: only `begin` writes it, for the thread that then has the heap and is here. Not an
        // atomic load, so that it can be compared where it lies.
        (pool == unsafe { self.pool[1].as_ptr().read() }).then_some(pool)
    }

    /// The pool that the slot was begun with, one of the three overwritten or not.
    pub(crate) fn known_pool(&self) -> *mut () {
        self.pool().unwrap_or_else(|| self.pool[2].load(Relaxed))
    }

    /// The owner word as it stands there.
    #[inline(always)]
    pub(crate) fn token(&self) -> Owner {
        Owner(self.token.load(Relaxed))
    }

    /// Returns true if what was written at the beginning of this heap, with this owner word, is unchanged.
    pub(crate) fn is_intact(&self, token: Owner) -> bool {
        self.pool.iter().all(|place| place.load(Relaxed) == self.known_pool())
            && self.token() == token
            && self.attached.load(Relaxed) == ATTACHED
    }

    pub(crate) fn clear_current(&self, class: usize) {
        self.current[class].clear();
    }

    /// Where the current word of `class` lies; none without one, or if its address was overwritten:
    /// the superblock stays with the heap then, and nothing more is allocated from it.
    pub(crate) fn current(&self, class: usize, superblocks: &[Superblock]) -> Option<WordPlace> {
        self.current[class].place(superblocks).ok().flatten()
    }

    /// Returns true if `index` is the current superblock of its class.
    pub(crate) fn is_current(&self, class: usize, superblocks: &[Superblock], index: u32) -> bool {
        self.current(class, superblocks).is_some_and(|place| place.index == index)
    }

    /// Takes a slot of the current word of `class`, if it has a free one.
    #[inline(always)]
    pub(crate) fn take(&self, class: usize) -> Option<NonNull<u8>> {
        self.current[class].take(LAYOUTS[class].size as usize)
    }

    /// As [`take`](Self::take), for a short request of so many granules.
    #[inline(always)]
    pub(crate) fn take_short(&self, granules: usize) -> Option<NonNull<u8>> {
        let Short { class_bytes, slot_bytes } = SHORT[granules];
        let first = &raw const self.current;
        // SAFETY: the table has classes only, each as far from the first as its place.
        let current = unsafe { &*first.cast::<Current>().byte_add(usize::from(class_bytes)) };
        current.take(usize::from(slot_bytes))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::superblock::class::class_for;

    #[test]
    fn a_short_request_is_served_by_its_class() {
        for size in 0..=TABLE_BYTES_MAX {
            let class = class_for(size, SLOT_BYTES_MIN).unwrap();
            let short = SHORT[size.div_ceil(SLOT_BYTES_MIN)];
            assert_eq!(usize::from(short.class_bytes), class * size_of::<Current>());
            assert_eq!(usize::from(short.slot_bytes), slot_bytes(class));
        }
    }

    /// Of each of the four words, with a word and without.
    #[test]
    fn a_flipped_bit_of_a_current_word_serves_nothing_else() {
        let superblocks: Vec<_> = (0..4).map(|_| Superblock::new()).collect();
        let word = &superblocks[2].free[5];
        let first: *mut u8 = ptr::without_provenance_mut(7 << 16);
        let current = Current::new();
        for served in [false, true] {
            for bit in 0..64 {
                let flip_address = |at: *mut u8| at.map_addr(|at| at ^ 1 << bit);
                let flip_word = |at: *mut Shared64| at.map_addr(|at| at ^ 1 << bit);
                let flips: [&dyn Fn(); 4] = [
                    &|| current.word.store(flip_word(current.word.load(Relaxed)), Relaxed),
                    &|| current.first.store(flip_address(current.first.load(Relaxed)), Relaxed),
                    &|| current.seal.store(current.seal.load(Relaxed) ^ 1 << bit, Relaxed),
                    &|| current.ready.store(current.ready.load(Relaxed) ^ 1 << bit, Relaxed),
                ];
                for (index, flip) in flips.iter().enumerate() {
                    word.store(0b1010_0000, Relaxed);
                    current.clear();
                    if served {
                        current.set(word, first);
                        assert_eq!(current.take(16).unwrap().as_ptr(), first.wrapping_add(5 * 16));
                    }
                    flip();
                    let is_slot = |block: NonNull<u8>| block.as_ptr() == first.wrapping_add(7 * 16);
                    assert!(current.take(16).is_none_or(is_slot), "word {index}, bit {bit}");
                    let place = current.place(&superblocks);
                    assert_eq!(place.is_err(), index < 3, "word {index}, bit {bit}");
                }
            }
        }
    }
}
