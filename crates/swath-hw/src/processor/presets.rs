//! Processors that exist, as far as public documents describe them.
//!
//! A [`ProcessorPreset`] is numbers, and for each the document that gives it, or that it is assumed
//! and after what: [`ProcessorPreset::sources`] has a line for every field. A study may change any
//! of them.

use swath_arch::Format;

use swath_arch::Order;

use crate::dram::config::DramConfig;
use crate::dram::mapping::AddressMapping;
use crate::dram::parts::{DDR3_1600, DDR4_3200};
use crate::dram::scheduling::Scheduling;
use crate::dram::timing::Part;
use crate::processor::cache::CacheConfig;
use crate::processor::config::{ProcessorConfig, WalksFrom};
use crate::tlb::geometry::{Geometry, Indexing};
use crate::tlb::split::{TlbArray, TlbForm};
use crate::translate::hierarchy::HierarchyConfig;
use crate::translate::miss::WalkOrder;

/// The source of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberSource {
    /// The number: fields of [`ProcessorPreset`].
    pub what: &'static str,
    /// The document, or what it is assumed after.
    pub from: &'static str,
    /// True if no document gives it.
    pub assumed: bool,
}

const fn documented(what: &'static str, from: &'static str) -> NumberSource {
    NumberSource { what, from, assumed: false }
}

const fn assumed(what: &'static str, from: &'static str) -> NumberSource {
    NumberSource { what, from, assumed: true }
}

/// A processor that exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessorPreset {
    /// Its name.
    pub name: &'static str,
    /// The format of its tables.
    pub format: Format,
    /// TLBs and walk cache.
    pub translation: HierarchyConfig,
    /// The first data cache.
    pub l1: CacheConfig,
    /// The first cache of instructions.
    pub l1_instructions: CacheConfig,
    /// Cycles until it answers.
    pub l1_cycles: u32,
    /// The second cache.
    pub l2: CacheConfig,
    /// Cycles until it answers, beyond those of the first.
    pub l2_cycles: u32,
    /// Cycles of the ways to the memory and back.
    pub memory_cycles: u32,
    /// The core's clock in MHz.
    pub core_clock_mhz: u32,
    /// The chips of the memory, one rank on one channel.
    pub part: Part,
    /// The memory's command clock in MHz.
    pub dram_clock_mhz: u32,
    /// The level at which the reads of walks begin.
    pub walks_from: WalksFrom,
    /// Cycles of a TLB miss besides its reads.
    pub tlb_miss_cycles: u32,
    /// Loads that may be missing at once.
    pub outstanding_max: u32,
    /// Missing lines that writes may wait for.
    pub write_buffer_entries: u32,
    /// Full lines after which writes stream, 0 for never.
    pub stream_after_lines: u32,
    /// Lines read ahead of loads.
    pub prefetch_lines: u32,
    /// The sources of the numbers.
    pub sources: &'static [NumberSource],
}

impl ProcessorPreset {
    /// Returns the processor with this preset's numbers, for unprivileged code.
    pub fn processor(&self) -> ProcessorConfig {
        ProcessorConfig {
            l1: self.l1,
            l1_instructions: Some(self.l1_instructions),
            l1_cycles: self.l1_cycles,
            l2: self.l2,
            l2_cycles: self.l2_cycles,
            memory_cycles: self.memory_cycles,
            dram: self.dram(),
            core_clock: self.core_clock_mhz,
            dram_clock: self.dram_clock_mhz,
            walks_from: self.walks_from,
            tlb_miss_cycles: self.tlb_miss_cycles,
            outstanding_max: self.outstanding_max,
            write_buffer_entries: self.write_buffer_entries,
            stream_after_lines: self.stream_after_lines,
            prefetch_lines: self.prefetch_lines,
            privileged: false,
        }
    }

    fn dram(&self) -> DramConfig {
        let burst_bytes = u64::from(self.part.burst_bytes());
        DramConfig {
            mapping: AddressMapping::interleaved(&self.part, 1, 1, burst_bytes)
                .expect("the mapping of a constant part, which a test makes"),
            part: self.part.clone(),
            channels: 1,
            ranks: 1,
            scheduling: Scheduling::fr_fcfs(16),
        }
    }
}

/// Returns a searched array of `entries` for all sizes up to `largest`.
const fn searched(entries: u32, largest: Order) -> TlbArray {
    let geometry = Geometry::fully_associative(entries);
    TlbArray { geometry, indexing: Indexing::Size, largest }
}

