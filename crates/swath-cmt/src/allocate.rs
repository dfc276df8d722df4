//! Allocating, resizing and freeing.
//!
//! An allocation has three paths. The fast one takes a slot that the heap's current word has; the
//! second takes one of the same superblock's next word; the slow one does all else. Each ends with
//! a call of the next: these have C's calling convention, which does not unwind, so that the fast
//! path needs no frame of its own.

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use swath_pool::{BufferFreeError, Due, Freed, SLOT_BYTES_MAX, UNIT_BYTES, Unplaced};

use crate::error::{FreeError, OutOfMemory, ResizeError};
use crate::foreign::{Foreign, foreign};
use crate::process::background;
use crate::process::begin::process;
use crate::process::own::{OwnFront, own_front, own_hardened, own_heap, with_thread};
use crate::process::state::begun;
use crate::process::thread::Local;
use crate::process::words;
use crate::report::report;
use crate::reserve::grow::grow_for;
use crate::source::chunk::CHUNK_BYTES;

/// Alignment of every block.
pub(crate) const ALIGN_BYTES: usize = 16;

/// Allocates `size` bytes, aligned to 16 and not initialised; a size of 0 gets a block too, in which every access
/// faults.
///
/// ```
/// let block = swath_cmt::allocate(100)?;
/// assert!(swath_cmt::usable_size(block) >= 100);
/// // SAFETY: it is in use, and not used after.
/// unsafe { swath_cmt::free(block) };
/// # Ok::<(), swath_cmt::OutOfMemory>(())
/// ```
///
/// # Errors
/// [`OutOfMemory`]; `errno` is ENOMEM then.
#[inline]
pub fn allocate(size: usize) -> Result<NonNull<u8>, OutOfMemory> {
    NonNull::new(allocate_or_null(size)).ok_or(OutOfMemory)
}

/// Allocates as [`allocate`]; null is an error.
#[inline(always)]
pub(crate) fn allocate_or_null(size: usize) -> *mut u8 {
    if size > SLOT_BYTES_MAX {
        return allocate_long(size);
    }
    match own_front().allocate(size) {
        Some(block) => block.as_ptr(),
        None => allocate_current(size),
    }
}

#[inline(never)]
extern "C" fn allocate_current(size: usize) -> *mut u8 {
    match own_heap() {
        Some(mut heap) => match heap.allocate_current(size) {
            Some(block) => block.as_ptr(),
            None => allocate_slow(size),
        },
        None => allocate_hardened(size),
    }
}

/// Allocates for a thread of which no call is the front's: it is hardened, or has no heap.
#[inline(never)]
extern "C" fn allocate_hardened(size: usize) -> *mut u8 {
    if let Some(thread) = own_hardened()
        && let Some(block) = thread.allocate_short(size)
    {
        if thread.count_hardened_call() {
            purge_if_due();
        }
        return block.as_ptr();
    }
    allocate_slow(size)
}

/// Takes a segment that the heap has kept, if there is one of this length.
#[inline(never)]
extern "C" fn allocate_long(size: usize) -> *mut u8 {
    match own_front().take_segment(size) {
        Some(block) => block.as_ptr(),
        None => allocate_slow(size),
    }
}

#[cold]
#[inline(never)]
extern "C" fn allocate_slow(size: usize) -> *mut u8 {
    allocate_any(size, ALIGN_BYTES).map_or_else(out_of_memory, NonNull::as_ptr)
}

