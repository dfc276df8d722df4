//! The frames of the reserve: which there are, where their addresses lie, and which are free.

use core::mem::MaybeUninit;
use core::slice;

use swath_arch::{BASE_PAGE_BYTES, Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaSpace, FrameSupply, GlobalBitmap, Segment, SegmentAllocator, SegmentRequest,
};
use swath_pool::{Placement, UNIT_BYTES};

use crate::source::chunk::CHUNK_UNITS;
use crate::source::mapping::Mapped;

/// Frames of a unit.
pub(crate) const UNIT_FRAMES: u64 = UNIT_BYTES as u64 / BASE_PAGE_BYTES;
/// Frames of a chunk.
pub(crate) const CHUNK_FRAMES: u64 = UNIT_FRAMES * CHUNK_UNITS as u64;
/// The most runs that there can be.
const RUNS_MAX: usize = 1 << 16;

/// A run of frames and its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The first frame.
    pub(crate) frame: u64,
    /// The arena's chunk in which it begins.
    pub(crate) chunk: u32,
    /// Number of its chunks.
    pub(crate) chunks: u32,
}

impl Run {
    fn of([frame, chunks]: [u64; 2]) -> Self {
        Self { frame, chunk: (chunks >> 32) as u32, chunks: chunks as u32 }
    }

    fn words(self) -> [u64; 2] {
        [self.frame, u64::from(self.chunk) << 32 | u64::from(self.chunks)]
    }

    pub(crate) fn end(self) -> u64 {
        self.frame + u64::from(self.chunks) * CHUNK_FRAMES
    }
}

/// The frames of the reserve.
///
/// Invariants: the runs ascend by frame and do not overlap; a free unit lies in a run, and no two runs
/// have free units that are neighbours, so that a run of free units is one of addresses.
pub(crate) struct ReserveFrames {
    /// The units of all frames that there may be, by their numbers in physical memory. What no run has
    /// is handed out, to nobody.
    bitmap: GlobalBitmap<'static, &'static mut [u64]>,
    /// The runs, as words.
    runs: &'static mut [[u64; 2]],
    count: usize,
    /// From this frame on they are simulated.
    top: u64,
    /// The next frame to simulate.
    simulated: u64,
}

impl ReserveFrames {
    /// Makes room for the frames below `top`, and for `more` simulated ones; there are none yet.
    pub(crate) fn new(top: u64, more: u64) -> Option<Self> {
        // No chunk begins with frame 0.
        let top = top.next_multiple_of(CHUNK_FRAMES).max(CHUNK_FRAMES);
        let span = Extent::new(Pfn::new(0), top + more.next_multiple_of(CHUNK_FRAMES));
        let mut mapped = Mapped::default();
        let [area] = mapped.table::<MaybeUninit<Area>>(1)? else { return None };
        let area = slice::from_mut(area.write(Area::default()));
        let unit = Order::known(UNIT_FRAMES.trailing_zeros() as u8);
        let space = AreaSpace::new(&[span], unit, area).ok()?;
        let words = mapped.table(GlobalBitmap::<&mut [u64]>::storage_words(&space))?;
        let mut bitmap = GlobalBitmap::<_>::new(space, FrameSupply::PreAllocated, words).ok()?;
        bitmap.allocate(&SegmentRequest::new(span.count)).ok()?;
        let runs = mapped.table(RUNS_MAX)?;
        mapped.keep();
        Some(Self { bitmap, runs, count: 0, top, simulated: top })
    }

    /// Returns the first of so many chunks of simulated frames, if there is room for them.
    pub(crate) fn simulate(&mut self, chunks: u32) -> Option<u64> {
        let first = self.simulated;
        let end = first + u64::from(chunks) * CHUNK_FRAMES;
        if end > self.bitmap.space().total_frames() {
            return None;
        }
        self.simulated = end;
        Some(first)
    }

    /// Returns true if the frame is a simulated one.
    pub(crate) fn is_simulated(&self, frame: u64) -> bool {
        frame >= self.top
    }

    /// Returns one of the runs, which ascend by frame.
    pub(crate) fn run(&self, index: usize) -> Option<Run> {
        self.runs[..self.count].get(index).copied().map(Run::of)
    }

    /// Returns the last run that begins with this frame or before it. O(log r) for r runs.
    pub(crate) fn run_of(&self, frame: u64) -> Option<Run> {
        let index = self.runs[..self.count].partition_point(|run| run[0] <= frame);
        self.run(index.checked_sub(1)?)
    }

