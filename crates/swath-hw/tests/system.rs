//! The timed system: closed formulas held exactly, conservation, order and fairness.

use std::collections::{HashMap, HashSet};

use crate::system_tables::{AT, DATA, PCAD, TRAD, Tables, mmu, raster, read, regime, run, write};
use swath_arch::VirtAddr;
use swath_arch::testing::Random;
use swath_hw::{
    Cycle, Geometry, Hierarchy, HierarchyConfig, Mmu, Pace, SharedBuffer, System, SystemConfig,
    SystemEvent, SystemStats, Transaction, Translate, WalkOrder, Wiring, WriteResponse,
};

// The memory of SystemConfig::paper(), unloaded: to a closed bank, to an open row.
const CLOSED: Cycle = 5 + 5 + 4;
const HIT: Cycle = 5 + 4;
/// A lookup, the way there, the way back.
const LOOKUP: Cycle = 1;
const GO: Cycle = 1;
const BACK: Cycle = 1;
/// Beats of a transaction and of a descriptor.
const DATA_BEATS: Cycle = 4;
const WALK_BEATS: Cycle = 1;

/// An MMU that has met a page already.
fn warm(tables: &Tables<'_>, pages: impl IntoIterator<Item = u64>) -> Mmu {
    let mut mmu = mmu(TRAD);
    for page in pages {
        mmu.access(VirtAddr::new(page << 12), &tables.memory).unwrap();
    }
    mmu.reset_stats();
    mmu
}

/// The events of a run beside its figures.
fn observed<T: Translate>(
    config: &SystemConfig,
    tables: &Tables<'_>,
    masters: impl IntoIterator<Item = (T, Vec<Transaction>)>,
) -> (SystemStats, Vec<SystemEvent>) {
    let masters = masters.into_iter().map(|(mmu, stream)| (mmu, stream.into_iter()));
    let system = System::new(config, masters).unwrap();
    let mut events = Vec::new();
    let stats = system.run_observed(&tables.memory, |event| events.push(event)).unwrap();
    (stats, events)
}

fn written(stream: &[Transaction]) -> Vec<Transaction> {
    stream.iter().map(|t| Transaction { write: true, ..*t }).collect()
}

#[test]
fn an_unloaded_read_takes_the_sum_of_its_ways() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x100, 1, DATA);
    let stats =
        run(&SystemConfig::paper(), &tables, [(warm(&tables, [0x10]), vec![read(0x10_040)])]);
    let latency = LOOKUP + GO + CLOSED + DATA_BEATS + BACK;
    assert_eq!(latency, 21);
    assert_eq!(stats.masters[0].read_latency.max_cycles(), latency);
    assert_eq!(stats.masters[0].cycles(), latency);
    assert_eq!(stats.total_cycles, latency);
    assert_eq!(stats.masters[0].walk_cycles, 0);

    // Each part counts once.
    let mut config = SystemConfig::paper();
    config.iommu.lookup_cycles = 10;
    config.interconnect.request_cycles = 20;
    config.interconnect.response_cycles = 40;
    config.interconnect.beat_bytes = 8;
    let stats = run(&config, &tables, [(warm(&tables, [0x10]), vec![read(0x10_040)])]);
    assert_eq!(stats.total_cycles, 10 + 20 + CLOSED + 8 + 40);
    config.iommu.lookup_cycles = 0;
    config.interconnect.request_cycles = 0;
    config.interconnect.response_cycles = 0;
    config.interconnect.beat_bytes = 64;
    let stats = run(&config, &tables, [(warm(&tables, [0x10]), vec![read(0x10_040)])]);
    assert_eq!(stats.total_cycles, CLOSED + 1);
}

#[test]
fn an_unloaded_write_ends_when_it_is_written_or_when_it_is_accepted() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x100, 1, DATA);
    let mut config = SystemConfig::paper();
    let stats = run(&config, &tables, [(warm(&tables, [0x10]), vec![write(0x10_040)])]);
    // CWL is CL.
    assert_eq!(stats.masters[0].write_latency.max_cycles(), LOOKUP + GO + CLOSED + BACK);
    config.interconnect.write_response = WriteResponse::Accepted;
    let stats = run(&config, &tables, [(warm(&tables, [0x10]), vec![write(0x10_040)])]);
    assert_eq!(stats.masters[0].write_latency.max_cycles(), LOOKUP + GO + DATA_BEATS + BACK);
    assert_eq!(stats.total_cycles, LOOKUP + GO + CLOSED);
}

