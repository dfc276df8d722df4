//! One zone of Linux: a binary buddy system whose free lists are kept apart by
//! mobility. The baseline that the green memory manager is measured against.
//!
//! The behaviour is that of kernel 6.18's `mm/page_alloc.c`. For each order
//! from 0 to 10 there is a list per [`Mobility`] and one for isolated blocks.
//! Memory is cut into **pageblocks**; a free block lies in the list of its
//! pageblock's mobility.
//!
//! * A request takes the **head** of the smallest order that has a block in its
//!   own mobility's lists; the upper halves that remain go to the heads.
//! * A block that is freed merges with its buddies. It goes to the head, or to
//!   the **tail** if the buddy one order up is free, since it will soon be
//!   merged.
//! * If the own lists are empty, the request **claims** a pageblock of another
//!   mobility: from the largest order down, the first block of the first
//!   mobility in [`fallbacks`]. A block of a pageblock or more changes
//!   mobility as a whole. A smaller one does if at least half of its
//!   pageblock's frames are free or of a like mobility; then the pageblock's
//!   free blocks all move to the tails of the new lists. Movable requests try
//!   this only from half the pageblock's order on.
//! * If nothing can be claimed, it **steals** a single block: from the smallest
//!   order up. The pageblock keeps its mobility, and so do the halves that
//!   remain.
//!
//! What the kernel has and this has not: contiguous-memory areas (CMA), the
//! reserve for high-order atomic requests, compaction, and the boost of the
//! watermarks after a claim, which lasts until reclaim has run. "Of a like
//! mobility" means on an LRU list there; here it is the mobility of the request
//! that took the frame, so that frames which wait in per-CPU lists count as
//! used by whom they were allocated for ([`LinuxZone::set_user`] can say otherwise).
//!
//! # What it costs
//! 9 bytes per frame of the span rounded out to 1024 frames (8 for the links of
//! a list, 1 for the state) and 4 bits per pageblock. Allocating or freeing a block
//! costs O(M) for M orders, plus 2^(order-3) words of states. A claim costs
//! O(M) candidates, of which each may look at 2^(pageblock order - 3) words.
//!
//! Instructions per call, counted on x86-64: with a random half of 2^20 frames
//! in use, 43 to allocate a single frame and 173 to free one; 132 and 297 if
//! all memory was one piece, where each second request splits and each second
//! return merges. Order 9 costs 220 and 975. The [checked tier](LinuxZone::checked)
//! takes no more words, and at most as many instructions for single frames and
//! 1% more for a mixture of orders.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::hardening::{Checked, Hardening, Latch, Table, Trusting, WordFault};
use crate::map::MemoryMap;
use crate::zone::allocator::{IsolateError, Mobility, ZoneAllocator};
use crate::zone::linux::build::{LinuxBuildError, ORDER_MAX};
use crate::zone::linux::codes::{HOLE, USED, USED_MOVABLE, is_state};
use crate::zone::linux::fallback::{Fallback, Observe, fallbacks};
use crate::zone::linux::lists::{ISOLATED, Lists, ORDERS};

