//! A TLB of one array for all page sizes, or of several, split by size.
//!
//! Processors have both: one array whose entries hold any size (a micro TLB that is
//! searched as a whole, or a second TLB [indexed by size](Indexing::Size)), or an array for
//! each size, as in x86-64's first TLBs. A [`TlbForm`] says which; a [`SplitTlb`] sends each
//! fill to the first array that holds entries of its size, and asks all of them.
//!
//! **A page larger than all arrays hold** is held in part: the aligned piece around the
//! demanded page that the last array does hold, as Cortex-A15's first TLBs do with
//! everything above 4 KiB (its manual, section 5.2) and Cortex-A35's with 1 GiB.
//!
//! **Two arrays may serve one page** if tables are changed without the owed invalidation: a
//! fill drops only what serves the demanded page itself. Arrays answer in their order, the
//! smallest sizes first, so what is stale stays to be seen. (Hardware may use either, SDM volume 3,
//! section 4.10.2.3.)

use alloc::boxed::Box;
use alloc::vec::Vec;

use swath_arch::{Attributes, Order, PageRange, Pfn, Vpn};

use crate::tlb::array::{NO_PAGE, Tlb};
use crate::tlb::fill::{EntryKind, PAGE_BITS, TlbFill, TlbHit};
use crate::tlb::geometry::{ARRAYS_MAX, Geometry, GeometryError, Indexing, Replacement};
use crate::tlb::stats::{SizeStats, TlbStats};

/// One array of a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TlbArray {
    /// Its sets and ways.
    pub geometry: Geometry,
    /// The choice of a set for entries of several sizes.
    pub indexing: Indexing,
    /// The order of the largest entries that it holds.
    pub largest: Order,
}

/// The form of a TLB: its arrays, for larger entries from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TlbForm {
    arrays: [TlbArray; Self::ARRAYS_MAX],
    count: usize,
}

impl TlbForm {
    /// The most arrays that a TLB may have.
    pub const ARRAYS_MAX: usize = ARRAYS_MAX;

    /// Creates one array for all sizes.
    pub const fn unified(geometry: Geometry, indexing: Indexing) -> Self {
        Self::split(TlbArray { geometry, indexing, largest: Order::MAX })
    }

    /// Creates a first array, for entries up to its largest. With it alone, larger ones are held in
    /// part.
    pub const fn split(first: TlbArray) -> Self {
        Self { arrays: [first; Self::ARRAYS_MAX], count: 1 }
    }

    /// Adds an array, for entries larger than those of the arrays before, up to its largest.
    #[must_use]
    pub const fn and(mut self, next: TlbArray) -> Self {
        if self.count < Self::ARRAYS_MAX {
            self.arrays[self.count] = next;
        }
        // One too many is refused when a TLB is made of it.
        self.count = self.count.saturating_add(1);
        self
    }

    /// Returns the arrays.
    pub fn arrays(&self) -> &[TlbArray] {
        &self.arrays[..self.count.min(Self::ARRAYS_MAX)]
    }

    /// Entries in all arrays.
    pub fn entries(&self) -> u64 {
        let entries =
            |array: &TlbArray| u64::from(array.geometry.sets) * u64::from(array.geometry.ways);
        self.arrays().iter().map(entries).sum()
    }
}

impl From<Geometry> for TlbForm {
    /// Returns one array for all sizes; where it has sets, what is longer than a window is cut.
    fn from(geometry: Geometry) -> Self {
        Self::unified(geometry, Indexing::Window)
    }
}

/// A TLB of one or several arrays.
///
/// Let c be the number of size classes present in all arrays, as at [`Tlb`].
///
/// Invariants: those of the arrays, and: an array holds no entry that is larger than its largest;
/// anchor entries stand in the first; `last_page` is the page of the last hit, answered by the
/// first array that has it, or no page.
#[derive(Clone, Debug)]
pub struct SplitTlb {
    last_page: u64,
    last: TlbHit,
    last_size: u8,
    form: TlbForm,
    arrays: Box<[Tlb]>,
    stats: TlbStats,
    sizes: [SizeStats; PAGE_BITS as usize + 1],
    held_in_part: u64,
}

