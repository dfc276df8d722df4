//! The use of a machine's frames: a bit for each that is in use, a bit for each
//! with a movable owner, and counts of both by section and by bank.
//!
//! A frame has a bit in each of two bitmaps:
//!
//! | used | movable | the frame is |
//! |---|---|---|
//! | 0 | 0 | free, in a zone or a per-CPU list |
//! | 0 | 1 | a hole |
//! | 1 | 0 | in use, unmovable or reclaimable |
//! | 1 | 1 | in use, movable |
//!
//! The words of both stand side by side, so that a frame's bits are in one cache line.
//!
//! A section or bank (a **unit**) has two words: its frames that are not
//! holes, with its isolation and zone; its frames in use by either kind.

use core::ops::Range;

use swath_arch::{Extent, Pfn};

use crate::layout::{Layout, UNIT_FRAMES, ZONES_MAX};
use crate::map::MemoryMap;

/// Words of a unit's counters.
const UNIT_WORDS: usize = 2;
/// The zone of a unit that has frames of several.
const MIXED: u64 = 0xff;
const _: () = assert!(ZONES_MAX < MIXED as usize);

/// The states of a unit: its frames can be handed out only in the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Isolation {
    /// They can.
    #[default]
    None,
    /// They cannot, while the unit is emptied.
    Isolated,
    /// They cannot: the unit is empty and offline.
    Offline,
}

impl core::fmt::Display for Isolation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::None => "online",
            Self::Isolated => "isolated",
            Self::Offline => "offline",
        })
    }
}

/// A section or a bank, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryUnit {
    /// A range that is taken offline as one.
    Section(usize),
    /// A range that is powered as one.
    Bank(usize),
}

impl core::fmt::Display for MemoryUnit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Section(section) => write!(f, "section {section}"),
            Self::Bank(bank) => write!(f, "bank {bank}"),
        }
    }
}

/// The use of the frames of a section or bank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UnitState {
    /// Frames that are not holes.
    pub present: u64,
    /// Frames that are not in use, isolated or not.
    pub free: u64,
    /// Frames in use by movable owners.
    pub movable: u64,
    /// Frames in use by unmovable or reclaimable owners.
    pub unmovable: u64,
    /// The state of the unit.
    pub isolation: Isolation,
    /// True if the unit has frames of several zones: then it cannot be
    /// isolated, and stays in the allocation pool.
    pub crosses_zones: bool,
}

/// The places of the bitmaps and the counters in a machine's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// All frames, holes included.
    pub(crate) span: Extent,
    /// The frame of bit 0: the span's start, rounded down to a unit, so that
    /// the bits of a small aligned block are in one word.
    base: u64,
    /// Words of each bitmap.
    bitmap_words: usize,
    sections_at: usize,
    banks_at: usize,
    end: usize,
}

/// The word of the frames in use that stands for 64 frames, and that of the movable ones.
#[inline(always)]
const fn used_at(at: usize) -> usize {
    2 * at
}

#[inline(always)]
const fn movable_at(at: usize) -> usize {
    2 * at + 1
}

/// The words that a range of bits touches, and which of their bits.
fn masks(first: u64, count: u64) -> impl Iterator<Item = (usize, u64)> {
    let past = first + count;
    let mut at = first;
    core::iter::from_fn(move || {
        (at < past).then(|| {
            let word = at / 64;
            let end = past.min((word + 1) * 64);
            let mask = u64::MAX >> (64 - (end - at)) << (at % 64);
            at = end;
            (word as usize, mask)
        })
    })
}

impl Usage {
    pub(crate) fn new(span: Extent, layout: &Layout) -> Self {
        let base = span.start.align_down(UNIT_FRAMES.ilog2()).raw();
        let bitmap_words = (span.end().raw() - base).div_ceil(64) as usize;
        let sections_at = 2 * bitmap_words;
        let banks_at = sections_at + layout.sections() * UNIT_WORDS;
        let end = banks_at + layout.banks() * UNIT_WORDS;
        Self { span, base, bitmap_words, sections_at, banks_at, end }
    }

    /// Returns the number of words that it all takes.
    pub(crate) fn words(&self) -> usize {
        self.end
    }

