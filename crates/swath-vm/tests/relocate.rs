//! Blocks of frames whose holders and mappings say different sizes: what moves as one, what moves, and what is
//! made smaller.

use std::cell::RefCell;

use crate::machine::{Memory, Pool, spec};
use swath_arch::testing::Random;
use swath_arch::{Attributes, Extent, Format, Order, Pfn, PhysAddr, PhysMemory, Vpn};
use swath_vm::migrate::daemon::{Owners, Stuck};
use swath_vm::migrate::relocate::{Held, Holders, Relocator};
use swath_vm::{AddressSpace, Flush, PageAccess, Pmap, ReverseMap, Site, Sizes, SpaceId, Status};

const POOL: u64 = 0x100;
const FIRST: u64 = 0x1000;
const FRAMES: u64 = 0x1000;
/// Of which holders know.
const KNOWN: u64 = 0x800;
const USER: Attributes = Attributes::USER_DATA;

type Space<'m> = AddressSpace<&'m Memory, &'m RefCell<Pool>>;
type Reached<'b, 'm> = (&'b mut [Space<'m>], &'b mut dyn FnMut(SpaceId, Flush));

/// What is said of each frame, right or wrong, and what was asked.
struct Table {
    held: Vec<Held>,
    moved: Vec<(u64, u64, u32)>,
    split: Vec<(u64, u32)>,
    splits: bool,
}

impl Holders for Table {
    fn held(&self, frame: Pfn) -> Held {
        self.held[(frame.raw() - FIRST) as usize]
    }

    fn moved(&mut self, from: Pfn, to: Pfn, order: Order) {
        self.moved.push((from.raw(), to.raw(), order.k()));
    }

    fn split(&mut self, start: Pfn, order: Order) -> bool {
        self.split.push((start.raw(), order.k()));
        self.splits
    }
}

struct World<'m> {
    memory: &'m Memory,
    pool: &'m RefCell<Pool>,
    spaces: Vec<Space<'m>>,
    pmap: Pmap<Vec<u64>>,
    /// First frame and order of each mapping.
    mappings: Vec<(u64, u32)>,
    table: Table,
}

impl<'m> World<'m> {
    fn new(memory: &'m Memory, pool: &'m RefCell<Pool>) -> Self {
        let format = Format::ArmV8;
        let sizes = Sizes::all(format);
        let make = || AddressSpace::with_superpages(format, sizes, memory, pool, pool).unwrap();
        let frames = Extent::new(Pfn::new(FIRST), FRAMES);
        let words = ReverseMap::words_needed(frames, sizes, Status::InTable, 3000).unwrap();
        let reverse = ReverseMap::new(frames, sizes, Status::InTable, vec![0; words]).unwrap();
        Self {
            memory,
            pool,
            spaces: vec![make(), make()],
            pmap: Pmap::new(reverse),
            mappings: Vec::new(),
            table: Table {
                held: vec![Held::Free; FRAMES as usize],
                moved: Vec::new(),
                split: Vec::new(),
                splits: true,
            },
        }
    }

    /// Maps frames as one page of this order in a space, at the page of the same number.
    fn map(&mut self, space: u32, frame: u64, order: u32) {
        let site = Site { space: SpaceId(space), page: Vpn::new(frame) };
        let spaces = &mut (&mut self.spaces[..], |_, _| ());
        let (pmap, at) = (&mut self.pmap, Pfn::new(frame));
        if order == 0 {
            pmap.enter(spaces, site, at, USER, PageAccess::Read, None).unwrap();
        } else {
            let block = (at, Order::known(order as u8));
            pmap.enter_superpage(spaces, site, block, USER, PageAccess::Read).unwrap();
        }
        self.mappings.push((frame, order));
    }

    /// Says that a block is one of its holder's.
    fn hold(&mut self, start: u64, order: u32) {
        let held = Held::Movable { start: Pfn::new(start), order: Order::known(order as u8) };
        self.table.held[(start - FIRST) as usize..][..1 << order].fill(held);
    }

