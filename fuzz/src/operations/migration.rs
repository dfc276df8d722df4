//! The migration daemon over banks of a zone, with the relocation of pages that two spaces map,
//! while memory fails, targets are missing and frames are pinned; the hardware's walker and TLBs
//! are the judges of the mappings, and every frame's content of the copies.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use swath_arch::testing::Random;
use swath_arch::{Attributes, Extent, Format, Order, Pfn, PhysAddr, Vpn};
use swath_hw::{Geometry, Mmu, TranslationFault, WalkOrder};
use swath_vm::migrate::{
    BankCandidate, Daemon, GiveUpCause, Held, Holders, MigrationConfig, MigrationStep,
    MovableBanks, Relocator, Stuck,
};
use swath_vm::{
    AddressSpace, Flush, PageAccess, Pmap, PmapError, ReverseMap, Site, Sizes, SpaceId, Status,
};

use super::bus::{Bus, Frames, with_bus};
use super::memory::{GARBAGE, STEPS, STEPS_MAX};

/// Frames of a bank, and banks.
const BANK: u64 = 16;
const BANKS: usize = 4;
const DATA: Extent = Extent::new(Pfn::new(0x40), BANK * BANKS as u64);
/// Frames of the tables, right behind the banks'.
const TABLES: Extent = Extent::new(Pfn::new(0x40 + BANK * BANKS as u64), 32);
/// The first page of the window, which has as many pages as there are frames.
const FIRST: u64 = 0x4_0000;

/// What a frame is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    Kernel,
    /// The user's page of this number, in a block.
    User {
        tag: u64,
        start: u64,
        order: Order,
        pinned: bool,
    },
}

/// The kernel's knowledge of frames, which the daemon changes.
struct World {
    uses: Vec<Use>,
    isolated: [bool; BANKS],
    /// Requests for a target until the one that finds none; 0 for none.
    no_target_in: Cell<u64>,
}

impl World {
    fn of(&self, frame: u64) -> Use {
        self.uses[(frame - DATA.start.raw()) as usize]
    }

    fn bank(frame: u64) -> usize {
        ((frame - DATA.start.raw()) / BANK) as usize
    }

    fn bank_extent(bank: usize) -> Extent {
        Extent::new(Pfn::new(DATA.start.raw() + bank as u64 * BANK), BANK)
    }

    fn set(&mut self, start: u64, order: Order, with: impl Fn(u64) -> Use) {
        for frame in start..start + order.frames() {
            self.uses[(frame - DATA.start.raw()) as usize] = with(frame);
        }
    }

    fn used(&self, bank: usize) -> u64 {
        let is_used = |frame: &Pfn| self.of(frame.raw()) != Use::Free;
        Self::bank_extent(bank).iter().filter(is_used).count() as u64
    }

    /// Finds a free block outside of isolated banks.
    fn free_block(&self, order: Order) -> Option<u64> {
        DATA.iter().map(Pfn::raw).find(|&start| {
            start.is_multiple_of(order.frames())
                && start + order.frames() <= DATA.end().raw()
                && !self.isolated[Self::bank(start)]
                && (start..start + order.frames()).all(|frame| self.of(frame) == Use::Free)
        })
    }

    /// The frame of each of the user's pages.
    fn places(&self) -> BTreeMap<u64, u64> {
        let mut places = BTreeMap::new();
        for frame in DATA.iter().map(Pfn::raw) {
            if let Use::User { tag, .. } = self.of(frame) {
                assert_eq!(places.insert(tag, frame), None, "page {tag} is in two places");
            }
        }
        places
    }
}

/// The banks that the daemon sees.
struct Banks<'w>(&'w RefCell<World>);

impl MovableBanks for Banks<'_> {
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        let world = self.0.borrow();
        (0..BANKS)
            .filter(|&bank| !avoided(bank) && !world.isolated[bank] && world.used(bank) > 0)
            .map(|bank| BankCandidate {
                bank,
                frames: World::bank_extent(bank),
                occupied_frames: world.used(bank),
            })
            .min_by_key(|candidate| candidate.occupied_frames)
    }

    fn room_frames(&self, bank: usize) -> u64 {
        let world = self.0.borrow();
        let others = (0..BANKS).filter(|&other| other != bank && !world.isolated[other]);
        others.map(|other| BANK - world.used(other)).sum()
    }

    fn resting_banks(&self) -> usize {
        let world = self.0.borrow();
        (0..BANKS).filter(|&bank| !world.isolated[bank] && world.used(bank) == 0).count()
    }

    fn isolate(&mut self, bank: usize) -> bool {
        !std::mem::replace(&mut self.0.borrow_mut().isolated[bank], true)
    }

    fn rejoin(&mut self, bank: usize) {
        assert!(std::mem::replace(&mut self.0.borrow_mut().isolated[bank], false));
    }

    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        let world = self.0.borrow();
        let mut frames = World::bank_extent(bank).iter();
        frames.find(|&frame| frame >= from && world.of(frame.raw()) != Use::Free)
    }

    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        let mut world = self.0.borrow_mut();
        let left = world.no_target_in.get();
        world.no_target_in.set(left.saturating_sub(1));
        let start = world.free_block(order).filter(|_| left != 1)?;
        world.set(start, order, |_| Use::Kernel);
        Some(Pfn::new(start))
    }

    fn free(&mut self, start: Pfn, order: Order) {
        let mut world = self.0.borrow_mut();
        for frame in start.raw()..start.raw() + order.frames() {
            assert_eq!(world.of(frame), Use::Kernel, "{frame:#x} is freed and not taken");
        }
        world.set(start.raw(), order, |_| Use::Free);
    }
}

