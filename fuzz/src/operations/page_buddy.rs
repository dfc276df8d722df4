//! The page buddy system and the binary one, with both rules of choice.

use swath_arch::Order;
use swath_arch::testing::Random;
use swath_frame::testing::frames::{blocks, conform, nodes};
use swath_frame::{BestFit, BuddyConfig, HeadOfList, MemoryMap, PageBuddy, Rule};

use super::memory::{GARBAGE, STEPS_MAX, areas, with_map};

/// Draws memory, granularity, orders and rule, and drives the allocator beside a set of frames; its
/// nodes are those of the definition after every step.
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
    conform(map, &mut buddy, random, STEPS_MAX, &mut |buddy, oracle| {
        assert_eq!(buddy.check(), Ok(()));
        assert_eq!(blocks(buddy), nodes(oracle.free(), config));
    });
}
