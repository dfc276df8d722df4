//! `swath study` killed at any moment: the same command goes on from there, and the report's
//! bytes are those of a run that nobody killed.
//!
//! The quick form is part of the suite. The long one kills a hundred times:
//! `SWATH_KILLS=100 cargo test --release -p swath --test suite resume -- --nocapture`. A single run of
//! `green-power` in its full form, killed a hundred times, is as long as three of it:
//! `SWATH_KILLS=100 cargo test --release -p swath --test suite resume -- --ignored --nocapture`; with
//! `SWATH_SHARE=60` each hour of its tracks is a minute. It has one thread, on which a kill loses one
//! point at most, or `SWATH_JOBS`, each of which may lose one.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use swath_arch::testing::Random;

/// Plans with many points in a second or so: of a grid, of tracks over time, of words and of
/// children that are stepped.
const PLANS: [(&str, &[(&str, &str)]); 5] = [
    ("pbs-freelist", &[("quick = 50", "quick = 20"), ("quick = 400_000", "quick = 4_000")]),
    (
        "green-power",
        &[
            ("quick = 3 }", "quick = 2 }"),
            (
                "light\"\nminutes = { full = 90, quick = 40 }",
                "light\"\nminutes = { full = 90, quick = 0 }",
            ),
            (
                "medium\"\nminutes = { full = 90, quick = 40 }",
                "medium\"\nminutes = { full = 90, quick = 3 }",
            ),
        ],
    ),
    (
        "rt-footprint",
        &[("actions = 1_000_000", "actions = 20_000"), ("1_048_576\nframes", "65_536\nframes")],
    ),
    (
        "rt-runtimes",
        &[
            ("actions = 1_000_000", "actions = 5_000"),
            ("quick = 524_288", "quick = 65_536"),
            ("calls = 8", "calls = 1"),
        ],
    ),
    (
        "cl-availability",
        // One row of the table is within the library's reserve.
        &[(
            "reserve_mib = 256, repeats = { full = 20, quick = 3 }",
            "reserve_mib = 2, repeats = 2",
        )],
    ),
];

/// The plan of a study of the registry, cut down.
fn plan(study: &str, changes: &[(&str, &str)]) -> String {
    let head = format!("study = {study:?}");
    let mut plans = swath_lab::study::registry::entries().map(|(_, entry)| entry.plan);
    let plan = plans.find(|plan| plan.contains(&head)).unwrap().to_owned();
    changes.iter().fold(plan, |plan, (from, to)| {
        assert!(plan.contains(from), "{study}: {from}");
        plan.replace(from, to)
    })
}

struct Killed {
    /// True if the run ended before it was to be killed.
    ended: bool,
    said: String,
}

impl Killed {
    /// Of each journal that it found: the points in it, and those that the run before had begun and
    /// not done.
    fn resumed(&self) -> Vec<[u64; 2]> {
        let lines = self.said.lines().filter_map(|line| line.split_once(RESUMED));
        lines
            .map(|(head, rest)| {
                let rest = rest.strip_prefix(UNDER_WAY).expect("what a kill cost is told");
                let words = [head.rsplit(' ').next(), rest.split(' ').next()];
                words.map(|word| word.and_then(|word| word.parse().ok()).expect("a number"))
            })
            .collect()
    }
}

/// What a run says of the points that it does not measure again, after their number, and before that of
/// the points that it measures again although they were begun.
const RESUMED: &str = " points of a run that did not end";
const UNDER_WAY: &str = " are in its journal, ";

/// Threads of a run in quick form.
const JOBS: u64 = 2;

/// Runs the plans of studies into `out`, on so many threads, and kills the run after a time.
fn study(
    room: &Path,
    studies: &[&str],
    form: &[&str],
    (jobs, out): (u64, &str),
    kill_after: Duration,
) -> Killed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
    let jobs = jobs.to_string();
    command.current_dir(room).args(["study", "--jobs", &jobs, "--out", out]).args(form);
    for study in studies {
        command.args(["--plan", &format!("{study}.toml")]);
    }
    let said = room.join("said");
    let to = fs::File::create(&said).unwrap();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(to);
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    let ended = loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}: {}", fs::read_to_string(&said).unwrap());
            break true;
        }
        if begin.elapsed() >= kill_after {
            child.kill().unwrap();
            child.wait().unwrap();
            break false;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    Killed { ended, said: fs::read_to_string(said).unwrap() }
}

/// The report's files but for what the machine said: host results, their figures, and the
/// page, which has both.
fn report(out: &Path, studies: &[&str]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for study in studies {
        let place = out.join(study);
        let text = fs::read_to_string(place.join("results.json")).unwrap();
        let results: swath_lab::study::results::StudyResult = serde_json::from_str(&text).unwrap();
        let mut names = vec!["results.json".to_owned()];
        for figure in &results.figures {
            let stem = figure.file_stem();
            names.extend(["csv", "svg"].map(|end| format!("{stem}.{end}")));
        }
        for name in names {
            // A table has no drawing.
            if let Ok(bytes) = fs::read(place.join(&name)) {
                files.insert(Path::new(study).join(name), bytes);
            }
        }
    }
    files
}

