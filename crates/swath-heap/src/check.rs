//! Walking the blocks, and checking everything.

use crate::block::{Block, FREE, HEADER_BYTES, PREV_FREE, SIZE_MASK};
use crate::error::{HeapFault, HeapFaultKind};
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::PageSource;
use crate::pool::record::Lent;

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
    /// [`HeapFault`] at the first record or header that does not lead to another.
    pub fn walk(&self, visit: &mut dyn FnMut(BlockInfo)) -> Result<(), HeapFault> {
        self.walk_blocks(&mut |info, _, _| {
            visit(info);
            Ok(())
        })
    }

    fn walk_blocks(
        &self,
        visit: &mut dyn FnMut(BlockInfo, Block, Lent) -> Result<(), HeapFault>,
    ) -> Result<(), HeapFault> {
        for pool in self.pools.each(self.key) {
            let pool = pool?;
            let mut block = pool.first();
            while block != pool.end {
                let header = self.intact(block, pool.end)?;
                self.neighbours_intact(block, header, pool, false)?;
                let (address, len_bytes) = (block.address(), header & SIZE_MASK);
                visit(BlockInfo { address, len_bytes, free: header & FREE != 0 }, block, pool)?;
                // SAFETY: `intact` says that it leads no further than the sentinel,
                // `neighbours_intact` that there is a tag.
                block = unsafe { block.after(len_bytes) };
            }
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
        let mut largest = None;
        self.walk_list(class, &mut |size| largest = largest.max(Some(size)))?;
        match largest {
            Some(largest) => Ok(Some(largest - HEADER_BYTES)),
            None => Err(self.bits_fault(class)),
        }
    }

    /// Visits the sizes of a list's blocks.
    fn walk_list(&self, class: usize, visit: &mut dyn FnMut(usize)) -> Result<(), HeapFault> {
        let mut at = self.bins.head(class);
        let mut prev: Option<Block> = None;
        while let Some(block) = at {
            // A list that came back to itself would break this where it joins.
            if !self.is_free(block, None) || block.prev() != prev {
                return Err(match prev {
                    Some(prev) => HeapFault { address: prev.address(), kind: HeapFaultKind::Next },
                    None => self.head_fault(class),
                });
            }
            let size = block.header() & SIZE_MASK;
            if F::floor(size) != class {
                return Err(self.head_fault(class));
            }
            visit(size);
            (prev, at) = (at, block.next());
        }
        Ok(())
    }

    /// Checks every invariant of the heap: see [`Heap`]. Records, headers and tags come first, then
    /// links, then heads and bit maps, so that the first fault found is at the word
    /// that is wrong if only one is. O(b·p + c) for b
    /// blocks, c classes and p pools.
    ///
    /// # Errors
    /// The first [`HeapFault`] found.
    pub fn check(&self) -> Result<(), HeapFault> {
        let mut free = 0_usize;
        for pool in self.pools.each(self.key) {
            // The first block has none before it.
            let first = pool?.first();
            if first.header() & PREV_FREE != 0 {
                return Err(HeapFault { address: first.address(), kind: HeapFaultKind::Flags });
            }
        }
        self.walk_blocks(&mut |info, _, _| {
            if info.free {
                free += 1;
                self.pages_intact(info)?;
            }
            Ok(())
        })?;
        self.walk_blocks(&mut |info, block, pool| {
            if info.free { self.which_link(block, info.len_bytes, pool) } else { Ok(()) }
        })?;
        for class in 0..F::CLASSES {
            if self.bins.has(class) != self.bins.head(class).is_some() {
                return Err(self.head_or_bit(class));
            }
        }
        if let Some(address) = self.bins.wrong_summary() {
            return Err(HeapFault { address, kind: HeapFaultKind::Bits });
        }
        let mut listed = 0_usize;
        for class in 0..F::CLASSES {
            self.walk_list(class, &mut |_| listed += 1)?;
        }
        // Each free block has links that lead back; with as many in the lists,
        // none is missing there and nothing else is in them.
        if listed != free {
            return Err(self.head_fault(0));
        }
        Ok(())
    }

    /// Checks the links of a free block; where two disagree, says which of them is wrong.
    fn which_link(&self, block: Block, size: usize, pool: Lent) -> Result<(), HeapFault> {
        let is_free = |other: &Block| self.is_free(*other, Some(pool));
        let fault = |kind| HeapFault { address: block.address(), kind };
        let fault = if block.next().is_some_and(|next| !is_free(&next)) {
            fault(HeapFaultKind::Next)
        } else if block.prev().is_some_and(|prev| !is_free(&prev)) {
            fault(HeapFaultKind::Prev)
        } else {
            let Err(fault) = self.links_intact(block, size, pool) else { return Ok(()) };
            fault
        };
        // The other end's word, if it leads to a third block, or to none, while this one's other
        // neighbour agrees that the two belong together.
        Err(match fault.kind {
            HeapFaultKind::Next => match block.next().filter(is_free) {
                Some(next)
                    if !next
                        .prev()
                        .filter(is_free)
                        .is_some_and(|third| third.next() == Some(next))
                        && self.bins.head(F::floor(self.len_bytes(next))) != Some(next) =>
                {
                    HeapFault { address: next.address(), kind: HeapFaultKind::Prev }
                }
                _ => fault,
            },
            HeapFaultKind::Prev => match block.prev().filter(is_free) {
                Some(prev) if !self.is_led_to(block) => {
                    HeapFault { address: prev.address(), kind: HeapFaultKind::Next }
                }
                _ => fault,
            },
            _ => fault,
        })
    }

    /// Returns true if a list's head or another free block leads to `block`. O(b).
    #[cold]
    fn is_led_to(&self, block: Block) -> bool {
        let mut led = self.bins.head(F::floor(self.len_bytes(block))) == Some(block);
        let walked = self.walk_blocks(&mut |info, other, _| {
            led |= info.free && other.next() == Some(block);
            Ok(())
        });
        debug_assert_eq!(walked, Ok(()), "walked before");
        led
    }

    fn len_bytes(&self, block: Block) -> usize {
        block.header() & SIZE_MASK
    }

    /// Says which is wrong where the head of a list and its bit disagree: the list has a block, or it
    /// has none.
    #[cold]
    fn head_or_bit(&self, class: usize) -> HeapFault {
        let mut any = false;
        let walked = self.walk(&mut |info| {
            any |= info.free && F::floor(info.len_bytes) == class;
        });
        debug_assert_eq!(walked, Ok(()), "walked before");
        if self.bins.has(class) == any { self.head_fault(class) } else { self.bits_fault(class) }
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
