//! Frees, resizes and questions of a pool and of the plain one.

extern crate std;

use crate::error::{BufferAllocateError, BufferFreeError, BufferResizeError};
use crate::heap::front::Freed;
use crate::plain::both::{Both, UNITS};
use crate::plain::pool::{By, GLOBAL};
use crate::superblock::class::{
    LAYOUTS, SLOT_BYTES_MAX, SLOT_BYTES_MIN, UNIT_BYTES, class_for, class_of,
};

impl Both {
    /// The number of the heap whose slot a block in use is, and whether others of its superblock were returned.
    pub(crate) fn owner(&self, offset: usize) -> Option<(usize, bool)> {
        let block = &self.plain.blocks[&self.plain.block_of(offset)?];
        Some((block.heap, !block.returned.is_empty()))
    }

    /// Frees the block at a place of the list of those in use, by a heap or by none.
    pub(crate) fn free(&mut self, index: usize, number: usize, way: u64) {
        let (offset, size) = self.used[index];
        let block = self.at(offset);
        for mark in self.marks(offset, size) {
            // SAFETY: as for `mark`.
            assert_eq!(unsafe { mark.read() }, offset.to_le_bytes(), "{offset:#x} of {size} bytes");
        }
        let owner = self.owner(offset);
        let freed = match owner {
            _ if number == GLOBAL => {
                // SAFETY: not used after.
                unsafe { self.real.pool.free(block).unwrap() };
                self.freed_elsewhere(number, offset);
                true
            }
            Some((owner, has_returned)) if owner == number => {
                self.free_own(number, offset, has_returned, way)
            }
            Some(_) => self.free_anothers(number, offset, way),
            None => self.free_segment(number, offset, way),
        };
        if freed {
            self.used.swap_remove(index);
            self.refused(number, offset);
        }
    }

    /// What the plain pool makes of a free by who has no part in a block.
    fn freed_elsewhere(&mut self, number: usize, offset: usize) {
        if self.owner(offset).is_some() {
            self.plain.free_remote(offset);
        } else {
            self.plain.free_segment(number, (offset / UNIT_BYTES) as u32);
        }
    }

    fn free_own(&mut self, number: usize, offset: usize, has_returned: bool, way: u64) -> bool {
        let (block, front) = (self.at(offset), self.front(number));
        let is_first = self.plain.block_of(offset) == Some((offset / UNIT_BYTES) as u32);
        let len = self.plain.len(offset).unwrap();
        let by = match way {
            0 | 1 => {
                // SAFETY: not used after, if it was freed.
                let freed = unsafe {
                    if way == 0 {
                        front.free(block.as_ptr())
                    } else {
                        // Of another class it frees nothing.
                        let wrong = front.free_sized(block.as_ptr(), len + 1);
                        assert_eq!(wrong, Freed::No);
                        front.free_sized(block.as_ptr(), len)
                    }
                };
                assert_eq!(freed == Freed::No, has_returned, "{offset:#x}");
                if has_returned {
                    return false;
                }
                self.put_back(number, freed);
                By::Front
            }
            2 => {
                // SAFETY: as above.
                let freed = unsafe { front.free_shared(block.as_ptr()) };
                assert_eq!(freed != Freed::No, has_returned && is_first, "{offset:#x}");
                if freed == Freed::No {
                    return false;
                }
                self.put_back(number, freed);
                By::Front
            }
            _ => {
                // SAFETY: as above.
                unsafe {
                    if way == 3 {
                        assert!(self.heap(number).free_in_superblock(block.as_ptr()));
                    } else {
                        self.heap(number).free(block).unwrap();
                    }
                }
                if way == 3 { By::Superblock } else { By::Heap }
            }
        };
        self.plain.free_own(number, offset, by);
        true
    }

    fn put_back(&mut self, number: usize, freed: Freed) {
        if let Freed::Full(slot) = freed {
            let heap = self.heaps[number].as_ref().unwrap();
            // SAFETY: the front has just said so.
            unsafe { heap.front().put_back(slot, |due| heap.settle(due)) };
        }
    }

    fn free_anothers(&mut self, number: usize, offset: usize, way: u64) -> bool {
        let block = self.at(offset);
        let is_first = self.plain.block_of(offset) == Some((offset / UNIT_BYTES) as u32);
        // SAFETY: not used after, if it was freed.
        let freed = unsafe {
            match way {
                0 => {
                    assert_eq!(self.front(number).free(block.as_ptr()), Freed::No);
                    false
                }
                1 => {
                    let freed = self.front(number).free_shared(block.as_ptr());
                    assert_eq!(freed == Freed::Done, is_first, "{offset:#x}: {freed:?}");
                    is_first
                }
                2 => self.heap(number).free_in_superblock(block.as_ptr()),
                _ => self.heap(number).free(block).is_ok(),
            }
        };
        assert!(freed || way < 2);
        if freed {
            self.plain.free_remote(offset);
        }
        freed
    }

