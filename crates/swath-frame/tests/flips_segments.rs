//! Single bits flipped in the words of the global bitmap, as [`flips`](crate::flips) does it to frame
//! allocators: here segments are handed out and freed whole.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{
    Area, AreaSpace, FrameSupply, GlobalBitmap, Segment, SegmentAllocator, SegmentError,
    SegmentFreeError, SegmentRequest,
};
use swath_frame::{Checked, WordFault};

use crate::flips::{AREAS, Words, trials};

/// How a subject's calls end that do not simply go on.
pub(crate) enum Trouble {
    /// A call reported a word.
    Corrupt(WordFault),
    /// It served what it must not, or refused what it must.
    Broken(&'static str),
}

/// A structure to be hurt, with a model of what is out.
pub(crate) trait Subject: Clone {
    /// Makes one random call.
    fn step(&mut self, random: &mut Random) -> Result<(), Trouble>;
    /// Takes all that there is.
    fn drain(&mut self) -> Result<(), Trouble>;
    /// Returns true if it serves anything, though it has stopped.
    fn serves(&mut self) -> bool;
    /// Walks all words.
    fn find(&self) -> Result<(), WordFault>;
}

#[derive(Default, Debug)]
struct Tally {
    reported: usize,
    walked: usize,
    /// Of both, with the word that was flipped.
    exact: usize,
    gone: usize,
    panicked: usize,
    broken: usize,
}

/// Flips a bit of one of `len` words, goes on, and says whether a call or the walk told a word.
fn trial<S: Subject>(
    subject: &mut S,
    random: &mut Random,
    flip: &Cell<Option<(usize, u32)>>,
    at: (usize, u32),
) -> Result<(Option<WordFault>, bool), &'static str> {
    flip.set(Some(at));
    for _ in 0..20 + random.below(200) {
        match subject.step(random) {
            Ok(()) => {}
            Err(Trouble::Broken(what)) => return Err(what),
            Err(Trouble::Corrupt(_)) if subject.serves() => return Err("serves though it stopped"),
            Err(Trouble::Corrupt(fault)) => return Ok((Some(fault), true)),
        }
    }
    let found = subject.find().err();
    match subject.drain() {
        Err(Trouble::Broken(what)) => Err(what),
        Err(Trouble::Corrupt(_)) if found.is_none() => Err("the walk missed it"),
        _ => Ok((found, false)),
    }
}

/// Hurts copies of what `build` makes, with its words.
pub(crate) fn campaign<S: Subject>(name: &str, build: impl Fn() -> (S, Words)) {
    let mut tally = Tally::default();
    let mut built = None;
    for seed in 0..trials() as u64 {
        let mut random = Random::new(seed);
        if seed % 25 == 0 {
            let (mut subject, words) = build();
            for _ in 0..400 {
                let right = subject.step(&mut random).is_ok();
                assert!(right, "{name}: seed {seed}: wrong without a flip");
            }
            assert_eq!(subject.find(), Ok(()), "{name}: seed {seed}");
            built = Some((subject, words));
        }
        let Some((subject, words)) = &built else { continue };
        let (mut subject, flip) = (subject.clone(), Rc::clone(&words.flip));
        let at = (random.index(words.len()), random.below(64) as u32);
        let run = AssertUnwindSafe(|| trial(&mut subject, &mut random, &flip, at));
        match catch_unwind(run) {
            Ok(Ok((Some(fault), by_call))) => {
                tally.exact += usize::from(fault.word == at.0);
                *(if by_call { &mut tally.reported } else { &mut tally.walked }) += 1;
            }
            Ok(Ok((None, _))) => tally.gone += 1,
            Ok(Err(what)) => {
                println!("{name}: seed {seed}: word {} of {}: {what}", at.0, words.len());
                tally.broken += 1;
            }
            Err(_) => {
                println!("{name}: seed {seed}: word {} of {}: panicked", at.0, words.len());
                tally.panicked += 1;
            }
        }
        flip.set(None);
    }
    println!("{name}: {} flips: {tally:?}", trials());
    assert_eq!(tally.panicked + tally.broken, 0, "{name}: {tally:?}");
    assert!(tally.reported > 0 && tally.exact > 0, "{name}: {tally:?}");
}

