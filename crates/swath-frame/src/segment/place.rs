//! The places at which a request's segment may begin, apart from what is free.
//!
//! Alignment, limits, boundaries and areas all come down to one question: the
//! lowest admissible start from a given one on. With it, any structure that
//! finds the first free run from a given unit on serves all constraints: the
//! two take turns until both agree, and so find the lowest start of all.
//!
//! Many runs may be long enough and yet lie so that nothing in them is admissible.
//! But a run that is somewhat longer has a place wherever it begins. So after a
//! fixed number of turns in vain the search looks for such a run, once.

use crate::segment::allocator::{SegmentError, SegmentRequest};
use crate::segment::space::{Area, AreaSpace};

/// Tries in vain after which a search looks for a run that has a place for certain.
pub(crate) const TRIES: u32 = 16;

/// A request in units, checked.
///
/// Invariants: `1 <= count <= upper - lower`, `upper` is at most the number of
/// units, and `count` does not exceed 2^`boundary`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    space: &'a AreaSpace<'a>,
    pub(crate) count: u64,
    lower: u64,
    pub(crate) upper: u64,
    /// log2 in units; 63 stands for no boundary.
    align: u32,
    boundary: u32,
    one_area: bool,
    /// True if frames come in aligned powers of two: see [`held_end`].
    blocks: bool,
    /// True if any start between the limits will do.
    free_choice: bool,
}

impl<'a> Place<'a> {
    /// The request in units. `free` frames are free.
    pub(crate) fn new(
        space: &'a AreaSpace<'a>,
        request: &SegmentRequest,
        blocks: bool,
        free: u64,
    ) -> Result<Self, SegmentError> {
        let unit = space.unit();
        let wanted = request.count;
        if wanted == 0 {
            return Err(SegmentError::Empty);
        }
        if wanted > free {
            return Err(SegmentError::OutOfFrames { wanted, free });
        }
        let count = whole_units(wanted, unit.k());
        let boundary = request.boundary.map_or(63, |order| order.k());
        let lower = whole_units(request.lower, unit.k());
        let upper = (request.upper >> unit.k()).min(space.units());
        if boundary < 63 && count << unit.k() > 1 << boundary
            || lower.checked_add(count).is_none_or(|end| end > upper)
        {
            return Err(SegmentError::Unsatisfiable { request: *request });
        }
        let align = request.align.k().saturating_sub(unit.k());
        let boundary = if boundary < 63 { boundary - unit.k() } else { 63 };
        let one_area = request.one_area;
        let free_choice = align == 0 && boundary == 63 && !one_area && !blocks;
        Ok(Self { space, count, lower, upper, align, boundary, one_area, blocks, free_choice })
    }

    /// The same request within one area, if it has room there.
    pub(crate) fn within(&self, area: &Area) -> Option<Self> {
        let (base, end) = units(self.space, area);
        let (lower, upper) = (self.lower.max(base), self.upper.min(end));
        (lower + self.count <= upper).then_some(Self { lower, upper, ..*self })
    }

    /// The lowest admissible start from `from` on. Steps over at most every
    /// area once, and 64 times within one.
    #[inline]
    pub(crate) fn admit(&self, from: u64) -> Option<u64> {
        let start = from.max(self.lower);
        if self.free_choice {
            return (start + self.count <= self.upper).then_some(start);
        }
        self.admit_constrained(start)
    }

    #[inline(never)]
    fn admit_constrained(&self, mut start: u64) -> Option<u64> {
        loop {
            start = round_up(start, 1 << self.align);
            let past = start + self.count;
            if past > self.upper {
                return None;
            }
            let window = (past - 1) >> self.boundary;
            if start >> self.boundary != window {
                start = window << self.boundary;
                continue;
            }
            if !self.one_area && !self.blocks {
                return Some(start);
            }
            let (base, end) = units(self.space, area_at(self.space, start)?);
            if self.one_area && past > end {
                start = end;
                continue;
            }
            // The piece in this area stands at the start of a block.
            let piece = past.min(end) - start;
            let block = piece.next_power_of_two();
            let aligned = base + round_up(start - base, block);
            if !self.blocks || aligned == start {
                return Some(start);
            }
            // Near the area's end the piece shrinks: one of half the block may
            // stand before the next whole block would.
            let shorter = (end - block / 2).max(start + 1);
            start = aligned.min(shorter);
        }
    }

