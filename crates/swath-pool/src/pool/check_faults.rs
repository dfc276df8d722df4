//! Overwritten tables, each with the invariant by which the walk over a pool finds it, or what a call makes of it.

extern crate std;

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use crate::error::BufferFreeError;
use crate::heap::local::LocalHeap;
use crate::heap::run::Run;
use crate::heap::slot::HeapSlot;
use crate::options::BufferOptions;
use crate::plain::fixture::{Leaked, Lock, Source, TestPool, leaked};
use crate::pool::check::BufferFault;
use crate::superblock::claim::CLOSED;
use crate::superblock::class::{LAYOUTS, SLOT_BYTES_MAX, STARTS, UNIT_BYTES, class_of};
use crate::superblock::owner::{Owner, Role};
use crate::superblock::record::Superblock;

const UNITS: usize = 64;

type Heap = LocalHeap<'static, 'static, Lock, Source>;

/// A pool in use, and where in it something lies. All memory is leaked.
struct Used {
    pool: &'static TestPool,
    first: Heap,
    second: Heap,
    /// Superblocks of slots of 512 bytes, which are all in use, in part and current.
    full: u32,
    partial: [u32; 2],
    current: u32,
    /// A superblock of several units, and a segment of three.
    long: u32,
    segment: u32,
    /// Two units that the first heap keeps.
    kept: u32,
}

impl Used {
    fn new() -> Self {
        let options = BufferOptions { slack: 1, empty_eighths: 5, ..BufferOptions::default() };
        let Leaked { pool, base, .. } = leaked(UNITS, 2, options);
        let (mut first, mut second) = (pool.attach().unwrap(), pool.attach().unwrap());
        let unit_of =
            |block: NonNull<u8>| ((block.addr().get() - base.addr().get()) / UNIT_BYTES) as u32;
        let mut units: Vec<u32> = Vec::new();
        let mut blocks = Vec::new();
        while units.len() < 4 || blocks.len() % 128 < 60 {
            let block = first.allocate(512, 16).unwrap();
            if !units.contains(&unit_of(block)) {
                units.push(unit_of(block));
            }
            blocks.push(block);
        }
        let long = unit_of(first.allocate(SLOT_BYTES_MAX, 16).unwrap());
        let segment = unit_of(first.allocate(3 * UNIT_BYTES, 16).unwrap());
        // Two units are kept for the next segment.
        let (kept, _) = pool.lock().acquire(2, 1).unwrap();
        pool.heaps()[0].kept.keep(Run { first: kept, units: 2 }, |_| panic!("there is room"));
        // Two superblocks have free slots again: one nearly all, the other also one that another heap freed.
        let of = |unit: u32| blocks.iter().copied().filter(move |&block| unit_of(block) == unit);
        for block in of(units[1]).take(50).chain(of(units[2]).take(127)) {
            // SAFETY: not used after.
            unsafe { first.free(block).unwrap() };
        }
        for block in of(units[1]).skip(60).take(2) {
            // SAFETY: not used after.
            unsafe { second.free(block).unwrap() };
        }
        let partial = [units[1], units[2]];
        let used = Self {
            pool,
            first,
            second,
            full: units[0],
            partial,
            current: units[3],
            long,
            segment,
            kept,
        };
        used.pool.check().unwrap();
        used
    }

    fn record(&self, unit: u32) -> &'static Superblock {
        &self.pool.superblocks()[unit as usize]
    }

    /// The first heap's slot: its number is 1.
    fn slot(&self) -> &'static HeapSlot {
        &self.pool.heaps()[0]
    }
}

/// What the walk finds, and what is overwritten before.
type Case<'c> = (&'static str, &'c dyn Fn(&Used));

/// A pool in use in which something is overwritten: what the walk finds.
fn fault(overwrite: impl FnOnce(&Used)) -> Option<&'static str> {
    let used = Used::new();
    overwrite(&used);
    let found = used.pool.check();
    core::mem::forget((used.first, used.second));
    found.err().map(|BufferFault { what, .. }| what)
}

