//! Reservations of the checked tier of which one bit is not what it was: every bit of all words of a small
//! pool, in several states. The campaign of the crate's suite draws from larger ones.

extern crate std;

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::println;
use std::vec::Vec;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::buddy::BuddyConfig;
use crate::hardening::Checked;
use crate::reserve::PopulateError;
use crate::testing::reservations::{Pool, levels, pool};

const FIRST: u64 = 6;
const COUNT: u64 = 27;
const PAGES: u64 = 20;

/// The pool has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stopped;

/// A pool with what its users know.
#[derive(Clone)]
struct User {
    pool: Pool<Checked>,
    out: BTreeSet<u64>,
    pages: BTreeMap<(u64, u64), u64>,
    now: u64,
}

impl User {
    fn new(orders: &[u8], suborders: &[u8]) -> Self {
        let area = Extent::new(Pfn::new(FIRST), COUNT);
        let pool = pool(&[area], BuddyConfig::PBS_ARMV7, levels(orders, suborders));
        Self { pool, out: BTreeSet::new(), pages: BTreeMap::new(), now: 0 }
    }

    /// Notes frames that were given out.
    fn got(&mut self, block: Extent) {
        for frame in block.iter().map(Pfn::raw) {
            assert!((FIRST..FIRST + COUNT).contains(&frame), "{frame} is not of the memory");
            assert!(self.out.insert(frame), "{frame} is out twice");
        }
    }

