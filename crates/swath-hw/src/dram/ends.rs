//! The requests of a memory that have ended, or will by commands that were issued.

use alloc::collections::VecDeque;

use crate::clock::Cycle;
use crate::dram::request::Completion;

/// The ends that were not taken, of all channels.
///
/// Invariants, which [`check`](Self::check) tests: `queue` is in the order of the ends, and then of
/// acceptance, and `first` is the cycle of its first, [`Cycle::MAX`] without any.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    first: Cycle,
    queue: VecDeque<Completion>,
}

impl Ends {
    /// Creates those of a memory in which nothing has happened.
    pub(crate) const fn new() -> Self {
        Self { first: Cycle::MAX, queue: VecDeque::new() }
    }

    /// Returns the cycle of the first, [`Cycle::MAX`] without any.
    #[inline]
    pub(crate) const fn first(&self) -> Cycle {
        self.first
    }

    /// Returns their number.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes the first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Completion> {
        let done = self.queue.pop_front();
        self.first = self.queue.front().map_or(Cycle::MAX, |done| done.cycle);
        done
    }

    /// Adds one.
    #[inline(always)]
    pub(crate) fn add(&mut self, done: Completion) {
        self.first = self.first.min(done.cycle);
        let overtakes = self.queue.back().is_some_and(|last| {
            done.cycle < last.cycle || done.cycle == last.cycle && done.order < last.order
        });
        self.queue.push_back(done);
        if overtakes {
            self.overtake();
        }
    }

    /// Puts the last into its place. O(requests whose data have a command and are not there).
    #[inline(never)]
    fn overtake(&mut self) {
        let mut at = self.queue.len() - 1;
        while at > 0 && self.queue[at - 1] > self.queue[at] {
            self.queue.swap(at - 1, at);
            at -= 1;
        }
    }

    /// Tests every invariant.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        let first = self.queue.front().map_or(Cycle::MAX, |done| done.cycle);
        ensure(first == self.first, "the first end is another one")?;
        ensure(self.queue.iter().is_sorted(), "the ends are not in order")
    }
}
