//! `cmt_malloc` and its kin in C: contiguous memory for programs on Linux (*Zhang, Lu and Zhang*,
//! section 4.3). Each function is one of `swath-cmt`, which documents them.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use swath_cmt::{
    BeginError, ContiguousError, ExtentsError, Held, Hugetlb, OnError, Options, Pages,
    PhysicalExtent, Pin, Placement, Populate, Purge, ReserveExtent, c,
};

use crate::map::swath_extent;
use crate::object::put;
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// Errors of the C library.
const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

/// Settings of `cmt_malloc`. Fill it with `cmt_options_default` first, so that it stays right
/// when members are added.
///
/// Each member can be set by the environment too, by the name beside it; the environment
/// counts where the program does not call `cmt_init`. A value that is no number or out of
/// range is the default.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct cmt_options {
    /// `SWATH_ARENA_MIB`: addresses to reserve, which bound all memory together. They cost
    /// nothing. 2 to 16777216 (16 TiB), by default eight times the machine's memory and 256 GiB at least;
    /// less in a process whose addresses are limited, half of what it has left then, and twice the memory
    /// where the kernel counts what is only reserved.
    pub arena_mib: u64,
    /// `SWATH_HUGETLB`: 1 takes pages of the kernel's hugetlb pools as far as there are any,
    /// of 1 GiB for segments that hold them whole, else of 2 MiB. Before the first fork what is in use
    /// of them moves to other pages, and no more are taken; so none are without the right to userfaultfd
    /// (CAP_SYS_PTRACE) but for a reserve that children do not have. Default 2: 1, but in the library
    /// that overrides malloc only for a reserve.
    pub hugetlb: u32,
    /// `SWATH_THP`: 1 asks for transparent huge pages of 2 MiB. Default 1.
    pub thp: u32,
    /// `SWATH_POPULATE`: 1 touches segments of 2 MiB and more when they are allocated, and with the
    /// right to know physical addresses picks and orders their pages so that they are as
    /// contiguous as can be. Default 2: 1, but 0 in the library that overrides malloc.
    pub populate: u32,
    /// `SWATH_PURGE_MS`: time for which memory that is free stays with the process before it
    /// goes back to the system, in ms. Default 1000.
    pub purge_ms: u64,
    /// `SWATH_EMPTY_EIGHTHS`: the emptiness threshold f in eighths, 1 to 7: a superblock that is
    /// so empty may go to other threads. Default 7.
    pub empty_eighths: u32,
    /// `SWATH_GUARD`: 1 puts an address range that faults behind every segment. Default 0.
    pub guard: u32,
    /// `SWATH_QUARANTINE`: number of freed blocks of a thread that wait before they may be
    /// allocated again, so that a use after free is not at once another's; with one, blocks have
    /// canaries. Up to 4096; default 0.
    pub quarantine: u32,
    /// `SWATH_ON_ERROR`: the consequence of a wrong pointer given to `cmt_free`: 0, nothing; 1,
    /// a line on standard error; 2, that and an abort. Default 2.
    pub on_error: u32,
    /// `SWATH_CANARY`: 1 puts a word behind every block that `cmt_free` and `cmt_realloc` look at: a
    /// write beyond the bytes that may be used has the consequence of a wrong pointer. Default 0.
    pub canary: u32,
    /// `SWATH_RESERVE`, there in bytes or with K, M or G behind the number: bytes of a physical reserve,
    /// which is taken at once, or as much as there is memory for. Blocks longer than 32 KiB come from it
    /// as one run of physical memory each, and it grows when it is full. Where free memory is in pieces the
    /// first call takes up to 5 s of processor time to find runs with room for blocks of a twelfth of it; `cmt_stats` and
    /// `cmt_reserve_extents` say what there is. Default 0, none.
    pub reserve_bytes: u64,
    /// `SWATH_DONTFORK`: 1 leaves the reserve to this process. A fork's child does not have its blocks: it
    /// may free them, and an access faults; the parent's keep their frames when it writes. Default 0.
    pub dontfork: u32,
    /// `SWATH_BACKGROUND`: 1 has a thread of the library's own return free memory to the system, even while
    /// the process does nothing. Default 0: calls that take long return it.
    pub background: u32,
    /// `SWATH_SLACK`: number of superblocks of one size, as empty as `empty_eighths` says, which a thread
    /// keeps all the same (the K of Hoard). Up to 1024; default 4.
    pub slack: u32,
    /// `SWATH_HEAPS`: number of threads that have a heap of their own at a time (the paper's P); all
    /// others share one more, behind a lock. 1 to 8191, the default.
    pub heaps: u32,
    /// `SWATH_DMA_HEAP`: 1 takes the reserve from one of the kernel's dma-heaps first, of Swath's module or of
    /// the contiguous memory allocator (CMA), where the process may open it. Its frames stay, and Swath's are
    /// known. A fork's child has copies of its blocks. Default 1.
    pub dma_heap: u32,
}

