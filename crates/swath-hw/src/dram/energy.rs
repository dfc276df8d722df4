//! The energy of a timed memory, from its data sheet's currents.
//!
//! The method is the usual one of the makers (Micron, TN-41-01, "Calculating
//! memory system power for DDR3"): each command costs what its test current
//! exceeds the standby current by, for as long as the test says; standby
//! itself costs all the time.
//!
//! | part | energy of one chip |
//! |---|---|
//! | background | VDD · IDD3N · time |
//! | activate and precharge | VDD · (IDD0 · tRC - IDD3N · tRAS - IDD2N · (tRC - tRAS)) each |
//! | read burst | VDD · (IDD4R - IDD3N) · its time on the bus |
//! | write burst | VDD · (IDD4W - IDD3N) · its time on the bus |
//! | refresh | VDD · (IDD5B - IDD3N) · tRFC |
//!
//! Every rank stands in IDD3N, active standby: the controller leaves rows open
//! until a refresh. Refreshes of sets of banks have a test current of their own (IDD5C), which is
//! not among [`Currents`]: they are not counted. What drivers and termination take depends on the board and
//! is not counted.

use crate::dram::stats::ChannelStats;
use crate::dram::timing::{Command, Part};

/// Currents of one chip, as its data sheet tests them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Currents {
    /// The supply in millivolts.
    pub vdd_mv: u32,
    /// One bank activated and precharged every tRC, in milliamperes.
    pub idd0_ma: u32,
    /// All banks precharged, clock running.
    pub idd2n_ma: u32,
    /// A row open, clock running.
    pub idd3n_ma: u32,
    /// Reading without a gap.
    pub idd4r_ma: u32,
    /// Writing without a gap.
    pub idd4w_ma: u32,
    /// Refreshing without a gap.
    pub idd5b_ma: u32,
    /// Chips that make up a rank.
    pub chips_per_rank: u32,
}

impl Currents {
    /// Micron 2 Gb DDR3, x8, die revision M, at 1066 MT/s, the slowest grade
    /// that the sheet gives; eight chips on 64 bits. From the module sheet
    /// jdf18c512_1gx72az (rev. C, 4/13), table 11, whose sums over 18 chips in
    /// two ranks (one of them in IDD2P0 = 12 mA where only one rank works)
    /// give back the chip's.
    pub const DDR3_1066: Self = Self {
        vdd_mv: 1500,
        idd0_ma: 60,
        idd2n_ma: 33,
        idd3n_ma: 45,
        idd4r_ma: 130,
        idd4w_ma: 115,
        idd5b_ma: 185,
        chips_per_rank: 8,
    };

    /// 8 Gb DDR4, x8, at 3200 MT/s; eight chips on 64 bits. The currents that
    /// the simulator DRAMsim3 comes with for this part (`DDR4_8Gb_x8_3200`);
    /// the makers' sheets differ by die revision.
    pub const DDR4_3200: Self = Self {
        vdd_mv: 1200,
        idd0_ma: 57,
        idd2n_ma: 37,
        idd3n_ma: 52,
        idd4r_ma: 168,
        idd4w_ma: 150,
        idd5b_ma: 250,
        chips_per_rank: 8,
    };
}

/// Energy by where it went, in attojoules (mV · mA · ps).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DramEnergy {
    /// Standby of all ranks.
    pub background_aj: u128,
    /// Opening and closing rows.
    pub activate_aj: u128,
    /// Reading.
    pub read_aj: u128,
    /// Writing.
    pub write_aj: u128,
    /// Refreshing.
    pub refresh_aj: u128,
}

impl DramEnergy {
    /// Returns the energy of channels that have counted `stats` and have `ranks` ranks
    /// each. Exact for the table above; a current below its standby counts as
    /// nothing. O(constraints of the part).
    pub fn of(part: &Part, currents: &Currents, ranks: u32, stats: &ChannelStats) -> Self {
        let cycles = |name: &str, from: Command, to: Command| {
            let line = part
                .constraints
                .iter()
                .filter(|line| line.name.starts_with(name) && line.from == from && line.to == to)
                .map(|line| line.cycles)
                .max();
            u128::from(line.unwrap_or(0))
        };
        let t_rc = cycles("tRC", Command::Activate, Command::Activate);
        let t_ras = cycles("tRAS", Command::Activate, Command::Precharge);
        let t_rfc = cycles("tRFC", Command::Refresh, Command::Activate);
        let burst = u128::from(part.burst_cycles());
        let [idd0, idd2n, idd3n] =
            [currents.idd0_ma, currents.idd2n_ma, currents.idd3n_ma].map(u128::from);
        let above = |ma: u32| u128::from(ma).saturating_sub(idd3n);
        // mV · ps of all chips of a rank; times mA and cycles gives attojoules.
        let scale = u128::from(currents.vdd_mv)
            * u128::from(part.clock_period_ps)
            * u128::from(currents.chips_per_rank);
        let standby = idd3n * t_ras + idd2n * t_rc.saturating_sub(t_ras);
        let pair = (idd0 * t_rc).saturating_sub(standby);
        let times = |count: u64, each: u128| u128::from(count) * each * scale;
        Self {
            background_aj: times(stats.elapsed_cycles, idd3n * u128::from(ranks)),
            activate_aj: times(stats.activates, pair),
            read_aj: times(stats.reads, above(currents.idd4r_ma) * burst),
            write_aj: times(stats.writes, above(currents.idd4w_ma) * burst),
            refresh_aj: times(stats.refreshes, above(currents.idd5b_ma) * t_rfc),
        }
    }

    /// Returns the sum of all parts.
    pub const fn total_aj(&self) -> u128 {
        self.background_aj + self.activate_aj + self.read_aj + self.write_aj + self.refresh_aj
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::parts::{DDR3_800, DDR4_3200};

    /// The table, by hand: DDR3-800 has tRC 20, tRAS 15, tRFC 44 and cycles of 2.5 ns.
    #[test]
    fn by_hand() {
        let stats = ChannelStats {
            reads: 3,
            writes: 5,
            activates: 7,
            refreshes: 2,
            elapsed_cycles: 1000,
            ..ChannelStats::default()
        };
        let energy = DramEnergy::of(&DDR3_800, &Currents::DDR3_1066, 2, &stats);
        let scale = 1500 * 2500 * 8;
        assert_eq!(energy.background_aj, 1000 * 2 * 45 * scale);
        assert_eq!(energy.activate_aj, 7 * (60 * 20 - 45 * 15 - 33 * 5) * scale);
        assert_eq!(energy.read_aj, 3 * (130 - 45) * 4 * scale);
        assert_eq!(energy.write_aj, 5 * (115 - 45) * 4 * scale);
        assert_eq!(energy.refresh_aj, 2 * (185 - 45) * 44 * scale);
        // A read of 64 bytes: 85 mA at 1.5 V for 10 ns in eight chips is 10.2 nJ.
        assert_eq!(energy.read_aj / 3, 10_200_000_000);
    }

    /// The constraints that the method needs are there under their names.
    #[test]
    fn the_parts_have_what_is_needed() {
        for (part, currents) in [(DDR3_800, Currents::DDR3_1066), (DDR4_3200, Currents::DDR4_3200)]
        {
            let stats = ChannelStats { activates: 1, refreshes: 1, ..ChannelStats::default() };
            let energy = DramEnergy::of(&part, &currents, 1, &stats);
            assert!(energy.activate_aj > 0 && energy.refresh_aj > 0, "{}", part.name);
        }
    }
}
