//! Reservations as an allocator: one pool for pages of objects and for all
//! else.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::hardening::{Hardening, Latch, Table, WordFault};
use crate::reserve::reservations::Reservations;

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>, H: Hardening> Reservations<A, W, H> {
    /// Frees an extent; false if that is refused, for whatever reason, of which nothing is asked here:
    /// what has stopped lets no frame go.
    #[inline(always)]
    fn is_freed(&mut self, extent: Extent) -> bool {
        let span = self.slots.span;
        let Some(end) = extent.checked_end() else { return false };
        if extent.is_empty()
            || !span.contains(extent.start)
            || !self.slots.let_go_held(&mut self.storage, extent)
        {
            return false;
        }
        let (mut at, end) = (extent.start.raw(), end.raw());
        let lowest = self.slots.levels.lowest().frames();
        while at < end {
            // As far as the next border of a slot of the lowest level.
            let border = |at: u64| end.min((at | (lowest - 1)) + 1);
            let mut past = border(at);
            if let Some((level, root)) = self.slots.root_of(&self.storage, at) {
                let part = Extent::new(Pfn::new(at), past - at);
                if self.depopulate(level, root, part).is_err() {
                    self.stop_free(Extent::new(Pfn::new(at), end - at));
                    return false;
                }
            } else {
                while past < end && self.slots.root_of(&self.storage, past).is_none() {
                    past = border(past);
                }
                if self.give_back(Extent::new(Pfn::new(at), past - at)).is_err() {
                    return false;
                }
            }
            at = past;
        }
        true
    }
}

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>, H: Hardening> FrameAllocator
    for Reservations<A, W, H>
{
    /// A block of the allocator beneath. Only if that has none, reservations
    /// are broken up, the least recently populated first, until it has.
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if frames_max == 0 {
            return None;
        }
        loop {
            if self.latch.fault().is_some() {
                return None;
            }
            if let Some(block) = self.under.allocate_block(frames_max) {
                return self.hold(block).ok();
            }
            if !self.reclaim() {
                return None;
            }
        }
    }

    /// From the allocator beneath, or else out of the least recently populated
    /// reservation that has such a run of unpopulated frames: O(r + bits/64)
    /// more for r partially populated reservations.
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        if let Some(fault) = self.latch.fault() {
            return Err(FrameAllocateError::Corrupt(fault));
        }
        if let Ok(extent) = self.under.allocate_aligned(order) {
            return self.hold(extent).map_err(FrameAllocateError::Corrupt);
        }
        let (wanted, free) = (order.frames(), self.free_frames());
        if wanted > free {
            return Err(FrameAllocateError::OutOfFrames { wanted, free });
        }
        let run = self.reclaim_aligned(order);
        run.ok_or_else(|| {
            let none = FrameAllocateError::NoBlock { order };
            self.fault().map_or(none, FrameAllocateError::Corrupt)
        })
    }

    /// Frames of a reservation are depopulated; one that has none left returns
    /// whole. Frames by themselves go to the allocator beneath. Frames that are
    /// reserved and not populated are free already. O(L) for each slot of the
    /// lowest level that `extent` meets, and what it costs beneath.
    ///
    /// An error costs O(free blocks), to tell a free frame from a foreign one.
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if self.is_freed(extent) { Ok(()) } else { Err(self.refused(extent)) }
    }

    /// Those free beneath, and those that are reserved and not populated.
    fn free_frames(&self) -> u64 {
        self.under.free_frames() + self.reserved
    }

    fn total_frames(&self) -> u64 {
        self.under.total_frames()
    }

    /// The blocks beneath, then the unpopulated frames of reservations,
    /// ascending. O(slots·L + bits/64) besides what it costs beneath.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.under.for_each_free(visit);
        let Self { slots, .. } = self;
        for slot in slots.slots(0) {
            let frames = slots.frames(0, slot);
            let start = frames.start.max(slots.span.start).raw();
            let Some((level, root)) = slots.root_of(&self.storage, start) else { continue };
            // Once for each reservation, at its first slot.
            let around = slots.frames(level, root);
            if around.start == frames.start {
                slots.for_each_free(&self.storage, around, visit);
            }
        }
    }

    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        if let Some(fault) = self.latch.fault() {
            return Err(FrameAllocateError::Corrupt(fault));
        }
        let free = self.free_frames();
        if count_frames > free {
            return Err(FrameAllocateError::OutOfFrames { wanted: count_frames, free });
        }
        while self.under.free_frames() < count_frames && self.reclaim() {}
        if let Some(fault) = self.latch.fault() {
            return Err(FrameAllocateError::Corrupt(fault));
        }
        let Self { under, storage, slots, .. } = self;
        let mut held = true;
        let done = under.allocate(count_frames, &mut |block| {
            held &= !H::CHECKED || slots.may_hold(storage, block);
            if held {
                slots.hold(storage, block);
                sink(block);
            }
        });
        if held { done } else { Err(FrameAllocateError::Corrupt(self.stop(Table::Allocated))) }
    }

    fn allocate_frame(&mut self) -> Option<Pfn> {
        loop {
            if self.latch.fault().is_some() {
                return None;
            }
            if let Some(frame) = self.under.allocate_frame() {
                return self.hold(Extent::new(frame, 1)).ok().map(|held| held.start);
            }
            if !self.reclaim() {
                return None;
            }
        }
    }

    /// Its own, or that of the allocator beneath.
    fn fault(&self) -> Option<WordFault> {
        self.latch.fault().or_else(|| self.under.fault())
    }
}
