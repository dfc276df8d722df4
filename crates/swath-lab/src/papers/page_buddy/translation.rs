//! One measurement of translation: memory, an allocator, page tables in bytes,
//! a TLB for each master, and the accesses.
//!
//! A [`Program`] requests memory and accesses it; a
//! [`Design`] is an allocator with a way of coalescing and a TLB. [`measure`] allocates every request whole (eager
//! paging, section IV-G), maps its blocks, and lets each master's accesses go
//! through a TLB of its own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Display;
use std::ops::Add;

use foldhash::fast::FixedState;
use swath_arch::formats::line;
use swath_arch::{
    Attributes, BASE_PAGE_BYTES, BusError, Coalescing, ContiguityField, Extent, Format, Order,
    PageRange, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr, Vpn,
};
use swath_frame::{BuddyConfig, FrameAllocator};
use swath_hw::{Geometry, Mmu, MmuConfigError, MmuStats, Replacement, TranslationStats, WalkOrder};
use swath_vm::{AddressSpace, Sizes, anchor_distance};

use crate::papers::page_buddy::design::{Design, NewTables, Scheme};
use crate::papers::page_buddy::setting::{ContiguityBits, MachinePlan};
use crate::papers::page_buddy::workload::Workload;
use crate::source::memory::{Allocator, PrepareError, Random, Source, new_allocator};
use crate::source::real::{InputError, Machine, Trace};
use swath_trace::access::{PageSet, TraceError};

/// A program: its requests for memory and its accesses.
pub struct Program {
    /// The requests, in order; each is served whole before the first access.
    pub requests: Vec<PageRange>,
    /// The accesses of each master.
    pub masters: Vec<Accesses>,
}

/// The accesses of one master.
pub enum Accesses {
    /// In memory.
    Listed(Vec<VirtAddr>),
    /// In a file, read anew for each measurement.
    Recorded {
        /// The file.
        trace: Trace,
        /// The program's pages in numbers that the format can translate, if it
        /// cannot translate the program's own.
        renumbered: Option<HashMap<Vpn, Vpn, FixedState>>,
    },
}

impl Accesses {
    /// Hands each address to `visit`; a recorded access that lies across pages
    /// gives one address in each.
    ///
    /// # Errors
    /// Those of `visit`, and [`MeasureError::Trace`].
    pub(crate) fn visit(
        &self,
        visit: &mut impl FnMut(VirtAddr) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        let (trace, renumbered) = match self {
            Self::Listed(addresses) => return addresses.iter().try_for_each(|&a| visit(a)),
            Self::Recorded { trace, renumbered } => (trace, renumbered),
        };
        let failed = |error: TraceError| MeasureError::Trace(error);
        for access in trace.open().map_err(failed)? {
            let access = access.map_err(failed)?;
            let mut offset = access.addr.page_offset();
            for page in access.pages().iter() {
                let page = match renumbered {
                    None => page,
                    // A file that changes while it is read has new pages.
                    Some(map) => *map.get(&page).unwrap_or(&page),
                };
                visit(page.address() + offset)?;
                offset = 0;
            }
        }
        Ok(())
    }
}

/// The page to which the first request is mapped.
const FIRST_PAGE: u64 = 0x1000;

/// Requests begin at multiples of 1 MiB.
const REQUEST_ALIGN_PAGES: u64 = 256;

/// The most frames for the tables of a recorded program: 128 MiB, for 8 GiB of memory in
/// few pieces, or for 4000 pieces.
const TABLE_FRAMES_MAX: u64 = 1 << 15;

/// Touched pages that are closer than this belong to one request: 64 KiB.
const REQUEST_GAP_PAGES: u64 = 16;

/// The pages that a recorded program touches.
fn touched(trace: &Trace) -> Result<PageSet, TraceError> {
    let (mut touched, mut last) = (PageSet::default(), None);
    for access in trace.open()? {
        let pages = access?.pages();
        if last != Some(pages) {
            touched.insert(pages)?;
            last = Some(pages);
        }
    }
    Ok(touched)
}

/// Groups touched pages into requests: those less than [`REQUEST_GAP_PAGES`] apart belong to one.
pub(crate) fn grouped(touched: &PageSet) -> Vec<PageRange> {
    let mut requests: Vec<PageRange> = Vec::new();
    for range in touched.ranges() {
        match requests.last_mut() {
            Some(request) if range.start - request.end() < REQUEST_GAP_PAGES => {
                request.count = range.end() - request.start;
            }
            _ => requests.push(range),
        }
    }
    requests
}

