//! Energy of the timed system's memory, from its data sheet's currents.
//!
//! The paper measures cycles only. Energy is worked out from the same runs: the
//! commands that the memory has counted, and the time for which it stood ready.
//! All of it is counted, walks included, and shown for each transaction of the
//! masters, of which every design makes the same.

use swath_hw::{Currents, DramConfig, DramEnergy, SystemStats};

use crate::study::results::{Figure, FigureKind};

/// The parts of the energy, in the order of [`Nanojoules`].
pub(crate) const PARTS: [&str; 5] = ["background", "activate", "read", "write", "refresh"];

/// Energy for a transaction by part.
pub(crate) type Nanojoules = [f64; PARTS.len()];

/// Id of the figure of the whole energy.
pub(crate) const TOTAL: &str = "Energy";

/// Id of the figure of its parts.
pub(crate) const SPLIT: &str = "Energy by part";

/// The energy of a run by part, for each of the masters' transactions.
pub(crate) fn per_transaction(
    dram: &DramConfig,
    currents: &Currents,
    stats: &SystemStats,
) -> Nanojoules {
    let energy = DramEnergy::of(&dram.part, currents, dram.ranks, &stats.dram.total());
    let transactions: u64 = stats.masters.iter().map(|master| master.transactions()).sum();
    let parts = [
        energy.background_aj,
        energy.activate_aj,
        energy.read_aj,
        energy.write_aj,
        energy.refresh_aj,
    ];
    parts.map(|part_aj| part_aj as f64 / 1e9 / transactions.max(1) as f64)
}

/// The y axis of both figures, with its unit.
pub(crate) const Y: &str = "nanojoules_per_transaction";

/// The figures: all of the energy over the swept sizes, and its parts.
pub(crate) fn figures(kind: FigureKind, x_label: &str) -> [Figure; 2] {
    let y_label = "nanojoules for each transaction";
    let title = "of the memory, mean over category II";
    [
        Figure::new(TOTAL, title, kind, x_label, y_label).with_caption(
            "Transactions are the masters' of 64 bytes; what walks read is in their energy.",
        ),
        Figure::new(SPLIT, title, FigureKind::Bars, "", y_label)
            .with_caption("Mean over the block sizes."),
    ]
}

/// The limits of these figures, for the reader: of a part with these currents.
pub(crate) fn note(currents: Option<&Currents>) -> String {
    let source = match currents {
        None => {
            return "Energy is not shown: the currents of the memory's part are not known.".into();
        }
        Some(&Currents::DDR3_1066) => {
            "those of a Micron 2 Gb x8 chip, eight to each of the four channels, at 1066 MT/s, the \
             slowest grade that its sheet gives"
        }
        Some(&Currents::DDR4_3200) => {
            "those that the simulator DRAMsim3 comes with for an 8 Gb x8 chip at 3200 MT/s, eight to \
             each channel"
        }
        Some(_) => "those of the part's file",
    };
    format!(
        "Energy is that of the memory's chips by the makers' method (Micron, TN-41-01): the commands of \
         the run times what their currents exceed standby by, and active standby for all of its time. \
         Currents are {source}. Drivers, termination, controller and masters are not in it."
    )
}

#[cfg(test)]
mod tests {
    use swath_arch::{
        Coalescing, Format, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr,
    };
    use swath_hw::{Geometry, Mmu, System, SystemConfig, Transaction, WalkOrder};

    use super::*;

    /// Nanojoules of a current over so many cycles of 2.5 ns, in the eight chips
    /// of a rank at 1.5 V.
    fn nanojoules(milliamperes: u64, cycles: u64) -> f64 {
        (milliamperes * cycles) as f64 * 1.5 * 2.5 * 8.0 / 1000.0
    }

    /// A page of 64 lines, every fourth of them written, behind one walk of two
    /// descriptors.
    #[test]
    fn a_tiny_run_by_hand() {
        let mut words = vec![0; 0x8000 / 8];
        let memory = SliceMemory::new(Pfn::new(0), &mut words);
        memory.write_u32(PhysAddr::new(0), 0x4000 | 0x1).unwrap();
        memory.write_u32(PhysAddr::new(0x4000 + 4 * 0x10), 0x80_000 | 0x83e).unwrap();
        let (format, root) = (Format::ArmV7, PhysAddr::new(0));
        let regime = Regime { format, root, coalescing: Coalescing::None };
        let mmu = Mmu::new(regime, Geometry::default(), WalkOrder::default()).unwrap();
        let line =
            |n: u64| Transaction { addr: VirtAddr::new(0x1_0000 + 64 * n), write: n % 4 == 3 };
        let config = SystemConfig::paper();
        let system = System::new(&config, [(mmu, (0..64).map(line))]).unwrap();
        let stats = system.run(&memory).unwrap();
        let energy = per_transaction(&config.dram, &Currents::DDR3_1066, &stats);

        // It is over before the first refresh, after 7.8 us.
        assert!(stats.total_cycles < 3120, "{}", stats.total_cycles);
        // Four channels stand in 45 mA from the first cycle to the last.
        let background = 4.0 * nanojoules(45, stats.total_cycles);
        // The descriptors lie in two rows; the lines of the page in one row of
        // each channel. 60 mA over the 20 cycles of tRC, less 45 mA for 15 and
        // 33 mA for 5.
        let activate = 6.0 * nanojoules(1, 60 * 20 - 45 * 15 - 33 * 5);
        // 50 reads and 16 writes of 4 cycles, 130 and 115 mA less 45.
        let read = 50.0 * nanojoules(130 - 45, 4);
        let write = 16.0 * nanojoules(115 - 45, 4);
        let by_hand = [background, activate, read, write, 0.0];
        for ((part, found), expected) in PARTS.into_iter().zip(energy).zip(by_hand) {
            let expected = expected / 64.0;
            assert!((found - expected).abs() < 1e-9, "{part}: {found}, not {expected}");
        }
    }
}
