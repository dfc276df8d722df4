//! Every state of a small page buddy allocator, and every operation in each.
//!
//! From the allocator with all frames free, every operation is tried in every state that
//! is reached, until no new one is: states are told apart by all that the allocator holds,
//! what no caller can see included. So every sequence of operations of any length is
//! covered; those of four are counted.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt::Write;
use std::hash::Hasher;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::testing::frames::{blocks, nodes};
use swath_frame::testing::lists::PaperLists;
use swath_frame::{
    BestFit, BuddyConfig, ByteRange, FrameAllocateError, FrameAllocator, FrameFreeError,
    HeadOfList, MemoryMap, PageBuddy, Rule,
};

type Buddy<R> = PageBuddy<Vec<u64>, R>;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Block(u64),
    Frame,
    Aligned(u8),
    All(u64),
    Free(Extent),
}

/// What an operation returned: the frames that it allocated, or why it did not.
#[derive(PartialEq, Debug)]
enum Returned {
    Blocks(Vec<Extent>),
    Refused(FrameAllocateError),
    Freed(Result<(), FrameFreeError>),
}

/// Every operation on frames of the span: with one frame more at each end, which is foreign.
fn operations(span: Extent) -> Vec<Operation> {
    let mut all = vec![Operation::Frame];
    all.extend((0..=span.count + 1).map(Operation::Block));
    all.extend((0..=span.count + 1).map(Operation::All));
    all.extend((0..5).map(Operation::Aligned));
    let (first, past) = (span.start.raw() - 1, span.end().raw() + 1);
    for start in first..past {
        all.extend(
            (0..=past - start).map(|count| Operation::Free(Extent::new(Pfn::new(start), count))),
        );
    }
    all
}

fn apply(allocator: &mut impl FrameAllocator, operation: Operation) -> Returned {
    let listed = |block: Option<Extent>| Returned::Blocks(block.into_iter().collect());
    match operation {
        Operation::Block(frames_max) => listed(allocator.allocate_block(frames_max)),
        Operation::Frame => listed(allocator.allocate_frame().map(|frame| Extent::new(frame, 1))),
        Operation::Aligned(k) => match allocator.allocate_aligned(Order::known(k)) {
            Ok(extent) => listed(Some(extent)),
            Err(error) => Returned::Refused(error),
        },
        Operation::All(count) => {
            let mut taken = Vec::new();
            match allocator.allocate(count, &mut |block| taken.push(block)) {
                Ok(()) => Returned::Blocks(taken),
                Err(error) => {
                    assert!(taken.is_empty(), "a refused request took {taken:?}");
                    Returned::Refused(error)
                }
            }
        }
        Operation::Free(extent) => Returned::Freed(allocator.free(extent)),
    }
}

/// The model: which frames there are, and which of them are free, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Model {
    start: u64,
    count: u64,
    free: u64,
}

impl Model {
    fn bits(self, extent: Extent) -> u64 {
        ((1 << extent.count) - 1) << (extent.start.raw() - self.start)
    }

    fn has(self, frame: u64) -> bool {
        frame.checked_sub(self.start).is_some_and(|at| at < self.count)
    }

    fn is_free(self, frame: u64) -> bool {
        self.has(frame) && self.free >> (frame - self.start) & 1 == 1
    }

    fn frames(self) -> impl Iterator<Item = u64> {
        self.start..self.start + self.count
    }

    /// Returns true if 2^k aligned frames are free.
    fn has_aligned(self, k: u8) -> bool {
        let free = |first: u64| (first..first + (1 << k)).all(|frame| self.is_free(frame));
        self.frames().any(|frame| frame % (1 << k) == 0 && free(frame))
    }

    /// Takes note of an operation; panics if it may not have returned that.
    fn follow(&mut self, operation: Operation, returned: &Returned) {
        let free = u64::from(self.free.count_ones());
        let wanted = match operation {
            Operation::Free(extent) => {
                let expected = self.freed(extent);
                assert_eq!(*returned, Returned::Freed(expected), "{operation:?} in {self:x?}");
                if expected.is_ok() {
                    self.free |= self.bits(extent);
                }
                return;
            }
            Operation::Block(count) => count.min(1).min(free)..=count.min(free),
            Operation::Frame => free.min(1)..=free.min(1),
            Operation::All(0) => {
                return assert_eq!(*returned, Returned::Refused(FrameAllocateError::Empty));
            }
            Operation::Aligned(k) if 1 << k <= free && !self.has_aligned(k) => {
                let error = FrameAllocateError::NoBlock { order: Order::known(k) };
                return assert_eq!(*returned, Returned::Refused(error), "{self:x?}");
            }
            Operation::All(count) => count..=count,
            Operation::Aligned(k) => 1 << k..=1 << k,
        };
        if *wanted.start() > free {
            let error = FrameAllocateError::OutOfFrames { wanted: *wanted.start(), free };
            return assert_eq!(*returned, Returned::Refused(error), "{operation:?} in {self:x?}");
        }
        let Returned::Blocks(blocks) = returned else {
            panic!("{operation:?} in {self:x?} is refused: {returned:?}");
        };
        let before = *self;
        for &block in blocks {
            let is_free = block.iter().all(|frame| self.is_free(frame.raw()));
            assert!(is_free && !block.is_empty(), "{operation:?} in {before:x?} gives {block}");
            self.free &= !self.bits(block);
            if let Operation::Aligned(k) = operation {
                assert!(block.start.is_aligned(u32::from(k)), "{operation:?} in {before:x?}");
            }
        }
        let taken = free - u64::from(self.free.count_ones());
        assert!(wanted.contains(&taken), "{operation:?} in {before:x?} takes {taken} frames");
    }

