//! `cmt_malloc` and its kin: contiguous memory for programs on Linux
//! (003_f9a9d8482224280c.txt, section 4.3).
//!
//! Blocks come from the buffer pool of `swath-heap`. What lies within 2 MiB is contiguous in
//! physical memory where the kernel has huge pages to give, and `cmt_extents` says what is.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use swath_arch::BASE_PAGE_BYTES;
use swath_heap::FreeError;
use swath_heap::buffer::ResizeError;

use crate::cmt_choice::cmt_options;
use crate::cmt_physical::{self, PageMap};
use crate::cmt_pool::{self, BeginError, Local, with_thread};
use crate::map::swath_extent;
use crate::object::put;
use crate::result::{fail, swath_result, swath_status::*};

/// What the pool holds, in bytes if not said otherwise.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct cmt_stats {
    /// Blocks in use, as long as their slots and segments are.
    pub live_bytes: u64,
    /// Superblocks and segments.
    pub held_bytes: u64,
    /// Segments in use.
    pub segment_bytes: u64,
    /// Free memory that has not gone back to the system.
    pub cached_bytes: u64,
    /// Of pages of 1 GiB of the hugetlb pool.
    pub hugetlb_1g_bytes: u64,
    /// Of pages of 2 MiB of the hugetlb pool.
    pub hugetlb_2m_bytes: u64,
    /// Where transparent huge pages were asked for.
    pub thp_bytes: u64,
    /// Of pages of 4 KiB.
    pub small_bytes: u64,
    /// Of segments whose pages were picked and ordered by their frames, so far.
    pub ordered_bytes: u64,
    /// Addresses reserved.
    pub arena_bytes: u64,
    /// Blocks that were freed by another thread than allocated them; not bytes.
    pub remote_frees: u64,
    /// Blocks freed twice by two threads at once, found afterwards; not bytes.
    pub late_double_frees: u64,
    /// Threads with a heap; not bytes.
    pub threads: u32,
    /// 1 if physical addresses are known, else 0.
    pub physical_known: u32,
}

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
#[unsafe(no_mangle)]
pub extern "C" fn cmt_malloc(size: usize) -> *mut c_void {
    match cmt_pool::own_heap().and_then(|mut heap| heap.allocate_at_hand(size)) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_near(size),
    }
}

/// As all that has C's calling convention it does not unwind, so that the short way can end with it.
#[inline(never)]
extern "C" fn malloc_near(size: usize) -> *mut c_void {
    match cmt_pool::own_heap().and_then(|mut heap| heap.allocate_near(size)) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_long(size),
    }
}

#[cold]
#[inline(never)]
extern "C" fn malloc_long(size: usize) -> *mut c_void {
    pointer(cmt_pool::allocate(size, 16))
}

/// Gives a block back; null is allowed. What a wrong pointer comes to is
/// `cmt_options.on_error`; nothing changes.
///
/// # Safety
/// `block` is null or came from this library; it is not used after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_free(block: *mut c_void) {
    // SAFETY: as the caller says.
    let freed = |mut heap: ManuallyDrop<Local>| unsafe { heap.free_at_hand(block.cast()) };
    if !cmt_pool::own_heap().is_some_and(freed) {
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
    if !cmt_pool::own_heap().is_some_and(freed) {
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
    if let Err(error) = unsafe { cmt_pool::free(block) } {
        complain(error);
    }
}

/// `count` times `size` bytes, all zero. Null with ENOMEM also if the product overflows.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return out_of_memory() };
    let (block, zero) = match with_thread(|thread| thread.heap.allocate_zeroable(bytes, 16)) {
        Some(Ok(found)) => found,
        _ => match cmt_pool::allocate(bytes, 16) {
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
#[unsafe(no_mangle)]
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
#[unsafe(no_mangle)]
pub extern "C" fn cmt_aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return ptr::null_mut();
    }
    pointer(cmt_pool::allocate(size, align))
}

/// Bytes that may be used of a block: as many as were asked for or more; 0 for null or a pointer
/// that is none of a block.
///
/// # Safety
/// None beyond the call: any pointer may be tried.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_usable_size(block: *const c_void) -> usize {
    let Some(block) = NonNull::new(block.cast::<u8>().cast_mut()) else { return 0 };
    cmt_pool::begun().map_or(0, |process| process.pool.usable_size(block).unwrap_or(0))
}

