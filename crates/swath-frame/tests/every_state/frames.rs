//! Page buddy systems, binary ones among them, and quick fit over them.

use std::hash::Hasher;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::buddy::QuickFit;
use swath_frame::testing::frames::{blocks, nodes};
use swath_frame::testing::lists::PaperLists;
use swath_frame::{
    BestFit, BuddyConfig, ByteRange, FrameAllocateError, FrameAllocator, FrameFreeError,
    HeadOfList, MemoryMap, PageBuddy, Rule,
};

use super::walk::{Covered, Name, Subject, Words, walk};

type Buddy<R> = PageBuddy<Words, R>;

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

    fn free_frames(self) -> u64 {
        u64::from(self.free.count_ones())
    }

    /// Returns true if an operation is refused, whatever it finds out on the way.
    fn refuses(self, operation: Operation) -> bool {
        let free = self.free_frames();
        match operation {
            Operation::Free(extent) => self.freed(extent).is_err(),
            Operation::Frame => free == 0,
            Operation::Block(count) => count.min(free) == 0,
            Operation::All(count) => count == 0 || count > free,
            Operation::Aligned(k) => !self.has_aligned(k),
        }
    }

    /// States that the allocator says as many free frames, and these, in whichever blocks.
    fn agrees(self, allocator: &impl FrameAllocator) {
        assert_eq!(allocator.free_frames(), self.free_frames(), "{self:x?}");
        assert_eq!(allocator.total_frames(), self.count, "{self:x?}");
        let mut free = 0;
        for block in blocks(allocator) {
            assert_eq!(free & self.bits(block), 0, "{block} is free twice in {self:x?}");
            free |= self.bits(block);
        }
        assert_eq!(free, self.free);
    }
}

/// A page buddy allocator, beside it the paper's lists if they choose the same blocks.
#[derive(Clone)]
struct Alone<R> {
    buddy: Buddy<R>,
    lists: Option<PaperLists>,
    config: BuddyConfig,
}

impl<R: Rule + Clone> Subject for Alone<R> {
    type Operation = Operation;
    type Returned = Returned;
    type Model = Model;

    fn apply(&mut self, operation: Operation) -> Returned {
        let returned = apply(&mut self.buddy, operation);
        if let Some(lists) = &mut self.lists {
            assert_eq!(apply(lists, operation), returned, "{operation:?} with the paper's lists");
        }
        returned
    }

    fn stays(model: &Model, operation: Operation) -> bool {
        model.refuses(operation)
    }

    fn follow(model: &mut Model, operation: Operation, returned: &Returned) {
        model.follow(operation, returned);
    }

    fn name(&self, _: &Model) -> u64 {
        Name::of(&self.buddy)
    }

    fn agrees(&self, model: &Model) {
        assert_eq!(self.buddy.check(), Ok(()), "{model:x?}");
        model.agrees(&self.buddy);
        let free = model.frames().filter(|&frame| model.is_free(frame)).collect();
        assert_eq!(blocks(&self.buddy), nodes(&free, self.config), "{model:x?}");
    }
}

/// What is behind quick fit's lists can be any state of the buddy, and the lists any of the rest.
#[derive(Clone)]
struct Quick<'m, R>(QuickFit<'m, Words, Buddy<R>>);

impl<R: Rule + Clone> Subject for Quick<'_, R> {
    type Operation = Operation;
    type Returned = Returned;
    type Model = Model;

    const TIDIES: bool = true;

    fn apply(&mut self, operation: Operation) -> Returned {
        apply(&mut self.0, operation)
    }

    /// An aligned request empties the lists before it is refused.
    fn stays(model: &Model, operation: Operation) -> bool {
        model.refuses(operation) && !matches!(operation, Operation::Aligned(_))
    }

    fn follow(model: &mut Model, operation: Operation, returned: &Returned) {
        model.follow(operation, returned);
    }

    /// What the allocator behind has free, and what is on the lists, in their order. What is in
    /// their storage beyond that is never read. The allocator has one state only for the same free
    /// frames: that many are found without lists before it.
    fn name(&self, _: &Model) -> u64 {
        let mut name = Name::default();
        let mut put = |block: Extent| name.write_u64(block.start.raw() << 8 | block.count);
        self.0.inner().for_each_free(&mut put);
        put(Extent::default());
        self.0.for_each_free(&mut put);
        name.finish()
    }

    fn agrees(&self, model: &Model) {
        assert_eq!(self.0.inner().check(), Ok(()), "{model:x?}");
        let mut scratch = [0; 1100];
        assert_eq!(self.0.check(&mut scratch), Ok(()), "{model:x?}");
        model.agrees(&self.0);
    }
}

