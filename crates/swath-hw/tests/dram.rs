//! The memory as a whole: closed formulas held exactly, the order of requests for one
//! burst, mappings, traces, and what bad input gets.

use swath_arch::PhysAddr;
use swath_arch::testing::Random;
use swath_hw::Cycle;
use swath_hw::dram::{AddressField, AddressMapping, AddressMappingError, Coordinate, Location};
use swath_hw::dram::{Command, PARTS, Part, PartError, Scope};
use swath_hw::dram::{Completion, Dram, DramConfig, DramConfigError, DramRequest, OfferError};
use swath_hw::dram::{DDR3_800, DDR5_4800, LPDDR5_6400};
use swath_hw::dram::{TraceFormat, write_trace};
use swath_hw::{DrainRule, Histogram, RefreshMode, Scheduling, WritePolicy};

/// One channel of one rank of a part.
fn one_channel(part: &Part) -> DramConfig {
    let mapping = AddressMapping::interleaved(part, 1, 1, 64).unwrap();
    let scheduling = Scheduling {
        entries: 32,
        writes: WritePolicy::Unified,
        hits_first: true,
        bypasses_max: u32::MAX,
        refresh: RefreshMode::AllBank,
    };
    DramConfig { part: part.clone(), channels: 1, ranks: 1, mapping, scheduling }
}

/// The table's cycles between two commands, in the widest scope up to `scope` that it gives.
fn line(part: &Part, from: Command, to: Command, scope: Scope) -> Cycle {
    let lines = part.constraints.iter().filter(|line| {
        line.from == from && line.to == to && line.scope >= scope && line.scope <= Scope::Rank
    });
    lines.map(|line| line.cycles.into()).max().unwrap()
}

/// The named times of a part's own bank.
struct Times {
    rcd: Cycle,
    rp: Cycle,
    rc: Cycle,
    rtp: Cycle,
    /// Between two reads of one bank.
    ccd: Cycle,
    /// From a read command to the end of its data.
    read: Cycle,
    write: Cycle,
    rfc: Cycle,
    /// A precharge for all before a refresh.
    rp_all: Cycle,
    interval: Cycle,
}

fn times(part: &Part) -> Times {
    let bank = |from, to| line(part, from, to, Scope::Bank);
    Times {
        rcd: bank(Command::Activate, Command::Read),
        rp: bank(Command::Precharge, Command::Activate),
        rc: bank(Command::Activate, Command::Activate),
        rtp: bank(Command::Read, Command::Precharge),
        ccd: bank(Command::Read, Command::Read),
        read: (part.read_latency_cycles + part.burst_cycles()).into(),
        write: (part.write_latency_cycles + part.burst_cycles()).into(),
        rfc: line(part, Command::Refresh, Command::Activate, Scope::Rank),
        rp_all: line(part, Command::PrechargeAll, Command::Refresh, Scope::Rank),
        interval: part.refresh_interval_cycles.into(),
    }
}

fn burst(config: &DramConfig, row: u32, column: u32, write: bool) -> DramRequest {
    let column = column * config.part.burst_transfers;
    let addr = config.mapping.address(&Location { row, column, ..Location::default() });
    DramRequest { id: 0, addr, write }
}

/// Goes on until nothing is left to do, and gives all that ended.
fn drain(dram: &mut Dram) -> Vec<Completion> {
    let mut done = Vec::new();
    while let Some(cycle) = dram.next_event() {
        dram.advance(cycle);
        done.extend(dram.take_done(cycle));
    }
    done
}

/// Offers the requests as early as they are accepted, from `now` on; gives all ends.
fn stream(dram: &mut Dram, mut now: Cycle, requests: &[DramRequest]) -> Vec<Completion> {
    let mut done = Vec::new();
    for request in requests {
        while let Err(OfferError::Full { .. }) = dram.offer(now, *request) {
            now = dram.next_event().unwrap();
            dram.advance(now);
            done.extend(dram.take_done(now));
        }
    }
    done.append(&mut drain(dram));
    done
}

/// The cycles from acceptance at `at` to the end, alone in the memory.
fn alone(dram: &mut Dram, at: Cycle, request: DramRequest) -> Cycle {
    let done = stream(dram, at, &[request]);
    assert_eq!(done.len(), 1);
    done[0].cycle - at
}

