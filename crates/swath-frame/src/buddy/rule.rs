//! Rules of choice: the free block that a page buddy allocator takes.
//!
//! Fig. 4 of the PBS paper takes the head of a list, the node of the lowest
//! frame: [`HeadOfList`], which keeps no state. [`BestFit`] takes the
//! shortest run that serves the request alone, and so leaves long runs whole;
//! it indexes the runs by their length (one more bitmap, over pairs of a length and
//! a word in which a run of that length starts).
//!
//! A **run** of a class is a row of free units side by side, as long as can
//! be. A **node** is a run, with one exception: below the top class it holds
//! fewer than 2^granularity units, so a run that is longer (it then crosses
//! the border between two units of the class above) is two nodes, cut at the
//! border. In the top class the length has no limit, but with granularity 1
//! each unit is a node in every class, which makes it the binary buddy system.
//!
//! This is a reading of the paper. Its Fig. 6 puts a node into the list of the page
//! size that its base and size are multiples of, and its text says 1 to 15 units for
//! ARMv7; a longer run can only straddle one border of the next page size. With
//! this reading its Fig. 21 comes out (47% against 46%).

use crate::bits::bitmap::Bitmap;
use crate::buddy::class::Class;
use crate::buddy::config::CLASSES_MAX;

/// A rule of choice among the free units of a class: [`HeadOfList`], [`BestFit`], or
/// [`ByFit`](crate::ByFit) of a [`Fit`](crate::Fit) of your own.
///
/// The methods are the allocator's business: what they are told of its classes is not for other crates to
/// use, so that a rule of theirs is a [`Fit`](crate::Fit).
pub trait Rule: Clone + core::fmt::Debug {
    /// True if the rule has to be notified of every change.
    #[doc(hidden)]
    const INDEXED: bool;
    /// Returns true if `units` units can be told apart.
    #[doc(hidden)]
    fn can_index(units: u64) -> bool;
    /// Words of storage for a class of `units` units with nodes of up to
    /// `node_max`.
    #[doc(hidden)]
    fn storage_words(units: u64, node_max: u64) -> u64;
    /// A rule that has no classes yet.
    #[doc(hidden)]
    const NEW: Self;
    /// Sets up class `i`, which is empty, in the storage from `at` on.
    #[doc(hidden)]
    fn add_class(&mut self, storage: &mut [u64], i: usize, at: usize, units: u64, node_max: u64);
    /// The units `low..high` of class `i` have become free.
    #[doc(hidden)]
    fn inserted(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize);
    /// The units `low..high` of class `i`, free so far, have been allocated.
    #[doc(hidden)]
    fn removed(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize);
    /// Of the run that [`pick`](Self::pick) found, `len` units from `low` on,
    /// the first `count` have been allocated.
    #[doc(hidden)]
    fn removed_first(
        &mut self,
        storage: &mut [u64],
        i: usize,
        class: &Class,
        low: usize,
        len: usize,
        count: usize,
    );
    /// Chooses what to take from class `i` for `wanted` units: the first unit
    /// and how many there are, which may be cut to `wanted`. An indexed rule
    /// finds none if no run is long enough.
    #[doc(hidden)]
    fn pick(
        &self,
        storage: &mut [u64],
        i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)>;
    /// Chooses what to take from class `i` if no run of any class is long
    /// enough.
    #[doc(hidden)]
    fn pick_longest(
        &self,
        storage: &mut [u64],
        i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)>;
    /// The first broken invariant of class `i`.
    /// Finds a word of class `i`'s part of the storage that is wrong, by its place.
    #[doc(hidden)]
    fn find_fault(&self, storage: &[u64], i: usize, class: &Class) -> Result<(), usize>;
    #[doc(hidden)]
    fn check(&self, storage: &[u64], i: usize, class: &Class) -> Result<(), &'static str>;
}

/// The paper's rule: the node of the lowest frame. Costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct HeadOfList(());

