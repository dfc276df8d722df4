//! Short segments that a heap keeps after their free, and superblocks none of whose slots is in use any more, by their
//! length: the next segment or superblock of that length is taken without a lock or a search.
//!
//! A stack of runs for each length, and beside it a pocket: of the shorter lengths the run that comes goes there, and the
//! one before it onto the stack, from which all are taken. So who frees a segment twice, or uses it after, does not meet
//! the next one's block.
//! Only the heap's thread adds runs; a thread that gathers memory takes them
//! all out, and the heap finds the words empty:
//!
//! ```text
//!   owner: keep ──► store into the word above the top      take ──► swap the top with 0
//!          (of the shorter ones: swap with the pocket, and store that)
//!   others:                                              gather ──► swap all with 0
//! ```
//!
//! For the source these units are in use. No flipped bit does harm: a word has its number twice, a top leads
//! to some word of the same length.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32};

use crate::heap::run::Run;
use crate::superblock::atomic::{Shared32, Shared64};

/// Units of the longest segment that is kept here: 1 MiB.
const LENGTHS: usize = if cfg!(loom) { 2 } else { 16 };
/// Units of the longest segment whose place is not handed out again before another's: 256 KiB.
const LATE: u32 = if cfg!(loom) { 1 } else { 4 };
/// Runs of one length on its stack.
const RUNS: usize = if cfg!(loom) { 2 } else { 31 };
/// The word of a length's pocket.
const POCKET: usize = RUNS;
/// Units of all runs, 4 MiB.
const UNITS_MAX: u32 = 64;

/// The short runs of one heap.
///
/// Invariants: as of [`Kept`](crate::heap::kept::Kept), but that neighbours are not joined.
pub(crate) struct ShortRuns {
    words: [[Shared64; RUNS + 1]; LENGTHS],
    /// Places below which words may be filled, for each length.
    tops: [AtomicU8; LENGTHS],
    /// Units of all runs; more than there are once some were gathered.
    held: AtomicU32,
    /// 1 if runs were gathered since the owner counted.
    gathered: Shared32,
    /// Number of frees that asked to be quick.
    frees: AtomicU8,
}

/// A unit's number and its complement.
fn word(first: u32) -> u64 {
    u64::from(!first) << 32 | u64::from(first)
}

/// The unit in a word; none in an empty one, nor in one that was overwritten.
fn first(word: u64) -> Option<u32> {
    ((word >> 32) as u32 == !(word as u32)).then_some(word as u32)
}

impl ShortRuns {
    pub(crate) fn new() -> Self {
        Self {
            words: core::array::from_fn(|_| core::array::from_fn(|_| Shared64::new(0))),
            tops: [const { AtomicU8::new(0) }; LENGTHS],
            held: AtomicU32::new(0),
            gathered: Shared32::new(0),
            frees: AtomicU8::new(0),
        }
    }

    /// The words that are not empty, with the units of their runs.
    fn filled(&self) -> impl Iterator<Item = (&Shared64, u32)> {
        let lengths = self.words.iter().zip(1..);
        let all = lengths.flat_map(|(words, units)| words.iter().map(move |word| (word, units)));
        all.filter(|(word, _)| word.load(Relaxed) != 0)
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.filled()
            .filter_map(|(word, units)| Some(Run { first: first(word.load(Relaxed))?, units }))
    }

    /// Returns true if a word was overwritten: its units stay in use, and the word as it is.
    pub(crate) fn is_overwritten(&self) -> bool {
        self.filled().any(|(word, _)| first(word.load(Relaxed)).is_none())
    }

    /// Takes all runs out.
    pub(crate) fn gather(&self) -> impl Iterator<Item = Run> {
        self.gathered.store(1, Release);
        let held = self.filled().filter(|(word, _)| first(word.load(Relaxed)).is_some());
        // What the units' last user wrote comes before what the next one reads.
        held.filter_map(|(word, units)| Some(Run { first: first(word.swap(0, AcqRel))?, units }))
    }

    /// As the owner: takes the top run of so many units.
    #[inline(always)]
    pub(crate) fn take(&self, units: usize) -> Option<u32> {
        let length = units.wrapping_sub(1);
        let (words, top) = (self.words.get(length)?, self.tops.get(length)?);
        let below = top.load(Relaxed).checked_sub(1)?;
        top.store(below, Relaxed);
        self.held.store(self.held.load(Relaxed).wrapping_sub(units as u32), Relaxed);
        // Gathered meanwhile, perhaps. A top that was overwritten leads to some word.
        first(words[usize::from(below) % words.len()].swap(0, AcqRel))
    }

    /// As the owner: counts a free, and returns true for 255 of 256.
    #[inline(always)]
    pub(crate) fn is_quick(&self) -> bool {
        let frees = self.frees.load(Relaxed).wrapping_add(1);
        self.frees.store(frees, Relaxed);
        frees != 0
    }

