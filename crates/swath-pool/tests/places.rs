//! The places of blocks, whether they may be what somebody says, and resizing them in their place.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use swath_pool::*;
use swath_pool::{BufferAllocateError, BufferFreeError, BufferResizeError};

use crate::support::{Arena, Heap, arena};

/// Sizes of all kinds, each with the units of its segment, if it gets one.
const SIZES: [(usize, usize); 12] = [
    (1, 0),
    (16, 0),
    (17, 0),
    (100, 0),
    (512, 0),
    (1500, 0),
    (9000, 0),
    (SLOT_BYTES_MAX, 0),
    (SLOT_BYTES_MAX + 1, SLOT_BYTES_MAX / UNIT_BYTES + 1),
    (3 * UNIT_BYTES, 3),
    (3 * UNIT_BYTES + 1, 4),
    (20 * UNIT_BYTES - 1, 20),
];

fn free(heap: &mut Heap<'_>, block: NonNull<u8>) {
    // SAFETY: not used after.
    unsafe { heap.free(block).unwrap() };
}

fn inside(block: NonNull<u8>, offset: usize) -> NonNull<u8> {
    NonNull::new(block.as_ptr().wrapping_add(offset)).unwrap()
}

fn usable(arena: &Arena, block: NonNull<u8>) -> usize {
    arena.pool.usable_size(block).unwrap()
}

/// A block may be of all requests that get one as long.
#[test]
fn a_block_may_be_what_gets_one_as_long() {
    for guard_segments in [false, true] {
        let options = BufferOptions { guard_segments, ..BufferOptions::default() };
        let arena = arena(512, 1, options);
        let mut heap = arena.pool.attach().unwrap();
        let blocks = SIZES.map(|(size, _)| heap.allocate(size, 16).unwrap());
        for ((size, units), block) in SIZES.into_iter().zip(blocks) {
            assert_eq!(units * UNIT_BYTES >= size, units > 0);
            for ((other, _), another) in SIZES.into_iter().zip(blocks) {
                let same = usable(&arena, block) == usable(&arena, another);
                // Without room for a superblock of several units a long slot's request gets a segment.
                let is_long = (9000..=SLOT_BYTES_MAX).contains(&other);
                let same = same || (is_long && units == other.div_ceil(UNIT_BYTES));
                assert_eq!(arena.pool.may_be_of(block, other, 16), same, "{size}, {other}");
                assert_eq!(arena.pool.may_be_of(block, other, 1), same, "{size}, {other}");
            }
            // At a multiple of a unit no slot is.
            let aligned = arena.pool.may_be_of(block, size, UNIT_BYTES);
            assert_eq!(aligned, units > 0, "{size}");
            // What is none might be of anything.
            for at in [inside(block, 1), inside(arena.base, 511 * UNIT_BYTES)] {
                assert!(arena.pool.may_be_of(at, size, 16));
            }
        }
        blocks.into_iter().for_each(|block| free(&mut heap, block));
        arena.pool.check().unwrap();
    }
}

/// However a place is asked for.
#[test]
fn places_agree() {
    let arena = arena(512, 2, BufferOptions::default());
    let [mut heap, other] = [arena.pool.attach().unwrap(), arena.pool.attach().unwrap()];
    for (size, units) in SIZES {
        let blocks: Vec<_> = (0..9).map(|_| heap.allocate(size, 16).unwrap()).collect();
        for &block in &blocks {
            let place = arena.pool.place_of(block).unwrap();
            assert_eq!(place.len_bytes, usable(&arena, block));
            assert_eq!(place.is_segment, units > 0);
            assert_eq!(arena.pool.place_of_new(block), Ok(place));
            assert_eq!((heap.place_of(block), heap.place_of_new(block)), (Ok(place), Ok(place)));
            assert_eq!((other.place_of(block), other.place_of_new(block)), (Ok(place), Ok(place)));
            // Of superblocks of one unit.
            let is_short = size <= 1500;
            assert_eq!(heap.place_of_own(block), is_short.then_some(place), "{size}");
            assert_eq!(other.place_of_own(block), None);
            let wrong = inside(block, 1);
            let error = Err(BufferFreeError::Misaligned { address: wrong.addr().get() });
            assert_eq!((heap.place_of(wrong), arena.pool.place_of_new(wrong)), (error, error));
            assert_eq!(heap.place_of_own(wrong), None);
        }
        for block in blocks {
            free(&mut heap, block);
            let address = block.addr().get();
            assert_eq!(heap.place_of(block), Err(BufferFreeError::NotAllocated { address }));
            assert_eq!(heap.place_of_own(block), None);
        }
    }
    arena.pool.check().unwrap();
}