    fn freed(self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        for frame in extent.iter() {
            if !self.has(frame.raw()) {
                return Err(FrameFreeError::Foreign { frame });
            }
            if self.is_free(frame.raw()) {
                return Err(FrameFreeError::NotAllocated { frame });
            }
        }
        Ok(())
    }

    /// States that the allocator is in this state, and its nodes are the definition's.
    fn agrees<R: Rule>(self, buddy: &Buddy<R>, config: BuddyConfig) {
        assert_eq!(buddy.check(), Ok(()), "{self:x?}");
        assert_eq!(buddy.free_frames(), u64::from(self.free.count_ones()), "{self:x?}");
        let free = self.frames().filter(|&frame| self.is_free(frame)).collect();
        assert_eq!(blocks(buddy), nodes(&free, config), "{self:x?}");
    }
}

/// All that a value says of itself, in short.
fn fingerprint(value: &impl std::fmt::Debug) -> u64 {
    struct Hashing(DefaultHasher);
    impl Write for Hashing {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    write!(hashing, "{value:?}").unwrap();
    hashing.0.finish()
}

/// What was gone through.
#[derive(Debug, PartialEq)]
struct Covered {
    states: usize,
    operations: usize,
    /// Sequences of four operations, from every state.
    sequences: u128,
}

/// Goes through every operation in every state of `count` frames from `start` on. `choice`
/// says whether the paper's lists choose the same blocks.
fn go_through<R: Rule>(start: u64, count: u64, config: BuddyConfig, choice: bool) -> Covered {
    let span = Extent::new(Pfn::new(start), count);
    let mut storage = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut storage).unwrap();
    let words = vec![0; Buddy::<R>::storage_words(&map, config)];
    let first = Buddy::<R>::new(&map, config, words).unwrap();
    let operations = operations(span);
    let full = Model { start, count, free: (1 << count) - 1 };
    let mut known = HashMap::from([(fingerprint(&first), 0)]);
    let lists = choice.then(|| PaperLists::new(&map, config));
    let mut states = vec![(first, full, lists)];
    // For each state, where each operation leads.
    let mut next: Vec<Vec<usize>> = Vec::new();
    while let Some((buddy, model, lists)) = states.get(next.len()).cloned() {
        model.agrees(&buddy, config);
        let (state, name) = (next.len(), fingerprint(&buddy));
        let mut leads = Vec::with_capacity(operations.len());
        // Is refused one thing after another, and stays as it was.
        let mut still = buddy.clone();
        for &operation in &operations {
            let (mut after, mut followed) = (buddy.clone(), model);
            let returned = apply(&mut after, operation);
            followed.follow(operation, &returned);
            let mut after_lists = lists.clone();
            if let Some(lists) = &mut after_lists {
                assert_eq!(apply(lists, operation), returned, "{operation:?} in {model:x?}");
            }
            if followed == model {
                assert_eq!(apply(&mut still, operation), returned, "{operation:?} in {model:x?}");
                leads.push(state);
                continue;
            }
            let number = states.len();
            leads.push(match known.entry(fingerprint(&after)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    states.push((after, followed, after_lists));
                    *entry.insert(number)
                }
            });
            assert_eq!(states[leads[leads.len() - 1]].1, followed, "two states under one name");
        }
        assert_eq!(fingerprint(&still), name, "a refused operation changed {model:x?}");
        next.push(leads);
    }
    let mut sequences = vec![1_u128; states.len()];
    for _ in 0..4 {
        sequences = next.iter().map(|leads| leads.iter().map(|&to| sequences[to]).sum()).collect();
    }
    Covered {
        states: states.len(),
        operations: operations.len(),
        sequences: sequences.iter().sum(),
    }
}

/// Within a word, and across two, where the head of a bitmap moves.
fn all_of<R: Rule>(choice: bool) {
    let small = [(1, 0), (1, 3), (2, 2), (3, 3)].map(|config| (60, 8, config));
    for (start, count, (granularity, top)) in small.into_iter().chain([(16, 12, (2, 2))]) {
        let config = BuddyConfig::new(granularity, Order::known(top)).unwrap();
        let covered = go_through::<R>(start, count, config, choice);
        println!("{count} frames from {start}, granularity {granularity}, top {top}: {covered:?}");
        assert!(covered.states >= 1 << count, "every set of free frames is reached");
    }
}

#[test]
fn every_state_of_the_papers_rule() {
    all_of::<HeadOfList>(true);
}

#[test]
fn every_state_of_best_fit() {
    all_of::<BestFit>(false);
}
