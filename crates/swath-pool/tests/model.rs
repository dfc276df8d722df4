//! The buffer pool beside a model: a list of the blocks in use, each with its
//! bytes.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{Arena, Block, CROWDED, Heap, arena, size};
use swath_arch::testing::Random;
use swath_pool::*;
use swath_pool::{BufferFreeError, BufferResizeError};

/// Bytes from start to end of every block in use, for overlaps.
#[derive(Default)]
struct Model(BTreeMap<usize, Block>);

impl Model {
    fn add(&mut self, block: Block, usable: usize) {
        let start = block.at.addr().get();
        let before = self.0.range(..start).next_back();
        assert!(before.is_none_or(|(&at, other)| at + other.size <= start), "overlap");
        let after = self.0.range(start..).next();
        assert!(after.is_none_or(|(&at, _)| start + usable <= at), "overlap");
        self.0.insert(start, block);
    }

    fn pick(&mut self, random: &mut Random) -> Option<Block> {
        let key = *self.0.keys().nth(random.below(self.0.len().max(1) as u64) as usize)?;
        self.0.remove(&key)
    }
}

fn get(arena: &Arena, heap: &mut Heap<'_>, random: &mut Random, model: &mut Model) -> bool {
    let size = size(random);
    let align = if random.below(4) == 0 { 1 << random.below(19) } else { 16 };
    let Ok((at, zero)) = heap.allocate_zeroable(size, align) else { return false };
    assert_eq!(at.addr().get() % align.max(16), 0);
    let usable = arena.pool.usable_size(at).unwrap();
    assert!(usable >= size);
    if zero {
        // SAFETY: the pool gave it.
        let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), usable) };
        assert!(bytes.iter().all(|&byte| byte == 0), "not zero");
    }
    model.add(Block::fill(at, usable, random.word() as u8), usable);
    true
}

fn put(heap: &mut Heap<'_>, block: Block) {
    assert!(block.intact(block.size), "overwritten");
    // SAFETY: not used after.
    unsafe {
        heap.free(block.at).unwrap();
        let again = heap.free(block.at);
        assert!(
            matches!(
                again,
                Err(BufferFreeError::NotAllocated { .. } | BufferFreeError::Misaligned { .. })
            ),
            "{again:?}"
        );
    }
}