/// The map of `count` frames from `start` on, and the model of all of them free.
fn with_span<T>(start: u64, count: u64, body: impl FnOnce(MemoryMap<'_>, Model) -> T) -> T {
    let span = Extent::new(Pfn::new(start), count);
    let mut storage = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut storage).unwrap();
    body(map, Model { start, count, free: (1 << count) - 1 })
}

fn buddy<R: Rule>(map: &MemoryMap<'_>, config: BuddyConfig) -> Buddy<R> {
    Buddy::new(map, config, Words(vec![0; Buddy::<R>::storage_words(map, config)])).unwrap()
}

/// Within a word, and across two, where the head of a bitmap moves.
const SMALL: [(u64, u64, (u32, u8)); 6] = [
    (60, 8, (1, 0)),
    (60, 8, (1, 3)),
    (60, 8, (2, 2)),
    (60, 8, (3, 3)),
    (16, 12, (2, 2)),
    (16, 12, (1, 3)),
];

fn said(of: &str, (start, count): (u64, u64), (granularity, top): (u32, u8), covered: &Covered) {
    println!(
        "{of}, {count} frames from {start}, granularity {granularity}, top {top}: {covered:?}"
    );
}

fn all_of<R: Rule + Clone>(choice: bool, shapes: &[(u64, u64, (u32, u8))]) {
    for &(start, count, shape) in shapes {
        let config = BuddyConfig::new(shape.0, Order::known(shape.1)).unwrap();
        let covered = with_span(start, count, |map, full| {
            let lists = choice.then(|| PaperLists::new(&map, config));
            let first = Alone { buddy: buddy::<R>(&map, config), lists, config };
            walk(&first, full, &operations(map.span()))
        });
        said("buddy", (start, count), shape, &covered);
        assert!(covered.states >= 1 << count, "every set of free frames is reached");
    }
}

#[test]
fn every_state_of_the_papers_rule() {
    all_of::<HeadOfList>(true, &SMALL);
}

#[test]
fn every_state_of_best_fit() {
    // Without the binary form of 12 frames, which would take 11 s more.
    all_of::<BestFit>(false, &SMALL[..5]);
}

fn all_of_quick_fit<R: Rule + Clone>(count: u64, granularity: u32) {
    let (start, shape) = (16, (granularity, 2));
    let config = BuddyConfig::new(shape.0, Order::known(shape.1)).unwrap();
    let covered = with_span(start, count, |map, full| {
        let behind = Alone { buddy: buddy::<R>(&map, config), lists: None, config };
        let alone = walk(&behind, full, &operations(map.span()));
        assert_eq!(alone.states, 1 << count, "one state for each set of free frames");
        let words = Words(vec![0; QuickFit::<Words, Buddy<R>>::storage_words(&map)]);
        let first = QuickFit::new(map, behind.buddy, words).unwrap();
        walk(&Quick(first), full, &operations(map.span()))
    });
    said("quick fit", (start, count), shape, &covered);
    assert!(covered.states >= 100 << count, "lists of all lengths in all orders");
}

/// With 8 frames there are 348,000 states, and with 9 the single ones alone can lie on their list
/// in more than a million ways.
#[test]
fn every_state_of_quick_fit_over_the_papers_rule() {
    all_of_quick_fit::<HeadOfList>(7, 1);
}

#[test]
fn every_state_of_quick_fit_over_best_fit() {
    all_of_quick_fit::<BestFit>(7, 2);
}
