//! Single frames, from [open words](crate::zone::bank::open) and back.

use swath_arch::Pfn;

use crate::bits::store::{Keep, Kept};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::open::{Open, Record, Released, Taken};

impl BankBlocks {
    /// Allocates a frame of the open word, unless it is the last one. O(1): no word of the storage.
    #[inline(always)]
    pub(crate) fn allocate_open(&mut self, slot: usize) -> Option<Pfn> {
        let open = &mut self.open[slot];
        let rest = open.bits & open.bits.wrapping_sub(1);
        if rest == 0 {
            return None;
        }
        let frame = open.first + u64::from(open.bits.trailing_zeros());
        open.bits = rest;
        self.free -= 1;
        Some(Pfn::new(frame))
    }

    /// Allocates a frame of a word that is open; the last one ends that. Returns true if the
    /// bank serves no single frame any more: else its record is as before. `None` if no word is
    /// open. O(1).
    #[inline(always)]
    pub(crate) fn allocate_last<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        slot: usize,
    ) -> Option<(Pfn, bool)> {
        let Open { bits, first, bank, .. } = self.open[slot];
        if bits == 0 {
            return None;
        }
        let rest = bits & (bits - 1);
        self.open[slot].bits = rest;
        self.free -= 1;
        let falls = rest == 0 && self.shut(s, slot, bank);
        Some((Pfn::new(first + u64::from(bits.trailing_zeros())), falls))
    }

    /// The change to a bank that serves no single frame any more.
    pub(crate) fn fallen<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> Option<Taken> {
        Some(Taken { bank, filed: 0, reordered: true, record: self.record(s, bank)? })
    }

    /// The bank of an open word.
    #[inline(always)]
    pub(crate) fn open_bank(&self, slot: usize) -> Option<usize> {
        let open = &self.open[slot];
        (open.cell != usize::MAX).then_some(open.bank)
    }

    /// The banks that have open words, each once.
    pub(crate) fn open_banks(&self) -> impl Iterator<Item = usize> {
        let other = self.open_bank(1).filter(|&bank| self.open_bank(0) != Some(bank));
        self.open_bank(0).into_iter().chain(other)
    }

    /// Returns true if a word of the bank is open.
    #[inline(always)]
    pub(crate) fn has_open(&self, bank: usize) -> bool {
        self.open[0].bank == bank || self.open[1].bank == bank
    }

    /// The frames of a bank in open words.
    #[inline]
    pub(crate) fn open_of(&self, bank: usize) -> u32 {
        let own = self.open.iter().filter(|open| open.bank == bank);
        own.map(|open| open.bits.count_ones()).sum()
    }

    /// The largest order that an open word serves.
    pub(crate) fn largest_open(&self) -> Option<u32> {
        let open = self.open.iter().filter(|open| open.bits != 0);
        open.map(|open| self.largest(open.bits)).max()
    }

    /// The orders of a bank, which has this record, whose trees are not empty.
    #[inline(always)]
    pub(crate) fn trees<S: Kept + ?Sized>(&self, s: &S, bank: usize, record: Record) -> u32 {
        let classes = record.classes();
        if self.has_open(bank) && self.has_no_odd_word(s, bank) { classes & !1 } else { classes }
    }

    /// Returns true if the tree of order 0 is empty.
    fn has_no_odd_word<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> bool {
        let class = &self.classes[0];
        class.tree.is_empty(s.words(), self.words_of(bank) + class.at as usize)
    }

    /// No word is open there any more; whether the bank does not serve order 0 by
    /// itself any more.
    #[inline]
    fn shut<S: Keep + ?Sized>(&mut self, s: &mut S, slot: usize, bank: usize) -> bool {
        self.open[slot] = Open::NONE;
        let falls = !self.has_open(bank) && self.has_no_odd_word(s, bank);
        if falls {
            s.mark(bank, 0, false);
        }
        falls
    }

    /// Files the rest of an open word in its bank: the bank, and how many frames
    /// its record got. O(L), and O(L) for each order above 5 that merges.
    #[inline(never)]
    pub(crate) fn close<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        slot: usize,
    ) -> Option<(usize, u32)> {
        let bank = self.open_bank(slot)?;
        let Open { cell, bits, .. } = self.open[slot];
        self.shut(s, slot, bank);
        let unit = cell - self.cell(bank, 0);
        Self::file_open(s, cell, bits);
        if bits == u64::MAX && self.top > 5 {
            self.merge_words(s, bank, unit, 6);
        } else {
            self.enter(s, bank, self.largest(bits), unit);
        }
        self.file(s, bank, bits.count_ones());
        Some((bank, bits.count_ones()))
    }

    /// Handles frames of an open word that are freed; `None` if one of them is free. A word that is
    /// wholly free is closed.
    #[inline(never)]
    pub(crate) fn release_in_open<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        cell: usize,
        mask: u64,
    ) -> Option<Released> {
        let slot = usize::from(self.open[1].cell == cell);
        let Open { bits, bank, .. } = self.open[slot];
        if bits & mask != 0 || !Self::are_present(s, cell, mask) {
            return None;
        }
        self.open[slot].bits = bits | mask;
        if bits | mask != u64::MAX || self.top < 6 {
            return Some(Released { filed: 0, reordered: false });
        }
        self.shut(s, slot, bank);
        Self::file_open(s, cell, u64::MAX);
        self.merge_words(s, bank, cell - self.cell(bank, 0), 6);
        Some(Released { filed: 64, reordered: true })
    }

    /// Allocates a single frame of a bank that serves one, and opens its word for
    /// those that follow. No word is open in this slot. `None` in the checked tier if the words
    /// to look at contradict each other. O(L), and O(L) for each order from the block found down to 6.
    #[inline(always)]
    pub(crate) fn allocate_opening<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        slot: usize,
    ) -> Option<(Pfn, Option<Taken>)> {
        let was = self.record(s, bank)?;
        let has_open = self.open[slot ^ 1].bank == bank;
        let odd = has_open && self.has_no_odd_word(s, bank);
        let trees = was.classes() & !u32::from(odd);
        if trees == 0 {
            // What it has is open for the others.
            let (frame, falls) = self.allocate_last(s, slot ^ 1)?;
            return Some((frame, if falls { Some(self.fallen(s, bank)?) } else { None }));
        }
        let from = trees.trailing_zeros();
        let words = s.words_mut();
        let (mut unit, is_empty) = self.pop::<S>(words, bank, from)?;
        let mut record = was;
        if is_empty {
            record.set_class(from, from == 0 && has_open);
        }
        if from > 5 {
            (unit, record) = self.split_to_word(words, bank, unit, from, record);
        }
        let cell = self.cell(bank, unit);
        let frames = Self::claim::<S>(words, cell)?;
        let word = frames.free;
        let bits = word & word.wrapping_sub(1);
        let first = self.first_of(bank) + unit as u64 * 64;
        let mut filed = 1;
        if bits != 0 {
            self.open[slot] = Open { cell, bits, first, bank };
            record.set_class(0, true);
            filed = word.count_ones();
        } else if S::CHECKED && word == 0 {
            return None;
        }
        frames.put(0);
        let (record, reordered) = Self::put_record::<S>(words, bank, was, record, filed);
        self.free -= 1;
        let taken = Taken { bank, filed, reordered, record };
        Some((Pfn::new(first + u64::from(word.trailing_zeros())), Some(taken)))
    }

    /// The first word of a block that was taken out of its tree; the rest of it is
    /// entered again.
    #[inline(never)]
    fn split_to_word(
        &self,
        words: &mut [u64],
        bank: usize,
        mut unit: usize,
        from: u32,
        mut record: Record,
    ) -> (usize, Record) {
        for half in (6..from).rev() {
            unit <<= 1;
            let class = &self.classes[half as usize & 31];
            class.tree.insert(words, self.words_of(bank) + class.at as usize, unit | 1);
            record.set_class(half, true);
        }
        (unit, record)
    }

    /// Walks the invariants of the open words.
    pub(crate) fn check_open<S: Kept + ?Sized>(&self, s: &S) -> Result<(), &'static str> {
        if self.open[0].cell != usize::MAX && self.open[0].cell == self.open[1].cell {
            return Err("a word is open twice");
        }
        for open in self.open.iter().filter(|open| open.cell != usize::MAX) {
            if open.bank >= self.count {
                return Err("an open word is not its bank's");
            }
            let unit = open.cell.wrapping_sub(self.cell(open.bank, 0));
            if unit >= self.frame_words {
                return Err("an open word is not its bank's");
            }
            if open.first != self.first_of(open.bank) + unit as u64 * 64 {
                return Err("an open word has other frames than it says");
            }
            if open.bits == 0 || open.bits == u64::MAX && self.top > 5 {
                return Err("an open word is used up or wholly free");
            }
            if Self::frames(s, open.cell)[0] != 0 {
                return Err("a frame of an open word is free in the storage, too");
            }
            if self.is_isolated(s, open.bank) {
                return Err("a word of an isolated bank is open");
            }
        }
        Ok(())
    }
}
