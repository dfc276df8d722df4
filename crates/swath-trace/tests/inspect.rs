//! Huge pages that can be had against the plainest model, and a made-up `/proc` read part by
//! part.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use swath_arch::PhysAddr;
use swath_trace::histogram::Histogram;
use swath_trace::inspect::{GIGANTIC_FRAMES, HUGE_FRAMES, HugePages, MachineMemory};
use swath_trace::machine::{FrameKind, MachineFacts, RamRange, Snapshot, UnknownFrames, classify};

const FRAME_BYTES: u64 = 4096;

fn range(first: u64, count: u64) -> RamRange {
    RamRange { start: PhysAddr::new(first * FRAME_BYTES), len_bytes: count * FRAME_BYTES }
}

/// The kind of each frame of RAM, ascending: the model.
type Frames = Vec<(u64, FrameKind)>;

fn frames_of(snapshot: &Snapshot) -> Frames {
    let frames = |run: swath_trace::machine::FrameRun| {
        (run.extent.start.raw()..run.extent.end().raw()).map(move |frame| (frame, run.kind))
    };
    snapshot.runs().flat_map(frames).collect()
}

/// What a place of `size` frames is, frame by frame.
#[derive(Default)]
struct Model {
    free: u64,
    in_use: u64,
    movable: Vec<u64>,
    unsettled: u64,
    blocked: u64,
    alone: [u64; FrameKind::COUNT],
    outside: u64,
}

fn model(frames: &Frames, size: u64, unmarked: UnknownFrames) -> Model {
    // Units without any mark.
    let units = frames.chunk_by(|a, b| a.0 / HUGE_FRAMES == b.0 / HUGE_FRAMES);
    let is_whole = |unit: &&[(u64, FrameKind)]| {
        unit.len() as u64 == HUGE_FRAMES && unit.iter().all(|&(_, kind)| kind == FrameKind::Unknown)
    };
    let whole: Vec<u64> = units.filter(is_whole).map(|unit| unit[0].0 / HUGE_FRAMES).collect();
    let is_free = |&(frame, kind): &(u64, FrameKind)| match kind {
        FrameKind::Free => true,
        FrameKind::Unknown => {
            unmarked == UnknownFrames::Free && whole.contains(&(frame / HUGE_FRAMES))
        }
        _ => false,
    };
    let is_movable = |kind: FrameKind| {
        use FrameKind::{Anon, File, HugeTlb, LargeFolio};
        matches!(kind, Anon | File | HugeTlb | LargeFolio)
    };
    let mut model = Model::default();
    for place in frames.chunk_by(|a, b| a.0 / size == b.0 / size) {
        let kinds: Vec<FrameKind> = place.iter().map(|&(_, kind)| kind).collect();
        let all = |kind| kinds.iter().all(|&other| other == kind);
        let marked = |kind: &&FrameKind| !matches!(kind, FrameKind::Free | FrameKind::Unknown);
        let fixed: Vec<_> =
            kinds.iter().filter(marked).filter(|&&kind| !is_movable(kind)).collect();
        let free = place.iter().filter(|&frame| is_free(frame)).count() as u64;
        let hangs = |frame: &(u64, FrameKind)| frame.1 == FrameKind::Unknown && !is_free(frame);
        if (kinds.len() as u64) < size {
            model.outside += free;
        } else if all(FrameKind::Free) {
            model.free += 1;
        } else if let Some(&&first) = fixed.first() {
            model.blocked += 1;
            model.outside += free;
            if fixed.iter().all(|&&kind| kind == first) {
                model.alone[usize::from(first.code())] += 1;
            }
        } else if place.iter().any(hangs) {
            model.unsettled += 1;
            model.outside += free;
        } else if all(FrameKind::HugeTlb) || size == HUGE_FRAMES && all(FrameKind::LargeFolio) {
            model.in_use += 1;
        } else {
            model.movable.push(size - free);
        }
    }
    model
}

