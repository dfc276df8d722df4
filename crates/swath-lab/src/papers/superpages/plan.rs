//! The plan of the study on superpages.

use serde::{Deserialize, Serialize};

use crate::study::old::plan::About;

/// The talk's benchmarks with superpages off and on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuperpagesPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the talk's figures are judged.
    pub claims: bool,
    /// The machine.
    pub machine: SuperpageMachine,
    /// Cycles that a loop computes for each of its accesses.
    pub loop_cycles: u32,
    /// Cycles that a recorded program computes for each of its accesses.
    pub recorded_cycles: u32,
    /// By how much a quick run does less.
    pub quick_divisor: u64,
    /// The benchmarks.
    pub benchmarks: Vec<Benchmark>,
    /// A tree of processes.
    pub forkbomb: Forkbomb,
    /// Coalescing and superpages on fragmented memory.
    pub blocks: Blocks,
    /// What `--real` measures on this machine.
    pub real: RealPlan,
}

/// A processor that a plan can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessorName {
    /// Marvell's Armada XP: the talk's.
    ArmadaXp,
    /// Arm's Cortex-A53.
    CortexA53,
    /// Intel's Skylake, as an in-order core.
    Skylake,
}

/// Where the reads of walks begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WalksFrom {
    /// In the first data cache.
    L1,
    /// In the second.
    L2,
    /// In memory.
    Memory,
}

/// The machine. What is not given is the processor's own; the report says where
/// its numbers come from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuperpageMachine {
    /// The processor.
    pub processor: ProcessorName,
    /// Memory for data.
    pub memory_mib: u64,
    /// Entries of the TLB, for all sizes.
    pub tlb_entries: Option<u32>,
    /// Entries of the TLB before it.
    pub micro_tlb_entries: Option<u32>,
    /// The first data cache.
    pub l1_kib: Option<u64>,
    /// Cycles until it answers.
    pub l1_cycles: Option<u32>,
    /// The second cache.
    pub l2_kib: Option<u64>,
    /// Cycles until it answers, beyond the first's.
    pub l2_cycles: Option<u32>,
    /// Cycles of the ways to the memory and back.
    pub memory_cycles: Option<u32>,
    /// Cycles of a TLB miss besides its reads.
    pub tlb_miss_cycles: Option<u32>,
    /// Loads that may be missing at once.
    pub outstanding_max: Option<u32>,
    /// Where the reads of walks begin.
    pub walks_from: Option<WalksFrom>,
    /// Cycles of a page fault, apart from clearing or copying.
    pub fault_cycles: u64,
    /// Cycles of clearing a frame.
    pub zero_cycles: u64,
    /// Cycles of copying a frame.
    pub copy_cycles: u64,
    /// Cycles of switching to another process.
    pub switch_cycles: u64,
    /// Cycles of unmapping, for each page of whatever size.
    pub unmap_cycles: u64,
}

/// A benchmark and its size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Benchmark {
    /// Random updates of a table.
    Gups {
        /// The table.
        table_mib: u64,
        /// How many.
        updates: u64,
    },
    /// LMbench: reading a mapped file.
    MmapReread {
        /// The file.
        mib: u64,
    },
    /// LMbench: the library's copy.
    BcopyLibc {
        /// What is copied.
        mib: u64,
    },
    /// LMbench: a copying loop.
    BcopyHand {
        /// What is copied.
        mib: u64,
    },
    /// LMbench: reading memory.
    MemRead {
        /// What is read.
        mib: u64,
    },
    /// LMbench: writing memory.
    MemWrite {
        /// What is written.
        mib: u64,
    },
    /// LMbench: random reads, each after the other.
    RandomLatency {
        /// Where.
        mib: u64,
        /// How many.
        reads: u64,
    },
}

impl Benchmark {
    /// Its name in a plan.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Gups { .. } => "gups",
            Self::MmapReread { .. } => "mmap-reread",
            Self::BcopyLibc { .. } => "bcopy-libc",
            Self::BcopyHand { .. } => "bcopy-hand",
            Self::MemRead { .. } => "mem-read",
            Self::MemWrite { .. } => "mem-write",
            Self::RandomLatency { .. } => "random-latency",
        }
    }

    /// Its name, as the talk writes it.
    pub fn title(&self) -> &'static str {
        match self {
            Self::Gups { .. } => "GUPS",
            Self::MmapReread { .. } => "mmap reread",
            Self::BcopyLibc { .. } => "bcopy (libc)",
            Self::BcopyHand { .. } => "bcopy (hand)",
            Self::MemRead { .. } => "mem read",
            Self::MemWrite { .. } => "mem write",
            Self::RandomLatency { .. } => "rand mem latency",
        }
    }

    /// What it gains with superpages in the talk's table, in percent.
    pub fn talk_percent(&self) -> Option<f64> {
        match self {
            Self::Gups { .. } => None,
            Self::MmapReread { .. } => Some(2.26),
            Self::BcopyLibc { .. } => Some(2.29),
            Self::BcopyHand { .. } => Some(3.37),
            Self::MemRead { .. } => Some(2.2),
            Self::MemWrite { .. } => Some(8.44),
            Self::RandomLatency { .. } => Some(37.85),
        }
    }

    /// Megabytes of its buffers.
    pub fn mib(&self) -> u64 {
        match *self {
            Self::Gups { table_mib: mib, .. }
            | Self::MmapReread { mib }
            | Self::MemRead { mib }
            | Self::MemWrite { mib }
            | Self::RandomLatency { mib, .. } => mib,
            Self::BcopyLibc { mib } | Self::BcopyHand { mib } => mib.saturating_mul(2),
        }
    }
}

/// A tree of processes that share their heap by copy on write.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forkbomb {
    /// The heap of each.
    pub heap_kib: u64,
    /// Children of each process.
    pub children: u32,
    /// Generations after the first.
    pub depth: u32,
    /// The same in a quick run.
    pub depth_quick: u32,
    /// Pages that each child writes.
    pub written_pages: u64,
}

/// Measurements of the machine that runs the study; a quick run does an eighth.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealPlan {
    /// The table that is updated at random.
    pub table_mib: u64,
    /// Updates.
    pub updates: u64,
    /// Memory that is touched and released.
    pub release_mib: Vec<u64>,
    /// Processes for each kind of memory.
    pub repeats: u32,
}

/// Coalescing and superpages on free blocks of one size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// The table that is updated at random.
    pub table_mib: u64,
    /// Updates.
    pub updates: u64,
    /// The blocks' sizes.
    pub block_frames: Vec<u64>,
    /// Those of them that a quick run measures.
    pub block_frames_quick: Vec<u64>,
    /// Frames that are free for each frame that is requested.
    pub free_per_requested: f64,
    /// The share of memory that is free.
    pub free_share: f64,
}
