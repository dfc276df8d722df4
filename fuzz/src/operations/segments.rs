//! Segments across areas.

use swath_arch::Order;
use swath_arch::testing::Random;
use swath_frame::segment::{
    Area, AreaSpace, Baseline, CountedPages, FrameSupply, GlobalBitmap, HugePages, MappedSegments,
    SegmentAllocator,
};
use swath_frame::testing::segments::{SegmentRule, conform};

use super::memory::{GARBAGE, STEPS_MAX, areas};

/// Draws areas, their unit and a rule, and drives the allocator beside one of flags and loops.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 150);
    let unit = Order::known([0, 0, 1, 3][random.index(4)]);
    let mut storage = vec![Area::default(); areas.len()];
    let Ok(space) = AreaSpace::new(&areas, unit, &mut storage) else { return };
    match random.below(6) {
        0 => {
            let mut bitmap = bitmap(space, FrameSupply::PreAllocated);
            let check = |bitmap: &GlobalBitmap<'_, _>| assert_eq!(bitmap.check(), Ok(()));
            conform(space, SegmentRule::Lowest, &mut bitmap, random, STEPS_MAX, &mut { check });
        }
        1 => {
            let mut bitmap = bitmap(space, FrameSupply::OnDemand);
            let check = |bitmap: &GlobalBitmap<'_, _>| assert_eq!(bitmap.check(), Ok(()));
            conform(space, SegmentRule::Blocks, &mut bitmap, random, STEPS_MAX, &mut { check });
        }
        2 => {
            let words = vec![GARBAGE; Baseline::<Vec<u64>>::storage_words(&space)];
            let mut baseline = Baseline::<_>::new(space, words).expect("as many words as needed");
            let check = |baseline: &Baseline<'_, _>| assert_eq!(baseline.check(), Ok(()));
            conform(space, SegmentRule::Baseline, &mut baseline, random, STEPS_MAX, &mut { check });
        }
        3 => {
            let words = vec![GARBAGE; HugePages::<Vec<u64>>::storage_words(&space)];
            let mut huge = HugePages::<_>::new(space, words).expect("as many words as needed");
            let check = |huge: &HugePages<'_, _>| assert_eq!(huge.check(), Ok(()));
            conform(space, SegmentRule::Page, &mut huge, random, STEPS_MAX, &mut { check });
        }
        _ => {
            let bitmap = bitmap(space, FrameSupply::PreAllocated);
            let mut mapped = MappedSegments::new(bitmap, CountedPages::default());
            let check = |mapped: &MappedSegments<_, CountedPages>| {
                let CountedPages { mapped: pages, unmapped, .. } = *mapped.mapping();
                assert_eq!(pages - unmapped, space.total_frames() - mapped.free_frames());
            };
            conform(space, SegmentRule::Lowest, &mut mapped, random, STEPS_MAX, &mut { check });
        }
    }
}

fn bitmap(space: AreaSpace<'_>, frames: FrameSupply) -> GlobalBitmap<'_, Vec<u64>> {
    let words = vec![GARBAGE; GlobalBitmap::<Vec<u64>>::storage_words(&space)];
    GlobalBitmap::new(space, frames, words).expect("as many words as needed")
}
