//! Address spaces over the page buddy system: the paper's Fig. 2 and Fig. 7
//! from the allocator to the descriptors, and many spaces on one pool.

use std::cell::RefCell;

use crate::machine::{Memory, coalescings, spec};
use swath_arch::testing::Random;
use swath_arch::{Attributes, Coalescing, ContiguityField, Extent, Format, PageRange, Pfn, Vpn};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap, PageBuddy};
use swath_vm::{AddressSpace, EagerPagingError, MapPagesError};

type Buddy = PageBuddy<Vec<u64>>;

fn buddy(config: BuddyConfig, frames: Extent) -> RefCell<Buddy> {
    let mut areas = [Extent::default(); 1];
    let map = MemoryMap::new(&[ByteRange::of_frames(frames)], &mut areas).unwrap();
    let words = Buddy::storage_words(&map, config);
    RefCell::new(PageBuddy::new(&map, config, vec![0; words]).unwrap())
}

/// Five pages from page 4 on, of six free frames from 16 on: page 5 says
/// Ascend 2 of the binary buddy's block of four (Fig. 2), and Ascend 3 of the
/// page buddy's block of five (Fig. 7); Descend is 1 in both.
#[test]
fn figures_2_and_7() {
    for (config, blocks, ascend) in
        [(BuddyConfig::BBS, vec![(16, 4), (20, 1)], 2), (BuddyConfig::PBS_ARMV7, vec![(16, 5)], 3)]
    {
        let memory = Memory::new(64, 64);
        let data = buddy(config, Extent::new(Pfn::new(16), 6));
        let tables = buddy(BuddyConfig::BBS, Extent::new(Pfn::new(64), 64));
        let coalescing = Coalescing::Pcad(ContiguityField::Beside { bits: 8 });
        let mut space =
            AddressSpace::new(Format::ArmV7, coalescing, &memory, &data, &tables).unwrap();
        let mut taken = vec![];
        let range = PageRange::new(Vpn::new(4), 5);
        space
            .allocate_eager(range, Attributes::USER_DATA, &mut |block| {
                taken.push((block.start.raw(), block.count));
            })
            .unwrap();
        assert_eq!(taken, blocks);
        let seen = spec::look(&memory, space.regime(), 5).unwrap();
        assert_eq!((seen.frame, seen.ascend, seen.descend), (17, ascend, 1));
    }
}

/// Spaces of all formats on one pool, frames and tables alike, until it runs
/// dry, and back.
#[test]
fn spaces_come_and_go() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let total = 3000;
        let memory = Memory::new(1, total);
        let pool = buddy(BuddyConfig::PBS_ARMV7, Extent::new(Pfn::new(1), total));
        let mut spaces = vec![];
        let mut refused = 0;
        for _ in 0..400 {
            if spaces.len() < 5 {
                let format = Format::ALL[random.index(Format::ALL.len())];
                let kinds = coalescings(format);
                let coalescing = kinds[random.below(kinds.len() as u64) as usize];
                let space = AddressSpace::new(format, coalescing, &memory, &pool, &pool);
                spaces.extend(space.map(|space| (space, Vec::<PageRange>::new())));
            }
            if spaces.is_empty() {
                continue;
            }
            let which = random.below(spaces.len() as u64) as usize;
            let (space, mapped) = &mut spaces[which];
            let range =
                PageRange::new(Vpn::new(random.below((1 << 20) - 600)), 1 + random.below(600));
            match random.below(16) {
                0 => drop(spaces.swap_remove(which)),
                1..=9 => {
                    let free = pool.borrow().free_frames();
                    let apart = !mapped.iter().any(|other| other.overlaps(range));
                    match space.allocate_eager(range, Attributes::USER_DATA, &mut |_| ()) {
                        Ok(()) => {
                            assert!(apart);
                            mapped.push(range);
                        }
                        Err(error) => {
                            refused += 1;
                            let dry = matches!(
                                error,
                                EagerPagingError::OutOfFrames { .. }
                                    | EagerPagingError::Map(MapPagesError::NoTable(_))
                            );
                            assert!(dry || !apart, "{error}");
                            assert_eq!(pool.borrow().free_frames(), free);
                        }
                    }
                }
                _ => {
                    if let Some(range) = mapped.pop() {
                        let _ = space.unmap(range).unwrap();
                    }
                }
            }
            let used: u64 = spaces
                .iter()
                .map(|(space, mapped)| {
                    space.check().unwrap();
                    space.table_frames() + mapped.iter().map(|range| range.count).sum::<u64>()
                })
                .sum();
            assert_eq!(pool.borrow().free_frames(), total - used);
            pool.borrow().check().unwrap();
        }
        assert!(refused > 0, "the pool never ran dry");
        drop(spaces);
        assert_eq!(pool.borrow().free_frames(), total);
        pool.borrow().check().unwrap();
    }
}
