//! The front against a naive model and under hostile frees.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use lock_api::{GuardSend, RawMutex};
use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::{Front, FrontError, NoSuchCpu, OnCpu, Slot};
use swath_frame::testing::ranges;
use swath_frame::{
    BuddyConfig, ByteRange, ContiguousAllocator, ContiguousError, ContiguousRequest,
    FrameAllocateError, FrameAllocator, FrameFreeError, FrameHotplug, FrameHotplugError, MemoryMap,
    PageBuddy,
};

/// A lock that lets others run while it waits: there are more threads here
/// than processors.
pub(crate) struct YieldLock(AtomicBool);

// SAFETY: `lock` and `try_lock` return holding the lock only where they changed
// the flag from false to true in one atomic step, which no other thread can do
// until `unlock` stores false; acquire and release order what is inside.
unsafe impl RawMutex for YieldLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The naive allocator: a set of free frames, lowest first.
pub(crate) struct Pool {
    all: BTreeSet<u64>,
    free: BTreeSet<u64>,
    /// How often frames were given back.
    pub(crate) frees: Arc<AtomicU64>,
}

impl Pool {
    pub(crate) fn new(frames: impl Iterator<Item = u64>) -> Self {
        let all: BTreeSet<u64> = frames.collect();
        Self { free: all.clone(), all, frees: Arc::default() }
    }
}

impl FrameAllocator for Pool {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        let start = *self.free.first()?;
        let count = (0..frames_max).take_while(|i| self.free.contains(&(start + i))).count() as u64;
        (start..start + count).for_each(|frame| assert!(self.free.remove(&frame)));
        (count > 0).then(|| Extent::new(Pfn::new(start), count))
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let (wanted, free) = (order.frames(), self.free_frames());
        if free < wanted {
            return Err(FrameAllocateError::OutOfFrames { wanted, free });
        }
        let start = aligned_run(&self.free, wanted).ok_or(FrameAllocateError::NoBlock { order })?;
        (start..start + wanted).for_each(|frame| assert!(self.free.remove(&frame)));
        Ok(Extent::new(Pfn::new(start), wanted))
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.frees.fetch_add(1, Ordering::Relaxed);
        refusal(extent, &self.all, |frame| !self.free.contains(&frame)).map_or(Ok(()), Err)?;
        self.free.extend(extent.start.raw()..extent.end().raw());
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.free.len() as u64
    }

    fn total_frames(&self) -> u64 {
        self.all.len() as u64
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.free.iter().for_each(|&frame| visit(Extent::new(Pfn::new(frame), 1)));
    }
}

fn aligned_run(free: &BTreeSet<u64>, wanted: u64) -> Option<u64> {
    let whole = |&start: &u64| {
        start % wanted == 0 && (start..start + wanted).all(|frame| free.contains(&frame))
    };
    free.iter().copied().find(whole)
}

/// What a free of `extent` has to answer, frame by frame.
fn refusal(
    extent: Extent,
    all: &BTreeSet<u64>,
    allocated: impl Fn(u64) -> bool,
) -> Option<FrameFreeError> {
    if extent.is_empty() {
        return Some(FrameFreeError::Empty);
    }
    let Some(end) = extent.checked_end() else {
        return Some(FrameFreeError::Overflow { extent });
    };
    (extent.start.raw()..end.raw()).find(|&frame| !allocated(frame)).map(|frame| {
        if all.contains(&frame) {
            FrameFreeError::NotAllocated { frame: Pfn::new(frame) }
        } else {
            FrameFreeError::Foreign { frame: Pfn::new(frame) }
        }
    })
}

pub(crate) fn slots(cpus: usize) -> Vec<Slot<YieldLock>> {
    (0..cpus).map(|_| Slot::new()).collect()
}

/// Storage full of rubbish: the front must not trust it.
pub(crate) fn bits<A: FrameAllocator>(allocator: &A) -> Vec<AtomicUsize> {
    let len = Front::<YieldLock, A>::bits_len(allocator);
    (0..len).map(|_| AtomicUsize::new(usize::MAX)).collect()
}

