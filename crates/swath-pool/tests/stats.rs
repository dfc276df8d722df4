//! The counts of what a pool holds, beside what was asked of it.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use swath_pool::*;

use crate::support::{CROWDED, Heap, arena};

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
    pool.check().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.heaps, stats.global_superblocks, held(&stats)), (1, 3, vec![1, 3, 1]));
    free(&mut second, kept[..9].iter().copied());
    // SAFETY: not used after.
    unsafe { pool.free(kept[9]).unwrap() };
    assert_eq!(pool.stats().live_bytes, 269 * 512 + 7 * 16 + SLOT_BYTES_MAX as u64);
    let remote = pool.stats().remote_frees;
    pool.purge_all();
    pool.check().unwrap();
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

/// What a heap without its thread leaves in part serves the next one, and what it leaves full serves once
/// slots of it come back.
#[test]
fn a_heap_takes_over_what_another_left() {
    let arena = arena(64, 2, BufferOptions::default());
    let pool = &arena.pool;
    let (mut first, mut second) = (pool.attach().unwrap(), pool.attach().unwrap());
    let left = allocate(&mut first, 512, 128 + 60);
    drop(first);
    pool.check().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.global_superblocks, stats.held_bytes), (2, 2 * UNIT));
    let own = allocate(&mut second, 512, 30);
    pool.check().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.global_superblocks, stats.held_bytes), (1, 2 * UNIT));
    // The full one.
    free(&mut second, left[..50].iter().copied());
    let more = allocate(&mut second, 512, 38 + 50);
    pool.check().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.global_superblocks, stats.held_bytes), (0, 2 * UNIT));
    free(&mut second, left[50..].iter().copied().chain(own).chain(more));
    drop(second);
    pool.purge_all();
    pool.check().unwrap();
    assert_eq!(pool.stats().held_bytes, 0);
}

/// What one heap keeps serves another once there is nothing else.
#[test]
fn kept_units_serve_other_heaps() {
    let arena = arena(8, 2, BufferOptions::default());
    let pool = &arena.pool;
    let (mut first, mut second) = (pool.attach().unwrap(), pool.attach().unwrap());
    let kept = allocate(&mut first, 3 * UNIT_BYTES, 1);
    let others = allocate(&mut second, 4 * UNIT_BYTES, 1);
    free(&mut first, kept);
    let short = allocate(&mut second, 512, 1);
    assert_eq!((pool.stats().held_bytes, pool.stats().cached_bytes), (5 * UNIT, 3 * UNIT));
    let shorter = allocate(&mut second, 16, 1);
    assert_eq!((pool.stats().held_bytes, pool.stats().cached_bytes), (6 * UNIT, 2 * UNIT));
    pool.check().unwrap();
    free(&mut second, others.into_iter().chain(short).chain(shorter));
}

/// Memory goes back once it was free for the delay, and a purge before its time does nothing.
#[test]
fn a_purge_waits_for_its_time() {
    let arena = arena(64, 1, BufferOptions { purge_delay: 500, ..BufferOptions::default() });
    let (pool, mut heap) = (&arena.pool, arena.pool.attach().unwrap());
    let long = allocate(&mut heap, 20 * UNIT_BYTES, 1);
    assert_eq!(pool.purge(1000), 0);
    free(&mut heap, long);
    for (now, purged, cached) in
        [(1499, 0, 20), (1500, 0, 20), (1999, 0, 20), (2000, 20, 0), (2500, 0, 0)]
    {
        assert_eq!((pool.purge(now), pool.stats().cached_bytes), (purged, cached * UNIT), "{now}");
    }
}

/// Where threads meet at the lock, a heap keeps segments of up to 4 MiB for itself.
#[test]
fn a_heap_in_a_crowd_keeps_what_is_not_too_long() {
    let arena = arena(256, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    CROWDED.set(true);
    for (units, kept) in [(17, 17), (63, 63), (64, 64), (65, 0), (100, 0)] {
        let segment = allocate(&mut heap, units * UNIT_BYTES, 1);
        free(&mut heap, segment);
        assert_eq!(arena.control.held.load(Relaxed), kept, "{units} units");
        assert_eq!(arena.pool.stats().cached_bytes, units as u64 * UNIT, "{units} units");
        arena.pool.check().unwrap();
        arena.pool.purge_all();
        assert_eq!(arena.control.held.load(Relaxed), 0);
    }
    CROWDED.set(false);
}
