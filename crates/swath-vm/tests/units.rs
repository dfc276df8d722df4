//! A machine's banks and sections as the migration daemon sees them, beside a list of all blocks in use.

use std::cell::{Cell, RefCell};

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{Layout, LayoutConfig, LayoutZone, ZoneKind};
use swath_frame::zone::bank::{
    AdaptiveBuddy, BankBuddy, BankLayout, BankPool, BoundaryBuddy, BoundaryPlacement, ListBuddy,
    ListPlacement, Placement, PoolPlacement, PoolPolicy,
};
use swath_frame::{
    BlockRequest, ByteRange, HotplugError, Isolation, LinuxZone, Machine, MachineConfig, MemoryMap,
    MemoryUnit, Mobility, PerCpuLists,
};
use swath_vm::migrate::daemon::{
    BankCandidate, Daemon, GiveUpCause, MigrationConfig, MovableBanks, Owners, Stuck,
};
use swath_vm::migrate::units::{Emptying, HotplugUnits, NodeBanks, OfflineError};

const BANK: u64 = 1024;
const SECTION: u64 = 2048;
/// Two nodes, with holes within and between them.
const AREAS: [(u64, u64); 4] = [(0, 4096), (4196, 9000), (10_240, 17_408), (17_410, 18_000)];
const NODES: [(u64, u64); 2] = [(0, 9216), (9216, 20_000)];

type Computer<Z> = Machine<Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;
type Banks<'m, Z> = NodeBanks<'m, Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;
type Units<'m, Z> = HotplugUnits<'m, Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

/// What each allocator is to say, from what can be seen of its banks.
trait Says: Emptying + Sized {
    fn rests_by(&self, _: u64) -> bool {
        false
    }
    fn may_by(&self, _: u64) -> bool {
        true
    }
    fn room(&self) -> u64 {
        self.free_frames()
    }
    /// True if a target is there, in a machine whose per-CPU lists are empty; `None` if that is open.
    fn serves(&self, order: u32) -> Option<bool> {
        let mut serves = false;
        self.for_each_free(&mut |block| {
            let first = block.start.raw().next_multiple_of(1 << order);
            serves |= first + (1 << order) <= block.end().raw();
        });
        Some(serves)
    }
}

impl Says for LinuxZone<Vec<u64>> {}
impl Says for ListBuddy<Vec<u64>> {}

/// The pool of the bank around a frame.
fn pool_of<P: Placement>(zone: &BankBuddy<Vec<u64>, P>, frame: u64) -> Option<BankPool> {
    let states = (0..zone.banks()).filter_map(|bank| zone.bank(bank));
    states.filter(|state| state.extent.contains(Pfn::new(frame))).find_map(|state| state.pool)
}

impl Says for BoundaryBuddy<Vec<u64>> {
    fn may_by(&self, frame: u64) -> bool {
        // The bank before it in the movable region, too.
        let before = frame / BANK * BANK;
        let is_user = |frame| pool_of(self, frame) == Some(BankPool::User);
        is_user(frame) && before > 0 && is_user(before - 1)
    }
    fn serves(&self, _: u32) -> Option<bool> {
        None
    }
}

impl Says for AdaptiveBuddy<Vec<u64>> {
    fn rests_by(&self, frame: u64) -> bool {
        pool_of(self, frame) == Some(BankPool::Offline)
    }
    fn may_by(&self, frame: u64) -> bool {
        let pool = pool_of(self, frame);
        match self.policy() == PoolPolicy::PACKED {
            true => true,
            false => pool == Some(BankPool::User),
        }
    }
    fn room(&self) -> u64 {
        let of = |pool| {
            let states = (0..self.banks()).filter_map(|bank| self.bank(bank));
            let own = states.filter(|state| state.pool == Some(pool) && !state.isolated);
            own.map(|state| state.free_frames).sum::<u64>()
        };
        let shared = of(BankPool::Kernel).saturating_sub(8192);
        of(BankPool::User) + if self.policy() == PoolPolicy::PACKED { shared } else { 0 }
    }
    fn serves(&self, _: u32) -> Option<bool> {
        None
    }
}

/// A machine, and each block that is in use.
struct World<'m, Z> {
    machine: &'m RefCell<Computer<Z>>,
    present: Vec<bool>,
    blocks: Vec<(Extent, Mobility)>,
    random: Random,
    owners: Plain,
}

