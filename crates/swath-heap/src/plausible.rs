//! Looking before following: what the checking tiers do with pointers and
//! headers that may be anything.

use core::ptr::NonNull;

use crate::block::{
    Block, FREE, GRANULE_BYTES, GRANULE_SHIFT, MIN_BLOCK_BYTES, PREV_FREE, SEAL_MASK, SIZE_MASK,
};
use crate::error::{FreeBytesError, HeapFault, HeapFaultKind};
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::PageSource;
use crate::pool::record;

impl<F: Fit, S: PageSource, H: Hardening> Heap<'_, F, S, H> {
    /// Returns the end of the pool in which a block may start at `address`.
    #[inline(always)]
    pub(crate) fn border(&self, address: usize) -> Option<Block> {
        if address & (GRANULE_BYTES - 1) != 0 {
            return None;
        }
        let pool = record::each(self.pools).find(|pool| pool.holds_border(address))?;
        (!S::RELEASES || self.source.is_committed(address)).then(|| pool.sentinel())
    }

    /// Returns the header of `block`, which lies before `end`, without its seal, if
    /// the seal is whole and the size possible.
    #[inline(always)]
    pub(crate) fn intact(&self, block: Block, end: Block) -> Result<usize, HeapFault> {
        let header = block.header();
        let fault = |kind| HeapFault { address: block.address(), kind };
        if self.sealed(block, header) != header {
            return Err(fault(HeapFaultKind::Header));
        }
        let size = header & SIZE_MASK;
        let room = end.address() - block.address();
        if size > room || if room == 0 { header & FREE != 0 } else { size < MIN_BLOCK_BYTES } {
            return Err(fault(HeapFaultKind::Size));
        }
        Ok(header & !SEAL_MASK)
    }

    /// Checks that the links of the free block of `size` lead to free blocks that
    /// lead back.
    pub(crate) fn links_intact(&self, block: Block, size: usize) -> Result<(), HeapFault> {
        let fault = HeapFault { address: block.address(), kind: HeapFaultKind::Link };
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

    /// Checks what a change of `block`, intact and with `header`, would read
    /// or write of its neighbours. `end` is its pool's.
    #[inline(always)]
    pub(crate) fn neighbours_intact(
        &self,
        block: Block,
        header: usize,
        end: Block,
    ) -> Result<(), HeapFault> {
        let size = header & SIZE_MASK;
        // SAFETY: the size does not lead further than the sentinel, which is a
        // tag. If the size is a false one, the address is still in the pool;
        // its page is asked for.
        let after = unsafe { block.after(size) };
        let fault = |block: Block, kind| Err(HeapFault { address: block.address(), kind });
        if S::RELEASES && !self.source.is_committed(after.address()) {
            return fault(block, HeapFaultKind::Size);
        }
        let after_header = self.intact(after, end)?;
        let free = header & FREE;
        if (after_header & PREV_FREE != 0) != (free != 0) {
            return fault(after, HeapFaultKind::Flags);
        }
        if free != 0 {
            if after_header & FREE != 0 {
                return fault(after, HeapFaultKind::NotCoalesced);
            }
            if after.before() != Some(block) {
                return fault(after, HeapFaultKind::Before);
            }
        }
        if after_header & FREE != 0 {
            let after_size = after_header & SIZE_MASK;
            // SAFETY: as for `after`.
            let beyond = unsafe { after.after(after_size) };
            if S::RELEASES && !self.source.is_committed(beyond.address()) {
                return fault(after, HeapFaultKind::Size);
            }
            if beyond.header() & PREV_FREE == 0 || beyond.before() != Some(after) {
                return fault(beyond, HeapFaultKind::Before);
            }
            if H::LINKS {
                self.links_intact(after, after_size)?;
            }
        }
        if header & PREV_FREE != 0 {
            let Some((before, before_header)) = self.free_before(block, end) else {
                return fault(block, HeapFaultKind::Before);
            };
            if H::LINKS {
                self.links_intact(before, before_header & SIZE_MASK)?;
            }
        }
        Ok(())
    }

    /// Returns the free block that ends at `block`, if the tag leads to one.
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

    /// Returns the used block whose payload is at `at`, and its header.
    ///
    /// # Safety
    /// In a tier that does not look, `at` is a payload of the heap that was not
    /// freed since.
    #[inline(always)]
    pub(crate) unsafe fn locate(&self, at: NonNull<u8>) -> Result<(Block, usize), FreeBytesError> {
        if !H::HEADERS {
            // SAFETY: `at` is a payload, one granule behind a border.
            let block = unsafe { Block::at(at.byte_sub(GRANULE_BYTES)) };
            return Ok((block, block.header()));
        }
        let address = at.addr().get();
        if address & (GRANULE_BYTES - 1) != 0 {
            return Err(FreeBytesError::Misaligned { address });
        }
        let border = address.wrapping_sub(GRANULE_BYTES);
        let Some(end) = self.border(border) else {
            let within = record::each(self.pools).any(|pool| pool.holds_border(border));
            return Err(if within {
                // Its page went back to the source: it is inside a free block.
                FreeBytesError::NotAllocated { address }
            } else {
                FreeBytesError::Foreign { address }
            });
        };
        // SAFETY: aligned, inside a pool of this heap and committed: `border`
        // has just said so. The pointer came from the pool if the caller did
        // not make it up, and otherwise has the pool's address.
        let block = unsafe { Block::at(at.byte_sub(GRANULE_BYTES)) };
        let header = self.intact(block, end).map_err(FreeBytesError::Corrupt)?;
        if header & FREE != 0 {
            return Err(FreeBytesError::NotAllocated { address });
        }
        self.neighbours_intact(block, header, end).map_err(FreeBytesError::Corrupt)?;
        Ok((block, header))
    }

    /// Checks the head of the list of `class`.
    #[inline(always)]
    pub(crate) fn head_intact(&self, head: Block, class: usize) -> Result<(), HeapFault> {
        let fault = |kind| HeapFault { address: head.address(), kind };
        let end = self.border(head.address()).ok_or(fault(HeapFaultKind::Link))?;
        let header = self.intact(head, end)?;
        let size = header & SIZE_MASK;
        if header & FREE == 0 || F::floor(size >> GRANULE_SHIFT) != class {
            return Err(fault(HeapFaultKind::List));
        }
        self.neighbours_intact(head, header, end)?;
        if H::LINKS { self.links_intact(head, size) } else { Ok(()) }
    }
}
