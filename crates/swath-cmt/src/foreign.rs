//! A library that overrides `malloc`: pointers of the C library's own heap come to it.

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

/// The functions for blocks that are none of this crate's. Each may be given any pointer that is not null.
pub struct Foreign {
    /// Frees a block, and returns true, if it knows it.
    pub free: unsafe fn(NonNull<u8>) -> bool,
    /// Resizes a block and returns its place, or null without the memory; `None` if it does not know it.
    pub resize: unsafe fn(NonNull<u8>, usize) -> Option<*mut u8>,
    /// Returns the bytes of a block that may be used; 0 if it does not know it.
    pub usable_size: fn(NonNull<u8>) -> usize,
}

static FOREIGN: AtomicPtr<Foreign> = AtomicPtr::new(ptr::null_mut());

/// Says that the program's `malloc` is overridden by a library over this crate, which knows other blocks.
/// Its programs know nothing of this crate, so the meaning of
/// [`Populate::Default`](crate::Populate::Default) and [`Hugetlb::Default`](crate::Hugetlb::Default)
/// changes: no memory is touched before they touch it, and the kernel's hugetlb pools are left to those
/// for whom they were made.
pub fn override_malloc(foreign: &'static Foreign) {
    FOREIGN.store(ptr::from_ref(foreign).cast_mut(), Release);
}

/// Returns the functions for other blocks, in a library that overrides `malloc`.
pub(crate) fn foreign() -> Option<&'static Foreign> {
    // SAFETY: null, or a reference that lives as long as the process.
    unsafe { FOREIGN.load(Acquire).as_ref() }
}
