//! Reservations: what they promise, one by one; the suite of all allocators;
//! what bad arguments get.

use std::cell::RefCell;

use swath_arch::testing::Random;
use swath_arch::{Extent, Format, Order, Pfn};
use swath_frame::reserve::{
    FrameSource, LEVELS_MAX, PopulateError, ReservationCounters, ReservationLevels,
    ReservationLevelsError, Reservations, ReservationsError,
};
use swath_frame::testing::frames::{blocks, conform};
use swath_frame::{
    BuddyConfig, BuildError, ByteRange, FrameAllocateError, FrameAllocator, FrameFreeError,
    MemoryMap, PageBuddy,
};

type Buddy = PageBuddy<Vec<u64>>;
type Pool = Reservations<Buddy, Vec<u64>>;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn orders<const N: usize>(ks: [u8; N]) -> [Order; N] {
    ks.map(Order::known)
}

/// Calls `test` with the map of `areas`.
fn with_map<T>(areas: &[Extent], test: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    test(&MemoryMap::new(&ranges, &mut storage).unwrap())
}

fn buddy(map: &MemoryMap<'_>, config: BuddyConfig) -> Result<Buddy, BuildError> {
    Buddy::new(map, config, vec![0; Buddy::storage_words(map, config)])
}

fn pool(areas: &[Extent], levels: ReservationLevels) -> Pool {
    with_map(areas, |map| {
        let words = Pool::storage_words(map, levels);
        Reservations::new(map, levels, buddy(map, BuddyConfig::PBS_ARMV8).unwrap(), vec![0; words])
            .unwrap()
    })
}

const K3: Order = Order::known(3);

fn order_3() -> ReservationLevels {
    ReservationLevels::new(&[K3], &[]).unwrap()
}

/// An allocator as a kernel uses it: most single frames are for pages of
/// objects, and the oracle sees that the others lie free in reservations.
struct Faulting {
    pool: Pool,
    random: Random,
    now: u64,
}