impl Rule for HeadOfList {
    const INDEXED: bool = false;

    fn can_index(_units: u64) -> bool {
        true
    }

    fn storage_words(_units: u64, _node_max: u64) -> u64 {
        0
    }

    const NEW: Self = Self(());

    fn add_class(&mut self, _: &mut [u64], _: usize, _: usize, _: u64, _: u64) {}

    #[inline(always)]
    fn inserted(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize) {}

    #[inline(always)]
    fn removed(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize) {}

    #[inline(always)]
    fn removed_first(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize, _: usize) {}

    #[inline]
    fn pick(
        &self,
        storage: &mut [u64],
        _i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)> {
        let first = class.free.first(storage)?;
        Some((first, class.node_len(storage, first, wanted)))
    }

    #[inline]
    fn pick_longest(
        &self,
        storage: &mut [u64],
        i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)> {
        self.pick(storage, i, class, wanted)
    }

    fn find_fault(&self, _: &[u64], _: usize, _: &Class) -> Result<(), usize> {
        Ok(())
    }

    fn check(&self, _: &[u64], _: usize, _: &Class) -> Result<(), &'static str> {
        Ok(())
    }
}

/// The shortest run that is long enough, in the lowest class that has one;
/// if no class has one, the longest run there is. Lengths are compared by bin
/// (each length below 64 is a bin, then eight to each doubling, as TLSF's),
/// and what certainly fits is taken; of the runs of one bin, one that starts
/// in the lowest word of the class, and of those the lowest.
///
/// No list and no links: the index is one more [`Bitmap`], whose number
/// `bin * words + w` is in the set if a run of that bin starts in word w of
/// the class. So its lowest number from a bin on is the best fit, found in
/// O(levels), and the run is then found in its word. A run that becomes
/// longer or shorter changes two numbers of the set. Where a run of 64 units
/// or more starts, no other does in the same word, and likewise where it
/// ends, so its length can stand there once for each word (boundary tags);
/// shorter runs are measured in the class itself.
///
/// All of it stands in the caller's storage: for each 64 units of a class a
/// bit for each bin, and a word of tags if runs can be that long. In the
/// classes of a binary buddy system every unit is a node, all fit equally
/// well, and there is no index.
#[derive(Clone, Debug)]
pub struct BestFit {
    runs: [Runs; CLASSES_MAX],
}

/// The runs of one class, by length.
///
/// Invariants: `starts` holds the number of (bin, word) exactly if a run of
/// the bin starts in the word; each run of [`LONG`] units or more has its
/// length in the tag of the word in which it starts and of that in which it
/// ends.
#[derive(Clone, Copy, Debug)]
struct Runs {
    starts: Bitmap,
    /// Words of the class's own bitmap, at least 2; 0 if there is no index.
    words: usize,
    /// 2^64 / words, rounded up, to divide by `words`: exact for numbers below
    /// 2^64 / words, and units are fewer than 2^32 and bins than 2^10.
    reciprocal: u64,
    /// The bin of the longest runs.
    longest: usize,
    /// A word for each of them: the lower half is the length of the long run
    /// that starts there, the upper half that of the long run that ends there.
    tags: usize,
}

/// From this length on a run has tags, and a bin holds several lengths.
const LONG: usize = 64;
const LONG_LOG2: u32 = LONG.trailing_zeros();
/// Bins for each doubling of the length, from `LONG` on: log2.
const STEPS_LOG2: u32 = 3;
const TAG: u64 = u32::MAX as u64;

/// The bin of runs of `len` units, from 0 for one unit on.
#[inline(always)]
const fn bin(len: usize) -> usize {
    if len < LONG {
        return len - 1;
    }
    let log2 = len.ilog2();
    let steps = (len >> (log2 - STEPS_LOG2)) - (1 << STEPS_LOG2);
    LONG - 1 + (((log2 - LONG_LOG2) as usize) << STEPS_LOG2) + steps
}

