//! Requests and releases of random sizes and order, on one allocator.

use rand::RngExt;
use swath_frame::segment::{
    CountedPages, Segment, SegmentAllocator, SegmentError, SegmentRequest, Window,
    allocate_by_moving,
};

use crate::papers::clmalloc::areas::MIB_FRAMES;
use crate::papers::clmalloc::bitmap::table_1::Table1;
use crate::source::memory::Random;

/// Steps after which the free runs are looked at.
const LOOKS: u64 = 50;

/// A load of requests and releases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Churn {
    /// Requests after memory has been filled for the first time.
    pub(crate) requests: u64,
    /// The share of memory that segments in use may have together.
    pub(crate) fill: f64,
    /// The most frames of a request; the least is one.
    pub(crate) request_frames: u64,
    /// What is emptied by moving segments where a request finds no place though enough is free; none:
    /// it is refused.
    pub(crate) moving: Option<Window>,
}

/// The counts of a load of requests and releases.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Churned {
    /// Requests made.
    pub(crate) requests: u64,
    /// Those that were refused though as many frames were free.
    pub(crate) refused: u64,
    /// Those for which segments were moved, and the frames of these.
    pub(crate) by_moving: u64,
    pub(crate) moved: u64,
    /// Frames that requests were for, and those that were acquired for them and kept.
    pub(crate) asked: u64,
    pub(crate) held: u64,
    /// Frames acquired and released again before the request was answered.
    pub(crate) in_vain: u64,
    /// The sum over the looks of the longest free run's share of all that is free.
    pub(crate) longest: f64,
    pub(crate) looks: u64,
    /// Words that Table 1's search has read, in so many searches, and the most in one.
    pub(crate) words_read: u64,
    pub(crate) searches: u64,
    pub(crate) words_max: u64,
    /// Areas that it has passed by.
    pub(crate) areas_passed: u64,
}

impl Churn {
    /// Runs the load on an allocator, all of whose frames are free; with `by_table_1`, Table 1's search
    /// beside it, which has to find the same places.
    pub(crate) fn run(
        self,
        allocator: &mut dyn SegmentAllocator,
        by_table_1: bool,
        random: &mut Random,
    ) -> Result<Churned, String> {
        let total = allocator.space().total_frames();
        let in_use_max = (total as f64 * self.fill) as u64;
        let mut table = by_table_1.then(|| Table1::new(&allocator.space()));
        let mut live: Vec<Segment> = Vec::new();
        let (mut found, mut in_use, mut filled) = (Churned::default(), 0, false);
        while found.requests < self.requests {
            let count = random.random_range(1..=self.request_frames);
            while in_use + count > in_use_max && !live.is_empty() {
                filled = true;
                in_use -= release(allocator, &mut table, &mut live, random)?;
            }
            let before = allocator.free_frames();
            let counted = filled.then_some(&mut found);
            let segment = self.request(allocator, &mut table, &mut live, count, counted)?;
            match segment {
                Some(segment) => {
                    in_use += segment.count;
                    live.push(segment);
                }
                None if live.is_empty() => return Err(format!("no place for {count} frames")),
                None => in_use -= release(allocator, &mut table, &mut live, random)?,
            }
            if filled {
                found.requests += 1;
                found.refused += u64::from(segment.is_none() && count <= before);
                if found.requests.is_multiple_of(LOOKS) && allocator.free_frames() > 0 {
                    let (longest, free) = (allocator.largest_frames(), allocator.free_frames());
                    found.longest += longest as f64 / free as f64;
                    found.looks += 1;
                }
            }
        }
        Ok(found)
    }

