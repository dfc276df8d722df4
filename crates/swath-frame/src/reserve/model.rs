//! Reservations against a model of plain sets, operation by operation: random
//! mixes under shortage, and all sequences of small cases.

extern crate std;

use std::string::String;
use std::vec::Vec;
use std::{eprintln, format, println, vec};

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::buddy::BuddyConfig;
use crate::hardening::{Checked, Hardening, Trusting};
use crate::map::{ByteRange, MemoryMap};
use crate::reserve::Reservations;
use crate::testing::reservations::{
    Model, Op, Pool, agree, agree_on, apply, levels, pool, random_op,
};

fn extent(start: u64, count: u64) -> Extent {
    Extent::new(Pfn::new(start), count)
}

/// Calls `step`, and says where a failure was.
fn at<T>(place: impl FnOnce() -> String, step: impl FnOnce() -> T) -> T {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(step)) {
        Ok(value) => value,
        Err(panic) => {
            eprintln!("at {}", place());
            std::panic::resume_unwind(panic)
        }
    }
}

fn equals_the_model<H: Hardening>(seeds: core::ops::Range<u64>) {
    let cases: &[(&[u8], &[u8])] = &[
        (&[1], &[]),
        (&[3], &[1, 2]),
        (&[4], &[2]),
        (&[7], &[4, 6]),
        (&[8], &[4, 7]),
        (&[1, 2], &[]),
        (&[2, 5], &[1]),
        (&[1, 3, 4], &[]),
        (&[2, 3, 5, 7], &[1]),
    ];
    for seed in seeds {
        for &(orders, suborders) in cases {
            let levels = levels(orders, suborders);
            let mut random = Random::new(seed);
            let top = levels.top().frames();
            // From a half to four superpages, at any alignment, with a hole.
            let first = extent(random.below(3 * top), top / 2 + random.below(3 * top));
            let second = extent(first.end().raw() + 1 + random.below(top), 1 + random.below(top));
            let areas = [first, second];
            let config = [BuddyConfig::BBS, BuddyConfig::PBS_ARMV7, BuddyConfig::PBS_ARMV8]
                [seed as usize % 3];
            let mut pool = pool::<H>(&areas, config, levels);
            let mut model = Model::new(&areas, levels);
            let (mut now, pressure) = (0, random.below(12));
            for step in 0..400 {
                let op = random_op(&mut random, &model, &mut now, pressure);
                let frame = first.start.raw() + random.below(5 * top);
                at(
                    || format!("seed {seed}, levels {orders:?}, step {step}: {op:?}"),
                    || {
                        apply(&mut pool, &mut model, &op);
                        agree(&pool, &model);
                        agree_on(&pool, &model, frame);
                    },
                );
            }
        }
    }
}

#[test]
fn equals_the_model_on_random_mixes() {
    equals_the_model::<Trusting>(0..9);
}

#[test]
fn the_checked_tier_equals_the_model_on_random_mixes() {
    equals_the_model::<Checked>(16..25);
}

/// All sequences of `ops` up to `depth`, from a state on; how many.
fn explore(pool: &Pool, model: &Model, depth: usize, ops: &dyn Fn(&Model) -> Vec<Op>) -> u64 {
    if depth == 0 {
        return 1;
    }
    let mut sequences = 0;
    for op in ops(model) {
        let (mut pool, mut model) = (pool.clone(), model.clone());
        sequences += at(
            || format!("{op:?}"),
            || {
                apply(&mut pool, &mut model, &op);
                agree(&pool, &model);
                explore(&pool, &model, depth - 1, ops)
            },
        );
    }
    sequences
}

/// Reservations of 8 frames, two objects, and 8 to 20 frames of memory: each
/// sequence of operations, from the beginning and from where both objects
/// have a reservation that lacks one page or two.
#[test]
fn all_sequences_of_a_small_case() {
    let levels = levels(&[3], &[1]);
    let ops = |model: &Model| {
        let mut ops = Vec::new();
        for (object, index) in [(1, 7), (1, 0), (2, 5)] {
            for now in [model.latest, model.latest + 1] {
                ops.push(Op::Populate { object, index, bounds: 0..8, now });
            }
        }
        ops.push(Op::Populate { object: 2, index: 9, bounds: 0..10, now: model.latest });
        ops.push(Op::TakeFrame);
        ops.push(Op::TakeAligned(Order::known(1)));
        ops.push(Op::Release(1, 0..8));
        for frame in [model.held.first(), model.held.last()].into_iter().flatten() {
            ops.push(Op::Free(extent(*frame, 1)));
        }
        ops
    };
    let mut sequences = 0;
    for frames in [8, 16, 17, 20] {
        let areas = [extent(8, frames)];
        let mut pool = pool(&areas, BuddyConfig::PBS_ARMV7, levels);
        let mut model = Model::new(&areas, levels);
        sequences += explore(&pool, &model, 4, &ops);
        for object in [1, 2] {
            for index in 1..7 {
                let op = Op::Populate { object, index, bounds: 0..8, now: index };
                apply(&mut pool, &mut model, &op);
            }
        }
        sequences += explore(&pool, &model, 4, &ops);
    }
    println!("{sequences} sequences");
    assert!(sequences > 80_000);
}

