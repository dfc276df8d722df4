//! Forks while other threads are in the middle of calls: the child has a whole
//! pool.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "the suite uses all of it")]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::*;

use support::{Arena, Block, Heap, arena, size};
use swath_arch::testing::Random;
use swath_pool::*;

/// What the child does with the pool that it finds.
fn live_on<'a>(
    arena: &'a Arena,
    heap: &mut Heap<'a>,
    own: Vec<Block>,
    given: Vec<Block>,
    seed: u64,
) {
    // SAFETY: `before_fork` came before, and there is no other thread.
    unsafe { arena.pool.after_fork_in_child(Some(heap.into())) };
    arena.pool.check().unwrap();
    assert_eq!(arena.pool.stats().heaps, 1);
    for block in own.into_iter().chain(given) {
        assert!(block.intact(block.size));
        // SAFETY: not used after.
        unsafe { heap.free(block.at).unwrap() };
    }
    arena.pool.check().unwrap();
    let mut another = arena.pool.attach().unwrap();
    let mut random = Random::new(seed);
    for heap in [heap, &mut another] {
        let mut blocks = Vec::new();
        for _ in 0..300 {
            let size = size(&mut random).min(20_000);
            blocks.push(Block::fill(heap.allocate(size, 16).unwrap(), size, 7));
        }
        for block in blocks {
            assert!(block.intact(block.size));
            // SAFETY: not used after.
            unsafe { heap.free(block.at).unwrap() };
        }
        heap.collect();
    }
    drop(another);
    arena.pool.purge_all();
    arena.pool.check().unwrap();
}

#[test]
fn the_child_of_a_busy_process_has_a_whole_pool() {
    let arena =
        arena(1024, 4, BufferOptions { slack: 0, empty_eighths: 2, ..BufferOptions::default() });
    let (done, pot) = (AtomicBool::new(false), Mutex::new(Vec::<Block>::new()));
    let mut heap = arena.pool.attach().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (pool, done, pot) = (&arena.pool, &done, &pot);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut heap = pool.attach().unwrap();
                let mut own: Vec<Block> = Vec::new();
                while !done.load(Relaxed) {
                    if own.len() < 200 && random.below(2) == 0 {
                        let size = size(&mut random).min(20_000);
                        let Ok(at) = heap.allocate(size, 16) else { continue };
                        own.push(Block { at, size, seed: 0 });
                    } else if !own.is_empty() {
                        let pick = random.below(own.len() as u64) as usize;
                        let mut block = own.swap_remove(pick);
                        // The other thread's block, as often as there is one.
                        if let Ok(mut pot) = pot.try_lock() {
                            pot.push(block);
                            let pick = random.below(pot.len() as u64) as usize;
                            block = pot.swap_remove(pick);
                        }
                        // SAFETY: not used after.
                        unsafe { heap.free(block.at).unwrap() };
                    }
                }
                for block in own {
                    // SAFETY: not used after.
                    unsafe { heap.free(block.at).unwrap() };
                }
            });
        }
        let mut bad = 0;
        for fork in 0..30 {
            let make = |heap: &mut Heap<'_>| -> Vec<Block> {
                let sizes = [16, 100, 3000, 9000, 300_000];
                let fill = |&size: &usize| Block::fill(heap.allocate(size, 16).unwrap(), size, 9);
                sizes.iter().map(fill).collect()
            };
            let own = make(&mut heap);
            // Blocks of a heap that ends now: the global heap's.
            let given = make(&mut arena.pool.attach().unwrap());
            arena.pool.before_fork();
            // SAFETY: the child calls nothing that another thread may have locked,
            // besides the C library's malloc, which is made for it.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let live = AssertUnwindSafe(|| live_on(&arena, &mut heap, own, given, fork));
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(catch_unwind(live).is_err())) };
            }
            // SAFETY: `before_fork` came before.
            unsafe { arena.pool.after_fork_in_parent() };
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: our child, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            bad += i32::from(status != 0);
            for block in own.into_iter().chain(given) {
                assert!(block.intact(block.size));
                // SAFETY: not used after.
                unsafe { heap.free(block.at).unwrap() };
            }
        }
        done.store(true, Relaxed);
        assert_eq!(bad, 0, "children failed");
    });
    for block in pot.into_inner().unwrap() {
        // SAFETY: not used after.
        unsafe { heap.free(block.at).unwrap() };
    }
    drop(heap);
    arena.pool.purge_all();
    arena.pool.check().unwrap();
    assert_eq!(arena.pool.stats().held_bytes, 0);
}

/// What the child of a fork does, without one: slots of whole words that came back and were not
/// collected, of the heap that lives on and of one that does not, are free afterwards and no others.
#[test]
fn the_child_collects_every_word_that_came_back() {
    // Words of a superblock of 16-byte slots whose slots all come back.
    for words in [vec![], vec![0], vec![1], vec![0, 1], vec![2, 3, 5], vec![6, 7, 8], vec![63]] {
        let arena = arena(64, 3, BufferOptions::default());
        let mut own = arena.pool.attach().unwrap();
        let mut other = arena.pool.attach().unwrap();
        let mut remote = arena.pool.attach().unwrap();
        let mut in_use = 0;
        for heap in [&mut own, &mut other] {
            let blocks: Vec<_> = (0..64 * 64).map(|_| heap.allocate(16, 16).unwrap()).collect();
            let start = blocks[0].addr().get() & !(UNIT_BYTES - 1);
            for &block in &blocks {
                if words.contains(&((block.addr().get() - start) / 16 / 64)) {
                    // SAFETY: not used after.
                    unsafe { remote.free(block).unwrap() };
                } else {
                    in_use += 16;
                }
            }
        }
        arena.pool.before_fork();
        // SAFETY: `before_fork` came before, there is no other thread, and the two other heaps are
        // forgotten.
        unsafe { arena.pool.after_fork_in_child(Some((&mut own).into())) };
        std::mem::forget((other, remote));
        arena.pool.check().unwrap_or_else(|fault| panic!("{words:?}: {fault}"));
        assert_eq!(arena.pool.stats().live_bytes, in_use, "{words:?}");
        assert_eq!(arena.pool.stats().remote_frees, words.len() as u64 * 64, "{words:?}");
        // All that came back is there again: nothing more is asked of the source.
        let held = arena.pool.stats().held_bytes;
        let again = (0..words.len() * 2 * 64).map(|_| own.allocate(16, 16).unwrap());
        assert_eq!(again.count(), words.len() * 2 * 64);
        if words.len() < 60 {
            assert_eq!(arena.pool.stats().held_bytes, held, "{words:?}");
        }
        arena.pool.check().unwrap();
    }
}
