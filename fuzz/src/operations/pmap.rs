//! The mappings of two spaces with superpages, in every format: promoted and demoted, shared,
//! protected, paged out and moved, while memory and tables fail. The hardware's walker and TLBs that
//! are told what they have to be told are the judges.

use std::cell::RefCell;
use swath_arch::testing::{Random, Steps};
use swath_arch::{Attributes, Extent, Format, Order, PageRange, Pfn, Vpn};
use swath_hw::{Geometry, Mmu, TranslationFault, WalkOrder};
use swath_vm::{
    AddressSpace, Faulted, Flush, KeptPermissions, MapPagesError, PageAccess, PageSizeError, Pmap,
    PmapError, ReverseMap, Site, Sizes, SpaceId, Status,
};

use super::bus::{Bus, Frames, with_bus};
use super::memory::{GARBAGE, STEPS_MAX};

const TABLES: Extent = Extent::new(Pfn::new(0x100), 64);
/// The window's first page, and the first frame of what it shows.
const FIRST: u64 = 0x4_0000;
const FRAME: u64 = 0x8_0000;
const PAGES: u64 = 0x420;
const USER: Attributes = Attributes::USER_DATA;
/// A look at all pages takes as long as many operations.
const STEPS: Steps = Steps::quadrupling(STEPS_MAX);

/// A page's frame, and whether it may be written and executed.
type Known = Option<(u64, bool, bool)>;

/// The pages of the window, in each space.
struct Model([Vec<Known>; 2]);

impl Model {
    fn new() -> Self {
        Self([0, 1].map(|_| vec![None; PAGES as usize]))
    }

    fn get(&self, id: u32, page: u64) -> Known {
        self.0[id as usize][(page - FIRST) as usize]
    }

    fn at(&mut self, id: u32, page: u64) -> &mut Known {
        &mut self.0[id as usize][(page - FIRST) as usize]
    }

    fn range(&mut self, id: u32, range: PageRange) -> &mut [Known] {
        let first = (range.start.raw() - FIRST) as usize;
        &mut self.0[id as usize][first..first + range.count as usize]
    }

    fn of_frame(&mut self, frame: u64) -> impl Iterator<Item = &mut Known> {
        let all = self.0.iter_mut().flatten();
        all.filter(move |known| known.is_some_and(|known| known.0 == frame))
    }
}

type Space<'m> = AddressSpace<&'m Bus<'m>, &'m Frames, &'m Frames>;
type Reached<'b, 'm> = (&'b mut [Space<'m>], &'b mut dyn FnMut(SpaceId, Flush));

struct Bench<'m> {
    bus: &'m Bus<'m>,
    tables: &'m Frames,
    spaces: Vec<Space<'m>>,
    pmap: Pmap<Vec<u64>>,
    mmus: RefCell<Vec<Mmu>>,
    model: Model,
    random: Random,
}

/// Draws format, sizes and where the status flags lie, and does what a kernel does. After each
/// operation its own pages are looked for in its space, their ends and a few others in both, and the
/// tables' frames are counted; all pages of the window, and the invariants of spaces, tables and the
/// reverse map, after 1, 4, 16... operations and at the end, and when all is removed.
pub fn run(bytes: &[u8]) {
    with_bus(TABLES, |bus| drive(bus, bytes));
}

fn drive(bus: &Bus<'_>, bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let format = Format::ALL[random.index(Format::ALL.len())];
    let all = Sizes::all(format);
    let sizes = if random.one_in(2) { all } else { all.without(Order::known(4)) };
    let status = if random.one_in(2) { Status::InTable } else { Status::InReverseMap };
    let tables = Frames::new(TABLES);
    let frames = Extent::new(Pfn::new(FRAME), PAGES);
    // Now and then too few for all pages of both spaces.
    let entries = [3 * PAGES as u32, 80][random.index(2)];
    let words = ReverseMap::words_needed(frames, sizes, status, entries).expect("a small map");
    let reverse =
        ReverseMap::new(frames, sizes, status, vec![GARBAGE; words]).expect("words as needed");
    let make = |_| AddressSpace::with_superpages(format, sizes, bus, &tables, &tables);
    let spaces: Vec<_> = (0..2).map(|space| make(space).expect("room for a root")).collect();
    let mmu = |space: &Space<'_>| {
        Mmu::new(space.regime(), Geometry::default(), WalkOrder::default()).expect("a good regime")
    };
    let mmus = RefCell::new(spaces.iter().map(mmu).collect());
    let pmap = Pmap::new(reverse);
    let (tables, model) = (&tables, Model::new());
    let mut bench = Bench { bus, tables, spaces, pmap, mmus, model, random };
    for step in 0..STEPS.most as u64 {
        if bench.random.is_spent() {
            break;
        }
        let shortages = bench.pmap.statistics().removed_for_shortage;
        let (id, touched) = bench.step();
        if bench.pmap.statistics().removed_for_shortage > shortages {
            bench.follow();
        }
        bench.check_touched(id, touched, step);
        if STEPS.compares_all(step as usize + 1) {
            bench.check();
        }
    }
    bench.check();
    let all = PageRange::new(Vpn::new(FIRST), PAGES);
    for id in [0, 1].map(SpaceId) {
        bench.with(|pmap, spaces| pmap.remove(spaces, id, all)).expect("nothing fails any more");
        bench.forget(id.0, all);
    }
    assert_eq!(bench.pmap.reverse().used_entries(), 0);
    bench.check();
    drop(bench);
    tables.check(0);
}

