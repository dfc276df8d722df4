//! One accelerator, its way of translation, and the memory behind: all ways get the same requests, and
//! the data lie in the same frames.

use swath_arch::{BASE_PAGE_BYTES, Extent, Format, PageRange, SegmentList, SliceMemory, Vpn};
use swath_hw::{
    Mmu, SegmentRegisters, System, SystemConfig, SystemStats, Transaction, Translate, WalkOrder,
};
use swath_vm::{SegmentEntry, write_segment_list};

use crate::papers::clmalloc::translation::load::Placed;
use crate::papers::page_buddy::design::Scheme;
use crate::papers::page_buddy::setting::ContiguityBits;
use crate::papers::page_buddy::translation::{
    Hardware, Mapped, MeasureError, Program, room_below, table_extent, with_blocks,
};
use crate::study::grid::{Metrics, metrics};

/// Bits of each contiguity field, beside the descriptor: more than any extent here needs.
const CONTIGUITY_BITS: u8 = 16;

/// A way of translation with its number of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Base, bound and target of each of the machine's areas.
    Map,
    /// Base, bound and target of so many of the segments' extents.
    Registers(u32),
    /// An IOMMU whose TLB has so many entries, each for what the scheme tells as one.
    Iommu(Scheme, u32),
}

impl Way {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Map => "segment map".to_owned(),
            Self::Registers(1) => "1 segment register".to_owned(),
            Self::Registers(count) => format!("{count} segment registers"),
            Self::Iommu(Scheme::Trad, _) => "TRAD".to_owned(),
            Self::Iommu(Scheme::Large, _) => "TRAD, large pages".to_owned(),
            Self::Iommu(Scheme::Pcad, _) => "PCAD".to_owned(),
            Self::Iommu(Scheme::At, _) => "AT".to_owned(),
        }
    }

    /// Runs the requests of an accelerator.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub(crate) fn run(
        self,
        placed: &Placed,
        requests: &[Transaction],
    ) -> Result<Metrics, MeasureError> {
        let config = SystemConfig::paper();
        let frames = config.dram.len_bytes() / BASE_PAGE_BYTES;
        let program = Program { requests: placed.segments.clone(), masters: Vec::new() };
        let stats = match self {
            Self::Map => with_list(frames, &program, &placed.areas, |list, memory| {
                let count = u32::try_from(placed.areas.len()).map_err(failed)?;
                let mut unit = SegmentRegisters::new(list, count).map_err(failed)?;
                unit.load(memory).map_err(failed)?;
                run(&config, unit, requests, memory)
            })?,
            Self::Registers(count) => {
                with_list(frames, &program, &placed.extents, |list, memory| {
                    let unit = SegmentRegisters::new(list, count).map_err(failed)?;
                    run(&config, unit, requests, memory)
                })?
            }
            Self::Iommu(scheme, entries) => {
                let bits = ContiguityBits::Ideal(CONTIGUITY_BITS);
                let hardware = Hardware { frames, ..Hardware::new(Format::ArmV7, entries, bits) };
                let run = |mapped: Mapped, memory: &SliceMemory<'_>| {
                    let mmu = Mmu::new(mapped.regime, hardware.tlb, WalkOrder::default());
                    run(&config, mmu.map_err(failed)?, requests, memory)
                };
                with_blocks(&hardware, scheme, &program, &placed.extents, run)?
            }
        };
        let (master, count) = (&stats.masters[0], requests.len().max(1) as f64);
        Ok(metrics([
            ("cycles", stats.total_cycles as f64 / count),
            ("reads", master.translation.walk.reads() as f64 / count),
            ("misses", master.translation.l1.misses as f64 / count),
            ("walking", master.walk_cycles as f64 / master.cycles().max(1) as f64),
        ]))
    }
}

/// Calls `run` with a list of extents, each with its first page, and the memory that the list is in.
fn with_list<T>(
    frames: u64,
    program: &Program,
    extents: &[(Vpn, Extent)],
    run: impl FnOnce(SegmentList, &SliceMemory<'_>) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let tables = table_extent(frames, &program.requests);
    room_below(tables, extents)?;
    let mut words = vec![0; tables.count as usize * 512];
    let memory = SliceMemory::new(tables.start, &mut words);
    let list = SegmentList { root: tables.start.address() };
    let entries = extents.iter().map(|&(page, extent)| SegmentEntry {
        pages: PageRange::new(page, extent.count),
        first: extent.start,
        writable: true,
    });
    write_segment_list(&memory, list.root, &entries.collect::<Vec<_>>())
        .map_err(|error| MeasureError::Map(error.to_string()))?;
    run(list, &memory)
}

fn failed(error: impl std::fmt::Display) -> MeasureError {
    MeasureError::Hardware(error.to_string())
}

fn run<T: Translate>(
    config: &SystemConfig,
    translating: T,
    requests: &[Transaction],
    memory: &SliceMemory<'_>,
) -> Result<SystemStats, MeasureError> {
    let masters = [(translating, requests.iter().copied())];
    System::new(config, masters).map_err(failed)?.run(memory).map_err(failed)
}
