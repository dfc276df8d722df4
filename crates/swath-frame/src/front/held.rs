//! The frames that one CPU holds ready: a claimed word, a bounded buffer, and longer blocks.

use lock_api::RawMutex;
use swath_arch::{Extent, Pfn};

use crate::allocator::FrameAllocator;
use crate::front::areas::{Wrong, runs};
#[cfg(feature = "testing")]
use crate::front::areas::{flip, flip_len};
use crate::front::blocks::Blocks;
use crate::front::exchange::Shared;
use crate::front::reuse::Reuse;

/// Frames in a claimed word.
const WORD_FRAMES: u64 = 64;

/// Frames that a claim stops at where free memory is in small pieces; half of them for who gathers, and has others.
const CLAIM_FRAMES: u64 = if cfg!(loom) { 2 } else { 32 };

/// So many single frames are ready before any are claimed, and frames to be returned wait to be as many.
const READY_MIN: usize = if cfg!(loom) { 1 } else { 16 };

/// Frames in a slot's buffer: as many as are claimed, and those that wait. Small for the model checker, which must see it
/// overflow.
const BUFFER_FRAMES: usize = if cfg!(loom) { 2 } else { 64 };

/// Invariants: every frame here is the front's, is held by no user and is
/// allocated as far as the shared allocator knows; no frame is here twice.
pub(super) struct Held {
    /// The first frame of the claimed word. Blocks of any alignment are
    /// claimed, so this need not be a multiple of 64.
    pub(super) base: u64,
    /// Bit i: frame `base + i` is here.
    pub(super) mask: u64,
    /// Frames that ever left `frames` and that ever came in: the places of the next, counted on
    /// around the end.
    head: usize,
    tail: usize,
    /// Of who gathers the place up to which frames are ready to be handed out, from `head` to `tail`: those
    /// from there on came since then, or are to be returned.
    limit: usize,
    /// A ring of frames outside the claimed word. First in, first out: frames
    /// freed in rising order are handed out in rising order again.
    frames: [u64; BUFFER_FRAMES],
    pub(super) blocks: Blocks,
}

impl Held {
    /// Holds nothing, and areas of up to so many frames.
    pub(super) const fn new(areas_frames_max: u64) -> Self {
        Self {
            base: 0,
            mask: 0,
            head: 0,
            tail: 0,
            limit: 0,
            frames: [0; BUFFER_FRAMES],
            blocks: Blocks::new(areas_frames_max),
        }
    }

    /// Flips a bit of one of the slot's words; returns what it was.
    #[cfg(feature = "testing")]
    pub(super) fn flip(&mut self, word: usize, bit: u32) -> u64 {
        match word {
            0 => flip(&mut self.base, bit),
            1 => flip(&mut self.mask, bit),
            2 => flip_len(&mut self.head, bit),
            3 => flip_len(&mut self.tail, bit),
            4 => flip_len(&mut self.limit, bit),
            at if at < 5 + BUFFER_FRAMES => flip(&mut self.frames[at - 5], bit),
            at => self.blocks.flip(at - 5 - BUFFER_FRAMES, bit),
        }
    }

    /// Words of a slot.
    #[cfg(feature = "testing")]
    pub(super) const WORDS: usize = 5 + BUFFER_FRAMES + Blocks::WORDS;

    /// Counts the buffer's frames.
    #[inline(always)]
    fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Returns true if the buffer has more frames than places, as its words were overwritten; it is emptied.
    fn overflows(&mut self) -> bool {
        let overflows = self.len() > BUFFER_FRAMES;
        if overflows {
            (self.tail, self.limit) = (self.head, self.head);
        }
        overflows
    }

    /// Counts the frames.
    pub(super) fn count(&self) -> u64 {
        let singles = u64::from(self.mask.count_ones()).wrapping_add(self.len() as u64);
        singles.wrapping_add(self.blocks.count())
    }

