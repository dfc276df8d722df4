//! The green memory manager's harness: every frame in one place whenever it is
//! looked at, the same requests give the same machine, and what is wrong is said.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use snapbox::file;
use swath_arch::Order;
use swath_frame::Mobility;
use swath_lab::papers::green::machine::allocator::AllocatorName;
use swath_lab::papers::green::machine::computer::drive;
use swath_lab::papers::green::machine::config::{
    DaemonConfig, GreenConfig, GreenError, Interleaved, MachineName,
};
use swath_lab::papers::green::machine::view::{Look, MachineView};
use swath_lab::papers::green::pages::requests::{ReplayOp, TimedOp};
use swath_lab::papers::green::pages::runs::Recorded;
use swath_lab::papers::green::paper::PAPER;
use swath_trace::pages::ZoneMax;

/// Seconds of random work: memory fills to three quarters, most of it goes
/// again, in no order, and then little happens.
fn work(seed: u64) -> Vec<TimedOp> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut ops, mut live, mut ids, mut used) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
    let mut next = 0;
    for step in 0..30_000u64 {
        let grows = step < 12_000 || (step > 22_000 && step % 2 == 0);
        let time_us = step * 1000;
        if grows && used < 3 << 18 {
            for _ in 0..if step < 12_000 { 24 } else { 2 } {
                let (mobility, order) = match random.random::<u32>() % 64 {
                    0 => (Mobility::Unmovable, random.random_range(0..4)),
                    1 => (Mobility::Reclaimable, 0),
                    2 => (Mobility::Movable, 9),
                    3..10 => (Mobility::Movable, random.random_range(1..5)),
                    _ => (Mobility::Movable, 0),
                };
                let id = ids.pop().unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                used += 1 << order;
                live.push((id, order));
                let order = Order::new(order).unwrap();
                let zone_max = match mobility {
                    Mobility::Movable => ZoneMax::Movable,
                    _ => ZoneMax::Normal,
                };
                let cpu = random.random_range(0..8);
                let cached =
                    mobility == Mobility::Movable && order < Order::known(9) && id % 2 == 0;
                let op = ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu };
                ops.push(TimedOp { time_us, op });
            }
        } else if step < 22_000 || step % 2 == 1 {
            for _ in 0..24 {
                if live.len() < 4000 {
                    break;
                }
                let (id, order) = live.swap_remove(random.random_range(0..live.len()));
                used -= 1u64 << order;
                ids.push(id);
                ops.push(TimedOp { time_us, op: ReplayOp::Free { id } });
            }
        }
    }
    ops
}

/// Runs the work; everything is checked at every look.
fn looks(config: GreenConfig, ops: &[TimedOp]) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut observe = |view: &dyn MachineView| {
        let look = view.look();
        if let Err(what) = view.check() {
            panic!("{config:?} at {} µs: {what}", look.time_us);
        }
        assert_eq!(look.counts.lost_frames, 0);
        assert!(look.resting_frames <= look.free_frames);
        looks.push(look);
        true
    };
    drive(config, &mut Recorded::new(ops, 0), 60_000_000, 6_000_000, &mut observe).unwrap();
    looks
}

fn four_gib(allocator: AllocatorName, migrate: bool) -> GreenConfig {
    let daemon = migrate.then_some(DaemonConfig::EAGER);
    GreenConfig { daemon, ..GreenConfig::new(allocator, MachineName::FourGib) }
}

#[test]
fn every_frame_is_in_one_place() {
    let ops = work(1);
    for allocator in AllocatorName::ALL {
        for migrate in [false, true] {
            let looks = looks(four_gib(allocator, migrate), &ops);
            let (full, end) = (&looks[1], looks.last().unwrap());
            assert!(full.free_frames < full.total_frames / 2, "{allocator:?}: {full:?}");
            assert!(end.free_frames > end.total_frames / 2, "{allocator:?}: {end:?}");
            assert_eq!(end.counts.failed, 0, "{allocator:?}");
            assert_eq!(end.emptied_banks > 0, migrate, "{allocator:?}: {end:?}");
        }
    }
}

/// What the studies are about, on a small scale: migration makes banks rest.
#[test]
fn migration_makes_banks_rest() {
    let ops = work(2);
    for allocator in [AllocatorName::Linux, AllocatorName::Adaptive, AllocatorName::AdaptivePacked]
    {
        let end = |migrate| *looks(four_gib(allocator, migrate), &ops).last().unwrap();
        let (without, with) = (end(false), end(true));
        assert_eq!(without.free_frames, with.free_frames, "the same requests");
        assert!(
            with.resting_frames > without.resting_frames,
            "{allocator:?}: {with:?}, without {without:?}"
        );
    }
}

