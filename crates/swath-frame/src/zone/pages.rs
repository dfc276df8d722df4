//! A zone whose frames the page buddy system keeps.
//!
//! *Duong and Hur* (section IV-G) see a use in the binary buddy for general-purpose programs on the
//! CPU and the page buddy for DMA devices, in one system. As [`PageZone`] both are allocators of
//! zones, by their [`BuddyConfig`]: what asks for blocks of an order sees a [`ZoneAllocator`], and
//! what asks for a range of any length [`PageZone::allocate_range`].
//!
//! Mobilities are not kept apart. A unit that is isolated keeps its free frames aside, bit by bit.
//!
//! In the [checked tier](crate::hardening) these bits stand three times beside the checked words of the
//! page buddy: two copies are compared when they are read, and the third says which of them was changed.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{BuildError, FrameAllocateError, FrameFreeError};
use crate::bits::words::first_clear;
use crate::buddy::config::BuddyConfig;
use crate::buddy::rule::{HeadOfList, Rule};
use crate::buddy::state::State;
use crate::hardening::{Checked, Hardening, Latch, Table, Trusting, WordFault};
use crate::map::MemoryMap;
use crate::zone::allocator::{IsolateError, Mobility, ZoneAllocator};

/// The frames of a zone in a page buddy system.
///
/// `W` is any owner of a slice of words. For n frames of the span, c classes and u units that can be
/// isolated, it holds what a [`PageBuddy`](crate::PageBuddy) does, a bit for each frame and a bit
/// for each unit, both three times in the checked tier. `H` is the tier of
/// [checks](crate::hardening) of these words; the default makes none.
///
/// Invariants, walked by [`check`](ZoneAllocator::check): those of the page buddy; a frame that is
/// aside lies in an isolated unit, and to the page buddy it is allocated; no free frame lies in an
/// isolated unit; `isolated` units are.
#[derive(Clone, Debug)]
pub struct PageZone<W, R = HeadOfList, H: Hardening = Trusting> {
    storage: W,
    state: State<R, H>,
    /// The first word of the bits of frames that are aside; they stand as those of allocated frames.
    aside_at: usize,
    /// The first word of the bits of isolated units.
    isolated_at: usize,
    /// Words from a copy of both to the next.
    copy_words: usize,
    unit: Order,
    /// Number of isolated units: without one, no word needs to be asked whether a unit is.
    isolated: u64,
}

/// Copies of the bits of the checked tier: two would not say which of them is wrong.
const COPIES: usize = 3;

/// Units of this order around the span, whole or in part.
fn units(span: Extent, unit: Order) -> u64 {
    ((span.end().raw() - 1) >> unit.k()) - (span.start.raw() >> unit.k()) + 1
}

impl<W: DerefMut<Target = [u64]>, R: Rule, H: Hardening> PageZone<W, R, H> {
    /// Counts the words of storage that a zone of the frames of `map` needs; `usize::MAX` if they
    /// cannot be addressed. O(c).
    pub fn storage_words(map: &MemoryMap<'_>, config: BuddyConfig, unit: Order) -> usize {
        let buddy = State::<R, H>::storage_words(map, config);
        let more = Self::copies() as u64 * Self::bit_words(map.span(), unit);
        buddy.saturating_add(usize::try_from(more).unwrap_or(usize::MAX))
    }

    /// Words of the bits of frames and units.
    fn bit_words(span: Extent, unit: Order) -> u64 {
        State::<R, H>::allocated_words(span) + units(span, unit).div_ceil(64)
    }

    const fn copies() -> usize {
        if H::CHECKED { COPIES } else { 1 }
    }

    /// A zone of the frames of `map`, all of them free, of which units of order `unit` can be
    /// isolated. Overwrites what `storage` holds. O(words).
    ///
    /// # Errors
    /// [`BuildError`] if `storage` is too small, or the map's span too long for the rule.
    pub fn new(
        map: &MemoryMap<'_>,
        config: BuddyConfig,
        unit: Order,
        storage: W,
    ) -> Result<Self, BuildError> {
        let mut zone = Self::new_allocated(map, config, unit, storage)?;
        zone.state.free_all(map, &mut zone.storage);
        Ok(zone)
    }

