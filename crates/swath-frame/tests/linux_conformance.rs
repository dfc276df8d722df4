//! Linux's zone through the suite of all zone allocators.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::testing::zones;
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{ByteRange, LinuxZone, MemoryMap};

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn conforms(areas: &[Extent], span: Extent, pageblock: u8, seed: u64, steps: usize) {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    // What the storage held before must not matter.
    let words = vec![0x5a5a_5a5a_5a5a_5a5a; LinuxZone::<&mut [u64]>::storage_words(span)];
    let mut zone = LinuxZone::new(&map, span, Order::known(pageblock), words).unwrap();
    let mut checked = zone.clone().checked();
    zones::conform(&map, span, ORDER_MAX, &mut zone, seed, steps, &mut |_, _| ());
    zones::conform(&map, span, ORDER_MAX, &mut checked, seed, steps, &mut |_, _| ());
    assert_eq!(checked.find_fault(), Ok(()));
}

#[test]
fn whole_zone() {
    for (seed, pageblock) in [(1, 9), (2, 10), (3, 3), (4, 5)] {
        conforms(&[extent(0, 4096)], extent(0, 4096), pageblock, seed, 3000);
    }
}

#[test]
fn random_zones_with_holes() {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let mut start = random.below(3000);
        let mut areas = Vec::new();
        for _ in 0..1 + random.below(4) {
            let area = extent(start, 1 + random.below(3000));
            start = area.end().raw() + 1 + random.below(150);
            areas.push(area);
        }
        let all = extent(areas[0].start.raw(), start - areas[0].start.raw());
        // The zone may end within the areas, or reach beyond them.
        let cut = all.start.raw() + random.below(areas[0].count);
        let span = extent(cut, all.count + random.below(400) - random.below(all.count / 4 + 1));
        let pageblock = [3, 4, 7, 9, 10][random.below(5) as usize];
        conforms(&areas, span, pageblock, seed, 700);
    }
}