#[test]
fn every_operation_agrees_with_a_set() {
    for seed in 1..=40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        // Three areas with holes, one of a single frame, and a CPU count that
        // makes buffers overflow in some runs and starve in others.
        let frames = (100..300).chain(500..501).chain(640..1000 + random.below(3000));
        let pool = Pool::new(frames);
        let all = pool.all.clone();
        let cpus = 1 + random.below(4) as usize;
        let (mut slots, mut bits) = (slots(cpus), bits(&pool));
        let front = Front::new(pool, &mut slots, &mut bits).unwrap();
        let mut used: BTreeSet<u64> = BTreeSet::new();
        let taken = |used: &mut BTreeSet<u64>, extent: Extent| {
            for frame in extent.iter() {
                assert!(all.contains(&frame.raw()), "{frame} is foreign");
                assert!(used.insert(frame.raw()), "{frame} handed out twice");
            }
        };
        for step in 0..6000 {
            let cpu = front.on(random.below(cpus as u64) as usize).unwrap();
            // Whole phases of filling and of emptying reach both ends.
            let filling = (step / 1500) % 2 == 0;
            let free = (all.len() - used.len()) as u64;
            match random.below(20) {
                0..12 if filling == (random.below(4) > 0) => match cpu.allocate_frame() {
                    Some(frame) => taken(&mut used, Extent::new(frame, 1)),
                    None => assert_eq!(free, 0),
                },
                0..12 => {
                    // A used frame near a random number, now and then any.
                    let near = random.below(4100);
                    let frame = match used.range(near..).next() {
                        Some(&frame) if random.below(8) > 0 => frame,
                        _ => near,
                    };
                    let wanted =
                        refusal(Extent::new(Pfn::new(frame), 1), &all, |f| used.contains(&f));
                    assert_eq!(cpu.free_frame(Pfn::new(frame)), wanted.map_or(Ok(()), Err));
                    used.remove(&frame);
                }
                12..14 if filling => {
                    let count = random.below(200);
                    let mut got = 0;
                    let mut sink = |extent: Extent| {
                        got += extent.count;
                        taken(&mut used, extent);
                    };
                    let done = match random.below(2) {
                        0 => front.allocate(count, &mut sink),
                        _ => FrameAllocator::allocate(&mut { cpu }, count, &mut sink),
                    };
                    if count == 0 {
                        assert_eq!(done, Err(FrameAllocateError::Empty));
                    } else if count > free {
                        assert_eq!(
                            done,
                            Err(FrameAllocateError::OutOfFrames { wanted: count, free })
                        );
                    } else {
                        assert_eq!((done, got), (Ok(()), count));
                    }
                }
                14..15 if filling => {
                    let order = Order::known(random.below(11) as u8);
                    let left: BTreeSet<u64> = all.difference(&used).copied().collect();
                    let through_slot = random.below(3) > 0;
                    let done = match through_slot {
                        true => { cpu }.allocate_aligned(order),
                        false => front.allocate_aligned(order),
                    };
                    match done {
                        Ok(extent) => {
                            assert!(extent.start.is_aligned(order.k()));
                            assert_eq!(extent.count, order.frames());
                            taken(&mut used, extent);
                        }
                        Err(error) => {
                            assert_eq!(aligned_run(&left, order.frames()), None);
                            let wanted = order.frames();
                            assert_eq!(
                                error,
                                if free < wanted {
                                    FrameAllocateError::OutOfFrames { wanted, free }
                                } else {
                                    FrameAllocateError::NoBlock { order }
                                }
                            );
                        }
                    }
                }
                15..16 if filling => {
                    let most = random.below(100);
                    match { cpu }.allocate_block(most) {
                        Some(extent) => {
                            assert!(extent.count <= most);
                            taken(&mut used, extent);
                        }
                        None => assert!(most == 0 || free == 0),
                    }
                }
                _ => {
                    let start = random.below(4100);
                    let start = used.range(start..).next().copied().unwrap_or(start);
                    let run = (start..).take_while(|frame| used.contains(frame)).count() as u64;
                    let count = if random.below(4) > 0 { run } else { run + random.below(70) };
                    // As it was taken, or at least of a length that was, more often than not.
                    let count = match random.below(4) {
                        0 => count.min(1 << random.below(10)),
                        1 => count.min(1 + random.below(64)),
                        _ => count.min(600),
                    };
                    let extent = Extent::new(Pfn::new(start), count);
                    let wanted = refusal(extent, &all, |f| used.contains(&f));
                    assert_eq!({ cpu }.free(extent), wanted.map_or(Ok(()), Err));
                    if wanted.is_none() {
                        extent.iter().for_each(|frame| assert!(used.remove(&frame.raw())));
                    }
                }
            }
            assert_eq!(front.free_frames(), (all.len() - used.len()) as u64);
            if step % 50 == 0 {
                front.check().unwrap();
                if random.below(10) == 0 {
                    front.drain();
                }
            }
        }
        front.check().unwrap();
        assert_eq!(front.total_frames(), all.len() as u64);
        let mut seen = used.clone();
        front.on(0).unwrap().for_each_free(&mut |extent| taken(&mut seen, extent));
        assert_eq!(seen, all);
        for &frame in &used {
            front.on(0).unwrap().free_frame(Pfn::new(frame)).unwrap();
        }
        assert_eq!(front.into_inner().free, all);
    }
}

