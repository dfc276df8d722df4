//! Pairing recorded page events into requests, against a table of frames.

use std::collections::BTreeMap;

use proptest::prelude::*;
use swath_arch::{Order, Pfn};
use swath_frame::Mobility;
use swath_lab::papers::green::pages::requests::{
    HeldBlock, ReplayCounts, ReplayOp, TimedOp, held_before, replay,
};
use swath_trace::container::FileError;
use swath_trace::pages::{MigrateType, PageChange, PageEvent, PageReader, ZoneMax};

/// More blocks than there are here.
const BLOCKS_MAX: usize = 100_000;

fn order(k: u8) -> Order {
    Order::new(k).unwrap()
}

fn alloc(start: u64, k: u8) -> PageChange {
    PageChange::Alloc {
        start: Pfn::new(start),
        order: order(k),
        migrate_type: MigrateType::MOVABLE,
        zone_max: ZoneMax::Movable,
        read_ahead: false,
    }
}

fn free(start: u64, k: u8) -> PageChange {
    PageChange::Free { start: Pfn::new(start), order: order(k) }
}

fn events(changes: &[PageChange]) -> Vec<PageEvent> {
    let event = |(i, &change)| PageEvent { time_us: 10 * i as u64, cpu: i as u16 % 3, change };
    changes.iter().enumerate().map(event).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pairing_against_a_table_of_frames(
        changes in prop::collection::vec((any::<bool>(), 0..64u64, 0..=4u8), 0..300),
    ) {
        let change = |(new, start, k): (bool, u64, u8)| {
            let start = start >> k << k;
            if new { alloc(start, k) } else { free(start, k) }
        };
        let all = events(&changes.into_iter().map(change).collect::<Vec<_>>());
        let mut naive = Naive::default();
        all.iter().for_each(|event| naive.take(event.change));
        let (counts, ops) = replayed(&all, &[]);
        prop_assert_eq!(counts.unseen_frames, naive.unseen);
        prop_assert_eq!(counts.live_frames, naive.owner.len() as u64);
        prop_assert_eq!(counts.allocs - counts.frees, counts.live_blocks);
        prop_assert_eq!((counts.allocs, counts.frees), (naive.allocs, naive.frees));
        let frees = ops.iter().filter(|op| matches!(op.op, ReplayOp::Free { .. })).count();
        prop_assert_eq!(frees as u64, counts.frees);
        // With what was held before, nothing is unseen but second frees.
        let held = held_before(all.iter().copied().map(Ok::<_, FileError>), BLOCKS_MAX).unwrap();
        let (with, _) = replayed(&all, &held);
        prop_assert!(with.unseen_frames <= counts.unseen_frames);
        let mut frames = std::collections::BTreeSet::new();
        for block in held {
            for frame in block.start.raw()..block.start.raw() + block.order.frames() {
                prop_assert!(frames.insert(frame), "held twice");
            }
        }
    }
}

/// Frame by frame which block it belongs to.
#[derive(Default)]
struct Naive {
    owner: BTreeMap<u64, u64>,
    allocs: u64,
    frees: u64,
    unseen: u64,
}

impl Naive {
    fn release(&mut self, frames: std::ops::Range<u64>) -> u64 {
        let mut unseen = 0;
        for frame in frames {
            match self.owner.remove(&frame) {
                None => unseen += 1,
                Some(block) if !self.owner.values().any(|&other| other == block) => self.frees += 1,
                Some(_) => {}
            }
        }
        unseen
    }

    fn take(&mut self, change: PageChange) {
        match change {
            PageChange::Alloc { start, order, .. } => {
                let frames = start.raw()..start.raw() + order.frames();
                self.release(frames.clone());
                self.owner.extend(frames.map(|frame| (frame, self.allocs)));
                self.allocs += 1;
            }
            PageChange::Free { start, order } => {
                self.unseen += self.release(start.raw()..start.raw() + order.frames());
            }
            _ => {}
        }
    }
}