/// Gives back to the system what has been free for the delay of the options, or (`now` not
/// 0) all that is free.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_purge(now: c_int) {
    if let Some(process) = cmt_pool::begun() {
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
    let Some(process) = cmt_pool::begun() else { return };
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

/// Writes the defaults, the environment not considered.
///
/// Errors: `SWATH_NULL`.
///
/// # Safety
/// `options` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_options_default(options: *mut cmt_options) -> swath_result {
    // SAFETY: as the caller says.
    swath_result::of(unsafe { put(options, cmt_options::new()) })
}

/// Begins with these options instead of those of the environment; null means those. To be called
/// before anything is allocated, or not at all.
///
/// Errors: `SWATH_ARGUMENT` with the first value that is out of range; `SWATH_STATE` if the pool has
/// begun; `SWATH_OUT_OF_MEMORY`.
///
/// # Safety
/// `options` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_init(options: *const cmt_options) -> swath_result {
    // SAFETY: as the caller says.
    let options = unsafe { options.as_ref() }.copied();
    let begin = || {
        if let Some(options) = &options {
            options.check()?;
        }
        match cmt_pool::begin(options) {
            Ok(_) => Ok(()),
            Err(BeginError::Begun) => fail(SWATH_STATE, 0),
            Err(BeginError::Memory) => fail(SWATH_OUT_OF_MEMORY, 0),
        }
    };
    swath_result::of(begin())
}

/// What the pool holds now; all zero before anything was allocated.
///
/// Errors: `SWATH_NULL`.
///
/// # Safety
/// `stats` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_stats_get(stats: *mut cmt_stats) -> swath_result {
    let Some(process) = cmt_pool::begun() else {
        // SAFETY: as the caller says.
        return swath_result::of(unsafe { put(stats, cmt_stats::default()) });
    };
    let held = process.pool.stats();
    let chunks = process.pool.with_source(|source| source.counts());
    let bytes = |chunks: u64| chunks * crate::cmt_backing::CHUNK_BYTES as u64;
    let value = cmt_stats {
        live_bytes: held.live_bytes,
        held_bytes: held.held_bytes,
        segment_bytes: held.segment_bytes,
        cached_bytes: held.cached_bytes,
        hugetlb_1g_bytes: bytes(chunks.giant),
        hugetlb_2m_bytes: bytes(chunks.huge),
        thp_bytes: bytes(chunks.advised),
        small_bytes: bytes(chunks.small),
        ordered_bytes: bytes(chunks.ordered),
        arena_bytes: process.options.arena_mib << 20,
        remote_frees: held.remote_frees,
        late_double_frees: held.late_double_frees,
        threads: held.heaps,
        physical_known: process.physical.into(),
    };
    // SAFETY: as the caller says.
    swath_result::of(unsafe { put(stats, value) })
}

/// A piece of a block that is contiguous in physical memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct cmt_extent {
    /// The physical address of its first byte.
    pub address: u64,
    /// How long it is.
    pub len_bytes: u64,
}

