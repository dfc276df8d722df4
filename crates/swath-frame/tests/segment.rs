//! The segment allocators against the naive one, on many shapes of areas.

use std::iter;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaFrames, AreaSpace, Baseline, CountedPages, FrameSupply, GlobalBitmap, HugePages,
    MappedSegments, MappingRefused, Segment, SegmentAllocator, SegmentError, SegmentFreeError,
    SegmentMapping, SegmentRequest,
};
use swath_frame::testing::segments::{
    NaiveSegments, SegmentRule, conform, conform_frames, free_runs,
};
use swath_frame::{BuildError, Checked, MemoryMapError};

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

fn with_space<T>(areas: &[Extent], unit: u8, test: impl FnOnce(AreaSpace<'_>) -> T) -> T {
    let mut storage = vec![Area::default(); areas.len()];
    test(AreaSpace::new(areas, Order::known(unit), &mut storage).unwrap())
}

/// What the storage held before must not matter.
fn bitmap<'m>(space: AreaSpace<'m>, frames: FrameSupply) -> GlobalBitmap<'m, Vec<u64>> {
    let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
    GlobalBitmap::new(space, frames, vec![0x5a5a_5a5a_5a5a_5a5a; words]).unwrap()
}

fn baseline<'m>(space: AreaSpace<'m>) -> Baseline<'m, Vec<u64>> {
    let words = Baseline::<Vec<u64>>::storage_words(&space);
    Baseline::<_>::new(space, vec![0x5a5a_5a5a_5a5a_5a5a; words]).unwrap()
}

fn huge<'m>(space: AreaSpace<'m>) -> HugePages<'m, Vec<u64>> {
    let words = HugePages::<Vec<u64>>::storage_words(&space);
    HugePages::<_>::new(space, vec![0x5a5a_5a5a_5a5a_5a5a; words]).unwrap()
}

/// Areas of up to `max` frames, some touching, in units of `unit` frames that
/// at least the first has.
fn random_areas(random: &mut Random, unit: u64, max: u64) -> Vec<Extent> {
    let mut start = random.below(100);
    (0..1 + random.below(7))
        .map(|index| {
            let least = if index == 0 { 2 * unit } else { 1 };
            let area = extent(start, least + random.below(max));
            start = area.end().raw() + random.below(2) * random.below(60);
            area
        })
        .collect()
}

#[test]
fn every_candidate_conforms() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let unit = [0, 0, 0, 1, 3][seed as usize % 5];
        let max = [12, 70, 200][seed as usize % 3] << (unit / 2);
        let areas = random_areas(&mut random, 1 << unit, max);
        with_space(&areas, unit, |space| {
            let steps = 400;
            for (frames, rule) in [
                (FrameSupply::PreAllocated, SegmentRule::Lowest),
                (FrameSupply::OnDemand, SegmentRule::Blocks),
            ] {
                conform(space, rule, &mut bitmap(space, frames), seed, steps, &mut |bitmap| {
                    assert_eq!(bitmap.check(), Ok(()), "seed {seed}");
                });
                let mut mapped =
                    MappedSegments::new(bitmap(space, frames), CountedPages::default());
                conform(space, rule, &mut mapped, seed, 100, &mut |mapped| {
                    let CountedPages { mapped: pages, unmapped, acquired, released } =
                        *mapped.mapping();
                    let held = space.total_frames() - mapped.free_frames();
                    let on_demand = frames == FrameSupply::OnDemand;
                    assert_eq!(acquired - released, if on_demand { held } else { 0 });
                    assert!(pages - unmapped <= held);
                    assert!(pages - unmapped == held || frames == FrameSupply::OnDemand);
                });
            }
            conform(
                space,
                SegmentRule::Baseline,
                &mut baseline(space),
                seed,
                steps,
                &mut |baseline| {
                    assert_eq!(baseline.check(), Ok(()), "seed {seed}");
                },
            );
            conform(space, SegmentRule::Page, &mut huge(space), seed, steps, &mut |huge| {
                assert_eq!(huge.check(), Ok(()), "seed {seed}");
            });
        });
    }
}

