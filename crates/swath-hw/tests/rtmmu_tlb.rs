//! The RTMMU with a TLB: rights, stale entries, invalidation and counters.

use crate::rtmmu_arrays::{ARRAYS, Arrays, OPERATIONS, PAGES, arrays_unit, byte};
use swath_arch::{PageRange, Vpn};
use swath_hw::{
    Cycle, Geometry, Operation, PageRights, PortReads, RtFault, RtLatency, Rtmmu, UnmappedCause,
};

#[test]
fn rights_are_kept_by_the_tlb() {
    for rights in 0..8 {
        Arrays::example(rights).with(|memory| {
            let tlb = Some(Geometry::fully_associative(4));
            for filled_by in OPERATIONS {
                for operation in OPERATIONS {
                    let may = |operation| rights >> operation as u64 & 1 != 0;
                    let mut unit = arrays_unit(RtLatency::PAPER, tlb);
                    let first = unit.access(0, byte(6), filled_by, memory);
                    assert_eq!(first.result.is_ok(), may(filled_by));
                    let access = unit.access(first.done, byte(6), operation, memory);
                    assert_eq!(access.from_tlb, may(filled_by));
                    assert_eq!(access.result.is_ok(), may(operation));
                    let walk = if access.from_tlb { 0 } else { 2 };
                    let data = if may(operation) { 2 } else { 0 };
                    assert_eq!(access.cycles(), 1 + walk + data);
                    if let Err(fault) = access.result {
                        let [read, write, execute] = OPERATIONS.map(may);
                        let rights = PageRights { read, write, execute };
                        let page = Vpn::new(6);
                        assert_eq!(fault, RtFault::Denied { page, operation, rights });
                    }
                }
            }
        });
    }
}

#[test]
fn stale_entries_answer_until_they_are_invalidated() {
    let arrays = Arrays::example(1);
    let mut unmapped = arrays.clone();
    unmapped.set(ARRAYS.stack_end, 4, 4);
    let tlb = Some(Geometry::fully_associative(4));
    let forget: [fn(&mut Rtmmu) -> Cycle; 3] = [
        |unit| unit.invalidate_pages(PageRange::new(Vpn::new(4), 8)),
        Rtmmu::invalidate_all,
        |unit| unit.set_tables(*unit.tables()),
    ];
    for forget in forget {
        let mut unit = arrays_unit(RtLatency::PAPER, tlb);
        for page in [4, 6, 9] {
            arrays.with(|memory| unit.access(0, byte(page), Operation::Read, memory));
        }
        unmapped.with(|memory| {
            let access = unit.access(100, byte(9), Operation::Read, memory);
            assert!(access.from_tlb && access.result.is_ok());
            assert_eq!(forget(&mut unit), 1);
            for page in [4, 6, 9] {
                assert_eq!(unit.peek(Vpn::new(page)), None);
                let access = unit.access(200, byte(page), Operation::Read, memory);
                assert!(!access.from_tlb);
                let fault = RtFault::Unmapped {
                    page: Vpn::new(page),
                    level: 0,
                    cause: UnmappedCause::Stack,
                };
                assert_eq!(access.result, Err(fault));
            }
        });
    }
}

#[test]
fn a_page_invalidated_during_a_walk_is_not_filled_after_it() {
    Arrays::example(1).with(|memory| {
        let mut unit = arrays_unit(RtLatency::PAPER, Some(Geometry::fully_associative(4)));
        let mut walk = unit.begin(0, byte(6), Operation::Read);
        walk.finish(memory);
        unit.invalidate_pages(PageRange::new(Vpn::new(4), 8));
        assert!(unit.complete(walk).unwrap().result.is_ok());
        assert_eq!(unit.peek(Vpn::new(6)), None);
        // A walk that is not over comes back.
        let walk = unit.begin(100, byte(6), Operation::Read);
        let mut walk = unit.complete(walk).unwrap_err();
        assert_eq!(unit.stats().accesses, 1);
        walk.finish(memory);
        unit.complete(walk).unwrap();
        assert!(unit.peek(Vpn::new(6)).is_some());
    });
}

#[test]
fn invalidation_takes_a_cycle_for_each_set() {
    let cycles = |sets, index_shift, start, count| {
        let geometry = Geometry { sets, ways: 2, index_shift };
        let mut unit = arrays_unit(RtLatency::PAPER, Some(geometry));
        unit.invalidate_pages(PageRange::new(Vpn::new(start), count))
    };
    assert_eq!(cycles(1, 0, 0, 1 << 20), 1);
    assert_eq!(cycles(16, 0, 3, 1), 1);
    assert_eq!(cycles(16, 0, 3, 15), 15);
    assert_eq!(cycles(16, 0, 3, 1 << 20), 16);
    assert_eq!(cycles(16, 2, 3, 2), 2);
    assert_eq!(cycles(16, 2, 4, 4), 1);
    assert_eq!(cycles(16, 2, u64::MAX, u64::MAX), 1);
    let mut unit = arrays_unit(RtLatency::PAPER, None);
    assert_eq!(unit.invalidate_pages(PageRange::new(Vpn::new(0), 4)), 0);
    assert_eq!(unit.invalidate_all(), 0);
}

#[test]
fn what_is_counted() {
    Arrays::example(1).with(|memory| {
        let mut unit = arrays_unit(RtLatency::PAPER, Some(Geometry::fully_associative(4)));
        let mut now = 0;
        for (page, operation) in [
            (6, Operation::Read),
            (6, Operation::Read),
            (5, Operation::Read),
            (9, Operation::Write),
            (PAGES, Operation::Read),
        ] {
            now = unit.access(now, byte(page), operation, memory).done;
        }
        let stats = unit.stats();
        let counts = (stats.accesses, stats.tlb_hits, stats.page_faults, stats.other_faults);
        assert_eq!(counts, (5, 1, 1, 2));
        // c[5] = 0 and h[5] = 0 lead to sp[0] = 0 and s[0].
        assert_eq!(stats.reads, PortReads { regions: 6, stack: 6, data: 3 });
        assert_eq!((stats.cycles, stats.cycles_max), (5 + 3 + 3 + 3, 5));
        assert_eq!(stats.cycles, now);
        unit.reset_stats();
        assert_eq!(unit.stats().accesses + unit.tlb().unwrap().stats().accesses, 0);
        assert!(unit.peek(Vpn::new(6)).is_some());
    });
}