    /// Enters a run of frames, simulated or not, whose addresses are usable: its units are free, but for
    /// one at a border with another run. Returns false, and changes nothing, if there is no room for it,
    /// or if frames of it are in another run: the kernel has moved pages meanwhile.
    pub(crate) fn enter(&mut self, run: Run) -> bool {
        let (first, end) = (run.frame, run.end());
        let behind = self.runs[..self.count].partition_point(|&other| other[0] < first);
        let before = behind.checked_sub(1).map(|index| Run::of(self.runs[index]).end());
        let next = self.runs[..self.count].get(behind).map(|other| other[0]);
        let span = self.bitmap.space().total_frames();
        let last = if self.is_simulated(first) { span } else { self.top };
        let room = self.count < self.runs.len() && end <= last;
        if !room || before.is_some_and(|end| end > first) || next.is_some_and(|next| next < end) {
            return false;
        }
        let first = first + if before == Some(first) { UNIT_FRAMES } else { 0 };
        let end = end - if next == Some(end) { UNIT_FRAMES } else { 0 };
        if self.bitmap.free_part(Segment::new(first, end - first)).is_err() {
            return false;
        }
        self.runs.copy_within(behind..self.count, behind + 1);
        self.runs[behind] = run.words();
        self.count += 1;
        true
    }

    /// Acquires units that are one run of frames, and returns the arena's first of them.
    pub(crate) fn acquire(&mut self, units: u32, placement: &Placement) -> Option<u32> {
        let page_order = |bytes: u64| Order::new((bytes / BASE_PAGE_BYTES).max(1).ilog2() as u8);
        let boundary = match placement.boundary_bytes {
            Some(bytes) => Some(page_order(bytes)?),
            None => None,
        };
        let request = SegmentRequest {
            align: page_order(placement.align_bytes)?,
            upper: placement.below / BASE_PAGE_BYTES,
            boundary,
            ..SegmentRequest::new(u64::from(units) * UNIT_FRAMES)
        };
        let segment = self.bitmap.allocate(&request).ok()?;
        let run = self.run_of(segment.start)?;
        let unit = (segment.start - run.frame) / UNIT_FRAMES;
        Some(run.chunk * CHUNK_UNITS + unit as u32)
    }

    /// Acquires `units` units from this frame on, and returns true, if they are free.
    pub(crate) fn acquire_at(&mut self, frame: u64, units: u32) -> bool {
        let count = u64::from(units) * UNIT_FRAMES;
        let exactly =
            SegmentRequest { lower: frame, upper: frame + count, ..SegmentRequest::new(count) };
        self.bitmap.allocate(&exactly).is_ok()
    }

    /// Returns true if the chunk that begins with this frame is all free.
    pub(crate) fn is_free(&self, frame: u64) -> bool {
        let (lower, upper) = (frame, frame + CHUNK_FRAMES);
        let exactly = SegmentRequest { lower, upper, ..SegmentRequest::new(CHUNK_FRAMES) };
        self.bitmap.find(&exactly).is_ok()
    }

    /// Releases units; those that are not acquired stay as they are.
    pub(crate) fn release(&mut self, frame: u64, units: u32) {
        let _ = self.bitmap.free_part(Segment::new(frame, u64::from(units) * UNIT_FRAMES));
    }

    /// Returns the number of free frames.
    pub(crate) fn free_frames(&self) -> u64 {
        self.bitmap.free_frames()
    }

    /// Returns the frames of the longest free run. O(1).
    pub(crate) fn longest_frames(&self) -> u64 {
        self.bitmap.largest_frames()
    }

