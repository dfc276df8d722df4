//! The state of one thread: its processor heap, and the freed blocks that wait in its quarantine.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;

use swath_pool::{
    BlockPlace, BufferFreeError, BufferPool, BufferResizeError, LocalHeap, Placement,
    SLOT_BYTES_MAX,
};

use crate::error::{FreeError, OutOfMemory, ResizeError};
use crate::lock::Futex;
use crate::process::canary::{CANARY_BYTES, Canary, Kept, Origin};
use crate::process::zero;
use crate::source::backing::Backing;
use crate::source::chunk::CHUNK_BYTES;

/// The process's pool.
pub(crate) type Pool = BufferPool<'static, Futex, Backing>;
/// A thread's heap of it.
pub(crate) type Local = LocalHeap<'static, 'static, Futex, Backing>;

/// Number of slow calls of a thread between two looks at the clock; of a hardened one all are.
const CALLS_PER_CLOCK: u32 = 16;
const HARDENED_CALLS_PER_CLOCK: u32 = 512;

/// The most bytes that wait in a thread's quarantine. A longer block does not wait.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// A thread's heap and quarantine.
pub(crate) struct Thread {
    pub(crate) heap: Local,
    /// Empty without canaries.
    waiting: Waiting,
    /// The key of the canaries behind blocks; none without canaries.
    canary: Option<Canary>,
    /// Number of calls that took the slow path.
    slow_calls: u32,
    /// True if a long block came since the last look at the clock.
    had_long: bool,
}

/// Freed blocks that wait, a ring; empty without a quarantine. To the pool they are in use.
///
/// Invariant: the `held` places from `oldest` on, around the end, are written.
struct Waiting {
    ring: &'static mut [MaybeUninit<Freed>],
    oldest: usize,
    held: usize,
    /// Bytes of those blocks.
    bytes: usize,
}

/// A block that waits.
#[derive(Clone, Copy)]
struct Freed {
    block: NonNull<u8>,
    len_bytes: usize,
    /// Bytes that its user had.
    user_bytes: usize,
    /// Of a segment the bytes that fault at every access; the user's behind them are zero.
    faulting: usize,
}

/// What a look at a block in use finds.
struct Look {
    place: BlockPlace,
    /// What its canary says.
    kept: Kept,
}

impl Waiting {
    /// The place so many after the oldest one's, of those in the ring.
    fn place(&self, index: usize) -> usize {
        let place = self.oldest + index;
        place.checked_sub(self.ring.len()).unwrap_or(place)
    }

    /// Adds a block; there is room.
    fn push(&mut self, freed: Freed) {
        let place = self.place(self.held);
        self.ring[place].write(freed);
        self.held += 1;
        self.bytes += freed.len_bytes;
    }

    /// Adds a block in the place of the one that waited longest, which it returns, if the ring is full and so many bytes may wait.
    #[inline(always)]
    fn exchange(&mut self, freed: Freed) -> Option<Freed> {
        let is_full = self.held == self.ring.len();
        let place = self.ring.get_mut(self.oldest).filter(|_| is_full)?;
        // SAFETY: written, as the invariant says.
        let oldest = unsafe { place.assume_init() };
        let bytes = self.bytes - oldest.len_bytes + freed.len_bytes;
        if bytes > WAITING_BYTES_MAX {
            return None;
        }
        place.write(freed);
        self.bytes = bytes;
        self.oldest = self.place(1);
        Some(oldest)
    }

    fn pop(&mut self) -> Option<Freed> {
        if self.held == 0 {
            return None;
        }
        // SAFETY: written, as the invariant says.
        let oldest = unsafe { self.ring[self.oldest].assume_init() };
        self.oldest = self.place(1);
        self.held -= 1;
        self.bytes -= oldest.len_bytes;
        Some(oldest)
    }
}

