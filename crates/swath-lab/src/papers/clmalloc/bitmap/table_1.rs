//! Table 1 of *Zhang, Lu and Zhang*, line by line, as a model of its cost.

use swath_arch::Pfn;
use swath_frame::segment::{AreaSpace, Segment};

/// The start of a run of free units, and what it took to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// The first unit of the run: *bitmap_no*.
    pub(crate) unit: u64,
    /// The number of the area in which it lies: *start_zone*.
    pub(crate) area: usize,
    /// Its first frame: *pfn*.
    pub(crate) frame: Pfn,
}

/// The global bitmap, a bit for each unit: ones are in use, as in Linux.
///
/// "Index of the next zero in bitmap" (line 6) is taken as Linux's `bitmap_find_next_zero_area`,
/// as the text has the algorithm calculate "the available range": the next zero, then the next one
/// before the range's end, from which it starts anew.
pub(crate) struct Table1 {
    words: Vec<u64>,
    bits: u64,
    /// Words read since the start, all of them under *cma_mutex*.
    pub(crate) words_read: u64,
    /// Areas passed by in lines 13 to 21 since the start.
    pub(crate) areas_passed: u64,
}

impl Table1 {
    /// The bitmap of all units of `space`, all free.
    pub(crate) fn new(space: &AreaSpace<'_>) -> Self {
        let bits = space.units();
        let words = vec![0; bits.div_ceil(64) as usize];
        Self { words, bits, words_read: 0, areas_passed: 0 }
    }

    /// The lowest unit from `from` on whose bit is `one`, or `end`.
    fn next(&mut self, from: u64, end: u64, one: bool) -> u64 {
        let mut at = from;
        while at < end {
            self.words_read += 1;
            let word = self.words[(at / 64) as usize];
            let wanted = if one { word } else { !word } >> (at % 64);
            if wanted != 0 {
                return (at + u64::from(wanted.trailing_zeros())).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }

    /// Finds `count` free units, at least one.
    pub(crate) fn find(&mut self, space: &AreaSpace<'_>, count: u64) -> Option<Start> {
        // Lines 1 to 4.
        if count > self.bits {
            return None;
        }
        // Lines 5 to 11.
        let mut unit = 0;
        loop {
            unit = self.next(unit, self.bits, false);
            let past = unit + count;
            if past > self.bits {
                return None;
            }
            let used = self.next(unit, past, true);
            if used == past {
                break;
            }
            unit = used + 1;
        }
        // Lines 12 to 22.
        let mut before = 0;
        for (number, area) in space.areas().iter().enumerate() {
            let units = area.frames().count >> space.unit().k();
            if before + units > unit {
                let frame = area.frames().start + ((unit - before) << space.unit().k());
                return Some(Start { unit, area: number, frame });
            }
            before += units;
            self.areas_passed += 1;
        }
        None
    }

    /// Returns true if all units of a segment are free; costs nothing that is counted.
    pub(crate) fn is_free(&self, space: &AreaSpace<'_>, segment: Segment) -> bool {
        let k = space.unit().k();
        let mut units = segment.start >> k..(segment.start + segment.count) >> k;
        units.all(|unit| self.words[(unit / 64) as usize] >> (unit % 64) & 1 == 0)
    }

    /// Marks a segment as in use or free.
    pub(crate) fn mark(&mut self, space: &AreaSpace<'_>, segment: Segment, used: bool) {
        let k = space.unit().k();
        let (mut at, end) = (segment.start >> k, (segment.start + segment.count) >> k);
        while at < end {
            let count = (64 - at % 64).min(end - at);
            let bits = u64::MAX >> (64 - count) << (at % 64);
            let word = &mut self.words[(at / 64) as usize];
            *word = if used { *word | bits } else { *word & !bits };
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use swath_arch::Order;

    use super::*;
    use crate::papers::clmalloc::areas::machine;

    #[test]
    fn four_units_in_use_in_the_second_area() {
        let machine = machine("two", &[(0, 1), (4, 1)]);
        machine
            .with_space(Order::BASE, |space| {
                let mut table = Table1::new(&space);
                let start = |unit, area, frame| Some(Start { unit, area, frame: Pfn::new(frame) });
                assert_eq!(table.find(&space, 512), start(0, 0, 0));
                assert_eq!((table.words_read, table.areas_passed), (1 + 8, 0));
                table.mark(&space, Segment::new(0, 300), true);
                assert_eq!(table.find(&space, 213), None);
                table.words_read = 0;
                // Four words of ones, then the zero of the fifth; two words hold the range.
                assert_eq!(table.find(&space, 20), start(300, 1, 1024 + 44));
                assert_eq!((table.words_read, table.areas_passed), (5 + 1, 1));
                table.mark(&space, Segment::new(310, 2), true);
                assert!(table.is_free(&space, Segment::new(300, 10)));
                assert!(!table.is_free(&space, Segment::new(300, 11)));
                assert_eq!(table.find(&space, 20), start(312, 1, 1024 + 56));
                table.mark(&space, Segment::new(64, 100), false);
                assert_eq!(table.find(&space, 100), start(64, 0, 64));
                assert_eq!(table.find(&space, 101), start(312, 1, 1024 + 56));
                assert_eq!(table.find(&space, 513), None);
            })
            .unwrap();
    }
}
