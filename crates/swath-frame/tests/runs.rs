//! Blocks allocated and freed many at once, against the same one after the other: the same
//! blocks, the same errors, the same state, whatever comes after.

use std::cell::RefCell;
use std::fmt::Debug;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{Layout, LayoutConfig, LayoutZone, ZoneKind};
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, BankPreference, BoundaryPlacement, ListPlacement,
    Placement, PoolPlacement, PoolPolicy, TreePlacement,
};
use swath_frame::zone::linux::PAGEBLOCK_ORDER;
use swath_frame::{
    BlockRequest, ByteRange, FrameAllocator, FrameFreeError, IsolateError, LinuxZone, Machine,
    MachineConfig, MachineHandle, MemoryMap, MemoryUnit, Mobility, PerCpuLists, ZoneAllocator,
};

/// A zone whose frames come back one by one, and are handed out so unless a batch is more than
/// that to the zone (in Linux's, once one of it was stolen, so are the others).
#[derive(Clone, Debug)]
struct OneByOne<Z> {
    zone: Z,
    has_batches: bool,
}

impl<Z: ZoneAllocator> ZoneAllocator for OneByOne<Z> {
    fn allocate(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        self.zone.allocate(order, mobility)
    }
    fn allocate_unmixed(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        self.zone.allocate_unmixed(order, mobility)
    }
    fn allocate_batch(
        &mut self,
        order: Order,
        mobility: Mobility,
        unmixed: bool,
        count: u32,
        sink: &mut dyn FnMut(Pfn),
    ) -> u32 {
        if self.has_batches {
            return self.zone.allocate_batch(order, mobility, unmixed, count, sink);
        }
        let next = |_: &u32| {
            let block = if unmixed {
                self.zone.allocate_unmixed(order, mobility)
            } else {
                self.zone.allocate(order, mobility)
            };
            block.map(&mut *sink).is_some()
        };
        (0..count).take_while(next).count() as u32
    }
    fn mobility_of(&self, frame: Pfn) -> Option<Mobility> {
        self.zone.mobility_of(frame)
    }
    fn free(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        self.zone.free(start, order)
    }
    fn free_frames(&self) -> u64 {
        self.zone.free_frames()
    }
    fn total_frames(&self) -> u64 {
        self.zone.total_frames()
    }
    fn largest_free(&self) -> Option<Order> {
        self.zone.largest_free()
    }
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.zone.for_each_free(visit);
    }
    fn isolate(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.zone.isolate(extent)
    }
    fn rejoin(&mut self, extent: Extent) -> Result<(), IsolateError> {
        self.zone.rejoin(extent)
    }
    fn isolation_order(&self) -> Order {
        self.zone.isolation_order()
    }
    fn structure_bytes(&self) -> usize {
        self.zone.structure_bytes()
    }
    fn check(&self) -> Result<(), &'static str> {
        self.zone.check()
    }
}

fn with_map<T>(areas: &[(u64, u64)], test: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let extent = |&(start, count): &(u64, u64)| Extent::new(Pfn::new(start), count);
    let ranges: Vec<ByteRange> = areas.iter().map(extent).map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    test(&MemoryMap::new(&ranges, &mut storage).unwrap())
}

fn banked<P: Placement>(
    map: &MemoryMap<'_>,
    span: Extent,
    (frames, top): (u64, u8),
    rule: P,
) -> BankBuddy<Vec<u64>, P> {
    let banks = BankLayout::new(Pfn::new(0), frames, Order::known(top)).unwrap();
    let words = BankBuddy::<Vec<u64>, P>::storage_words(map, span, banks, &rule).unwrap();
    BankBuddy::new(map, span, banks, rule, vec![0; words]).unwrap()
}

