//! Replays that begin in a state: a snapshot's, to the frame, or one drawn by a target; recordings that
//! are read while they are replayed; allocators side by side over seeds.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::linux::PAGEBLOCK_ORDER;
use swath_frame::{Mobility, ZoneKind};
use swath_lab::papers::green::machine::age::{AgeError, AgeTarget};
use swath_lab::papers::green::machine::allocator::AllocatorName;
use swath_lab::papers::green::machine::computer::drive_from;
use swath_lab::papers::green::machine::config::{DaemonConfig, GreenConfig, MachineName};
use swath_lab::papers::green::machine::start::{Begin, MachineStart};
use swath_lab::papers::green::pages::load::{LoadKind, LoadMachine, PageLoad};
use swath_lab::papers::green::pages::recordings::{RecordingFile, read_recording};
use swath_lab::papers::green::pages::requests::TimedOp;
use swath_lab::papers::green::pages::runs::Requests;
use swath_trace::machine::{FrameKind, MachineFacts, RamRange, Snapshot, UnknownFrames};
use swath_trace::pages::{MigrateType, PageChange, PageEvent, PageHeader, PageWriter, ZoneMax};

fn swath(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_swath")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The tables of a replay.
fn tables(args: &[&str]) -> Vec<Value> {
    let output = swath(&[&["replay"][..], args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../swath-lab/data");

/// Frames in use by mobility, movable ones first.
fn users(start: &MachineStart) -> [u64; 2] {
    let of = |movable: bool| {
        let own = start.used().iter().filter(|(_, of)| (*of == Mobility::Movable) == movable);
        own.map(|(run, _)| run.count).sum()
    };
    [of(true), of(false)]
}

#[test]
fn a_target_is_met_to_the_frame() {
    for (text, seed) in [
        ("used=0.7,huge=0.1,unmovable=0.15,mixed=0.5", 1),
        ("used=0.3,huge=50%", 7),
        ("used=95%,huge=0,unmovable=0.02,mixed=0.9", 20_240_607),
        ("used=0.02,huge=0.97,unmovable=0.2", 3),
    ] {
        let target: AgeTarget = text.parse().unwrap();
        let start = target.start(MachineName::FourGib, seed).unwrap();
        assert_eq!(start, target.start(MachineName::FourGib, seed).unwrap());
        assert_ne!(start, target.start(MachineName::FourGib, seed + 1).unwrap());
        let frames = start.frames() as f64;
        let [movable, unmovable] = users(&start);
        assert_eq!(start.used_frames(), movable + unmovable);
        assert_eq!(start.used_frames(), (frames * target.used).round() as u64, "{text}");
        let wanted = (start.used_frames() as f64 * target.unmovable).round();
        assert_eq!(unmovable as f64, wanted, "{text}");
        // By the runs alone: free and mixed units.
        let units = start.used().iter().map(|(run, _)| run.end().raw()).max().unwrap() / 512 + 1;
        let mut used = vec![[0u64; 2]; units as usize];
        for &(run, mobility) in start.used() {
            for frame in run.iter() {
                used[(frame.raw() / 512) as usize][usize::from(mobility != Mobility::Movable)] += 1;
            }
        }
        // Units that are memory as a whole: without the first MiB and the hole below 4 GiB.
        let whole = |nth: u64| nth > 0 && !(1536..2048).contains(&nth);
        let all = (0..2560).filter(|nth| whole(*nth));
        let state = |nth: u64| used.get(nth as usize).copied().unwrap_or([0, 0]);
        let (mut free, mut mixed, mut partial) = (0u64, 0u64, 0u64);
        for nth in all {
            let [movable, unmovable] = state(nth);
            free += u64::from(movable + unmovable == 0);
            partial += u64::from(movable + unmovable > 0);
            mixed += u64::from(unmovable > 0);
        }
        let free_frames = start.frames() - start.used_frames();
        let difference = (free * 512) as f64 - free_frames as f64 * target.huge;
        assert!(difference.abs() <= 512.0, "{text}: {free} free of {free_frames} frames");
        let difference = mixed as f64 - partial as f64 * target.mixed;
        assert!(difference.abs() <= 1.0, "{text}: {mixed} mixed of {partial}");
    }
}

#[test]
fn targets_that_cannot_be() {
    for bad in ["", "used", "used=1.1", "used=-0.1", "used=x", "most=0.5", "used=NaN", "used=0.5,,"]
    {
        let error = bad.parse::<AgeTarget>().unwrap_err();
        assert!(matches!(error, AgeError::Part { .. }), "{bad}: {error}");
    }
    let error = "used=0.5,used=0.6".parse::<AgeTarget>().unwrap_err();
    assert_eq!(error.to_string(), "used= stands twice");
    for contradiction in [
        "used=0,huge=0",
        "used=0.5,unmovable=0.9,mixed=0.1",
        "mixed=0",
        "used=1,huge=1,mixed=1,unmovable=0",
    ] {
        let target: AgeTarget = contradiction.parse().unwrap();
        let error = target.start(MachineName::FourGib, 1).unwrap_err();
        assert!(matches!(error, AgeError::Contradiction { .. }), "{contradiction}: {error}");
    }
}

/// Under a load, every allocator keeps what was there at the start, of which nothing is given back: in its
/// place, unless it is movable and the machine migrates, or drops files in the guaranteed area.
#[test]
fn what_is_in_use_at_the_start_stays() {
    let target: AgeTarget = "used=0.5,huge=0.2".parse().unwrap();
    let start = target.start(MachineName::FourGib, 5).unwrap();
    let [movable, unmovable] = users(&start);
    let free = start.frames() - start.used_frames();
    for (nth, allocator) in AllocatorName::ALL.into_iter().enumerate() {
        let migrates = nth % 2 == 0;
        let mut config = GreenConfig::new(allocator, MachineName::FourGib);
        config.daemon = migrates.then_some(DaemonConfig::EAGER);
        let machine = LoadMachine { frames: free, ..LoadMachine::GIB_4 };
        let mut load = PageLoad::new(machine, LoadKind::Light, 3).unwrap();
        let begin = Begin { start: &start, held: &[], handles_from: free as u32 };
        let mut looks = 0;
        drive_from(Some(begin), config, &mut load, 70_000_000, 23_000_000, &mut |view| {
            looks += 1;
            view.check().unwrap();
            let look = view.look();
            if look.time_us == 0 {
                assert_eq!(look.free_frames, free);
                assert_eq!(look.unmovable_frames, unmovable);
                assert_eq!((look.moved_frames, look.opened_banks), (0, 0));
            }
            assert!(look.free_frames <= free && look.unmovable_frames >= unmovable);
            let dropped = look.counts.dropped_frames;
            assert!(dropped == 0 || allocator == AllocatorName::LinuxGuaranteed);
            let there = look.total_frames - look.free_frames - look.unmovable_frames;
            assert!(there + dropped >= movable);
            let zones = view.layout().zones().iter();
            let lent: Vec<Extent> = zones
                .filter(|zone| dropped > 0 && zone.kind == ZoneKind::Movable)
                .map(|zone| zone.span)
                .collect();
            for &(run, mobility) in start.used() {
                let state = view.frames(run);
                if mobility == Mobility::Movable && lent.iter().any(|area| area.overlaps(run)) {
                    assert!(state.movable + dropped >= run.count, "{allocator:?}");
                } else if mobility == Mobility::Movable && !migrates {
                    assert_eq!(state.movable, run.count, "{allocator:?}");
                } else if mobility != Mobility::Movable {
                    assert_eq!(state.unmovable, run.count, "{allocator:?}");
                }
            }
            let (huge, gigantic) = (view.places(PAGEBLOCK_ORDER), view.places(Order::known(18)));
            assert_eq!(huge.places, huge.free + huge.movable + huge.blocked);
            assert_eq!(gigantic.places, gigantic.free + gigantic.movable + gigantic.blocked);
            // The border of an area of an eighth lies within a GiB.
            let gib = if allocator == AllocatorName::LinuxGuaranteed { 2 } else { 3 };
            assert_eq!((huge.places, gigantic.places), (2047, gib));
            true
        })
        .unwrap();
        assert!(looks >= 4, "{allocator:?}");
    }
}

fn facts(total_frames: u64) -> MachineFacts {
    MachineFacts { kernel_release: "6.18".into(), total_frames, ..MachineFacts::default() }
}

/// A machine of 256 MiB: free, but for a run of each kind of frame.
fn snapshot(total_frames: u64) -> Snapshot {
    let ranges = vec![RamRange { start: Pfn::new(0).address(), len_bytes: 256 << 20 }];
    let mut runs: Vec<(FrameKind, u64)> = Vec::new();
    for kind in FrameKind::ALL.into_iter().filter(|kind| *kind != FrameKind::Free) {
        runs.extend([(kind, 700), (FrameKind::Free, 300)]);
    }
    let rest = 65_536 - runs.iter().map(|(_, count)| count).sum::<u64>();
    runs.push((FrameKind::Free, rest));
    Snapshot::new(facts(total_frames), ranges, runs).unwrap()
}

/// Events as a recording of this machine, in a file.
fn record(file: &Path, total_frames: u64, events: impl Iterator<Item = PageEvent>) {
    let head = PageHeader {
        facts: facts(total_frames),
        program: "test".into(),
        whole_system: true,
        cpus: 2,
    };
    let mut writer = PageWriter::new(File::create(file).unwrap(), &head, 1).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.finish(&[0, 0]).unwrap();
}

/// A recording gives back frames of the snapshot; all others stay, and each allocator begins in the same
/// state.
#[test]
fn a_snapshot_is_where_a_recording_begins() {
    let dir = tempfile::tempdir().unwrap();
    let (memory, events) = (dir.path().join("m.swsnap"), dir.path().join("e.swpages"));
    snapshot(60_000).save(&memory).unwrap();
    let at = FrameKind::ALL.into_iter().filter(|kind| *kind != FrameKind::Free);
    let first = |kind| 1000 * at.clone().position(|other| other == kind).unwrap() as u64;
    let free =
        |start: u64, k: u8| PageChange::Free { start: Pfn::new(start), order: Order::known(k) };
    let anon = first(FrameKind::Anon).next_multiple_of(16);
    let changes = [
        free(anon, 4),
        free(first(FrameKind::Slab).next_multiple_of(8), 3),
        // Free already, in the snapshot: it is taken first, somewhere.
        free(first(FrameKind::Anon) + 900, 0),
    ];
    let event = |(nth, change): (usize, &PageChange)| PageEvent {
        time_us: 400_000 * (nth as u64 + 1),
        cpu: 0,
        change: *change,
    };
    record(&events, 60_000, changes.iter().enumerate().map(event));
    let [memory, events] = [&memory, &events].map(|path| path.to_str().unwrap());
    let all = tables(&[events, "--memory", memory]);
    assert_eq!(all.len(), AllocatorName::ALL.len());
    for table in &all {
        let start = &table["start"];
        assert_eq!(start["frames"], 65_536);
        assert_eq!(start["used_frames"], 11 * 700);
        assert_eq!((&start["held_blocks"], &start["held_there"]), (&3.into(), &2.into()));
        let rows = table["rows"].as_array().unwrap();
        let (first, last) = (&rows[0], rows.last().unwrap());
        assert_eq!(first["time_us"], 0);
        assert_eq!(first["free_frames"], 65_536 - 11 * 700, "{}", table["allocator"]);
        assert_eq!(first["unmovable_frames"], 7 * 700);
        assert_eq!(first["huge"], all[0]["rows"][0]["huge"]);
        // Sixteen of the movable frames and eight of the others are gone.
        assert_eq!(last["free_frames"], 65_536 - 11 * 700 + 24, "{}", table["allocator"]);
        assert_eq!(last["unmovable_frames"], 7 * 700 - 8);
    }
    // Unknown frames as free ones.
    let free = &tables(&[events, "--memory", memory, "--unknown-free", "--allocator", "linux"])[0];
    assert_eq!(free["start"]["used_frames"], 10 * 700);

    let other = dir.path().join("other.swsnap");
    snapshot(60_001).save(&other).unwrap();
    let other = other.to_str().unwrap();
    let refused = swath(&["replay", events, "--memory", other]);
    let says = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{says}");
    for part in ["60000", "60001", "e.swpages", "other.swsnap", "--other-machine"] {
        assert!(says.contains(part), "{part}: {says}");
    }
    let anyway = &tables(&[events, "--memory", other, "--other-machine", "--allocator", "pbs"])[0];
    assert_eq!(
        (&anyway["start"]["held_blocks"], &anyway["start"]["held_there"]),
        (&3.into(), &0.into())
    );
}

/// A kernel's snapshot and what it did meanwhile.
#[test]
fn a_real_machine_begins_as_it_was() {
    let (memory, events) =
        (format!("{DATA}/fragmented.swsnap"), format!("{DATA}/fragmented.swpages"));
    let snapshot = Snapshot::load(Path::new(&memory)).unwrap();
    let args = [&events, "--memory", &memory, "--rows", "2", "--allocator"];
    for allocator in ["linux", "linux-movable", "adaptive-packed", "pbs"] {
        let table = &tables(&[&args[..], &[allocator]].concat())[0];
        let start = MachineStart::of_snapshot(&snapshot, UnknownFrames::Used, 1).unwrap();
        let first = &table["rows"][0];
        assert_eq!(first["total_frames"], start.frames());
        assert_eq!(first["free_frames"], start.frames() - start.used_frames());
        assert_eq!(first["unmovable_frames"], users(&start)[1]);
    }
}

#[test]
fn what_cannot_begin_so_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small.swsnap");
    snapshot(60_000).save(&small).unwrap();
    let far = dir.path().join("far.swsnap");
    let ranges = vec![RamRange { start: Pfn::new(1 << 40).address(), len_bytes: 1 << 20 }];
    let runs = [(FrameKind::Free, 256)];
    Snapshot::new(facts(256), ranges, runs).unwrap().save(&far).unwrap();
    let [small, far] = [&small, &far].map(|path| path.to_str().unwrap());
    for (args, code, says) in [
        (&["--load", "light", "--memory", far][..], 1, "far.swsnap"),
        (&["--load", "light", "--memory", small], 1, "and 57836 are free"),
        (&["files", "--memory", small], 2, "--other-machine"),
        (&["files", "--memory", "absent.swsnap"], 1, "absent.swsnap"),
        (&["files", "--memory", small, "--machine", "4g"], 2, "cannot be used with"),
        (&["files", "--memory", small, "--age", "used=0.5"], 2, "cannot be used with"),
        (&["files", "--age", "used=2"], 2, "used=2"),
        (&["files", "--age", "used=0,huge=0"], 2, "free in pieces"),
        (&["files", "--unknown-free"], 2, "--memory"),
        (&["files", "--seeds", "3"], 2, "nothing here depends on a seed"),
        (&["files", "--figure", "x.svg"], 2, "--seeds"),
        (&["files", "--seeds", "0"], 2, "--seeds"),
    ] {
        let output = swath(&[&["replay"][..], args].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(says) && !stderr.contains("panicked"), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

/// Seeds make a table with intervals and a figure, the same each time.
#[test]
fn seeds_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["1.svg", "2.svg"].map(|name| dir.path().join(name));
    let args = [
        "replay",
        "files",
        "--age",
        "used=0.6",
        "--seeds",
        "3",
        "--allocator",
        "linux",
        "--allocator",
        "linux-movable",
        "--allocator",
        "pbs",
        "--figure",
    ];
    let run = |file: &Path| {
        let output = swath(&[&args[..], &[file.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let table = run(&one);
    assert_eq!(table, run(&two));
    assert_eq!(table.lines().count(), 4);
    assert!(table.starts_with("3 seeds, at the end") && table.contains("Linux, ZONE_MOVABLE"));
    // The recording never asks for 2 MiB: no share of such requests got one block.
    assert_eq!(table.matches('±').count(), 3 * 9);
    assert_eq!(table.split_whitespace().filter(|word| *word == "-").count(), 3);
    let drawn = std::fs::read_to_string(&one).unwrap();
    assert_eq!(drawn, std::fs::read_to_string(&two).unwrap());
    assert!(drawn.starts_with("<svg") && drawn.contains("PBS, head of list"));
}

/// The instructions of an allocator's calls are the same each time, and other ones for another allocator.
#[test]
fn instructions_beside_the_shares() {
    if !swath_lab::host::callgrind::is_here() {
        println!("not counted: no valgrind here");
        return;
    }
    let args = ["replay", "files", "--age", "used=0.6", "--seeds=1", "--instructions", "--json"];
    let run = || {
        let output = swath(&[&args[..], &["--allocator=linux", "--allocator", "pbs"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        [0, 1].map(|nth| found[nth]["instructions"].as_f64().unwrap())
    };
    let [linux, pbs] = run();
    assert!((20.0..5000.0).contains(&linux) && (20.0..5000.0).contains(&pbs), "{linux}, {pbs}");
    assert!((linux - pbs).abs() > 1.0, "{linux}, {pbs}");
    assert_eq!(run(), [linux, pbs]);
}

/// What is read event by event is what is read at once.
#[test]
fn requests_are_the_same_from_memory_and_from_the_file() {
    for name in ["compile", "files"] {
        let (at_once, cpus) = read_recording(Path::new(name)).unwrap();
        let file = RecordingFile::open(Path::new(name)).unwrap();
        let mut requests = file.requests(|_| false).unwrap();
        let mut streamed: Vec<TimedOp> = Vec::new();
        while let Some(stretch) = requests.next_stretch() {
            streamed.extend(stretch.ops());
        }
        assert!(streamed == at_once, "{name}");
        assert!(requests.fault().is_none());
        let handles = at_once.iter().map(|op| op.op.id() as usize + 1).max().unwrap();
        assert!(file.outline().handles >= handles && file.cpus() == cpus);
        assert_eq!(file.outline().last_us, at_once.last().unwrap().time_us, "{name}");
    }
}

/// So many events over two processors: blocks of orders 0, 0 to 3 and 9 come and go at random, half a
/// million of them at once.
fn events(count: u64) -> impl Iterator<Item = PageEvent> {
    const LIVE: usize = 1 << 19;
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut live: Vec<(u32, u8)> = Vec::new();
    // Frames of each order come from a range of their own, and are used again.
    let mut next = [0u32, 1 << 21, 1 << 22, 1 << 23, 0, 0, 0, 0, 0, 1 << 24];
    let mut free: [Vec<u32>; 10] = Default::default();
    (0..count).map(move |nth| {
        let draw = random.random::<u32>();
        let gives =
            live.len() >= LIVE || !live.is_empty() && draw.is_multiple_of(2) && nth > count / 100;
        let change = if gives {
            let (start, k) = live.swap_remove(random.random_range(0..live.len()));
            free[usize::from(k)].push(start);
            PageChange::Free { start: Pfn::new(start.into()), order: Order::known(k) }
        } else {
            let k = match draw >> 1 & 255 {
                0..16 => 1,
                16..24 => 2,
                24..28 => 3,
                255 if draw >> 20 == 0 => 9,
                _ => 0,
            };
            let start = free[usize::from(k)].pop().unwrap_or_else(|| {
                next[usize::from(k)] += 1 << k;
                next[usize::from(k)] - (1 << k)
            });
            live.push((start, k));
            let kind = u8::from(draw >> 24 & 15 != 0);
            PageChange::Alloc {
                start: Pfn::new(start.into()),
                order: Order::known(k),
                migrate_type: MigrateType::new(kind).unwrap(),
                zone_max: if kind == 1 { ZoneMax::Movable } else { ZoneMax::Normal },
                read_ahead: kind == 1 && draw >> 31 & 1 == 0,
            }
        };
        PageEvent { time_us: 2 * nth, cpu: (draw >> 30 & 1) as u16, change }
    })
}

/// A recording is replayed in memory that does not grow with it: 100,000,000 events would take 2.4 GB as
/// requests. `SWATH_EVENTS` says how many; see docs/recordings.md.
fn long_recording(count: u64) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long.swpages");
    record(&file, 0, events(count));
    let bytes = std::fs::metadata(&file).unwrap().len();
    let began = std::time::Instant::now();
    let limited = "ulimit -v 1000000; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_swath"), "replay"])
        .arg(&file)
        .args(["--machine", "32g", "--allocator", "linux", "--rows", "2", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables: Value = serde_json::from_slice(&output.stdout).unwrap();
    let requests =
        tables[0]["rows"].as_array().unwrap().last().unwrap()["counts"]["requests"].as_u64();
    // Half of the events take a block.
    assert!(requests.unwrap() > count / 2 && requests.unwrap() <= count, "{requests:?}");
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("{count} events, {bytes} bytes: {rate:.0} a second, both passes");
}

#[test]
fn a_recording_is_replayed_as_it_is_read() {
    long_recording(200_000);
}

#[test]
#[ignore = "100,000,000 events by default take minutes"]
fn a_long_recording_is_replayed_as_it_is_read() {
    let count = std::env::var("SWATH_EVENTS").ok().and_then(|count| count.parse().ok());
    long_recording(count.unwrap_or(100_000_000));
}

/// What was asked for is shown by order and mobility.
#[test]
fn the_mix_of_requests_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mix.swpages");
    record(&file, 60_000, events(20_000));
    let mut wanted: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    for event in events(20_000) {
        if let PageChange::Alloc { order, migrate_type, .. } = event.change {
            let name = ["unmovable", "movable"][usize::from(migrate_type.number())];
            *wanted.entry((order.k().into(), name)).or_default() += 1;
        }
    }
    let file = file.to_str().unwrap();
    let shown: Value = serde_json::from_slice(&swath(&["show", file, "--json"]).stdout).unwrap();
    let rows = shown["requests"].as_array().unwrap();
    let of = |(order, name): &(u64, &str)| {
        let row = rows.iter().find(|row| row["order"] == *order).unwrap();
        row["requests"][name].as_u64().unwrap()
    };
    assert!(wanted.len() >= 8 && wanted.iter().all(|(kind, count)| of(kind) == *count));
    let sum: u64 = wanted.values().sum();
    assert_eq!(shown["events"]["alloc"], sum);
    let output = swath(&["show", file]);
    let lines = text(&output.stdout);
    assert!(lines.contains("unmovable") && lines.contains("order 3"), "{lines}");
}

/// A start names no frame twice, on the large machine as well.
#[test]
fn starts_ascend() {
    let target = AgeTarget::default();
    for seed in 0..5 {
        let start = target.start(MachineName::ThirtyTwoGib, seed).unwrap();
        let mut past = Pfn::new(0);
        for &(run, _) in start.used() {
            assert!(run.start >= past && run != Extent::default());
            past = run.end();
        }
    }
}
