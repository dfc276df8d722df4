//! The calls of `malloc` and its kin.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{
    NonNull, {self},
};

use swath_pool::{FreeError, ResizeError};

use crate::pool::{
    Local, with_thread, {self},
};

#[cold]
fn out_of_memory() -> *mut c_void {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

fn pointer(block: Option<NonNull<u8>>) -> *mut c_void {
    block.map_or_else(out_of_memory, |block| block.as_ptr().cast())
}

/// `size` bytes, aligned to 16, which hold anything; a size of 0 gets a block too. Null, and
/// `errno` is ENOMEM, if there is no memory.
pub extern "C" fn cmt_malloc(size: usize) -> *mut c_void {
    match pool::own_heap().and_then(|mut heap| heap.allocate_at_hand(size)) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_near(size),
    }
}

/// As all that has C's calling convention it does not unwind, so that the short way can end with it.
#[inline(never)]
extern "C" fn malloc_near(size: usize) -> *mut c_void {
    match pool::own_heap().and_then(|mut heap| heap.allocate_near(size)) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_long(size),
    }
}

#[cold]
#[inline(never)]
extern "C" fn malloc_long(size: usize) -> *mut c_void {
    pointer(pool::allocate(size, 16))
}

/// Gives a block back; null is allowed. What a wrong pointer comes to is
/// `cmt_options.on_error`; nothing changes.
///
/// # Safety
/// `block` is null or came from this library; it is not used after.
pub unsafe extern "C" fn cmt_free(block: *mut c_void) {
    // SAFETY: as the caller says.
    let freed = |mut heap: ManuallyDrop<Local>| unsafe { heap.free_at_hand(block.cast()) };
    if !pool::own_heap().is_some_and(freed) {
        // SAFETY: as the caller says, and nothing has changed.
        unsafe { free_near(block) };
    }
}

/// # Safety
/// As for [`cmt_free`].
#[inline(never)]
unsafe extern "C" fn free_near(block: *mut c_void) {
    // SAFETY: as the caller says.
    let freed = |mut heap: ManuallyDrop<Local>| unsafe { heap.free_near(block.cast()) };
    if !pool::own_heap().is_some_and(freed) {
        // SAFETY: as the caller says, and nothing has changed.
        unsafe { free_long(block) };
    }
}

/// # Safety
/// As for [`cmt_free`].
#[cold]
#[inline(never)]
unsafe extern "C" fn free_long(block: *mut c_void) {
    let Some(block) = NonNull::new(block.cast::<u8>()) else { return };
    // SAFETY: as the caller says.
    if let Err(error) = unsafe { pool::free(block) } {
        complain(error);
    }
}

/// `count` times `size` bytes, all zero. Null with ENOMEM also if the product overflows.
pub extern "C" fn cmt_calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return out_of_memory() };
    let (block, zero) = match with_thread(|thread| thread.heap.allocate_zeroable(bytes, 16)) {
        Some(Ok(found)) => found,
        _ => match pool::allocate(bytes, 16) {
            Some(block) => (block, false),
            None => return out_of_memory(),
        },
    };
    if !zero {
        // SAFETY: a new block of so many bytes.
        unsafe { block.write_bytes(0, bytes) };
    }
    block.as_ptr().cast()
}

/// Makes a block at least `size` bytes long; it keeps its place if it can, and its bytes up to
/// the lesser size. Null is as for `cmt_malloc`; a size of 0 frees the block and is null. Null
/// with ENOMEM leaves the block as it was.
///
/// # Safety
/// As for `cmt_free`, unless null is returned.
pub unsafe extern "C" fn cmt_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast::<u8>()) else { return cmt_malloc(size) };
    if size == 0 {
        // SAFETY: as the caller says.
        unsafe { cmt_free(block) };
        return ptr::null_mut();
    }
    // SAFETY: as the caller says.
    match with_thread(|thread| unsafe { thread.heap.resize(old, size, 16) }) {
        Some(Ok(block)) => block.as_ptr().cast(),
        Some(Err(ResizeError::Pointer(error))) => {
            complain(error);
            ptr::null_mut()
        }
        Some(Err(ResizeError::Alloc(_))) | None => out_of_memory(),
    }
}

/// `size` bytes at a multiple of `align`, a power of two. Null with ENOMEM, or EINVAL for
/// another alignment.
pub extern "C" fn cmt_aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return ptr::null_mut();
    }
    pointer(pool::allocate(size, align))
}

/// Bytes that may be used of a block: as many as were asked for or more; 0 for null or a pointer
/// that is none of a block.
///
/// # Safety
/// None beyond the call: any pointer may be tried.
pub unsafe extern "C" fn cmt_usable_size(block: *const c_void) -> usize {
    let Some(block) = NonNull::new(block.cast::<u8>().cast_mut()) else { return 0 };
    pool::begun().map_or(0, |process| process.pool.usable_size(block).unwrap_or(0))
}

/// Gives back to the system what has been free for the delay of the options, or (`now` not
/// 0) all that is free.
pub extern "C" fn cmt_purge(now: c_int) {
    if let Some(process) = pool::begun() {
        if now != 0 {
            process.pool.purge_all();
        } else {
            process.purge();
        }
    }
}

/// Says what was wrong with a pointer, as the options want it.
#[cold]
#[inline(never)]
fn complain(error: FreeError) {
    let Some(process) = pool::begun() else { return };
    if process.options.on_error == 0 {
        return;
    }
    let mut line = Text { bytes: [0; 128], len: 0 };
    // What does not fit is left out.
    let _ = core::fmt::Write::write_fmt(&mut line, format_args!("swath: free: {error}\n"));
    // SAFETY: as many bytes as were written.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
    if process.options.on_error == 2 {
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}

/// A line without a heap.
struct Text {
    bytes: [u8; 128],
    len: usize,
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}
