//! The memory beside the naive one.

use alloc::borrow::Cow;

use swath_arch::PhysAddr;
use swath_arch::testing::Random;

use crate::dram::config::DramConfig;
use crate::dram::mapping::AddressMapping;
use crate::dram::memory::Dram;
use crate::dram::parts::{DDR3_800, DDR4_3200, DDR5_4800, LPDDR4_3200, LPDDR5_6400};
use crate::dram::request::DramRequest;
use crate::dram::scheduling::{DrainRule, RefreshMode, Scheduling, WritePolicy};
use crate::dram::timing::Part;
use crate::testing::dram::{compare, hurried};

fn config(part: Part, channels: u32, ranks: u32, scheduling: Scheduling) -> DramConfig {
    let mapping = AddressMapping::interleaved(&part, channels, ranks, 64).unwrap();
    DramConfig { part, channels, ranks, mapping, scheduling }
}

#[test]
fn same_commands_in_the_same_cycles() {
    let policies = [
        WritePolicy::Unified,
        WritePolicy::Watermark { entries: 6, high: 4, low: 1 },
        WritePolicy::Watermark { entries: 3, high: 3, low: 0 },
        WritePolicy::Watermark { entries: 1, high: 1, low: 0 },
        WritePolicy::Own {
            entries: 5,
            rule: DrainRule { name: "more writes", drains: |now| now.writes > now.reads },
        },
        WritePolicy::Own {
            entries: 7,
            rule: DrainRule {
                name: "twice as many",
                drains: |now| match now.draining {
                    true => 2 * now.writes > now.reads,
                    false => now.writes > 2 * now.reads,
                },
            },
        },
    ];
    let mut seed = 0;
    for (part, refresh, cycles) in [
        (DDR3_800, RefreshMode::AllBank, 2500),
        (DDR4_3200, RefreshMode::AllBank, 2500),
        (LPDDR4_3200, RefreshMode::AllBank, 2500),
        (DDR5_4800, RefreshMode::AllBank, 3000),
        (DDR5_4800, RefreshMode::SameBank, 4500),
        (LPDDR5_6400, RefreshMode::AllBank, 2500),
        (LPDDR5_6400, RefreshMode::SameBank, 3500),
    ] {
        for writes in policies {
            let limits =
                [(1, true, 9), (5, false, 0), (8, true, 7), (8, false, 2), (16, false, u32::MAX)];
            for (entries, hits_first, bypasses_max) in limits {
                for (channels, ranks, load) in [(1, 1, 30), (1, 2, 90), (2, 2, 60)] {
                    seed += 1;
                    let scheduling =
                        Scheduling { entries, writes, hits_first, bypasses_max, refresh };
                    let config = config(hurried(&part), channels, ranks, scheduling);
                    compare(&config, Random::new(seed), cycles, load);
                }
            }
        }
    }
}

#[test]
fn a_table_that_says_nothing_is_followed_too() {
    let part = Part {
        constraints: Cow::Borrowed(&[]),
        four_activates_cycles: 0,
        refresh_interval_cycles: 50,
        ..DDR3_800
    };
    let scheduling = Scheduling {
        entries: 4,
        writes: WritePolicy::Unified,
        hits_first: true,
        bypasses_max: 3,
        refresh: RefreshMode::AllBank,
    };
    for seed in 100..110 {
        compare(&config(part.clone(), 1, 2, scheduling), Random::new(seed), 2000, 95);
    }
}

#[test]
fn long_idle_times_are_passed_over_and_leave_the_same_state() {
    for ranks in [1, 2] {
        let all_bank = DramConfig::paper().scheduling;
        long_idle_times(&config(DDR3_800, 2, ranks, all_bank));
        let same_bank = Scheduling { refresh: RefreshMode::SameBank, ..all_bank };
        long_idle_times(&config(DDR5_4800, 2, ranks, same_bank));
        long_idle_times(&config(LPDDR5_6400, 1, ranks, same_bank));
    }
}

fn long_idle_times(config: &DramConfig) {
    let mut stepped = Dram::new(config).unwrap();
    // A log keeps every refresh, so this one passes over nothing.
    stepped.record_commands();
    let mut skipped = Dram::new(config).unwrap();
    let mut random = Random::new(7);
    let interval = match config.scheduling.refresh {
        RefreshMode::AllBank => config.part.refresh_interval_cycles,
        RefreshMode::SameBank => config.part.set_refresh.unwrap().interval_cycles,
    };
    let mut now = 0;
    for id in 0..200 {
        now += random.below(40_000);
        if id % 3 == 0 {
            // The very cycle in which a refresh is due.
            now = now.next_multiple_of(interval.into());
            stepped.advance(now);
            skipped.advance(now);
            assert_eq!(stepped.stats(), skipped.stats());
        }
        let addr = PhysAddr::new(random.below(1 << 20));
        let request = DramRequest { id, addr, write: false };
        assert_eq!(stepped.offer(now, request), skipped.offer(now, request));
        assert_eq!(stepped.next_event(), skipped.next_event());
    }
    now += 1 << 20;
    stepped.advance(now);
    skipped.advance(now);
    assert_eq!(stepped.stats(), skipped.stats());
    loop {
        let (one, other) = (stepped.take_done(now), skipped.take_done(now));
        assert_eq!(one, other);
        if one.is_none() {
            break;
        }
    }
    skipped.check().unwrap();
    // To the end of time.
    skipped.advance(u64::MAX);
    let total = skipped.stats().total();
    assert!(total.refreshes + total.set_refreshes > 1 << 40);
    skipped.check().unwrap();
}
