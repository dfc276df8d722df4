//! Every public safe function that reaches a raw pointer, called as badly as safe code can.
//!
//! | function | hostile case |
//! |---|---|
//! | `BufferPool::{usable_size, place_of, contains}` | every kind of wrong address |
//! | `BufferPool::attach`, `LocalHeap::{pool, as_raw}`, `Drop` | a heap that is forgotten, more heaps than slots |
//! | `BufferPool::{check, stats, purge, purge_all, with_source, options}` | a pool without units or heaps; every flip of `flips.rs` |
//! | `LocalHeap::{allocate, allocate_fast, allocate_current, allocate_zeroable}` | every extreme size and alignment |
//! | `LocalHeap::collect` | nothing to collect, again and again |
//! | `Storage` | used before (`errors.rs`); lent twice does not compile: see its documentation |

use std::ptr::NonNull;

use crate::support::{Lock, arena};
use swath_pool::*;

fn wild() -> impl Iterator<Item = NonNull<u8>> {
    let powers = (0..usize::BITS).map(|shift| 1_usize << shift);
    let near = powers.flat_map(|at| [at.wrapping_sub(1), at, at + 1]);
    near.filter_map(|at| NonNull::new(std::ptr::without_provenance_mut(at)))
}

#[test]
fn wild_addresses_are_no_blocks() {
    let arena = arena(8, 1, BufferOptions::default());
    let heap = arena.pool.attach().unwrap();
    for at in wild() {
        assert!(arena.pool.usable_size(at).is_err(), "{at:?}");
        assert!(arena.pool.place_of(at).is_err(), "{at:?}");
        let inside = (arena.base.addr()..arena.base.addr().saturating_add(8 * UNIT_BYTES))
            .contains(&at.addr());
        assert_eq!(arena.pool.contains(at.addr().get()), inside);
    }
    assert_eq!(heap.pool().check(), Ok(()));
}

/// A slot's place names the slot before it in its superblock; a first slot and a segment have none.
#[test]
fn a_place_is_that_of_the_pool() {
    let arena = arena(256, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    for size in [1, 100, 1000, SLOT_BYTES_MAX, SLOT_BYTES_MAX + 1, 300_000] {
        let mut blocks: Vec<_> = (0..20).filter_map(|_| heap.allocate(size, 16).ok()).collect();
        blocks.sort();
        let places: Vec<_> =
            blocks.iter().map(|&block| arena.pool.place_of(block).unwrap()).collect();
        assert!(places.iter().all(|place| place.is_segment == (size > SLOT_BYTES_MAX)));
        let mut with_one_before = 0;
        for (block, place) in blocks.iter().zip(&places) {
            assert_eq!(place.len_bytes, arena.pool.usable_size(*block).unwrap());
            if let Some(before) = place.before {
                with_one_before += 1;
                assert_eq!(before.addr().get() + place.len_bytes, block.addr().get());
                let known = arena.pool.place_of(before);
                assert!(
                    known.is_err() || known == Ok(places[blocks.binary_search(&before).unwrap()])
                );
            }
        }
        assert!(size > SLOT_BYTES_MAX || with_one_before > 0, "{size}");
        assert!(size <= SLOT_BYTES_MAX || with_one_before == 0, "{size}");
        for block in blocks {
            // SAFETY: not used after.
            unsafe { heap.free(block).unwrap() };
            assert!(arena.pool.place_of(block).is_err());
        }
    }
    assert_eq!(heap.pool().check(), Ok(()));
}

#[test]
fn every_extreme_request() {
    let arena = arena(8, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let step = if cfg!(miri) { 9 } else { 1 };
    let shifts = || (0..64).step_by(step);
    let sizes = shifts().flat_map(|shift| [(1_usize << shift) - 1, 1 << shift]).chain([usize::MAX]);
    for size in sizes {
        for align in shifts().map(|shift| 1_usize << shift).chain([0, 3, 24, usize::MAX]) {
            let blocks = [
                heap.allocate(size, align).ok(),
                heap.allocate_zeroable(size, align).ok().map(|(block, _)| block),
                heap.allocate_current(size),
            ];
            for block in blocks.into_iter().flatten() {
                assert!(heap.pool().usable_size(block).unwrap() >= size);
                // SAFETY: not used after.
                unsafe { heap.free(block).unwrap() };
            }
        }
        heap.collect();
        heap.collect();
    }
    assert_eq!(arena.pool.check(), Ok(()));
    assert_eq!(arena.pool.stats().live_bytes, 0);
}

#[test]
fn heaps_that_are_forgotten_keep_their_slots() {
    let arena = arena(8, 2, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let block = heap.allocate(100, 16).unwrap();
    std::mem::forget(heap);
    let other = arena.pool.attach().unwrap();
    assert!(arena.pool.attach().is_none());
    // SAFETY: in use, and not after.
    unsafe { arena.pool.free(block).unwrap() };
    drop(other);
    arena.pool.purge_all();
    assert_eq!(arena.pool.check(), Ok(()));
    assert!(arena.pool.attach().is_some());
}

#[test]
fn a_pool_of_nothing_answers() {
    let storage = Storage {
        superblocks: &mut [],
        returned: &mut [],
        live: &mut [],
        claims: &mut [],
        heaps: &mut [],
        dirty: &mut [],
    };
    let source = FirstFit::new(UNIT_BYTES, 0, [0_u64; 0], false);
    let base = NonNull::new(std::ptr::without_provenance_mut(UNIT_BYTES)).unwrap();
    let options = BufferOptions::default();
    // SAFETY: there are no units.
    let pool: BufferPool<'_, Lock, _> =
        unsafe { BufferPool::new(base, storage, source, options).unwrap() };
    assert!(pool.attach().is_none());
    assert_eq!((pool.check(), pool.purge(7), pool.purge_all()), (Ok(()), 0, 0));
    assert_eq!(pool.stats().held_bytes, 0);
    assert_eq!((pool.options(), pool.with_source(FirstFit::free_units)), (&options, 0));
    assert!(wild().all(|at| !pool.contains(at.addr().get()) && pool.usable_size(at).is_err()));
}
