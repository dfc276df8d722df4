//! The daemon beside a plain one, over banks whose owners do whatever owners may do.

extern crate std;

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;
use std::{assert_eq, format, vec};

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};

use crate::migrate::daemon::{
    AVOIDED_MAX, BankCandidate, Daemon, GiveUpCause, MigrationConfig, MigrationStatistics,
    MigrationStep, MovableBanks, Owners, Stuck,
};

const BANK: u64 = 16;
const BANKS: usize = 12;

/// What becomes of a block that is to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It moves, also in parts.
    Divisible,
    /// It moves as a whole only.
    Whole,
    Unmovable,
    Pinned,
    /// Its content cannot be copied.
    Failing,
    /// It is freed while a target is taken.
    Vanishing,
    /// It has no owner.
    Orphan,
    /// It says that it was split, and was not.
    Lying,
    /// Splitting it fails.
    Solid,
}

const KINDS: [Kind; 9] = [
    Kind::Divisible,
    Kind::Whole,
    Kind::Unmovable,
    Kind::Pinned,
    Kind::Failing,
    Kind::Vanishing,
    Kind::Orphan,
    Kind::Lying,
    Kind::Solid,
];

/// Blocks by their first frame, targets that are taken and nobody's yet among them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct World {
    blocks: BTreeMap<u64, (Order, Kind)>,
    isolated: [bool; BANKS],
    /// Banks that do not let themselves be isolated.
    stubborn: [bool; BANKS],
    /// No target has this order or a larger.
    limit: u32,
}

fn bank_of(frame: u64) -> usize {
    (frame / BANK) as usize
}

impl World {
    /// The block around a frame.
    fn around(&self, frame: u64) -> Option<(u64, Order, Kind)> {
        let (&start, &(order, kind)) = self.blocks.range(..=frame).next_back()?;
        (frame < start + order.frames()).then_some((start, order, kind))
    }

    fn used(&self, bank: usize) -> u64 {
        (0..BANK).filter(|i| self.around(bank as u64 * BANK + i).is_some()).count() as u64
    }

    fn is_free(&self, start: u64, order: Order) -> bool {
        (start..start + order.frames()).all(|frame| self.around(frame).is_none())
    }
}

impl MovableBanks for &RefCell<World> {
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        let world = self.borrow();
        let used = |&bank: &usize| world.used(bank);
        let may = |bank: &usize| !avoided(*bank) && !world.isolated[*bank] && used(bank) > 0;
        let bank = (0..BANKS).filter(may).min_by_key(used)?;
        let frames = Extent::new(Pfn::new(bank as u64 * BANK), BANK);
        Some(BankCandidate { bank, frames, occupied_frames: world.used(bank) })
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let world = self.borrow();
        let others = (0..BANKS).filter(|&other| other != bank && !world.isolated[other]);
        others.map(|other| BANK - world.used(other)).sum()
    }

    fn resting_banks(&self) -> usize {
        let world = self.borrow();
        (0..BANKS).filter(|&bank| world.used(bank) == 0 && !world.isolated[bank]).count()
    }

    fn isolate(&mut self, bank: usize) -> bool {
        let mut world = self.borrow_mut();
        let may = !world.stubborn[bank];
        assert!(!world.isolated[bank]);
        world.isolated[bank] = may;
        may
    }

    fn rejoin(&mut self, bank: usize) {
        let mut world = self.borrow_mut();
        assert!(world.isolated[bank], "bank {bank} is not isolated");
        world.isolated[bank] = false;
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        let world = self.borrow();
        let end = (bank as u64 + 1) * BANK;
        (from.raw()..end).find(|&frame| world.around(frame).is_some()).map(Pfn::new)
    }

    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        let mut world = self.borrow_mut();
        if order.k() >= world.limit {
            return None;
        }
        let starts = (0..BANK * BANKS as u64).step_by(order.frames() as usize);
        let mut free =
            starts.filter(|&start| !world.isolated[bank_of(start)] && world.is_free(start, order));
        let start = free.next()?;
        world.blocks.insert(start, (order, Kind::Orphan));
        Some(Pfn::new(start))
    }

    fn free(&mut self, start: Pfn, order: Order) {
        let freed = self.borrow_mut().blocks.remove(&start.raw());
        assert_eq!(freed.map(|(of, _)| of), Some(order), "{start}");
    }
}

impl Owners for &RefCell<World> {
    fn block(&self, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
        match self.borrow().around(frame.raw()) {
            Some((_, _, Kind::Unmovable)) => Err(Stuck::Unmovable),
            Some((_, _, Kind::Pinned)) => Err(Stuck::Pinned),
            Some((_, _, Kind::Orphan)) | None => Ok(None),
            Some((start, order, _)) => Ok(Some((Pfn::new(start), order))),
        }
    }

    fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> Result<bool, Stuck> {
        let mut world = self.borrow_mut();
        let (of, kind) = world.blocks[&from.raw()];
        assert_eq!((of, world.blocks[&to.raw()]), (order, (order, Kind::Orphan)));
        match kind {
            Kind::Failing => return Err(Stuck::Failed),
            Kind::Vanishing => {
                world.blocks.remove(&from.raw());
                return Ok(false);
            }
            _ => {}
        }
        world.blocks.insert(to.raw(), (order, kind));
        world.blocks.insert(from.raw(), (order, Kind::Orphan));
        Ok(true)
    }

    fn split(&mut self, start: Pfn, order: Order) -> Result<bool, Stuck> {
        let mut world = self.borrow_mut();
        let (of, kind) = world.blocks[&start.raw()];
        assert_eq!(of, order);
        match kind {
            Kind::Divisible => {
                let half = Order::new(order.k() as u8 - 1).unwrap();
                world.blocks.insert(start.raw(), (half, kind));
                world.blocks.insert(start.raw() + half.frames(), (half, kind));
                Ok(true)
            }
            Kind::Lying => Ok(true),
            Kind::Solid => Err(Stuck::Failed),
            _ => Ok(false),
        }
    }
}

/// The daemon in the plainest form: all that was noted is kept.
struct PlainDaemon {
    config: MigrationConfig,
    until_ns: u64,
    /// The bank, where to go on, and what was moved.
    moving: Option<(usize, u64, u64)>,
    /// Banks that failed, and until when each is left alone.
    failed: Vec<(usize, u64)>,
    /// When each step was, and how many banks rested.
    noted: Vec<(u64, usize)>,
    statistics: MigrationStatistics,
}

impl PlainDaemon {
    fn new(config: MigrationConfig) -> Self {
        let (failed, noted) = (vec![(usize::MAX, 0); AVOIDED_MAX], Vec::new());
        let statistics = MigrationStatistics::default();
        Self { config, until_ns: 0, moving: None, failed, noted, statistics }
    }

    fn wait(&mut self, now_ns: u64) {
        self.moving = None;
        self.until_ns = now_ns.saturating_add(self.config.interval_ns);
    }

    /// The end of the time in which nothing is begun with, by each bank that was opened.
    fn settled_ns(&self) -> u64 {
        let pairs = self.noted.windows(2).filter(|pair| pair[1].1 < pair[0].1);
        pairs.map(|pair| pair[1].0.saturating_add(self.config.settle_ns)).max().unwrap_or(0)
    }

    fn candidate(&self, now_ns: u64, mut banks: &RefCell<World>) -> Option<usize> {
        let avoided =
            |bank| self.failed.iter().any(|&(other, until)| other == bank && now_ns < until);
        let candidate = banks.candidate(&avoided)?;
        let BankCandidate { bank, frames, occupied_frames } = candidate;
        let permille = occupied_frames as f64 * 1000.0 / frames.count as f64;
        let needed = u128::from(occupied_frames) + u128::from(self.config.reserve_frames);
        let has_room = u128::from(banks.room_frames(bank)) >= needed;
        let may = permille <= f64::from(self.config.occupied_permille_max) && has_room;
        (may && banks.isolate(bank)).then_some(bank)
    }

    fn step(&mut self, now_ns: u64, budget: u64, mut world: &RefCell<World>) -> MigrationStep {
        if self.config.settle_ns > 0 {
            self.noted.push((now_ns, world.resting_banks()));
        }
        if self.moving.is_none() {
            let until_ns = self.until_ns.max(self.settled_ns());
            if now_ns < until_ns {
                return MigrationStep::Wait { until_ns };
            }
            self.statistics.scans += 1;
            let Some(bank) = self.candidate(now_ns, world) else {
                self.wait(now_ns);
                return MigrationStep::Wait { until_ns: self.until_ns };
            };
            self.moving = Some((bank, bank as u64 * BANK, 0));
        }
        let (bank, mut next, mut moved) = self.moving.unwrap();
        let (mut spent, mut now_moved) = (0, 0);
        while let Some(frame) = world.next_occupied(bank, Pfn::new(next)) {
            if spent >= budget {
                self.moving = Some((bank, next, moved));
                return MigrationStep::Moving { moved_frames: now_moved };
            }
            match self.block(frame, world) {
                Ok(Some((start, order))) => {
                    next = start.raw() + order.frames();
                    for count in [&mut spent, &mut now_moved, &mut moved] {
                        *count += order.frames();
                    }
                    self.statistics.moved_frames += order.frames();
                }
                Ok(None) => {
                    // What is gone is passed over, what changed is looked at again.
                    let is_there = world.borrow().around(frame.raw()).is_some();
                    next = if is_there { frame.raw() + 1 } else { next };
                    spent += 1;
                }
                Err(cause) => return self.give_up(now_ns, bank, frame, cause, world),
            }
        }
        if let Some(frame) = world.next_occupied(bank, Pfn::new(bank as u64 * BANK)) {
            return self.give_up(now_ns, bank, frame, GiveUpCause::InUse, world);
        }
        world.rejoin(bank);
        self.statistics.emptied_banks += 1;
        self.wait(now_ns);
        MigrationStep::Emptied { bank, moved_frames: moved }
    }

