//! Plans: what a study is told, as TOML.
//!
//! A plan is read strictly. A key that no study knows, a value of the wrong
//! type and an impossible machine are errors that name the key; TOML's own
//! errors name line and column.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::papers::clmalloc::plan::{
    AvailabilityPlan, LargePlan, LatencyPlan, OrderPlan, StructuresPlan,
};
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::papers::real_time::plan::RtPlan;
use crate::papers::superpages::plan::SuperpagesPlan;
use crate::source::memory::Ageing;
use crate::study::old::check::validate;

/// A plan that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not a plan: TOML's message names line, column and key.
    #[error("plan {plan}: {message}")]
    Parse {
        /// The plan's name or file.
        plan: String,
        /// What is wrong, and where.
        message: String,
    },
    /// A key has a value that no study can run with.
    #[error("plan {plan}: {key}: {why}")]
    Value {
        /// The plan's name or file.
        plan: String,
        /// The key, with its tables: `machine.tlb_entries`.
        key: String,
        /// Why not.
        why: String,
    },
    /// Free lists that no allocator can have.
    #[error("granularity {granularity}, top order {top_order}: {why}")]
    Orders {
        /// The distance between adjacent orders.
        granularity: u8,
        /// The highest order.
        top_order: u8,
        /// Why not.
        why: String,
    },
}

/// What every plan begins with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The study's name, which is also its directory in the report.
    pub study: String,
    /// Which code runs it.
    pub kind: Kind,
    /// The study's title in words.
    pub title: String,
    /// The file name of the paper.
    pub paper: String,
    /// The paper as a reader would cite it.
    pub reference: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// What the study is for, as an opening to its finding.
    pub purpose: String,
}

/// Which code runs a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Worked examples with known answers.
    Cases,
    /// TLB hit rates of designs on workloads.
    Tlb,
    /// TLB hit rates against the width of the contiguity fields.
    Widths,
    /// TLB hit rates under other readings of the workloads.
    Readings,
    /// Cycles of the timed system.
    System,
    /// What allocation costs.
    Allocation,
    /// How many nodes the free lists have.
    Freelist,
    /// What the head-of-list rule costs against best fit.
    Fit,
    /// Superpages off and on, in simulated time.
    Superpages,
    /// What allocations and releases of a heap over regions cost.
    RtRuntimes,
    /// How many pages such a heap has mapped.
    RtFootprint,
    /// Recorded programs on it.
    RtPrograms,
    /// Which requests for contiguous memory are served.
    ClAvailability,
    /// The same requests in different orders.
    ClOrder,
    /// What such requests cost.
    ClLatency,
    /// Large requests of programs.
    ClLarge,
    /// Frequent requests of programs.
    ClStructures,
}

impl Kind {
    /// Whether the study runs on a real machine's memory if one is given.
    pub fn uses_memory(self) -> bool {
        !matches!(
            self,
            Self::Cases
                | Self::Superpages
                | Self::RtRuntimes
                | Self::RtFootprint
                | Self::RtPrograms
                | Self::ClAvailability
                | Self::ClOrder
                | Self::ClLatency
                | Self::ClLarge
                | Self::ClStructures
        )
    }

    /// Whether the study can measure the machine that runs it.
    pub fn measures_machine(self) -> bool {
        matches!(self, Self::Superpages | Self::RtRuntimes)
    }

    /// Whether the study runs on a real program's accesses if they are given.
    pub fn uses_accesses(self) -> bool {
        matches!(self, Self::Tlb | Self::Widths)
    }
}

pub use crate::papers::page_buddy::setting::{
    ContiguityBits, FormatName, FormatWord, MachinePlan as Machine, bbs, pbs,
};

/// What memory looks like before the study asks for some.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum MemoryPlan {
    /// Free blocks of one size at random frame numbers: the paper's levels of
    /// fragmentation.
    Blocks {
        /// The sizes, one point of the x axis each.
        block_frames: Vec<u64>,
        /// Frames that are free for each frame that is requested.
        free_per_requested: f64,
        /// The share of memory that is free.
        free_share: f64,
    },
    /// Memory aged by random requests and releases.
    Aged(Aged),
    /// The free frames of a real machine.
    Snapshot {
        /// A snapshot file; the shipped one if empty.
        file: String,
    },
}

/// What accesses the memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum AccessPlan {
    /// Workloads of Table 4.
    Table4 {
        /// Which.
        workloads: Vec<WorkloadName>,
        /// Their sizes.
        #[serde(default)]
        shapes: Shapes,
    },
    /// The recorded accesses of a real program.
    Trace {
        /// A trace file; the shipped one if empty.
        file: String,
    },
}

