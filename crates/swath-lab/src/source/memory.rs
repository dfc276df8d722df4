//! The state of physical memory before a study asks for some of it:
//! synthetic free blocks, memory aged by random use, or a real machine's.

use crate::study::needs::bytes;
use rand::RngExt;
use rand::seq::index;
use rand_pcg::Pcg64Mcg;
use swath_arch::{Extent, Pfn};
use swath_frame::{
    BuddyConfig, BuildError, ByteRange, FrameAllocateError, FrameAllocator, FrameFreeError,
    HeadOfList, MemoryMap, MemoryMapError, PageBuddy, Rule,
};

/// An allocator of the lab, which owns its metadata.
pub type Allocator<R = HeadOfList> = PageBuddy<Box<[u64]>, R>;

/// A state of memory, from which an allocator starts.
#[derive(Clone, PartialEq, Debug)]
pub enum Source<'a> {
    /// Free blocks of one size at random places ([`scattered_blocks`]).
    Blocks {
        /// Number of them.
        count: u64,
        /// Frames in each.
        block_frames: u64,
        /// All frames, free or not.
        span_frames: u64,
    },
    /// Memory aged by random use ([`age`]).
    Aged {
        /// All frames.
        frames: u64,
        /// The way of it.
        ageing: Ageing,
    },
    /// These extents are free: ascending and apart.
    Free(&'a [Extent]),
}

/// Bytes that it takes to prepare `free_frames` in blocks of `block_frames` in memory of
/// which they are `free_share`: the choice of places, the blocks, and the allocator.
pub fn scattered_bytes(free_frames: u64, block_frames: u64, free_share: f64) -> u64 {
    let span = (free_frames as f64 / free_share).ceil().min(FRAMES_MAX as f64) as u64;
    let count = free_frames.div_ceil(block_frames.max(1));
    // Places are drawn from a list of all gaps unless they are few of them.
    let places = bytes(&[4, span.min(count.saturating_mul(270))]);
    places.saturating_add(bytes(&[40, count])).saturating_add(allocator_bytes(span))
}

/// Bytes of an allocator's metadata.
pub const fn allocator_bytes(frames: u64) -> u64 {
    frames.saturating_mul(3) / 4
}

impl<'a> Source<'a> {
    /// Enough free blocks of `block_frames` for `free_frames` frames, in
    /// memory of which they are `free_share`.
    pub fn blocks(block_frames: u64, free_frames: u64, free_share: f64) -> Self {
        let count = free_frames.div_ceil(block_frames);
        let span_frames = ((count * block_frames) as f64 / free_share).ceil() as u64;
        Self::Blocks { count, block_frames, span_frames }
    }

    /// Returns an allocator over this memory.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn prepare<R: Rule + 'static>(
        &self,
        config: BuddyConfig,
        random: &mut Random,
    ) -> Result<Allocator<R>, PrepareError> {
        let new = |frames, is_free| new_allocator(frames, config, is_free);
        self.prepare_with(new, |allocator| allocator, random)
    }

    /// Returns an allocator of another kind over this memory; `new` makes one whose frames are all
    /// allocated.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn prepare_own(
        &self,
        new: impl FnOnce(Extent) -> Result<Box<dyn FrameAllocator>, String>,
        random: &mut Random,
    ) -> Result<Box<dyn FrameAllocator>, PrepareError> {
        let new = |frames: Extent, is_free| {
            if frames.count > FRAMES_MAX {
                return Err(PrepareError::Span { frames: frames.count });
            }
            let mut allocator = new(frames).map_err(PrepareError::Own)?;
            if is_free {
                allocator.free(frames)?;
            }
            Ok(allocator)
        };
        self.prepare_with(new, |allocator| allocator.as_mut(), random)
    }

    /// Returns an allocator over this memory that `new` made with all frames free, or allocated.
    fn prepare_with<A>(
        &self,
        new: impl FnOnce(Extent, bool) -> Result<A, PrepareError>,
        dynamic: impl Fn(&mut A) -> &mut (dyn FrameAllocator + 'static),
        random: &mut Random,
    ) -> Result<A, PrepareError> {
        let below = |end| Extent::new(Pfn::new(0), end);
        let drawn;
        let (frames, free) = match *self {
            Self::Blocks { count, block_frames, span_frames } => {
                drawn = scattered_blocks(count, block_frames, span_frames, random)?;
                (span_frames, drawn.as_slice())
            }
            Self::Aged { frames, ref ageing } => {
                let mut allocator = new(below(frames), true)?;
                age(dynamic(&mut allocator), ageing, random)?;
                return Ok(allocator);
            }
            Self::Free(extents) => (extents.last().map_or(1, |last| last.end().raw()), extents),
        };
        let mut allocator = new(below(frames), false)?;
        free.iter().try_for_each(|&extent| dynamic(&mut allocator).free(extent))?;
        Ok(allocator)
    }
}

