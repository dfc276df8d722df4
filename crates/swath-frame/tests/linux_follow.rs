//! A Linux zone that is given a state, and told what a recording tells.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::linux::PAGEBLOCK_ORDER;
use swath_frame::{ByteRange, LinuxZone, MemoryMap, Mobility, ZoneAllocator};

use Mobility::{Movable, Reclaimable, Unmovable};

type Zone = LinuxZone<Vec<u64>>;

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn order(k: u8) -> Order {
    Order::known(k)
}

fn list(zone: &Zone, k: u8, mobility: Mobility) -> Vec<u64> {
    zone.list(order(k), mobility).map(Pfn::raw).collect()
}

/// A zone of whole memory: who uses which frame, and the pageblocks' mobilities
/// by their first frames.
fn given(
    span: Extent,
    owner: &mut dyn FnMut(u64) -> Option<Mobility>,
    pageblock: &mut dyn FnMut(u64) -> Mobility,
) -> Zone {
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas).unwrap();
    let words = vec![0; Zone::storage_words(span)];
    let zone = Zone::from_state(
        &map,
        span,
        PAGEBLOCK_ORDER,
        words,
        &mut |frame| owner(frame.raw()),
        &mut |start| pageblock(start.raw()),
    );
    zone.unwrap()
}

/// Lists ascend, blocks are as large as they can be, and each lies in the list
/// of its pageblock.
#[test]
fn a_given_state_is_that_state() {
    let span = extent(0, 2048);
    let mut zone = given(
        span,
        &mut |frame| match frame {
            0..4 | 1024.. => None,
            4..300 => Some(Movable),
            300..512 => Some(Reclaimable),
            _ => (!frame.is_multiple_of(2)).then_some(Unmovable),
        },
        &mut |start| if start == 512 { Unmovable } else { Movable },
    );
    zone.check().unwrap();
    assert_eq!(zone.free_frames(), 4 + 256 + 1024);
    assert_eq!(list(&zone, 2, Movable), [0]);
    assert_eq!(list(&zone, 10, Movable), [1024]);
    assert_eq!(list(&zone, 0, Unmovable), (512..1024).step_by(2).collect::<Vec<_>>());
    assert_eq!(zone.pageblock_users(Pfn::new(511)), [296, 212]);
    assert_eq!(zone.pageblock_users(Pfn::new(512)), [0, 256]);
    assert_eq!(zone.pageblock_users(Pfn::new(2048)), [0, 0]);

    // The block that is brought forward is the next to be taken.
    assert_eq!(zone.bring_forward(Pfn::new(700)), Some(false));
    assert_eq!(zone.bring_forward(Pfn::new(700)), Some(true));
    assert_eq!(zone.bring_forward(Pfn::new(701)), None);
    assert_eq!(zone.bring_forward(Pfn::new(2048)), None);
    assert_eq!(zone.allocate(Order::BASE, Unmovable), Some(Pfn::new(700)));
    zone.check().unwrap();

    // A part of a block is taken; what is left stays in halves.
    assert!(!zone.allocate_at(Pfn::new(0), order(3), Movable), "not all of it is free");
    assert!(!zone.allocate_at(Pfn::new(1), order(1), Movable), "not aligned");
    assert!(zone.allocate_at(Pfn::new(1540), order(2), Movable));
    zone.check().unwrap();
    assert_eq!(zone.free_block(Pfn::new(1541)), None);
    assert_eq!(zone.free_block(Pfn::new(1537)), Some((Pfn::new(1536), order(2))));
    assert_eq!(zone.free_block(Pfn::new(1100)), Some((Pfn::new(1024), order(9))));
    assert_eq!(zone.free_block(Pfn::new(1700)), Some((Pfn::new(1664), order(7))));

    // A pageblock changes over, and with it its free blocks.
    assert!(zone.set_mobility(Pfn::new(1000), Reclaimable));
    zone.check().unwrap();
    assert_eq!(list(&zone, 0, Unmovable), [0; 0]);
    assert_eq!(list(&zone, 0, Reclaimable).len(), 255);
    // A free block over two pageblocks changes whole.
    zone.free(Pfn::new(1540), order(2)).unwrap();
    assert_eq!(zone.free_block(Pfn::new(1540)), Some((Pfn::new(1024), order(10))));
    assert!(zone.set_mobility(Pfn::new(1540), Unmovable));
    zone.check().unwrap();
    assert_eq!(list(&zone, 10, Unmovable), [1024]);
    assert_eq!(zone.pageblock_mobility(Pfn::new(1024)), Some(Unmovable));
    zone.isolate(extent(1536, 512)).unwrap();
    assert!(
        !zone.set_mobility(Pfn::new(1536), Movable)
            && !zone.allocate_at(Pfn::new(1540), order(2), Movable)
    );
    zone.check().unwrap();
}

