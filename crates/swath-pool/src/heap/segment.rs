//! Segments, the blocks longer than any slot: runs of units straight from the
//! source, under the pool's lock, or of those that the heap kept. And resizing, of slots too.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::error::{BufferAllocateError, BufferFreeError, BufferResizeError};
use crate::heap::front::is_served_in;
use crate::heap::kept::SEGMENT_UNITS_MAX;
use crate::heap::local::LocalHeap;
use crate::heap::run::Run;
use crate::pool::buffer_pool::{BufferPool, Found};
use crate::pool::global::Global;
use crate::source::segment_source::{Placement, SegmentSource};
use crate::superblock::class::{UNIT_BYTES, UNIT_GRANULES_SHIFT, UNIT_SHIFT, class_for};
use crate::superblock::owner::Owner;
use crate::superblock::record::Superblock;

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    fn guard_units(&self) -> u32 {
        u32::from(self.options().guard_segments)
    }

    /// Guards the last unit of a segment, if segments have guards, or makes it usable again.
    fn guard(&self, first: u32, units: u32, on: bool) {
        if self.guard_units() != 0
            && let Some(pages) = self.make_usable
        {
            pages.guard(first + units - 1, 1, on);
        }
    }

    /// Makes a segment in use fault at every access, but for its last unit, or (`on` false) usable again, and
    /// returns the bytes that do; 0 for a slot, or where the source has no guards. The source may have none
    /// for some pages: those stay as they are.
    ///
    /// # Safety
    /// The segment's user no longer uses it, or (`on` false) `on` was the last call.
    pub unsafe fn guard_segment(&self, block: NonNull<u8>, on: bool) -> usize {
        let Ok((index, Found::Segment)) = self.find(block.addr().get()) else { return 0 };
        let units = self.superblocks()[index as usize].segment_units();
        let (Some(units), Some(pages)) = (units, self.make_usable) else { return 0 };
        let all_but_last = units.saturating_sub(self.guard_units() + 1);
        if all_but_last > 0 {
            pages.guard(index, all_but_last, on);
        }
        (all_but_last as usize) << UNIT_SHIFT
    }

    /// Returns the units of a segment for `size` bytes, with its guard.
    pub(crate) fn units_for(&self, size: usize) -> Option<u32> {
        let units = u32::try_from(size.max(1).div_ceil(UNIT_BYTES)).ok()?;
        units.checked_add(self.guard_units())
    }

    /// Allocates a segment for `size` bytes, and says if they are zero.
    #[cold]
    #[inline(never)]
    fn allocate_segment(&self, size: usize, align: usize) -> Option<(NonNull<u8>, bool)> {
        let units = self.units_for(size)?;
        let align_units = u32::try_from(align >> UNIT_SHIFT).ok()?.max(1);
        self.begin_segment(units, |global| global.acquire_segment(units, align_units))
    }

    /// Allocates a segment for `size` bytes, one run of physical memory where `placement` admits it, and
    /// says if they are zero; `None` if the source has no such run.
    #[cold]
    #[inline(never)]
    pub fn allocate_placed(
        &self,
        size: usize,
        placement: &Placement,
    ) -> Option<(NonNull<u8>, bool)> {
        let units = self.units_for(size)?;
        self.begin_segment(units, |global| global.acquire_placed(units, placement))
    }

    /// Makes a segment of units that `acquire` acquires.
    fn begin_segment(
        &self,
        units: u32,
        acquire: impl Fn(&mut Global<'m, S>) -> Option<(u32, bool)>,
    ) -> Option<(NonNull<u8>, bool)> {
        let mut global = self.lock();
        let (first, zero) = loop {
            if let Some(found) = acquire(&mut global) {
                break found;
            }
            if !self.gather(&mut global) {
                return None;
            }
        };
        drop(global);
        if !self.make_usable(first, units) {
            self.lock().release(first, units);
            return None;
        }
        self.guard(first, units, true);
        self.superblocks()[first as usize].begin_segment(units);
        Some((self.unit_start(first), zero))
    }

    /// Ends the segment that begins at unit `index`, and returns its units. One whose record was
    /// overwritten is left as it is.
    fn end_segment(&self, index: u32, address: usize) -> Result<u32, BufferFreeError> {
        let superblock = &self.superblocks()[index as usize];
        if superblock.owner() == Owner::SEGMENT && superblock.segment_units().is_none() {
            return Err(BufferFreeError::Corrupt { unit: index });
        }
        superblock.end_segment().ok_or(BufferFreeError::NotAllocated { address })
    }

    /// Frees the segment that begins at unit `index`.
    pub(crate) fn free_segment(&self, index: u32, address: usize) -> Result<(), BufferFreeError> {
        let units = self.end_segment(index, address)?;
        self.guard(index, units, false);
        self.lock().release(index, units);
        Ok(())
    }

    /// Makes a segment as long as `size` wants, where it is, and returns true if it could.
    fn resize_segment(&self, index: u32, size: usize) -> bool {
        let Some(wanted) = self.units_for(size) else { return false };
        let superblock = &self.superblocks()[index as usize];
        let Some(units) = superblock.segment_units() else { return false };
        if wanted > units && !self.extend(index, units, wanted - units) {
            return false;
        }
        if wanted != units {
            self.guard(index, units, false);
            self.guard(index, wanted, true);
        }
        // A fork finds it in use, and no thread frees it meanwhile.
        let mut global = self.lock();
        if superblock.segment_units() != Some(units) || superblock.end_segment().is_none() {
            drop(global);
            // Freed by another thread: the old guard is not this call's any more.
            if wanted != units {
                self.guard(index, wanted, false);
            }
            if wanted > units {
                self.lock().release(index + units, wanted - units);
            }
            return false;
        }
        if wanted < units {
            global.release(index + wanted, units - wanted);
        }
        superblock.begin_segment(wanted);
        true
    }

    /// Acquires the `more` units behind a segment, and returns true if they are usable.
    fn extend(&self, index: u32, units: u32, more: u32) -> bool {
        let mut global = self.lock();
        if !global.source.extend(index, units, more) {
            return false;
        }
        global.note_acquired(index + units, more);
        drop(global);
        let usable = self.make_usable(index + units, more);
        if !usable {
            self.lock().release(index + units, more);
        }
        usable
    }

    /// Returns true if the block of unit `index` can serve `size` bytes where it is.
    fn fits(&self, index: u32, found: Found, old: usize, size: usize, align: usize) -> bool {
        match found {
            Found::Slot(_) => {
                is_served_in(old, size, class_for(size, align) == class_for(old, align))
            }
            Found::Segment => class_for(size, align).is_none() && self.resize_segment(index, size),
        }
    }
}

