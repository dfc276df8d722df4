//! Linux's zone against an independent model of plain vectors, list by list
//! after each operation, and against cases worked out by hand.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::linux::{Fallback, LinuxBuildError, ORDER_MAX, PAGEBLOCK_ORDER, fallbacks};
use swath_frame::{ByteRange, LinuxZone, MemoryMap, Mobility, ZoneAllocator};

use Mobility::{Movable, Reclaimable, Unmovable};

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn with_map<T>(areas: &[Extent], test: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    test(&MemoryMap::new(&ranges, &mut storage).unwrap())
}

type Zone = LinuxZone<Vec<u64>>;

fn zone(areas: &[Extent], span: Extent, pageblock: Order) -> Zone {
    let words = vec![0x5a5a_5a5a_5a5a_5a5a; Zone::storage_words(span)];
    with_map(areas, |map| LinuxZone::new(map, span, pageblock, words).unwrap())
}

fn whole(frames: u64) -> Zone {
    zone(&[extent(0, frames)], extent(0, frames), PAGEBLOCK_ORDER)
}

fn order(k: u32) -> Order {
    Order::known(k as u8)
}

fn list(
    zone: &LinuxZone<Vec<u64>, impl swath_frame::zone::linux::Observe>,
    k: u32,
    mobility: Mobility,
) -> Vec<u64> {
    zone.list(order(k), mobility).map(Pfn::raw).collect()
}

/// The definition, written down without a thought for speed. Lists are vectors
/// whose index 0 is the head; a list number is a mobility's, or 3 for isolated.
struct Model {
    lists: Vec<Vec<Vec<u64>>>,
    used: BTreeMap<u64, Mobility>,
    present: BTreeSet<u64>,
    span: Extent,
    pageblock: u64,
    mobilities: BTreeMap<u64, Mobility>,
    isolated: BTreeSet<u64>,
    events: Vec<Fallback>,
}

const TOP: usize = 10;

impl Model {
    fn new(areas: &[Extent], span: Extent, pageblock: Order) -> Self {
        let frames = areas.iter().flat_map(|area| area.iter());
        let present: BTreeSet<u64> =
            frames.filter(|frame| span.contains(*frame)).map(Pfn::raw).collect();
        let mut model = Self {
            lists: vec![vec![vec![]; 4]; TOP + 1],
            used: BTreeMap::new(),
            present: present.clone(),
            span,
            pageblock: pageblock.frames(),
            mobilities: BTreeMap::new(),
            isolated: BTreeSet::new(),
            events: vec![],
        };
        // Frame by frame to the tails gives the same lists as in blocks.
        for frame in present {
            model.free_one(frame, 0, true);
        }
        model
    }

    fn block(&self, frame: u64) -> u64 {
        frame / self.pageblock
    }

    fn mobility(&self, frame: u64) -> Mobility {
        self.mobilities.get(&self.block(frame)).copied().unwrap_or(Movable)
    }

    fn list_of(&self, frame: u64) -> usize {
        if self.isolated.contains(&self.block(frame)) { 3 } else { self.mobility(frame) as usize }
    }

    /// The order and list of the free block that begins at `frame`.
    fn find(&self, frame: u64) -> Option<(usize, usize)> {
        (0..=TOP)
            .flat_map(|k| (0..4).map(move |list| (k, list)))
            .find(|(k, list)| self.lists[*k][*list].contains(&frame))
    }

    fn remove(&mut self, frame: u64) -> (usize, usize) {
        let (k, list) = self.find(frame).unwrap();
        self.lists[k][list].retain(|other| *other != frame);
        (k, list)
    }

    fn set_mobility(&mut self, start: u64, frames: u64, mobility: Mobility) {
        for block in start / self.pageblock..(start + frames) / self.pageblock {
            self.mobilities.insert(block, mobility);
        }
    }

