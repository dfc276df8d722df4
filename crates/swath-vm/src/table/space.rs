//! An address space: mapping, eager and demand paging.
//!
//! Reads and writes of descriptors are counted here in terms of n, the pages
//! of the range; t, the leaf tables that it touches; l, the format's levels;
//! and e, the entries of a table. A table costs one clearing of its frames when
//! it is made.

use swath_arch::{
    Attributes, BusError, Coalescing, ContiguityField, Extent, Format, Order, PageRange, Pfn,
    PhysAddr, PhysMemory, Regime, Vpn,
};
use swath_frame::FrameAllocator;

use crate::table::contiguity::{
    Piece, {self},
};
use crate::table::encode::{
    Leaf, {self},
};
use crate::table::error::{AllocateError, FaultError, MapError, NewError, PageSizeError};
use crate::table::superpage::Sizes;
use crate::table::upper::Way;
use crate::table::walk::{Below, View, Visit};

/// What a space has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Statistics {
    /// Blocks mapped by `map`, `allocate_eager` (each block of the chunk) and
    /// `fault`, and larger pages.
    pub blocks_mapped: u64,
    /// Words of tables written: descriptors, corrections of contiguity and
    /// links to tables. A word beside a descriptor comes with it.
    pub descriptor_writes: u64,
    /// Times that the way from the root to a table was walked in order to map.
    pub walks: u64,
}

/// An address space over memory `M`, with pages from the allocator `A` and
/// tables from the allocator `T`. All three are handles: `&memory`,
/// `&RefCell<allocator>`; `A` and `T` may be handles of the same allocator.
///
/// Dropping a space gives back the frames that it took, for pages and for
/// tables, in one reading of every entry of every table.
///
/// Invariants, walked by [`check`](Self::check):
/// - `table_frames` is the frames of the tables reached from the root, which
///   were taken from `tables`; nobody else writes to them.
/// - A table other than the root has an entry in use, unless memory has failed.
/// - With superpages, the word beside a link says how many entries of the table
///   are in use, and a table kept beside a superpage is no other's and says what
///   the superpage says, or something else in its first entry.
/// - Each of 16 entries that make one page says the same.
/// - No descriptor claims contiguity that is not there: within `page - Descend`
///   to `page + Ascend` (or from an anchor on) every page is mapped, and to
///   frames as contiguous as the pages.
#[derive(Debug)]
pub struct AddressSpace<M: PhysMemory, A: FrameAllocator, T: FrameAllocator = A> {
    pub(crate) memory: M,
    pub(crate) frames: A,
    pub(crate) tables: T,
    pub(crate) regime: Regime,
    /// The superpage sizes that are on, if the space was made for superpages.
    pub(crate) sizes: Option<Sizes>,
    pub(crate) table_frames: u64,
    pub(crate) statistics: Statistics,
}

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

/// Who gives the frames of a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Space,
    Other,
}

