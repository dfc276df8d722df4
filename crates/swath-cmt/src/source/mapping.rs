//! Mappings of the process.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};
use core::{ptr, slice};

use swath_arch::BASE_PAGE_BYTES;

use crate::physical::file::File;
use crate::source::chunk::CHUNK_BYTES;

/// Moves a mapping to a fixed address.
pub(crate) const MOVE: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;

/// Unmaps what [`map`] mapped.
///
/// # Safety
/// Nothing uses it.
pub(crate) unsafe fn unmap(at: *mut u8, len_bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(at.cast(), len_bytes) };
}

/// Maps zeroed memory, or reserves addresses with `PROT_NONE`.
pub(crate) fn map(len_bytes: usize, access: i32) -> Option<*mut u8> {
    map_as(len_bytes, access, libc::MAP_NORESERVE)
}

/// Maps pages of a hugetlb pool anywhere, untouched; `flags` say of which size, and may say that none is
/// promised.
pub(crate) fn map_huge(len_bytes: usize, flags: i32) -> Option<*mut u8> {
    map_as(len_bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_HUGETLB | flags)
}

/// Maps a file for reading and writing, shared with whoever else has it.
pub(crate) fn map_file(file: &File, len_bytes: usize) -> Option<*mut u8> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping where the kernel wants it.
    let at = unsafe { libc::mmap(ptr::null_mut(), len_bytes, access, flags, file.number(), 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

fn map_as(len_bytes: usize, access: i32, more_flags: i32) -> Option<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more_flags;
    // SAFETY: a new mapping where the kernel wants it.
    let at = unsafe { libc::mmap(ptr::null_mut(), len_bytes, access, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Makes a part of a reservation reserved addresses without pages again, and returns true if it is so.
///
/// # Safety
/// Nothing uses it.
pub(crate) unsafe fn reserve_again(at: *mut u8, len_bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: as the caller says.
    let got = unsafe { libc::mmap(at.cast(), len_bytes, libc::PROT_NONE, flags, -1, 0) };
    got != libc::MAP_FAILED
}

/// Gives pages back to the system, as far as it takes them; their addresses stay.
///
/// # Safety
/// The range is mapped, and nothing uses what is there.
pub(crate) unsafe fn give_back(at: *mut u8, len_bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { libc::madvise(at.cast(), len_bytes, libc::MADV_DONTNEED) };
}

/// Moves pages to reserved addresses, and returns true if they are there.
///
/// # Safety
/// The pages are mapped and the caller's, and nothing uses the addresses.
pub(crate) unsafe fn move_pages(from: *mut u8, to: *mut u8, len_bytes: usize) -> bool {
    // SAFETY: as the caller says.
    let moved = unsafe { libc::mremap(from.cast(), len_bytes, len_bytes, MOVE, to) };
    moved != libc::MAP_FAILED
}

/// Makes reserved addresses usable, and returns true if transparent huge pages were asked for, as `thp`
/// wants; `None` if it could not.
///
/// # Safety
/// The range is mapped, and nothing uses it yet.
pub(crate) unsafe fn make_usable(at: *mut u8, len_bytes: usize, thp: bool) -> Option<bool> {
    // SAFETY: as the caller says.
    if unsafe { libc::mprotect(at.cast(), len_bytes, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        return None;
    }
    // SAFETY: as above; advice changes no contents.
    Some(thp && unsafe { libc::madvise(at.cast(), len_bytes, libc::MADV_HUGEPAGE) } == 0)
}

/// Waits until pages that the kernel is about to move are there, and returns true if all can be read. Any
/// addresses may be tried.
pub(crate) fn wait_for_pages(address: usize, pages: usize) -> bool {
    let len_bytes = pages * BASE_PAGE_BYTES as usize;
    let at = ptr::without_provenance_mut::<c_void>(
        address / BASE_PAGE_BYTES as usize * BASE_PAGE_BYTES as usize,
    );
    // SAFETY: contents stay as they are; where nothing is mapped nothing happens.
    unsafe { libc::madvise(at, len_bytes, libc::MADV_POPULATE_READ) == 0 }
}

/// Returns the bytes of a chunk that are in memory; 0 if the kernel does not say.
///
/// # Safety
/// It is mapped.
pub(crate) unsafe fn resident(at: *mut u8) -> usize {
    const PAGES: usize = CHUNK_BYTES / BASE_PAGE_BYTES as usize;
    let mut pages = [0_u8; PAGES];
    // SAFETY: as the caller says; a byte is written for each page.
    if unsafe { libc::mincore(at.cast(), CHUNK_BYTES, pages.as_mut_ptr().cast()) } != 0 {
        return 0;
    }
    pages.iter().filter(|&&page| page & 1 != 0).count() * BASE_PAGE_BYTES as usize
}

/// Asks for transparent huge pages in place of the small ones of memory in use, and returns true if the
/// kernel takes the advice; pages may come later then.
///
/// # Safety
/// The range is mapped, readable and writable.
pub(crate) unsafe fn make_huge(at: *mut u8, len_bytes: usize) -> bool {
    const MADV_COLLAPSE: i32 = 25;
    // SAFETY: as the caller says; contents stay as they are.
    unsafe {
        let advised = libc::madvise(at.cast(), len_bytes, libc::MADV_HUGEPAGE) == 0;
        if advised {
            // A kernel without this advice (before Linux 6.1) does so in time.
            libc::madvise(at.cast(), len_bytes, MADV_COLLAPSE);
        }
        advised
    }
}

/// Keeps mapped memory from the children of forks, or no longer, and returns true if it is so. A kernel that
/// knows no such advice lets children have it.
///
/// # Safety
/// The range is the caller's.
pub(crate) unsafe fn keep_from_children(at: *mut u8, len_bytes: usize, keep: bool) -> bool {
    let advice = if keep { libc::MADV_DONTFORK } else { libc::MADV_DOFORK };
    // SAFETY: as the caller says.
    unsafe { libc::madvise(at.cast(), len_bytes, advice) == 0 }
}

/// Bytes that are touched at once: others wait for the process's mappings meanwhile.
const TOUCH_BYTES: usize = 2 << 20;

/// Touches memory, with what it holds, and returns true if all of it is there. Of a hugetlb pool's page
/// `is_pooled` says that it is one: it may not come.
///
/// # Safety
/// The range is mapped, readable and writable, as it will be all the time.
pub(crate) unsafe fn touch(at: *mut u8, len_bytes: usize, is_pooled: bool) -> bool {
    (0..len_bytes).step_by(TOUCH_BYTES).all(|offset| {
        let len = TOUCH_BYTES.min(len_bytes - offset);
        let at = at.wrapping_add(offset).cast::<c_void>();
        if !is_pooled {
            // A huge page comes while others may change mappings, which they may not below.
            // SAFETY: as the caller says; written as it is, by one instruction.
            unsafe { (*at.cast::<AtomicU8>()).fetch_add(0, Relaxed) };
        }
        // SAFETY: as the caller says; contents stay as they are.
        unsafe { libc::madvise(at, len, libc::MADV_POPULATE_WRITE) == 0 }
    })
}

/// Puts pages of a hugetlb pool, of a size that `flags` say, at a reserved place, and returns
/// true if there were any.
pub(crate) fn place_huge(at: *mut u8, len_bytes: usize, flags: i32) -> bool {
    // Not `MAP_FIXED` at once: on failure the reservation would be gone.
    let Some(pages) = map_huge(len_bytes, flags) else { return false };
    // SAFETY: the pages are new and move to reserved addresses that nobody uses.
    let moved = unsafe { move_pages(pages, at, len_bytes) };
    if !moved {
        // SAFETY: mapped just now.
        unsafe { unmap(pages, len_bytes) };
    }
    moved
}

/// Mappings made so far for tables; they are unmapped if this is dropped before it is
/// [kept](Self::keep).
#[derive(Default)]
pub(crate) struct Mapped {
    ranges: [(usize, usize); 16],
    count: usize,
}

impl Mapped {
    pub(crate) fn map(&mut self, bytes: usize, access: i32) -> Option<*mut u8> {
        let range = self.ranges.get_mut(self.count)?;
        let at = map(bytes, access)?;
        *range = (at.expose_provenance(), bytes);
        self.count += 1;
        Some(at)
    }

    /// Maps a table of zeroed records.
    pub(crate) fn table<T: Zeroed>(&mut self, count: usize) -> Option<&'static mut [T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        let at = self.map(bytes, libc::PROT_READ | libc::PROT_WRITE)?.cast::<T>();
        // SAFETY: mapped for this, so page-aligned and zeroed; unmapped only if what uses it was not
        // made.
        Some(unsafe { slice::from_raw_parts_mut(at, count) })
    }

    /// Keeps the mappings for as long as the process lives.
    pub(crate) fn keep(mut self) {
        self.count = 0;
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for &(at, bytes) in &self.ranges[..self.count] {
            // SAFETY: mapped above, and what would use it was not made.
            unsafe { unmap(ptr::with_exposed_provenance_mut(at), bytes) };
        }
    }
}

/// A record that may be all zeroes, aligned to no more than a page.
///
/// # Safety
/// Zeroed bytes are a value of it.
pub(crate) unsafe trait Zeroed {}

// SAFETY: plain numbers.
unsafe impl Zeroed for u8 {}
// SAFETY: as above.
unsafe impl Zeroed for u32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for u64 {}
// SAFETY: as above.
unsafe impl Zeroed for [u64; 2] {}
// SAFETY: any bytes are.
unsafe impl<T> Zeroed for MaybeUninit<T> {}
