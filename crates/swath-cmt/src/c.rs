//! The same calls by the C library's contract: pointers may be null, and an error is null with
//! `errno`. A library in C's calling convention is made of these (`swath-ffi`, `swath-malloc`); a
//! program in Rust has no use for them.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use swath_pool::{Freed, SLOT_BYTES_MIN};

use crate::allocate::{
    ALIGN_BYTES, allocate_aligned, allocate_or_null, allocate_zeroed, free_or_null, out_of_memory,
    put_back, resize,
};
use crate::error::{FreeError, ResizeError};
use crate::process::begin::process;
use crate::process::own::{own_front, with_thread};
use crate::process::state::begun;
use crate::report::report;

pub use crate::process::canary::Origin;

/// Sets `errno`, and returns null.
#[cold]
pub fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = errno };
    ptr::null_mut()
}

/// Allocates `size` bytes, aligned to 16; a size of 0 gets a block too. Null with ENOMEM.
#[inline(always)]
#[must_use]
pub fn malloc(size: usize) -> *mut c_void {
    allocate_or_null(size).cast()
}

/// Frees a block; null is allowed.
///
/// # Safety
/// `block` is null or a block in use of this crate; it is not used after.
#[inline(always)]
pub unsafe fn free(block: *mut c_void) {
    // SAFETY: as the caller says.
    unsafe { free_or_null(block.cast()) };
}

/// Allocates `count` times `size` bytes, all zero. Null with ENOMEM, also if the product overflows.
#[inline]
#[must_use]
pub fn calloc(count: usize, size: usize) -> *mut c_void {
    let block = count.checked_mul(size).and_then(|bytes| allocate_zeroed(bytes).ok());
    block.map_or_else(out_of_memory, NonNull::as_ptr).cast()
}

/// Makes a block at least `size` bytes long. Null is as for [`malloc`]; a size of 0 frees the block
/// and is null. Null with ENOMEM leaves the block as it was.
///
/// # Safety
/// As for [`free`], unless null is returned.
#[inline]
pub unsafe fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast::<u8>()) else { return malloc(size) };
    if size == 0 {
        // SAFETY: as the caller says.
        unsafe { free(block) };
        return ptr::null_mut();
    }
    // SAFETY: as the caller says.
    match unsafe { resize(old, size) } {
        Ok(block) => block.as_ptr().cast(),
        // It was reported, as the options want it.
        Err(ResizeError::Free(_)) => ptr::null_mut(),
        Err(ResizeError::OutOfMemory(_)) => out_of_memory().cast(),
    }
}

/// Allocates `size` bytes at a multiple of `align`, a power of two. Null with ENOMEM, or EINVAL for
/// another alignment.
#[inline]
#[must_use]
pub fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return fail(libc::EINVAL);
    }
    let layout = Layout::from_size_align(size, align).ok();
    let block = layout.and_then(|layout| allocate_aligned(layout).ok());
    block.map_or_else(out_of_memory, NonNull::as_ptr).cast()
}

/// Returns the bytes of a block that may be used; 0 for null or a pointer that is none of a block.
#[inline]
#[must_use]
pub fn usable_size(block: *const c_void) -> usize {
    NonNull::new(block.cast::<u8>().cast_mut()).map_or(0, crate::allocate::usable_size)
}

/// Returns true if the pool's blocks have canaries, which say what made them, and this may be one.
fn has_canary(block: NonNull<u8>) -> bool {
    let address = block.addr().get();
    begun().is_some_and(|process| process.canary.is_some() && process.pool.contains(address))
}

/// The bytes that are allocated for an operator. The shortest place is no array's, so that a `delete` of one byte is told
/// from that of a short text.
#[inline(always)]
fn room_for(size: usize, align: usize, origin: Origin) -> usize {
    const LEAST: usize = SLOT_BYTES_MIN + 1;
    let is_short = (1..LEAST).contains(&size) && align <= ALIGN_BYTES;
    if origin == Origin::NewArray && is_short { LEAST } else { size }
}

/// Allocates for one of C++'s operators: `size` bytes at a multiple of `align`, a power of two. Null with ENOMEM.
#[inline(always)]
#[must_use]
pub fn new(size: usize, align: usize, origin: Origin) -> *mut c_void {
    // Blocks with canaries are no front's.
    if align <= ALIGN_BYTES
        && let Some(block) = own_front().allocate(room_for(size, align, origin))
    {
        return block.as_ptr().cast();
    }
    new_slowly(size, align, origin)
}

#[inline(never)]
extern "C" fn new_slowly(size: usize, align: usize, origin: Origin) -> *mut c_void {
    let has_canaries = process().is_ok_and(|process| process.canary.is_some());
    let bytes = if has_canaries { size } else { room_for(size, align, origin) };
    let block = if align <= ALIGN_BYTES { malloc(bytes) } else { aligned_alloc(align, bytes) };
    if let Some(made) = NonNull::new(block.cast::<u8>())
        && has_canary(made)
    {
        with_thread(|thread| thread.made_by(made, origin));
    }
    block
}

/// A free by one of C++'s operators: what it is told of the block.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// The operator's counterpart.
    pub origin: Origin,
    /// Length and alignment of the block, if the operator is told them.
    pub layout: Option<(usize, usize)>,
    /// Returns true if the program has operators of its own, whose blocks may be longer than they were asked for.
    pub is_replaced: fn() -> bool,
}

/// Frees for one of C++'s operators a block that its counterpart made; null is allowed. A block of a length that no
/// request for the one that is told gets is reported as a wrong pointer is; in the hardened form also a block of
/// another operator, and of any other length.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub unsafe fn delete(block: *mut c_void, told: &Told) {
    let (front, address) = (own_front(), block.cast());
    let freed = match told.layout {
        Some((size, align)) if align <= ALIGN_BYTES => {
            // SAFETY: as the caller says.
            unsafe { front.free_sized(address, room_for(size, align, told.origin)) }
        }
        Some(_) => Freed::No,
        // SAFETY: as the caller says.
        None => unsafe { front.free(address) },
    };
    match freed {
        Freed::Done => {}
        // SAFETY: the front says so.
        Freed::Full(slot) => unsafe { put_back(slot, front) },
        // SAFETY: as the caller says, and nothing has changed.
        Freed::No => unsafe { delete_slowly(address, told) },
    }
}

/// # Safety
/// As for [`delete`].
#[inline(never)]
unsafe extern "C" fn delete_slowly(block: *mut u8, told: &Told) {
    let Some(made) = NonNull::new(block) else { return };
    let Told { origin, layout, is_replaced } = *told;
    if has_canary(made) {
        let size = layout.map(|(size, _)| size);
        let checked = with_thread(|thread| thread.check_origin(made, origin, size));
        if let Some(Err(error)) = checked {
            return report(error);
        }
    } else if let (Some((size, align)), Some(process)) = (layout, begun())
        && [size, room_for(size, align, origin)]
            .iter()
            .all(|&size| !process.pool.may_be_of(made, size, align))
        && !is_replaced()
    {
        return report(FreeError::Mismatched { address: made.addr().get() });
    }
    // SAFETY: as the caller says.
    unsafe { free_or_null(block) };
}
