//! A heap's front frees blocks of all units of its superblocks at once, until another thread returns one, and again
//! once that is collected.

use std::ptr::NonNull;

use swath_pool::*;

use crate::support::arena;

/// Slots of the longest superblocks, which have units beside the first.
const LONG: usize = SLOT_BYTES_MAX;

#[test]
fn a_front_frees_in_every_unit_until_a_slot_is_returned() {
    let arena = arena(256, 2, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    // SAFETY: the heap's own slot, which is used by this thread alone.
    let front = unsafe { Front::new(&raw const arena.pool, heap.as_raw()) };
    // Two superblocks of four units, eight slots each.
    let blocks: Vec<NonNull<u8>> = (0..16).map(|_| heap.allocate(LONG, 16).unwrap()).collect();
    let unit_of = |block: NonNull<u8>| (block.addr().get() - arena.base.addr().get()) / UNIT_BYTES;
    let units: std::collections::BTreeSet<_> = blocks.iter().copied().map(unit_of).collect();
    assert_eq!(units.len(), 8, "two slots in each unit");
    // SAFETY: a block in use, taken again below or not used after.
    let free = |block: NonNull<u8>| unsafe { front.free(block.as_ptr()) };
    for &block in &blocks {
        assert_eq!(free(block), Freed::Done, "unit {}", unit_of(block));
        assert_eq!(free(block), Freed::No, "a second free");
        assert_eq!(heap.allocate(LONG, 16), Ok(block), "the last one freed");
        arena.pool.check().unwrap();
    }
    // A thread without a heap returns the second slot of an inner unit.
    let returned = blocks[3];
    // SAFETY: not used after.
    unsafe { arena.pool.free(returned).unwrap() };
    arena.pool.check().unwrap();
    for (nth, &block) in blocks.iter().enumerate().filter(|&(_, block)| *block != returned) {
        let freed = free(block);
        assert_eq!(freed == Freed::Done, nth >= 8, "only the superblock that has one waiting");
        if freed == Freed::Done {
            assert_eq!(heap.allocate(LONG, 16), Ok(block));
        }
    }
    assert_eq!(free(returned), Freed::No);
    // SAFETY: it was freed, which shows.
    assert!(unsafe { heap.free(returned) }.is_err());
    heap.collect();
    arena.pool.check().unwrap();
    for &block in blocks.iter().filter(|&&block| block != returned) {
        match free(block) {
            Freed::Done => {}
            // SAFETY: the front has just said so.
            Freed::Full(slot) if !unsafe { front.put_back(slot) } => heap.settle(slot),
            Freed::Full(_) => {}
            Freed::No => panic!("unit {}", unit_of(block)),
        }
        arena.pool.check().unwrap();
    }
    assert_eq!(arena.pool.stats().live_bytes, 0);
}