impl SplitTlb {
    /// Creates an empty TLB. `distance` is log2 of the anchor distance, as at [`Tlb::new`].
    /// O(entries).
    ///
    /// # Errors
    /// [`GeometryError`], that of an array or of all of them.
    pub fn new(form: &TlbForm, distance: Order) -> Result<Self, GeometryError> {
        if form.count > TlbForm::ARRAYS_MAX {
            return Err(GeometryError::Arrays { count: form.count });
        }
        for pair in form.arrays().windows(2) {
            let (before, largest) = (pair[0].largest, pair[1].largest);
            if before >= largest {
                return Err(GeometryError::Largest { before, largest });
            }
        }
        let array = |array: &TlbArray| Tlb::indexed(array.geometry, array.indexing, distance);
        let arrays: Result<Vec<Tlb>, _> = form.arrays().iter().map(array).collect();
        Ok(Self {
            last_page: NO_PAGE,
            last: TlbHit {
                frame: Pfn::new(0),
                attributes: Attributes::default(),
                kind: EntryKind::Regular,
            },
            last_size: 0,
            form: *form,
            arrays: arrays?.into(),
            stats: TlbStats::default(),
            sizes: [SizeStats::default(); PAGE_BITS as usize + 1],
            held_in_part: 0,
        })
    }

    /// Replaces entries of every array so from now on.
    #[must_use]
    pub fn replacing(mut self, replacement: Replacement) -> Self {
        self.arrays.iter_mut().for_each(|array| array.replace_by(replacement));
        self.last_page = NO_PAGE;
        self
    }

    /// Returns the form.
    pub const fn form(&self) -> &TlbForm {
        &self.form
    }

    /// Returns the arrays. Their counters know fills and what follows from them, not lookups.
    pub fn arrays(&self) -> &[Tlb] {
        &self.arrays
    }

    /// Returns the counters of all arrays since the start or the last
    /// [`reset_stats`](Self::reset_stats). O(arrays).
    pub fn stats(&self) -> TlbStats {
        let mut all = self.stats;
        for array in self.arrays.iter().map(Tlb::stats) {
            all.fills += array.fills;
            all.trimmed_fills += array.trimmed_fills;
            all.evictions += array.evictions;
            all.displaced += array.displaced;
            all.invalidated += array.invalidated;
        }
        all
    }

    /// Returns the counters of entries of `order`; a length that is no power of two counts at the
    /// next one; of anchor entries nothing.
    pub fn size_stats(&self, order: Order) -> SizeStats {
        self.sizes.get(order.k() as usize).copied().unwrap_or_default()
    }

    /// Returns the number of fills of entries that were larger than any array holds.
    pub const fn held_in_part(&self) -> u64 {
        self.held_in_part
    }

    /// Sets every counter to 0; the entries stay.
    pub fn reset_stats(&mut self) {
        self.stats = TlbStats::default();
        self.sizes = [SizeStats::default(); PAGE_BITS as usize + 1];
        self.held_in_part = 0;
        for array in &mut self.arrays {
            array.reset_stats();
        }
    }

    /// Looks `page` up in all arrays, and makes the entry that answers the most recently used
    /// of its set. O(1) for the page of the access before, else O(arrays + c).
    #[inline]
    pub fn lookup(&mut self, page: Vpn) -> Option<TlbHit> {
        self.stats.accesses += 1;
        if page.raw() != self.last_page || page.raw() == NO_PAGE {
            self.search(page.raw())?;
        }
        match self.last.kind {
            EntryKind::Regular => {
                self.stats.regular_hits += 1;
                self.sizes[usize::from(self.last_size) % (PAGE_BITS as usize + 1)].hits += 1;
            }
            EntryKind::Anchor => self.stats.anchor_hits += 1,
        }
        Some(self.last)
    }

    fn search(&mut self, page: u64) -> Option<TlbHit> {
        for array in &mut self.arrays {
            if let Some(hit) = array.search(page) {
                self.last_page = page;
                self.last = hit;
                self.last_size = array.last_class;
                return Some(hit);
            }
        }
        self.stats.misses += 1;
        None
    }

