//! Resizing, in place where there is room.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use crate::allocator::ByteAllocator;
use crate::block::{
    Block, FREE, GRANULE_BYTES, HEADER_BYTES, MIN_BLOCK_BYTES, PREV_FREE, SIZE_MASK,
};
use crate::error::{AllocateBytesError, ResizeBytesError};
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::PageSource;
use crate::pool::record::{Lent, Located};

/// A used block and the free space behind it.
#[derive(Clone, Copy)]
struct Around {
    block: Block,
    header: usize,
    size: usize,
    after: Block,
    /// Bytes of the free block `after`; 0 if that is none.
    after_size: usize,
    pool: Option<Lent>,
}

impl<F: Fit, S: PageSource, H: Hardening> Heap<'_, F, S, H> {
    /// The three ways, in the order in which they are tried:
    ///
    /// ```text
    ///   1 stay    ├ tag ┬─ used ─┤ tag ┬── free ──┤ tag ┤
    ///             ├ tag ┬─── used ───┤ tag ┬ free ┤ tag ┤    smaller, or larger
    ///   2 move    to any other free block; then this one is freed
    ///   3 slide   ├ tag ┬── free ──┤ tag ┬─ used ─┤ tag ┬ free ┤ tag ┤
    ///             ├ tag ┬────── used ──────┤ tag ┬──── free ───┤ tag ┤
    /// ```
    ///
    /// The third is left where no other free block is large enough; it moves
    /// the contents by less than their length. With n the bytes that are kept,
    /// 1 takes O(1), 2 and 3 take O(n) to copy. Calls of the source: 1 for
    /// staying, 2 for moving, 3 for sliding (and one more to take back a
    /// commit if a second one fails).
    ///
    /// # Safety
    /// That of [`ByteAllocator::resize`].
    pub(crate) unsafe fn resize_block(
        &mut self,
        at: NonNull<u8>,
        layout: Layout,
    ) -> Result<NonNull<u8>, ResizeBytesError> {
        // SAFETY: the contract of this function.
        let Located { block, header, pool } = unsafe { self.locate(at)? };
        let Some((_, need)) = Self::class_of(layout.size()) else {
            return Err(Self::never(layout).into());
        };
        let size = header & SIZE_MASK;
        // SAFETY: a used block's size leads to the tag after it.
        let after = unsafe { block.after(size) };
        let after_header = after.header();
        let after_size = if after_header & FREE != 0 { after_header & SIZE_MASK } else { 0 };
        let around = Around { block, header, size, after, after_size, pool };
        if at.addr().get() & (layout.align() - 1) == 0 && need <= size + after_size {
            self.stay(around, need)?;
            return Ok(at);
        }
        match self.allocate(layout) {
            Ok(new) => {
                let kept = (size - HEADER_BYTES).min(layout.size());
                // SAFETY: both blocks are used, so they do not overlap; the old
                // one has `size - HEADER_BYTES` bytes of payload, the new one
                // as many as the layout says.
                unsafe { ptr::copy_nonoverlapping(at.as_ptr(), new.as_ptr(), kept) };
                // SAFETY: the caller gave the block up.
                let freed = unsafe { self.free(at) };
                if let Err(error) = freed {
                    // The block is still the caller's, and the other one nobody's.
                    // SAFETY: it was allocated just now, and nobody knows it.
                    let _ = unsafe { self.free(new) };
                    return Err(error.into());
                }
                Ok(new)
            }
            Err(error @ AllocateBytesError::OutOfMemory { .. }) => {
                self.slide(around, layout, need, error)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn never(layout: Layout) -> AllocateBytesError {
        AllocateBytesError::TooLarge { size_bytes: layout.size(), align_bytes: layout.align() }
    }

    /// Moves the end of the block to where it has `need_bytes`.
    fn stay(&mut self, around: Around, need_bytes: usize) -> Result<(), AllocateBytesError> {
        let Around { block, header, size, after, after_size, pool } = around;
        let total = size + after_size;
        let rest = total - need_bytes;
        if after_size == 0 && rest < MIN_BLOCK_BYTES {
            return Ok(());
        }
        self.rests_intact(total, 0, need_bytes, pool).map_err(AllocateBytesError::Corrupt)?;
        let end = block.address() + total;
        let taken = if rest >= MIN_BLOCK_BYTES { need_bytes } else { total };
        let (old, new) = (after.address(), block.address() + taken);
        if S::RELEASES && new > old {
            let pages = self.pages_of(old, old, new, end);
            self.commit(block, pages).map_err(AllocateBytesError::Source)?;
        }
        if after_size > 0 {
            self.bins.unlink(after, after_size);
        }
        self.set_used(block, total, need_bytes, header & PREV_FREE);
        if S::RELEASES && new < old {
            let pages = self.pages_of(new, new, old, end);
            self.release(block, pages);
        }
        Ok(())
    }

    /// Moves the block down to where the free block before it starts; if that
    /// cannot be, the reason is `error`.
    fn slide(
        &mut self,
        around: Around,
        layout: Layout,
        need_bytes: usize,
        error: AllocateBytesError,
    ) -> Result<NonNull<u8>, ResizeBytesError> {
        let Around { block, header, size, after, after_size, pool } = around;
        if header & PREV_FREE == 0 || layout.align() > GRANULE_BYTES {
            return Err(error.into());
        }
        let Some(start) = block.before() else { return Err(error.into()) };
        let before_size = start.header() & SIZE_MASK;
        let total = before_size + size + after_size;
        if need_bytes > total {
            return Err(error.into());
        }
        self.rests_intact(total, 0, need_bytes, pool).map_err(AllocateBytesError::Corrupt)?;
        let end = start.address() + total;
        let inside = |heap: &Self, from: Block, len: usize| {
            let from = from.address();
            heap.pages_of(from, from, from + len, from + len)
        };
        if S::RELEASES {
            let before_pages = inside(self, start, before_size);
            self.commit(start, before_pages).map_err(AllocateBytesError::Source)?;
            if after_size > 0 {
                let after_pages = inside(self, after, after_size);
                if let Err(error) = self.commit(start, after_pages) {
                    self.release(start, before_pages);
                    return Err(AllocateBytesError::Source(error).into());
                }
            }
        }
        self.bins.unlink(start, before_size);
        if after_size > 0 {
            self.bins.unlink(after, after_size);
        }
        let kept = (size - HEADER_BYTES).min(layout.size());
        // SAFETY: both payloads lie in the space that was just taken out of the
        // lists together with the block; all its pages are committed.
        unsafe { ptr::copy(block.payload().as_ptr(), start.payload().as_ptr(), kept) };
        // The block before a free one is used.
        self.set_used(start, total, need_bytes, 0);
        if S::RELEASES && total - need_bytes >= MIN_BLOCK_BYTES {
            let rest = start.address() + need_bytes;
            let pages = self.pages_of(rest, rest, end, end);
            self.release(start, pages);
        }
        Ok(start.payload())
    }
}
