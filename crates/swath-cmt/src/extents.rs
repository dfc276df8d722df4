//! The physical extents behind a block.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use swath_arch::{BASE_PAGE_BYTES, PhysAddr};

use crate::error::{ExtentsError, PhysicalUnknown};
use crate::physical::page_map::PageMap;
use crate::process::state::begun;

/// A piece of a block that is contiguous in physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhysicalExtent {
    /// Physical address of its first byte.
    pub address: PhysAddr,
    /// Number of its bytes.
    pub len_bytes: u64,
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
