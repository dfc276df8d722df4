//! The baseline of the CLMalloc paper (section 3.2): contiguous memory by
//! area, as Linux's CMA has it, stretched over neighbouring areas.
//!
//! Each area has a bitmap of its own. A request that an area could hold is
//! served by the first area with a run that fits, found by a scan of its
//! bitmap, and its frames are a block of the area's buddy system: a power of
//! two. A larger request walks the areas backwards: from the first area that is
//! wholly free on, neighbours are taken as long as they are wholly free, too,
//! until there are enough; what is too much goes back from the head of the
//! last area taken. If the walk meets an area in use before that, all are
//! released and it goes on behind. Areas do not see each other, so each is acquired when
//! the walk reaches it, bits and frames, whether or not the next will do.
//!
//! ```text
//!  areas     0 [........]  1 [........]  2 [...#....]  3 [........]
//!  request of 12 of 8                                    [########] acquired, and released
//!                [....####]    [########]
//!         released ^  ^ the segment
//! ```
//!
//! So a large request finds wholly free areas only, and the outcome depends on
//! the order of requests (Fig. 4).
//!
//! In the [checked tier](crate::hardening) a segment goes out only if none of its units is handed out by
//! the ledger's bits, and an area counts as wholly free only if the ledger says so, too: counts of
//! the units that are handed out, one for 4,096, tell it of most areas without reading their bits. A word that contradicts the others stops the allocator.

use core::ops::DerefMut;

use swath_arch::Extent;

use crate::allocator::BuildError;
use crate::bits::words::{all_set, clear, first_clear, set};
use crate::hardening::{Checked, Hardening, Latch, Table, Trusting, WordFault};
use crate::segment::allocator::{
    AreaFrames, SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest,
};
use crate::segment::global_bitmap::{check_size, largest_by_halving, of_units};
use crate::segment::ledger::Ledger;
use crate::segment::place::{Place, held_end, units};
use crate::segment::space::{AreaSpace, Segment};

/// First fit within an area, and the reverse search over areas.
///
/// A request costs O(n/64 + r) for n units and r free runs that are too short;
/// to free c units costs O(c/64). Beyond an area's size, the walk acquires each free area that it
/// reaches and releases what it does not keep: with constraints, O(n/64) for each area.
/// Areas of unequal size: a request is small if
/// the largest area could hold it. The reverse search knows no constraints: a
/// place that does not meet those of the request is passed by.
///
/// State: 0.38 bytes for each unit; in the checked tier a word more for each 4,096. `H` is the tier of [checks](crate::hardening); the default makes
/// none. In the checked tier a free that is refused costs O(n).
///
/// Invariants, walked by [`check`](Self::check): a unit is free exactly if no
/// segment holds it; segments hold different units; `free_units` are free; in the checked tier the
/// counts are those of the ledger.
#[derive(Clone, Debug)]
pub struct Baseline<'m, W, H: Hardening = Trusting> {
    storage: W,
    space: AreaSpace<'m>,
    /// Words of the areas' bitmaps, at the start of the storage. They share the
    /// words in which one ends and the next begins.
    words: usize,
    free_units: u64,
    /// Units of the largest area.
    area_max: u64,
    ledger: Ledger,
    /// In the checked tier, the first of the counts of units that are handed out.
    counts_at: usize,
    /// Number of segments handed out.
    segments: u64,
    /// The contradiction at which the checked tier stopped.
    latch: H::Latch,
}

/// Units of which the checked tier counts those that are handed out together.
const BLOCK: u64 = 1 << 12;

/// A walk over the areas, from the last to the first: those from `low` on to below `high`, of `taken`
/// units, are acquired.
struct Walk {
    high: usize,
    low: usize,
    taken: u64,
}

impl Walk {
    /// Nothing acquired yet, of the areas below `high`.
    const fn from(high: usize) -> Self {
        Self { high, low: high, taken: 0 }
    }
}

