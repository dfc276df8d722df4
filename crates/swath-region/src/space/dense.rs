//! Real-time regions: memory whose release costs the same whatever its size.
//!
//! A [`RegionSpace`] is a virtual address space after Böhnert and Scholl,
//! section IV. A **region** is a range of pages; a page of it gets a frame at
//! its first access. [`map_region`](RegionSpace::map_region) is the paper's mapVRH,
//! [`map_page`](RegionSpace::map_page) its mapPage, for the handler of page faults, and
//! [`unmap_region`](RegionSpace::unmap_region) its unmapRegion: all of
//! a region's pages become invalid by one write, and all of its frames come back by
//! one splice.
//!
//! ```text
//!  tree (VRT)      |free     |region a           |free  |region b  |   starts
//!  header (VRH)               rights, list                          at starts
//!  stack end (sp)             ───────▶ end                          at starts
//!  stack (s)                 |p q r  |           |                  pages, as mapped
//!  helper (h)                 where each page stands on its stack
//!  regions (VRC, c)           which start each page has
//!  data (d)                   frames and rights
//! ```
//!
//! The five arrays are bytes of physical memory, which the RTMMU reads as
//! [`validity`] says; tree and headers are the system's own. Pages are split between
//! regions and **free intervals**, which are as long as they can be and where nothing is ever
//! mapped. The paper leaves free ranges to be regions too, in which an allocator's boundary
//! tags are mapped; here a tag's pages are a region of their own, so that what is
//! free has no frames.
//!
//! # Why nothing has to be cleared (Lemma 1)
//! A page b counts as mapped if a = c\[b\] ≤ b, a ≤ h\[b\] < sp\[a\] and
//! s\[h\[b\]\] = b. Suppose it does. By invariant 1, sp\[a\] > a only if
//! a starts a region [a, e). By invariant 2 the entries s\[a\] to s\[sp\[a\] − 1\] are
//! mapped pages of that region. As s\[h\[b\]\] is one of them and is b, b is a mapped
//! page of it and d\[b\] is its frame. Nothing was assumed about c\[b\], h\[b\], d\[b\]
//! or about s beyond the ends of stacks: these may hold anything. Conversely a mapped
//! page has had all its entries written, and nobody writes them again while it
//! is mapped: c\[b\], h\[b\] and d\[b\] are written by map_page(b) alone, s\[h\[b\]\]
//! lies below the end of its stack.
//!
//! The invariants the proof rests on are held so:
//! * A start vanishes from the tree only when its stack is empty: unmapping comes
//!   before union. Else sp\[a\] > a would stand at a page that is no start.
//! * A region is split only above its highest mapped page. Else a page of
//!   the upper part would be on the lower part's stack. Since n mapped pages lie in [a, at),
//!   the stack, which ends at a + n ≤ at, stays on its side too.
//! * A region becomes part of the one below only when nothing is mapped in it.
//!
//! The paper's "h\[sp\] := sp" when page i is mapped is read as h\[i\] := sp.
//!
//! # What it costs
//! Words touched at most, whatever the sizes and whatever happened before; T stands for the
//! words of one tree operation (for a dense tree over 2^20 pages: split
//! and union 3, find 8, next 9).
//!
//! | operation | PVA and VRC, read + written | headers | frames' links | tree |
//! |---|---|---|---|---|
//! | map_region | 0 + 1 | 3 | 0 | find, next, 2 splits |
//! | map_page | 3 + 5 | 4 | 1 | find |
//! | unmap_region | 1 + 1 | 5 | 1 | 2 finds, next, 2 unions |
//! | split_region | 0 + 1 | 4 | 0 | find, split |
//! | merge_region | 1 + 0 | 4 | 0 | 2 finds, union |
//!
//! Instructions on x86-64 for 2^20 pages, gated in `bench` (`region-*`) with one bound for
//! regions of one page and of 2^20: at most 280 to map a region, 420 for a fault, 320 to
//! unmap, of which a tree operation takes up to 70.
//!
//! ```
//! use swath_arch::{Extent, PageRange, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn};
//! use swath_region::{DenseTree, FramePool, Quota, RegionSpace, Rights, dense_tree_words};
//!
//! // 1024 pages: 20 KiB of tables from frame 0 on; frames 16 to 31 for pages.
//! let mut words = vec![0; 2560];
//! let memory = SliceMemory::new(Pfn::new(0), &mut words);
//! let tables = ValidityTables::consecutive(10, PhysAddr::new(0));
//! let mut links = [0; 16];
//! let pool = FramePool::new(Extent::new(Pfn::new(16), 16), &mut links)?;
//! let tree = DenseTree::<10, _, _>::new([0; dense_tree_words(10)]);
//! let headers = vec![0; 2 * 1024];
//! let mut space = RegionSpace::new(&memory, tables, tree, headers, &pool, Quota::fixed(16))?;
//!
//! space.map_region(PageRange::new(Vpn::new(100), 500), Rights::READ | Rights::WRITE)?;
//! let frame = space.map_page(Vpn::new(340), Rights::WRITE)?;
//! assert_eq!(space.translate(Vpn::new(340))?.map(|(frame, _)| frame), Some(frame));
//! assert_eq!(space.unmap_region(Vpn::new(100))?.frames, 1);
//! assert_eq!(space.translate(Vpn::new(340))?, None);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::ops::DerefMut;