/// One transaction every four cycles, and the next refresh is far.
#[test]
fn a_stream_is_limited_by_its_data_channel() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x100, 2, DATA);
    let reads = raster(0x10_000, 128);
    let config = SystemConfig::paper();
    let stats = run(&config, &tables, [(warm(&tables, [0x10, 0x11]), reads.clone())]);
    let first = LOOKUP + GO + CLOSED;
    assert_eq!(stats.total_cycles, first + 128 * DATA_BEATS + BACK);
    assert_eq!(stats.interconnect.read_beats, 128 * DATA_BEATS);
    let bandwidth = stats.bandwidth_bytes_per_cycle();
    assert!((15.0..16.0).contains(&bandwidth), "{bandwidth}");

    // The last write begins when the others' beats are over, and hits its row.
    let stats = run(&config, &tables, [(warm(&tables, [0x10, 0x11]), written(&reads))]);
    assert_eq!(stats.total_cycles, LOOKUP + GO + 127 * DATA_BEATS + HIT + BACK);
    assert_eq!(stats.interconnect.write_beats, 128 * DATA_BEATS);

    // A bus as wide as a transaction: the memory gives one a cycle after the first
    // of each channel.
    let mut wide = config;
    wide.interconnect.beat_bytes = 64;
    wide.outstanding_max = 64;
    let stats = run(&wide, &tables, [(warm(&tables, [0x10, 0x11]), reads)]);
    assert_eq!(stats.total_cycles, first + 128 + BACK);
}

#[test]
fn one_at_a_time_pays_every_latency() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x100, 1, DATA);
    let config = SystemConfig { outstanding_max: 1, ..SystemConfig::paper() };
    let stats = run(&config, &tables, [(warm(&tables, [0x10]), raster(0x10_000, 64))]);
    let ways = LOOKUP + GO + DATA_BEATS + BACK;
    // Four lines open the row in their channels.
    assert_eq!(stats.total_cycles, 4 * (ways + CLOSED) + 60 * (ways + HIT));
    assert_eq!(stats.masters[0].in_flight_max, 1);
}

/// A walk's reads depend on each other; the three banks are different ones.
#[test]
fn a_miss_takes_its_dependent_reads() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map_anchors(0x12, 0x110, 2, DATA);
    let config = SystemConfig::paper();
    let one = |closed| GO + closed + WALK_BEATS + BACK;
    let data = GO + CLOSED + DATA_BEATS + BACK;
    for coalescing in [TRAD, PCAD] {
        let stats = run(&config, &tables, [(mmu(coalescing), vec![read(0x12_000)])]);
        let miss = LOOKUP + 2 * one(CLOSED);
        assert_eq!(stats.masters[0].miss_latency.max_cycles(), miss);
        assert_eq!(stats.masters[0].walk_cycles, miss);
        assert_eq!(stats.total_cycles, miss + data);
        assert_eq!(stats.dram.total().reads, 3);
        assert_eq!(stats.interconnect.walk_requests, 2);
        assert_eq!(stats.interconnect.read_beats, 2 * WALK_BEATS + DATA_BEATS);
        assert_eq!(stats.masters[0].translation.walk.reads(), 2);
    }
    // AT reads both descriptors again for the anchor; their rows are open now.
    let mut at = config;
    // If the transaction goes on early, the anchor's first read meets it at the arbiter.
    for (early, wait, met) in [(false, 2 * one(HIT), 0), (true, 0, 1)] {
        at.iommu.early_regular = early;
        let stats = run(&at, &tables, [(mmu(AT), vec![read(0x12_000)])]);
        let regular = LOOKUP + 2 * one(CLOSED);
        assert_eq!(stats.masters[0].miss_latency.max_cycles(), regular + 2 * one(HIT) + met);
        assert_eq!(stats.masters[0].read_latency.max_cycles(), regular + wait + data);
        assert_eq!(stats.masters[0].translation.walk.anchor_walks, 1);
        assert_eq!(stats.dram.total().reads, 5);
    }
}

