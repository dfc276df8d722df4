//! A fork of the process: the child rebuilds the pool.
//!
//! A fork copies the pool as other threads have it in the middle of a call. What
//! they leave behind is one of few things: a word of live bits is always before
//! or after a call, the pool's lock is held by the thread that forks, so that
//! every unit has an owner that is right; but caches, free bits, lists and counts of other
//! threads' heaps may be half changed. So the child believes the live bits only and builds
//! the rest anew, as if these threads had ended.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::heap::local::LocalHeap;
use crate::pool::buffer_pool::BufferPool;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::UNIT_GRANULES_SHIFT;
use crate::superblock::owner::Role;

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    /// Prepares for a fork: takes the pool's lock and keeps it.
    pub fn before_fork(&self) {
        let mut guard = self.lock();
        guard.source.before_fork();
        core::mem::forget(guard);
    }

    /// Ends the preparation for a fork in the parent: releases the lock.
    ///
    /// # Safety
    /// This thread called [`before_fork`](Self::before_fork) and none of the
    /// two calls after it yet.
    pub unsafe fn after_fork_in_parent(&self) {
        // SAFETY: this thread has the lock and no guard of it is left.
        let mut guard = unsafe { self.global.make_guard_unchecked() };
        guard.source.after_fork_in_parent();
    }

    /// Ends the preparation for a fork in the child: the heaps of all threads but `own` go to
    /// the global heap. Slots that those were about to free or to allocate stay in use, and so do
    /// units that they were about to keep or to reuse.
    ///
    /// O(h + u) for h heaps and u units used so far.
    ///
    /// # Safety
    /// As for the parent, and no other thread uses the pool until it returns. `own` is
    /// the only heap that is used from now on; others are forgotten, not dropped. It may lie in
    /// the arena: it need be there again only after the source's call.
    pub unsafe fn after_fork_in_child(&self, own: Option<NonNull<LocalHeap<'_, 'm, L, S>>>) {
        // SAFETY: this thread holds the lock and no guard of it is left.
        let mut guard = unsafe { self.global.make_guard_unchecked() };
        guard.source.after_fork_in_child();
        // SAFETY: nothing else uses it, and it is there.
        let own = own.map(|mut own| unsafe { own.as_mut() });
        let mine = own.as_ref().map(|heap| self.number_of(heap.slot));
        let superblocks = self.superblocks();
        self.list.forget();
        for slot in &self.heaps()[..guard.heaps_high] {
            slot.returned.forget();
            if mine != Some(self.number_of(slot)) {
                slot.detach();
            }
        }
        guard.partial.iter().for_each(|list| list.clear());
        let mut index = 0;
        while index < guard.high {
            let superblock = &superblocks[index as usize];
            superblock.leave_list();
            let owner = superblock.owner();
            let Role::Superblock { heap } = owner.role() else {
                index += 1;
                continue;
            };
            let units = superblock.units.load(Relaxed);
            if mine != Some(heap) {
                self.collect_slots(index, self.returned_bits(index).summary());
                let first = (index as usize) << UNIT_GRANULES_SHIFT;
                // The global heap has no cache.
                if heap != 0 {
                    superblock.free_all_but_live(self.live(), first);
                }
                superblock.recount(self.live(), first);
                self.receive(&mut guard, index);
            }
            index = index.saturating_add(units.max(1));
        }
        let high = guard.high;
        drop(guard);
        let Some(own) = own else { return };
        own.collect_all_returned(high);
    }
}
