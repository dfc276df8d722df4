//! Walks over a bank word by word: the search for the frame at fault, the visit
//! of free blocks, the search for frames in use, and the check of all
//! invariants. Also what each word of the storage is.

use core::ops::Range;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::bits::store::{GROUP, Kept, differing, first_kept};
use crate::bits::tree::Tree;
use crate::bits::words::ones;
use crate::hardening::Table;
use crate::zone::allocator::IsolateError;
use crate::zone::bank::blocks::{BankBlocks, CELL, paired, units};

impl BankBlocks {
    /// Words of the records and banks; those of the placement follow.
    pub(crate) fn words(&self) -> usize {
        self.records_words + self.count * self.bank_words
    }

    /// Where the words of the placement begin in the checked tier.
    pub(crate) fn placement_at(&self) -> usize {
        self.words().next_multiple_of(GROUP)
    }

    /// The table that a word of the checked tier belongs to.
    pub(crate) fn table_at(&self, word: usize) -> Table {
        let Some(at) = word.checked_sub(self.records_words) else { return Table::Banks };
        if word >= self.words() {
            return Table::Placement;
        }
        let at = (at % self.bank_words) as u32;
        if at < (CELL * self.frame_words) as u32 {
            return Table::Frames;
        }
        let trees = self.classes[..=self.top as usize].iter();
        Table::Free { order: trees.filter(|class| class.at <= at).count() as u32 - 1 }
    }

    /// The first word of the checked tier that is not what the others say, of which the last `kept`
    /// are the placement's. O(words·orders).
    pub(crate) fn wrong_word<S: Kept + ?Sized>(&self, s: &S, kept: usize) -> Option<usize> {
        let records = 0..first_kept(self.records_words);
        let first = first_kept(self.placement_at());
        let kept = records.chain(first..first + kept);
        let outvoted = kept.into_iter().find_map(|index| differing(s.words(), index));
        let wrong = || (0..self.count).find_map(|bank| self.wrong_word_of(s, bank));
        outvoted.or_else(wrong)
    }

    fn wrong_word_of<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> Option<usize> {
        let cells = self.cell(bank, 0)..self.cell(bank, self.frame_words);
        if let Some(cell) = cells.clone().find(|&cell| Self::is_wrong(s, cell)) {
            // One of two is wrong: the one by which the bank's count is another.
            let count = |nth: usize| -> u32 {
                cells.clone().map(|cell| Self::cell_of(s, cell)[nth].count_ones()).sum()
            };
            let [free, present, again, present_again] = Self::cell_of(s, cell);
            let nth = if present != present_again {
                if count(1) == self.frames_of(s, bank) { 3 } else { 1 }
            } else if free != again && count(0) == self.filed_of(s, bank) {
                2
            } else {
                0
            };
            return Some(cell * CELL + nth);
        }
        (0..=self.top).find_map(|order| {
            let class = &self.classes[order as usize];
            let (tree, bound) = (self.words_of(bank) + class.at as usize, class.bound as usize);
            let holds = |unit| self.is_block(s, bank, order, unit);
            class.tree.wrong_word(s.words(), tree, bound, holds)
        })
    }

    /// Returns true if by the free frames the tree of an order holds a word or block.
    fn is_block<S: Kept + ?Sized>(&self, s: &S, bank: usize, order: u32, unit: usize) -> bool {
        if order < 6 {
            let [free, _] = Self::frames(s, self.cell(bank, unit));
            let whole = free == u64::MAX && self.top > 5;
            return free != 0 && !whole && self.largest(free) == order;
        }
        let is_free = |order: u32, unit: usize| {
            let (first, count) = (unit << (order - 6), 1 << (order - 6));
            first + count <= self.frame_words
                && (first..first + count)
                    .all(|unit| Self::frames(s, self.cell(bank, unit))[0] == u64::MAX)
        };
        is_free(order, unit) && (order == self.top || !is_free(order + 1, unit / 2))
    }

