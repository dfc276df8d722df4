//! What a full cache has no room for: half of its slots go back to their superblocks at once, so that the next frees find
//! room, and the slots of one word of free bits need one change of it.

use lock_api::RawMutex;

use crate::heap::cache::{CachedSlot, Caches};
use crate::heap::front::{Front, Unplaced};
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{LAYOUTS, UNIT_GRANULES_SHIFT, WORDS};

impl<L: RawMutex, S: SegmentSource> Front<'_, '_, L, S> {
    /// Makes room in the cache that was [full](crate::Freed::Full) for a slot, and puts it there. With a slot of a superblock
    /// with which something is to be done, [`LocalHeap::settle`](crate::LocalHeap::settle) has to be called before the
    /// next call.
    ///
    /// # Safety
    /// [`free`](Self::free) has just said so.
    #[inline(always)]
    pub unsafe fn put_back(self, slot: Unplaced) -> Option<Unplaced> {
        let Unplaced { granule, class } = slot;
        // SAFETY: the pool is there: the slot is one of its.
        let pool = unsafe { &*self.pool };
        let due = self.spill(class);
        let entry = CachedSlot { granule, address: pool.start_of(granule) };
        // Without room yet, as the place of its top was overwritten, the slot stays as it is, neither live nor free.
        self.slot().caches.push(class, entry);
        due.map(|granule| Unplaced { granule, class })
    }

    /// Makes the upper half of a class's cached slots free with their superblocks, the last one first. Ends early with the
    /// last of a superblock's slots with which something is to be done.
    #[inline(always)]
    fn spill(self, class: u8) -> Option<usize> {
        let (caches, class) = (&self.slot().caches, usize::from(class));
        // SAFETY: a heap that has slots is one of a pool.
        let pool = unsafe { &*self.pool };
        let (layout, mut len) = (LAYOUTS.get(class)?, caches.len(class)?);
        let half = Caches::half(class).min(len);
        let owner = caches.owner(class as u8);
        while len > half {
            let granule = caches.get(class, len - 1).granule;
            // What was overwritten is nobody's.
            let found = if layout.units == 1 {
                let unit = granule >> UNIT_GRANULES_SHIFT;
                pool.superblocks().get(unit).map(|superblock| (unit as u32, superblock))
            } else {
                pool.first_of(granule)
            };
            let Some((index, superblock)) =
                found.filter(|(_, superblock)| u64::from(superblock.owner().0) == owner)
            else {
                len -= 1;
                continue;
            };
            let first = (index as usize) << UNIT_GRANULES_SHIFT;
            let position = |granule: usize| granule.wrapping_sub(first) >> layout.shift;
            let word = position(granule) / 64;
            let (mut bits, mut count) = (0, 0);
            while len > half {
                let position = position(caches.get(class, len - 1).granule);
                if position / 64 != word {
                    break;
                }
                bits |= 1_u64 << (position % 64);
                (count, len) = (count + 1, len - 1);
            }
            if superblock.free_slots(word % WORDS, bits, count) {
                caches.set_len(class, len);
                return Some(granule);
            }
        }
        caches.set_len(class, len);
        None
    }
}
