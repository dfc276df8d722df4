//! Heaps through the C interface: of the storage that they are given, and over a source of pages.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use ::swath_heap::conformance::Plan;
use ::swath_heap::{ByteAllocator, ResizeBytesError};
use swath::swath_status::*;
use swath::*;
use swath_arch::testing::few;

use super::storage;

struct CHeap(*mut swath_heap);

// SAFETY: the heap behind it is a `ByteAllocator`.
unsafe impl ByteAllocator for CHeap {
    fn allocate(
        &mut self,
        layout: Layout,
    ) -> Result<NonNull<u8>, ::swath_heap::AllocateBytesError> {
        let mut block = ptr::null_mut();
        // SAFETY: an object of the library.
        let result =
            unsafe { swath_heap_allocate(self.0, layout.size(), layout.align(), &mut block) };
        if result.status == SWATH_OK {
            return Ok(NonNull::new(block.cast()).expect("a block"));
        }
        Err(alloc_error(result, layout))
    }

    unsafe fn free(&mut self, at: NonNull<u8>) -> Result<(), ::swath_heap::FreeBytesError> {
        // SAFETY: as the caller says.
        let result = unsafe { swath_heap_free(self.0, at.as_ptr().cast()) };
        if result.status == SWATH_OK { Ok(()) } else { Err(pointer_error(result)) }
    }

    unsafe fn resize(
        &mut self,
        at: NonNull<u8>,
        layout: Layout,
    ) -> Result<NonNull<u8>, ResizeBytesError> {
        let mut block = at.as_ptr().cast();
        // SAFETY: as the caller says.
        let result =
            unsafe { swath_heap_resize(self.0, layout.size(), layout.align(), &mut block) };
        match result.status {
            SWATH_OK => Ok(NonNull::new(block.cast()).expect("a block")),
            SWATH_TOO_LARGE | SWATH_OUT_OF_MEMORY => {
                Err(ResizeBytesError::Allocate(alloc_error(result, layout)))
            }
            _ => Err(ResizeBytesError::Free(pointer_error(result))),
        }
    }

    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> Result<usize, ::swath_heap::FreeBytesError> {
        // SAFETY: as the caller says.
        Ok(unsafe { swath_heap_usable_bytes(self.0, at.as_ptr().cast()) })
    }

    fn largest_bytes(&self) -> Option<usize> {
        // SAFETY: an object of the library.
        let largest = unsafe { swath_heap_largest_bytes(self.0) };
        (largest > 0).then_some(largest)
    }
}

fn alloc_error(result: swath_result, layout: Layout) -> ::swath_heap::AllocateBytesError {
    let (size_bytes, align_bytes) = (layout.size(), layout.align());
    match result.status {
        SWATH_TOO_LARGE => ::swath_heap::AllocateBytesError::TooLarge { size_bytes, align_bytes },
        SWATH_OUT_OF_MEMORY => ::swath_heap::AllocateBytesError::OutOfMemory {
            size_bytes,
            largest_bytes: result.at as usize,
        },
        other => panic!("{other:?}"),
    }
}

fn pointer_error(result: swath_result) -> ::swath_heap::FreeBytesError {
    let address = result.at as usize;
    match result.status {
        SWATH_MISALIGNED => ::swath_heap::FreeBytesError::Misaligned { address },
        SWATH_FOREIGN => ::swath_heap::FreeBytesError::Foreign { address },
        SWATH_NOT_ALLOCATED => ::swath_heap::FreeBytesError::NotAllocated { address },
        other => panic!("{other:?}"),
    }
}

/// A source that knows its pages.
#[derive(Default)]
struct Source {
    committed: BTreeSet<usize>,
}

const PAGE: usize = 4096;

fn pages(start: *mut c_void, len: usize) -> impl Iterator<Item = usize> {
    (start.addr()..start.addr() + len).step_by(PAGE)
}

unsafe extern "C" fn commit(context: *mut c_void, start: *mut c_void, len: usize) -> i32 {
    // SAFETY: the source below.
    let source = unsafe { &mut *context.cast::<Source>() };
    assert!(pages(start, len).all(|page| source.committed.insert(page)));
    0
}

unsafe extern "C" fn release(context: *mut c_void, start: *mut c_void, len: usize) {
    // SAFETY: the source below.
    let source = unsafe { &mut *context.cast::<Source>() };
    assert!(pages(start, len).all(|page| source.committed.remove(&page)));
    // SAFETY: the pages are nobody's now.
    unsafe { start.write_bytes(0x55, len) };
}

unsafe extern "C" fn is_committed(context: *mut c_void, address: *const c_void) -> i32 {
    // SAFETY: the source below.
    let source = unsafe { &*context.cast::<Source>() };
    source.committed.contains(&(address.addr() & !(PAGE - 1))).into()
}

#[test]
fn heaps_conform() {
    for fit in [0, 1] {
        for over_pages in [false, true] {
            let mut counts = Source::default();
            let source = swath_page_source {
                commit: Some(commit),
                release: Some(release),
                is_committed: Some(is_committed),
                context: (&raw mut counts).cast(),
                page_bytes: PAGE,
            };
            let source = if over_pages { &raw const source } else { ptr::null() };
            let (at, len) = storage(swath_heap_storage_bytes(), 2);
            let mut heap = ptr::null_mut();
            // SAFETY: storage as was asked for; the source outlives the heap.
            let made = unsafe { swath_heap_create(fit, source, 7, at, len, &mut heap) };
            assert_eq!(made.status, SWATH_OK);
            let pool = vec![MaybeUninit::<u8>::uninit(); 17 * PAGE].leak();
            let start = pool.as_mut_ptr().wrapping_add(pool.as_ptr().align_offset(PAGE));
            // SAFETY: sixteen pages of the pool.
            let added = unsafe { swath_heap_add_pool(heap, start.cast(), 16 * PAGE) };
            assert_eq!(added.status, SWATH_OK);
            let whole = CHeap(heap).largest_bytes();
            for seed in 1..=few(2) {
                let steps = few(2000) as usize;
                let plan =
                    Plan { seed, steps, size_bytes_max: 8192, align_log2_max: 8, blocks: 30 };
                let done = ::swath_heap::conformance::conform(
                    &mut CHeap(heap),
                    plan,
                    &mut |_, _, place| {
                        // SAFETY: an object of the library.
                        assert_eq!(unsafe { swath_heap_check(heap) }.status, SWATH_OK, "{place}");
                    },
                );
                let arose = done.allocated > 100 && done.refused > 0;
                assert!(arose || cfg!(miri), "{done:?}");
            }
            assert_eq!(CHeap(heap).largest_bytes(), whole);
            assert_eq!(counts.committed.len(), if over_pages { 2 } else { 0 });
        }
    }
}
