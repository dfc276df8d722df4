//! Wrong pointers of every kind, refusals of the source at every call, and
//! what an ill-made pool is told.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{Arena, Block, Heap, arena, size};
use swath_arch::testing::Random;
use swath_pool::*;
use swath_pool::{BufferAllocateError, BufferFreeError, BufferResizeError};

fn at(address: usize) -> NonNull<u8> {
    NonNull::new(std::ptr::without_provenance_mut(address)).unwrap()
}

/// All three ways to name a block give the same error, and nothing changes.
fn refused(arena: &Arena, heap: &mut Heap<'_>, address: usize) -> BufferFreeError {
    let before = arena.pool.stats();
    // SAFETY: wrong pointers are refused.
    let error = unsafe { heap.free(at(address)) }.unwrap_err();
    // SAFETY: as above.
    assert_eq!(unsafe { arena.pool.free(at(address)) }, Err(error));
    assert_eq!(arena.pool.usable_size(at(address)), Err(error));
    // SAFETY: as above.
    assert_eq!(unsafe { heap.resize(at(address), 50, 16) }, Err(BufferResizeError::Free(error)));
    assert_eq!(arena.pool.stats(), before);
    arena.pool.check().unwrap();
    error
}

#[test]
fn every_wrong_pointer_is_refused() {
    let arena = arena(256, 2, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let base = arena.base.addr().get();
    let end = base + 256 * UNIT_BYTES;
    for address in [1, 16, base - 1, base - 16, end, end + 16, usize::MAX, isize::MAX as usize] {
        assert_eq!(refused(&arena, &mut heap, address), BufferFreeError::Foreign { address });
    }
    for address in [base, base + 16, base + 17, end - 1] {
        assert_eq!(refused(&arena, &mut heap, address), BufferFreeError::NotAllocated { address });
    }
    for size in [1, 48, 100, 1000, 5000, 8192, 9000, 60_000, 200_000, SLOT_BYTES_MAX, 300_000] {
        let block = heap.allocate(size, 16).unwrap().addr().get();
        let usable = arena.pool.usable_size(at(block)).unwrap();
        for inside in [1, 2, 8, 15, usable / 2, usable - 1] {
            let address = block + inside;
            let error = refused(&arena, &mut heap, address);
            // In a segment's later units nothing is known to begin.
            let far = size > SLOT_BYTES_MAX && inside >= UNIT_BYTES;
            if far {
                assert_eq!(error, BufferFreeError::NotAllocated { address });
            } else {
                assert_eq!(error, BufferFreeError::Misaligned { address });
            }
        }
        // SAFETY: not used after.
        unsafe { heap.free(at(block)).unwrap() };
        assert_eq!(
            refused(&arena, &mut heap, block),
            BufferFreeError::NotAllocated { address: block },
            "{size} bytes"
        );
        if size <= SLOT_BYTES_MAX {
            let next = block + usable;
            assert_eq!(
                refused(&arena, &mut heap, next),
                BufferFreeError::NotAllocated { address: next },
                "a slot never used, of {size} bytes"
            );
        }
    }
}

/// Every address of a superblock of each class, with one slot of two in use.
/// The heap's thread ends when the current word has just become empty.
#[test]
fn a_superblock_given_up_at_a_words_end_serves_the_next_heap() {
    let arena = arena(1, 2, BufferOptions::default());
    let mut first = arena.pool.attach().unwrap();
    let blocks: Vec<_> = (0..64).map(|_| first.allocate(48, 16).unwrap()).collect();
    drop(first);
    let mut second = arena.pool.attach().unwrap();
    let block = second.allocate(48, 16).expect("a whole unit but 64 slots is free");
    assert!(!blocks.contains(&block));
    arena.pool.check().unwrap();
}

#[test]
fn only_slots_in_use_are_blocks() {
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    for size in [16, 48, 112, 176, 1152, 7168, 11_264] {
        let mut blocks = Vec::new();
        let mut used = std::collections::BTreeSet::new();
        while blocks.len() < 40 {
            blocks.push(heap.allocate(size, 16).unwrap());
        }
        for (i, block) in blocks.iter().enumerate() {
            if i % 2 == 0 {
                used.insert(block.addr().get());
            } else {
                // SAFETY: not used after.
                unsafe { heap.free(*block).unwrap() };
            }
        }
        let first = blocks[0].addr().get() & !(UNIT_BYTES - 1);
        for address in first..first + UNIT_BYTES {
            let known = arena.pool.usable_size(at(address));
            assert_eq!(known.is_ok(), used.contains(&address), "{known:?} at {address:#x}");
            if let Err(BufferFreeError::Foreign { .. }) = known {
                panic!("{known:?}");
            }
        }
        for block in used {
            // SAFETY: not used after.
            unsafe { heap.free(at(block)).unwrap() };
        }
        heap.collect();
        assert_eq!(arena.pool.stats().held_bytes, 0);
    }
}

#[test]
fn a_block_freed_elsewhere_is_not_freed_again() {
    let arena = arena(64, 2, BufferOptions::default());
    let (mut here, mut there) = (arena.pool.attach().unwrap(), arena.pool.attach().unwrap());
    for size in [16, 1000, 20_000] {
        let block = here.allocate(size, 16).unwrap();
        let _other = here.allocate(size, 16).unwrap();
        // SAFETY: not used after.
        unsafe { there.free(block).unwrap() };
        let address = block.addr().get();
        let error = BufferFreeError::NotAllocated { address };
        assert_eq!(refused(&arena, &mut there, address), error);
        assert_eq!(refused(&arena, &mut here, address), error);
        // Collected in by the heap that it belongs to, it is still free.
        here.collect();
        assert_eq!(refused(&arena, &mut there, address), error);
        assert_eq!(refused(&arena, &mut here, address), error);
    }
    assert_eq!(arena.pool.stats().remote_frees, 3);
}

#[test]
fn what_cannot_be_is_refused() {
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let block = heap.allocate(10, 16).unwrap();
    for (size, align) in [
        (usize::MAX, 16),
        (isize::MAX as usize, 16),
        (usize::MAX - 15, 1 << 20),
        (1 << 48, 1 << 40),
        (1, 1 << 63),
        (64 * UNIT_BYTES, 16),
        (100, 24),
        (usize::MAX, 0),
    ] {
        let error = BufferAllocateError { size_bytes: size, align_bytes: align };
        assert_eq!(heap.allocate(size, align), Err(error), "{size} at {align}");
        assert_eq!(heap.allocate_zeroable(size, align), Err(error));
        // SAFETY: it stays where it is.
        let resized = unsafe { heap.resize(block, size, align) };
        assert_eq!(resized, Err(BufferResizeError::Allocate(error)));
        arena.pool.check().unwrap();
    }
    assert_eq!(arena.pool.stats().live_bytes, 16);
}

/// Whatever call of the source fails, in turn, the pool goes on and
/// everything can be had again.
#[test]
fn a_source_that_fails_at_any_call_costs_nothing() {
    let work = |fail_in: u64| {
        let arena =
            arena(700, 2, BufferOptions { guard_segments: true, ..BufferOptions::default() });
        let mut heap = arena.pool.attach().unwrap();
        arena.control.fail_in.store(fail_in, Relaxed);
        let mut random = Random::new(7);
        let (mut blocks, mut failures) = (Vec::<Block>::new(), 0);
        for step in 0..250 {
            let size = size(&mut random);
            match random.below(8) {
                0..4 => match heap.allocate(size, 16) {
                    Ok(at) => blocks.push(Block::fill(at, size, step as u8)),
                    Err(_) => failures += 1,
                },
                4 if !blocks.is_empty() => {
                    let pick = random.below(blocks.len() as u64) as usize;
                    let block = &mut blocks[pick];
                    // SAFETY: used only where it lies then.
                    match unsafe { heap.resize(block.at, size, 16) } {
                        Ok(at) => {
                            let moved = Block { at, ..*block };
                            assert!(moved.intact(size));
                            *block = Block::fill(at, size, step as u8);
                        }
                        Err(_) => failures += 1,
                    }
                }
                5 => drop(arena.pool.purge(step * 100)),
                _ if !blocks.is_empty() => {
                    let pick = random.below(blocks.len() as u64) as usize;
                    let block = blocks.swap_remove(pick);
                    assert!(block.intact(block.size));
                    // SAFETY: not used after.
                    unsafe { heap.free(block.at).unwrap() };
                }
                _ => heap.collect(),
            }
            if step % 8 == 0 {
                arena.pool.check().unwrap();
            }
        }
        for block in blocks {
            assert!(block.intact(block.size));
            // SAFETY: not used after.
            unsafe { heap.free(block.at).unwrap() };
        }
        drop(heap);
        arena.control.fail_in.store(0, Relaxed);
        arena.pool.purge_all();
        let stats = arena.pool.stats();
        assert_eq!((stats.held_bytes, stats.cached_bytes), (0, 0), "failing call {fail_in}");
        assert_eq!(arena.control.held.load(Relaxed), 0);
        assert_eq!(arena.control.guarded.load(Relaxed), 0);
        (arena.control.calls.load(Relaxed), failures)
    };
    let (calls, failures) = work(0);
    assert_eq!(failures, 0, "the arena is large enough");
    let mut noticed = 0;
    for call in 1..=calls {
        noticed += work(call).1;
    }
    println!("{calls} calls, {noticed} requests refused");
    assert!(noticed > calls / 8);
}

#[test]
fn an_ill_made_pool_is_refused() {
    use crate::support::Lock;
    let make = |base: usize, [records, lives, claims, words]: [usize; 4], eighths: u32| {
        let mut superblocks: Vec<_> = (0..4).map(|_| Superblock::new()).collect();
        let mut returned: Vec<_> = (0..records).map(|_| Returned::new()).collect();
        let mut live: Vec<_> = (0..lives).map(|_| Live::new()).collect();
        let mut claims: Vec<_> = (0..claims).map(|_| Claim::new()).collect();
        let mut heaps = [HeapSlot::new()];
        let mut dirty = vec![0; words];
        let storage = Storage {
            superblocks: &mut superblocks,
            returned: &mut returned,
            live: &mut live,
            claims: &mut claims,
            heaps: &mut heaps,
            dirty: &mut dirty,
        };
        let source = FirstFit::new(base, 4, [0; 1], false);
        let options = BufferOptions { empty_eighths: eighths, ..BufferOptions::default() };
        // SAFETY: nothing is allocated.
        unsafe { BufferPool::<Lock, _>::new(at(base), storage, source, options) }.err()
    };
    let top = usize::MAX & !(UNIT_BYTES - 1);
    assert_eq!(make(UNIT_BYTES, [4, 4, 4, 3], 7), None);
    assert_eq!(make(100, [4, 4, 4, 3], 7), Some(BufferPoolError::Misaligned { address: 100 }));
    assert_eq!(make(top, [4, 4, 4, 3], 7), Some(BufferPoolError::TooLong { units: 4 }));
    let short = BufferPoolError::ReturnedTooShort { needed: 4, given: 3 };
    assert_eq!(make(UNIT_BYTES, [3, 4, 4, 3], 7), Some(short));
    let short = BufferPoolError::LiveTooShort { needed: 4, given: 3 };
    assert_eq!(make(UNIT_BYTES, [4, 3, 4, 3], 7), Some(short));
    let short = BufferPoolError::ClaimsTooShort { needed: 4, given: 3 };
    assert_eq!(make(UNIT_BYTES, [4, 4, 3, 3], 7), Some(short));
    let short = BufferPoolError::DirtyTooShort { needed: 3, given: 2 };
    assert_eq!(make(UNIT_BYTES, [4, 4, 4, 2], 7), Some(short));
    for eighths in [0, 8] {
        let error = BufferPoolError::Threshold { eighths };
        assert_eq!(make(UNIT_BYTES, [4, 4, 4, 3], eighths), Some(error));
    }
}

/// A pool over tables that another one has used, with heaps that were never detached, knows none of
/// the other's blocks.
#[test]
fn a_pool_on_used_tables_begins_anew() {
    use crate::support::Lock;
    const UNITS: usize = 64;
    let layout = std::alloc::Layout::from_size_align(UNITS * UNIT_BYTES, UNIT_BYTES).unwrap();
    // SAFETY: not of size 0.
    let base = NonNull::new(unsafe { std::alloc::alloc(layout) }).unwrap();
    let mut superblocks: Vec<_> = (0..UNITS).map(|_| Superblock::new()).collect();
    let mut returned: Vec<_> = (0..UNITS).map(|_| Returned::new()).collect();
    let mut live: Vec<_> = (0..UNITS).map(|_| Live::new()).collect();
    let mut claims: Vec<_> = (0..UNITS).map(|_| Claim::new()).collect();
    let mut heaps = [HeapSlot::new(), HeapSlot::new()];
    let mut dirty = vec![u64::MAX; dirty_words(UNITS)];
    let mut old: Vec<NonNull<u8>> = Vec::new();
    for round in 0..3 {
        let storage = Storage {
            superblocks: &mut superblocks,
            returned: &mut returned,
            live: &mut live,
            claims: &mut claims,
            heaps: &mut heaps,
            dirty: &mut dirty,
        };
        let source = FirstFit::new(base.addr().get(), UNITS as u32, [0; 1], false);
        // SAFETY: the arena outlives the pools, of which one is there at a time.
        let pool: BufferPool<'_, Lock, _> =
            unsafe { BufferPool::new(base, storage, source, BufferOptions::default()) }.unwrap();
        pool.check().unwrap();
        assert_eq!((pool.stats().live_bytes, pool.stats().cached_bytes), (0, 0));
        let (mut one, mut two) = (pool.attach().unwrap(), pool.attach().unwrap());
        for &block in &old {
            let address = block.addr().get();
            let error = Err(BufferFreeError::NotAllocated { address });
            // SAFETY: refused.
            unsafe { assert_eq!((one.free(block), pool.free(block)), (error, error)) };
            assert!(pool.usable_size(block).is_err());
        }
        old = (0..200).map(|index| one.allocate(1 + index % 300, 16).unwrap()).collect();
        for &block in &old[..50] {
            // SAFETY: not used after; some come back from another heap.
            unsafe { two.free(block).unwrap() };
        }
        pool.check().unwrap();
        if round == 0 {
            // Attached for ever, as far as the tables say.
            std::mem::forget((one, two));
        }
    }
    // SAFETY: from `alloc` with this layout.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout) };
}

/// What a source does that says nothing of segments, of places, or of memory that it gives back.
#[test]
fn a_plain_source_takes_units_for_all() {
    struct Plain(Vec<(u32, u32)>);
    // SAFETY: it gives nothing that anybody uses.
    unsafe impl SegmentSource for Plain {
        fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
            self.0.push((units, align_units));
            Some(7)
        }
        fn release(&mut self, _: u32, _: u32) {}
        fn purge(&mut self, _: u32, _: u32) -> bool {
            false
        }
    }
    let mut plain = Plain(Vec::new());
    assert_eq!(plain.acquire_segment(3, 2), Some(7));
    assert_eq!(plain.acquire_placed(3, &Placement::default()), None);
    assert!(!plain.extend(7, 3, 1));
    assert!(plain.make_usable().is_none() && !plain.reads_zero());
    assert_eq!(plain.0, [(3, 2)]);
}

