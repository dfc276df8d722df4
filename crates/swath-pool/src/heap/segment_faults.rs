//! Segments that another thread frees while one makes them longer or shorter; and those at a place in physical memory.

extern crate std;

use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;

use crate::options::BufferOptions;
use crate::plain::fixture::{CROWDED, Leaked, leaked};
use crate::source::segment_source::Placement;
use crate::superblock::class::UNIT_BYTES;

const UNITS: usize = 32;

/// The pool's free units, and those that are guarded.
fn held(leaked: &Leaked) -> (u32, usize) {
    leaked.pool.check().unwrap();
    let free = leaked.pool.with_source(|source| source.free.free_units());
    (UNITS as u32 - free, leaked.units.guarded.lock().unwrap().len())
}

/// What was acquired for it goes back, and nothing else; no guard is left. Whether the place is free then, or another's.
#[test]
fn a_segment_that_is_freed_meanwhile_is_not_resized() {
    for (guard_segments, wanted) in [(false, 5), (true, 5), (true, 2), (true, 1)] {
        // By a guard that has just come, whose it is cannot be told.
        for anew in [0, 2].into_iter().filter(|&anew| anew == 0 || wanted > 3) {
            let options = BufferOptions { guard_segments, ..BufferOptions::default() };
            let leaked = leaked(UNITS, 2, options);
            let (mut heap, mut other) =
                (leaked.pool.attach().unwrap(), leaked.pool.attach().unwrap());
            let block = heap.allocate(3 * UNIT_BYTES, 16).unwrap();
            let (pool, address) = (leaked.pool, block.as_ptr().expose_provenance());
            let meanwhile = move || {
                let block = core::ptr::with_exposed_provenance_mut::<u8>(address);
                // SAFETY: not used after.
                unsafe { pool.free(core::ptr::NonNull::new(block).unwrap()).unwrap() };
                if anew != 0 {
                    let size = anew * UNIT_BYTES;
                    let segment = pool.attach().is_none().then(|| other.allocate(size, 16));
                    assert_eq!(segment.unwrap().unwrap().addr().get(), address);
                }
                core::mem::forget(other);
            };
            *leaked.units.meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
            // SAFETY: nothing is written.
            let resized = unsafe { heap.resize_in_place(block, wanted * UNIT_BYTES, 16) };
            assert_eq!(resized, Ok(false), "{wanted} units");
            let guards = usize::from(guard_segments && anew != 0);
            assert_eq!(held(&leaked), ((anew + guards) as u32, guards), "{wanted}, {anew}");
            assert_eq!(pool.stats().live_bytes, (anew * UNIT_BYTES) as u64);
        }
    }
}

/// Units behind a segment that cannot be made usable go back, and others do not.
#[test]
fn a_segment_does_not_grow_into_what_is_unusable() {
    let leaked = leaked(UNITS, 1, BufferOptions::default());
    let mut heap = leaked.pool.attach().unwrap();
    let [_, block] = [5, 3].map(|units| heap.allocate(units * UNIT_BYTES, 16).unwrap());
    leaked.units.unusable.store(true, Relaxed);
    for wanted in [4, 7, 9] {
        // SAFETY: nothing is written.
        let resized = unsafe { heap.resize_in_place(block, wanted * UNIT_BYTES, 16) };
        assert_eq!((resized, held(&leaked)), (Ok(false), (8, 0)), "{wanted} units");
    }
    // Of as many units as it has, or fewer, none is to be made usable.
    for (wanted, held_now) in [(3 * UNIT_BYTES - 1, 8), (3 * UNIT_BYTES, 8), (2 * UNIT_BYTES, 7)] {
        // SAFETY: as above.
        let resized = unsafe { heap.resize_in_place(block, wanted, 16) };
        assert_eq!((resized, held(&leaked)), (Ok(true), (held_now, 0)), "{wanted} bytes");
    }
    leaked.units.unusable.store(false, Relaxed);
    // SAFETY: as above.
    assert_eq!(unsafe { heap.resize_in_place(block, 9 * UNIT_BYTES, 16) }, Ok(true));
    assert_eq!(held(&leaked), (14, 0));
}

