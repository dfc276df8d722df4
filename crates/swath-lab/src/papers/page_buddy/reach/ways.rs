//! The TLBs that are compared, and one measurement of them.

use std::cell::RefCell;

use swath_arch::segments::SegmentList;
use swath_arch::{
    Attributes, Coalescing, Extent, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Regime,
    VirtAddr, Vpn,
};
use swath_frame::{BuddyConfig, FrameAllocator};
use swath_hw::translate::translator::access_by_steps;
use swath_hw::{
    Geometry, Join, Joined, OffsetOutcome, OffsetPrediction, RedundantRanges, TlbOutcome,
    Translate, TranslatedAccess, TranslationFault,
};
use swath_vm::{AddressSpace, SegmentEntry, Sizes, write_segment_list};

use crate::papers::page_buddy::design::compared::added;
use crate::papers::page_buddy::design::tlb_kind::WithoutTime;
use crate::papers::page_buddy::design::{Added, Scheme, TlbKind};
use crate::papers::page_buddy::reach::sparse::SparseMemory;
use crate::papers::page_buddy::translation::{
    Hardware, MeasureError, Program, failed, room_below, table_extent,
};
use crate::source::memory::{Allocator, new_allocator};

/// The pages of 16 entries: Arm's contiguous bit and large pages of ARMv7, RISC-V's Svnapot.
const SIXTEEN: Order = Order::known(4);

/// log2 of the offsets that are remembered.
const OFFSETS_LOG2: u32 = 5;

/// log2 of the pages of a region for which an offset is remembered: 1 MiB.
const REGION_LOG2: u32 = 8;

/// log2 of the pages of the longest fragment: 2 MiB.
const FRAGMENT_LOG2: u32 = 9;

/// log2 of the pages of the longest aligned block that one entry maps: a format's whole address space.
const ALIGNED_LOG2: u32 = 36;

/// A TLB that is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// A page to an entry.
    Pages,
    /// 16 pages to an entry where the table says so.
    Sixteen,
    /// All sizes of the format.
    Large,
    /// AMD's Zen.
    Zen,
    /// CoLT, with a line of descriptors.
    Colt,
    /// Fragments of AMD's GPUs.
    Fragments,
    /// The same of any length.
    Aligned,
    /// Redundant memory mappings.
    Ranges,
    /// Predicted offsets.
    Offsets,
    /// Anchors.
    Anchors,
    /// PCAD.
    Pcad,
    /// PCAD, of each block what lies in one leaf table.
    Table,
    /// One that another crate added, and its TLB.
    Added(Added, TlbKind),
}

impl Way {
    /// Those that there are on a format, without [`Aligned`](Self::Aligned), which is compared in hardware alone.
    pub(crate) fn all(format: Format) -> Vec<Self> {
        let all = [
            Self::Pages,
            Self::Zen,
            Self::Sixteen,
            Self::Large,
            Self::Fragments,
            Self::Colt,
            Self::Anchors,
            Self::Offsets,
            Self::Ranges,
            Self::Table,
            Self::Pcad,
        ];
        let has_sixteen = Sizes::all(format).contains(SIXTEEN);
        let own = all.into_iter().filter(|way| has_sixteen || !matches!(way, Self::Sixteen));
        let of = |one: Added| Some(Self::Added(one, one.tlb?));
        own.chain(added().into_iter().filter_map(of)).collect()
    }

    /// Its name in the figures.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Pages => "4 KiB pages",
            Self::Sixteen => "64 KiB pages",
            Self::Large => "all page sizes",
            Self::Zen => "Zen",
            Self::Colt => "CoLT, a line",
            Self::Fragments => "fragments",
            Self::Aligned => "aligned",
            Self::Ranges => "RMM",
            Self::Offsets => "SpOT",
            Self::Anchors => "AT",
            Self::Pcad => "PCAD",
            Self::Table => "PCAD, one table",
            Self::Added(one, _) => one.name,
        }
    }

    /// The contiguity that its table tells of.
    const fn scheme(self) -> Scheme {
        match self {
            Self::Pcad | Self::Table | Self::Fragments | Self::Aligned => Scheme::Pcad,
            Self::Anchors => Scheme::At,
            Self::Added(one, _) => one.scheme,
            _ => Scheme::Trad,
        }
    }

    /// The superpages in its table.
    fn sizes(self, format: Format) -> Sizes {
        match self {
            Self::Sixteen => Sizes::NONE.with(SIXTEEN),
            Self::Large | Self::Added(Added { scheme: Scheme::Large, .. }, _) => Sizes::all(format),
            _ => Sizes::NONE,
        }
    }
}

