//! Linux's zone.

use swath_arch::Order;
use swath_arch::testing::Random;
use swath_frame::LinuxZone;
use swath_frame::testing::zones::conform;
use swath_frame::zone::linux::ORDER_MAX;

use super::memory::{GARBAGE, STEPS, areas, extent, with_map};

/// Draws memory, the zone's span in it and the size of its pageblocks, and drives the zone beside a
/// state for each frame. Each result and the number of free frames are
/// compared at once; which frames are free, the largest block and the invariants after 1, 2, 4...
/// operations and at the end.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 700);
    let (first, end) = (areas[0].start.raw(), areas[areas.len() - 1].end().raw());
    // The zone may begin and end within the areas, or reach beyond them.
    let start = first + random.below(areas[0].count);
    let span = extent(start, 1 + random.below(end + 100 - start));
    let pageblock = Order::known([3, 4, 7, 9, 10][random.index(5)]);
    with_map(&areas, |map| {
        let words = vec![GARBAGE; LinuxZone::<&mut [u64]>::storage_words(span)];
        let Ok(mut zone) = LinuxZone::new(&map, span, pageblock, words) else { return };
        conform(&map, span, ORDER_MAX, &mut zone, random, STEPS, &mut |_, _| ());
    });
}