#[test]
fn hostile_frees_are_named_and_change_nothing() {
    let pool = Pool::new((128..256).chain(320..448));
    let (mut slots, mut bits) = (slots(2), bits(&pool));
    let front = Front::new(pool, &mut slots, &mut bits).unwrap();
    let (here, there) = (front.on(0).unwrap(), front.on(1).unwrap());
    let mut block = None;
    front.allocate(128, &mut |extent| block = Some(extent)).unwrap();
    let block = block.unwrap();
    assert_eq!(block, Extent::new(Pfn::new(128), 128));
    // Into the other CPU's buffer, where it must not be freed again from
    // anywhere, neither alone nor among others.
    let hidden = Pfn::new(200);
    there.free_frame(hidden).unwrap();
    let not_allocated = Err(FrameFreeError::NotAllocated { frame: hidden });
    assert_eq!(here.free_frame(hidden), not_allocated);
    assert_eq!(there.free_frame(hidden), not_allocated);
    assert_eq!(front.free(block), not_allocated);
    assert_eq!(front.free_frames(), 129);
    front.check().unwrap();
    let foreign = |frame| Err(FrameFreeError::Foreign { frame: Pfn::new(frame) });
    for frame in [0, 127, 256, 319, 448, u64::MAX] {
        assert_eq!(here.free_frame(Pfn::new(frame)), foreign(frame));
    }
    let free = |start, count| front.free(Extent::new(Pfn::new(start), count));
    assert_eq!(free(128, 0), Err(FrameFreeError::Empty));
    assert_eq!(free(0, 200), foreign(0));
    assert_eq!(free(201, 100), foreign(256));
    assert_eq!(free(201, u64::MAX - 201), foreign(256));
    let overflow = Extent::new(Pfn::new(201), u64::MAX);
    assert_eq!(front.free(overflow), Err(FrameFreeError::Overflow { extent: overflow }));
    // A processor's view answers as every allocator does, for a single frame, too.
    let last = Extent::new(Pfn::new(u64::MAX), 1);
    assert_eq!({ here }.free(last), Err(FrameFreeError::Overflow { extent: last }));
    assert_eq!(front.free(last), Err(FrameFreeError::Overflow { extent: last }));
    assert_eq!(front.free_frames(), 129);
    front.check().unwrap();
    // All that failed above left these allocated.
    assert_eq!(free(128, 72), Ok(()));
    assert_eq!(free(201, 55), Ok(()));
    assert_eq!(front.into_inner().free_frames(), 256);
}

