//! A machine: nodes, zones under watermarks, per-CPU lists, and units that go offline.

mod model;

use std::cell::RefCell;

use swath_arch::testing::{Random, Steps};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{Interleaving, Layout, LayoutConfig, ZoneKind};
use swath_frame::machine::{HotplugError, MachineAllocateError, MachineFreeError};
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, ListPlacement, Placement, PoolPlacement,
};
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{
    BlockRequest, FrameAllocator, FrameFreeError, Isolation, LinuxZone, Machine, MachineConfig,
    MachineHandle, MemoryMap, MemoryUnit, Mobility, PerCpuLists, ZoneAllocator,
};

use self::model::{Model, State};
use super::memory::{GARBAGE, extent, with_map};

/// Most operations of an input: each is judged by frames, of which there are thousands.
const STEPS: Steps = Steps::quadrupling(250);

/// Frames that a unit is a multiple of.
const UNIT_FRAMES: u64 = 1024;

type Built<Z> = Machine<Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;

/// The kind of a machine's zones.
#[derive(Clone, Copy)]
enum Zones {
    Linux { pageblock: Order },
    Array,
    List,
    Pools,
}

/// Draws memory, nodes, the division and the kind of zones, and drives the machine beside a state
/// for each frame and each unit. Each result, and of each zone the free frames and the watermarks, are
/// compared at once; each frame's and each unit's state, which frames are free, and the invariants,
/// after 1, 4, 16... operations, at the end, and when all is given back.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random);
    let (first, end) = (areas[0].start.raw(), areas[areas.len() - 1].end().raw());
    let nodes = match random.below(3) {
        0 => vec![extent(first, end - first)],
        // Of one frame there are no two parts.
        _ if end - first == 1 => vec![extent(first, 1)],
        _ => {
            let border = first + 1 + random.below(end - first - 1);
            vec![extent(0, border), extent(border, end + random.below(5) - border)]
        }
    };
    let ways = [Interleaving::None, Interleaving::TwoWay];
    let division = LayoutConfig {
        bank_frames: UNIT_FRAMES * (1 + random.below(3)),
        interleaving: ways[random.index(2)],
        section_frames: UNIT_FRAMES * (1 + random.below(2)),
        movable_frames_per_node: [0, 700, 2000][random.index(3)],
    };
    let config = MachineConfig {
        cpus: 1 + random.index(4),
        min_free_kib: [None, Some(0), Some(64), Some(4000)][random.index(4)],
        per_cpu_lists: !random.one_in(4),
    };
    let zones = match random.below(8) {
        0 => Zones::Array,
        1 => Zones::List,
        2 => Zones::Pools,
        _ => Zones::Linux { pageblock: Order::known([3, 7, 9, 10][random.index(4)]) },
    };
    with_map(&areas, |map| {
        let Ok(layout) = Layout::new(&map, &nodes, division) else { return };
        build(&map, &layout, config, zones, random);
    });
}

/// Areas that begin below a border of two kinds of zones, or nowhere near one.
fn areas(random: &mut Random) -> Vec<Extent> {
    let near = [0, 2900, 10_000, (1 << 20) - 1500][random.index(4)];
    let mut start = near + random.below(256);
    (0..1 + random.below(3))
        .map(|_| {
            let area = extent(start, 1 + random.below(3000));
            start = area.end().raw() + [0, 1, 200, 1024][random.index(4)];
            area
        })
        .collect()
}

fn build(
    map: &MemoryMap<'_>,
    layout: &Layout,
    config: MachineConfig,
    zones: Zones,
    random: Random,
) {
    let spans = layout.zones().iter().map(|zone| zone.span);
    match zones {
        Zones::Linux { pageblock } => {
            let zone = |span| {
                let words = vec![GARBAGE; LinuxZone::<&mut [u64]>::storage_words(span)];
                LinuxZone::new(map, span, pageblock, words).expect("a zone of the layout")
            };
            drive(map, layout, config, spans.map(zone).collect(), random);
        }
        Zones::Array => {
            let zones = spans.map(|span| banked(map, span, ArrayPlacement)).collect();
            drive(map, layout, config, zones, random);
        }
        Zones::List => {
            let zones = spans.map(|span| banked(map, span, ListPlacement::new(true))).collect();
            drive(map, layout, config, zones, random);
        }
        Zones::Pools => {
            let zones = spans.map(|span| banked(map, span, PoolPlacement::default())).collect();
            drive(map, layout, config, zones, random);
        }
    }
}

