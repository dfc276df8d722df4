//! The free blocks of every bank of a zone, and a record of each bank: what
//! the bank-buddy allocators share. Which bank serves is decided elsewhere.
//!
//! A bank is a buddy system of its own, so a bank can change its list or pool
//! without one of its blocks being touched. Its free frames are bits, 64 to a
//! word. The free blocks of the orders below 6 are not stored: they are the
//! aligned runs of ones within a word, and a few shifts find them all. What is
//! stored is, for each order, a [`Tree`]:
//!
//! ```text
//!  free     [1111…1111] [1111…1111] [0000…0000] [1101 0000…]  words of a bank
//!  order 7   `------ block 0 ----'
//!  order 1                                       word 3: its largest block
//!  classes  = {7, 1}                             orders whose tree is not empty
//! ```
//!
//! * order c < 6 holds the words whose largest free block is of order c;
//! * order c >= 6 holds the free blocks of that order, of whole words.
//!
//! A word from which single frames are being allocated is **open**: its free frames are in no
//! tree, nor in the storage, but in the struct. See [`Open`].
//!
//! The largest order ends all merging, so below 6 a word may hold several
//! blocks of it. Per frame that is a bit for `free`, a bit for `present` and
//! an eighth for the trees: 0.27 bytes.

use swath_arch::{Extent, Order, Pfn};

use crate::bits::store::{Keep, Kept, PARTS, kept_words, spread, with_half};
use crate::bits::tree::Tree;
use crate::bits::words::ones;
use crate::map::MemoryMap;
use crate::zone::bank::open::{CROSSES, Open, Record, Released, Taken};
use crate::zone::bank::ranges::{BANKS_MAX, BLOCK_ORDER_MAX, BankLayout, BankLayoutError};

/// No bank.
pub(crate) const NONE: u32 = u32::MAX;

/// Orders that can have a tree.
pub(crate) const ORDERS: usize = BLOCK_ORDER_MAX as usize + 1;

/// Words of a [cell](crate::zone::bank::frames) that has each word once.
pub(crate) const PAIR: usize = 2;

/// Words of a cell that has each word twice.
pub(crate) const CELL: usize = 4;

/// Words of a bank's record, of two halves each: its free frames but for those of
/// open words, and the frames of the zone; the orders that it serves, and what the
/// placement rule notes, with the flags below; the next and the previous bank of
/// its list.
const RECORD_WORDS: usize = <[u64]>::STRIDE;
pub(crate) const FRAMES: usize = 1;
pub(crate) const CLASSES: usize = 2;
pub(crate) const NOTE: usize = 3;
pub(crate) const NEXT: usize = 4;
pub(crate) const PREV: usize = 5;

/// In a word, the frames at which a block of order j may start; none of order 7.
const STARTS: [u64; 8] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
    0,
];

/// The 32-bit half `index` of the storage.
#[inline(always)]
pub(crate) fn half<S: Kept + ?Sized>(s: &S, index: usize) -> u32 {
    (s.kept(index / 2) >> (index % 2 * 32)) as u32
}

#[inline(always)]
pub(crate) fn set_half<S: Keep + ?Sized>(s: &mut S, index: usize, value: u32) {
    let was = s.kept(index / 2);
    s.keep(index / 2, was, with_half(was, index % 2, value));
}

/// From the frames at which blocks of order `j` start, all of them free, those
/// at which free blocks of the next order do.
#[inline(always)]
pub(crate) fn paired(starts: u64, j: u32) -> u64 {
    starts & starts >> (1 << j) & STARTS[j as usize + 1]
}

/// The frames of a word at which free blocks of this order, at most 6, start.
#[inline(always)]
pub(crate) fn starts(word: u64, order: u32) -> u64 {
    // Which of six steps are done is all that the order decides: unrolled, there is no loop.
    let mut runs = word;
    for j in 0..6 {
        runs = if order > j { runs & runs >> (1 << j) } else { runs };
    }
    runs & STARTS[order as usize & 7]
}

/// One order's tree in each bank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) tree: Tree,
    /// The place of the tree within a bank's words.
    pub(crate) at: u32,
    /// One past the words or blocks that it may hold.
    pub(crate) bound: u32,
}

