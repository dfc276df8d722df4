//! The memory map against a plain set of frames, and its errors.

use std::collections::BTreeSet;

use swath_arch::testing::Random;
use swath_arch::{BASE_PAGE_BYTES, Extent, Pfn, PhysAddr};
use swath_frame::{ByteRange, MemoryMap, MemoryMapError};

fn range(start: u64, len_bytes: u64) -> ByteRange {
    ByteRange::new(PhysAddr::new(start), len_bytes)
}

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

#[test]
fn random_ranges_with_holes_of_every_alignment() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let mut at = random.below(3 * BASE_PAGE_BYTES);
        let mut ranges: Vec<ByteRange> = (0..1 + random.below(12))
            .map(|_| {
                let whole = random.below(3) > 0;
                let unit = if whole { BASE_PAGE_BYTES } else { 1 };
                let len_bytes = random.below(4 * BASE_PAGE_BYTES / unit) * unit;
                let this = range(at, len_bytes);
                at += len_bytes + random.below(3) * random.below(2 * BASE_PAGE_BYTES);
                this
            })
            .collect();
        for i in (1..ranges.len()).rev() {
            ranges.swap(i, random.below(i as u64 + 1) as usize);
        }
        let frames: BTreeSet<u64> = ranges
            .iter()
            .flat_map(|r| {
                let (start, end) = (r.start.raw(), r.start.raw() + r.len_bytes);
                (0..=at / BASE_PAGE_BYTES).filter(move |frame| {
                    start <= frame * BASE_PAGE_BYTES && (frame + 1) * BASE_PAGE_BYTES <= end
                })
            })
            .collect();
        let mut storage = vec![extent(7, 7); ranges.len()];
        let map = match MemoryMap::new(&ranges, &mut storage) {
            Ok(map) => map,
            Err(error) => {
                assert_eq!(error, MemoryMapError::NoFrame, "seed {seed}");
                assert!(frames.is_empty(), "seed {seed}");
                continue;
            }
        };
        assert_eq!(map.total_frames(), frames.len() as u64, "seed {seed}");
        let listed: Vec<u64> =
            map.areas().iter().flat_map(|area| area.iter()).map(Pfn::raw).collect();
        assert_eq!(listed, frames.iter().copied().collect::<Vec<_>>(), "seed {seed}");
        for pair in map.areas().windows(2) {
            assert!(pair[0].end() < pair[1].start, "seed {seed}: areas touch");
        }
        for frame in 0..=at / BASE_PAGE_BYTES + 1 {
            assert_eq!(map.contains(Pfn::new(frame)), frames.contains(&frame), "seed {seed}");
        }
        let (first, last) = (*frames.first().unwrap(), *frames.last().unwrap());
        assert_eq!(map.span(), extent(first, last - first + 1), "seed {seed}");
    }
}

#[test]
fn errors_name_the_range() {
    let mut storage = [Extent::default(); 2];
    let mut error = |ranges: &[ByteRange]| MemoryMap::new(ranges, &mut storage).unwrap_err();

    let (a, b, c) = (range(0x1000, 0x3000), range(0x3fff, 1), range(0x4000, 0x1000));
    assert_eq!(error(&[a, c, b]), MemoryMapError::Overlap { range: b, other: a });
    assert_eq!(error(&[b, c, a]), MemoryMapError::Overlap { range: a, other: b });
    assert_eq!(error(&[c, a, a]), MemoryMapError::Overlap { range: a, other: a });

    let high = range(u64::MAX - 10, 11);
    assert_eq!(error(&[a, high]), MemoryMapError::Overflow { range: high });

    let apart = range(0x10_0000, 0x1000);
    let more = range(0x20_0000, 0x1000);
    assert_eq!(error(&[a, apart, more]), MemoryMapError::TooManyAreas { range: more, capacity: 2 });

    assert_eq!(error(&[]), MemoryMapError::NoFrame);
    assert_eq!(error(&[range(0x800, 0x17ff), range(0x5000, 0)]), MemoryMapError::NoFrame);
    assert_eq!(
        MemoryMap::new(&[a], &mut []).unwrap_err(),
        MemoryMapError::TooManyAreas { range: a, capacity: 0 }
    );
}

#[test]
fn frames_shared_by_two_ranges_belong_to_none() {
    let mut storage = [Extent::default(); 2];
    let ranges = [range(0, 0x1800), range(0x1800, 0x1800)];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    assert_eq!(map.areas(), [extent(0, 1), extent(2, 1)]);
}

#[test]
fn the_highest_addresses() {
    let mut storage = [Extent::default(); 1];
    let map = MemoryMap::new(&[range(u64::MAX - 0x1fff, 0x1fff)], &mut storage).unwrap();
    assert_eq!(map.areas(), [extent((1 << 52) - 2, 1)]);
}