    fn give_up(
        &mut self,
        now_ns: u64,
        bank: usize,
        frame: Pfn,
        cause: GiveUpCause,
        mut world: &RefCell<World>,
    ) -> MigrationStep {
        world.rejoin(bank);
        self.wait(now_ns);
        // In the place of what it was, or of the one whose time is over first.
        let first = self.failed.iter().map(|failed| failed.1).min();
        let known = self.failed.iter().position(|failed| failed.0 == bank);
        let oldest = self.failed.iter().position(|failed| Some(failed.1) == first);
        self.failed[known.or(oldest).unwrap()] =
            (bank, now_ns.saturating_add(self.config.retry_ns));
        let statistics = &mut self.statistics;
        match cause {
            GiveUpCause::Stuck(Stuck::Unmovable) => statistics.unmovable += 1,
            GiveUpCause::Stuck(Stuck::Pinned) => statistics.pinned += 1,
            GiveUpCause::Stuck(Stuck::Failed) => statistics.failed += 1,
            GiveUpCause::NoTarget => statistics.no_target += 1,
            GiveUpCause::InUse => statistics.in_use += 1,
        }
        MigrationStep::GaveUp { bank, frame, cause }
    }

    /// Moves the block around a frame in use, or a part of it: what has moved, if it was there and is.
    fn block(
        &self,
        frame: Pfn,
        mut world: &RefCell<World>,
    ) -> Result<Option<(Pfn, Order)>, GiveUpCause> {
        let (start, order, kind) = world.borrow().around(frame.raw()).unwrap();
        match kind {
            Kind::Orphan => return Ok(None),
            Kind::Unmovable => return Err(Stuck::Unmovable.into()),
            Kind::Pinned => return Err(Stuck::Pinned.into()),
            _ => {}
        }
        let start = Pfn::new(start);
        if let Some(target) = world.allocate_target(order) {
            return match kind {
                Kind::Failing => {
                    world.free(target, order);
                    Err(Stuck::Failed.into())
                }
                Kind::Vanishing => {
                    world.free(target, order);
                    world.free(start, order);
                    Ok(None)
                }
                _ => {
                    world.free(start, order);
                    world.borrow_mut().blocks.insert(target.raw(), (order, kind));
                    Ok(Some((start, order)))
                }
            };
        }
        match kind {
            Kind::Solid if order > Order::BASE => Err(Stuck::Failed.into()),
            Kind::Divisible if order > Order::BASE => {
                world.split(start, order).unwrap();
                self.block(frame, world)
            }
            _ => Err(GiveUpCause::NoTarget),
        }
    }
}

fn random_world(random: &mut Random) -> World {
    let (isolated, stubborn) = ([false; BANKS], core::array::from_fn(|_| random.one_in(16)));
    let mut world = World { blocks: BTreeMap::new(), isolated, stubborn, limit: 9 };
    for bank in 0..BANKS as u64 {
        let most = random.below(12);
        // Some banks are as they should be.
        let kinds = KINDS.len() as u64 * random.below(2);
        for _ in 0..most {
            place(&mut world, random, bank, kinds);
        }
    }
    world
}

fn place(world: &mut World, random: &mut Random, bank: u64, kinds: u64) {
    let order = Order::known(random.below(4) as u8);
    let start = bank * BANK + (random.below(BANK) >> order.k() << order.k());
    let kind = match random.below(3) {
        0 => KINDS[random.below(kinds.max(1)) as usize],
        _ => Kind::Divisible,
    };
    if world.is_free(start, order) {
        world.blocks.insert(start, (order, kind));
    }
}