/// Memory that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Free blocks do not fit.
    #[error(transparent)]
    TooFull(#[from] TooFull),
    /// More memory than the lab handles.
    #[error("memory of {frames} frames is more than {FRAMES_MAX}")]
    Span {
        /// Its frames.
        frames: u64,
    },
    /// There are no frames, or they are too many.
    #[error(transparent)]
    Map(#[from] MemoryMapError),
    /// The allocator cannot hold them.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An allocator that another crate brought cannot be made.
    #[error("{0}")]
    Own(String),
    /// Ageing failed.
    #[error(transparent)]
    Alloc(#[from] FrameAllocateError),
    /// Free extents that overlap or are empty.
    #[error(transparent)]
    Free(#[from] FrameFreeError),
}

/// The most memory that the lab handles: 4 TiB, whose metadata takes 0.4 GB.
const FRAMES_MAX: u64 = 1 << 30;

/// An allocator over these frames, all free or all allocated.
///
/// # Errors
/// [`PrepareError::Map`] or [`PrepareError::Build`].
pub fn new_allocator<R: Rule>(
    frames: Extent,
    config: BuddyConfig,
    free: bool,
) -> Result<Allocator<R>, PrepareError> {
    if frames.count > FRAMES_MAX {
        return Err(PrepareError::Span { frames: frames.count });
    }
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(frames)], &mut areas)?;
    let words = Allocator::<R>::storage_words(&map, config);
    let storage = vec![0; words].into_boxed_slice();
    Ok(if free {
        Allocator::new(&map, config, storage)?
    } else {
        Allocator::new_allocated(&map, config, storage)?
    })
}

/// The generator of every random choice in the lab: seeded, and its stream is
/// part of the plan's meaning.
pub type Random = Pcg64Mcg;

/// The generator for repeat `repeat` of a plan with this seed.
pub fn random(seed: u64, repeat: u64) -> Random {
    let mixed = (u128::from(seed) << 64) | u128::from(repeat.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut random = Pcg64Mcg::new(mixed | 1);
    // The first outputs of nearby states are alike.
    for _ in 0..8 {
        let _: u64 = random.random();
    }
    random
}

/// Free blocks that cannot be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{count} blocks of {block_frames} frames, each apart from the next, do not fit into \
     {span_frames} frames"
)]
pub struct TooFull {
    /// Blocks asked for.
    pub count: u64,
    /// Frames in each.
    pub block_frames: u64,
    /// Frames to place them in.
    pub span_frames: u64,
}

/// The paper's fragmentation levels: `count` free blocks of exactly
/// `block_frames` frames at random frame numbers below `span_frames`, at any
/// alignment, at least one used frame between any two. Every such placement is
/// equally likely. Ascending.
///
/// # Errors
/// [`TooFull`] if there is no such placement.
pub fn scattered_blocks(
    count: u64,
    block_frames: u64,
    span_frames: u64,
    random: &mut Random,
) -> Result<Vec<Extent>, TooFull> {
    let error = TooFull { count, block_frames, span_frames };
    let used = count
        .checked_mul(block_frames)
        .and_then(|free| span_frames.checked_sub(free))
        .filter(|_| span_frames <= FRAMES_MAX)
        .ok_or(error)?;
    // A block stands in one of the gaps before, between and after used frames.
    let gaps = usize::try_from(used + 1).map_err(|_| error)?;
    let wanted = usize::try_from(count).map_err(|_| error)?;
    if wanted > gaps {
        return Err(error);
    }
    let mut chosen = index::sample(random, gaps, wanted).into_vec();
    chosen.sort_unstable();
    Ok(chosen
        .iter()
        .zip(0..)
        .map(|(&gap, i)| Extent::new(Pfn::new(gap as u64 + i * block_frames), block_frames))
        .collect())
}

/// The ageing of memory: random requests and releases under pressure, then
/// releases down to the level that is wanted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ageing {
    /// Requests and releases under pressure together.
    pub operations: u64,
    /// The share of all frames in use at which they balance.
    pub peak_share: f64,
    /// The share of all frames in use in the end, as near as whole requests
    /// allow.
    pub used_share: f64,
    /// The longest request; lengths are log-uniform from 1 to this.
    pub request_frames_max: u64,
}