/// Blocks in use that lie near each other, in an order that is not quite theirs. Some are named
/// twice, some are free.
fn some_blocks(random: &mut Random, held: &mut Vec<Pfn>, near: u64) -> Vec<Pfn> {
    held.sort_unstable();
    let first = random.below(held.len() as u64) as usize;
    let past = (first + 1 + random.below(near) as usize).min(held.len());
    let mut blocks: Vec<Pfn> = held.drain(first..past).collect();
    for _ in 0..random.below(4) * blocks.len() as u64 / 4 {
        let (one, other) = (random.below(blocks.len() as u64), random.below(blocks.len() as u64));
        blocks.swap(one as usize, other as usize);
    }
    blocks
}

/// A zone by batches and its copy one by one. Their words are compared after each step.
fn zone_alike<Z: ZoneAllocator + Clone + Debug>(zone: Z, top: u8, seed: u64, steps: usize) {
    let (mut batches, mut singles) = (zone.clone(), OneByOne { zone, has_batches: false });
    let mut random = Random::new(seed);
    let mut held: [Vec<Pfn>; 4] = Default::default();
    for step in 0..steps {
        let k = if random.below(3) > 0 { 0 } else { random.below(4).min(top.into()) as usize };
        let order = Order::known(k as u8);
        let fills = step / 40 % 2 == 0;
        if held[k].is_empty() || random.below(4) < if fills { 3 } else { 1 } {
            let mobility = Mobility::ALL[random.below(3) as usize];
            let (unmixed, count) = (random.below(4) == 0, random.below(150) as u32);
            let mut got: [Vec<Pfn>; 2] = Default::default();
            let mut sink = |frame| got[0].push(frame);
            let taken = batches.allocate_batch(order, mobility, unmixed, count, &mut sink);
            let mut sink = |frame| got[1].push(frame);
            let expected = singles.allocate_batch(order, mobility, unmixed, count, &mut sink);
            assert_eq!((taken, &got[0]), (expected, &got[1]), "seed {seed}, step {step}");
            held[k].append(&mut got[0]);
        } else {
            let mut blocks = some_blocks(&mut random, &mut held[k], 150);
            if random.below(8) == 0 {
                // Twice, or not there: what comes before is freed, the rest is not.
                let wrong = match random.below(3) {
                    0 => blocks[0],
                    1 => Pfn::new(u64::MAX),
                    _ => blocks[0] + random.below(200),
                };
                let at = random.below(blocks.len() as u64 + 1) as usize;
                blocks.insert(at, wrong);
            }
            let freed = batches.free_batch(order, &blocks);
            assert_eq!(freed, singles.free_batch(order, &blocks), "seed {seed}, step {step}");
            if freed.is_err() {
                // Which blocks are held is no longer known: all is freed, frame by frame.
                let owned = held.iter_mut().flat_map(std::mem::take);
                let frames = owned.chain(blocks).flat_map(|block| (0..8).map(move |n| (block, n)));
                for (block, n) in frames.filter(|(block, _)| block.raw() < u64::MAX - 8) {
                    let freed = batches.free(block + n, Order::BASE);
                    assert_eq!(freed, singles.free(block + n, Order::BASE));
                }
            }
        }
        assert_eq!(
            format!("{batches:?}"),
            format!("{:?}", singles.zone),
            "seed {seed}, step {step}"
        );
    }
    assert_eq!(batches.check(), Ok(()));
}