    /// One past the units that a segment from `start` on holds.
    #[inline]
    pub(crate) fn held_end(&self, start: u64) -> u64 {
        let past = start + self.count;
        if self.blocks { held_end(self.space, start, past) } else { past }
    }

    /// A start at which all constraints are met and all units to be held are
    /// free; `None` exactly if there is none. `first_free(count, from)` is the
    /// lowest start, from `from` on, of so many free units.
    ///
    /// It is the lowest start, unless [`TRIES`] tries before it are in vain: then
    /// the lowest from there on in `sure()` free units, see
    /// [`sure_units`](Self::sure_units), or, if those lie above the upper limit or
    /// nowhere, the lowest of all. A try is one call of `first_free`, or two with
    /// blocks, and passes by a run of free units that is long enough but has no
    /// place; with blocks, a start in one whose block is not free.
    #[inline]
    pub(crate) fn search(
        &self,
        first_free: impl Fn(u64, u64) -> Option<u64>,
        sure: impl Fn() -> Option<u64>,
    ) -> Option<u64> {
        let mut from = self.admit(self.lower)?;
        let mut tries = 0;
        loop {
            let start = first_free(self.count, from)?;
            from = self.admit(start)?;
            if from == start {
                let held = self.held_end(start) - start;
                if held == self.count || first_free(held, start) == Some(start) {
                    return Some(start);
                }
                from = self.admit(start + 1)?;
            }
            if tries == TRIES
                && let Some(run) = sure().and_then(|units| first_free(units, from))
                && let Some(place) = self.admit(run)
            {
                from = place;
            }
            tries += 1;
        }
    }

    /// Returns the number of units that hold a place wherever they begin, if
    /// all are free and the limits admit it; `None` if no number is known to.
    ///
    /// Let c be the count, A = 2^align, B = 2^boundary, and P the power of two
    /// not below c. If of any g starts in a row one is admissible, and h units
    /// are held from it on, then h + g - 1 units are enough: the first g of them
    /// are starts from which h units lie inside.
    ///
    /// * Without a boundary the multiples of A are admissible, so g = A, h = c.
    /// * With one, the multiples of A that are at most B - c above a multiple of
    ///   B. If A >= c then A >= P and, since B >= P, those are all multiples of A
    ///   and g = A. Otherwise A < B, the last before a multiple of B is B - c
    ///   rounded down to A, and the next that multiple itself: g is c rounded
    ///   up to A, which is A in the first case, too.
    /// * Blocks inside an area begin at multiples of P from its start on. If all
    ///   areas start at multiples of A, those of max(A, P) from there on are
    ///   aligned: g = max(A, P), h = P. If all start at multiples of P, too, such
    ///   a block crosses no multiple of B, as B >= P.
    ///
    /// What must lie in one area needs so many units, s, in one area. If no area
    /// is smaller, 2s - 1 units hold them: they hold an area whole, or lie in two
    /// at most, and in one of them with s or more. If `admit` finds a start before
    /// that place, it is in the same area or the one before; what is held from
    /// there on ends in the area before, or h units from this one's start on at
    /// the latest, and so is free as well.
    #[cold]
    pub(crate) fn sure_units(&self, shape: AreaShape) -> Option<u64> {
        let (mut gap, mut held) = (1 << self.align, self.count);
        let bounded = self.boundary < 63;
        if self.blocks {
            held = self.count.next_power_of_two();
            gap = held.max(gap);
            let needed = if bounded { gap } else { 1 << self.align };
            if needed.trailing_zeros() > shape.align {
                return None;
            }
        } else if bounded {
            gap = round_up(self.count, gap);
        }
        let units = held + gap - 1;
        if !self.one_area && !self.blocks {
            return Some(units);
        }
        (units <= shape.smallest).then_some(2 * units - 1)
    }
}

