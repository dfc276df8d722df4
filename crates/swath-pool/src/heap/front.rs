//! The front of a heap: what nearly every call is.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::heap::cache::{CachedSlot, short_class};
use crate::heap::reach::Reach;
use crate::heap::short::ShortRuns;
use crate::heap::slot::HeapSlot;
use crate::pool::buffer_pool::{BlockPlace, BufferPool};
use crate::source::segment_source::SegmentSource;
use crate::superblock::claim::Claim;
use crate::superblock::class::{CLASSES, LAYOUTS, UNIT_BYTES, UNIT_GRANULES_SHIFT, UNIT_SHIFT};
use crate::superblock::live::{LIVE_BITS, clear, word_of};
use crate::superblock::owner::Owner;
use crate::superblock::record::Superblock;

/// The caches of a heap, without the rest of it: serves what they have, and takes what they have room for.
///
/// A thread's local storage may have one before there is a heap or a pool: [`HeapSlot::NOBODYS`] is
/// one that serves and takes nothing.
#[repr(C)]
pub struct Front<'p, 'm, L: RawMutex, S: SegmentSource, R = *const BufferPool<'m, L, S>> {
    slot: NonNull<HeapSlot>,
    reach: R,
    borrowed: PhantomData<&'p BufferPool<'m, L, S>>,
}

impl<L: RawMutex, S: SegmentSource, R: Copy> Clone for Front<'_, '_, L, S, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: RawMutex, S: SegmentSource, R: Copy> Copy for Front<'_, '_, L, S, R> {}

impl<'m, L: RawMutex, S: SegmentSource, R: Reach<'m, L, S>> Front<'_, 'm, L, S, R> {
    /// Returns the front of the heap in `slot`.
    ///
    /// # Safety
    /// While this is used: the slot is that of a heap of the pool that is reached, which only this thread uses, or
    /// [`NOBODYS`](HeapSlot::NOBODYS), in which case the pool may be [`BufferPool::NOTHING`], too.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(reach: R, slot: NonNull<HeapSlot>) -> Self {
        Self { slot, reach, borrowed: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn pool(self) -> *const BufferPool<'m, L, S> {
        self.reach.pool()
    }

    /// Returns the granule that begins at an address, as an entry of a cache; outside the arena if none does.
    #[inline(always)]
    fn cached_slot(self, address: usize) -> CachedSlot {
        // SAFETY: the pool is there, as `new` says, or is `NOTHING`, which has some first byte.
        let offset = unsafe { self.reach.offset_of(address) };
        CachedSlot::at(address, offset)
    }

