//! The memory that operations are done on: areas with holes between them, and sets of frames.

use swath_arch::testing::{Random, Steps};
use swath_arch::{Extent, Pfn};
use swath_frame::{ByteRange, MemoryMap};

/// Most operations of an input.
pub(super) const STEPS_MAX: usize = 400;

/// After which of them all is compared: 1, 2, 4, 8 and so on, and at the end.
pub(super) const STEPS: Steps = Steps::doubling(STEPS_MAX);

/// Garbage that every structure's storage holds at first.
pub(super) const GARBAGE: u64 = 0x5a5a_5a5a_5a5a_5a5a;

pub(super) fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

/// Draws up to three areas of up to so many frames each, at any alignment; now and then two touch.
pub(super) fn areas(random: &mut Random, frames_max: u64) -> Vec<Extent> {
    let mut start = random.below(0x1000);
    (0..1 + random.below(3))
        .map(|_| {
            let area = extent(start, 1 + random.below(frames_max));
            start = area.end().raw() + random.below(64);
            area
        })
        .collect()
}

/// Calls `test` with the map of `areas`.
pub(super) fn with_map<T>(areas: &[Extent], test: impl FnOnce(MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    test(MemoryMap::new(&ranges, &mut storage).expect("areas do not overlap"))
}

/// Frames below so many can be in a [`FrameSet`].
const FRAMES: u64 = 1024;

/// A plain set of frames with low numbers: a flag for each.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FrameSet {
    flags: Vec<bool>,
    len: usize,
}

impl FrameSet {
    pub(super) fn new() -> Self {
        Self { flags: vec![false; FRAMES as usize], len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, frame: u64) -> bool {
        frame < FRAMES && self.flags[frame as usize]
    }

    /// Returns true if it was not in it.
    pub(super) fn insert(&mut self, frame: u64) -> bool {
        let is_new = !std::mem::replace(&mut self.flags[frame as usize], true);
        self.len += usize::from(is_new);
        is_new
    }

    /// Returns true if it was in it.
    pub(super) fn remove(&mut self, frame: u64) -> bool {
        let was = self.contains(frame);
        if was {
            self.flags[frame as usize] = false;
            self.len -= 1;
        }
        was
    }

    /// The frames, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.flags).filter(|(_, flag)| **flag).map(|(frame, _)| frame)
    }
}
