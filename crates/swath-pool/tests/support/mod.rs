//! An arena in memory, a source that can refuse, and a pool over both.
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU64};

use lock_api::{GuardSend, RawMutex};
use swath_arch::testing::Random;
use swath_pool::*;

thread_local! {
    /// Whether this thread finds every lock taken at its first try, as among many: heaps keep
    /// segments then.
    pub(crate) static CROWDED: Cell<bool> = const { Cell::new(false) };
}

/// A lock that yields while it waits.
pub(crate) struct Lock(AtomicBool);

impl Lock {
    fn take(&self) -> bool {
        self.0.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }
}

// SAFETY: whoever changes the flag from false to true holds the lock until he
// stores false; acquire and release order what is inside.
unsafe impl RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    fn lock(&self) {
        while !self.take() {
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        !CROWDED.get() && self.take()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Release);
    }
}

/// What a test tells the source and hears of it.
#[derive(Default)]
pub(crate) struct Control {
    /// Calls that may fail before one does; 0 never fails.
    pub(crate) fail_in: AtomicU64,
    /// Calls that could have failed.
    pub(crate) calls: AtomicU64,
    /// Units acquired and not released.
    pub(crate) held: AtomicU64,
    /// Units purged.
    pub(crate) purged: AtomicU64,
    /// Units guarded now.
    pub(crate) guarded: AtomicU64,
    /// Whether units cannot be made usable.
    pub(crate) unusable: AtomicBool,
}

impl Control {
    fn fails(&self) -> bool {
        self.calls.fetch_add(1, Relaxed);
        match self.fail_in.load(Relaxed) {
            0 => false,
            left => {
                self.fail_in.store(left - 1, Relaxed);
                left == 1
            }
        }
    }
}

/// First fit over memory that is there; a purge fills with zeroes.
pub(crate) struct Source {
    inner: FirstFit<Vec<u64>>,
    base: usize,
    memory: bool,
    control: Arc<Control>,
}

// SAFETY: what `FirstFit` hands out.
unsafe impl SegmentSource for Source {
    const PAGE_UNITS: u32 = 4;

    fn make_usable(&self) -> Option<&'static dyn MakeUsable> {
        Some(Box::leak(Box::new(Guards(Arc::clone(&self.control)))))
    }

    fn reads_zero(&self) -> bool {
        true
    }

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        if self.control.fails() {
            return None;
        }
        let first = self.inner.acquire(units, align_units)?;
        self.control.held.fetch_add(units.into(), Relaxed);
        Some(first)
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        let done = !self.control.fails() && self.inner.extend(first, units, more);
        self.control.held.fetch_add(if done { more.into() } else { 0 }, Relaxed);
        done
    }

    fn release(&mut self, first: u32, units: u32) {
        self.control.held.fetch_sub(units.into(), Relaxed);
        self.inner.release(first, units);
    }

    fn purge(&mut self, first: u32, units: u32) -> bool {
        if self.control.fails() {
            return false;
        }
        // The units must be free: they can be had.
        assert!(self.inner.extend(first, 0, units), "a purge of units in use");
        self.inner.release(first, units);
        self.control.purged.fetch_add(units.into(), Relaxed);
        if self.memory {
            let start = self.base + first as usize * UNIT_BYTES;
            let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
            // SAFETY: free units of the arena, which nobody uses.
            unsafe { start.write_bytes(0, units as usize * UNIT_BYTES) };
        }
        true
    }
}

/// Memory that is there, of which guards are counted.
struct Guards(Arc<Control>);

impl MakeUsable for Guards {
    fn make_usable(&self, _: u32, _: u32) -> bool {
        !self.0.unusable.load(Relaxed)
    }

    fn guard(&self, _: u32, units: u32, on: bool) {
        if on {
            self.0.guarded.fetch_add(units.into(), Relaxed);
        } else {
            self.0.guarded.fetch_sub(units.into(), Relaxed);
        }
    }
}

