//! The free units of the arena, by chunk: one word of 32 bits for each.
//!
//! A run lies in as few chunks as its length allows, so that what is not longer than a chunk
//! never crosses into a second one: it is contiguous in physical memory if the chunk is one page.
//! A longer run may begin within a chunk, where that costs no further chunk, and what
//! it leaves of its last one serves others.
//!
//! This is a first fit and not the paper's global bitmap, whose segments are freed
//! whole: the pool releases any part of what it acquired. A tree over the chunks says for each how short
//! of a whole chunk its longest free run is, and for each 64 of these how short the least short is:
//!
//! ```text
//!  level 1   [0                 ] [3       ..
//!  level 0   32 32 32 7 0 32 ..   32 3 32  ..    0: all free, 32: none
//! ```
//!
//! So full chunks are passed by 64 at a time at least, and zeroes, such as memory is mapped with, are
//! free chunks: what was never used is never touched.

use crate::source::chunk::CHUNK_UNITS;

/// Entries of a level that one entry of the next is of.
const FANOUT: usize = 64;
/// Levels for all chunks that there can be.
const LEVELS_MAX: usize = 4;

/// Units in use.
///
/// Invariants: each entry of level 0 is [`shortfall`] of its chunk, and each of a higher level the least
/// of those below it.
pub(crate) struct Runs {
    /// For each chunk the units in use, the first one lowest.
    used: &'static mut [u32],
    /// The levels of the tree, the lowest first.
    tree: &'static mut [u8],
    /// Where each level begins and ends.
    levels: [(usize, usize); LEVELS_MAX],
    depth: usize,
    /// The arena's first chunk, counted from address 0 in chunks.
    base_chunk: usize,
    /// No unit from this chunk on was ever used.
    end: usize,
}

/// Returns `units` ones from bit `first` on, of one chunk.
fn mask(first: u32, units: u32) -> u32 {
    (u32::MAX >> (CHUNK_UNITS - units)) << first
}

/// Returns by how many units the longest free run of a chunk is shorter than a chunk.
fn shortfall(used: u32) -> u8 {
    let (mut starts, mut longest) = (!used, 0);
    while starts != 0 {
        starts &= starts << 1;
        longest += 1;
    }
    CHUNK_UNITS as u8 - longest
}

impl Runs {
    /// Returns the bytes of the tree over so many chunks.
    pub(crate) fn tree_bytes(chunks: usize) -> usize {
        Self::shape(chunks).0[LEVELS_MAX - 1].1
    }

    /// The levels over so many chunks, and the number of them. The highest is not summed up.
    fn shape(chunks: usize) -> ([(usize, usize); LEVELS_MAX], usize) {
        let mut levels = [(0, chunks); LEVELS_MAX];
        let mut depth = 1;
        for level in 1..LEVELS_MAX {
            let (start, end) = levels[level - 1];
            let below = end - start;
            let more = if below > FANOUT { below.div_ceil(FANOUT) } else { 0 };
            depth += usize::from(more > 0);
            levels[level] = (end, end + more);
        }
        (levels, depth)
    }

    /// All units are free: `used` and `tree`, of as many bytes as it is to have, are zeroed.
    pub(crate) fn new(
        used: &'static mut [u32],
        tree: &'static mut [u8],
        base_chunk: usize,
    ) -> Self {
        let (levels, depth) = Self::shape(used.len());
        Self { used, tree, levels, depth, base_chunk, end: 0 }
    }

    fn level(&self, level: usize) -> &[u8] {
        let (start, end) = self.levels[level];
        &self.tree[start..end]
    }

    /// Finds the first chunk from `from` on that is short of a whole one by `most` units at most.
    fn next(&self, from: usize, most: u8) -> Option<usize> {
        let find = |level: usize, from: usize| {
            let group = self.level(level).get(from..)?;
            // The highest level is one group.
            let last = if level + 1 == self.depth { group.len() } else { FANOUT - from % FANOUT };
            let found = group[..last.min(group.len())].iter().position(|&short| short <= most)?;
            Some(from + found)
        };
        let (mut level, mut index) = (0, from);
        while level < self.depth {
            if let Some(found) = find(level, index) {
                index = found;
                while level > 0 {
                    level -= 1;
                    index = find(level, index * FANOUT)?;
                }
                return Some(index);
            }
            level += 1;
            index = index / FANOUT + 1;
        }
        None
    }

    /// Brings the tree up to date after a change of a chunk: entries side by side are looked at only where the least of
    /// them became more.
    fn update(&mut self, chunk: usize) {
        let (mut index, mut short) = (chunk, shortfall(self.used[chunk]));
        for level in 0..self.depth {
            let (start, end) = self.levels[level];
            let entries = &mut self.tree[start..end];
            let old = core::mem::replace(&mut entries[index], short);
            index /= FANOUT;
            if short > old {
                let group = index * FANOUT..((index + 1) * FANOUT).min(entries.len());
                if level + 1 < self.depth && self.tree[self.levels[level + 1].0 + index] != old {
                    return;
                }
                short = self.tree[start..end][group].iter().copied().min().unwrap_or(0);
            } else if short == old
                || level + 1 < self.depth && self.tree[self.levels[level + 1].0 + index] <= short
            {
                return;
            }
        }
    }

