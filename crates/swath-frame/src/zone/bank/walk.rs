//! Walks over a bank word by word: the search for the frame at fault, the visit
//! of free blocks, the search for frames in use, and the check of all
//! invariants. Also what each word of the storage is.

use core::ops::Range;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::bits::store::Words;
use crate::bits::tree::Tree;
use crate::bits::words::ones;
use crate::hardening::Table;
use crate::zone::allocator::IsolateError;
use crate::zone::bank::blocks::{BankBlocks, paired, units};

impl BankBlocks {
    /// Words of the records and banks; those of the placement follow.
    pub(crate) fn words(&self) -> usize {
        self.records_words + self.count * self.bank_words
    }

    /// The table that a word belongs to.
    pub(crate) fn table_at(&self, word: usize) -> Table {
        let Some(at) = word.checked_sub(self.records_words) else { return Table::Banks };
        if word >= self.words() {
            return Table::Placement;
        }
        let at = (at % self.bank_words) as u32;
        if at < 2 * self.frame_words as u32 {
            return Table::Frames;
        }
        let trees = self.classes[..=self.top as usize].iter();
        Table::Free { order: trees.filter(|class| class.at <= at).count() as u32 - 1 }
    }

    fn is_free<S: Words + ?Sized>(&self, s: &S, bank: usize, at: usize) -> bool {
        s.word(self.words_of(bank) + at / 64) >> (at % 64) & 1 == 1
    }

    fn is_present<S: Words + ?Sized>(&self, s: &S, bank: usize, at: usize) -> bool {
        s.word(self.words_of(bank) + self.frame_words + at / 64) >> (at % 64) & 1 == 1
    }

    /// Checks that the extent may be freed. O(n) for n frames.
    pub(crate) fn can_release<S: Words + ?Sized>(
        &self,
        s: &S,
        extent: Extent,
    ) -> Result<(), FrameFreeError> {
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        for frame in extent.iter() {
            if !self.has(s, frame) {
                return Err(FrameFreeError::Foreign { frame });
            }
            let (bank, at) = self.position(frame.raw());
            if self.is_free(s, bank, at) {
                return Err(FrameFreeError::NotAllocated { frame });
            }
        }
        Ok(())
    }

    /// Returns true if the frame is the zone's. O(1).
    pub(crate) fn has<S: Words + ?Sized>(&self, s: &S, frame: Pfn) -> bool {
        self.span().contains(frame) && {
            let (bank, at) = self.position(frame.raw());
            self.is_present(s, bank, at)
        }
    }

    /// Returns true if the frame is the zone's and free. O(1).
    pub(crate) fn has_free<S: Words + ?Sized>(&self, s: &S, frame: Pfn) -> bool {
        self.has(s, frame) && {
            let (bank, at) = self.position(frame.raw());
            self.is_free(s, bank, at)
        }
    }

    /// The largest order of which a bank's size is a multiple.
    pub(crate) fn unit_order(&self) -> Order {
        Order::known(self.bank_frames.trailing_zeros() as u8)
    }

    /// The banks that an extent is made of, all of them (not) isolated.
    /// O(n/64 + B) for n frames in B banks.
    pub(crate) fn whole_banks<S: Words + ?Sized>(
        &self,
        s: &S,
        extent: Extent,
        isolated: bool,
    ) -> Result<Range<usize>, IsolateError> {
        if extent.is_empty() {
            return Err(IsolateError::Empty);
        }
        let (start, count) = (extent.start.raw(), extent.count);
        let offset = start.abs_diff(self.span().start.raw());
        if !offset.is_multiple_of(self.bank_frames) || !count.is_multiple_of(self.bank_frames) {
            return Err(IsolateError::Misaligned { extent, order: self.unit_order() });
        }
        let Some((first, _)) = self.place(start) else {
            return Err(IsolateError::Foreign { frame: extent.start });
        };
        let past = first.saturating_add((count / self.bank_frames) as usize);
        for bank in first..past {
            let frame = if bank >= self.count {
                Some(self.span().end())
            } else if u64::from(self.frames_of(s, bank)) != self.bank_frames {
                self.extent(bank).iter().find(|&frame| !self.has(s, frame))
            } else {
                None
            };
            if let Some(frame) = frame {
                return Err(IsolateError::Foreign { frame });
            }
        }
        let other = (first..past).find(|&bank| self.is_isolated(s, bank) != isolated);
        match other {
            Some(bank) => Err(IsolateError::State { frame: self.extent(bank).start }),
            None => Ok(first..past),
        }
    }