impl From<Options> for cmt_options {
    fn from(options: Options) -> Self {
        Self {
            arena_mib: options.arena_mib,
            hugetlb: match options.hugetlb {
                Hugetlb::Never => 0,
                Hugetlb::Always => 1,
                Hugetlb::Default => 2,
            },
            thp: options.thp.into(),
            populate: match options.populate {
                Populate::Never => 0,
                Populate::Always => 1,
                Populate::Default => 2,
            },
            purge_ms: options.purge_delay_ms,
            empty_eighths: options.empty_eighths,
            guard: options.guard.into(),
            quarantine: options.quarantine,
            on_error: match options.on_error {
                OnError::Ignore => 0,
                OnError::Report => 1,
                OnError::Abort => 2,
            },
            canary: options.canary.into(),
            reserve_bytes: options.reserve_bytes,
            dontfork: options.dontfork.into(),
            background: options.background.into(),
            slack: options.slack,
            heaps: options.heaps,
            dma_heap: options.dma_heap.into(),
        }
    }
}

impl TryFrom<cmt_options> for Options {
    type Error = swath_result;

    fn try_from(options: cmt_options) -> Outcome<Self> {
        let out_of_range = |value: u64| swath_result::new(SWATH_ARGUMENT, value);
        let flag = |value: u32| match value {
            0 | 1 => Ok(value == 1),
            _ => Err(out_of_range(value.into())),
        };
        Ok(Self {
            arena_mib: options.arena_mib,
            reserve_bytes: options.reserve_bytes,
            dma_heap: flag(options.dma_heap)?,
            dontfork: flag(options.dontfork)?,
            background: flag(options.background)?,
            hugetlb: u64::from(options.hugetlb).try_into().map_err(out_of_range)?,
            thp: flag(options.thp)?,
            populate: u64::from(options.populate).try_into().map_err(out_of_range)?,
            purge_delay_ms: options.purge_ms,
            empty_eighths: options.empty_eighths,
            slack: options.slack,
            heaps: options.heaps,
            guard: flag(options.guard)?,
            quarantine: options.quarantine,
            canary: flag(options.canary)?,
            on_error: u64::from(options.on_error).try_into().map_err(out_of_range)?,
        })
    }
}

/// Counts of what the pool holds, in bytes if not said otherwise. Later versions add members at the end:
/// a program says how long the struct is that it knows.
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
    /// For which transparent huge pages were asked for.
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
    /// The reserve.
    pub reserve_bytes: u64,
    /// Free in the reserve; not what threads keep of it after a free: segments up to 1 MiB, 4 MiB of them each,
    /// until `cmt_purge` or a request that finds no other memory takes them.
    pub reserve_free_bytes: u64,
    /// The reserve's longest free run: what one contiguous block can have.
    pub reserve_longest_bytes: u64,
    /// Free runs of the reserve; not bytes.
    pub reserve_free_runs: u64,
    /// Extents of the reserve, which `cmt_reserve_extents` lists; not bytes.
    pub reserve_extents: u64,
    /// Of the kernel's dma-heaps.
    pub dma_heap_bytes: u64,
}

/// Allocates `size` bytes, aligned to 16 and not initialised; a size of 0 gets a block too. Null, and
/// `errno` is ENOMEM, if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_malloc(size: usize) -> *mut c_void {
    c::malloc(size)
}

