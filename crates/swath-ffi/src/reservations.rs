//! Superpages by reservation, over the frames of a `swath_frames`.

use core::ffi::c_void;

use core::cell::RefCell;

use swath_arch::Pfn;
use swath_frame::reserve::{FrameSource, ReservationsError};
use swath_frame::{FrameAllocator, PopulateError, ReservationLevels, Reservations};

use crate::frames::{Frames, order, swath_frames};
use crate::map::{swath_extent, swath_map};
use crate::object::{Opaque, Words, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// Reservations of superpages.
pub struct swath_reservations {
    _private: [u8; 0],
}

type Pool = Reservations<&'static RefCell<Frames>, Words>;

impl Opaque for swath_reservations {
    type Inner = Pool;
    const TAG: u64 = u64::from_le_bytes(*b"swathrsv");
}

/// Policy of reservations: the superpages that are reserved.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_levels {
    /// Sections of 1 MiB, and large pages of 64 KiB within.
    SWATH_LEVELS_ARMV7 = 0,
    /// Supersections of 16 MiB too.
    SWATH_LEVELS_ARMV7_SUPERSECTIONS = 1,
    /// Blocks of 2 MiB, and contiguous runs of 64 KiB within.
    SWATH_LEVELS_ARMV8 = 2,
    /// Blocks of 1 GiB too.
    SWATH_LEVELS_ARMV8_GIGABYTES = 3,
    /// 2 MiB.
    SWATH_LEVELS_X86_64 = 4,
    /// 1 GiB too.
    SWATH_LEVELS_X86_64_GIGABYTES = 5,
}

/// The frame that a page was given.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_populated {
    /// The frame.
    pub frame: u64,
    /// The largest order whose aligned range around the page is populated in full since
    /// this call, and can be promoted now; 0 if there is none.
    pub full_order: u32,
    /// The order of the reservation that the frame lies in; 0 if it is a frame by itself.
    pub reserved_order: u32,
}

