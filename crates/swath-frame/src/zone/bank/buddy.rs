//! Bank-aware buddy allocators: the array-based and the list-based bank-buddy
//! and Adaptive-Buddy of the green memory manager (Panwar and Gopinath,
//! section IV).
//!
//! All of them keep each bank's free memory apart, so that a bank that is wholly
//! free can rest, and unmovable memory away from movable, so that banks can be
//! emptied. They differ only in **which bank serves a request**, and that is
//! the whole of a [`Placement`]:
//!
//! ```text
//!  Array   kernel --> [ 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 ] <-- user       scan
//!  List    LIST_KERNEL 0 > 3      LIST_USER 6 > 5 > 7    LIST_FREE ... scan
//!  Pools   POOL_KERNEL {0 3}      POOL_USER {5 6 7}      POOL_OFFLINE {1 2 4}
//!  Regions unmovable --> [ 0 | 1 | 2 ] boundary [ 3 | 4 | 5 | 6 | 7 ] <-- movable
//! ```
//!
//! In the paper, Adaptive-Buddy merges the banks of a pool into one set of free
//! lists, so that no search is needed, and moving a bank costs as much as it has
//! blocks. Here the blocks stay with their bank in all three, as bits, and the
//! pools know their banks by what they can serve: see [`PoolPlacement`].
//! The scans of the first two are kept: they are what the paper measures.
//!
//! # What it costs
//! 0.27 bytes per frame ([`frame_bytes`](BankBuddy::frame_bytes)). Beside that,
//! [`structure_bytes`](ZoneAllocator::structure_bytes) is what Table II counts:
//!
//! | bytes | array | list | Adaptive-Buddy |
//! |---|---|---|---|
//! | zone of 16 GiB, banks of 256 MiB | 2144 | 2184 | 5576 |
//! | the paper's zone | 68864 | 71040 | 5696 |
//! | the three zones of node 0 | 3384 | 3504 | 13680 |
//! | the paper's node | 284928 | 293632 | 32256 |
//!
//! (The paper's node has room for zones that are not populated.)
//! The paper's arrays and lists hold eleven list heads per bank and mobility;
//! here a bank is a record of 24 bytes. The pools' fields, 32 heads for each
//! order and pool, are most of Adaptive-Buddy's and do not grow with the banks.
//!
//! Instructions per call, counted on x86-64 with the caller's loop, through the
//! trait (`bench`, gates), for single frames of a zone of 4 GiB with 16 banks, of
//! which a random half is free:
//!
//! | | Linux | array | list | Adaptive-Buddy |
//! |---|---|---|---|---|
//! | in a row from a zone that is free | 190 | 86 | 43 | 36 |
//! | allocated | 103 | 93 | 46 | 39 |
//! | freed | 276 | 156 | 156 | 176 |
//!
//! Most frames come from an [open word](crate::zone::bank::open). Where one random frame
//! comes back for each that is allocated, no word has many: the two calls take 330
//! against Linux's 302. Of a mixture of orders, a block is allocated by 99 against 110,
//! and freed by 203 against 314. Adaptive-Buddy's longest calls take about a
//! thousand instructions: opening a bank, claiming the users' emptiest one, freeing
//! the frame that empties one.
//!
//! In an aged zone, in which blocks of orders 0 to 9 have come and gone several times as often
//! as there are blocks, the fullest banks have few frames and those are scattered. An allocation and
//! a free take there, each counted with the instructions that start it:
//!
//! | | Linux | Adaptive-Buddy | ratio |
//! |---|---|---|---|
//! | both, 60% in use | 355 | 384 | 1.08 |
//! | both, 90% in use | 354 | 398 | 1.12 |
//! | allocated, 90%: order 0, 1 to 5, 6 to 9 | 111, 134, 196 | 150, 364, 573 | 1.4, 2.7, 2.9 |
//! | freed, 90%: order 0, 1 to 5, 6 to 9 | 188, 365, 709 | 162, 295, 566 | 0.9, 0.8, 0.8 |
//!
//! Linux allocates from the head of a list; here the fullest bank is found first, and of ten
//! words that hold a block of orders 1 to 5, nine hold one: each allocation takes a
//! word out of its tree, and a third of them moves its bank to another field. An open word for each of
//! these orders would not help: it would be used up by its first block.
//!
//! In the [checked tier](BankBuddy::checked) a frame has two bits more, and records and lists
//! take four times the bytes. From lists or pools a single frame is then allocated for 40 to
//! 47 instructions, and freed for 155 to 175; the array allocates one for 93.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::bits::store::{Guarded, Keep, Outvoted, first_kept, kept_words, spread};
use crate::hardening::{Checked, Hardening, Latch, Trusting, WordFault};
use crate::map::MemoryMap;
use crate::zone::allocator::{IsolateError, Mobility, ZoneAllocator};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::boundary::BoundaryPlacement;
use crate::zone::bank::open::{Open, Released};
use crate::zone::bank::placement::Placement;
use crate::zone::bank::pools::PoolPlacement;
use crate::zone::bank::ranges::{BankLayout, BankLayoutError, BankState};
use crate::zone::bank::scan::{ArrayPlacement, ListPlacement};
use crate::zone::bank::trees::TreePlacement;

