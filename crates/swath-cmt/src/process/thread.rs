//! The state of one thread: its processor heap, and the freed blocks that wait in its quarantine.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;

use swath_pool::{BufferFreeError, BufferPool, BufferResizeError, LocalHeap, Placement};

use crate::error::{FreeError, OutOfMemory, ResizeError};
use crate::lock::Futex;
use crate::process::canary::{CANARY_BYTES, Canary};
use crate::source::backing::Backing;
use crate::source::chunk::CHUNK_BYTES;

/// The process's pool.
pub(crate) type Pool = BufferPool<'static, Futex, Backing>;
/// A thread's heap of it.
pub(crate) type Local = LocalHeap<'static, 'static, Futex, Backing>;

/// Number of slow calls of a thread between two looks at the clock.
const CALLS_PER_CLOCK: u32 = 16;

/// A thread's heap and quarantine.
pub(crate) struct Thread {
    pub(crate) heap: Local,
    /// Freed blocks that wait, a ring; empty without a quarantine.
    waiting: &'static mut [MaybeUninit<NonNull<u8>>],
    /// Number of blocks that waited so far.
    waited: usize,
    /// The key of the canaries behind blocks; none without canaries.
    canary: Option<Canary>,
    /// Number of calls that took the slow path.
    slow_calls: u32,
    /// True if a long block came since the last look at the clock.
    had_long: bool,
}