    fn free_one(&mut self, frame: u64, k: usize, tail: bool) {
        let (mut frame, mut k) = (frame, k);
        let list = self.list_of(frame);
        while k < TOP {
            let buddy = frame ^ 1 << k;
            let Some((buddy_k, other)) = self.find(buddy) else { break };
            if buddy_k != k || other != list && (other == 3 || list == 3) {
                break;
            }
            self.remove(buddy);
            if other != list {
                let mobility = self.mobility(frame);
                self.set_mobility(buddy, 1 << k, mobility);
            }
            frame = frame.min(buddy);
            k += 1;
        }
        let above = frame & !(1 << k) ^ 2 << k;
        let soon = k + 1 < TOP && self.find(above).is_some_and(|(other, _)| other == k + 1);
        if tail || soon {
            self.lists[k][list].push(frame);
        } else {
            self.lists[k][list].insert(0, frame);
        }
    }

    fn free_block(&mut self, frame: u64, k: usize, tail: bool) {
        let step = (1_u64 << k).min(self.pageblock);
        for start in (frame..frame + (1 << k)).step_by(step as usize) {
            self.free_one(start, step.ilog2() as usize, tail);
        }
    }

    /// Takes the first of a list apart, and returns its first 2^k frames.
    fn cut(&mut self, k: usize, block_k: usize, from: usize, rest: usize) -> u64 {
        let frame = self.lists[block_k][from].remove(0);
        for half in (k..block_k).rev() {
            self.lists[half][rest].insert(0, frame + (1 << half));
        }
        frame
    }

    fn pop(&mut self, k: usize, list: usize) -> Option<u64> {
        let block_k = (k..=TOP).find(|block_k| !self.lists[*block_k][list].is_empty())?;
        Some(self.cut(k, block_k, list, list))
    }

    fn foreign(&self, k: usize, mobility: Mobility) -> Option<Mobility> {
        fallbacks(mobility).into_iter().find(|other| !self.lists[k][*other as usize].is_empty())
    }

    fn claim(
        &mut self,
        k: usize,
        mobility: Mobility,
        unmixed: bool,
    ) -> Option<(u64, usize, Mobility)> {
        let pageblock_k = self.pageblock.ilog2() as usize;
        for block_k in (k..=TOP).rev() {
            if unmixed && block_k < pageblock_k || mobility == Movable && block_k < pageblock_k / 2
            {
                return None;
            }
            let Some(from) = self.foreign(block_k, mobility) else { continue };
            let head = self.lists[block_k][from as usize][0];
            if block_k >= pageblock_k {
                self.set_mobility(head, 1 << block_k, mobility);
                let frame = self.cut(k, block_k, from as usize, mobility as usize);
                return Some((frame, block_k, from));
            }
            let start = head / self.pageblock * self.pageblock;
            let end = start + self.pageblock;
            if start < self.span.start.raw() || end > self.span.end().raw() {
                continue;
            }
            let free: Vec<u64> = (start..end).filter(|frame| self.find(*frame).is_some()).collect();
            let free_frames: u64 = free.iter().map(|frame| 1 << self.find(*frame).unwrap().0).sum();
            let movable =
                self.used.range(start..end).filter(|used| *used.1 == Movable).count() as u64;
            let alike = match (mobility, from) {
                (Movable, _) => movable,
                (_, Movable) => self.pageblock - free_frames - movable,
                _ => 0,
            };
            if free_frames + alike < self.pageblock / 2 {
                continue;
            }
            for frame in free {
                let (k, _) = self.remove(frame);
                self.lists[k][mobility as usize].push(frame);
            }
            self.set_mobility(start, self.pageblock, mobility);
            return Some((self.pop(k, mobility as usize).unwrap(), block_k, from));
        }
        None
    }

    fn take(
        &mut self,
        k: usize,
        mobility: Mobility,
        unmixed: bool,
        stealing: &mut bool,
    ) -> Option<u64> {
        if k > TOP {
            return None;
        }
        let mut frame = None;
        if !*stealing {
            frame = self.pop(k, mobility as usize);
            if frame.is_none()
                && let Some((start, block_k, from)) = self.claim(k, mobility, unmixed)
            {
                self.event(start, k, block_k, mobility, from, true);
                frame = Some(start);
            }
        }
        if frame.is_none() && !unmixed {
            *stealing = false;
            for block_k in k..=TOP {
                if let Some(from) = self.foreign(block_k, mobility) {
                    let start = self.cut(k, block_k, from as usize, from as usize);
                    self.event(start, k, block_k, mobility, from, false);
                    frame = Some(start);
                    *stealing = true;
                    break;
                }
            }
        }
        let frame = frame?;
        self.used.extend((frame..frame + (1 << k)).map(|frame| (frame, mobility)));
        Some(frame)
    }

