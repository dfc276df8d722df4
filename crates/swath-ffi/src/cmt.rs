//! `cmt_malloc` and its kin: contiguous memory for programs on Linux
//! (003_f9a9d8482224280c.txt, section 4.3).
//!
//! Blocks come from the buffer pool of `swath-heap`. What lies within 2 MiB is contiguous in
//! physical memory where the kernel has huge pages to give, and `cmt_extents` says what is.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use swath_arch::BASE_PAGE_BYTES;

use crate::map::swath_extent;
use crate::object::put;
use crate::result::swath_status::*;
use crate::result::{fail, swath_result};
use swath_cmt::choice::cmt_options;
use swath_cmt::physical::PageMap;
use swath_cmt::pool::BeginError;
use swath_cmt::{physical, pool};

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

/// `size` bytes, aligned to 16, which hold anything; a size of 0 gets a block too. Null, and
/// `errno` is ENOMEM, if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_malloc(size: usize) -> *mut c_void {
    swath_cmt::calls::cmt_malloc(size)
}

/// Gives a block back; null is allowed. What a wrong pointer comes to is
/// `cmt_options.on_error`; nothing changes.
///
/// # Safety
/// `block` is null or came from this library; it is not used after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_free(block: *mut c_void) {
    // SAFETY: as the caller says.
    unsafe { swath_cmt::calls::cmt_free(block) }
}

/// `count` times `size` bytes, all zero. Null with ENOMEM also if the product overflows.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_calloc(count: usize, size: usize) -> *mut c_void {
    swath_cmt::calls::cmt_calloc(count, size)
}

/// Makes a block at least `size` bytes long; it keeps its place if it can, and its bytes up to
/// the lesser size. Null is as for `cmt_malloc`; a size of 0 frees the block and is null. Null
/// with ENOMEM leaves the block as it was.
///
/// # Safety
/// As for `cmt_free`, unless null is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { swath_cmt::calls::cmt_realloc(block, size) }
}

/// `size` bytes at a multiple of `align`, a power of two. Null with ENOMEM, or EINVAL for
/// another alignment.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_aligned_alloc(align: usize, size: usize) -> *mut c_void {
    swath_cmt::calls::cmt_aligned_alloc(align, size)
}

/// Bytes that may be used of a block: as many as were asked for or more; 0 for null or a pointer
/// that is none of a block.
///
/// # Safety
/// None beyond the call: any pointer may be tried.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_usable_size(block: *const c_void) -> usize {
    // SAFETY: as the caller says.
    unsafe { swath_cmt::calls::cmt_usable_size(block) }
}

/// Gives back to the system what has been free for the delay of the options, or (`now` not
/// 0) all that is free.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_purge(now: c_int) {
    swath_cmt::calls::cmt_purge(now)
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
            options.check().map_err(|value| swath_result::new(SWATH_ARGUMENT, value))?;
        }
        match pool::begin(options) {
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
    let Some(process) = pool::begun() else {
        // SAFETY: as the caller says.
        return swath_result::of(unsafe { put(stats, cmt_stats::default()) });
    };
    let held = process.pool.stats();
    let chunks = process.pool.with_source(|source| source.counts());
    let bytes = |chunks: u64| chunks * swath_cmt::backing::CHUNK_BYTES as u64;
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
        let process = pool::begun().ok_or(foreign)?;
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
    let known = physical::areas(&mut |area| unsafe { visit(area.into(), context) });
    swath_result::new(if known { SWATH_OK } else { SWATH_DENIED }, 0)
}

/// For a library that overrides `malloc`: from now on segments are not populated unless the options
/// say so.
pub fn overrides_malloc() {
    swath_cmt::backing::POPULATE.store(false, core::sync::atomic::Ordering::Relaxed);
}
