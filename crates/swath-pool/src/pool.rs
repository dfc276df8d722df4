//! The buffer pool: a global heap of superblocks and a processor heap for each
//! thread (003_f9a9d8482224280c.txt, section 4.3).
//!
//! One range of addresses, the **arena**, is divided into **units** of 64 KiB.
//! A **superblock** is a run of units cut into slots of one size class; what is longer
//! than the longest slot is a run of its own, a **segment**. All metadata lies in tables
//! beside the arena, one record for each unit: no user's cache line is read or written,
//! a pointer's record is found by a shift, and a pointer that is not ours by one
//! comparison.
//!
//! ```text
//!   SegmentSource ──► global heap ──► processor heaps ──► slots
//!        ▲   ▲            │  ▲  ▲            │ │            │
//!        │   └─ segments ─┘  │  └─ emptier ──┘ └── own frees ◄┤
//!        └─ after a delay ───┘     than f          remote frees (lock-free)
//! ```
//!
//! A slot is free or not by a bit of its superblock, so that a double free shows at
//! once. The heap's thread writes these bits with plain loads and stores. Other threads
//! return slots in a second set of bits, without a lock. A
//! superblock that becomes emptier than the threshold f goes back to the global heap once the heap
//! has more of them than its slack; so does each that is wholly empty, and from there
//! its units go to the source. The paper leaves f open and moves data to other superblocks;
//! a C program's data cannot move, so what moves is the superblock, as in Hoard
//! (Berger and others, ASPLOS 2000).
//!
//! Segments take the pool's lock. Once a thread had to wait for it, heaps keep up to 8 MiB of what
//! they free for their own next segments, until a purge or somebody's need gathers it.
//!
//! The crate has no clock: who wants memory to go back to the system calls
//! [`BufferPool::purge`] with the time.
//!
//! ```
//! use swath_pool::FreeError;
//! use swath_pool::pool::*;
//! # use std::sync::atomic::{AtomicBool, Ordering};
//! # struct Lock(AtomicBool);
//! # unsafe impl lock_api::RawMutex for Lock {
//! #     const INIT: Self = Self(AtomicBool::new(false));
//! #     type GuardMarker = lock_api::GuardSend;
//! #     fn lock(&self) { while !self.try_lock() {} }
//! #     fn try_lock(&self) -> bool { !self.0.swap(true, Ordering::Acquire) }
//! #     unsafe fn unlock(&self) { self.0.store(false, Ordering::Release); }
//! # }
//!
//! // An arena of 16 units, and what the pool keeps about it.
//! let layout = std::alloc::Layout::from_size_align(16 * UNIT_BYTES, UNIT_BYTES)?;
//! let arena = std::ptr::NonNull::new(unsafe { std::alloc::alloc(layout) }).unwrap();
//! let superblocks: Vec<_> = (0..16).map(|_| Superblock::new()).collect();
//! let returned: Vec<_> = (0..16).map(|_| Returned::new()).collect();
//! let heaps = [HeapSlot::new(), HeapSlot::new()];
//! let mut dirty = vec![0; dirty_words(16)];
//! let storage =
//!     Storage { superblocks: &superblocks, returned: &returned, heaps: &heaps, dirty: &mut dirty };
//! let source = FirstFit::new(arena.addr().get(), 16, [0; 1], false);
//! let pool: BufferPool<Lock, _> =
//!     unsafe { BufferPool::new(arena, storage, source, Options::default())? };
//!
//! let mut heap = pool.attach().expect("two slots are free");
//! let block = heap.allocate(100, 16)?;
//! assert_eq!(pool.usable_size(block)?, 112);
//! // SAFETY: it is not used after.
//! unsafe {
//!     heap.free(block)?;
//!     assert!(matches!(heap.free(block), Err(FreeError::NotAllocated { .. })));
//! }
//! # drop(heap);
//! # unsafe { std::alloc::dealloc(arena.as_ptr(), layout) };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::error::FreeError;
use crate::global::Global;
use crate::superblock::{ReturnList, Role};

pub use crate::check::{BufferFault, Stats};
pub use crate::class::{CLASSES, SLOT_BYTES_MAX, SLOT_BYTES_MIN, UNIT_BYTES, UNIT_SHIFT};
pub use crate::local::{HeapSlot, LocalHeap};
pub use crate::source::{FirstFit, SegmentSource};
pub use crate::superblock::{Returned, Superblock};

