//! The memory map: usable ranges of physical memory and the holes between them.
//!
//! Firmware reports memory as ranges of bytes. What an allocator may hand out
//! are the frames that lie wholly inside one range; these form **areas**, and
//! the holes between areas are **vacuums**. The map keeps the areas sorted and
//! joined, in storage of the caller.
//!
//! ```text
//!  ranges   |=======|   |===============|=========|         |====|
//!  frames  . | . | . | . | . | . | . | . | . | . | . | . | . | . |
//!  areas     [area  )       [area                )           [   )
//!                    vacuum                        vacuum
//! ```

use core::fmt;

use swath_arch::{BASE_PAGE_BYTES, BASE_PAGE_SHIFT, Extent, Pfn, PhysAddr};

/// Usable physical memory as the firmware reports it: any address, any length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ByteRange {
    /// The address of the first byte.
    pub start: PhysAddr,
    /// Number of bytes.
    pub len_bytes: u64,
}

impl ByteRange {
    /// The range of `len_bytes` bytes from `start` on.
    #[inline]
    pub const fn new(start: PhysAddr, len_bytes: u64) -> Self {
        Self { start, len_bytes }
    }

    /// The bytes of the frames of `extent`, whose end must lie below frame
    /// 2^52; higher bits are lost.
    #[inline]
    pub fn of_frames(extent: Extent) -> Self {
        Self { start: extent.start.address(), len_bytes: extent.count << BASE_PAGE_SHIFT }
    }

    fn checked_end(self) -> Option<u64> {
        self.start.raw().checked_add(self.len_bytes)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.start, self.len_bytes)
    }
}

/// Reasons why ranges do not make a memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryMapError {
    /// Two ranges share a byte.
    #[error("range {range} overlaps range {other}")]
    Overlap {
        /// The range that stands later in the input.
        range: ByteRange,
        /// The earlier range that it overlaps.
        other: ByteRange,
    },
    /// The range's end is not an address below 2^64.
    #[error("range {range} ends beyond the last address")]
    Overflow {
        /// The range.
        range: ByteRange,
    },
    /// The range would need one more area than there is storage for.
    #[error("range {range} needs an area more than the {capacity} there is room for")]
    TooManyAreas {
        /// The range.
        range: ByteRange,
        /// Number of areas that the storage holds.
        capacity: usize,
    },
    /// No range holds a whole frame.
    #[error("no range holds a whole frame")]
    NoFrame,
    /// The span that a map was to reach over does not hold an area, or has no end.
    #[error("area {area} does not lie in the span {span}")]
    Narrow {
        /// The first such area.
        area: Extent,
        /// The span.
        span: Extent,
    },
}

/// The frames that exist, as areas with vacuums between them.
///
/// Invariants: at least one area; no area is empty; areas ascend, and between
/// two neighbours there is at least one frame that is not usable; all lie in `span`.
#[derive(Clone, Copy, Debug)]
pub struct MemoryMap<'m> {
    areas: &'m [Extent],
    span: Extent,
    total_frames: u64,
}

