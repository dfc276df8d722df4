//! The bank-aware zones: an array of banks, a list of banks, and Adaptive-Buddy's pools.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::MemoryMap;
use swath_frame::testing::zones::conform;
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, BankPreference, BoundaryPlacement, ListPlacement,
    Placement, PoolPlacement, PoolPolicy, TreePlacement,
};

use super::memory::{GARBAGE, STEPS, areas, extent, with_map};

/// Draws memory, banks, the zone's span and the rule, and drives the zone beside a state for each
/// frame. Each result and the number of free frames are
/// compared at once; which frames are free, the largest block and the invariants after 1, 2, 4...
/// operations and at the end.
pub fn run(bytes: &[u8]) {
    use BankPreference::{Fullest, Outermost, Recent};
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 500);
    let (first, end) = (areas[0].start.raw(), areas[areas.len() - 1].end().raw());
    let start = first + random.below(areas[0].count);
    let span = extent(start, 1 + random.below(end + 100 - start));
    let bank = Order::known(2 + random.below(8) as u8);
    let top = Order::known(random.below(u64::from(bank.k()) + 1) as u8);
    let Ok(banks) = BankLayout::new(Pfn::new(0), bank.frames(), top) else { return };
    let preferences = [Recent, Outermost, Fullest];
    let rule = random.below(6);
    let policy =
        PoolPolicy { kernel: preferences[random.index(3)], user: preferences[random.index(3)] };
    with_map(&areas, |map| match rule {
        0 => drive(&map, span, banks, top, ArrayPlacement, random),
        1 => drive(&map, span, banks, top, ListPlacement::new(random.one_in(2)), random),
        4 => drive(&map, span, banks, top, BoundaryPlacement::new(random.below(300)), random),
        5 => drive(&map, span, banks, top, TreePlacement::new(random.below(8) as u32), random),
        _ => drive(&map, span, banks, top, PoolPlacement::new(policy), random),
    });
}

fn drive<P: Placement>(
    map: &MemoryMap<'_>,
    span: Extent,
    banks: BankLayout,
    top: Order,
    rule: P,
    random: Random,
) {
    let Ok(words) = BankBuddy::<Vec<u64>, P>::storage_words(map, span, banks, &rule) else {
        return;
    };
    let words = vec![GARBAGE; words];
    let Ok(mut zone) = BankBuddy::new(map, span, banks, rule, words) else { return };
    conform(map, span, top, &mut zone, random, STEPS, &mut |_, _| {});
}
