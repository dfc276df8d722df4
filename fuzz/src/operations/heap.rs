//! TLSF and half-fit, in every tier, over two pools.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;

use swath_arch::testing::Random;
use swath_heap::conformance::{Oracle, Plan, conform_with};
use swath_heap::{
    Bins, Fit, GRANULE_BYTES, HEADER_BYTES, Hardening, Headers, Heap, Links, PowersOfTwo, Resident,
    Trusting, TwoLevel,
};

use super::memory::STEPS_MAX;

/// Draws fit, tier, pools and sizes, and drives the heap beside a map of the bytes in use.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    match random.below(6) {
        0 => drive::<TwoLevel, Trusting>(random),
        1 => drive::<TwoLevel, Headers>(random),
        2 => drive::<TwoLevel, Links>(random),
        3 => drive::<PowersOfTwo, Headers>(random),
        4 => drive::<PowersOfTwo, Links>(random),
        _ => drive::<Bins<3, 256, { 256 / usize::BITS as usize }>, Headers>(random),
    }
}

fn drive<F: Fit, H: Hardening>(mut random: Random) {
    let bytes = 64 << random.below(9);
    let skip = random.index(16);
    let mut memory = vec![MaybeUninit::new(0xa5); bytes + bytes / 2 + skip];
    let (first, second) = memory[skip..].split_at_mut(bytes);
    let mut heap = Heap::<F, Resident, H>::new();
    let pools: Vec<_> = [first, second].into_iter().map(|pool| heap.add_pool(pool)).collect();
    let plan = Plan {
        seed: 0,
        steps: STEPS_MAX,
        size_bytes_max: bytes / [1, 4, 32][random.index(3)],
        align_log2_max: [0, 6, 12][random.index(3)],
        blocks: 1 + random.index(60),
    };
    conform_with(&mut random, &mut heap, plan, &mut |heap, used, _| check(heap, used));
    for pool in pools.into_iter().flatten() {
        heap.remove_pool(pool).expect("nothing is allocated");
    }
    assert_eq!(heap.largest_ever_bytes(), None);
}

/// Each user's bytes lie in a used block of their own, and no two free blocks touch.
fn check<F: Fit, H: Hardening>(heap: &Heap<'_, F, Resident, H>, used: &Oracle) {
    assert_eq!(heap.check(), Ok(()));
    let (mut blocks, mut free_end) = (BTreeMap::new(), None);
    heap.walk(&mut |block| {
        if block.free {
            assert_ne!(free_end, Some(block.address), "{block:?} is not coalesced");
            free_end = Some(block.address + block.len_bytes);
        } else {
            blocks.insert(block.address + GRANULE_BYTES, block.len_bytes - HEADER_BYTES);
        }
    })
    .expect("checked");
    assert_eq!(blocks.len(), used.len());
    for (at, user) in used {
        assert!(blocks.get(at).is_some_and(|&len| len >= user.layout.size()), "{user:?}");
    }
}
