//! Counting instructions, with this test program itself as the counted child:
//! it starts again with the one test [`child`] and a part to play.

#![cfg(target_os = "linux")]

use std::hint::black_box;
use std::process::Command;

use swath_lab::host::callgrind::{self, Regions};
use swath_lab::host::count::{CountError, Counter, Marks, Region};

/// Names the part that the child plays.
const PART: &str = "SWATH_COUNT_PART";
const STEPS_MAX: u64 = 1 << 20;

/// A loop whose instructions grow by the same number for each turn.
fn turns(count: u64) -> u64 {
    let mut sum = 0u64;
    for turn in 0..black_box(count) {
        sum = black_box(sum.wrapping_mul(3) ^ turn);
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod exact {
    use std::arch::asm;

    pub(crate) fn no_nops() {
        // SAFETY: there is no instruction in it.
        unsafe { asm!(".rept 0", "nop", ".endr") };
    }

    pub(crate) fn thousand_nops() {
        // SAFETY: `nop` changes nothing.
        unsafe { asm!(".rept 1000", "nop", ".endr") };
    }

    pub(crate) fn fill(bytes: &mut [u8], by: usize) {
        assert!(by <= bytes.len());
        // SAFETY: writes `by` bytes from the start of `bytes`, which has them;
        // the direction flag is clear by the calling convention.
        unsafe {
            asm!("rep stosb", inout("rdi") bytes.as_mut_ptr() => _, inout("rcx") by => _, in("al") 7u8);
        }
    }
}

/// The turns of the regions that are counted in both ways.
const TURNS: [u64; 4] = [0, 100, 200, 300];

/// The child. Run as a test of its own, without a part, it has nothing to do.
#[test]
fn child() {
    let Ok(part) = std::env::var(PART) else { return };
    if part == "silent" {
        std::process::exit(3);
    }
    if part == "liar" {
        println!("\nswath-count:ready minus one");
        return;
    }
    if part == "simulated" {
        let mut regions = Regions::begin();
        for count in TURNS {
            regions.region(&mut || {
                black_box(turns(count));
            });
        }
        regions.region(&mut || ());
        return;
    }
    let mut marks = Marks::begin().expect("a counter");
    let mut bytes = vec![0u8; 1 << 16];
    match part.as_str() {
        "turns" => {
            println!("chatter between the marks");
            for count in TURNS {
                let mut work = || {
                    black_box(turns(count));
                };
                marks.region(&format!("{count} turns"), &mut work).expect("a region");
            }
            marks.region("nothing", &mut || ()).expect("a region");
        }
        #[cfg(target_arch = "x86_64")]
        "nops" => {
            marks.region("0", &mut exact::no_nops).expect("a region");
            marks.region("1000", &mut exact::thousand_nops).expect("a region");
        }
        #[cfg(target_arch = "x86_64")]
        "repeat" => {
            for by in [1, 4096] {
                let mut work = || exact::fill(black_box(&mut bytes), black_box(by));
                marks.region(&by.to_string(), &mut work).expect("a region");
            }
        }
        // Code paths of a copy depend on where the bytes lie.
        "copies" => {
            for len in [1, 100, 1000, 60_000] {
                let mut work = || {
                    let copy = black_box(&bytes[..len]).to_vec();
                    black_box(copy);
                };
                marks.region(&len.to_string(), &mut work).expect("a region");
            }
        }
        "endless" => {
            let mut work = || while black_box(true) {};
            marks.region("endless", &mut work).expect("a region");
        }
        "exit inside" => {
            marks.region("fatal", &mut || std::process::exit(4)).expect("a region");
        }
        "killed inside" => {
            let mut work = || {
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).expect("a signal");
            };
            marks.region("fatal", &mut work).expect("a region");
        }
        "killed outside" => std::process::abort(),
        "exit outside" => std::process::exit(5),
        "line break" => {
            let refused = marks.region("a\nb", &mut || panic!("work of a refused region"));
            assert!(matches!(refused, Err(CountError::Label(_))), "{refused:?}");
        }
        "signals" => {
            use nix::sys::signal::{Signal, kill, raise};
            let mut foreign = || kill(nix::unistd::Pid::this(), Signal::SIGURG).expect("a signal");
            marks.region("foreign mark", &mut foreign).expect("a region");
            let mut deadly = || {
                // To this thread: the test's other threads are not counted,
                // and would take one for the whole process.
                raise(Signal::SIGTERM).expect("a signal");
                black_box(turns(100));
            };
            marks.region("held", &mut deadly).expect("a region");
            loop {
                std::thread::park();
            }
        }
        other => panic!("no part {other:?}"),
    }
}

fn command(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child", "--nocapture"]).env(PART, part);
    command
}

/// Starts the child; `None`, with the reason said, where tracing is forbidden.
fn counter(part: &str, steps_max: u64) -> Option<Counter> {
    match Counter::spawn(command(part), steps_max) {
        Ok(counter) => Some(counter),
        Err(error @ CountError::NotAllowed(_)) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{part}: {error}"),
    }
}

fn all(counter: &mut Counter) -> Vec<Region> {
    let mut regions = Vec::new();
    while let Some(region) = counter.next_region().expect("a region") {
        regions.push(region);
    }
    assert!(counter.next_region().expect("still the end").is_none());
    regions
}

fn counts(part: &str) -> Option<Vec<Region>> {
    counter(part, STEPS_MAX).map(|mut counter| all(&mut counter))
}

/// A simulated processor counts what stepping counts, and a region of nothing as nothing.
#[test]
fn callgrind_counts_the_same() {
    if !callgrind::is_here() {
        eprintln!("not tested: valgrind is not installed");
        return;
    }
    let simulated = callgrind::count(&command("simulated")).expect("the counts");
    assert_eq!((simulated.len(), simulated[4]), (5, 0));
    assert!(simulated[3] > 3 * 300, "{simulated:?}");
    if let Some(stepped) = counts("turns") {
        let stepped: Vec<u64> = stepped.iter().map(|region| region.instructions).collect();
        // The closures differ by the registers that they save.
        let turns = |counts: &[u64]| counts[3] - counts[1];
        assert_eq!(turns(&simulated), turns(&stepped), "{simulated:?} and {stepped:?}");
    }
    // A child without a region, and one that ends without success.
    let error = callgrind::count(&command("liar")).expect_err("no region");
    assert!(matches!(error, CountError::Protocol(_)), "{error}");
    let error = callgrind::count(&command("silent")).expect_err("no success");
    assert!(matches!(error, CountError::ChildEnded { .. }), "{error}");
}

#[test]
fn a_loop_counts_in_proportion_and_nothing_counts_zero() {
    let Some(regions) = counts("turns") else { return };
    let labels: Vec<_> = regions.iter().map(|region| region.label.as_str()).collect();
    assert_eq!(labels, ["0 turns", "100 turns", "200 turns", "300 turns", "nothing"]);
    let count: Vec<_> = regions.iter().map(|region| region.instructions).collect();
    let per_hundred = count[2] - count[1];
    assert!(per_hundred >= 300, "{per_hundred} instructions for a hundred turns");
    assert_eq!(count[3] - count[2], per_hundred);
    assert_eq!(count[4], 0);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_thousand_instructions_are_a_thousand() {
    let Some(regions) = counts("nops") else { return };
    assert_eq!(regions[1].instructions - regions[0].instructions, 1000);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_repeated_string_instruction_is_one() {
    let Some(regions) = counts("repeat") else { return };
    assert_eq!(regions[0].instructions, regions[1].instructions);
}

#[test]
fn the_same_work_counts_the_same_each_time() {
    let Some(first) = counts("copies") else { return };
    assert_eq!(first.len(), 4);
    for _ in 0..2 {
        assert_eq!(counts("copies").as_ref(), Some(&first));
    }
}

#[test]
fn two_counters_at_once_do_not_disturb_each_other() {
    let Some(mut one) = counter("turns", STEPS_MAX) else { return };
    let Some(mut two) = counter("turns", STEPS_MAX) else { return };
    assert_eq!(one.overhead_instructions(), two.overhead_instructions());
    while let Some(region) = one.next_region().expect("a region") {
        assert_eq!(two.next_region().expect("a region"), Some(region));
    }
    assert!(two.next_region().expect("the end").is_none());
}

#[test]
fn a_region_without_end_meets_the_budget() {
    let Some(mut counter) = counter("endless", 10_000) else { return };
    let error = counter.next_region().expect_err("the budget");
    assert_eq!(error.to_string(), "the region \"endless\" is longer than 10000 steps");
}

#[test]
fn a_budget_too_small_for_the_marks_is_said() {
    if counter("turns", STEPS_MAX).is_none() {
        return;
    }
    let error = Counter::spawn(command("turns"), 3).expect_err("the budget");
    assert!(matches!(error, CountError::Budget { steps_max: 3, .. }), "{error}");
}

#[test]
fn a_child_that_ends_is_an_error_that_says_where() {
    for (part, says) in [
        ("exit inside", "the counted child ended inside the region \"fatal\": exit status: 4"),
        (
            "killed inside",
            "the counted child ended inside the region \"fatal\": signal: 9 (SIGKILL)",
        ),
        ("exit outside", "the counted child ended outside of any region: exit status: 5"),
        ("killed outside", "the counted child ended outside of any region: signal: 6 (SIGABRT)"),
    ] {
        let Some(mut counter) = counter(part, STEPS_MAX) else { return };
        let error = counter.next_region().expect_err(part).to_string();
        assert!(error.starts_with(says), "{part}: {error}");
        // Asked again, it still is no clean end.
        let again = counter.next_region().expect_err(part);
        assert!(matches!(again, CountError::ChildEnded { region: None, .. }), "{part}: {again}");
    }
}

#[test]
fn a_child_that_never_begins_is_an_error() {
    let error = Counter::spawn(command("silent"), STEPS_MAX).expect_err("no child");
    let says = "the counted child ended outside of any region: exit status: 3";
    assert_eq!(error.to_string(), says);
    let error = Counter::spawn(command("liar"), STEPS_MAX).expect_err("no thread");
    assert!(matches!(error, CountError::Protocol(_)), "{error}");
    let error = Counter::spawn(Command::new("/nonexistent"), STEPS_MAX).expect_err("no program");
    assert!(matches!(error, CountError::Spawn(_)), "{error}");
}

#[test]
fn a_label_of_two_lines_is_refused_and_nothing_runs() {
    let Some(regions) = counts("line break") else { return };
    assert_eq!(regions, []);
}

#[test]
fn signals_wait_until_the_region_is_over() {
    let Some(quiet) = counts("turns") else { return };
    let Some(mut counter) = counter("signals", STEPS_MAX) else { return };
    let foreign = counter.next_region().expect("a region").expect("a region");
    assert_eq!(foreign.label, "foreign mark");
    let held = counter.next_region().expect("a region").expect("a region");
    assert_eq!(held.label, "held");
    assert!(held.instructions > quiet[1].instructions, "the work after the signal is counted");
    let error = counter.next_region().expect_err("the signal").to_string();
    assert!(error.contains("outside of any region: signal: 15"), "{error}");
}

/// A counter that is dropped takes its child along, wherever the child is.
#[test]
fn a_dropped_counter_leaves_no_child() {
    for regions in 0..2 {
        let Some(mut counter) = counter("turns", STEPS_MAX) else { return };
        for _ in 0..regions {
            counter.next_region().expect("a region").expect("a region");
        }
        drop(counter);
    }
    let Some(mut counter) = counter("endless", 10_000) else { return };
    counter.next_region().expect_err("the budget");
    drop(counter);
}

#[test]
fn without_a_counter_the_child_says_so() {
    let output = command("turns").stdin(std::process::Stdio::null()).output().expect("a run");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("NoCounter"), "{said}");
}
