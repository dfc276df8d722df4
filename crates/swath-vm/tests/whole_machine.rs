//! A whole machine under random work while its memory is emptied bank by bank,
//! with something going wrong in most steps: memory that does not answer, no
//! target, no table, frames freed and pinned between two looks.
//!
//! After every step: each frame is in exactly one place; each page leads where it
//! should and permits what it should; the content of each frame is that of its
//! owner; TLBs hold nothing stale, and held nothing of a block while it was copied.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::machine::spec;
use swath_arch::testing::Random;
use swath_arch::{
    Attributes, BusError, Extent, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory,
    Vpn,
};
use swath_frame::layout::{Layout, LayoutConfig, LayoutZone, ZoneKind};
use swath_frame::zone::bank::BankLayout as Geometry;
use swath_frame::zone::bank::{AdaptiveBuddy, PoolPlacement, PoolPolicy};
use swath_frame::{
    BlockRequest, ByteRange, Checked, FrameAllocateError, FrameAllocator, FrameFreeError,
    Hardening, HotplugError, Isolation, LinuxZone, Machine, MachineConfig, MachineHandle,
    MemoryMap, MemoryUnit, Mobility, PerCpuLists, Trusting, ZoneAllocator,
};
use swath_vm::migrate::daemon::{
    BankCandidate, Daemon, GiveUpCause, MigrationConfig, MigrationStep, MovableBanks, Stuck,
};
use swath_vm::migrate::relocate::{Held, Holders, Relocator};
use swath_vm::migrate::units::{HotplugUnits, NodeBanks, OfflineError};
use swath_vm::{
    AddressSpace, Faulted, Flush, MapPagesError, PageAccess, PageSizeError, Pmap, PmapError,
    ReverseMap, Site, Sizes, SpaceId, Status,
};

const FIRST: u64 = 0x2000;
const BANK: u64 = 1024;
const FRAMES: u64 = 8 * BANK;
const SPACES: u32 = 3;
/// The window's first page, and how many there are; the second half is for blocks
/// that can be superpages.
const PAGE: u64 = 0x4_0000;
const WINDOW: u64 = 0x2000;
const USER: Attributes = Attributes::USER_DATA;

/// A page's content is known by a number, which stays with it where it goes.
type Tag = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    Kernel(Tag),
    User { tag: Tag, start: u64, order: Order },
}

/// What is known of everything, in the plainest form.
struct Known {
    uses: Vec<Use>,
    place: HashMap<Tag, u64>,
    version: HashMap<Tag, u64>,
    pinned: BTreeSet<Tag>,
    pages: BTreeMap<(u32, u64), (Tag, Attributes)>,
    modified: BTreeSet<Tag>,
    /// What a TLB that never evicts holds.
    tlb: BTreeMap<(u32, u64), u64>,
    moved_frames: u64,
    moved_whole: u64,
    split: u64,
}

impl Known {
    fn used(&self, frame: u64) -> Use {
        self.uses[(frame - FIRST) as usize]
    }

    fn unit(&self, frame: u64) -> Option<(u64, Order)> {
        match self.used(frame) {
            Use::User { start, order, .. } => Some((start, order)),
            _ => None,
        }
    }

    fn tags(&self, start: u64, count: u64) -> BTreeSet<Tag> {
        let tag = |frame| match self.used(frame) {
            Use::User { tag, .. } | Use::Kernel(tag) => Some(tag),
            Use::Free => None,
        };
        (start..start + count).filter_map(tag).collect()
    }

    fn forget(&mut self, key: (u32, u64)) {
        if let Some((tag, attributes)) = self.pages.remove(&key)
            && attributes.writable
        {
            self.modified.insert(tag);
        }
    }

    fn release(&mut self, start: u64, count: u64) {
        for tag in self.tags(start, count) {
            self.place.remove(&tag);
            self.version.remove(&tag);
            self.pinned.remove(&tag);
            self.modified.remove(&tag);
        }
        self.uses[(start - FIRST) as usize..][..count as usize].fill(Use::Free);
    }

    fn content(&self, tag: Tag, word: u64) -> u64 {
        Random::new(tag << 32 | self.version[&tag] << 10 | word).word()
    }
}

/// What goes wrong, counted down to the access or request that fails.
#[derive(Default)]
struct Faults {
    write: Cell<u64>,
    read: Cell<u64>,
    target: Cell<u64>,
    table: Cell<u64>,
    meddle: Cell<u64>,
    /// The n-th frame looked at turns out to be the kernel's.
    unmovable: Cell<u64>,
    /// No block of many frames can be had as a target.
    no_large: Cell<bool>,
    /// The frame that was looked at last.
    looked_at: Cell<u64>,
    migrating: Cell<bool>,
}

