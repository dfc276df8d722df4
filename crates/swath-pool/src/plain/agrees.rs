//! Random calls of a pool and of the plain one, which agree on every place and every count.

extern crate std;

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use crate::options::BufferOptions;
use crate::plain::both::{Both, HEAPS, TestHeap, UNITS};
use crate::plain::fixture::CROWDED;
use crate::plain::pool::GLOBAL;
use crate::superblock::class::{SLOT_BYTES_MAX, UNIT_BYTES};

/// Requests of all kinds: short and long slots, segments that are kept and others.
const SIZES: [usize; 22] = [
    0,
    1,
    48,
    112,
    128,
    144,
    512,
    512,
    2000,
    2048,
    5000,
    9000,
    20_000,
    SLOT_BYTES_MAX,
    SLOT_BYTES_MAX + 1,
    2 * UNIT_BYTES,
    5 * UNIT_BYTES,
    16 * UNIT_BYTES - 3,
    17 * UNIT_BYTES,
    64 * UNIT_BYTES,
    65 * UNIT_BYTES,
    usize::MAX,
];

impl Both {
    /// One random call, or many alike.
    fn call(&mut self, growing: bool) {
        if self.random.one_in(6) {
            self.set_unusable(false);
        }
        let number = 1 + self.random.index(HEAPS);
        let is_attached = self.heaps[number].is_some();
        let size = SIZES[self.random.index(SIZES.len())];
        let way = self.random.below(10);
        match self.random.below(64) {
            0..2 if is_attached => {
                self.heaps[number] = None;
                self.plain.detach(number);
            }
            _ if !is_attached => {
                let spared = self.random.index(2);
                let heap = self.real.pool.attach_sparing(spared);
                let expected = self.plain.attach(spared);
                let own = |heap: &TestHeap| self.real.pool.number_of(heap.slot) as usize;
                assert_eq!(heap.as_ref().map(own), expected);
                if let Some(number) = expected {
                    self.heaps[number] = heap;
                }
            }
            2 => {
                self.heap(number).collect();
                self.plain.collect(number);
            }
            3 => {
                let due = self.plain.due;
                let near = [due.saturating_sub(1), due, due + 1, due + self.random.below(50)];
                let now = (way < 8).then(|| near[way as usize % 4]);
                let purged = match now {
                    Some(now) => self.real.pool.purge(now),
                    None => self.real.pool.purge_all(),
                };
                assert_eq!(purged, self.plain.purge(now));
                // The first who waits for the lock tells of the crowd again.
                self.agree();
            }
            4 if way < 2 => self.fork(number, way == 0),
            4 => self.set_unusable(true),
            5..9 if !self.used.is_empty() => {
                let index = self.pick();
                let size = self.near_half(index).unwrap_or(size);
                self.resize(index, number, size, way);
            }
            9..12 if !self.used.is_empty() => {
                let index = self.random.index(self.used.len());
                let size = self.near_half(index).unwrap_or(size);
                self.resize_by_front(index, number, size);
            }
            12 => {
                let offset = self.random.index(UNITS * UNIT_BYTES + 5000);
                let offset = offset - offset % [1, 16, 512, UNIT_BYTES][self.random.index(4)];
                if self.plain.len(offset).is_none() {
                    self.refused(number, offset);
                }
            }
            13..16 if !self.used.is_empty() => {
                let index = self.pick();
                self.ask(index, number, size);
            }
            n if (n < 46) == growing => {
                let most = match size {
                    0..=512 => [4, 40, 400],
                    513..=SLOT_BYTES_MAX => [2, 8, 40],
                    _ => [1, 2, 2],
                };
                let count = self.some(most);
                (0..count).for_each(|_| self.allocate(number, size, way));
            }
            _ => self.free_many(number, way),
        }
    }

    /// Some block in use, as often a segment as any.
    fn pick(&mut self) -> usize {
        let segments = self.used.iter().enumerate();
        let segments = segments.filter(|(_, (offset, _))| self.plain.block_of(*offset).is_none());
        let segments: Vec<usize> = segments.map(|(index, _)| index).collect();
        if segments.is_empty() || self.random.one_in(2) {
            return self.random.index(self.used.len());
        }
        segments[self.random.index(segments.len())]
    }

