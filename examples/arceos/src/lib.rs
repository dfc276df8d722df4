//! Swath's global bitmap as a page allocator of ArceOS.
//!
//! [`ContiguousPages`] implements `PageAllocator` of the published crate `axallocator` over
//! [`GlobalBitmap`]: a run of any length is found in O(log n) for n pages, at any alignment or at one address, and
//! any part of what was handed out comes back by itself. Memory may come late
//! ([`add_memory`](BaseAllocator::add_memory)), in any order. The storage is the caller's.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use axallocator::{AllocError, AllocResult, BaseAllocator, PageAllocator};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::BuildError;
use swath_frame::map::MemoryMapError;
use swath_frame::segment::{
    Area, AreaSpace, FrameSupply, GlobalBitmap, Segment, SegmentAllocator, SegmentRequest,
};

/// The largest alignment, in bytes. Pages are numbered from a multiple of it.
pub const ALIGN_MAX: usize = 1 << 30;
/// The most pieces of memory that do not touch.
pub const PIECES_MAX: usize = 64;

/// A page allocator over memory within some span of addresses.
///
/// Invariants: the pieces ascend and do not touch; a page that is free in the bitmap lies in one.
#[derive(Debug)]
pub struct ContiguousPages<'s, const PAGE_SIZE: usize> {
    /// Pages that are not there are handed out, to nobody.
    bitmap: GlobalBitmap<'s, &'s mut [u64]>,
    /// The address of page 0; `None` while there is no memory.
    base: Option<usize>,
    pieces: [Segment; PIECES_MAX],
    count: usize,
    total: u64,
}

/// Reasons why there is no allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpanError {
    /// There is no page in the span, or its pages cannot be numbered.
    #[error(transparent)]
    Span(#[from] MemoryMapError),
    /// There are too few words, or too many pages for one bitmap.
    #[error(transparent)]
    Storage(#[from] BuildError),
}

fn space(span_pages: u64, area: &mut [Area; 1]) -> Result<AreaSpace<'_>, MemoryMapError> {
    let all = Extent::new(Pfn::new(0), span_pages);
    AreaSpace::new(&[all], Order::BASE, area)
}

/// Returns the words of storage for memory that spans so many pages: some 1.3 bits for each.
///
/// # Errors
/// [`MemoryMapError`] if there is no page, or if there are more than can be numbered.
pub fn storage_words(span_pages: u64) -> Result<usize, MemoryMapError> {
    let mut area = [Area::default()];
    Ok(GlobalBitmap::<&mut [u64]>::storage_words(&space(span_pages, &mut area)?))
}

impl<'s, const PAGE_SIZE: usize> ContiguousPages<'s, PAGE_SIZE> {
    /// Makes an allocator without memory. What it is given will span `span_pages` pages at most, from the
    /// multiple of [`ALIGN_MAX`] on below which the first memory begins. O(words).
    ///
    /// # Errors
    /// [`SpanError`].
    pub fn new(
        span_pages: u64,
        area: &'s mut [Area; 1],
        words: &'s mut [u64],
    ) -> Result<Self, SpanError> {
        const { assert!(PAGE_SIZE.is_power_of_two() && PAGE_SIZE <= ALIGN_MAX) };
        let space = space(span_pages, area)?;
        let mut bitmap = GlobalBitmap::new(space, FrameSupply::PreAllocated, words)?;
        // All of it is free: what is not there goes to nobody.
        let all = bitmap.allocate(&SegmentRequest::new(span_pages));
        debug_assert!(all.is_ok());
        let pieces = [Segment::new(0, 0); PIECES_MAX];
        Ok(Self { bitmap, base: None, pieces, count: 0, total: 0 })
    }

    /// Returns the pages of the longest free run. O(1).
    pub fn longest_pages(&self) -> usize {
        self.bitmap.largest_frames() as usize
    }

    fn pieces(&self) -> &[Segment] {
        &self.pieces[..self.count]
    }

    /// Returns the pages from an address on, if they can be numbered.
    fn pages(&self, start: usize, count: usize) -> Option<Segment> {
        let offset = start.checked_sub(self.base?)?;
        let segment = Segment::new((offset / PAGE_SIZE) as u64, count as u64);
        let fits = segment.checked_end()? <= self.bitmap.space().total_frames();
        (offset.is_multiple_of(PAGE_SIZE) && fits && count > 0).then_some(segment)
    }

