//! The conventional system: the same heap over a page table, whose footprint shrinks at its
//! end (Böhnert and Scholl, section V).

use std::alloc::Layout;
use std::collections::BTreeMap;

use swath_arch::{BASE_PAGE_BYTES, PageRange, PhysMemory, VirtAddr, Vpn};

use crate::papers::real_time::heap::{
    HeapError, Numbered, Placed, PoolMemory, Resident, TAG_BYTES, pages_of,
};
use crate::papers::real_time::table::{DirectTable, TableError};

/// The same heap over a page table: the paper's conventional system.
pub struct TableHeap<'p, M: PhysMemory> {
    bytes: Numbered<Resident<'p>>,
    table: DirectTable<M>,
    /// Live blocks: start and end.
    blocks: BTreeMap<u64, u64>,
    starts: Vec<u64>,
    /// One past the last page of the footprint.
    end: u64,
    /// The pages that the last free took back.
    released: PageRange,
    /// The footprint's end at most: the page of the pool's last tag is beyond and stays.
    end_max: u64,
}

impl<'p, M: PhysMemory> TableHeap<'p, M> {
    /// Makes a heap over the first pages of a table, as many as `memory` has.
    ///
    /// # Errors
    /// [`HeapError`] if the table is smaller or has no frames for the first tags.
    pub fn new(table: DirectTable<M>, memory: &'p mut PoolMemory) -> Result<Self, HeapError> {
        let (pages, space_pages) = (memory.pages(), table.pages());
        if pages > space_pages {
            return Err(HeapError::Pool { pages, space_pages });
        }
        let memory = memory.bytes();
        let base = memory.as_ptr().addr();
        let mut heap = Resident::new();
        heap.add_pool(memory)?;
        let bytes = Numbered::new(heap, base);
        let (blocks, starts, end_max) = (BTreeMap::new(), Vec::new(), (pages - 1).max(1));
        let released = PageRange::new(Vpn::new(0), 0);
        let mut heap = Self { bytes, table, blocks, starts, end: 1, released, end_max };
        heap.touch(Vpn::new(0))?;
        if pages > 1 {
            heap.touch(Vpn::new(pages - 1))?;
        }
        Ok(heap)
    }

    /// Makes room for allocations with numbers below `ids`.
    pub fn reserve(&mut self, ids: u32) {
        self.bytes.reserve(ids);
        self.starts.resize(self.starts.len().max(ids as usize), 0);
    }

    /// Does the work of the hardware before an access: nothing, or a fault and its handler.
    #[inline]
    fn touch(&mut self, page: Vpn) -> Result<(), TableError> {
        if self.table.is_mapped(page)? { Ok(()) } else { self.table.map(page) }
    }

    /// Allocates so many bytes under a number that is not in use. O(1).
    ///
    /// # Errors
    /// [`HeapError`]. If there was no frame for a tag, the allocation is taken back, and
    /// a page may have got a frame that stays.
    #[inline]
    pub fn allocate(&mut self, id: u32, layout: Layout) -> Result<Placed, HeapError> {
        let placed = self.bytes.allocate(id, layout)?;
        for border in [placed.to, placed.from] {
            let tags = pages_of(border, border + TAG_BYTES as u64);
            // The pool's last tag has its page already.
            let end = (tags.start.raw() + tags.count).min(self.end_max);
            for page in tags.start.raw()..end {
                if let Err(error) = self.touch(Vpn::new(page)) {
                    self.bytes.free(id)?;
                    return Err(error.into());
                }
            }
            self.end = self.end.max(end);
        }
        Ok(placed)
    }

    /// Notes where an allocation lies: the lab's own bookkeeping, outside of what is
    /// measured. A heap with its own view of its end does without.
    pub fn note(&mut self, id: u32, placed: Placed) {
        self.blocks.insert(placed.from, placed.to);
        self.reserve(id.saturating_add(1));
        self.starts[id as usize] = placed.from;
    }

    /// Returns the end of the footprint without an allocation that was noted: the page after
    /// the tag and links behind the last block left. Forgets the allocation.
    pub fn forget(&mut self, id: u32) -> u64 {
        let start = self.starts.get(id as usize).copied().unwrap_or(0);
        self.blocks.remove(&start);
        // Without a block the first page stays, with the pool's record.
        let last = self.blocks.last_key_value().map_or(0, |(_, &to)| to);
        (last + TAG_BYTES as u64).div_ceil(BASE_PAGE_BYTES).min(self.end_max)
    }

    /// Frees an allocation after which the footprint ends at page `end`, as
    /// [`forget`](Self::forget) says. O(1), or O(n) if the footprint shrinks by n pages.
    ///
    /// # Errors
    /// [`HeapError`].
    #[inline]
    pub fn free(&mut self, id: u32, end: u64) -> Result<(), HeapError> {
        self.bytes.free(id)?;
        self.released.count = 0;
        if end < self.end {
            self.table.unmap(end, self.end)?;
            self.released = PageRange::new(Vpn::new(end), self.end - end);
            self.end = end;
        }
        Ok(())
    }

    /// Returns the address of byte `offset` of an allocation.
    ///
    /// # Errors
    /// [`HeapError`] for a byte that is not the user's.
    pub fn address(&self, id: u32, offset: u64) -> Result<VirtAddr, HeapError> {
        self.bytes.address(id, offset)
    }

    /// A user's access to a page faulted: gives it a frame.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    #[inline]
    pub fn fault(&mut self, page: Vpn) -> Result<(), TableError> {
        self.table.map(page)
    }

    /// The page table.
    pub fn table(&self) -> &DirectTable<M> {
        &self.table
    }

    /// The pages that the last call of [`free`](Self::free) gave back.
    pub fn released(&self) -> PageRange {
        self.released
    }

    /// Pages of the footprint.
    pub fn footprint_pages(&self) -> u64 {
        self.end
    }

    /// Walks the heap and the table. O(pages + blocks).
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        self.bytes.heap().check().map_err(|fault| fault.to_string())?;
        self.table.check()
    }
}
