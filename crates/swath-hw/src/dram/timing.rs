//! What a DRAM part allows, and when: timing constraints as a table.
//!
//! A memory chip is commanded over a bus, one command at a time. Its data
//! sheet says how many cycles must lie between two commands: a
//! [`Constraint`] is one such line (from this command to that one, where, how
//! many cycles), and a [`Part`] is a list of them beside the sizes of banks and
//! rows. Nothing in the model knows a parameter by name: [`TimingState`]
//! applies whatever the list says.
//! **A new part is a new constant** of [`Part`] here: its sizes, its two
//! latencies, and one line for each constraint.
//!
//! Cycles are periods of the command clock, [`Part::clock_period_ps`] each.
//! Data move at twice that rate, so a burst of 8 takes 4 cycles.
//!
//! [`TimingState`]: crate::dram::state::TimingState

use alloc::borrow::Cow;
use core::fmt;

use crate::dram::state::BANKS_MAX;

/// A point in time or a length of time, in cycles of the command clock.
pub type Cycle = u64;

/// Lines of a table, at most.
const LINES_MAX: usize = 1024;

/// What a controller tells a chip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Command {
    /// Opens a row of a bank.
    Activate,
    /// Closes the open row of a bank.
    Precharge,
    /// Closes the open rows of all banks of a rank.
    PrechargeAll,
    /// Reads one burst from the open row.
    Read,
    /// Writes one burst to the open row.
    Write,
    /// Refreshes all banks of a rank, which must be closed.
    Refresh,
}

impl Command {
    /// How many there are.
    pub const COUNT: usize = 6;

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Activate,
        Self::Precharge,
        Self::PrechargeAll,
        Self::Read,
        Self::Write,
        Self::Refresh,
    ];

    /// Whether it is told to a whole rank, not to one bank.
    pub const fn is_for_rank(self) -> bool {
        matches!(self, Self::PrechargeAll | Self::Refresh)
    }
}

/// Which later commands a constraint holds back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// Those to the same bank.
    Bank,
    /// Those to any bank of the same bank group, the same bank included.
    Group,
    /// Those to the same rank, the same bank included.
    Rank,
    /// Those to the other ranks of the channel.
    OtherRanks,
}

/// One line of the table: after `from`, a `to` within `scope` is not before
/// `cycles` cycles later. Where several lines apply, the longest one counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constraint {
    /// The data sheet's name of it.
    pub name: &'static str,
    /// The earlier command.
    pub from: Command,
    /// The later command.
    pub to: Command,
    /// Where the later command is held back.
    pub scope: Scope,
    /// For how many cycles.
    pub cycles: u32,
}

/// A DRAM part as one channel sees it: all chips of a rank in step.
///
/// Invariants, which [`Part::validate`] tests: the sizes that are counted are powers of two
/// and not 0; a burst moves at least a byte; a rank can recover from a refresh
/// before the next is due; every constraint is one that can be met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// What to call it.
    pub name: &'static str,
    /// One cycle in picoseconds.
    pub clock_period_ps: u32,
    /// Bank groups in a rank; 1 where the part has none.
    pub groups: u32,
    /// Banks in a group.
    pub banks_per_group: u32,
    /// log2 of the rows in a bank.
    pub row_bits: u32,
    /// log2 of the columns in a row; a column is as wide as the data bus.
    pub column_bits: u32,
    /// Width of a channel's data bus in bytes.
    pub bus_bytes: u32,
    /// Transfers in a burst: a burst moves this many times `bus_bytes`.
    pub burst_transfers: u32,
    /// Cycles from a read command to its first data.
    pub read_latency_cycles: u32,
    /// Cycles from a write command to its first data.
    pub write_latency_cycles: u32,
    /// Cycles between the refreshes that a rank is due (tREFI).
    pub refresh_interval_cycles: u32,
    /// In so many cycles a rank takes at most four activates (tFAW); 0 where
    /// there is no such limit.
    pub four_activates_cycles: u32,
    /// How long each command occupies the command bus, by [`Command`].
    pub bus_cycles: [u32; Command::COUNT],
    /// The table.
    pub constraints: Cow<'static, [Constraint]>,
}

/// A part that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartError {
    /// A size that is 0, or not a power of two, or too large.
    Size {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// A line between commands of which one is for a whole rank, with a scope
    /// narrower than a rank.
    Scope {
        /// The line.
        constraint: Constraint,
    },
    /// A refresh and the precharge before it take longer than a refresh interval.
    Refresh {
        /// The interval.
        interval_cycles: u32,
        /// What is needed.
        needed_cycles: u64,
    },
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { field, value } => write!(f, "{field} cannot be {value}"),
            Self::Scope { constraint: Constraint { name, from, to, scope, .. } } => {
                write!(f, "{name} ({from:?} to {to:?}) concerns a rank, not a {scope:?}")
            }
            Self::Refresh { interval_cycles, needed_cycles } => write!(
                f,
                "refreshing takes {needed_cycles} cycles and is due every {interval_cycles}"
            ),
        }
    }
}

impl core::error::Error for PartError {}

