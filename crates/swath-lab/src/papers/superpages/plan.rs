//! The plan of the study on superpages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::setting::{BlockFrames, check_free};
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::claim::Conditions;
use crate::study::plan::{Head, Refused, require};

/// The talk's benchmarks with superpages off and on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuperpagesPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds of every program and memory that depends on one.
    pub repeats: Forms<Repeats>,
    /// The machine.
    pub machine: SuperpageMachine,
    /// Cycles that a loop computes for each of its accesses.
    pub loop_cycles: Bounded<0, 1000>,
    /// Cycles that a recorded program computes for each of its accesses.
    pub recorded_cycles: Bounded<0, 1000>,
    /// The benchmarks, at least one and none twice.
    pub benchmarks: Vec<Benchmark>,
    /// A tree of processes.
    pub forkbomb: ForkbombPlan,
    /// Threads of one process.
    pub threads: ThreadsPlan,
    /// Coalescing and superpages on fragmented memory.
    pub blocks: FragmentedPlan,
    /// Measurements of the machine that runs the study, if it is to be measured.
    pub real: RealPlan,
}

crate::plan!(SuperpagesPlan, check);

/// A processor that a plan can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessorName {
    /// Marvell's Armada XP: the talk's.
    ArmadaXp,
    /// Arm's Cortex-A53.
    CortexA53,
    /// Intel's Skylake, as an in-order core.
    Skylake,
}

impl ProcessorName {
    /// Its name in a plan.
    pub const fn key(self) -> &'static str {
        match self {
            Self::ArmadaXp => "armada-xp",
            Self::CortexA53 => "cortex-a53",
            Self::Skylake => "skylake",
        }
    }
}

/// The place where the reads of walks begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WalksFrom {
    /// In the first data cache.
    L1,
    /// In the second.
    L2,
    /// In memory.
    Memory,
}

/// Cycles of the core for one thing that the kernel does.
pub type KernelCycles = Bounded<0, 1_000_000>;

/// The machine. Keys that are left out have the processor's own values; the
/// report says where its numbers come from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuperpageMachine {
    /// The processor.
    pub processor: ProcessorName,
    /// Memory for data; the chips hold 2 GiB.
    pub memory_mib: Bounded<16, 2032>,
    /// Processors, each with a second cache and a memory to itself. One process needs one of them.
    pub processors: Bounded<1, 16>,
    /// Ticks of each processor's timer in a second, 0 for none.
    pub tick_hz: Bounded<0, 100_000>,
    /// Pages of the kernel that a tick touches.
    pub tick_pages: Bounded<0, 4096>,
    /// Entries of the TLB, for all sizes.
    pub tlb_entries: Option<Bounded<1, 65_536>>,
    /// Entries of the TLB before it.
    pub micro_tlb_entries: Option<Bounded<1, 65_536>>,
    /// The first data cache, a power of two.
    pub l1_kib: Option<Bounded<1, 65_536>>,
    /// Cycles until it answers.
    pub l1_cycles: Option<Bounded<1, 1000>>,
    /// The second cache, a power of two.
    pub l2_kib: Option<Bounded<1, 65_536>>,
    /// Cycles until it answers, beyond the first's.
    pub l2_cycles: Option<Bounded<0, 1000>>,
    /// Cycles of the ways to the memory and back.
    pub memory_cycles: Option<Bounded<0, 10_000>>,
    /// Cycles of a TLB miss besides its reads.
    pub tlb_miss_cycles: Option<Bounded<0, 10_000>>,
    /// Loads that may be missing at once.
    pub outstanding_max: Option<Bounded<1, 64>>,
    /// Missing lines that writes may wait for.
    pub write_buffer_entries: Option<Bounded<0, 64>>,
    /// Full lines after which writes stream, 0 for never.
    pub stream_after_lines: Option<Bounded<0, 1024>>,
    /// Lines read ahead of loads.
    pub prefetch_lines: Option<Bounded<0, 64>>,
    /// The place where the reads of walks begin.
    pub walks_from: Option<WalksFrom>,
    /// Cycles of a page fault, apart from clearing or copying.
    pub fault_cycles: KernelCycles,
    /// Cycles of clearing a frame.
    pub zero_cycles: KernelCycles,
    /// Cycles of copying a frame.
    pub copy_cycles: KernelCycles,
    /// Cycles of switching to another process.
    pub switch_cycles: KernelCycles,
    /// Cycles of unmapping, for each page of whatever size.
    pub unmap_cycles: KernelCycles,
    /// Cycles of cleaning a descriptor to memory.
    pub clean_cycles: KernelCycles,
    /// Cycles of invalidating TLBs of other processors.
    pub shootdown_cycles: KernelCycles,
}

