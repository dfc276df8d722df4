//! The front as one CPU uses it.

use core::fmt;

use lock_api::{MutexGuard, RawMutex};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::contiguous::{ContiguousAllocator, ContiguousError, ContiguousRequest};
use crate::front::areas::Wrong;
use crate::front::bits::{BITS, UNIT_FRAMES, UNIT_ORDER};
use crate::front::blocks::{Blocks, is_block};
use crate::front::held::Held;
use crate::front::reuse::{Fifo, Reuse};
use crate::front::shared::{Front, NoSuchCpu, Slot};
use crate::hardening::WordFault;
use crate::hotplug::{FrameHotplug, FrameHotplugError};

/// The longest run that a slot serves whatever its length.
const RUN_FRAMES: u64 = 64;

impl<'m, R: RawMutex, A: FrameAllocator, U: Reuse> Front<'m, R, A, U> {
    /// The front as CPU `cpu` uses it.
    ///
    /// # Errors
    /// [`NoSuchCpu`] if `cpu` has no slot.
    #[inline]
    pub fn on(&self, cpu: usize) -> Result<OnCpu<'_, 'm, R, A, U>, NoSuchCpu> {
        match self.slots.get(cpu) {
            Some(slot) => Ok(OnCpu { front: self, slot }),
            None => Err(NoSuchCpu { cpu, cpus: self.slots.len() }),
        }
    }
}

/// A [`Front`] as one CPU uses it.
pub struct OnCpu<'f, 'm, R, A, U = Fifo> {
    front: &'f Front<'m, R, A, U>,
    slot: &'f Slot<R>,
}

impl<R, A, U> Clone for OnCpu<'_, '_, R, A, U> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, A, U> Copy for OnCpu<'_, '_, R, A, U> {}

impl<R, A, U> fmt::Debug for OnCpu<'_, '_, R, A, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCpu").field("front", &self.front).finish_non_exhaustive()
    }
}

impl<R: RawMutex, A: FrameAllocator, U: Reuse> OnCpu<'_, '_, R, A, U> {
    /// Allocates a single frame: O(1) from this CPU's slot, and each 16th time or
    /// less a look at up to 64 that came back, and the cost of claiming. `None` if no frame is free on any CPU, or if the slot's next
    /// is not free, which [`Front::fault`] tells.
    #[inline(always)]
    pub fn allocate_frame(&self) -> Option<Pfn> {
        let popped = self.slot.held.lock().pop::<U>();
        let frame = match popped {
            Some(frame) => frame,
            None => return self.allocate_claimed(),
        };
        if !self.front.bits.take(frame.wrapping_sub(self.front.first)) {
            return self.discard_frame(frame);
        }
        Some(Pfn::new(frame))
    }

    /// Makes frames of the slot ready, or claims some, and allocates a single frame.
    #[cold]
    #[inline(never)]
    fn allocate_claimed(&self) -> Option<Pfn> {
        let mut held = self.slot.held.lock();
        if held.has_no_single::<U>() && held.make_ready::<U, _>(&self.front.shared).is_err() {
            self.front.note_slot(self.slot, 0);
        }
        let popped = held.pop::<U>();
        drop(held);
        let Some(frame) = popped else {
            return self.front.allocate_block(1).map(|block| block.start);
        };
        if !self.front.bits.take(frame.wrapping_sub(self.front.first)) {
            return self.discard_frame(frame);
        }
        Some(Pfn::new(frame))
    }

    /// Frees a single frame, on whichever CPU it was allocated: O(1) into
    /// this CPU's slot, and each 32nd time or less the cost of returning half
    /// of the buffer.
    ///
    /// # Errors
    /// [`FrameFreeError::NotAllocated`] or [`FrameFreeError::Foreign`]; nothing changes.
    #[inline]
    pub fn free_frame(&self, frame: Pfn) -> Result<(), FrameFreeError> {
        let Self { front, slot } = *self;
        let index = frame.raw().wrapping_sub(front.first);
        if !front.bits.give(index) {
            front.clear_or_refuse(index)?;
        }
        let mut held = slot.held.lock();
        if !held.push(frame.raw()) {
            front.spill(slot, &mut held, frame.raw());
        }
        Ok(())
    }

    /// Allocates an aligned block of an order from 1 to that of a unit: O(areas of a slot), and
    /// the cost of claiming if the slot has none.
    #[inline]
    fn allocate_order(&self, order: Order) -> Result<Extent, FrameAllocateError> {
        let mut held = self.slot.held.lock();
        let Some(start) = held.blocks.pop_block(order.k()) else {
            return self.cut_order(held, order);
        };
        drop(held);
        self.taken_block(start, order)
    }

