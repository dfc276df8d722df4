//! The accelerator's address space: areas of memory laid end to end.
//!
//! A machine whose devices occupy low addresses has its memory in **areas**
//! with vacuums between them. An accelerator with a segment map does not see
//! the vacuums: to it the first frame of an area follows the last frame of the
//! area before (section 3 of the CLMalloc paper). So what is contiguous to the
//! accelerator, a [`Segment`], is a short list of physical extents.
//!
//! ```text
//!  physical      |==== 0 ====|        |== 1 ==|  |===== 2 =====|
//!  accelerator   |==== 0 ====|== 1 ==|===== 2 =====|
//!  segment                 |###########|            extents: end of 0, all of 1, head of 2
//! ```
//!
//! Frames of the accelerator's space are numbered from 0 on. They are handed
//! out in **units** of 2^g frames: an area gives the units that lie wholly
//! inside it and are aligned in physical memory, so that a unit never crosses
//! the border of an area; the rest at its ends is left out.

use core::fmt;

use swath_arch::{Extent, Order, Pfn};

use crate::map::{ByteRange, MemoryMapError};

/// Frames that follow one another in the accelerator's address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Segment {
    /// The first frame's number in the accelerator's space.
    pub start: u64,
    /// Number of frames.
    pub count: u64,
}

impl Segment {
    /// The segment of `count` frames from `start` on.
    #[inline]
    pub const fn new(start: u64, count: u64) -> Self {
        Self { start, count }
    }

    /// One past the last frame, or `None` on overflow.
    #[inline]
    pub const fn checked_end(self) -> Option<u64> {
        self.start.checked_add(self.count)
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{}", self.start, self.count)
    }
}

/// One area of an [`AreaSpace`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Area {
    frames: Extent,
    base: u64,
}

impl Area {
    /// Its frames in physical memory: whole, aligned units.
    #[inline]
    pub const fn frames(&self) -> Extent {
        self.frames
    }

    /// Its frames in the accelerator's space.
    #[inline]
    pub const fn segment(&self) -> Segment {
        Segment::new(self.base, self.frames.count)
    }

    #[inline]
    pub(crate) const fn end(&self) -> u64 {
        self.base + self.frames.count
    }
}

/// The areas of a machine as one space without vacuums.
///
/// Invariants: there is at least one area; none is empty; they ascend in
/// physical memory and do not overlap, though they may touch; each has whole
/// units, aligned; each `base` is the sum of the counts before it.
#[derive(Clone, Copy, Debug)]
pub struct AreaSpace<'m> {
    areas: &'m [Area],
    unit: Order,
    total: u64,
}

impl<'m> AreaSpace<'m> {
    /// Lays the areas end to end, by ascending physical address, in units of
    /// `unit`; `areas` may come in any order. `storage` needs an entry for each
    /// area that has a unit. Areas that touch stay apart, as two banks of
    /// memory do. O(a²) for a areas, O(a) if they ascend.
    ///
    /// # Errors
    /// A [`MemoryMapError`] that names the area at fault.
    ///
    /// # Examples
    /// ```
    /// use swath_arch::{Extent, Order, Pfn};
    /// use swath_frame::segment::{Area, AreaSpace, Segment};
    ///
    /// let areas = [Extent::new(Pfn::new(0x100), 4), Extent::new(Pfn::new(0x800), 8)];
    /// let mut storage = [Area::default(); 2];
    /// let space = AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap();
    /// assert_eq!(space.total_frames(), 12);
    /// let extents: Vec<_> = space.extents(Segment::new(2, 4)).collect();
    /// assert_eq!(extents, [Extent::new(Pfn::new(0x102), 2), Extent::new(Pfn::new(0x800), 2)]);
    /// ```
    pub fn new(
        areas: &[Extent],
        unit: Order,
        storage: &'m mut [Area],
    ) -> Result<Self, MemoryMapError> {
        let capacity = storage.len();
        let range = |frames| ByteRange::of_frames(frames);
        let mut used = 0;
        let mut highest_end = Pfn::new(0);
        for (index, &area) in areas.iter().enumerate() {
            // Beyond frame 2^52 there are no addresses.
            let end = area.checked_end().filter(|end| end.raw() <= 1 << 52);
            let end = end.ok_or(MemoryMapError::Overflow { range: range(area) })?;
            if area.start < highest_end
                && let Some(&other) = areas[..index].iter().find(|other| area.overlaps(**other))
            {
                return Err(MemoryMapError::Overlap { range: range(area), other: range(other) });
            }
            highest_end = highest_end.max(end);
            let frames = area.align_inward(unit.k());
            if frames.is_empty() {
                continue;
            }
            if used == capacity {
                return Err(MemoryMapError::TooManyAreas { range: range(area), capacity });
            }
            let at = storage[..used].partition_point(|other| other.frames.start < frames.start);
            storage.copy_within(at..used, at + 1);
            storage[at].frames = frames;
            used += 1;
        }
        let mut total = 0;
        for area in &mut storage[..used] {
            area.base = total;
            total += area.frames.count;
        }
        if used == 0 {
            Err(MemoryMapError::NoFrame)
        } else {
            Ok(Self { areas: &storage[..used], unit, total })
        }
    }

