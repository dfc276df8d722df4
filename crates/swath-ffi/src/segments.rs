//! Segments: frames that are contiguous to an accelerator, over areas of memory laid end to end.

use core::cell::{RefCell, RefMut};
use core::ffi::c_void;
use core::slice;

use swath_arch::{Extent, Pfn};
use swath_frame::segment::{
    Area, AreaFrames, AreaSpace, Baseline, FrameSupply, GlobalBitmap, HugePages, Segment,
    SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest,
};

use crate::frames::{order, power};
use crate::map::swath_extent;
use crate::object::{Opaque, Words, array, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// An allocator of segments.
pub struct swath_segments {
    _private: [u8; 0],
}

/// The allocators of segments, after *Zhang, Lu and Zhang* (CLMalloc).
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_segments_kind {
    /// A bitmap for each area, as Linux's contiguous memory; a request longer than an area gets whole
    /// free areas (section 3.2).
    SWATH_SEGMENTS_BASELINE = 0,
    /// One bitmap over all areas, whose frames are acquired with each segment, in blocks of a power of two
    /// (section 4.1).
    SWATH_SEGMENTS_GLOBAL_BITMAP = 1,
    /// One bitmap over all areas, whose frames were all acquired at start (pre-allocation, section 4.2).
    SWATH_SEGMENTS_PRE_ALLOCATED = 2,
    /// One unit at a time: pages of a huge-page pool.
    SWATH_SEGMENTS_HUGE_PAGES = 3,
}

/// The kind of an allocator of segments and its granularity.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_segments_config {
    /// A `swath_segments_kind`.
    pub kind: u32,
    /// log2 of the frames of a unit: segments are whole units, and of each area only whole, aligned
    /// units are used.
    pub unit_order: u32,
}

/// Frames that follow one another in the accelerator's address space, in which the areas are laid end to
/// end from 0 on.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct swath_segment {
    /// The number of the first frame in that space.
    pub start: u64,
    /// Number of frames.
    pub count: u64,
}

/// A request for a segment. Begin with `swath_segment_request_of`, so that it stays right when members
/// are added.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_segment_request {
    /// Number of frames; rounded up to whole units.
    pub count: u64,
    /// No frame below this one of the accelerator's space.
    pub lower: u64,
    /// No frame from this one on.
    pub upper: u64,
    /// The first frame is a multiple of this, a power of two.
    pub align: u64,
    /// No two frames lie on two sides of a multiple of this, a power of two; 0 is no such limit.
    pub boundary: u64,
    /// 1: all frames lie in one area, for a device without a segment map. Else 0.
    pub one_area: u32,
}

/// Functions to call for the frames behind the areas: a kernel's allocator of frames. Calls of the functions
/// of this library that would change the segments return `SWATH_BUSY` within.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct swath_area_frames {
    /// Acquires the frames of a run in one area.
    pub acquire: Option<unsafe extern "C" fn(run: swath_extent, context: *mut c_void)>,
    /// Releases the frames of a run in one area, which were acquired.
    pub release: Option<unsafe extern "C" fn(run: swath_extent, context: *mut c_void)>,
    /// Handed to both.
    pub context: *mut c_void,
}

