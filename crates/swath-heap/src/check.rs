//! Walking the blocks, and checking everything.

use crate::block::{FREE, GRANULE_SHIFT, HEADER_BYTES, PREV_FREE, SIZE_MASK};
use crate::error::{HeapFault, HeapFaultKind};
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::PageSource;
use crate::pool::record::{self, Pool};

/// One block of a pool, as a walk sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// Address of its tag; the user's bytes begin [`GRANULE_BYTES`](crate::GRANULE_BYTES)
    /// further on.
    pub address: usize,
    /// Number of its bytes, the header included.
    pub len_bytes: usize,
    /// True if it is free.
    pub free: bool,
}

impl<F: Fit, S: PageSource, H: Hardening> Heap<'_, F, S, H> {
    /// Visits every block, pool by pool, in rising order within each. O(b + p)
    /// for b blocks and p pools.
    ///
    /// # Errors
    /// [`HeapFault`] at the first header that does not lead to another.
    pub fn walk(&self, visit: &mut dyn FnMut(BlockInfo)) -> Result<(), HeapFault> {
        record::each(self.pools).try_for_each(|pool| {
            self.walk_pool(pool, &mut |info, _| {
                visit(info);
                Ok(())
            })
        })
    }

    fn walk_pool(
        &self,
        pool: Pool,
        visit: &mut dyn FnMut(BlockInfo, crate::block::Block) -> Result<(), HeapFault>,
    ) -> Result<(), HeapFault> {
        let (mut block, end) = (pool.first(), pool.sentinel());
        while block != end {
            let header = self.intact(block, end)?;
            self.neighbours_intact(block, header, end)?;
            let len_bytes = header & SIZE_MASK;
            let info = BlockInfo { address: block.address(), len_bytes, free: header & FREE != 0 };
            visit(info, block)?;
            // SAFETY: `intact` says that it leads no further than the sentinel,
            // `neighbours_intact` that there is a tag.
            block = unsafe { block.after(len_bytes) };
        }
        Ok(())
    }

    /// Returns the bytes of the largest free block, its header not included: the
    /// largest request that could be served without rounding. At least
    /// [`largest_bytes`](crate::ByteAllocator::largest_bytes). O(n) for n
    /// blocks in the highest class that has any.
    ///
    /// # Errors
    /// [`HeapFault`] for a broken list.
    pub fn largest_free_block_bytes(&self) -> Result<Option<usize>, HeapFault> {
        let Some(class) = self.bins.highest() else { return Ok(None) };
        let mut largest = 0;
        self.walk_list(class, &mut |size| largest = largest.max(size))?;
        Ok(Some(largest - HEADER_BYTES))
    }

    /// Visits the sizes of a list's blocks.
    fn walk_list(&self, class: usize, visit: &mut dyn FnMut(usize)) -> Result<(), HeapFault> {
        let mut at = self.bins.head(class);
        let mut prev = None;
        while let Some(block) = at {
            let fault = |kind| Err(HeapFault { address: block.address(), kind });
            let Some(end) = self.border(block.address()) else { return fault(HeapFaultKind::Link) };
            let header = self.intact(block, end)?;
            // A list that came back to itself would break this where it joins.
            if header & FREE == 0 || block.prev() != prev {
                return fault(HeapFaultKind::Link);
            }
            let size = header & SIZE_MASK;
            if F::floor(size >> GRANULE_SHIFT) != class {
                return fault(HeapFaultKind::List);
            }
            visit(size);
            (prev, at) = (at, block.next());
        }
        Ok(())
    }

    /// Checks every invariant of the heap: see [`Heap`]. O(b + c + p²) for b
    /// blocks, c classes and p pools.
    ///
    /// # Errors
    /// The first [`HeapFault`] found.
    pub fn check(&self) -> Result<(), HeapFault> {
        let mut free = 0_usize;
        for pool in record::each(self.pools) {
            // The first block has none before it.
            let first = pool.first();
            if first.header() & PREV_FREE != 0 {
                return Err(HeapFault { address: first.address(), kind: HeapFaultKind::Flags });
            }
            self.walk_pool(pool, &mut |info, block| {
                if info.free {
                    free += 1;
                    self.links_intact(block, info.len_bytes)?;
                    self.pages_intact(info)?;
                }
                Ok(())
            })?;
        }
        if !self.bins.bits_agree() {
            return Err(HeapFault { address: 0, kind: HeapFaultKind::Bits });
        }
        let mut listed = 0_usize;
        for class in 0..F::CLASSES {
            self.walk_list(class, &mut |_| listed += 1)?;
        }
        // Each free block has links that lead back; with as many in the lists,
        // none is missing there and nothing else is in them.
        if listed != free {
            return Err(HeapFault { address: 0, kind: HeapFaultKind::List });
        }
        Ok(())
    }

    /// Checks that the source says of the pages at both ends of a free block what
    /// the heap does.
    fn pages_intact(&self, info: BlockInfo) -> Result<(), HeapFault> {
        if !S::RELEASES {
            return Ok(());
        }
        let (from, to) = (info.address, info.address + info.len_bytes);
        let Some((start, len)) = self.pages_of(from, from, to, to) else { return Ok(()) };
        let committed = |address| self.source.is_committed(address);
        let outside = committed(start - 1) && committed(start + len);
        if outside && !committed(start) && !committed(start + len - 1) {
            Ok(())
        } else {
            Err(HeapFault { address: from, kind: HeapFaultKind::Size })
        }
    }
}
