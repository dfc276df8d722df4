//! DRAM parts that exist, each a constant with the source of every number.

use alloc::borrow::Cow;

use Command::{Activate, Precharge, PrechargeAll, Read, Refresh, RefreshSet, Write};
use Scope::{Bank, Group, OtherRanks, Rank, Set};

use crate::dram::timing::{Command, Constraint, Part, Scope, SetRefresh};

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
        transfers_per_cycle: 2,
        read_latency_cycles: DISTANCES.cl,
        write_latency_cycles: DISTANCES.cwl,
        refresh_interval_cycles: 3120,
        set_refresh: None,
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
        transfers_per_cycle: 2,
        read_latency_cycles: DISTANCES.cl,
        write_latency_cycles: DISTANCES.cwl,
        refresh_interval_cycles: 6240,
        set_refresh: None,
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
        transfers_per_cycle: 2,
        read_latency_cycles: CL,
        write_latency_cycles: CWL,
        refresh_interval_cycles: 12480,
        set_refresh: None,
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
        transfers_per_cycle: 2,
        read_latency_cycles: RL + DQSCK,
        write_latency_cycles: WL + 1,
        refresh_interval_cycles: 6246,
        set_refresh: None,
        four_activates_cycles: 64,
        bus_cycles: [4, 2, 2, 4, 4, 2, 2],
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

