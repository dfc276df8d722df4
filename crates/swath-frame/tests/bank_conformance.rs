//! The three bank-aware allocators against the suite of all zone allocators,
//! in many shapes of banks, and with every switch.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::testing::zones::conform;
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, BankLayoutError, BankPreference, BoundaryPlacement,
    ListPlacement, Placement, PoolPlacement, PoolPolicy, TreePlacement,
};
use swath_frame::{ByteRange, MemoryMap, Mobility, ZoneAllocator};

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

fn ranges_of(areas: &[(u64, u64)]) -> Vec<ByteRange> {
    let of = |&(start, count)| ByteRange::of_frames(Extent::new(Pfn::new(start), count));
    areas.iter().map(of).collect()
}

fn check<P: Placement>(rule: impl Fn() -> P, shapes: &[Shape], seeds: u64, steps: usize) {
    for &(areas, (start, count), frames, top) in shapes {
        let ranges = ranges_of(areas);
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
fn trees() {
    for huge_order in [0, 3, 20] {
        check(|| TreePlacement::new(huge_order), SHAPES, 3, 1500);
    }
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

/// Begun in any state, a zone has exactly the other frames free, keeps its invariants, and once the
/// frames in use are given back it is as good as new.
fn begin<P: Placement>(rule: impl Fn() -> P) {
    for &(areas, (start, count), frames, top) in SHAPES {
        let ranges = ranges_of(areas);
        let mut storage = vec![Extent::default(); ranges.len()];
        let map = MemoryMap::new(&ranges, &mut storage).unwrap();
        let zone = Extent::new(Pfn::new(start), count);
        let banks = BankLayout::new(Pfn::new(0), frames, Order::known(top)).unwrap();
        let words = BankBuddy::<Vec<u64>, P>::storage_words(&map, zone, banks, &rule()).unwrap();
        for seed in 1..20u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut draw = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let (mut used, mut at) = (Vec::new(), draw(2 * frames));
            while at < 4096 {
                let run = Extent::new(Pfn::new(at), 1 + draw(frames));
                let mobility = Mobility::ALL[draw(3) as usize];
                used.push((run, mobility));
                at = run.end().raw() + draw(3 * frames);
            }
            let begun = BankBuddy::from_state(
                &map,
                zone,
                banks,
                rule(),
                vec![seed; words],
                used.iter().copied(),
            );
            let mut buddy = begun.unwrap();
            assert_eq!(buddy.check(), Ok(()));
            let own: Vec<Pfn> =
                map.areas().iter().flat_map(|area| area.intersect(zone).iter()).collect();
            let is_used = |frame: &Pfn| used.iter().any(|(run, _)| run.contains(*frame));
            for frame in &own {
                assert_eq!(buddy.is_free(*frame), !is_used(frame), "{frame} of {used:?}");
            }
            let taken: Vec<_> = own.into_iter().filter(is_used).collect();
            assert_eq!(buddy.free_frames(), buddy.total_frames() - taken.len() as u64);
            for bank in (0..buddy.banks()).filter_map(|bank| buddy.bank(bank)) {
                assert!(!bank.isolated);
            }
            for frame in taken {
                buddy.free(frame, Order::BASE).unwrap();
            }
            assert_eq!(buddy.check(), Ok(()));
            assert_eq!(buddy.free_frames(), buddy.total_frames());
        }
    }
}

#[test]
fn begun_with_frames_in_use() {
    begin(|| ArrayPlacement);
    begin(|| ListPlacement::new(true));
    begin(|| PoolPlacement::new(PoolPolicy::PACKED));
    begin(|| PoolPlacement::new(PoolPolicy::PAPER));
    begin(|| BoundaryPlacement::new(64));
    begin(|| TreePlacement::new(5));
}

/// A bank serves those that use most of it, also where it holds frames of the others.
#[test]
fn a_bank_begins_in_the_pool_of_most_of_its_frames() {
    let zone = Extent::new(Pfn::new(0), 4 << 10);
    let mut areas = [Extent::default(); 1];
    let map = MemoryMap::new(&[ByteRange::of_frames(zone)], &mut areas).unwrap();
    let banks = BankLayout::new(Pfn::new(0), 1 << 10, Order::known(9)).unwrap();
    let rule = PoolPlacement::new(PoolPolicy::PACKED);
    let words = BankBuddy::<Vec<u64>, _>::storage_words(&map, zone, banks, &rule).unwrap();
    let used = [
        (Extent::new(Pfn::new(0), 10), Mobility::Movable),
        (Extent::new(Pfn::new(20), 11), Mobility::Reclaimable),
        (Extent::new(Pfn::new(1024), 10), Mobility::Movable),
        // From one bank into the next.
        (Extent::new(Pfn::new(2043), 10), Mobility::Unmovable),
    ];
    let buddy = BankBuddy::from_state(&map, zone, banks, rule, vec![0; words], used).unwrap();
    let pools = [0, 1, 2, 3].map(|bank| buddy.bank(bank).unwrap().pool.unwrap());
    use swath_frame::zone::bank::BankPool::{Kernel, Offline, User};
    assert_eq!(pools, [Kernel, User, Kernel, Offline]);
}