#[test]
fn an_unloaded_request_takes_what_its_commands_take() {
    for part in &PARTS {
        let config = one_channel(part);
        let Times { rcd, rp, read, write, .. } = times(part);
        let mut dram = Dram::new(&config).unwrap();
        // Long after each other, but before the first refresh.
        assert_eq!(alone(&mut dram, 7, burst(&config, 0, 0, false)), rcd + read, "closed");
        assert_eq!(alone(&mut dram, 500, burst(&config, 0, 9, false)), read, "hit");
        assert_eq!(alone(&mut dram, 1000, burst(&config, 1, 0, false)), rp + rcd + read, "other");
        assert_eq!(alone(&mut dram, 1500, burst(&config, 1, 1, true)), write, "hit");
        assert_eq!(alone(&mut dram, 2000, burst(&config, 2, 1, true)), rp + rcd + write, "other");
        let total = dram.stats().total();
        assert_eq!([total.row_misses, total.row_hits, total.row_conflicts], [1, 2, 2]);
        assert_eq!((total.reads, total.writes, total.refreshes), (3, 2, 0));
    }
}

#[test]
fn a_stream_of_row_hits_takes_one_burst_distance_each() {
    for part in &PARTS {
        let config = one_channel(part);
        let Times { rcd, read, ccd, .. } = times(part);
        let mut dram = Dram::new(&config).unwrap();
        // Of one bank: with bank groups, the long distance counts.
        let requests: Vec<_> = (0..100).map(|column| burst(&config, 3, column, false)).collect();
        let done = stream(&mut dram, 0, &requests);
        for (n, end) in (0..).zip(&done) {
            assert_eq!(end.cycle, rcd + n * ccd + read, "{} {n}", part.name);
        }
        assert_eq!(done.len(), 100);
        assert_eq!(dram.stats().total().row_hits, 99);
    }
}

#[test]
fn a_stream_over_bank_groups_takes_the_short_distance() {
    let part = &PARTS[1];
    let config = one_channel(part);
    let Times { read, ccd, .. } = times(part);
    let mut dram = Dram::new(&config).unwrap();
    // The mapping alternates between the groups: warm the four banks up first.
    let at = |n: u64| DramRequest { id: 0, addr: PhysAddr::new(n * 64), write: false };
    let warm: Vec<_> = (0..4).map(at).collect();
    stream(&mut dram, 0, &warm);
    let requests: Vec<_> = (4..36).map(at).collect();
    let done = stream(&mut dram, 1000, &requests);
    let short = u64::from(part.burst_cycles());
    assert!(short < ccd);
    for (n, end) in (0..).zip(&done) {
        assert_eq!(end.cycle, 1000 + n * short + read);
    }
}

#[test]
fn a_stream_of_row_conflicts_takes_a_row_cycle_each() {
    for part in &PARTS {
        let config = one_channel(part);
        let Times { rcd, rp, rc, rtp, read, .. } = times(part);
        let mut dram = Dram::new(&config).unwrap();
        let requests: Vec<_> = (0..20).map(|row| burst(&config, row, 0, false)).collect();
        let done = stream(&mut dram, 0, &requests);
        let period = rc.max(rcd + rtp + rp);
        for (n, end) in (0..).zip(&done) {
            assert_eq!(end.cycle, n * period + rcd + read, "{} {n}", part.name);
        }
        let total = dram.stats().total();
        assert_eq!([total.row_misses, total.row_conflicts], [1, 19]);
    }
}