    /// As [`allocate_order`](Self::allocate_order) where no such block came back.
    #[inline(never)]
    fn cut_order(
        &self,
        mut held: MutexGuard<'_, R, Held>,
        order: Order,
    ) -> Result<Extent, FrameAllocateError> {
        let Some(start) = held.blocks.areas.cut_block(order.frames()) else {
            return self.claim_order(held, order);
        };
        drop(held);
        self.taken_block(start, order)
    }

    #[cold]
    #[inline(never)]
    fn claim_order(
        &self,
        mut held: MutexGuard<'_, R, Held>,
        order: Order,
    ) -> Result<Extent, FrameAllocateError> {
        let claimed = held.blocks.areas.claim_block(order.k(), &self.front.shared);
        drop(held);
        match self.sound(claimed) {
            Some(start) => self.taken_block(start, order),
            None => self.front.allocate_aligned(order),
        }
    }

    /// Allocates up to `count` frames in a row, from 2 to [`RUN_FRAMES`]: as many if this CPU's slot
    /// has them, in O(areas of a slot), otherwise what the allocator gives.
    #[inline]
    fn allocate_run(&self, count: u64) -> Option<Extent> {
        let popped = self.slot.held.lock().blocks.pop_run(count);
        match popped {
            Some(start) => self.taken_run(start, count).ok(),
            None => self.claim_run(count),
        }
    }

    #[cold]
    #[inline(never)]
    fn claim_run(&self, count: u64) -> Option<Extent> {
        let claimed =
            self.slot.held.lock().blocks.areas.claim_run(count, false, &self.front.shared);
        match self.sound(claimed) {
            Some(run) => self.taken_run(run.start.raw(), run.count).ok(),
            None => self.front.allocate_block(count),
        }
    }

    /// What was claimed; what was wrong with the slot is noted.
    fn sound<T>(&self, claimed: Result<Option<T>, Wrong>) -> Option<T> {
        claimed.unwrap_or_else(|Wrong| {
            self.front.note_slot(self.slot, 0);
            None
        })
    }

    /// Empties the slot, which held a frame that is not free.
    #[cold]
    #[inline(never)]
    fn discard<T>(&self, frame: u64) -> Result<T, FrameAllocateError> {
        Err(FrameAllocateError::Corrupt(self.front.discard(self.slot, frame)))
    }

    /// As [`discard`](Self::discard) for a single frame, which needs no room for the reason.
    #[cold]
    #[inline(never)]
    fn discard_frame(&self, frame: u64) -> Option<Pfn> {
        self.discard(frame).ok()
    }

    /// Notes that a user holds this block of the slot's.
    #[inline(always)]
    fn taken_block(&self, start: u64, order: Order) -> Result<Extent, FrameAllocateError> {
        if !self.front.bits.take_block(start.wrapping_sub(self.front.first), order.k()) {
            return self.discard(start);
        }
        Ok(Extent::new(Pfn::new(start), order.frames()))
    }

    /// Notes that a user holds this run of the slot's.
    #[inline(always)]
    fn taken_run(&self, start: u64, count: u64) -> Result<Extent, FrameAllocateError> {
        if !self.front.bits.take_run(start.wrapping_sub(self.front.first), count) {
            return self.discard(start);
        }
        Ok(Extent::new(Pfn::new(start), count))
    }

    /// As [`free_frame`](Self::free_frame) for an extent of one frame: a call of its own, for which
    /// the frees of blocks need not save registers.
    #[inline(never)]
    fn free_single(&self, extent: Extent) -> Result<(), FrameFreeError> {
        // The last number is no frame's: an extent that begins there has no end.
        self.free_frame(extent.start).map_err(|error| match extent.checked_end() {
            Some(_) => error,
            None => FrameFreeError::Overflow { extent },
        })
    }

    /// Frees frames other than one: into this CPU's slot if they are a run of up to [`RUN_FRAMES`]
    /// or an aligned block.
    #[inline(always)]
    fn free_block(&self, extent: Extent) -> Result<(), FrameFreeError> {
        let front = self.front;
        let (start, count) = (extent.start.raw(), extent.count);
        let index = start.wrapping_sub(front.first);
        // From here on all that is cold is the end of the call, so that nothing is kept for it.
        if count.wrapping_sub(2) < BITS - 1 {
            if index % BITS + count > BITS {
                return self.free_across(extent);
            }
            if !front.bits.give_run(index, count) {
                return self.free_slowly(extent);
            }
            return self.keep(extent, |blocks| blocks.push(extent));
        }
        let fits = count.wrapping_sub(1) < UNIT_FRAMES && is_block(extent);
        if !fits || !front.bits.give_block(index, count) {
            return self.free_slowly(extent);
        }
        self.keep(extent, |blocks| blocks.push_block(count.trailing_zeros(), start))
    }