    /// Returns the claim to the unit in which a slot lies, if that is in the arena: a multiplication, or a wait for the
    /// granule's number, would be in the way from a free to the next allocation, which takes what was freed.
    #[inline(always)]
    fn claim(self, slot: CachedSlot) -> Option<&'m Claim> {
        // SAFETY: as for `cached_slot`; `NOTHING` has no granules.
        if !unsafe { self.reach.has_granule(slot.granule) } {
            return None;
        }
        // SAFETY: as above.
        let zero = unsafe { self.reach.claim_zero() };
        // SAFETY: a pool with granules is one, with a claim for each unit of so many granules.
        Some(unsafe { &*zero.wrapping_add(slot.address >> UNIT_SHIFT) })
    }

    /// Returns the word of live bits of a granule.
    ///
    /// # Safety
    /// It lies in the arena.
    #[inline(always)]
    unsafe fn live_word(self, granule: usize) -> &'m AtomicU32 {
        // SAFETY: a pool with granules is one; and as the caller says.
        unsafe { word_of(self.reach.live(), granule) }
    }

    /// Returns true if it is that of the heap in `slot`.
    #[inline(always)]
    #[must_use]
    pub fn is_of(self, slot: NonNull<HeapSlot>) -> bool {
        self.slot == slot
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> &'m HeapSlot {
        // SAFETY: `new` says so.
        unsafe { self.slot.as_ref() }
    }

    /// Allocates `size` bytes at a multiple of 16, if the size is short but not 0, and the cache of its
    /// class has a slot: 27 instructions. Else nothing has changed.
    #[inline(always)]
    pub fn allocate(self, size: usize) -> Option<NonNull<u8>> {
        self.take(short_class(size)?)
    }

    /// Takes the top slot of the cache of `class`, if it has one.
    #[inline(always)]
    pub(crate) fn take(self, class: u8) -> Option<NonNull<u8>> {
        let caches = &self.slot().caches;
        let whole = caches.whole_top(class);
        let top = whole as u16;
        // The block is what was read, for which it need not wait that the two were found to say the same.
        let address = caches.address_at(top);
        let slot = self.cached_slot(address);
        if caches.granule_at(top) != slot.granule {
            return None;
        }
        // SAFETY: a granule of the arena: its address was written with it, in a cache of a heap of the pool.
        let word = unsafe { self.live_word(slot.granule) };
        word.store(word.load(Relaxed) | 1 << (slot.granule % LIVE_BITS), Relaxed);
        caches.pop_from(class, whole);
        // SAFETY: as above: no granule of the arena lies at address 0.
        Some(unsafe { NonNull::new_unchecked(self.reach.place_at(address)) })
    }

    /// Allocates `size` bytes, more than the longest slot's, at a multiple of 16: a segment that the heap has kept, if
    /// there is one of that length. Else nothing has changed.
    #[inline(always)]
    #[must_use]
    pub fn take_segment(self, size: usize) -> Option<NonNull<u8>> {
        // None of those with guards was kept, and none of 0, which the last bytes of all are rounded to.
        let units = size.wrapping_add(UNIT_BYTES - 1) / UNIT_BYTES;
        let first = self.slot().kept.short.take(units)?;
        // SAFETY: a heap that has kept something is one of a pool.
        let pool = unsafe { &*self.pool() };
        pool.superblocks().get(first as usize)?.begin_segment(units as u32);
        // SAFETY: a unit with a record is one of the arena, of which none begins at 0.
        Some(unsafe { NonNull::new_unchecked(pool.place_of_unit(first)) })
    }

    /// Frees `block`, if it is a block in use of one of the heap's superblocks that has no returned slots to
    /// collect: 32 instructions. Any pointer may be tried.
    ///
    /// # Safety
    /// The block is not used after, if it was freed.
    #[inline(always)]
    pub unsafe fn free(self, block: *mut u8) -> Freed {
        // SAFETY: as the caller says.
        unsafe { self.free_if(block, |_| true) }
    }

    /// Frees `block` as [`free`](Self::free) does, if it is as long as a request for `size` bytes gets.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    #[inline(always)]
    pub unsafe fn free_sized(self, block: *mut u8, size: usize) -> Freed {
        // SAFETY: as the caller says.
        unsafe { self.free_if(block, |class| short_class(size) == Some(class)) }
    }

    /// # Safety
    /// As for [`free`](Self::free).
    #[inline(always)]
    unsafe fn free_if(self, block: *mut u8, is_of: impl FnOnce(u8) -> bool) -> Freed {
        match self.own(block.addr()) {
            // SAFETY: it lies in the arena.
            Some((class, slot)) if is_of(class) => unsafe { self.free_own(class, slot) },
            _ => Freed::No,
        }
    }

    /// What begins at an address, with its class, if that lies in one of the heap's superblocks that has no returned slots
    /// to collect.
    #[inline(always)]
    fn own(self, address: usize) -> Option<(u8, CachedSlot)> {
        let slot = self.cached_slot(address);
        let front = self.claim(slot)?.front();
        let class = Owner(front).class();
        (front == self.slot().caches.owner_before_top(class)).then_some((class, slot))
    }

    /// Makes `block` at least `size` bytes long, if [`free`](Self::free) would free it: where it is, or in a slot that the
    /// cache of its class has. Returns where it is now; else nothing has changed. Any pointer may be tried.
    ///
    /// # Safety
    /// If the block was in use, it is used after only where it lies then, and no other thread uses it meanwhile.
    #[inline(always)]
    pub unsafe fn resize(self, block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
        let (class, slot) = self.own(block.addr().get())?;
        // SAFETY: the pool is there, and has the slot.
        if !unsafe { &*self.pool() }.live().has(slot.granule) {
            return None;
        }
        let old = LAYOUTS.get(usize::from(class))?.size as usize;
        let new = short_class(size)?;
        if is_served_in(old, size, new == class) {
            return Some(block);
        }
        let caches = &self.slot().caches;
        if !caches.has_room(class) {
            return None;
        }
        let moved = self.take(new)?;
        // SAFETY: both are blocks in use, different ones, and at least so long.
        unsafe { block.copy_to_nonoverlapping(moved, old.min(size)) };
        // SAFETY: it lies in the arena. It was in use a moment ago, and there is room.
        let _ = unsafe { self.free_own(class, slot) };
        // Who still writes to the old place meets no other's block so soon.
        caches.bury(class.into());
        Some(moved)
    }

    /// Returns the place of `block`, if [`free`](Self::free) would free it and superblocks of its class have one unit. Any
    /// pointer may be tried.
    #[inline(always)]
    pub(crate) fn place_of(self, block: NonNull<u8>) -> Option<BlockPlace> {
        let address = block.addr().get();
        let (class, slot) = self.own(address)?;
        let len_bytes = len_in_unit(class)?;
        // SAFETY: the pool is there, and the slot lies in its arena.
        let word = unsafe { self.live_word(slot.granule) };
        let is_live = word.load(Relaxed) >> (slot.granule % LIVE_BITS) & 1 != 0;
        is_live.then(|| place_of_slot(block, len_bytes))
    }

    /// Allocates as [`allocate`](Self::allocate), if superblocks of the class have one unit, and says where.
    #[inline(always)]
    pub(crate) fn take_with_place(self, size: usize) -> Option<(NonNull<u8>, BlockPlace)> {
        let class = short_class(size)?;
        let len_bytes = len_in_unit(class)?;
        let block = self.take(class)?;
        Some((block, place_of_slot(block, len_bytes)))
    }

    /// Frees `block`, if it is a slot in use that begins in the first unit of another heap's superblock, or of one of this
    /// heap that has returned slots to collect. Any pointer may be tried.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    #[inline(always)]
    pub unsafe fn free_shared(self, block: *mut u8) -> Freed {
        let slot = self.cached_slot(block.addr());
        // SAFETY: as for `cached_slot`; `NOTHING` has no granules.
        let superblock = unsafe { BufferPool::superblock_at(self.pool(), slot.granule) };
        let Some(superblock) = superblock else { return Freed::No };
        let owner = superblock.owner();
        if !owner.is_superblock() {
            return Freed::No;
        }
        // SAFETY: a record is one of a pool.
        let pool = unsafe { &*self.pool() };
        let index = (slot.granule >> UNIT_GRANULES_SHIFT) as u32;
        if owner.0 != self.slot().caches.owner(owner.class()) {
            let freed = pool.free_remote(index, superblock, slot.granule);
            return if freed { Freed::Done } else { Freed::No };
        }
        let position = superblock.position(slot.granule % (1 << UNIT_GRANULES_SHIFT));
        if superblock.queued() == 0 || pool.returned_bits(index).has(position) {
            return Freed::No;
        }
        // SAFETY: the granule lies in the arena: its unit has a record.
        unsafe { self.free_own(owner.class(), slot) }
    }

    /// Ends the segment that `block` is, keeps its units and returns true, if it is a short one for which the heap has room:
    /// of these one in 256 is left to [`LocalHeap::free`](crate::LocalHeap::free), so that a caller who looks at a clock
    /// there comes by. Else nothing has changed. Any pointer to the first byte of a unit may be tried.
    ///
    /// # Safety
    /// As for [`free`](Self::free), and `block` lies at a multiple of [`UNIT_BYTES`].
    #[inline(always)]
    pub unsafe fn free_segment(self, block: *mut u8) -> bool {
        let granule = self.cached_slot(block.addr()).granule;
        // SAFETY: as for `cached_slot`; `NOTHING` has no granules.
        let superblock = unsafe { BufferPool::superblock_at(self.pool(), granule) };
        superblock.is_some_and(|superblock| {
            self.keep_segment(granule, superblock, |kept| kept.is_quick())
        })
    }

    /// Ends the segment that begins at `granule`, the first of the unit of this record, keeps its units and returns true,
    /// if it is a short one for which there is room, and `now` says so. Else nothing has changed.
    #[inline(always)]
    pub(crate) fn keep_segment(
        self,
        granule: usize,
        superblock: &Superblock,
        now: impl FnOnce(&ShortRuns) -> bool,
    ) -> bool {
        let Some(state) = superblock.segment_state() else { return false };
        // SAFETY: a record is one of a pool.
        let pool = unsafe { &*self.pool() };
        let short = &self.slot().kept.short;
        if pool.options().guard_segments || !now(short) {
            return false;
        }
        let first = (granule >> UNIT_GRANULES_SHIFT) as u32;
        let end = || superblock.end_segment_in(state).then_some(first);
        let units = superblock.segment_units();
        units.is_some_and(|units| short.keep(units, end))
    }

    /// Frees a slot of one of the heap's superblocks, which nobody returned, if it is live.
    ///
    /// # Safety
    /// The granule lies in the arena.
    #[inline(always)]
    pub(crate) unsafe fn free_own(self, class: u8, slot: CachedSlot) -> Freed {
        // SAFETY: as the caller says.
        if !unsafe { clear(self.reach.live(), slot.granule) } {
            return Freed::No;
        }
        if self.slot().caches.push(class, slot) {
            Freed::Done
        } else {
            Freed::Full(Unplaced(slot.granule))
        }
    }
}