/// A block that was taken in one step, freed whole, in halves, in part and twice: what is refused is
/// named, and nothing changes.
#[test]
fn whole_blocks_come_back_in_any_pieces_once() {
    for order in 1..11 {
        let pool = Pool::new(512..2048);
        let (mut slots, mut bits) = (slots(2), bits(&pool));
        let front = Front::new(pool, &mut slots, &mut bits).unwrap();
        let (mut here, mut there) = (front.on(0).unwrap(), front.on(1).unwrap());
        let block = here.allocate_aligned(Order::known(order)).unwrap();
        let refused = |frame: Pfn| Err(FrameFreeError::NotAllocated { frame });
        let free = |front: &Front<'_, _, _>| front.free_frames();
        // Whole, on the other CPU, and then not again, in no pieces.
        assert_eq!(there.free(block), Ok(()));
        assert_eq!(free(&front), 1536);
        let (low, high) = block.split_at(block.count / 2);
        for part in [block, low, high, Extent::new(high.start, 1)] {
            assert_eq!(here.free(part), refused(part.start), "{part}");
            assert_eq!(there.free(part), refused(part.start), "{part}");
            assert_eq!(front.free(part), refused(part.start), "{part}");
        }
        front.check().unwrap();
        // One frame first: then what is left, but not the whole, nor that half.
        let block = here.allocate_aligned(Order::known(order)).unwrap();
        let (low, high) = block.split_at(block.count / 2);
        assert_eq!(there.free_frame(high.start), Ok(()));
        assert_eq!(here.free(block), refused(high.start));
        assert_eq!(here.free(high), refused(high.start));
        front.check().unwrap();
        assert_eq!(free(&front), 1536 - block.count + 1);
        assert_eq!(there.free(low), Ok(()));
        let rest = high.split_at(1).1;
        assert_eq!(if rest.is_empty() { Ok(()) } else { here.free(rest) }, Ok(()));
        assert_eq!(free(&front), 1536);
        front.check().unwrap();
        // In halves.
        let block = there.allocate_aligned(Order::known(order)).unwrap();
        let (low, high) = block.split_at(block.count / 2);
        assert_eq!((here.free(high), there.free(low)), (Ok(()), Ok(())));
        front.check().unwrap();
        assert_eq!(front.into_inner().free.len(), 1536);
    }
}

#[test]
fn construction_names_what_is_wrong() {
    let pool = || Pool::new(1000..2000);
    let needed = Front::<YieldLock, Pool>::bits_len(&pool());
    // Two units of 1,024 frames, each of 16 pairs of words and a line, what is before the first line, and a line for
    // huge pages.
    assert_eq!(needed as u64, 40 * 2 + 7 + 8);
    let mut bits = bits(&pool());
    assert_eq!(
        Front::<YieldLock, Pool>::new(pool(), &mut [], &mut bits).unwrap_err(),
        FrontError::NoSlots
    );
    let mut one = slots(1);
    assert_eq!(
        Front::new(pool(), &mut one, &mut bits[1..]).unwrap_err(),
        FrontError::BitsTooShort { needed, given: needed - 1 }
    );
    let front = Front::new(pool(), &mut one, &mut bits).unwrap();
    assert_eq!(front.on(1).unwrap_err(), NoSuchCpu { cpu: 1, cpus: 1 });
    assert!(size_of::<Slot<YieldLock>>() == 2176 && align_of::<Slot<YieldLock>>() == 128);
    // An allocator with nothing free.
    let empty = Pool::new(std::iter::empty());
    let mut one = slots(1);
    let front = Front::new(empty, &mut one, &mut []).unwrap();
    let cpu = front.on(0).unwrap();
    assert_eq!(cpu.allocate_frame(), None);
    assert_eq!(cpu.free_frame(Pfn::new(5)), Err(FrameFreeError::Foreign { frame: Pfn::new(5) }));
    assert!(front.free(Extent::new(Pfn::new(u64::MAX - 3), 2)).is_err());
    front.check().unwrap();
}

#[test]
fn single_frames_come_in_rising_runs() {
    let pool = Pool::new(0..4096);
    let (mut slots, mut bits) = (slots(2), bits(&pool));
    let front = Front::new(pool, &mut slots, &mut bits).unwrap();
    let (here, there) = (front.on(0).unwrap(), front.on(1).unwrap());
    // Two CPUs in turn: each still gets frames in a row, on cache lines of its own.
    let both: Vec<(u64, u64)> = (0..256)
        .map(|_| (here.allocate_frame().unwrap().raw(), there.allocate_frame().unwrap().raw()))
        .collect();
    assert!(both.iter().enumerate().all(|(i, &(a, b))| a == i as u64 && b == 256 + i as u64));
}

