//! The RTMMU and the conventional unit: what they grant against the conditions as
//! `swath_arch::validity` states them, and when, against closed formulas.

use std::cell::{Cell, RefCell};

use crate::rtmmu_arrays::{ARRAYS, Arrays, BASE, K, OPERATIONS, PAGES, TABLE, arrays_unit, byte};
use proptest::prelude::*;
use swath_arch::testing::Random;
use swath_arch::{
    BASE_PAGE_BYTES, BusError, NodeTables, Pfn, PhysAddr, PhysMemory, SliceMemory, ValidityTables,
    Vpn, validity,
};
use swath_hw::{
    Cycle, Geometry, GeometryError, Operation, PageRights, PageTable, PortReads, RtFault,
    RtLatency, RtTables, RtTablesError, Rtmmu,
};

/// Accesses every page in every way: by the pure function, with time, and as `data` says. Each
/// access is asked for when the one before is over, and all take the same time.
fn compare(tables: RtTables, memory: &impl PhysMemory, data: impl Fn(u64) -> Option<u64>) {
    let mut unit = Rtmmu::new(tables, RtLatency::PAPER, None).unwrap();
    let mut now = 0;
    for page in 0..1 << tables.pages_log2() {
        let pure = tables.translate(Vpn::new(page), memory);
        let got = pure.ok().map(|mapped| {
            let PageRights { read, write, execute } = mapped.rights;
            let bits = [read, write, execute].map(u64::from);
            mapped.frame.raw() << 3 | bits[0] | bits[1] << 1 | bits[2] << 2
        });
        assert_eq!(got, data(page), "page {page}: {pure:?}");
        for operation in OPERATIONS {
            let access = unit.access(now, byte(page), operation, memory);
            let expected = pure.and_then(|mapped| {
                let rights = mapped.rights;
                if rights.permit(operation) {
                    Ok(PhysAddr::new(mapped.frame.address().raw() | 0x123))
                } else {
                    Err(RtFault::Denied { page: Vpn::new(page), operation, rights })
                }
            });
            assert_eq!(access.result, expected, "page {page}");
            assert_eq!(access.cycles(), if expected.is_ok() { 4 } else { 2 });
            now = access.done;
        }
    }
}

/// For one page, all words that can decide about it.
#[test]
fn every_combination_of_the_four_words() {
    for page in [0, 1, 17, 31] {
        for start in (0..=PAGES).chain([u64::from(u32::MAX)]) {
            for place in (0..=PAGES).chain([u64::from(u32::MAX)]) {
                for end in [0, 1, place, place + 1, start, PAGES, PAGES + 1, u64::from(u32::MAX)] {
                    for holder in [page, page ^ 1, u64::from(u32::MAX)] {
                        let mut arrays = Arrays(vec![0; 160]);
                        arrays.set(ARRAYS.data, page, 0xabc << 3 | 5);
                        arrays.set(ARRAYS.regions, page, start);
                        arrays.set(ARRAYS.helper, page, place);
                        if start < PAGES {
                            arrays.set(ARRAYS.stack_end, start, end);
                        }
                        if place < PAGES {
                            arrays.set(ARRAYS.stack, place, holder);
                        }
                        let expected = arrays.data(page).map(|_| PhysAddr::new(0xabc123));
                        let access = arrays.with(|memory| {
                            let mut unit = arrays_unit(RtLatency::PAPER, None);
                            unit.access(0, byte(page), Operation::Read, memory)
                        });
                        let what = (page, start, place, end, holder);
                        assert_eq!(access.result.ok(), expected, "{what:?}");
                        assert_eq!(access.cycles(), if expected.is_some() { 4 } else { 2 });
                        let [first, second] = [start <= page, place < PAGES].map(u64::from);
                        let reads = PortReads { regions: 1 + first, stack: 1 + second, data: 1 };
                        assert_eq!(access.reads, reads, "{what:?}");
                    }
                }
            }
        }
    }
}

/// Small numbers are the dangerous ones: they hit each other.
fn garbage() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..34_u32, 1 => any::<u32>()]
}