    /// Returns true if no single frame is ready.
    pub(super) fn has_no_single<U: Reuse>(&self) -> bool {
        self.mask == 0 && self.head == self.end::<U>()
    }

    /// Of the buffer no frame is ready to be handed out, for who gathers from here on.
    pub(super) fn ready_none(&mut self) {
        self.limit = self.head;
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.mask, self.tail, self.limit) = (0, self.head, self.head);
        self.blocks.clear();
    }

    /// The place up to which frames of the ring may be handed out.
    #[inline(always)]
    fn end<U: Reuse>(&self) -> usize {
        if U::GATHERS { self.limit } else { self.tail }
    }

    #[inline]
    pub(super) fn pop<U: Reuse>(&mut self) -> Option<u64> {
        if self.mask != 0 {
            let lowest = u64::from(self.mask.trailing_zeros());
            self.mask &= self.mask - 1;
            return Some(self.base.wrapping_add(lowest));
        }
        if self.head == self.end::<U>() {
            return None;
        }
        let frame = self.frames[self.head % BUFFER_FRAMES];
        self.head = self.head.wrapping_add(1);
        Some(frame)
    }

    /// Takes in a frame, or says that there is no room for it.
    #[inline]
    pub(super) fn push(&mut self, frame: u64) -> bool {
        let bit = frame.wrapping_sub(self.base);
        if bit < WORD_FRAMES {
            self.mask |= 1 << bit;
            return true;
        }
        if self.len() >= BUFFER_FRAMES {
            return false;
        }
        self.frames[self.tail % BUFFER_FRAMES] = frame;
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Makes single frames ready where none is: claimed ones, or who gathers, those of the buffer that lie lower than what the
    /// allocator would give, and where they are few, claimed ones. The others go back to the allocator
    /// once they are many, so that what is in use gathers below, as the allocator prefers it, and
    /// whole huge pages become free above.
    #[inline(always)]
    pub(super) fn make_ready<U: Reuse, R: RawMutex>(
        &mut self,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        if !U::GATHERS {
            return self.claim::<U, R>(WORD_FRAMES, shared);
        }
        if self.overflows() {
            return Err(Wrong);
        }
        let low = self.put_first_below(shared.lowest());
        let high = self.tail - low;
        // Who has none takes many more; for others a few are enough, as more would only push out what comes back.
        let wanted = match low {
            0 if high == 0 => WORD_FRAMES,
            0..READY_MIN => READY_MIN as u64,
            _ => 0,
        };
        let mut result = Ok(());
        if high >= BUFFER_FRAMES / 2 || wanted > 0 && high >= READY_MIN {
            let frames = self.frames.get_mut(low..self.tail).unwrap_or_default();
            frames.sort_unstable();
            // No more, as the lock is held.
            let stay = high.saturating_sub(BUFFER_FRAMES / 2);
            result = shared.free_blocks(frames.get(stay..).unwrap_or_default(), 1);
            self.tail = low + stay;
            self.blocks.areas.forget_claims();
        }
        self.limit = low;
        if wanted > 0 {
            result = result.and(self.claim::<U, R>(wanted, shared));
            if self.has_no_single::<U>() {
                self.limit = self.tail;
            }
        }
        result
    }

    /// Puts the frames below `end` to the buffer's front, both these and the others in the order in which they
    /// came; returns how many they are.
    fn put_first_below(&mut self, end: u64) -> usize {
        let frames = self.in_a_row();
        let mut above = [0; BUFFER_FRAMES];
        let mut low = 0;
        for i in 0..frames.len() {
            let frame = frames[i];
            above[i - low] = frame;
            frames[low] = frame;
            low += usize::from(frame < end);
        }
        let high = frames.len() - low;
        frames[low..].copy_from_slice(&above[..high]);
        low
    }

    /// Claims a word of frames, or where memory is in small pieces as many as
    /// are worth a hold of the lock. Called when few single frames are ready, and none of the word. A word is
    /// cut from an area, so that the next ones lie beside it, and those of other CPUs on other lines.
    fn claim<U: Reuse, R: RawMutex>(
        &mut self,
        wanted: u64,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        let word = match self.blocks.pop_run(wanted) {
            Some(start) => Some(Extent::new(Pfn::new(start), wanted)),
            None => self.blocks.areas.claim_run(wanted, U::GATHERS, shared)?,
        };
        let Some(word) = word else { return Ok(()) };
        self.base = word.start.raw();
        self.push_all::<U>(word);
        let least = if U::GATHERS { CLAIM_FRAMES / 2 } else { CLAIM_FRAMES };
        let mut claimed = word.count;
        if claimed >= least {
            return Ok(());
        }
        let mut allocator = shared.lock();
        while claimed < least
            && let Some(block) = allocator.allocate_block(least - claimed)
        {
            claimed += block.count;
            self.push_all::<U>(block);
            if U::GATHERS {
                shared.note_claimed(block);
            }
        }
        Ok(())
    }

    /// Takes in frames that were claimed. Who gathers has others, which are handed out after these.
    fn push_all<U: Reuse>(&mut self, block: Extent) {
        for i in 0..block.count {
            let at = if U::GATHERS { block.count - 1 - i } else { i };
            let frame = block.start.raw().wrapping_add(at);
            let full = self.len() >= BUFFER_FRAMES;
            if !U::GATHERS || full || frame.wrapping_sub(self.base) < WORD_FRAMES {
                let held = self.push(frame);
                debug_assert!(held, "there is room for a claim");
            } else {
                self.head = self.head.wrapping_sub(1);
                self.frames[self.head % BUFFER_FRAMES] = frame;
            }
        }
    }

    /// The buffer's frames in the order in which they came.
    fn in_a_row(&mut self) -> &mut [u64] {
        self.frames.rotate_left(self.head % BUFFER_FRAMES);
        // Who calls puts them into another order.
        (self.head, self.tail, self.limit) = (0, self.len(), 0);
        self.frames.get_mut(..self.tail).unwrap_or_default()
    }

    /// Makes room in a full buffer: its upper half goes, or all if it is one run. False if the slot held
    /// what it cannot hold.
    #[cold]
    #[inline(never)]
    pub(super) fn spill<R: RawMutex>(
        &mut self,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> bool {
        if self.overflows() {
            return false;
        }
        self.in_a_row();
        let frames = self.frames.get_mut(..self.tail).unwrap_or_default();
        let (kept, result) = self.blocks.areas.make_room(frames, 1, shared);
        self.tail = kept;
        result.is_ok()
    }

    /// Returns everything; false if the slot held what it cannot hold.
    pub(super) fn flush(&mut self, shared: &mut impl FrameAllocator) -> bool {
        let mut right = self.len() <= BUFFER_FRAMES;
        for run in self.singles() {
            right &= shared.free(run).is_ok();
        }
        right &= self.blocks.flush(shared).is_ok();
        self.clear();
        right
    }

    /// Everything in the slot.
    pub(super) fn for_each(&mut self, visit: &mut dyn FnMut(Extent)) {
        self.singles().for_each(&mut *visit);
        self.blocks.extents().for_each(visit);
    }

    /// The single frames: the claimed word's runs, then the buffer's, each
    /// ascending.
    fn singles(&mut self) -> impl Iterator<Item = Extent> + '_ {
        let (base, mut mask) = (self.base, self.mask);
        let word = core::iter::from_fn(move || {
            if mask == 0 {
                return None;
            }
            let start = mask.trailing_zeros();
            let count = (mask >> start).trailing_ones();
            // Adding the run's lowest bit carries through the run.
            mask &= mask.wrapping_add(1 << start);
            Some(Extent::new(Pfn::new(base.wrapping_add(start.into())), u64::from(count)))
        });
        let frames = self.in_a_row();
        frames.sort_unstable();
        word.chain(runs(frames, 1))
    }
}
