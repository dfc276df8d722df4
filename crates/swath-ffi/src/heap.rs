//! Byte heaps with constant bounds: TLSF and half-fit.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::{self, NonNull};

use ::swath_heap::{
    AllocateBytesError, ByteAllocator, FreeBytesError, HalfFit, HeapPoolError, PageSource, PoolId,
    ResizeBytesError, SourceError, Tlsf,
};

use crate::object::{Opaque, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// A heap of bytes.
pub struct swath_heap {
    _private: [u8; 0],
}

impl Opaque for swath_heap {
    type Inner = AnyHeap;
    const TAG: u64 = u64::from_le_bytes(*b"swathhep");
}

/// Policy by which a heap chooses blocks.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_fit {
    /// 32 classes in each power of two: little is lost by rounding.
    SWATH_TLSF = 0,
    /// Powers of two: fewer instructions, up to half of a block lost.
    SWATH_HALF_FIT = 1,
}

/// Source of pages for a heap. All ranges are whole pages of one pool.
/// From `commit` until `release` a page can be read and written, and only the heap and its
/// users touch it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct swath_page_source {
    /// Makes a range usable; 0 if that was done, and none of it otherwise.
    pub commit:
        Option<unsafe extern "C" fn(context: *mut c_void, start: *mut c_void, len: usize) -> i32>,
    /// Releases a range.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void, start: *mut c_void, len: usize)>,
    /// Returns 1 if the page of an address is committed, else 0.
    pub is_committed:
        Option<unsafe extern "C" fn(context: *mut c_void, address: *const c_void) -> i32>,
    /// Argument of the functions.
    pub context: *mut c_void,
    /// Bytes of a page, a power of two of at least 64.
    pub page_bytes: usize,
}

/// A source of which all functions are there.
pub(crate) struct Pages {
    commit: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> i32,
    release: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
    is_committed: unsafe extern "C" fn(*mut c_void, *const c_void) -> i32,
    context: *mut c_void,
    page_bytes: usize,
}

// SAFETY: whoever made the source promised what `PageSource` asks for.
unsafe impl PageSource for Pages {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        // SAFETY: the context is the function's own.
        let failed = unsafe { (self.commit)(self.context, start.as_ptr().cast(), len_bytes) };
        let error = SourceError { address: start.addr().get(), len_bytes };
        if failed == 0 { Ok(()) } else { Err(error) }
    }

    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        // SAFETY: the context is the function's own.
        unsafe { (self.release)(self.context, start.as_ptr().cast(), len_bytes) };
    }

    fn is_committed(&self, address: usize) -> bool {
        // SAFETY: the context is the function's own; the address is not followed.
        unsafe { (self.is_committed)(self.context, ptr::without_provenance(address)) != 0 }
    }
}

