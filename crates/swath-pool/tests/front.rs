//! A heap's front frees blocks of all units of its superblocks at once, until another thread returns one, and again
//! once that is collected.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use swath_pool::*;

use crate::support::{Pool, arena};

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
            Freed::Full(slot) => {
                // SAFETY: the front has just said so.
                unsafe { front.put_back(slot, |due| heap.settle(due)) };
            }
            Freed::No => panic!("unit {}", unit_of(block)),
        }
        arena.pool.check().unwrap();
    }
    assert_eq!(arena.pool.stats().live_bytes, 0);
}

/// Where there is no pool yet, nothing is served, and no pointer is taken.
#[test]
fn nobodys_front_serves_and_takes_nothing() {
    let (slot, pool) = (HeapSlot::NOBODYS, Pool::NOTHING);
    // SAFETY: nobody's heap, and no pool.
    let front = unsafe { Front::new(pool.as_ptr(), NonNull::from(&slot)) };
    assert!((0..=SLOT_BYTES_MAX).all(|size| front.allocate(size).is_none()));
    for size in [SLOT_BYTES_MAX + 1, UNIT_BYTES, 16 * UNIT_BYTES, usize::MAX] {
        assert!(front.take_segment(size).is_none(), "{size} bytes");
    }
    for address in [0, 1, 16, 17, UNIT_BYTES, UNIT_BYTES + 1, usize::MAX - 15, usize::MAX] {
        let block = std::ptr::without_provenance_mut(address);
        // SAFETY: none of these is a block, so that none is freed.
        let (freed, returned) = unsafe { (front.free(block), front.free_shared(block)) };
        assert_eq!((freed, returned), (Freed::No, Freed::No), "{address:#x}");
        // SAFETY: as above.
        let ended = address % UNIT_BYTES == 0 && unsafe { front.free_segment(block) };
        assert!(!ended, "{address:#x}");
    }
}

/// A front returns what is in use of another heap, once, in the first unit of a superblock, and frees its own beside what
/// others returned, once; and no other slot of its own, no free one, no segment and nothing between.
#[test]
fn a_front_frees_what_is_shared_alone() {
    let arena = arena(256, 2, BufferOptions::default());
    let [mut heap, other] = [arena.pool.attach().unwrap(), arena.pool.attach().unwrap()];
    // SAFETY: the heaps' own slots, which are used by this thread alone.
    let [own, others] =
        [&heap, &other].map(|heap| unsafe { Front::new(&raw const arena.pool, heap.as_raw()) });
    let [short, beside, long, segment] =
        [100, 100, LONG, 2 * UNIT_BYTES].map(|size| heap.allocate(size, 16).unwrap().as_ptr());
    let returned = |front: Front<'_, '_, _, _>, block| {
        // SAFETY: not used after the free that succeeds.
        let freed = unsafe { front.free_shared(block) };
        assert!(matches!(freed, Freed::No | Freed::Done), "there is room");
        freed == Freed::Done
    };
    for block in [short, beside, long, segment] {
        assert!(!returned(own, block), "its own");
    }
    for block in [short.wrapping_add(1), short.wrapping_add(16), segment] {
        assert!(!returned(others, block), "no slot");
    }
    assert!(returned(others, short) && !returned(others, short), "once");
    assert!(!returned(own, short), "returned already");
    assert!(returned(own, beside) && !returned(own, beside), "once, too");
    assert!(returned(others, long), "the first unit's");
    arena.pool.check().unwrap();
    heap.collect();
    assert!(!returned(others, short), "free");
    // SAFETY: not used after.
    unsafe { heap.free(NonNull::new(segment).unwrap()).unwrap() };
    arena.pool.check().unwrap();
    assert_eq!(arena.pool.stats().live_bytes, 0);
}

