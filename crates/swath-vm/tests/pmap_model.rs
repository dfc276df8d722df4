//! Random mixes of map, fault, protect, write, unmap, sharing between two
//! spaces, page-out, laundering and shortage, beside a flat model: what each
//! page of each space leads to and permits, and what is known of each frame.
//! After each operation the tables are read back by the decoder written from the
//! specifications, every frame is accounted for, and a TLB that remembers
//! everything until it is told not to must not remember anything wrong.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::machine::{Memory, Pool, Space, spec};
use swath_arch::testing::Random;
use swath_arch::{Attributes, Extent, Format, MemoryKind, Order, PageRange, Pfn, Vpn};
use swath_vm::{
    AddressSpace, Faulted, Flush, KeptPermissions, MapPagesError, PageAccess, PageSizeError, Pmap,
    PmapError, PmapStatistics, ReverseMap, Site, Sizes, SpaceId, Status,
};

const POOL: u64 = 0x100;
const POOL_FRAMES: u64 = 300;
/// The window's first page, and the first frame of what it shows.
const FIRST: u64 = 0x4_0000;
const FRAME: u64 = 0x8_0000;

const USER: Attributes = Attributes {
    writable: true,
    user: true,
    executable: true,
    global: false,
    accessed: false,
    memory: MemoryKind::Normal,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    frame: u64,
    attributes: Attributes,
}

/// What is known of everything, in the plainest form.
#[derive(Default)]
struct Model {
    pages: BTreeMap<(u32, u64), Page>,
    modified: BTreeMap<u64, ()>,
    referenced: BTreeMap<u64, ()>,
}

impl Model {
    fn forget(&mut self, key: (u32, u64)) {
        if let Some(page) = self.pages.remove(&key) {
            if page.attributes.writable {
                self.modified.insert(page.frame, ());
            }
            if page.attributes.accessed {
                self.referenced.insert(page.frame, ());
            }
        }
    }

    fn protect(&mut self, key: (u32, u64), writable: bool, executable: bool) {
        if let Some(page) = self.pages.get_mut(&key) {
            if page.attributes.writable && !writable {
                self.modified.insert(page.frame, ());
            }
            page.attributes.writable &= writable;
            page.attributes.executable &= executable;
        }
    }
}

/// What a TLB that never evicts would hold.
type Tlb = BTreeMap<(u32, u64), spec::Seen>;

fn forget(tlb: &mut Tlb, space: SpaceId, flush: Flush) {
    let (first, end) = (flush.range.start.raw(), flush.range.end().raw());
    tlb.retain(|&(id, page), _| id != space.0 || page < first || page >= end);
}

struct Run<'m> {
    format: Format,
    pages: u64,
    memory: &'m Memory,
    pool: &'m RefCell<Pool>,
    spaces: Vec<Space<'m>>,
    pmap: Pmap<Vec<u64>>,
    model: Model,
    tlb: Tlb,
    random: Random,
}

