//! Gates on the segment allocators. The global bitmap has 4 GiB in 16 areas, the baseline 256 MiB
//! in as many, which are the paper's machines; its request of 20 MiB is among those measured. The
//! huge pages are those of 2 MiB in the global bitmap's memory.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaSpace, Baseline, FrameSupply, GlobalBitmap, HugePages, Segment, SegmentAllocator,
    SegmentRequest,
};
use swath_frame::{Hardening, Trusting};

use crate::random::Random;
use crate::setup::FRAMES;

const AREAS: u64 = 16;
/// Get and put together are one call.
const CALLS: usize = 1 << 12;
/// Frames of 20 MiB.
const LARGE: u64 = 20 << 8;
/// A huge page.
const HUGE: Order = Order::known(9);

/// What is measured: a segment goes back, and one like it is handed out.
#[derive(Clone, Copy)]
pub(crate) enum Pair {
    /// A random one of the single frames, with a random half of the memory in use.
    Frame,
    /// The lowest frame, with all others free: the longest run of all is broken and made.
    FrameOfAll,
    /// A random one of the segments of 20 MiB, with half of their places in use.
    Large,
    /// A random one of the huge pages, with half of them in use.
    Page,
    /// A random one of segments of 24 frames that begin at multiples of 8 and cross none of 64,
    /// with a random half of the memory in use.
    Constrained,
}