impl Program {
    /// A workload with its buffers laid one after the other.
    pub fn of(workload: &Workload) -> Self {
        let mut next = FIRST_PAGE;
        let requests: Vec<PageRange> = workload
            .buffers
            .iter()
            .map(|len_bytes| {
                let pages = PageRange::new(Vpn::new(next), len_bytes.div_ceil(BASE_PAGE_BYTES));
                next = pages.end().raw().next_multiple_of(REQUEST_ALIGN_PAGES);
                pages
            })
            .collect();
        let mut program = Self { requests, masters: Vec::new() };
        for master in &workload.masters {
            let addresses =
                master.transactions().map(|t| program.address(t.buffer, t.offset_bytes));
            let addresses = Accesses::Listed(addresses.collect());
            program.masters.push(addresses);
        }
        program
    }

    /// A byte of a workload's buffer, which is the request of the same number.
    pub fn address(&self, buffer: usize, offset_bytes: u64) -> VirtAddr {
        VirtAddr::new(self.requests[buffer].start.address().raw() + offset_bytes)
    }

    /// A recorded program on a format. What it touches is grouped into
    /// requests: pages at most [`REQUEST_GAP_PAGES`] apart belong to one, as a
    /// stand-in for the program's own requests, which a trace does not tell.
    /// Where the format cannot translate an address, the requests are laid one
    /// after the other, each at its own offset within 1 MiB.
    ///
    /// # Errors
    /// [`InputError`], which names the file and the byte.
    pub fn recorded(trace: Trace, format: Format) -> Result<Self, InputError> {
        let touched = touched(&trace).map_err(|error| trace.error(&error))?;
        let mut requests = grouped(&touched);
        let tables = table_extent(u64::MAX, &requests).count;
        if tables > TABLE_FRAMES_MAX {
            let what = "frames for the tables of what it touches";
            return Err(trace.error(&TraceError::TooLarge { limit: TABLE_FRAMES_MAX, what }));
        }
        let fits = |page: Vpn| page.raw() >> 52 == 0 && format.is_canonical(page.address());
        let mut renumbered = None;
        if !requests.iter().all(|r| fits(r.start) && fits(Vpn::new(r.end().raw() - 1))) {
            let mut next = FIRST_PAGE;
            let map: &mut HashMap<Vpn, Vpn, FixedState> = renumbered.insert(HashMap::default());
            for request in &mut requests {
                let start = next + request.start.raw() % REQUEST_ALIGN_PAGES;
                map.extend(request.iter().zip(start..).map(|(old, new)| (old, Vpn::new(new))));
                request.start = Vpn::new(start);
                next = request.end().raw().next_multiple_of(REQUEST_ALIGN_PAGES);
            }
        }
        Ok(Self { requests, masters: vec![Accesses::Recorded { trace, renumbered }] })
    }

    /// Memory of free blocks of one size, `free_per_requested` frames free for
    /// each page that the program requests.
    pub fn scattered(
        &self,
        block_frames: u64,
        free_per_requested: f64,
        free_share: f64,
    ) -> Source<'static> {
        let free_frames = (self.requested_pages() as f64 * free_per_requested).ceil() as u64;
        Source::blocks(block_frames, free_frames, free_share)
    }

    /// Pages requested in all.
    pub fn requested_pages(&self) -> u64 {
        self.requests.iter().map(|request| request.count).sum()
    }
}

/// The hardware of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// The translation format.
    pub format: Format,
    /// The TLB of each master.
    pub tlb: Geometry,
    /// The width of the contiguity fields.
    pub contiguity: ContiguityBits,
    /// The choice of the entry that gives way in it.
    pub replacement: Replacement,
    /// The order of AT's two walks.
    pub order: WalkOrder,
    /// Frames of physical memory.
    pub frames: u64,
    /// log2 of AT's anchor distance in pages; what suits the mapped blocks best
    /// if not given.
    pub anchor_log2: Option<Order>,
}

/// Frames of physical memory that a format reaches: 4 GiB in ARMv7, 256 TiB
/// elsewhere.
pub fn reach_frames(format: Format) -> u64 {
    match format {
        Format::ArmV7 => 1 << 20,
        Format::ArmV8 | Format::X86_64 | Format::Sv39 | Format::Sv48 => 1 << 36,
    }
}

