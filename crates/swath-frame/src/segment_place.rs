//! Where a request's segment may begin, apart from what is free.
//!
//! Alignment, limits, boundaries and areas all come down to one question: the
//! lowest admissible start from a given one on. With it, any structure that
//! finds the first free run from a given unit on serves all constraints: the
//! two take turns until both agree, and so find the lowest start of all.

use crate::area_space::{Area, AreaSpace};
use crate::segment::{SegmentError, SegmentRequest};

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
    /// Whether frames come in aligned powers of two: see [`held_end`].
    blocks: bool,
    /// Whether any start between the limits will do.
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

    /// The lowest start at which all constraints are met and all units to be
    /// held are free. `first_free(count, from)` is the lowest start, from
    /// `from` on, of so many free units. It is called at most twice for each
    /// run of free units that is long enough but has no place, and twice more;
    /// with blocks, also for each start in a run whose block is not free.
    #[inline]
    pub(crate) fn search(&self, first_free: impl Fn(u64, u64) -> Option<u64>) -> Option<u64> {
        let mut from = self.admit(self.lower)?;
        loop {
            let start = first_free(self.count, from)?;
            let admitted = self.admit(start)?;
            if admitted != start {
                from = admitted;
                continue;
            }
            let held = self.held_end(start) - start;
            if held == self.count || first_free(held, start) == Some(start) {
                return Some(start);
            }
            from = self.admit(start + 1)?;
        }
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
