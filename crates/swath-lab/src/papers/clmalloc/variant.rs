//! The four designs of Fig. 6 over one [`SegmentMapping`]: baseline, global bitmap, with
//! pre-allocation, and with the buffer pool.
//!
//! ```text
//!  Baseline, Global bitmap        frames taken and mapped with each request
//!  Pre-allocation                 mapped with each request
//!  CLMalloc     pool ──► areas    mapped when the pool first acquires a unit
//! ```

#![allow(unsafe_code, reason = "the pool's source and its blocks: each with its proof")]

use std::ptr::NonNull;

use parking_lot::RawMutex;
use serde::{Deserialize, Serialize};
use swath_arch::Order;
use swath_frame::segment::{
    Baseline, CountedPages, FrameSupply, GlobalBitmap, MappedSegments, Segment, SegmentAllocator,
    SegmentMapping, SegmentRequest,
};
use swath_pool::{
    BufferOptions, BufferPool, Claim, HeapSlot, Live, LocalHeap, Returned, SegmentSource, Storage,
    Superblock, UNIT_BYTES, dirty_words,
};

use crate::papers::clmalloc::areas::{AreasPlan, MIB_FRAMES};

/// A unit of the pool in frames.
const UNIT: Order = Order::known(4);
const _: () = assert!(UNIT.frames() * 4096 == UNIT_BYTES as u64);

/// A design of Fig. 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Variant {
    Baseline,
    GlobalBitmap,
    PreAllocation,
    Pool,
}

impl Variant {
    pub(crate) const ALL: [Self; 4] =
        [Self::Baseline, Self::GlobalBitmap, Self::PreAllocation, Self::Pool];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "Baseline",
            Self::GlobalBitmap => "Global bitmap",
            Self::PreAllocation => "+ pre-allocation",
            Self::Pool => "+ pool (CLMalloc)",
        }
    }

    /// The time at which frames are taken: when they are mapped, or all at start.
    pub(crate) const fn frames(self) -> FrameSupply {
        match self {
            Self::Baseline | Self::GlobalBitmap => FrameSupply::OnDemand,
            Self::PreAllocation | Self::Pool => FrameSupply::PreAllocated,
        }
    }
}

/// An allocator with requests of one size.
pub(crate) trait Requests {
    /// Makes another request; true if it is served.
    fn allocate(&mut self) -> bool;
    /// Frees all of them, in the order in which they were made.
    fn free_all(&mut self) -> Result<(), String>;
    /// Frames that were acquired and released, and pages that were mapped and unmapped.
    fn pages(&self) -> CountedPages;
}

/// A mapping that counts.
pub(crate) trait CountsPages: SegmentMapping {
    /// Counts since the start.
    fn pages(&self) -> CountedPages;
}

impl CountsPages for CountedPages {
    fn pages(&self) -> CountedPages {
        *self
    }
}

/// Requests straight to a segment allocator.
struct Plain<A, M> {
    allocator: MappedSegments<A, M>,
    request: SegmentRequest,
    segments: Vec<Segment>,
}

impl<A: SegmentAllocator, M: CountsPages> Requests for Plain<A, M> {
    fn allocate(&mut self) -> bool {
        let segment = self.allocator.allocate(&self.request);
        self.segments.extend(segment.ok());
        segment.is_ok()
    }

    fn free_all(&mut self) -> Result<(), String> {
        for segment in self.segments.drain(..) {
            self.allocator.free(segment).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn pages(&self) -> CountedPages {
        self.allocator.mapping().pages()
    }
}

/// Segments as a pool's source: the arena is the accelerator's space. Released
/// units stay mapped until they are purged.
///
/// Invariant: all units that are handed out are mapped.
struct Areas<'m, M> {
    bitmap: GlobalBitmap<'m, Vec<u64>>,
    mapping: M,
    mapped: Vec<bool>,
}

impl<M: SegmentMapping> Areas<'_, M> {
    fn segment(first: usize, units: usize) -> Segment {
        Segment::new((first as u64) << UNIT.k(), (units as u64) << UNIT.k())
    }

    /// Maps those of some units that are not mapped; true if all are now.
    fn map(&mut self, first: usize, units: usize) -> bool {
        let space = self.bitmap.space();
        let mut at = first;
        for run in self.mapped[first..first + units].chunk_by(|a, b| a == b) {
            let segment = Self::segment(at, run.len());
            if !run[0] && self.mapping.map(segment, space.extents(segment)).is_err() {
                return false;
            }
            at += run.len();
        }
        self.mapped[first..first + units].fill(true);
        true
    }
}

// SAFETY: the bitmap hands each unit out once until it is freed, and it is mapped
// before; with `CountedPages` nobody touches the memory.
unsafe impl<M: SegmentMapping> SegmentSource for Areas<'_, M> {
    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        // Nothing here asks for more than a unit's alignment.
        if align_units > 1 {
            return None;
        }
        let request = SegmentRequest::new(u64::from(units) << UNIT.k());
        let segment = self.bitmap.allocate(&request).ok()?;
        let first = u32::try_from(segment.start >> UNIT.k()).ok()?;
        if self.map(first as usize, units as usize) {
            return Some(first);
        }
        let _ = self.bitmap.free(segment);
        None
    }

    fn release(&mut self, first: u32, units: u32) {
        // A part of what was acquired is refused, and stays in use.
        let _ = self.bitmap.free(Self::segment(first as usize, units as usize));
    }

    fn purge(&mut self, first: u32, units: u32) -> bool {
        let (first, units) = (first as usize, units as usize);
        if !self.mapped[first..first + units].iter().all(|&mapped| mapped) {
            return false;
        }
        let segment = Self::segment(first, units);
        self.mapping.unmap(segment, self.bitmap.space().extents(segment));
        self.mapped[first..first + units].fill(false);
        true
    }
}

