//! A machine of Linux zones: as a frame allocator, under watermarks, on several
//! CPUs and nodes, and when sections go offline.

use std::cell::RefCell;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{
    Interleaving, Layout, LayoutConfig, LayoutError, LayoutPreset, LayoutZone, ZoneKind,
};
use swath_frame::machine::watermark::{
    list_batch, list_high, min_free_huge_kib, min_free_kib, watermarks,
};
use swath_frame::machine::{
    HotplugError, MachineAllocateError, MachineError, MachineFreeError, UnitState,
};
use swath_frame::testing::frames;
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, BoundaryPlacement, ListPlacement, Placement,
    PoolPlacement, TreePlacement,
};
use swath_frame::zone::linux::PAGEBLOCK_ORDER;
use swath_frame::{
    BlockRequest, BuddyConfig, ByteRange, FrameAllocator, FrameFreeError, IsolateError, Isolation,
    LinuxZone, Machine, MachineConfig, MachineHandle, MemoryMap, MemoryUnit, Mobility, PageZone,
    PerCpuLists, ZoneAllocator,
};

type Linux = Machine<Vec<LinuxZone<Vec<u64>>>, Vec<PerCpuLists>, Vec<u64>>;

const MIB: u64 = 256;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn with_map<T>(areas: &[Extent], test: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    test(&MemoryMap::new(&ranges, &mut storage).unwrap())
}

fn zone(map: &MemoryMap<'_>, span: Extent) -> LinuxZone<Vec<u64>> {
    let words = vec![0x5a5a; LinuxZone::<&mut [u64]>::storage_words(span)];
    LinuxZone::new(map, span, Order::known(9), words).unwrap()
}

fn machine(map: &MemoryMap<'_>, layout: Layout, config: MachineConfig) -> Linux {
    let zones = layout.zones().iter().map(|description| zone(map, description.span)).collect();
    let size = Linux::size(map, &layout, config);
    let lists = vec![PerCpuLists::default(); size.lists];
    Machine::new(map, layout, config, zones, lists, vec![0x5a5a; size.words]).unwrap()
}

fn config(cpus: usize) -> MachineConfig {
    MachineConfig { cpus, min_free_kib: None, per_cpu_lists: true }
}

fn small_units() -> LayoutConfig {
    LayoutConfig { bank_frames: 4096, section_frames: 2048, ..LayoutConfig::default() }
}

fn request(k: u8, mobility: Mobility) -> BlockRequest {
    BlockRequest {
        order: Order::known(k),
        mobility,
        highest: ZoneKind::Movable,
        node: 0,
        cpu: 0,
        urgent: false,
    }
}

#[test]
fn handles_conform() {
    // No aligned block of order 11 fits, since Linux has none; nodes end in
    // holes, since no block crosses from one to the other.
    let maps: [(&[Extent], &[Extent], usize); 4] = [
        (&[extent(0, 1500)], &[extent(0, 1500)], 1),
        (&[extent(3000, 1100), extent(4200, 1900)], &[extent(0, 9000)], 2),
        (&[extent(5000, 900), extent(6200, 1500)], &[extent(0, 6100), extent(6100, 9000)], 3),
        (&[extent(1, 100), extent(4090, 30)], &[extent(0, 9000)], 2),
    ];
    for (seed, (areas, nodes, cpus)) in maps.into_iter().enumerate() {
        for per_cpu_lists in [true, false] {
            with_map(areas, |map| {
                let layout = Layout::new(map, nodes, small_units()).unwrap();
                let config = MachineConfig { per_cpu_lists, ..config(cpus) };
                let machine = RefCell::new(machine(map, layout, config));
                let mobility = Mobility::ALL[seed % 3];
                let mut handle =
                    MachineHandle::new(&machine, mobility, ZoneKind::Movable, 0, cpus - 1).unwrap();
                frames::conform(map, &mut handle, seed as u64, 1500, &mut |_, _| {
                    assert_eq!(machine.borrow().check(), Ok(()));
                });
            });
        }
    }
}

