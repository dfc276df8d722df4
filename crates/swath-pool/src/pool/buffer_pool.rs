//! The pool itself: the tables, the lock, and the way from a pointer to its record.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::error::{BufferFreeError, BufferPoolError};
use crate::heap::slot::HeapSlot;
use crate::options::BufferOptions;
use crate::pool::global::Global;
use crate::pool::storage::{Storage, dirty_words};
use crate::source::segment_source::{MakeUsable, SegmentSource};
use crate::superblock::class::{UNIT_BYTES, UNIT_SHIFT, slot_bytes, word_of};
use crate::superblock::list::ReturnList;
use crate::superblock::owner::{HEAPS_MAX, Owner, Role};
use crate::superblock::record::{Returned, Superblock};

/// The arena's first byte.
struct Base(NonNull<u8>);

// SAFETY: it is only offset and compared; what it leads to belongs to the
// blocks' users.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

/// What all threads read at nearly every free and none writes: a cache line of its own.
#[repr(align(64))]
struct Tables<'m> {
    base: Base,
    superblocks: &'m [Superblock],
    returned: &'m [Returned],
    heaps: &'m [HeapSlot],
}

/// A buffer pool over one arena, shared by all threads.
///
/// Invariants, beside those of [`HeapSlot`] and [`Superblock`]: a unit
/// is free with the source, or part of one segment, or part of one superblock
/// that has one owner; dirty units are free.
pub struct BufferPool<'m, L, S> {
    tables: Tables<'m>,
    options: BufferOptions,
    pub(crate) make_usable: Option<&'static dyn MakeUsable>,
    pub(crate) global: Mutex<L, Global<'m, S>>,
    /// The global heap's superblocks to which slots came back, and units that
    /// lost their owner while on a list.
    pub(crate) list: ReturnList,
    /// Double frees that met a return under way, found when the owner collected it.
    pub(crate) late_double_frees: AtomicU64,
    /// True if a thread had to wait for the lock since the last purge.
    pub(crate) crowded: AtomicBool,
    /// Time at which the next purge is due.
    pub(crate) due: AtomicU64,
}

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    /// Makes a pool over the arena from `base` on, of as many units as
    /// `storage` has records, whatever they hold. O(u + h) for u units and h heaps.
    ///
    /// # Errors
    /// A [`BufferPoolError`]; nothing has changed.
    ///
    /// # Safety
    /// What is acquired from `source` lies in the arena and is valid as [`SegmentSource`] says until
    /// the pool is dropped and its blocks are no longer used; nothing else uses the source's units.
    pub unsafe fn new(
        base: NonNull<u8>,
        mut storage: Storage<'m>,
        source: S,
        options: BufferOptions,
    ) -> Result<Self, BufferPoolError> {
        Self::refuse(base, &storage, options)?;
        storage.clear();
        // SAFETY: as the caller says; the storage was just cleared.
        unsafe { Self::new_zeroed(base, storage, source, options) }
    }

    /// Makes a pool as [`new`](Self::new), over storage that is known to be zero and is not touched:
    /// records of units never used may lie in memory that has no pages yet. O(1).
    ///
    /// # Errors
    /// A [`BufferPoolError`]; nothing has changed.
    ///
    /// # Safety
    /// As for [`new`](Self::new), and all bytes of the storage are zero, or as `new` of the records
    /// makes them.
    pub unsafe fn new_zeroed(
        base: NonNull<u8>,
        storage: Storage<'m>,
        source: S,
        options: BufferOptions,
    ) -> Result<Self, BufferPoolError> {
        Self::refuse(base, &storage, options)?;
        let Storage { superblocks, returned, heaps, dirty } = storage;
        let dirty = &mut dirty[..dirty_words(superblocks.len())];
        Ok(Self {
            tables: Tables { base: Base(base), superblocks, returned, heaps },
            options,
            make_usable: source.make_usable(),
            global: Mutex::new(Global::new(source, dirty)),
            list: ReturnList::new(),
            late_double_frees: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            due: AtomicU64::new(0),
        })
    }

    /// Returns the reason why no pool is made of these, if there is one.
    fn refuse(
        base: NonNull<u8>,
        storage: &Storage<'m>,
        options: BufferOptions,
    ) -> Result<(), BufferPoolError> {
        let Storage { superblocks, returned, heaps, dirty } = storage;
        let (address, units) = (base.addr().get(), superblocks.len());
        if !address.is_multiple_of(UNIT_BYTES) {
            return Err(BufferPoolError::Misaligned { address });
        }
        let fits = units < u32::MAX as usize
            && units
                .checked_mul(UNIT_BYTES)
                .is_some_and(|bytes| address.checked_add(bytes).is_some());
        if !fits {
            return Err(BufferPoolError::TooLong { units });
        }
        if returned.len() < units {
            return Err(BufferPoolError::ReturnedTooShort { needed: units, given: returned.len() });
        }
        let needed = dirty_words(units);
        if dirty.len() < needed {
            return Err(BufferPoolError::DirtyTooShort { needed, given: dirty.len() });
        }
        if heaps.len() >= HEAPS_MAX {
            return Err(BufferPoolError::TooManyHeaps { given: heaps.len() });
        }
        if !(1..=7).contains(&options.empty_eighths) {
            return Err(BufferPoolError::Threshold { eighths: options.empty_eighths });
        }
        Ok(())
    }

    /// Makes units usable that this thread has acquired. It does not have the lock: that takes time.
    pub(crate) fn make_usable(&self, first: u32, units: u32) -> bool {
        self.make_usable.is_none_or(|pages| pages.make_usable(first, units))
    }

    /// Returns the settings.
    #[must_use]
    pub fn options(&self) -> &BufferOptions {
        &self.options
    }

    /// Calls `look` with the source, under the pool's lock: it must not call the pool.
    pub fn with_source<T>(&self, look: impl FnOnce(&S) -> T) -> T {
        look(&self.lock().source)
    }

    /// Calls `change` with the source, under the pool's lock: it must not call the pool.
    ///
    /// # Safety
    /// The units that the pool has acquired stay acquired and usable, and those that it has not stay
    /// such as it may acquire.
    pub unsafe fn with_source_mut<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        change(&mut self.lock().source)
    }

    #[inline]
    pub(crate) fn superblocks(&self) -> &'m [Superblock] {
        self.tables.superblocks
    }

    #[inline]
    pub(crate) fn heaps(&self) -> &'m [HeapSlot] {
        self.tables.heaps
    }

    #[inline]
    pub(crate) fn returned_bits(&self, index: u32) -> &'m Returned {
        &self.tables.returned[index as usize]
    }

    /// The owner word of a heap's superblocks that are not full.
    #[inline]
    pub(crate) fn token_of(&self, slot: &HeapSlot) -> Owner {
        let at = ptr::from_ref(slot).addr() - self.tables.heaps.as_ptr().addr();
        Owner::open((at / size_of::<HeapSlot>()) as u32 + 1)
    }

    /// Returns the address of a unit.
    #[inline]
    pub(crate) fn unit_start(&self, index: u32) -> NonNull<u8> {
        self.tables.base.0.map_addr(|base| base.saturating_add((index as usize) << UNIT_SHIFT))
    }

    /// Returns the unit in which an address lies, with its record, and the offset within it.
    #[inline(always)]
    pub(crate) fn place_of(&self, address: usize) -> Option<(u32, &'m Superblock, u32)> {
        let offset = address.wrapping_sub(self.tables.base.0.addr().get());
        let unit = offset >> UNIT_SHIFT;
        let superblock = self.tables.superblocks.get(unit)?;
        Some((unit as u32, superblock, (offset % UNIT_BYTES) as u32))
    }

    /// Returns the number of slots in use at which a superblock is sparse.
    pub(crate) fn low(&self, slots: u32) -> u32 {
        (slots.saturating_mul(8 - self.options.empty_eighths) / 8).max(1)
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

    /// Returns true if the address lies in the arena.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.place_of(address).is_some()
    }

    /// Finds the superblock and slot that start at `address`, or the segment, in use or not.
    pub(crate) fn find(&self, address: usize) -> Result<(u32, Option<u32>), BufferFreeError> {
        let foreign = BufferFreeError::Foreign { address };
        let (mut index, mut superblock, _) = self.place_of(address).ok_or(foreign)?;
        let mut role = superblock.owner().role();
        if let Role::Inner(distance) = role {
            index = index.checked_sub(distance).ok_or(BufferFreeError::Corrupt { unit: index })?;
            superblock = &self.superblocks()[index as usize];
            role = superblock.owner().role();
        }
        let within = address - self.unit_start(index).addr().get();
        match role {
            Role::Superblock { .. } if superblock.class().is_none() => {
                Err(BufferFreeError::Corrupt { unit: index })
            }
            Role::Superblock { .. } => match superblock.slot(within as u32) {
                Some(slot) => Ok((index, Some(slot))),
                None => Err(BufferFreeError::Misaligned { address }),
            },
            Role::Segment if within == 0 => Ok((index, None)),
            Role::Segment => Err(BufferFreeError::Misaligned { address }),
            Role::Inner(_) | Role::Free => Err(BufferFreeError::NotAllocated { address }),
        }
    }

    /// Returns the bytes of the block in use that starts at `block`, all of which may be used.
    ///
    /// # Errors
    /// [`BufferFreeError`], as for a free.
    pub fn usable_size(&self, block: NonNull<u8>) -> Result<usize, BufferFreeError> {
        let address = block.addr().get();
        let (index, slot) = self.find(address)?;
        let superblock = &self.superblocks()[index as usize];
        let corrupt = BufferFreeError::Corrupt { unit: index };
        let Some(slot) = slot else {
            return superblock
                .segment_units()
                .map(|units| self.segment_bytes(units))
                .ok_or(corrupt);
        };
        let free = superblock.free[word_of(slot)].load(Relaxed);
        if free >> (slot % 64) & 1 != 0 || self.returned_bits(index).has(slot) {
            return Err(BufferFreeError::NotAllocated { address });
        }
        superblock.class().map(slot_bytes).ok_or(corrupt)
    }

    /// Returns the bytes of a segment of so many units that are its user's.
    pub(crate) fn segment_bytes(&self, units: u32) -> usize {
        ((units - u32::from(self.options.guard_segments)) as usize) << UNIT_SHIFT
    }
}
