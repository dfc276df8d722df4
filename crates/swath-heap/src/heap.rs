//! The allocator: one code for all policies, sources and tiers.
//!
//! Let P be the size of a page. No function here has a loop but the search for
//! the pool of a pointer (in the checking tiers) and those over pools.
//! Instruction counts are of x86-64 without extensions, in the tier
//! [`Trusting`](crate::Trusting) over [`Resident`] memory, on the trace of the
//! project's benchmarks.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::allocator::ByteAllocator;
use crate::block::{
    Block, FREE, GRANULE_BYTES, GRANULE_SHIFT, HEADER_BYTES, MIN_BLOCK_BYTES, PREV_FREE, SEAL_BITS,
    SEAL_MASK, SIZE_MASK,
};
use crate::error::{AllocateBytesError, FreeBytesError, HeapFault, ResizeBytesError};
use crate::fit::Fit;
use crate::hardening::{Hardening, Headers};
use crate::pages::{PageSource, Resident, SourceError};
use crate::pool::record::{Lent, Located, POOL_OVERHEAD_BYTES, Pools};

/// A heap over pools that its caller adds for `'p`.
///
/// `F` is the policy, `S` the source of the pools' pages, `H` the hardening.
///
/// Invariants, which [`check`](Self::check) walks:
/// * each pool is, between its record and its sentinel, blocks without a gap;
///   sizes are multiples of a granule and at least [`MIN_BLOCK_BYTES`];
/// * no two free blocks are neighbours;
/// * the header after a block says whether it is free, and if so the tag there
///   leads to it;
/// * the lists hold exactly the free blocks, each in the class of its size;
/// * over a source that takes pages back, of a free block exactly those pages
///   are committed that hold its tag or links or the next block's tag.
#[repr(C)]
pub struct Heap<'p, F: Fit, S: PageSource = Resident, H: Hardening = Headers> {
    pub(crate) bins: F,
    pub(crate) pools: Pools,
    pub(crate) key: usize,
    pub(crate) source: S,
    _tier: PhantomData<H>,
    _pools: PhantomData<&'p mut [MaybeUninit<u8>]>,
}

// SAFETY: all pool memory that the pointers lead to is this heap's alone
// and reached through it alone; there is no interior mutability.
unsafe impl<F: Fit, S: PageSource + Send, H: Hardening> Send for Heap<'_, F, S, H> {}

impl<F: Fit, S: PageSource, H: Hardening> fmt::Debug for Heap<'_, F, S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pools = self.pools.each(self.key).count();
        write!(f, "Heap {{ {:?}, {pools} pools, {:?} }}", self.bins, H::default())
    }
}

impl<F: Fit, H: Hardening> Heap<'_, F, Resident, H> {
    /// Makes a heap without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self::over(Resident, 0)
    }
}

impl<F: Fit, H: Hardening> Default for Heap<'_, F, Resident, H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Fit, S: PageSource, H: Hardening> Heap<'_, F, S, H> {
    /// Bytes of the largest request that any heap of this policy can serve,
    /// with the usual alignment.
    pub const SIZE_BYTES_MAX: usize = (F::GRANULES_MAX << GRANULE_SHIFT) - HEADER_BYTES;

    /// Makes a heap without memory, over a source of pages. Seals are made with
    /// `key`: a number that the users of the heap cannot guess, if they are not
    /// trusted.
    #[must_use]
    pub const fn over(source: S, key: usize) -> Self {
        Self {
            bins: F::EMPTY,
            pools: Pools::none(key),
            key,
            source,
            _tier: PhantomData,
            _pools: PhantomData,
        }
    }

    /// Returns the source of pages.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns the source of pages, to add some to it or to remove some.
    ///
    /// Not in safe code, which could release the pages under the heap:
    ///
    /// ```compile_fail,E0133
    /// use std::ptr::NonNull;
    /// use swath_heap::{PageSource, Tlsf};
    ///
    /// fn hurt(heap: &mut Tlsf<'_, impl PageSource>, page: NonNull<u8>) {
    ///     heap.source_mut().release(page, 4096);
    /// }
    /// ```
    ///
    /// # Safety
    /// The heap still has this source when the borrow ends, not another in its place, and of the
    /// pages of its pools the same ones are committed.
    pub unsafe fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Ends the heap and returns its source of pages, as it is.
    #[must_use]
    pub fn into_source(self) -> S {
        self.source
    }

