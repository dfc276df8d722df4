//! What every byte allocator has to do, as a suite to run on each of them.
//!
//! The oracle is an ordered map of the extents in use. [`conform`] drives an
//! allocator with random requests, frees and resizes; each byte that is handed
//! out is filled with a pattern of its own and looked at again before it is
//! given back, so that two owners of one byte show up.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use crate::allocator::ByteAllocator;
use crate::error::{AllocError, ResizeError};

/// An xorshift* generator (Marsaglia, 2003): a printed seed repeats a run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`, which is not 0.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is neither 0 nor above 2^32.
    pub fn below(&mut self, end: usize) -> usize {
        (((self.bits() >> 32) * end as u64) >> 32) as usize
    }

    /// A size of 0 to `max`, of which the small ones are as likely as the large
    /// ones: each power of two with the same probability.
    pub fn size(&mut self, max: usize) -> usize {
        let bits = self.below(max.ilog2() as usize + 2) as u32;
        match bits {
            0 => 0,
            bits => self.below(1 << bits).min(max),
        }
    }
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed of the random numbers, not 0.
    pub seed: u64,
    /// Requests, frees and resizes together.
    pub steps: usize,
    /// Bytes of the longest request.
    pub size_bytes_max: usize,
    /// log2 of the greatest alignment.
    pub align_log2_max: u32,
    /// How many blocks are in use, about.
    pub blocks: usize,
}

/// A block in use.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Where it is.
    pub at: NonNull<u8>,
    /// What was asked for.
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
    let mut random = Random::new(plan.seed);
    let mut used = Oracle::new();
    let mut done = Done::default();
    for step in 0..plan.steps {
        let place = alloc::format!("seed {}, step {step}", plan.seed);
        let some = |random: &mut Random, used: &Oracle| {
            let keys: Vec<usize> = used.keys().copied().collect();
            used[&keys[random.below(keys.len())]]
        };
        match random.below(10) {
            0..=1 if !used.is_empty() => {
                let block = some(&mut random, &used);
                let layout = layout(&mut random, plan);
                resize(allocator, &mut used, block, layout, &mut done, &place);
            }
            2..=9 if used.len() < random.below(2 * plan.blocks) || used.is_empty() => {
                let layout = layout(&mut random, plan);
                let largest = allocator.largest_bytes();
                match allocator.allocate(layout) {
                    Ok(at) => {
                        done.allocated += 1;
                        take(&mut used, Used { at, layout, pattern: random.bits() }, 0, &place);
                    }
                    Err(error) => {
                        done.refused += 1;
                        refused(error, layout, largest, &place);
                    }
                }
            }
            _ if !used.is_empty() => {
                let block = some(&mut random, &used);
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

fn layout(random: &mut Random, plan: Plan) -> Layout {
    let align = 1 << random.below(plan.align_log2_max as usize + 1);
    let align = if random.below(4) == 0 { align } else { align_of::<usize>() };
    Layout::from_size_align(random.size(plan.size_bytes_max), align).expect("small numbers")
}

/// A refusal that says what is so: with the usual alignment, a request is
/// served exactly if it is not above the largest.
fn refused(error: AllocError, layout: Layout, largest: Option<usize>, place: &dyn fmt::Display) {
    if let AllocError::OutOfMemory { size_bytes, largest_bytes } = error {
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
        Err(ResizeError::Alloc(_)) => {
            done.refused += 1;
            block.look(usize::MAX, place);
        }
        Err(error) => panic!("{place}: {block:?}: {error}"),
    }
}
