//! Runs of the timed system that end early, and systems that are refused.

use crate::system_tables::{
    DATA, PCAD, READ_ONLY, TRAD, Tables, mmu, raster, read, regime, run, write,
};
use swath_arch::{PhysAddr, VirtAddr};
use swath_hw::system::{Pace, System, SystemConfig, SystemConfigError, SystemErrorCause};
use swath_hw::{
    Denied, DramConfigError, Hierarchy, HierarchyConfig, InterconnectConfig, IommuConfig,
    OfferError, SharedBuffer, Transaction, TranslationFault,
};

#[test]
fn what_goes_wrong_names_master_transaction_and_address() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x100, 4, DATA);
    tables.map(0x14, 0x104, 1, READ_ONLY);
    tables.map(0x15, 0xf_ffff, 1, DATA);
    let small = {
        let mut config = SystemConfig::paper();
        config.dram.part.row_bits = 10;
        config.dram.mapping =
            swath_hw::AddressMapping::interleaved(&config.dram.part, 4, 1, 64).unwrap();
        config
    };
    let good = raster(0x10_000, 100);
    let at = |t: Transaction| {
        let mut stream = good.clone();
        stream[90] = t;
        stream
    };
    let page = |n: u64| VirtAddr::new(n << 12).page();
    let bad = PhysAddr::new(0xffff_f000);
    let cases = [
        (
            at(read(0x50_000)),
            SystemErrorCause::Fault(TranslationFault::Translation { page: page(0x50), level: 1 }),
        ),
        (
            at(read(9 << 20)),
            SystemErrorCause::Fault(TranslationFault::Translation { page: page(0x900), level: 0 }),
        ),
        (
            at(read(1 << 40)),
            SystemErrorCause::Fault(TranslationFault::NotCanonical {
                addr: VirtAddr::new(1 << 40),
            }),
        ),
        (at(write(0x14_000)), SystemErrorCause::Denied(Denied::Write)),
        (at(read(0x10_020)), SystemErrorCause::Misaligned),
        (
            at(read(0x15_000)),
            SystemErrorCause::Memory {
                addr: bad,
                error: OfferError::Address { addr: bad, len_bytes: small.dram.len_bytes() },
            },
        ),
    ];
    for (stream, cause) in cases {
        for hit_under_miss in [false, true] {
            let mut config = small.clone();
            config.iommu.hit_under_miss = hit_under_miss;
            let masters =
                [(mmu(TRAD), good.clone().into_iter()), (mmu(TRAD), stream.clone().into_iter())];
            let error = System::new(&config, masters).unwrap().run(&tables.memory).unwrap_err();
            assert_eq!((error.master, error.transaction), (1, 90));
            assert_eq!((error.addr, error.cause), (stream[90].addr, cause));
            assert!(error.cycle > 0 && error.to_string().contains("transaction 90"));
        }
    }
}

/// A wait for a line that is never written is an error, for one master or a circle of them.
#[test]
fn waiting_for_a_line_that_is_never_written_ends() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0, 0x100, 64, DATA);
    let mut config = SystemConfig::paper();
    config.shared = vec![SharedBuffer { start: VirtAddr::new(0x1000), len_bytes: 0x1000 }];
    let circle =
        [vec![read(0), read(0x1000), write(0x1040)], vec![read(0), read(0x1040), write(0x1000)]];
    let masters = circle.map(|stream| (mmu(PCAD), stream.into_iter()));
    let error = System::new(&config, masters).unwrap().run(&tables.memory).unwrap_err();
    assert_eq!(
        (error.master, error.transaction, error.cause),
        (0, 1, SystemErrorCause::NeverWritten)
    );
    assert_eq!(error.addr, VirtAddr::new(0x1000));
}