/// A zone as Linux manages it, with its state in `W`, any owner of a slice of
/// words. `O` observes fallbacks. `H` is the tier of [checks](crate::hardening) of these
/// words: the default makes none, [`checked`](Self::checked) gives the other.
///
/// Invariants, all walked by [`check`](ZoneAllocator::check):
/// * each frame of the span is a hole, in use, the first of a free block or
///   another frame of one; what lies outside the span is a hole;
/// * the first frame of each free block is in exactly one list: that of its
///   order and of its pageblock's mobility, or of isolated blocks; all
///   pageblocks of a free block agree;
/// * no two free buddies of the same order are left apart, but for isolated
///   ones and for those of which one is isolated;
/// * the counts of free frames agree with the lists.
///
/// # Examples
/// ```
/// use swath_arch::{Extent, Order, Pfn};
/// use swath_frame::zone::linux::{Fallback, LinuxZone, PAGEBLOCK_ORDER};
/// use swath_frame::{ByteRange, MemoryMap, Mobility, ZoneAllocator};
///
/// let span = Extent::new(Pfn::new(0), 4096);
/// let mut areas = [Extent::default(); 1];
/// let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas).unwrap();
/// let storage = vec![0; LinuxZone::<&mut [u64]>::storage_words(span)];
/// let mut fallbacks: Vec<Fallback> = Vec::new();
/// let mut zone = LinuxZone::new(&map, span, PAGEBLOCK_ORDER, storage)
///     .unwrap()
///     .observed(|event: &Fallback| fallbacks.push(*event));
///
/// // All memory starts as movable; the kernel's first request claims a block.
/// assert_eq!(zone.allocate(Order::BASE, Mobility::Movable), Some(Pfn::new(0)));
/// assert_eq!(zone.allocate(Order::BASE, Mobility::Unmovable), Some(Pfn::new(1024)));
/// drop(zone);
/// assert!(fallbacks[0].claimed && fallbacks[0].block_order == Order::known(10));
/// ```
#[derive(Clone, Debug)]
pub struct LinuxZone<W, O = (), H: Hardening = Trusting> {
    pub(crate) lists: Lists<W, H>,
    observer: O,
    span: Extent,
    total_frames: u64,
}

impl<W: DerefMut<Target = [u64]>> LinuxZone<W> {
    /// Counts the words of storage that a zone of this span needs; `usize::MAX`
    /// if it cannot be built. O(1).
    pub fn storage_words(span: Extent) -> usize {
        Lists::<W, Trusting>::storage_words(span)
    }

    /// The frames of `map` that lie in `span`, all of them free, with
    /// pageblocks of this order, all movable. The lists are as after boot: in
    /// ascending order. Overwrites what `storage` holds. O(words).
    ///
    /// # Errors
    /// A [`LinuxBuildError`].
    pub fn new(
        map: &MemoryMap<'_>,
        span: Extent,
        pageblock: Order,
        storage: W,
    ) -> Result<Self, LinuxBuildError> {
        let mut zone = Self::new_allocated(map, span, pageblock, storage)?;
        for area in map.areas().iter().map(|area| area.intersect(span)) {
            for (start, order) in area.blocks(ORDER_MAX) {
                zone.lists.release(start, order.k(), true);
            }
        }
        Ok(zone)
    }

    /// Like [`new`](Self::new), but all frames are in use by unmovable owners:
    /// the caller frees those that are not.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn new_allocated(
        map: &MemoryMap<'_>,
        span: Extent,
        pageblock: Order,
        storage: W,
    ) -> Result<Self, LinuxBuildError> {
        let mut lists = Lists::new(span, pageblock, storage)?;
        let mut total_frames = 0;
        for area in map.areas().iter().map(|area| area.intersect(span)) {
            total_frames += area.count;
            for (start, order) in area.blocks(ORDER_MAX) {
                lists.fill(lists.index(start), order.k(), USED);
            }
        }
        if total_frames == 0 {
            return Err(LinuxBuildError::NoFrame { span });
        }
        Ok(Self { lists, observer: (), span, total_frames })
    }
}

impl<W: DerefMut<Target = [u64]>, O: Observe> LinuxZone<W, O> {
    /// Returns the same zone in the [checked tier](crate::hardening), which takes its
    /// words as they are now for right. O(words).
    ///
    /// # Examples
    /// ```
    /// use swath_arch::{Extent, Order, Pfn};
    /// use swath_frame::zone::linux::PAGEBLOCK_ORDER;
    /// use swath_frame::{ByteRange, LinuxZone, MemoryMap, Mobility, ZoneAllocator};
    ///
    /// let span = Extent::new(Pfn::new(0), 64);
    /// let mut areas = [Extent::default(); 1];
    /// let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas).unwrap();
    /// let storage = vec![0; LinuxZone::<&mut [u64]>::storage_words(span)];
    /// let zone = LinuxZone::new(&map, span, PAGEBLOCK_ORDER, storage).unwrap();
    /// let mut zone = zone.checked();
    /// assert_eq!(zone.allocate(Order::BASE, Mobility::Movable), Some(Pfn::new(0)));
    /// assert_eq!(zone.find_fault(), Ok(()));
    /// assert_eq!(zone.fault(), None);
    /// ```
    pub fn checked(self) -> LinuxZone<W, O, Checked> {
        let Self { lists, observer, span, total_frames } = self;
        let mut lists = lists.in_tier();
        lists.clear_links();
        LinuxZone { lists, observer, span, total_frames }
    }
}