/// What owners do between two steps.
fn meanwhile(worlds: [&RefCell<World>; 2], random: &mut Random) {
    let [world, other] = worlds;
    {
        let mut world = world.borrow_mut();
        let frame = random.below(BANK * BANKS as u64);
        match random.below(8) {
            0..2 => {
                if let Some((start, ..)) = world.around(frame) {
                    world.blocks.remove(&start);
                }
            }
            2..5 if !world.isolated[bank_of(frame)] => {
                place(&mut world, random, frame / BANK, KINDS.len() as u64);
            }
            5 => {
                let kind = KINDS[random.index(KINDS.len())];
                if let Some((start, order, _)) = world.around(frame) {
                    world.blocks.insert(start, (order, kind));
                }
            }
            6 => world.limit = [0, 1, 2, 9, 9, 9][random.index(6)],
            _ => {}
        }
    }
    *other.borrow_mut() = world.borrow().clone();
}

fn same(daemon: &Daemon, plain: &PlainDaemon, [world, other]: [&RefCell<World>; 2]) {
    assert_eq!(*world.borrow(), *other.borrow());
    assert_eq!(daemon.statistics(), plain.statistics);
    assert_eq!(daemon.moving(), plain.moving.map(|(bank, ..)| bank));
    for (bank, &isolated) in world.borrow().isolated.iter().enumerate() {
        assert_eq!(isolated, daemon.moving() == Some(bank));
    }
}

fn act(
    daemon: &mut Daemon,
    plain: &mut PlainDaemon,
    worlds: [&RefCell<World>; 2],
    now_ns: u64,
    random: &mut Random,
) {
    let [mut world, mut other] = worlds;
    match random.below(16) {
        0..4 => {
            daemon.wake();
            plain.until_ns = 0;
        }
        4 => {
            daemon.stop(now_ns, &mut world);
            if let Some((bank, ..)) = plain.moving {
                other.rejoin(bank);
                plain.wait(now_ns);
            }
        }
        5 => {
            let bank = random.index(BANKS);
            let frames = Extent::new(Pfn::new(bank as u64 * BANK), BANK);
            let candidate = BankCandidate { bank, frames, occupied_frames: 0 };
            let begins = plain.moving.is_none();
            if begins {
                for world in worlds {
                    world.borrow_mut().isolated[bank] = true;
                }
                plain.moving = Some((bank, frames.start.raw(), 0));
            }
            assert_eq!(daemon.begin(candidate), begins);
        }
        _ => {
            let budget = [0, 1, 3, 8, u64::MAX][random.index(5)];
            let (mut banks, mut owners) = (world, world);
            let step = daemon.step(now_ns, budget, &mut banks, &mut owners);
            assert_eq!(step, plain.step(now_ns, budget, other));
        }
    }
}

#[test]
fn agrees_with_a_plain_daemon_step_by_step() {
    let mut sum = MigrationStatistics::default();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let config = MigrationConfig {
            interval_ns: [0, 10, u64::MAX][random.index(3)],
            retry_ns: [0, 40, 200, u64::MAX][random.index(4)],
            occupied_permille_max: [0, 125, 500, 900, 1000][random.index(5)],
            reserve_frames: [0, 3, 40, u64::MAX][random.index(4).min(random.index(4))],
            settle_ns: [0, 0, 1, 30, 100][random.index(5)],
        };
        let worlds = random_world(&mut random);
        let worlds = [RefCell::new(worlds.clone()), RefCell::new(worlds)];
        let worlds = worlds.each_ref();
        let (mut daemon, mut plain) = (Daemon::new(config), PlainDaemon::new(config));
        let mut now_ns = 0;
        for nth in 0..300 {
            now_ns += random.below(12);
            let place = format!("seed {seed}, step {nth}, {config:?}");
            let run = || {
                act(&mut daemon, &mut plain, worlds, now_ns, &mut random);
                same(&daemon, &plain, worlds);
                meanwhile(worlds, &mut random);
            };
            let ended = std::panic::catch_unwind(core::panic::AssertUnwindSafe(run));
            assert!(ended.is_ok(), "{place}");
        }
        let MigrationStatistics { unmovable, pinned, failed, no_target, in_use, .. } =
            plain.statistics;
        sum.emptied_banks += plain.statistics.emptied_banks;
        sum.unmovable += unmovable;
        sum.pinned += pinned;
        sum.failed += failed;
        sum.no_target += no_target;
        sum.in_use += in_use;
    }
    let counts =
        [sum.emptied_banks, sum.unmovable, sum.pinned, sum.failed, sum.no_target, sum.in_use];
    assert!(counts.iter().all(|&count| count > 50), "something hardly happened: {sum:?}");
}

/// Owners that say nothing of parts have none.
#[test]
fn owners_split_nothing_unless_they_say_so() {
    struct Simple;
    impl Owners for Simple {
        fn block(&self, _: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
            Ok(None)
        }
        fn relocate(&mut self, _: Pfn, _: Pfn, _: Order) -> Result<bool, Stuck> {
            Ok(false)
        }
    }
    assert_eq!(Simple.split(Pfn::new(0), Order::known(4)), Ok(false));
}
