//! The page buddy system as a zone's allocator: the suite of all zones, and ranges beside blocks.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::testing::zones;
use swath_frame::{
    BestFit, BuddyConfig, BuildError, ByteRange, FrameAllocateError, FrameFreeError, MemoryMap,
    Mobility, PageZone, Rule, ZoneAllocator,
};

type Zone<R> = PageZone<Vec<u64>, R>;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn with_map<T>(areas: &[Extent], run: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    run(&MemoryMap::new(&ranges, &mut storage).unwrap())
}

fn zone<R: Rule>(map: &MemoryMap<'_>, config: BuddyConfig, unit: u8) -> Zone<R> {
    let unit = Order::known(unit);
    // What the storage held before must not matter.
    let words = vec![0x5a5a_5a5a_5a5a_5a5a; Zone::<R>::storage_words(map, config, unit)];
    Zone::new(map, config, unit, words).unwrap()
}

fn conforms<R: Rule>(areas: &[Extent], config: BuddyConfig, unit: u8, seed: u64, steps: usize) {
    with_map(areas, |map| {
        let mut zone: Zone<R> = zone(map, config, unit);
        zones::conform(map, map.span(), config.top(), &mut zone, seed, steps, &mut |_, _| ());
    });
}

#[test]
fn whole_zones() {
    for (seed, unit) in [(1, 9), (2, 10), (3, 3), (4, 5)] {
        conforms::<swath_frame::HeadOfList>(&[extent(0, 2048)], BuddyConfig::BBS, unit, seed, 1500);
        conforms::<swath_frame::HeadOfList>(
            &[extent(0, 2048)],
            BuddyConfig::PBS_ARMV7,
            unit,
            seed,
            1500,
        );
        conforms::<swath_frame::HeadOfList>(
            &[extent(0, 2048)],
            BuddyConfig::PBS_ARMV8,
            unit,
            seed,
            1500,
        );
        conforms::<BestFit>(&[extent(0, 2048)], BuddyConfig::PBS_ARMV7, unit, seed, 1500);
    }
}

#[test]
fn random_zones_with_holes() {
    for seed in 0..16 {
        let mut random = Random::new(seed);
        let mut start = random.below(3000);
        let mut areas = Vec::new();
        for _ in 0..1 + random.below(4) {
            let area = extent(start, 1 + random.below(1000));
            start = area.end().raw() + 1 + random.below(150);
            areas.push(area);
        }
        let config = [BuddyConfig::BBS, BuddyConfig::PBS_ARMV7][random.below(2) as usize];
        let unit = [0, 3, 4, 7, 9][random.below(5) as usize];
        conforms::<swath_frame::HeadOfList>(&areas, config, unit, seed, 500);
    }
}

/// Ranges beside blocks, frees of any part and isolation, against a state for each frame.
#[test]
fn ranges_beside_blocks() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let config = [BuddyConfig::BBS, BuddyConfig::PBS_ARMV7][seed as usize % 2];
        with_map(&[extent(7, 300), extent(320, 900)], |map| {
            let mut zone: Zone<swath_frame::HeadOfList> = zone(map, config, 5);
            let unit = Order::known(5);
            let mut used = vec![false; 1220];
            let mut isolated = vec![false; 39];
            for step in 0..600 {
                let place = format!("seed {seed}, step {step}");
                let take = |used: &mut Vec<bool>, isolated: &[bool], block: Extent| {
                    for frame in block.iter() {
                        assert!(map.contains(frame), "{place}");
                        assert!(!isolated[frame.raw() as usize / 32], "{place}");
                        assert!(
                            !std::mem::replace(&mut used[frame.raw() as usize], true),
                            "{place}"
                        );
                    }
                };
                match random.below(6) {
                    0 | 1 => {
                        let count = 1 + random.below(120);
                        let free = zone.free_frames();
                        let mut got = 0;
                        let result = zone.allocate_range(count, &mut |block| {
                            got += block.count;
                            take(&mut used, &isolated, block);
                        });
                        let short = FrameAllocateError::OutOfFrames { wanted: count, free };
                        assert_eq!(
                            result,
                            if count > free { Err(short) } else { Ok(()) },
                            "{place}"
                        );
                        assert_eq!(got, if count > free { 0 } else { count }, "{place}");
                    }
                    2 => {
                        let order = Order::known(random.below(6) as u8);
                        if let Some(start) = zone.allocate(order, Mobility::Movable) {
                            take(&mut used, &isolated, Extent::new(start, order.frames()));
                        }
                    }
                    3 => {
                        let unit = random.below(39) as usize;
                        let part = extent(unit as u64 * 32, 32);
                        let whole = part.iter().all(|frame| map.contains(frame));
                        let result =
                            if isolated[unit] { zone.rejoin(part) } else { zone.isolate(part) };
                        assert_eq!(result.is_ok(), whole, "{place}");
                        isolated[unit] ^= whole;
                    }
                    _ => {
                        let part = extent(random.below(1230), random.below(90));
                        let wrong = part.iter().find(|frame| {
                            !used.get(frame.raw() as usize).copied().unwrap_or(false)
                        });
                        let expected = match wrong {
                            _ if part.is_empty() => Err(FrameFreeError::Empty),
                            Some(frame) if map.contains(frame) => {
                                Err(FrameFreeError::NotAllocated { frame })
                            }
                            Some(frame) => Err(FrameFreeError::Foreign { frame }),
                            None => Ok(()),
                        };
                        assert_eq!(zone.free_range(part), expected, "{place}");
                        if expected.is_ok() {
                            part.iter().for_each(|frame| used[frame.raw() as usize] = false);
                        }
                    }
                }
                assert_eq!(zone.check(), Ok(()), "{place}");
                let free = map.areas().iter().flat_map(|area| area.iter()).filter(|frame| {
                    let frame = frame.raw() as usize;
                    !used[frame] && !isolated[frame >> unit.k()]
                });
                assert_eq!(zone.free_frames(), free.count() as u64, "{place}");
            }
        });
    }
}

#[test]
fn storage_that_is_too_small_is_refused() {
    with_map(&[extent(5, 500)], |map| {
        let unit = Order::known(4);
        let needed = Zone::<swath_frame::HeadOfList>::storage_words(map, BuddyConfig::BBS, unit);
        let small = PageZone::<_>::new(map, BuddyConfig::BBS, unit, vec![0; needed - 1]);
        let expected = BuildError::Storage { needed_words: needed, given_words: needed - 1 };
        assert_eq!(small.err(), Some(expected));
    });
}