impl<'m> Bench<'m> {
    fn with<R>(&mut self, act: impl FnOnce(&mut Pmap<Vec<u64>>, &mut Reached<'_, 'm>) -> R) -> R {
        let mmus = &self.mmus;
        let mut invalidate = |id: SpaceId, flush: Flush| {
            mmus.borrow_mut()[id.0 as usize].invalidate_range(flush.range);
        };
        act(&mut self.pmap, &mut (&mut self.spaces[..], &mut invalidate))
    }

    /// A range within the window, often of whole superpages.
    fn range(&mut self) -> PageRange {
        let unit = [1, 1, 16, 256, 512][self.random.index(5)];
        let start = self.random.below(PAGES) / unit * unit;
        let count = unit * (1 + self.random.below(3));
        PageRange::new(Vpn::new(FIRST + start), count.min(PAGES - start))
    }

    fn forget(&mut self, space: u32, range: PageRange) {
        self.model.range(space, range).fill(None);
    }

    fn access_kind(&mut self) -> PageAccess {
        [PageAccess::None, PageAccess::Read, PageAccess::Read, PageAccess::Write]
            [self.random.index(4)]
    }

    /// One operation; the space and the pages that it is about.
    fn step(&mut self) -> (SpaceId, PageRange) {
        let range = self.range();
        let id = SpaceId(self.random.below(2) as u32);
        let full = [None, Some(4), Some(18), Some(18)][self.random.index(4)].map(Order::known);
        let faulty = self.random.one_in(4);
        self.tables.fault.set(if faulty { 1 + self.random.below(2) } else { 0 });
        let frame = Pfn::new(FRAME + range.start.raw() - FIRST);
        match self.random.below(12) {
            0..=3 => {
                let access = self.access_kind();
                // Now and then in another order, which is no superpage.
                let swap = u64::from(self.random.one_in(8));
                for page in range.iter() {
                    self.enter(Site { space: id, page }, swap, access, full);
                }
            }
            4 => {
                let access = self.access_kind();
                for page in range.iter() {
                    self.fault(Site { space: id, page }, access, full);
                }
            }
            5 => {
                self.with(|pmap, spaces| pmap.remove(spaces, id, range)).expect("memory answers");
                self.forget(id.0, range);
            }
            6 => {
                let (writable, executable) = (self.random.one_in(2), self.random.one_in(2));
                let kept = KeptPermissions { writable, executable };
                self.with(|pmap, spaces| pmap.protect(spaces, id, range, kept))
                    .expect("memory answers");
                for page in range.iter() {
                    if let Some(known) = self.model.at(id.0, page.raw()) {
                        known.1 &= writable;
                        known.2 &= executable;
                    }
                }
            }
            7 => {
                self.with(|pmap, spaces| pmap.page_out(spaces, frame)).expect("memory answers");
                self.model.of_frame(frame.raw()).for_each(|known| *known = None);
            }
            8 => {
                self.with(|pmap, spaces| pmap.clean(spaces, frame)).expect("memory answers");
                self.model.of_frame(frame.raw()).flatten().for_each(|known| known.1 = false);
            }
            9..=10 => self.create(id, range.start),
            _ => {
                let site = Site { space: id, page: range.start };
                self.with(|pmap, spaces| pmap.promote(spaces, site, full));
            }
        }
        self.tables.fault.set(0);
        (id, range)
    }

    fn enter(&mut self, site: Site, swap: u64, access: PageAccess, full: Option<Order>) {
        let key = (site.space.0, site.page.raw());
        let frame = FRAME + ((site.page.raw() - FIRST) ^ swap);
        let free = self.pmap.reverse().free_entries();
        let entered =
            self.with(|pmap, spaces| pmap.enter(spaces, site, Pfn::new(frame), USER, access, full));
        match entered {
            Ok(_) => {
                let writable = access == PageAccess::Write;
                let known = (frame, writable, USER.executable);
                let before = self.model.at(key.0, key.1).replace(known);
                assert_eq!(before, None, "{site:?} is mapped twice");
            }
            Err(PmapError::Map(MapPagesError::AlreadyMapped { page })) => {
                assert_eq!(page, site.page);
                assert!(self.model.get(key.0, key.1).is_some(), "{site:?} is not mapped");
            }
            Err(PmapError::OutOfEntries) => assert_eq!(free, 0, "{site:?}"),
            Err(PmapError::Map(MapPagesError::NoTable(_))) => {
                assert_eq!(self.model.get(key.0, key.1), None, "{site:?}");
            }
            Err(error) => panic!("{site:?}: {error}"),
        }
    }

