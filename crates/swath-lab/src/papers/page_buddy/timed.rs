//! The timed system of Fig. 9 and Table 3: DMA masters, each with a translating
//! machine, before one memory; and its memory requests for another simulator.

use std::io::Write;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{BASE_PAGE_BYTES, Order, Regime, SliceMemory};
use swath_hw::dram::trace::{TraceFormat, write_commands, write_trace};
use swath_hw::system::{Pace, SystemConfig, SystemEvent, WriteResponse};
use swath_hw::{
    DramRequest, Geometry, Hierarchy, HierarchyConfig, SharedBuffer, SystemStats, Transaction,
};
use swath_trace::output;

use crate::papers::page_buddy::design::Design;
use crate::papers::page_buddy::design::tlb_kind::{Bringing, Masters};
use crate::papers::page_buddy::dram::plan::TimedMemory;
use crate::papers::page_buddy::setting::{AnchorLog2, ContiguityBits, MachinePlan};
use crate::papers::page_buddy::translation::{
    Hardware, MeasureError, Program, failed, with_mapped,
};
use crate::papers::page_buddy::workload::{Category, Workload};
use crate::papers::page_buddy::{energy, workload};
use crate::source::memory::{Source, random};
use crate::source::real::Machine;
use crate::study::bounds::Bounded;
use crate::study::grid::Metrics;
use crate::study::plan::{Refused, require};
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

/// Picoseconds in a second.
const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// Cycles on the way to or from the memory.
pub type WayCycles = Bounded<0, 1000>;

/// The machine between the masters and the memory. Table 3 states only the
/// number of transactions in flight; what a plan does not say is as in the plan of `pbs-system`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
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
    /// log2 of AT's anchor distance in pages; the machine's if not given.
    pub anchor_log2: Option<AnchorLog2>,
    /// True if a transaction goes on early, after AT's regular walk and before the anchor's.
    pub early_regular: bool,
    /// True if a master may have so many reads in flight and as many writes, and not so many of
    /// both together.
    pub outstanding_each: bool,
    /// Entries of a page-walk cache in each IOMMU; none if not given.
    pub walk_cache_entries: Option<Bounded<1, 1024>>,
    /// Lines of 64 bytes in a cache of descriptors in each IOMMU, which answers in a cycle; none if
    /// not given.
    pub descriptor_lines: Option<Bounded<1, 1024>>,
    /// Frames a second for which cameras and displays transfer, each at an even pace; as fast as
    /// they can if not given. Accelerators always go as fast as they can.
    pub frames_per_second: Option<Bounded<1, 1000>>,
}

impl Default for SystemMachine {
    fn default() -> Self {
        Self {
            outstanding_max: const { Bounded::new(16).unwrap() },
            lookup_cycles: const { Bounded::new(1).unwrap() },
            walks_max: const { Bounded::new(1).unwrap() },
            hit_under_miss: false,
            request_cycles: const { Bounded::new(1).unwrap() },
            response_cycles: const { Bounded::new(1).unwrap() },
            posted_writes: false,
            anchor_log2: None,
            early_regular: false,
            outstanding_each: false,
            walk_cache_entries: None,
            descriptor_lines: None,
            frames_per_second: None,
        }
    }
}

impl SystemMachine {
    /// Returns true if walks side by side may begin: nothing passes a miss otherwise.
    pub(crate) const fn can_be(&self) -> bool {
        self.walks_max.get() == 1 || self.hit_under_miss
    }

    /// Refuses walks side by side where nothing passes a miss.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, key: &str) -> Result<(), Refused> {
        require(self.can_be(), key, || "more than one walk needs hit_under_miss".to_owned())
    }
}

/// The masters that show or take frames.
const FRAMED: [&str; 2] = ["camera", "display"];

/// A workload ready to run: the places of its buffers, and what its masters do.
pub(crate) struct Timed {
    pub(crate) name: &'static str,
    pub(crate) category: Category,
    program: Program,
    masters: Vec<Vec<Transaction>>,
    /// True for each master that has frames to keep up with.
    framed: Vec<bool>,
    /// True if there are reads, and if there are writes.
    kinds: [bool; 2],
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
        let uses = |master: usize, buffer, write| workload.masters[master].uses(buffer, write);
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
            kinds: [false, true].map(|write| {
                let mut buffers = 0..workload.buffers.len();
                buffers.any(|buffer| workload.masters.iter().any(|one| one.uses(buffer, write)))
            }),
            framed: workload.masters.iter().map(|one| FRAMED.contains(&one.name)).collect(),
            shared: shared.collect(),
            program,
        }
    }
}

impl Timed {
    /// Returns true if a master has frames to keep up with.
    pub(crate) fn has_frames(&self) -> bool {
        self.framed.contains(&true)
    }

