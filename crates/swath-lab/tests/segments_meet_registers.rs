//! Segments of `swath-frame`, written as lists by `swath-vm` and read by the registers of `swath-hw`:
//! the two know each other only by the bytes.

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, PageRange, Pfn, PhysAddr, PhysMemory, SegmentList, SliceMemory};
use swath_arch::{VirtAddr, Vpn};
use swath_frame::segment::{
    Area, AreaSpace, FrameSupply, GlobalBitmap, SegmentAllocator, SegmentRequest,
};
use swath_hw::{SegmentRegisters, Translate};
use swath_vm::{SegmentEntry, SegmentListError, write_segment_list};

const ROOT: PhysAddr = PhysAddr::new(0x5000);

fn entry(start: u64, count: u64, first: u64) -> SegmentEntry {
    let pages = PageRange::new(Vpn::new(start), count);
    SegmentEntry { pages, first: Pfn::new(first), writable: true }
}

#[test]
fn every_frame_of_a_segment_is_where_the_areas_have_it() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut start = random.below(50);
        let areas: Vec<Extent> = (0..1 + random.below(9))
            .map(|_| {
                let area = Extent::new(Pfn::new(start), 1 + random.below(90));
                start = area.end().raw() + random.below(2) * random.below(70);
                area
            })
            .collect();
        let mut storage = vec![Area::default(); areas.len()];
        let space = AreaSpace::new(&areas, Order::BASE, &mut storage).unwrap();
        let words = vec![0; GlobalBitmap::<Vec<u64>>::storage_words(&space)];
        let mut bitmap = GlobalBitmap::<_>::new(space, FrameSupply::PreAllocated, words).unwrap();
        let mut words = vec![0; 8 * 512];
        let memory = SliceMemory::new(Pfn::new(5), &mut words);
        let registers = 1 + random.below(12) as u32;
        let list = SegmentList { root: ROOT };
        let mut unit = SegmentRegisters::new(list, registers).unwrap();
        let mut held = Vec::new();
        for step in 0..20 {
            let request = SegmentRequest::new(1 + random.below(space.total_frames()));
            held.extend(bitmap.allocate(&request).ok());
            held.sort();
            let mut entries = Vec::new();
            for segment in &held {
                let mut page = segment.start;
                for extent in space.extents(*segment) {
                    entries.push(entry(page, extent.count, extent.start.raw()));
                    page += extent.count;
                }
            }
            let bytes = write_segment_list(&memory, ROOT, &entries).unwrap();
            assert_eq!(bytes, SegmentList::len_bytes(entries.len() as u64));
            unit.invalidate_all();
            for frame in 0..space.total_frames() + 3 {
                let found = unit.access(VirtAddr::new(frame << 12), &memory);
                let is_held = held.iter().any(|s| (s.start..s.start + s.count).contains(&frame));
                let expected = space.locate(frame).filter(|_| is_held);
                assert_eq!(
                    found.ok().map(|found| found.addr.frame()),
                    expected.map(|(_, frame)| frame),
                    "seed {seed}, step {step}, frame {frame}"
                );
            }
            if !held.is_empty() && random.below(2) == 0 {
                bitmap.free(held.swap_remove(random.index(held.len()))).unwrap();
            }
        }
    }
}

#[test]
fn lists_that_no_unit_could_read_are_refused() {
    let mut words = vec![0; 512];
    let memory = SliceMemory::new(Pfn::new(5), &mut words);
    let write = |entries: &[SegmentEntry]| write_segment_list(&memory, ROOT, entries);
    assert_eq!(write(&[entry(0, 4, 9), entry(4, 1, 0)]), Ok(96));
    // A list that fails has no entries.
    assert_eq!(memory.read_u64(ROOT), Ok(2));
    for (entries, error) in [
        (vec![entry(0, 0, 9)], SegmentListError::Range { index: 0 }),
        (vec![entry(3, 4, 9), entry(6, 4, 90)], SegmentListError::Order { index: 1 }),
        (vec![entry(3, 4, 9), entry(0, 3, 90)], SegmentListError::Order { index: 1 }),
        (vec![entry((1 << 52) - 1, 2, 9)], SegmentListError::Range { index: 0 }),
        (vec![entry(0, 2, (1 << 52) - 1)], SegmentListError::Range { index: 0 }),
        (vec![entry(u64::MAX, 2, 9)], SegmentListError::Range { index: 0 }),
    ] {
        assert_eq!(write(&entries), Err(error));
        assert_eq!(memory.read_u64(ROOT), Ok(0));
    }
    let many: Vec<SegmentEntry> = (0..128).map(|i| entry(i, 1, i)).collect();
    assert!(matches!(write(&many), Err(SegmentListError::Bus(_))));
    assert_eq!(memory.read_u64(ROOT), Ok(0));
    let root = PhysAddr::new(0x5008);
    let misaligned = write_segment_list(&memory, root, &[]);
    assert_eq!(misaligned, Err(SegmentListError::Misaligned { root }));
}