/// Two levels of 2 and 4 frames: parts, and what becomes of them.
#[test]
fn all_sequences_of_a_small_case_of_two_levels() {
    let levels = levels(&[1, 2], &[]);
    let ops = |model: &Model| {
        let mut ops = Vec::new();
        for index in 0..4 {
            let now = model.latest + index % 2;
            ops.push(Op::Populate { object: 1, index, bounds: 0..4, now });
        }
        ops.push(Op::Populate { object: 1, index: 2, bounds: 2..4, now: model.latest });
        ops.push(Op::Populate { object: 2, index: 3, bounds: 0..4, now: model.latest + 1 });
        ops.push(Op::TakeFrame);
        ops.push(Op::TakeAligned(Order::known(1)));
        ops.push(Op::Release(1, 1..2));
        if let Some(&frame) = model.held.first() {
            ops.push(Op::Free(extent(frame, 1)));
        }
        ops
    };
    let mut sequences = 0;
    for frames in [4, 7] {
        let areas = [extent(4, frames)];
        let pool = pool(&areas, BuddyConfig::BBS, levels);
        sequences += explore(&pool, &Model::new(&areas, levels), 5, &ops);
    }
    println!("{sequences} sequences");
    assert!(sequences > 150_000);
}

/// Pages whose numbers take all bits, few of them and many.
#[test]
fn pages_of_large_numbers_are_released() {
    let areas = [extent(8, 24)];
    for (at, pages) in [
        (1 << 61, (1 << 61)..(1 << 61) + 1),
        ((1 << 61) + 7, (1 << 61) + 7..(1 << 61) + 9),
        (1 << 63, 0..u64::MAX),
        (u64::MAX - 9, u64::MAX - 16..u64::MAX),
        (u64::MAX - 9, 1..u64::MAX - 14),
    ] {
        let levels = levels(&[3], &[]);
        let mut pool = pool::<Trusting>(&areas, BuddyConfig::BBS, levels);
        let mut model = Model::new(&areas, levels);
        let (object, first) = (7, at & !7);
        let populate = |index| Op::Populate { object, index, bounds: first..first + 8, now: 1 };
        for op in [populate(at), Op::Release(6, pages.clone()), Op::Release(7, pages.clone())] {
            apply(&mut pool, &mut model, &op);
            agree(&pool, &model);
        }
        assert_eq!(pool.reservations(), 0, "{pages:?}");
    }
}

/// An allocator whose aligned blocks are not of its memory.
struct Astray(u64);

impl FrameAllocator for Astray {
    fn allocate_block(&mut self, _: u64) -> Option<Extent> {
        None
    }
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        Ok(extent(self.0, order.frames()))
    }
    fn free(&mut self, _: Extent) -> Result<(), FrameFreeError> {
        Ok(())
    }
    fn free_frames(&self) -> u64 {
        64
    }
    fn total_frames(&self) -> u64 {
        64
    }
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        visit(extent(64, 64));
    }
}

/// Reserves over memory of 64 frames from the 64th on, where a block begins at a frame.
fn astray(start: u64) {
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(extent(64, 64))], &mut areas).unwrap();
    let levels = levels(&[3], &[]);
    let words = Reservations::<Astray, Vec<u64>>::storage_words(&map, levels);
    let mut pool = Reservations::<_, _>::new(&map, levels, Astray(start), vec![0; words]).unwrap();
    let _ = pool.populate(1, 0, 0..8, 0);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic = "other frames than the map"]
fn frames_before_the_map_are_not_reserved() {
    astray(56);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic = "other frames than the map"]
fn frames_behind_the_map_are_not_reserved() {
    astray(128);
}

#[test]
fn frames_at_the_ends_of_the_map_are_reserved() {
    astray(64);
    astray(120);
}
