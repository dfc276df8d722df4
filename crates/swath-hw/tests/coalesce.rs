//! Other ways to coalesce, against the tables themselves: random pages on random frames, hand-written cases, and
//! what stands between two tables.

use swath_arch::segments::{BASE_BYTES, BOUND_BYTES, RIGHTS_BYTES, SegmentList, TARGET_BYTES};
use swath_arch::testing::Random;
use swath_arch::{
    Coalescing, ContiguityField, Format, PageRange, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory,
    VirtAddr, Vpn,
};
use swath_hw::{
    EntryKind, Geometry, Join, Joined, MmuConfigError, Nested, NestedFault, OffsetOutcome,
    OffsetPrediction, RedundantRanges, TlbOutcome, Translate, TranslationFault,
};

/// The first of the tables of an address space of x86-64, four frames in a row: three upper levels, a leaf table.
#[derive(Clone, Copy)]
struct Space(u64);

/// Pages of the leaf table.
const PAGES: u64 = 512;
const LIST: SegmentList = SegmentList { root: PhysAddr::new(0xf000) };
const BITS: ContiguityField = ContiguityField::Beside { bits: 16 };

impl Space {
    const fn at(self, frame: u64, index: u64) -> PhysAddr {
        PhysAddr::new((self.0 + frame) << 12 | index << 3)
    }

    /// Writes the upper levels for a space that begins `shift` frames behind the addresses of its words.
    fn link(self, memory: &SliceMemory<'_>, shift: u64) {
        for level in 0..3 {
            let next = self.0 + level + 1 - shift;
            memory.write_u64(self.at(level, 0), next << 12 | 0x67).unwrap();
        }
    }

    /// Maps a run, with its place in the words beside.
    fn map(self, memory: &SliceMemory<'_>, page: u64, frame: u64, count: u64) {
        for i in 0..count {
            let word = (frame + i) << 12 | 0x67;
            memory.write_u64(self.at(3, page + i), word).unwrap();
            let beside = (count - 1 - i) | i << 32;
            memory.write_u64(self.at(4, page + i), beside).unwrap();
        }
    }

    const fn regime(self, coalescing: Coalescing) -> Regime {
        Regime { format: Format::X86_64, root: self.at(0, 0), coalescing }
    }
}

const SPACE: Space = Space(1);
const PCAD: Coalescing = Coalescing::Pcad(BITS);

/// Runs of random lengths on random frames, some side by side, with holes between.
fn random_runs(random: &mut Random) -> Vec<(u64, u64, u64)> {
    let (mut page, mut runs) = (0, Vec::new());
    while page < PAGES {
        let longest = 1 << random.below(7);
        let count = (1 + random.below(longest)).min(PAGES - page);
        // Often aligned like its frames, so that something can be joined.
        let frame = match random.below(3) {
            0 => 0x4000 + random.below(1 << 16),
            _ => 0x4000 + (random.below(1 << 10) << 6) + page % 64,
        };
        runs.push((page, frame, count));
        page += count + random.below(2) * random.below(5);
    }
    runs
}