    /// Returns true if there are reads, and if there are writes.
    pub(crate) const fn kinds(&self) -> [bool; 2] {
        self.kinds
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
    pub(crate) memory: &'a TimedMemory,
    /// True if the memory's commands are kept.
    pub(crate) record_commands: bool,
}

/// The part of a timed run that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exported {
    /// The requests that the memory receives, walks included.
    Requests(TraceFormat),
    /// The commands of one of its channels.
    Commands {
        /// The channel's number.
        channel: u32,
    },
}

/// A plan's hardware before this memory, as far as its format reaches.
pub(crate) fn hardware(machine: &MachinePlan, memory: &TimedMemory) -> Hardware {
    let hardware = Hardware::of(machine);
    let frames = memory.config.len_bytes() / BASE_PAGE_BYTES;
    Hardware { frames: frames.min(hardware.frames), ..hardware }
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
        if let Some(currents) = &self.memory.currents {
            let parts = energy::per_transaction(&self.memory.config, currents, &stats);
            metrics.extend(energy::PARTS.iter().map(|part| (*part).to_owned()).zip(parts));
        }
        Ok(metrics)
    }

    /// The cycles alone of one run with one seed.
    ///
    /// # Errors
    /// [`StudyError`].
    pub(crate) fn cycles(&self, point: Point<'_>, repeat: u64) -> Result<u64, StudyError> {
        Ok(self.simulate(point, repeat, &mut |_| {})?.0.total_cycles)
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
        let hardware = &self.hardware_of(machine, contiguity);
        let stats =
            with_mapped(hardware, design, &source, program, &mut random, |mapped, memory| {
                let stats =
                    self.run(machine, timed, (design, mapped.regime), memory, None, observe);
                Ok((stats?, mapped.writes_per_page))
            });
        stats.map_err(|error| self.failed(design, timed, &error))
    }

    /// The hardware of a reading, whose tables tell of contiguity in this place.
    pub(crate) fn hardware_of(
        &self,
        machine: &SystemMachine,
        contiguity: ContiguityBits,
    ) -> Hardware {
        let own = machine.anchor_log2.and_then(|log2| Order::new(log2.tiny()));
        let anchor_log2 = own.or(self.hardware.anchor_log2);
        Hardware { anchor_log2, contiguity, ..*self.hardware }
    }

    /// The error of a run.
    pub(crate) fn failed(
        &self,
        design: &Design,
        timed: &Timed,
        error: &MeasureError,
    ) -> StudyError {
        StudyError::Machine {
            study: self.study.to_owned(),
            what: format!("{} on {}: {error}", design.name, timed.name),
        }
    }

    /// Runs a workload's masters on a design's tables, whose pages come on demand if `paging` brings
    /// them.
    ///
    /// # Errors
    /// [`MeasureError::Hardware`].
    pub(crate) fn run(
        &self,
        machine: &SystemMachine,
        timed: &Timed,
        (design, regime): (&Design, Regime),
        memory: &SliceMemory<'_>,
        paging: Option<Bringing<'_>>,
        observe: &mut dyn FnMut(SystemEvent),
    ) -> Result<SystemStats, MeasureError> {
        let hardware = &self.hardware.under(design);
        let config = SystemConfig {
            record_commands: self.record_commands,
            ..config(machine, self.memory, timed)
        };
        let masters = Masters { config, transactions: &timed.masters, memory };
        let hierarchy = match (self.hierarchy, machine.walk_cache_entries) {
            (Some(behind), _) => Some(hierarchy_config(behind, hardware)),
            (None, Some(cache)) => Some(walk_cache_config(cache.small(), hardware)),
            (None, None) => None,
        };
        let stats = match (&design.tlb, hierarchy) {
            (Some(tlb), _) => tlb.with_time(&masters, (regime, hardware.tlb), paging, observe),
            (None, Some(config)) => masters.run(paging, observe, || {
                Ok(Hierarchy::new(regime, &config)?.replacing(hardware.replacement))
            }),
            (None, None) => masters.run(paging, observe, || hardware.mmu(regime)),
        };
        stats.map_err(failed)
    }

    /// Writes to `path` what the memory is asked for in one run, walks included, or commanded to do, so
    /// that a reader can check its timing or energy elsewhere. Returns their number.
    ///
    /// # Errors
    /// [`StudyError`]; `path` is then as it was.
    pub(crate) fn export(
        &self,
        point: Point<'_>,
        exported: Exported,
        path: &Path,
    ) -> Result<u64, StudyError> {
        let mut error = None;
        let written = output::replace(path, |file| {
            let written = match exported {
                Exported::Requests(format) => self.write_requests(point, format, file),
                Exported::Commands { channel } => self.write_commands(point, channel, file),
            };
            written.map_err(|what| {
                error = Some(what);
                std::io::Error::other("the run failed")
            })?
        });
        match (error, written) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(StudyError::Machine {
                study: self.study.to_owned(),
                what: format!("{}: {error}", path.display()),
            }),
            (None, Ok(count)) => Ok(count),
        }
    }

    /// Writes the requests of a run as they are accepted; the inner error is the file's.
    fn write_requests(
        &self,
        point: Point<'_>,
        format: TraceFormat,
        file: &mut impl Write,
    ) -> Result<std::io::Result<u64>, StudyError> {
        let (mut count, mut line, mut result) = (0, String::new(), Ok(()));
        self.simulate(point, 0, &mut |event| {
            let SystemEvent::Accepted { cycle, addr, write, .. } = event else { return };
            if result.is_ok() {
                line.clear();
                let request = DramRequest { id: count, addr, write };
                // Writing into a string does not fail.
                let _ = write_trace(&mut line, format, [(cycle, request)]);
                result = file.write_all(line.as_bytes());
                count += 1;
            }
        })?;
        Ok(result.map(|()| count))
    }

    /// Writes the commands of a channel in a run; the inner error is the file's.
    fn write_commands(
        &self,
        point: Point<'_>,
        channel: u32,
        file: &mut impl Write,
    ) -> Result<std::io::Result<u64>, StudyError> {
        let (stats, _) = Self { record_commands: true, ..*self }.simulate(point, 0, &mut |_| {})?;
        let mut text = String::new();
        let of_channel = stats.commands.into_iter().filter(|command| command.channel == channel);
        // Writing into a string does not fail.
        let part = &self.memory.config.part;
        let _ = write_commands(&mut text, part, of_channel, stats.total_cycles);
        Ok(file.write_all(text.as_bytes()).map(|()| text.lines().count() as u64 - 1))
    }
}

