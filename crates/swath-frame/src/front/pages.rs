//! Huge pages that are free and no CPU's.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

// The model checker has to see every atomic access.
#[cfg(not(loom))]
use core::sync::atomic::AtomicUsize;
#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;

use swath_arch::{Extent, Pfn};

use crate::front::areas::{Areas, Wrong};
use crate::front::bits::{HALF_ORDER, LINE_WORDS, UNIT_ORDER};

/// The order of huge pages: a unit's halves are some.
pub(super) const HUGE_ORDER: u32 = HALF_ORDER;

/// Frames of a huge page.
pub(super) const HUGE_FRAMES: u64 = 1 << HUGE_ORDER;

/// Words before those of the pages.
const HEAD_WORDS: usize = 2;

/// Pages of a word.
const PAGES: usize = usize::BITS as usize;

/// Every second page of a word.
const EVEN: usize = usize::MAX / 3;

/// A bit for each huge page that is **pooled**: free, but neither the allocator's nor in a slot.
///
/// A CPU gives and takes many pages by one step for each word, and none waits for another's. First comes the count of
/// pages and the number of the word that had some last, on the line of the first pages, which is
/// at hand where they are.
///
/// Invariants: those of [`Held`](crate::front::held::Held) for every frame of a page that has its bit set. The count is
/// not less than the bits, or a call that will make it so is under way.
pub(super) struct Pages<'m> {
    /// The count, and the number of a word; `None` if there are no words.
    head: Option<&'m [AtomicUsize; HEAD_WORDS]>,
    words: &'m [AtomicUsize],
    /// The frame of bit 0.
    first: u64,
    /// The most pages.
    most: usize,
}

/// The words for the pages of so many units, a whole number of lines.
pub(super) const fn words_of_pages(units: usize) -> usize {
    let pages = units.saturating_mul(1 << (UNIT_ORDER - HUGE_ORDER));
    (HEAD_WORDS + pages.div_ceil(PAGES)).next_multiple_of(LINE_WORDS)
}

/// The pages that are a pair's, which is an aligned block of two.
const fn pairs(pages: usize) -> usize {
    let low = pages & pages >> 1 & EVEN;
    low | low << 1
}

/// So many bits from a place on, at least one.
const fn ones(at: u32, count: u32) -> usize {
    usize::MAX >> (usize::BITS - count) << at
}

/// The lowest pages in a row, not more than `most`, which is at least one: the first, and how many there are.
const fn lowest_run(pages: usize, most: u64) -> Option<(u32, u32)> {
    if pages == 0 {
        return None;
    }
    let at = pages.trailing_zeros();
    let count = (pages >> at).trailing_ones();
    Some((at, if count as u64 > most { most as u32 } else { count }))
}

impl<'m> Pages<'m> {
    /// No pages, in these words, for frames from `first` on, and room for so many frames.
    pub(super) fn new(words: &'m [AtomicUsize], first: u64, frames_max: u64) -> Self {
        words.iter().for_each(|word| word.store(0, Relaxed));
        let (head, words) = words.split_first_chunk().unzip();
        let most = usize::try_from(frames_max / HUGE_FRAMES).unwrap_or(usize::MAX);
        Self { head, words: words.unwrap_or_default(), first, most }
    }

    /// The run of the pages of a word.
    fn run(&self, word: usize, (at, count): (u32, u32)) -> Extent {
        let page = (word * PAGES) as u64 + u64::from(at);
        let start = self.first.wrapping_add(page << HUGE_ORDER);
        Extent::new(Pfn::new(start), u64::from(count) << HUGE_ORDER)
    }

    /// The words of the pages `start..end`, and their bits in each; `None` if there is no such page.
    fn words(
        &self,
        start: u64,
        end: u64,
    ) -> Option<impl Iterator<Item = (usize, &'m AtomicUsize, usize)>> {
        let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
        let first = start / PAGES;
        let words = self.words.get(first..end.div_ceil(PAGES))?.iter().zip(first..);
        Some(words.map(move |(word, number)| {
            let at = start.saturating_sub(number * PAGES);
            let past = (end - number * PAGES).min(PAGES);
            (number, word, ones(at as u32, (past - at) as u32))
        }))
    }

