//! The page buddy system and the binary buddy system.

use core::cell::{RefCell, RefMut};
use core::ffi::c_void;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::{
    BestFit, BuddyConfig, BuildError, ContiguousAllocator, ContiguousRequest, FrameAllocateError,
    FrameAllocator, FrameFreeError, FrameHotplug, HeadOfList, PageBuddy,
};

use crate::map::{swath_extent, swath_map};
use crate::object::{Opaque, Words, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// An allocator of frames: BBS or PBS.
pub struct swath_frames {
    _private: [u8; 0],
}

/// Policy of an allocator: the orders that have a free list, and the choice of the block for a request.
///
/// The binary buddy system (BBS) of Linux is granularity 1 and top 10. The page buddy system
/// (PBS) is granularity 4 and top 8 on ARMv7, 9 and 18 on ARMv8 and x86-64.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_frames_config {
    /// Lists are at the orders 0, granularity, 2·granularity and so on.
    pub granularity: u32,
    /// The largest order that may have one.
    pub top_order: u32,
    /// 0: the head of a list serves, as in the paper. 1: the shortest run that is long enough.
    pub best_fit: u32,
}

/// One of the two rules; both have the same storage beneath.
#[allow(clippy::large_enum_variant, reason = "it stays where it is made, in the caller's storage")]
pub(crate) enum Frames {
    HeadOfList(PageBuddy<Words, HeadOfList>),
    BestFit(PageBuddy<Words, BestFit>),
}

/// Does the same to either.
macro_rules! either {
    ($frames:expr, $buddy:ident => $does:expr) => {
        match $frames {
            Frames::HeadOfList($buddy) => $does,
            Frames::BestFit($buddy) => $does,
        }
    };
}

impl FrameAllocator for Frames {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        either!(self, buddy => buddy.allocate_block(frames_max))
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        either!(self, buddy => buddy.allocate_aligned(order))
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        either!(self, buddy => buddy.free(extent))
    }

    fn free_frames(&self) -> u64 {
        either!(self, buddy => buddy.free_frames())
    }

    fn total_frames(&self) -> u64 {
        either!(self, buddy => buddy.total_frames())
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        either!(self, buddy => buddy.for_each_free(visit));
    }
}

impl Opaque for swath_frames {
    // Reservations share it with C: no call forms a `&mut` to the cell.
    type Inner = RefCell<Frames>;
    const TAG: u64 = u64::from_le_bytes(*b"swframes");
}

/// The allocator behind a pointer of C, to be changed; `SWATH_BUSY` within a visitor of it.
///
/// # Safety
/// `frames` is null or an object of this library, which no other thread uses.
unsafe fn change<'a>(frames: *mut swath_frames) -> Outcome<RefMut<'a, Frames>> {
    // SAFETY: as the caller says; all references to the cell are shared ones.
    let frames = unsafe { swath_frames::look(frames) }?;
    frames.try_borrow_mut().map_err(|_| swath_result::new(SWATH_BUSY, 0))
}

impl From<BuildError> for swath_result {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Storage { needed_words, .. } => {
                Self::new(SWATH_STORAGE, (needed_words as u64).saturating_mul(8))
            }
            BuildError::Span { frames } => Self::new(SWATH_ARGUMENT, frames),
            BuildError::OtherMap => Self::new(SWATH_FOREIGN, 0),
        }
    }
}

pub(crate) fn order(k: u32) -> Outcome<Order> {
    let order = u8::try_from(k).ok().and_then(Order::new);
    order.ok_or(swath_result::new(SWATH_ARGUMENT, k.into()))
}

fn checked(config: swath_frames_config) -> Outcome<(BuddyConfig, bool)> {
    let wrong = swath_result::new(SWATH_ARGUMENT, config.granularity.into());
    let best_fit = match config.best_fit {
        0 => false,
        1 => true,
        other => return fail(SWATH_ARGUMENT, other.into()),
    };
    let config =
        BuddyConfig::new(config.granularity, order(config.top_order)?).map_err(|_| wrong)?;
    Ok((config, best_fit))
}

