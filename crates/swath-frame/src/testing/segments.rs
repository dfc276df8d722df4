//! The conformance suite of every [`SegmentAllocator`].
//!
//! [`NaiveSegments`] is a segment allocator, too: a flag for each unit and a list of
//! segments, every rule a loop over all places, tried one by one. [`conform`]
//! drives an allocator and the naive one through the same random requests,
//! frees and abuses, and every answer has to be the same, but for places that the
//! [`SegmentRule`] leaves to choice. [`conform_frames`] does so with the frames behind the areas.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order};

use crate::segment::allocator::{
    AreaFrames, SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest,
};
use crate::segment::place::TRIES;
use crate::segment::space::{AreaSpace, Segment};

/// The rule by which an allocator chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentRule {
    /// The lowest place; a segment holds its own units. Any other place will do
    /// as well if so many free runs below the lowest are long enough and have none
    /// as [`GlobalBitmap`](crate::segment::global_bitmap::GlobalBitmap) tries.
    Lowest,
    /// The lowest place at which the piece in each area begins a block of a
    /// power of two, which is held. Any other such place will do as well, if
    /// as many starts below the lowest have free units enough and no free block.
    Blocks,
    /// By area up to an area's size, backwards over free areas beyond.
    Baseline,
    /// The lowest unit, and never more than one.
    Page,
}

/// A segment allocator of flags and loops.
#[derive(Clone, Debug)]
pub struct NaiveSegments<'m> {
    space: AreaSpace<'m>,
    rule: SegmentRule,
    free: Vec<bool>,
    /// First unit, the one past the last, and the one past the last held.
    segments: Vec<[usize; 3]>,
    /// The number of the area of each unit, and each area's units.
    area: Vec<usize>,
    areas: Vec<Range<usize>>,
}

impl<'m> NaiveSegments<'m> {
    /// All units of `space` free, handed out by `rule`.
    pub fn new(space: AreaSpace<'m>, rule: SegmentRule) -> Self {
        let (mut area, mut areas) = (Vec::new(), Vec::new());
        for (index, of) in space.areas().iter().enumerate() {
            let (start, units) = (area.len(), of.frames().count / space.unit().frames());
            area.extend((0..units).map(|_| index));
            areas.push(start..area.len());
        }
        Self { space, rule, free: vec![true; area.len()], segments: Vec::new(), area, areas }
    }

    /// Returns for each unit whether it is free.
    pub fn free_units(&self) -> &[bool] {
        &self.free
    }

    /// The segments handed out.
    pub fn segments(&self) -> Vec<Segment> {
        self.segments.iter().map(|&[start, past, _]| self.segment(start, past)).collect()
    }

    fn unit(&self) -> u64 {
        self.space.unit().frames()
    }

    fn segment(&self, start: usize, past: usize) -> Segment {
        Segment::new(start as u64 * self.unit(), (past - start) as u64 * self.unit())
    }

    fn meets(&self, request: &SegmentRequest, start: usize, past: usize) -> bool {
        let first = start as u64 * self.unit();
        let last = past as u64 * self.unit() - 1;
        first.is_multiple_of(request.align.frames())
            && first >= request.lower
            && last < request.upper
            && request.boundary.is_none_or(|order| first >> order.k() == last >> order.k())
            && (!request.one_area || self.area[start] == self.area[past - 1])
    }

    /// One past what blocks hold for these units, if they can.
    fn blocks_end(&self, start: usize, past: usize) -> Option<usize> {
        let mut held = start;
        for area in self.area[start]..=self.area[past - 1] {
            let units = &self.areas[area];
            let piece = start.max(units.start)..past.min(units.end);
            let block = piece.len().next_power_of_two();
            if !(piece.start - units.start).is_multiple_of(block) {
                return None;
            }
            held = (piece.start + block).min(units.end);
        }
        Some(held)
    }

    fn all_free(&self, start: usize, past: usize) -> bool {
        self.free[start..past].iter().all(|&free| free)
    }

    fn lowest(&self, request: &SegmentRequest, count: usize, blocks: bool) -> Option<[usize; 3]> {
        let starts = 0..(self.free.len() + 1).saturating_sub(count);
        starts.into_iter().find_map(|start| {
            let past = start + count;
            if !self.meets(request, start, past) || !self.all_free(start, past) {
                return None;
            }
            let held = if blocks { self.blocks_end(start, past)? } else { past };
            self.all_free(start, held).then_some([start, past, held])
        })
    }

