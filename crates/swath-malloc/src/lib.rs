//! The overriding library: `LD_PRELOAD=libswath_malloc.so PROGRAM` runs a program
//! that knows nothing of Swath on `cmt_malloc`.
//!
//! It exports the functions of `swath_cmt::c` by the C library's names, and adds those that tell of the
//! heap. Blocks of the C library's own heap, such as were there before, go back to it.
//!
//! ```sh
//! cargo build --profile freestanding -p swath-malloc
//! LD_PRELOAD=$PWD/target/freestanding/libswath_malloc.so python3 -c 'print(sum(range(9999)))'
//! ```
//!
//! In that profile, whose panics end the process, the library is without `std`: what unwinds and tells of a
//! panic there is larger than all of `cmt_malloc`, and would be in every program's memory.
#![cfg_attr(all(panic = "abort", target_arch = "x86_64", target_os = "linux"), no_std)]

mod foreign;
mod info;
mod operators;
#[cfg(all(panic = "abort", target_arch = "x86_64", target_os = "linux"))]
mod panicking;

use core::ffi::{c_int, c_void};

use swath_cmt::{Purge, c};

pub use info::{Mallinfo, Mallinfo2, mallinfo, mallinfo2, malloc_info, malloc_stats, mallopt};

/// Bytes of a page, for the functions that align to it.
const PAGE_BYTES: usize = 4096;

/// A program's memory is not touched before the program does, and the hugetlb pools are others'.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        swath_cmt::override_malloc(&foreign::C_LIBRARY);
    }
    begin
};

// The two that are called most begin at a cache line each. Else an unrelated change of the code moves them, and a program
// that does little but call them has taken up to a third more time for it.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
core::arch::global_asm!(
    ".pushsection .text.malloc,\"ax\",@progbits",
    ".p2align 6",
    ".popsection",
    ".pushsection .text.free,\"ax\",@progbits",
    ".p2align 6",
    ".popsection",
);

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    c::malloc(size)
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: as the caller says.
    unsafe { c::free(block) };
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    c::calloc(count, size)
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { c::realloc(block, size) }
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
        Some(bytes) => unsafe { c::realloc(block, bytes) },
        None => c::fail(libc::ENOMEM),
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    c::aligned_alloc(align, size)
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // It takes any alignment, and rounds it up.
    match align.checked_next_power_of_two() {
        Some(align) => c::aligned_alloc(align, size),
        None => c::fail(libc::ENOMEM),
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
    let new = c::aligned_alloc(align, size);
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
    c::aligned_alloc(PAGE_BYTES, size)
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE_BYTES) {
        Some(size) => c::aligned_alloc(PAGE_BYTES, size),
        None => c::fail(libc::ENOMEM),
    }
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    c::usable_size(block)
}

/// Returns all free memory to the system, as the C library's does, and 1.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_: usize) -> c_int {
    swath_cmt::purge(Purge::All);
    1
}
