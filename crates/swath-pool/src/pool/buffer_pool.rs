//! The pool itself: the tables, the lock, and the way from a pointer to its record.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::error::{BufferFreeError, BufferPoolError};
use crate::heap::cache::CachedSlot;
use crate::heap::slot::HeapSlot;
use crate::options::BufferOptions;
use crate::pool::global::Global;
use crate::pool::storage::{Storage, dirty_words};
use crate::source::segment_source::{MakeUsable, SegmentSource};
use crate::superblock::claim::Claim;
use crate::superblock::class::{
    GRANULE_SHIFT, LAYOUTS, SLOT_BYTES_MIN, UNIT_BYTES, UNIT_GRANULES_SHIFT, UNIT_SHIFT, class_for,
    slot_bytes,
};
use crate::superblock::list::ReturnList;
use crate::superblock::live::{Live, LiveBits};
use crate::superblock::owner::{HEAPS_MAX, Role};
use crate::superblock::record::Superblock;
use crate::superblock::returned::Returned;

/// The arena's first byte. Not [`NonNull`]: it may be looked at where there is no pool yet.
struct Base(*mut u8);

// SAFETY: it is only offset and compared; what it leads to belongs to the
// blocks' users.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

/// A place before the table of claims.
struct ClaimZero(*const Claim);

// SAFETY: it leads to claims, which are all threads'.
unsafe impl Send for ClaimZero {}
// SAFETY: as above.
unsafe impl Sync for ClaimZero {}

/// What starts at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// A slot of this class.
    Slot(usize),
    Segment,
}

/// The place of a block in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// Its bytes, all of which may be used.
    pub len_bytes: usize,
    /// True if it is a segment, else it is a slot.
    pub is_segment: bool,
    /// The slot before it, as long, if that is in the same superblock: nobody but the owner of its heap
    /// allocates it.
    pub before: Option<NonNull<u8>>,
}

