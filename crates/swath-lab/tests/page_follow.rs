//! The baseline's zone beside a real kernel's, event by event.

use swath_arch::{Order, Pfn};
use swath_frame::Mobility;
use swath_lab::green_replay::FOLLOWED;
use swath_lab::page_events::{MigrateType, PageChange, PageEvent};
use swath_lab::page_events_file::PageReader;
use swath_lab::page_follow::{Course, Difference, FollowError, follow, run_free};
use swath_lab::snapshot::{Facts, FrameKind, RamRange, Snapshot, Zone};

/// Two pageblocks: the first with 16 free frames at its start, the second free.
fn machine() -> Snapshot {
    let zone = Zone { name: "DMA32".to_owned(), spanned_frames: 1024, ..Zone::default() };
    let facts = Facts { zones: vec![zone], ..Facts::default() };
    let range = RamRange { start: swath_arch::PhysAddr::new(0), len_bytes: 1024 << 12 };
    let runs = [(FrameKind::Free, 16), (FrameKind::Slab, 496), (FrameKind::Free, 512)];
    Snapshot::new(facts, vec![range], runs).unwrap()
}

fn events(changes: &[PageChange]) -> Vec<PageEvent> {
    let event = |&change| PageEvent { time_us: 0, cpu: 0, change };
    changes.iter().map(event).collect()
}

fn take(start: u64, mobility: Mobility) -> PageChange {
    let migrate_type = MigrateType::from(mobility);
    PageChange::Take { start: Pfn::new(start), order: Order::BASE, migrate_type, per_cpu: true }
}

fn fallback(start: u64, of: u8, wanted: Mobility, from: Mobility, claimed: bool) -> PageChange {
    PageChange::Fallback {
        start: Pfn::new(start),
        order: Order::BASE,
        fallback_order: Order::new(of).unwrap(),
        wanted: wanted.into(),
        found: from.into(),
        claimed,
    }
}

#[test]
fn what_the_rules_say_is_the_same() {
    let events = events(&[
        take(0, Mobility::Movable),
        fallback(512, 9, Mobility::Unmovable, Mobility::Movable, true),
        take(513, Mobility::Unmovable),
    ]);
    let course = Course::new(&events, &machine()).unwrap();
    let followed = follow(&course);
    assert_eq!((followed.own.recorded, followed.own.same), (2, 2));
    let all = followed.all_fallbacks();
    assert_eq!((all.recorded, all.same), (1, 1));
    assert_eq!(followed.end.of, [1, 1, 0]);
    let free = run_free(&course);
    assert_eq!((free.fallbacks.values().sum::<u64>(), free.failed, free.end.of), (1, 0, [1, 1, 0]));
}

#[test]
fn what_breaks_a_rule_is_counted() {
    let cases = [
        // The largest block is to be claimed, not the smallest taken.
        (
            vec![fallback(0, 4, Mobility::Unmovable, Mobility::Movable, false)],
            Difference::OtherBlock,
        ),
        // The whole pageblock is found, and does not change over.
        (
            vec![fallback(512, 9, Mobility::Unmovable, Mobility::Movable, false)],
            Difference::OtherClaim,
        ),
        // The own list has a block.
        (
            vec![
                take(512, Mobility::Unmovable),
                fallback(0, 4, Mobility::Unmovable, Mobility::Movable, false),
            ],
            Difference::OwnBlock,
        ),
    ];
    for (changes, expected) in cases {
        let course = Course::new(&events(&changes), &machine()).unwrap();
        let followed = follow(&course);
        let all = followed.all_fallbacks();
        assert_eq!((all.recorded, all.same), (1, 0), "{changes:?}");
        let why: Vec<Difference> = followed.differences.keys().map(|&(_, why)| why).collect();
        assert_eq!(why, [expected], "{changes:?}");
    }
    // A take of a large block although a small one is free.
    let course = Course::new(&events(&[take(600, Mobility::Movable)]), &machine()).unwrap();
    assert_eq!((follow(&course).own.recorded, follow(&course).own.same), (1, 0));
    let lost = events(&[PageChange::Lost { count: 3 }]);
    assert!(matches!(Course::new(&lost, &machine()), Err(FollowError::Lost(3))));
}

/// Held to what was measured when the recording was made.
#[test]
fn the_shipped_recording_is_followed() {
    let (_, recording, snapshot) = FOLLOWED;
    let events: Vec<PageEvent> =
        PageReader::new(recording).unwrap().collect::<Result<_, _>>().unwrap();
    let course = Course::new(&events, &Snapshot::read(snapshot).unwrap()).unwrap();
    let followed = follow(&course);
    let all = followed.all_fallbacks();
    assert_eq!((all.recorded, all.same), (12, 12), "{:?}", followed.differences);
    assert!(followed.own.same * 1000 >= followed.own.recorded * 985, "{:?}", followed.own);
    assert_eq!(followed.lists.same, followed.lists.recorded);
    // By itself the baseline falls back as the kernel did, kind by kind.
    let free = run_free(&course);
    let kinds = followed.fallbacks.iter().map(|(kind, agreement)| (*kind, agreement.recorded));
    assert_eq!(free.fallbacks, kinds.collect());
    assert_eq!((free.failed, free.end), (0, followed.end));
}
