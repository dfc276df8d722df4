//! Segment registers: against a scan of the extents, on bytes that mean nothing, and to the cycle.

use swath_arch::segments::{
    BASE_BYTES, BOUND_BYTES, ENTRIES_MAX, RIGHTS_BYTES, SegmentList, TARGET_BYTES,
};
use swath_arch::testing::Random;
use swath_arch::{Pfn, PhysAddr, PhysMemory, SliceMemory, VirtAddr};
use swath_hw::{
    Cycle, MmuConfigError, SegmentRegisters, System, SystemConfig, SystemErrorCause, SystemEvent,
    TlbOutcome, Transaction, Translate, TranslationFault,
};

/// An extent as the words of an entry say it: base, bound, target, rights.
type Entry = [u64; 4];

const LIST: SegmentList = SegmentList { root: PhysAddr::new(0x8000) };

/// Writes a list of entries, whatever they say.
fn write_list(memory: &SliceMemory<'_>, entries: &[Entry]) {
    memory.write_u64(LIST.count(), entries.len() as u64).unwrap();
    for (index, entry) in (0..).zip(entries) {
        let offsets = [BASE_BYTES, BOUND_BYTES, TARGET_BYTES, RIGHTS_BYTES];
        for (offset, word) in offsets.into_iter().zip(entry) {
            let at = LIST.entry(index).raw() + offset;
            memory.write_u64(PhysAddr::new(at), *word).unwrap();
        }
    }
}