    /// Returns true if words of the checked tier contradict each other about a frame of `extent`.
    pub(crate) fn is_wrong_in<S: Kept + ?Sized>(&self, s: &S, extent: Extent) -> bool {
        let inside = extent.intersect(self.span());
        inside.iter().any(|frame| {
            let (bank, at) = self.position(frame.raw());
            Self::is_wrong(s, self.cell(bank, at / 64))
        })
    }

    fn is_free<S: Kept + ?Sized>(&self, s: &S, bank: usize, at: usize) -> bool {
        self.free_in(s, self.cell(bank, at / 64)) >> (at % 64) & 1 == 1
    }

    fn is_present<S: Kept + ?Sized>(&self, s: &S, bank: usize, at: usize) -> bool {
        Self::frames(s, self.cell(bank, at / 64))[1] >> (at % 64) & 1 == 1
    }

    /// Checks that the extent may be freed. O(n) for n frames.
    pub(crate) fn can_release<S: Kept + ?Sized>(
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
    pub(crate) fn has<S: Kept + ?Sized>(&self, s: &S, frame: Pfn) -> bool {
        self.span().contains(frame) && {
            let (bank, at) = self.position(frame.raw());
            self.is_present(s, bank, at)
        }
    }

    /// Returns true if the frame is the zone's and free. O(1).
    pub(crate) fn has_free<S: Kept + ?Sized>(&self, s: &S, frame: Pfn) -> bool {
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
    pub(crate) fn whole_banks<S: Kept + ?Sized>(
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
    pub(crate) fn for_each_free<S: Kept + ?Sized>(
        &self,
        s: &S,
        bank: usize,
        visit: &mut dyn FnMut(Extent),
    ) {
        let first = self.extent(bank).start.raw();
        let mut unit = 0;
        while unit < self.frame_words {
            let word = self.free_in(s, self.cell(bank, unit));
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
    fn holds<S: Kept + ?Sized>(&self, s: &S, bank: usize, order: u32, at: usize) -> bool {
        let class = &self.classes[order as usize & 31];
        at.trailing_zeros() >= order
            && at >> order < units(self.bank_frames, order)
            && class.tree.contains(s.words(), self.words_of(bank) + class.at as usize, at >> order)
    }

    /// The first frame of the bank that is in use, from `from` on. O(words).
    pub(crate) fn next_allocated<S: Kept + ?Sized>(
        &self,
        s: &S,
        bank: usize,
        from: Pfn,
    ) -> Option<Pfn> {
        let extent = self.extent(bank);
        let mut at = from.raw().saturating_sub(extent.start.raw());
        while at < self.bank_frames {
            let cell = self.cell(bank, at as usize / 64);
            let used = (Self::frames(s, cell)[1] & !self.free_in(s, cell)) >> (at % 64);
            if used != 0 {
                return Some(extent.start + at + u64::from(used.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Walks the invariants of the struct and all banks. O(words).
    pub(crate) fn check<S: Kept + ?Sized>(&self, s: &S) -> Result<(), &'static str> {
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

    fn check_bank<S: Kept + ?Sized>(&self, s: &S, bank: usize) -> Result<(), &'static str> {
        let at = self.words_of(bank);
        let cells = self.cell(bank, 0)..self.cell(bank, self.frame_words);
        let free = cells.clone().map(|cell| self.free_in(s, cell));
        let present = cells.clone().map(|cell| Self::frames(s, cell)[1]);
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
            let is_open = self.open.iter().any(|open| open.cell == cells.start + unit);
            let own = (word != 0 && !whole && !is_open).then(|| self.largest(word));
            for order in 0..=self.top_in_word {
                let class = &self.classes[order as usize];
                if class.tree.contains(s.words(), at + class.at as usize, unit)
                    != (own == Some(order))
                {
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
            if !class.tree.check(s.words(), tree, bound) {
                return Err("a tree's levels differ");
            }
            let len = Tree::len(s.words(), tree, bound);
            classes |= u32::from(len > 0) << order;
            if order < 6 {
                if len != expected[order as usize] {
                    return Err("a tree holds a word that the bank has not");
                }
                continue;
            }
            blocks_words += len << (order - 6);
            let mut words = (tree..tree + bound.div_ceil(64)).map(|at| s.words()[at]);
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
