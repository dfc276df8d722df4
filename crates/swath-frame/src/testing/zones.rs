//! The conformance suite of every [`ZoneAllocator`].
//!
//! The oracle is a state per frame and per isolation unit. [`conform`] drives
//! an allocator with random requests, returns, isolations and abuses, and after
//! each compares what the allocator says with what the oracle says. Which block
//! a request gets is the allocator's own affair; that it gets one whenever an
//! aligned free block is there is not.

use alloc::vec;
use alloc::vec::Vec;

use swath_arch::testing::{Random, Steps};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::map::MemoryMap;
use crate::testing::frames::SeedStep;
use crate::zone::allocator::{IsolateError, Mobility, ZoneAllocator};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FrameState {
    Hole,
    Free,
    Used,
}

/// The frames of a zone: which are free, and which units are isolated.
#[derive(Clone, Debug)]
pub struct ZoneOracle {
    span: Extent,
    /// By frame, from the span's start on.
    states: Vec<FrameState>,
    /// By unit, from the unit of the span's start on.
    isolated: Vec<bool>,
    unit: Order,
    order_max: Order,
    seed: u64,
    step: usize,
}

impl ZoneOracle {
    /// The frames of `map` in `span`, all of them free. `unit` is the order of
    /// what can be isolated, `order_max` that of the largest block.
    pub fn new(map: &MemoryMap<'_>, span: Extent, unit: Order, order_max: Order) -> Self {
        let state = |frame| if map.contains(frame) { FrameState::Free } else { FrameState::Hole };
        let units = ((span.end().raw() - 1) >> unit.k()) - (span.start.raw() >> unit.k()) + 1;
        Self {
            span,
            states: span.iter().map(state).collect(),
            isolated: vec![false; units as usize],
            unit,
            order_max,
            seed: 0,
            step: 0,
        }
    }

    fn state(&self, frame: Pfn) -> FrameState {
        if self.span.contains(frame) {
            self.states[(frame - self.span.start) as usize]
        } else {
            FrameState::Hole
        }
    }

    fn unit_of(&self, frame: Pfn) -> usize {
        ((frame.raw() >> self.unit.k()) - (self.span.start.raw() >> self.unit.k())) as usize
    }

    /// Returns true if the frame is free and not isolated.
    pub fn is_free(&self, frame: Pfn) -> bool {
        self.state(frame) == FrameState::Free && !self.isolated[self.unit_of(frame)]
    }

    /// Returns true if the frame is in use.
    pub fn is_used(&self, frame: Pfn) -> bool {
        self.state(frame) == FrameState::Used
    }

    /// Returns true if the unit around a frame of the span is isolated.
    pub fn is_isolated(&self, frame: Pfn) -> bool {
        self.isolated[self.unit_of(frame)]
    }

    /// Counts the frames that are free and not isolated.
    pub fn free_frames(&self) -> u64 {
        self.span.iter().filter(|frame| self.is_free(*frame)).count() as u64
    }

    /// The order of the largest aligned block that is free and not isolated.
    pub fn largest_free(&self) -> Option<Order> {
        let first = self.span.start.raw() >> self.order_max.k() << self.order_max.k();
        let past = self.span.end().raw();
        let mut whole: Vec<bool> =
            (first..past).map(|frame| self.is_free(Pfn::new(frame))).collect();
        let mut largest = None;
        for k in 0..=self.order_max.k() as u8 {
            if !whole.contains(&true) {
                break;
            }
            largest = Order::new(k);
            whole = whole.chunks(2).map(|pair| pair.len() == 2 && pair[0] && pair[1]).collect();
        }
        largest
    }

    fn set(&mut self, block: Extent, from: FrameState, to: FrameState) {
        for frame in block.iter() {
            assert!(
                self.state(frame) == from,
                "{}: {frame} of {block} is {:?}, not {from:?}",
                self.place(),
                self.state(frame)
            );
            self.states[(frame - self.span.start) as usize] = to;
        }
    }

    fn allocate(&mut self, start: Pfn, order: Order) {
        let block = Extent::new(start, order.frames());
        let place = self.place();
        assert!(start.is_aligned(order.k()), "{place}: {block} is not aligned");
        for frame in block.iter() {
            assert!(self.is_free(frame), "{place}: {frame} of {block} was not free");
        }
        self.set(block, FrameState::Free, FrameState::Used);
    }