#[test]
fn a_random_machine_keeps_its_invariants() {
    for seed in 0..6 {
        let areas = [extent(1, 150), extent(256, 9000), extent(12_000, 9_000)];
        with_map(&areas, |map| {
            let movable_frames_per_node = if seed % 2 == 0 { 2000 } else { 0 };
            let layout_config = LayoutConfig { movable_frames_per_node, ..small_units() };
            let nodes = [extent(0, 12_500), extent(12_500, 20_000)];
            let layout = Layout::new(map, &nodes, layout_config).unwrap();
            let sections = layout.sections();
            let banks = layout.banks();
            let mut machine = machine(map, layout, config(3));
            random_work(&mut machine, seed, sections, banks);
        });
    }
}

/// The same above the bank-aware allocators.
#[test]
fn bank_aware_zones_make_a_machine_too() {
    fn run<P: Placement>(rule: impl Fn() -> P, seed: u64) {
        let areas = [extent(0, 9000), extent(12_000, 9_000)];
        with_map(&areas, |map| {
            let layout = Layout::new(map, &[extent(0, 30_000)], small_units()).unwrap();
            let banks = BankLayout::new(Pfn::new(0), 4096, Order::known(10)).unwrap();
            let zone = |zone: &LayoutZone| {
                let words = BankBuddy::<Vec<u64>, P>::storage_words(map, zone.span, banks, &rule());
                BankBuddy::new(map, zone.span, banks, rule(), vec![0; words.unwrap()]).unwrap()
            };
            let zones: Vec<_> = layout.zones().iter().map(zone).collect();
            type Banked<P> = Machine<Vec<BankBuddy<Vec<u64>, P>>, Vec<PerCpuLists>, Vec<u64>>;
            let size = Banked::<P>::size(map, &layout, config(3));
            let lists = vec![PerCpuLists::default(); size.lists];
            let (sections, banks) = (layout.sections(), layout.banks());
            let mut machine =
                Machine::new(map, layout, config(3), zones, lists, vec![0; size.words]).unwrap();
            random_work(&mut machine, seed, sections, banks);
        });
    }
    run(|| ArrayPlacement, 1);
    run(|| ListPlacement::new(true), 2);
    run(PoolPlacement::default, 3);
    run(|| BoundaryPlacement::new(64), 4);
    run(|| TreePlacement::new(5), 4);
}

/// The same with the binary buddy in one zone and the page buddy in the other.
#[test]
fn page_buddies_make_a_machine_too() {
    let areas = [extent(0, 9000), extent(12_000, 9_000)];
    with_map(&areas, |map| {
        let layout_config = LayoutConfig { movable_frames_per_node: 8000, ..small_units() };
        let layout = Layout::new(map, &[extent(0, 30_000)], layout_config).unwrap();
        let binary = BuddyConfig::new(1, Order::known(10)).unwrap();
        let zone = |zone: &LayoutZone| {
            let config =
                if zone.kind == ZoneKind::Movable { BuddyConfig::PBS_ARMV8 } else { binary };
            let mine = map.areas().iter().map(|area| area.intersect(zone.span));
            let mine: Vec<Extent> = mine.filter(|area| !area.is_empty()).collect();
            with_map(&mine, |map| {
                let unit = Order::known(9);
                let words = PageZone::<Vec<u64>>::storage_words(map, config, unit);
                PageZone::<_>::new(map, config, unit, vec![0x5a5a; words]).unwrap()
            })
        };
        let zones: Vec<_> = layout.zones().iter().map(zone).collect();
        assert_eq!(zones.last().unwrap().config(), BuddyConfig::PBS_ARMV8);
        type Paged = Machine<Vec<PageZone<Vec<u64>>>, Vec<PerCpuLists>, Vec<u64>>;
        let size = Paged::size(map, &layout, config(3));
        let lists = vec![PerCpuLists::default(); size.lists];
        let (sections, banks) = (layout.sections(), layout.banks());
        let mut machine =
            Machine::new(map, layout, config(3), zones, lists, vec![0; size.words]).unwrap();
        random_work(&mut machine, 4, sections, banks);
    });
}