/// Calls `test` with two MiB of memory in which the list is.
fn with_list<T>(entries: &[Entry], test: impl FnOnce(&SliceMemory<'_>) -> T) -> T {
    let mut words = vec![0; (2 << 20) / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    write_list(&memory, entries);
    test(&memory)
}

/// Extents of random lengths, some side by side.
fn random_entries(random: &mut Random) -> Vec<Entry> {
    let mut base = random.below(20);
    (0..random.below(20))
        .map(|_| {
            let longest = 1 << random.below(12);
            let count = 1 + random.below(longest);
            let entry = [base, base + count, random.below(1 << 30), random.below(2)];
            base += count + random.below(2) * random.below(50);
            entry
        })
        .collect()
}

/// Calls `test` with a list of random extents in memory, and a number of registers.
fn with_random_list(seed: u64, test: impl FnOnce(&mut Random, &[Entry], u32, &SliceMemory<'_>)) {
    let mut random = Random::new(seed);
    let entries = random_entries(&mut random);
    let registers = 1 + random.below(24) as u32;
    with_list(&entries, |memory| test(&mut random, &entries, registers, memory));
}

#[test]
fn every_answer_is_that_of_a_scan() {
    let (mut hits, mut faults) = (0, 0);
    for seed in 0..200 {
        with_random_list(seed, |random, entries, registers, memory| {
            let mut unit = SegmentRegisters::new(LIST, registers).unwrap();
            let end = entries.last().map_or(10, |entry| entry[1] + 5);
            let mut loaded: Vec<u64> = Vec::new();
            let most = 2 + u64::from((entries.len() as u64).max(1).ilog2());
            for step in 0..300 {
                let page = random.below(end);
                let addr = VirtAddr::new(page << 12 | random.below(4096));
                let place = format_args!("seed {seed}, step {step}, page {page}");
                let before = unit.stats();
                let found = unit.access(addr, memory);
                let reads = unit.stats().walk.reads() - before.walk.reads();
                let entry =
                    entries.iter().find(|[base, bound, ..]| (*base..*bound).contains(&page));
                let Some(&[base, _, target, rights]) = entry else {
                    let fault = TranslationFault::Translation { page: addr.page(), level: 1 };
                    assert_eq!(found, Err(fault), "{place}");
                    assert!(reads <= most, "{place}: {reads} reads");
                    faults += 1;
                    continue;
                };
                let found = found.unwrap_or_else(|fault| panic!("{place}: {fault}"));
                let frame = target + page - base;
                assert_eq!(found.addr.raw(), frame << 12 | addr.page_offset(), "{place}");
                assert_eq!(found.attributes.writable, rights == 1, "{place}");
                // The least recently used goes.
                let hit = loaded.iter().position(|&other| other == base);
                assert_eq!(matches!(found.outcome, TlbOutcome::Hit(_)), hit.is_some(), "{place}");
                match hit {
                    Some(at) => {
                        loaded.remove(at);
                        assert_eq!(reads, 0, "{place}");
                        hits += 1;
                    }
                    None => {
                        assert!((1..=most).contains(&reads), "{place}: {reads} reads");
                        if loaded.len() == registers as usize {
                            loaded.remove(0);
                        }
                    }
                }
                loaded.push(base);
            }
        });
    }
    assert!(hits > 1000 && faults > 1000, "{hits}, {faults}");
}

/// Another list is not seen before the unit is told.
#[test]
fn what_was_loaded_stays_until_it_is_invalidated() {
    with_list(&[[0, 8, 0x40, 1], [8, 16, 0x80, 0]], |memory| {
        let mut unit = SegmentRegisters::new(LIST, 4).unwrap();
        let frame = |unit: &mut SegmentRegisters, page: u64| {
            unit.access(VirtAddr::new(page << 12), memory).map(|found| found.addr.raw() >> 12)
        };
        assert_eq!(frame(&mut unit, 3), Ok(0x43));
        write_list(memory, &[[0, 8, 0x100, 1], [8, 16, 0x200, 0], [16, 24, 0x300, 0]]);
        assert_eq!(frame(&mut unit, 4), Ok(0x44));
        // Not loaded before, so it is read now; the number of entries was.
        assert_eq!(frame(&mut unit, 9), Ok(0x201));
        assert!(frame(&mut unit, 17).is_err());
        unit.invalidate_all();
        assert_eq!(frame(&mut unit, 4), Ok(0x104));
        assert_eq!(frame(&mut unit, 17), Ok(0x301));
        let [wrong, other] = [0x8010, 0x20_0000].map(PhysAddr::new);
        assert_eq!(unit.set_root(wrong), Err(MmuConfigError::Root { root: wrong }));
        assert_eq!(frame(&mut unit, 5), Ok(0x105));
        unit.set_root(other).unwrap();
        assert!(matches!(frame(&mut unit, 5), Err(TranslationFault::Bus { level: 0, .. })));
        assert!(SegmentRegisters::new(SegmentList { root: wrong }, 1).is_err());
        assert!(SegmentRegisters::new(LIST, 0).is_err());
    });
}

/// What a driver has loaded takes no read; what there was no register for is searched.
#[test]
fn registers_that_are_loaded_are_those_of_the_first_entries() {
    for seed in 0..100 {
        with_random_list(seed, |random, entries, registers, memory| {
            let mut unit = SegmentRegisters::new(LIST, registers).unwrap();
            let loaded = unit.load(memory).unwrap();
            assert_eq!(loaded, (entries.len() as u64).min(registers.into()), "seed {seed}");
            for &[base, bound, target, rights] in &entries[..loaded as usize] {
                let page = base + random.below(bound - base);
                let found = unit.access(VirtAddr::new(page << 12), memory).unwrap();
                assert_eq!(found.addr.raw() >> 12, target + page - base, "seed {seed}");
                assert_eq!(found.attributes.writable, rights == 1, "seed {seed}");
            }
            assert_eq!(unit.stats().walk.reads(), 0, "seed {seed}");
            for &[base, _, target, _] in &entries[loaded as usize..] {
                let found = unit.access(VirtAddr::new(base << 12), memory).unwrap();
                assert_eq!(found.addr.raw() >> 12, target, "seed {seed}");
                assert!(unit.stats().walk.reads() > 0, "seed {seed}");
            }
            // Another list, in place of what they hold.
            write_list(memory, &[[0, 8, 0x300, 0]]);
            assert_eq!(unit.load(memory), Ok(1));
            assert_eq!(unit.access(VirtAddr::new(0), memory).unwrap().addr.raw(), 0x30_0000);
        });
    }
}

/// A list with an entry of no pages, backwards, or whose pages or frames have no numbers leaves all registers empty.
#[test]
fn a_list_that_cannot_be_loaded_leaves_registers_empty() {
    let last = 1 << 52;
    for wrong in [[9, 9, 0, 1], [9, 8, 0, 1], [9, last + 1, 0, 1], [9, 17, last - 4, 1]] {
        with_list(&[[0, 8, 0x40, 1], wrong], |memory| {
            let mut unit = SegmentRegisters::new(LIST, 4).unwrap();
            let (at, descriptor) = (LIST.entry(1), wrong[2]);
            let fault = TranslationFault::Reserved { level: 1, at, descriptor };
            assert_eq!(unit.load(memory), Err(fault), "{wrong:?}");
            assert!(unit.lookup(VirtAddr::new(0)).0.is_none(), "{wrong:?}");
            write_list(memory, &[[0, 8, 0x80, 1]]);
            assert_eq!(unit.access(VirtAddr::new(0), memory).unwrap().addr.raw(), 0x8_0000);
        });
    }
    with_list(&[], |memory| {
        let mut unit = SegmentRegisters::new(LIST, 4).unwrap();
        assert_eq!(unit.load(memory), Ok(0));
        memory.write_u64(LIST.count(), ENTRIES_MAX + 1).unwrap();
        assert!(matches!(unit.load(memory), Err(TranslationFault::Reserved { level: 0, .. })));
        let mut beyond =
            SegmentRegisters::new(SegmentList { root: PhysAddr::new(1 << 40) }, 4).unwrap();
        assert!(matches!(beyond.load(memory), Err(TranslationFault::Bus { level: 0, .. })));
    });
}

#[test]
fn no_bytes_make_a_search_panic_or_go_on() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut words = vec![0; 4 * 512];
        let memory = SliceMemory::new(Pfn::new(8), &mut words);
        for at in (0x8000..0xc000).step_by(8) {
            let shift = random.below(64) as u32;
            memory.write_u64(PhysAddr::new(at), random.word() >> shift).unwrap();
        }
        let count = [random.word(), random.below(600), 1 + random.below(4), ENTRIES_MAX];
        let count = count[seed as usize % 4];
        memory.write_u64(LIST.count(), count).unwrap();
        let mut unit = SegmentRegisters::new(LIST, 2).unwrap();
        let _ = unit.load(&memory);
        unit.invalidate_all();
        for _ in 0..100 {
            let shift = random.below(64) as u32;
            let before = unit.stats().walk.reads();
            let found = unit.access(VirtAddr::new(random.word() >> shift), &memory);
            let reads = unit.stats().walk.reads() - before;
            assert!(reads <= 22, "seed {seed}: {reads}");
            if count > ENTRIES_MAX {
                let at = LIST.count();
                let fault = TranslationFault::Reserved { level: 0, at, descriptor: count };
                assert_eq!(found, Err(fault), "seed {seed}");
            }
        }
    }
    // Frames beyond the last number.
    with_list(&[[0, 8, (1 << 52) - 4, 1]], |memory| {
        let mut unit = SegmentRegisters::new(LIST, 2).unwrap();
        let fault = unit.access(VirtAddr::new(0), memory).unwrap_err();
        assert!(matches!(fault, TranslationFault::Reserved { level: 1, .. }), "{fault}");
    });
}

// The memory of SystemConfig::paper(), unloaded: to a closed bank, to an open row.
const CLOSED: Cycle = 5 + 5 + 4;
const HIT: Cycle = 5 + 4;
const LOOKUP: Cycle = 1;
const GO: Cycle = 1;
const BACK: Cycle = 1;
/// Beats of the number of entries, of an entry and of data.
const COUNT_BEATS: Cycle = 1;
const ENTRY_BEATS: Cycle = 2;
const DATA_BEATS: Cycle = 4;

/// Three extents, whose data lie in frames of other banks than the list.
const THREE: [Entry; 3] = [[0, 4, 0x21, 1], [4, 0x20, 0x42, 1], [0x20, 0x90, 0x64, 0]];

/// Runs one accelerator; the cycles in which its transactions were issued, and the figures.
fn issued(
    config: &SystemConfig,
    memory: &SliceMemory<'_>,
    pages: &[u64],
) -> (Vec<Cycle>, swath_hw::SystemStats) {
    let stream =
        pages.iter().map(|page| Transaction { addr: VirtAddr::new(page << 12), write: false });
    let unit = SegmentRegisters::new(LIST, 4).unwrap();
    let system = System::new(config, [(unit, stream)]).unwrap();
    let mut issued = Vec::new();
    let stats = system.run_observed(memory, |event| {
        if let SystemEvent::Issued { cycle, .. } = event {
            issued.push(cycle);
        }
    });
    (issued, stats.unwrap())
}

#[test]
fn a_miss_takes_the_number_of_entries_and_a_search_by_halves() {
    with_list(&THREE, |memory| {
        let config = SystemConfig::paper();
        let data = GO + CLOSED + DATA_BEATS + BACK;
        // The number of entries and entry 0 share a line, entry 1 is in the next, which is in
        // another channel: its row is closed there.
        let count = GO + CLOSED + COUNT_BEATS + BACK;
        let middle = GO + HIT + ENTRY_BEATS + BACK;
        let other_line = GO + CLOSED + ENTRY_BEATS + BACK;
        for (page, searched, reads) in [
            // Entry 1 is the middle one.
            (4, other_line, 2),
            // Entry 1, then entry 0.
            (3, other_line + middle, 3),
            // Entry 1, then entry 2, which is in its line.
            (0x8f, other_line + middle, 3),
        ] {
            let (_, stats) = issued(&config, memory, &[page]);
            let miss = LOOKUP + count + searched;
            let master = &stats.masters[0];
            assert_eq!(master.translation.walk.reads(), reads, "page {page}");
            assert_eq!(master.miss_latency.max_cycles(), miss, "page {page}");
            assert_eq!(master.walk_cycles, miss, "page {page}");
            assert_eq!(stats.total_cycles, miss + data, "page {page}");
        }
    });
}

/// In the cycle before the extent arrives nothing is issued, and in that cycle the next is; what
/// is loaded never waits again, and another extent's first access reads entries only.
#[test]
fn the_next_access_waits_for_the_extent_and_not_a_cycle_longer() {
    with_list(&THREE, |memory| {
        let config = SystemConfig::paper();
        let count = GO + CLOSED + COUNT_BEATS + BACK;
        let entry = GO + CLOSED + ENTRY_BEATS + BACK;
        let loaded = LOOKUP + count + entry;
        let (cycles, stats) = issued(&config, memory, &[4, 0x1f, 5, 6]);
        assert_eq!(cycles, [0, loaded, loaded + 1, loaded + 2]);
        assert_eq!(stats.masters[0].translation.l1.misses, 1);
        // A lookup that takes longer delays the walk by as much, and no issue that hits.
        let mut slow = config.clone();
        slow.iommu.lookup_cycles = 9;
        let (cycles, _) = issued(&slow, memory, &[4, 0x1f, 5]);
        let later = loaded + 8;
        assert_eq!(cycles, [0, later, later + 1]);
        // The second extent: its two entries, without the number.
        let (cycles, stats) = issued(&config, memory, &[4, 0x20, 0x8f]);
        assert_eq!(cycles[1], loaded);
        assert_eq!(stats.masters[0].translation.walk.reads(), 4);
        assert!(cycles[2] > loaded + 1);
        let (cycles, stats) = issued(&config, memory, &[4, 0x20, 0x8f, 1, 0, 0x1f, 0x50, 2]);
        assert_eq!(stats.masters[0].translation.l1.misses, 3);
        let last: Vec<Cycle> = cycles[4..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(last, [1, 1, 1], "{cycles:?}");
    });
}

#[test]
fn writes_where_reads_only_are_allowed_and_pages_without_an_extent_end_the_run() {
    with_list(&THREE, |memory| {
        let run = |page: u64, write| {
            let stream = [Transaction { addr: VirtAddr::new(page << 12), write }];
            let unit = SegmentRegisters::new(LIST, 4).unwrap();
            let system = System::new(&SystemConfig::paper(), [(unit, stream.into_iter())]).unwrap();
            system.run(memory).map(|stats| stats.masters[0].writes)
        };
        assert_eq!(run(4, true), Ok(1));
        let denied = run(0x20, true).unwrap_err();
        assert!(matches!(denied.cause, SystemErrorCause::Denied(_)), "{denied}");
        let fault = run(0x90, false).unwrap_err();
        assert!(matches!(fault.cause, SystemErrorCause::Fault(_)), "{fault}");
    });
}
