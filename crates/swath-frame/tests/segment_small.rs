//! Small maps, all of them: every placement of areas and vacuums over 16
//! frames, and every sequence of four requests.
//!
//! An allocator sees of a placement what is laid end to end, the sizes of its
//! areas; where the vacuums are shows in extents only. So of the 2^16 - 1
//! placements those with the same sizes in the same order are one case for the
//! sequences: 2,583 are left. Without constraints, the global bitmap with all frames
//! taken at start sees the sum of the sizes only: 16 cases.
//!
//! A step of a sequence is a request of any size, one too large included, or
//! the release of any segment. Sequences that lead to the same segments go on
//! as one, and a step that fails leads nowhere.

use std::collections::HashSet;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaSpace, Baseline, FrameSupply, GlobalBitmap, Segment, SegmentAllocator, SegmentRequest,
};
use swath_frame::testing::segments::{NaiveSegments, SegmentRule, free_runs};

const FRAMES: u64 = 16;

/// The areas of the frames whose bits are set.
fn areas_of(bits: u32) -> Vec<Extent> {
    let mut areas: Vec<Extent> = Vec::new();
    for frame in (0..FRAMES).filter(|frame| bits >> frame & 1 == 1).map(Pfn::new) {
        match areas.last_mut() {
            Some(area) if area.end() == frame => area.count += 1,
            _ => areas.push(Extent::new(frame, 1)),
        }
    }
    areas
}

#[test]
fn all_placements_translate_all_segments() {
    let mut cases = 0;
    for bits in 1..1u32 << FRAMES {
        let areas = areas_of(bits);
        let mut storage = [Area::default(); FRAMES as usize];
        let space = AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap();
        let frames: Vec<u64> = (0..FRAMES).filter(|frame| bits >> frame & 1 == 1).collect();
        for start in 0..frames.len() {
            let frame = Pfn::new(frames[start]);
            assert_eq!(space.locate(start as u64).map(|(_, frame)| frame), Some(frame));
            assert_eq!(space.number_of(frame), Some(start as u64));
            let all = Segment::new(start as u64, FRAMES);
            let found = space.extents(all).flat_map(|e| e.iter()).map(Pfn::raw);
            assert!(found.eq(frames[start..].iter().copied()), "{bits:#b} from {start}");
            // Vacuums part the extents, and nothing else does.
            let parts = frames[start..].chunk_by(|a, b| a + 1 == *b).count();
            assert_eq!(space.extents(all).count(), parts);
            cases += 1;
        }
        let vacuum = (0..FRAMES).find(|frame| bits >> frame & 1 == 0);
        assert!(vacuum.is_none_or(|frame| space.number_of(Pfn::new(frame)).is_none()));
    }
    assert_eq!(cases, 16 << 15);
}

/// The placements' sizes of areas, each once.
fn sizes() -> Vec<Vec<u64>> {
    let sizes = (1..1u32 << FRAMES)
        .map(|bits| areas_of(bits).iter().map(|area| area.count).collect::<Vec<_>>());
    let mut sizes: Vec<_> = sizes.collect::<HashSet<_>>().into_iter().collect();
    sizes.sort();
    sizes
}

/// Four steps from where all is free; how many states there were.
fn walk<'m, A: SegmentAllocator + Clone>(
    space: AreaSpace<'m>,
    rule: SegmentRule,
    allocator: A,
    check: impl Fn(&A) -> Result<(), &'static str>,
) -> usize {
    let total = space.total_frames();
    let mut seen = HashSet::new();
    let mut states = vec![(NaiveSegments::new(space, rule), allocator)];
    for step in 1..=4 {
        let mut next = Vec::new();
        for (naive, allocator) in &states {
            let place = || format!("{rule:?}, {:?}, {:?}", space.areas(), naive.segments());
            let mut reached = |naive: NaiveSegments<'m>, allocator: A| {
                let mut segments = naive.segments();
                segments.sort();
                if seen.insert(segments) {
                    check(&allocator).unwrap_or_else(|error| panic!("{error}: {}", place()));
                    assert_eq!(free_runs(&allocator), free_runs(&naive), "{}", place());
                    let largest = naive.largest_frames();
                    assert_eq!(allocator.largest_frames(), largest, "{}", place());
                    if step < 4 {
                        next.push((naive, allocator));
                    }
                }
            };
            for count in 1..=total + 1 {
                let request = SegmentRequest::new(count);
                let expected = naive.find(&request);
                assert_eq!(allocator.find(&request), expected, "{count}: {}", place());
                if expected.is_ok() {
                    let (mut naive, mut allocator) = (naive.clone(), allocator.clone());
                    assert_eq!(naive.allocate(&request), expected);
                    assert_eq!(allocator.allocate(&request), expected);
                    reached(naive, allocator);
                }
            }
            for segment in naive.segments() {
                let (mut naive, mut allocator) = (naive.clone(), allocator.clone());
                assert_eq!(naive.free(segment), Ok(()));
                assert_eq!(allocator.free(segment), Ok(()), "{segment}: {}", place());
                reached(naive, allocator);
            }
        }
        states = next;
    }
    seen.len()
}

/// The areas of these sizes, a frame apart.
fn with_sizes<T>(sizes: &[u64], test: impl FnOnce(AreaSpace<'_>) -> T) -> T {
    let mut start = 0;
    let areas = sizes.iter().map(|&count| {
        let area = Extent::new(Pfn::new(start), count);
        start += count + 1;
        area
    });
    let areas: Vec<_> = areas.collect();
    let mut storage = vec![Area::default(); areas.len()];
    test(AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap())
}

fn bitmap(space: AreaSpace<'_>, frames: FrameSupply) -> GlobalBitmap<'_, Vec<u64>> {
    let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
    GlobalBitmap::new(space, frames, vec![0; words]).unwrap()
}

#[test]
fn all_sequences_on_the_global_bitmap() {
    let states: usize = (1..=FRAMES)
        .map(|total| {
            with_sizes(&[total], |space| {
                let bitmap = bitmap(space, FrameSupply::PreAllocated);
                walk(space, SegmentRule::Lowest, bitmap, GlobalBitmap::check)
            })
        })
        .sum();
    assert!(states > 10_000, "{states}");
}

#[test]
fn all_sequences_on_the_global_bitmap_over_blocks() {
    let all = sizes();
    assert_eq!(all.len(), 2583);
    let states: usize = all
        .iter()
        .map(|sizes| {
            with_sizes(sizes, |space| {
                let bitmap = bitmap(space, FrameSupply::OnDemand);
                walk(space, SegmentRule::Blocks, bitmap, GlobalBitmap::check)
            })
        })
        .sum();
    assert!(states > 50_000, "{states}");
}

#[test]
fn all_sequences_on_the_baseline() {
    let states: usize = sizes()
        .iter()
        .map(|sizes| {
            with_sizes(sizes, |space| {
                let words = Baseline::<Vec<u64>>::storage_words(&space);
                let baseline = Baseline::<_>::new(space, vec![0; words]).unwrap();
                walk(space, SegmentRule::Baseline, baseline, Baseline::check)
            })
        })
        .sum();
    assert!(states > 50_000, "{states}");
}