/// The kernel's table of frames.
struct Table<'w>(&'w RefCell<World>);

impl Holders for Table<'_> {
    fn held(&self, frame: Pfn) -> Held {
        let world = self.0.borrow();
        match world.of(frame.raw()) {
            Use::Free => Held::Free,
            Use::Kernel => Held::Unmovable,
            Use::User { start, order, .. } => {
                let pinned = |frame| matches!(world.of(frame), Use::User { pinned: true, .. });
                if (start..start + order.frames()).any(pinned) {
                    return Held::Pinned;
                }
                Held::Movable { start: Pfn::new(start), order }
            }
        }
    }

    fn moved(&mut self, from: Pfn, to: Pfn, order: Order) {
        let mut world = self.0.borrow_mut();
        let (from, to) = (from.raw(), to.raw());
        for i in 0..order.frames() {
            let Use::User { tag, start, order, pinned } = world.of(from + i) else {
                panic!("{:#x} moves and is not the user's", from + i)
            };
            let start = start - from + to;
            world.set(to + i, Order::BASE, |_| Use::User { tag, start, order, pinned });
            // Nobody's, until the daemon gives it back.
            world.set(from + i, Order::BASE, |_| Use::Kernel);
        }
    }

    fn split(&mut self, start: Pfn, order: Order) -> bool {
        let mut world = self.0.borrow_mut();
        for frame in start.raw()..start.raw() + order.frames() {
            let Use::User { tag, pinned, .. } = world.of(frame) else { return false };
            let alone = Use::User { tag, start: frame, order: Order::BASE, pinned };
            world.set(frame, Order::BASE, |_| alone);
        }
        order > Order::BASE
    }
}

type Space<'m> = AddressSpace<&'m Bus<'m>, &'m Frames, &'m Frames>;
type Reached<'b, 'm> = (&'b mut [Space<'m>], &'b mut dyn FnMut(SpaceId, Flush));

struct Bench<'m> {
    bus: &'m Bus<'m>,
    tables: &'m Frames,
    world: &'m RefCell<World>,
    spaces: Vec<Space<'m>>,
    pmap: Pmap<Vec<u64>>,
    mmus: RefCell<Vec<Mmu>>,
    daemon: Daemon,
    /// The user's page behind each page of each space.
    pages: BTreeMap<(u32, u64), u64>,
    /// Pages of spaces that the operation was about.
    touched: Vec<(u32, u64)>,
    tags: u64,
    random: Random,
}

const EAGER: MigrationConfig = MigrationConfig {
    interval_ns: 3,
    retry_ns: 20,
    // Also full ones, for only such a one holds a superpage.
    occupied_permille_max: 1000,
    reserve_frames: 0,
    settle_ns: 9,
};

/// Draws a format, and lets programs work while the daemon empties banks. After each operation its
/// own pages are translated, and the tables' frames counted; after a step of the daemon, which may
/// have moved or mended any, all pages that are mapped, and the contents of all frames. Pages that
/// are not mapped, contents, and the invariants of spaces, tables and the reverse map are looked at
/// after 1, 2, 4... operations and at the end.
pub fn run(bytes: &[u8]) {
    with_bus(Extent::new(DATA.start, DATA.count + TABLES.count), |bus| drive(bus, bytes));
}

