//! The contract of every byte allocator, as a suite to run on each of them.
//!
//! The oracle is an ordered map of the extents in use. [`conform`] drives an
//! allocator with random requests, frees and resizes; each byte that is
//! allocated is filled with a pattern of its own and compared before it is
//! freed, so that two owners of one byte show up.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use swath_arch::testing::Random;

use crate::allocator::ByteAllocator;
use crate::error::{AllocateBytesError, ResizeBytesError};

/// A run of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of requests, frees and resizes together.
    pub steps: usize,
    /// Bytes of the longest request.
    pub size_bytes_max: usize,
    /// log2 of the greatest alignment.
    pub align_log2_max: u32,
    /// Number of blocks in use, about.
    pub blocks: usize,
}

/// A block in use.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Its address.
    pub at: NonNull<u8>,
    /// The request.
    pub layout: Layout,
    pattern: u64,
}

impl Used {
    fn byte(self, index: usize) -> u8 {
        (self.pattern.wrapping_add(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    fn fill(self, from: usize) {
        for index in from..self.layout.size() {
            // SAFETY: the block has as many bytes as its layout, all of them
            // the suite's until it frees the block.
            unsafe { self.at.add(index).write(self.byte(index)) }
        }
    }

    fn look(self, len: usize, place: &dyn fmt::Display) {
        for index in 0..len.min(self.layout.size()) {
            // SAFETY: as for `fill`; `fill` has initialised it.
            let found = unsafe { self.at.add(index).read() };
            assert_eq!(found, self.byte(index), "{place}: byte {index} of {self:?} has changed");
        }
    }
}

/// The blocks in use by address.
pub type Oracle = BTreeMap<usize, Used>;

/// Counts of what a run did, so that a test can see that it did something.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Done {
    /// Requests that were served.
    pub allocated: usize,
    /// Requests that were not.
    pub refused: usize,
    /// Resizes that kept the place.
    pub stayed: usize,
    /// Resizes that did not.
    pub moved: usize,
}

/// Runs `plan` on an allocator from which nothing is allocated, and `check`
/// after each step. At the end nothing is allocated again.
///
/// # Panics
/// On the first breach of the contract, with the seed and the step.
pub fn conform<A: ByteAllocator>(
    allocator: &mut A,
    plan: Plan,
    check: &mut dyn FnMut(&A, &Oracle, &dyn fmt::Display),
) -> Done {
    conform_with(&mut Random::new(plan.seed), allocator, plan, check)
}

/// Runs `plan` with the numbers of `random` in place of its seed, until those are spent.
///
/// # Panics
/// As [`conform`].
pub fn conform_with<A: ByteAllocator>(
    random: &mut Random,
    allocator: &mut A,
    plan: Plan,
    check: &mut dyn FnMut(&A, &Oracle, &dyn fmt::Display),
) -> Done {
    let mut used = Oracle::new();
    let mut done = Done::default();
    for step in 0..plan.steps {
        if random.is_spent() {
            break;
        }
        let place = alloc::format!("seed {}, step {step}", plan.seed);
        let some = |random: &mut Random, used: &Oracle| {
            let keys: Vec<usize> = used.keys().copied().collect();
            used[&keys[random.index(keys.len())]]
        };
        match random.below(10) {
            0..=1 if !used.is_empty() => {
                let block = some(random, &used);
                let layout = layout(random, plan);
                resize(allocator, &mut used, block, layout, &mut done, &place);
            }
            2..=9 if used.len() < random.index(2 * plan.blocks) || used.is_empty() => {
                let layout = layout(random, plan);
                let largest = allocator.largest_bytes();
                match allocator.allocate(layout) {
                    Ok(at) => {
                        done.allocated += 1;
                        take(&mut used, Used { at, layout, pattern: random.word() }, 0, &place);
                    }
                    Err(error) => {
                        done.refused += 1;
                        refused(error, layout, largest, &place);
                    }
                }
            }
            _ if !used.is_empty() => {
                let block = some(random, &used);
                give(allocator, &mut used, block, &place);
            }
            _ => {}
        }
        check(allocator, &used, &place);
    }
    for block in used.clone().into_values() {
        give(allocator, &mut used, block, &"at the end");
        check(allocator, &used, &"at the end");
    }
    done
}

/// Draws a size of 0 to `max`, of which the small ones are as likely as the large ones: each power of
/// two with the same probability.
pub fn size(random: &mut Random, max: usize) -> usize {
    match random.below(u64::from(max.ilog2()) + 2) {
        0 => 0,
        bits => random.index(1 << bits).min(max),
    }
}

fn layout(random: &mut Random, plan: Plan) -> Layout {
    let align = 1 << random.below(u64::from(plan.align_log2_max) + 1);
    let align = if random.below(4) == 0 { align } else { align_of::<usize>() };
    Layout::from_size_align(size(random, plan.size_bytes_max), align).expect("small numbers")
}

/// A refusal that says what is so: with the usual alignment, a request is
/// served exactly if it is not above the largest.
fn refused(
    error: AllocateBytesError,
    layout: Layout,
    largest: Option<usize>,
    place: &dyn fmt::Display,
) {
    if let AllocateBytesError::OutOfMemory { size_bytes, largest_bytes } = error {
        assert_eq!((size_bytes, largest_bytes), (layout.size(), largest.unwrap_or(0)), "{place}");
        if layout.align() <= align_of::<usize>() {
            assert!(largest.is_none_or(|largest| layout.size() > largest), "{place}: {error}");
        }
    }
}

/// A block is new: aligned, and no byte of it in use.
fn take(used: &mut Oracle, block: Used, kept: usize, place: &dyn fmt::Display) {
    let (start, len) = (block.at.addr().get(), block.layout.size());
    assert_eq!(start % block.layout.align(), 0, "{place}: {block:?} is misaligned");
    if let Some((&below, other)) = used.range(..=start).next_back() {
        let taken = below + other.layout.size().max(1);
        assert!(taken <= start, "{place}: {block:?} overlaps {other:?}");
    }
    if let Some((&above, other)) = used.range(start..).next() {
        assert!(start + len.max(1) <= above, "{place}: {block:?} overlaps {other:?}");
    }
    block.fill(kept);
    used.insert(start, block);
}

fn give<A: ByteAllocator>(
    allocator: &mut A,
    used: &mut Oracle,
    block: Used,
    place: &dyn fmt::Display,
) {
    block.look(usize::MAX, place);
    // SAFETY: the block is in use.
    let usable = unsafe { allocator.usable_bytes(block.at) };
    assert!(usable.is_ok_and(|usable| usable >= block.layout.size()), "{place}: {usable:?}");
    // SAFETY: the block is in use, and is not after.
    let freed = unsafe { allocator.free(block.at) };
    assert_eq!(freed, Ok(()), "{place}: {block:?}");
    used.remove(&block.at.addr().get());
}

fn resize<A: ByteAllocator>(
    allocator: &mut A,
    used: &mut Oracle,
    block: Used,
    layout: Layout,
    done: &mut Done,
    place: &dyn fmt::Display,
) {
    block.look(usize::MAX, place);
    // SAFETY: the block is in use, and is used as the result says after.
    match unsafe { allocator.resize(block.at, layout) } {
        Ok(at) => {
            if at == block.at {
                done.stayed += 1;
            } else {
                done.moved += 1;
            }
            used.remove(&block.at.addr().get());
            let new = Used { at, layout, pattern: block.pattern };
            let kept = layout.size().min(block.layout.size());
            // Contents first: `take` fills only what is new.
            new.look(kept, place);
            take(used, new, kept, place);
        }
        Err(ResizeBytesError::Allocate(_)) => {
            done.refused += 1;
            block.look(usize::MAX, place);
        }
        Err(error) => panic!("{place}: {block:?}: {error}"),
    }
}