fn random_work<Z: ZoneAllocator>(
    machine: &mut Machine<Vec<Z>, Vec<PerCpuLists>, Vec<u64>>,
    seed: u64,
    sections: usize,
    banks: usize,
) {
    let mut random = Random::new(seed);
    let mut held: Vec<(Extent, Mobility)> = Vec::new();
    let mut gone = 0;
    for step in 0..4000 {
        let fills = step / 500 % 2 == 0;
        match random.below(40) {
            0 => {
                let unit = if random.below(2) == 0 {
                    MemoryUnit::Section(random.below(sections as u64 + 1) as usize)
                } else {
                    MemoryUnit::Bank(random.below(banks as u64 + 1) as usize)
                };
                let before = machine.unit_state(unit);
                let result = match random.below(4) {
                    0 => machine.isolate(unit),
                    1 => machine.rejoin(unit),
                    2 => machine.offline(unit),
                    _ => machine.online(unit),
                };
                gone += u32::from(
                    machine.unit_state(unit).map(|state| state.isolation)
                        == Some(Isolation::Offline),
                );
                // Any range is counted as a unit is.
                let frames = match unit {
                    MemoryUnit::Section(section) => machine.layout().section(section),
                    MemoryUnit::Bank(bank) => machine.layout().bank(bank),
                };
                let use_of = |state: UnitState| (state.present, state.movable, state.unmovable);
                let counted = frames.map(|frames| use_of(machine.frames_state(frames)));
                assert_eq!(counted, machine.unit_state(unit).map(use_of), "seed {seed}, {step}");
                match result {
                    Ok(()) => assert_ne!(machine.unit_state(unit), before, "seed {seed}, {step}"),
                    Err(_) => assert_eq!(machine.unit_state(unit), before, "seed {seed}, {step}"),
                }
            }
            1 => machine.drain(),
            n if n < if fills { 28 } else { 6 } => {
                let mobility = Mobility::ALL[random.below(3) as usize];
                let order = [0, 0, 0, 1, 3, 4, 9][random.below(7) as usize];
                let request = BlockRequest {
                    highest: ZoneKind::ALL[random.below(4) as usize],
                    node: random.below(machine.layout().nodes() as u64) as usize,
                    cpu: random.below(3) as usize,
                    urgent: random.below(2) == 0,
                    ..request(order, mobility)
                };
                if let Ok(start) = machine.allocate(request) {
                    let block = extent(start.raw(), 1 << order);
                    let zone = machine.layout().zone_of(start).unwrap();
                    let kind = machine.layout().zones()[zone].kind;
                    assert!(kind <= request.highest, "seed {seed}, step {step}: {kind}");
                    assert!(kind != ZoneKind::Movable || mobility == Mobility::Movable);
                    held.push((block, mobility));
                }
            }
            _ if !held.is_empty() => {
                let at = random.below(held.len() as u64) as usize;
                let (block, mobility) = held.swap_remove(at);
                let owner = machine.owner(block.start).unwrap();
                assert_eq!(owner == Mobility::Movable, mobility == Mobility::Movable);
                assert_eq!(machine.free(block, random.below(3) as usize), Ok(()));
                assert!(machine.free(block, 0).is_err());
            }
            _ => (),
        }
        if step % 16 == 0 {
            assert_eq!(machine.check(), Ok(()), "seed {seed}, step {step}");
            let (mut movable, mut unmovable) = (0, 0);
            for section in 0..sections {
                let state = machine.section_state(section).unwrap();
                movable += state.movable;
                unmovable += state.unmovable;
            }
            let used = |wanted| {
                let is = |(_, mobility): &&(Extent, Mobility)| {
                    (*mobility == Mobility::Movable) == wanted
                };
                held.iter().filter(is).map(|(block, _)| block.count).sum::<u64>()
            };
            assert_eq!((movable, unmovable), (used(true), used(false)), "seed {seed}, {step}");
        }
    }
    assert!(gone > 0, "seed {seed}: no unit ever went offline");
}