fn drive(bus: &Bus<'_>, bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let format = Format::ALL[random.index(Format::ALL.len())];
    let sizes = Sizes::all(format);
    let tables = Frames::new(TABLES);
    let uses = vec![Use::Free; DATA.count as usize];
    let world = World { uses, isolated: [false; BANKS], no_target_in: Cell::new(0) };
    let world = RefCell::new(world);
    let make = |_| AddressSpace::with_superpages(format, sizes, bus, &tables, &tables);
    let spaces: Vec<_> = (0..2).map(|space| make(space).expect("room for a root")).collect();
    let mmu = |space: &Space<'_>| {
        Mmu::new(space.regime(), Geometry::default(), WalkOrder::default()).expect("a good regime")
    };
    let mmus = RefCell::new(spaces.iter().map(mmu).collect());
    let status = if random.one_in(2) { Status::InTable } else { Status::InReverseMap };
    let words = ReverseMap::words_needed(DATA, sizes, status, 200).expect("a small map");
    let reverse =
        ReverseMap::new(DATA, sizes, status, vec![GARBAGE; words]).expect("words as needed");
    let mut bench = Bench {
        bus,
        tables: &tables,
        world: &world,
        spaces,
        pmap: Pmap::new(reverse),
        mmus,
        daemon: Daemon::new(EAGER),
        pages: BTreeMap::new(),
        touched: Vec::new(),
        tags: 0,
        random,
    };
    for now in 0..STEPS_MAX as u64 {
        if bench.random.is_spent() {
            break;
        }
        bench.touched.clear();
        match bench.random.below(8) {
            0..=2 => bench.allocate(),
            3 => bench.free(),
            4 => bench.share(),
            5 => bench.pin(),
            _ => bench.migrate(now),
        }
        bench.check_touched();
        if STEPS.compares_all(now as usize + 1) {
            bench.check();
        }
    }
    bench.check();
}

/// The number that stands in a word of the user's page.
fn content(tag: u64, word: u64) -> u64 {
    Random::new(tag << 16 | word).word()
}

/// Words of a page that are written and compared.
const WORDS: [u64; 4] = [0, 1, 300, 511];

fn word(frame: u64, word: u64) -> PhysAddr {
    PhysAddr::new((frame << 12) + 8 * word)
}

impl<'m> Bench<'m> {
    fn with<R>(
        &mut self,
        act: impl FnOnce(&mut Pmap<Vec<u64>>, &mut Reached<'_, 'm>, &mut Daemon) -> R,
    ) -> R {
        let mmus = &self.mmus;
        let mut invalidate = |id: SpaceId, flush: Flush| {
            mmus.borrow_mut()[id.0 as usize].invalidate_range(flush.range);
        };
        let spaces = &mut (&mut self.spaces[..], &mut invalidate as &mut dyn FnMut(_, _));
        act(&mut self.pmap, spaces, &mut self.daemon)
    }

    /// A block for the user, of which the page cache keeps some, or for the kernel.
    fn allocate(&mut self) {
        let order = Order::known([0, 0, 0, 1, 2, 4][self.random.index(6)]);
        let Some(start) = self.world.borrow().free_block(order) else { return };
        if self.random.one_in(16) {
            return self.world.borrow_mut().set(start, order, |_| Use::Kernel);
        }
        let first = self.tags;
        self.tags += order.frames();
        let of = |frame| Use::User { tag: first + frame - start, start, order, pinned: false };
        self.world.borrow_mut().set(start, order, of);
        for frame in start..start + order.frames() {
            for at in WORDS {
                let value = content(first + frame - start, at);
                self.bus.poke(word(frame, at), value);
            }
        }
        if !self.random.one_in(4) {
            self.map(start, order);
        }
    }

