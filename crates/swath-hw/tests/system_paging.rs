//! Pages of the timed system that come when a master touches them. The model in
//! `system_model.rs` has them in random systems.

use std::cell::Cell;

use crate::system_tables::{DATA, READ_ONLY, TRAD, Tables, mmu, raster, write};
use swath_arch::VirtAddr;
use swath_hw::system::{Paging, System, SystemConfig, SystemError, SystemErrorCause};
use swath_hw::{Denied, SystemStats, Transaction, TranslationFault};

fn run(
    tables: &Tables<'_>,
    reads: &[Transaction],
    fault_cycles: u32,
    bring: impl FnMut(VirtAddr) -> bool,
) -> Result<SystemStats, SystemError> {
    let masters = [(mmu(TRAD), reads.iter().copied())];
    let system = System::new(&SystemConfig::paper(), masters).unwrap();
    system.run_paged(&tables.memory, Paging { fault_cycles, bring }, |_| {})
}

/// A fault takes the walk that finds nothing, its cycles, and the walk made anew.
#[test]
fn a_fault_takes_its_cycles_beside_a_walk() {
    let read = raster(0x10_000, 1);
    let cycles = |there: bool, fault_cycles| {
        let mut words = Vec::new();
        let tables = Tables::new(&mut words);
        let map = |_| {
            tables.map(0x10, 0x100, 1, DATA);
            true
        };
        if there {
            assert!(map(VirtAddr::new(0)));
        }
        let stats = run(&tables, &read, fault_cycles, map).unwrap();
        assert_eq!(stats.masters[0].translation.walk.faults, u64::from(!there));
        stats.total_cycles
    };
    let there = cycles(true, 1000);
    let at_once = cycles(false, 0);
    // Two reads of descriptors, whose rows are open by the second time.
    assert!(there + 10 < at_once && at_once < 2 * there, "{there}, {at_once}");
    for fault_cycles in [1, 7, 1000] {
        assert_eq!(cycles(false, fault_cycles), at_once + u64::from(fault_cycles));
    }
}

#[test]
fn a_page_that_does_not_come_ends_the_run() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x100, 1, DATA);
    tables.map(0x12, 0x102, 1, READ_ONLY);
    let reads = raster(0x10_000, 70);
    let page = VirtAddr::new(0x11_000).page();
    let absent = SystemErrorCause::Fault(TranslationFault::Translation { page, level: 1 });
    // Refused, and said to have come where it has not: the run ends, and no walk goes on for ever.
    let mut ends = Vec::new();
    for says in [false, true] {
        let calls = Cell::new(0);
        let bring = |addr: VirtAddr| {
            assert_eq!(addr.page(), page);
            calls.set(calls.get() + 1);
            says
        };
        let error = run(&tables, &reads, 300, bring).unwrap_err();
        assert_eq!((error.master, error.transaction, error.cause), (0, 64, absent));
        assert_eq!(calls.get(), 1);
        ends.push(error.cycle);
    }
    assert!(ends[0] > 300 && ends[0] < ends[1], "{ends:?}");
    // What is there and may not be written is no page to bring.
    let error = run(&tables, &[write(0x12_000)], 300, |_| unreachable!()).unwrap_err();
    assert_eq!(error.cause, SystemErrorCause::Denied(Denied::Write));
}