/// What all threads read at nearly every free and none writes: a cache line of its own.
#[repr(align(64))]
struct Tables<'m> {
    base: Base,
    /// The claim to the unit of address 0, if there were one: of an address's unit it lies so many behind it as units of
    /// the address space lie before the unit.
    claim_zero: ClaimZero,
    superblocks: &'m [Superblock],
    returned: &'m [Returned],
    live: LiveBits<'m>,
    claims: &'m [Claim],
    /// Granules of the arena.
    granules: usize,
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
    /// The memory of no pool, for the [`Front`](crate::Front) of a heap that is [nobody's](HeapSlot::NOBODYS): zeroes, but
    /// for the arena's first byte, so that an entry of zeroes is none of a cache.
    pub const NOTHING: MaybeUninit<Self> = {
        let mut nothing = MaybeUninit::<Self>::zeroed();
        // SAFETY: a field of memory that is there.
        unsafe { (&raw mut (*nothing.as_mut_ptr()).tables.base).write(Base(ptr::dangling_mut())) };
        nothing
    };

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
        let Storage { superblocks, returned, live, claims, heaps, dirty } = storage;
        let live = LiveBits::new(live);
        let granules = superblocks.len() << UNIT_GRANULES_SHIFT;
        let dirty = &mut dirty[..dirty_words(superblocks.len())];
        Ok(Self {
            tables: Tables {
                base: Base(base.as_ptr()),
                claim_zero: ClaimZero(
                    claims.as_ptr().wrapping_sub(base.addr().get() >> UNIT_SHIFT),
                ),
                superblocks,
                returned,
                live,
                claims,
                granules,
                heaps,
            },
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
        let Storage { superblocks, returned, live, claims, heaps, dirty } = storage;
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
        if live.len() < units {
            return Err(BufferPoolError::LiveTooShort { needed: units, given: live.len() });
        }
        if claims.len() < units {
            return Err(BufferPoolError::ClaimsTooShort { needed: units, given: claims.len() });
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
    pub(crate) fn claims(&self) -> &'m [Claim] {
        self.tables.claims
    }

    #[inline]
    pub(crate) fn heaps(&self) -> &'m [HeapSlot] {
        self.tables.heaps
    }

    #[inline]
    pub(crate) fn returned_bits(&self, index: u32) -> &'m Returned {
        &self.tables.returned[index as usize]
    }

    #[inline(always)]
    pub(crate) fn live(&self) -> LiveBits<'m> {
        self.tables.live
    }

    /// The number of a heap, from 1 on.
    pub(crate) fn number_of(&self, slot: &HeapSlot) -> u32 {
        let at = ptr::from_ref(slot).addr() - self.tables.heaps.as_ptr().addr();
        (at / size_of::<HeapSlot>()) as u32 + 1
    }

    /// Returns where a granule lies; of one outside the arena it is some pointer.
    ///
    /// # Safety
    /// The pool's memory is there, if only as zeroes.
    #[inline(always)]
    pub(crate) unsafe fn granule_start(pool: *const Self, granule: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        let base = unsafe { (*pool).tables.base.0 };
        // A rotation, so that no bit of the granule is without meaning.
        base.wrapping_byte_add(granule.rotate_left(GRANULE_SHIFT))
    }

    /// Returns the arena's first byte.
    ///
    /// # Safety
    /// As for [`granule_start`](Self::granule_start).
    #[inline(always)]
    pub(crate) unsafe fn base_of(pool: *const Self) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { (*pool).tables.base.0 }
    }

    /// Returns the number of the arena's granules.
    ///
    /// # Safety
    /// As for [`granule_start`](Self::granule_start).
    #[inline(always)]
    pub(crate) unsafe fn granules_of(pool: *const Self) -> usize {
        // SAFETY: as the caller says.
        unsafe { (*pool).tables.granules }
    }

    /// Returns where the claim to the unit of address 0 would lie.
    ///
    /// # Safety
    /// As for [`granule_start`](Self::granule_start).
    #[inline(always)]
    pub(crate) unsafe fn claim_zero_of(pool: *const Self) -> *const Claim {
        // SAFETY: as the caller says.
        unsafe { (*pool).tables.claim_zero.0 }
    }

    /// Returns the live bits of the first unit.
    ///
    /// # Safety
    /// The pool is there.
    #[inline(always)]
    pub(crate) unsafe fn first_live_of(pool: *const Self) -> *const Live {
        // SAFETY: as the caller says.
        unsafe { (*pool).tables.live }.first()
    }

    /// Returns what a [`Reach`](crate::Reach) has to know if it does not ask the pool: the addresses of the arena's first byte,
    /// of the live bits, and of where the claim to the unit of address 0 would lie, all of them exposed, and the number of
    /// granules.
    #[must_use]
    pub fn table_words(&self) -> [usize; 4] {
        let Tables { base, claim_zero, live, granules, .. } = &self.tables;
        [
            base.0.expose_provenance(),
            live.first().expose_provenance(),
            claim_zero.0.expose_provenance(),
            *granules,
        ]
    }

    /// Returns the record of the unit in which a granule lies.
    ///
    /// # Safety
    /// As for [`granule_start`](Self::granule_start).
    #[inline(always)]
    pub(crate) unsafe fn superblock_at(
        pool: *const Self,
        granule: usize,
    ) -> Option<&'m Superblock> {
        // SAFETY: as the caller says.
        if granule >= unsafe { (*pool).tables.granules } {
            return None;
        }
        // SAFETY: a pool with granules is one, with a record for each unit of so many granules.
        let superblocks = unsafe { (*pool).tables.superblocks };
        // SAFETY: as above.
        Some(unsafe { superblocks.get_unchecked(granule >> UNIT_GRANULES_SHIFT) })
    }

    /// Returns the address of a granule of the arena.
    #[inline]
    pub(crate) fn start_of(&self, granule: usize) -> usize {
        // SAFETY: the pool is there.
        unsafe { Self::granule_start(self, granule) }.addr()
    }

    /// Returns the granule that begins at an address, as an entry of a cache; outside the arena if none does.
    #[inline(always)]
    pub(crate) fn cached_slot(&self, address: usize) -> CachedSlot {
        CachedSlot::at(address, address.wrapping_sub(self.tables.base.0.addr()))
    }

    /// Returns the superblock in which a granule lies, with its number.
    #[inline(always)]
    pub(crate) fn first_of(&self, granule: usize) -> Option<(u32, &'m Superblock)> {
        let unit = granule >> UNIT_GRANULES_SHIFT;
        let superblock = self.tables.superblocks.get(unit)?;
        let owner = superblock.owner();
        if owner.is_superblock() {
            return Some((unit as u32, superblock));
        }
        let Role::Inner(distance) = owner.role() else { return None };
        let first = unit.checked_sub(distance as usize)?;
        let superblock = &self.tables.superblocks[first];
        superblock.owner().is_superblock().then_some((first as u32, superblock))
    }

    /// Returns the position in superblock `index` of what begins at a granule of it.
    #[inline(always)]
    pub(crate) fn position(&self, index: u32, granule: usize) -> u32 {
        let first = (index as usize) << UNIT_GRANULES_SHIFT;
        self.superblocks()[index as usize].position(granule.wrapping_sub(first))
    }

    /// Returns where a unit begins: not at 0, if it is one of the arena, which does not wrap.
    #[inline(always)]
    pub(crate) fn place_of_unit(&self, index: u32) -> *mut u8 {
        self.tables.base.0.wrapping_byte_add((index as usize) << UNIT_SHIFT)
    }

    /// Returns the address of a unit.
    #[inline]
    pub(crate) fn unit_start(&self, index: u32) -> NonNull<u8> {
        let start = self.place_of_unit(index);
        // Of a number beyond the arena, which only a record that was overwritten has, it is some pointer.
        NonNull::new(start).unwrap_or(NonNull::dangling())
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

    /// Returns the unit in which an address lies.
    fn unit_of(&self, address: usize) -> Option<u32> {
        let unit = address.wrapping_sub(self.tables.base.0.addr()) >> UNIT_SHIFT;
        (unit < self.tables.superblocks.len()).then_some(unit as u32)
    }

    /// Returns true if the address lies in the arena.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.unit_of(address).is_some()
    }

    /// Finds the slot or segment that starts at `address`, in use or not, and its first unit.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Result<(u32, Found), BufferFreeError> {
        let foreign = BufferFreeError::Foreign { address };
        let mut index = self.unit_of(address).ok_or(foreign)?;
        let mut superblock = &self.superblocks()[index as usize];
        let mut role = superblock.owner().role();
        if let Role::Inner(distance) = role {
            index = index.checked_sub(distance).ok_or(BufferFreeError::Corrupt { unit: index })?;
            superblock = &self.superblocks()[index as usize];
            role = superblock.owner().role();
        }
        let within = address - self.unit_start(index).addr().get();
        match role {
            Role::Superblock { .. } => {
                let class = superblock.class().ok_or(BufferFreeError::Corrupt { unit: index })?;
                let slot = superblock.slot(within as u32);
                slot.ok_or(BufferFreeError::Misaligned { address })?;
                Ok((index, Found::Slot(class)))
            }
            Role::Segment if within == 0 => Ok((index, Found::Segment)),
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
        let (index, found) = self.find(address)?;
        self.usable_size_of(address, index, found)
    }

    /// Returns the bytes of what was found at an address, if it is in use.
    #[inline]
    fn usable_size_of(
        &self,
        address: usize,
        index: u32,
        found: Found,
    ) -> Result<usize, BufferFreeError> {
        let Found::Slot(class) = found else {
            let units = self.superblocks()[index as usize].segment_units();
            let units = units.ok_or(BufferFreeError::Corrupt { unit: index })?;
            return Ok(self.segment_bytes(units));
        };
        let granule = self.cached_slot(address).granule;
        let returned = self.returned_bits(index).has(self.position(index, granule));
        if !self.tables.live.has(granule) || returned {
            return Err(BufferFreeError::NotAllocated { address });
        }
        Ok(slot_bytes(class))
    }

    /// Returns false if a slot or a segment lies at `block` that is not as long as a request for `size` bytes at a
    /// multiple of `align` gets. Any pointer may be tried.
    #[must_use]
    pub fn may_be_of(&self, block: NonNull<u8>, size: usize, align: usize) -> bool {
        let wanted = class_for(size, align.max(SLOT_BYTES_MIN));
        match self.find(block.addr().get()) {
            // Without room for a superblock a long slot's request got a segment, a short one's nothing.
            Ok((index, Found::Segment)) => {
                let is_short = wanted.is_some_and(|class| LAYOUTS[class].units == 1);
                let units = self.superblocks()[index as usize].segment_units();
                !is_short && units.is_none_or(|units| self.units_for(size) == Some(units))
            }
            Ok((_, Found::Slot(class))) => wanted == Some(class),
            Err(_) => true,
        }
    }

    /// Returns the place of a block in use.
    ///
    /// # Errors
    /// [`BufferFreeError`], as for a free.
    pub fn place_of(&self, block: NonNull<u8>) -> Result<BlockPlace, BufferFreeError> {
        let address = block.addr().get();
        let (index, found) = self.find(address)?;
        let len_bytes = self.usable_size_of(address, index, found)?;
        Ok(self.place(address, index, found, len_bytes))
    }

    /// Returns the place of a block that was just allocated: as [`place_of`](Self::place_of), but whether it is in use is
    /// not asked.
    ///
    /// # Errors
    /// [`BufferFreeError`], as for a free, but not of a slot that is free.
    #[inline]
    pub fn place_of_new(&self, block: NonNull<u8>) -> Result<BlockPlace, BufferFreeError> {
        let address = block.addr().get();
        let (index, found) = self.find(address)?;
        let len_bytes = match found {
            Found::Slot(class) => slot_bytes(class),
            Found::Segment => self.usable_size_of(address, index, found)?,
        };
        Ok(self.place(address, index, found, len_bytes))
    }

    #[inline]
    fn place(&self, address: usize, index: u32, found: Found, len_bytes: usize) -> BlockPlace {
        let is_segment = found == Found::Segment;
        let first = self.unit_start(index);
        let within = address - first.addr().get();
        let before = (!is_segment).then(|| within.checked_sub(len_bytes)).flatten();
        let before = before.and_then(|at| NonNull::new(first.as_ptr().wrapping_add(at)));
        BlockPlace { len_bytes, is_segment, before }
    }

    /// Returns the bytes of a segment of so many units that are its user's.
    pub(crate) fn segment_bytes(&self, units: u32) -> usize {
        ((units - u32::from(self.options.guard_segments)) as usize) << UNIT_SHIFT
    }
}
