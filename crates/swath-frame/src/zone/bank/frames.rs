//! The words of 64 frames each: which are free, which the bank has and, in the checked tier,
//! both once more.
//!
//! They stand together, in a **cell**. In the checked tier frames are handed out only if the two
//! words of free frames are the same, and taken back only if both words have them as the bank's. What changes
//! is changed in both, so that a bit that differs goes on to differ.

use crate::bits::store::{Keep, Kept};
use crate::zone::bank::blocks::{BankBlocks, CELL, PAIR};

/// The words of a cell that is to be changed.
pub(crate) struct CellFrames<'s> {
    /// The frames that are free.
    pub(crate) free: u64,
    cell: &'s mut [u64],
}

impl CellFrames<'_> {
    /// Makes these the free frames.
    #[inline(always)]
    pub(crate) fn put(self, free: u64) {
        match self.cell {
            [was, _, again, _] => (*was, *again) = (free, free),
            [was, ..] => *was = free,
            [] => {}
        }
    }
}

/// Takes all frames of cells, if they are wholly free; returns true if they were.
#[inline(always)]
fn take<const N: usize>(cells: [&mut [u64; CELL]; N]) -> bool {
    let all = cells.iter().fold(u64::MAX, |all, [free, _, again, _]| all & free & again);
    if all != u64::MAX {
        return false;
    }
    cells.into_iter().for_each(|[free, _, again, _]| (*free, *again) = (0, 0));
    true
}

/// As [`take`], four by four: nothing changes if one is not free.
#[inline(always)]
fn take_fours(fours: &mut [[[u64; CELL]; 4]]) -> bool {
    match fours.iter_mut().position(|four| !take(four.each_mut())) {
        Some(taken) => untake(fours, taken),
        None => true,
    }
}

/// Makes the frames of the first cells, which were taken, free again; returns false.
#[cold]
#[inline(never)]
fn untake(fours: &mut [[[u64; CELL]; 4]], taken: usize) -> bool {
    let cells = fours.iter_mut().take(taken).flatten();
    cells.for_each(|[free, _, again, _]| (*free, *again) = (u64::MAX, u64::MAX));
    false
}

impl BankBlocks {
    /// Words of a cell.
    pub(crate) const fn cell_words(checked: bool) -> usize {
        if checked { CELL } else { PAIR }
    }

    /// The number of the cell of a bank's 64 frames `unit`.
    #[inline(always)]
    pub(crate) fn cell(&self, bank: usize, unit: usize) -> usize {
        self.first_cell + bank * self.bank_cells + unit
    }

    /// The frames of a cell that are free, without those of an open word, and that the bank has.
    #[inline(always)]
    pub(crate) fn frames<S: Kept + ?Sized>(s: &S, cell: usize) -> [u64; 2] {
        if S::CHECKED {
            let found = s.words().as_chunks::<CELL>().0.get(cell);
            found.map_or([0; 2], |&[free, present, ..]| [free, present])
        } else {
            s.words().as_chunks::<PAIR>().0.get(cell).copied().unwrap_or_default()
        }
    }

    /// The free frames of a cell, open words included.
    pub(crate) fn free_in<S: Kept + ?Sized>(&self, s: &S, cell: usize) -> u64 {
        let open = self.open.iter().filter(|open| open.cell == cell);
        open.fold(Self::frames(s, cell)[0], |free, open| free | open.bits)
    }