/// TLB hit rates against the width of the contiguity fields.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WidthsPlan {
    /// Name, title, seed.
    pub about: About,
    /// How often each point is measured with other random numbers.
    pub repeats: u64,
    /// The same in a quick run.
    pub repeats_quick: u64,
    /// Widths of an ideal field in bits, one point of the x axis each.
    pub widths: Vec<u8>,
    /// The formats, each measured with its own width and the ideal ones.
    pub formats: Vec<FormatName>,
    /// Free blocks' size.
    pub block_frames: u64,
    /// Frames that are free for each frame that is requested.
    pub free_per_requested: f64,
    /// The share of memory that is free.
    pub free_share: f64,
    /// Entries in the TLB.
    pub tlb_entries: usize,
    /// The workload.
    pub workload: WorkloadName,
    /// Its sizes.
    #[serde(default)]
    pub shapes: Shapes,
}

/// Cycles of designs on workloads in the timed system (section V-C).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemPlan {
    /// Name, title, seed.
    pub about: About,
    /// How often each point is measured with other random numbers.
    pub repeats: u64,
    /// The same in a quick run.
    pub repeats_quick: u64,
    /// Whether the paper's claims on these figures are judged.
    pub claims: bool,
    /// The machine.
    pub machine: Machine,
    /// A second TLB and a page-walk cache behind the first, as a processor has
    /// them.
    pub hierarchy: Option<HierarchyPlan>,
    /// What lies between the masters and the memory, and how misses are served.
    pub system: SystemMachine,
    /// Other readings, on which the claims' figures are shown.
    pub variants: Vec<SystemVariant>,
    /// Free blocks' sizes for these.
    pub variant_block_frames: Vec<u64>,
    /// Free blocks' sizes, one point of the x axis each.
    pub block_frames: Vec<u64>,
    /// Those of them that a quick run measures.
    pub block_frames_quick: Vec<u64>,
    /// Frames that are free for each frame that is requested.
    pub free_per_requested: f64,
    /// The share of memory that is free.
    pub free_share: f64,
    /// Which workloads.
    pub workloads: Vec<WorkloadName>,
    /// Their sizes.
    #[serde(default)]
    pub shapes: Shapes,
}

/// What stands behind the first TLB of a processor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HierarchyPlan {
    /// Sets of the second TLB, a power of two.
    pub l2_sets: u32,
    /// Its ways.
    pub l2_ways: u32,
    /// log2 of the pages that share a set; a coalesced entry is cut to them.
    pub l2_index_shift: u32,
    /// Cycles that a lookup takes longer if the first TLB has no entry.
    pub l2_cycles: u32,
    /// Entries of the page-walk cache, 0 for none.
    pub walk_cache_entries: u32,
}

/// What Table 3 leaves open of the timed system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemMachine {
    /// Transactions that a master may have in flight.
    pub outstanding_max: u32,
    /// Cycles of a TLB lookup.
    pub lookup_cycles: u32,
    /// Walks in flight at once in one IOMMU.
    pub walks_max: u32,
    /// Whether transactions behind a miss go on if they hit.
    pub hit_under_miss: bool,
    /// Cycles of a request on its way to the memory controller.
    pub request_cycles: u32,
    /// Cycles of data on their way back.
    pub response_cycles: u32,
    /// Whether a write has completed when the controller has taken it, and not
    /// only when it is in the memory.
    pub posted_writes: bool,
    /// log2 of AT's anchor distance in pages, 1 to 16; what suits the mapped
    /// blocks best if not given.
    pub anchor_log2: Option<u8>,
}

/// Another reading of what Table 3 leaves open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemVariant {
    /// What is different, in a few words.
    pub name: String,
    /// The whole of it.
    pub system: SystemMachine,
}

/// TLB hit rates under other readings of what the paper leaves open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadingsPlan {
    /// Name, title, seed.
    pub about: About,
    /// How often each point is measured with other random numbers.
    pub repeats: u64,
    /// The same in a quick run.
    pub repeats_quick: u64,
    /// Bytes that a vertical scan reads before it steps down, one point each.
    pub column_bytes: Vec<u64>,
    /// Bytes and rows of a block in the blockwise patterns, one point each.
    pub blocks: Vec<(u64, u64)>,
    /// Free blocks' sizes over which the largest gain is sought.
    pub block_frames: Vec<u64>,
    /// Frames that are free for each frame that is requested.
    pub free_per_requested: f64,
    /// The share of memory that is free.
    pub free_share: f64,
}