/// As long as is asked for, at a place that is asked for; what there is no place for is refused, and costs nothing.
#[test]
fn a_placed_segment_lies_where_it_shall() {
    for guard_segments in [false, true] {
        let options = BufferOptions { guard_segments, ..BufferOptions::default() };
        let leaked = leaked(UNITS, 1, options);
        let (pool, guard) = (leaked.pool, u32::from(guard_segments));
        let place = |units: u64| Placement { align_bytes: units << 16, ..Placement::ANY };
        let placed = |size, units| {
            let placed = pool.allocate_placed(size, &place(units));
            placed.map(|(block, zero)| (block.addr().get() - leaked.base.addr().get(), zero))
        };
        assert_eq!(placed(3 * UNIT_BYTES, 8), Some((0, true)));
        assert_eq!(held(&leaked), (3 + guard, guard as usize));
        assert_eq!(placed(1, 8), Some((8 * UNIT_BYTES, true)));
        assert_eq!(held(&leaked), (4 + 2 * guard, 2 * guard as usize));
        for (size, units) in [(UNIT_BYTES * UNITS, 1), (usize::MAX, 1), (16 * UNIT_BYTES + 1, 16)] {
            assert_eq!(placed(size, units), None, "{size} bytes at {units}");
        }
        let block = leaked.base.map_addr(|at| at.checked_add(8 * UNIT_BYTES).unwrap());
        assert_eq!(pool.usable_size(block), Ok(UNIT_BYTES));
        // SAFETY: not used after.
        unsafe { pool.free(block).unwrap() };
        assert_eq!(placed(UNIT_BYTES, 8), Some((8 * UNIT_BYTES, false)), "written to");
        leaked.units.unusable.store(true, Relaxed);
        assert_eq!(placed(UNIT_BYTES, 16), None);
        assert_eq!(held(&leaked), (4 + 2 * guard, 2 * guard as usize));
    }
}

/// Long segments are kept from the first time on that a thread waits for the lock, until a purge.
#[test]
fn a_purge_ends_the_crowd() {
    let leaked = leaked(UNITS, 1, BufferOptions::default());
    let mut heap = leaked.pool.attach().unwrap();
    let mut kept = || {
        let block = heap.allocate(20 * UNIT_BYTES, 16).unwrap();
        // SAFETY: not used after.
        unsafe { heap.free(block).unwrap() };
        let (held, _) = held(&leaked);
        leaked.pool.purge_all();
        held
    };
    assert_eq!(kept(), 0);
    CROWDED.set(true);
    leaked.pool.check().unwrap();
    CROWDED.set(false);
    assert_eq!((kept(), kept()), (20, 20));
    leaked.pool.purge(0);
    assert_eq!(kept(), 0);
    // As long as others wait, it is known again.
    CROWDED.set(true);
    leaked.pool.purge(u64::MAX);
    assert_eq!(kept(), 20);
    CROWDED.set(false);
}

/// Of longer segments a heap in a crowd keeps no more than 8 MiB; what is too much goes back, and so does the rest of one that
/// was cut.
#[test]
fn what_there_is_no_room_for_goes_back() {
    let leaked = leaked(256, 1, BufferOptions::default());
    let mut heap = leaked.pool.attach().unwrap();
    CROWDED.set(true);
    let free = || leaked.pool.with_source(|source| source.free.free_units());
    let segments = core::array::from_fn::<_, 12, _>(|_| {
        let [segment, wall] = [17, 1].map(|units| heap.allocate(units * UNIT_BYTES, 16).unwrap());
        assert!(segment < wall);
        segment
    });
    assert_eq!(free(), 256 - 12 * 18);
    for (nth, segment) in (1..).zip(segments) {
        // SAFETY: not used after.
        unsafe { heap.free(segment).unwrap() };
        let kept = 7.min(nth);
        assert_eq!(free(), 256 - 12 * 18 + 17 * (nth - kept), "{nth} segments");
        leaked.pool.check().unwrap();
    }
    CROWDED.set(false);
}