    fn backwards(&self, request: &SegmentRequest, count: usize) -> Option<[usize; 3]> {
        (0..self.space.areas().len()).rev().find_map(|last| {
            let past = self.areas[last].end;
            let mut taken = 0;
            for area in (0..=last).rev() {
                let units = &self.areas[area];
                if taken >= count || !self.all_free(units.start, units.end) {
                    break;
                }
                taken += units.len();
            }
            let start = past.checked_sub(count)?;
            (taken >= count && self.meets(request, start, past)).then_some([start, past, past])
        })
    }

    /// Returns the number of vain tries that a search may make below unit
    /// `lowest`, which has the lowest place.
    fn vain_tries(&self, request: &SegmentRequest, count: usize, lowest: usize) -> usize {
        let lower = request.lower.div_ceil(self.unit()) as usize;
        let starts = (lower..lowest).filter(|&start| self.all_free(start, start + count));
        match self.rule {
            // Those with a run of free units before the place's own.
            SegmentRule::Lowest => starts
                .filter(|&start| start == lower || !self.free[start - 1])
                .filter(|&start| !self.all_free(start, lowest))
                .count(),
            SegmentRule::Blocks => starts.count(),
            SegmentRule::Baseline | SegmentRule::Page => 0,
        }
    }

    /// The place of `found`, if a search may find it where the lowest is `place`.
    fn instead(
        &self,
        request: &SegmentRequest,
        [lowest, past, _]: [usize; 3],
        found: Segment,
    ) -> Option<[usize; 3]> {
        let count = past - lowest;
        let start = (found.start / self.unit()) as usize;
        let past = start + count;
        let tried = self.vain_tries(request, count, lowest) >= TRIES as usize;
        let legal = start > lowest
            && past <= self.free.len()
            && self.segment(start, past) == found
            && self.meets(request, start, past);
        if !tried || !legal {
            return None;
        }
        let blocks = self.rule == SegmentRule::Blocks;
        let held = if blocks { self.blocks_end(start, past)? } else { past };
        self.all_free(start, held).then_some([start, past, held])
    }

    /// Does as an allocator that answered `found`: the answer it should have
    /// given. Of the places that the rule leaves it to choose from, that is the one
    /// it chose.
    pub fn follow(
        &mut self,
        request: &SegmentRequest,
        found: Result<Segment, SegmentError>,
    ) -> Result<Segment, SegmentError> {
        let mut place = self.place(request)?;
        let other = found.ok().and_then(|found| self.instead(request, place, found));
        place = other.unwrap_or(place);
        Ok(self.hand_out(place))
    }

    /// The units that a request acquires, told by `true`, and releases again: in the reverse walk
    /// of section 3.2 area by area, otherwise the units that its answer `found` holds.
    fn told(
        &self,
        request: &SegmentRequest,
        found: Result<Segment, SegmentError>,
    ) -> Vec<(bool, usize)> {
        let past = match found {
            Ok(found) => Some(((found.start + found.count) / self.unit()) as usize),
            Err(SegmentError::NoSegment { .. }) => None,
            Err(_) => return Vec::new(),
        };
        let count = request.count.div_ceil(self.unit()) as usize;
        let largest = self.areas.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        if self.rule != SegmentRule::Baseline || count <= largest {
            let blocks = matches!(self.rule, SegmentRule::Blocks | SegmentRule::Baseline);
            let held = match past {
                Some(past) if blocks => {
                    past - count..self.blocks_end(past - count, past).unwrap_or(past)
                }
                Some(past) if self.rule == SegmentRule::Page => past - count..past,
                _ => 0..0,
            };
            return held.map(|unit| (true, unit)).collect();
        }
        let (mut told, mut last) = (Vec::new(), self.areas.len());
        while last > 0 {
            let (mut area, end) = (last, self.areas[last - 1].end);
            let mut base = end;
            while end - base < count && area > 0 {
                let units = self.areas[area - 1].clone();
                if !self.all_free(units.start, units.end) {
                    break;
                }
                told.extend(units.map(|unit| (true, unit)));
                area -= 1;
                base = self.areas[area].start;
            }
            let enough = end - base >= count;
            if past == Some(end) {
                told.extend((base..end - count).map(|unit| (false, unit)));
                break;
            }
            told.extend((base..end).map(|unit| (false, unit)));
            last = if enough { last - 1 } else { area.saturating_sub(1) };
        }
        told
    }