impl<W: DerefMut<Target = [u64]>, O: Observe> LinuxZone<W, O, Checked> {
    /// Returns the contradiction at which the zone has stopped, for the calls that
    /// have no error to tell it. O(1).
    pub fn fault(&self) -> Option<WordFault> {
        self.lists.latch.fault()
    }

    /// Compares all words with each other: finds what [`fault`](Self::fault) will be,
    /// before a call meets it. O(words).
    ///
    /// # Errors
    /// The word that is at fault.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        let outside = |index: u32| !self.span.contains(self.lists.frame(index));
        self.lists.find_fault(&outside, self.total_frames)
    }
}

impl<W: DerefMut<Target = [u64]>, O: Observe, H: Hardening> LinuxZone<W, O, H> {
    /// Returns the same zone with `observer` for its fallbacks.
    pub fn observed<P: Observe>(self, observer: P) -> LinuxZone<W, P, H> {
        let Self { lists, observer: _, span, total_frames } = self;
        LinuxZone { lists, observer, span, total_frames }
    }

    /// Returns the observer of fallbacks.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The zone's span.
    pub fn span(&self) -> Extent {
        self.span
    }

    /// The mobility of the pageblock around `frame`, isolated or not; `None`
    /// outside the span.
    pub fn pageblock_mobility(&self, frame: Pfn) -> Option<Mobility> {
        self.span.contains(frame).then(|| self.lists.mobility(self.lists.index(frame)))
    }

    /// Returns true if the pageblock around `frame` is isolated.
    pub fn is_isolated(&self, frame: Pfn) -> bool {
        self.span.contains(frame) && self.lists.list_of(self.lists.index(frame)) == ISOLATED
    }

    /// The free blocks of one order and mobility, from the head of the list on.
    pub fn list(&self, order: Order, mobility: Mobility) -> impl Iterator<Item = Pfn> {
        self.lists.iter(order.k(), mobility as usize).map(|index| self.lists.frame(index))
    }

    /// The isolated free blocks of one order, from the head of the list on.
    pub fn isolated(&self, order: Order) -> impl Iterator<Item = Pfn> {
        self.lists.iter(order.k(), ISOLATED).map(|index| self.lists.frame(index))
    }

    /// Returns true if a request of this mobility may claim the pageblock of a
    /// free block of order `k`.
    fn may_claim(&self, k: u32, mobility: Mobility) -> bool {
        k >= self.lists.pageblock_k / 2 || mobility != Mobility::Movable
    }

    fn fallback_at(&self, k: u32, mobility: Mobility) -> Option<Mobility> {
        let has = |other: &Mobility| self.lists.nonempty(*other as usize) >> k & 1 == 1;
        fallbacks(mobility).into_iter().find(has)
    }

    fn report(&mut self, index: u32, k: u32, block_k: u32, wanted: Mobility, from: Mobility) {
        let claimed = self.lists.mobility(index) == wanted;
        let order = |k: u32| Order::known(k as u8);
        let (order, block_order) = (order(k), order(block_k));
        let start = self.lists.frame(index);
        self.observer.fallback(&Fallback { start, order, block_order, wanted, from, claimed });
    }