impl Thread {
    /// Makes the state of a thread with this heap; its quarantine holds so many blocks.
    pub(crate) fn new(mut heap: Local, quarantine: usize, canary: Option<Canary>) -> Option<Self> {
        let waiting: &'static mut [_] = if quarantine == 0 {
            &mut []
        } else {
            let block = heap.allocate(quarantine * size_of::<usize>(), 16).ok()?;
            // SAFETY: a block of its own, long enough and aligned.
            unsafe { slice::from_raw_parts_mut(block.as_ptr().cast(), quarantine) }
        };
        Some(Self { heap, waiting, waited: 0, canary, slow_calls: 0, had_long: false })
    }

    /// Returns true if every call has to come here: freed blocks wait before they are free, or blocks
    /// have canaries.
    pub(crate) fn is_hardened(&self) -> bool {
        !self.waiting.is_empty() || self.canary.is_some()
    }

    /// Allocates a block with its canary, if there are canaries, and says if it is zero.
    pub(crate) fn allocate(&mut self, size: usize, align: usize) -> Option<(NonNull<u8>, bool)> {
        let bytes = if self.canary.is_some() { size.checked_add(CANARY_BYTES)? } else { size };
        let (block, zero) = self.heap.allocate_zeroable(bytes, align).ok()?;
        self.had_long |= size >= CHUNK_BYTES;
        self.mark(block);
        Some((block, zero))
    }

    /// Allocates a block that is one run of physical memory where `placement` admits it.
    pub(crate) fn allocate_placed(
        &mut self,
        size: usize,
        placement: &Placement,
    ) -> Option<NonNull<u8>> {
        let bytes = if self.canary.is_some() { size.checked_add(CANARY_BYTES)? } else { size };
        let (block, _) = self.heap.pool().allocate_placed(bytes, placement)?;
        self.mark(block);
        Some(block)
    }

    /// Writes the canary of a block that was just allocated, or resized.
    fn mark(&self, block: NonNull<u8>) {
        if let Some(canary) = self.canary
            && let Ok(len_bytes) = self.heap.pool().usable_size(block)
        {
            // SAFETY: a block in use, whose last bytes nobody else has.
            unsafe { canary.write(block, len_bytes) };
        }
    }

    /// Checks the canary of a block in use.
    fn look(&self, block: NonNull<u8>) -> Result<(), FreeError> {
        let Some(canary) = self.canary else { return Ok(()) };
        let len_bytes = self.heap.pool().usable_size(block)?;
        // SAFETY: a block in use, as the pool says.
        if unsafe { canary.is_intact(block, len_bytes) } {
            Ok(())
        } else {
            Err(FreeError::Overrun { address: block.addr().get() })
        }
    }

    /// Resizes a block, with its canary.
    ///
    /// # Safety
    /// As for [`LocalHeap::resize`].
    pub(crate) unsafe fn resize(
        &mut self,
        block: NonNull<u8>,
        size: usize,
        align: usize,
    ) -> Result<NonNull<u8>, ResizeError> {
        self.look_among_waiting(block)?;
        self.look(block)?;
        let room = if self.canary.is_some() { CANARY_BYTES } else { 0 };
        let bytes = size.checked_add(room).ok_or(OutOfMemory)?;
        let refused = |error| match error {
            BufferResizeError::Free(error) => ResizeError::from(FreeError::from(error)),
            BufferResizeError::Allocate(_) => OutOfMemory.into(),
        };
        if self.waiting.is_empty() {
            // SAFETY: as the caller says.
            let resized = unsafe { self.heap.resize(block, bytes, align) }.map_err(refused)?;
            self.mark(resized);
            return Ok(resized);
        }
        let old = self.heap.pool().usable_size(block).map_err(FreeError::from)?;
        // SAFETY: as the caller says.
        if unsafe { self.heap.resize_in_place(block, bytes, align) }.map_err(refused)? {
            self.mark(block);
            return Ok(block);
        }
        // The place that it leaves waits as a freed block does.
        let (moved, _) = self.allocate(size, align).ok_or(OutOfMemory)?;
        // SAFETY: both are blocks in use, different ones, and at least so long.
        unsafe { block.copy_to_nonoverlapping(moved, (old - room).min(size)) };
        // Its canary was looked at: it is freed.
        self.quarantine(block)?;
        Ok(moved)
    }

    /// Counts a slow call, and returns true if it is time to look at the clock: after some of them, or one
    /// for a long block.
    pub(crate) fn count_slow_call(&mut self) -> bool {
        self.slow_calls = self.slow_calls.wrapping_add(1);
        core::mem::take(&mut self.had_long) || self.slow_calls.is_multiple_of(CALLS_PER_CLOCK)
    }

    /// Frees a block, after its time in the quarantine if there is one.
    ///
    /// # Safety
    /// As for [`LocalHeap::free`].
    pub(crate) unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), FreeError> {
        if self.waiting.is_empty() {
            self.look(block)?;
            // SAFETY: as the caller says.
            return Ok(unsafe { self.heap.free(block) }?);
        }
        self.quarantine(block)
    }

    /// Checks that a block does not wait: to the pool it is in use still, to its user it is not.
    fn look_among_waiting(&self, block: NonNull<u8>) -> Result<(), FreeError> {
        let held = self.waited.min(self.waiting.len());
        // SAFETY: the first `held` were written.
        let same = |place: &MaybeUninit<NonNull<u8>>| unsafe { place.assume_init() } == block;
        if self.waiting[..held].iter().any(same) {
            return Err(BufferFreeError::NotAllocated { address: block.addr().get() }.into());
        }
        Ok(())
    }

    /// Lets the block wait, and frees the one that waited longest.
    #[cold]
    fn quarantine(&mut self, block: NonNull<u8>) -> Result<(), FreeError> {
        let len = self.waiting.len();
        let usable = self.heap.pool().usable_size(block)?;
        self.look_among_waiting(block)?;
        self.look(block)?;
        // A read after the free reads this.
        // SAFETY: the block is in use and its user has freed it.
        unsafe { block.write_bytes(0xDF, usable.min(4096)) };
        let place = &mut self.waiting[self.waited % len];
        // SAFETY: written when the ring was first filled.
        let oldest = (self.waited >= len).then(|| unsafe { place.assume_init() });
        place.write(block);
        self.waited += 1;
        // SAFETY: it was in use until it began to wait, and nothing uses it.
        Ok(oldest.map_or(Ok(()), |oldest| unsafe { self.heap.free(oldest) })?)
    }

    /// Frees all blocks that wait, and the ring.
    pub(crate) fn end(mut self) {
        let held = self.waited.min(self.waiting.len());
        for index in 0..held {
            // SAFETY: the first `held` were written, and are in use until now.
            let _ = unsafe { self.heap.free(self.waiting[index].assume_init()) };
        }
        if let Some(first) = self.waiting.first_mut() {
            // SAFETY: the ring's block, which is not used any more.
            let _ = unsafe { self.heap.free(NonNull::from(first).cast()) };
        }
    }
}
