//! The buffer pool, with two heaps and a source that can refuse.

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::rc::Rc;

use swath_arch::testing::Random;
use swath_pool::{
    BufferFreeError, BufferOptions, BufferPool, BufferResizeError, Claim, FirstFit, HeapSlot, Live,
    LocalHeap, Returned, SLOT_BYTES_MAX, SegmentSource, Storage, Superblock, UNIT_BYTES,
    dirty_words,
};

use super::memory::STEPS_MAX;

type Heap<'p, 'm> = LocalHeap<'p, 'm, parking_lot::RawMutex, Source>;

/// First fit of units, of which one request fails.
struct Source {
    inner: FirstFit<Vec<u64>>,
    /// Requests until the one that fails; 0 for none.
    fail_in: Rc<Cell<u64>>,
}

impl Source {
    fn fails(&self) -> bool {
        let left = self.fail_in.get();
        self.fail_in.set(left.saturating_sub(1));
        left == 1
    }
}

// SAFETY: what `FirstFit` hands out, or less.
unsafe impl SegmentSource for Source {
    const PAGE_UNITS: u32 = 4;

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        if self.fails() { None } else { self.inner.acquire(units, align_units) }
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        !self.fails() && self.inner.extend(first, units, more)
    }

    fn release(&mut self, first: u32, units: u32) {
        self.inner.release(first, units);
    }

    fn purge(&mut self, first: u32, units: u32) -> bool {
        !self.fails() && self.inner.purge(first, units)
    }
}

/// Memory for the arena, aligned as the largest request may want it.
struct Memory(NonNull<u8>, Layout);

impl Memory {
    fn new(units: usize) -> Self {
        let layout = Layout::from_size_align(units * UNIT_BYTES, 16 * UNIT_BYTES);
        let layout = layout.expect("a small arena");
        // SAFETY: not of size 0.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        Self(start.expect("memory"), layout)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), self.1) };
    }
}

/// A block in use, whose ends hold a byte of its own.
#[derive(Clone, Copy)]
struct Block {
    at: NonNull<u8>,
    len: usize,
    mark: u8,
}

impl Block {
    /// Bytes at each end that are written and compared.
    const ENDS: usize = 64;

    fn places(self) -> impl Iterator<Item = usize> {
        let end = self.len.saturating_sub(Self::ENDS).max(Self::ENDS);
        (0..self.len.min(Self::ENDS)).chain(end..self.len)
    }

    fn fill(self) -> Self {
        // SAFETY: the pool gave so many bytes.
        self.places().for_each(|at| unsafe { self.at.add(at).write(self.mark) });
        self
    }

    /// Compares what lies among the first `len` bytes.
    fn look(self, len: usize) {
        for at in self.places().take_while(|&at| at < len) {
            // SAFETY: still in use, and written by `fill`.
            let byte = unsafe { self.at.add(at).read() };
            assert_eq!(byte, self.mark, "byte {at} of {} was overwritten", self.len);
        }
    }
}

/// Blocks in use by address.
#[derive(Default)]
struct Model(BTreeMap<usize, Block>);

impl Model {
    fn add(&mut self, block: Block) {
        let start = block.at.addr().get();
        let before = self.0.range(..=start).next_back();
        assert!(before.is_none_or(|(&at, other)| at + other.len <= start), "two own a byte");
        let after = self.0.range(start..).next();
        assert!(after.is_none_or(|(&at, _)| start + block.len <= at), "two own a byte");
        self.0.insert(start, block.fill());
    }

    fn pick(&mut self, random: &mut Random) -> Option<Block> {
        let key = *self.0.keys().nth(random.index(self.0.len().max(1)))?;
        self.0.remove(&key)
    }
}

/// Mostly short, up to longer than any slot.
fn size(random: &mut Random) -> usize {
    match random.below(8) {
        0..4 => random.index(256),
        4 => random.index(2048),
        5 => random.index(20_000),
        6 => random.index(SLOT_BYTES_MAX + 1),
        _ => random.index(8 * SLOT_BYTES_MAX),
    }
}