/// Units that cannot be made usable go back, and the next ones serve.
#[test]
fn units_that_cannot_be_used_are_not_kept() {
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let segment = heap.allocate(20 * UNIT_BYTES, 16).unwrap();
    arena.control.unusable.store(true, Relaxed);
    for size in [16, 512, SLOT_BYTES_MAX, UNIT_BYTES, 20 * UNIT_BYTES] {
        assert!(heap.allocate(size, 16).is_err(), "{size} bytes");
        assert_eq!(arena.control.held.load(Relaxed), 20);
        arena.pool.check().unwrap();
    }
    // SAFETY: where it is if it did not move.
    assert!(unsafe { heap.resize(segment, 21 * UNIT_BYTES, 16) }.is_err());
    assert_eq!(arena.pool.usable_size(segment), Ok(20 * UNIT_BYTES));
    assert_eq!(arena.control.held.load(Relaxed), 20);
    arena.pool.check().unwrap();
    arena.control.unusable.store(false, Relaxed);
    // SAFETY: as above.
    assert_eq!(unsafe { heap.resize(segment, 21 * UNIT_BYTES, 16) }, Ok(segment));
    let short = heap.allocate(16, 16).unwrap();
    for block in [segment, short] {
        // SAFETY: not used after.
        unsafe { heap.free(block).unwrap() };
    }
    arena.pool.check().unwrap();
}
