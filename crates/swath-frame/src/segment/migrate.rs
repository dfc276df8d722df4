//! Room for a request by moving segments: memory migration.
//!
//! The baseline of the CLMalloc paper migrates memory where a request finds no place though enough is
//! free (section 3.2, Fig. 4(b)). [`allocate_by_moving`] does this over any segment allocator: it
//! chooses a **window** of the accelerator's space that is long enough, finds every segment that
//! reaches into it another place, has their content moved, and allocates.
//!
//! ```text
//!  areas    0 [a.b.....]  1 [........]  2 [....cccc]  3 [cccccccc]
//!  window      ^^^^^^^^^^^^^^^^^^^^^    a and b have places before c
//!  after    0 [....####]  1 [########]  2 [ab..cccc]  3 [cccccccc]
//! ```

use crate::segment::allocator::{SegmentAllocator, SegmentError, SegmentRequest};
use crate::segment::space::{AreaSpace, Segment};

/// The frames that have to be free for a request of an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// An area, whole, or neighbouring ones where a request is longer than any: what serves it on
    /// any allocator.
    Areas,
    /// As many frames as the request's, from the end of a segment or the start of a free run on. For
    /// allocators without blocks, whose segments begin anywhere
    /// ([`GlobalBitmap`](crate::segment::GlobalBitmap) with frames that were taken at start); with
    /// blocks, the request may fail when segments have moved.
    Frames,
}

/// The outcome of [`allocate_by_moving`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The segment of the request.
    pub segment: Segment,
    /// Number of segments that were moved for it.
    pub segments: u64,
    /// Frames whose content was moved.
    pub frames: u64,
}

/// A window with what it costs to empty it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Frames of the segments that reach into it.
    moved: u64,
    start: u64,
    end: u64,
}

/// Allocates `count` frames; where there is no place though as many frames are free, moves segments
/// out of a window for it. The window with the fewest frames to move is tried first, and the others
/// after it. A segment moves whole, to a place that the allocator itself gives outside the window.
///
/// `live` are segments handed out that may move, to anywhere; those that moved have their new place
/// there afterwards. What else is in use stays, and with it each window that it reaches into. `places`
/// are as many segments to work in. `relocate(from, to)` moves the content, and whatever maps it:
/// both segments are handed out while it does.
///
/// O(w · (w · s + p)) for w windows (as many as areas, or segments and free runs), s segments of `live` and p,
/// the cost of finding s places.
///
/// # Errors
/// As [`SegmentAllocator::allocate`], when no window can be emptied either; nothing has moved then.
///
/// # Panics
/// If `places` is shorter than `live`.
///
/// # Examples
/// ```
/// use swath_arch::{Extent, Order, Pfn};
/// use swath_frame::segment::{
///     Area, AreaSpace, Baseline, Segment, SegmentAllocator, SegmentRequest, Window, allocate_by_moving,
/// };
///
/// let areas = [0, 32, 64, 96].map(|start| Extent::new(Pfn::new(start), 16));
/// let mut storage = [Area::default(); 4];
/// let space = AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap();
/// let words = vec![0; Baseline::<Vec<u64>>::storage_words(&space)];
/// let mut allocator: Baseline<_> = Baseline::new(space, words).unwrap();
/// let mut live: Vec<Segment> =
///     [4, 24, 4].map(|count| allocator.allocate(&SegmentRequest::new(count)).unwrap()).to_vec();
/// assert!(allocator.allocate(&SegmentRequest::new(24)).is_err());
/// let mut places = vec![Segment::default(); 3];
/// let moved =
///     allocate_by_moving(&mut allocator, 24, Window::Areas, &mut live, &mut places, &mut |_, _| {});
/// assert_eq!((moved.unwrap().segments, moved.unwrap().frames), (2, 8));
/// ```
pub fn allocate_by_moving<A: SegmentAllocator + ?Sized>(
    allocator: &mut A,
    count: u64,
    window: Window,
    live: &mut [Segment],
    places: &mut [Segment],
    relocate: &mut dyn FnMut(Segment, Segment),
) -> Result<Moved, SegmentError> {
    let refused = match allocator.allocate(&SegmentRequest::new(count)) {
        Ok(segment) => return Ok(Moved { segment, segments: 0, frames: 0 }),
        Err(refused @ SegmentError::NoSegment { .. }) => refused,
        Err(refused) => return Err(refused),
    };
    let places = &mut places[..live.len()];
    let mut tried = None;
    while let Some(next) = cheapest(allocator, count, window, live, tried) {
        tried = Some(next);
        if !find_places(allocator, next, live, places) {
            continue;
        }
        let (mut segments, mut frames) = (0, 0);
        for (segment, place) in live.iter_mut().zip(&*places).filter(|(_, place)| place.count > 0) {
            relocate(*segment, *place);
            let freed = allocator.free(*segment);
            debug_assert_eq!(freed, Ok(()), "a segment of the caller's list");
            (segments, frames) = (segments + 1, frames + segment.count);
            *segment = *place;
        }
        let segment = allocator.allocate(&SegmentRequest::new(count))?;
        return Ok(Moved { segment, segments, frames });
    }
    Err(refused)
}