/// Owners of the blocks that are movable.
#[derive(Default)]
struct Plain {
    blocks: Vec<(Pfn, Order)>,
    pinned: Option<Pfn>,
    moved: Cell<u64>,
}

impl Owners for Plain {
    fn block(&self, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
        let around = |(start, order): &&(Pfn, Order)| {
            (start.raw()..start.raw() + order.frames()).contains(&frame.raw())
        };
        let block = self.blocks.iter().find(around).copied();
        if block.is_some_and(|block| Some(block.0) == self.pinned) {
            return Err(Stuck::Pinned);
        }
        Ok(block)
    }

    fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> Result<bool, Stuck> {
        let at = self.blocks.iter().position(|&block| block == (from, order)).unwrap();
        self.blocks[at].0 = to;
        self.moved.set(self.moved.get() + order.frames());
        Ok(true)
    }
}

fn with_world<Z: Says>(
    [areas, nodes]: [&[(u64, u64)]; 2],
    seed: u64,
    movable_frames_per_node: u64,
    zone: impl Fn(&MemoryMap<'_>, &LayoutZone) -> Z,
    test: impl FnOnce(&mut World<'_, Z>),
) {
    let extents = |of: &[(u64, u64)]| -> Vec<Extent> {
        of.iter().map(|&(start, end)| extent(start, end - start)).collect()
    };
    let ranges: Vec<_> = extents(areas).into_iter().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    let config = LayoutConfig {
        bank_frames: BANK,
        section_frames: SECTION,
        movable_frames_per_node,
        ..LayoutConfig::default()
    };
    let layout = Layout::new(&map, &extents(nodes), config).unwrap();
    let config = MachineConfig { cpus: 2, min_free_kib: Some(256), per_cpu_lists: true };
    let zones: Vec<Z> = layout.zones().iter().map(|of| zone(&map, of)).collect();
    let size = Computer::<Z>::size(&map, &layout, config);
    let lists = vec![PerCpuLists::default(); size.lists];
    let machine = Machine::new(&map, layout, config, zones, lists, vec![0; size.words]).unwrap();
    let mut present = vec![false; map.span().end().raw() as usize + BANK as usize];
    areas.iter().for_each(|&(start, end)| present[start as usize..end as usize].fill(true));
    test(&mut World {
        machine: &RefCell::new(machine),
        present,
        blocks: Vec::new(),
        random: Random::new(seed),
        owners: Plain::default(),
    });
}

impl<'m, Z: Says> World<'m, Z> {
    /// Allocates or frees, tends to so many frames in use, and changes the state of a unit now and then.
    fn work(&mut self, goal: u64) {
        let used: u64 = self.blocks.iter().map(|(block, _)| block.count).sum();
        let mut machine = self.machine.borrow_mut();
        let random = &mut self.random;
        if random.below(3) < if used < goal { 2 } else { 1 } {
            let order = Order::known([0, 0, 2, 5, 9][random.index(5)]);
            let mobility = match random.below(9) {
                0 => Mobility::Unmovable,
                1 => Mobility::Reclaimable,
                _ => Mobility::Movable,
            };
            let (node, cpu) = (random.index(2), random.index(2));
            let highest = ZoneKind::ALL[random.index(4)];
            let request = BlockRequest { order, mobility, highest, node, cpu, urgent: true };
            if let Ok(start) = machine.allocate(request) {
                self.blocks.push((Extent::new(start, order.frames()), mobility));
            }
        } else if !self.blocks.is_empty() {
            let (block, _) = self.blocks.swap_remove(random.index(self.blocks.len()));
            machine.free(block, random.index(2)).unwrap();
        }
        if random.one_in(400) {
            let unit = MemoryUnit::Bank(random.index(machine.layout().banks()));
            let _ = match random.below(4) {
                0 => machine.isolate(unit),
                1 => machine.rejoin(unit),
                2 => machine.offline(unit),
                _ => machine.online(unit),
            };
        }
    }

    /// The movable and the other frames in use in a range.
    fn used(&self, range: Extent) -> (u64, u64) {
        let within = |movable: bool| -> u64 {
            let own = self.blocks.iter().filter(|(_, m)| (*m == Mobility::Movable) == movable);
            own.map(|(block, _)| block.intersect(range).count).sum()
        };
        (within(true), within(false))
    }

    fn present(&self, range: Extent) -> u64 {
        range.iter().filter(|frame| self.present[frame.raw() as usize]).count() as u64
    }

    /// The zones of the frames of a range, each once.
    fn zones(&self, range: Extent) -> Vec<usize> {
        let machine = self.machine.borrow();
        let zones = machine.layout().zones().iter().enumerate();
        zones.filter(|(_, zone)| zone.span.overlaps(range)).map(|(zone, _)| zone).collect()
    }

    fn agree(&mut self, banks: &Banks<'m, Z>, is_own: &dyn Fn(usize) -> bool, context: &str) {
        let machine = self.machine.borrow();
        let layout = machine.layout().clone();
        let units: Vec<_> = (0..layout.banks()).map(|bank| layout.bank(bank).unwrap()).collect();
        let states: Vec<_> = (0..layout.banks()).map(|b| machine.bank_state(b).unwrap()).collect();
        // The zone that a bank begins in.
        let zone_of = |frames: Extent| layout.zone_of(frames.start);
        let mut resting = 0;
        let mut candidates = Vec::new();
        for (bank, &frames) in units.iter().enumerate() {
            let (movable, unmovable) = self.used(frames);
            let isolation = states[bank].isolation;
            let is_whole = self.present(frames) == frames.count && self.zones(frames).len() == 1;
            let rests = zone_of(frames)
                .is_some_and(|zone| machine.zones()[zone].rests_by(frames.start.raw()));
            let is_free = is_whole && movable + unmovable == 0;
            let is_offline = match isolation {
                Isolation::Offline => true,
                Isolation::Isolated => false,
                Isolation::None => is_free && rests,
            };
            assert_eq!(banks.is_offline(bank), is_offline, "{context}: bank {bank}");
            resting += usize::from(is_offline && zone_of(frames).is_some_and(is_own));
            let waits = Z::RESTS && movable == 0 && !rests;
            let zone = zone_of(frames).filter(|&zone| is_own(zone));
            let may = is_whole && isolation == Isolation::None && unmovable == 0;
            if may
                && (movable > 0 || waits)
                && zone.is_some_and(|zone| machine.zones()[zone].may_by(frames.start.raw()))
            {
                candidates.push((movable, bank));
            }
            let room: u64 = machine
                .zones()
                .iter()
                .enumerate()
                .map(|(zone, of)| if is_own(zone) { of.room() } else { 0 })
                .sum();
            let room = room.saturating_sub(states[bank].free);
            assert_eq!(banks.room_frames(bank), room, "{context}: bank {bank}");
            let from =
                Pfn::new((frames.start.raw() + self.random.below(BANK + 2)).saturating_sub(1));
            let rest = frames.iter().filter(|&frame| frame >= from);
            let is_used = |frame: &Pfn| self.blocks.iter().any(|(block, _)| block.contains(*frame));
            // Much to look through.
            if bank % 4 == 0 {
                assert_eq!(
                    banks.next_occupied(bank, from),
                    rest.clone().find(is_used),
                    "{context}"
                );
            }
        }
        assert_eq!(banks.resting_banks(), resting, "{context}");
        assert!(!banks.is_offline(layout.banks()));
        assert_eq!(banks.next_occupied(layout.banks(), Pfn::new(0)), None);
        for skipped in [None, candidates.iter().min().map(|candidate| candidate.1)] {
            let left = candidates.iter().filter(|candidate| Some(candidate.1) != skipped);
            let expected = left.min().map(|&(occupied_frames, bank)| BankCandidate {
                bank,
                frames: units[bank],
                occupied_frames,
            });
            let found = banks.candidate(&|bank| Some(bank) == skipped);
            assert_eq!(found, expected, "{context}, without {skipped:?}");
        }
    }

    /// Takes a target and gives it back.
    fn target(&mut self, banks: &mut Banks<'m, Z>, is_own: &dyn Fn(usize) -> bool) -> bool {
        let order = Order::known([0, 3, 9][self.random.index(3)]);
        let layout = self.machine.borrow().layout().clone();
        let serves = |zone: &usize| self.machine.borrow().zones()[*zone].serves(order.k());
        let own: Vec<usize> = (0..layout.zones().len()).filter(|&zone| is_own(zone)).collect();
        let expected = own.iter().rev().find(|zone| serves(zone) == Some(true)).copied();
        let is_open = own.iter().any(|zone| serves(zone).is_none());
        let found = banks.allocate_target(order);
        let zone = found.map(|start| layout.zone_of(start).unwrap());
        assert!(zone.is_none_or(is_own), "{zone:?}");
        assert!(is_open || zone == expected, "{zone:?}, not {expected:?}");
        let Some(start) = found else { return false };
        let block = Extent::new(start, order.frames());
        assert_eq!(self.used(block), (0, 0));
        for frame in block.iter() {
            let machine = self.machine.borrow();
            assert_eq!(machine.owner(frame), Some(Mobility::Movable));
            let bank = machine.layout().bank_of(frame).unwrap();
            assert_eq!(machine.bank_state(bank).unwrap().isolation, Isolation::None);
        }
        banks.free(start, order);
        assert!(block.iter().all(|frame| self.machine.borrow().is_used(frame) == Some(false)));
        true
    }

    /// Isolates a bank and ends that.
    fn isolate(&mut self, banks: &mut Banks<'m, Z>, bank: usize) {
        let unit = MemoryUnit::Bank(bank);
        let state = || self.machine.borrow().unit_state(unit).unwrap();
        let before = state();
        let frames = self.machine.borrow().layout().bank(bank).unwrap();
        let isolated = banks.isolate(bank);
        let is_whole = before.present == frames.count && self.zones(frames).len() == 1;
        if !is_whole || before.isolation != Isolation::None {
            assert!(!isolated);
        }
        if !isolated {
            assert_eq!(state().isolation, before.isolation);
            return;
        }
        assert_eq!(state().isolation, Isolation::Isolated);
        banks.rejoin(bank);
        let is_empty = before.movable + before.unmovable == 0;
        let goes = is_empty && !Z::RESTS;
        assert_eq!(state().isolation, if goes { Isolation::Offline } else { Isolation::None });
        if goes {
            self.machine.borrow_mut().online(unit).unwrap();
        }
    }
}

fn run<Z: Says>(seed: u64, movable: u64, zone: impl Fn(&MemoryMap<'_>, &LayoutZone) -> Z) {
    with_world([&AREAS, &NODES], seed, movable, zone, |world| {
        let (mut targets, mut emptied) = (0, 0);
        let layout = world.machine.borrow().layout().clone();
        assert_eq!(NodeBanks::new(world.machine, 2, 0).map(drop), None);
        assert_eq!(NodeBanks::new(world.machine, 1, 2).map(drop), None);
        let zones = layout.zones().len();
        assert_eq!(NodeBanks::of_zone(world.machine, zones, 0).map(drop), None);
        assert_eq!(NodeBanks::of_zone(world.machine, 0, 2).map(drop), None);
        for round in 0..40 {
            let goal = [1000, 12_000, 300, 6000][round % 4];
            (0..300).for_each(|_| world.work(goal));
            if round % 3 == 0 {
                world.machine.borrow_mut().drain();
            }
            let context = format!("seed {seed}, round {round}");
            for node in 0..2 {
                let mut banks = NodeBanks::new(world.machine, node, 0).unwrap();
                let is_own = |zone: usize| layout.zones()[zone].node == node;
                world.agree(&banks, &is_own, &format!("{context}, node {node}"));
                targets += u64::from(world.target(&mut banks, &is_own));
                let bank = world.random.index(layout.banks());
                world.isolate(&mut banks, bank);
            }
            let only = round % zones;
            let mut banks = NodeBanks::of_zone(world.machine, only, 1).unwrap();
            world.agree(&banks, &|zone| zone == only, &format!("{context}, zone {only}"));
            targets += u64::from(world.target(&mut banks, &|zone| zone == only));
            emptied += u64::from(units(world, round));
            assert_eq!(world.machine.borrow().check(), Ok(()), "{context}");
        }
        assert!(targets > 20 && emptied > 0, "{targets} targets, {emptied} emptied");
    });
}

/// Takes a unit offline on demand and brings it back; true if it went.
fn units<Z: Says>(world: &mut World<'_, Z>, round: usize) -> bool {
    let of = [MemoryUnit::Section, MemoryUnit::Bank][round % 2];
    let machine = world.machine;
    let layout = machine.borrow().layout().clone();
    let count = [layout.sections(), layout.banks()][round % 2];
    let extent_of = |number| match of(number) {
        MemoryUnit::Section(section) => layout.section(section).unwrap(),
        MemoryUnit::Bank(bank) => layout.bank(bank).unwrap(),
    };
    assert_eq!(Units::<Z>::new(machine, of, 2).map(drop), None);
    let mut units = Units::<Z>::new(machine, of, round / 2 % 2).unwrap();
    assert_eq!((units.candidate(&|_| false), units.resting_banks()), (None, 0));
    assert_eq!(units.next_occupied(count, Pfn::new(0)), None);
    assert!(!units.isolate(count));
    let mut daemon = Daemon::new(MigrationConfig::DEFAULT);
    let no_unit = Err(HotplugError::NoUnit { unit: of(count) });
    assert_eq!(units.begin(&mut daemon, count), no_unit);
    let number = world.random.index(count);
    let frames = extent_of(number);
    let state = machine.borrow().unit_state(of(number)).unwrap();
    let free = machine.borrow().free_frames();
    let own = if state.isolation == Isolation::None { state.free } else { 0 };
    assert_eq!(units.room_frames(number), free.saturating_sub(own));
    assert_eq!(units.room_frames(count), free);
    let from = Pfn::new(frames.start.raw() + world.random.below(frames.count));
    let is_used = |frame: &Pfn| world.blocks.iter().any(|(block, _)| block.contains(*frame));
    let rest = Extent::between(from, frames.end());
    assert_eq!(units.next_occupied(number, from), rest.iter().find(is_used));

    // In steps: it begins once, and its isolation ends with the daemon's work.
    let removable = machine.borrow().removable(of(number)).map(|state| state.movable);
    let may = removable.is_ok() && state.isolation == Isolation::None;
    match units.begin(&mut daemon, number) {
        Ok(began) => {
            assert!(began && may);
            assert_eq!(daemon.moving(), Some(number));
            assert_eq!(units.begin(&mut daemon, number), Ok(false));
            assert_eq!(
                machine.borrow().unit_state(of(number)).unwrap().isolation,
                Isolation::Isolated
            );
            // A target lies on the unit's node.
            if let Some(start) = units.allocate_target(Order::known(2)) {
                let zone = |frame| layout.zones()[layout.zone_of(frame).unwrap()];
                let block = Extent::new(start, 4);
                assert!(!frames.overlaps(block));
                assert!(zone(start).kind <= zone(frames.start).kind.max(ZoneKind::Normal));
                assert!(block.iter().all(|f| machine.borrow().owner(f) == Some(Mobility::Movable)));
                units.free(start, Order::known(2));
                assert!(block.iter().all(|f| machine.borrow().is_used(f) == Some(false)));
            }
            daemon.stop(0, &mut units);
            let after = machine.borrow().unit_state(of(number)).unwrap().isolation;
            let is_empty = state.movable + state.unmovable == 0;
            assert_eq!(after, if is_empty { Isolation::Offline } else { Isolation::None });
            if is_empty {
                machine.borrow_mut().online(of(number)).unwrap();
            }
        }
        // The zone may refuse.
        Err(error) => assert!(!may || matches!(error, HotplugError::Zone { .. }), "{error}"),
    }

    // At once.
    let movable = world.blocks.iter().filter(|(_, mobility)| *mobility == Mobility::Movable);
    let block = |(block, _): &(Extent, Mobility)| {
        (block.start, Order::known(block.count.trailing_zeros() as u8))
    };
    world.owners.blocks = movable.map(block).collect();
    let inside = world.owners.blocks.iter().find(|(start, _)| frames.contains(*start));
    let pinned = inside.filter(|_| round.is_multiple_of(3)).map(|block| block.0);
    world.owners.pinned = pinned;
    world.owners.moved.set(0);
    let gone = units.offline(number, &mut world.owners);
    world.blocks.retain(|(_, mobility)| *mobility != Mobility::Movable);
    world.blocks.extend(
        world
            .owners
            .blocks
            .iter()
            .map(|(start, order)| (Extent::new(*start, order.frames()), Mobility::Movable)),
    );
    let after = machine.borrow().unit_state(of(number)).unwrap();
    match gone {
        Ok(moved) => {
            assert!(may && pinned.is_none());
            assert_eq!(moved, world.owners.moved.get());
            assert!(moved >= state.movable, "whole blocks");
            assert_eq!((after.isolation, after.free), (Isolation::Offline, frames.count));
            machine.borrow_mut().online(of(number)).unwrap();
            return state.movable > 0;
        }
        Err(OfflineError::Stays { unit, frame, cause }) => {
            assert_eq!((unit, after.isolation), (of(number), Isolation::None));
            assert!(machine.borrow().is_used(frame) == Some(true) && frames.contains(frame));
            let is_pinned = cause == GiveUpCause::Stuck(Stuck::Pinned);
            assert!(is_pinned == pinned.is_some() || cause == GiveUpCause::NoTarget, "{cause}");
        }
        Err(OfflineError::Hotplug(error)) => {
            assert!(!may || matches!(error, HotplugError::Zone { .. }), "{error}");
            assert_eq!(after.isolation, state.isolation);
        }
    }
    false
}

fn banked<P: Placement>(
    rule: impl Fn() -> P,
) -> impl Fn(&MemoryMap<'_>, &LayoutZone) -> BankBuddy<Vec<u64>, P> {
    move |map, zone| {
        let banks = BankLayout::new(Pfn::new(0), BANK, Order::known(10)).unwrap();
        let words = BankBuddy::<Vec<u64>, P>::storage_words(map, zone.span, banks, &rule());
        BankBuddy::new(map, zone.span, banks, rule(), vec![0; words.unwrap()]).unwrap()
    }
}

#[test]
fn linux_zones_are_emptied_by_demand() {
    for (seed, movable) in [(1, 0), (2, 2000)] {
        run(seed, movable, |map, zone| {
            let words = vec![0; LinuxZone::<&mut [u64]>::storage_words(zone.span)];
            LinuxZone::new(map, zone.span, Order::known(9), words).unwrap()
        });
    }
}

#[test]
fn banks_of_lists_are_emptied() {
    for (seed, movable) in [(3, 0), (4, 2000)] {
        run(seed, movable, banked(|| ListPlacement::new(true)));
    }
}

#[test]
fn banks_of_two_regions_are_emptied_but_for_the_next() {
    for (seed, movable) in [(5, 0), (6, 3000)] {
        run(seed, movable, banked(|| BoundaryPlacement::new(64)));
    }
}

#[test]
fn banks_of_pools_are_emptied() {
    for (seed, movable) in [(7, 0), (8, 3000)] {
        run(seed, movable, banked(|| PoolPlacement::new(PoolPolicy::PAPER)));
        run(seed, movable, banked(|| PoolPlacement::new(PoolPolicy::PACKED)));
    }
}

/// Packed, what the kernel has open takes what is moved, but for what it may need soon: 8192 frames.
#[test]
fn the_pool_of_the_kernel_keeps_its_reserve() {
    const TAKEN: u64 = 14;
    let memory = [(0, 24 * BANK)];
    for policy in [PoolPolicy::PACKED, PoolPolicy::PAPER] {
        let zone = banked(|| PoolPlacement::new(policy));
        with_world([&memory, &memory], 0, 0, zone, |world| {
            let mut banks = NodeBanks::new(world.machine, 0, 0).unwrap();
            let (highest, mobility) = (ZoneKind::Normal, Mobility::Unmovable);
            let order = Order::known(10);
            let request = BlockRequest { order, mobility, highest, node: 0, cpu: 0, urgent: true };
            for _ in 0..TAKEN {
                let start = world.machine.borrow_mut().allocate(request).unwrap();
                let rest = extent(start.raw() + 1, BANK - 1);
                world.machine.borrow_mut().free(rest, 0).unwrap();
            }
            world.machine.borrow_mut().drain();
            let (free, is_packed) = (TAKEN * (BANK - 1), policy == PoolPolicy::PACKED);
            // No bank, so that none of its frames are left out.
            let room = |banks: &Banks<'_, _>| banks.room_frames(usize::MAX);
            assert_eq!(room(&banks), if is_packed { free - 8192 } else { 0 });
            let order = Order::known(9);
            let targets = core::iter::from_fn(|| banks.allocate_target(order)).count() as u64;
            assert_eq!(targets, if is_packed { (free - 8192) / 512 } else { 0 });
            assert!(room(&banks) < 512);
            // To the last frame above it.
            let left = room(&banks);
            let targets = core::iter::from_fn(|| banks.allocate_target(Order::BASE)).count();
            assert_eq!((targets as u64, room(&banks)), (left, 0));
        });
    }
}
