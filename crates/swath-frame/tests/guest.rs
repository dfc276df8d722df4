//! A guest whose host takes free units: against sets, and with both at work on threads of their own.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::guest::{Guest, OtherSpan, SharedUnits, UNIT_FRAMES};
use swath_frame::{
    BestFit, BuddyConfig, ByteRange, Checked, Hardening, HeadOfList, MemoryMap, PageBuddy, Rule,
    Trusting,
};

fn buddy<R: Rule, H: Hardening>(
    areas: &[Extent],
    config: BuddyConfig,
) -> PageBuddy<Vec<u64>, R, H> {
    let ranges: Vec<ByteRange> = areas.iter().copied().map(ByteRange::of_frames).collect();
    let mut storage = vec![Extent::default(); areas.len()];
    let map = MemoryMap::new(&ranges, &mut storage).unwrap();
    let words = PageBuddy::<Vec<u64>, R, H>::storage_words(&map, config);
    let late = 64 * PageBuddy::<Vec<u64>, R, H>::LATE_AREA_WORDS;
    PageBuddy::new(&map, config, vec![0; words + late]).unwrap()
}

fn words(span: Extent) -> Vec<AtomicU32> {
    (0..SharedUnits::words_len(span)).map(|_| AtomicU32::new(7)).collect()
}

/// Random steps of both; the host gives back as long as it may have fewer units.
fn drive<R: Rule, H: Hardening>(seed: u64, config: BuddyConfig) {
    let mut random = Random::new(seed);
    // A hole, and units at the ends that are only partly memory.
    let first = Extent::new(Pfn::new(300 + random.below(900)), 3000 + random.below(3000));
    let second = Extent::new(Pfn::new(first.end().raw() + 1 + random.below(900)), 2000);
    let span = Extent::between(first.start, second.end());
    let allocator = buddy::<R, H>(&[first, second], config);
    let words = words(span);
    let units = SharedUnits::new(span, &words).unwrap();
    let (taken, limit) = (RefCell::new(BTreeSet::new()), RefCell::new(0));
    let mut guest = Guest::new(allocator, units, |unit| {
        let gives = taken.borrow().len() > *limit.borrow();
        if gives && taken.borrow_mut().remove(&unit) {
            assert!(units.give(unit));
        }
        gives
    })
    .unwrap();
    let total = first.count + second.count;
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    for step in 0..600 {
        let place = format!("seed {seed}, step {step}");
        match random.below(10) {
            0 => {
                *limit.borrow_mut() = random.index(12);
                let want = limit.borrow().saturating_sub(taken.borrow().len());
                units.take_free(want, &mut |unit| {
                    let frames = units.frames(unit);
                    let overlaps = |(&start, &count): (&u64, &u64)| {
                        start < frames.end().raw() && start + count > frames.start.raw()
                    };
                    assert!(!held.iter().any(overlaps), "{place}: {frames} is held");
                    assert!(
                        frames.intersect(first) == frames || frames.intersect(second) == frames,
                        "{place}: {frames} is not all memory"
                    );
                    assert!(taken.borrow_mut().insert(unit), "{place}: taken twice");
                });
            }
            // Gives back unasked.
            1 => {
                let unit = taken.borrow_mut().pop_first();
                unit.inspect(|&unit| assert!(units.give(unit) && !units.give(unit)));
            }
            2..=6 => {
                let block = if random.below(3) == 0 {
                    guest.allocate_aligned(Order::known(random.below(11) as u8)).ok()
                } else {
                    guest.allocate_block(1 + random.below(700))
                };
                let Some(block) = block else { continue };
                let mut before = held.range(..block.end().raw());
                let clash = before.next_back().is_some_and(|(s, c)| s + c > block.start.raw());
                assert!(!clash, "{place}: {block} was handed out twice");
                for &unit in &*taken.borrow() {
                    let shared = units.frames(unit).intersect(block);
                    assert!(
                        shared.is_empty(),
                        "{place}: {block} lies in unit {unit}, which is taken"
                    );
                }
                held.insert(block.start.raw(), block.count);
            }
            _ => {
                let nth = random.index(held.len().max(1));
                let Some((&start, &count)) = held.iter().nth(nth) else { continue };
                held.remove(&start);
                let part = 1 + random.below(count);
                guest.free(Extent::new(Pfn::new(start), part)).unwrap();
                assert!(
                    guest.free(Extent::new(Pfn::new(start), 1)).is_err(),
                    "{place}: freed twice"
                );
                if part < count {
                    held.insert(start + part, count - part);
                }
            }
        }
        let out: u64 = held.values().sum();
        let parked = guest.parked_units() as u64 * UNIT_FRAMES;
        assert_eq!(guest.free_frames() + out + parked, total, "{place}");
        for unit in 0..units.len() {
            let state = units.unit_use(unit).unwrap();
            assert_eq!(state.is_taken, taken.borrow().contains(&unit), "{place}");
            let frames = units.frames(unit);
            let count = |extent: Extent| extent.intersect(frames).count;
            let memory = count(first) + count(second);
            let runs = held.iter().map(|(&start, &held)| Extent::new(Pfn::new(start), held));
            let here = UNIT_FRAMES - memory + runs.map(count).sum::<u64>();
            assert_eq!(u64::from(state.held_frames), here, "{place}, unit {unit}");
            assert!(!state.is_taken || here == 0, "{place}");
        }
    }
    // The host gives all that it has; all of it can be had.
    *limit.borrow_mut() = 0;
    while guest.allocate_block(1).is_some() {}
    assert!(taken.borrow().is_empty() && guest.parked_units() == 0, "seed {seed}");
    assert_eq!(guest.free_frames(), 0, "seed {seed}");
    assert_eq!(guest.into_inner().check(), Ok(()), "seed {seed}");
}

