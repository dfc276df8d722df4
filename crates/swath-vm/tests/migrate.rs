//! The migration daemon over banks that are plain vectors: every frame is in
//! exactly one place after each step, whatever fails.

use swath_arch::{Extent, Order, Pfn};
use swath_vm::migrate::daemon::{
    BankCandidate, Daemon, GiveUpCause, MigrationConfig, MigrationStep, MovableBanks, Owners, Stuck,
};

const BANK: u64 = 8;

/// Who uses a frame, if anyone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    /// Block `id` begins here and has this order.
    Head(u32, u8),
    Tail,
}

/// Memory, its allocator and its owners in one: frames, isolated banks, and
/// the content of each block.
#[derive(Clone, Debug)]
struct World {
    frames: Vec<Use>,
    isolated: Vec<bool>,
    offline: Vec<bool>,
    content: Vec<u32>,
    kernel: Vec<u32>,
    pinned: Vec<u32>,
    /// The relocation that fails, counted down.
    fault: Option<u32>,
}

impl World {
    fn new(banks: usize) -> Self {
        Self {
            frames: vec![Use::Free; banks * BANK as usize],
            isolated: vec![false; banks],
            offline: vec![false; banks],
            content: vec![0; banks * BANK as usize],
            kernel: Vec::new(),
            pinned: Vec::new(),
            fault: None,
        }
    }

    fn bank(frame: usize) -> usize {
        frame / BANK as usize
    }

    fn place(&mut self, at: usize, id: u32, order: u8) {
        for i in 0..1 << order {
            assert_eq!(self.frames[at + i], Use::Free);
            self.frames[at + i] = if i == 0 { Use::Head(id, order) } else { Use::Tail };
            self.content[at + i] = id * 100 + i as u32;
        }
    }

    fn used(&self, bank: usize) -> u64 {
        let from = bank * BANK as usize;
        self.frames[from..from + BANK as usize].iter().filter(|u| **u != Use::Free).count() as u64
    }

    /// Every block is somewhere once, whole, with its content.
    fn check(&self, ids: &[(u32, u8)]) {
        for &(id, order) in ids {
            let head = Use::Head(id, order);
            let at: Vec<usize> =
                (0..self.frames.len()).filter(|&i| self.frames[i] == head).collect();
            assert_eq!(at.len(), 1, "block {id} stands at {at:?}");
            for i in 0..1 << order {
                assert_eq!(self.content[at[0] + i], id * 100 + i as u32, "content of {id}");
                assert!(i == 0 || self.frames[at[0] + i] == Use::Tail);
            }
        }
        let used = self.frames.iter().filter(|u| **u != Use::Free).count();
        assert_eq!(used, ids.iter().map(|&(_, order)| 1_usize << order).sum::<usize>());
    }
}

impl MovableBanks for World {
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        (0..self.isolated.len())
            .filter(|&bank| !avoided(bank) && !self.isolated[bank] && self.used(bank) > 0)
            .map(|bank| BankCandidate {
                bank,
                frames: Extent::new(Pfn::new(bank as u64 * BANK), BANK),
                occupied_frames: self.used(bank),
            })
            .min_by_key(|candidate| candidate.occupied_frames)
    }

    fn room_frames(&self, bank: usize) -> u64 {
        (0..self.isolated.len())
            .filter(|&other| other != bank && !self.isolated[other] && !self.offline[other])
            .map(|other| BANK - self.used(other))
            .sum()
    }

    fn resting_banks(&self) -> usize {
        self.offline.iter().filter(|&&is_offline| is_offline).count()
    }

    fn isolate(&mut self, bank: usize) -> bool {
        !std::mem::replace(&mut self.isolated[bank], true)
    }

    fn rejoin(&mut self, bank: usize) {
        assert!(std::mem::replace(&mut self.isolated[bank], false));
        self.offline[bank] = self.used(bank) == 0;
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        let end = (bank as u64 + 1) * BANK;
        (from.raw()..end).find(|&i| self.frames[i as usize] != Use::Free).map(Pfn::new)
    }

    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        let count = order.frames() as usize;
        let at = (0..self.frames.len()).step_by(count).find(|&at| {
            let bank = Self::bank(at);
            !self.isolated[bank]
                && !self.offline[bank]
                && self.frames[at..at + count].iter().all(|u| *u == Use::Free)
        })?;
        // Taken, but nobody's yet.
        self.frames[at..at + count].fill(Use::Tail);
        Some(Pfn::new(at as u64))
    }

    fn free(&mut self, start: Pfn, order: Order) {
        let at = start.raw() as usize;
        for i in at..at + order.frames() as usize {
            assert_ne!(self.frames[i], Use::Free, "frame {i} given back twice");
            self.frames[i] = Use::Free;
        }
    }
}

