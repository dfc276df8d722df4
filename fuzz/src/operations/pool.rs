//! The buffer pool, with two heaps and a source that can refuse.

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use swath_arch::testing::Random;
use swath_pool::{
    BufferFreeError, BufferOptions, BufferPool, BufferResizeError, Claim, FirstFit, HeapSlot, Live,
    LocalHeap, Returned, SLOT_BYTES_MAX, SegmentSource, Storage, Superblock, UNIT_BYTES,
    dirty_words,
};

use super::memory::{STEPS, STEPS_MAX};

type Heap<'p, 'm> = LocalHeap<'p, 'm, parking_lot::RawMutex, Source>;

/// First fit of units, of which one request fails.
struct Source {
    inner: FirstFit<Vec<u64>>,
    /// Requests until the one that fails; 0 for none.
    fail_in: Rc<Cell<u64>>,
    /// Units that were ever handed out.
    touched: Rc<Cell<u128>>,
}

impl Source {
    fn fails(&self) -> bool {
        let left = self.fail_in.get();
        self.fail_in.set(left.saturating_sub(1));
        left == 1
    }

    fn touch(&self, first: u32, units: u32) {
        let touched = (first..first + units).fold(self.touched.get(), |all, unit| all | 1 << unit);
        self.touched.set(touched);
    }
}

// SAFETY: what `FirstFit` hands out, or less.
unsafe impl SegmentSource for Source {
    const PAGE_UNITS: u32 = 4;

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        let first = if self.fails() { None } else { self.inner.acquire(units, align_units) }?;
        self.touch(first, units);
        Some(first)
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        let extended = !self.fails() && self.inner.extend(first, units, more);
        if extended {
            self.touch(first + units, more);
        }
        extended
    }

    fn release(&mut self, first: u32, units: u32) {
        self.inner.release(first, units);
    }

    fn purge(&mut self, first: u32, units: u32) -> bool {
        !self.fails() && self.inner.purge(first, units)
    }
}

/// Most units of an arena.
const UNITS_MAX: usize = 96;

/// Memory for the arena, aligned as the largest request may want it, and zero. It serves one input
/// after the other: of all of it, only units that were handed out are cleared.
struct Memory(NonNull<u8>, Layout);

impl Memory {
    fn new() -> Self {
        let layout = Layout::from_size_align(UNITS_MAX * UNIT_BYTES, 16 * UNIT_BYTES);
        let layout = layout.expect("a small arena");
        // SAFETY: not of size 0.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        Self(start.expect("memory"), layout)
    }

    /// Clears the units of these bits.
    fn clear(&mut self, touched: u128) {
        for unit in (0..UNITS_MAX).filter(|unit| touched >> unit & 1 == 1) {
            // SAFETY: a unit of the memory, of which nobody else has a part now.
            unsafe { self.0.add(unit * UNIT_BYTES).write_bytes(0, UNIT_BYTES) };
        }
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

    fn ends(self) -> [Range<usize>; 2] {
        let end = self.len.saturating_sub(Self::ENDS).max(Self::ENDS);
        [0..self.len.min(Self::ENDS), end..self.len]
    }

    fn fill(self) -> Self {
        for end in self.ends().into_iter().filter(|end| !end.is_empty()) {
            // SAFETY: the pool gave so many bytes.
            unsafe { self.at.add(end.start).write_bytes(self.mark, end.len()) };
        }
        self
    }

    /// Compares what lies among the first `len` bytes.
    fn look(self, len: usize) {
        for end in self.ends() {
            let end = end.start..end.end.min(len);
            if end.is_empty() {
                continue;
            }
            // SAFETY: still in use, written by `fill`, and nobody writes while they are looked at.
            let bytes =
                unsafe { slice::from_raw_parts(self.at.add(end.start).as_ptr(), end.len()) };
            let other = bytes.iter().position(|&byte| byte != self.mark);
            assert_eq!(other, None, "a byte from {} on of {} changed", end.start, self.len);
        }
    }
}

/// Blocks in use by address.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<usize, Block>,
    live: usize,
}

impl Model {
    fn add(&mut self, block: Block) {
        let start = block.at.addr().get();
        let before = self.blocks.range(..=start).next_back();
        assert!(before.is_none_or(|(&at, other)| at + other.len <= start), "two own a byte");
        let after = self.blocks.range(start..).next();
        assert!(after.is_none_or(|(&at, _)| start + block.len <= at), "two own a byte");
        self.live += block.len;
        self.blocks.insert(start, block.fill());
    }

    fn pick(&mut self, random: &mut Random) -> Option<Block> {
        let key = *self.blocks.keys().nth(random.index(self.blocks.len().max(1)))?;
        let block = self.blocks.remove(&key)?;
        self.live -= block.len;
        Some(block)
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

/// Draws an arena and options, and lets two heaps allocate, free each other's blocks and resize. Each
/// result is compared at once, a block's contents when it is resized or freed, and the bytes in use and
/// the invariants after 1, 2, 4... operations and at the end.
pub fn run(bytes: &[u8]) {
    thread_local! {
        static MEMORY: Cell<Option<Memory>> = const { Cell::new(None) };
    }
    // A run that panics does not give it back.
    let mut memory = MEMORY.take().unwrap_or_else(Memory::new);
    let touched = drive(&memory, bytes);
    memory.clear(touched);
    MEMORY.set(Some(memory));
}

/// Returns the units that were handed out, by bit.
fn drive(memory: &Memory, bytes: &[u8]) -> u128 {
    let mut random = Random::given(bytes);
    let units = [8, 24, 64, UNITS_MAX][random.index(4)];
    let options = BufferOptions {
        empty_eighths: 1 + random.below(7) as u32,
        slack: random.below(4) as u32,
        purge_delay: [0, 3, 500][random.index(3)],
        guard_segments: random.one_in(2),
    };
    let touched = Rc::new(Cell::new(0));
    let fail_in = Rc::new(Cell::new(0));
    let used = vec![0; FirstFit::<Vec<u64>>::words(units as u32)];
    let inner = FirstFit::new(memory.0.as_ptr().expose_provenance(), units as u32, used, true);
    let source = Source { inner, fail_in: Rc::clone(&fail_in), touched: Rc::clone(&touched) };
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
        if STEPS.compares_all(step as usize + 1) {
            check(&pool, &model);
        }
    }
    check(&pool, &model);
    for block in model.blocks.into_values() {
        free(&mut heaps[0], block);
    }
    drop(heaps);
    pool.purge_all();
    assert!(pool.check().is_ok());
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.held_bytes), (0, 0));
    assert_eq!(pool.with_source(|source| source.inner.free_units()), units as u32);
    touched.get()
}

type Pool<'m> = BufferPool<'m, parking_lot::RawMutex, Source>;

fn check(pool: &Pool<'_>, model: &Model) {
    if let Err(fault) = pool.check() {
        panic!("{fault}");
    }
    assert_eq!(pool.stats().live_bytes, model.live as u64);
}

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
