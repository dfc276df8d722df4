//! Single-bit flips in every kind of word that a pool relies on.
//!
//! What is demanded is no signal, no panic, and no byte that has two owners: what says that a slot is free is
//! believed only if another word says so too, and what is sealed or stands there more than once only as it was
//! written.
//!
//! A pool of two heaps is aged by random calls; then one bit of one word is flipped, and three
//! things are asked: does `check` find it; do further random calls end in a
//! signal, a panic, or a byte with two owners. Each case runs in a forked child, so that a signal is
//! a count.
//!
//! The quick form runs with the suite. The long one, 10,000 flips for each kind of word:
//!
//! ```text
//! SWATH_FLIPS=10000 cargo test --release -p swath-pool --test suite flips -- --nocapture
//! ```
#![cfg(all(target_os = "linux", not(miri)))]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::forked::{End, run};
use crate::support::{Arena, Block, Heap, arena, size};
use swath_arch::testing::Random;
use swath_pool::*;

const UNITS: usize = 96;
/// Calls after the flip.
const CALLS: usize = 300;

/// The kinds of words: which bytes of which record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// What all threads read of a unit's record: owner, layout, link.
    Head,
    /// What the owner writes: counts and list.
    Owned,
    /// The bits of free slots.
    Free,
    /// The bits of returned slots.
    Returned,
    /// The bits of granules where a block in use begins.
    Live,
    /// Whose front may free slots of a unit.
    Claim,
    /// The bits of free units whose memory is still there.
    Dirty,
    /// A processor heap.
    Heap,
}

/// An aged pool, and what its users have.
struct Aged {
    arena: &'static Arena,
    heaps: [Heap<'static>; 2],
    used: Vec<Block>,
    random: Random,
}

impl Aged {
    fn new(seed: u64) -> Self {
        let arena: &Arena = Box::leak(Box::new(arena(UNITS, 2, BufferOptions::default())));
        let heaps = [arena.pool.attach().unwrap(), arena.pool.attach().unwrap()];
        let mut aged = Self { arena, heaps, used: Vec::new(), random: Random::new(seed) };
        for _ in 0..2500 {
            assert!(!aged.call(), "two owners");
        }
        arena.pool.check().unwrap();
        aged
    }

    /// One random call; true if a byte has two owners.
    fn call(&mut self) -> bool {
        let heap = &mut self.heaps[self.random.index(2)];
        let len = size(&mut self.random);
        match self.random.below(40) {
            0 => heap.collect(),
            1 => drop(self.arena.pool.purge_all()),
            2 => drop(self.arena.pool.stats()),
            3..8 if !self.used.is_empty() => {
                let index = self.random.index(self.used.len());
                let block = &self.used[index];
                if !block.intact(block.size) {
                    return true;
                }
                // SAFETY: used only where it lies then.
                if let Ok(at) = unsafe { heap.resize(block.at, len, 16) } {
                    self.used.swap_remove(index);
                    return self.own(at, len);
                }
            }
            8..25 if self.used.len() < 400 => {
                if let Ok(at) = heap.allocate(len, 16) {
                    return self.own(at, len);
                }
            }
            _ if !self.used.is_empty() => {
                let index = self.random.index(self.used.len());
                let block = &self.used[index];
                if !block.intact(block.size) {
                    return true;
                }
                // SAFETY: in use, and not after a success.
                if unsafe { heap.free(block.at) }.is_ok() {
                    self.used.swap_remove(index);
                }
            }
            _ => {}
        }
        false
    }

    /// True if it lies outside of the arena or is another's too.
    fn own(&mut self, at: std::ptr::NonNull<u8>, len: usize) -> bool {
        let (start, base) = (at.addr().get(), self.arena.base.addr().get());
        let overlaps = |other: &Block| {
            let at = other.at.addr().get();
            at < start + len.max(1) && start < at + other.size.max(1)
        };
        if start < base || start + len > base + UNITS * UNIT_BYTES || self.used.iter().any(overlaps)
        {
            return true;
        }
        let seed = self.random.word() as u8;
        self.used.push(Block::fill(at, len, seed));
        false
    }

