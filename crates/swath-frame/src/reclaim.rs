//! A hook that is asked for memory before a request is refused.

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::hardening::WordFault;

/// Times that a request is tried again, at most: a hook that promises more each time and gives nothing
/// must not hold its caller for ever.
const ATTEMPTS: u32 = 16;

/// An allocator that asks `F` to reclaim memory before it refuses a request.
///
/// `F` is called with the allocator, which is whole, and with what it would refuse: it frees frames (caches
/// that can be dropped, pages that can be moved) and returns true if the request is worth another try. No lock
/// of the allocator is held meanwhile: over a [`Front`](crate::front::Front), whose views for each CPU are allocators,
/// the hook may allocate, free and wait.
///
/// # Examples
/// A page cache that gives one page for each page that is missing:
/// ```
/// use swath_arch::{Extent, Pfn};
/// use swath_frame::reclaim::Reclaiming;
/// use swath_frame::{BuddyConfig, ByteRange, FrameAllocateError, FrameAllocator, MemoryMap, PageBuddy};
///
/// let mut areas = [Extent::default()];
/// let all = Extent::new(Pfn::new(0), 64);
/// let map = MemoryMap::new(&[ByteRange::of_frames(all)], &mut areas).unwrap();
/// let words = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, BuddyConfig::BBS)];
/// let mut frames = PageBuddy::<_>::new(&map, BuddyConfig::BBS, words).unwrap();
///
/// let mut cache: Vec<Pfn> = (0..60).filter_map(|_| frames.allocate_frame()).collect();
/// let mut frames = Reclaiming::new(frames, |frames: &mut PageBuddy<_>, refused| {
///     let FrameAllocateError::OutOfFrames { wanted, free } = refused else { return false };
///     let missing = (wanted - free) as usize;
///     let dropped = cache.drain(..missing.min(cache.len()));
///     dropped.map(|page| frames.free_frame(page)).filter(Result::is_ok).count() == missing
/// });
/// let mut taken = 0;
/// frames.allocate(30, &mut |block| taken += block.count).unwrap();
/// assert_eq!((taken, frames.free_frames()), (30, 0));
/// // Of the cache 34 pages are left: too few.
/// assert!(frames.allocate(40, &mut |_| ()).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Reclaiming<A, F> {
    allocator: A,
    reclaim: F,
}

impl<A: FrameAllocator, F: FnMut(&mut A, FrameAllocateError) -> bool> Reclaiming<A, F> {
    /// Puts a hook before the refusals of an allocator.
    pub const fn new(allocator: A, reclaim: F) -> Self {
        Self { allocator, reclaim }
    }

    /// Returns the allocator.
    pub fn into_inner(self) -> A {
        self.allocator
    }

    /// Tries again while the hook says that it is worth it.
    fn insist<T>(
        &mut self,
        mut ask: impl FnMut(&mut A) -> Result<T, FrameAllocateError>,
    ) -> Result<T, FrameAllocateError> {
        let mut answer = ask(&mut self.allocator);
        for _ in 0..ATTEMPTS {
            match answer {
                Err(
                    refused @ (FrameAllocateError::OutOfFrames { .. }
                    | FrameAllocateError::NoBlock { .. }),
                ) if (self.reclaim)(&mut self.allocator, refused) => {}
                _ => break,
            }
            answer = ask(&mut self.allocator);
        }
        answer
    }
}

impl<A, F> FrameAllocator for Reclaiming<A, F>
where
    A: FrameAllocator,
    F: FnMut(&mut A, FrameAllocateError) -> bool,
{
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if frames_max == 0 {
            return None;
        }
        let none = FrameAllocateError::OutOfFrames { wanted: 1, free: 0 };
        self.insist(|allocator| allocator.allocate_block(frames_max).ok_or(none)).ok()
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.insist(|allocator| allocator.allocate_aligned(order))
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.allocator.free(extent)
    }

    fn free_frames(&self) -> u64 {
        self.allocator.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.allocator.total_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.allocator.for_each_free(visit);
    }

    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        self.insist(|allocator| allocator.allocate(count_frames, sink))
    }

    fn allocate_frame(&mut self) -> Option<Pfn> {
        let none = FrameAllocateError::OutOfFrames { wanted: 1, free: 0 };
        self.insist(|allocator| allocator.allocate_frame().ok_or(none)).ok()
    }

    fn fault(&self) -> Option<WordFault> {
        self.allocator.fault()
    }
}
