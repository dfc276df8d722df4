//! DRAM parts that exist, each a constant with the source of every number.

use alloc::borrow::Cow;

use Command::{Activate, Precharge, PrechargeAll, Read, Refresh, Write};
use Scope::{Bank, Group, OtherRanks, Rank};

use crate::dram::timing::{Command, Constraint, Part, Scope};

const fn line(
    name: &'static str,
    from: Command,
    to: Command,
    scope: Scope,
    cycles: u32,
) -> Constraint {
    Constraint { name, from, to, scope, cycles }
}

/// The distances that differ between the speeds of DDR3, in cycles.
struct Ddr3 {
    cl: u32,
    cwl: u32,
    rcd: u32,
    rp: u32,
    ras: u32,
    rfc: u32,
    rrd: u32,
    wtr: u32,
    rtp: u32,
    wr: u32,
}

/// Cycles of a burst of DDR3 on the data bus.
const DDR3_BURST: u32 = 4;

/// Returns the constraints of DDR3 at any speed.
const fn ddr3(distances: &Ddr3) -> [Constraint; 24] {
    const BURST: u32 = DDR3_BURST;
    const CCD: u32 = 4;
    const TURN: u32 = 2;
    let &Ddr3 { cl, cwl, rcd, rp, ras, rfc, rrd, wtr, rtp, wr } = distances;
    [
        line("tRCD", Activate, Read, Bank, rcd),
        line("tRCD", Activate, Write, Bank, rcd),
        line("tRAS", Activate, Precharge, Bank, ras),
        line("tRAS", Activate, PrechargeAll, Rank, ras),
        line("tRC", Activate, Activate, Bank, ras + rp),
        line("tRRD", Activate, Activate, Rank, rrd),
        line("tRP", Precharge, Activate, Bank, rp),
        line("tRP", Precharge, Refresh, Rank, rp),
        line("tRP", PrechargeAll, Activate, Rank, rp),
        line("tRP", PrechargeAll, Refresh, Rank, rp),
        line("tCCD", Read, Read, Rank, CCD),
        line("tCCD", Write, Write, Rank, CCD),
        line("RL+tCCD+2-WL", Read, Write, Rank, cl + CCD + 2 - cwl),
        line("WL+BL/2+tWTR", Write, Read, Rank, cwl + BURST + wtr),
        line("tRTP", Read, Precharge, Bank, rtp),
        line("tRTP", Read, PrechargeAll, Rank, rtp),
        line("WL+BL/2+tWR", Write, Precharge, Bank, cwl + BURST + wr),
        line("WL+BL/2+tWR", Write, PrechargeAll, Rank, cwl + BURST + wr),
        line("tRFC", Refresh, Activate, Rank, rfc),
        line("tRFC", Refresh, Refresh, Rank, rfc),
        line("rank to rank", Read, Read, OtherRanks, BURST + TURN),
        line("rank to rank", Write, Write, OtherRanks, BURST),
        line("rank to rank", Read, Write, OtherRanks, cl + BURST + TURN - cwl),
        line("rank to rank", Write, Read, OtherRanks, cwl + BURST + TURN - cl),
    ]
}

/// DDR3-800, 5-5-5 (speed bin 800D), the memory of *Duong and Hur*, Table 3.
///
/// The paper gives tCL-tRCD-tRP, four channels and four banks. The rest is
/// JEDEC JESD79-3F, by the titles of its tables; the same tables stand in
/// public data sheets (Samsung K4B2G0846D, 13.2 and 13.3; M393B5273CH0, Table 18).
///
/// | parameter | cycles | source |
/// |---|---|---|
/// | tCK | 2.5 ns | speed bins: DDR3-800 |
/// | CL, tRCD, tRP | 5, 5, 5 | speed bins: 800D, 12.5 ns each |
/// | tRAS, tRC | 15, 20 | speed bins: 37.5 ns, 50 ns |
/// | CWL | 5 | speed bins; mode register 2 |
/// | tCCD | 4 | timing parameters by speed bin |
/// | tRRD, tFAW | 4, 16 | timing parameters by speed bin, 1 KB page: max(4 nCK, 10 ns), 40 ns |
/// | tWTR, tRTP | 4, 4 | timing parameters by speed bin: max(4 nCK, 7.5 ns) each |
/// | tWR | 6 | timing parameters by speed bin: 15 ns |
/// | read to write | 6 | read burst operation: RL + tCCD + 2 nCK - WL |
/// | write to read | 13 | write burst operation: WL + BL/2 + tWTR |
/// | tRFC | 44 | refresh parameters by device density, 1 Gb: 110 ns |
/// | tREFI | 3120 | refresh parameters by device density, up to 85 °C: 7.8 µs |
/// | rank to rank | 2 idle, none between writes | no number in the standard: room for the strobe's preamble and for turning the bus, which the controller drives for one write like for the next |
///
/// Eight chips of 8 bits on a bus of 64 bits; 1 Gb in four banks of 2^15 rows
/// of 1 KiB (a real part has eight banks of 2^14 rows), so that the paper's
/// four channels make 4 GiB, what 32 bits address.
pub const DDR3_800: Part = {
    const DISTANCES: Ddr3 =
        Ddr3 { cl: 5, cwl: 5, rcd: 5, rp: 5, ras: 15, rfc: 44, rrd: 4, wtr: 4, rtp: 4, wr: 6 };
    const CONSTRAINTS: [Constraint; 24] = ddr3(&DISTANCES);
    Part {
        name: "DDR3-800 5-5-5",
        clock_period_ps: 2500,
        groups: 1,
        banks_per_group: 4,
        row_bits: 15,
        column_bits: 10,
        bus_bytes: 8,
        burst_transfers: 2 * DDR3_BURST,
        read_latency_cycles: DISTANCES.cl,
        write_latency_cycles: DISTANCES.cwl,
        refresh_interval_cycles: 3120,
        four_activates_cycles: 16,
        bus_cycles: [1; Command::COUNT],
        constraints: Cow::Borrowed(&CONSTRAINTS),
    }
};

