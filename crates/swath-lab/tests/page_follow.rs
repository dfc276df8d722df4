//! The baseline's zone beside a real kernel's, event by event.

use swath_arch::{Order, Pfn};
use swath_frame::Mobility;
use swath_lab::papers::green::pages::follow::{
    Agreement, Course, Difference, FallbackKind, FollowError, follow, run_free,
};
use swath_lab::papers::green::pages::recordings::FOLLOWED;
use swath_lab::papers::green::pages::requests::migrate_type_of;
use swath_trace::machine::{FrameKind, MachineFacts, RamRange, Snapshot, ZoneFacts};
use swath_trace::pages::{PageChange, PageEvent, PageReader, ZoneMax};

/// Two pageblocks: the first with 16 free frames at its start, the second free.
fn machine() -> Snapshot {
    memory([(FrameKind::Free, 16), (FrameKind::Slab, 496), (FrameKind::Free, 512)])
}

fn memory(runs: impl IntoIterator<Item = (FrameKind, u64)>) -> Snapshot {
    let zone = ZoneFacts { name: "DMA32".to_owned(), spanned_frames: 1024, ..ZoneFacts::default() };
    let facts = MachineFacts { zones: vec![zone], ..MachineFacts::default() };
    let range = RamRange { start: swath_arch::PhysAddr::new(0), len_bytes: 1024 << 12 };
    Snapshot::new(facts, vec![range], runs).unwrap()
}

fn events(changes: &[PageChange]) -> Vec<PageEvent> {
    let event = |&change| PageEvent { time_us: 0, cpu: 0, change };
    changes.iter().map(event).collect()
}

fn take(start: u64, mobility: Mobility) -> PageChange {
    let migrate_type = migrate_type_of(mobility);
    PageChange::Take { start: Pfn::new(start), order: Order::BASE, migrate_type, per_cpu: true }
}

