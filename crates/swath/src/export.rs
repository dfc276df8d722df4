//! `swath export`: writes the memory requests of the timed system for another simulator.

use std::path::PathBuf;

use clap::Args;
use swath_hw::dram::trace::TraceFormat;
use swath_lab::papers::page_buddy::system::{self, SystemPlan};
use swath_lab::papers::page_buddy::workload::WorkloadName;
use swath_lab::study::registry;

use crate::failure::Failure;

/// A simulator whose trace format is written.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Simulator {
    Ramulator,
    Dramsim3,
}

/// Arguments of `swath export`.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// The simulator.
    #[arg(long, value_enum, default_value = "dramsim3")]
    format: Simulator,
    /// TRAD, PCAD, AT or PBS.
    #[arg(long, default_value = "PBS")]
    design: String,
    /// The size of the free blocks that memory is made of.
    #[arg(long, value_name = "FRAMES", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    block_frames: u64,
    /// The workload, as a plan writes it: rotated-display.
    workload: String,
}

/// Writes the trace and says how long it is.
pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let ExportArgs { out, format, design, block_frames, workload } = args;
    let studies = registry::built_in().map_err(|error| Failure::new(1, error))?;
    let plan = studies.iter().find_map(|study| study.plan().downcast_ref::<SystemPlan>());
    let Some(plan) = plan else { return Err(Failure::new(1, "no study of the timed system")) };
    let workload = WorkloadName::named(workload).ok_or_else(|| {
        let names: Vec<_> = WorkloadName::ALL.iter().map(|name| name.as_str()).collect();
        Failure::new(2, format!("no workload {workload:?}; there are {}", names.join(", ")))
    })?;
    let format = match format {
        Simulator::Ramulator => TraceFormat::Ramulator,
        Simulator::Dramsim3 => TraceFormat::DramSim3,
    };
    let count = system::export(plan, workload, design, *block_frames, format, out)?;
    say!("{count} transactions, {}", out.display());
    Ok(())
}
