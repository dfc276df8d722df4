//! The map of the frames that there are.

use core::ffi::c_void;
use core::slice;

use swath_arch::{Extent, Pfn, PhysAddr};
use swath_frame::{ByteRange, MemoryMap, MemoryMapError};

use crate::object::{Opaque, array, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, swath_result};

/// Usable physical memory as the firmware reports it: any address, any length.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_range {
    /// The address of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub len_bytes: u64,
}

/// Frames that follow one another, each of 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct swath_extent {
    /// The number of the first frame: its address divided by 4096.
    pub start: u64,
    /// Number of frames.
    pub count: u64,
}

impl From<Extent> for swath_extent {
    fn from(extent: Extent) -> Self {
        Self { start: extent.start.raw(), count: extent.count }
    }
}

impl From<swath_extent> for Extent {
    fn from(extent: swath_extent) -> Self {
        Self::new(Pfn::new(extent.start), extent.count)
    }
}

/// The frames that exist, as areas with vacuums between them.
pub struct swath_map {
    _private: [u8; 0],
}

impl Opaque for swath_map {
    type Inner = MemoryMap<'static>;
    const TAG: u64 = u64::from_le_bytes(*b"swathmap");
}

impl From<MemoryMapError> for swath_result {
    fn from(error: MemoryMapError) -> Self {
        match error {
            MemoryMapError::Overlap { range, .. } => Self::new(SWATH_OVERLAP, range.start.raw()),
            MemoryMapError::Overflow { range } => Self::new(SWATH_OVERFLOW, range.start.raw()),
            // There is room for an area of every range.
            MemoryMapError::TooManyAreas { range, .. } => {
                Self::new(SWATH_STORAGE, range.start.raw())
            }
            MemoryMapError::NoFrame => Self::new(SWATH_NO_FRAME, 0),
            MemoryMapError::Narrow { area, .. } => Self::new(SWATH_ARGUMENT, area.start.raw()),
        }
    }
}

/// Words for the areas and, while the map is made, for the ranges: two each.
fn words(count: usize) -> usize {
    count.saturating_mul(4)
}

/// Bytes of storage for a map of `count` ranges.
#[unsafe(no_mangle)]
pub extern "C" fn swath_map_storage_bytes(count: usize) -> usize {
    swath_map::storage_bytes(words(count))
}

/// Makes the map of `count` ranges, which may come in any order and need not begin or
/// end at a frame's border. O(r·a) for r ranges and a areas, O(r) if they ascend.
///
/// Errors: `SWATH_OVERLAP`, `SWATH_OVERFLOW` with the range's start,
/// `SWATH_NO_FRAME`, `SWATH_STORAGE`, `SWATH_NULL`.
///
/// # Safety
/// `ranges` points to `count` ranges, `storage` to `len_bytes` of memory that the map
/// has for itself from now on; `map` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_map_create(
    ranges: *const swath_range,
    count: usize,
    storage: *mut c_void,
    len_bytes: usize,
    map: *mut *mut swath_map,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let ranges = unsafe { array(ranges, count) }?;
        // SAFETY: as the caller says.
        unsafe {
            swath_map::create(storage, len_bytes, words(count), map, |words| {
                let (areas, copies) = words.split_at_mut(2 * count);
                // SAFETY: 2·count words each, of types that have two words and any value.
                let (areas, copies) = (
                    slice::from_raw_parts_mut(areas.as_mut_ptr().cast::<Extent>(), count),
                    slice::from_raw_parts_mut(copies.as_mut_ptr().cast::<ByteRange>(), count),
                );
                for (copy, range) in copies.iter_mut().zip(ranges) {
                    *copy = ByteRange::new(PhysAddr::new(range.start), range.len_bytes);
                }
                Ok(MemoryMap::new(copies, areas)?)
            })
        }
    };
    swath_result::of(create())
}

const _: () = assert!(size_of::<Extent>() == 16 && size_of::<ByteRange>() == 16);

/// Makes the map longer than its areas: what is made for it has room for memory that comes late, anywhere in
/// `span` (`swath_frames_add`).
///
/// Errors: `SWATH_ARGUMENT` with the first frame of an area that does not lie in `span`, or if that has no end;
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `map` is null or an object of this library, which no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_map_reach(map: *mut swath_map, span: swath_extent) -> swath_result {
    let reach = || {
        // SAFETY: as the caller says.
        let map = unsafe { swath_map::get(map) }?;
        *map = map.reaching(span.into())?;
        Ok(())
    };
    swath_result::of(reach())
}

/// Counts the frames of the map; 0 for an object that is no map.
///
/// # Safety
/// `map` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_map_frames(map: *const swath_map) -> u64 {
    // SAFETY: as the caller says.
    unsafe { swath_map::look(map) }.map_or(0, MemoryMap::total_frames)
}

/// Writes area `index`, ascending from 0.
///
/// Errors: `SWATH_ARGUMENT` with the number of areas, if there are no more;
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `map` is null or an object of this library; `area` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_map_area(
    map: *const swath_map,
    index: usize,
    area: *mut swath_extent,
) -> swath_result {
    let look = || {
        // SAFETY: as the caller says.
        let areas = unsafe { swath_map::look(map) }?.areas();
        let none = swath_result::new(SWATH_ARGUMENT, areas.len() as u64);
        let found = areas.get(index).ok_or(none)?;
        // SAFETY: as the caller says.
        unsafe { put(area, (*found).into()) }
    };
    swath_result::of(look())
}