impl Thread {
    /// Makes the state of a thread with this heap; its quarantine holds so many blocks.
    pub(crate) fn new(heap: Local, quarantine: usize, canary: Option<Canary>) -> Option<Self> {
        let waiting = Waiting { ring: &mut [], oldest: 0, held: 0, bytes: 0 };
        let mut thread = Self { heap, waiting, canary, slow_calls: 0, had_long: false };
        if quarantine > 0 {
            let (block, _) = thread.allocate(quarantine * size_of::<Freed>(), 16)?;
            // SAFETY: a block of its own, long enough and aligned.
            thread.waiting.ring =
                unsafe { slice::from_raw_parts_mut(block.as_ptr().cast(), quarantine) };
        }
        Some(thread)
    }

    /// Returns true if every call has to come here: blocks have canaries.
    pub(crate) fn is_hardened(&self) -> bool {
        self.canary.is_some()
    }

    /// Returns the bytes to ask the pool for.
    fn with_canary(&self, size: usize) -> Option<usize> {
        size.checked_add(if self.canary.is_some() { CANARY_BYTES } else { 0 })
    }

    /// Allocates a block with its canary, if there are canaries, and says if it is zero.
    pub(crate) fn allocate(&mut self, size: usize, align: usize) -> Option<(NonNull<u8>, bool)> {
        let bytes = self.with_canary(size)?;
        let (block, zero) = self.heap.allocate_zeroable(bytes, align).ok()?;
        self.had_long |= size >= CHUNK_BYTES;
        self.mark(block, size, Origin::Malloc);
        Some((block, zero))
    }

    /// Allocates a short block with its canary, but none of no bytes, if there are canaries and the heap has a slot at hand.
    #[inline]
    pub(crate) fn allocate_short(&mut self, size: usize) -> Option<NonNull<u8>> {
        let canary = self.canary?;
        if size == 0 || size > SLOT_BYTES_MAX {
            return None;
        }
        let (block, place) = self.heap.take_short(size + CANARY_BYTES)?;
        let kept = Kept { user_bytes: size, origin: Origin::Malloc, waits: false };
        Self::write_canary(canary, block, place, kept);
        Some(block)
    }

    /// Allocates a block that is one run of physical memory where `placement` admits it.
    pub(crate) fn allocate_placed(
        &mut self,
        size: usize,
        placement: &Placement,
    ) -> Option<NonNull<u8>> {
        let bytes = self.with_canary(size)?;
        let (block, _) = self.heap.pool().allocate_placed(bytes, placement)?;
        self.mark(block, size, Origin::Malloc);
        Some(block)
    }

    /// Writes the canary of a block that was just allocated, or resized, and sees to it that one stands before
    /// it.
    fn mark(&self, block: NonNull<u8>, user_bytes: usize, origin: Origin) {
        let Some(canary) = self.canary else { return };
        let Ok(place) = self.heap.place_of_new(block) else { return };
        Self::write_canary(canary, block, place, Kept { user_bytes, origin, waits: false });
    }

    /// Writes the canary of a block that was just allocated at a place, or resized, and sees to it that one stands before it.
    #[inline(always)]
    fn write_canary(canary: Canary, block: NonNull<u8>, place: BlockPlace, kept: Kept) {
        // SAFETY: a block in use, whose last bytes nobody else has.
        unsafe { canary.write(block, place.len_bytes, kept) };
        if let Some(before) = place.before {
            // SAFETY: a slot of the same superblock, as long.
            unsafe { canary.see_to(before, place.len_bytes) };
        }
    }

    /// Says what made a block that was just allocated.
    pub(crate) fn made_by(&self, block: NonNull<u8>, origin: Origin) {
        if let Some(canary) = self.canary
            && let Ok(Look { place, kept }) = self.look(canary, block)
        {
            // SAFETY: a block in use, whose last bytes nobody else has.
            unsafe { canary.keep(block, place.len_bytes, Kept { origin, ..kept }) };
        }
    }

