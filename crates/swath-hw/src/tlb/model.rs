//! The TLB against a naive model: a list of entries for each set, in the order
//! of their use, or of their fills where it is not LRU, searched by scanning.

extern crate std;

use std::prelude::v1::*;
use std::{println, vec};

use crate::tlb::array::{NIL, step};
use crate::{EntryKind, Geometry, GeometryError, Replacement, Tlb, TlbFill, TlbHit, TlbStats};
use swath_arch::testing::Random;
use swath_arch::{Attributes, Order, PageRange, Pfn, Vpn};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ModelEntry {
    kind: EntryKind,
    start: u64,
    end: u64,
    frame: u64,
}

#[derive(Clone)]
struct Model {
    geometry: Geometry,
    distance: u32,
    replacement: Replacement,
    register: u32,
    /// Most recently used or filled first.
    sets: Vec<Vec<ModelEntry>>,
    stats: TlbStats,
}

impl Model {
    fn new(geometry: Geometry, distance: Order, replacement: Replacement) -> Self {
        Self {
            geometry,
            distance: distance.k(),
            replacement,
            register: 1,
            sets: vec![Vec::new(); geometry.sets as usize],
            stats: TlbStats::default(),
        }
    }

    fn set(&self, kind: EntryKind, page: u64) -> usize {
        let shift = match kind {
            EntryKind::Regular => self.geometry.index_shift,
            EntryKind::Anchor => self.geometry.index_shift.max(self.distance),
        };
        ((page >> shift) % u64::from(self.geometry.sets)) as usize
    }

    fn lookup(&mut self, page: u64) -> Option<(EntryKind, u64)> {
        self.stats.accesses += 1;
        for kind in [EntryKind::Regular, EntryKind::Anchor] {
            let set = self.set(kind, page);
            let hit = |e: &ModelEntry| e.kind == kind && e.start <= page && page < e.end;
            assert!(self.sets[set].iter().filter(|e| hit(e)).count() <= 1, "two matching ways");
            if let Some(way) = self.sets[set].iter().position(hit) {
                let entry = self.sets[set][way];
                if self.replacement == Replacement::Lru {
                    self.sets[set].remove(way);
                    self.sets[set].insert(0, entry);
                }
                match kind {
                    EntryKind::Regular => self.stats.regular_hits += 1,
                    EntryKind::Anchor => self.stats.anchor_hits += 1,
                }
                return Some((kind, entry.frame + page - entry.start));
            }
        }
        self.stats.misses += 1;
        None
    }

    fn fill(&mut self, page: u64, new: ModelEntry) {
        let set = self.set(new.kind, page);
        let window =
            |page: u64, shift: u32| (page >> shift << shift, ((page >> shift) + 1) << shift);
        let (mut start, mut end) = (new.start, new.end);
        let before = self.sets[set].len();
        match new.kind {
            EntryKind::Regular => {
                self.sets[set].retain(|e| e.kind != new.kind || !(e.start <= page && page < e.end));
                if self.geometry.sets > 1 {
                    let (low, high) = window(page, self.geometry.index_shift);
                    (start, end) = (start.max(low), end.min(high));
                }
                let (from, to) = (start, end);
                for e in self.sets[set].iter().filter(|e| e.kind == new.kind) {
                    let overlaps = e.start < to && from < e.end;
                    if overlaps && e.start < from {
                        start = start.max(e.end);
                    } else if overlaps && e.end > to {
                        end = end.min(e.start);
                    }
                }
                self.sets[set].retain(|e| e.kind != new.kind || !(from <= e.start && e.end <= to));
            }
            EntryKind::Anchor => {
                let anchor = page >> self.distance;
                self.sets[set].retain(|e| e.kind != new.kind || e.start >> self.distance != anchor);
                let (low, high) = window(page, self.distance);
                (start, end) = (start.max(low), end.min(high));
            }
        }
        self.stats.displaced += (before - self.sets[set].len()) as u64;
        self.stats.fills += 1;
        self.stats.trimmed_fills += u64::from((start, end) != (new.start, new.end));
        if self.sets[set].len() == self.geometry.ways as usize {
            if self.replacement == Replacement::Random {
                self.register = step(self.register);
                self.sets[set].remove((self.register % self.geometry.ways) as usize);
            } else {
                self.sets[set].pop();
            }
            self.stats.evictions += 1;
        }
        let frame = new.frame + (start - new.start);
        self.sets[set].insert(0, ModelEntry { kind: new.kind, start, end, frame });
    }

