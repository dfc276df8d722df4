//! The way back of a slot whose cache is full, and of all cached slots of a heap that ends: to their superblocks.
//!
//! One slot goes back at a time, as long as frees come from all over. Where short slots come back one beside the other, half
//! of the cache follows: the next frees find room, and the slots of one word of free bits need one change of it.

use lock_api::RawMutex;

use crate::heap::cache::Caches;
use crate::heap::front::{Front, Unplaced};
use crate::heap::reach::Reach;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{LAYOUTS, UNIT_GRANULES_SHIFT, WORDS, class_of, position_of};
use crate::superblock::record::Superblock;

/// Positions of a word, as a power of two.
const WORD_SHIFT: u32 = u64::BITS.ilog2();

/// Positions of a word.
const WORD: usize = 1 << WORD_SHIFT;

/// Granules within which two slots lie near each other.
const NEAR: usize = 512;

/// Classes up to 128 bytes, whose words of free bits have eight slots and more, and whose caches have most.
const SHORT_CLASSES: u8 = class_of(128) as u8 + 1;

/// A slot of a superblock with which something is to be done: the granule at which it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Due(pub(crate) usize);

impl<'m, L: RawMutex, S: SegmentSource, R: Reach<'m, L, S>> Front<'_, 'm, L, S, R> {
    /// Makes a slot whose free found the cache [full](crate::Freed::Full) free with its superblock; and half of the cache
    /// too, if short slots come back one beside the other. Calls `settle` with a slot of a superblock with which something
    /// is to be done, for [`LocalHeap::settle`](crate::LocalHeap::settle) before the next call.
    ///
    /// # Safety
    /// [`free`](Self::free) has just said so.
    #[inline(always)]
    pub unsafe fn put_back(self, slot: Unplaced, settle: impl FnOnce(Due)) {
        // SAFETY: as the caller says.
        unsafe { self.put_back_if(slot, |last| last ^ slot.0 < NEAR, settle) };
    }

    /// Makes a slot free as [`put_back`](Self::put_back) does, and no other.
    ///
    /// # Safety
    /// As for [`put_back`](Self::put_back).
    #[inline(always)]
    pub(crate) unsafe fn put_back_one(self, slot: Unplaced, settle: impl FnOnce(Due)) {
        // SAFETY: as the caller says.
        unsafe { self.put_back_if(slot, |_| false, settle) };
    }

    /// # Safety
    /// As for [`put_back`](Self::put_back).
    #[inline(always)]
    unsafe fn put_back_if(
        self,
        slot: Unplaced,
        is_near: impl FnOnce(usize) -> bool,
        settle: impl FnOnce(Due),
    ) {
        let Unplaced(granule) = slot;
        // SAFETY: the pool is there: the slot is one of its.
        let superblocks = unsafe { (*self.pool()).superblocks() };
        // SAFETY: as above, and each unit has a record.
        let superblock = unsafe { superblocks.get_unchecked(granule >> UNIT_GRANULES_SHIFT) };
        if superblock.owner().is_inner() {
            return self.put_back_inner(slot, settle);
        }
        let position = superblock.position(granule % (1 << UNIT_GRANULES_SHIFT));
        // The first of its word, near the last one that was so: slots come back one beside the other.
        if superblock.set_free(position) && is_near(self.slot().caches.change_last(granule)) {
            return self.put_back_more(granule, superblock, settle);
        }
        if superblock.count_free() {
            settle(Due(granule));
        }
    }

    /// Puts a slot back that begins in another unit than the superblock's first.
    #[inline(never)]
    fn put_back_inner(self, Unplaced(granule): Unplaced, settle: impl FnOnce(Due)) {
        // SAFETY: the pool is there: the slot is one of its.
        let pool = unsafe { &*self.pool() };
        if let Some((index, superblock)) = pool.first_of(granule)
            && superblock.free_slot(pool.position(index, granule))
        {
            settle(Due(granule));
        }
    }

    /// Counts a slot that was put back. Of a class whose words have many slots the upper half of the cache follows.
    #[inline(never)]
    fn put_back_more(self, granule: usize, superblock: &Superblock, settle: impl FnOnce(Due)) {
        if superblock.count_free() {
            return settle(Due(granule));
        }
        let owner = superblock.owner();
        let class = owner.class();
        // An owner's word that was overwritten is of no class.
        if class < SHORT_CLASSES && self.slot().caches.owner(class) == owner.0 {
            let class = usize::from(class);
            if let Some(due) = self.spill(class, Caches::half(class)) {
                settle(due);
            }
        }
    }