impl SuperpageMachine {
    /// The talk's machine as conditions of its claims.
    pub fn conditions(&self) -> Conditions {
        let own = self.tlb_entries.is_none()
            && self.micro_tlb_entries.is_none()
            && self.l1_kib.is_none()
            && self.l1_cycles.is_none()
            && self.l2_kib.is_none()
            && self.l2_cycles.is_none()
            && self.memory_cycles.is_none()
            && self.tlb_miss_cycles.is_none()
            && self.outstanding_max.is_none()
            && self.write_buffer_entries.is_none()
            && self.stream_after_lines.is_none()
            && self.prefetch_lines.is_none()
            && self.walks_from.is_none();
        Conditions::new()
            .same("processor", ProcessorName::ArmadaXp.key(), self.processor.key())
            .met(own, "a processor with other TLBs, caches or latencies than the talk's")
    }

    fn check(&self) -> Result<(), Refused> {
        for (key, value) in [("l1_kib", self.l1_kib), ("l2_kib", self.l2_kib)] {
            let Some(value) = value else { continue };
            require(value.get().is_power_of_two(), &format!("machine.{key}"), || {
                format!("{value} is not a power of two")
            })?;
        }
        Ok(())
    }
}

/// Size of a benchmark's buffer in MiB.
pub type BufferMib = Bounded<1, 1524>;

/// Number of accesses of a benchmark.
pub type AccessCount = Bounded<1000, { 1 << 32 }>;

/// A benchmark and its size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Benchmark {
    /// Random updates of a table.
    Gups {
        /// The table.
        table_mib: BufferMib,
        /// Number of updates.
        updates: Forms<AccessCount>,
    },
    /// LMbench: reading a mapped file.
    MmapReread {
        /// The file.
        mib: Forms<BufferMib>,
    },
    /// LMbench: the library's copy.
    BcopyLibc {
        /// The bytes that are copied.
        mib: Forms<BufferMib>,
    },
    /// LMbench: a copying loop.
    BcopyHand {
        /// The bytes that are copied.
        mib: Forms<BufferMib>,
    },
    /// LMbench: reading memory.
    MemRead {
        /// The bytes that are read.
        mib: Forms<BufferMib>,
    },
    /// LMbench: writing memory.
    MemWrite {
        /// The bytes that are written.
        mib: Forms<BufferMib>,
    },
    /// LMbench: random reads, each after the other.
    RandomLatency {
        /// The memory that is read.
        mib: Forms<BufferMib>,
        /// Number of reads.
        reads: Forms<AccessCount>,
    },
}

impl Benchmark {
    /// Its name in a plan.
    pub const fn key(&self) -> &'static str {
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
    pub const fn title(&self) -> &'static str {
        match self {
            Self::Gups { .. } => GUPS,
            Self::MmapReread { .. } => "mmap reread",
            Self::BcopyLibc { .. } => BCOPY_LIBC,
            Self::BcopyHand { .. } => BCOPY_HAND,
            Self::MemRead { .. } => "mem read",
            Self::MemWrite { .. } => "mem write",
            Self::RandomLatency { .. } => RANDOM_LATENCY,
        }
    }

    /// Returns true if its accesses depend on a seed.
    pub const fn is_random(&self) -> bool {
        match self {
            Self::Gups { .. } | Self::RandomLatency { .. } => true,
            Self::MmapReread { .. }
            | Self::BcopyLibc { .. }
            | Self::BcopyHand { .. }
            | Self::MemRead { .. }
            | Self::MemWrite { .. } => false,
        }
    }

    /// Bytes that it copies, `None` if it copies nothing.
    pub fn copied_bytes(&self, quick: bool) -> Option<u64> {
        match self {
            Self::BcopyLibc { mib } | Self::BcopyHand { mib } => Some(mib.of(quick).get() << 20),
            Self::Gups { .. }
            | Self::MmapReread { .. }
            | Self::MemRead { .. }
            | Self::MemWrite { .. }
            | Self::RandomLatency { .. } => None,
        }
    }

    /// Megabytes of its buffers in the larger form.
    pub fn mib(&self) -> u64 {
        let larger = |mib: &Forms<BufferMib>| mib.full.max(mib.quick).get();
        match self {
            Self::Gups { table_mib, .. } => table_mib.get(),
            Self::MmapReread { mib }
            | Self::MemRead { mib }
            | Self::MemWrite { mib }
            | Self::RandomLatency { mib, .. } => larger(mib),
            Self::BcopyLibc { mib } | Self::BcopyHand { mib } => 2 * larger(mib),
        }
    }
}