/// The shape and the sums; the words stand in a storage that each call is given.
///
/// Invariants, walked by [`check`](Self::check):
/// * a frame that is free is present;
/// * a word that is not wholly free and not open is in the tree of its largest free
///   block's order, and in no other; a word that is, where blocks can be so large,
///   is covered by exactly one block of a tree, and no block's buddy is free too;
/// * the open words are as [`Open`] says;
/// * a record's counts are those of its bank's bits, without those of open words,
///   and its `classes` the trees that are not empty, and 0 if a word is open;
/// * `free` and `total` are the sums over all banks, `isolated` that of the
///   free frames of isolated ones.
#[derive(Clone, Debug)]
pub struct BankBlocks {
    /// The first frame of bank 0.
    first: u64,
    pub(crate) bank_frames: u64,
    /// log2 of `bank_frames`, or 64 if it is not a power of two.
    shift: u32,
    /// Number of banks.
    pub(crate) count: usize,
    pub(crate) top: u32,
    /// The largest order of a block within a word that is not wholly free.
    pub(crate) top_in_word: u32,
    /// Words of a bank's free frames.
    pub(crate) frame_words: usize,
    /// Words of a bank in all.
    pub(crate) bank_words: usize,
    /// Words of all records, which stand before the banks'.
    pub(crate) records_words: usize,
    /// [Cells](crate::zone::bank::frames) before those of bank 0, and from bank to bank.
    pub(crate) first_cell: usize,
    pub(crate) bank_cells: usize,
    pub(crate) classes: [Class; ORDERS],
    /// For unmovable requests and for movable ones.
    pub(crate) open: [Open; 2],
    pub(crate) free: u64,
    pub(crate) isolated: u64,
    pub(crate) total: u64,
    /// One past the banks to which frames are freed; 0 once the zone has stopped.
    pub(crate) reach: usize,
}

impl BankBlocks {
    /// Shape for the frames of `map` in `zone`, and where in a storage its
    /// words end. O(a) for a areas.
    pub(crate) fn shape(
        map: &MemoryMap<'_>,
        zone: Extent,
        banks: BankLayout,
        checked: bool,
    ) -> Result<(Self, u64), BankLayoutError> {
        let first = areas(map, zone).next().ok_or(BankLayoutError::NoFrame { zone })?.start;
        let end = areas(map, zone).last().map_or(first, Extent::end);
        let below = first.raw().checked_sub(banks.first.raw());
        let lowest = below.ok_or(BankLayoutError::Below { frame: first })? / banks.frames;
        let highest = (end.raw() - 1 - banks.first.raw()) / banks.frames;
        let count = highest - lowest + 1;
        if count > BANKS_MAX {
            return Err(BankLayoutError::Count { banks: count });
        }
        let frame_words = banks.frames.div_ceil(64) as usize;
        let mut classes = [Class { tree: Tree::NONE, at: 0, bound: 0 }; ORDERS];
        let cell_words = Self::cell_words(checked);
        let mut bank_words = cell_words * frame_words;
        for order in 0..=banks.top.k() {
            let units = units(banks.frames, order);
            let (tree, at, bound) = (Tree::new(units), bank_words as u32, units as u32);
            classes[order as usize] = Class { tree, at, bound };
            bank_words += Tree::words(units);
        }
        bank_words = bank_words.next_multiple_of(cell_words);
        let records = count as usize * RECORD_WORDS;
        let records_words =
            if checked { records_checked(count as usize) } else { records.next_multiple_of(PAIR) };
        let blocks = Self {
            first: banks.first.raw() + lowest * banks.frames,
            bank_frames: banks.frames,
            shift: if banks.frames.is_power_of_two() { banks.frames.ilog2() } else { 64 },
            count: count as usize,
            top: banks.top.k(),
            top_in_word: banks.top.k().min(5),
            frame_words,
            bank_words,
            records_words,
            first_cell: records_words / cell_words,
            bank_cells: bank_words / cell_words,
            classes,
            open: [Open::NONE; 2],
            free: 0,
            isolated: 0,
            total: areas(map, zone).map(|area| area.count).sum(),
            reach: count as usize,
        };
        Ok((blocks, records_words as u64 + count * bank_words as u64))
    }

    /// The shape of the same banks in the checked tier.
    pub(crate) fn checked_shape(&self) -> Self {
        let more = (CELL - PAIR) * self.frame_words;
        let mut shape = self.clone();
        let trees = self.tree_words();
        shape.classes.iter_mut().for_each(|class| class.at += more as u32);
        shape.bank_words = (CELL * self.frame_words + trees).next_multiple_of(CELL);
        shape.records_words = records_checked(self.count);
        shape.first_cell = shape.records_words / CELL;
        shape.bank_cells = shape.bank_words / CELL;
        shape
    }

