//! Blocks of frames that move with their content and mappings: single frames,
//! joined and folded superpages, shared between spaces and within one; what that
//! costs; and every access to memory made to fail in turn.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::machine::{Memory, Pool, spec};
use swath_arch::testing::Random;
use swath_arch::{
    Attributes, BusError, Extent, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Vpn,
};
use swath_vm::{
    AddressSpace, Flush, KeptPermissions, MoveError, PageAccess, Pmap, ReverseMap, Site, Sizes,
    SpaceId, Status,
};

/// Tables come from here on.
const POOL: u64 = 0x100;
const POOL_FRAMES: u64 = 64;
/// The frames that move lie from here on; the pages that map them, too.
const FIRST: u64 = 0x1000;
const FRAMES: u64 = 0x1000;
const USER: Attributes = Attributes::USER_DATA;

/// Memory of which the n-th access fails, after another processor was heard.
struct Faulty<'m> {
    memory: &'m Memory,
    fail_in: Cell<u64>,
    accesses: Cell<u64>,
    reads: Cell<u64>,
    other_processor: Cell<Option<&'m dyn Fn()>>,
}

impl<'m> Faulty<'m> {
    fn new(memory: &'m Memory) -> Self {
        let (fail_in, accesses, reads) = Default::default();
        Self { memory, fail_in, accesses, reads, other_processor: Cell::new(None) }
    }

    fn access(&self, addr: PhysAddr, len_bytes: u32) -> Result<(), BusError> {
        self.accesses.set(self.accesses.get() + 1);
        let fail_in = self.fail_in.get();
        self.fail_in.set(fail_in.saturating_sub(1));
        if fail_in != 1 {
            return Ok(());
        }
        if let Some(other) = self.other_processor.get() {
            other();
        }
        Err(BusError { addr, len_bytes })
    }
}

impl PhysMemory for Faulty<'_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        self.reads.set(self.reads.get() + 1);
        self.access(addr, 4).and_then(|()| self.memory.read_u32(addr))
    }
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.reads.set(self.reads.get() + 1);
        self.access(addr, 8).and_then(|()| self.memory.read_u64(addr))
    }
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.access(addr, 4).and_then(|()| self.memory.write_u32(addr, value))
    }
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.access(addr, 8).and_then(|()| self.memory.write_u64(addr, value))
    }
}

type Faulted<'m> = AddressSpace<&'m Faulty<'m>, &'m RefCell<Pool>>;

struct World<'m> {
    faulty: &'m Faulty<'m>,
    spaces: Vec<Faulted<'m>>,
    pmap: Pmap<Vec<u64>>,
    flushes: Vec<(SpaceId, Flush)>,
}

fn site(space: u32, page: u64) -> Site {
    Site { space: SpaceId(space), page: Vpn::new(page) }
}

fn content(frame: u64, word: u64) -> u64 {
    Random::new(frame << 20 | word).word()
}

/// The order of a page that one entry above the leaf tables maps.
fn folded(format: Format) -> Order {
    Order::known(if format == Format::ArmV7 { 8 } else { 9 })
}