/// The array-based bank-buddy (section IV-A).
pub type ArrayBuddy<W, H = Trusting> = BankBuddy<W, ArrayPlacement, H>;

/// The list-based bank-buddy (section IV-B).
pub type ListBuddy<W, H = Trusting> = BankBuddy<W, ListPlacement, H>;

/// Adaptive-Buddy (section IV-D).
pub type AdaptiveBuddy<W, H = Trusting> = BankBuddy<W, PoolPlacement, H>;

/// Contiguitas' two regions.
pub type BoundaryBuddy<W, H = Trusting> = BankBuddy<W, BoundaryPlacement, H>;

/// LLFree's choice of banks.
pub type TreeBuddy<W, H = Trusting> = BankBuddy<W, TreePlacement, H>;

/// A zone's free memory, bank by bank.
///
/// `W` is where the state lives: any owner of a slice of words. `P` says which
/// bank serves. `H` is the tier of [checks](crate::hardening) of the words: the default
/// makes none, [`checked`](Self::checked) gives the other. L, from 1 to 3, is the number
/// of levels of a bank's trees.
///
/// Invariants, all walked by [`check`](ZoneAllocator::check): those of
/// the blocks (each frame of the zone is in use or in exactly one free block,
/// and no two free buddies stand side by side), and those of the placement
/// (each bank that is not isolated is in exactly one list, by what it can serve).
///
/// # Examples
/// Kernel memory and user memory come from different banks, and a bank that is
/// wholly free goes offline:
/// ```
/// use swath_arch::{Extent, Order, Pfn};
/// use swath_frame::zone::bank::{AdaptiveBuddy, PoolPlacement};
/// use swath_frame::zone::bank::{BankLayout, BankPool};
/// use swath_frame::{ByteRange, MemoryMap, Mobility, ZoneAllocator};
///
/// let mut areas = [Extent::default(); 1];
/// let zone = Extent::new(Pfn::new(0), 4 << 16); // 1 GiB
/// let map = MemoryMap::new(&[ByteRange::of_frames(zone)], &mut areas).unwrap();
/// let rule = PoolPlacement::default();
/// let words = AdaptiveBuddy::<Vec<u64>>::storage_words(&map, zone, BankLayout::PAPER, &rule).unwrap();
/// let mut buddy = AdaptiveBuddy::new(&map, zone, BankLayout::PAPER, rule, vec![0; words]).unwrap();
///
/// let kernel = buddy.allocate(Order::BASE, Mobility::Unmovable).unwrap();
/// let user = buddy.allocate(Order::BASE, Mobility::Movable).unwrap();
/// assert_eq!((buddy.bank_of(kernel), buddy.bank_of(user)), (Some(0), Some(3)));
/// assert_eq!(buddy.bank(3).unwrap().pool, Some(BankPool::User));
///
/// buddy.free(user, Order::BASE).unwrap();
/// assert_eq!(buddy.bank(3).unwrap().pool, Some(BankPool::Offline));
/// ```
#[derive(Clone, Debug)]
pub struct BankBuddy<W, P, H: Hardening = Trusting> {
    /// The words, and a note that one of them was outvoted, until the call ends.
    pub(crate) storage: Guarded<W, H::Note>,
    pub(crate) blocks: BankBlocks,
    pub(crate) rule: P,
    placement_bytes: usize,
    pub(crate) latch: H::Latch,
}