    /// Adds a piece, joined with those that it touches.
    fn enter(&mut self, piece: Segment) -> AllocResult {
        let end = |segment: &Segment| segment.start + segment.count;
        let behind = self.pieces().partition_point(|other| other.start < piece.start);
        let touches_before = behind > 0 && end(&self.pieces[behind - 1]) >= piece.start;
        let touches_next = behind < self.count && self.pieces[behind].start <= end(&piece);
        let overlaps = (touches_before && end(&self.pieces[behind - 1]) > piece.start)
            || (touches_next && self.pieces[behind].start < end(&piece));
        if overlaps {
            return Err(AllocError::MemoryOverlap);
        }
        match (touches_before, touches_next) {
            (false, false) => {
                if self.count == PIECES_MAX {
                    return Err(AllocError::NoMemory);
                }
                self.pieces.copy_within(behind..self.count, behind + 1);
                self.pieces[behind] = piece;
                self.count += 1;
            }
            (true, false) => self.pieces[behind - 1].count += piece.count,
            (false, true) => {
                let next = &mut self.pieces[behind];
                *next = Segment::new(piece.start, piece.count + next.count);
            }
            (true, true) => {
                self.pieces[behind - 1].count += piece.count + self.pieces[behind].count;
                self.pieces.copy_within(behind + 1..self.count, behind);
                self.count -= 1;
            }
        }
        self.total += piece.count;
        Ok(())
    }

    fn take(&mut self, request: &SegmentRequest) -> AllocResult<usize> {
        let base = self.base.ok_or(AllocError::NoMemory)?;
        let segment = self.bitmap.allocate(request).map_err(|_| AllocError::NoMemory)?;
        Ok(base + segment.start as usize * PAGE_SIZE)
    }
}

/// Returns the order in pages of an alignment in bytes.
fn align_order<const PAGE_SIZE: usize>(align: usize) -> AllocResult<Order> {
    if !align.is_power_of_two() || !(PAGE_SIZE..=ALIGN_MAX).contains(&align) {
        return Err(AllocError::InvalidParam);
    }
    Ok(Order::known((align / PAGE_SIZE).trailing_zeros() as u8))
}

impl<const PAGE_SIZE: usize> BaseAllocator for ContiguousPages<'_, PAGE_SIZE> {
    /// Adds the first memory. The trait has no error here: memory that cannot be numbered stays away.
    fn init(&mut self, start: usize, size: usize) {
        let _ = self.add_memory(start, size);
    }

    /// Adds the whole pages of memory, now or late.
    ///
    /// # Errors
    /// `InvalidParam` if it lies outside the span, or has no whole page; `MemoryOverlap`; `NoMemory` if there
    /// are too many pieces. Nothing has changed then.
    fn add_memory(&mut self, start: usize, size: usize) -> AllocResult {
        let invalid = AllocError::InvalidParam;
        let Some(end) = start.checked_add(size).map(|end| end / PAGE_SIZE * PAGE_SIZE) else {
            return Err(invalid);
        };
        let Some(start) = start.checked_next_multiple_of(PAGE_SIZE).filter(|&start| start < end)
        else {
            return Err(invalid);
        };
        let before = self.base;
        self.base.get_or_insert(start / ALIGN_MAX * ALIGN_MAX);
        let Some(piece) = self.pages(start, (end - start) / PAGE_SIZE) else {
            self.base = before;
            return Err(invalid);
        };
        self.enter(piece)?;
        let entered = self.bitmap.free_part(piece);
        debug_assert!(entered.is_ok());
        Ok(())
    }
}

impl<const PAGE_SIZE: usize> PageAllocator for ContiguousPages<'_, PAGE_SIZE> {
    const PAGE_SIZE: usize = PAGE_SIZE;

    /// Allocates the lowest run that is long enough. O(log n) for n pages.
    fn alloc_pages(&mut self, num_pages: usize, align_pow2: usize) -> AllocResult<usize> {
        let align = align_order::<PAGE_SIZE>(align_pow2)?;
        if num_pages == 0 {
            return Err(AllocError::InvalidParam);
        }
        self.take(&SegmentRequest { align, ..SegmentRequest::new(num_pages as u64) })
    }

    /// Frees pages, a part of what was handed out together or several runs. The trait has no error here: if
    /// one of them is not handed out, or is none of its memory, nothing changes. O(log n + c / 64) for c pages.
    fn dealloc_pages(&mut self, pos: usize, num_pages: usize) {
        let Some(part) = self.pages(pos, num_pages) else { return };
        let index = self.pieces().partition_point(|piece| piece.start <= part.start);
        let Some(piece) = index.checked_sub(1).map(|index| self.pieces[index]) else { return };
        if part.start + part.count <= piece.start + piece.count {
            let _ = self.bitmap.free_part(part);
        }
    }

    /// Allocates the pages from `base` on, if all are free. O(log n + c / 64) for c pages.
    fn alloc_pages_at(
        &mut self,
        base: usize,
        num_pages: usize,
        align_pow2: usize,
    ) -> AllocResult<usize> {
        align_order::<PAGE_SIZE>(align_pow2)?;
        let pages = self.pages(base, num_pages).filter(|_| base.is_multiple_of(align_pow2));
        let Segment { start, count } = pages.ok_or(AllocError::InvalidParam)?;
        let (lower, upper) = (start, start + count);
        self.take(&SegmentRequest { lower, upper, ..SegmentRequest::new(count) })
    }

    fn total_pages(&self) -> usize {
        self.total as usize
    }

    fn used_pages(&self) -> usize {
        self.total_pages() - self.available_pages()
    }

    fn available_pages(&self) -> usize {
        self.bitmap.free_frames() as usize
    }
}
