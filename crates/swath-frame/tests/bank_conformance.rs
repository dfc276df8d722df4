//! The three bank-aware allocators against the suite of all zone allocators,
//! in many shapes of banks, and with every switch.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::testing::zones::conform;
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, BankLayoutError, BankPreference, BoundaryPlacement,
    ListPlacement, Placement, PoolPlacement, PoolPolicy,
};
use swath_frame::{ByteRange, MemoryMap, ZoneAllocator};

/// Areas, the zone's span, frames of a bank, order of the largest block.
type Shape = (&'static [(u64, u64)], (u64, u64), u64, u8);

const SHAPES: &[Shape] = &[
    // Banks smaller than a word, and just one; then of some words.
    (&[(0, 16)], (0, 16), 4, 2),
    (&[(0, 256)], (0, 256), 32, 5),
    (&[(0, 512)], (0, 512), 64, 5),
    (&[(0, 512)], (0, 512), 64, 6),
    (&[(0, 1024)], (0, 1024), 256, 8),
    // Orders that end below the bank's, and single frames only.
    (&[(0, 1024)], (0, 1024), 256, 3),
    (&[(0, 300)], (0, 300), 64, 0),
    // Partial banks at both ends, holes, a bank that is one hole.
    (&[(37, 500), (600, 200), (1100, 413)], (37, 1476), 128, 7),
    (&[(5, 200), (210, 20), (960, 70)], (0, 1030), 256, 6),
    // Banks that cross into other zones on both sides.
    (&[(0, 2048)], (100, 1000), 256, 8),
    (&[(0, 2048)], (300, 100), 256, 8),
    // More than 64 banks, and banks of more than 64 words.
    (&[(0, 100 * 16)], (0, 1600), 16, 4),
    (&[(0, 3 << 13)], (0, 3 << 13), 1 << 13, 10),
];

fn check<P: Placement>(rule: impl Fn() -> P, shapes: &[Shape], seeds: u64, steps: usize) {
    for &(areas, (start, count), frames, top) in shapes {
        let ranges: Vec<_> = areas
            .iter()
            .map(|&(start, count)| ByteRange::of_frames(Extent::new(Pfn::new(start), count)))
            .collect();
        let mut storage = vec![Extent::default(); ranges.len()];
        let map = MemoryMap::new(&ranges, &mut storage).unwrap();
        let zone = Extent::new(Pfn::new(start), count);
        let top = Order::known(top);
        let banks = BankLayout::new(Pfn::new(0), frames, top).unwrap();
        let words = BankBuddy::<Vec<u64>, P>::storage_words(&map, zone, banks, &rule()).unwrap();
        // A large zone costs the oracle much at every step.
        let steps = if count > 4096 { steps / 20 } else { steps };
        for seed in 0..seeds {
            let storage = vec![seed; words];
            let mut buddy = BankBuddy::new(&map, zone, banks, rule(), storage).unwrap();
            conform(&map, zone, top, &mut buddy, seed, steps, &mut |_, _| {});
            assert_eq!(buddy.free_frames(), buddy.total_frames());
        }
        let words = BankBuddy::<Vec<u64>, P>::checked_words(&map, zone, banks, &rule()).unwrap();
        let buddy = BankBuddy::new(&map, zone, banks, rule(), vec![1; words - 1]).unwrap();
        let error = buddy.checked().map(|_| ()).unwrap_err();
        let (needed_words, given_words) = (words, words - 1);
        assert_eq!(error, BankLayoutError::Storage { needed_words, given_words });
        let buddy = BankBuddy::new(&map, zone, banks, rule(), vec![1; words]).unwrap();
        let mut buddy = buddy.checked().unwrap();
        conform(&map, zone, top, &mut buddy, 1, steps, &mut |_, _| {});
        assert_eq!(buddy.find_fault(), Ok(()));
    }
}

#[test]
fn array() {
    check(|| ArrayPlacement, SHAPES, 4, 2000);
}

#[test]
fn boundary() {
    for slack_frames in [0, 16, 1000] {
        check(|| BoundaryPlacement::new(slack_frames), SHAPES, 3, 1500);
    }
}

#[test]
fn list() {
    for recent_first in [false, true] {
        check(|| ListPlacement::new(recent_first), SHAPES, 4, 1500);
    }
}

#[test]
fn adaptive() {
    use BankPreference::{Fullest, Outermost, Recent};
    for kernel in [Recent, Outermost, Fullest] {
        for user in [Recent, Outermost, Fullest] {
            check(|| PoolPlacement::new(PoolPolicy { kernel, user }), SHAPES, 2, 1200);
        }
    }
}
