//! The memory against two independent simulators.
//!
//! `dram_matrix.csv` holds the cycles until the last request was taken, in DRAMsim3 (Li et al.,
//! IEEE CAL 2020; github.com/umd-memsys/DRAMsim3, commit 2981759) and in Ramulator 2.1 (Luo et
//! al., IEEE CAL 2023; github.com/CMU-SAFARI/ramulator2, commit c5b1c3a): the streams of
//! [`crate::dram_streams`], one request of 64 bytes offered in each cycle, in the stream's order,
//! waiting while the queue of its channel takes none. The example `dram_streams` writes the
//! streams, and this matrix from the simulators' figures.
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
//! **[`DDR5_4800`] and [`LPDDR5_6400`] are held against Ramulator alone**: DRAMsim3 has neither.
//! The scheduling had been chosen before, without them. Both with refreshes of whole ranks: of
//! smaller ones Ramulator has only LPDDR5's, of one bank in place of a pair, for which it keeps all
//! other requests back while that bank is closed.
//!
//! * DDR5: a module of two channels. Its part with the numbers of ours, which counts commands of
//!   two cycles from the second as ours does.
//! * LPDDR5: its DDR5 with that part's table, so that an activate is one command of two cycles, as
//!   ours is. Its own controller for LPDDR5 sends the second half of an activate (ACT-2) later, in
//!   a cycle that nothing else wants, and no other activate in between, so that more requests find
//!   their row open. Those figures are the column `ramulator_split`, and [`SPLIT`] says how far ours
//!   are from them. Both with WCK always on; with a CAS before what comes after a pause, the
//!   latter takes 0.995 to 1.028 times as long.
//!
//! [`DDR3_800`]: swath_hw::dram::DDR3_800
//! [`DDR4_3200`]: swath_hw::dram::DDR4_3200
//! [`LPDDR4_3200`]: swath_hw::dram::LPDDR4_3200
//! [`DDR5_4800`]: swath_hw::dram::DDR5_4800
//! [`LPDDR5_6400`]: swath_hw::dram::LPDDR5_6400

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

/// A line of the matrix; no figure where a simulator has no such part.
struct Figures {
    dramsim3: Option<u64>,
    ramulator: Option<u64>,
    ramulator_split: Option<u64>,
}

/// The figures of a memory, stream and share of reads.
fn figures(memory: &str, stream: &Stream, read_percent: u32) -> Figures {
    let key = format!("{memory},{:?},{read_percent},{},", stream.name, stream.held_out);
    let mut lines = include_str!("dram_matrix.csv").lines();
    let line = lines.find_map(|line| line.strip_prefix(&key)).expect(&key);
    let mut figures = line.split(',').map(|figure| figure.parse().ok());
    let mut next = || figures.next().expect(&key);
    Figures { dramsim3: next(), ramulator: next(), ramulator_split: next() }
}

/// A stream with its share of reads, the cycles that ours takes, and the figures of the others.
type Point = (&'static str, u32, f64, Figures);

/// Runs all streams of a memory.
fn points(name: &str) -> Vec<Point> {
    let config = memory(name);
    let all = STREAMS.iter().flat_map(|stream| READ_PERCENT.map(|percent| (stream, percent)));
    let point = |(stream, percent): (&Stream, u32)| {
        let ours = run(&config, &requests(stream.pattern, percent)) as f64;
        (stream.name, percent, ours, figures(name, stream, percent))
    };
    all.map(point).collect()
}

/// Tests that all streams of a memory lie between the two simulators, give or take 3%.
fn lies_between(name: &str) {
    let mut outside = String::new();
    for (stream, percent, ours, figures) in points(name) {
        let [one, other] =
            [figures.dramsim3, figures.ramulator].map(|figure| figure.unwrap() as f64);
        let ratios = [ours / one, ours / other];
        let line = format!("{name}, {stream}, {percent}% reads: {ours}, {ratios:.3?} of theirs\n");
        print!("{line}");
        if ours < 0.97 * one.min(other) || ours > 1.03 * one.max(other) {
            outside += &line;
        }
    }
    assert!(outside.is_empty(), "{outside}");
}

/// Tests that all points lie within 3% of a figure, but for some, which are as far from it as said.
fn lies_near(points: &[Point], figure: fn(&Figures) -> Option<u64>, apart: &[(&str, u32, f64)]) {
    let mut outside = Vec::new();
    for (stream, percent, ours, figures) in points {
        let ratio = ours / figure(figures).unwrap() as f64;
        println!("{stream}, {percent}% reads: {ours}, {ratio:.3} of theirs");
        if !(0.97..=1.03).contains(&ratio) {
            outside.push((*stream, *percent, ratio));
        }
    }
    let same = |(ours, said): (&(&str, u32, f64), &(&str, u32, f64))| {
        (ours.0, ours.1) == (said.0, said.1) && (ours.2 - said.2).abs() < 0.001
    };
    assert!(outside.len() == apart.len(), "{outside:.3?}");
    assert!(outside.iter().zip(apart).all(same), "{outside:.3?}");
}

/// The streams of LPDDR5 for which we take less than 0.97 or more than 1.03 times as long as
/// Ramulator where it sends the halves of an activate apart: 25 of 108. Where several streams of
/// reads meet in few banks, we open rows more often.
const SPLIT: [(&str, u32, f64); 25] = [
    ("stride 640", 100, 1.037),
    ("stride 640", 75, 1.041),
    ("random runs of 1024", 100, 1.103),
    ("random runs of 1024", 75, 1.074),
    ("random runs of 1024", 50, 1.033),
    ("4 masters, one bank", 100, 1.036),
    ("8 masters", 100, 1.356),
    ("8 masters", 75, 1.147),
    ("8 masters", 50, 1.067),
    ("copy in one bank", 100, 1.311),
    ("copy in one bank", 75, 1.046),
    ("copy", 75, 1.034),
    ("copy by 1024, one bank", 100, 1.315),
    ("copy by 1024, one bank", 75, 1.045),
    ("half random", 100, 1.066),
    ("half random", 75, 1.040),
    ("half random", 50, 1.037),
    ("stride 320", 100, 1.039),
    ("stride 1088", 100, 1.134),
    ("stride 1088", 75, 1.132),
    ("stride 1088", 50, 1.102),
    ("random runs of 512", 100, 1.079),
    ("3 masters", 100, 1.107),
    ("3 masters", 75, 1.059),
    ("copy by 256", 50, 0.967),
];

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
fn ddr5_lies_near_ramulator() {
    lies_near(&points("DDR5-4800"), |figures| figures.ramulator, &[]);
}

#[test]
fn lpddr5_lies_near_ramulator_and_as_far_from_split_activates_as_said() {
    let points = points("LPDDR5-6400");
    let apart = [("copy by 256", 75, 0.968), ("copy by 256", 50, 0.964)];
    lies_near(&points, |figures| figures.ramulator, &apart);
    lies_near(&points, |figures| figures.ramulator_split, &SPLIT);
}

#[test]
fn the_matrix_is_whole() {
    let lines = include_str!("dram_matrix.csv").lines().count();
    assert_eq!(lines, 1 + MEMORIES.len() * STREAMS.len() * READ_PERCENT.len());
    let held_out = STREAMS.iter().filter(|stream| stream.held_out).count();
    assert_eq!((STREAMS.len(), held_out), (36, 12));
}