/// DDR5-4800, 40-39-39 (speed bin 4800B), a sub-channel of a module: bursts of 16 on 32 bits,
/// eight groups of four banks, activates, reads and writes that take two cycles of the command
/// bus, and a same-bank refresh.
///
/// The distances are counted from the last cycle of a command to the last of the next, so that a
/// line between one of two cycles and one of one differs from the figure by 1, and data follow
/// CL and CWL after the second cycle.
///
/// | parameter | cycles | source (JEDEC JESD79-5, by the titles of its tables) |
/// |---|---|---|
/// | tCK | 0.416 ns | speed bins, DDR5-4800; 2,400 MHz, by which the times are divided |
/// | CL, tRCD, tRP | 40, 39, 39 | speed bin 4800B: 16.67 ns, 16 ns, 16 ns |
/// | tRAS, tRC | 77, 116 | speed bins: 32 ns, tRAS + tRP |
/// | CWL | 38 | CL - 2 |
/// | tCCD_S | 8 | timing parameters: 8 nCK |
/// | tCCD_L | 12 | max(8 nCK, 5 ns) |
/// | tCCD_L_WR | 24 | max(16 nCK, 10 ns), `tCCD_L_WR2`: whole bursts of an x8 chip need no read-modify-write (that of x4 chips and masked writes is 48) |
/// | tRRD_S, tRRD_L | 8, 12 | 1 KB page: 8 nCK, max(8 nCK, 5 ns) |
/// | tFAW | 32 | 1 KB page: max(32 nCK, 13.333 ns) |
/// | tWTR_S, tWTR_L | 6, 24 | max(4 nCK, 2.5 ns), max(16 nCK, 10 ns) |
/// | tWR, tRTP | 72, 18 | 30 ns, max(12 nCK, 7.5 ns) |
/// | tPPD | 2 | 2 nCK |
/// | read to write | 14 | CL - CWL + BL/2 + 2 nCK + tWPRE (2), tRPST of 0.5 nCK |
/// | command bus | 2, 1 | command truth table |
/// | tRFC1 | 708 | refresh parameters, 16 Gb: 295 ns |
/// | tREFI1 | 9360 | up to 85 °C: 3.9 µs |
/// | tRFCsb, tREFSBRD | 312, 72 | 16 Gb: 130 ns; REFsb to an activate of another bank: 30 ns |
/// | tREFIsb | 1170 | tREFI2 / 4 = 487.5 ns: same-bank refreshes need the fine granularity (tREFI2 = 1.95 µs), in which each of the four banks of all groups is due once |
/// | rank to rank | 2 idle | as for DDR3 |
///
/// The same figures stand in the serial presence detect of modules with such chips (bytes 30 to
/// 93: tAA 16.64 ns, tRAS 32 ns, tWR 30 ns, tRFC1, tRFC2 and tRFCsb 295, 160 and 130 ns, and the
/// pairs of ns and nCK above), and in Micron's *DDR5 SDRAM core data sheet*.
///
/// Four chips of 16 Gb x8 on 32 bits: 2^16 rows of 4 KiB in each bank, 8 GiB. A module has two
/// such channels ([`DramConfig::ddr5_module`](crate::dram::config::DramConfig::ddr5_module)).
/// A precharge closes one bank or the rank; that of the same bank in all groups (PREsb) is not used.
pub const DDR5_4800: Part = {
    const CL: u32 = 40;
    const CWL: u32 = 38;
    const BURST: u32 = 8;
    const RCD: u32 = 39;
    const RP: u32 = 39;
    const RAS: u32 = 77;
    const RFC: u32 = 708;
    const RFC_SB: u32 = 312;
    const REFSBRD: u32 = 72;
    const RRD_S: u32 = 8;
    const RRD_L: u32 = 12;
    const CCD_S: u32 = 8;
    const CCD_L: u32 = 12;
    const CCD_L_WR: u32 = 24;
    const WTR_S: u32 = 6;
    const WTR_L: u32 = 24;
    const RTP: u32 = 18;
    const WR: u32 = 72;
    const PPD: u32 = 2;
    const TURN: u32 = 2;
    const BUS: [u32; Command::COUNT] = [2, 1, 1, 2, 2, 1, 1];
    /// Counts a distance from the last cycle of a command to the last of another.
    const fn late(
        name: &'static str,
        from: Command,
        to: Command,
        scope: Scope,
        cycles: u32,
    ) -> Constraint {
        line(name, from, to, scope, cycles + BUS[from as usize] - BUS[to as usize])
    }
    Part {
        name: "DDR5-4800 40-39-39",
        clock_period_ps: 416,
        groups: 8,
        banks_per_group: 4,
        row_bits: 16,
        column_bits: 10,
        bus_bytes: 4,
        burst_transfers: 2 * BURST,
        transfers_per_cycle: 2,
        read_latency_cycles: CL + 1,
        write_latency_cycles: CWL + 1,
        refresh_interval_cycles: 9360,
        set_refresh: Some(SetRefresh { sets: 4, interval_cycles: 1170 }),
        four_activates_cycles: 32,
        bus_cycles: BUS,
        constraints: Cow::Borrowed(&[
            late("tRCD", Activate, Read, Bank, RCD),
            late("tRCD", Activate, Write, Bank, RCD),
            late("tRAS", Activate, Precharge, Bank, RAS),
            late("tRAS", Activate, PrechargeAll, Rank, RAS),
            late("tRC", Activate, Activate, Bank, RAS + RP),
            late("tRRD_L", Activate, Activate, Group, RRD_L),
            late("tRRD_S", Activate, Activate, Rank, RRD_S),
            late("tRP", Precharge, Activate, Bank, RP),
            late("tRP", Precharge, Refresh, Rank, RP),
            late("tRP", PrechargeAll, Activate, Rank, RP),
            late("tRP", PrechargeAll, Refresh, Rank, RP),
            late("tPPD", Precharge, Precharge, Rank, PPD),
            late("tPPD", Precharge, PrechargeAll, Rank, PPD),
            late("tCCD_L", Read, Read, Group, CCD_L),
            late("tCCD_S", Read, Read, Rank, CCD_S),
            late("tCCD_L_WR", Write, Write, Group, CCD_L_WR),
            late("tCCD_S", Write, Write, Rank, CCD_S),
            late("CL-CWL+BL/2+2+tWPRE", Read, Write, Rank, CL + BURST + 2 + 2 - CWL),
            late("CWL+BL/2+tWTR_L", Write, Read, Group, CWL + BURST + WTR_L),
            late("CWL+BL/2+tWTR_S", Write, Read, Rank, CWL + BURST + WTR_S),
            late("tRTP", Read, Precharge, Bank, RTP),
            late("tRTP", Read, PrechargeAll, Rank, RTP),
            late("CWL+BL/2+tWR", Write, Precharge, Bank, CWL + BURST + WR),
            late("CWL+BL/2+tWR", Write, PrechargeAll, Rank, CWL + BURST + WR),
            late("tRFC1", Refresh, Activate, Rank, RFC),
            late("tRFC1", Refresh, Refresh, Rank, RFC),
            late("tRFC1", Refresh, RefreshSet, Rank, RFC),
            late("tRP", Precharge, RefreshSet, Set, RP),
            late("tRP", PrechargeAll, RefreshSet, Rank, RP),
            late("tRRD_L", Activate, RefreshSet, Rank, RRD_L),
            late("tRFCsb", RefreshSet, Activate, Set, RFC_SB),
            late("tREFSBRD", RefreshSet, Activate, Rank, REFSBRD),
            late("tRFCsb", RefreshSet, RefreshSet, Rank, RFC_SB),
            late("tRFCsb", RefreshSet, Refresh, Rank, RFC_SB),
            late("rank to rank", Read, Read, OtherRanks, BURST + TURN),
            late("rank to rank", Write, Write, OtherRanks, BURST),
            late("rank to rank", Read, Write, OtherRanks, CL + BURST + TURN - CWL),
            late("rank to rank", Write, Read, OtherRanks, CWL + BURST + TURN - CL),
        ]),
    }
};

