//! TLBs of several arrays, and arrays indexed by size, against a naive model.

extern crate std;

use std::prelude::v1::*;
use std::{println, vec};

use crate::{
    EntryKind, Geometry, GeometryError, Indexing, SplitTlb, TlbArray, TlbFill, TlbForm, TlbHit,
};
use swath_arch::testing::Random;
use swath_arch::{Attributes, Order, PageRange, Pfn, Vpn};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ModelEntry {
    start: u64,
    end: u64,
    frame: u64,
}

impl ModelEntry {
    fn covers(&self, page: u64) -> bool {
        self.start <= page && page < self.end
    }

    /// The least k such that 2^k pages hold it.
    fn class(&self) -> u32 {
        (self.end - self.start).next_power_of_two().trailing_zeros()
    }
}

/// For each array its sets, the most recently used entry first.
struct Model {
    form: TlbForm,
    arrays: Vec<Vec<Vec<ModelEntry>>>,
    hits: [u64; 53],
    misses: u64,
}

impl Model {
    fn new(form: TlbForm) -> Self {
        let sets = |array: &TlbArray| vec![Vec::new(); array.geometry.sets as usize];
        let arrays = form.arrays().iter().map(sets).collect();
        Self { form, arrays, hits: [0; 53], misses: 0 }
    }

    fn lookup(&mut self, page: u64) -> Option<u64> {
        for array in &mut self.arrays {
            let all = array.iter().flatten().filter(|e| e.covers(page));
            let Some(entry) = all.min_by_key(|e| e.class()).copied() else { continue };
            let set = array.iter_mut().find(|set| set.contains(&entry)).unwrap();
            let way = set.iter().position(|e| *e == entry).unwrap();
            set.remove(way);
            set.insert(0, entry);
            self.hits[entry.class() as usize] += 1;
            return Some(entry.frame + page - entry.start);
        }
        self.misses += 1;
        None
    }

    fn fill(&mut self, page: u64, mut new: ModelEntry) {
        let clip = |entry: &mut ModelEntry, k: u32| {
            let low = page >> k << k;
            let start = entry.start.max(low);
            entry.frame += start - entry.start;
            (entry.start, entry.end) = (start, entry.end.min(low + (1 << k)));
        };
        let fits = |e: &ModelEntry| {
            let arrays = self.form.arrays();
            arrays.iter().position(|array| e.class() <= array.largest.k())
        };
        let at = fits(&new).unwrap_or_else(|| {
            clip(&mut new, self.form.arrays().last().unwrap().largest.k());
            fits(&new).unwrap()
        });
        for set in self.arrays.iter_mut().flatten() {
            set.retain(|e| !e.covers(page));
        }
        let TlbArray { geometry: Geometry { sets, ways, index_shift }, indexing, .. } =
            self.form.arrays()[at];
        let by_size = indexing == Indexing::Size && sets > 1;
        let superpage = |e: &ModelEntry| by_size && e.class() > index_shift;
        let aligned = (new.end - new.start).is_power_of_two()
            && new.start.is_multiple_of(new.end - new.start);
        let mut shift = index_shift;
        if by_size && aligned && new.class() > index_shift {
            shift = new.class();
        } else if sets > 1 {
            clip(&mut new, index_shift);
        }
        let set = &mut self.arrays[at][((page >> shift) % u64::from(sets)) as usize];
        if shift == index_shift {
            let ModelEntry { start: from, end: to, .. } = new;
            for e in set.iter().filter(|e| !superpage(e) && e.start < to && from < e.end) {
                if e.start < from {
                    new.frame += e.end.max(new.start) - new.start;
                    new.start = new.start.max(e.end);
                } else if e.end > to {
                    new.end = new.end.min(e.start);
                }
            }
            set.retain(|e| superpage(e) || !(from <= e.start && e.end <= to));
        }
        set.insert(0, new);
        set.truncate(ways as usize);
    }

    fn invalidate(&mut self, start: u64, end: u64) {
        for set in self.arrays.iter_mut().flatten() {
            set.retain(|e| start == end || end <= e.start || e.end <= start);
        }
    }
}

fn array(sets: u32, ways: u32, index_shift: u32, indexing: Indexing, largest: u8) -> TlbArray {
    let geometry = Geometry { sets, ways, index_shift };
    TlbArray { geometry, indexing, largest: Order::known(largest) }
}