/// The frames behind segments, in the order in which they are acquired and released.
#[test]
fn frames_are_acquired_and_released_by_rule() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let unit = [0, 0, 1, 3][seed as usize % 4];
        let areas = match seed % 2 {
            0 => random_areas(&mut random, 1 << unit, 24 << unit),
            _ => (0..6).map(|i| extent(i * (24 << unit), 16 << unit)).collect(),
        };
        with_space(&areas, unit, |space| {
            let mut on_demand = bitmap(space, FrameSupply::OnDemand);
            conform_frames(space, SegmentRule::Blocks, &mut on_demand, seed, 150);
            let mut pre_allocated = bitmap(space, FrameSupply::PreAllocated);
            conform_frames(space, SegmentRule::Lowest, &mut pre_allocated, seed, 50);
            conform_frames(space, SegmentRule::Baseline, &mut baseline(space), seed, 300);
            conform_frames(space, SegmentRule::Page, &mut huge(space), seed, 50);
        });
    }
}

/// Enough units for four levels of summaries, with runs of every length.
#[test]
fn large_spaces_conform() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let areas: Vec<_> = (0..5).map(|i| extent(i << 16, 1000 + random.below(9000))).collect();
        with_space(&areas, 0, |space| {
            let mut lowest = bitmap(space, FrameSupply::PreAllocated);
            conform(space, SegmentRule::Lowest, &mut lowest, seed, 300, &mut |bitmap| {
                bitmap.check().unwrap();
            });
        });
    }
}

/// Many runs that are long enough and have no place: whatever the constraints, a place is found
/// exactly if there is one, and it is the lowest unless a search may try in vain too often.
#[test]
fn many_runs_without_a_place_conform() {
    // Answers: the lowest place, another, none; and others of blocks.
    let mut answers = [0; 4];
    for seed in 0..18 {
        let mut random = Random::new(seed);
        let sizes: &[u64] =
            [&[1 << 12][..], &[64; 60], &[96, 160, 256, 128, 320, 512, 64]][seed as usize % 3];
        let mut start = random.below(2) * 32;
        let areas = sizes.iter().map(|&size| {
            let area = extent(start, size);
            start = area.end().raw() + 32;
            area
        });
        let areas: Vec<_> = areas.collect();
        with_space(&areas, 0, |space| {
            for (frames, rule) in [
                (FrameSupply::PreAllocated, SegmentRule::Lowest),
                (FrameSupply::OnDemand, SegmentRule::Blocks),
            ] {
                let (mut bitmap, mut naive) =
                    (bitmap(space, frames), NaiveSegments::new(space, rule));
                // Of each `period` units the first is used, seldom another or none.
                let period = [16, 32][seed as usize % 2];
                let (mut used, mut none) = (Vec::new(), 0);
                for first in (0..space.total_frames()).step_by(period as usize) {
                    match random.below(80) {
                        0 => none = 6,
                        n if none == 0 => used.push(first + n / 76 * random.below(period)),
                        _ => none -= 1,
                    }
                }
                let one = SegmentRequest::new(1);
                let all: Vec<_> = iter::from_fn(|| bitmap.allocate(&one).ok()).collect();
                all.iter().for_each(|&unit| assert_eq!(naive.allocate(&one), Ok(unit)));
                for unit in all.into_iter().filter(|unit| !used.contains(&unit.start)) {
                    assert_eq!((bitmap.free(unit), naive.free(unit)), (Ok(()), Ok(())));
                }
                for step in 0..400 {
                    let mut request = SegmentRequest::new(1 + random.below(34));
                    request.align = Order::known([0, 5, random.below(7) as u8][step % 3]);
                    request.boundary =
                        Order::new(4 + random.below(5) as u8).filter(|_| step & 4 > 0);
                    request.one_area = step & 2 > 0;
                    if step % 16 == 0 {
                        request.lower = random.below(space.total_frames());
                        request.upper = request.lower + random.below(space.total_frames());
                    }
                    let found = bitmap.find(&request);
                    let lowest = naive.find(&request);
                    let place = format_args!("seed {seed}, step {step}, {rule:?}");
                    let expected = naive.clone().follow(&request, found);
                    assert_eq!(found, expected, "{place}: {request:?}");
                    match found {
                        Ok(_) if found == lowest => answers[0] += 1,
                        Ok(_) => answers[1 + 2 * usize::from(rule == SegmentRule::Blocks)] += 1,
                        Err(_) => answers[2] += 1,
                    }
                }
            }
        });
    }
    assert!(answers.iter().all(|&count| count > 50), "{answers:?}");
}

