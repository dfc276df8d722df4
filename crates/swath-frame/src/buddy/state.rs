//! The state of a page buddy allocator, over words that each call is given: its
//! classes and the movement of frames between them.
//!
//! Numbers of units are absolute here (a unit of order o is frame >> o), and a
//! class subtracts its base where it meets its bitmap.

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::BuildError;
use crate::allocator::{FrameAllocateError, FrameFreeError};
use crate::areas::Areas;
use crate::bits::bitmap::Bitmap;
use crate::bits::words::{all_set, clear, first_clear, ones, set, set_clear};
use crate::buddy::class::Class;
use crate::buddy::config::{BuddyConfig, CLASSES_MAX};
use crate::buddy::rule::Rule;
use crate::hardening::{Hardening, Latch, Table};
use crate::map::MemoryMap;

/// Everything but the words.
#[derive(Clone, Debug)]
pub(crate) struct State<R, H: Hardening> {
    pub(crate) classes: [Class; CLASSES_MAX],
    /// The top class.
    pub(crate) last: usize,
    pub(crate) granularity: u32,
    /// The units of a word's first parent, as far as the word holds them; 0 if
    /// no unit has a parent.
    pub(crate) siblings: u64,
    /// In a word, the first and the last unit of each parent.
    pub(crate) parent_firsts: u64,
    pub(crate) parent_lasts: u64,
    pub(crate) nonempty: u64,
    /// The bitmap of allocated frames is the storage's first words, as many
    /// as `allocated_words`; its bits are the units of class 0.
    pub(crate) allocated_words: usize,
    pub(crate) span: Extent,
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) rule: R,
    /// In the checked tier, the areas, after the classes in the storage.
    pub(crate) areas: Areas,
    /// The word of the bitmap of allocated frames for the first of its whole words.
    pub(crate) solid_word: usize,
    /// The contradiction at which the checked tier stopped.
    pub(crate) latch: H::Latch,
}

/// Free units of class `i` to take from: `len` of them, from the bitmap's
/// number `at` on.
struct Choice {
    i: usize,
    at: usize,
    len: usize,
}

/// The places of the parts of a class.
struct ClassLayout {
    base: u64,
    units: u64,
    rule_at: u64,
    end: u64,
}

fn layout<R: Rule>(span: Extent, config: BuddyConfig, i: usize, at: u64) -> ClassLayout {
    let order = i as u32 * config.granularity;
    let first = span.start.raw() >> order;
    let past = ((span.end().raw() - 1) >> order) + 1;
    let base = first & !63;
    let units = past - base;
    let rule_at = at + Bitmap::storage_words(units);
    let end = rule_at.saturating_add(R::storage_words(units, config.node_max(i)));
    ClassLayout { base, units, rule_at, end }
}

impl<R: Rule, H: Hardening> State<R, H> {
    /// Words of the bitmap of allocated frames.
    pub(crate) fn allocated_words(span: Extent) -> u64 {
        (span.end().raw() - (span.start.raw() & !63)).div_ceil(64)
    }

    pub(crate) fn storage_words(map: &MemoryMap<'_>, config: BuddyConfig) -> usize {
        let words = (0..config.classes()).fold(Self::allocated_words(map.span()), |at, i| {
            layout::<R>(map.span(), config, i, at).end
        });
        let areas = if H::CHECKED { Areas::storage_words(map) } else { 0 };
        usize::try_from(words.saturating_add(areas)).unwrap_or(usize::MAX)
    }

    /// All frames of `map` allocated, and `s` overwritten.
    pub(crate) fn new(
        map: &MemoryMap<'_>,
        config: BuddyConfig,
        s: &mut [u64],
    ) -> Result<Self, BuildError> {
        let mut state = Self::VACANT;
        state.build(map, config, s)?;
        Ok(state)
    }

    /// The state over no frames at all.
    pub(crate) const VACANT: Self = State {
        classes: [Class::NONE; CLASSES_MAX],
        last: 0,
        granularity: 0,
        siblings: 0,
        parent_firsts: 0,
        parent_lasts: 0,
        nonempty: 0,
        allocated_words: 0,
        span: Extent::new(Pfn::new(0), 0),
        total: 0,
        free: 0,
        rule: R::NEW,
        areas: Areas::NONE,
        solid_word: 0,
        latch: H::Latch::OPEN,
    };