/// The zones of a machine of 24 GiB under kernel 6.18, as its
/// `/proc/zoneinfo` shows them: frames managed, marks, reserves, per-CPU marks.
#[test]
fn marks_are_the_kernels() {
    let managed = [3840, 772_915, 5_394_266];
    let areas = [extent(1, 3998), extent(4096, 782_336), extent(1 << 20, 5_505_024)];
    with_map(&areas, |map| {
        let nodes = [extent(0, 1 << 23)];
        let layout = Layout::new(map, &nodes, LayoutConfig::default()).unwrap();
        let total = managed.iter().sum();
        assert_eq!(min_free_huge_kib(total, 3), 67_584);
        let marks = watermarks(&layout, |zone| managed[zone], 67_584);
        let triples: Vec<_> = marks[..3].iter().map(|m| (m.min, m.low, m.high)).collect();
        assert_eq!(triples, [(10, 13, 16), (2116, 2888, 3660), (14_769, 20_163, 25_557)]);
        assert_eq!(marks[0].reserve, [0, 3019, 24_090, 24_090]);
        assert_eq!(marks[1].reserve, [0, 0, 21_071, 21_071]);
        assert_eq!(marks[2].reserve, [0; 4]);
        let batches: Vec<u32> = managed.iter().map(|frames| list_batch(*frames)).collect();
        assert_eq!(batches, [1, 63, 63]);
        let highs: Vec<u32> = (0..3).map(|at| list_high(marks[at].low, 2, batches[at])).collect();
        assert_eq!(highs, [6, 1444, 10_081]);
    });
    // The root of 16 times 4 GiB in KiB; the bounds.
    assert_eq!(min_free_kib(1 << 20), 8192);
    assert_eq!((min_free_kib(1), min_free_kib(u64::MAX)), (128, 256 << 10));
}

/// The lists of one CPU: the batch arrives in the zone's order and is handed
/// out from the head; what is given comes back first.
#[test]
fn per_cpu_lists_refill_and_drain() {
    let span = extent(1 << 20, 256 * MIB);
    with_map(&[span], |map| {
        let layout = Layout::new(map, &[extent(0, 1 << 23)], LayoutConfig::default()).unwrap();
        let mut machine = machine(map, layout, config(1));
        let low = machine.watermarks(0).unwrap().low;
        let batch = u64::from(list_batch(256 * MIB));
        assert_eq!(batch, 15);
        let high = u64::from(list_high(low, 1, 15));
        let movable = request(0, Mobility::Movable);
        let first = span.start.raw();
        assert_eq!(machine.allocate(movable), Ok(Pfn::new(first)));
        assert_eq!(machine.waiting_frames(0), batch - 1);
        assert_eq!(machine.allocate(movable), Ok(Pfn::new(first + 1)));
        assert_eq!(machine.free(extent(first, 1), 0), Ok(()));
        assert_eq!(machine.allocate(movable), Ok(Pfn::new(first)), "the last given is the head");
        // A batch that is used up without a return doubles.
        for frame in first + 2..first + batch {
            assert_eq!(machine.allocate(movable), Ok(Pfn::new(frame)));
        }
        assert_eq!(machine.waiting_frames(0), 0);
        assert_eq!(machine.allocate(movable), Ok(Pfn::new(first + batch)));
        // The return in between halved the doubling that the first batch caused.
        assert_eq!(machine.waiting_frames(0), batch - 1);
        while machine.waiting_frames(0) > 0 {
            machine.allocate(movable).unwrap();
        }
        machine.allocate(movable).unwrap();
        assert_eq!(machine.waiting_frames(0), 2 * batch - 1);
        // Returns pile up to the high mark; then a batch or more goes back.
        let mut held: Vec<u64> = (first..first + 2 * batch + 1).collect();
        for _ in 0..3 * high {
            held.push(machine.allocate(movable).unwrap().raw());
        }
        machine.drain();
        let free = machine.zones()[0].free_frames();
        let mut most = 0;
        for frame in held {
            machine.free(extent(frame, 1), 0).unwrap();
            most = most.max(machine.waiting_frames(0));
        }
        assert_eq!(most, high - 1);
        assert!(machine.zones()[0].free_frames() >= free + 2 * high);
        assert_eq!(machine.check(), Ok(()));
        machine.drain();
        assert_eq!(machine.waiting_frames(0), 0);
        assert_eq!(machine.check(), Ok(()));
    });
}

