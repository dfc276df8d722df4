//! Units that a heap keeps after their free, for its next segments and superblocks: without them each large request
//! and each free would take the pool's lock, and the lines under it would go from processor
//! to processor.
//!
//! Segments up to 1 MiB are kept always ([`short`](crate::heap::short)); longer ones only
//! once a thread had to wait for the lock: until then what is free serves all.
//!
//! Of these a few runs of units, each one word. Only the heap's thread adds runs; it takes them out by a swap,
//! as does a thread that gathers memory (for a purge, or a request that finds none):
//!
//! ```text
//!   owner: keep ──► store into an empty word      take ──► swap with 0
//!   others:                                     gather ──► swap with 0
//! ```
//!
//! For the source these units are in use.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::heap::run::Run;
use crate::heap::short::ShortRuns;
use crate::superblock::atomic::Shared64;

/// Runs that a heap keeps: one cache line of them.
const RUNS: usize = if cfg!(loom) { 2 } else { 8 };
/// Units that a heap keeps, 8 MiB.
const UNITS_MAX: u32 = 128;
/// Units of the longest segment that a heap keeps or serves itself, 4 MiB.
pub(crate) const SEGMENT_UNITS_MAX: u32 = 64;

/// The runs of one heap.
///
/// Invariants: no unit is in two runs, of this heap or of another; no two long runs of a heap are
/// neighbours; nothing else uses a run's units, which are in use for the source.
pub(crate) struct Kept {
    runs: [Shared64; RUNS],
    /// Short ones, kept always.
    pub(crate) short: ShortRuns,
}

impl Kept {
    pub(crate) fn new() -> Self {
        Self { runs: core::array::from_fn(|_| Shared64::new(0)), short: ShortRuns::new() }
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.long().chain(self.short.runs())
    }

    fn long(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().filter_map(|word| Run::of(word.load(Relaxed)))
    }

    /// Returns true if a word was overwritten: its units stay in use, and the word as it is.
    pub(crate) fn is_overwritten(&self) -> bool {
        let mut words = self.runs.iter().map(|word| word.load(Relaxed));
        words.any(|word| word != 0 && Run::of(word).is_none()) || self.short.is_overwritten()
    }

    /// Takes all runs out.
    pub(crate) fn gather(&self) -> impl Iterator<Item = Run> {
        let held = self.runs.iter().filter(|word| Run::of(word.load(Relaxed)).is_some());
        // What the units' last user wrote comes before what the next one reads.
        held.filter_map(|word| Run::of(word.swap(0, AcqRel))).chain(self.short.gather())
    }

    /// As the owner: units for a segment, if some run has them; the rest of the run stays, or is
    /// `left`'s. The shortest run that serves is taken.
    pub(crate) fn take(&self, units: u32, page: u32, mut left: impl FnMut(Run)) -> Option<u32> {
        let fits = |run: &Run| run.place(units, page).is_some();
        let runs = self.runs.iter().filter_map(|word| Some((word, Run::of(word.load(Relaxed))?)));
        let (word, _) = runs.filter(|(_, run)| fits(run)).min_by_key(|(_, run)| run.units)?;
        // Gathered meanwhile, perhaps.
        let run = Run::of(word.swap(0, AcqRel))?;
        let first = run.place(units, page)?;
        let (before, after) = (first - run.first, run.end() - first - units);
        let rests =
            [Run { first: run.first, units: before }, Run { first: first + units, units: after }];
        rests.into_iter().filter(|rest| rest.units != 0).for_each(|rest| self.put(rest, &mut left));
        Some(first)
    }

    /// As the owner: keeps a run with its neighbours; what there is no room for is `left`'s.
    pub(crate) fn keep(&self, mut run: Run, mut left: impl FnMut(Run)) {
        for word in &self.runs {
            let near = |other: Run| other.end() == run.first || run.end() == other.first;
            if !Run::of(word.load(Relaxed)).is_some_and(near) {
                continue;
            }
            if let Some(other) = Run::of(word.swap(0, AcqRel)) {
                let units = run.units + other.units;
                run = Run { first: run.first.min(other.first), units };
            }
        }
        self.put(run, &mut left);
    }

    fn put(&self, run: Run, left: &mut impl FnMut(Run)) {
        let held: u32 = self.long().map(|run| run.units).sum();
        match self.runs.iter().find(|word| word.load(Relaxed) == 0) {
            // Only the owner fills a word.
            Some(word) if held + run.units <= UNITS_MAX => word.store(run.word(), Release),
            _ => left(run),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_place_is_the_first_in_as_few_pages_as_can_be() {
        for (first, units, page) in (0..12).flat_map(|first| {
            (1..20).flat_map(move |units| [1, 2, 4, 8].map(|page| (first, units, page)))
        }) {
            let run = Run { first, units };
            for wanted in 1..=units {
                let pages = |at: u32| (at + wanted - 1) / page - at / page + 1;
                let mut places = first..=first + units - wanted;
                let naive = places.find(|&at| pages(at) == wanted.div_ceil(page));
                assert_eq!(run.place(wanted, page), naive, "{run:?}, {wanted} units, {page}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_leaves_no_run() {
        for run in [(0, 1), (1, 128), (u32::MAX - 9, 64), (0xA_BCDE, 77)] {
            let word = Run { first: run.0, units: run.1 }.word();
            assert_eq!(Run::of(word), Some(Run { first: run.0, units: run.1 }));
            assert!((0..64).all(|bit| Run::of(word ^ 1 << bit).is_none()), "{run:?}");
        }
        assert!((0..64).all(|bit| Run::of(1 << bit).is_none()) && Run::of(0).is_none());
    }

    #[test]
    fn neighbours_join_and_what_is_too_much_leaves() {
        let (kept, mut left) = (Kept::new(), Vec::new());
        for run in [(0, 10), (20, 10), (10, 10), (100, 99)] {
            kept.keep(Run { first: run.0, units: run.1 }, |run| left.push(run));
        }
        assert_eq!(kept.runs().collect::<Vec<_>>(), [Run { first: 0, units: 30 }]);
        assert_eq!(left.pop(), Some(Run { first: 100, units: 99 }));
        assert_eq!(kept.take(7, 4, |_| panic!()), Some(0));
        assert_eq!(kept.take(5, 4, |_| panic!()), Some(7));
        assert_eq!(kept.runs().map(|run| run.units).sum::<u32>(), 18);
        assert_eq!(kept.take(19, 4, |_| panic!()), None);
    }

    #[test]
    fn a_word_that_was_overwritten_is_told_and_stays() {
        let kept = Kept::new();
        kept.keep(Run { first: 5, units: 20 }, |_| panic!());
        kept.keep(Run { first: 50, units: 2 }, |_| panic!());
        let word = kept.runs[0].load(Relaxed);
        for bit in 0..64 {
            kept.runs[0].store(word ^ 1 << bit, Relaxed);
            assert!(kept.is_overwritten(), "bit {bit}");
            assert_eq!(kept.take(20, 1, |_| panic!()), None, "bit {bit}");
            assert_eq!(kept.runs().count(), 1);
            kept.runs[0].store(word, Relaxed);
            assert!(!kept.is_overwritten(), "bit {bit}");
        }
        assert_eq!((kept.gather().count(), kept.is_overwritten()), (2, false));
    }
}