    /// Makes one request, which is counted if it is after the first filling.
    fn request(
        self,
        allocator: &mut dyn SegmentAllocator,
        table: &mut Option<Table1>,
        live: &mut [Segment],
        count: u64,
        counted: Option<&mut Churned>,
    ) -> Result<Option<Segment>, String> {
        let mut frames = CountedPages::default();
        let segment = allocator.allocate_from(&SegmentRequest::new(count), &mut frames);
        let mut moved = 0;
        let segment = match (segment, self.moving) {
            (Err(SegmentError::NoSegment { .. }), Some(window)) => {
                let mut places = vec![Segment::default(); live.len()];
                let by = &mut |_: Segment, _: Segment| {};
                let found = allocate_by_moving(allocator, count, window, live, &mut places, by);
                found.ok().map(|found| {
                    moved = found.frames;
                    found.segment
                })
            }
            (segment, _) => segment.ok(),
        };
        let space = allocator.space();
        let mut words = 0;
        let mut areas = 0;
        if let Some(table) = table {
            let unit = space.unit();
            let before = (table.words_read, table.areas_passed);
            let start = table.find(&space, count.div_ceil(unit.frames()));
            (words, areas) = (table.words_read - before.0, table.areas_passed - before.1);
            if start.map(|start| start.unit << unit.k()) != segment.map(|segment| segment.start) {
                return Err(format!(
                    "{count} frames: {start:?} by Table 1, {segment:?} by the tree"
                ));
            }
            if let Some(segment) = segment {
                table.mark(&space, segment, true);
            }
        }
        if let Some(found) = counted {
            let acquired = segment.map_or(0, |segment| allocator.acquired(segment).count);
            let held = segment.map_or(0, |segment| acquired.max(segment.count));
            found.asked += segment.map_or(0, |_| count);
            found.held += held;
            found.in_vain += frames.released;
            found.by_moving += u64::from(moved > 0);
            found.moved += moved;
            found.words_read += words;
            found.words_max = found.words_max.max(words);
            found.areas_passed += areas;
            found.searches += 1;
        }
        Ok(segment)
    }
}

/// Releases a random segment; its frames.
fn release(
    allocator: &mut dyn SegmentAllocator,
    table: &mut Option<Table1>,
    live: &mut Vec<Segment>,
    random: &mut Random,
) -> Result<u64, String> {
    let segment = live.swap_remove(random.random_range(0..live.len()));
    allocator.free(segment).map_err(|error| error.to_string())?;
    if let Some(table) = table {
        table.mark(&allocator.space(), segment, false);
    }
    Ok(segment.count)
}

/// Frames as MiB.
pub(crate) fn mib(frames: u64) -> f64 {
    frames as f64 / MIB_FRAMES as f64
}

#[cfg(test)]
mod tests {
    use swath_arch::Order;

    use super::*;
    use crate::papers::clmalloc::areas::machine;
    use crate::papers::clmalloc::segments::Candidate;
    use crate::source::memory::random;

    #[test]
    fn table_1_finds_what_the_tree_finds() {
        let areas: Vec<(u64, u64)> = (0..7).map(|i| (i * 8, 1 + i % 4)).collect();
        let machine = machine("7", &areas);
        let churn = Churn { requests: 600, fill: 0.8, request_frames: 1500, moving: None };
        for unit in [0, 3] {
            let unit = Order::known(unit);
            let run = |candidate: Candidate| {
                let by_table_1 = candidate == Candidate::PreAllocated;
                let run = |allocator: &mut dyn SegmentAllocator| {
                    churn.run(allocator, by_table_1, &mut random(7, 0))
                };
                candidate.with(&machine, unit, run).unwrap().unwrap()
            };
            let tree = run(Candidate::PreAllocated);
            assert_eq!((tree.requests, tree.searches, tree.in_vain), (600, 600, 0));
            assert!(tree.words_read > 600 && tree.words_max > 10, "{tree:?}");
            assert!(tree.held >= tree.asked && tree.held < tree.asked + 600 * unit.frames());
            let baseline = run(Candidate::Baseline);
            assert!(baseline.refused > tree.refused, "{baseline:?}, {tree:?}");
            assert!(baseline.in_vain > 0 && baseline.words_read == 0, "{baseline:?}");
            let blocks = run(Candidate::GlobalBitmap);
            assert!(blocks.held * tree.asked > tree.held * blocks.asked, "{blocks:?}, {tree:?}");
        }
    }

    #[test]
    fn moving_serves_what_was_refused() {
        let areas: Vec<(u64, u64)> = (0..8).map(|i| (i * 6, 4)).collect();
        let machine = machine("8", &areas);
        let run = |candidate: Candidate, moving: Option<Window>| {
            let churn = Churn { requests: 800, fill: 0.6, request_frames: 1500, moving };
            let run = |all: &mut dyn SegmentAllocator| churn.run(all, false, &mut random(5, 0));
            candidate.with(&machine, Order::BASE, run).unwrap().unwrap()
        };
        let moving = Some(Window::Areas);
        let (without, with) = (run(Candidate::Baseline, None), run(Candidate::Baseline, moving));
        assert_eq!((without.by_moving, without.moved), (0, 0));
        assert!(with.by_moving > 0 && with.moved >= with.by_moving, "{with:?}");
        assert!(with.refused < without.refused, "{without:?}, {with:?}");
        // The global bitmap finds a place for each of these as they come.
        let bitmap = run(Candidate::PreAllocated, moving);
        assert_eq!((bitmap.refused, bitmap.moved), (0, 0));
    }
}
