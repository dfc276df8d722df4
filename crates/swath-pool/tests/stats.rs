//! The counts of what a pool holds, beside what was asked of it.

use std::ptr::NonNull;

use swath_pool::*;

use crate::support::{Heap, arena};

const UNIT: u64 = UNIT_BYTES as u64;

fn allocate(heap: &mut Heap<'_>, size: usize, count: usize) -> Vec<NonNull<u8>> {
    (0..count).map(|_| heap.allocate(size, 16).unwrap()).collect()
}

fn free(heap: &mut Heap<'_>, blocks: impl IntoIterator<Item = NonNull<u8>>) {
    // SAFETY: not used after.
    blocks.into_iter().for_each(|block| unsafe { heap.free(block).unwrap() });
}

/// Numbers of superblocks that are not 0, the shortest class first.
fn held(stats: &BufferStats) -> Vec<u32> {
    stats.superblocks.iter().copied().filter(|&count| count != 0).collect()
}

#[test]
fn stats_count_what_is_held() {
    let arena = arena(256, 3, BufferOptions::default());
    let pool = &arena.pool;
    let empty = pool.stats();
    let nothing = BufferStats {
        live_bytes: 0,
        held_bytes: 0,
        segment_bytes: 0,
        cached_bytes: 0,
        superblocks: [0; CLASSES],
        global_superblocks: 0,
        remote_frees: 0,
        late_double_frees: 0,
        heaps: 0,
    };
    assert_eq!(empty, nothing);
    let mut first = pool.attach().unwrap();
    let mut second = pool.attach().unwrap();
    assert_eq!(pool.stats(), BufferStats { heaps: 2, ..nothing });

    // 128 slots of 512 bytes in a unit.
    let short = allocate(&mut first, 512, 3 * 128 - 5);
    let stats = pool.stats();
    assert_eq!((held(&stats), stats.held_bytes), (vec![3], 3 * UNIT));
    assert_eq!((stats.live_bytes, stats.segment_bytes), (379 * 512, 0));
    let other = allocate(&mut second, 16, 7);
    let stats = pool.stats();
    assert_eq!((held(&stats), stats.held_bytes), (vec![1, 3], 4 * UNIT));
    assert_eq!(stats.live_bytes, 379 * 512 + 7 * 16);
    // A long slot's superblock has several units.
    let long = allocate(&mut second, SLOT_BYTES_MAX, 1);
    let stats = pool.stats();
    assert_eq!(held(&stats), [1, 3, 1]);
    let units = stats.held_bytes / UNIT - 4;
    assert!(units > 1 && stats.held_bytes == (4 + units) * UNIT);
    assert_eq!(stats.live_bytes, 379 * 512 + 7 * 16 + SLOT_BYTES_MAX as u64);
    // Segments, one too long to be kept.
    let segments =
        [allocate(&mut first, 3 * UNIT_BYTES, 1), allocate(&mut second, 20 * UNIT_BYTES - 9, 1)]
            .concat();
    let stats = pool.stats();
    assert_eq!((held(&stats), stats.held_bytes), (vec![1, 3, 1], (27 + units) * UNIT));
    assert_eq!((stats.segment_bytes, stats.cached_bytes), (23 * UNIT, 0));
    assert_eq!(stats.live_bytes, 379 * 512 + 7 * 16 + SLOT_BYTES_MAX as u64 + 23 * UNIT);
    pool.check().unwrap();

    // Of the other heap's slots none is back before it collects them.
    let (returned, kept) = short.split_at(100);
    free(&mut second, returned.iter().copied());
    let stats = pool.stats();
    assert_eq!((stats.remote_frees, stats.global_superblocks), (0, 0));
    assert_eq!(stats.live_bytes, 279 * 512 + 7 * 16 + SLOT_BYTES_MAX as u64 + 23 * UNIT);
    first.collect();
    assert_eq!(pool.stats().remote_frees, 100);
    // What was a segment of the one is kept, of the other free.
    free(&mut first, segments.iter().copied());
    let stats = pool.stats();
    assert_eq!((stats.segment_bytes, stats.cached_bytes), (0, 23 * UNIT));
    assert_eq!(stats.held_bytes, (4 + units) * UNIT);
    assert_eq!(stats.live_bytes, 279 * 512 + 7 * 16 + SLOT_BYTES_MAX as u64);

    // Without its thread a heap's superblocks are the global heap's.
    drop(first);
    let stats = pool.stats();
    assert_eq!((stats.heaps, stats.global_superblocks, held(&stats)), (1, 3, vec![1, 3, 1]));
    free(&mut second, kept[..9].iter().copied());
    // SAFETY: not used after.
    unsafe { pool.free(kept[9]).unwrap() };
    assert_eq!(pool.stats().live_bytes, 269 * 512 + 7 * 16 + SLOT_BYTES_MAX as u64);
    let remote = pool.stats().remote_frees;
    pool.purge_all();
    let stats = pool.stats();
    assert_eq!((remote, stats.remote_frees, stats.cached_bytes), (100, 110, 0));
    assert_eq!((stats.heaps, stats.global_superblocks), (1, 3));
    free(&mut second, kept[10..].iter().copied().chain(other).chain(long));
    drop(second);
    pool.purge_all();
    assert_eq!(pool.stats(), BufferStats { remote_frees: 379, ..nothing });
    pool.check().unwrap();
}

/// A guard is of a segment, and nobody's bytes.
#[test]
fn guards_are_held_and_not_live() {
    let arena = arena(64, 1, BufferOptions { guard_segments: true, ..BufferOptions::default() });
    let mut heap = arena.pool.attach().unwrap();
    let segments = allocate(&mut heap, 5 * UNIT_BYTES, 2);
    let stats = arena.pool.stats();
    assert_eq!((stats.segment_bytes, stats.live_bytes), (12 * UNIT, 10 * UNIT));
    assert_eq!((stats.held_bytes, stats.cached_bytes), (12 * UNIT, 0));
    assert_eq!(arena.pool.usable_size(segments[0]), Ok(5 * UNIT_BYTES));
    free(&mut heap, segments);
    let stats = arena.pool.stats();
    assert_eq!((stats.segment_bytes, stats.live_bytes, stats.held_bytes), (0, 0, 0));
    assert_eq!(stats.cached_bytes, 12 * UNIT);
}

/// An arena of which the last unit is in use.
#[test]
fn stats_count_up_to_the_last_unit() {
    let arena = arena(8, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let blocks = [allocate(&mut heap, 7 * UNIT_BYTES, 1), allocate(&mut heap, 512, 1)].concat();
    let stats = arena.pool.stats();
    assert_eq!((stats.held_bytes, stats.live_bytes), (8 * UNIT, 7 * UNIT + 512));
    arena.pool.check().unwrap();
    free(&mut heap, blocks);
}