    /// Words of a bank's trees.
    fn tree_words(&self) -> usize {
        (0..=self.top).map(|order| Tree::words(units(self.bank_frames, order))).sum()
    }

    /// Moves the words to where they stand in `shape`, the checked tier's. O(words).
    pub(crate) fn spread(&mut self, s: &mut [u64], shape: Self) {
        // Each word moves up, so that the last go first.
        for bank in (0..self.count).rev() {
            let (from, to) = (self.words_of(bank), shape.words_of(bank));
            let trees = from + PAIR * self.frame_words;
            s.copy_within(trees..trees + self.tree_words(), to + CELL * self.frame_words);
            for unit in (0..self.frame_words).rev() {
                let [free, present] = [s[from + PAIR * unit], s[from + PAIR * unit + 1]];
                let cell = [free, present, free, present];
                s[to + CELL * unit..to + CELL * (unit + 1)].copy_from_slice(&cell);
            }
        }
        for bank in (0..self.count).rev() {
            let at = bank * RECORD_WORDS;
            let words = [s[at], s[at + 1], s[at + 2], 0];
            for (nth, word) in words.into_iter().enumerate() {
                spread(s, bank * PARTS + nth, word);
            }
        }
        let open = self.open.map(|open| {
            if open.bits == 0 {
                return open;
            }
            Open { cell: open.cell - self.cell(open.bank, 0) + shape.cell(open.bank, 0), ..open }
        });
        *self = Self { open, ..shape };
    }

    /// Overwrites the storage: the frames of `map` in `zone` are `free`, or all
    /// in use.
    pub(crate) fn fill(&mut self, s: &mut [u64], map: &MemoryMap<'_>, zone: Extent, free: bool) {
        s[..self.words()].fill(0);
        for bank in 0..self.count {
            set_half(s, record::<[u64]>(bank, NEXT), NONE);
            set_half(s, record::<[u64]>(bank, PREV), NONE);
            // What the map has there beside the zone's frames is another zone's.
            let extent = self.extent(bank);
            let here = areas(map, extent).map(|area| area.count).sum::<u64>();
            let own = areas(map, extent.intersect(zone)).map(|area| area.count).sum::<u64>();
            if here != own {
                set_half(s, record::<[u64]>(bank, NOTE), CROSSES);
            }
        }
        for area in areas(map, zone) {
            let (mut low, high) = (area.start.raw(), area.end().raw());
            while low < high {
                let (bank, at) = self.position(low);
                let count = (high - low).min(self.bank_frames - at as u64);
                for block in Extent::new(Pfn::new(at as u64), count).blocks(Order::known(6)) {
                    let (start, order) = (block.0.raw(), block.1);
                    let cell = self.cell(bank, (start / 64) as usize);
                    s[cell * PAIR + 1] |= ones::<u64>(order.frames() as usize) << (start % 64);
                }
                let frames = record::<[u64]>(bank, FRAMES);
                set_half(s, frames, half(s, frames) + count as u32);
                low += count;
            }
            let freed = if free { area } else { Extent::default() };
            for (start, order) in self.pieces(freed) {
                let (bank, at) = self.position(start);
                if let Some(released) = self.release(s, bank, at, order) {
                    self.file(s, bank, released.filed);
                }
            }
        }
    }

    /// The largest aligned blocks that make up an extent, of which each lies in one bank.
    pub(crate) fn pieces(&self, extent: Extent) -> impl Iterator<Item = (u64, u32)> + use<> {
        let top = Order::known(self.top as u8);
        extent.blocks(top).map(|(start, order)| (start.raw(), order.k()))
    }

    /// Bytes of a bank's record.
    pub(crate) const fn record_bytes(checked: bool) -> usize {
        if checked { records_checked(1) * 8 } else { RECORD_WORDS * 8 }
    }

