//! A shared allocator with a slot for each CPU before it.

use core::fmt;
use core::marker::PhantomData;

use lock_api::{Mutex, MutexGuard, RawMutex};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::contiguous::{ContiguousAllocator, ContiguousError, ContiguousRequest};
#[cfg(feature = "testing")]
use crate::front::areas::{Areas, SPARE_AREAS};
use crate::front::areas::{frames_max, pooled_max, spare_max};
use crate::front::bits::{Bits, LINE_WORDS, UNIT_FRAMES, UNIT_WORDS};
use crate::front::exchange::{Shared, free_all};
use crate::front::held::Held;
use crate::front::pages::{Pages, words_of_pages};
use crate::front::reuse::{Fifo, Gather, Reuse};
use crate::hardening::{Table, WordFault};
use crate::hotplug::{FrameHotplug, FrameHotplugError, within};

// The model checker has to see every atomic access.
#[cfg(not(loom))]
use core::sync::atomic::AtomicUsize;
#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;

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
    pub(super) held: Mutex<R, Held>,
}

impl<R: RawMutex> Slot<R> {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self { held: Mutex::new(Held::new(0)) }
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

/// A shared frame allocator with a slot for each CPU before it.
///
/// `R` is the lock's type, `A` the allocator's, and `U` says which single frames are used again. [`Front::on`] gives a CPU's
/// view, which is a [`FrameAllocator`] itself; [`Front::free`] and the other
/// calls for many frames need no CPU.
///
/// Invariants: each frame of the front is in exactly one place: with a user (its
/// bit is set), in one slot, in one spare area, or free in the shared allocator. No
/// other frame is in any. While a call is under way its frames may be in none.
/// Only who holds the allocator's lock may clear more than one word of the users'
/// bits in a row, so whoever holds it sees no half-done free.
///
/// Frames that the allocator had handed out before the front was made are
/// foreign to the front: they go back before it is made, or after
/// [`into_inner`](Self::into_inner).
pub struct Front<'m, R, A, U = Fifo> {
    pub(super) shared: Shared<'m, R, A>,
    pub(super) slots: &'m [Slot<R>],
    /// The frame of bit 0.
    pub(super) first: u64,
    /// The frames that are the front's, which are those that were free when it was made, and of
    /// them those that users hold.
    pub(super) bits: Bits<'m>,
    /// The first contradiction that a call met. Its lock is taken last.
    fault: Mutex<R, Option<WordFault>>,
    reuse: PhantomData<fn() -> U>,
}

/// The first frame, a multiple of `UNIT_FRAMES`, and the units that reach from it
/// past the last frame of `reach` and the last that is free.
fn span(allocator: &impl FrameAllocator, reach: Extent) -> (u64, usize) {
    let mut bounds = bounds(reach);
    allocator.for_each_free(&mut |extent| {
        bounds = (bounds.0.min(extent.start.raw()), bounds.1.max(extent.end().raw()));
    });
    units(bounds)
}

/// The first frame and one past the last, such that those of no frames are within all others.
fn bounds(reach: Extent) -> (u64, u64) {
    let end = reach.checked_end().map_or(u64::MAX, Pfn::raw);
    if reach.is_empty() { (u64::MAX, 0) } else { (reach.start.raw(), end) }
}

/// The first frame, a multiple of `UNIT_FRAMES`, and the units from it on.
fn units((mut first, end): (u64, u64)) -> (u64, usize) {
    first -= first % UNIT_FRAMES;
    let units = end.saturating_sub(first).div_ceil(UNIT_FRAMES);
    (first, usize::try_from(units).unwrap_or(usize::MAX / UNIT_WORDS))
}

/// The words that so many units and their pages need wherever they lie: up to a line's goes before the first.
fn words_of(units: usize) -> usize {
    if units == 0 {
        return 0;
    }
    let words = UNIT_WORDS.saturating_mul(units).saturating_add(words_of_pages(units));
    words.saturating_add(LINE_WORDS - 1)
}

