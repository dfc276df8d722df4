//! An address space: its making and its end.

use swath_arch::{
    BASE_PAGE_SHIFT, BusError, Coalescing, ContiguityField, Extent, Format, PageRange, PhysAddr,
    PhysMemory, Regime, Vpn,
};
use swath_frame::FrameAllocator;

use crate::table::error::NewSpaceError;
use crate::table::sizes::Sizes;
use crate::table::walk::{Below, View, Visit};

/// Counts of a space's work since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SpaceStatistics {
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
    pub(crate) statistics: SpaceStatistics,
}

/// Returns the first page of the range that the format does not translate.
pub(crate) fn first_not_canonical(format: Format, range: PageRange) -> Option<Vpn> {
    const ALL: u64 = 1 << (u64::BITS - BASE_PAGE_SHIFT);
    let halves = u32::from(format.has_halves());
    let lower_end = 1_u64 << (format.va_bits() - BASE_PAGE_SHIFT - halves);
    let start = range.start.raw();
    let end = if start < lower_end {
        lower_end
    } else if halves == 1 && (ALL - lower_end..ALL).contains(&start) {
        ALL
    } else {
        return Some(range.start);
    };
    (range.count > end - start).then_some(Vpn::new(end))
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Makes an empty space. Takes and clears the root table.
    ///
    /// # Errors
    /// [`NewSpaceError`]; nothing is taken.
    pub fn new(
        format: Format,
        coalescing: Coalescing,
        memory: M,
        frames: A,
        tables: T,
    ) -> Result<Self, NewSpaceError> {
        Self::make(format, coalescing, None, memory, frames, tables)
    }

    /// Makes an empty space for superpages (see [`superpage`](crate::table::superpage)),
    /// whose tables above the leaf tables are twice as large. Takes and clears
    /// the root table.
    ///
    /// # Errors
    /// [`NewSpaceError`]: [`NoSuchSize`](NewSpaceError::NoSuchSize) if the format has
    /// none of a size in `sizes`; nothing is taken.
    pub fn with_superpages(
        format: Format,
        sizes: Sizes,
        memory: M,
        frames: A,
        tables: T,
    ) -> Result<Self, NewSpaceError> {
        let there = Sizes::all(format);
        if let Some(order) = sizes.iter().find(|&order| !there.contains(order)) {
            return Err(NewSpaceError::NoSuchSize { order });
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
    ) -> Result<Self, NewSpaceError> {
        if let Coalescing::Anchor { distance, .. } = coalescing
            && !(1..=16).contains(&distance.k())
        {
            return Err(NewSpaceError::Distance { distance });
        }
        if let Coalescing::Pcad(ContiguityField::Beside { bits })
        | Coalescing::Anchor { field: ContiguityField::Beside { bits }, .. } = coalescing
        {
            let bits_max = format.beside_half_bits();
            if bits == 0 || u32::from(bits) > bits_max {
                return Err(NewSpaceError::Width { bits, bits_max });
            }
        }
        let root = PhysAddr::new(0);
        let mut regime = Regime { format, root, coalescing };
        let order = View { memory: &memory, regime, superpages: sizes.is_some() }.table_order(0);
        let root = tables.allocate_aligned(order).map_err(NewSpaceError::NoTable)?;
        regime.root = root.start.address();
        let ready = if out_of_reach(format, root) {
            Err(NewSpaceError::TableOutOfReach { frame: root.start })
        } else {
            clear(&memory, root).map_err(NewSpaceError::Bus)
        };
        if let Err(error) = ready {
            free_allocated(&mut tables, root);
            return Err(error);
        }
        Ok(Self {
            memory,
            frames,
            tables,
            regime,
            sizes,
            table_frames: root.count,
            statistics: SpaceStatistics::default(),
        })
    }

    /// Returns what the hardware is told: format, root and coalescing.
    pub const fn regime(&self) -> Regime {
        self.regime
    }

    /// Counts the frames that the tables take, the root's included.
    pub const fn table_frames(&self) -> u64 {
        self.table_frames
    }

    /// Returns the counts so far.
    pub const fn statistics(&self) -> SpaceStatistics {
        self.statistics
    }

    #[inline]
    pub(crate) const fn view(&self) -> View<'_, M> {
        View { memory: &self.memory, regime: self.regime, superpages: self.sizes.is_some() }
    }

    /// Returns the superpage sizes that are on; `None` if the space was not made for
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
                let first = page.is_aligned(leaf.order.k());
                if leaf.owned && first {
                    let more = Extent::new(leaf.frame, leaf.order.frames());
                    if let Some(done) = append(&mut pending, more) {
                        free_allocated(frames, done);
                    }
                }
            }
            Visit::Table(Below { level, table, .. }) => {
                // ARMv7's four tables in a frame follow one another.
                if last_table != Some(table.frame()) {
                    let order = view.table_order(level);
                    free_allocated(tables, Extent::new(table.frame(), order.frames()));
                }
                last_table = Some(table.frame());
            }
        });
        if !pending.is_empty() {
            free_allocated(frames, pending);
        }
        let root = Extent::new(self.regime.root.frame(), view.table_order(0).frames());
        free_allocated(tables, root);
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
pub(crate) fn free_allocated<A: FrameAllocator>(allocator: &mut A, extent: Extent) {
    let _ = allocator.free(extent);
}

pub(crate) fn out_of_reach(format: Format, frames: Extent) -> bool {
    frames.end().raw() > 1 << (format.pa_bits() - swath_arch::BASE_PAGE_SHIFT)
}

pub(crate) fn clear<M: PhysMemory>(memory: &M, frames: Extent) -> Result<(), BusError> {
    frames.iter().try_for_each(|frame| memory.zero_frame(frame))
}
