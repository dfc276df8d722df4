//! The two systems of the real-time studies behind one interface, and the parts that count
//! what they touch.
//!
//! **Words** are those of the structures that differ between the systems: the arrays, headers,
//! frame links and tree of regions on one side, the page table and frame links on the other. Each
//! word read or written counts. The heap's own tags and lists are the same in both and do not
//! count here; in instructions they do. A call of the tree counts as the most words
//! that it may touch.

use std::alloc::Layout;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use swath_arch::{
    BusError, Extent, PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory, ValidityTables, VirtAddr,
    Vpn, validity,
};
use swath_hw::{
    Cycle, Geometry, GeometryError, Operation, PageTable, RtFault, RtLatency, RtStats, RtTables,
    Rtmmu,
};
use swath_region::{
    DenseTree, FramePool, Quota, RegionHeap, RegionHeapStatistics, RegionSpace, RegionTree, Rights,
    TreeError, dense_tree_words,
};

use crate::papers::real_time::heap::{HeapError, Numbered, Placed, PoolMemory};
use crate::papers::real_time::table::DirectTable;
use crate::papers::real_time::table_heap::TableHeap;
use crate::papers::real_time::workload::Action;

/// log2 of the pages of a space, as in section IV-A5.
pub const PAGES_LOG2: u32 = 20;
/// Pages of a space.
pub const PAGES: u64 = 1 << PAGES_LOG2;
const TREE_WORDS: usize = dense_tree_words(PAGES_LOG2);

/// Reasons why a system could not be built or did not do an action.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// Its parts do not fit together.
    #[error("{0}")]
    Parts(String),
    /// An action failed.
    #[error("action {at} ({action:?}): {error}")]
    Action {
        /// The action's number, from 0.
        at: u64,
        /// The action.
        action: Action,
        /// The reason.
        error: HeapError,
    },
    /// A unit's tables and the system's do not say the same.
    #[error("{addr} is mapped, and the unit reports: {fault}")]
    Unit {
        /// The address.
        addr: VirtAddr,
        /// The unit's fault.
        fault: RtFault,
    },
}

fn parts(error: impl std::fmt::Display) -> SystemError {
    SystemError::Parts(error.to_string())
}

/// A heap with the system under it.
pub trait System {
    /// Makes room for allocations with numbers below `ids`.
    fn reserve(&mut self, ids: u32);
    /// Allocates; this is measured.
    ///
    /// # Errors
    /// [`HeapError`].
    fn allocate(&mut self, id: u32, layout: Layout) -> Result<Placed, HeapError>;
    /// Notes an allocation for the laboratory; not measured.
    fn note(&mut self, _id: u32, _placed: Placed) {}
    /// Returns what [`free`](Self::free) must know; not measured.
    fn prepare(&mut self, _id: u32) -> u64 {
        0
    }
    /// Frees; this is measured.
    ///
    /// # Errors
    /// [`HeapError`].
    fn free(&mut self, id: u32, prepared: u64) -> Result<(), HeapError>;
    /// Returns the address of a byte of an allocation.
    ///
    /// # Errors
    /// [`HeapError`].
    fn address(&self, id: u32, offset: u64) -> Result<VirtAddr, HeapError>;
    /// Returns true if a page has a frame.
    fn is_mapped(&self, page: Vpn) -> bool;
    /// Handles a page fault.
    ///
    /// # Errors
    /// [`HeapError`].
    fn fault(&mut self, page: Vpn) -> Result<(), HeapError>;
    /// Pages that have a frame.
    fn mapped_pages(&self) -> u64;
    /// Words of the free list of frames touched so far.
    fn link_words(&self) -> u64;
    /// Pages that a TLB must forget after the last free.
    fn released(&self) -> PageRange;
    /// Calls of regions' operations so far.
    fn operations(&self) -> RegionHeapStatistics;
}

