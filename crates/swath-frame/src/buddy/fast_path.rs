//! The short ways: single frames, and extents within a word or two of class 0.
//!
//! Most calls neither break up a unit nor complete one, and what they change
//! is a word of `allocated` and the word of class 0 that stands for the same
//! frames. These calls are served here; whatever else turns up is left to
//! [`classes`](crate::buddy::state), before anything is changed that it would miss.

use swath_arch::{Extent, Pfn};

use crate::allocator::{FrameAllocateError, FrameFreeError};
use crate::bits::words::{self, ones, ones_across, pair};
use crate::buddy::rule::Rule;
use crate::buddy::state::State;
use crate::hardening::Hardening;

impl<R: Rule, H: Hardening> State<R, H> {
    #[inline(always)]
    pub(crate) fn allocate_frame(&mut self, s: &mut [u64]) -> Option<Pfn> {
        if R::INDEXED {
            return self.allocate_block(s, 1).map(|block| block.start);
        }
        // In the checked tier the head word says it, which is zero where it has
        // stopped: so the test of the frame's other word costs nothing more.
        if !H::CHECKED && self.nonempty & 1 == 0 {
            return self.allocate_split(s);
        }
        let Some((index, bit, is_last)) = self.classes[0].free.pop_head(s) else {
            return self.allocate_beyond(s);
        };
        if is_last {
            return self.allocate_last(s, index, bit);
        }
        self.taken_one(s, index, bit)
    }

    /// Allocates the frame that was the last of class 0.
    #[inline(never)]
    fn allocate_last(&mut self, s: &mut [u64], index: usize, bit: u32) -> Option<Pfn> {
        self.nonempty &= !1;
        self.taken_one(s, index, bit)
    }

    /// Allocates the first frame of class 0, which is not in the head word.
    #[inline(never)]
    fn allocate_beyond(&mut self, s: &mut [u64]) -> Option<Pfn> {
        if H::CHECKED && self.nonempty & 1 == 0 {
            return self.allocate_split(s);
        }
        let Some(frame) = self.pop(s, 0) else {
            if H::CHECKED {
                self.lost(s);
            }
            return None;
        };
        let at = self.frame(frame);
        self.taken_one(s, at >> 6, at as u32 & 63)
    }

    /// Stops the allocator at a frame of class 0 that is allocated. Apart from the fast path, which so
    /// needs no room for the fault.
    #[cold]
    #[inline(never)]
    fn stop_at_one(&mut self, s: &mut [u64], frame: u64, index: usize) -> Option<Pfn> {
        self.stop_at(s, 0, frame, index);
        None
    }

    /// Notes that the free frame of a bit of a word, in no class now, is allocated.
    #[inline(always)]
    fn taken_one(&mut self, s: &mut [u64], index: usize, bit: u32) -> Option<Pfn> {
        let frame = self.classes[0].base + ((index as u64) << 6 | u64::from(bit));
        let word = &mut s[index];
        let now = *word | 1 << bit;
        if H::CHECKED && now == *word {
            return self.stop_at_one(s, frame, index);
        }
        *word = now;
        self.free -= 1;
        Some(Pfn::new(frame))
    }

    /// Takes the lowest unit of class `i` out of it.
    #[inline(always)]
    pub(crate) fn pop(&mut self, s: &mut [u64], i: usize) -> Option<u64> {
        let class = &mut self.classes[i];
        let at = class.free.pop(s)?;
        if class.free.is_empty(s) {
            self.nonempty &= !(1 << i);
        }
        Some(class.base + at as u64)
    }

    /// Allocates the first frame of a unit of the lowest class that has one. Of
    /// each unit on the way down, all but the first part stays free.
    #[inline(never)]
    fn allocate_split(&mut self, s: &mut [u64]) -> Option<Pfn> {
        if self.nonempty == 0 {
            let _ = self.starved(s);
            return None;
        }
        let i = self.nonempty.trailing_zeros() as usize;
        let popped = self.pop(s, i).filter(|&unit| !H::CHECKED || self.classes[i].spans(unit));
        let Some(mut unit) = popped else {
            if H::CHECKED {
                self.lost(s);
            }
            return None;
        };
        for class in self.classes[..i].iter_mut().rev() {
            unit <<= self.granularity;
            let at = (unit - class.base) as usize;
            if self.granularity > 6 {
                class.free.insert(s, at + 1, (1 << self.granularity) - 1);
            } else {
                let was = class.free.word(s, at >> 6);
                let now = was | (self.siblings & !1) << (at & 63);
                class.free.raise(s, at >> 6, was, now);
            }
        }
        self.nonempty |= (1 << i) - 1;
        let at = self.frame(unit);
        self.taken_one(s, at >> 6, at as u32 & 63)
    }