#[test]
fn interleaved_banks_rest_in_pairs() {
    let ops = work(3);
    let config = four_gib(AllocatorName::AdaptivePacked, true);
    let pairs = looks(GreenConfig { interleaving: Interleaved::TwoWay, ..config }, &ops);
    assert_eq!(pairs[0].banks * 2, looks(config, &ops)[0].banks);
    assert!(pairs.iter().all(|look| look.resting_frames == look.resting_banks * (2 << 16)));
}

/// Groups of sub-arrays are 64ths of memory, and as pairs of banks of half their size: studies
/// take the one's run for the other's.
#[test]
fn groups_of_sub_arrays_rest_like_pairs_of_banks() {
    let ops = work(5);
    let config = four_gib(AllocatorName::AdaptivePacked, true);
    let groups = looks(GreenConfig { interleaving: Interleaved::All, ..config }, &ops);
    let bank_frames = (1 << 20) / 64 / 2;
    let pairs = GreenConfig { interleaving: Interleaved::TwoWay, bank_frames, ..config };
    assert_eq!(groups, looks(pairs, &ops));
    assert!(groups.iter().all(|look| look.resting_frames == look.resting_banks << 14));
    assert!(groups.iter().any(|look| look.resting_banks > 0));
}

/// With hysteresis nothing is lost, and fewer banks are opened.
#[test]
fn hysteresis_opens_fewer_banks() {
    let ops = work(6);
    let eager = four_gib(AllocatorName::AdaptivePacked, true);
    let daemon = DaemonConfig { settle_ms: 10_000, ..DaemonConfig::EAGER };
    let ends = [eager, GreenConfig { daemon: Some(daemon), ..eager }]
        .map(|config| *looks(config, &ops).last().unwrap());
    assert_eq!(ends[0].free_frames, ends[1].free_frames, "the same requests");
    let opened = ends.map(|look| look.opened_banks);
    assert!(opened[1] < opened[0], "{opened:?}");
}

#[test]
fn the_same_requests_give_the_same_machine() {
    let ops = work(4);
    let config = four_gib(AllocatorName::AdaptivePacked, true);
    assert_eq!(looks(config, &ops), looks(config, &ops));
}

#[test]
fn wrong_requests_are_refused() {
    let alloc = |time_us, id| {
        let (order, mobility) = (Order::BASE, Mobility::Movable);
        let zone_max = ZoneMax::Movable;
        TimedOp {
            time_us,
            op: ReplayOp::Alloc { id, order, mobility, zone_max, cached: false, cpu: 900 },
        }
    };
    let free = |time_us, id| TimedOp { time_us, op: ReplayOp::Free { id } };
    let run = |ops: &[TimedOp]| {
        let config = GreenConfig::new(AllocatorName::Linux, MachineName::FourGib);
        drive(config, &mut Recorded::new(ops, 0), 1 << 24, 1 << 20, &mut |view| {
            view.check().unwrap();
            true
        })
    };
    assert_eq!(run(&[alloc(1, 7), free(2, 7), alloc(2, 7)]), Ok(()));
    assert_eq!(
        run(&[alloc(1, 7), alloc(2, 7)]),
        Err(GreenError::HandleInUse { time_us: 2, id: 7 })
    );
    assert_eq!(run(&[alloc(1, 7), free(2, 8)]), Err(GreenError::NoHandle { time_us: 2, id: 8 }));
    assert_eq!(
        run(&[alloc(1, 7), free(2, 7), free(3, 7)]),
        Err(GreenError::NoHandle { time_us: 3, id: 7 })
    );
    assert_eq!(run(&[alloc(5, 7), free(4, 7)]), Err(GreenError::Past { time_us: 4, now_us: 5 }));
}