impl<W: DerefMut<Target = [u64]>, P: Placement> BankBuddy<W, P> {
    /// Counts the words of storage that a zone needs, which is the frames of
    /// `map` in the span `zone`. O(a + orders) for a areas.
    ///
    /// # Errors
    /// [`BankLayoutError::NoFrame`], [`BankLayoutError::Below`] or [`BankLayoutError::Count`].
    pub fn storage_words(
        map: &MemoryMap<'_>,
        zone: Extent,
        banks: BankLayout,
        rule: &P,
    ) -> Result<usize, BankLayoutError> {
        let (blocks, words) = BankBlocks::shape(map, zone, banks, false)?;
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        Ok(words.saturating_add(rule.words(blocks.count, blocks.top)))
    }

    /// An allocator for the frames of `map` in the span `zone`, all of them
    /// free. A bank in which the map has frames outside the span crosses into
    /// another zone. Overwrites what `storage` holds; words beyond
    /// [`storage_words`](Self::storage_words) are not used. O(words + B·a) for B
    /// banks and a areas.
    ///
    /// # Errors
    /// A [`BankLayoutError`].
    pub fn new(
        map: &MemoryMap<'_>,
        zone: Extent,
        banks: BankLayout,
        rule: P,
        storage: W,
    ) -> Result<Self, BankLayoutError> {
        Self::build(map, zone, banks, rule, storage, true)
    }

    /// Like [`new`](Self::new), but all frames are in use: the caller frees
    /// those that are not. A bank counts as the kernel's until it is wholly free.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn new_allocated(
        map: &MemoryMap<'_>,
        zone: Extent,
        banks: BankLayout,
        rule: P,
        storage: W,
    ) -> Result<Self, BankLayoutError> {
        Self::build(map, zone, banks, rule, storage, false)
    }

    fn build(
        map: &MemoryMap<'_>,
        zone: Extent,
        banks: BankLayout,
        mut rule: P,
        mut storage: W,
        free: bool,
    ) -> Result<Self, BankLayoutError> {
        let needed_words = Self::storage_words(map, zone, banks, &rule)?;
        let given_words = storage.len();
        if needed_words > given_words {
            return Err(BankLayoutError::Storage { needed_words, given_words });
        }
        let (mut blocks, own) = BankBlocks::shape(map, zone, banks, false)?;
        blocks.fill(&mut storage, map, zone, free);
        rule.build(&blocks, &mut storage[..], own as usize);
        let placement_bytes = (needed_words - own as usize) * 8;
        let storage = Guarded { words: storage, note: () };
        Ok(Self { storage, blocks, rule, placement_bytes, latch: () })
    }

    /// Counts the words of storage that the [checked tier](Self::checked) of a zone needs.
    ///
    /// # Errors
    /// As for [`storage_words`](Self::storage_words).
    pub fn checked_words(
        map: &MemoryMap<'_>,
        zone: Extent,
        banks: BankLayout,
        rule: &P,
    ) -> Result<usize, BankLayoutError> {
        let (blocks, words) = BankBlocks::shape(map, zone, banks, true)?;
        if usize::try_from(words).is_err() {
            return Ok(usize::MAX);
        }
        let kept = rule.words(blocks.count, blocks.top);
        Ok(blocks.placement_at().saturating_add(kept_words(kept)))
    }

    /// Returns the same zone in the [checked tier](crate::hardening), which takes its
    /// words as they are now for right. It keeps those of records and placement three times, and for
    /// each frame a bit more. The storage has to have [`checked_words`](Self::checked_words). O(words).
    ///
    /// # Errors
    /// [`BankLayoutError::Storage`].
    pub fn checked(self) -> Result<BankBuddy<W, P, Checked>, BankLayoutError> {
        let Self { storage, mut blocks, mut rule, placement_bytes, .. } = self;
        let mut storage = storage.words;
        let (own, kept) = (blocks.words(), placement_bytes / 8);
        let shape = blocks.checked_shape();
        let (needed_words, given_words) = (shape.placement_at() + kept_words(kept), storage.len());
        if needed_words > given_words {
            return Err(BankLayoutError::Storage { needed_words, given_words });
        }
        let to = first_kept(shape.placement_at());
        // Each word moves up, so that the last go first.
        for index in (0..kept).rev() {
            let word = storage[own + index];
            spread(&mut storage, to + index, word);
        }
        blocks.spread(&mut storage, shape);
        rule.moved(own, to);
        let storage = Guarded { words: storage, note: Outvoted::default() };
        Ok(BankBuddy { storage, blocks, rule, placement_bytes, latch: None })
    }
}

