//! The conformance suite of frame allocators.
//!
//! The oracle is a plain set of frames. [`conform`] drives an allocator with
//! random requests, frees and abuses, and after each compares what the
//! allocator says with what the set says. [`nodes`] is the definition of the
//! page buddy system's nodes, computed from the set with no other structure.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use swath_arch::testing::{Random, Steps};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::buddy::config::BuddyConfig;
use crate::map::MemoryMap;

/// The frames of a map and which of them are free.
#[derive(Clone, Debug)]
pub struct FrameOracle {
    pub(super) frames: BTreeSet<u64>,
    pub(super) free: BTreeSet<u64>,
    pub(super) place: SeedStep,
}

/// The position of a run, for the messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeedStep {
    pub(super) seed: u64,
    pub(super) step: usize,
}

impl fmt::Display for SeedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, step {}", self.seed, self.step)
    }
}

impl FrameOracle {
    /// All frames of `map`, free.
    pub fn new(map: &MemoryMap<'_>) -> Self {
        let frames: BTreeSet<u64> =
            map.areas().iter().flat_map(|area| area.iter()).map(Pfn::raw).collect();
        Self { free: frames.clone(), frames, place: SeedStep { seed: 0, step: 0 } }
    }

    /// The free frames.
    pub fn free(&self) -> &BTreeSet<u64> {
        &self.free
    }

    pub(super) fn is_allocated(&self, frame: u64) -> bool {
        self.frames.contains(&frame) && !self.free.contains(&frame)
    }

    /// Takes frames, which have to be free.
    pub(super) fn allocate(&mut self, extent: Extent) {
        let place = self.place;
        for frame in extent.iter() {
            assert!(
                self.free.remove(&frame.raw()),
                "{place}: {extent} has {frame}, which is not free"
            );
        }
    }

    /// Returns what freeing `extent` has to return, and frees if that is `Ok`.
    pub(super) fn free_extent(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        if let Some(frame) = extent.iter().find(|frame| !self.is_allocated(frame.raw())) {
            return Err(if self.frames.contains(&frame.raw()) {
                FrameFreeError::NotAllocated { frame }
            } else {
                FrameFreeError::Foreign { frame }
            });
        }
        self.free.extend(extent.iter().map(Pfn::raw));
        Ok(())
    }

    fn has_aligned(&self, order: Order) -> bool {
        let frames = order.frames();
        self.free
            .iter()
            .filter(|&&frame| frame % frames == 0)
            .any(|&frame| self.free.range(frame..frame + frames).count() as u64 == frames)
    }
}

/// The nodes of the page buddy system for a set of free frames, list by list
/// and ascending, by their definition (see [`rule`](crate::buddy::rule)). O(C·s) for
/// C orders and a span of s frames.
pub fn nodes(free: &BTreeSet<u64>, config: BuddyConfig) -> Vec<Extent> {
    let granularity = config.granularity();
    let (Some(&first), Some(&last)) = (free.first(), free.last()) else { return Vec::new() };
    // From a frame that is aligned to every order on.
    let base = first >> config.top().k() << config.top().k();
    let mut whole: Vec<bool> = vec![false; (last - base) as usize + 1];
    for frame in free {
        whole[(frame - base) as usize] = true;
    }
    let mut found = Vec::new();
    for i in 0..config.classes() {
        let order = i as u32 * granularity;
        let is_top = i + 1 == config.classes();
        let parents: Vec<bool> = if is_top {
            Vec::new()
        } else {
            let size = 1 << granularity;
            whole.chunks(size).map(|units| units.len() == size && !units.contains(&false)).collect()
        };
        let listed = |unit: usize| whole[unit] && (is_top || !parents[unit >> granularity]);
        let mut unit = 0;
        while unit < whole.len() {
            if !listed(unit) {
                unit += 1;
                continue;
            }
            let start = unit;
            while unit < whole.len() && listed(unit) {
                unit += 1;
            }
            let mut run = start..unit;
            while !run.is_empty() {
                let border = ((run.start >> granularity) + 1) << granularity;
                let end = if granularity == 1 {
                    run.start + 1
                } else if is_top || run.len() < 1 << granularity {
                    run.end
                } else {
                    border
                };
                let base = base + ((run.start as u64) << order);
                found.push(Extent::new(Pfn::new(base), ((end - run.start) as u64) << order));
                run.start = end;
            }
        }
        whole = parents;
    }
    found
}

