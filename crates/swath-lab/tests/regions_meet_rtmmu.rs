//! Real-time regions, software against hardware: what a TLB of the RTMMU owes to an unmapping. Random
//! operations on regions with the RTMMU as their judge are the fuzz target `regions`.

use swath_arch::{Extent, PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory, ValidityTables, Vpn};
use swath_hw::{Geometry, Operation, RtLatency, RtTables, Rtmmu};
use swath_region::{DenseTree, FramePool, Quota, RegionSpace, Rights, dense_tree_words};

/// What a TLB owes to an unmapping, and why it cannot ask the stack instead: the page comes back
/// in the same place of the same region, with another frame.
#[test]
fn a_tlb_that_was_not_told() {
    const TABLES: ValidityTables = ValidityTables::consecutive(8, PhysAddr::new(0));
    let mut words = vec![0; ValidityTables::len_bytes(8) as usize / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let mut links = [0; 8];
    let pool = FramePool::new(Extent::new(Pfn::new(0x1000), 8), &mut links).unwrap();
    let tree = DenseTree::<8, _, _>::new([0; dense_tree_words(8)]);
    let mut space =
        RegionSpace::new(&memory, TABLES, tree, vec![0; 512], &pool, Quota::OPEN).unwrap();
    let tables = RtTables::regions(TABLES).unwrap();
    let tlb = Some(Geometry::fully_associative(8));
    let mut unit = Rtmmu::new(tables, RtLatency::PAPER, tlb).unwrap();
    let word = |base: PhysAddr| memory.read_u32(PhysAddr::new(base.raw() + 4 * 13)).unwrap();
    let place = || (word(TABLES.regions), word(TABLES.helper));
    let (range, page) = (PageRange::new(Vpn::new(10), 6), Vpn::new(13));
    let read = |unit: &mut Rtmmu| {
        let access = unit.access(0, page.address(), Operation::Read, &memory);
        access.result.map(|addr| addr.frame())
    };

    space.map_region(range, Rights::READ).unwrap();
    let frame = space.map_page(page, Rights::READ).unwrap();
    assert_eq!(read(&mut unit), Ok(frame));
    let before = place();
    space.unmap_region(range.start).unwrap();
    assert_eq!(read(&mut unit), Ok(frame), "as hardware that was not told");

    // The frame goes to another region first.
    space.map_region(PageRange::new(Vpn::new(100), 1), Rights::READ).unwrap();
    assert_eq!(space.map_page(Vpn::new(100), Rights::READ), Ok(frame));
    space.map_region(range, Rights::READ).unwrap();
    let other = space.map_page(page, Rights::READ).unwrap();
    assert_ne!(other, frame);
    assert_eq!(place(), before, "the stack says nothing of the change");
    assert_eq!(read(&mut unit), Ok(frame), "somebody else's frame");
    unit.invalidate_pages(range);
    assert_eq!(read(&mut unit), Ok(other));
}
