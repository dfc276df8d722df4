//! The tests of `swath-hw` in one program: it is linked once, and all of them share the cores.

mod coalesce;
mod dram;
mod dram_golden;
mod dram_streams;
mod dram_timing;
mod line;
mod mmu;
mod processor;
mod processor_fetch;
mod rtmmu;
mod rtmmu_arrays;
mod rtmmu_tlb;
mod segments;
mod superpage_walks;
mod system;
mod system_errors;
mod system_model;
mod system_paging;
mod system_tables;
