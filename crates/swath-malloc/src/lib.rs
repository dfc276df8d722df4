//! The overriding library: `LD_PRELOAD=libswath_malloc.so PROGRAM` runs a program
//! that knows nothing of Swath on `cmt_malloc`.
//!
//! It gives the C library's names to the functions of `swath-ffi`, and adds nothing.

use core::ffi::{c_int, c_void};
use core::ptr;

use swath::{cmt_aligned_alloc, cmt_calloc, cmt_free, cmt_malloc, cmt_realloc, cmt_usable_size};

/// Bytes of a page, for the functions that align to it.
const PAGE_BYTES: usize = 4096;

/// A program's memory is not touched before the program does.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        swath::overrides_malloc();
    }
    begin
};

fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = errno };
    ptr::null_mut()
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    cmt_malloc(size)
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: as the caller says.
    unsafe { cmt_free(block) };
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    cmt_calloc(count, size)
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { cmt_realloc(block, size) }
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as the caller says.
        Some(bytes) => unsafe { cmt_realloc(block, bytes) },
        None => fail(libc::ENOMEM),
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    cmt_aligned_alloc(align, size)
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // It takes any alignment, and rounds it up.
    match align.checked_next_power_of_two() {
        Some(align) => cmt_aligned_alloc(align, size),
        None => fail(libc::ENOMEM),
    }
}

/// As the C library's.
///
/// # Safety
/// As for the C library's: `block` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    block: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    if !align.is_power_of_two() || align < size_of::<usize>() {
        return libc::EINVAL;
    }
    // SAFETY: the thread's own. This function does not change it.
    let errno = unsafe { *libc::__errno_location() };
    let new = cmt_aligned_alloc(align, size);
    if new.is_null() {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        return libc::ENOMEM;
    }
    // SAFETY: as the caller says.
    unsafe { block.write(new) };
    0
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    cmt_aligned_alloc(PAGE_BYTES, size)
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE_BYTES) {
        Some(size) => cmt_aligned_alloc(PAGE_BYTES, size),
        None => fail(libc::ENOMEM),
    }
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: as the caller says.
    unsafe { cmt_usable_size(block) }
}

/// Gives all free memory back to the system, as the C library's does; 1.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_: usize) -> c_int {
    swath::cmt_purge(1);
    1
}
