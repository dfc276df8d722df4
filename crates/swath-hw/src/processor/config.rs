//! The configuration of a processor.

use crate::dram::config::{DramConfig, DramConfigError};
use crate::processor::cache::{CacheConfig, CacheConfigError};

/// The configuration of a processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessorConfig {
    /// The first cache of data, and of instructions if they have none of their own.
    pub l1: CacheConfig,
    /// The first cache of instructions, which answers as soon and has lines as long; `None` for one
    /// of both.
    pub l1_instructions: Option<CacheConfig>,
    /// Cycles of the core until it answers: 1 or more.
    pub l1_cycles: u32,
    /// The second cache, whose lines are as long.
    pub l2: CacheConfig,
    /// Cycles of the core until it answers, after the first has not.
    pub l2_cycles: u32,
    /// Cycles of the core for the ways between the second cache and the memory's controller.
    pub memory_cycles: u32,
    /// The memory. A line may not be longer than its burst, which is what is read.
    pub dram: DramConfig,
    /// The core's clock: this many cycles of it are `dram_clock` of the memory.
    pub core_clock: u32,
    /// The memory's clock. 1600 and 800 are a core of 1.6 GHz with DDR3-1600.
    pub dram_clock: u32,
    /// The level at which the reads of walks begin.
    pub walks_from: WalksFrom,
    /// Cycles of the core that a TLB miss takes besides its reads.
    pub tlb_miss_cycles: u32,
    /// Loads that may be missing at once: 1 to 64; with 1 the core waits for each load.
    pub outstanding_max: u32,
    /// Missing lines that writes may wait for behind the core's back: 0 to 64.
    pub write_buffer_entries: u32,
    /// Lines that must have been written from end to end, one after the other, before writes
    /// stream, so that one that misses goes out and fetches no line: 0 to 1024, and 0 for
    /// never. It needs a write buffer.
    pub stream_after_lines: u32,
    /// Lines that are read ahead of loads that miss at an even stride, and at most under way:
    /// 0 to 64.
    pub prefetch_lines: u32,
    /// True if the code is privileged.
    pub privileged: bool,
}

/// Reasons why a processor cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProcessorConfigError {
    /// The first cache.
    #[error("first cache: {0}")]
    L1(CacheConfigError),
    /// The first cache of instructions.
    #[error("first cache of instructions: {0}")]
    Instructions(CacheConfigError),
    /// The second cache.
    #[error("second cache: {0}")]
    L2(CacheConfigError),
    /// Caches of different lines, or lines longer than the memory's burst.
    #[error(
        "lines of {l1_bytes}, {instructions_bytes} (instructions) and {l2_bytes} bytes: not alike, or longer than the \
         memory's burst of {burst_bytes}"
    )]
    Lines {
        /// Bytes of a line of the first cache.
        l1_bytes: u32,
        /// Of that of instructions.
        instructions_bytes: u32,
        /// Of the second.
        l2_bytes: u32,
        /// Bytes of a burst.
        burst_bytes: u32,
    },
    /// The memory.
    #[error(transparent)]
    Dram(#[from] DramConfigError),
    /// A number outside its range.
    #[error("{value} {field}: {min} to {max}")]
    Count {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The least that it may be.
        min: u32,
        /// The most.
        max: u32,
    },
}

/// The level at which a walk's read begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WalksFrom {
    /// In the first data cache, then below.
    L1,
    /// In the second cache, then in the memory.
    L2,
    /// In the memory, past both caches.
    Memory,
}