    /// The units that are held for a segment that is handed out.
    fn held(&self, segment: Segment) -> Range<usize> {
        let (start, past) =
            (segment.start / self.unit(), (segment.start + segment.count) / self.unit());
        let of = |held: &&[usize; 3]| held[..2] == [start as usize, past as usize];
        match self.segments.iter().find(of) {
            Some(&[start, _, held]) if self.rule != SegmentRule::Lowest => start..held,
            _ => 0..0,
        }
    }

    fn hand_out(&mut self, [start, past, held]: [usize; 3]) -> Segment {
        self.free[start..held].fill(false);
        self.segments.push([start, past, held]);
        self.segment(start, past)
    }

    fn place(&self, request: &SegmentRequest) -> Result<[usize; 3], SegmentError> {
        let (wanted, free) = (request.count, self.free_frames());
        if wanted == 0 {
            return Err(SegmentError::Empty);
        }
        if wanted > free {
            return Err(SegmentError::OutOfFrames { wanted, free });
        }
        let count = wanted.div_ceil(self.unit()) as usize;
        let frames = count as u64 * self.unit();
        let limited = |start: &usize| {
            let first = *start as u64 * self.unit();
            first >= request.lower && first + frames <= request.upper.min(self.space.total_frames())
        };
        if request.boundary.is_some_and(|order| frames > order.frames())
            || !(0..self.free.len()).any(|start| limited(&start))
        {
            return Err(SegmentError::Unsatisfiable { request: *request });
        }
        let largest = self.areas.iter().map(ExactSizeIterator::len).max();
        let found = match self.rule {
            SegmentRule::Lowest => self.lowest(request, count, false),
            SegmentRule::Blocks => self.lowest(request, count, true),
            SegmentRule::Baseline if Some(count) <= largest => {
                self.lowest(&SegmentRequest { one_area: true, ..*request }, count, true)
            }
            SegmentRule::Baseline => self.backwards(request, count),
            SegmentRule::Page if count > 1 => None,
            SegmentRule::Page => self.lowest(request, count, false),
        };
        found.ok_or(SegmentError::NoSegment { wanted })
    }
}

impl SegmentAllocator for NaiveSegments<'_> {
    fn space(&self) -> AreaSpace<'_> {
        self.space
    }

    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        self.place(request).map(|[start, past, _]| self.segment(start, past))
    }

    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        self.place(request).map(|place| self.hand_out(place))
    }

    fn free(&mut self, segment: Segment) -> Result<(), SegmentFreeError> {
        let (unit, total) = (self.unit(), self.space.total_frames());
        if segment.count == 0 {
            return Err(SegmentFreeError::Empty);
        }
        let Some(end) = segment.start.checked_add(segment.count) else {
            return Err(SegmentFreeError::Overflow { segment });
        };
        if end > total {
            return Err(SegmentFreeError::Foreign { frame: segment.start.max(total) });
        }
        if !segment.start.is_multiple_of(unit) || !end.is_multiple_of(unit) {
            return Err(SegmentFreeError::Misaligned { segment });
        }
        let (start, past) = ((segment.start / unit) as usize, (end / unit) as usize);
        let handed_out = |at: &usize| self.segments.iter().any(|s| s[0] <= *at && *at < s[1]);
        if let Some(at) = (start..past).find(|at| !handed_out(at)) {
            return Err(SegmentFreeError::NotAllocated { frame: at as u64 * unit });
        }
        let Some(at) = self.segments.iter().position(|s| s[..2] == [start, past]) else {
            return Err(SegmentFreeError::NotSegment { segment });
        };
        let [start, _, held] = self.segments.swap_remove(at);
        self.free[start..held].fill(true);
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.free.iter().filter(|&&free| free).count() as u64 * self.unit()
    }

    fn largest_frames(&self) -> u64 {
        let counts = (1..=self.free.len() as u64).rev().map(|units| units * self.unit());
        let fits = |count: &u64| self.place(&SegmentRequest::new(*count)).is_ok();
        counts.into_iter().find(fits).unwrap_or(0)
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Segment)) {
        let mut start = 0;
        for run in self.free.chunk_by(|a, b| a == b) {
            let past = start + run.len();
            if run[0] {
                visit(self.segment(start, past));
            }
            start = past;
        }
    }
}

/// The free runs of an allocator.
pub fn free_runs(allocator: &impl SegmentAllocator) -> Vec<Segment> {
    let mut runs = Vec::new();
    allocator.for_each_free(&mut |run| runs.push(run));
    runs
}