    /// Checks that a block is in use to its user, too, and its canaries.
    fn look(&self, canary: Canary, block: NonNull<u8>) -> Result<Look, FreeError> {
        let address = block.addr().get();
        let place = self.heap.place_of(block)?;
        let len_bytes = place.len_bytes;
        // SAFETY: a block in use, as the pool says.
        let kept = unsafe { canary.read(block, len_bytes) };
        if kept.is_some_and(|kept| kept.waits) {
            return Err(BufferFreeError::NotAllocated { address }.into());
        }
        // SAFETY: as above; the canary is intact.
        let intact = |kept: &Kept| unsafe { canary.is_filled(block, len_bytes, kept.user_bytes) };
        let kept = kept.filter(intact).ok_or(FreeError::Overrun { address })?;
        if let Some(before) = place.before
            // SAFETY: a slot of the same superblock, as long.
            && !unsafe { canary.is_behind(before, len_bytes) }
        {
            return Err(FreeError::Underrun { address });
        }
        Ok(Look { place, kept })
    }

    /// Checks that a block may be freed by the counterpart of `origin`, with the length that its user says.
    pub(crate) fn check_origin(
        &self,
        block: NonNull<u8>,
        origin: Origin,
        size: Option<usize>,
    ) -> Result<(), FreeError> {
        let Some(canary) = self.canary else { return Ok(()) };
        let kept = self.look(canary, block)?.kept;
        // A library that has operators of its own makes its blocks by `malloc`.
        let other = kept.origin != Origin::Malloc && kept.origin != origin;
        if other || size.is_some_and(|size| size != kept.user_bytes) {
            return Err(FreeError::Mismatched { address: block.addr().get() });
        }
        Ok(())
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
        let refused = |error| match error {
            BufferResizeError::Free(error) => ResizeError::from(FreeError::from(error)),
            BufferResizeError::Allocate(_) => OutOfMemory.into(),
        };
        let Some(canary) = self.canary else {
            // SAFETY: as the caller says.
            return unsafe { self.heap.resize(block, size, align) }.map_err(refused);
        };
        let kept = self.look(canary, block)?.kept;
        let bytes = self.with_canary(size).ok_or(OutOfMemory)?;
        // SAFETY: as the caller says.
        if unsafe { self.heap.resize_in_place(block, bytes, align) }.map_err(refused)? {
            self.mark(block, size, kept.origin);
            return Ok(block);
        }
        // SAFETY: as the caller says.
        unsafe { self.move_to_other(block, kept.user_bytes, size, align) }
    }

    /// Moves a block of `old` bytes to one of `size`; the place that it leaves waits as a freed block does.
    ///
    /// # Safety
    /// As for [`LocalHeap::resize`].
    unsafe fn move_to_other(
        &mut self,
        block: NonNull<u8>,
        old: usize,
        size: usize,
        align: usize,
    ) -> Result<NonNull<u8>, ResizeError> {
        let (moved, _) = self.allocate(size, align).ok_or(OutOfMemory)?;
        // SAFETY: both are blocks in use, different ones, and at least so long.
        unsafe { block.copy_to_nonoverlapping(moved, old.min(size)) };
        // Its canaries were looked at: it is freed.
        // SAFETY: as the caller says.
        unsafe { self.free(block) }?;
        Ok(moved)
    }

    /// Counts a slow call, and returns true if it is time to look at the clock: after some of them, or one
    /// for a long block.
    pub(crate) fn count_slow_call(&mut self) -> bool {
        if self.is_hardened() {
            return self.count_hardened_call();
        }
        self.count_call(CALLS_PER_CLOCK)
    }

    /// Counts a call as [`count_slow_call`](Self::count_slow_call) does, of a hardened thread.
    #[inline(always)]
    pub(crate) fn count_hardened_call(&mut self) -> bool {
        self.count_call(HARDENED_CALLS_PER_CLOCK)
    }

    #[inline(always)]
    fn count_call(&mut self, calls: u32) -> bool {
        self.slow_calls = self.slow_calls.wrapping_add(1);
        let is_time = self.had_long || self.slow_calls & (calls - 1) == 0;
        if is_time {
            self.had_long = false;
        }
        is_time
    }