/// A second walk finds both lines: it takes no more than the lookup and two answers, and the
/// third, of another line of leaves, reads that one line whole.
#[test]
fn a_descriptor_cache_answers_for_the_lines_that_it_has() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x110, 20, DATA);
    let line = GO + CLOSED + DATA_BEATS + BACK;
    let line_open = GO + HIT + DATA_BEATS + BACK;
    let mut config = SystemConfig { outstanding_max: 1, ..SystemConfig::paper() };
    config.iommu.descriptor_lines = 2;
    for cycles in [1, 7] {
        config.iommu.descriptor_cycles = cycles;
        let answer = Cycle::from(cycles);
        let stream = vec![read(0x10_000), read(0x11_000), read(0x20_000)];
        let (stats, events) = observed(&config, &tables, [(mmu(TRAD), stream)]);
        let stats = &stats.masters[0];
        // The two of the second walk, and the upper level of the third.
        assert_eq!(stats.descriptor_hits, 3);
        let mut issued = [0; 3];
        let mut accepted = Vec::new();
        for event in events {
            match event {
                SystemEvent::Issued { cycle, number, .. } => issued[number as usize] = cycle,
                SystemEvent::Accepted { cycle, walk, .. } => accepted.push((cycle, walk)),
                SystemEvent::Completed { .. } => {}
            }
        }
        let walks: Vec<bool> = accepted.iter().map(|&(_, walk)| walk).collect();
        assert_eq!(walks, [true, true, false, false, true, false]);
        assert_eq!(accepted[2].0, LOOKUP + 2 * line + GO);
        // The data's request leaves in the cycle of the last answer, not one before.
        assert_eq!(accepted[3].0, issued[1] + LOOKUP + 2 * answer + GO);
        let third = issued[2] + LOOKUP + answer;
        assert_eq!(accepted[4].0, third + GO);
        let waited = accepted[5].0 - third;
        assert!([line, line_open].map(|line| line + GO).contains(&waited), "{waited}");
    }
    // One line holds either level but not both: the second walk reads both again.
    config.iommu.descriptor_lines = 1;
    let stats = run(&config, &tables, [(mmu(TRAD), vec![read(0x10_000), read(0x11_000)])]);
    assert_eq!(stats.masters[0].descriptor_hits, 0);
    assert_eq!(stats.interconnect.walk_requests, 4);
    assert_eq!(stats.interconnect.read_beats, (4 + 2) * DATA_BEATS);
}

/// The issue cycles of one master's transactions.
fn issues(config: &SystemConfig, tables: &Tables<'_>, stream: Vec<Transaction>) -> Vec<Cycle> {
    let (_, events) = observed(config, tables, [(warm(tables, [0x10, 0x11]), stream)]);
    let issued = events.into_iter().filter_map(|event| match event {
        SystemEvent::Issued { cycle, .. } => Some(cycle),
        _ => None,
    });
    issued.collect()
}

/// A read waits for a read and a write for a write where each has a limit of its own; nothing passes
/// the one that waits, as a master issues in order.
#[test]
fn reads_and_writes_in_flight_have_a_limit_each_if_they_may() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x110, 2, DATA);
    let stream = vec![read(0x10_000), write(0x11_040), read(0x10_080), write(0x11_0c0)];
    let mut config = SystemConfig { outstanding_max: 1, ..SystemConfig::paper() };
    let whole = LOOKUP + GO + CLOSED + DATA_BEATS + BACK;
    let together = issues(&config, &tables, stream.clone());
    assert_eq!(together[..2], [0, whole]);
    config.outstanding_each = true;
    let each = issues(&config, &tables, stream);
    // The write goes beside the read; the second read waits for the first, to the cycle.
    assert_eq!(each[..3], [0, 1, whole]);
    assert!(each[3] > whole);
}