impl Hardware {
    /// A fully associative TLB before the memory that the format reaches.
    pub fn new(format: Format, tlb_entries: u32, contiguity: ContiguityBits) -> Self {
        Self {
            format,
            tlb: Geometry::fully_associative(tlb_entries),
            contiguity,
            replacement: Replacement::default(),
            order: WalkOrder::default(),
            frames: reach_frames(format),
            anchor_log2: None,
        }
    }

    /// The hardware of a plan's machine.
    pub fn of(machine: &MachinePlan) -> Self {
        let format = machine.format.format();
        Self {
            tlb: machine.geometry(),
            replacement: machine.tlb_replacement.replacement(),
            order: machine.walk_order.order(),
            anchor_log2: machine.anchor_log2.and_then(|log2| Order::new(log2.tiny())),
            ..Self::new(format, machine.tlb_entries.small(), machine.contiguity_bits)
        }
    }

    /// Returns the hardware of a design: what it has of its own, and the rest of this.
    #[must_use]
    pub fn under(&self, design: &Design) -> Self {
        let own = design.own;
        Self {
            tlb: own.tlb.unwrap_or(self.tlb),
            replacement: own.replacement.unwrap_or(self.replacement),
            order: own.order.unwrap_or(self.order),
            anchor_log2: own.anchor_log2.or(self.anchor_log2),
            ..*self
        }
    }

    /// Returns an MMU before these tables.
    ///
    /// # Errors
    /// [`MmuConfigError`].
    pub(crate) fn mmu(&self, regime: Regime) -> Result<Mmu, MmuConfigError> {
        Ok(Mmu::new(regime, self.tlb, self.order)?.replacing(self.replacement))
    }

    /// Returns the free frames of a real machine, as far as this hardware has memory
    /// before the tables of the program.
    pub fn free_of(&self, machine: &Machine, program: &Program) -> Vec<Extent> {
        machine.below(table_extent(self.frames, &program.requests).start)
    }

    /// Returns the contiguity that the tables tell of for a scheme, once it is known
    /// what they will map.
    pub(crate) fn coalescing(&self, scheme: Scheme, blocks: &[(Vpn, Extent)]) -> Coalescing {
        let field = self.contiguity.field();
        match scheme {
            Scheme::Trad | Scheme::Large => Coalescing::None,
            Scheme::Pcad => Coalescing::Pcad(field),
            Scheme::At => {
                let max = match field {
                    ContiguityField::Descriptor => self.format.anchor().max(),
                    ContiguityField::Line => line::max(self.format),
                    ContiguityField::Beside { bits } => (1 << bits) - 1,
                };
                let runs = blocks.iter().map(|(page, block)| PageRange::new(*page, block.count));
                let distance = self.anchor_log2.unwrap_or_else(|| anchor_distance(runs, max));
                Coalescing::Anchor { field, distance }
            }
        }
    }
}

/// Counts of one measurement.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Measured {
    /// Accesses of all masters.
    pub accesses: u64,
    /// Those that a TLB entry served.
    pub hits: u64,
    /// Page-table walks of both kinds.
    pub walks: u64,
    /// Page-table reads.
    pub reads: u64,
    /// Blocks that served the requests.
    pub blocks: u64,
}

impl Measured {
    /// The share of accesses that hit; 1 if there were none.
    pub fn hit_rate(&self) -> f64 {
        if self.accesses == 0 { 1.0 } else { self.hits as f64 / self.accesses as f64 }
    }
}

impl From<MmuStats> for Measured {
    fn from(MmuStats { tlb, walk }: MmuStats) -> Self {
        TranslationStats { l1: tlb, walk, ..TranslationStats::default() }.into()
    }
}

impl From<TranslationStats> for Measured {
    fn from(stats: TranslationStats) -> Self {
        Self {
            accesses: stats.l1.accesses,
            hits: stats.l1.hits(),
            walks: stats.walk.walks(),
            reads: stats.walk.reads(),
            blocks: 0,
        }
    }
}

impl Add for Measured {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            accesses: self.accesses + other.accesses,
            hits: self.hits + other.hits,
            walks: self.walks + other.walks,
            reads: self.reads + other.reads,
            blocks: self.blocks + other.blocks,
        }
    }
}

/// A measurement that failed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// Memory could not be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A request could not be served.
    #[error("a request for {pages} pages: {why}")]
    Request {
        /// Pages requested.
        pages: u64,
        /// The reason.
        why: swath_frame::FrameAllocateError,
    },
    /// A block could not be mapped.
    #[error("mapping: {0}")]
    Map(String),
    /// Physical memory is too small.
    #[error(
        "a memory of {frames} frames, {reserved} of them for tables, has no frame {end}; \
         less may be free (free_per_requested), or a larger share (free_share)"
    )]
    Room {
        /// Frames of the memory.
        frames: u64,
        /// Those of the tables, which lie at its end.
        reserved: u64,
        /// The frame behind the last that was allocated.
        end: u64,
    },
    /// The accesses could not be read.
    #[error(transparent)]
    Trace(TraceError),
    /// The hardware cannot be built or faulted.
    #[error("translation: {0}")]
    Hardware(String),
}