/// Worked examples.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CasesPlan {
    /// Name, title, seed.
    pub about: About,
    /// Free frames of each of Fig. 8's cases, as [first, count] pairs.
    pub fig_8: Fig8,
}

/// The layouts of Fig. 8, which the paper draws.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fig8 {
    /// Frames requested.
    pub request_frames: u64,
    /// Case (a): two aligned ranges.
    pub a: Vec<(u64, u64)>,
    /// Case (b): two ranges.
    pub b: Vec<(u64, u64)>,
    /// Case (c): four ranges.
    pub c: Vec<(u64, u64)>,
    /// Case (d): three ranges.
    pub d: Vec<(u64, u64)>,
}

/// What allocation costs, or how many nodes the free lists have.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListsPlan {
    /// Name, title, seed.
    pub about: About,
    /// How often each point is measured with other random numbers.
    pub repeats: u64,
    /// The same in a quick run.
    pub repeats_quick: u64,
    /// Whether the paper's claims are judged.
    pub claims: bool,
    /// BBS: how many free lists.
    pub bbs_max_order: u8,
    /// PBS: granularity and top order of each variant.
    pub pbs: Vec<PbsVariant>,
    /// Free blocks' sizes, one point of the x axis each.
    pub block_frames: Vec<u64>,
    /// Frames that are free in all.
    pub free_frames: u64,
    /// The share of memory that is free.
    pub free_share: f64,
    /// Frames in a request; none where nothing is requested.
    pub request_frames: u64,
    /// Smaller numbers for a quick run.
    pub quick: Option<QuickLists>,
    /// Memory aged by random use, measured beside.
    pub aged: Option<Aged>,
}

/// What a quick run of a [`ListsPlan`] measures instead.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickLists {
    /// Free blocks' sizes.
    pub block_frames: Vec<u64>,
    /// Frames that are free in all.
    pub free_frames: u64,
    /// Frames in a request.
    pub request_frames: u64,
}

impl ListsPlan {
    /// The plan with the smaller numbers, if it has them.
    #[must_use]
    pub fn quick(&self) -> Self {
        let mut plan = self.clone();
        if let Some(quick) = plan.quick.take() {
            plan.block_frames = quick.block_frames;
            plan.free_frames = quick.free_frames;
            plan.request_frames = quick.request_frames;
        }
        plan
    }
}

/// One variant of PBS.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PbsVariant {
    /// Its name in the figures.
    pub design: String,
    /// The distance between adjacent orders.
    pub granularity: u8,
    /// The highest order.
    pub top_order: u8,
}

/// Memory aged by random requests and releases.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aged {
    /// Frames in all.
    pub frames: u64,
    /// The share in use under which random requests and releases go on.
    pub peak_share: f64,
    /// The shares in use after the last releases, one point of the x axis each.
    pub used_shares: Vec<f64>,
    /// Requests and releases together.
    pub operations: u64,
    /// The same in a quick run.
    pub operations_quick: u64,
    /// The longest request.
    pub request_frames_max: u64,
}

impl ReadingsPlan {
    /// The sizes of each reading: first the columns, then the blocks.
    pub fn shapes(&self) -> impl Iterator<Item = Shapes> {
        let paper = Shapes::default();
        let columns =
            self.column_bytes.iter().map(move |&column_bytes| Shapes { column_bytes, ..paper });
        let blocks = self.blocks.iter().map(move |&(block_bytes, block_rows)| Shapes {
            block_bytes,
            block_rows,
            ..paper
        });
        columns.chain(blocks)
    }
}

impl Aged {
    /// How memory is aged to this level of use.
    pub fn ageing(&self, used_share: f64, quick: bool) -> Ageing {
        Ageing {
            operations: if quick { self.operations_quick } else { self.operations },
            peak_share: self.peak_share,
            used_share,
            request_frames_max: self.request_frames_max,
        }
    }
}

/// What the head-of-list rule costs against best fit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitPlan {
    /// Name, title, seed.
    pub about: About,
    /// PBS: the distance between adjacent orders.
    pub granularity: u8,
    /// PBS: the highest order.
    pub top_order: u8,
    /// Requests measured at each level of use.
    pub requests: u64,
    /// How memory is aged before.
    pub aged: Aged,
}

