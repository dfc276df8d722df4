//! The same calls by the C library's contract: pointers may be null, and an error is null with
//! `errno`. A library in C's calling convention is made of these (`swath-ffi`, `swath-malloc`); a
//! program in Rust has no use for them.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use crate::allocate::{
    allocate_aligned, allocate_or_null, allocate_zeroed, free_or_null, out_of_memory, resize,
};
use crate::error::ResizeError;
use crate::process::own::with_thread;
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

/// Allocates for one of C++'s operators: `size` bytes at a multiple of `align`, a power of two. Null with ENOMEM.
#[inline(never)]
#[must_use]
pub fn new(size: usize, align: usize, origin: Origin) -> *mut c_void {
    let block = if align <= 16 { malloc(size) } else { aligned_alloc(align, size) };
    if let Some(made) = NonNull::new(block.cast::<u8>())
        && has_canary(made)
    {
        with_thread(|thread| thread.made_by(made, origin));
    }
    block
}

/// Frees for one of C++'s operators a block that its counterpart made, of `size` bytes if the caller knows; null
/// is allowed. In the hardened form a block of another operator, or of another size, is reported as a wrong
/// pointer is.
///
/// # Safety
/// As for [`free`].
#[inline(never)]
pub unsafe fn delete(block: *mut c_void, origin: Origin, size: Option<usize>) {
    if let Some(made) = NonNull::new(block.cast::<u8>())
        && has_canary(made)
        && let Some(Err(error)) = with_thread(|thread| thread.check_origin(made, origin, size))
    {
        return report(error);
    }
    // SAFETY: as the caller says.
    unsafe { free(block) };
}