impl Faulting {
    fn fault(&mut self) -> Option<Pfn> {
        let pages = 2 * self.pool.levels().top().frames() + 5;
        for _ in 0..4 {
            let (object, index) = (self.random.below(3), self.random.below(pages));
            self.now += self.random.below(2);
            match self.pool.populate(object, index, 0..pages, self.now) {
                Ok(page) => return Some(page.frame),
                Err(PopulateError::OutOfFrames) => return None,
                Err(PopulateError::AlreadyPopulated { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.pool.allocate_frame()
    }
}

impl FrameAllocator for Faulting {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if frames_max > 0 && self.random.below(2) == 0 {
            return self.fault().map(|frame| Extent::new(frame, 1));
        }
        self.pool.allocate_block(frames_max)
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.pool.allocate_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.pool.free(extent)
    }

    fn free_frames(&self) -> u64 {
        self.pool.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.pool.total_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.pool.for_each_free(visit);
    }

    fn allocate_frame(&mut self) -> Option<Pfn> {
        self.fault()
    }
}

#[test]
fn conforms_as_an_allocator() {
    let cases = [
        order_3(),
        ReservationLevels::ARMV7,
        ReservationLevels::X86_64,
        ReservationLevels::new(&orders([2, 5]), &[]).unwrap(),
        ReservationLevels::new(&orders([4, 6, 7, 10]), &orders([1, 3])).unwrap(),
    ];
    for seed in 0..10 {
        for levels in cases {
            for config in [BuddyConfig::BBS, BuddyConfig::PBS_ARMV8] {
                let mut random = Random::new(seed);
                let first = extent(random.below(3000), 1 + random.below(1500));
                let second =
                    extent(first.end().raw() + 1 + random.below(150), 1 + random.below(900));
                with_map(&[first, second], |map| {
                    let new = || {
                        let storage = vec![u64::MAX; Pool::storage_words(map, levels)];
                        Pool::new(map, levels, buddy(map, config).unwrap(), storage).unwrap()
                    };
                    conform(map, &mut new(), seed, 60, &mut |pool, _| pool.check().unwrap());
                    let mut faulting = Faulting { pool: new(), random, now: 0 };
                    conform(map, &mut faulting, seed, 250, &mut |faulting, _| {
                        faulting.pool.check().unwrap();
                    });
                    assert_eq!(faulting.pool.reservations(), 0);
                    assert_eq!(faulting.pool.reserved_frames(), 0);
                    // Shared, as by page tables that draw from the same pool.
                    let shared = RefCell::new(new());
                    conform(map, &mut &shared, seed, 30, &mut |_, _| {});
                });
            }
        }
    }
}

/// The least recently populated goes first; a population at the time of the
/// last move moves nothing.
#[test]
fn the_queue_is_ordered_by_last_population() {
    let mut pool = pool(&[extent(0, 24)], order_3());
    let queue = |pool: &Pool| {
        let mut objects = Vec::new();
        pool.for_each_queued(&mut |reservation| objects.push(reservation.object));
        objects
    };
    for object in [1, 2, 3] {
        pool.populate(object, 0, 0..8, 5).unwrap();
    }
    pool.populate(1, 1, 0..8, 5).unwrap();
    assert_eq!((queue(&pool), pool.counters().moved), (vec![1, 2, 3], 0));
    pool.populate(1, 2, 0..8, 6).unwrap();
    assert_eq!((queue(&pool), pool.counters().moved), (vec![2, 3, 1], 1));
    // Freeing moves nothing.
    pool.free(Extent::new(pool.frame_at(2, 0).unwrap(), 1)).unwrap();
    assert_eq!(queue(&pool), [3, 1]);
    pool.populate(2, 7, 0..8, 6).unwrap();
    let frame = pool.frame_at(1, 1).unwrap();
    pool.free(Extent::new(frame, 1)).unwrap();
    assert_eq!(queue(&pool), [3, 1, 2]);
    // A full one is in no queue; one that is no longer full is the youngest.
    for index in 1..8 {
        pool.populate(3, index, 0..8, 7).unwrap();
    }
    assert_eq!(queue(&pool), [1, 2]);
    pool.free(Extent::new(pool.frame_at(3, 4).unwrap(), 1)).unwrap();
    assert_eq!(queue(&pool), [1, 2, 3]);
    pool.check().unwrap();
}

/// Under shortage single frames come out of the oldest reservation, to the
/// last frame that there is.
#[test]
fn a_request_for_one_frame_fails_only_when_every_frame_is_held() {
    let mut pool = pool(&[extent(8, 20)], order_3());
    let first = pool.populate(1, 3, 0..8, 1).unwrap();
    let second = pool.populate(2, 3, 0..8, 2).unwrap();
    assert_eq!(first.source, FrameSource::Reserved(K3));
    assert_eq!(second.source, FrameSource::Reserved(K3));
    // Four frames are left beneath: no reservation for a third object.
    for index in 0..4 {
        assert_eq!(pool.populate(3, index, 0..8, 3).unwrap().source, FrameSource::Single);
    }
    assert_eq!((pool.allocator().free_frames(), pool.free_frames()), (0, 14));
    assert_eq!(pool.populate(3, 4, 0..8, 3).unwrap().source, FrameSource::Single);
    assert_eq!(pool.reservation_of(first.frame), None);
    assert_eq!(pool.reservation_of(second.frame).unwrap().object, 2);
    for _ in 0..13 {
        pool.allocate_frame().unwrap();
    }
    assert_eq!((pool.free_frames(), pool.reservations()), (0, 0));
    assert_eq!(pool.allocate_frame(), None);
    assert_eq!(pool.populate(2, 3, 0..8, 9), Err(PopulateError::OutOfFrames));
    let expected = ReservationCounters {
        reserved: 2,
        populated: 2,
        single: 5,
        broken_up: 2,
        reclaimed: 2,
        reclaimed_frames: 14,
        ..ReservationCounters::default()
    };
    assert_eq!(pool.counters(), expected);
    // What was populated is held by whoever holds it, and can be freed.
    pool.free(Extent::new(first.frame, 1)).unwrap();
    assert_eq!(pool.allocate_frame(), Some(first.frame));
    pool.check().unwrap();
}

/// Two levels: as the talk's sections within supersections, in small.
#[test]
fn a_broken_up_reservation_leaves_its_populated_parts() {
    let levels = ReservationLevels::new(&orders([2, 4]), &orders([1])).unwrap();
    let mut pool = pool(&[extent(16, 16)], levels);
    let fault = |pool: &mut Pool, index, now| pool.populate(1, index, 16..32, now).unwrap();
    assert_eq!(fault(&mut pool, 16, 1).source, FrameSource::Reserved(Order::known(4)));
    assert_eq!(fault(&mut pool, 17, 1).full, Some(Order::known(1)));
    assert_eq!(fault(&mut pool, 18, 1).full, None);
    assert_eq!(fault(&mut pool, 19, 1).full, Some(Order::known(2)));
    assert_eq!(fault(&mut pool, 25, 3).full, None);
    assert_eq!(fault(&mut pool, 20, 2).full, None);
    assert_eq!(pool.reservations(), 1);

    // Part 12..16 is empty and goes back; the others stay, the oldest first.
    pool.allocate(4, &mut |block| assert_eq!(block, extent(28, 4))).unwrap();
    let mut queue = Vec::new();
    pool.for_each_queued(&mut |reservation| queue.push(reservation.index));
    assert_eq!(queue, [24, 20]);
    assert_eq!(pool.reservations(), 3);
    assert!(pool.is_full(Pfn::new(19), Order::known(2)));
    assert!(!pool.is_full(Pfn::new(19), Order::known(3)));
    // Their pages are found, and a larger reservation is not tried around them.
    assert_eq!(fault(&mut pool, 24, 4).source, FrameSource::InReservation(Order::known(2)));
    assert_eq!(fault(&mut pool, 24 + 2, 4).full, None);
    assert_eq!(fault(&mut pool, 24 + 3, 4).full, Some(Order::known(2)));
    assert_eq!(fault(&mut pool, 29, 4).source, FrameSource::Single);
    assert_eq!(pool.reservation_at(1, 29), None);
    pool.check().unwrap();
    // Three frames of 20..24 were broken up for it.
    assert_eq!(pool.free_frames(), 2);
    pool.free(extent(16, 1)).unwrap();
    pool.check().unwrap();
}

/// Aligned frames come out of a reservation that has them, in a queue of
/// others that have not.
#[test]
fn an_aligned_request_breaks_up_one_that_helps() {
    let mut pool = pool(&[extent(0, 24)], order_3());
    for index in [1, 3, 5, 7] {
        pool.populate(1, index, 0..8, 1).unwrap();
    }
    pool.populate(2, 0, 0..8, 2).unwrap();
    pool.populate(3, 0, 0..8, 3).unwrap();
    assert_eq!(pool.allocate_aligned(Order::known(2)), Ok(extent(12, 4)));
    assert_eq!(pool.reservation_at(2, 0), None);
    assert!(pool.reservation_at(1, 0).is_some() && pool.reservation_at(3, 0).is_some());
    let before = (blocks(&pool), pool.counters());
    assert_eq!(pool.allocate_aligned(K3), Err(FrameAllocateError::NoBlock { order: K3 }));
    let order = Order::known(5);
    let error = FrameAllocateError::OutOfFrames { wanted: 32, free: 14 };
    assert_eq!(pool.allocate_aligned(order), Err(error));
    assert_eq!((blocks(&pool), pool.counters()), before);
    pool.check().unwrap();
}

#[test]
fn released_pages_keep_their_frames() {
    let levels = ReservationLevels::new(&orders([2, 4]), &[]).unwrap();
    let mut pool = pool(&[extent(0, 64)], levels);
    for index in [0, 5, 13, 20] {
        pool.populate(1, index, 0..32, 1).unwrap();
    }
    pool.populate(2, 5, 0..16, 1).unwrap();
    let all: Vec<u64> = [0, 5, 13, 20].map(|i| pool.frame_at(1, i).unwrap().raw()).into();
    pool.release(1, 4..8);
    assert_eq!(pool.reservation_at(1, 5), None);
    for index in [0, 13] {
        assert_eq!(pool.reservation_at(1, index).unwrap().order, Order::known(2));
    }
    assert_eq!(pool.reservation_at(1, 20).unwrap().order, Order::known(4));
    // All the pages there can be: by slots, not by pages.
    pool.release(1, 0..u64::MAX);
    assert_eq!(pool.reservations(), 1);
    pool.release(3, 0..u64::MAX);
    pool.release(2, 9..9);
    assert_eq!(pool.reservations(), 1);
    pool.check().unwrap();
    assert_eq!(pool.free_frames(), 64 - 5);
    assert_eq!(pool.counters().reclaimed, 0);
    all.into_iter().for_each(|frame| pool.free(extent(frame, 1)).unwrap());
    pool.check().unwrap();
}

/// What is in use when the reservations are built can be freed through them.
#[test]
fn frames_in_use_before_are_held() {
    with_map(&[extent(3, 30), extent(40, 9)], |map| {
        let mut buddy = buddy(map, BuddyConfig::BBS).unwrap();
        let mut taken = Vec::new();
        buddy.allocate(11, &mut |block| taken.push(block)).unwrap();
        let storage = vec![0; Pool::storage_words(map, order_3())];
        let mut pool = Pool::new(map, order_3(), buddy, storage).unwrap();
        pool.check().unwrap();
        assert_eq!(pool.free_frames(), 28);
        for block in taken {
            pool.free(block).unwrap();
        }
        pool.check().unwrap();
        assert_eq!(pool.free_frames(), 39);
    });
}

#[test]
fn bad_levels_are_named() {
    let [k0, k3, k4, k9] = orders([0, 3, 4, 9]);
    let not = |order, below| Err(ReservationLevelsError::NotAscending { order, below });
    assert_eq!(ReservationLevels::new(&[], &[k3]), Err(ReservationLevelsError::None));
    assert_eq!(ReservationLevels::new(&[k0], &[]), not(k0, k0));
    assert_eq!(ReservationLevels::new(&[k9, k4], &[]), not(k4, k9));
    assert_eq!(ReservationLevels::new(&[k4, k4], &[]), not(k4, k4));
    assert_eq!(ReservationLevels::new(&[k4], &[k4]), not(k4, k4));
    assert_eq!(ReservationLevels::new(&[k9], &[k4, k3]), not(k3, k4));
    let many = orders([1, 2, 3, 4, 5]);
    assert_eq!(many.len(), LEVELS_MAX + 1);
    assert_eq!(
        ReservationLevels::new(&many, &[]),
        Err(ReservationLevelsError::TooMany { orders: 5 })
    );
    assert_eq!(
        ReservationLevels::new(&[k9], &many),
        Err(ReservationLevelsError::TooMany { orders: 5 })
    );
    let levels = ReservationLevels::new(&[k4, Order::MAX], &[k3]).unwrap();
    assert_eq!((levels.orders(), levels.suborders()), (&[k4, Order::MAX][..], &[k3][..]));
    assert_eq!((levels.lowest(), levels.top()), (k4, Order::MAX));
    assert_eq!(ReservationLevels::usual(Format::ArmV7).orders(), [Order::known(8)]);
    assert_eq!(ReservationLevels::usual(Format::ArmV8), ReservationLevels::ARMV8);
    assert_eq!(ReservationLevels::usual(Format::X86_64).suborders(), []);
}

#[test]
fn bad_storage_and_other_allocators_are_named() {
    with_map(&[extent(3, 1000)], |map| {
        let needed_words = Pool::storage_words(map, ReservationLevels::ARMV8);
        let mut storage = vec![42; needed_words + 1];
        let small = &mut storage[..needed_words - 1];
        let over = |config| buddy(map, config).unwrap();
        assert_eq!(
            Reservations::<_, _>::new(map, ReservationLevels::ARMV8, over(BuddyConfig::BBS), small)
                .err(),
            Some(ReservationsError::Storage { needed_words, given_words: needed_words - 1 })
        );
        assert_eq!(storage, vec![42; needed_words + 1]);
        let mut pool = Reservations::<_, _>::new(
            map,
            ReservationLevels::ARMV8,
            over(BuddyConfig::BBS),
            &mut storage[..],
        )
        .unwrap();
        pool.allocate(1000, &mut |_| {}).unwrap();
        pool.free(extent(3, 1000)).unwrap();
        assert_eq!(storage[needed_words], 42, "a word beyond the storage needed was used");

        with_map(&[extent(4, 1000)], |other| {
            let storage = vec![0; Pool::storage_words(other, ReservationLevels::ARMV8)];
            let error = Pool::new(
                other,
                ReservationLevels::ARMV8,
                buddy(map, BuddyConfig::BBS).unwrap(),
                storage,
            );
            let block = extent(3, 1);
            assert_eq!(error.err(), Some(ReservationsError::Foreign { block }));
        });
        with_map(&[extent(3, 999)], |other| {
            let error = Pool::new(
                other,
                ReservationLevels::ARMV8,
                buddy(map, BuddyConfig::BBS).unwrap(),
                Vec::new(),
            );
            let (map_frames, allocator_frames) = (999, 1000);
            assert_eq!(
                error.err(),
                Some(ReservationsError::OtherFrames { map_frames, allocator_frames })
            );
        });
    });
    // More slots than can be numbered.
    with_map(&[extent(0, 1), extent(1 << 40, 1)], |map| {
        assert_eq!(Pool::storage_words(map, order_3()), usize::MAX);
        let frames = (1 << 40) + 1;
        let buddy = buddy(&with_small(), BuddyConfig::BBS).unwrap();
        let error = Pool::new(map, order_3(), buddy, Vec::new()).err();
        assert_eq!(error, Some(ReservationsError::Span { frames }));
    });
}

/// A map of two frames.
fn with_small() -> MemoryMap<'static> {
    let storage = Box::leak(Box::new([Extent::default()]));
    MemoryMap::new(&[ByteRange::of_frames(extent(0, 2))], storage).unwrap()
}

#[test]
fn errors_name_the_first_frame_at_fault_and_change_nothing() {
    let mut pool = pool(&[extent(8, 16), extent(32, 16)], order_3());
    let page = pool.populate(1, 2, 0..8, 1).unwrap();
    let single = pool.populate(1, 9, 0..10, 1).unwrap();
    let start = page.frame.raw() - 2;
    let before = (blocks(&pool), pool.counters());
    for (bad, error) in [
        (extent(9, 0), FrameFreeError::Empty),
        (extent(9, u64::MAX), FrameFreeError::Overflow { extent: extent(9, u64::MAX) }),
        (extent(u64::MAX, 1), FrameFreeError::Overflow { extent: extent(u64::MAX, 1) }),
        (extent(u64::MAX - 1, 1), FrameFreeError::Foreign { frame: Pfn::new(u64::MAX - 1) }),
        (extent(0, u64::MAX), FrameFreeError::Foreign { frame: Pfn::new(0) }),
        (extent(24, 1), FrameFreeError::Foreign { frame: Pfn::new(24) }),
        (extent(48, 1), FrameFreeError::Foreign { frame: Pfn::new(48) }),
        // Reserved, but not populated.
        (extent(start, 8), FrameFreeError::NotAllocated { frame: Pfn::new(start) }),
        (extent(start + 2, 2), FrameFreeError::NotAllocated { frame: Pfn::new(start + 3) }),
        (
            Extent::new(single.frame, u64::MAX >> 1),
            FrameFreeError::NotAllocated { frame: Pfn::new(single.frame.raw() + 1) },
        ),
    ] {
        assert_eq!(pool.free(bad), Err(error), "{bad}");
    }
    assert_eq!(
        pool.populate(1, 2, 0..8, 9),
        Err(PopulateError::AlreadyPopulated { object: 1, index: 2, frame: page.frame })
    );
    for (index, start, end) in [(8, 0, 8), (0, 1, 8), (3, 9, 2), (5, 5, 5), (u64::MAX, 0, u64::MAX)]
    {
        assert_eq!(
            pool.populate(1, index, start..end, 9),
            Err(PopulateError::OutOfBounds { index, start, end })
        );
    }
    assert_eq!((blocks(&pool), pool.counters()), before);
    pool.check().unwrap();
    // To the last frame that is held, and then one beyond memory.
    pool.allocate_aligned(Order::known(3)).unwrap();
    pool.allocate_aligned(Order::known(3)).unwrap();
    assert_eq!(pool.free(extent(40, 9)), Err(FrameFreeError::Foreign { frame: Pfn::new(48) }));
    pool.free(extent(40, 8)).unwrap();
    pool.check().unwrap();
}

/// Numbers at the ends of what 64 bits hold: nothing overflows.
#[test]
fn any_number_is_taken() {
    let levels = ReservationLevels::new(&[K3, Order::MAX], &[]).unwrap();
    let mut pool = pool(&[extent(5, 400)], levels);
    let ends = [0, 1, 7, 8, 1 << 51, u64::MAX - 9, u64::MAX - 8, u64::MAX - 7, u64::MAX - 1];
    for object in [0, u64::MAX] {
        for index in ends {
            for now in [u64::MAX, 0] {
                for bounds in [0..u64::MAX, index..index + 1] {
                    match pool.populate(object, index, bounds, now) {
                        Ok(page) => {
                            // The last page of all can be in no range's bounds.
                            let reserved = page.source != FrameSource::Single;
                            assert_eq!(pool.reservation_of(page.frame).is_some(), reserved);
                            assert!(index < u64::MAX - 7 || !reserved);
                        }
                        Err(error) => assert!(
                            matches!(error, PopulateError::AlreadyPopulated { .. }),
                            "{error}"
                        ),
                    }
                    pool.check().unwrap();
                }
            }
            assert_eq!(pool.reservation_at(object, u64::MAX), None);
        }
    }
    for frame in [0, 4, 405, 1 << 52, u64::MAX] {
        let frame = Pfn::new(frame);
        assert_eq!((pool.reservation_of(frame), pool.full_order(frame)), (None, None));
        for order in [Order::BASE, K3, Order::MAX] {
            assert!(!pool.is_full(frame, order));
        }
    }
    for pages in [u64::MAX - 16..u64::MAX, 0..1, 1 << 51..u64::MAX] {
        pool.release(u64::MAX, pages);
        pool.check().unwrap();
    }
    assert!(pool.reservation_at(u64::MAX, u64::MAX - 9).is_none());
    assert!(pool.reservation_at(0, u64::MAX - 9).is_some());
}

#[test]
fn state_per_frame_is_as_documented() {
    with_map(&[extent(1 << 18, 1 << 20)], |map| {
        let bytes = |levels| Pool::storage_words(map, levels) as f64 * 8.0 / f64::from(1 << 20);
        for (levels, documented) in
            [(ReservationLevels::X86_64, 0.31), (ReservationLevels::X86_64_GIGABYTES, 0.41)]
        {
            let measured = bytes(levels);
            assert!((measured - documented).abs() < 0.006, "{measured} for {documented}");
        }
    });
    // A small map does not pay for the alignment of a large order.
    with_map(&[extent((1 << 18) - 8, 16)], |map| {
        assert!(Pool::storage_words(map, ReservationLevels::X86_64_GIGABYTES) < 100);
    });
}