    /// Claims a pageblock of another mobility, and allocates from it.
    fn claim(&mut self, k: u32, mobility: Mobility, unmixed: bool) -> Option<u32> {
        let own = mobility as usize;
        let pageblock_k = self.lists.pageblock_k;
        let k_min = if unmixed { k.max(pageblock_k) } else { k };
        for block_k in (k_min..ORDERS as u32).rev() {
            if !self.may_claim(block_k, mobility) {
                break;
            }
            let Some(from) = self.fallback_at(block_k, mobility) else { continue };
            let block = self.lists.first(block_k, from as usize);
            let taken = if block_k >= pageblock_k {
                self.lists.set_mobility(block, block_k, mobility);
                let cut =
                    Lists::<W, H>::held(self.lists.cut(block, block_k, k, from as usize, own));
                cut.then_some(block)
            } else {
                self.claim_around(block, mobility, from).then(|| self.lists.pop(k, own)).flatten()
            };
            if let Some(index) = taken {
                self.report(index, k, block_k, mobility, from);
                return Some(index);
            }
        }
        None
    }

    /// Changes the pageblock around `block` to `mobility` if at least half of
    /// it is free or alike.
    fn claim_around(&mut self, block: u32, mobility: Mobility, from: Mobility) -> bool {
        let pageblock_k = self.lists.pageblock_k;
        if !self.lists.has_mobility(block) {
            return false;
        }
        let Some(count) = self.free_or_alike_at(block, mobility) else { return false };
        if count < 1 << (pageblock_k - 1) {
            return false;
        }
        let start = block >> pageblock_k << pageblock_k;
        if !Lists::<W, H>::held(self.lists.move_block(start, from as usize, mobility as usize)) {
            return false;
        }
        self.lists.set_mobility(start, pageblock_k, mobility);
        true
    }

    /// Counts the frames of the pageblock around a frame that are free or alike
    /// to a request of this mobility; `None` if the pageblock is not whole in
    /// the zone, so that two zones share it and it is not this one's to change.
    pub(crate) fn free_or_alike_at(&self, index: u32, mobility: Mobility) -> Option<u32> {
        let frames = 1 << self.lists.pageblock_k;
        let start = index & !(frames - 1);
        let around = Extent::new(self.lists.frame(start), u64::from(frames));
        if around.intersect(self.span) != around {
            return None;
        }
        let (free, movable) = self.lists.count(start);
        let alike = match (mobility, self.lists.mobility(start)) {
            (Mobility::Movable, _) => movable,
            (_, Mobility::Movable) => frames - (free + movable),
            _ => 0,
        };
        Some(free + alike)
    }

    /// Allocates from another mobility's pageblock, which keeps its mobility.
    fn steal(&mut self, k: u32, mobility: Mobility) -> Option<u32> {
        for block_k in k..ORDERS as u32 {
            let Some(from) = self.fallback_at(block_k, mobility) else { continue };
            let block = self.lists.first(block_k, from as usize);
            let cut = self.lists.cut(block, block_k, k, from as usize, from as usize);
            if !Lists::<W, H>::held(cut) {
                return None;
            }
            self.report(block, k, block_k, mobility, from);
            return Some(block);
        }
        None
    }

    /// Allocates a block, remembering in `stealing` that the request has come down
    /// to that: within one batch the kernel then does not look elsewhere.
    #[inline]
    pub(crate) fn allocate_from(
        &mut self,
        order: Order,
        mobility: Mobility,
        unmixed: bool,
        stealing: &mut bool,
    ) -> Option<Pfn> {
        let k = order.k();
        if order > ORDER_MAX {
            return None;
        }
        let state = if mobility == Mobility::Movable { USED_MOVABLE } else { USED };
        if H::CHECKED && !*stealing {
            // Most requests are for single frames.
            let first = if k == 0 {
                self.lists.take_first(0, mobility as usize, state)
            } else {
                self.lists.take_first(k, mobility as usize, state)
            };
            if let Some(index) = first {
                return Some(self.lists.frame(index));
            }
        }
        let own = if *stealing { None } else { self.lists.pop(k, mobility as usize) };
        let index = match own {
            Some(index) => index,
            None => self.allocate_foreign(k, mobility, unmixed, stealing)?,
        };
        self.lists.fill(index, k, state);
        Some(self.lists.frame(index))
    }