    /// Returns the bytes that a request of `size_bytes` takes of a pool, header and
    /// rounding included; `None` if it is never served. O(1).
    #[must_use]
    pub fn block_bytes(size_bytes: usize) -> Option<usize> {
        Self::class_of(size_bytes).map(|(_, bytes)| bytes)
    }

    /// Returns the bytes of the largest request that the pools as they are can ever serve: that
    /// which the largest pool serves when all of it is free.
    /// `None` without a pool, or with pools too short for any class; pools behind a record that
    /// is not intact do not count. O(p) for p pools.
    #[must_use]
    pub fn largest_ever_bytes(&self) -> Option<usize> {
        let pools = self.pools.each(self.key).map_while(Result::ok);
        let longest = pools.map(Lent::len_bytes).max()?;
        Some(Self::payload_of_class(F::floor(longest - POOL_OVERHEAD_BYTES)))
    }

    fn payload_of_class(class: usize) -> usize {
        // A bit that was overwritten may name a class too short for any block.
        (F::granules(class) << GRANULE_SHIFT).saturating_sub(HEADER_BYTES)
    }

    /// The first class that surely serves `size_bytes`, and its least block.
    #[inline(always)]
    pub(crate) fn class_of(size_bytes: usize) -> Option<(usize, usize)> {
        if size_bytes > Self::SIZE_BYTES_MAX {
            return None;
        }
        let bytes = (size_bytes + HEADER_BYTES).max(MIN_BLOCK_BYTES);
        Some(F::ceil(bytes))
    }

    #[cold]
    fn too_large(layout: Layout) -> AllocateBytesError {
        AllocateBytesError::TooLarge { size_bytes: layout.size(), align_bytes: layout.align() }
    }

    /// Not cold: a caller that drops the reason drops this, and keeps no room for it.
    #[inline(always)]
    fn out_of_memory(&self, layout: Layout) -> AllocateBytesError {
        let largest_bytes = self.largest_bytes().unwrap_or(0);
        AllocateBytesError::OutOfMemory { size_bytes: layout.size(), largest_bytes }
    }

    // --- headers ---

    /// `header` with its seal, in a tier that has one.
    #[inline(always)]
    pub(crate) fn sealed(&self, block: Block, header: usize) -> usize {
        if !H::HEADERS || SEAL_BITS == 0 {
            return header;
        }
        header & !SEAL_MASK | self.seal(block, header) & SEAL_MASK
    }

    /// A word whose upper bits are the seal of `header`.
    #[inline(always)]
    fn seal(&self, block: Block, header: usize) -> usize {
        // PREV_FREE changes with the neighbour and is checked against it. The halves of the address
        // are exchanged, so that what is near does not cancel the size.
        let text = header & !SEAL_MASK & !PREV_FREE;
        let mixed = (block.address() ^ self.key).rotate_left(usize::BITS / 2) ^ text;
        mixed.wrapping_mul(0xd6e8_feb8_6659_fd93_u64 as usize)
    }

    /// Returns true if `header` has its seal, or the tier has none.
    #[inline(always)]
    pub(crate) fn is_sealed(&self, block: Block, header: usize) -> bool {
        !H::HEADERS || SEAL_BITS == 0 || (self.seal(block, header) ^ header) & SEAL_MASK == 0
    }

    #[inline(always)]
    pub(crate) fn set_header(&self, block: Block, header: usize) {
        block.set_header(self.sealed(block, header));
    }

    /// Writes the tags of the free block from `start` to `end` and lists it.
    #[inline(always)]
    pub(crate) fn insert_free(&mut self, start: Block, len_bytes: usize, end: Block) {
        self.set_header(start, len_bytes | FREE);
        end.set_before(start);
        end.set_header(end.header() | PREV_FREE);
        self.bins.insert(start, len_bytes);
    }

    /// Makes a used block of `need_bytes` of the `total_bytes` at `block`, none
    /// of which is in a list, and a free one of the rest, if that is enough for
    /// one. `flags` are those of the block.
    #[inline(always)]
    pub(crate) fn set_used(
        &mut self,
        block: Block,
        total_bytes: usize,
        need_bytes: usize,
        flags: usize,
    ) {
        // SAFETY: `total_bytes` leads to the border that ended the last of the
        // free blocks; a tag is there.
        let end = unsafe { block.after(total_bytes) };
        let rest = total_bytes - need_bytes;
        if rest >= MIN_BLOCK_BYTES {
            // SAFETY: the rest has room for a tag and links; its pages are
            // committed by the callers before.
            let remainder = unsafe { block.after(need_bytes) };
            self.set_header(block, need_bytes | flags);
            self.insert_free(remainder, rest, end);
        } else {
            self.set_header(block, total_bytes | flags);
            end.set_header(end.header() & !PREV_FREE);
        }
    }

