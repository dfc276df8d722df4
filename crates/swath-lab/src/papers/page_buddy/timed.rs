//! The timed system of Fig. 9 and Table 3: DMA masters, each with a translating
//! machine, before one memory; and its memory requests for another simulator.

use std::io::Write;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{BASE_PAGE_BYTES, Order, SliceMemory};
use swath_hw::dram::trace::{TraceFormat, write_trace};
use swath_hw::system::{System, SystemConfig, SystemEvent, WriteResponse};
use swath_hw::{
    DramRequest, Geometry, Hierarchy, HierarchyConfig, Mmu, SharedBuffer, SystemStats, Transaction,
    Translate, WalkOrder,
};
use swath_trace::output;

use crate::papers::page_buddy::setting::{ContiguityBits, MachinePlan};
use crate::papers::page_buddy::translation::{
    Design, Hardware, MeasureError, Program, with_mapped,
};
use crate::papers::page_buddy::workload::{Category, Workload};
use crate::papers::page_buddy::{energy, workload};
use crate::source::memory::{Source, random};
use crate::source::real::Machine;
use crate::study::bounds::Bounded;
use crate::study::grid::Metrics;
use crate::study::plan::{PlanError, Refused, require};
use crate::study::run::StudyError;

/// The machines that stand behind the first TLB of a processor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HierarchyPlan {
    /// Sets of the second TLB, a power of two.
    pub l2_sets: Bounded<1, 65_536>,
    /// Its ways.
    pub l2_ways: Bounded<1, 65_536>,
    /// log2 of the pages that share a set; a coalesced entry is cut to them.
    pub l2_index_shift: Bounded<0, 18>,
    /// Cycles that a lookup takes longer if the first TLB has no entry.
    pub l2_cycles: Bounded<0, 1000>,
    /// Entries of the page-walk cache, 0 for none.
    pub walk_cache_entries: Bounded<0, 1024>,
}

impl HierarchyPlan {
    /// Refuses a second TLB that cannot be built.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        let (sets, ways) = (self.l2_sets.get(), self.l2_ways.get());
        require(sets.is_power_of_two() && sets * ways <= 1 << 16, "hierarchy.l2_sets", || {
            format!("{sets} sets of {ways} ways: not a power of two, or more than 65536 entries")
        })
    }
}

/// Cycles on the way to or from the memory.
pub type WayCycles = Bounded<0, 1000>;

/// The machine between the masters and the memory. Table 3 states only the
/// number of transactions in flight.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemMachine {
    /// Transactions that a master may have in flight.
    pub outstanding_max: Bounded<1, 4096>,
    /// Cycles of a TLB lookup.
    pub lookup_cycles: WayCycles,
    /// Walks in flight at once in one IOMMU.
    pub walks_max: Bounded<1, 64>,
    /// True if transactions behind a miss go on if they hit.
    pub hit_under_miss: bool,
    /// Cycles of a request on its way to the memory controller.
    pub request_cycles: WayCycles,
    /// Cycles of data on their way back.
    pub response_cycles: WayCycles,
    /// True if a write has completed when the controller has taken it, and not
    /// only when it is in the memory.
    pub posted_writes: bool,
    /// log2 of AT's anchor distance in pages; the distance that suits the mapped
    /// blocks best if not given.
    pub anchor_log2: Option<Bounded<1, 16>>,
}

impl SystemMachine {
    /// Refuses walks side by side where nothing passes a miss.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, key: &str) -> Result<(), Refused> {
        require(self.walks_max.get() == 1 || self.hit_under_miss, key, || {
            "more than one walk needs hit_under_miss".to_owned()
        })
    }
}

/// A workload ready to run: the places of its buffers, and what its masters do.
pub(crate) struct Timed {
    pub(crate) name: &'static str,
    pub(crate) category: Category,
    program: Program,
    masters: Vec<Vec<Transaction>>,
    shared: Vec<SharedBuffer>,
}