/// A million units in use at random; each answer against a scan of all units.
#[test]
fn a_million_units_against_a_scan() {
    let areas: Vec<_> = (0..16).map(|i| extent(i << 17, 1 << 16)).collect();
    with_space(&areas, 0, |space| {
        let seed = 7;
        let mut random = Random::new(seed);
        let mut bitmap = bitmap(space, FrameSupply::PreAllocated);
        let mut held = Vec::new();
        loop {
            let most = 1 << random.below(11);
            match bitmap.allocate(&SegmentRequest::new(1 + random.below(most))) {
                Ok(segment) => held.push(segment),
                Err(_) => break,
            }
        }
        for segment in held {
            if random.below(2) == 0 {
                bitmap.free(segment).unwrap();
            }
        }
        bitmap.check().unwrap();
        let total = space.total_frames() as usize;
        // How many free units there are from each unit on.
        let mut run = vec![0; total + 1];
        for free in free_runs(&bitmap) {
            let past = free.start + free.count;
            (free.start..past).for_each(|unit| run[unit as usize] = past - unit);
        }
        let longest = run.iter().copied().max().unwrap();
        assert_eq!(bitmap.largest_frames(), longest);
        for step in 0..100 {
            let most = [20, 500, longest + 2][step % 3];
            let align = Order::known(random.below(10) as u8 * u8::from(step % 4 == 0));
            let lower = random.below(total as u64) * random.below(2);
            let count = 1 + random.below(most);
            let request = SegmentRequest { align, lower, ..SegmentRequest::new(count) };
            let mut starts = (lower..total as u64).filter(|s| s.is_multiple_of(align.frames()));
            let expected = starts.find(|&start| run[start as usize] >= count);
            let found = bitmap.find(&request).ok();
            let expected = expected.map(|start| Segment::new(start, count));
            assert_eq!(found, expected, "seed {seed}, step {step}: {request:?}");
        }
    });
}

#[test]
fn extents_and_numbers_go_both_ways() {
    // Areas that touch make one extent; the vacuum parts two.
    let areas = [extent(100, 10), extent(110, 5), extent(200, 7)];
    with_space(&areas, 0, |space| {
        let extents = |start, count| space.extents(Segment::new(start, count)).collect::<Vec<_>>();
        assert_eq!(extents(3, 4), [extent(103, 4)]);
        assert_eq!(extents(3, 10), [extent(103, 10)]);
        assert_eq!(extents(9, 8), [extent(109, 6), extent(200, 2)]);
        assert_eq!(extents(0, 99), [extent(100, 15), extent(200, 7)]);
        assert_eq!(extents(20, u64::MAX), [extent(205, 2)]);
        assert_eq!(extents(22, 1), []);
        assert_eq!(extents(u64::MAX, 2), []);
        for (number, frame) in (100..115).chain(200..207).enumerate() {
            let (area, found) = space.locate(number as u64).unwrap();
            assert_eq!(found, Pfn::new(frame));
            assert!(areas[area].contains(found));
            assert_eq!(space.number_of(found), Some(number as u64));
        }
        assert_eq!(space.locate(22), None);
        for vacuum in [0, 99, 115, 199, 207, u64::MAX] {
            assert_eq!(space.number_of(Pfn::new(vacuum)), None);
        }
    });
}