fn resize(arena: &Arena, heap: &mut Heap<'_>, random: &mut Random, model: &mut Model) {
    let Some(block) = model.pick(random) else { return };
    let size = size(random);
    // SAFETY: the old place is not used after.
    match unsafe { heap.resize(block.at, size, 16) } {
        Ok(at) => {
            let usable = arena.pool.usable_size(at).unwrap();
            assert!(usable >= size);
            let moved = Block { at, ..block };
            assert!(moved.intact(size.min(moved.size)));
            model.add(Block::fill(at, usable, random.word() as u8), usable);
        }
        Err(BufferResizeError::Allocate(_)) => {
            assert!(block.intact(block.size));
            let usable = block.size;
            model.add(block, usable);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Two heaps in turn, growing and shrinking; every invariant around every
/// call for a while, then now and then.
fn run(seed: u64, units: usize, options: BufferOptions, steps: u64) {
    println!("seed {seed}");
    let arena = arena(units, 2, options);
    let mut heaps = [arena.pool.attach().unwrap(), arena.pool.attach().unwrap()];
    assert!(arena.pool.attach().is_none());
    let (mut random, mut model) = (Random::new(seed), Model::default());
    let mut refused = 0;
    for step in 0..steps {
        let growing = step / 500 % 2 == 0;
        let heap = &mut heaps[random.below(2) as usize];
        match random.below(20) {
            0 => resize(&arena, heap, &mut random, &mut model),
            1 if random.below(20) == 0 => heap.collect(),
            1 => drop(arena.pool.purge(step)),
            n if (n < 13) == growing => {
                refused += u64::from(!get(&arena, heap, &mut random, &mut model));
            }
            _ => {
                if let Some(block) = model.pick(&mut random) {
                    put(heap, block);
                }
            }
        }
        if step < 2000 || step % 64 == 0 {
            arena.pool.check().unwrap_or_else(|fault| panic!("step {step}: {fault}"));
            let live: usize = model.0.values().map(|block| block.size).sum();
            assert_eq!(arena.pool.stats().live_bytes, live as u64, "step {step}");
        }
    }
    println!("{refused} refused");
    for block in model.0.into_values() {
        put(&mut heaps[0], block);
    }
    arena.pool.check().unwrap();
    drop(heaps);
    arena.pool.purge_all();
    arena.pool.check().unwrap();
    let stats = arena.pool.stats();
    assert_eq!((stats.live_bytes, stats.held_bytes, stats.cached_bytes), (0, 0, 0));
    assert_eq!(arena.control.held.load(Relaxed), 0);
    assert_eq!(arena.control.guarded.load(Relaxed), 0);
}

#[test]
fn random_calls_agree_with_the_model() {
    for seed in 0..8 {
        run(seed, 1024, BufferOptions::default(), 8000);
    }
}

#[test]
fn heaps_that_keep_segments_agree_too() {
    CROWDED.set(true);
    for seed in 300..308 {
        run(seed, 1024, BufferOptions { purge_delay: 500, ..BufferOptions::default() }, 8000);
    }
    run(308, 128, BufferOptions::default(), 6000);
}

/// A superblock is given up when its current word has just been emptied, and a word before has a slot:
/// its next owner passes the empty one.
#[test]
fn an_emptied_word_is_passed() {
    let arena = arena(4, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let first = heap.allocate(512, 16).unwrap();
    let rest: Vec<_> = (1..UNIT_BYTES / 512).map(|_| heap.allocate(512, 16).unwrap()).collect();
    // SAFETY: not used after.
    unsafe { heap.free(first).unwrap() };
    drop(heap);
    let mut heap = arena.pool.attach().unwrap();
    assert_eq!(heap.allocate(512, 16), Ok(first));
    let next = heap.allocate(512, 16).unwrap();
    for block in rest.into_iter().chain([first, next]) {
        // SAFETY: not used after.
        unsafe { heap.free(block).unwrap() };
    }
    arena.pool.check().unwrap();
}

/// The second one would lie in two pages of the system if it began right behind the first. What is
/// longer than 1 MiB is cut, a shorter one serves those of its length, but not at once.
#[test]
fn kept_segments_lie_in_few_pages() {
    CROWDED.set(true);
    let arena = arena(64, 1, BufferOptions::default());
    let mut heap = arena.pool.attach().unwrap();
    let long = heap.allocate(20 * UNIT_BYTES, 4 * UNIT_BYTES).unwrap();
    // SAFETY: not used after.
    unsafe { heap.free(long).unwrap() };
    let unit_of = |block: NonNull<u8>| (block.addr().get() - long.addr().get()) / UNIT_BYTES;
    let blocks = [3, 3, 1].map(|units| heap.allocate(units * UNIT_BYTES, 16).unwrap());
    assert_eq!(blocks.map(unit_of), [0, 4, 3]);
    // SAFETY: as above.
    blocks.into_iter().for_each(|block| unsafe { heap.free(block).unwrap() });
    let again = [1, 3, 3].map(|units| heap.allocate(units * UNIT_BYTES, 16).unwrap());
    // Of a length up to 256 KiB the one that came last waits: the rest of the long one is cut for the next.
    assert_eq!(again.map(unit_of), [7, 0, 8]);
    // SAFETY: as above.
    again.into_iter().for_each(|block| unsafe { heap.free(block).unwrap() });
    let again = [1, 3, 3, 3].map(|units| heap.allocate(units * UNIT_BYTES, 16).unwrap());
    assert_eq!(again.map(unit_of), [3, 0, 4, 12], "8 waits");
    arena.pool.check().unwrap();
}

#[test]
fn other_options_agree_too() {
    for seed in 0..4 {
        let options = BufferOptions {
            empty_eighths: 1 + 2 * seed as u32 % 7,
            slack: seed as u32,
            purge_delay: 50,
            guard_segments: seed % 2 == 0,
        };
        run(100 + seed, 600, options, 6000);
    }
}

/// An arena that is mostly full: many requests are refused.
#[test]
fn a_full_arena_refuses_and_loses_nothing() {
    for seed in 0..4 {
        run(200 + seed, 128, BufferOptions::default(), 6000);
    }
}