/// Memory that is too small refuses requests; their releases are no errors.
#[test]
fn requests_fail_where_memory_ends() {
    let order = Order::known(9);
    let (mobility, zone_max, cached, cpu) = (Mobility::Movable, ZoneMax::Movable, false, 0);
    let alloc = |id| TimedOp {
        time_us: u64::from(id),
        op: ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu },
    };
    let free = |id| TimedOp { time_us: 5000 + u64::from(id), op: ReplayOp::Free { id } };
    let ops: Vec<TimedOp> = (0..2100).map(alloc).chain((0..2100).map(free)).collect();
    for allocator in AllocatorName::ALL {
        let mut end = None;
        let config = four_gib(allocator, false);
        drive(config, &mut Recorded::new(&ops, 0), 60_000_000, 1_000_000, &mut |view| {
            view.check().unwrap();
            end = Some(view.look());
            true
        })
        .unwrap();
        let end = end.unwrap();
        assert!((52..200).contains(&end.counts.failed), "{allocator:?}: {end:?}");
        assert_eq!(end.free_frames, end.total_frames, "{allocator:?}");
    }
}

#[test]
fn an_observer_ends_the_run() {
    let mut seen = 0;
    let config = four_gib(AllocatorName::BankArray, false);
    drive(config, &mut Recorded::new(&work(5), 0), 60_000_000, 1_000_000, &mut |_| {
        seen += 1;
        seen < 3
    })
    .unwrap();
    assert_eq!(seen, 3);
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_swath");

fn swath(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).env("COLUMNS", "100").stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn replay_prints_a_table() {
    let args =
        ["replay", "files", "--allocator", "linux", "--allocator", "bank-array", "--rows", "3"];
    let output = swath(&args);
    assert_eq!(text(&output.stderr), "");
    snapbox::cmd::OutputAssert::new(output)
        .success()
        .stdout_eq(file!["golden/replay-files.txt"].raw());
}

#[test]
fn replay_prints_json() {
    // The shipped recording by its file, which is the one built in.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swath-lab/data/files.swpages");
    let outputs = ["files", path.to_str().unwrap()].map(|file| {
        let args = ["replay", file, "--allocator", "adaptive-packed", "--migrate", "--json"];
        let output = swath(&args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    });
    assert_eq!(outputs[0], outputs[1]);
    let tables: Value = serde_json::from_str(&outputs[0]).unwrap();
    assert_eq!(tables[0]["allocator"], "adaptive-packed");
    let rows = tables[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    assert!(rows.windows(2).all(|pair| pair[0]["time_us"].as_u64() < pair[1]["time_us"].as_u64()));
}

/// A film of a replay is the same each time, plays two allocators, and leaves the table as it is; one
/// of snapshots has a moment for each.
#[test]
fn films_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let table =
        ["replay", "files", "--allocator", "linux", "--allocator", "bank-array", "--rows", "3"];
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["one.svg", "two.svg", "page.html"] {
        let output = swath(&[&table[..], &["--film", &path(name)]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), text(&swath(&table).stdout));
    }
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    assert_eq!(read("one.svg"), read("two.svg"));
    assert_eq!(read("one.svg").matches("data:image/png").count(), 2);
    assert!(read("page.html").contains("data-film="));
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../swath-lab/data");
    let (one, two) = (format!("{data}/machine.swsnap"), format!("{data}/fragmented.swsnap"));
    let output = swath(&["film", &one, &two, "-o", &path("snapshots.svg")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(read("snapshots.svg").contains("steps(2)"));
    let twice = ["replay", "files", "--allocator", "linux", "--allocator", "linux"];
    let output = swath(&[&twice[..], &["--film", &path("no.svg")]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("stands twice"), "{}", text(&output.stderr));
    let output = swath(&["film", &path("one.svg"), "-o", &path("no.svg")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("one.svg"), "{}", text(&output.stderr));
    assert!(!dir.path().join("no.svg").exists());
}

#[test]
fn replay_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let no_recording = dir.path().join("no.swpages");
    std::fs::write(&no_recording, "no recording at all, but long enough for a signature").unwrap();
    let no_recording = no_recording.to_str().unwrap();
    for (args, code, says) in [
        (&["replay"][..], 2, "<FILE>"),
        (&["replay", "files", "--allocator", "slab"], 2, "adaptive-packed"),
        (&["replay", "files", "--load", "light"], 2, "cannot be used with"),
        (&["replay", "files", "--hours", "2"], 2, "cannot be used with"),
        (&["replay", "--load", "light", "--hours", "0"], 2, "0 hours"),
        (&["replay", "--load", "light", "--hours", "NaN"], 2, "NaN hours"),
        (&["replay", "files", "--rows", "0"], 2, "--rows"),
        (&["replay", "absent.swpages"], 1, "absent.swpages"),
        (&["replay", no_recording], 1, "signature"),
    ] {
        let output = swath(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(says) && !stderr.contains("panicked"), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

fn plan_text(study: &str) -> &'static str {
    PAPER.studies.iter().find(|entry| entry.code.kind() == study).unwrap().plan
}

/// Each study on a few minutes of the small machine: all its figures have data.
#[test]
fn studies_run() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["green-layout", "green-hotplug", "green-power", "green-migration", "green-replay"]
    {
        let mut plan: toml::Table = plan_text(name).parse().unwrap();
        let quick = |table: &mut toml::Value, key: &str, value: i64| {
            table[key].as_table_mut().unwrap().insert("quick".to_owned(), value.into());
        };
        if let Some(runs) = plan.get_mut("runs") {
            let runs = runs.as_array_mut().unwrap();
            runs.retain(|run| run["machine"].as_str() == Some("4g"));
            runs.truncate(1);
            quick(&mut runs[0], "minutes", 3);
        } else {
            quick(&mut plan["load"], "minutes", 3);
        }
        let mut whole = toml::Value::Table(plan);
        quick(&mut whole, "repeats", 1);
        let path = dir.path().join(format!("{name}.toml"));
        std::fs::write(&path, toml::to_string(&whole).unwrap()).unwrap();
        let out = dir.path().to_str().unwrap();
        let args = ["study", "--plan", path.to_str().unwrap(), "--quick", "--out", out];
        let output = swath(&args);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        let results = std::fs::read_to_string(dir.path().join(name).join("results.json")).unwrap();
        let results: Value = serde_json::from_str(&results).unwrap();
        assert!(!results["claims"].as_array().unwrap().is_empty(), "{name}");
        for figure in results["figures"].as_array().unwrap() {
            let series = results["series"].as_array().unwrap();
            let own = series.iter().filter(|series| series["figure"] == figure["id"]);
            let points: usize = own.map(|series| series["points"].as_array().unwrap().len()).sum();
            assert!(points > 0, "{name}: {} is empty", figure["id"]);
        }
    }
}

/// The guaranteed area is full of files, and all else of what cannot be dropped: every huge request is served until the
/// area is used up, by dropping as many files, and what is not cached is never in the area.
#[test]
fn files_are_dropped_for_huge_requests() {
    let alloc = |id, order, mobility, cached| {
        let zone_max = ZoneMax::Movable;
        let order = Order::known(order);
        let op = ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu: 0 };
        TimedOp { time_us: u64::from(id), op }
    };
    const FRAMES: u32 = 1 << 20;
    const AREA: u32 = FRAMES / 8;
    let full = FRAMES - AREA + 4096;
    let mut ops: Vec<TimedOp> =
        (0..full).map(|id| alloc(id, 0, Mobility::Movable, false)).collect();
    ops.extend((full..full + AREA / 4).map(|id| alloc(id, 2, Mobility::Movable, true)));
    let files = full + AREA / 4;
    let huge = AREA / 512 + 8;
    let mobility =
        |nth: u32| if nth.is_multiple_of(3) { Mobility::Unmovable } else { Mobility::Movable };
    ops.extend((0..huge).map(|nth| alloc(files + nth, 9, mobility(nth), false)));
    let end_us = ops.len() as u64;
    let ids = 0..end_us as u32;
    ops.extend(ids.map(|id| TimedOp { time_us: end_us, op: ReplayOp::Free { id } }));
    let config = GreenConfig::new(AllocatorName::LinuxGuaranteed, MachineName::FourGib);
    let mut looks: Vec<Look> = Vec::new();
    let until_us = end_us / 100_000 * 100_000 + 200_000;
    drive(config, &mut Recorded::new(&ops, 0), until_us, 100_000, &mut |view| {
        view.check().unwrap();
        looks.push(view.look());
        true
    })
    .unwrap();
    let last = looks.last().unwrap();
    let counts = last.counts;
    assert_eq!(counts.huge_requests, u64::from(huge));
    assert!(counts.huge_served >= u64::from(AREA / 512 - 8), "{counts:?}");
    assert!(counts.huge_served <= u64::from(AREA / 512));
    assert!(counts.dropped_frames >= (counts.huge_served - 16) * 512, "{counts:?}");
    assert!(counts.dropped_frames <= counts.huge_served * 512);
    assert_eq!(last.moved_frames, 0);
    assert_eq!(last.free_frames, last.total_frames);
}
