//! A processor in simulated time: closed formulas held exactly, a slow model of the blocking
//! core beside the fast one, exceptions, and *Bodek*'s TLB-miss experiment.

use swath_arch::testing::Random;
use swath_arch::{Coalescing, Format, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr};
use swath_hw::Hierarchy;
use swath_hw::dram::{Dram, DramConfig, DramRequest};
use swath_hw::processor::{CacheConfig, presets};
use swath_hw::processor::{ExceptionCause, ProcessorConfig, ProcessorConfigError, WalksFrom};
use swath_hw::{
    Cycle, Denied, Geometry, MemoryAccess, Mmu, OfferError, Operation, Processor, TranslationFault,
    WalkOrder,
};

const L1: Cycle = 4;
const L2: Cycle = 10;

fn config() -> ProcessorConfig {
    ProcessorConfig {
        l1: CacheConfig { len_bytes: 1 << 10, ways: 2, line_bytes: 64 },
        l1_instructions: None,
        l1_cycles: L1 as u32,
        l2: CacheConfig { len_bytes: 8 << 10, ways: 4, line_bytes: 64 },
        l2_cycles: L2 as u32,
        memory_cycles: 0,
        dram: DramConfig::paper(),
        core_clock: 1,
        dram_clock: 1,
        walks_from: WalksFrom::L1,
        tlb_miss_cycles: 0,
        outstanding_max: 1,
        write_buffer_entries: 0,
        stream_after_lines: 0,
        prefetch_lines: 0,
        privileged: false,
    }
}

fn regime() -> Regime {
    Regime { format: Format::ArmV7, root: PhysAddr::new(0), coalescing: Coalescing::None }
}

fn processor(config: &ProcessorConfig) -> Processor<Mmu> {
    let mmu = Mmu::new(regime(), Geometry::fully_associative(16), WalkOrder::default()).unwrap();
    Processor::new(config, mmu).unwrap()
}

/// The memory alone: when each of some reads is done, each offered in its cycle of the core.
struct Alone {
    dram: Dram,
    clocks: (u64, u64),
}

impl Alone {
    fn new(config: &ProcessorConfig) -> Self {
        let clocks = (config.core_clock.into(), config.dram_clock.into());
        Self { dram: Dram::new(&config.dram).unwrap(), clocks }
    }

    fn reads(&mut self, reads: &[(Cycle, u64)]) -> Vec<Cycle> {
        let (core, memory) = self.clocks;
        let mut done = vec![0; reads.len()];
        for (id, &(at, addr)) in (0..).zip(reads) {
            let addr = PhysAddr::new(addr);
            let at = (at * memory).div_ceil(core);
            self.dram.offer(at, DramRequest { id, addr, write: false }).unwrap();
        }
        while let Some(cycle) = self.dram.next_event() {
            self.dram.advance(cycle);
            while let Some(end) = self.dram.take_done(cycle) {
                done[end.id as usize] = (end.cycle * core).div_ceil(memory);
            }
        }
        done
    }

    fn read(&mut self, at: Cycle, addr: u64) -> Cycle {
        self.reads(&[(at, addr)])[0]
    }

    fn write(&mut self, at: Cycle, addr: u64) -> Cycle {
        let (core, memory) = self.clocks;
        let request = DramRequest { id: 0, addr: PhysAddr::new(addr), write: true };
        self.dram.offer((at * memory).div_ceil(core), request).unwrap();
        let mut done = 0;
        while let Some(cycle) = self.dram.next_event() {
            self.dram.advance(cycle);
            while let Some(end) = self.dram.take_done(cycle) {
                done = (end.cycle * core).div_ceil(memory);
            }
        }
        done
    }
}

/// A root at 0 whose section `i` is identical for `i` below 16; the megabyte at 16 MiB has a
/// table of small pages at 0x8000, its page `i` on frame `0x1000 + i`.
fn tables(words: &mut Vec<u64>) -> SliceMemory<'_> {
    words.resize(0x1_0000 / 8, 0);
    let memory = SliceMemory::new(Pfn::new(0), words);
    for mib in 0..16 {
        memory.write_u32(PhysAddr::new(4 * mib), (mib as u32) << 20 | 0xc0e).unwrap();
    }
    memory.write_u32(PhysAddr::new(4 * 16), 0x8000 | 1).unwrap();
    for page in 0..256 {
        map(&memory, page, 0x1000 + page as u32, 0x03e);
    }
    memory
}

