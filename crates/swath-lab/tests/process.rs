//! The benchmarks' programs against their formulas, and replayed recordings.

use std::collections::HashSet;
use std::io::Cursor;

use swath_arch::VirtAddr;
use swath_lab::papers::superpages::benchmark::{
    Copy, Forkbomb, Gups, MissLoop, ProgramError, RandomLatency, Sweep, Threads, gups_next,
    gups_start,
};
use swath_lab::papers::superpages::process::{Action, Step, replay, replay_in_turn};
use swath_trace::access::{
    AccessKind, MapBacking, MapProtection, MemoryAccess, Sampling, TraceError, TraceEvent,
    TraceHeader, TraceReader, TraceWriter,
};

const START: VirtAddr = VirtAddr::new(0x4000_0000);

fn collect(steps: Result<impl Iterator<Item = Step>, ProgramError>) -> Vec<Step> {
    steps.unwrap().collect()
}

/// Offset from `START`, length and kind of the accesses between begin and end.
fn measured(steps: &[Step]) -> Vec<(u64, u16, AccessKind)> {
    let at = |action| steps.iter().position(|step| step.action == action).unwrap();
    steps[at(Action::BEGIN)..at(Action::End)]
        .iter()
        .filter_map(|step| match step.action {
            Action::Access { addr, len_bytes, kind, .. } => {
                Some((addr.raw() - START.raw(), len_bytes, kind))
            }
            _ => None,
        })
        .collect()
}

/// What is true of every program: one mapping first, every access is mapped,
/// begin and end once, processes live between their fork and their exit, and
/// the first exits last.
fn check(steps: &[Step]) {
    assert!(matches!(steps[0].action, Action::Memory(TraceEvent::Map { .. })));
    assert_eq!(*steps.last().unwrap(), Step { process: 0, action: Action::Exit });
    let mut mapped = HashSet::new();
    let mut alive = HashSet::from([0]);
    let (mut begins, mut ends) = (0, 0);
    for step in steps {
        assert!(alive.contains(&step.process));
        match step.action {
            Action::Memory(TraceEvent::Map { pages, .. }) => mapped.extend(pages.iter()),
            Action::Memory(TraceEvent::Unmap { pages }) => {
                pages.iter().for_each(|page| assert!(mapped.remove(&page)));
            }
            Action::Access { addr, len_bytes, kind, .. } => {
                let access = MemoryAccess::new(addr, len_bytes, kind).unwrap();
                assert!(access.pages().iter().all(|page| mapped.contains(&page)));
            }
            Action::Fork { child } | Action::Thread { child } => assert!(alive.insert(child)),
            Action::Exit => assert!(alive.remove(&step.process)),
            Action::BEGIN => begins += 1,
            Action::Begin { .. } => panic!("{step:?}"),
            Action::End => ends += 1,
            Action::Memory(_) => {}
        }
    }
    assert_eq!((begins, ends, alive.len()), (1, 1, 0));
}

fn gups(table_bytes: u64, updates: u64, seed: u64) -> Gups {
    Gups { table: START, table_bytes, updates, seed, update_cycles: 3 }
}