/// A front resizes what it would free, to what its caches have: where it is, or elsewhere with its bytes, and the place that
/// is left comes back only after another.
#[test]
fn a_front_resizes_its_own_alone() {
    let arena = arena(256, 2, BufferOptions::default());
    let [mut heap, mut other] = [arena.pool.attach().unwrap(), arena.pool.attach().unwrap()];
    // SAFETY: the heap's own slot, which is used by this thread alone.
    let front = unsafe { Front::new(&raw const arena.pool, heap.as_raw()) };
    let block = heap.allocate(100, 16).unwrap();
    // SAFETY: of so many bytes.
    unsafe { block.write_bytes(7, 100) };
    let resize = |block, size| {
        // SAFETY: used after only where it lies then.
        unsafe { front.resize(block, size) }
    };
    for size in [100, 97, 112, 57] {
        assert_eq!(resize(block, size), Some(block), "{size} bytes in place");
    }
    for size in [0, 300, SLOT_BYTES_MAX + 1, usize::MAX] {
        assert_eq!(resize(block, size), None, "{size} bytes: nothing at hand");
    }
    let long = heap.allocate(300, 16).unwrap();
    let moved = resize(block, 300).unwrap();
    assert!(moved != block && moved != long);
    // SAFETY: of so many bytes, of which so many were written.
    let bytes = unsafe { core::slice::from_raw_parts(moved.as_ptr(), 100) };
    assert!(bytes.iter().all(|&byte| byte == 7));
    assert_eq!(resize(block, 100), None, "free");
    let next = [heap.allocate(100, 16).unwrap(), heap.allocate(100, 16).unwrap()];
    assert_eq!(next[1], block, "the second to come back");
    // Half of it and less moves to a shorter slot.
    let shorter = resize(moved, 100).unwrap();
    assert!(![moved, next[0], next[1]].contains(&shorter));
    let between = NonNull::new(shorter.as_ptr().wrapping_add(16)).unwrap();
    let others = other.allocate(100, 16).unwrap();
    let segment = heap.allocate(2 * UNIT_BYTES, 16).unwrap();
    for wrong in [between, others, segment, moved] {
        assert_eq!(resize(wrong, 100), None);
        assert_eq!(resize(wrong, 300), None);
    }
    // What another thread returned is for the heap to look at, and all beside it.
    // SAFETY: not used after.
    unsafe { other.free(next[0]).unwrap() };
    assert_eq!([resize(next[0], 100), resize(next[1], 100)], [None, None]);
    arena.pool.check().unwrap();
    for block in [shorter, next[1], long, others, segment] {
        // SAFETY: not used after.
        unsafe { heap.free(block).unwrap() };
    }
    // SAFETY: as above.
    assert!(unsafe { heap.free(next[0]) }.is_err(), "returned");
    heap.collect();
    other.collect();
    arena.pool.check().unwrap();
    assert_eq!(arena.pool.stats().live_bytes, 0);
}

/// Short slots that come back one beside the other leave room for the next ones, and those from all over come back one by
/// one. Each is free once.
#[test]
fn a_full_cache_makes_room_where_slots_come_back_in_order() {
    const COUNT: usize = 1600;
    // Each size with the step from one free to the next; 769 reaches all blocks.
    for (size, step) in
        [(16, 1), (64, 1), (128, 1), (144, 1), (200, 1), (64, 769), (500, 1), (5000, 1), (LONG, 1)]
    {
        let arena = arena(2048, 1, BufferOptions::default());
        let mut heap = arena.pool.attach().unwrap();
        // SAFETY: the heap's own slot, which is used by this thread alone.
        let front = unsafe { Front::new(&raw const arena.pool, heap.as_raw()) };
        let blocks: Vec<_> = (0..COUNT).map(|_| heap.allocate(size, 16).unwrap()).collect();
        let mut full = 0;
        for nth in 0..COUNT {
            let block = blocks[nth * step % COUNT].as_ptr();
            // SAFETY: in use, and not used after.
            match unsafe { front.free(block) } {
                Freed::Done => {}
                Freed::Full(slot) => {
                    full += 1;
                    // SAFETY: the front has just said so.
                    unsafe { front.put_back(slot, |due| heap.settle(due)) };
                }
                Freed::No => panic!("{size} bytes, the free {nth}"),
            }
            // SAFETY: it was freed, which shows.
            assert_eq!(unsafe { front.free(block) }, Freed::No, "{size} bytes, twice");
            arena.pool.check().unwrap();
        }
        let comes_in_order = size <= 128 && step == 1;
        assert_eq!(full < COUNT / 4, comes_in_order, "{size} bytes by {step}: {full} of {COUNT}");
        heap.collect();
        arena.pool.check().unwrap();
        assert_eq!(arena.pool.stats().live_bytes, 0);
    }
}

