//! Contiguous requests, and memory that comes and goes, on the page buddy system of either tier.

use swath_arch::Order;
use swath_arch::testing::Random;
use swath_frame::testing::ranges::conform;
use swath_frame::{
    BestFit, BuddyConfig, Checked, FrameAllocator, Hardening, HeadOfList, MemoryMap, PageBuddy,
    Rule, Trusting,
};

use super::memory::{GARBAGE, STEPS_MAX, areas, extent, with_map};

/// Draws memory in a longer span, granularity, orders, rule and tier, and drives the allocator beside a set
/// of frames.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 300);
    let ends =
        areas.first().zip(areas.last()).map(|(first, last)| (first.start.raw(), last.end().raw()));
    let Some((first, past)) = ends else { return };
    let below = random.below(100.min(first + 1));
    let span = extent(first - below, past - first + below + random.below(400));
    let granularity = 1 + random.below(13) as u32;
    let top = Order::known((granularity as u8 * (1 + random.below(3) as u8)).min(24));
    let Ok(config) = BuddyConfig::new(granularity, top) else { return };
    with_map(&areas, |map| {
        let map = map.reaching(span).expect("a span around the areas");
        match random.below(4) {
            0 => drive::<HeadOfList, Trusting>(&map, config, random),
            1 => drive::<BestFit, Trusting>(&map, config, random),
            2 => drive::<HeadOfList, Checked>(&map, config, random),
            _ => drive::<BestFit, Checked>(&map, config, random),
        }
    });
}

fn drive<R: Rule, H: Hardening>(map: &MemoryMap<'_>, config: BuddyConfig, mut random: Random) {
    type Buddy<R, H> = PageBuddy<Vec<u64>, R, H>;
    let late = random.index(20) * Buddy::<R, H>::LATE_AREA_WORDS;
    let words = vec![GARBAGE; Buddy::<R, H>::storage_words(map, config) + late];
    let mut buddy = Buddy::<R, H>::new(map, config, words).expect("as many words as needed");
    conform(map, &mut buddy, random, STEPS_MAX, &mut |buddy, _| {
        assert_eq!(buddy.check(), Ok(()));
        assert_eq!(buddy.fault(), None);
    });
}
