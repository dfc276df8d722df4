#![doc = include_str!("../README.md")]

mod campaign;
mod core;
mod machine;
mod port;
mod program;
mod table;
mod tables;
mod tlb;
mod unit;
mod walking;
mod workload;

use swath_hw::RtLatency;

use crate::campaign::{Pace, Tally};
use crate::machine::Memories;
use crate::unit::Scheme;
use crate::walking::Runs;
use crate::workload::Workload;

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

/// Runs the units and the TLBs beside their models.
fn units(mut arguments: impl Iterator<Item = String>) {
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
    walking(3 * accesses, seed);
}

/// Runs the TLBs with their walker, as long as the others.
fn walking(accesses: u64, seed: u64) {
    for runs in [Runs::Anywhere, Runs::WithinATable] {
        for (latency, stalls) in [(1, false), (8, false), (3, true)] {
            let began = processor_seconds();
            let walking::Tally { hits, filled, faults, cycles } =
                walking::run(runs, latency, stalls, accesses, seed);
            let seconds = processor_seconds() - began;
            println!(
                "TLB and walker, runs {runs:?}, {latency} cycles{}: {accesses} accesses, {hits} hits, {filled} filled, \
                 {faults:?} not mapped, reserved, without memory, {cycles} cycles, {:.1} million a second of the \
                 processor, no difference",
                if stalls { " and more" } else { "" },
                cycles as f64 / seconds / 1e6,
            );
            let few = [hits, filled, faults[0], faults[1], faults[2]].into_iter().min();
            assert!(few > Some(accesses / 1000), "too few of a kind");
        }
    }
}

/// The latencies of the system's memories, where they are not said: DDR2 behind a controller, seen from a core of some
/// 60 MHz. The chips have half of the module's, as in the paper.
const SYSTEM: RtLatency = RtLatency { fast: 4, table: 8, data: 8, tlb: 1 };

/// The largest allocation of the synthetic trace, as in the studies `rt-*`.
const SIZE_BYTES_MAX: u32 = 4 << 20;

/// No run takes so long.
const CYCLES_MAX: u64 = 1 << 40;

/// Runs the core beside its interpreter, then a program on the system, over regions and over a page table; prints a
/// table of what they found.
fn system(mut arguments: impl Iterator<Item = String>) {
    let file = arguments.next().unwrap_or_else(|| {
        eprintln!("no program");
        std::process::exit(2)
    });
    let program = program::read(&file).unwrap_or_else(|error| {
        eprintln!("{file}: {error}");
        std::process::exit(2)
    });
    let actions = number(arguments.next(), 20_000, "actions");
    if actions == 0 {
        eprintln!("no actions");
        std::process::exit(2)
    }
    let seed = number(arguments.next(), 1, "seed");
    let began = processor_seconds();
    let (steps, said) = core::run(10, 20_000, seed);
    let seconds = processor_seconds() - began;
    eprintln!(
        "core: {steps} instructions of 10 programs, {said} words, no difference, {seconds:.1} s"
    );
    println!("{}", table::COLUMNS);
    for conventional in [false, true] {
        let name = if conventional { "conventional" } else { "regions" };
        let began = processor_seconds();
        let memories = Memories::new();
        let mut workload = Workload::new(conventional, SYSTEM, actions, SIZE_BYTES_MAX, seed);
        let cycles =
            machine::run(conventional, SYSTEM, &program, &memories, &mut workload, CYCLES_MAX);
        let found = workload.found;
        assert!(found.ended_well, "{name}: the program ended by itself");
        let seconds = processor_seconds() - began;
        let cycles = cycles.unwrap_or(0);
        eprintln!(
            "{name}: {actions} actions, {} bytes of accesses looked up in memory, {cycles} cycles, {:.1} million a \
             second of the processor",
            found.looked_up,
            cycles as f64 / seconds / 1e6
        );
        table::print(name, seed, actions, SYSTEM, &found);
    }
}

/// Prints the first seeds, a line each, of which a run of the system has so many arcs.
fn seeds(mut arguments: impl Iterator<Item = String>) {
    let count = number(arguments.next(), 5, "seeds");
    let actions = number(arguments.next(), 1_000_000, "actions");
    let arcs = number(arguments.next(), 3, "arcs");
    let last = count.saturating_mul(1000);
    let chosen =
        (1..=last).filter(|&seed| workload::arcs(actions, SIZE_BYTES_MAX, seed) == Some(arcs));
    let found = chosen.take(count as usize).inspect(|seed| println!("{seed}")).count();
    if found < count as usize {
        eprintln!("{found} of the first {last} seeds have {arcs} arcs");
        std::process::exit(1)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("units") => units(arguments),
        Some("system") => system(arguments),
        Some("seeds") => seeds(arguments),
        _ => {
            eprintln!(
                "swath-cosim units [ACCESSES [SEED]], swath-cosim system PROGRAM [ACTIONS [SEED]], or swath-cosim seeds \
                 [COUNT [ACTIONS [ARCS]]]"
            );
            std::process::exit(2)
        }
    }
}
