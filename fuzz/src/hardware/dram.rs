//! Memory with time, and the traces of what it is asked.

use swath_arch::PhysAddr;
use swath_arch::testing::Random;
use swath_hw::dram::{PARTS, TraceFormat, write_trace};
use swath_hw::testing::dram::{compare, hurried};
use swath_hw::{AddressMapping, DramConfig, DramRequest, RefreshMode, Scheduling, WritePolicy};

/// Draws a memory and what it is asked for, cycle by cycle, beside one that tries every command
/// against all that was ever issued; then a trace, which says what was written. What is offered is
/// compared at once, what was issued and what has ended at the end, and the invariants where the bytes
/// say so.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let part = hurried(&PARTS[random.index(PARTS.len())]);
    let (channels, ranks) = (1 << random.below(2), 1 << random.below(2));
    let high = 1 + random.below(6) as u32;
    let writes = match random.below(3) {
        0 => WritePolicy::Unified,
        _ => WritePolicy::Watermark {
            entries: high + random.below(3) as u32,
            high,
            low: random.below(u64::from(high)) as u32,
        },
    };
    let same_bank = part.set_refresh.is_some() && random.one_in(2);
    let scheduling = Scheduling {
        entries: 1 + random.below(16) as u32,
        writes,
        hits_first: random.one_in(2),
        bypasses_max: [0, 1, 7, u32::MAX][random.index(4)],
        refresh: if same_bank { RefreshMode::SameBank } else { RefreshMode::AllBank },
    };
    let Ok(mapping) = AddressMapping::interleaved(&part, channels, ranks, 64) else { return };
    let config = DramConfig { part, channels, ranks, mapping, scheduling };
    trace(&mut random);
    let load = 20 + random.below(80);
    compare(&config, random, 1200, load);
}

/// Each line is read as the simulators read it.
fn trace(random: &mut Random) {
    let mut cycle = 0;
    let mut asked = Vec::new();
    for id in 0..random.below(4) {
        cycle += random.below(256);
        let (addr, write) = (PhysAddr::new(random.word()), random.one_in(2));
        asked.push((cycle, DramRequest { id, addr, write }));
    }
    for format in [TraceFormat::Ramulator, TraceFormat::DramSim3, TraceFormat::Text] {
        let mut text = String::new();
        write_trace(&mut text, format, asked.iter().copied()).expect("a string takes all");
        let read: Vec<_> = text.lines().map(|line| read(format, line)).collect();
        let told = asked.iter().map(|&(cycle, DramRequest { addr, write, .. })| match format {
            TraceFormat::Ramulator | TraceFormat::Text => (0, addr.raw(), write),
            TraceFormat::DramSim3 => (cycle, addr.raw(), write),
        });
        assert_eq!(read, told.collect::<Vec<_>>(), "{text}");
    }
}

fn read(format: TraceFormat, line: &str) -> (u64, u64, bool) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| {
        let digits = word.strip_prefix("0x").expect("hexadecimal");
        u64::from_str_radix(digits, 16).expect("an address")
    };
    match (format, &words[..]) {
        (TraceFormat::Ramulator, ["LD", addr]) => (0, number(addr), false),
        (TraceFormat::Ramulator, ["ST", addr]) => (0, number(addr), true),
        (TraceFormat::Text, [addr, "r"]) => (0, number(addr), false),
        (TraceFormat::Text, [addr, "w"]) => (0, number(addr), true),
        (TraceFormat::DramSim3, [addr, "READ", cycle]) => {
            (cycle.parse().expect("a cycle"), number(addr), false)
        }
        (TraceFormat::DramSim3, [addr, "WRITE", cycle]) => {
            (cycle.parse().expect("a cycle"), number(addr), true)
        }
        _ => panic!("{line}"),
    }
}