/// DDR3-1600, 11-11-11 (speed bin 1600K).
///
/// | parameter | cycles | source (JEDEC JESD79-3F, by the titles of its tables) |
/// |---|---|---|
/// | tCK | 1.25 ns | speed bins: DDR3-1600 |
/// | CL, tRCD, tRP | 11, 11, 11 | speed bins: 1600K, 13.75 ns each |
/// | tRAS, tRC | 28, 39 | speed bins: 35 ns, 48.75 ns |
/// | CWL | 8 | speed bins; mode register 2 |
/// | tCCD | 4 | timing parameters by speed bin |
/// | tRRD, tFAW | 5, 24 | timing parameters by speed bin, 1 KB page: max(4 nCK, 6 ns), 30 ns |
/// | tWTR, tRTP | 6, 6 | timing parameters by speed bin: max(4 nCK, 7.5 ns) each |
/// | tWR | 12 | timing parameters by speed bin: 15 ns |
/// | read to write, write to read | 9, 18 | as for DDR3-800 |
/// | tRFC | 128 | refresh parameters by device density, 2 Gb: 160 ns |
/// | tREFI | 6240 | refresh parameters by device density, up to 85 °C: 7.8 µs |
/// | rank to rank | 2 idle | as for DDR3-800 |
///
/// Eight chips of 2 Gb x8 on 64 bits: eight banks of 2^15 rows, 2 GiB.
pub const DDR3_1600: Part = {
    const DISTANCES: Ddr3 =
        Ddr3 { cl: 11, cwl: 8, rcd: 11, rp: 11, ras: 28, rfc: 128, rrd: 5, wtr: 6, rtp: 6, wr: 12 };
    const CONSTRAINTS: [Constraint; 24] = ddr3(&DISTANCES);
    Part {
        name: "DDR3-1600 11-11-11",
        clock_period_ps: 1250,
        groups: 1,
        banks_per_group: 8,
        row_bits: 15,
        column_bits: 10,
        bus_bytes: 8,
        burst_transfers: 2 * DDR3_BURST,
        read_latency_cycles: DISTANCES.cl,
        write_latency_cycles: DISTANCES.cwl,
        refresh_interval_cycles: 6240,
        four_activates_cycles: 24,
        bus_cycles: [1; Command::COUNT],
        constraints: Cow::Borrowed(&CONSTRAINTS),
    }
};