impl From<PopulateError> for swath_result {
    fn from(error: PopulateError) -> Self {
        match error {
            PopulateError::OutOfBounds { index, .. } => Self::new(SWATH_ARGUMENT, index),
            PopulateError::AlreadyPopulated { frame, .. } => Self::new(SWATH_MAPPED, frame.raw()),
            PopulateError::OutOfFrames => Self::new(SWATH_OUT_OF_FRAMES, 0),
            PopulateError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

impl From<ReservationsError> for swath_result {
    fn from(error: ReservationsError) -> Self {
        match error {
            ReservationsError::Storage { needed_words, .. } => {
                Self::new(SWATH_STORAGE, (needed_words as u64).saturating_mul(8))
            }
            ReservationsError::Span { frames } => Self::new(SWATH_ARGUMENT, frames),
            ReservationsError::OtherFrames { allocator_frames, .. } => {
                Self::new(SWATH_FOREIGN, allocator_frames)
            }
            ReservationsError::Foreign { block } => Self::new(SWATH_FOREIGN, block.start.raw()),
        }
    }
}

fn checked(levels: u32) -> Outcome<ReservationLevels> {
    const KNOWN: [ReservationLevels; 6] = [
        ReservationLevels::ARMV7,
        ReservationLevels::ARMV7_SUPERSECTIONS,
        ReservationLevels::ARMV8,
        ReservationLevels::ARMV8_GIGABYTES,
        ReservationLevels::X86_64,
        ReservationLevels::X86_64_GIGABYTES,
    ];
    let known = KNOWN.get(levels as usize).copied();
    known.ok_or(swath_result::new(SWATH_ARGUMENT, levels.into()))
}

/// Bytes of storage for the reservations of the frames of `map` at a `swath_levels`; 0 if
/// either is wrong.
///
/// # Safety
/// `map` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_reservations_storage_bytes(
    map: *const swath_map,
    levels: u32,
) -> usize {
    // SAFETY: as the caller says.
    let (Ok(map), Ok(levels)) = (unsafe { swath_map::look(map) }, checked(levels)) else {
        return 0;
    };
    swath_reservations::storage_bytes(Pool::storage_words(map, levels))
}

/// Makes reservations over `frames`, whose frames are those of `map`. From now on frames are
/// taken and freed through the reservations; those in use now may be freed here too.
///
/// Errors: `SWATH_ARGUMENT`; `SWATH_FOREIGN` if the frames are not the map's;
/// `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `map` and `frames` are null or objects of this library; `frames` stays as long as the
/// reservations are used. `storage` is `len_bytes` of memory that the reservations have for
/// themselves from now on; `reservations` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_reservations_create(
    map: *const swath_map,
    levels: u32,
    frames: *mut swath_frames,
    storage: *mut c_void,
    len_bytes: usize,
    reservations: *mut *mut swath_reservations,
) -> swath_result {
    let create = || -> Outcome<()> {
        let levels = checked(levels)?;
        // SAFETY: as the caller says.
        let (map, frames) = unsafe { (swath_map::look(map)?, swath_frames::look(frames)?) };
        let words = Pool::storage_words(map, levels);
        let make = |words| Ok(Reservations::new(map, levels, frames, words)?);
        // SAFETY: as the caller says.
        unsafe { swath_reservations::create(storage, len_bytes, words, reservations, make) }
    };
    swath_result::of(create())
}

/// Gives page `index` of `object` (numbers of the caller's) a frame, at a time `now` that
/// never falls. A reservation is made around the first page if it fits into the object's
/// pages from `first` to before `end`.
///
/// Errors: `SWATH_ARGUMENT` with the page, if it is not within; `SWATH_MAPPED` with the
/// frame that the page has; `SWATH_OUT_OF_FRAMES`; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `reservations` is null or an object of this library; `populated` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_reservations_populate(
    reservations: *mut swath_reservations,
    object: u64,
    index: u64,
    first: u64,
    end: u64,
    now: u64,
    populated: *mut swath_populated,
) -> swath_result {
    let populate = || {
        if populated.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let pool = unsafe { swath_reservations::get(reservations) }?;
        let page = pool.populate(object, index, first..end, now)?;
        let value = swath_populated {
            frame: page.frame.raw(),
            full_order: page.full.map_or(0, |order| order.k()),
            reserved_order: match page.source {
                FrameSource::Reserved(order) | FrameSource::InReservation(order) => order.k(),
                FrameSource::Single => 0,
            },
        };
        // SAFETY: as the caller says.
        unsafe { put(populated, value) }
    };
    swath_result::of(populate())
}

/// Returns 1 if the aligned 2^`k` frames around `frame` are populated in full, in one
/// reservation, else 0.
///
/// # Safety
/// `reservations` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_reservations_is_full(
    reservations: *const swath_reservations,
    frame: u64,
    k: u32,
) -> u32 {
    // SAFETY: as the caller says.
    let pool = unsafe { swath_reservations::look(reservations) };
    match (pool, order(k)) {
        (Ok(pool), Ok(order)) => pool.is_full(Pfn::new(frame), order).into(),
        _ => 0,
    }
}

/// Takes back frames that pages had. A reservation without a populated frame goes back
/// whole.
///
/// Errors: as for `swath_frames_free`.
///
/// # Safety
/// `reservations` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_reservations_free(
    reservations: *mut swath_reservations,
    extent: swath_extent,
) -> swath_result {
    // SAFETY: as the caller says.
    let pool = unsafe { swath_reservations::get(reservations) };
    swath_result::of(pool.and_then(|pool| Ok(pool.free(extent.into())?)))
}

/// Breaks up the reservations of `object` for pages from `first` to before `end`: what is not
/// populated is free for others, what is stays with its pages.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `reservations` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_reservations_release(
    reservations: *mut swath_reservations,
    object: u64,
    first: u64,
    end: u64,
) -> swath_result {
    // SAFETY: as the caller says.
    let pool = unsafe { swath_reservations::get(reservations) };
    swath_result::of(pool.map(|pool| pool.release(object, first..end)))
}

/// Frames that are free or could be made so by breaking reservations up; 0 for an object
/// that is none such.
///
/// # Safety
/// `reservations` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_reservations_free_count(
    reservations: *const swath_reservations,
) -> u64 {
    // SAFETY: as the caller says.
    unsafe { swath_reservations::look(reservations) }.map_or(0, FrameAllocator::free_frames)
}