impl<W: DerefMut<Target = [u64]>, P: Placement> BankBuddy<W, P, Checked> {
    /// Returns the contradiction at which the zone has stopped, for the calls that
    /// have no error to tell it. O(1).
    pub fn fault(&self) -> Option<WordFault> {
        self.latch
    }

    /// Compares all words with each other: finds what [`fault`](Self::fault) will be,
    /// before a call meets it. O(words).
    ///
    /// # Errors
    /// The word that is at fault.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        let found = self.latch.or_else(|| self.differing());
        // What was changed has been written over since: the first word stands for it.
        found.map_or_else(|| self.check().map_err(|_| self.fault_at(0)), Err)
    }
}

impl<W: DerefMut<Target = [u64]>, P: Placement, H: Hardening> BankBuddy<W, P, H> {
    fn fault_at(&self, word: usize) -> WordFault {
        let value = self.storage.words.get(word).copied().unwrap_or(0);
        WordFault { table: self.blocks.table_at(word), word, value }
    }

    /// The word that is not what the others say. O(words·orders).
    fn differing(&self) -> Option<WordFault> {
        let word = self.blocks.wrong_word(H::read(&self.storage), self.placement_bytes / 8)?;
        Some(self.fault_at(word))
    }

    /// Stops the zone if a word has been outvoted: nothing is handed out or taken back from here on.
    /// Returns true if none was.
    #[inline(always)]
    pub(crate) fn settle(&mut self) -> bool {
        let noted = H::is_noted(&mut self.storage.note);
        if noted {
            self.stop();
        }
        !noted
    }

