//! One size class of a page buddy allocator, and where its nodes end.

use crate::bits::bitmap::Bitmap;

/// One size class: which of its units are free while their parents are not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Bit u stands for unit `base + u`.
    pub(crate) free: Bitmap,
    /// A multiple of 64, so that the units of a parent share a word wherever
    /// they fit into one.
    pub(crate) base: u64,
    /// The first of the units that lie wholly in the span, and their number.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// The place in the storage at which the word of unit 0 would stand, as far
    /// below the word of unit `base` as it is; wraps.
    pub(crate) origin: usize,
    /// All ones if the units have parents, else 0.
    pub(crate) twins: u64,
    /// The most units of a node.
    pub(crate) node_max: usize,
    pub(crate) granularity: u32,
}

impl Class {
    pub(crate) const NONE: Self = Self {
        free: Bitmap::none(),
        base: 0,
        first: 0,
        count: 0,
        origin: 0,
        twins: 0,
        node_max: 0,
        granularity: 0,
    };

    /// Returns true if a unit (its absolute number) lies wholly in the span.
    #[inline(always)]
    pub(crate) fn spans(&self, unit: u64) -> bool {
        unit.wrapping_sub(self.first) < self.count
    }

    /// Returns the place in the storage of the word of a unit (its absolute
    /// number).
    #[inline(always)]
    pub(crate) fn word_at(&self, unit: u64) -> usize {
        self.origin.wrapping_add((unit >> 6) as usize)
    }

    /// Units from `unit` to the end of its parent.
    #[inline]
    fn until_border(&self, unit: usize) -> usize {
        let size = 1u64 << self.granularity;
        (size - ((self.base + unit as u64) & (size - 1))) as usize
    }

    /// To where a node from `unit` on reaches for certain, if so many units
    /// are free: to the end of its parent.
    #[inline]
    pub(crate) fn border(&self, unit: usize) -> usize {
        if self.node_max == usize::MAX {
            usize::MAX
        } else {
            self.until_border(unit).min(self.node_max)
        }
    }

    /// Returns the length of the first node of a maximal run from `unit` on.
    #[inline]
    pub(crate) fn cut(&self, unit: usize, run: usize) -> usize {
        if run <= self.node_max { run } else { self.border(unit) }
    }

    /// The length of the node that starts at `unit`, cut to `wanted`.
    /// O(min(wanted, node_max)/64).
    #[inline]
    pub(crate) fn node_len(&self, storage: &[u64], unit: usize, wanted: usize) -> usize {
        let run = self.free.run(storage, unit, wanted.min(self.node_max));
        if run == 1 || self.node_max == usize::MAX || run <= self.until_border(unit) {
            return run;
        }
        // The run crosses a border: it is one node if it is short enough.
        let whole = self.free.run(storage, unit, self.node_max + 1);
        self.cut(unit, whole).min(run)
    }
}

#[cfg(test)]
mod unit {
    extern crate std;

    use std::vec;

    use swath_arch::testing::Random;

    use super::*;

    #[test]
    fn units_of_a_span_and_their_words() {
        let origin = 10_usize.wrapping_sub(3);
        let class = Class { base: 192, first: 200, count: 5, origin, ..Class::NONE };
        for unit in [0, 199, 200, 204, 205, 1000, u64::MAX] {
            assert_eq!(class.spans(unit), (200..205).contains(&unit), "{unit}");
        }
        for (unit, place) in [(192, 10), (255, 10), (256, 11), (192 + 64 * 9, 19)] {
            assert_eq!(class.word_at(unit), place, "{unit}");
        }
    }

    /// A run that is short enough is one node; a longer one is cut at its parent's end, and at the
    /// longest node.
    #[test]
    fn a_node_is_a_run_or_ends_with_its_parent() {
        let nodes = [1, 2, 3, 7, 8, 9, 16, 64, 100, usize::MAX];
        let shapes = (0..7).flat_map(|granularity| nodes.map(|node_max| (granularity, node_max)));
        for (seed, (granularity, node_max)) in (0..).zip(shapes) {
            const UNITS: usize = 320;
            let mut random = Random::new(seed);
            let mut storage = vec![0; Bitmap::storage_words(UNITS as u64) as usize];
            let mut free = Bitmap::new(&mut storage, 0, UNITS as u64);
            let mut past = 0;
            while past < UNITS {
                let (used, run) = (random.index(4) + 1, random.index(150) + 1);
                let first = (past + used).min(UNITS - 1);
                past = (first + run).min(UNITS);
                free.insert(&mut storage, first, past - first);
                past += 1;
            }
            let base = 64 * random.below(4);
            let class = Class { free, base, granularity, node_max, ..Class::NONE };
            for unit in 0..UNITS {
                let run = free.run(&storage, unit, UNITS);
                let parent = 1 << granularity;
                let in_parent = parent - (base as usize + unit) % parent;
                let cut = in_parent.min(node_max);
                let border = if node_max == usize::MAX { usize::MAX } else { cut };
                assert_eq!(class.border(unit), border, "{class:?}, unit {unit}");
                for run in [1, 2, 8, 9, 64, 65, 200] {
                    let expected = if run <= node_max { run } else { border };
                    assert_eq!(class.cut(unit, run), expected, "{class:?}, unit {unit}");
                }
                let node = if run <= node_max { run } else { cut };
                for wanted in [1, 2, 3, 8, 63, 64, 65, UNITS] {
                    let len = class.node_len(&storage, unit, wanted);
                    assert_eq!(len, node.min(wanted), "{class:?}, {wanted} from unit {unit}");
                }
            }
        }
    }
}
