//! Virtual memory with constant bounds: spaces of regions over a pool of frames.

use core::ffi::c_void;
use core::slice;

use swath_arch::{BusError, PageRange, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn, validity};
use swath_region::{
    DenseTree, FramePool, FramePoolError, NewRegionsError, Quota, QuotaError, RegionError,
    RegionSpace, RegionTree, Rights, TreeError, dense_tree_words,
};

use crate::map::swath_extent;
use crate::object::{Opaque, Words, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// Frames that spaces share.
pub struct swath_frame_pool {
    _private: [u8; 0],
}

impl Opaque for swath_frame_pool {
    type Inner = FramePool<'static>;
    const TAG: u64 = u64::from_le_bytes(*b"swathfpl");
}

/// A virtual address space of regions.
pub struct swath_regions {
    _private: [u8; 0],
}

type Space = RegionSpace<'static, SliceMemory<'static>, Tree, Words>;

impl Opaque for swath_regions {
    type Inner = Space;
    const TAG: u64 = u64::from_le_bytes(*b"swathrgn");
}

/// Trees of all sizes that a space can have: the length is in the type, so that no
/// access has to be checked.
macro_rules! trees {
    ($($name:ident $k:literal)*) => {
        #[derive(Debug)]
        pub(crate) enum Tree {
            $($name(DenseTree<$k, { dense_tree_words($k) }, &'static mut [u64; dense_tree_words($k)]>),)*
        }

        /// Words of a tree over 2^`pages_log2` pages.
        fn tree_words(pages_log2: u32) -> Outcome<usize> {
            match pages_log2 {
                $($k => Ok(const { dense_tree_words($k) }),)*
                other => fail(SWATH_ARGUMENT, other.into()),
            }
        }

        impl Tree {
            /// A tree in the first of `words`.
            fn new(pages_log2: u32, words: Words) -> Outcome<(Self, Words)> {
                match pages_log2 {
                    $($k => match words.split_first_chunk_mut() {
                        Some((own, rest)) => Ok((Self::$name(DenseTree::new(own)), rest)),
                        None => fail(SWATH_STORAGE, 0),
                    },)*
                    other => fail(SWATH_ARGUMENT, other.into()),
                }
            }
        }

        impl RegionTree for Tree {
            #[inline]
            fn pages(&self) -> u64 {
                match self { $(Self::$name(tree) => tree.pages(),)* }
            }

            #[inline]
            fn split(&mut self, at: Vpn) -> Result<(), TreeError> {
                match self { $(Self::$name(tree) => tree.split(at),)* }
            }

            #[inline]
            fn union(&mut self, at: Vpn) -> Result<(), TreeError> {
                match self { $(Self::$name(tree) => tree.union(at),)* }
            }

            #[inline]
            fn find(&self, page: Vpn) -> Option<Vpn> {
                match self { $(Self::$name(tree) => tree.find(page),)* }
            }

            #[inline]
            fn next(&self, page: Vpn) -> Option<Vpn> {
                match self { $(Self::$name(tree) => tree.next(page),)* }
            }

            fn check(&self) -> bool {
                match self { $(Self::$name(tree) => tree.check(),)* }
            }
        }
    };
}

trees! {
    K5 5 K6 6 K7 7 K8 8 K9 9 K10 10 K11 11 K12 12 K13 13 K14 14 K15 15 K16 16 K17 17 K18 18
    K19 19 K20 20 K21 21 K22 22 K23 23 K24 24 K25 25 K26 26 K27 27 K28 28
}

/// Physical memory that the processor reaches at another address.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_memory {
    /// The number of its first frame.
    pub first_frame: u64,
    /// Address at which it begins for the processor, a multiple of 8.
    pub bytes: *mut c_void,
    /// Number of bytes, a multiple of 8.
    pub len_bytes: usize,
}

/// Physical addresses of the arrays of a space, multiples of 4. Each is
/// 4·2^`pages_log2` bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_validity_tables {
    /// k: the space has 2^k pages, k from 5 to 28.
    pub pages_log2: u32,
    /// d: frames and rights.
    pub data: u64,
    /// h: places in the stacks.
    pub helper: u64,
    /// s: the stacks.
    pub stack: u64,
    /// sp: where the stacks end.
    pub stack_end: u64,
    /// c: the virtual regions cache.
    pub regions: u64,
}

/// Numbers of frames that a space is sure to get, and that it never exceeds.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_quota {
    /// Frames that the pool keeps for the space.
    pub guaranteed: u32,
    /// Frames that it will never exceed; not less.
    pub limit: u32,
}