impl<'m> MemoryMap<'m> {
    /// Builds the map of `ranges`, which may come in any order, in `storage`,
    /// which needs one entry per area at every moment of the build (so one
    /// per range is always enough). A range without a whole frame adds
    /// nothing; areas that touch are joined.
    ///
    /// Costs O(r·a) for r ranges and a areas, O(r) if the ranges ascend; an
    /// unsorted input adds O(r²) for the check of overlaps.
    ///
    /// # Errors
    /// A [`MemoryMapError`] that names the range at fault.
    ///
    /// # Examples
    /// ```
    /// use swath_arch::{Extent, Pfn, PhysAddr};
    /// use swath_frame::{ByteRange, MemoryMap};
    ///
    /// let mut areas = [Extent::default(); 4];
    /// let ranges = [
    ///     ByteRange::new(PhysAddr::new(0x8000_0000), 0x10_0000),
    ///     ByteRange::new(PhysAddr::new(0x1800), 0x3000), // frames 2 and 3 lie wholly inside
    /// ];
    /// let map = MemoryMap::new(&ranges, &mut areas).unwrap();
    /// assert_eq!(map.areas()[0], Extent::new(Pfn::new(2), 2));
    /// assert_eq!(map.total_frames(), 2 + 256);
    /// assert!(!map.contains(Pfn::new(4)));
    /// ```
    pub fn new(ranges: &[ByteRange], storage: &'m mut [Extent]) -> Result<Self, MemoryMapError> {
        let capacity = storage.len();
        let mut used = 0;
        let mut highest_end = 0;
        for (index, &range) in ranges.iter().enumerate() {
            let end = range.checked_end().ok_or(MemoryMapError::Overflow { range })?;
            if range.len_bytes == 0 {
                continue;
            }
            if range.start.raw() < highest_end {
                let meets = |other: &&ByteRange| {
                    other.len_bytes > 0
                        && range.start.raw() < other.start.raw() + other.len_bytes
                        && other.start.raw() < end
                };
                if let Some(&other) = ranges[..index].iter().find(meets) {
                    return Err(MemoryMapError::Overlap { range, other });
                }
            }
            highest_end = highest_end.max(end);

            let first = range.start.raw().div_ceil(BASE_PAGE_BYTES);
            let area = Extent::between(Pfn::new(first), PhysAddr::new(end).frame());
            if !area.is_empty() {
                used = join(storage, used, area)
                    .ok_or(MemoryMapError::TooManyAreas { range, capacity })?;
            }
        }
        let areas = &storage[..used];
        let ([first, ..], [.., last]) = (areas, areas) else {
            return Err(MemoryMapError::NoFrame);
        };
        let span = Extent::between(first.start, last.end());
        Ok(Self { areas, span, total_frames: areas.iter().map(|area| area.count).sum() })
    }

    /// The same frames in a longer span: what is laid out for this map has room for memory that comes
    /// late, anywhere in `span` ([`FrameHotplug`](crate::FrameHotplug)).
    ///
    /// # Errors
    /// [`MemoryMapError::Narrow`] with the first area that is not in `span`.
    pub fn reaching(self, span: Extent) -> Result<Self, MemoryMapError> {
        let endless = span.checked_end().is_none();
        let outside = |area: &&Extent| endless || area.intersect(span) != **area;
        match self.areas.iter().find(outside) {
            Some(&area) => Err(MemoryMapError::Narrow { area, span }),
            None => Ok(Self { span, ..self }),
        }
    }

    /// The areas, ascending.
    #[inline]
    pub fn areas(&self) -> &'m [Extent] {
        self.areas
    }

    /// From the first frame of the first area to the last of the last area,
    /// vacuums included, or as far as the map was told to [reach](Self::reaching).
    #[inline]
    pub fn span(&self) -> Extent {
        self.span
    }

    /// Returns the number of frames in all areas.
    #[inline]
    pub fn total_frames(&self) -> u64 {
        self.total_frames
    }

    /// Returns true if the frame lies in an area, in O(log a) for a areas.
    pub fn contains(&self, frame: Pfn) -> bool {
        let after = self.areas.partition_point(|area| area.start <= frame);
        after > 0 && self.areas[after - 1].contains(frame)
    }
}

/// Adds `area`, which overlaps none of `storage[..used]`, and returns the new
/// number of areas; `None` if there is no room.
fn join(storage: &mut [Extent], used: usize, area: Extent) -> Option<usize> {
    let at = storage[..used].partition_point(|other| other.start < area.start);
    let joins_left = at > 0 && storage[at - 1].end() == area.start;
    let joins_right = at < used && area.end() == storage[at].start;
    match (joins_left, joins_right) {
        (true, true) => {
            storage[at - 1].count += area.count + storage[at].count;
            storage.copy_within(at + 1..used, at);
            Some(used - 1)
        }
        (true, false) => {
            storage[at - 1].count += area.count;
            Some(used)
        }
        (false, true) => {
            storage[at].start = area.start;
            storage[at].count += area.count;
            Some(used)
        }
        (false, false) => {
            if used == storage.len() {
                return None;
            }
            storage.copy_within(at..used, at + 1);
            storage[at] = area;
            Some(used + 1)
        }
    }
}