    // --- pages ---

    /// The pages that lie between the free block from `outer` to `outer_end`
    /// and what is left of it (or came to it) on both sides of the part from
    /// `from` to `to`: those that an allocation of the part commits and a free
    /// of it releases. They lie in the inside of the whole, and not in the
    /// inside of the free block before the part or of the one after it.
    /// `Some((address, bytes))` if there are any.
    #[inline(always)]
    pub(crate) fn pages_of(
        &self,
        outer: usize,
        from: usize,
        to: usize,
        outer_end: usize,
    ) -> Option<(usize, usize)> {
        let mask = self.source.page_bytes() - 1;
        let up = |address: usize| (address + MIN_BLOCK_BYTES + mask) & !mask;
        let start = up(outer).max(from & !mask);
        let end = up(to).min(outer_end & !mask);
        (start < end).then(|| (start, end - start))
    }

    /// Commits such pages; `near` is a block of the same pool.
    #[inline(always)]
    pub(crate) fn commit(
        &mut self,
        near: Block,
        pages: Option<(usize, usize)>,
    ) -> Result<(), SourceError> {
        match pages {
            Some((address, len_bytes)) => self.source.commit(pointer(near, address), len_bytes),
            None => Ok(()),
        }
    }

    #[inline(always)]
    pub(crate) fn release(&mut self, near: Block, pages: Option<(usize, usize)>) {
        if let Some((address, len_bytes)) = pages {
            self.source.release(pointer(near, address), len_bytes);
        }
    }

    // --- allocation ---

    /// A block from the list of `class` or a higher one, still in its list.
    #[inline(always)]
    fn find(&self, class: usize) -> Option<Result<FoundBlock, AllocateBytesError>> {
        let (class, head) = self.bins.find(class)?;
        let Some(head) = head else {
            return H::HEADERS.then(|| Err(AllocateBytesError::Corrupt(self.bits_fault(class))));
        };
        let mut pool = None;
        if H::HEADERS {
            match self.head_intact(head, class) {
                Ok(lent) => pool = Some(lent),
                Err(fault) => return Some(Err(AllocateBytesError::Corrupt(fault))),
            }
        }
        Some(Ok(FoundBlock { class, head, size: head.header() & SIZE_MASK, pool }))
    }

    /// Checks the lists into which an allocation of `need_bytes` of `size_bytes`, `gap_bytes` behind
    /// their start, puts what is left.
    #[inline(always)]
    pub(crate) fn rests_intact(
        &self,
        size_bytes: usize,
        gap_bytes: usize,
        need_bytes: usize,
        pool: Option<Lent>,
    ) -> Result<(), HeapFault> {
        if !H::LINKS {
            return Ok(());
        }
        let rest = size_bytes - gap_bytes - need_bytes;
        if rest >= MIN_BLOCK_BYTES {
            self.list_intact(rest, pool)?;
        }
        if gap_bytes != 0 { self.list_intact(gap_bytes, pool) } else { Ok(()) }
    }

    /// Allocates `need_bytes` of the free block that was found, `gap_bytes` behind its
    /// start: 0, or enough for a block.
    #[inline(always)]
    fn allocate_from(
        &mut self,
        found: FoundBlock,
        gap_bytes: usize,
        need_bytes: usize,
    ) -> Result<NonNull<u8>, AllocateBytesError> {
        let FoundBlock { class, head, size: size_bytes, pool } = found;
        self.rests_intact(size_bytes, gap_bytes, need_bytes, pool)
            .map_err(AllocateBytesError::Corrupt)?;
        if S::RELEASES {
            let start = head.address();
            let (from, end) = (start + gap_bytes, start + size_bytes);
            // What is too little for a block goes along.
            let rest = size_bytes - gap_bytes - need_bytes;
            let to = if rest >= MIN_BLOCK_BYTES { from + need_bytes } else { end };
            let pages = self.pages_of(start, from, to, end);
            self.commit(head, pages).map_err(AllocateBytesError::Source)?;
        }
        self.bins.pop(class, head);
        if gap_bytes == 0 {
            self.set_used(head, size_bytes, need_bytes, 0);
            return Ok(head.payload());
        }
        // SAFETY: a border inside the free block, whose page was committed.
        let block = unsafe { head.after(gap_bytes) };
        self.set_used(block, size_bytes - gap_bytes, need_bytes, 0);
        self.insert_free(head, gap_bytes, block);
        Ok(block.payload())
    }