/// The blocks that an allocator holds free, in its order.
pub fn blocks(allocator: &(impl FrameAllocator + ?Sized)) -> Vec<Extent> {
    let mut found = Vec::new();
    allocator.for_each_free(&mut |block| found.push(block));
    found
}

/// An allocator that shows its free frames merged, for one that puts merging off, as
/// [`QuickFit`](crate::QuickFit) does: a request that fails leaves the same frames free, if not the
/// same blocks.
#[derive(Clone, Debug)]
pub struct Merged<A>(pub A);

impl<A: FrameAllocator> FrameAllocator for Merged<A> {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.0.allocate_block(frames_max)
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.0.allocate_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.0.free(extent)
    }

    fn free_frames(&self) -> u64 {
        self.0.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.0.total_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        let mut blocks = blocks(&self.0);
        blocks.sort_unstable_by_key(|block| block.start);
        for run in blocks.chunk_by(|a, b| a.end() == b.start) {
            visit(Extent::new(run[0].start, run.iter().map(|block| block.count).sum()));
        }
    }
}

/// Drives `allocator`, whose frames are those of `map` and all free, through at most
/// `steps` operations of `random`, a seed or given bytes, and at last frees everything.
/// `inspect` looks at the allocator where the steps say that all is compared: after each operation,
/// or at doubling distances and at the end; what an operation returns and the number of free frames
/// are compared after each.
///
/// Checked are: all or nothing; no frame twice; any part of what is allocated
/// can be freed; each error is the one that the set of frames calls for, and
/// changes nothing; totals; alignment, and that an aligned request fails only
/// if it must.
///
/// # Panics
/// On the first deviation; the message names seed and step.
pub fn conform<A: FrameAllocator>(
    map: &MemoryMap<'_>,
    allocator: &mut A,
    random: impl Into<Random>,
    steps: impl Into<Steps>,
    inspect: &mut dyn FnMut(&A, &FrameOracle),
) {
    let (mut random, steps) = (random.into(), steps.into());
    let seed = random.seed();
    let mut oracle = FrameOracle::new(map);
    oracle.place.seed = seed;
    assert_eq!(allocator.total_frames(), map.total_frames(), "seed {seed}");
    agree(allocator, &oracle);
    inspect(allocator, &oracle);
    for step in 1..=steps.most {
        if random.is_spent() {
            break;
        }
        oracle.place.step = step;
        let place = oracle.place;
        match random.below(9) {
            0 => request(allocator, &mut oracle, size(&mut random)),
            1 => {
                let frames_max = size(&mut random);
                let block = allocator.allocate_block(frames_max);
                assert_eq!(block.is_some(), frames_max > 0 && !oracle.free.is_empty(), "{place}");
                if let Some(block) = block {
                    assert!(!block.is_empty() && block.count <= frames_max, "{place}: {block}");
                    oracle.allocate(block);
                }
            }
            2 => {
                let frame = allocator.allocate_frame();
                assert_eq!(frame.is_some(), !oracle.free.is_empty(), "{place}");
                if let Some(frame) = frame {
                    oracle.allocate(Extent::new(frame, 1));
                }
            }
            3 => request_aligned(allocator, &mut oracle, random.below(12) as u8),
            4 => hostile(allocator, &mut oracle, map, &mut random),
            _ => free(allocator, &mut oracle, &mut random),
        }
        assert_eq!(allocator.free_frames(), oracle.free.len() as u64, "{place}");
        if steps.compares_all(step) {
            agree(allocator, &oracle);
            inspect(allocator, &oracle);
        }
    }
    agree(allocator, &oracle);
    inspect(allocator, &oracle);
    let held: Vec<u64> =
        oracle.frames.iter().copied().filter(|&frame| oracle.is_allocated(frame)).collect();
    for run in held.chunk_by(|a, b| a + 1 == *b) {
        let extent = Extent::new(Pfn::new(run[0]), run.len() as u64);
        assert_eq!(allocator.free(extent), Ok(()), "seed {seed}, at last");
        assert_eq!(oracle.free_extent(extent), Ok(()));
    }
    assert_eq!(allocator.free_frames(), map.total_frames(), "seed {seed}, at last");
    agree(allocator, &oracle);
    inspect(allocator, &oracle);
}

/// Mostly small, now and then hundreds, now and then nothing.
pub(super) fn size(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 0,
        1..=3 => 1 + random.below(4),
        4..=6 => 1 + random.below(64),
        _ => 1 + random.below(900),
    }
}

