//! Contiguous requests, and memory that comes and goes, against a set of frames.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::testing::ranges::conform;
use swath_frame::{
    BestFit, BuddyConfig, ByteRange, Checked, ContiguousAllocator, ContiguousError,
    ContiguousRequest, FrameAllocator, FrameHotplug, FrameHotplugError, Hardening, HeadOfList,
    MemoryMap, MemoryMapError, PageBuddy, Rule, Trusting,
};

type Buddy<R = HeadOfList, H = Trusting> = PageBuddy<Vec<u64>, R, H>;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

/// Calls `test` with the map of `areas` in a span of `span`.
fn with_map<T>(areas: &[Extent], span: Extent, test: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    test(&map.reaching(span).unwrap())
}

fn buddy<R: Rule, H: Hardening>(
    map: &MemoryMap<'_>,
    config: BuddyConfig,
    late_areas: usize,
) -> Buddy<R, H> {
    let words = Buddy::<R, H>::storage_words(map, config);
    let storage = vec![u64::MAX; words + late_areas * Buddy::<R, H>::LATE_AREA_WORDS];
    Buddy::<R, H>::new(map, config, storage).unwrap()
}

fn run<R: Rule, H: Hardening>(granularity: u32, top: u8, seed: u64) {
    let mut random = Random::new(seed);
    let base = random.below(3000);
    let areas = [
        extent(base + random.below(50), 1 + random.below(700)),
        extent(base + 1000 + random.below(200), 1 + random.below(900)),
    ];
    let span = extent(base, 2100 + random.below(900));
    let config = BuddyConfig::new(granularity, Order::known(top)).unwrap();
    with_map(&areas, span, |map| {
        let late_areas = random.index(30);
        let mut allocator = buddy::<R, H>(map, config, late_areas);
        conform(map, &mut allocator, random, 150, &mut |allocator, _| {
            assert_eq!(allocator.check(), Ok(()), "seed {seed}");
            assert_eq!(allocator.fault(), None, "seed {seed}");
        });
    });
}

#[test]
fn every_form_agrees_with_the_set_of_frames() {
    for (granularity, top) in [(1, 0), (1, 10), (4, 8), (5, 5), (7, 7), (9, 9), (9, 18)] {
        for seed in 0..6 {
            let seed = seed + 1000 * u64::from(granularity) + 100 * u64::from(top);
            run::<HeadOfList, Trusting>(granularity, top, seed);
            run::<BestFit, Trusting>(granularity, top, seed);
            run::<HeadOfList, Checked>(granularity, top, seed);
            run::<BestFit, Checked>(granularity, top, seed);
        }
    }
}

/// A sound card whose counter wraps at 64 KiB, on a bus of 24 bits.
#[test]
fn a_device_gets_what_it_can_reach() {
    let all = extent(0, 1 << 16);
    with_map(&[all], all, |map| {
        let mut frames = buddy::<HeadOfList, Trusting>(map, BuddyConfig::PBS_ARMV8, 0);
        frames.allocate(10, &mut |_| ()).unwrap();
        let request = ContiguousRequest {
            upper: Pfn::new(1 << 12),
            boundary: Some(Order::known(4)),
            ..ContiguousRequest::new(12)
        };
        assert_eq!(frames.allocate_contiguous(&request), Ok(extent(16, 12)));
        assert_eq!(frames.allocate_contiguous(&request), Ok(extent(32, 12)));
        let long = ContiguousRequest { count: 17, ..request };
        let refused = frames.allocate_contiguous(&long).unwrap_err();
        assert_eq!(refused, ContiguousError::Unsatisfiable { request: long });
        assert_eq!(
            refused.to_string(),
            "there is no place for 17 frames in a row, below frame 0x1000, within a boundary of order 4"
        );
    });
}

#[test]
fn limits_at_the_last_frame_number() {
    let all = extent(0, 64);
    with_map(&[all], all, |map| {
        let mut frames = buddy::<HeadOfList, Trusting>(map, BuddyConfig::BBS, 0);
        for lower in [u64::MAX, u64::MAX - 1, 1 << 63] {
            for align in [0, 9, 51] {
                for boundary in [None, Some(Order::known(0)), Some(Order::known(51))] {
                    let request = ContiguousRequest {
                        lower: Pfn::new(lower),
                        align: Order::known(align),
                        boundary,
                        ..ContiguousRequest::new(1)
                    };
                    assert!(frames.allocate_contiguous(&request).is_err(), "{request}");
                }
            }
        }
        for count in [65, 1 << 40, u64::MAX] {
            let request = ContiguousRequest::new(count);
            assert!(frames.allocate_contiguous(&request).is_err(), "{request}");
        }
        assert_eq!(frames.free_frames(), 64);
    });
}

/// Boot code gives away what it used itself; the checked tier has room for so many areas and no more.
#[test]
fn the_checked_tier_keeps_a_record_of_each_area() {
    let span = extent(0, 4096);
    with_map(&[extent(0, 100)], span, |map| {
        let mut frames = buddy::<HeadOfList, Checked>(map, BuddyConfig::PBS_ARMV7, 2);
        assert!(frames.free(extent(200, 8)).is_err());
        frames.add_frames(extent(200, 100)).unwrap();
        frames.add_frames(extent(400, 100)).unwrap();
        let full = FrameHotplugError::TooManyAreas { areas: 3 };
        assert_eq!(frames.add_frames(extent(600, 100)), Err(full));
        assert_eq!(frames.remove_frames(extent(410, 10)), Err(full));
        // One that touches another needs no record.
        frames.add_frames(extent(500, 100)).unwrap();
        frames.add_frames(extent(100, 100)).unwrap();
        frames.remove_frames(extent(410, 10)).unwrap();
        assert_eq!((frames.total_frames(), frames.free_frames()), (490, 490));
        assert_eq!((frames.check(), frames.find_fault()), (Ok(()), Ok(())));
    });
}

#[test]
fn a_map_reaches_over_its_areas() {
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(extent(100, 50))], &mut areas).unwrap();
    assert_eq!(map.span(), extent(100, 50));
    assert_eq!(map.reaching(extent(0, 1000)).unwrap().span(), extent(0, 1000));
    for span in [extent(101, 1000), extent(0, 149), extent(0, 0), extent(1, u64::MAX)] {
        let narrow = MemoryMapError::Narrow { area: extent(100, 50), span };
        assert_eq!(map.reaching(span).unwrap_err(), narrow);
    }
}