/// Empties as many places as there is room for, the fewest frames first, one by one.
fn compact(model: &Model, size: u64) -> (u64, u64) {
    let mut movable = model.movable.clone();
    movable.sort_unstable();
    let mut best = (0, 0);
    for count in 1..=movable.len() {
        let (chosen, others) = movable.split_at(count);
        let moved: u64 = chosen.iter().sum();
        let room = model.outside + others.iter().map(|used| size - used).sum::<u64>();
        if moved <= room {
            best = (count as u64, moved);
        }
    }
    best
}

fn kinds() -> impl Strategy<Value = FrameKind> {
    use FrameKind::{Anon, File, Free, HugeTlb, LargeFolio, Slab, Unknown};
    prop_oneof![
        6 => Just(Free),
        2 => Just(Anon),
        2 => Just(File),
        2 => Just(LargeFolio),
        1 => Just(HugeTlb),
        1 => Just(Unknown),
        1 => Just(Slab),
        1 => prop::sample::select(&FrameKind::ALL[..]),
    ]
}

prop_compose! {
    /// A few ranges with runs that often fill whole units.
    fn snapshots()(
        starts in prop::collection::vec((0u64..3 * 512, 1u64..6 * 512), 1..4),
        runs in prop::collection::vec(
            (kinds(), prop_oneof![Just(512u64), 1u64..40, 1u64..1500]), 1..60),
    ) -> Snapshot {
        let mut ranges = Vec::new();
        let mut end = 0;
        for (gap, count) in starts {
            let first = end + gap + 1;
            ranges.push(range(first, count));
            end = first + count;
        }
        let mut left: u64 = ranges.iter().map(|range| range.frames().count).sum();
        let mut at = 0;
        let mut to_end = ranges[0].frames().count;
        let mut tiled = Vec::new();
        for (kind, count) in runs.into_iter().cycle() {
            let count = count.min(to_end);
            tiled.push((kind, count));
            left -= count;
            to_end -= count;
            if left == 0 {
                break;
            }
            if to_end == 0 {
                at += 1;
                to_end = ranges[at].frames().count;
            }
        }
        Snapshot::new(MachineFacts::default(), ranges, tiled).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn places_are_what_the_model_says(snapshot in snapshots()) {
        let memory = MachineMemory::of(&snapshot);
        let frames = frames_of(&snapshot);
        for size in [HUGE_FRAMES, 2 * HUGE_FRAMES] {
            for unmarked in [UnknownFrames::Used, UnknownFrames::Free] {
                let pages = HugePages::of(memory.units(), size, unmarked);
                let model = model(&frames, size, unmarked);
                prop_assert_eq!(pages.free, model.free);
                prop_assert_eq!(pages.in_use, model.in_use);
                prop_assert_eq!(pages.movable, model.movable.len() as u64);
                prop_assert_eq!(pages.blocked, model.blocked);
                prop_assert_eq!(pages.unsettled, model.unsettled);
                prop_assert_eq!(pages.blockers.map(|blocker| blocker.alone), model.alone);
                prop_assert_eq!(
                    (pages.after_compaction, pages.frames_to_move),
                    compact(&model, size)
                );
                let judged = pages.free + pages.in_use + pages.movable;
                let sum = judged + pages.unsettled + pages.blocked;
                prop_assert_eq!(pages.places, sum);
            }
        }
    }

    #[test]
    fn free_runs_are_those_of_the_snapshot(snapshot in snapshots()) {
        let expected: Histogram = snapshot
            .free_extents(UnknownFrames::Used)
            .map(|extent| extent.count)
            .collect();
        prop_assert_eq!(MachineMemory::of(&snapshot).free_runs(), expected);
    }
}

const BUDDY: u64 = 1 << 10;
const SLAB: u64 = 1 << 7;
const LRU: u64 = 1 << 5;
const THP: u64 = 1 << 22;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;

fn put_words(path: &Path, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    fs::write(path, bytes).unwrap();
}

/// Three units of RAM but for the first frame, then a hole, then half of one.
fn made_up_proc(dir: &Path) -> Vec<u64> {
    fs::create_dir_all(dir.join("self")).unwrap();
    fs::create_dir_all(dir.join("sys/kernel")).unwrap();
    let put = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    put_words(&dir.join("self/auxv"), &[6, 4096, 0, 0]);
    put("sys/kernel/osrelease", "1.2.3\n");
    put("iomem", "00001000-005fffff : System RAM\n00800000-008fffff : System RAM\n");
    put("meminfo", "MemTotal: 64 kB\nMemFree: 16 kB\n");
    put("buddyinfo", "Node 0, zone DMA 1 1 \n");
    put("zoneinfo", "Node 0, zone DMA\n  present 16\n");
    let mut flags = vec![BUDDY; 512 * 5];
    flags[700] = SLAB;
    flags[1024] = LRU | THP | HEAD;
    flags[1025..1536].fill(LRU | THP | TAIL);
    // A folio of 4 frames, then one of 2.
    flags[2048] = LRU | THP | HEAD;
    flags[2049..2052].fill(LRU | THP | TAIL);
    flags[2052] = LRU | THP | HEAD;
    flags[2053] = LRU | THP | TAIL;
    put_words(&dir.join("kpageflags"), &flags);
    flags
}

#[test]
fn a_made_up_machine_is_read_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut flags = made_up_proc(dir.path());
    let mut memory = MachineMemory::read_from(dir.path()).unwrap();
    let numbers: Vec<_> = memory.units().iter().map(|unit| unit.number).collect();
    assert_eq!(numbers, [0, 1, 2, 4]);
    assert_eq!(memory.units_within(513..2049).len(), 2);
    assert_eq!(memory.count(FrameKind::Free), 511 + 511 + 250);
    let pages = HugePages::of(memory.units(), HUGE_FRAMES, UnknownFrames::Used);
    assert_eq!((pages.places, pages.free, pages.in_use, pages.blocked), (2, 0, 1, 1));
    assert_eq!(pages.blocked_by_at_most, [(1, 1), (8, 1), (64, 1)]);
    let gigantic = HugePages::of(memory.units(), GIGANTIC_FRAMES, UnknownFrames::Used);
    assert_eq!(gigantic.places, 0);
    let runs = memory.free_runs();
    assert_eq!((runs.count, runs.sum, runs.largest), (3, 1272, 511 + 188));
    let folios = memory.folios().unwrap();
    assert_eq!(folios, [1, 1, 0, 0, 0, 0, 0, 0, 1]);

    // The slab's frame is given back; only its unit is read again.
    flags[700] = BUDDY;
    flags[2048] = SLAB;
    put_words(&dir.path().join("kpageflags"), &flags);
    memory.read_again(1..2).unwrap();
    let pages = HugePages::of(memory.units(), HUGE_FRAMES, UnknownFrames::Used);
    assert_eq!((pages.free, pages.blocked), (1, 0));
    assert_eq!(memory.count(FrameKind::Slab), 0);
    memory.read_again(0..4).unwrap();
    assert_eq!(memory.count(FrameKind::Slab), 1);

    // What fails changes nothing.
    let before = memory.clone();
    fs::remove_file(dir.path().join("kpageflags")).unwrap();
    memory.read_again(0..4).unwrap_err();
    assert_eq!(memory, before);
}