#[test]
fn the_superblocks_are_what_they_are_taken_for() {
    let used = Used::new();
    for (unit, full) in [(used.full, true), (used.partial[0], false), (used.partial[1], false)] {
        assert_eq!(used.record(unit).is_full(), full, "{unit}");
        assert_eq!(used.record(unit).owner(), Owner::of(1, class_of(512)));
    }
    assert!(used.slot().is_current(class_of(512), used.current));
    assert!(LAYOUTS[class_of(SLOT_BYTES_MAX)].units > 1);
    assert_eq!(used.record(used.segment).owner().role(), Role::Segment);
    assert!(used.partial.iter().any(|&unit| used.record(unit).queued() != 0));
    let sparse = &used.slot().partial[class_of(512)].sparse;
    assert_eq!((sparse.load(Relaxed), used.slot().kept.runs().count()), (1, 1));
    assert_eq!(fault(|_| {}), None);
    core::mem::forget((used.first, used.second));
}

/// Records and lists.
#[test]
fn an_overwritten_record_is_found() {
    let class = class_of(512);
    let of = |used: &Used| used.record(used.partial[0]);
    let cases: [Case<'_>; 17] = [
        ("units below the highest", &|used| used.record(used.long).units.store(0, Relaxed)),
        ("units below the highest", &|used| {
            let high = used.pool.lock().high;
            used.record(used.segment).units.store(high - used.segment + 1, Relaxed);
        }),
        ("units below the highest", &|used| used.record(used.long).units.store(u32::MAX, Relaxed)),
        ("a superblock before", &|used| {
            let high = used.pool.lock().high;
            used.pool.lock().high = high + 1;
            used.record(high).units.store(1, Relaxed);
            used.record(high).set_owner(Owner::inner(1));
        }),
        ("a segment's units", &|used| used.record(used.segment).slots.store(1, Relaxed)),
        ("a class and its layout", &|used| used.record(used.full).class.store(3, Relaxed)),
        ("the way to its first unit", &|used| {
            // What is cached would be missed before.
            used.slot().caches.set_len(class_of(SLOT_BYTES_MAX), 0);
            used.record(used.long + 1).set_owner(Owner::inner(2));
        }),
        ("an owner, a class and their parity", &|used| {
            used.record(used.full).set_owner(Owner(Owner::of(1, class).0 ^ 4));
        }),
        ("the owner, and the class, in whose list it is", &|used| {
            of(used).set_owner(Owner::of(2, class));
        }),
        ("the list of full superblocks, or another", &|used| of(used).set_full(true)),
        ("the list of full superblocks, or another", &|used| {
            used.record(used.full).set_full(false);
        }),
        ("the link back", &|used| used.record(used.full).before.store(7, Relaxed)),
        ("a unit of the arena in a list", &|used| {
            used.record(used.full).after.store(UNITS as u32 + 1, Relaxed);
        }),
        ("frees until something is to be done", &|used| of(used).left.store(0, Relaxed)),
        ("the count of slots not free", &|used| {
            of(used).left.fetch_add(1, Relaxed);
        }),
        ("no more sparse superblocks than slack", &|used| {
            of(used).set_used(of(used).used() as u32, UNITS as u32 * 100);
            used.slot().partial[class].sparse.fetch_add(1, Relaxed);
        }),
        ("a heap's count of sparse superblocks", &|used| {
            used.slot().partial[class].sparse.fetch_add(1, Relaxed);
        }),
    ];
    for (index, (what, overwrite)) in cases.into_iter().enumerate() {
        assert_eq!(fault(overwrite), Some(what), "case {index}");
    }
}

/// The unit that a fault names is the one that is wrong.
#[test]
fn a_fault_names_its_unit() {
    let at = |overwrite: &dyn Fn(&Used) -> u32| {
        let used = Used::new();
        let wrong = overwrite(&used);
        assert_eq!(used.pool.check().map_err(|fault| fault.unit), Err(wrong));
        core::mem::forget((used.first, used.second));
    };
    at(&|used| {
        used.slot().caches.set_len(class_of(SLOT_BYTES_MAX), 0);
        used.record(used.long + 1).set_owner(Owner::FREE);
        used.long + 1
    });
    at(&|used| {
        used.pool.claims()[used.long as usize + 1].set_front(0);
        used.long + 1
    });
    at(&|used| {
        used.pool.lock().release(used.segment + 2, 1);
        used.segment + 2
    });
    at(&|used| {
        used.record(used.kept + 1).set_owner(Owner::SEGMENT);
        used.kept + 1
    });
}