#[test]
fn random_access_is_hpcc_s() {
    // The sequence by its definition, step by step.
    let mut ran = 1i64;
    let mut sequence = vec![1u64];
    for _ in 0..1000 {
        ran = ran.wrapping_shl(1) ^ if ran < 0 { 7 } else { 0 };
        sequence.push(ran.cast_unsigned());
    }
    assert_eq!(sequence[62..66], [1 << 62, 1 << 63, 7, 14]);
    for (i, &value) in sequence.iter().enumerate() {
        assert_eq!(gups_start(i as u64), value);
    }
    assert!(sequence.windows(2).all(|pair| gups_next(pair[0]) == pair[1]));
    // HPCC's period: after it the sequence is where it was.
    assert_eq!(gups_start(1_317_624_576_693_539_401), 1);
    let steps = collect(gups(1 << 16, 900, 17).steps());
    check(&steps);
    let accesses = measured(&steps);
    assert_eq!(accesses.len(), 1800);
    for (i, pair) in accesses.chunks(2).enumerate() {
        let offset = sequence[17 + i + 1] % (1 << 13) * 8;
        assert_eq!(*pair, [(offset, 8, AccessKind::Read), (offset, 8, AccessKind::Write)]);
    }
    for bad in [0, 4, 24, 1 << 50] {
        assert!(gups(bad, 1, 0).steps().is_err());
    }
    assert!(Gups { table: VirtAddr::new(8), ..gups(64, 1, 0) }.steps().is_err());
    assert!(Gups { table: VirtAddr::new(!0xfff), ..gups(1 << 13, 1, 0) }.steps().is_err());
}

#[test]
fn sweeps() {
    let sweep = Sweep {
        start: START,
        len_bytes: 3 * 4096 + 8,
        word_bytes: 4,
        stride_bytes: 4,
        write: false,
        file: None,
        remap: false,
        passes: 2,
        word_cycles: 0,
    };
    let all: Vec<u64> = (0..3074).map(|i| i * 4).collect();
    let steps = collect(sweep.steps());
    check(&steps);
    let reads = measured(&steps);
    assert!(reads.iter().all(|&(_, len, kind)| (len, kind) == (4, AccessKind::Read)));
    let offsets: Vec<u64> = reads.iter().map(|&(offset, ..)| offset).collect();
    assert_eq!(offsets, [&all[..], &all].concat());
    // Four pages are touched before.
    assert_eq!(steps.iter().position(|step| step.action == Action::BEGIN), Some(5));

    let writes = measured(&collect(Sweep { write: true, stride_bytes: 16, ..sweep }.steps()));
    assert_eq!(writes.len(), 2 * 769);
    assert!(
        writes
            .iter()
            .zip(0..769)
            .all(|(&(offset, _, kind), i)| { (offset, kind) == (i * 16, AccessKind::Write) })
    );

    let reread = collect(Sweep { file: Some(5), remap: true, ..sweep }.steps());
    check(&reread);
    assert_eq!(measured(&reread), reads);
    let maps = reread.iter().filter(|step| {
        matches!(
            step.action,
            Action::Memory(TraceEvent::Map {
                backing: MapBacking::File { file: 5, .. },
                protection: MapProtection::READ,
                ..
            })
        )
    });
    assert_eq!(maps.count(), 2);
    for bad in [
        Sweep { word_bytes: 0, ..sweep },
        Sweep { word_bytes: 3, ..sweep },
        Sweep { stride_bytes: 2, ..sweep },
        Sweep { len_bytes: 0, ..sweep },
        Sweep { file: Some(0), write: true, ..sweep },
    ] {
        assert!(bad.steps().is_err(), "{bad:?}");
    }
}

#[test]
fn copies() {
    let copy = Copy {
        source: START,
        destination: VirtAddr::new(START.raw() + 0x10_0000),
        len_bytes: 8192,
        word_bytes: 8,
        block_bytes: 32,
        passes: 2,
        block_cycles: 1,
    };
    let steps = collect(copy.steps());
    let maps = steps.iter().filter(|s| matches!(s.action, Action::Memory(TraceEvent::Map { .. })));
    assert_eq!(maps.count(), 2);
    let accesses = measured(&steps);
    let mut expected = Vec::new();
    for _ in 0..2 {
        for block in 0..256u64 {
            expected.extend((0..4).map(|i| (block * 32 + i * 8, 8, AccessKind::Read)));
            let to = |i: u64| (0x10_0000 + block * 32 + i * 8, 8, AccessKind::Write);
            expected.extend((0..4).map(to));
        }
    }
    assert_eq!(accesses, expected);
    let by_hand = measured(&collect(Copy { word_bytes: 4, block_bytes: 4, ..copy }.steps()));
    assert_eq!(
        by_hand[..3],
        [(0, 4, AccessKind::Read), (0x10_0000, 4, AccessKind::Write), (4, 4, AccessKind::Read),]
    );
    for bad in [
        Copy { destination: VirtAddr::new(START.raw() + 4096), ..copy },
        Copy { block_bytes: 0, ..copy },
        Copy { word_bytes: 0, ..copy },
        Copy { word_bytes: 5, ..copy },
        Copy { len_bytes: 8200, ..copy },
    ] {
        assert!(bad.steps().is_err(), "{bad:?}");
    }
}