/// DDR4-3200, 22-22-22 (speed bin 3200AA): bank groups, so that three distances
/// have a long form within a group (`_L`) and a short one across (`_S`).
///
/// | parameter | cycles | source (JEDEC JESD79-4C, by the titles of its tables) |
/// |---|---|---|
/// | tCK | 0.625 ns | speed bins, DDR4-3200 |
/// | CL, tRCD, tRP | 22, 22, 22 | speed bin 3200AA: 13.75 ns |
/// | tRAS, tRC | 52, 74 | speed bins: 32 ns, tRAS + tRP |
/// | CWL | 16 | mode register 2, 1st set, preamble of 1 nCK |
/// | tCCD_S, tCCD_L | 4, 8 | timing parameters, 3200: 4 nCK, max(5 nCK, 5 ns) |
/// | tRRD_S, tRRD_L | 4, 8 | 1 KB page: max(4 nCK, 2.5 ns), max(4 nCK, 4.9 ns) |
/// | tFAW | 34 | 1 KB page: max(20 nCK, 21 ns) |
/// | tWTR_S, tWTR_L | 4, 12 | max(2 nCK, 2.5 ns), max(4 nCK, 7.5 ns) |
/// | tWR, tRTP | 24, 12 | 15 ns, max(4 nCK, 7.5 ns) |
/// | read to write | 12 | RL + BL/2 + 2 nCK - WL |
/// | tRFC1 | 560 | 8 Gb: 350 ns |
/// | tREFI | 12480 | up to 85 °C: 7.8 µs |
/// | rank to rank | 2 idle | as for DDR3 |
///
/// Eight chips of 8 Gb x8 on 64 bits: four groups of four banks, 2^16 rows.
pub const DDR4_3200: Part = {
    const CL: u32 = 22;
    const CWL: u32 = 16;
    const BURST: u32 = 4;
    const RCD: u32 = 22;
    const RP: u32 = 22;
    const RAS: u32 = 52;
    const RFC: u32 = 560;
    const RRD_S: u32 = 4;
    const RRD_L: u32 = 8;
    const CCD_S: u32 = 4;
    const CCD_L: u32 = 8;
    const WTR_S: u32 = 4;
    const WTR_L: u32 = 12;
    const RTP: u32 = 12;
    const WR: u32 = 24;
    const TURN: u32 = 2;
    Part {
        name: "DDR4-3200 22-22-22",
        clock_period_ps: 625,
        groups: 4,
        banks_per_group: 4,
        row_bits: 16,
        column_bits: 10,
        bus_bytes: 8,
        burst_transfers: 2 * BURST,
        read_latency_cycles: CL,
        write_latency_cycles: CWL,
        refresh_interval_cycles: 12480,
        four_activates_cycles: 34,
        bus_cycles: [1; Command::COUNT],
        constraints: Cow::Borrowed(&[
            line("tRCD", Activate, Read, Bank, RCD),
            line("tRCD", Activate, Write, Bank, RCD),
            line("tRAS", Activate, Precharge, Bank, RAS),
            line("tRAS", Activate, PrechargeAll, Rank, RAS),
            line("tRC", Activate, Activate, Bank, RAS + RP),
            line("tRRD_L", Activate, Activate, Group, RRD_L),
            line("tRRD_S", Activate, Activate, Rank, RRD_S),
            line("tRP", Precharge, Activate, Bank, RP),
            line("tRP", Precharge, Refresh, Rank, RP),
            line("tRP", PrechargeAll, Activate, Rank, RP),
            line("tRP", PrechargeAll, Refresh, Rank, RP),
            line("tCCD_L", Read, Read, Group, CCD_L),
            line("tCCD_S", Read, Read, Rank, CCD_S),
            line("tCCD_L", Write, Write, Group, CCD_L),
            line("tCCD_S", Write, Write, Rank, CCD_S),
            line("RL+BL/2+2-WL", Read, Write, Rank, CL + BURST + 2 - CWL),
            line("WL+BL/2+tWTR_L", Write, Read, Group, CWL + BURST + WTR_L),
            line("WL+BL/2+tWTR_S", Write, Read, Rank, CWL + BURST + WTR_S),
            line("tRTP", Read, Precharge, Bank, RTP),
            line("tRTP", Read, PrechargeAll, Rank, RTP),
            line("WL+BL/2+tWR", Write, Precharge, Bank, CWL + BURST + WR),
            line("WL+BL/2+tWR", Write, PrechargeAll, Rank, CWL + BURST + WR),
            line("tRFC1", Refresh, Activate, Rank, RFC),
            line("tRFC1", Refresh, Refresh, Rank, RFC),
            line("rank to rank", Read, Read, OtherRanks, BURST + TURN),
            line("rank to rank", Write, Write, OtherRanks, BURST),
            line("rank to rank", Read, Write, OtherRanks, CL + BURST + TURN - CWL),
            // The other direction has room: the read's data come later anyway.
            line("rank to rank", Write, Read, OtherRanks, 1),
        ]),
    }
};