impl<'m, L: RawMutex, S: SegmentSource> LocalHeap<'_, 'm, L, S> {
    /// Allocates a segment for `size` bytes, and says if they are zero: of units that the heap kept, or the
    /// source's.
    pub(crate) fn allocate_segment(
        &self,
        size: usize,
        align: usize,
    ) -> Option<(NonNull<u8>, bool)> {
        if align <= UNIT_BYTES
            && let Some(block) = self.front().take_segment(size)
        {
            return Some((block, false));
        }
        let pool = self.pool();
        if align <= UNIT_BYTES
            && pool.guard_units() == 0
            && let Some(units) = pool.units_for(size)
            && units <= SEGMENT_UNITS_MAX
            && let Some(first) = self.slot.kept.take(units, S::PAGE_UNITS, |run| pool.leave(run))
        {
            pool.superblocks()[first as usize].begin_segment(units);
            return Some((pool.unit_start(first), false));
        }
        pool.allocate_segment(size, align)
    }

    /// Keeps the units of a segment as [`Front::free_segment`](crate::Front::free_segment) does, of each.
    #[inline(always)]
    pub(crate) fn keep_short_segment_of(&self, granule: usize, superblock: &Superblock) -> bool {
        granule.is_multiple_of(1 << UNIT_GRANULES_SHIFT)
            && self.front().keep_segment(granule, superblock, |_| true)
    }

    /// As [`keep_short_segment_of`](Self::keep_short_segment_of), after a count of what was gathered.
    pub(crate) fn keep_short_segment(&self, granule: usize) -> bool {
        let superblock = self.pool().superblocks().get(granule >> UNIT_GRANULES_SHIFT);
        superblock.is_some_and(|superblock| {
            self.keep_short_segment_of(granule, superblock)
                || (self.slot.kept.short.count() && self.keep_short_segment_of(granule, superblock))
        })
    }

    /// Frees the segment that begins at unit `index`, and keeps its units for the next ones.
    pub(crate) fn free_segment(&self, index: u32, address: usize) -> Result<(), BufferFreeError> {
        let pool = self.pool();
        let superblock = &pool.superblocks()[index as usize];
        let keeps = pool.crowded.load(Relaxed) && pool.guard_units() == 0;
        if !keeps || superblock.units.load(Relaxed) > SEGMENT_UNITS_MAX {
            return pool.free_segment(index, address);
        }
        let units = pool.end_segment(index, address)?;
        self.slot.kept.keep(Run { first: index, units }, |run| pool.leave(run));
        Ok(())
    }

    /// Makes `block` at least `size` bytes long where it is, if it lies at a multiple of `align` there and
    /// has the room: in place within its class, or a segment by whole units. Returns false, and changes
    /// nothing, if not.
    ///
    /// # Errors
    /// [`BufferResizeError`]; nothing changes.
    ///
    /// # Safety
    /// If `block` was in use, no byte beyond `size` is used after, and no other thread uses it meanwhile.
    pub unsafe fn resize_in_place(
        &mut self,
        block: NonNull<u8>,
        size: usize,
        align: usize,
    ) -> Result<bool, BufferResizeError> {
        let pool = self.pool();
        let old = pool.usable_size(block)?;
        let address = block.addr().get();
        let (index, found) = pool.find(address)?;
        if !align.is_power_of_two() {
            return Err(BufferAllocateError { size_bytes: size, align_bytes: align }.into());
        }
        Ok(address.is_multiple_of(align) && pool.fits(index, found, old, size, align))
    }

    /// Makes `block` at least `size` bytes long, at a multiple of `align`: in
    /// place within its class, or a segment by whole units; else the bytes
    /// are copied. Returns where it is now.
    ///
    /// # Errors
    /// [`BufferResizeError`]; nothing changes.
    ///
    /// # Safety
    /// If `block` was in use, it is used after only where it lies then, and
    /// no other thread uses it meanwhile.
    pub unsafe fn resize(
        &mut self,
        block: NonNull<u8>,
        size: usize,
        align: usize,
    ) -> Result<NonNull<u8>, BufferResizeError> {
        // SAFETY: as the caller says.
        if unsafe { self.resize_in_place(block, size, align)? } {
            return Ok(block);
        }
        let pool = self.pool();
        let old = pool.usable_size(block)?;
        let moved = self.allocate(size, align)?;
        // SAFETY: both are blocks in use, different ones, and at least so long.
        unsafe { block.copy_to_nonoverlapping(moved, old.min(size)) };
        // SAFETY: the caller uses it no more. It was in use a moment ago.
        unsafe { self.free(block)? };
        // Who still writes to the old place meets no other's block so soon.
        if let Some((_, superblock)) = pool.first_of(pool.cached_slot(block.addr().get()).granule)
            && self.owns(superblock)
        {
            self.slot.caches.bury(superblock.owner().class().into());
        }
        Ok(moved)
    }
}
