//! Adaptive-Buddy: banks that can rest.

use core::ffi::c_void;

use swath_arch::{Extent, Pfn};
use swath_frame::zone::bank::{
    AdaptiveBuddy, BankLayout, BankLayoutError, BankPool, PoolPlacement, PoolPolicy,
};
use swath_frame::{Mobility, ZoneAllocator};

use crate::frames::order;
use crate::map::{swath_extent, swath_map};
use crate::object::{Opaque, Words, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// Adaptive-Buddy over the banks of one zone.
pub struct swath_banks {
    _private: [u8; 0],
}

impl Opaque for swath_banks {
    type Inner = AdaptiveBuddy<Words>;
    const TAG: u64 = u64::from_le_bytes(*b"swathbnk");
}

/// Mobility of the owner of frames: it could be moved elsewhere, or not.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_mobility {
    /// Kernel memory, reached by its physical address.
    SWATH_UNMOVABLE = 0,
    /// Memory reached through mappings that can be changed.
    SWATH_MOVABLE = 1,
    /// Kernel memory that can be dropped on demand, but not moved.
    SWATH_RECLAIMABLE = 2,
}

/// Pool in which a bank's free memory counts.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_pool {
    /// Unmovable and reclaimable memory.
    SWATH_POOL_KERNEL = 0,
    /// Movable memory.
    SWATH_POOL_USER = 1,
    /// Banks that are wholly free, and can rest.
    SWATH_POOL_OFFLINE = 2,
    /// In no pool: the bank is isolated or has no frames.
    SWATH_POOL_NONE = 3,
}

/// Banks of a zone.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_banks_config {
    /// The zone: the map's frames in this span.
    pub zone: swath_extent,
    /// The first frame of a bank, at or below the zone's; a multiple of 2^`top_order`.
    pub first_frame: u64,
    /// Frames of a bank, a multiple of 2^`top_order`: 65536 are 256 MiB.
    pub bank_frames: u64,
    /// The largest order of a block, 10 as in Linux.
    pub top_order: u32,
    /// 0: the bank used last serves, as in the paper. 1: the fullest, which leaves more banks to rest.
    pub packed: u32,
}

/// Counts of a bank.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_bank {
    /// From its first border to its last.
    pub extent: swath_extent,
    /// Frames of the zone in it.
    pub total_frames: u64,
    /// Those that are free.
    pub free_frames: u64,
    /// A `swath_pool`.
    pub pool: u32,
    /// 1 if it is isolated, else 0.
    pub isolated: u32,
}

impl From<BankLayoutError> for swath_result {
    fn from(error: BankLayoutError) -> Self {
        match error {
            BankLayoutError::Frames { frames } => Self::new(SWATH_ARGUMENT, frames),
            BankLayoutError::Order { top } => Self::new(SWATH_ARGUMENT, top.k().into()),
            BankLayoutError::Misaligned { first, .. } => Self::new(SWATH_MISALIGNED, first.raw()),
            BankLayoutError::NoFrame { .. } => Self::new(SWATH_NO_FRAME, 0),
            BankLayoutError::Below { frame } => Self::new(SWATH_ARGUMENT, frame.raw()),
            BankLayoutError::Count { banks } => Self::new(SWATH_ARGUMENT, banks),
            BankLayoutError::Storage { needed_words, .. } => {
                Self::new(SWATH_STORAGE, (needed_words as u64).saturating_mul(8))
            }
        }
    }
}

fn mobility(value: u32) -> Outcome<Mobility> {
    let known = Mobility::ALL.get(value as usize).copied();
    known.ok_or(swath_result::new(SWATH_ARGUMENT, value.into()))
}

fn parts(config: swath_banks_config) -> Outcome<(Extent, BankLayout, PoolPlacement)> {
    let policy = match config.packed {
        0 => PoolPolicy::PAPER,
        1 => PoolPolicy::PACKED,
        other => return fail(SWATH_ARGUMENT, other.into()),
    };
    let zone = Extent::from(config.zone);
    if zone.checked_end().is_none() {
        return fail(SWATH_OVERFLOW, zone.start.raw());
    }
    let first = Pfn::new(config.first_frame);
    let banks = BankLayout::new(first, config.bank_frames, order(config.top_order)?)?;
    Ok((zone, banks, PoolPlacement::new(policy)))
}

/// # Safety
/// `map` is null or an object of this library.
unsafe fn words(map: *const swath_map, config: swath_banks_config) -> Outcome<usize> {
    // SAFETY: as the caller says.
    let map = unsafe { swath_map::look(map) }?;
    let (zone, banks, rule) = parts(config)?;
    Ok(AdaptiveBuddy::<Words>::storage_words(map, zone, banks, &rule)?)
}

/// Bytes of storage for the banks; 0 if the map or the configuration is wrong.
///
/// # Safety
/// `map` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_storage_bytes(
    map: *const swath_map,
    config: swath_banks_config,
) -> usize {
    // SAFETY: as the caller says.
    unsafe { words(map, config) }.map_or(0, swath_banks::storage_bytes)
}

