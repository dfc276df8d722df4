//! The page buddy system and the binary one, with both rules of choice; and their requests under limits, with memory that
//! comes and goes.

use swath_arch::Order;
use swath_arch::testing::Random;
use swath_frame::testing::frames::{blocks, conform, nodes};
use swath_frame::testing::ranges;
use swath_frame::{
    BestFit, BuddyConfig, Checked, FrameAllocator, Hardening, HeadOfList, MemoryMap, PageBuddy,
    Rule, Trusting,
};

use super::memory::{GARBAGE, STEPS, areas, extent, with_map};

/// Draws memory, granularity, orders and rule, and drives the allocator beside a set of frames. Each
/// result and the number of free frames are compared at once; which frames are free, that the nodes
/// are those of the definition, and the invariants, after 1, 2, 4... operations and at the end.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 400);
    let granularity = 1 + random.below(13) as u32;
    let classes = 1 + random.below(4) as u8;
    let top = Order::known((granularity as u8 * classes).min(24));
    let Ok(config) = BuddyConfig::new(granularity, top) else { return };
    let best_fit = random.one_in(2);
    with_map(&areas, |map| {
        if best_fit {
            drive::<BestFit>(&map, config, random);
        } else {
            drive::<HeadOfList>(&map, config, random);
        }
    });
}

fn drive<R: Rule>(map: &MemoryMap<'_>, config: BuddyConfig, random: Random) {
    let words = vec![GARBAGE; PageBuddy::<Vec<u64>, R>::storage_words(map, config)];
    let mut buddy = PageBuddy::<_, R>::new(map, config, words).expect("as many words as needed");
    conform(map, &mut buddy, random, STEPS, &mut |buddy, oracle| {
        assert_eq!(buddy.check(), Ok(()));
        assert_eq!(blocks(buddy), nodes(oracle.free(), config));
    });
}

/// Draws memory in a longer span, granularity, orders, rule and tier, and drives the allocator beside a set
/// of frames. Each result and both numbers of frames are compared at once; which frames are free, and the
/// invariants, after 1, 2, 4... operations and at the end.
pub fn ranges(bytes: &[u8]) {
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
            0 => drive_ranges::<HeadOfList, Trusting>(&map, config, random),
            1 => drive_ranges::<BestFit, Trusting>(&map, config, random),
            2 => drive_ranges::<HeadOfList, Checked>(&map, config, random),
            _ => drive_ranges::<BestFit, Checked>(&map, config, random),
        }
    });
}

fn drive_ranges<R: Rule, H: Hardening>(
    map: &MemoryMap<'_>,
    config: BuddyConfig,
    mut random: Random,
) {
    type Buddy<R, H> = PageBuddy<Vec<u64>, R, H>;
    let late = random.index(20) * Buddy::<R, H>::LATE_AREA_WORDS;
    let words = vec![GARBAGE; Buddy::<R, H>::storage_words(map, config) + late];
    let mut buddy = Buddy::<R, H>::new(map, config, words).expect("as many words as needed");
    ranges::conform(map, &mut buddy, random, STEPS, &mut |buddy, _| {
        assert_eq!(buddy.check(), Ok(()));
        assert_eq!(buddy.fault(), None);
    });
}
