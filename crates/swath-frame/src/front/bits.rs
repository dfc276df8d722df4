//! The bits of the frames that are the front's, and of those of them that users hold.

// A bit only counts who holds a frame. What a user wrote into the frame is
// ordered by the locks that the frame passes through on its way.
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

// The model checker has to see every atomic access.
#[cfg(not(loom))]
use core::sync::atomic::AtomicUsize;
#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;

/// The order of the frames of a word of bits; small for the model checker, which must see a unit
/// of several words.
pub(super) const WORD_ORDER: u32 = if cfg!(loom) { 2 } else { usize::BITS.ilog2() };

/// The order of a **part**, the least that a word for a whole unit tells of: above it blocks would
/// have several words.
const PART_ORDER: u32 = if cfg!(loom) { WORD_ORDER } else { WORD_ORDER + 1 };

/// The order of a **unit**, whose bits lie together.
pub(super) const UNIT_ORDER: u32 = if cfg!(loom) { 4 } else { 10 };

/// The order of a unit's halves, which are huge pages.
pub(super) const HALF_ORDER: u32 = UNIT_ORDER - 1;

/// Frames for each word of bits.
pub(super) const BITS: u64 = 1 << WORD_ORDER;

/// Frames of a unit.
pub(super) const UNIT_FRAMES: u64 = 1 << UNIT_ORDER;

/// A word with the bit of each of its frames.
const ALL: usize = usize::MAX >> (usize::BITS as u64 - BITS);

/// Words of one kind in a unit, and in a part.
const WORDS: usize = 1 << (UNIT_ORDER - WORD_ORDER);
const PART_WORDS: usize = 1 << (PART_ORDER - WORD_ORDER);

/// Parts of a unit, and a bit for each, after those of the halves.
const PARTS: usize = 1 << (UNIT_ORDER - PART_ORDER);
const PARTS_AT: usize = 2;
const ALL_PARTS: usize = ((1 << PARTS) - 1) << PARTS_AT;

/// The bit of each half, and those of its parts.
const HALVES: [(usize, usize); 2] = {
    let low = ((1 << (PARTS / 2)) - 1) << PARTS_AT;
    [(1, low), (2, low << (PARTS / 2))]
};

/// Words of a cache line. The checker's are not what they are in memory.
pub(super) const LINE_WORDS: usize = if cfg!(loom) { 1 } else { 64 / size_of::<usize>() };

/// Words of a unit: the parts have a line to themselves.
pub(super) const UNIT_WORDS: usize = LINE_WORDS + 2 * WORDS;

/// For each part, its bit and that of its half.
static WHOLES: [usize; PARTS] = {
    let mut wholes = [0; PARTS];
    let mut part = 0;
    while part < PARTS {
        wholes[part] = 1 << (PARTS_AT + part) | HALVES[part / (PARTS / 2)].0;
        part += 1;
    }
    wholes
};

/// The words of a unit, from the start of a cache line on, so that CPUs that use frames of different
/// units, or short blocks of different quarters of one, do not wait for each other's lines. First
/// a bit for each part that a user got as a part of an aligned block and still holds **whole**, one for each half
/// that is held as one block, so that a huge page is taken and given by a step of one bit, which needs no look at
/// the word before, and nothing in the rest of that line; then for each `BITS` frames a bit for each that a user holds, and one for
/// each that is the front's. What never was the front's is held, too, so that a single bit says whether
/// a frame may go out; what has been removed is neither.
///
/// The frames of a part that is held whole have no bit of users', so that such a block is taken and
/// comes back in one step. The first who frees less of it turns it into bits of frames, under
/// the allocator's lock.
pub(super) type Unit = [AtomicUsize; UNIT_WORDS];

/// The words of users' bits and of the front's for the same frames, and some of these frames' bits.
type Words<'m> = (&'m [AtomicUsize; 2], usize);

/// The units of the span.
#[derive(Clone, Copy)]
pub(super) struct Bits<'m>(pub(super) &'m [Unit]);