/// Frees a block; null is allowed. The consequence of a wrong pointer is
/// `cmt_options.on_error`; nothing changes.
///
/// # Safety
/// `block` is null or came from this library; it is not used after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_free(block: *mut c_void) {
    // SAFETY: as the caller says.
    unsafe { c::free(block) }
}

/// Allocates `count` times `size` bytes, all zero. Null with ENOMEM also if the product overflows.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_calloc(count: usize, size: usize) -> *mut c_void {
    c::calloc(count, size)
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
    unsafe { c::realloc(block, size) }
}

/// Allocates `size` bytes at a multiple of `align`, a power of two. Null with ENOMEM, or EINVAL for
/// another alignment.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_aligned_alloc(align: usize, size: usize) -> *mut c_void {
    c::aligned_alloc(align, size)
}

/// Allocates `size` bytes that are one run of physical memory, at a physical address that is a multiple of
/// `align`, all of it below the address `below`, with no two bytes on two sides of a multiple of
/// `boundary`; 0 for each of the three is no such limit. The block comes from the reserve, which grows if
/// it has no such run. Null with ENOMEM rather than in two pieces, or with EINVAL if `align` or
/// `boundary` is no power of two.
///
/// Where physical addresses are known, the block's frames are read back before it is returned; where they
/// are not, it is laid in simulated frames. The kernel may move it later, unless its pages are of a
/// dma-heap, of the hugetlb pools, or pinned.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_malloc_contiguous(
    size: usize,
    align: u64,
    below: u64,
    boundary: u64,
) -> *mut c_void {
    let placement = Placement {
        align_bytes: align.max(1),
        below: if below == 0 { u64::MAX } else { below },
        boundary_bytes: (boundary != 0).then_some(boundary),
    };
    match swath_cmt::allocate_contiguous(size, placement) {
        Ok(block) => block.as_ptr().cast(),
        Err(ContiguousError::NoPowerOfTwo { .. }) => c::fail(EINVAL),
        Err(ContiguousError::OutOfMemory(_)) => c::fail(ENOMEM),
    }
}

/// Returns the physical address behind `address`, or all ones if it is not known. `len_bytes` says how
/// many bytes from there on are asked about, and becomes the number of those that follow one another in
/// physical memory (0 if the address is not known); null asks about one. Any address may be tried. Pages
/// that can be written are made the process's own first, with what they hold.
///
/// # Safety
/// `len_bytes` is null or can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_virt2phys(address: *const c_void, len_bytes: *mut usize) -> u64 {
    // SAFETY: as the caller says.
    let len = unsafe { len_bytes.as_mut() };
    let asked = len.as_ref().map_or(1, |len| **len);
    let extent = swath_cmt::virt2phys(address.cast(), asked).ok();
    if let Some(len) = len {
        *len = extent.map_or(0, |extent| extent.len_bytes as usize);
    }
    extent.map_or(u64::MAX, |extent| extent.address.raw())
}

/// The pages that back an extent.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum cmt_pages {
    /// Of 1 GiB, of the kernel's hugetlb pool.
    CMT_PAGES_HUGETLB_1G = 0,
    /// Of 2 MiB, of the kernel's hugetlb pool.
    CMT_PAGES_HUGETLB_2M,
    /// For which transparent huge pages of 2 MiB were asked for.
    CMT_PAGES_TRANSPARENT,
    /// Of 4 KiB.
    #[default]
    CMT_PAGES_SMALL,
    /// Of one of the kernel's dma-heaps, in frames that stay.
    CMT_PAGES_DMA_HEAP,
}

/// An extent of the reserve: a run of addresses that was one run of physical memory when it was taken.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct cmt_reserve_extent {
    /// Its first address.
    pub start: usize,
    /// Number of its bytes.
    pub len_bytes: u64,
    /// The physical address of its first byte; all ones if it is not known: its frames are simulated.
    pub physical: u64,
    /// The pages that back it.
    pub pages: cmt_pages,
}