/// How a pool behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The emptiness threshold f in eighths, 1 to 7: a superblock that is at least so
    /// empty may go back to the global heap.
    pub empty_eighths: u32,
    /// Superblocks of one class and that emptiness which a heap keeps (the K of Hoard).
    pub slack: u32,
    /// From a unit's release until its memory goes back to the system, in
    /// the time that [`BufferPool::purge`] is called with; at most twice as long.
    pub purge_delay: u64,
    /// Whether behind every segment lies a unit that faults, if the source
    /// can guard.
    pub guard_segments: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { empty_eighths: 7, slack: 4, purge_delay: 100, guard_segments: false }
    }
}

/// Why a pool was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferError {
    /// The arena does not start at a multiple of a unit.
    Misaligned {
        /// Where it starts.
        address: usize,
    },
    /// The arena's end lies beyond the last address, or it has too many units.
    TooLong {
        /// Units.
        units: usize,
    },
    /// The table of returned slots is shorter than that of superblocks.
    ReturnedTooShort {
        /// Records needed.
        needed: usize,
        /// Records given.
        given: usize,
    },
    /// The bits of dirty units are too few.
    DirtyTooShort {
        /// Words needed: [`dirty_words`].
        needed: usize,
        /// Words given.
        given: usize,
    },
    /// More heaps than an owner's number has bits for.
    TooManyHeaps {
        /// Heaps given.
        given: usize,
    },
    /// The threshold is none of 1 to 7 eighths.
    Threshold {
        /// Eighths given.
        eighths: u32,
    },
}

impl fmt::Display for BufferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { address } => write!(f, "an arena at {address:#x} cuts a unit"),
            Self::TooLong { units } => write!(f, "an arena of {units} units"),
            Self::ReturnedTooShort { needed, given } => {
                write!(f, "{given} records of returned slots, {needed} are needed")
            }
            Self::DirtyTooShort { needed, given } => {
                write!(f, "{given} words of dirty units, {needed} are needed")
            }
            Self::TooManyHeaps { given } => write!(f, "{given} heaps are too many"),
            Self::Threshold { eighths } => write!(f, "an emptiness threshold of {eighths}/8"),
        }
    }
}

impl core::error::Error for BufferError {}

/// What the caller gives for a pool's metadata. The tables have one record for each
/// unit, zeroed or as `new` makes them; records of units never used are not
/// touched, so that they may lie in memory that has no pages yet.
pub struct Storage<'m> {
    /// 640 bytes for each unit: their number is the arena's length.
    pub superblocks: &'m [Superblock],
    /// 576 bytes for each unit, touched only where other threads free.
    pub returned: &'m [Returned],
    /// As many as there can be threads with a heap.
    pub heaps: &'m [HeapSlot],
    /// [`dirty_words`] words, zeroed.
    pub dirty: &'m mut [u64],
}

/// Words for [`Storage::dirty`] over `units` units.
#[must_use]
pub const fn dirty_words(units: usize) -> usize {
    2 * units.div_ceil(64)
}

/// The arena's first byte.
struct Base(NonNull<u8>);

// SAFETY: it is only offset and compared; what it leads to belongs to the
// blocks' users.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