/// Normal memory below the low mark makes a request go on to DMA32, which
/// keeps its reserve; then min counts; urgent requests take the rest.
#[test]
fn watermarks_decide_the_zone() {
    let areas = [extent(256, 3840), extent(4096, 8192), extent(1 << 20, 8192)];
    with_map(&areas, |map| {
        let layout = Layout::new(map, &[extent(0, 1 << 23)], LayoutConfig::default()).unwrap();
        let config = MachineConfig { per_cpu_lists: false, ..config(1) };
        let mut machine = machine(map, layout, config);
        let marks: Vec<_> = (0..3).map(|zone| machine.watermarks(zone).unwrap()).collect();
        let normal = request(0, Mobility::Unmovable);
        let mut zones = Vec::new();
        while let Ok(start) = machine.allocate(normal) {
            zones.push(machine.layout().zone_of(start).unwrap());
        }
        zones.dedup();
        assert_eq!(zones, [2, 1, 0, 2, 1, 0], "down to the low marks, then to the min marks");
        for (zone, marks) in marks.iter().enumerate() {
            let free = machine.zones()[zone].free_frames();
            assert_eq!(free, marks.min + marks.reserve[ZoneKind::Normal as usize], "zone {zone}");
        }
        let free = machine.free_frames();
        let error = MachineAllocateError::NoBlock { order: Order::BASE, free };
        assert_eq!(machine.allocate(normal), Err(error));
        let urgent = BlockRequest { urgent: true, ..normal };
        for _ in 0..free {
            machine.allocate(urgent).unwrap();
        }
        assert_eq!(
            machine.allocate(urgent),
            Err(MachineAllocateError::NoBlock { order: Order::BASE, free: 0 })
        );
        // Requests for DMA never left it.
        let dma = BlockRequest { highest: ZoneKind::Dma, ..urgent };
        machine.free(extent(1 << 20, 1), 0).unwrap();
        assert!(machine.allocate(dma).is_err());
        assert_eq!(machine.check(), Ok(()));
    });
}

#[test]
fn another_node_serves_when_the_own_is_full() {
    let areas = [extent(1 << 20, 16_384)];
    with_map(&areas, |map| {
        let nodes = [extent(1 << 20, 8192), extent((1 << 20) + 8192, 8192)];
        let layout = Layout::new(map, &nodes, LayoutConfig::default()).unwrap();
        assert_eq!(layout.zonelist(1, ZoneKind::Movable).collect::<Vec<_>>(), [1, 0]);
        let mut machine = machine(map, layout, config(2));
        let own = BlockRequest { node: 1, cpu: 1, ..request(0, Mobility::Movable) };
        let mut zones = Vec::new();
        while let Ok(start) = machine.allocate(own) {
            zones.push(machine.layout().zone_of(start).unwrap());
        }
        zones.dedup();
        assert_eq!(zones, [1, 0, 1, 0]);
        assert_eq!(
            machine.allocate(BlockRequest { node: 2, ..own }),
            Err(MachineAllocateError::Node { node: 2 })
        );
        assert_eq!(
            machine.allocate(BlockRequest { cpu: 2, ..own }),
            Err(MachineAllocateError::Cpu { cpu: 2 })
        );
        assert_eq!(machine.free(extent(1 << 20, 1), 2), Err(MachineFreeError::Cpu { cpu: 2 }));
        let foreign = FrameFreeError::Foreign { frame: Pfn::new(7) };
        assert_eq!(machine.free(extent(7, 1), 0), Err(MachineFreeError::Frames(foreign)));
    });
}