/// Where the kernel's lists name blocks of 4 MiB, their frames are not read one by one; what comes
/// out is what comes out of reading them.
#[test]
fn large_free_blocks_are_counted_as_they_are_read() {
    const BLOCK: usize = 1024;
    let dir = tempfile::tempdir().unwrap();
    made_up_proc(dir.path());
    let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    put("iomem", "00000000-02ffffff : System RAM\n");
    put("zoneinfo", "Node 0, zone DMA\n  present 12288\n  spanned 12288\n  start_pfn: 0\n");
    let mut seed = 7u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for trial in 0..50 {
        let mut flags = vec![BUDDY; 12 * BLOCK];
        for block in 0..12 {
            for _ in 0..random(2) * (1 + random(40)) {
                let (at, len) = (random(BLOCK), 1 + random(64));
                let used = block * BLOCK + at..(block * BLOCK + at + len).min((block + 1) * BLOCK);
                flags[used].fill(if random(2) == 0 { SLAB } else { LRU });
            }
        }
        let whole = flags.chunks(BLOCK).filter(|block| block.iter().all(|&f| f == BUDDY)).count();
        put("buddyinfo", &format!("Node 0, zone DMA{} {whole}\n", " 3".repeat(10)));
        put_words(&dir.path().join("kpageflags"), &flags);
        let whole = MachineMemory::read_from(dir.path()).unwrap();
        // Parts are read to the last frame.
        let mut by_parts = whole.clone();
        let units = by_parts.units().len();
        assert_eq!(units, 24);
        by_parts.read_again(0..units - 1).unwrap();
        by_parts.read_again(units - 1..units).unwrap();
        assert!(whole == by_parts, "trial {trial}");
        let free = flags.iter().filter(|&&flags| flags == BUDDY).count();
        assert_eq!(whole.count(FrameKind::Free), free as u64, "trial {trial}");
    }
}

