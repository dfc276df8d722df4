//! Ranges of frames and of pages.

use core::fmt;
use core::iter;

use crate::addr::number::{Pfn, Vpn};
use crate::addr::order::Order;
use crate::word::Word;

macro_rules! range {
    ($(#[$doc:meta])* $name:ident of $unit:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name<W = u64> {
            /// The first number in the range.
            pub start: $unit<W>,
            /// Number of numbers in the range.
            pub count: W,
        }

        impl<W: Word> $name<W> {
            /// Returns the range of `count` numbers from `start` on.
            #[inline]
            pub const fn new(start: $unit<W>, count: W) -> Self {
                Self { start, count }
            }

            /// Returns the range from `start` up to and without `end`; empty
            /// if `end` is not above `start`.
            #[inline]
            pub fn between(start: $unit<W>, end: $unit<W>) -> Self {
                Self { start, count: end.raw().saturating_sub(start.raw()) }
            }

            /// Returns the naturally aligned block of 2^order numbers around
            /// `number`.
            #[inline]
            pub fn block_around(number: $unit<W>, order: Order) -> Self {
                Self { start: number.align_down(order.k()), count: W::from(order.frames()) }
            }

            /// Returns one past the last number, or `None` on overflow.
            #[inline]
            pub fn checked_end(self) -> Option<$unit<W>> {
                self.start.checked_add(self.count)
            }

            /// Returns one past the last number; saturates on overflow, which a
            /// range handed out by this project never has.
            #[inline]
            pub fn end(self) -> $unit<W> {
                $unit::of(self.start.raw().saturating_add(self.count))
            }

            /// Returns true if the range holds nothing.
            #[inline]
            pub fn is_empty(self) -> bool {
                self.count == W::ZERO
            }

            /// Returns true if `number` lies in the range.
            #[inline]
            pub fn contains(self, number: $unit<W>) -> bool {
                number.raw().wrapping_sub(self.start.raw()) < self.count
            }

            /// Returns true if every number of `other` lies in the range; an
            /// empty range lies in any.
            #[inline]
            pub fn covers(self, other: Self) -> bool {
                other.is_empty()
                    || (self.start.raw() <= other.start.raw()
                        && other.end().raw() <= self.end().raw())
            }

            /// Returns the distance of `number` from the range's start, or
            /// `None` if it does not lie in the range.
            #[inline]
            pub fn position(self, number: $unit<W>) -> Option<W> {
                let offset = number.raw().wrapping_sub(self.start.raw());
                if offset < self.count { Some(offset) } else { None }
            }

            /// Returns true if the two ranges share a number.
            #[inline]
            pub fn overlaps(self, other: Self) -> bool {
                !self.is_empty()
                    && !other.is_empty()
                    && self.start.raw() < other.end().raw()
                    && other.start.raw() < self.end().raw()
            }

            /// Returns the numbers that lie in both ranges; an empty range if
            /// there are none.
            #[inline]
            pub fn intersect(self, other: Self) -> Self {
                let start =
                    if self.start.raw() < other.start.raw() { other.start } else { self.start };
                let (end, past) = (self.end(), other.end());
                Self::between(start, if past.raw() < end.raw() { past } else { end })
            }

            /// Divides the range into its first `count` numbers and the rest.
            /// Either may be empty: a `count` beyond the range is all of it.
            #[inline]
            pub fn split_at(self, count: W) -> (Self, Self) {
                let count = if count < self.count { count } else { self.count };
                let middle = $unit::of(self.start.raw().saturating_add(count));
                (Self::new(self.start, count), Self::new(middle, self.count - count))
            }

            /// Returns true if the range is one naturally aligned block of
            /// 2^order numbers.
            #[inline]
            pub fn is_block(self, order: Order) -> bool {
                self.count == W::from(order.frames()) && self.start.is_aligned(order.k())
            }

            /// Returns the smallest range of whole naturally aligned blocks of
            /// 2^log2 numbers that covers this one, or `None` on overflow.
            #[inline]
            pub fn align_outward(self, log2: u32) -> Option<Self> {
                let end = self.checked_end()?.align_up(log2)?;
                Some(Self::between(self.start.align_down(log2), end))
            }

            /// Returns the naturally aligned blocks of 2^log2 numbers that lie
            /// wholly in the range: an empty range if there are none.
            #[inline]
            pub fn align_inward(self, log2: u32) -> Self {
                match self.start.align_up(log2) {
                    Some(start) => Self::between(start, self.end().align_down(log2)),
                    None => Self::new(self.end(), W::ZERO),
                }
            }

            /// Iterates over the fewest naturally aligned blocks that make up
            /// the range, ascending, none larger than `order_max`: the start
            /// and the order of each. O(1) a block.
            #[inline]
            pub fn blocks(
                self,
                order_max: Order,
            ) -> impl Iterator<Item = ($unit<W>, Order)> + Clone {
                let mut rest = Self::between(self.start, self.end());
                iter::from_fn(move || {
                    if rest.is_empty() {
                        return None;
                    }
                    let start = rest.start;
                    let order = Order::fitting(start.raw(), rest.count, order_max);
                    rest = rest.split_at(W::from(order.frames())).1;
                    Some((start, order))
                })
            }
        }

        impl $name {
            /// Iterates over every number in the range, ascending.
            #[inline]
            pub fn iter(self) -> impl DoubleEndedIterator<Item = $unit> + Clone {
                (self.start.raw()..self.end().raw()).map($unit::new)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}+{}", self.start, self.count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}+{}", self.start, self.count)
            }
        }
    };
}