    /// Stops the zone at a contradiction, and looks for the word that is at fault.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop(&mut self) -> Option<WordFault> {
        if !H::CHECKED {
            return None;
        }
        let known = self.latch.fault().or_else(|| self.differing());
        let fault = known.unwrap_or_else(|| self.fault_at(0));
        self.blocks.open = [Open::NONE; 2];
        self.blocks.reach = 0;
        self.rule.stop();
        Some(self.latch.close(fault))
    }

    /// Returns the number of the zone's banks, partial ones and holes between
    /// included.
    pub fn banks(&self) -> usize {
        self.blocks.count
    }

    /// The bank that a frame lies in, from 0 on; `None` beyond the zone's banks.
    pub fn bank_of(&self, frame: Pfn) -> Option<usize> {
        self.blocks.place(frame.raw()).map(|(bank, _)| bank)
    }

    /// Returns the state of a bank; `None` if there is no such bank. O(1).
    pub fn bank(&self, bank: usize) -> Option<BankState> {
        let (b, s) = (&self.blocks, H::read(&self.storage));
        (bank < b.count).then(|| BankState {
            extent: b.extent(bank),
            total_frames: b.frames_of(s, bank).into(),
            free_frames: b.free_of(s, bank).into(),
            pool: self.rule.pool(b, s, bank),
            isolated: b.is_isolated(s, bank),
            crosses: b.crosses(s, bank),
        })
    }

    /// Returns true if the frame is the zone's and free, isolated or not. O(1).
    pub fn is_free(&self, frame: Pfn) -> bool {
        self.blocks.has_free(H::read(&self.storage), frame)
    }

    /// The first frame of a bank that is in use, from `from` on; `None` if
    /// there is none or no such bank. O(n/64) for n frames of a bank.
    pub fn next_allocated(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        let b = &self.blocks;
        (bank < b.count).then(|| b.next_allocated(H::read(&self.storage), bank, from)).flatten()
    }

    /// Isolates one bank, as [`isolate`](ZoneAllocator::isolate) does, but also a
    /// partial one. O(orders).
    ///
    /// # Errors
    /// [`IsolateError::Foreign`] if the zone has no frame there,
    /// [`IsolateError::State`]; nothing changes.
    pub fn isolate_bank(&mut self, bank: usize) -> Result<(), IsolateError> {
        self.is_in_state(bank, false)?;
        self.isolate_known(bank);
        self.settled()
    }

    /// Ends the isolation of one bank: it is back in its pool, or offline if it
    /// is wholly free. O(orders).
    ///
    /// # Errors
    /// [`IsolateError::Foreign`] if the zone has no frame there,
    /// [`IsolateError::State`]; nothing changes.
    pub fn rejoin_bank(&mut self, bank: usize) -> Result<(), IsolateError> {
        self.is_in_state(bank, true)?;
        self.rejoin_known(bank);
        self.settled()
    }

    /// The end of a call that isolates banks or ends that.
    fn settled(&mut self) -> Result<(), IsolateError> {
        self.settle();
        self.latch.fault().map_or(Ok(()), |fault| Err(IsolateError::Corrupt(fault)))
    }

    fn isolate_banks(&mut self, extent: Extent, isolated: bool) -> Result<(), IsolateError> {
        if let Some(fault) = self.latch.fault() {
            return Err(IsolateError::Corrupt(fault));
        }
        let banks = self.blocks.whole_banks(H::read(&self.storage), extent, !isolated)?;
        for bank in banks {
            if isolated {
                self.isolate_known(bank);
            } else {
                self.rejoin_known(bank);
            }
        }
        self.settled()
    }

    fn is_in_state(&self, bank: usize, isolated: bool) -> Result<(), IsolateError> {
        if let Some(fault) = self.latch.fault() {
            return Err(IsolateError::Corrupt(fault));
        }
        let (b, s) = (&self.blocks, H::read(&self.storage));
        if bank >= b.count {
            return Err(IsolateError::Foreign { frame: b.span().end() });
        }
        let frame = b.extent(bank).start;
        if b.frames_of(s, bank) == 0 {
            return Err(IsolateError::Foreign { frame });
        }
        if b.is_isolated(s, bank) != isolated {
            return Err(IsolateError::State { frame });
        }
        Ok(())
    }

    fn isolate_known(&mut self, bank: usize) {
        self.close_in(bank);
        let s = H::write(&mut self.storage);
        self.rule.isolate(&self.blocks, s, bank);
        self.blocks.set_isolated(s, bank, true);
    }

    fn rejoin_known(&mut self, bank: usize) {
        let s = H::write(&mut self.storage);
        self.blocks.set_isolated(s, bank, false);
        self.rule.rejoin(&self.blocks, s, bank);
    }

    /// Bytes of what each frame has: the bits of free and present frames and
    /// the trees over them. [`structure_bytes`](ZoneAllocator::structure_bytes)
    /// has the rest.
    pub fn frame_bytes(&self) -> usize {
        self.blocks.frame_bytes()
    }

    /// Closes the bank's open words.
    fn close_in(&mut self, bank: usize) {
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        for slot in 0..2 {
            if b.open_bank(slot) == Some(bank)
                && let Some((_, frames)) = b.close(s, slot)
            {
                self.rule.freed(b, s, bank, |s| b.known_record(s, bank), frames);
            }
        }
    }

    /// A bank was given frames, and may be wholly free now, be isolated, serve other orders than
    /// before or belong in another field.
    #[inline(never)]
    pub(crate) fn freed(&mut self, bank: usize, released: &Released) {
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let record = b.known_record(s, bank);
        let mut closes = false;
        if record.is_isolated() {
            b.isolated = b.isolated.wrapping_add(released.filed.into());
        } else {
            // The bank goes offline once its trees have all of it.
            closes = b.has_open(bank) && record.is_whole(b.open_of(bank));
        }
        self.rule.freed(b, s, bank, |_| record, released.filed);
        if closes {
            self.close_in(bank);
        }
        self.settle();
    }

    /// An aligned block, not above the largest order; whether all of its frames were in use.
    #[inline(never)]
    fn free_block(&mut self, start: u64, order: u32) -> bool {
        self.free_aligned(start, order)
    }

    #[inline(always)]
    fn free_aligned(&mut self, start: u64, order: u32) -> bool {
        let (bank, at) = self.blocks.position(start);
        if bank >= self.blocks.reach {
            return false;
        }
        let s = H::write(&mut self.storage);
        let Some(released) = self.blocks.release(s, bank, at, order) else { return false };
        if file_released(&self.blocks, &mut self.rule, s, bank, &released) {
            self.freed(bank, &released);
        }
        true
    }

    /// Blocks of any size, and all errors.
    #[inline(never)]
    fn free_any(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        if let Some(fault) = self.latch.fault() {
            return Err(FrameFreeError::Corrupt(fault));
        }
        if !start.is_aligned(order.k()) {
            return Err(FrameFreeError::Misaligned { frame: start, order });
        }
        let extent = Extent::new(start, order.frames());
        let words = H::read(&self.storage);
        if H::CHECKED && self.blocks.is_wrong_in(words, extent) {
            return self.stop().map_or(Ok(()), |fault| Err(FrameFreeError::Corrupt(fault)));
        }
        self.blocks.can_release(words, extent)?;
        for (start, order) in self.blocks.pieces(extent) {
            self.free_block(start, order);
        }
        Ok(())
    }
}