    fn free_segment(&mut self, number: usize, offset: usize, way: u64) -> bool {
        let (block, first) = (self.at(offset), (offset / UNIT_BYTES) as u32);
        // SAFETY: not used after, if it was freed.
        unsafe {
            assert_eq!(self.front(number).free(block.as_ptr()), Freed::No);
            assert_eq!(self.front(number).free_shared(block.as_ptr()), Freed::No);
            assert!(!self.heap(number).free_in_superblock(block.as_ptr()));
            if way == 0 {
                let kept = self.front(number).free_segment(block.as_ptr());
                assert_eq!(kept, self.plain.free_segment_quickly(number, first), "{offset:#x}");
                return kept;
            }
            self.heap(number).free(block).unwrap();
        }
        self.plain.free_segment(number, first);
        true
    }

    /// What is not in use is refused, however it is named, and why is told.
    pub(crate) fn refused(&mut self, number: usize, offset: usize) {
        let block = self.at(offset);
        let address = block.addr().get();
        let error = match self.plain.block_of(offset) {
            _ if offset >= UNITS * UNIT_BYTES => BufferFreeError::Foreign { address },
            Some(first) => {
                let layout = LAYOUTS[self.plain.blocks[&first].class];
                let within = offset - first as usize * UNIT_BYTES;
                let is_slot = within.is_multiple_of(layout.size as usize)
                    && within < (layout.size * layout.slots) as usize;
                match is_slot {
                    true => BufferFreeError::NotAllocated { address },
                    false => BufferFreeError::Misaligned { address },
                }
            }
            None if self.plain.segments.contains_key(&((offset / UNIT_BYTES) as u32)) => {
                BufferFreeError::Misaligned { address }
            }
            None => BufferFreeError::NotAllocated { address },
        };
        let pool = self.real.pool;
        assert_eq!(pool.usable_size(block), Err(error));
        assert_eq!(pool.place_of(block), Err(error));
        assert_eq!(pool.contains(address), offset < UNITS * UNIT_BYTES);
        // SAFETY: it is not freed.
        assert_eq!(unsafe { pool.free(block) }, Err(error));
        if number != GLOBAL {
            let front = self.front(number);
            // SAFETY: as above.
            unsafe {
                assert_eq!(front.free(block.as_ptr()), Freed::No);
                assert_eq!(front.free_shared(block.as_ptr()), Freed::No);
                assert_eq!(front.resize(block, 100), None);
                assert!(!self.heap(number).free_in_superblock(block.as_ptr()));
                assert_eq!(self.heap(number).free(block), Err(error));
                self.plain.look_at(number, offset);
                let error = Err(BufferResizeError::Free(error));
                assert_eq!(self.heap(number).resize(block, 100, 16), error);
            }
            assert_eq!(self.heap(number).place_of_own(block), None);
        }
    }

    /// What a block in use is, however it is asked for.
    pub(crate) fn ask(&mut self, index: usize, number: usize, size: usize) {
        let (offset, _) = self.used[index];
        let (block, pool) = (self.at(offset), self.real.pool);
        let place = self.place(block);
        let heap = self.heaps[number].as_ref().unwrap();
        assert!(pool.contains(block.addr().get()));
        assert!(heap.front().is_of(heap.as_raw()));
        let other = self.heaps.iter().flatten().find(|other| other.as_raw() != heap.as_raw());
        assert!(other.is_none_or(|other| !heap.front().is_of(other.as_raw())));
        assert_eq!((pool.place_of(block), pool.place_of_new(block)), (Ok(place), Ok(place)));
        assert_eq!((heap.place_of(block), heap.place_of_new(block)), (Ok(place), Ok(place)));
        let is_own = self.owner(offset) == Some((number, false)) && {
            let first = self.plain.block_of(offset).unwrap();
            LAYOUTS[self.plain.blocks[&first].class].units == 1
        };
        assert_eq!(heap.place_of_own(block), is_own.then_some(place));
        let align = 1 << self.random.below(19);
        let class = class_for(size, align.max(SLOT_BYTES_MIN));
        let may_be = match place.is_segment {
            false => class == Some(class_of(place.len_bytes)),
            true => {
                let units = self.plain.segments[&((offset / UNIT_BYTES) as u32)];
                // Without room for a superblock of several units a long slot's request gets a segment.
                class.is_none_or(|class| LAYOUTS[class].units > 1)
                    && self.plain.units_for(size) == Some(units)
            }
        };
        assert_eq!(pool.may_be_of(block, size, align), may_be, "{size} at {align}");
        let units = if place.is_segment { place.len_bytes / UNIT_BYTES - 1 } else { 0 };
        for on in [true, false] {
            let before = self.real.units.guarded.lock().unwrap().len();
            // SAFETY: nothing is written meanwhile.
            let guarded = unsafe { pool.guard_segment(block, on) };
            assert_eq!(guarded, units * UNIT_BYTES, "{offset:#x}");
            let after = self.real.units.guarded.lock().unwrap().len();
            assert_eq!(before.abs_diff(after), units);
            assert_eq!(after > before, on && units > 0);
        }
    }

