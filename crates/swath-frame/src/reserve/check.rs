//! The walk over all that reservations hold true.

use core::ops::DerefMut;

use crate::allocator::FrameAllocator;
use crate::hardening::Hardening;
use crate::reserve::reservations::{PagePlace, Reservations};
use crate::reserve::slots::{NONE, Slot};
use crate::reserve::table::Entry;

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>, H: Hardening> Reservations<A, W, H> {
    /// Walks all invariants in O(words·L + free blocks); the first that does
    /// not hold is named.
    ///
    /// # Errors
    /// What is broken.
    pub fn check(&self) -> Result<(), &'static str> {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        let (mut roots, mut unpopulated, mut queued) = (0, 0, 0);
        let mut keys = 0;
        for level in 0..slots.levels.orders().len() {
            for slot in slots.slots(level) {
                let frames = slots.frames(level, slot);
                // A slot that overlaps the span's ends is never reserved.
                let root = slots.root_of(words, frames.start.max(slots.span.start).raw());
                let populated = slots.populated(words, slot);
                let is_root = slots.is_root(words, slot);
                let in_root = root.is_some_and(|(around, _)| around >= level);
                if is_root != (root == Some((level, slot))) {
                    return Err("a reservation within a reservation");
                }
                if !in_root {
                    if populated > 0 || slots.queue(words, slot) != (NONE, NONE) {
                        return Err("a slot outside reservations has a count or a queue");
                    }
                    continue;
                }
                if populated != slots.held_of(words, frames) {
                    return Err("a slot's count is not the number of its bits");
                }
                let mut partial = 0;
                if level > 0 {
                    let first = slots.slot(level - 1, frames.start.raw());
                    let part_frames = slots.order(level - 1).frames();
                    for part in first..first + (frames.count / part_frames) as Slot {
                        let populated = slots.populated(words, part);
                        partial += u64::from(populated > 0 && populated < part_frames);
                    }
                }
                if slots.check_queue(words, slot)? != partial {
                    return Err("a queue of parts does not hold the partially populated ones");
                }
                if is_root {
                    let (object, index) = (slots.object(words, slot), slots.index(words, slot));
                    roots += 1;
                    keys += 1;
                    unpopulated += frames.count - populated;
                    queued += u64::from(populated < frames.count);
                    if populated == 0 {
                        return Err("a reservation without a populated frame");
                    }
                    if index % frames.count != 0 {
                        return Err("a reservation's pages are not aligned");
                    }
                    if !matches!(self.place(object, index), PagePlace::Root(_, found) if found == slot)
                    {
                        return Err("a reservation is not found by its object and page");
                    }
                    keys += slots.levels.orders().len() - level - 1;
                }
            }
        }
        if (roots, unpopulated) != (self.roots, self.reserved) {
            return Err("reservations or their unpopulated frames are miscounted");
        }
        if slots.check_queue(words, slots.all)? != queued {
            return Err("the queue does not hold the partially populated reservations");
        }
        // Each reservation stands for itself and in the number of each larger
        // range around it.
        self.table.check(words, &mut |_, entry| match entry {
            Entry::Root(_) => keys = keys.wrapping_sub(1),
            Entry::Below(ranges) => keys = keys.wrapping_sub(ranges as usize),
        })?;
        if keys != 0 {
            return Err("the table holds other ranges than those reserved");
        }
        let (mut free, mut clash) = (0, false);
        self.under.for_each_free(&mut |block| {
            free += block.count;
            clash |= slots.held_of(words, block) > 0
                || block.iter().any(|frame| slots.root_of(words, frame.raw()).is_some());
        });
        if clash {
            return Err("a frame that is held or reserved is free beneath");
        }
        if free + self.reserved + slots.held(words) != self.total_frames() {
            return Err("a frame is neither free nor reserved nor held");
        }
        Ok(())
    }
}