/// The words of users' bits and of the front's for the same frames.
#[inline(always)]
fn pair(unit: &Unit, word: usize) -> &[AtomicUsize; 2] {
    &unit[LINE_WORDS..].as_chunks().0[word % WORDS]
}

#[inline(always)]
fn used(unit: &Unit, word: usize) -> &AtomicUsize {
    &pair(unit, word)[0]
}

#[inline(always)]
fn owned(unit: &Unit, word: usize) -> &AtomicUsize {
    &pair(unit, word)[1]
}

/// Returns true if no user holds a frame of the `N` words from that of frame `index` on, which has to
/// be the first of an aligned block of so many.
#[inline(always)]
fn is_clear<const N: usize>(unit: &Unit, index: u64) -> bool {
    // All lie in the unit whatever `index` is, so that nothing is left to be checked.
    let first = if N < WORDS { word_of(index) / N * N } else { 0 };
    let words = first..first + N.min(WORDS);
    let held = words.fold(0, |held, word| held | used(unit, word).load(Relaxed));
    index.is_multiple_of(N as u64 * BITS) && held & ALL == 0
}

/// A bit for each part of `N` words.
const fn ones<const N: usize>() -> usize {
    (1 << (N / PART_WORDS)) - 1
}

/// The number in its unit of a frame's word.
#[inline(always)]
fn word_of(index: u64) -> usize {
    (index >> WORD_ORDER) as usize % WORDS
}

/// The bits of the parts of an aligned block of so many frames.
#[inline(always)]
fn parts(index: u64, frames: u64) -> usize {
    let ones = (1_usize << (frames >> PART_ORDER)) - 1;
    ones << (PARTS_AT + (index >> PART_ORDER) as usize % PARTS)
}

/// The bit of the half of this frame.
#[inline(always)]
fn half(index: u64) -> usize {
    1 << ((index >> HALF_ORDER) as usize % 2)
}

/// The bits of which one says that a user holds the part of this frame whole.
#[inline(always)]
fn wholes(index: u64) -> usize {
    WHOLES[(index >> PART_ORDER) as usize % PARTS]
}

/// Returns true if a user holds the part of this frame whole.
#[inline(always)]
fn is_in_whole(unit: &Unit, index: u64) -> bool {
    let whole = unit[0].load(Relaxed);
    whole != 0 && whole & wholes(index) != 0
}

/// The parts that users hold whole, those of whole halves among them.
fn whole_parts(unit: &Unit) -> usize {
    let whole = unit[0].load(Relaxed);
    let halves = HALVES.iter().filter(|(half, _)| whole & half != 0);
    halves.fold(whole & ALL_PARTS, |all, (_, parts)| all | parts)
}