/// The facts about all areas that [`Place::sure_units`] needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AreaShape {
    /// Units of the smallest.
    smallest: u64,
    /// Each starts at a unit whose number is a multiple of 2^`align`.
    align: u32,
}

impl AreaShape {
    /// O(a) for a areas.
    pub(crate) fn of(space: &AreaSpace<'_>) -> Self {
        let (mut smallest, mut starts) = (u64::MAX, 0);
        for area in space.areas() {
            let (base, end) = units(space, area);
            smallest = smallest.min(end - base);
            starts |= base;
        }
        Self { smallest, align: starts.trailing_zeros() }
    }
}

/// Units that hold so many frames.
const fn whole_units(frames: u64, k: u32) -> u64 {
    (frames >> k) + (frames & ((1 << k) - 1) != 0) as u64
}

/// The lowest multiple of a power of two that is not below `number`.
const fn round_up(number: u64, power: u64) -> u64 {
    (number + power - 1) & !(power - 1)
}

/// First unit of an area and the one past its last.
pub(crate) fn units(space: &AreaSpace<'_>, area: &Area) -> (u64, u64) {
    let k = space.unit().k();
    (area.segment().start >> k, area.end() >> k)
}

/// The area that holds a unit.
fn area_at<'m>(space: &AreaSpace<'m>, unit: u64) -> Option<&'m Area> {
    let areas = space.areas();
    areas.get(areas.partition_point(|area| units(space, area).1 <= unit))
}