/// Of many threads that free the same frames, one by one and together,
/// exactly one succeeds for each frame.
#[test]
fn racing_double_frees_succeed_once() {
    for round in 0..200_u64 {
        let pool = Pool::new(0..256);
        let (mut slots, mut bits) = (slots(4), bits(&pool));
        let front = Front::new(pool, &mut slots, &mut bits).unwrap();
        front.allocate(256, &mut |_| ()).unwrap();
        let start = Barrier::new(4);
        let freed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (front, start, freed) = (&front, &start, &freed);
                scope.spawn(move || {
                    let mut random = Random::new(round * 4 + thread + 1);
                    let cpu = front.on(thread as usize).unwrap();
                    start.wait();
                    for _ in 0..100 {
                        let count = if thread == 0 { 1 + random.below(100) } else { 1 };
                        let extent = Extent::new(Pfn::new(random.below(256)), count);
                        match { cpu }.free(extent) {
                            Ok(()) => freed.fetch_add(count, Ordering::Relaxed),
                            Err(FrameFreeError::NotAllocated { frame }) => {
                                assert!(extent.contains(frame));
                                0
                            }
                            Err(FrameFreeError::Foreign { frame }) => {
                                assert_eq!(frame.raw(), 256);
                                0
                            }
                            Err(error) => panic!("{error}"),
                        };
                    }
                });
            }
        });
        assert_eq!(front.free_frames(), freed.into_inner());
        front.check().unwrap();
    }
}

/// A CPU's view whose slots are emptied before a contiguous request, so that the lowest run of all free
/// frames is the answer.
struct Drained<'f, 'm, A>(&'f Front<'m, YieldLock, A>, OnCpu<'f, 'm, YieldLock, A>);

impl<A: FrameAllocator> FrameAllocator for Drained<'_, '_, A> {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.1.allocate_block(frames_max)
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.1.allocate_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.1.free(extent)
    }

    fn free_frames(&self) -> u64 {
        self.1.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.1.total_frames()
    }

    /// A request that fails may have emptied the slots: the same frames, if not the same blocks.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        let mut frames = Vec::new();
        self.1.for_each_free(&mut |block| frames.extend(block.iter()));
        frames.sort_unstable();
        frames.into_iter().for_each(|frame| visit(Extent::new(frame, 1)));
    }
}

impl<A: ContiguousAllocator> ContiguousAllocator for Drained<'_, '_, A> {
    fn allocate_contiguous(
        &mut self,
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError> {
        self.0.drain();
        self.1.allocate_contiguous(request)
    }
}

impl<A: FrameHotplug> FrameHotplug for Drained<'_, '_, A> {
    fn span(&self) -> Extent {
        self.1.span()
    }

    fn add_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        self.1.add_frames(extent)
    }

    fn remove_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        self.1.remove_frames(extent)
    }
}

/// Calls `test` with a front over a page buddy system of `areas`, to which frames of `span` may be added.
fn with_reaching(
    areas: &[Extent],
    span: Extent,
    cpus: usize,
    test: impl FnOnce(&MemoryMap<'_>, &Front<'_, YieldLock, PageBuddy<Vec<u64>>>),
) {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap().reaching(span).unwrap();
    let words = PageBuddy::<Vec<u64>>::storage_words(&map, BuddyConfig::PBS_ARMV8);
    let buddy = PageBuddy::<_>::new(&map, BuddyConfig::PBS_ARMV8, vec![0; words]).unwrap();
    let len = Front::<YieldLock, PageBuddy<Vec<u64>>>::bits_len_reaching(span);
    let mut bits: Vec<_> = (0..len).map(|_| AtomicUsize::new(0)).collect();
    let mut slots = slots(cpus);
    let front = Front::new_reaching(buddy, span, &mut slots, &mut bits).unwrap();
    test(&map, &front);
}

#[test]
fn ranges_agree_with_a_set_of_frames() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let base = random.below(2000);
        let areas = [Extent::new(Pfn::new(base + random.below(500)), 1 + random.below(1500))];
        let span = Extent::new(Pfn::new(base), 2000 + random.below(1500));
        with_reaching(&areas, span, 1, |map, front| {
            let mut view = Drained(front, front.on(0).unwrap());
            ranges::conform(map, &mut view, random, 200, &mut |_, _| {
                assert_eq!(front.check(), Ok(()), "seed {seed}");
                assert_eq!(front.fault(), None, "seed {seed}");
            });
        });
    }
}

