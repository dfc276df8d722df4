//! Blocks that are one run of physical memory, or none at all.

use core::ptr::NonNull;

use swath_arch::BASE_PAGE_BYTES;
use swath_pool::{Placement, UNIT_BYTES};

use crate::allocate::free;
use crate::error::{ContiguousError, OutOfMemory};
use crate::physical::page_map::PageMap;
use crate::process::begin::process;
use crate::process::own::with_thread;
use crate::process::state::Process;
use crate::reserve::grow::grow_to;
use crate::source::mapping::touch;

/// Runs that are tried before it is said that there is none: of one whose pages the kernel has moved, or
/// that a fork's child shares, addresses are still a run and frames are not.
const TRIES: usize = 8;

/// Allocates `size` bytes that are one run of physical memory where `placement` admits it. It comes from
/// the reserve, which grows if it has no such run.
///
/// Where physical addresses are known, the block's frames are read back before it is returned. Where
/// they are not, it lies as in [simulated](crate::ReserveExtent::physical) frames.
///
/// The frames are those of now: the kernel may move them, unless they are of a dma-heap or of the hugetlb pools,
/// or [pinned](crate::pin).
///
/// ```
/// use swath_cmt::{Placement, PhysicalUnknown};
///
/// let aligned = Placement { align_bytes: 1 << 20, ..Placement::ANY };
/// let block = match swath_cmt::allocate_contiguous(3 << 20, aligned) {
///     Ok(block) => block,
///     Err(error) => return println!("memory lies in pieces: {error}"),
/// };
/// match swath_cmt::virt2phys(block.as_ptr(), 3 << 20) {
///     Ok(extent) => assert_eq!((extent.len_bytes, extent.address.raw() % (1 << 20)), (3 << 20, 0)),
///     Err(PhysicalUnknown) => println!("without CAP_SYS_ADMIN"),
/// }
/// // SAFETY: it is in use, and not used after.
/// unsafe { swath_cmt::free(block) };
/// ```
///
/// # Errors
/// A [`ContiguousError`]; nothing has changed, but the reserve may be longer.
pub fn allocate_contiguous(
    size: usize,
    placement: Placement,
) -> Result<NonNull<u8>, ContiguousError> {
    let Placement { align_bytes, boundary_bytes, .. } = placement;
    let powers = [Some(align_bytes), boundary_bytes];
    if let Some(value) = powers.into_iter().flatten().find(|value| !value.is_power_of_two()) {
        return Err(ContiguousError::NoPowerOfTwo { value });
    }
    if boundary_bytes.is_some_and(|boundary| boundary < size as u64) {
        return Err(OutOfMemory.into());
    }
    let process = process()?;
    // Blocks begin with units, so what is no longer than a shorter boundary crosses none.
    let boundary_bytes = boundary_bytes.filter(|&boundary| boundary > UNIT_BYTES as u64);
    let inner = Placement { boundary_bytes, ..placement };
    let try_all = || find(process, size, &inner);
    if let Some(block) = try_all() {
        return Ok(block);
    }
    // A run that is so much longer than the block has a place at a multiple of its alignment, between
    // boundaries, and beside the borders with other extents.
    let bounded = if inner.boundary_bytes.is_some() { size as u64 } else { 0 };
    let room = align_bytes.max(bounded).checked_add(2 * UNIT_BYTES as u64).ok_or(OutOfMemory)?;
    let run = room.checked_add(size as u64).ok_or(OutOfMemory)?;
    let longest = process.pool.with_source(|source| source.reserve_longest()) * BASE_PAGE_BYTES;
    // With such a run it is the limit that no place lies below, or pages have moved.
    if longest >= run || !grow_to(process, run, process.options.reserve_bytes / 4) {
        return Err(OutOfMemory.into());
    }
    Ok(try_all().ok_or(OutOfMemory)?)
}

/// Allocates from the reserve as it is.
fn find(process: &Process, size: usize, placement: &Placement) -> Option<NonNull<u8>> {
    let mut broken = [None; TRIES];
    let mut found = None;
    for place in &mut broken {
        let allocated = with_thread(|thread| thread.allocate_placed(size, placement));
        let Some(Some(block)) = allocated else { break };
        if !process.physical || lies_in(process, block, size, placement) {
            found = Some(block);
            break;
        }
        *place = Some(block);
    }
    for block in broken.into_iter().flatten() {
        // SAFETY: a block in use that nobody has.
        unsafe { free(block) };
    }
    found
}

/// Returns true if a block's frames are one run where `placement` admits it.
fn lies_in(process: &Process, block: NonNull<u8>, size: usize, placement: &Placement) -> bool {
    // Such frames do not move.
    if process.pool.with_source(|source| source.is_held(block.addr().get(), size)) {
        return true;
    }
    let bytes = size.max(1).next_multiple_of(BASE_PAGE_BYTES as usize);
    // What a fork's child shares is copied by this, and not later.
    // SAFETY: a block in use that nobody has, of whole units.
    if !unsafe { touch(block.as_ptr(), bytes, false) } {
        return false;
    }
    let pages = bytes / BASE_PAGE_BYTES as usize;
    let frame = PageMap::open().and_then(|map| map.contiguous(block.addr().get(), pages));
    let Some(first) = frame.map(|frame| frame * BASE_PAGE_BYTES) else { return false };
    let last = first + size.max(1) as u64 - 1;
    first.is_multiple_of(placement.align_bytes)
        && last < placement.below
        && placement.boundary_bytes.is_none_or(|boundary| first / boundary == last / boundary)
}