/// Counts what a bank's trees have got; returns true if the bank may belong elsewhere now, which
/// [`BankBuddy::freed`] sees to. O(1).
#[inline(always)]
pub(crate) fn file_released<P: Placement, S: Keep + ?Sized>(
    blocks: &BankBlocks,
    rule: &mut P,
    s: &mut S,
    bank: usize,
    released: &Released,
) -> bool {
    let (record, could_rest) = blocks.file(s, bank, released.filed);
    let moves = could_rest || P::BY_ORDER && released.reordered;
    if moves || rule.moves(record, released.filed) {
        return true;
    }
    rule.freed_some(bank, record, released.filed);
    false
}

impl<W: DerefMut<Target = [u64]>, H: Hardening> ListBuddy<W, H> {
    /// Puts the bank with the most free frames to the head of each list: the
    /// paper's kernel thread, which does so at an interval. O(B) for B banks.
    pub fn lift_emptiest(&mut self) {
        if self.latch.fault().is_none() {
            self.rule.lift_emptiest(&self.blocks, H::write(&mut self.storage));
            self.settle();
        }
    }
}

impl<W: DerefMut<Target = [u64]>, P: Placement, H: Hardening> ZoneAllocator for BankBuddy<W, P, H> {
    /// A single frame: most come from an [open word](crate::zone::bank::open), O(1), three
    /// cache lines. Others: the choice of a bank, and O(L + 2^order/64) plus O(L)
    /// for each order from the block found down to 5.
    #[inline]
    fn allocate(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        let movable = mobility == Mobility::Movable;
        let slot = usize::from(movable);
        if order == Order::BASE && self.rule.keeps(self.blocks.open[slot].bank, movable) {
            let frame = self.blocks.allocate_open(slot);
            if frame.is_some() {
                return frame;
            }
        }
        self.allocate_any(order.k(), movable)
    }