impl<'m, R: RawMutex, A: FrameAllocator> Front<'m, R, A> {
    /// Counts the words of bits that a front over `allocator` needs. O(free
    /// blocks).
    pub fn bits_len(allocator: &A) -> usize {
        words_of(span(allocator, Extent::default()).1)
    }

    /// Counts the words of bits that a front needs to which frames of `reach` may be added, over an allocator
    /// that has no others. O(1).
    pub fn bits_len_reaching(reach: Extent) -> usize {
        words_of(units(bounds(reach)).1)
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
        Self::new_reaching(allocator, Extent::default(), slots, bits)
    }

    /// Like [`new`](Self::new), but frames of `reach`, which may all be missing yet, can be
    /// [added](Self::add_frames).
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn new_reaching(
        allocator: A,
        reach: Extent,
        slots: &'m mut [Slot<R>],
        bits: &'m mut [AtomicUsize],
    ) -> Result<Self, FrontError> {
        if slots.is_empty() {
            return Err(FrontError::NoSlots);
        }
        let (first, units) = span(&allocator, reach);
        let (needed, given) = (words_of(units), bits.len());
        let bits = bits.get_mut(..needed).ok_or(FrontError::BitsTooShort { needed, given })?;
        // Where this cannot be known, a unit is as good anywhere.
        let before = bits.as_ptr().align_offset(64) % LINE_WORDS;
        let bits = bits.get_mut(before..).unwrap_or_default();
        bits.fill_with(|| AtomicUsize::new(0));
        let (bits, pages) = bits.split_at_checked(UNIT_WORDS * units).unwrap_or_default();
        let bits = Bits(bits.as_chunks().0);
        bits.hold_all();
        let (memory, cpus) = (UNIT_FRAMES * bits.0.len() as u64, slots.len());
        let share = frames_max(memory, cpus);
        slots.fill_with(|| Slot { held: Mutex::new(Held::new(share)) });
        allocator.for_each_free(&mut |extent| {
            bits.own_range(extent.start.raw() - first, extent.end().raw() - first);
        });
        let spare = spare_max(memory, cpus, share);
        let pages = Pages::new(pages, first, pooled_max(memory, share));
        let shared = Shared::new(allocator, spare, pages);
        let fault = Mutex::new(None);
        Ok(Self { shared, slots, first, bits, fault, reuse: PhantomData })
    }

    /// The same front, whose single frames in use [gather](Gather) below from now on. O(CPUs).
    #[must_use]
    pub fn gathering(self) -> Front<'m, R, A, Gather> {
        self.slots.iter().for_each(|slot| slot.held.lock().ready_none());
        let Self { shared, slots, first, bits, fault, .. } = self;
        Front { shared, slots, first, bits, fault, reuse: PhantomData }
    }
}

impl<'m, R: RawMutex, A: FrameAllocator, U: Reuse> Front<'m, R, A, U> {
    /// Allocates `count_frames` frames as [`FrameAllocator::allocate`] does: all
    /// or none. `sink` runs under the allocator's lock and must not call the
    /// front.
    ///
    /// O(the shared allocator's cost), and where that has too few frames free
    /// the cost of emptying every slot before. For more than 1,024 frames what is
    /// pooled or spare goes back first, so that their runs are as long as can be.
    ///
    /// # Errors
    /// [`FrameAllocateError::Empty`], [`FrameAllocateError::OutOfFrames`] or
    /// [`FrameAllocateError::Corrupt`].
    pub fn allocate(
        &self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        let mut marked = Ok(());
        self.gather(count_frames);
        self.insist(|shared| {
            shared.allocate(count_frames, &mut |block| match self.mark(block) {
                Ok(_) => sink(block),
                Err(error) => marked = Err(error),
            })
        })?;
        Ok(marked?)
    }

    /// Allocates 2^order frames whose first is a multiple of 2^order. Costs what
    /// [`allocate`](Self::allocate) costs.
    ///
    /// # Errors
    /// As [`FrameAllocator::allocate_aligned`].
    pub fn allocate_aligned(&self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.insist(|shared| shared.allocate_aligned(order).and_then(|block| Ok(self.mark(block)?)))
    }

