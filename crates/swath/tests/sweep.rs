//! `swath sweep` and `swath merge`: killed, in shards, as an array job, and refused.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::time::ClockId;
use nix::unistd::{Pid, SysconfVar, sysconf};
use swath_arch::testing::Random;
use swath_lab::source::real::RealInput;
use swath_lab::study::run::{Run, Shared, Unwatched};
use swath_lab::sweep::definition::Sweep;
use swath_lab::table::column::{Cell, Table};
use swath_lab::table::parquet::Reader;

/// 2 × 3 × 8 points of some milliseconds each.
const SWEEP: &str = r#"plan = "plan.toml"
form = "quick"

[keys]
"machine.format" = ["armv7", "armv8"]
machine.tlb_entries = [8, 16, 32]
about.seed = { from = 1, to = 8 }
"#;

/// A room with a small plan and a sweep over it.
fn room(sweep: &str) -> tempfile::TempDir {
    let room = tempfile::tempdir().unwrap();
    let plan = swath_lab::study::registry::text_of("pbs-tlb").unwrap().to_owned();
    let (head, workloads) = plan.split_once("workloads = [").unwrap();
    let rest = workloads.split_once(']').unwrap().1;
    let mut plan = format!("{head}workloads = [\"matrix-transpose\"]{rest}");
    for (from, to) in [
        ("quick = 5", "quick = 2"),
        ("tlb_ways = 32", "tlb_ways = 4"),
        ("block_frames = [1, 2, 4, 8, 16, 32, 64, 128, 256]", "block_frames = [4, 16]"),
    ] {
        assert!(plan.contains(from), "{from}");
        plan = plan.replace(from, to);
    }
    fs::write(room.path().join("plan.toml"), plan).unwrap();
    fs::write(room.path().join("sweep.toml"), sweep).unwrap();
    room
}

fn command(room: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
    command.current_dir(room).args(args).stdin(Stdio::null());
    command
}