/// The heaps that C can have.
pub(crate) enum AnyHeap {
    Tlsf(Tlsf<'static>),
    HalfFit(HalfFit<'static>),
    TlsfOver(Tlsf<'static, Pages>),
    HalfFitOver(HalfFit<'static, Pages>),
}

/// Does the same to any.
macro_rules! any {
    ($heap:expr, $it:ident => $does:expr) => {
        match $heap {
            AnyHeap::Tlsf($it) => $does,
            AnyHeap::HalfFit($it) => $does,
            AnyHeap::TlsfOver($it) => $does,
            AnyHeap::HalfFitOver($it) => $does,
        }
    };
}

impl From<AllocateBytesError> for swath_result {
    fn from(error: AllocateBytesError) -> Self {
        match error {
            AllocateBytesError::TooLarge { size_bytes, .. } => {
                Self::new(SWATH_TOO_LARGE, size_bytes as u64)
            }
            AllocateBytesError::OutOfMemory { largest_bytes, .. } => {
                Self::new(SWATH_OUT_OF_MEMORY, largest_bytes as u64)
            }
            AllocateBytesError::Source(error) => {
                Self::new(SWATH_OUT_OF_FRAMES, error.address as u64)
            }
            AllocateBytesError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.address as u64),
        }
    }
}

impl From<FreeBytesError> for swath_result {
    fn from(error: FreeBytesError) -> Self {
        match error {
            FreeBytesError::Misaligned { address } => Self::new(SWATH_MISALIGNED, address as u64),
            FreeBytesError::Foreign { address } => Self::new(SWATH_FOREIGN, address as u64),
            FreeBytesError::NotAllocated { address } => {
                Self::new(SWATH_NOT_ALLOCATED, address as u64)
            }
            FreeBytesError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.address as u64),
        }
    }
}

impl From<ResizeBytesError> for swath_result {
    fn from(error: ResizeBytesError) -> Self {
        match error {
            ResizeBytesError::Free(error) => error.into(),
            ResizeBytesError::Allocate(error) => error.into(),
        }
    }
}

impl From<HeapPoolError> for swath_result {
    fn from(error: HeapPoolError) -> Self {
        match error {
            HeapPoolError::TooShort { min_bytes, .. } => Self::new(SWATH_STORAGE, min_bytes as u64),
            HeapPoolError::TooLong { max_bytes, .. } => {
                Self::new(SWATH_TOO_LARGE, max_bytes as u64)
            }
            HeapPoolError::NotPages { address, .. } => Self::new(SWATH_MISALIGNED, address as u64),
            HeapPoolError::Overlaps { address } => Self::new(SWATH_OVERLAP, address as u64),
            HeapPoolError::Source(error) => Self::new(SWATH_OUT_OF_FRAMES, error.address as u64),
            HeapPoolError::Unknown { address } => Self::new(SWATH_FOREIGN, address as u64),
            HeapPoolError::InUse { address } => Self::new(SWATH_IN_USE, address as u64),
            HeapPoolError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.address as u64),
        }
    }
}

fn layout(size_bytes: usize, align_bytes: usize) -> Outcome<Layout> {
    if !align_bytes.is_power_of_two() {
        return fail(SWATH_ARGUMENT, align_bytes as u64);
    }
    let too_large = swath_result::new(SWATH_TOO_LARGE, size_bytes as u64);
    Layout::from_size_align(size_bytes, align_bytes).map_err(|_| too_large)
}

fn pointer(at: *mut c_void) -> Outcome<NonNull<u8>> {
    NonNull::new(at.cast()).ok_or(swath_result::new(SWATH_NULL, 0))
}

/// Bytes of storage for a heap, its pools not included.
#[unsafe(no_mangle)]
pub extern "C" fn swath_heap_storage_bytes() -> usize {
    swath_heap::storage_bytes(0)
}

/// Makes a heap without memory, of a `swath_fit`. With a `source` pages that lie wholly
/// inside a free block go back to it at once. `key` seals headers: a number that users
/// cannot guess, if they are not trusted.
///
/// Errors: `SWATH_ARGUMENT`, `SWATH_STORAGE`, `SWATH_NULL` also for a source's function.
///
/// # Safety
/// `source` is null or can be read, and keeps what a `swath_page_source` promises. `storage` is
/// `len_bytes` of memory that the heap has for itself from now on; `heap` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_create(
    fit: u32,
    source: *const swath_page_source,
    key: usize,
    storage: *mut c_void,
    len_bytes: usize,
    heap: *mut *mut swath_heap,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let source = match unsafe { source.as_ref() } {
            None => None,
            Some(source) => {
                let null = swath_result::new(SWATH_NULL, 0);
                let page_bytes = source.page_bytes;
                if !page_bytes.is_power_of_two() || page_bytes < 64 {
                    return fail(SWATH_ARGUMENT, page_bytes as u64);
                }
                Some(Pages {
                    commit: source.commit.ok_or(null)?,
                    release: source.release.ok_or(null)?,
                    is_committed: source.is_committed.ok_or(null)?,
                    context: source.context,
                    page_bytes,
                })
            }
        };
        let made = match (fit, source) {
            (0, None) => AnyHeap::Tlsf(Tlsf::over(::swath_heap::Resident, key)),
            (1, None) => AnyHeap::HalfFit(HalfFit::over(::swath_heap::Resident, key)),
            (0, Some(source)) => AnyHeap::TlsfOver(Tlsf::over(source, key)),
            (1, Some(source)) => AnyHeap::HalfFitOver(HalfFit::over(source, key)),
            (other, _) => return fail(SWATH_ARGUMENT, other.into()),
        };
        // SAFETY: as the caller says.
        unsafe { swath_heap::create(storage, len_bytes, 0, heap, |_| Ok(made)) }
    };
    swath_result::of(create())
}

/// Lends memory to the heap; with a source, whole pages of which none is committed. O(p) for p
/// pools.
///
/// Errors: `SWATH_STORAGE` with the least bytes; `SWATH_TOO_LARGE` with the most;
/// `SWATH_MISALIGNED`, `SWATH_OVERLAP`; `SWATH_OUT_OF_FRAMES` if the source has none;
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `heap` is null or an object of this library; `memory` is `len_bytes` that only the heap
/// uses until the pool is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_add_pool(
    heap: *mut swath_heap,
    memory: *mut c_void,
    len_bytes: usize,
) -> swath_result {
    let add = || -> Outcome<PoolId> {
        // SAFETY: as the caller says.
        let heap = unsafe { swath_heap::get(heap) }?;
        let start = pointer(memory)?;
        // SAFETY: as the caller says.
        Ok(unsafe { any!(heap, heap => heap.add_pool_at(start, len_bytes)) }?)
    };
    swath_result::of(add().map(drop))
}

