//! Zhang, Lu and Zhang on the segment allocators: Fig. 4, Table 2,
//! and the rows of Fig. 6 that are not times.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaFrames, AreaSpace, Baseline, FrameSupply, GlobalBitmap, HugePages, Segment,
    SegmentAllocator, SegmentError, SegmentRequest,
};

/// Frames of a mebibyte.
const MIB: u64 = 256;

/// Areas of equal size with vacuums of half of it between them.
fn with_space<T>(areas: u64, frames: u64, unit: u8, test: impl FnOnce(AreaSpace<'_>) -> T) -> T {
    let stride = frames + frames / 2;
    let areas: Vec<_> = (0..areas).map(|i| Extent::new(Pfn::new(i * stride), frames)).collect();
    let mut storage = vec![Area::default(); areas.len()];
    test(AreaSpace::new(&areas, Order::known(unit), &mut storage).unwrap())
}

/// The machine of section 5.1: 16 areas of 16 MiB.
fn with_machine<T>(unit: u8, test: impl FnOnce(AreaSpace<'_>) -> T) -> T {
    with_space(16, 16 * MIB, unit, test)
}

fn baseline(space: AreaSpace<'_>) -> Baseline<'_, Vec<u64>> {
    let words = Baseline::<Vec<u64>>::storage_words(&space);
    Baseline::<_>::new(space, vec![0; words]).unwrap()
}

fn bitmap(space: AreaSpace<'_>, frames: FrameSupply) -> GlobalBitmap<'_, Vec<u64>> {
    let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
    GlobalBitmap::new(space, frames, vec![0; words]).unwrap()
}

fn huge(space: AreaSpace<'_>) -> HugePages<'_, Vec<u64>> {
    let words = HugePages::<Vec<u64>>::storage_words(&space);
    HugePages::<_>::new(space, vec![0; words]).unwrap()
}

/// How many requests of `frames` are served, up to `most`.
fn served(mut allocator: impl SegmentAllocator, frames: u64, most: usize) -> usize {
    (0..most).take_while(|_| allocator.allocate(&SegmentRequest::new(frames)).is_ok()).count()
}

#[test]
fn table_2() {
    const HUGE_PAGE: u8 = 9;
    // Frames, how often, then whether huge pages, baseline and CLMalloc can.
    for (frames, times, expected) in [
        (MIB, 1, [true, true, true]),
        (8 * MIB, 1, [false, true, true]),
        (100 * MIB, 1, [false, true, true]),
        (20 * MIB, 8, [false, true, true]),
        (20 * MIB, 9, [false, false, true]),
        (20 * MIB, 12, [false, false, true]),
    ] {
        let measured = [
            with_machine(HUGE_PAGE, |space| served(huge(space), frames, times)),
            with_machine(0, |space| served(baseline(space), frames, times)),
            with_machine(0, |space| {
                served(bitmap(space, FrameSupply::PreAllocated), frames, times)
            }),
        ];
        let measured = measured.map(|served| served == times);
        assert_eq!(measured, expected, "{frames} frames, {times} times");
    }
    with_machine(0, |space| {
        // Twelve is as many as there can be.
        assert_eq!(served(bitmap(space, FrameSupply::PreAllocated), 20 * MIB, 100), 12);
        // Without pre-allocation powers of two are lost: ten. The paper has nine.
        assert_eq!(served(bitmap(space, FrameSupply::OnDemand), 20 * MIB, 100), 10);
    });
}

/// The other machine of the paper: areas of 4 GiB.
#[test]
fn areas_of_four_gigabytes() {
    let gib = 1024 * MIB;
    with_space(8, 4 * gib, 9, |space| {
        assert_eq!(served(baseline(space), 5 * gib, 100), 4);
        assert_eq!(served(bitmap(space, FrameSupply::PreAllocated), 5 * gib, 100), 6);
        let mut bitmap = bitmap(space, FrameSupply::PreAllocated);
        let all = bitmap.allocate(&SegmentRequest::new(32 * gib)).unwrap();
        assert_eq!(space.extents(all).count(), 8);
        assert_eq!(bitmap.free_frames(), 0);
    });
}

/// Four requests, two of one and a half areas and two of half an area, on four
/// areas: all are served if the large ones come first, not if they alternate.
/// The global bitmap serves them in either order.
#[test]
fn fig_4_the_order_of_requests() {
    let area = 16 * MIB;
    let (large, small) = (area + area / 2, area / 2);
    let run = |allocator: &mut dyn FnMut(u64) -> Result<Segment, SegmentError>, order: [u64; 4]| {
        order.map(|frames| allocator(frames).is_ok())
    };
    let (first, alternate) = ([large, large, small, small], [small, large, small, large]);
    with_space(4, area, 0, |space| {
        for (order, expected) in [(first, [true; 4]), (alternate, [true, true, true, false])] {
            let mut baseline = baseline(space);
            let served = run(&mut |n| baseline.allocate(&SegmentRequest::new(n)), order);
            assert_eq!(served, expected);
            // What is left would be enough, were it in one place.
            let enough = baseline.free_frames() >= large;
            assert_eq!(enough, !expected[3]);
            for frames in [FrameSupply::OnDemand, FrameSupply::PreAllocated] {
                let mut bitmap = bitmap(space, frames);
                let served = run(&mut |n| bitmap.allocate(&SegmentRequest::new(n)), order);
                assert_eq!(served, [true; 4], "{frames:?}");
                assert_eq!(bitmap.free_frames(), 0);
            }
        }
    });
}

/// The reverse search: the head of the last area taken is given back, and an
/// area in use sends the search on behind it.
#[test]
fn the_reverse_search() {
    with_space(6, 64, 0, |space| {
        let mut baseline = baseline(space);
        let mut get = |count| baseline.allocate(&SegmentRequest::new(count));
        // Two areas and a quarter from the highest on.
        assert_eq!(get(144), Ok(Segment::new(240, 144)));
        // The head that went back serves a small request, after area 0 to 2.
        assert_eq!(get(64), Ok(Segment::new(0, 64)));
        assert_eq!(get(64), Ok(Segment::new(64, 64)));
        assert_eq!(get(64), Ok(Segment::new(128, 64)));
        assert_eq!(get(32), Ok(Segment::new(192, 32)));
        assert_eq!(get(65), Err(SegmentError::OutOfFrames { wanted: 65, free: 16 }));
        baseline.free(Segment::new(0, 64)).unwrap();
        baseline.free(Segment::new(128, 64)).unwrap();
        // Two free areas that are not neighbours.
        assert_eq!(baseline.largest_frames(), 64);
        let request = SegmentRequest::new(65);
        assert_eq!(baseline.allocate(&request), Err(SegmentError::NoSegment { wanted: 65 }));
        baseline.free(Segment::new(64, 64)).unwrap();
        assert_eq!(baseline.largest_frames(), 192);
        assert_eq!(baseline.allocate(&request), Ok(Segment::new(127, 65)));
    });
}

/// The walk acquires each free area that it comes to, though the next may be in use; what it
/// acquired in vain, and the excess of the last area, it releases.
#[test]
fn the_reverse_search_acquires_and_releases() {
    #[derive(Default)]
    struct Told(Vec<(char, Extent)>);
    impl AreaFrames for Told {
        fn acquire(&mut self, run: Extent) {
            self.0.push(('+', run));
        }
        fn release(&mut self, run: Extent) {
            self.0.push(('-', run));
        }
    }
    with_space(6, 64, 0, |space| {
        let mut baseline = baseline(space);
        // Areas 0 to 5 begin at frames 0, 96, 192, 288, 384 and 480; area 4 is in use.
        let small = |area: u64| SegmentRequest { lower: 64 * area, ..SegmentRequest::new(10) };
        let mut told = Told::default();
        let four = baseline.allocate_from(&small(4), &mut told).unwrap();
        let run = |start, count| Extent::new(Pfn::new(start), count);
        assert_eq!(told.0, [('+', run(384, 16))], "a block of a power of two");
        let mut told = Told::default();
        let segment = baseline.allocate_from(&SegmentRequest::new(100), &mut told);
        assert_eq!(segment, Ok(Segment::new(156, 100)));
        let steps = [
            ('+', run(480, 64)),
            ('-', run(480, 64)),
            ('+', run(288, 64)),
            ('+', run(192, 64)),
            ('-', run(192, 28)),
        ];
        assert_eq!(told.0, steps);
        // "Repetitive work before reporting the error": areas 5, 1 and 0 for three areas' request.
        let mut told = Told::default();
        let request = SegmentRequest::new(160);
        let error = baseline.allocate_from(&request, &mut told);
        assert_eq!(error, Err(SegmentError::NoSegment { wanted: 160 }));
        let steps = [
            ('+', run(480, 64)),
            ('-', run(480, 64)),
            ('+', run(96, 64)),
            ('+', run(0, 64)),
            ('-', run(0, 64)),
            ('-', run(96, 64)),
        ];
        assert_eq!(told.0, steps);
        let mut told = Told::default();
        baseline.free_to(segment.unwrap(), &mut told).unwrap();
        baseline.free_to(four, &mut told).unwrap();
        let steps = [('-', run(220, 36)), ('-', run(288, 64)), ('-', run(384, 16))];
        assert_eq!(told.0, steps);
        assert_eq!(baseline.free_frames(), 6 * 64);
    });
}

/// A block of the buddy system is held whole: what is beyond the request is
/// neither handed out nor free, and comes back with it.
#[test]
fn powers_of_two_waste() {
    with_machine(0, |space| {
        let total = space.total_frames();
        let mut on_demand = bitmap(space, FrameSupply::OnDemand);
        let segment = on_demand.allocate(&SegmentRequest::new(5 * MIB)).unwrap();
        assert_eq!(segment.count, 5 * MIB);
        assert_eq!(on_demand.free_frames(), total - 8 * MIB);
        assert_eq!(on_demand.allocate(&SegmentRequest::new(1)), Ok(Segment::new(8 * MIB, 1)));
        on_demand.free(segment).unwrap();
        assert_eq!(on_demand.free_frames(), total - 1);
        let mut pre_allocated = bitmap(space, FrameSupply::PreAllocated);
        pre_allocated.allocate(&SegmentRequest::new(5 * MIB)).unwrap();
        assert_eq!(pre_allocated.free_frames(), total - 5 * MIB);
    });
}