/// A transaction is held back until its cycle and not a cycle longer; one that was held up by
/// others catches up.
#[test]
fn a_pace_holds_back_to_the_cycle() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x110, 2, DATA);
    let mut config = SystemConfig::paper();
    config.paces = vec![Some(Pace { transactions: 2, cycles: 201 })];
    assert_eq!(issues(&config, &tables, raster(0x10_000, 5)), [0, 100, 201, 301, 402]);
    config.paces = vec![Some(Pace { transactions: 1, cycles: 10 })];
    config.outstanding_max = 1;
    let whole = LOOKUP + GO + CLOSED + DATA_BEATS + BACK;
    // 21 cycles each, then an open row's 16.
    assert_eq!(issues(&config, &tables, raster(0x10_000, 3))[..2], [0, whole]);
    config.paces = vec![None];
    config.outstanding_max = 16;
    assert_eq!(issues(&config, &tables, raster(0x10_000, 3)), [0, 1, 2]);
}

/// What follows a miss waits for it, or not.
#[test]
fn hits_pass_a_miss_if_they_may() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    // Nothing meets anything else in a channel.
    tables.map(0x10, 0x110, 1, DATA);
    tables.map(0x20, 0x118, 1, DATA);
    let stream = vec![read(0x20_000), read(0x10_080), read(0x20_040)];
    let mut config = SystemConfig::paper();
    let miss = LOOKUP + 2 * (GO + CLOSED + WALK_BEATS + BACK);
    let completions = |config: &SystemConfig| {
        let (stats, events) = observed(config, &tables, [(warm(&tables, [0x10]), stream.clone())]);
        let mut order = Vec::new();
        let mut issued = HashMap::new();
        for event in events {
            match event {
                SystemEvent::Completed { number, .. } => order.push(number),
                SystemEvent::Issued { number, cycle, .. } => {
                    issued.insert(number, cycle);
                }
                SystemEvent::Accepted { .. } => {}
            }
        }
        (stats, order, issued)
    };
    let (stats, order, issued) = completions(&config);
    assert_eq!(order, [0, 1, 2]);
    assert_eq!((issued[&1], issued[&2]), (miss, miss + 1));
    assert_eq!(stats.masters[0].walk_cycles, miss);

    config.iommu.hit_under_miss = true;
    let (stats, order, issued) = completions(&config);
    assert_eq!(order, [1, 0, 2]);
    // The third joins the walk for its page.
    assert_eq!((issued[&1], issued[&2]), (1, 2));
    assert_eq!(stats.masters[0].translation.walk.walks(), 1);
    assert_eq!(stats.masters[0].translation.l1.misses, 2);
}

/// With one walker a second miss waits, with two they overlap.
#[test]
fn walks_overlap_if_there_are_walkers() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    for mib in 0..4 {
        tables.map(mib << 8, 0x100 + mib, 1, DATA);
    }
    let stream: Vec<_> = (0..4).map(|mib| read(mib << 20)).collect();
    let mut config = SystemConfig::paper();
    let cycles = |config: &SystemConfig| {
        let stats = run(config, &tables, [(mmu(TRAD), stream.clone())]);
        assert_eq!(stats.masters[0].translation.walk.walks(), 4);
        assert_eq!(stats.interconnect.walk_requests, 8);
        stats.total_cycles
    };
    let blocking = cycles(&config);
    config.iommu.walks_max = 4;
    assert_eq!(cycles(&config), blocking);
    config.iommu.hit_under_miss = true;
    let four = cycles(&config);
    config.iommu.walks_max = 1;
    let one = cycles(&config);
    assert!(four < one && one <= blocking, "{four} {one} {blocking}");
}