fn with_memory<T>(test: impl FnOnce(&SliceMemory<'_>) -> T) -> T {
    let mut words = vec![0; 512 * 16];
    test(&SliceMemory::new(Pfn::new(0), &mut words))
}

/// The frame of each page.
fn frames_of(runs: &[(u64, u64, u64)]) -> Vec<Option<u64>> {
    let mut frames = vec![None; PAGES as usize];
    for &(page, frame, count) in runs {
        for i in 0..count {
            frames[(page + i) as usize] = Some(frame + i);
        }
    }
    frames
}

/// The pages that one entry should have around `page`: straight from what is said of each rule.
fn expected(join: Join, frames: &[Option<u64>], runs: &[(u64, u64, u64)], page: u64) -> (u64, u64) {
    let goes_on = |from: u64, to: u64| {
        let first = frames[from as usize];
        first.is_some()
            && (from..to).all(|p| frames[p as usize] == first.map(|first| first + p - from))
    };
    match join {
        Join::Whole { log2 } => {
            let count = 1 << log2.min(3);
            let from = page / count * count;
            let is =
                goes_on(from, from + count) && frames[from as usize].unwrap().is_multiple_of(count);
            if is { (from, count) } else { (page, 1) }
        }
        Join::Part { log2 } => {
            let count = 1 << log2.min(3);
            let group = page / count * count;
            let (mut from, mut to) = (page, page + 1);
            while from > group && goes_on(from - 1, to) {
                from -= 1;
            }
            while to < group + count && goes_on(from, to + 1) {
                to += 1;
            }
            (from, to - from)
        }
        Join::Table { log2 } => {
            let run = runs.iter().find(|(start, _, count)| (*start..start + count).contains(&page));
            let &(start, _, count) = run.unwrap();
            let group = page >> log2 << log2;
            let from = start.max(group);
            (from, (start + count).min(group + (1 << log2)) - from)
        }
        Join::Fragment { log2_max } => {
            let &(start, frame, count) = runs
                .iter()
                .find(|(start, _, count)| (*start..start + count).contains(&page))
                .unwrap();
            (0..=log2_max)
                .rev()
                .map(|log2| (page >> log2 << log2, 1 << log2))
                .find(|&(from, len)| {
                    from >= start
                        && from + len <= start + count
                        && (frame + from - start).is_multiple_of(len)
                })
                .unwrap()
        }
    }
}

#[test]
fn an_entry_has_what_the_rule_says() {
    let joins = [
        Join::Whole { log2: 2 },
        Join::Whole { log2: 3 },
        Join::Part { log2: 2 },
        // More than a line has.
        Join::Part { log2: 5 },
        Join::Fragment { log2_max: 9 },
        Join::Fragment { log2_max: 3 },
        Join::Table { log2: 4 },
        Join::Table { log2: 9 },
    ];
    let mut joined = [0; 8];
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let runs = random_runs(&mut random);
        let frames = frames_of(&runs);
        with_memory(|memory| {
            SPACE.link(memory, 0);
            runs.iter().for_each(|&(page, frame, count)| SPACE.map(memory, page, frame, count));
            for (join, joined) in joins.into_iter().zip(&mut joined) {
                let regime = match join {
                    Join::Fragment { .. } | Join::Table { .. } => SPACE.regime(PCAD),
                    _ => SPACE.regime(Coalescing::None),
                };
                let mut tlb = Joined::new(regime, Geometry::fully_associative(8), join).unwrap();
                // The pages of each entry, the least recently used first.
                let mut entries: Vec<(u64, u64)> = Vec::new();
                for _ in 0..60 {
                    let page = random.below(PAGES);
                    let place = format_args!("seed {seed}, {join:?}, page {page}");
                    let addr = VirtAddr::new(page << 12 | random.below(4096));
                    let found = tlb.access(addr, memory);
                    let Some(frame) = frames[page as usize] else {
                        let fault = TranslationFault::Translation { page: addr.page(), level: 3 };
                        assert_eq!(found, Err(fault), "{place}");
                        continue;
                    };
                    let found = found.unwrap();
                    assert_eq!(found.addr.raw(), frame << 12 | addr.page_offset(), "{place}");
                    let hit =
                        entries.iter().position(|(from, len)| (*from..from + len).contains(&page));
                    assert_eq!(
                        matches!(found.outcome, TlbOutcome::Hit(_)),
                        hit.is_some(),
                        "{place}"
                    );
                    let entry = match hit {
                        Some(at) => entries.remove(at),
                        None => expected(join, &frames, &runs, page),
                    };
                    *joined += u64::from(entry.1 > 1);
                    // No two entries have a page in common under any of the rules.
                    if hit.is_none() && entries.len() == 8 {
                        entries.remove(0);
                    }
                    entries.push(entry);
                }
            }
        });
    }
    assert!(joined.iter().all(|joined| *joined > 500), "{joined:?}");
}

#[test]
fn other_attributes_end_a_group() {
    with_memory(|memory| {
        SPACE.link(memory, 0);
        SPACE.map(memory, 0, 0x40, 8);
        // Page 2 may not be written.
        memory.write_u64(SPACE.at(3, 2), 0x42 << 12 | 0x65).unwrap();
        let hits = |join, first: u64, second: u64| {
            let regime = SPACE.regime(Coalescing::None);
            let mut tlb = Joined::new(regime, Geometry::fully_associative(8), join).unwrap();
            tlb.access(VirtAddr::new(first << 12), memory).unwrap();
            let second = tlb.access(VirtAddr::new(second << 12), memory).unwrap();
            matches!(second.outcome, TlbOutcome::Hit(_))
        };
        assert!(!hits(Join::Whole { log2: 2 }, 0, 1));
        assert!(hits(Join::Whole { log2: 2 }, 4, 7));
        assert!(hits(Join::Part { log2: 3 }, 0, 1));
        assert!(!hits(Join::Part { log2: 3 }, 0, 2));
        assert!(hits(Join::Part { log2: 3 }, 3, 7));
    });
}