/// LPDDR5-6400 with bank groups: commands at 800 MHz, data at eight transfers in such a cycle, and
/// a refresh of pairs of banks.
///
/// | parameter | cycles | source (JEDEC JESD209-5B, by the titles of its tables) |
/// |---|---|---|
/// | tCK | 1.25 ns | 6400 MT/s, WCK to CK 4:1 |
/// | RL, WL | 17, 9 | mode register 2, 6400: set 0, WL set A |
/// | tWCK2DQO | 2 | max. 1.6 ns, added to RL |
/// | tRCD, tRPpb, tRPab | 15, 15, 17 | core timing: 18 ns, 18 ns, 21 ns |
/// | tRAS, tRC | 34, 49 | core timing: 42 ns, tRAS + tRPpb |
/// | tRRD, tFAW | 4, 16 | core timing, bank groups: 5 ns, 20 ns |
/// | tCCD_S, tCCD_L | 2, 4 | effective burst length, bank groups, BL16: BL/n_min, BL/n_max |
/// | tWTR_S, tWTR_L | 5, 10 | core timing, bank groups: 6.25 ns, 12 ns |
/// | tWR, nRBTP | 28, 4 | core timing: 34 ns; 7.5 ns - 2 nCK |
/// | tPPD | 2 | core timing: 2 nCK |
/// | read to write | 12, 14 | RL + BL/n + tWCK2DQO - WL, BL/n_max within a group |
/// | write to read | 16, 23 | WL + BL/n + tWTR, BL/n_max within a group |
/// | read to precharge | 6 | BL/n_min + nRBTP |
/// | write to precharge | 40 | WL + BL/n_min + 1 + tWR |
/// | command bus | 2, 1 | command truth table: an activate is two commands (ACT-1, ACT-2), here one after the other; distances are counted from the first, as Ramulator 2.1 counts them |
/// | tRFCab | 224 | refresh requirements, 16 Gb per channel: 280 ns |
/// | tREFI | 3124 | refresh requirements: 3.906 µs |
/// | tRFCpb, tpbR2pbR, tpbR2act | 112, 72, 6 | refresh requirements, 16 Gb: 140 ns, 90 ns, 7.5 ns |
/// | tREFIpb | 390 | tREFI / 8: with 16 banks, a per-bank refresh takes a pair |
/// | rank to rank | 2 idle | as for DDR3 |
///
/// The data clock runs all the time (the standard's WCK always-on mode), so no command
/// synchronises it before a read or a write after a pause (WCK2CK, a CAS of one cycle).
///
/// Two 16-bit channels of 16 Gb run in step as one of 32 bits, as with [`LPDDR4_3200`], so that a
/// burst of 16 moves 64 bytes: four groups of four banks, 2^16 rows of 4 KiB.
pub const LPDDR5_6400: Part = {
    const RL: u32 = 17;
    const WCK2DQO: u32 = 2;
    const WL: u32 = 9;
    const BURST: u32 = 2;
    const BURST_MAX: u32 = 4;
    const RCD: u32 = 15;
    const RP_PB: u32 = 15;
    const RP_AB: u32 = 17;
    const RAS: u32 = 34;
    const RFC_AB: u32 = 224;
    const RFC_PB: u32 = 112;
    const PBR_TO_PBR: u32 = 72;
    const PBR_TO_ACT: u32 = 6;
    const RRD: u32 = 4;
    const WTR_S: u32 = 5;
    const WTR_L: u32 = 10;
    const RBTP: u32 = 4;
    const WR: u32 = 28;
    const PPD: u32 = 2;
    const TURN: u32 = 2;
    Part {
        name: "LPDDR5-6400",
        clock_period_ps: 1250,
        groups: 4,
        banks_per_group: 4,
        row_bits: 16,
        column_bits: 10,
        bus_bytes: 4,
        burst_transfers: 8 * BURST,
        transfers_per_cycle: 8,
        read_latency_cycles: RL + WCK2DQO,
        write_latency_cycles: WL,
        refresh_interval_cycles: 3124,
        set_refresh: Some(SetRefresh { sets: 8, interval_cycles: 390 }),
        four_activates_cycles: 16,
        bus_cycles: [2, 1, 1, 1, 1, 1, 1],
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
            line("tCCD_L", Read, Read, Group, BURST_MAX),
            line("tCCD_S", Read, Read, Rank, BURST),
            line("tCCD_L", Write, Write, Group, BURST_MAX),
            line("tCCD_S", Write, Write, Rank, BURST),
            line("RL+BL/n_max+tWCK2DQO-WL", Read, Write, Group, RL + BURST_MAX + WCK2DQO - WL),
            line("RL+BL/n_min+tWCK2DQO-WL", Read, Write, Rank, RL + BURST + WCK2DQO - WL),
            line("WL+BL/n_max+tWTR_L", Write, Read, Group, WL + BURST_MAX + WTR_L),
            line("WL+BL/n_min+tWTR_S", Write, Read, Rank, WL + BURST + WTR_S),
            line("BL/n_min+nRBTP", Read, Precharge, Bank, BURST + RBTP),
            line("BL/n_min+nRBTP", Read, PrechargeAll, Rank, BURST + RBTP),
            line("WL+BL/n_min+1+tWR", Write, Precharge, Bank, WL + BURST + 1 + WR),
            line("WL+BL/n_min+1+tWR", Write, PrechargeAll, Rank, WL + BURST + 1 + WR),
            line("tRFCab", Refresh, Activate, Rank, RFC_AB),
            line("tRFCab", Refresh, Refresh, Rank, RFC_AB),
            line("tRFCab", Refresh, RefreshSet, Rank, RFC_AB),
            line("tRPpb", Precharge, RefreshSet, Set, RP_PB),
            line("tRPab", PrechargeAll, RefreshSet, Rank, RP_AB),
            line("tRRD", Activate, RefreshSet, Rank, RRD),
            line("tRFCpb", RefreshSet, Activate, Set, RFC_PB),
            line("tpbR2act", RefreshSet, Activate, Rank, PBR_TO_ACT),
            line("tpbR2pbR", RefreshSet, RefreshSet, Rank, PBR_TO_PBR),
            line("tRFCpb", RefreshSet, Refresh, Rank, RFC_PB),
            line("rank to rank", Read, Read, OtherRanks, BURST + TURN),
            line("rank to rank", Write, Write, OtherRanks, BURST),
            line("rank to rank", Read, Write, OtherRanks, RL + WCK2DQO + BURST + TURN - WL),
            // The other direction has room: the read's data come later anyway.
            line("rank to rank", Write, Read, OtherRanks, 1),
        ]),
    }
};

/// The parts of this module.
pub const PARTS: [Part; 6] = [DDR3_800, DDR4_3200, LPDDR4_3200, DDR3_1600, DDR5_4800, LPDDR5_6400];