#[test]
fn random_latency_visits_every_place_once() {
    for (pages, stride) in [(1, 4096), (1, 128), (13, 128), (64, 64), (7, 4096)] {
        let places = 4096 / stride;
        let ring = RandomLatency {
            start: START,
            len_bytes: pages * 4096,
            stride_bytes: stride,
            loads: 2 * pages * places,
            seed: 3,
            pointer_bytes: 4,
        };
        let steps = collect(ring.steps());
        check(&steps);
        let dependent = |step: &Step| matches!(step.action, Action::Access { dependent: true, .. });
        assert_eq!(steps.iter().filter(|step| dependent(step)).count() as u64, ring.loads);
        let loads: Vec<u64> = measured(&steps).iter().map(|&(offset, ..)| offset).collect();
        let (round, again) = loads.split_at(loads.len() / 2);
        assert_eq!(round, again);
        let distinct: HashSet<u64> = round.iter().copied().collect();
        assert_eq!(distinct.len(), round.len());
        assert!(distinct.iter().all(|offset| offset % stride == 0));
        if pages > 1 {
            assert!(loads.windows(2).all(|pair| pair[0] / 4096 != pair[1] / 4096));
        }
        // The formula, with the pages' order taken from the first loads.
        let order: Vec<u64> = loads[..pages as usize].iter().map(|load| load / 4096).collect();
        let bits = places.trailing_zeros();
        let reverse = |x: u64| (0..bits).fold(0, |r, i| r | (x >> i & 1) << (bits - 1 - i));
        for (t, &load) in (0u64..).zip(round) {
            let place = reverse((t % pages + t / pages) % places);
            assert_eq!(load, order[(t % pages) as usize] * 4096 + place * stride);
        }
        let other = collect(RandomLatency { seed: 4, ..ring }.steps());
        assert_eq!(steps == other, pages == 1);
        assert!(RandomLatency { stride_bytes: 48, ..ring }.steps().is_err());
        assert!(RandomLatency { pointer_bytes: 5, ..ring }.steps().is_err());
        assert!(RandomLatency { len_bytes: 4097, ..ring }.steps().is_err());
    }
}

#[test]
fn a_forkbomb_is_a_tree() {
    let bomb = Forkbomb {
        data: START,
        data_pages: 10,
        written_pages: 3,
        children: 3,
        depth: 3,
        write_cycles: 0,
    };
    assert_eq!(bomb.processes(), Some(1 + 3 + 9 + 27));
    let steps = collect(bomb.steps());
    check(&steps);
    let mut parents = vec![None; 40];
    let mut written = vec![Vec::new(); 40];
    let mut alive = 1;
    let mut most = 1;
    for step in &steps[12..] {
        match step.action {
            Action::Fork { child } => {
                parents[child as usize] = Some(step.process);
                alive += 1;
                most = most.max(alive);
            }
            Action::Access { addr, .. } => {
                written[step.process as usize].push(addr.page().raw() - START.page().raw());
            }
            Action::Exit => alive -= 1,
            _ => {}
        }
    }
    assert_eq!((alive, most), (0, 40));
    for child in 1..40u32 {
        assert_eq!(parents[child as usize], Some((child - 1) / 3));
        assert_eq!(written[child as usize], [0, 3, 6]);
    }
    // A chain, a single process, and too many.
    assert_eq!(Forkbomb { children: 1, depth: 5, ..bomb }.processes(), Some(6));
    check(&collect(Forkbomb { depth: 0, ..bomb }.steps()));
    check(&collect(Forkbomb { written_pages: 0, ..bomb }.steps()));
    assert_eq!(Forkbomb { children: 2, depth: u32::MAX, ..bomb }.processes(), None);
    for bad in [
        Forkbomb { children: 0, ..bomb },
        Forkbomb { depth: 20, ..bomb },
        Forkbomb { written_pages: 11, ..bomb },
        Forkbomb { data_pages: 0, written_pages: 0, ..bomb },
        Forkbomb { data_pages: u64::MAX, ..bomb },
    ] {
        assert!(bad.steps().is_err(), "{bad:?}");
    }
}