    fn event(
        &mut self,
        start: u64,
        k: usize,
        block_k: usize,
        wanted: Mobility,
        from: Mobility,
        claimed: bool,
    ) {
        let (order, block_order) = (order(k as u32), order(block_k as u32));
        self.events.push(Fallback {
            start: Pfn::new(start),
            order,
            block_order,
            wanted,
            from,
            claimed,
        });
    }

    fn give(&mut self, start: u64, k: usize) -> bool {
        if (start..start + (1 << k)).any(|frame| !self.used.contains_key(&frame)) {
            return false;
        }
        self.used.retain(|frame, _| !(start..start + (1 << k)).contains(frame));
        self.free_block(start, k, false);
        true
    }

    /// Isolates a pageblock, or ends that.
    fn set_isolated(&mut self, block: u64, isolated: bool) -> bool {
        let start = block * self.pageblock;
        let end = start + self.pageblock;
        if (start..end).any(|frame| !self.present.contains(&frame))
            || self.isolated.contains(&block) == isolated
        {
            return false;
        }
        let pageblock_k = self.pageblock.ilog2() as usize;
        let around = (pageblock_k + 1..=TOP).find_map(|k| {
            let first = start >> k << k;
            self.find(first).is_some_and(|(other, _)| other == k).then_some((first, k))
        });
        let buddy = start ^ self.pageblock;
        let is_whole = |frame: u64| self.find(frame).is_some_and(|(k, _)| k == pageblock_k);
        let merges = !isolated
            && pageblock_k < TOP
            && is_whole(start)
            && is_whole(buddy)
            && self.list_of(buddy) != 3;
        let flip = |model: &mut Self| {
            if isolated { model.isolated.insert(block) } else { model.isolated.remove(&block) }
        };
        if let Some((first, k)) = around {
            self.remove(first);
            flip(self);
            self.free_block(first, k, false);
        } else if merges {
            self.remove(start);
            flip(self);
            self.free_one(start, pageblock_k, true);
        } else {
            flip(self);
            let list = self.list_of(start);
            for frame in start..end {
                if self.find(frame).is_some() {
                    let (k, _) = self.remove(frame);
                    self.lists[k][list].push(frame);
                }
            }
        }
        true
    }
}

fn same(
    zone: &LinuxZone<Vec<u64>, impl swath_frame::zone::linux::Observe>,
    model: &Model,
    place: &str,
) {
    for k in 0..=TOP as u32 {
        for mobility in Mobility::ALL {
            let expected = &model.lists[k as usize][mobility as usize];
            assert_eq!(&list(zone, k, mobility), expected, "{place}: order {k}, {mobility}");
        }
        let isolated: Vec<u64> = zone.isolated(order(k)).map(Pfn::raw).collect();
        assert_eq!(isolated, model.lists[k as usize][3], "{place}: order {k}, isolated");
    }
    for frame in model.span.iter().step_by(model.pageblock as usize) {
        let mobility = model.mobility(frame.raw());
        assert_eq!(zone.pageblock_mobility(frame), Some(mobility), "{place}: {frame}");
    }
}

