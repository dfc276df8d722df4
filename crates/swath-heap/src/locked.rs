//! A heap behind a lock, as a program's global allocator.

use core::alloc::{GlobalAlloc, Layout};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::allocator::ByteAllocator;
use crate::error::{FreeBytesError, HeapPoolError, ResizeBytesError};
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::Resident;
use crate::pool::record::PoolId;

/// A byte allocator `A` behind a lock of the caller's type `R`.
///
/// ```
/// use std::alloc::{GlobalAlloc, Layout};
/// use std::mem::MaybeUninit;
/// use swath_heap::{LockedHeap, Tlsf};
/// # use std::sync::atomic::{AtomicBool, Ordering};
/// # struct Spin(AtomicBool);
/// # // SAFETY: only one thread changes the flag from false to true at a time.
/// # unsafe impl lock_api::RawMutex for Spin {
/// #     const INIT: Self = Self(AtomicBool::new(false));
/// #     type GuardMarker = lock_api::GuardSend;
/// #     fn lock(&self) { while !self.try_lock() {} }
/// #     fn try_lock(&self) -> bool { !self.0.swap(true, Ordering::Acquire) }
/// #     unsafe fn unlock(&self) { self.0.store(false, Ordering::Release) }
/// # }
///
/// // `#[global_allocator]` would stand here; `Spin` is any `RawMutex`.
/// static HEAP: LockedHeap<Spin, Tlsf<'static>> = LockedHeap::new(Tlsf::new());
///
/// let pool = Box::leak(Box::new([MaybeUninit::uninit(); 4096]));
/// HEAP.add_pool(pool).expect("long enough");
/// let layout = Layout::new::<u64>();
/// // SAFETY: the layout has a size; the block is freed once, with its layout.
/// unsafe {
///     let at = HEAP.alloc(layout);
///     at.cast::<u64>().write(1);
///     HEAP.dealloc(at, layout);
/// }
/// assert_eq!(HEAP.last_refused(), None);
/// ```
pub struct LockedHeap<R, A> {
    inner: Mutex<R, Guarded<A>>,
}

struct Guarded<A> {
    heap: A,
    refused: Option<FreeBytesError>,
}

impl<R: RawMutex, A: fmt::Debug> fmt::Debug for LockedHeap<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner.try_lock() {
            Some(inner) => inner.heap.fmt(f),
            None => f.write_str("a heap, locked"),
        }
    }
}

impl<R: RawMutex, A> LockedHeap<R, A> {
    /// Puts `heap` behind a lock.
    pub const fn new(heap: A) -> Self {
        Self { inner: Mutex::new(Guarded { heap, refused: None }) }
    }

    /// Locks the heap: to walk it, to check it. The guard must
    /// be gone before the thread allocates.
    pub fn lock(&self) -> impl core::ops::Deref<Target = A> + '_ {
        MutexGuard::map(self.inner.lock(), |guarded| &mut guarded.heap)
    }

    /// Locks the heap to change it.
    ///
    /// Not in safe code, which could put another heap in its place:
    ///
    /// ```compile_fail,E0594
    /// use swath_heap::{LockedHeap, Tlsf};
    ///
    /// fn hurt<R: lock_api::RawMutex>(heap: &LockedHeap<R, Tlsf<'static>>) {
    ///     *heap.lock() = Tlsf::new();
    /// }
    /// ```
    ///
    /// # Safety
    /// The same heap stands there when the guard goes, not another in its place: blocks that are in use
    /// come back to it.
    pub unsafe fn lock_mut(&self) -> impl core::ops::DerefMut<Target = A> + '_ {
        MutexGuard::map(self.inner.lock(), |guarded| &mut guarded.heap)
    }

    /// Returns the reason why a pointer was last refused, if one ever was: [`GlobalAlloc`] has no
    /// way to say so. A refusal changes nothing.
    pub fn last_refused(&self) -> Option<FreeBytesError> {
        self.inner.lock().refused
    }
}

impl<'p, R: RawMutex, F: Fit, H: Hardening> LockedHeap<R, Heap<'p, F, Resident, H>> {
    /// Adds memory to the heap, as [`Heap::add_pool`].
    ///
    /// # Errors
    /// A [`HeapPoolError`]; nothing changes.
    pub fn add_pool(&self, pool: &'p mut [MaybeUninit<u8>]) -> Result<PoolId, HeapPoolError> {
        self.inner.lock().heap.add_pool(pool)
    }
}

// SAFETY: `ByteAllocator` promises what `GlobalAlloc` wants of `alloc` and
// `realloc`, under a lock; nothing unwinds and nothing allocates under it.
unsafe impl<R: RawMutex, A: ByteAllocator> GlobalAlloc for LockedHeap<R, A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.inner.lock().heap.allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
        let Some(at) = NonNull::new(at) else { return };
        let mut inner = self.inner.lock();
        // SAFETY: the caller allocated it here and frees it.
        if let Err(error) = unsafe { inner.heap.free(at) } {
            inner.refused = Some(error);
        }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(at) = NonNull::new(at) else { return ptr::null_mut() };
        let Ok(layout) = Layout::from_size_align(new_size, layout.align()) else {
            return ptr::null_mut();
        };
        let mut inner = self.inner.lock();
        // SAFETY: the caller allocated it here, and uses only the result if this succeeds.
        match unsafe { inner.heap.resize(at, layout) } {
            Ok(at) => at.as_ptr(),
            Err(error) => {
                if let ResizeBytesError::Free(error) = error {
                    inner.refused = Some(error);
                }
                ptr::null_mut()
            }
        }
    }
}