    /// Makes a class's cached slots but for the lowest `keep` free with their superblocks, the last one first. Ends early
    /// with the last of a superblock's slots with which something is to be done.
    #[inline(always)]
    pub(crate) fn spill(self, class: usize, keep: usize) -> Option<Due> {
        let caches = &self.slot().caches;
        // SAFETY: a heap that has slots is one of a pool.
        let pool = unsafe { &*self.pool() };
        let layout = LAYOUTS.get(class)?;
        let Some(mut len) = caches.len(class) else {
            caches.leave_out(class);
            return None;
        };
        let owner = caches.owner(class as u8);
        let due = if layout.units == 1 && layout.step == 1 {
            self.spill_words(class, owner, &mut len, keep, |granule| granule)
        } else if layout.units == 1 {
            const UNIT: usize = 1 << UNIT_GRANULES_SHIFT;
            self.spill_words(class, owner, &mut len, keep, |granule| {
                granule - granule % UNIT + position_of(granule % UNIT, layout.reciprocal) as usize
            })
        } else {
            let mut spilled = None;
            while len > keep && spilled.is_none() {
                len -= 1;
                let granule = caches.get(class, len).granule;
                // What was overwritten is nobody's.
                let own = |&(_, superblock): &(u32, &Superblock)| superblock.owner().0 == owner;
                if let Some((index, superblock)) = pool.first_of(granule).filter(own) {
                    let is_due = superblock.free_slot(pool.position(index, granule));
                    spilled = is_due.then_some(Due(granule));
                }
            }
            spilled
        };
        caches.set_len(class, len);
        due
    }

    /// Spills slots of superblocks of one unit: those of a word side by side at once. A slot's position in its superblock is
    /// `place` of its granule, less that of the unit's first.
    #[inline(always)]
    fn spill_words(
        self,
        class: usize,
        owner: u32,
        len: &mut usize,
        keep: usize,
        place: impl Fn(usize) -> usize,
    ) -> Option<Due> {
        let caches = &self.slot().caches;
        // SAFETY: a heap that has slots is one of a pool.
        let superblocks = unsafe { &*self.pool() }.superblocks();
        while *len > keep {
            let granule = caches.get(class, *len - 1).granule;
            let superblock = superblocks.get(granule >> UNIT_GRANULES_SHIFT);
            // What was overwritten is nobody's.
            let Some(superblock) = superblock.filter(|record| record.owner().0 == owner) else {
                *len -= 1;
                continue;
            };
            let before = *len;
            let mut position = place(granule);
            let (word, mut bits) = (position >> WORD_SHIFT, 0);
            loop {
                bits |= 1_u64 << (position % WORD);
                *len -= 1;
                if *len <= keep {
                    break;
                }
                position = place(caches.get(class, *len - 1).granule);
                if position >> WORD_SHIFT != word {
                    break;
                }
            }
            let count = before - *len;
            if superblock.free_slots(word % WORDS, bits, count as i32) {
                return Some(Due(granule));
            }
        }
        None
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use crate::heap::front::Freed;
    use crate::options::BufferOptions;
    use crate::plain::fixture::{Leaked, leaked};
    use crate::superblock::class::{UNIT_BYTES, class_of};

    /// Slots of one word side by side go back at once, though the first of them is one with which something is to be done.
    #[test]
    fn slots_of_a_word_go_back_together() {
        const SIZE: usize = 64;
        let Leaked { pool, .. } = leaked(16, 1, BufferOptions::default());
        let mut heap = pool.attach().unwrap();
        let slots = UNIT_BYTES / SIZE;
        let blocks: Vec<_> = (0..2 * slots + 1).map(|_| heap.allocate(SIZE, 16).unwrap()).collect();
        let (caches, class) = (&pool.heaps()[0].caches, class_of(SIZE));
        // Half of the cache is of the third superblock, above it 31 slots of the first, which is full.
        let third = caches.len(class).unwrap();
        assert_eq!(third, 63);
        let front = heap.front();
        for &block in blocks.iter().take(31) {
            // SAFETY: not used after.
            assert_eq!(unsafe { front.free(block.as_ptr()) }, Freed::Done);
        }
        // Slots of the second follow, until the first one of a word makes room.
        let mut lens = Vec::new();
        for &block in blocks.iter().skip(slots).take(64) {
            // SAFETY: not used after.
            if let Freed::Full(slot) = unsafe { front.free(block.as_ptr()) } {
                let before = caches.len(class).unwrap();
                // SAFETY: the front has just said so.
                unsafe { front.put_back(slot, |due| heap.settle(due)) };
                lens.push((before, caches.len(class).unwrap()));
                pool.check().unwrap();
            }
        }
        // All 32 slots of the second are gone that were there, and the 15 of the first in the word of its last one.
        let spilled: Vec<_> = lens.into_iter().filter(|(before, after)| before != after).collect();
        assert_eq!(spilled, [(126, 126 - 32 - 15)]);
    }
}