/// Random operations on both; how often there was a claim, and a steal.
fn compare(
    areas: &[Extent],
    span: Extent,
    pageblock: Order,
    seed: u64,
    steps: usize,
) -> [usize; 2] {
    let mut model = Model::new(areas, span, pageblock);
    let events = RefCell::new(Vec::new());
    let mut zone =
        zone(areas, span, pageblock).observed(|event: &Fallback| events.borrow_mut().push(*event));
    let mut random = Random::new(seed);
    let mut held: Vec<(u64, usize)> = Vec::new();
    let mut favourite = Movable;
    same(&zone, &model, "at first");
    for step in 0..steps {
        let place = format!("seed {seed}, step {step}");
        if step % 100 == 0 {
            favourite = Mobility::ALL[random.below(3) as usize];
        }
        let takes = if step / 300 % 2 == 0 { 13 } else { 8 };
        match random.below(20) {
            0 => {
                let first = model.block(span.start.raw());
                let blocks = model.block(span.end().raw() - 1) - first + 2;
                let block = first + random.below(blocks);
                let isolated = random.below(3) == 0;
                let extent = extent(block * model.pageblock, model.pageblock);
                let result = if isolated { zone.isolate(extent) } else { zone.rejoin(extent) };
                let expected = model.set_isolated(block, isolated);
                assert_eq!(result.is_ok(), expected, "{place}: {result:?}");
            }
            1 => {
                let (count, unmixed) = (random.below(12) as u32, random.below(3) == 0);
                let (k, mobility) =
                    (random.below(4) as usize, Mobility::ALL[random.below(3) as usize]);
                let mut blocks = Vec::new();
                zone.allocate_batch(order(k as u32), mobility, unmixed, count, &mut |start| {
                    blocks.push(start.raw());
                });
                let mut stealing = false;
                let expected: Vec<u64> = (0..count)
                    .map_while(|_| model.take(k, mobility, unmixed, &mut stealing))
                    .collect();
                assert_eq!(blocks, expected, "{place}: a batch");
                held.extend(blocks.into_iter().map(|start| (start, k)));
            }
            n if n < takes => {
                let k = [0, 0, 0, 0, 1, 1, 2, 3, 5, 9, 10][random.below(11) as usize];
                let mobility = match random.below(3) {
                    0 => Mobility::ALL[random.below(3) as usize],
                    _ => favourite,
                };
                let unmixed = random.below(8) == 0;
                let expected = model.take(k, mobility, unmixed, &mut false);
                let taken = if unmixed {
                    zone.allocate_unmixed(order(k as u32), mobility)
                } else {
                    zone.allocate(order(k as u32), mobility)
                };
                assert_eq!(taken.map(Pfn::raw), expected, "{place}: order {k}, {mobility}");
                held.extend(expected.map(|start| (start, k)));
            }
            _ if !held.is_empty() => {
                let (start, k) = held.swap_remove(random.below(held.len() as u64) as usize);
                // As a whole, or the upper half first.
                let parts = if k > 0 && random.below(4) == 0 {
                    vec![(start + (1 << (k - 1)), k - 1), (start, k - 1)]
                } else {
                    vec![(start, k)]
                };
                for (start, k) in parts {
                    assert!(model.give(start, k));
                    assert_eq!(zone.free(Pfn::new(start), order(k as u32)), Ok(()), "{place}");
                }
                assert!(zone.free(Pfn::new(start), order(k as u32)).is_err(), "{place}");
            }
            _ => (),
        }
        same(&zone, &model, &place);
        assert_eq!(*events.borrow(), model.events, "{place}: fallbacks");
        assert_eq!(zone.check(), Ok(()), "{place}");
    }
    let claims = model.events.iter().filter(|event| event.claimed).count();
    [claims, model.events.len() - claims]
}

#[test]
fn the_model_agrees() {
    let mut fallbacks = [0, 0];
    for seed in 0..8 {
        let pageblock = order([3, 5, 9, 10][seed as usize % 4]);
        let areas = [extent(0, 1024 + 512 * (seed / 4))];
        let counts = compare(&areas, areas[0], pageblock, seed, 1500);
        fallbacks = [fallbacks[0] + counts[0], fallbacks[1] + counts[1]];
    }
    for seed in 8..20 {
        let mut random = Random::new(seed);
        let first = extent(random.below(1500), 1 + random.below(900));
        let second = extent(first.end().raw() + 1 + random.below(90), 1 + random.below(900));
        let start = first.start.raw() + random.below(first.count);
        let span = extent(start, second.end().raw() - start - random.below(second.count));
        let pageblock = order([3, 4, 6, 9][seed as usize % 4]);
        let counts = compare(&[first, second], span, pageblock, seed, 900);
        fallbacks = [fallbacks[0] + counts[0], fallbacks[1] + counts[1]];
    }
    assert!(fallbacks.iter().all(|count| *count > 200), "{fallbacks:?}");
}

