//! `malloc` and `cmt_malloc` timed in turn, on threads.

use std::sync::Barrier;
use std::time::Instant;

/// Runs `work` for each part on a thread of its own, all from one moment on; the time from
/// then to the last one's end in nanoseconds, and the results in order.
///
/// # Errors
/// A thread that panicked.
pub(crate) fn on_threads<P: Sync, R: Send>(
    parts: &[P],
    work: impl Fn(&P) -> R + Sync,
) -> Result<(f64, Vec<R>), String> {
    let start = Barrier::new(parts.len());
    let one = |part: &P| {
        start.wait();
        let begin = Instant::now();
        let result = work(part);
        (begin, Instant::now(), result)
    };
    let done = std::thread::scope(|scope| {
        // All are started before one is waited for.
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| one(part))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Result<Vec<_>, _>>()
    });
    let done = done.map_err(|_| "a thread panicked".to_owned())?;
    let first = done.iter().map(|one| one.0).min();
    let last = done.iter().map(|one| one.1).max();
    let (first, last) = first.zip(last).ok_or("no threads")?;
    Ok(((last - first).as_nanos() as f64, done.into_iter().map(|one| one.2).collect()))
}

/// The two allocators' times on the same work, in nanoseconds: medians of rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Times {
    pub(crate) malloc_ns: f64,
    pub(crate) cmt_ns: f64,
}

impl Times {
    pub(crate) fn ratio(self) -> f64 {
        self.cmt_ns / self.malloc_ns
    }
}

/// Times both in turn, each first in every other round. A call gives its time and what it
/// computed, which has to be the same whoever gave the memory, every time.
///
/// # Errors
/// Those of the calls, and results that differ.
pub(crate) fn in_turn<R: PartialEq + std::fmt::Debug>(
    rounds: u32,
    mut malloc: impl FnMut() -> Result<(f64, R), String>,
    mut cmt: impl FnMut() -> Result<(f64, R), String>,
) -> Result<(Times, R), String> {
    let (mut of_malloc, mut of_cmt) = (Vec::new(), Vec::new());
    let mut result = None;
    for round in 0..rounds {
        for which in [round % 2, 1 - round % 2] {
            let (ns, computed) = if which == 0 { malloc() } else { cmt() }?;
            (if which == 0 { &mut of_malloc } else { &mut of_cmt }).push(ns);
            match &result {
                Some(first) if *first != computed => {
                    return Err(format!("{computed:?} was computed, and {first:?} before"));
                }
                _ => result = Some(computed),
            }
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0).max(1.0)
    };
    let times = Times { malloc_ns: median(of_malloc), cmt_ns: median(of_cmt) };
    Ok((times, result.ok_or("no rounds")?))
}

/// Cores that this process may run on.
pub(crate) fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// "4 threads", and whether they are more than the cores.
pub(crate) fn threads_title(threads: u64) -> String {
    let s = if threads == 1 { "" } else { "s" };
    let cores = cores();
    if threads > cores {
        format!("{threads} thread{s} (oversubscribed: {cores} cores)")
    } else {
        format!("{threads} thread{s}")
    }
}

/// What a figure has to say of numbers of threads beyond the cores; nothing if there are none.
pub(crate) fn oversubscribed(threads: &[u64]) -> String {
    let cores = cores();
    let beyond: Vec<String> =
        threads.iter().filter(|&&n| n > cores).map(|n| n.to_string()).collect();
    if beyond.is_empty() {
        String::new()
    } else {
        format!("Oversubscribed: {} threads share {cores} cores.", beyond.join(", "))
    }
}

/// The mean of ratios.
pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value.ln(), n + 1.0));
    if count == 0.0 { 1.0 } else { f64::exp(sum / count) }
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
        let found = in_turn(3, || call('m', 5.0), || call('c', 10.0)).unwrap();
        assert_eq!(*order.borrow(), "mccmmc");
        assert_eq!(found, (Times { malloc_ns: 5.0, cmt_ns: 10.0 }, 1));
        assert_eq!(found.0.ratio(), 2.0);
        let wrong = in_turn(1, || Ok((1.0, 1)), || Ok((1.0, 2))).unwrap_err();
        assert_eq!(wrong, "2 was computed, and 1 before");
    }

    #[test]
    fn results_in_the_order_of_the_parts() {
        let (ns, doubled) = on_threads(&[1, 2, 3, 4, 5], |n| n * 2).unwrap();
        assert_eq!(doubled, [2, 4, 6, 8, 10]);
        assert!(ns > 0.0);
    }

    #[test]
    fn the_mean_of_a_half_and_two_is_one() {
        assert!((geometric_mean([0.5, 2.0].into_iter()) - 1.0).abs() < 1e-12);
    }
}
