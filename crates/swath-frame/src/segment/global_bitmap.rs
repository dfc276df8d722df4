//! The global bitmap: one bitmap over all areas.
//!
//! The areas' own bitmaps stand end to end and form one (section 4.1), so a
//! free run is found wherever it lies, across as many areas as it takes, and
//! what is freed joins its neighbours across their borders, with nothing to be
//! done for it. The paper looks for a run bit by bit; here a
//! tree of summaries gives the lowest run of any length in O(log n).
//!
//! [`FrameSupply`] says where the frames behind a segment come from: from each area's
//! buddy system, which gives powers of two only (section 4.1), or from the
//! allocator's own stock, all of which it took at start (section 4.2).
//!
//! In the [checked tier](crate::hardening) a segment goes out only if none of its units is handed out
//! by the ledger's bits, nor held, wherever summaries and bits led. A word that contradicts the others
//! stops the allocator.

use core::ops::DerefMut;

use crate::allocator::BuildError;
use crate::hardening::{Checked, Hardening, Latch, Table, Trusting, WordFault};
use crate::segment::allocator::{SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest};
use crate::segment::ledger::Ledger;
use crate::segment::place::{AreaShape, Place, held_end};
use crate::segment::runs::{RunTree, UNITS_MAX};
use crate::segment::space::{AreaSpace, Segment};

/// The source of the frames behind a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameSupply {
    /// From the area's buddy system, with each request: the piece of a segment
    /// in an area is one block of a power of two units, aligned to its size
    /// from the area's start on and cut off at the area's end. What the last
    /// block has beyond the segment is held with it and cannot be handed out.
    OnDemand,
    /// All taken at start: a segment holds its own units only, wherever they
    /// begin.
    PreAllocated,
}

/// A segment allocator with one bitmap over all areas. A request fails exactly
/// if no place meets it. The lowest place is taken, unless 16 free runs or more
/// below it are long enough for the request and have no place in them.
///
/// With n units, a areas, and L = 1 + ceil(log₄(n/256)) levels of summaries:
/// * A request of c units costs O(L + log a) to find its place, with whatever
///   constraints, and O(L + c/64) to take it, if there is a free run of s units
///   between its limits, counted from where 17 tries have failed. Limits alone
///   take one try; then no such run is needed.
/// * s is c + A - 1 for alignment A = 2^align; with a boundary c + C - 1, where
///   C is c rounded up to A; with [`FrameSupply::OnDemand`] P + max(A, P) - 1, where P
///   is the power of two not below c. In one area, and with `OnDemand`, it is
///   2s - 1 of that s, and there is one only if no area has fewer than s units;
///   with `OnDemand` the areas' first units have to be multiples of A as well,
///   and of P if there is a boundary.
/// * Without such a run, each free run of c to s - 1 units that has no place is
///   tried, and each try costs O(L + log a). Tries are in runs of their own and
///   for multiples of A of their own, so there are n/max(c, A) + 1 at most. With
///   `OnDemand` it is a try for each start in such a run whose block is not free.
/// * To stay in one area, and `OnDemand`, also cost O(log a) for each area that
///   is passed by as too small, whatever is free in it.
/// * To free c units costs O(L + c/64).
///
/// State: 0.46 bytes for each unit.
///
/// `W` is where it lives: any owner of a slice of words. `H` is the tier of
/// [checks](crate::hardening) of these words; the default makes none. In the checked tier a free
/// that is refused costs O(n).
///
/// Invariants, walked by [`check`](Self::check): those of the summaries; a unit
/// is free exactly if no segment holds it; segments hold different units.
///
/// # Examples
/// Twenty megabytes out of areas of sixteen:
/// ```
/// use swath_arch::{Extent, Order, Pfn};
/// use swath_frame::segment::{Area, AreaSpace};
/// use swath_frame::segment::{SegmentAllocator, SegmentRequest};
/// use swath_frame::segment::{FrameSupply, GlobalBitmap};
///
/// let areas: Vec<_> = (0..16).map(|i| Extent::new(Pfn::new(i << 13), 1 << 12)).collect();
/// let mut storage = [Area::default(); 16];
/// let space = AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap();
/// let words = GlobalBitmap::<Vec<u64>>::storage_words(&space);
/// let mut bitmap = GlobalBitmap::<_>::new(space, FrameSupply::PreAllocated, vec![0; words]).unwrap();
///
/// let request = SegmentRequest::new(20 << 20 >> 12);
/// let segments: Vec<_> = (0..12).map(|_| bitmap.allocate(&request).unwrap()).collect();
/// let second: Vec<_> = space.extents(segments[1]).collect();
/// assert_eq!(second, [Extent::new(Pfn::new(0x2400), 0xc00), Extent::new(Pfn::new(0x4000), 0x800)]);
/// assert!(bitmap.allocate(&request).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct GlobalBitmap<'m, W, H: Hardening = Trusting> {
    storage: W,
    space: AreaSpace<'m>,
    shape: AreaShape,
    frames: FrameSupply,
    runs: RunTree,
    ledger: Ledger,
    /// Number of segments handed out.
    segments: u64,
    /// The contradiction at which the checked tier stopped.
    latch: H::Latch,
}