    /// Frees a run that lies in two words.
    #[inline(never)]
    fn free_across(&self, extent: Extent) -> Result<(), FrameFreeError> {
        // The allocator's lock only holds off others while words are cleared.
        let index = extent.start.raw().wrapping_sub(self.front.first);
        let lock = self.front.shared.lock();
        let given = self.front.bits.give_across(index, extent.count);
        drop(lock);
        if !given {
            return self.free_slowly(extent);
        }
        self.keep(extent, |blocks| blocks.areas.push(extent))
    }

    /// Frees what was not held in one word or two, or as one aligned block.
    #[cold]
    #[inline(never)]
    fn free_slowly(&self, extent: Extent) -> Result<(), FrameFreeError> {
        let fits = extent.count <= RUN_FRAMES || extent.count <= UNIT_FRAMES && is_block(extent);
        if !fits || extent.count < 2 {
            return self.front.free(extent);
        }
        // The allocator's lock only holds off others while words are cleared.
        drop(self.front.give(extent)?);
        self.keep(extent, |blocks| blocks.push(extent))
    }

    /// Takes in frames that no user holds any more by `push`, or where that finds no room makes some.
    #[inline(always)]
    fn keep(
        &self,
        extent: Extent,
        push: impl FnOnce(&mut Blocks) -> bool,
    ) -> Result<(), FrameFreeError> {
        let mut held = self.slot.held.lock();
        if !push(&mut held.blocks) {
            return self.spill(held, extent);
        }
        Ok(())
    }

    /// Makes room for these frames, and takes them in.
    #[cold]
    #[inline(never)]
    fn spill(
        &self,
        mut held: MutexGuard<'_, R, Held>,
        extent: Extent,
    ) -> Result<(), FrameFreeError> {
        if held.blocks.spill(extent, &self.front.shared).is_err() {
            self.front.note_slot(self.slot, extent.start.raw());
        }
        Ok(())
    }
}

/// [`allocate`](FrameAllocator::allocate) calls its sink under the allocator's
/// lock: the sink must not call the front.
impl<R: RawMutex, A: FrameAllocator, U: Reuse> FrameAllocator for OnCpu<'_, '_, R, A, U> {
    #[inline]
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        match frames_max {
            0 => None,
            1 => OnCpu::allocate_frame(self).map(|frame| Extent::new(frame, 1)),
            2..=RUN_FRAMES => self.allocate_run(frames_max),
            _ => self.front.allocate_block(frames_max),
        }
    }

    #[inline]
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        match order.k() {
            1..=UNIT_ORDER => self.allocate_order(order),
            0 => match OnCpu::allocate_frame(self) {
                Some(frame) => Ok(Extent::new(frame, 1)),
                None => self.front.allocate_aligned(order),
            },
            _ => self.front.allocate_aligned(order),
        }
    }

    #[inline]
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.count == 1 { self.free_single(extent) } else { self.free_block(extent) }
    }

    fn free_frames(&self) -> u64 {
        self.front.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.front.total_frames()
    }

    /// The shared allocator's free blocks, then the spare areas, then what each slot holds: its
    /// claimed word's, its buffer's, its longer blocks.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.front.for_each_free(visit);
    }

    fn fault(&self) -> Option<WordFault> {
        self.front.fault()
    }

    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        // A run of this CPU's serves a short request whole or not at all.
        if (2..=RUN_FRAMES).contains(&count_frames) {
            let popped = self.slot.held.lock().blocks.pop_run(count_frames);
            if let Some(start) = popped {
                sink(self.taken_run(start, count_frames)?);
                return Ok(());
            }
        }
        self.front.allocate(count_frames, sink)
    }

    #[inline]
    fn allocate_frame(&mut self) -> Option<Pfn> {
        OnCpu::allocate_frame(self)
    }
}

impl<R: RawMutex, A: ContiguousAllocator, U: Reuse> ContiguousAllocator for OnCpu<'_, '_, R, A, U> {
    fn allocate_contiguous(
        &mut self,
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError> {
        self.front.allocate_contiguous(request)
    }
}

impl<R: RawMutex, A: FrameHotplug, U: Reuse> FrameHotplug for OnCpu<'_, '_, R, A, U> {
    fn span(&self) -> Extent {
        self.front.shared.lock().span()
    }

    fn add_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        self.front.add_frames(extent)
    }

    fn remove_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        self.front.remove_frames(extent)
    }
}