/// Every sequence of a few operations on a zone of two small pageblocks.
#[test]
fn all_short_sequences() {
    let areas = [extent(0, 16)];
    let pageblock = order(3);
    let operations = 3 * 2 + 3_u64;
    for sequence in 0..operations.pow(5) {
        let mut rest = sequence;
        let mut model = Model::new(&areas, areas[0], pageblock);
        let mut zone = zone(&areas, areas[0], pageblock);
        let mut held = std::collections::VecDeque::new();
        for _ in 0..5 {
            let operation = rest % operations;
            rest /= operations;
            match operation {
                0..=5 => {
                    let (mobility, k) =
                        (Mobility::ALL[operation as usize / 2], [0, 2][operation as usize % 2]);
                    let expected = model.take(k, mobility, false, &mut false);
                    let taken = zone.allocate(order(k as u32), mobility).map(Pfn::raw);
                    assert_eq!(taken, expected, "sequence {sequence}");
                    held.extend(expected.map(|start| (start, k)));
                }
                6 | 7 => {
                    let given = if operation == 6 { held.pop_front() } else { held.pop_back() };
                    if let Some((start, k)) = given {
                        assert!(model.give(start, k));
                        assert_eq!(zone.free(Pfn::new(start), order(k as u32)), Ok(()));
                    }
                }
                _ => {
                    let isolated = model.set_isolated(0, true);
                    assert_eq!(zone.isolate(extent(0, 8)).is_ok(), isolated);
                    if !isolated {
                        assert!(model.set_isolated(0, false));
                        assert_eq!(zone.rejoin(extent(0, 8)), Ok(()));
                    }
                }
            }
            same(&zone, &model, &format!("sequence {sequence}"));
        }
        assert_eq!(zone.check(), Ok(()), "sequence {sequence}");
    }
}

#[test]
fn splitting_leaves_the_upper_halves() {
    let mut zone = whole(2048);
    assert_eq!(list(&zone, 10, Movable), [0, 1024]);
    assert_eq!(zone.allocate(Order::BASE, Movable), Some(Pfn::new(0)));
    for k in 0..10 {
        assert_eq!(list(&zone, k, Movable), [1 << k]);
    }
    // The smallest order that will do is cut next, not the rest of memory.
    assert_eq!(zone.allocate(order(1), Movable), Some(Pfn::new(2)));
    assert_eq!(zone.allocate(order(1), Movable), Some(Pfn::new(4)));
    assert_eq!(list(&zone, 1, Movable), [6]);
}

#[test]
fn the_last_given_is_the_first_taken() {
    let mut zone = whole(1024);
    for frame in 0..64 {
        assert_eq!(zone.allocate(Order::BASE, Movable), Some(Pfn::new(frame)));
    }
    for frame in [9, 33, 21, 5] {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
    }
    assert_eq!(list(&zone, 0, Movable), [5, 21, 33, 9]);
    for frame in [5, 21, 33, 9] {
        assert_eq!(zone.allocate(Order::BASE, Movable), Some(Pfn::new(frame)));
    }
}

#[test]
fn a_block_that_will_soon_merge_goes_to_the_tail() {
    let mut zone = whole(1024);
    for _ in 0..64 {
        zone.allocate(Order::BASE, Movable).unwrap();
    }
    for frame in [9, 2, 3] {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
    }
    assert_eq!(list(&zone, 0, Movable), [9]);
    assert_eq!(list(&zone, 1, Movable), [2]);
    // The buddy of 0 is in use, but that of the pair 0 and 1 is free.
    zone.free(Pfn::new(0), Order::BASE).unwrap();
    assert_eq!(list(&zone, 0, Movable), [9, 0]);
    zone.free(Pfn::new(1), Order::BASE).unwrap();
    assert_eq!(list(&zone, 0, Movable), [9]);
    assert_eq!(list(&zone, 2, Movable), [0]);
}

