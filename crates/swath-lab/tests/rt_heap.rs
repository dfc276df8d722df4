//! The conventional heap over a page table, whose footprint shrinks at its end.

use std::alloc::Layout;

use swath_arch::{Extent, Pfn, PhysAddr, SliceMemory};
use swath_lab::papers::real_time::heap::PoolMemory;
use swath_lab::papers::real_time::table::{DirectTable, TableError};
use swath_lab::papers::real_time::table_heap::TableHeap;

const K: u32 = 10;
const PAGES: u64 = 1 << K;

fn layout(size: u64, align: u64) -> Layout {
    Layout::from_size_align(size as usize, align as usize).unwrap()
}

/// The conventional heap keeps pages until its end is freed, and then takes all of them back.
#[test]
fn the_table_shrinks_at_its_end_only() {
    let mut words = vec![u64::MAX; 4 * PAGES as usize / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let frames = Extent::new(Pfn::new(64), 400);
    let table = DirectTable::new(&memory, PhysAddr::new(0), K, frames).unwrap();
    let mut memory = PoolMemory::new(512, PAGES).unwrap();
    let mut heap = TableHeap::new(table, &mut memory).unwrap();
    let allocate = |heap: &mut TableHeap<'_, _>, id, bytes| {
        let placed = heap.allocate(id, layout(bytes, 16)).unwrap();
        heap.note(id, placed);
        for offset in (0..bytes).step_by(4096) {
            let page = heap.address(id, offset).unwrap().page();
            match heap.fault(page) {
                Ok(()) | Err(TableError::AlreadyMapped { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    for id in 0..4 {
        allocate(&mut heap, id, 40 * 4096);
    }
    let all = heap.table().mapped_pages();
    assert!((160..=163).contains(&all), "{all}");
    for id in [1, 2] {
        let end = heap.forget(id);
        heap.free(id, end).unwrap();
        assert_eq!(heap.table().mapped_pages(), all);
        heap.check().unwrap();
    }
    // The last goes, and with it the two before it that were free.
    let end = heap.forget(3);
    heap.free(3, end).unwrap();
    assert!(heap.table().mapped_pages() <= 43);
    assert_eq!(heap.released().count, heap.released().count.max(119));
    heap.check().unwrap();
    let end = heap.forget(0);
    heap.free(0, end).unwrap();
    assert_eq!(heap.table().mapped_pages(), 2);
    assert_eq!(heap.footprint_pages(), 1);
    heap.check().unwrap();
}