#[test]
fn areas_are_trimmed_to_units_and_sorted() {
    let areas = [extent(33, 30), extent(7, 10), extent(17, 3), extent(64, 4)];
    with_space(&areas, 2, |space| {
        let frames: Vec<_> = space.areas().iter().map(|area| area.frames()).collect();
        assert_eq!(frames, [extent(8, 8), extent(36, 24), extent(64, 4)]);
        assert_eq!(space.total_frames(), 36);
        assert_eq!(space.units(), 9);
    });
    let error = |areas: &[Extent], room: usize| {
        let mut storage = vec![Area::default(); room];
        AreaSpace::new(areas, Order::known(2), &mut storage).err()
    };
    assert_eq!(error(&[], 4), Some(MemoryMapError::NoFrame));
    assert_eq!(error(&[extent(1, 6)], 4), Some(MemoryMapError::NoFrame));
    let overlap = error(&[extent(8, 8), extent(0, 9)], 4);
    assert!(matches!(overlap, Some(MemoryMapError::Overlap { .. })), "{overlap:?}");
    let many = error(&[extent(0, 8), extent(8, 8)], 1);
    assert!(matches!(many, Some(MemoryMapError::TooManyAreas { capacity: 1, .. })), "{many:?}");
    for far in [extent(u64::MAX, 1), extent(u64::MAX, 2), extent(1 << 52, 1)] {
        let overflow = error(&[far], 4);
        assert!(matches!(overflow, Some(MemoryMapError::Overflow { .. })), "{overflow:?}");
    }
}

#[test]
fn bad_storage_and_sizes_are_named() {
    with_space(&[extent(0, 1000)], 0, |space| {
        let needed_words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
        let given_words = needed_words - 1;
        let short = BuildError::Storage { needed_words, given_words };
        let built = GlobalBitmap::<_>::new(space, FrameSupply::PreAllocated, vec![0; given_words]);
        assert_eq!(built.err(), Some(short));
        let mut storage = vec![42; needed_words + 1];
        let mut bitmap =
            GlobalBitmap::<_>::new(space, FrameSupply::PreAllocated, &mut storage[..]).unwrap();
        let all = bitmap.allocate(&SegmentRequest::new(1000)).unwrap();
        bitmap.free(all).unwrap();
        assert_eq!(storage[needed_words], 42, "a word beyond the storage needed was used");
    });
    with_space(&[extent(0, 1 << 32)], 0, |space| {
        let frames = 1 << 32;
        assert_eq!(
            GlobalBitmap::<Vec<u64>>::new(space, FrameSupply::OnDemand, Vec::new()).err(),
            Some(BuildError::Span { frames })
        );
        assert_eq!(Baseline::<_>::new(space, Vec::new()).err(), Some(BuildError::Span { frames }));
        assert_eq!(HugePages::<_>::new(space, Vec::new()).err(), Some(BuildError::Span { frames }));
    });
}

#[test]
fn state_per_unit_is_as_documented() {
    with_space(&[extent(0, 1 << 20)], 0, |space| {
        let bytes = |words: usize| words as f64 * 8.0 / f64::from(1 << 20);
        for (measured, documented) in [
            (bytes(GlobalBitmap::<Vec<u64>>::storage_words(&space)), 0.46),
            (bytes(Baseline::<Vec<u64>>::storage_words(&space)), 0.38),
            (bytes(HugePages::<Vec<u64>>::storage_words(&space)), 0.13),
        ] {
            assert!((measured - documented).abs() < 0.01, "{measured} for {documented}");
        }
    });
}