/// Turns halves with some of `parts` that a user holds as one block into parts, in one step each. Who calls it holds
/// the allocator's lock.
fn unfold(unit: &Unit, parts: usize) {
    for (half, its_parts) in HALVES.into_iter().filter(|(_, its_parts)| its_parts & parts != 0) {
        let mut now = unit[0].load(Relaxed);
        // A free of the half may come in between.
        while now & half != 0 {
            match unit[0].compare_exchange_weak(now, now ^ half | its_parts, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
    }
}

/// Clears `bits` in a word if they are all set.
#[inline(always)]
fn clear_all(word: &AtomicUsize, bits: usize) -> bool {
    // With the bits set again by `split`, the word that says that they are not whole any more is
    // seen, too, by whoever gets the frames next.
    clear_all_of(word, bits, word.load(Acquire))
}

/// As [`clear_all`] of a word that is probably `now`.
#[inline(always)]
fn clear_all_of(word: &AtomicUsize, bits: usize, mut now: usize) -> bool {
    while now & bits == bits {
        match word.compare_exchange_weak(now, now ^ bits, Acquire, Acquire) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}

/// Turns those of `parts` that a user holds whole into bits of frames. Who calls it holds the
/// allocator's lock: until it is done, a free finds frames that seem to be free and waits for that
/// lock.
fn split(unit: &Unit, parts: usize) {
    unfold(unit, parts);
    let whole = unit[0].load(Relaxed) & parts;
    if whole == 0 {
        return;
    }
    // A free of the whole may come in between.
    let whole = unit[0].fetch_and(!whole, Relaxed) & whole;
    for part in (0..PARTS).filter(|part| whole >> (PARTS_AT + part) & 1 != 0) {
        for word in part * PART_WORDS..(part + 1) * PART_WORDS {
            used(unit, word).fetch_or(ALL, Release);
        }
    }
}

/// Notes that a user holds half of a unit as one block; returns false if it is not aligned, or a user holds a frame
/// of it.
#[inline(always)]
fn take_half(unit: &Unit, index: u64) -> bool {
    let half = half(index);
    // Another CPU may have the line, which a look at it before would bring here twice; those of the words come
    // after it.
    if unit[0].fetch_or(half, Relaxed) & half != 0 {
        return false;
    }
    let others = parts(index, 1 << HALF_ORDER);
    let clear = is_clear::<{ WORDS / 2 }>(unit, index) && unit[0].load(Relaxed) & others == 0;
    if !clear {
        unit[0].fetch_and(!half, Relaxed);
    }
    clear
}

/// As [`take_half`] for a whole unit: a call of its own, for which the others need not save registers.
#[inline(never)]
fn take_unit(unit: &Unit, index: u64) -> bool {
    let mut now = 0;
    while let Err(other) = unit[0].compare_exchange_weak(now, now | ALL_PARTS, Relaxed, Relaxed) {
        // Bits that say nothing may have been changed from outside.
        if other & (ALL_PARTS | HALVES[0].0 | HALVES[1].0) != 0 {
            return false;
        }
        now = other;
    }
    let clear = is_clear::<WORDS>(unit, index);
    if !clear {
        unit[0].fetch_and(!ALL_PARTS, Relaxed);
    }
    clear
}

impl<'m> Bits<'m> {
    /// The unit of a frame.
    #[inline(always)]
    fn unit(&self, index: u64) -> Option<&'m Unit> {
        self.0.get(usize::try_from(index >> UNIT_ORDER).ok()?)
    }

    /// The number of the word with a frame's bit of users', and the word.
    pub(super) fn word(&self, index: u64) -> (usize, u64) {
        let at = (index >> UNIT_ORDER).saturating_mul(UNIT_WORDS as u64);
        let at = usize::try_from(at).unwrap_or(usize::MAX - UNIT_WORDS);
        let value = |unit| used(unit, word_of(index)).load(Relaxed) as u64;
        (at.saturating_add(LINE_WORDS + 2 * word_of(index)), self.unit(index).map_or(0, value))
    }

    pub(super) fn is_owned(&self, index: u64) -> bool {
        let bit = 1 << (index % BITS);
        self.unit(index).is_some_and(|unit| owned(unit, word_of(index)).load(Relaxed) & bit != 0)
    }

    /// Returns true if the frame is the front's and no user holds it.
    pub(super) fn is_free(&self, index: u64) -> bool {
        let bit = 1 << (index % BITS);
        self.is_owned(index)
            && self.unit(index).is_some_and(|unit| {
                used(unit, word_of(index)).load(Relaxed) & bit == 0 && !is_in_whole(unit, index)
            })
    }

    /// Notes that a user holds a frame; returns false if one did, or it is not the front's.
    #[inline]
    pub(super) fn take(&self, index: u64) -> bool {
        self.take_in_word(index, 1)
    }

    /// As [`take`](Self::take) for frames of one word, and of one part.
    #[inline(always)]
    fn take_in_word(&self, index: u64, bits: usize) -> bool {
        let bits = bits << (index % BITS);
        self.unit(index).is_some_and(|unit| {
            !is_in_whole(unit, index)
                && used(unit, word_of(index)).fetch_or(bits, Relaxed) & bits == 0
        })
    }

    /// As [`take`](Self::take) for `count` frames, not more than a word has bits.
    #[inline]
    pub(super) fn take_run(&self, index: u64, count: u64) -> bool {
        if index % BITS + count > BITS {
            return self.take_across(index, count);
        }
        self.take_in_word(index, ALL >> (BITS - count))
    }

    /// As [`take_run`](Self::take_run) for frames of two words.
    #[inline]
    fn take_across(&self, index: u64, count: u64) -> bool {
        let Some((unit, [(low, low_bits), (high, high_bits)])) = self.two_words(index, count)
        else {
            return self.take_range(index, index.saturating_add(count));
        };
        let whole = unit[0].load(Relaxed);
        if whole != 0 && whole & (wholes(index) | wholes(index + count - 1)) != 0 {
            return false;
        }
        let before = low[0].fetch_or(low_bits, Relaxed) & low_bits;
        high[0].fetch_or(high_bits, Relaxed) & high_bits == 0 && before == 0
    }

    /// The unit of frames that lie in two of its words, these words, each with the front's, and the
    /// frames' bits in them.
    #[inline(always)]
    fn two_words(&self, index: u64, count: u64) -> Option<(&'m Unit, [Words<'m>; 2])> {
        let low = BITS - index % BITS;
        let high = count.wrapping_sub(low);
        if high.wrapping_sub(1) >= BITS {
            return None;
        }
        let unit = self.unit(index)?;
        let words = unit[LINE_WORDS..].as_chunks().0;
        let [first, next, ..] = words.get(word_of(index)..)? else { return None };
        let bits = [(ALL << (index % BITS)) & ALL, ALL >> (BITS - high)];
        Some((unit, [(first, bits[0]), (next, bits[1])]))
    }

    /// As [`take`](Self::take) for a block of an order from 1 to [`UNIT_ORDER`]; returns false, too,
    /// if it is not aligned. One atomic step.
    #[inline(always)]
    pub(super) fn take_block(&self, index: u64, order: u32) -> bool {
        if order <= WORD_ORDER {
            if index & ((1 << order) - 1) != 0 {
                return false;
            }
            return self.take_in_word(index, ALL >> (BITS - (1 << order)));
        }
        self.take_parts(index, order)
    }

    /// As [`take_block`](Self::take_block) for a block that has several words.
    #[inline(always)]
    fn take_parts(&self, index: u64, order: u32) -> bool {
        let Some(unit) = self.unit(index) else { return false };
        if order >= HALF_ORDER {
            return if order == HALF_ORDER {
                take_half(unit, index)
            } else {
                take_unit(unit, index)
            };
        }
        let (clear, ones) = if order == WORD_ORDER + 1 {
            (is_clear::<2>(unit, index), ones::<2>())
        } else if order == WORD_ORDER + 2 {
            (is_clear::<4>(unit, index), ones::<4>())
        } else {
            (is_clear::<8>(unit, index), ones::<8>())
        };
        let parts = ones << (PARTS_AT + (index >> PART_ORDER) as usize % PARTS);
        let whole = parts | wholes(index);
        let mut now = unit[0].load(Relaxed);
        while clear && now & whole == 0 {
            match unit[0].compare_exchange_weak(now, now | parts, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Notes that no user holds a frame any more; returns false if none did, or if it is not the
    /// front's, or held in a whole part: then [`give_held`](Self::give_held) has to follow.
    #[inline]
    pub(super) fn give(&self, index: u64) -> bool {
        let Some(unit) = self.unit(index) else { return false };
        let ([used, owned], bit) = (pair(unit, word_of(index)), 1 << (index % BITS));
        // With nothing before it, the first step is one instruction on x86-64. It acquires for the
        // reason given in `clear_all`.
        let held = used.fetch_and(!bit, Acquire) & bit != 0;
        if held && owned.load(Relaxed) & bit == 0 {
            // A frame that never was the front's: no free of it is right, so none can miss the bit meanwhile.
            used.fetch_or(bit, Release);
            return false;
        }
        held
    }

    /// As [`give`](Self::give) where that said no, with the allocator's lock held.
    pub(super) fn give_held(&self, index: u64) -> bool {
        if !self.is_owned(index) {
            return false;
        }
        if let Some(unit) = self.unit(index) {
            split(unit, parts(index, 1 << PART_ORDER));
        }
        self.give(index)
    }

    /// Notes that no user holds these frames any more, if they lie in one word and are held so: one
    /// atomic step. Otherwise nothing changes, and [`give_range`](Self::give_range) has to say why.
    #[inline(always)]
    pub(super) fn give_run(&self, index: u64, count: u64) -> bool {
        if index % BITS + count > BITS {
            return false;
        }
        let Some(unit) = self.unit(index) else { return false };
        let [used, owned] = pair(unit, word_of(index));
        let bits = (ALL >> (BITS - count)) << (index % BITS);
        // Frames that are not the front's are no user's to give, and stay marked.
        owned.load(Relaxed) & bits == bits && clear_all(used, bits)
    }

    /// As [`give_run`](Self::give_run) for frames of two words. Who calls it holds the allocator's
    /// lock, as for [`give_range`](Self::give_range).
    #[inline]
    pub(super) fn give_across(&self, index: u64, count: u64) -> bool {
        let Some((_, [(low, low_bits), (high, high_bits)])) = self.two_words(index, count) else {
            return false;
        };
        let own = |words: &[AtomicUsize; 2], bits| words[1].load(Relaxed) & bits == bits;
        if !own(low, low_bits) || !own(high, high_bits) || !clear_all(&low[0], low_bits) {
            return false;
        }
        let given = clear_all(&high[0], high_bits);
        if !given {
            low[0].fetch_or(low_bits, Release);
        }
        given
    }

    /// As [`give_run`](Self::give_run) for an aligned block that has several words, if its parts are
    /// held whole.
    #[inline(always)]
    pub(super) fn give_block(&self, index: u64, frames: u64) -> bool {
        let Some(unit) = self.unit(index) else { return false };
        if frames >= 1 << HALF_ORDER {
            // To ask what the word is would bring its line here twice, if another CPU has it.
            if frames == UNIT_FRAMES {
                return clear_all_of(&unit[0], ALL_PARTS, ALL_PARTS);
            }
            let half = half(index);
            if unit[0].fetch_and(!half, Acquire) & half != 0 {
                return true;
            }
        }
        clear_all(&unit[0], parts(index, frames))
    }

    /// The units of the frames `start..end`, as far as the span reaches, each with its frames of
    /// these.
    fn units(&self, start: u64, end: u64) -> impl Iterator<Item = (&'m Unit, u64, u64)> {
        let first = usize::try_from(start >> UNIT_ORDER).unwrap_or(usize::MAX);
        let bases = (start >> UNIT_ORDER..end.div_ceil(UNIT_FRAMES)).map(|i| i << UNIT_ORDER);
        let units = self.0.get(first..).unwrap_or_default().iter();
        units.zip(bases).map(move |(unit, base)| {
            (unit, start.max(base), end.min(base.saturating_add(UNIT_FRAMES)))
        })
    }

    /// Marks every frame as what is not the front's is. No other thread knows of the words yet.
    pub(super) fn hold_all(&self) {
        for unit in self.0 {
            (0..WORDS).for_each(|word| used(unit, word).store(usize::MAX, Relaxed));
        }
    }

    /// Makes the frames `start..end` the front's, held by no user.
    pub(super) fn own_range(&self, start: u64, end: u64) {
        for (unit, start, end) in self.units(start, end) {
            for (word, bits) in words(start, end) {
                used(unit, word).fetch_and(!bits, Relaxed);
                owned(unit, word).fetch_or(bits, Relaxed);
            }
        }
    }

    /// Makes the frames `start..end`, which no user holds, the front's no more. Their bits of users stay
    /// clear: a wrong free that saw them as the front's before must not find them held. Who calls it
    /// holds the allocator's lock.
    pub(super) fn disown_range(&self, start: u64, end: u64) {
        for (unit, start, end) in self.units(start, end) {
            for (word, bits) in words(start, end) {
                owned(unit, word).fetch_and(!bits, Relaxed);
            }
        }
    }

    /// As [`take`](Self::take) for the frames `start..end`; notes all of them but those that are
    /// held whole already.
    pub(super) fn take_range(&self, start: u64, end: u64) -> bool {
        let (mut free, mut covered) = (true, start);
        for (unit, start, end) in self.units(start, end) {
            covered = end;
            let frames = end - start;
            let parts = frames.is_power_of_two() && frames > BITS;
            if parts && self.take_block(start, frames.trailing_zeros()) {
                continue;
            }
            for (word, bits) in words(start, end) {
                let whole = is_in_whole(unit, (word as u64) << WORD_ORDER);
                free &= !whole && used(unit, word).fetch_or(bits, Relaxed) & bits == 0;
            }
        }
        free && covered == end
    }

    /// As [`give`](Self::give) for the frames `start..end` if users hold them all; otherwise
    /// leaves them all as they were and says which is the first that none holds. Who calls it holds
    /// the allocator's lock: a free that meets frames half given waits for that.
    pub(super) fn give_range(&self, start: u64, end: u64) -> Result<(), u64> {
        let (mut covered, from) = (start, start);
        for (unit, start, end) in self.units(start, end) {
            covered = end;
            let parts = parts_within(start, end);
            unfold(unit, parts);
            if (start | end) & ((1 << PART_ORDER) - 1) == 0 && clear_all(&unit[0], parts) {
                continue;
            }
            split(unit, parts);
            let mut given = start;
            for (word, bits) in words(start, end) {
                let own = bits & owned(unit, word).load(Relaxed);
                let held = own & used(unit, word).fetch_and(!own, Acquire);
                let missing = bits & !held;
                if missing != 0 {
                    used(unit, word).fetch_or(held, Release);
                    self.take_range(from, given);
                    let base = (start & !(UNIT_FRAMES - 1)) + ((word as u64) << WORD_ORDER);
                    return Err(base + u64::from(missing.trailing_zeros()));
                }
                given = (given & !(BITS - 1)) + BITS;
            }
        }
        if covered < end {
            self.take_range(from, covered);
            return Err(covered);
        }
        Ok(())
    }

    /// Counts the front's frames, and those of them that users hold.
    pub(super) fn count(&self) -> (u64, u64) {
        let ones = |word: usize| u64::from(word.count_ones());
        self.0.iter().fold((0, 0), |(mut all, mut held), unit| {
            held += ones(whole_parts(unit)) << PART_ORDER;
            for word in 0..WORDS {
                let own = owned(unit, word).load(Relaxed);
                all += ones(own);
                held += ones(own & used(unit, word).load(Relaxed));
            }
            (all, held)
        })
    }
}

/// The words of the frames `start..end` of one unit, and the bits in each.
fn words(start: u64, end: u64) -> impl Iterator<Item = (usize, usize)> {
    (start >> WORD_ORDER..end.div_ceil(BITS)).map(move |number| {
        let base = number << WORD_ORDER;
        let bits = ALL << start.saturating_sub(base);
        let past = (base + BITS).saturating_sub(end);
        (word_of(base), bits & (ALL >> past))
    })
}

/// The bits of the parts with frames of `start..end`, which are of one unit.
fn parts_within(start: u64, end: u64) -> usize {
    let (first, last) = (start >> PART_ORDER, (end - 1) >> PART_ORDER);
    let ones = (1_usize << (last - first + 1)) - 1;
    ones << (PARTS_AT + first as usize % PARTS)
}