/// What is taken in short is at hand already, and comes with its place.
#[test]
fn short_slots_are_taken_with_their_place() {
    let arena = arena(512, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    for (size, _) in SIZES {
        assert_eq!(heap.take_short(size), None, "{size}: nothing is at hand");
        let block = heap.allocate(size, 16).unwrap();
        let len_bytes = usable(&arena, block);
        free(&mut heap, block);
        let taken = heap.take_short(size);
        if let Some((again, place)) = taken {
            assert_eq!(again, block, "{size}: the last one freed");
            assert_eq!((place.len_bytes, place.is_segment), (len_bytes, false));
            assert_eq!(arena.pool.place_of(again), Ok(place));
            free(&mut heap, again);
        }
        assert_eq!(taken.is_some(), size <= 1500, "{size}");
        heap.collect();
    }
    assert_eq!(heap.take_short(0), None);
    arena.pool.check().unwrap();
}

/// All units of a segment but the last fault, and its own guard is none of them.
#[test]
fn segments_are_guarded_but_for_their_last_unit() {
    for guard_segments in [false, true] {
        let options = BufferOptions { guard_segments, ..BufferOptions::default() };
        let arena = arena(512, 1, options);
        let mut heap = arena.pool.attach().unwrap();
        let own = u64::from(guard_segments);
        for (size, units) in SIZES {
            let block = heap.allocate(size, 16).unwrap();
            let before = arena.control.guarded.load(Relaxed);
            assert_eq!(before, if units > 0 { own } else { 0 });
            let expected = units.saturating_sub(1) * UNIT_BYTES;
            let guarded = || arena.control.guarded.load(Relaxed) - before;
            // SAFETY: not used after.
            let guard = |on| unsafe { arena.pool.guard_segment(block, on) };
            assert_eq!((guard(true), guarded()), (expected, (expected / UNIT_BYTES) as u64));
            assert_eq!((guard(false), guarded()), (expected, 0));
            free(&mut heap, block);
            assert_eq!(guard(true), 0, "free");
            heap.collect();
            assert_eq!(arena.control.guarded.load(Relaxed), 0);
        }
    }
}

/// A segment grows where the units behind it are free, and shrinks always; a slot stays in its class.
#[test]
fn blocks_are_resized_in_their_place() {
    for guard_segments in [false, true] {
        let options = BufferOptions { guard_segments, ..BufferOptions::default() };
        let arena = arena(64, 1, options);
        let mut heap = arena.pool.attach().unwrap();
        let guard = usize::from(guard_segments);
        let block = heap.allocate(9 * UNIT_BYTES, 16).unwrap();
        let wall = heap.allocate(9 * UNIT_BYTES, 16).unwrap();
        assert_eq!(wall.addr().get() - block.addr().get(), (9 + guard) * UNIT_BYTES);
        // SAFETY: nothing is written.
        let mut resize = |size, align| unsafe { heap.resize_in_place(block, size, align) };
        let mut expect = |size: usize, align, done: bool, units: usize| {
            assert_eq!(resize(size, align), Ok(done), "{size} bytes at {align}");
            assert_eq!(usable(&arena, block), units * UNIT_BYTES, "{size} bytes");
            let held = arena.control.held.load(Relaxed);
            assert_eq!(held, (units + 9 + 2 * guard) as u64);
            assert_eq!(arena.control.guarded.load(Relaxed), 2 * guard as u64);
            arena.pool.check().unwrap();
        };
        expect(9 * UNIT_BYTES - 1, 16, true, 9);
        expect(9 * UNIT_BYTES + 1, 16, false, 9);
        expect(5 * UNIT_BYTES, 16, true, 5);
        expect(7 * UNIT_BYTES - 5, UNIT_BYTES, true, 7);
        expect(9 * UNIT_BYTES, 16, true, 9);
        expect(9 * UNIT_BYTES, 1 << 30, block.addr().get().is_multiple_of(1 << 30), 9);
        // What would get a slot does not keep a segment.
        expect(100, 16, false, 9);
        expect(SLOT_BYTES_MAX, 16, false, 9);
        let error = BufferAllocateError { size_bytes: 9, align_bytes: 24 };
        // SAFETY: refused.
        let refused = unsafe { heap.resize_in_place(block, 9, 24) };
        assert_eq!(refused, Err(BufferResizeError::Allocate(error)));
        // The units behind the arena's last are nobody's.
        free(&mut heap, block);
        // SAFETY: nothing is written.
        let grown = unsafe { heap.resize_in_place(wall, 64 * UNIT_BYTES, 16) };
        assert_eq!((grown, usable(&arena, wall)), (Ok(false), 9 * UNIT_BYTES));
        let slot = heap.allocate(100, 16).unwrap();
        for (size, fits) in [(112, true), (113, false), (97, true), (56, false), (1 << 20, false)] {
            // SAFETY: nothing is written.
            let resized = unsafe { heap.resize_in_place(slot, size, 16) };
            // A shorter one may stay where it is as long as it needs more than half.
            assert!(resized == Ok(fits) || size == 56, "{size}: {resized:?}");
        }
        free(&mut heap, slot);
        free(&mut heap, wall);
        heap.collect();
        arena.pool.purge_all();
        assert_eq!(arena.control.held.load(Relaxed), 0);
    }
}

/// The last slots for heaps are left to who does not spare them.
#[test]
fn spared_heaps_are_left() {
    let arena = arena(8, 3, BufferOptions::default());
    let pool = &arena.pool;
    for spared in [3, 4, usize::MAX] {
        assert!(pool.attach_sparing(spared).is_none());
    }
    let first = pool.attach_sparing(2).unwrap();
    assert!(pool.attach_sparing(2).is_none());
    let second = pool.attach_sparing(1).unwrap();
    assert!(pool.attach_sparing(1).is_none());
    let third = pool.attach().unwrap();
    assert!(pool.attach().is_none() && first.as_raw() != second.as_raw());
    drop(first);
    drop(third);
    let again = pool.attach_sparing(2).unwrap();
    assert!(pool.attach_sparing(2).is_none() && pool.attach().is_some());
    assert_eq!(pool.stats().heaps, 2);
    drop((again, second));
}

/// A source that knows no places in physical memory has none.
#[test]
fn a_plain_source_places_nothing() {
    let arena = arena(8, 1, BufferOptions::default());
    assert_eq!(arena.pool.allocate_placed(100_000, &Placement::ANY), None);
    assert_eq!(arena.control.held.load(Relaxed), 0);
}