impl Ageing {
    /// Bytes that it takes to age so many frames: the requests that are held at the peak,
    /// block by block, and the allocator.
    pub fn needs_bytes(&self, frames: u64) -> u64 {
        let longest = self.request_frames_max.max(2) as f64;
        let mean = ((longest - 1.0) / longest.ln()).max(1.0);
        let used = frames as f64 * self.peak_share;
        // Lists grow by doubling; that of a request has room for four blocks at once.
        let held = (used / mean).min(self.operations as f64).ceil() as u64;
        let blocks = (used.ceil() as u64).min(held.saturating_mul(8));
        bytes(&[128, held])
            .saturating_add(bytes(&[32, blocks.saturating_sub(held.saturating_mul(4))]))
            .saturating_add(allocator_bytes(frames))
    }

    /// A random length of a request.
    pub fn length(&self, random: &mut Random) -> u64 {
        let spread = (self.request_frames_max.max(1) as f64).log2();
        (random.random::<f64>() * spread).exp2().round() as u64
    }
}

/// Ages `allocator` and returns what is left allocated, request by request.
///
/// Below the peak a request is made, above it a random request is released
/// whole; so after the rise the two alternate. In the end random requests are
/// released until no more than the wanted share is in use.
///
/// # Errors
/// [`PrepareError`] if a request is not served although the level leaves room
/// for it, or not taken back, which only a broken allocator answers.
pub fn age(
    allocator: &mut dyn FrameAllocator,
    ageing: &Ageing,
    random: &mut Random,
) -> Result<Vec<Vec<Extent>>, PrepareError> {
    let mut held: Vec<Vec<Extent>> = Vec::new();
    let total = allocator.total_frames();
    let level = |share: f64| (total as f64 * share) as u64;
    for _ in 0..ageing.operations {
        let used = total - allocator.free_frames();
        let length = ageing.length(random);
        if used + length <= level(ageing.peak_share) || held.is_empty() {
            let length = length.min(allocator.free_frames());
            let mut blocks = Vec::new();
            allocator.allocate(length, &mut |block| blocks.push(block))?;
            held.push(blocks);
        } else {
            release_one(allocator, &mut held, random)?;
        }
    }
    while total - allocator.free_frames() > level(ageing.used_share) && !held.is_empty() {
        release_one(allocator, &mut held, random)?;
    }
    Ok(held)
}

/// Releases a random request of those held; there is one.
///
/// # Errors
/// [`PrepareError::Free`], which only a broken allocator answers.
pub fn release_one(
    allocator: &mut dyn FrameAllocator,
    held: &mut Vec<Vec<Extent>>,
    random: &mut Random,
) -> Result<(), PrepareError> {
    if !held.is_empty() {
        let request = held.swap_remove(random.random_range(0..held.len()));
        request.into_iter().try_for_each(|block| allocator.free(block))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_of_one_size() {
        let mut random = random(1, 0);
        for (count, size, span) in [(1024, 1, 4096), (4, 256, 2048), (3, 5, 17), (0, 4, 0)] {
            let blocks = scattered_blocks(count, size, span, &mut random).unwrap();
            assert_eq!(blocks.len() as u64, count);
            assert!(blocks.iter().all(|b| b.count == size && b.end().raw() <= span));
            assert!(blocks.windows(2).all(|w| w[0].end() < w[1].start));
        }
    }

    #[test]
    fn impossible_placements_are_errors() {
        let mut random = random(1, 0);
        for (count, size, span) in [(3, 5, 16), (1, u64::MAX, 10), (u64::MAX, 2, 10), (2, 0, 0)] {
            assert!(scattered_blocks(count, size, span, &mut random).is_err());
        }
    }

    #[test]
    fn every_placement_comes_up() {
        let mut random = random(7, 0);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let blocks = scattered_blocks(2, 2, 7, &mut random).unwrap();
            seen.insert(blocks.iter().map(|b| b.start.raw()).collect::<Vec<_>>());
        }
        // Three used frames make four gaps; two of four are chosen.
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn repeats_differ_and_repeat() {
        let draw = |seed, repeat| random(seed, repeat).random::<u64>();
        assert_eq!(draw(3, 4), draw(3, 4));
        assert_ne!(draw(3, 4), draw(3, 5));
        assert_ne!(draw(3, 4), draw(4, 4));
    }
}
