//! The conformance suite of allocators that serve contiguous requests and whose memory comes and goes.

use swath_arch::testing::{Random, Steps};
use swath_arch::{Extent, Order, Pfn};

use crate::contiguous::{ContiguousAllocator, ContiguousError, ContiguousRequest};
use crate::hotplug::{FrameHotplug, FrameHotplugError};
use crate::map::MemoryMap;
use crate::testing::frames::{FrameOracle, agree, blocks, free, request, size};

/// Drives `allocator`, whose frames are those of `map` and all free, through at most `steps` operations of
/// `random`: contiguous requests under all constraints, memory that comes and goes anywhere in the span, and requests
/// and frees between them. `inspect` looks at it where the steps say that all is compared.
///
/// Checked are: the run is the lowest of all that meet the request, and a request fails only if there is
/// none; each error is the one that the set of frames calls for, and changes nothing; what has come can be
/// had and freed, what has gone is foreign.
///
/// # Panics
/// On the first deviation; the message names seed and step.
pub fn conform<A: ContiguousAllocator + FrameHotplug>(
    map: &MemoryMap<'_>,
    allocator: &mut A,
    random: impl Into<Random>,
    steps: impl Into<Steps>,
    inspect: &mut dyn FnMut(&A, &FrameOracle),
) {
    let (mut random, steps) = (random.into(), steps.into());
    let mut oracle = FrameOracle::new(map);
    oracle.place.seed = random.seed();
    assert_eq!(allocator.span(), map.span());
    for step in 1..=steps.most {
        if random.is_spent() {
            break;
        }
        oracle.place.step = step;
        match random.below(8) {
            0 | 1 => contiguous(allocator, &mut oracle, map, &mut random),
            2 => add(allocator, &mut oracle, map, &mut random),
            3 => remove(allocator, &mut oracle, map, &mut random),
            4 => request(allocator, &mut oracle, size(&mut random)),
            _ => free(allocator, &mut oracle, &mut random),
        }
        let place = oracle.place;
        assert_eq!(allocator.free_frames(), oracle.free.len() as u64, "{place}");
        assert_eq!(allocator.total_frames(), oracle.frames.len() as u64, "{place}");
        if steps.compares_all(step) {
            agree(allocator, &oracle);
            inspect(allocator, &oracle);
        }
    }
    agree(allocator, &oracle);
    inspect(allocator, &oracle);
}

/// A request for a run: mostly possible.
fn any_request(map: &MemoryMap<'_>, random: &mut Random) -> ContiguousRequest {
    let span = map.span();
    let near = |random: &mut Random| {
        Pfn::new(span.start.raw().saturating_sub(70) + random.below(span.count + 140))
    };
    let mut request = ContiguousRequest::new(size(random));
    if random.below(2) == 0 {
        request.align = Order::known(random.below(11) as u8);
    }
    if random.below(3) == 0 {
        request.lower = near(random);
    }
    if random.below(3) == 0 {
        request.upper = near(random);
    }
    if random.below(2) == 0 {
        request.boundary = Some(Order::known(random.below(12) as u8));
    }
    request
}

/// The definition: the first frame, of those from which `count` frames are free, that meets the request.
fn lowest(oracle: &FrameOracle, request: &ContiguousRequest) -> Option<u64> {
    let (mut run, mut past) = (0, 0);
    for &frame in &oracle.free {
        run = if frame == past { run + 1 } else { 1 };
        past = frame + 1;
        let start = past.wrapping_sub(request.count);
        let crosses = |order: Order| start >> order.k() != frame >> order.k();
        if run >= request.count
            && start.is_multiple_of(request.align.frames())
            && start >= request.lower.raw()
            && past <= request.upper.raw()
            && !request.boundary.is_some_and(crosses)
        {
            return Some(start);
        }
    }
    None
}

/// True if no frame, free or not, could begin such a run. The naive search ends at the first window beyond the
/// lower limit, since from there on places repeat.
fn is_unsatisfiable(request: &ContiguousRequest) -> bool {
    let period = request.align.frames().max(request.boundary.map_or(1, Order::frames));
    let from = request.lower.raw();
    let met = |&start: &u64| {
        let end = start + request.count;
        start.is_multiple_of(request.align.frames())
            && end <= request.upper.raw()
            && request.boundary.is_none_or(|order| start >> order.k() == (end - 1) >> order.k())
    };
    !(from..from + 2 * period).any(|start| met(&start))
}

