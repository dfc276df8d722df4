//! Reservations beside a model of plain sets, operation by operation.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::buddy::{BuddyConfig, PageBuddy};
use crate::hardening::{Hardening, Trusting};
use crate::map::{ByteRange, MemoryMap};
use crate::reserve::slots::NONE;
use crate::reserve::{
    FrameSource, PopulateError, Populated, Reservation, ReservationCounters, ReservationLevels,
    Reservations,
};

/// Reservations over the page buddy system.
pub type Pool<H = Trusting> = Reservations<PageBuddy<Vec<u64>>, Vec<u64>, H>;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

/// Levels of these orders, with other orders below them that may be full.
///
/// # Panics
/// If there are no such levels.
pub fn levels(levels: &[u8], sublevels: &[u8]) -> ReservationLevels {
    let orders = |ks: &[u8]| ks.iter().map(|&k| Order::known(k)).collect::<Vec<_>>();
    ReservationLevels::new(&orders(levels), &orders(sublevels)).unwrap()
}

/// Reservations over areas, all of them free.
///
/// # Panics
/// If the areas overlap.
pub fn pool<H: Hardening>(
    areas: &[Extent],
    config: BuddyConfig,
    levels: ReservationLevels,
) -> Pool<H> {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    let words = PageBuddy::<Vec<u64>>::storage_words(&map, config);
    let buddy = PageBuddy::<_>::new(&map, config, vec![0; words]).unwrap();
    // What the storage held before must not matter.
    let storage = vec![0x5a5a_5a5a_5a5a_5a5a; Pool::<H>::storage_words(&map, levels)];
    Reservations::new(&map, levels, buddy, storage).unwrap()
}

/// A slot: its level and its first frame.
type Slot = (usize, u64);

/// When a slot joined its queue or moved there: the time, and a number that
/// rises with each.
#[derive(Clone, Copy, Debug)]
struct Moved {
    time: u64,
    number: u64,
}

/// Every frame and every reservation, in the plainest form.
#[derive(Clone, Debug)]
pub struct Model {
    levels: ReservationLevels,
    frames: BTreeSet<u64>,
    /// Frames in use.
    pub held: BTreeSet<u64>,
    /// Free in the allocator beneath.
    beneath: BTreeSet<u64>,
    /// Object and first page of each reservation.
    reservations: BTreeMap<Slot, (u64, u64)>,
    /// The queue of all, oldest first.
    queue: Vec<Slot>,
    moved: BTreeMap<Slot, Moved>,
    number: u64,
    /// Time of the last population.
    pub latest: u64,
    counters: ReservationCounters,
}

impl Model {
    /// All frames of `areas`, free.
    pub fn new(areas: &[Extent], levels: ReservationLevels) -> Self {
        let frames: BTreeSet<u64> =
            areas.iter().flat_map(|area| area.iter()).map(Pfn::raw).collect();
        Self {
            levels,
            held: BTreeSet::new(),
            beneath: frames.clone(),
            frames,
            reservations: BTreeMap::new(),
            queue: Vec::new(),
            moved: BTreeMap::new(),
            number: 0,
            latest: 0,
            counters: ReservationCounters::default(),
        }
    }

    fn size(&self, level: usize) -> u64 {
        self.levels.orders()[level].frames()
    }

    fn range(&self, (level, start): Slot) -> Range<u64> {
        start..start + self.size(level)
    }

    fn around(&self, level: usize, frame: u64) -> Slot {
        (level, frame / self.size(level) * self.size(level))
    }

    fn populated(&self, slot: Slot) -> u64 {
        self.held.range(self.range(slot)).count() as u64
    }

    fn is_partial(&self, slot: Slot) -> bool {
        (1..self.size(slot.0)).contains(&self.populated(slot))
    }

    fn parts(&self, slot: Slot) -> Vec<Slot> {
        let (below, size) = (slot.0 - 1, self.size(slot.0 - 1));
        self.range(slot).step_by(size as usize).map(|start| (below, start)).collect()
    }