fn map(memory: &SliceMemory<'_>, page: u64, frame: u32, flags: u32) {
    memory.write_u32(PhysAddr::new(0x8000 + 4 * page), frame << 12 | flags).unwrap();
}

fn small(page: u64) -> VirtAddr {
    VirtAddr::new((16 << 20) + page * 4096)
}

#[test]
fn hits_take_the_first_caches_time() {
    let mut words = Vec::new();
    let memory = tables(&mut words);
    const N: u64 = 1000;
    // Blocking; pipelined, each after the data of the one before; pipelined and independent.
    for (outstanding_max, depends, cycles) in
        [(1, false, N * L1), (1, true, N * L1), (8, true, N * L1), (8, false, N - 1 + L1)]
    {
        let mut core = processor(&ProcessorConfig { outstanding_max, ..config() });
        let lines = [0x10_0000, 0x10_0040, 0x20_0080];
        for addr in lines {
            core.access(&memory, &MemoryAccess::read(VirtAddr::new(addr))).unwrap();
        }
        core.finish().unwrap();
        core.reset_stats();
        for i in 0..N {
            let access = MemoryAccess::read(VirtAddr::new(lines[i as usize % 3] + i % 64));
            core.access(&memory, &MemoryAccess { depends, ..access }).unwrap();
        }
        core.finish().unwrap();
        let stats = core.stats();
        assert_eq!(stats.cycles, cycles, "{outstanding_max} outstanding, {depends}");
        assert_eq!((stats.reads, stats.l1.hits, stats.l1.misses), (N, N, 0));
        assert_eq!((stats.dram_reads, stats.walks), (0, 0));
    }
    // Computing takes the time that it says, and nothing else happens meanwhile.
    let mut core = processor(&config());
    let read = MemoryAccess::read(VirtAddr::new(0x10_0000));
    let before = core.access(&memory, &read).unwrap();
    let after = core.access(&memory, &MemoryAccess { compute_cycles: 77, ..read }).unwrap();
    assert_eq!(after, before + 77 + L1);
}

#[test]
fn a_chain_of_misses_takes_what_the_memory_takes_alone() {
    for (core_clock, dram_clock) in [(1, 1), (2, 1), (1600, 800), (3, 2), (1, 3), (1333, 667)] {
        for (outstanding_max, memory_cycles) in [(1, 0), (1, 25), (4, 0), (4, 25)] {
            let config = ProcessorConfig {
                core_clock,
                dram_clock,
                outstanding_max,
                memory_cycles,
                ..config()
            };
            let mut words = Vec::new();
            let memory = tables(&mut words);
            let mut core = processor(&config);
            let mut alone = Alone::new(&config);
            let mut random = Random::new(u64::from(core_clock));
            // Section 1 is translated first; its walk and its line are the first two links.
            let mut now = alone.read(L1 + L2, 4) + Cycle::from(memory_cycles);
            let mut seen = std::collections::HashSet::from([0]);
            for link in 0..300 {
                let mut line = random.below(1 << 14);
                while !seen.insert(line) {
                    line = random.below(1 << 14);
                }
                let addr = 0x10_0000 + 64 * line;
                let access = MemoryAccess::read(VirtAddr::new(addr)).depending();
                core.access(&memory, &access).unwrap();
                now = alone.read(now + L1 + L2, addr) + Cycle::from(memory_cycles);
                assert_eq!(core.finish().unwrap(), now, "link {link} of {config:?}");
            }
            assert_eq!((core.stats().dram_reads, core.stats().walk_reads), (301, 1));
            core.check().unwrap();
        }
    }
}

