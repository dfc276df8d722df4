//! Quick Fit against the suite of all allocators and against its own promises.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::testing::frames::{Merged, conform};
use swath_frame::{
    BestFit, BuddyConfig, BuildError, ByteRange, FrameAllocateError, FrameAllocator,
    FrameFreeError, HeadOfList, MemoryMap, PageBuddy, QuickFit, Rule,
};

type Buddy<R> = PageBuddy<Vec<u64>, R>;
type Quick<'m, R> = QuickFit<'m, Vec<u64>, Buddy<R>>;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn with_map<T>(areas: &[Extent], test: impl FnOnce(MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    test(MemoryMap::new(&ranges, &mut storage).unwrap())
}

fn buddy<R: Rule>(map: &MemoryMap<'_>, config: BuddyConfig) -> Buddy<R> {
    Buddy::new(map, config, vec![0; Buddy::<R>::storage_words(map, config)]).unwrap()
}

fn quick<R: Rule>(map: MemoryMap<'_>, config: BuddyConfig) -> Quick<'_, R> {
    // What the storage held before must not matter.
    let storage = vec![0x5a5a_5a5a_5a5a_5a5a; Quick::<R>::storage_words(&map)];
    QuickFit::new(map, buddy(&map, config), storage).unwrap()
}

fn check<R: Rule>(quick: &Quick<'_, R>, map: &MemoryMap<'_>) {
    let mut scratch = vec![0; Quick::<R>::storage_words(map)];
    assert_eq!(quick.check(&mut scratch), Ok(()));
    quick.inner().check().unwrap();
}

fn random_areas(random: &mut Random) -> Vec<Extent> {
    let mut start = random.below(3000);
    (0..1 + random.below(4))
        .map(|_| {
            let area = extent(start, 1 + random.below(900));
            start = area.end().raw() + 1 + random.below(150);
            area
        })
        .collect()
}

const CONFIGS: [BuddyConfig; 4] = [
    BuddyConfig::BBS,
    BuddyConfig::PBS_ARMV7,
    BuddyConfig::PBS_ARMV8,
    match BuddyConfig::new(9, Order::BASE) {
        Ok(config) => config,
        Err(_) => panic!(),
    },
];

#[test]
fn conforms() {
    fn run<R: Rule>(config: BuddyConfig, seed: u64) {
        with_map(&random_areas(&mut Random::new(seed)), |map| {
            let mut merged = Merged(quick::<R>(map, config));
            conform(&map, &mut merged, seed, 200, &mut |merged, _| check(&merged.0, &map));
        });
    }
    for seed in 0..6 {
        for config in CONFIGS {
            run::<HeadOfList>(config, seed);
            run::<BestFit>(config, seed + 1000);
        }
    }
}

/// Short blocks come and go, so that lists run empty and full; parts and wholes
/// are freed, and no frame is given twice.
#[test]
fn exchanges_keep_every_frame_once() {
    for seed in 0..6 {
        let areas = [extent(70, 3000), extent(3100, 1000)];
        with_map(&areas, |map| {
            let mut random = Random::new(seed);
            let mut quick = quick::<BestFit>(map, BuddyConfig::PBS_ARMV8);
            let mut held: Vec<Extent> = Vec::new();
            for step in 0..6000 {
                if !held.is_empty() && random.below(2) == 0 {
                    let nth = random.below(held.len() as u64) as usize;
                    let block = held.swap_remove(nth);
                    let low = if step % 5 == 0 { random.below(block.count) } else { 0 };
                    let rest = extent(block.start.raw() + low, block.count - low);
                    quick.free(rest).unwrap();
                    assert!(matches!(quick.free(rest), Err(FrameFreeError::NotAllocated { .. })));
                    if low > 0 {
                        held.push(extent(block.start.raw(), low));
                    }
                } else if let Some(block) = quick.allocate_block(1 + random.below(9)) {
                    held.push(block);
                }
                if step % 100 == 0 {
                    check(&quick, &map);
                }
            }
            let used: u64 = held.iter().map(|block| block.count).sum();
            assert_eq!(used + quick.free_frames(), 4000, "seed {seed}");
            let before = quick.inner().free_frames();
            quick.flush();
            assert!(quick.inner().free_frames() > before, "no list held anything");
            assert_eq!(used + quick.inner().free_frames(), 4000, "seed {seed}");
            check(&quick, &map);
        });
    }
}

#[test]
fn a_full_list_gives_its_older_half_back() {
    with_map(&[extent(0, 1024)], |map| {
        let mut quick = quick::<BestFit>(map, BuddyConfig::PBS_ARMV8);
        let blocks: Vec<Extent> = (0..17).map(|_| quick.allocate_block(3).unwrap()).collect();
        for (i, &block) in blocks.iter().enumerate() {
            quick.free(block).unwrap();
            check(&quick, &map);
            let back = if i < 16 { 0 } else { 8 };
            assert_eq!(quick.inner().free_frames(), 1024 - 17 * 3 + 3 * back);
        }
        // The youngest first.
        for &block in blocks[8..].iter().rev() {
            assert_eq!(quick.allocate_block(3), Some(block));
        }
        // Then what the allocator has.
        assert_eq!(quick.allocate_block(3), Some(extent(0, 3)));
        check(&quick, &map);
    });
}

#[test]
fn lists_go_back_before_a_request_is_split_or_fails() {
    with_map(&[extent(0, 64)], |map| {
        let blocks = |quick: &mut Quick<'_, BestFit>| -> Vec<Extent> {
            (0..8).map(|_| quick.allocate_block(8).unwrap()).collect()
        };
        let all = || quick::<BestFit>(map, BuddyConfig::PBS_ARMV8);
        let back = |quick: &mut Quick<'_, BestFit>, blocks: &[Extent]| {
            blocks.iter().for_each(|&block| quick.free(block).unwrap());
            assert_eq!(quick.inner().free_frames(), 0);
        };
        let mut quick = all();
        let taken = blocks(&mut quick);
        back(&mut quick, &taken);
        assert_eq!(quick.allocate_block(64), Some(extent(0, 64)));

        let mut quick = all();
        let taken = blocks(&mut quick);
        back(&mut quick, &taken);
        assert_eq!(quick.allocate_aligned(Order::known(5)), Ok(extent(0, 32)));

        // Half of it: the longest run is two blocks, and is used whole.
        let mut quick = all();
        let taken = blocks(&mut quick);
        back(&mut quick, &[taken[1], taken[4], taken[5], taken[7]]);
        assert_eq!(quick.allocate_block(20), Some(extent(32, 16)));
        check(&quick, &map);
        assert_eq!(
            quick.allocate_aligned(Order::known(4)),
            Err(FrameAllocateError::NoBlock { order: Order::known(4) })
        );
        assert_eq!(quick.allocate_block(0), None);
    });
}

