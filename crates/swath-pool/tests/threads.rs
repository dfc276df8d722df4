//! The buffer pool under several threads: every byte has one owner at a time.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Barrier, Mutex};

use crate::support::{Block, CROWDED, arena, size};
use swath_arch::testing::Random;
use swath_pool::*;

/// Threads allocate, exchange blocks through a common pot, free their own and
/// others', end and are replaced.
fn exchange(seed: u64, threads: usize, lives: usize, options: BufferOptions) {
    println!("seed {seed}");
    let arena = arena(2048, threads + 1, options);
    let pot = Mutex::new(Vec::<Block>::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (pool, pot) = (&arena.pool, &pot);
                scope.spawn(move || {
                    CROWDED.set(thread % 2 == 0);
                    let mut random = Random::new(seed * 1000 + thread as u64);
                    for _ in 0..lives {
                        let mut heap = pool.attach().unwrap();
                        let mut own = Vec::new();
                        for _ in 0..3000 {
                            match random.below(16) {
                                0..8 => {
                                    let size = size(&mut random).min(100_000);
                                    let Ok(at) = heap.allocate(size, 16) else { continue };
                                    own.push(Block::fill(at, size, random.word() as u8));
                                }
                                8..11 if !own.is_empty() => {
                                    let pick = random.below(own.len() as u64) as usize;
                                    pot.lock().unwrap().push(own.swap_remove(pick));
                                }
                                11..15 => {
                                    let mut pot = pot.lock().unwrap();
                                    if pot.is_empty() {
                                        continue;
                                    }
                                    let pick = random.below(pot.len() as u64) as usize;
                                    let block = pot.swap_remove(pick);
                                    drop(pot);
                                    assert!(block.intact(block.size), "seed {seed}");
                                    // SAFETY: not used after.
                                    unsafe { heap.free(block.at).unwrap() };
                                }
                                _ if !own.is_empty() => {
                                    let pick = random.below(own.len() as u64) as usize;
                                    let block = own.swap_remove(pick);
                                    assert!(block.intact(block.size), "seed {seed}");
                                    // SAFETY: not used after.
                                    unsafe { heap.free(block.at).unwrap() };
                                }
                                _ => heap.collect(),
                            }
                        }
                        // What is left outlives the thread's heap.
                        pot.lock().unwrap().append(&mut own);
                    }
                })
            })
            .collect();
        let (pool, done) = (&arena.pool, &done);
        scope.spawn(move || {
            let mut now = 0;
            while !done.load(Relaxed) {
                now += 1;
                pool.purge(now * 1000);
                let stats = pool.stats();
                assert!(stats.live_bytes <= stats.held_bytes);
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    arena.pool.check().unwrap();
    // Without a heap, too.
    for block in pot.into_inner().unwrap() {
        assert!(block.intact(block.size), "seed {seed}");
        // SAFETY: not used after.
        unsafe { arena.pool.free(block.at).unwrap() };
    }
    arena.pool.check().unwrap();
    arena.pool.purge_all();
    arena.pool.check().unwrap();
    let stats = arena.pool.stats();
    assert_eq!((stats.live_bytes, stats.held_bytes, stats.cached_bytes), (0, 0, 0));
    assert_eq!(stats.late_double_frees, 0);
    assert_eq!(arena.control.held.load(Relaxed), 0);
}

#[test]
fn blocks_change_hands() {
    exchange(1, 4, 3, BufferOptions::default());
    exchange(2, 8, 2, BufferOptions { slack: 0, empty_eighths: 1, ..BufferOptions::default() });
}

#[test]
fn of_frees_by_many_threads_one_succeeds() {
    let arena = arena(64, 5, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    for size in [16, 100, 8192, 100_000, 1 << 20] {
        for _ in 0..200 {
            let blocks: Vec<usize> = (0..8)
                .map_while(|_| heap.allocate(size, 16).ok())
                .map(|at| at.as_ptr().expose_provenance())
                .collect();
            let (barrier, freed) = (Barrier::new(3), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let mut heap = arena.pool.attach().unwrap();
                        barrier.wait();
                        for &block in &blocks {
                            let at = std::ptr::with_exposed_provenance_mut(block);
                            // SAFETY: nobody uses it any more.
                            match unsafe { heap.free(NonNull::new(at).unwrap()) } {
                                Ok(()) => drop(freed.fetch_add(1, Relaxed)),
                                Err(error) => {
                                    assert_eq!(
                                        error,
                                        BufferFreeError::NotAllocated { address: block }
                                    );
                                }
                            }
                        }
                    });
                }
            });
            assert_eq!(freed.into_inner(), blocks.len());
            arena.pool.check().unwrap();
        }
    }
    drop(heap);
    arena.pool.purge_all();
    assert_eq!(arena.pool.stats().held_bytes, 0);
}