    /// Bytes of the free blocks at both sides of a used one.
    #[inline(always)]
    fn free_around(block: Block, header: usize, after: Block) -> usize {
        let after_header = after.header();
        let behind = if after_header & FREE != 0 { after_header & SIZE_MASK } else { 0 };
        let before = if header & PREV_FREE != 0 { block.before() } else { None };
        behind + before.map_or(0, |before| before.header() & SIZE_MASK)
    }

    /// Bytes to leave before a block at `head` so that its payload is aligned:
    /// none, or enough for a free block.
    fn gap(head: Block, align_bytes: usize) -> usize {
        let payload = head.address() + GRANULE_BYTES;
        let gap = payload.next_multiple_of(align_bytes) - payload;
        if gap == 0 || gap >= MIN_BLOCK_BYTES { gap } else { gap + align_bytes }
    }

    /// A request with an alignment above a granule.
    ///
    /// The block that an unaligned request would get is tried first: it may
    /// have room at the right place, and a block that was just freed surely
    /// has. Otherwise a block is looked for that is long enough wherever it
    /// starts: the alignment and a granule more.
    #[inline(never)]
    fn allocate_aligned(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocateBytesError> {
        let align = layout.align();
        let (class, need) = Self::class_of(layout.size()).ok_or_else(|| Self::too_large(layout))?;
        let Some(found) = self.find(class) else { return Err(self.out_of_memory(layout)) };
        let found = found?;
        let gap = Self::gap(found.head, align);
        if gap < found.size && need <= found.size - gap {
            return self.allocate_from(found, gap, need);
        }
        let longer =
            Self::search_bytes(need, align).and_then(|bytes| Self::class_of(bytes - HEADER_BYTES));
        let (class, _) = longer.ok_or_else(|| Self::too_large(layout))?;
        let Some(found) = self.find(class) else { return Err(self.out_of_memory(layout)) };
        let found = found?;
        self.allocate_from(found, Self::gap(found.head, align), need)
    }

    /// Bytes of a free block that serves `need_bytes` at `align_bytes` wherever
    /// it starts.
    pub(crate) fn search_bytes(need_bytes: usize, align_bytes: usize) -> Option<usize> {
        if align_bytes <= GRANULE_BYTES {
            return Some(need_bytes);
        }
        need_bytes.checked_add(align_bytes)?.checked_add(GRANULE_BYTES)
    }
}

/// A free block that serves a request, still in its list.
#[derive(Clone, Copy)]
struct FoundBlock {
    class: usize,
    head: Block,
    size: usize,
    /// Its pool; `None` in a tier that does not look.
    pool: Option<Lent>,
}

/// A pointer to `address`, which lies in the pool of `near`.
#[inline(always)]
fn pointer(near: Block, address: usize) -> NonNull<u8> {
    let distance = address.wrapping_sub(near.address());
    // SAFETY: an address in a pool is not 0, and the provenance of `near`
    // covers its whole pool.
    unsafe { NonNull::new_unchecked(near.start().as_ptr().wrapping_add(distance)) }
}

// SAFETY: a block is used from `set_used` until `free`: it is in no list then,
// and nothing between its header and the next one is written or allocated.
// `allocate_from` aligns its payload; `class_of` makes it long enough.
unsafe impl<F: Fit, S: PageSource, H: Hardening> ByteAllocator for Heap<'_, F, S, H> {
    /// Cuts a block off the front of a free one.
    ///
    /// ```text
    ///   ├ tag ┬─────────────────── free ───────────────────┤ tag ┤
    ///   ├ tag ┬──── r bytes, used ────┤ tag ┬──── free ────┤ tag ┤
    /// ```
    ///
    /// r is the request with its header, rounded up to its class; a rest of one
    /// granule stays with the block. An alignment above a granule may leave a
    /// free block before it as well.
    ///
    /// O(1); O(p) with p pools in the checking tiers. At most one call of the
    /// source. Counted for TLSF: 59 instructions on average, 95 at worst.
    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocateBytesError> {
        if layout.align() > GRANULE_BYTES {
            return self.allocate_aligned(layout);
        }
        let Some((class, need)) = Self::class_of(layout.size()) else {
            return Err(Self::too_large(layout));
        };
        let Some(found) = self.find(class) else { return Err(self.out_of_memory(layout)) };
        self.allocate_from(found?, 0, need)
    }