/// Sets `errno` to ENOMEM; null.
#[cold]
pub(crate) fn out_of_memory() -> *mut u8 {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

/// Allocates a block of any kind, if there is memory; before there is none, what other threads
/// returned is collected and superblocks without blocks are released.
#[cold]
#[inline(never)]
fn allocate_any(size: usize, align: usize) -> Option<NonNull<u8>> {
    if size == 0
        && align <= ALIGN_BYTES
        && let Some(block) = process().ok()?.nothing.allocate()
    {
        return Some(block);
    }
    prepare_reserve(size);
    let (block, looks_at_clock) = with_thread(|thread| {
        let block = thread.allocate(size, align).or_else(|| {
            thread.heap.collect();
            thread.allocate(size, align)
        });
        (block.map(|(block, _)| block), thread.count_slow_call())
    })?;
    if looks_at_clock {
        purge_if_due();
    }
    block
}

/// Makes the reserve longer if it cannot serve a long request.
#[inline]
fn prepare_reserve(size: usize) {
    if size >= CHUNK_BYTES
        && let Some(process) = begun()
    {
        grow_for(process, size);
    }
}

/// Allocates bytes for `layout`, at any alignment.
///
/// ```
/// use std::alloc::Layout;
///
/// let layout = Layout::from_size_align(5000, 4096)?;
/// let page = swath_cmt::allocate_aligned(layout)?;
/// assert_eq!(page.addr().get() % 4096, 0);
/// // SAFETY: it is in use, and not used after.
/// unsafe { swath_cmt::free(page) };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`OutOfMemory`].
#[inline]
pub fn allocate_aligned(layout: Layout) -> Result<NonNull<u8>, OutOfMemory> {
    allocate_any(layout.size(), layout.align()).ok_or(OutOfMemory)
}

/// Allocates `size` bytes, aligned to 16 and all zero. Fresh memory is not written for it.
///
/// ```
/// let block = swath_cmt::allocate_zeroed(1000)?;
/// // SAFETY: a block of so many bytes, which is not used after it is freed.
/// unsafe {
///     assert!(core::slice::from_raw_parts(block.as_ptr(), 1000).iter().all(|&byte| byte == 0));
///     swath_cmt::free(block);
/// }
/// # Ok::<(), swath_cmt::OutOfMemory>(())
/// ```
///
/// # Errors
/// [`OutOfMemory`].
#[inline]
pub fn allocate_zeroed(size: usize) -> Result<NonNull<u8>, OutOfMemory> {
    if size == 0 {
        return allocate(0);
    }
    if let Some(block) = own_front().allocate(size) {
        // SAFETY: a new block of so many bytes.
        unsafe { block.write_bytes(0, size) };
        return Ok(block);
    }
    allocate_zeroed_slowly(size)
}

#[inline(never)]
fn allocate_zeroed_slowly(size: usize) -> Result<NonNull<u8>, OutOfMemory> {
    prepare_reserve(size);
    let (block, zero) = match with_thread(|thread| thread.allocate(size, ALIGN_BYTES)) {
        Some(Some(found)) => found,
        _ => (allocate_any(size, ALIGN_BYTES).ok_or(OutOfMemory)?, false),
    };
    if !zero {
        // SAFETY: a new block of so many bytes.
        unsafe { block.write_bytes(0, size) };
    }
    Ok(block)
}

/// Makes a block at least `size` bytes long and returns its place, aligned to 16: it keeps its
/// place if it can, and its bytes up to the lesser size.
///
/// ```
/// let block = swath_cmt::allocate(10)?;
/// // SAFETY: the block is in use, and only the result is used after.
/// unsafe {
///     block.write(7);
///     let longer = swath_cmt::resize(block, 100_000)?;
///     assert_eq!(longer.read(), 7);
///     swath_cmt::free(longer);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ResizeError`]; nothing changes. A wrong pointer is also reported as the option
/// [`on_error`](crate::Options::on_error) says.
///
/// # Safety
/// `block` is a block in use of this crate; if the call succeeds, it is used after only where it
/// lies then.
#[inline]
pub unsafe fn resize(block: NonNull<u8>, size: usize) -> Result<NonNull<u8>, ResizeError> {
    // SAFETY: as the caller says.
    match unsafe { own_front().resize(block, size) } {
        Some(resized) => Ok(resized),
        // SAFETY: as the caller says, and nothing has changed.
        None => unsafe { resize_slowly(block, size) },
    }
}

/// # Safety
/// As for [`resize`].
#[inline(never)]
unsafe fn resize_slowly(block: NonNull<u8>, size: usize) -> Result<NonNull<u8>, ResizeError> {
    // SAFETY: as the caller says.
    let resized = with_thread(|thread| unsafe { thread.resize(block, size, ALIGN_BYTES) });
    if let Some(Err(ResizeError::Free(error))) = resized {
        match begun().and_then(|process| process.nothing.look(block)) {
            Some(Ok(())) => {
                let moved = allocate(size)?;
                // SAFETY: as the caller says.
                unsafe { free(block) };
                return Ok(moved);
            }
            Some(Err(error)) => {
                report(error.into());
                return Err(ResizeError::Free(error.into()));
            }
            None => {}
        }
        // SAFETY: as the caller says.
        let others = |foreign: &Foreign| unsafe { (foreign.resize)(block, size) };
        if let Some(moved) = foreign().filter(|_| is_foreign(error)).and_then(others) {
            return Ok(NonNull::new(moved).ok_or(OutOfMemory)?);
        }
        report(error);
    }
    resized.unwrap_or(Err(OutOfMemory.into()))
}

/// Frees a block. A wrong pointer changes nothing and is reported as the option
/// [`on_error`](crate::Options::on_error) says.
///
/// # Safety
/// `block` is a block in use of this crate, and is not used after.
#[inline]
pub unsafe fn free(block: NonNull<u8>) {
    // SAFETY: as the caller says.
    unsafe { free_or_null(block.as_ptr()) };
}

/// Frees as [`free`]; null is allowed.
///
/// # Safety
/// As for [`free`], unless it is null.
#[inline(always)]
pub(crate) unsafe fn free_or_null(block: *mut u8) {
    let front = own_front();
    // SAFETY: as the caller says.
    match unsafe { front.free(block) } {
        Freed::Done => {}
        // SAFETY: the front says so.
        Freed::Full(slot) => unsafe { put_back(slot, front) },
        // SAFETY: as the caller says, and nothing has changed.
        Freed::No => unsafe { free_other(block, front) },
    }
}

/// The cache is full without a slot that was just freed.
///
/// # Safety
/// The thread's front has just said so.
#[inline(never)]
pub(crate) unsafe extern "C" fn put_back(slot: Unplaced, front: OwnFront) {
    // SAFETY: as the caller says.
    unsafe { front.put_back(slot, |due| settle(due)) };
}

/// Something is left to do after the free of a slot.
#[cold]
#[inline(never)]
extern "C" fn settle(due: Due) {
    if let Some(heap) = own_heap() {
        heap.settle(due);
    }
}

/// # Safety
/// As for [`free_or_null`].
#[inline(never)]
unsafe extern "C" fn free_other(block: *mut u8, front: OwnFront) {
    // Of a hardened thread, too: none of what follows is its.
    if front.is_of(words::nobodys()) {
        // SAFETY: as the caller says.
        unsafe { free_hardened(block) };
    } else if block.addr().is_multiple_of(UNIT_BYTES) {
        // SAFETY: as the caller says.
        unsafe { free_segment(block, front) };
    } else {
        // SAFETY: as the caller says.
        unsafe { free_shared(block, front) };
    }
}

/// Frees for a thread of which no call is the front's.
///
/// # Safety
/// As for [`free_or_null`].
#[inline(never)]
unsafe extern "C" fn free_hardened(block: *mut u8) {
    if let Some(thread) = own_hardened()
        && let Some(own) = NonNull::new(block)
        // SAFETY: as the caller says.
        && let Some(freed) = unsafe { thread.free_short(own) }
    {
        if thread.count_hardened_call() {
            purge_if_due();
        }
        if let Err(error) = freed {
            report(error);
        }
        return;
    }
    // SAFETY: as the caller says, and nothing has changed.
    unsafe { free_slow(block) };
}

/// # Safety
/// As for [`free_or_null`]; the block lies at a multiple of a unit.
#[inline(never)]
unsafe extern "C" fn free_segment(block: *mut u8, front: OwnFront) {
    // SAFETY: as the caller says.
    if !unsafe { front.free_segment(block) } {
        // SAFETY: as the caller says, and nothing has changed.
        unsafe { free_slot(block) };
    }
}

/// # Safety
/// As for [`free_or_null`].
#[inline(never)]
unsafe extern "C" fn free_shared(block: *mut u8, front: OwnFront) {
    // SAFETY: as the caller says.
    match unsafe { front.free_shared(block) } {
        Freed::Done => {}
        // SAFETY: the front says so.
        Freed::Full(slot) => unsafe { put_back(slot, front) },
        // SAFETY: as the caller says, and nothing has changed.
        Freed::No => unsafe { free_slot(block) },
    }
}

/// # Safety
/// As for [`free_or_null`].
#[inline(never)]
unsafe extern "C" fn free_slot(block: *mut u8) {
    // SAFETY: as the caller says.
    let freed = |mut heap: ManuallyDrop<Local>| unsafe { heap.free_in_superblock(block) };
    if !own_heap().is_some_and(freed) {
        // SAFETY: as the caller says, and nothing has changed.
        unsafe { free_slow(block) };
    }
}

/// # Safety
/// As for [`free_or_null`].
#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow(block: *mut u8) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: as the caller says.
    let Err(error) = (unsafe { free_any(block) }) else { return };
    // SAFETY: as the caller says.
    let others = |foreign: &Foreign| unsafe { (foreign.free)(block) };
    if !(is_foreign(error) && foreign().is_some_and(others)) {
        report(error);
    }
}