    fn fault(&mut self, site: Site, access: PageAccess, full: Option<Order>) {
        let key = (site.space.0, site.page.raw());
        match self.with(|pmap, spaces| pmap.fault(spaces, site, access, full)) {
            Ok(Faulted::Mapped { .. }) => {
                let known = self.model.at(key.0, key.1).as_mut().expect("a mapped page");
                known.1 |= access == PageAccess::Write;
            }
            Ok(Faulted::Removed { range }) => {
                self.forget(key.0, range);
            }
            Err(PmapError::NotMapped { .. }) => assert_eq!(self.model.get(key.0, key.1), None),
            Err(error) => panic!("{site:?}: {error}"),
        }
    }

    fn create(&mut self, space: SpaceId, page: Vpn) {
        let sizes = self.spaces[0].sizes().expect("made with superpages");
        let orders: Vec<_> = sizes.iter().filter(|order| order.k() <= 9).collect();
        let order = orders[self.random.index(orders.len())];
        let access = self.access_kind();
        let head = Vpn::new(page.raw() & !(order.frames() - 1));
        if head.raw() + order.frames() > FIRST + PAGES {
            return;
        }
        let frame = FRAME + head.raw() - FIRST;
        let range = PageRange::new(head, order.frames());
        if self.random.one_in(2) {
            self.with(|pmap, spaces| pmap.remove(spaces, space, range)).expect("memory answers");
            self.forget(space.0, range);
        }
        let (site, frames) = (Site { space, page: head }, (Pfn::new(frame), order));
        let made =
            self.with(|pmap, spaces| pmap.enter_superpage(spaces, site, frames, USER, access));
        match made {
            Ok(()) => {
                let writable = access == PageAccess::Write;
                for (page, frame) in range.iter().zip(frame..) {
                    let known = (frame, writable, USER.executable);
                    let before = self.model.at(space.0, page.raw()).replace(known);
                    assert_eq!(before, None, "{site:?} is mapped twice");
                }
            }
            Err(
                PmapError::OutOfEntries
                | PmapError::MapSuperpage(PageSizeError::Map(
                    MapPagesError::AlreadyMapped { .. } | MapPagesError::NoTable(_),
                )),
            ) => {}
            Err(error) => panic!("{site:?}, order {order}: {error}"),
        }
    }

    /// Superpages that could not be demoted are gone, and the model follows.
    fn follow(&mut self) {
        let spaces = &self.spaces;
        for (space, known) in spaces.iter().zip(&mut self.model.0) {
            for (page, known) in (FIRST..).zip(known) {
                known.take_if(|_| space.translate(Vpn::new(page)).is_err());
            }
        }
    }

    /// The page of a space, as its processor sees it.
    fn look(&self, id: SpaceId, page: u64) {
        let seen = match self.mmus.borrow_mut()[id.0 as usize]
            .access(Vpn::new(page).address(), self.bus)
        {
            Ok(access) => {
                let Attributes { writable, executable, .. } = access.attributes;
                Some((access.addr.frame().raw(), writable, executable))
            }
            Err(TranslationFault::Translation { .. }) => None,
            Err(fault) => panic!("page {page:#x} of {id:?}: {fault}"),
        };
        assert_eq!(seen, self.model.get(id.0, page), "page {page:#x} of {id:?}");
    }

    fn table_frames(&self) -> u64 {
        self.spaces.iter().map(AddressSpace::table_frames).sum()
    }

    /// Looks at the pages that were touched, and at a few others.
    fn check_touched(&self, id: SpaceId, touched: PageRange, step: u64) {
        touched.iter().for_each(|page| self.look(id, page.raw()));
        let sample = (FIRST..FIRST + PAGES).skip(13 * step as usize % 127).step_by(127);
        for page in [touched.start.raw(), touched.end().raw() - 1].into_iter().chain(sample) {
            (0..2).for_each(|id| self.look(SpaceId(id), page));
        }
        self.tables.count(self.table_frames());
    }

    /// Looks at everything.
    fn check(&mut self) {
        for page in FIRST..FIRST + PAGES {
            (0..2).for_each(|id| self.look(SpaceId(id), page));
        }
        self.tables.check(self.table_frames());
        if let Err(fault) = self.with(|pmap, spaces| pmap.check(spaces, (0..2).map(SpaceId))) {
            panic!("{fault}");
        }
    }
}