    /// Makes a vacant state that of `map`, all of whose frames are allocated; what it is after an error
    /// is of no use.
    pub(crate) fn build(
        &mut self,
        map: &MemoryMap<'_>,
        config: BuddyConfig,
        s: &mut [u64],
    ) -> Result<(), BuildError> {
        let span = map.span();
        let (needed_words, given_words) = (Self::storage_words(map, config), s.len());
        if needed_words > given_words {
            return Err(BuildError::Storage { needed_words, given_words });
        }
        let size = 1 << config.granularity.min(6);
        if config.last > 0 {
            self.siblings = ones(size);
            self.parent_firsts = (0..64).step_by(size).fold(0, |firsts, first| firsts | 1 << first);
        }
        self.parent_lasts = self.parent_firsts << (size - 1);
        self.last = config.last;
        self.granularity = config.granularity;
        self.allocated_words = Self::allocated_words(span) as usize;
        self.span = span;
        self.total = map.total_frames();
        let mut at = Self::allocated_words(span);
        for i in 0..config.classes() {
            let ClassLayout { base, units, rule_at, end } = layout::<R>(span, config, i, at);
            if !R::can_index(units) {
                return Err(BuildError::Span { frames: span.count });
            }
            let order = i as u32 * config.granularity;
            let first = (span.start.raw() + ((1 << order) - 1)) >> order;
            self.classes[i] = Class {
                free: Bitmap::new(s, at as usize, units),
                base,
                first,
                count: (span.end().raw() >> order).saturating_sub(first),
                origin: (at as usize).wrapping_sub((base >> 6) as usize),
                twins: if i < config.last { u64::MAX } else { 0 },
                node_max: usize::try_from(config.node_max(i)).unwrap_or(usize::MAX),
                granularity: config.granularity,
            };
            let node_max = config.node_max(i);
            self.rule.add_class(s, i, rule_at as usize, units, node_max);
            at = end;
        }
        if H::CHECKED {
            // Holes are what is allocated for ever.
            s[..self.allocated_words].fill(u64::MAX);
            self.areas = Areas::new(map, s, at as usize);
            self.note_solid();
            return Ok(());
        }
        let allocated = &mut s[..self.allocated_words];
        allocated.fill(0);
        for area in map.areas() {
            set(allocated, self.frame(area.start.raw()), area.count as usize);
        }
        Ok(())
    }

    /// Sets `solid_word` anew.
    pub(crate) fn note_solid(&mut self) {
        let solid = self.areas.solid.start.raw();
        self.solid_word = (solid.saturating_sub(self.classes[0].base) / 64) as usize;
    }

    /// Makes all frames of `map` free; all are allocated so far.
    pub(crate) fn free_all(&mut self, map: &MemoryMap<'_>, s: &mut [u64]) {
        if !H::CHECKED {
            s[..self.allocated_words].fill(0);
        }
        for area in map.areas() {
            if H::CHECKED {
                let at = self.frame(area.start.raw());
                clear(&mut s[..self.allocated_words], at, area.count as usize);
            }
            self.release(s, area.start.raw(), area.end().raw());
        }
        self.free = self.total;
    }

    pub(crate) fn config(&self) -> BuddyConfig {
        BuddyConfig { granularity: self.granularity, last: self.last }
    }

    pub(crate) fn free_frames(&self) -> u64 {
        self.free
    }

    pub(crate) fn total_frames(&self) -> u64 {
        self.total
    }

    pub(crate) fn is_allocated(&self, s: &[u64], frame: Pfn) -> bool {
        self.span.contains(frame) && {
            let at = self.frame(frame.raw());
            let (start, end) = (frame.raw(), frame.raw() + 1);
            let is_mine = !H::CHECKED || self.areas.first_foreign(s, start, end) == Ok(None);
            is_mine && s[at / 64] >> (at % 64) & 1 == 1
        }
    }

    /// The position of a frame of the span in the bitmap of allocated frames
    /// and in class 0.
    #[inline]
    pub(crate) fn frame(&self, frame: u64) -> usize {
        (frame - self.classes[0].base) as usize
    }

    /// The frame at a position.
    #[inline]
    pub(crate) fn frame_at(&self, position: usize) -> Pfn {
        Pfn::new(self.classes[0].base + position as u64)
    }

    /// Adds the units `low..high` (absolute numbers) to class `i`.
    #[inline(always)]
    pub(crate) fn insert(&mut self, s: &mut [u64], i: usize, low: u64, high: u64) {
        let class = &mut self.classes[i];
        let (at, count) = ((low - class.base) as usize, (high - low) as usize);
        class.free.insert(s, at, count);
        self.rule.inserted(s, i, class, at, at + count);
        self.nonempty |= 1 << i;
    }