/// Writes the runs as a list of ranges.
fn write_list(memory: &SliceMemory<'_>, runs: &[(u64, u64, u64)]) {
    memory.write_u64(LIST.count(), runs.len() as u64).unwrap();
    for (index, &(page, frame, count)) in (0..).zip(runs) {
        let words = [(BASE_BYTES, page), (BOUND_BYTES, page + count), (TARGET_BYTES, frame)];
        for (offset, word) in words.into_iter().chain([(RIGHTS_BYTES, 1)]) {
            let at = PhysAddr::new(LIST.entry(index).raw() + offset);
            memory.write_u64(at, word).unwrap();
        }
    }
}

#[test]
fn ranges_are_redundant() {
    let (mut by_range, mut by_page) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let runs = random_runs(&mut random);
        let frames = frames_of(&runs);
        // Of the runs a part is in the list: the other pages have their table alone.
        let listed: Vec<_> =
            runs.iter().copied().filter(|_| random.below(3) > 0).take(100).collect();
        with_memory(|memory| {
            SPACE.link(memory, 0);
            runs.iter().for_each(|&(page, frame, count)| SPACE.map(memory, page, frame, count));
            write_list(memory, &listed);
            let regime = SPACE.regime(Coalescing::None);
            let (pages, ranges) = (Geometry::fully_associative(4), 1 + random.below(8) as u32);
            let mut unit = RedundantRanges::new(regime, pages, LIST, ranges).unwrap();
            let (mut last_pages, mut last_ranges): (Vec<u64>, Vec<u64>) = Default::default();
            for _ in 0..200 {
                let page = random.below(PAGES);
                let place = format_args!("seed {seed}, page {page}");
                let found = unit.access(VirtAddr::new(page << 12), memory);
                let Some(frame) = frames[page as usize] else {
                    assert!(found.is_err(), "{place}");
                    continue;
                };
                let found = found.unwrap();
                assert_eq!(found.addr.raw(), frame << 12, "{place}");
                let range = listed.iter().position(|(p, _, count)| (*p..p + count).contains(&page));
                let range = range.map(|range| range as u64);
                let in_pages = last_pages.iter().position(|one| *one == page);
                let in_ranges = last_ranges.iter().position(|one| Some(*one) == range);
                let is_hit = matches!(found.outcome, TlbOutcome::Hit(_));
                assert_eq!(is_hit, in_pages.is_some() || in_ranges.is_some(), "{place}");
                // A page's entry is looked for first, and no range's is used then.
                if let Some(at) = in_pages {
                    last_pages.remove(at);
                    last_pages.push(page);
                    by_page += 1;
                    continue;
                }
                if let Some(at) = in_ranges {
                    let range = last_ranges.remove(at);
                    last_ranges.push(range);
                    by_range += 1;
                    continue;
                }
                last_pages.push(page);
                last_pages.drain(..last_pages.len().saturating_sub(4));
                last_ranges.extend(range);
                last_ranges.drain(..last_ranges.len().saturating_sub(ranges as usize));
            }
            let stats = unit.stats();
            assert_eq!(stats.l1.accesses, stats.l1.hits() + stats.l1.misses, "seed {seed}");
            assert_eq!(stats.walk.regular_walks, stats.l1.misses, "seed {seed}");
            assert!(stats.walk.anchor_reads <= stats.walk.anchor_walks * 8, "seed {seed}");
        });
    }
    assert!(by_range > 1000 && by_page > 100, "{by_range} {by_page}");
}

#[test]
fn a_list_without_a_frame_is_refused() {
    let list = SegmentList { root: PhysAddr::new(0x8008) };
    let regime = SPACE.regime(Coalescing::None);
    let refused = RedundantRanges::new(regime, Geometry::default(), list, 4).unwrap_err();
    assert_eq!(refused, MmuConfigError::Root { root: list.root });
}

