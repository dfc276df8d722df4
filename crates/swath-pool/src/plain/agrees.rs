//! Random calls of a pool and of the plain one, which agree on every place and every count.

extern crate std;

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use swath_arch::testing::Random;

use crate::error::{BufferAllocateError, BufferFreeError, BufferResizeError};
use crate::heap::front::{Freed, Front};
use crate::heap::local::LocalHeap;
use crate::heap::run::Run;
use crate::options::BufferOptions;
use crate::plain::fixture::{CROWDED, Leaked, Lock, Source, leaked};
use crate::plain::pool::{By, GLOBAL, PlainPool};
use crate::pool::buffer_pool::BlockPlace;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{
    CLASSES, LAYOUTS, SLOT_BYTES_MAX, SLOT_BYTES_MIN, UNIT_BYTES, class_for, class_of, word_of,
};
use crate::superblock::owner::Owner;

const UNITS: usize = 96;
const HEAPS: usize = 3;

/// Requests of all kinds: short and long slots, segments that are kept and others.
const SIZES: [usize; 19] = [
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
    66 * UNIT_BYTES,
];

type TestHeap = LocalHeap<'static, 'static, Lock, Source>;

/// Both pools.
struct Both {
    real: Leaked,
    /// As the plain pool numbers them: the first is nobody's.
    heaps: Vec<Option<TestHeap>>,
    plain: PlainPool,
    /// Offsets of the blocks in use, each with the bytes that were asked for.
    used: Vec<(usize, usize)>,
    random: Random,
}

impl Both {
    fn new(seed: u64, options: BufferOptions) -> Self {
        let real = leaked(UNITS, HEAPS, options);
        let mut plain = PlainPool::new(real.base, UNITS, HEAPS, Source::PAGE_UNITS, options);
        plain.crowded = CROWDED.get();
        let heaps = (0..=HEAPS).map(|_| None).collect();
        Self { real, heaps, plain, used: Vec::new(), random: Random::new(seed) }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        NonNull::new(self.real.base.as_ptr().wrapping_add(offset)).unwrap()
    }

    fn offset(&self, block: NonNull<u8>) -> usize {
        block.addr().get().wrapping_sub(self.real.base.addr().get())
    }

    fn heap(&mut self, number: usize) -> &mut TestHeap {
        self.heaps[number].as_mut().unwrap()
    }

    fn front(&self, number: usize) -> Front<'static, 'static, Lock, Source> {
        self.heaps[number].as_ref().unwrap().front()
    }

    /// Where eight bytes are kept that tell the block: at its beginning, and at the end of what was asked for.
    fn marks(&self, offset: usize, size: usize) -> [*mut [u8; 8]; 2] {
        let last = size.saturating_sub(8);
        [offset, offset + last].map(|at| self.at(at).as_ptr().cast())
    }

    fn mark(&self, offset: usize, size: usize) {
        // SAFETY: the block is in use, and so long, 16 bytes at least.
        self.marks(offset, size)
            .into_iter()
            .for_each(|at| unsafe { at.write(offset.to_le_bytes()) });
    }