    /// Removes the units `low..high` (absolute numbers) from class `i`.
    #[inline(always)]
    fn remove(&mut self, s: &mut [u64], i: usize, low: u64, high: u64) {
        let class = &mut self.classes[i];
        let (at, count) = ((low - class.base) as usize, (high - low) as usize);
        class.free.remove(s, at, count);
        self.rule.removed(s, i, class, at, at + count);
        self.note_empty(s, i);
    }

    /// Takes class `i` out of `nonempty` if it is empty now.
    #[inline(always)]
    pub(crate) fn note_empty(&mut self, s: &[u64], i: usize) {
        self.nonempty &= !(u64::from(self.classes[i].free.is_empty(s)) << i);
    }

    /// Makes the units `low..high` of class `i`, all of one parent, free. If
    /// they complete the parent, its other units go and the caller is to make
    /// the parent free: true.
    #[inline(always)]
    pub(crate) fn fill(&mut self, s: &mut [u64], i: usize, low: u64, high: u64) -> bool {
        let parent = low >> self.granularity;
        let (start, size) = (parent << self.granularity, 1 << self.granularity);
        let full = if self.granularity > 6 {
            self.completes(s, i, low, high)
        } else {
            let class = &mut self.classes[i];
            let at = (low - class.base) as usize;
            let siblings = self.siblings << ((start - class.base) % 64);
            let added = ones::<u64>((high - low) as usize) << (at % 64);
            let others = siblings & !added;
            let word = class.free.word(s, at / 64);
            let full = word & others == others;
            if full && !R::INDEXED {
                class.free.lower(s, at / 64, word & !others);
                self.note_empty(s, i);
                return true;
            }
            full
        };
        if full {
            if start < low {
                self.remove(s, i, start, low);
            }
            if high < start + size {
                self.remove(s, i, high, start + size);
            }
        } else {
            self.insert(s, i, low, high);
        }
        full
    }

    /// Returns true if the units `low..high` of class `i` complete their
    /// parent, which is whole words. Until the word of `low` is full there is
    /// no need to see the others.
    fn completes(&self, s: &[u64], i: usize, low: u64, high: u64) -> bool {
        let class = &self.classes[i];
        let start = low >> self.granularity << self.granularity;
        let Some(start) = start.checked_sub(class.base) else {
            return false;
        };
        let (low, high) = ((low - class.base) as usize, (high - class.base) as usize);
        let added = ones::<u64>((64 - low % 64).min(high - low)) << (low % 64);
        class.free.word(s, low / 64) | added == u64::MAX
            && class.free.all(s, start as usize, low)
            && class.free.all(s, high, (start + (1 << self.granularity)) as usize)
    }

    /// Makes the frames `low..high` free: they are in no class so far. In each
    /// class, whole parents go one class up, with the parents at the two ends
    /// if the units there complete them.
    #[inline(never)]
    pub(crate) fn release(&mut self, s: &mut [u64], mut low: u64, mut high: u64) {
        let g = self.granularity;
        for i in 0..self.last {
            let (mut first, mut past) = ((low + (1 << g) - 1) >> g, high >> g);
            if first > past {
                // Inside one parent.
                if !self.fill(s, i, low, high) {
                    return;
                }
                first = past;
                past += 1;
            } else {
                let (inner, outer) = (first << g, past << g);
                if low < inner && self.fill(s, i, low, inner) {
                    first -= 1;
                }
                if outer < high && self.fill(s, i, outer, high) {
                    past += 1;
                }
                if first == past {
                    return;
                }
            }
            (low, high) = (first, past);
        }
        self.insert(s, self.last, low, high);
    }

    /// Returns to the lower classes the frames `low..high`, what is left at
    /// the end of a unit whose start has been taken: no parent can be full.
    fn give_back(&mut self, s: &mut [u64], mut low: u64, mut high: u64) {
        let g = self.granularity;
        let mut i = 0;
        while low < high {
            let parent = (low + (1 << g) - 1) >> g;
            let end = (parent << g).min(high);
            if low < end {
                self.insert(s, i, low, end);
            }
            (low, high) = (parent, high >> g);
            i += 1;
        }
    }

