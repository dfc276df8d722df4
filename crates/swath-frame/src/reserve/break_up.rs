//! The end of reservations: they are broken up under shortage, the oldest first, where frames in a row are wanted, and
//! where pages leave their object.

use core::ops::{DerefMut, Range};

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameAllocator;
use crate::hardening::{Hardening, Latch, Table as Words};
use crate::reserve::reservations::Reservations;
use crate::reserve::slots::{NONE, Slot};
use crate::reserve::table::{Entry, Key};

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>, H: Hardening> Reservations<A, W, H> {
    /// Breaks up a reservation: how many frames went back. What nobody holds
    /// goes back; parts of the level below that are populated stay reserved.
    /// O(words of its bits + parts·L), and as many steps through the queue as
    /// it has reservations between its parts: none if it is the oldest. `run_frames` of its frames
    /// are held and not counted: they stay with the caller.
    fn break_up(&mut self, level: usize, root: Slot, run_frames: u64) -> u64 {
        let Self { slots, .. } = *self;
        let entry = self.may_go(level, root, run_frames);
        if H::CHECKED && (self.latch.fault().is_some() || entry.is_none()) {
            self.stop(Words::Reservations);
            return 0;
        }
        let words = &mut *self.storage;
        let frames = slots.frames(level, root);
        let populated = slots.populated(words, root);
        let (object, index) = (slots.object(words, root), slots.index(words, root));
        let mut after = NONE;
        if populated < frames.count {
            after = slots.links(words, root).1;
            slots.dequeue(words, slots.all, root);
        }
        // Parts are not younger than what they are parts of: from its place on
        // towards the head, each goes behind what is not younger.
        let mut part = slots.queue(words, root).1;
        // Each is asked once, whatever links say.
        let (mut parts, mut steps) = (slots.all, slots.all);
        while part != NONE && parts > 0 {
            parts -= 1;
            let older = slots.links(words, part).0;
            while steps > 0 {
                steps -= 1;
                let before = slots.before(words, slots.all, after);
                if before == NONE || slots.stamp(words, before) <= slots.stamp(words, part) {
                    break;
                }
                after = before;
            }
            slots.enqueue(words, slots.all, part, after);
            (after, part) = (part, older);
        }
        self.drop_root(level, root, entry);
        self.reserved -= frames.count - populated;
        self.counters.broken_up += 1;
        if level == 0 {
            return self.give_back_free(frames);
        }
        let part_frames = slots.order(level - 1).frames();
        let mut empty = Extent::new(frames.start, 0);
        let mut back = 0;
        for offset in (0..frames.count).step_by(part_frames as usize) {
            let start = frames.start.raw() + offset;
            let part = slots.slot(level - 1, start);
            let populated = slots.populated(&self.storage, part);
            if populated == 0 {
                empty.count += part_frames;
            } else {
                back += self.give_back_free(empty);
                empty = Extent::new(Pfn::new(start + part_frames), 0);
                if self.make_root(level - 1, part, object, index + offset).is_err() {
                    self.stop(Words::Ranges);
                    return back;
                }
                self.reserved += part_frames - populated;
            }
        }
        back + self.give_back_free(empty)
    }

    /// Returns the frames of `extent` that nobody holds: how many.
    fn give_back_free(&mut self, extent: Extent) -> u64 {
        let Self { under, storage, slots, .. } = self;
        let mut back = 0;
        slots.for_each_free(storage, extent, &mut |piece| {
            let freed = under.free(piece);
            debug_assert!(H::CHECKED || freed == Ok(()), "frames taken beneath are not taken back");
            back += piece.count;
        });
        back
    }

    /// Breaks up the reservation that was populated least recently; whether
    /// there was one.
    pub(crate) fn reclaim(&mut self) -> bool {
        let (oldest, _) = self.slots.queue(&self.storage, self.slots.all);
        if oldest == NONE {
            if H::CHECKED && self.reserved > 0 {
                self.stop(Words::Reservations);
            }
            return false;
        }
        self.counters.reclaimed += 1;
        self.counters.reclaimed_frames += self.break_up(self.slots.level(oldest), oldest, 0);
        self.latch.fault().is_none()
    }

    /// Allocates 2^`order` aligned frames out of the first reservation in the
    /// queue that has them, and breaks that up.
    pub(crate) fn reclaim_aligned(&mut self, order: Order) -> Option<Extent> {
        let Self { slots, .. } = *self;
        let mut slot = slots.queue(&self.storage, slots.all).0;
        let mut left = slots.all;
        let run = loop {
            if slot == NONE || left == 0 {
                return None;
            }
            left -= 1;
            let frames = slots.frames(slots.level(slot), slot);
            if H::CHECKED && self.may_go(slots.level(slot), slot, 0).is_none() {
                self.stop(Words::Reservations);
                return None;
            }
            let unpopulated = frames.count.saturating_sub(slots.populated(&self.storage, slot));
            if unpopulated >= order.frames()
                && let Some(run) = slots.find_free(&self.storage, frames, order)
            {
                break run;
            }
            slot = slots.links(&self.storage, slot).1;
        };
        // Held, the frames do not go back with the others. Where the run lies
        // in a part that stays reserved, that is broken up too.
        slots.hold(&mut self.storage, run);
        self.counters.reclaimed_frames += run.count;
        while let Some((level, slot)) = slots.root_of(&self.storage, run.start.raw()) {
            self.counters.reclaimed += 1;
            self.counters.reclaimed_frames += self.break_up(level, slot, run.count);
            if self.latch.fault().is_some() {
                return None;
            }
        }
        Some(run)
    }

    /// Breaks up every reservation of `object` that covers one of `pages`;
    /// parts of a higher level that cover none of them stay reserved. Whoever
    /// holds frames keeps them. For pages that leave their object with their
    /// frames (an object that dies frees them, which needs no more).
    ///
    /// O(p·L) for p ranges of the lowest level around `pages`, and less where
    /// nothing is reserved at the top level; at most O(slots). Breaking up adds
    /// its own.
    pub fn release(&mut self, object: u64, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        let Self { slots, .. } = *self;
        let top = slots.levels.orders().len() - 1;
        let k = slots.levels.lowest().k();
        if ((pages.end - 1) >> k) - (pages.start >> k) < u64::from(slots.all) {
            return self.release_ranges(object, pages, top);
        }
        for level in (0..=top).rev() {
            for slot in slots.slots(level) {
                let words = &*self.storage;
                let index = slots.index(words, slot);
                if slots.is_root(words, slot)
                    && slots.object(words, slot) == object
                    && index < pages.end
                    && index.saturating_add(slots.order(level).frames() - 1) >= pages.start
                {
                    self.break_up(level, slot, 0);
                }
            }
        }
    }

    /// [`release`](Self::release) by looking each range of `level` around
    /// `pages` up, and those below it.
    fn release_ranges(&mut self, object: u64, pages: Range<u64>, level: usize) {
        let order = self.slots.order(level);
        for range in pages.start >> order.k()..=(pages.end - 1) >> order.k() {
            let index = range << order.k();
            match self.table.get(&self.storage, Key { object, index, level }) {
                None if H::CHECKED && self.look(object, index).is_err() => {
                    self.stop(Words::Ranges);
                    return;
                }
                None => continue,
                Some(Entry::Root(slot)) => {
                    let Self { slots, storage, .. } = &*self;
                    if H::CHECKED && !slots.is_root_of(storage, level, slot, object, index) {
                        self.stop(Words::Ranges);
                        return;
                    }
                    self.break_up(level, slot, 0);
                }
                Some(Entry::Below(_)) => {}
            }
            if let Some(below) = level.checked_sub(1) {
                // Its last page may be the last of all.
                let end = pages.end.min(index.saturating_add(order.frames()));
                self.release_ranges(object, pages.start.max(index)..end, below);
            }
        }
    }
}