fn banked<P: Placement>(map: &MemoryMap<'_>, span: Extent, rule: P) -> BankBuddy<Vec<u64>, P> {
    let banks = BankLayout::new(Pfn::new(0), UNIT_FRAMES, ORDER_MAX).expect("banks of a unit");
    let words = BankBuddy::<Vec<u64>, P>::storage_words(map, span, banks, &rule);
    let words = vec![GARBAGE; words.expect("a span of the map's")];
    BankBuddy::new(map, span, banks, rule, words).expect("a zone of the layout")
}

/// Frames that are given back at the end, each by itself; the others by runs.
const SINGLES: usize = 64;

fn drive<Z: ZoneAllocator>(
    map: &MemoryMap<'_>,
    layout: &Layout,
    config: MachineConfig,
    zones: Vec<Z>,
    mut random: Random,
) {
    let size = Built::<Z>::size(map, layout, config);
    let lists = vec![PerCpuLists::default(); size.lists];
    let words = vec![GARBAGE; size.words];
    let machine = Machine::new(map, layout.clone(), config, zones, lists, words);
    let machine = RefCell::new(machine.expect("as the layout wants it"));
    let mut model = Model::new(map, layout, config);
    let mut held = Vec::new();
    for step in 1..=STEPS.most {
        if random.is_spent() {
            break;
        }
        operate(&mut machine.borrow_mut(), &mut model, &mut random, &mut held);
        check(&machine, &mut model, STEPS.compares_all(step));
    }
    check(&machine, &mut model, true);
    for section in 0..layout.sections() {
        bring_back(&mut machine.borrow_mut(), &mut model, MemoryUnit::Section(section));
    }
    for bank in 0..layout.banks() {
        bring_back(&mut machine.borrow_mut(), &mut model, MemoryUnit::Bank(bank));
    }
    let mut singles = 0;
    for area in map.areas() {
        let mut frame = area.start;
        while frame < area.end() {
            let run = (frame.raw()..area.end().raw()).map(Pfn::new);
            let mut count = run.take_while(|&frame| model.is_used(frame)).count() as u64;
            if count > 0 {
                count = if singles < SINGLES { 1 } else { count };
                singles += 1;
                let run = Extent::new(frame, count);
                assert_eq!(free(&mut machine.borrow_mut(), run, 0), model.give(run));
            }
            frame += count.max(1);
        }
    }
    machine.borrow_mut().drain();
    check(&machine, &mut model, true);
    let zones = machine.borrow().zones().iter().map(ZoneAllocator::free_frames).sum::<u64>();
    assert_eq!(zones, map.total_frames());
}

fn operate<Z: ZoneAllocator>(
    machine: &mut Built<Z>,
    model: &mut Model<'_>,
    random: &mut Random,
    held: &mut Vec<Extent>,
) {
    let cpus = machine.cpus();
    match random.below(16) {
        // Several alike, so that lists are refilled and zones run dry.
        0..6 => {
            let request = request(random, model.layout, model.config);
            for _ in 0..[1, 1, 8, 64][random.index(4)] {
                allocate(machine, model, request, held);
            }
        }
        6..10 if !held.is_empty() => {
            let cpu = random.index(cpus);
            for _ in 0..[1, 1, 8, 64][random.index(4)].min(held.len()) {
                let block: Extent = held.swap_remove(random.index(held.len()));
                // A part of it may have gone in another way.
                assert_eq!(free(machine, block, cpu), model.give(block), "{block}");
            }
        }
        10 => {
            let (extent, cpu) = (any_extent(model, random), random.index(cpus));
            assert_eq!(free(machine, extent, cpu), model.give(extent), "{extent}");
        }
        11 => wrong_numbers(machine, random),
        12 => machine.drain(),
        13 => allocate_with(machine, model, random, held),
        _ => hotplug(machine, model, random),
    }
}

fn request(random: &mut Random, layout: &Layout, config: MachineConfig) -> BlockRequest {
    let k = [0, 0, 0, 1, 2, 3, 4, 7, 9, 10, 11][random.index(11)];
    BlockRequest {
        order: Order::known(k),
        mobility: Mobility::ALL[random.index(3)],
        highest: [ZoneKind::Movable, ZoneKind::Normal, ZoneKind::Dma32, ZoneKind::Dma]
            [random.index(4)],
        node: random.index(layout.nodes()),
        cpu: random.index(config.cpus),
        urgent: random.one_in(3),
    }
}