impl<'m> World<'m> {
    /// Filled blocks: one frame shared three times; sixteen frames, joined where
    /// the format does that; a superpage made of base pages in one space (whose
    /// table is kept) and made directly in the other, where one of its frames is
    /// mapped alone besides.
    fn new(
        format: Format,
        status: Status,
        faulty: &'m Faulty<'m>,
        pool: &'m RefCell<Pool>,
    ) -> Self {
        let sizes = Sizes::all(format);
        let make = || AddressSpace::with_superpages(format, sizes, faulty, pool, pool).unwrap();
        let frames = Extent::new(Pfn::new(FIRST), FRAMES);
        let words = ReverseMap::words_needed(frames, sizes, status, 3000).unwrap();
        let reverse = ReverseMap::new(frames, sizes, status, vec![0; words]).unwrap();
        let (spaces, pmap) = (vec![make(), make()], Pmap::new(reverse));
        let mut world = Self { faulty, spaces, pmap, flushes: Vec::new() };
        let enter = |world: &mut Self, at, frame: u64, access, full| {
            let spaces = &mut (&mut world.spaces[..], |_, _| ());
            world.pmap.enter(spaces, at, Pfn::new(frame), USER, access, full).unwrap();
        };
        enter(&mut world, site(0, FIRST + 5), FIRST + 5, PageAccess::Read, None);
        enter(&mut world, site(0, FIRST + 77), FIRST + 5, PageAccess::None, None);
        enter(&mut world, site(1, FIRST + 5), FIRST + 5, PageAccess::Write, None);
        for i in 0..16 {
            let frame = FIRST + 32 + i;
            enter(&mut world, site(0, frame), frame, PageAccess::Read, Some(Order::known(4)));
        }
        let order = folded(format);
        let big = FIRST + 0x400;
        for i in 0..order.frames() {
            enter(&mut world, site(0, big + i), big + i, PageAccess::Read, Some(order));
        }
        let spaces = &mut (&mut world.spaces[..], |_, _| ());
        let frames = (Pfn::new(big), order);
        world.pmap.enter_superpage(spaces, site(1, big), frames, USER, PageAccess::Write).unwrap();
        enter(&mut world, site(1, FIRST + 0x800), big + 7, PageAccess::Read, None);
        for frame in FIRST..FIRST + FRAMES {
            let step = if frame < big + order.frames() { 1 } else { 511 };
            for word in (0..512).step_by(step) {
                let at = PhysAddr::new((frame << 12) + 8 * word);
                faulty.memory.write_u64(at, content(frame, word)).unwrap();
            }
        }
        world
    }

    fn move_block(&mut self, from: u64, to: u64, order: Order) -> Result<u64, MoveError> {
        let flushes = &mut self.flushes;
        let spaces = &mut (&mut self.spaces[..], |id, flush| flushes.push((id, flush)));
        self.pmap.move_block(spaces, self.faulty, Pfn::new(from), Pfn::new(to), order)
    }

    fn check(&mut self, context: &str) {
        let spaces = &mut (&mut self.spaces[..], |_, _| ());
        let checked = self.pmap.check(spaces, (0..2).map(SpaceId));
        checked.unwrap_or_else(|error| panic!("{context}: {error}"));
    }

    /// What every page leads to and permits, and its first word.
    fn seen(&self) -> Vec<Option<(u64, u32, Attributes, u64)>> {
        let look = |space: &Faulted<'_>, page| {
            let seen = spec::look(self.faulty.memory, space.regime(), page)?;
            let word = self.faulty.memory.read_u64(PhysAddr::new(seen.frame << 12)).unwrap();
            Some((seen.frame, seen.order, seen.attributes, word))
        };
        let pages = FIRST..FIRST + FRAMES;
        self.spaces.iter().flat_map(|s| pages.clone().map(move |page| look(s, page))).collect()
    }

    fn has_content(&self, frame: u64, at: u64) -> bool {
        let read = |word| self.faulty.memory.read_u64(PhysAddr::new((at << 12) + 8 * word));
        (0..512).all(|word| read(word).unwrap() == content(frame, word))
    }
}

/// The blocks that move: first frame, order, mappings, entries of all of them,
/// and how far down these are, summed.
fn blocks(format: Format) -> [(u64, Order, u64, u64, u64); 3] {
    let levels = format.levels().len() as u64;
    let joined = format != Format::X86_64;
    let many = if joined { (1, 16, levels) } else { (16, 16, 16 * levels) };
    let big = folded(format);
    [
        (FIRST + 5, Order::BASE, 3, 3, 3 * levels),
        (FIRST + 32, Order::known(4), many.0, many.1, many.2),
        (FIRST + 0x400, big, 3, 3, 2 * (levels - 1) + levels),
    ]
}