proptest! {
    #[test]
    fn arrays_full_of_garbage(words in prop::collection::vec(garbage(), 160)) {
        let arrays = Arrays(words);
        arrays.with(|memory| {
            let data = |page| arrays.data(page).map(u64::from);
            compare(RtTables::regions(ARRAYS).unwrap(), memory, data);
        });
    }

    #[test]
    fn a_page_table_full_of_garbage(words in prop::collection::vec(garbage(), 160)) {
        let arrays = Arrays(words);
        arrays.with(|memory| {
            let data = |page| Some(u64::from(arrays.0[page as usize])).filter(|word| word & 7 != 0);
            compare(RtTables::page_table(TABLE).unwrap(), memory, data);
        });
    }

    /// Arrays that overlap, and that lie where only some memory answers.
    #[test]
    fn bases_anywhere(
        words in prop::collection::vec(garbage(), 160),
        bases in prop::collection::vec(0..200_u64, 5),
        page in 0..PAGES,
    ) {
        let at = |i: usize| PhysAddr::new(BASE.raw() - 64 + 4 * bases[i]);
        let tables = ValidityTables {
            pages_log2: K, data: at(0), helper: at(1), stack: at(2), stack_end: at(3), regions: at(4),
        };
        let tables = RtTables::regions(tables).unwrap();
        Arrays(words).with(|memory| {
            let mut unit = Rtmmu::new(tables, RtLatency::PAPER, None).unwrap();
            let access = unit.access(0, byte(page), Operation::Read, memory);
            let pure = tables.translate(Vpn::new(page), memory);
            match (access.result, pure) {
                (Err(RtFault::Denied { rights, .. }), Ok(mapped)) => {
                    assert_eq!(rights, mapped.rights);
                }
                (result, pure) => {
                    let pure = pure.map(|mapped| mapped.frame.address());
                    assert_eq!(result.map(|addr| addr.frame().address()), pure);
                }
            }
            assert_eq!(access.cycles(), if access.result.is_ok() { 4 } else { 2 });
        });
    }

    /// Nodes that lead anywhere: to one another, to themselves, to where no memory is.
    #[test]
    fn nodes_full_of_garbage(seed in any::<u64>(), pages_log2 in 1..=40_u32) {
        const FRAMES: u64 = 3;
        let mut random = Random::new(seed);
        let mut words = vec![0; FRAMES as usize * 512];
        for node in words.chunks_mut(512) {
            for place in 0..256 {
                node[place] = validity::NODE_FRAME.set(random.word(), random.below(FRAMES + 1));
                // Half of the entries are their own region: most of these are valid.
                let own = place as u64 * 0x01_0101;
                let end = random.below(512);
                let control = if random.below(8) < 7 { own } else { random.word() };
                node[256 + place] = validity::NODE_STACK_END.set(control, end);
            }
        }
        let copy = words.clone();
        let memory = SliceMemory::new(Pfn::new(0), &mut words);
        let tables = NodeTables { pages_log2, root: Pfn::new(random.below(FRAMES)) };
        let unit = RtTables::nodes(tables).unwrap();
        for _ in 0..64 {
            let page = random.word() >> (64 - pages_log2);
            // By the rule as it stands: all entries on the way are valid.
            let mut node = tables.root.raw() as usize;
            let mut expected = Ok(0);
            for level in (0..tables.levels()).rev() {
                let Some(words) = copy.get(512 * node..512 * (node + 1)) else {
                    expected = Err((level, true));
                    break;
                };
                let control = |place: usize| words[256 + place];
                let b = (page >> (8 * level) & 255) as usize;
                let a = (control(b) >> 16 & 255) as usize;
                let j = (control(b) >> 8 & 255) as usize;
                let end = (control(a) >> 32 & 511) as usize;
                if a > b || j < a || j >= end || control(j) as usize & 255 != b {
                    expected = Err((level, false));
                    break;
                }
                node = (words[b] >> 12 & 0xff_ffff_ffff) as usize;
                expected = Ok(words[b] & 7);
            }
            let mut timed = Rtmmu::new(unit, RtLatency::PAPER, None).unwrap();
            let access = timed.access(0, byte(page), Operation::Read, &memory);
            let levels = u64::from(tables.levels());
            match (expected, access.result, unit.translate(Vpn::new(page), &memory)) {
                (Ok(rights), result, Ok(mapped)) => {
                    assert_eq!(mapped.frame.raw() as usize, node);
                    assert_eq!(result.is_ok(), rights & 1 != 0);
                    assert_eq!(access.reads.total(), 4 * levels);
                    assert_eq!(access.cycles(), 2 * levels + 2 * u64::from(result.is_ok()));
                }
                (Err((level, bus)), Err(timed), Err(pure)) => {
                    assert_eq!(timed, pure);
                    let is_bus = matches!(pure, RtFault::Bus { .. });
                    assert_eq!(is_bus, bus);
                    assert_eq!(access.cycles(), 2 * (levels - u64::from(level)));
                }
                other => panic!("page {page:#x}: {other:?}"),
            }
        }
    }
}

