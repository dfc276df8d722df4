//! The rows of the table of what the systems found.

use swath_hw::RtLatency;

use crate::workload::{Found, SIZE_BINS, TIME_BINS, Times};

/// The columns.
pub const COLUMNS: &str = "system,seed,actions,fast,table,data,kind,bin,bins,count,min,mean,max";

/// Prints the rows of a run.
pub fn print(system: &str, seed: u64, actions: u64, latency: RtLatency, found: &Found) {
    let RtLatency { fast, table, data, .. } = latency;
    let row = |kind: &str, bin: usize, bins: usize, times: Times| {
        let Times { count, min, sum, max } = times;
        let mean = sum as f64 / count.max(1) as f64;
        println!(
            "{system},{seed},{actions},{fast},{table},{data},{kind},{bin},{bins},{count},{min},{mean:.1},{max}"
        );
    };
    for (kind, by_size) in [("allocation", &found.allocations), ("release", &found.releases)] {
        for (bin, &times) in by_size.iter().enumerate() {
            row(kind, bin, SIZE_BINS, times);
        }
    }
    row("access", 0, 1, found.accesses);
    row("fault", 0, 1, found.faults);
    let failures = Times { count: found.failures, ..Times::default() };
    row("failure", 0, 1, failures);
    for (bin, &pages) in found.mapped_pages.iter().enumerate() {
        row(
            "mapped",
            bin,
            TIME_BINS,
            Times { count: 1, min: pages, sum: pages.into(), max: pages },
        );
    }
}