/// Bytes of storage for the frames of `map`; 0 if the map or the configuration is wrong.
///
/// # Safety
/// `map` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_storage_bytes(
    map: *const swath_map,
    config: swath_frames_config,
) -> usize {
    // SAFETY: as the caller says.
    let words = unsafe { words(map, config) };
    words.map_or(0, swath_frames::storage_bytes)
}

/// # Safety
/// `map` is null or an object of this library.
unsafe fn words(map: *const swath_map, config: swath_frames_config) -> Outcome<usize> {
    // SAFETY: as the caller says.
    let map = unsafe { swath_map::look(map) }?;
    let (config, best_fit) = checked(config)?;
    Ok(if best_fit {
        PageBuddy::<Words, BestFit>::storage_words(map, config)
    } else {
        PageBuddy::<Words, HeadOfList>::storage_words(map, config)
    })
}

/// Makes an allocator for the frames of `map`, all of them free if `all_free` is not 0,
/// else all of them in use: free those that are not. The map is not needed after. O(words).
///
/// Errors: `SWATH_ARGUMENT` with the value, `SWATH_STORAGE`, `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `map` is null or an object of this library; `storage` is `len_bytes` of memory that the
/// allocator has for itself from now on; `frames` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_create(
    map: *const swath_map,
    config: swath_frames_config,
    all_free: u32,
    storage: *mut c_void,
    len_bytes: usize,
    frames: *mut *mut swath_frames,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let words = unsafe { words(map, config) }?;
        // SAFETY: as the caller says.
        let map = unsafe { swath_map::look(map) }?;
        let (config, best_fit) = checked(config)?;
        let finish = |made: &mut RefCell<Frames>| -> Outcome<()> {
            let made = made.get_mut();
            either!(made, buddy => buddy.lay_out(map, config)?);
            if all_free != 0 {
                for &area in map.areas() {
                    made.free(area)?;
                }
            }
            Ok(())
        };
        // Apart, so that neither passes through a place on the stack that is as large as both.
        let best = |words| RefCell::new(Frames::BestFit(PageBuddy::vacant(words)));
        let head = |words| RefCell::new(Frames::HeadOfList(PageBuddy::vacant(words)));
        // SAFETY: as the caller says.
        unsafe {
            if best_fit {
                swath_frames::create_in_place(storage, len_bytes, words, frames, best, finish)
            } else {
                swath_frames::create_in_place(storage, len_bytes, words, frames, head, finish)
            }
        }
    };
    swath_result::of(create())
}

/// Takes `count` frames in blocks of any length, as few and as long as the allocator
/// finds, and writes them to `blocks`, which has room for `room`; `taken` is how many
/// blocks they are.
///
/// Errors: `SWATH_EMPTY`; `SWATH_OUT_OF_FRAMES` with the number of free frames;
/// `SWATH_TOO_MANY_BLOCKS` with the number of frames that there was room for
/// (`blocks` may hold anything then); `SWATH_NULL`, `SWATH_WRONG_OBJECT`. No frame is taken.
///
/// # Safety
/// `frames` is null or an object of this library; `blocks` has room for `room` extents,
/// `taken` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_allocate(
    frames: *mut swath_frames,
    count: u64,
    blocks: *mut swath_extent,
    room: usize,
    taken: *mut usize,
) -> swath_result {
    let allocate = || {
        // SAFETY: as the caller says.
        let frames = &mut *unsafe { change(frames) }?;
        if blocks.is_null() || taken.is_null() {
            return fail(SWATH_NULL, 0);
        }
        let free = frames.free_frames();
        if count == 0 {
            return fail(SWATH_EMPTY, 0);
        }
        if count > free {
            return fail(SWATH_OUT_OF_FRAMES, free);
        }
        let (mut found, mut rest) = (0, count);
        while rest > 0 {
            let next = if found < room { frames.allocate_block(rest) } else { None };
            let Some(block) = next else {
                for index in 0..found {
                    // SAFETY: written below.
                    frames.free(unsafe { blocks.add(index).read() }.into())?;
                }
                return fail(SWATH_TOO_MANY_BLOCKS, count - rest);
            };
            // SAFETY: `found` is less than `room`.
            unsafe { blocks.add(found).write(block.into()) };
            found += 1;
            rest -= block.count;
        }
        // SAFETY: as the caller says.
        unsafe { put(taken, found) }
    };
    swath_result::of(allocate())
}