    /// Addresses of all words of a kind, of the units used so far.
    fn words(&self, kind: Kind) -> Vec<usize> {
        let tables = &self.arena.tables;
        let owner = |unit: &usize| {
            let at = tables.superblocks + unit * size_of::<Superblock>();
            // SAFETY: a word of the tables, which no call writes now.
            unsafe { std::ptr::with_exposed_provenance::<u32>(at).read() }
        };
        // Of the tables of slots only those in use: the others are written before they are read.
        let all = matches!(kind, Kind::Head | Kind::Dirty | Kind::Heap);
        let used = |unit: &usize| all || owner(unit) >> 8 & 3 == 1;
        let part = |start: usize, count: usize, record: usize, from: usize, to: usize| {
            let records = (0..count).filter(used).map(|index| start + index * record);
            records.flat_map(move |at| (at + from..at + to).step_by(8)).collect()
        };
        let superblock = size_of::<Superblock>();
        match kind {
            Kind::Head => part(tables.superblocks, UNITS, superblock, 0, 40),
            Kind::Owned => part(tables.superblocks, UNITS, superblock, 64, 96),
            Kind::Free => part(tables.superblocks, UNITS, superblock, 96, 96 + 512),
            Kind::Returned => part(tables.returned, UNITS, size_of::<Returned>(), 0, 1024),
            Kind::Live => part(tables.live, UNITS, size_of::<Live>(), 0, 512),
            // Of two in a word of 64 bits.
            Kind::Claim => {
                let at = |unit: usize| tables.claims + unit * size_of::<Claim>();
                (0..UNITS).filter(used).map(|unit| at(unit) / 8 * 8).collect()
            }
            Kind::Dirty => part(tables.dirty, 1, 8, 0, 8 * dirty_words(UNITS)),
            Kind::Heap => part(tables.heaps, 2, size_of::<HeapSlot>(), 0, size_of::<HeapSlot>()),
        }
    }
}

/// Flags that a case returns.
const FOUND: u8 = 1;
const SHARED: u8 = 2;
/// `check` itself panicked.
const CHECK: u8 = 4;
const PANICKED: u8 = 8;

fn case(aged: &mut Aged, kind: Kind, seed: u64) -> u8 {
    let mut draw = Random::new(seed);
    let words = aged.words(kind);
    let bit = 1_u64 << draw.below(64);
    let word = words[draw.index(words.len())];
    // SAFETY: a word of the tables, which no call reads now.
    unsafe {
        let at = std::ptr::with_exposed_provenance_mut::<u64>(word);
        at.write(at.read() ^ bit);
    }
    let mut code = match catch_unwind(AssertUnwindSafe(|| aged.arena.pool.check())) {
        Ok(Ok(())) => 0,
        Ok(Err(_)) => FOUND,
        Err(_) => return CHECK,
    };
    let calls = AssertUnwindSafe(|| (0..CALLS).any(|_| aged.call()));
    match catch_unwind(calls) {
        Ok(shared) => {
            let written = aged.used.iter().any(|block| !block.intact(block.size));
            code |= if shared || written { SHARED } else { 0 };
        }
        // The source's own, of the tests: memory in use would have gone back to the system.
        Err(payload) if payload.downcast_ref() == Some(&"a purge of units in use") => {
            code |= SHARED;
        }
        Err(_) => code |= PANICKED,
    }
    code
}

#[derive(Default, Debug)]
struct Count {
    found: usize,
    shared: usize,
    check: usize,
    panicked: usize,
    signals: usize,
}

fn campaign(kind: Kind, cases: usize) -> Count {
    let aged = std::cell::RefCell::new(Aged::new(1));
    // A child for each: what a case changes is not undone.
    let ends = run(cases, 1, |index| case(&mut aged.borrow_mut(), kind, index as u64));
    let mut count = Count::default();
    for end in ends {
        match end {
            End::Returned(code) => {
                count.found += usize::from(code & FOUND != 0);
                count.shared += usize::from(code & SHARED != 0);
                count.check += usize::from(code & CHECK != 0);
                count.panicked += usize::from(code & PANICKED != 0);
            }
            End::Panicked => count.panicked += 1,
            End::Signal => count.signals += 1,
        }
    }
    println!(
        "{:<9} {cases:>6} flips: {:>6} found by check; then {:>5} shared, {:>4} panics, {:>4} \
         signals; {:>4} panics of check",
        format!("{kind:?}"),
        count.found,
        count.shared,
        count.panicked,
        count.signals,
        count.check
    );
    count
}

/// Flips for each kind.
fn cases() -> usize {
    std::env::var("SWATH_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

#[test]
fn a_flip_ends_in_no_signal_no_panic_and_no_second_owner() {
    for kind in [
        Kind::Head,
        Kind::Owned,
        Kind::Free,
        Kind::Returned,
        Kind::Live,
        Kind::Claim,
        Kind::Dirty,
        Kind::Heap,
    ] {
        let count = campaign(kind, cases());
        let harm = (count.shared, count.check, count.panicked, count.signals);
        assert_eq!(harm, (0, 0, 0, 0), "{kind:?}: {count:?}");
    }
}