#[test]
fn threads_share_the_pages_out() {
    let threads = Threads { start: START, len_bytes: 10 * 4096, threads: 3, superpage_pages: 8 };
    let steps = collect(threads.steps());
    check(&steps);
    let written: Vec<(u32, u64)> = steps
        .iter()
        .filter_map(|step| match step.action {
            Action::Access { addr, kind: AccessKind::Write, .. } => {
                Some((step.process, addr.page() - START.page()))
            }
            _ => None,
        })
        .collect();
    let filled: Vec<(u32, u64)> = (0..10).map(|page| (page as u32 % 3, page)).collect();
    assert_eq!(written[..10], filled);
    assert_eq!(written[10..], [(0, 0), (1, 1), (2, 2), (0, 8), (1, 9), (2, 9)]);
    let protects =
        steps.iter().filter(|s| matches!(s.action, Action::Memory(TraceEvent::Protect { .. })));
    assert_eq!(protects.count(), 2 * 2);
    check(&collect(Threads { threads: 1, ..threads }.steps()));
    assert!(Threads { threads: 0, ..threads }.steps().is_err());
    assert!(Threads { superpage_pages: 0, ..threads }.steps().is_err());
    assert!(Threads { len_bytes: 0, ..threads }.steps().is_err());
}

#[test]
fn the_miss_loop_takes_a_page_a_turn() {
    let miss = MissLoop {
        start: START,
        tlb_entries: 64,
        superpage_bytes: 1 << 20,
        touch_first: true,
        skew_bytes: 64,
        passes: 1,
        turn_cycles: 4,
    };
    // The talk's 32,882 misses are these and 114 of others.
    assert_eq!(miss.pages(), Some(32_768));
    let steps = collect(miss.steps());
    check(&steps);
    let offsets: Vec<u64> = measured(&steps).iter().map(|&(offset, ..)| offset).collect();
    let expected: Vec<u64> = (0..32_768).map(|i| i * 4096 + i * 64 % 4096).collect();
    assert_eq!(offsets, expected);
    let near = collect(
        miss.without_misses(1)
            .unwrap()
            .map(Ok::<_, ProgramError>)
            .collect::<Result<Vec<_>, _>>()
            .map(Vec::into_iter),
    );
    assert_eq!(near.len(), steps.len());
    assert!(measured(&near).iter().zip(&expected).all(|(&(o, ..), e)| o == e % 4096));
    let cold = collect(MissLoop { touch_first: false, passes: 2, ..miss }.steps());
    assert_eq!(cold.len(), 1 + 1 + 2 * 32_768 + 2);
    assert!(miss.without_misses(0).is_err());
    for bad in [
        MissLoop { tlb_entries: u64::MAX, ..miss },
        MissLoop { tlb_entries: 0, ..miss },
        MissLoop { superpage_bytes: 4097, ..miss },
        MissLoop { skew_bytes: 3, ..miss },
    ] {
        assert!(bad.steps().is_err(), "{bad:?}");
    }
}