#[test]
fn every_transaction_completes_once_and_no_more_are_in_flight() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0, 0x100, 700, DATA);
    let down =
        |columns: u64| (0..columns).flat_map(|c| (0..40).map(move |row| c * 64 + row * 0x1400));
    for outstanding_max in [1, 3, 16] {
        let config = SystemConfig { outstanding_max, ..SystemConfig::paper() };
        let masters = [
            (mmu(TRAD), down(20).map(read).collect()),
            (mmu(PCAD), down(20).map(|a| write(a + 0x100_000)).collect::<Vec<_>>()),
            (mmu(TRAD), raster(0x200_000, 500)),
        ];
        let lens: Vec<u64> = masters.iter().map(|(_, stream)| stream.len() as u64).collect();
        let (stats, events) = observed(&config, &tables, masters);
        let mut in_flight = vec![HashSet::new(); 3];
        let mut next = [0; 3];
        let mut most = [0; 3];
        let mut accepted = 0;
        let mut last = 0;
        for event in events {
            let cycle = match event {
                SystemEvent::Issued { cycle, master, number, .. } => {
                    assert_eq!(number, next[master]);
                    next[master] += 1;
                    assert!(in_flight[master].insert(number));
                    most[master] = most[master].max(in_flight[master].len());
                    cycle
                }
                SystemEvent::Completed { cycle, master, number, .. } => {
                    assert!(in_flight[master].remove(&number));
                    cycle
                }
                SystemEvent::Accepted { cycle, .. } => {
                    accepted += 1;
                    cycle
                }
            };
            assert!(cycle >= last);
            last = cycle;
        }
        for (i, master) in stats.masters.iter().enumerate() {
            assert_eq!(next[i], lens[i]);
            assert!(in_flight[i].is_empty());
            assert_eq!(master.transactions(), lens[i]);
            assert_eq!(master.len_bytes(), 64 * lens[i]);
            assert_eq!(most[i], master.in_flight_max as usize);
            assert!(master.in_flight_max <= outstanding_max);
            assert_eq!(master.read_latency.count() + master.write_latency.count(), lens[i]);
            assert_eq!(master.translation.l1.accesses, lens[i]);
        }
        // One entry serves the writer, so its misses hold nothing up.
        assert_eq!(stats.masters[1].in_flight_max, outstanding_max);
        let dram = stats.dram.total();
        let bus = &stats.interconnect;
        let walks: u64 = stats.masters.iter().map(|m| m.translation.walk.reads()).sum();
        let reads = lens[0] + lens[2];
        assert!(walks > 0);
        assert_eq!(bus.walk_requests, walks);
        assert_eq!(bus.requests, accepted);
        assert_eq!(bus.requests, reads + lens[1] + walks);
        assert_eq!(bus.read_beats, DATA_BEATS * reads + walks);
        assert_eq!(bus.write_beats, DATA_BEATS * lens[1]);
        assert_eq!(bus.wait.count(), bus.requests);
        assert_eq!(dram.reads + dram.forwarded_reads, reads + walks);
        assert_eq!(dram.writes, lens[1]);
        assert!(dram.queued_max <= 4 * 16);
        assert_eq!(stats.total_cycles, last);
    }
}

/// Two masters of one kind get as much, whoever comes first.
#[test]
fn equal_masters_are_served_alike() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0, 0x100, 1024, DATA);
    for wiring in [Wiring::Shared, Wiring::PerMaster] {
        for writes in [false, true] {
            let mut config = SystemConfig::paper();
            config.interconnect.wiring = wiring;
            let stream = |n: u64| {
                // Each in a bank of its own.
                let stream = raster(n * 0x108_000, 2000);
                if writes { written(&stream) } else { stream }
            };
            let masters = (0..3).map(|n| (mmu(PCAD), stream(n)));
            let (stats, events) = observed(&config, &tables, masters);
            let mut served = [0i64; 3];
            for event in events {
                let SystemEvent::Accepted { master, walk: false, .. } = event else { continue };
                served[master] += 1;
                let most = served.iter().max().unwrap();
                let least = served.iter().min().unwrap();
                // What a bank with an open row takes first is never a whole window.
                assert!(most - least < 16, "{served:?}");
            }
            let cycles: Vec<Cycle> = stats.masters.iter().map(|m| m.cycles()).collect();
            let (most, least) = (cycles.iter().max().unwrap(), cycles.iter().min().unwrap());
            assert!(most - least <= most / 50, "{cycles:?}");
        }
    }
}

