//! The buffer pool's returns under the model checker: every interleaving of a
//! few threads, against owners that migrate, end and are replaced.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p swath-pool --release --test
//! loom`. In this build a superblock has at most 128 slots.
#![cfg(loom)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::OnceLock;

use lock_api::{GuardSend, RawMutex};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use swath_pool::*;

/// A lock whose waiting threads stand still: the checker need not look at
/// every turn of a spinning one. Its parts cannot be made in a constant, so
/// they are made at the first use.
struct LoomLock(OnceLock<(Mutex<bool>, Condvar)>);

impl LoomLock {
    fn parts(&self) -> &(Mutex<bool>, Condvar) {
        self.0.get_or_init(|| (Mutex::new(false), Condvar::new()))
    }
}

// All threads see one mutex, filled once: the checker runs them in turn on one thread.
// SAFETY: `lock` and `try_lock` return only where they changed the flag from false to true
// under the checker's mutex, which nobody can again until `unlock` stores false; that mutex
// orders what is inside.
unsafe impl RawMutex for LoomLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(OnceLock::new());
    type GuardMarker = GuardSend;

    fn lock(&self) {
        let (flag, freed) = self.parts();
        let mut held = flag.lock().unwrap();
        while *held {
            held = freed.wait(held).unwrap();
        }
        *held = true;
    }

    /// As if it were always taken: heaps keep segments from the start.
    fn try_lock(&self) -> bool {
        false
    }

    unsafe fn unlock(&self) {
        let (flag, freed) = self.parts();
        *flag.lock().unwrap() = false;
        freed.notify_one();
    }
}

type Pool = BufferPool<'static, LoomLock, FirstFit<[u64; 1]>>;

/// A pool over an arena without memory, which it never touches.
struct Checked {
    pool: Option<Pool>,
    superblocks: *mut [Superblock],
    returned: *mut [Returned],
    live: *mut [Live],
    claims: *mut [Claim],
    heaps: *mut [HeapSlot],
    dirty: *mut [u64],
}

// SAFETY: the pointers are only used by `drop`.
unsafe impl Send for Checked {}
// SAFETY: as above.
unsafe impl Sync for Checked {}

const BASE: usize = 1 << 24;

impl Checked {
    fn new(units: usize, heaps: usize, options: BufferOptions) -> Arc<Self> {
        let superblocks = Box::into_raw((0..units).map(|_| Superblock::new()).collect());
        let returned = Box::into_raw((0..units).map(|_| Returned::new()).collect());
        let live = Box::into_raw((0..units).map(|_| Live::new()).collect());
        let claims = Box::into_raw((0..units).map(|_| Claim::new()).collect());
        let heaps = Box::into_raw((0..heaps).map(|_| HeapSlot::new()).collect());
        let dirty = Box::into_raw(vec![0; dirty_words(units)].into_boxed_slice());
        // SAFETY: boxes until `drop`, after the pool.
        let storage = unsafe {
            Storage {
                superblocks: &mut *superblocks,
                returned: &mut *returned,
                live: &mut *live,
                claims: &mut *claims,
                heaps: &mut *heaps,
                dirty: &mut *dirty,
            }
        };
        let base = NonNull::new(std::ptr::without_provenance_mut(BASE)).unwrap();
        let source = FirstFit::new(BASE, units as u32, [0; 1], false);
        // SAFETY: nobody touches the memory that is handed out.
        let pool = unsafe { BufferPool::new(base, storage, source, options).unwrap() };
        Arc::new(Self { pool: Some(pool), superblocks, returned, live, claims, heaps, dirty })
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    /// At rest nothing is held and all invariants hold.
    fn expect_empty(&self) {
        self.pool().check().unwrap();
        self.pool().purge_all();
        self.pool().check().unwrap();
        let stats = self.pool().stats();
        assert_eq!((stats.live_bytes, stats.held_bytes, stats.late_double_frees), (0, 0, 0));
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        drop(self.pool.take());
        // SAFETY: from boxes, and the pool is gone.
        unsafe {
            drop(Box::from_raw(self.superblocks));
            drop(Box::from_raw(self.returned));
            drop(Box::from_raw(self.live));
            drop(Box::from_raw(self.claims));
            drop(Box::from_raw(self.heaps));
            drop(Box::from_raw(self.dirty));
        }
    }
}

/// A block on its way to another thread.
#[derive(Clone, Copy)]
struct Sent(NonNull<u8>);

// SAFETY: nobody reads or writes what it leads to.
unsafe impl Send for Sent {}

impl Sent {
    fn free(self, checked: &Checked) -> Result<(), BufferFreeError> {
        // SAFETY: not used after.
        unsafe { checked.pool().free(self.0) }
    }
}

/// Frees `block` in a thread of its own that has no heap.
fn free_there(
    checked: &Arc<Checked>,
    block: Sent,
) -> thread::JoinHandle<Result<(), BufferFreeError>> {
    let checked = Arc::clone(checked);
    thread::spawn(move || block.free(&checked))
}

/// Runs `body` in every interleaving of its threads with at most `bound` preemptions, with plain loads and
/// with ordered ones ([`order_loads`]); returns in how many each outcome came about.
fn explore<T: Copy + Ord + Debug + Send + 'static>(
    bound: Option<usize>,
    body: impl Fn() -> T + Send + Sync + 'static,
) -> BTreeMap<T, u64> {
    let outcomes = std::sync::Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let body = std::sync::Arc::new(body);
    for ordered in [false, true] {
        order_loads(ordered);
        let (body, counted) = (std::sync::Arc::clone(&body), std::sync::Arc::clone(&outcomes));
        let before: u64 = counted.lock().unwrap().values().sum();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = bound;
        // Free bits are the checker's, and are looked at word by word.
        builder.max_branches = 10_000;
        builder.check(move || {
            let outcome = body();
            *counted.lock().unwrap().entry(outcome).or_insert(0_u64) += 1;
        });
        let after: u64 = outcomes.lock().unwrap().values().sum();
        let loads = if ordered { "ordered" } else { "plain" };
        println!("{} interleavings with {loads} loads", after - before);
    }
    let outcomes = outcomes.lock().unwrap().clone();
    println!("{outcomes:?}");
    outcomes
}