/// Programs are made to be run in the tens of millions of steps.
#[test]
fn long_programs_need_no_memory() {
    let reads = gups(1 << 30, u64::MAX >> 1, 0).steps().unwrap();
    let begun = reads.skip_while(|step| step.action != Action::BEGIN).skip(1);
    let sum = begun.take(2_000_000).fold(0u64, |sum, step| match step.action {
        Action::Access { addr, .. } => sum.wrapping_add(addr.raw()),
        _ => panic!("{step:?}"),
    });
    assert_ne!(sum, 0);
}

fn trace(header: &TraceHeader, items: &[Result<u64, TraceEvent>]) -> TraceReader {
    let mut writer = TraceWriter::with_header(Vec::new(), 1, header).unwrap();
    for item in items {
        match *item {
            Ok(addr) => {
                let access = MemoryAccess::new(VirtAddr::new(addr), 4, AccessKind::Read).unwrap();
                writer.push(access).unwrap();
            }
            Err(event) => writer.push_event(event).unwrap(),
        }
    }
    TraceReader::from_reader(Cursor::new(writer.finish().unwrap()), None).unwrap()
}

/// Steps in a few letters.
fn text(steps: impl Iterator<Item = Result<Step, TraceError>>) -> String {
    let text: Vec<String> = steps
        .map(Result::unwrap)
        .map(|step| match step.action {
            Action::Access { addr, compute_cycles: 2, .. } => addr.raw().to_string(),
            Action::BEGIN => "[".into(),
            Action::Begin { weight } => format!("{weight}["),
            Action::End => "]".into(),
            Action::Memory(TraceEvent::Skip { accesses }) => format!("-{accesses}"),
            Action::Fork { child } => format!("fork {child}"),
            Action::Exit => format!("exit {}", step.process),
            other => panic!("{other:?}"),
        })
        .collect();
    text.join(" ")
}

#[test]
fn replays_mark_the_bursts() {
    let header = TraceHeader { sampling: Sampling::new(2, 5), ..TraceHeader::default() };
    let skip = |accesses| Err(TraceEvent::Skip { accesses });
    let items = [Ok(1), Ok(2), skip(1), Ok(3), skip(1), Ok(4), Err(TraceEvent::Fork), Ok(5), Ok(6)];
    let short = || trace(&header, &items);
    assert_eq!(text(replay(short(), 2)), "2[ 1 2 ] -1 3 -1 2[ 4 fork 1 exit 1 5 ] 6 exit 0");
    // The first quarter of a burst warms up.
    let header = TraceHeader { sampling: Sampling::new(4, 8), ..TraceHeader::default() };
    let items = [Ok(1), Ok(2), Ok(3), Ok(4), skip(3), Ok(5), Ok(6), Ok(7)];
    assert_eq!(text(replay(trace(&header, &items), 2)), "1 2[ 2 3 4 ] -3 5 6 2[ 7 ] exit 0");
    // Programs in turn are children of one that does nothing.
    let turn = [short(), trace(&header, &items)];
    assert_eq!(
        text(replay_in_turn(turn, 2)),
        "fork 65536 2[ 1 2 ] -1 3 -1 2[ 4 fork 65537 exit 65537 5 ] 6 exit 65536 \
         fork 131072 1 2[ 2 3 4 ] -3 5 6 2[ 7 ] exit 131072 exit 0"
    );

    let whole = [Ok(7), Err(TraceEvent::Fork), Err(TraceEvent::Fork), Ok(8)];
    let steps: Vec<_> =
        replay(trace(&TraceHeader::default(), &whole), 0).map(Result::unwrap).collect();
    let ends = |step: Option<&Step>, action| assert_eq!(step.unwrap().action, action);
    ends(steps.first(), Action::BEGIN);
    ends(steps.last(), Action::Exit);
    assert_eq!(steps.len(), 1 + 2 + 4 + 1 + 1);
    let cut = TraceReader::from_reader(Cursor::new(*b"SWTRAC\r\n\x02"), None);
    assert!(cut.is_err());
}