/// A crossbar lets two masters take data at once, a shared channel does not.
#[test]
fn wiring_decides_what_two_masters_get() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0, 0x100, 1024, DATA);
    let mut config = SystemConfig::paper();
    let mut cycles = |wiring| {
        config.interconnect.wiring = wiring;
        let masters = (0..2).map(|n| (mmu(PCAD), raster(n * 0x108_000, 2000)));
        run(&config, &tables, masters).total_cycles
    };
    let (shared, crossbar) = (cycles(Wiring::Shared), cycles(Wiring::PerMaster));
    assert!(shared >= 2 * 2000 * DATA_BEATS, "{shared}");
    assert!(crossbar >= 2000 * DATA_BEATS && crossbar < shared * 6 / 10, "{crossbar}");
}

/// The display reads each line of the frame after the camera has written it,
/// in whichever order it was written.
#[test]
fn no_line_is_read_before_it_is_written() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0, 0x100, 300, DATA);
    let lines = 1000;
    for step in [1, 7, 333] {
        let start = 0x20_000;
        let camera = (0..lines).map(|n| write(start + n * step % lines * 64)).collect();
        let display = raster(start, lines);
        let mut config = SystemConfig::paper();
        config.shared = vec![SharedBuffer { start: VirtAddr::new(start), len_bytes: lines * 64 }];
        let masters = [(mmu(PCAD), display), (mmu(PCAD), camera)];
        let (stats, events) = observed(&config, &tables, masters);
        let mut written = HashMap::new();
        let mut woken_at_once = 0;
        for event in events {
            match event {
                SystemEvent::Completed {
                    transaction: Transaction { addr, write: true },
                    cycle,
                    ..
                } => {
                    written.insert(addr, cycle);
                }
                SystemEvent::Issued {
                    transaction: Transaction { addr, write: false },
                    cycle,
                    ..
                } => {
                    assert!(written[&addr] <= cycle);
                    woken_at_once += u64::from(written[&addr] == cycle);
                }
                _ => {}
            }
        }
        assert!(woken_at_once > 0);
        assert!(stats.masters[0].shared_wait_cycles > 0);
        assert_eq!(stats.masters[1].shared_wait_cycles, 0);
        assert_eq!(stats.masters[0].reads, lines);
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0, 0x100, 700, DATA);
    let once = || {
        let down = (0..2000).map(|n| read(n % 40 * 0x1400 + n / 40 * 64)).collect::<Vec<_>>();
        let masters = [(mmu(PCAD), down), (mmu(PCAD), written(&raster(0x100_000, 1500)))];
        observed(&SystemConfig::paper(), &tables, masters)
    };
    assert_eq!(once(), once());
}

/// One line, twice: a walk that a cache shortens begins below the root.
#[test]
fn a_hierarchy_pays_by_its_levels() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x110, 4, DATA);
    let of = HierarchyConfig {
        l1: Geometry::fully_associative(1).into(),
        l2: Geometry::fully_associative(8).into(),
        ..HierarchyConfig::default()
    };
    let config = SystemConfig { outstanding_max: 1, ..SystemConfig::paper() };
    let one = |latency| GO + latency + WALK_BEATS + BACK;
    let data = |latency| GO + latency + DATA_BEATS + BACK;
    let l2 = Cycle::from(of.l2_cycles);
    let new = || Hierarchy::new(regime(TRAD), &of).unwrap();
    let stream = vec![read(0x10_000), read(0x10_000), read(0x11_000), read(0x10_000)];
    let stats = run(&config, &tables, [(new(), stream)]);
    let expected = [
        // Both levels, and a closed bank each.
        LOOKUP + l2 + 2 * one(CLOSED) + data(CLOSED),
        LOOKUP + data(HIT),
        // The leaf alone, in the row of the leaf before.
        LOOKUP + l2 + one(HIT) + data(HIT),
        // Found in the second TLB.
        LOOKUP + l2 + data(HIT),
    ];
    assert_eq!(stats.total_cycles, expected.iter().sum::<Cycle>());
    let translation = stats.masters[0].translation;
    assert_eq!((translation.l1.hits(), translation.l2.hits()), (1, 1));
    assert_eq!((translation.walk.walks(), translation.walk.reads()), (2, 3));
    assert_eq!((translation.walk_cache_hits, translation.walk_cache_saved_reads), (1, 1));
}