/// Takes one block of 1 to `frames_max` frames, as the allocator chooses: what
/// `swath_frames_allocate` does again and again.
///
/// Errors: `SWATH_EMPTY`; `SWATH_OUT_OF_FRAMES` if none is free; `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` is null or an object of this library; `block` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_allocate_block(
    frames: *mut swath_frames,
    frames_max: u64,
    block: *mut swath_extent,
) -> swath_result {
    let take = || {
        if block.is_null() {
            return fail(SWATH_NULL, 0);
        }
        if frames_max == 0 {
            return fail(SWATH_EMPTY, 0);
        }
        // SAFETY: as the caller says.
        let taken = unsafe { change(frames) }?.allocate_block(frames_max);
        let none = swath_result::new(SWATH_OUT_OF_FRAMES, 0);
        // SAFETY: as the caller says.
        unsafe { put(block, taken.ok_or(none)?.into()) }
    };
    swath_result::of(take())
}

/// Takes 2^`order` frames whose first is a multiple of 2^`order`.
///
/// Errors: `SWATH_ARGUMENT` with the order; `SWATH_OUT_OF_FRAMES` with the number of free
/// frames; `SWATH_NO_BLOCK` with the order; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` is null or an object of this library; `block` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_allocate_aligned(
    frames: *mut swath_frames,
    k: u32,
    block: *mut swath_extent,
) -> swath_result {
    let allocate = || {
        if block.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let taken = unsafe { change(frames) }?.allocate_aligned(order(k)?)?;
        // SAFETY: as the caller says.
        unsafe { put(block, taken.into()) }
    };
    swath_result::of(allocate())
}

/// A request for frames in one run. Begin with `swath_contiguous_request_of`, so that it stays right when members
/// are added.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_contiguous_request {
    /// Number of frames.
    pub count: u64,
    /// No frame below this one.
    pub lower: u64,
    /// No frame from this one on: 2^20 for a device with addresses of 32 bits.
    pub upper: u64,
    /// The first frame is a multiple of this, a power of two.
    pub align: u64,
    /// No two frames lie on two sides of a multiple of this, a power of two; 0 is no such limit.
    pub boundary: u64,
}

impl TryFrom<swath_contiguous_request> for ContiguousRequest {
    type Error = swath_result;

    fn try_from(request: swath_contiguous_request) -> Outcome<Self> {
        let boundary = match request.boundary {
            0 => None,
            frames => Some(power(frames)?),
        };
        Ok(Self {
            count: request.count,
            align: power(request.align)?,
            lower: Pfn::new(request.lower),
            upper: Pfn::new(request.upper),
            boundary,
        })
    }
}

/// The order of a power of two of frames.
pub(crate) fn power(frames: u64) -> Outcome<Order> {
    let order = frames.is_power_of_two().then(|| Order::new(frames.trailing_zeros() as u8));
    order.flatten().ok_or(swath_result::new(SWATH_ARGUMENT, frames))
}

/// Returns a request for `count` frames in a row, wherever they are.
#[unsafe(no_mangle)]
pub extern "C" fn swath_contiguous_request_of(count: u64) -> swath_contiguous_request {
    swath_contiguous_request { count, lower: 0, upper: u64::MAX, align: 1, boundary: 0 }
}

