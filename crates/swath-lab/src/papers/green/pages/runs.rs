//! Requests in runs: many that are alike, with handles in a row.

use crate::papers::green::pages::requests::{ReplayOp, TimedOp};

/// Requests that are alike but for their handles, each of which is one more than that of the
/// request before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpRun {
    /// The first of them.
    pub first: ReplayOp,
    /// Number of them, at least 1.
    pub count: u32,
}

/// Requests that divide a stretch of time evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch<'r> {
    /// The requests, one run after the other.
    pub(crate) runs: &'r [OpRun],
    /// Number of requests in all runs.
    pub(crate) count: u32,
    /// The time of the first request, and the length of the stretch, which ends before
    /// the next request.
    pub(crate) start_us: u64,
    pub(crate) length_us: u32,
    /// A number that is added to all handles.
    pub(crate) ids_from: u32,
}

impl Stretch<'_> {
    /// The time of the request with this number, from 0, in microseconds.
    pub fn time_us(&self, number: u32) -> u64 {
        Clock { number, ..self.clock() }.now_us()
    }

    /// The time of the first request.
    pub(crate) const fn clock(&self) -> Clock {
        let &Self { start_us, length_us, count, .. } = self;
        Clock { start_us, length_us, count, number: 0 }
    }

    /// The requests one by one.
    pub fn ops(&self) -> impl Iterator<Item = TimedOp> {
        let each = |run: &OpRun| {
            let (first, ids_from) = (run.first, self.ids_from);
            (ids_from..ids_from + run.count).map(move |more| first.renamed(|id| id + more))
        };
        let ops = self.runs.iter().flat_map(each);
        (0..).zip(ops).map(|(number, op)| TimedOp { time_us: self.time_us(number), op })
    }
}

/// The time of a request among those that divide a stretch of time evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_us: u64,
    length_us: u32,
    count: u32,
    /// The request's number, from 0.
    pub(crate) number: u32,
}

impl Clock {
    /// A time by itself.
    pub(crate) const fn at(time_us: u64) -> Self {
        Self { start_us: time_us, length_us: 0, count: 1, number: 0 }
    }

    pub(crate) fn now_us(&self) -> u64 {
        let passed = u64::from(self.number) * u64::from(self.length_us);
        self.start_us + passed / u64::from(self.count.max(1))
    }
}

/// A source of requests in the order of time.
pub trait Requests {
    /// Returns the next requests; `None` if there are no more.
    fn next_stretch(&mut self) -> Option<Stretch<'_>>;

    /// The requests up to the first that comes at this time or later, one by one. What else is
    /// in its stretch is passed over.
    fn ops_before(&mut self, time_us: u64) -> impl Iterator<Item = TimedOp>
    where
        Self: Sized,
    {
        let stretches = std::iter::from_fn(move || {
            let stretch = self.next_stretch()?;
            (stretch.start_us < time_us).then(|| stretch.ops().collect::<Vec<_>>())
        });
        stretches.flatten().take_while(move |op| op.time_us < time_us)
    }
}

/// Recorded requests, each by itself.
#[derive(Clone, Debug)]
pub struct Recorded<'r> {
    ops: std::slice::Iter<'r, TimedOp>,
    later_us: u64,
    /// The request that was handed out last.
    run: Option<OpRun>,
}

impl<'r> Recorded<'r> {
    /// Makes a source of requests, each of which comes so much later than it says.
    pub fn new(ops: &'r [TimedOp], later_us: u64) -> Self {
        Self { ops: ops.iter(), later_us, run: None }
    }
}

impl Requests for Recorded<'_> {
    fn next_stretch(&mut self) -> Option<Stretch<'_>> {
        let &TimedOp { time_us, op } = self.ops.next()?;
        let start_us = time_us + self.later_us;
        let runs = std::slice::from_ref(self.run.insert(OpRun { first: op, count: 1 }));
        Some(Stretch { runs, count: 1, start_us, length_us: 0, ids_from: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_divide_their_time_evenly() {
        let free = |id| ReplayOp::Free { id };
        let runs = [OpRun { first: free(5), count: 3 }, OpRun { first: free(0), count: 4 }];
        let stretch = Stretch { runs: &runs, count: 7, start_us: 1000, length_us: 50, ids_from: 2 };
        let expected = [7, 8, 9, 2, 3, 4, 5].map(free);
        let times_us = [1000, 1007, 1014, 1021, 1028, 1035, 1042];
        let expected = times_us.into_iter().zip(expected);
        assert!(stretch.ops().eq(expected.map(|(time_us, op)| TimedOp { time_us, op })));
    }

    #[test]
    fn recorded_requests_come_one_by_one_and_later() {
        let op = |time_us| TimedOp { time_us, op: ReplayOp::Free { id: u32::MAX } };
        let ops = [op(7), op(7), op(9)];
        let mut recorded = Recorded::new(&ops, 100);
        assert!(recorded.clone().ops_before(109).eq([op(107), op(107)]));
        assert_eq!(recorded.next_stretch().map(|stretch| stretch.count), Some(1));
        assert!(recorded.ops_before(u64::MAX).eq([op(107), op(109)]));
    }
}