/// A request is served exactly if a zone has a block that its watermark lets go.
fn allocate<Z: ZoneAllocator>(
    machine: &mut Built<Z>,
    model: &mut Model<'_>,
    mut request: BlockRequest,
    held: &mut Vec<Extent>,
) {
    let got = machine.allocate(request);
    if request.mobility != Mobility::Movable {
        request.highest = request.highest.min(ZoneKind::Normal);
    }
    let zones: Vec<usize> = model.layout.zonelist(request.node, request.highest).collect();
    let order = request.order;
    match got {
        Ok(start) => {
            let block = Extent::new(start, order.frames());
            assert!(start.is_aligned(order.k()), "{block}");
            let zone = model.layout.zone_of(start).expect("a frame of a zone");
            assert!(zones.contains(&zone), "{block} for {request:?}");
            let end = model.layout.zones()[zone].span.end();
            assert!(block.end() <= end, "{block} reaches beyond zone {zone}");
            assert!(model.may_serve(zone, &request), "{block}: zone {zone} is below its mark");
            model.take(block, request.mobility);
            held.push(block);
        }
        Err(error) => {
            let free = zones.iter().map(|&zone| model.free[zone]).sum();
            assert_eq!(error, MachineAllocateError::NoBlock { order, free });
            for zone in zones {
                let serves = model.may_serve(zone, &request) && model.has_block(zone, order);
                assert!(!serves, "zone {zone} could have served {request:?}");
            }
        }
    }
}

/// A block that the zone's allocator itself chooses.
fn allocate_with<Z: ZoneAllocator>(
    machine: &mut Built<Z>,
    model: &mut Model<'_>,
    random: &mut Random,
    held: &mut Vec<Extent>,
) {
    let zone = random.index(model.layout.zones().len() + 1);
    let (order, mobility) = (Order::known(random.below(11) as u8), Mobility::ALL[random.index(3)]);
    let choose = |zone: &mut Z| zone.allocate(order, mobility);
    if let Some(start) = machine.allocate_with(zone, order, mobility, choose) {
        let block = Extent::new(start, order.frames());
        assert_eq!(model.layout.zone_of(start), Some(zone));
        model.take(block, mobility);
        held.push(block);
    }
}

fn free<Z: ZoneAllocator>(
    machine: &mut Built<Z>,
    extent: Extent,
    cpu: usize,
) -> Result<(), FrameFreeError> {
    machine.free(extent, cpu).map_err(|error| match error {
        MachineFreeError::Frames(error) => error,
        error @ MachineFreeError::Cpu { .. } => panic!("{error}"),
    })
}

/// Frames in use from one of them on, whatever they were allocated as, a run around them, or what
/// cannot be.
fn any_extent(model: &Model<'_>, random: &mut Random) -> Extent {
    let near = model.first + random.below(model.states.len() as u64);
    let used = (near..model.first + model.states.len() as u64)
        .find(|&frame| model.is_used(Pfn::new(frame)));
    let start = used.unwrap_or(near);
    let run = (start..).take_while(|&frame| model.is_used(Pfn::new(frame))).count() as u64;
    match random.below(8) {
        0 => extent(near, random.below(10)),
        1 => extent(u64::MAX - random.below(3), random.below(5)),
        2 => extent(start, run + 1),
        3 => extent(start, u64::MAX - random.below(2 * start + 1)),
        4 => extent(start.saturating_sub(1), run),
        5 => extent(start, run),
        _ => extent(start, 1 + random.below(run.max(1))),
    }
}

/// Nodes, processors and units that are not there.
fn wrong_numbers<Z: ZoneAllocator>(machine: &mut Built<Z>, random: &mut Random) {
    let (node, cpu) = (machine.layout().nodes(), machine.cpus());
    let request = BlockRequest {
        order: Order::BASE,
        mobility: Mobility::Movable,
        highest: ZoneKind::Movable,
        node: 0,
        cpu: 0,
        urgent: true,
    };
    let wrong = BlockRequest { node, ..request };
    assert_eq!(machine.allocate(wrong), Err(MachineAllocateError::Node { node }));
    let wrong = BlockRequest { cpu, ..request };
    assert_eq!(machine.allocate(wrong), Err(MachineAllocateError::Cpu { cpu }));
    let error = machine.free(extent(random.below(5000), 1), cpu);
    assert_eq!(error, Err(MachineFreeError::Cpu { cpu }));
    let unit = MemoryUnit::Section(machine.layout().sections() + random.index(3));
    assert_eq!(machine.offline(unit), Err(HotplugError::NoUnit { unit }));
    assert_eq!(machine.unit_state(unit), None);
    assert_eq!(machine.watermarks(machine.layout().zones().len()), None);
}