    /// Visits the free blocks of a bank, ascending. O(words).
    pub(crate) fn for_each_free<S: Words + ?Sized>(
        &self,
        s: &S,
        bank: usize,
        visit: &mut dyn FnMut(Extent),
    ) {
        let (at, first) = (self.words_of(bank), self.extent(bank).start.raw());
        let mut unit = 0;
        while unit < self.frame_words {
            let word = s.word(at + unit);
            if word == u64::MAX && self.top > 5 {
                let order = (6..=self.top).find(|&order| self.holds(s, bank, order, unit << 6));
                // A wholly free word without a block is a fault that `check` names.
                let order = order.unwrap_or(6);
                visit(Extent::new(Pfn::new(first + unit as u64 * 64), 1 << order));
                unit += 1 << (order - 6);
                continue;
            }
            let mut rest = word;
            while rest != 0 {
                let start = rest.trailing_zeros();
                let mut order = 0;
                let run = (!(rest >> start)).trailing_zeros();
                while order < self.top_in_word
                    && start.trailing_zeros() > order
                    && run >= 2 << order
                {
                    order += 1;
                }
                visit(Extent::new(
                    Pfn::new(first + unit as u64 * 64 + u64::from(start)),
                    1 << order,
                ));
                rest &= !(ones::<u64>(1 << order) << start);
            }
            unit += 1;
        }
    }

    /// Returns true if the tree of `order`, not below 6, holds the block at
    /// frame `at`.
    fn holds<S: Words + ?Sized>(&self, s: &S, bank: usize, order: u32, at: usize) -> bool {
        let class = &self.classes[order as usize & 31];
        at.trailing_zeros() >= order
            && at >> order < units(self.bank_frames, order)
            && class.tree.contains(s, self.words_of(bank) + class.at as usize, at >> order)
    }

    /// The first frame of the bank that is in use, from `from` on. O(words).
    pub(crate) fn next_allocated<S: Words + ?Sized>(
        &self,
        s: &S,
        bank: usize,
        from: Pfn,
    ) -> Option<Pfn> {
        let extent = self.extent(bank);
        let mut at = from.raw().saturating_sub(extent.start.raw());
        while at < self.bank_frames {
            let word = self.words_of(bank) + at as usize / 64;
            let used = (s.word(word + self.frame_words) & !s.word(word)) >> (at % 64);
            if used != 0 {
                return Some(extent.start + at + u64::from(used.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Walks the invariants of the struct and all banks. O(words).
    pub(crate) fn check<S: Words + ?Sized>(&self, s: &S) -> Result<(), &'static str> {
        self.check_open(s)?;
        let (mut free, mut isolated, mut total) = (0, 0, 0);
        for bank in 0..self.count {
            self.check_bank(s, bank)?;
            let bank_free = u64::from(self.free_of(s, bank));
            free += bank_free;
            isolated += if self.is_isolated(s, bank) { bank_free } else { 0 };
            total += u64::from(self.frames_of(s, bank));
        }
        if (free, isolated, total) != (self.free, self.isolated, self.total) {
            return Err("a sum over all banks is wrong");
        }
        Ok(())
    }

    fn check_bank<S: Words + ?Sized>(&self, s: &S, bank: usize) -> Result<(), &'static str> {
        let at = self.words_of(bank);
        let free = (at..at + self.frame_words).map(|at| s.word(at));
        let present = (at..at + self.frame_words).map(|at| s.word(at + self.frame_words));
        if free.clone().zip(present.clone()).any(|(free, present)| free & !present != 0) {
            return Err("a free frame is not the zone's");
        }
        let frees: u32 = free.clone().map(u64::count_ones).sum();
        let frames: u32 = present.map(u64::count_ones).sum();
        if frees != self.free_of(s, bank) || frames != self.frames_of(s, bank) {
            return Err("a bank's count of frames is wrong");
        }
        let mut expected = [0; 6];
        let mut in_blocks = 0;
        for (unit, word) in free.enumerate() {
            let whole = word == u64::MAX && self.top > 5;
            let is_open = self.open.iter().any(|open| open.at == at + unit);
            let own = (word != 0 && !whole && !is_open).then(|| self.largest(word));
            for order in 0..=self.top_in_word {
                let class = &self.classes[order as usize];
                if class.tree.contains(s, at + class.at as usize, unit) != (own == Some(order)) {
                    return Err("a word is not in the tree of its largest block, or in another");
                }
                expected[order as usize] += usize::from(own == Some(order));
            }
            if whole {
                let covering = (6..=self.top)
                    .filter(|&order| self.holds(s, bank, order, (unit << 6) >> order << order));
                if covering.count() != 1 {
                    return Err("a free word is not in exactly one block");
                }
                in_blocks += 1;
            }
        }
        let (mut classes, mut blocks_words) = (0, 0);
        for order in 0..=self.top {
            let class = &self.classes[order as usize];
            let (tree, bound) = (at + class.at as usize, units(self.bank_frames, order));
            if !class.tree.check(s, tree, bound) {
                return Err("a tree's levels differ");
            }
            let len = Tree::len(s, tree, bound);
            classes |= u32::from(len > 0) << order;
            if order < 6 {
                if len != expected[order as usize] {
                    return Err("a tree holds a word that the bank has not");
                }
                continue;
            }
            blocks_words += len << (order - 6);
            let mut words = (tree..tree + bound.div_ceil(64)).map(|at| s.word(at));
            if order < self.top && words.any(|word| paired(word, 0) != 0) {
                return Err("two free buddies are not one block");
            }
        }
        if blocks_words != in_blocks {
            return Err("a tree holds a block that is not free");
        }
        if classes | u32::from(self.has_open(bank)) != self.classes(s, bank) {
            return Err("a bank's record names other orders than it serves");
        }
        Ok(())
    }
}