    fn reservation_of(&self, frame: u64) -> Option<Slot> {
        self.reservations.keys().copied().find(|&slot| self.range(slot).contains(&frame))
    }

    fn reservation_at(&self, object: u64, index: u64) -> Option<Slot> {
        let covers = |&(&(level, _), &(of, first)): &(&Slot, &(u64, u64))| {
            of == object && (first..first + self.size(level)).contains(&index)
        };
        self.reservations.iter().find(covers).map(|(&slot, _)| slot)
    }

    fn view(&self, slot: Slot) -> Reservation {
        let (object, index) = self.reservations[&slot];
        Reservation {
            object,
            index,
            order: self.levels.orders()[slot.0],
            start: Pfn::new(slot.1),
            populated: self.populated(slot),
        }
    }

    fn free(&self) -> BTreeSet<u64> {
        self.frames.difference(&self.held).copied().collect()
    }

    fn has_run(set: &BTreeSet<u64>, within: Range<u64>, order: Order) -> Option<u64> {
        let frames = order.frames();
        set.range(within.clone()).copied().find(|&start| {
            start % frames == 0
                && start + frames <= within.end
                && (start..start + frames).all(|frame| set.contains(&frame))
        })
    }

    /// The slots of the reservation `root` around `frame`, from the lowest.
    fn slots_around(&self, root: Slot, frame: u64) -> Vec<Slot> {
        (0..=root.0).map(|level| self.around(level, frame)).collect()
    }

    fn join(&mut self, slot: Slot, time: u64) {
        self.number += 1;
        self.moved.insert(slot, Moved { time, number: self.number });
        if self.reservations.contains_key(&slot) {
            self.queue.push(slot);
        }
    }

    fn leave(&mut self, slot: Slot) {
        self.queue.retain(|&other| other != slot);
    }

    /// Populates a frame of `root`; the largest order that is full now.
    fn populate(&mut self, root: Slot, frame: u64, now: u64) -> Option<Order> {
        assert!(self.held.insert(frame));
        self.latest = now;
        self.counters.populated += 1;
        for slot in self.slots_around(root, frame) {
            let populated = self.populated(slot);
            if populated == self.size(slot.0) {
                self.leave(slot);
                self.counters.full += 1;
            } else if populated == 1 {
                self.join(slot, now);
            } else if self.moved[&slot].time != now {
                self.leave(slot);
                self.join(slot, now);
                self.counters.moved += 1;
            }
        }
        self.full_order(frame)
    }

    fn is_full(&self, frame: u64, order: Order) -> bool {
        let start = frame / order.frames() * order.frames();
        let Some(root) = self.reservation_of(frame) else { return false };
        order.frames() <= self.size(root.0)
            && (start..start + order.frames()).all(|frame| self.held.contains(&frame))
    }

    fn full_order(&self, frame: u64) -> Option<Order> {
        let orders = self.levels.suborders().iter().chain(self.levels.orders());
        orders.copied().filter(|&order| self.is_full(frame, order)).max()
    }

    fn free_frame(&mut self, frame: u64) {
        let Some(root) = self.reservation_of(frame) else {
            assert!(self.held.remove(&frame) && self.beneath.insert(frame));
            return;
        };
        let mut time = self.latest;
        for slot in self.slots_around(root, frame).into_iter().rev() {
            let was = self.populated(slot);
            if was == 1 {
                self.leave(slot);
            } else if was == self.size(slot.0) {
                self.join(slot, time);
            }
            time = self.moved[&slot].time;
        }
        assert!(self.held.remove(&frame));
        if self.populated(root) == 0 {
            self.beneath.extend(self.range(root));
            self.reservations.remove(&root);
            self.counters.emptied += 1;
        }
    }