/// What the accesses of all masters met.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Met {
    /// Accesses.
    pub(crate) accesses: u64,
    /// Those that waited for a walk.
    pub(crate) waited: u64,
    /// Reads of tables and lists.
    pub(crate) reads: u64,
}

impl Met {
    /// The share of accesses that did not wait.
    pub(crate) fn hit_rate(&self) -> f64 {
        1.0 - self.waited as f64 / self.accesses.max(1) as f64
    }

    /// Reads of tables for each access.
    pub(crate) fn reads_per_access(&self) -> f64 {
        self.reads as f64 / self.accesses.max(1) as f64
    }
}

/// Maps blocks in a table whose frames are `tables`, then hands over what the hardware is told, and what is
/// left of those frames.
pub(crate) fn with_table<M: PhysMemory, T>(
    format: Format,
    (coalescing, sizes): (Coalescing, Sizes),
    blocks: &[(Vpn, Extent)],
    tables: Extent,
    memory: &M,
    run: impl FnOnce(Regime, &RefCell<Allocator>) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let tables: RefCell<Allocator> = RefCell::new(new_allocator(tables, BuddyConfig::BBS, true)?);
    let mut space = AddressSpace::new(format, coalescing, memory, &tables, &tables)
        .map_err(|error| MeasureError::Map(error.to_string()))?;
    for &(page, block) in blocks {
        space
            .map_largest(page, block, sizes, Attributes::USER_DATA)
            .map_err(|error| MeasureError::Map(error.to_string()))?;
    }
    run(space.regime(), &tables)
}

/// Returns log2 of the pages of a leaf table.
fn table_log2(format: Format) -> u32 {
    format.levels().last().map_or(0, |level| level.index.width)
}

/// Writes the blocks as a list of ranges, those that go on from one another as one.
fn write_ranges(
    blocks: &[(Vpn, Extent)],
    frames: &mut Allocator,
    memory: &SparseMemory,
) -> Result<SegmentList, MeasureError> {
    let mut ranges: Vec<SegmentEntry> = Vec::new();
    for &(page, block) in blocks {
        match ranges.last_mut() {
            Some(last)
                if last.pages.end() == page && last.first + last.pages.count == block.start =>
            {
                last.pages.count += block.count;
            }
            _ => ranges.push(SegmentEntry {
                pages: PageRange::new(page, block.count),
                first: block.start,
                writable: true,
            }),
        }
    }
    let pages = SegmentList::len_bytes(ranges.len() as u64).div_ceil(swath_arch::BASE_PAGE_BYTES);
    let mut at = None;
    let found = frames.allocate(pages.next_power_of_two(), &mut |block| at = at.or(Some(block)));
    let room = at.filter(|block| found.is_ok() && block.count >= pages);
    let root =
        room.ok_or_else(|| failed("no run of frames for the list of ranges"))?.start.address();
    write_segment_list(memory, root, &ranges).map_err(failed)?;
    Ok(SegmentList { root })
}