    /// Single frames come from an [open word](crate::zone::bank::open) together, as long as it
    /// has more.
    fn allocate_batch(
        &mut self,
        order: Order,
        mobility: Mobility,
        unmixed: bool,
        count: u32,
        sink: &mut dyn FnMut(Pfn),
    ) -> u32 {
        let _ = unmixed;
        self.allocate_rows(order, mobility, count, sink)
    }

    /// O(L + 2^order/64) plus O(L) for each order that merges, whatever the
    /// placement. A single frame that merges with none: O(1), four cache lines.
    /// A size beyond the largest block is freed block by block.
    #[inline]
    fn free(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        let raw = start.raw();
        let freed = if order == Order::BASE {
            self.free_aligned(raw, 0)
        } else {
            order.k() <= self.blocks.top
                && raw & (order.frames() - 1) == 0
                && self.free_block(raw, order.k())
        };
        if freed { Ok(()) } else { self.free_any(start, order) }
    }

    /// Single frames that stand in one word cost as much as one, and a few instructions each.
    fn free_batch(&mut self, order: Order, blocks: &[Pfn]) -> Result<(), FrameFreeError> {
        self.free_rows(order, blocks)
    }

    #[inline]
    fn free_frames(&self) -> u64 {
        self.blocks.free - self.blocks.isolated
    }

    #[inline]
    fn total_frames(&self) -> u64 {
        self.blocks.total
    }

    /// O(B) for B banks; O(1) with [`PoolPlacement`].
    fn largest_free(&self) -> Option<Order> {
        let (b, s) = (&self.blocks, H::read(&self.storage));
        let largest = self.rule.largest(b, s).max(b.largest_open());
        largest.and_then(|order| Order::new(order as u8))
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        let (b, s) = (&self.blocks, H::read(&self.storage));
        for bank in (0..b.count).filter(|&bank| !b.is_isolated(s, bank)) {
            b.for_each_free(s, bank, visit);
        }
    }

    /// Whole banks that are the zone's throughout; partial ones can be isolated
    /// by number ([`isolate_bank`](BankBuddy::isolate_bank)). O(n/64) for n
    /// frames.
    fn isolate(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.isolate_banks(extent, true)
    }

    fn rejoin(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.isolate_banks(extent, false)
    }

    /// The bank's order. Where banks are no power of two, or their first border
    /// is not aligned so, this is the largest order that divides them all, and
    /// an extent's borders have to be those of banks.
    fn isolation_order(&self) -> Order {
        self.blocks.unit_order()
    }

    /// This struct, a record for each bank, and the lists or pools.
    fn structure_bytes(&self) -> usize {
        let records = self.blocks.count * BankBlocks::record_bytes(H::CHECKED);
        let placement = self.placement_bytes / 8;
        let placement = if H::CHECKED { kept_words(placement) } else { placement };
        size_of::<Self>() + records + placement * 8
    }

    fn check(&self) -> Result<(), &'static str> {
        let s = H::read(&self.storage);
        self.blocks.check(s)?;
        self.rule.check(&self.blocks, s)
    }
}