/// What lies in a slot is free: a run that needs it is found, and it can be removed.
#[test]
fn slots_are_emptied_for_a_range() {
    let all = Extent::new(Pfn::new(0), 1024);
    with_reaching(&[all], all, 2, |_, front| {
        let mut cpu = front.on(1).unwrap();
        let frames: Vec<Pfn> = (0..20).map(|_| cpu.allocate_frame().unwrap()).collect();
        frames.iter().for_each(|&frame| cpu.free_frame(frame).unwrap());
        let request = ContiguousRequest { upper: Pfn::new(20), ..ContiguousRequest::new(20) };
        let run = front.allocate_contiguous(&request).unwrap();
        assert_eq!(run, Extent::new(Pfn::new(0), 20));
        cpu.free(run).unwrap();
        let frame = cpu.allocate_frame().unwrap();
        let in_use = FrameHotplugError::InUse { frame };
        assert_eq!(front.remove_frames(all), Err(in_use));
        cpu.free_frame(frame).unwrap();
        front.remove_frames(all).unwrap();
        assert_eq!((front.total_frames(), front.free_frames()), (0, 0));
        assert_eq!(cpu.free_frame(frame), Err(FrameFreeError::Foreign { frame }));
        assert_eq!(cpu.allocate_frame(), None);
        front.add_frames(Extent::new(Pfn::new(512), 64)).unwrap();
        assert!(front.add_frames(Extent::new(Pfn::new(1000), 64)).is_err());
        assert_eq!(cpu.allocate_frame(), Some(Pfn::new(512)));
        front.check().unwrap();
    });
}

/// Threads take and free while one removes and adds pieces of memory again: no frame is out twice, or out
/// and removed, and all are there at the end.
#[test]
fn memory_comes_and_goes_under_load() {
    const FRAMES: u64 = 1 << 14;
    let all = Extent::new(Pfn::new(0), FRAMES);
    with_reaching(&[all], all, 3, |_, front| {
        let owned: Vec<AtomicBool> = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
        let own = |extent: Extent, is: bool| {
            for frame in extent.iter() {
                assert_ne!(owned[frame.raw() as usize].swap(is, Ordering::Relaxed), is, "{frame}");
            }
        };
        let barrier = Barrier::new(3);
        std::thread::scope(|scope| {
            let (own, barrier) = (&own, &barrier);
            for cpu in 0..2 {
                scope.spawn(move || {
                    let (mut random, mut held) = (Random::new(cpu as u64), Vec::new());
                    let mut view = front.on(cpu).unwrap();
                    barrier.wait();
                    for _ in 0..40_000 {
                        if random.below(2) == 0 {
                            let Some(block) = view.allocate_block(1 + random.below(70)) else {
                                continue;
                            };
                            own(block, true);
                            held.push(block);
                        } else if !held.is_empty() {
                            let block = held.swap_remove(random.index(held.len()));
                            own(block, false);
                            view.free(block).unwrap();
                        }
                    }
                    for block in held {
                        own(block, false);
                        view.free(block).unwrap();
                    }
                });
            }
            scope.spawn(move || {
                let mut random = Random::new(7);
                let mut gone = Vec::new();
                barrier.wait();
                for _ in 0..20_000 {
                    let piece = Extent::new(Pfn::new(64 * random.below(FRAMES / 64)), 64);
                    if random.below(2) == 0 && front.remove_frames(piece).is_ok() {
                        own(piece, true);
                        gone.push(piece);
                    } else if !gone.is_empty() {
                        let piece = gone.swap_remove(random.index(gone.len()));
                        own(piece, false);
                        front.add_frames(piece).unwrap();
                    }
                }
                for piece in gone {
                    own(piece, false);
                    front.add_frames(piece).unwrap();
                }
            });
        });
        assert_eq!((front.total_frames(), front.free_frames()), (FRAMES, FRAMES));
        assert_eq!((front.check(), front.fault()), (Ok(()), None));
    });
}