impl<'m, W: DerefMut<Target = [u64]>, H: Hardening> GlobalBitmap<'m, W, H> {
    /// Counts the words of storage that the areas need; `usize::MAX` if they
    /// cannot be addressed.
    pub fn storage_words(space: &AreaSpace<'_>) -> usize {
        let units = space.units();
        let words = RunTree::storage_words(units) + Ledger::storage_words(units);
        usize::try_from(words).unwrap_or(usize::MAX)
    }

    /// An allocator for all units of `space`, all of them free. Overwrites
    /// what `storage` holds; words beyond [`storage_words`](Self::storage_words)
    /// are not used. O(words).
    ///
    /// # Errors
    /// [`BuildError`] if `storage` is too small, or there are 2^32 units or more.
    pub fn new(
        space: AreaSpace<'m>,
        frames: FrameSupply,
        mut storage: W,
    ) -> Result<Self, BuildError> {
        let units = space.units();
        check_size(&space, Self::storage_words(&space), storage.len())?;
        let runs = RunTree::new(&mut storage, units);
        let ledger = Ledger::new(&mut storage, RunTree::storage_words(units) as usize, units);
        let (shape, segments) = (AreaShape::of(&space), 0);
        let latch = H::Latch::default();
        Ok(Self { storage, space, shape, frames, runs, ledger, segments, latch })
    }

    /// The source of the frames behind a segment.
    pub fn frames(&self) -> FrameSupply {
        self.frames
    }

    /// Walks all invariants in O(units); the first that does not hold is named.
    pub fn check(&self) -> Result<(), &'static str> {
        self.runs.check(&self.storage)?;
        self.ledger.check(&self.storage)?;
        let (mut held, mut before, mut result) = (0, 0, Ok(()));
        self.ledger.for_each(&self.storage, &mut |start, past| {
            let past = self.held_end(start, past);
            if start < before {
                result = Err("two segments hold one unit");
            }
            let mut units = start..past;
            if units.any(|unit| self.runs.all_free(&self.storage, unit, 1)) {
                result = Err("a unit of a segment is free");
            }
            (held, before) = (held + past - start, past);
        });
        result?;
        if held + self.runs.free() == self.space.units() {
            Ok(())
        } else {
            Err("a unit is neither free nor held")
        }
    }

    fn held_end(&self, start: u64, past: u64) -> u64 {
        match self.frames {
            FrameSupply::OnDemand => held_end(&self.space, start, past),
            FrameSupply::PreAllocated => past,
        }
    }

    /// First unit, and the ones past the last handed out and the last held.
    #[inline]
    fn find_units(&self, request: &SegmentRequest) -> Result<(u64, u64, u64), SegmentError> {
        let blocks = self.frames == FrameSupply::OnDemand;
        let place = Place::new(&self.space, request, blocks, self.free_frames())?;
        let start = place.search(
            |count, from| {
                let start = self.runs.first_run::<H>(&self.storage, count, from);
                // So that the search comes to an end, whatever summaries say.
                start.filter(|&start| !H::CHECKED || start >= from && start < self.space.units())
            },
            || place.sure_units(self.shape),
        );
        let start = start.ok_or(SegmentError::NoSegment { wanted: request.count })?;
        Ok((start, start + place.count, place.held_end(start)))
    }
}