impl Part {
    /// Banks in a rank.
    pub const fn banks(&self) -> u32 {
        self.groups * self.banks_per_group
    }

    /// Cycles that a burst occupies the data bus.
    pub const fn burst_cycles(&self) -> u32 {
        self.burst_transfers / 2
    }

    /// Bytes that a burst moves.
    pub const fn burst_bytes(&self) -> u32 {
        self.burst_transfers * self.bus_bytes
    }

    /// Bytes of a row.
    pub const fn row_bytes(&self) -> u64 {
        (self.bus_bytes as u64) << self.column_bits
    }

    /// Bytes of a rank.
    pub const fn rank_bytes(&self) -> u64 {
        (self.row_bytes() << self.row_bits) * self.banks() as u64
    }

    /// Tests the invariants. O(constraints).
    ///
    /// # Errors
    /// [`PartError`] names the first that does not hold.
    pub fn validate(&self) -> Result<(), PartError> {
        let powers = [
            ("groups", self.groups, 16),
            ("banks_per_group", self.banks_per_group, 16),
            ("bus_bytes", self.bus_bytes, 1 << 10),
            ("burst_transfers", self.burst_transfers, 1 << 10),
        ];
        for (field, value, max) in powers {
            if !value.is_power_of_two() || value > max {
                return Err(PartError::Size { field, value });
            }
        }
        let counts = [
            ("clock_period_ps", self.clock_period_ps, 1, 1 << 20),
            ("burst_transfers", self.burst_transfers, 2, 1 << 10),
            ("row_bits", self.row_bits, 1, 24),
            ("column_bits", self.column_bits, self.burst_transfers.trailing_zeros(), 16),
            ("read_latency_cycles", self.read_latency_cycles, 1, 1 << 20),
            ("write_latency_cycles", self.write_latency_cycles, 1, 1 << 20),
            ("refresh_interval_cycles", self.refresh_interval_cycles, 1, 1 << 30),
            ("four_activates_cycles", self.four_activates_cycles, 0, 1 << 20),
        ];
        for (field, value, min, max) in counts {
            if !(min..=max).contains(&value) {
                return Err(PartError::Size { field, value });
            }
        }
        for value in self.bus_cycles {
            if !(1..=1 << 10).contains(&value) {
                return Err(PartError::Size { field: "bus_cycles", value });
            }
        }
        if self.constraints.len() > LINES_MAX {
            let value = u32::try_from(self.constraints.len()).unwrap_or(u32::MAX);
            return Err(PartError::Size { field: "constraints", value });
        }
        if self.banks() > BANKS_MAX {
            return Err(PartError::Size { field: "banks", value: self.banks() });
        }
        let mut longest = 0;
        for constraint in self.constraints.iter() {
            let rank = constraint.from.is_for_rank() || constraint.to.is_for_rank();
            if rank && matches!(constraint.scope, Scope::Bank | Scope::Group) {
                return Err(PartError::Scope { constraint: *constraint });
            }
            if constraint.cycles > 1 << 20 {
                return Err(PartError::Size { field: constraint.name, value: constraint.cycles });
            }
            longest = longest.max(constraint.cycles);
        }
        // From the moment that it is due: what runs ends, all banks are closed,
        // and the refresh itself runs. None takes longer than the longest line.
        let needed_cycles = 3 * (u64::from(longest) + 1);
        if needed_cycles > u64::from(self.refresh_interval_cycles) {
            let interval_cycles = self.refresh_interval_cycles;
            return Err(PartError::Refresh { interval_cycles, needed_cycles });
        }
        Ok(())
    }
}

use Command::{Activate, Precharge, PrechargeAll, Read, Refresh, Write};
use Scope::{Bank, Group, OtherRanks, Rank};

const fn line(
    name: &'static str,
    from: Command,
    to: Command,
    scope: Scope,
    cycles: u32,
) -> Constraint {
    Constraint { name, from, to, scope, cycles }
}

/// What differs between the speeds of DDR3, in cycles.
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

/// The constraints of DDR3 at any speed.
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
        line("rank to rank", Write, Write, OtherRanks, BURST + TURN),
        line("rank to rank", Read, Write, OtherRanks, cl + BURST + TURN - cwl),
        line("rank to rank", Write, Read, OtherRanks, cwl + BURST + TURN - cl),
    ]
}

/// DDR3-800, 5-5-5 (speed bin 800D), the memory of the PBS paper's Table 3.
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
/// | rank to rank | 2 idle | no number in the standard: room for the strobe's preamble and for turning the bus |
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
            line("rank to rank", Write, Write, OtherRanks, BURST + TURN),
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
            line("rank to rank", Write, Write, OtherRanks, BURST + TURN),
            line("rank to rank", Read, Write, OtherRanks, RL + DQSCK + BURST + TURN - WL),
            // The other direction has room: the read's data come later anyway.
            line("rank to rank", Write, Read, OtherRanks, 1),
        ]),
    }
};

/// The parts of this module.
pub const PARTS: [Part; 4] = [DDR3_800, DDR4_3200, LPDDR4_3200, DDR3_1600];
