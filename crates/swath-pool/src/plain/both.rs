//! Both pools, what they allocate, and what they are found to hold.

extern crate std;

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use swath_arch::testing::Random;

use crate::error::BufferAllocateError;
use crate::heap::front::Front;
use crate::heap::local::LocalHeap;
use crate::heap::run::Run;
use crate::options::BufferOptions;
use crate::plain::fixture::{CROWDED, Leaked, Lock, Source, leaked};
use crate::plain::pool::{GLOBAL, PlainPool};
use crate::pool::buffer_pool::BlockPlace;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{
    CLASSES, LAYOUTS, SLOT_BYTES_MAX, SLOT_BYTES_MIN, UNIT_BYTES, class_of, word_of,
};
use crate::superblock::owner::Owner;

pub(crate) const UNITS: usize = 96;
pub(crate) const HEAPS: usize = 3;

pub(crate) type TestHeap = LocalHeap<'static, 'static, Lock, Source>;

/// Both pools.
pub(crate) struct Both {
    pub(crate) real: Leaked,
    /// As the plain pool numbers them: the first is nobody's.
    pub(crate) heaps: Vec<Option<TestHeap>>,
    pub(crate) plain: PlainPool,
    /// Offsets of the blocks in use, each with the bytes that were asked for.
    pub(crate) used: Vec<(usize, usize)>,
    pub(crate) random: Random,
}

impl Both {
    pub(crate) fn new(seed: u64, options: BufferOptions) -> Self {
        let real = leaked(UNITS, HEAPS, options);
        let mut plain = PlainPool::new(real.base, UNITS, HEAPS, Source::PAGE_UNITS, options);
        plain.crowded = CROWDED.get();
        let heaps = (0..=HEAPS).map(|_| None).collect();
        Self { real, heaps, plain, used: Vec::new(), random: Random::new(seed) }
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        NonNull::new(self.real.base.as_ptr().wrapping_add(offset)).unwrap()
    }

    pub(crate) fn offset(&self, block: NonNull<u8>) -> usize {
        block.addr().get().wrapping_sub(self.real.base.addr().get())
    }

    pub(crate) fn heap(&mut self, number: usize) -> &mut TestHeap {
        self.heaps[number].as_mut().unwrap()
    }

    pub(crate) fn front(&self, number: usize) -> Front<'static, 'static, Lock, Source> {
        self.heaps[number].as_ref().unwrap().front()
    }

    /// Where eight bytes are kept that tell the block: at its beginning, and at the end of what was asked for.
    pub(crate) fn marks(&self, offset: usize, size: usize) -> [*mut [u8; 8]; 2] {
        let last = if size < 16 { 0 } else { size - 8 };
        [offset, offset + last].map(|at| self.at(at).as_ptr().cast())
    }

    pub(crate) fn mark(&self, offset: usize, size: usize) {
        // SAFETY: the block is in use, and so long, 16 bytes at least.
        self.marks(offset, size)
            .into_iter()
            .for_each(|at| unsafe { at.write(offset.to_le_bytes()) });
    }

    /// A block begins at an offset, where the plain pool says so.
    pub(crate) fn begun(
        &mut self,
        block: Option<NonNull<u8>>,
        expected: Option<usize>,
        size: usize,
    ) {
        let offset = block.map(|block| self.offset(block));
        assert_eq!(offset, expected, "{size} bytes");
        let Some(offset) = offset else { return };
        let len = self.plain.len(offset).unwrap();
        assert!(len >= size);
        assert_eq!(self.real.pool.usable_size(self.at(offset)), Ok(len));
        self.mark(offset, size);
        self.used.push((offset, size));
    }

    /// Allocates in one of several ways.
    pub(crate) fn allocate(&mut self, number: usize, size: usize, way: u64) {
        let short = (size <= SLOT_BYTES_MAX && size != 0).then(|| class_of(size));
        match way {
            0 => {
                let block = self.front(number).allocate(size);
                let expected = short.and_then(|class| self.plain.take(number, class));
                self.begun(block, expected, size);
            }
            1 => {
                let block = self.heap(number).allocate_current(size);
                let expected = match short {
                    Some(class) => self.plain.take_current(number, class),
                    None if size == 0 => None,
                    None => self.plain.take_segment(number, size),
                };
                self.begun(block, expected, size);
            }
            2 => {
                let taken = self.heap(number).take_short(size);
                let class = short.filter(|&class| LAYOUTS[class].units == 1);
                let expected = class.and_then(|class| self.plain.take(number, class));
                self.begun(taken.map(|(block, _)| block), expected, size);
                if let Some((block, place)) = taken {
                    assert_eq!(place, self.place(block));
                }
            }
            3 => {
                let shift = self.random.below(19);
                let align = [1 << shift, 24, 0][self.random.index(20).saturating_sub(17)];
                let block = self.heap(number).allocate(size, align);
                let error = BufferAllocateError { size_bytes: size, align_bytes: align };
                let expected = self.plain.allocate(number, size, align);
                assert_eq!(block.err(), expected.is_none().then_some(error));
                self.begun(block.ok(), expected, size);
            }
            4 => {
                let align = 1 << self.random.below(19);
                let block = self.heap(number).allocate_zeroable(size, align);
                let expected = match size > SLOT_BYTES_MAX {
                    true => self.plain.allocate_segment(number, size, align),
                    false => self.plain.allocate(number, size, align).map(|at| (at, false)),
                };
                let [zero, expected_zero] =
                    [block.ok().map(|(_, zero)| zero), expected.map(|(_, zero)| zero)];
                assert_eq!(zero, expected_zero, "{size} bytes");
                self.begun(
                    block.ok().map(|(block, _)| block),
                    expected.map(|(offset, _)| offset),
                    size,
                );
            }
            5 => {
                let block = self.front(number).take_segment(size);
                let expected = self.plain.take_segment(number, size);
                self.begun(block, expected, size);
            }
            _ => {
                let block = self.heap(number).allocate(size, 16).ok();
                let expected = self.plain.allocate(number, size, 16);
                self.begun(block, expected, size);
            }
        }
    }

