//! Looking before believing: what the checked tier of reservations does with words that may be anything.
//!
//! The bits of held frames stand twice, since a frame goes out, or back beneath, by them. A reservation
//! is believed if table and record name each other, and goes back only if its count is that of its
//! bits. Links of queues have only to stay inside the records: what they lead to is looked at.

use core::ops::DerefMut;

use swath_arch::{Extent, Pfn};

use crate::allocator::{FrameAllocator, FrameFreeError};
use crate::hardening::{Checked, Hardening, Latch, Table as Words, WordFault};
use crate::reserve::reservations::{PagePlace, Reservations};
use crate::reserve::slots::{NOWHERE, Slot};
use crate::reserve::table::{Entry, Key};

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>, H: Hardening> Reservations<A, W, H> {
    /// Stops at a contradiction that shows in `table`, and looks for the word that is at fault.
    /// Nothing is handed out or taken back from here on.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop(&mut self, table: Words) -> WordFault {
        let seen = WordFault { table, word: 0, value: self.storage.first().copied().unwrap_or(0) };
        let fault = self.latch.fault().or_else(|| self.compare().err()).unwrap_or(seen);
        self.slots.copy_at = NOWHERE;
        self.latch.close(fault)
    }

    /// Notes that users hold a block which the allocator beneath has allocated. In the checked tier
    /// it goes to nobody if one of its frames is held already.
    #[inline(always)]
    pub(crate) fn hold(&mut self, block: Extent) -> Result<Extent, WordFault> {
        if H::CHECKED && !self.slots.may_hold(&self.storage, block) {
            return Err(self.stop(Words::Allocated));
        }
        self.slots.hold(&mut self.storage, block);
        Ok(block)
    }

    /// Stops at a contradiction that a free has met, of which these frames were let go already: held
    /// again, their bits tell with the counts which word it is.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop_free(&mut self, extent: Extent) {
        self.slots.hold(&mut self.storage, extent);
        self.stop(Words::Reservations);
    }

    /// Returns the reason why `extent` was not freed: the contradiction at which the checked tier has
    /// stopped, a frame of it that is not held, or a word that differs from its copy.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&mut self, extent: Extent) -> FrameFreeError {
        if let Some(fault) = self.latch.fault() {
            return FrameFreeError::Corrupt(fault);
        }
        let span = self.slots.span;
        if extent.is_empty() {
            return FrameFreeError::Empty;
        }
        if extent.checked_end().is_none() {
            return FrameFreeError::Overflow { extent };
        }
        if !span.contains(extent.start) {
            return FrameFreeError::Foreign { frame: extent.start };
        }
        if H::CHECKED && !self.slots.agree(&self.storage, extent) {
            return FrameFreeError::Corrupt(self.stop(Words::Allocated));
        }
        let Some(frame) = self.slots.first_not_held(&self.storage, extent) else {
            // All that lie in the span are.
            return FrameFreeError::Foreign { frame: span.end() };
        };
        let frame = Pfn::new(frame);
        let mut is_free = false;
        self.for_each_free(&mut |block| is_free |= block.contains(frame));
        if is_free {
            FrameFreeError::NotAllocated { frame }
        } else {
            FrameFreeError::Foreign { frame }
        }
    }

    /// Returns true if nothing is reserved or held in a slot whose frames were just allocated.
    pub(crate) fn is_vacant(&self, level: usize, slot: Slot) -> bool {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        slots.populated(words, slot) == 0
            && !slots.is_root(words, slot)
            && slots.is_clear(words, slots.frames(level, slot))
    }

    /// Returns the entry in the table of a reservation, `root`. In the checked tier `None` unless it is
    /// one, the table has it, and its bits are as many as its count says, beside those of `more` frames.
    pub(crate) fn may_go(&self, level: usize, root: Slot, more: u64) -> Option<usize> {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        if H::CHECKED && (!slots.slots(level).contains(&root) || !slots.is_root(words, root)) {
            return None;
        }
        self.entry_of(level, root, slots.populated(words, root).wrapping_add(more))
    }

    /// Returns the entry in the table of what is by its record a reservation, `root`. In the checked
    /// tier `None` unless the table has it, and so many of its frames are held.
    #[inline(always)]
    pub(crate) fn entry_of(&self, level: usize, root: Slot, held: u64) -> Option<usize> {
        let Self { slots, table, .. } = self;
        let words = &*self.storage;
        let (object, index) = (slots.object(words, root), slots.index(words, root));
        let key = Key { object, index, level };
        let entry = table.find(words, key)?;
        if !H::CHECKED {
            return Some(entry);
        }
        // An entry that has these pages and this slot is right, whatever its seal is.
        let goes = table.value(words, entry) == Entry::Root(root)
            && slots.counts(words, slots.frames(level, root), held)
            && table.is_sealed_behind(words, entry)
            && (level == 0 || self.has_sound_parts(level, root))
            && self.look_above(key);
        goes.then_some(entry)
    }

    /// Returns true if a slot's count is the sum of its parts', none of which counts more than it has.
    fn has_sound_parts(&self, level: usize, slot: Slot) -> bool {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        let Some(below) = level.checked_sub(1) else { return true };
        let (frames, part_frames) = (slots.frames(level, slot), slots.order(below).frames());
        let first = slots.slot(below, frames.start.raw());
        let mut sum = 0;
        for part in first..first + (frames.count / part_frames) as Slot {
            let populated = slots.populated(words, part);
            if populated > part_frames {
                return false;
            }
            sum += populated;
        }
        sum == slots.populated(words, slot)
    }

    /// Looks at all entries of the table that a search for a page may read.
    ///
    /// # Errors
    /// The word of one that was overwritten.
    pub(crate) fn look(&self, object: u64, index: u64) -> Result<(), usize> {
        let key = Key { object, index, level: 0 };
        (0..self.slots.levels.orders().len()).try_for_each(|level| self.look_at(key, level))
    }

    /// Returns true if no entry was overwritten that a search for a larger range around that of `key`
    /// may read.
    #[inline(always)]
    pub(crate) fn look_above(&self, key: Key) -> bool {
        (key.level + 1..self.slots.levels.orders().len())
            .all(|level| self.look_at(key, level).is_ok())
    }

    /// Looks at the entries that a search for the range of `level` around that of `key` may read.
    fn look_at(&self, key: Key, level: usize) -> Result<(), usize> {
        let index = key.index & !(self.slots.order(level).frames() - 1);
        self.table.look::<H>(&self.storage, Key { index, level, ..key }).map(|_| ())
    }

    /// Compares all words with each other and with the counts: the word at fault, if one is.
    /// O(words·L + free blocks).
    pub(crate) fn compare(&self) -> Result<(), WordFault> {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        let fault = |table, word: usize| Err(WordFault { table, word, value: words[word] });
        // One of two words is wrong. If as many bits are set as frames are held, it is the copy's.
        let free = self.under.free_frames() + self.reserved;
        let counted = free + slots.held(words) == self.total_frames();
        if let Some(word) = slots.first_differing(words) {
            let word = if counted { slots.copy_at + word } else { word };
            return fault(Words::Allocated, word);
        }
        self.compare_table()?;
        let (mut roots, mut unpopulated, mut queued) = (0, 0, 0);
        for level in 0..slots.levels.orders().len() {
            for slot in slots.slots(level) {
                let frames = slots.frames(level, slot);
                let root = slots.root_of(words, frames.start.max(slots.span.start).raw());
                let populated = slots.populated(words, slot);
                self.compare_record(slot, root.is_some_and(|(around, _)| around >= level), frames)?;
                if slots.is_root(words, slot) {
                    roots += 1;
                    unpopulated += frames.count - populated;
                    queued += u64::from(populated < frames.count);
                }
            }
        }
        self.compare_queue(slots.all, queued)?;
        if !counted {
            return fault(Words::Allocated, slots.bits_range().start);
        }
        if (roots, unpopulated) != (self.roots, self.reserved) {
            return fault(Words::Reservations, slots.record_words(0)[0]);
        }
        Ok(())
    }

    /// Checks the record of a slot, in a reservation or not, and the queue of its parts.
    fn compare_record(&self, slot: Slot, reserved: bool, frames: Extent) -> Result<(), WordFault> {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        let [object, index, count, _, _, queue] = slots.record_words(slot);
        let fault = |word| Err(WordFault { table: Words::Reservations, word, value: words[word] });
        if slots.is_root(words, slot) {
            let place = self.place(words[object], words[index]);
            if !matches!(place, PagePlace::Root(_, found) if found == slot) {
                return fault(count);
            }
        } else if let Some(word) = [object, index].into_iter().find(|&word| words[word] != 0) {
            return fault(word);
        }
        let populated = slots.populated(words, slot);
        let held = if reserved { slots.held_of(words, frames) } else { 0 };
        if populated != held {
            return fault(count);
        }
        if !reserved {
            return if words[queue] == u64::MAX { Ok(()) } else { fault(queue) };
        }
        let (mut partial, level) = (0, slots.level(slot));
        if level > 0 {
            let part_frames = slots.order(level - 1).frames();
            let first = slots.slot(level - 1, frames.start.raw());
            for part in first..first + (frames.count / part_frames) as Slot {
                let populated = slots.populated(words, part);
                partial += u64::from(populated > 0 && populated < part_frames);
            }
        }
        self.compare_queue(slot, partial)
    }

    /// Checks that the queue of `owner` is linked well and has `len` slots.
    fn compare_queue(&self, owner: Slot, len: u64) -> Result<(), WordFault> {
        let words = &*self.storage;
        let [.., queue] = self.slots.record_words(owner);
        let wrong = self.slots.wrong_link(words, owner);
        let is_short = || self.slots.check_queue(words, owner) != Ok(len);
        match wrong.or_else(|| is_short().then_some(queue)) {
            Some(word) => Err(WordFault { table: Words::Reservations, word, value: words[word] }),
            None => Ok(()),
        }
    }

    /// Checks that the entries of the table are sealed, and that each reservation in it has its record.
    fn compare_table(&self) -> Result<(), WordFault> {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        let fault = |table, word: usize| WordFault { table, word, value: words[word] };
        let mut wrong = None;
        let sealed = self.table.visit(words, &mut |key, entry, at| {
            let Entry::Root(slot) = entry else { return };
            if !slots.slots(key.level).contains(&slot) {
                wrong = wrong.or(Some(fault(Words::Ranges, at + 2)));
                return;
            }
            let record = slots.record_words(slot);
            let right = [
                slots.object(words, slot) == key.object,
                slots.index(words, slot) == key.index,
                slots.is_root(words, slot),
            ];
            if let Some(word) = right.iter().position(|right| !right) {
                wrong = wrong.or(Some(fault(Words::Reservations, record[word])));
            }
        });
        let Err(at) = sealed else { return wrong.map_or(Ok(()), Err) };
        // If its value names a reservation, that one's record tells which of its words it is.
        let slot = (words[at + 2] as Slot).min(slots.all);
        let same =
            [words[at] == slots.object(words, slot), words[at + 1] == slots.index(words, slot)];
        let word = match same {
            [false, true] if slots.is_root(words, slot) => at,
            [true, false] if slots.is_root(words, slot) => at + 1,
            _ => at + 2,
        };
        Err(fault(Words::Ranges, word))
    }
}

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>> Reservations<A, W, Checked> {
    /// Compares all words with each other: finds what [`fault`](FrameAllocator::fault) will be, before
    /// a call meets it. O(words·L + free blocks).
    ///
    /// # Errors
    /// The word that is at fault; after a stop, the word that it stopped at.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        self.latch.fault().map_or_else(|| self.compare(), Err)
    }
}