/// A reader at any moment finds each study whole: its files are those of its results.
fn is_whole(out: &Path, studies: &[&str]) {
    for study in studies {
        let place = out.join(study);
        if !place.exists() {
            continue;
        }
        let found = swath_lab::report::write::read_study(&place).unwrap();
        let host = found.host.iter().flat_map(|host| &host.figures);
        for figure in found.result.figures.iter().chain(host) {
            assert!(place.join(figure.file_stem() + ".csv").is_file(), "{study}: {}", figure.id);
        }
    }
}

#[test]
fn a_run_that_is_killed_resumes_to_the_same_bytes() {
    let kills_wanted: u64 = std::env::var("SWATH_KILLS").map_or(10, |text| text.parse().unwrap());
    let seed = std::env::var("SWATH_SEED").map_or(1, |text| text.parse().unwrap());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let room = tempfile::tempdir().unwrap();
    for (study, changes) in PLANS {
        fs::write(room.path().join(format!("{study}.toml")), plan(study, changes)).unwrap();
    }
    let studies = PLANS.map(|(study, _)| study);
    let begin = Instant::now();
    let ten_minutes = Duration::from_secs(600);
    assert!(study(room.path(), &studies, &["--quick"], (JOBS, "whole"), ten_minutes).ended);
    let whole_ms = u64::try_from(begin.elapsed().as_millis()).unwrap();
    let whole = report(&room.path().join("whole"), &studies);
    assert!(whole.len() > 20);
    // So that each run in turn is killed a few times before its end.
    let most_ms = (whole_ms / 3).max(20);
    let (mut kills, mut resumed, mut lost, mut runs) = (0, 0, 0, 0);
    while kills < kills_wanted {
        let out = format!("killed-{runs}");
        loop {
            let after = Duration::from_millis(random.below(most_ms));
            let one = study(room.path(), &studies, &["--quick"], (JOBS, &out), after);
            for [_, under_way] in one.resumed() {
                assert!(under_way <= JOBS, "a kill cost {under_way} points: {}", one.said);
                (resumed, lost) = (resumed + 1, lost + under_way);
            }
            assert!(!one.said.contains("begun anew"), "{}", one.said);
            is_whole(&room.path().join(&out), &studies);
            if one.ended {
                break;
            }
            kills += 1;
        }
        runs += 1;
        let own = report(&room.path().join(&out), &studies);
        assert!(own == whole, "run {runs} differs");
        assert!(!room.path().join(&out).join(".swath").exists(), "nothing of the work is left");
    }
    println!(
        "{kills} kills in {runs} runs of {whole_ms} ms, {resumed} journals resumed, {lost} points begun again"
    );
    assert!(resumed > 0, "no run went on from a journal");
}

/// The plan of `green-power` in which each track lasts a part of its time in the full form, and three
/// minutes, the fewest that a plan may say, at least.
fn shorter_tracks(share: u64) -> String {
    let plan = plan("green-power", &[]);
    let shorter = plan.lines().map(|line| match line.split_once("minutes = { full = ") {
        Some((head, rest)) => {
            let (minutes, rest) = rest.split_once(',').unwrap();
            let minutes = minutes.parse::<u64>().unwrap();
            let minutes = minutes.div_ceil(share).max(minutes.min(3));
            format!("{head}minutes = {{ full = {minutes},{rest}\n")
        }
        None => format!("{line}\n"),
    });
    shorter.collect()
}