/// Makes the allocator, with all frames free. The map is not needed after.
///
/// Errors: `SWATH_ARGUMENT` with the value, `SWATH_MISALIGNED` with the first border,
/// `SWATH_OVERFLOW`, `SWATH_NO_FRAME`, `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `map` is null or an object of this library; `storage` is `len_bytes` of memory that the
/// allocator has for itself from now on; `banks` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_create(
    map: *const swath_map,
    config: swath_banks_config,
    storage: *mut c_void,
    len_bytes: usize,
    banks: *mut *mut swath_banks,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let words = unsafe { words(map, config) }?;
        // SAFETY: as the caller says.
        let map = unsafe { swath_map::look(map) }?;
        let (zone, shape, rule) = parts(config)?;
        let make = |words| Ok(AdaptiveBuddy::new(map, zone, shape, rule, words)?);
        // SAFETY: as the caller says.
        unsafe { swath_banks::create(storage, len_bytes, words, banks, make) }
    };
    swath_result::of(create())
}

/// Takes 2^`order` frames, aligned, for an owner of a `swath_mobility`; `frame` is the
/// first. No search over banks: O(orders).
///
/// Errors: `SWATH_ARGUMENT`; `SWATH_NO_BLOCK` with the order; `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `banks` is null or an object of this library; `frame` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_allocate(
    banks: *mut swath_banks,
    k: u32,
    owner: u32,
    frame: *mut u64,
) -> swath_result {
    let take = || {
        if frame.is_null() {
            return fail(SWATH_NULL, 0);
        }
        let (order, mobility) = (order(k)?, mobility(owner)?);
        // SAFETY: as the caller says.
        let taken = unsafe { swath_banks::get(banks) }?.allocate(order, mobility);
        let none = swath_result::new(SWATH_NO_BLOCK, k.into());
        // SAFETY: as the caller says.
        unsafe { put(frame, taken.ok_or(none)?.raw()) }
    };
    swath_result::of(take())
}

/// Takes back 2^`order` frames from `frame` on: a block, or an aligned part of one.
///
/// Errors: `SWATH_ARGUMENT`; `SWATH_MISALIGNED` with the frame; `SWATH_FOREIGN` and
/// `SWATH_NOT_ALLOCATED` with the first such frame; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `banks` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_free(
    banks: *mut swath_banks,
    frame: u64,
    k: u32,
) -> swath_result {
    let give = || -> Outcome<()> {
        let order = order(k)?;
        // SAFETY: as the caller says.
        let banks = unsafe { swath_banks::get(banks) }?;
        Ok(banks.free(Pfn::new(frame), order)?)
    };
    swath_result::of(give())
}

/// Counts the banks; 0 for an object that is no such allocator.
///
/// # Safety
/// `banks` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_count(banks: *const swath_banks) -> usize {
    // SAFETY: as the caller says.
    unsafe { swath_banks::look(banks) }.map_or(0, AdaptiveBuddy::banks)
}

/// Free frames that are not isolated; 0 for an object that is no such allocator. O(1).
///
/// # Safety
/// `banks` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_free_count(banks: *const swath_banks) -> u64 {
    // SAFETY: as the caller says.
    unsafe { swath_banks::look(banks) }.map_or(0, ZoneAllocator::free_frames)
}

/// Writes the counts of bank `index`. O(1).
///
/// Errors: `SWATH_ARGUMENT` with the number of banks, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `banks` is null or an object of this library; `bank` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_look(
    banks: *const swath_banks,
    index: usize,
    bank: *mut swath_bank,
) -> swath_result {
    let look = || {
        // SAFETY: as the caller says.
        let banks = unsafe { swath_banks::look(banks) }?;
        let none = swath_result::new(SWATH_ARGUMENT, banks.banks() as u64);
        let state = banks.bank(index).ok_or(none)?;
        let pool = match state.pool {
            Some(BankPool::Kernel) => swath_pool::SWATH_POOL_KERNEL,
            Some(BankPool::User) => swath_pool::SWATH_POOL_USER,
            Some(BankPool::Offline) => swath_pool::SWATH_POOL_OFFLINE,
            None => swath_pool::SWATH_POOL_NONE,
        };
        let value = swath_bank {
            extent: state.extent.into(),
            total_frames: state.total_frames,
            free_frames: state.free_frames,
            pool: pool as u32,
            isolated: state.isolated.into(),
        };
        // SAFETY: as the caller says.
        unsafe { put(bank, value) }
    };
    swath_result::of(look())
}

/// Isolates bank `index`: its free frames, and those given back from now on, are
/// not handed out. With `on` 0 the isolation ends; a bank that is wholly free then is in
/// the pool of those that rest.
///
/// Errors: `SWATH_FOREIGN` if the zone has no frame there; `SWATH_STATE` if it is (or is not)
/// isolated; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `banks` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_banks_isolate(
    banks: *mut swath_banks,
    index: usize,
    on: u32,
) -> swath_result {
    let isolate = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let banks = unsafe { swath_banks::get(banks) }?;
        Ok(if on != 0 { banks.isolate_bank(index) } else { banks.rejoin_bank(index) }?)
    };
    swath_result::of(isolate())
}
