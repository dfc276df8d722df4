//! A front for each CPU over any frame allocator.
//!
//! Many CPUs that share one allocator would queue at its lock for every
//! single frame. So each CPU has a **slot** of its own: a *claimed word*, up
//! to 64 frames in a row that the CPU hands out one by one from the lowest, and
//! a *bounded buffer* of frames that came back from elsewhere. A slot turns to
//! the shared allocator only to claim the next word, or to return half of a full
//! buffer: sorted, so that frames in a row go back as one extent, and
//! under one hold of the lock. The upper half goes and the lower half stays,
//! since every allocator here prefers low frame numbers. Requests for more
//! than one frame go straight to the shared allocator.
//!
//! **Nothing is stranded.** When the shared allocator cannot serve a request,
//! the slots are emptied into it one by one, and each time it tries again: as
//! long as no other call is under way, a request fails only if the allocator
//! alone, with every frame back in it, would have failed too.
//!
//! **A wrong free is refused.** One bit for each frame says whether a user holds it.
//! To free is to clear that bit in one atomic step, so that of two frees of
//! one frame exactly one succeeds, on whichever CPUs they run and wherever the
//! frame lies by then.
//!
//! **Locks.** Each slot has its own lock and the allocator has one; the caller
//! brings their type (a kernel uses one that masks interrupts). A slot's lock
//! is taken before the allocator's, and never two slots' at once. A CPU number
//! only spreads the load: two threads that use the same number are safe.
//!
//! Metadata: two bits for each frame from the lowest free frame to the highest
//! ([`Front::bits_len`]), and one [`Slot`] of 640 bytes for each CPU.

use core::fmt;

use lock_api::{Mutex, RawMutex};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};

// The model checker has to see every atomic access.
#[cfg(not(loom))]
use core::sync::atomic::AtomicUsize;
#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;

// A bit only counts who holds a frame. What a user wrote into the frame is
// ordered by the locks that the frame passes through on its way.
use core::sync::atomic::Ordering::Relaxed;

/// Frames in a claimed word.
const WORD_FRAMES: u64 = 64;

/// Frames that a claim stops at where free memory is in small pieces.
const CLAIM_FRAMES: u64 = if cfg!(loom) { 2 } else { 32 };

/// Frames in a slot's buffer; small for the model checker, which must see it
/// overflow.
const BUFFER_FRAMES: usize = if cfg!(loom) { 2 } else { 64 };

/// Frames for each word of bits.
const BITS: u64 = usize::BITS as u64;

/// Reasons why a front was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrontError {
    /// No slot was given.
    #[error("a front without a slot")]
    NoSlots,
    /// The storage for the bits is too short.
    #[error("a front needs {needed} words of bits, {given} given")]
    BitsTooShort {
        /// Words needed: [`Front::bits_len`].
        needed: usize,
        /// Words given.
        given: usize,
    },
}

/// There is no slot for this CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("CPU {cpu} asked for, {cpus} CPUs have a slot")]
pub struct NoSuchCpu {
    /// The CPU asked for.
    pub cpu: usize,
    /// Number of CPUs that have a slot.
    pub cpus: usize,
}

/// A broken invariant that [`Front::check`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrontFault {
    /// A frame is free, yet a user holds it or it never was the front's.
    #[error("frame {frame} is free and is not")]
    NotFree {
        /// The frame.
        frame: Pfn,
    },
    /// Users, slots and the shared allocator together do not hold every frame
    /// once.
    #[error("of {owned} frames {used} are used and {free} are free")]
    Count {
        /// Frames that are the front's.
        owned: u64,
        /// Frames that users hold.
        used: u64,
        /// Frames in slots and in the shared allocator.
        free: u64,
    },
}

/// The frames that one CPU holds ready, on cache lines of its own.
#[repr(align(128))]
pub struct Slot<R> {
    held: Mutex<R, Held>,
}

impl<R: RawMutex> Slot<R> {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self {
            held: Mutex::new(Held {
                base: 0,
                mask: 0,
                head: 0,
                len: 0,
                frames: [0; BUFFER_FRAMES],
            }),
        }
    }
}

