//! A processor heap: one thread's superblocks (*Zhang, Lu and Zhang*, section 4.3).
//!
//! For each class there is a **current** superblock, and in it a current word
//! of 64 slots: to allocate is to take its lowest bit. Up to eight of these bits
//! are copied beforehand, so that the next address does not wait for the
//! last free's arithmetic. When the word is
//! empty, the summary names the superblock's next one; when all are, the
//! superblock is full, and the next comes from the list of those partly used,
//! oldest first, so that each had time to gather free slots; then the global
//! heap is asked. Slots that other threads returned are collected before a list
//! is looked at.
//!
//! A superblock counts only frees. Twice it reaches a count at which something
//! is to be done: when it is as empty as the threshold f says, and when it is
//! wholly empty.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::error::{BufferAllocateError, BufferFreeError};
use crate::heap::slot::{HeapSlot, Partial, WordPlace};
use crate::pool::buffer_pool::BufferPool;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{
    CLASSES, LAYOUTS, SLOT_BYTES_MAX, SLOT_BYTES_MIN, TABLE_BYTES_MAX, WORDS, class_for, word_of,
};
use crate::superblock::owner::Owner;

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    /// Makes a processor heap for the calling thread; `None` if all slots are taken.
    ///
    /// O(h) for h slots used so far.
    #[must_use]
    pub fn attach(&self) -> Option<LocalHeap<'_, 'm, L, S>> {
        let mut guard = self.lock();
        let heaps = self.heaps();
        let index = heaps.iter().position(|slot| !slot.is_attached())?;
        guard.heaps_high = guard.heaps_high.max(index + 1);
        let slot = &heaps[index];
        slot.begin(NonNull::from(self).cast(), Owner::open(index as u32 + 1));
        drop(guard);
        Some(LocalHeap::new(self, slot))
    }
}

/// A processor heap in use by one thread.
///
/// From [`BufferPool::attach`]; dropping it moves its superblocks to the global
/// heap. It frees blocks of any heap of the pool.
///
/// As long as one pointer, so that a thread's local storage can hold it as it is.
pub struct LocalHeap<'p, 'm, L: RawMutex, S: SegmentSource> {
    pub(crate) slot: &'m HeapSlot,
    pool: PhantomData<&'p BufferPool<'m, L, S>>,
}

impl<'p, 'm, L: RawMutex, S: SegmentSource> LocalHeap<'p, 'm, L, S> {
    /// `slot` was begun with `pool`.
    pub(crate) fn new(_: &'p BufferPool<'m, L, S>, slot: &'m HeapSlot) -> Self {
        Self { slot, pool: PhantomData }
    }

    /// Returns the heap as a pointer, for a thread's local storage.
    #[must_use]
    pub fn as_raw(&self) -> NonNull<HeapSlot> {
        NonNull::from(self.slot)
    }