#[test]
fn a_walk_takes_what_its_reads_take() {
    let mut words = Vec::new();
    let memory = tables(&mut words);
    for (walks_from, before) in
        [(WalksFrom::L1, L1 + L2), (WalksFrom::L2, L2), (WalksFrom::Memory, 0)]
    {
        let config =
            ProcessorConfig { walks_from, tlb_miss_cycles: 5, memory_cycles: 3, ..config() };
        let mut core = processor(&config);
        let mut alone = Alone::new(&config);
        let first = alone.read(5 + before, 4 * 16) + 3;
        let second = alone.read(first + before, 0x8000 + 4 * 7) + 3;
        let data = alone.read(second + L1 + L2, 0x100_7008) + 3;
        let access = MemoryAccess::read(VirtAddr::new(small(7).raw() + 8));
        assert_eq!(core.access(&memory, &access), Ok(data), "{walks_from:?}");
        let stats = core.stats();
        assert_eq!((stats.walks, stats.walk_reads, stats.walk_cycles), (1, 2, second));
        assert_eq!(stats.dram_reads, 3);
        // The next page: both descriptors are in lines that the first walk read.
        let each = match walks_from {
            WalksFrom::L1 => L1,
            WalksFrom::L2 => L2,
            WalksFrom::Memory => continue,
        };
        let now = core.now();
        core.access(&memory, &MemoryAccess::read(small(8))).unwrap();
        assert_eq!(core.stats().walk_cycles - second, 5 + 2 * each);
        let data = alone.read(now + 5 + 2 * each + L1 + L2, 0x100_8000) + 3;
        assert_eq!(core.now(), data);
    }
}

/// Two loads may be missing: the third begins in the cycle in which the first arrives, and
/// what depends on the second begins when that does. A hit does not wait.
#[test]
fn blocked_until_the_arrival_and_no_longer() {
    let config = ProcessorConfig { outstanding_max: 2, ..config() };
    let mut core = processor(&config);
    let mut alone = Alone::new(&config);
    // Other channels, so that nothing but the places is in the way.
    let a = alone.read(L1 + L2, 0);
    let mut now = core.access_physical(PhysAddr::new(0), false).unwrap();
    assert_eq!(now, 1);
    now = core.access_physical(PhysAddr::new(64), false).unwrap();
    assert_eq!(now, 2);
    now = core.access_physical(PhysAddr::new(64), false).unwrap();
    assert_eq!(now, 3, "the same line shares its flight");
    now = core.access_physical(PhysAddr::new(128), false).unwrap();
    assert_eq!(now, a + 1);
    now = core.access_physical(PhysAddr::new(0), false).unwrap();
    assert_eq!(now, a + 2);
    assert_eq!(core.stats().dram_reads, 3);

    // A write takes a cycle; with its two places taken, the third waits for the first.
    let config = ProcessorConfig { write_buffer_entries: 2, ..config };
    let mut core = processor(&config);
    for (i, end) in [(0, 1), (64, 2), (72, 3), (128, a + 1)] {
        assert_eq!(core.access_physical(PhysAddr::new(i), true), Ok(end), "write at {i}");
    }
    assert_eq!(core.l1().peek(PhysAddr::new(72)), Some(true));
    // Without a buffer, of a blocking core, it takes what a read takes.
    let mut core = processor(&self::config());
    assert_eq!(core.access_physical(PhysAddr::new(0), true), Ok(a));
    assert_eq!(core.access_physical(PhysAddr::new(8), true), Ok(a + L1));
}

/// Reads in turn of two rows of a bank close each other's; of one row, or of rows of two banks, they do not.
#[test]
fn rows_closed_for_others_are_counted() {
    // Of one channel and one rank.
    let config = ProcessorConfig { dram: presets::ARMADA_XP.processor().dram, ..config() };
    let conflicts = |distance: u64| {
        let mut core = processor(&config);
        for nth in 0..32 {
            let at = 64 * nth + nth % 2 * distance;
            core.access_physical(PhysAddr::new(at), false).unwrap();
            core.finish().unwrap();
        }
        let conflicts = core.stats().row_conflicts;
        assert_eq!(conflicts, core.dram().stats().total().row_conflicts);
        core.reset_stats();
        assert_eq!(core.stats().row_conflicts, 0);
        conflicts
    };
    let part = &config.dram.part;
    let row_bytes = (1_u64 << part.column_bits) * u64::from(part.bus_bytes);
    let banks = u64::from(part.groups) * u64::from(part.banks_per_group);
    assert_eq!(conflicts(0), 0);
    assert_eq!(conflicts(row_bytes), 0);
    assert_eq!(conflicts(row_bytes * banks), 31);
}