/// A plan of any kind.
#[derive(Clone, PartialEq, Debug)]
pub enum Plan {
    /// See [`Kind::Cases`].
    Cases(CasesPlan),
    /// See [`Kind::Widths`].
    Widths(WidthsPlan),
    /// See [`Kind::Readings`].
    Readings(ReadingsPlan),
    /// See [`Kind::System`].
    System(SystemPlan),
    /// See [`Kind::Allocation`].
    Allocation(ListsPlan),
    /// See [`Kind::Freelist`].
    Freelist(ListsPlan),
    /// See [`Kind::Fit`].
    Fit(FitPlan),
    /// See [`Kind::Superpages`].
    Superpages(SuperpagesPlan),
    /// The studies of heaps over regions, by their kind.
    Rt(RtPlan),
    /// See [`Kind::ClAvailability`].
    ClAvailability(AvailabilityPlan),
    /// See [`Kind::ClOrder`].
    ClOrder(OrderPlan),
    /// See [`Kind::ClLatency`].
    ClLatency(LatencyPlan),
    /// See [`Kind::ClLarge`].
    ClLarge(LargePlan),
    /// See [`Kind::ClStructures`].
    ClStructures(StructuresPlan),
}

impl Plan {
    /// Reads a plan. `name` is said in errors.
    ///
    /// # Errors
    /// [`PlanError`], which names the key.
    pub fn parse(name: &str, text: &str) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        struct Head {
            about: HeadAbout,
        }
        #[derive(Deserialize)]
        struct HeadAbout {
            kind: Kind,
        }
        let head: Head = toml_from(name, text)?;
        let plan = match head.about.kind {
            Kind::Cases => Self::Cases(toml_from(name, text)?),
            Kind::Tlb => {
                return Err(PlanError::Parse { plan: name.to_owned(), message: String::new() });
            }
            Kind::Widths => Self::Widths(toml_from(name, text)?),
            Kind::Readings => Self::Readings(toml_from(name, text)?),
            Kind::System => Self::System(toml_from(name, text)?),
            Kind::Allocation => Self::Allocation(toml_from(name, text)?),
            Kind::Freelist => Self::Freelist(toml_from(name, text)?),
            Kind::Fit => Self::Fit(toml_from(name, text)?),
            Kind::Superpages => Self::Superpages(toml_from(name, text)?),
            Kind::RtRuntimes | Kind::RtFootprint | Kind::RtPrograms => {
                Self::Rt(toml_from(name, text)?)
            }
            Kind::ClAvailability => Self::ClAvailability(toml_from(name, text)?),
            Kind::ClOrder => Self::ClOrder(toml_from(name, text)?),
            Kind::ClLatency => Self::ClLatency(toml_from(name, text)?),
            Kind::ClLarge => Self::ClLarge(toml_from(name, text)?),
            Kind::ClStructures => Self::ClStructures(toml_from(name, text)?),
        };
        validate(&plan).map_err(|(key, why)| PlanError::Value {
            plan: name.to_owned(),
            key,
            why,
        })?;
        Ok(plan)
    }

    /// What every plan begins with.
    pub fn about(&self) -> &About {
        match self {
            Self::Cases(plan) => &plan.about,
            Self::Widths(plan) => &plan.about,
            Self::Readings(plan) => &plan.about,
            Self::System(plan) => &plan.about,
            Self::Allocation(plan) | Self::Freelist(plan) => &plan.about,
            Self::Fit(plan) => &plan.about,
            Self::Superpages(plan) => &plan.about,
            Self::Rt(plan) => &plan.about,
            Self::ClAvailability(plan) => &plan.about,
            Self::ClOrder(plan) => &plan.about,
            Self::ClLatency(plan) => &plan.about,
            Self::ClLarge(plan) => &plan.about,
            Self::ClStructures(plan) => &plan.about,
        }
    }

    /// What every plan begins with, to change its seed.
    pub fn about_mut(&mut self) -> &mut About {
        match self {
            Self::Cases(plan) => &mut plan.about,
            Self::Widths(plan) => &mut plan.about,
            Self::Readings(plan) => &mut plan.about,
            Self::System(plan) => &mut plan.about,
            Self::Allocation(plan) | Self::Freelist(plan) => &mut plan.about,
            Self::Fit(plan) => &mut plan.about,
            Self::Superpages(plan) => &mut plan.about,
            Self::Rt(plan) => &mut plan.about,
            Self::ClAvailability(plan) => &mut plan.about,
            Self::ClOrder(plan) => &mut plan.about,
            Self::ClLatency(plan) => &mut plan.about,
            Self::ClLarge(plan) => &mut plan.about,
            Self::ClStructures(plan) => &mut plan.about,
        }
    }
}

fn toml_from<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, PlanError> {
    toml::from_str(text).map_err(|error| PlanError::Parse {
        plan: name.to_owned(),
        message: error.to_string().trim_end().to_owned(),
    })
}