/// LPDDR4-3200: commands that occupy the command bus for two or four cycles,
/// a strobe that comes late (tDQSCK), precharges that keep a distance (tPPD).
///
/// | parameter | cycles | source (JEDEC JESD209-4B, by the titles of its tables) |
/// |---|---|---|
/// | tCK | 0.625 ns | 3200 MT/s |
/// | RL, WL | 28, 14 | mode register 2: no DBI, WL set A |
/// | tDQSCK | 6 | max. 3.5 ns, added to RL |
/// | tRCD, tRPpb, tRPab | 29, 29, 34 | core timing: 18 ns, 18 ns, 21 ns |
/// | tRAS, tRC | 68, 97 | core timing: 42 ns, tRAS + tRPpb |
/// | tRRD, tFAW | 16, 64 | core timing: 10 ns, 40 ns |
/// | tCCD | 8 | BL/2 of a burst of 16 |
/// | tWTR, tWR, tRTP | 16, 29, 12 | core timing: 10 ns, 18 ns, 7.5 ns |
/// | tPPD | 4 | core timing: 4 nCK |
/// | read to write | 30 | RL + tDQSCK + BL/2 - WL + tWPRE (2) |
/// | write to read | 39 | WL + 1 + BL/2 + tWTR |
/// | read to precharge | 12 | BL/2 - 8 + max(8 nCK, tRTP) |
/// | write to precharge | 52 | WL + 1 + BL/2 + tWR |
/// | command bus | 4, 2 | command truth table: activate, read and write are two commands of 2 cycles each |
/// | tRFCab | 288 | refresh requirements, 4 Gb per channel: 180 ns |
/// | tREFI | 6246 | refresh requirements: 3.904 µs |
/// | rank to rank | 4 idle | as for DDR3, and the strobe's spread |
///
/// Two 16-bit channels of 8 Gb chips run in step as one of 32 bits, so that a
/// burst of 16 moves 64 bytes: eight banks of 2^15 rows of 4 KiB.
pub const LPDDR4_3200: Part = {
    const RL: u32 = 28;
    const DQSCK: u32 = 6;
    const WL: u32 = 14;
    const BURST: u32 = 8;
    const RCD: u32 = 29;
    const RP_PB: u32 = 29;
    const RP_AB: u32 = 34;
    const RAS: u32 = 68;
    const RFC: u32 = 288;
    const RRD: u32 = 16;
    const CCD: u32 = 8;
    const WTR: u32 = 16;
    const RTP: u32 = 12;
    const WR: u32 = 29;
    const PPD: u32 = 4;
    const TURN: u32 = 4;
    Part {
        name: "LPDDR4-3200",
        clock_period_ps: 625,
        groups: 1,
        banks_per_group: 8,
        row_bits: 15,
        column_bits: 10,
        bus_bytes: 4,
        burst_transfers: 2 * BURST,
        read_latency_cycles: RL + DQSCK,
        write_latency_cycles: WL + 1,
        refresh_interval_cycles: 6246,
        four_activates_cycles: 64,
        bus_cycles: [4, 2, 2, 4, 4, 2],
        constraints: Cow::Borrowed(&[
            line("tRCD", Activate, Read, Bank, RCD),
            line("tRCD", Activate, Write, Bank, RCD),
            line("tRAS", Activate, Precharge, Bank, RAS),
            line("tRAS", Activate, PrechargeAll, Rank, RAS),
            line("tRC", Activate, Activate, Bank, RAS + RP_PB),
            line("tRRD", Activate, Activate, Rank, RRD),
            line("tRPpb", Precharge, Activate, Bank, RP_PB),
            line("tRPpb", Precharge, Refresh, Rank, RP_PB),
            line("tRPab", PrechargeAll, Activate, Rank, RP_AB),
            line("tRPab", PrechargeAll, Refresh, Rank, RP_AB),
            line("tPPD", Precharge, Precharge, Rank, PPD),
            line("tPPD", Precharge, PrechargeAll, Rank, PPD),
            line("tCCD", Read, Read, Rank, CCD),
            line("tCCD", Write, Write, Rank, CCD),
            line("RL+tDQSCK+BL/2-WL+tWPRE", Read, Write, Rank, RL + DQSCK + BURST - WL + 2),
            line("WL+1+BL/2+tWTR", Write, Read, Rank, WL + 1 + BURST + WTR),
            line("BL/2-8+tRTP", Read, Precharge, Bank, BURST - 8 + RTP),
            line("BL/2-8+tRTP", Read, PrechargeAll, Rank, BURST - 8 + RTP),
            line("WL+1+BL/2+tWR", Write, Precharge, Bank, WL + 1 + BURST + WR),
            line("WL+1+BL/2+tWR", Write, PrechargeAll, Rank, WL + 1 + BURST + WR),
            line("tRFCab", Refresh, Activate, Rank, RFC),
            line("tRFCab", Refresh, Refresh, Rank, RFC),
            line("rank to rank", Read, Read, OtherRanks, BURST + TURN),
            line("rank to rank", Write, Write, OtherRanks, BURST),
            line("rank to rank", Read, Write, OtherRanks, RL + DQSCK + BURST + TURN - WL),
            // The other direction has room: the read's data come later anyway.
            line("rank to rank", Write, Read, OtherRanks, 1),
        ]),
    }
};

/// The parts of this module.
pub const PARTS: [Part; 4] = [DDR3_800, DDR4_3200, LPDDR4_3200, DDR3_1600];
