//! Instructions of a child process, counted by valgrind's callgrind where it is installed.
//!
//! A simulated processor takes some fifty times the time of the work, where a step of a
//! [`Counter`](crate::host::count::Counter) takes some ten thousand instructions' time; so loads can
//! be counted whole of which stepping would show a part. It needs no help of the kernel's.
//!
//! Both have the same child and count the same instructions, but what a C library chooses by the
//! processor's features, which valgrind has fewer of, and a repeated string instruction, which
//! counts here as often as it repeats.
//!
//! **How.** [`Regions::region`] calls the work from one function, and callgrind collects inside it alone and
//! writes a part of its profile each time that it is left, to its standard output. The first two
//! regions of a child are empty: one to touch every symbol on the path, and one whose instructions
//! are those of the call, which every other count leaves out. Where the calls of interest are many and
//! short, [`counted_call`] marks each, and [`count_calls`] sums them up.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::host::count::CountError;

/// The empty regions before all others.
const CALIBRATIONS: usize = 2;

/// The one function, as callgrind writes its name.
const COUNTED: &str = "*::host::callgrind::counted_region";

/// Makes callgrind count inside [`counted_call`] alone.
const CALLS: &str = "--toggle-collect=*::host::callgrind::counted_call*";

/// Returns true if valgrind can be started.
pub fn is_here() -> bool {
    static HERE: OnceLock<bool> = OnceLock::new();
    *HERE.get_or_init(|| {
        let mut valgrind = Command::new("valgrind");
        valgrind.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
        valgrind.output().is_ok_and(|output| output.status.success())
    })
}

/// The child's side: regions that callgrind counts.
#[derive(Debug)]
pub struct Regions(());

impl Regions {
    /// Runs the empty regions.
    pub fn begin() -> Self {
        for _ in 0..CALIBRATIONS {
            counted_region(&mut || ());
        }
        Self(())
    }

    /// Runs `work` once, counted. Give what it computes to [`black_box`].
    pub fn region(&mut self, work: &mut dyn FnMut()) {
        counted_region(work);
    }
}

/// Does `work`, which [`count_calls`] counts where it is asked to; some ten instructions of the call itself are
/// among those.
#[inline(never)]
pub fn counted_call<T>(work: impl FnOnce() -> T) -> T {
    let done = work();
    black_box(());
    done
}

/// Runs a program under callgrind, and returns the instructions of all its [`counted_call`]s together.
///
/// Its standard output is taken for the profile; standard error goes nowhere.
///
/// # Errors
/// As for [`count`].
pub fn count_calls(child: &Command) -> Result<u64, CountError> {
    let output = profile(child, &[CALLS])?;
    let sum = totals(&output)?.into_iter().sum();
    if sum == 0 {
        return Err(CountError::Protocol("callgrind saw no counted call".to_owned()));
    }
    Ok(sum)
}

/// Runs a child that comes to [`Regions::begin`] under callgrind, and returns the instructions of the
/// [`counted_call`]s before the end of each of its regions and after the one before, in their order.
///
/// # Errors
/// As for [`count`].
pub fn count_calls_of_regions(child: &Command) -> Result<Vec<u64>, CountError> {
    let dump = format!("--dump-after={COUNTED}");
    parse(&profile(child, &["--combine-dumps=yes", CALLS, &dump])?)
}

/// Callgrind counts inside this function alone.
#[inline(never)]
fn counted_region(work: &mut dyn FnMut()) {
    work();
    // Something after the call, or it would become a jump out of here.
    black_box(());
}

/// Runs a child that comes to [`Regions::begin`] under callgrind, and returns the instructions of
/// each of its regions, in their order.
///
/// Its standard output is taken for the profile; standard error goes nowhere.
///
/// # Errors
/// [`CountError::Spawn`], [`CountError::ChildEnded`] for one that ends without success, and
/// [`CountError::Protocol`] for one without regions or whose symbols were stripped.
pub fn count(child: &Command) -> Result<Vec<u64>, CountError> {
    let [collect, dump] =
        ["toggle-collect", "dump-after"].map(|what| format!("--{what}={COUNTED}"));
    parse(&profile(child, &["--combine-dumps=yes", &collect, &dump])?)
}

/// Runs a child under callgrind with these options, and returns its profile.
fn profile(child: &Command, options: &[&str]) -> Result<String, CountError> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--dump-line=no"])
        .args(options)
        .arg("--callgrind-out-file=/dev/stdout")
        .arg(child.get_program())
        .args(child.get_args());
    for (name, value) in child.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.stdin(Stdio::null()).output().map_err(CountError::Spawn)?;
    if !output.status.success() {
        return Err(CountError::ChildEnded { status: output.status, region: None });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The totals of a profile's parts.
fn totals(profile: &str) -> Result<Vec<u64>, CountError> {
    let totals = profile.lines().filter_map(|line| line.strip_prefix("totals: "));
    let counts: Result<Vec<u64>, _> = totals.map(|total| total.trim().parse()).collect();
    counts.map_err(|_| CountError::Protocol("callgrind's totals are no numbers".to_owned()))
}

/// The instructions of each region in a profile of several parts. The last is what was collected
/// after them: nothing.
fn parse(profile: &str) -> Result<Vec<u64>, CountError> {
    let protocol = |what: &str| CountError::Protocol(what.to_owned());
    let mut counts = totals(profile)?;
    let (Some(0), Some(&empty)) = (counts.pop(), counts.get(CALIBRATIONS - 1)) else {
        return Err(protocol("callgrind saw no region: the program has no symbols"));
    };
    let counts = counts.drain(CALIBRATIONS..).map(|count| {
        count.checked_sub(empty).ok_or(CountError::Unsteady { first: empty, second: count })
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_a_total_for_each_region() {
        let profile = |totals: &[&str]| {
            totals.iter().map(|total| format!("part: 1\ntotals: {total}\n")).collect::<String>()
        };
        let counts = parse(&profile(&["17", "9", "9", "1009", "0"])).unwrap();
        assert_eq!(counts, [0, 1000]);
        for wrong in [&[][..], &["0"], &["9", "9", "10"], &["9", "x", "0"], &["9", "9", "8", "0"]] {
            assert!(parse(&profile(wrong)).is_err(), "{wrong:?}");
        }
    }
}