/// Writes the physical extents behind `len_bytes` of a block from `offset` on, in order, as a
/// scatter list needs them: up to `room`; `found` is how many there are in all. Pages that were never
/// touched are touched first (with what they hold). O(pages).
///
/// The frames are those of now: memory that is not of the hugetlb pools may be moved by the kernel
/// unless it is locked or pinned.
///
/// Errors: `SWATH_FOREIGN` with the address if `block` is none of this library, or with the block's
/// length if the range does not lie in it; `SWATH_DENIED` if the process may not know physical addresses; `SWATH_EMPTY`, `SWATH_NULL`.
///
/// # Safety
/// `extents` has room for `room`, `found` can be written; the block is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_extents(
    block: *const c_void,
    offset: usize,
    len_bytes: usize,
    extents: *mut cmt_extent,
    room: usize,
    found: *mut usize,
) -> swath_result {
    let list = || {
        let Some(block) = NonNull::new(block.cast::<u8>().cast_mut()) else {
            return fail(SWATH_NULL, 0);
        };
        if found.is_null() || (extents.is_null() && room > 0) {
            return fail(SWATH_NULL, 0);
        }
        if len_bytes == 0 {
            return fail(SWATH_EMPTY, 0);
        }
        let foreign = swath_result::new(SWATH_FOREIGN, block.addr().get() as u64);
        let process = cmt_pool::begun().ok_or(foreign)?;
        let usable = process.pool.usable_size(block).map_err(|_| foreign)?;
        if usable.checked_sub(offset).is_none_or(|rest| len_bytes > rest) {
            return fail(SWATH_FOREIGN, usable as u64);
        }
        let first = block.as_ptr().wrapping_add(offset);
        let address = first.addr();
        if !process.physical {
            return fail(SWATH_DENIED, address as u64);
        }
        let page = BASE_PAGE_BYTES as usize;
        let (from, end) = (address & !(page - 1), address + len_bytes);
        for at in (from..end).step_by(page).map(|at| at.max(address)) {
            // SAFETY: a byte of the block; it is written as it is, by one instruction.
            unsafe {
                let byte = first.wrapping_add(at - address);
                (*byte.cast::<core::sync::atomic::AtomicU8>())
                    .fetch_add(0, core::sync::atomic::Ordering::Relaxed);
            }
        }
        let map = PageMap::open().ok_or(swath_result::new(SWATH_DENIED, address as u64))?;
        let (mut count, mut last) = (0, cmt_extent::default());
        let (mut at, mut known) = (from, true);
        let write = |index: usize, extent: cmt_extent| {
            if index < room {
                // SAFETY: there is room for it.
                unsafe { extents.add(index).write(extent) };
            }
        };
        let read = map.frames(from, (end - from).div_ceil(page), &mut |frame| {
            let Some(frame) = frame else {
                known = false;
                return;
            };
            let (low, high) = (at.max(address), (at + page).min(end));
            let piece = cmt_extent {
                address: frame * page as u64 + (low - at) as u64,
                len_bytes: (high - low) as u64,
            };
            if count > 0 && last.address + last.len_bytes == piece.address {
                last.len_bytes += piece.len_bytes;
            } else {
                count += 1;
                last = piece;
            }
            write(count - 1, last);
            at += page;
        });
        if !read || !known {
            return fail(SWATH_DENIED, address as u64);
        }
        // SAFETY: as the caller says.
        unsafe { put(found, count) }
    };
    swath_result::of(list())
}

/// Calls `visit` with each range of the machine's memory, ascending, in frames of 4 KiB, and with
/// `context`: the areas between which there are vacuums.
///
/// Errors: `SWATH_DENIED` if the process may not know them; `SWATH_NULL`.
///
/// # Safety
/// `visit` takes `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_areas(
    visit: Option<unsafe extern "C" fn(area: swath_extent, context: *mut c_void)>,
    context: *mut c_void,
) -> swath_result {
    let Some(visit) = visit else { return swath_result::new(SWATH_NULL, 0) };
    // SAFETY: the caller gave the function and its context.
    let known = cmt_physical::areas(&mut |area| unsafe { visit(area, context) });
    swath_result::new(if known { SWATH_OK } else { SWATH_DENIED }, 0)
}

/// For a library that overrides `malloc`: from now on segments are not populated unless the options
/// say so.
pub fn overrides_malloc() {
    crate::cmt_backing::POPULATE.store(false, core::sync::atomic::Ordering::Relaxed);
}