use swath_arch::{BusError, PageRange, Pfn, PhysAddr, PhysMemory, ValidityTables, Vpn, validity};

use crate::error::{NewRegionsError, RegionError, RegionFault};
use crate::frames::{Account, FramePool, NONE, NoFrame, Quota, QuotaError};
use crate::header::{Header, Kind, Rights};
use crate::space::region::{Region, UnmappedRegion};
use crate::tree::partition::RegionTree;

/// A virtual address space of regions: 2^k pages, k from 5 to 31.
///
/// Every method but [`new`](Self::new), [`close`](Self::close) and
/// [`check`](Self::check) takes O(k/6) time with a [`DenseTree`](crate::DenseTree),
/// whatever the size of regions, their number and their history.
///
/// Invariants, for starts a of the tree and the interval [a, e) of each:
/// 1. sp\[i\] ≤ i for every page i that starts no region.
/// 2. In a region n pages are mapped; sp\[a\] = a + n, and s\[a\] to s\[a + n − 1\]
///    are these pages in the order of their mapping. For each such page b:
///    h\[b\] is where it stands in s, c\[b\] = a, d\[b\] is a frame and the region's rights.
/// 3. The frames of the mapped pages are the list from `newest` to `oldest`.
/// 4. No mapped page is at or above `mapped_end`, which is in [a, e].
/// 5. No two free intervals are neighbours.
/// 6. The space's account counts the frames of all its regions.
#[derive(Debug)]
pub struct RegionSpace<'p, M, T, H> {
    memory: M,
    tables: ValidityTables,
    tree: T,
    headers: H,
    pool: &'p FramePool<'p>,
    account: Account,
}