    #[cold]
    fn allocate_foreign(
        &mut self,
        k: u32,
        mobility: Mobility,
        unmixed: bool,
        stealing: &mut bool,
    ) -> Option<u32> {
        let mut taken = None;
        if !*stealing {
            taken = self.claim(k, mobility, unmixed);
        }
        if taken.is_none() && !unmixed {
            taken = self.steal(k, mobility);
            *stealing = taken.is_some();
            if H::CHECKED && taken.is_none() && k == 0 && self.lists.free_frames > 0 {
                self.lists.stopped();
            }
        }
        taken
    }

    /// The pageblocks of an extent that are to change to `isolated`.
    fn units(&self, extent: Extent, isolated: bool) -> Result<(u32, u32), IsolateError> {
        let order = self.isolation_order();
        if extent.is_empty() {
            return Err(IsolateError::Empty);
        }
        let aligned =
            extent.start.is_aligned(order.k()) && extent.count.is_multiple_of(order.frames());
        if !aligned {
            return Err(IsolateError::Misaligned { extent, order });
        }
        if extent.start < self.span.start {
            return Err(IsolateError::Foreign { frame: extent.start });
        }
        let inside = extent.intersect(self.span);
        let hole = inside.iter().find(|frame| self.lists.state(self.lists.index(*frame)) == HOLE);
        if let Some(frame) = hole {
            return Err(IsolateError::Foreign { frame });
        }
        if inside.count < extent.count {
            let frame = extent.start.max(self.span.end());
            return Err(IsolateError::Foreign { frame });
        }
        let first = self.lists.index(extent.start);
        let past = first + extent.count as u32;
        let other = (first..past)
            .step_by(order.frames() as usize)
            .find(|unit| (self.lists.list_of(*unit) == ISOLATED) == isolated);
        match other {
            Some(unit) => Err(IsolateError::State { frame: self.lists.frame(unit) }),
            None => Ok((first, past)),
        }
    }
}

impl<W: DerefMut<Target = [u64]>, O: Observe, H: Hardening> ZoneAllocator for LinuxZone<W, O, H> {
    #[inline]
    fn allocate(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        self.allocate_from(order, mobility, false, &mut false)
    }

    fn allocate_unmixed(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        self.allocate_from(order, mobility, true, &mut false)
    }

    fn allocate_batch(
        &mut self,
        order: Order,
        mobility: Mobility,
        unmixed: bool,
        count: u32,
        sink: &mut dyn FnMut(Pfn),
    ) -> u32 {
        let mut stealing = false;
        for taken in 0..count {
            match self.allocate_from(order, mobility, unmixed, &mut stealing) {
                Some(start) => sink(start),
                None => return taken,
            }
        }
        count
    }

    /// The pageblock's mobility.
    #[inline]
    fn mobility_of(&self, frame: Pfn) -> Option<Mobility> {
        self.pageblock_mobility(frame)
    }

    /// Blocks above the pageblock order are given pageblock by pageblock, as
    /// the kernel does since each may be isolated or not.
    #[inline]
    fn free(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        if order == Order::BASE {
            if H::CHECKED {
                if self.lists.used_at(start).is_some() {
                    return self.release(start, 0);
                }
            } else if self.span.contains(start) && self.lists.is_used(self.lists.index(start)) {
                return self.release(start, 0);
            }
        }
        self.free_slowly(start, order)
    }

    #[inline]
    fn free_frames(&self) -> u64 {
        self.lists.free_frames
    }

    #[inline]
    fn total_frames(&self) -> u64 {
        self.total_frames
    }