/// A front keeps a short segment of its heap's, once, and serves it to who wants as many units; it keeps none that has a
/// guard, and no other unit.
#[test]
fn a_front_keeps_a_segment_and_serves_it() {
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    // SAFETY: the heap's own slot, which is used by this thread alone.
    let front = unsafe { Front::new(&raw const arena.pool, heap.as_raw()) };
    let [short, segment] = [100, 6 * UNIT_BYTES].map(|size| heap.allocate(size, 16).unwrap());
    // SAFETY: not used after, if it was one.
    let keep = |block: NonNull<u8>| unsafe { front.free_segment(block.as_ptr()) };
    let second = NonNull::new(segment.as_ptr().wrapping_add(UNIT_BYTES)).unwrap();
    let slots = NonNull::new(short.as_ptr().map_addr(|at| at - at % UNIT_BYTES)).unwrap();
    assert_eq!([second, slots].map(keep), [false; 2]);
    assert!(keep(segment) && !keep(segment), "once");
    arena.pool.check().unwrap();
    assert_eq!(arena.pool.stats().cached_bytes, 6 * UNIT_BYTES as u64);
    for other in [5 * UNIT_BYTES, 6 * UNIT_BYTES + 1, 7 * UNIT_BYTES] {
        assert!(front.take_segment(other).is_none(), "{other} bytes");
    }
    for size in [5 * UNIT_BYTES + 1, 6 * UNIT_BYTES] {
        assert_eq!(front.take_segment(size), Some(segment), "{size} bytes");
        assert_eq!(front.take_segment(size), None);
        assert_eq!(arena.pool.usable_size(segment), Ok(6 * UNIT_BYTES));
        assert!(keep(segment));
    }
    // So does the heap itself.
    assert_eq!(front.take_segment(6 * UNIT_BYTES), Some(segment));
    // SAFETY: not used after.
    unsafe { heap.free(segment).unwrap() };
    assert_eq!(front.take_segment(6 * UNIT_BYTES), Some(segment));
    arena.pool.check().unwrap();
}

#[test]
fn a_front_keeps_no_segment_with_a_guard() {
    let arena = arena(64, 1, BufferOptions { guard_segments: true, ..BufferOptions::default() });
    let mut heap = arena.pool.attach().unwrap();
    // SAFETY: the heap's own slot, which is used by this thread alone.
    let front = unsafe { Front::new(&raw const arena.pool, heap.as_raw()) };
    let segment = heap.allocate(3 * UNIT_BYTES, 16).unwrap();
    // SAFETY: it is not freed.
    assert!(!unsafe { front.free_segment(segment.as_ptr()) });
    // SAFETY: not used after.
    unsafe { heap.free(segment).unwrap() };
    assert!(front.take_segment(3 * UNIT_BYTES).is_none());
    arena.pool.check().unwrap();
}

/// Where half of a slot and less is used, a shorter one serves.
#[test]
fn a_block_moves_once_half_of_its_slot_is_enough() {
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    // SAFETY: the heap's own slot, which is used by this thread alone.
    let front = unsafe { Front::new(&raw const arena.pool, heap.as_raw()) };
    let [block, shorter] = [112, 64].map(|size| heap.allocate(size, 16).unwrap());
    // SAFETY: used after only where it lies then.
    let resize = |size| unsafe { front.resize(block, size) };
    assert_eq!(resize(57), Some(block));
    let moved = resize(56).unwrap();
    assert!(moved != block && moved != shorter);
    assert_eq!(arena.pool.usable_size(moved), Ok(64));
    assert_eq!(resize(56), None, "free");
    arena.pool.check().unwrap();
}

/// What a cache or the current superblock has, or a kept segment, is served without anything else.
#[test]
fn a_heap_serves_what_is_current() {
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    assert!((0..=SLOT_BYTES_MAX).all(|size| heap.allocate_current(size).is_none()));
    assert_eq!(arena.pool.stats().held_bytes, 0);
    let block = heap.allocate(512, 16).unwrap();
    let mut blocks = vec![block];
    blocks.extend(core::iter::from_fn(|| heap.allocate_current(512)));
    assert_eq!(blocks.len(), 128, "all of the unit's slots");
    assert_eq!(arena.pool.stats().held_bytes, UNIT_BYTES as u64);
    assert_eq!(heap.allocate_current(0), None);
    let segment = heap.allocate(6 * UNIT_BYTES, 16).unwrap();
    assert_eq!(heap.allocate_current(6 * UNIT_BYTES), None);
    // SAFETY: not used after.
    unsafe { heap.free(segment).unwrap() };
    assert_eq!(heap.allocate_current(6 * UNIT_BYTES), Some(segment));
    arena.pool.check().unwrap();
}

