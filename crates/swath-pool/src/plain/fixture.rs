//! Memory, a lock and a source for a pool that is tested by one thread.

extern crate std;

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::alloc::Layout;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use lock_api::{GuardSend, RawMutex};

use crate::heap::slot::HeapSlot;
use crate::options::BufferOptions;
use crate::pool::buffer_pool::BufferPool;
use crate::pool::storage::{Storage, dirty_words};
use crate::source::first_fit::FirstFit;
use crate::source::segment_source::{MakeUsable, Placement, SegmentSource};
use crate::superblock::claim::Claim;
use crate::superblock::class::UNIT_BYTES;
use crate::superblock::live::Live;
use crate::superblock::record::Superblock;
use crate::superblock::returned::Returned;

std::thread_local! {
    /// True if this thread finds the lock taken at its first try, as among many.
    pub(crate) static CROWDED: Cell<bool> = const { Cell::new(false) };
}

/// A lock that one thread takes, once at a time.
pub(crate) struct Lock(AtomicBool);

impl Lock {
    fn take(&self) -> bool {
        self.0.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }
}

// SAFETY: whoever changes the flag from false to true holds the lock until he stores false; acquire and
// release order what is inside.
unsafe impl RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    fn lock(&self) {
        assert!(self.take(), "one thread");
    }

    fn try_lock(&self) -> bool {
        !CROWDED.get() && self.take()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Release);
    }
}

/// What a source tells of its units, and is told.
#[derive(Default)]
pub(crate) struct Units {
    /// Whether units cannot be made usable.
    pub(crate) unusable: AtomicBool,
    /// Units that were made usable and not released since.
    pub(crate) usable: Mutex<BTreeSet<u32>>,
    /// Units that fault.
    pub(crate) guarded: Mutex<Vec<u32>>,
    /// What another thread does while the next units are made usable, or guarded.
    pub(crate) meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Units {
    fn meet(&self) {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|meet| meet());
    }
}

impl MakeUsable for Units {
    fn make_usable(&self, first: u32, units: u32) -> bool {
        self.meet();
        let usable = !self.unusable.load(Relaxed);
        self.usable.lock().unwrap().extend((first..first + units).filter(|_| usable));
        usable
    }

    fn guard(&self, first: u32, units: u32, on: bool) {
        self.meet();
        let mut guarded = self.guarded.lock().unwrap();
        for unit in first..first + units {
            match guarded.binary_search(&unit) {
                Err(at) if on => guarded.insert(at, unit),
                Ok(at) if !on => drop(guarded.remove(at)),
                _ => {}
            }
        }
    }
}

/// First fit over memory that is there; any purge succeeds.
pub(crate) struct Source {
    pub(crate) free: FirstFit<Vec<u64>>,
    units: &'static Units,
}

// SAFETY: what `FirstFit` hands out.
unsafe impl SegmentSource for Source {
    const PAGE_UNITS: u32 = 4;

    fn make_usable(&self) -> Option<&'static dyn MakeUsable> {
        Some(self.units)
    }

    fn reads_zero(&self) -> bool {
        true
    }

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        self.free.acquire(units, align_units)
    }

    /// At a multiple of as many units as the placement says.
    fn acquire_placed(&mut self, units: u32, placement: &Placement) -> Option<u32> {
        self.free.acquire(units, (placement.align_bytes / UNIT_BYTES as u64) as u32)
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        self.free.extend(first, units, more)
    }

    fn release(&mut self, first: u32, units: u32) {
        let released = first..first + units;
        self.units.usable.lock().unwrap().retain(|unit| !released.contains(unit));
        self.free.release(first, units);
    }

    fn purge(&mut self, first: u32, units: u32) -> bool {
        assert!(self.free.extend(first, 0, units), "a purge of units in use");
        self.free.release(first, units);
        true
    }
}

pub(crate) type TestPool = BufferPool<'static, Lock, Source>;

/// A pool over memory that is all leaked, with the address at which it begins.
pub(crate) struct Leaked {
    pub(crate) pool: &'static TestPool,
    pub(crate) base: NonNull<u8>,
    pub(crate) units: &'static Units,
}

/// Units free of an arena.
pub(crate) fn first_fit(base: NonNull<u8>, units: usize) -> FirstFit<Vec<u64>> {
    let words = vec![0; FirstFit::<Vec<u64>>::words(units as u32)];
    FirstFit::new(base.addr().get(), units as u32, words, true)
}

/// Makes a pool over so many units, for so many heaps.
pub(crate) fn leaked(units: usize, heaps: usize, options: BufferOptions) -> Leaked {
    let layout = Layout::from_size_align(units * UNIT_BYTES, 16 * UNIT_BYTES).unwrap();
    // SAFETY: not of size 0.
    let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
    base.as_ptr().expose_provenance();
    let storage = Storage {
        superblocks: Vec::leak((0..units).map(|_| Superblock::new()).collect()),
        returned: Vec::leak((0..units).map(|_| Returned::new()).collect()),
        live: Vec::leak((0..units).map(|_| Live::new()).collect()),
        claims: Vec::leak((0..units).map(|_| Claim::new()).collect()),
        heaps: Vec::leak((0..heaps).map(|_| HeapSlot::new()).collect()),
        dirty: Vec::leak(vec![0; dirty_words(units)]),
    };
    let free = first_fit(base, units);
    let units: &'static Units = Box::leak(Box::default());
    let source = Source { free, units };
    // SAFETY: the arena is the pool's for good.
    let pool = unsafe { TestPool::new(base, storage, source, options) };
    Leaked { pool: Box::leak(Box::new(pool.unwrap())), base, units }
}