impl From<ReserveExtent> for cmt_reserve_extent {
    fn from(extent: ReserveExtent) -> Self {
        Self {
            start: extent.address,
            len_bytes: extent.len_bytes,
            physical: extent.physical.map_or(u64::MAX, |address| address.raw()),
            pages: match extent.pages {
                Pages::Hugetlb1G => cmt_pages::CMT_PAGES_HUGETLB_1G,
                Pages::Hugetlb2M => cmt_pages::CMT_PAGES_HUGETLB_2M,
                Pages::Transparent => cmt_pages::CMT_PAGES_TRANSPARENT,
                Pages::Small => cmt_pages::CMT_PAGES_SMALL,
                Pages::DmaHeap => cmt_pages::CMT_PAGES_DMA_HEAP,
            },
        }
    }
}

/// Writes the extents of the reserve, ascending by frame: up to `room`; `found` is how many there are in
/// all.
///
/// Errors: `SWATH_NULL`.
///
/// # Safety
/// `extents` has room for `room`, `found` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_reserve_extents(
    extents: *mut cmt_reserve_extent,
    room: usize,
    found: *mut usize,
) -> swath_result {
    if found.is_null() || (extents.is_null() && room > 0) {
        return swath_result::new(SWATH_NULL, 0);
    }
    let mut count = 0;
    swath_cmt::reserve_extents(|extent| {
        if count < room {
            // SAFETY: there is room for it.
            unsafe { extents.add(count).write(extent.into()) };
        }
        count += 1;
    });
    // SAFETY: as the caller says.
    swath_result::of(unsafe { put(found, count) })
}

/// Returns the bytes of a block that may be used: as many as were asked for or more; 0 for null or a pointer
/// that is none of a block.
///
/// # Safety
/// None beyond the call: any pointer may be tried.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_usable_size(block: *const c_void) -> usize {
    c::usable_size(block)
}

/// Returns to the system what has been free for the delay of the options, or (`now` not 0) all
/// that is free.
#[unsafe(no_mangle)]
pub extern "C" fn cmt_purge(now: c_int) {
    swath_cmt::purge(if now == 0 { Purge::Due } else { Purge::All });
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
    swath_result::of(unsafe { put(options, Options::default().into()) })
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
    let begun = match unsafe { options.as_ref() }.copied() {
        Some(options) => match Options::try_from(options) {
            Ok(options) => swath_cmt::begin_with(options),
            Err(error) => return error,
        },
        None => swath_cmt::begin().map_err(BeginError::from),
    };
    match begun {
        Ok(()) => swath_result::OK,
        Err(BeginError::Option(error)) => swath_result::new(SWATH_ARGUMENT, error.value),
        Err(BeginError::AlreadyBegun) => swath_result::new(SWATH_STATE, 0),
        Err(BeginError::OutOfMemory(_)) => swath_result::new(SWATH_OUT_OF_MEMORY, 0),
    }
}

/// Counts what the pool holds now; all zero before anything was allocated. `len_bytes` is
/// `sizeof(cmt_stats)`: members that the program does not know are left out, and those that the library
/// does not know are zero.
///
/// Errors: `SWATH_NULL`.
///
/// # Safety
/// `len_bytes` can be written from `stats` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_stats_get(stats: *mut cmt_stats, len_bytes: usize) -> swath_result {
    let now = swath_cmt::stats();
    let value = cmt_stats {
        live_bytes: now.live_bytes,
        held_bytes: now.held_bytes,
        segment_bytes: now.segment_bytes,
        cached_bytes: now.cached_bytes,
        hugetlb_1g_bytes: now.hugetlb_1g_bytes,
        hugetlb_2m_bytes: now.hugetlb_2m_bytes,
        thp_bytes: now.thp_bytes,
        small_bytes: now.small_bytes,
        ordered_bytes: now.ordered_bytes,
        arena_bytes: now.arena_bytes,
        remote_frees: now.remote_frees,
        late_double_frees: now.late_double_frees,
        threads: now.threads,
        physical_known: now.physical_known.into(),
        reserve_bytes: now.reserve_bytes,
        reserve_free_bytes: now.reserve_free_bytes,
        reserve_longest_bytes: now.reserve_longest_bytes,
        reserve_free_runs: now.reserve_free_runs,
        reserve_extents: now.reserve_extents,
        dma_heap_bytes: now.dma_heap_bytes,
    };
    if stats.is_null() {
        return swath_result::new(SWATH_NULL, 0);
    }
    let known = len_bytes.min(size_of::<cmt_stats>());
    // SAFETY: the caller's struct has so many bytes.
    unsafe {
        core::ptr::from_ref(&value).cast::<u8>().copy_to_nonoverlapping(stats.cast(), known);
        stats.cast::<u8>().add(known).write_bytes(0, len_bytes - known);
    }
    swath_result::OK
}

