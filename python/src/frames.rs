//! Allocators to play with.

use pyo3::prelude::*;
use self_cell::{MutBorrow, self_cell};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{Area, AreaSpace, FrameSupply, GlobalBitmap, Segment};
use swath_frame::segment::{SegmentAllocator as _, SegmentRequest};
use swath_frame::zone::bank::{AdaptiveBuddy, BankLayout, PoolPlacement, PoolPolicy};
use swath_frame::{
    BestFit, BuddyConfig, ByteRange, FrameAllocator, HeadOfList, MemoryMap, Mobility, PageBuddy,
    Rule, ZoneAllocator as _,
};

use crate::error::{of_frames, of_segments, refused};

/// First frame and number of frames.
type Run = (u64, u64);

fn run(extent: Extent) -> Run {
    (extent.start.raw(), extent.count)
}

fn extent((start, count): Run) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn order(order: u8) -> PyResult<Order> {
    Order::new(order).ok_or_else(|| refused(format!("no order {order}")))
}

/// The most frames of an allocator: 1 TiB of memory.
const FRAMES_MAX: u64 = 1 << 28;

fn map_of<T>(frames: Run, build: impl FnOnce(&MemoryMap<'_>) -> PyResult<T>) -> PyResult<T> {
    let end = frames.0.checked_add(frames.1);
    if frames.1 > FRAMES_MAX || end.is_none_or(|end| end > 1 << 40) {
        return Err(refused(format!(
            "{} frames from {}: more than there may be",
            frames.1, frames.0
        )));
    }
    let ranges = [ByteRange::of_frames(extent(frames))];
    let mut areas = [Extent::default(); 1];
    build(&MemoryMap::new(&ranges, &mut areas).map_err(refused)?)
}

enum Buddy {
    Head(Box<PageBuddy<Vec<u64>, HeadOfList>>),
    Best(Box<PageBuddy<Vec<u64>, BestFit>>),
}

/// A page buddy system (PBS), or a binary one (BBS), over one range of frames, all free.
#[pyclass(module = "swath._native")]
pub(crate) struct Frames(Buddy);

impl Frames {
    fn get(&self) -> &dyn FrameAllocator {
        match &self.0 {
            Buddy::Head(buddy) => &**buddy,
            Buddy::Best(buddy) => &**buddy,
        }
    }

    fn get_mut(&mut self) -> &mut dyn FrameAllocator {
        match &mut self.0 {
            Buddy::Head(buddy) => &mut **buddy,
            Buddy::Best(buddy) => &mut **buddy,
        }
    }
}

#[pymethods]
impl Frames {
    /// Orders are multiples of `granularity`, up to `top_order`.
    #[new]
    fn new(
        start: u64,
        count: u64,
        granularity: u32,
        top_order: u8,
        best_fit: bool,
    ) -> PyResult<Self> {
        fn build<R: Rule>(
            map: &MemoryMap<'_>,
            config: BuddyConfig,
        ) -> PyResult<PageBuddy<Vec<u64>, R>> {
            let words = PageBuddy::<Vec<u64>, R>::storage_words(map, config);
            PageBuddy::new(map, config, vec![0; words]).map_err(refused)
        }
        let config = BuddyConfig::new(granularity, order(top_order)?).map_err(refused)?;
        map_of((start, count), |map| {
            let buddy = match best_fit {
                false => Buddy::Head(Box::new(build(map, config)?)),
                true => Buddy::Best(Box::new(build(map, config)?)),
            };
            Ok(Self(buddy))
        })
    }

    /// Allocates frames in as few blocks as the rule finds.
    fn allocate(&mut self, count: u64) -> PyResult<Vec<Run>> {
        let mut blocks = Vec::new();
        let allocated = self.get_mut().allocate(count, &mut |block| blocks.push(run(block)));
        allocated.map(|()| blocks).map_err(of_frames)
    }

    fn allocate_aligned(&mut self, order: u8) -> PyResult<Run> {
        self.get_mut().allocate_aligned(self::order(order)?).map(run).map_err(of_frames)
    }

    fn free(&mut self, start: u64, count: u64) -> PyResult<()> {
        self.get_mut().free(extent((start, count))).map_err(refused)
    }

    /// The free blocks, ascending; what lies side by side in several blocks is several.
    fn free_blocks(&self) -> Vec<Run> {
        let mut blocks = Vec::new();
        self.get().for_each_free(&mut |block| blocks.push(run(block)));
        blocks.sort_unstable();
        blocks
    }

    #[getter]
    fn free_frames(&self) -> u64 {
        self.get().free_frames()
    }

    #[getter]
    fn total_frames(&self) -> u64 {
        self.get().total_frames()
    }

    /// Walks every invariant.
    fn check(&self) -> PyResult<()> {
        match &self.0 {
            Buddy::Head(buddy) => buddy.check(),
            Buddy::Best(buddy) => buddy.check(),
        }
        .map_err(refused)
    }
}

/// An Adaptive-Buddy over banks.
#[pyclass(module = "swath._native")]
pub(crate) struct Zone(AdaptiveBuddy<Vec<u64>>);

fn mobility(movable: bool) -> Mobility {
    if movable { Mobility::Movable } else { Mobility::Unmovable }
}

#[pymethods]
impl Zone {
    #[new]
    fn new(start: u64, count: u64, bank_frames: u64, packed: bool) -> PyResult<Self> {
        let policy = if packed { PoolPolicy::PACKED } else { PoolPolicy::PAPER };
        let rule = PoolPlacement::new(policy);
        // Linux's: blocks of up to 4 MiB.
        let banks = BankLayout::new(Pfn::new(start), bank_frames, order(10)?).map_err(refused)?;
        map_of((start, count), |map| {
            let zone = extent((start, count));
            let words = AdaptiveBuddy::<Vec<u64>>::storage_words(map, zone, banks, &rule)
                .map_err(refused)?;
            let buddy = AdaptiveBuddy::new(map, zone, banks, rule, vec![0; words]);
            Ok(Self(buddy.map_err(refused)?))
        })
    }

    /// Allocates a block of an order; its first frame.
    fn allocate(&mut self, order: u8, movable: bool) -> PyResult<Option<u64>> {
        Ok(self.0.allocate(self::order(order)?, mobility(movable)).map(Pfn::raw))
    }

    fn free(&mut self, start: u64, order: u8) -> PyResult<()> {
        self.0.free(Pfn::new(start), self::order(order)?).map_err(refused)
    }

    fn free_blocks(&self) -> Vec<Run> {
        let mut blocks = Vec::new();
        self.0.for_each_free(&mut |block| blocks.push(run(block)));
        blocks.sort_unstable();
        blocks
    }

    #[getter]
    fn banks(&self) -> usize {
        self.0.banks()
    }

    fn bank_of(&self, frame: u64) -> Option<usize> {
        self.0.bank_of(Pfn::new(frame))
    }

    #[getter]
    fn free_frames(&self) -> u64 {
        self.0.free_frames()
    }

    #[getter]
    fn total_frames(&self) -> u64 {
        self.0.total_frames()
    }

    fn check(&self) -> PyResult<()> {
        self.0.check().map_err(refused)
    }
}

/// The allocator of segments, and the space of the areas, which both borrow the list of areas.
type OverAreas<'a> = (GlobalBitmap<'a, Vec<u64>>, AreaSpace<'a>);

self_cell! {
    struct Owned {
        owner: MutBorrow<Vec<Area>>,
        #[not_covariant]
        dependent: OverAreas,
    }
}

/// Segments over areas of frames laid end to end.
#[pyclass(module = "swath._native")]
pub(crate) struct Segments(Owned);

#[pymethods]
impl Segments {
    #[new]
    fn new(areas: Vec<Run>, unit_order: u8, on_demand: bool) -> PyResult<Self> {
        let frames: Vec<Extent> = areas.into_iter().map(extent).collect();
        let total = frames.iter().fold(0, |sum: u64, area| sum.saturating_add(area.count));
        if total > FRAMES_MAX {
            return Err(refused(format!("{total} frames: more than there may be")));
        }
        let unit = order(unit_order)?;
        let supply = if on_demand { FrameSupply::OnDemand } else { FrameSupply::PreAllocated };
        let owner = MutBorrow::new(vec![Area::default(); frames.len()]);
        let owned = Owned::try_new(owner, |areas| {
            let space = AreaSpace::new(&frames, unit, areas.borrow_mut()).map_err(refused)?;
            let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
            let bitmap = GlobalBitmap::new(space, supply, vec![0; words]).map_err(refused)?;
            Ok::<_, PyErr>((bitmap, space))
        });
        owned.map(Self)
    }

    /// Allocates a segment: its first frame in the space of the areas, and their number.
    fn allocate(&mut self, count: u64) -> PyResult<Run> {
        let segment = self.0.with_dependent_mut(|_, (bitmap, _)| {
            bitmap.allocate(&SegmentRequest::new(count)).map_err(of_segments)
        })?;
        Ok((segment.start, segment.count))
    }

    fn free(&mut self, start: u64, count: u64) -> PyResult<()> {
        let segment = Segment::new(start, count);
        self.0.with_dependent_mut(|_, (bitmap, _)| bitmap.free(segment).map_err(refused))
    }

    /// The frames of a segment, area by area.
    fn extents(&self, start: u64, count: u64) -> Vec<Run> {
        let segment = Segment::new(start, count);
        self.0.with_dependent(|_, (_, space)| space.extents(segment).map(run).collect())
    }

    #[getter]
    fn total_frames(&self) -> u64 {
        self.0.with_dependent(|_, (_, space)| space.total_frames())
    }

    fn check(&self) -> PyResult<()> {
        self.0.with_dependent(|_, (bitmap, _)| bitmap.check().map_err(refused))
    }
}