    /// Joins the block with its free neighbours.
    ///
    /// ```text
    ///   ├ tag ┬── free ──┤ tag ┬── used ──┤ tag ┬── free ──┤ tag ┤
    ///   ├ tag ┬─────────────────── free ───────────────────┤ tag ┤
    /// ```
    ///
    /// O(1); O(p) with p pools in the checking tiers. At most one call of the
    /// source. Counted for TLSF: 43 instructions on average, 99 at worst.
    #[inline(always)]
    unsafe fn free(&mut self, at: NonNull<u8>) -> Result<(), FreeBytesError> {
        // SAFETY: the contract of this function.
        let Located { block, header, pool } = unsafe { self.locate(at)? };
        let mut size = header & SIZE_MASK;
        // SAFETY: a used block's size leads to the tag after it.
        let after = unsafe { block.after(size) };
        let mut start = block;
        if H::LINKS {
            let total = size + Self::free_around(block, header, after);
            self.list_intact(total, pool).map_err(FreeBytesError::Corrupt)?;
        }
        if H::HEADERS {
            // A second free finds this, whatever becomes of the block.
            self.set_header(block, size | FREE);
        }
        let after_header = after.header();
        if after_header & FREE != 0 {
            let after_size = after_header & SIZE_MASK;
            self.bins.unlink(after, after_size);
            size += after_size;
        }
        if header & PREV_FREE != 0
            && let Some(before) = block.before()
        {
            let before_size = before.header() & SIZE_MASK;
            self.bins.unlink(before, before_size);
            size += before_size;
            start = before;
        }
        // SAFETY: the sizes of neighbours lead from one tag to the next.
        let end = unsafe { start.after(size) };
        self.insert_free(start, size, end);
        if S::RELEASES {
            let pages =
                self.pages_of(start.address(), block.address(), after.address(), end.address());
            self.release(start, pages);
        }
        Ok(())
    }

    #[inline]
    unsafe fn resize(
        &mut self,
        at: NonNull<u8>,
        layout: Layout,
    ) -> Result<NonNull<u8>, ResizeBytesError> {
        // SAFETY: the contract is the same.
        unsafe { self.resize_block(at, layout) }
    }

    /// Returns the bytes of the block but its header: what rounding added is the caller's. O(1);
    /// O(p) with p pools in the checking tiers.
    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> Result<usize, FreeBytesError> {
        // SAFETY: the contract of this function.
        let located = unsafe { self.locate(at)? };
        Ok((located.header & SIZE_MASK) - HEADER_BYTES)
    }

    /// Returns what the least block of the highest class with a free block serves. O(w)
    /// for w words of the bit map: 1 or 16.
    fn largest_bytes(&self) -> Option<usize> {
        let class = self.bins.highest()?;
        Some(Self::payload_of_class(class))
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::{Links, Tlsf};

    /// The seal of a header with one bit or byte changed is always another, but for `PREV_FREE`, which
    /// the neighbour tells.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn no_single_byte_of_a_header_changes_unseen() {
        let mut memory = [0_usize; 8];
        for key in [0, 1, 0x5bd1_e995, usize::MAX] {
            let heap: Tlsf<'_, Resident, Links> = Tlsf::over(Resident, key);
            let at = NonNull::from(&mut memory).cast();
            // SAFETY: a tag's place in this test's memory, of which only the address is used.
            let block = unsafe { Block::at(at) };
            for size in [32, 48, 112, 4096, 1 << 20, (1 << 40) - 16] {
                for flags in 0..4 {
                    let header = heap.sealed(block, size | flags);
                    assert_eq!(heap.sealed(block, header), header);
                    let step = if cfg!(miri) { 85 } else { 1 };
                    let changes = |byte| (1..256).step_by(step).map(move |c| (byte, c));
                    for (byte, change) in (0..8).flat_map(changes) {
                        let wrong = header ^ change << (8 * byte);
                        if wrong ^ header == PREV_FREE {
                            continue;
                        }
                        assert_ne!(heap.sealed(block, wrong), wrong, "{header:#x}, {wrong:#x}");
                    }
                }
            }
        }
    }
}
