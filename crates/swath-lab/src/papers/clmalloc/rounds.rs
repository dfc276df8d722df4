//! `malloc` and `cmt_malloc` timed in turn, on threads.

use std::sync::{Barrier, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::study::claim::Conditions;
use crate::study::grid::{Metrics, metrics};
use crate::study::plan::Head;
use crate::study::run::{Run, StudyError};

/// The reason why there is nothing to measure on other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) const ELSEWHERE: &str = "cmt_malloc is made for Linux only";

/// Runs `work` for each part on a thread of its own, all from one moment on; the time from
/// then to the last one's end in nanoseconds, and the results in order.
///
/// # Errors
/// A thread that panicked, or that the system refused: none does any work then.
pub(crate) fn on_threads<P: Sync, R: Send>(
    parts: &[P],
    work: impl Fn(&P) -> R + Sync,
) -> Result<(f64, Vec<R>), String> {
    let start = Barrier::new(parts.len());
    // Whether all threads are there: until that is known none waits for the others.
    let complete = RwLock::new(false);
    let one = |part: &P| {
        if !*complete.read().unwrap_or_else(PoisonError::into_inner) {
            return None;
        }
        start.wait();
        let begin = Instant::now();
        let result = work(part);
        Some((begin, Instant::now(), result))
    };
    let done = thread::scope(|scope| {
        let mut may_begin = complete.write().unwrap_or_else(PoisonError::into_inner);
        let begun = |part| thread::Builder::new().spawn_scoped(scope, move || one(part));
        // All are started before one is waited for.
        let threads: Vec<_> = parts.iter().map(begun).collect();
        *may_begin = threads.iter().all(Result::is_ok);
        drop(may_begin);
        let done = threads.into_iter().map(|thread| {
            let thread = thread.map_err(|error| format!("a thread could not begin: {error}"))?;
            thread.join().map_err(|_| "a thread panicked".to_owned())
        });
        done.collect::<Result<Vec<_>, _>>()
    })?;
    let done: Vec<_> = done.into_iter().flatten().collect();
    let first = done.iter().map(|one| one.0).min();
    let last = done.iter().map(|one| one.1).max();
    let (first, last) = first.zip(last).ok_or("no threads")?;
    Ok(((last - first).as_nanos() as f64, done.into_iter().map(|one| one.2).collect()))
}

/// Times of the two allocators on the same work in nanoseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Times {
    pub(crate) malloc_ns: f64,
    pub(crate) cmt_ns: f64,
}

impl Times {
    /// The times together with those of more work.
    pub(crate) fn plus(self, more: Self) -> Self {
        Self { malloc_ns: self.malloc_ns + more.malloc_ns, cmt_ns: self.cmt_ns + more.cmt_ns }
    }

    /// The natural logarithm of the ratio of the two times, whose mean is that of a geometric
    /// mean, and the times of each of `count` pieces of work in microseconds.
    pub(crate) fn metrics(self, count: f64) -> Metrics {
        // No clock is finer than a nanosecond.
        let (malloc, cmt) = (self.malloc_ns.max(1.0), self.cmt_ns.max(1.0));
        let us = |ns: f64| ns / 1000.0 / count;
        metrics([
            ("log_ratio", (cmt / malloc).ln()),
            ("malloc_us", us(malloc)),
            ("cmt_us", us(cmt)),
        ])
    }
}

/// Times both in one round, the first first if the round is even. A call gives its time and its
/// result, which has to be the same whichever allocator gave the memory.
///
/// # Errors
/// Those of the calls, and results that differ.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing to time elsewhere"))]
pub(crate) fn in_turn<R: PartialEq + std::fmt::Debug>(
    round: u64,
    mut malloc: impl FnMut() -> Result<(f64, R), String>,
    mut cmt: impl FnMut() -> Result<(f64, R), String>,
) -> Result<(Times, R), String> {
    let ((malloc_ns, one), (cmt_ns, other)) = if round.is_multiple_of(2) {
        let first = malloc()?;
        (first, cmt()?)
    } else {
        let first = cmt()?;
        (malloc()?, first)
    };
    if one != other {
        return Err(format!("{other:?} was computed with cmt_malloc, {one:?} with malloc"));
    }
    Ok((Times { malloc_ns, cmt_ns }, one))
}