impl<M, T, H> System for Numbered<RegionHeap<'_, M, T, H>>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    fn reserve(&mut self, ids: u32) {
        self.reserve(ids);
    }

    #[inline]
    fn allocate(&mut self, id: u32, layout: Layout) -> Result<Placed, HeapError> {
        self.allocate(id, layout)
    }

    #[inline]
    fn free(&mut self, id: u32, _: u64) -> Result<(), HeapError> {
        self.free(id)
    }

    fn address(&self, id: u32, offset: u64) -> Result<VirtAddr, HeapError> {
        self.address(id, offset)
    }

    fn is_mapped(&self, page: Vpn) -> bool {
        matches!(self.heap().space().translate(page), Ok(Some(_)))
    }

    #[inline]
    fn fault(&mut self, page: Vpn) -> Result<(), HeapError> {
        Ok(self.heap_mut().fault(page, Rights::READ).map(drop)?)
    }

    fn mapped_pages(&self) -> u64 {
        self.heap().space().frames_used().into()
    }

    /// One word when a page gets a frame, one when a list of frames goes back.
    fn link_words(&self) -> u64 {
        let RegionHeapStatistics { faults, ended, .. } = self.heap().statistics();
        faults + ended
    }

    fn released(&self) -> PageRange {
        self.heap().released()
    }

    fn operations(&self) -> RegionHeapStatistics {
        self.heap().statistics()
    }
}

impl<M: PhysMemory> System for TableHeap<'_, M> {
    fn reserve(&mut self, ids: u32) {
        self.reserve(ids);
    }

    #[inline]
    fn allocate(&mut self, id: u32, layout: Layout) -> Result<Placed, HeapError> {
        self.allocate(id, layout)
    }

    fn note(&mut self, id: u32, placed: Placed) {
        self.note(id, placed);
    }

    fn prepare(&mut self, id: u32) -> u64 {
        self.forget(id)
    }

    #[inline]
    fn free(&mut self, id: u32, prepared: u64) -> Result<(), HeapError> {
        self.free(id, prepared)
    }

    fn address(&self, id: u32, offset: u64) -> Result<VirtAddr, HeapError> {
        self.address(id, offset)
    }

    fn is_mapped(&self, page: Vpn) -> bool {
        matches!(self.table().is_mapped(page), Ok(true))
    }

    #[inline]
    fn fault(&mut self, page: Vpn) -> Result<(), HeapError> {
        Ok(self.fault(page)?)
    }

    fn mapped_pages(&self) -> u64 {
        self.table().mapped_pages()
    }

    fn link_words(&self) -> u64 {
        self.table().link_words()
    }

    fn released(&self) -> PageRange {
        self.released()
    }

    fn operations(&self) -> RegionHeapStatistics {
        RegionHeapStatistics::default()
    }
}

/// One of the two systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemName {
    /// Regions and the RTMMU: the paper's.
    Regions,
    /// A page table and the conventional unit.
    Conventional,
}

impl SystemName {
    /// Both, in the order of the figures.
    pub const ALL: [Self; 2] = [Self::Regions, Self::Conventional];

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regions => "regions",
            Self::Conventional => "conventional",
        }
    }
}

/// The size of the systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Pages of the heap's pool.
    pub pool_pages: u64,
    /// Frames of memory.
    pub frames: u64,
}

/// Work on a system once it stands.
pub(crate) trait Body {
    type Out;
    /// `touched` says how many words were touched so far.
    fn run(
        self,
        system: &mut impl System,
        unit: Unit<'_>,
        touched: &dyn Fn() -> u64,
    ) -> Result<Self::Out, SystemError>;
}

/// The parts of a system that a unit of memory management needs.
pub(crate) struct Unit<'a> {
    memory: &'a SliceMemory<'a>,
    tables: RtTables,
}

/// Words of tables, frames after them.
fn table_frames(entries: u64) -> u64 {
    (entries * validity::ENTRY_BYTES * PAGES).div_ceil(swath_arch::BASE_PAGE_BYTES)
}