    /// Like [`new`](Self::new), but all frames are in use: the caller frees those that are not.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn new_allocated(
        map: &MemoryMap<'_>,
        config: BuddyConfig,
        unit: Order,
        mut storage: W,
    ) -> Result<Self, BuildError> {
        let (needed_words, given_words) = (Self::storage_words(map, config, unit), storage.len());
        if needed_words > given_words {
            return Err(BuildError::Storage { needed_words, given_words });
        }
        let state = State::new(map, config, &mut storage)?;
        let aside_at = State::<R, H>::storage_words(map, config);
        let isolated_at = aside_at + state.allocated_words;
        let copy_words = (needed_words - aside_at) / Self::copies();
        storage[aside_at..needed_words].fill(0);
        Ok(Self { storage, state, aside_at, isolated_at, copy_words, unit, isolated: 0 })
    }

    /// The orders that have a list.
    pub fn config(&self) -> BuddyConfig {
        self.state.config()
    }

    /// Allocates `count_frames` frames in blocks of any length, as the page buddy system does,
    /// handing each to `sink`. Costs as for [`PageBuddy`](crate::PageBuddy).
    ///
    /// # Errors
    /// [`FrameAllocateError::Empty`] or [`FrameAllocateError::OutOfFrames`]; nothing changes.
    pub fn allocate_range(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        self.state.allocate(&mut self.storage, count_frames, sink)
    }

    /// Allocates an aligned block of an order that has a list.
    #[inline(never)]
    fn allocate_aligned(&mut self, order: Order) -> Option<Pfn> {
        if order > self.config().top() {
            return None;
        }
        self.state.allocate_aligned(&mut self.storage, order).ok().map(|block| block.start)
    }

    /// Frees frames, which may be any part of what was allocated. O(n) for n frames,
    /// and what the page buddy takes.
    ///
    /// # Errors
    /// A [`FrameFreeError`] if any frame of `extent` is not allocated; nothing changes.
    #[inline]
    pub fn free_range(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if self.isolated == 0 {
            return self.state.free(&mut self.storage, extent);
        }
        self.free_by_units(extent)
    }

    /// Frees frames where a unit is isolated.
    #[inline(never)]
    fn free_by_units(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        let last = extent.start.raw().wrapping_add(extent.count.wrapping_sub(1));
        let in_unit = (extent.start.raw() ^ last) >> self.unit.k() == 0;
        if in_unit && self.state.span.contains(extent.start) && self.is_unisolated(extent.start) {
            // No frame of it is aside.
            return self.state.free(&mut self.storage, extent);
        }
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        let Some(end) = extent.checked_end() else {
            return Err(FrameFreeError::Overflow { extent });
        };
        if let Some(error) = self.refusal(extent) {
            return Err(error);
        }
        let mut start = extent.start;
        while start < end {
            let past = self.unit_end(start).min(end);
            let part = Extent::between(start, past);
            if self.is_isolated(start) {
                self.set_aside(part, true);
            } else {
                self.state.free(&mut self.storage, part)?;
            }
            start = past;
        }
        Ok(())
    }

    /// Returns why these frames cannot be freed: the first that is not allocated, or the words that
    /// would say so contradict each other.
    fn refusal(&mut self, extent: Extent) -> Option<FrameFreeError> {
        if let Some(fault) = self.state.latch.fault() {
            return Some(FrameFreeError::Corrupt(fault));
        }
        let span = self.state.span;
        if !span.contains(extent.start) {
            return Some(FrameFreeError::Foreign { frame: extent.start });
        }
        let last = Pfn::new(extent.end().raw().min(span.end().raw()) - 1);
        let words = self.aside_at + self.state.frame(extent.start.raw()) / 64
            ..=self.aside_at + self.state.frame(last.raw()) / 64;
        let units = self.isolated_at + self.unit_of(extent.start) / 64
            ..=self.isolated_at + self.unit_of(last) / 64;
        if let Some(fault) = words.chain(units).find_map(|at| self.differs(at)) {
            return Some(FrameFreeError::Corrupt(self.stop(fault)));
        }
        let (first, count) = (self.state.frame(extent.start.raw()), extent.count);
        let inside = (last - extent.start + 1) as usize;
        let aside = (first..first + inside).find(|&at| self.bit(self.aside_at, at));
        let by_buddy = if H::CHECKED {
            self.state.refusal(&mut self.storage, extent).err()
        } else {
            let allocated = &self.storage[..self.state.allocated_words];
            match first_clear(allocated, first, inside) {
                Some(bad) => Some(self.state.refuse(&self.storage, self.state.frame_at(bad))),
                None => {
                    (inside as u64 != count).then(|| FrameFreeError::Foreign { frame: span.end() })
                }
            }
        };
        let Some(aside) = aside.map(|at| self.state.frame_at(at)) else { return by_buddy };
        match by_buddy {
            Some(FrameFreeError::NotAllocated { frame } | FrameFreeError::Foreign { frame })
                if frame < aside =>
            {
                by_buddy
            }
            None | Some(FrameFreeError::NotAllocated { .. } | FrameFreeError::Foreign { .. }) => {
                Some(FrameFreeError::NotAllocated { frame: aside })
            }
            corrupt => corrupt,
        }
    }

    /// The first frame behind the unit around a frame.
    fn unit_end(&self, frame: Pfn) -> Pfn {
        frame.align_down(self.unit.k()) + self.unit.frames()
    }

    fn bit(&self, at: usize, number: usize) -> bool {
        self.storage[at + number / 64] >> (number % 64) & 1 == 1
    }

    /// Returns the copy of the bits' word `at` that was changed, if two differ.
    fn differs(&self, at: usize) -> Option<WordFault> {
        if !H::CHECKED {
            return None;
        }
        let copy = |nth: usize| self.storage[at + nth * self.copy_words];
        if copy(0) == copy(1) {
            return None;
        }
        let wrong = usize::from(copy(0) == copy(2));
        Some(self.fault_at(at + wrong * self.copy_words))
    }

    fn fault_at(&self, word: usize) -> WordFault {
        WordFault { table: Table::Isolated, word, value: self.storage[word] }
    }

    /// Stops the zone at a word of its own bits.
    #[cold]
    fn stop(&mut self, fault: WordFault) -> WordFault {
        self.state.latch.close(fault);
        self.state.stop(&mut self.storage, fault.table, fault.word)
    }

    /// Returns true if the frame is free and its unit isolated.
    fn is_aside(&self, frame: Pfn) -> bool {
        self.state.span.contains(frame) && self.bit(self.aside_at, self.state.frame(frame.raw()))
    }

    /// The number of the unit around a frame of the span.
    fn unit_of(&self, frame: Pfn) -> usize {
        let first = self.state.span.start.raw() >> self.unit.k();
        ((frame.raw() >> self.unit.k()) - first) as usize
    }

    fn is_isolated(&self, frame: Pfn) -> bool {
        self.bit(self.isolated_at, self.unit_of(frame))
    }

    /// Returns true if the unit around a frame of the span is not isolated, by two copies in the
    /// checked tier.
    #[inline(always)]
    fn is_unisolated(&self, frame: Pfn) -> bool {
        let unit = self.unit_of(frame);
        let copy = |nth: usize| {
            self.storage.get(self.isolated_at + unit / 64 + nth * self.copy_words).copied()
        };
        let word = copy(0);
        word.is_some_and(|word| word >> (unit % 64) & 1 == 0) && (!H::CHECKED || copy(1) == word)
    }

    fn set_aside(&mut self, extent: Extent, aside: bool) {
        for frame in extent.iter() {
            let number = self.state.frame(frame.raw());
            self.change(self.aside_at + number / 64, |word| {
                word & !(1 << (number % 64)) | u64::from(aside) << (number % 64)
            });
        }
    }

    /// Changes a word of the bits, in all its copies: from what most of them are, so that a copy that
    /// has changed since it was compared does not become all of them.
    fn change(&mut self, at: usize, change: impl Fn(u64) -> u64) {
        let copy = |nth: usize| self.storage[at + nth % Self::copies() * self.copy_words];
        let [a, b, c] = [copy(0), copy(1), copy(2)];
        let now = change(a & b | a & c | b & c);
        for nth in 0..Self::copies() {
            self.storage[at + nth * self.copy_words] = now;
        }
    }

    /// Finds a contradiction between the words that tell of the frames of an extent, which is the
    /// zone's.
    fn contradiction(&self, extent: Extent) -> Option<WordFault> {
        let frames = extent.iter().map(|frame| self.state.frame(frame.raw()) / 64);
        let units = extent.iter().step_by(self.unit.frames() as usize);
        let units = units.map(|frame| self.isolated_at + self.unit_of(frame) / 64);
        let copies = frames.clone().map(|word| self.aside_at + word).chain(units);
        copies.into_iter().find_map(|at| self.differs(at)).or_else(|| {
            let disagrees = |&frame: &Pfn| {
                let bit = self.bit(0, self.state.frame(frame.raw()));
                self.state.is_free(&self.storage, frame) == bit
            };
            let word = self.state.frame(extent.iter().find(disagrees)?.raw()) / 64;
            let value = self.storage[word];
            Some(WordFault { table: Table::Allocated, word, value })
        })
    }

    /// Isolates the units of the extent, or ends that.
    fn turn(&mut self, extent: Extent, isolate: bool) -> Result<(), IsolateError> {
        if let Some(fault) = self.state.latch.fault() {
            return Err(IsolateError::Corrupt(fault));
        }
        let order = self.unit;
        if extent.is_empty() {
            return Err(IsolateError::Empty);
        }
        if !extent.start.is_aligned(order.k()) || !extent.count.is_multiple_of(order.frames()) {
            return Err(IsolateError::Misaligned { extent, order });
        }
        let is_mine = |&frame: &Pfn| {
            self.is_aside(frame)
                || self.state.is_allocated(&self.storage, frame)
                || self.state.is_free(&self.storage, frame)
        };
        if let Some(frame) = extent.iter().find(|frame| !is_mine(frame)) {
            if H::CHECKED
                && let Err(fault) = self.compare()
            {
                return Err(IsolateError::Corrupt(self.stop(fault)));
            }
            return Err(IsolateError::Foreign { frame });
        }
        if H::CHECKED
            && let Some(fault) = self.contradiction(extent)
        {
            let fault = self.compare().err().unwrap_or(fault);
            return Err(IsolateError::Corrupt(self.stop(fault)));
        }
        let mut units = extent.iter().step_by(order.frames() as usize);
        if let Some(frame) = units.find(|&frame| self.is_isolated(frame) == isolate) {
            return Err(IsolateError::State { frame });
        }
        let mut start = extent.start;
        while start < extent.end() {
            let unit = self.unit_of(start);
            self.change(self.isolated_at + unit / 64, |word| word ^ 1 << (unit % 64));
            self.isolated = self.isolated.saturating_add_signed(if isolate { 1 } else { -1 });
            start += order.frames();
        }
        let is_free = |zone: &Self, frame: Pfn| match isolate {
            true => zone.state.is_free(&zone.storage, frame),
            false => zone.is_aside(frame),
        };
        let mut start = extent.start;
        while start < extent.end() {
            let mut past = start;
            while past < extent.end() && is_free(self, past) {
                past += 1;
            }
            let run = Extent::between(start, past);
            if run.is_empty() {
                start += 1;
                continue;
            }
            self.set_aside(run, isolate);
            if isolate {
                self.state.allocate_at(&mut self.storage, run);
            } else {
                let freed = self.state.free(&mut self.storage, run);
                debug_assert!(H::CHECKED || freed.is_ok(), "{run}: {freed:?}");
            }
            if let Some(fault) = self.state.latch.fault() {
                return Err(IsolateError::Corrupt(fault));
            }
            start = past;
        }
        Ok(())
    }

    /// Compares all words of the checked tier with each other: the word at fault, if one is.
    fn compare(&self) -> Result<(), WordFault> {
        self.state.find_fault(&self.storage)?;
        for at in self.aside_at..self.aside_at + self.copy_words {
            if let Some(fault) = self.differs(at) {
                return Err(fault);
            }
            // No call reads the third but to choose between the others.
            let third = at + (COPIES - 1) * self.copy_words;
            if self.storage[third] != self.storage[at] {
                return Err(self.fault_at(third));
            }
        }
        Ok(())
    }
}