/// One of the allocators.
#[allow(clippy::large_enum_variant, reason = "it stays where it is made, in the caller's storage")]
pub(crate) enum Segments {
    Baseline(Baseline<'static, Words>),
    GlobalBitmap(GlobalBitmap<'static, Words>),
    HugePages(HugePages<'static, Words>),
}

impl Segments {
    fn get(&self) -> &dyn SegmentAllocator {
        match self {
            Self::Baseline(allocator) => allocator,
            Self::GlobalBitmap(allocator) => allocator,
            Self::HugePages(allocator) => allocator,
        }
    }

    fn get_mut(&mut self) -> &mut dyn SegmentAllocator {
        match self {
            Self::Baseline(allocator) => allocator,
            Self::GlobalBitmap(allocator) => allocator,
            Self::HugePages(allocator) => allocator,
        }
    }
}

impl Opaque for swath_segments {
    type Inner = RefCell<Segments>;
    const TAG: u64 = u64::from_le_bytes(*b"swathseg");
}

impl From<Segment> for swath_segment {
    fn from(segment: Segment) -> Self {
        Self { start: segment.start, count: segment.count }
    }
}

impl From<swath_segment> for Segment {
    fn from(segment: swath_segment) -> Self {
        Self::new(segment.start, segment.count)
    }
}

impl From<SegmentError> for swath_result {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Empty => Self::new(SWATH_EMPTY, 0),
            SegmentError::OutOfFrames { free, .. } => Self::new(SWATH_OUT_OF_FRAMES, free),
            SegmentError::Unsatisfiable { request } => Self::new(SWATH_TOO_LARGE, request.count),
            SegmentError::NoSegment { wanted } => Self::new(SWATH_NO_BLOCK, wanted),
            // No mapping is made here.
            SegmentError::NotMapped { segment } => Self::new(SWATH_STATE, segment.start),
            SegmentError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

impl From<SegmentFreeError> for swath_result {
    fn from(error: SegmentFreeError) -> Self {
        match error {
            SegmentFreeError::Empty => Self::new(SWATH_EMPTY, 0),
            SegmentFreeError::Overflow { segment } => Self::new(SWATH_OVERFLOW, segment.start),
            SegmentFreeError::Foreign { frame } => Self::new(SWATH_FOREIGN, frame),
            SegmentFreeError::Misaligned { segment } => Self::new(SWATH_MISALIGNED, segment.start),
            SegmentFreeError::NotAllocated { frame } => Self::new(SWATH_NOT_ALLOCATED, frame),
            SegmentFreeError::NotSegment { segment } => Self::new(SWATH_STATE, segment.start),
            SegmentFreeError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

impl TryFrom<swath_segment_request> for SegmentRequest {
    type Error = swath_result;

    fn try_from(request: swath_segment_request) -> Outcome<Self> {
        Ok(Self {
            count: request.count,
            align: power(request.align)?,
            lower: request.lower,
            upper: request.upper,
            boundary: match request.boundary {
                0 => None,
                frames => Some(power(frames)?),
            },
            one_area: match request.one_area {
                0 => false,
                1 => true,
                other => return fail(SWATH_ARGUMENT, other.into()),
            },
        })
    }
}

/// A request of the caller's.
///
/// # Safety
/// `request` is null or can be read.
unsafe fn read(request: *const swath_segment_request) -> Outcome<SegmentRequest> {
    if request.is_null() {
        return fail(SWATH_NULL, 0);
    }
    // SAFETY: as the caller says.
    unsafe { request.read() }.try_into()
}

impl AreaFrames for swath_area_frames {
    fn acquire(&mut self, run: Extent) {
        if let Some(acquire) = self.acquire {
            // SAFETY: the caller gave the function and its context.
            unsafe { acquire(run.into(), self.context) };
        }
    }

    fn release(&mut self, run: Extent) {
        if let Some(release) = self.release {
            // SAFETY: the caller gave the function and its context.
            unsafe { release(run.into(), self.context) };
        }
    }
}

/// The allocator behind a pointer of C, to be changed; `SWATH_BUSY` within a visitor of it.
///
/// # Safety
/// `segments` is null or an object of this library, which no other thread uses.
unsafe fn change<'a>(segments: *mut swath_segments) -> Outcome<RefMut<'a, Segments>> {
    // SAFETY: as the caller says; all references to the cell are shared ones.
    let segments = unsafe { swath_segments::look(segments) }?;
    segments.try_borrow_mut().map_err(|_| swath_result::new(SWATH_BUSY, 0))
}

/// Calls `act` with the allocator; `SWATH_BUSY` within a call that changes it.
///
/// # Safety
/// As for [`change`].
unsafe fn look<T>(
    segments: *const swath_segments,
    act: impl FnOnce(&dyn SegmentAllocator) -> Outcome<T>,
) -> Outcome<T> {
    // SAFETY: as the caller says.
    let segments = unsafe { swath_segments::look(segments) }?;
    let segments = segments.try_borrow().map_err(|_| swath_result::new(SWATH_BUSY, 0))?;
    act(segments.get())
}

/// Words of an area's record, and of its extent while the space is made.
const AREA_WORDS: usize = 3;
const EXTENT_WORDS: usize = 2;
const _: () = assert!(
    size_of::<Area>() == 8 * AREA_WORDS
        && align_of::<Area>() == 8
        && size_of::<Extent>() == 8 * EXTENT_WORDS
        && align_of::<Extent>() == 8
);

/// Words for the records of so many areas.
fn area_words(count: usize) -> usize {
    count.saturating_mul(AREA_WORDS + EXTENT_WORDS)
}

/// Words for the areas and the allocator's own.
fn words(areas: &[swath_extent], config: swath_segments_config) -> Outcome<usize> {
    let unit = order(config.unit_order)?;
    let whole = areas.iter().map(|&area| Extent::from(area).align_inward(unit.k()).count);
    let frames = whole.fold(0, u64::saturating_add);
    // The number of units is all that counts.
    let mut one = [Area::default()];
    let all = Extent::new(Pfn::new(0), frames);
    let space = AreaSpace::new(slice::from_ref(&all), unit, &mut one)?;
    let own = match config.kind {
        0 => Baseline::<Words>::storage_words(&space),
        1 | 2 => GlobalBitmap::<Words>::storage_words(&space),
        3 => HugePages::<Words>::storage_words(&space),
        other => return fail(SWATH_ARGUMENT, other.into()),
    };
    Ok(own.saturating_add(area_words(areas.len())))
}

/// Bytes of storage for segments over `count` areas; 0 if areas or configuration are wrong.
///
/// # Safety
/// `areas` points to `count` areas.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_storage_bytes(
    areas: *const swath_extent,
    count: usize,
    config: swath_segments_config,
) -> usize {
    // SAFETY: as the caller says.
    let areas = unsafe { array(areas, count) };
    let words = areas.and_then(|areas| words(areas, config));
    words.map_or(0, swath_segments::storage_bytes)
}

/// Makes an allocator over `count` areas, which may come in any order and may touch, all of it free. The
/// areas are not needed after. O(a²) for a areas, O(a) if they ascend, and O(words).
///
/// Errors: `SWATH_ARGUMENT` with the value; `SWATH_OVERLAP`, `SWATH_OVERFLOW` with the area's address;
/// `SWATH_NO_FRAME` if no area has a whole unit; `SWATH_STORAGE`, `SWATH_NULL`.
///
/// # Safety
/// `areas` points to `count` areas, `storage` to `len_bytes` of memory that the allocator has for itself
/// from now on; `segments` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_create(
    areas: *const swath_extent,
    count: usize,
    config: swath_segments_config,
    storage: *mut c_void,
    len_bytes: usize,
    segments: *mut *mut swath_segments,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let areas = unsafe { array(areas, count) }?;
        let unit = order(config.unit_order)?;
        let make = |all: Words| {
            let (records, own) = all.split_at_mut(area_words(count));
            let (records, copies) = records.split_at_mut(AREA_WORDS * count);
            // SAFETY: as many words as the assertions above say, aligned, of types that have any value.
            let (records, copies) = unsafe {
                (
                    slice::from_raw_parts_mut(records.as_mut_ptr().cast::<Area>(), count),
                    slice::from_raw_parts_mut(copies.as_mut_ptr().cast::<Extent>(), count),
                )
            };
            for (copy, &area) in copies.iter_mut().zip(areas) {
                *copy = area.into();
            }
            let space = AreaSpace::new(copies, unit, records)?;
            Ok(RefCell::new(match config.kind {
                0 => Segments::Baseline(Baseline::new(space, own)?),
                1 => Segments::GlobalBitmap(GlobalBitmap::new(space, FrameSupply::OnDemand, own)?),
                2 => {
                    let frames = FrameSupply::PreAllocated;
                    Segments::GlobalBitmap(GlobalBitmap::new(space, frames, own)?)
                }
                _ => Segments::HugePages(HugePages::new(space, own)?),
            }))
        };
        // SAFETY: as the caller says.
        unsafe { swath_segments::create(storage, len_bytes, words(areas, config)?, segments, make) }
    };
    swath_result::of(create())
}

/// Makes a request for `count` frames, wherever they are.
#[unsafe(no_mangle)]
pub extern "C" fn swath_segment_request_of(count: u64) -> swath_segment_request {
    swath_segment_request { count, lower: 0, upper: u64::MAX, align: 1, boundary: 0, one_area: 0 }
}

/// Allocates a segment that meets the request.
///
/// Errors: `SWATH_EMPTY`; `SWATH_OUT_OF_FRAMES` with the number of free frames; `SWATH_TOO_LARGE` with the
/// frames wanted, if there is no room for so many between the limits, free or not; `SWATH_NO_BLOCK` with
/// the frames wanted, if no free place is as long; `SWATH_ARGUMENT` with the value; `SWATH_BUSY`,
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `segments` is null or an object of this library; `request` can be read, `segment` written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_allocate(
    segments: *mut swath_segments,
    request: *const swath_segment_request,
    segment: *mut swath_segment,
) -> swath_result {
    let none = swath_area_frames { acquire: None, release: None, context: core::ptr::null_mut() };
    // SAFETY: as the caller says.
    unsafe { swath_segments_allocate_from(segments, request, none, segment) }
}

/// Allocates a segment as `swath_segments_allocate` does, and calls for the frames behind it: what an
/// allocator acquires on its way and does not keep it releases again. A null function is not called.
///
/// Errors: as for `swath_segments_allocate`; all that was acquired is released then.
///
/// # Safety
/// As for `swath_segments_allocate`; the functions of `frames` can be called with its context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_allocate_from(
    segments: *mut swath_segments,
    request: *const swath_segment_request,
    frames: swath_area_frames,
    segment: *mut swath_segment,
) -> swath_result {
    let allocate = || {
        if segment.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let (mut all, request) = unsafe { (change(segments)?, read(request)?) };
        let mut frames = frames;
        let found = all.get_mut().allocate_from(&request, &mut frames)?;
        // SAFETY: as the caller says.
        unsafe { put(segment, found.into()) }
    };
    swath_result::of(allocate())
}

/// Writes the segment that `swath_segments_allocate` would allocate now.
///
/// Errors: as for `swath_segments_allocate`.
///
/// # Safety
/// As for `swath_segments_allocate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_find(
    segments: *const swath_segments,
    request: *const swath_segment_request,
    segment: *mut swath_segment,
) -> swath_result {
    let find = || {
        // SAFETY: as the caller says.
        let request = unsafe { read(request) }?;
        // SAFETY: as the caller says.
        let found = unsafe { look(segments, |all| Ok(all.find(&request)?)) }?;
        // SAFETY: as the caller says.
        unsafe { put(segment, found.into()) }
    };
    swath_result::of(find())
}

/// Frees a segment as it was allocated, whole.
///
/// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`, `SWATH_MISALIGNED` with the segment's start; `SWATH_FOREIGN`,
/// `SWATH_NOT_ALLOCATED` with the first such frame; `SWATH_STATE` with the start of what is in use, but not
/// as this segment; `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `segments` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_free(
    segments: *mut swath_segments,
    segment: swath_segment,
) -> swath_result {
    let none = swath_area_frames { acquire: None, release: None, context: core::ptr::null_mut() };
    // SAFETY: as the caller says.
    unsafe { swath_segments_free_to(segments, segment, none) }
}

/// Frees a segment as `swath_segments_free` does, and releases the frames that were acquired for it. A null
/// function is not called.
///
/// Errors: as for `swath_segments_free`.
///
/// # Safety
/// As for `swath_segments_free`; the functions of `frames` can be called with its context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_free_to(
    segments: *mut swath_segments,
    segment: swath_segment,
    frames: swath_area_frames,
) -> swath_result {
    let free = || {
        let mut frames = frames;
        // SAFETY: as the caller says.
        Ok(unsafe { change(segments) }?.get_mut().free_to(segment.into(), &mut frames)?)
    };
    swath_result::of(free())
}