/// One past the units that are held for the segment from `start` to `past`
/// where frames are taken from each area's buddy system. Its piece in each area
/// is one block: a power of two, aligned to its size from the area's start on,
/// and cut off where the area ends. So only the last piece can hold more than
/// the segment does.
pub(crate) fn held_end(space: &AreaSpace<'_>, start: u64, past: u64) -> u64 {
    let Some(area) = area_at(space, past - 1) else { return past };
    let (base, end) = units(space, area);
    let piece = start.max(base);
    (piece + (past - piece).next_power_of_two()).min(end)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::cell::Cell;
    use std::vec;
    use std::vec::Vec;

    use swath_arch::{Extent, Order, Pfn};

    use super::*;
    use crate::hardening::Trusting;
    use crate::segment::runs::RunTree;

    fn with_space<T>(sizes: &[u64], test: impl FnOnce(AreaSpace<'_>) -> T) -> T {
        let mut start = 0;
        let areas = sizes.iter().map(|&count| {
            let area = Extent::new(Pfn::new(start), count);
            start += count + 1;
            area
        });
        let areas: Vec<_> = areas.collect();
        let mut storage = vec![Area::default(); areas.len()];
        test(AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap())
    }

    /// The place in one run of free units.
    fn in_run(place: &Place<'_>, start: u64, past: u64) -> Option<u64> {
        let first_free = |count, from: u64| {
            let from = from.max(start);
            (from + count <= past).then_some(from)
        };
        place.search(first_free, || None)
    }

    /// As many units as said hold a place wherever they begin, and one less do not where areas
    /// do not matter.
    #[test]
    fn sure_units_have_a_place_and_one_less_may_not() {
        let shapes: [&[u64]; 6] =
            [&[200], &[30; 6], &[16, 32, 48, 16, 64], &[25, 31, 27, 40], &[3, 70, 1, 90], &[8; 9]];
        let (mut known, mut unknown) = (0, 0);
        for (sizes, count) in shapes.iter().flat_map(|sizes| (1..=12).map(move |n| (sizes, n))) {
            for flags in 0..4 * 5 * 7 {
                let request = SegmentRequest {
                    align: Order::known((flags / 4 % 5) as u8),
                    boundary: Order::new((flags / 20) as u8).filter(|order| order.k() > 0),
                    one_area: flags & 1 == 1,
                    ..SegmentRequest::new(count)
                };
                let blocks = flags & 2 == 2;
                with_space(sizes, |space| {
                    let total = space.units();
                    let Ok(place) = Place::new(&space, &request, blocks, total) else { return };
                    let Some(units) = place.sure_units(AreaShape::of(&space)) else {
                        unknown += 1;
                        return;
                    };
                    known += 1;
                    for start in 0..(total + 1).saturating_sub(units) {
                        let found = in_run(&place, start, start + units);
                        let ends = found.map(|found| place.held_end(found));
                        assert!(
                            ends.is_some_and(|end| end <= start + units),
                            "{units} from {start}, blocks {blocks}, {sizes:?}: {request:?}"
                        );
                    }
                    if !request.one_area && !blocks && total >= 200 {
                        let mut starts = 0..total - units;
                        let none = |start| in_run(&place, start, start + units - 1).is_none();
                        assert!(starts.any(none), "{units} is too many: {request:?}");
                    }
                });
            }
        }
        assert!(known > 4000 && unknown > 100, "{known}, {unknown}");
    }

    /// Thousands of free runs are long enough, none has a place but the last: the number of
    /// searches of the tree does not depend on how many there are.
    #[test]
    fn runs_without_a_place_are_not_all_tried() {
        let new = SegmentRequest::new;
        let bounded = SegmentRequest { boundary: Order::new(6), ..new(20) };
        let tries = TRIES + 3;
        let aligned = |k, request| SegmentRequest { align: Order::known(k), ..request };
        let one_area = SegmentRequest { one_area: true, ..new(40) };
        // The request, whether in blocks, which of every 64 units are free, how many at the end,
        // and the most searches.
        for (name, request, blocks, free, generous, bound) in [
            ("no run", new(40), false, 1..40, 40, 1),
            ("aligned", aligned(4, new(20)), false, 1..35, 35, tries),
            ("bounded", bounded, false, 45..83, 39, tries),
            ("both", aligned(2, bounded), false, 45..83, 39, tries),
            ("one area", one_area, false, 34..94, 79, tries),
            ("blocks", new(20), true, 33..63, 125, 2 * tries),
        ] {
            for areas in [64, 1024, 16384] {
                let units = 64 * areas as u64;
                with_space(&vec![64; areas], |space| {
                    let mut storage = vec![0; RunTree::storage_words(units) as usize];
                    let mut runs = RunTree::new(&mut storage, units);
                    let rest = units - 256;
                    runs.take(&mut storage, 0, units);
                    for base in (0..rest).step_by(64) {
                        runs.give(&mut storage, base + free.start, free.end - free.start);
                    }
                    for at in 0..5 {
                        // Wherever the generous run begins.
                        let start = units - generous - at;
                        runs.give(&mut storage, start, generous);
                        let place = Place::new(&space, &request, blocks, runs.free()).unwrap();
                        let searches = Cell::new(0);
                        let first_free = |count, from| {
                            searches.set(searches.get() + 1);
                            runs.first_run::<Trusting>(&storage, count, from)
                        };
                        let shape = AreaShape::of(&space);
                        let found = place.search(first_free, || place.sure_units(shape));
                        let last = start..start + generous;
                        assert!(
                            found.is_some_and(|found| last.contains(&found)),
                            "{name}: {found:?}"
                        );
                        let searches = searches.get();
                        assert!(searches <= bound, "{name}, {areas} areas: {searches} searches");
                        // The limits keep the search from it: then nothing else is to be found.
                        let upper = found.map_or(0, |found| found + request.count - 1);
                        let request = SegmentRequest { upper, ..request };
                        let place = Place::new(&space, &request, blocks, runs.free()).unwrap();
                        let first_free =
                            |count, from| runs.first_run::<Trusting>(&storage, count, from);
                        let found = place.search(first_free, || place.sure_units(shape));
                        assert_eq!(found, None, "{name}");
                        runs.take(&mut storage, start, generous);
                    }
                });
            }
        }
    }
}
