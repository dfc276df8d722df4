//! Instructions that a processor fetches: their cache, their time beside the data's, their permission.

use swath_arch::{Coalescing, Format, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr};
use swath_hw::processor::presets::ARMADA_XP;
use swath_hw::{
    Denied, ExceptionCause, Geometry, MemoryAccess, Mmu, Processor, ProcessorConfig, WalkOrder,
};

fn processor(config: &ProcessorConfig) -> Processor<Mmu> {
    let regime =
        Regime { format: Format::ArmV7, root: PhysAddr::new(0), coalescing: Coalescing::None };
    let mmu = Mmu::new(regime, Geometry::fully_associative(16), WalkOrder::default()).unwrap();
    Processor::new(config, mmu).unwrap()
}

/// The core waits for a line of instructions, in the cycle in which it arrives and no longer, and
/// passes a cycle for one that is there; a load under way goes on beside both.
#[test]
fn nothing_overtakes_a_fetch_that_misses() {
    let config = ARMADA_XP.processor();
    let (hit, l2) = (u64::from(config.l1_cycles), u64::from(config.l2_cycles));
    let at = |addr| PhysAddr::new(addr);
    let mut core = processor(&config);
    // The line goes to the second cache, and from there it takes as long as it says.
    core.access_physical(at(0x1000), false).unwrap();
    core.finish().unwrap();
    let now = core.now();
    assert_eq!(core.fetch_physical(at(0x1000)), Ok(now + hit + l2));
    assert_eq!(core.fetch_physical(at(0x101c)), Ok(now + hit + l2 + 1));
    // A fetch behind a load of another line: the load takes a cycle, and so does the fetch.
    let now = core.now();
    assert_eq!(core.access_physical(at(0x8_0000), false), Ok(now + 1));
    assert_eq!(core.fetch_physical(at(0x1004)), Ok(now + 2));
    assert!(core.finish().unwrap() > now + hit + l2, "the load was under way");
    // Of the line that the load brings, a fetch waits for the load.
    let load = core.now();
    core.access_physical(at(0x9_0000), false).unwrap();
    let fetched = core.fetch_physical(at(0x9_0004)).unwrap();
    assert!(fetched > load + hit + l2);
    assert_eq!(core.finish(), Ok(fetched));
    // A blocking core takes the whole time of a hit.
    let mut core = processor(&ProcessorConfig { outstanding_max: 1, ..config });
    let first = core.fetch_physical(at(0x1000)).unwrap();
    assert_eq!(core.fetch_physical(at(0x1008)), Ok(first + hit));
    core.check().unwrap();
}

/// Code and data that would throw each other out of one cache do not out of two.
#[test]
fn instructions_leave_the_data_where_they_are() {
    for (own, data_misses) in [(true, 4), (false, 36)] {
        let mut config = ARMADA_XP.processor();
        // One set of four ways.
        config.l1.len_bytes = 4 * u64::from(config.l1.line_bytes);
        config.l1_instructions = own.then_some(config.l1);
        let mut core = processor(&config);
        for round in 0..9 {
            for line in 0..4 {
                core.access_physical(PhysAddr::new(line << 12), false).unwrap();
            }
            for line in 4..8 {
                core.fetch_physical(PhysAddr::new(line << 12)).unwrap();
            }
            let stats = core.stats();
            assert_eq!((stats.reads, stats.fetches), (4 * (round + 1), 4 * (round + 1)));
        }
        let stats = core.stats();
        let fetched = if own { stats.l1_instructions.misses } else { stats.l1.misses - 36 };
        assert_eq!(fetched, if own { 4 } else { 36 });
        assert_eq!(stats.l1.misses - if own { 0 } else { 36 }, data_misses);
        core.reset_stats();
        assert_eq!(core.stats().l1_instructions, Default::default());
        core.check().unwrap();
    }
}

/// A page may be read and not executed (XN; DDI 0406C, section B3.7.2).
#[test]
fn nothing_is_fetched_from_a_page_without_the_right() {
    let mut words = vec![0; 0x4000 / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let section = |never: u32| 0x10_0000 | 0xc0e | never << 4;
    memory.write_u32(PhysAddr::new(4), section(1)).unwrap();
    let mut core = processor(&ARMADA_XP.processor());
    let at = VirtAddr::new(0x10_0040);
    core.access(&memory, &MemoryAccess::read(at)).unwrap();
    let stopped = core.access(&memory, &MemoryAccess::fetch(at)).unwrap_err();
    assert_eq!(stopped.cause, ExceptionCause::Denied(Denied::Fetch));
    assert!(stopped.to_string().starts_with("fetch at "), "{stopped}");
    memory.write_u32(PhysAddr::new(4), section(0)).unwrap();
    core.invalidate_all();
    core.access(&memory, &MemoryAccess::fetch(at)).unwrap();
    assert_eq!(core.stats().fetches, 1);
}