pub(crate) type Pool = BufferPool<'static, Lock, Source>;
pub(crate) type Heap<'p> = LocalHeap<'p, 'static, Lock, Source>;

/// A pool with memory of its own. Tables are leaked: a test makes few.
pub(crate) struct Arena {
    pub(crate) pool: Pool,
    pub(crate) control: Arc<Control>,
    pub(crate) base: NonNull<u8>,
    pub(crate) tables: Tables,
    layout: Layout,
}

/// Addresses of the tables.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "not all programs of tests look there")]
pub(crate) struct Tables {
    pub(crate) superblocks: usize,
    pub(crate) returned: usize,
    pub(crate) live: usize,
    pub(crate) claims: usize,
    pub(crate) heaps: usize,
    pub(crate) dirty: usize,
}

pub(crate) fn arena(units: usize, heaps: usize, options: BufferOptions) -> Arena {
    let layout = Layout::from_size_align(units * UNIT_BYTES, 16 * UNIT_BYTES).unwrap();
    // SAFETY: not of size 0.
    let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
    let address = base.as_ptr().expose_provenance();
    let control = Arc::new(Control::default());
    let source = Source {
        inner: FirstFit::new(
            address,
            units as u32,
            vec![0; FirstFit::<Vec<u64>>::words(units as u32)],
            true,
        ),
        base: address,
        memory: true,
        control: Arc::clone(&control),
    };
    let storage = Storage {
        superblocks: Vec::leak((0..units).map(|_| Superblock::new()).collect()),
        returned: Vec::leak((0..units).map(|_| Returned::new()).collect()),
        live: Vec::leak((0..units).map(|_| Live::new()).collect()),
        claims: Vec::leak((0..units).map(|_| Claim::new()).collect()),
        heaps: Vec::leak((0..heaps).map(|_| HeapSlot::new()).collect()),
        dirty: Vec::leak(vec![0; dirty_words(units)]),
    };
    let tables = Tables {
        superblocks: storage.superblocks.as_mut_ptr().expose_provenance(),
        returned: storage.returned.as_mut_ptr().expose_provenance(),
        live: storage.live.as_mut_ptr().expose_provenance(),
        claims: storage.claims.as_mut_ptr().expose_provenance(),
        heaps: storage.heaps.as_mut_ptr().expose_provenance(),
        dirty: storage.dirty.as_mut_ptr().expose_provenance(),
    };
    // SAFETY: the arena is the pool's until `Arena` is dropped.
    let pool = unsafe { BufferPool::new(base, storage, source, options).unwrap() };
    Arena { pool, control, base, tables, layout }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// A size that is mostly short, up to longer than any slot.
pub(crate) fn size(random: &mut Random) -> usize {
    match random.below(100) {
        0..50 => random.index(256),
        50..80 => random.index(2048),
        80..93 => random.index(20_000),
        93..98 => random.index(SLOT_BYTES_MAX),
        _ => random.index(24 * SLOT_BYTES_MAX),
    }
}

/// A block in use, filled with a byte of its own at its ends and here and
/// there between.
pub(crate) struct Block {
    pub(crate) at: NonNull<u8>,
    pub(crate) size: usize,
    pub(crate) seed: u8,
}

// SAFETY: a block belongs to whoever holds this.
unsafe impl Send for Block {}

impl Block {
    /// Marks every byte.
    pub(crate) fn fill(at: NonNull<u8>, size: usize, seed: u8) -> Self {
        // SAFETY: the pool gave at least so many bytes.
        unsafe { at.write_bytes(seed, size) };
        Self { at, size, seed }
    }

    /// Whether the first `size` bytes are as they were filled.
    pub(crate) fn intact(&self, size: usize) -> bool {
        // SAFETY: still ours.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), size.min(self.size)) };
        bytes.iter().all(|&byte| byte == self.seed)
    }
}
