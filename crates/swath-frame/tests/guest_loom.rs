//! A guest and its host under the model checker: every interleaving of the two owners.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p swath-frame --release --test guest_loom`. In
//! this build a unit has two frames.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Mutex};
use loom::thread;
use swath_arch::{Extent, Pfn};
use swath_frame::guest::{Guest, SharedUnits, UNIT_FRAMES};
use swath_frame::{BuddyConfig, ByteRange, MemoryMap, PageBuddy};

const UNITS: u64 = 2;

/// The memory behind each unit: true while there is some. The checker sees two that touch one at a time with
/// nothing in between to order them.
struct Memory([UnsafeCell<bool>; UNITS as usize]);

// SAFETY: the checker runs its threads in turn on one, and reports every access that the words do not order.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn set(&self, unit: usize, is: bool) {
        // SAFETY: no reference to the inside is kept; who may write is what the checker checks.
        self.0[unit].with_mut(|backed| unsafe { *backed = is });
    }

    /// What a guest does with a frame: it writes to memory that is there.
    fn use_frame(&self, frame: Pfn) {
        self.0[(frame.raw() / UNIT_FRAMES) as usize].with_mut(|backed| {
            // SAFETY: as in `set`.
            assert!(unsafe { *backed }, "{frame} has no memory");
        });
    }
}

/// The allocator with which each guest begins. It is made outside of the checker, whose threads have stacks of 32 KiB.
fn allocator(all: Extent) -> PageBuddy<Vec<u64>> {
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(all)], &mut areas).unwrap();
    let config = BuddyConfig::BBS;
    let words = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, config)];
    PageBuddy::<_>::new(&map, config, words).unwrap()
}

/// `takes` units are taken by the host, which gives one of them again if `unasked`, and what it is asked for if
/// `gives`, while the guest takes and frees frames.
fn explore(takes: usize, gives: bool, unasked: bool) {
    let all = Extent::new(Pfn::new(0), UNITS * UNIT_FRAMES);
    let allocator = allocator(all);
    loom::model(move || {
        let words: Vec<_> = (0..SharedUnits::words_len(all)).map(|_| AtomicU32::new(0)).collect();
        let units = SharedUnits::new(all, Vec::leak(words)).unwrap();
        let memory = Arc::new(Memory([UnsafeCell::new(true), UnsafeCell::new(true)]));
        let lock = Arc::new(Mutex::new(()));

        let (host_memory, host_lock) = (Arc::clone(&memory), Arc::clone(&lock));
        let install = move |unit| {
            let _host = host_lock.lock().unwrap();
            if gives && units.unit_use(unit).unwrap().is_taken {
                host_memory.set(unit, true);
                assert!(units.give(unit));
            }
            gives
        };
        let mut guest = Guest::new(allocator.clone(), units, install).unwrap();
        let host_memory = Arc::clone(&memory);
        let host = thread::spawn(move || {
            let _host = lock.lock().unwrap();
            let mut last = None;
            let taken = units.take_free(takes, &mut |unit| {
                host_memory.set(unit, false);
                last = Some(unit);
            });
            if let Some(unit) = last.filter(|_| unasked) {
                host_memory.set(unit, true);
                assert!(units.give(unit));
            }
            taken
        });
        let first = guest.allocate_block(1);
        first.inspect(|block| memory.use_frame(block.start));
        let second = guest.allocate_block(2);
        second.inspect(|block| block.iter().for_each(|frame| memory.use_frame(frame)));
        first.inspect(|&block| guest.free(block).unwrap());
        let third = guest.allocate_block(1);
        third.inspect(|block| memory.use_frame(block.start));

        let taken = host.join().unwrap();
        let held = [second, third].into_iter().flatten();
        held.clone().flat_map(Extent::iter).for_each(|frame| memory.use_frame(frame));
        assert!(taken <= takes);
        if gives {
            assert!(first.is_some() && second.is_some() && third.is_some());
        }
        let out: u64 = held.map(|block| block.count).sum();
        let parked = guest.parked_units() as u64 * UNIT_FRAMES;
        assert_eq!(guest.free_frames() + out + parked, UNITS * UNIT_FRAMES);
    });
}

#[test]
fn what_the_guest_holds_stays() {
    for takes in [1, 2] {
        for gives in [true, false] {
            explore(takes, gives, false);
            explore(takes, gives, true);
        }
    }
}