    /// Resizes a block that a heap frees after, if it moves.
    pub(crate) fn resize(&mut self, index: usize, number: usize, size: usize, way: u64) {
        let (offset, old_size) = self.used[index];
        let (block, old) = (self.at(offset), self.plain.len(offset).unwrap());
        let align = if way == 0 { 1 << self.random.below(19) } else { 16 };
        let is_served = self.plain.serves(old, size, align);
        let first = (offset / UNIT_BYTES) as u32;
        let fits = block.addr().get().is_multiple_of(align)
            && match self.owner(offset) {
                Some(_) => is_served,
                None => class_for(size, align).is_none() && self.plain.resize_segment(first, size),
            };
        if way == 1 {
            // SAFETY: nothing is written beyond the size.
            let done = unsafe { self.heap(number).resize_in_place(block, size, align) };
            assert_eq!(done, Ok(fits), "{size} bytes at {align}");
            if fits {
                self.resized(index, offset, size.min(old_size), size);
            }
            return;
        }
        // SAFETY: used only where it lies then.
        let resized = unsafe { self.heap(number).resize(block, size, align) };
        if fits {
            assert_eq!(resized, Ok(block));
            return self.resized(index, offset, size.min(old_size), size);
        }
        let expected = self.plain.allocate(number, size, align);
        let error = BufferAllocateError { size_bytes: size, align_bytes: align };
        assert_eq!(resized.err(), expected.is_none().then_some(error.into()), "{size} at {align}");
        let Some(moved) = expected else { return };
        assert_eq!(resized, Ok(self.at(moved)));
        match self.owner(offset) {
            Some((owner, _)) if owner == number => {
                self.plain.free_own(number, offset, By::Heap);
                self.bury(number, offset);
            }
            _ => self.freed_elsewhere(number, offset),
        }
        self.copied(index, offset, moved, old_size, size);
    }

    /// Resizes a block by its heap's front.
    pub(crate) fn resize_by_front(&mut self, index: usize, number: usize, size: usize) {
        let (offset, old_size) = self.used[index];
        let block = self.at(offset);
        // SAFETY: used only where it lies then.
        let resized = unsafe { self.front(number).resize(block, size) };
        let is_own = self.owner(offset) == Some((number, false)) && size <= SLOT_BYTES_MAX;
        let old = self.plain.len(offset).unwrap();
        if is_own && size != 0 && self.plain.serves(old, size, SLOT_BYTES_MIN) {
            assert_eq!(resized, Some(block));
            return self.resized(index, offset, size.min(old_size), size);
        }
        let has_room = is_own && self.plain.has_room(number, class_of(old));
        let moved = match has_room && size != 0 {
            true => self.plain.take(number, class_of(size)),
            false => None,
        };
        assert_eq!(resized, moved.map(|moved| self.at(moved)), "{size} bytes");
        let Some(moved) = moved else { return };
        self.plain.free_own(number, offset, By::Front);
        self.bury(number, offset);
        self.copied(index, offset, moved, old_size, size);
    }

    /// The slot that was left comes second, if its superblock is still the heap's.
    fn bury(&mut self, number: usize, offset: usize) {
        if let Some(first) = self.plain.block_of(offset) {
            let block = &self.plain.blocks[&first];
            if block.heap == number {
                let class = block.class;
                self.plain.bury(number, class);
            }
        }
    }

    /// A block has other bytes, from where it was.
    fn copied(&mut self, index: usize, from: usize, to: usize, old_size: usize, size: usize) {
        let [start, end] = self.marks(to, old_size);
        let expected = from.to_le_bytes();
        if size >= 8 {
            // SAFETY: in use, and so long.
            assert_eq!(unsafe { start.read() }, expected);
        }
        if size >= old_size.max(8) {
            // SAFETY: as above.
            assert_eq!(unsafe { end.read() }, expected, "{old_size} bytes, to {size}");
        }
        self.refused(GLOBAL, from);
        self.resized(index, to, 0, size);
    }

    fn resized(&mut self, index: usize, offset: usize, stays: usize, size: usize) {
        if stays >= 8 {
            // SAFETY: in use, and so long.
            let mark = unsafe { self.marks(offset, stays)[0].read() };
            assert_eq!(mark, offset.to_le_bytes());
        }
        let len = self.plain.len(offset).unwrap();
        assert_eq!(self.real.pool.usable_size(self.at(offset)), Ok(len));
        self.mark(offset, size);
        self.used[index] = (offset, size);
    }
}