fn fill_of(page: u64, entry: ModelEntry) -> TlbFill {
    let pages = PageRange::new(Vpn::new(entry.start), entry.end - entry.start);
    let (frame, attributes) = (Pfn::new(entry.frame), Attributes::USER_DATA);
    TlbFill::new(EntryKind::Regular, Vpn::new(page), pages, frame, attributes).unwrap()
}

fn forms() -> Vec<TlbForm> {
    use Indexing::{Size, Window};
    vec![
        // All sizes in one array: searched, cut, by size.
        Geometry::fully_associative(6).into(),
        TlbForm::unified(Geometry { sets: 4, ways: 2, index_shift: 2 }, Window),
        TlbForm::unified(Geometry { sets: 4, ways: 3, index_shift: 0 }, Size),
        TlbForm::unified(Geometry { sets: 3, ways: 4, index_shift: 2 }, Size),
        // As x86-64's first and second TLBs, with sizes of 1, 4 and 16 pages.
        TlbForm::split(array(4, 2, 0, Window, 0))
            .and(array(2, 2, 2, Window, 2))
            .and(array(1, 2, 0, Window, 4)),
        TlbForm::split(array(4, 3, 0, Size, 2)).and(array(1, 2, 0, Size, 4)),
        // Nothing but base pages; nothing above 4.
        TlbForm::split(array(1, 5, 0, Window, 0)),
        TlbForm::split(array(1, 3, 0, Window, 0)).and(array(2, 2, 0, Size, 2)),
    ]
}

/// Look up, fill on a miss, and now and then fill what is there, as another size too: what a
/// promotion without its invalidation leaves.
#[test]
fn random_operations_agree_with_the_model() {
    for (number, form) in forms().into_iter().enumerate() {
        for coalesced in [false, true] {
            let seed = 10 * number as u64 + u64::from(coalesced);
            println!("seed {seed}: {form:?}");
            let mut random = Random::new(seed);
            let mut tlb = SplitTlb::new(&form, Order::BASE).unwrap();
            let mut model = Model::new(form);
            for step in 0..6000 {
                let page = random.below([24, 150][step / 500 % 2]);
                match random.below(60) {
                    0 => {
                        tlb.invalidate_page(Vpn::new(page));
                        model.invalidate(page, page + 1);
                    }
                    1 => {
                        let count = random.below(8);
                        tlb.invalidate_range(PageRange::new(Vpn::new(page), count));
                        model.invalidate(page, page + count);
                    }
                    2 if random.below(8) == 0 => {
                        tlb.invalidate_all();
                        model.invalidate(0, u64::MAX);
                    }
                    what => {
                        let peeked = tlb.peek(Vpn::new(page));
                        let hit = tlb.lookup(Vpn::new(page));
                        assert_eq!(hit, peeked);
                        let frame = hit.map(|TlbHit { frame, .. }| frame.raw());
                        assert_eq!(frame, model.lookup(page), "step {step}, page {page}");
                        if hit.is_none() || what < 5 {
                            let frame = 1000 + random.below(1 << 20);
                            let entry = if coalesced && random.below(2) == 0 {
                                let (before, after) = (random.below(9).min(page), random.below(9));
                                ModelEntry { start: page - before, end: page + after + 1, frame }
                            } else {
                                let k = [0, 0, 0, 2, 2, 4, 6][random.below(7) as usize];
                                let start = page >> k << k;
                                ModelEntry { start, end: start + (1 << k), frame }
                            };
                            tlb.fill(&fill_of(page, entry));
                            model.fill(page, entry);
                        }
                    }
                }
                tlb.check().unwrap();
                let mut entries = Vec::new();
                tlb.for_each(&mut |_, pages, frame| {
                    let (start, end) = (pages.start.raw(), pages.end().raw());
                    entries.push(ModelEntry { start, end, frame: frame.raw() });
                });
                assert_eq!(entries, model.arrays.concat().concat(), "step {step}");
            }
            let stats = tlb.stats();
            assert_eq!(stats.misses, model.misses);
            assert_eq!(stats.accesses, stats.misses + stats.hits());
            let mut fills = 0;
            for k in 0..=20u8 {
                let of_size = tlb.size_stats(Order::known(k));
                assert_eq!(of_size.hits, model.hits[usize::from(k)], "size {k}");
                fills += of_size.fills;
            }
            assert_eq!(fills, stats.fills);
            assert!(stats.hits() > 500 && stats.evictions > 100 && stats.invalidated > 20);
            tlb.reset_stats();
            assert_eq!((tlb.stats(), tlb.held_in_part()), Default::default());
        }
    }
}