/// Description of a region that was unmapped.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_unmapped {
    /// Its first page.
    pub first_page: u64,
    /// Its pages: a TLB must forget them before they are mapped again.
    pub pages: u64,
    /// Frames that went back to the pool.
    pub frames: u32,
}

/// The page may be read.
pub const SWATH_READ: u32 = 1;
/// The page may be written.
pub const SWATH_WRITE: u32 = 2;
/// The page may be executed.
pub const SWATH_EXECUTE: u32 = 4;

const _: () = assert!(
    validity::READ.mask() == SWATH_READ as u64
        && validity::WRITE.mask() == SWATH_WRITE as u64
        && validity::EXECUTE.mask() == SWATH_EXECUTE as u64
);

fn rights(bits: u32) -> Outcome<Rights> {
    if bits > 7 {
        return fail(SWATH_ARGUMENT, bits.into());
    }
    let all = [
        (SWATH_READ, Rights::READ),
        (SWATH_WRITE, Rights::WRITE),
        (SWATH_EXECUTE, Rights::EXECUTE),
    ];
    let chosen = all.into_iter().filter(|(bit, _)| bits & bit != 0);
    Ok(chosen.fold(Rights::NONE, |sum, (_, right)| sum | right))
}

fn bits(rights: Rights) -> u32 {
    let all = [
        (SWATH_READ, Rights::READ),
        (SWATH_WRITE, Rights::WRITE),
        (SWATH_EXECUTE, Rights::EXECUTE),
    ];
    all.into_iter().filter(|(_, right)| rights.contain(*right)).map(|(bit, _)| bit).sum()
}

impl From<BusError> for swath_result {
    fn from(error: BusError) -> Self {
        Self::new(SWATH_BUS, error.addr.raw())
    }
}

impl From<QuotaError> for swath_result {
    fn from(error: QuotaError) -> Self {
        match error {
            QuotaError::AboveLimit { quota } => Self::new(SWATH_QUOTA, quota.limit.into()),
            QuotaError::InUse { used, .. } => Self::new(SWATH_QUOTA, used.into()),
            QuotaError::TooFew { available, .. } => {
                Self::new(SWATH_OUT_OF_FRAMES, available.into())
            }
        }
    }
}

impl From<FramePoolError> for swath_result {
    fn from(error: FramePoolError) -> Self {
        match error {
            FramePoolError::FrameOutOfReach { end_max, .. } => {
                Self::new(SWATH_ARGUMENT, end_max.raw())
            }
            FramePoolError::Short { needed, .. } => {
                Self::new(SWATH_STORAGE, needed.saturating_mul(4))
            }
        }
    }
}

impl From<NewRegionsError> for swath_result {
    fn from(error: NewRegionsError) -> Self {
        match error {
            NewRegionsError::Pages { tables_log2, .. } => {
                Self::new(SWATH_ARGUMENT, tables_log2.into())
            }
            NewRegionsError::TreeInUse { start } => Self::new(SWATH_STATE, start.raw()),
            NewRegionsError::Base { base } => Self::new(SWATH_MISALIGNED, base.raw()),
            NewRegionsError::Overlap { base, .. } => Self::new(SWATH_OVERLAP, base.raw()),
            NewRegionsError::Headers { needed, .. } => {
                Self::new(SWATH_STORAGE, needed.saturating_mul(8))
            }
            NewRegionsError::Quota(error) => error.into(),
            NewRegionsError::Bus(error) => error.into(),
        }
    }
}

