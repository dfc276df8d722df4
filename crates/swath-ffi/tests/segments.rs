//! The segment allocators through C, under the suite of their trait, and wrong calls.

use std::ffi::c_void;
use std::ptr;

use swath::swath_status::*;
use swath::*;
use swath_arch::testing::{Random, few};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaFrames, AreaSpace, Segment, SegmentAllocator, SegmentError, SegmentFreeError,
    SegmentRequest,
};
use swath_frame::testing::segments::{SegmentRule, conform, conform_frames};

const KINDS: [(swath_segments_kind, SegmentRule); 4] = [
    (swath_segments_kind::SWATH_SEGMENTS_BASELINE, SegmentRule::Baseline),
    (swath_segments_kind::SWATH_SEGMENTS_GLOBAL_BITMAP, SegmentRule::Blocks),
    (swath_segments_kind::SWATH_SEGMENTS_PRE_ALLOCATED, SegmentRule::Lowest),
    (swath_segments_kind::SWATH_SEGMENTS_HUGE_PAGES, SegmentRule::Page),
];

/// An allocator behind a pointer of C, with its space beside it.
struct CSegments<'m> {
    object: *mut swath_segments,
    space: AreaSpace<'m>,
    _storage: Vec<u64>,
}

impl<'m> CSegments<'m> {
    fn new(areas: &[Extent], space: AreaSpace<'m>, kind: swath_segments_kind) -> Self {
        let areas: Vec<swath_extent> = areas.iter().map(|&area| area.into()).collect();
        let config = swath_segments_config { kind: kind as u32, unit_order: space.unit().k() };
        // SAFETY: as many areas as are said.
        let len = unsafe { swath_segments_storage_bytes(areas.as_ptr(), areas.len(), config) };
        let mut storage = vec![0xaaaa_aaaa_aaaa_aaaa_u64; len / 8 + 2];
        // It may begin anywhere.
        let at: *mut c_void = storage.as_mut_ptr().cast::<u8>().wrapping_add(3).cast();
        let mut object = ptr::null_mut();
        let (first, count) = (areas.as_ptr(), areas.len());
        // SAFETY: storage that is kept beside the object, which is used no longer.
        unsafe {
            let short = swath_segments_create(first, count, config, at, len / 2, &mut object);
            assert_eq!(short, swath_result { status: SWATH_STORAGE, at: len as u64 });
            let made = swath_segments_create(first, count, config, at, len, &mut object);
            assert_eq!(made.status, SWATH_OK);
            assert_eq!(swath_segments_total_count(object), space.total_frames());
        }
        Self { object, space, _storage: storage }
    }

    fn request(request: &SegmentRequest) -> swath_segment_request {
        swath_segment_request {
            lower: request.lower,
            upper: request.upper,
            align: request.align.frames(),
            boundary: request.boundary.map_or(0, Order::frames),
            one_area: request.one_area.into(),
            ..swath_segment_request_of(request.count)
        }
    }
}

fn allocated(
    result: swath_result,
    segment: swath_segment,
    request: &SegmentRequest,
) -> Result<Segment, SegmentError> {
    let wanted = request.count;
    match result.status {
        SWATH_OK => Ok(Segment::new(segment.start, segment.count)),
        SWATH_EMPTY => Err(SegmentError::Empty),
        SWATH_OUT_OF_FRAMES => Err(SegmentError::OutOfFrames { wanted, free: result.at }),
        SWATH_TOO_LARGE => Err(SegmentError::Unsatisfiable { request: *request }),
        SWATH_NO_BLOCK => Err(SegmentError::NoSegment { wanted: result.at }),
        other => panic!("{other:?}"),
    }
}

fn freed(result: swath_result, segment: Segment) -> Result<(), SegmentFreeError> {
    match result.status {
        SWATH_OK => Ok(()),
        SWATH_EMPTY => Err(SegmentFreeError::Empty),
        SWATH_OVERFLOW => Err(SegmentFreeError::Overflow { segment }),
        SWATH_FOREIGN => Err(SegmentFreeError::Foreign { frame: result.at }),
        SWATH_MISALIGNED => Err(SegmentFreeError::Misaligned { segment }),
        SWATH_NOT_ALLOCATED => Err(SegmentFreeError::NotAllocated { frame: result.at }),
        SWATH_STATE => Err(SegmentFreeError::NotSegment { segment }),
        other => panic!("{other:?}"),
    }
}

