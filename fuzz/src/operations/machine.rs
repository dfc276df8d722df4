//! A machine: nodes, zones under watermarks, per-CPU lists, and units that go offline.

use std::cell::RefCell;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{Interleaving, Layout, LayoutConfig, ZoneKind};
use swath_frame::machine::watermark::{Watermarks, min_free_kib, watermarks};
use swath_frame::machine::{HotplugError, MachineAllocateError, MachineFreeError, UnitState};
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, ListPlacement, Placement, PoolPlacement,
};
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{
    BlockRequest, FrameAllocator, FrameFreeError, IsolateError, Isolation, LinuxZone, Machine,
    MachineConfig, MachineHandle, MemoryMap, MemoryUnit, Mobility, PerCpuLists, ZoneAllocator,
};

use super::memory::{GARBAGE, extent, with_map};

/// Most operations of an input: each is judged by frames, of which there are thousands.
const STEPS_MAX: usize = 250;

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
/// for each frame and each unit.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random);
    let (first, end) = (areas[0].start.raw(), areas[areas.len() - 1].end().raw());
    let nodes = match random.below(3) {
        0 => vec![extent(first, end - first)],
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Hole,
    Free,
    Movable,
    Unmovable,
}

/// A state for each frame and for each unit.
struct Model<'l> {
    layout: &'l Layout,
    config: MachineConfig,
    /// The first frame of `states`.
    first: u64,
    states: Vec<State>,
    sections: Vec<Isolation>,
    banks: Vec<Isolation>,
}

impl<'l> Model<'l> {
    fn new(map: &MemoryMap<'_>, layout: &'l Layout, config: MachineConfig) -> Self {
        let span = map.span();
        let state = |frame| if map.contains(frame) { State::Free } else { State::Hole };
        Self {
            layout,
            config,
            first: span.start.raw(),
            states: span.iter().map(state).collect(),
            sections: vec![Isolation::None; layout.sections()],
            banks: vec![Isolation::None; layout.banks()],
        }
    }

    fn state(&self, frame: Pfn) -> State {
        let index = frame.raw().checked_sub(self.first).map(|index| index as usize);
        index.and_then(|index| self.states.get(index).copied()).unwrap_or(State::Hole)
    }

    fn is_used(&self, frame: Pfn) -> bool {
        matches!(self.state(frame), State::Movable | State::Unmovable)
    }

    fn is_isolated(&self, frame: Pfn) -> bool {
        let section = self.layout.section_of(frame).map(|at| self.sections[at]);
        let bank = self.layout.bank_of(frame).map(|at| self.banks[at]);
        section.into_iter().chain(bank).any(|isolation| isolation != Isolation::None)
    }

    /// Free and not isolated.
    fn is_free(&self, frame: Pfn) -> bool {
        self.state(frame) == State::Free && !self.is_isolated(frame)
    }

    /// One answer for each zone: its frames that can be handed out.
    fn free_in(&self, zone: usize) -> u64 {
        let span = self.layout.zones()[zone].span;
        span.iter().filter(|&frame| self.is_free(frame)).count() as u64
    }

    fn has_block(&self, zone: usize, order: Order) -> bool {
        let span = self.layout.zones()[zone].span;
        let mut start = span.start.raw().next_multiple_of(order.frames());
        while start + order.frames() <= span.end().raw() {
            let mut frames = extent(start, order.frames()).iter();
            if order <= ORDER_MAX && frames.all(|frame| self.is_free(frame)) {
                return true;
            }
            start += order.frames();
        }
        false
    }

    fn take(&mut self, block: Extent, mobility: Mobility) {
        for frame in block.iter() {
            assert!(self.is_free(frame), "{frame} of {block} is {:?}", self.state(frame));
            let state =
                if mobility == Mobility::Movable { State::Movable } else { State::Unmovable };
            self.states[(frame.raw() - self.first) as usize] = state;
        }
    }

    /// Frees frames; the result that a free has to have.
    fn give(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        match extent.iter().find(|&frame| !self.is_used(frame)) {
            Some(frame) if self.state(frame) == State::Hole => {
                Err(FrameFreeError::Foreign { frame })
            }
            Some(frame) => Err(FrameFreeError::NotAllocated { frame }),
            None => {
                for frame in extent.iter() {
                    self.states[(frame.raw() - self.first) as usize] = State::Free;
                }
                Ok(())
            }
        }
    }

    fn isolation(&mut self, unit: MemoryUnit) -> &mut Isolation {
        match unit {
            MemoryUnit::Section(section) => &mut self.sections[section],
            MemoryUnit::Bank(bank) => &mut self.banks[bank],
        }
    }

    fn extent(&self, unit: MemoryUnit) -> Option<Extent> {
        match unit {
            MemoryUnit::Section(section) => self.layout.section(section),
            MemoryUnit::Bank(bank) => self.layout.bank(bank),
        }
    }

    fn unit_state(&mut self, unit: MemoryUnit) -> Option<UnitState> {
        let extent = self.extent(unit)?;
        let count =
            |state| extent.iter().filter(|&frame| self.state(frame) == state).count() as u64;
        let (free, movable) = (count(State::Free), count(State::Movable));
        let unmovable = count(State::Unmovable);
        let mut zones: Vec<_> = extent
            .iter()
            .filter(|&frame| self.state(frame) != State::Hole)
            .map(|frame| self.layout.zone_of(frame))
            .collect();
        zones.dedup();
        Some(UnitState {
            present: free + movable + unmovable,
            free,
            movable,
            unmovable,
            isolation: *self.isolation(unit),
            crosses_zones: zones.len() > 1,
        })
    }

