//! Single frames, from [open words](crate::zone::bank::open) and back.

use swath_arch::Pfn;

use crate::bits::store::{Store, Words, agreeing};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::open::{Open, Record, Released, Taken};

impl BankBlocks {
    /// Allocates a frame of the open word, unless it is the last one. O(1): two
    /// words are written, the open one and the sum.
    #[inline(always)]
    pub(crate) fn allocate_open<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        slot: usize,
    ) -> Option<Pfn> {
        let open = &self.open[slot];
        let word = s.find(open.at)?;
        let rest = word & word.wrapping_sub(1);
        if rest == 0 {
            return None;
        }
        let frame = open.first + u64::from(word.trailing_zeros());
        s.put(open.at, rest);
        self.free -= 1;
        Some(Pfn::new(frame))
    }

    /// As [`allocate_open`](Self::allocate_open), of a word of which there are copies, if
    /// they agree.
    #[inline(always)]
    pub(crate) fn allocate_copied(&mut self, storage: &mut [u64], slot: usize) -> Option<Pfn> {
        let open = &self.open[slot];
        let copies = agreeing(storage, open.at)?;
        let word = copies[0];
        let rest = word & word.wrapping_sub(1);
        if rest == 0 {
            return None;
        }
        *copies = [rest; 3];
        self.free -= 1;
        Some(Pfn::new(open.first + u64::from(word.trailing_zeros())))
    }

    /// Allocates a frame of a word that is open; the last one ends that. Returns true if the
    /// bank serves no single frame any more: else its record is as before. O(1).
    #[inline(always)]
    pub(crate) fn allocate_last<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        slot: usize,
    ) -> (Pfn, bool) {
        let Open { at, first, bank } = self.open[slot];
        let word = s.word(at);
        let rest = word & word.wrapping_sub(1);
        s.put(at, rest);
        self.free -= 1;
        let falls = rest == 0 && self.shut(s, slot, bank);
        (Pfn::new(first + u64::from(word.trailing_zeros())), falls)
    }

    /// The change to a bank that serves no single frame any more.
    pub(crate) fn fallen<S: Words + ?Sized>(&self, s: &S, bank: usize) -> Taken {
        Taken { bank, filed: 0, reordered: true, record: self.record(s, bank) }
    }

    /// The bank of an open word.
    #[inline(always)]
    pub(crate) fn open_bank(&self, slot: usize) -> Option<usize> {
        let open = &self.open[slot];
        (open.at != usize::MAX).then_some(open.bank)
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
    pub(crate) fn open_of<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        let own = self.open.iter().filter(|open| open.bank == bank);
        own.map(|open| s.word(open.at).count_ones()).sum()
    }

    /// The largest order that an open word serves.
    pub(crate) fn largest_open<S: Words + ?Sized>(&self, s: &S) -> Option<u32> {
        let open = self.open.iter().filter(|open| open.at != usize::MAX);
        open.map(|open| self.largest(s.word(open.at))).max()
    }

    /// The orders of a bank whose trees are not empty.
    #[inline(always)]
    pub(crate) fn trees<S: Words + ?Sized>(&self, s: &S, bank: usize) -> u32 {
        let classes = self.classes(s, bank);
        if self.has_open(bank) && self.has_no_odd_word(s, bank) { classes & !1 } else { classes }
    }

    /// Returns true if the tree of order 0 is empty.
    fn has_no_odd_word<S: Words + ?Sized>(&self, s: &S, bank: usize) -> bool {
        let class = &self.classes[0];
        class.tree.is_empty(s, self.words_of(bank) + class.at as usize)
    }

    /// No word is open there any more; whether the bank does not serve order 0 by
    /// itself any more.
    #[inline]
    fn shut<S: Store + ?Sized>(&mut self, s: &mut S, slot: usize, bank: usize) -> bool {
        self.open[slot] = Open::NONE;
        let falls = !self.has_open(bank) && self.has_no_odd_word(s, bank);
        if falls {
            self.set_class(s, bank, 0, false);
        }
        falls
    }

    /// Files the rest of an open word in its bank: the bank, and how many frames
    /// its record got. O(L), and O(L) for each order above 5 that merges.
    #[inline(never)]
    pub(crate) fn close<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        slot: usize,
    ) -> Option<(usize, u32)> {
        let bank = self.open_bank(slot)?;
        let at = self.open[slot].at;
        self.shut(s, slot, bank);
        let (word, unit) = (s.word(at), at - self.words_of(bank));
        if word == u64::MAX && self.top > 5 {
            self.merge_words(s, bank, unit, 6);
        } else {
            self.enter(s, bank, self.largest(word), unit);
        }
        self.file(s, bank, word.count_ones());
        Some((bank, word.count_ones()))
    }

    /// Handles frames of an open word that were freed. A word that is wholly free is
    /// closed.
    #[inline(never)]
    pub(crate) fn release_in_open<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        word: usize,
    ) -> Released {
        let slot = usize::from(self.open[1].at == word);
        if s.word(word) != u64::MAX || self.top < 6 {
            return Released { filed: 0, reordered: false };
        }
        let bank = self.open[slot].bank;
        self.shut(s, slot, bank);
        self.merge_words(s, bank, word - self.words_of(bank), 6);
        Released { filed: 64, reordered: true }
    }

    /// Allocates a single frame of a bank that serves one, and opens its word for
    /// those that follow. No word is open in this slot. O(L), and O(L) for each
    /// order from the block found down to 6.
    #[inline(always)]
    pub(crate) fn allocate_opening<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        slot: usize,
    ) -> (Pfn, Option<Taken>) {
        let was = self.record(s, bank);
        let has_open = self.open[slot ^ 1].bank == bank;
        let odd = has_open && self.has_no_odd_word(s, bank);
        let trees = was.classes() & !u32::from(odd);
        if trees == 0 {
            // What it has is open for the others.
            let (frame, falls) = self.allocate_last(s, slot ^ 1);
            return (frame, falls.then(|| self.fallen(s, bank)));
        }
        let from = trees.trailing_zeros();
        let class = &self.classes[from as usize & 31];
        let words = self.words_of(bank);
        let (mut unit, is_empty) = class.tree.pop_first(s, words + class.at as usize);
        let mut record = was;
        if is_empty {
            record.set_class(from, from == 0 && has_open);
        }
        if from > 5 {
            (unit, record) = self.split_to_word(s, bank, unit, from, record);
        }
        let word = s.word(words + unit);
        let rest = word & word.wrapping_sub(1);
        s.put(words + unit, rest);
        let first = self.first_of(bank) + unit as u64 * 64;
        let mut filed = 1;
        if rest != 0 {
            self.open[slot] = Open { at: words + unit, first, bank };
            record.set_class(0, true);
            filed = word.count_ones();
        }
        record.counts -= u64::from(filed);
        let reordered = self.put_record(s, bank, was, record);
        self.free -= 1;
        let taken = Taken { bank, filed, reordered, record };
        (Pfn::new(first + u64::from(word.trailing_zeros())), Some(taken))
    }

    /// The first word of a block that was taken out of its tree; the rest of it is
    /// entered again.
    #[inline(never)]
    fn split_to_word<S: Store + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        mut unit: usize,
        from: u32,
        mut record: Record,
    ) -> (usize, Record) {
        for half in (6..from).rev() {
            unit <<= 1;
            let class = &self.classes[half as usize & 31];
            class.tree.insert(s, self.words_of(bank) + class.at as usize, unit | 1);
            record.set_class(half, true);
        }
        (unit, record)
    }

    /// Walks the invariants of the open words.
    pub(crate) fn check_open<S: Words + ?Sized>(&self, s: &S) -> Result<(), &'static str> {
        if self.open[0].at != usize::MAX && self.open[0].at == self.open[1].at {
            return Err("a word is open twice");
        }
        for open in self.open.iter().filter(|open| open.at != usize::MAX) {
            let unit = open.at.wrapping_sub(self.words_of(open.bank));
            if open.bank >= self.count || unit >= self.frame_words {
                return Err("an open word is not its bank's");
            }
            if open.first != self.first_of(open.bank) + unit as u64 * 64 {
                return Err("an open word has other frames than it says");
            }
            if s.word(open.at) == 0 || s.word(open.at) == u64::MAX && self.top > 5 {
                return Err("an open word is used up or wholly free");
            }
            if self.is_isolated(s, open.bank) {
                return Err("a word of an isolated bank is open");
            }
        }
        Ok(())
    }
}
