//! Quick Fit over the page buddy system.

use swath_arch::testing::Random;
use swath_frame::testing::frames::{Merged, conform};
use swath_frame::{BestFit, BuddyConfig, PageBuddy, QuickFit};

use super::memory::{GARBAGE, STEPS, areas, with_map};

type Buddy = PageBuddy<Vec<u64>, BestFit>;
type Quick<'m> = QuickFit<'m, Vec<u64>, Buddy>;

/// Draws memory and granularity, and drives the allocator beside a set of frames. Each result and the
/// number of free frames are compared at once; which frames are free, and the invariants of both
/// allocators, after 1, 2, 4... operations and at the end.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 400);
    let configs = [BuddyConfig::BBS, BuddyConfig::PBS_ARMV7, BuddyConfig::PBS_ARMV8];
    let config = configs[random.index(configs.len())];
    with_map(&areas, |map| {
        let words = vec![GARBAGE; Buddy::storage_words(&map, config)];
        let buddy = Buddy::new(&map, config, words).expect("as many words as needed");
        let words = vec![GARBAGE; Quick::storage_words(&map)];
        let quick = QuickFit::<_, _>::new(map, buddy, words).expect("as many words as needed");
        conform(&map, &mut Merged(quick), random, STEPS, &mut |Merged(quick), _| {
            let mut scratch = vec![0; Quick::storage_words(&map)];
            assert_eq!(quick.check(&mut scratch), Ok(()));
            assert_eq!(quick.inner().check(), Ok(()));
        });
    });
}