#[test]
fn refreshes_cost_what_the_formula_says() {
    for part in &PARTS {
        let config = one_channel(part);
        let Times { rcd, rtp, ccd, rp_all, rfc, interval, .. } = times(part);
        let intervals = 12;
        // The first read of an interval comes `first` cycles after it begins; the last is the
        // last before the next refresh is due. The precharge waits for that one's tRTP,
        // then come tRP, tRFC and tRCD.
        let (mut first, mut reads) = (rcd, 0);
        for _ in 0..intervals {
            let count = (interval - 1 - first) / ccd + 1;
            let last = first + (count - 1) * ccd;
            reads += count;
            let wait = (last + rtp).saturating_sub(interval);
            first = wait + rp_all + rfc + rcd;
        }
        let requests: Vec<_> =
            (0..reads as u32 + 1).map(|n| burst(&config, 0, n % 64, false)).collect();
        let mut dram = Dram::new(&config).unwrap();
        let done = stream(&mut dram, 0, &requests);
        let read = times(part).read;
        let ends = [done[done.len() - 2].cycle, done[done.len() - 1].cycle];
        assert!(ends[0] - read < intervals * interval, "{}", part.name);
        assert_eq!(ends[1] - read, intervals * interval + first, "{}", part.name);
        assert_eq!(dram.stats().total().refreshes, intervals);
    }
}

#[test]
fn a_read_that_comes_with_a_refresh_waits_for_it() {
    for part in &PARTS {
        let config = one_channel(part);
        let Times { rcd, read, rfc, interval, .. } = times(part);
        let mut dram = Dram::new(&config).unwrap();
        let late = alone(&mut dram, interval, burst(&config, 0, 0, false));
        assert_eq!(late, rfc + rcd + read);
        // At the end of the next one there is nothing left to wait for.
        let mut dram = Dram::new(&config).unwrap();
        assert_eq!(alone(&mut dram, interval + rfc, burst(&config, 0, 0, false)), rcd + read);
    }
}

#[test]
fn a_set_of_banks_is_refreshed_while_the_others_work() {
    for part in [DDR5_4800, LPDDR5_6400] {
        let mut config = one_channel(&part);
        config.scheduling.refresh = RefreshMode::SameBank;
        let Times { rcd, read, ccd, .. } = times(&part);
        let refresh = part.set_refresh.unwrap();
        let rfc = line(&part, Command::RefreshSet, Command::Activate, Scope::Set);
        let elsewhere = line(&part, Command::RefreshSet, Command::Activate, Scope::Rank);
        let at = |bank: u32, row| DramRequest {
            id: 0,
            addr: config.mapping.address(&Location {
                group: bank / part.banks_per_group,
                bank: bank % part.banks_per_group,
                row,
                ..Location::default()
            }),
            write: false,
        };
        for nth in 0..2 * refresh.sets {
            // The sets take turns; the others are only kept from activates for a while.
            let due = Cycle::from((nth + 1) * refresh.interval_cycles);
            for bank in 0..part.banks() {
                let mut dram = Dram::new(&config).unwrap();
                let own = bank % refresh.sets == nth % refresh.sets;
                let wait = if own { rfc } else { elsewhere };
                assert_eq!(alone(&mut dram, due, at(bank, 0)), wait + rcd + read, "{bank}");
                // A row that is open before is still there, but for the set.
                let mut dram = Dram::new(&config).unwrap();
                stream(&mut dram, due - 200, &[at(bank, 0)]);
                let late = alone(&mut dram, due + ccd, at(bank, 0));
                assert_eq!(late == read, !own, "{} {nth} {bank}: {late}", part.name);
                dram.check().unwrap();
            }
        }
        let mut dram = Dram::new(&config).unwrap();
        dram.advance(Cycle::from(16 * refresh.interval_cycles) + 1);
        let total = dram.stats().total();
        assert_eq!((total.set_refreshes, total.refreshes, total.precharges), (16, 0, 0));
    }
}

#[test]
fn a_ddr5_module_is_two_channels_of_32_bits() {
    let config = DramConfig::ddr5_module();
    let dram = Dram::new(&config).unwrap();
    assert_eq!((config.channels, config.ranks, config.part.bus_bytes), (2, 1, 4));
    assert_eq!(config.len_bytes(), 16 << 30);
    let channel = |raw| dram.locate(PhysAddr::new(raw)).unwrap().channel;
    assert_eq!([0, 63, 64, 127, 128].map(channel), [0, 0, 1, 1, 0]);
    // 2,400 MHz, two transfers of 4 bytes in a cycle, two channels: 38.4 GB/s.
    let each_cycle = config.part.burst_bytes() / config.part.burst_cycles();
    assert_eq!((each_cycle, config.part.clock_period_ps), (8, 416));
}