    /// Nothing is in use; what `map` does not have is a hole.
    pub(crate) fn reset(&self, words: &mut [u64], map: &MemoryMap<'_>, layout: &Layout) {
        for at in 0..self.bitmap_words {
            (words[used_at(at)], words[movable_at(at)]) = (0, u64::MAX);
        }
        for area in map.areas() {
            for (at, mask) in masks(area.start.raw() - self.base, area.count) {
                words[movable_at(at)] &= !mask;
            }
        }
        let units = (0..layout.sections()).map(MemoryUnit::Section);
        for unit in units.chain((0..layout.banks()).map(MemoryUnit::Bank)) {
            let Some(extent) = extent(layout, unit) else { continue };
            let present: u64 = map.areas().iter().map(|area| area.intersect(extent).count).sum();
            let mut zones = (0..layout.zones().len())
                .filter(|zone| layout.zones()[*zone].span.overlaps(extent));
            let zone = match (zones.next(), zones.next()) {
                (Some(zone), None) => zone as u64,
                _ => MIXED,
            };
            let at = self.unit_at(unit);
            words[at] = present | zone << 40;
            words[at + 1] = 0;
        }
    }

    fn unit_at(&self, unit: MemoryUnit) -> usize {
        match unit {
            MemoryUnit::Section(section) => self.sections_at + section * UNIT_WORDS,
            MemoryUnit::Bank(bank) => self.banks_at + bank * UNIT_WORDS,
        }
    }

    /// The zone in which all frames of a unit lie.
    #[inline]
    pub(crate) fn zone_of_unit(&self, words: &[u64], unit: MemoryUnit) -> Option<usize> {
        let zone = words[self.unit_at(unit)] >> 40 & MIXED;
        (zone != MIXED).then_some(zone as usize)
    }

    #[inline]
    pub(crate) fn isolation(&self, words: &[u64], unit: MemoryUnit) -> Isolation {
        match words[self.unit_at(unit)] >> 32 & 3 {
            0 => Isolation::None,
            1 => Isolation::Isolated,
            _ => Isolation::Offline,
        }
    }

    pub(crate) fn set_isolation(&self, words: &mut [u64], unit: MemoryUnit, isolation: Isolation) {
        let word = &mut words[self.unit_at(unit)];
        *word = *word & !(3 << 32) | (isolation as u64) << 32;
    }

    /// O(1). The unit is one of the layout's.
    pub(crate) fn state(&self, words: &[u64], unit: MemoryUnit) -> UnitState {
        let at = self.unit_at(unit);
        let present = words[at] & u64::from(u32::MAX);
        let (movable, unmovable) = (words[at + 1] & u64::from(u32::MAX), words[at + 1] >> 32);
        UnitState {
            present,
            free: present - movable - unmovable,
            movable,
            unmovable,
            isolation: self.isolation(words, unit),
            crosses_zones: self.zone_of_unit(words, unit).is_none() && present > 0,
        }
    }

    #[inline]
    fn count(&self, words: &mut [u64], layout: &Layout, frame: Pfn, change: impl Fn(u64) -> u64) {
        let units = [
            layout.section_of(frame).map(MemoryUnit::Section),
            layout.bank_of(frame).map(MemoryUnit::Bank),
        ];
        for unit in units.into_iter().flatten() {
            let word = &mut words[self.unit_at(unit) + 1];
            *word = change(*word);
        }
    }

    /// Calls `change` for the parts of `extent` that lie in one unit each.
    fn by_unit(extent: Extent, mut change: impl FnMut(Extent)) {
        let mut rest = extent;
        while !rest.is_empty() {
            let to_border = UNIT_FRAMES - rest.start.offset_in(UNIT_FRAMES.ilog2());
            let (part, beyond) = rest.split_at(to_border);
            change(part);
            rest = beyond;
        }
    }

    /// The word and the bits of an aligned block of up to 64 frames in the span.
    #[inline]
    fn small(&self, extent: Extent) -> Option<(usize, u64)> {
        let bit = extent.start.raw().wrapping_sub(self.base);
        let fits = extent.count.wrapping_sub(1) < 64 && bit % 64 + extent.count <= 64;
        (fits && extent.start >= self.span.start && extent.end() <= self.span.end())
            .then(|| ((bit / 64) as usize, u64::MAX >> (64 - extent.count) << (bit % 64)))
    }

    /// Returns true if a small block is in use; if not, or if it is a larger
    /// one, [`find_unused`](Self::find_unused) says more.
    #[inline]
    pub(crate) fn is_used_small(&self, words: &[u64], extent: Extent) -> bool {
        self.small(extent).is_some_and(|(at, mask)| words[used_at(at)] & mask == mask)
    }

    #[inline]
    fn allocate_bits(&self, words: &mut [u64], at: usize, mask: u64, movable: bool) {
        debug_assert_eq!(words[used_at(at)] & mask, 0, "a frame that is handed out twice");
        words[used_at(at)] |= mask;
        if movable {
            words[movable_at(at)] |= mask;
        }
    }