#[test]
fn errors_name_what_was_wrong() {
    with_space(&[extent(64, 32), extent(128, 32)], 2, |space| {
        let mut bitmap = bitmap(space, FrameSupply::PreAllocated);
        let first = bitmap.allocate(&SegmentRequest::new(9)).unwrap();
        assert_eq!(first, Segment::new(0, 12));
        let second = bitmap.allocate(&SegmentRequest::new(8)).unwrap();
        assert_eq!(second, Segment::new(12, 8));
        let before = free_runs(&bitmap);
        let of = Segment::new;
        for (bad, error) in [
            (of(0, 0), SegmentFreeError::Empty),
            (of(4, u64::MAX), SegmentFreeError::Overflow { segment: of(4, u64::MAX) }),
            (of(0, 68), SegmentFreeError::Foreign { frame: 64 }),
            (of(80, 4), SegmentFreeError::Foreign { frame: 80 }),
            (of(0, 9), SegmentFreeError::Misaligned { segment: of(0, 9) }),
            (of(2, 10), SegmentFreeError::Misaligned { segment: of(2, 10) }),
            (of(16, 8), SegmentFreeError::NotAllocated { frame: 20 }),
            (of(0, 8), SegmentFreeError::NotSegment { segment: of(0, 8) }),
            (of(4, 8), SegmentFreeError::NotSegment { segment: of(4, 8) }),
            (of(0, 20), SegmentFreeError::NotSegment { segment: of(0, 20) }),
        ] {
            assert_eq!(bitmap.free(bad), Err(error), "{bad}");
            assert_eq!(free_runs(&bitmap), before);
        }
        let mut refused = |request: SegmentRequest| bitmap.allocate(&request).unwrap_err();
        let new = SegmentRequest::new;
        assert_eq!(refused(new(0)), SegmentError::Empty);
        let wanted = u64::MAX;
        assert_eq!(refused(new(wanted)), SegmentError::OutOfFrames { wanted, free: 44 });
        let boundary = SegmentRequest { boundary: Order::new(3), ..new(9) };
        assert_eq!(refused(boundary), SegmentError::Unsatisfiable { request: boundary });
        let narrow = SegmentRequest { lower: 30, upper: 38, ..new(8) };
        assert_eq!(refused(narrow), SegmentError::Unsatisfiable { request: narrow });
        let low = SegmentRequest { upper: 22, ..new(4) };
        assert_eq!(refused(low), SegmentError::NoSegment { wanted: 4 });
        assert_eq!(free_runs(&bitmap), before);
        bitmap.free(first).unwrap();
        assert_eq!(bitmap.free(first), Err(SegmentFreeError::NotAllocated { frame: 0 }));
    });
}

/// Freed ranges join their neighbours across the border of two areas.
#[test]
fn freed_ranges_join_across_areas() {
    with_space(&[extent(0, 16), extent(100, 16), extent(200, 16)], 0, |space| {
        let mut bitmap = bitmap(space, FrameSupply::PreAllocated);
        let [a, b, c, d] =
            [12, 10, 16, 10].map(|n| bitmap.allocate(&SegmentRequest::new(n)).unwrap());
        assert_eq!(bitmap.free_frames(), 0);
        bitmap.free(b).unwrap();
        bitmap.free(d).unwrap();
        assert_eq!(free_runs(&bitmap), [b, d]);
        bitmap.free(c).unwrap();
        assert_eq!(free_runs(&bitmap), [Segment::new(12, 36)]);
        assert_eq!(bitmap.largest_frames(), 36);
        let whole = bitmap.allocate(&SegmentRequest::new(36)).unwrap();
        let extents: Vec<_> = space.extents(whole).collect();
        assert_eq!(extents, [extent(12, 4), extent(100, 16), extent(200, 16)]);
        bitmap.free(a).unwrap();
        bitmap.free(whole).unwrap();
        assert_eq!(free_runs(&bitmap), [Segment::new(0, 48)]);
    });
}