    /// The areas, ascending in both spaces.
    #[inline]
    pub const fn areas(&self) -> &'m [Area] {
        self.areas
    }

    /// The order of a unit, the g of 2^g frames per bit.
    #[inline]
    pub const fn unit(&self) -> Order {
        self.unit
    }

    /// Returns the number of frames, all in whole units.
    #[inline]
    pub const fn total_frames(&self) -> u64 {
        self.total
    }

    /// Returns the number of units.
    #[inline]
    pub const fn units(&self) -> u64 {
        self.total >> self.unit.k()
    }

    /// The number of the area that holds this frame of the accelerator's
    /// space and the frame's place in physical memory: *start_zone* and *pfn*
    /// of Table 1. `None` beyond the space. O(log a) for a areas.
    pub fn locate(&self, frame: u64) -> Option<(usize, Pfn)> {
        if frame >= self.total {
            return None;
        }
        let index = self.areas.partition_point(|area| area.end() <= frame);
        let area = self.areas.get(index)?;
        Some((index, area.frames.start + (frame - area.base)))
    }

    /// The number that a frame of physical memory has in the accelerator's
    /// space; `None` in a vacuum. O(log a) for a areas.
    pub fn number_of(&self, frame: Pfn) -> Option<u64> {
        let after = self.areas.partition_point(|area| area.frames.start <= frame);
        let area = &self.areas[after.checked_sub(1)?];
        area.frames.position(frame).map(|at| area.base + at)
    }

    /// The physical extents behind `segment`, in its order, those that touch
    /// joined: what an accelerator's segment map is loaded with. What lies
    /// beyond the space is left out. O(log a) to begin, then O(1) for each area.
    pub fn extents(&self, segment: Segment) -> SegmentExtents<'m> {
        self.behind(segment)
    }

    /// The physical extents behind `segment`, one for each area, even where areas touch. Costs as
    /// [`extents`](Self::extents).
    #[inline]
    pub fn pieces(&self, segment: Segment) -> impl Iterator<Item = Extent> + use<'m> {
        let mut extents = self.behind(segment);
        core::iter::from_fn(move || extents.piece())
    }

    #[inline]
    fn behind(&self, segment: Segment) -> SegmentExtents<'m> {
        let end = segment.start.saturating_add(segment.count).min(self.total);
        let first = self.areas.partition_point(|area| area.end() <= segment.start);
        SegmentExtents { areas: &self.areas[first..], at: segment.start, end }
    }
}

/// The physical extents behind a segment; see [`AreaSpace::extents`].
#[derive(Clone, Debug)]
pub struct SegmentExtents<'m> {
    areas: &'m [Area],
    at: u64,
    end: u64,
}

impl SegmentExtents<'_> {
    #[inline]
    fn piece(&mut self) -> Option<Extent> {
        let (area, rest) = self.areas.split_first()?;
        if self.at >= self.end {
            return None;
        }
        let count = area.end().min(self.end) - self.at;
        let start = area.frames.start + (self.at - area.base);
        self.at += count;
        self.areas = rest;
        Some(Extent::new(start, count))
    }
}

impl Iterator for SegmentExtents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut extent = self.piece()?;
        while self.areas.first().is_some_and(|area| area.frames.start == extent.end())
            && let Some(more) = self.piece()
        {
            extent.count += more.count;
        }
        Some(extent)
    }
}
