//! Looking before following: what the checking tiers do with pointers and
//! headers that may be anything.

use core::ptr::NonNull;

use crate::block::{
    Block, FREE, GRANULE_BYTES, GRANULE_SHIFT, MIN_BLOCK_BYTES, PREV_FREE, SEAL_MASK, SIZE_MASK,
};
use crate::error::{Fault, FaultKind, FreeError};
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::PageSource;
use crate::pools;

impl<F: Fit, S: PageSource, H: Hardening> Heap<'_, F, S, H> {
    /// The end of the pool in which a block may start at `address`.
    #[inline(always)]
    pub(crate) fn border(&self, address: usize) -> Option<Block> {
        if address & (GRANULE_BYTES - 1) != 0 {
            return None;
        }
        let pool = pools::each(self.pools).find(|pool| pool.holds_border(address))?;
        (!S::RELEASES || self.source.is_committed(address)).then(|| pool.sentinel())
    }

    /// The header of `block`, which lies before `end`, without its seal, if
    /// the seal is whole and the size possible.
    #[inline(always)]
    pub(crate) fn intact(&self, block: Block, end: Block) -> Result<usize, Fault> {
        let header = block.header();
        let fault = |kind| Fault { address: block.address(), kind };
        if self.sealed(block, header) != header {
            return Err(fault(FaultKind::Header));
        }
        let size = header & SIZE_MASK;
        let room = end.address() - block.address();
        if size > room || if room == 0 { header & FREE != 0 } else { size < MIN_BLOCK_BYTES } {
            return Err(fault(FaultKind::Size));
        }
        Ok(header & !SEAL_MASK)
    }

    /// Whether the links of the free block of `size` lead to free blocks that
    /// lead back.
    pub(crate) fn links_intact(&self, block: Block, size: usize) -> Result<(), Fault> {
        let fault = Fault { address: block.address(), kind: FaultKind::Link };
        let is_free = |other: Block| {
            let end = self.border(other.address()).ok_or(fault)?;
            let header = self.intact(other, end)?;
            if header & FREE == 0 { Err(fault) } else { Ok(()) }
        };
        if let Some(next) = block.next() {
            is_free(next)?;
            if next.prev() != Some(block) {
                return Err(fault);
            }
        }
        let back = match block.prev() {
            Some(prev) => {
                is_free(prev)?;
                prev.next()
            }
            None => self.bins.head(F::floor(size >> GRANULE_SHIFT)),
        };
        if back == Some(block) { Ok(()) } else { Err(fault) }
    }

    /// Whether what a change of `block`, intact and with `header`, would read
    /// or write of its neighbours is intact. `end` is its pool's.
    #[inline(always)]
    pub(crate) fn neighbours_intact(
        &self,
        block: Block,
        header: usize,
        end: Block,
    ) -> Result<(), Fault> {
        let size = header & SIZE_MASK;
        // SAFETY: the size does not lead further than the sentinel, which is a
        // tag. If the size is a false one, the address is still in the pool;
        // its page is asked for.
        let after = unsafe { block.after(size) };
        let fault = |block: Block, kind| Err(Fault { address: block.address(), kind });
        if S::RELEASES && !self.source.is_committed(after.address()) {
            return fault(block, FaultKind::Size);
        }
        let after_header = self.intact(after, end)?;
        let free = header & FREE;
        if (after_header & PREV_FREE != 0) != (free != 0) {
            return fault(after, FaultKind::Flags);
        }
        if free != 0 {
            if after_header & FREE != 0 {
                return fault(after, FaultKind::NotCoalesced);
            }
            if after.before() != Some(block) {
                return fault(after, FaultKind::Before);
            }
        }
        if after_header & FREE != 0 {
            let after_size = after_header & SIZE_MASK;
            // SAFETY: as for `after`.
            let beyond = unsafe { after.after(after_size) };
            if S::RELEASES && !self.source.is_committed(beyond.address()) {
                return fault(after, FaultKind::Size);
            }
            if beyond.header() & PREV_FREE == 0 || beyond.before() != Some(after) {
                return fault(beyond, FaultKind::Before);
            }
            if H::LINKS {
                self.links_intact(after, after_size)?;
            }
        }
        if header & PREV_FREE != 0 {
            let Some((before, before_header)) = self.free_before(block, end) else {
                return fault(block, FaultKind::Before);
            };
            if H::LINKS {
                self.links_intact(before, before_header & SIZE_MASK)?;
            }
        }
        Ok(())
    }

    /// The free block that ends at `block`, if the tag leads to one.
    #[inline(always)]
    fn free_before(&self, block: Block, end: Block) -> Option<(Block, usize)> {
        let before = block.before()?;
        if self.border(before.address())? != end || before.address() >= block.address() {
            return None;
        }
        let header = self.intact(before, end).ok()?;
        let ends = before.address() + (header & SIZE_MASK);
        (header & FREE != 0 && ends == block.address()).then_some((before, header))
    }

    /// The used block whose payload is at `at`, and its header.
    ///
    /// # Safety
    /// In a tier that does not look, `at` is what the heap gave and was not
    /// given back since.
    #[inline(always)]
    pub(crate) unsafe fn locate(&self, at: NonNull<u8>) -> Result<(Block, usize), FreeError> {
        if !H::HEADERS {
            // SAFETY: the heap gave `at`, one granule behind a border.
            let block = unsafe { Block::at(at.byte_sub(GRANULE_BYTES)) };
            return Ok((block, block.header()));
        }
        let address = at.addr().get();
        if address & (GRANULE_BYTES - 1) != 0 {
            return Err(FreeError::Misaligned { address });
        }
        let border = address.wrapping_sub(GRANULE_BYTES);
        let Some(end) = self.border(border) else {
            let within = pools::each(self.pools).any(|pool| pool.holds_border(border));
            return Err(if within {
                // Its page went back to the source: it is inside a free block.
                FreeError::NotAllocated { address }
            } else {
                FreeError::Foreign { address }
            });
        };
        // SAFETY: aligned, inside a pool of this heap and committed: `border`
        // has just said so. The pointer came from the pool if the caller did
        // not make it up, and otherwise has the pool's address.
        let block = unsafe { Block::at(at.byte_sub(GRANULE_BYTES)) };
        let header = self.intact(block, end).map_err(FreeError::Corrupt)?;
        if header & FREE != 0 {
            return Err(FreeError::NotAllocated { address });
        }
        self.neighbours_intact(block, header, end).map_err(FreeError::Corrupt)?;
        Ok((block, header))
    }

    /// Whether the head of the list of `class` is what it should be.
    #[inline(always)]
    pub(crate) fn head_intact(&self, head: Block, class: usize) -> Result<(), Fault> {
        let fault = |kind| Fault { address: head.address(), kind };
        let end = self.border(head.address()).ok_or(fault(FaultKind::Link))?;
        let header = self.intact(head, end)?;
        let size = header & SIZE_MASK;
        if header & FREE == 0 || F::floor(size >> GRANULE_SHIFT) != class {
            return Err(fault(FaultKind::List));
        }
        self.neighbours_intact(head, header, end)?;
        if H::LINKS { self.links_intact(head, size) } else { Ok(()) }
    }
}