/// Drives `allocator`, all of whose frames are free, and a naive one of the
/// same rule through at most `steps` operations of `random`, and at last frees everything.
/// `inspect` looks at the allocator after each.
///
/// # Panics
/// At the first answer that differs; the message names seed and step.
pub fn conform<A: SegmentAllocator>(
    space: AreaSpace<'_>,
    rule: SegmentRule,
    allocator: &mut A,
    random: impl Into<Random>,
    steps: usize,
    inspect: &mut dyn FnMut(&A),
) {
    let mut random = random.into();
    let seed = random.seed();
    let mut naive = NaiveSegments::new(space, rule);
    let (total, unit) = (space.total_frames(), space.unit().frames());
    for step in 0..steps {
        if random.is_spent() {
            break;
        }
        let place = format_args!("seed {seed}, step {step}, {rule:?}");
        // Mostly full, and then mostly empty again.
        let filling = step / 64 % 3 < 2;
        match random.below(10) {
            0 => {
                let segment = hostile(&naive, &mut random);
                let before = free_runs(allocator);
                let expected = naive.free(segment);
                assert_eq!(allocator.free(segment), expected, "{place}: {segment}");
                if expected.is_err() {
                    assert_eq!(free_runs(allocator), before, "{place}: {segment}");
                }
            }
            n if (n < 7) == filling => {
                let request = request(&mut random, total, unit);
                let found = allocator.find(&request);
                let expected = naive.follow(&request, found);
                assert_eq!(found, expected, "{place}: {request:?}");
                let before = free_runs(allocator);
                assert_eq!(allocator.allocate(&request), expected, "{place}: {request:?}");
                match expected {
                    Ok(segment) => {
                        let extents = space.extents(segment);
                        let frames: u64 = extents.map(|extent| extent.count).sum();
                        assert_eq!(frames, segment.count, "{place}: {segment}");
                    }
                    Err(_) => assert_eq!(free_runs(allocator), before, "{place}: {request:?}"),
                }
            }
            _ => {
                let segments = naive.segments();
                if !segments.is_empty() {
                    let segment = segments[random.below(segments.len() as u64) as usize];
                    assert_eq!(naive.free(segment), Ok(()));
                    assert_eq!(allocator.free(segment), Ok(()), "{place}: {segment}");
                }
            }
        }
        assert_eq!(allocator.free_frames(), naive.free_frames(), "{place}");
        assert_eq!(free_runs(allocator), free_runs(&naive), "{place}");
        // The naive search for the largest tries every size.
        let units = naive.free_units().len();
        if units <= 64 || units <= 300 && step % 32 == 0 {
            assert_eq!(allocator.largest_frames(), naive.largest_frames(), "{place}");
        }
        inspect(allocator);
    }
    for segment in naive.segments() {
        assert_eq!(allocator.free(segment), Ok(()), "seed {seed}, at last, {segment}");
    }
    assert_eq!(free_runs(allocator), [Segment::new(0, total)], "seed {seed}, at last");
    inspect(allocator);
}

/// Frames that are told as acquired and released, unit by unit.
struct Told<'m> {
    space: AreaSpace<'m>,
    steps: Vec<(bool, usize)>,
}

impl Told<'_> {
    fn tell(&mut self, acquired: bool, run: Extent) {
        let unit = self.space.unit().frames();
        let (area, of) = self
            .space
            .areas()
            .iter()
            .enumerate()
            .find(|(_, area)| area.frames().contains(run.start))
            .expect("frames of an area");
        assert!(run.end() <= of.frames().end(), "{run:?} is more than area {area} has");
        for frame in run.iter().step_by(unit as usize) {
            let number = self.space.number_of(frame).expect("frames of an area");
            self.steps.push((acquired, (number / unit) as usize));
        }
    }
}

impl AreaFrames for Told<'_> {
    fn acquire(&mut self, run: Extent) {
        self.tell(true, run);
    }

    fn release(&mut self, run: Extent) {
        self.tell(false, run);
    }
}

