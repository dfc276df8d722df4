//! The words that guest and host share.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use swath_arch::{Extent, Pfn};

// The model checker has to see every atomic access.
#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;

/// Frames of a unit: 2 MiB, a page of the tables by which the host maps the guest. Small for the model
/// checker.
pub const UNIT_FRAMES: u64 = if cfg!(loom) { 2 } else { 512 };

/// The host has taken the unit: there is no memory behind it.
const TAKEN: u32 = 1 << 16;
/// The guest has removed the unit from its allocator.
const PARKED: u32 = 1 << 17;
/// The frames that the guest holds, or that are none of its memory.
const HELD: u32 = TAKEN - 1;

/// State of a unit, as a word says it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnitUse {
    /// Frames that the guest holds, or that are none of its memory.
    pub held_frames: u32,
    /// True if the host has taken the unit.
    pub is_taken: bool,
    /// True if the guest was refused the unit and does without it.
    pub is_parked: bool,
}

/// One word for each unit of a span of frames, which guest and host see.
///
/// Invariants: `TAKEN` is set only while `HELD` is 0, and `HELD` rises only while `TAKEN` is clear: each is changed
/// by a step that fails if the other is not so. Only the host sets and clears `TAKEN`, only the guest the rest.
#[derive(Clone, Copy, Debug)]
pub struct SharedUnits<'m> {
    words: &'m [AtomicU32],
    /// The first frame, a multiple of [`UNIT_FRAMES`].
    first: u64,
}

impl<'m> SharedUnits<'m> {
    /// Counts the words for the frames of `span`.
    #[must_use]
    pub fn words_len(span: Extent) -> usize {
        let (first, past) = bounds(span);
        usize::try_from(past - first).unwrap_or(usize::MAX)
    }

    /// The words of `span`, as a guest makes them: all frames count as held. `None` if there are too few
    /// words. O(words).
    #[must_use]
    pub fn new(span: Extent, words: &'m [AtomicU32]) -> Option<Self> {
        let words = words.get(..Self::words_len(span))?;
        words.iter().for_each(|word| word.store(UNIT_FRAMES as u32, Relaxed));
        Some(Self { words, first: bounds(span).0 * UNIT_FRAMES })
    }

    /// Returns the number of units.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns true if there is no unit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the frames of a unit.
    #[must_use]
    pub fn frames(&self, unit: usize) -> Extent {
        Extent::new(Pfn::new(self.first + unit as u64 * UNIT_FRAMES), UNIT_FRAMES)
    }

    /// Returns the state of a unit at this moment; `None` if there is no such unit.
    #[must_use]
    pub fn unit_use(&self, unit: usize) -> Option<UnitUse> {
        let word = self.words.get(unit)?.load(Relaxed);
        Some(UnitUse {
            held_frames: word & HELD,
            is_taken: word & TAKEN != 0,
            is_parked: word & PARKED != 0,
        })
    }

    /// Takes a unit for the host, if the guest holds none of its frames and it is not taken: from here on the
    /// host may take the memory behind it away. One atomic step.
    #[must_use]
    pub fn take(&self, unit: usize) -> bool {
        let Some(word) = self.words.get(unit) else { return false };
        let free = |now: u32| (now & (HELD | TAKEN) == 0).then_some(now | TAKEN);
        // Acquires what the guest did in the unit before it freed it.
        word.fetch_update(Acquire, Relaxed, free).is_ok()
    }

    /// Takes up to `units` units, from the highest down, since allocators prefer low frames; tells each to
    /// `taken`. Returns their number. O(units that there are).
    pub fn take_free(&self, units: usize, taken: &mut dyn FnMut(usize)) -> usize {
        let mut done = 0;
        for unit in (0..self.words.len()).rev() {
            if done == units {
                break;
            }
            if self.take(unit) {
                taken(unit);
                done += 1;
            }
        }
        done
    }

    /// Gives a unit back to the guest, behind which the host has put memory. Returns false if it was
    /// not taken. One atomic step.
    pub fn give(&self, unit: usize) -> bool {
        // The guest that sees it sees the memory, too.
        self.words.get(unit).is_some_and(|word| word.fetch_and(!TAKEN, Release) & TAKEN != 0)
    }

    /// The units in which frames lie, and how many lie in each.
    pub(super) fn pieces(&self, extent: Extent) -> impl Iterator<Item = (usize, u32)> {
        let (start, end) = (extent.start.raw() - self.first, extent.end().raw() - self.first);
        (start / UNIT_FRAMES..end.div_ceil(UNIT_FRAMES)).map(move |unit| {
            let base = unit * UNIT_FRAMES;
            let frames = end.min(base + UNIT_FRAMES) - start.max(base);
            (unit as usize, frames as u32)
        })
    }

    /// Notes that the guest holds these frames.
    ///
    /// # Errors
    /// The first unit that is taken; nothing changes.
    pub(super) fn hold(&self, extent: Extent) -> Result<(), usize> {
        for (unit, frames) in self.pieces(extent) {
            let there = |now: u32| (now & TAKEN == 0).then_some(now + frames);
            // Acquires the memory that the host has put behind the unit.
            if self.words[unit].fetch_update(Acquire, Relaxed, there).is_err() {
                let before = self.frames(unit).start.raw().saturating_sub(extent.start.raw());
                self.release(Extent::new(extent.start, before));
                return Err(unit);
            }
        }
        Ok(())
    }

    /// Notes that the guest holds these frames no more.
    pub(super) fn release(&self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        for (unit, frames) in self.pieces(extent) {
            // Whoever takes the unit then comes after what was done in it.
            self.words[unit].fetch_sub(frames, Release);
        }
    }

    /// Notes that the guest does without a taken unit; returns false if it was given back by now.
    pub(super) fn park(&self, unit: usize) -> bool {
        let taken = |now: u32| (now & TAKEN != 0).then_some(now | PARKED);
        self.words[unit].fetch_update(Relaxed, Relaxed, taken).is_ok()
    }

    /// Notes that the guest has a parked unit again, taken or not.
    pub(super) fn unpark(&self, unit: usize) {
        self.words[unit].fetch_and(!PARKED, AcqRel);
    }
}

/// The first unit of a span, and one past the last.
fn bounds(span: Extent) -> (u64, u64) {
    let end = span.checked_end().map_or(u64::MAX, Pfn::raw);
    (span.start.raw() / UNIT_FRAMES, end.div_ceil(UNIT_FRAMES))
}