#[test]
fn requests_for_one_burst_keep_their_order() {
    let config = one_channel(&PARTS[0]);
    for writes in [WritePolicy::Unified, WritePolicy::Watermark { entries: 8, high: 1, low: 0 }] {
        let scheduling = Scheduling { writes, ..config.scheduling };
        let mut dram = Dram::new(&DramConfig { scheduling, ..config.clone() }).unwrap();
        let named = |id, write| DramRequest { id, ..burst(&config, 0, 0, write) };
        // The write may not pass the read, though the policy would have it first.
        dram.offer(0, named(1, false)).unwrap();
        dram.offer(0, named(2, true)).unwrap();
        // What is written is read, at once and without the memory.
        dram.offer(3, named(3, false)).unwrap();
        dram.check().unwrap();
        let ends = drain(&mut dram);
        dram.check().unwrap();
        let order: Vec<_> = ends.iter().map(|end| end.id).collect();
        assert_eq!(order, [3, 1, 2]);
        assert_eq!((ends[0].cycle, ends[1].cycle), (4, 14));
        let total = dram.stats().total();
        assert_eq!((total.reads, total.writes, total.forwarded_reads), (1, 1, 1));
    }
}

#[test]
fn a_full_queue_says_so_and_has_room_when_a_request_is_served_or_has_a_row() {
    let config = one_channel(&PARTS[0]);
    let scheduling = Scheduling { entries: 2, ..config.scheduling };
    let mut dram = Dram::new(&DramConfig { scheduling, ..config.clone() }).unwrap();
    for column in 0..2 {
        dram.offer(0, burst(&config, 0, column, false)).unwrap();
    }
    // The row is opened for the first at 0, so that its place is free at 1.
    let third = burst(&config, 0, 2, false);
    assert_eq!(dram.offer(0, third), Err(OfferError::Full { channel: 0 }));
    assert_eq!(dram.next_event(), Some(1));
    assert_eq!(dram.offer(1, third), Ok(()));
    // It is read at 5, the second at 9: the place of that is free at 10.
    let fourth = burst(&config, 0, 3, false);
    for now in 2..10 {
        assert_eq!(dram.offer(now, fourth), Err(OfferError::Full { channel: 0 }));
    }
    assert_eq!(dram.queued(0), 2);
    assert_eq!(dram.offer(10, fourth), Ok(()));
    assert_eq!(dram.stats().total().full, 9);
    assert_eq!((dram.queued(0), dram.queued(1)), (2, 0));
    // Two wait at 0, three from 1 to 5, and two until 9.
    assert_eq!(dram.stats().total().queued_cycles, 2 + 5 * 3 + 4 * 2);
}

#[test]
fn bad_offers_change_nothing() {
    let config = DramConfig::paper();
    let mut dram = Dram::new(&config).unwrap();
    dram.advance(10);
    let at = |raw| DramRequest { id: 0, addr: PhysAddr::new(raw), write: false };
    assert_eq!(dram.offer(9, at(0)), Err(OfferError::Time { cycle: 9, now: 10 }));
    let late = (1 << 62) + 1;
    assert_eq!(dram.offer(late, at(0)), Err(OfferError::Time { cycle: late, now: 10 }));
    let above = at(1 << 32);
    assert_eq!(
        dram.offer(10, above),
        Err(OfferError::Address { addr: above.addr, len_bytes: config.len_bytes() })
    );
    assert_eq!(dram.next_event(), None);
    assert_eq!(dram.offer(10, at((1 << 32) - 1)), Ok(()));
    dram.check().unwrap();
}