impl From<RegionError> for swath_result {
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::Empty { .. } => Self::new(SWATH_EMPTY, 0),
            RegionError::OutOfRange { page } => Self::new(SWATH_FOREIGN, page.raw()),
            RegionError::Overlap { start, .. } => Self::new(SWATH_OVERLAP, start.raw()),
            RegionError::NoRegion { page } | RegionError::NotStart { page, .. } => {
                Self::new(SWATH_NO_REGION, page.raw())
            }
            RegionError::IsStart { page } => Self::new(SWATH_STATE, page.raw()),
            RegionError::NoNeighbour { start } => Self::new(SWATH_NO_REGION, start.raw()),
            RegionError::Denied { page, .. } => Self::new(SWATH_DENIED, page.raw()),
            RegionError::Mapped { page } | RegionError::AlreadyMapped { page } => {
                Self::new(SWATH_MAPPED, page.raw())
            }
            RegionError::LimitReached { limit } => Self::new(SWATH_QUOTA, limit.into()),
            RegionError::OutOfFrames => Self::new(SWATH_OUT_OF_FRAMES, 0),
            // A dense tree is never full, and the space asks it for nothing else that it refuses.
            RegionError::Tree(_) => Self::new(SWATH_CORRUPT, 0),
            RegionError::Bus(error) => error.into(),
        }
    }
}

fn link_words(frames: u64) -> usize {
    usize::try_from(frames.div_ceil(2)).unwrap_or(usize::MAX)
}

/// Bytes of storage for a pool of `frames` frames.
#[unsafe(no_mangle)]
pub extern "C" fn swath_frame_pool_storage_bytes(frames: u64) -> usize {
    swath_frame_pool::storage_bytes(link_words(frames))
}

/// Makes a pool of frames, all free.
///
/// Errors: `SWATH_ARGUMENT` with the first frame number that is too large; `SWATH_STORAGE`,
/// `SWATH_NULL`.
///
/// # Safety
/// `storage` is `len_bytes` of memory that the pool has for itself from now on; `pool` can be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frame_pool_create(
    frames: swath_extent,
    storage: *mut c_void,
    len_bytes: usize,
    pool: *mut *mut swath_frame_pool,
) -> swath_result {
    let make = |words: Words| -> Outcome<_> {
        let count = words.len() * 2;
        // SAFETY: a word is two halves, which may hold anything.
        let links = unsafe { slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u32>(), count) };
        Ok(FramePool::new(frames.into(), links)?)
    };
    // SAFETY: as the caller says.
    swath_result::of(unsafe {
        swath_frame_pool::create(storage, len_bytes, link_words(frames.count), pool, make)
    })
}

/// Frames that no space has; 0 for an object that is no pool.
///
/// # Safety
/// `pool` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_frame_pool_free_count(pool: *const swath_frame_pool) -> u32 {
    // SAFETY: as the caller says.
    unsafe { swath_frame_pool::look(pool) }.map_or(0, FramePool::free_frames)
}

fn space_words(pages_log2: u32) -> Outcome<usize> {
    Ok(tree_words(pages_log2)? + Space::header_words(pages_log2) as usize)
}

/// Bytes of storage for a space of 2^`pages_log2` pages, 5 to 28; 0 for another. The arrays
/// of the `swath_validity_tables` lie elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn swath_regions_storage_bytes(pages_log2: u32) -> usize {
    space_words(pages_log2).map_or(0, swath_regions::storage_bytes)
}

/// Makes a space without regions. Nothing but one array is initialised.
///
/// Errors: `SWATH_ARGUMENT`, `SWATH_MISALIGNED` or `SWATH_OVERLAP` for wrong tables, with the
/// base; `SWATH_BUS` with the address where memory ends; `SWATH_QUOTA`, `SWATH_OUT_OF_FRAMES`
/// for a quota that the pool cannot give; `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `pool` is null or an object of this library, and stays as long as the space is used, in the same
/// thread. `memory` is memory for reading and writing, nobody but hardware uses its tables.
/// `storage` is `len_bytes` of memory that the space has for itself from now on; `regions`
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_regions_create(
    memory: swath_memory,
    tables: swath_validity_tables,
    pool: *mut swath_frame_pool,
    quota: swath_quota,
    storage: *mut c_void,
    len_bytes: usize,
    regions: *mut *mut swath_regions,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let pool = unsafe { swath_frame_pool::look(pool) }?;
        let words = space_words(tables.pages_log2)?;
        let base = memory.bytes.cast::<u64>();
        if base.is_null() {
            return fail(SWATH_NULL, 0);
        }
        if !base.is_aligned() || !memory.len_bytes.is_multiple_of(8) {
            return fail(SWATH_MISALIGNED, base.addr() as u64);
        }
        // SAFETY: aligned, not null, and memory as the caller says.
        let bytes = unsafe { slice::from_raw_parts_mut(base, memory.len_bytes / 8) };
        // SAFETY: as the caller says.
        unsafe {
            swath_regions::create(storage, len_bytes, words, regions, |words| {
                let (tree, headers) = Tree::new(tables.pages_log2, words)?;
                let memory = SliceMemory::new(Pfn::new(memory.first_frame), bytes);
                let tables = ValidityTables {
                    pages_log2: tables.pages_log2,
                    data: PhysAddr::new(tables.data),
                    helper: PhysAddr::new(tables.helper),
                    stack: PhysAddr::new(tables.stack),
                    stack_end: PhysAddr::new(tables.stack_end),
                    regions: PhysAddr::new(tables.regions),
                };
                let swath_quota { guaranteed, limit } = quota;
                let quota = Quota { guaranteed, limit };
                Ok(RegionSpace::new(memory, tables, tree, headers, pool, quota)?)
            })
        }
    };
    swath_result::of(create())
}

