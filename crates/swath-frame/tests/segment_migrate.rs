//! Room made by moving segments: contents follow, and what fails changes nothing.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaSpace, Baseline, FrameSupply, GlobalBitmap, Segment, SegmentAllocator, SegmentError,
    SegmentRequest, Window, allocate_by_moving,
};

fn with_space<T>(areas: &[(u64, u64)], unit: u8, test: impl FnOnce(AreaSpace<'_>) -> T) -> T {
    let areas: Vec<_> = areas.iter().map(|&(at, len)| Extent::new(Pfn::new(at), len)).collect();
    let mut storage = vec![Area::default(); areas.len()];
    test(AreaSpace::new(&areas, Order::known(unit), &mut storage).unwrap())
}

fn baseline(space: AreaSpace<'_>) -> Baseline<'_, Vec<u64>> {
    let words = Baseline::<Vec<u64>>::storage_words(&space);
    Baseline::new(space, vec![0; words]).unwrap()
}

fn bitmap(space: AreaSpace<'_>, frames: FrameSupply) -> GlobalBitmap<'_, Vec<u64>> {
    let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
    GlobalBitmap::new(space, frames, vec![0; words]).unwrap()
}

/// Allocates from the first segment on, then makes the last request by moving.
fn moved(
    allocator: &mut dyn SegmentAllocator,
    window: Window,
    counts: &[u64],
) -> Result<(u64, u64), SegmentError> {
    let (last, counts) = counts.split_last().unwrap();
    let mut live: Vec<Segment> = counts
        .iter()
        .map(|&count| allocator.allocate(&SegmentRequest::new(count)).unwrap())
        .collect();
    let mut places = vec![Segment::default(); live.len()];
    let moved =
        allocate_by_moving(allocator, *last, window, &mut live, &mut places, &mut |_, _| {});
    moved.map(|moved| (moved.segments, moved.frames))
}

#[test]
fn the_figures_requests() {
    const FOUR: [(u64, u64); 4] = [(0, 16), (24, 16), (48, 16), (72, 16)];
    with_space(&FOUR, 0, |space| {
        // Fig. 4(b): two small ones have to leave the areas that a large one needs.
        assert_eq!(moved(&mut baseline(space), Window::Areas, &[4, 24, 4, 24]), Ok((2, 8)));
        // Of 64 frames 40 are in use, and the request needs 32 that are two areas.
        let full = moved(&mut baseline(space), Window::Areas, &[8, 24, 8, 24]);
        assert_eq!(full, Err(SegmentError::NoSegment { wanted: 24 }));
        for window in [Window::Areas, Window::Frames] {
            let mut bitmap = bitmap(space, FrameSupply::PreAllocated);
            assert_eq!(moved(&mut bitmap, window, &[8, 24, 8, 24]), Ok((0, 0)));
        }
        let too_many = moved(&mut baseline(space), Window::Areas, &[8, 60]);
        assert_eq!(too_many, Err(SegmentError::OutOfFrames { wanted: 60, free: 56 }));
    });
}

/// An allocator under requests, releases and moves; each frame's word says whose it is.
struct Contents {
    words: Vec<u64>,
    live: Vec<Segment>,
    owners: Vec<u64>,
    next: u64,
}

impl Contents {
    fn write(&mut self, segment: Segment) {
        self.next += 1;
        for frame in segment.start..segment.start + segment.count {
            self.words[frame as usize] = self.next << 32 | (frame - segment.start);
        }
        self.live.push(segment);
        self.owners.push(self.next);
    }

    fn check(&self) {
        for (segment, owner) in self.live.iter().zip(&self.owners) {
            for at in 0..segment.count {
                let word = self.words[(segment.start + at) as usize];
                assert_eq!(word, owner << 32 | at, "frame {at} of {segment}");
            }
        }
    }
}

/// Runs a load; the moves that were made and the requests that were refused for want of a place, with it.
fn churn(allocator: &mut dyn SegmentAllocator, window: Window, seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let total = allocator.space().total_frames();
    let words = vec![0; total as usize];
    let mut all = Contents { words, live: Vec::new(), owners: Vec::new(), next: 0 };
    let (mut moves, mut refused) = (0, 0);
    for _ in 0..150 {
        if random.below(3) == 0 && !all.live.is_empty() {
            let at = random.below(all.live.len() as u64) as usize;
            allocator.free(all.live.swap_remove(at)).unwrap();
            all.owners.swap_remove(at);
            continue;
        }
        let count = 1 + random.below(total / 3);
        let (before, free) = (all.live.clone(), allocator.free_frames());
        let mut places = vec![Segment::default(); before.len()];
        let words = &mut all.words;
        let mut relocate = |from: Segment, to: Segment| {
            assert_eq!(from.count, to.count);
            let from = from.start as usize..(from.start + from.count) as usize;
            words.copy_within(from, to.start as usize);
        };
        let moved =
            allocate_by_moving(allocator, count, window, &mut all.live, &mut places, &mut relocate);
        match moved {
            Ok(moved) => {
                let differ = before.iter().zip(&all.live).filter(|(old, new)| old != new).count();
                assert_eq!(differ as u64, moved.segments, "seed {seed}");
                moves += moved.segments;
                all.write(moved.segment);
            }
            Err(error) => {
                refused += u64::from(matches!(error, SegmentError::NoSegment { .. }));
                assert_eq!((before, free), (all.live.clone(), allocator.free_frames()), "{seed}");
            }
        }
        all.check();
    }
    (moves, refused)
}

#[test]
fn contents_follow_on_every_allocator() {
    let (mut moves, mut refused) = ([0; 3], [0; 3]);
    for seed in 0..40 {
        let mut random = Random::new(1000 + seed);
        let mut at = 0;
        let areas: Vec<(u64, u64)> = (0..3 + random.below(5))
            .map(|_| {
                let area = (at, 8 + 8 * random.below(8));
                at = area.0 + area.1 + 8 * random.below(3);
                area
            })
            .collect();
        with_space(&areas, [0, 2][seed as usize % 2], |space| {
            let mut baseline = baseline(space);
            let mut blocks = bitmap(space, FrameSupply::OnDemand);
            let mut bitmap = bitmap(space, FrameSupply::PreAllocated);
            let found = [
                churn(&mut baseline, Window::Areas, seed),
                churn(&mut blocks, Window::Areas, seed),
                churn(&mut bitmap, Window::Frames, seed),
            ];
            baseline.check().unwrap();
            blocks.check().unwrap();
            bitmap.check().unwrap();
            for (at, (moved, not)) in found.into_iter().enumerate() {
                (moves[at], refused[at]) = (moves[at] + moved, refused[at] + not);
            }
        });
    }
    assert!(moves.iter().all(|&moves| moves > 20), "{moves:?}");
    assert!(refused[0] > 20 && refused[1] > 20, "{refused:?}");
}

/// What is in use and not in the list stays where it is.
#[test]
fn others_stay() {
    with_space(&[(0, 16), (16, 16), (48, 16)], 0, |space| {
        let mut allocator = bitmap(space, FrameSupply::PreAllocated);
        let request = |count| SegmentRequest::new(count);
        let fixed = allocator.allocate(&SegmentRequest { lower: 20, ..request(2) }).unwrap();
        let mut live = [allocator.allocate(&SegmentRequest { lower: 36, ..request(4) }).unwrap()];
        let mut places = [Segment::default()];
        let mut allocate = |count| {
            let by = &mut |_: Segment, _: Segment| {};
            allocate_by_moving(&mut allocator, count, Window::Frames, &mut live, &mut places, by)
        };
        // Behind the fixed one are 26 frames, and before it 20.
        assert_eq!(allocate(27), Err(SegmentError::NoSegment { wanted: 27 }));
        let moved = allocate(26).unwrap();
        assert_eq!((moved.segment, moved.segments), (Segment::new(22, 26), 1));
        assert_eq!((live, fixed), ([Segment::new(0, 4)], Segment::new(20, 2)));
    });
}