    /// Acquires `units` free units, the first at a multiple of `align`, a power of two, and returns
    /// that one.
    ///
    /// O(log c) for c chunks if the first chunk that has so many units free has them at a multiple;
    /// else each such chunk is tried. For more than a chunk each run of free chunks is tried.
    pub(crate) fn acquire(&mut self, units: u32, align: u32) -> Option<u32> {
        let (units, align) = (units.max(1), align.max(1));
        let chunks = units.div_ceil(CHUNK_UNITS) as usize;
        let align_chunks = align.div_ceil(CHUNK_UNITS) as usize;
        // Of a long run the first chunk may lack at its beginning what the last one need not have.
        let most =
            if chunks == 1 { CHUNK_UNITS - units } else { chunks as u32 * CHUNK_UNITS - units };
        let last = self.used.len().checked_sub(chunks)?;
        let mut from = 0;
        loop {
            let chunk = self.next(from, most as u8).filter(|&chunk| chunk <= last)?;
            let aligned =
                (self.base_chunk + chunk).next_multiple_of(align_chunks) - self.base_chunk;
            if aligned != chunk {
                from = aligned;
                continue;
            }
            let offset = if chunks == 1 {
                self.within(chunk, units, align).ok_or(chunk + 1)
            } else {
                self.across(chunk, units, align)
            };
            match offset {
                Ok(offset) => {
                    let first = chunk as u32 * CHUNK_UNITS + offset;
                    self.set(first, units, true);
                    return Some(first);
                }
                Err(next) => from = next,
            }
        }
    }

    /// Finds the place in one chunk at which `units` free units are.
    fn within(&self, chunk: usize, units: u32, align: u32) -> Option<u32> {
        // Bits at which a run of free units begins; each step doubles its length.
        let (mut starts, mut len) = (!self.used[chunk], 1);
        while len < units && starts != 0 {
            let step = len.min(units - len);
            starts &= starts >> step;
            len += step;
        }
        // Bits at multiples of the alignment.
        let mut aligned = 1_u32;
        let mut step = align;
        while step < CHUNK_UNITS {
            aligned |= aligned << step;
            step *= 2;
        }
        let at = (starts & aligned).trailing_zeros();
        (at < CHUNK_UNITS).then_some(at)
    }

    /// Finds the place in `chunk` at which a run can begin that goes on to the chunks behind it, and
    /// to no more of them than it needs; or else the first chunk in which one may begin.
    fn across(&self, chunk: usize, units: u32, align: u32) -> Result<u32, usize> {
        let chunks = units.div_ceil(CHUNK_UNITS);
        let offset = (CHUNK_UNITS - self.used[chunk].leading_zeros()).next_multiple_of(align);
        if offset >= CHUNK_UNITS || offset + units > chunks * CHUNK_UNITS {
            return Err(chunk + 1);
        }
        let (last, in_last) =
            (chunk + chunks as usize - 1, offset + units - (chunks - 1) * CHUNK_UNITS);
        let between = &self.used[chunk + 1..last];
        match between.iter().position(|&used| used != 0) {
            Some(used) => Err(chunk + 1 + used),
            None if self.used[last].trailing_zeros() < in_last => Err(last),
            None => Ok(offset),
        }
    }

    /// Adds `more` units behind the run that ends before `end`, and returns true if they were free.
    pub(crate) fn extend(&mut self, end: u32, more: u32) -> bool {
        let units = self.used.len() as u64 * u64::from(CHUNK_UNITS);
        let fits = u64::from(end) + u64::from(more) <= units;
        let free = fits && pieces(end, more).all(|(chunk, mask)| self.used[chunk] & mask == 0);
        if free {
            self.set(end, more, true);
        }
        free
    }

    /// Returns true if a unit of the chunk is in use.
    pub(crate) fn is_used(&self, chunk: usize) -> bool {
        self.used[chunk] != 0
    }

    /// Returns the chunk from which on no unit was ever used.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Releases units.
    pub(crate) fn release(&mut self, first: u32, units: u32) {
        self.set(first, units, false);
    }

    fn set(&mut self, first: u32, units: u32, used: bool) {
        for (chunk, mask) in pieces(first, units) {
            let word = &mut self.used[chunk];
            *word = if used { *word | mask } else { *word & !mask };
            self.end = self.end.max(chunk + 1);
            self.update(chunk);
        }
    }
}

/// Returns the chunks that a run lies in, each with its bits.
pub(crate) fn pieces(first: u32, units: u32) -> impl Iterator<Item = (usize, u32)> {
    let end = first + units;
    let mut at = first;
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (chunk, offset) = (at / CHUNK_UNITS, at % CHUNK_UNITS);
        let count = (CHUNK_UNITS - offset).min(end - at);
        at += count;
        Some((chunk as usize, mask(offset, count)))
    })
}

#[cfg(test)]
mod tests {
    use swath_arch::testing::Random;

    use super::*;