/// What a hierarchy translates is what an MMU alone translates, in every design.
#[test]
fn a_hierarchy_translates_as_an_mmu_does() {
    for coalescing in [TRAD, PCAD, AT] {
        let mut words = Vec::new();
        let tables = Tables::new(&mut words);
        let mut random = Random::new(7);
        let mut page = 0;
        while page < 1800 {
            let count = 1 + random.below(20);
            let frame = 0x1000 + random.below(0x4000);
            match coalescing {
                AT => tables.map_anchors(page, frame, count, DATA),
                _ => tables.map(page, frame, count, DATA),
            }
            page += count + random.below(3);
        }
        let of = HierarchyConfig {
            l1: Geometry::fully_associative(4).into(),
            l2: Geometry { sets: 4, ways: 4, index_shift: 2 }.into(),
            walk_cache_entries: 3,
            ..HierarchyConfig::default()
        };
        let mut mmu = mmu(coalescing);
        let mut hierarchy = Hierarchy::new(regime(coalescing), &of).unwrap();
        let mut at = 0;
        for _ in 0..20_000 {
            at = if random.one_in(8) { random.below(1800) } else { at + 1 };
            let addr = VirtAddr::new(at << 12 | 0x40);
            let alone = mmu.access(addr, &tables.memory).map(|a| (a.addr, a.attributes));
            let ours = hierarchy.access(addr, &tables.memory).map(|a| (a.addr, a.attributes));
            assert_eq!(ours, alone);
            hierarchy.check().unwrap();
            if random.one_in(100) {
                hierarchy.invalidate_page(addr.page());
                hierarchy.check().unwrap();
            }
        }
        let stats = hierarchy.stats();
        assert!(stats.l2.hits() > 0 && stats.walk_cache_hits > 0, "{stats:?}");
        assert_eq!(stats.l2.accesses, stats.l1.misses);
        // Each walk, a faulting one too, reads two levels but for what was saved.
        assert_eq!(stats.walk.reads(), 2 * stats.walk.walks() - stats.walk_cache_saved_reads);
        hierarchy.invalidate_all();
        hierarchy.check().unwrap();
        assert_eq!(hierarchy.l1().peek(VirtAddr::new(0).page()), None);
        assert_eq!(hierarchy.l2().peek(VirtAddr::new(0).page()), None);
    }
}

/// A second TLB of one entry that takes no time never has what the first lacks: a hierarchy with
/// it is one TLB, beside which a walk cache can stand.
#[test]
fn a_second_tlb_of_one_entry_is_none() {
    for coalescing in [TRAD, PCAD, AT] {
        let mut words = Vec::new();
        let tables = Tables::new(&mut words);
        let mut random = Random::new(11);
        let mut page = 0;
        while page < 1800 {
            let count = 1 + random.below(12);
            match coalescing {
                AT => tables.map_anchors(page, 0x1000 + page * 3, count, DATA),
                _ => tables.map(page, 0x1000 + page * 3, count, DATA),
            }
            page += count;
        }
        let of = HierarchyConfig {
            l1: Geometry::fully_associative(4).into(),
            l2: Geometry::fully_associative(1).into(),
            l2_cycles: 0,
            walk_cache_entries: 0,
            ..HierarchyConfig::default()
        };
        let stream = |random: &mut Random| -> Vec<Transaction> {
            let at = (0..3000).map(|_| (random.below(40) * random.below(40)) << 12);
            at.map(|at| read(at | 0x40)).collect()
        };
        for walks_max in [1, 4] {
            let mut config = SystemConfig::paper();
            config.iommu.walks_max = walks_max;
            config.iommu.hit_under_miss = walks_max > 1;
            let stream = stream(&mut random);
            let alone = || {
                Mmu::new(regime(coalescing), Geometry::fully_associative(4), WalkOrder::default())
            };
            let (_, alone) = observed(&config, &tables, [(alone().unwrap(), stream.clone())]);
            let hierarchy = Hierarchy::new(regime(coalescing), &of).unwrap();
            let (stats, ours) = observed(&config, &tables, [(hierarchy, stream)]);
            assert_eq!(stats.masters[0].translation.l2.hits(), 0);
            assert!(ours == alone, "{coalescing:?}, {walks_max} walks");
        }
    }
}
