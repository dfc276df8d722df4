//! A machine's memory under one of the allocators, all of it free.

use swath_arch::{Extent, Pfn};
use swath_frame::layout::{Interleaving, Layout, LayoutConfig};
use swath_frame::machine::MachineConfig;
use swath_frame::zone::bank::BankLayout;
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{LinuxZone, Machine, MemoryMap, PerCpuLists};

use crate::papers::green::machine::allocator::{
    AllocatorName, FallbackTally, GreenZone, ZonePlace,
};
use crate::papers::green::machine::config::{
    GreenConfig, GreenError, Interleaved, SUB_ARRAY_GROUPS,
};
use crate::papers::green::machine::start::MachineStart;

/// A machine in its own storage.
pub(crate) type Zones<Z> = Machine<Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;

/// Linux's zone with its fallbacks counted.
pub(crate) type Linux = LinuxZone<Vec<u64>, FallbackTally>;

/// The machine, all free or in a state, and the span of its memory.
pub(crate) fn build<Z: GreenZone>(
    config: &GreenConfig,
    start: Option<&MachineStart>,
) -> Result<(Zones<Z>, Extent), GreenError> {
    let allocator = config.allocator;
    let error = |what: String| GreenError::Build { allocator, what };
    let preset = config.machine.preset();
    let (ranges, nodes) = match start {
        Some(start) => (start.ranges(), start.nodes()),
        None => (preset.ranges(), preset.nodes()),
    };
    let mut areas = vec![Extent::default(); ranges.len()];
    let map = MemoryMap::new(ranges, &mut areas).map_err(|e| error(e.to_string()))?;
    let frames = start.map_or(config.machine.load().frames, MachineStart::frames);
    let mut layout_config =
        LayoutConfig { bank_frames: config.bank_frames, ..LayoutConfig::default() };
    match config.interleaving {
        Interleaved::None => {}
        Interleaved::TwoWay => layout_config.interleaving = Interleaving::TwoWay,
        Interleaved::All => {
            layout_config.bank_frames = frames / SUB_ARRAY_GROUPS;
        }
    }
    let per_node = frames / nodes.len() as u64;
    match allocator {
        AllocatorName::LinuxMovable => layout_config.movable_frames_per_node = per_node / 2,
        AllocatorName::LinuxGuaranteed => layout_config.movable_frames_per_node = per_node / 8,
        _ => {}
    }
    let layout = Layout::new(&map, nodes, layout_config);
    let layout = layout.map_err(|e| error(e.to_string()))?;
    let banks = BankLayout::new(Pfn::new(0), layout.bank_frames(), ORDER_MAX);
    let banks = banks.map_err(|e| error(e.to_string()))?;
    let zones: Result<Vec<Z>, String> = layout
        .zones()
        .iter()
        .map(|zone| {
            let place = ZonePlace { map: &map, span: zone.span, banks };
            match start {
                Some(start) => Z::begin(&place, allocator, start),
                None => Z::build(&place, allocator),
            }
        })
        .collect();
    let machine_config =
        MachineConfig { cpus: config.cpus.into(), min_free_kib: None, per_cpu_lists: true };
    let size = Zones::<Z>::size(&map, &layout, machine_config);
    let (lists, words) = (vec![PerCpuLists::default(); size.lists], vec![0; size.words]);
    let zones = zones.map_err(error)?;
    let used = start.map_or_else(Default::default, MachineStart::used).iter().copied();
    let machine = Machine::from_state(&map, layout, machine_config, zones, lists, words, used);
    Ok((machine.map_err(|e| error(e.to_string()))?, map.span()))
}
