//! A processor heap: one thread's superblocks (*Zhang, Lu and Zhang*, section 4.3).
//!
//! For each class there is a cache of slots at hand ([`Caches`](crate::heap::cache::Caches)). To allocate
//! is to take its top one, and to free is to put one on top. An empty cache is
//! refilled from the words of the class's **current** superblock. When these have no free slot, the
//! superblock is full, and the next comes from the list of those partly used,
//! oldest first, so that each had time to gather free slots; then the global
//! heap is asked. Slots that other threads returned are collected before a list
//! is looked at. Of a full cache the half that was freed first goes back to the superblocks.
//!
//! A superblock counts only the slots that come back to it. Twice it reaches a count at which something
//! is to be done: when it is as empty as the threshold f says, and when it is
//! wholly empty.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::error::{BufferAllocateError, BufferFreeError};
use crate::heap::cache::{CachedSlot, Caches, Drained};
use crate::heap::front::{Freed, Front};
use crate::heap::slot::{HeapSlot, Partial};
use crate::pool::buffer_pool::BufferPool;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{
    CLASSES, GRANULE_SHIFT, LAYOUTS, SLOT_BYTES_MAX, SLOT_BYTES_MIN, UNIT_GRANULES_SHIFT, WORDS,
    class_for,
};
use crate::superblock::owner::Owner;
use crate::superblock::record::Superblock;

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    /// Makes a processor heap for the calling thread; `None` if all slots are taken.
    ///
    /// O(h) for h slots used so far.
    #[must_use]
    pub fn attach(&self) -> Option<LocalHeap<'_, 'm, L, S>> {
        self.attach_sparing(0)
    }

    /// Makes a processor heap as [`attach`](Self::attach) does, in none of the last `spared` slots: they
    /// are left to other callers.
    ///
    /// O(h) for h slots used so far.
    #[must_use]
    pub fn attach_sparing(&self, spared: usize) -> Option<LocalHeap<'_, 'm, L, S>> {
        let mut guard = self.lock();
        let heaps = self.heaps();
        let heaps = &heaps[..heaps.len().saturating_sub(spared)];
        let index = heaps.iter().position(|slot| !slot.is_attached())?;
        guard.heaps_high = guard.heaps_high.max(index + 1);
        let slot = &heaps[index];
        slot.begin(index as u32 + 1);
        drop(guard);
        Some(LocalHeap { slot, pool: self })
    }
}

/// A processor heap in use by one thread.
///
/// From [`BufferPool::attach`]; dropping it moves its superblocks to the global
/// heap. It frees blocks of any heap of the pool.
pub struct LocalHeap<'p, 'm, L: RawMutex, S: SegmentSource> {
    pub(crate) slot: &'m HeapSlot,
    pool: &'p BufferPool<'m, L, S>,
}

impl<'p, 'm, L: RawMutex, S: SegmentSource> LocalHeap<'p, 'm, L, S> {
    /// Returns the heap as a pointer, for a thread's local storage.
    #[must_use]
    pub fn as_raw(&self) -> NonNull<HeapSlot> {
        NonNull::from(self.slot)
    }