/// Half of a pageblock is free, but for one frame, and movable owners use the
/// others. A frame that none of them uses any more is enough for a claim, and
/// one more that a movable owner uses is enough against a claim.
#[test]
fn users_decide_about_a_claim() {
    let half = |free: u64| {
        move |frame: u64| (!(frame < 2 * free && frame.is_multiple_of(2))).then_some(Movable)
    };
    let start = || given(extent(0, 512), &mut half(255), &mut |_| Movable);
    for (idle, claimed) in [(0, false), (1, true)] {
        let mut zone = start();
        for frame in 0..idle {
            assert!(zone.set_user(Pfn::new(510 + frame), Unmovable));
        }
        assert_eq!(zone.free_or_alike(Pfn::new(7), Unmovable), Some(255 + idle as u32));
        zone.allocate(Order::BASE, Unmovable).unwrap();
        let mobility = if claimed { Unmovable } else { Movable };
        assert_eq!(zone.pageblock_mobility(Pfn::new(0)), Some(mobility));
        zone.check().unwrap();
    }
    // For a movable request it is the other way round.
    let mut zone = given(extent(0, 512), &mut half(255), &mut |_| Unmovable);
    assert_eq!(zone.free_or_alike(Pfn::new(0), Movable), Some(512));
    assert!((1..512).step_by(2).all(|frame| zone.set_user(Pfn::new(frame), Unmovable)));
    assert_eq!(zone.free_or_alike(Pfn::new(0), Movable), Some(255 + 1));
    assert!(zone.set_user(Pfn::new(510), Unmovable));
    assert_eq!(zone.free_or_alike(Pfn::new(0), Movable), Some(255));

    // Free frames have no user, nor have those outside; a pageblock that
    // two zones share is nobody's.
    assert!(!zone.set_user(Pfn::new(0), Movable) && !zone.set_user(Pfn::new(512), Movable));
    assert_eq!(zone.free_or_alike(Pfn::new(512), Movable), None);
    let zone = given(extent(0, 700), &mut |_| None, &mut |_| Movable);
    assert_eq!(zone.free_or_alike(Pfn::new(600), Unmovable), None);
}

/// A batch that has come down to stealing steals on, although a claim is
/// possible; the next batch claims.
#[test]
fn a_batch_that_steals_steals_on() {
    // Free are a block of 8 frames in the first pageblock and 32 in the second.
    let owner = |frame: u64| match frame {
        0..8 => None,
        512.. if (frame / 8).is_multiple_of(2) => None,
        _ => Some(Movable),
    };
    let mut zone = given(extent(0, 1024), &mut |frame| owner(frame), &mut |_| Movable);
    let mut stealing = false;
    let take = |zone: &mut Zone, stealing: &mut bool| {
        zone.allocate_of_batch(order(3), Unmovable, stealing).map(Pfn::raw)
    };
    assert_eq!((take(&mut zone, &mut stealing), stealing), (Some(0), true));
    let mut next = zone.clone();
    assert_eq!((take(&mut zone, &mut stealing), stealing), (Some(512), true));
    assert_eq!(zone.pageblock_mobility(Pfn::new(512)), Some(Movable));
    stealing = false;
    assert_eq!((take(&mut next, &mut stealing), stealing), (Some(512), false));
    assert_eq!(next.pageblock_mobility(Pfn::new(512)), Some(Unmovable));
    // The same by the trait's batches.
    let mut zone = given(extent(0, 1024), &mut |frame| owner(frame), &mut |_| Movable);
    let mut taken = Vec::new();
    let sink = &mut |start: Pfn| taken.push(start.raw());
    assert_eq!(zone.allocate_batch(order(3), Unmovable, false, 3, sink), 3);
    assert_eq!(taken, [0, 512, 528]);
    assert_eq!(zone.pageblock_mobility(Pfn::new(512)), Some(Movable));
    zone.check().unwrap();
}