/// Returns the frames of the tables for these requests: at the end of physical
/// memory, room for the upper levels and for each 2 MiB of a request a leaf table with
/// what may stand beside it. Data must lie below.
pub fn table_extent(memory_frames: u64, requests: &[PageRange]) -> Extent {
    let frames = 64 + requests.iter().map(|r| 4 * (r.count / 256 + 2)).sum::<u64>();
    let frames = frames.min(memory_frames);
    Extent::new(Pfn::new(memory_frames - frames), frames)
}

/// A program's requests, mapped.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// All that the hardware is told.
    pub regime: Regime,
    /// Blocks that serve the requests.
    pub blocks: u64,
    /// Words of tables written for each page; a word beside a descriptor comes with it.
    pub writes_per_page: f64,
}

/// Serves the program's requests in this memory and maps them; then hands over
/// what has been mapped, and physical memory.
///
/// # Errors
/// [`MeasureError`], or that of `run`.
pub fn with_mapped<T>(
    hardware: &Hardware,
    design: &Design,
    source: &Source<'_>,
    program: &Program,
    random: &mut Random,
    run: impl FnOnce(Mapped, &SliceMemory<'_>) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let hardware = &hardware.under(design);
    let mut allocator = design.frames.over(source, random)?;
    let mut blocks = Vec::new();
    for request in &program.requests {
        blocks.extend(serve(*request, allocator.as_mut())?);
    }
    match design.tables {
        Some(tables) => with_own_tables(hardware, tables, program, &blocks, run),
        None => with_blocks(hardware, design.scheme, program, &blocks, run),
    }
}

/// Does as [`with_blocks`] with page tables that another crate writes.
fn with_own_tables<T>(
    hardware: &Hardware,
    new: NewTables,
    program: &Program,
    blocks: &[(Vpn, Extent)],
    run: impl FnOnce(Mapped, &SliceMemory<'_>) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let extent = table_extent(hardware.frames, &program.requests);
    room_below(extent, blocks)?;
    let mut words = vec![0; extent.count as usize * 512];
    let memory = SliceMemory::new(extent.start, &mut words);
    let mut tables: Allocator = new_allocator(extent, BuddyConfig::BBS, true)?;
    let counted = CountingWrites { memory: &memory, writes: Cell::new(0) };
    let root = new(blocks, &counted, &mut tables).map_err(MeasureError::Map)?;
    let regime = Regime { format: hardware.format, root, coalescing: Coalescing::None };
    let pages = blocks.iter().map(|(_, block)| block.count).sum::<u64>().max(1);
    let writes_per_page = counted.writes.get() as f64 / pages as f64;
    run(Mapped { regime, blocks: blocks.len() as u64, writes_per_page }, &memory)
}

/// Memory of which writes are counted.
struct CountingWrites<'a, 'm> {
    memory: &'a SliceMemory<'m>,
    writes: Cell<u64>,
}

impl PhysMemory for CountingWrites<'_, '_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        self.memory.read_u32(addr)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.memory.read_u64(addr)
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.writes.update(|writes| writes + 1);
        self.memory.write_u32(addr, value)
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.writes.update(|writes| writes + 1);
        self.memory.write_u64(addr, value)
    }
}

