//! The front under stress by threads, with an ownership bitmap.
//!
//! `SWATH_STEPS=55600000 cargo test --release -p swath-frame --test suite front_stress` for a billion calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::{Front, Reuse};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap, PageBuddy};

use crate::front::{Pool, YieldLock, bits, slots};

/// Calls of each thread: `SWATH_STEPS` asks for more.
fn steps() -> u64 {
    std::env::var("SWATH_STEPS").map_or(20_000, |steps| steps.parse().expect("a number of calls"))
}

/// Threads take and free at random, single frames, blocks of every order up
/// to 10 and every count, each on its CPU and without one, partly frames that another thread took. Each frame
/// has an owner in a bitmap of the test's own, so a frame handed out twice
/// shows at once.
fn stress(pool: impl FrameAllocator + Send, frames_end: u64, threads: u64, seed: u64) {
    println!("seed {seed}");
    let (mut slots, mut bits) = (slots(threads as usize), bits(&pool));
    let front = Front::new(pool, &mut slots, &mut bits).unwrap();
    match seed % 2 {
        0 => run(front, frames_end, threads, seed),
        _ => run(front.gathering(), frames_end, threads, seed),
    }
}

fn run<U: Reuse>(
    front: Front<'_, YieldLock, impl FrameAllocator + Send, U>,
    frames_end: u64,
    threads: u64,
    seed: u64,
) {
    let total = front.free_frames();
    let owned: Vec<AtomicU64> = (0..frames_end.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    let acquire = |extent: Extent| {
        for frame in extent.iter().map(Pfn::raw) {
            let before = owned[(frame / 64) as usize].fetch_or(1 << (frame % 64), Ordering::AcqRel);
            assert_eq!(before >> (frame % 64) & 1, 0, "frame {frame} has an owner");
        }
    };
    let release = |extent: Extent| {
        for frame in extent.iter().map(Pfn::raw) {
            let bit = 1 << (frame % 64);
            let before = owned[(frame / 64) as usize].fetch_and(!bit, Ordering::AcqRel);
            assert_ne!(before & bit, 0, "frame {frame} had no owner");
        }
    };
    // Where threads leave frames for others to free.
    let shelf = Mutex::new(Vec::new());
    let start = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (front, shelf, start, acquire, release) =
                (&front, &shelf, &start, &acquire, &release);
            scope.spawn(move || {
                let mut random = Random::new(seed * 1000 + thread + 1);
                let cpu = front.on(thread as usize).unwrap();
                let mut mine: Vec<Extent> = Vec::new();
                start.wait();
                for _ in 0..steps() {
                    match random.below(12) {
                        0..3 => {
                            if let Some(frame) = cpu.allocate_frame() {
                                acquire(Extent::new(frame, 1));
                                mine.push(Extent::new(frame, 1));
                            }
                        }
                        3 => {
                            let order = Order::known(random.below(11) as u8);
                            let taken = match random.below(4) {
                                0 => front.allocate_aligned(order),
                                _ => { cpu }.allocate_aligned(order),
                            };
                            if let Ok(extent) = taken {
                                assert!(extent.start.is_aligned(order.k()));
                                assert_eq!(extent.count, order.frames());
                                acquire(extent);
                                mine.push(extent);
                            }
                        }
                        4 => {
                            let short = random.below(2) == 0;
                            let count = 1 + random.below(if short { 64 } else { 300 });
                            let before = mine.len();
                            let mut sink = |extent| {
                                acquire(extent);
                                mine.push(extent);
                            };
                            let done = match random.below(4) {
                                0 => front.allocate(count, &mut sink),
                                1 => FrameAllocator::allocate(&mut { cpu }, count, &mut sink),
                                _ => {
                                    { cpu }.allocate_block(count).into_iter().for_each(sink);
                                    continue;
                                }
                            };
                            let got: u64 = mine[before..].iter().map(|extent| extent.count).sum();
                            assert_eq!(got, if done.is_ok() { count } else { 0 });
                        }
                        5 => {
                            let mut shelf = shelf.lock().unwrap();
                            shelf.append(&mut mine);
                            let left = shelf.len().saturating_sub(40);
                            mine.extend(shelf.drain(left..));
                        }
                        _ if mine.is_empty() => {}
                        choice => {
                            let at = random.below(mine.len() as u64) as usize;
                            let extent = mine.swap_remove(at);
                            // A part of it, and the rest stays.
                            let count = 1 + random.below(extent.count);
                            let part = if choice < 9 { extent.count } else { count };
                            let rest = extent.count - part;
                            if rest > 0 {
                                let rest_start = Pfn::new(extent.start.raw() + part);
                                mine.push(Extent::new(rest_start, rest));
                            }
                            let part = Extent::new(extent.start, part);
                            release(part);
                            { cpu }.free(part).unwrap();
                        }
                    }
                }
                shelf.lock().unwrap().append(&mut mine);
            });
        }
    });
    front.check().unwrap();
    for extent in shelf.into_inner().unwrap() {
        release(extent);
        front.free(extent).unwrap();
    }
    assert!(owned.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    front.check().unwrap();
    assert_eq!(front.free_frames(), total);
    let mut inner = front.into_inner();
    assert_eq!(inner.free_frames(), total);
    assert_eq!(inner.allocate(total, &mut |_| ()), Ok(()));
}

#[test]
fn stress_over_the_naive_pool() {
    // Small enough that the pool runs dry and slots are emptied by others.
    stress(Pool::new((64..1500).chain(2000..3000)), 3000, 4, 1);
    stress(Pool::new(0..3000), 3000, 2, 5);
    stress(Pool::new(0..3000), 3000, 4, 6);
}

#[test]
fn stress_over_the_page_buddy_system() {
    let areas = [Extent::new(Pfn::new(64), 3000), Extent::new(Pfn::new(4099), 9001)];
    let ranges = areas.map(ByteRange::of_frames);
    let mut storage = [Extent::default(); 2];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    let bbs = BuddyConfig::new(1, Order::known(9)).unwrap();
    let configs = [
        (2, BuddyConfig::PBS_ARMV8),
        (3, BuddyConfig::PBS_ARMV8),
        (3, BuddyConfig::PBS_ARMV7),
        (4, bbs),
    ];
    for (seed, config) in configs {
        let words = PageBuddy::<Vec<u64>>::storage_words(&map, config);
        let buddy = PageBuddy::<Vec<u64>>::new(&map, config, vec![0; words]).unwrap();
        stress(buddy, map.span().end().raw(), 2 * (seed - 1), seed);
    }
}