range! {
    /// Frames that follow one another: any length, any alignment.
    Extent of Pfn
}
range! {
    /// Pages that follow one another: any length, any alignment.
    PageRange of Vpn
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Every range of up to 10 numbers within the first 18 and the last 18;
    /// those that end at `u64::MAX` included, those beyond it not.
    fn small() -> impl Iterator<Item = Extent> + Clone {
        let starts = (0..=18).chain(u64::MAX - 18..=u64::MAX);
        starts
            .flat_map(|start| (0..=10).map(move |count| Extent::new(Pfn::new(start), count)))
            .filter(|extent| extent.checked_end().is_some())
    }

    fn numbers(extent: Extent) -> Vec<u64> {
        extent.iter().map(Pfn::raw).collect()
    }

    #[test]
    fn ranges_at_the_edges() {
        let e = Extent::new(Pfn::new(4), 3);
        assert!(!e.contains(Pfn::new(3)));
        assert!(e.contains(Pfn::new(4)) && e.contains(Pfn::new(6)));
        assert!(!e.contains(Pfn::new(7)));
        assert_eq!(numbers(e), [4, 5, 6]);
        let beyond = Extent::new(Pfn::new(u64::MAX - 1), 9);
        assert_eq!(beyond.checked_end(), None);
        assert_eq!(beyond.align_outward(0), None);
        assert_eq!(beyond.blocks(Order::MAX).count(), 1);
        assert_eq!(Extent::between(Pfn::new(7), Pfn::new(4)), Extent::new(Pfn::new(7), 0));
        assert!(Extent::block_around(Pfn::new(13), Order::known(2)).is_block(Order::known(2)));
        assert_eq!(Extent::block_around(Pfn::new(13), Order::known(2)).start, Pfn::new(12));
    }

    /// Two ranges against the sets of their numbers.
    #[test]
    fn pairs_behave_as_sets() {
        for a in small() {
            let set = numbers(a);
            for b in small() {
                let other = numbers(b);
                let both: Vec<u64> = set.iter().copied().filter(|n| other.contains(n)).collect();
                assert_eq!(numbers(a.intersect(b)), both, "{a} {b}");
                assert_eq!(a.overlaps(b), !both.is_empty(), "{a} {b}");
                assert_eq!(a.covers(b), both == other, "{a} {b}");
                assert_eq!(a.contains(b.start), set.contains(&b.start.raw()), "{a} {b}");
                let position = set.iter().position(|&n| n == b.start.raw());
                assert_eq!(a.position(b.start), position.map(|at| at as u64), "{a} {b}");
            }
        }
    }

    #[test]
    fn parts_join_to_the_whole() {
        for extent in small() {
            for count in 0..=12 {
                let (low, high) = extent.split_at(count);
                assert_eq!(low.count, count.min(extent.count));
                assert_eq!((low.start, low.end()), (extent.start, high.start));
                assert_eq!(low.count + high.count, extent.count);
            }
        }
    }

    #[test]
    fn rounding_adds_or_drops_partial_blocks() {
        for extent in small() {
            for log2 in 0..6 {
                let whole = |block: u64| {
                    (0..1 << log2).all(|i| extent.contains(Pfn::new((block << log2) + i)))
                };
                let mut blocks: Vec<u64> = extent.iter().map(|n| n.raw() >> log2).collect();
                blocks.dedup();
                if let Some(outward) = extent.align_outward(log2)
                    && !extent.is_empty()
                {
                    assert_eq!(outward.start.raw(), blocks[0] << log2);
                    assert_eq!(outward.count, (blocks.len() as u64) << log2);
                }
                blocks.retain(|&block| whole(block));
                let inward = extent.align_inward(log2);
                assert_eq!(inward.count, (blocks.len() as u64) << log2, "{extent} {log2}");
                assert!(blocks.first().is_none_or(|&block| inward.start.raw() == block << log2));
                assert!(extent.covers(inward));
            }
        }
    }

    /// Blocks are aligned, tile the range, and no two of one parent could have
    /// been one, so that they are the fewest.
    #[test]
    fn blocks_are_the_fewest() {
        for extent in small() {
            for max in 0..6 {
                let max = Order::known(max);
                let mut at = extent.start;
                let blocks: Vec<(Pfn, Order)> = extent.blocks(max).collect();
                for &(start, order) in &blocks {
                    assert_eq!(start, at);
                    assert!(start.is_aligned(order.k()) && order <= max);
                    at = start.checked_add(order.frames()).unwrap_or(extent.end());
                }
                assert_eq!(at, extent.end());
                for pair in blocks.windows(2) {
                    let ((low, order), (_, next)) = (pair[0], pair[1]);
                    let joins = order == next && low.is_aligned(order.k() + 1) && order < max;
                    assert!(!joins, "{extent} {max}");
                }
            }
        }
        let all = PageRange::between(Vpn::new(0), Vpn::new(1 << 53));
        assert_eq!(all.blocks(Order::MAX).count(), 4);
    }
}