/// What was gathered from a heap leaves it room to keep others.
#[test]
fn a_heap_keeps_segments_again_once_its_own_were_gathered() {
    let arena = arena(256, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    // SAFETY: the heap's own slot, which is used by this thread alone.
    let front = unsafe { Front::new(&raw const arena.pool, heap.as_raw()) };
    let mut segments: Vec<_> =
        (0..33).map(|_| heap.allocate(6 * UNIT_BYTES, 16).unwrap()).collect();
    for _ in 0..3 {
        for segment in segments.split_off(segments.len() - 11) {
            // SAFETY: not used after.
            unsafe { heap.free(segment).unwrap() };
        }
        assert_eq!(arena.control.held.load(Relaxed), (segments.len() as u64 + 10) * 6, "64 units");
        arena.pool.check().unwrap();
        arena.pool.purge_all();
        assert_eq!(arena.control.held.load(Relaxed), segments.len() as u64 * 6);
    }
    assert!(front.take_segment(6 * UNIT_BYTES).is_none());
    arena.pool.check().unwrap();
}

/// Two slots that lie in words of the same number, counted otherwise than each superblock counts, come back to their own.
#[test]
fn slots_side_by_side_in_a_cache_come_back_to_their_own() {
    for (size, slots, below) in [(16, 4096, 1), (160, 409, 103)] {
        let arena = arena(64, 1, BufferOptions::default());
        let mut heap = arena.pool.attach().unwrap();
        let mut blocks: Vec<_> = (0..2 * slots).map(|_| heap.allocate(size, 16).unwrap()).collect();
        blocks.sort_unstable();
        let start = arena.base.addr().get();
        assert_eq!(blocks[below].addr().get(), start + below * size);
        assert_eq!(blocks[slots].addr().get(), start + UNIT_BYTES);
        for block in [blocks[below], blocks[slots]] {
            // SAFETY: not used after.
            unsafe { heap.free(block).unwrap() };
        }
        drop(heap);
        arena.pool.check().unwrap();
        assert_eq!(arena.pool.stats().live_bytes, ((2 * slots - 2) * size) as u64);
    }
}

/// Slots of superblocks of which others wait to be collected come back, to a cache with room and to a full one.
#[test]
fn slots_beside_returned_ones_come_back() {
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let blocks: Vec<_> = (0..3 * 128).map(|_| heap.allocate(512, 16).unwrap()).collect();
    for &block in blocks.iter().step_by(128) {
        // SAFETY: not used after.
        unsafe { arena.pool.free(block).unwrap() };
    }
    for (nth, &block) in blocks.iter().enumerate().filter(|(nth, _)| nth % 128 != 0) {
        // SAFETY: not used after.
        unsafe { heap.free(block).unwrap() };
        arena.pool.check().unwrap_or_else(|fault| panic!("{nth}: {fault}"));
    }
    assert_eq!(arena.pool.stats().live_bytes, 0);
}

/// What was gathered leaves a heap room to keep the units of its superblocks, too.
#[test]
fn a_heap_keeps_superblocks_again_once_its_own_were_gathered() {
    let arena = arena(128, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let mut blocks: Vec<_> = (0..80 * 128).map(|_| heap.allocate(512, 16).unwrap()).collect();
    for _ in 0..2 {
        for block in blocks.split_off(blocks.len() - 40 * 128) {
            // SAFETY: not used after.
            unsafe { heap.free(block).unwrap() };
        }
        arena.pool.check().unwrap();
        assert!(arena.pool.stats().cached_bytes >= 30 * UNIT_BYTES as u64);
        arena.pool.purge_all();
        arena.pool.check().unwrap();
    }
    drop(heap);
    arena.pool.purge_all();
    assert_eq!((arena.pool.stats().held_bytes, arena.control.held.load(Relaxed)), (0, 0));
}