/// Takes the lowest free run that meets a request, whichever blocks it lies in.
///
/// Errors: `SWATH_EMPTY`; `SWATH_ARGUMENT` with the alignment or boundary that is no power of two, or with the
/// count where no place could meet the request; `SWATH_OUT_OF_FRAMES` with the number of free frames;
/// `SWATH_NO_BLOCK` with the count; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` is null or an object of this library; `request` is null or one; `run` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_allocate_contiguous(
    frames: *mut swath_frames,
    request: *const swath_contiguous_request,
    run: *mut swath_extent,
) -> swath_result {
    let allocate = || {
        if run.is_null() || request.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let request = unsafe { request.read() }.try_into()?;
        // SAFETY: as the caller says.
        let frames = &mut *unsafe { change(frames) }?;
        let taken = either!(frames, buddy => buddy.allocate_contiguous(&request)?);
        // SAFETY: as the caller says.
        unsafe { put(run, taken.into()) }
    };
    swath_result::of(allocate())
}

/// Adds frames that are not the allocator's yet, within the span of its map (`swath_map_reach`). They are free.
///
/// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`; `SWATH_ARGUMENT` with the first frame outside the span;
/// `SWATH_OVERLAP` with a frame that is the allocator's; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_add(
    frames: *mut swath_frames,
    extent: swath_extent,
) -> swath_result {
    let add = || {
        // SAFETY: as the caller says.
        let frames = &mut *unsafe { change(frames) }?;
        either!(frames, buddy => Ok(buddy.add_frames(extent.into())?))
    };
    swath_result::of(add())
}

/// Removes frames, all of which are free: they are the allocator's no more.
///
/// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`; `SWATH_ARGUMENT` with the first frame outside the span; `SWATH_STATE`
/// with the first frame that is in use, `SWATH_FOREIGN` with the first that is not the allocator's; `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_remove(
    frames: *mut swath_frames,
    extent: swath_extent,
) -> swath_result {
    let remove = || {
        // SAFETY: as the caller says.
        let frames = &mut *unsafe { change(frames) }?;
        either!(frames, buddy => Ok(buddy.remove_frames(extent.into())?))
    };
    swath_result::of(remove())
}

/// Takes back frames, which may be any part of what was allocated; they coalesce with
/// what is free around them.
///
/// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`; `SWATH_FOREIGN` and `SWATH_NOT_ALLOCATED` with
/// the first such frame; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_free(
    frames: *mut swath_frames,
    extent: swath_extent,
) -> swath_result {
    // SAFETY: as the caller says.
    let frames = unsafe { change(frames) };
    swath_result::of(frames.and_then(|mut frames| Ok(frames.free(extent.into())?)))
}

/// Counts the free frames; 0 for an object that is no such allocator. O(1).
///
/// # Safety
/// `frames` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_free_count(frames: *const swath_frames) -> u64 {
    // SAFETY: as the caller says.
    unsafe { swath_frames::look(frames) }.map_or(0, |frames| frames.borrow().free_frames())
}

/// Counts the frames; 0 for an object that is no such allocator. O(1).
///
/// # Safety
/// `frames` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_total_count(frames: *const swath_frames) -> u64 {
    // SAFETY: as the caller says.
    unsafe { swath_frames::look(frames) }.map_or(0, |frames| frames.borrow().total_frames())
}

/// Calls `visit` with each free block, list by list, and with `context`. `visit` may read the
/// allocator; calls that would change it return `SWATH_BUSY` and change nothing.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` is null or an object of this library, whose frames `visit` does not change
/// through reservations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frames_each_free(
    frames: *const swath_frames,
    visit: Option<unsafe extern "C" fn(block: swath_extent, context: *mut c_void)>,
    context: *mut c_void,
) -> swath_result {
    let walk = || {
        // SAFETY: as the caller says.
        let frames = unsafe { swath_frames::look(frames) }?.borrow();
        let visit = visit.ok_or(swath_result::new(SWATH_NULL, 0))?;
        // SAFETY: the caller gave the function and its context.
        frames.for_each_free(&mut |block| unsafe { visit(block.into(), context) });
        Ok(())
    };
    swath_result::of(walk())
}