/// Replays, and holds the requests against what they promise.
fn replayed(all: &[PageEvent], held: &[HeldBlock]) -> (ReplayCounts, Vec<TimedOp>) {
    let mut ops = Vec::new();
    let mut live = BTreeMap::new();
    let (mut frames, mut peak, mut time) = (0, 0, 0);
    let events = all.iter().copied().map(Ok::<_, FileError>);
    let counts = replay(events, held, BLOCKS_MAX, &mut |op| {
        assert!(op.time_us >= time);
        time = op.time_us;
        match op.op {
            ReplayOp::Alloc { id, order, .. } => {
                assert!(live.insert(id, order).is_none(), "handle {id} is in use");
                frames += order.frames();
                peak = peak.max(frames);
            }
            ReplayOp::Free { id } => {
                frames -= live.remove(&id).expect("freed once").frames();
            }
        }
        ops.push(op);
    })
    .unwrap();
    assert_eq!(live.len() as u64, counts.live_blocks);
    // Parts leave earlier than the block that they belong to.
    assert!(counts.live_frames <= frames && counts.peak_frames <= peak);
    (counts, ops)
}

#[test]
fn pairing_by_hand() {
    let all = events(&[
        free(0x40, 3),
        alloc(0x80, 2),
        PageChange::FreeBatched { start: Pfn::new(0x80) },
        free(0x80, 0),
        free(0x82, 1),
        alloc(0x90, 0),
        free(0x81, 0),
        alloc(0x90, 0),
        PageChange::AllocFailed {
            order: order(9),
            migrate_type: MigrateType::MOVABLE,
            zone_max: ZoneMax::Dma,
        },
        PageChange::Lost { count: 7 },
        free(1, 1),
        alloc(0, 20),
    ]);
    let (counts, ops) = replayed(&all, &[]);
    let expected = ReplayCounts {
        allocs: 3,
        frees: 2,
        frees_implied: 1,
        frees_in_parts: 1,
        unseen_frames: 8,
        refused: 1,
        lost: 7,
        live_blocks: 1,
        live_frames: 1,
        peak_frames: 4,
    };
    assert_eq!(counts, expected);
    let new = |id, k: u8, cpu| ReplayOp::Alloc {
        id,
        order: order(k),
        mobility: Mobility::Movable,
        zone_max: ZoneMax::Movable,
        cpu,
        cached: false,
    };
    let expected = [
        (10, new(0, 2, 1)),
        (50, new(1, 0, 2)),
        (60, ReplayOp::Free { id: 0 }),
        (70, ReplayOp::Free { id: 1 }),
        (70, new(1, 0, 1)),
    ];
    assert_eq!(ops, expected.map(|(time_us, op)| TimedOp { time_us, op }));
    let held = held_before(all.iter().copied().map(Ok::<_, FileError>), BLOCKS_MAX).unwrap();
    assert_eq!(held, [HeldBlock { start: Pfn::new(0x40), order: order(3) }]);
    let (counts, ops) = replayed(&all, &held);
    assert_eq!((counts.unseen_frames, counts.frees), (0, 3));
    assert_eq!(ops[1], TimedOp { time_us: 0, op: ReplayOp::Free { id: 0 } });
    let broken = FileError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
    let error = replay([Err(broken)], &[], BLOCKS_MAX, &mut |_| {}).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }), "{error}");
}

#[test]
fn the_shipped_recordings() {
    for name in ["compile", "files"] {
        let path = format!("{}/data/{name}.swpages", env!("CARGO_MANIFEST_DIR"));
        let all: Vec<_> = PageReader::open(path.as_ref()).unwrap().map(Result::unwrap).collect();
        let (counts, _) = replayed(&all, &[]);
        assert!(counts.allocs > 15_000 && counts.frees > 5_000, "{name}: {counts:?}");
    }
}
