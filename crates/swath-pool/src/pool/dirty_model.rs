//! Dirty units beside a mark for each, and seals that are broken.

extern crate std;

use std::vec;
use std::vec::Vec;

use swath_arch::testing::Random;

use crate::pool::dirty::Dirty;

const UNITS: u32 = 300;
const WORDS: usize = UNITS.div_ceil(64) as usize;

/// Of each unit whether it was released since the last purge, or before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    Clean,
    New,
    Old,
}

/// The runs of units that are due, longest first come together.
fn runs(marks: &[Mark], all: bool) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (unit, &mark) in (0..).zip(marks) {
        if mark == Mark::Old || (all && mark == Mark::New) {
            match runs.last_mut() {
                Some((first, units)) if *first + *units == unit => *units += 1,
                _ => runs.push((unit, 1)),
            }
        }
    }
    runs
}

fn agree(dirty: &Dirty<'_>, marks: &[Mark]) {
    for (unit, &mark) in (0..).zip(marks) {
        assert_eq!(dirty.has(unit), mark != Mark::Clean, "unit {unit}");
    }
    let count = marks.iter().filter(|&&mark| mark != Mark::Clean).count() as u64;
    assert_eq!(dirty.count(UNITS), count);
    assert_eq!(dirty.overwritten(), None);
}

#[test]
fn dirty_units_are_what_was_released_and_not_purged() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut words = vec![0; 3 * WORDS];
        let mut dirty = Dirty::new(&mut words);
        let mut marks = vec![Mark::Clean; UNITS as usize];
        // Some never use the last units.
        let high = if seed % 2 == 0 { UNITS } else { UNITS - random.below(150) as u32 };
        for step in 0..600 {
            let first = random.below(u64::from(high)) as u32;
            let most = u64::from(high - first).min([4, 80, 300][random.index(3)]);
            let units = 1 + random.below(most) as u32;
            let range = first as usize..(first + units) as usize;
            match random.below(7) {
                0..3 => {
                    dirty.set(first, units);
                    marks[range].fill(Mark::New);
                }
                3..5 => {
                    let were = marks[range.clone()].iter().any(|&mark| mark != Mark::Clean);
                    assert_eq!(dirty.clear(first, units), were, "seed {seed}, step {step}");
                    marks[range].fill(Mark::Clean);
                }
                _ => {
                    let all = random.one_in(2);
                    let due = runs(&marks, all);
                    let refuses = random.below(4) as u32;
                    let mut asked = Vec::new();
                    let purged = dirty.purge(all, high, |first, units| {
                        asked.push((first, units));
                        first % 4 != refuses
                    });
                    assert_eq!(asked, due, "seed {seed}, step {step}");
                    let mut expected = 0;
                    for mark in marks.iter_mut().filter(|mark| **mark == Mark::New) {
                        *mark = Mark::Old;
                    }
                    for (first, units) in due.into_iter().filter(|run| run.0 % 4 != refuses) {
                        marks[first as usize..(first + units) as usize].fill(Mark::Clean);
                        expected += u64::from(units);
                    }
                    assert_eq!(purged, expected, "seed {seed}, step {step}");
                }
            }
            agree(&dirty, &marks);
        }
    }
}

/// The units of a broken seal are never purged, nor told as clean, and the seal stays broken; all others are
/// as ever.
#[test]
fn a_flipped_bit_leaves_its_units_dirty() {
    for bit in 0..64 * 3 * WORDS {
        let mut words = vec![0; 3 * WORDS];
        let mut dirty = Dirty::new(&mut words);
        for (first, units) in [(3, 5), (60, 10), (128, 64), (200, 3)] {
            dirty.set(first, units);
            // Of two ages.
            if first == 60 {
                let _ = dirty.purge(false, UNITS, |_, _| false);
            }
        }
        words[bit / 64] ^= 1 << (bit % 64);
        let broken = (bit / 64 % WORDS) as u32;
        let is_broken = |unit: u32| unit / 64 == broken;
        // Marked twice or once, a unit is dirty.
        let nth = bit / 64;
        let other = [nth + WORDS, nth.wrapping_sub(WORDS)][usize::from(nth >= WORDS)];
        let is_marked = nth < 2 * WORDS && (words[nth] | words[other]) >> (bit % 64) & 1 != 0;
        let mut dirty = Dirty::new(&mut words);
        assert!(!is_marked || dirty.has(64 * broken + bit as u32 % 64), "bit {bit}");
        assert_eq!(dirty.overwritten(), Some(64 * broken), "bit {bit}");
        for all in [false, true, true] {
            let purge = |first, units| {
                let mut purged = first..first + units;
                assert!(!purged.any(is_broken), "bit {bit}: {first}, {units}");
                true
            };
            dirty.purge(all, UNITS, purge);
            assert_eq!(dirty.overwritten(), Some(64 * broken), "bit {bit}");
        }
        for unit in 0..UNITS {
            assert!(is_broken(unit) || !dirty.has(unit), "bit {bit}, unit {unit}");
        }
        dirty.set(64 * broken, 2);
        assert!(dirty.clear(64 * broken + 9, 1) && dirty.clear(64 * broken, 2), "bit {bit}");
        assert_eq!(dirty.overwritten(), Some(64 * broken), "bit {bit}");
        assert!(!dirty.clear(64 * ((broken + 1) % WORDS as u32), 1), "bit {bit}");
    }
}