/// Two lines written from end to end are fetched; from the third on, each goes out as it is
/// begun, and with a single place the next one waits until the memory has it.
#[test]
fn writes_that_stream_fetch_nothing() {
    let config = ProcessorConfig { stream_after_lines: 2, write_buffer_entries: 1, ..config() };
    let mut core = processor(&config);
    let mut alone = Alone::new(&config);
    let (mut now, mut free) = (0, 0);
    for line in 0..10 {
        let began = std::cmp::max(now, free);
        for word in 0..8 {
            let end = core.access_physical(PhysAddr::new(64 * line + 8 * word), true).unwrap();
            assert_eq!(end, began + 1 + word, "word {word} of line {line}");
        }
        let at = began + L1 + L2;
        free = if line < 2 { alone.read(at, 64 * line) } else { alone.write(at, 64 * line) };
        now = began + 8;
        core.check().unwrap();
    }
    let stats = core.stats();
    assert_eq!((stats.dram_reads, stats.dram_writes), (2, 8));
    assert_eq!(core.finish(), Ok(free));
    // A gap ends the run: the line is fetched, and so are the two after it.
    core.reset_stats();
    for word in 0..32 {
        core.access_physical(PhysAddr::new(0x1_0008 + 8 * word), true).unwrap();
    }
    core.finish().unwrap();
    assert_eq!((core.stats().dram_reads, core.stats().dram_writes), (3, 2));
    // A line that a cache has is written there, with a place until it is.
    core.reset_stats();
    for line in 0x1000..0x1003 {
        core.access_physical(PhysAddr::new(64 * line), false).unwrap();
    }
    for word in 0..24 {
        core.access_physical(PhysAddr::new(0x4_0000 + 8 * word), true).unwrap();
    }
    core.finish().unwrap();
    assert_eq!((core.stats().dram_reads, core.stats().dram_writes), (3, 0));
    assert_eq!(core.l1().peek(PhysAddr::new(0x4_0080)), Some(true));
    core.check().unwrap();
}

/// Three misses at one distance, either way, bring the next two lines on their way with the third; the
/// page's end stops them, and loads of other lines in between do not.
#[test]
fn lines_are_read_ahead_of_a_stride() {
    for (first, step) in [(0x2_0000_u64, 64_i64), (0x2_0f00, -128)] {
        let config = ProcessorConfig { prefetch_lines: 2, ..config() };
        let mut core = processor(&config);
        let mut alone = Alone::new(&config);
        let line = |i: i64| first.wrapping_add_signed(i * step);
        let mut load = |at: u64| core.access_physical(PhysAddr::new(at), false).unwrap();
        let other = alone.read(L1 + L2, 0x5_0000);
        assert_eq!(load(0x5_0000), other);
        let mut now = other;
        for i in 0..2 {
            now = alone.read(now + L1 + L2, line(i));
            assert_eq!(load(line(i)), now);
            // It hits, and is no part of the pattern.
            now += L1;
            assert_eq!(load(0x5_0008), now);
        }
        let at = now + L1 + L2;
        let done = alone.reads(&[(at, line(2)), (at, line(3)), (at, line(4))]);
        assert_eq!(load(line(2)), done[0], "{step}");
        assert_eq!(load(line(3)), done[1].max(done[0] + L1));
        core.check().unwrap();
    }
    // Each line of a page is read once, and none beyond.
    let mut core = processor(&ProcessorConfig { prefetch_lines: 8, ..config() });
    for i in 0..64 {
        core.access_physical(PhysAddr::new(0x2_0000 + 64 * i), false).unwrap();
    }
    core.finish().unwrap();
    let stats = core.stats();
    assert_eq!((stats.dram_reads, stats.l1.misses, stats.l1.hits), (64, 3, 61));
    core.check().unwrap();
}

/// Lines and whether they are dirty.
type Lines = Vec<(u64, bool)>;

/// The blocking core, written down naively: lists of lines in the order of their use, and the
/// memory driven by hand.
struct Model {
    now: Cycle,
    /// The first of data, the second, the first of instructions.
    caches: [(CacheConfig, Vec<Lines>); 3],
    /// Data and instructions share the first cache.
    shared: bool,
    dram: Dram,
    /// Writes on their way, in their order.
    writes: Vec<(Cycle, u64)>,
    counts: [u64; 8],
}

impl Model {
    fn new(config: &ProcessorConfig) -> Self {
        let cache = |of: CacheConfig| (of, vec![Vec::new(); of.sets() as usize]);
        Self {
            now: 0,
            caches: [config.l1, config.l2, config.l1_instructions.unwrap_or(config.l1)].map(cache),
            shared: config.l1_instructions.is_none(),
            dram: Dram::new(&config.dram).unwrap(),
            writes: Vec::new(),
            counts: [0; 8],
        }
    }