#[test]
fn an_unmovable_request_claims_the_largest_block_whole() {
    let mut zone = whole(2048);
    zone.allocate(Order::BASE, Movable).unwrap();
    assert_eq!(zone.allocate(Order::BASE, Unmovable), Some(Pfn::new(1024)));
    for frame in [1024, 1536] {
        assert_eq!(zone.pageblock_mobility(Pfn::new(frame)), Some(Unmovable));
    }
    assert_eq!(zone.pageblock_mobility(Pfn::new(0)), Some(Movable));
    assert_eq!(list(&zone, 9, Unmovable), [1536]);
}

/// A pageblock with its upper part in use: claimed if half is free or alike.
fn half_used(zone: &mut Zone, used: u64, by: Mobility) {
    // All memory, then give back what is to be free, frame by frame.
    while zone.allocate(Order::BASE, by).is_some() {}
    for frame in 0..512 - used {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
    }
}

#[test]
fn half_a_pageblock_decides() {
    // 256 free frames of 512 suffice against movable owners, 255 do not.
    for (used, claimed) in [(256, true), (257, false)] {
        let events = RefCell::new(Vec::new());
        let mut zone = whole(1024);
        half_used(&mut zone, used, Movable);
        let mut zone = zone.observed(|event: &Fallback| events.borrow_mut().push(*event));
        let start = zone.allocate(Order::BASE, Unmovable).unwrap();
        assert!(start.raw() < 512);
        let mobility = if claimed { Unmovable } else { Movable };
        assert_eq!(zone.pageblock_mobility(Pfn::new(0)), Some(mobility), "{used} in use");
        let events = events.borrow();
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].claimed, events[0].from), (claimed, Movable));
        // 256 to 0: a block of order 8; 255: orders 7 to 0, stolen from the smallest.
        assert_eq!(events[0].block_order, order(if claimed { 8 } else { 0 }));
    }
}

#[test]
fn unmovable_owners_are_alike_in_a_movable_block() {
    // One free frame of 512, then one more unmovable owner with each request:
    // 255 of them and the free frame are half of the pageblock.
    let mut zone = whole(512);
    assert_eq!(zone.allocate(order(9), Movable), Some(Pfn::new(0)));
    for frame in 0..256 {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
        assert_eq!(zone.allocate(Order::BASE, Unmovable), Some(Pfn::new(frame)));
        let mobility = if frame < 255 { Movable } else { Unmovable };
        assert_eq!(zone.pageblock_mobility(Pfn::new(0)), Some(mobility), "{frame}");
    }
}

#[test]
fn movable_requests_steal_small_blocks_and_claim_large_ones() {
    let events = RefCell::new(Vec::new());
    let mut zone = whole(1024);
    while zone.allocate(Order::BASE, Unmovable).is_some() {}
    // Blocks of order 3 (below half of 9) and 2.
    for frame in (0..8).chain(16..20) {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
    }
    let mut zone = zone.observed(|event: &Fallback| events.borrow_mut().push(*event));
    assert_eq!(zone.allocate(Order::BASE, Movable), Some(Pfn::new(16)), "the smallest block");
    assert_eq!(list(&zone, 0, Unmovable), [17], "the rest stays the pageblock's");
    let event = events.borrow()[0];
    assert_eq!((event.block_order, event.claimed), (order(2), false));
    assert_eq!((event.wanted, event.from), (Movable, Unmovable));
    // A block of order 8 is half the pageblock.
    for frame in 512..768 {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
    }
    assert_eq!(zone.allocate(Order::BASE, Movable), Some(Pfn::new(512)));
    assert_eq!(zone.pageblock_mobility(Pfn::new(512)), Some(Movable));
    assert!(events.borrow()[1].claimed);
}

