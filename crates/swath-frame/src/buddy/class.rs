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