/// Writes the frames that are acquired for a segment in use: itself, what blocks of a power of two hold
/// beyond it, or none where all were acquired at start.
///
/// Errors: `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `segments` is null or an object of this library; `acquired` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_acquired(
    segments: *const swath_segments,
    segment: swath_segment,
    acquired: *mut swath_segment,
) -> swath_result {
    // SAFETY: as the caller says.
    let found = unsafe { look(segments, |all| Ok(all.acquired(segment.into()))) };
    // SAFETY: as the caller says.
    swath_result::of(found.and_then(|found| unsafe { put(acquired, found.into()) }))
}

/// Writes the physical extents behind a segment to `extents`, which has room for `room`, in its order,
/// those that touch joined: what an accelerator's segment map is loaded with. `count` is how many they
/// are. Null `extents` with no room counts them.
///
/// Errors: `SWATH_FOREIGN` with the first frame beyond the areas; `SWATH_OVERFLOW`, `SWATH_EMPTY`;
/// `SWATH_TOO_MANY_BLOCKS` with the number of extents (the first `room` are written then); `SWATH_BUSY`,
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `segments` is null or an object of this library; `extents` has room for `room` extents, `count` can be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_extents(
    segments: *const swath_segments,
    segment: swath_segment,
    extents: *mut swath_extent,
    room: usize,
    count: *mut usize,
) -> swath_result {
    let write = |all: &dyn SegmentAllocator| {
        if count.is_null() || extents.is_null() && room > 0 {
            return fail(SWATH_NULL, 0);
        }
        let (space, segment) = (all.space(), Segment::from(segment));
        let end = segment.checked_end().ok_or(swath_result::new(SWATH_OVERFLOW, segment.start))?;
        if segment.count == 0 {
            return fail(SWATH_EMPTY, 0);
        }
        if end > space.total_frames() {
            return fail(SWATH_FOREIGN, segment.start.max(space.total_frames()));
        }
        let mut found = 0;
        for extent in space.extents(segment) {
            if found < room {
                // SAFETY: there is room for it.
                unsafe { extents.add(found).write(extent.into()) };
            }
            found += 1;
        }
        // SAFETY: as the caller says.
        unsafe { put(count, found) }?;
        if room > 0 && found > room { fail(SWATH_TOO_MANY_BLOCKS, found as u64) } else { Ok(()) }
    };
    // SAFETY: as the caller says.
    swath_result::of(unsafe { look(segments, write) })
}