/// The kills come at random moments, as many in the time of a run that nobody kills as are wanted;
/// then the run goes to its end.
#[test]
#[ignore = "hours, or with SWATH_SHARE minutes"]
fn a_full_form_that_is_killed_a_hundred_times_ends_with_the_same_bytes() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |t| t.parse().unwrap());
    let (wanted, seed) = (number("SWATH_KILLS", 100), number("SWATH_SEED", 1));
    let (share, jobs) = (number("SWATH_SHARE", 1), number("SWATH_JOBS", 1));
    let (room, studies) = (tempfile::tempdir().unwrap(), ["green-power"]);
    let (place, forever) = (room.path(), Duration::from_secs(u64::MAX));
    fs::write(place.join("green-power.toml"), shorter_tracks(share)).unwrap();
    let begin = Instant::now();
    assert!(study(place, &studies, &[], (jobs, "whole"), forever).ended);
    let whole_secs = begin.elapsed().as_secs_f64();
    let whole = report(&place.join("whole"), &studies);

    let mut random = Random::new(seed);
    let (mut kills, mut points, mut grew, mut lost, mut most) = (0, 0, 0, 0, 0);
    let begin = Instant::now();
    loop {
        // Of moments that know nothing of each other: the time to the next has this distribution.
        let moment = (1 + random.below(1 << 20)) as f64 / (1_u64 << 20) as f64;
        let after = Duration::from_secs_f64(-moment.ln() * whole_secs / wanted as f64);
        let after = if kills < wanted { after } else { forever };
        let one = study(place, &studies, &[], (jobs, "killed"), after);
        assert!(!one.said.contains("begun anew"), "{}", one.said);
        is_whole(&place.join("killed"), &studies);
        // A kill costs no point that was done, and of those under way one for each thread.
        let found = one.resumed();
        if let [[resumed, under_way]] = found[..] {
            assert!(resumed >= points, "{points} points before: {}", one.said);
            assert!(under_way <= jobs, "a kill cost {under_way} points: {}", one.said);
            grew += u64::from(resumed > points);
            (points, lost, most) = (resumed, lost + under_way, under_way.max(most));
        }
        if one.ended {
            assert!(points == 0 || found.len() == 1, "{}", one.said);
            break;
        }
        kills += 1;
    }
    assert!(report(&place.join("killed"), &studies) == whole, "seed {seed}");
    println!(
        "seed {seed}: {kills} kills, tracks of 1/{share}, {jobs} threads: {:.0} s for {whole_secs:.0} s, \
         {points} points resumed at the end, {grew} runs found more than the one before; {lost} points were \
         lost, {most} at most by a kill",
        begin.elapsed().as_secs_f64()
    );
    assert!(kills == wanted, "it ended before");
}

#[test]
fn fresh_measures_anew_and_another_seed_begins_anew() {
    let room = tempfile::tempdir().unwrap();
    let (name, changes) = PLANS[0];
    fs::write(room.path().join("plan.toml"), plan(name, changes)).unwrap();
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
        command.args(["study", "--quick", "--json", "--plan", "plan.toml"]).args(more);
        let output = command.current_dir(room.path()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["studies"][0]["points"]["resumed"].as_u64().unwrap(), said)
    };
    // A journal as a killed run leaves it: another run's, which is copied while it works.
    let work = room.path().join("report/.swath");
    let journals = || {
        let entries = fs::read_dir(&work).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "journal")).collect()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
    command.args(["study", "--quick", "--plan", "plan.toml"]).current_dir(room.path());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let begun = loop {
        let found: Vec<PathBuf> = journals();
        let points = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 5_000);
        if found.iter().any(points) {
            break true;
        }
        if child.try_wait().unwrap().is_some() {
            break false;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(begun && journals().len() == 1, "ended before it could be killed");
    let (resumed, said) = run(&["--seed", "77"]);
    assert_eq!(resumed, 0);
    assert!(said.contains("another plan, seed or build and stays"), "{said}");
    assert_eq!(journals().len(), 1);
    let (resumed, said) = run(&["--fresh"]);
    assert_eq!((resumed, said.as_str()), (0, ""));
    assert!(journals().is_empty());
}

#[test]
fn one_run_at_a_time_has_a_report() {
    let room = tempfile::tempdir().unwrap();
    let _held = swath_lab::report::folder::Folder::open(&room.path().join("report")).unwrap();
    for args in [&["study", "pbs-cases"][..], &["report", "report"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
        let output = command.args(args).current_dir(room.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    }
    assert!(!room.path().join("report/pbs-cases").exists());
}

#[test]
fn a_report_is_rendered_from_what_is_there() {
    let room = tempfile::tempdir().unwrap();
    let swath = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
        command.args(args).current_dir(room.path()).stdin(Stdio::null()).output().unwrap()
    };
    assert!(swath(&["study", "pbs-cases", "cl-order"]).status.success());
    let at = |path: &str| room.path().join("report").join(path);
    let page = fs::read(at("index.html")).unwrap();
    let rows = fs::read(at("cl-order/fig-4.csv")).unwrap();
    fs::remove_file(at("index.html")).unwrap();
    fs::write(at("cl-order/fig-4.csv"), "of another run").unwrap();
    assert!(swath(&["report", "report"]).status.success());
    assert!(fs::read(at("index.html")).unwrap() == page);
    assert!(fs::read(at("cl-order/fig-4.csv")).unwrap() == rows);
    // A result that is broken costs its own section alone.
    fs::write(at("cl-order/results.json"), "{").unwrap();
    let output = swath(&["report", "report", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["studies"], serde_json::json!(["pbs-cases"]));
    assert!(json["left_out"][0].as_str().unwrap().contains("cl-order/results.json"), "{json}");
    let text = fs::read_to_string(at("index.html")).unwrap();
    assert!(text.contains("pbs-cases") && !text.contains("cl-order"));
    assert_eq!(swath(&["report", "nowhere"]).status.code(), Some(2));
}
