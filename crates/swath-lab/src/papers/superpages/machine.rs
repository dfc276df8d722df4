//! The simulated machine of the study, and the modes of superpages on it.

use swath_arch::{Extent, Format, Order, Pfn, Regime};
use swath_frame::ReservationLevels;
use swath_hw::processor::presets::{ARMADA_XP, CORTEX_A53, ProcessorPreset, SKYLAKE};
use swath_hw::{Geometry, Hierarchy, HierarchyConfig, ProcessorConfig};
use swath_vm::{Sizes, Status};

use crate::papers::superpages::config::{Config, Costs};
use crate::papers::superpages::execute::{Cost, execute};
use crate::papers::superpages::kernel::{KernelError, boot};
use crate::papers::superpages::plan::{ProcessorName, SuperpagesPlan, WalksFrom};
use crate::papers::superpages::process::Step;
use crate::papers::superpages::processors::Ticks;

/// A mode: the superpages that are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) sizes: Sizes,
    pub(crate) levels: ReservationLevels,
}

/// Off, on with the size of a whole table, and on with the intermediate size,
/// which is then reserved where the larger one cannot be.
pub(crate) fn modes(format: Format) -> Vec<Mode> {
    let (whole, levels, name) = match format {
        Format::ArmV7 => (Order::known(8), ReservationLevels::ARMV7, "1 MiB"),
        Format::ArmV8 => (Order::known(9), ReservationLevels::ARMV8, "2 MiB"),
        Format::X86_64 => (Order::known(9), ReservationLevels::X86_64, "2 MiB"),
        Format::Sv39 | Format::Sv48 => (Order::known(9), ReservationLevels::RISCV, "2 MiB"),
    };
    let on = Sizes::NONE.with(whole);
    let mut modes =
        vec![Mode { name: "4 KiB", sizes: Sizes::NONE, levels }, Mode { name, sizes: on, levels }];
    let middle = Order::known(4);
    if Sizes::all(format).contains(middle)
        && let Ok(levels) = ReservationLevels::new(&[middle, whole], &[])
    {
        let name = if format == Format::ArmV7 { "64 KiB, 1 MiB" } else { "64 KiB, 2 MiB" };
        modes.push(Mode { name, sizes: on.with(middle), levels });
    }
    modes
}

/// The plan's processor, and what its kernel costs.
#[derive(Clone)]
pub(crate) struct SimulatedMachine {
    pub(crate) preset: &'static ProcessorPreset,
    pub(crate) core: ProcessorConfig,
    pub(crate) translation: HierarchyConfig,
    pub(crate) costs: Costs,
    pub(crate) processors: usize,
    pub(crate) ticks: Option<Ticks>,
    pub(crate) data_frames: u64,
}

/// Frames for tables: 16 MiB.
pub(crate) const TABLE_FRAMES: u64 = 4096;

impl SimulatedMachine {
    pub(crate) fn of(plan: &SuperpagesPlan) -> Self {
        let machine = &plan.machine;
        let preset = match machine.processor {
            ProcessorName::ArmadaXp => &ARMADA_XP,
            ProcessorName::CortexA53 => &CORTEX_A53,
            ProcessorName::Skylake => &SKYLAKE,
        };
        let mut core = preset.processor();
        let mut translation = preset.translation;
        if let Some(entries) = machine.tlb_entries {
            translation.l2 = Geometry::fully_associative(entries.small()).into();
        }
        if let Some(entries) = machine.micro_tlb_entries {
            translation.l1 = Geometry::fully_associative(entries.small()).into();
        }
        core.l1.len_bytes = machine.l1_kib.map_or(core.l1.len_bytes, |kib| kib.get() << 10);
        core.l2.len_bytes = machine.l2_kib.map_or(core.l2.len_bytes, |kib| kib.get() << 10);
        core.l1_cycles = machine.l1_cycles.map_or(core.l1_cycles, |own| own.small());
        core.l2_cycles = machine.l2_cycles.map_or(core.l2_cycles, |own| own.small());
        core.memory_cycles = machine.memory_cycles.map_or(core.memory_cycles, |own| own.small());
        core.tlb_miss_cycles =
            machine.tlb_miss_cycles.map_or(core.tlb_miss_cycles, |own| own.small());
        core.outstanding_max =
            machine.outstanding_max.map_or(core.outstanding_max, |own| own.small());
        core.write_buffer_entries =
            machine.write_buffer_entries.map_or(core.write_buffer_entries, |own| own.small());
        core.stream_after_lines =
            machine.stream_after_lines.map_or(core.stream_after_lines, |own| own.small());
        core.prefetch_lines = machine.prefetch_lines.map_or(core.prefetch_lines, |own| own.small());
        if let Some(from) = machine.walks_from {
            core.walks_from = source(from);
        }
        Self {
            preset,
            core,
            translation,
            costs: Costs {
                fault_cycles: machine.fault_cycles.get(),
                zero_cycles: machine.zero_cycles.get(),
                copy_cycles: machine.copy_cycles.get(),
                switch_cycles: machine.switch_cycles.get(),
                unmap_cycles: machine.unmap_cycles.get(),
                clean_cycles: machine.clean_cycles.get(),
                shootdown_cycles: machine.shootdown_cycles.get(),
            },
            processors: machine.processors.get() as usize,
            ticks: (machine.tick_hz.get() > 0).then(|| Ticks {
                period_cycles: u64::from(preset.core_clock_mhz) * 1_000_000 / machine.tick_hz.get(),
                pages: machine.tick_pages.get(),
            }),
            data_frames: machine.memory_mib.get() << 8,
        }
    }

    /// A kernel on one processor of this machine, with memory that is free as a whole.
    pub(crate) fn kernel(&self, mode: &Mode, status: Status) -> Config {
        Config {
            format: self.preset.format,
            sizes: mode.sizes,
            levels: mode.levels,
            status,
            table_frames: TABLE_FRAMES,
            data: vec![Extent::new(Pfn::new(TABLE_FRAMES), self.data_frames)],
            reverse_entries: u32::try_from(2 * self.data_frames).unwrap_or(u32::MAX),
            costs: self.costs,
            processors: 1,
            files_aligned: true,
            ticks: self.ticks,
        }
    }

    /// Boots it and runs a program there. `translation` stands for the plan's,
    /// where it has to be another.
    pub(crate) fn run<E: std::fmt::Display>(
        &self,
        config: &Config,
        translation: &HierarchyConfig,
        steps: impl Iterator<Item = Result<Step, E>>,
    ) -> Result<Cost, KernelError> {
        let make = |regime: Regime| {
            Hierarchy::new(regime, translation)
                .map_err(|error| KernelError::Machine(error.to_string()))
        };
        let line_bytes = self.core.l1.line_bytes.into();
        boot(config, &self.core, make, |kernel| execute(kernel, steps, line_bytes))
    }

    /// Cycles of the core in a second.
    pub(crate) fn hertz(&self) -> f64 {
        f64::from(self.preset.core_clock_mhz) * 1e6
    }
}

/// The place where walks begin, as the processor has it.
pub(crate) fn source(from: WalksFrom) -> swath_hw::WalksFrom {
    match from {
        WalksFrom::L1 => swath_hw::WalksFrom::L1,
        WalksFrom::L2 => swath_hw::WalksFrom::L2,
        WalksFrom::Memory => swath_hw::WalksFrom::Memory,
    }
}