fn run(format: Format, status: Status, test: impl Fn(&mut World<'_>, (u64, Order, u64, u64, u64))) {
    for block in blocks(format) {
        let memory = Memory::new(0, FIRST + FRAMES);
        let faulty = Faulty::new(&memory);
        let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 24, 3));
        test(&mut World::new(format, status, &faulty, &pool), block);
    }
}

const CASES: [(Format, Status); 5] = [
    (Format::ArmV7, Status::InTable),
    (Format::ArmV8, Status::InReverseMap),
    (Format::ArmV8, Status::InTable),
    (Format::X86_64, Status::InTable),
    (Format::Sv39, Status::InTable),
];

/// Everything is there as before, elsewhere, at the cost that the module says;
/// the TLBs forget each mapping once.
#[test]
fn blocks_move_with_all_that_is_theirs() {
    for (format, status) in CASES {
        run(format, status, |world, (from, order, mappings, entries, depths)| {
            let context = format!("{format:?} {from:#x} {order}");
            let to = FIRST + 0xc00;
            let before = world.seen();
            let marks = |world: &mut World<'_>, frame| {
                let spaces = &mut (&mut world.spaces[..], |_, _| ());
                let frame = Pfn::new(frame);
                (world.pmap.modified(spaces, frame), world.pmap.referenced(spaces, frame))
            };
            let marked = marks(world, from + 3 % order.frames());
            let (reads, accesses) = (world.faulty.reads.get(), world.faulty.accesses.get());
            assert_eq!(world.move_block(from, to, order), Ok(mappings), "{context}");
            let reads = world.faulty.reads.get() - reads;
            let accesses = world.faulty.accesses.get() - accesses;
            let content_words = 512 * order.frames();
            let table_reads = 2 * (depths + entries - mappings);
            assert_eq!(reads, content_words + table_reads, "{context}");
            assert_eq!(accesses - reads, content_words + 2 * entries, "{context}");
            world.check(&context);
            for (i, (before, after)) in before.iter().zip(world.seen()).enumerate() {
                let expected = before.map(|(frame, size, attributes, word)| {
                    let within = frame >= from && frame < from + order.frames();
                    (if within { frame - from + to } else { frame }, size, attributes, word)
                });
                assert_eq!(after, expected, "{context}: page {i:#x}");
            }
            for i in 0..order.frames() {
                assert!(world.has_content(from + i, to + i), "{context}: content of {i}");
            }
            assert_eq!(marks(world, to + 3 % order.frames()), marked, "{context}");
            assert_eq!(marks(world, from), (Ok(false), Ok(false)), "{context}");
            let told: BTreeSet<_> = world
                .flushes
                .iter()
                .map(|(id, flush)| (id.0, flush.range.start.raw(), flush.range.count))
                .collect();
            assert_eq!((told.len(), world.flushes.len()), (mappings as usize, mappings as usize));
            // Its parts are right after a demotion, whatever table was kept for it.
            let range = PageRange::new(Vpn::new(from), 1);
            let spaces = &mut (&mut world.spaces[..], |_, _| ());
            let protection = KeptPermissions { writable: false, executable: false };
            world.pmap.protect(spaces, SpaceId(0), range, protection).unwrap();
            world.check(&context);
            for i in 0..order.frames() {
                let regime = world.spaces[0].regime();
                let seen = spec::look(world.faulty.memory, regime, from + i).unwrap();
                assert_eq!(seen.frame, to + i, "{context}: demoted");
            }
            // And back again.
            world.move_block(to, from, order).unwrap();
            world.check(&context);
        });
    }
}