impl Timed {
    pub(crate) fn new(workload: &Workload) -> Self {
        let program = Program::of(workload);
        let masters = workload.masters.iter().map(|master| {
            let address = |t: workload::Transaction| Transaction {
                addr: program.address(t.buffer, t.offset_bytes),
                write: t.write,
            };
            master.transactions().map(address).collect()
        });
        // What one master writes and another reads, it reads when it is written.
        let uses = |master: usize, buffer: usize, write: bool| {
            let streams = &workload.masters[master].streams;
            streams.iter().any(|stream| stream.buffer == buffer && stream.write == write)
        };
        let all = 0..workload.masters.len();
        let handed_over = |buffer: usize| {
            all.clone().any(|writer| {
                uses(writer, buffer, true)
                    && all.clone().any(|reader| reader != writer && uses(reader, buffer, false))
            })
        };
        let shared = (0..workload.buffers.len()).filter(|&buffer| handed_over(buffer));
        let shared = shared.map(|buffer| SharedBuffer {
            start: program.address(buffer, 0),
            len_bytes: workload.buffers[buffer],
        });
        Self {
            name: workload.name,
            category: workload.category,
            masters: masters.collect(),
            shared: shared.collect(),
            program,
        }
    }
}

/// A system with the memory that programs find in it.
#[derive(Clone, Copy)]
pub(crate) struct TimedSystem<'a> {
    /// The study, for errors.
    pub(crate) study: &'a str,
    pub(crate) seed: u64,
    pub(crate) hardware: &'a Hardware,
    pub(crate) hierarchy: Option<&'a HierarchyPlan>,
    pub(crate) free_per_requested: f64,
    pub(crate) free_share: f64,
    /// A real machine's memory in place of free blocks of one size.
    pub(crate) real: Option<&'a Machine>,
}

/// A plan's hardware before the memory of the paper's system.
pub(crate) fn hardware(machine: &MachinePlan) -> Hardware {
    let frames = SystemConfig::paper().dram.len_bytes() / BASE_PAGE_BYTES;
    Hardware { frames, ..Hardware::of(machine) }
}

/// The paper's four designs on a plan's machine.
///
/// # Errors
/// [`PlanError::Orders`]; never for a plan that was read.
pub(crate) fn designs(machine: &MachinePlan) -> Result<Vec<Design>, PlanError> {
    Ok(Design::of(machine)?.into_iter().filter(|design| !design.best_fit).collect())
}

/// A run of one design on one workload.
#[derive(Clone, Copy)]
pub(crate) struct Point<'a> {
    pub(crate) machine: &'a SystemMachine,
    pub(crate) timed: &'a Timed,
    /// Size of the free blocks.
    pub(crate) block_frames: u64,
    pub(crate) design: &'a Design,
    /// The place in which its table tells of contiguity.
    pub(crate) contiguity: ContiguityBits,
}