    /// Breaks up `root`, without giving back frames of `keep`.
    fn break_up(&mut self, root: Slot, keep: &BTreeSet<u64>) -> u64 {
        let (object, index) = self.reservations[&root];
        let place = self.queue.iter().position(|&slot| slot == root);
        self.leave(root);
        let mut place = place.unwrap_or(0);
        let mut back = 0;
        let before = self.clone();
        self.reservations.remove(&root);
        self.counters.broken_up += 1;
        let mut give_back = |model: &mut Self, slot: Slot| {
            for frame in model.range(slot) {
                if !before.held.contains(&frame) && !keep.contains(&frame) {
                    assert!(model.beneath.insert(frame));
                    back += 1;
                }
            }
        };
        if root.0 == 0 {
            give_back(self, root);
            return back;
        }
        for part in before.parts(root) {
            match before.populated(part) {
                0 => give_back(self, part),
                _ => {
                    self.reservations.insert(part, (object, index + part.1 - root.1));
                }
            }
        }
        for part in before.queue_of(root).into_iter().rev() {
            while place > 0 && self.moved[&self.queue[place - 1]].time > self.moved[&part].time {
                place -= 1;
            }
            self.queue.insert(place, part);
        }
        back
    }

    /// The partially populated parts of a reservation or of a part of one, in the order of their queue.
    fn queue_of(&self, slot: Slot) -> Vec<Slot> {
        let mut parts = self.parts(slot);
        parts.retain(|&part| self.is_partial(part));
        parts.sort_by_key(|part| self.moved[part].number);
        parts
    }

    fn reclaim(&mut self) {
        self.counters.reclaimed += 1;
        self.counters.reclaimed_frames += self.break_up(self.queue[0], &BTreeSet::new());
    }

    /// Frames handed out beneath, if needed after breaking reservations up.
    fn take(&mut self, block: Extent, needed: u64) {
        while (self.beneath.len() as u64) < needed && !self.queue.is_empty() {
            self.reclaim();
        }
        for frame in block.iter().map(Pfn::raw) {
            assert!(self.beneath.remove(&frame), "{frame:#x} was not free beneath");
            assert!(self.held.insert(frame));
        }
    }

    fn release(&mut self, object: u64, pages: &Range<u64>) {
        loop {
            let meets = |&(&(level, _), &(of, first)): &(&Slot, &(u64, u64))| {
                of == object
                    && !pages.is_empty()
                    && first < pages.end
                    && first + self.size(level) > pages.start
            };
            // The order matters only for which of the parts that joined their queues at one time come first.
            let Some((&root, _)) = self.reservations.iter().rev().find(meets) else { return };
            self.break_up(root, &BTreeSet::new());
        }
    }
}

/// An operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Populates a page of an object that has the pages `bounds`.
    Populate {
        /// The object.
        object: u64,
        /// Its page.
        index: u64,
        /// Its pages.
        bounds: Range<u64>,
        /// The time.
        now: u64,
    },
    /// Frees frames.
    Free(Extent),
    /// Allocates a frame past all reservations.
    TakeFrame,
    /// Allocates a block of at most so many frames.
    TakeBlock(u64),
    /// Allocates an aligned block.
    TakeAligned(Order),
    /// Allocates so many frames.
    Allocate(u64),
    /// Releases an object's pages.
    Release(u64, Range<u64>),
}