    /// Returns the hit that a lookup of `page` would find, and changes nothing. O(arrays + c).
    pub fn peek(&self, page: Vpn) -> Option<TlbHit> {
        self.arrays.iter().find_map(|array| array.peek(page))
    }

    /// Returns the entry that [`peek`](Self::peek) finds, for another TLB to hold.
    pub(crate) fn entry(&self, page: Vpn) -> Option<TlbFill> {
        self.arrays.iter().find_map(|array| array.entry(page))
    }

    /// Writes an entry into the array of its size, after [cutting](Tlb::fill) it there.
    /// O(arrays + c + ways).
    pub fn fill(&mut self, fill: &TlbFill) {
        self.last_page = NO_PAGE;
        let mut fill = *fill;
        let at = match fill.kind {
            EntryKind::Anchor => 0,
            EntryKind::Regular => self.array_of(&mut fill),
        };
        if fill.kind == EntryKind::Regular {
            for (number, array) in self.arrays.iter_mut().enumerate() {
                if number != at {
                    array.displace_regular(fill.page);
                }
            }
        }
        let array = &mut self.arrays[at];
        array.fill(&fill);
        if fill.kind == EntryKind::Regular {
            self.sizes[usize::from(array.last_class) % (PAGE_BITS as usize + 1)].fills += 1;
        }
    }

    /// Returns the array for an entry, which is cut to what the last one holds.
    fn array_of(&mut self, fill: &mut TlbFill) -> usize {
        let class = 64 - (fill.end - fill.start - 1).leading_zeros();
        let arrays = self.form.arrays();
        if let Some(at) = arrays.iter().position(|array| class <= array.largest.k()) {
            return at;
        }
        let last = arrays.len() - 1;
        let pages = arrays[last].largest.frames();
        let low = fill.page & !(pages - 1);
        let start = fill.start.max(low);
        fill.frame += start - fill.start;
        (fill.start, fill.end) = (start, fill.end.min(low + pages));
        self.held_in_part += 1;
        // What is left of it may be small.
        let class = 64 - (fill.end - fill.start - 1).leading_zeros();
        arrays.iter().position(|array| class <= array.largest.k()).unwrap_or(last)
    }

    /// Drops every entry that serves `page`, in all arrays. O(arrays + c).
    pub fn invalidate_page(&mut self, page: Vpn) {
        self.last_page = NO_PAGE;
        for array in &mut self.arrays {
            array.invalidate_page(page);
        }
    }

    /// Drops every entry that serves a page of `pages`. O(entries).
    pub fn invalidate_range(&mut self, pages: PageRange) {
        self.last_page = NO_PAGE;
        for array in &mut self.arrays {
            array.invalidate_range(pages);
        }
    }

    /// Drops every entry. O(entries).
    pub fn invalidate_all(&mut self) {
        self.last_page = NO_PAGE;
        for array in &mut self.arrays {
            array.invalidate_all();
        }
    }

    /// Visits the valid entries: for each array, what [`Tlb::for_each`] visits. O(entries).
    pub fn for_each(&self, visit: &mut dyn FnMut(EntryKind, PageRange, Pfn)) {
        for array in &self.arrays {
            array.for_each(visit);
        }
    }