#[test]
fn a_guest_and_its_host_agree_with_sets() {
    for seed in 0..10 {
        drive::<HeadOfList, Trusting>(seed, BuddyConfig::PBS_ARMV8);
        drive::<HeadOfList, Checked>(seed, BuddyConfig::PBS_ARMV8);
        drive::<BestFit, Trusting>(seed, BuddyConfig::PBS_ARMV7);
        drive::<HeadOfList, Trusting>(seed, BuddyConfig::BBS);
    }
}

/// A host that says that it gives and does not, or takes again at once, cannot hold the guest for ever.
#[test]
fn a_host_that_lies_is_refused() {
    let all = Extent::new(Pfn::new(0), 8 * UNIT_FRAMES);
    for gives in [false, true] {
        let words = words(all);
        let units = SharedUnits::new(all, &words).unwrap();
        let guest =
            Guest::new(buddy::<HeadOfList, Trusting>(&[all], BuddyConfig::BBS), units, |unit| {
                if gives {
                    units.give(unit);
                    assert!(units.take(unit));
                }
                true
            });
        assert_eq!(units.take_free(usize::MAX, &mut |_| ()), 8);
        let mut guest = guest.unwrap();
        assert_eq!(guest.allocate_block(5), None);
        assert!(guest.allocate_aligned(Order::known(9)).is_err());
        assert_eq!(guest.allocate_block(0), None);
        assert_eq!((guest.free_frames() / UNIT_FRAMES) as usize + guest.parked_units(), 8);
    }
}

#[test]
fn words_of_another_span_are_refused() {
    let all = Extent::new(Pfn::new(512), 8 * UNIT_FRAMES);
    for other in
        [Extent::new(Pfn::new(512), 7 * UNIT_FRAMES), Extent::new(Pfn::new(0), 8 * UNIT_FRAMES)]
    {
        let words = words(other);
        let units = SharedUnits::new(other, &words).unwrap();
        let buddy = buddy::<HeadOfList, Trusting>(&[all], BuddyConfig::BBS);
        let refused = Guest::new(buddy, units, |_| true).err();
        let first = units.frames(0).start;
        assert_eq!(refused, Some(OtherSpan { span: all, units: units.len(), first }));
        assert!(SharedUnits::new(all, &words[1..]).is_none());
    }
}

/// The host takes and gives at its own pace while the guest allocates and frees: what the guest holds is
/// backed for as long as it does.
#[test]
fn both_at_work() {
    const UNITS: usize = 64;
    let all = Extent::new(Pfn::new(0), UNITS as u64 * UNIT_FRAMES);
    let words = words(all);
    let units = SharedUnits::new(all, &words).unwrap();
    // The host's lock, and how many units it wants.
    let (host, wanted) = (Mutex::new(()), AtomicU32::new(0));
    let backed: Vec<AtomicBool> = (0..UNITS).map(|_| AtomicBool::new(true)).collect();
    // How often the host has looked.
    let (done, looks) = (AtomicBool::new(false), AtomicU32::new(0));
    let taken = |units: &SharedUnits<'_>| {
        (0..UNITS).filter(|&unit| units.unit_use(unit).unwrap().is_taken).count() as u32
    };
    let give = |unit: usize| {
        let _host = host.lock().unwrap();
        if taken(&units) <= wanted.load(Ordering::Relaxed) {
            return false;
        }
        // Perhaps it has been given unasked.
        if units.unit_use(unit).unwrap().is_taken {
            backed[unit].store(true, Ordering::Relaxed);
            assert!(units.give(unit));
        }
        true
    };
    std::thread::scope(|scope| {
        let (host, wanted, backed, done, looks) = (&host, &wanted, &backed, &done, &looks);
        let daemon = scope.spawn(move || {
            let (mut random, mut takes) = (Random::new(3), 0);
            while !done.load(Ordering::Relaxed) {
                let aim = random.below(UNITS as u64) as u32;
                let _host = host.lock().unwrap();
                wanted.store(aim, Ordering::Relaxed);
                let more = aim.saturating_sub(taken(&units)) as usize;
                takes += units.take_free(more, &mut |unit| {
                    assert!(backed[unit].swap(false, Ordering::Relaxed), "unit {unit}");
                });
                drop(_host);
                looks.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
            takes
        });
        let mut guest =
            Guest::new(buddy::<HeadOfList, Trusting>(&[all], BuddyConfig::PBS_ARMV8), units, give)
                .unwrap();
        let (mut random, mut held) = (Random::new(4), Vec::new());
        let backs = |block: Extent| {
            let (first, last) =
                (block.start.raw() / UNIT_FRAMES, (block.end().raw() - 1) / UNIT_FRAMES);
            (first..=last).all(|unit| backed[unit as usize].load(Ordering::Relaxed))
        };
        // Until the host, too, has had its turn, however late its thread begins.
        for step in 0.. {
            if step >= 200_000 && looks.load(Ordering::Relaxed) >= 100 {
                break;
            }
            if random.below(2) == 0 {
                let Some(block) = guest.allocate_block(1 + random.below(900)) else { continue };
                assert!(backs(block), "step {step}: {block} has no memory");
                held.push(block);
            } else if !held.is_empty() {
                let block = held.swap_remove(random.index(held.len()));
                assert!(backs(block), "step {step}: {block} lost its memory");
                guest.free(block).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        let takes = daemon.join().unwrap();
        assert!(takes > 0);
        println!("{takes} units taken");
    });
}