impl<W: DerefMut<Target = [u64]>, R: Rule> PageZone<W, R, Checked> {
    /// Returns the contradiction at which the zone has stopped. O(1).
    pub fn fault(&self) -> Option<WordFault> {
        self.state.latch.fault()
    }

    /// Compares all words with each other: finds what [`fault`](Self::fault) will be, before a call
    /// meets it. O(words·c).
    ///
    /// # Errors
    /// The word that is at fault; after a stop, the word that it stopped at.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        self.fault().map_or_else(|| self.compare(), Err)
    }
}

impl<W: DerefMut<Target = [u64]>, R: Rule, H: Hardening> ZoneAllocator for PageZone<W, R, H> {
    /// O(c·L), as [`PageBuddy`](crate::PageBuddy) allocates an aligned block; `None` beyond the
    /// largest order that has a list.
    fn allocate(&mut self, order: Order, _mobility: Mobility) -> Option<Pfn> {
        if order == Order::BASE && !R::INDEXED {
            return self.state.allocate_frame(&mut self.storage);
        }
        self.allocate_aligned(order)
    }

    fn free(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        if !start.is_aligned(order.k()) {
            return Err(FrameFreeError::Misaligned { frame: start, order });
        }
        self.free_range(Extent::new(start, order.frames()))
    }