fn comes(counter: &Cell<u64>) -> bool {
    let left = counter.get();
    counter.set(left.saturating_sub(1));
    left == 1
}

struct Memory<'m> {
    words: SliceMemory<'m>,
    faults: &'m Faults,
    known: &'m RefCell<Known>,
}

impl Memory<'_> {
    fn at(&self, frame: u64, word: u64) -> u64 {
        self.words.read_u64(PhysAddr::new((frame << 12) + 8 * word)).unwrap()
    }
}

impl PhysMemory for Memory<'_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        let failed = comes(&self.faults.read);
        if failed { Err(BusError { addr, len_bytes: 4 }) } else { self.words.read_u32(addr) }
    }
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        if self.faults.migrating.get() && addr.raw() & 0xfff == 0 {
            let (known, frame) = (self.known.borrow(), addr.raw() >> 12);
            if matches!(known.used(frame), Use::User { .. }) {
                let held = known.tlb.values().any(|&cached| cached == frame);
                assert!(!held, "frame {frame:#x} is copied while a TLB leads to it");
            }
        }
        let failed = comes(&self.faults.read);
        if failed { Err(BusError { addr, len_bytes: 8 }) } else { self.words.read_u64(addr) }
    }
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        let failed = comes(&self.faults.write);
        if failed {
            Err(BusError { addr, len_bytes: 4 })
        } else {
            self.words.write_u32(addr, value)
        }
    }
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        let failed = comes(&self.faults.write);
        if failed {
            Err(BusError { addr, len_bytes: 8 })
        } else {
            self.words.write_u64(addr, value)
        }
    }
}

type Computer<Z> = Machine<Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;

/// Tables are kernel memory of the same machine.
struct Tables<'m, Z> {
    handle: MachineHandle<'m, Vec<Z>, Vec<PerCpuLists>, Vec<u64>>,
    faults: &'m Faults,
}

impl<Z: ZoneAllocator> FrameAllocator for Tables<'_, Z> {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.handle.allocate_block(frames_max)
    }
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let failed = comes(&self.faults.table);
        if failed {
            Err(FrameAllocateError::NoBlock { order })
        } else {
            self.handle.allocate_aligned(order)
        }
    }
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.handle.free(extent)
    }
    fn free_frames(&self) -> u64 {
        self.handle.free_frames()
    }
    fn total_frames(&self) -> u64 {
        self.handle.total_frames()
    }
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.handle.for_each_free(visit);
    }
}

/// The kernel's table of frames.
struct Table<'m> {
    known: &'m RefCell<Known>,
    faults: &'m Faults,
}

impl Holders for Table<'_> {
    fn held(&self, frame: Pfn) -> Held {
        self.faults.looked_at.set(frame.raw());
        let known = self.known.borrow();
        match known.used(frame.raw()) {
            Use::Free => Held::Free,
            Use::Kernel(_) => Held::Unmovable,
            Use::User { .. } if comes(&self.faults.unmovable) => Held::Unmovable,
            Use::User { start, order, .. } => {
                let tags = known.tags(start, order.frames());
                if tags.iter().any(|tag| known.pinned.contains(tag)) {
                    return Held::Pinned;
                }
                Held::Movable { start: Pfn::new(start), order }
            }
        }
    }

    fn moved(&mut self, from: Pfn, to: Pfn, order: Order) {
        let mut known = self.known.borrow_mut();
        let (from, to) = (from.raw(), to.raw());
        for i in 0..order.frames() {
            let Use::User { tag, start, order } = known.used(from + i) else {
                panic!("frame {:#x} moves and is not the user's", from + i)
            };
            let moved = Use::User { tag, start: start - from + to, order };
            assert_eq!(known.used(to + i), Use::Free);
            known.uses[(to + i - FIRST) as usize] = moved;
            known.uses[(from + i - FIRST) as usize] = Use::Free;
            known.place.insert(tag, to + i);
        }
        known.moved_frames += order.frames();
        known.moved_whole += u64::from(order.k() >= 8);
    }

    fn split(&mut self, start: Pfn, order: Order) -> bool {
        let mut known = self.known.borrow_mut();
        // Every fourth block is good as a whole only.
        if start.raw() >> order.k() & 3 == 0 {
            return false;
        }
        for frame in start.raw()..start.raw() + order.frames() {
            if let Use::User { start, order, .. } = &mut known.uses[(frame - FIRST) as usize] {
                (*start, *order) = (frame, Order::BASE);
            }
        }
        known.split += 1;
        true
    }
}

/// Banks that now and then have no target, or during whose search for one the
/// frame is freed or pinned.
struct Meddled<'m, Z, B> {
    banks: B,
    machine: &'m RefCell<Computer<Z>>,
    known: &'m RefCell<Known>,
    faults: &'m Faults,
}