    fn map(&mut self, start: u64, order: Order) {
        let space = self.random.below(2) as u32;
        let page = FIRST + (self.random.below(DATA.count) & !(order.frames() - 1));
        let access = [PageAccess::Read, PageAccess::Write][self.random.index(2)];
        for i in 0..order.frames() {
            let key = (space, page + i);
            self.touched.push(key);
            let site = Site { space: SpaceId(space), page: Vpn::new(key.1) };
            let frame = Pfn::new(start + i);
            let entered = self.with(|pmap, spaces, _| {
                pmap.enter(spaces, site, frame, Attributes::USER_DATA, access, Some(order))
            });
            match entered {
                Ok(_) => {
                    let Use::User { tag, .. } = self.world.borrow().of(frame.raw()) else {
                        panic!("{frame} is not the user's")
                    };
                    assert_eq!(self.pages.insert(key, tag), None);
                }
                Err(PmapError::OutOfEntries | PmapError::Map(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// One of the user's frames.
    fn user(&mut self) -> Option<(u64, Order)> {
        let nth = self.random.below(DATA.count);
        let world = self.world.borrow();
        let frames = (0..DATA.count).map(|i| DATA.start.raw() + (nth + i) % DATA.count);
        frames.map(|frame| world.of(frame)).find_map(|of| match of {
            Use::User { start, order, .. } => Some((start, order)),
            _ => None,
        })
    }

    fn share(&mut self) {
        if let Some((start, order)) = self.user() {
            self.map(start, order);
        }
    }

    fn pin(&mut self) {
        let Some((start, _)) = self.user() else { return };
        let mut world = self.world.borrow_mut();
        if let Use::User { tag, start, order, pinned } = world.of(start) {
            world.set(start, Order::BASE, |_| Use::User { tag, start, order, pinned: !pinned });
        }
    }

    fn free(&mut self) {
        let Some((start, order)) = self.user() else { return };
        for frame in start..start + order.frames() {
            self.with(|pmap, spaces, _| pmap.page_out(spaces, Pfn::new(frame)))
                .expect("memory answers");
            self.with(|pmap, spaces, _| pmap.clean(spaces, Pfn::new(frame)))
                .expect("memory answers");
        }
        let mut world = self.world.borrow_mut();
        world.set(start, order, |_| Use::Free);
        let places = world.places();
        let touched = &mut self.touched;
        self.pages.retain(|&page, tag| {
            let stays = places.contains_key(tag);
            if !stays {
                touched.push(page);
            }
            stays
        });
    }

    fn migrate(&mut self, now: u64) {
        let budget = 1 + self.random.below(20);
        if self.random.one_in(16) {
            self.daemon.stop(now, &mut Banks(self.world));
            return;
        }
        if self.random.one_in(3) {
            self.daemon.wake();
        }
        let far = |random: &mut Random| 1 + random.below(3000);
        match self.random.below(6) {
            0 => self.bus.read.set(far(&mut self.random)),
            1 => self.bus.write.set(far(&mut self.random)),
            2 => self.world.borrow().no_target_in.set(1 + self.random.below(3)),
            _ => {}
        }
        let (world, bus) = (self.world, self.bus);
        let mut holders = Table(world);
        let step = self.with(|pmap, spaces, daemon| {
            let mut owners = Relocator { pmap, spaces, holders: &mut holders, memory: bus };
            daemon.step(now, budget, &mut Banks(world), &mut owners)
        });
        self.bus.read.set(0);
        self.bus.write.set(0);
        world.borrow().no_target_in.set(0);
        let moving = self.daemon.moving();
        let isolated: Vec<usize> = (0..BANKS).filter(|&b| world.borrow().isolated[b]).collect();
        assert_eq!(isolated, moving.into_iter().collect::<Vec<_>>(), "{step:?}");
        match step {
            MigrationStep::Emptied { bank, .. } => assert_eq!(world.borrow().used(bank), 0),
            MigrationStep::GaveUp {
                frame, cause: GiveUpCause::Stuck(Stuck::Unmovable), ..
            } => {
                assert_eq!(world.borrow().of(frame.raw()), Use::Kernel);
            }
            MigrationStep::GaveUp { cause: GiveUpCause::InUse, .. } => {
                panic!("a frame without an owner")
            }
            _ => {}
        }
        if !matches!(step, MigrationStep::Wait { .. }) {
            self.touched.extend(self.pages.keys());
            self.contents();
        }
    }

    /// Every page is in one place with its content; the places.
    fn contents(&self) -> BTreeMap<u64, u64> {
        let places = self.world.borrow().places();
        for (&tag, &frame) in &places {
            for at in WORDS {
                let found = self.bus.peek(word(frame, at));
                assert_eq!(found, content(tag, at), "word {at} of page {tag} in {frame:#x}");
            }
        }
        places
    }

    /// The page leads to where it is mapped.
    fn translates(&self, (id, page): (u32, u64), places: &BTreeMap<u64, u64>) {
        let known = self.pages.get(&(id, page)).map(|tag| places[tag]);
        let mmu = &mut self.mmus.borrow_mut()[id as usize];
        let seen = match mmu.access(Vpn::new(page).address(), self.bus) {
            Ok(access) => Some(access.addr.frame().raw()),
            Err(TranslationFault::Translation { .. }) => None,
            Err(fault) => panic!("page {page:#x} of {id}: {fault}"),
        };
        assert_eq!(seen, known, "page {page:#x} of space {id}");
    }

    /// Looks at what the operation was about.
    fn check_touched(&mut self) {
        if !self.touched.is_empty() {
            let places = self.world.borrow().places();
            self.touched.iter().for_each(|&page| self.translates(page, &places));
        }
        self.tables.count(self.spaces.iter().map(AddressSpace::table_frames).sum());
    }

    /// Looks at everything.
    fn check(&mut self) {
        let places = self.contents();
        for page in FIRST..FIRST + DATA.count {
            (0..2).for_each(|id| self.translates((id, page), &places));
        }
        self.tables.check(self.spaces.iter().map(AddressSpace::table_frames).sum());
        if let Err(fault) = self.with(|pmap, spaces, _| pmap.check(spaces, (0..2).map(SpaceId))) {
            panic!("{fault}");
        }
    }
}