/// The n-th access fails: no bit of any table, of the content or of the reverse
/// map differs, and the move can be made afterwards.
#[test]
fn a_failure_anywhere_leaves_all_as_it_was() {
    for (format, status) in CASES {
        run(format, status, |world, (from, order, ..)| {
            let to = FIRST + 0xc00;
            let start = world.faulty.accesses.get();
            world.move_block(from, to, order).unwrap();
            let total = world.faulty.accesses.get() - start;
            world.move_block(to, from, order).unwrap();
            let tables = |world: &World<'_>| -> Vec<u64> {
                let words = (POOL << 12..(POOL + POOL_FRAMES) << 12).step_by(8);
                words.map(|at| world.faulty.memory.read_u64(PhysAddr::new(at)).unwrap()).collect()
            };
            let bytes = tables(world);
            let near = total.min(60);
            let failing = (1..=near).chain((near..total).step_by(total as usize / 20 + 1));
            for n in failing.chain(total - near + 1..=total) {
                let context = format!("{format:?} {from:#x} {order}, access {n} of {total}");
                world.faulty.fail_in.set(n);
                let moved = world.move_block(from, to, order);
                assert!(matches!(moved, Err(MoveError::Bus(_))), "{context}: {moved:?}");
                assert_eq!(world.faulty.fail_in.get(), 0);
                assert!(tables(world) == bytes, "{context}: a table differs");
                assert!(world.has_content(from, from), "{context}: the content differs");
                world.check(&context);
            }
            world.faulty.fail_in.set(0);
            world.move_block(from, to, order).unwrap();
        });
    }
}

/// A mapping that was made already is written through by another processor
/// before the next one fails: nothing of what it wrote is lost.
#[test]
fn what_is_written_before_a_failure_is_kept() {
    for (format, status) in CASES {
        let (from, to) = (FIRST + 5, FIRST + 0xc00);
        let memory = Memory::new(0, FIRST + FRAMES);
        let (wrote, regime) = (Cell::new(None), Cell::new(None));
        // It writes wherever its page leads now, if anywhere.
        let other = || {
            let seen = regime.get().and_then(|regime| spec::look(&memory, regime, FIRST + 5));
            wrote.set(seen.map(|seen| seen.frame));
            if let Some(seen) = seen {
                memory.write_u64(PhysAddr::new((seen.frame << 12) + 800), 0x1234).unwrap();
            }
        };
        let faulty = Faulty::new(&memory);
        let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 24, 3));
        let mut world = World::new(format, status, &faulty, &pool);
        regime.set(Some(world.spaces[1].regime()));
        faulty.other_processor.set(Some(&other));
        let at = PhysAddr::new((from << 12) + 800);
        let mut met = 0;
        let total = 2 * (512 + 3 * (1 + format.levels().len() as u64));
        for n in 1..=total {
            memory.write_u64(at, 7).unwrap();
            faulty.fail_in.set(n);
            assert!(world.move_block(from, to, Order::BASE).is_err(), "{format:?}, access {n}");
            let expected = if wrote.get().is_some() { 0x1234 } else { 7 };
            assert_eq!(memory.read_u64(at), Ok(expected), "{format:?}, access {n}");
            met += u64::from(wrote.get() == Some(to));
        }
        assert!(met > 0, "{format:?}: nobody ever wrote to the new frame");
        faulty.other_processor.set(None);
    }
}