#[test]
fn zones_take_and_give_batches_as_single_frames() {
    fn banks<P: Placement + Clone + Debug>(rule: impl Fn() -> P) {
        /// Areas, the zone's span, frames of a bank and the order of the largest block.
        type Shape = (&'static [(u64, u64)], (u64, u64), (u64, u8));
        let shapes: [Shape; 6] = [
            (&[(0, 256)], (0, 256), (32, 5)),
            (&[(0, 300)], (0, 300), (64, 0)),
            (&[(0, 1024)], (0, 1024), (256, 3)),
            (&[(37, 500), (600, 200), (1100, 413)], (37, 1476), (128, 7)),
            (&[(0, 2048)], (100, 1000), (256, 8)),
            (&[(0, 4096)], (0, 4096), (1024, 10)),
        ];
        for (seed, (areas, (start, count), banks)) in (0..).zip(shapes) {
            with_map(areas, |map| {
                let span = Extent::new(Pfn::new(start), count);
                zone_alike(banked(map, span, banks, rule()), banks.1, seed, 600);
            });
        }
    }
    use BankPreference::{Fullest, Outermost, Recent};
    banks(|| ArrayPlacement);
    banks(|| BoundaryPlacement::new(64));
    banks(|| TreePlacement::new(5));
    banks(|| ListPlacement::new(false));
    banks(|| ListPlacement::new(true));
    for preference in [Recent, Outermost, Fullest] {
        banks(|| PoolPlacement::new(PoolPolicy { kernel: preference, user: preference }));
    }
}

type Parts<Z> = Machine<Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;

const CPUS: usize = 3;

/// All that can be seen of a machine: what is free, in its order, and what is counted.
fn state<Z: ZoneAllocator>(machine: &RefCell<Parts<Z>>) -> String {
    let mut free = Vec::new();
    for node in 0..machine.borrow().layout().nodes() {
        let handle = MachineHandle::new(machine, Mobility::Movable, ZoneKind::Movable, node, 0);
        handle.unwrap().for_each_free(&mut |extent| free.push(extent));
    }
    let machine = machine.borrow();
    let waiting = (0..machine.zones().len()).map(|zone| machine.waiting_frames(zone));
    let waiting: Vec<u64> = waiting.collect();
    let units = (0..machine.layout().sections()).map(MemoryUnit::Section);
    let units = units.chain((0..machine.layout().banks()).map(MemoryUnit::Bank));
    let units: Vec<_> = units.map(|unit| machine.unit_state(unit)).collect();
    format!("{free:?} {waiting:?} {units:?}")
}

/// A machine by runs, and its like one by one.
fn machine_alike<Z: ZoneAllocator + Clone>(
    has_batches: bool,
    zones: impl Fn(&MemoryMap<'_>, &LayoutZone) -> Z,
) {
    for seed in 0..4 {
        with_map(&[(1, 150), (256, 9000), (12_000, 9_000)], |map| {
            let span = |start, count| Extent::new(Pfn::new(start), count);
            let nodes = [span(0, 12_500), span(12_500, 20_000)];
            let units = LayoutConfig {
                bank_frames: 4096,
                section_frames: 2048,
                movable_frames_per_node: if seed % 2 == 0 { 2000 } else { 0 },
                ..LayoutConfig::default()
            };
            let layout = Layout::new(map, &nodes, units).unwrap();
            let config = MachineConfig { cpus: CPUS, min_free_kib: None, per_cpu_lists: seed < 3 };
            let zones: Vec<Z> = layout.zones().iter().map(|zone| zones(map, zone)).collect();
            let size = Parts::<Z>::size(map, &layout, config);
            let lists = || vec![PerCpuLists::default(); size.lists];
            let words = || vec![0; size.words];
            let singles: Vec<_> =
                zones.iter().cloned().map(|zone| OneByOne { zone, has_batches }).collect();
            let runs = Machine::new(map, layout.clone(), config, zones, lists(), words());
            let singles = Machine::new(map, layout, config, singles, lists(), words());
            alike(RefCell::new(runs.unwrap()), RefCell::new(singles.unwrap()), seed);
        });
    }
}

fn alike<Y: ZoneAllocator, Z: ZoneAllocator>(
    runs: RefCell<Parts<Y>>,
    singles: RefCell<Parts<Z>>,
    seed: u64,
) {
    let mut random = Random::new(seed);
    let mut held: [Vec<Pfn>; 10] = Default::default();
    let (mut failed, mut refused) = (0, 0);
    for step in 0..900 {
        let k = [0, 0, 0, 0, 1, 2, 3, 4, 9][random.below(9) as usize];
        let (order, cpu) = (Order::known(k), random.below(CPUS as u64) as usize);
        let held = &mut held[usize::from(k)];
        let mut count = random.below(if k == 0 { 300 } else { 20 }) as usize;
        let fills = step / 60 % 2 == 0;
        match random.below(12) {
            0 => {
                let unit = MemoryUnit::Bank(random.below(5) as usize);
                let isolates = random.below(2) == 0;
                let change = if isolates {
                    (runs.borrow_mut().isolate(unit), singles.borrow_mut().isolate(unit))
                } else {
                    (runs.borrow_mut().rejoin(unit), singles.borrow_mut().rejoin(unit))
                };
                assert_eq!(change.0, change.1);
            }
            n if held.is_empty() || n < if fills { 8 } else { 4 } => {
                let request = BlockRequest {
                    order,
                    mobility: Mobility::ALL[random.below(3) as usize],
                    highest: ZoneKind::ALL[random.below(4) as usize],
                    node: random.below(2) as usize,
                    cpu: if random.below(50) == 0 { CPUS } else { cpu },
                    urgent: random.below(4) == 0,
                };
                let mut blocks = vec![Pfn::new(0); count];
                let done = runs.borrow_mut().allocate_run(request, &mut blocks);
                let mut expected = Vec::new();
                let each = |_| {
                    let block = singles.borrow_mut().allocate(request);
                    block.map(|block| expected.push(block))
                };
                let error = (0..count).try_for_each(each);
                assert_eq!(done, error.map_err(|error| (expected.len(), error)));
                if let Err((taken, _)) = done {
                    count = taken;
                    failed += 1;
                }
                assert_eq!(blocks[..count], expected, "seed {seed}, step {step}");
                held.extend(expected);
            }
            _ => {
                let mut blocks = some_blocks(&mut random, held, count.max(1) as u64);
                let wrong = random.below(8) == 0;
                if wrong {
                    let twice = blocks[random.below(blocks.len() as u64) as usize];
                    let strange = Pfn::new(random.below(30_000));
                    let at = random.below(blocks.len() as u64 + 1) as usize;
                    blocks.insert(at, if random.below(2) == 0 { twice } else { strange });
                }
                let done = runs.borrow_mut().free_run(&blocks, order, cpu);
                let mut freed = 0;
                let each = |&block: &Pfn| {
                    singles.borrow_mut().free(Extent::new(block, order.frames()), cpu)?;
                    freed += 1;
                    Ok(())
                };
                let error = blocks.iter().try_for_each(each);
                assert_eq!(done, error.map_err(|error| (freed, error)), "seed {seed}, step {step}");
                if let Err((freed, _)) = done {
                    refused += 1;
                    let rest = blocks.split_off(freed);
                    let is_used = |block: &Pfn| {
                        let extent = Extent::new(*block, order.frames());
                        extent.iter().all(|frame| runs.borrow().is_used(frame) == Some(true))
                    };
                    let mine = |block: &Pfn| block.is_aligned(order.k()) && is_used(block);
                    held.extend(rest.into_iter().skip(1).filter(mine));
                }
            }
        }
        assert_eq!(state(&runs), state(&singles), "seed {seed}, step {step}");
    }
    assert!(failed > 10 && refused > 10, "seed {seed}: {failed} failed, {refused} refused");
    assert_eq!(runs.borrow().check(), Ok(()));
    assert_eq!(singles.borrow().check(), Ok(()));
}

#[test]
fn machines_serve_runs_as_single_requests() {
    let banks = (4096, 10);
    machine_alike(true, |map, zone| {
        let storage = vec![0; LinuxZone::<Vec<u64>>::storage_words(zone.span)];
        LinuxZone::new(map, zone.span, PAGEBLOCK_ORDER, storage).unwrap()
    });
    // Pageblocks that are smaller than a word of bits.
    machine_alike(true, |map, zone| {
        let storage = vec![0; LinuxZone::<Vec<u64>>::storage_words(zone.span)];
        LinuxZone::new(map, zone.span, Order::known(3), storage).unwrap()
    });
    machine_alike(false, |map, zone| banked(map, zone.span, banks, ArrayPlacement));
    machine_alike(false, |map, zone| banked(map, zone.span, banks, ListPlacement::new(true)));
    for policy in [PoolPolicy::PAPER, PoolPolicy::PACKED] {
        machine_alike(false, |map, zone| banked(map, zone.span, banks, PoolPlacement::new(policy)));
    }
}