fn contiguous<A: ContiguousAllocator + FrameHotplug>(
    allocator: &mut A,
    oracle: &mut FrameOracle,
    map: &MemoryMap<'_>,
    random: &mut Random,
) {
    let place = oracle.place;
    let request = any_request(map, random);
    let before = blocks(allocator);
    let free = oracle.free.len() as u64;
    let expected = if request.count == 0 {
        Err(ContiguousError::Empty)
    } else if is_unsatisfiable(&request) {
        Err(ContiguousError::Unsatisfiable { request })
    } else if request.count > free {
        Err(ContiguousError::OutOfFrames { wanted: request.count, free })
    } else {
        let start = lowest(oracle, &request);
        let run = start.map(|start| Extent::new(Pfn::new(start), request.count));
        run.ok_or(ContiguousError::NoRun { request })
    };
    assert_eq!(allocator.allocate_contiguous(&request), expected, "{place}: {request}");
    match expected {
        Ok(run) => oracle.allocate(run),
        Err(error) => assert_eq!(blocks(allocator), before, "{place}: {error}, and a change"),
    }
}

/// An extent near the span, mostly short, sometimes impossible.
fn any_extent(map: &MemoryMap<'_>, random: &mut Random) -> Extent {
    let span = map.span();
    let near = Pfn::new(span.start.raw().saturating_sub(3) + random.below(span.count + 6));
    match random.below(12) {
        0 => Extent::new(near, 0),
        1 => Extent::new(near, u64::MAX - random.below(9)),
        _ => Extent::new(near, size(random)),
    }
}

/// What is wrong with an extent whatever it holds.
fn misplaced(map: &MemoryMap<'_>, extent: Extent) -> Result<(), FrameHotplugError> {
    let span = map.span();
    if extent.is_empty() {
        return Err(FrameHotplugError::Empty);
    }
    let Some(end) = extent.checked_end() else {
        return Err(FrameHotplugError::Overflow { extent });
    };
    let frame = if span.contains(extent.start) { span.end() } else { extent.start };
    if frame == extent.start || end > span.end() {
        return Err(FrameHotplugError::OutOfSpan { frame, span });
    }
    Ok(())
}

fn add<A: FrameHotplug>(
    allocator: &mut A,
    oracle: &mut FrameOracle,
    map: &MemoryMap<'_>,
    random: &mut Random,
) {
    let place = oracle.place;
    let mut extent = any_extent(map, random);
    if random.below(2) == 0 && misplaced(map, extent).is_ok() {
        // Mostly a hole, from its first frame on.
        let absent = extent.iter().skip_while(|frame| oracle.frames.contains(&frame.raw()));
        let hole = absent.take_while(|frame| !oracle.frames.contains(&frame.raw()));
        let (mut first, mut count) = (extent.start, 0);
        for frame in hole {
            first = if count == 0 { frame } else { first };
            count += 1;
        }
        extent = Extent::new(first, count);
    }
    let expected = misplaced(map, extent);
    let result = allocator.add_frames(extent);
    if let Err(FrameHotplugError::TooManyAreas { .. }) = result {
        return;
    }
    if expected.is_ok() && extent.iter().any(|frame| oracle.frames.contains(&frame.raw())) {
        let Err(FrameHotplugError::Present { frame }) = result else {
            panic!("{place}: {extent}: {result:?}");
        };
        assert!(extent.contains(frame) && oracle.frames.contains(&frame.raw()), "{place}");
        return;
    }
    assert_eq!(result, expected, "{place}: {extent}");
    if result.is_ok() {
        oracle.frames.extend(extent.iter().map(Pfn::raw));
        oracle.free.extend(extent.iter().map(Pfn::raw));
    }
}

fn remove<A: FrameHotplug>(
    allocator: &mut A,
    oracle: &mut FrameOracle,
    map: &MemoryMap<'_>,
    random: &mut Random,
) {
    let place = oracle.place;
    let mut extent = any_extent(map, random);
    if random.below(2) == 0 && misplaced(map, extent).is_ok() {
        let free = extent.iter().take_while(|frame| oracle.free.contains(&frame.raw())).count();
        extent = Extent::new(extent.start, free as u64);
    }
    let expected = misplaced(map, extent).and_then(|()| {
        let used = extent.iter().find(|frame| !oracle.free.contains(&frame.raw()));
        used.map_or(Ok(()), |frame| {
            Err(if oracle.is_allocated(frame.raw()) {
                FrameHotplugError::InUse { frame }
            } else {
                FrameHotplugError::Absent { frame }
            })
        })
    });
    let result = allocator.remove_frames(extent);
    if let Err(FrameHotplugError::TooManyAreas { .. }) = result {
        return;
    }
    assert_eq!(result, expected, "{place}: {extent}");
    if result.is_ok() {
        for frame in extent.iter() {
            oracle.frames.remove(&frame.raw());
            oracle.free.remove(&frame.raw());
        }
    }
}
