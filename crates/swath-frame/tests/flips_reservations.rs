//! Single bits flipped in the words of reservations, in the campaign of
//! [`flips_segments`](crate::flips_segments).
//!
//! Times and the order of queues have no second word: a flip in them makes another reservation the next
//! to be broken up, and counts as gone.

use std::collections::BTreeMap;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::reserve::{PopulateError, ReservationLevels, Reservations};
use swath_frame::{
    BuddyConfig, Checked, FrameAllocateError, FrameAllocator, FrameFreeError, PageBuddy, WordFault,
};

use crate::flips::{AREAS, Words, map};
use crate::flips_segments::{Subject, Trouble, campaign};

type Pool = Reservations<PageBuddy<Vec<u64>>, Words, Checked>;

/// Objects, and pages of each.
const OBJECTS: u64 = 6;
const PAGES: u64 = 700;

/// Reservations, the frames that are out, and the frame of each page that has one.
#[derive(Clone)]
struct Reserved {
    pool: Pool,
    out: Vec<bool>,
    mine: Vec<bool>,
    pages: BTreeMap<(u64, u64), u64>,
    singles: Vec<Extent>,
    now: u64,
}

impl Reserved {
    fn mark(&mut self, extent: Extent, out: bool) -> Result<(), Trouble> {
        for frame in extent.iter() {
            let at = frame.raw() as usize;
            if self.mine.get(at) != Some(&true) {
                return Err(Trouble::Broken("outside"));
            }
            if std::mem::replace(&mut self.out[at], out) && out {
                return Err(Trouble::Broken("twice"));
            }
        }
        Ok(())
    }

    fn took(&mut self, block: Extent) -> Result<(), Trouble> {
        self.singles.push(block);
        self.mark(block, true)
    }

    fn give(&mut self, extent: Extent, rightly: bool) -> Result<(), Trouble> {
        match self.pool.free(extent) {
            Ok(()) => self.mark(extent, false),
            Err(FrameFreeError::Corrupt(fault)) => Err(Trouble::Corrupt(fault)),
            Err(_) if rightly => Err(Trouble::Broken("a free is refused")),
            Err(_) => Ok(()),
        }
    }

    fn populate(&mut self, object: u64, page: u64) -> Result<(), Trouble> {
        match self.pool.populate(object, page, 0..PAGES, self.now) {
            Ok(populated) => {
                self.pages.insert((object, page), populated.frame.raw());
                self.mark(Extent::new(populated.frame, 1), true)
            }
            Err(PopulateError::Corrupt(fault)) => Err(Trouble::Corrupt(fault)),
            Err(_) => Ok(()),
        }
    }

    fn allocate(&mut self, random: &mut Random) -> Result<(), Trouble> {
        let refused = |error| match error {
            FrameAllocateError::Corrupt(fault) => Err(Trouble::Corrupt(fault)),
            _ => Ok(()),
        };
        match random.below(3) {
            0 => match self.pool.allocate_block(1 + random.below(60)) {
                Some(block) => self.took(block),
                None => self.pool.fault().map_or(Ok(()), |fault| Err(Trouble::Corrupt(fault))),
            },
            1 => match self.pool.allocate_aligned(Order::known(random.below(8) as u8)) {
                Ok(block) => self.took(block),
                Err(error) => refused(error),
            },
            _ => {
                let mut blocks = Vec::new();
                let count = 1 + random.below(90);
                let done = self.pool.allocate(count, &mut |block| blocks.push(block));
                blocks.into_iter().try_for_each(|block| self.took(block))?;
                done.or_else(refused)
            }
        }
    }
}

impl Subject for Reserved {
    fn step(&mut self, random: &mut Random) -> Result<(), Trouble> {
        self.now += random.below(2);
        match random.below(16) {
            // A free that names anything not out: in no case is it served.
            0 => {
                let extent = Extent::new(Pfn::new(random.below(self.out.len() as u64 + 9)), 1);
                match self.out.get(extent.start.raw() as usize) {
                    Some(true) => Ok(()),
                    _ => self.give(extent, false),
                }
            }
            1..4 if !self.singles.is_empty() => {
                let block = self.singles.swap_remove(random.index(self.singles.len()));
                self.give(block, true)
            }
            4..7 if !self.pages.is_empty() => {
                let nth = random.index(self.pages.len());
                let (&page, &frame) = self.pages.iter().nth(nth).expect("there are so many");
                self.pages.remove(&page);
                self.give(Extent::new(Pfn::new(frame), 1), true)
            }
            7 => self.allocate(random),
            8 if random.below(8) == 0 => {
                let first = random.below(PAGES);
                self.pool.release(random.below(OBJECTS), first..first + random.below(300));
                self.pool.fault().map_or(Ok(()), |fault| Err(Trouble::Corrupt(fault)))
            }
            // Near together, so that reservations fill; some pages have a frame already.
            _ => {
                let (object, near) = (random.below(OBJECTS), random.below(PAGES / 64) * 64);
                let page = near + random.below(64);
                (0..4).try_for_each(|more| {
                    let page = (page + more).min(PAGES - 1);
                    match self.pages.contains_key(&(object, page))
                        && self.pool.frame_at(object, page).is_none()
                    {
                        // Populated singly, or broken up: the caller knows.
                        true => Ok(()),
                        false => self.populate(object, page),
                    }
                })
            }
        }
    }

    fn drain(&mut self) -> Result<(), Trouble> {
        while let Some(frame) = self.pool.allocate_frame() {
            self.took(Extent::new(frame, 1))?;
        }
        if let Some(fault) = self.pool.fault() {
            return Err(Trouble::Corrupt(fault));
        }
        let lost = self.pool.find_fault().is_ok() && self.out != self.mine;
        if lost { Err(Trouble::Broken("frames are lost")) } else { Ok(()) }
    }

    fn serves(&mut self) -> bool {
        let out = self.out.iter().position(|&out| out).unwrap_or(0) as u64;
        self.pool.allocate_frame().is_some()
            || self.pool.free(Extent::new(Pfn::new(out), 1)).is_ok()
            || self.pool.populate(99, 0, 0..PAGES, 0).is_ok()
    }

    fn find(&self) -> Result<(), WordFault> {
        self.pool.find_fault()
    }
}

fn reservations(name: &str, levels: ReservationLevels) {
    campaign(name, || {
        let mut areas = [Extent::default(); AREAS.len()];
        let map = map(&mut areas);
        let config = BuddyConfig::PBS_ARMV7;
        let storage = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, config)];
        let buddy = PageBuddy::<_>::new(&map, config, storage).expect("as many as needed");
        let words = Words::new(Pool::storage_words(&map, levels));
        let pool = Pool::new(&map, levels, buddy, words.clone()).expect("as many as needed");
        let mut mine = vec![false; map.span().end().raw() as usize];
        for frame in map.areas().iter().flat_map(|area| area.iter()) {
            mine[frame.raw() as usize] = true;
        }
        let (out, pages, singles) = (vec![false; mine.len()], BTreeMap::new(), Vec::new());
        (Reserved { pool, out, mine, pages, singles, now: 0 }, words)
    });
}

#[test]
fn no_flip_breaks_reservations() {
    let order = Order::known;
    let one = ReservationLevels::new(&[order(6)], &[order(4)]).expect("ascending");
    let two = ReservationLevels::new(&[order(5), order(8)], &[order(3)]).expect("ascending");
    reservations("reservations, one level", one);
    reservations("reservations, two levels", two);
}
