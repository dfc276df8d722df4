//! The areas of a memory map as sealed records in an allocator's own words.
//!
//! Where holes count as allocated, as in the checked tier, they are told from
//! frames that are out by these records. A record is an area's start, its end and
//! a seal over both, so that no single word can be changed without being found.

use swath_arch::{Extent, Pfn};

use crate::hardening::{Table, WordFault};
use crate::hotplug::FrameHotplugError;
use crate::map::MemoryMap;

pub(crate) const RECORD_WORDS: usize = 3;

/// The areas, in the words from `at` on.
///
/// Invariants: the records ascend, and no two areas touch; `solid` is the largest area, cut to whole words
/// of 64 frames; `count <= room`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    at: usize,
    count: usize,
    /// Records that the words have room for.
    room: usize,
    pub(crate) solid: Extent,
}

fn seal(start: u64, end: u64) -> u64 {
    !start ^ end.rotate_left(32)
}

/// The frames of an area in whole words of 64.
fn whole_words(start: u64, end: u64) -> Extent {
    let start = start.next_multiple_of(64);
    Extent::new(Pfn::new(start), (end & !63).saturating_sub(start))
}

impl Areas {
    pub(crate) const NONE: Self =
        Self { at: 0, count: 0, room: 0, solid: Extent::new(Pfn::new(0), 0) };

    pub(crate) fn storage_words(map: &MemoryMap<'_>) -> u64 {
        (map.areas().len() * RECORD_WORDS) as u64
    }

    pub(crate) fn new(map: &MemoryMap<'_>, s: &mut [u64], at: usize) -> Self {
        let (count, room) = (map.areas().len(), (s.len() - at) / RECORD_WORDS);
        let mut areas = Self { at, count, room, ..Self::NONE };
        for (index, area) in map.areas().iter().enumerate() {
            areas.put(s, index, area.start.raw(), area.end().raw());
        }
        let chosen = areas.choose_solid(s);
        debug_assert!(chosen.is_ok(), "records that were written a moment ago");
        areas
    }

    /// Writes a record.
    fn put(&self, s: &mut [u64], index: usize, start: u64, end: u64) {
        let at = self.at + index * RECORD_WORDS;
        s[at..at + RECORD_WORDS].copy_from_slice(&[start, end, seal(start, end)]);
    }

    /// Moves the records from `from` on to `to`.
    fn shift(&mut self, s: &mut [u64], from: usize, to: usize) {
        let words = |index: usize| self.at + index * RECORD_WORDS;
        s.copy_within(words(from)..words(self.count), words(to));
        self.count = self.count + to - from;
    }

    /// Returns the number of areas that begin below a frame, if all records are sound.
    fn below(&self, s: &[u64], frame: u64) -> Result<usize, WordFault> {
        let mut below = 0;
        self.each(s, &mut |start, _| below += usize::from(start < frame))?;
        Ok(below)
    }

    /// Sets `solid` anew.
    fn choose_solid(&mut self, s: &[u64]) -> Result<(), WordFault> {
        let mut solid = Extent::default();
        self.each(s, &mut |start, end| {
            let part = whole_words(start, end);
            if part.count > solid.count {
                solid = part;
            }
        })?;
        self.solid = solid;
        Ok(())
    }

    /// Adds the frames `start..end`, joined with the areas that they touch. O(a).
    ///
    /// # Errors
    /// [`FrameHotplugError::Corrupt`] with a record that is not as it was written; a frame is in an area already, or
    /// there is no room.
    pub(crate) fn add(
        &mut self,
        s: &mut [u64],
        start: u64,
        end: u64,
    ) -> Result<(), FrameHotplugError> {
        let at = self.below(s, start)?;
        let before = at.checked_sub(1).map(|before| self.area(s, before)).transpose()?;
        let next = (at < self.count).then(|| self.area(s, at)).transpose()?;
        let shared = match (before, next) {
            (Some(before), _) if before.1 > start => Some(start),
            (_, Some(next)) if next.0 < end => Some(next.0),
            _ => None,
        };
        if let Some(frame) = shared {
            return Err(FrameHotplugError::Present { frame: Pfn::new(frame) });
        }
        let before = before.filter(|before| before.1 == start);
        match (before, next.filter(|next| next.0 == end)) {
            (Some(before), Some(next)) => {
                self.put(s, at - 1, before.0, next.1);
                self.shift(s, at + 1, at);
            }
            (Some(before), None) => self.put(s, at - 1, before.0, end),
            (None, Some(next)) => self.put(s, at, start, next.1),
            (None, None) if self.count == self.room => return Err(self.full()),
            (None, None) => {
                self.shift(s, at, at + 1);
                self.put(s, at, start, end);
            }
        }
        Ok(self.choose_solid(s)?)
    }

    /// Removes the frames `start..end`, all of one area. O(a).
    ///
    /// # Errors
    /// [`FrameHotplugError::Corrupt`] with a record that is not as it was written; they are not of one area, or
    /// what they leave of it is two areas and there is room for one.
    pub(crate) fn remove(
        &mut self,
        s: &mut [u64],
        start: u64,
        end: u64,
    ) -> Result<(), FrameHotplugError> {
        let absent = FrameHotplugError::Absent { frame: Pfn::new(start) };
        let Some(at) = self.below(s, start + 1)?.checked_sub(1) else { return Err(absent) };
        let (first, past) = self.area(s, at)?;
        if past < end {
            let frame = Pfn::new(past.max(start));
            return Err(FrameHotplugError::Absent { frame });
        }
        match (first < start, end < past) {
            (false, false) => self.shift(s, at + 1, at),
            (true, false) => self.put(s, at, first, start),
            (false, true) => self.put(s, at, end, past),
            (true, true) if self.count == self.room => return Err(self.full()),
            (true, true) => {
                self.shift(s, at, at + 1);
                self.put(s, at, first, start);
                self.put(s, at + 1, end, past);
            }
        }
        Ok(self.choose_solid(s)?)
    }

    /// The first broken invariant, if all records are sound, of areas that hold `total` frames.
    pub(crate) fn check(&self, s: &[u64], total: u64) -> Result<(), &'static str> {
        let (mut sum, mut past, mut apart) = (0, None, true);
        let mut copy = *self;
        let read = self.each(s, &mut |start, end| {
            apart &= start < end && past.is_none_or(|past| past < start);
            sum += end.saturating_sub(start);
            past = Some(end);
        });
        if read.is_err() || copy.choose_solid(s).is_err() {
            return Err("the record of an area is not as it was written");
        }
        if !apart || sum != total {
            return Err("the areas are not those of the map");
        }
        if self.solid.count != copy.solid.count && !self.solid.is_empty() {
            return Err("the largest area is another");
        }
        Ok(())
    }

    fn full(&self) -> FrameHotplugError {
        FrameHotplugError::TooManyAreas { areas: self.room }
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