    /// Counts the free runs. O(n) for n units.
    pub(crate) fn free_runs(&self) -> u64 {
        let mut runs = 0;
        self.bitmap.for_each_free(&mut |_| runs += 1);
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = CHUNK_FRAMES;

    fn frames(runs: &[(u64, u32, u32)]) -> ReserveFrames {
        let mut frames = ReserveFrames::new(100 * CHUNK, 10 * CHUNK).expect("memory");
        for &(frame, chunk, chunks) in runs {
            assert!(frames.enter(Run { frame: frame * CHUNK, chunk, chunks }));
        }
        frames
    }

    fn below(below: u64) -> Placement {
        Placement { below, ..Placement::ANY }
    }

    #[test]
    fn a_block_lies_in_one_run() {
        // Entered out of order; addresses do not ascend with frames.
        let mut frames = frames(&[(50, 100, 4), (10, 300, 2)]);
        assert_eq!((frames.free_frames(), frames.free_runs()), (6 * CHUNK, 2));
        assert_eq!(frames.longest_frames(), 4 * CHUNK);
        assert_eq!(frames.acquire(5 * CHUNK_UNITS, &Placement::ANY), None);
        assert_eq!(frames.acquire(3 * CHUNK_UNITS, &Placement::ANY), Some(100 * CHUNK_UNITS));
        assert_eq!(frames.acquire(CHUNK_UNITS + 1, &Placement::ANY), Some(300 * CHUNK_UNITS));
        assert_eq!(frames.acquire(CHUNK_UNITS + 1, &Placement::ANY), None);
        // A part goes back, and can be had again where it was.
        frames.release(50 * CHUNK + UNIT_FRAMES, 4);
        assert_eq!(frames.acquire(4, &Placement::ANY), Some(300 * CHUNK_UNITS + CHUNK_UNITS + 1));
        assert!(frames.acquire_at(50 * CHUNK + UNIT_FRAMES, 4));
        assert!(!frames.acquire_at(50 * CHUNK + UNIT_FRAMES, 4));
        assert!(frames.is_free(53 * CHUNK) && !frames.is_free(52 * CHUNK));
    }

    #[test]
    fn limits_are_those_of_physical_addresses() {
        let mut frames = frames(&[(11, 0, 3), (40, 10, 9)]);
        let bytes = |chunk: u64| chunk * CHUNK * BASE_PAGE_BYTES;
        let align = |align_bytes| Placement { align_bytes, ..Placement::ANY };
        let bound = |boundary| Placement { boundary_bytes: Some(boundary), ..Placement::ANY };
        assert_eq!(frames.acquire(1, &below(bytes(11))), None);
        assert_eq!(frames.acquire(1, &below(bytes(11) + 1)), None);
        assert_eq!(frames.acquire(CHUNK_UNITS, &align(bytes(4))), Some(CHUNK_UNITS));
        assert_eq!(frames.acquire(CHUNK_UNITS, &align(bytes(4))), Some(10 * CHUNK_UNITS));
        assert_eq!(frames.acquire(2 * CHUNK_UNITS, &below(bytes(14))), None);
        assert_eq!(frames.acquire(5 * CHUNK_UNITS, &bound(bytes(4))), None);
        // From 41 on three chunks would fit up to 44.
        assert_eq!(frames.acquire(4 * CHUNK_UNITS, &bound(bytes(4))), Some(14 * CHUNK_UNITS));
    }

    #[test]
    fn runs_that_touch_stay_apart() {
        let mut frames = frames(&[(20, 0, 2), (24, 10, 2), (22, 20, 2)]);
        assert_eq!((frames.count, frames.free_runs()), (3, 3));
        assert_eq!(frames.acquire(2 * CHUNK_UNITS, &Placement::ANY), Some(0));
        assert_eq!(
            frames.acquire(2 * CHUNK_UNITS - 2, &Placement::ANY),
            Some(20 * CHUNK_UNITS + 1)
        );
        assert_eq!(frames.acquire(2 * CHUNK_UNITS, &Placement::ANY), Some(10 * CHUNK_UNITS));
        // A frame cannot be in two runs.
        for (frame, chunks) in [(19, 2), (25, 1), (21, 4), (99, 2), (109, 2)] {
            assert!(!frames.enter(Run { frame: frame * CHUNK, chunk: 90, chunks }), "{frame}");
        }
    }

    #[test]
    fn simulated_frames_lie_behind_the_others() {
        let mut frames = frames(&[]);
        let first = frames.simulate(6).expect("room");
        assert!(frames.is_simulated(first) && !frames.is_simulated(first - 1));
        assert!(frames.enter(Run { frame: first, chunk: 7, chunks: 6 }));
        assert_eq!(frames.simulate(5), None);
        assert_eq!(frames.simulate(4), Some(first + 6 * CHUNK));
        assert_eq!(frames.acquire(CHUNK_UNITS, &below(first * BASE_PAGE_BYTES)), None);
        assert_eq!(frames.acquire(6 * CHUNK_UNITS, &Placement::ANY), Some(7 * CHUNK_UNITS));
    }
}
