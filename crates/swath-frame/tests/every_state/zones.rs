//! Linux's zone and the banks.

use std::hash::Hasher;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::bank::{
    AdaptiveBuddy, ArrayBuddy, ArrayPlacement, BankBuddy, BankLayout, Placement, PoolPlacement,
    PoolPolicy,
};
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{
    ByteRange, FrameFreeError, IsolateError, LinuxZone, MemoryMap, Mobility, ZoneAllocator,
};

use super::walk::{Covered, Name, Subject, Words, walk};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Take { order: Order, mobility: Mobility, unmixed: bool },
    Batch { mobility: Mobility, count: u32 },
    Free(Pfn, Order),
    Isolate(Extent, bool),
}

#[derive(PartialEq, Debug)]
enum Returned {
    Taken(Vec<Pfn>),
    Freed(Result<(), FrameFreeError>),
    Isolated(Result<(), IsolateError>),
}

/// Bits for the frames from `start` on, and for the units that can be isolated.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Model {
    start: u64,
    count: u64,
    present: u64,
    free: u64,
    /// In use by owners that can be moved, if the allocator keeps that.
    movable: u64,
    isolated: u64,
    unit: Order,
    top: Order,
}

impl Model {
    fn bits(&self, start: Pfn, order: Order) -> u64 {
        ((1 << order.frames()) - 1) << (start.raw() - self.start)
    }

    fn has(&self, bits: u64, frame: Pfn) -> bool {
        let at = frame.raw().wrapping_sub(self.start);
        at < self.count && bits >> at & 1 == 1
    }

    fn unit_of(&self, frame: Pfn) -> u64 {
        (frame.raw() >> self.unit.k()) - (self.start >> self.unit.k())
    }

    /// The frames that are free and not isolated.
    fn open(&self) -> u64 {
        let isolated = |at: &u64| self.isolated >> self.unit_of(Pfn::new(self.start + at)) & 1 == 1;
        (0..self.count).filter(isolated).fold(self.free, |open, at| open & !(1 << at))
    }

    /// The blocks of this order that could be handed out.
    fn blocks(&self, order: Order) -> impl Iterator<Item = Pfn> + use<> {
        let (model, open) = (*self, self.open());
        let step = if order <= self.top { order.frames() } else { u64::MAX };
        let first = self.start.next_multiple_of(step.min(64));
        (first..self.start + self.count)
            .step_by(step.min(64) as usize)
            .take_while(move |at| step <= model.start + model.count - at)
            .map(Pfn::new)
            .filter(move |&at| open & model.bits(at, order) == model.bits(at, order))
    }

    fn take<Z: Zone>(&mut self, start: Pfn, order: Order, mobility: Mobility) {
        let before = *self;
        assert!(self.blocks(order).any(|block| block == start), "{start} in {self:x?}");
        assert!(Z::chooses(self, start, order, mobility), "{start} in {self:x?}");
        self.free &= !before.bits(start, order);
        if Z::OWNERS && mobility == Mobility::Movable {
            self.movable |= before.bits(start, order);
        }
    }

    fn freed(&self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        let extent = Extent::new(start, order.frames());
        if !start.is_aligned(order.k()) {
            return Err(FrameFreeError::Misaligned { frame: start, order });
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        for frame in extent.iter() {
            if !self.has(self.present, frame) {
                return Err(FrameFreeError::Foreign { frame });
            }
            if self.has(self.free, frame) {
                return Err(FrameFreeError::NotAllocated { frame });
            }
        }
        Ok(())
    }

    fn can_isolate(&self, extent: Extent, isolated: bool) -> Result<(), IsolateError> {
        let order = self.unit;
        if extent.is_empty() {
            return Err(IsolateError::Empty);
        }
        if !extent.start.is_aligned(order.k()) || !extent.count.is_multiple_of(order.frames()) {
            return Err(IsolateError::Misaligned { extent, order });
        }
        if let Some(frame) = extent.iter().find(|&frame| !self.has(self.present, frame)) {
            return Err(IsolateError::Foreign { frame });
        }
        let mut units = extent.iter().step_by(order.frames() as usize);
        let is = |frame: Pfn| self.isolated >> self.unit_of(frame) & 1 == 1;
        match units.find(|&frame| is(frame) == isolated) {
            Some(frame) => Err(IsolateError::State { frame }),
            None => Ok(()),
        }
    }
}

/// What the walk has to know of one zone allocator.
trait Zone: ZoneAllocator + Clone {
    /// True if a request that is refused may close an open word, and so merge blocks.
    const TIDIES: bool;