    /// A block begins at an offset, where the plain pool says so.
    fn begun(&mut self, block: Option<NonNull<u8>>, expected: Option<usize>, size: usize) {
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
    fn allocate(&mut self, number: usize, size: usize, way: u64) {
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
    fn place(&self, block: NonNull<u8>) -> BlockPlace {
        let offset = self.offset(block);
        let len_bytes = self.plain.len(offset).unwrap();
        let first = self.plain.block_of(offset);
        let before = first.filter(|&first| offset > first as usize * UNIT_BYTES);
        let before = before.map(|_| self.at(offset - len_bytes));
        BlockPlace { len_bytes, is_segment: first.is_none(), before }
    }

    /// The number of the heap whose slot a block in use is, and whether others of its superblock were returned.
    fn owner(&self, offset: usize) -> Option<(usize, bool)> {
        let block = &self.plain.blocks[&self.plain.block_of(offset)?];
        Some((block.heap, !block.returned.is_empty()))
    }

    /// Frees the block at a place of the list of those in use, by a heap or by none.
    fn free(&mut self, index: usize, number: usize, way: u64) {
        let (offset, size) = self.used[index];
        let block = self.at(offset);
        for mark in self.marks(offset, size) {
            // SAFETY: as for `mark`.
            assert_eq!(unsafe { mark.read() }, offset.to_le_bytes(), "{offset:#x} of {size} bytes");
        }
        let owner = self.owner(offset);
        let freed = match owner {
            _ if number == GLOBAL => {
                // SAFETY: not used after.
                unsafe { self.real.pool.free(block).unwrap() };
                self.freed_elsewhere(number, offset);
                true
            }
            Some((owner, has_returned)) if owner == number => {
                self.free_own(number, offset, has_returned, way)
            }
            Some(_) => self.free_anothers(number, offset, way),
            None => self.free_segment(number, offset, way),
        };
        if freed {
            self.used.swap_remove(index);
            self.refused(number, offset);
        }
    }

    /// What the plain pool makes of a free by who has no part in a block.
    fn freed_elsewhere(&mut self, number: usize, offset: usize) {
        if self.owner(offset).is_some() {
            self.plain.free_remote(offset);
        } else {
            self.plain.free_segment(number, (offset / UNIT_BYTES) as u32);
        }
    }

    fn free_own(&mut self, number: usize, offset: usize, has_returned: bool, way: u64) -> bool {
        let (block, front) = (self.at(offset), self.front(number));
        let is_first = self.plain.block_of(offset) == Some((offset / UNIT_BYTES) as u32);
        let len = self.plain.len(offset).unwrap();
        let by = match way {
            0 | 1 => {
                // SAFETY: not used after, if it was freed.
                let freed = unsafe {
                    if way == 0 {
                        front.free(block.as_ptr())
                    } else {
                        // Of another class it frees nothing.
                        let wrong = front.free_sized(block.as_ptr(), len + 1);
                        assert_eq!(wrong, Freed::No);
                        front.free_sized(block.as_ptr(), len)
                    }
                };
                assert_eq!(freed == Freed::No, has_returned, "{offset:#x}");
                if has_returned {
                    return false;
                }
                self.put_back(number, freed);
                By::Front
            }
            2 => {
                // SAFETY: as above.
                let freed = unsafe { front.free_shared(block.as_ptr()) };
                assert_eq!(freed != Freed::No, has_returned && is_first, "{offset:#x}");
                if freed == Freed::No {
                    return false;
                }
                self.put_back(number, freed);
                By::Front
            }
            _ => {
                // SAFETY: as above.
                unsafe {
                    if way == 3 {
                        assert!(self.heap(number).free_in_superblock(block.as_ptr()));
                    } else {
                        self.heap(number).free(block).unwrap();
                    }
                }
                if way == 3 { By::Superblock } else { By::Heap }
            }
        };
        self.plain.free_own(number, offset, by);
        true
    }

    fn put_back(&mut self, number: usize, freed: Freed) {
        if let Freed::Full(slot) = freed {
            let heap = self.heaps[number].as_ref().unwrap();
            // SAFETY: the front has just said so.
            unsafe { heap.front().put_back(slot, |due| heap.settle(due)) };
        }
    }

    fn free_anothers(&mut self, number: usize, offset: usize, way: u64) -> bool {
        let block = self.at(offset);
        let is_first = self.plain.block_of(offset) == Some((offset / UNIT_BYTES) as u32);
        // SAFETY: not used after, if it was freed.
        let freed = unsafe {
            match way {
                0 => {
                    assert_eq!(self.front(number).free(block.as_ptr()), Freed::No);
                    false
                }
                1 => {
                    let freed = self.front(number).free_shared(block.as_ptr());
                    assert_eq!(freed == Freed::Done, is_first, "{offset:#x}: {freed:?}");
                    is_first
                }
                2 => self.heap(number).free_in_superblock(block.as_ptr()),
                _ => self.heap(number).free(block).is_ok(),
            }
        };
        assert!(freed || way < 2);
        if freed {
            self.plain.free_remote(offset);
        }
        freed
    }

    fn free_segment(&mut self, number: usize, offset: usize, way: u64) -> bool {
        let (block, first) = (self.at(offset), (offset / UNIT_BYTES) as u32);
        // SAFETY: not used after, if it was freed.
        unsafe {
            assert_eq!(self.front(number).free(block.as_ptr()), Freed::No);
            assert_eq!(self.front(number).free_shared(block.as_ptr()), Freed::No);
            assert!(!self.heap(number).free_in_superblock(block.as_ptr()));
            if way == 0 {
                let kept = self.front(number).free_segment(block.as_ptr());
                assert_eq!(kept, self.plain.free_segment_quickly(number, first), "{offset:#x}");
                return kept;
            }
            self.heap(number).free(block).unwrap();
        }
        self.plain.free_segment(number, first);
        true
    }

    /// What is not in use is refused, however it is named, and why is told.
    fn refused(&mut self, number: usize, offset: usize) {
        let block = self.at(offset);
        let address = block.addr().get();
        let error = match self.plain.block_of(offset) {
            _ if offset >= UNITS * UNIT_BYTES => BufferFreeError::Foreign { address },
            Some(first) => {
                let layout = LAYOUTS[self.plain.blocks[&first].class];
                let within = offset - first as usize * UNIT_BYTES;
                let is_slot = within.is_multiple_of(layout.size as usize)
                    && within < (layout.size * layout.slots) as usize;
                match is_slot {
                    true => BufferFreeError::NotAllocated { address },
                    false => BufferFreeError::Misaligned { address },
                }
            }
            None if self.plain.segments.contains_key(&((offset / UNIT_BYTES) as u32)) => {
                BufferFreeError::Misaligned { address }
            }
            None => BufferFreeError::NotAllocated { address },
        };
        let pool = self.real.pool;
        assert_eq!(pool.usable_size(block), Err(error));
        assert_eq!(pool.place_of(block), Err(error));
        // SAFETY: it is not freed.
        assert_eq!(unsafe { pool.free(block) }, Err(error));
        if number != GLOBAL {
            let front = self.front(number);
            // SAFETY: as above.
            unsafe {
                assert_eq!(front.free(block.as_ptr()), Freed::No);
                assert_eq!(front.free_shared(block.as_ptr()), Freed::No);
                assert_eq!(front.resize(block, 100), None);
                assert!(!self.heap(number).free_in_superblock(block.as_ptr()));
                assert_eq!(self.heap(number).free(block), Err(error));
                self.plain.look_at(number, offset);
                let error = Err(BufferResizeError::Free(error));
                assert_eq!(self.heap(number).resize(block, 100, 16), error);
            }
            assert_eq!(self.heap(number).place_of_own(block), None);
        }
    }

    /// Resizes a block that a heap frees after, if it moves.
    fn resize(&mut self, index: usize, number: usize, size: usize, way: u64) {
        let (offset, old_size) = self.used[index];
        let (block, old) = (self.at(offset), self.plain.len(offset).unwrap());
        let align = if way == 0 { 1 << self.random.below(19) } else { 16 };
        let is_served = self.plain.serves(old, size, align);
        let first = (offset / UNIT_BYTES) as u32;
        let fits = block.addr().get().is_multiple_of(align)
            && match self.owner(offset) {
                Some(_) => is_served,
                None => class_for(size, align).is_none() && self.plain.resize_segment(first, size),
            };
        if way == 1 {
            // SAFETY: nothing is written beyond the size.
            let done = unsafe { self.heap(number).resize_in_place(block, size, align) };
            assert_eq!(done, Ok(fits), "{size} bytes at {align}");
            if fits {
                self.resized(index, offset, size.min(old_size), size);
            }
            return;
        }
        // SAFETY: used only where it lies then.
        let resized = unsafe { self.heap(number).resize(block, size, align) };
        if fits {
            assert_eq!(resized, Ok(block));
            return self.resized(index, offset, size.min(old_size), size);
        }
        let expected = self.plain.allocate(number, size, align);
        let error = BufferAllocateError { size_bytes: size, align_bytes: align };
        assert_eq!(resized.err(), expected.is_none().then_some(error.into()), "{size} at {align}");
        let Some(moved) = expected else { return };
        assert_eq!(resized, Ok(self.at(moved)));
        match self.owner(offset) {
            Some((owner, _)) if owner == number => {
                self.plain.free_own(number, offset, By::Heap);
                self.bury(number, offset);
            }
            _ => self.freed_elsewhere(number, offset),
        }
        self.copied(index, offset, moved, old_size, size);
    }

    /// Resizes a block by its heap's front.
    fn resize_by_front(&mut self, index: usize, number: usize, size: usize) {
        let (offset, old_size) = self.used[index];
        let block = self.at(offset);
        // SAFETY: used only where it lies then.
        let resized = unsafe { self.front(number).resize(block, size) };
        let is_own = self.owner(offset) == Some((number, false)) && size <= SLOT_BYTES_MAX;
        let old = self.plain.len(offset).unwrap();
        if is_own && size != 0 && self.plain.serves(old, size, SLOT_BYTES_MIN) {
            assert_eq!(resized, Some(block));
            return self.resized(index, offset, size.min(old_size), size);
        }
        let has_room = is_own && self.plain.has_room(number, class_of(old));
        let moved = match has_room && size != 0 {
            true => self.plain.take(number, class_of(size)),
            false => None,
        };
        assert_eq!(resized, moved.map(|moved| self.at(moved)), "{size} bytes");
        let Some(moved) = moved else { return };
        self.plain.free_own(number, offset, By::Front);
        self.bury(number, offset);
        self.copied(index, offset, moved, old_size, size);
    }

    /// The slot that was left comes second, if its superblock is still the heap's.
    fn bury(&mut self, number: usize, offset: usize) {
        if let Some(first) = self.plain.block_of(offset) {
            let block = &self.plain.blocks[&first];
            if block.heap == number {
                let class = block.class;
                self.plain.bury(number, class);
            }
        }
    }

    /// A block has other bytes, from where it was.
    fn copied(&mut self, index: usize, from: usize, to: usize, old_size: usize, size: usize) {
        let [start, end] = self.marks(to, old_size);
        let expected = from.to_le_bytes();
        if size >= 8 {
            // SAFETY: in use, and so long.
            assert_eq!(unsafe { start.read() }, expected);
        }
        if size >= old_size {
            // SAFETY: as above.
            assert_eq!(unsafe { end.read() }, expected, "{old_size} bytes, to {size}");
        }
        self.refused(GLOBAL, from);
        self.resized(index, to, 0, size);
    }

    fn resized(&mut self, index: usize, offset: usize, stays: usize, size: usize) {
        if stays >= 8 {
            // SAFETY: in use, and so long.
            let mark = unsafe { self.marks(offset, stays)[0].read() };
            assert_eq!(mark, offset.to_le_bytes());
        }
        let len = self.plain.len(offset).unwrap();
        assert_eq!(self.real.pool.usable_size(self.at(offset)), Ok(len));
        self.mark(offset, size);
        self.used[index] = (offset, size);
    }

    /// Both pools hold the same, each where the other does.
    fn agree(&self) {
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

    /// One random call, or many alike.
    fn call(&mut self, growing: bool) {
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
                let now = (way < 8).then(|| {
                    self.plain.due + self.random.below(50) - 20 * u64::from(self.plain.due > 20)
                });
                let purged = match now {
                    Some(now) => self.real.pool.purge(now),
                    None => self.real.pool.purge_all(),
                };
                assert_eq!(purged, self.plain.purge(now));
            }
            4 => {
                let is_unusable = way == 0;
                self.plain.unusable = is_unusable;
                self.real.units.unusable.store(is_unusable, Relaxed);
            }
            5..9 if !self.used.is_empty() => {
                let index = self.random.index(self.used.len());
                self.resize(index, number, size, way);
            }
            9..12 if !self.used.is_empty() => {
                let index = self.random.index(self.used.len());
                self.resize_by_front(index, number, size);
            }
            12 => {
                let offset = self.random.index(UNITS * UNIT_BYTES + 5000);
                let offset = offset - offset % [1, 16, 512, UNIT_BYTES][self.random.index(4)];
                if self.plain.len(offset).is_none() {
                    self.refused(number, offset);
                }
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
        both.agree();
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