#[test]
fn sections_go_offline_with_a_reason_if_not() {
    let areas = [extent(256, 3840), extent(4096, 61_440)];
    with_map(&areas, |map| {
        let layout_config =
            LayoutConfig { section_frames: 8192, bank_frames: 16_384, ..LayoutConfig::default() };
        let layout = Layout::new(map, &[extent(0, 1 << 20)], layout_config).unwrap();
        let mut machine = machine(map, layout, config(1));
        let section = MemoryUnit::Section;
        let holes = HotplugError::Holes { unit: section(0), frames: 256 };
        assert_eq!(machine.offline(section(0)), Err(holes));
        assert!(machine.section_state(0).unwrap().crosses_zones && !machine.is_removable(0));
        assert_eq!(machine.offline(section(99)), Err(HotplugError::NoUnit { unit: section(99) }));

        // A movable block, then an unmovable one, in a section that is whole.
        let huge = request(10, Mobility::Movable);
        let block = loop {
            let start = machine.allocate(huge).unwrap();
            if machine.layout().section_of(start) == Some(2) {
                break start;
            }
        };
        let state = machine.section_state(2).unwrap();
        assert_eq!((state.present, state.movable, state.unmovable), (8192, 1024, 0));
        assert!(machine.is_removable(2));
        let error = HotplugError::InUse { unit: section(2), frames: 1024 };
        assert_eq!(machine.offline(section(2)), Err(error));

        let kernel = loop {
            let start = machine.allocate(request(10, Mobility::Unmovable)).unwrap();
            if machine.layout().section_of(start) == Some(2) {
                break start;
            }
        };
        let error = HotplugError::Unmovable { unit: section(2), frame: kernel, frames: 1024 };
        assert_eq!(machine.offline(section(2)), Err(error));
        assert!(!machine.is_removable(2));

        // Emptied, it goes; its frames are then neither free nor can they be allocated.
        assert_eq!(machine.isolate(section(2)), Ok(()));
        for start in [block, kernel] {
            machine.free(extent(start.raw(), 1024), 0).unwrap();
        }
        let others: Vec<u64> = (0..8).map(|nth| 16_384 + nth * 1024).collect();
        for start in others {
            if machine.is_used(Pfn::new(start)) == Some(true) {
                machine.free(extent(start, 1024), 0).unwrap();
            }
        }
        let low = machine.watermarks(1).unwrap().low;
        assert_eq!(machine.offline(section(2)), Ok(()));
        assert!(machine.watermarks(1).unwrap().low <= low);
        let state = machine.section_state(2).unwrap();
        assert_eq!((state.free, state.isolation), (8192, Isolation::Offline));
        let again = HotplugError::State { unit: section(2), isolation: Isolation::Offline };
        assert_eq!(machine.offline(section(2)), Err(again));
        assert_eq!(machine.rejoin(section(2)), Err(again));
        // The bank around it cannot be isolated as well.
        let bank = machine.layout().bank_of(Pfn::new(16_384)).unwrap();
        let state = IsolateError::State { frame: Pfn::new(16_384) };
        let error = HotplugError::Zone { unit: MemoryUnit::Bank(bank), error: state };
        assert_eq!(machine.isolate(MemoryUnit::Bank(bank)), Err(error));
        let urgent = BlockRequest { urgent: true, ..request(0, Mobility::Movable) };
        while let Ok(start) = machine.allocate(urgent) {
            assert_ne!(machine.layout().section_of(start), Some(2));
        }
        assert_eq!(machine.check(), Ok(()));
        assert_eq!(machine.online(section(2)), Ok(()));
        let start = machine.allocate(urgent).unwrap();
        assert_eq!(machine.layout().section_of(start), Some(2));
        assert_eq!(machine.check(), Ok(()));
    });
}

#[test]
fn machines_that_cannot_be() {
    with_map(&[extent(0, 4096)], |map| {
        let layout = Layout::new(map, &[extent(0, 4096)], LayoutConfig::default()).unwrap();
        let size = Linux::size(map, &layout, config(2));
        let build = |config, zones: Vec<_>, lists: usize, words: usize| {
            let lists = vec![PerCpuLists::default(); lists];
            Machine::new(map, layout.clone(), config, zones, lists, vec![0; words]).err()
        };
        let zones = || vec![zone(map, extent(0, 4096))];
        let (lists, words) = (size.lists, size.words);
        assert_eq!(build(config(2), zones(), lists, words), None);
        let needed = MachineError::Storage { needed_words: words, given_words: words - 1 };
        assert_eq!(build(config(2), zones(), lists, words - 1), Some(needed));
        let needed = MachineError::Lists { needed: 2, given: 1 };
        assert_eq!(build(config(2), zones(), 1, words), Some(needed));
        assert_eq!(build(config(0), zones(), 1, words), Some(MachineError::Cpus { cpus: 0 }));
        let needed = MachineError::Zones { needed: 1, given: 0 };
        assert_eq!(build(config(2), vec![], lists, words), Some(needed));
        let mut used = zones();
        used[0].allocate(Order::BASE, Mobility::Movable).unwrap();
        let frames = MachineError::Frames { zone: 0, present: 4096, free: 4095 };
        assert_eq!(build(config(2), used, lists, words), Some(frames));
    });
}