#[test]
fn errors_change_nothing_and_name_the_frame() {
    with_map(&[extent(10, 20), extent(40, 20)], |map| {
        let needed_words = Quick::<BestFit>::storage_words(&map);
        let inner = || buddy::<BestFit>(&map, BuddyConfig::PBS_ARMV7);
        assert_eq!(
            QuickFit::<_, _>::new(map, inner(), vec![0; needed_words - 1]).err(),
            Some(BuildError::Storage { needed_words, given_words: needed_words - 1 })
        );
        with_map(&[extent(10, 19), extent(40, 21)], |other| {
            let quick = QuickFit::<_, _>::new(other, inner(), vec![0; needed_words + 9]);
            assert_eq!(quick.err(), Some(BuildError::OtherMap));
        });
        with_map(&[extent(10, 40)], |other| {
            let quick = QuickFit::<_, _>::new(other, inner(), vec![0; needed_words]);
            assert_eq!(quick.err(), Some(BuildError::OtherMap));
        });

        let mut quick = quick::<BestFit>(map, BuddyConfig::PBS_ARMV7);
        quick.allocate(40, &mut |_| {}).unwrap();
        quick.free(extent(20, 5)).unwrap();
        let frame = Pfn::new;
        for (bad, error) in [
            (extent(15, 0), FrameFreeError::Empty),
            (extent(15, u64::MAX), FrameFreeError::Overflow { extent: extent(15, u64::MAX) }),
            (extent(9, 2), FrameFreeError::Foreign { frame: frame(9) }),
            (extent(15, 8), FrameFreeError::NotAllocated { frame: frame(20) }),
            (extent(25, 6), FrameFreeError::Foreign { frame: frame(30) }),
            (extent(30, 1), FrameFreeError::Foreign { frame: frame(30) }),
            (extent(50, 11), FrameFreeError::Foreign { frame: frame(60) }),
            (extent(22, 1), FrameFreeError::NotAllocated { frame: frame(22) }),
            (extent(61, 1), FrameFreeError::Foreign { frame: frame(61) }),
            (extent(u64::MAX - 1, 1), FrameFreeError::Foreign { frame: frame(u64::MAX - 1) }),
        ] {
            assert_eq!(quick.free(bad), Err(error), "{bad}");
            assert_eq!(quick.free_frames(), 5);
            check(&quick, &map);
        }
        // Frames that were used before the lists came can be freed.
        let mut used = inner();
        let block = used.allocate_block(7).unwrap();
        let mut quick = QuickFit::<_, _>::new(map, used, vec![0; needed_words]).unwrap();
        quick.free(block).unwrap();
        assert_eq!((quick.free_frames(), quick.total_frames()), (40, 40));
    });
}