impl<W: DerefMut<Target = [u64]>, H: Hardening> GlobalBitmap<'_, W, H> {
    /// Frees frames that are handed out, wherever segments begin and end in them: a part of one, or
    /// several. What is left of a segment is one of its own, or two. Only where frames are
    /// [pre-allocated](FrameSupply::PreAllocated): a block of a buddy system has no parts. O(L + c/64)
    /// for c units.
    ///
    /// So an owner that hands out a segment in pieces frees them in others, and memory that arrives in
    /// pieces is handed out first, all of it, and its pieces are freed as they arrive.
    ///
    /// # Errors
    /// A [`SegmentFreeError`]; nothing has changed then.
    pub fn free_part(&mut self, part: Segment) -> Result<(), SegmentFreeError> {
        if let Some(fault) = self.latch.fault() {
            return Err(SegmentFreeError::Corrupt(fault));
        }
        let (start, past) = part.units(&self.space)?;
        if self.frames == FrameSupply::OnDemand {
            return Err(SegmentFreeError::NotSegment { segment: part });
        }
        if let Some(unit) = self.ledger.first_free(&self.storage, start, past) {
            let error = SegmentFreeError::NotAllocated { frame: unit << self.space.unit().k() };
            return Err(if H::CHECKED { self.refuse(error) } else { error });
        }
        let less = self.ledger.segments_less(&self.storage, start, past - start);
        self.ledger.take_back_part(&mut self.storage, start, past);
        self.runs.give(&mut self.storage, start, past - start);
        self.segments = self.segments.wrapping_add_signed(-less);
        Ok(())
    }

    /// Stops the allocator at a contradiction that shows in the word `word` of `table`, and looks for
    /// the word that is at fault. Nothing is handed out or taken back from here on.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, table: Table, word: usize) -> WordFault {
        let seen = self.fault_at(table, word);
        self.latch.close(self.compare().err().unwrap_or(seen))
    }

    /// Returns why a segment is not freed: it was not handed out, or a word is wrong.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, error: SegmentFreeError) -> SegmentFreeError {
        match (error, self.compare()) {
            (
                SegmentFreeError::NotAllocated { .. } | SegmentFreeError::NotSegment { .. },
                Err(fault),
            ) => SegmentFreeError::Corrupt(self.latch.close(fault)),
            _ => error,
        }
    }

    fn fault_at(&self, table: Table, word: usize) -> WordFault {
        WordFault { table, word, value: self.storage.get(word).copied().unwrap_or(0) }
    }

    /// Compares all words with each other and with the counts: the word at fault, if one is.
    /// O(units).
    fn compare(&self) -> Result<(), WordFault> {
        let Self { storage, runs, ledger, .. } = self;
        let order = self.space.unit().k();
        let free = |word| self.fault_at(Table::Free { order }, word);
        let segments = |word| self.fault_at(Table::Segments, word);
        let units = self.space.units();
        if let Some(word) = ledger.wrong_join(storage, units, |unit| runs.is_free(storage, unit)) {
            return Err(segments(word));
        }
        if let Some(word) = runs.word_beyond(storage) {
            return Err(free(word));
        }
        // One of two words is wrong. If as many bits are set as units are free, it is not theirs.
        let counted = runs.count(storage) == runs.free();
        let is_free = |unit| runs.is_free(storage, unit);
        let held_end = |start, past| self.held_end(start, past);
        let (wrong, held) = ledger.compare(storage, units, held_end, is_free);
        match wrong {
            Some(unit) if counted => return Err(segments(ledger.word(unit))),
            Some(unit) => return Err(free((unit / 64) as usize)),
            None => {}
        }
        // The words agree, a count does not: the table's first stands for the one that was changed.
        if !counted {
            return Err(free(0));
        }
        if held != self.segments {
            return Err(segments(ledger.first_joined()));
        }
        let summary = |word| Err(self.fault_at(Table::Summary { order }, word));
        runs.wrong_summary(storage).map_or(Ok(()), summary)
    }
}

impl<W: DerefMut<Target = [u64]>> GlobalBitmap<'_, W, Checked> {
    /// Returns the contradiction at which the allocator has stopped. O(1).
    pub fn fault(&self) -> Option<WordFault> {
        self.latch.fault()
    }

    /// Compares all words with each other: finds what [`fault`](Self::fault) will be, before a call
    /// meets it. O(units).
    ///
    /// # Errors
    /// The word that is at fault; after a stop, the word that it stopped at.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        self.latch.fault().map_or_else(|| self.compare(), Err)
    }
}

