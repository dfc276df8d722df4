//! The areas of a memory map as sealed records in an allocator's own words.
//!
//! Where holes count as allocated, as in the checked tier, they are told from
//! frames that are out by these records. A record is an area's start, its end and
//! a seal over both, so that no single word can be changed without being found.

use swath_arch::{Extent, Pfn};

use crate::hardening::{Table, WordFault};
use crate::map::MemoryMap;

const RECORD_WORDS: usize = 3;

/// The areas, in the words from `at` on.
///
/// Invariants: the records ascend; `solid` is the largest area, cut to whole words
/// of 64 frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    at: usize,
    count: usize,
    pub(crate) solid: Extent,
}

fn seal(start: u64, end: u64) -> u64 {
    !start ^ end.rotate_left(32)
}

impl Areas {
    pub(crate) const NONE: Self = Self { at: 0, count: 0, solid: Extent::new(Pfn::new(0), 0) };

    pub(crate) fn storage_words(map: &MemoryMap<'_>) -> u64 {
        (map.areas().len() * RECORD_WORDS) as u64
    }

    pub(crate) fn new(map: &MemoryMap<'_>, s: &mut [u64], at: usize) -> Self {
        let records = s[at..].chunks_exact_mut(RECORD_WORDS);
        for (area, record) in map.areas().iter().zip(records) {
            let (start, end) = (area.start.raw(), area.end().raw());
            record.copy_from_slice(&[start, end, seal(start, end)]);
        }
        let solid = map.areas().iter().map(|area| {
            let start = area.start.raw().next_multiple_of(64);
            let past = area.end().raw() & !63;
            Extent::new(Pfn::new(start), past.saturating_sub(start))
        });
        let solid = solid.max_by_key(|part| part.count).unwrap_or_default();
        Self { at, count: map.areas().len(), solid }
    }

    /// The area of a record.
    fn area(&self, s: &[u64], index: usize) -> Result<(u64, u64), WordFault> {
        let at = self.at + index * RECORD_WORDS;
        match s.get(at..at + RECORD_WORDS) {
            Some(&[start, end, given]) if seal(start, end) == given => Ok((start, end)),
            record => {
                let value = record.map_or(0, |record| record[0]);
                Err(WordFault { table: Table::Areas, word: at, value })
            }
        }
    }

    /// Finds the first of the frames `start..end` that is in no area. O(log a) for
    /// each area that they meet.
    ///
    /// # Errors
    /// The record that is not as it was written.
    pub(crate) fn first_foreign(
        &self,
        s: &[u64],
        mut start: u64,
        end: u64,
    ) -> Result<Option<u64>, WordFault> {
        while start < end {
            let (mut low, mut past) = (0, self.count);
            let next = loop {
                if low == past {
                    return Ok(Some(start));
                }
                let middle = usize::midpoint(low, past);
                let area = self.area(s, middle)?;
                if start < area.0 {
                    past = middle;
                } else if start >= area.1 {
                    low = middle + 1;
                } else {
                    break area.1;
                }
            };
            start = next;
        }
        Ok(None)
    }

    /// Visits the areas.
    ///
    /// # Errors
    /// The record that is not as it was written.
    pub(crate) fn each(&self, s: &[u64], visit: &mut dyn FnMut(u64, u64)) -> Result<(), WordFault> {
        (0..self.count).try_for_each(|index| {
            let (start, end) = self.area(s, index)?;
            visit(start, end);
            Ok(())
        })
    }
}
