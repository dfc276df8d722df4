//! The memory against two independent simulators.
//!
//! `dram_matrix.csv` holds the cycles until the last request was taken, in DRAMsim3 (Li et al.,
//! IEEE CAL 2020; github.com/umd-memsys/DRAMsim3, commit 2981759) and in Ramulator 2.1 (Luo et
//! al., IEEE CAL 2023; github.com/CMU-SAFARI/ramulator2, commit c5b1c3a): the streams of
//! [`crate::dram_streams`], one request of 64 bytes offered in each cycle, in the stream's order,
//! waiting while the queue of its channel takes none. The example `dram_streams` writes the
//! streams and gathers the figures.
//!
//! Both had the numbers of this crate's parts (the tables at [`DDR3_800`], [`DDR4_3200`] and
//! [`LPDDR4_3200`]), row-bank-group-rank-column-channel over bursts, FR-FCFS, open page, and:
//!
//! * DRAMsim3: transaction queue 32, and as many writes; 8 commands for each bank; ranks refreshed
//!   in turn; tRTRS 2, 2 and 3, which is what turning the bus from reads to writes needs beside
//!   the latencies. Its commands occupy the bus for one cycle.
//! * Ramulator: 32 reads and 32 writes, drained from 80% to 20%; all ranks refreshed at once; nCS
//!   2, 2 and 4. It has no LPDDR4: its DDR3 with that part's numbers, and with lines for the cycles
//!   on the command bus, tPPD and tRPab.
//!
//! [`DDR3_800`]: swath_hw::dram::DDR3_800
//! [`DDR4_3200`]: swath_hw::dram::DDR4_3200
//! [`LPDDR4_3200`]: swath_hw::dram::LPDDR4_3200

use swath_arch::PhysAddr;
use swath_hw::dram::{Dram, DramConfig, DramRequest, OfferError};

use crate::dram_streams::{MEMORIES, READ_PERCENT, STREAMS, Stream, memory, requests};

/// Offers one request in each cycle; gives the cycles until the last was accepted.
fn run(config: &DramConfig, stream: &[(u64, bool)]) -> u64 {
    let mut dram = Dram::new(config).unwrap();
    let mut now = 0;
    for (id, &(addr, write)) in (0..).zip(stream) {
        let request = DramRequest { id, addr: PhysAddr::new(addr), write };
        loop {
            while dram.take_done(now).is_some() {}
            match dram.offer(now, request) {
                Ok(()) => break,
                Err(OfferError::Full { channel }) => {
                    while !dram.has_room(channel, write) {
                        now = dram.next_event().unwrap();
                        dram.advance(now);
                        while dram.take_done(now).is_some() {}
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        now += 1;
    }
    dram.check().unwrap();
    now
}

/// A line of the matrix.
struct Figures {
    dramsim3: u64,
    ramulator: u64,
}

/// The figures of a memory, stream and share of reads.
fn figures(memory: &str, stream: &Stream, read_percent: u32) -> Figures {
    let key = format!("{memory},{:?},{read_percent},{},", stream.name, stream.held_out);
    let mut lines = include_str!("dram_matrix.csv").lines();
    let line = lines.find_map(|line| line.strip_prefix(&key)).expect(&key);
    let (dramsim3, ramulator) = line.split_once(',').unwrap();
    Figures { dramsim3: dramsim3.parse().unwrap(), ramulator: ramulator.parse().unwrap() }
}

/// Runs all streams of a memory, and fails with all that lie outside of the two figures, give or
/// take 3%.
fn lies_between(name: &str) {
    let config = memory(name);
    let mut outside = String::new();
    for stream in &STREAMS {
        for read_percent in READ_PERCENT {
            let Figures { dramsim3, ramulator } = figures(name, stream, read_percent);
            let ours = run(&config, &requests(stream.pattern, read_percent)) as f64;
            let (low, high) = (dramsim3.min(ramulator) as f64, dramsim3.max(ramulator) as f64);
            let line = format!(
                "{name}, {}, {read_percent}% reads: {ours}, {:.3} of DRAMsim3, {:.3} of Ramulator\n",
                stream.name,
                ours / dramsim3 as f64,
                ours / ramulator as f64,
            );
            print!("{line}");
            if ours < 0.97 * low || ours > 1.03 * high {
                outside += &line;
            }
        }
    }
    assert!(outside.is_empty(), "{outside}");
}

#[test]
fn ddr3_lies_between_both_simulators() {
    lies_between("DDR3-800");
}

#[test]
fn ddr4_lies_between_both_simulators() {
    lies_between("DDR4-3200");
}

#[test]
fn lpddr4_lies_between_both_simulators() {
    lies_between("LPDDR4-3200");
}

#[test]
fn the_matrix_is_whole() {
    let lines = include_str!("dram_matrix.csv").lines().count();
    assert_eq!(lines, 1 + MEMORIES.len() * STREAMS.len() * READ_PERCENT.len());
    let held_out = STREAMS.iter().filter(|stream| stream.held_out).count();
    assert_eq!((STREAMS.len(), held_out), (36, 12));
}