    /// Returns what freeing the block has to return, and frees if that is `Ok`.
    fn free(&mut self, start: Pfn, order: Order) -> Result<(), FrameFreeError> {
        let extent = Extent::new(start, order.frames());
        if !start.is_aligned(order.k()) {
            return Err(FrameFreeError::Misaligned { frame: start, order });
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        match extent.iter().find(|frame| !self.is_used(*frame)) {
            Some(frame) if self.state(frame) == FrameState::Hole => {
                Err(FrameFreeError::Foreign { frame })
            }
            Some(frame) => Err(FrameFreeError::NotAllocated { frame }),
            None => {
                self.set(extent, FrameState::Used, FrameState::Free);
                Ok(())
            }
        }
    }

    /// Returns what isolating (or rejoining) has to return, and isolates if
    /// that is `Ok`.
    fn isolate(&mut self, extent: Extent, isolated: bool) -> Result<(), IsolateError> {
        let order = self.unit;
        if extent.is_empty() {
            return Err(IsolateError::Empty);
        }
        if !extent.start.is_aligned(order.k()) || !extent.count.is_multiple_of(order.frames()) {
            return Err(IsolateError::Misaligned { extent, order });
        }
        if let Some(frame) = extent.iter().find(|frame| self.state(*frame) == FrameState::Hole) {
            return Err(IsolateError::Foreign { frame });
        }
        let units = extent.iter().step_by(order.frames() as usize);
        if let Some(frame) = units.clone().find(|frame| self.is_isolated(*frame) == isolated) {
            return Err(IsolateError::State { frame });
        }
        for frame in units {
            let unit = self.unit_of(frame);
            self.isolated[unit] = isolated;
        }
        Ok(())
    }

    fn place(&self) -> SeedStep {
        SeedStep { seed: self.seed, step: self.step }
    }
}

/// The blocks that an allocator holds free, in its order.
pub fn blocks(zone: &(impl ZoneAllocator + ?Sized)) -> Vec<Extent> {
    let mut found = Vec::new();
    zone.for_each_free(&mut |block| found.push(block));
    found
}

/// Drives `zone`, whose frames are those of `map` in `span` and all free,
/// through at most `steps` operations of `random`, and at last rejoins and gives everything.
/// `order_max` is the largest order that it serves. `inspect` looks at the allocator where the
/// steps say that all is compared.
///
/// Checked are: a request of any mobility is served exactly if an aligned block
/// that is free and not isolated is there (an unmixed one may fail, but changes
/// nothing then); blocks are aligned and no frame is handed out twice; any
/// aligned part of what is allocated can be given; isolated frames are neither
/// handed out nor counted; each error is the one that the states call for, and
/// changes nothing; totals; the allocator's own invariants.
///
/// # Panics
/// On the first deviation; the message names seed and step.
pub fn conform<Z: ZoneAllocator>(
    map: &MemoryMap<'_>,
    span: Extent,
    order_max: Order,
    zone: &mut Z,
    random: impl Into<Random>,
    steps: impl Into<Steps>,
    inspect: &mut dyn FnMut(&Z, &ZoneOracle),
) {
    let (mut random, steps) = (random.into(), steps.into());
    let seed = random.seed();
    let mut oracle = ZoneOracle::new(map, span, zone.isolation_order(), order_max);
    oracle.seed = seed;
    assert_eq!(zone.total_frames(), oracle.free_frames(), "seed {seed}");
    agree(zone, &oracle);
    inspect(zone, &oracle);
    // Phases of filling and of draining, so that full and empty zones occur.
    let mut allocations_of_8 = 4;
    for step in 1..=steps.most {
        if random.is_spent() {
            break;
        }
        oracle.step = step;
        if step % 64 == 0 {
            allocations_of_8 = 1 + random.below(6);
        }
        match random.below(20) {
            0 => hostile_free(zone, &mut oracle, &mut random),
            1 => isolation(zone, &mut oracle, &mut random),
            2 => hostile_isolation(zone, &mut oracle, &mut random),
            3 => batch(zone, &mut oracle, &mut random),
            _ if random.below(8) < allocations_of_8 => allocate(zone, &mut oracle, &mut random),
            _ => free(zone, &mut oracle, &mut random),
        }
        assert_eq!(zone.free_frames(), oracle.free_frames(), "{}", oracle.place());
        if steps.compares_all(step) {
            agree(zone, &oracle);
            inspect(zone, &oracle);
        }
    }
    agree(zone, &oracle);
    inspect(zone, &oracle);
    oracle.step = steps.most + 1;
    let size = oracle.unit.frames();
    let first = span.start.raw() / size * size;
    for unit in 0..oracle.isolated.len() {
        if oracle.isolated[unit] {
            let extent = Extent::new(Pfn::new(first + unit as u64 * size), size);
            assert_eq!(zone.rejoin(extent), Ok(()), "{}", oracle.place());
            assert_eq!(oracle.isolate(extent, false), Ok(()));
        }
    }
    for frame in span.iter() {
        if oracle.is_used(frame) {
            assert_eq!(zone.free(frame, Order::BASE), Ok(()), "{}", oracle.place());
            assert_eq!(oracle.free(frame, Order::BASE), Ok(()));
        }
    }
    assert_eq!(zone.free_frames(), zone.total_frames(), "{}", oracle.place());
    agree(zone, &oracle);
    inspect(zone, &oracle);
}

fn agree<Z: ZoneAllocator>(zone: &Z, oracle: &ZoneOracle) {
    let place = oracle.place();
    assert_eq!(zone.check(), Ok(()), "{place}");
    let mut seen = vec![false; oracle.states.len()];
    zone.for_each_free(&mut |block| {
        assert!(!block.is_empty(), "{place}: an empty free block");
        for frame in block.iter() {
            assert!(oracle.is_free(frame), "{place}: {frame} of {block} is not free");
            let seen = &mut seen[(frame - oracle.span.start) as usize];
            assert!(!*seen, "{place}: {frame} is free twice");
            *seen = true;
        }
    });
    let count = seen.iter().filter(|seen| **seen).count() as u64;
    assert_eq!(count, oracle.free_frames(), "{place}: free frames that are not visited");
    assert_eq!(zone.free_frames(), count, "{place}");
    assert_eq!(zone.largest_free(), oracle.largest_free(), "{place}");
}

fn mobility(random: &mut Random) -> Mobility {
    Mobility::ALL[random.below(3) as usize]
}

/// Mostly small, now and then beyond what there is.
fn order(random: &mut Random, oracle: &ZoneOracle) -> Order {
    let k = match random.below(8) {
        0..=3 => 0,
        4..=6 => random.below(5),
        _ => random.below(u64::from(oracle.order_max.k()) + 3),
    };
    Order::known(k as u8)
}

fn allocate<Z: ZoneAllocator>(zone: &mut Z, oracle: &mut ZoneOracle, random: &mut Random) {
    let (order, mobility) = (order(random, oracle), mobility(random));
    let place = oracle.place();
    let there = oracle.largest_free().is_some_and(|largest| largest >= order);
    let before = blocks(zone);
    if random.below(6) == 0 {
        match zone.allocate_unmixed(order, mobility) {
            Some(start) => oracle.allocate(start, order),
            None => assert_eq!(blocks(zone), before, "{place}: a refusal changed the free blocks"),
        }
        return;
    }
    let taken = zone.allocate(order, mobility);
    assert_eq!(taken.is_some(), there, "{place}: order {order}, {mobility}");
    match taken {
        Some(start) => oracle.allocate(start, order),
        None => assert_eq!(blocks(zone), before, "{place}: a failure changed the free blocks"),
    }
}

fn batch<Z: ZoneAllocator>(zone: &mut Z, oracle: &mut ZoneOracle, random: &mut Random) {
    let (order, mobility) = (order(random, oracle), mobility(random));
    let place = oracle.place();
    let wanted = random.below(40) as u32;
    let unmixed = random.below(4) == 0;
    let mut count = 0;
    let taken = zone.allocate_batch(order, mobility, unmixed, wanted, &mut |start| {
        oracle.allocate(start, order);
        count += 1;
    });
    assert_eq!(taken, count, "{place}: a batch that counts wrongly");
    assert!(count <= wanted, "{place}: a batch of {count}, not {wanted}");
    if count < wanted && !unmixed {
        let rest = oracle.largest_free();
        assert!(rest < Some(order), "{place}: order {order} was free, {mobility}");
    }
}

/// Gives an aligned run of used frames, whichever requests they came from.
fn free<Z: ZoneAllocator>(zone: &mut Z, oracle: &mut ZoneOracle, random: &mut Random) {
    let used = oracle.states.iter().filter(|state| **state == FrameState::Used).count() as u64;
    if used == 0 {
        return;
    }
    let nth = random.below(used) as usize;
    let frame = oracle.span.iter().filter(|frame| oracle.is_used(*frame)).nth(nth);
    let Some(frame) = frame else { return };
    let mut order = order(random, oracle).min(oracle.order_max);
    let block = loop {
        let start = frame.align_down(order.k());
        let block = Extent::new(start, order.frames());
        if block.iter().all(|frame| oracle.is_used(frame)) {
            break block;
        }
        order = Order::known(order.k() as u8 - 1);
    };
    let place = oracle.place();
    assert_eq!(zone.free(block.start, order), Ok(()), "{place}: {block}");
    assert_eq!(oracle.free(block.start, order), Ok(()));
}

fn hostile_free<Z: ZoneAllocator>(zone: &mut Z, oracle: &mut ZoneOracle, random: &mut Random) {
    let place = oracle.place();
    let order = order(random, oracle).min(oracle.order_max);
    let near = oracle.span.start.raw().saturating_sub(70) + random.below(oracle.span.count + 140);
    let frame = if random.below(8) == 0 { u64::MAX - random.below(3) } else { near };
    let aligned = random.below(4) > 0;
    let start = Pfn::new(if aligned { frame >> order.k() << order.k() } else { frame });
    let before = blocks(zone);
    let expected = oracle.free(start, order);
    assert_eq!(zone.free(start, order), expected, "{place}: order {order} at {start}");
    if expected.is_err() {
        assert_eq!(blocks(zone), before, "{place}: a refusal changed the free blocks");
    }
}

fn isolation<Z: ZoneAllocator>(zone: &mut Z, oracle: &mut ZoneOracle, random: &mut Random) {
    let size = oracle.unit.frames();
    let unit = random.below(oracle.isolated.len() as u64);
    let start = oracle.span.start.raw() / size * size + unit * size;
    let extent = Extent::new(Pfn::new(start), size * (1 + random.below(3)));
    // So that in the mean about a quarter is isolated.
    let isolate = !oracle.isolated[unit as usize] && random.below(3) == 0;
    change_isolation(zone, oracle, extent, isolate);
}

fn hostile_isolation<Z: ZoneAllocator>(zone: &mut Z, oracle: &mut ZoneOracle, random: &mut Random) {
    let size = oracle.unit.frames();
    let near =
        oracle.span.start.raw().saturating_sub(size) + random.below(oracle.span.count + size);
    let count = match random.below(4) {
        0 => 0,
        1 => size,
        2 => size * random.below(5),
        _ => random.below(2 * size),
    };
    let extent = match random.below(4) {
        0 => Extent::new(Pfn::new(near), count),
        1 => Extent::new(Pfn::new(u64::MAX / size * size), count.max(size)),
        _ => Extent::new(Pfn::new(near / size * size), count),
    };
    change_isolation(zone, oracle, extent, random.below(2) == 0);
}

fn change_isolation<Z: ZoneAllocator>(
    zone: &mut Z,
    oracle: &mut ZoneOracle,
    extent: Extent,
    isolate: bool,
) {
    let place = oracle.place();
    let before = blocks(zone);
    let expected = oracle.isolate(extent, isolate);
    let result = if isolate { zone.isolate(extent) } else { zone.rejoin(extent) };
    assert_eq!(result, expected, "{place}: {extent}, isolate {isolate}");
    if expected.is_err() {
        assert_eq!(blocks(zone), before, "{place}: a refusal changed the free blocks");
    }
}