/// A step of the reverse search, with the first of some units and the one past the last.
enum Step {
    Acquire((u64, u64)),
    Release((u64, u64)),
    /// The segment ends where the walk began; what is acquired from `base` on is too much.
    Found {
        base: u64,
        start: u64,
    },
    End,
}

/// No frames behind the areas.
struct NoFrames;

impl AreaFrames for NoFrames {
    fn acquire(&mut self, _: Extent) {}

    fn release(&mut self, _: Extent) {}
}

impl<'m, W: DerefMut<Target = [u64]>, H: Hardening> Baseline<'m, W, H> {
    /// Counts the words of storage that the areas need; `usize::MAX` if they
    /// cannot be addressed.
    pub fn storage_words(space: &AreaSpace<'_>) -> usize {
        let units = space.units();
        let counts = if H::CHECKED { units.div_ceil(BLOCK) } else { 0 };
        let words = units.div_ceil(64) + Ledger::storage_words(units) + counts;
        usize::try_from(words).unwrap_or(usize::MAX)
    }

    /// An allocator for all units of `space`, all of them free. Overwrites
    /// what `storage` holds; words beyond [`storage_words`](Self::storage_words)
    /// are not used. O(words).
    ///
    /// # Errors
    /// [`BuildError`] if `storage` is too small, or there are 2^32 units or more.
    pub fn new(space: AreaSpace<'m>, mut storage: W) -> Result<Self, BuildError> {
        let free_units = space.units();
        check_size(&space, Self::storage_words(&space), storage.len())?;
        let words = free_units.div_ceil(64) as usize;
        storage[..words].fill(0);
        set(&mut storage, 0, free_units as usize);
        let ledger = Ledger::new(&mut storage, words, free_units);
        let counts_at = words + Ledger::storage_words(free_units) as usize;
        if H::CHECKED {
            storage[counts_at..counts_at + free_units.div_ceil(BLOCK) as usize].fill(0);
        }
        let sizes = space.areas().iter().map(|area| area.frames().count >> space.unit().k());
        let area_max = sizes.max().unwrap_or(0);
        let (segments, latch) = (0, H::Latch::default());
        Ok(Self { storage, space, words, free_units, area_max, ledger, counts_at, segments, latch })
    }

