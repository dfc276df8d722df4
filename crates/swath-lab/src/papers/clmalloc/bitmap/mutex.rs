//! The mutex of Table 1, `cma_mutex`, under threads: a simulation of who waits for whom, in which a line
//! of memory read or written is the unit of time.
//!
//! Every thread asks for a segment, maps it, and asks again. Lines 5 to 11 search under the mutex; the
//! table releases it before a bit of the range is set, so that another thread can find the same range in
//! between. [`Locking`] has that reading, and two that set the bits under the mutex.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::RngExt;
use swath_frame::segment::{AreaSpace, Segment};

use crate::papers::clmalloc::bitmap::churn::Churn;
use crate::papers::clmalloc::bitmap::table_1::Table1;
use crate::source::memory::Random;

/// Words, or descriptors of pages, of a line.
const LINE_WORDS: u64 = 8;

/// What is done under the mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Locking {
    /// The search, as printed: bits are set when the segment's area has been found (lines 12 to 22).
    Printed,
    /// The search and the setting of the bits.
    Marked,
    /// The same with the tree of summaries, which finds the same places and reads fewer lines.
    Tree,
}

impl Locking {
    pub(crate) const ALL: [Self; 3] = [Self::Printed, Self::Marked, Self::Tree];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Printed => "Table 1 as printed",
            Self::Marked => "Table 1, bits set under the mutex",
            Self::Tree => "tree of summaries, bits set under the mutex",
        }
    }
}

/// The outcome of a simulation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Contended {
    /// Segments that were found and mapped.
    pub(crate) served: u64,
    /// Searches that found a range which another thread had found before, and not yet marked.
    pub(crate) collisions: u64,
    /// Lines' time from the first request to the last, that of all threads waiting for the mutex, and
    /// that of all threads together.
    pub(crate) time: u64,
    pub(crate) waited: u64,
    pub(crate) busy: u64,
}

/// A segment found by a thread, whose bits are to be set.
struct Pending {
    at: u64,
    segment: Segment,
}

/// Lines with the bits of so many units.
const fn lines(units: u64) -> u64 {
    units.div_ceil(64 * LINE_WORDS) + 1
}

/// Runs the load on `threads` threads. `tree_lines` are the lines that a search of the tree reads at most.
pub(crate) fn contend(
    churn: Churn,
    space: &AreaSpace<'_>,
    locking: Locking,
    threads: usize,
    tree_lines: u64,
    random: &mut Random,
) -> Contended {
    let unit = space.unit();
    let in_use_max = (space.total_frames() as f64 * churn.fill) as u64;
    let mut table = Table1::new(space);
    let (mut live, mut in_use): (Vec<Segment>, u64) = (Vec::new(), 0);
    let mut pending: VecDeque<Pending> = VecDeque::new();
    let mut found = Contended::default();
    // Threads by the time at which they ask for the mutex; who asks first has it first.
    let mut arrivals: BinaryHeap<Reverse<(u64, usize)>> =
        (0..threads).map(|thread| Reverse((0, thread))).collect();
    let mut free_at = 0;
    while found.served + found.collisions < churn.requests {
        let Some(Reverse((arrival, thread))) = arrivals.pop() else { break };
        let start = arrival.max(free_at);
        found.waited += start - arrival;
        // Bits that others have set until now.
        while pending.front().is_some_and(|first| first.at <= start) {
            let Some(Pending { segment, .. }) = pending.pop_front() else { break };
            if table.is_free(space, segment) {
                table.mark(space, segment, true);
                live.push(segment);
                found.served += 1;
            } else {
                in_use -= segment.count;
                found.collisions += 1;
            }
        }
        let count = random.random_range(1..=churn.request_frames);
        let units = count.div_ceil(unit.frames());
        let mut inside = 0;
        // What was released is cleared under the mutex in every reading.
        let mut release = |table: &mut Table1, live: &mut Vec<Segment>, random: &mut Random| {
            let segment = live.swap_remove(random.random_range(0..live.len()));
            table.mark(space, segment, false);
            inside += lines(segment.count >> unit.k());
            segment.count
        };
        while in_use + count > in_use_max && !live.is_empty() {
            in_use -= release(&mut table, &mut live, random);
        }
        let before = (table.words_read, table.areas_passed);
        let range = table.find(space, units);
        if range.is_none() && !live.is_empty() {
            in_use -= release(&mut table, &mut live, random);
        }
        inside += match locking {
            Locking::Printed | Locking::Marked => (table.words_read - before.0) / LINE_WORDS + 1,
            Locking::Tree => tree_lines,
        };
        let passed = (table.areas_passed - before.1) / LINE_WORDS + 1;
        let mut outside = 0;
        if let Some(range) = range {
            let segment = Segment::new(range.unit << unit.k(), units << unit.k());
            in_use += segment.count;
            let marking = lines(units);
            let at = match locking {
                Locking::Printed => {
                    outside += passed + marking;
                    start + inside + outside
                }
                Locking::Marked | Locking::Tree => {
                    inside += marking;
                    outside += passed;
                    start + inside
                }
            };
            let behind = pending.partition_point(|other| other.at <= at);
            pending.insert(behind, Pending { at, segment });
            // A descriptor for each page.
            outside += segment.count / LINE_WORDS + 1;
        }
        free_at = start + inside;
        found.busy += start + inside + outside - arrival;
        found.time = found.time.max(free_at);
        arrivals.push(Reverse((free_at + outside, thread)));
    }
    found
}

#[cfg(test)]
mod tests {
    use swath_arch::Order;

    use super::*;
    use crate::papers::clmalloc::areas::machine;
    use crate::source::memory::random;

    fn run(locking: Locking, threads: usize) -> Contended {
        let areas: Vec<(u64, u64)> = (0..16).map(|i| (24 * i, 16)).collect();
        let churn = Churn { requests: 2000, fill: 0.8, request_frames: 2048, moving: None };
        machine("16", &areas)
            .with_space(Order::BASE, |space| {
                contend(churn, &space, locking, threads, 7, &mut random(3, 0))
            })
            .unwrap()
    }

    #[test]
    fn one_thread_waits_for_nobody() {
        for locking in Locking::ALL {
            let one = run(locking, 1);
            assert_eq!((one.waited, one.collisions), (0, 0), "{locking:?}");
            assert!(one.served == 2000, "{one:?}");
        }
    }

    #[test]
    fn threads_find_the_same_range_where_no_bit_is_set() {
        assert!(run(Locking::Printed, 4).collisions > 0);
        for locking in [Locking::Marked, Locking::Tree] {
            assert_eq!(run(locking, 4).collisions, 0, "{locking:?}");
        }
    }

    #[test]
    fn more_threads_wait_longer_and_less_for_the_tree() {
        let share = |locking, threads| {
            let found = run(locking, threads);
            found.waited as f64 / found.busy as f64
        };
        assert!(share(Locking::Marked, 2) > 0.0);
        assert!(share(Locking::Marked, 8) > share(Locking::Marked, 2));
        assert!(share(Locking::Tree, 8) < share(Locking::Marked, 8));
        // Eight threads are not more than eight times as fast.
        for locking in Locking::ALL {
            let [one, eight] = [1, 8].map(|threads| run(locking, threads));
            assert!(eight.time < one.time && 8 * eight.time > one.time, "{one:?}, {eight:?}");
        }
    }
}
