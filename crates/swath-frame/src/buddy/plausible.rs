//! Looking before believing: what the checked tier does with words that may be
//! anything.
//!
//! The bitmap of allocated frames decides. In the checked tier holes are in it too, so
//! its zeros are exactly the free frames, which the classes tell once more: a
//! frame goes out only if both agree. What leads there, summaries and the index of
//! a rule, has only to stay inside the storage. A word that was changed alone, in
//! either, is so found before the frame is out.

use swath_arch::{Extent, Pfn};

use crate::allocator::FrameFreeError;
use crate::bits::words::{first_clear, ones};
use crate::buddy::rule::Rule;
use crate::buddy::state::State;
use crate::hardening::{Hardening, Latch, Table, WordFault};

impl<R: Rule, H: Hardening> State<R, H> {
    /// Stops the allocator at a contradiction that shows in the word `word` of
    /// `table`, and looks for the word that is at fault. Nothing is handed out or
    /// taken back from here on.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop(&mut self, s: &mut [u64], table: Table, word: usize) -> WordFault {
        let value = s.get(word).copied().unwrap_or(0);
        let seen = WordFault { table, word, value };
        let fault = self.latch.fault().or_else(|| self.find_fault(s).err()).unwrap_or(seen);
        self.latch.close(fault);
        self.nonempty = 0;
        self.areas.solid = Extent::default();
        self.classes[0].free.clear_head(s);
        fault
    }

    /// Stops the allocator, since class `i` says that `unit` is free and the bitmap of
    /// allocated frames says in its word `word` that it is not.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop_at(&mut self, s: &mut [u64], i: usize, unit: u64, word: usize) -> WordFault {
        let fault =
            |table, word| WordFault { table, word, value: s.get(word).copied().unwrap_or(0) };
        // One of the two is wrong. If the bitmap has as many zeros as frames are
        // free, it is not the one.
        let seen = if self.zeros(s) == self.free {
            let order = i as u32 * self.granularity;
            fault(Table::Free { order }, self.classes[i].word_at(unit))
        } else {
            fault(Table::Allocated, word)
        };
        self.latch.close(seen);
        self.stop(s, seen.table, seen.word)
    }

    /// Counts the frames that are free by the bitmap of allocated frames.
    fn zeros(&self, s: &[u64]) -> u64 {
        s[..self.allocated_words].iter().map(|word| u64::from(word.count_zeros())).sum()
    }

    /// Stops the allocator, since no word leads to a free frame and some are free.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&mut self, s: &mut [u64]) -> WordFault {
        self.stop(s, Table::Allocated, 0)
    }

    /// Returns the fault if the allocator has stopped, or if it says that it is
    /// empty and is not.
    #[inline(always)]
    pub(crate) fn starved(&mut self, s: &mut [u64]) -> Option<WordFault> {
        (H::CHECKED && self.nonempty == 0 && self.free > 0).then(|| self.lost(s))
    }

    /// Returns true if the span holds the frames `start..end`.
    #[inline(always)]
    pub(crate) fn spans(&self, start: u64, end: u64) -> bool {
        start >= self.span.start.raw() && end <= self.span.end().raw()
    }

    /// Returns true if an extent lies in the whole words of the largest area, where
    /// nothing is a hole.
    #[inline(always)]
    pub(crate) fn is_solid(&self, extent: Extent) -> bool {
        let solid = &self.areas.solid;
        let at = extent.start.raw().wrapping_sub(solid.start.raw());
        at < solid.count && extent.count <= solid.count - at
    }

    /// Checks that the frames of `extent`, not empty, may be freed: all are of
    /// the map and none is free.
    pub(crate) fn refusal(&mut self, s: &mut [u64], extent: Extent) -> Result<(), FrameFreeError> {
        if let Some(fault) = self.latch.fault() {
            return Err(FrameFreeError::Corrupt(fault));
        }
        let Some(end) = extent.checked_end() else {
            return Err(FrameFreeError::Overflow { extent });
        };
        let (start, end) = (extent.start.raw(), end.raw());
        let foreign = match self.areas.first_foreign(s, start, end) {
            Ok(foreign) => foreign,
            Err(fault) => {
                return Err(FrameFreeError::Corrupt(self.stop(s, fault.table, fault.word)));
            }
        };
        let mine = foreign.unwrap_or(end);
        if start < mine {
            let at = self.frame(start);
            let allocated = &s[..self.allocated_words];
            if let Some(bad) = first_clear(allocated, at, (mine - start) as usize) {
                let frame = Pfn::new(self.classes[0].base + bad as u64);
                if self.is_free(s, frame) {
                    return Err(FrameFreeError::NotAllocated { frame });
                }
                return Err(FrameFreeError::Corrupt(self.stop(s, Table::Allocated, bad / 64)));
            }
        }
        match foreign {
            Some(frame) => Err(FrameFreeError::Foreign { frame: Pfn::new(frame) }),
            None => Ok(()),
        }
    }

    /// Compares all words of the checked tier with each other and with the counts:
    /// the word at fault, if one is. O(words·C).
    pub(crate) fn find_fault(&self, s: &[u64]) -> Result<(), WordFault> {
        let fault = |table, word: usize| {
            Err(WordFault { table, word, value: s.get(word).copied().unwrap_or(0) })
        };
        self.areas.each(s, &mut |_, _| ())?;
        let allocated = &s[..self.allocated_words];
        for (index, &word) in allocated.iter().enumerate() {
            let wrong = !word ^ self.free_word(s, index)?;
            if wrong == 0 {
                continue;
            }
            // One of two words is wrong; if the bitmap has as many zeros as frames
            // are free, it is not the one.
            if self.zeros(s) != self.free {
                return fault(Table::Allocated, index);
            }
            let frame =
                self.classes[0].base + index as u64 * 64 + u64::from(wrong.trailing_zeros());
            let (mut unit, mut holder) = (frame, (0, frame));
            for (i, class) in self.classes[..=self.last].iter().enumerate() {
                // What is free nowhere can only be missing in one class; a lower
                // class tells more.
                if class.free.contains(s, (unit - class.base) as usize) {
                    holder = (i, unit);
                }
                unit >>= self.granularity;
            }
            let (i, unit) = self.blame(s, frame).unwrap_or(holder);
            let order = i as u32 * self.granularity;
            return fault(Table::Free { order }, self.classes[i].word_at(unit));
        }
        for (i, class) in self.classes[..=self.last].iter().enumerate() {
            let order = i as u32 * self.granularity;
            let units = s[class.free.place(0)..].iter().take(class.free.len_words());
            for (word, &bits) in units.enumerate() {
                let first = class.base + word as u64 * 64;
                let outside = |bit: &u64| bits >> bit & 1 == 1 && !class.spans(first + bit);
                if bits != 0 && (0..64).any(|bit| outside(&bit)) {
                    return fault(Table::Free { order }, class.free.place(word * 64));
                }
            }
            if let Some(word) = class.free.wrong_mark(s) {
                return fault(Table::Summary { order }, word);
            }
            let nonempty = self.nonempty >> i & 1 == 1;
            if self.latch.fault().is_none() && class.free.is_empty(s) == nonempty {
                return fault(Table::Free { order }, class.free.place(class.free.head() * 64));
            }
            if let Err(word) = self.rule.find_fault(s, i, class) {
                return fault(Table::Runs { order }, word);
            }
        }
        // The words agree, the count does not: one was changed and has been written
        // over since, by a wrong free that it let pass. The table's first stands for it.
        if self.latch.fault().is_none() && self.zeros(s) != self.free {
            return fault(Table::Allocated, 0);
        }
        Ok(())
    }

    /// The unit that is missing in its class if `frame`, in none, is free: the
    /// highest all of whose frames are free by the bitmap and in no class.
    fn blame(&self, s: &[u64], frame: u64) -> Option<(usize, u64)> {
        let is_free = |frame| {
            let at = self.frame(frame);
            s[at / 64] >> (at % 64) & 1 == 0 && !self.is_free(s, Pfn::new(frame))
        };
        (0..=self.last).rev().find_map(|i| {
            let order = i as u32 * self.granularity;
            let unit = frame >> order;
            let (first, past) = (unit << order, (unit + 1) << order);
            let inside = self.span.start.raw() <= first && past <= self.span.end().raw();
            (inside && (first..past).all(is_free)).then_some((i, unit))
        })
    }

    /// The free frames that the classes tell of, for a word of class 0.
    ///
    /// # Errors
    /// A word whose units overlap those of a lower class.
    fn free_word(&self, s: &[u64], index: usize) -> Result<u64, WordFault> {
        let base = self.classes[0].base + index as u64 * 64;
        let mut free = 0;
        for (i, class) in self.classes[..=self.last].iter().enumerate() {
            let order = i as u32 * self.granularity;
            let mut of_class = 0;
            let mut frame = base;
            while frame < base + 64 {
                let unit = frame >> order;
                let next = ((unit + 1) << order).min(base + 64);
                let is_free =
                    unit >= class.base && class.free.contains(s, (unit - class.base) as usize);
                if is_free {
                    of_class |= ones::<u64>((next - frame) as usize) << (frame - base);
                }
                frame = next;
            }
            if free & of_class != 0 {
                let word = class.word_at(base >> order);
                let value = s.get(word).copied().unwrap_or(0);
                return Err(WordFault { table: Table::Free { order }, word, value });
            }
            free |= of_class;
        }
        Ok(free)
    }
}