    /// Walks all invariants in O(units); the first that does not hold is named.
    pub fn check(&self) -> Result<(), &'static str> {
        self.ledger.check(&self.storage)?;
        let (mut held, mut before, mut result) = (0, 0, Ok(()));
        self.ledger.for_each(&self.storage, &mut |start, past| {
            let past = self.held_end(start, past);
            if start < before {
                result = Err("two segments hold one unit");
            }
            if self.next_free(start, past) < past {
                result = Err("a unit of a segment is free");
            }
            (held, before) = (held + past - start, past);
        });
        result?;
        let set: u64 = self.bits().iter().map(|word| u64::from(word.count_ones())).sum();
        if set != self.free_units {
            Err("the count of free units is wrong")
        } else if held + self.free_units != self.space.units() {
            Err("a unit is neither free nor held")
        } else {
            self.compare_counts().map_err(|_| "a count of units that are handed out is wrong")
        }
    }

    fn bits(&self) -> &[u64] {
        &self.storage[..self.words]
    }

    fn is_small(&self, count: u64) -> bool {
        count <= self.area_max
    }

    /// One past the units held for a segment: only small ones have a block.
    fn held_end(&self, start: u64, past: u64) -> u64 {
        if self.is_small(past - start) { held_end(&self.space, start, past) } else { past }
    }

    /// The first free unit from `from` on; `end` if there is none before it.
    fn next_free(&self, from: u64, end: u64) -> u64 {
        let mut at = from;
        while at < end {
            let word = self.storage[(at / 64) as usize] >> (at % 64);
            if word != 0 {
                return (at + u64::from(word.trailing_zeros())).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }

    /// The first run of `count` free units that lies from `from` to `end`.
    fn scan(&self, count: u64, from: u64, end: u64) -> Option<u64> {
        let mut start = self.next_free(from, end);
        while start + count <= end {
            match first_clear(self.bits(), start as usize, count as usize) {
                None => return Some(start),
                Some(taken) => start = self.next_free(taken as u64 + 1, end),
            }
        }
        None
    }

    fn first_fit(&self, place: &Place<'_>) -> Option<u64> {
        self.space.areas().iter().find_map(|area| {
            let place = place.within(area)?;
            place.search(|count, from| self.scan(count, from, units(&self.space, area).1), || None)
        })
    }

    fn is_free(&self, area: usize) -> Option<u64> {
        let (base, end) = units(&self.space, &self.space.areas()[area]);
        let is_free = all_set(self.bits(), base as usize, (end - base) as usize)
            && (!H::CHECKED || !self.any_out(base, end));
        is_free.then_some(end - base)
    }

    /// Returns true if one of some units, at least one, is handed out. The counts are asked first: if one of
    /// them was changed, the units' own bits tell still.
    #[inline]
    fn any_out(&self, base: u64, end: u64) -> bool {
        let (low, high) = self.counts(base, end);
        let any = if low >= high {
            self.storage[low]
        } else {
            self.storage[low..=high].iter().fold(0, |any, count| any | count)
        };
        any != 0 && self.ledger.any_out(&self.storage, base, end)
    }

    /// Counts units that are handed out, or taken back, block by block.
    #[inline(always)]
    fn count_out(&mut self, start: u64, past: u64, is_out: bool) {
        if !H::CHECKED {
            return;
        }
        let add = |count: &mut u64, units: u64| {
            *count = if is_out { count.wrapping_add(units) } else { count.wrapping_sub(units) };
        };
        let (low, high) = self.counts(start, past);
        let words = &mut *self.storage;
        if low >= high {
            return add(&mut words[low], past - start);
        }
        // The last first: where it is, those before it are.
        add(&mut words[high], (past - 1) % BLOCK + 1);
        add(&mut words[low], BLOCK - start % BLOCK);
        // Few segments have a block between: no slice of them is made.
        let mut between = low + 1;
        while between < high {
            add(&mut words[between], BLOCK);
            between += 1;
        }
    }

    /// Returns the places of the first and the last count of some units, at least one.
    #[inline(always)]
    fn counts(&self, start: u64, past: u64) -> (usize, usize) {
        let of = |unit: u64| self.counts_at + (unit / BLOCK) as usize;
        (of(start), of(past - 1))
    }

    /// The next step of the reverse search. Areas that the walk has acquired are not looked at again,
    /// so that it takes the same steps whether or not they are done.
    fn step(&self, place: &Place<'_>, walk: &mut Walk) -> Step {
        if walk.high == 0 {
            return Step::End;
        }
        let short = walk.taken < place.count;
        if short
            && let Some(area) = walk.low.checked_sub(1)
            && let Some(taken) = self.is_free(area)
        {
            (walk.low, walk.taken) = (area, walk.taken + taken);
            return Step::Acquire(units(&self.space, &self.space.areas()[area]));
        }
        let past = units(&self.space, &self.space.areas()[walk.high - 1]).1;
        let base = past - walk.taken;
        if !short && place.admit(past - place.count) == Some(past - place.count) {
            return Step::Found { base, start: past - place.count };
        }
        *walk = Walk::from(if short { walk.low.saturating_sub(1) } else { walk.high - 1 });
        Step::Release((base, past))
    }

    fn reverse_search(&self, place: &Place<'_>) -> Option<u64> {
        let mut walk = Walk::from(self.space.areas().len());
        loop {
            match self.step(place, &mut walk) {
                Step::Acquire(_) | Step::Release(_) => {}
                Step::Found { start, .. } => return Some(start),
                Step::End => return None,
            }
        }
    }

    /// Takes the steps of the reverse search: what is acquired and not released is the segment.
    fn reverse_allocate(
        &mut self,
        request: &SegmentRequest,
        frames: &mut dyn AreaFrames,
    ) -> Result<(u64, u64), SegmentError> {
        let space = self.space;
        let place = Place::new(&space, request, false, self.free_frames())?;
        let mut walk = Walk::from(space.areas().len());
        loop {
            match self.step(&place, &mut walk) {
                Step::Acquire((start, past)) => {
                    self.take(start, past);
                    let run = of_units(&space, start, past);
                    space.pieces(run).for_each(|run| frames.acquire(run));
                }
                Step::Release((start, past)) => self.release(start, past, frames),
                Step::Found { base, start } => {
                    self.release(base, start, frames);
                    let past = start + place.count;
                    // They are acquired, so it has been asked whether they are handed out.
                    self.ledger.hand_out(&mut self.storage, start, past);
                    self.count_out(start, past, true);
                    self.segments = self.segments.wrapping_add(1);
                    return Ok((start, past));
                }
                Step::End => return Err(SegmentError::NoSegment { wanted: request.count }),
            }
        }
    }

    fn take(&mut self, start: u64, past: u64) {
        clear(&mut self.storage[..self.words], start as usize, (past - start) as usize);
        self.free_units -= past - start;
    }

    fn give(&mut self, start: u64, past: u64) {
        set(&mut self.storage[..self.words], start as usize, (past - start) as usize);
        self.free_units += past - start;
    }

    fn release(&mut self, start: u64, past: u64, frames: &mut dyn AreaFrames) {
        if start < past {
            self.give(start, past);
            let run = of_units(&self.space, start, past);
            self.space.pieces(run).for_each(|run| frames.release(run));
        }
    }

    /// Notes that a segment goes out. In the checked tier it does so only if none of its units is
    /// handed out, and no more are held than are free.
    fn hand_out(&mut self, start: u64, past: u64, held: u64) -> Result<(), WordFault> {
        if H::CHECKED {
            let is_free = held - start <= self.free_units
                && self.ledger.hand_out_free(&mut self.storage, start, past);
            if !is_free {
                return Err(self.stop((start / 64) as usize));
            }
        } else {
            self.ledger.hand_out(&mut self.storage, start, past);
        }
        self.count_out(start, past, true);
        self.segments = self.segments.wrapping_add(1);
        Ok(())
    }

    /// Stops the allocator at a contradiction that shows in a word of the areas' bitmaps, and looks for
    /// the word that is at fault. Nothing is handed out or taken back from here on.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, word: usize) -> WordFault {
        let seen = self.fault_at(Table::Free { order: self.space.unit().k() }, word);
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
        let (storage, ledger, units) = (&self.storage, &self.ledger, self.space.units());
        let free = |word| Err(self.fault_at(Table::Free { order: self.space.unit().k() }, word));
        let segments = |word| Err(self.fault_at(Table::Segments, word));
        let is_free = |unit: u64| storage[(unit / 64) as usize] >> (unit % 64) & 1 == 1;
        if let Some(word) = ledger.wrong_join(storage, units, is_free) {
            return segments(word);
        }
        if units % 64 != 0 && storage[self.words - 1] >> (units % 64) != 0 {
            return free(self.words - 1);
        }
        let held_end = |start, past: u64| self.held_end(start, past.min(units));
        let (wrong, held) = ledger.compare(storage, units, held_end, is_free);
        // One of two words is wrong. If as many bits are set as units are free, it is not theirs.
        let set: u64 = self.bits().iter().map(|word| u64::from(word.count_ones())).sum();
        match wrong {
            Some(unit) if set == self.free_units => segments(ledger.word(unit)),
            Some(unit) => free((unit / 64) as usize),
            // The words agree, a count does not: the table's first stands for the one that was changed.
            None if set != self.free_units => free(0),
            None if held != self.segments => segments(ledger.first_joined()),
            None => self.compare_counts(),
        }
    }

    /// Compares the counts with the ledger, whose words are right: the word at fault, if one is.
    fn compare_counts(&self) -> Result<(), WordFault> {
        if !H::CHECKED {
            return Ok(());
        }
        let first = self.ledger.word(0);
        let out = self.storage[first..first + self.words].chunks(BLOCK as usize / 64);
        for (block, words) in out.enumerate() {
            let word = self.counts_at + block;
            let count: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
            if self.storage[word] != count {
                return Err(self.fault_at(Table::Segments, word));
            }
        }
        Ok(())
    }

    fn find_units(&self, request: &SegmentRequest) -> Result<(u64, u64), SegmentError> {
        let small = self.is_small(request.count.div_ceil(self.space.unit().frames()));
        let place = Place::new(&self.space, request, small, self.free_frames())?;
        let start = if small { self.first_fit(&place) } else { self.reverse_search(&place) };
        let start = start.ok_or(SegmentError::NoSegment { wanted: request.count })?;
        Ok((start, start + place.count))
    }
}