/// A piece of a block that is contiguous in physical memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct cmt_extent {
    /// The physical address of its first byte.
    pub address: u64,
    /// Number of its bytes.
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
        let end = offset.saturating_add(len_bytes);
        let mut count = 0;
        let write = |extent: PhysicalExtent| {
            if count < room {
                let extent =
                    cmt_extent { address: extent.address.raw(), len_bytes: extent.len_bytes };
                // SAFETY: there is room for it.
                unsafe { extents.add(count).write(extent) };
            }
            count += 1;
        };
        // SAFETY: as the caller says.
        match unsafe { swath_cmt::extents(block, offset..end, write) } {
            // SAFETY: as the caller says.
            Ok(()) => unsafe { put(found, count) },
            Err(ExtentsError::Empty) => fail(SWATH_EMPTY, 0),
            Err(ExtentsError::Foreign { address }) => fail(SWATH_FOREIGN, address as u64),
            Err(ExtentsError::Outside { usable_bytes }) => fail(SWATH_FOREIGN, usable_bytes as u64),
            Err(ExtentsError::Unknown(_)) => {
                fail(SWATH_DENIED, block.addr().get().wrapping_add(offset) as u64)
            }
        }
    };
    swath_result::of(list())
}

/// Memory that `cmt_pin` holds. The members behind the first are the library's.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct cmt_pinned {
    /// 1 if its frames stay the same; 0 if it only stays in memory: the kernel has no io_uring for this
    /// process, may move it when it compacts memory, and copies it at a write after a fork.
    pub frames_stay: u32,
    /// The ring that it is registered with.
    pub ring: i32,
    /// Its first address.
    pub start: usize,
    /// Number of its bytes.
    pub len_bytes: usize,
}

/// Holds the pages of `len_bytes` bytes from `start` on in their frames until `cmt_unpin`, as far as the
/// kernel has a way; `pinned->frames_stay` says how far. Pages that are not there yet come first.
///
/// Errors: `SWATH_DENIED` with the C library's error number if no memory can be written there, or the
/// process may not lock so much; `SWATH_NULL`.
///
/// # Safety
/// `pinned` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_pin(
    start: *const c_void,
    len_bytes: usize,
    pinned: *mut cmt_pinned,
) -> swath_result {
    if pinned.is_null() {
        return swath_result::new(SWATH_NULL, 0);
    }
    match swath_cmt::pin(start.cast(), len_bytes) {
        Ok(pin) => {
            let frames_stay = (pin.held() == Held::Frames).into();
            let (ring, start, len_bytes) = pin.into_raw();
            let value = cmt_pinned { frames_stay, ring, start, len_bytes };
            // SAFETY: as the caller says.
            swath_result::of(unsafe { put(pinned, value) })
        }
        Err(error) => swath_result::new(SWATH_DENIED, error.errno as u64),
    }
}

/// Lets memory go that `cmt_pin` holds. A second time nothing happens.
///
/// Errors: `SWATH_NULL`.
///
/// # Safety
/// `pinned` is from `cmt_pin`, and can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmt_unpin(pinned: *mut cmt_pinned) -> swath_result {
    // SAFETY: as the caller says.
    let Some(pinned) = (unsafe { pinned.as_mut() }) else {
        return swath_result::new(SWATH_NULL, 0);
    };
    let cmt_pinned { ring, start, len_bytes, .. } = core::mem::take(pinned);
    if len_bytes > 0 {
        // SAFETY: as the caller says.
        drop(unsafe { Pin::from_raw((ring, start, len_bytes)) });
    }
    swath_result::OK
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
    // SAFETY: the caller vouches for the function and its context.
    let known = swath_cmt::areas(|area| unsafe { visit(area.into(), context) });
    swath_result::new(if known.is_ok() { SWATH_OK } else { SWATH_DENIED }, 0)
}