impl<'p, M, T, H> RegionSpace<'p, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    /// Counts the words of headers for 2^`pages_log2` pages.
    pub const fn header_words(pages_log2: u32) -> u64 {
        2 << pages_log2
    }

    /// Makes a space without regions. O(N) for N pages: the stack ends are set to zero, the
    /// only words that are ever initialised. The tree is one without starts, the
    /// headers may hold anything.
    ///
    /// # Errors
    /// [`NewRegionsError`] if the parts do not fit together, the pool cannot give the
    /// guarantee, or memory does not answer.
    pub fn new(
        memory: M,
        tables: ValidityTables,
        tree: T,
        headers: H,
        pool: &'p FramePool<'p>,
        quota: Quota,
    ) -> Result<Self, NewRegionsError> {
        let k = tables.pages_log2;
        if !validity::PAGES_LOG2.contains(&k) || tree.pages() != 1 << k {
            return Err(NewRegionsError::Pages { tables_log2: k, tree_pages: tree.pages() });
        }
        if let Some(start) = tree.next(Vpn::new(0)) {
            return Err(NewRegionsError::TreeInUse { start });
        }
        check_bases(tables, pool)?;
        let (needed, given) = (Self::header_words(k), headers.len());
        if (given as u64) < needed {
            return Err(NewRegionsError::Headers { needed, given });
        }
        for page in 0..1 << k {
            memory.write_u32(entry(tables.stack_end, page), 0)?;
        }
        let mut account = Account::empty();
        pool.set_quota(&mut account, quota).map_err(NewRegionsError::Quota)?;
        let mut space = Self { memory, tables, tree, headers, pool, account };
        space.set_kind(0, Kind::Free);
        Ok(space)
    }

    /// Counts the pages of the space.
    pub fn pages(&self) -> u64 {
        self.tree.pages()
    }

    /// Returns the places of the tables, which the RTMMU needs to know.
    pub fn tables(&self) -> ValidityTables {
        self.tables
    }

    /// Counts the frames that the space has.
    pub fn frames_used(&self) -> u32 {
        self.account.used
    }

    /// Returns the quota in force.
    pub fn quota(&self) -> Quota {
        self.account.quota
    }

    /// Changes the quota. O(1).
    ///
    /// # Errors
    /// [`QuotaError`] if the pool cannot give the guarantee or more is in use than the
    /// limit.
    pub fn set_quota(&mut self, quota: Quota) -> Result<(), QuotaError> {
        self.pool.set_quota(&mut self.account, quota)
    }

    /// Returns the region that holds `page`, if any.
    pub fn region_of(&self, page: Vpn) -> Option<Region> {
        let start = self.tree.find(page)?;
        match self.kind(start.raw()) {
            Kind::Free => None,
            Kind::Region(rights) => {
                let count = self.interval_end(start) - start.raw();
                Some(Region { pages: PageRange::new(start, count), rights })
            }
        }
    }

    /// Returns the first region that starts at or after `page`, for walks.
    pub fn region_from(&self, page: Vpn) -> Option<Region> {
        let start = self.tree.find(page)?;
        let mut at = if start == page { start } else { self.tree.next(page)? };
        if self.kind(at.raw()) == Kind::Free {
            // No two free intervals are neighbours.
            at = self.tree.next(at)?;
        }
        self.region_of(at)
    }

    /// Returns the frame and the rights of a mapped page, found by way of the tree and
    /// not of the VRC.
    ///
    /// # Errors
    /// [`RegionError`] if the page is out of range or memory does not answer.
    pub fn translate(&self, page: Vpn) -> Result<Option<(Pfn, Rights)>, RegionError> {
        let start = self.start_of(page)?;
        let end = self.read(self.tables.stack_end, start.raw())?;
        if !self.is_mapped(page, start, end)? {
            return Ok(None);
        }
        let word = u64::from(self.read(self.tables.data, page.raw())?);
        Ok(Some((Pfn::new(validity::FRAME.get(word)), Rights::from_bits(word as u32))))
    }

    /// Makes free pages a region (mapVRH). No page of it is mapped.
    ///
    /// # Errors
    /// [`RegionError`] if the range is empty, not wholly in the space or not wholly free,
    /// or if the tree is full.
    #[inline]
    pub fn map_region(&mut self, range: PageRange, rights: Rights) -> Result<(), RegionError> {
        let PageRange { start, count } = range;
        if count == 0 {
            return Err(RegionError::Empty { start });
        }
        let pages = self.tree.pages();
        let free = self.start_of(start)?;
        if count > pages - start.raw() {
            return Err(RegionError::OutOfRange { page: Vpn::new(pages) });
        }
        if self.kind(free.raw()) != Kind::Free {
            return Err(RegionError::Overlap { range, start: free });
        }
        let (end, free_end) = (start + count, self.interval_end(free));
        if end.raw() > free_end {
            return Err(RegionError::Overlap { range, start: Vpn::new(free_end) });
        }
        // It is no start, so it is empty already; but the stack must end at the start
        // for the first page to be put there.
        self.write(self.tables.stack_end, start.raw(), start.raw())?;
        if end.raw() < free_end {
            self.tree.split(end).map_err(RegionError::Tree)?;
        }
        if start != free
            && let Err(error) = self.tree.split(start)
        {
            if end.raw() < free_end {
                self.tree.union(end).map_err(RegionError::Tree)?;
            }
            return Err(RegionError::Tree(error));
        }
        if end.raw() < free_end {
            self.set_kind(end.raw(), Kind::Free);
        }
        self.set_kind(start.raw(), Kind::Region(rights));
        Ok(())
    }

    /// Gives a page of a region a frame (mapPage): what the handler of a page fault
    /// does. The frame is as it was left by its last user.
    ///
    /// The write to the stack's end is the one by which hardware sees the page; where
    /// memory reorders writes, a barrier belongs before it and the implementation of
    /// [`PhysMemory`] must put it there.
    ///
    /// # Errors
    /// [`RegionError`] if the page is in no region, the region lacks a right for
    /// `access`, the page is mapped, or there is no frame.
    #[inline]
    pub fn map_page(&mut self, page: Vpn, access: Rights) -> Result<Pfn, RegionError> {
        let start = self.start_of(page)?;
        let header = self.header(start.raw());
        let Kind::Region(rights) = header.kind else {
            return Err(RegionError::NoRegion { page });
        };
        if !rights.contain(access) {
            return Err(RegionError::Denied { page, access, rights });
        }
        let end = self.read(self.tables.stack_end, start.raw())?;
        if self.is_mapped(page, start, end)? {
            return Err(RegionError::AlreadyMapped { page });
        }
        let index = self.pool.peek(&self.account).map_err(|error| match error {
            NoFrame::Limit => RegionError::LimitReached { limit: self.account.quota.limit },
            NoFrame::Empty => RegionError::OutOfFrames,
        })?;
        let frame = self.pool.frame(index);
        // None of these four is valid before the stack's end moves.
        let data = validity::FRAME.set(rights.bits().into(), frame.raw());
        self.write(self.tables.data, page.raw(), data)?;
        self.write(self.tables.helper, page.raw(), end.into())?;
        self.write(self.tables.stack, end.into(), page.raw())?;
        self.write(self.tables.regions, page.raw(), start.raw())?;
        self.write(self.tables.stack_end, start.raw(), u64::from(end) + 1)?;
        let first = u64::from(end) == start.raw();
        self.pool.allocate(&mut self.account, index, if first { NONE } else { header.newest });
        self.set_header(
            start.raw(),
            Header {
                newest: index,
                oldest: if first { index } else { header.oldest },
                mapped_end: header.mapped_end.max(page.raw() as u32 + 1),
                kind: header.kind,
            },
        );
        Ok(frame)
    }

    /// Ends a region (unmapRegion): none of its pages is mapped, its frames are free,
    /// and so are its pages, together with what is free around them.
    ///
    /// # Errors
    /// [`RegionError`] if no region starts at `start`, or memory does not answer.
    #[inline]
    pub fn unmap_region(&mut self, start: Vpn) -> Result<UnmappedRegion, RegionError> {
        let header = self.region_at(start)?;
        let end = self.interval_end(start);
        let stack_end = self.read(self.tables.stack_end, start.raw())?;
        self.write(self.tables.stack_end, start.raw(), start.raw())?;
        let frames = stack_end - start.raw() as u32;
        if frames > 0 {
            self.pool.free_list(&mut self.account, header.newest, header.oldest, frames);
        }
        // Only now, with an empty stack, may the start go.
        self.set_kind(start.raw(), Kind::Free);
        if end < self.tree.pages() && self.kind(end) == Kind::Free {
            self.tree.union(Vpn::new(end)).map_err(RegionError::Tree)?;
        }
        if start.raw() > 0 {
            let below = self.start_of(Vpn::new(start.raw() - 1))?;
            if self.kind(below.raw()) == Kind::Free {
                self.tree.union(start).map_err(RegionError::Tree)?;
            }
        }
        Ok(UnmappedRegion { pages: PageRange::new(start, end - start.raw()), frames })
    }

    /// Cuts a region in two at `at`, with the same rights and no page mapped in the
    /// upper one.
    ///
    /// # Errors
    /// [`RegionError::Mapped`] if a page at or above `at` was mapped in it;
    /// [`RegionError`] if `at` is in no region or starts one, or the tree is full.
    pub fn split_region(&mut self, at: Vpn) -> Result<(), RegionError> {
        let start = self.start_of(at)?;
        let header = self.header(start.raw());
        if header.kind == Kind::Free {
            return Err(RegionError::NoRegion { page: at });
        }
        if start == at {
            return Err(RegionError::IsStart { page: at });
        }
        if u64::from(header.mapped_end) > at.raw() {
            return Err(RegionError::Mapped { page: Vpn::new(u64::from(header.mapped_end) - 1) });
        }
        self.write(self.tables.stack_end, at.raw(), at.raw())?;
        self.tree.split(at).map_err(RegionError::Tree)?;
        self.set_kind(at.raw(), header.kind);
        Ok(())
    }

    /// Makes the region at `start`, in which no page is mapped, part of the region
    /// that ends there: with [`map_region`](Self::map_region) it lets a region grow.
    ///
    /// # Errors
    /// [`RegionError::Mapped`] if a page is mapped in it,
    /// [`RegionError::NoNeighbour`] if below it is no region with the same rights;
    /// [`RegionError`] if no region starts at `start`.
    pub fn merge_region(&mut self, start: Vpn) -> Result<(), RegionError> {
        let header = self.region_at(start)?;
        let stack_end = self.read(self.tables.stack_end, start.raw())?;
        if u64::from(stack_end) > start.raw() {
            return Err(RegionError::Mapped { page: Vpn::new(u64::from(header.mapped_end) - 1) });
        }
        let below = match start.raw() {
            0 => return Err(RegionError::NoNeighbour { start }),
            page => self.start_of(Vpn::new(page - 1))?,
        };
        if self.kind(below.raw()) != header.kind {
            return Err(RegionError::NoNeighbour { start });
        }
        self.tree.union(start).map_err(RegionError::Tree)
    }

    /// Ends all regions and gives up the quota; the tree comes back as it was at
    /// first, with the storage. O(R·k/6) for R regions.
    ///
    /// # Errors
    /// The space, and [`RegionError`] if memory does not answer: some regions may be
    /// gone then.
    pub fn close(mut self) -> Result<(T, H), (Self, RegionError)> {
        while let Some(region) = self.region_from(Vpn::new(0)) {
            if let Err(error) = self.unmap_region(region.pages.start) {
                return Err((self, error));
            }
        }
        self.pool.close(&mut self.account);
        Ok((self.tree, self.headers))
    }

    /// Walks all invariants. O(N + frames) for N pages.
    ///
    /// # Errors
    /// The first [`RegionFault`] found.
    pub fn check(&self) -> Result<(), RegionFault> {
        if !self.tree.check() {
            return Err(RegionFault::Tree);
        }
        let (mut found, mut below, mut at) = (0, None, Some(Vpn::new(0)));
        while let Some(start) = at {
            let (end, kind) = (self.interval_end(start), self.kind(start.raw()));
            if kind == Kind::Free && below == Some(Kind::Free) {
                return Err(RegionFault::Uncoalesced { start });
            }
            let inside = start.raw() + u64::from(kind != Kind::Free);
            for page in inside..end {
                let stack_end = self.read(self.tables.stack_end, page)?;
                if u64::from(stack_end) > page {
                    return Err(RegionFault::StackEnd { page: Vpn::new(page), end: stack_end });
                }
            }
            if let Kind::Region(rights) = kind {
                found += self.check_region(start, end, rights)?;
            }
            below = Some(kind);
            at = self.tree.next(start);
        }
        if found == u64::from(self.account.used) {
            Ok(())
        } else {
            Err(RegionFault::Frames { found, counted: self.account.used })
        }
    }

    /// Counts the frames of a region, if all of it is right.
    fn check_region(&self, start: Vpn, end: u64, rights: Rights) -> Result<u64, RegionFault> {
        let header = self.header(start.raw());
        let stack_end = u64::from(self.read(self.tables.stack_end, start.raw())?);
        if stack_end > end || stack_end < start.raw() || u64::from(header.mapped_end) > end {
            return Err(RegionFault::StackEnd { page: start, end: stack_end as u32 });
        }
        // The list goes from the newest frame, so the stack is read from its top.
        let mut index = header.newest;
        for at in (start.raw()..stack_end).rev() {
            let page = u64::from(self.read(self.tables.stack, at)?);
            if page < start.raw()
                || page >= u64::from(header.mapped_end)
                || u64::from(self.read(self.tables.helper, page)?) != at
            {
                return Err(RegionFault::Stack { start, at: at as u32 });
            }
            let data = validity::FRAME.set(rights.bits().into(), self.pool.frame(index).raw());
            if u64::from(self.read(self.tables.data, page)?) != data
                || u64::from(self.read(self.tables.regions, page)?) != start.raw()
            {
                return Err(RegionFault::Page { page: Vpn::new(page) });
            }
            let last = at == start.raw();
            if last != (index == header.oldest) {
                return Err(RegionFault::List { start });
            }
            index = self.pool.link(index).ok_or(RegionFault::List { start })?;
        }
        Ok(stack_end - start.raw())
    }

    /// Returns the start of the interval that holds `page`.
    #[inline]
    fn start_of(&self, page: Vpn) -> Result<Vpn, RegionError> {
        self.tree.find(page).ok_or(RegionError::OutOfRange { page })
    }

    /// Returns one past the last page of the interval that starts at `start`.
    #[inline]
    fn interval_end(&self, start: Vpn) -> u64 {
        self.tree.next(start).map_or(self.tree.pages(), Vpn::raw)
    }

    /// Returns the header of the region that starts at `start`.
    #[inline]
    fn region_at(&self, start: Vpn) -> Result<Header, RegionError> {
        let found = self.start_of(start)?;
        let header = self.header(found.raw());
        match header.kind {
            Kind::Free => Err(RegionError::NoRegion { page: start }),
            Kind::Region(_) if found == start => Ok(header),
            Kind::Region(_) => Err(RegionError::NotStart { page: start, start: found }),
        }
    }

    /// Returns true if a page is on the stack of its region, of which the end is known.
    #[inline]
    fn is_mapped(&self, page: Vpn, start: Vpn, end: u32) -> Result<bool, BusError> {
        let at = self.read(self.tables.helper, page.raw())?;
        Ok(start.raw() <= u64::from(at)
            && at < end
            && u64::from(self.read(self.tables.stack, at.into())?) == page.raw())
    }

    #[inline]
    fn read(&self, base: PhysAddr, index: u64) -> Result<u32, BusError> {
        self.memory.read_u32(entry(base, index))
    }

    #[inline]
    fn write(&self, base: PhysAddr, index: u64, value: u64) -> Result<(), BusError> {
        // Pages, positions and data fit, as k is at most 31 and frames were checked.
        self.memory.write_u32(entry(base, index), value as u32)
    }

    #[inline]
    fn header(&self, start: u64) -> Header {
        let at = 2 * start as usize;
        Header::of([self.headers[at], self.headers[at + 1]])
    }

    #[inline]
    fn set_header(&mut self, start: u64, header: Header) {
        let at = 2 * start as usize;
        [self.headers[at], self.headers[at + 1]] = header.words();
    }

    #[inline]
    fn kind(&self, start: u64) -> Kind {
        Kind::of(self.headers[2 * start as usize + 1])
    }

    /// Makes a header one of an interval in which nothing is mapped.
    #[inline]
    fn set_kind(&mut self, start: u64, kind: Kind) {
        self.headers[2 * start as usize + 1] = kind.bits() | start;
    }
}