    fn with<R>(
        &mut self,
        act: impl FnOnce(&mut Relocator<'_, Vec<u64>, Reached<'_, 'm>, Table, Memory>) -> R,
    ) -> R {
        let mut forget = |_, _| ();
        let mut spaces: Reached<'_, 'm> = (&mut self.spaces[..], &mut forget);
        act(&mut Relocator {
            pmap: &mut self.pmap,
            spaces: &mut spaces,
            holders: &mut self.table,
            memory: self.memory,
        })
    }

    fn block(&mut self, frame: u64) -> Result<Option<(u64, u32)>, Stuck> {
        let block = self.with(|owners| owners.block(Pfn::new(frame)));
        block.map(|block| block.map(|(start, order)| (start.raw(), order.k())))
    }

    fn relocate(&mut self, from: u64, to: u64, order: u32) -> Result<bool, Stuck> {
        let order = Order::known(order as u8);
        self.with(|owners| owners.relocate(Pfn::new(from), Pfn::new(to), order))
    }

    fn split(&mut self, start: u64, order: u32) -> Result<bool, Stuck> {
        self.with(|owners| owners.split(Pfn::new(start), Order::known(order as u8)))
    }

    /// The holder's block around a frame, if what it says can be.
    fn said(&self, frame: u64) -> Result<Option<(u64, u32)>, Stuck> {
        match self.table.held[(frame - FIRST) as usize] {
            Held::Free => Ok(None),
            Held::Unmovable => Err(Stuck::Unmovable),
            Held::Pinned => Err(Stuck::Pinned),
            Held::Movable { start, order } => {
                let block = start.raw()..start.raw() + order.frames();
                let is_one = start.raw() % order.frames() == 0 && block.contains(&frame);
                if is_one { Ok(Some((start.raw(), order.k()))) } else { Err(Stuck::Failed) }
            }
        }
    }

    /// What moves as one, by all frames and all mappings.
    fn expected(&self, frame: u64) -> Result<Option<(u64, u32)>, Stuck> {
        let Some((start, order)) = self.said(frame)? else { return Ok(None) };
        let around = |&&(first, k): &&(u64, u32)| (first..first + (1 << k)).contains(&frame);
        let largest = self.mappings.iter().filter(around).max_by_key(|mapping| mapping.1);
        let larger = largest.filter(|&&(_, k)| k > order);
        let Some(&(head, k)) = larger else { return Ok(Some((start, order))) };
        let mut end = head;
        for frame in head..head + (1 << k) {
            if frame == end {
                let Some((start, order)) = self.said(frame)? else { return Err(Stuck::Failed) };
                if start != frame {
                    return Err(Stuck::Failed);
                }
                end += 1 << order;
            }
        }
        Ok(Some((head, k)))
    }
}

fn with_world(test: impl FnOnce(&mut World<'_>)) {
    let memory = Memory::new(0, FIRST + FRAMES);
    let pool = RefCell::new(Pool::new(POOL, 400, 24, 5));
    test(&mut World::new(&memory, &pool));
}

/// Random blocks and mappings, of which most agree.
#[test]
fn blocks_are_what_holders_and_mappings_say() {
    let mut sum = [0; 5];
    for seed in 0..40 {
        let mut random = Random::new(seed);
        with_world(|world| {
            let mut frame = FIRST;
            while frame < FIRST + KNOWN {
                let largest = frame.trailing_zeros().min((FIRST + KNOWN - frame).ilog2());
                let order = [0, 2, 4, 6, 9, 10][random.index(6)].min(largest);
                world.hold(frame, order);
                // Kernel memory, pinned and free frames are few.
                let held = [Held::Free, Held::Unmovable, Held::Pinned];
                if random.one_in(40) {
                    let other = held[random.index(3)];
                    world.table.held[(frame - FIRST) as usize..][..1 << order].fill(other);
                }
                frame += 1 << order;
            }
            // Wrong ones: not aligned, elsewhere, overlapping.
            for _ in 0..random.below(4) {
                let at = random.below(KNOWN);
                let start = Pfn::new(FIRST + at + random.below(4) - 2);
                let order = Order::known(random.below(4) as u8);
                world.table.held[at as usize] = Held::Movable { start, order };
                // One that lies around the frame, but begins in the block before.
                let (at, order) = (8 * random.below(KNOWN / 8) + 4, Order::known(3));
                let start = Pfn::new(FIRST + at - 4);
                world.table.held[at as usize] = Held::Movable { start, order };
            }
            for start in (FIRST..FIRST + KNOWN).step_by(512) {
                if random.one_in(2) {
                    world.map(0, start, 9);
                }
                for part in (start..start + 512).step_by(16) {
                    match random.below(8) {
                        0 => world.map(1, part, 4),
                        1 => world.map(1, part + random.below(16), 0),
                        _ => {}
                    }
                }
            }
            for frame in FIRST..FIRST + KNOWN {
                let expected = world.expected(frame);
                assert_eq!(world.block(frame), expected, "seed {seed}, {frame:#x}");
                sum[match expected {
                    Ok(None) => 0,
                    Ok(Some((start, order))) => {
                        1 + usize::from(world.said(frame) != Ok(Some((start, order))))
                    }
                    Err(Stuck::Failed) => 3,
                    Err(_) => 4,
                }] += 1;
            }
        });
    }
    assert!(sum.iter().all(|&count| count > 100), "{sum:?}");
}

#[test]
fn a_block_moves_if_it_is_still_one() {
    with_world(|world| {
        for (start, order) in [(FIRST, 4), (FIRST + 16, 0), (FIRST + 512, 9)] {
            world.hold(start, order);
        }
        world.map(0, FIRST, 4);
        world.map(1, FIRST + 16, 0);
        world.map(0, FIRST + 512, 9);
        let word = |frame: u64| PhysAddr::new((frame << 12) + 8 * (frame % 512));
        for frame in FIRST..FIRST + 1024 {
            world.memory.write_u64(word(frame), frame).unwrap();
        }
        let to = FIRST + KNOWN;
        // Not what the holder has; nothing changes.
        for (from, order) in [(FIRST, 3), (FIRST + 1, 0), (FIRST + 512, 8), (FIRST + 17, 0)] {
            assert_eq!(world.relocate(from, to, order), Ok(false));
        }
        world.table.held[16] = Held::Pinned;
        assert_eq!(world.relocate(FIRST + 16, to, 0), Err(Stuck::Pinned));
        world.hold(FIRST + 16, 0);
        // A target that is mapped.
        assert_eq!(world.relocate(FIRST + 16, FIRST + 3, 0), Err(Stuck::Failed));
        assert!(world.table.moved.is_empty());
        for (from, order) in [(FIRST, 4), (FIRST + 16, 0), (FIRST + 512, 9)] {
            let space = usize::from(order == 0);
            let regime = world.spaces[space].regime();
            let seen = |world: &World<'_>| spec::look(world.memory, regime, from).unwrap().frame;
            assert_eq!(seen(world), from);
            let to = to + from - FIRST;
            assert_eq!(world.relocate(from, to, order), Ok(true));
            assert_eq!(world.table.moved.pop(), Some((from, to, order)));
            assert_eq!(seen(world), to);
            for i in 0..1 << order {
                let moved = PhysAddr::new(word(from + i).raw() + ((to - from) << 12));
                assert_eq!(world.memory.read_u64(moved), Ok(from + i));
            }
        }
        assert_eq!((world.table.moved.len(), world.table.split.len()), (0, 0));
    });
}

/// What maps a block becomes smaller by one size, and then what its holder has as one.
#[test]
fn a_block_is_split_by_its_mappings_and_by_its_holder() {
    let largest = |world: &World<'_>, frame| {
        let mut largest = None;
        world.pmap.reverse().for_each(Pfn::new(frame), &mut |order, _| {
            largest = largest.max(Some(order));
        });
        largest
    };
    // The holder's block is smaller than the superpage: only that is demoted.
    with_world(|world| {
        for start in (FIRST..FIRST + 512).step_by(8) {
            world.hold(start, 3);
        }
        world.map(0, FIRST, 9);
        assert_eq!(world.split(FIRST, 9), Ok(true));
        assert_eq!(largest(world, FIRST), Some(Order::known(4)));
        assert!(world.table.split.is_empty());
    });
    // As large, or larger and with the same beginning: it is split too.
    for (order, splits) in [(9, true), (9, false), (10, true), (10, false)] {
        with_world(|world| {
            world.table.splits = splits;
            world.hold(FIRST, order);
            world.map(0, FIRST, 9);
            assert_eq!(world.split(FIRST, 9), Ok(splits));
            assert_eq!(largest(world, FIRST), Some(Order::known(4)));
            assert_eq!(world.table.split, [(FIRST, order)]);
        });
    }
    // Larger, but not from here on: what moves is not its holder's.
    with_world(|world| {
        world.hold(FIRST, 10);
        world.map(0, FIRST + 512, 9);
        assert_eq!(world.split(FIRST + 512, 9), Ok(false));
        assert_eq!(largest(world, FIRST + 512), Some(Order::known(4)));
        assert!(world.table.split.is_empty());
    });
    // No longer its holder's.
    for held in [Held::Free, Held::Pinned, Held::Unmovable] {
        with_world(|world| {
            world.table.held[..512].fill(held);
            world.map(0, FIRST, 9);
            assert_eq!(world.split(FIRST, 9), Ok(true));
            assert!(world.table.split.is_empty());
        });
    }
    // No table for it, or one that cannot be written.
    for no_table in [true, false] {
        with_world(|world| {
            world.hold(FIRST, 9);
            world.map(0, FIRST, 9);
            if no_table {
                world.pool.borrow_mut().fail_in = 1;
            } else {
                world.memory.fail_in.set(1);
            }
            assert_eq!(world.split(FIRST, 9), Err(Stuck::Failed));
            assert_eq!(largest(world, FIRST), Some(Order::known(9)));
            assert!(world.table.split.is_empty());
        });
    }
}

/// A kernel's table that says nothing of blocks breaks none up.
#[test]
fn holders_split_nothing_unless_they_say_so() {
    struct Plain;
    impl Holders for Plain {
        fn held(&self, _: Pfn) -> Held {
            Held::Free
        }
        fn moved(&mut self, _: Pfn, _: Pfn, _: Order) {}
    }
    assert!(!Plain.split(Pfn::new(0), Order::known(4)));
}