impl TimedSystem<'_> {
    /// The cycles of one run with one seed, the shares of them behind misses
    /// and of column accesses to open rows, the writes that mapping took, and the memory's
    /// energy.
    ///
    /// # Errors
    /// [`StudyError`].
    pub(crate) fn measure(&self, point: Point<'_>, repeat: u64) -> Result<Metrics, StudyError> {
        let (stats, writes_per_page) = self.simulate(point, repeat, &mut |_| {})?;
        let walking: u64 = stats.masters.iter().map(|master| master.walk_cycles).sum();
        let busy: u64 = stats.masters.iter().map(|master| master.cycles()).sum();
        let dram = stats.dram.total();
        let columns = dram.row_hits + dram.row_misses + dram.row_conflicts;
        let mut metrics = vec![
            ("cycles".to_owned(), stats.total_cycles as f64),
            ("walking".to_owned(), walking as f64 / busy.max(1) as f64),
            ("row_hits".to_owned(), dram.row_hits as f64 / columns.max(1) as f64),
            ("writes_per_page".to_owned(), writes_per_page),
        ];
        let config = config(point.machine, point.timed);
        let parts = energy::per_transaction(&config.dram, &stats);
        metrics.extend(energy::PARTS.iter().map(|part| (*part).to_owned()).zip(parts));
        Ok(metrics)
    }

    /// One run of one point, showing each event: its figures, and the words of tables
    /// written for each page.
    fn simulate(
        &self,
        Point { machine, timed, block_frames, design, contiguity }: Point<'_>,
        repeat: u64,
        observe: &mut dyn FnMut(SystemEvent),
    ) -> Result<(SystemStats, f64), StudyError> {
        let mut random = random(self.seed, repeat);
        let program = &timed.program;
        let below;
        let source = match self.real {
            Some(real) => {
                below = self.hardware.free_of(real, program);
                Source::Free(&below)
            }
            None => program.scattered(block_frames, self.free_per_requested, self.free_share),
        };
        let anchor_log2 = machine.anchor_log2.and_then(|log2| Order::new(log2.tiny()));
        let hardware = &Hardware { anchor_log2, contiguity, ..*self.hardware };
        let stats =
            with_mapped(hardware, design, &source, program, &mut random, |mapped, memory| {
                let (regime, order) = (mapped.regime, WalkOrder::default());
                let stats = match self.hierarchy {
                    None => masters(machine, timed, memory, observe, || {
                        Mmu::new(regime, hardware.tlb, order).map_err(failed)
                    }),
                    Some(behind) => masters(machine, timed, memory, observe, || {
                        let config = hierarchy_config(behind, hardware, order);
                        Hierarchy::new(regime, &config).map_err(failed)
                    }),
                };
                Ok((stats?, mapped.writes_per_page))
            });
        stats.map_err(|error| StudyError::Machine {
            study: self.study.to_owned(),
            what: format!("{} on {}: {error}", design.name, timed.name),
        })
    }

    /// Writes to `path` the requests that the memory receives in one run, walks
    /// included, in a simulator's trace format, so that a reader can check the
    /// memory's timing there. Returns the number of transactions.
    ///
    /// # Errors
    /// [`StudyError`]; `path` is then as it was.
    pub(crate) fn export(
        &self,
        point: Point<'_>,
        format: TraceFormat,
        path: &Path,
    ) -> Result<u64, StudyError> {
        let mut count = 0;
        let mut error = None;
        let written = output::replace(path, |file| {
            let mut line = String::new();
            let mut result = Ok(());
            let run = self.simulate(point, 0, &mut |event| {
                let SystemEvent::Accepted { cycle, addr, write, .. } = event else { return };
                if result.is_ok() {
                    line.clear();
                    let request = DramRequest { id: count, addr, write };
                    // Writing into a string does not fail.
                    let _ = write_trace(&mut line, format, [(cycle, request)]);
                    result = file.write_all(line.as_bytes());
                    count += 1;
                }
            });
            match run {
                Ok(_) => result,
                Err(what) => {
                    error = Some(what);
                    Err(std::io::Error::other("the run failed"))
                }
            }
        });
        match (error, written) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(StudyError::Machine {
                study: self.study.to_owned(),
                what: format!("{}: {error}", path.display()),
            }),
            (None, Ok(())) => Ok(count),
        }
    }
}

fn failed(error: impl std::fmt::Display) -> MeasureError {
    MeasureError::Hardware(error.to_string())
}

fn hierarchy_config(
    behind: &HierarchyPlan,
    hardware: &Hardware,
    order: WalkOrder,
) -> HierarchyConfig {
    HierarchyConfig {
        l1: hardware.tlb.into(),
        l2: Geometry {
            sets: behind.l2_sets.small(),
            ways: behind.l2_ways.small(),
            index_shift: behind.l2_index_shift.small(),
        }
        .into(),
        l2_cycles: behind.l2_cycles.small(),
        walk_cache_entries: behind.walk_cache_entries.small(),
        order,
    }
}

/// Runs the masters of a workload, each with a translating machine of its own.
fn masters<T: Translate>(
    machine: &SystemMachine,
    timed: &Timed,
    memory: &SliceMemory<'_>,
    observe: &mut dyn FnMut(SystemEvent),
    translating: impl Fn() -> Result<T, MeasureError>,
) -> Result<SystemStats, MeasureError> {
    let mut masters = Vec::new();
    for transactions in &timed.masters {
        masters.push((translating()?, transactions.iter().copied()));
    }
    let system = System::new(&config(machine, timed), masters).map_err(failed)?;
    system.run_observed(memory, observe).map_err(failed)
}

/// The paper's system with what it leaves open, and with the buffers that the
/// workload's masters share.
fn config(machine: &SystemMachine, timed: &Timed) -> SystemConfig {
    let mut config = SystemConfig::paper();
    config.outstanding_max = machine.outstanding_max.small();
    config.iommu.lookup_cycles = machine.lookup_cycles.small();
    config.iommu.walks_max = machine.walks_max.small();
    config.iommu.hit_under_miss = machine.hit_under_miss;
    config.interconnect.request_cycles = machine.request_cycles.small();
    config.interconnect.response_cycles = machine.response_cycles.small();
    if machine.posted_writes {
        config.interconnect.write_response = WriteResponse::Accepted;
    }
    config.shared.clone_from(&timed.shared);
    config
}
