//! The global bitmap of segments, with all frames taken at start.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaSpace, FrameSupply, GlobalBitmap, Segment, SegmentAllocator, SegmentError,
    SegmentFreeError, SegmentRequest,
};

use super::walk::{Name, Subject, Words, walk};

/// Units, in two areas: segments reach across.
const AREAS: [(u64, u64); 2] = [(3, 5), (10, 7)];
const UNITS: u64 = 12;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Take(SegmentRequest),
    Free(Segment),
}

#[derive(PartialEq, Debug)]
enum Returned {
    Taken(Result<Segment, SegmentError>),
    Freed(Result<(), SegmentFreeError>),
}

/// The count of the segment that begins at each unit, or 0; and a bit for each free unit.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Model {
    segments: [u8; UNITS as usize],
    free: u64,
}

fn bits(segment: Segment) -> u64 {
    ((1 << segment.count) - 1) << segment.start
}

impl Model {
    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let free = u64::from(self.free.count_ones());
        let wanted = request.count;
        if wanted == 0 {
            return Err(SegmentError::Empty);
        }
        if wanted > free {
            return Err(SegmentError::OutOfFrames { wanted, free });
        }
        let fits = |segment: &Segment| {
            let last = segment.start + segment.count - 1;
            let border = Pfn::new(AREAS[0].1);
            segment.start.is_multiple_of(request.align.frames())
                && segment.start >= request.lower
                && last < request.upper.min(UNITS)
                && request.boundary.is_none_or(|at| segment.start >> at.k() == last >> at.k())
                && !(request.one_area && segment.start < border.raw() && last >= border.raw())
        };
        let places = || (0..UNITS).map(|start| Segment::new(start, wanted)).filter(fits);
        let is_free = |segment: &Segment| self.free & bits(*segment) == bits(*segment);
        places().find(is_free).ok_or(match places().next() {
            Some(_) => SegmentError::NoSegment { wanted },
            None => SegmentError::Unsatisfiable { request: *request },
        })
    }

    fn freed(&self, segment: Segment) -> Result<(), SegmentFreeError> {
        if segment.count == 0 {
            return Err(SegmentFreeError::Empty);
        }
        let end = segment.checked_end().ok_or(SegmentFreeError::Overflow { segment })?;
        if end > UNITS {
            return Err(SegmentFreeError::Foreign { frame: segment.start.max(UNITS) });
        }
        if let Some(frame) = (segment.start..end).find(|unit| self.free >> unit & 1 == 1) {
            return Err(SegmentFreeError::NotAllocated { frame });
        }
        if u64::from(self.segments[segment.start as usize]) != segment.count {
            return Err(SegmentFreeError::NotSegment { segment });
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Bitmap<'m>(GlobalBitmap<'m, Words>);

impl Subject for Bitmap<'_> {
    type Operation = Operation;
    type Returned = Returned;
    type Model = Model;

    fn apply(&mut self, operation: Operation) -> Returned {
        match operation {
            Operation::Take(request) => {
                let found = self.0.find(&request);
                let taken = self.0.allocate(&request);
                assert_eq!(taken, found, "what was found is what is handed out");
                Returned::Taken(taken)
            }
            Operation::Free(segment) => Returned::Freed(self.0.free(segment)),
        }
    }

    fn stays(model: &Model, operation: Operation) -> bool {
        match operation {
            Operation::Take(request) => model.find(&request).is_err(),
            Operation::Free(segment) => model.freed(segment).is_err(),
        }
    }

    /// The lowest place is taken: among so few units it is always found.
    fn follow(model: &mut Model, operation: Operation, returned: &Returned) {
        let expected = match operation {
            Operation::Take(request) => Returned::Taken(model.find(&request)),
            Operation::Free(segment) => Returned::Freed(model.freed(segment)),
        };
        assert_eq!(*returned, expected, "{operation:?} in {model:x?}");
        match (operation, returned) {
            (_, Returned::Taken(Ok(segment))) => {
                model.free &= !bits(*segment);
                model.segments[segment.start as usize] = segment.count as u8;
            }
            (Operation::Free(segment), Returned::Freed(Ok(()))) => {
                model.free |= bits(segment);
                model.segments[segment.start as usize] = 0;
            }
            _ => {}
        }
    }

    fn name(&self, _: &Model) -> u64 {
        Name::of(&self.0)
    }

    fn agrees(&self, model: &Model) {
        assert_eq!(self.0.check(), Ok(()), "{model:x?}");
        assert_eq!(self.0.free_frames(), u64::from(model.free.count_ones()), "{model:x?}");
        let (mut free, mut largest) = (0, 0);
        self.0.for_each_free(&mut |run| {
            assert_eq!(free & (bits(run) | bits(run) >> 1), 0, "{run} is not a run in {model:x?}");
            free |= bits(run);
            largest = largest.max(run.count);
        });
        assert_eq!((free, self.0.largest_frames()), (model.free, largest), "{model:x?}");
    }
}

fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    for count in 0..=UNITS + 1 {
        let plain = SegmentRequest::new(count);
        all.extend(
            [plain, SegmentRequest { align: Order::known(1), ..plain }].map(Operation::Take),
        );
        let end = (0..=UNITS + 1 - count).map(|start| Operation::Free(Segment::new(start, count)));
        all.extend(end);
    }
    let plain = SegmentRequest::new(3);
    let constrained = [
        SegmentRequest { lower: 4, ..plain },
        SegmentRequest { lower: 1, upper: 6, ..plain },
        SegmentRequest { lower: 10, ..plain },
        SegmentRequest { boundary: Some(Order::known(2)), ..plain },
        SegmentRequest { one_area: true, ..plain },
    ];
    all.extend(constrained.map(Operation::Take));
    all.push(Operation::Free(Segment::new(u64::MAX, 2)));
    all
}

#[test]
fn every_state_of_the_global_bitmap() {
    let areas = AREAS.map(|(start, count)| Extent::new(Pfn::new(start), count));
    let mut storage = [Area::default(); AREAS.len()];
    let space = AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap();
    let words = Words(vec![0; GlobalBitmap::<Words>::storage_words(&space)]);
    let first = GlobalBitmap::new(space, FrameSupply::PreAllocated, words).unwrap();
    let full = Model { segments: [0; UNITS as usize], free: (1 << UNITS) - 1 };
    let covered = walk(&Bitmap(first), full, &operations());
    println!("global bitmap, {UNITS} units: {covered:?}");
    // A unit is free, begins a segment, or goes on with one: every other Fibonacci number.
    assert_eq!(covered.states, 75_025);
}
