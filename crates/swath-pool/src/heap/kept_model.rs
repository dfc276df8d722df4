//! Long runs that a heap keeps beside a list of them.

extern crate std;

use std::vec::Vec;

use swath_arch::testing::Random;

use crate::heap::kept::Kept;
use crate::heap::run::Run;

/// Words for runs, and units in all.
const RUNS: usize = 8;
const UNITS_MAX: u32 = 128;

/// Keeps runs in a list, of which the first free place is filled.
struct RunList(Vec<Option<Run>>);

impl RunList {
    fn units(&self) -> u32 {
        self.0.iter().flatten().map(|run| run.units).sum()
    }

    fn put(&mut self, run: Run, left: &mut Vec<Run>) {
        match self.0.iter_mut().position(|place| place.is_none()) {
            Some(at) if self.units() + run.units <= UNITS_MAX => self.0[at] = Some(run),
            _ => left.push(run),
        }
    }

    fn keep(&mut self, run: Run, left: &mut Vec<Run>) {
        let (mut first, mut end) = (run.first, run.first + run.units);
        for place in &mut self.0 {
            if let Some(other) = place
                && (other.first + other.units == first || end == other.first)
            {
                (first, end) = (first.min(other.first), end.max(other.first + other.units));
                *place = None;
            }
        }
        self.put(Run { first, units: end - first }, left);
    }

    fn take(&mut self, units: u32, page: u32, left: &mut Vec<Run>) -> Option<u32> {
        let fits = |run: Run| run.place(units, page);
        let runs = (0..).zip(&self.0).filter_map(|(at, run)| Some((at, (*run)?)));
        let fitting = runs.filter(|(_, run)| fits(*run).is_some());
        let (at, run): (usize, Run) = fitting.min_by_key(|(_, run)| run.units)?;
        self.0[at] = None;
        let first = fits(run)?;
        let end = run.first + run.units;
        for rest in [run.first..first, first + units..end] {
            if !rest.is_empty() {
                self.put(Run { first: rest.start, units: rest.end - rest.start }, left);
            }
        }
        Some(first)
    }
}

#[test]
fn runs_are_kept_as_a_list_keeps_them() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (kept, mut plain) = (Kept::new(), RunList([None; RUNS].to_vec()));
        for step in 0..400 {
            let (mut left, mut expected) = (Vec::new(), Vec::new());
            let page = [1, 4, 16][random.index(3)];
            if random.one_in(60) {
                let mut gathered: Vec<Run> = kept.gather().collect();
                let mut all: Vec<Run> = plain.0.iter_mut().filter_map(Option::take).collect();
                gathered.sort_by_key(|run| run.first);
                all.sort_by_key(|run| run.first);
                assert_eq!(gathered, all, "seed {seed}, step {step}");
            } else if random.one_in(3) {
                let units = 1 + random.below(20) as u32;
                let taken = kept.take(units, page, |run| left.push(run));
                assert_eq!(
                    taken,
                    plain.take(units, page, &mut expected),
                    "seed {seed}, step {step}"
                );
            } else {
                let (first, units) = (random.below(400) as u32, 1 + random.below(24) as u32);
                let meets = |run: &Run| run.first < first + units && first < run.first + run.units;
                if plain.0.iter().flatten().any(meets) {
                    continue;
                }
                kept.keep(Run { first, units }, |run| left.push(run));
                plain.keep(Run { first, units }, &mut expected);
            }
            assert_eq!(left, expected, "seed {seed}, step {step}");
            let runs: Vec<Run> = kept.runs().collect();
            assert_eq!(runs, plain.0.iter().flatten().copied().collect::<Vec<_>>());
            assert!(!kept.is_overwritten());
        }
    }
}