    /// Walks every invariant. O(entries × ways + buckets).
    ///
    /// # Errors
    /// The invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        let mut wrong = None;
        for (number, array) in self.arrays.iter().enumerate() {
            array.check()?;
            array.for_each(&mut |kind, pages, _| {
                let fits = |of: &TlbArray| pages.count <= of.largest.frames();
                let largest_fits = fits(&self.form.arrays()[number]);
                if kind == EntryKind::Anchor && number != 0 {
                    wrong = Some("an anchor entry is not in the first array");
                }
                if kind == EntryKind::Regular && !largest_fits {
                    wrong = Some("an entry is too large for its array");
                }
            });
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if self.last_page != NO_PAGE && self.peek(Vpn::new(self.last_page)) != Some(self.last) {
            return Err("the last hit is not what a search finds");
        }
        Ok(())
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn array(sets: u32, ways: u32, largest: u8) -> TlbArray {
        let geometry = Geometry { sets, ways, index_shift: 0 };
        TlbArray { geometry, indexing: Indexing::Size, largest: Order::known(largest) }
    }

    fn fill(kind: EntryKind, page: u64, (start, count): (u64, u64), frame: u64) -> TlbFill {
        let pages = PageRange::new(Vpn::new(start), count);
        let attributes = Attributes::USER_DATA;
        TlbFill::new(kind, Vpn::new(page), pages, Pfn::new(frame), attributes).unwrap()
    }

    /// Base pages, and pages of up to 4; anchors 16 pages apart.
    fn two_arrays() -> SplitTlb {
        let form = TlbForm::split(array(2, 2, 0)).and(array(1, 3, 2));
        SplitTlb::new(&form, Order::known(4)).unwrap()
    }

    #[test]
    fn anchors_stand_in_the_first_array_and_are_counted_apart() {
        let mut tlb = two_arrays();
        // No page was found yet, and none has this number.
        assert_eq!(tlb.lookup(Vpn::new(NO_PAGE)), None);
        tlb.reset_stats();
        tlb.fill(&fill(EntryKind::Anchor, 16, (16, 9), 70));
        tlb.fill(&fill(EntryKind::Regular, 20, (20, 1), 500));
        tlb.check().unwrap();
        let hit = |frame, kind| {
            let attributes = Attributes::USER_DATA;
            Some(TlbHit { frame: Pfn::new(frame), attributes, kind })
        };
        for _ in 0..2 {
            assert_eq!(tlb.lookup(Vpn::new(19)), hit(73, EntryKind::Anchor));
            tlb.check().unwrap();
        }
        assert_eq!(tlb.lookup(Vpn::new(20)), hit(500, EntryKind::Regular));
        assert_eq!(tlb.lookup(Vpn::new(25)), None);
        assert_eq!(tlb.lookup(Vpn::new(NO_PAGE & ((1 << 52) - 1))), None);
        let stats = tlb.stats();
        assert_eq!((stats.accesses, stats.misses, stats.fills), (5, 2, 2));
        assert_eq!((stats.anchor_hits, stats.regular_hits), (2, 1));
        assert_eq!(tlb.size_stats(Order::BASE), SizeStats { fills: 1, hits: 1 });
        let held = |tlb: &SplitTlb| {
            let mut counts = [0, 0];
            for (array, count) in tlb.arrays().iter().zip(&mut counts) {
                array.for_each(&mut |_, _, _| *count += 1);
            }
            counts
        };
        assert_eq!(held(&tlb), [2, 0]);
        // For another TLB to hold: the entry as it stands.
        assert_eq!(tlb.entry(Vpn::new(19)).map(|fill| (fill.start, fill.end)), Some((16, 25)));
        assert_eq!(tlb.entry(Vpn::new(25)).map(|fill| fill.start), None);
        tlb.invalidate_page(Vpn::new(17));
        assert_eq!((tlb.peek(Vpn::new(19)), held(&tlb)), (None, [1, 0]));
    }

    #[test]
    fn what_no_array_holds_is_held_in_part() {
        let mut tlb = two_arrays();
        // Of 32 pages the aligned four around the page, with their frames.
        tlb.fill(&fill(EntryKind::Regular, 77, (64, 32), 1000));
        assert_eq!(tlb.held_in_part(), 1);
        let frames = |tlb: &SplitTlb, page| tlb.peek(Vpn::new(page)).map(|hit| hit.frame.raw());
        assert_eq!(
            [75, 76, 79, 80].map(|page| frames(&tlb, page)),
            [None, Some(1012), Some(1015), None]
        );
        assert_eq!(tlb.size_stats(Order::known(2)).fills, 1);
        // What is left of a block may be a base page, or end with the block.
        tlb.fill(&fill(EntryKind::Regular, 103, (103, 6), 2000));
        assert_eq!([102, 103, 104].map(|page| frames(&tlb, page)), [None, Some(2000), None]);
        assert_eq!(tlb.size_stats(Order::BASE).fills, 1);
        tlb.fill(&fill(EntryKind::Regular, 49, (43, 7), 3000));
        assert_eq!(
            [47, 48, 49, 50].map(|page| frames(&tlb, page)),
            [None, Some(3005), Some(3006), None]
        );
        assert_eq!(tlb.held_in_part(), 3);
        tlb.check().unwrap();
    }

    #[test]
    fn the_largest_page_is_counted_at_its_size() {
        let form = TlbForm::from(Geometry::fully_associative(2));
        let mut tlb = SplitTlb::new(&form, Order::BASE).unwrap();
        tlb.fill(&fill(EntryKind::Regular, 9, (0, 1 << PAGE_BITS), 0));
        assert_eq!(tlb.lookup(Vpn::new(5)).map(|hit| hit.frame), Some(Pfn::new(5)));
        assert_eq!(tlb.size_stats(Order::MAX), SizeStats { hits: 1, fills: 1 });
        assert_eq!(tlb.size_stats(Order::BASE), SizeStats::default());
    }

    #[test]
    fn the_counters_are_those_of_all_arrays() {
        // Where sets are chosen by single pages, what is longer is cut to one.
        let window = |largest| TlbArray { indexing: Indexing::Window, ..array(2, 2, largest) };
        let form = TlbForm::split(window(1)).and(window(2));
        let mut tlb = SplitTlb::new(&form, Order::BASE).unwrap();
        for page in 0..40 {
            tlb.fill(&fill(EntryKind::Regular, page, (page, 1), page));
            tlb.fill(&fill(EntryKind::Regular, 2 * page, (2 * page, 2), page));
            tlb.fill(&fill(EntryKind::Regular, 4 * page, (4 * page, 4), page));
            tlb.fill(&fill(EntryKind::Regular, 300 + page, (300, 41), page));
        }
        tlb.fill(&fill(EntryKind::Regular, 339, (339, 1), 8));
        tlb.invalidate_all();
        let all = tlb.stats();
        let sum = |of: fn(&TlbStats) -> u64| -> u64 {
            let each = tlb.arrays().iter().map(|array| of(&array.stats()));
            each.inspect(|&count| assert!(count > 0)).sum()
        };
        assert_eq!(all.fills, sum(|stats| stats.fills));
        assert_eq!(all.trimmed_fills, sum(|stats| stats.trimmed_fills));
        assert_eq!(all.evictions, sum(|stats| stats.evictions));
        assert_eq!(all.displaced, sum(|stats| stats.displaced));
        assert_eq!(all.invalidated, sum(|stats| stats.invalidated));
    }

    #[test]
    fn each_invariant_is_looked_at() {
        let base = fill(EntryKind::Regular, 5, (5, 1), 9);
        let mut good = two_arrays();
        good.fill(&base);
        good.lookup(Vpn::new(5)).unwrap();
        good.check().unwrap();
        let broken = |change: &dyn Fn(&mut SplitTlb)| {
            let mut tlb = good.clone();
            change(&mut tlb);
            tlb.check().unwrap_err()
        };
        let anchor = fill(EntryKind::Anchor, 16, (16, 1), 9);
        let why = broken(&|tlb| tlb.arrays[1].fill(&anchor));
        assert_eq!(why, "an anchor entry is not in the first array");
        let large = fill(EntryKind::Regular, 8, (8, 2), 9);
        let why = broken(&|tlb| tlb.arrays[0].fill(&large));
        assert_eq!(why, "an entry is too large for its array");
        let why = broken(&|tlb| tlb.last.frame = Pfn::new(10));
        assert_eq!(why, "the last hit is not what a search finds");
        // An array's own.
        broken(&|tlb| tlb.arrays[1].anchors += 1);
        // An anchor entry may be longer than the array's largest page.
        let mut tlb = good.clone();
        tlb.fill(&fill(EntryKind::Anchor, 16, (16, 9), 9));
        tlb.check().unwrap();
    }
}