/// Bytes of a class's slots, if its superblocks have one unit; else 0, as of any byte that is no class's number.
static LENS_IN_UNIT: [u32; 1 << u8::BITS] = {
    let mut lens = [0; 1 << u8::BITS];
    let mut class = 0;
    while class < CLASSES {
        if LAYOUTS[class].units == 1 {
            lens[class] = LAYOUTS[class].size;
        }
        class += 1;
    }
    lens
};

/// Bytes of a slot of a class, if its superblocks have one unit.
#[inline(always)]
fn len_in_unit(class: u8) -> Option<usize> {
    let len = LENS_IN_UNIT[usize::from(class)];
    (len != 0).then_some(len as usize)
}

/// The place of a slot of so many bytes in a superblock of one unit.
#[inline(always)]
fn place_of_slot(block: NonNull<u8>, len_bytes: usize) -> BlockPlace {
    // The arena lies at a multiple of a unit.
    let is_first = block.addr().get() % UNIT_BYTES < len_bytes;
    // SAFETY: what begins so far behind a unit's first byte has a byte of the unit before it, and no unit begins at 0.
    let before = || unsafe { NonNull::new_unchecked(block.as_ptr().wrapping_sub(len_bytes)) };
    let before = (!is_first).then(before);
    BlockPlace { len_bytes, is_segment: false, before }
}

/// Returns true if a block in a slot of `old` bytes serves `size` bytes where it is: more would be lost by rounding than by a
/// copy's time only if less than half were used, of another class.
pub(crate) fn is_served_in(old: usize, size: usize, is_same_class: bool) -> bool {
    size <= old && (size > old / 2 || is_same_class)
}

/// The result of a free by a [`Front`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Freed {
    /// Nothing has changed.
    No,
    /// It is free.
    Done,
    /// It is not in use any more, and the cache of its class is full: [`Front::put_back`] has to be called
    /// before the next call.
    Full(Unplaced),
}

/// A slot that is not in use any more, and not free yet: the granule at which it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Unplaced(pub(crate) usize);