#[test]
fn offsets_are_learnt_and_forgotten() {
    with_memory(|memory| {
        SPACE.link(memory, 0);
        SPACE.map(memory, 0, 0x1000, 64);
        SPACE.map(memory, 64, 0x3000, 64);
        let regime = SPACE.regime(Coalescing::None);
        let one = Geometry::fully_associative(1);
        let mut unit = OffsetPrediction::new(regime, one, 3, 9).unwrap();
        let mut outcome = |page: u64| unit.access(VirtAddr::new(page << 12), memory).unwrap().1;
        use OffsetOutcome::{Hit, Right, Waited, Wrong};
        // Seen once and twice: confidence 1, 2. Then it predicts.
        let outcomes: Vec<_> = [0, 0, 1, 2, 3].map(&mut outcome).into();
        assert_eq!(outcomes, [Waited, Hit, Waited, Right, Right]);
        // Another run: 3 to 2, to 1, then no guess, learnt anew at 0, and sure at 2.
        let outcomes: Vec<_> = [64, 65, 66, 67, 68].map(&mut outcome).into();
        assert_eq!(outcomes, [Wrong, Wrong, Waited, Waited, Right]);
        let stats = unit.stats();
        assert_eq!((stats.right, stats.wrong, stats.mmu.tlb.misses), (3, 2, 9));
    });
}

#[test]
fn a_prediction_never_changes_an_address() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let runs = random_runs(&mut random);
        let frames = frames_of(&runs);
        with_memory(|memory| {
            SPACE.link(memory, 0);
            runs.iter().for_each(|&(page, frame, count)| SPACE.map(memory, page, frame, count));
            let (regime, tlb) = (SPACE.regime(Coalescing::None), Geometry::fully_associative(2));
            let mut unit = OffsetPrediction::new(regime, tlb, 4, random.below(6) as u32).unwrap();
            let mut page = 0;
            for _ in 0..300 {
                page = if random.below(4) == 0 { random.below(PAGES) } else { (page + 1) % PAGES };
                match (unit.access(VirtAddr::new(page << 12), memory), frames[page as usize]) {
                    (Ok((access, _)), Some(frame)) => assert_eq!(access.addr.raw(), frame << 12),
                    (Err(_), None) => {}
                    (found, frame) => panic!("seed {seed}, page {page}: {found:?}, {frame:?}"),
                }
            }
            right += unit.stats().right;
            wrong += unit.stats().wrong;
        });
    }
    assert!(right > 2000 && wrong > 500, "{right} {wrong}");
}

/// The host maps the guest's frames 0 to 511; the guest's tables are there at 0x10.
const HOST: Space = Space(1);

/// Writes both tables: the host's runs, and the guest's, whose words lie where the host's say.
fn nest(
    memory: &SliceMemory<'_>,
    host: &[(u64, u64, u64)],
    guest: &[(u64, u64, u64)],
) -> (Regime, Regime) {
    HOST.link(memory, 0);
    host.iter().for_each(|&(page, frame, count)| HOST.map(memory, page, frame, count));
    // The guest's frames 8 to 12 are the frames 0x20 to 0x24.
    let guest_space = Space(0x20);
    guest_space.link(memory, 0x18);
    guest.iter().for_each(|&(page, frame, count)| guest_space.map(memory, page, frame, count));
    let root = PhysAddr::new(8 << 12);
    (Regime { root, ..guest_space.regime(PCAD) }, HOST.regime(PCAD))
}

