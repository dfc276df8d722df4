//! Single bits flipped in the words of what hands out segments, in the campaign of
//! [`flips`](crate::flips): they are handed out and freed whole.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaSpace, Baseline, FrameSupply, GlobalBitmap, HugePages, Segment, SegmentAllocator,
    SegmentError, SegmentFreeError, SegmentRequest,
};
use swath_frame::{Checked, WordFault};

use crate::flips::{AREAS, Model, Outcome, Subject, Words, campaign};

type Bitmap<'m> = GlobalBitmap<'m, Words, Checked>;

/// An allocator, and the segments handed out.
#[derive(Clone)]
struct Segments<A> {
    allocator: A,
    model: Model,
    find: fn(&A) -> Result<(), WordFault>,
    /// Frames of the longest requests.
    most: u64,
    /// Each free frame can be had by requests of one.
    gives_all: bool,
}

fn segment(extent: Extent) -> Segment {
    Segment::new(extent.start.raw(), extent.count)
}

impl<A: SegmentAllocator> Segments<A> {
    /// Takes a segment, if there is one.
    fn take(&mut self, request: &SegmentRequest) -> Result<bool, Outcome> {
        match self.allocator.allocate(request) {
            Ok(Segment { start, count }) => {
                self.model.took(Extent::new(Pfn::new(start), count))?;
                Ok(true)
            }
            Err(SegmentError::Corrupt(fault)) => Err(Outcome::Reported(fault)),
            Err(_) => Ok(false),
        }
    }

    fn give(&mut self, extent: Extent, rightly: bool) -> Result<(), Outcome> {
        match self.allocator.free(segment(extent)) {
            Ok(()) => self.model.mark(extent, false),
            Err(SegmentFreeError::Corrupt(fault)) => Err(Outcome::Reported(fault)),
            Err(_) if rightly => Err(Outcome::Silent("a free is refused")),
            Err(_) => Ok(()),
        }
    }
}

impl<A: SegmentAllocator + Clone> Subject for Segments<A> {
    fn step(&mut self, random: &mut Random) -> Result<(), Outcome> {
        let total = self.model.out.len() as u64;
        let segments = &mut self.model.blocks;
        match random.below(8) {
            // A free that names anything.
            0 => {
                let any = Extent::new(Pfn::new(random.below(total + 9)), 1 + random.below(3));
                let held = segments.iter().position(|segment| *segment == any);
                held.map(|held| segments.swap_remove(held));
                self.give(any, held.is_some())
            }
            1..5 if !segments.is_empty() => {
                let held = segments.swap_remove(random.index(segments.len()));
                self.give(held, true)
            }
            kind => {
                let longest = [1, 4, 90, 2600][random.index(4)].min(self.most);
                let mut request = SegmentRequest::new(1 + random.below(longest));
                if kind == 7 {
                    request.align = Order::known(random.below(5) as u8);
                    request.lower = random.below(total / 2);
                    request.one_area = random.below(2) == 0;
                    request.boundary = Order::new(10).filter(|_| random.below(2) == 0);
                }
                self.take(&request).map(|_| ())
            }
        }
    }

    fn drain(&mut self) -> Result<bool, Outcome> {
        while self.take(&SegmentRequest::new(1))? {}
        Ok(!self.gives_all || self.model.is_all_out())
    }

    fn serves(&mut self) -> bool {
        let held = self.model.blocks.first().map_or(Segment::new(0, 1), |&held| segment(held));
        self.allocator.allocate(&SegmentRequest::new(1)).is_ok()
            || self.allocator.free(held).is_ok()
    }

    fn find(&self) -> Result<(), WordFault> {
        (self.find)(&self.allocator)
    }
}

fn with_space(unit: Order, body: impl FnOnce(AreaSpace<'_>)) {
    let areas = AREAS.map(|(start, end)| Extent::new(Pfn::new(start), end - start));
    let mut storage = [Area::default(); AREAS.len()];
    body(AreaSpace::new(&areas, unit, &mut storage).expect("the areas lie apart"));
}

#[test]
fn no_flip_breaks_the_global_bitmap() {
    with_space(Order::BASE, |space| {
        for frames in [FrameSupply::PreAllocated, FrameSupply::OnDemand] {
            campaign(&format!("global bitmap, {frames:?}"), || {
                let words = Words::new(Bitmap::storage_words(&space));
                let bitmap = Bitmap::new(space, frames, words.clone()).expect("as many as needed");
                let subject = Segments {
                    allocator: bitmap,
                    model: Model::new(&[(0, space.total_frames())]),
                    find: GlobalBitmap::find_fault,
                    most: 700,
                    gives_all: frames == FrameSupply::PreAllocated,
                };
                (subject, words)
            });
        }
    });
}

#[test]
fn no_flip_breaks_the_baseline() {
    with_space(Order::BASE, |space| {
        campaign("baseline", || {
            let words = Words::new(Baseline::<Words, Checked>::storage_words(&space));
            let baseline = Baseline::<_, Checked>::new(space, words.clone());
            let subject = Segments {
                allocator: baseline.expect("as many as needed"),
                model: Model::new(&[(0, space.total_frames())]),
                find: Baseline::find_fault,
                most: 2600,
                gives_all: false,
            };
            (subject, words)
        });
    });
}

#[test]
fn no_flip_breaks_huge_pages() {
    with_space(Order::known(1), |space| {
        campaign("huge pages", || {
            let words = Words::new(HugePages::<Words, Checked>::storage_words(&space));
            let pages = HugePages::<_, Checked>::new(space, words.clone());
            let subject = Segments {
                allocator: pages.expect("as many as needed"),
                model: Model::new(&[(0, space.total_frames())]),
                find: HugePages::find_fault,
                most: 2,
                gives_all: false,
            };
            (subject, words)
        });
    });
}