    /// The unit's frames and state, if it may be isolated at all.
    fn whole(&mut self, unit: MemoryUnit) -> Result<(Extent, UnitState), HotplugError> {
        let extent = self.extent(unit).ok_or(HotplugError::NoUnit { unit })?;
        let state = self.unit_state(unit).expect("there is such a unit");
        if state.present < extent.count {
            return Err(HotplugError::Holes { unit, frames: extent.count - state.present });
        }
        if state.crosses_zones {
            return Err(HotplugError::CrossesZones { unit });
        }
        Ok((extent, state))
    }

    fn removable(&mut self, unit: MemoryUnit) -> Result<UnitState, HotplugError> {
        let (extent, state) = self.whole(unit)?;
        if state.isolation == Isolation::Offline {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        match extent.iter().find(|&frame| self.state(frame) == State::Unmovable) {
            Some(frame) => Err(HotplugError::Unmovable { unit, frame, frames: state.unmovable }),
            None => Ok(state),
        }
    }

    fn isolate(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        let (extent, state) = self.whole(unit)?;
        if state.isolation != Isolation::None {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        // Isolated with a unit of the other kind.
        if let Some(frame) = extent.iter().find(|&frame| self.is_isolated(frame)) {
            return Err(HotplugError::Zone { unit, error: IsolateError::State { frame } });
        }
        *self.isolation(unit) = Isolation::Isolated;
        Ok(())
    }

    fn leave(&mut self, unit: MemoryUnit, from: Isolation) -> Result<(), HotplugError> {
        let (_, state) = self.whole(unit)?;
        if state.isolation != from {
            return Err(HotplugError::State { unit, isolation: state.isolation });
        }
        *self.isolation(unit) = Isolation::None;
        Ok(())
    }

    fn offline(&mut self, unit: MemoryUnit) -> Result<(), HotplugError> {
        let state = self.removable(unit)?;
        if state.movable > 0 {
            return Err(HotplugError::InUse { unit, frames: state.movable });
        }
        if state.isolation == Isolation::None {
            self.isolate(unit)?;
        }
        *self.isolation(unit) = Isolation::Offline;
        Ok(())
    }

    /// The watermarks of all zones, from what is not offline.
    fn marks(&self) -> Vec<Watermarks> {
        let zones = self.layout.zones();
        let gone = |isolation: &Isolation| *isolation == Isolation::Offline;
        let sections = self.sections.iter().enumerate().filter(|(_, isolation)| gone(isolation));
        let banks = self.banks.iter().enumerate().filter(|(_, isolation)| gone(isolation));
        let mut managed: Vec<u64> = zones.iter().map(|zone| zone.present_frames).collect();
        for extent in sections
            .filter_map(|(at, _)| self.layout.section(at))
            .chain(banks.filter_map(|(at, _)| self.layout.bank(at)))
        {
            managed[self.layout.zone_of(extent.start).expect("a unit of one zone")] -= extent.count;
        }
        let buffer = (0..zones.len()).filter(|&zone| zones[zone].kind != ZoneKind::Movable);
        let kib = min_free_kib(buffer.map(|zone| managed[zone]).sum());
        let kib = self.config.min_free_kib.unwrap_or(kib);
        watermarks(self.layout, |zone| managed[zone], kib)[..zones.len()].to_vec()
    }

    /// Returns true if a zone that is left so many frames may serve the request.
    fn may_serve(&self, zone: usize, request: &BlockRequest) -> bool {
        let marks = self.marks()[zone];
        let mark = marks.min + marks.reserve[request.highest as usize];
        request.urgent || self.free_in(zone).saturating_sub(request.order.frames() - 1) > mark
    }
}

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
    for step in 0..STEPS_MAX {
        if random.is_spent() {
            break;
        }
        operate(&mut machine.borrow_mut(), &mut model, &mut random, &mut held);
        check(&machine, &mut model, step % 8 == 0);
    }
    check(&machine, &mut model, true);
    for section in 0..layout.sections() {
        bring_back(&mut machine.borrow_mut(), &mut model, MemoryUnit::Section(section));
    }
    for bank in 0..layout.banks() {
        bring_back(&mut machine.borrow_mut(), &mut model, MemoryUnit::Bank(bank));
    }
    for frame in map.areas().iter().flat_map(|area| area.iter()) {
        if model.is_used(frame) {
            let one = Extent::new(frame, 1);
            assert_eq!(free(&mut machine.borrow_mut(), one, 0), model.give(one));
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
            let free = zones.iter().map(|&zone| model.free_in(zone)).sum();
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
    match *model.isolation(unit) {
        Isolation::None => {}
        Isolation::Isolated => assert_eq!(machine.rejoin(unit), Ok(())),
        Isolation::Offline => assert_eq!(machine.online(unit), Ok(())),
    }
    *model.isolation(unit) = Isolation::None;
}

/// Counts and states of everything; if `all` each frame's place, too.
fn check<Z: ZoneAllocator>(machine: &RefCell<Built<Z>>, model: &mut Model<'_>, all: bool) {
    let bench = machine.borrow();
    let mut free = 0;
    for (zone, marks) in model.marks().into_iter().enumerate() {
        let (own, free_in) =
            (bench.zones()[zone].free_frames() + bench.waiting_frames(zone), model.free_in(zone));
        assert_eq!(own, free_in, "zone {zone}");
        assert_eq!(bench.watermarks(zone), Some(marks), "zone {zone}");
        free += free_in;
    }
    assert_eq!(bench.free_frames(), free);
    if !all {
        return;
    }
    assert_eq!(bench.check(), Ok(()));
    let sections = (0..model.sections.len()).map(MemoryUnit::Section);
    for unit in sections.chain((0..model.banks.len()).map(MemoryUnit::Bank)) {
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