/// The owners' view of a world that the daemon borrows twice.
struct Shared(std::rc::Rc<std::cell::RefCell<World>>);

impl MovableBanks for Shared {
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        self.0.borrow().candidate(avoided)
    }
    fn room_frames(&self, bank: usize) -> u64 {
        self.0.borrow().room_frames(bank)
    }
    fn resting_banks(&self) -> usize {
        self.0.borrow().resting_banks()
    }
    fn isolate(&mut self, bank: usize) -> bool {
        self.0.borrow_mut().isolate(bank)
    }
    fn rejoin(&mut self, bank: usize) {
        self.0.borrow_mut().rejoin(bank);
    }
    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        self.0.borrow().next_occupied(bank, from)
    }
    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        self.0.borrow_mut().allocate_target(order)
    }
    fn free(&mut self, start: Pfn, order: Order) {
        self.0.borrow_mut().free(start, order);
    }
}

impl Owners for Shared {
    fn block(&self, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
        let world = self.0.borrow();
        let head = (0..=frame.raw() as usize)
            .rev()
            .find_map(|i| match world.frames[i] {
                Use::Head(id, order) => Some((i, id, order)),
                _ => None,
            })
            .unwrap();
        if world.kernel.contains(&head.1) {
            return Err(Stuck::Unmovable);
        }
        if world.pinned.contains(&head.1) {
            return Err(Stuck::Pinned);
        }
        Ok(Some((Pfn::new(head.0 as u64), Order::new(head.2).unwrap())))
    }

    fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> Result<bool, Stuck> {
        let mut world = self.0.borrow_mut();
        if let Some(left) = &mut world.fault {
            if *left == 0 {
                world.fault = None;
                return Err(Stuck::Failed);
            }
            *left -= 1;
        }
        for i in 0..order.frames() as usize {
            let (from, to) = (from.raw() as usize + i, to.raw() as usize + i);
            world.frames[to] = world.frames[from];
            world.frames[from] = Use::Tail;
            world.content[to] = world.content[from];
            world.content[from] = u32::MAX;
        }
        Ok(true)
    }
}

const EAGER: MigrationConfig = MigrationConfig {
    interval_ns: 10,
    retry_ns: 100,
    occupied_permille_max: 900,
    reserve_frames: 0,
    settle_ns: 0,
};

/// Three banks: one nearly empty, one half full, one nearly full.
fn three_banks() -> (World, Vec<(u32, u8)>) {
    let mut world = World::new(3);
    let mut ids = Vec::new();
    for (id, (at, order)) in [(1, 0), (4, 1), (8, 2), (17, 0), (18, 1), (20, 0)].iter().enumerate()
    {
        world.place(*at, id as u32 + 1, *order);
        ids.push((id as u32 + 1, *order));
    }
    (world, ids)
}

#[test]
fn the_emptiest_bank_goes_offline() {
    let (world, ids) = three_banks();
    let world = std::rc::Rc::new(std::cell::RefCell::new(world));
    let mut daemon = Daemon::new(EAGER);
    let (mut banks, mut owners) = (Shared(world.clone()), Shared(world.clone()));
    assert_eq!(
        daemon.step(0, 1, &mut banks, &mut owners),
        MigrationStep::Moving { moved_frames: 1 },
        "the budget holds"
    );
    assert_eq!(daemon.moving(), Some(0));
    world.borrow().check(&ids);
    let done = daemon.step(1, 100, &mut banks, &mut owners);
    assert_eq!(done, MigrationStep::Emptied { bank: 0, moved_frames: 3 });
    assert!(world.borrow().offline[0]);
    world.borrow().check(&ids);
    // Nothing before the interval is over, but for a wake.
    assert_eq!(daemon.step(2, 100, &mut banks, &mut owners), MigrationStep::Wait { until_ns: 11 });
    daemon.wake();
    assert!(matches!(
        daemon.step(2, 100, &mut banks, &mut owners),
        MigrationStep::Wait { until_ns: 12 }
    ));
    assert_eq!(daemon.statistics().scans, 2, "it has looked, and found no room");
    assert_eq!(daemon.statistics().moved_frames, 3);
}