/// The title of [`Benchmark::Gups`].
pub const GUPS: &str = "GUPS";
/// The title of [`Benchmark::BcopyLibc`].
pub const BCOPY_LIBC: &str = "bcopy (libc)";
/// The title of [`Benchmark::BcopyHand`].
pub const BCOPY_HAND: &str = "bcopy (hand)";
/// The title of [`Benchmark::RandomLatency`].
pub const RANDOM_LATENCY: &str = "rand mem latency";

/// LMbench's rows of the talk's table: titles, and gains with superpages in
/// percent.
pub const LMBENCH: [(&str, f64); 6] = [
    ("mmap reread", 2.26),
    (BCOPY_LIBC, 2.29),
    (BCOPY_HAND, 3.37),
    ("mem read", 2.2),
    ("mem write", 8.44),
    (RANDOM_LATENCY, 37.85),
];

/// A tree of processes that share their heap by copy on write.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkbombPlan {
    /// The heap of each.
    pub heap_kib: Bounded<4, 16_384>,
    /// Children of each process.
    pub children: Bounded<1, 8>,
    /// Generations after the first.
    pub depth: Forms<Bounded<0, 10>>,
    /// Pages that each child writes.
    pub written_pages: Bounded<0, 4096>,
}

/// Threads of one process that fill its memory together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadsPlan {
    /// The memory.
    pub mib: Bounded<1, 12>,
    /// Threads, which the processors share out.
    pub threads: Bounded<1, 16>,
}

/// Measurements of the machine that runs the study.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RealPlan {
    /// The table that is updated at random, a power of two.
    pub table_mib: Forms<Bounded<2, 65_536>>,
    /// Number of updates.
    pub updates: Forms<Bounded<1000, { 1 << 40 }>>,
    /// Memory that is touched and released, in MiB: even numbers.
    pub release_mib: Forms<Ascending<Bounded<2, 1_048_576>>>,
    /// Processes for each kind of memory.
    pub repeats: Bounded<1, 100>,
}

impl RealPlan {
    fn check(&self) -> Result<(), Refused> {
        for mib in [self.table_mib.full, self.table_mib.quick] {
            require(mib.get().is_power_of_two(), "real.table_mib", || {
                format!("{mib} is not a power of two")
            })?;
        }
        for mib in self.release_mib.full.into_iter().chain(&self.release_mib.quick) {
            require(mib.get().is_multiple_of(2), "real.release_mib", || {
                format!("{mib} MiB are no whole huge pages")
            })?;
        }
        Ok(())
    }
}

/// Coalescing and superpages on free blocks of one size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FragmentedPlan {
    /// The table that is updated at random, a power of two.
    pub table_mib: Bounded<1, 64>,
    /// Number of updates.
    pub updates: Bounded<1000, { 1 << 26 }>,
    /// The blocks' sizes.
    pub block_frames: Forms<Ascending<BlockFrames>>,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
}

fn check(plan: &SuperpagesPlan) -> Result<(), Refused> {
    plan.machine.check()?;
    plan.real.check()?;
    require(!plan.benchmarks.is_empty(), "benchmarks", || "none given".into())?;
    for (i, benchmark) in plan.benchmarks.iter().enumerate() {
        // Tables and the programs that run before need memory, too.
        let most = plan.machine.memory_mib.get() * 3 / 4;
        let (title, mib) = (benchmark.title(), benchmark.mib());
        require(mib <= most, &format!("benchmarks.{i}"), || {
            format!("{}: {mib} MiB are more than {most}, three quarters of memory", benchmark.key())
        })?;
        let twice = plan.benchmarks[..i].iter().any(|other| other.title() == title);
        require(!twice, &format!("benchmarks.{i}"), || {
            format!("{} stands twice", benchmark.key())
        })?;
    }
    let bomb = &plan.forkbomb;
    let (heap, memory) = (bomb.heap_kib.get(), plan.machine.memory_mib.get());
    require(heap <= memory << 4, "forkbomb.heap_kib", || {
        format!("{heap} KiB are more than a 64th of {memory} MiB of memory")
    })?;
    require(bomb.written_pages.get() <= heap / 4, "forkbomb.written_pages", || {
        format!("{} pages of {heap} KiB", bomb.written_pages)
    })?;
    let blocks = &plan.blocks;
    require(blocks.table_mib.get().is_power_of_two(), "blocks.table_mib", || {
        format!("{} is not a power of two", blocks.table_mib)
    })?;
    check_free("blocks", blocks.free_per_requested, blocks.free_share)
}