    /// The place of a block in use.
    pub(crate) fn place(&self, block: NonNull<u8>) -> BlockPlace {
        let offset = self.offset(block);
        let len_bytes = self.plain.len(offset).unwrap();
        let first = self.plain.block_of(offset);
        let before = first.filter(|&first| offset > first as usize * UNIT_BYTES);
        let before = before.map(|_| self.at(offset - len_bytes));
        BlockPlace { len_bytes, is_segment: first.is_none(), before }
    }

    /// Both pools hold the same, each where the other does.
    pub(crate) fn agree(&self) {
        let (pool, plain) = (self.real.pool, &self.plain);
        pool.check().unwrap();
        let unit = UNIT_BYTES as u64;
        let kept: u32 =
            plain.heaps.iter().flat_map(|heap| heap.kept.runs()).map(|run| run.units).sum();
        let stats = pool.stats();
        let segments: u32 = plain.segments.values().sum();
        let units: u32 = plain.blocks.values().map(|block| LAYOUTS[block.class].units).sum();
        let live: usize = self.used.iter().map(|&(offset, _)| plain.len(offset).unwrap()).sum();
        assert_eq!(stats.live_bytes, live as u64);
        assert_eq!(stats.segment_bytes, u64::from(segments) * unit);
        assert_eq!(stats.held_bytes, u64::from(segments + units) * unit);
        assert_eq!(stats.cached_bytes, (u64::from(kept) + plain.dirty.len() as u64) * unit);
        assert_eq!(stats.heaps, plain.heaps.iter().filter(|heap| heap.attached).count() as u32);
        let global = plain.blocks.values().filter(|block| block.heap == GLOBAL).count();
        assert_eq!(stats.global_superblocks, global as u32);
        for (&first, block) in &plain.blocks {
            let record = &pool.superblocks()[first as usize];
            assert_eq!(record.class(), Some(block.class));
            assert_eq!(record.owner(), Owner::of(block.heap as u32, block.class));
            let free: u32 = record.free.iter().map(|word| word.load(Relaxed).count_ones()).sum();
            let returned = pool.returned_bits(first).count();
            assert_eq!(
                (free as usize, returned as usize),
                (block.free.len(), block.returned.len())
            );
            let bit = |&offset: &usize| {
                let position = pool.position(first, offset / SLOT_BYTES_MIN);
                record.free[word_of(position)].load(Relaxed) >> (position % 64) & 1 != 0
            };
            assert!(block.free.iter().all(bit), "the free slots of {first}");
        }
        assert_eq!(stats.remote_frees, plain.remote_frees());
        let free = pool.with_source(|source| source.free.free_units());
        assert_eq!(free, plain.source.free_units());
        assert_eq!(free, UNITS as u32 - segments - units - kept);
        let usable = self.real.units.usable.lock().unwrap().clone();
        assert_eq!(usable.len() as u32, segments + units + kept);
        let own = plain.segments.iter().flat_map(|(&first, units)| first..first + units);
        let slots = plain.blocks.iter();
        let slots = slots.flat_map(|(&first, block)| first..first + LAYOUTS[block.class].units);
        assert!(own.chain(slots).all(|unit| usable.contains(&unit)));
        let guards = plain.segments.iter().map(|(first, units)| first + units - 1);
        let guards: Vec<u32> = guards.filter(|_| plain.guard() != 0).collect();
        assert_eq!(*self.real.units.guarded.lock().unwrap(), guards);
        for (slot, heap) in pool.heaps().iter().zip(&plain.heaps[1..]) {
            let runs: Vec<Run> = slot.kept.runs().collect();
            assert_eq!(runs, heap.kept.runs().collect::<Vec<_>>());
            assert_eq!(slot.is_attached(), heap.attached);
            for class in (0..CLASSES).filter(|_| heap.attached) {
                assert_eq!(slot.current(class), heap.current[class], "class {class}");
                let cached = (0..slot.caches.len(class).unwrap())
                    .map(|index| slot.caches.get(class, index).granule * SLOT_BYTES_MIN);
                assert!(cached.eq(heap.caches[class].iter().copied()), "class {class}");
                let first = slot.partial[class].list.first();
                assert_eq!(first, heap.partial[class].first().copied(), "class {class}");
            }
        }
    }
}
