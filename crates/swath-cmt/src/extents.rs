//! The physical extents behind a block.

use core::ffi::c_void;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use swath_arch::{BASE_PAGE_BYTES, PhysAddr};

use crate::error::{ExtentsError, PhysicalUnknown};
use crate::physical::page_map::PageMap;
use crate::process::state::{Process, begun};

/// A piece of a block that is contiguous in physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhysicalExtent {
    /// Physical address of its first byte.
    pub address: PhysAddr,
    /// Number of its bytes.
    pub len_bytes: u64,
}

/// Returns the physical address behind an address of this process, and how many of the `len_bytes` bytes
/// from there on follow it in physical memory: one at least. Pages that can be written are made the
/// process's own first, with what they hold, as a write would make them.
///
/// ```
/// let number = 7_u64;
/// match swath_cmt::virt2phys(&raw const number as *const u8, 8) {
///     Ok(extent) => assert!((1..=8).contains(&extent.len_bytes)),
///     Err(swath_cmt::PhysicalUnknown) => println!("without CAP_SYS_ADMIN"),
/// }
/// ```
///
/// # Errors
/// [`PhysicalUnknown`] if there is no page at the address, or the process may not know where.
pub fn virt2phys(address: *const u8, len_bytes: usize) -> Result<PhysicalExtent, PhysicalUnknown> {
    let page = BASE_PAGE_BYTES as usize;
    let end = address.addr().checked_add(len_bytes.max(1)).ok_or(PhysicalUnknown)?;
    if let Some(extent) =
        begun().and_then(|process| held(process, address.addr(), len_bytes.max(1)))
    {
        return Ok(extent);
    }
    let from = address.addr() & !(page - 1);
    let map = PageMap::open().ok_or(PhysicalUnknown)?;
    let mut run: Option<(u64, u64)> = None;
    // Piece by piece: a run may end long before what was asked about.
    let mut at = from;
    while at < end {
        let pages = (end - at).div_ceil(page).min(512);
        // SAFETY: contents stay as they are; where nothing is mapped, or not to be written, nothing
        // happens.
        unsafe {
            let at = core::ptr::without_provenance_mut::<c_void>(at);
            libc::madvise(at, pages * page, libc::MADV_POPULATE_WRITE);
        }
        let mut ends = false;
        let read = map.frames(at, pages, &mut |frame| match (&mut run, frame) {
            _ if ends => {}
            (run @ None, Some(frame)) => *run = Some((frame, 1)),
            (Some((first, count)), Some(frame)) if *first + *count == frame => *count += 1,
            _ => ends = true,
        });
        if ends || !read {
            break;
        }
        at += pages * page;
    }
    let (frame, pages) = run.ok_or(PhysicalUnknown)?;
    let within = (address.addr() - from) as u64;
    let len = (pages * BASE_PAGE_BYTES - within).min(len_bytes.max(1) as u64);
    Ok(PhysicalExtent { address: PhysAddr::new(frame * BASE_PAGE_BYTES + within), len_bytes: len })
}

/// Returns where so many bytes of a dma-heap's memory lie, or the first of them that are one extent.
fn held(process: &Process, address: usize, len_bytes: usize) -> Option<PhysicalExtent> {
    let (physical, left) = process.pool.with_source(|source| source.held(address))?;
    Some(PhysicalExtent { address: physical, len_bytes: left.min(len_bytes as u64) })
}

/// Visits the physical extents behind the bytes `range` of a block, in order, as a scatter list
/// needs them. Pages that were never touched are touched first (with what they hold). O(pages).
///
/// The frames are those of now: memory that is not of the hugetlb pools may be moved by the kernel
/// unless it is locked or pinned.
///
/// ```
/// use swath_cmt::{ExtentsError, PhysicalUnknown};
///
/// let block = swath_cmt::allocate(4 << 20)?;
/// let mut len_bytes = 0;
/// // SAFETY: the block is in use.
/// match unsafe { swath_cmt::extents(block, 0..4 << 20, |extent| len_bytes += extent.len_bytes) } {
///     Ok(()) => assert_eq!(len_bytes, 4 << 20),
///     Err(error) => assert_eq!(error, ExtentsError::Unknown(PhysicalUnknown)),
/// }
/// // SAFETY: it is in use, and not used after.
/// unsafe { swath_cmt::free(block) };
/// # Ok::<(), swath_cmt::OutOfMemory>(())
/// ```
///
/// # Errors
/// An [`ExtentsError`]; some extents may have been visited if physical addresses become unknown
/// meanwhile.
///
/// # Safety
/// The block is in use, unless it is none of this crate.
pub unsafe fn extents(
    block: NonNull<u8>,
    range: Range<usize>,
    mut visit: impl FnMut(PhysicalExtent),
) -> Result<(), ExtentsError> {
    if range.is_empty() {
        return Err(ExtentsError::Empty);
    }
    let foreign = ExtentsError::Foreign { address: block.addr().get() };
    let process = begun().ok_or(foreign)?;
    let usable_bytes = process.usable_size(block).map_err(|_| foreign)?;
    if range.end > usable_bytes {
        return Err(ExtentsError::Outside { usable_bytes });
    }
    // A block of the reserve lies in one extent of it.
    if let Some(extent) = held(process, block.addr().get() + range.start, range.len()) {
        visit(extent);
        return Ok(());
    }
    if !process.physical {
        return Err(PhysicalUnknown.into());
    }
    let first = block.as_ptr().wrapping_add(range.start);
    let address = first.addr();
    let page = BASE_PAGE_BYTES as usize;
    let (from, end) = (address & !(page - 1), address + range.len());
    for at in (from..end).step_by(page).map(|at| at.max(address)) {
        // SAFETY: a byte of the block; it is written as it is, by one instruction.
        unsafe {
            let byte = first.wrapping_add(at - address);
            (*byte.cast::<AtomicU8>()).fetch_add(0, Relaxed);
        }
    }
    let map = PageMap::open().ok_or(PhysicalUnknown)?;
    // Neighbours are joined: an extent is visited when the next one does not follow it.
    let mut open: Option<Range<u64>> = None;
    let mut known = true;
    let mut close = |extent: Range<u64>| {
        visit(PhysicalExtent {
            address: PhysAddr::new(extent.start),
            len_bytes: extent.end - extent.start,
        });
    };
    let mut at = from;
    let read = map.frames(from, (end - from).div_ceil(page), &mut |frame| {
        let Some(frame) = frame else {
            known = false;
            return;
        };
        let (low, high) = (at.max(address), (at + page).min(end));
        let start = frame * BASE_PAGE_BYTES + (low - at) as u64;
        let piece = start..start + (high - low) as u64;
        match &mut open {
            Some(extent) if extent.end == piece.start => extent.end = piece.end,
            open => {
                if let Some(extent) = open.replace(piece) {
                    close(extent);
                }
            }
        }
        at += page;
    });
    if !read || !known {
        return Err(PhysicalUnknown.into());
    }
    if let Some(extent) = open {
        close(extent);
    }
    Ok(())
}