/// A split TLB uses each array for its size alone; a searched one shares its entries.
#[test]
fn reach_is_that_of_the_sizes() {
    let x86 = TlbForm::split(array(16, 4, 0, Indexing::Size, 0))
        .and(array(8, 4, 0, Indexing::Size, 9))
        .and(array(1, 4, 0, Indexing::Size, 18));
    assert_eq!(x86.entries(), 64 + 32 + 4);
    let searched = TlbForm::from(Geometry::fully_associative(64));
    for (form, order, reach) in [
        (x86, 0, 64),
        (x86, 9, 32),
        (x86, 18, 4),
        (searched, 0, 64),
        (searched, 9, 64),
        (searched, 18, 64),
    ] {
        for over in [0, 1] {
            let mut tlb = SplitTlb::new(&form, Order::BASE).unwrap();
            let pages = reach + over;
            for i in (0..pages).cycle().take(4 * pages as usize) {
                let page = (i << order) + 3 % (1 << order);
                if tlb.lookup(Vpn::new(page)).is_none() {
                    let start = i << order;
                    let entry = ModelEntry { start, end: start + (1 << order), frame: start };
                    tlb.fill(&fill_of(page, entry));
                }
            }
            let (stats, of_size) = (tlb.stats(), tlb.size_stats(Order::known(order)));
            assert_eq!(stats.hits(), of_size.hits);
            let all = if over == 0 { pages } else { of_size.fills };
            assert_eq!(stats.misses, all, "{order}, {pages} pages");
            assert!(over == 0 || stats.misses > pages);
            assert_eq!(tlb.held_in_part(), 0);
        }
    }
}

/// After a promotion without the owed invalidation the old base page answers; with it, not.
#[test]
fn stale_base_pages_answer_until_they_are_invalidated() {
    let split =
        TlbForm::split(array(4, 2, 0, Indexing::Size, 0)).and(array(2, 2, 0, Indexing::Size, 9));
    let by_size = TlbForm::unified(Geometry { sets: 8, ways: 4, index_shift: 0 }, Indexing::Size);
    for form in [split, by_size] {
        let mut tlb = SplitTlb::new(&form, Order::BASE).unwrap();
        tlb.fill(&fill_of(5, ModelEntry { start: 5, end: 6, frame: 77 }));
        tlb.fill(&fill_of(6, ModelEntry { start: 0, end: 512, frame: 1024 }));
        let frame = |tlb: &mut SplitTlb, page| tlb.lookup(Vpn::new(page)).map(|h| h.frame.raw());
        assert_eq!(frame(&mut tlb, 5), Some(77));
        assert_eq!(frame(&mut tlb, 7), Some(1031));
        tlb.invalidate_page(Vpn::new(5));
        // Both went: each of them served the page.
        assert_eq!((frame(&mut tlb, 5), frame(&mut tlb, 7)), (None, None));
        assert_eq!(tlb.stats().invalidated, 2);
    }
}

#[test]
fn impossible_forms_are_refused() {
    let one = |largest| array(1, 4, 0, Indexing::Size, largest);
    let new = |form: TlbForm| {
        let made = SplitTlb::new(&form, Order::BASE).map(|_| ());
        made.inspect_err(|error| assert!(!error.to_string().is_empty()))
    };
    let four = TlbForm::split(one(0)).and(one(4)).and(one(8)).and(one(12));
    assert_eq!(new(four), Ok(()));
    assert_eq!(new(four.and(one(18))), Err(GeometryError::Arrays { count: 5 }));
    let (before, largest) = (Order::known(9), Order::known(9));
    let twice = TlbForm::split(one(9)).and(one(9));
    assert_eq!(new(twice), Err(GeometryError::Largest { before, largest }));
    let none = TlbForm::split(one(0)).and(array(0, 4, 0, Indexing::Size, 4));
    assert_eq!(new(none), Err(GeometryError::Entries { sets: 0, ways: 4 }));
}