impl Run<'_> {
    fn site(&mut self) -> Site {
        let (space, page) = (self.random.below(2) as u32, FIRST + self.random.below(self.pages));
        Site { space: SpaceId(space), page: Vpn::new(page) }
    }

    /// A range within the window, often of whole superpages.
    fn range(&mut self) -> (u64, u64) {
        let unit = [1, 1, 16, 256, 512][self.random.below(5) as usize];
        let start = self.random.below(self.pages) / unit * unit;
        let count = unit * (1 + self.random.below(4));
        (FIRST + start, count.min(self.pages - start))
    }

    fn full(&mut self) -> Option<Order> {
        [None, Some(4), Some(18), Some(18)][self.random.below(4) as usize].map(Order::known)
    }

    fn enter(&mut self, site: Site, frame: u64, access: PageAccess, full: Option<Order>) {
        let key = (site.space.0, site.page.raw());
        let free = self.pmap.reverse().free_entries();
        let tlb = &mut self.tlb;
        let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
        match self.pmap.enter(spaces, site, Pfn::new(frame), USER, access, full) {
            Ok(_) => {
                let attributes = Attributes {
                    writable: access == PageAccess::Write,
                    accessed: access != PageAccess::None,
                    ..USER
                };
                let before = self.model.pages.insert(key, Page { frame, attributes });
                assert_eq!(before, None);
            }
            Err(PmapError::Map(MapPagesError::AlreadyMapped { page })) => {
                assert_eq!(page, site.page);
                assert!(self.model.pages.contains_key(&key));
            }
            Err(PmapError::OutOfEntries) => assert_eq!(free, 0),
            Err(PmapError::Map(MapPagesError::NoTable(_))) => {
                assert!(!self.model.pages.contains_key(&key));
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn fault(&mut self, site: Site, access: PageAccess, full: Option<Order>) {
        let key = (site.space.0, site.page.raw());
        let tlb = &mut self.tlb;
        let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
        match self.pmap.fault(spaces, site, access, full) {
            Ok(Faulted::Mapped { .. }) => {
                // A superpage is accessed as a whole: what the tables said before
                // tells how large it was.
                self.model.pages.get_mut(&key).unwrap().attributes.writable |=
                    access == PageAccess::Write;
            }
            Ok(Faulted::Removed { range }) => {
                assert_eq!(access, PageAccess::Write);
                range.iter().for_each(|page| self.model.forget((site.space.0, page.raw())));
            }
            Err(PmapError::NotMapped { .. }) => assert!(!self.model.pages.contains_key(&key)),
            Err(error) => panic!("{error}"),
        }
    }

    /// A fault at the page and what it means for the model: all of the superpage
    /// is accessed.
    fn fault_model(&mut self, site: Site, access: PageAccess, full: Option<Order>) {
        let id = site.space;
        let seen = spec::look(self.memory, self.spaces[id.0 as usize].regime(), site.page.raw());
        if let Some(seen) = seen {
            // A write to a read-only superpage parts it first.
            let demoted = access == PageAccess::Write && !seen.attributes.writable;
            let order = if demoted { 0 } else { seen.order };
            let head = site.page.raw() >> order << order;
            for page in head..head + (1 << order) {
                self.model.pages.get_mut(&(id.0, page)).unwrap().attributes.accessed |=
                    access != PageAccess::None;
            }
        }
        self.fault(site, access, full);
    }

    fn step(&mut self) -> &'static str {
        let site = self.site();
        let full = self.full();
        // The window shows its frames in order, to both spaces.
        let frame = FRAME + (site.page.raw() - FIRST);
        match self.random.below(17) {
            0 => {
                let access = [PageAccess::None, PageAccess::Read, PageAccess::Write]
                    [self.random.below(3) as usize];
                let frame = if self.random.below(4) == 0 { frame ^ 1 } else { frame };
                self.enter(site, frame, access, full);
                "enter"
            }
            1..=5 => {
                // What is missing, as faults in order would bring it.
                let access =
                    [PageAccess::None, PageAccess::Read, PageAccess::Read, PageAccess::Write]
                        [self.random.below(4) as usize];
                let (start, count) = self.range();
                for page in start..start + count {
                    let site = Site { page: Vpn::new(page), ..site };
                    if !self.model.pages.contains_key(&(site.space.0, page)) {
                        self.enter(site, FRAME + (page - FIRST), access, full);
                    }
                }
                "fill"
            }
            6 => {
                self.fault_model(site, PageAccess::Write, full);
                "write"
            }
            7 | 8 => {
                let access = [PageAccess::Read, PageAccess::Write][self.random.below(2) as usize];
                let (start, count) = self.range();
                for page in start..start + count {
                    self.fault_model(Site { page: Vpn::new(page), ..site }, access, full);
                }
                "touch all"
            }
            9 => {
                let (start, count) = self.range();
                let tlb = &mut self.tlb;
                let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
                let range = PageRange::new(Vpn::new(start), count);
                self.pmap.remove(spaces, site.space, range).unwrap();
                for page in start..start + count {
                    self.model.forget((site.space.0, page));
                }
                "remove"
            }
            10 | 11 => {
                let (start, count) = self.range();
                let (writable, executable) = (self.random.below(2) == 0, self.random.below(4) > 0);
                let tlb = &mut self.tlb;
                let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
                let range = PageRange::new(Vpn::new(start), count);
                let protection = KeptPermissions { writable, executable };
                self.pmap.protect(spaces, site.space, range, protection).unwrap();
                for page in start..start + count {
                    self.model.protect((site.space.0, page), writable, executable);
                }
                "protect"
            }
            12 => {
                let tlb = &mut self.tlb;
                let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
                self.pmap.page_out(spaces, Pfn::new(frame)).unwrap();
                let of_frame = |(_, page): &(_, &Page)| page.frame == frame;
                let keys: Vec<_> =
                    self.model.pages.iter().filter(of_frame).map(|(&key, _)| key).collect();
                keys.into_iter().for_each(|key| self.model.forget(key));
                "page out"
            }
            13 => {
                let tlb = &mut self.tlb;
                let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
                let was = self.pmap.clean(spaces, Pfn::new(frame)).unwrap();
                let mut expected = self.model.modified.contains_key(&frame);
                for page in self.model.pages.values_mut().filter(|page| page.frame == frame) {
                    expected |= page.attributes.writable;
                    page.attributes.writable = false;
                }
                assert_eq!(was, expected);
                self.model.modified.remove(&frame);
                "clean"
            }
            14 | 15 => {
                let sizes = self.spaces[0].sizes().unwrap();
                let largest = |order: &Order| order.frames() <= self.pages;
                let orders: Vec<_> = sizes.iter().filter(largest).collect();
                let order = orders[self.random.below(orders.len() as u64) as usize];
                let head = Vpn::new(site.page.raw() & !(order.frames() - 1));
                let site = Site { page: head, ..site };
                let frame = FRAME + (head.raw() - FIRST);
                let access = [PageAccess::Read, PageAccess::Write][self.random.below(2) as usize];
                let room = self.random.below(4) > 0;
                let tlb = &mut self.tlb;
                let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
                if room {
                    let range = PageRange::new(head, order.frames());
                    self.pmap.remove(spaces, site.space, range).unwrap();
                    for page in range.iter() {
                        self.model.forget((site.space.0, page.raw()));
                    }
                }
                let frames = (Pfn::new(frame), order);
                match self.pmap.enter_superpage(spaces, site, frames, USER, access) {
                    Ok(()) => {
                        let writable = access == PageAccess::Write;
                        let attributes = Attributes { writable, accessed: true, ..USER };
                        for i in 0..order.frames() {
                            let page = Page { frame: frame + i, attributes };
                            self.model.pages.insert((site.space.0, head.raw() + i), page);
                        }
                    }
                    Err(
                        PmapError::OutOfEntries
                        | PmapError::MapSuperpage(PageSizeError::Map(
                            MapPagesError::AlreadyMapped { .. } | MapPagesError::NoTable(_),
                        )),
                    ) => {}
                    Err(error) => panic!("{error}"),
                }
                "create"
            }
            _ => {
                let tlb = &mut self.tlb;
                let spaces = &mut (&mut self.spaces[..], |id, flush| forget(tlb, id, flush));
                self.pmap.promote(spaces, site, full);
                "promote"
            }
        }
    }

    /// Superpages that could not be demoted are gone: the model follows, where
    /// a superpage was.
    fn follow(&mut self, orders: &BTreeMap<(u32, u64), u32>) {
        let keys: Vec<_> = self.model.pages.keys().copied().collect();
        for key in keys {
            let regime = self.spaces[key.0 as usize].regime();
            if spec::look(self.memory, regime, key.1).is_none() {
                assert!(orders[&key] > 0, "page {key:x?} is gone");
                self.model.forget(key);
            }
        }
    }

    fn compare(&mut self, context: &str) {
        for id in 0..2_u32 {
            let regime = self.spaces[id as usize].regime();
            for page in FIRST..FIRST + self.pages {
                let seen = spec::look(self.memory, regime, page);
                let expected = self.model.pages.get(&(id, page)).copied();
                let got = seen.map(|seen| Page { frame: seen.frame, attributes: seen.attributes });
                assert_eq!(got, expected, "{context}: space {id}, page {page:#x}");
                if let Some(remembered) = self.tlb.get(&(id, page)) {
                    assert_eq!(Some(*remembered), seen, "{context}: stale {page:#x}");
                }
                match seen {
                    Some(seen) => self.tlb.insert((id, page), seen),
                    None => self.tlb.remove(&(id, page)),
                };
            }
        }
        let spaces = &mut (&mut self.spaces[..], |_, _| ());
        self.pmap
            .check(spaces, (0..2).map(SpaceId))
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        for frame in [0, 1, 2, 3].map(|_| FRAME + self.random.below(self.pages)) {
            let mapped = |wanted: fn(&Attributes) -> bool| {
                let mut pages = self.model.pages.values();
                pages.any(|page| page.frame == frame && wanted(&page.attributes))
            };
            let modified = mapped(|a| a.writable) || self.model.modified.contains_key(&frame);
            let referenced = mapped(|a| a.accessed) || self.model.referenced.contains_key(&frame);
            let frame = Pfn::new(frame);
            assert_eq!(self.pmap.modified(spaces, frame), Ok(modified), "{context}");
            assert_eq!(self.pmap.referenced(spaces, frame), Ok(referenced), "{context}");
        }
        let tables: u64 = spaces.0.iter().map(AddressSpace::table_frames).sum();
        assert_eq!(self.pool.borrow().taken_frames(), tables, "{context}");
    }
}

fn run(format: Format, status: Status, sizes: Sizes, seed: u64, steps: u64) -> PmapStatistics {
    let memory = Memory::new(0, POOL + POOL_FRAMES);
    let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 24, seed));
    let make = || AddressSpace::with_superpages(format, sizes, &memory, &pool, &pool).unwrap();
    let pages = if format == Format::ArmV7 { 0x300 } else { 0x600 };
    let frames = Extent::new(Pfn::new(FRAME), pages);
    // Now and then too few for all pages of both spaces.
    let entries = if seed.is_multiple_of(2) { 2 * pages } else { pages / 16 + 8 } as u32;
    let words = vec![u64::MAX; ReverseMap::words_needed(frames, sizes, status, entries).unwrap()];
    let reverse = ReverseMap::new(frames, sizes, status, words).unwrap();
    assert_eq!(reverse.free_entries(), entries);
    let mut run = Run {
        format,
        pages,
        memory: &memory,
        pool: &pool,
        spaces: vec![make(), make()],
        pmap: Pmap::new(reverse),
        model: Model::default(),
        tlb: Tlb::new(),
        random: Random::new(seed),
    };
    for step in 0..steps {
        if run.random.below(3) == 0 {
            pool.borrow_mut().fail_in = 1 + run.random.below(2);
        }
        let mut orders = BTreeMap::new();
        for &(id, page) in run.model.pages.keys() {
            let regime = run.spaces[id as usize].regime();
            orders.insert((id, page), spec::look(&memory, regime, page).map_or(0, |s| s.order));
        }
        let shortages = run.pmap.statistics().removed_for_shortage;
        let name = run.step();
        if run.pmap.statistics().removed_for_shortage > shortages {
            run.follow(&orders);
        }
        let context = format!("{:?} {status:?} seed {seed} step {step}: {name}", run.format);
        run.compare(&context);
        pool.borrow_mut().fail_in = 0;
    }
    let statistics = run.pmap.statistics();
    // Everything goes, and every frame and PV entry comes back.
    let all = PageRange::new(Vpn::new(0), 1 << 20);
    for id in [0, 1].map(SpaceId) {
        run.pmap.remove(&mut (&mut run.spaces[..], |_, _| ()), id, all).unwrap();
    }
    assert_eq!(run.pmap.reverse().used_entries(), 0);
    // With a half of their own, where the root has superpages.
    let root = match format {
        Format::ArmV7 => 8,
        Format::Sv39 => 2,
        Format::ArmV8 | Format::X86_64 | Format::Sv48 => 1,
    };
    assert_eq!(pool.borrow().taken_frames(), 2 * root);
    drop(run);
    assert_eq!(pool.borrow().taken_frames(), 0);
    statistics
}

fn mixes(format: Format) {
    let all = Sizes::all(format);
    let mut sum = [0; 10];
    for seed in 1..=6 {
        let status = if seed % 3 == 0 { Status::InReverseMap } else { Status::InTable };
        let sizes = if seed % 4 == 0 { all.without(Order::known(4)) } else { all };
        let s = run(format, status, sizes, seed, 150);
        println!("{format:?} seed {seed}: {s:?}");
        let counts = [
            s.promotions,
            s.promotions_failed,
            s.demotions_write,
            s.demotions_remove,
            s.demotions_protect,
            s.demotions_page_out + s.demotions_clean,
            s.removed_whole,
            s.removed_for_shortage,
            s.recalled,
            s.recreated,
        ];
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    assert!(sum.iter().all(|&sum| sum > 0), "{sum:?}: something never happened");
}

#[test]
fn armv7() {
    mixes(Format::ArmV7);
}

#[test]
fn armv8() {
    mixes(Format::ArmV8);
}

#[test]
fn x86_64() {
    mixes(Format::X86_64);
}

#[test]
fn riscv() {
    mixes(Format::Sv39);
}