impl<Z: ZoneAllocator, B: MovableBanks> MovableBanks for Meddled<'_, Z, B> {
    fn candidate(&self, avoided: &dyn Fn(usize) -> bool) -> Option<BankCandidate> {
        self.banks.candidate(avoided)
    }
    fn room_frames(&self, bank: usize) -> u64 {
        self.banks.room_frames(bank)
    }
    fn resting_banks(&self) -> usize {
        self.banks.resting_banks()
    }
    fn isolate(&mut self, bank: usize) -> bool {
        self.banks.isolate(bank)
    }
    fn rejoin(&mut self, bank: usize) {
        self.banks.rejoin(bank);
    }
    fn next_occupied(&self, bank: usize, from: Pfn) -> Option<Pfn> {
        self.banks.next_occupied(bank, from)
    }
    fn allocate_target(&mut self, order: Order) -> Option<Pfn> {
        if comes(&self.faults.meddle) {
            let mut known = self.known.borrow_mut();
            if let Some((start, order)) = known.unit(self.faults.looked_at.get()) {
                let tags = known.tags(start, order.frames());
                if known.pages.values().any(|(tag, _)| tags.contains(tag)) {
                    known.pinned.extend(tags);
                } else {
                    // A page of the page cache is dropped.
                    known.release(start, order.frames());
                    let extent = Extent::new(Pfn::new(start), order.frames());
                    self.machine.borrow_mut().free(extent, 1).unwrap();
                }
            }
        }
        let large = self.faults.no_large.get() && order.k() >= 4;
        if large || comes(&self.faults.target) { None } else { self.banks.allocate_target(order) }
    }
    fn free(&mut self, start: Pfn, order: Order) {
        self.banks.free(start, order);
    }
}

struct World<'m, Z: ZoneAllocator> {
    format: Format,
    machine: &'m RefCell<Computer<Z>>,
    memory: &'m Memory<'m>,
    known: &'m RefCell<Known>,
    faults: &'m Faults,
    spaces: Vec<AddressSpace<&'m Memory<'m>, Tables<'m, Z>>>,
    pmap: Pmap<Vec<u64>>,
    random: Random,
    tags: Tag,
    removed: u64,
    /// Give-ups by cause: unmovable, pinned, failed, no target.
    causes: [u64; 4],
}

fn big(format: Format) -> Order {
    Order::known(if format == Format::ArmV7 { 8 } else { 9 })
}

type Space<'m, Z> = AddressSpace<&'m Memory<'m>, Tables<'m, Z>>;
type Reached<'b, 'm, Z> = (&'b mut [Space<'m, Z>], &'b mut dyn FnMut(SpaceId, Flush));
type Owners<'a, 'b, 'm, Z> = Relocator<'a, Vec<u64>, Reached<'b, 'm, Z>, Table<'m>, Memory<'m>>;

