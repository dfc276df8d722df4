//! Making tables on the way to a page, and the number of their entries in use.

use swath_arch::{BusError, Extent, Format, Order, PhysAddr, PhysMemory, Vpn};
use swath_frame::{FrameAllocateError, FrameAllocator};

use crate::table::encode::{self, Kind};
use crate::table::error::MapPagesError;
use crate::table::space::{AddressSpace, clear, free_allocated, out_of_reach};
use crate::table::walk::Way;

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Adds `count` to the entries in use of the table at `level` that the
    /// entry at `link` links, if that is written anywhere.
    #[inline]
    pub(crate) fn occupy(
        &mut self,
        level: usize,
        link: PhysAddr,
        count: i64,
    ) -> Result<(), BusError> {
        if level == 0 || !self.view().has_half(level - 1) {
            return Ok(());
        }
        let at = self.view().half(level - 1, link);
        let occupancy = self.view().read(at)?;
        self.view().write(at, occupancy.wrapping_add_signed(count))
    }

    /// Counts the entries in use of that table anew, after a failure.
    pub(crate) fn recount(&mut self, level: usize, link: PhysAddr, table: PhysAddr) {
        if level == 0 || !self.view().has_half(level - 1) {
            return;
        }
        let view = self.view();
        let in_use = |&i: &u64| {
            let word = view.read(view.entry(table, i));
            word.is_ok_and(|word| encode::in_use(view.format(), word))
        };
        let count = (0..view.entries(level)).filter(in_use).count();
        // Memory that has failed once answers again, or nothing can be done.
        let _ = view.write(view.half(level - 1, link), count as u64);
    }

    /// Returns the table at `level` on the way to the page, made if it is not there,
    /// and whether it was made here. Leaves nothing behind on failure.
    pub(crate) fn table_for(&mut self, page: Vpn, level: usize) -> Result<Way, MapPagesError> {
        self.statistics.walks += 1;
        let mut table = self.regime.root;
        let mut link = table;
        let mut fresh = false;
        for above in 0..level {
            let view = self.view();
            let at = view.entry(table, view.index(above, page));
            let next =
                view.read(at).map_err(MapPagesError::Bus).and_then(|word| {
                    match encode::kind(self.regime.format, above, word) {
                        Kind::Table(next) => Ok(next),
                        Kind::Leaf(_) => Err(MapPagesError::AlreadyMapped { page }),
                        Kind::Empty => {
                            fresh = true;
                            self.new_table(link, at, above + 1, page)
                        }
                    }
                });
            table = match next {
                Ok(next) => next,
                Err(error) => {
                    self.prune(page);
                    return Err(error);
                }
            };
            link = at;
        }
        Ok(Way { table, link, fresh })
    }

    /// Makes the table at `level` that the entry at `at` is to point to. That
    /// entry stands in the table that `above` links.
    fn new_table(
        &mut self,
        above: PhysAddr,
        at: PhysAddr,
        level: usize,
        page: Vpn,
    ) -> Result<PhysAddr, MapPagesError> {
        // Left over where memory failed.
        self.drop_kept(level - 1, at);
        let (table, taken) = self.table_frame(at, level, page)?;
        let link = encode::table(self.regime.format, table);
        let linked = self.occupy(level - 1, above, 1).and_then(|()| self.write(at, link));
        if let Err(bus) = linked {
            if level > 1 {
                let offset = self.view().index(level - 1, page) * self.regime.format.entry_bytes();
                self.recount(level - 1, above, PhysAddr::new(at.raw() - offset));
            }
            self.free_table(taken);
            return Err(bus.into());
        }
        Ok(table)
    }

    /// Returns a table at `level` without an entry in use for the entry at `at` of the
    /// level above, and the frames that were taken for it, which are cleared
    /// with their software half and counted.
    pub(crate) fn table_frame(
        &mut self,
        at: PhysAddr,
        level: usize,
        page: Vpn,
    ) -> Result<(PhysAddr, Extent), MapPagesError> {
        let mut offset = 0;
        if self.regime.format == Format::ArmV7 {
            // Four tables of 1 KiB share a frame: a fellow's frame has room,
            // cleared when it was made and empty since.
            offset = 1024 * (self.view().index(0, page) & 3);
            if let Some(frame) = self.view().shared_frame(at)? {
                let table = frame.address() + offset;
                if self.sizes.is_some() {
                    // A table that was kept there left its entries behind.
                    for i in 0..self.view().entries(level) {
                        self.view().write(self.view().entry(table, i), 0)?;
                    }
                }
                return Ok((table, Extent::default()));
            }
        }
        let order = self.view().table_order(level);
        let taken = self.allocate_table(order).map_err(MapPagesError::NoTable)?;
        // The word beside a leaf's entry is written with it.
        let cleared = if self.view().has_half(level) { taken.count } else { 1 };
        let ready = if out_of_reach(self.regime.format, taken) {
            Err(MapPagesError::TableOutOfReach { frame: taken.start })
        } else {
            clear(&self.memory, Extent::new(taken.start, cleared)).map_err(MapPagesError::Bus)
        };
        if let Err(error) = ready {
            free_allocated(&mut self.tables, taken);
            return Err(error);
        }
        self.table_frames += taken.count;
        Ok((taken.start.address() + offset, taken))
    }

    /// Gives back what [`table_frame`](Self::table_frame) took.
    pub(crate) fn free_table(&mut self, taken: Extent) {
        if !taken.is_empty() {
            free_allocated(&mut self.tables, taken);
            self.table_frames -= taken.count;
        }
    }

    fn allocate_table(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        if order == Order::BASE {
            let free = self.tables.free_frames();
            let frame = self.tables.allocate_frame();
            return frame
                .map(|frame| Extent::new(frame, 1))
                .ok_or(FrameAllocateError::OutOfFrames { wanted: 1, free });
        }
        self.tables.allocate_aligned(order)
    }
}