#[test]
fn memories_that_cannot_be_are_refused() {
    let good = DramConfig::paper();
    let error = |config: DramConfig| Dram::new(&config).err().unwrap();
    let count = |field, value| DramConfigError::Count { field, value };
    assert_eq!(error(DramConfig { channels: 0, ..good.clone() }), count("channels", 0));
    assert_eq!(error(DramConfig { channels: 3, ..good.clone() }), count("channels", 3));
    assert_eq!(error(DramConfig { channels: 128, ..good.clone() }), count("channels", 128));
    assert_eq!(error(DramConfig { ranks: 32, ..good.clone() }), count("ranks", 32));
    let refresh = RefreshMode::SameBank;
    let scheduling = Scheduling { refresh, ..good.scheduling };
    let part = DDR3_800.name;
    assert_eq!(error(DramConfig { scheduling, ..good.clone() }), DramConfigError::Refresh { part });
    let part = Part { groups: 5, ..good.part.clone() };
    assert_eq!(
        error(DramConfig { part, ..good.clone() }),
        DramConfigError::Part(PartError::Size { field: "groups", value: 5 })
    );
    assert!(matches!(
        error(DramConfig { channels: 2, ..good.clone() }),
        DramConfigError::Mapping(AddressMappingError::Width {
            kind: Coordinate::Channel,
            bits: 2,
            needed_bits: 1
        })
    ));
    let marks = |entries, high, low| WritePolicy::Watermark { entries, high, low };
    let bad = [
        Scheduling { entries: 0, ..good.scheduling },
        Scheduling { entries: 5000, ..good.scheduling },
        Scheduling { writes: marks(0, 0, 0), ..good.scheduling },
        Scheduling { writes: marks(8, 9, 0), ..good.scheduling },
        Scheduling { writes: marks(8, 4, 4), ..good.scheduling },
        Scheduling {
            writes: WritePolicy::Own {
                entries: 0,
                rule: DrainRule { name: "never", drains: |_| false },
            },
            ..good.scheduling
        },
    ];
    for scheduling in bad {
        assert_eq!(
            error(DramConfig { scheduling, ..good.clone() }),
            DramConfigError::Scheduling(scheduling)
        );
    }
}

#[test]
fn the_papers_mapping_has_the_stated_positions() {
    let config = DramConfig::paper();
    let fields: Vec<_> = config.mapping.fields().map(|field| (field.kind, field.bits)).collect();
    assert_eq!(
        fields,
        [
            (Coordinate::Byte, 3),
            (Coordinate::Column, 3),
            (Coordinate::Channel, 2),
            (Coordinate::Column, 7),
            (Coordinate::Bank, 2),
            (Coordinate::Row, 15),
        ]
    );
    assert_eq!(config.mapping.bits(), 32);
    assert_eq!(config.len_bytes(), 1 << 32);
    let place =
        config.mapping.locate(PhysAddr::new(5 << 17 | 2 << 15 | 77 << 8 | 3 << 6 | 6 << 3 | 1));
    let expected =
        Location { channel: 3, rank: 0, group: 0, bank: 2, row: 5, column: 77 << 3 | 6, byte: 1 };
    assert_eq!(place, Some(expected));
}

#[test]
fn every_address_has_one_place_and_every_place_one_address() {
    for part in &PARTS {
        for (channels, ranks) in [(1, 1), (4, 1), (2, 2)] {
            for interleave_bytes in [64, 256, 2048] {
                let mapping =
                    AddressMapping::interleaved(part, channels, ranks, interleave_bytes).unwrap();
                mapping.validate(part, channels, ranks).unwrap();
                let mut random = Random::new(1);
                for _ in 0..1000 {
                    let addr = PhysAddr::new(random.below(1 << mapping.bits()));
                    let place = mapping.locate(addr).unwrap();
                    assert_eq!(mapping.address(&place), addr);
                    assert!(place.channel < channels && place.rank < ranks);
                    assert!(place.group < part.groups && place.bank < part.banks_per_group);
                    assert!(place.row < 1 << part.row_bits && place.column < 1 << part.column_bits);
                }
                assert_eq!(mapping.locate(PhysAddr::new(1 << mapping.bits())), None);
            }
        }
    }
}