/// Eight slots to a superblock.
const LONG: usize = 8192;
/// 128 slots, in two words.
const SHORT: usize = 512;

/// A superblock goes to the global heap as soon as one of its slots is free.
const EAGER: BufferOptions =
    BufferOptions { empty_eighths: 1, slack: 0, purge_delay: 0, guard_segments: false };

/// Two slots come back while their owner, who is out of slots, looks for some.
#[test]
fn a_return_meets_the_owner() {
    let outcomes = explore(Some(3), || {
        let checked = Checked::new(2, 1, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let blocks: Vec<Sent> = (0..8).map(|_| Sent(heap.allocate(LONG, 16).unwrap())).collect();
        let there = [free_there(&checked, blocks[0]), free_there(&checked, blocks[1])];
        let more = [heap.allocate(LONG, 16).unwrap(), heap.allocate(LONG, 16).unwrap()];
        let collected = blocks[..2].iter().filter(|block| more.contains(&block.0)).count();
        there.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        checked.pool().check().unwrap();
        assert_eq!(checked.pool().stats().live_bytes, 8 * LONG as u64);
        for block in blocks[2..].iter().map(|block| block.0).chain(more) {
            // SAFETY: not used after.
            unsafe { heap.free(block).unwrap() };
        }
        heap.collect();
        drop(heap);
        checked.expect_empty();
        collected
    });
    assert!((0..=2).all(|collected| outcomes.contains_key(&collected)));
}

/// Two threads free one block while its owner collects: exactly one succeeds, or the owner had the first
/// return already when the second one, which saw the block in use, came; then it is counted as a late one.
#[test]
fn a_double_return_fails() {
    let outcomes = explore(None, || {
        let checked = Checked::new(1, 1, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let block = Sent(heap.allocate(LONG, 16).unwrap());
        let _kept = heap.allocate(LONG, 16).unwrap();
        let there = [free_there(&checked, block), free_there(&checked, block)];
        heap.collect();
        let mut done = 0;
        for thread in there {
            match thread.join().unwrap() {
                Ok(()) => done += 1,
                Err(error) => {
                    assert_eq!(
                        error,
                        BufferFreeError::NotAllocated { address: block.0.addr().get() }
                    );
                }
            }
        }
        heap.collect();
        checked.pool().check().unwrap();
        let stats = checked.pool().stats();
        assert_eq!((stats.live_bytes, stats.late_double_frees), (LONG as u64, done - 1));
        done
    });
    assert!(outcomes.keys().eq(&[1, 2]));
}

/// The owner gives a superblock away while a slot of it comes back, and
/// another heap takes it over.
#[test]
fn a_return_meets_migration() {
    explore(Some(3), || {
        let checked = Checked::new(3, 2, EAGER);
        let mut heap = checked.pool().attach().unwrap();
        // The ninth makes the first eight's superblock a full one.
        let blocks: Vec<Sent> = (0..9).map(|_| Sent(heap.allocate(LONG, 16).unwrap())).collect();
        let there = free_there(&checked, blocks[0]);
        let other = Arc::clone(&checked);
        let taker = thread::spawn(move || {
            let mut heap = other.pool().attach().unwrap();
            let block = Sent(heap.allocate(LONG, 16).unwrap());
            (block, drop(heap))
        });
        // SAFETY: not used after.
        unsafe { heap.free(blocks[1].0).unwrap() };
        heap.collect();
        there.join().unwrap().unwrap();
        let (taken, ()) = taker.join().unwrap();
        checked.pool().check().unwrap();
        assert_eq!(checked.pool().stats().live_bytes, 8 * LONG as u64);
        for block in blocks[2..].iter().chain([&taken]) {
            // SAFETY: not used after.
            unsafe { heap.free(block.0).unwrap() };
        }
        drop(heap);
        checked.expect_empty();
    });
}

/// A thread ends while slots of its superblock come back, and the next one takes
/// its place, its superblock and, it may be, its heap.
#[test]
fn a_return_meets_the_end_of_a_thread() {
    explore(Some(3), || {
        let checked = Checked::new(2, 2, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let blocks: Vec<Sent> = (0..3).map(|_| Sent(heap.allocate(LONG, 16).unwrap())).collect();
        let there = free_there(&checked, blocks[0]);
        let other = Arc::clone(&checked);
        let taker = thread::spawn(move || {
            let mut heap = other.pool().attach().unwrap();
            let block = Sent(heap.allocate(LONG, 16).unwrap());
            heap.collect();
            (block, drop(heap))
        });
        drop(heap);
        there.join().unwrap().unwrap();
        let (taken, ()) = taker.join().unwrap();
        checked.pool().check().unwrap();
        for block in [blocks[1], blocks[2], taken] {
            block.free(&checked).unwrap();
        }
        checked.expect_empty();
    });
}

/// A thread ends with slots at hand, while others return slots of the same superblock: the next one that
/// takes its place has all of them, and no slot is served twice.
#[test]
fn a_cache_goes_back_with_its_thread() {
    explore(Some(3), || {
        let checked = Checked::new(1, 2, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let blocks: Vec<Sent> = (0..4).map(|_| Sent(heap.allocate(LONG, 16).unwrap())).collect();
        let there = free_there(&checked, blocks[0]);
        // SAFETY: not used after.
        unsafe { heap.free(blocks[1].0).unwrap() };
        let again = heap.allocate(LONG, 16).unwrap();
        assert_eq!(again, blocks[1].0, "what was freed last");
        // SAFETY: as above.
        unsafe { heap.free(blocks[2].0).unwrap() };
        // SAFETY: as above. It is in the cache.
        assert!(unsafe { heap.free(blocks[2].0) }.is_err());
        drop(heap);
        let mut next = checked.pool().attach().unwrap();
        let mut taken: Vec<_> = core::iter::from_fn(|| next.allocate(LONG, 16).ok()).collect();
        there.join().unwrap().unwrap();
        // A return that went to the global heap is led here by the first request that fails.
        for _ in 0..2 {
            taken.extend(core::iter::from_fn(|| next.allocate(LONG, 16).ok()));
        }
        assert_eq!(taken.len(), 6);
        let all = taken.iter().copied().chain([blocks[1].0, blocks[3].0]);
        let places: BTreeSet<_> = all.clone().collect();
        assert_eq!(places.len(), 8);
        checked.pool().check().unwrap();
        for block in all {
            // SAFETY: not used after.
            unsafe { next.free(block).unwrap() };
        }
        drop(next);
        checked.expect_empty();
    });
}

/// The owner frees more slots than its cache has room for, into the superblock that two other threads return
/// slots of one word to, and allocates again: exactly one of two frees of a block succeeds, and no slot is
/// served twice.
#[test]
fn a_full_cache_meets_a_return() {
    let outcomes = explore(Some(2), || {
        let checked = Checked::new(1, 1, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let blocks: Vec<Sent> = (0..8).map(|_| Sent(heap.allocate(LONG, 16).unwrap())).collect();
        let there = [free_there(&checked, blocks[0]), free_there(&checked, blocks[1])];
        for block in &blocks[2..7] {
            // SAFETY: not used after.
            unsafe { heap.free(block.0).unwrap() };
        }
        let mut taken: Vec<_> = core::iter::from_fn(|| heap.allocate(LONG, 16).ok()).collect();
        let collected = blocks[..2].iter().filter(|block| taken.contains(&block.0)).count();
        heap.collect();
        there.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        // Two of the last word, or that of the last one, are led here by a request that fails.
        for _ in 0..2 {
            taken.extend(core::iter::from_fn(|| heap.allocate(LONG, 16).ok()));
        }
        assert_eq!(taken.len(), 7);
        let places: BTreeSet<_> = taken.iter().collect();
        assert!(places.len() == 7 && !places.contains(&blocks[7].0));
        checked.pool().check().unwrap();
        for block in taken.into_iter().chain([blocks[7].0]) {
            // SAFETY: not used after.
            unsafe { heap.free(block).unwrap() };
            // SAFETY: not in use, which shows.
            assert!(unsafe { heap.free(block) }.is_err());
        }
        drop(heap);
        checked.expect_empty();
        collected
    });
    assert!((0..=2).all(|collected| outcomes.contains_key(&collected)));
}

/// Slots of both words come back, so that the owner may take one in whose
/// thread has not said so yet; the superblock is empty and its unit becomes
/// another's, on whose list the late word puts it.
#[test]
fn a_late_word_meets_the_next_use_of_the_unit() {
    explore(Some(3), || {
        let checked = Checked::new(1, 1, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let blocks: Vec<Sent> = (0..65).map(|_| Sent(heap.allocate(SHORT, 16).unwrap())).collect();
        for block in &blocks[1..64] {
            // SAFETY: not used after.
            unsafe { heap.free(block.0).unwrap() };
        }
        let there = [free_there(&checked, blocks[0]), free_there(&checked, blocks[64])];
        heap.collect();
        // There is only one unit: this works if it is free.
        let next = heap.allocate(LONG, 16).map(Sent);
        if let Ok(next) = next {
            next.free(&checked).unwrap();
        }
        there.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        checked.pool().check().unwrap();
        heap.collect();
        checked.pool().check().unwrap();
        assert_eq!(checked.pool().stats().live_bytes, 0);
        drop(heap);
        checked.expect_empty();
    });
}

/// One of two superblocks on the list is pushed again while the list is read:
/// the other one is not lost.
#[test]
fn a_list_is_read_while_it_grows() {
    explore(Some(3), || {
        let checked = Checked::new(2, 1, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let blocks: Vec<Sent> = (0..11).map(|_| Sent(heap.allocate(LONG, 16).unwrap())).collect();
        let other = Arc::clone(&checked);
        let (first, second) = (blocks[0], blocks[8]);
        let both = thread::spawn(move || {
            first.free(&other).unwrap();
            second.free(&other).unwrap();
        });
        let again = free_there(&checked, blocks[9]);
        heap.collect();
        both.join().unwrap();
        again.join().unwrap().unwrap();
        checked.pool().check().unwrap();
        heap.collect();
        checked.pool().check().unwrap();
        assert_eq!(checked.pool().stats().remote_frees, 3);
    });
}

/// A slot comes back to the global heap while its superblock is handed to a heap that
/// keeps it: the return finds its way there.
#[test]
fn a_return_meets_adoption() {
    explore(Some(3), || {
        let checked = Checked::new(3, 2, EAGER);
        let mut heap = checked.pool().attach().unwrap();
        // The ninth makes the first eight's superblock a full one.
        let blocks: Vec<Sent> = (0..9).map(|_| Sent(heap.allocate(LONG, 16).unwrap())).collect();
        // SAFETY: not used after.
        unsafe { heap.free(blocks[1].0).unwrap() };
        heap.collect();
        assert_eq!(checked.pool().stats().global_superblocks, 1);
        let there = free_there(&checked, blocks[0]);
        let mut taker = checked.pool().attach().unwrap();
        taker.allocate(LONG, 16).unwrap();
        checked.pool().purge_all();
        there.join().unwrap().unwrap();
        checked.pool().check().unwrap();
        checked.pool().purge_all();
        taker.collect();
        checked.pool().check().unwrap();
        assert_eq!(checked.pool().stats().remote_frees, 1);
        assert_eq!(checked.pool().stats().live_bytes, 8 * LONG as u64);
    });
}

/// A heap keeps a segment's unit and takes it again while a purge gathers it and another heap wants
/// all units there are: nobody gets a unit that another has, and none is lost.
#[test]
fn a_kept_segment_is_gathered_while_its_heap_takes_it() {
    const SEGMENT: usize = SLOT_BYTES_MAX + 1;
    explore(Some(3), || {
        let checked = Checked::new(2, 2, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let block = heap.allocate(SEGMENT, 16).unwrap();
        // SAFETY: not used after.
        unsafe { heap.free(block).unwrap() };
        assert_eq!(checked.pool().stats().cached_bytes, UNIT_BYTES as u64);
        let other = Arc::clone(&checked);
        let taker = thread::spawn(move || {
            let mut heap = other.pool().attach().unwrap();
            let both = heap.allocate(2 * UNIT_BYTES, 16).map(Sent);
            if let Ok(both) = both {
                // SAFETY: not used after.
                unsafe { heap.free(both.0).unwrap() };
            }
            other.pool().purge_all();
        });
        if let Ok(again) = heap.allocate(SEGMENT, 16) {
            // SAFETY: not used after.
            unsafe { heap.free(again).unwrap() };
        }
        taker.join().unwrap();
        checked.pool().check().unwrap();
        drop(heap);
        checked.expect_empty();
    });
}

/// A heap takes one of two kept units and keeps it again, which moves the other from the pocket to the stack, while a
/// purge gathers both and another heap wants all units there are: as above. It does so once: of a word that was written
/// more than seven times the checker gives values that are not its own any more.
#[test]
fn a_segment_comes_back_late_while_others_gather() {
    const SEGMENT: usize = SLOT_BYTES_MAX + 1;
    explore(Some(2), || {
        let checked = Checked::new(3, 2, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let blocks = [(); 2].map(|()| heap.allocate(SEGMENT, 16).unwrap());
        // SAFETY: not used after.
        blocks.into_iter().for_each(|block| unsafe { heap.free(block).unwrap() });
        assert_eq!(checked.pool().stats().cached_bytes, 2 * UNIT_BYTES as u64);
        let other = Arc::clone(&checked);
        let taker = thread::spawn(move || {
            let mut heap = other.pool().attach().unwrap();
            let all = heap.allocate(3 * UNIT_BYTES, 16).map(Sent);
            if let Ok(all) = all {
                // SAFETY: not used after.
                unsafe { heap.free(all.0).unwrap() };
            }
            other.pool().purge_all();
        });
        if let Ok(again) = heap.allocate(SEGMENT, 16) {
            // SAFETY: not used after.
            unsafe { heap.free(again).unwrap() };
        }
        taker.join().unwrap();
        checked.pool().check().unwrap();
        drop(heap);
        checked.expect_empty();
    });
}

/// A heap keeps the unit of a superblock without a slot in use and begins one in it again, while another heap wants all
/// units there are: as above.
#[test]
fn a_kept_superblock_is_gathered_while_its_heap_begins_it_again() {
    explore(Some(2), || {
        let checked = Checked::new(3, 2, BufferOptions::default());
        let mut heap = checked.pool().attach().unwrap();
        let mut blocks: Vec<_> = (0..17).map(|_| heap.allocate(LONG, 16).unwrap()).collect();
        // Two of the second superblock stay at hand, and none of the first.
        let first = blocks.drain(8..10).collect::<Vec<_>>().into_iter().chain(blocks.drain(..8));
        // SAFETY: not used after.
        first.for_each(|block| unsafe { heap.free(block).unwrap() });
        assert_eq!(checked.pool().stats().cached_bytes, UNIT_BYTES as u64);
        let other = Arc::clone(&checked);
        let taker = thread::spawn(move || {
            let mut heap = other.pool().attach().unwrap();
            let unit = heap.allocate(UNIT_BYTES, 16).map(Sent);
            if let Ok(unit) = unit {
                // SAFETY: not used after.
                unsafe { heap.free(unit.0).unwrap() };
            }
            other.pool().purge_all();
        });
        // Two at hand, seven of the third, and one of the first if its unit is still there.
        let again: Vec<_> = (0..10).map_while(|_| heap.allocate(LONG, 16).ok()).collect();
        assert!(again.len() >= 9);
        // SAFETY: as above.
        again.into_iter().chain(blocks).for_each(|block| unsafe { heap.free(block).unwrap() });
        taker.join().unwrap();
        checked.pool().check().unwrap();
        drop(heap);
        checked.expect_empty();
    });
}