/// Memory that notes when it was read.
struct Clocked<'m> {
    memory: SliceMemory<'m>,
    now: Cell<Cycle>,
    log: RefCell<Vec<(Cycle, PhysAddr)>>,
}

impl<'m> Clocked<'m> {
    fn new(memory: SliceMemory<'m>) -> Self {
        Self { memory, now: Cell::new(0), log: RefCell::default() }
    }

    fn note(&self, addr: PhysAddr) {
        self.log.borrow_mut().push((self.now.get(), addr));
    }
}

impl PhysMemory for Clocked<'_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        self.note(addr);
        self.memory.read_u32(addr)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.note(addr);
        self.memory.read_u64(addr)
    }

    fn write_u32(&self, addr: PhysAddr, _: u32) -> Result<(), BusError> {
        Err(BusError { addr, len_bytes: 4 })
    }

    fn write_u64(&self, addr: PhysAddr, _: u64) -> Result<(), BusError> {
        Err(BusError { addr, len_bytes: 8 })
    }
}

fn latencies() -> impl Iterator<Item = RtLatency> {
    let all = (0..5 * 5 * 5 * 3).map(|n| [n % 5, n / 5 % 5, n / 25 % 5, n / 125]);
    all.map(|[fast, table, data, tlb]| RtLatency { fast, table, data, tlb })
}

/// A chain of `levels` nodes in frames 3, 4, …, in which the way to page 0 is valid, with rights
/// to read frame 0x77, down to the level `broken`, if any.
fn chain(levels: u32, broken: Option<u32>) -> Vec<u64> {
    let mut words = vec![0; 512 * levels as usize];
    for level in 0..levels {
        let node = (levels - 1 - level) as usize;
        let frame = if level == 0 { 0x77 } else { BASE.frame().raw() + node as u64 + 1 };
        words[512 * node] = frame << 12 | 1;
        words[512 * node + 256] = u64::from(broken != Some(level)) << 32;
    }
    words
}

/// The result is not there at clock n − 1, and is at n.
fn ready_at(unit: &mut Rtmmu, page: u64, memory: &impl PhysMemory, n: Cycle) {
    let asked = 10_000;
    let mut walk = unit.begin(asked, byte(page), Operation::Read);
    if n > 0 {
        walk.advance(asked + n - 1, memory);
        assert_eq!(walk.result(), None, "ready before {n}");
        assert!(walk.next_event().is_some_and(|at| at <= asked + n), "ready after {n}");
    }
    walk.advance(asked + n, memory);
    assert!(walk.result().is_some(), "not ready at {n}");
    assert_eq!(walk.next_event(), None);
    let access = unit.complete(walk).unwrap();
    assert_eq!((access.asked, access.done), (asked, asked + n));
}

#[test]
fn the_arrays_are_ready_when_the_formula_says() {
    let arrays = Arrays::example(1);
    arrays.with(|memory| {
        for latency in latencies() {
            let [f, t, m, l] = [latency.fast, latency.table, latency.data, latency.tlb];
            let verdict = Cycle::from(t.max(2 * f));
            let (m, l) = (Cycle::from(m), Cycle::from(l));
            let tlb = Some(Geometry::fully_associative(4));
            for page in [4, 6, 9] {
                ready_at(&mut arrays_unit(latency, None), page, memory, verdict + m);
                let mut unit = arrays_unit(latency, tlb);
                assert_eq!(unit.access_cycles(), l + verdict + m);
                ready_at(&mut unit, page, memory, l + verdict + m);
                let mut unit = arrays_unit(latency, tlb);
                unit.access(0, byte(page), Operation::Read, memory);
                ready_at(&mut unit, page, memory, l + m);
            }
            // Whatever the cause of a fault, and though nothing is read after it.
            for page in [0, 5, 31] {
                ready_at(&mut arrays_unit(latency, None), page, memory, verdict);
                let mut unit = arrays_unit(latency, tlb);
                assert_eq!(unit.fault_cycles(), l + verdict);
                ready_at(&mut unit, page, memory, l + verdict);
            }
            ready_at(&mut arrays_unit(latency, tlb), PAGES, memory, 0);
        }
    });
}