/// A machine begins with frames in use, which their owners give back; what does not agree with the
/// zones is refused.
#[test]
fn machines_that_begin_with_frames_in_use() {
    with_map(&[extent(0, 4096)], |map| {
        let layout = Layout::new(map, &[extent(0, 4096)], LayoutConfig::default()).unwrap();
        let size = Linux::size(map, &layout, config(2));
        let used = [
            (extent(3, 1000), Mobility::Movable),
            (extent(1500, 1), Mobility::Unmovable),
            (extent(2048, 512), Mobility::Reclaimable),
        ];
        let build = |used: &[(Extent, Mobility)], taken: &[(Extent, Mobility)]| {
            let storage = vec![0; LinuxZone::<Vec<u64>>::storage_words(map.span())];
            let mut owner = |frame| {
                let mut own = taken.iter().filter(|(extent, _)| extent.contains(frame));
                own.next().map(|(_, mobility)| *mobility)
            };
            let zone = LinuxZone::from_state(
                map,
                map.span(),
                PAGEBLOCK_ORDER,
                storage,
                &mut owner,
                &mut |_| Mobility::Movable,
            );
            let lists = vec![PerCpuLists::default(); size.lists];
            let words = vec![7; size.words];
            let zones = vec![zone.unwrap()];
            let used = used.iter().copied();
            Machine::from_state(map, layout.clone(), config(2), zones, lists, words, used)
        };
        let mut machine = build(&used, &used).unwrap();
        assert_eq!(machine.check(), Ok(()));
        assert_eq!(machine.free_frames(), 4096 - 1513);
        assert_eq!(machine.owner(Pfn::new(1002)), Some(Mobility::Movable));
        assert_eq!(machine.owner(Pfn::new(2048)), Some(Mobility::Unmovable));
        assert_eq!(machine.owner(Pfn::new(1003)), None);
        for (extent, _) in used {
            assert_eq!(machine.free(extent, 1), Ok(()));
        }
        machine.drain();
        assert_eq!((machine.check(), machine.free_frames()), (Ok(()), 4096));

        let less = MachineError::Frames { zone: 0, present: 4096, free: 4096 - 1513 };
        assert_eq!(build(&used[..2], &used).err(), Some(less));
        for bad in [extent(1000, 10), extent(4000, 97), extent(9000, 1)] {
            let twice = [used[0], (bad, Mobility::Movable)];
            assert_eq!(build(&twice, &used).err(), Some(MachineError::Used { extent: bad }));
        }
    });
}

#[test]
fn the_papers_machines() {
    for (preset, gib, nodes, zones) in
        [(LayoutPreset::FourGib, 4, 1, 3), (LayoutPreset::ThirtyTwoGib, 32, 2, 4)]
    {
        let mut areas = [Extent::default(); 4];
        let map = MemoryMap::new(preset.ranges(), &mut areas).unwrap();
        assert_eq!(map.total_frames(), (gib << 18) - 1 - 0x61);
        let layout = Layout::new(&map, preset.nodes(), LayoutConfig::default()).unwrap();
        assert_eq!((layout.nodes(), layout.zones().len()), (nodes, zones));
        let frames: u64 = layout.zones().iter().map(|zone| zone.present_frames).sum();
        assert_eq!(frames, map.total_frames());
        // The hole of 1 GiB counts: 8 sections, 4 banks.
        assert_eq!(layout.sections() as u64, (gib + 1) * 8);
        assert_eq!(layout.banks() as u64, (gib + 1) * 4);
        let crossing: Vec<usize> =
            (0..layout.banks()).filter(|bank| layout.bank_crosses_zones(*bank)).collect();
        assert_eq!(crossing, [0], "only DMA ends within a bank");
        let pairs = LayoutConfig { interleaving: Interleaving::TwoWay, ..LayoutConfig::default() };
        let layout = Layout::new(&map, preset.nodes(), pairs).unwrap();
        assert_eq!(layout.bank_frames(), 512 * MIB);
        assert_eq!(layout.banks() as u64, (gib + 1) * 2);
        let none = usize::MAX;
        assert_eq!((layout.bank(none), layout.section(none)), (None, None));
    }
}

