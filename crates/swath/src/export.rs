//! `swath export`: writes what the memory of the timed system is asked for, or commanded to do, for
//! another tool.

use std::path::PathBuf;

use clap::Args;
use swath_hw::dram::trace::TraceFormat;
use swath_lab::papers::page_buddy::system::{self, SystemPlan};
use swath_lab::papers::page_buddy::timed::Exported;
use swath_lab::papers::page_buddy::workload::WorkloadName;
use swath_lab::study::registry;
use swath_trace::whole;

use crate::failure::Failure;
use crate::study::PLAN_BYTES_MAX;

/// The form of a trace.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Form {
    /// Requests: LD or ST and the physical address.
    Ramulator,
    /// Requests: the physical address, READ or WRITE, and the cycle.
    Dramsim3,
    /// Requests: the physical address, and r or w.
    Text,
    /// Commands of one channel: cycle, command and bank, for DRAMPower.
    Drampower,
}

/// Arguments of `swath export`.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// The form of the trace.
    #[arg(long, value_enum, default_value = "dramsim3")]
    format: Form,
    /// The channel whose commands are written; the first if not given.
    #[arg(long, value_name = "N")]
    channel: Option<u32>,
    /// A plan of the timed system, as `swath study` runs them; that of pbs-system if not given.
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
    /// A design of the plan: TRAD, PCAD, AT or PBS.
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
    let ExportArgs { out, format, channel, plan, design, block_frames, workload } = args;
    let studies = match plan {
        None => registry::built_in().map_err(|error| Failure::new(1, error))?,
        Some(file) => {
            let text =
                whole::read_text(file, PLAN_BYTES_MAX).map_err(|error| Failure::new(2, error))?;
            let study = registry::parse(&file.display().to_string(), &text);
            vec![study.map_err(|error| Failure::new(2, error))?]
        }
    };
    let plan = studies.iter().find_map(|study| study.plan().downcast_ref::<SystemPlan>());
    let Some(plan) = plan else {
        return Err(Failure::new(2, "no plan of the timed system (kind \"system\")"));
    };
    let workload = WorkloadName::named(workload).ok_or_else(|| {
        let names: Vec<_> = WorkloadName::known().into_iter().map(WorkloadName::as_str).collect();
        Failure::new(2, format!("no workload {workload:?}; there are {}", names.join(", ")))
    })?;
    let (exported, lines) = match (format, channel) {
        (Form::Drampower, channel) => {
            (Exported::Commands { channel: channel.unwrap_or(0) }, "commands")
        }
        (_, Some(_)) => {
            return Err(Failure::new(2, "--channel is for commands: --format drampower"));
        }
        (Form::Ramulator, None) => (Exported::Requests(TraceFormat::Ramulator), "transactions"),
        (Form::Dramsim3, None) => (Exported::Requests(TraceFormat::DramSim3), "transactions"),
        (Form::Text, None) => (Exported::Requests(TraceFormat::Text), "transactions"),
    };
    let count = system::export(plan, workload, design, *block_frames, exported, out)?;
    say!("{count} {lines}, {}", out.display());
    Ok(())
}