    /// Allocates one block as [`FrameAllocator::allocate_block`] does.
    pub(super) fn allocate_block(&self, frames_max: u64) -> Option<Extent> {
        let none = FrameAllocateError::OutOfFrames { wanted: 1, free: 0 };
        self.gather(frames_max);
        let block = self.insist(|shared| {
            shared.allocate_block(frames_max).ok_or(none).and_then(|block| Ok(self.mark(block)?))
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
        let (mut shared, start, end) = self.give(extent)?;
        self.shared.note_returned(extent.start.raw());
        // What users hold, the allocator has handed out.
        shared.free(extent).map_err(|_| {
            self.bits.take_range(start, end);
            FrameFreeError::Corrupt(self.note(self.bit_fault(start)))
        })
    }

    /// Notes that no user holds these frames any more; returns the allocator's lock, and their
    /// bits' numbers.
    pub(super) fn give(
        &self,
        extent: Extent,
    ) -> Result<(MutexGuard<'_, R, A>, u64, u64), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        let end = extent.checked_end().ok_or(FrameFreeError::Overflow { extent })?.raw();
        let start = extent.start.raw();
        if start < self.first {
            return Err(FrameFreeError::Foreign { frame: extent.start });
        }
        let shared = self.shared.lock();
        let (start, end) = (start - self.first, end - self.first);
        self.bits.give_range(start, end).map_err(|index| self.refusal(index))?;
        Ok((shared, start, end))
    }

    /// Returns the first contradiction between bits, slots and allocator that a call met, which
    /// only a change of the front's words from outside can bring about. The front goes on: a frame
    /// that a word contradicts goes to nobody.
    pub fn fault(&self) -> Option<WordFault> {
        *self.fault.lock()
    }

    /// Keeps the first contradiction.
    #[cold]
    #[inline(never)]
    fn note(&self, fault: WordFault) -> WordFault {
        *self.fault.lock().get_or_insert(fault)
    }

    /// The word of a frame's bit as one that is wrong.
    fn bit_fault(&self, index: u64) -> WordFault {
        let (word, value) = self.bits.word(index);
        WordFault { table: Table::Allocated, word, value }
    }

    /// Returns what a slot holds to the allocator, or the spare areas, which are as one more slot after the
    /// last. With the allocator's lock, so that nobody else takes them first.
    fn flush(&self, at: usize) -> MutexGuard<'_, R, A> {
        // Whatever comes back.
        self.shared.note_returned(0);
        let (allocator, right, value) = if let Some(slot) = self.slots.get(at) {
            let mut held = slot.held.lock();
            let mut allocator = self.shared.lock();
            let right = held.flush(&mut *allocator);
            (allocator, right, held.base)
        } else {
            let mut spare = self.shared.spare();
            let mut allocator = self.shared.lock();
            let right = spare.flush(&mut *allocator).is_ok();
            let pooled = free_all(self.shared.pages.take_all(), &mut *allocator).is_ok();
            (allocator, right && pooled, 0)
        };
        if !right {
            self.note(WordFault { table: Table::Slots, word: at, value });
        }
        allocator
    }

    /// Returns what is pooled or spare, if pages are, before a request that is longer than what a slot serves: in the
    /// allocator they may be one run with what lies beside them.
    fn gather(&self, frames: u64) {
        if frames > UNIT_FRAMES && !self.shared.pages.is_empty() {
            drop(self.flush(self.slots.len()));
        }
    }

    /// Counts the frames that are free, in the allocator, spare and in the slots.
    /// Exact when no other call is under way. O(CPUs).
    pub fn free_frames(&self) -> u64 {
        let held: u64 = self.slots.iter().map(|slot| slot.held.lock().count()).sum();
        let pooled: u64 = self.shared.pages.iter().map(|run| run.count).sum();
        held + pooled + self.shared.spare().count() + self.shared.lock().free_frames()
    }

    /// Visits every free frame: the allocator's, the spare ones, then those of the slots.
    pub(super) fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.shared.lock().for_each_free(visit);
        self.shared.spare().iter().for_each(&mut *visit);
        self.shared.pages.iter().for_each(&mut *visit);
        for slot in self.slots {
            slot.held.lock().for_each(visit);
        }
    }