#[test]
fn the_conventional_unit_is_ready_when_the_formula_says() {
    let arrays = Arrays::example(1);
    let tables = RtTables::page_table(TABLE).unwrap();
    arrays.with(|memory| {
        for latency in latencies() {
            let unit = || Rtmmu::new(tables, latency, None).unwrap();
            let RtLatency { table, data, .. } = latency;
            ready_at(&mut unit(), 6, memory, Cycle::from(table + data));
            ready_at(&mut unit(), 7, memory, Cycle::from(table));
        }
    });
}

/// With memories at double speed the RTMMU is as fast as the conventional unit; at one
/// speed one read slower, and it accepts accesses as often (section IV-A2, footnote 2).
#[test]
fn the_paper_compares_so() {
    let conventional =
        |latency| Rtmmu::new(RtTables::page_table(TABLE).unwrap(), latency, None).unwrap();
    let cycles = |unit: &Rtmmu| (unit.access_cycles(), unit.interval_cycles());
    assert_eq!(cycles(&arrays_unit(RtLatency::PAPER, None)), (4, 4));
    assert_eq!(cycles(&conventional(RtLatency::PAPER)), (4, 4));
    assert_eq!(cycles(&arrays_unit(RtLatency::ONE_SPEED, None)), (6, 4));
    assert_eq!(cycles(&conventional(RtLatency::ONE_SPEED)), (4, 4));
}

#[test]
fn nodes_are_ready_when_the_formula_says() {
    for levels in 1..=5 {
        let tables = NodeTables { pages_log2: 8 * levels, root: BASE.frame() };
        let tables = RtTables::nodes(tables).unwrap();
        for broken in (0..levels).map(Some).chain([None]) {
            let mut words = chain(levels, broken);
            let memory = SliceMemory::new(BASE.frame(), &mut words);
            for latency in latencies() {
                let level = Cycle::from(latency.table.max(2 * latency.fast));
                let n = match broken {
                    None => level * Cycle::from(levels) + Cycle::from(latency.data),
                    Some(broken) => level * Cycle::from(levels - broken),
                };
                ready_at(&mut Rtmmu::new(tables, latency, None).unwrap(), 0, &memory, n);
            }
            let mut unit = Rtmmu::new(tables, RtLatency::PAPER, None).unwrap();
            let reads = unit.access(0, byte(0), Operation::Read, &memory).reads;
            let used = u64::from(levels - broken.unwrap_or(0));
            assert_eq!(reads, PortReads { regions: 2 * used, stack: used, data: used });
        }
    }
}

/// Accesses asked for all at once: each port does one thing at a time, and as many as
/// the interval says get through.
#[test]
fn ports_are_never_shared() {
    let arrays = Arrays::example(1);
    let schemes =
        [RtTables::regions(ARRAYS), RtTables::page_table(TABLE)].map(|tables| tables.unwrap());
    let nodes = (1..=3).map(|levels| {
        let tables = NodeTables { pages_log2: 8 * levels, root: BASE.frame() };
        (RtTables::nodes(tables).unwrap(), chain(levels, None))
    });
    let words: Vec<u64> =
        arrays.0.chunks(2).map(|pair| u64::from(pair[1]) << 32 | u64::from(pair[0])).collect();
    let all: Vec<_> =
        schemes.map(|tables| (tables, words.clone())).into_iter().chain(nodes).collect();
    for (tables, mut words) in all {
        let memory = Clocked::new(SliceMemory::new(BASE.frame(), &mut words));
        for latency in latencies().filter(|latency| latency.tlb == 0) {
            // Mapped pages only; then faults among them; then hits of a TLB too.
            for kind in 0..3 {
                let geometry = (kind == 2).then_some(Geometry::fully_associative(2));
                let mut unit = Rtmmu::new(tables, latency, geometry).unwrap();
                let pages: &[u64] = match (tables.levels(), tables.pages_log2() == K, kind) {
                    (_, false, _) => &[0; 6],
                    (_, _, 0) => &[4, 6, 9, 4, 6, 9],
                    _ => &[4, 5, 9, 4, 4, 31],
                };
                check_ports(&mut unit, latency, pages, &memory, kind == 0);
            }
        }
    }
}

