//! Processors that exist, as far as public documents describe them.
//!
//! A [`Preset`] is numbers, and for each the document that gives it, or that it is assumed and
//! after what: [`Preset::sources`] has a line for every field. A study may change any of them.

use swath_arch::Format;

use crate::cache;
use crate::controller::{Scheduling, WritePolicy};
use crate::data_path::Source as WalksFrom;
use crate::dram;
use crate::dram_mapping::Mapping;
use crate::processor;
use crate::timing::{DDR3_1600, Part};

/// Where a number comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberSource {
    /// The number: fields of [`Preset`].
    pub what: &'static str,
    /// The document, or what it is assumed after.
    pub from: &'static str,
    /// Whether no document gives it.
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
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The format of its tables.
    pub format: Format,
    /// The first data cache.
    pub l1: cache::Config,
    /// Cycles until it answers.
    pub l1_cycles: u32,
    /// The second cache.
    pub l2: cache::Config,
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
    /// Where walks read.
    pub walks_from: WalksFrom,
    /// Cycles of a TLB miss besides its reads.
    pub tlb_miss_cycles: u32,
    /// Loads that may be missing at once.
    pub outstanding_max: u32,
    /// Missing lines that writes may wait for.
    pub write_buffer_entries: u32,
    /// Where the numbers come from.
    pub sources: &'static [NumberSource],
}

impl Preset {
    /// The processor with this preset's numbers, for unprivileged code.
    pub fn processor(&self) -> processor::Config {
        processor::Config {
            l1: self.l1,
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
            privileged: false,
        }
    }

    fn dram(&self) -> dram::Config {
        let row_bytes = u64::from(self.part.burst_bytes());
        dram::Config {
            mapping: Mapping::interleaved(&self.part, 1, 1, row_bytes)
                .expect("the mapping of a constant part, which a test makes"),
            part: self.part.clone(),
            channels: 1,
            ranks: 1,
            scheduling: Scheduling {
                entries: 16,
                writes: WritePolicy::Watermark { entries: 16, high: 12, low: 4 },
                bank_bypasses_max: 4,
                bypasses_max: 64,
            },
        }
    }
}

/// Marvell's Armada XP MV78460 (four PJ4B-MP cores, ARMv7), the machine of the talk on
/// superpages; one of its cores.
pub const ARMADA_XP: Preset = Preset {
    name: "Armada XP MV78460",
    format: Format::ArmV7,
    l1: cache::Config { len_bytes: 32 << 10, ways: 4, line_bytes: 32 },
    l1_cycles: 6,
    l2: cache::Config { len_bytes: 2 << 20, ways: 32, line_bytes: 32 },
    l2_cycles: 20,
    memory_cycles: 40,
    core_clock_mhz: 1600,
    part: DDR3_1600,
    dram_clock_mhz: 800,
    walks_from: WalksFrom::L2,
    tlb_miss_cycles: 0,
    outstanding_max: 4,
    write_buffer_entries: 4,
    sources: &[
        documented(
            "core_clock_mhz, l2.len_bytes, part, dram_clock_mhz",
            "Marvell's announcement at ARM TechCon 2010, as reported by The Register, \
             9 November 2010: four cores of 1.6 GHz, 2 MB of shared L2, DDR3 up to 800 MHz",
        ),
        documented(
            "l1.len_bytes, l1_cycles, l2_cycles",
            "\"Procesory Marvell Armada XP\", mikrokontroler.pl, \
             26 March 2012: L1 of 32 kB in 6 cycles, L2 of up to 2 MB in 26",
        ),
        assumed("the rest", "see below"),
    ],
};
