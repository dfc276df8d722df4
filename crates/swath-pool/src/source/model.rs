//! Runs of bits and the first-fit source beside a flag for each unit.

extern crate std;

use std::vec;
use std::vec::Vec;

use swath_arch::testing::Random;

use crate::source::first_fit::FirstFit;
use crate::source::masks::word_masks;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::UNIT_BYTES;

#[test]
fn masks_are_the_bits_of_a_run() {
    for first in (0..140).chain([u32::MAX - 70]) {
        for count in (0..200).filter(|&count| first.checked_add(count).is_some()) {
            let words: Vec<(usize, u64)> = word_masks(first, count).collect();
            let mut bits = Vec::new();
            for &(index, mask) in &words {
                assert!(mask != 0 || count == 0);
                let of = (0..64).filter(|bit| mask >> bit & 1 != 0);
                bits.extend(of.map(|bit| 64 * index as u64 + bit));
            }
            let expected = u64::from(first)..u64::from(first) + u64::from(count);
            assert!(bits.iter().copied().eq(expected), "{first}, {count}");
            assert!(words.is_sorted_by(|a, b| a.0 < b.0));
        }
    }
}

struct Pair {
    source: FirstFit<Vec<u64>>,
    /// Units in use.
    used: Vec<bool>,
    /// Units from the arena's start to the next multiple of all alignments.
    base: u64,
}

impl Pair {
    fn is_free(&self, first: usize, units: usize) -> bool {
        self.used.get(first..first + units).is_some_and(|units| units.iter().all(|used| !used))
    }

    fn acquire(&mut self, units: u32, align: u32) -> Option<u32> {
        let is_aligned =
            |first: &usize| (self.base + *first as u64).is_multiple_of(u64::from(align.max(1)));
        let mut places = (0..=self.used.len()).filter(is_aligned);
        let found = places.find(|&first| {
            let end = first + units as usize;
            end <= self.used.len() && (units == 0 || self.is_free(first, units as usize))
        });
        let acquired = self.source.acquire(units, align);
        assert_eq!(acquired, found.map(|first| first as u32), "{units} units at {align}");
        if let Some(first) = found {
            self.used[first..first + units as usize].fill(true);
        }
        acquired
    }
}

#[test]
fn first_fit_is_the_first_place_by_flags() {
    for (seed, units, words) in
        [(0, 1, 1), (1, 63, 1), (2, 64, 1), (3, 65, 2), (4, 200, 4), (5, 300, 4), (6, 320, 9)]
    {
        let mut random = Random::new(seed);
        let base = random.below(64);
        let storage = vec![u64::MAX; words];
        let zero = seed % 2 == 0;
        let source = FirstFit::new(base as usize * UNIT_BYTES, units, storage, zero);
        assert_eq!(source.reads_zero(), zero);
        let there = (units as usize).min(64 * words);
        let mut pair = Pair { source, used: vec![false; there], base };
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for _ in 0..3000 {
            match random.below(8) {
                0..4 => {
                    let align = [0, 1, 2, 4, 16][random.index(5)];
                    let most = [3, 10, there as u64 + 2][random.index(3)];
                    let units = 1 + random.below(most) as u32;
                    runs.extend(pair.acquire(units, align).map(|first| (first, units)));
                }
                4 if !runs.is_empty() => {
                    let at = random.index(runs.len());
                    let (first, units) = runs[at];
                    let more = random.below(5) as u32;
                    let extended = pair.source.extend(first, units, more);
                    let end = (first + units) as usize;
                    assert_eq!(
                        extended,
                        pair.is_free(end, more as usize),
                        "{first}, {units}, {more}"
                    );
                    if extended {
                        pair.used[end..end + more as usize].fill(true);
                        runs[at].1 += more;
                    }
                }
                // A part from behind, or all.
                _ if !runs.is_empty() => {
                    let (first, units) = runs.swap_remove(random.index(runs.len()));
                    let kept =
                        if random.one_in(3) { random.below(u64::from(units)) as u32 } else { 0 };
                    pair.source.release(first + kept, units - kept);
                    pair.used[(first + kept) as usize..(first + units) as usize].fill(false);
                    if kept > 0 {
                        runs.push((first, kept));
                    }
                }
                _ => {}
            }
            let free = pair.used.iter().filter(|used| !**used).count();
            assert_eq!(pair.source.free_units(), free as u32);
        }
        assert!(!pair.source.purge(0, 1));
        assert_eq!(pair.acquire(u32::MAX, 1), None);
    }
    assert_eq!([0, 1, 64, 65, u32::MAX].map(FirstFit::<Vec<u64>>::words), [0, 1, 1, 2, 1 << 26]);
}