    #[inline(always)]
    pub(crate) fn free_frame(&mut self, s: &mut [u64], frame: Pfn) -> Result<(), FrameFreeError> {
        let Some((index, bit)) = self.allocated_bit(s, frame) else {
            let extent = Extent::new(frame, 1);
            return if H::CHECKED {
                self.free_extent(s, extent)
            } else {
                Err(self.refuse(s, frame))
            };
        };
        s[index] ^= bit;
        self.free += 1;
        if !self.join(s, index, bit) {
            self.complete(s, index, frame.raw());
        }
        Ok(())
    }

    /// Returns the word and the bit of an allocated frame; in the checked tier only
    /// in the whole words of the largest area.
    #[inline(always)]
    fn allocated_bit(&self, s: &[u64], frame: Pfn) -> Option<(usize, u64)> {
        let solid = &self.areas.solid;
        let base = if H::CHECKED { solid.start.raw() } else { self.classes[0].base };
        let at = frame.raw().wrapping_sub(base);
        let (index, bit) = (at >> 6, 1 << (at & 63));
        let inside =
            if H::CHECKED { at < solid.count } else { index < self.allocated_words as u64 };
        if !inside {
            return None;
        }
        let index = index as usize + if H::CHECKED { self.solid_word } else { 0 };
        (s[index] & bit != 0).then_some((index, bit))
    }

    /// Returns true if a frame is not in the whole words of the largest area, where
    /// what is allocated is no hole.
    #[inline(always)]
    fn is_beside(&self, frame: Pfn) -> bool {
        let solid = &self.areas.solid;
        frame.raw().wrapping_sub(solid.start.raw()) >= solid.count
    }

    /// Adds to class 0 the frames that `bits` marks in word `index`, unless
    /// that seems to complete a parent or the rule has to be notified.
    #[inline(always)]
    fn join(&mut self, s: &mut [u64], index: usize, bits: u64) -> bool {
        let was = self.classes[0].free.word(s, index);
        let now = was | bits;
        if R::INDEXED || self.has_full(now) {
            return false;
        }
        self.classes[0].free.raise(s, index, was, now);
        if was == 0 {
            self.nonempty |= 1;
        }
        true
    }

    /// Makes a frame free that completes its parent, or its word of a parent of
    /// several, and each parent that this completes in turn: with granularity
    /// 1, and while no mark changes, by the words of the units alone.
    #[inline(always)]
    fn complete(&mut self, s: &mut [u64], index: usize, frame: u64) {
        let left = self.classes[0].free.word(s, index) & !pair(frame);
        if R::INDEXED || self.granularity != 1 || left == 0 {
            return self.complete_word(s, frame);
        }
        self.classes[0].free.set_word(s, index, left);
        let mut unit = frame >> 1;
        for (i, class) in self.classes.iter().enumerate().skip(1) {
            let at = class.word_at(unit);
            let word = s[at];
            if word & pair(unit) & class.twins == 0 {
                if word == 0 {
                    return self.put_up(s, i, unit);
                }
                s[at] = word | 1_u64.wrapping_shl(unit as u32);
                return;
            }
            let left = word & !pair(unit);
            if left == 0 {
                return self.put_up(s, i, unit);
            }
            s[at] = left;
            unit >>= 1;
        }
    }

    /// As [`complete`](Self::complete), for any granularity. Where a parent is
    /// several words, mostly another of them is not full yet and nothing moves:
    /// which one is as good as random, so they are counted and not searched.
    #[inline(never)]
    fn complete_word(&mut self, s: &mut [u64], frame: u64) {
        if R::INDEXED || self.granularity <= 6 {
            return self.put_up(s, 0, frame);
        }
        let words = 1 << (self.granularity - 6);
        let class = &self.classes[0];
        let index = self.frame(frame) / 64;
        let inside = (frame >> 6) as usize & (words - 1);
        // A parent that starts below the first word reaches out of the span.
        let full = index.checked_sub(inside).map_or(0, |low| class.free.full_words(s, low, words));
        if full + 1 == words {
            return self.put_up(s, 0, frame);
        }
        class.free.set_word(s, index, u64::MAX);
    }