/// The first page of the range that the format does not translate.
pub(crate) fn first_not_canonical(format: Format, range: PageRange) -> Option<Vpn> {
    let fits = |page: Vpn| page.raw() >> 52 == 0 && format.is_canonical(page.address());
    if !fits(range.start) {
        return Some(range.start);
    }
    // Within one half of the addresses, what is canonical ends at a power of
    // two: the lower end of the next such range is not canonical, or is the end
    // of all.
    let end = match format {
        Format::ArmV7 => 1 << 20,
        Format::ArmV8 => 1 << 36,
        Format::X86_64 if range.start.raw() >> 51 == 0 => 1 << 35,
        Format::X86_64 => 1 << 52,
    };
    (range.count > end - range.start.raw()).then_some(Vpn::new(end))
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// An empty space. Takes and clears the root table.
    ///
    /// # Errors
    /// [`NewError`]; nothing is taken.
    pub fn new(
        format: Format,
        coalescing: Coalescing,
        memory: M,
        frames: A,
        tables: T,
    ) -> Result<Self, NewError> {
        Self::make(format, coalescing, None, memory, frames, tables)
    }

    /// An empty space for superpages (see [`superpage`](crate::table::superpage)),
    /// whose tables above the leaf tables are twice as large. Takes and clears
    /// the root table.
    ///
    /// # Errors
    /// [`NewError`]: [`NoSuchSize`](NewError::NoSuchSize) if the format has
    /// none of a size in `sizes`; nothing is taken.
    pub fn with_superpages(
        format: Format,
        sizes: Sizes,
        memory: M,
        frames: A,
        tables: T,
    ) -> Result<Self, NewError> {
        let there = Sizes::all(format);
        if let Some(order) = sizes.iter().find(|&order| !there.contains(order)) {
            return Err(NewError::NoSuchSize { order });
        }
        Self::make(format, Coalescing::None, Some(sizes), memory, frames, tables)
    }

    fn make(
        format: Format,
        coalescing: Coalescing,
        sizes: Option<Sizes>,
        memory: M,
        frames: A,
        mut tables: T,
    ) -> Result<Self, NewError> {
        if let Coalescing::Anchor { distance, .. } = coalescing
            && !(1..=16).contains(&distance.k())
        {
            return Err(NewError::Distance { distance });
        }
        if let Coalescing::Pcad(ContiguityField::Beside { bits })
        | Coalescing::Anchor { field: ContiguityField::Beside { bits }, .. } = coalescing
        {
            let bits_max = format.beside_half_bits();
            if bits == 0 || u32::from(bits) > bits_max {
                return Err(NewError::Width { bits, bits_max });
            }
        }
        let root = PhysAddr::new(0);
        let mut regime = Regime { format, root, coalescing };
        let order = View { memory: &memory, regime, superpages: sizes.is_some() }.table_order(0);
        let root = tables.allocate_aligned(order).map_err(NewError::NoTable)?;
        regime.root = root.start.address();
        let ready = if out_of_reach(format, root) {
            Err(NewError::TableOutOfReach { frame: root.start })
        } else {
            clear(&memory, root).map_err(NewError::Bus)
        };
        if let Err(error) = ready {
            give_back(&mut tables, root);
            return Err(error);
        }
        Ok(Self {
            memory,
            frames,
            tables,
            regime,
            sizes,
            table_frames: root.count,
            statistics: Statistics::default(),
        })
    }

    /// What the hardware is told: format, root and coalescing.
    pub const fn regime(&self) -> Regime {
        self.regime
    }

    /// Frames that the tables take, the root's included.
    pub const fn table_frames(&self) -> u64 {
        self.table_frames
    }

    /// What has been done so far.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    #[inline]
    pub(crate) const fn view(&self) -> View<'_, M> {
        View { memory: &self.memory, regime: self.regime, superpages: self.sizes.is_some() }
    }

    /// The superpage sizes that are on; `None` if the space was not made for
    /// superpages.
    pub const fn sizes(&self) -> Option<Sizes> {
        self.sizes
    }

    /// Writes one word of a table and counts it.
    #[inline]
    pub(crate) fn write(&mut self, at: PhysAddr, word: u64) -> Result<(), BusError> {
        self.view().write(at, word)?;
        self.statistics.descriptor_writes += 1;
        Ok(())
    }

    /// Maps frames that somebody else gives: unmapping and dropping leave them
    /// alone. The extent is one block of base pages, of any length and
    /// alignment.
    ///
    /// n descriptor writes, at most n reads (none in tables that are made for
    /// it), t walks of l - 1 reads.
    ///
    /// # Errors
    /// [`MapError`]; nothing has changed.
    pub fn map(
        &mut self,
        start: Vpn,
        extent: Extent,
        attributes: Attributes,
    ) -> Result<(), MapError> {
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
    ) -> Result<(), MapError> {
        let format = self.regime.format;
        self.check_range(PageRange::new(page, order.frames()))?;
        // Only a supersection says more of the address than the format's 32
        // bits.
        let supersection = format == Format::ArmV7 && order == Order::known(12);
        let pa_bits = if supersection { 40 } else { format.pa_bits() };
        if frame.raw() >> (pa_bits - swath_arch::BASE_PAGE_SHIFT) != 0 {
            return Err(MapError::FrameOutOfReach { frame });
        }
        let Way { table, link, fresh } = self.table_for(page, level)?;
        let view = self.view();
        let entry_order = view.entry_order(level);
        let copies = 1 << (order.k() - entry_order.k());
        let first = view.index(level, page);
        let beside = level == view.leaf_level() && view.table_order(level) == Order::known(1);
        let said = Leaf { order, frame, attributes, owned: false };
        let word = encode::leaf(format, level, said);
        let stride_bytes = encode::copy_stride_bytes(format, entry_order);
        if !fresh {
            for i in 0..copies {
                if encode::in_use(format, view.read(view.entry(table, first + i))?) {
                    let page = Vpn::new(page.raw() + (i << entry_order.k()));
                    return Err(MapError::AlreadyMapped { page });
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
            let written = zeroed.and_then(|()| self.write(at, word + i * stride_bytes));
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

    /// Eager paging: takes frames for the whole range before it is used, block
    /// by block as the allocator gives them, and maps each block with its
    /// contiguity (the PBS paper's Fig. 4). `sink` is told each block once it
    /// is mapped, ascending in pages. The space owns the frames.
    ///
    /// Costs as for [`map`](Self::map), with one walk per leaf table whatever
    /// the number of blocks.
    ///
    /// # Errors
    /// [`AllocateError`]; nothing has changed, all frames are back, and what
    /// `sink` was told is void.
    pub fn allocate_eager(
        &mut self,
        range: PageRange,
        attributes: Attributes,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), AllocateError> {
        self.check_range(range).map_err(AllocateError::Map)?;
        let free = self.frames.free_frames();
        let short = AllocateError::OutOfFrames { wanted: range.count, free };
        if range.count > free {
            return Err(short);
        }
        let mut cursor = None;
        let mut done = 0;
        while done < range.count {
            let page = Vpn::new(range.start.raw() + done);
            // Tables may have come from the same frames: none may be left.
            let taken = self.frames.allocate_block(range.count - done);
            let mapped = match taken {
                None => Err(short),
                Some(block) => self
                    .map_block(&mut cursor, page, block, attributes, Owner::Space)
                    .map_err(AllocateError::Map),
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

    /// Demand paging: takes one frame for the page and maps it, as a block of
    /// its own. The space owns the frame.
    ///
    /// One walk of l - 1 reads, one read, one write.
    ///
    /// # Errors
    /// [`FaultError`]; nothing has changed.
    pub fn fault(&mut self, page: Vpn, attributes: Attributes) -> Result<Pfn, FaultError> {
        self.check_range(PageRange::new(page, 1)).map_err(FaultError::Map)?;
        let frame = self.frames.allocate_frame().ok_or(FaultError::OutOfFrames)?;
        self.map_block(&mut None, page, Extent::new(frame, 1), attributes, Owner::Space)
            .map_err(FaultError::Map)?;
        Ok(frame)
    }

    fn check_range(&self, range: PageRange) -> Result<(), MapError> {
        if range.is_empty() {
            return Err(MapError::Empty);
        }
        match first_not_canonical(self.regime.format, range) {
            Some(page) => Err(MapError::NotCanonical { page }),
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
    ) -> Result<(), MapError> {
        let owned = owner == Owner::Space;
        let Err((error, written)) = self.write_block(cursor, start, block, attributes, owned)
        else {
            self.statistics.blocks_mapped += 1;
            return Ok(());
        };
        *cursor = None;
        self.undo(PageRange::new(start, written));
        self.prune(Vpn::new(start.raw() + written));
        if owned {
            let first = Pfn::new(block.start.raw() + written);
            give_back(&mut self.frames, Extent::new(first, block.count - written));
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
    ) -> Result<(), (MapError, u64)> {
        let Regime { format, coalescing, .. } = self.regime;
        let last = 1_u64 << (format.pa_bits() - swath_arch::BASE_PAGE_SHIFT);
        if block.start.raw() >= last || block.count > last - block.start.raw() {
            let frame = Pfn::new(block.start.raw().max(last));
            return Err((MapError::FrameOutOfReach { frame }, 0));
        }
        let level = self.view().leaf_level();
        let said = Leaf { order: Order::BASE, frame: block.start, attributes, owned };
        let word = encode::leaf(format, level, said);
        let entries = self.view().entries(level);
        let mut done = 0;
        while done < block.count {
            let page = Vpn::new(start.raw() + done);
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
                        .map_err(|bus| (MapError::Bus(bus), done))?;
                    if encode::in_use(format, word) {
                        let page = Vpn::new(page.raw() + i);
                        return Err((MapError::AlreadyMapped { page }, done));
                    }
                }
            }
            self.occupy(level, link, count as i64).map_err(|bus| (MapError::Bus(bus), done))?;
            let view = self.view();
            let piece = Piece {
                at: view.entry(table, index),
                page: page.raw(),
                word: word.wrapping_add(done * swath_arch::BASE_PAGE_BYTES),
                before: done,
                after: block.count - done,
                count,
            };
            let written = contiguity::write_piece(format, &self.memory, coalescing, piece);
            if let Err((bus, i)) = written {
                self.statistics.descriptor_writes += i;
                self.recount(level, link, table);
                return Err((MapError::Bus(bus), done + i));
            }
            self.statistics.descriptor_writes += count;
            done += count;
        }
        Ok(())
    }
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> Drop for AddressSpace<M, A, T> {
    fn drop(&mut self) {
        let superpages = self.sizes.is_some();
        let view = View { memory: &self.memory, regime: self.regime, superpages };
        let mut pending = Extent::default();
        let mut last_table = None;
        let (frames, tables) = (&mut self.frames, &mut self.tables);
        // What cannot be read cannot be given back.
        let _ = view.visit(|visit| match visit {
            Visit::Leaf { page, leaf, .. } => {
                let first = page.raw() & (leaf.order.frames() - 1) == 0;
                if leaf.owned && first {
                    let more = Extent::new(leaf.frame, leaf.order.frames());
                    if let Some(done) = append(&mut pending, more) {
                        give_back(frames, done);
                    }
                }
            }
            Visit::Table(Below { level, table, .. }) => {
                // ARMv7's four tables in a frame follow one another.
                if last_table != Some(table.frame()) {
                    let order = view.table_order(level);
                    give_back(tables, Extent::new(table.frame(), order.frames()));
                }
                last_table = Some(table.frame());
            }
        });
        if !pending.is_empty() {
            give_back(frames, pending);
        }
        let root = Extent::new(self.regime.root.frame(), view.table_order(0).frames());
        give_back(tables, root);
    }
}

/// Adds `more` to `pending`; if the two do not join, `more` takes the place of
/// what was pending, which is returned.
pub(crate) fn append(pending: &mut Extent, more: Extent) -> Option<Extent> {
    if pending.is_empty() {
        *pending = more;
        return None;
    }
    if pending.end() == more.start {
        pending.count += more.count;
        return None;
    }
    Some(core::mem::replace(pending, more))
}

/// Gives back frames that were taken from this allocator. It can refuse only
/// if somebody else has freed them, and then there is nothing to give.
pub(crate) fn give_back<A: FrameAllocator>(allocator: &mut A, extent: Extent) {
    let _ = allocator.free(extent);
}

pub(crate) fn out_of_reach(format: Format, frames: Extent) -> bool {
    frames.end().raw() > 1 << (format.pa_bits() - swath_arch::BASE_PAGE_SHIFT)
}

pub(crate) fn clear<M: PhysMemory>(memory: &M, frames: Extent) -> Result<(), BusError> {
    frames.iter().try_for_each(|frame| memory.zero_frame(frame))
}