/// A bitmap, and the segments handed out.
#[derive(Clone)]
struct Segments<'m> {
    bitmap: GlobalBitmap<'m, Words, Checked>,
    out: Vec<bool>,
    segments: Vec<Segment>,
}

impl Segments<'_> {
    fn mark(&mut self, segment: Segment, out: bool) -> Result<(), Trouble> {
        for frame in segment.start..segment.start + segment.count {
            let place = self.out.get_mut(frame as usize).ok_or(Trouble::Broken("outside"))?;
            if std::mem::replace(place, out) && out {
                return Err(Trouble::Broken("twice"));
            }
        }
        Ok(())
    }

    /// Takes a segment, if there is one.
    fn take(&mut self, request: &SegmentRequest) -> Result<bool, Trouble> {
        match self.bitmap.allocate(request) {
            Ok(segment) => {
                self.mark(segment, true)?;
                self.segments.push(segment);
                Ok(true)
            }
            Err(SegmentError::Corrupt(fault)) => Err(Trouble::Corrupt(fault)),
            Err(_) => Ok(false),
        }
    }
}

impl Subject for Segments<'_> {
    fn step(&mut self, random: &mut Random) -> Result<(), Trouble> {
        let total = self.out.len() as u64;
        match random.below(8) {
            // A free that names anything.
            0 => {
                let segment = Segment::new(random.below(total + 9), 1 + random.below(3));
                let held = self.segments.iter().position(|held| *held == segment);
                match self.bitmap.free(segment) {
                    Err(SegmentFreeError::Corrupt(fault)) => Err(Trouble::Corrupt(fault)),
                    Err(_) if held.is_some() => Err(Trouble::Broken("a free is refused")),
                    Err(_) => Ok(()),
                    // A wrong free was taken: what goes out twice by it counts.
                    Ok(()) => {
                        held.map(|held| self.segments.swap_remove(held));
                        self.mark(segment, false)
                    }
                }
            }
            1..5 if !self.segments.is_empty() => {
                let segment = self.segments.swap_remove(random.index(self.segments.len()));
                match self.bitmap.free(segment) {
                    Ok(()) => self.mark(segment, false),
                    Err(SegmentFreeError::Corrupt(fault)) => Err(Trouble::Corrupt(fault)),
                    Err(_) => Err(Trouble::Broken("a free is refused")),
                }
            }
            kind => {
                let longest = [1, 4, 90, 700][random.index(4)];
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

    fn drain(&mut self) -> Result<(), Trouble> {
        while self.take(&SegmentRequest::new(1))? {}
        let lost = self.bitmap.find_fault().is_ok()
            && self.bitmap.frames() == FrameSupply::PreAllocated
            && self.out.contains(&false);
        if lost { Err(Trouble::Broken("frames are lost")) } else { Ok(()) }
    }

    fn serves(&mut self) -> bool {
        let segment = self.segments.first().copied().unwrap_or(Segment::new(0, 1));
        self.bitmap.allocate(&SegmentRequest::new(1)).is_ok() || self.bitmap.free(segment).is_ok()
    }

    fn find(&self) -> Result<(), WordFault> {
        self.bitmap.find_fault()
    }
}

#[test]
fn no_flip_breaks_the_global_bitmap() {
    let areas = AREAS.map(|(start, end)| Extent::new(Pfn::new(start), end - start));
    let mut storage = [Area::default(); AREAS.len()];
    let space = AreaSpace::new(&areas, Order::BASE, &mut storage).expect("the areas lie apart");
    for frames in [FrameSupply::PreAllocated, FrameSupply::OnDemand] {
        campaign(&format!("global bitmap, {frames:?}"), || {
            type Bitmap<'m> = GlobalBitmap<'m, Words, Checked>;
            let words = Words::new(Bitmap::storage_words(&space));
            let bitmap = Bitmap::new(space, frames, words.clone()).expect("as many as needed");
            let out = vec![false; space.total_frames() as usize];
            (Segments { bitmap, out, segments: Vec::new() }, words)
        });
    }
}
