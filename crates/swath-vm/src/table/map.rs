//! Mapping: given frames, eager paging and demand paging.
//!
//! Reads and writes of descriptors are counted here in terms of n, the pages
//! of the range; t, the leaf tables that it touches; l, the format's levels;
//! and e, the entries of a table. A table costs one clearing of its frames when
//! it is made.

use swath_arch::{Attributes, Extent, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Vpn};
use swath_frame::FrameAllocator;

use crate::table::contiguity;
use crate::table::encode::{self, Leaf};
use crate::table::error::{DemandPagingError, EagerPagingError, MapPagesError, PageSizeError};
use crate::table::piece::Piece;
use crate::table::sizes::Sizes;
use crate::table::space::{AddressSpace, first_not_canonical, free_allocated};
use crate::table::walk::Way;

/// The leaf table where the last page was mapped, kept from block to block of
/// one operation.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// The page number without its index into the leaf table.
    tag: u64,
    table: PhysAddr,
    /// The entry that links it.
    link: PhysAddr,
    /// No entry from the last page on is in use, since the operation made the
    /// table.
    fresh: bool,
}

/// The owner of a mapping's frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Space,
    Other,
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Maps frames that somebody else gives: unmapping and dropping leave them
    /// alone. The extent is one block of base pages, of any length and
    /// alignment.
    ///
    /// n descriptor writes, at most n reads (none in tables that are made for
    /// it), t walks of l - 1 reads; with [`ContiguityField::Line`] the lines at the two ends are read
    /// besides, and of their other descriptors those written whose bits change.
    ///
    /// [`ContiguityField::Line`]: swath_arch::ContiguityField::Line
    ///
    /// # Errors
    /// [`MapPagesError`]; nothing has changed.
    pub fn map(
        &mut self,
        start: Vpn,
        extent: Extent,
        attributes: Attributes,
    ) -> Result<(), MapPagesError> {
        let range = PageRange::new(start, extent.count);
        self.check_range(range)?;
        self.map_block(&mut None, start, extent, attributes, Owner::Other)
    }

    /// Maps one page of a larger size, or a base page, to frames that somebody
    /// else gives. Larger pages take one entry, or 16 alike (ARMv7's large
    /// pages and supersections, ARMv8's contiguous bit); they carry no
    /// contiguity.
    ///
    /// One walk of at most l - 1 reads, and a read and a write per entry.
    ///
    /// # Errors
    /// [`PageSizeError`]; nothing has changed.
    pub fn map_page_size(
        &mut self,
        page: Vpn,
        frame: Pfn,
        order: Order,
        attributes: Attributes,
    ) -> Result<(), PageSizeError> {
        let format = self.regime.format;
        let level = format.levels().iter().position(|level| level.leaves.contains(&order));
        let Some(level) = level else {
            return Err(PageSizeError::NoSuchSize { order });
        };
        if !page.is_aligned(order.k()) {
            return Err(PageSizeError::PageMisaligned { page, order });
        }
        if !frame.is_aligned(order.k()) {
            return Err(PageSizeError::FrameMisaligned { frame, order });
        }
        if order == Order::BASE {
            return self.map(page, Extent::new(frame, 1), attributes).map_err(PageSizeError::Map);
        }
        self.map_large(level, page, frame, order, attributes).map_err(PageSizeError::Map)
    }

    fn map_large(
        &mut self,
        level: usize,
        page: Vpn,
        frame: Pfn,
        order: Order,
        attributes: Attributes,
    ) -> Result<(), MapPagesError> {
        let format = self.regime.format;
        self.check_range(PageRange::new(page, order.frames()))?;
        // Only a supersection says more of the address than the format's 32
        // bits.
        let supersection = format == Format::ArmV7 && order == Order::known(12);
        let pa_bits = if supersection { 40 } else { format.pa_bits() };
        if frame.raw() >> (pa_bits - swath_arch::BASE_PAGE_SHIFT) != 0 {
            return Err(MapPagesError::FrameOutOfReach { frame });
        }
        let Way { table, link, fresh } = self.table_for(page, level)?;
        let view = self.view();
        let entry_order = view.entry_order(level);
        let copies = 1 << (order.k() - entry_order.k());
        let first = view.index(level, page);
        let beside = level == view.leaf_level() && view.table_order(level) == Order::known(1);
        let said = Leaf { order, frame, attributes, owned: false };
        let word = encode::leaf(format, level, said);
        let step = encode::copy_step(format, entry_order);
        if !fresh {
            for i in 0..copies {
                if encode::in_use(format, view.read(view.entry(table, first + i))?) {
                    let page = page + (i << entry_order.k());
                    return Err(MapPagesError::AlreadyMapped { page });
                }
            }
        }
        if let Err(bus) = self.occupy(level, link, copies as i64) {
            self.prune(page);
            return Err(bus.into());
        }
        for i in 0..copies {
            let at = self.view().entry(table, first + i);
            let zeroed = if beside { self.view().write(contiguity::beside(at), 0) } else { Ok(()) };
            let written = zeroed.and_then(|()| self.write(at, word + i * step));
            if let Err(bus) = written {
                for j in 0..i {
                    // Failing, it stays mapped, to be unmapped or dropped.
                    let at = self.view().entry(table, first + j);
                    let _ = self.write(at, 0);
                }
                self.recount(level, link, table);
                self.prune(page);
                return Err(bus.into());
            }
        }
        self.statistics.blocks_mapped += 1;
        Ok(())
    }

    /// Maps frames that somebody else gives in pages as large as place and length allow: from the
    /// start on, each time the largest of `sizes` to which page and frame are aligned and which the
    /// rest holds, else base pages up to the next place where one fits, as one block.
    ///
    /// Costs as for [`map_page_size`](Self::map_page_size) and [`map`](Self::map), for each page and
    /// block.
    ///
    /// # Errors
    /// [`PageSizeError::NoSuchSize`] or [`PageSizeError::Map`]; nothing has changed.
    pub fn map_largest(
        &mut self,
        start: Vpn,
        extent: Extent,
        sizes: Sizes,
        attributes: Attributes,
    ) -> Result<(), PageSizeError> {
        let there = Sizes::all(self.regime.format);
        if let Some(order) = sizes.iter().find(|&order| !there.contains(order)) {
            return Err(PageSizeError::NoSuchSize { order });
        }
        self.check_range(PageRange::new(start, extent.count)).map_err(PageSizeError::Map)?;
        let fits = |done: u64, order: Order| {
            let (page, frame) = (start + done, extent.start + done);
            page.is_aligned(order.k())
                && frame.is_aligned(order.k())
                && order.frames() <= extent.count - done
        };
        let largest = |done| sizes.iter().rev().find(|&order| fits(done, order));
        let smallest = sizes.iter().next().map_or(extent.count, Order::frames);
        let mut done = 0;
        while done < extent.count {
            let (page, frame) = (start + done, extent.start + done);
            let (count, mapped) = if let Some(order) = largest(done) {
                (order.frames(), self.map_page_size(page, frame, order, attributes))
            } else {
                let mut past = done;
                while past < extent.count && largest(past).is_none() {
                    let next = smallest - (start + past).raw() % smallest;
                    past = (past + next).min(extent.count);
                }
                let block = Extent::new(frame, past - done);
                (past - done, self.map(page, block, attributes).map_err(PageSizeError::Map))
            };
            if let Err(error) = mapped {
                self.undo(PageRange::new(start, done));
                return Err(error);
            }
            done += count;
        }
        Ok(())
    }

    /// Allocates frames for the whole range before it is used (eager paging), block
    /// by block as the allocator gives them, and maps each block with its
    /// contiguity (Duong and Hur, Fig. 4). `sink` is told each block once it
    /// is mapped, ascending in pages. The space owns the frames.
    ///
    /// Costs as for [`map`](Self::map), with one walk per leaf table whatever
    /// the number of blocks.
    ///
    /// # Errors
    /// [`EagerPagingError`]; nothing has changed, all frames are back, and what
    /// `sink` was told is void.
    pub fn allocate_eager(
        &mut self,
        range: PageRange,
        attributes: Attributes,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), EagerPagingError> {
        self.check_range(range).map_err(EagerPagingError::Map)?;
        let free = self.frames.free_frames();
        let short = EagerPagingError::OutOfFrames { wanted: range.count, free };
        if range.count > free {
            return Err(short);
        }
        let mut cursor = None;
        let mut done = 0;
        while done < range.count {
            let page = range.start + done;
            // Tables may have come from the same frames: none may be left.
            let taken = self.frames.allocate_block(range.count - done);
            let mapped = match taken {
                None => Err(short),
                Some(block) => self
                    .map_block(&mut cursor, page, block, attributes, Owner::Space)
                    .map_err(EagerPagingError::Map),
            };
            match (mapped, taken) {
                (Ok(()), Some(block)) => {
                    sink(block);
                    done += block.count;
                }
                (Err(error), _) => {
                    self.undo(PageRange::new(range.start, done));
                    return Err(error);
                }
                (Ok(()), None) => return Err(short),
            }
        }
        Ok(())
    }

    /// Allocates one frame for the page and maps it (demand paging), as a block of
    /// its own. The space owns the frame.
    ///
    /// One walk of l - 1 reads, one read, one write.
    ///
    /// # Errors
    /// [`DemandPagingError`]; nothing has changed.
    pub fn fault(&mut self, page: Vpn, attributes: Attributes) -> Result<Pfn, DemandPagingError> {
        self.check_range(PageRange::new(page, 1)).map_err(DemandPagingError::Map)?;
        let frame = self.frames.allocate_frame().ok_or(DemandPagingError::OutOfFrames)?;
        self.map_block(&mut None, page, Extent::new(frame, 1), attributes, Owner::Space)
            .map_err(DemandPagingError::Map)?;
        Ok(frame)
    }

    fn check_range(&self, range: PageRange) -> Result<(), MapPagesError> {
        if range.is_empty() {
            return Err(MapPagesError::Empty);
        }
        match first_not_canonical(self.regime.format, range) {
            Some(page) => Err(MapPagesError::NotCanonical { page }),
            None => Ok(()),
        }
    }

    /// Maps one block, or takes back all that was done for it: its frames too,
    /// if they are the space's.
    fn map_block(
        &mut self,
        cursor: &mut Option<Cursor>,
        start: Vpn,
        block: Extent,
        attributes: Attributes,
        owner: Owner,
    ) -> Result<(), MapPagesError> {
        let owned = owner == Owner::Space;
        let Err((error, written)) = self.write_block(cursor, start, block, attributes, owned)
        else {
            self.statistics.blocks_mapped += 1;
            return Ok(());
        };
        *cursor = None;
        self.undo(PageRange::new(start, written));
        self.prune(start + written);
        if owned {
            let first = block.start + written;
            free_allocated(&mut self.frames, Extent::new(first, block.count - written));
        }
        Err(error)
    }

    /// Writes the block's descriptors, leaf table by leaf table.
    ///
    /// # Errors
    /// The error, and how many pages were mapped before it.
    fn write_block(
        &mut self,
        cursor: &mut Option<Cursor>,
        start: Vpn,
        block: Extent,
        attributes: Attributes,
        owned: bool,
    ) -> Result<(), (MapPagesError, u64)> {
        let format = self.regime.format;
        let last = 1_u64 << (format.pa_bits() - swath_arch::BASE_PAGE_SHIFT);
        if block.start.raw() >= last || block.count > last - block.start.raw() {
            let frame = Pfn::new(block.start.raw().max(last));
            return Err((MapPagesError::FrameOutOfReach { frame }, 0));
        }
        let level = self.view().leaf_level();
        let said = Leaf { order: Order::BASE, frame: block.start, attributes, owned };
        let word = encode::leaf(format, level, said);
        let entries = self.view().entries(level);
        let mut done = 0;
        while done < block.count {
            let page = start + done;
            let index = self.view().index(level, page);
            let tag = page.raw() - index;
            let Cursor { table, link, fresh, .. } = match *cursor {
                Some(cursor) if cursor.tag == tag => cursor,
                _ => {
                    let Way { table, link, fresh } =
                        self.table_for(page, level).map_err(|e| (e, done))?;
                    *cursor.insert(Cursor { tag, table, link, fresh })
                }
            };
            let count = (entries - index).min(block.count - done);
            let view = self.view();
            if !fresh {
                for i in 0..count {
                    let word = view
                        .read(view.entry(table, index + i))
                        .map_err(|bus| (MapPagesError::Bus(bus), done))?;
                    if encode::in_use(format, word) {
                        let page = page + i;
                        return Err((MapPagesError::AlreadyMapped { page }, done));
                    }
                }
            }
            self.occupy(level, link, count as i64)
                .map_err(|bus| (MapPagesError::Bus(bus), done))?;
            let view = self.view();
            let piece = Piece {
                at: view.entry(table, index),
                page: page.raw(),
                word: word.wrapping_add(encode::word_step(format, done)),
                before: done,
                after: block.count - done,
                count,
            };
            match contiguity::write_piece(view, piece) {
                Ok(others) => self.statistics.descriptor_writes += count + others,
                Err((bus, i)) => {
                    self.statistics.descriptor_writes += i;
                    self.recount(level, link, table);
                    return Err((MapPagesError::Bus(bus), done + i));
                }
            }
            done += count;
        }
        Ok(())
    }
}