    fn largest_free(&self) -> Option<Order> {
        let all =
            Mobility::ALL.iter().fold(0, |all, list| all | self.lists.nonempty(*list as usize));
        all.checked_ilog2().map(|k| Order::known(k as u8))
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        for k in 0..ORDERS as u32 {
            for list in 0..ISOLATED {
                for index in self.lists.iter(k, list) {
                    visit(Extent::new(self.lists.frame(index), 1 << k));
                }
            }
        }
    }

    /// O(u·2^order) for u pageblocks of this order.
    fn isolate(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.set_isolated(extent, true)
    }

    /// O(u·2^order) for u pageblocks of this order.
    fn rejoin(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.set_isolated(extent, false)
    }

    fn isolation_order(&self) -> Order {
        Order::known(self.lists.pageblock_k as u8)
    }

    /// This struct. The pageblocks' mobilities lie in the caller's words, as Linux's
    /// bitmap of them lies outside `struct zone`.
    fn structure_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn check(&self) -> Result<(), &'static str> {
        let outside = |index: u32| !self.span.contains(self.lists.frame(index));
        let used_or_free = self.lists.check(&outside)?;
        if used_or_free != self.total_frames {
            return Err("the states of another number of frames than the zone has");
        }
        Ok(())
    }
}

impl<W: DerefMut<Target = [u64]>, O: Observe, H: Hardening> LinuxZone<W, O, H> {
    /// Frees 2^k frames from `start` on, aligned and all of them in use.
    #[inline(always)]
    fn release(&mut self, start: Pfn, k: u32) -> Result<(), FrameFreeError> {
        if Lists::<W, H>::held(self.lists.release(start, k, false)) {
            Ok(())
        } else {
            Err(FrameFreeError::Corrupt(self.lists.stopped()))
        }
    }

    fn set_isolated(&mut self, extent: Extent, isolated: bool) -> Result<(), IsolateError> {
        if let Some(fault) = self.lists.latch.fault() {
            return Err(IsolateError::Corrupt(fault));
        }
        let (first, past) = self.units(extent, isolated)?;
        for unit in (first..past).step_by(self.isolation_order().frames() as usize) {
            if !Lists::<W, H>::held(self.lists.set_isolated(unit, isolated)) {
                return Err(IsolateError::Corrupt(self.lists.stopped()));
            }
        }
        Ok(())
    }

    /// As [`free`](ZoneAllocator::free), for all cases.
    fn free_slowly(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        if let Some(fault) = self.lists.latch.fault() {
            return Err(FrameFreeError::Corrupt(fault));
        }
        if !start.is_aligned(order.k()) {
            return Err(FrameFreeError::Misaligned { frame: start, order });
        }
        let extent = Extent::new(start, order.frames());
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        if order <= ORDER_MAX && extent.intersect(self.span) == extent {
            let index = self.lists.index(start);
            if let Some(index) = self.lists.find_unused(index, order.k()) {
                return Err(self.not_used(self.lists.frame(index)));
            }
            return self.release(start, order.k());
        }
        let is_used = |frame: &Pfn| {
            self.span.contains(*frame) && self.lists.is_used(self.lists.index(*frame))
        };
        // It ends at the span's border at the latest.
        if let Some(frame) = extent.iter().find(|frame| !is_used(frame)) {
            return Err(self.not_used(frame));
        }
        extent.blocks(ORDER_MAX).try_for_each(|(start, order)| self.release(start, order.k()))
    }

    fn not_used(&mut self, frame: Pfn) -> FrameFreeError {
        if !self.span.contains(frame) {
            return FrameFreeError::Foreign { frame };
        }
        let index = self.lists.index(frame);
        match self.lists.state(index) {
            state if H::CHECKED && !is_state(state) => {
                let word = self.lists.state_at(index);
                FrameFreeError::Corrupt(self.lists.stop(Table::States, word))
            }
            HOLE => FrameFreeError::Foreign { frame },
            _ => FrameFreeError::NotAllocated { frame },
        }
    }
}