    /// Makes a unit of class `i` free, and each parent that this completes.
    #[inline(never)]
    pub(crate) fn put_up(&mut self, s: &mut [u64], i: usize, mut unit: u64) {
        let g = self.granularity;
        for i in i..self.last {
            let class = &mut self.classes[i];
            let (index, at) = (((unit - class.base) >> 6) as usize, unit as u32 & 63);
            let siblings = self.siblings << (at >> g.min(6) << g.min(6));
            let was = class.free.word(s, index);
            let now = was | 1 << at;
            if R::INDEXED || g > 6 && now == u64::MAX {
                if !self.fill(s, i, unit, unit + 1) {
                    return;
                }
            } else if now & siblings != siblings {
                class.free.raise(s, index, was, now);
                self.nonempty |= 1 << i;
                return;
            } else {
                class.free.lower(s, index, now & !siblings);
                if class.free.is_empty(s) {
                    self.nonempty &= !(1 << i);
                }
            }
            unit >>= g;
        }
        self.insert(s, self.last, unit, unit + 1);
    }

    /// See [`FrameAllocator::free`](crate::FrameAllocator::free).
    #[inline(always)]
    pub(crate) fn free(&mut self, s: &mut [u64], extent: Extent) -> Result<(), FrameFreeError> {
        if R::INDEXED {
            return self.free_across(s, extent);
        }
        let at = extent.start.raw().wrapping_sub(self.classes[0].base);
        let (index, low) = (at >> 6, at & 63);
        let outside = if H::CHECKED {
            self.is_beside(extent.start)
        } else {
            index >= self.allocated_words as u64
        };
        if outside || extent.count.wrapping_sub(1) >= 64 - low {
            return self.free_extent(s, extent);
        }
        let (index, bits) = (index as usize, ones::<u64>(extent.count as usize) << low);
        if s[index] & bits != bits {
            return self.free_extent(s, extent);
        }
        s[index] ^= bits;
        self.free += extent.count;
        if self.join(s, index, bits) {
            return Ok(());
        }
        if extent.count == 1 {
            self.put_up(s, 0, extent.start.raw());
        } else {
            self.release(s, extent.start.raw(), extent.start.raw() + extent.count);
        }
        Ok(())
    }

    /// Frees for a rule that is notified: an extent within two words as any other,
    /// as it is as often in two as in one.
    #[inline(always)]
    fn free_across(&mut self, s: &mut [u64], extent: Extent) -> Result<(), FrameFreeError> {
        let at = extent.start.raw().wrapping_sub(self.classes[0].base);
        let (index, from) = (at >> 6, (at & 63) as usize);
        let outside = if H::CHECKED {
            self.is_beside(extent.start)
                || self.is_beside(Pfn::new(extent.start.raw().wrapping_add(64)))
        } else {
            index >= self.allocated_words as u64 - 1
        };
        if outside || extent.count.wrapping_sub(1) >= 64 {
            return self.free_extent(s, extent);
        }
        let (at, index, count) = (at as usize, index as usize, extent.count as usize);
        let bits = ones_across(count, from);
        let class = &self.classes[0];
        let [low, high] = class.free.two(s, index);
        if s[index] & bits[0] != bits[0]
            || s[index + 1] & bits[1] != bits[1]
            || self.has_full(low | bits[0])
            || self.has_full(high | bits[1])
        {
            return self.free_extent(s, extent);
        }
        s[index] ^= bits[0];
        s[index + 1] ^= bits[1];
        self.free += extent.count;
        let class = &mut self.classes[0];
        class.free.raise_any(s, index, bits[0]);
        class.free.raise_any(s, index + 1, bits[1]);
        self.nonempty |= 1;
        self.rule.inserted(s, 0, class, at, at + count);
        Ok(())
    }

    /// Returns true if a parent seems to be full in this word of class 0.
    #[inline(always)]
    fn has_full(&self, word: u64) -> bool {
        words::has_full(word, self.parent_firsts, self.parent_lasts)
    }

    /// See [`FrameAllocator::allocate_block`](crate::FrameAllocator::allocate_block).
    #[inline(always)]
    pub(crate) fn allocate_block(&mut self, s: &mut [u64], frames_max: u64) -> Option<Extent> {
        let short = if R::INDEXED {
            self.allocate_fitting(s, frames_max)
        } else {
            self.allocate_short(s, frames_max)
        };
        match short {
            None => self.allocate_node(s, frames_max),
            block => block,
        }
    }