/// A folio that holds a unit is told by one frame; what comes out is what each frame says.
#[test]
fn folios_of_any_length_are_counted_frame_by_frame() {
    const HUGETLB: u64 = 1 << 17;
    const UNITS: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    made_up_proc(dir.path());
    // The last unit is not whole: what lies beyond its RAM is not counted.
    let ram = UNITS * 512 - 100;
    let iomem = format!("00000000-{:08x} : System RAM\n", ram * 4096 - 1);
    fs::write(dir.path().join("iomem"), iomem).unwrap();
    let mut seed = 11u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for trial in 0..200 {
        let mut flags = vec![0u64; UNITS * 512];
        let (mut at, mut folios) = (0, [0u64; 9]);
        while at < flags.len() {
            let order = random(12).min(at.trailing_zeros() as usize);
            let len = (1 << order).min(flags.len() - at);
            let kind = [LRU | THP, LRU | THP, HUGETLB, SLAB, BUDDY, LRU][random(6)];
            let is_compound = kind != BUDDY && len > 1;
            for (i, word) in flags[at..at + len].iter_mut().enumerate() {
                let place = if !is_compound {
                    0
                } else if i == 0 {
                    HEAD
                } else {
                    TAIL
                };
                *word = kind | place;
            }
            if kind == LRU | THP && is_compound {
                // The part of it in each unit's RAM.
                for unit in (at / 512..).take_while(|unit| unit * 512 < (at + len).min(ram)) {
                    let end = (at + len).min(ram).min(unit * 512 + 512);
                    let part = end.saturating_sub(at.max(unit * 512));
                    if part > 1 {
                        folios[part.ilog2() as usize - 1] += 1;
                    }
                }
            }
            at += len;
        }
        put_words(&dir.path().join("kpageflags"), &flags);
        let memory = MachineMemory::read_from(dir.path()).unwrap();
        for (i, kind) in FrameKind::ALL.into_iter().enumerate() {
            let expected = flags[..ram].iter().filter(|&&word| classify(word) == kind).count();
            assert_eq!(memory.count(kind), expected as u64, "trial {trial}, kind {i}");
        }
        assert_eq!(memory.folios().unwrap(), folios, "trial {trial}");
    }
}

/// What the machine that runs the tests says agrees with its own free lists, or it says what is
/// missing.
#[cfg(target_os = "linux")]
#[test]
fn this_machine_agrees_with_its_free_lists() {
    use swath_trace::machine::CaptureError;
    match MachineMemory::read() {
        Ok(memory) => {
            let free = memory.count(FrameKind::Free);
            let lists = memory.facts().buddy_frames;
            // The tests beside this one take and give memory meanwhile.
            let off = free.abs_diff(lists) as f64 / memory.facts().total_frames as f64;
            assert!(off < 0.05, "{free} frames are free, {lists} by the lists");
        }
        Err(CaptureError::NotPermitted { .. } | CaptureError::NoPageMonitor { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