/// The first bin in which every run has at least `len` units.
#[inline(always)]
const fn bin_fitting(len: usize) -> usize {
    if len <= LONG { len - 1 } else { bin(len - 1) + 1 }
}

/// The most units that a run of a class can have.
const fn run_max(units: u64, node_max: u64) -> u64 {
    let two_nodes = node_max.saturating_mul(2);
    if two_nodes < units { two_nodes } else { units }
}

/// At least enough that the numbers of the index take more than one word.
const fn bins(units: u64, node_max: u64) -> u64 {
    let bins = bin(run_max(units, node_max) as usize) as u64 + 1;
    if bins <= 32 { 33 } else { bins }
}

/// Words of a class's own bitmap, or a second one that stays empty.
const fn words_of(units: u64) -> u64 {
    if units <= 64 { 2 } else { units.div_ceil(64) }
}

const fn tag_words(units: u64, node_max: u64) -> u64 {
    if run_max(units, node_max) < LONG as u64 { 0 } else { units.div_ceil(64) }
}

impl Runs {
    const NONE: Self =
        Self { starts: Bitmap::none(), words: 0, reciprocal: 0, longest: 0, tags: 0 };

    /// The length of the run that starts with unit `first`; 0 if it is not
    /// free. O(1).
    #[inline(always)]
    fn len_from(&self, storage: &[u64], class: &Class, first: usize) -> usize {
        match class.free.ones_from(storage, first) {
            LONG.. => self.start_tag(storage, first),
            short => short,
        }
    }

    /// The length of the run whose last unit is the one before `past`, or 0.
    #[inline(always)]
    fn len_before(&self, storage: &[u64], class: &Class, past: usize) -> usize {
        match class.free.ones_before(storage, past) {
            LONG.. => self.end_tag(storage, past),
            short => short,
        }
    }

    /// The length of the long run that starts in the word of unit `first`.
    #[inline(always)]
    fn start_tag(&self, storage: &[u64], first: usize) -> usize {
        let len = (storage[self.tags + first / 64] & TAG) as usize;
        // A tag that cannot be, in an allocator whose words were changed.
        len.clamp(LONG, LONG.max(self.words * 64 - first))
    }

    /// The length of the long run whose last unit is the one before `past`.
    #[inline(always)]
    fn end_tag(&self, storage: &[u64], past: usize) -> usize {
        let len = (storage[self.tags + (past - 1) / 64] >> 32) as usize;
        len.clamp(LONG, LONG.max(past))
    }

    /// Notes the run of `len` units from `first` on.
    #[inline(always)]
    fn note(&mut self, storage: &mut [u64], first: usize, len: usize) {
        let bin = bin(len).min(self.longest);
        if len >= LONG {
            let tag = &mut storage[self.tags + first / 64];
            *tag = *tag & !TAG | len as u64;
            let tag = &mut storage[self.tags + (first + len - 1) / 64];
            *tag = *tag & TAG | (len as u64) << 32;
        }
        let number = bin * self.words + first / 64;
        self.starts.raise_any(storage, number / 64, 1 << (number % 64));
    }

    /// Notes that there is no run of `len` units from `first` on any more,
    /// after all that there are have been noted.
    #[inline(always)]
    fn forget(&mut self, storage: &mut [u64], class: &Class, first: usize, len: usize) {
        let (bin, word) = (bin(len).min(self.longest), first / 64);
        if self.find(storage, class, bin, word).is_none() {
            let number = bin * self.words + word;
            self.starts.lower_any(storage, number / 64, 1 << (number % 64));
        }
    }