impl<W: DerefMut<Target = [u64]>> Baseline<'_, W, Checked> {
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

impl<W: DerefMut<Target = [u64]>, H: Hardening> SegmentAllocator for Baseline<'_, W, H> {
    fn space(&self) -> AreaSpace<'_> {
        self.space
    }

    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        if let Some(fault) = self.latch.fault() {
            return Err(SegmentError::Corrupt(fault));
        }
        let (start, past) = self.find_units(request)?;
        Ok(of_units(&self.space, start, past))
    }

    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        self.allocate_from(request, &mut NoFrames)
    }

    fn acquired(&self, segment: Segment) -> Segment {
        match segment.units(&self.space) {
            Ok((start, past)) => of_units(&self.space, start, self.held_end(start, past)),
            Err(_) => Segment::new(segment.start, 0),
        }
    }

    fn allocate_from(
        &mut self,
        request: &SegmentRequest,
        frames: &mut dyn AreaFrames,
    ) -> Result<Segment, SegmentError> {
        if let Some(fault) = self.latch.fault() {
            return Err(SegmentError::Corrupt(fault));
        }
        let small = self.is_small(request.count.div_ceil(self.space.unit().frames()));
        let (start, past) = if small {
            let (start, past) = self.find_units(request)?;
            let held = self.held_end(start, past);
            self.hand_out(start, past, held).map_err(SegmentError::Corrupt)?;
            self.take(start, held);
            let run = of_units(&self.space, start, held);
            self.space.pieces(run).for_each(|run| frames.acquire(run));
            (start, past)
        } else {
            self.reverse_allocate(request, frames)?
        };
        Ok(of_units(&self.space, start, past))
    }

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
        self.count_out(start, past, false);
        self.give(start, held);
        self.segments = self.segments.wrapping_sub(1);
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.free_units << self.space.unit().k()
    }

    /// O(log n) requests, and O(n/64) for neighbours that are wholly free. A
    /// smaller request can fail where this one would not: it may be one that
    /// gets no more than an area.
    fn largest_frames(&self) -> u64 {
        let (mut group, mut longest) = (0, 0);
        for area in 0..self.space.areas().len() {
            group = self.is_free(area).map_or(0, |units| group + units);
            longest = longest.max(group);
        }
        let k = self.space.unit().k();
        if longest > self.area_max {
            longest << k
        } else {
            largest_by_halving(self, self.free_frames().min(self.area_max << k))
        }
    }

    /// Runs are joined across the borders of areas, which only requests beyond
    /// an area's size can use. O(n/64 + r) for r runs.
    fn for_each_free(&self, visit: &mut dyn FnMut(Segment)) {
        let end = self.space.units();
        let mut start = self.next_free(0, end);
        while start < end {
            let past = first_clear(self.bits(), start as usize, (end - start) as usize);
            let past = past.map_or(end, |unit| unit as u64);
            visit(of_units(&self.space, start, past));
            start = self.next_free(past, end);
        }
    }
}