pub(super) fn agree<A: FrameAllocator>(allocator: &A, oracle: &FrameOracle) {
    let place = oracle.place;
    let mut seen = BTreeSet::new();
    allocator.for_each_free(&mut |block| {
        assert!(!block.is_empty(), "{place}: an empty free block");
        for frame in block.iter() {
            assert!(seen.insert(frame.raw()), "{place}: {frame} is free twice");
        }
    });
    assert!(seen == oracle.free, "{place}: another set of frames is free");
    assert_eq!(allocator.free_frames(), seen.len() as u64, "{place}");
}

/// A request for `count` frames: all or nothing.
pub(super) fn request<A: FrameAllocator>(allocator: &mut A, oracle: &mut FrameOracle, count: u64) {
    let place = oracle.place;
    let before = blocks(allocator);
    let free = oracle.free.len() as u64;
    let mut taken = 0;
    let result = allocator.allocate(count, &mut |block| {
        assert!(!block.is_empty(), "{place}");
        oracle.allocate(block);
        taken += block.count;
    });
    if count == 0 {
        assert_eq!(result, Err(FrameAllocateError::Empty), "{place}");
    } else if count > free {
        assert_eq!(result, Err(FrameAllocateError::OutOfFrames { wanted: count, free }), "{place}");
    } else {
        assert_eq!(result, Ok(()), "{place}");
        assert_eq!(taken, count, "{place}");
        return;
    }
    assert_eq!(taken, 0, "{place}: a request failed and took frames");
    assert_eq!(blocks(allocator), before, "{place}: a request failed and changed the free blocks");
}

fn request_aligned<A: FrameAllocator>(allocator: &mut A, oracle: &mut FrameOracle, k: u8) {
    let place = oracle.place;
    let order = Order::known(k);
    let before = blocks(allocator);
    let free = oracle.free.len() as u64;
    match allocator.allocate_aligned(order) {
        Ok(extent) => {
            assert_eq!(extent.count, order.frames(), "{place}");
            assert!(extent.start.is_aligned(order.k()), "{place}: {extent} for order {order}");
            oracle.allocate(extent);
        }
        Err(error) => {
            let expected = if order.frames() > free {
                FrameAllocateError::OutOfFrames { wanted: order.frames(), free }
            } else {
                FrameAllocateError::NoBlock { order }
            };
            assert_eq!(error, expected, "{place}");
            assert!(!oracle.has_aligned(order), "{place}: order {order} was free");
            assert_eq!(
                blocks(allocator),
                before,
                "{place}: a request failed and changed the free blocks"
            );
        }
    }
}

/// Frees a run of allocated frames, whichever requests they came from.
pub(super) fn free<A: FrameAllocator>(
    allocator: &mut A,
    oracle: &mut FrameOracle,
    random: &mut Random,
) {
    let place = oracle.place;
    let held = oracle.frames.len() - oracle.free.len();
    if held == 0 {
        return;
    }
    let nth = random.below(held as u64) as usize;
    let start = oracle.frames.difference(&oracle.free).nth(nth).copied().unwrap_or_default();
    let count = size(random).max(1);
    let run = (start..start + count).take_while(|&frame| oracle.is_allocated(frame)).count();
    let extent = Extent::new(Pfn::new(start), run as u64);
    assert_eq!(allocator.free(extent), Ok(()), "{place}: {extent}");
    assert_eq!(oracle.free_extent(extent), Ok(()));
}

/// Frees what may not be free to free: the error names the first frame at
/// fault, and nothing changes.
fn hostile<A: FrameAllocator>(
    allocator: &mut A,
    oracle: &mut FrameOracle,
    map: &MemoryMap<'_>,
    random: &mut Random,
) {
    let place = oracle.place;
    let span = map.span();
    let near = span.start.raw().saturating_sub(70) + random.below(span.count + 140);
    let extent = match random.below(6) {
        0 => Extent::new(Pfn::new(near), 0),
        1 => Extent::new(Pfn::new(near), u64::MAX - random.below(near + 1)),
        2 => Extent::new(Pfn::new(u64::MAX - random.below(3)), 1 + random.below(4)),
        3 => Extent::new(Pfn::new(near), 1),
        _ => Extent::new(Pfn::new(near), size(random)),
    };
    let before = blocks(allocator);
    let expected = oracle.free_extent(extent);
    assert_eq!(allocator.free(extent), expected, "{place}: {extent}");
    if expected.is_err() {
        assert_eq!(
            blocks(allocator),
            before,
            "{place}: {extent}: a free failed and changed the blocks"
        );
    }
}