/// Does `op` on both and compares the answers.
///
/// # Panics
/// If they differ.
pub fn apply<H: Hardening>(pool: &mut Pool<H>, model: &mut Model, op: &Op) {
    match op.clone() {
        Op::Populate { object, index, bounds, now } => {
            let answer = pool.populate(object, index, bounds.clone(), now);
            populate(model, object, index, &bounds, now, answer);
        }
        Op::Free(extent) => {
            let in_memory = |frame: &Pfn| model.frames.contains(&frame.raw());
            let bad = extent.iter().find(|frame| !model.held.contains(&frame.raw()));
            let expected = match bad {
                _ if extent.is_empty() => Err(FrameFreeError::Empty),
                Some(frame) if in_memory(&frame) => Err(FrameFreeError::NotAllocated { frame }),
                Some(frame) => Err(FrameFreeError::Foreign { frame }),
                None => {
                    extent.iter().for_each(|frame| model.free_frame(frame.raw()));
                    Ok(())
                }
            };
            assert_eq!(pool.free(extent), expected);
        }
        Op::TakeFrame => match pool.allocate_frame() {
            Some(frame) => model.take(Extent::new(frame, 1), 1),
            None => assert!(model.free().is_empty()),
        },
        Op::TakeBlock(frames_max) => match pool.allocate_block(frames_max) {
            Some(block) => {
                assert!((1..=frames_max).contains(&block.count));
                model.take(block, 1);
            }
            None => assert!(frames_max == 0 || model.free().is_empty()),
        },
        Op::Allocate(count) => {
            let free = model.free().len() as u64;
            let mut blocks = Vec::new();
            let expected = match count {
                0 => Err(FrameAllocateError::Empty),
                _ if count > free => Err(FrameAllocateError::OutOfFrames { wanted: count, free }),
                _ => Ok(()),
            };
            assert_eq!(pool.allocate(count, &mut |block| blocks.push(block)), expected);
            let taken: u64 = blocks.iter().map(|block| block.count).sum();
            assert_eq!(taken, if expected.is_ok() { count } else { 0 });
            if expected.is_ok() {
                model.take(extent(0, 0), count);
                blocks.into_iter().for_each(|block| model.take(block, 0));
            }
        }
        Op::TakeAligned(order) => {
            let (wanted, free) = (order.frames(), model.free().len() as u64);
            let answer = pool.allocate_aligned(order);
            if Model::has_run(&model.beneath, 0..u64::MAX, order).is_some() {
                let block = answer.unwrap();
                assert!(block.count == wanted && block.start.is_aligned(order.k()));
                return model.take(block, 0);
            }
            let unheld = model.free();
            let run = |&slot: &Slot| Model::has_run(&unheld, model.range(slot), order);
            let expected = match model.queue.iter().find_map(run) {
                Some(start) => Ok(extent(start, wanted)),
                None if wanted > free => Err(FrameAllocateError::OutOfFrames { wanted, free }),
                None => Err(FrameAllocateError::NoBlock { order }),
            };
            assert_eq!(answer, expected);
            let Ok(block) = expected else { return };
            let run: BTreeSet<u64> = block.iter().map(Pfn::raw).collect();
            model.counters.reclaimed_frames += wanted;
            while let Some(root) = model.reservation_of(block.start.raw()) {
                model.counters.reclaimed += 1;
                model.counters.reclaimed_frames += model.break_up(root, &run);
            }
            model.held.extend(run);
        }
        Op::Release(object, pages) => {
            pool.release(object, pages.clone());
            model.release(object, &pages);
            // In which order reservations are broken up is open, and so is which of two parts comes first that
            // were populated last at one time.
            let timed = |slot: &Slot| (model.moved[slot].time, *slot);
            let sorted = |mut queue: Vec<(u64, Slot)>| {
                queue.sort_unstable();
                queue
            };
            let queue: Vec<Slot> = queue(pool, pool.slots.all).map(|(slot, _)| slot).collect();
            let expected = sorted(model.queue.iter().map(timed).collect());
            assert_eq!(sorted(queue.iter().map(timed).collect()), expected);
            model.queue = queue;
        }
    }
}