impl<R: RawMutex> Default for Slot<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: RawMutex> fmt::Debug for Slot<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

/// Invariants: every frame here is the front's, is held by no user and is
/// allocated as far as the shared allocator knows; no frame is here twice.
struct Held {
    /// The first frame of the claimed word. Blocks of any alignment are
    /// claimed, so this need not be a multiple of 64.
    base: u64,
    /// Bit i: frame `base + i` is here.
    mask: u64,
    /// The entry of `frames` that is handed out next.
    head: usize,
    /// Number of entries that count, from `head` on and around the end.
    len: usize,
    /// A ring of frames outside the claimed word. First in, first out: frames
    /// freed in rising order are handed out in rising order again.
    frames: [u64; BUFFER_FRAMES],
}

impl Held {
    #[inline]
    fn count(&self) -> u64 {
        u64::from(self.mask.count_ones()) + self.len as u64
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        if self.mask != 0 {
            let lowest = u64::from(self.mask.trailing_zeros());
            self.mask &= self.mask - 1;
            return Some(self.base + lowest);
        }
        let left = self.len.checked_sub(1)?;
        let frame = self.frames.get(self.head).copied();
        self.head = (self.head + 1) % BUFFER_FRAMES;
        self.len = left;
        frame
    }

    /// Takes in a frame, or says that there is no room for it.
    #[inline]
    fn push(&mut self, frame: u64) -> bool {
        let bit = frame.wrapping_sub(self.base);
        if bit < WORD_FRAMES {
            self.mask |= 1 << bit;
            return true;
        }
        if self.len == BUFFER_FRAMES {
            return false;
        }
        if let Some(entry) = self.frames.get_mut((self.head + self.len) % BUFFER_FRAMES) {
            *entry = frame;
        }
        self.len += 1;
        true
    }

    /// Claims a word of frames, or where memory is in small pieces as many as
    /// are worth a hold of the lock. Called when the slot is empty.
    fn claim(&mut self, shared: &mut impl FrameAllocator) {
        let mut claimed = 0;
        while claimed < CLAIM_FRAMES {
            let most = if claimed == 0 { WORD_FRAMES } else { CLAIM_FRAMES - claimed };
            let Some(block) = shared.allocate_block(most) else { break };
            if claimed == 0 {
                self.base = block.start.raw();
            }
            claimed += block.count;
            for frame in block.iter() {
                let held = self.push(frame.raw());
                debug_assert!(held, "an empty slot holds a claim");
            }
        }
    }

    /// The buffer's frames ascending: O(n log n) for n frames, O(n) if they are
    /// so already.
    fn sort(&mut self) -> &[u64] {
        self.frames.rotate_left(self.head);
        self.head = 0;
        let frames = self.frames.get_mut(..self.len).unwrap_or_default();
        frames.sort_unstable();
        frames
    }

    /// Returns the upper half of a full buffer.
    #[cold]
    #[inline(never)]
    fn flush_half(&mut self, shared: &mut impl FrameAllocator) {
        let kept = self.len / 2;
        for run in runs(self.sort().get(kept..).unwrap_or_default()) {
            give_back(shared, run);
        }
        self.len = kept;
    }

    /// Returns everything.
    fn flush(&mut self, shared: &mut impl FrameAllocator) {
        for run in self.extents() {
            give_back(shared, run);
        }
        self.mask = 0;
        self.len = 0;
    }

    /// Everything in the slot: the claimed word's runs, then the buffer's, each
    /// ascending.
    fn extents(&mut self) -> impl Iterator<Item = Extent> + '_ {
        let (base, mut mask) = (self.base, self.mask);
        let word = core::iter::from_fn(move || {
            if mask == 0 {
                return None;
            }
            let start = mask.trailing_zeros();
            let count = (mask >> start).trailing_ones();
            // Adding the run's lowest bit carries through the run.
            mask &= mask.wrapping_add(1 << start);
            Some(Extent::new(Pfn::new(base + u64::from(start)), u64::from(count)))
        });
        word.chain(runs(self.sort()))
    }
}