    /// Marks free frames as in use.
    #[inline]
    pub(crate) fn allocate(
        &self,
        words: &mut [u64],
        layout: &Layout,
        extent: Extent,
        movable: bool,
    ) {
        let shift = if movable { 0 } else { 32 };
        if let Some((at, mask)) = self.small(extent) {
            self.allocate_bits(words, at, mask, movable);
            self.count(words, layout, extent.start, |word| word + (extent.count << shift));
            return;
        }
        Self::by_unit(extent, |part| {
            for (at, mask) in masks(part.start.raw() - self.base, part.count) {
                self.allocate_bits(words, at, mask, movable);
            }
            self.count(words, layout, part.start, |word| word + (part.count << shift));
        });
    }

    /// Frees the frames of some bits; how many of them were movable.
    #[inline]
    fn free_bits(&self, words: &mut [u64], at: usize, mask: u64) -> u64 {
        words[used_at(at)] &= !mask;
        let movable = (words[movable_at(at)] & mask).count_ones();
        words[movable_at(at)] &= !mask;
        u64::from(movable)
    }

    /// Marks frames in use as free.
    #[inline]
    pub(crate) fn free(&self, words: &mut [u64], layout: &Layout, extent: Extent) {
        if let Some((at, mask)) = self.small(extent) {
            let movable = self.free_bits(words, at, mask);
            let counts = movable | (extent.count - movable) << 32;
            self.count(words, layout, extent.start, |word| word - counts);
            return;
        }
        Self::by_unit(extent, |part| {
            let mut movable = 0;
            for (at, mask) in masks(part.start.raw() - self.base, part.count) {
                movable += self.free_bits(words, at, mask);
            }
            let counts = movable | (part.count - movable) << 32;
            self.count(words, layout, part.start, |word| word - counts);
        });
    }

    /// Marks free blocks of one order, at most 6, as in use: those that follow one another in a
    /// word at once.
    #[inline]
    pub(crate) fn allocate_run(
        &self,
        words: &mut [u64],
        layout: &Layout,
        (mut blocks, k): (&[Pfn], u32),
        movable: bool,
    ) {
        let (shift, block) = (if movable { 0 } else { 32 }, u64::MAX >> (64 - (1 << k)));
        while let Some((&first, others)) = blocks.split_first() {
            let (word, bit) = self.place(first);
            let mut mask = block << bit;
            let mut rest = others;
            while let Some((&next, others)) = rest.split_first()
                && let (at, bit) = self.place(next)
                && at == word
            {
                mask |= block << bit;
                rest = others;
            }
            self.allocate_bits(words, word, mask, movable);
            let frames = u64::from(mask.count_ones()) << shift;
            self.count(words, layout, first, |word| word + frames);
            blocks = rest;
        }
    }

    /// Of frames of which the first is in use, those from the first on that stand in one word,
    /// each once, all in use by owners of its kind: the word and their number.
    #[inline]
    pub(crate) fn used_row(&self, words: &[u64], frames: &[Pfn]) -> (usize, usize) {
        let (word, first) = self.place(frames[0]);
        let (used, movable) = (words[used_at(word)], words[movable_at(word)]);
        let mut others = if movable >> first & 1 == 1 { used & movable } else { used & !movable };
        let taken = |frame: &&Pfn| {
            let (at, bit) = self.place(**frame);
            let takes = at == word && others >> bit & 1 == 1;
            others &= !(1 << bit);
            takes
        };
        (word, frames.iter().take_while(taken).count())
    }

    /// Marks frames of one word, all in use, as free.
    #[inline]
    pub(crate) fn free_row(&self, words: &mut [u64], layout: &Layout, word: usize, frames: &[Pfn]) {
        let Some(&first) = frames.first() else { return };
        let mask = frames.iter().fold(0, |mask, &frame| mask | 1 << self.place(frame).1);
        let movable = self.free_bits(words, word, mask);
        let counts = movable | (frames.len() as u64 - movable) << 32;
        self.count(words, layout, first, |word| word - counts);
    }

    /// The word of a frame and the bit in it, as if the span were without end.
    #[inline(always)]
    fn place(&self, frame: Pfn) -> (usize, u32) {
        let bit = frame.raw().wrapping_sub(self.base);
        ((bit / 64) as usize, (bit % 64) as u32)
    }

    fn index(&self, frame: Pfn) -> Option<(usize, u64)> {
        let bit = frame.raw().wrapping_sub(self.base);
        self.span.contains(frame).then_some(((bit / 64) as usize, 1 << (bit % 64)))
    }