fn swath(room: &Path, args: &[&str]) -> Output {
    command(room, args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeds(room: &Path, args: &[&str]) -> serde_json::Value {
    let output = swath(room, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The files of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    entries.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

fn table(folder: &Path) -> Table {
    let reader = Reader::open(&folder.join("points.parquet")).unwrap();
    let mut table = Table::new(reader.schema());
    reader.for_each(|group| table.append(&group.unwrap()).unwrap());
    table
}

#[test]
fn a_sweep_that_is_killed_resumes_to_the_same_bytes() {
    let kills_wanted: u64 = std::env::var("SWATH_KILLS").map_or(6, |text| text.parse().unwrap());
    let seed = std::env::var("SWATH_SEED").map_or(1, |text| text.parse().unwrap());
    println!("seed {seed}");
    let (mut random, room) = (Random::new(seed), room(SWEEP));
    let room = room.path();
    let begin = Instant::now();
    let whole = succeeds(room, &["sweep", "sweep.toml", "--jobs", "2", "--out", "whole"]);
    let whole_ms = u64::try_from(begin.elapsed().as_millis()).unwrap();
    assert_eq!((&whole["points"]["all"], &whole["points"]["failed"]), (&48.into(), &0.into()));
    let expected = files(&room.join("whole"));
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["points.parquet", "sweep.json"]);
    let (mut kills, mut resumed, mut runs) = (0, 0, 0);
    while kills < kills_wanted {
        let out = format!("killed-{runs}");
        runs += 1;
        // What a run before has measured, this one goes on from; all of it, and nothing twice.
        let mut known = 0;
        loop {
            let args = ["sweep", "sweep.toml", "--jobs", "2", "--json", "--out", &out];
            let mut command = command(room, &args);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(random.below((whole_ms / 2).max(20))));
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            let words = said(&output);
            let count = words
                .split_once(" points of a run that did not end")
                .map(|(before, _)| before.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
            assert!(count.unwrap_or(0) >= known || !words.contains("points"), "{known}: {words}");
            known = count.unwrap_or(known);
            if output.status.success() {
                let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                let again = json["points"]["resumed"].as_u64().unwrap();
                assert!(again >= known, "{again} of {known} points were there");
                resumed += again;
                break;
            }
            kills += 1;
        }
        assert!(files(&room.join(&out)) == expected, "run {runs} differs");
    }
    println!("{kills} kills in {runs} runs of {whole_ms} ms, {resumed} points resumed");
    assert!(resumed > 0, "no run went on from a journal");
    // What is whole is not measured again, unless it is to be.
    let again = succeeds(room, &["sweep", "sweep.toml", "--out", "whole"]);
    assert_eq!((&again["was_whole"], &again["points"]["resumed"]), (&true.into(), &48.into()));
    let anew = succeeds(room, &["sweep", "sweep.toml", "--out", "whole", "--fresh"]);
    assert_eq!((&anew["was_whole"], &anew["points"]["resumed"]), (&false.into(), &0.into()));
    assert!(files(&room.join("whole")) == expected);
    // Each point of the table is the study's own result.
    let rows = &table(&room.join("whole"));
    let column =
        |name: &'static str| (0..rows.rows()).map(move |row| rows.column(name).unwrap().cell(row));
    let points: std::collections::BTreeSet<String> =
        column("point").map(|cell| format!("{cell:?}")).collect();
    assert_eq!(points.len(), 48);
    assert!(
        column("kind").all(|kind| {
            kind == Cell::Text("series".into()) || kind == Cell::Text("claim".into())
        })
    );
    let args = ["study", "--plan", "plan.toml", "--quick", "--seed", "8", "--out", "one"];
    assert!(swath(room, &args).status.success());
    let one = swath_lab::report::write::read_study(&room.join("one/pbs-tlb")).unwrap().result;
    let studied: Vec<f64> =
        one.series.iter().flat_map(|series| series.points.iter().map(|point| point.y)).collect();
    // The plan of the study: 32 entries of ARMv7, and the seed that was said.
    let own = |row: &usize| {
        let is = |name: &str, cell: Cell| rows.column(name).unwrap().cell(*row) == cell;
        is("machine.format", Cell::Text("armv7".into()))
            && is("machine.tlb_entries", Cell::Int(32))
            && is("about.seed", Cell::Int(8))
            && is("kind", Cell::Text("series".into()))
    };
    let swept: Vec<f64> = (0..rows.rows())
        .filter(own)
        .map(|row| match rows.column("value").unwrap().cell(row) {
            Cell::Float(value) => value,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(!studied.is_empty() && studied == swept);
}

#[test]
fn shards_merge_to_the_bytes_of_one_run() {
    let room = room(SWEEP);
    let room = room.path();
    succeeds(room, &["sweep", "sweep.toml", "--out", "whole"]);
    // More shards than points leave some without any.
    for of in [3, 50] {
        let out = format!("in-{of}");
        for nth in 1..=of {
            let shard = format!("{nth}/{of}");
            succeeds(room, &["sweep", "sweep.toml", "--out", &out, "--shard", &shard]);
        }
        let merged = format!("merged-{of}");
        let json = succeeds(room, &["merge", &out, "--out", &merged]);
        assert_eq!((&json["shards"], &json["points"]), (&of.into(), &48.into()));
        assert!(files(&room.join(merged)) == files(&room.join("whole")), "{of}");
    }
    let refused = |args: &[&str], why: &str| {
        let output = swath(room, &[&["merge", "--out", "no"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(said(&output).contains(why), "{args:?}: {}", said(&output));
        assert!(!room.join("no").exists());
    };
    let shard = |nth: u32| format!("in-3/shard-{nth}-of-3");
    let [one, two, three] = [shard(1), shard(2), shard(3)];
    refused(&[&one, &three], "of 3 shards, 1 is missing: 2");
    refused(&[&one, &two, &three, &two], "are the same shard");
    refused(&[&one, "in-50/shard-2-of-50"], "number of shards");
    refused(&["nowhere", &one], "no whole shard");
    fs::write(room.join("other.toml"), SWEEP.replace("to = 8", "to = 9")).unwrap();
    succeeds(room, &["sweep", "other.toml", "--out", "other", "--shard", "2/3"]);
    refused(&[&one, "other/shard-2-of-3", &three], "its sweep is not that of");
    // A table that is another shard's.
    fs::copy(room.join(&one).join("points.parquet"), room.join(&two).join("points.parquet"))
        .unwrap();
    let output = swath(room, &["merge", "in-3", "--out", "no"]);
    assert!(said(&output).contains("point 1 is not where it should be"), "{}", said(&output));
    assert!(!room.join("no/points.parquet").exists());
}

#[test]
fn an_array_job_gives_the_same_bytes() {
    let room = room(SWEEP);
    let room = room.path();
    succeeds(room, &["sweep", "sweep.toml", "--out", "whole"]);
    let output =
        swath(room, &["sweep", "sweep.toml", "--out", "it's here", "--slurm", "3", "--jobs", "1"]);
    assert!(output.status.success(), "{}", said(&output));
    let script = String::from_utf8(output.stdout).unwrap();
    for line in ["#SBATCH --array=1-3", "#SBATCH --cpus-per-task=1", "#SBATCH --requeue"] {
        assert!(script.lines().any(|own| own == line), "{line}");
    }
    // What a cluster reads of it stands before the first command.
    let commands = script.lines().skip_while(|line| line.starts_with('#'));
    assert!(commands.clone().all(|line| !line.starts_with("#SBATCH")), "{script}");
    fs::write(room.join("job.sh"), &script).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_swath"), room.join("swath")).unwrap();
    let path = format!("{}:{}", room.display(), std::env::var("PATH").unwrap());
    for task in ["1", "2", "3"] {
        let mut bash = Command::new("bash");
        bash.arg("job.sh").current_dir(room).stdin(Stdio::null());
        bash.env("PATH", &path).env("SLURM_ARRAY_TASK_ID", task).env("SLURM_CPUS_PER_TASK", "1");
        let output = bash.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    succeeds(room, &["merge", "it's here", "--out", "merged"]);
    assert!(files(&room.join("merged")) == files(&room.join("whole")));
}

#[test]
fn what_is_absurd_is_refused_by_key_and_line() {
    let huge = "{ from = 1, to = 1_000_000 }";
    for (from, to, why) in [
        ("[8, 16, 32]", "[8, 0]", "line 6, keys.machine.tlb_entries: 0: 0 is not between"),
        ("[8, 16, 32]", "[8, \"x\"]", "line 6, keys.machine.tlb_entries: \"x\":"),
        ("[8, 16, 32]", "[8, 16, 6]", "line 6, keys.machine.tlb_entries: 6: machine.tlb_ways"),
        ("[8, 16, 32]", "8", "line 6, keys.machine.tlb_entries: neither a list nor a range"),
        ("[8, 16, 32]", huge, "line 6, keys.machine.tlb_entries: with it 2000000 points"),
        ("machine.tlb_entries", "machine.tlb", "line 6, keys.machine.tlb: 8: unknown field `tlb`"),
        ("about.seed", "about.kind", "line 7, keys.about.kind: it names what is swept"),
        ("about.seed", "kind", "line 7, keys.kind: the table has a column of this name"),
        ("about.seed", "repeats.full.x", "line 7, keys.repeats.full.x: no \"x\" below a value"),
        ("\"plan.toml\"", "\"no.toml\"", "no.toml"),
        ("plan = \"plan.toml\"", "study = \"no\"", "line 1, study: no study \"no\""),
        ("form = \"quick\"", "form = \"some\"", "unknown variant `some`"),
        ("form = \"quick\"", "memory = \"x\"", "x: No such file"),
        (
            "plan = \"plan.toml\"",
            "memory = \"x\"\nstudy = \"pbs-cases\"",
            "line 1, memory: the study does not use it",
        ),
        ("form = \"quick\"", "study = \"pbs-tlb\"", "one of `study` and `plan`"),
    ] {
        assert!(SWEEP.contains(from), "{from}");
        let room = room(&SWEEP.replace(from, to));
        let output = swath(room.path(), &["sweep", "sweep.toml"]);
        assert_eq!(output.status.code(), Some(2), "{to}: {}", said(&output));
        assert!(said(&output).contains(why), "{to}: {}", said(&output));
        assert!(!room.path().join("sweep").exists(), "{to}: nothing was run");
    }
    let room = room(
        &SWEEP
            .replace("tlb_entries = [8, 16, 32]", "tlb_ways = [4, 64]")
            .replace("about.seed = {", "machine.tlb_entries = [8, 64]\nabout.seed = {"),
    );
    let room = room.path();
    // Each is good by itself or beside another value, but not both.
    let output = swath(room, &["sweep", "sweep.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("machine.tlb_ways"), "{}", said(&output));
    // The table says which points are refused, if it is to.
    let text = fs::read_to_string(room.join("sweep.toml")).unwrap();
    fs::write(room.join("sweep.toml"), format!("refused = \"skip\"\n{text}")).unwrap();
    let checked = succeeds(room, &["sweep", "sweep.toml", "--check"]);
    assert_eq!((&checked["points"], &checked["refused"]), (&64.into(), &16.into()));
    let json = succeeds(room, &["sweep", "sweep.toml"]);
    assert_eq!(json["points"]["refused"], 16);
    let rows = table(&room.join("sweep"));
    let kind = rows.column("kind").unwrap();
    let refused: Vec<usize> =
        (0..rows.rows()).filter(|row| kind.cell(*row) == Cell::Text("refused".into())).collect();
    assert_eq!(refused.len(), 16);
    for row in refused {
        assert_eq!(rows.column("machine.tlb_ways").unwrap().cell(row), Cell::Int(64));
        assert_eq!(rows.column("machine.tlb_entries").unwrap().cell(row), Cell::Int(8));
        let Cell::Text(why) = rows.column("why").unwrap().cell(row) else { panic!("no reason") };
        assert!(why.contains("machine.tlb_ways"), "{why}");
    }
    let output = swath(room, &["sweep", "sweep.toml", "--memory-limit", "1MiB", "--out", "no"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(!room.join("no").exists());
}

/// Runs a command to its end and returns the processor time that it took, in seconds.
fn processor_seconds(mut command: Command) -> f64 {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap());
    // It has ended, but is still there to be asked.
    waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    assert!(child.wait().unwrap().success());
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap());
    let second = sysconf(SysconfVar::CLK_TCK).unwrap().unwrap();
    ticks.sum::<f64>() / second as f64
}

/// What a sweep costs beside its points: the same points, their plans read before, measured by two bare
/// threads. Points of some ten milliseconds; `SWATH_POINTS` says how many, and with 10,000 the time on
/// the clock is judged, too, of which a short run on a busy machine says little. What else runs on the machine makes
/// one of the two slower, so the best of three measurements counts.
#[test]
fn a_sweep_is_little_more_than_its_points() {
    let points: u64 = std::env::var("SWATH_POINTS").map_or(60, |text| text.parse().unwrap());
    let text = format!(
        "plan = \"plan.toml\"\nform = \"quick\"\n[keys]\nabout.seed = {{ from = 1, to = {points} }}\n"
    );
    let room = room(&text);
    let is_little = |nth: u32| {
        let [work, time] = shares_of_points(room.path(), &text, points, &format!("swept-{nth}"));
        work >= 0.8 && (points < 10_000 || time >= 0.8)
    };
    assert!((1..=3).any(is_little));
}

/// Sweeps into a folder, and measures the points by themselves; returns their share of the sweep's
/// processor time and of its time.
fn shares_of_points(room: &Path, text: &str, points: u64, out: &str) -> [f64; 2] {
    let args = ["sweep", "sweep.toml", "--jobs", "2", "--out", out];
    let begin = Instant::now();
    let swept_work = processor_seconds(command(room, &args));
    let swept_seconds = begin.elapsed().as_secs_f64();

    let sweep = Sweep::read("sweep.toml", text, room).unwrap();
    let plans: Vec<_> = (0..points).map(|point| sweep.read_point(point).unwrap()).collect();
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let bare_work = std::thread::scope(|scope| {
        let work = [(); 2].map(|()| {
            scope.spawn(|| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
                let (pool, shared) = (pool.build().unwrap(), Shared::default());
                let real = RealInput::default();
                let run = Run {
                    quick: true,
                    real: &real,
                    watch: &Unwatched,
                    journal: None,
                    shared: &shared,
                };
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    pool.install(|| plan.run(&run)).unwrap();
                }
                // A point's work is done on its own thread.
                let time = ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap();
                time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
            })
        });
        work.map(|work| work.join().unwrap()).iter().sum::<f64>()
    });
    let bare_seconds = begin.elapsed().as_secs_f64();
    let each = |seconds: f64| 1e3 * seconds / points as f64;
    println!(
        "{points} points of {:.2} ms: {:.3} ms of a processor beside each, {:.1}% of the processor time and \
         {:.1}% of the time is theirs",
        each(bare_work),
        each(swept_work - bare_work),
        100.0 * bare_work / swept_work,
        100.0 * bare_seconds / swept_seconds
    );
    [bare_work / swept_work, bare_seconds / swept_seconds]
}