/// The runs of frames that ascend.
fn runs(mut ascending: &[u64]) -> impl Iterator<Item = Extent> + '_ {
    core::iter::from_fn(move || {
        let &lowest = ascending.first()?;
        let run = ascending.iter().zip(0..).take_while(|&(&frame, i)| frame - i == lowest);
        let len = run.count();
        ascending = ascending.get(len..).unwrap_or_default();
        Some(Extent::new(Pfn::new(lowest), len as u64))
    })
}

/// Returns frames that the shared allocator handed out, which it cannot refuse.
fn give_back(shared: &mut impl FrameAllocator, extent: Extent) {
    let freed = shared.free(extent);
    debug_assert_eq!(freed, Ok(()), "{extent}");
}

/// One bit for each frame of the span.
#[derive(Clone, Copy)]
struct Bits<'m>(&'m [AtomicUsize]);

impl Bits<'_> {
    /// The word of a frame's bit and the bit in it.
    #[inline]
    fn at(&self, index: u64) -> Option<(&AtomicUsize, usize)> {
        let word = self.0.get(usize::try_from(index / BITS).ok()?)?;
        Some((word, 1 << (index % BITS)))
    }

    fn get(&self, index: u64) -> bool {
        self.at(index).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    #[inline]
    fn set(&self, index: u64) {
        if let Some((word, bit)) = self.at(index) {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Clears a bit; whether it was set.
    #[inline]
    fn clear(&self, index: u64) -> bool {
        self.at(index).is_some_and(|(word, bit)| word.fetch_and(!bit, Relaxed) & bit != 0)
    }

    /// The words of the bits `start..end` and the bits in each, as far as the
    /// span reaches.
    fn words(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &AtomicUsize, usize)> {
        let first = usize::try_from(start / BITS).unwrap_or(usize::MAX);
        let words = self.0.get(first..).unwrap_or_default().iter();
        words.zip((start / BITS..end.div_ceil(BITS)).map(|i| i * BITS)).map(move |(word, base)| {
            let mut bits = usize::MAX << start.saturating_sub(base);
            if end - base < BITS {
                bits &= (1 << (end - base)) - 1;
            }
            (base, word, bits)
        })
    }

    fn set_range(&self, start: u64, end: u64) {
        for (_, word, bits) in self.words(start, end) {
            word.fetch_or(bits, Relaxed);
        }
    }

    /// Clears the bits `start..end` if all are set; otherwise leaves them all
    /// as they were and says which is the first that is clear.
    fn clear_range(&self, start: u64, end: u64) -> Result<(), u64> {
        let mut covered = start;
        for (base, word, bits) in self.words(start, end) {
            let missing = bits & !word.fetch_and(!bits, Relaxed);
            if missing != 0 {
                word.fetch_or(bits & !missing, Relaxed);
                self.set_range(start, base.max(start));
                return Err(base + u64::from(missing.trailing_zeros()));
            }
            covered = end.min(base + BITS);
        }
        if covered < end {
            self.set_range(start, covered);
            return Err(covered);
        }
        Ok(())
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }
}

/// A shared frame allocator with a slot for each CPU before it.
///
/// `R` is the lock's type, `A` the allocator's. [`Front::on`] gives a CPU's
/// view, which is a [`FrameAllocator`] itself; [`Front::free`] and the other
/// calls for many frames need no CPU.
///
/// Invariants: each frame of `owned` is in exactly one place: with a user (its
/// bit in `used` is set), in one slot, or free in the shared allocator. No
/// other frame is in any. While a call is under way its frames may be in none.
/// Only who holds the allocator's lock may clear more than one word of `used`
/// in a row, so whoever holds it sees no half-done free.
///
/// Frames that the allocator had handed out before the front was made are
/// foreign to the front: they go back before it is made, or after
/// [`into_inner`](Self::into_inner).
pub struct Front<'m, R, A> {
    shared: Mutex<R, A>,
    slots: &'m [Slot<R>],
    /// The frame of bit 0.
    first: u64,
    /// The frames that users hold.
    used: Bits<'m>,
    /// The frames that are the front's: those free when it was made. Does not
    /// change.
    owned: Bits<'m>,
}

/// The first frame, a multiple of `BITS`, and the words that reach from it
/// past the last free frame.
fn span(allocator: &impl FrameAllocator) -> (u64, usize) {
    let (mut first, mut end) = (u64::MAX, 0);
    allocator.for_each_free(&mut |extent| {
        first = first.min(extent.start.raw());
        end = end.max(extent.end().raw());
    });
    first -= first % BITS;
    (first, usize::try_from(end.saturating_sub(first).div_ceil(BITS)).unwrap_or(usize::MAX / 2))
}

impl<'m, R: RawMutex, A: FrameAllocator> Front<'m, R, A> {
    /// Counts the words of bits that a front over `allocator` needs. O(free
    /// blocks).
    pub fn bits_len(allocator: &A) -> usize {
        2 * span(allocator).1
    }

    /// A front over `allocator`, with as many CPUs as `slots`, which start
    /// empty. O(free blocks + words of `bits`).
    ///
    /// # Errors
    /// [`FrontError::NoSlots`] or [`FrontError::BitsTooShort`]; the allocator
    /// is dropped.
    pub fn new(
        allocator: A,
        slots: &'m mut [Slot<R>],
        bits: &'m mut [AtomicUsize],
    ) -> Result<Self, FrontError> {
        if slots.is_empty() {
            return Err(FrontError::NoSlots);
        }
        let (first, words) = span(&allocator);
        let given = bits.len();
        let short = FrontError::BitsTooShort { needed: 2 * words, given };
        let bits = bits.get_mut(..2 * words).ok_or(short)?;
        bits.fill_with(|| AtomicUsize::new(0));
        slots.fill_with(Slot::new);
        let (used, owned) = bits.split_at(words);
        let (used, owned) = (Bits(used), Bits(owned));
        allocator.for_each_free(&mut |extent| {
            owned.set_range(extent.start.raw() - first, extent.end().raw() - first);
        });
        Ok(Self { shared: Mutex::new(allocator), slots, first, used, owned })
    }

    /// The front as CPU `cpu` uses it.
    ///
    /// # Errors
    /// [`NoSuchCpu`] if `cpu` has no slot.
    #[inline]
    pub fn on(&self, cpu: usize) -> Result<OnCpu<'_, 'm, R, A>, NoSuchCpu> {
        match self.slots.get(cpu) {
            Some(slot) => Ok(OnCpu { front: self, slot }),
            None => Err(NoSuchCpu { cpu, cpus: self.slots.len() }),
        }
    }

    /// Allocates `count_frames` frames as [`FrameAllocator::allocate`] does: all
    /// or none. `sink` runs under the allocator's lock and must not call the
    /// front.
    ///
    /// O(the shared allocator's cost), and where that has too few frames free
    /// the cost of emptying every slot before.
    ///
    /// # Errors
    /// [`FrameAllocateError::Empty`] or [`FrameAllocateError::OutOfFrames`].
    pub fn allocate(
        &self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        self.insist(|shared| {
            shared.allocate(count_frames, &mut |block| {
                self.mark(block);
                sink(block);
            })
        })
    }

    /// Allocates 2^order frames whose first is a multiple of 2^order. Costs what
    /// [`allocate`](Self::allocate) costs.
    ///
    /// # Errors
    /// As [`FrameAllocator::allocate_aligned`].
    pub fn allocate_aligned(&self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.insist(|shared| shared.allocate_aligned(order).inspect(|&block| self.mark(block)))
    }

    /// Allocates one block as [`FrameAllocator::allocate_block`] does.
    fn allocate_block(&self, frames_max: u64) -> Option<Extent> {
        let none = FrameAllocateError::OutOfFrames { wanted: 1, free: 0 };
        let block = self.insist(|shared| {
            shared.allocate_block(frames_max).inspect(|&block| self.mark(block)).ok_or(none)
        });
        block.ok()
    }

    /// Frees frames, which may be any part of what was allocated, on whichever
    /// CPU. O(`extent.count` / 64 + the shared allocator's cost).
    ///
    /// # Errors
    /// A [`FrameFreeError`] that names the first frame of `extent` that no user
    /// holds; nothing changes.
    pub fn free(&self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        let end = extent.checked_end().ok_or(FrameFreeError::Overflow { extent })?.raw();
        let start = extent.start.raw();
        if start < self.first {
            return Err(FrameFreeError::Foreign { frame: extent.start });
        }
        let mut shared = self.shared.lock();
        let (start, end) = (start - self.first, end - self.first);
        self.used.clear_range(start, end).map_err(|index| self.refusal(index))?;
        shared.free(extent).inspect_err(|_| self.used.set_range(start, end))
    }

    /// Counts the frames that are free, in the allocator and in the slots.
    /// Exact when no other call is under way. O(CPUs).
    pub fn free_frames(&self) -> u64 {
        let held: u64 = self.slots.iter().map(|slot| slot.held.lock().count()).sum();
        held + self.shared.lock().free_frames()
    }

    /// Returns the number of frames, free or not.
    pub fn total_frames(&self) -> u64 {
        self.shared.lock().total_frames()
    }

    /// Returns to the allocator what the slots hold, so that it can
    /// coalesce. O(CPUs + frames in slots · the allocator's cost).
    pub fn drain(&self) {
        for slot in self.slots {
            let mut held = slot.held.lock();
            held.flush(&mut *self.shared.lock());
        }
    }

    /// Ends the front: the allocator, with everything but what users hold.
    pub fn into_inner(self) -> A {
        self.drain();
        self.shared.into_inner()
    }

    /// Checks every invariant. Call it when no other call is under way.
    /// O(words of bits + free blocks).
    ///
    /// # Errors
    /// The first [`FrontFault`].
    pub fn check(&self) -> Result<(), FrontFault> {
        let mut fault = None;
        let mut free = 0;
        let mut count = |extent: Extent| {
            free += extent.count;
            let wrong = |frame: &Pfn| {
                let index = frame.raw().wrapping_sub(self.first);
                self.used.get(index) || !self.owned.get(index)
            };
            fault = fault.or_else(|| extent.iter().find(wrong));
        };
        for slot in self.slots {
            slot.held.lock().extents().for_each(&mut count);
        }
        self.shared.lock().for_each_free(&mut count);
        if let Some(frame) = fault {
            return Err(FrontFault::NotFree { frame });
        }
        let (owned, used) = (self.owned.count(), self.used.count());
        if used + free != owned {
            return Err(FrontFault::Count { owned, used, free });
        }
        Ok(())
    }

    /// Asks the shared allocator, and while it fails empties one slot after
    /// the other into it and asks again.
    fn insist<T>(
        &self,
        mut ask: impl FnMut(&mut A) -> Result<T, FrameAllocateError>,
    ) -> Result<T, FrameAllocateError> {
        let mut answer = ask(&mut self.shared.lock());
        for slot in self.slots {
            if !matches!(
                answer,
                Err(FrameAllocateError::OutOfFrames { .. } | FrameAllocateError::NoBlock { .. })
            ) {
                break;
            }
            let mut held = slot.held.lock();
            let mut shared = self.shared.lock();
            held.flush(&mut *shared);
            drop(held);
            answer = ask(&mut shared);
        }
        answer
    }

    /// Notes that a user holds these frames.
    fn mark(&self, block: Extent) {
        let start = block.start.raw().wrapping_sub(self.first);
        self.used.set_range(start, start.saturating_add(block.count));
    }

    /// Clears a frame's bit where the quick try found it clear. It may have
    /// been cleared for a moment by a free of several frames that fails: with
    /// the allocator's lock held there is none under way.
    #[cold]
    #[inline(never)]
    fn clear_or_refuse(&self, index: u64) -> Result<(), FrameFreeError> {
        let _none_under_way = self.shared.lock();
        if self.used.clear(index) { Ok(()) } else { Err(self.refusal(index)) }
    }

    /// Returns the reason why the frame of a clear bit cannot be freed.
    fn refusal(&self, index: u64) -> FrameFreeError {
        let frame = Pfn::new(self.first.wrapping_add(index));
        if self.owned.get(index) {
            FrameFreeError::NotAllocated { frame }
        } else {
            FrameFreeError::Foreign { frame }
        }
    }
}

impl<R, A> fmt::Debug for Front<'_, R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("cpus", &self.slots.len()).finish_non_exhaustive()
    }
}

