//! Two regions with a boundary that moves (Contiguitas: Zhao et al., ISCA 2023, the part of it
//! that is software): unmovable memory below, movable memory above.
//!
//! ```text
//!                 unmovable        boundary         movable
//!  bank       | 0 | 1 | 2 |          -->|     | 5 | 6 | 7 | 8 |
//!               served from 0 up                served from 8 down
//! ```
//!
//! Both regions fill from the ends of the zone, away from the boundary, so that it can move. It
//! moves by whole banks:
//!
//! - **up** when no bank of the unmovable region serves an unmovable request: past the lowest
//!   bank above it that does. What is movable in the banks that it passes stays until it is
//!   freed or migrated.
//! - **down** past banks that are wholly free. With hysteresis, when one becomes so: only if the
//!   region that is left keeps [`slack_frames`](BoundaryPlacement::new) free, or the next unmovable
//!   request would move it up again. Without, when no bank of the movable region serves a movable
//!   request.
//!
//! A movable request that still finds none borrows from the highest bank below the boundary that
//! serves, where that bank stays. Contiguitas judges by memory pressure and by smaller steps, and
//! its hardware moves unmovable pages, too; here a region is pressed when it cannot serve.
//!
//! Each choice is O(B) for B banks, as is moving the boundary.

use crate::bits::store::{Keep, Kept};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::open::Record;
use crate::zone::bank::placement::{ABSENT, KERNEL, POOLS, Pick, Placement, USER, note_movable};
use crate::zone::bank::ranges::BankPool;
use crate::zone::bank::scan::close_all;

/// The two regions; see the [module](self).
///
/// Invariants: `boundary` is at most the number of banks; a bank's note says its region.
#[derive(Clone, Copy, Debug)]
pub struct BoundaryPlacement {
    slack_frames: u64,
    /// The banks of the unmovable region: those below this number.
    boundary: usize,
}

impl BoundaryPlacement {
    /// A zone whose memory is all movable at first. When a bank becomes wholly free, the boundary
    /// moves down past it if `slack_frames` are free in the rest of the unmovable region.
    pub const fn new(slack_frames: u64) -> Self {
        Self { slack_frames, boundary: 0 }
    }

    /// Moves the boundary and notes the region of the banks that it passes.
    fn shift<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, to: usize) {
        let (passed, region) = match to >= self.boundary {
            true => (self.boundary..to, KERNEL),
            false => (to..self.boundary, USER),
        };
        for bank in passed {
            if b.frames_of(s, bank) > 0 {
                b.set_note(s, bank, region as u32);
            }
        }
        self.boundary = to;
    }

    /// The bank below the boundary if all of it could be movable memory's: wholly free, or a hole.
    fn top<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S) -> Option<usize> {
        let top = self.boundary.checked_sub(1)?;
        (!b.is_isolated(s, top) && b.is_whole(s, top)).then_some(top)
    }

    /// Moves the boundary down past banks that are wholly free, as long as the rest keeps its slack.
    fn give_way<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S) {
        while let Some(top) = self.top(b, s) {
            let rest = (0..top).filter(|&bank| !b.is_isolated(s, bank));
            if rest.map(|bank| u64::from(b.free_of(s, bank))).sum::<u64>() < self.slack_frames {
                return;
            }
            self.shift(b, s, top);
        }
    }
}

impl Placement for BoundaryPlacement {
    fn build(&mut self, b: &BankBlocks, s: &mut [u64], _at: usize) {
        self.boundary = 0;
        note_movable(b, s);
    }

    fn stop(&mut self) {
        self.boundary = 0;
    }

    fn choose<S: Keep + ?Sized>(
        &mut self,
        b: &mut BankBlocks,
        s: &mut S,
        order: u32,
        movable: bool,
    ) -> Option<(usize, Pick)> {
        if order > 0 {
            close_all(b, s);
        }
        let serves = |b: &BankBlocks, s: &S, bank: &usize| b.may_serve(s, *bank, order);
        let boundary = self.boundary;
        if !movable {
            let found = (0..boundary).find(|bank| serves(b, s, bank)).or_else(|| {
                let bank = (boundary..b.reach).find(|bank| serves(b, s, bank))?;
                self.shift(b, s, bank + 1);
                Some(bank)
            });
            return found.map(|bank| (bank, Pick::Open));
        }
        let above = |own: &Self, b: &BankBlocks, s: &S| {
            (own.boundary..b.reach).rev().find(|bank| serves(b, s, bank))
        };
        let mut found = above(self, b, s);
        if found.is_none() {
            close_all(b, s);
            while let Some(top) = self.top(b, s) {
                self.shift(b, s, top);
            }
            found = above(self, b, s);
        }
        let found = found.or_else(|| (0..self.boundary).rev().find(|bank| serves(b, s, bank)));
        found.map(|bank| (bank, Pick::Open))
    }

    /// The outermost bank may be another one by now.
    fn keeps(&self, _bank: usize, _movable: bool) -> bool {
        false
    }

    fn freed<S: Keep + ?Sized>(
        &mut self,
        b: &BankBlocks,
        s: &mut S,
        bank: usize,
        record: impl FnOnce(&S) -> Record,
        _frames: u32,
    ) {
        let record = record(s);
        if bank < self.boundary && record.is_whole(0) && !record.is_isolated() {
            self.give_way(b, s);
        }
    }

    fn rejoin<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize) {
        self.freed(b, s, bank, |s| b.known_record(s, bank), 0);
    }

    fn pool<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S, bank: usize) -> Option<BankPool> {
        POOLS[b.note(s, bank) as usize & 3]
    }

    fn check<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S) -> Result<(), &'static str> {
        if self.boundary > b.count {
            return Err("the boundary lies beyond the banks");
        }
        let wrong = |&bank: &usize| {
            let region = if bank < self.boundary { KERNEL } else { USER };
            let note = if b.frames_of(s, bank) == 0 { ABSENT } else { region };
            b.note(s, bank) != note as u32
        };
        match (0..b.count).find(wrong) {
            Some(_) => Err("a bank's region is not that of its side of the boundary"),
            None => Ok(()),
        }
    }
}