fn in_c(segment: Segment) -> swath_segment {
    swath_segment { start: segment.start, count: segment.count }
}

/// Functions of C that call a trait object behind the context.
fn frames_in_c(frames: &mut &mut dyn AreaFrames) -> swath_area_frames {
    unsafe extern "C" fn acquire(run: swath_extent, context: *mut c_void) {
        // SAFETY: the pointer below.
        unsafe { (*context.cast::<&mut dyn AreaFrames>()).acquire(run.into()) };
    }
    unsafe extern "C" fn release(run: swath_extent, context: *mut c_void) {
        // SAFETY: the pointer below.
        unsafe { (*context.cast::<&mut dyn AreaFrames>()).release(run.into()) };
    }
    let context = ptr::from_mut(frames).cast();
    swath_area_frames { acquire: Some(acquire), release: Some(release), context }
}

impl SegmentAllocator for CSegments<'_> {
    fn space(&self) -> AreaSpace<'_> {
        self.space
    }

    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let mut segment = swath_segment::default();
        // SAFETY: an object of the library.
        let result =
            unsafe { swath_segments_find(self.object, &Self::request(request), &mut segment) };
        allocated(result, segment, request)
    }

    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let mut segment = swath_segment::default();
        // SAFETY: an object of the library.
        let result =
            unsafe { swath_segments_allocate(self.object, &Self::request(request), &mut segment) };
        allocated(result, segment, request)
    }

    fn free(&mut self, segment: Segment) -> Result<(), SegmentFreeError> {
        // SAFETY: an object of the library.
        freed(unsafe { swath_segments_free(self.object, in_c(segment)) }, segment)
    }

    fn acquired(&self, segment: Segment) -> Segment {
        let mut acquired = swath_segment::default();
        // SAFETY: an object of the library.
        let result = unsafe { swath_segments_acquired(self.object, in_c(segment), &mut acquired) };
        assert_eq!(result.status, SWATH_OK);
        Segment::new(acquired.start, acquired.count)
    }

    fn allocate_from(
        &mut self,
        request: &SegmentRequest,
        mut frames: &mut dyn AreaFrames,
    ) -> Result<Segment, SegmentError> {
        let mut segment = swath_segment::default();
        let frames = frames_in_c(&mut frames);
        let wanted = Self::request(request);
        // SAFETY: an object of the library; the functions take the context for what it is.
        let result =
            unsafe { swath_segments_allocate_from(self.object, &wanted, frames, &mut segment) };
        allocated(result, segment, request)
    }

    fn free_to(
        &mut self,
        segment: Segment,
        mut frames: &mut dyn AreaFrames,
    ) -> Result<(), SegmentFreeError> {
        let frames = frames_in_c(&mut frames);
        // SAFETY: as above.
        freed(unsafe { swath_segments_free_to(self.object, in_c(segment), frames) }, segment)
    }

    fn free_frames(&self) -> u64 {
        // SAFETY: an object of the library.
        unsafe { swath_segments_free_count(self.object) }
    }

    fn largest_frames(&self) -> u64 {
        // SAFETY: an object of the library.
        unsafe { swath_segments_largest_count(self.object) }
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Segment)) {
        unsafe extern "C" fn each(run: swath_segment, context: *mut c_void) {
            let visit = context.cast::<&mut dyn FnMut(Segment)>();
            // SAFETY: the pointer to the reference below.
            unsafe { (*visit)(Segment::new(run.start, run.count)) };
        }
        let mut visit = visit;
        let context = (&raw mut visit).cast();
        // SAFETY: an object of the library; `each` takes the context for what it is.
        let result = unsafe { swath_segments_each_free(self.object, Some(each), context) };
        assert_eq!(result.status, SWATH_OK);
    }
}

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

