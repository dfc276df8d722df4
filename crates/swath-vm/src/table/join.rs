//! Blocks that become one: what demand paging needs so that its pages coalesce.
//!
//! A page that is mapped alone says that it is alone, whatever stands beside it. Where its
//! neighbours' frames go on from its own, all of them may say so, and then one walk gives a TLB
//! the whole run. What a TLB holds already stays right, and as short as it was.

use swath_arch::{BusError, PageRange, PhysMemory, Vpn};
use swath_frame::FrameAllocator;

use crate::table::encode::{self, Entry, Leaf};
use crate::table::error::TranslateError;
use crate::table::space::{AddressSpace, first_not_canonical};
use crate::table::unmap::Side;

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Makes one block of the pages around `page` that follow one another in frames, too, with the
    /// same attributes and the same owner, and returns them. A larger page is returned as it is.
    ///
    /// A read for each page of the run and the two beside it, a walk of l - 1 reads per leaf table;
    /// then as many reads and writes as the run's pages have numbers. No TLB has to be told.
    ///
    /// # Errors
    /// [`TranslateError`]. After [`TranslateError::Bus`] some pages may claim more than before; all
    /// claims are true.
    pub fn join_blocks(&mut self, page: Vpn) -> Result<PageRange, TranslateError> {
        let format = self.regime.format;
        if first_not_canonical(format, PageRange::new(page, 1)).is_some() {
            return Err(TranslateError::NotCanonical { page });
        }
        let found = self.view().find(page)?;
        let Entry::Leaf(leaf) = encode::decode(format, found.level, found.word) else {
            return Err(TranslateError::NotMapped { page });
        };
        if found.level != self.view().leaf_level() || leaf.order.k() != 0 {
            let order = leaf.order;
            return Ok(PageRange::new(page.align_down(order.k()), order.frames()));
        }
        let mut leaf_table = None;
        let (mut before, mut after) = (0, 1);
        while let Some(near) = page.checked_sub(before + 1)
            && let Some(frame) = leaf.frame.checked_sub(before + 1)
            && self.is_leaf(&mut leaf_table, near, Leaf { frame, ..leaf })?
        {
            before += 1;
        }
        while self.is_leaf(
            &mut leaf_table,
            page + after,
            Leaf { frame: leaf.frame + after, ..leaf },
        )? {
            after += 1;
        }
        let run = PageRange::new(Vpn::new(page.raw() - before), before + after);
        // From the ends inwards: at every moment a page that reaches an end has only such beside it.
        self.claim(Side::After(run.start), run)?;
        self.claim(Side::Before(run.end()), run)?;
        Ok(run)
    }

    /// Returns true if the page is mapped as a base page that says this.
    fn is_leaf(
        &self,
        leaf_table: &mut Option<(u64, swath_arch::PhysAddr)>,
        page: Vpn,
        leaf: Leaf,
    ) -> Result<bool, BusError> {
        let (format, level) = (self.regime.format, self.view().leaf_level());
        let found = self.base_page(leaf_table, page)?;
        Ok(found.is_some_and(|(_, word)| encode::decode(format, level, word) == Entry::Leaf(leaf)))
    }

    /// Lets the pages of the run claim all up to one of its ends.
    fn claim(&mut self, side: Side, run: PageRange) -> Result<(), BusError> {
        let Some(place) = self.place(side) else { return Ok(()) };
        let mut leaf_table = None;
        let mut i = 0;
        while let Some((page, limit)) = self.beyond(side, i).filter(|(page, _)| run.contains(*page))
        {
            if let Some((at, word)) = self.base_page(&mut leaf_table, page)?
                && place.get(self.view(), at, word)? != limit
            {
                self.statistics.descriptor_writes += place.set(self.view(), at, limit)?;
            }
            i += 1;
        }
        Ok(())
    }
}