/// Makes free pages a region (mapVRH). No page of it is mapped. Constant time.
///
/// Errors: `SWATH_EMPTY`; `SWATH_FOREIGN` beyond the space; `SWATH_OVERLAP` with the page
/// where what is not free begins; `SWATH_ARGUMENT` for rights; `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `regions` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_regions_map(
    regions: *mut swath_regions,
    first_page: u64,
    pages: u64,
    access: u32,
) -> swath_result {
    let map = || -> Outcome<()> {
        let range = PageRange::new(Vpn::new(first_page), pages);
        // SAFETY: as the caller says.
        Ok(unsafe { swath_regions::get(regions) }?.map_region(range, rights(access)?)?)
    };
    swath_result::of(map())
}

/// Gives a page of a region a frame (mapPage): what the handler of a page fault does. Constant
/// time.
///
/// Errors: `SWATH_NO_REGION`, `SWATH_DENIED`, `SWATH_MAPPED` with the page; `SWATH_QUOTA`
/// with the limit; `SWATH_OUT_OF_FRAMES`; `SWATH_FOREIGN`, `SWATH_ARGUMENT`, `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `regions` is null or an object of this library; `frame` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_regions_fault(
    regions: *mut swath_regions,
    page: u64,
    access: u32,
    frame: *mut u64,
) -> swath_result {
    let fault = || {
        if frame.is_null() {
            return fail(SWATH_NULL, 0);
        }
        let access = rights(access)?;
        // SAFETY: as the caller says.
        let space = unsafe { swath_regions::get(regions) }?;
        let mapped = space.map_page(Vpn::new(page), access)?;
        // SAFETY: as the caller says.
        unsafe { put(frame, mapped.raw()) }
    };
    swath_result::of(fault())
}

/// Ends the region that starts at `first_page` (unmapRegion), whatever its size, in constant
/// time; all its frames go back to the pool.
///
/// Errors: `SWATH_NO_REGION` if none starts there; `SWATH_FOREIGN`, `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `regions` is null or an object of this library; `unmapped` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_regions_unmap(
    regions: *mut swath_regions,
    first_page: u64,
    unmapped: *mut swath_unmapped,
) -> swath_result {
    let unmap = || {
        if unmapped.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let region = unsafe { swath_regions::get(regions) }?.unmap_region(Vpn::new(first_page))?;
        let value = swath_unmapped {
            first_page: region.pages.start.raw(),
            pages: region.pages.count,
            frames: region.frames,
        };
        // SAFETY: as the caller says.
        unsafe { put(unmapped, value) }
    };
    swath_result::of(unmap())
}

/// The frame of a page and the rights to it.
///
/// Errors: `SWATH_NO_REGION` if the page is not mapped; `SWATH_FOREIGN`, `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `regions` is null or an object of this library; `frame` and `access` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_regions_translate(
    regions: *const swath_regions,
    page: u64,
    frame: *mut u64,
    access: *mut u32,
) -> swath_result {
    let translate = || {
        // SAFETY: as the caller says.
        let found = unsafe { swath_regions::look(regions) }?.translate(Vpn::new(page))?;
        let Some((at, rights)) = found else { return fail(SWATH_NO_REGION, page) };
        // SAFETY: as the caller says.
        unsafe { put(frame, at.raw()).and_then(|()| put(access, bits(rights))) }
    };
    swath_result::of(translate())
}
