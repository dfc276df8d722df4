//! A processor heap: one thread's superblocks (*Zhang, Lu and Zhang*, section 4.3).
//!
//! For each class there is a cache of slots at hand ([`Caches`](crate::heap::cache::Caches)). To allocate
//! is to take its top one, and to free is to put one on top. An empty cache is
//! refilled from the words of the class's **current** superblock, and what a full one has no room for goes back
//! to its own. When the current one has no free slot, the
//! superblock is full, and the next comes from the list of those partly used,
//! oldest first, so that each had time to gather free slots; then the global
//! heap is asked. Slots that other threads returned are collected before a list
//! is looked at.
//!
//! A superblock counts only the slots that come back to it. Twice it reaches a count at which something
//! is to be done: when it is as empty as the threshold f says, and when it is
//! wholly empty.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::error::{BufferAllocateError, BufferFreeError};
use crate::heap::cache::{CachedSlot, Caches, short_class};
use crate::heap::front::{Freed, Front, Unplaced};
use crate::heap::slot::{HeapSlot, Partial};
use crate::heap::spill::Due;
use crate::pool::buffer_pool::{BlockPlace, BufferPool, Found};
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{
    CLASSES, GRANULE_SHIFT, LAYOUTS, SLOT_BYTES_MAX, SLOT_BYTES_MIN, STARTS, SuperblockLayout,
    UNIT_GRANULES_SHIFT, WORDS, class_for,
};
use crate::superblock::live::LIVE_BITS;
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
            && let Some(block) = self.front().allocate(size).or_else(|| self.allocate_next(size))
        {
            return Ok(block);
        }
        self.allocate_other(size, align)
            .ok_or(BufferAllocateError { size_bytes: size, align_bytes: align })
    }

    /// Returns the place of a block in use, as [`BufferPool::place_of`] does: quickly, if it is a slot of this heap.
    ///
    /// # Errors
    /// [`BufferFreeError`], as for a free.
    #[inline]
    pub fn place_of(&self, block: NonNull<u8>) -> Result<BlockPlace, BufferFreeError> {
        self.front().place_of(block).map_or_else(|| self.pool.place_of(block), Ok)
    }

    /// Returns the place of a block in use, if it is a slot of this heap that [`Front::free`] would free and superblocks of its
    /// class have one unit. Any pointer may be tried.
    #[inline(always)]
    #[must_use]
    pub fn place_of_own(&self, block: NonNull<u8>) -> Option<BlockPlace> {
        self.front().place_of(block)
    }

    /// Allocates `size` bytes at a multiple of 16, if the size is short but not 0, and the cache of its class has a slot, with
    /// the block's place. Else nothing has changed.
    #[inline(always)]
    pub fn take_short(&mut self, size: usize) -> Option<(NonNull<u8>, BlockPlace)> {
        self.front().take_with_place(size)
    }

    /// Returns the place of a block that was just allocated, as [`BufferPool::place_of_new`] does: quickly, if it is a slot
    /// of this heap.
    ///
    /// # Errors
    /// [`BufferFreeError`], as for a free, but not of a slot that is free.
    #[inline]
    pub fn place_of_new(&self, block: NonNull<u8>) -> Result<BlockPlace, BufferFreeError> {
        self.front().place_of(block).map_or_else(|| self.pool.place_of_new(block), Ok)
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Front<'p, 'm, L, S> {
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

    /// Allocates `size` bytes at a multiple of 16, but not 0, if the cache or the current superblock of their
    /// class has a slot, or the heap has kept a segment of that length. Else nothing has changed.
    #[inline(always)]
    pub fn allocate_current(&mut self, size: usize) -> Option<NonNull<u8>> {
        match short_class(size) {
            Some(class) if size != 0 => self.take_or_refill(class.into()),
            Some(_) => None,
            None => self.front().take_segment(size),
        }
    }

    /// As [`allocate_current`](Self::allocate_current), apart from the way of nearly every call: the front has just had no
    /// slot.
    #[inline(never)]
    fn allocate_next(&mut self, size: usize) -> Option<NonNull<u8>> {
        match short_class(size) {
            Some(class) if size != 0 => self.refill(class.into()),
            Some(_) => None,
            None => self.front().take_segment(size),
        }
    }

    #[inline]
    fn take_or_refill(&self, class: usize) -> Option<NonNull<u8>> {
        self.front().take(class as u8).or_else(|| self.refill(class))
    }

    /// The top of the cache of `class` is no slot: takes one that lies below, or refills the cache from the
    /// current superblock and takes one.
    #[inline(never)]
    fn refill(&self, class: usize) -> Option<NonNull<u8>> {
        while self.slot.caches.leave_out(class) {
            if let Some(block) = self.front().take(class as u8) {
                return Some(block);
            }
        }
        let index = self.slot.current(class)?;
        let superblock = self.pool.superblocks().get(index as usize)?;
        let SuperblockLayout { step, in_word, slots, size, .. } = LAYOUTS[class];
        let step = step as usize;
        let (live, arena) = (self.pool.live(), self.pool.start_of(0));
        let unit = live.unit(index as usize)?;
        let first = (index as usize) << UNIT_GRANULES_SHIFT;
        let granules = size as usize >> GRANULE_SHIFT;
        let slot_at = |granule: usize| CachedSlot {
            granule,
            address: arena.wrapping_add(granule << GRANULE_SHIFT),
        };
        // In a class whose words of free slots do not lie as those of live ones, each slot is looked at.
        let is_dead = |slot: &CachedSlot| {
            fetch_ahead(slot);
            // SAFETY: a slot of a superblock of the class: it lies in the arena.
            let word = unsafe { live.word_unchecked(slot.granule) }.load(Relaxed);
            word >> (slot.granule % LIVE_BITS) & 1 == 0
        };
        // The first slots come on top.
        let (caches, half) = (&self.slot.caches, Caches::half(class));
        let (mut open, mut lowest) = (superblock.open.load(Relaxed), half);
        // There is room for half of any cache's entries.
        while open != 0 {
            let word = open.trailing_zeros() as usize % WORDS;
            let starts = STARTS[class][word];
            // A free bit may have been overwritten: a slot that is not live is free, as none of the class is at
            // hand.
            let mut free = superblock.free[word].load(Relaxed) & starts;
            if step == 1 {
                // SAFETY: the superblock is this heap's.
                free &= !unsafe { unit.own_bits(word) };
            }
            let from = first + 64 * word * step;
            let whole = step == 1 && free == starts && lowest >= in_word as usize;
            if whole {
                // Of words side by side all of whose slots are free, one run.
                let mut words = 1;
                while let Some(next) = superblock.free.get(word + words)
                    && lowest >= (words + 1) * in_word as usize
                    && next.load(Relaxed) == STARTS[class][word + words]
                    // SAFETY: as above.
                    && unsafe { unit.own_bits(word + words) } & STARTS[class][word + words] == 0
                {
                    next.store(0, Relaxed);
                    open &= !(1 << (word + words));
                    words += 1;
                }
                let end = (from + 64 * words).min(first + slots as usize * granules);
                let begin = from + free.trailing_zeros() as usize;
                // A unit's granules are few: a short division.
                let (len, step) = ((end - begin) as u32, granules as u32);
                let count =
                    len.wrapping_add(step).wrapping_sub(1).checked_div(step).unwrap_or(0) as usize;
                lowest = caches.set_run_below(class, lowest, slot_at(begin), granules, count);
                free = 0;
            } else {
                let slots = core::iter::from_fn(|| {
                    let slot = slot_at(from + free.trailing_zeros() as usize * step);
                    let any = free != 0;
                    free &= free.wrapping_sub(1);
                    any.then_some(slot)
                });
                lowest = if step == 1 {
                    caches.set_below(class, lowest, slots)
                } else {
                    caches.set_below(class, lowest, slots.filter(is_dead))
                };
            }
            superblock.free[word].store(free, Relaxed);
            if free == 0 {
                open &= open - 1;
            }
            if lowest == 0 {
                break;
            }
        }
        superblock.open.store(open, Relaxed);
        caches.settle(class, lowest, half);
        self.front().take(class as u8)
    }

    /// The current superblock is full.
    fn close(&self, class: usize, index: u32) {
        let superblock = &self.pool.superblocks()[index as usize];
        superblock.fill();
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
        let kept = || self.begin_kept(class, owner);
        let index = match listed.or_else(kept) {
            Some(index) => index,
            None => self.pool.acquire_superblock(class, owner)?,
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
    #[inline(always)]
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), BufferFreeError> {
        // SAFETY: as the caller says.
        match unsafe { self.front().free(block.as_ptr()) } {
            Freed::Done => Ok(()),
            Freed::Full(slot) => {
                self.put_through(slot);
                Ok(())
            }
            // SAFETY: as the caller says.
            Freed::No => unsafe { self.free_slowly(block) },
        }
    }

    /// The cache is full without a slot that was just freed.
    #[inline(never)]
    fn put_through(&self, slot: Unplaced) {
        // SAFETY: the front has just said so.
        unsafe { self.front().put_back_one(slot, |due| self.settle(due)) };
    }

    #[inline(never)]
    unsafe fn free_slowly(&mut self, block: NonNull<u8>) -> Result<(), BufferFreeError> {
        let cached = self.pool.cached_slot(block.addr().get());
        let unit = cached.granule >> UNIT_GRANULES_SHIFT;
        match self.pool.superblocks().get(unit) {
            Some(superblock) if superblock.owner().is_superblock() => {
                self.free_of(unit as u32, superblock, cached)
            }
            Some(superblock) => self.free_long(superblock, cached),
            None => self.free_elsewhere(cached),
        }
    }

    /// Frees a short segment that begins in the unit of this record, or what lies elsewhere.
    #[inline(never)]
    fn free_long(
        &mut self,
        superblock: &Superblock,
        cached: CachedSlot,
    ) -> Result<(), BufferFreeError> {
        if self.keep_short_segment_of(cached.granule, superblock) {
            return Ok(());
        }
        self.free_elsewhere(cached)
    }

    /// Frees a slot that begins in its superblock's first unit.
    #[inline(never)]
    fn free_of(
        &mut self,
        index: u32,
        superblock: &Superblock,
        cached: CachedSlot,
    ) -> Result<(), BufferFreeError> {
        if self.free_slot(index, superblock, cached) {
            Ok(())
        } else {
            self.free_other(cached.address)
        }
    }

    #[inline(never)]
    fn free_elsewhere(&mut self, cached: CachedSlot) -> Result<(), BufferFreeError> {
        let freed = match self.pool.first_of(cached.granule) {
            Some((index, superblock)) => self.free_slot(index, superblock, cached),
            None => self.keep_short_segment(cached.granule),
        };
        if freed { Ok(()) } else { self.free_other(cached.address) }
    }

    /// Frees `block` and returns true, if it is a block in use of a superblock. Else nothing has changed. Any
    /// pointer may be tried.
    ///
    /// # Safety
    /// As for [`Front::free`].
    #[inline(always)]
    pub unsafe fn free_in_superblock(&mut self, block: *mut u8) -> bool {
        let cached = self.pool.cached_slot(block.addr());
        let found = self.pool.first_of(cached.granule);
        found.is_some_and(|(index, superblock)| self.free_slot(index, superblock, cached))
    }

    /// Frees a slot of superblock `index`, and returns true, if one in use begins there.
    #[inline(always)]
    fn free_slot(&self, index: u32, superblock: &Superblock, cached: CachedSlot) -> bool {
        let owner = superblock.owner();
        // Overwritten, the owner word is no heap's: then it comes back as another's would.
        if owner.0 != self.slot.caches.owner(owner.class()) {
            return self.pool.free_remote(index, superblock, cached.granule);
        }
        let first = (index as usize) << UNIT_GRANULES_SHIFT;
        let position = superblock.position(cached.granule.wrapping_sub(first));
        if superblock.queued() == 0 {
            // A return that was collected before it ended closed it.
            self.pool.open_front(index);
        } else if self.pool.returned_bits(index).has(position) {
            return false;
        }
        // SAFETY: it lies in a superblock.
        match unsafe { self.front().free_own(owner.class(), cached) } {
            Freed::No => return false,
            Freed::Full(_) if superblock.free_slot(position) => self.at_mark(index),
            Freed::Full(_) | Freed::Done => {}
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn free_other(&mut self, address: usize) -> Result<(), BufferFreeError> {
        match self.pool.find(address)? {
            // Else it would have been free by now.
            (_, Found::Slot(_)) => Err(BufferFreeError::NotAllocated { address }),
            (index, Found::Segment) => self.free_segment(index, address),
        }
    }

    /// Does what [`Front::put_back`] left to do with the superblock of a slot.
    #[cold]
    #[inline(never)]
    pub fn settle(&self, due: Due) {
        if let Some((index, superblock)) = self.pool.first_of(due.0)
            && self.owns(superblock)
        {
            self.at_mark(index);
        }
    }

    /// Makes the slots in all caches free with their superblocks.
    fn flush(&self) {
        for class in (0..CLASSES).filter(|&class| self.slot.caches.len(class) != Some(0)) {
            while let Some(due) = self.front().spill(class, 0) {
                self.settle(due);
            }
        }
    }

    /// Makes a slot that left the cache of a class, with this owner's word, free with its superblock, which is in no list.
    fn put_back(&self, owner: Owner, entry: CachedSlot) {
        let Some((index, superblock)) = self.pool.first_of(entry.granule) else { return };
        // What was overwritten is nobody's.
        if superblock.owner() == owner && self.pool.start_of(entry.granule) == entry.address {
            superblock.free_slot(self.pool.position(index, entry.granule));
        }
    }

    /// A superblock reached the count of free slots at which something is to be done: it has one again, or is
    /// as empty as the threshold says, or wholly.
    #[cold]
    #[inline(never)]
    fn at_mark(&self, index: u32) {
        let superblocks = self.pool.superblocks();
        let superblock = &superblocks[index as usize];
        let class = superblock.class();
        let was_full = superblock.is_full();
        if was_full {
            self.slot.full.remove(superblocks, index);
            superblock.set_full(false);
        }
        // What was overwritten is nobody's to allocate from.
        let Some(class) = class.filter(|&class| !self.slot.is_current(class, index)) else {
            superblock.stop_count();
            return;
        };
        let Partial { list, sparse } = &self.slot.partial[class];
        let (used, was_sparse) = (superblock.used(), superblock.mark.load(Relaxed) == 0);
        if was_full {
            list.push(superblocks, index);
            superblock.set_used(used as u32, self.pool.low(LAYOUTS[class].slots));
            if superblock.mark.load(Relaxed) != 0 {
                return;
            }
        }
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
        // By their count and by their bits: then none is at hand.
        if superblock.used() == 0 && superblock.has_all_free(class) {
            if !self.keep_units(class, index) {
                self.pool.receive_locked(index);
            }
            return;
        }
        let owner = self.owner(class);
        self.slot.caches.drain(class, |entry| {
            let unit = entry.granule >> UNIT_GRANULES_SHIFT;
            let is_in = unit.wrapping_sub(index as usize) < LAYOUTS[class].units as usize;
            if is_in {
                self.put_back(owner, entry);
            }
            is_in
        });
        self.pool.receive_locked(index);
    }

    /// Ends a superblock of this heap without a slot in use or at hand, which is in no list, keeps its units and returns
    /// true, if there is room for them: a thread that makes and frees many blocks in turn would else take the lock for
    /// each superblock, and get those that another one has just had. Else nothing has changed.
    fn keep_units(&self, class: usize, index: u32) -> bool {
        // Those of segments would be taken for ones with guards.
        if self.pool.options().guard_segments {
            return false;
        }
        let (short, units) = (&self.slot.kept.short, LAYOUTS[class].units);
        let end = || {
            self.pool.end_superblock(index, units);
            Some(index)
        };
        short.keep(units, end) || (short.count() && short.keep(units, end))
    }

    /// Begins a superblock of `class` in units that the heap has kept.
    fn begin_kept(&self, class: usize, owner: Owner) -> Option<u32> {
        let first = self.slot.kept.short.take(LAYOUTS[class].units as usize)?;
        self.pool.begin_superblock(first, class, owner);
        Some(first)
    }

    /// Collects what other threads returned; O(r) for r slots.
    pub(crate) fn collect_returned(&self) {
        let superblocks = self.pool.superblocks();
        self.slot.returned.take(superblocks, |index| {
            let superblock = &superblocks[index as usize];
            if self.owns(superblock) {
                let summary = self.pool.leave_list(index);
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
        if superblock.left.load(Relaxed) <= 0 {
            self.at_mark(index);
        }
    }

    /// Collects what other threads returned, on a list or not, of the first `high` units.
    pub(crate) fn collect_all_returned(&mut self, high: u32) {
        for index in 0..high {
            if self.owns(&self.pool.superblocks()[index as usize]) {
                self.pool.open_front(index);
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
        self.flush();
        for class in 0..CLASSES {
            let Some(index) = self.slot.current(class) else { continue };
            let Some(superblock) = self.pool.superblocks().get(index as usize) else { continue };
            let first = (index as usize) << UNIT_GRANULES_SHIFT;
            if superblock.count_used(self.pool.live(), first) == 0 {
                self.slot.current[class].clear();
                superblock.set_used(0, 0);
                self.pool.receive_locked(index);
            }
        }
        self.pool.lock().release_kept(&self.slot.kept);
    }
}

/// Has the processor fetch the first line of a slot that is soon handed out: those of longer slots lie too far apart for it
/// to foresee them.
#[inline(always)]
fn fetch_ahead(slot: &CachedSlot) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse", not(miri)))]
    // SAFETY: a hint, of any address, which reads nothing for the program; the processor has the instruction.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(slot.address));
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse", not(miri))))]
    let _ = slot;
}

impl<L: RawMutex, S: SegmentSource> Drop for LocalHeap<'_, '_, L, S> {
    fn drop(&mut self) {
        self.collect_returned();
        self.flush();
        self.pool.detach(self.slot);
    }
}