    /// The lowest run of `bin` that starts in the word `index`: its first
    /// unit and its length. O(1).
    #[inline(always)]
    fn find(
        &self,
        storage: &[u64],
        class: &Class,
        bin_: usize,
        index: usize,
    ) -> Option<(usize, usize)> {
        let [before, word, after] = class.free.around(storage, index)?;
        let starts = word & !(word << 1 | before >> 63);
        if bin_ >= LONG - 1 {
            // It reaches the end of the word.
            let from = 63 & (64 - word.leading_ones());
            if starts >> from & 1 == 0 || word >> 63 == 0 {
                return None;
            }
            let first = index * 64 + from as usize;
            let len = self.len_from(storage, class, first);
            return (bin(len) == bin_).then_some((first, len));
        }
        // Where a run starts and, `len - 1` units on, one ends. They need not
        // be the same run.
        let len = bin_ + 1;
        let ends = word & !(word >> 1 | after << 63);
        let ends_after = after & !(after >> 1);
        let mut candidates = starts & (ends >> bin_ | (ends_after << 1) << (63 - bin_));
        while candidates != 0 {
            let from = candidates.trailing_zeros();
            let ones = word >> from | (after << 1) << (63 - from);
            if ones.trailing_ones() as usize == len {
                return Some((index * 64 + from as usize, len));
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// The bin of a number of the set.
    #[inline(always)]
    fn bin_of(&self, number: usize) -> usize {
        ((number as u128 * u128::from(self.reciprocal)) >> 64) as usize
    }

    /// The run that a number of the set stands for.
    #[inline(always)]
    fn found(&self, storage: &[u64], class: &Class, number: usize) -> Option<(usize, usize)> {
        let bin = self.bin_of(number);
        self.find(storage, class, bin, number - bin * self.words)
    }
}

impl Rule for BestFit {
    const INDEXED: bool = true;

    fn can_index(units: u64) -> bool {
        units <= TAG
    }

    fn storage_words(units: u64, node_max: u64) -> u64 {
        if node_max == 1 {
            return 0;
        }
        let numbers = bins(units, node_max).saturating_mul(words_of(units));
        Bitmap::storage_words(numbers) + tag_words(units, node_max)
    }

    const NEW: Self = Self { runs: [Runs::NONE; CLASSES_MAX] };

    fn add_class(&mut self, storage: &mut [u64], i: usize, at: usize, units: u64, node_max: u64) {
        if node_max == 1 {
            return;
        }
        let words = words_of(units);
        let numbers = bins(units, node_max) * words;
        let tags = at + Bitmap::storage_words(numbers) as usize;
        storage[tags..tags + tag_words(units, node_max) as usize].fill(0);
        let starts = Bitmap::new(storage, at, numbers);
        let reciprocal = u64::MAX / words + 1;
        let longest = (numbers / words - 1) as usize;
        self.runs[i] = Runs { starts, words: words as usize, reciprocal, longest, tags };
    }

    #[inline]
    fn inserted(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize) {
        let runs = &mut self.runs[i];
        if runs.words == 0 {
            return;
        }
        let before = runs.len_before(storage, class, low);
        let after = runs.len_from(storage, class, high);
        runs.note(storage, low - before, before + (high - low) + after);
        if before > 0 {
            runs.forget(storage, class, low - before, before);
        }
        if after > 0 {
            runs.forget(storage, class, high, after);
        }
    }

    fn removed(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize) {
        let runs = &mut self.runs[i];
        if runs.words == 0 {
            return;
        }
        // What is left on either side, up to 64 units; where the whole was
        // long, its tags still say how long.
        let count = high - low;
        let mut before = class.free.ones_before(storage, low);
        let mut after = class.free.ones_from(storage, high);
        if before + count + after >= LONG {
            if before == 0 {
                after = runs.start_tag(storage, low).saturating_sub(count);
            } else if after == 0 {
                before = runs.end_tag(storage, high).saturating_sub(count).min(low);
            } else {
                // Only an aligned request without a list of its own.
                before = low - class.free.run_start(storage, low);
                after = class.free.run(storage, high, usize::MAX);
            }
        }
        if before > 0 {
            runs.note(storage, low - before, before);
        }
        if after > 0 {
            runs.note(storage, high, after);
        }
        runs.forget(storage, class, low - before, before + count + after);
    }

    #[inline(always)]
    fn removed_first(
        &mut self,
        storage: &mut [u64],
        i: usize,
        class: &Class,
        low: usize,
        len: usize,
        count: usize,
    ) {
        let runs = &mut self.runs[i];
        if runs.words == 0 {
            return;
        }
        if count < len {
            runs.note(storage, low + count, len - count);
        }
        runs.forget(storage, class, low, len);
    }

    #[inline(always)]
    fn pick(
        &self,
        storage: &mut [u64],
        i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)> {
        let runs = &self.runs[i];
        if runs.words == 0 {
            return class.free.first(storage).map(|first| (first, 1));
        }
        let from = bin_fitting(wanted).checked_mul(runs.words)?;
        let number = runs.starts.next(storage, from)?;
        runs.found(storage, class, number)
    }

    fn pick_longest(
        &self,
        storage: &mut [u64],
        i: usize,
        class: &mut Class,
        _wanted: usize,
    ) -> Option<(usize, usize)> {
        let runs = &self.runs[i];
        if runs.words == 0 {
            return class.free.first(storage).map(|first| (first, 1));
        }
        let bin = runs.bin_of(runs.starts.last(storage)?);
        let number = runs.starts.next(storage, bin * runs.words)?;
        runs.found(storage, class, number)
    }

    fn find_fault(&self, storage: &[u64], i: usize, class: &Class) -> Result<(), usize> {
        let runs = &self.runs[i];
        if runs.words == 0 {
            return Ok(());
        }
        if let Some(word) = runs.starts.wrong_mark(storage) {
            return Err(word);
        }
        let mut from = 0;
        while let Some(first) = class.free.next(storage, from) {
            let len = class.free.run(storage, first, usize::MAX);
            let number = bin(len) * runs.words + first / 64;
            if !runs.starts.contains(storage, number) {
                return Err(runs.starts.place(number));
            }
            if len >= LONG {
                if (storage[runs.tags + first / 64] & TAG) as usize != len {
                    return Err(runs.tags + first / 64);
                }
                if (storage[runs.tags + (first + len - 1) / 64] >> 32) as usize != len {
                    return Err(runs.tags + (first + len - 1) / 64);
                }
            }
            from = first + len;
        }
        let mut from = 0;
        while let Some(number) = runs.starts.next(storage, from) {
            let bin = runs.bin_of(number);
            if runs.find(storage, class, bin, number - bin * runs.words).is_none() {
                return Err(runs.starts.place(number));
            }
            from = number + 1;
        }
        Ok(())
    }

    fn check(&self, storage: &[u64], i: usize, class: &Class) -> Result<(), &'static str> {
        let runs = &self.runs[i];
        if runs.words == 0 {
            return Ok(());
        }
        runs.starts.check(storage)?;
        // Every run is in the index. Of the numbers in the index, those of one
        // word come from different bins, so counting them is enough.
        let (mut from, mut noted) = (0, 0);
        while let Some(first) = class.free.next(storage, from) {
            let len = class.free.run(storage, first, usize::MAX);
            if !runs.starts.contains(storage, bin(len) * runs.words + first / 64) {
                return Err("a run is not in the index of runs");
            }
            let lowest = runs.find(storage, class, bin(len), first / 64);
            noted += usize::from(lowest == Some((first, len)));
            if len >= LONG
                && (runs.start_tag(storage, first) != len
                    || runs.end_tag(storage, first + len) != len)
            {
                return Err("a boundary tag differs from the length of its run");
            }
            from = first + len;
        }
        if noted != runs.starts.len(storage) {
            return Err("the index of runs holds what is no run");
        }
        Ok(())
    }
}
