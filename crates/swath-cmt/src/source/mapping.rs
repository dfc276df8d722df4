//! Mappings of the process.

use core::ptr;

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
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel wants it.
    let at = unsafe { libc::mmap(ptr::null_mut(), len_bytes, access, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Puts pages of a hugetlb pool, of a size and perhaps populated, at a reserved place, and returns
/// true if there were any.
pub(crate) fn map_huge(at: *mut u8, len_bytes: usize, more_flags: i32) -> bool {
    // Not `MAP_FIXED` at once: on failure the reservation would be gone.
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | more_flags;
    // SAFETY: a new mapping where the kernel wants it.
    let pages = unsafe { libc::mmap(ptr::null_mut(), len_bytes, access, flags, -1, 0) };
    if pages == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the pages are new and move to reserved addresses that nobody uses.
    let moved = unsafe { libc::mremap(pages, len_bytes, len_bytes, MOVE, at) };
    if moved == libc::MAP_FAILED {
        // SAFETY: mapped just now.
        unsafe { libc::munmap(pages, len_bytes) };
        return false;
    }
    true
}