    /// Returns the number of frames, free or not.
    pub fn total_frames(&self) -> u64 {
        self.shared.lock().total_frames()
    }

    /// Returns to the allocator what the slots hold, and what is spare, so that it can
    /// coalesce. O(CPUs + frames in slots · the allocator's cost).
    pub fn drain(&self) {
        for at in 0..=self.slots.len() {
            drop(self.flush(at));
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
            let wrong = |frame: &Pfn| !self.bits.is_free(frame.raw().wrapping_sub(self.first));
            fault = fault.or_else(|| extent.iter().find(wrong));
        };
        self.for_each_free(&mut count);
        if let Some(frame) = fault {
            return Err(FrontFault::NotFree { frame });
        }
        let (owned, used) = self.bits.count();
        if used + free != owned {
            return Err(FrontFault::Count { owned, used, free });
        }
        Ok(())
    }

    /// Counts the words of the bits, the slots and the spare areas.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn own_words(&self) -> usize {
        UNIT_WORDS * self.bits.0.len()
            + self.shared.pages.all_words().count()
            + self.slots.len() * Held::WORDS
            + Areas::<SPARE_AREAS>::WORDS
    }

    /// Flips a bit of the word `word`: those of the bits come first, then those of each slot, then those of the
    /// spare areas. Returns what the word was.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn flip(&self, word: usize, bit: u32) -> u64 {
        let bits = self.bits.0.iter().flatten().chain(self.shared.pages.all_words());
        if let Some(word) = bits.clone().nth(word) {
            let bit = 1 << (bit % usize::BITS);
            return word.fetch_xor(bit, core::sync::atomic::Ordering::Relaxed) as u64;
        }
        let word = word - bits.count();
        match self.slots.get(word / Held::WORDS) {
            Some(slot) => slot.held.lock().flip(word % Held::WORDS, bit),
            None => self.shared.spare().flip(word - self.slots.len() * Held::WORDS, bit),
        }
    }

    /// Asks the shared allocator, and while it fails returns to it what is spare, then what one slot after
    /// the other holds, and asks again.
    fn insist<T>(
        &self,
        ask: impl FnMut(&mut A) -> Result<T, FrameAllocateError>,
    ) -> Result<T, FrameAllocateError> {
        self.insist_while(ask, |refused| {
            matches!(
                refused,
                FrameAllocateError::OutOfFrames { .. } | FrameAllocateError::NoBlock { .. }
            )
        })
    }

    /// As [`insist`](Self::insist) while `short` says that more free frames may help.
    fn insist_while<T, E>(
        &self,
        mut ask: impl FnMut(&mut A) -> Result<T, E>,
        short: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut answer = ask(&mut self.shared.lock());
        for at in (0..=self.slots.len()).rev() {
            if !answer.as_ref().is_err_and(&short) {
                break;
            }
            answer = ask(&mut self.flush(at));
        }
        answer
    }

    /// Notes that a user holds these frames, if none holds one of them.
    fn mark(&self, block: Extent) -> Result<Extent, WordFault> {
        let start = block.start.raw().wrapping_sub(self.first);
        if self.bits.take_range(start, start.saturating_add(block.count)) {
            return Ok(block);
        }
        Err(self.note(self.bit_fault(start)))
    }

    /// Makes room in a full buffer, and takes in a frame.
    #[cold]
    #[inline(never)]
    pub(super) fn spill(&self, slot: &Slot<R>, held: &mut Held, frame: u64) {
        if !held.spill(&self.shared) {
            self.note_slot(slot, frame);
        }
        let room = held.push(frame);
        debug_assert!(room, "half of the buffer is free");
    }

    /// Forgets what a slot holds, after it held a frame that a user holds or that is not the
    /// front's: none of its words can be believed.
    #[cold]
    #[inline(never)]
    pub(super) fn discard(&self, slot: &Slot<R>, frame: u64) -> WordFault {
        let mut held = slot.held.lock();
        held.clear();
        drop(held);
        self.note_slot(slot, frame)
    }

    /// Keeps a slot as what is wrong.
    pub(super) fn note_slot(&self, slot: &Slot<R>, value: u64) -> WordFault {
        let word = self.slots.iter().position(|other| core::ptr::eq(other, slot));
        let word = word.unwrap_or_default();
        self.note(WordFault { table: Table::Slots, word, value })
    }

    /// Clears a frame's bit where the quick try found it clear. It may be one of a part that is
    /// held whole, or have been cleared for a moment by a free of several frames that fails: with
    /// the allocator's lock held there is none under way.
    #[cold]
    #[inline(never)]
    pub(super) fn clear_or_refuse(&self, index: u64) -> Result<(), FrameFreeError> {
        let _none_under_way = self.shared.lock();
        if self.bits.give_held(index) { Ok(()) } else { Err(self.refusal(index)) }
    }

    /// Returns the reason why the frame of a clear bit cannot be freed.
    fn refusal(&self, index: u64) -> FrameFreeError {
        let frame = Pfn::new(self.first.wrapping_add(index));
        if self.bits.is_owned(index) {
            FrameFreeError::NotAllocated { frame }
        } else {
            FrameFreeError::Foreign { frame }
        }
    }
}