fn populate(
    model: &mut Model,
    object: u64,
    index: u64,
    bounds: &Range<u64>,
    now: u64,
    answer: Result<Populated, PopulateError>,
) {
    if !bounds.contains(&index) {
        let (start, end) = (bounds.start, bounds.end);
        return assert_eq!(answer, Err(PopulateError::OutOfBounds { index, start, end }));
    }
    if let Some(root) = model.reservation_at(object, index) {
        let frame = root.1 + index - model.reservations[&root].1;
        if model.held.contains(&frame) {
            let frame = Pfn::new(frame);
            let error = PopulateError::AlreadyPopulated { object, index, frame };
            return assert_eq!(answer, Err(error));
        }
        let answer = answer.unwrap();
        assert_eq!(answer.frame.raw(), frame);
        assert_eq!(answer.source, FrameSource::InReservation(model.levels.orders()[root.0]));
        return assert_eq!(answer.full, model.populate(root, frame, now));
    }
    let possible = (0..model.levels.orders().len()).rev().find(|&level| {
        let (order, size) = (model.levels.orders()[level], model.size(level));
        let first = index / size * size;
        let vacant = (first..first + size).all(|page| model.reservation_at(object, page).is_none());
        first >= bounds.start
            && first + size <= bounds.end
            && vacant
            && Model::has_run(&model.beneath, 0..u64::MAX, order).is_some()
    });
    match (possible, answer) {
        (Some(level), Ok(answer)) => {
            assert_eq!(answer.source, FrameSource::Reserved(model.levels.orders()[level]));
            let size = model.size(level);
            let start = answer.frame.raw() - index % size;
            assert_eq!(start % size, 0);
            let root = (level, start);
            for frame in model.range(root) {
                assert!(model.beneath.remove(&frame));
            }
            model.reservations.insert(root, (object, index / size * size));
            model.counters.reserved += 1;
            assert_eq!(answer.full, model.populate(root, answer.frame.raw(), now));
        }
        (None, Ok(answer)) => {
            assert_eq!((answer.source, answer.full), (FrameSource::Single, None));
            model.take(Extent::new(answer.frame, 1), 1);
            model.counters.single += 1;
        }
        (possible, Err(error)) => {
            assert_eq!((possible, error), (None, PopulateError::OutOfFrames));
            assert!(model.free().is_empty());
        }
    }
}

/// Compares all that can be seen.
///
/// # Panics
/// If something differs.
pub fn agree<H: Hardening>(pool: &Pool<H>, model: &Model) {
    assert_eq!(pool.check(), Ok(()));
    let set = |allocator: &dyn FrameAllocator| {
        let mut set = BTreeSet::new();
        allocator.for_each_free(&mut |block| {
            assert!(!block.is_empty());
            block.iter().for_each(|frame| assert!(set.insert(frame.raw()), "{frame} free twice"));
        });
        assert_eq!(set.len() as u64, allocator.free_frames());
        set
    };
    assert_eq!(set(pool.allocator()), model.beneath);
    assert_eq!(set(pool), model.free());
    let mut queue = Vec::new();
    pool.for_each_queued(&mut |reservation| queue.push(reservation));
    let expected: Vec<Reservation> = model.queue.iter().map(|&slot| model.view(slot)).collect();
    assert_eq!(queue, expected);
    assert!(model.queue.is_sorted_by_key(|slot| model.moved[slot].time));
    agree_on_queues(pool, model);
    assert_eq!(pool.counters(), model.counters);
    assert_eq!(pool.reservations(), model.reservations.len() as u64);
    let reserved: u64 =
        model.reservations.keys().map(|&slot| model.size(slot.0) - model.populated(slot)).sum();
    assert_eq!(pool.reserved_frames(), reserved);
    for (&slot, &(object, index)) in &model.reservations {
        let view = Some(model.view(slot));
        let last = model.size(slot.0) - 1;
        for offset in [0, last / 2, last] {
            let frame = slot.1 + offset;
            assert_eq!(pool.reservation_of(Pfn::new(frame)), view);
            assert_eq!(pool.reservation_at(object, index + offset), view);
            let held = model.held.contains(&frame).then_some(Pfn::new(frame));
            assert_eq!(pool.frame_at(object, index + offset), held);
            assert_eq!(pool.full_order(Pfn::new(frame)), model.full_order(frame));
        }
    }
}

/// The slots in the queue of `owner`, with their times.
fn queue<H: Hardening>(pool: &Pool<H>, owner: u32) -> impl Iterator<Item = (Slot, u64)> {
    let (slots, words) = (&pool.slots, &*pool.storage);
    let mut slot = slots.queue(words, owner).0;
    core::iter::from_fn(move || {
        let this = (slot != NONE).then_some(slot)?;
        slot = slots.links(words, this).1;
        let level = slots.level(this);
        Some(((level, slots.frames(level, this).start.raw()), slots.stamp(words, this)))
    })
}