/// Parts of segments are freed as flags say, and their rests are segments.
#[test]
fn parts_of_segments_are_freed_as_flags_say() {
    const UNITS: u64 = 300;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        with_space(&[extent(7, 113), extent(400, UNITS - 113)], 0, |space| {
            let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
            let mut bitmap: GlobalBitmap<'_, Vec<u64>, Checked> =
                GlobalBitmap::new(space, FrameSupply::PreAllocated, vec![1; words]).unwrap();
            let mut held = vec![false; UNITS as usize];
            // All is handed out first, to nobody, as memory that is still to come.
            bitmap.allocate(&SegmentRequest::new(UNITS)).unwrap();
            held.fill(true);
            for step in 0..300 {
                let place = format!("seed {seed}, step {step}");
                let start = random.below(UNITS);
                let count =
                    1 + random.below((UNITS - start).min(if step % 9 == 0 { 300 } else { 40 }));
                let part = Segment::new(start, count);
                let range = start as usize..(start + count) as usize;
                if random.below(2) == 0 {
                    let wrong = range.clone().find(|&unit| !held[unit]);
                    let expected = wrong.map_or(Ok(()), |unit| {
                        Err(SegmentFreeError::NotAllocated { frame: unit as u64 })
                    });
                    assert_eq!(bitmap.free_part(part), expected, "{place}: {part}");
                    if expected.is_ok() {
                        held[range].fill(false);
                    }
                } else if let Ok(got) = bitmap.allocate(&SegmentRequest::new(count)) {
                    let got = got.start as usize..(got.start + got.count) as usize;
                    assert!(held[got.clone()].iter().all(|&held| !held), "{place}");
                    held[got].fill(true);
                }
                bitmap.check().unwrap_or_else(|what| panic!("{place}: {what}"));
                bitmap.find_fault().unwrap_or_else(|fault| panic!("{place}: {fault:?}"));
                let free = held.iter().filter(|&&held| !held).count() as u64;
                assert_eq!(bitmap.free_frames(), free, "{place}");
            }
        });
    }
    with_space(&[extent(0, 64)], 2, |space| {
        let mut bitmap = bitmap(space, FrameSupply::OnDemand);
        let all = bitmap.allocate(&SegmentRequest::new(64)).unwrap();
        let part = Segment::new(0, 4);
        assert_eq!(bitmap.free_part(part), Err(SegmentFreeError::NotSegment { segment: part }));
        bitmap.free(all).unwrap();
    });
}

/// A mapping that is refused leaves nothing behind.
#[test]
fn a_refused_mapping_gives_the_segment_back() {
    struct Two(Vec<Segment>);
    impl AreaFrames for Two {
        fn acquire(&mut self, run: Extent) {
            panic!("{run:?} was acquired at start");
        }
        fn release(&mut self, run: Extent) {
            panic!("{run:?} was acquired at start");
        }
    }
    impl SegmentMapping for Two {
        fn map(
            &mut self,
            segment: Segment,
            extents: swath_frame::segment::SegmentExtents<'_>,
        ) -> Result<(), MappingRefused> {
            assert_eq!(extents.map(|extent| extent.count).sum::<u64>(), segment.count);
            if self.0.len() == 2 {
                return Err(MappingRefused);
            }
            self.0.push(segment);
            Ok(())
        }
        fn unmap(&mut self, segment: Segment, _: swath_frame::segment::SegmentExtents<'_>) {
            let at = self.0.iter().position(|&mapped| mapped == segment).unwrap();
            self.0.remove(at);
        }
    }
    with_space(&[extent(0, 16), extent(100, 16)], 0, |space| {
        let mut mapped =
            MappedSegments::new(bitmap(space, FrameSupply::PreAllocated), Two(Vec::new()));
        let request = SegmentRequest::new(10);
        let first = mapped.allocate(&request).unwrap();
        let second = mapped.allocate(&request).unwrap();
        let before = free_runs(&mapped);
        let segment = Segment::new(20, 10);
        assert_eq!(mapped.allocate(&request), Err(SegmentError::NotMapped { segment }));
        assert_eq!(free_runs(&mapped), before);
        mapped.allocator().check().unwrap();
        assert!(mapped.free(Segment::new(20, 10)).is_err());
        assert_eq!(mapped.mapping().0, [first, second]);
        mapped.free(first).unwrap();
        assert_eq!(mapped.allocate(&request), Ok(first));
    });
}