/// Frees a block of any kind.
///
/// # Safety
/// As for [`free`].
unsafe fn free_any(block: NonNull<u8>) -> Result<(), FreeError> {
    if let Some(freed) = begun().and_then(|process| process.nothing.free(block)) {
        return Ok(freed?);
    }
    let freed = with_thread(|thread| {
        // SAFETY: as the caller says.
        (unsafe { thread.free(block) }, thread.count_slow_call())
    });
    let Some((freed, looks_at_clock)) = freed else { return Ok(()) };
    if looks_at_clock {
        purge_if_due();
    }
    freed
}

/// Returns memory to the system if the clock says that it is time. `errno` stays: a free may not
/// change it.
#[cold]
#[inline(never)]
fn purge_if_due() {
    let Some(process) = begun() else { return };
    // SAFETY: the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    background::begin(process);
    process.purge();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the bytes of a block that may be used: as many as were asked for or more; 0 for a
/// pointer that is none of a block in use. Any pointer may be tried.
#[must_use]
pub fn usable_size(block: NonNull<u8>) -> usize {
    let usable = begun().map(|process| process.usable_size(block));
    match usable {
        Some(Ok(bytes)) => bytes,
        Some(Err(error)) if !is_foreign(error.into()) => 0,
        _ => foreign().map_or(0, |foreign| (foreign.usable_size)(block)),
    }
}

/// Returns true if the pointer lies outside the arena.
fn is_foreign(error: FreeError) -> bool {
    matches!(error, FreeError::Pool(BufferFreeError::Foreign { .. }))
}