    /// Bytes of what each frame has.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.count * self.bank_words * 8
    }

    /// The zone's banks, as far as frame numbers go.
    pub(crate) fn span(&self) -> Extent {
        Extent::new(Pfn::new(self.first), self.bank_frames.saturating_mul(self.count as u64))
    }

    pub(crate) fn extent(&self, bank: usize) -> Extent {
        Extent::new(Pfn::new(self.first_of(bank)), self.bank_frames)
    }

    /// The number of a bank's first frame.
    #[inline(always)]
    pub(crate) fn first_of(&self, bank: usize) -> u64 {
        self.first + bank as u64 * self.bank_frames
    }

    /// The bank of a frame, as if there were banks without end, and where in it the
    /// frame is.
    #[inline(always)]
    pub(crate) fn position(&self, frame: u64) -> (usize, usize) {
        let at = frame.wrapping_sub(self.first);
        if self.shift < 64 {
            ((at >> self.shift) as usize, (at & (self.bank_frames - 1)) as usize)
        } else {
            ((at / self.bank_frames) as usize, (at % self.bank_frames) as usize)
        }
    }

    /// The bank of any frame number, and where in it the frame is, if there is
    /// such a bank.
    #[inline(always)]
    pub(crate) fn place(&self, frame: u64) -> Option<(usize, usize)> {
        // A frame below the first is beyond the last: banks end long before 2^64.
        let (bank, at) = self.position(frame);
        (bank < self.count).then_some((bank, at))
    }

    #[inline(always)]
    pub(crate) fn words_of(&self, bank: usize) -> usize {
        self.records_words + bank * self.bank_words
    }

    /// Adds a word or block to the tree of an order; whether the orders in use
    /// may have changed. O(L).
    #[inline(always)]
    pub(crate) fn enter<S: Keep + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        order: u32,
        unit: usize,
    ) -> bool {
        let class = &self.classes[order as usize & 31];
        let was_empty =
            class.tree.insert(s.words_mut(), self.words_of(bank) + class.at as usize, unit);
        if was_empty {
            s.mark(bank, order, true);
        }
        was_empty
    }

    /// Removes a word or block from the tree of an order; whether the orders in
    /// use may have changed. O(L).
    #[inline(always)]
    pub(crate) fn leave<S: Keep + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        order: u32,
        unit: usize,
    ) -> bool {
        let class = &self.classes[order as usize & 31];
        let is_empty =
            class.tree.remove(s.words_mut(), self.words_of(bank) + class.at as usize, unit);
        if is_empty {
            s.mark(bank, order, order == 0 && self.has_open(bank));
        }
        is_empty
    }

    /// Removes the first word or block from the tree of an order, and says if that is empty now;
    /// `None` in the checked tier if the tree leads to none. O(L).
    #[inline(always)]
    pub(crate) fn pop<S: Keep + ?Sized>(
        &self,
        words: &mut [u64],
        bank: usize,
        order: u32,
    ) -> Option<(usize, bool)> {
        let class = &self.classes[order as usize & 31];
        let at = self.words_of(bank) + class.at as usize;
        if !S::CHECKED {
            return Some(class.tree.pop_first(words, at));
        }
        class.tree.pop_below(words, at, &class.bound)
    }

    /// The order of the largest block of a word that is not zero.
    #[inline(always)]
    pub(crate) fn largest(&self, word: u64) -> u32 {
        let (mut starts, mut order) = (word, 0);
        while order < self.top_in_word {
            starts = paired(starts, order);
            if starts == 0 {
                break;
            }
            order += 1;
        }
        order
    }

    /// Allocates 2^`order` frames of a bank that [`serves`](Self::serves) them: from
    /// the smallest block that is large enough, or from the `largest`. `None` in the checked tier
    /// if the words to look at contradict each other.
    /// O(L + 2^order/64) for each order between.
    #[inline(always)]
    pub(crate) fn allocate<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        order: u32,
        largest: bool,
    ) -> Option<(Pfn, Taken)> {
        let was = self.record(s, bank)?;
        // An open word serves single frames only.
        let classes = if order == 0 { self.trees(s, bank, was) } else { was.classes() };
        if S::CHECKED && classes >> order == 0 {
            return None;
        }
        let from =
            if largest { classes.ilog2() } else { order + (classes >> order).trailing_zeros() };
        let words = s.words_mut();
        let (at, changes) = if from < 6 {
            self.allocate_in_word::<S>(words, bank, from, order, was)
        } else {
            self.allocate_words::<S>(words, bank, from, order, was)
        }?;
        let record = Self::change_record::<S>(words, bank, changes, 1 << order);
        self.free -= 1 << order;
        let frame = Pfn::new(self.first_of(bank) + at as u64);
        Some((frame, Taken { bank, filed: 1 << order, reordered: changes != 0, record }))
    }

    /// The smallest free block of a word that is large enough: where it starts,
    /// its order, and whether it is the last of this order with none above.
    #[inline(always)]
    fn smallest(&self, word: u64, order: u32) -> Option<(u32, u32, bool)> {
        let mut starts = starts(word, order);
        for from in order..6 {
            let above = if from < self.top_in_word { paired(starts, from) } else { 0 };
            let alone = starts & !(above | above << (1 << from));
            if alone != 0 {
                let is_last = above | (alone & (alone - 1)) == 0;
                return Some((alone.trailing_zeros(), from, is_last));
            }
            starts = above;
        }
        None
    }

    /// From a word that has a block of this order and is not wholly free (or
    /// cannot be one block): the first of those whose largest blocks are of order `from`, which the
    /// bank serves. Where the block starts, and which bits of the record's state change.
    #[inline(always)]
    fn allocate_in_word<S: Keep + ?Sized>(
        &self,
        words: &mut [u64],
        bank: usize,
        from: u32,
        order: u32,
        was: Record,
    ) -> Option<(usize, u64)> {
        // Most words have one largest block, and leave the tree with it.
        let (unit, is_empty) = self.pop::<S>(words, bank, from)?;
        let frames = Self::claim::<S>(words, self.cell(bank, unit))?;
        let word = frames.free;
        let (first, own, is_last) = if from == order {
            let starts = starts(word, order);
            if S::CHECKED && starts == 0 {
                return None;
            }
            (starts.trailing_zeros() & 63, order, starts & starts.wrapping_sub(1) == 0)
        } else {
            self.smallest(word, order)?
        };
        let now = word & !(ones::<u64>(1 << order) << first);
        frames.put(now);
        let at = unit * 64 + first as usize;
        if !is_last {
            let class = &self.classes[from as usize & 31];
            class.tree.insert(words, self.words_of(bank) + class.at as usize, unit);
            return Some((at, 0));
        }
        let mut changes = u64::from(is_empty && !(from == 0 && self.has_open(bank))) << from;
        if now != 0 {
            // The upper half of the block is the largest now.
            let to = if own > order { own - 1 } else { self.largest(now) };
            let class = &self.classes[to as usize & 31];
            if class.tree.insert(words, self.words_of(bank) + class.at as usize, unit) {
                changes |= was.gain(to);
            }
        }
        Some((at, changes))
    }

    /// From the first block of order `from`, of whole words; as
    /// [`allocate_in_word`](Self::allocate_in_word).
    #[inline(never)]
    fn allocate_words<S: Keep + ?Sized>(
        &self,
        words: &mut [u64],
        bank: usize,
        from: u32,
        order: u32,
        was: Record,
    ) -> Option<(usize, u64)> {
        let (mut unit, is_empty) = self.pop::<S>(words, bank, from)?;
        let first = self.cell(bank, unit << (from - 6));
        if order < 6 {
            let frames = Self::claim::<S>(words, first)?;
            if S::CHECKED && frames.free != u64::MAX {
                return None;
            }
            frames.put(!ones::<u64>(1 << order));
        } else {
            Self::claim_all::<S>(words, first, order - 6)?;
        }
        let mut changes = u64::from(is_empty) << from;
        let at = self.words_of(bank);
        for half in (order.max(6)..from).rev() {
            unit <<= 1;
            let class = &self.classes[half as usize & 31];
            class.tree.insert(words, at + class.at as usize, unit | 1);
            changes |= was.gain(half);
        }
        if order < 6 {
            let class = &self.classes[5];
            class.tree.insert(words, at + class.at as usize, unit);
            changes |= was.gain(5);
            return Some((unit * 64, changes));
        }
        Some((unit << order, changes))
    }

    /// Makes the aligned 2^`order` frames from `at` on free; `None` if one of
    /// them is free already or not the zone's, and nothing changes. The caller
    /// counts them in the bank's record ([`file`](Self::file)).
    /// O(L + 2^order/64) and O(L) for each order above.
    #[inline(always)]
    pub(crate) fn release<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        at: usize,
        order: u32,
    ) -> Option<Released> {
        let released = if order < 6 {
            self.release_in_word(s, bank, at, order)
        } else {
            self.release_words(s, bank, at, order)
        }?;
        self.free += 1 << order;
        Some(released)
    }

    #[inline(always)]
    fn release_in_word<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        bank: usize,
        at: usize,
        order: u32,
    ) -> Option<Released> {
        let (cell, first) = (self.cell(bank, at / 64), at as u32 % 64);
        let mask = ones::<u64>(1 << order) << first;
        if self.open[0].cell == cell || self.open[1].cell == cell {
            return self.release_in_open(s, cell, mask);
        }
        let was = Self::give(s, cell, mask)?;
        if was == 0 {
            let class = &self.classes[order as usize & 31];
            let tree = self.words_of(bank) + class.at as usize;
            let reordered = class.tree.insert(s.words_mut(), tree, at / 64);
            if reordered {
                s.mark(bank, order, true);
            }
            return Some(Released { filed: 1 << order, reordered });
        }
        let reordered = {
            // A single frame whose buddy is in use changes no largest block.
            (order > 0 || was >> (first ^ 1) & 1 == 1)
                && self.merge_in_word(s, bank, at / 64, first, order, was)
        };
        Some(Released { filed: 1 << order, reordered })
    }

    #[inline(never)]
    fn release_words<S: Keep + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        at: usize,
        order: u32,
    ) -> Option<Released> {
        let (first, count) = (self.cell(bank, at / 64), 1 << (order - 6));
        // An open word has a free frame.
        if self.open.iter().any(|open| (first..first + count).contains(&open.cell)) {
            return None;
        }
        Self::give_all(s, first, count)?;
        let reordered = self.merge_words(s, bank, at >> order, order);
        Some(Released { filed: 1 << order, reordered })
    }

    /// Frames `first` to `first + 2^order` of a word, which was `was` and not zero, are
    /// free now.
    #[inline(never)]
    fn merge_in_word<S: Keep + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        unit: usize,
        mut first: u32,
        mut order: u32,
        was: u64,
    ) -> bool {
        // Where blocks of this order started before.
        let mut starts = if order == 0 { was } else { starts(was, order) };
        let given = order;
        while order < self.top_in_word && starts >> (first ^ 1 << order) & 1 == 1 {
            starts = paired(starts, order);
            first &= !(1 << order);
            order += 1;
        }
        if order == 5 && self.top > 5 && starts >> (first ^ 32) & 1 == 1 {
            return self.leave(s, bank, 5, unit) | self.merge_words(s, bank, unit, 6);
        }
        if starts != 0 {
            return false;
        }
        // The largest was the last buddy, if there was one.
        let largest = if order > given { order - 1 } else { self.largest(was) };
        self.leave(s, bank, largest, unit) | self.enter(s, bank, order, unit)
    }

    /// The block `unit` of `order`, not below 6, is free now.
    #[inline(never)]
    pub(crate) fn merge_words<S: Keep + ?Sized>(
        &self,
        s: &mut S,
        bank: usize,
        mut unit: usize,
        mut order: u32,
    ) -> bool {
        let at = self.words_of(bank);
        let mut reordered = false;
        while order < self.top {
            let class = &self.classes[order as usize & 31];
            if !class.tree.contains(s.words(), at + class.at as usize, unit ^ 1) {
                break;
            }
            reordered |= self.leave(s, bank, order, unit ^ 1);
            unit >>= 1;
            order += 1;
        }
        self.enter(s, bank, order, unit) | reordered
    }
}

/// The parts of the map's areas that lie in an extent.
fn areas(map: &MemoryMap<'_>, extent: Extent) -> impl Iterator<Item = Extent> {
    let parts = map.areas().iter().map(move |&area| area.intersect(extent));
    parts.filter(|part| !part.is_empty())
}

/// Returns the number of words or blocks that the tree of an order may hold.
pub(crate) const fn units(bank_frames: u64, order: u32) -> usize {
    (if order < 6 { bank_frames.div_ceil(64) } else { bank_frames >> order }) as usize
}

/// The half of the storage that is field `field` of a bank's record.
#[inline(always)]
pub(crate) const fn record<S: Kept + ?Sized>(bank: usize, field: usize) -> usize {
    bank * S::STRIDE * 2 + field
}

/// Words of the records of so many banks in the checked tier.
const fn records_checked(banks: usize) -> usize {
    kept_words(banks * PARTS)
}