    /// Whether the line was there, and the dirty one that had to go.
    fn look(&mut self, level: usize, addr: u64, write: bool) -> (bool, Option<u64>) {
        let (config, sets) = &mut self.caches[level];
        let line = addr / 64;
        let count = sets.len() as u64;
        let set = &mut sets[(line % count) as usize];
        let at = set.iter().position(|&(l, _)| l == line);
        let dirty = at.is_some_and(|at| set.remove(at).1);
        set.insert(0, (line, dirty || write));
        let mut gone = None;
        if set.len() > config.ways as usize {
            gone = set.pop().filter(|&(_, dirty)| dirty).map(|(l, _)| l * 64);
        }
        (at.is_some(), gone)
    }

    fn access(&mut self, addr: u64, operation: Operation) {
        let apart = operation == Operation::Fetch && !self.shared;
        let (first, counted) = if apart { (2, 6) } else { (0, 0) };
        let (hit, gone) = self.look(first, addr, operation == Operation::Write);
        self.counts[counted + usize::from(!hit)] += 1;
        let at = self.now + L1;
        let below = at + L2;
        if let Some(gone) = gone
            && let (_, Some(gone)) = self.look(1, gone, true)
        {
            self.writes.push((below, gone));
            self.counts[5] += 1;
        }
        if hit {
            self.now = at;
            return;
        }
        let (hit, gone) = self.look(1, addr, false);
        self.counts[2 + usize::from(!hit)] += 1;
        if hit {
            self.now = below;
            return;
        }
        self.counts[4] += 1;
        // What the first cache threw out goes before the read, what the second does after it.
        if gone.is_some() {
            self.counts[5] += 1;
        }
        self.now = self.read(below, addr, gone);
    }

    /// The next thing at the memory before the read of the cycle `at`, or, without one, the next
    /// at all; the end of a read if it is that.
    fn next(&mut self, at: Option<Cycle>) -> Option<Option<Cycle>> {
        let event = self.dram.next_event();
        let write = self.writes.first().map(|write| write.0);
        let next = [event, write, at].into_iter().flatten().min().unwrap();
        if event == Some(next) {
            self.dram.advance(next);
            let mut end = None;
            while let Some(done) = self.dram.take_done(next) {
                end = end.or(Some(done.cycle).filter(|_| !done.write));
            }
            return Some(end);
        }
        if write != Some(next) {
            return None;
        }
        let request = DramRequest { id: 0, addr: PhysAddr::new(self.writes[0].1), write: true };
        match self.dram.offer(next, request) {
            Ok(()) => drop(self.writes.remove(0)),
            Err(_) => self.writes[0].0 = self.dram.next_event().unwrap(),
        }
        Some(None)
    }

    /// A read at the memory, and then, in the same cycle, a write if there is one.
    fn read(&mut self, at: Cycle, addr: u64, gone: Option<u64>) -> Cycle {
        while self.next(Some(at)).is_some() {}
        let request = DramRequest { id: 1, addr: PhysAddr::new(addr), write: false };
        self.dram.offer(at, request).expect("a blocking core does not fill the queue");
        self.writes.extend(gone.map(|gone| (at, gone)));
        loop {
            if let Some(Some(end)) = self.next(None) {
                return end;
            }
        }
    }
}

#[test]
fn the_blocking_core_agrees_with_the_model() {
    let own = CacheConfig { len_bytes: 512, ways: 4, line_bytes: 64 };
    for seed in 0..12u64 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let l1_instructions = Some(own).filter(|_| seed % 4 != 3);
        let config = ProcessorConfig { l1_instructions, ..config() };
        let mut core = processor(&config);
        let mut model = Model::new(&config);
        let span = [2 << 10, 8 << 10, 64 << 10][seed as usize % 3];
        for step in 0..4000 {
            let far = if random.below(20) == 0 { 1 << 28 } else { 0 };
            let addr = random.below(span) + far;
            let operation = [Operation::Read, Operation::Write, Operation::Fetch]
                [random.below(if seed < 3 { 2 } else { 3 }) as usize];
            let at = PhysAddr::new(addr);
            let end = match operation {
                Operation::Fetch => core.fetch_physical(at).unwrap(),
                data => core.access_physical(at, data == Operation::Write).unwrap(),
            };
            model.access(addr, operation);
            assert_eq!(end, model.now, "step {step}");
            if step % 100 == 0 {
                core.check().unwrap();
            }
        }
        let stats = core.stats();
        let ours =
            [stats.l1.hits, stats.l1.misses, stats.l2.hits, stats.l2.misses, stats.dram_reads];
        assert_eq!(ours, model.counts[..5]);
        let instructions = [stats.l1_instructions.hits, stats.l1_instructions.misses];
        assert_eq!(instructions, model.counts[6..]);
        assert_eq!(stats.dram_writes, model.counts[5]);
        assert!(stats.dram_reads > 20 && stats.l1.write_backs > 20);
    }
}