/// Maps blocks that serve the program's requests; then hands over what has been mapped, and
/// physical memory.
///
/// # Errors
/// [`MeasureError`], or that of `run`.
pub fn with_blocks<T>(
    hardware: &Hardware,
    scheme: Scheme,
    program: &Program,
    blocks: &[(Vpn, Extent)],
    run: impl FnOnce(Mapped, &SliceMemory<'_>) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let extent = table_extent(hardware.frames, &program.requests);
    room_below(extent, blocks)?;
    let mut words = vec![0; extent.count as usize * 512];
    let memory = SliceMemory::new(extent.start, &mut words);
    let tables: RefCell<Allocator> = RefCell::new(new_allocator(extent, BuddyConfig::BBS, true)?);
    let coalescing = hardware.coalescing(scheme, blocks);
    let mut space = AddressSpace::new(hardware.format, coalescing, &memory, &tables, &tables)
        .map_err(|error| MeasureError::Map(error.to_string()))?;
    let sizes = if scheme == Scheme::Large { Sizes::all(hardware.format) } else { Sizes::NONE };
    for &(page, block) in blocks {
        space
            .map_largest(page, block, sizes, Attributes::USER_DATA)
            .map_err(|error| MeasureError::Map(error.to_string()))?;
    }
    let pages = blocks.iter().map(|(_, block)| block.count).sum::<u64>().max(1);
    let writes_per_page = space.statistics().descriptor_writes as f64 / pages as f64;
    let blocks = blocks.len() as u64;
    run(Mapped { regime: space.regime(), blocks, writes_per_page }, &memory)
}

/// Refuses blocks in the frames of the tables, or beyond.
///
/// # Errors
/// [`MeasureError::Room`].
pub(crate) fn room_below(tables: Extent, blocks: &[(Vpn, Extent)]) -> Result<(), MeasureError> {
    let end = blocks.iter().map(|(_, block)| block.end().raw()).max().unwrap_or(0);
    let (frames, reserved) = (tables.end().raw(), tables.count);
    if end > tables.start.raw() {
        return Err(MeasureError::Room { frames, reserved, end });
    }
    Ok(())
}

/// Returns the blocks that an allocator gives for a request, each at its place.
///
/// # Errors
/// [`MeasureError::Request`].
pub(crate) fn serve(
    request: PageRange,
    allocator: &mut dyn FrameAllocator,
) -> Result<Vec<(Vpn, Extent)>, MeasureError> {
    blocks_at(request, |pages, sink| allocator.allocate(pages, sink))
        .map_err(|why| MeasureError::Request { pages: request.count, why })
}

/// Returns the blocks that `allocate` hands over for a request, each at its place.
///
/// # Errors
/// Those of `allocate`.
pub(crate) fn blocks_at<E>(
    request: PageRange,
    allocate: impl FnOnce(u64, &mut dyn FnMut(Extent)) -> Result<(), E>,
) -> Result<Vec<(Vpn, Extent)>, E> {
    let (mut page, mut blocks) = (request.start, Vec::new());
    allocate(request.count, &mut |block| {
        blocks.push((page, block));
        page += block.count;
    })?;
    Ok(blocks)
}

/// Measures a design on a program in this memory.
///
/// # Errors
/// [`MeasureError`].
pub fn measure(
    hardware: &Hardware,
    design: &Design,
    source: &Source<'_>,
    program: &Program,
    random: &mut Random,
) -> Result<Measured, MeasureError> {
    let hardware = &hardware.under(design);
    with_mapped(hardware, design, source, program, random, |mapped, memory| {
        let Some(tlb) = &design.tlb else { return access_all(hardware, program, mapped, memory) };
        let mut measured = Measured { blocks: mapped.blocks, ..Measured::default() };
        for master in &program.masters {
            let mut own = tlb.without_time(mapped.regime, hardware.tlb).map_err(failed)?;
            master.visit(&mut |address| own.access(address, memory).map(drop).map_err(failed))?;
            measured = measured + own.stats().into();
        }
        Ok(measured)
    })
}

/// Measures a scheme on a program whose requests are served by these blocks.
///
/// # Errors
/// [`MeasureError`].
pub fn measure_blocks(
    hardware: &Hardware,
    scheme: Scheme,
    program: &Program,
    blocks: &[(Vpn, Extent)],
) -> Result<Measured, MeasureError> {
    with_blocks(hardware, scheme, program, blocks, |mapped, memory| {
        access_all(hardware, program, mapped, memory)
    })
}

/// Returns the error of hardware that cannot be built or faulted.
pub(crate) fn failed(error: impl Display) -> MeasureError {
    MeasureError::Hardware(error.to_string())
}

/// Lets each master's accesses go through a TLB of its own.
fn access_all(
    hardware: &Hardware,
    program: &Program,
    mapped: Mapped,
    memory: &SliceMemory<'_>,
) -> Result<Measured, MeasureError> {
    let mut measured = Measured { blocks: mapped.blocks, ..Measured::default() };
    for master in &program.masters {
        let mut mmu = hardware.mmu(mapped.regime).map_err(failed)?;
        master.visit(&mut |address| match mmu.access(address, memory) {
            Ok(_) => Ok(()),
            Err(fault) => Err(MeasureError::Hardware(format!("{address}: {fault}"))),
        })?;
        measured = measured + mmu.stats().into();
    }
    Ok(measured)
}