    /// Returns the heap of [`as_raw`](Self::as_raw) again, beside the one that it came from.
    ///
    /// # Safety
    /// That one is still there, has this type, and is not used while this one is.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_raw(slot: NonNull<HeapSlot>) -> ManuallyDrop<Self> {
        // SAFETY: the pool's storage outlives the heap.
        ManuallyDrop::new(Self { slot: unsafe { slot.as_ref() }, pool: PhantomData })
    }

    /// Returns the pool that it belongs to.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> &'p BufferPool<'m, L, S> {
        // SAFETY: `begin` stored a reference of this type, borrowed for as long
        // as the heap lives, and only an attach after its end stores another.
        unsafe { &*self.slot.known_pool().cast() }
    }

    /// The owner word of its superblocks that are not full, from the slot's place: what stands in the
    /// slot is for [`free_fast`](Self::free_fast), which takes no other's superblocks for its own by it.
    #[inline]
    pub(crate) fn token(&self) -> Owner {
        self.pool().token_of(self.slot)
    }

    /// Allocates at least `size` bytes at a multiple of `align`, a power of two (of 16, if it is
    /// less); a size of 0 gets a block too. The bytes are not initialised.
    ///
    /// Nearly always as [`allocate_fast`](Self::allocate_fast). Otherwise O(r) for r
    /// slots that other threads returned since the last time, and for segments what the
    /// source takes.
    ///
    /// # Errors
    /// [`BufferAllocateError`]; nothing changes.
    #[inline]
    pub fn allocate(
        &mut self,
        size: usize,
        align: usize,
    ) -> Result<NonNull<u8>, BufferAllocateError> {
        if align <= SLOT_BYTES_MIN
            && let Some(block) = self.allocate_fast(size).or_else(|| self.allocate_current(size))
        {
            return Ok(block);
        }
        self.allocate_other(size, align)
            .ok_or(BufferAllocateError { size_bytes: size, align_bytes: align })
    }

    /// Allocates `size` bytes at a multiple of 16, if the size is short and the current word of its
    /// class has a free slot: some 30 instructions. Else nothing has changed.
    #[inline(always)]
    pub fn allocate_fast(&mut self, size: usize) -> Option<NonNull<u8>> {
        if size > TABLE_BYTES_MAX {
            return None;
        }
        self.slot.take_short(size.div_ceil(SLOT_BYTES_MIN))
    }

    #[inline(never)]
    fn allocate_other(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if align > SLOT_BYTES_MIN && !align.is_power_of_two() {
            return None;
        }
        let align = align.max(SLOT_BYTES_MIN);
        let Some(class) = class_for(size, align) else {
            return self.allocate_segment(size, align).map(|(block, _)| block);
        };
        if let Some(block) = self.slot.take(class).or_else(|| self.next_word(class)) {
            return Some(block);
        }
        // No room for a superblock: perhaps for the one block.
        if LAYOUTS[class].units == 1 {
            return None;
        }
        self.allocate_segment(size, align).map(|(block, _)| block)
    }

    /// Allocates as [`allocate`](Self::allocate), and says if the bytes are all zero
    /// already, as a fresh segment's may be.
    ///
    /// # Errors
    /// [`BufferAllocateError`]; nothing changes.
    #[inline]
    pub fn allocate_zeroable(
        &mut self,
        size: usize,
        align: usize,
    ) -> Result<(NonNull<u8>, bool), BufferAllocateError> {
        if size > SLOT_BYTES_MAX && align.is_power_of_two() {
            let segment = self.allocate_segment(size, align);
            return segment.ok_or(BufferAllocateError { size_bytes: size, align_bytes: align });
        }
        self.allocate(size, align).map(|block| (block, false))
    }

    /// Allocates `size` bytes at a multiple of 16, if the current superblock of their class has a
    /// free slot. Else nothing has changed.
    #[inline(never)]
    pub fn allocate_current(&mut self, size: usize) -> Option<NonNull<u8>> {
        let class = class_for(size, SLOT_BYTES_MIN)?;
        self.slot.take(class).or_else(|| self.next_open(class))
    }

    /// The current word of `class` is empty: takes a slot of the superblock's next one that is not.
    #[inline]
    fn next_open(&self, class: usize) -> Option<NonNull<u8>> {
        let pool = self.pool();
        let WordPlace { index, word } = self.slot.current(class, pool.superblocks())?;
        let superblock = &pool.superblocks()[index as usize];
        let mut open = superblock.open.load(Relaxed) & !(1 << word);
        while open != 0 {
            let word = open.trailing_zeros();
            // A superblock that was given up with its current word just emptied still names it.
            if superblock.free[word as usize].load(Relaxed) != 0 {
                superblock.open.store(open, Relaxed);
                self.open_word(class, index, word);
                return self.slot.take(class);
            }
            open &= open - 1;
        }
        superblock.open.store(0, Relaxed);
        None
    }

    /// The current word of `class` is empty: takes a slot of the superblock's next one, or of
    /// another superblock.
    #[inline(never)]
    fn next_word(&self, class: usize) -> Option<NonNull<u8>> {
        if let Some(block) = self.next_open(class) {
            return Some(block);
        }
        if let Some(place) = self.slot.current(class, self.pool().superblocks()) {
            self.close(class, place.index);
        }
        self.next_superblock(class)
    }

    /// Serves the class from a word of superblock `index`.
    #[inline]
    fn open_word(&self, class: usize, index: u32, word: u32) {
        let pool = self.pool();
        let at = word as usize * 64 * LAYOUTS[class].size as usize;
        let first = pool.unit_start(index).as_ptr().wrapping_add(at);
        let word = &pool.superblocks()[index as usize].free[word as usize % WORDS];
        self.slot.current[class].set(word, first);
    }

    /// The current superblock is full.
    fn close(&self, class: usize, index: u32) {
        let superblock = &self.pool().superblocks()[index as usize];
        let slots = superblock.slots.load(Relaxed);
        superblock.set_used(slots, self.pool().low(slots));
        superblock.set_owner(Owner(self.token().0 + 1));
        self.slot.full.push(self.pool().superblocks(), index);
        self.slot.clear_current(class);
    }

    #[cold]
    #[inline(never)]
    fn next_superblock(&self, class: usize) -> Option<NonNull<u8>> {
        self.collect_returned();
        let partial = &self.slot.partial[class];
        let (superblocks, token) = (self.pool().superblocks(), self.token());
        let listed = core::iter::from_fn(|| partial.list.pop(superblocks)).find(|&index| {
            let superblock = &superblocks[index as usize];
            if superblock.mark.load(Relaxed) == 0 {
                partial.sparse.store(partial.sparse.load(Relaxed).saturating_sub(1), Relaxed);
            }
            // What was overwritten is left out.
            superblock.owner() == token && superblock.class() == Some(class)
        });
        let index = if let Some(index) = listed {
            index
        } else {
            self.pool().acquire_superblock(class, token)?
        };
        let superblock = &superblocks[index as usize];
        superblock.stop_count();
        self.open_word(class, index, superblock.open.load(Relaxed).trailing_zeros());
        self.slot.take(class).or_else(|| self.next_word(class))
    }

    /// Frees `block`.
    ///
    /// Nearly always as [`free_fast`](Self::free_fast) for a block of this heap. For
    /// one of another, one atomic operation, and three if it is the first to come back to its
    /// word and superblock; for a segment the pool's lock.
    ///
    /// # Errors
    /// [`BufferFreeError`]: the pointer is foreign, no block begins there, or it is
    /// free already; nothing changes.
    ///
    /// # Safety
    /// The block is not used after, if it was in use. (Any pointer may be
    /// tried: a wrong one is an error.)
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), BufferFreeError> {
        // SAFETY: as the caller says; at most one of them takes it.
        if unsafe { self.free_fast(block.as_ptr()) || self.free_in_superblock(block.as_ptr()) } {
            return Ok(());
        }
        self.free_other(block.addr().get())
    }

    /// Frees `block` and returns true, if it is a block in use of one of this heap's superblocks
    /// that is neither full nor has returned slots to collect: some 40 instructions. Else nothing
    /// has changed. Any pointer may be tried.
    ///
    /// # Safety
    /// The block is not used after, if this is true.
    #[inline(always)]
    pub unsafe fn free_fast(&mut self, block: *mut u8) -> bool {
        let Some(pool) = self.slot.pool() else { return false };
        // SAFETY: as in `pool`; it stands there twice.
        let pool: &BufferPool<'m, L, S> = unsafe { &*pool.cast() };
        let Some((unit, superblock, within)) = pool.place_of(block.addr()) else { return false };
        if !superblock.is_undisturbed(self.slot.token()) {
            return false;
        }
        let Some(slot) = superblock.slot(within) else { return false };
        let word = &superblock.free[word_of(slot)];
        let (bits, bit) = (word.load(Relaxed), 1_u64 << (slot % 64));
        if bits & bit != 0 {
            return false;
        }
        word.store(bits | bit, Relaxed);
        if bits == 0 {
            let open = superblock.open.load(Relaxed) | 1 << word_of(slot);
            superblock.open.store(open, Relaxed);
        }
        // The owner alone counts; a walk on another thread may read it meanwhile.
        let left = superblock.left.load(Relaxed).wrapping_sub(1);
        superblock.left.store(left, Relaxed);
        if left == 0 {
            Self::at_mark(self.slot, unit);
        }
        true
    }

    /// Frees `block` and returns true, if it is a block in use in the first unit of a superblock:
    /// one of another heap, or one of this heap that is full or has returned slots to collect. Else
    /// nothing has changed. Any pointer may be tried.
    ///
    /// # Safety
    /// As for [`free_fast`](Self::free_fast).
    #[inline(never)]
    pub unsafe fn free_in_superblock(&mut self, block: *mut u8) -> bool {
        let pool = self.pool();
        let Some((unit, superblock, within)) = pool.place_of(block.addr()) else { return false };
        superblock.owner().is_superblock()
            && superblock.slot(within).is_some_and(|slot| self.free_slot(pool, unit, slot))
    }

    /// Frees a slot of a superblock, and returns true, if it is in use.
    #[inline(always)]
    fn free_slot(&self, pool: &BufferPool<'m, L, S>, index: u32, slot: u32) -> bool {
        let superblock = &pool.superblocks()[index as usize];
        // Overwritten, the owner word is no heap's: then it comes back as another's would.
        let (token, owner) = (self.slot.token(), superblock.owner());
        if !owner.is_heap_of(token) {
            return pool.free_remote(index, slot);
        }
        let (word, bit) = (&superblock.free[word_of(slot)], 1_u64 << (slot % 64));
        if word.load(Relaxed) & bit != 0 || pool.returned_bits(index).has(slot) {
            return false;
        }
        if owner != token {
            self.no_longer_full(index);
        }
        word.store(word.load(Relaxed) | bit, Relaxed);
        superblock.open.store(superblock.open.load(Relaxed) | 1 << word_of(slot), Relaxed);
        let left = superblock.left.load(Relaxed).wrapping_sub(1);
        superblock.left.store(left, Relaxed);
        if left == 0 {
            Self::at_mark(self.slot, index);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn free_other(&mut self, address: usize) -> Result<(), BufferFreeError> {
        let pool = self.pool();
        match pool.find(address)? {
            (index, Some(slot)) if self.free_slot(pool, index, slot) => Ok(()),
            (_, Some(_)) => Err(BufferFreeError::NotAllocated { address }),
            (index, None) => self.free_segment(index, address),
        }
    }

    #[inline(never)]
    fn no_longer_full(&self, index: u32) {
        let superblocks = self.pool().superblocks();
        let superblock = &superblocks[index as usize];
        self.slot.full.remove(superblocks, index);
        superblock.set_owner(self.token());
        // What was overwritten is nobody's to allocate from.
        if let Some(class) = superblock.class() {
            self.slot.partial[class].list.push(superblocks, index);
        }
    }

    /// A superblock reached the count of frees at which something is to be
    /// done. C's calling convention, which does not unwind: C's functions can end with it.
    #[cold]
    #[inline(never)]
    extern "C" fn at_mark(slot: &'m HeapSlot, index: u32) {
        let own = ManuallyDrop::new(Self { slot, pool: PhantomData });
        let superblocks = own.pool().superblocks();
        let superblock = &superblocks[index as usize];
        let Some(class) = superblock.class() else {
            superblock.stop_count();
            return;
        };
        if slot.is_current(class, superblocks, index) {
            superblock.stop_count();
            return;
        }
        let Partial { list, sparse } = &slot.partial[class];
        let (used, was_sparse) = (superblock.used(), superblock.mark.load(Relaxed) == 0);
        let mut count = sparse.load(Relaxed) + u32::from(!was_sparse);
        if used == 0 || count > own.pool().options().slack {
            list.remove(superblocks, index);
            count = count.saturating_sub(1);
            own.pool().receive_locked(index);
        } else {
            superblock.set_used(used as u32, 0);
        }
        sparse.store(count, Relaxed);
    }

    /// Collects what other threads returned; O(r) for r slots.
    pub(crate) fn collect_returned(&self) {
        let superblocks = self.pool().superblocks();
        self.slot.returned.take(superblocks, |index| {
            let superblock = &superblocks[index as usize];
            let token = self.token();
            let owner = superblock.owner();
            if owner == token || owner.0 == token.0 + 1 {
                let summary = superblock.leave_list();
                self.collect_slots(index, summary, owner != token);
            } else {
                self.pool().forward(index);
            }
        });
    }

    /// Collects the returned slots of one superblock of this heap.
    fn collect_slots(&self, index: u32, summary: u32, full: bool) {
        let superblocks = self.pool().superblocks();
        let superblock = &superblocks[index as usize];
        let taken = self.pool().collect_slots(index, summary);
        if taken == 0 {
            return;
        }
        let remote = &self.slot.remote_frees;
        remote.store(remote.load(Relaxed).wrapping_add(taken.into()), Relaxed);
        if full {
            self.no_longer_full(index);
        }
        let Some(class) = superblock.class() else { return };
        if superblock.left.load(Relaxed) <= 0 && !self.slot.is_current(class, superblocks, index) {
            Self::at_mark(self.slot, index);
        }
    }

    /// Collects what other threads returned, on a list or not, of the first `high` units.
    pub(crate) fn collect_all_returned(&mut self, high: u32) {
        for index in 0..high {
            let owner = self.pool().superblocks()[index as usize].owner();
            if owner == self.token() || owner.0 == self.token().0 + 1 {
                let summary = self.pool().returned_bits(index).summary();
                self.collect_slots(index, summary, owner != self.token());
            }
        }
    }

    /// Collects what other threads returned, moves wholly empty superblocks to the global heap,
    /// current ones too, and releases the units that the heap keeps.
    ///
    /// Takes O(r) for r slots returned and O(c) for c classes.
    pub fn collect(&mut self) {
        self.collect_returned();
        let superblocks = self.pool().superblocks();
        for class in 0..CLASSES {
            let Some(place) = self.slot.current(class, superblocks) else { continue };
            let superblock = &superblocks[place.index as usize];
            if superblock.count_used() == 0 {
                self.slot.clear_current(class);
                superblock.set_used(0, 0);
                self.pool().receive_locked(place.index);
            }
        }
        self.pool().lock().release_kept(&self.slot.kept);
    }
}

impl<L: RawMutex, S: SegmentSource> Drop for LocalHeap<'_, '_, L, S> {
    fn drop(&mut self) {
        self.collect_returned();
        self.pool().detach(self.slot);
    }
}
