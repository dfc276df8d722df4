//! Times and instruction counts of requests, taken in children on real memory.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::host::count::{CountError, Counter, Marks};
use crate::papers::clmalloc::variant::{Requests, Setting};
use crate::study::child::child_command;
use crate::study::grid::median;

/// The most steps of one request.
const STEPS_MAX: u64 = 20_000_000;

/// A child's job.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) setting: Setting,
    /// Number of requests.
    pub(crate) count: u64,
    /// Rounds on real memory; none: instructions are counted by the parent.
    pub(crate) rounds: Option<u32>,
}

/// Times of one round in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    allocate_ns: f64,
    free_ns: f64,
}

/// Times in microseconds from the rounds of one child.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RoundTimes {
    /// All requests of the first round.
    pub(crate) first_us: f64,
    /// All requests, the median of the later rounds.
    pub(crate) later_us: f64,
    /// All requests and releases, the median of the later rounds.
    pub(crate) with_releases_us: f64,
}

impl RoundTimes {
    fn of(rounds: &[Round]) -> Option<Self> {
        let (first, later) = rounds.split_first().filter(|(_, later)| !later.is_empty())?;
        let median = |of: fn(&Round) -> f64| median(&later.iter().map(of).collect::<Vec<_>>());
        // No clock is finer than a nanosecond.
        let us = |ns: f64| ns.max(1.0) / 1000.0;
        Some(Self {
            first_us: us(first.allocate_ns),
            later_us: us(median(|round| round.allocate_ns)),
            with_releases_us: us(median(|round| round.allocate_ns + round.free_ns)),
        })
    }
}

/// Does a job, in the child, and prints its answer where there is one.
///
/// # Errors
/// The fault, for the program to say.
pub(crate) fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let Job { setting, count, rounds } = serde_json::from_str(job)?;
    match rounds {
        Some(rounds) => println!("{}", serde_json::to_string(&time(&setting, count, rounds)?)?),
        None => {
            let mut marks = Marks::begin()?;
            setting.simulate(|requests| step(requests, count, &mut marks))??;
        }
    }
    Ok(())
}

/// The second round's requests between marks.
fn step(requests: &mut dyn Requests, count: u64, marks: &mut Marks) -> Result<(), String> {
    allocate_all(requests, count)?;
    requests.free_all()?;
    for _ in 0..count {
        let mut served = false;
        marks
            .region("", &mut || served = std::hint::black_box(requests.allocate()))
            .map_err(|error| error.to_string())?;
        if !served {
            return Err("a request was served once and not again".to_owned());
        }
    }
    Ok(())
}

/// Makes `count` requests, all of which must be served.
pub(crate) fn allocate_all(requests: &mut dyn Requests, count: u64) -> Result<(), String> {
    match (0..count).find(|_| !requests.allocate()) {
        Some(at) => Err(format!("request {at} of {count} was not served")),
        None => Ok(()),
    }
}

fn measure(requests: &mut dyn Requests, count: u64, rounds: u32) -> Result<Vec<Round>, String> {
    let round = |_| {
        let start = Instant::now();
        allocate_all(requests, count)?;
        let allocate_ns = start.elapsed().as_nanos() as f64;
        let start = Instant::now();
        requests.free_all()?;
        Ok(Round { allocate_ns, free_ns: start.elapsed().as_nanos() as f64 })
    };
    (0..rounds).map(round).collect()
}

#[cfg(target_os = "linux")]
fn time(setting: &Setting, count: u64, rounds: u32) -> Result<Vec<Round>, String> {
    use crate::papers::clmalloc::memory::FileMemory;
    let memory = FileMemory::new(&setting.machine, setting.variant.frames(), setting.clears);
    let memory = memory.map_err(|error| format!("memory of areas: {error}"))?;
    setting.with(memory.base(), memory, |requests| measure(requests, count, rounds))?
}

#[cfg(not(target_os = "linux"))]
fn time(_: &Setting, _: u64, _: u32) -> Result<Vec<Round>, String> {
    Err("memory of areas is made by Linux only".to_owned())
}

/// Microseconds that the allocator alone takes for `count` requests, without memory behind it:
/// the median of some rounds.
pub(crate) fn search_us(setting: &Setting, count: u64) -> Result<f64, String> {
    let rounds = setting.simulate(|requests| measure(requests, count, 16))??;
    RoundTimes::of(&rounds).map(|times| times.later_us).ok_or_else(|| "no rounds".to_owned())
}

fn command(kind: &str, job: &Job) -> io::Result<Command> {
    child_command(kind, &serde_json::to_string(job)?)
}

/// Times of a job that a child of the study `kind` does.
pub(crate) fn times(kind: &str, job: &Job) -> Result<RoundTimes, String> {
    let output = command(kind, job)
        .and_then(|mut command| command.stdin(Stdio::null()).stderr(Stdio::piped()).output())
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let rounds: Vec<Round> =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    RoundTimes::of(&rounds).ok_or_else(|| "too few rounds came back".to_owned())
}

/// Instructions of each request of a job that a child of the study `kind` does.
pub(crate) fn count(kind: &str, job: &Job) -> Result<Vec<u64>, CountError> {
    let mut counter = Counter::spawn(command(kind, job).map_err(CountError::Spawn)?, STEPS_MAX)?;
    let mut counts = Vec::new();
    while let Some(region) = counter.next_region()? {
        counts.push(region.instructions);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_stands_apart() {
        let round = |allocate_ns| Round { allocate_ns, free_ns: 500.0 };
        let rounds = [9000.0, 3000.0, 1000.0, 2000.0].map(round);
        let times = RoundTimes::of(&rounds).unwrap();
        let RoundTimes { first_us, later_us, with_releases_us } = times;
        assert_eq!((first_us, later_us, with_releases_us), (9.0, 2.0, 2.5));
        assert_eq!(RoundTimes::of(&rounds[..1]), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn on_real_memory() {
        use crate::papers::clmalloc::areas::machine;
        use crate::papers::clmalloc::variant::Variant;
        let machine = machine("4", &[(0, 4), (8, 4), (16, 4), (24, 4)]);
        for (variant, clears) in Variant::ALL
            .map(|one| (one, false))
            .into_iter()
            .chain([(Variant::Baseline, true), (Variant::GlobalBitmap, true)])
        {
            let setting = Setting { variant, clears, machine: machine.clone(), request_mib: 5 };
            let rounds = time(&setting, 2, 3).unwrap();
            assert_eq!(rounds.len(), 3, "{variant:?}");
            assert!(rounds.iter().all(|round| round.allocate_ns > 0.0));
            assert!(time(&setting, 100, 2).unwrap_err().contains("not served"));
        }
    }

    #[test]
    fn a_wrong_job_is_an_error() {
        assert!(child("{}").is_err());
    }
}