/// Reads that each need the one before take a pipelined core what they take a blocking one;
/// without that need each place more makes it faster, and so do places for writes.
#[test]
fn a_pipelined_core_gains_only_where_it_may() {
    for seed in 0..4u64 {
        println!("seed {seed}");
        let mut words = Vec::new();
        let memory = tables(&mut words);
        let run = |outstanding_max, write_buffer_entries, depends, writes| {
            let mut random = Random::new(seed);
            let config = ProcessorConfig { outstanding_max, write_buffer_entries, ..config() };
            let mut core = processor(&config);
            for _ in 0..3000 {
                let addr = VirtAddr::new(random.below(16 << 10) + (random.below(15) << 20));
                let operation = match writes && random.below(3) == 0 {
                    true => Operation::Write,
                    false => Operation::Read,
                };
                let access = MemoryAccess { depends, ..MemoryAccess::new(addr, operation) };
                core.access(&memory, &access).unwrap();
                core.check().unwrap();
            }
            core.finish().unwrap();
            (core.stats().cycles, core.stats())
        };
        let (blocking, alone) = run(1, 0, false, false);
        let (chain, chained) = run(8, 4, true, false);
        assert_eq!(blocking, chain);
        assert_eq!(alone, chained);
        let mut slowest = blocking;
        for outstanding_max in [2, 4, 16] {
            let (cycles, stats) = run(outstanding_max, 0, false, false);
            assert!(cycles < slowest, "{outstanding_max} outstanding");
            assert_eq!(stats.walks, alone.walks);
            slowest = cycles;
        }
        let mut slowest = run(1, 0, false, true).0;
        for write_buffer_entries in [1, 2, 8] {
            let (cycles, _) = run(1, write_buffer_entries, false, true);
            assert!(cycles < slowest, "{write_buffer_entries} in the write buffer");
            slowest = cycles;
        }
    }
}

#[test]
fn exceptions_stop_and_can_be_mended() {
    let mut words = Vec::new();
    let memory = tables(&mut words);
    let mut core = processor(&config());
    let write = MemoryAccess::write(small(3));
    let cause = |core: &mut Processor<Mmu>, access: &MemoryAccess| {
        core.access(&memory, access).map_err(|stopped| {
            assert_eq!((stopped.addr, stopped.operation), (access.addr, access.operation));
            assert!(!stopped.to_string().is_empty());
            stopped.cause
        })
    };
    // No translation; mapping it owes nothing.
    map(&memory, 3, 0, 0);
    let fault =
        ExceptionCause::Fault(TranslationFault::Translation { page: small(3).page(), level: 1 });
    assert_eq!(cause(&mut core, &write), Err(fault));
    assert_eq!((core.stats().writes, core.stats().exceptions), (0, 1));
    map(&memory, 3, 0x2000, 0x23e);
    // Read-only: the TLB holds that, so that granting it owes an invalidation.
    assert_eq!(cause(&mut core, &write), Err(ExceptionCause::Denied(Denied::Write)));
    map(&memory, 3, 0x2000, 0x03e);
    assert_eq!(cause(&mut core, &write), Err(ExceptionCause::Denied(Denied::Write)));
    core.invalidate_page(small(3).page());
    cause(&mut core, &write).unwrap();
    assert_eq!(core.l1().peek(PhysAddr::new(0x200_0000)), Some(true));
    // Another frame without the owed invalidation: the old one is read.
    map(&memory, 3, 0x3000, 0x03e);
    let read = |offset| MemoryAccess::read(VirtAddr::new(small(3).raw() + offset));
    cause(&mut core, &read(64)).unwrap();
    assert_eq!(core.l1().peek(PhysAddr::new(0x200_0040)), Some(false));
    assert_eq!(core.l1().peek(PhysAddr::new(0x300_0040)), None);
    core.invalidate_all();
    cause(&mut core, &read(64)).unwrap();
    assert_eq!(core.l1().peek(PhysAddr::new(0x300_0040)), Some(false));
    // A clear access flag is never held.
    map(&memory, 4, 0x4000, 0x02e);
    let read = MemoryAccess::read(small(4));
    assert_eq!(cause(&mut core, &read), Err(ExceptionCause::Denied(Denied::AccessFlag)));
    map(&memory, 4, 0x4000, 0x03e);
    cause(&mut core, &read).unwrap();
    // What the memory does not have.
    let beyond = config().dram.len_bytes();
    let addr = PhysAddr::new(beyond);
    let error = OfferError::Address { addr, len_bytes: beyond };
    let before = core.stats();
    assert_eq!(core.access_physical(addr, false), Err(error));
    assert_eq!(core.stats(), before);
    // A handler that maps what is missing.
    map(&memory, 9, 0, 0);
    let accesses = [small(8), small(9), small(10)].map(MemoryAccess::read);
    let mut handled = 0;
    let end = core.run(&memory, accesses, |core, stopped| {
        assert_eq!(stopped.addr, small(9));
        map(&memory, 9, 0x5000, 0x03e);
        core.spend(1000);
        handled += 1;
        Ok(())
    });
    assert!(end.unwrap() > 1000 && handled == 1);
    map(&memory, 20, 0, 0);
    let stopped = core.run(&memory, [MemoryAccess::read(small(20))], |_, stopped| Err(stopped));
    assert!(matches!(stopped.unwrap_err().cause, ExceptionCause::Fault(_)));
    // Far beyond what can be counted.
    core.spend(Cycle::MAX);
    assert!(core.access_physical(PhysAddr::new(0x10_0000), false).is_err());
}

