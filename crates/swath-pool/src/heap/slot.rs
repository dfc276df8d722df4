//! The storage of one processor heap.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::heap::cache::Caches;
use crate::heap::kept::Kept;
use crate::superblock::class::CLASSES;
use crate::superblock::list::{List, ReturnList};
use crate::superblock::owner::Owner;

/// The superblock that a class's cache is refilled from, plus one, and its complement: a flipped bit of
/// either breaks the pair.
pub(crate) struct Current([AtomicU32; 2]);

/// A word of a heap that was overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overwritten;

impl Current {
    const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; 2])
    }

    pub(crate) fn clear(&self) {
        self.write(0);
    }

    pub(crate) fn set(&self, index: u32) {
        self.write(index + 1);
    }

    fn write(&self, value: u32) {
        self.0[0].store(value, Relaxed);
        self.0[1].store(!value, Relaxed);
    }

    /// Returns the superblock; none without one.
    ///
    /// # Errors
    /// [`Overwritten`]: the two are not those that were stored.
    #[inline]
    pub(crate) fn read(&self) -> Result<Option<u32>, Overwritten> {
        let [value, complement] = [0, 1].map(|half: usize| self.0[half].load(Relaxed));
        if complement == !value { Ok(value.checked_sub(1)) } else { Err(Overwritten) }
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
/// of the pool's options. No single flipped bit does harm: what is believed stands there more than once, or
/// is sealed, and a count or a link that was overwritten leads to no memory in use.
#[repr(C, align(64))]
pub struct HeapSlot {
    pub(crate) caches: Caches,
    pub(crate) current: [Current; CLASSES],
    pub(crate) partial: [Partial; CLASSES],
    pub(crate) full: List,
    pub(crate) kept: Kept,
    /// [`ATTACHED`] if a thread has the heap, else 0; changes under the pool's lock.
    attached: AtomicU32,
    /// Slots that other threads returned.
    pub(crate) remote_frees: AtomicU64,
    _apart: [u64; 8],
    pub(crate) returned: ReturnList,
}

/// Says that a thread has the heap: no flipped bit makes it 0.
const ATTACHED: u32 = u32::MAX;

impl HeapSlot {
    /// A heap of no pool, all zeroes, whose [`Front`](crate::Front) serves and takes nothing.
    #[cfg(not(loom))]
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "a static is made of it, and nothing written"
    )]
    pub const NOBODYS: Self = {
        // SAFETY: a slot may be all zeroes.
        unsafe { core::mem::zeroed() }
    };

    /// Makes a heap that no thread has.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self {
            caches: Caches::new(),
            current: [const { Current::new() }; CLASSES],
            partial: core::array::from_fn(|_| Partial {
                list: List::new(),
                sparse: AtomicU32::new(0),
            }),
            full: List::new(),
            kept: Kept::new(),
            attached: AtomicU32::new(0),
            remote_frees: AtomicU64::new(0),
            _apart: [0; 8],
            returned: ReturnList::new(),
        }
    }

    /// Makes the slot an empty heap, whose superblocks have the owner words of heap `number`.
    pub(crate) fn begin(&self, number: u32) {
        self.attached.store(ATTACHED, Relaxed);
        self.caches.begin(|class| Owner::of(number, class));
        for (current, partial) in self.current.iter().zip(&self.partial) {
            current.clear();
            partial.list.clear();
            partial.sparse.store(0, Relaxed);
        }
        self.full.clear();
    }

    /// Returns true if a thread has the heap.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Relaxed) != 0
    }

    pub(crate) fn detach(&self) {
        self.attached.store(0, Relaxed);
    }

    /// Returns true if what was written at the beginning of this heap, of this number, is unchanged.
    pub(crate) fn is_intact(&self, number: u32) -> bool {
        let mut classes = 0..CLASSES;
        classes.all(|class| self.caches.owner(class as u8) == Owner::of(number, class).0)
            && self.attached.load(Relaxed) == ATTACHED
    }

    /// The current superblock of `class`; none without one, or if its number was overwritten:
    /// the superblock stays with the heap then, and nothing more is allocated from it.
    #[inline]
    pub(crate) fn current(&self, class: usize) -> Option<u32> {
        self.current[class].read().ok().flatten()
    }

    /// Returns true if `index` is the current superblock of its class.
    pub(crate) fn is_current(&self, class: usize, index: u32) -> bool {
        self.current(class) == Some(index)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_leaves_no_current_superblock() {
        let current = Current::new();
        assert_eq!(current.read(), Err(Overwritten));
        for index in [None, Some(0), Some(7), Some(u32::MAX - 1)] {
            index.map_or_else(|| current.clear(), |index| current.set(index));
            assert_eq!(current.read(), Ok(index));
            for (half, bit) in (0..2).flat_map(|half| (0..32).map(move |bit| (half, bit))) {
                current.0[half].fetch_xor(1 << bit, Relaxed);
                assert_eq!(current.read(), Err(Overwritten), "{index:?}, half {half}, bit {bit}");
                current.0[half].fetch_xor(1 << bit, Relaxed);
            }
        }
    }
}
