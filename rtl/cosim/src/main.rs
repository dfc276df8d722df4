#![doc = include_str!("../README.md")]

mod campaign;
mod port;
mod tables;
mod tlb;
mod unit;

use swath_hw::RtLatency;

use crate::campaign::{Pace, Tally};
use crate::unit::Scheme;

/// The sets of latencies: the paper's, all memories at one speed, and slow ones of which none is a
/// multiple of another.
const LATENCIES: [RtLatency; 3] =
    [RtLatency::PAPER, RtLatency::ONE_SPEED, RtLatency { fast: 3, table: 11, data: 7, tlb: 1 }];

fn number(argument: Option<String>, default: u64, what: &str) -> u64 {
    argument.map_or(default, |text| {
        text.parse().unwrap_or_else(|_| {
            eprintln!("{what}: {text} is no number");
            std::process::exit(2)
        })
    })
}

/// Returns the processor time of this process in seconds: others may use the machine.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    nanoseconds.map_or(f64::NAN, |nanoseconds| nanoseconds as f64 / 1e9)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let accesses = number(arguments.next(), 100_000, "accesses of each run");
    let seed = number(arguments.next(), 1, "seed");
    for scheme in [Scheme::Arrays, Scheme::Nodes, Scheme::PageTable] {
        for latency in LATENCIES {
            for pace in [Pace::Waiting, Pace::Overlapping, Pace::Stalled] {
                let began = processor_seconds();
                let Tally { accesses, granted, cycles } =
                    campaign::run(scheme, latency, pace, accesses, seed);
                let seconds = processor_seconds() - began;
                let RtLatency { fast, table, data, .. } = latency;
                println!(
                    "{scheme:?} {fast}/{table}/{data} {pace:?}: {accesses} accesses, {granted} granted, \
                     {cycles} cycles, {:.1} million a second of the processor, no difference",
                    cycles as f64 / seconds / 1e6,
                );
            }
        }
    }
    for form in tlb::FORMS {
        // Each run is as long as the three of a unit.
        let (began, accesses) = (processor_seconds(), 9 * accesses);
        let tlb::Tally { hits, fills, overlaps, cycles } = tlb::run(form, accesses, seed);
        let seconds = processor_seconds() - began;
        println!(
            "TLB {form:?}: {accesses} accesses, {hits} hits, {fills} fills, {overlaps} of them over older entries, \
             {cycles} cycles, {:.1} million a second of the processor, no difference",
            cycles as f64 / seconds / 1e6,
        );
        assert!(hits > accesses / 50 && fills > accesses / 50, "too few");
        assert!(form == tlb::Form::Page || overlaps > accesses / 1000, "no entries met");
    }
}