    /// Now and then half of a block's length, or a byte more: where it may stay with no less.
    fn near_half(&mut self, index: usize) -> Option<usize> {
        let len = self.plain.len(self.used[index].0).unwrap();
        self.random.one_in(5).then(|| len / 2 + self.random.index(2))
    }

    fn set_unusable(&mut self, unusable: bool) {
        self.plain.unusable = unusable;
        self.real.units.unusable.store(unusable, Relaxed);
    }

    /// A fork, after which this is the parent, or the child with one heap or none.
    fn fork(&mut self, number: usize, is_parent: bool) {
        let pool = self.real.pool;
        pool.before_fork();
        if is_parent {
            // SAFETY: it has just begun.
            return unsafe { pool.after_fork_in_parent() };
        }
        let own = if self.random.one_in(3) { GLOBAL } else { number };
        for other in (1..=HEAPS).filter(|&other| other != own) {
            core::mem::forget(self.heaps[other].take());
        }
        let heap = self.heaps[own].as_mut().map(NonNull::from);
        // SAFETY: as above, and other heaps are forgotten.
        unsafe { pool.after_fork_in_child(heap) };
        self.plain.fork(own);
    }

    /// A number of one of three kinds.
    fn some(&mut self, most: [usize; 3]) -> usize {
        let most = most[self.random.index(3)];
        1 + self.random.index(most)
    }

    /// Frees one block, or many that lie side by side, in the order of their places or another.
    fn free_many(&mut self, number: usize, way: u64) {
        let count = self.some([1, 30, 300]);
        if self.random.one_in(2) {
            self.used.sort_unstable();
        }
        let number = if self.random.one_in(12) { GLOBAL } else { number };
        let from = self.random.index(self.used.len().max(1));
        let is_mixed = self.random.one_in(4);
        for nth in 0..count.min(self.used.len()) {
            let nth = if is_mixed { nth * 7 } else { nth };
            // What is freed leaves its place to the last one.
            let index = (from + self.used.len() - nth % self.used.len()) % self.used.len();
            self.free(index, number, way);
            if self.used.is_empty() {
                break;
            }
        }
    }

    /// All blocks go back, and all heaps end: nothing is held.
    fn end(mut self) {
        for number in 1..=HEAPS {
            self.heaps[number] = None;
            if self.plain.heaps[number].attached {
                self.plain.detach(number);
            }
        }
        self.agree();
        while let Some(index) = self.used.len().checked_sub(1) {
            self.free(index, GLOBAL, 0);
        }
        self.agree();
        assert_eq!(self.real.pool.purge_all(), self.plain.purge(None));
        self.agree();
        assert_eq!(self.plain.source.free_units(), UNITS as u32);
    }
}

fn run(seed: u64, steps: usize, options: BufferOptions) {
    std::println!("seed {seed}, {options:?}");
    let mut both = Both::new(seed, options);
    for step in 0..steps {
        std::println!("step {step}");
        both.call(step / 60 % 2 == 0);
        // Each place was compared; all that is held now and then.
        if step % 4 == 0 {
            both.agree();
        }
    }
    both.end();
}

const OPTIONS: BufferOptions =
    BufferOptions { empty_eighths: 7, slack: 4, purge_delay: 100, guard_segments: false };

#[test]
fn a_pool_does_what_the_plain_one_does() {
    for seed in 0..8 {
        let empty_eighths = 1 + seed as u32 % 7;
        let slack = seed as u32 % 5;
        run(seed, 500, BufferOptions { empty_eighths, slack, ..OPTIONS });
    }
}

#[test]
fn guarded_segments_do_too() {
    for seed in 20..24 {
        run(seed, 300, BufferOptions { guard_segments: true, ..OPTIONS });
    }
}

/// Heaps keep long segments, too.
#[test]
fn heaps_in_a_crowd_do_too() {
    CROWDED.set(true);
    for seed in 30..34 {
        run(seed, 400, BufferOptions { slack: 1, ..OPTIONS });
    }
    CROWDED.set(false);
}