    /// Looks at a cell of which frames are to be handed out; `None` if it is none to believe.
    #[inline(always)]
    pub(crate) fn claim<S: Keep + ?Sized>(
        words: &mut [u64],
        cell: usize,
    ) -> Option<CellFrames<'_>> {
        if S::CHECKED {
            let cell = words.as_chunks_mut::<CELL>().0.get_mut(cell)?;
            let [free, _, again, _] = *cell;
            return (free == again).then_some(CellFrames { free, cell });
        }
        let cell = words.as_chunks_mut::<PAIR>().0.get_mut(cell)?;
        Some(CellFrames { free: cell[0], cell })
    }

    /// Hands out all frames of 2^`k` cells, if they are wholly free.
    #[inline(always)]
    pub(crate) fn claim_all<S: Keep + ?Sized>(
        words: &mut [u64],
        first: usize,
        k: u32,
    ) -> Option<()> {
        let cells = first..first + (1 << k);
        if S::CHECKED {
            let cells = words.as_chunks_mut::<CELL>().0.get_mut(cells)?;
            let taken = match cells {
                [only] => take([only]),
                [one, other] => take([one, other]),
                _ => take_fours(cells.as_chunks_mut().0),
            };
            return taken.then_some(());
        }
        let cells = words.as_chunks_mut::<PAIR>().0.get_mut(cells)?;
        cells.iter_mut().for_each(|[free, _]| *free = 0);
        Some(())
    }

    /// Makes the frames `mask` of a cell free: the free ones before. `None`, and nothing changes,
    /// if one of them is free or not the bank's.
    #[inline(always)]
    pub(crate) fn give<S: Keep + ?Sized>(s: &mut S, cell: usize, mask: u64) -> Option<u64> {
        if S::CHECKED {
            let cells = s.words_mut().as_chunks_mut::<CELL>().0;
            let [free, present, again, present_again] = cells.get_mut(cell)?;
            let was = *free;
            if *present & *present_again & !was & mask != mask {
                return None;
            }
            *free = was | mask;
            *again ^= mask;
            return Some(was);
        }
        let [free, present] = s.words_mut().as_chunks_mut::<PAIR>().0.get_mut(cell)?;
        let was = *free;
        if was & mask != 0 || *present & mask != mask {
            return None;
        }
        *free = was | mask;
        Some(was)
    }

    /// Returns true if the frames `mask` of the cell of an open word are the bank's.
    pub(crate) fn are_present<S: Kept + ?Sized>(s: &S, cell: usize, mask: u64) -> bool {
        if S::CHECKED {
            let found = s.words().as_chunks::<CELL>().0.get(cell);
            return found.is_some_and(|&[free, present, again, present_again]| {
                present & present_again & !(free | again) & mask == mask
            });
        }
        Self::frames(s, cell)[1] & mask == mask
    }

    /// As [`give`](Self::give), all frames of cells that have none free.
    pub(crate) fn give_all<S: Keep + ?Sized>(s: &mut S, first: usize, count: usize) -> Option<()> {
        if S::CHECKED {
            let cells = s.words_mut().as_chunks_mut::<CELL>().0.get_mut(first..first + count)?;
            let all = |all: u64, &[free, present, again, present_again]: &[u64; CELL]| {
                all & !(free | again) & present & present_again
            };
            if cells.iter().fold(u64::MAX, all) != u64::MAX {
                return None;
            }
            cells.iter_mut().for_each(|[free, _, again, _]| (*free, *again) = (u64::MAX, u64::MAX));
            return Some(());
        }
        let cells = s.words_mut().as_chunks_mut::<PAIR>().0.get_mut(first..first + count)?;
        let all = |all: u64, &[free, present]: &[u64; PAIR]| all & !free & present;
        if cells.iter().fold(u64::MAX, all) != u64::MAX {
            return None;
        }
        cells.iter_mut().for_each(|[free, _]| *free = u64::MAX);
        Some(())
    }

    /// Files the free frames of a word that was open.
    #[inline]
    pub(crate) fn file_open<S: Keep + ?Sized>(s: &mut S, cell: usize, bits: u64) {
        if S::CHECKED {
            let cells = s.words_mut().as_chunks_mut::<CELL>().0;
            if let Some([free, _, again, _]) = cells.get_mut(cell) {
                *free |= bits;
                *again ^= bits;
            }
        } else if let Some([free, _]) = s.words_mut().as_chunks_mut::<PAIR>().0.get_mut(cell) {
            *free |= bits;
        }
    }

    /// Returns true if the words of a cell contradict each other.
    pub(crate) fn is_wrong<S: Kept + ?Sized>(s: &S, cell: usize) -> bool {
        let found = s.words().as_chunks::<CELL>().0.get(cell);
        S::CHECKED
            && found.is_none_or(|&[free, present, again, present_again]| {
                (free ^ again) | (present ^ present_again) | free & !present != 0
            })
    }

    /// The words of a cell of the checked tier.
    pub(crate) fn cell_of<S: Kept + ?Sized>(s: &S, cell: usize) -> [u64; CELL] {
        s.words().as_chunks::<CELL>().0.get(cell).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::store::{Guarded, Outvoted};

    type Words<'w> = Guarded<&'w mut [u64], Outvoted>;

    const CELLS: usize = 17;

    /// Cells that are wholly free, the second to the last; the bank has all frames.
    fn cells() -> [[u64; CELL]; CELLS] {
        let mut cells = [[u64::MAX; CELL]; CELLS];
        cells[0] = [0, u64::MAX, 0, u64::MAX];
        cells
    }

    #[test]
    fn all_of_some_cells_are_claimed_and_no_others() {
        for k in 0..5 {
            let mut words = cells();
            assert!(BankBlocks::claim_all::<Words<'_>>(words.as_flattened_mut(), 1, k).is_some());
            for (nth, cell) in words.iter().enumerate() {
                let free = if nth <= 1 << k { 0 } else { u64::MAX };
                assert_eq!(*cell, [free, u64::MAX, free, u64::MAX], "2^{k} cells: {nth}");
            }
            assert!(BankBlocks::claim_all::<Words<'_>>(words.as_flattened_mut(), 17, k).is_none());
        }
    }

    #[test]
    fn one_word_that_is_not_free_leaves_all_cells_as_they_are() {
        for k in 0..5 {
            for wrong in 1..=1 << k {
                for nth in [0, 2] {
                    let mut words = cells();
                    words[wrong][nth] ^= 1 << (7 * wrong % 64);
                    let before = words;
                    let flat = words.as_flattened_mut();
                    assert!(BankBlocks::claim_all::<Words<'_>>(flat, 1, k).is_none());
                    assert_eq!(words, before, "2^{k} cells: {wrong}");
                }
            }
        }
    }
}