#[test]
fn every_kind_conforms() {
    for seed in 0..few(12) {
        let mut random = Random::new(seed);
        let mut at = random.below(50);
        let areas: Vec<Extent> = (0..1 + random.below(6))
            .map(|_| {
                let area = extent(at, 16 + random.below(60));
                at = area.end().raw() + random.below(2) * random.below(40);
                area
            })
            .collect();
        let unit = Order::known([0, 2, 3][seed as usize % 3]);
        let mut storage = vec![Area::default(); areas.len()];
        let space = AreaSpace::new(&areas, unit, &mut storage).expect("areas");
        for (kind, rule) in KINDS {
            let mut made = CSegments::new(&areas, space, kind);
            conform(space, rule, &mut made, seed, few(300) as usize, &mut |_| {});
            let mut made = CSegments::new(&areas, space, kind);
            conform_frames(space, rule, &mut made, seed, few(200) as usize);
        }
    }
}

/// The extents of a segment and the places of its frames are those of the space.
#[test]
fn extents_are_the_spaces() {
    let areas = [extent(0x100, 4), extent(0x200, 8), extent(0x208, 8)];
    let mut storage = [Area::default(); 3];
    let space = AreaSpace::new(&areas, Order::BASE, &mut storage).expect("areas");
    let made = CSegments::new(&areas, space, swath_segments_kind::SWATH_SEGMENTS_PRE_ALLOCATED);
    let of = |start: u64, count: u64, room: usize| {
        let (mut extents, mut found) = ([swath_extent::default(); 3], 0);
        let segment = swath_segment { start, count };
        // SAFETY: an object of the library; room for three.
        let result = unsafe {
            swath_segments_extents(made.object, segment, extents.as_mut_ptr(), room, &mut found)
        };
        (result, extents, found)
    };
    let total = space.total_frames();
    for start in 0..total {
        for count in 1..=total - start {
            let expected: Vec<swath_extent> =
                space.extents(Segment::new(start, count)).map(Into::into).collect();
            let (result, extents, found) = of(start, count, 3);
            assert_eq!((result.status, &extents[..found]), (SWATH_OK, &expected[..]));
        }
        let (mut area, mut physical) = (0, 0);
        // SAFETY: an object of the library.
        unsafe {
            let result = swath_segments_locate(made.object, start, &mut area, &mut physical);
            assert_eq!(result.status, SWATH_OK);
        }
        assert_eq!(space.locate(start), Some((area, Pfn::new(physical))));
    }
    let result = |status, at| swath_result { status, at };
    assert_eq!(of(2, 6, 1).0, result(SWATH_TOO_MANY_BLOCKS, 2));
    assert_eq!((of(2, 6, 0).0, of(2, 6, 0).2), (result(SWATH_OK, 0), 2));
    assert_eq!(of(18, 3, 3).0, result(SWATH_FOREIGN, 20));
    assert_eq!(of(3, 0, 3).0, result(SWATH_EMPTY, 0));
    assert_eq!(of(u64::MAX, 3, 3).0, result(SWATH_OVERFLOW, u64::MAX));
    let (mut area, mut physical) = (0, 0);
    // SAFETY: an object of the library.
    let beyond = unsafe { swath_segments_locate(made.object, 20, &mut area, &mut physical) };
    assert_eq!(beyond, result(SWATH_FOREIGN, 20));
}