/// Returns the address of entry `index` of an array.
#[inline]
fn entry(base: PhysAddr, index: u64) -> PhysAddr {
    base + validity::ENTRY_BYTES * index
}

/// Checks that the arrays are aligned, apart from one another and from the pool's
/// frames.
fn check_bases(tables: ValidityTables, pool: &FramePool<'_>) -> Result<(), NewRegionsError> {
    let len_bytes = validity::ENTRY_BYTES << tables.pages_log2;
    let bases = [tables.data, tables.helper, tables.stack, tables.stack_end, tables.regions];
    let frames = pool.frames();
    let (first, end) = (frames.start.address().raw(), frames.end().address().raw());
    for (i, base) in bases.iter().enumerate() {
        let Some(array_end) = base.raw().checked_add(len_bytes) else {
            return Err(NewRegionsError::Base { base: *base });
        };
        if !base.is_aligned(2) {
            return Err(NewRegionsError::Base { base: *base });
        }
        let other = bases[..i].iter().find(|other| other.raw().abs_diff(base.raw()) < len_bytes);
        if let Some(&with) = other {
            return Err(NewRegionsError::Overlap { base: *base, with });
        }
        if base.raw() < end && first < array_end {
            return Err(NewRegionsError::Overlap { base: *base, with: PhysAddr::new(first) });
        }
    }
    Ok(())
}