fn fallback(start: u64, of: u8, wanted: Mobility, from: Mobility, claimed: bool) -> PageChange {
    PageChange::Fallback {
        start: Pfn::new(start),
        order: Order::BASE,
        fallback_order: Order::new(of).unwrap(),
        wanted: migrate_type_of(wanted),
        found: migrate_type_of(from),
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

fn alloc(start: u64, mobility: Mobility) -> PageChange {
    let (start, migrate_type) = (Pfn::new(start), migrate_type_of(mobility));
    PageChange::Alloc {
        start,
        order: Order::BASE,
        migrate_type,
        zone_max: ZoneMax::Normal,
        read_ahead: false,
    }
}

fn free(start: u64) -> PageChange {
    PageChange::Free { start: Pfn::new(start), order: Order::BASE }
}

/// How many fallbacks came out the same.
fn same_fallbacks(changes: &[PageChange], memory: &Snapshot) -> Agreement {
    follow(&Course::new(&events(changes), memory).unwrap()).all_fallbacks()
}

fn agreement(recorded: u64, same: u64) -> Agreement {
    Agreement { recorded, same }
}

/// Half a pageblock but one frame is free. The claim shows that a movable owner gave one of
/// the others to a per-CPU list before, or has not got it long enough.
#[test]
fn what_waits_is_not_movable() {
    let memory = memory([(FrameKind::Free, 255), (FrameKind::Anon, 257), (FrameKind::Slab, 512)]);
    // The largest block free is of order 7; after a claim the smallest is taken.
    let claim = [take(254, Mobility::Unmovable), {
        fallback(254, 7, Mobility::Unmovable, Mobility::Movable, true)
    }];
    assert_eq!(same_fallbacks(&claim, &memory), agreement(1, 0));
    let given = [&[free(300)], &claim[..]].concat();
    assert_eq!(same_fallbacks(&given, &memory), agreement(1, 1));
    // It has a movable owner again; the 31st of a row brings all of it to the LRU lists.
    let row: Vec<u64> = (300..331).collect();
    for (len, same) in [(30, 1), (31, 0)] {
        let frees = row[..len].iter().copied().map(free);
        let allocs = row[..len].iter().map(|frame| alloc(*frame, Mobility::Movable));
        let changes: Vec<PageChange> = frees.chain(allocs).chain(claim).collect();
        assert_eq!(same_fallbacks(&changes, &memory), agreement(1, same), "{len}");
    }
}

/// A block of 8 free frames in the first pageblock, 32 of them in the second: a
/// batch that has stolen the first steals on, the next batch claims.
#[test]
fn a_batch_ends_where_its_processor_goes_on() {
    let halves = (0..32).flat_map(|_| [(FrameKind::Free, 8), (FrameKind::Anon, 8)]);
    let memory = memory([(FrameKind::Free, 8), (FrameKind::Anon, 504)].into_iter().chain(halves));
    let of_three = |change: PageChange| match change {
        PageChange::Fallback { start, fallback_order, wanted, found, claimed, .. } => {
            let order = Order::known(3);
            PageChange::Fallback { start, order, fallback_order, wanted, found, claimed }
        }
        PageChange::Take { start, migrate_type, per_cpu, .. } => {
            PageChange::Take { start, order: Order::known(3), migrate_type, per_cpu }
        }
        other => other,
    };
    let (wanted, from) = (Mobility::Unmovable, Mobility::Movable);
    let first = fallback(0, 3, wanted, from, false);
    let steal = fallback(512, 3, wanted, from, false);
    let claim = [take(512, wanted), fallback(512, 3, wanted, from, true)];
    let between = alloc(0, wanted);
    for (changes, same) in [
        (vec![first, steal], 2),
        (vec![first, between, steal], 1),
        (vec![first, between, claim[0], claim[1]], 2),
        (vec![first, claim[0], claim[1]], 1),
    ] {
        let changes: Vec<PageChange> = changes.into_iter().map(of_three).collect();
        assert_eq!(same_fallbacks(&changes, &memory), agreement(2, same), "{changes:?}");
    }
}

/// A frame that is taken from the lists though nothing drained it was free since
/// it was given back.
#[test]
fn a_free_past_the_per_cpu_lists_is_found() {
    let memory = memory([(FrameKind::Free, 1), (FrameKind::Anon, 1023)]);
    let changes = [free(1), take(0, Mobility::Movable), take(1, Mobility::Movable)];
    let followed = follow(&Course::new(&events(&changes), &memory).unwrap());
    assert_eq!((followed.own, followed.given_unseen), (agreement(2, 2), 0));
}

/// The baseline does what the kernel did, to the frame; and the recording has
/// enough of each kind to say so.
#[test]
fn the_shipped_recording_is_followed() {
    let (_, recording, snapshot) = FOLLOWED;
    let events: Vec<PageEvent> =
        PageReader::new(recording).unwrap().collect::<Result<_, _>>().unwrap();
    let course = Course::new(&events, &Snapshot::read(snapshot).unwrap()).unwrap();
    let followed = follow(&course);
    assert_eq!(followed.own, agreement(104_745, 104_745));
    assert_eq!(followed.all_fallbacks(), agreement(9_414, 9_414), "{:?}", followed.differences);
    assert_eq!(followed.lists, agreement(102_362, 102_362));
    assert_eq!((followed.given_unseen, followed.given_twice, followed.reserves), (0, 0, 0));
    // In each of the six directions: single blocks stolen, pageblocks claimed.
    for wanted in Mobility::ALL {
        for from in Mobility::ALL.into_iter().filter(|from| *from != wanted) {
            for (claimed, least) in [(false, 6), (true, 15)] {
                let kind = FallbackKind { wanted, from, whole: false, claimed };
                assert!(followed.fallbacks[&kind].recorded >= least, "{kind}");
            }
        }
    }
    let whole = followed.fallbacks.iter().filter(|(kind, _)| kind.whole);
    assert_eq!(whole.map(|(_, agreement)| agreement.recorded).sum::<u64>(), 10);
    // Half of 512 frames is where the kernel claims.
    assert_eq!((followed.claimed_least, followed.left_most), (Some(256), Some(255)));
    // By itself the baseline gives the same frames for all requests.
    let free = run_free(&course);
    assert_eq!(free.takes, agreement(114_159, 114_159));
    let kinds = followed.fallbacks.iter().map(|(kind, agreement)| (*kind, agreement.recorded));
    assert_eq!(free.fallbacks, kinds.collect());
    assert_eq!((free.failed, free.end), (0, followed.end));
}
