//! The free units of the arena, by chunk: one word of 32 bits for each.
//!
//! A run lies in as few chunks as its length allows, so that what is not longer than a chunk
//! never crosses into a second one: it is contiguous in physical memory if the chunk is one page.
//! A longer run may begin within a chunk, where that costs no further chunk, and what
//! it leaves of its last one serves others.
//!
//! This is a first fit and not the paper's global bitmap, whose segments are freed
//! whole: the pool releases any part of what it acquired.

use crate::source::chunk::CHUNK_UNITS;

/// Units in use.
pub(crate) struct Runs {
    /// For each chunk the units in use, the first one lowest.
    used: &'static mut [u32],
    /// The arena's first chunk, counted from address 0 in chunks.
    base_chunk: usize,
    /// No unit of the chunks before is free.
    lowest: usize,
    /// No unit from this chunk on was ever used.
    end: usize,
}

/// Returns `units` ones from bit `first` on, of one chunk.
fn mask(first: u32, units: u32) -> u32 {
    (u32::MAX >> (CHUNK_UNITS - units)) << first
}

impl Runs {
    /// All units are free: `used` is zeroed.
    pub(crate) fn new(used: &'static mut [u32], base_chunk: usize) -> Self {
        Self { used, base_chunk, lowest: 0, end: 0 }
    }

    /// Acquires `units` free units, the first at a multiple of `align`, a power of two, and returns
    /// that one.
    ///
    /// O(c) for c chunks used so far.
    pub(crate) fn acquire(&mut self, units: u32, align: u32) -> Option<u32> {
        let (units, align) = (units.max(1), align.max(1));
        let chunks = units.div_ceil(CHUNK_UNITS) as usize;
        let align_chunks = align.div_ceil(CHUNK_UNITS) as usize;
        while self.lowest < self.end && self.used[self.lowest] == u32::MAX {
            self.lowest += 1;
        }
        let last = self.used.len().checked_sub(chunks)?;
        // From `end` on all is free.
        let last = last.min((self.end + align_chunks).next_multiple_of(align_chunks));
        let mut chunk = self.lowest;
        while chunk <= last {
            let aligned = (self.base_chunk + chunk).next_multiple_of(align_chunks);
            chunk = aligned - self.base_chunk;
            if chunk > last {
                break;
            }
            let offset = if chunks == 1 {
                self.within(chunk, units, align)
            } else {
                self.across(chunk, units, align)
            };
            if let Some(offset) = offset {
                let first = chunk as u32 * CHUNK_UNITS + offset;
                self.set(first, units, true);
                return Some(first);
            }
            chunk += 1;
        }
        None
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
    /// to no more of them than it needs.
    fn across(&self, chunk: usize, units: u32, align: u32) -> Option<u32> {
        let chunks = units.div_ceil(CHUNK_UNITS);
        let offset = (CHUNK_UNITS - self.used[chunk].leading_zeros()).next_multiple_of(align);
        if offset >= CHUNK_UNITS || offset + units > chunks * CHUNK_UNITS {
            return None;
        }
        let (last, in_last) =
            (chunk + chunks as usize - 1, offset + units - (chunks - 1) * CHUNK_UNITS);
        let between = &self.used[chunk + 1..last];
        let free =
            between.iter().all(|&used| used == 0) && self.used[last].trailing_zeros() >= in_last;
        free.then_some(offset)
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
        self.lowest = self.lowest.min((first / CHUNK_UNITS) as usize);
    }

    fn set(&mut self, first: u32, units: u32, used: bool) {
        for (chunk, mask) in pieces(first, units) {
            let word = &mut self.used[chunk];
            *word = if used { *word | mask } else { *word & !mask };
            self.end = self.end.max(chunk + 1);
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
            let mut runs = Runs::new(vec![0; CHUNKS].leak(), base_chunk);
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
                for chunk in 0..CHUNKS {
                    let from = chunk * CHUNK_UNITS as usize;
                    let any = used[from..from + CHUNK_UNITS as usize].iter().any(|&used| used);
                    assert_eq!(runs.used[chunk] != 0, any, "{place}");
                }
            }
        }
    }
}