impl<R: RawMutex, A: ContiguousAllocator, U: Reuse> Front<'_, R, A, U> {
    /// Allocates a run that meets a request, as
    /// [`ContiguousAllocator::allocate_contiguous`] does: the slots are emptied if that is what it takes.
    /// The allocator's lock is held for its search.
    ///
    /// # Errors
    /// A [`ContiguousError`]; no frame is allocated.
    pub fn allocate_contiguous(
        &self,
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError> {
        let ask = |shared: &mut A| {
            let run = shared.allocate_contiguous(request)?;
            self.mark(run).map_err(ContiguousError::Corrupt)
        };
        self.insist_while(ask, |refused| {
            matches!(refused, ContiguousError::OutOfFrames { .. } | ContiguousError::NoRun { .. })
        })
    }
}

impl<R: RawMutex, A: FrameHotplug, U: Reuse> Front<'_, R, A, U> {
    /// Adds frames, free from now on, on whichever CPU. O(the allocator's cost + count / 64).
    ///
    /// # Errors
    /// As [`FrameHotplug::add_frames`]; [`FrameHotplugError::OutOfSpan`], too, if the front was not made to
    /// [reach](Self::new_reaching) there.
    pub fn add_frames(&self, extent: Extent) -> Result<(), FrameHotplugError> {
        let mut shared = self.shared.lock();
        let bits = Extent::new(Pfn::new(self.first), UNIT_FRAMES * self.bits.0.len() as u64);
        let (start, end) = within(extent, shared.span().intersect(bits))?;
        shared.add_frames(extent)?;
        // Nobody has them before the lock is free again.
        self.bits.own_range(start - self.first, end - self.first);
        Ok(())
    }

    /// Removes frames that no user holds, out of the slots, too. O(the allocator's cost + count / 64 + the cost
    /// of emptying the slots where they hold some of them).
    ///
    /// # Errors
    /// As [`FrameHotplug::remove_frames`].
    pub fn remove_frames(&self, extent: Extent) -> Result<(), FrameHotplugError> {
        let ask = |shared: &mut A| {
            shared.remove_frames(extent)?;
            let start = extent.start.raw().saturating_sub(self.first);
            self.bits.disown_range(start, start + extent.count);
            Ok(())
        };
        self.insist_while(ask, |refused| matches!(refused, FrameHotplugError::InUse { .. }))
    }
}

impl<R, A, U> fmt::Debug for Front<'_, R, A, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("cpus", &self.slots.len()).finish_non_exhaustive()
    }
}