#[test]
fn layouts_that_cannot_be() {
    with_map(&[extent(1000, 5000)], |map| {
        let build = |nodes: &[Extent], config| Layout::new(map, nodes, config).err();
        let default = LayoutConfig::default();
        assert_eq!(build(&[extent(0, 9000)], default), None);
        assert_eq!(build(&[], default), Some(LayoutError::Nodes { count: 0 }));
        let many: Vec<Extent> = (0..17).map(|node| extent(node * 1000, 1000)).collect();
        assert_eq!(build(&many, default), Some(LayoutError::Nodes { count: 17 }));
        let order = LayoutError::NodeOrder { node: 1, span: extent(2999, 9000) };
        assert_eq!(build(&[extent(0, 3000), extent(2999, 9000)], default), Some(order));
        let order = LayoutError::NodeOrder { node: 0, span: extent(2, u64::MAX) };
        assert_eq!(build(&[extent(2, u64::MAX)], default), Some(order));
        let none = LayoutError::NoNode { frame: Pfn::new(3000) };
        assert_eq!(build(&[extent(0, 3000), extent(3001, 9000)], default), Some(none));
        let none = LayoutError::NoNode { frame: Pfn::new(1000) };
        assert_eq!(build(&[extent(1001, 9000)], default), Some(none));
        let empty = LayoutError::EmptyNode { node: 1 };
        assert_eq!(build(&[extent(0, 6000), extent(6000, 10)], default), Some(empty));
        for frames in [0, 1000, 1 << 40] {
            let bank = LayoutConfig { bank_frames: frames, ..default };
            let error = LayoutError::BankFrames { frames };
            assert_eq!(build(&[extent(0, 9000)], bank), Some(error));
            let section = LayoutConfig { section_frames: frames, ..default };
            let error = LayoutError::SectionFrames { frames };
            assert_eq!(build(&[extent(0, 9000)], section), Some(error));
        }
        // Movable frames come off the end; the start is rounded up.
        let movable = LayoutConfig { movable_frames_per_node: 1500, ..default };
        let layout = Layout::new(map, &[extent(0, 9000)], movable).unwrap();
        let zones: Vec<_> = layout.zones().iter().map(|zone| (zone.kind, zone.span)).collect();
        assert_eq!(
            zones,
            [
                (ZoneKind::Dma, extent(1000, 3096)),
                (ZoneKind::Dma32, extent(4096, 1024)),
                (ZoneKind::Movable, extent(5120, 880)),
            ]
        );
    });
}

#[test]
fn a_handle_for_what_is_not_there() {
    with_map(&[extent(0, 4096)], |map| {
        let layout = Layout::new(map, &[extent(0, 4096)], LayoutConfig::default()).unwrap();
        let machine = RefCell::new(machine(map, layout, config(1)));
        let handle = |node, cpu| {
            MachineHandle::new(&machine, Mobility::Movable, ZoneKind::Normal, node, cpu).err()
        };
        assert_eq!(handle(1, 0), Some(MachineAllocateError::Node { node: 1 }));
        assert_eq!(handle(0, 1), Some(MachineAllocateError::Cpu { cpu: 1 }));
        let mut pages =
            MachineHandle::new(&machine, Mobility::Movable, ZoneKind::Normal, 0, 0).unwrap();
        let mut tables =
            MachineHandle::new(&machine, Mobility::Unmovable, ZoneKind::Normal, 0, 0).unwrap();
        let (page, table) = (pages.allocate_frame().unwrap(), tables.allocate_frame().unwrap());
        assert_eq!(machine.borrow().owner(page), Some(Mobility::Movable));
        assert_eq!(machine.borrow().owner(table), Some(Mobility::Unmovable));
    });
}