/// Bits of slots, and who may free them.
#[test]
fn an_overwritten_bit_is_found() {
    let class = class_of(512);
    let of = |used: &Used| used.record(used.partial[0]);
    let word = |used: &Used, wanted: &dyn Fn(u64) -> bool| {
        let words = of(used).free.iter().enumerate();
        words.map(|(index, word)| (index, word.load(Relaxed))).find(|&(_, bits)| wanted(bits))
    };
    let first_of = |used: &Used| (used.partial[0] as usize) << 12;
    let step = LAYOUTS[class].step;
    let cases: [Case<'_>; 13] = [
        ("no bits where no slot begins", &|used| {
            let index = STARTS[class].iter().rposition(|&starts| starts != u64::MAX).unwrap();
            let bit = (!STARTS[class][index]).trailing_zeros();
            let bits = of(used).free[index].load(Relaxed);
            of(used).free[index].store(bits | 1 << bit, Relaxed);
        }),
        // Of the words of returned slots alone, and of both.
        ("no bits where no slot begins", &|used| {
            let (word, both) = used.pool.returned_bits(used.partial[0]).place(130);
            word.store(word.load(Relaxed) | both, Relaxed);
        }),
        ("no bits where no slot begins", &|used| {
            let (word, both) = used.pool.returned_bits(used.partial[0]).place(130);
            word.store(word.load(Relaxed) | both, Relaxed);
            of(used).free[2].fetch_or(1 << 2, Relaxed);
        }),
        ("no slot both free and live", &|used| {
            let live = used.pool.live();
            let lives = |index| live.among(first_of(used), index, step, STARTS[class][index]);
            let index = (0..of(used).free.len()).find(|&index| lives(index) != 0).unwrap();
            let bits = of(used).free[index].load(Relaxed);
            of(used).free[index].store(bits | 1 << lives(index).trailing_zeros(), Relaxed);
        }),
        ("the summary of free slots", &|used| of(used).open.store(0, Relaxed)),
        ("no slot returned that is not live", &|used| {
            let (index, bits) = word(used, &|bits| bits != 0).unwrap();
            let position = 64 * index as u32 + bits.trailing_zeros();
            let (word, both) = used.pool.returned_bits(used.partial[0]).place(position);
            word.store(word.load(Relaxed) | both, Relaxed);
        }),
        ("the two bits of a returned slot", &|used| {
            let (word, both) = used.pool.returned_bits(used.partial[0]).place(5);
            word.store(word.load(Relaxed) ^ both & 0xffff_ffff, Relaxed);
        }),
        ("no live bit where no slot begins", &|used| {
            used.pool.live().set(first_of(used) + 1);
        }),
        ("the front that frees its slots", &|used| {
            used.pool.claims()[used.partial[1] as usize].set_front(0);
        }),
        ("the front that frees its slots", &|used| {
            let front = Owner::of(2, class).0;
            used.pool.claims()[used.partial[1] as usize].set_front(front);
        }),
        // Its returned slots wait.
        ("the front that frees its slots", &|used| {
            let front = Owner::of(1, class).0;
            used.pool.claims()[used.partial[0] as usize].set_front(front);
        }),
        ("each slot live, free or in one cache", &|used| {
            let len = used.slot().caches.len(class).unwrap();
            used.slot().caches.set_len(class, len - 1);
        }),
        ("a heap's number", &|used| used.slot().caches.begin(|class| Owner::of(2, class))),
    ];
    for (index, (what, overwrite)) in cases.into_iter().enumerate() {
        assert_eq!(fault(overwrite), Some(what), "case {index}");
    }
    // None may is right of every unit.
    let closed = |used: &Used| used.pool.claims().iter().for_each(|claim| claim.set_front(CLOSED));
    assert_eq!(fault(closed), None);
}

/// The lists of superblocks to which slots were returned.
#[test]
fn an_overwritten_list_of_returns_is_found() {
    let cases: [Case<'_>; 5] = [
        ("each superblock with returned slots on one list", &|used| used.slot().returned.forget()),
        ("a reason to be on a list", &|used| {
            used.slot().returned.push(used.pool.superblocks(), used.full);
        }),
        ("a list with an end", &|used| {
            used.record(used.partial[0]).link.store(used.partial[0] + 1, Relaxed);
        }),
        ("the summary of returned slots", &|used| {
            used.record(used.partial[0]).leave_list();
        }),
        ("no dirty unit in use", &|used| used.pool.lock().release(used.segment + 1, 1)),
    ];
    for (index, (what, overwrite)) in cases.into_iter().enumerate() {
        assert_eq!(fault(overwrite), Some(what), "case {index}");
    }
}

