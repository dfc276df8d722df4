//! The exchange of superblocks and units between heaps, the global heap and the source: all that
//! happens under the pool's one lock.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::error::BufferFreeError;
use crate::heap::run::Run;
use crate::heap::slot::HeapSlot;
use crate::pool::buffer_pool::{BufferPool, Found};
use crate::pool::global::Global;
use crate::source::segment_source::SegmentSource;
use crate::superblock::claim::CLOSED;
use crate::superblock::class::{CLASSES, LAYOUTS, UNIT_GRANULES_SHIFT};
use crate::superblock::list::ReturnList;
use crate::superblock::owner::{Owner, Role};
use crate::superblock::record::Superblock;

/// The number of the global heap as an owner.
const GLOBAL: u32 = 0;

/// The owner of a superblock whose record was overwritten: the global heap's, of no class.
const OVERWRITTEN: Owner = Owner::of(GLOBAL, CLASSES);

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    /// Moves all superblocks of a heap to the global heap.
    pub(crate) fn detach(&self, slot: &HeapSlot) {
        let mut global = self.lock();
        self.abandon(&mut global, slot);
        slot.detach();
        // What was pushed until now; the rest is found by the next user of the
        // slot, by a purge or when memory runs out.
        slot.returned.take(self.superblocks(), |index| self.collect_listed(&mut global, index));
    }

    fn abandon(&self, global: &mut Global<'m, S>, slot: &HeapSlot) {
        let superblocks = self.superblocks();
        for class in 0..CLASSES {
            if let Some(index) = slot.current(class)
                && let Some(superblock) = superblocks.get(index as usize)
            {
                slot.current[class].clear();
                let first = (index as usize) << UNIT_GRANULES_SHIFT;
                superblock.set_used(superblock.count_used(self.live(), first), 0);
                self.receive(global, index);
            }
            while let Some(index) = slot.partial[class].list.pop(superblocks) {
                self.receive(global, index);
            }
            slot.partial[class].sparse.store(0, Relaxed);
        }
        while let Some(index) = slot.full.pop(superblocks) {
            self.receive(global, index);
        }
        global.release_kept(&slot.kept);
    }

    /// Makes a superblock that its owner has taken out of its lists the global
    /// heap's, or releases it to the source if it is empty.
    pub(crate) fn receive(&self, global: &mut Global<'m, S>, index: u32) {
        let superblock = &self.superblocks()[index as usize];
        let used = self.believed_used(index);
        let Some(class) = superblock.class() else {
            // Nothing is allocated from it, and nobody knows how long it is.
            self.close_front(index);
            superblock.set_owner(OVERWRITTEN);
            return;
        };
        if used == 0 {
            self.release_superblock(global, index, class);
            return;
        }
        self.close_front(index);
        superblock.set_owner(Owner::of(GLOBAL, class));
        let is_full = used >= LAYOUTS[class].slots;
        superblock.set_full(is_full);
        if !is_full {
            global.partial[class].push(self.superblocks(), index);
        }
    }

    /// Slots of a superblock that are not free, as its count says, which has no mark then; by its bits, where it says that
    /// there are none: what is in use does not go back by a count that was overwritten.
    fn believed_used(&self, index: u32) -> u32 {
        let superblock = &self.superblocks()[index as usize];
        let used = match superblock.used() {
            used @ 1.. => used as u32,
            _ => superblock.count_used(self.live(), (index as usize) << UNIT_GRANULES_SHIFT),
        };
        superblock.set_used(used, 0);
        used
    }

    /// As [`receive`](Self::receive), taking the lock.
    pub(crate) fn receive_locked(&self, index: u32) {
        self.receive(&mut self.lock(), index);
    }

    fn release_superblock(&self, global: &mut Global<'m, S>, index: u32, class: usize) {
        let units = LAYOUTS[class].units;
        self.end_superblock(index, units);
        global.release(index, units);
    }

    /// Acquires a superblock of `class` with a free slot for the heap whose owner word is `owner`.
    pub(crate) fn acquire_superblock(&self, class: usize, owner: Owner) -> Option<u32> {
        let mut global = self.lock();
        self.collect_global(&mut global);
        loop {
            if let Some(index) = global.partial[class].pop(self.superblocks()) {
                let superblock = &self.superblocks()[index as usize];
                // What was overwritten is left out.
                if superblock.owner() != Owner::of(GLOBAL, class)
                    || superblock.class() != Some(class)
                {
                    continue;
                }
                let used = superblock.used() as u32;
                superblock.set_used(used, self.low(superblock.slots.load(Relaxed)));
                superblock.set_owner(owner);
                self.open_front(index);
                return Some(index);
            }
            let units = LAYOUTS[class].units;
            if let Some((first, _)) = global.acquire(units, 1) {
                drop(global);
                if !self.make_usable(first, units) {
                    self.lock().release(first, units);
                    return None;
                }
                self.begin_superblock(first, class, owner);
                return Some(first);
            }
            if !self.gather(&mut global) {
                return None;
            }
        }
    }

    /// Begins a superblock of `class` from unit `first` on, whose units are the caller's alone.
    pub(crate) fn begin_superblock(&self, first: u32, class: usize, owner: Owner) {
        let superblocks = self.superblocks();
        for distance in 1..LAYOUTS[class].units {
            superblocks[(first + distance) as usize].set_owner(Owner::inner(distance));
        }
        superblocks[first as usize].begin(class, owner);
        self.open_front(first);
    }

    /// Ends a superblock of so many units without a slot in use or at hand, which is in no list: they are the caller's
    /// alone then.
    pub(crate) fn end_superblock(&self, index: u32, units: u32) {
        self.close_front(index);
        let superblocks = self.superblocks().iter().skip(index as usize).take(units as usize);
        superblocks.for_each(|superblock| superblock.set_owner(Owner::FREE));
    }

    /// Lets the front of a superblock's owner, the caller, free slots of it, if no returned ones wait.
    pub(crate) fn open_front(&self, index: u32) {
        let superblock = &self.superblocks()[index as usize];
        self.set_fronts(index, superblock.owner().0);
        if superblock.queued_now() != 0 {
            self.close_front(index);
        }
    }

    /// Takes a superblock of the caller off its list of those with returned slots, and returns the summary of
    /// those; its front frees again.
    pub(crate) fn leave_list(&self, index: u32) -> u32 {
        let superblock = &self.superblocks()[index as usize];
        self.set_fronts(index, superblock.owner().0);
        superblock.leave_list()
    }

    /// Says for all units of a superblock whose front may free their slots.
    fn set_fronts(&self, index: u32, front: u32) {
        // Of a record that was overwritten nobody knows how many units there are.
        let class = self.superblocks()[index as usize].class();
        let units = class.map_or(1, |class| LAYOUTS[class].units);
        let claims = self.claims()[index as usize..].iter().take(units as usize);
        claims.for_each(|claim| claim.set_front(front));
    }

    /// Lets no front free slots of a superblock. Where that does it to others, too, since the record was overwritten,
    /// their next free opens them again.
    #[inline]
    fn close_front(&self, index: u32) {
        let claims = &self.claims()[index as usize..];
        claims[0].set_front(CLOSED);
        let units = self.superblocks()[index as usize].units.load(Relaxed);
        let units = units.min(LAYOUTS[CLASSES - 1].units);
        claims.iter().take(units as usize).skip(1).for_each(|inner| inner.set_front(CLOSED));
    }

    /// Puts a superblock that was found on a list and has another owner on
    /// that one's list.
    pub(crate) fn forward(&self, index: u32) {
        let owner = self.superblocks()[index as usize].owner();
        self.list_of(owner).push(self.superblocks(), index);
    }

    fn list_of(&self, owner: Owner) -> &ReturnList {
        match owner.role() {
            Role::Superblock { heap: heap @ 1.. } => {
                self.heaps().get(heap as usize - 1).map_or(&self.list, |heap| &heap.returned)
            }
            _ => &self.list,
        }
    }

    /// Collects the returned slots of a superblock, as its owner, and returns their number.
    pub(crate) fn collect_slots(&self, index: u32, summary: u32) -> u32 {
        let superblock = &self.superblocks()[index as usize];
        let first = (index as usize) << UNIT_GRANULES_SHIFT;
        let returned = self.returned_bits(index);
        let taken = superblock.collect_slots(summary, returned, self.live(), first);
        if taken.twice != 0 {
            self.late_double_frees.fetch_add(u64::from(taken.twice), Relaxed);
        }
        taken.slots
    }

    /// Reads the global heap's list of superblocks with returned slots.
    pub(crate) fn collect_global(&self, global: &mut Global<'m, S>) {
        self.list.take(self.superblocks(), |index| self.collect_listed(global, index));
    }

    /// Collects what lies on the global heap's list and on those of heaps without a thread, and
    /// the units that heaps keep. Returns true if there was anything for others to use.
    pub(crate) fn gather(&self, global: &mut Global<'m, S>) -> bool {
        let before = global.releases;
        self.collect_global(global);
        let mut any = false;
        for slot in &self.heaps()[..global.heaps_high] {
            if !slot.is_attached() && !slot.returned.is_empty() {
                slot.returned.take(self.superblocks(), |index| self.collect_listed(global, index));
                any = true;
            }
            global.release_kept(&slot.kept);
        }
        any || global.releases != before
    }

    /// Releases units that a heap has no room to keep.
    pub(crate) fn leave(&self, run: Run) {
        self.lock().release(run.first, run.units);
    }

    /// Collects the returned slots of a superblock that was on a list, if it is the global
    /// heap's.
    fn collect_listed(&self, global: &mut Global<'m, S>, index: u32) {
        let superblock = &self.superblocks()[index as usize];
        match superblock.owner().role() {
            Role::Superblock { heap: GLOBAL } => {}
            Role::Superblock { .. } => return self.forward(index),
            // The return was collected before the superblock left the list: there is nothing
            // to read.
            Role::Free | Role::Segment | Role::Inner(_) => {
                superblock.leave_list();
                return;
            }
        }
        let taken = self.collect_slots(index, superblock.leave_list());
        if taken == 0 {
            return;
        }
        global.remote_frees += u64::from(taken);
        let Some(class) = superblock.class() else { return };
        let list = &global.partial[class];
        if superblock.is_full() {
            superblock.set_full(false);
            list.push(self.superblocks(), index);
        }
        if self.believed_used(index) == 0 {
            list.remove(self.superblocks(), index);
            self.release_superblock(global, index, class);
        }
    }

    /// Returns the slot at `granule` of a superblock that is another's.
    #[inline(always)]
    pub(crate) fn free_remote(&self, index: u32, superblock: &Superblock, granule: usize) -> bool {
        if !self.live().has(granule) {
            return false;
        }
        let first = (index as usize) << UNIT_GRANULES_SHIFT;
        let position = superblock.position(granule.wrapping_sub(first));
        match superblock.return_slot(position, self.returned_bits(index)) {
            Ok(None) => true,
            Ok(Some(owner)) => {
                Self::begin_return(self, index, owner.0);
                true
            }
            Err(_) => false,
        }
    }

    /// The first slot came back to a superblock, which had this owner then: its owner is told.
    ///
    /// It has C's calling convention, which does not unwind, so that who calls it last needs no frame.
    #[inline(never)]
    extern "C" fn begin_return(pool: &Self, index: u32, owner: u32) {
        pool.close_front(index);
        pool.list_of(Owner(owner)).push(pool.superblocks(), index);
    }

    /// Frees `block` from a thread that has no heap: one to three atomic operations, or for a
    /// segment the lock.
    ///
    /// # Errors
    /// [`BufferFreeError`]; nothing changes.
    ///
    /// # Safety
    /// The block is not used after, if it was in use.
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<(), BufferFreeError> {
        let address = block.addr().get();
        match self.find(address)? {
            (index, Found::Slot(_)) => {
                let superblock = &self.superblocks()[index as usize];
                let freed = self.free_remote(index, superblock, self.cached_slot(address).granule);
                if freed { Ok(()) } else { Err(BufferFreeError::NotAllocated { address }) }
            }
            (index, Found::Segment) => self.free_segment(index, address),
        }
    }

    /// Returns the memory of units that were released at least the settings' delay before `now`
    /// to the system, and the number of these units. Cheap if it is called too early.
    ///
    /// O(u / 64) for u units used so far, and what the source takes.
    pub fn purge(&self, now: u64) -> u64 {
        if now < self.due.load(Relaxed) {
            return 0;
        }
        let mut global = self.lock();
        self.due.store(now.saturating_add(self.options().purge_delay), Relaxed);
        self.crowded.store(false, Relaxed);
        self.gather(&mut global);
        global.purge(false)
    }

    /// Returns the memory of all free units to the system at once, and the number of these units.
    pub fn purge_all(&self) -> u64 {
        let mut global = self.lock();
        self.gather(&mut global);
        global.purge(true)
    }
}