fn nested_memory<T>(test: impl FnOnce(&SliceMemory<'_>) -> T) -> T {
    let mut words = vec![0; 512 * 0x30];
    test(&SliceMemory::new(Pfn::new(0), &mut words))
}

const GUEST_TABLES: (u64, u64, u64) = (8, 0x20, 5);

#[test]
fn four_levels_over_four_are_24_reads() {
    nested_memory(|memory| {
        let (guest, host) = nest(memory, &[GUEST_TABLES, (100, 0x500, 50)], &[(7, 110, 20)]);
        let one = Geometry::fully_associative(1);
        let mut unit = Nested::new(guest, host, one, None).unwrap();
        let found = unit.access(VirtAddr::new(0x9_123), memory).unwrap();
        assert_eq!(found.addr, PhysAddr::new(0x50c_123));
        assert_eq!(found.outcome, TlbOutcome::Miss(EntryKind::Regular));
        let stats = unit.stats();
        assert_eq!((stats.guest_reads, stats.host_reads), (4, 20));
        // With a TLB for the host's part: one walk for the tables, which are one run, one for the data.
        let mut unit = Nested::new(guest, host, one, Some(Geometry::fully_associative(8))).unwrap();
        unit.access(VirtAddr::new(0x9_123), memory).unwrap();
        let stats = unit.stats();
        assert_eq!((stats.guest_reads, stats.host_reads), (4, 8));
        assert_eq!((stats.host_tlb.accesses, stats.host_tlb.misses), (5, 2));
    });
}

#[test]
fn an_entry_is_what_both_tables_have() {
    let mut longer = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut host = vec![GUEST_TABLES];
        let mut page = 16;
        while page < PAGES {
            let longest = 1 << random.below(7);
            let count = (1 + random.below(longest)).min(PAGES - page);
            host.push((page, 0x4000 + random.below(1 << 16), count));
            page += count + random.below(2) * random.below(5);
        }
        let guest: Vec<_> = random_runs(&mut random)
            .into_iter()
            .filter_map(|(page, _, count)| {
                let frame = 16 + random.below(PAGES - 16);
                (frame + count <= PAGES).then_some((page, frame, count))
            })
            .collect();
        let (guest_frames, host_frames) = (frames_of(&guest), frames_of(&host));
        nested_memory(|memory| {
            let (guest_regime, host_regime) = nest(memory, &host, &guest);
            let host_tlb = (seed % 2 == 0).then(|| Geometry::fully_associative(4));
            let tlb = Geometry::fully_associative(1);
            let mut unit = Nested::new(guest_regime, host_regime, tlb, host_tlb).unwrap();
            // The pages of the one entry.
            let mut entry: Option<PageRange> = None;
            let mut page = 0;
            for _ in 0..200 {
                page = if random.below(3) == 0 { random.below(PAGES) } else { (page + 1) % PAGES };
                let place = format_args!("seed {seed}, page {page}");
                let found = unit.access(VirtAddr::new(page << 12), memory);
                let Some(frame) = guest_frames[page as usize] else {
                    assert!(matches!(found, Err(NestedFault::Guest(_))), "{place}: {found:?}");
                    continue;
                };
                let Some(host_frame) = host_frames[frame as usize] else {
                    let at = PhysAddr::new(frame << 12);
                    let fault = TranslationFault::Translation { page: Vpn::new(frame), level: 3 };
                    assert_eq!(found, Err(NestedFault::Host { at, fault }), "{place}");
                    continue;
                };
                let found = found.unwrap();
                assert_eq!(found.addr.raw(), host_frame << 12, "{place}");
                let is_hit = matches!(found.outcome, TlbOutcome::Hit(_));
                let is_within = entry.is_some_and(|entry| entry.contains(Vpn::new(page)));
                assert_eq!(is_hit, is_within, "{place}");
                let around = |runs: &[(u64, u64, u64)], page: u64| {
                    let run = runs.iter().find(|(p, _, count)| (*p..p + count).contains(&page));
                    run.map(|(p, _, count)| (page - p, p + count - page)).unwrap()
                };
                if !is_hit {
                    let (guest, host) = (around(&guest, page), around(&host, frame));
                    let (before, after) = (guest.0.min(host.0), guest.1.min(host.1));
                    entry = Some(PageRange::new(Vpn::new(page - before), before + after));
                    longer += u64::from(before + after > 1);
                }
            }
        });
    }
    assert!(longer > 2000, "{longer}");
}

#[test]
fn a_guest_whose_tables_the_host_lacks_faults_in_the_host() {
    nested_memory(|memory| {
        let (guest, host) = nest(memory, &[(8, 0x20, 2), (100, 0x500, 50)], &[(7, 110, 20)]);
        let mut unit = Nested::new(guest, host, Geometry::default(), None).unwrap();
        let found = unit.access(VirtAddr::new(7 << 12), memory);
        let fault = TranslationFault::Translation { page: Vpn::new(10), level: 3 };
        assert_eq!(found, Err(NestedFault::Host { at: PhysAddr::new(10 << 12), fault }));
        assert_eq!(unit.stats().faults, 1);
        // What may not be written in the host may not be in the guest.
        let (guest, host) = nest(memory, &[GUEST_TABLES, (100, 0x500, 50)], &[(7, 110, 20)]);
        memory.write_u64(HOST.at(3, 110), 0x50a << 12 | 0x65).unwrap();
        let mut unit = Nested::new(guest, host, Geometry::default(), None).unwrap();
        assert!(!unit.access(VirtAddr::new(7 << 12), memory).unwrap().attributes.writable);
    });
}
