//! The length of a pool in which no request ever fails.

use core::alloc::Layout;

use crate::block::{GRANULE_BYTES, HEADER_BYTES, MIN_BLOCK_BYTES};
use crate::fit::Fit;
use crate::heap::Heap;
use crate::pool::record::POOL_OVERHEAD_BYTES;

/// A request that a program makes, and the number of its blocks at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The request.
    pub layout: Layout,
    /// Number of them that are allocated at once, at most.
    pub count: usize,
}

/// Returns the bytes of one pool in which requests of `demands` never fail, in whatever
/// order they are made and freed (not resized), as long as no more of each are
/// allocated at once than it says; the pool begins on a multiple of
/// [`GRANULE_BYTES`]. `None` if some request is never served or the sum
/// overflows. O(d²) for d demands: see below.
///
/// # Reasoning
/// Let demand i take blocks of cᵢ bytes ([`Heap::block_bytes`]), be served by
/// any free block of fᵢ bytes (fᵢ = cᵢ but for alignments above a granule,
/// which are searched with more), and occur nᵢ times; N = Σnᵢ, S = Σnᵢcᵢ.
///
/// 1. A request of demand j fails only if every free block is shorter than fⱼ:
///    fⱼ is the least size of a class, and all lists from that class on are
///    searched.
/// 2. At that time at most N − 1 blocks are used, with at most S − cⱼ bytes.
/// 3. Free blocks do not touch, so N − 1 used ones part at most N free ones.
/// 4. Let g be the greatest common divisor of all cᵢ, or one granule if some
///    alignment is above a granule. All blocks are cut from the pool's start on
///    in multiples of g, so each free block but the last is a multiple of g and
///    takes at most fⱼ − g bytes; the last takes at most fⱼ − 1 granule.
/// 5. A rest of one granule stays with its block. With g above a granule this
///    occurs only at the pool's end, with g of a granule in every block.
///
/// So a pool does in which the blocks have
///
/// ```text
///   S − cⱼ + (N − 1)(fⱼ − g) + fⱼ + e,   e = granule · (N if g is a granule, else 1)
/// ```
///
/// bytes for each j; the greatest of these and the pool's own
/// [`POOL_OVERHEAD_BYTES`] are the result. For demands of one size it is S and
/// a granule: then nothing fragments. It is otherwise far above what programs
/// need, and has to be: Robson showed (JACM 18, 1971) that no allocator does
/// with less than about ½·M·log₂n for M bytes of sizes up to n, and those that
/// choose the best fitting block can be driven to about M·n. For half-fit the
/// authors of o1heap state 2·M·(1 + ⌈log₂n⌉), from Robson's bound on first fit;
/// the equation above does not rely on it.
#[must_use]
pub fn pool_bytes<F: Fit>(demands: &[Demand]) -> Option<usize> {
    let served = |demand: &Demand| -> Option<(usize, usize)> {
        let need = Heap::<F>::block_bytes(demand.layout.size())?;
        let search = Heap::<F>::search_bytes(need, demand.layout.align())?;
        Some((need, Heap::<F>::block_bytes(search - HEADER_BYTES)?))
    };
    let (mut count, mut sum, mut step) = (0_usize, 0_usize, 0);
    for demand in demands.iter().filter(|demand| demand.count > 0) {
        let (need, _) = served(demand)?;
        count = count.checked_add(demand.count)?;
        sum = sum.checked_add(need.checked_mul(demand.count)?)?;
        step =
            divisor(step, if demand.layout.align() > GRANULE_BYTES { GRANULE_BYTES } else { need });
    }
    let kept = GRANULE_BYTES.checked_mul(if step == GRANULE_BYTES { count } else { 1 })?;
    let mut most = MIN_BLOCK_BYTES;
    for demand in demands.iter().filter(|demand| demand.count > 0) {
        let (need, search) = served(demand)?;
        let gaps = (count - 1).checked_mul(search - step)?;
        most = most.max((sum - need).checked_add(gaps)?.checked_add(search)?.checked_add(kept)?);
    }
    most.checked_add(POOL_OVERHEAD_BYTES).filter(|&bytes| bytes <= isize::MAX.cast_unsigned())
}

fn divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
