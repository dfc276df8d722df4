//! Looking before following: what the checking tiers do with pointers and
//! headers that may be anything.
//!
//! Each call reads the record of one pool, that of its block; neighbours lie in the same pool, and
//! so do links nearly always.

use core::ptr::NonNull;

use crate::block::{Block, FREE, GRANULE_BYTES, MIN_BLOCK_BYTES, PREV_FREE, SEAL_MASK, SIZE_MASK};
use crate::error::{FreeBytesError, HeapFault, HeapFaultKind};
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::PageSource;
use crate::pool::record::{Lent, Located};

#[inline(always)]
fn fault(block: Block, kind: HeapFaultKind) -> HeapFault {
    HeapFault { address: block.address(), kind }
}

impl<F: Fit, S: PageSource, H: Hardening> Heap<'_, F, S, H> {
    /// Returns the pool in which a block may start at `address`, its page committed or not.
    #[inline(always)]
    fn pool_of(&self, address: usize) -> Result<Option<Lent>, HeapFault> {
        let mut at = self.pools.first(self.key)?;
        while let Some(pool) = at {
            let lent = pool.read(self.key)?;
            if lent.holds_border(address) {
                return Ok(Some(lent));
            }
            at = lent.next;
        }
        Ok(None)
    }

    #[inline(always)]
    fn is_committed(&self, address: usize) -> bool {
        !S::RELEASES || self.source.is_committed(address)
    }

    /// Returns the pool in which a block may start at `block`, the one of `near` nearly always.
    #[inline(always)]
    pub(crate) fn home(&self, block: Block, near: Option<Lent>) -> Option<Lent> {
        let address = block.address();
        let home = match near {
            Some(near) if near.holds_border(address) => near,
            _ => self.pool_of(address).ok()??,
        };
        self.is_committed(address).then_some(home)
    }

    /// Returns the header of `block`, which lies before `end`, without its seal, if
    /// the seal is whole and the size possible.
    #[inline(always)]
    pub(crate) fn intact(&self, block: Block, end: Block) -> Result<usize, HeapFault> {
        let header = block.header();
        if !self.is_sealed(block, header) {
            return Err(fault(block, HeapFaultKind::Header));
        }
        let size = header & SIZE_MASK;
        let room = end.address() - block.address();
        if size > room || if room == 0 { header & FREE != 0 } else { size < MIN_BLOCK_BYTES } {
            return Err(fault(block, HeapFaultKind::Size));
        }
        Ok(header & !SEAL_MASK)
    }

    /// Returns true if `block` is the border of an intact free block. The tag at its end says so
    /// too: a header alone may be an old one inside a block that has grown since.
    #[inline(always)]
    pub(crate) fn is_free(&self, block: Block, near: Option<Lent>) -> bool {
        let Some(home) = self.home(block, near) else { return false };
        let Ok(header) = self.intact(block, home.end) else { return false };
        // SAFETY: the size leads no further than the sentinel; the page is asked for.
        let after = unsafe { block.after(header & SIZE_MASK) };
        header & FREE != 0 && self.is_committed(after.address()) && after.before() == Some(block)
    }

    /// Checks that the links of the free block of `size` lead to borders that lead back, so that
    /// taking it out of its list changes only words that hold its address.
    #[inline(always)]
    pub(crate) fn links_intact(
        &self,
        block: Block,
        size: usize,
        pool: Lent,
    ) -> Result<(), HeapFault> {
        let near = Some(pool);
        if let Some(next) = block.next()
            && !(self.home(next, near).is_some() && next.prev() == Some(block))
        {
            return Err(fault(block, HeapFaultKind::Next));
        }
        match block.prev() {
            Some(prev) if self.home(prev, near).is_some() && prev.next() == Some(block) => Ok(()),
            Some(_) => Err(fault(block, HeapFaultKind::Prev)),
            None => {
                let class = F::floor(size);
                let leads = self.bins.head(class) == Some(block);
                if leads { Ok(()) } else { Err(self.head_fault(class)) }
            }
        }
    }

    /// Checks what putting a free block of `size` into its list would write to: the list's head is a
    /// free block without another before it.
    #[inline(always)]
    pub(crate) fn list_intact(&self, size: usize, near: Option<Lent>) -> Result<(), HeapFault> {
        let class = F::floor(size);
        match self.bins.head(class) {
            Some(head) if !(self.is_free(head, near) && head.prev().is_none()) => {
                Err(self.head_fault(class))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    pub(crate) fn head_fault(&self, class: usize) -> HeapFault {
        HeapFault { address: self.bins.head_address(class), kind: HeapFaultKind::Head }
    }

    #[cold]
    pub(crate) fn bits_fault(&self, class: usize) -> HeapFault {
        HeapFault { address: self.bins.bits_address(class), kind: HeapFaultKind::Bits }
    }

    /// Checks what a change of `block`, intact and with `header`, would read
    /// or write of its neighbours, with their links or without.
    #[inline(always)]
    pub(crate) fn neighbours_intact(
        &self,
        block: Block,
        header: usize,
        pool: Lent,
        links: bool,
    ) -> Result<(), HeapFault> {
        let size = header & SIZE_MASK;
        // SAFETY: the size does not lead further than the sentinel, which is a
        // tag. If the size is a false one, the address is still in the pool;
        // its page is asked for.
        let after = unsafe { block.after(size) };
        if !self.is_committed(after.address()) {
            return Err(fault(block, HeapFaultKind::Size));
        }
        let after_header = self.intact(after, pool.end)?;
        let free = header & FREE;
        if (after_header & PREV_FREE != 0) != (free != 0) {
            return Err(fault(after, HeapFaultKind::Flags));
        }
        if free != 0 {
            if after_header & FREE != 0 {
                return Err(fault(after, HeapFaultKind::NotCoalesced));
            }
            if after.before() != Some(block) {
                return Err(fault(after, HeapFaultKind::Before));
            }
        }
        if after_header & FREE != 0 {
            let after_size = after_header & SIZE_MASK;
            // SAFETY: as for `after`.
            let beyond = unsafe { after.after(after_size) };
            if !self.is_committed(beyond.address()) {
                return Err(fault(after, HeapFaultKind::Size));
            }
            if beyond.header() & PREV_FREE == 0 {
                return Err(fault(beyond, HeapFaultKind::Flags));
            }
            if beyond.before() != Some(after) {
                return Err(fault(beyond, HeapFaultKind::Before));
            }
            if links {
                self.links_intact(after, after_size, pool)?;
            }
        }
        if header & PREV_FREE != 0 {
            let Some((before, before_header)) = self.free_before(block, pool) else {
                return Err(fault(block, HeapFaultKind::Before));
            };
            if links {
                self.links_intact(before, before_header & SIZE_MASK, pool)?;
            }
        }
        Ok(())
    }

    /// Returns the free block that ends at `block`, if the tag leads to one.
    #[inline(always)]
    fn free_before(&self, block: Block, pool: Lent) -> Option<(Block, usize)> {
        let before = block.before()?;
        let address = before.address();
        if !pool.holds_border(address) || address >= block.address() || !self.is_committed(address)
        {
            return None;
        }
        let header = self.intact(before, pool.end).ok()?;
        let ends = address + (header & SIZE_MASK);
        (header & FREE != 0 && ends == block.address()).then_some((before, header))
    }

    /// Returns the used block whose payload is at `at`.
    ///
    /// # Safety
    /// In a tier that does not look, `at` is a payload of the heap that was not
    /// freed since.
    #[inline(always)]
    pub(crate) unsafe fn locate(&self, at: NonNull<u8>) -> Result<Located, FreeBytesError> {
        if !H::HEADERS {
            // SAFETY: `at` is a payload, one granule behind a border.
            let block = unsafe { Block::at(at.byte_sub(GRANULE_BYTES)) };
            return Ok(Located { block, header: block.header(), pool: None });
        }
        let address = at.addr().get();
        if address & (GRANULE_BYTES - 1) != 0 {
            return Err(FreeBytesError::Misaligned { address });
        }
        let border = address.wrapping_sub(GRANULE_BYTES);
        let Some(pool) = self.pool_of(border).map_err(FreeBytesError::Corrupt)? else {
            return Err(FreeBytesError::Foreign { address });
        };
        if !self.is_committed(border) {
            // Its page went back to the source: it is inside a free block.
            return Err(FreeBytesError::NotAllocated { address });
        }
        // SAFETY: aligned, inside a pool of this heap and committed, as was just
        // checked. The pointer came from the pool if the caller did
        // not make it up, and otherwise has the pool's address.
        let block = unsafe { Block::at(at.byte_sub(GRANULE_BYTES)) };
        let header = self.intact(block, pool.end).map_err(FreeBytesError::Corrupt)?;
        if header & FREE != 0 {
            return Err(FreeBytesError::NotAllocated { address });
        }
        self.neighbours_intact(block, header, pool, H::LINKS).map_err(FreeBytesError::Corrupt)?;
        Ok(Located { block, header, pool: Some(pool) })
    }

    /// Checks the head of the list of `class`, and returns its pool.
    #[inline(always)]
    pub(crate) fn head_intact(&self, head: Block, class: usize) -> Result<Lent, HeapFault> {
        let Some(pool) =
            self.pool_of(head.address())?.filter(|_| self.is_committed(head.address()))
        else {
            return Err(self.head_fault(class));
        };
        let header = self.intact(head, pool.end)?;
        let size = header & SIZE_MASK;
        if header & FREE == 0 || F::floor(size) != class {
            return Err(self.head_fault(class));
        }
        self.neighbours_intact(head, header, pool, H::LINKS)?;
        if H::LINKS {
            self.links_intact(head, size, pool)?;
        }
        Ok(pool)
    }
}