impl<'m, Z: ZoneAllocator> World<'m, Z> {
    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn with_owners<R>(&mut self, act: impl FnOnce(&mut Owners<'_, '_, 'm, Z>) -> R) -> R {
        let known = self.known;
        let mut forget = |id: SpaceId, flush: Flush| {
            let (first, end) = (flush.range.start.raw(), flush.range.end().raw());
            let stale = |&(space, page): &(u32, u64)| space == id.0 && page >= first && page < end;
            known.borrow_mut().tlb.retain(|key, _| !stale(key));
        };
        let mut spaces: Reached<'_, 'm, Z> = (&mut self.spaces[..], &mut forget);
        let mut holders = Table { known, faults: self.faults };
        act(&mut Relocator {
            pmap: &mut self.pmap,
            spaces: &mut spaces,
            holders: &mut holders,
            memory: self.memory,
        })
    }

    fn with<R>(
        &mut self,
        act: impl FnOnce(&mut Pmap<Vec<u64>>, &mut Reached<'_, 'm, Z>) -> R,
    ) -> R {
        self.with_owners(|owners| act(owners.pmap, owners.spaces))
    }

    /// Writes the content of a frame anew.
    fn fill(&mut self, frame: u64, tag: Tag) {
        let mut known = self.known.borrow_mut();
        *known.version.entry(tag).or_default() += 1;
        for word in 0..512 {
            let at = PhysAddr::new((frame << 12) + 8 * word);
            self.memory.words.write_u64(at, known.content(tag, word)).unwrap();
        }
    }

    fn allocate(&mut self, order: Order, mobility: Mobility) -> Option<u64> {
        let (highest, cpu) = (ZoneKind::Normal, self.below(2) as usize);
        let request = BlockRequest { order, mobility, highest, node: 0, cpu, urgent: false };
        let start = self.machine.borrow_mut().allocate(request).ok()?.raw();
        for frame in start..start + order.frames() {
            self.tags += 1;
            let tag = self.tags;
            let movable = mobility == Mobility::Movable;
            let used = if movable { Use::User { tag, start, order } } else { Use::Kernel(tag) };
            let mut known = self.known.borrow_mut();
            assert_eq!(known.used(frame), Use::Free, "frame {frame:#x} is handed out twice");
            known.uses[(frame - FIRST) as usize] = used;
            known.place.insert(tag, frame);
            drop(known);
            self.fill(frame, tag);
        }
        Some(start)
    }

    fn note(&mut self, key: (u32, u64), frame: u64, access: PageAccess) {
        let mut known = self.known.borrow_mut();
        let Use::User { tag, .. } = known.used(frame) else { panic!("{frame:#x}") };
        let attributes =
            Attributes { writable: access == PageAccess::Write, accessed: true, ..USER };
        assert!(known.pages.insert(key, (tag, attributes)).is_none());
    }

    fn enter(&mut self, key: (u32, u64), frame: u64, access: PageAccess, full: Option<Order>) {
        let site = Site { space: SpaceId(key.0), page: Vpn::new(key.1) };
        let entered =
            self.with(|pmap, spaces| pmap.enter(spaces, site, Pfn::new(frame), USER, access, full));
        match entered {
            Ok(_) => self.note(key, frame, access),
            Err(
                PmapError::OutOfEntries
                | PmapError::Map(MapPagesError::AlreadyMapped { .. } | MapPagesError::NoTable(_)),
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn enter_superpage(&mut self, key: (u32, u64), frame: u64, order: Order, access: PageAccess) {
        let site = Site { space: SpaceId(key.0), page: Vpn::new(key.1) };
        let frames = (Pfn::new(frame), order);
        let entered =
            self.with(|pmap, spaces| pmap.enter_superpage(spaces, site, frames, USER, access));
        match entered {
            Ok(()) => {
                (0..order.frames()).for_each(|i| self.note((key.0, key.1 + i), frame + i, access));
            }
            Err(
                PmapError::OutOfEntries
                | PmapError::MapSuperpage(PageSizeError::Map(
                    MapPagesError::AlreadyMapped { .. } | MapPagesError::NoTable(_),
                )),
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Maps a block somewhere: whole if it is large enough, or page by page.
    fn map(&mut self, start: u64, order: Order) {
        let access = [PageAccess::Read, PageAccess::Write][self.below(2) as usize];
        let space = self.below(SPACES.into()) as u32;
        let half = if order.k() >= 8 { WINDOW / 2 } else { 0 };
        let page = PAGE + half + (self.below(WINDOW / 2) & !(order.frames() - 1));
        let whole = order == big(self.format) || order.k() == 4 && self.format != Format::X86_64;
        if whole && self.below(2) == 0 {
            return self.enter_superpage((space, page), start, order, access);
        }
        for i in 0..order.frames() {
            self.enter((space, page + i), start + i, access, Some(order));
        }
    }

    fn unmap(&mut self, space: u32, page: u64, count: u64) {
        let range = PageRange::new(Vpn::new(page), count);
        self.with(|pmap, spaces| pmap.remove(spaces, SpaceId(space), range)).unwrap();
        for page in page..page + count {
            self.known.borrow_mut().forget((space, page));
        }
    }

    fn user_frame(&mut self) -> Option<u64> {
        let from = self.below(FRAMES);
        let known = self.known.borrow();
        let frames = (from..FRAMES).chain(0..from).map(|i| FIRST + i);
        frames.take(500).find(|&frame| known.unit(frame).is_some())
    }

    fn free(&mut self, start: u64, count: u64) {
        let keys: Vec<_> = {
            let known = self.known.borrow();
            let tags = known.tags(start, count);
            let pages = known.pages.iter().filter(|(_, (tag, _))| tags.contains(tag));
            pages.map(|(&key, _)| key).collect()
        };
        for run in keys.chunk_by(|a, b| (a.0, a.1 + 1) == *b) {
            self.unmap(run[0].0, run[0].1, run.len() as u64);
        }
        for frame in start..start + count {
            self.with(|pmap, spaces| pmap.clean(spaces, Pfn::new(frame))).unwrap();
        }
        self.known.borrow_mut().release(start, count);
        let cpu = self.below(2) as usize;
        self.machine.borrow_mut().free(Extent::new(Pfn::new(start), count), cpu).unwrap();
    }

    fn write(&mut self, key: (u32, u64)) {
        let site = Site { space: SpaceId(key.0), page: Vpn::new(key.1) };
        let faulted =
            self.with(|pmap, spaces| pmap.fault(spaces, site, PageAccess::Write, None)).unwrap();
        let (tag, frame) = {
            let mut known = self.known.borrow_mut();
            if let Faulted::Removed { range } = faulted {
                return range.iter().for_each(|page| known.forget((key.0, page.raw())));
            }
            let (tag, attributes) = known.pages.get_mut(&key).unwrap();
            attributes.writable = true;
            let tag = *tag;
            (tag, known.place[&tag])
        };
        self.fill(frame, tag);
    }

    /// One of the things that go on, towards so many frames in use.
    fn work(&mut self, goal: u64) {
        let used = FRAMES - self.machine.borrow().free_frames();
        let grow = used < goal;
        match self.below(16) {
            0..=4 if grow => {
                let sizes = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 4, big(self.format).k() as u8];
                let order = Order::known(sizes[self.below(12) as usize]);
                let Some(start) = self.allocate(order, Mobility::Movable) else { return };
                // The rest is page cache.
                if self.below(4) > 0 {
                    self.map(start, order);
                }
            }
            5 if grow => {
                let order = Order::known(self.below(3) as u8);
                self.allocate(order, Mobility::Unmovable);
            }
            // A fork shares frames.
            6..=7 => {
                let Some((start, order)) =
                    self.user_frame().and_then(|frame| self.known.borrow().unit(frame))
                else {
                    return;
                };
                self.map(start, order);
            }
            8 => {
                let (space, page) = (self.below(SPACES.into()) as u32, self.below(WINDOW));
                let count = (1 + self.below(64)).min(WINDOW - page);
                self.unmap(space, PAGE + page, count);
            }
            9 => {
                let from = (self.below(SPACES.into()) as u32, PAGE + self.below(WINDOW));
                let page = self.known.borrow().pages.range(from..).next().map(|(&key, _)| key);
                if let Some(key) = page {
                    self.write(key);
                }
            }
            10 => {
                if let Some(frame) = self.user_frame() {
                    let mut known = self.known.borrow_mut();
                    let Use::User { tag, .. } = known.used(frame) else { return };
                    known.pinned.insert(tag);
                }
            }
            11..=12 => {
                let mut known = self.known.borrow_mut();
                known.pinned.pop_first();
            }
            _ if !grow => {
                let frame = FIRST + self.below(FRAMES);
                let used = self.known.borrow().used(frame);
                match used {
                    Use::Free => {}
                    Use::Kernel(_) => self.free(frame, 1),
                    Use::User { start, order, .. } => self.free(start, order.frames()),
                }
            }
            _ => {}
        }
        let removed = self.pmap.statistics().removed_for_shortage;
        if self.removed != removed {
            self.removed = removed;
            self.follow();
        }
    }

    /// Superpages that could not be demoted are gone as a whole.
    fn follow(&mut self) {
        let mut known = self.known.borrow_mut();
        let gone = |&&(space, page): &&(u32, u64)| {
            spec::look(&self.memory.words, self.spaces[space as usize].regime(), page).is_none()
        };
        let gone: Vec<_> = known.pages.keys().filter(gone).copied().collect();
        gone.into_iter().for_each(|key| known.forget(key));
    }

    /// One step of the daemon, in which something may go wrong.
    fn migrate<B: MovableBanks>(
        &mut self,
        daemon: &mut Daemon,
        banks: B,
        now_ns: u64,
    ) -> MigrationStep {
        let (machine, known, faults) = (self.machine, self.known, self.faults);
        let mut banks = Meddled { banks, machine, known, faults };
        let (kind, n) = (self.below(16), 1 + self.below(8));
        // Of a frame's 512 writes, of its tables' few, or of a superpage's many.
        let far = [6, 600, 20_000][self.below(3) as usize];
        let access = 1 + self.below(far);
        match kind {
            0 | 1 => faults.write.set(access),
            2 => faults.read.set(access),
            3 => faults.target.set(n),
            4 => faults.table.set(1),
            5 | 6 => faults.meddle.set(n),
            7 => faults.unmovable.set(n),
            8 | 9 => faults.no_large.set(true),
            _ => {}
        }
        let budget = [1, 8, 64, 4000][self.below(4) as usize];
        faults.migrating.set(true);
        let step = self.with_owners(|owners| daemon.step(now_ns, budget, &mut banks, owners));
        faults.migrating.set(false);
        for counter in [&faults.write, &faults.read, &faults.target, &faults.table, &faults.meddle]
        {
            counter.set(0);
        }
        faults.unmovable.set(0);
        faults.no_large.set(false);
        if let MigrationStep::GaveUp { cause, .. } = step {
            let index = match cause {
                GiveUpCause::Stuck(Stuck::Unmovable) => 0,
                GiveUpCause::Stuck(Stuck::Pinned) => 1,
                GiveUpCause::Stuck(Stuck::Failed) => 2,
                GiveUpCause::NoTarget => 3,
                GiveUpCause::InUse => panic!("a frame without an owner"),
            };
            self.causes[index] += 1;
        }
        step
    }

    /// Everything, everywhere, beside the model.
    fn compare(&mut self, context: &str) {
        let machine = self.machine.borrow();
        machine.check().unwrap_or_else(|error| panic!("{context}: {error}"));
        let mut known = self.known.borrow_mut();
        let mut used = 0;
        for (at, &of) in known.uses.iter().enumerate() {
            let frame = FIRST + at as u64;
            let owner = machine.owner(Pfn::new(frame));
            let tag = match of {
                // A free frame, or a table's.
                Use::Free => {
                    assert_ne!(owner, Some(Mobility::Movable), "{context}: {frame:#x} is lost");
                    continue;
                }
                Use::Kernel(tag) => {
                    assert_eq!(owner, Some(Mobility::Unmovable), "{context}: {frame:#x}");
                    tag
                }
                Use::User { tag, .. } => {
                    assert_eq!(owner, Some(Mobility::Movable), "{context}: {frame:#x}");
                    tag
                }
            };
            used += 1;
            assert_eq!(known.place[&tag], frame, "{context}: in two places");
            let random = Random::new(frame ^ self.random.clone().word()).word();
            let words =
                if random.is_multiple_of(32) { 0..512 } else { random % 512..random % 512 + 1 };
            for word in words.chain([0, 511]) {
                let expected = known.content(tag, word);
                assert_eq!(
                    self.memory.at(frame, word),
                    expected,
                    "{context}: content of {frame:#x}, word {word}"
                );
            }
        }
        assert_eq!(known.place.len() as u64, used, "{context}: a page is nowhere");
        let tables: u64 = self.spaces.iter().map(AddressSpace::table_frames).sum();
        let in_use: u64 = (0..FRAMES)
            .map(|i| u64::from(machine.is_used(Pfn::new(FIRST + i)) == Some(true)))
            .sum();
        assert_eq!(in_use, used + tables, "{context}: frames in use");
        let mut tlb = BTreeMap::new();
        for (&(space, page), &(tag, attributes)) in &known.pages {
            let regime = self.spaces[space as usize].regime();
            let seen = spec::look(&self.memory.words, regime, page);
            let Some(seen) = seen else { panic!("{context}: page {page:#x} is gone") };
            assert_eq!(seen.frame, known.place[&tag], "{context}: page {page:#x} of {space}");
            assert_eq!(seen.attributes, attributes, "{context}: page {page:#x} of {space}");
            tlb.insert((space, page), seen.frame);
        }
        for (key, frame) in &known.tlb {
            assert_eq!(tlb.get(key), Some(frame), "{context}: a TLB has {key:x?} stale");
        }
        known.tlb = tlb;
        let writable: BTreeSet<Tag> =
            known.pages.values().filter(|(_, a)| a.writable).map(|&(tag, _)| tag).collect();
        let marks: Vec<(u64, bool)> = known
            .place
            .iter()
            .filter(|(tag, frame)| matches!(known.used(**frame), Use::User { .. }) && *tag % 8 == 0)
            .map(|(tag, &frame)| (frame, writable.contains(tag) || known.modified.contains(tag)))
            .collect();
        drop((known, machine));
        for (frame, modified) in marks {
            let found = self.with(|pmap, spaces| pmap.modified(spaces, Pfn::new(frame)));
            assert_eq!(found, Ok(modified), "{context}: {frame:#x} was written");
        }
        let ids = (0..SPACES).map(SpaceId);
        self.with(|pmap, spaces| pmap.check(spaces, ids))
            .unwrap_or_else(|error| panic!("{context}: {error}"));
    }

    /// No unit is isolated but the one that is being emptied.
    fn isolated(&self, moving: Option<MemoryUnit>, context: &str) {
        let machine = self.machine.borrow();
        let layout = machine.layout();
        let units = (0..layout.banks()).map(MemoryUnit::Bank);
        for unit in units.chain((0..layout.sections()).map(MemoryUnit::Section)) {
            let isolated = machine.unit_state(unit).unwrap().isolation == Isolation::Isolated;
            assert_eq!(isolated, moving == Some(unit), "{context}: {unit}");
        }
    }
}

/// A machine of one zone with 8 banks of 4 MiB and sections of the same size,
/// over real bytes.
fn with_world<Z: ZoneAllocator>(
    format: Format,
    seed: u64,
    zone: impl Fn(&MemoryMap<'_>, &LayoutZone) -> Z,
    test: impl FnOnce(&mut World<'_, Z>),
) {
    let all = Extent::new(Pfn::new(FIRST), FRAMES);
    let mut areas = [Extent::default(); 1];
    let map = MemoryMap::new(&[ByteRange::of_frames(all)], &mut areas).unwrap();
    let units = LayoutConfig { bank_frames: BANK, section_frames: BANK, ..LayoutConfig::default() };
    let layout = Layout::new(&map, &[all], units).unwrap();
    assert_eq!((layout.zones().len(), layout.banks()), (1, 8));
    let config = MachineConfig { cpus: 2, min_free_kib: Some(256), per_cpu_lists: true };
    let zones: Vec<Z> = layout.zones().iter().map(|of| zone(&map, of)).collect();
    let size = Computer::<Z>::size(&map, &layout, config);
    let lists = vec![PerCpuLists::default(); size.lists];
    let machine = Machine::new(&map, layout, config, zones, lists, vec![0; size.words]).unwrap();
    let machine = RefCell::new(machine);
    let mut words = vec![0x5a5a; FRAMES as usize * 512];
    let faults = Faults::default();
    let known = RefCell::new(Known {
        uses: vec![Use::Free; FRAMES as usize],
        place: HashMap::new(),
        version: HashMap::new(),
        pinned: BTreeSet::new(),
        pages: BTreeMap::new(),
        modified: BTreeSet::new(),
        tlb: BTreeMap::new(),
        moved_frames: 0,
        moved_whole: 0,
        split: 0,
    });
    let words = SliceMemory::new(Pfn::new(FIRST), &mut words);
    let memory = Memory { words, faults: &faults, known: &known };
    let sizes = Sizes::all(format).iter().filter(|order| order.k() <= 9);
    let sizes = sizes.fold(Sizes::NONE, Sizes::with);
    let spaces = (0..SPACES).map(|_| {
        let tables = || {
            let handle = MachineHandle::new(&machine, Mobility::Unmovable, ZoneKind::Normal, 0, 0);
            Tables { handle: handle.unwrap(), faults: &faults }
        };
        AddressSpace::with_superpages(format, sizes, &memory, tables(), tables()).unwrap()
    });
    // With an odd seed too few for all that is mapped, now and then.
    let entries = if seed.is_multiple_of(2) { 12_000 } else { 4000 };
    let status = if seed.is_multiple_of(3) { Status::InReverseMap } else { Status::InTable };
    let words = ReverseMap::words_needed(all, sizes, status, entries).unwrap();
    let reverse = ReverseMap::new(all, sizes, status, vec![0; words]).unwrap();
    test(&mut World {
        format,
        machine: &machine,
        memory: &memory,
        known: &known,
        faults: &faults,
        spaces: spaces.collect(),
        pmap: Pmap::new(reverse),
        random: Random::new(seed),
        tags: 0,
        removed: 0,
        causes: [0; 4],
    });
}

const EAGER: MigrationConfig = MigrationConfig {
    interval_ns: 10,
    retry_ns: 100,
    occupied_permille_max: 950,
    reserve_frames: 0,
    settle_ns: 30,
};

/// So many rounds of work and of steps.
const ROUNDS: u64 = 90;

fn goal(round: u64) -> u64 {
    [FRAMES * 3 / 4, FRAMES / 4, FRAMES / 2][(round / 15 % 3) as usize]
}

type Buddy<H> = AdaptiveBuddy<Vec<u64>, H>;

fn green<H: Hardening>(format: Format, tier: fn(Buddy<Trusting>) -> Buddy<H>) {
    let (mut sum, mut causes) = ([0; 7], [0; 4]);
    for seed in 1..=4 {
        let zone = |map: &MemoryMap<'_>, zone: &LayoutZone| {
            let banks = Geometry::new(Pfn::new(0), BANK, Order::known(10)).unwrap();
            let policy = if seed == 2 { PoolPolicy::PAPER } else { PoolPolicy::PACKED };
            let rule = PoolPlacement::new(policy);
            let words = Buddy::<Trusting>::checked_words(map, zone.span, banks, &rule).unwrap();
            tier(AdaptiveBuddy::new(map, zone.span, banks, rule, vec![0; words]).unwrap())
        };
        with_world(format, seed, zone, |world| {
            let mut daemon = Daemon::new(EAGER);
            let mut offline_most = 0;
            for round in 0..ROUNDS {
                (0..30).for_each(|_| world.work(goal(round)));
                for step in 0..2 {
                    let context = format!("{format:?} seed {seed} round {round} step {step}");
                    let banks = NodeBanks::new(world.machine, 0, 1).unwrap();
                    daemon.wake();
                    let done = world.migrate(&mut daemon, banks, 10 * round);
                    let context = format!("{context}: {done:?}");
                    world.compare(&context);
                    world.isolated(daemon.moving().map(MemoryUnit::Bank), &context);
                    let banks = NodeBanks::new(world.machine, 0, 1).unwrap();
                    if let MigrationStep::Emptied { bank, .. } = done {
                        assert!(banks.is_offline(bank), "{context}");
                    }
                    let offline = (0..8).filter(|&bank| banks.is_offline(bank)).count();
                    offline_most = offline_most.max(offline);
                }
            }
            let statistics = daemon.statistics();
            println!("{format:?} seed {seed}: {statistics:?}");
            let known = world.known.borrow();
            assert_eq!(known.moved_frames, statistics.moved_frames);
            let pmap = world.pmap.statistics();
            assert_eq!(pmap.moved_frames, statistics.moved_frames);
            let counts = [
                statistics.emptied_banks,
                known.moved_frames,
                pmap.moved_mappings,
                known.moved_whole,
                known.split,
                pmap.demotions_move,
                offline_most as u64,
            ];
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            causes.iter_mut().zip(world.causes).for_each(|(sum, count)| *sum += count);
        });
    }
    println!("{format:?}: {sum:?}, given up {causes:?}");
    assert!(sum.iter().chain(&causes).all(|&count| count > 0), "something never happened");
}

#[test]
fn armv7_green() {
    green(Format::ArmV7, |zone| zone);
}

#[test]
fn armv8_green() {
    green(Format::ArmV8, |zone| zone);
}

#[test]
fn x86_64_green() {
    green::<Checked>(Format::X86_64, |zone| zone.checked().unwrap());
}

/// Linux's zone, whose sections go offline on demand, with the reason if not,
/// and come back.
#[test]
fn sections_of_linux_go_offline_and_come_back() {
    let (mut offlined, mut moved, mut reasons, mut causes) = (0, 0, [0; 3], [0; 4]);
    for seed in 11..=12 {
        let format = [Format::X86_64, Format::ArmV8][seed as usize % 2];
        let zone = |map: &MemoryMap<'_>, zone: &LayoutZone| {
            let words = vec![0; LinuxZone::<&mut [u64]>::storage_words(zone.span)];
            LinuxZone::new(map, zone.span, Order::known(9), words).unwrap()
        };
        with_world(format, seed, zone, |world| {
            let mut daemon = Daemon::new(EAGER);
            for round in 0..ROUNDS {
                (0..30).for_each(|_| world.work(goal(round) * 2 / 3));
                let context = format!("{format:?} seed {seed} round {round}");
                let number = world.below(8) as usize;
                let unit = MemoryUnit::Section(number);
                let mut units = HotplugUnits::new(world.machine, MemoryUnit::Section, 0).unwrap();
                let state = world.machine.borrow().section_state(number).unwrap();
                if state.isolation == Isolation::Offline {
                    world.machine.borrow_mut().online(unit).unwrap();
                } else if round % 3 == 0 {
                    // At once, and nothing goes wrong but for what is pinned.
                    let gone = world.with_owners(|owners| units.offline(number, owners));
                    match gone {
                        Ok(frames) => {
                            assert_eq!(state.unmovable, 0, "{context}");
                            moved += frames;
                            offlined += 1;
                        }
                        Err(OfflineError::Hotplug(HotplugError::Unmovable {
                            frame,
                            frames,
                            ..
                        })) => {
                            assert_eq!(frames, state.unmovable, "{context}");
                            let owner = world.machine.borrow().owner(frame);
                            assert_eq!(owner, Some(Mobility::Unmovable), "{context}");
                            reasons[0] += 1;
                        }
                        Err(OfflineError::Stays { frame, cause, .. }) => {
                            let pinned = cause == GiveUpCause::Stuck(Stuck::Pinned);
                            assert_eq!(world.machine.borrow().is_used(frame), Some(true));
                            let pins = world.known.borrow().pinned.len();
                            assert!(!pinned || pins > 0, "{context}");
                            reasons[1 + usize::from(pinned)] += 1;
                        }
                        Err(error) => panic!("{context}: {error}"),
                    }
                } else if units.begin(&mut daemon, number).unwrap_or(false) {
                    // In steps, between which the work goes on.
                    while daemon.moving().is_some() {
                        let units =
                            HotplugUnits::new(world.machine, MemoryUnit::Section, 0).unwrap();
                        let done = world.migrate(&mut daemon, units, round);
                        world.compare(&format!("{context}: {done:?}"));
                        world.isolated(daemon.moving().map(MemoryUnit::Section), &context);
                        offlined += u64::from(matches!(done, MigrationStep::Emptied { .. }));
                        (0..5).for_each(|_| world.work(goal(round) / 2));
                    }
                }
                world.compare(&context);
                world.isolated(None, &context);
            }
            println!("{format:?} seed {seed}: {:?}", daemon.statistics());
            causes.iter_mut().zip(world.causes).for_each(|(sum, count)| *sum += count);
        });
    }
    println!("offline {offlined}, moved {moved}, reasons {reasons:?}, given up {causes:?}");
    assert!(offlined > 20 && moved > 0 && reasons[0] > 0 && reasons[2] > 0);
    assert!(causes[1] > 0 && causes[2] > 0);
}
