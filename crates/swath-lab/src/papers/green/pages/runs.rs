//! Requests in runs: many that are alike, with handles in a row.

use crate::papers::green::pages::requests::{ReplayOp, TimedOp};

/// Requests that differ in their handles and times alone, one after the other. Each handle is one
/// more than that of the request before, and no time is before that of the request before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedRun {
    first: ReplayOp,
    count: u32,
    /// Where among the requests that share a stretch of time the first is, and how many
    /// there are. They divide it evenly.
    nth: u32,
    of: u32,
    start_us: u64,
    length_us: u32,
}

impl From<TimedOp> for TimedRun {
    fn from(TimedOp { time_us, op }: TimedOp) -> Self {
        Self { first: op, count: 1, nth: 0, of: 1, start_us: time_us, length_us: 0 }
    }
}

impl TimedRun {
    /// Makes a run of `count` requests, at least one, the first of which is the `nth` of `of` in
    /// the stretch of time from `start_us` on. There are handles for all.
    pub(crate) fn new(
        first: ReplayOp,
        count: u32,
        (nth, of): (u32, u32),
        (start_us, length_us): (u64, u32),
    ) -> Self {
        debug_assert!(count > 0 && nth + count <= of);
        Self { first, count, nth, of, start_us, length_us }
    }

    /// Returns the first request.
    pub const fn first(&self) -> ReplayOp {
        self.first
    }

    /// Returns the number of requests, at least 1.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The time of the request with this number, from 0, in microseconds.
    pub const fn time_us(&self, number: u32) -> u64 {
        let passed = (self.nth as u64 + number as u64) * self.length_us as u64;
        self.start_us + passed / self.of as u64
    }

    /// Counts the requests that come before a time.
    pub fn count_before(&self, time_us: u64) -> u32 {
        if self.time_us(self.count - 1) < time_us {
            return self.count;
        }
        let Some(left_us) = time_us.checked_sub(self.start_us) else { return 0 };
        // No request of these is at the end of the stretch or later: the product is small.
        let of = u64::from(self.of);
        let nth =
            if self.length_us == 0 { 0 } else { (left_us * of).div_ceil(self.length_us.into()) };
        nth.saturating_sub(self.nth.into()) as u32
    }

    /// Returns the first `count` requests, at least one and not all, and the others.
    #[must_use]
    pub fn split_at(self, count: u32) -> (Self, Self) {
        debug_assert!(count > 0 && count < self.count);
        let rest = Self {
            first: self.first.renamed(|id| id + count),
            count: self.count - count,
            nth: self.nth + count,
            ..self
        };
        (Self { count, ..self }, rest)
    }

    /// The requests one by one.
    pub fn ops(self) -> impl Iterator<Item = TimedOp> {
        (0..self.count).map(move |number| TimedOp {
            time_us: self.time_us(number),
            op: self.first.renamed(|id| id + number),
        })
    }

    /// The same requests with handles that are so much higher.
    #[must_use]
    pub fn with_ids_from(self, ids: u32) -> Self {
        Self { first: self.first.renamed(|id| id + ids), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_divide_their_time_evenly() {
        for of in [1, 2, 3, 7, 64, 100] {
            for nth in 0..of {
                let count = of - nth;
                let run = TimedRun::new(ReplayOp::Free { id: 5 }, count, (nth, of), (1000, 50));
                let ops: Vec<TimedOp> = run.ops().collect();
                for (number, op) in (0..).zip(&ops) {
                    let time_us = 1000 + u64::from(nth + number) * 50 / u64::from(of);
                    assert_eq!(*op, TimedOp { time_us, op: ReplayOp::Free { id: 5 + number } });
                }
                for time_us in 990..1060 {
                    let before = ops.iter().filter(|op| op.time_us < time_us).count();
                    assert_eq!(run.count_before(time_us) as usize, before, "{nth} of {of}");
                }
                for at in 1..count {
                    let (first, rest) = run.split_at(at);
                    assert!(first.ops().chain(rest.ops()).eq(ops.iter().copied()));
                }
            }
        }
    }

    #[test]
    fn a_request_is_a_run_of_one() {
        let op = TimedOp { time_us: 7, op: ReplayOp::Free { id: u32::MAX } };
        let run = TimedRun::from(op);
        assert!(run.ops().eq([op]));
        assert_eq!([6, 7, 8].map(|time_us| run.count_before(time_us)), [0, 0, 1]);
    }
}
