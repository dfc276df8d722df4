//! Single frames through a front: what is in use gathers below.

use std::sync::atomic::Ordering;

use swath_arch::testing::Random;
use swath_arch::{Extent, Pfn};
use swath_frame::front::{Front, Gather};
use swath_frame::{BuddyConfig, ByteRange, HeadOfList, MemoryMap, PageBuddy};

use crate::front::{Pool, YieldLock, bits, slots};

const HUGE_FRAMES: u64 = 512;
const CPUS: u64 = 2;

/// Fills 64 huge pages, frees half of the frames at random, replaces those in use twelve times by random CPUs
/// and counts the huge pages that are free.
fn churn(seed: u64) -> usize {
    let frames = 64 * HUGE_FRAMES;
    let mut areas = [Extent::default()];
    let span = Extent::new(Pfn::new(0), frames);
    let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas).unwrap();
    let config = BuddyConfig::PBS_ARMV8;
    let words = PageBuddy::<Vec<u64>, HeadOfList>::storage_words(&map, config);
    let buddy = PageBuddy::<_, HeadOfList>::new(&map, config, vec![0; words]).unwrap();
    let (mut slots, mut bits) = (slots(CPUS as usize), bits(&buddy));
    let front: Front<'_, YieldLock, _, Gather> =
        Front::new(buddy, &mut slots, &mut bits).unwrap().gathering();
    let mut random = Random::new(seed);
    let take =
        |random: &mut Random| front.on(random.below(CPUS) as usize).unwrap().allocate_frame();
    let give = |random: &mut Random, frame: Pfn| {
        front.on(random.below(CPUS) as usize).unwrap().free_frame(frame).unwrap();
    };
    let mut used: Vec<Pfn> = std::iter::from_fn(|| take(&mut random)).collect();
    assert_eq!(used.len() as u64, frames);
    while used.len() as u64 > frames / 2 {
        let at = random.below(used.len() as u64) as usize;
        give(&mut random, used.swap_remove(at));
    }
    for _ in 0..12 * used.len() {
        let at = random.below(used.len() as u64) as usize;
        give(&mut random, used[at]);
        used[at] = take(&mut random).unwrap();
    }
    front.check().unwrap();
    let is_free = |page: &u64| used.iter().all(|frame| frame.raw() / HUGE_FRAMES != *page);
    (0..frames / HUGE_FRAMES).filter(is_free).count()
}

#[test]
fn huge_pages_become_free_above() {
    for seed in 1..=5 {
        // Of the 32 that could be, one is where what is in use ends, and as much as lies in the slots.
        let free = churn(seed);
        assert!((30..=32).contains(&free), "seed {seed}: {free} of 32 huge pages are free");
    }
}

#[test]
fn frames_that_lie_low_come_and_go_without_the_allocator() {
    for seed in 1..=5 {
        let pool = Pool::new(0..1 << 14);
        let frees = pool.frees.clone();
        let (mut slots, mut bits) = (slots(1), bits(&pool));
        let front = Front::new(pool, &mut slots, &mut bits).unwrap().gathering();
        let cpu = front.on(0).unwrap();
        let mut used: Vec<Pfn> = (0..1 << 13).map(|_| cpu.allocate_frame().unwrap()).collect();
        let (mut random, pairs) = (Random::new(seed), 100_000);
        for _ in 0..pairs {
            let at = random.below(used.len() as u64) as usize;
            cpu.free_frame(used[at]).unwrap();
            used[at] = cpu.allocate_frame().unwrap();
        }
        front.check().unwrap();
        // The calls are for runs of one frame and more.
        let returned = frees.load(Ordering::Relaxed);
        assert!(returned < pairs / 100, "seed {seed}: {returned} of {pairs} came back");
        assert!(used.iter().all(|frame| frame.raw() < (1 << 13) + 1024), "seed {seed}");
    }
}

#[test]
fn a_front_in_use_can_begin_to_gather() {
    let pool = Pool::new(0..4096);
    let (mut slots, mut bits) = (slots(2), bits(&pool));
    let front = Front::new(pool, &mut slots, &mut bits).unwrap();
    let cpu = front.on(0).unwrap();
    let mut used: Vec<Pfn> = (0..1000).map(|_| cpu.allocate_frame().unwrap()).collect();
    used.drain(900..).for_each(|frame| front.on(1).unwrap().free_frame(frame).unwrap());
    let front = front.gathering();
    used.extend((0..500).map(|i| front.on(i % 2).unwrap().allocate_frame().unwrap()));
    front.check().unwrap();
    assert_eq!(front.fault(), None);
    used.into_iter().for_each(|frame| front.on(1).unwrap().free_frame(frame).unwrap());
    front.check().unwrap();
    assert_eq!(front.free_frames(), 4096);
}