    /// The block to take if the rule finds one in class 0 that serves all of
    /// a short request.
    #[inline(always)]
    fn allocate_fitting(&mut self, s: &mut [u64], frames_max: u64) -> Option<Extent> {
        let higher = self.last > 0 && frames_max >> self.granularity != 0;
        let stopped = H::CHECKED && self.nonempty == 0;
        if stopped || higher || frames_max.wrapping_sub(1) >= 64 {
            return None;
        }
        let (class, count) = (&mut self.classes[0], frames_max as usize);
        let (at, len) = self.rule.pick(s, 0, class, count)?;
        let index = at >> 6;
        if index + 1 >= self.allocated_words || class.node_max == 1 {
            return None;
        }
        let bits = ones_across(count, at & 63);
        if H::CHECKED {
            let [low, high] = class.free.two(s, index);
            let missing = !low & bits[0] | !high & bits[1];
            if missing | s[index] & bits[0] | s[index + 1] & bits[1] != 0 {
                let frame = class.base + at as u64;
                self.stop_at(s, 0, frame, index);
                return None;
            }
        }
        class.free.lower_any(s, index, bits[0]);
        class.free.lower_any(s, index + 1, bits[1]);
        self.rule.removed_first(s, 0, class, at, len, count);
        if class.free.is_empty(s) {
            self.nonempty &= !1;
        }
        s[index] |= bits[0];
        s[index + 1] |= bits[1];
        self.free -= frames_max;
        Some(Extent::new(Pfn::new(class.base + at as u64), frames_max))
    }

    /// The block to take if it lies in the lowest word of class 0, and can be
    /// seen there to be the one.
    #[inline(always)]
    fn allocate_short(&mut self, s: &mut [u64], frames_max: u64) -> Option<Extent> {
        let higher = self.nonempty > 1 && frames_max >> self.granularity != 0;
        if frames_max == 0 || higher || self.nonempty & 1 == 0 {
            return None;
        }
        let class = &mut self.classes[0];
        let word = class.free.head_word(s)?;
        let index = class.free.head();
        let low = word.trailing_zeros() as usize;
        let run = (!(word >> low)).trailing_zeros() as usize;
        let at = index << 6 | low;
        let node = if low + run < 64 {
            class.cut(at, run)
        } else if frames_max <= run.min(class.border(at)) as u64 {
            run
        } else {
            return self.allocate_across(s, at, run, frames_max);
        };
        let count = frames_max.min(node as u64);
        let bits = ones::<u64>(count as usize) << low;
        if H::CHECKED && s[index] & bits != 0 {
            let frame = class.base + at as u64;
            self.stop_at(s, 0, frame, index);
            return None;
        }
        class.free.lower(s, index, word & !bits);
        if class.free.is_empty(s) {
            self.nonempty &= !1;
        }
        s[index] |= bits;
        self.free -= count;
        Some(Extent::new(Pfn::new(class.base + at as u64), count))
    }

    /// The block to take if it starts with the last `run` frames of the lowest
    /// word of class 0, from `at` on, and is `frames_max` frames that end in
    /// the next word, all of one node.
    #[inline(never)]
    fn allocate_across(
        &mut self,
        s: &mut [u64],
        at: usize,
        run: usize,
        frames_max: u64,
    ) -> Option<Extent> {
        let class = &mut self.classes[0];
        if frames_max > class.border(at) as u64 || frames_max > run as u64 + 64 {
            return None;
        }
        let more = frames_max - run as u64;
        let (index, next) = (at >> 6, ones(more as usize));
        if !class.free.leave_head(s, next) {
            return None;
        }
        if H::CHECKED && s[index] >> (at & 63) | s[index + 1] & next != 0 {
            let frame = class.base + at as u64;
            self.stop_at(s, 0, frame, index);
            return None;
        }
        let class = &mut self.classes[0];
        s[index] |= u64::MAX << (at & 63);
        s[index + 1] |= next;
        if class.free.is_empty(s) {
            self.nonempty &= !1;
        }
        self.free -= frames_max;
        Some(Extent::new(Pfn::new(class.base + at as u64), frames_max))
    }

    /// See [`FrameAllocator::allocate`](crate::FrameAllocator::allocate).
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        s: &mut [u64],
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        if count_frames == 0 {
            return Err(FrameAllocateError::Empty);
        }
        if count_frames > self.free {
            return Err(FrameAllocateError::OutOfFrames { wanted: count_frames, free: self.free });
        }
        let mut rest = count_frames;
        while rest > 0 {
            let Some(block) = self.allocate_block(s, rest) else {
                if H::CHECKED {
                    return Err(FrameAllocateError::Corrupt(self.lost(s)));
                }
                debug_assert!(false, "a free frame that no block holds");
                return Err(FrameAllocateError::OutOfFrames {
                    wanted: count_frames,
                    free: self.free,
                });
            };
            rest -= block.count;
            sink(block);
        }
        Ok(())
    }
}