/// A buffer pool over one arena, shared by all threads.
///
/// Invariants, beside those of [`HeapSlot`] and [`Superblock`]: a unit
/// is free with the source, or part of one segment, or part of one superblock
/// that has one owner; dirty units are free.
pub struct BufferPool<'m, L, S> {
    base: Base,
    superblocks: &'m [Superblock],
    returned: &'m [Returned],
    pub(crate) heaps: &'m [HeapSlot],
    options: Options,
    pub(crate) global: Mutex<L, Global<'m, S>>,
    /// The global heap's superblocks to which slots came back, and units that
    /// lost their owner while on a list.
    pub(crate) list: ReturnList,
    /// Double frees that met a return under way, found when it was taken in.
    pub(crate) late_double_frees: AtomicU64,
    /// Whether a thread had to wait for the lock since the last purge.
    pub(crate) crowded: AtomicBool,
    /// When the next purge is due.
    pub(crate) due: AtomicU64,
}

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    /// A pool over the arena from `base` on, of as many units as
    /// `storage` has records.
    ///
    /// # Errors
    /// A [`BufferError`]; nothing has changed.
    ///
    /// # Safety
    /// What `source` hands out lies in the arena, is valid as [`SegmentSource`] says until the
    /// pool is dropped and its blocks are no longer used, and nobody else uses the
    /// source's units or the storage.
    pub unsafe fn new(
        base: NonNull<u8>,
        storage: Storage<'m>,
        source: S,
        options: Options,
    ) -> Result<Self, BufferError> {
        let Storage { superblocks, returned, heaps, dirty } = storage;
        let (address, units) = (base.addr().get(), superblocks.len());
        if !address.is_multiple_of(UNIT_BYTES) {
            return Err(BufferError::Misaligned { address });
        }
        let fits = units < u32::MAX as usize
            && units
                .checked_mul(UNIT_BYTES)
                .is_some_and(|bytes| address.checked_add(bytes).is_some());
        if !fits {
            return Err(BufferError::TooLong { units });
        }
        if returned.len() < units {
            return Err(BufferError::ReturnedTooShort { needed: units, given: returned.len() });
        }
        let needed = dirty_words(units);
        if dirty.len() < needed {
            return Err(BufferError::DirtyTooShort { needed, given: dirty.len() });
        }
        if heaps.len() >= 1 << 29 {
            return Err(BufferError::TooManyHeaps { given: heaps.len() });
        }
        if !(1..=7).contains(&options.empty_eighths) {
            return Err(BufferError::Threshold { eighths: options.empty_eighths });
        }
        Ok(Self {
            base: Base(base),
            superblocks,
            returned,
            heaps,
            options,
            global: Mutex::new(Global::new(source, &mut dirty[..needed])),
            list: ReturnList::new(),
            late_double_frees: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            due: AtomicU64::new(0),
        })
    }

    /// How the pool behaves.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Looks at the source, under the pool's lock: `look` must not call the pool.
    pub fn with_source<T>(&self, look: impl FnOnce(&S) -> T) -> T {
        look(&self.lock().source)
    }

    #[inline]
    pub(crate) fn superblocks(&self) -> &'m [Superblock] {
        self.superblocks
    }

    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base.0
    }

    #[inline]
    pub(crate) fn returned_bits(&self, index: u32) -> &'m Returned {
        &self.returned[index as usize]
    }

    /// The address of a unit.
    #[inline]
    pub(crate) fn unit_start(&self, index: u32) -> NonNull<u8> {
        self.base.0.map_addr(|base| base.saturating_add((index as usize) << UNIT_SHIFT))
    }

    /// Slots in use at which a superblock counts as empty enough to go.
    pub(crate) fn low(&self, slots: u32) -> u32 {
        (slots * (8 - self.options.empty_eighths) / 8).max(1)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, L, Global<'m, S>> {
        self.global.try_lock().unwrap_or_else(|| {
            // Its line is read by all: it is written once.
            if !self.crowded.load(Relaxed) {
                self.crowded.store(true, Relaxed);
            }
            self.global.lock()
        })
    }

    /// Whether the address lies in the arena.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base.0.addr().get()) >> UNIT_SHIFT < self.superblocks.len()
    }

    /// The superblock and slot that start at `address`, or the segment; whether in use or not.
    pub(crate) fn find(&self, address: usize) -> Result<(u32, Option<u32>), FreeError> {
        if !self.contains(address) {
            return Err(FreeError::Foreign { address });
        }
        let offset = address - self.base.0.addr().get();
        let mut index = (offset >> UNIT_SHIFT) as u32;
        let mut role = self.superblocks[index as usize].owner().role();
        if let Role::Inner(distance) = role {
            index -= distance;
            role = self.superblocks[index as usize].owner().role();
        }
        let superblock = &self.superblocks[index as usize];
        let within = offset - ((index as usize) << UNIT_SHIFT);
        match role {
            Role::Superblock { .. } => match superblock.slot(within as u32) {
                Some(slot) => Ok((index, Some(slot))),
                None => Err(FreeError::Misaligned { address }),
            },
            Role::Segment if within == 0 => Ok((index, None)),
            Role::Segment => Err(FreeError::Misaligned { address }),
            Role::Inner(_) | Role::Free => Err(FreeError::NotAllocated { address }),
        }
    }

    /// The block in use that starts at `block`: its bytes, all of which may be used.
    ///
    /// # Errors
    /// [`FreeError`], as for a free.
    pub fn usable_size(&self, block: NonNull<u8>) -> Result<usize, FreeError> {
        let address = block.addr().get();
        let (index, slot) = self.find(address)?;
        let superblock = &self.superblocks[index as usize];
        let Some(slot) = slot else {
            return Ok(self.segment_bytes(superblock.units.load(Relaxed)));
        };
        let free = superblock.free[slot as usize / 64].load(Relaxed);
        if free >> (slot % 64) & 1 != 0 || self.returned_bits(index).has(slot) {
            return Err(FreeError::NotAllocated { address });
        }
        Ok(crate::class::slot_bytes(superblock.class.load(Relaxed) as usize))
    }

    /// Bytes of a segment of so many units for its user.
    pub(crate) fn segment_bytes(&self, units: u32) -> usize {
        ((units - u32::from(self.options.guard_segments)) as usize) << UNIT_SHIFT
    }
}