/// A [`Front`] as one CPU uses it.
pub struct OnCpu<'f, 'm, R, A> {
    front: &'f Front<'m, R, A>,
    slot: &'f Slot<R>,
}

impl<R, A> Clone for OnCpu<'_, '_, R, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, A> Copy for OnCpu<'_, '_, R, A> {}

impl<R, A> fmt::Debug for OnCpu<'_, '_, R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCpu").field("front", &self.front).finish_non_exhaustive()
    }
}

impl<R: RawMutex, A: FrameAllocator> OnCpu<'_, '_, R, A> {
    /// Allocates a single frame: O(1) from this CPU's slot, and each 32nd time or
    /// less the cost of claiming. `None` if no frame is free on any CPU.
    #[inline]
    pub fn allocate_frame(&self) -> Option<Pfn> {
        let popped = self.slot.held.lock().pop();
        let frame = match popped {
            Some(frame) => frame,
            None => return self.allocate_claimed(),
        };
        self.front.used.set(frame.wrapping_sub(self.front.first));
        Some(Pfn::new(frame))
    }

    /// Claims for the empty slot and allocates a single frame.
    #[cold]
    #[inline(never)]
    fn allocate_claimed(&self) -> Option<Pfn> {
        let mut held = self.slot.held.lock();
        if held.count() == 0 {
            held.claim(&mut *self.front.shared.lock());
        }
        let popped = held.pop();
        drop(held);
        let Some(frame) = popped else {
            return self.front.allocate_block(1).map(|block| block.start);
        };
        self.front.used.set(frame.wrapping_sub(self.front.first));
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
        let front = self.front;
        let index = frame.raw().wrapping_sub(front.first);
        if !front.used.clear(index) {
            front.clear_or_refuse(index)?;
        }
        let mut held = self.slot.held.lock();
        if !held.push(frame.raw()) {
            held.flush_half(&mut *front.shared.lock());
            let room = held.push(frame.raw());
            debug_assert!(room, "half of the buffer is free");
        }
        Ok(())
    }
}

