//! The storage of one processor heap, and the one step that nearly every allocation is.

use core::num::NonZeroU64;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

use crate::heap::kept::Kept;
use crate::superblock::atomic::Shared64;
use crate::superblock::class::{CLASS_OF_GRANULES, CLASSES, LAYOUTS};
use crate::superblock::list::{List, ReturnList};
use crate::superblock::owner::Owner;
use crate::superblock::record::Superblock;

/// The superblock that a class is served from.
///
/// Invariant: the bits of `ready` are set in the word.
#[repr(C)]
pub(crate) struct Current {
    /// The word of free slots in use; the heap's `nothing` if there is none.
    pub(crate) word: AtomicPtr<Shared64>,
    /// Slots of the word that are allocated next, from the lowest on.
    pub(crate) ready: AtomicU64,
    /// The first of that word's slots.
    pub(crate) first: AtomicPtr<u8>,
    /// Bytes of a slot.
    pub(crate) size: AtomicU32,
    /// The superblock, plus one.
    pub(crate) superblock: AtomicU32,
}

impl Current {
    pub(crate) fn superblock(&self) -> Option<u32> {
        self.superblock.load(Relaxed).checked_sub(1)
    }

    #[inline(always)]
    fn word(&self) -> &Shared64 {
        // SAFETY: since `begin` it points to `nothing` or to a word of a superblock, both of
        // which outlive the pool.
        unsafe { &*self.word.load(Relaxed) }
    }

    #[inline(always)]
    pub(crate) fn take(&self) -> Option<NonNull<u8>> {
        let word = self.word();
        let free = word.load(Relaxed);
        let ready = match NonZeroU64::new(self.ready.load(Relaxed)) {
            Some(ready) => ready,
            // The free ones of eight neighbours: few, so that what was just freed soon
            // comes back, while it is in the cache.
            None => NonZeroU64::new(free & (0xFF << (free.trailing_zeros() & 56)))?,
        };
        let rest = ready.get() & (ready.get() - 1);
        self.ready.store(rest, Relaxed);
        word.store(free ^ ready.get() ^ rest, Relaxed);
        let at = ready.trailing_zeros() as usize * self.size.load(Relaxed) as usize;
        // SAFETY: a slot of a superblock, which is not at address 0.
        Some(unsafe { NonNull::new_unchecked(self.first.load(Relaxed).wrapping_add(at)) })
    }

    /// Returns true if the word is one of `superblock`'s, and the slots that are ready are free.
    pub(crate) fn is_sound(&self, superblock: &Superblock) -> bool {
        let word = superblock.free.iter().find(|&word| ptr::eq(word, self.word.load(Relaxed)));
        word.is_some_and(|word| self.ready.load(Relaxed) & !word.load(Relaxed) == 0)
    }
}

/// A class's superblocks beside the current one that are partly used.
pub(crate) struct Partial {
    pub(crate) list: List,
    /// Number of superblocks in the list that are as empty as the threshold says.
    pub(crate) sparse: AtomicU32,
}

/// Storage for one processor heap, supplied by the caller.
///
/// Invariants: a superblock of this heap is current for its class, or in the
/// class's list, or full and in the list of full ones. `sparse` counts the
/// superblocks in a class's list whose mark is zero, and is at most the slack
/// of the pool's options.
#[repr(C, align(64))]
pub struct HeapSlot {
    /// The pool; its types are those of the [`LocalHeap`](crate::LocalHeap) that the slot is in.
    pub(crate) pool: AtomicPtr<()>,
    pub(crate) base: AtomicPtr<u8>,
    pub(crate) superblocks: AtomicPtr<Superblock>,
    pub(crate) units: AtomicU32,
    /// The owner word of its superblocks that are not full.
    pub(crate) token: AtomicU32,
    /// A word without free slots, never written.
    nothing: Shared64,
    /// The classes of short requests by their granules: beside what is read next.
    pub(crate) classes: [AtomicU8; CLASS_OF_GRANULES.len()],
    pub(crate) current: [Current; CLASSES],
    pub(crate) partial: [Partial; CLASSES],
    pub(crate) full: List,
    pub(crate) kept: Kept,
    /// Slots that other threads returned.
    pub(crate) remote_frees: AtomicU64,
    /// 1 if a thread has the heap, else 0; changes under the pool's lock.
    pub(crate) attached: AtomicU32,
    _apart: [u64; 8],
    pub(crate) returned: ReturnList,
}

impl HeapSlot {
    /// Makes a heap that no thread has.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self {
            pool: AtomicPtr::new(ptr::null_mut()),
            base: AtomicPtr::new(ptr::null_mut()),
            superblocks: AtomicPtr::new(ptr::null_mut()),
            units: AtomicU32::new(0),
            token: AtomicU32::new(0),
            nothing: Shared64::new(0),
            classes: [const { AtomicU8::new(0) }; _],
            current: core::array::from_fn(|_| Current {
                word: AtomicPtr::new(ptr::null_mut()),
                ready: AtomicU64::new(0),
                first: AtomicPtr::new(ptr::null_mut()),
                size: AtomicU32::new(0),
                superblock: AtomicU32::new(0),
            }),
            partial: core::array::from_fn(|_| Partial {
                list: List::new(),
                sparse: AtomicU32::new(0),
            }),
            full: List::new(),
            kept: Kept::new(),
            remote_frees: AtomicU64::new(0),
            attached: AtomicU32::new(0),
            _apart: [0; 8],
            returned: ReturnList::new(),
        }
    }

    /// Makes the slot an empty heap of the pool at `pool`, whose arena and table these are.
    pub(crate) fn begin(
        &self,
        pool: NonNull<()>,
        base: NonNull<u8>,
        superblocks: &[Superblock],
        token: Owner,
    ) {
        self.pool.store(pool.as_ptr(), Relaxed);
        self.base.store(base.as_ptr(), Relaxed);
        self.superblocks.store(superblocks.as_ptr().cast_mut(), Relaxed);
        self.units.store(superblocks.len() as u32, Relaxed);
        self.token.store(token.0, Relaxed);
        for (place, class) in self.classes.iter().zip(CLASS_OF_GRANULES) {
            place.store(class, Relaxed);
        }
        for (class, current) in self.current.iter().enumerate() {
            current.size.store(LAYOUTS[class].size, Relaxed);
            self.clear_current(class);
            self.partial[class].list.clear();
            self.partial[class].sparse.store(0, Relaxed);
        }
        self.full.clear();
    }

    #[inline]
    pub(crate) fn token(&self) -> Owner {
        Owner(self.token.load(Relaxed))
    }

    pub(crate) fn clear_current(&self, class: usize) {
        let current = &self.current[class];
        current.word.store((&raw const self.nothing).cast_mut(), Relaxed);
        current.ready.store(0, Relaxed);
        current.superblock.store(0, Relaxed);
    }

    pub(crate) fn current(&self, class: usize) -> &Current {
        &self.current[class]
    }

    /// Returns true if `index` is the current superblock of its class.
    pub(crate) fn is_current(&self, class: usize, index: u32) -> bool {
        self.current[class].superblock.load(Relaxed) == index + 1
    }

    #[inline(always)]
    pub(crate) fn take(&self, class: usize) -> Option<NonNull<u8>> {
        self.current[class].take()
    }
}