    /// True if it keeps for each frame who it is for.
    const OWNERS: bool = false;

    fn name(&self, model: &Model) -> u64;

    /// Returns true if its rule allows this block, which is free.
    fn chooses(_: &Model, _: Pfn, _: Order, _: Mobility) -> bool {
        true
    }
}

/// A zone allocator under the walk.
#[derive(Clone)]
struct Walked<Z>(Z);

impl<Z: Zone> Subject for Walked<Z> {
    type Operation = Operation;
    type Returned = Returned;
    type Model = Model;

    const TIDIES: bool = Z::TIDIES;

    fn apply(&mut self, operation: Operation) -> Returned {
        let Self(zone) = self;
        match operation {
            Operation::Take { order, mobility, unmixed: false } => {
                Returned::Taken(zone.allocate(order, mobility).into_iter().collect())
            }
            Operation::Take { order, mobility, unmixed: true } => {
                Returned::Taken(zone.allocate_unmixed(order, mobility).into_iter().collect())
            }
            Operation::Batch { mobility, count } => {
                let mut taken = Vec::new();
                let sink = &mut |frame| taken.push(frame);
                let counted = zone.allocate_batch(Order::BASE, mobility, false, count, sink);
                assert_eq!(counted as usize, taken.len(), "a batch that counts wrongly");
                Returned::Taken(taken)
            }
            Operation::Free(start, order) => Returned::Freed(zone.free(start, order)),
            Operation::Isolate(extent, true) => Returned::Isolated(zone.isolate(extent)),
            Operation::Isolate(extent, false) => Returned::Isolated(zone.rejoin(extent)),
        }
    }

    fn stays(model: &Model, operation: Operation) -> bool {
        match operation {
            Operation::Take { order, .. } if order > model.top => true,
            Operation::Take { order, .. } => !Z::TIDIES && model.blocks(order).next().is_none(),
            Operation::Batch { .. } => !Z::TIDIES && model.open() == 0,
            Operation::Free(start, order) => model.freed(start, order).is_err(),
            Operation::Isolate(extent, isolated) => model.can_isolate(extent, isolated).is_err(),
        }
    }

    fn follow(model: &mut Model, operation: Operation, returned: &Returned) {
        let before = *model;
        let place = || format!("{operation:?} in {before:x?}");
        match (operation, returned) {
            (Operation::Take { order, mobility, unmixed }, Returned::Taken(taken)) => {
                let there = usize::from(model.blocks(order).next().is_some());
                assert!(taken.len() == there || unmixed && taken.is_empty(), "{}", place());
                taken.iter().for_each(|&start| model.take::<Z>(start, order, mobility));
            }
            (Operation::Batch { mobility, count }, Returned::Taken(taken)) => {
                let there = model.open().count_ones().min(count);
                assert_eq!(taken.len(), there as usize, "{}", place());
                taken.iter().for_each(|&start| model.take::<Z>(start, Order::BASE, mobility));
            }
            (Operation::Free(start, order), Returned::Freed(freed)) => {
                assert_eq!(*freed, model.freed(start, order), "{}", place());
                if freed.is_ok() {
                    model.free |= before.bits(start, order);
                    model.movable &= !before.bits(start, order);
                }
            }
            (Operation::Isolate(extent, isolated), Returned::Isolated(returned)) => {
                assert_eq!(*returned, model.can_isolate(extent, isolated), "{}", place());
                if returned.is_ok() {
                    for frame in extent.iter().step_by(model.unit.frames() as usize) {
                        model.isolated ^= 1 << model.unit_of(frame);
                    }
                }
            }
            _ => unreachable!("every operation returns its own"),
        }
    }