    fn populate(&mut self, object: u64, page: u64) -> Result<(), Stopped> {
        match self.pool.populate(object, page, 0..PAGES, self.now) {
            Ok(populated) => {
                self.got(Extent::new(populated.frame, 1));
                self.pages.insert((object, page), populated.frame.raw());
                Ok(())
            }
            Err(PopulateError::Corrupt(_)) => Err(Stopped),
            Err(PopulateError::OutOfFrames | PopulateError::AlreadyPopulated { .. }) => Ok(()),
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&mut self, extent: Extent) -> Result<(), Stopped> {
        let is_out = extent.iter().all(|frame| self.out.contains(&frame.raw()));
        match self.pool.free(extent) {
            Ok(()) => {
                assert!(is_out, "{extent} was not out");
                extent.iter().for_each(|frame| assert!(self.out.remove(&frame.raw())));
                self.pages.retain(|_, frame| !extent.contains(Pfn::new(*frame)));
                Ok(())
            }
            Err(FrameFreeError::Corrupt(_)) => Err(Stopped),
            Err(error) => {
                assert!(!is_out, "{extent} is out: {error}");
                Ok(())
            }
        }
    }

    fn step(&mut self, random: &mut Random) -> Result<(), Stopped> {
        self.now += random.below(2);
        let any = self.out.iter().nth(random.index(self.out.len().max(1))).copied();
        match random.below(16) {
            0 => self.free(Extent::new(Pfn::new(random.below(FIRST + COUNT + 3)), 1)),
            1..5 => any.map_or(Ok(()), |frame| self.free(Extent::new(Pfn::new(frame), 1))),
            5 => any.map_or(Ok(()), |frame| {
                let is_out = |count: &u64| self.out.contains(&(frame + count));
                let count = (0..7).take_while(is_out).count();
                self.free(Extent::new(Pfn::new(frame), count as u64))
            }),
            6 => {
                let order = Order::known(random.below(4) as u8);
                match self.pool.allocate_aligned(order) {
                    Ok(block) => self.got(block),
                    Err(FrameAllocateError::Corrupt(_)) => return Err(Stopped),
                    Err(_) => {}
                }
                Ok(())
            }
            7 => {
                let mut blocks = Vec::new();
                let count = 1 + random.below(5);
                let taken = self.pool.allocate(count, &mut |block| blocks.push(block));
                blocks.into_iter().for_each(|block| self.got(block));
                if let Err(FrameAllocateError::Corrupt(_)) = taken { Err(Stopped) } else { Ok(()) }
            }
            8 => self.take(|pool| pool.allocate_block(4)),
            9 => self.take(|pool| pool.allocate_frame().map(|frame| Extent::new(frame, 1))),
            10 if random.one_in(3) => {
                let (object, first) = (random.below(3), random.below(PAGES));
                let end = if random.one_in(4) { u64::MAX } else { first + random.below(9) };
                self.pool.release(object, first..end);
                if self.pool.fault().is_some() {
                    Err(Stopped)
                } else {
                    self.released(object, first..end)
                }
            }
            _ => {
                let (object, page) = (random.below(3), random.below(PAGES));
                // Populated singly, or broken up: who did so knows.
                let is_known = self.pages.contains_key(&(object, page));
                match is_known && self.pool.frame_at(object, page).is_none() {
                    true => Ok(()),
                    false => self.populate(object, page),
                }
            }
        }
    }

    /// No page that was released lies in a reservation of its object any more.
    fn released(&self, object: u64, pages: Range<u64>) -> Result<(), Stopped> {
        for (&(of, page), &frame) in &self.pages {
            if of == object && pages.contains(&page) {
                let around = self.pool.reservation_of(Pfn::new(frame));
                let covers = around.is_some_and(|root| {
                    let place = root.start.raw().wrapping_add(page.wrapping_sub(root.index));
                    root.object == of && place == frame
                });
                assert!(!covers, "page {page} of {object} is still reserved");
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        take: impl FnOnce(&mut Pool<Checked>) -> Option<Extent>,
    ) -> Result<(), Stopped> {
        match take(&mut self.pool) {
            Some(block) => self.got(block),
            None if self.pool.fault().is_some() => return Err(Stopped),
            None => assert_eq!(self.out.len() as u64, COUNT, "a frame is lost"),
        }
        Ok(())
    }

    /// What has stopped serves nothing, and says why.
    fn is_stopped(&mut self) {
        let fault = self.pool.fault().expect("it has stopped");
        assert_eq!(self.pool.find_fault(), Err(fault));
        assert_eq!(self.pool.allocate_frame(), None);
        assert_eq!(self.pool.allocate_block(1), None);
        let refused = Err(FrameAllocateError::Corrupt(fault));
        assert_eq!(self.pool.allocate_aligned(Order::BASE), refused.map(|()| Extent::default()));
        assert_eq!(self.pool.allocate(1, &mut |_| panic!("it has stopped")), refused);
        for (object, page) in [(0, 0), (1, 9), (9, 1)] {
            let populated = self.pool.populate(object, page, 0..PAGES, self.now);
            assert_eq!(populated, Err(PopulateError::Corrupt(fault)));
        }
        let outside = self.pool.populate(0, PAGES, 0..PAGES, self.now);
        assert_eq!(outside, Err(PopulateError::Corrupt(fault)));
        for frame in [FIRST, FIRST + COUNT / 2, FIRST + COUNT] {
            let freed = self.pool.free(Extent::new(Pfn::new(frame), 1));
            assert_eq!(freed, Err(FrameFreeError::Corrupt(fault)));
        }
        self.pool.release(0, 0..PAGES);
        assert_eq!(self.pool.fault(), Some(fault));
    }

    /// Goes on with a wrong bit; true if it was told.
    fn goes_on(mut self, random: &mut Random) -> bool {
        for _ in 0..12 {
            if self.step(random).is_err() {
                self.is_stopped();
                return true;
            }
        }
        let found = self.pool.find_fault().is_err();
        while self.out.len() as u64 <= COUNT {
            match self.pool.allocate_frame() {
                Some(frame) => self.got(Extent::new(frame, 1)),
                None if self.pool.fault().is_some() => {
                    assert!(found, "the walk missed it");
                    self.is_stopped();
                    return true;
                }
                None => break,
            }
        }
        assert!(found || self.out.len() as u64 == COUNT, "frames are lost");
        found
    }
}

fn every_flip<const N: usize>(orders: &[u8], suborders: &[u8], seeds: [u64; N]) {
    let (mut told, mut gone) = (0, 0);
    for seed in seeds {
        let mut random = Random::new(seed);
        let mut user = User::new(orders, suborders);
        for _ in 0..10 + random.below(60) {
            assert_eq!(user.step(&mut random), Ok(()), "seed {seed}: wrong without a flip");
        }
        assert_eq!((user.pool.check(), user.pool.find_fault()), (Ok(()), Ok(())), "seed {seed}");
        for word in 0..user.pool.storage.len() {
            for bit in 0..64 {
                let mut user = user.clone();
                user.pool.storage[word] ^= 1 << bit;
                let run = std::panic::AssertUnwindSafe(|| user.goes_on(&mut random));
                let ended = std::panic::catch_unwind(run);
                assert!(ended.is_ok(), "seed {seed}, word {word}, bit {bit}");
                *(if ended.unwrap() { &mut told } else { &mut gone }) += 1;
            }
        }
    }
    println!("{told} told, {gone} gone");
    assert!(told > gone, "{told} told, {gone} gone");
}

#[test]
fn no_flip_of_one_level_is_believed() {
    every_flip(&[2], &[1], [1, 103]);
}

#[test]
fn no_flip_of_two_levels_is_believed() {
    every_flip(&[1, 3], &[], [8, 110]);
}

#[test]
fn no_flip_of_three_levels_is_believed() {
    every_flip(&[1, 2, 3], &[], [101]);
}