    fn invalidate(&mut self, start: u64, end: u64) {
        for set in &mut self.sets {
            let before = set.len();
            set.retain(|e| start == end || end <= e.start || e.end <= start);
            self.stats.invalidated += (before - set.len()) as u64;
        }
    }

    fn entries(&self) -> Vec<ModelEntry> {
        self.sets.concat()
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Lookup(u64),
    Fill(u64, ModelEntry),
    InvalidatePage(u64),
    InvalidateRange(u64, u64),
    InvalidateAll,
}

fn apply(tlb: &mut Tlb, model: &mut Model, op: Op) {
    match op {
        Op::Lookup(page) => {
            let peeked = tlb.peek(Vpn::new(page));
            let hit = tlb.lookup(Vpn::new(page));
            assert_eq!(peeked, hit);
            let found = hit.map(|TlbHit { frame, kind, .. }| (kind, frame.raw()));
            assert_eq!(found, model.lookup(page));
        }
        Op::Fill(page, e) => {
            let pages = PageRange::new(Vpn::new(e.start), e.end - e.start);
            let attributes = Attributes::USER_DATA;
            let fill = TlbFill::new(e.kind, Vpn::new(page), pages, Pfn::new(e.frame), attributes);
            tlb.fill(&fill.unwrap());
            model.fill(page, e);
        }
        Op::InvalidatePage(page) => {
            tlb.invalidate_page(Vpn::new(page));
            model.invalidate(page, page + 1);
        }
        Op::InvalidateRange(start, end) => {
            tlb.invalidate_range(PageRange::new(Vpn::new(start), end - start));
            model.invalidate(start, end);
        }
        Op::InvalidateAll => {
            tlb.invalidate_all();
            model.invalidate(0, u64::MAX);
        }
    }
    tlb.check().unwrap();
    assert_eq!(tlb.stats(), model.stats);
    let mut entries = Vec::new();
    tlb.for_each(&mut |kind, pages, frame| {
        let (start, end) = (pages.start.raw(), pages.end().raw());
        entries.push(ModelEntry { kind, start, end, frame: frame.raw() });
    });
    // Order of use and contents of every set, exactly.
    assert_eq!(entries, model.entries());
}

#[derive(Clone, Copy, Debug)]
enum Design {
    Trad,
    TradWithSuperpages,
    /// Blocks of any length: true ones (disjoint) or saturated ones.
    Pcad {
        saturated: bool,
    },
    At,
}

fn random_fill(random: &mut Random, design: Design, distance: Order, page: u64) -> ModelEntry {
    let regular =
        |start, len, frame| ModelEntry { kind: EntryKind::Regular, start, end: start + len, frame };
    let frame = 1000 + random.below(1 << 20);
    match design {
        Design::Trad => regular(page, 1, frame),
        Design::TradWithSuperpages => {
            let order = [0, 0, 0, 2, 4][random.below(5) as usize];
            regular(page >> order << order, 1 << order, frame)
        }
        Design::Pcad { saturated: true } => {
            let (before, after) = (random.below(9).min(page), random.below(9));
            regular(page - before, before + after + 1, frame)
        }
        Design::Pcad { saturated: false } => {
            // Blocks of lengths 1 to 13, tiling the pages.
            let (mut start, mut len) = (0, 1);
            while page >= start + len {
                start += len;
                len = (start * 7 + 3) % 13 + 1;
            }
            regular(start, len, 5000 + start)
        }
        Design::At => {
            let anchor = page >> distance.k() << distance.k();
            match random.below(4) {
                0 => regular(page, 1, frame),
                1 if distance.k() > 1 => {
                    let k = distance.k() - 1;
                    regular(page >> k << k, 1 << k, frame)
                }
                _ => {
                    let len = page - anchor + 1 + random.below(distance.frames());
                    let kind = EntryKind::Anchor;
                    ModelEntry { kind, start: anchor, end: anchor + len, frame }
                }
            }
        }
    }
}

const REPLACEMENTS: [Replacement; 3] = [Replacement::Lru, Replacement::Fifo, Replacement::Random];

/// As an MMU uses it (look up, fill on a miss) and, now and then, as nobody
/// should (fill what is there).
#[test]
fn random_operations_agree_with_the_model() {
    let geometries = [
        Geometry::default(),
        Geometry::fully_associative(1),
        Geometry::fully_associative(5),
        Geometry { sets: 4, ways: 3, index_shift: 0 },
        Geometry { sets: 8, ways: 1, index_shift: 3 },
        Geometry { sets: 3, ways: 4, index_shift: 2 },
        Geometry { sets: 2, ways: 8, index_shift: 6 },
    ];
    let designs = [
        Design::Trad,
        Design::TradWithSuperpages,
        Design::Pcad { saturated: false },
        Design::Pcad { saturated: true },
        Design::At,
    ];
    for (g, geometry) in geometries.into_iter().enumerate() {
        for (d, design) in designs.into_iter().enumerate() {
            for (o, distance) in [1, 3, 6].map(Order::known).into_iter().enumerate() {
                let seed = (g * 100 + d * 10 + o) as u64;
                let replacement = REPLACEMENTS[(g + d + o) % 3];
                println!(
                    "seed {seed}: {geometry:?} {design:?} distance {distance} {replacement:?}"
                );
                let mut random = Random::new(seed);
                let mut tlb = Tlb::new(geometry, distance).unwrap().replacing(replacement);
                let mut model = Model::new(geometry, distance, replacement);
                for _ in 0..1500 {
                    let span = [30, 200][random.below(2) as usize];
                    let page = random.below(span);
                    let op = match random.below(40) {
                        0 => Op::InvalidatePage(page),
                        1 => Op::InvalidateRange(page, page + random.below(6)),
                        2 if random.below(10) == 0 => Op::InvalidateAll,
                        3 => Op::Fill(page, random_fill(&mut random, design, distance, page)),
                        _ => {
                            apply(&mut tlb, &mut model, Op::Lookup(page));
                            if tlb.peek(Vpn::new(page)).is_some() {
                                continue;
                            }
                            Op::Fill(page, random_fill(&mut random, design, distance, page))
                        }
                    };
                    apply(&mut tlb, &mut model, op);
                }
                let stats = tlb.stats();
                assert!(stats.fills > 100 && stats.misses > 100);
                if !matches!(design, Design::At) {
                    assert_eq!(stats.anchor_hits, 0);
                }
            }
        }
    }
}

fn explore(tlb: &Tlb, model: &Model, ops: &[Op], depth: u32, visited: &mut u64) {
    *visited += 1;
    if depth == 0 {
        return;
    }
    for &op in ops {
        let (mut tlb, mut model) = (tlb.clone(), model.clone());
        apply(&mut tlb, &mut model, op);
        explore(&tlb, &model, ops, depth - 1, visited);
    }
}

/// Every sequence of a few operations on four pages, for three small TLBs.
#[test]
fn all_short_sequences_agree_with_the_model() {
    let mut ops: Vec<Op> = (0..4).map(Op::Lookup).collect();
    for (start, end) in [(0, 1), (1, 2), (3, 4), (0, 2), (1, 3), (2, 4), (0, 3), (1, 4), (0, 4)] {
        for page in [start, end - 1] {
            let frame = 100 * (1 + ops.len() as u64);
            ops.push(Op::Fill(page, ModelEntry { kind: EntryKind::Regular, start, end, frame }));
        }
    }
    for (page, start, end) in [(0, 0, 1), (1, 0, 2), (3, 2, 4)] {
        let frame = 100 * (1 + ops.len() as u64);
        ops.push(Op::Fill(page, ModelEntry { kind: EntryKind::Anchor, start, end, frame }));
    }
    ops.extend([Op::InvalidatePage(0), Op::InvalidatePage(2), Op::InvalidateRange(1, 3)]);
    for geometry in [
        Geometry::fully_associative(2),
        Geometry::fully_associative(3),
        Geometry { sets: 2, ways: 2, index_shift: 1 },
    ] {
        let distance = Order::known(1);
        for (replacement, depth) in REPLACEMENTS.into_iter().zip([3, 2, 2]) {
            let tlb = Tlb::new(geometry, distance).unwrap().replacing(replacement);
            let model = Model::new(geometry, distance, replacement);
            let mut visited = 0;
            explore(&tlb, &model, &ops, depth, &mut visited);
            assert_eq!(visited, (0..=depth).map(|d| (ops.len() as u64).pow(d)).sum::<u64>());
        }
    }
}

/// Of four ways the page that is used most stays under LRU, goes in its turn under FIFO, and stays for
/// some of the time where any of them goes.
#[test]
fn replacement_decides_what_stays() {
    let hits = REPLACEMENTS.map(|replacement| {
        let geometry = Geometry::fully_associative(4);
        let mut tlb = Tlb::new(geometry, Order::BASE).unwrap().replacing(replacement);
        for turn in 0..4000 {
            // Page 0 every other time, and between a row of pages that never come again.
            for page in [0, 1 + turn] {
                if tlb.lookup(Vpn::new(page)).is_none() {
                    let (page, one) = (Vpn::new(page), PageRange::new(Vpn::new(page), 1));
                    let kind = EntryKind::Regular;
                    let fill = TlbFill::new(kind, page, one, Pfn::new(7), Attributes::USER_DATA);
                    tlb.fill(&fill.unwrap());
                }
            }
        }
        tlb.check().unwrap();
        tlb.stats().hits()
    });
    // Under FIFO it goes with the fourth fill after its own: three hits for each of its misses.
    assert_eq!((hits[0], hits[1]), (3999, 3000));
    // Each of the fills between drops it with a chance of one in four.
    assert!((2800..3200).contains(&hits[2]), "{hits:?}");
}

/// n pages in turn through an LRU of n entries always hit, n + 1 never do.
#[test]
fn lru_is_exact_at_the_edge() {
    for ways in [1u32, 2, 7, 32, 100] {
        for over in [0, 1] {
            let mut tlb = Tlb::new(Geometry::fully_associative(ways), Order::BASE).unwrap();
            let pages = u64::from(ways + over);
            for page in (0..pages).cycle().take(5 * pages as usize) {
                if tlb.lookup(Vpn::new(page)).is_none() {
                    let pages = PageRange::new(Vpn::new(page), 1);
                    let (kind, frame) = (EntryKind::Regular, Pfn::new(page));
                    let attributes = Attributes::USER_DATA;
                    tlb.fill(
                        &TlbFill::new(kind, Vpn::new(page), pages, frame, attributes).unwrap(),
                    );
                }
            }
            let stats = tlb.stats();
            let expected = if over == 0 { 4 * pages } else { 0 };
            assert_eq!(stats.hits(), expected, "{ways} ways, {pages} pages");
            assert_eq!(stats.accesses, stats.hits() + stats.misses);
        }
    }
}

/// Saturated PCAD fields: the rule of the module's documentation, by example.
#[test]
fn overlaps_are_cut_or_dropped() {
    let mut tlb = Tlb::new(Geometry::fully_associative(8), Order::BASE).unwrap();
    let mut fill = |page, start, end| {
        let pages = PageRange::new(Vpn::new(start), end - start);
        let (first, attributes) = (Pfn::new(start + 1000), Attributes::USER_DATA);
        let fill = TlbFill::new(EntryKind::Regular, Vpn::new(page), pages, first, attributes);
        tlb.fill(&fill.unwrap());
        tlb.check().unwrap();
        let mut entries = Vec::new();
        tlb.for_each(&mut |_, pages, first| {
            assert_eq!(first.raw(), pages.start.raw() + 1000);
            entries.push((pages.start.raw(), pages.end().raw()));
        });
        entries
    };
    assert_eq!(fill(5, 4, 7), [(4, 7)]);
    assert_eq!(fill(8, 6, 10), [(7, 10), (4, 7)], "cut at the older entry");
    assert_eq!(fill(12, 12, 13), [(12, 13), (7, 10), (4, 7)]);
    assert_eq!(fill(11, 9, 15), [(10, 15), (7, 10), (4, 7)], "one cuts, one is dropped");
    assert_eq!(fill(20, 0, 64), [(0, 64)], "all are inside");
    assert_eq!(tlb.stats().displaced, 4);
    assert_eq!(tlb.stats().trimmed_fills, 2);
    assert_eq!(tlb.stats().evictions, 0);
}

#[test]
fn impossible_forms_and_fills_are_refused() {
    let new = |sets, ways, index_shift| {
        Tlb::new(Geometry { sets, ways, index_shift }, Order::BASE).map(|_| ())
    };
    assert_eq!(new(0, 4, 0), Err(GeometryError::Entries { sets: 0, ways: 4 }));
    assert_eq!(new(4, 0, 0), Err(GeometryError::Entries { sets: 4, ways: 0 }));
    let many = u32::MAX;
    assert_eq!(new(many, many, 0), Err(GeometryError::Entries { sets: many, ways: many }));
    assert_eq!(new(1, 1, 53), Err(GeometryError::IndexShift { index_shift: 53 }));
    assert_eq!(new(2, 1, 52), Ok(()));
    // As many entries as there may be pass; what is refused then is the shift.
    let most = Geometry::ENTRIES_MAX;
    for (sets, ways) in [(most, 1), (1, most), (most / 4, 4)] {
        assert_eq!(new(sets, ways, 53), Err(GeometryError::IndexShift { index_shift: 53 }));
    }
    for (sets, ways) in [(most + 1, 1), (1, most + 1), (most / 4 + 1, 4)] {
        assert_eq!(new(sets, ways, 0), Err(GeometryError::Entries { sets, ways }));
    }
    let fill = |page, start, count, frame| {
        let pages = PageRange::new(Vpn::new(start), count);
        let (kind, attributes) = (EntryKind::Regular, Attributes::USER_DATA);
        TlbFill::new(kind, Vpn::new(page), pages, Pfn::new(frame), attributes)
    };
    assert!(fill(1, 1, 0, 0).is_none());
    assert!(fill(3, 1, 2, 0).is_none());
    assert!(fill(u64::MAX - 1, u64::MAX - 1, 2, 0).is_none());
    assert!(fill(1 << 52, 1 << 52, 1, 0).is_none());
    assert!(fill(0, 0, 1, u64::MAX).is_none());
    let last = (1 << 52) - 1;
    let mut tlb = Tlb::new(Geometry { sets: 2, ways: 1, index_shift: 52 }, Order::MAX).unwrap();
    let whole = fill(last, 0, 1 << 52, 0).unwrap();
    tlb.fill(&whole);
    tlb.check().unwrap();
    assert_eq!(tlb.lookup(Vpn::new(last)).unwrap().frame, Pfn::new(last));
    assert_eq!(tlb.lookup(Vpn::new(u64::MAX)), None);
    // Nor where no page was found last.
    tlb.invalidate_all();
    assert_eq!(tlb.lookup(Vpn::new(u64::MAX)), None);
    assert_eq!(tlb.stats().misses, 2);
}

/// The values that the paper's shift register gives from 1, and from the number that the paper begins with.
#[test]
fn the_register_is_that_of_the_paper() {
    let mut register = 1;
    for value in [270_369, 67_634_689, 2_647_435_461, 307_599_695] {
        register = step(register);
        assert_eq!(register, value);
    }
    assert_eq!(step(2_463_534_242), 723_471_715);
    assert_eq!(step(0), 0);
}

/// Neighbouring pages have a chain each, and so have entries of every class whose windows have the same
/// number.
#[test]
fn chains_are_short() {
    let longest = |fills: &mut dyn Iterator<Item = (u64, u64)>| {
        let mut tlb = Tlb::new(Geometry::fully_associative(64), Order::BASE).unwrap();
        for (start, count) in fills {
            let (page, pages) = (Vpn::new(start), PageRange::new(Vpn::new(start), count));
            let (kind, attributes) = (EntryKind::Regular, Attributes::USER_DATA);
            tlb.fill(&TlbFill::new(kind, page, pages, Pfn::new(start), attributes).unwrap());
        }
        tlb.check().unwrap();
        let length = |&bucket: &u32| {
            let (mut node, mut count) = (bucket, 0);
            while node != NIL {
                (node, count) =
                    (tlb.entries[node as usize / 2].chain[node as usize % 2], count + 1);
            }
            count
        };
        // An entry has two nodes at most.
        assert!(tlb.buckets.len() >= 4 * 2 * tlb.entries.len());
        tlb.buckets.iter().map(length).max()
    };
    assert_eq!(longest(&mut (1000..1064).map(|page| (page, 1))), Some(1));
    assert_eq!(longest(&mut (0..50).map(|k| (2 << k, 1 << k))), Some(1));
}