/// Compares the queues with their times; those of parts show otherwise only once a reservation is broken up or
/// populated again.
fn agree_on_queues<H: Hardening>(pool: &Pool<H>, model: &Model) {
    let agree = |owner, expected: &[Slot]| {
        let expected = expected.iter().map(|slot| (*slot, model.moved[slot].time));
        assert_eq!(queue(pool, owner).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    };
    agree(pool.slots.all, &model.queue);
    let mut around: Vec<Slot> = model.reservations.keys().copied().collect();
    while let Some((level, start)) = around.pop() {
        if level > 0 {
            agree(pool.slots.slot(level, start), &model.queue_of((level, start)));
            around.extend(model.parts((level, start)));
        }
    }
}

/// Compares what is said of one frame.
///
/// # Panics
/// If something differs.
pub fn agree_on<H: Hardening>(pool: &Pool<H>, model: &Model, frame: u64) {
    assert_eq!(
        pool.reservation_of(Pfn::new(frame)),
        model.reservation_of(frame).map(|slot| model.view(slot))
    );
    assert_eq!(pool.full_order(Pfn::new(frame)), model.full_order(frame));
    for k in 0..=model.levels.top().k() as u8 + 1 {
        let order = Order::known(k);
        assert_eq!(pool.is_full(Pfn::new(frame), order), model.is_full(frame, order), "{k}");
    }
}

/// Draws an operation. The more `pressure`, the more frames are taken past the reservations.
pub fn random_op(random: &mut Random, model: &Model, now: &mut u64, pressure: u64) -> Op {
    *now += random.below(3) / 2;
    let top = model.levels.top().frames();
    let pages = 3 * top + top / 2;
    match random.below(24 + pressure) {
        0..=13 => {
            let index = random.below(pages);
            let bounds = match random.below(8) {
                0 => random.below(pages)..random.below(pages),
                1 => index.saturating_sub(random.below(top))..index + 1 + random.below(top),
                _ => 0..pages,
            };
            Op::Populate { object: random.below(3), index, bounds, now: *now }
        }
        // Runs, so that slots fill up.
        14..=16 => {
            let index = random.below(pages);
            let free = (index..pages).find(|&index| match model.reservation_at(1, index) {
                Some(slot) => !model.held.contains(&(slot.1 + index - model.reservations[&slot].1)),
                None => true,
            });
            let index = free.unwrap_or(index);
            Op::Populate { object: 1, index, bounds: 0..pages, now: *now }
        }
        17..=20 => {
            let nth = random.below(model.held.len().max(1) as u64) as usize;
            let start = model.held.iter().nth(nth).copied().unwrap_or(3);
            let count = match random.below(4) {
                0 => 1 + random.below(2 * top),
                _ => 1,
            };
            let run = (start..start + count).take_while(|frame| model.held.contains(frame)).count();
            // Now and then one too many.
            Op::Free(extent(start, run as u64 + random.below(8) / 7))
        }
        21 => {
            let start = model.frames.first().unwrap().saturating_sub(5);
            let span = model.frames.last().unwrap() + 10 - start;
            Op::Free(extent(start + random.below(span), random.below(4)))
        }
        22 => {
            let start = random.below(pages);
            let released = match random.below(6) {
                // Many pages, by what is reserved instead of by pages.
                0 => 0..start,
                1 => start..u64::MAX,
                _ => start..start + random.below(top),
            };
            Op::Release(random.below(3), released)
        }
        23 => Op::TakeAligned(Order::known(random.below(model.levels.top().k().into()) as u8)),
        nth => match nth % 3 {
            0 => Op::TakeFrame,
            1 => Op::TakeBlock(random.below(2 * top)),
            _ => Op::Allocate(random.below(top)),
        },
    }
}