fn hotplug<Z: ZoneAllocator>(machine: &mut Built<Z>, model: &mut Model<'_>, random: &mut Random) {
    let unit = if random.one_in(2) {
        MemoryUnit::Section(random.index(model.sections.len()))
    } else {
        MemoryUnit::Bank(random.index(model.banks.len()))
    };
    match random.below(6) {
        0 => assert_eq!(machine.isolate(unit), model.isolate(unit), "isolate {unit}"),
        1 => {
            let expected = model.leave(unit, Isolation::Isolated);
            assert_eq!(machine.rejoin(unit), expected, "rejoin {unit}");
        }
        2 => {
            let expected = model.leave(unit, Isolation::Offline);
            assert_eq!(machine.online(unit), expected, "online {unit}");
        }
        3 => assert_eq!(machine.removable(unit), model.removable(unit), "removable {unit}"),
        _ => assert_eq!(machine.offline(unit), model.offline(unit), "offline {unit}"),
    }
    let MemoryUnit::Section(section) = unit else { return };
    let removable = model.whole(unit).is_ok_and(|(_, state)| state.unmovable == 0);
    assert_eq!(machine.is_removable(section), removable);
}

fn bring_back<Z: ZoneAllocator>(machine: &mut Built<Z>, model: &mut Model<'_>, unit: MemoryUnit) {
    match model.isolation(unit) {
        Isolation::None => {}
        Isolation::Isolated => assert_eq!(machine.rejoin(unit), Ok(())),
        Isolation::Offline => assert_eq!(machine.online(unit), Ok(())),
    }
    if model.isolation(unit) != Isolation::None {
        model.set_isolation(unit, Isolation::None);
    }
}

/// Counts and states of everything; if `all` each frame's place, too.
fn check<Z: ZoneAllocator>(machine: &RefCell<Built<Z>>, model: &mut Model<'_>, all: bool) {
    let bench = machine.borrow();
    let mut free = 0;
    for (zone, &marks) in model.marks.iter().enumerate() {
        let (own, free_in) =
            (bench.zones()[zone].free_frames() + bench.waiting_frames(zone), model.free[zone]);
        assert_eq!(own, free_in, "zone {zone}");
        assert_eq!(bench.watermarks(zone), Some(marks), "zone {zone}");
        free += free_in;
    }
    assert_eq!(bench.free_frames(), free);
    if !all {
        return;
    }
    assert_eq!(bench.check(), Ok(()));
    let kept = (model.open.clone(), model.free.clone(), model.marks.clone());
    model.renew();
    assert!(kept == (model.open.clone(), model.free.clone(), model.marks.clone()), "the model");
    for unit in model.units() {
        assert_eq!(bench.unit_state(unit), model.unit_state(unit), "{unit}");
    }
    for frame in
        (model.first.saturating_sub(2)..model.first + model.states.len() as u64 + 2).map(Pfn::new)
    {
        let (used, owner) = match model.state(frame) {
            State::Hole => (None, None),
            State::Free => (Some(false), None),
            State::Movable => (Some(true), Some(Mobility::Movable)),
            State::Unmovable => (Some(true), Some(Mobility::Unmovable)),
        };
        assert_eq!((bench.is_used(frame), bench.owner(frame)), (used, owner), "{frame}");
    }
    drop(bench);
    let handle = MachineHandle::new(machine, Mobility::Movable, ZoneKind::Movable, 0, 0);
    let mut seen = vec![false; model.states.len()];
    handle.expect("a node and a processor").for_each_free(&mut |block| {
        for frame in block.iter() {
            assert!(model.is_free(frame), "{frame} of {block} is {:?}", model.state(frame));
            let seen = &mut seen[(frame.raw() - model.first) as usize];
            assert!(!*seen, "{frame} is free twice");
            *seen = true;
        }
    });
    assert_eq!(seen.iter().filter(|&&seen| seen).count() as u64, free);
}