fn with_space<T>(total: u64, unit: Order, test: impl FnOnce(AreaSpace<'_>) -> T) -> T {
    let count = total / AREAS;
    let areas: Vec<_> = (0..AREAS).map(|i| Extent::new(Pfn::new(2 * i * count), count)).collect();
    let mut storage = [Area::default(); AREAS as usize];
    test(AreaSpace::new(&areas, unit, &mut storage).expect("the areas lie apart"))
}

fn bitmap<H: Hardening>(space: AreaSpace<'_>) -> GlobalBitmap<'_, Vec<u64>, H> {
    let words = GlobalBitmap::<Vec<u64>, H>::storage_words(&space);
    GlobalBitmap::new(space, FrameSupply::PreAllocated, vec![0; words])
        .expect("the storage is enough")
}

/// Pairs of calls on the global bitmap with pre-allocation.
pub(crate) fn global<H: Hardening>(
    pair: Pair,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    with_space(FRAMES, Order::BASE, |space| {
        let mut bitmap = bitmap::<H>(space);
        let calls = pairs(&mut bitmap, pair, counted)?;
        bitmap.check()?;
        Ok(calls)
    })
}

/// Pairs of calls on the baseline.
pub(crate) fn baseline<H: Hardening>(
    pair: Pair,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    with_space(FRAMES >> 4, Order::BASE, |space| {
        let words = Baseline::<Vec<u64>, H>::storage_words(&space);
        let mut baseline =
            Baseline::<_, H>::new(space, vec![0; words]).map_err(|error| error.to_string())?;
        let calls = pairs(&mut baseline, pair, counted)?;
        baseline.check()?;
        Ok(calls)
    })
}

/// Pairs of calls on huge pages.
pub(crate) fn huge<H: Hardening>(counted: fn(&mut dyn FnMut())) -> Result<u64, String> {
    with_space(FRAMES, HUGE, |space| {
        let words = HugePages::<Vec<u64>, H>::storage_words(&space);
        let mut pages =
            HugePages::<_, H>::new(space, vec![0; words]).map_err(|error| error.to_string())?;
        let calls = pairs(&mut pages, Pair::Page, counted)?;
        pages.check()?;
        Ok(calls)
    })
}

fn get(allocator: &mut impl SegmentAllocator, request: &SegmentRequest) -> Result<Segment, String> {
    allocator.allocate(request).map_err(|error| error.to_string())
}

/// Uses a random half of the memory, in runs as random single frames would make; the segments
/// of one frame.
fn half_used(
    allocator: &mut impl SegmentAllocator,
    random: &mut Random,
) -> Result<Vec<Segment>, String> {
    let (mut singles, mut freed) = (Vec::new(), Vec::new());
    let mut keep = false;
    while allocator.free_frames() > 0 {
        let mut count = 1;
        while count < allocator.free_frames() && random.below(2) == 0 {
            count += 1;
        }
        // The baseline may have no run of so many.
        let segment = get(allocator, &SegmentRequest::new(count))
            .or_else(|_| get(allocator, &SegmentRequest::new(1)))?;
        match (keep, segment.count) {
            (false, _) => freed.push(segment),
            (true, 1) => singles.push(segment),
            (true, _) => {}
        }
        keep = !keep;
    }
    for segment in freed {
        allocator.free(segment).map_err(|error| error.to_string())?;
    }
    Ok(singles)
}

fn pairs(
    allocator: &mut impl SegmentAllocator,
    pair: Pair,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let mut random = Random::new(1);
    let mut request = SegmentRequest::new(1);
    let mut held = match pair {
        Pair::Frame => half_used(allocator, &mut random)?,
        Pair::FrameOfAll => vec![get(allocator, &request)?],
        Pair::Large | Pair::Page => {
            request.count = if matches!(pair, Pair::Page) { HUGE.frames() } else { LARGE };
            let mut all = Vec::new();
            while let Ok(segment) = allocator.allocate(&request) {
                all.push(segment);
            }
            random.shuffle(&mut all);
            for segment in all.drain(all.len() / 2..) {
                allocator.free(segment).map_err(|error| error.to_string())?;
            }
            all
        }
        Pair::Constrained => {
            request = SegmentRequest {
                align: Order::known(3),
                boundary: Order::new(6),
                ..SegmentRequest::new(24)
            };
            // Room for them at random places among the frames in use.
            let mut held = Vec::new();
            for _ in 0..CALLS / 8 {
                let lower = random.below(FRAMES / 4 * 3);
                held.push(get(allocator, &SegmentRequest { lower, ..request })?);
            }
            half_used(allocator, &mut random)?;
            held
        }
    };
    random.shuffle(&mut held);
    let mut failed = 0;
    let places = held.len();
    counted(&mut || {
        for call in 0..CALLS {
            let segment = &mut held[call % places];
            failed += u64::from(allocator.free(*segment).is_err());
            match allocator.allocate(&request) {
                Ok(new) => *segment = new,
                Err(_) => failed += 1,
            }
        }
    });
    if failed != 0 {
        return Err(format!("{failed} calls failed"));
    }
    let met = |segment: &Segment| {
        let last = segment.start + segment.count - 1;
        segment.count == request.count
            && segment.start.is_multiple_of(request.align.frames())
            && request.boundary.is_none_or(|of| segment.start >> of.k() == last >> of.k())
    };
    match held.iter().find(|segment| !met(segment)) {
        Some(segment) => Err(format!("segment {segment} does not meet {request:?}")),
        None => Ok(CALLS as u64),
    }
}

/// A request on the global bitmap whose place lies behind free runs, in all of memory, that are
/// long enough and have none.
pub(crate) fn hostile(total: u64, counted: fn(&mut dyn FnMut())) -> Result<u64, String> {
    with_space(total, Order::BASE, |space| {
        let mut bitmap = bitmap::<Trusting>(space);
        let request = SegmentRequest {
            align: Order::known(2),
            boundary: Order::new(6),
            ..SegmentRequest::new(20)
        };
        // Places begin at most 44 above a multiple of 64. Runs of 38 from 45 on have none, 39
        // have one wherever they begin.
        get(&mut bitmap, &SegmentRequest::new(45))?;
        let mut freed = Vec::new();
        while bitmap.free_frames() > 192 {
            freed.push(get(&mut bitmap, &SegmentRequest::new(38))?);
            get(&mut bitmap, &SegmentRequest::new(26))?;
        }
        get(&mut bitmap, &SegmentRequest::new(50))?;
        let last = get(&mut bitmap, &SegmentRequest::new(39))?;
        let rest = bitmap.free_frames();
        get(&mut bitmap, &SegmentRequest::new(rest))?;
        for segment in freed.iter().chain([&last]) {
            bitmap.free(*segment).map_err(|error| error.to_string())?;
        }
        let mut found = 0;
        counted(&mut || {
            for _ in 0..CALLS {
                let place = bitmap.find(std::hint::black_box(&request));
                found += u64::from(place.is_ok_and(|place| place.start >= last.start));
            }
        });
        if found == CALLS as u64 { Ok(found) } else { Err("the place was not found".into()) }
    })
}