    const CHUNKS: usize = 7;
    const UNITS: usize = CHUNKS * CHUNK_UNITS as usize;

    fn new(chunks: usize, base_chunk: usize) -> Runs {
        Runs::new(vec![0; chunks].leak(), vec![0; Runs::tree_bytes(chunks)].leak(), base_chunk)
    }

    impl Runs {
        /// Every entry of the tree, computed anew.
        fn check(&self, place: &str) {
            for (chunk, &used) in self.used.iter().enumerate() {
                let free = (0..CHUNK_UNITS).map(|unit| used >> unit & 1 == 0).collect::<Vec<_>>();
                let runs = free.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[_]>::len);
                let short = CHUNK_UNITS as usize - runs.max().unwrap_or(0);
                assert_eq!(usize::from(self.level(0)[chunk]), short, "{place}, chunk {chunk}");
            }
            for level in 1..self.depth {
                let groups = self.level(level - 1).chunks(FANOUT).map(|group| group.iter().min());
                assert!(groups.eq(self.level(level).iter().map(Some)), "{place}, level {level}");
            }
        }
    }

    #[test]
    fn the_lowest_place_of_many_chunks_is_found() {
        for chunks in [1, 63, 64, 65, 4096, 4097, 70_000, 300_000] {
            let mut runs = new(chunks, 0);
            let all = chunks as u32 * CHUNK_UNITS;
            assert_eq!(runs.acquire(all, 1), Some(0), "{chunks}");
            assert_eq!(runs.acquire(1, 1), None);
            let mut random = Random::new(chunks as u64);
            let mut free: Vec<u32> =
                (0..60).map(|_| random.below(all.into()) as u32 / 2 * 2).collect();
            free.sort_unstable();
            free.dedup();
            free.iter().for_each(|&first| runs.release(first, 2));
            if chunks < 5000 {
                runs.check(&format!("{chunks} chunks"));
            }
            // A pair is never torn, since pairs begin at even units.
            for &first in &free {
                assert_eq!(runs.acquire(2, 2), Some(first), "{chunks}");
            }
            assert_eq!(runs.acquire(1, 1), None);
        }
    }

    /// Returns true if a run may lie at `first`: free, aligned, in as few chunks as can be.
    fn fits(used: &[bool], base_chunk: usize, first: usize, units: usize, align: usize) -> bool {
        let chunk = CHUNK_UNITS as usize;
        let end = first + units;
        end <= UNITS
            && (base_chunk * chunk + first).is_multiple_of(align)
            && (end - 1) / chunk - first / chunk < units.div_ceil(chunk)
            && used[first..end].iter().all(|&used| !used)
    }

    #[test]
    fn a_model_of_flags_agrees_call_by_call() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let base_chunk = random.below(9) as usize;
            let mut runs = new(CHUNKS, base_chunk);
            let mut used = vec![false; UNITS];
            let mut held: Vec<(u32, u32)> = Vec::new();
            for step in 0..400 {
                let place = format!("seed {seed}, step {step}");
                match random.below(5) {
                    0..=2 => {
                        let long = random.below(4) == 0;
                        let units = 1 + random.below(if long { 100 } else { 34 }) as usize;
                        let align = 1 << if random.below(3) == 0 { random.below(8) } else { 0 };
                        let at = (0..UNITS).find(|&at| fits(&used, base_chunk, at, units, align));
                        let got = runs.acquire(units as u32, align as u32);
                        assert_eq!(got.is_some(), at.is_some(), "{place}: {units} at {align}");
                        let Some(first) = got else { continue };
                        let from = first as usize;
                        assert!(fits(&used, base_chunk, from, units, align), "{place}: {first}");
                        used[from..from + units].fill(true);
                        held.push((first, units as u32));
                    }
                    3 if !held.is_empty() => {
                        let (first, units) =
                            held.swap_remove(random.below(held.len() as u64) as usize);
                        // A part of it, or all.
                        let keep =
                            if random.below(2) == 0 { 0 } else { random.below(units.into()) };
                        runs.release(first + keep as u32, units - keep as u32);
                        used[(first + keep as u32) as usize..(first + units) as usize].fill(false);
                        if keep > 0 {
                            held.push((first, keep as u32));
                        }
                    }
                    _ if !held.is_empty() => {
                        let index = random.below(held.len() as u64) as usize;
                        let (first, units) = held[index];
                        let more = 1 + random.below(40) as u32;
                        let (end, to) = ((first + units) as usize, (first + units + more) as usize);
                        let free = to <= UNITS && used[end..to].iter().all(|&used| !used);
                        assert_eq!(runs.extend(end as u32, more), free, "{place}");
                        if free {
                            used[end..to].fill(true);
                            held[index].1 += more;
                        }
                    }
                    _ => {}
                }
                runs.check(&place);
                for chunk in 0..CHUNKS {
                    let from = chunk * CHUNK_UNITS as usize;
                    let any = used[from..from + CHUNK_UNITS as usize].iter().any(|&used| used);
                    assert_eq!(runs.used[chunk] != 0, any, "{place}");
                }
            }
        }
    }
}
