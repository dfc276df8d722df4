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

/// A machine in its own storage.
pub(crate) type Zones<Z> = Machine<Vec<Z>, Vec<PerCpuLists>, Vec<u64>>;

/// Linux's zone with its fallbacks counted.
pub(crate) type Linux = LinuxZone<Vec<u64>, FallbackTally>;

/// The machine, and the span of its memory.
pub(crate) fn build<Z: GreenZone>(config: &GreenConfig) -> Result<(Zones<Z>, Extent), GreenError> {
    let allocator = config.allocator;
    let error = |what: String| GreenError::Build { allocator, what };
    let preset = config.machine.preset();
    let mut areas = [Extent::default(); 8];
    let map = MemoryMap::new(preset.ranges(), &mut areas).map_err(|e| error(e.to_string()))?;
    let mut layout_config =
        LayoutConfig { bank_frames: config.bank_frames, ..LayoutConfig::default() };
    match config.interleaving {
        Interleaved::None => {}
        Interleaved::TwoWay => layout_config.interleaving = Interleaving::TwoWay,
        Interleaved::All => {
            layout_config.bank_frames = config.machine.load().frames / SUB_ARRAY_GROUPS;
        }
    }
    if allocator == AllocatorName::LinuxMovable {
        let load = config.machine.load();
        layout_config.movable_frames_per_node = load.frames / u64::from(load.nodes) / 2;
    }
    let layout = Layout::new(&map, preset.nodes(), layout_config);
    let layout = layout.map_err(|e| error(e.to_string()))?;
    let banks = BankLayout::new(Pfn::new(0), layout.bank_frames(), ORDER_MAX);
    let banks = banks.map_err(|e| error(e.to_string()))?;
    let zones: Result<Vec<Z>, String> = layout
        .zones()
        .iter()
        .map(|zone| Z::build(&ZonePlace { map: &map, span: zone.span, banks }, allocator))
        .collect();
    let machine_config =
        MachineConfig { cpus: config.cpus.into(), min_free_kib: None, per_cpu_lists: true };
    let size = Zones::<Z>::size(&map, &layout, machine_config);
    let (lists, words) = (vec![PerCpuLists::default(); size.lists], vec![0; size.words]);
    let machine = Machine::new(&map, layout, machine_config, zones.map_err(error)?, lists, words);
    Ok((machine.map_err(|e| error(e.to_string()))?, map.span()))
}