/// Bytes for a block, aligned to `align_bytes`, a power of two; not initialised. Constant time
/// for the usual alignment of two words.
///
/// Errors: `SWATH_ARGUMENT` for the alignment; `SWATH_TOO_LARGE` with the size;
/// `SWATH_OUT_OF_MEMORY` with the largest request that would be served;
/// `SWATH_OUT_OF_FRAMES` if the source has none; `SWATH_CORRUPT`; `SWATH_NULL`,
/// `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `heap` is null or an object of this library; `block` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_allocate(
    heap: *mut swath_heap,
    size_bytes: usize,
    align_bytes: usize,
    block: *mut *mut c_void,
) -> swath_result {
    let allocate = || {
        if block.is_null() {
            return fail(SWATH_NULL, 0);
        }
        let layout = layout(size_bytes, align_bytes)?;
        // SAFETY: as the caller says.
        let heap = unsafe { swath_heap::get(heap) }?;
        let taken = any!(heap, heap => heap.allocate(layout))?;
        // SAFETY: as the caller says.
        unsafe { put(block, taken.as_ptr().cast()) }
    };
    swath_result::of(allocate())
}

/// Takes a block back. Constant time.
///
/// Errors: `SWATH_MISALIGNED`, `SWATH_FOREIGN`, `SWATH_NOT_ALLOCATED` with the address;
/// `SWATH_CORRUPT` with the header's; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `heap` is null or an object of this library; `block` is null or came from this heap and is
/// not used any more. Other pointers are found as far as headers can tell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_free(
    heap: *mut swath_heap,
    block: *mut c_void,
) -> swath_result {
    let free = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let heap = unsafe { swath_heap::get(heap) }?;
        let block = pointer(block)?;
        // SAFETY: as the caller says.
        Ok(unsafe { any!(heap, heap => heap.free(block)) }?)
    };
    swath_result::of(free())
}

/// Makes the block at `*block` serve `size_bytes`; it keeps its place if it can, else `*block`
/// changes. The bytes up to the lesser size are kept.
///
/// Errors: as for `swath_heap_allocate` and `swath_heap_free`; the block is as before.
///
/// # Safety
/// As for `swath_heap_free`; `block` can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_resize(
    heap: *mut swath_heap,
    size_bytes: usize,
    align_bytes: usize,
    block: *mut *mut c_void,
) -> swath_result {
    let resize = || {
        let layout = layout(size_bytes, align_bytes)?;
        // SAFETY: as the caller says.
        let heap = unsafe { swath_heap::get(heap) }?;
        let Some(old) = NonNull::new(block) else { return fail(SWATH_NULL, 0) };
        // SAFETY: as the caller says.
        let old = pointer(unsafe { old.read() })?;
        // SAFETY: as the caller says.
        let new = unsafe { any!(heap, heap => heap.resize(old, layout)) }?;
        // SAFETY: as the caller says.
        unsafe { put(block, new.as_ptr().cast()) }
    };
    swath_result::of(resize())
}

/// Bytes that may be used of a block: as many as were asked for or more; 0 for a pointer that
/// is recognised as wrong.
///
/// # Safety
/// As for `swath_heap_free`, but the block goes on being used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_usable_bytes(
    heap: *const swath_heap,
    block: *mut c_void,
) -> usize {
    // SAFETY: as the caller says.
    let (Ok(heap), Ok(block)) = (unsafe { swath_heap::look(heap) }, pointer(block)) else {
        return 0;
    };
    // SAFETY: as the caller says.
    unsafe { any!(heap, heap => heap.usable_bytes(block)) }.unwrap_or(0)
}

/// Bytes of the largest request, usually aligned, that would be served now; 0 if none would be,
/// or for an object that is no heap. Constant time.
///
/// # Safety
/// `heap` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_largest_bytes(heap: *const swath_heap) -> usize {
    // SAFETY: as the caller says.
    let heap = unsafe { swath_heap::look(heap) };
    heap.map_or(0, |heap| any!(heap, heap => heap.largest_bytes()).unwrap_or(0))
}

/// Checks every invariant of the heap, in time that grows with the number of blocks.
///
/// Errors: `SWATH_CORRUPT` with where; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `heap` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_heap_check(heap: *const swath_heap) -> swath_result {
    // SAFETY: as the caller says.
    let checked = unsafe { swath_heap::look(heap) }.and_then(|heap| {
        let fault =
            |fault: ::swath_heap::HeapFault| swath_result::new(SWATH_CORRUPT, fault.address as u64);
        any!(heap, heap => heap.check()).map_err(fault)
    });
    swath_result::of(checked)
}