    /// Takes in the whole pages of a run, which then has what is below them; returns what is above them. Nothing
    /// happens if the run has none, or there is no room for them.
    pub(super) fn give(&self, run: &mut Extent) -> Result<Extent, Wrong> {
        const NOTHING: Extent = Extent { start: Pfn::new(0), count: 0 };
        let from = run.start.raw().wrapping_sub(self.first);
        let Some(to) = from.checked_add(run.count) else { return Err(Wrong) };
        let (start, end) = (from.div_ceil(HUGE_FRAMES), to >> HUGE_ORDER);
        let count = end.saturating_sub(start) as usize;
        if count == 0 {
            return Ok(NOTHING);
        }
        let (Some([counted, last]), Some(words)) = (self.head, self.words(start, end)) else {
            return Err(Wrong);
        };
        if counted.fetch_add(count, Relaxed).saturating_add(count) > self.most {
            counted.fetch_sub(count, Relaxed);
            return Ok(NOTHING);
        }
        let mut twice = 0;
        for (number, word, pages) in words {
            last.store(number, Relaxed);
            // Who takes them sees what those did who had them before.
            twice |= word.fetch_or(pages, Release) & pages;
        }
        let (below, above) = ((start << HUGE_ORDER) - from, end << HUGE_ORDER);
        run.count = below;
        let above = Extent::new(Pfn::new(self.first.wrapping_add(above)), to - above);
        if twice == 0 { Ok(above) } else { Err(Wrong) }
    }

    /// Moves pages to areas until these hold the most frames or half of their places are taken: pairs only for blocks
    /// of more than a page. True if there are any.
    #[inline(always)]
    pub(super) fn take(&self, order: u32, areas: &mut Areas) -> bool {
        let Some([counted, last]) = self.head else { return false };
        counted.load(Relaxed) != 0 && self.take_after(last, order, areas)
    }

    /// As [`take`](Self::take) from the word on whose number `last` has.
    #[inline(never)]
    fn take_after(&self, last: &AtomicUsize, order: u32, areas: &mut Areas) -> bool {
        let before = areas.len();
        let (last, len) = (last.load(Relaxed), self.words.len());
        for number in (0..len).map(|step| last.wrapping_add(step) % len) {
            self.take_from(number, order, areas);
            if areas.is_half_full() || areas.count() >= areas.frames_max {
                break;
            }
        }
        areas.len() > before
    }

    /// As [`take`](Self::take) of one word.
    fn take_from(&self, number: usize, order: u32, areas: &mut Areas) {
        let Some(word) = self.words.get(number) else { return };
        let mut now = word.load(Relaxed);
        loop {
            let mut left = if order > HUGE_ORDER { pairs(now) } else { now };
            let room = areas.frames_max.saturating_sub(areas.count());
            let mut most = (room >> HUGE_ORDER & !1).max(2);
            let mut taken = 0;
            for _ in areas.half_free() {
                let Some((at, count)) = lowest_run(left, most) else { break };
                let pages = ones(at, count);
                (left, taken, most) = (left & !pages, taken | pages, most - u64::from(count));
                if most == 0 {
                    break;
                }
            }
            if taken == 0 {
                return;
            }
            match word.compare_exchange_weak(now, now & !taken, Acquire, Relaxed) {
                Ok(_) => {
                    self.uncount(taken);
                    self.runs(number, taken).for_each(|run| _ = areas.push(run));
                    return;
                }
                Err(other) => now = other,
            }
        }
    }

    /// Counts a word's pages as gone.
    fn uncount(&self, pages: usize) {
        if let Some([counted, _]) = self.head {
            counted.fetch_sub(pages.count_ones() as usize, Relaxed);
        }
    }

    /// The runs of some of a word's pages.
    fn runs(&self, number: usize, mut pages: usize) -> impl Iterator<Item = Extent> + '_ {
        core::iter::from_fn(move || {
            let (at, count) = lowest_run(pages, u64::MAX)?;
            pages &= !ones(at, count);
            Some(self.run(number, (at, count)))
        })
    }

    /// Returns true if no page is pooled.
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_none_or(|[counted, _]| counted.load(Relaxed) == 0)
    }

    /// Takes all pages.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Extent> + '_ {
        self.words.iter().zip(0..).flat_map(|(word, number)| {
            let pages = if word.load(Relaxed) == 0 { 0 } else { word.swap(0, Acquire) };
            self.uncount(pages);
            self.runs(number, pages)
        })
    }

    /// The words, those before the pages' first.
    #[cfg(feature = "testing")]
    pub(super) fn all_words(&self) -> impl Iterator<Item = &'m AtomicUsize> + Clone {
        self.head.into_iter().flatten().chain(self.words)
    }

    /// All pages.
    pub(super) fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        let words = self.words.iter().zip(0..);
        words.flat_map(|(word, number)| self.runs(number, word.load(Relaxed)))
    }
}