    /// Returns the reason why a frame that is not allocated cannot be freed.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self, s: &[u64], frame: Pfn) -> FrameFreeError {
        if self.is_free(s, frame) {
            FrameFreeError::NotAllocated { frame }
        } else {
            FrameFreeError::Foreign { frame }
        }
    }

    pub(crate) fn is_free(&self, s: &[u64], frame: Pfn) -> bool {
        let mut unit = frame.raw();
        self.span.contains(frame)
            && self.classes[..=self.last].iter().any(|class| {
                let found = class.free.contains(s, (unit - class.base) as usize);
                unit >>= self.granularity;
                found
            })
    }

    /// Frees an extent that is an aligned power of two of whole words, if it
    /// is one unit of a class and allocated.
    #[inline(always)]
    fn free_unit(&mut self, s: &mut [u64], extent: Extent) -> bool {
        let (start, count) = (extent.start.raw(), extent.count);
        if count % 64 != 0 || !count.is_power_of_two() || start & (count - 1) != 0 {
            return false;
        }
        let order = count.trailing_zeros();
        let (i, rest) = ((order / self.granularity) as usize, order % self.granularity);
        let at = (start.wrapping_sub(self.classes[0].base) / 64) as usize;
        let allocated = &mut s[..self.allocated_words];
        let Some(words) = allocated.get_mut(at..at.wrapping_add((count / 64) as usize)) else {
            return false;
        };
        if rest != 0 || i > self.last || words.iter().fold(u64::MAX, |all, w| all & w) != u64::MAX {
            return false;
        }
        words.fill(0);
        self.free += count;
        self.put_up(s, i, start >> order);
        true
    }

    #[inline(never)]
    pub(crate) fn free_extent(
        &mut self,
        s: &mut [u64],
        extent: Extent,
    ) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        if H::CHECKED && !self.is_solid(extent) {
            self.refusal(s, extent)?;
        }
        if self.free_unit(s, extent) {
            return Ok(());
        }
        let Some(end) = extent.checked_end() else {
            return Err(FrameFreeError::Overflow { extent });
        };
        if !self.span.contains(extent.start) {
            return Err(FrameFreeError::Foreign { frame: extent.start });
        }
        let at = self.frame(extent.start.raw());
        let inside = (end.raw().min(self.span.end().raw()) - extent.start.raw()) as usize;
        let allocated = &mut s[..self.allocated_words];
        if !all_set(allocated, at, inside)
            && let Some(bad) = first_clear(allocated, at, inside)
        {
            if H::CHECKED {
                self.refusal(s, extent)?;
            }
            let frame = Pfn::new(self.classes[0].base + bad as u64);
            return Err(self.refuse(s, frame));
        }
        if end > self.span.end() {
            return Err(FrameFreeError::Foreign { frame: self.span.end() });
        }
        clear(allocated, at, inside);
        self.free += extent.count;
        self.release(s, extent.start.raw(), end.raw());
        Ok(())
    }

    #[inline(never)]
    pub(crate) fn allocate_node(&mut self, s: &mut [u64], frames_max: u64) -> Option<Extent> {
        if frames_max == 0 || self.nonempty == 0 {
            let _ = frames_max > 0 && self.starved(s).is_some();
            return None;
        }
        let g = self.granularity;
        let fitting = ((frames_max.ilog2() / g) as usize).min(self.last);
        // In BBS a block is a power of two.
        let frames_max = if g == 1 { 1 << fitting } else { frames_max };
        let Some(Choice { i, at, len }) = self.choose(s, fitting, frames_max) else {
            if H::CHECKED {
                self.lost(s);
            }
            return None;
        };

        let order = i as u32 * g;
        let unit = self.classes[i].base + at as u64;
        let start = unit << order;
        let end = start + ((len as u64) << order).min(frames_max);
        let broken = ((end - 1) >> order) + 1;
        let count = (broken - unit) as usize;
        if H::CHECKED && !self.spans(start, broken << order) {
            self.stop(s, Table::Free { order }, self.classes[i].word_at(unit));
            return None;
        }
        let class = &mut self.classes[i];
        class.free.remove(s, at, count);
        self.rule.removed_first(s, i, class, at, len, count);
        self.note_empty(s, i);
        self.give_back(s, end, broken << order);
        self.taken(s, start, end, i)
    }

    /// Chooses what to take for a request of `frames_max` frames, if any frame
    /// is free: line 4 to 9 of Fig. 4 from class `fitting` on, or the shortest
    /// run that is long enough. The lower classes follow when that finds none.
    #[inline(always)]
    fn choose(&mut self, s: &mut [u64], fitting: usize, frames_max: u64) -> Option<Choice> {
        let g = self.granularity;
        let wanted = |i: usize| {
            let units = ((frames_max - 1) >> (i as u32 * g)) + 1;
            usize::try_from(units).unwrap_or(usize::MAX)
        };
        let mut above = self.nonempty >> fitting << fitting;
        while above != 0 {
            let i = above.trailing_zeros() as usize;
            if let Some((at, len)) = self.rule.pick(s, i, &mut self.classes[i], wanted(i)) {
                return Some(Choice { i, at, len });
            }
            above &= above - 1;
        }
        self.choose_longest(s, wanted)
    }

    /// The highest class's choice, or the longest run of all classes.
    #[inline(never)]
    fn choose_longest(&mut self, s: &mut [u64], wanted: impl Fn(usize) -> usize) -> Option<Choice> {
        let mut best: Option<Choice> = None;
        let mut left = self.nonempty;
        while left != 0 {
            let i = left.ilog2() as usize;
            if let Some((at, len)) = self.rule.pick_longest(s, i, &mut self.classes[i], wanted(i)) {
                let frames = |i: usize, len: usize| (len as u64) << (i as u32 * self.granularity);
                if best.as_ref().is_none_or(|best| frames(best.i, best.len) < frames(i, len)) {
                    best = Some(Choice { i, at, len });
                }
            }
            left = if R::INDEXED { left & !(1 << i) } else { 0 };
        }
        best
    }

    pub(crate) fn allocate_aligned(
        &mut self,
        s: &mut [u64],
        order: Order,
    ) -> Result<Extent, FrameAllocateError> {
        let (g, k) = (self.granularity, order.k());
        let below = ((k / g) as usize).min(self.last);
        let listed = k == below as u32 * g;
        let from = below + usize::from(!listed);
        let above = self.nonempty >> from;
        let start = if !R::INDEXED && listed && above & 1 == 1 {
            let popped = self.pop(s, below);
            popped
                .filter(|&unit| !H::CHECKED || self.classes[below].spans(unit))
                .map(|unit| unit << k)
        } else if above != 0 {
            let i = from + above.trailing_zeros() as usize;
            let class = &mut self.classes[i];
            let first = class.free.first(s).map(|at| class.base + at as u64);
            first.filter(|&unit| !H::CHECKED || self.classes[i].spans(unit)).map(|unit| {
                self.remove(s, i, unit, unit + 1);
                let start = unit << (i as u32 * g);
                self.give_back(s, start + order.frames(), (unit + 1) << (i as u32 * g));
                start
            })
        } else if !listed && order.frames() <= self.free && self.latch.fault().is_none() {
            let units = 1 << (k - below as u32 * g);
            let found = self.find_aligned(s, below, units);
            let class = &self.classes[below];
            let spans = |unit| !H::CHECKED || class.spans(unit) && class.spans(unit + units - 1);
            found.filter(|&unit| spans(unit)).map(|unit| {
                self.remove(s, below, unit, unit + units);
                unit << (below as u32 * g)
            })
        } else {
            None
        };
        if H::CHECKED && start.is_none() && (self.nonempty >> from != 0 || self.nonempty == 0) {
            // A class says that it has a unit, or none does.
            if self.nonempty != 0 || self.free > 0 {
                return Err(FrameAllocateError::Corrupt(self.lost(s)));
            }
        }
        match start {
            Some(start) => {
                let end = start + order.frames();
                let taken = self.taken(s, start, end, below);
                taken.ok_or_else(|| FrameAllocateError::Corrupt(self.lost(s)))
            }
            None if order.frames() > self.free => {
                Err(FrameAllocateError::OutOfFrames { wanted: order.frames(), free: self.free })
            }
            None => Err(FrameAllocateError::NoBlock { order }),
        }
    }

    /// The lowest multiple of `units`, a power of two, from which as many
    /// units of class `i` are free, by a scan over the class's runs.
    pub(crate) fn find_aligned(&self, s: &[u64], i: usize, units: u64) -> Option<u64> {
        let class = &self.classes[i];
        let mut from = 0;
        while let Some(unit) = class.free.next(s, from) {
            let aligned = (class.base + unit as u64).next_multiple_of(units) - class.base;
            let at = usize::try_from(aligned).ok()?;
            let run = class.free.run(s, at, units as usize);
            if run as u64 == units {
                return Some(class.base + aligned);
            }
            from = at + run + 1;
        }
        None
    }

    /// Allocates these frames, all of which are free. O(C·L) for each unit that they meet.
    pub(crate) fn allocate_at(&mut self, s: &mut [u64], extent: Extent) {
        let (mut at, high) = (extent.start.raw(), extent.end().raw());
        while at < high {
            let holds = |&i: &usize| {
                let unit = at >> (i as u32 * self.granularity);
                self.classes[i].free.contains(s, (unit - self.classes[i].base) as usize)
            };
            let Some(i) = (0..=self.last).find(holds) else {
                debug_assert!(H::CHECKED, "frame {at:#x} is not free");
                return;
            };
            let order = i as u32 * self.granularity;
            let unit = at >> order;
            if H::CHECKED && !self.classes[i].spans(unit) {
                self.stop(s, Table::Free { order }, self.classes[i].word_at(unit));
                return;
            }
            let (start, end) = (unit << order, (unit + 1) << order);
            let past = end.min(high);
            self.remove(s, i, unit, unit + 1);
            // Of this unit a frame goes, so none of what is left completes it.
            if start < at {
                self.release(s, start, at);
            }
            if past < end {
                self.release(s, past, end);
            }
            if self.taken(s, at, past, i).is_none() {
                return;
            }
            at = past;
        }
    }

    /// Notes that the free frames `start..end`, in no class now, are allocated.
    ///
    /// In the checked tier nothing is, and the allocator stops, if one of them
    /// is allocated already; class `i` has told of them.
    #[inline]
    fn taken(&mut self, s: &mut [u64], start: u64, end: u64, i: usize) -> Option<Extent> {
        let (at, count) = (self.frame(start), (end - start) as usize);
        let allocated = &mut s[..self.allocated_words];
        if !H::CHECKED {
            set(allocated, at, count);
        } else if !set_clear(allocated, at, count) {
            self.stop_at(s, i, start >> (i as u32 * self.granularity), at / 64);
            return None;
        }
        self.free -= end - start;
        Some(Extent::new(Pfn::new(start), end - start))
    }

    pub(crate) fn for_each_free(&self, s: &[u64], visit: &mut dyn FnMut(Extent)) {
        for (i, class) in self.classes[..=self.last].iter().enumerate() {
            let order = i as u32 * self.granularity;
            let mut from = 0;
            while let Some(unit) = class.free.next(s, from) {
                let len = class.node_len(s, unit, usize::MAX);
                let start = Pfn::new((class.base + unit as u64) << order);
                visit(Extent::new(start, (len as u64) << order));
                from = unit + len;
            }
        }
    }

    pub(crate) fn check(&self, s: &[u64]) -> Result<(), &'static str> {
        let size = 1u64 << self.granularity;
        let mut free = 0;
        for (i, class) in self.classes[..=self.last].iter().enumerate() {
            class.free.check(s)?;
            self.rule.check(s, i, class)?;
            if class.free.is_empty(s) == (self.nonempty >> i & 1 == 1) {
                return Err("the mask of classes differs from the classes");
            }
            let order = i as u32 * self.granularity;
            free += (class.free.len(s) as u64) << order;
            let mut from = 0;
            let (mut parent, mut siblings) = (u64::MAX, 0);
            while let Some(at) = class.free.next(s, from) {
                let unit = class.base + at as u64;
                let (start, end) = (unit << order, (unit + 1) << order);
                if start < self.span.start.raw() || end > self.span.end().raw() {
                    return Err("a free unit reaches beyond the span");
                }
                let frame = self.frame(start);
                let mut frames = frame..frame + (end - start) as usize;
                if frames.any(|frame| s[frame / 64] >> (frame % 64) & 1 == 1) {
                    return Err("a frame is both free and allocated");
                }
                let mut above = unit;
                for higher in &self.classes[i + 1..=self.last] {
                    above >>= self.granularity;
                    if higher.free.contains(s, (above - higher.base) as usize) {
                        return Err("a unit is free in two classes");
                    }
                }
                if i < self.last {
                    siblings = if unit >> self.granularity == parent { siblings + 1 } else { 1 };
                    parent = unit >> self.granularity;
                    if siblings == size {
                        return Err("a parent is full");
                    }
                }
                from = at + 1;
            }
        }
        if H::CHECKED {
            self.areas.check(s, self.total)?;
        }
        if self.nonempty >> self.last > 1 {
            return Err("the mask names a class that there is not");
        }
        if free != self.free {
            return Err("the number of free frames differs from the classes");
        }
        let allocated = &s[..self.allocated_words];
        let allocated = allocated.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        let holes = if H::CHECKED { self.allocated_words as u64 * 64 - self.total } else { 0 };
        if allocated != self.total - free + holes {
            return Err("the number of allocated frames differs from their bitmap");
        }
        Ok(())
    }
}
