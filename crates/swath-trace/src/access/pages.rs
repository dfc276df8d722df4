//! The set of pages that a trace touches.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use swath_arch::{PageRange, Vpn};

use crate::access::content::TraceError;

/// Pages that share a word.
const WORD_PAGES: u64 = u64::BITS as u64;

/// The most words: what a hash table of 2^21 places holds, 36 MB. That is 448 GiB of pages
/// side by side, or 7 GiB of pages of which each is alone in its 256 KiB.
const WORDS_MAX: usize = 7 << 18;

/// A set of pages within 36 MB of memory, and 54 MB while it grows.
///
/// Invariant: no word is 0, and `count` is the number of ones in all of them.
#[derive(Clone, Debug, Default)]
pub struct PageSet {
    words: HashMap<u64, u64, FixedState>,
    count: u64,
}

impl PageSet {
    /// Adds pages. O(1) for each 64 of them.
    ///
    /// # Errors
    /// [`TraceError::TooLarge`]; some of the pages are then in the set.
    pub fn insert(&mut self, pages: PageRange) -> Result<(), TraceError> {
        let (mut next, end) = (pages.start.raw(), pages.end().raw());
        while next < end {
            let (word, bit) = (next / WORD_PAGES, next % WORD_PAGES);
            let count = (WORD_PAGES - bit).min(end - next);
            let ones = u64::MAX >> (WORD_PAGES - count) << bit;
            if self.words.len() >= WORDS_MAX && !self.words.contains_key(&word) {
                let what = "groups of 64 pages touched";
                return Err(TraceError::TooLarge { limit: WORDS_MAX as u64, what });
            }
            let held = self.words.entry(word).or_insert(0);
            self.count += u64::from((ones & !*held).count_ones());
            *held |= ones;
            next += count;
        }
        Ok(())
    }

    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The pages as ranges, ascending, no two of which touch. O(words · log words).
    pub fn ranges(&self) -> Vec<PageRange> {
        let mut words: Vec<_> = self.words.iter().map(|(&word, &ones)| (word, ones)).collect();
        words.sort_unstable();
        let mut ranges: Vec<PageRange> = Vec::new();
        for (word, mut ones) in words {
            while ones != 0 {
                let bit = ones.trailing_zeros();
                let count = (ones >> bit).trailing_ones();
                let start = Vpn::new(word * WORD_PAGES + u64::from(bit));
                match ranges.last_mut() {
                    Some(last) if last.end() == start => last.count += u64::from(count),
                    _ => ranges.push(PageRange::new(start, count.into())),
                }
                ones &= (ones >> bit).wrapping_add(1) << bit;
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use swath_arch::testing::Random;

    use super::*;

    #[test]
    fn against_a_set_of_pages() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            let base = [0, (1 << 52) - 1000][seed as usize % 2];
            for _ in 0..60 {
                let start = base + random.within(0..800);
                let pages = PageRange::new(Vpn::new(start), random.within(1..150));
                set.insert(pages).unwrap();
                model.extend(pages.iter().map(|page| page.raw()));
                assert_eq!(set.len(), model.len() as u64, "seed {seed}");
            }
            let ranges = set.ranges();
            let pages = ranges.iter().flat_map(|range| range.iter()).map(|page| page.raw());
            assert!(pages.eq(model.iter().copied()), "seed {seed}");
            assert!(ranges.windows(2).all(|two| two[0].end() < two[1].start), "seed {seed}");
        }
    }

    #[test]
    fn it_is_bounded() {
        let mut set = PageSet::default();
        let page = |number: u64| PageRange::new(Vpn::new(number * WORD_PAGES), 1);
        for number in 0..WORDS_MAX as u64 {
            set.insert(page(number)).unwrap();
        }
        assert!(set.insert(page(3)).is_ok());
        let error = set.insert(page(WORDS_MAX as u64)).unwrap_err();
        assert!(matches!(error, TraceError::TooLarge { limit: 1_835_008, .. }), "{error}");
        assert_eq!(set.len(), WORDS_MAX as u64);
    }
}