/// Device memory is read from the memory each time, and written to it.
#[test]
fn device_memory_passes_the_caches() {
    let mut words = Vec::new();
    let memory = tables(&mut words);
    // TEX = 0, C = 0, B = 1: shareable device.
    map(&memory, 5, 0x1005, 0x037);
    let mut core = processor(&config());
    for _ in 0..3 {
        core.access(&memory, &MemoryAccess::read(small(5))).unwrap();
        core.access(&memory, &MemoryAccess::write(small(5))).unwrap();
    }
    let stats = core.stats();
    assert_eq!((stats.dram_reads - stats.walk_reads, stats.dram_writes), (3, 3));
    assert_eq!(core.l1().peek(PhysAddr::new(0x100_5000)), None);
}

#[test]
fn another_address_space_starts_afresh() {
    let mut words = Vec::new();
    let memory = tables(&mut words);
    memory.write_u32(PhysAddr::new(0xc000), 0x50_0000 | 0xc0e).unwrap();
    let mut core = processor(&config());
    let read = MemoryAccess::read(VirtAddr::new(0));
    core.access(&memory, &read).unwrap();
    assert!(core.mmu_mut().set_root(PhysAddr::new(0x1000)).is_err());
    core.mmu_mut().set_root(PhysAddr::new(0xc000)).unwrap();
    core.access(&memory, &read).unwrap();
    assert_eq!(core.stats().walks, 2);
    assert_eq!(core.l1().peek(PhysAddr::new(0x50_0000)), Some(false));
}