/// Measures every point in each round, as `Run::rounds` does, by work that the rest of a study can do without:
/// after a measurement that failed there are no more, and its words are the result.
///
/// # Errors
/// A run that was interrupted, or its journal.
pub(crate) fn where_possible<P, R: Serialize + DeserializeOwned>(
    run: &Run<'_>,
    about: &Head,
    repeats: u64,
    points: &[P],
    measure: impl Fn(&P, u64) -> Result<R, String>,
) -> Result<Result<Vec<Vec<R>>, String>, StudyError> {
    let mut failed: Option<String> = None;
    let rounds = run.rounds(about, repeats, points, |point, round| {
        let found = failed.clone().map_or_else(|| measure(point, round), Err);
        failed = found.as_ref().err().cloned();
        Ok(found)
    })?;
    Ok(rounds.into_iter().map(|runs| runs.into_iter().collect()).collect())
}

/// Cores that this process may run on.
pub(crate) fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// The condition that threads run side by side: on fewer cores than threads a holder of a lock
/// may be off its core, which is another load.
pub(crate) fn side_by_side(conditions: Conditions, threads: u64) -> Conditions {
    let cores = cores();
    conditions.met(threads <= cores, &format!("{threads} threads share {cores} cores here"))
}

/// "4 threads".
pub(crate) fn threads_title(threads: u64) -> String {
    let s = if threads == 1 { "" } else { "s" };
    format!("{threads} thread{s}")
}

/// "4 threads", and a remark if they are more than the cores.
pub(crate) fn threads_remark(threads: u64) -> String {
    let (title, cores) = (threads_title(threads), cores());
    if threads > cores { format!("{title} (oversubscribed: {cores} cores)") } else { title }
}

/// A sentence for figures with numbers of threads beyond the cores; nothing if there are none.
pub(crate) fn oversubscribed(threads: impl Iterator<Item = u64>) -> String {
    let cores = cores();
    let beyond: Vec<String> = threads.filter(|&n| n > cores).map(|n| n.to_string()).collect();
    if beyond.is_empty() {
        String::new()
    } else {
        format!("Oversubscribed: {} threads share {cores} cores.", beyond.join(", "))
    }
}

/// The seed of a thread's random choices in a repeat: for the first thread and repeat the plan's.
pub(crate) const fn seed(plan: u64, repeat: u64, thread: u64) -> u64 {
    plan ^ thread << 32 ^ repeat << 48
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let call = |name: char, ns: f64| {
            order.borrow_mut().push(name);
            Ok((ns, 1))
        };
        let mut sum = Times::default();
        for round in 0..3 {
            let found = in_turn(round, || call('m', 5.0), || call('c', 10.0)).unwrap();
            assert_eq!(found, (Times { malloc_ns: 5.0, cmt_ns: 10.0 }, 1));
            sum = sum.plus(found.0);
        }
        assert_eq!(*order.borrow(), "mccmmc");
        let found = sum.metrics(3.0);
        let expected = metrics([("log_ratio", 2_f64.ln()), ("malloc_us", 0.005), ("cmt_us", 0.01)]);
        assert_eq!(found, expected);
        let wrong = in_turn(0, || Ok((1.0, 1)), || Ok((1.0, 2))).unwrap_err();
        assert_eq!(wrong, "2 was computed with cmt_malloc, 1 with malloc");
    }

    #[test]
    fn results_in_the_order_of_the_parts() {
        let (ns, doubled) = on_threads(&[1, 2, 3, 4, 5], |n| n * 2).unwrap();
        assert_eq!(doubled, [2, 4, 6, 8, 10]);
        assert!(ns > 0.0);
    }
}