/// Checks that there are few enough units, and words enough.
pub(crate) fn check_size(
    space: &AreaSpace<'_>,
    needed_words: usize,
    given_words: usize,
) -> Result<(), BuildError> {
    if space.units() > UNITS_MAX {
        Err(BuildError::Span { frames: space.total_frames() })
    } else if given_words < needed_words {
        Err(BuildError::Storage { needed_words, given_words })
    } else {
        Ok(())
    }
}

/// The frames of the units from `start` on to below `past`.
#[inline]
pub(crate) fn of_units(space: &AreaSpace<'_>, start: u64, past: u64) -> Segment {
    let k = space.unit().k();
    Segment::new(start << k, (past - start) << k)
}

/// The most frames that a request gets, where less never fails if more does
/// not: log2 of the free units many searches.
pub(crate) fn largest_by_halving(allocator: &impl SegmentAllocator, most: u64) -> u64 {
    let k = allocator.space().unit().k();
    let (mut fits, mut fails) = (0, (most >> k) + 1);
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        match allocator.find(&SegmentRequest::new(middle << k)) {
            Ok(_) => fits = middle,
            Err(_) => fails = middle,
        }
    }
    fits << k
}

impl<W: DerefMut<Target = [u64]>, H: Hardening> SegmentAllocator for GlobalBitmap<'_, W, H> {
    fn space(&self) -> AreaSpace<'_> {
        self.space
    }

    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        if let Some(fault) = self.latch.fault() {
            return Err(SegmentError::Corrupt(fault));
        }
        let (start, past, _) = self.find_units(request)?;
        Ok(of_units(&self.space, start, past))
    }

    #[inline]
    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        if let Some(fault) = self.latch.fault() {
            return Err(SegmentError::Corrupt(fault));
        }
        let (start, past, held) = self.find_units(request)?;
        if H::CHECKED {
            // Where frames are pre-allocated, no unit is held but those that are handed out.
            let pre_allocated = self.frames == FrameSupply::PreAllocated;
            let free = held <= self.space.units()
                && (pre_allocated || self.runs.all_free(&self.storage, start, held - start))
                && self.ledger.hand_out_free(&mut self.storage, start, past);
            if !free {
                let order = self.space.unit().k();
                let word = (start / 64) as usize;
                return Err(SegmentError::Corrupt(self.stop(Table::Free { order }, word)));
            }
        } else {
            self.ledger.hand_out(&mut self.storage, start, past);
        }
        self.runs.take(&mut self.storage, start, held - start);
        self.segments = self.segments.wrapping_add(1);
        Ok(of_units(&self.space, start, past))
    }

    #[inline]
    fn free(&mut self, segment: Segment) -> Result<(), SegmentFreeError> {
        if let Some(fault) = self.latch.fault() {
            return Err(SegmentFreeError::Corrupt(fault));
        }
        let found = self.ledger.find(&self.storage, &self.space, segment);
        let (start, past) = match found {
            Err(error) if H::CHECKED => return Err(self.refuse(error)),
            found => found?,
        };
        let held = self.held_end(start, past);
        self.ledger.take_back(&mut self.storage, start, past);
        self.runs.give(&mut self.storage, start, held - start);
        self.segments = self.segments.wrapping_sub(1);
        Ok(())
    }

    fn acquired(&self, segment: Segment) -> Segment {
        match (self.frames, segment.units(&self.space)) {
            (FrameSupply::OnDemand, Ok((start, past))) => {
                of_units(&self.space, start, held_end(&self.space, start, past))
            }
            _ => Segment::new(segment.start, 0),
        }
    }

    #[inline]
    fn free_frames(&self) -> u64 {
        self.runs.free() << self.space.unit().k()
    }

    /// O(1) where frames are pre-allocated, else O(log n) searches.
    fn largest_frames(&self) -> u64 {
        let longest = self.runs.longest(&self.storage) << self.space.unit().k();
        match self.frames {
            FrameSupply::PreAllocated => longest,
            // What fits, fits from the same start on if it is shorter.
            FrameSupply::OnDemand => largest_by_halving(self, longest),
        }
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Segment)) {
        self.runs.for_each_run::<H>(&self.storage, &mut |start, count| {
            visit(of_units(&self.space, start, start + count));
        });
    }
}