/// Returns an array with sets, indexed by size, for all sizes up to `largest`.
const fn indexed(sets: u32, ways: u32, largest: Order) -> TlbArray {
    let geometry = Geometry { sets, ways, index_shift: 0 };
    TlbArray { geometry, indexing: Indexing::Size, largest }
}

const PAGE_64K: Order = Order::known(4);
const PAGE_2M: Order = Order::known(9);
const BLOCK_512M: Order = Order::known(17);
const PAGE_1G: Order = Order::known(18);

/// Marvell's Armada XP MV78460 (four PJ4B-MP cores, ARMv7), the machine of
/// *Bodek*; one of its cores, with the shared second cache to itself.
pub const ARMADA_XP: ProcessorPreset = ProcessorPreset {
    name: "Armada XP MV78460",
    format: Format::ArmV7,
    translation: HierarchyConfig {
        l1: TlbForm::split(searched(8, Order::MAX)),
        l2: TlbForm::split(searched(64, Order::MAX)),
        l2_cycles: 7,
        walk_cache_entries: 0,
        order: WalkOrder::RegularFirst,
    },
    l1: CacheConfig { len_bytes: 32 << 10, ways: 4, line_bytes: 32 },
    l1_instructions: CacheConfig { len_bytes: 32 << 10, ways: 4, line_bytes: 32 },
    l1_cycles: 6,
    l2: CacheConfig { len_bytes: 2 << 20, ways: 32, line_bytes: 32 },
    l2_cycles: 20,
    memory_cycles: 40,
    core_clock_mhz: 1600,
    part: DDR3_1600,
    dram_clock_mhz: 800,
    walks_from: WalksFrom::Memory,
    tlb_miss_cycles: 0,
    outstanding_max: 4,
    write_buffer_entries: 4,
    stream_after_lines: 0,
    prefetch_lines: 0,
    sources: &[
        documented(
            "core_clock_mhz, l2.len_bytes, part, dram_clock_mhz",
            "Marvell's announcement at ARM TechCon 2010, as The Register reports it on \
             9 November 2010: four cores of 1.6 GHz, 2 MB of shared L2, DDR3 of up to 800 MHz",
        ),
        documented(
            "l1.len_bytes, l1_cycles, l2_cycles",
            "\"Procesory Marvell Armada XP\", mikrokontroler.pl, 26 March 2012: L1 of 32 kB in 6 \
             cycles, L2 of up to 2 MB in 26 (and an L0 of 4 kB in 2, which is left out here)",
        ),
        documented(
            "translation.l2",
            "the talk itself: 32,882 misses are 2 x 64 x 256 and 114, for a test of twice the \
             TLB; that any entry holds any size is assumed",
        ),
        assumed(
            "translation.l1, translation.l2_cycles, translation.walk_cache_entries",
            "an older core of Marvell's, Sheeva 88SV131, as 7-cpu.com measures it: 8 entries, \
             and 7 cycles to the second TLB, of 64 entries, too",
        ),
        documented(
            "l1.line_bytes, walks_from",
            "FreeBSD 10, sys/arm, which the talk's system is built from: the device tree db78460.dts has \
             lines of 32 bytes, and pj4b_setttb sets no cacheability in TTBR0 (IRGN and RGN are 0), so \
             walks read past both caches (DDI 0406C, section B4.1.154)",
        ),
        assumed(
            "l1.ways, l1_instructions, l2.line_bytes",
            "Sheeva 88SV131, 7-cpu.com: caches of instructions as large as those of data, 4 ways, lines of 32 bytes",
        ),
        assumed("l2.ways", "Armada XP's L2 answers as an ARM L2 controller of many ways does"),
        assumed("memory_cycles", "25 ns, so that a read takes about 65 ns in all"),
        assumed("tlb_miss_cycles", "nothing: set it in the study"),
        assumed(
            "outstanding_max",
            "the XScale core, Marvell's since 2006: four fill buffers (Developer's Manual of January \
             2004, optimization guide)",
        ),
        assumed("write_buffer_entries", "common for ARMv7 cores of 2010"),
        assumed(
            "stream_after_lines, prefetch_lines",
            "left out: Marvell publishes neither, and FreeBSD's pj4b_config, which sets the core's modes \
             one by one, sets none of a prefetcher",
        ),
    ],
};