    /// Returns true if the frame is in use; `None` for holes.
    #[inline]
    pub(crate) fn is_used(&self, words: &[u64], frame: Pfn) -> Option<bool> {
        let (at, mask) = self.index(frame)?;
        let used = words[used_at(at)] & mask != 0;
        let other = words[movable_at(at)] & mask != 0;
        (used || !other).then_some(used)
    }

    /// Returns true if the frame is in use by a movable owner.
    #[inline]
    pub(crate) fn is_movable(&self, words: &[u64], frame: Pfn) -> bool {
        self.index(frame)
            .is_some_and(|(at, mask)| words[used_at(at)] & words[movable_at(at)] & mask != 0)
    }

    /// The first frame of `extent`, whose end is a frame number, for which the
    /// bits that `select` makes of both bitmaps are set.
    fn find(&self, words: &[u64], extent: Extent, select: impl Fn(u64, u64) -> u64) -> Option<Pfn> {
        let inside = extent.intersect(self.span);
        if inside.is_empty() {
            return None;
        }
        masks(inside.start.raw() - self.base, inside.count).find_map(|(at, mask)| {
            let found = select(words[used_at(at)], words[movable_at(at)]) & mask;
            let bit = at as u64 * 64 + u64::from(found.trailing_zeros());
            (found != 0).then(|| Pfn::new(self.base + bit))
        })
    }

    /// The first frame of `extent` that is not in use, be it a hole or outside.
    pub(crate) fn find_unused(&self, words: &[u64], extent: Extent) -> Option<Pfn> {
        if extent.start < self.span.start {
            return Some(extent.start);
        }
        let found = self.find(words, extent, |used, _| !used);
        found
            .or_else(|| (extent.end() > self.span.end()).then(|| extent.start.max(self.span.end())))
    }

    /// The first frame of `extent` that is in use.
    pub(crate) fn find_used(&self, words: &[u64], extent: Extent) -> Option<Pfn> {
        self.find(words, extent, |used, _| used)
    }

    /// The first frame of `extent` that is in use and not movable.
    pub(crate) fn find_unmovable(&self, words: &[u64], extent: Extent) -> Option<Pfn> {
        self.find(words, extent, |used, movable| used & !movable)
    }

    /// Returns true if all of `extent` is there and not in use.
    pub(crate) fn is_free(&self, words: &[u64], extent: Extent) -> bool {
        extent.intersect(self.span) == extent
            && self.find(words, extent, |used, movable| used | movable).is_none()
    }

    /// Counts the frames of `extent` that are present and those in use.
    pub(crate) fn counts(&self, words: &[u64], extent: Extent) -> UnitState {
        let inside = extent.intersect(self.span);
        let mut state = UnitState::default();
        if inside.is_empty() {
            return state;
        }
        for (at, mask) in masks(inside.start.raw() - self.base, inside.count) {
            let (used, movable) = (words[used_at(at)] & mask, words[movable_at(at)] & mask);
            state.free += u64::from((mask & !(used | movable)).count_ones());
            state.movable += u64::from((used & movable).count_ones());
            state.unmovable += u64::from((used & !movable).count_ones());
        }
        state.present = state.free + state.movable + state.unmovable;
        state
    }

    /// Returns the number of free frames, isolated or not, and the number of
    /// those that are isolated, after the counters of all units have been
    /// compared with the bitmaps.
    pub(crate) fn check(&self, words: &[u64], layout: &Layout) -> Result<(u64, u64), &'static str> {
        let mut isolated = 0;
        let units = (0..layout.sections()).map(MemoryUnit::Section);
        for unit in units.chain((0..layout.banks()).map(MemoryUnit::Bank)) {
            let Some(extent) = extent(layout, unit) else { continue };
            let counted = self.counts(words, extent);
            let state = self.state(words, unit);
            let same = (state.present, state.movable, state.unmovable)
                == (counted.present, counted.movable, counted.unmovable);
            if !same {
                return Err("a section or bank that counts wrongly");
            }
            if state.isolation != Isolation::None {
                isolated += state.free;
            }
            if state.isolation == Isolation::Offline && state.free != state.present {
                return Err("a frame in use that is offline");
            }
        }
        Ok((self.counts(words, self.span).free, isolated))
    }

    /// The words that are the caller's.
    pub(crate) fn range(&self) -> Range<usize> {
        0..self.end
    }
}

/// The frames of a unit, if the layout has it.
pub(crate) fn extent(layout: &Layout, unit: MemoryUnit) -> Option<Extent> {
    match unit {
        MemoryUnit::Section(section) => layout.section(section),
        MemoryUnit::Bank(bank) => layout.bank(bank),
    }
}