/// Drives `allocator`, all of whose frames are free, with frames behind its areas, beside a naive one
/// of the same rule: each unit is acquired and released when the naive one does it, and what is
/// acquired is what segments hold.
///
/// # Panics
/// At the first step that differs; the message names seed and step.
pub fn conform_frames<A: SegmentAllocator>(
    space: AreaSpace<'_>,
    rule: SegmentRule,
    allocator: &mut A,
    seed: u64,
    steps: usize,
) {
    let mut random = Random::new(seed);
    let mut naive = NaiveSegments::new(space, rule);
    let (total, unit) = (space.total_frames(), space.unit().frames());
    let mut acquired = vec![false; naive.free.len()];
    for step in 0..steps {
        let place = format_args!("seed {seed}, step {step}, {rule:?}");
        let mut told = Told { space, steps: Vec::new() };
        let segments = naive.segments();
        let expected = if random.below(3) < 2 || segments.is_empty() {
            let mut request = request(&mut random, total, unit);
            if random.below(2) == 0 {
                // Whole areas, without constraints: what the reverse walk is for.
                request = SegmentRequest::new(1 + random.below(total));
            }
            let found = allocator.allocate_from(&request, &mut told);
            let expected = naive.told(&request, found);
            assert_eq!(naive.follow(&request, found), found, "{place}: {request:?}");
            expected
        } else {
            let segment = segments[random.below(segments.len() as u64) as usize];
            let held = naive.held(segment);
            assert_eq!(naive.free(segment), Ok(()));
            assert_eq!(allocator.free_to(segment, &mut told), Ok(()), "{place}: {segment}");
            assert!(allocator.free_to(segment, &mut told).is_err(), "{place}: {segment}");
            held.map(|unit| (false, unit)).collect()
        };
        for &(now, unit) in &told.steps {
            assert_ne!(acquired[unit], now, "{place}: unit {unit}");
            acquired[unit] = now;
        }
        let sorted = |mut steps: Vec<(bool, usize)>| {
            steps.chunk_by_mut(|a, b| a.0 == b.0).for_each(<[_]>::sort_unstable);
            steps
        };
        assert_eq!(sorted(told.steps), sorted(expected), "{place}");
        let mut held = vec![false; acquired.len()];
        for segment in naive.segments() {
            held[naive.held(segment)].fill(true);
            let whole = allocator.acquired(segment);
            let units = naive.held(segment);
            assert_eq!(whole.count / unit, units.len() as u64, "{place}: {segment}");
        }
        assert_eq!(acquired, held, "{place}");
    }
}

/// Mostly small, without constraints half of the time.
fn request(random: &mut Random, total: u64, unit: u64) -> SegmentRequest {
    let count = match random.below(8) {
        0 => random.below(total + total / 4 + 2),
        1 | 2 => 1 + random.below(total / 4 + 1),
        3 => random.below(3),
        _ => 1 + random.below(total / 16 + 2 * unit),
    };
    let mut request = SegmentRequest::new(count);
    if random.below(2) == 0 {
        return request;
    }
    if random.below(2) == 0 {
        request.align = Order::known(random.below(1 + u64::from(total.ilog2())) as u8);
    }
    if random.below(3) == 0 {
        request.lower = random.below(total + 2);
    }
    if random.below(3) == 0 {
        request.upper = random.below(total + 2);
    }
    if random.below(3) == 0 {
        request.boundary = Order::new(random.below(3 + u64::from(total.ilog2())) as u8);
    }
    if random.below(32) == 0 {
        request.lower = u64::MAX - random.below(2);
    }
    request.one_area = random.below(4) == 0;
    request
}

/// Mostly something that must not be freed.
fn hostile(naive: &NaiveSegments<'_>, random: &mut Random) -> Segment {
    let total = naive.space().total_frames();
    let unit = naive.unit();
    let segments = naive.segments();
    if segments.is_empty() || random.below(3) == 0 {
        return match random.below(5) {
            0 => Segment::new(random.below(total), 0),
            1 => Segment::new(u64::MAX - random.below(3), 1 + random.below(5)),
            2 => Segment::new(random.below(total + 5), random.below(total)),
            _ => Segment::new(random.below(total) / unit * unit, unit * (1 + random.below(4))),
        };
    }
    let Segment { start, count } = segments[random.below(segments.len() as u64) as usize];
    match random.below(7) {
        0 => Segment::new(start + unit, count.saturating_sub(unit)),
        1 => Segment::new(start, count - unit),
        2 => Segment::new(start, count + unit),
        3 => Segment::new(start.saturating_sub(unit), count + unit),
        4 => Segment::new(start + 1, count),
        5 => Segment::new(start, count + 1),
        // What the segment may hold beyond itself.
        _ => Segment::new(start + count, unit),
    }
}