/// [`allocate`](FrameAllocator::allocate) calls its sink under the allocator's
/// lock: the sink must not call the front.
impl<R: RawMutex, A: FrameAllocator> FrameAllocator for OnCpu<'_, '_, R, A> {
    #[inline]
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        match frames_max {
            0 => None,
            1 => OnCpu::allocate_frame(self).map(|frame| Extent::new(frame, 1)),
            _ => self.front.allocate_block(frames_max),
        }
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.front.allocate_aligned(order)
    }

    #[inline]
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.count != 1 {
            return self.front.free(extent);
        }
        // The last number is no frame's: an extent that begins there has no end.
        self.free_frame(extent.start).map_err(|error| match extent.checked_end() {
            Some(_) => error,
            None => FrameFreeError::Overflow { extent },
        })
    }

    fn free_frames(&self) -> u64 {
        self.front.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.front.total_frames()
    }

    /// The shared allocator's free blocks, then what each slot holds: its
    /// claimed word's, then its buffer's.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.front.shared.lock().for_each_free(visit);
        for slot in self.front.slots {
            slot.held.lock().extents().for_each(&mut *visit);
        }
    }

    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        self.front.allocate(count_frames, sink)
    }

    #[inline]
    fn allocate_frame(&mut self) -> Option<Pfn> {
        OnCpu::allocate_frame(self)
    }
}