#[test]
fn reclaimable_comes_first_among_fallbacks() {
    let mut zone = whole(4096);
    zone.allocate(Order::BASE, Unmovable).unwrap();
    zone.allocate(Order::BASE, Reclaimable).unwrap();
    while zone.allocate(order(10), Movable).is_some() {}
    while zone.allocate(order(9), Unmovable).is_some() {}
    // What is left are parts of pageblocks; an unmovable request looks among
    // its own first, then among reclaimable ones.
    let own = list(&zone, 8, Unmovable);
    assert_eq!(zone.allocate(order(8), Unmovable), own.first().copied().map(Pfn::new));
    assert_eq!(fallbacks(Unmovable), [Reclaimable, Movable]);
    assert_eq!(fallbacks(Movable), [Reclaimable, Unmovable]);
    assert_eq!(fallbacks(Reclaimable), [Unmovable, Movable]);
}

#[test]
fn an_unmixed_request_claims_whole_pageblocks_only() {
    let mut zone = whole(1024);
    while zone.allocate(Order::BASE, Movable).is_some() {}
    for frame in 0..256 {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
    }
    assert_eq!(zone.allocate_unmixed(Order::BASE, Unmovable), None);
    for frame in 256..512 {
        zone.free(Pfn::new(frame), Order::BASE).unwrap();
    }
    assert_eq!(zone.allocate_unmixed(Order::BASE, Unmovable), Some(Pfn::new(0)));
}

#[test]
fn isolation_splits_and_rejoining_merges() {
    let mut zone = whole(2048);
    assert_eq!(zone.isolate(extent(512, 512)), Ok(()));
    assert_eq!(list(&zone, 9, Movable), [0]);
    assert_eq!(zone.isolated(order(9)).collect::<Vec<_>>(), [Pfn::new(512)]);
    assert_eq!((zone.free_frames(), zone.is_isolated(Pfn::new(600))), (1536, true));
    assert_eq!(zone.rejoin(extent(512, 512)), Ok(()));
    assert_eq!(list(&zone, 10, Movable), [1024, 0], "merged, and last");
    assert_eq!(zone.structure_bytes(), size_of::<Zone>());
}

#[test]
fn zones_that_cannot_be() {
    with_map(&[extent(0, 4096)], |map| {
        let build = |span, k, words| LinuxZone::new(map, span, order(k), vec![0; words]).err();
        let span = extent(0, 4096);
        let words = Zone::storage_words(span);
        // A word per frame, a byte per frame, and bits for the smallest pageblocks.
        assert_eq!(words, 4096 + 512 + 32);
        assert_eq!(build(span, 9, words), None);
        assert_eq!(build(span, 2, words), Some(LinuxBuildError::Pageblock { order: order(2) }));
        assert_eq!(build(span, 11, words), Some(LinuxBuildError::Pageblock { order: order(11) }));
        let storage = LinuxBuildError::Storage { needed_words: 4096 + 512 + 1, given_words: 99 };
        assert_eq!(build(span, 9, 99), Some(storage));
        let elsewhere = extent(5000, 10);
        assert_eq!(build(elsewhere, 9, words), Some(LinuxBuildError::NoFrame { span: elsewhere }));
        for span in [extent(0, 1 << 32), extent(1, u64::MAX), extent(u64::MAX - 3, 3)] {
            assert_eq!(Zone::storage_words(span), usize::MAX);
            assert_eq!(build(span, 9, 9), Some(LinuxBuildError::Span { span }));
        }
    });
    assert_eq!(ORDER_MAX, order(10));
}

/// A claim gives the smallest block of the pageblock, which is not the largest
/// that led to it: a recorded kernel's event named a frame that was not aligned to the
/// order found.
#[test]
fn a_claim_gives_the_smallest_block_of_the_pageblock() {
    let events = RefCell::new(Vec::new());
    let mut zone = whole(1024);
    half_used(&mut zone, 250, Movable);
    zone.free(Pfn::new(301), Order::BASE).unwrap();
    let mut zone = zone.observed(|event: &Fallback| events.borrow_mut().push(*event));
    assert_eq!(zone.allocate(Order::BASE, Unmovable), Some(Pfn::new(301)));
    let events = events.borrow();
    assert_eq!((events[0].start, events[0].block_order), (Pfn::new(301), order(8)));
    assert!(events[0].claimed);
}
