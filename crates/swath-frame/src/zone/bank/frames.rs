//! The words of 64 frames each: which are free, which the bank has and, in the checked tier,
//! which are in use.
//!
//! They stand together, in a **cell**. A frame of the bank is free or in use, another is neither,
//! so in a right cell no bit is set in one or in three of the words. In the checked tier a cell is
//! looked at before one of its frames is handed out; what is freed there is set in one word and cleared in
//! the other, so that a bit that was changed goes on to differ.

use crate::bits::store::{Keep, Kept};
use crate::zone::bank::blocks::{BankBlocks, CELL, PAIR};

/// The words of a cell that is to be changed.
pub(crate) struct CellFrames<'s> {
    /// The frames that are free.
    pub(crate) free: u64,
    present: u64,
    cell: &'s mut [u64],
}

impl CellFrames<'_> {
    /// Makes these the free frames; the others of the bank are in use.
    #[inline(always)]
    pub(crate) fn put(self, free: u64) {
        match self.cell {
            [was, _, used, _] => (*was, *used) = (free, self.present ^ free),
            [was, ..] => *was = free,
            [] => {}
        }
    }
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
    pub(crate) fn claim<S: Keep + ?Sized>(s: &mut S, cell: usize) -> Option<CellFrames<'_>> {
        if S::CHECKED {
            let cell = s.words_mut().as_chunks_mut::<CELL>().0.get_mut(cell)?;
            let [free, present, used, _] = *cell;
            return (free ^ present ^ used == 0).then_some(CellFrames { free, present, cell });
        }
        let cell = s.words_mut().as_chunks_mut::<PAIR>().0.get_mut(cell)?;
        let [free, present] = *cell;
        Some(CellFrames { free, present, cell })
    }

    /// Hands out all frames of cells, if they are wholly free.
    pub(crate) fn claim_all<S: Keep + ?Sized>(s: &mut S, first: usize, count: usize) -> Option<()> {
        if S::CHECKED {
            let cells = s.words_mut().as_chunks_mut::<CELL>().0.get_mut(first..first + count)?;
            let all =
                |all: u64, &[free, present, used, _]: &[u64; CELL]| all & free & present & !used;
            if cells.iter().fold(u64::MAX, all) != u64::MAX {
                return None;
            }
            cells.iter_mut().for_each(|[free, _, used, _]| (*free, *used) = (0, u64::MAX));
            return Some(());
        }
        let cells = s.words_mut().as_chunks_mut::<PAIR>().0.get_mut(first..first + count)?;
        cells.iter_mut().for_each(|[free, _]| *free = 0);
        Some(())
    }

    /// Makes the frames `mask` of a cell free: the free ones before. `None`, and nothing changes,
    /// if one of them is free or not the bank's.
    #[inline(always)]
    pub(crate) fn give<S: Keep + ?Sized>(s: &mut S, cell: usize, mask: u64) -> Option<u64> {
        if S::CHECKED {
            let cells = s.words_mut().as_chunks_mut::<CELL>().0;
            let [free, present, used, _] = cells.get_mut(cell)?;
            let was = *free;
            if was & mask != 0 || *present & *used & mask != mask {
                return None;
            }
            (*free, *used) = (was | mask, *used ^ mask);
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
        let used = s.words().as_chunks::<CELL>().0.get(cell).map_or(0, |&[_, _, used, _]| used);
        Self::frames(s, cell)[1] & mask == mask && (!S::CHECKED || used & mask == mask)
    }

    /// As [`give`](Self::give), all frames of cells that have none free.
    pub(crate) fn give_all<S: Keep + ?Sized>(s: &mut S, first: usize, count: usize) -> Option<()> {
        if S::CHECKED {
            let cells = s.words_mut().as_chunks_mut::<CELL>().0.get_mut(first..first + count)?;
            let all =
                |all: u64, &[free, present, used, _]: &[u64; CELL]| all & !free & present & used;
            if cells.iter().fold(u64::MAX, all) != u64::MAX {
                return None;
            }
            cells.iter_mut().for_each(|[free, _, used, _]| (*free, *used) = (u64::MAX, 0));
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
            if let Some([free, _, used, _]) = s.words_mut().as_chunks_mut::<CELL>().0.get_mut(cell)
            {
                (*free, *used) = (*free | bits, *used ^ bits);
            }
        } else if let Some([free, _]) = s.words_mut().as_chunks_mut::<PAIR>().0.get_mut(cell) {
            *free |= bits;
        }
    }

    /// Returns true if the words of a cell contradict each other.
    pub(crate) fn is_wrong<S: Kept + ?Sized>(s: &S, cell: usize) -> bool {
        let found = s.words().as_chunks::<CELL>().0.get(cell);
        S::CHECKED && found.is_none_or(|&[free, present, used, _]| free ^ present ^ used != 0)
    }
}