/// Requests to a pool.
struct Pooled<'p, 'm, M: SegmentMapping> {
    heap: LocalHeap<'p, 'm, RawMutex, Areas<'m, M>>,
    len_bytes: usize,
    blocks: Vec<NonNull<u8>>,
}

impl<M: CountsPages> Requests for Pooled<'_, '_, M> {
    fn allocate(&mut self) -> bool {
        let block = self.heap.allocate(self.len_bytes, 16);
        self.blocks.extend(block.ok());
        block.is_ok()
    }

    fn free_all(&mut self) -> Result<(), String> {
        for block in self.blocks.drain(..) {
            // SAFETY: a block in use, that nobody has beside.
            unsafe { self.heap.free(block) }.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn pages(&self) -> CountedPages {
        self.heap.pool().with_source(|source| source.mapping.pages())
    }
}

/// A design on a machine, with the size of its requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) variant: Variant,
    /// True if frames are cleared as they are acquired, not as they are mapped.
    pub(crate) clears: bool,
    pub(crate) machine: AreasPlan,
    pub(crate) request_mib: u64,
}

impl Setting {
    /// Its name in figures.
    pub(crate) fn name(&self) -> String {
        let how = if self.clears { ", cleared as acquired" } else { "" };
        format!("{}{how}", self.variant.name())
    }

    /// Calls `work` with the design's requests. The mapping of frame f of the
    /// accelerator's space lies at page f from `base` on.
    pub(crate) fn with<M: CountsPages, T>(
        &self,
        base: NonNull<u8>,
        mapping: M,
        work: impl FnOnce(&mut dyn Requests) -> T,
    ) -> Result<T, String> {
        let unit = if self.variant == Variant::Pool { UNIT } else { Order::BASE };
        self.machine.with_space(unit, |space| {
            let request = SegmentRequest::new(self.request_mib * MIB_FRAMES);
            let text = |error: swath_frame::BuildError| error.to_string();
            let bitmap = |frames| {
                let words = vec![0; GlobalBitmap::<Vec<u64>>::storage_words(&space)];
                GlobalBitmap::<_>::new(space, frames, words).map_err(text)
            };
            let segments = Vec::with_capacity(256);
            match self.variant {
                Variant::Baseline => {
                    let words = vec![0; Baseline::<Vec<u64>>::storage_words(&space)];
                    let allocator = Baseline::<_>::new(space, words).map_err(text)?;
                    let allocator = MappedSegments::new(allocator, mapping);
                    Ok(work(&mut Plain { allocator, request, segments }))
                }
                Variant::GlobalBitmap | Variant::PreAllocation => {
                    let allocator = MappedSegments::new(bitmap(self.variant.frames())?, mapping);
                    Ok(work(&mut Plain { allocator, request, segments }))
                }
                Variant::Pool => {
                    let bitmap = bitmap(self.variant.frames())?;
                    self.with_pool(base, bitmap, mapping, work)
                }
            }
        })?
    }

    fn with_pool<'m, M: CountsPages, T>(
        &self,
        base: NonNull<u8>,
        bitmap: GlobalBitmap<'m, Vec<u64>>,
        mapping: M,
        work: impl FnOnce(&mut dyn Requests) -> T,
    ) -> Result<T, String> {
        let units = bitmap.space().units() as usize;
        let mut superblocks: Vec<_> = (0..units).map(|_| Superblock::new()).collect();
        let mut returned: Vec<_> = (0..units).map(|_| Returned::new()).collect();
        let mut live: Vec<_> = (0..units).map(|_| Live::new()).collect();
        let mut claims: Vec<_> = (0..units).map(|_| Claim::new()).collect();
        let mut heaps = [HeapSlot::new()];
        let mut dirty = vec![0; dirty_words(units)];
        let storage = Storage {
            superblocks: &mut superblocks,
            returned: &mut returned,
            live: &mut live,
            claims: &mut claims,
            heaps: &mut heaps,
            dirty: &mut dirty,
        };
        let source = Areas { bitmap, mapping, mapped: vec![false; units] };
        // SAFETY: the arena is as long as the space, and nobody else uses it.
        let pool: Result<BufferPool<'_, RawMutex, _>, _> =
            unsafe { BufferPool::new(base, storage, source, BufferOptions::default()) };
        let pool = pool.map_err(|error| error.to_string())?;
        let heap = pool.attach().ok_or("a pool without a heap")?;
        let len_bytes = (self.request_mib << 20) as usize;
        Ok(work(&mut Pooled { heap, len_bytes, blocks: Vec::with_capacity(256) }))
    }

    /// The same with pages that are only counted.
    pub(crate) fn simulate<T>(
        &self,
        work: impl FnOnce(&mut dyn Requests) -> T,
    ) -> Result<T, String> {
        let base = NonNull::new(std::ptr::without_provenance_mut(UNIT_BYTES));
        self.with(base.ok_or("no base")?, CountedPages::default(), work)
    }
}