    fn free_frames(&self) -> u64 {
        self.state.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.state.total_frames()
    }

    /// O(G·(r + u/64)) for r runs and u units of the highest class that has any.
    fn largest_free(&self) -> Option<Order> {
        let class = self.state.nonempty.checked_ilog2()? as usize;
        let granularity = self.state.granularity;
        let most = if class == self.state.last { 1 } else { granularity };
        let found = |k: &u32| self.state.find_aligned(&self.storage, class, 1 << k).is_some();
        let k = (0..most).rev().find(found)?;
        Order::new((class as u32 * granularity + k) as u8)
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.state.for_each_free(&self.storage, visit);
    }

    /// O(n·c) for the n frames of the extent.
    fn isolate(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.turn(extent, true)
    }

    fn rejoin(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.turn(extent, false)
    }

    fn isolation_order(&self) -> Order {
        self.unit
    }

    /// This struct and the bits of units: all else are bits for frames.
    fn structure_bytes(&self) -> usize {
        let units = units(self.state.span, self.unit).div_ceil(64) as usize;
        size_of::<Self>() + 8 * units
    }

    fn check(&self) -> Result<(), &'static str> {
        self.state.check(&self.storage)?;
        for frame in self.state.span.iter() {
            let free = self.state.is_free(&self.storage, frame);
            if free && self.is_isolated(frame) {
                return Err("a free frame lies in an isolated unit");
            }
            if self.is_aside(frame) && !self.is_isolated(frame) {
                return Err("a frame is aside, but its unit is not isolated");
            }
            if self.is_aside(frame) && !self.state.is_allocated(&self.storage, frame) {
                return Err("a frame that is aside is none that the buddy has out");
            }
        }
        let bits = &self.storage[self.isolated_at..self.aside_at + self.copy_words];
        if bits.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() != self.isolated {
            return Err("the number of isolated units is wrong");
        }
        Ok(())
    }
}
