//! The page buddy system as a zone's allocator.

use swath_arch::Order;
use swath_arch::testing::Random;
use swath_frame::testing::zones::conform;
use swath_frame::{BestFit, BuddyConfig, HeadOfList, MemoryMap, PageZone, Rule};

use super::memory::{GARBAGE, STEPS, areas, with_map};

/// Draws memory, the lists, the rule and the unit that can be isolated, and drives the zone beside
/// a state for each frame. Each result and the number of free frames are
/// compared at once; which frames are free, the largest block and the invariants after 1, 2, 4...
/// operations and at the end.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 700);
    let config =
        [BuddyConfig::BBS, BuddyConfig::PBS_ARMV7, BuddyConfig::PBS_ARMV8][random.index(3)];
    let unit = Order::known([0, 3, 4, 7, 9][random.index(5)]);
    with_map(&areas, |map| match random.one_in(3) {
        true => drive::<BestFit>(&map, config, unit, random),
        false => drive::<HeadOfList>(&map, config, unit, random),
    });
}

fn drive<R: Rule>(map: &MemoryMap<'_>, config: BuddyConfig, unit: Order, random: Random) {
    let words = vec![GARBAGE; PageZone::<&mut [u64], R>::storage_words(map, config, unit)];
    let Ok(mut zone) = PageZone::<_, R>::new(map, config, unit, words) else { return };
    conform(map, map.span(), config.top(), &mut zone, random, STEPS, &mut |_, _| ());
}