#[test]
fn mappings_that_cannot_be_are_refused() {
    let part = &PARTS[0];
    let field = |kind, bits| AddressField { kind, bits };
    for bits in [32, u32::MAX] {
        let wide = AddressMapping::new(&[field(Coordinate::Row, bits)]);
        assert_eq!(wide, Err(AddressMappingError::Bits { kind: Coordinate::Row, bits }));
    }
    let long =
        [field(Coordinate::Row, 31), field(Coordinate::Bank, 31), field(Coordinate::Byte, 2)];
    assert_eq!(
        AddressMapping::new(&long),
        Err(AddressMappingError::Bits { kind: Coordinate::Byte, bits: 2 })
    );
    for interleave_bytes in [0, 32, 96, 16384] {
        let error = Err(AddressMappingError::Interleave { interleave_bytes });
        assert_eq!(AddressMapping::interleaved(part, 4, 1, interleave_bytes), error);
    }
    let split = [
        field(Coordinate::Byte, 3),
        field(Coordinate::Channel, 2),
        field(Coordinate::Column, 10),
        field(Coordinate::Bank, 2),
        field(Coordinate::Row, 15),
    ];
    let error = Err(AddressMappingError::Burst { together_bytes: 8, burst_bytes: 64 });
    assert_eq!(AddressMapping::new(&split).unwrap().validate(part, 4, 1), error);
}

#[test]
fn traces_have_the_simulators_forms() {
    let transactions = [
        (0, DramRequest { id: 0, addr: PhysAddr::new(0x1_2340), write: false }),
        (17, DramRequest { id: 1, addr: PhysAddr::new(0), write: true }),
    ];
    let mut out = String::new();
    write_trace(&mut out, TraceFormat::Ramulator, transactions).unwrap();
    assert_eq!(out, "LD 0x12340\nST 0x0\n");
    out.clear();
    write_trace(&mut out, TraceFormat::DramSim3, transactions).unwrap();
    assert_eq!(out, "0x12340 READ 0\n0x0 WRITE 17\n");
}

#[test]
fn quantiles_are_within_a_thirty_second_of_the_true_ones() {
    let mut histogram = Histogram::default();
    assert_eq!((histogram.quantile_cycles(500), histogram.max_cycles()), (0, 0));
    let mut values: Vec<u64> = (0..5000u64).map(|n| n * n * n % 70_001).collect();
    let mut halves = [Histogram::default(), Histogram::default()];
    for (n, value) in values.iter().enumerate() {
        histogram.record(*value);
        halves[n % 2].record(*value);
    }
    values.sort_unstable();
    for per_mille in [1, 10, 250, 500, 900, 990, 999, 1000] {
        let truth = values[(values.len() * per_mille as usize).div_ceil(1000) - 1];
        let ours = histogram.quantile_cycles(per_mille);
        assert!(ours >= truth && ours - truth <= truth / 32, "{per_mille}: {ours}, {truth}");
    }
    let mean = values.iter().sum::<u64>() as f64 / 5000.0;
    assert!((histogram.mean_cycles() - mean).abs() < 1e-6);
    let [mut one, other] = halves;
    one.merge(&other);
    assert_eq!(one, histogram);
    // The greatest value has a counter too.
    histogram.record(1 << 62);
    assert_eq!(histogram.quantile_cycles(1000), 1 << 62);
}

#[test]
fn statistics_have_one_shape_for_any_number_of_channels() {
    for channels in [1, 4] {
        let part = &PARTS[0];
        let mapping = AddressMapping::interleaved(part, channels, 1, 64).unwrap();
        let config = DramConfig { channels, mapping, ..DramConfig::paper() };
        let mut dram = Dram::new(&config).unwrap();
        let requests: Vec<_> = (0..64)
            .map(|n| DramRequest { id: n, addr: PhysAddr::new(n * 64), write: n % 4 == 0 })
            .collect();
        let done = stream(&mut dram, 0, &requests);
        assert_eq!(done.len(), 64);
        let stats = dram.stats();
        assert_eq!(stats.channels.len(), channels as usize);
        let total = stats.total();
        assert_eq!((total.reads, total.writes), (48, 16));
        assert_eq!(total.data_cycles, 64 * 4);
        assert_eq!(total.elapsed_cycles, dram.now() * u64::from(channels));
        assert_eq!((total.read_latency.count(), total.write_latency.count()), (48, 16));
        assert!(total.data_share() <= 1.0 && total.queued_mean() <= total.queued_max.into());
        dram.reset_stats();
        dram.advance(dram.now() + 5);
        assert_eq!(dram.stats().total().elapsed_cycles, 5 * u64::from(channels));
        assert_eq!(dram.stats().total().reads, 0);
    }
}
