//! The paper's system: pages are regions of the heap's, and go back with the block in which they lie.

use core::alloc::Layout;
use core::ptr::NonNull;

use swath_arch::{PageRange, Vpn};
use swath_heap::{ByteAllocator, PageSource, SourceError, Tlsf, Trusting};
use swath_region::{
    DenseTree, FramePool, HeapRegions, Quota, RegionError, RegionSpace, Rights, dense_tree_words,
};

use crate::System;
use crate::global::{Global, Place};
use crate::machine::{self, Bus, PAGES_LOG2, POOL, POOL_PAGES, TABLES};

const TREE_WORDS: usize = dense_tree_words(PAGES_LOG2);

type Tree = DenseTree<PAGES_LOG2, TREE_WORDS, [u64; TREE_WORDS]>;

/// The heap's pages, and who makes the accesses that fault.
struct Pages {
    regions: HeapRegions<'static, Bus, Tree, &'static mut [u64]>,
    /// The heap's own accesses fault, to its tags: not a user's.
    for_heap: bool,
}

static PAGES: Global<Pages> = Global::empty();
static FRAMES: Place<FramePool<'static>> = Place::empty();

/// Handles a page fault.
pub fn fault(page: Vpn) -> bool {
    PAGES.with(|pages| match pages.for_heap {
        true => pages.regions.tag(page).is_ok(),
        false => pages.regions.fault(page, Rights::READ).is_ok(),
    })
}

/// The source of the heap's pages: where its tags have none yet, the handler gives them one.
struct Source;

fn range(start: NonNull<u8>, len_bytes: usize) -> PageRange {
    PageRange::new(machine::page_of(start.addr().get()), (len_bytes / 4096) as u64)
}

// SAFETY: a page that is committed can be read and written: the handler gives it a frame at its first
// access. The pool's addresses are the heap's alone.
unsafe impl PageSource for Source {
    fn page_bytes(&self) -> usize {
        4096
    }

    #[inline]
    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        let error = SourceError { address: start.addr().get(), len_bytes };
        PAGES.with(|pages| pages.regions.commit(range(start, len_bytes))).map_err(|_| error)
    }

    #[inline]
    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        let released: Result<(), RegionError> =
            PAGES.with(|pages| pages.regions.release(range(start, len_bytes)));
        // Memory answers.
        released.expect("a region ends");
    }

    fn is_committed(&self, address: usize) -> bool {
        PAGES.with(|pages| pages.regions.space().region_of(machine::page_of(address)).is_some())
    }
}

/// The heap.
pub struct Regions {
    heap: Tlsf<'static, Source, Trusting>,
}

impl Regions {
    /// Makes the space, its regions and the heap. To be called once.
    ///
    /// # Panics
    /// If the parts do not fit together.
    pub fn start() -> Self {
        // SAFETY: it is called once.
        let (headers, words, links) = unsafe { machine::storage() };
        let frames = FramePool::new(POOL, links).expect("links enough");
        // SAFETY: as above.
        let frames: &FramePool<'_> = unsafe { FRAMES.put(frames) };
        let tree = Tree::new([0; TREE_WORDS]);
        let space =
            RegionSpace::new(Bus, TABLES, tree, headers, frames, Quota::OPEN).expect("a space");
        let regions = HeapRegions::new(space, frames, POOL_PAGES, words).expect("regions");
        PAGES.set(Pages { regions, for_heap: true });
        machine::set_unit(TABLES);
        let (start, len_bytes) = machine::pool();
        let mut heap = Tlsf::over(Source, 0);
        // SAFETY: these addresses are nobody else's, and the source commits them.
        unsafe { heap.add_pool_at(start, len_bytes).expect("a pool") };
        PAGES.with(|pages| pages.for_heap = false);
        Self { heap }
    }

    /// Calls the heap, whose own accesses may fault.
    #[inline]
    fn call<R>(&mut self, f: impl FnOnce(&mut Tlsf<'static, Source, Trusting>) -> R) -> R {
        PAGES.with(|pages| pages.for_heap = true);
        let result = f(&mut self.heap);
        PAGES.with(|pages| pages.for_heap = false);
        result
    }
}

impl System for Regions {
    #[inline(never)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.call(|heap| heap.allocate(layout).ok())
    }

    #[inline(never)]
    unsafe fn free(&mut self, at: NonNull<u8>, _: u64) -> bool {
        // SAFETY: the contract of this function.
        self.call(|heap| unsafe { heap.free(at).is_ok() })
    }

    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> usize {
        // SAFETY: the contract of this function.
        unsafe { self.heap.usable_bytes(at) }.unwrap_or(0)
    }

    fn mapped_pages(&self) -> u32 {
        PAGES.with(|pages| pages.regions.space().frames_used())
    }

    fn check(&self) -> bool {
        self.heap.check().is_ok() && PAGES.with(|pages| pages.regions.space().check().is_ok())
    }
}