    /// Returns the heap of [`as_raw`](Self::as_raw) again, beside the one that it came from.
    ///
    /// # Safety
    /// That one is still there, is of this pool, and is not used while this one is.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_raw(
        pool: &'p BufferPool<'m, L, S>,
        slot: NonNull<HeapSlot>,
    ) -> ManuallyDrop<Self> {
        // SAFETY: the pool's storage outlives the heap.
        ManuallyDrop::new(Self { slot: unsafe { slot.as_ref() }, pool })
    }

    /// Returns the pool that it belongs to.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> &'p BufferPool<'m, L, S> {
        self.pool
    }

    /// The owner word of its superblocks of a class, from the slot's place: what stands in the
    /// slot is for [`Front::free`], which takes no other's superblocks for its own by it.
    pub(crate) fn owner(&self, class: usize) -> Owner {
        Owner::of(self.pool.number_of(self.slot), class)
    }

    /// Returns true if a superblock is this heap's.
    pub(crate) fn owns(&self, superblock: &Superblock) -> bool {
        superblock.class().is_some_and(|class| superblock.owner() == self.owner(class))
    }

    /// Allocates at least `size` bytes at a multiple of `align`, a power of two (of 16, if it is
    /// less); a size of 0 gets a block too. The bytes are not initialised.
    ///
    /// Nearly always as [`Front::allocate`]. Otherwise O(r) for r
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
            && let Some(block) = self.front().allocate(size).or_else(|| self.allocate_current(size))
        {
            return Ok(block);
        }
        self.allocate_other(size, align)
            .ok_or(BufferAllocateError { size_bytes: size, align_bytes: align })
    }

    #[inline(always)]
    fn front(&self) -> Front<'p, 'm, L, S> {
        // SAFETY: the slot is this heap's, of this pool.
        unsafe { Front::new(self.pool, NonNull::from(self.slot)) }
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
        if let Some(block) = self.take_or_refill(class).or_else(|| self.next_superblock(class)) {
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

    /// Allocates `size` bytes at a multiple of 16, if the cache or the current superblock of their
    /// class has a slot. Else nothing has changed.
    #[inline(never)]
    pub fn allocate_current(&mut self, size: usize) -> Option<NonNull<u8>> {
        self.take_or_refill(class_for(size, SLOT_BYTES_MIN)?)
    }

    #[inline]
    fn take_or_refill(&self, class: usize) -> Option<NonNull<u8>> {
        self.front().take(class as u8).or_else(|| self.refill(class))
    }

    /// The top of the cache of `class` is no slot: takes one that lies below, or refills the cache from the
    /// current superblock and takes one.
    fn refill(&self, class: usize) -> Option<NonNull<u8>> {
        while self.slot.caches.leave_out(class) {
            if let Some(block) = self.front().take(class as u8) {
                return Some(block);
            }
        }
        let index = self.slot.current(class)?;
        let superblock = self.pool.superblocks().get(index as usize)?;
        // The first slots come on top.
        let half = Caches::half(class);
        let (mut open, mut lowest) = (superblock.open.load(Relaxed), half);
        let first = (index as usize) << UNIT_GRANULES_SHIFT;
        let granules = LAYOUTS[class].size as usize >> GRANULE_SHIFT;
        let slots = LAYOUTS[class].slots as usize;
        let (start, live) = (self.pool.start_of(first), self.pool.live());
        while open != 0 && lowest != 0 {
            let word = open.trailing_zeros() as usize % WORDS;
            let mut free = superblock.free[word].load(Relaxed);
            while free != 0 && lowest != 0 {
                let slot = word * 64 + free.trailing_zeros() as usize;
                free &= free - 1;
                let granule = first + slot * granules;
                // A free bit may have been overwritten.
                // SAFETY: such a slot lies in the superblock.
                if slot >= slots || unsafe { live.has_unchecked(granule) } {
                    continue;
                }
                lowest -= 1;
                let address = start + ((slot * granules) << GRANULE_SHIFT);
                self.slot.caches.set(class, lowest, CachedSlot { granule, address });
            }
            superblock.free[word].store(free, Relaxed);
            if free == 0 {
                open &= open - 1;
            }
        }
        superblock.open.store(open, Relaxed);
        self.slot.caches.settle(class, lowest, half);
        self.front().take(class as u8)
    }

    /// The current superblock is full.
    fn close(&self, class: usize, index: u32) {
        let superblock = &self.pool.superblocks()[index as usize];
        let slots = superblock.slots.load(Relaxed);
        superblock.set_used(slots, self.pool.low(slots));
        superblock.set_full(true);
        self.slot.full.push(self.pool.superblocks(), index);
        self.slot.current[class].clear();
    }

    /// The current superblock of `class` has no free slot: takes one of another superblock.
    #[cold]
    #[inline(never)]
    fn next_superblock(&self, class: usize) -> Option<NonNull<u8>> {
        if let Some(index) = self.slot.current(class) {
            self.close(class, index);
        }
        self.collect_returned();
        let partial = &self.slot.partial[class];
        let (superblocks, owner) = (self.pool.superblocks(), self.owner(class));
        let listed = core::iter::from_fn(|| partial.list.pop(superblocks)).find(|&index| {
            let superblock = &superblocks[index as usize];
            if superblock.mark.load(Relaxed) == 0 {
                partial.sparse.store(partial.sparse.load(Relaxed).saturating_sub(1), Relaxed);
            }
            // What was overwritten is left out.
            superblock.owner() == owner && superblock.class() == Some(class)
        });
        let index = if let Some(index) = listed {
            index
        } else {
            self.pool.acquire_superblock(class, owner)?
        };
        superblocks[index as usize].stop_count();
        self.slot.current[class].set(index);
        self.refill(class)
    }

    /// Frees `block`.
    ///
    /// Nearly always as [`Front::free`] for a block of this heap. For
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
        // SAFETY: as the caller says.
        match unsafe { self.front().free(block.as_ptr()) } {
            Freed::Done => return Ok(()),
            Freed::CacheFull => {
                self.flush_for(block);
                return Ok(());
            }
            // SAFETY: as the caller says.
            Freed::No if unsafe { self.free_in_superblock(block.as_ptr()) } => return Ok(()),
            Freed::No => {}
        }
        self.free_other(block.addr().get())
    }

    /// Frees `block` and returns true, if it is a block in use in the first unit of a superblock:
    /// one of another heap, or one of this heap that has returned slots to collect. Else
    /// nothing has changed. Any pointer may be tried.
    ///
    /// # Safety
    /// As for [`Front::free`].
    #[inline(never)]
    pub unsafe fn free_in_superblock(&mut self, block: *mut u8) -> bool {
        let cached = self.pool.cached_slot(block.addr());
        let Some((index, superblock, within)) = self.pool.superblock_of(cached) else {
            return false;
        };
        superblock.slot(within).is_some_and(|slot| self.free_slot(index, slot, cached))
    }

    /// Frees a slot of a superblock, and returns true, if it is in use.
    #[inline(always)]
    fn free_slot(&self, index: u32, slot: u32, cached: CachedSlot) -> bool {
        let superblock = &self.pool.superblocks()[index as usize];
        let owner = superblock.owner();
        // Overwritten, the owner word is no heap's: then it comes back as another's would.
        if u64::from(owner.0) != self.slot.caches.owner(owner.class()) {
            return self.pool.free_remote(index, slot, cached.granule);
        }
        if self.pool.returned_bits(index).has(slot) {
            return false;
        }
        // SAFETY: it lies in a superblock.
        match unsafe { self.front().free_own(owner.class(), cached) } {
            Freed::No => return false,
            Freed::CacheFull => self.flush_half(usize::from(owner.class())),
            Freed::Done => {}
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn free_other(&mut self, address: usize) -> Result<(), BufferFreeError> {
        let cached = self.pool.cached_slot(address);
        match self.pool.find(address)? {
            (index, Some(slot)) if self.free_slot(index, slot, cached) => Ok(()),
            (_, Some(_)) => Err(BufferFreeError::NotAllocated { address }),
            (index, None) => self.free_segment(index, address),
        }
    }

    /// Flushes half of the cache that was full with `block`, which was just freed.
    #[cold]
    #[inline(never)]
    pub fn flush_for(&mut self, block: NonNull<u8>) {
        let granule = self.pool.cached_slot(block.addr().get()).granule;
        if let Some((_, superblock, _)) = self.pool.first_of(granule)
            && let Some(class) = superblock.class()
        {
            self.flush_half(class);
        }
    }

    fn flush_half(&self, class: usize) {
        self.flush(class, self.slot.caches.drain(class, Caches::half(class)));
    }

    /// Makes slots that left the cache of `class` free with their superblocks.
    fn flush(&self, class: usize, drained: Drained) {
        let owner = self.owner(class);
        let mut any_due = false;
        for &granule in drained.granules() {
            // What was overwritten is nobody's.
            let Some((index, superblock, within)) = self.pool.first_of(granule) else { continue };
            let Some(slot) = superblock.slot(within) else { continue };
            if superblock.owner() != owner {
                continue;
            }
            if superblock.is_full() {
                self.no_longer_full(index);
            }
            superblock.free_slot(slot);
            any_due |= superblock.left.load(Relaxed) <= 0;
        }
        if !any_due {
            return;
        }
        // Only now: a superblock that leaves takes all its slots along.
        for &granule in drained.granules() {
            if let Some((index, superblock, _)) = self.pool.first_of(granule)
                && superblock.owner() == owner
                && superblock.left.load(Relaxed) <= 0
            {
                self.at_mark(index);
            }
        }
    }

    /// Flushes all caches.
    fn flush_all(&self) {
        for class in 0..CLASSES {
            if self.slot.caches.len(class) != Some(0) {
                self.flush(class, self.slot.caches.drain(class, 0));
            }
        }
    }

    #[inline(never)]
    fn no_longer_full(&self, index: u32) {
        let superblocks = self.pool.superblocks();
        let superblock = &superblocks[index as usize];
        self.slot.full.remove(superblocks, index);
        superblock.set_full(false);
        // What was overwritten is nobody's to allocate from.
        if let Some(class) = superblock.class() {
            self.slot.partial[class].list.push(superblocks, index);
        }
    }

    /// A superblock reached the count of free slots at which something is to be done.
    #[cold]
    #[inline(never)]
    fn at_mark(&self, index: u32) {
        let superblocks = self.pool.superblocks();
        let superblock = &superblocks[index as usize];
        let Some(class) = superblock.class() else {
            superblock.stop_count();
            return;
        };
        if self.slot.is_current(class, index) {
            superblock.stop_count();
            return;
        }
        let Partial { list, sparse } = &self.slot.partial[class];
        let (used, was_sparse) = (superblock.used(), superblock.mark.load(Relaxed) == 0);
        let mut count = sparse.load(Relaxed) + u32::from(!was_sparse);
        if used == 0 || count > self.pool.options().slack {
            list.remove(superblocks, index);
            count = count.saturating_sub(1);
            self.give(class, index);
        } else {
            superblock.set_used(used as u32, 0);
        }
        sparse.store(count, Relaxed);
    }

    /// Moves a superblock, which is in no list, to the global heap, with the slots of it that are at hand.
    fn give(&self, class: usize, index: u32) {
        let superblock = &self.pool.superblocks()[index as usize];
        superblock.stop_count();
        let is_in = |granule| self.pool.first_of(granule).is_some_and(|(first, ..)| first == index);
        self.flush(class, self.slot.caches.drain_some(class, is_in));
        superblock.set_used(superblock.count_used(), 0);
        self.pool.receive_locked(index);
    }

    /// Collects what other threads returned; O(r) for r slots.
    pub(crate) fn collect_returned(&self) {
        let superblocks = self.pool.superblocks();
        self.slot.returned.take(superblocks, |index| {
            let superblock = &superblocks[index as usize];
            if self.owns(superblock) {
                let summary = superblock.leave_list();
                self.collect_slots(index, summary);
            } else {
                self.pool.forward(index);
            }
        });
    }

    /// Collects the returned slots of one superblock of this heap.
    fn collect_slots(&self, index: u32, summary: u32) {
        let superblock = &self.pool.superblocks()[index as usize];
        let taken = self.pool.collect_slots(index, summary);
        if taken == 0 {
            return;
        }
        let remote = &self.slot.remote_frees;
        remote.store(remote.load(Relaxed).wrapping_add(taken.into()), Relaxed);
        if superblock.is_full() {
            self.no_longer_full(index);
        }
        let Some(class) = superblock.class() else { return };
        if superblock.left.load(Relaxed) <= 0 && !self.slot.is_current(class, index) {
            self.at_mark(index);
        }
    }

    /// Collects what other threads returned, on a list or not, of the first `high` units.
    pub(crate) fn collect_all_returned(&mut self, high: u32) {
        for index in 0..high {
            if self.owns(&self.pool.superblocks()[index as usize]) {
                self.collect_slots(index, self.pool.returned_bits(index).summary());
            }
        }
    }

    /// Collects what other threads returned, flushes the caches, moves wholly empty superblocks to the
    /// global heap, current ones too, and releases the units that the heap keeps.
    ///
    /// Takes O(r) for r slots returned and O(c) for c classes and slots at hand.
    pub fn collect(&mut self) {
        self.collect_returned();
        self.flush_all();
        for class in 0..CLASSES {
            let Some(index) = self.slot.current(class) else { continue };
            let Some(superblock) = self.pool.superblocks().get(index as usize) else { continue };
            if superblock.count_used() == 0 {
                self.slot.current[class].clear();
                superblock.set_used(0, 0);
                self.pool.receive_locked(index);
            }
        }
        self.pool.lock().release_kept(&self.slot.kept);
    }
}

impl<L: RawMutex, S: SegmentSource> Drop for LocalHeap<'_, '_, L, S> {
    fn drop(&mut self) {
        self.collect_returned();
        self.flush_all();
        self.pool.detach(self.slot);
    }
}