/// A bank is emptied and opened again: with hysteresis none is begun with before some time is over,
/// whoever wakes the daemon; one that is being emptied goes on.
#[test]
fn hysteresis_leaves_all_alone_after_a_bank_was_opened() {
    let emptied_at = |settle_ns| {
        let (world, mut ids) = three_banks();
        let world = std::rc::Rc::new(std::cell::RefCell::new(world));
        let mut daemon = Daemon::new(MigrationConfig { settle_ns, ..EAGER });
        let (mut banks, mut owners) = (Shared(world.clone()), Shared(world.clone()));
        // Nothing was opened before the first step.
        let step = daemon.step(0, 100, &mut banks, &mut owners);
        assert_eq!(step, MigrationStep::Emptied { bank: 0, moved_frames: 3 });
        daemon.step(1, 100, &mut banks, &mut owners);
        world.borrow_mut().offline[0] = false;
        world.borrow_mut().place(2, 51, 0);
        ids.push((51, 0));
        (20..1000).find(|&now_ns| {
            daemon.wake();
            let step = daemon.step(now_ns, 0, &mut banks, &mut owners);
            world.borrow().check(&ids);
            if settle_ns > 0 && step != (MigrationStep::Moving { moved_frames: 0 }) {
                assert_eq!(step, MigrationStep::Wait { until_ns: 20 + settle_ns });
                return false;
            }
            // Another is opened while this one is moving.
            world.borrow_mut().offline.fill(false);
            let step = daemon.step(now_ns, 100, &mut banks, &mut owners);
            step == MigrationStep::Emptied { bank: 0, moved_frames: 1 }
        })
    };
    assert_eq!(emptied_at(0), Some(20));
    assert_eq!(emptied_at(1), Some(21));
    assert_eq!(emptied_at(80), Some(100));
}

/// Each block in turn is unmovable, pinned, or fails to move: the bank comes
/// back, nothing is lost, and another bank is tried before it.
#[test]
fn a_failure_at_any_block_puts_all_back() {
    for cause in [Stuck::Unmovable, Stuck::Pinned, Stuck::Failed] {
        for which in 0..2 {
            let (mut world, ids) = three_banks();
            match cause {
                Stuck::Unmovable => world.kernel.push(which + 1),
                Stuck::Pinned => world.pinned.push(which + 1),
                Stuck::Failed => world.fault = Some(which),
            }
            let world = std::rc::Rc::new(std::cell::RefCell::new(world));
            let mut daemon = Daemon::new(EAGER);
            let (mut banks, mut owners) = (Shared(world.clone()), Shared(world.clone()));
            let step = daemon.step(0, 100, &mut banks, &mut owners);
            let MigrationStep::GaveUp { bank: 0, cause: GiveUpCause::Stuck(found), .. } = step
            else {
                panic!("{step:?}");
            };
            assert_eq!(found, cause);
            world.borrow().check(&ids);
            assert_eq!(world.borrow().isolated, [false; 3]);
            assert_eq!(daemon.moving(), None);
            // Left alone until the retry is due.
            daemon.wake();
            let _ = daemon.step(50, 100, &mut banks, &mut owners);
            assert!(daemon.moving().is_none_or(|bank| bank != 0));
            world.borrow().check(&ids);
        }
    }
}

#[test]
fn stopping_half_way_gives_the_bank_back() {
    let (world, ids) = three_banks();
    let world = std::rc::Rc::new(std::cell::RefCell::new(world));
    let mut daemon = Daemon::new(EAGER);
    let (mut banks, mut owners) = (Shared(world.clone()), Shared(world.clone()));
    let _ = daemon.step(0, 1, &mut banks, &mut owners);
    daemon.stop(1, &mut banks);
    assert_eq!(world.borrow().isolated, [false; 3]);
    world.borrow().check(&ids);
    daemon.stop(2, &mut banks);
}

/// A block of two frames has no room although two frames are free.
#[test]
fn no_target_gives_the_bank_back() {
    let mut world = World::new(2);
    world.place(0, 1, 1);
    for (id, at) in [(2, 8), (3, 10), (4, 12), (5, 14)] {
        world.place(at, id, 0);
    }
    let ids = [(1, 1), (2, 0), (3, 0), (4, 0), (5, 0)];
    let world = std::rc::Rc::new(std::cell::RefCell::new(world));
    let mut daemon = Daemon::new(EAGER);
    let (mut banks, mut owners) = (Shared(world.clone()), Shared(world.clone()));
    let step = daemon.step(0, 100, &mut banks, &mut owners);
    assert_eq!(
        step,
        MigrationStep::GaveUp { bank: 0, frame: Pfn::new(0), cause: GiveUpCause::NoTarget }
    );
    world.borrow().check(&ids);
}