#[test]
fn wrong_calls_are_refused() {
    let result = |status, at| swath_result { status, at };
    let areas = [extent(0, 16), extent(32, 16)].map(swath_extent::from);
    let config = |kind, unit_order| swath_segments_config { kind, unit_order };
    let mut object: *mut swath_segments = ptr::null_mut();
    let mut storage = vec![0_u64; 4096];
    let at: *mut c_void = storage.as_mut_ptr().cast();
    let mut create = |areas: &[swath_extent], config| {
        // SAFETY: as many areas as are said, and storage for any of them.
        unsafe {
            swath_segments_create(areas.as_ptr(), areas.len(), config, at, 1 << 15, &mut object)
        }
    };
    assert_eq!(create(&areas, config(4, 0)), result(SWATH_ARGUMENT, 4));
    assert_eq!(create(&areas, config(0, 64)), result(SWATH_ARGUMENT, 64));
    assert_eq!(create(&areas, config(0, 5)), result(SWATH_NO_FRAME, 0));
    assert_eq!(create(&[], config(0, 0)), result(SWATH_NO_FRAME, 0));
    let overlap = [extent(0, 16), extent(8, 16)].map(swath_extent::from);
    assert_eq!(create(&overlap, config(1, 0)).status, SWATH_OVERLAP);
    let endless = [extent(8, u64::MAX)].map(swath_extent::from);
    assert_eq!(create(&endless, config(1, 0)).status, SWATH_OVERFLOW);
    assert_eq!(create(&areas, config(1, 0)).status, SWATH_OK);
    let mut segment = swath_segment::default();
    let any = swath_segment_request_of(4);
    // SAFETY: objects of the library, and null pointers, which are refused.
    unsafe {
        let mut allocate = |request: swath_segment_request| {
            swath_segments_allocate(object, &request, &mut segment)
        };
        let wrong = swath_segment_request { align: 3, ..any };
        assert_eq!(allocate(wrong), result(SWATH_ARGUMENT, 3));
        let wrong = swath_segment_request { boundary: 6, ..any };
        assert_eq!(allocate(wrong), result(SWATH_ARGUMENT, 6));
        let wrong = swath_segment_request { one_area: 2, ..any };
        assert_eq!(allocate(wrong), result(SWATH_ARGUMENT, 2));
        let wrong = swath_segment_request { upper: 3, ..any };
        assert_eq!(allocate(wrong), result(SWATH_TOO_LARGE, 4));
        let null = swath_segments_allocate(object, ptr::null(), &mut segment);
        assert_eq!(null, result(SWATH_NULL, 0));
        let null = swath_segments_allocate(object, &any, ptr::null_mut());
        assert_eq!(null, result(SWATH_NULL, 0));
        let null = swath_segments_allocate(ptr::null_mut(), &any, &mut segment);
        assert_eq!(null, result(SWATH_NULL, 0));
        assert_eq!(swath_segments_free_count(object), 32);
        assert_eq!(swath_segments_each_free(object, None, ptr::null_mut()).status, SWATH_NULL);
        // Another object's pointer.
        let range = swath_range { start: 0, len_bytes: 1 << 20 };
        let mut words = vec![0_u64; swath_map_storage_bytes(1) / 8 + 1];
        let mut map: *mut swath_map = ptr::null_mut();
        let len = words.len() * 8;
        let made = swath_map_create(&range, 1, words.as_mut_ptr().cast(), len, &mut map);
        assert_eq!(made.status, SWATH_OK);
        let other = swath_segments_allocate(map.cast(), &any, &mut segment);
        assert_eq!(other.status, SWATH_WRONG_OBJECT);
    }
}

/// A function that is called for frames may read the segments, and change nothing.
#[test]
fn calls_from_within_are_busy() {
    unsafe extern "C" fn acquire(_: swath_extent, context: *mut c_void) {
        let object = context.cast::<swath_segments>();
        let mut segment = swath_segment::default();
        let request = swath_segment_request_of(1);
        // SAFETY: the object that the call below works on, which refuses.
        unsafe {
            let within = swath_segments_allocate(object, &request, &mut segment);
            assert_eq!(within.status, SWATH_BUSY);
            let within = swath_segments_free(object, swath_segment { start: 0, count: 4 });
            assert_eq!(within.status, SWATH_BUSY);
        }
    }
    let areas = [extent(0, 16), extent(32, 16)];
    let mut storage = [Area::default(); 2];
    let space = AreaSpace::new(&areas, Order::BASE, &mut storage).expect("areas");
    let made = CSegments::new(&areas, space, swath_segments_kind::SWATH_SEGMENTS_BASELINE);
    let frames =
        swath_area_frames { acquire: Some(acquire), release: None, context: made.object.cast() };
    let (request, mut segment) = (swath_segment_request_of(20), swath_segment::default());
    // SAFETY: an object of the library, and its pointer as the context.
    let result =
        unsafe { swath_segments_allocate_from(made.object, &request, frames, &mut segment) };
    assert_eq!((result.status, segment.count), (SWATH_OK, 20));
}