fn hierarchy_config(behind: &HierarchyPlan, hardware: &Hardware) -> HierarchyConfig {
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
        order: hardware.order,
    }
}

/// One TLB and a page-walk cache. The second TLB, without which no hierarchy is, has one entry
/// and takes no time: it is the one that was filled last into the first, so that it never has
/// what the first lacks.
fn walk_cache_config(entries: u32, hardware: &Hardware) -> HierarchyConfig {
    HierarchyConfig {
        l1: hardware.tlb.into(),
        l2: Geometry { sets: 1, ways: 1, index_shift: 0 }.into(),
        l2_cycles: 0,
        walk_cache_entries: entries,
        order: hardware.order,
    }
}

/// The paper's system with what it leaves open, and with the buffers that the
/// workload's masters share.
fn config(machine: &SystemMachine, memory: &TimedMemory, timed: &Timed) -> SystemConfig {
    let mut config = SystemConfig { dram: memory.config.clone(), ..SystemConfig::paper() };
    config.outstanding_each = machine.outstanding_each;
    config.iommu.early_regular = machine.early_regular;
    config.iommu.descriptor_lines = machine.descriptor_lines.map_or(0, Bounded::small);
    if let Some(frames) = machine.frames_per_second {
        let second_cycles = PS_PER_SECOND / u64::from(config.dram.part.clock_period_ps);
        let cycles = second_cycles / frames.get();
        let pace = |(stream, framed): (&Vec<Transaction>, &bool)| {
            let transactions = stream.len() as u64;
            framed.then_some(Pace { transactions, cycles }).filter(|_| transactions > 0)
        };
        config.paces = timed.masters.iter().zip(&timed.framed).map(pace).collect();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_with_frames_have_a_pace_and_accelerators_none() {
        use crate::papers::page_buddy::dram::DramPlan;
        use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
        let plan: toml::Table = toml::from_str(include_str!("system.toml")).unwrap();
        let machine: SystemMachine = plan["system"].clone().try_into().unwrap();
        let machine = SystemMachine { frames_per_second: Bounded::new(60), ..machine };
        let paces = |name: WorkloadName| {
            let timed = Timed::new(&name.build(&Shapes::default()));
            config(&machine, &DramPlan::default().memory().unwrap(), &timed).paces
        };
        // 57,600 lines of a frame in a sixtieth of a second at 400 MHz.
        let frame = Some(Pace { transactions: 57_600, cycles: 6_666_666 });
        assert_eq!(paces(WorkloadName::RotatedPreview), [frame, frame]);
        assert_eq!(paces(WorkloadName::MatrixTranspose), [None]);
        let scaled = paces(WorkloadName::ImageScaling);
        assert_eq!((scaled[0], scaled[1], scaled[2].unwrap().transactions), (frame, None, 129_600));
    }
}