/// Hostile requests change nothing and say why.
#[test]
fn refusals() {
    let memory = Memory::new(0, FIRST + FRAMES);
    let faulty = Faulty::new(&memory);
    let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 24, 3));
    let mut world = World::new(Format::X86_64, Status::InTable, &faulty, &pool);
    let before = world.seen();
    let frame = |raw| Pfn::new(raw);
    let (base, big) = (Order::BASE, Order::known(9));
    let end = FIRST + FRAMES;
    for (from, to, order, error) in [
        (FIRST + 1, FIRST, big, MoveError::Misaligned { frame: frame(FIRST + 1), order: big }),
        (FIRST, FIRST + 8, big, MoveError::Misaligned { frame: frame(FIRST + 8), order: big }),
        (FIRST - 1, FIRST, base, MoveError::UnknownFrame { frame: frame(FIRST - 1) }),
        (FIRST + 5, end, base, MoveError::UnknownFrame { frame: frame(end) }),
        (FIRST, 0, Order::MAX, MoveError::Misaligned { frame: frame(FIRST), order: Order::MAX }),
        (FIRST + 5, FIRST + 5, base, MoveError::TargetMapped { frame: frame(FIRST + 5) }),
        (FIRST + 1, FIRST + 5, base, MoveError::TargetMapped { frame: frame(FIRST + 5) }),
        (FIRST + 5, FIRST + 0x403, base, MoveError::TargetMapped { frame: frame(FIRST + 0x403) }),
        (FIRST + 0x403, FIRST, base, MoveError::Superpage { order: big }),
    ] {
        assert_eq!(world.move_block(from, to, order), Err(error));
    }
    // A space that is not there any more; one that was changed behind the pmap's back.
    let mut gone = world.spaces.pop().unwrap();
    let error = MoveError::NoSpace { space: SpaceId(1) };
    assert_eq!(world.move_block(FIRST + 5, FIRST, base), Err(error));
    let _ = gone.unmap(PageRange::new(Vpn::new(FIRST + 5), 1)).unwrap();
    world.spaces.push(gone);
    let error = MoveError::NotMapped { site: site(1, FIRST + 5) };
    assert_eq!(world.move_block(FIRST + 5, FIRST, base), Err(error));
    let mut after = world.seen();
    after[(FRAMES + 5) as usize] = before[(FRAMES + 5) as usize];
    assert!(after == before);
}

/// A page that leaves the group of 16 with which it shares a PV entry needs one of its own.
#[test]
fn a_move_that_lacks_a_pv_entry_changes_nothing() {
    for (format, status) in CASES {
        for (entries, moves) in [(1, false), (2, true)] {
            let memory = Memory::new(0, FIRST + FRAMES);
            let faulty = Faulty::new(&memory);
            let pool = RefCell::new(Pool::new(POOL, POOL_FRAMES, 24, 3));
            let sizes = Sizes::all(format);
            let space = AddressSpace::with_superpages(format, sizes, &faulty, &pool, &pool);
            let frames = Extent::new(Pfn::new(FIRST), FRAMES);
            let words = ReverseMap::words_needed(frames, sizes, status, entries).unwrap();
            let reverse = ReverseMap::new(frames, sizes, status, vec![0; words]).unwrap();
            let (spaces, pmap) = (vec![space.unwrap()], Pmap::new(reverse));
            let mut world = World { faulty: &faulty, spaces, pmap, flushes: Vec::new() };
            for page in [FIRST, FIRST + 1] {
                let spaces = &mut (&mut world.spaces[..], |_, _| ());
                let (at, frame) = (site(0, page), Pfn::new(page));
                world.pmap.enter(spaces, at, frame, USER, PageAccess::Write, None).unwrap();
            }
            assert_eq!(world.pmap.reverse().free_entries(), entries - 1);
            let before = world.seen();
            let moved = world.move_block(FIRST, FIRST + 64, Order::BASE);
            let spaces = &mut (&mut world.spaces[..], |_, _| ());
            world.pmap.check(spaces, [SpaceId(0)].into_iter()).unwrap();
            if moves {
                assert_eq!(moved, Ok(1), "{format:?} {status:?}");
                let lead = |page: u64| world.seen()[(page - FIRST) as usize].map(|seen| seen.0);
                assert_eq!((lead(FIRST), lead(FIRST + 1)), (Some(FIRST + 64), Some(FIRST + 1)));
            } else {
                assert_eq!(moved, Err(MoveError::OutOfEntries), "{format:?} {status:?}");
                assert!(world.seen() == before, "{format:?} {status:?}");
            }
            assert_eq!(world.pmap.reverse().free_entries(), 0);
        }
    }
}