/// Builds a system, with parts that count or without, and hands it over.
///
/// # Errors
/// [`SystemError`].
pub(crate) fn with<B: Body>(
    name: SystemName,
    size: Size,
    counted: bool,
    body: B,
) -> Result<B::Out, SystemError> {
    let entries = match name {
        SystemName::Regions => 5,
        SystemName::Conventional => 1,
    };
    let first = table_frames(entries);
    let mut words = vec![0_u64; (first * swath_arch::BASE_PAGE_BYTES / 8) as usize];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let frames = Extent::new(Pfn::new(first), size.frames);
    let base = PhysAddr::new(0);
    let count = Cell::new(0);
    let counting = Counting { inner: &memory, count: &count };
    let mut pool_memory = PoolMemory::new(size.pool_pages, PAGES).map_err(parts)?;
    match (name, counted) {
        (SystemName::Regions, _) => {
            let tables = ValidityTables::consecutive(PAGES_LOG2, base);
            let unit = Unit { memory: &memory, tables: RtTables::regions(tables).map_err(parts)? };
            let mut links = vec![0; size.frames as usize];
            let pool = FramePool::new(frames, &mut links).map_err(parts)?;
            let tree_words: Box<[u64; TREE_WORDS]> = vec![0; TREE_WORDS]
                .into_boxed_slice()
                .try_into()
                .map_err(|_| SystemError::Parts("not as many words".to_owned()))?;
            let tree = DenseTree::<PAGES_LOG2, TREE_WORDS, _>::new(tree_words);
            let headers = vec![0; 2 << PAGES_LOG2];
            let mut left = vec![0; size.pool_pages as usize];
            let bytes = pool_memory.bytes();
            let heap_base = bytes.as_ptr().addr();
            if counted {
                let tree = CountingTree { inner: tree, count: &count };
                let headers = CountingWords { inner: headers, count: &count };
                let space = RegionSpace::new(counting, tables, tree, headers, &pool, Quota::OPEN)
                    .map_err(parts)?;
                let heap = RegionHeap::new(space, &pool, bytes, &mut left).map_err(parts)?;
                body.run(&mut Numbered::new(heap, heap_base), unit, &|| count.get())
            } else {
                let space = RegionSpace::new(&memory, tables, tree, headers, &pool, Quota::OPEN)
                    .map_err(parts)?;
                let heap = RegionHeap::new(space, &pool, bytes, &mut left).map_err(parts)?;
                body.run(&mut Numbered::new(heap, heap_base), unit, &|| 0)
            }
        }
        (SystemName::Conventional, true) => {
            let table = DirectTable::new(counting, base, PAGES_LOG2, frames).map_err(parts)?;
            conventional(table, &memory, &mut pool_memory, body, &|| count.get())
        }
        (SystemName::Conventional, false) => {
            let table = DirectTable::new(&memory, base, PAGES_LOG2, frames).map_err(parts)?;
            conventional(table, &memory, &mut pool_memory, body, &|| 0)
        }
    }
}

fn conventional<M: PhysMemory, B: Body>(
    table: DirectTable<M>,
    memory: &SliceMemory<'_>,
    pool_memory: &mut PoolMemory,
    body: B,
    touched: &dyn Fn() -> u64,
) -> Result<B::Out, SystemError> {
    let base = PhysAddr::new(0);
    let tables = RtTables::page_table(PageTable { pages_log2: PAGES_LOG2, base }).map_err(parts)?;
    let mut heap = TableHeap::new(table, pool_memory).map_err(parts)?;
    body.run(&mut heap, Unit { memory, tables }, touched)
}

/// The units beside a system: without a TLB as in the paper, and with one.
pub(crate) struct Units<'a> {
    unit: Unit<'a>,
    bare: Rtmmu,
    with_tlb: Rtmmu,
    now: [Cycle; 2],
    /// Cycles of making the TLB forget, and the most at once.
    pub(crate) forget_cycles: Cycle,
    pub(crate) forget_cycles_max: Cycle,
    /// The most words of tables that one access read without a TLB.
    pub(crate) words_max: u64,
}

impl<'a> Units<'a> {
    pub(crate) fn new(
        unit: Unit<'a>,
        latency: RtLatency,
        tlb: Geometry,
    ) -> Result<Self, GeometryError> {
        let bare = Rtmmu::new(unit.tables, latency, None)?;
        let with_tlb = Rtmmu::new(unit.tables, latency, Some(tlb))?;
        let (forget_cycles, forget_cycles_max, words_max) = (0, 0, 0);
        let now = [0; 2];
        Ok(Self { unit, bare, with_tlb, now, forget_cycles, forget_cycles_max, words_max })
    }