/// The frames that are acquired for a segment, at least its own.
fn held<A: SegmentAllocator + ?Sized>(allocator: &A, segment: Segment) -> Segment {
    Segment::new(segment.start, segment.count.max(allocator.acquired(segment).count))
}

/// The frames that two segments have in common.
fn overlap(segment: Segment, start: u64, end: u64) -> u64 {
    (segment.start + segment.count).min(end).saturating_sub(segment.start.max(start))
}

/// The window behind `tried`, in the order of what they cost, that is free but for segments of `live`.
fn cheapest<A: SegmentAllocator + ?Sized>(
    allocator: &A,
    count: u64,
    window: Window,
    live: &[Segment],
    tried: Option<Candidate>,
) -> Option<Candidate> {
    let space = allocator.space();
    let mut best: Option<Candidate> = None;
    let mut consider = |(start, end): (u64, u64)| {
        let reaching = live.iter().filter(|&&one| overlap(held(allocator, one), start, end) > 0);
        let moved = reaching.map(|one| one.count).sum();
        let candidate = Candidate { moved, start, end };
        let next = tried.is_none_or(|tried| candidate > tried);
        if next && best.is_none_or(|best| candidate < best) && movable(allocator, candidate, live) {
            best = Some(candidate);
        }
    };
    match window {
        Window::Areas => {
            let starts = space.areas().iter().map(|area| area.segment().start);
            starts.filter_map(|start| areas(&space, start, count)).for_each(&mut consider);
        }
        Window::Frames => {
            // Segments begin with a unit.
            let frames = count.next_multiple_of(space.unit().frames());
            let mut from = |start: u64| {
                if start + frames <= space.total_frames() {
                    consider((start, start + frames));
                }
            };
            from(0);
            live.iter().for_each(|segment| from(segment.start + segment.count));
            allocator.for_each_free(&mut |free| from(free.start));
        }
    }
    best
}

/// Areas from the one that starts with frame `start` on, with `count` frames at least: one, if any area
/// has so many.
fn areas(space: &AreaSpace<'_>, start: u64, count: u64) -> Option<(u64, u64)> {
    let all = || space.areas().iter().map(|area| area.segment());
    let one = all().any(|area| area.count >= count);
    let mut behind =
        all().filter(|area| area.start >= start).take(if one { 1 } else { usize::MAX });
    let last = behind.find(|area| area.start + area.count - start >= count)?;
    Some((start, last.start + last.count))
}

/// Returns true if all frames of a window are free or held for segments of `live`.
fn movable<A: SegmentAllocator + ?Sized>(
    allocator: &A,
    Candidate { start, end, .. }: Candidate,
    live: &[Segment],
) -> bool {
    let mut known: u64 = live.iter().map(|&one| overlap(held(allocator, one), start, end)).sum();
    allocator.for_each_free(&mut |free| known += overlap(free, start, end));
    known == end - start
}

/// Allocates a place outside the window for each segment that reaches into it, below it or above;
/// false if one has none, and nothing is allocated then. A segment that stays has a place of no frames.
fn find_places<A: SegmentAllocator + ?Sized>(
    allocator: &mut A,
    Candidate { start, end, .. }: Candidate,
    live: &[Segment],
    places: &mut [Segment],
) -> bool {
    places.fill(Segment::default());
    for at in 0..live.len() {
        if overlap(held(allocator, live[at]), start, end) == 0 {
            continue;
        }
        let anywhere = SegmentRequest::new(live[at].count);
        let (below, above) = (
            SegmentRequest { upper: start, ..anywhere },
            SegmentRequest { lower: end, ..anywhere },
        );
        let place = allocator.allocate(&below).or_else(|_| allocator.allocate(&above));
        // Blocks may reach beyond their segment, into the window.
        let place = place.ok().filter(|&place| {
            let outside = overlap(held(allocator, place), start, end) == 0;
            if !outside {
                let freed = allocator.free(place);
                debug_assert_eq!(freed, Ok(()), "a segment just handed out");
            }
            outside
        });
        let Some(place) = place else {
            for place in places[..at].iter().filter(|place| place.count > 0) {
                let freed = allocator.free(*place);
                debug_assert_eq!(freed, Ok(()), "a segment just handed out");
            }
            return false;
        };
        places[at] = place;
    }
    true
}