    /// As the owner: keeps the run of so many units that `end` gives, and returns true; if there is no room for it,
    /// `end` is not called.
    #[inline(always)]
    pub(crate) fn keep(&self, units: u32, end: impl FnOnce() -> Option<u32>) -> bool {
        let length = (units as usize).wrapping_sub(1);
        let (Some(words), Some(top)) = (self.words.get(length), self.tops.get(length)) else {
            return false;
        };
        let place = top.load(Relaxed);
        let stack = words.get(..RUNS).unwrap_or_default();
        let Some(empty) = stack.get(usize::from(place)) else { return false };
        let held = self.held.load(Relaxed).wrapping_add(units);
        if empty.load(Relaxed) != 0 || held > UNITS_MAX {
            return false;
        }
        let Some(first) = end() else { return false };
        self.held.store(held, Relaxed);
        let mut run = word(first);
        if units <= LATE {
            run = words[POCKET].swap(run, AcqRel);
            if run == 0 {
                return true;
            }
        }
        empty.store(run, Release);
        top.store(place.wrapping_add(1), Relaxed);
        true
    }

    /// Counts anew, if runs were gathered, and returns true then.
    #[cold]
    #[inline(never)]
    pub(crate) fn count(&self) -> bool {
        if self.gathered.load(Relaxed) == 0 {
            return false;
        }
        // Before the words are read: what is taken later is said later, too.
        self.gathered.swap(0, AcqRel);
        for (words, top) in self.words.iter().zip(&self.tops) {
            let filled = words[..RUNS].iter().rposition(|word| word.load(Relaxed) != 0);
            top.store(filled.map_or(0, |place| place as u8 + 1), Relaxed);
        }
        self.held.store(self.filled().map(|(_, units)| units).sum(), Relaxed);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_last_of_a_length_comes_first_or_second_until_all_are_gathered() {
        let short = ShortRuns::new();
        let keep = |first, units| {
            let keeps = || short.keep(units, || Some(first));
            keeps() || (short.count() && keeps())
        };
        assert!((0..32).all(|run| keep(run, 1)) && !keep(32, 1), "thirty-two of a length");
        assert!((0..2).all(|run| keep(100 + 16 * run, 16)) && !keep(200, 16), "4 MiB in all");
        assert!(!keep(300, 17) && !keep(300, 0), "no such length");
        assert_eq!((short.take(1), short.take(16)), (Some(30), Some(116)), "31 came last");
        assert_eq!((short.take(1), short.take(1)), (Some(29), Some(28)));
        assert!(keep(28, 1) && keep(29, 1) && keep(30, 1));
        assert_eq!((short.take(2), short.take(0), short.take(17)), (None, None, None));
        let all: Vec<Run> = short.gather().collect();
        assert_eq!((all.len(), short.runs().count()), (33, 0));
        assert_eq!(short.take(1), None);
        assert!(keep(7, 1) && keep(8, 1), "above the empty ones");
        assert!((0..3).all(|run| keep(16 * run, 16)), "counted anew");
        assert_eq!((short.take(1), short.take(1)), (Some(7), None), "8 came last");
        assert_eq!(short.gather().count(), 4);
    }

    /// Of each length up to `LATE` the run that came last is not the next to be handed out, and of longer ones it is.
    #[test]
    fn a_shorter_run_comes_back_late() {
        for units in 1..=LENGTHS as u32 {
            let short = ShortRuns::new();
            assert!(short.keep(units, || Some(1)));
            assert_eq!(short.take(units as usize), (units > LATE).then_some(1), "{units} units");
            let rest = short.gather().count();
            assert_eq!(rest, usize::from(units <= LATE));
            assert!(
                short.count() && short.keep(units, || Some(2)) && short.keep(units, || Some(3))
            );
            assert_eq!(
                short.take(units as usize),
                Some(if units > LATE { 3 } else { 2 }),
                "{units} units"
            );
        }
    }

    #[test]
    fn a_flipped_bit_leaves_no_run_of_other_units() {
        for unit in [0, 1, 77, u32::MAX] {
            assert_eq!(first(word(unit)), Some(unit));
            assert!((0..64).all(|bit| first(word(unit) ^ 1 << bit).is_none()), "unit {unit}");
        }
        assert_eq!(first(0), None);
        for bit in 0..8 {
            let short = ShortRuns::new();
            assert!((1..4).all(|first| short.keep(1, || Some(first))));
            short.tops[0].fetch_xor(1 << bit, Relaxed);
            let mut taken: Vec<u32> = (0..300).filter_map(|_| short.take(1)).collect();
            taken.extend(short.gather().map(|run| run.first));
            taken.sort_unstable();
            assert_eq!(taken, [1, 2, 3], "bit {bit}");
        }
    }

    #[test]
    fn one_free_of_256_is_slow() {
        let short = ShortRuns::new();
        let slow: Vec<u32> = (1..1000).filter(|_| !short.is_quick()).collect();
        assert_eq!(slow, [256, 512, 768]);
    }

    #[test]
    fn a_word_that_was_overwritten_is_told() {
        let short = ShortRuns::new();
        assert!(!short.is_overwritten() && short.keep(16, || Some(7)));
        let run = &short.words[15][0];
        for bit in 0..64 {
            let word = run.load(Relaxed);
            run.store(word ^ 1 << bit, Relaxed);
            assert!(short.is_overwritten() && short.runs().next().is_none(), "bit {bit}");
            run.store(word, Relaxed);
            assert!(!short.is_overwritten());
        }
    }
}