/// Units that heaps keep.
#[test]
fn a_wrong_run_of_kept_units_is_found() {
    let cases: [Case<'_>; 6] = [
        ("kept units below the highest", &|used| used.pool.lock().high = used.kept + 1),
        ("kept units that are free", &|used| used.record(used.kept + 1).set_owner(Owner::SEGMENT)),
        ("kept units that the source has not", &|used| used.pool.lock().release(used.kept + 1, 1)),
        ("each unit in one kept run", &|used| {
            let run = Run { first: used.kept + 1, units: 1 };
            used.pool.heaps()[1].kept.keep(run, |_| panic!("there is room"));
        }),
        ("each unit in one kept run", &|used| {
            let run = Run { first: used.kept, units: 2 };
            used.pool.heaps()[1].kept.keep(run, |_| panic!("there is room"));
        }),
        ("kept units below the highest", &|used| {
            let run = Run { first: used.pool.lock().high, units: 1 };
            used.pool.heaps()[1].kept.keep(run, |_| panic!("there is room"));
        }),
    ];
    for (index, (what, overwrite)) in cases.into_iter().enumerate() {
        assert_eq!(fault(overwrite), Some(what), "case {index}");
    }
}

/// A superblock that lies on another's list goes on to its owner's.
#[test]
fn a_superblock_on_anothers_list_is_forwarded() {
    let used = Used::new();
    let unit = used.partial[0];
    used.slot().returned.forget();
    used.pool.list.push(used.pool.superblocks(), unit);
    used.pool.collect_global(&mut used.pool.lock());
    assert_eq!((used.slot().returned.first(), used.pool.list.first()), (Some(unit), None));
    used.pool.check().unwrap();
    core::mem::forget((used.first, used.second));
}

/// A segment whose record was overwritten stays one.
#[test]
fn an_overwritten_segment_is_not_freed() {
    let used = Used::new();
    let (block, record) = (used.pool.unit_start(used.segment), used.record(used.segment));
    let slots = record.slots.swap(1, Relaxed);
    // SAFETY: it is not freed, and then not used after.
    let free = || unsafe { used.pool.free(block) };
    assert_eq!(free(), Err(BufferFreeError::Corrupt { unit: used.segment }));
    assert_eq!(record.owner(), Owner::SEGMENT);
    record.slots.store(slots, Relaxed);
    assert_eq!(free(), Ok(()));
    assert_eq!(free(), Err(BufferFreeError::NotAllocated { address: block.addr().get() }));
    used.pool.check().unwrap();
    core::mem::forget((used.first, used.second));
}

/// What is sparse has so many of its slots in use that five eighths are empty, and one at least.
#[test]
fn a_superblock_is_sparse_from_a_part_of_its_slots_on() {
    let used = Used::new();
    for (slots, low) in [(0, 1), (2, 1), (8, 3), (16, 6), (128, 48), (u32::MAX, (1 << 29) - 1)] {
        assert_eq!(used.pool.low(slots), low, "{slots} slots");
    }
    core::mem::forget((used.first, used.second));
}

/// Cached slots of a superblock whose owner was overwritten are nobody's: a heap that ends leaves them out.
#[test]
fn cached_slots_of_nobody_are_left_out() {
    let class = class_of(512);
    let Used { pool, mut first, second, .. } = Used::new();
    first.collect();
    // The cache is refilled.
    first.allocate(512, 16).unwrap();
    let caches = &pool.heaps()[0].caches;
    let top = caches.get(class, caches.len(class).unwrap() - 1);
    let record = &pool.superblocks()[top.granule >> 12];
    record.set_owner(Owner(record.owner().0 ^ 4));
    let free = || -> Vec<u64> { record.free.iter().map(|word| word.load(Relaxed)).collect() };
    let before = free();
    drop(first);
    assert_eq!((caches.len(class), free()), (Some(0), before));
    core::mem::forget(second);
}