    /// Lets both units make an access. If the page is not mapped, which both must say,
    /// `fault` gives it a frame and they try again.
    pub(crate) fn access(
        &mut self,
        addr: VirtAddr,
        write: bool,
        fault: &mut dyn FnMut(Vpn) -> Result<(), HeapError>,
    ) -> Result<Result<bool, HeapError>, SystemError> {
        let operation = if write { Operation::Write } else { Operation::Read };
        let mut faulted = false;
        loop {
            let mut unmapped = [false; 2];
            let units = [&mut self.bare, &mut self.with_tlb];
            for ((unit, now), unmapped) in units.into_iter().zip(&mut self.now).zip(&mut unmapped) {
                let access = unit.access(*now, addr, operation, self.unit.memory);
                *now = access.done;
                self.words_max = self.words_max.max(access.reads.total());
                match access.result {
                    Ok(_) => {}
                    Err(RtFault::Unmapped { .. }) if !faulted => *unmapped = true,
                    Err(fault) => return Err(SystemError::Unit { addr, fault }),
                }
            }
            match unmapped {
                [false, false] => return Ok(Ok(faulted)),
                [true, true] => {}
                _ => {
                    let what = format!("the units do not agree about {addr}");
                    return Err(SystemError::Parts(what));
                }
            }
            if let Err(error) = fault(addr.page()) {
                return Ok(Err(error));
            }
            faulted = true;
        }
    }

    /// Makes the TLB forget pages.
    pub(crate) fn forget(&mut self, pages: PageRange) {
        if pages.count > 0 {
            let cycles = self.with_tlb.invalidate_pages(pages);
            self.forget_cycles += cycles;
            self.forget_cycles_max = self.forget_cycles_max.max(cycles);
        }
    }

    /// Returns the counts of the unit without a TLB, and of the one with a TLB.
    pub(crate) fn stats(&self) -> [RtStats; 2] {
        [self.bare.stats(), self.with_tlb.stats()]
    }
}

/// Memory that counts accesses.
struct Counting<'a, M> {
    inner: &'a M,
    count: &'a Cell<u64>,
}

impl<M> Counting<'_, M> {
    #[inline]
    fn one(&self) -> &M {
        self.count.set(self.count.get() + 1);
        self.inner
    }
}

impl<M: PhysMemory> PhysMemory for Counting<'_, M> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        self.one().read_u32(addr)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.one().read_u64(addr)
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.one().write_u32(addr, value)
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.one().write_u64(addr, value)
    }
}

/// Words of which each use is an access to one: as the headers are used.
struct CountingWords<'a> {
    inner: Vec<u64>,
    count: &'a Cell<u64>,
}

impl Deref for CountingWords<'_> {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        self.count.set(self.count.get() + 1);
        &self.inner
    }
}

impl DerefMut for CountingWords<'_> {
    fn deref_mut(&mut self) -> &mut [u64] {
        self.count.set(self.count.get() + 1);
        &mut self.inner
    }
}

/// A tree of which each call counts as the most words that it may touch, over 2^20 pages.
struct CountingTree<'a, T> {
    inner: T,
    count: &'a Cell<u64>,
}

impl<T> CountingTree<'_, T> {
    fn words(&self, words: u64) {
        self.count.set(self.count.get() + words);
    }
}

impl<T: RegionTree> RegionTree for CountingTree<'_, T> {
    fn pages(&self) -> u64 {
        self.inner.pages()
    }

    fn split(&mut self, at: Vpn) -> Result<(), TreeError> {
        self.words(3);
        self.inner.split(at)
    }

    fn union(&mut self, at: Vpn) -> Result<(), TreeError> {
        self.words(3);
        self.inner.union(at)
    }

    fn find(&self, page: Vpn) -> Option<Vpn> {
        self.words(8);
        self.inner.find(page)
    }

    fn next(&self, page: Vpn) -> Option<Vpn> {
        self.words(9);
        self.inner.next(page)
    }

    fn check(&self) -> bool {
        self.inner.check()
    }
}