/// Measures a TLB on a program whose requests are served by these blocks, in their order.
pub(crate) fn measure(
    way: Way,
    hardware: &Hardware,
    program: &Program,
    blocks: &[(Vpn, Extent)],
) -> Result<Met, MeasureError> {
    let format = hardware.format;
    let mut tables = table_extent(hardware.frames, &program.requests);
    // Room for a list of all blocks, with what aligning it takes.
    let list = SegmentList::len_bytes(blocks.len() as u64) / 1024 + 2;
    tables = Extent::new(Pfn::new(tables.start.raw().saturating_sub(list)), tables.count + list);
    room_below(tables, blocks)?;
    let memory = SparseMemory::default();
    if let Way::Added(Added { tables: Some(new), .. }, kind) = way {
        let mut frames: Allocator = new_allocator(tables, BuddyConfig::BBS, true)?;
        let root = new(blocks, &memory, &mut frames).map_err(MeasureError::Map)?;
        return by_kind(
            kind,
            Regime { format, root, coalescing: Coalescing::None },
            hardware,
            program,
            &memory,
        );
    }
    let told = (hardware.coalescing(way.scheme(), blocks), way.sizes(format));
    with_table(format, told, blocks, tables, &memory, |regime, rest| {
        let geometry = hardware.tlb;
        let joined = |join| {
            Ok(Joined::new(regime, geometry, join).map_err(failed)?.replacing(hardware.replacement))
        };
        match way {
            Way::Zen => translating(program, &memory, || joined(Join::Whole { log2: 2 })),
            Way::Colt => translating(program, &memory, || joined(Join::Part { log2: 3 })),
            Way::Fragments => {
                translating(program, &memory, || joined(Join::Fragment { log2_max: FRAGMENT_LOG2 }))
            }
            Way::Aligned => {
                translating(program, &memory, || joined(Join::Fragment { log2_max: ALIGNED_LOG2 }))
            }
            Way::Table => {
                let log2 = table_log2(format);
                translating(program, &memory, || joined(Join::Table { log2 }))
            }
            Way::Ranges => {
                let list = write_ranges(blocks, &mut rest.borrow_mut(), &memory)?;
                // As many entries in all as the others have.
                let entries = hardware.tlb.sets * hardware.tlb.ways;
                let ranges = (entries / 2).max(1);
                let pages = Geometry::fully_associative((entries - entries / 2).max(1));
                let new = || RedundantRanges::new(regime, pages, list, ranges).map_err(failed);
                translating(program, &memory, new)
            }
            Way::Offsets => {
                let new = || {
                    let unit = OffsetPrediction::new(regime, geometry, OFFSETS_LOG2, REGION_LOG2);
                    Ok(unit.map_err(failed)?.replacing(hardware.replacement))
                };
                let waited = |unit: &mut OffsetPrediction, addr| {
                    let (_, outcome) = unit.access(addr, &memory)?;
                    Ok(matches!(outcome, OffsetOutcome::Waited | OffsetOutcome::Wrong))
                };
                run(program, new, waited, |unit| unit.stats().mmu.walk.reads())
            }
            Way::Added(_, kind) => by_kind(kind, regime, hardware, program, &memory),
            Way::Pages | Way::Sixteen | Way::Large | Way::Anchors | Way::Pcad => {
                translating(program, &memory, || hardware.mmu(regime).map_err(failed))
            }
        }
    })
}

/// Measures a TLB that another crate added.
fn by_kind(
    kind: TlbKind,
    regime: Regime,
    hardware: &Hardware,
    program: &Program,
    memory: &SparseMemory,
) -> Result<Met, MeasureError> {
    let new = || kind.without_time(regime, hardware.tlb).map_err(failed);
    let waited = |unit: &mut Box<dyn WithoutTime>, addr| Ok(is_miss(&unit.access(addr, memory)?));
    run(program, new, waited, |unit| unit.stats().walk.reads())
}

/// Lets each master's accesses go through a unit of its own: `waited` says whether one had to wait, `reads` how
/// many reads the unit made.
fn run<T>(
    program: &Program,
    new: impl Fn() -> Result<T, MeasureError>,
    waited: impl Fn(&mut T, VirtAddr) -> Result<bool, TranslationFault>,
    reads: impl Fn(&T) -> u64,
) -> Result<Met, MeasureError> {
    let mut met = Met::default();
    for master in &program.masters {
        let mut unit = new()?;
        master.visit(&mut |addr| {
            let waited = waited(&mut unit, addr);
            let waited = waited.map_err(|fault| failed(format_args!("{addr}: {fault}")))?;
            met.accesses += 1;
            met.waited += u64::from(waited);
            Ok(())
        })?;
        met.reads += reads(&unit);
    }
    Ok(met)
}

/// The same for a unit in which all that misses waits.
fn translating<T: Translate>(
    program: &Program,
    memory: &SparseMemory,
    new: impl Fn() -> Result<T, MeasureError>,
) -> Result<Met, MeasureError> {
    let waited = |unit: &mut T, addr| Ok(is_miss(&access_by_steps(unit, addr, memory)?));
    run(program, new, waited, |unit| unit.stats().walk.reads())
}

const fn is_miss(access: &TranslatedAccess) -> bool {
    matches!(access.outcome, TlbOutcome::Miss(_))
}

/// Returns the address of a frame of blocks that serve the pages from 0 on, in their order.
pub(crate) fn frame_of(blocks: &[(Vpn, Extent)], page: Vpn) -> Option<Pfn> {
    let after = blocks.partition_point(|(start, _)| *start <= page);
    let (start, block) = blocks[..after].last()?;
    let offset = page.raw() - start.raw();
    (offset < block.count).then(|| block.start + offset)
}

/// Returns the same byte in another frame.
pub(crate) fn moved(addr: PhysAddr, frame: Pfn) -> PhysAddr {
    frame.address() + addr.raw() % swath_arch::BASE_PAGE_BYTES
}
