//! Single bits flipped in the words of reservations, in the campaign of [`flips`](crate::flips).
//!
//! Times and the order of queues have no second word: a flip in them makes another reservation the next
//! to be broken up, and counts as gone.

use std::collections::BTreeMap;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::reserve::{PopulateError, ReservationLevels, Reservations};
use swath_frame::{
    BuddyConfig, ByteRange, Checked, FrameAllocator, MemoryMap, PageBuddy, WordFault,
};

use crate::flips::{MAP, Outcome, Subject, Words, campaign};
use crate::flips_frames::{Calls, Frames};

type Pool = Reservations<PageBuddy<Vec<u64>>, Words, Checked>;

/// Objects, and pages of each.
const OBJECTS: u64 = 6;
const PAGES: u64 = 700;

/// Reservations, and the frame of each page that has one: the other frames that are out are the
/// model's blocks.
#[derive(Clone)]
struct Reserved {
    frames: Frames<Pool>,
    pages: BTreeMap<(u64, u64), u64>,
    now: u64,
}

impl Reserved {
    fn populate(&mut self, object: u64, page: u64) -> Result<(), Outcome> {
        match self.frames.allocator.populate(object, page, 0..PAGES, self.now) {
            Ok(populated) => {
                self.pages.insert((object, page), populated.frame.raw());
                self.frames.model.mark(Extent::new(populated.frame, 1), true)
            }
            Err(PopulateError::Corrupt(fault)) => Err(Outcome::Reported(fault)),
            Err(_) => Ok(()),
        }
    }
}

impl Subject for Reserved {
    fn step(&mut self, random: &mut Random) -> Result<(), Outcome> {
        self.now += random.below(2);
        let blocks = &mut self.frames.model.blocks;
        match random.below(16) {
            // A free that names anything not out: in no case is it served.
            0 => {
                let any = random.below(self.frames.model.out.len() as u64 + 9);
                let any = Extent::new(Pfn::new(any), 1);
                if self.frames.model.is_out(any) { Ok(()) } else { self.frames.give(any) }
            }
            1..4 if !blocks.is_empty() => {
                let block = blocks.swap_remove(random.index(blocks.len()));
                self.frames.give(block)
            }
            4..7 if !self.pages.is_empty() => {
                let nth = random.index(self.pages.len());
                let (&page, &frame) = self.pages.iter().nth(nth).expect("there are so many");
                self.pages.remove(&page);
                self.frames.give(Extent::new(Pfn::new(frame), 1))
            }
            7 => self.frames.take(random),
            8 if random.below(8) == 0 => {
                let (object, first) = (random.below(OBJECTS), random.below(PAGES));
                self.frames.allocator.release(object, first..first + random.below(300));
                self.frames.told()
            }
            // Near together, so that reservations fill; some pages have a frame already.
            _ => {
                let (object, near) = (random.below(OBJECTS), random.below(PAGES / 64) * 64);
                let page = near + random.below(64);
                (0..4).try_for_each(|more| {
                    let page = (page + more).min(PAGES - 1);
                    match self.pages.contains_key(&(object, page))
                        && self.frames.allocator.frame_at(object, page).is_none()
                    {
                        // Populated singly, or broken up: the caller knows.
                        true => Ok(()),
                        false => self.populate(object, page),
                    }
                })
            }
        }
    }

    fn drain(&mut self) -> Result<bool, Outcome> {
        self.frames.drain()
    }

    fn serves(&mut self) -> bool {
        self.frames.serves() || self.frames.allocator.populate(99, 0, 0..PAGES, 0).is_ok()
    }

    fn find(&self) -> Result<(), WordFault> {
        self.frames.find()
    }
}

fn reservations(name: &str, levels: ReservationLevels) {
    campaign(name, || {
        let config = BuddyConfig::PBS_ARMV7;
        let storage = vec![0; PageBuddy::<Vec<u64>>::storage_words(&MAP, config)];
        let buddy = PageBuddy::<_>::new(&MAP, config, storage).expect("as many as needed");
        let words = Words::new(Pool::storage_words(&MAP, levels));
        let pool = Pool::new(&MAP, levels, buddy, words.clone()).expect("as many as needed");
        let frames = Frames::new(pool, Calls::new(Pool::find_fault));
        (Reserved { frames, pages: BTreeMap::new(), now: 0 }, words)
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

/// The bit of a table's entry that makes the lowest level the next: where the entry of the larger range
/// would be looked for behind it, the search takes it for that one.
#[test]
fn an_entry_that_has_another_level_leads_to_no_slot_of_it() {
    const FRAMES: Extent = Extent::new(Pfn::new(0), 16);
    const LEVEL: u32 = 40;
    let order = Order::known;
    let levels = ReservationLevels::new(&[order(2), order(4)], &[]).expect("ascending");
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(FRAMES)], &mut areas).expect("one area");
    let config = BuddyConfig::PBS_ARMV7;
    let len = Pool::storage_words(&map, levels);
    for (object, word) in (0..200).flat_map(|object| (0..len).map(move |word| (object, word))) {
        let storage = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, config)];
        let buddy = PageBuddy::<_>::new(&map, config, storage).expect("as many as needed");
        let words = Words::new(len);
        let mut pool = Pool::new(&map, levels, buddy, words.clone()).expect("as many as needed");
        // There is room for the smaller level alone.
        let first = pool.populate(object, 0, 0..4, 0).expect("all frames are free").frame;
        words.flip(word, LEVEL);
        let single = pool.allocate_frame();
        if let Ok(second) = pool.populate(object, 1, 0..16, 1) {
            assert!(FRAMES.contains(second.frame), "object {object}, word {word}");
            assert!(second.frame != first && Some(second.frame) != single, "object {object}");
        }
    }
}