#[test]
fn systems_that_cannot_be_are_refused() {
    let paper = SystemConfig::paper;
    let shared = |start, len_bytes| SharedBuffer { start: VirtAddr::new(start), len_bytes };
    let refused = |config: &SystemConfig, masters: usize| {
        let masters = (0..masters).map(|_| (mmu(PCAD), [].into_iter()));
        System::new(config, masters).err().inspect(|error| {
            assert!(!error.to_string().is_empty());
        })
    };
    assert_eq!(refused(&paper(), 1), None);
    let count = |field, value, max| Some(SystemConfigError::Count { field, value, min: 1, max });
    assert_eq!(refused(&paper(), 0), count("masters", 0, 16));
    assert_eq!(refused(&paper(), 16), None);
    assert_eq!(refused(&paper(), 40), count("masters", 17, 16));
    for (value, error) in [
        (0, count("outstanding_max", 0, 4096)),
        (4096, None),
        (4097, count("outstanding_max", 4097, 4096)),
    ] {
        assert_eq!(refused(&SystemConfig { outstanding_max: value, ..paper() }, 1), error);
    }
    for value in [0, 65] {
        let iommu = IommuConfig { walks_max: value, ..Default::default() };
        let config = SystemConfig { iommu, ..paper() };
        assert_eq!(refused(&config, 1), count("walks_max", value.into(), 64));
    }
    for (lines, cycles, error) in [
        (1024, 4096, None),
        (
            1025,
            1,
            Some(SystemConfigError::Count {
                field: "descriptor_lines",
                value: 1025,
                min: 0,
                max: 1024,
            }),
        ),
        (1, 0, count("descriptor_cycles", 0, 4096)),
    ] {
        let mut config = paper();
        config.iommu.descriptor_lines = lines;
        config.iommu.descriptor_cycles = cycles;
        assert_eq!(refused(&config, 1), error);
    }
    let paces = vec![None, Some(Pace { transactions: 0, cycles: 1 })];
    let error = count("transactions of a pace", 0, u64::MAX);
    assert_eq!(refused(&SystemConfig { paces, ..paper() }, 1), error);
    for beat_bytes in [0, 4, 24, 128] {
        let interconnect = InterconnectConfig { beat_bytes, ..Default::default() };
        let config = SystemConfig { interconnect, ..paper() };
        assert_eq!(refused(&config, 1), Some(SystemConfigError::Beat { beat_bytes }));
    }
    let bad = shared(0x100_000, 1 << 40);
    for (list, which) in [
        (vec![shared(0x20, 64)], shared(0x20, 64)),
        (vec![shared(0x40, 65), shared(0x80, 64)], shared(0x80, 64)),
        (vec![bad], bad),
        (vec![shared(0, u64::MAX)], shared(0, u64::MAX)),
    ] {
        assert_eq!(
            refused(&SystemConfig { shared: list, ..paper() }, 1),
            Some(SystemConfigError::Shared(which))
        );
    }
    let mut config = paper();
    config.dram.channels = 3;
    assert!(matches!(
        refused(&config, 1),
        Some(SystemConfigError::Dram(DramConfigError::Count { field: "channels", value: 3 }))
    ));
    let mut config = paper();
    config.dram.part.bus_bytes = 4;
    config.dram.mapping =
        swath_hw::AddressMapping::interleaved(&config.dram.part, 4, 1, 64).unwrap();
    assert_eq!(refused(&config, 1), Some(SystemConfigError::Burst { burst_bytes: 32 }));
    let of = HierarchyConfig { walk_cache_entries: 1025, ..Default::default() };
    assert!(Hierarchy::new(regime(PCAD), &of).is_err());
}

/// A system without transactions ends at once, one among others too.
#[test]
fn empty_streams_end() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0, 0x100, 4, DATA);
    let stats = run(&SystemConfig::paper(), &tables, [(mmu(PCAD), vec![]), (mmu(PCAD), vec![])]);
    assert_eq!(stats.total_cycles, 0);
    assert_eq!(stats.masters[0].cycles(), 0);
    assert_eq!(stats.bandwidth_bytes_per_cycle(), 0.0);
    let stats =
        run(&SystemConfig::paper(), &tables, [(mmu(PCAD), vec![]), (mmu(PCAD), vec![read(0)])]);
    assert_eq!(stats.masters[1].reads, 1);
}