    /// Frees a block, after its time in the quarantine if there is one.
    ///
    /// # Safety
    /// As for [`LocalHeap::free`].
    pub(crate) unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), FreeError> {
        if let Some(canary) = self.canary {
            let look = self.look(canary, block)?;
            if !self.waiting.ring.is_empty() && look.place.len_bytes <= WAITING_BYTES_MAX {
                return self.quarantine(canary, block, look);
            }
        }
        // SAFETY: as the caller says.
        Ok(unsafe { self.heap.free(block) }?)
    }

    /// Frees a block as [`free`](Self::free) does, if there are canaries, and it is a short one of the heap's own that nobody
    /// wrote beside. Else nothing has changed. Any pointer may be tried.
    ///
    /// # Safety
    /// As for [`LocalHeap::free`].
    #[inline]
    pub(crate) unsafe fn free_short(
        &mut self,
        block: NonNull<u8>,
    ) -> Option<Result<(), FreeError>> {
        let canary = self.canary?;
        let place = self.heap.place_of_own(block)?;
        let len_bytes = place.len_bytes;
        // SAFETY: a block in use, as the pool says.
        let kept = unsafe { canary.read(block, len_bytes) }.filter(|kept| !kept.waits)?;
        // SAFETY: as above; the canary is intact.
        let is_intact = unsafe { canary.is_filled(block, len_bytes, kept.user_bytes) }
            // SAFETY: a slot of the same superblock, as long.
            && place.before.is_none_or(|before| unsafe { canary.is_behind(before, len_bytes) });
        if !is_intact {
            return None;
        }
        if self.waiting.ring.is_empty() {
            // SAFETY: as the caller says.
            return Some(unsafe { self.heap.free(block) }.map_err(FreeError::from));
        }
        Some(self.quarantine(canary, block, Look { place, kept }))
    }

    /// Lets a block wait that was looked at, and frees those that waited longest until there is room.
    #[inline(always)]
    fn quarantine(
        &mut self,
        canary: Canary,
        block: NonNull<u8>,
        Look { place, kept }: Look,
    ) -> Result<(), FreeError> {
        let (len_bytes, user_bytes) = (place.len_bytes, kept.user_bytes);
        // SAFETY: the block is in use, and its user has freed it.
        unsafe { canary.keep(block, len_bytes, Kept { waits: true, ..kept }) };
        // What of a segment can fault does; all else is zero.
        let faulting = if place.is_segment {
            // SAFETY: as above.
            unsafe { self.heap.pool().guard_segment(block, true) }
        } else {
            0
        };
        let rest = user_bytes.saturating_sub(faulting);
        // SAFETY: as above; behind what faults.
        unsafe { zero::write(block.byte_add(user_bytes - rest), rest) };
        let freed = Freed { block, len_bytes, user_bytes, faulting };
        if let Some(oldest) = self.waiting.exchange(freed) {
            return self.let_go(oldest);
        }
        let mut found = Ok(());
        while self.waiting.held == self.waiting.ring.len()
            || self.waiting.bytes + len_bytes > WAITING_BYTES_MAX
        {
            let Some(oldest) = self.waiting.pop() else { break };
            found = found.and(self.let_go(oldest));
        }
        self.waiting.push(freed);
        found
    }

    /// Frees a block that has waited, if nobody wrote to it meanwhile.
    fn let_go(&mut self, freed: Freed) -> Result<(), FreeError> {
        if freed.faulting > 0 {
            // SAFETY: it waits, and is in use to the pool.
            unsafe { self.heap.pool().guard_segment(freed.block, false) };
        }
        let rest = freed.user_bytes.saturating_sub(freed.faulting);
        // SAFETY: as above; behind what faults.
        let is_zero =
            unsafe { zero::is_there(freed.block.byte_add(freed.user_bytes - rest), rest) };
        // SAFETY: it was in use until it began to wait, and nothing uses it.
        unsafe { self.heap.free(freed.block) }?;
        if is_zero {
            Ok(())
        } else {
            Err(FreeError::UsedAfterFree { address: freed.block.addr().get() })
        }
    }

    /// Frees all blocks that wait, and the ring.
    pub(crate) fn end(mut self) {
        while let Some(oldest) = self.waiting.pop() {
            let _ = self.let_go(oldest);
        }
        if let Some(first) = self.waiting.ring.first_mut() {
            // SAFETY: the ring's block, which is not used any more.
            let _ = unsafe { self.heap.free(NonNull::from(first).cast()) };
        }
    }
}