/// Arm's Cortex-A53 (ARMv8-A, in order) with DDR3-1600.
pub const CORTEX_A53: ProcessorPreset = ProcessorPreset {
    name: "Cortex-A53",
    format: Format::ArmV8,
    translation: HierarchyConfig {
        l1: TlbForm::split(searched(10, PAGE_64K)),
        l2: TlbForm::split(indexed(128, 4, BLOCK_512M)),
        l2_cycles: 2,
        walk_cache_entries: 64,
        order: WalkOrder::RegularFirst,
    },
    l1: CacheConfig { len_bytes: 32 << 10, ways: 4, line_bytes: 64 },
    l1_instructions: CacheConfig { len_bytes: 32 << 10, ways: 2, line_bytes: 64 },
    l1_cycles: 3,
    l2: CacheConfig { len_bytes: 512 << 10, ways: 16, line_bytes: 64 },
    l2_cycles: 12,
    memory_cycles: 60,
    core_clock_mhz: 1500,
    part: DDR3_1600,
    dram_clock_mhz: 800,
    walks_from: WalksFrom::L1,
    tlb_miss_cycles: 0,
    outstanding_max: 3,
    write_buffer_entries: 4,
    stream_after_lines: 0,
    prefetch_lines: 0,
    sources: &[
        documented(
            "translation.l1 (10 entries), translation.l2, translation.walk_cache_entries, l1, l1_instructions, l2",
            "Arm Cortex-A53 MPCore Technical Reference Manual (DDI 0500), chapters 5 to 7: micro TLB \
             of 10, unified TLB of 512 in 4 ways, blocks of 1 GB in pieces of 512 MB, walk cache of \
             64; caches of 4, 2 and 16 ways, lines of 64 bytes; their sizes are the integrator's",
        ),
        assumed("translation.l1 (64 KiB at most), translation.l2_cycles", "the manual is silent"),
        assumed("l1_cycles, l2_cycles, memory_cycles, outstanding_max", "common measurements"),
        assumed("core_clock_mhz, part, dram_clock_mhz", "a board of about 2015"),
        assumed(
            "walks_from, tlb_miss_cycles, write_buffer_entries",
            "nothing: set them in the study",
        ),
        assumed("stream_after_lines, prefetch_lines", "left out: the core has both"),
    ],
};

/// A client of the Skylake generation (x86-64), as far as an in-order core without prefetching
/// can stand for it.
pub const SKYLAKE: ProcessorPreset = ProcessorPreset {
    name: "Skylake",
    format: Format::X86_64,
    translation: HierarchyConfig {
        l1: TlbForm::split(indexed(16, 4, Order::BASE))
            .and(indexed(8, 4, PAGE_2M))
            .and(searched(4, PAGE_1G)),
        l2: TlbForm::split(indexed(128, 12, PAGE_2M)).and(indexed(4, 4, PAGE_1G)),
        l2_cycles: 7,
        walk_cache_entries: 32,
        order: WalkOrder::RegularFirst,
    },
    l1: CacheConfig { len_bytes: 32 << 10, ways: 8, line_bytes: 64 },
    l1_instructions: CacheConfig { len_bytes: 32 << 10, ways: 8, line_bytes: 64 },
    l1_cycles: 4,
    l2: CacheConfig { len_bytes: 8 << 20, ways: 16, line_bytes: 64 },
    l2_cycles: 40,
    memory_cycles: 100,
    core_clock_mhz: 4000,
    part: DDR4_3200,
    dram_clock_mhz: 1600,
    walks_from: WalksFrom::L1,
    tlb_miss_cycles: 0,
    outstanding_max: 10,
    write_buffer_entries: 10,
    stream_after_lines: 0,
    prefetch_lines: 0,
    sources: &[
        documented(
            "translation.l1, translation.l2, l1, l1_instructions, l1_cycles, l2 and l2_cycles (its third level)",
            "Intel 64 and IA-32 Architectures Optimization Reference Manual, section on the \
             Skylake client microarchitecture: first TLB 64, 32 and 4 entries for 4 KiB, 2 MiB and \
             1 GiB, second 1536 for 4 KiB and 2 MiB and 16 for 1 GiB; 32 KiB in 4 cycles, last level \
             in 44; the second level, 256 KiB in 12, is left out",
        ),
        assumed("translation.l2_cycles, translation.walk_cache_entries", "common measurements"),
        assumed("memory_cycles, core_clock_mhz, part, dram_clock_mhz", "a client of 2017"),
        assumed("walks_from, tlb_miss_cycles", "walks read as loads do; no other cost"),
        assumed("outstanding_max, write_buffer_entries", "line-fill buffers: 10, of any use"),
        assumed(
            "stream_after_lines, prefetch_lines",
            "left out: its prefetching is of several kinds",
        ),
    ],
};

/// All of them.
pub const ALL: [&ProcessorPreset; 3] = [&ARMADA_XP, &CORTEX_A53, &SKYLAKE];