/// The talk's experiment: twice the TLB times the superpage, one access to each base page.
#[test]
fn the_tlb_miss_experiment() {
    const SECTIONS: u64 = 2 * 64;
    let preset = &presets::ARMADA_XP;
    let mut words = vec![0; 0x8_0000 / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    for superpages in [false, true] {
        for section in 0..SECTIONS {
            let at = (0x100 + section as u32) << 20;
            let table = 0x4_0000 + 1024 * section;
            let word = if superpages { at | 0xc0e } else { table as u32 | 1 };
            memory.write_u32(PhysAddr::new(4 * section), word).unwrap();
            for page in 0..256 {
                let word = (at + page as u32 * 4096) | 0x03e;
                memory.write_u32(PhysAddr::new(table + 4 * page), word).unwrap();
            }
        }
        let mmu = Hierarchy::new(regime(), &preset.translation).unwrap();
        let mut core = Processor::new(&preset.processor(), mmu).unwrap();
        for page in 0..SECTIONS * 256 {
            core.access(&memory, &MemoryAccess::read(VirtAddr::new(page * 4096))).unwrap();
        }
        core.finish().unwrap();
        let stats = core.stats();
        let misses = if superpages { SECTIONS } else { SECTIONS * 256 };
        assert_eq!(stats.walks, misses);
        assert_eq!(stats.translation.l2.misses, misses);
        assert_eq!(stats.walk_reads, misses * if superpages { 1 } else { 2 });
        println!("superpages {superpages}: {} cycles a walk", stats.walk_cycles / misses);
    }
}

#[test]
fn presets_can_be_made() {
    for preset in presets::ALL {
        let config = preset.processor();
        let regime = Regime { format: preset.format, ..regime() };
        let mmu = Hierarchy::new(regime, &preset.translation).unwrap();
        Processor::new(&config, mmu).unwrap();
        // Every number has its line, and a clock is what the chips say.
        let all = preset.sources.iter().map(|source| source.what).collect::<String>();
        for field in [
            "translation.l1",
            "translation.l2",
            "l1",
            "l1_instructions",
            "l2",
            "l1_cycles",
            "l2_cycles",
            "memory_cycles",
            "core_clock_mhz",
            "part",
            "dram_clock_mhz",
            "walks_from",
            "tlb_miss_cycles",
            "outstanding_max",
            "write_buffer_entries",
            "stream_after_lines",
            "prefetch_lines",
            "translation.l2_cycles",
            "translation.walk_cache_entries",
        ] {
            assert!(all.contains(field), "{}: {field}", preset.name);
        }
        assert_eq!(preset.dram_clock_mhz * preset.part.clock_period_ps, 1_000_000);
    }
}

#[test]
fn impossible_processors_are_refused() {
    let new = |config: &ProcessorConfig| {
        let mmu = Mmu::new(regime(), Geometry::default(), WalkOrder::default()).unwrap();
        let made = Processor::new(config, mmu).map(|_| ());
        made.inspect_err(|error| assert!(!error.to_string().is_empty()))
    };
    let good = config();
    assert_eq!(new(&good), Ok(()));
    let field = |config: &ProcessorConfig| match new(config) {
        Err(ProcessorConfigError::Count { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(&ProcessorConfig { l1_cycles: 0, ..good.clone() }), "l1_cycles");
    assert_eq!(field(&ProcessorConfig { core_clock: 0, ..good.clone() }), "core_clock");
    assert_eq!(field(&ProcessorConfig { dram_clock: 0, ..good.clone() }), "dram_clock");
    assert_eq!(field(&ProcessorConfig { outstanding_max: 0, ..good.clone() }), "outstanding_max");
    assert_eq!(field(&ProcessorConfig { outstanding_max: 65, ..good.clone() }), "outstanding_max");
    assert_eq!(
        field(&ProcessorConfig { write_buffer_entries: 65, ..good.clone() }),
        "write_buffer_entries"
    );
    assert_eq!(
        field(&ProcessorConfig { stream_after_lines: 1025, ..good.clone() }),
        "stream_after_lines"
    );
    assert_eq!(field(&ProcessorConfig { prefetch_lines: 65, ..good.clone() }), "prefetch_lines");
    let lines = |line_bytes| {
        let cache = CacheConfig { len_bytes: 1 << 12, ways: 2, line_bytes };
        new(&ProcessorConfig { l2: cache, ..good.clone() })
    };
    assert!(matches!(lines(32), Err(ProcessorConfigError::Lines { .. })));
    let long = CacheConfig { len_bytes: 1 << 12, ways: 2, line_bytes: 128 };
    let both = ProcessorConfig { l1: long, l2: long, ..good.clone() };
    assert!(matches!(new(&both), Err(ProcessorConfigError::Lines { .. })));
    let none = CacheConfig { ways: 0, ..good.l1 };
    assert!(matches!(
        new(&ProcessorConfig { l1: none, ..good.clone() }),
        Err(ProcessorConfigError::L1(_))
    ));
    assert!(matches!(
        new(&ProcessorConfig { l2: none, ..good.clone() }),
        Err(ProcessorConfigError::L2(_))
    ));
    let fetched = |cache| new(&ProcessorConfig { l1_instructions: Some(cache), ..good.clone() });
    assert!(matches!(fetched(none), Err(ProcessorConfigError::Instructions(_))));
    assert!(matches!(fetched(long), Err(ProcessorConfigError::Lines { .. })));
    let dram = DramConfig { channels: 3, ..good.dram.clone() };
    assert!(matches!(new(&ProcessorConfig { dram, ..good }), Err(ProcessorConfigError::Dram(_))));
}