/// Draws an arena and options, and lets two heaps allocate, free each other's blocks and resize.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let units = [8, 24, 64, 96][random.index(4)];
    let options = BufferOptions {
        empty_eighths: 1 + random.below(7) as u32,
        slack: random.below(4) as u32,
        purge_delay: [0, 3, 500][random.index(3)],
        guard_segments: random.one_in(2),
    };
    let memory = Memory::new(units);
    let fail_in = Rc::new(Cell::new(0));
    let used = vec![0; FirstFit::<Vec<u64>>::words(units as u32)];
    let inner = FirstFit::new(memory.0.as_ptr().expose_provenance(), units as u32, used, true);
    let source = Source { inner, fail_in: Rc::clone(&fail_in) };
    let mut superblocks: Vec<_> = (0..units).map(|_| Superblock::new()).collect();
    let mut returned: Vec<_> = (0..units).map(|_| Returned::new()).collect();
    let mut live: Vec<_> = (0..units).map(|_| Live::new()).collect();
    let mut claims: Vec<_> = (0..units).map(|_| Claim::new()).collect();
    let mut slots: Vec<_> = (0..2).map(|_| HeapSlot::new()).collect();
    let mut dirty = vec![0; dirty_words(units)];
    let storage = Storage {
        superblocks: &mut superblocks,
        returned: &mut returned,
        live: &mut live,
        claims: &mut claims,
        heaps: &mut slots,
        dirty: &mut dirty,
    };
    // SAFETY: the arena is the pool's until the end.
    let pool = unsafe { BufferPool::new(memory.0, storage, source, options) };
    let pool: BufferPool<'_, parking_lot::RawMutex, Source> = pool.expect("a good arena");
    let mut heaps = [0, 1].map(|_| pool.attach().expect("two slots"));
    assert!(pool.attach().is_none());
    let mut model = Model::default();
    for step in 0..STEPS_MAX as u64 {
        if random.is_spent() {
            break;
        }
        let heap = &mut heaps[random.index(2)];
        fail_in.set(if random.one_in(8) { 1 + random.below(3) } else { 0 });
        match random.below(16) {
            0..8 => allocate(&pool, heap, &mut random, &mut model),
            8..10 => resize(&pool, heap, &mut random, &mut model),
            10 => heap.collect(),
            11 => drop(pool.purge(step)),
            _ => {
                if let Some(block) = model.pick(&mut random) {
                    free(heap, block);
                }
            }
        }
        fail_in.set(0);
        if let Err(fault) = pool.check() {
            panic!("{fault}");
        }
        let live: usize = model.0.values().map(|block| block.len).sum();
        assert_eq!(pool.stats().live_bytes, live as u64);
    }
    for block in model.0.into_values() {
        free(&mut heaps[0], block);
    }
    drop(heaps);
    pool.purge_all();
    assert!(pool.check().is_ok());
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.held_bytes), (0, 0));
    assert_eq!(pool.with_source(|source| source.inner.free_units()), units as u32);
}

type Pool<'m> = BufferPool<'m, parking_lot::RawMutex, Source>;

fn allocate(pool: &Pool<'_>, heap: &mut Heap<'_, '_>, random: &mut Random, model: &mut Model) {
    let size = size(random);
    let align = if random.one_in(4) { 1 << random.below(19) } else { 16 };
    let Ok(at) = heap.allocate(size, align) else { return };
    assert_eq!(at.addr().get() % align.max(16), 0);
    let len = pool.usable_size(at).expect("it was just given");
    assert!(len >= size, "{len} bytes for {size}");
    model.add(Block { at, len, mark: random.below(256) as u8 });
}

fn free(heap: &mut Heap<'_, '_>, block: Block) {
    block.look(usize::MAX);
    // SAFETY: not used after.
    assert!(unsafe { heap.free(block.at) }.is_ok());
    // SAFETY: a second time, which is refused and changes nothing.
    let again = unsafe { heap.free(block.at) };
    assert!(
        matches!(
            again,
            Err(BufferFreeError::NotAllocated { .. } | BufferFreeError::Misaligned { .. })
        ),
        "{again:?}"
    );
}

fn resize(pool: &Pool<'_>, heap: &mut Heap<'_, '_>, random: &mut Random, model: &mut Model) {
    let Some(block) = model.pick(random) else { return };
    let size = size(random);
    // SAFETY: the old place is used after only if it is refused.
    match unsafe { heap.resize(block.at, size, 16) } {
        Ok(at) => {
            let len = pool.usable_size(at).expect("it was just given");
            assert!(len >= size, "{len} bytes for {size}");
            Block { at, ..block }.look(size);
            model.add(Block { at, len, mark: block.mark.wrapping_add(1) });
        }
        Err(BufferResizeError::Allocate(_)) => {
            block.look(usize::MAX);
            model.add(block);
        }
        Err(error) => panic!("{error}"),
    }
}
