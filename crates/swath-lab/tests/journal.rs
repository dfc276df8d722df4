//! A run that is killed at any moment goes on with at most the points under way lost, which
//! a witness beside the journal counts.

#![cfg(unix)]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use swath_arch::testing::Random;
use swath_lab::source::real::RealInput;
use swath_lab::study::journal::Journal;
use swath_lab::study::plan::Head;
use swath_lab::study::run::{Run, Shared, Unwatched};

const POINTS: u32 = 300;
const THREADS: usize = 2;
/// The room of the child, which is this test.
const ROOM: &str = "SWATH_TEST_JOURNAL_ROOM";

/// The result of a point: numbers of which some are none.
fn work(point: u32) -> Vec<f64> {
    let mut random = Random::new(point.into());
    (0..20_000).fold(vec![0.0, f64::NAN], |mut sum, _| {
        sum[0] += random.word() as f64;
        sum
    })
}

/// The child: measures all points twice, in parallel and in turn, and writes what it found.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Some(room) = std::env::var_os(ROOM) else { return };
    let room = Path::new(&room);
    let witness = File::options().append(true).create(true).open(room.join("witness")).unwrap();
    let witness = Mutex::new(witness);
    let (journal, _) = Journal::open(&room.join("journal"), "key").unwrap();
    let real = RealInput::default();
    let run = Run {
        quick: true,
        real: &real,
        watch: &Unwatched,
        journal: Some(&journal),
        shared: &Shared::default(),
    };
    let text = |word: &str| word.to_owned();
    let about =
        Head { study: text("a"), kind: text("b"), title: text("c"), seed: 1, purpose: text("d") };
    let points: Vec<u32> = (0..POINTS).collect();
    let measure = |stage: u32, point: u32| {
        let result = work(point);
        let line = (stage * POINTS + point).to_le_bytes();
        witness.lock().unwrap().write_all(&line).unwrap();
        Ok(result)
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
    let one = pool.install(|| run.points(&about, &points, |&point| measure(0, point))).unwrap();
    let other = run.points_in_turn(&about, &points, |&point| measure(1, point)).unwrap();
    let bits: Vec<u64> = one.iter().chain(&other).flatten().map(|value| value.to_bits()).collect();
    fs::write(room.join("found"), format!("{bits:?}")).unwrap();
}

fn start(room: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "journal::child", "--ignored"]).env(ROOM, room);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// Lets it run for a time; true if it ended by itself.
fn ended_within(child: &mut Child, time: Duration) -> bool {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return true;
        }
        if begin.elapsed() >= time {
            child.kill().unwrap();
            child.wait().unwrap();
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_kill_loses_the_points_under_way_and_no_more() {
    let seed = 20;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let whole = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    assert!(ended_within(&mut start(whole.path()), Duration::from_secs(300)));
    let most_ms = u64::try_from(begin.elapsed().as_millis()).unwrap().max(10);
    let found = |room: &Path| fs::read_to_string(room.join("found")).unwrap();
    let (mut kills, mut again) = (0, 0);
    while kills < 10 {
        let room = tempfile::tempdir().unwrap();
        let mut killed = 0;
        while !ended_within(&mut start(room.path()), Duration::from_millis(random.below(most_ms))) {
            killed += 1;
        }
        assert_eq!(found(room.path()), found(whole.path()));
        let witness = fs::read(room.path().join("witness")).unwrap();
        let measured = witness.len() / 4;
        let lost = measured - 2 * POINTS as usize;
        assert!(lost <= killed * THREADS, "{lost} points were lost in {killed} kills");
        (kills, again) = (kills + killed, again + lost);
    }
    println!("{again} points measured again after {kills} kills");
}