    fn name(&self, model: &Model) -> u64 {
        self.0.name(model)
    }

    fn agrees(&self, model: &Model) {
        let Self(zone) = self;
        assert_eq!(zone.check(), Ok(()), "{model:x?}");
        let open = model.open();
        assert_eq!(zone.free_frames(), u64::from(open.count_ones()), "{model:x?}");
        assert_eq!(zone.total_frames(), u64::from(model.present.count_ones()));
        let mut free = 0;
        zone.for_each_free(&mut |block| {
            for frame in block.iter() {
                let bit = model.bits(frame, Order::BASE);
                assert_eq!(free & bit, 0, "{frame} is free twice in {model:x?}");
                free |= bit;
            }
        });
        assert_eq!(free, open, "{model:x?}");
        let has = |k: &u8| model.blocks(Order::known(*k)).next().is_some();
        let largest = (0..=model.top.k() as u8).rev().find(has).map(Order::known);
        assert_eq!(zone.largest_free(), largest, "{model:x?}");
    }
}

/// All requests for up to twice the span, blocks that are freed from one before the span to one
/// after, and units that are isolated.
fn operations<Z: Zone>(model: &Model) -> Vec<Operation> {
    let mut all = Vec::new();
    let orders: Vec<Order> =
        (0..).map(Order::known).take_while(|order| order.frames() <= 2 * model.count).collect();
    // To the banks, what can be reclaimed is unmovable, and no request mixes.
    let mobilities = if Z::OWNERS { &Mobility::ALL[..] } else { &Mobility::ALL[..2] };
    for &mobility in mobilities {
        for &order in orders.iter().chain(&[Order::known(11), Order::MAX]) {
            all.push(Operation::Take { order, mobility, unmixed: false });
            if Z::OWNERS {
                all.push(Operation::Take { order, mobility, unmixed: true });
            }
        }
        all.extend([0, 3].map(|count| Operation::Batch { mobility, count }));
    }
    let (first, past) = (model.start - 1, model.start + model.count + 1);
    for &order in &orders {
        all.extend((first..past).map(|start| Operation::Free(Pfn::new(start), order)));
    }
    all.extend([0, u64::MAX - 1, u64::MAX].map(|at| Operation::Free(Pfn::new(at), Order::BASE)));
    let last = Pfn::new(u64::MAX).align_down(Order::MAX.k());
    all.push(Operation::Free(last, Order::MAX));
    let unit = model.unit.frames();
    for start in (model.start / unit * unit - unit..past).step_by(unit as usize) {
        for extent in [(0, 0), (0, unit), (0, 2 * unit), (1, unit), (0, unit - 1)] {
            let extent = Extent::new(Pfn::new(start + extent.0), extent.1);
            all.extend([true, false].map(|isolated| Operation::Isolate(extent, isolated)));
        }
    }
    all
}

/// The frames of `areas`, in a zone over `span`.
fn all_of<Z: Zone>(
    name: &str,
    areas: &[(u64, u64)],
    (start, count): (u64, u64),
    top: Order,
    build: impl Fn(&MemoryMap<'_>, Extent) -> Z,
) -> Covered {
    let extent = |&(start, count): &(u64, u64)| Extent::new(Pfn::new(start), count);
    let ranges: Vec<_> = areas.iter().map(|area| ByteRange::of_frames(extent(area))).collect();
    let mut storage = vec![Extent::default(); ranges.len()];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    let first = build(&map, extent(&(start, count)));
    let is_present = |at: &u64| map.contains(Pfn::new(start + at));
    let present = (0..count).filter(is_present).fold(0, |bits, at| bits | 1 << at);
    let (free, movable, isolated, unit) = (present, 0, 0, first.isolation_order());
    let model = Model { start, count, present, free, movable, isolated, unit, top };
    let covered = walk(&Walked(first), model, &operations::<Z>(&model));
    println!("{name}, {} frames: {covered:?}", present.count_ones());
    covered
}

impl Zone for LinuxZone<Words> {
    const TIDIES: bool = false;
    const OWNERS: bool = true;

    /// The lists from head to tail, the pageblocks, and the frames' states. What else is in
    /// storage, as the links of frames that are on no list, is never read; the walk of the
    /// invariants follows the links that are.
    fn name(&self, model: &Model) -> u64 {
        let mut name = Name::default();
        let mut put = |word: u64| name.write_u64(word);
        [model.free, model.movable, model.isolated].into_iter().for_each(&mut put);
        for order in (0..=4).map(Order::known) {
            for mobility in Mobility::ALL {
                self.list(order, mobility).for_each(|frame| put(frame.raw()));
                put(u64::MAX);
            }
            self.isolated(order).for_each(|frame| put(frame.raw()));
            put(u64::MAX);
        }
        for at in (model.start..model.start + model.count).step_by(model.unit.frames() as usize) {
            put(self.pageblock_mobility(Pfn::new(at)).map_or(u64::MAX, |mobility| mobility as u64));
        }
        name.finish()
    }
}

fn linux(map: &MemoryMap<'_>, span: Extent) -> LinuxZone<Words> {
    let words = Words(vec![!0; LinuxZone::<Words>::storage_words(span)]);
    LinuxZone::new(map, span, Order::known(3), words).unwrap()
}

#[test]
fn every_state_of_linuxs_zone() {
    let covered = all_of("one pageblock", &[(8, 8)], (8, 8), ORDER_MAX, linux);
    assert!(covered.states > 100_000, "{covered:?}");
    // Each is half a hole: the pageblocks are claimed and stolen from, one by the other's owners.
    let covered = all_of("two pageblocks", &[(12, 8)], (8, 16), ORDER_MAX, linux);
    assert!(covered.states > 100_000, "{covered:?}");
}

impl Zone for ArrayBuddy<Words> {
    const TIDIES: bool = true;

    fn name(&self, _: &Model) -> u64 {
        Name::of(self)
    }

    /// Of the banks that have such a block, the lowest for the kernel and the highest for users.
    fn chooses(model: &Model, start: Pfn, order: Order, mobility: Mobility) -> bool {
        let mut banks = model.blocks(order).map(|block| model.unit_of(block));
        let edge = if mobility == Mobility::Movable { banks.max() } else { banks.next() };
        edge == Some(model.unit_of(start))
    }
}

impl Zone for AdaptiveBuddy<Words> {
    const TIDIES: bool = true;

    fn name(&self, _: &Model) -> u64 {
        Name::of(self)
    }
}

fn bank<P: Placement>(
    map: &MemoryMap<'_>,
    zone: Extent,
    frames: u64,
    rule: P,
) -> BankBuddy<Words, P> {
    let top = Order::known(frames.trailing_zeros() as u8);
    let banks = BankLayout::new(Pfn::new(0), frames, top).unwrap();
    let words = BankBuddy::<Words, P>::storage_words(map, zone, banks, &rule).unwrap();
    BankBuddy::new(map, zone, banks, rule, Words(vec![0; words])).unwrap()
}

#[test]
fn every_state_of_the_array_of_banks() {
    let build = |map: &MemoryMap<'_>, zone: Extent| bank(map, zone, 4, ArrayPlacement);
    let covered = all_of("array", &[(4, 8)], (4, 8), Order::known(2), build);
    assert!(covered.states > 2000, "{covered:?}");
}

fn all_of_adaptive(policy: PoolPolicy) {
    let build = |map: &MemoryMap<'_>, zone: Extent| bank(map, zone, 4, PoolPlacement::new(policy));
    let covered = all_of("adaptive", &[(4, 8)], (4, 8), Order::known(2), build);
    assert!(covered.states > 20_000, "{covered:?}");
}

#[test]
fn every_state_of_adaptive_buddy_as_the_papers() {
    all_of_adaptive(PoolPolicy::PAPER);
}

#[test]
fn every_state_of_adaptive_buddy_packed() {
    all_of_adaptive(PoolPolicy::PACKED);
}