fn check_ports(
    unit: &mut Rtmmu,
    latency: RtLatency,
    pages: &[u64],
    memory: &Clocked<'_>,
    in_step: bool,
) {
    let RtLatency { fast, table, data, .. } = latency;
    // With a TLB, the first page is in it.
    if unit.tlb().is_some() {
        unit.access(0, byte(pages[0]), Operation::Read, memory);
    }
    memory.log.borrow_mut().clear();
    let asked = 100;
    // Cycles in which a port is busy: 1, 2, 3; those of nodes' control words stand under 0.
    let mut busy: [Vec<Cycle>; 4] = Default::default();
    let mut take = |port: usize, end: Cycle, cycles: u32| {
        assert!(end >= cycles.into());
        busy[port].extend(end - Cycle::from(cycles)..end);
    };
    let mut walks: Vec<_> =
        pages.iter().map(|&page| Some(unit.begin(asked, byte(page), Operation::Read))).collect();
    let mut done = 0;
    for now in asked..asked + 400 {
        memory.now.set(now);
        for (i, slot) in walks.iter_mut().enumerate() {
            let Some(mut walk) = slot.take() else { continue };
            walk.advance(now, memory);
            match unit.complete(walk) {
                Err(walk) => *slot = Some(walk),
                Ok(access) => {
                    done += 1;
                    if access.result.is_ok() {
                        take(3, access.done, data);
                    }
                    if in_step {
                        let cycles = unit.access_cycles() + i as Cycle * unit.interval_cycles();
                        assert_eq!(access.done, asked + cycles, "access {i} with {latency:?}");
                    }
                }
            }
        }
    }
    assert_eq!(done, pages.len());
    let nodes = unit.tables().pages_log2() != K;
    for &(end, addr) in memory.log.borrow().iter() {
        let (port, cycles) = if nodes {
            if addr.raw() % BASE_PAGE_BYTES < validity::NODE_CONTROL_BYTES {
                (3, table)
            } else {
                (0, fast)
            }
        } else {
            match (addr.raw() - BASE.raw()) / (4 * PAGES) {
                0 => (3, table),
                1 | 2 => (2, fast),
                _ => (1, fast),
            }
        };
        take(port, end, cycles);
    }
    for (port, cycles) in busy.iter_mut().enumerate() {
        cycles.sort_unstable();
        // Ports one and two read control words, of which two may be under way.
        let most = if port == 0 { 2 } else { 1 };
        let shared = cycles.windows(most + 1).find(|some| some[0] == some[most]);
        assert_eq!(shared, None, "port {port} with {latency:?}");
    }
}

#[test]
fn tables_that_cannot_be() {
    let arrays = |pages_log2, base| {
        RtTables::regions(ValidityTables { pages_log2, ..ValidityTables::consecutive(K, base) })
    };
    let bad = |pages_log2| Err(RtTablesError::PagesLog2 { pages_log2 });
    for pages_log2 in [0, 4, 32, 64, u32::MAX] {
        assert_eq!(arrays(pages_log2, BASE), bad(pages_log2));
        let table = PageTable { pages_log2, base: BASE };
        assert_eq!(RtTables::page_table(table), bad(pages_log2));
    }
    for pages_log2 in [0, 41, 64, u32::MAX] {
        assert_eq!(RtTables::nodes(NodeTables { pages_log2, root: Pfn::new(0) }), bad(pages_log2));
    }
    for base in [BASE.raw() + 2, u64::MAX - 3, u64::MAX - 400].map(PhysAddr::new) {
        assert!(matches!(arrays(K, base), Err(RtTablesError::Base { .. })));
    }
    let table = PageTable { pages_log2: K, base: PhysAddr::new(2) };
    assert_eq!(RtTables::page_table(table), Err(RtTablesError::Base { base: PhysAddr::new(2) }));
    let root = Pfn::new(1 << 40);
    let nodes = RtTables::nodes(NodeTables { pages_log2: 8, root });
    assert_eq!(nodes, Err(RtTablesError::Base { base: root.address() }));
    let tables = RtTables::regions(ARRAYS).unwrap();
    let none = Geometry::fully_associative(0);
    let error = Rtmmu::new(tables, RtLatency::PAPER, Some(none)).unwrap_err();
    assert_eq!(error, GeometryError::Entries { sets: 1, ways: 0 });
}

/// At the end of time nothing overflows.
#[test]
fn the_last_cycles() {
    Arrays::example(1).with(|memory| {
        let most = u32::MAX;
        let latency = RtLatency { fast: most, table: most, data: most, tlb: most };
        for tlb in [None, Some(Geometry::fully_associative(4))] {
            let mut unit = arrays_unit(latency, tlb);
            for now in [u64::MAX - 5, u64::MAX, u64::MAX] {
                let access = unit.access(now, byte(6), Operation::Read, memory);
                assert_eq!((access.done, access.result.is_ok()), (u64::MAX, true));
            }
        }
    });
}