/// Writes the number of the area that holds a frame of the accelerator's space, and the frame's number in
/// physical memory: *start_zone* and *pfn* of the paper's Table 1. O(log a) for a areas.
///
/// Errors: `SWATH_FOREIGN` with a frame beyond the areas; `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `segments` is null or an object of this library; `area` and `physical` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_locate(
    segments: *const swath_segments,
    frame: u64,
    area: *mut usize,
    physical: *mut u64,
) -> swath_result {
    // SAFETY: as the caller says.
    let found = unsafe { look(segments, |all| Ok(all.space().locate(frame))) };
    let found = found.and_then(|at| at.ok_or(swath_result::new(SWATH_FOREIGN, frame)));
    // SAFETY: as the caller says.
    swath_result::of(found.and_then(|(index, pfn)| unsafe {
        put(area, index).and_then(|()| put(physical, pfn.raw()))
    }))
}

/// Counts the free frames; 0 for an object that is no such allocator. O(1).
///
/// # Safety
/// `segments` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_free_count(segments: *const swath_segments) -> u64 {
    // SAFETY: as the caller says.
    unsafe { look(segments, |all| Ok(all.free_frames())) }.unwrap_or(0)
}

/// Counts the frames in whole units; 0 for an object that is no such allocator. O(1).
///
/// # Safety
/// `segments` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_total_count(segments: *const swath_segments) -> u64 {
    // SAFETY: as the caller says.
    unsafe { look(segments, |all| Ok(all.space().total_frames())) }.unwrap_or(0)
}

/// Counts the most frames that one request without constraints could get now; 0 for an object that is no
/// such allocator.
///
/// # Safety
/// `segments` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_largest_count(segments: *const swath_segments) -> u64 {
    // SAFETY: as the caller says.
    unsafe { look(segments, |all| Ok(all.largest_frames())) }.unwrap_or(0)
}

/// Calls `visit` with each run of free frames, ascending, and with `context`. `visit` may read the
/// allocator; calls that would change it return `SWATH_BUSY` and change nothing.
///
/// Errors: `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `segments` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_segments_each_free(
    segments: *const swath_segments,
    visit: Option<unsafe extern "C" fn(run: swath_segment, context: *mut c_void)>,
    context: *mut c_void,
) -> swath_result {
    let walk = |all: &dyn SegmentAllocator| {
        let visit = visit.ok_or(swath_result::new(SWATH_NULL, 0))?;
        // SAFETY: the caller gave the function and its context.
        all.for_each_free(&mut |run| unsafe { visit(run.into(), context) });
        Ok(())
    };
    // SAFETY: as the caller says.
    swath_result::of(unsafe { look(segments, walk) })
}
