//! Single frames, from [open words](crate::zone::bank::open) and back.

use swath_arch::Pfn;

use crate::bits::store::{Store, Words, agreeing};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::open::{Open, Released, Taken};

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

    /// Allocates a frame of a word that is open; the last one ends that. O(1).
    #[inline]
    pub(crate) fn allocate_last<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        slot: usize,
    ) -> (Pfn, Taken) {
        let Open { at, first, bank } = self.open[slot];
        let word = s.word(at);
        let rest = word & word.wrapping_sub(1);
        s.put(at, rest);
        self.free -= 1;
        let reordered = rest == 0 && self.shut(s, slot, bank);
        let taken = Taken { bank, filed: 0, reordered };
        (Pfn::new(first + u64::from(word.trailing_zeros())), taken)
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
    #[inline]
    pub(crate) fn allocate_opening<S: Store + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        slot: usize,
    ) -> (Pfn, Taken) {
        let trees = self.trees(s, bank);
        if trees == 0 {
            // What it has is open for the others.
            return self.allocate_last(s, slot ^ 1);
        }
        let from = trees.trailing_zeros();
        let class = &self.classes[from as usize & 31];
        let words = self.words_of(bank);
        let (mut unit, mut reordered) = class.tree.pop_first(s, words + class.at as usize);
        if reordered {
            self.set_class(s, bank, from, from == 0 && self.has_open(bank));
        }
        if from > 5 {
            unit = self.split_to_word(s, bank, unit, from);
            reordered = true;
        }
        let word = s.word(words + unit);
        let rest = word & word.wrapping_sub(1);
        s.put(words + unit, rest);
        let first = self.first_of(bank) + unit as u64 * 64;
        let mut filed = 1;
        if rest != 0 {
            self.open[slot] = Open { at: words + unit, first, bank };
            self.set_class(s, bank, 0, true);
            filed = word.count_ones();
        }
        self.unfile(s, bank, filed);
        self.free -= 1;
        let taken = Taken { bank, filed, reordered };
        (Pfn::new(first + u64::from(word.trailing_zeros())), taken)
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
    ) -> usize {
        for half in (6..from).rev() {
            unit <<= 1;
            self.enter(s, bank, half, unit | 1);
        }
        unit
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
