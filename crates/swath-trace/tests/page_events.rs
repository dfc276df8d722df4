//! Recordings of page events: round trips, hostile files, and the recordings
//! that come with Swath.

use crate::files::{cut_everywhere, file_of, read_all, turn_every_bit};
use proptest::prelude::*;
use swath_arch::{Order, Pfn};
use swath_trace::container::FileError;
use swath_trace::machine::{MachineFacts, ZoneFacts};
use swath_trace::pages::{
    MigrateType, ORDER_MAX, PAGE_FORMAT, PageChange, PageEvent, PageHeader, PageReader, PageWriter,
    ZoneMax,
};

fn order(k: u8) -> Order {
    Order::new(k).unwrap()
}

fn kind(number: u8) -> MigrateType {
    MigrateType::new(number).unwrap()
}

fn alloc(start: u64, k: u8) -> PageChange {
    PageChange::Alloc {
        start: Pfn::new(start),
        order: order(k),
        migrate_type: kind(1),
        zone_max: ZoneMax::Movable,
        read_ahead: false,
    }
}

fn free(start: u64, k: u8) -> PageChange {
    PageChange::Free { start: Pfn::new(start), order: order(k) }
}

fn head() -> PageHeader {
    let zone = ZoneFacts { name: "Normal".into(), present_frames: 1 << 20, ..ZoneFacts::default() };
    PageHeader {
        facts: MachineFacts {
            kernel_release: "6.1".into(),
            zones: vec![zone],
            ..MachineFacts::default()
        },
        program: "make".into(),
        whole_system: false,
        cpus: 3,
    }
}

fn file(events: &[PageEvent]) -> Vec<u8> {
    let mut writer = PageWriter::new(Vec::new(), &head(), 3).unwrap();
    for &event in events {
        writer.push(event).unwrap();
    }
    assert_eq!(writer.count(), events.len() as u64);
    writer.finish(&[0, 5, 0]).unwrap()
}

/// The events before an error or the end, and the error.
fn read(bytes: &[u8]) -> (Vec<PageEvent>, Option<FileError>) {
    let mut reader = match PageReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (events, failure) = read_all(&mut reader);
    assert_eq!(reader.lost().is_empty(), failure.is_some());
    (events, failure)
}

fn events(changes: &[PageChange]) -> Vec<PageEvent> {
    let event = |(i, &change)| PageEvent { time_us: 10 * i as u64, cpu: i as u16 % 3, change };
    changes.iter().enumerate().map(event).collect()
}

fn samples() -> Vec<PageEvent> {
    let (start, o) = (Pfn::new(0x1240), order(3));
    events(&[
        PageChange::Take { start, order: o, migrate_type: kind(2), per_cpu: true },
        PageChange::Alloc {
            start,
            order: o,
            migrate_type: kind(2),
            zone_max: ZoneMax::Normal,
            read_ahead: false,
        },
        PageChange::Free { start, order: o },
        PageChange::FreeBatched { start },
        PageChange::Drain { start, order: o, migrate_type: kind(2) },
        PageChange::Fallback {
            start,
            order: order(0),
            fallback_order: order(6),
            wanted: kind(0),
            found: kind(1),
            claimed: true,
        },
        PageChange::Lost { count: 0 },
        PageChange::Lost { count: u64::MAX >> 1 },
        PageChange::AllocFailed { order: o, migrate_type: kind(1), zone_max: ZoneMax::Dma },
        alloc((1 << 52) - 1, 0),
        alloc(0, 15),
    ])
}

/// What stands before the events of `head()`.
fn head_bytes() -> Vec<u8> {
    let content = zstd::decode_all(&file(&[])[9..]).unwrap();
    let end = [0, 0, 0, 5, 0];
    assert!(content.ends_with(&end));
    content[..content.len() - end.len()].to_vec()
}

#[test]
fn the_documented_bytes() {
    let at = |time_us, change| PageEvent { time_us, cpu: 0, change };
    let recorded = [at(0, alloc(0x1000, 0)), at(2, alloc(0x1001, 0)), at(9, free(0x1001, 0))];
    let content: [&[u8]; 4] = [
        // 1 movable << 4 | movable zone 3 << 7; 0x1000 - 0 -> 0x2000
        &[0b00_110_001, 0x90, 3, 0x80, 0x40],
        // two microseconds later; 0x1001 - 0 -> 0x2002
        &[0b10_100_001, 0x82, 0x40],
        // 3 + 4 microseconds later; next[0] is 0x1000; 1 -> 2
        &[0b11_100_010, 4, 2],
        &[0, 3, 0, 5, 0],
    ];
    let bytes = file(&recorded);
    assert_eq!(bytes[..9], *b"SWPAGE\r\n\x01");
    let written = zstd::decode_all(&bytes[9..]).unwrap();
    assert_eq!(written[head_bytes().len()..], content.concat());
    let (read, failure) = read(&file_of(&PAGE_FORMAT, &[head_bytes(), content.concat()].concat()));
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(read, recorded);
}

#[test]
fn every_kind_of_event() {
    let bytes = file(&samples());
    let (read, failure) = read(&bytes);
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(read, samples());
    let mut reader = PageReader::new(&bytes[..]).unwrap();
    assert_eq!(*reader.head(), head());
    assert!(reader.lost().is_empty());
    assert_eq!(reader.by_ref().count(), samples().len());
    assert_eq!(reader.lost(), [0, 5, 0]);
}

#[test]
fn every_cut_is_an_error() {
    cut_everywhere(&file(&samples()), &samples(), read, |len, error| match error {
        FileError::Magic { offset, .. } => assert_eq!(offset, len as u64),
        FileError::Truncated { .. } | FileError::Damaged { .. } => {}
        other => panic!("{len}: {other:?}"),
    });
}

#[test]
fn flips_are_found() {
    turn_every_bit(&file(&samples()), &samples(), read);
}

#[test]
fn hostile_contents() {
    let start = head_bytes().len() as u64;
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let cases: [(&[u8], &str); 18] = [
        (&[0x08], "an end with something to it"),
        (&[0, 1, 0, 5, 0], "not the number of events before it"),
        (&[0, 0, 0, 5, 0, 0], "bytes after the end"),
        (&[0x0a, 0], "a processor that is the last one or not counted"),
        (&[0x0a, 3], "a processor that is the last one or not counted"),
        (&[0x12, 0], "attributes that need not be there"),
        (&[0x12, 16], "attributes that mean nothing"),
        (&[0x11, 0x80, 8], "attributes that mean nothing"),
        (&[0x13, 1], "attributes that mean nothing"),
        (&[0x14, 0x80, 1], "attributes that mean nothing"),
        (&[0x16, 0x80, 0x80, 2], "attributes that mean nothing"),
        (&[0x17, 0x81, 0x10], "attributes that mean nothing"),
        (&[0x16, 1], "a fallback to a block smaller than asked for"),
        (&[0x22, 0], "a difference that need not be there"),
        (&[0x27, 2], "a difference of an event without a frame"),
        (&[0x32, 1, 2], "a block that is not aligned to its order"),
        (&[0x22, 1], "a frame number beyond 2^52"),
        (&[&[0xc2][..], &huge].concat(), "a time beyond 2^64"),
    ];
    for (rest, expected) in cases {
        match read(&file_of(&PAGE_FORMAT, &[&head_bytes(), rest].concat())).1 {
            Some(FileError::Malformed { offset, what, .. }) => {
                assert_eq!(what, expected, "{rest:x?}");
                assert!((start..=start + 5).contains(&offset), "{rest:x?}: {offset}");
            }
            other => panic!("{rest:x?}: {other:?}"),
        }
    }
    let fail = |content: &[u8]| read(&file_of(&PAGE_FORMAT, content)).1.unwrap().to_string();
    assert!(
        fail(&[0, 0, 0, 0, 0, 0, 2])
            .contains("byte 6 of the page-event recording's content: neither")
    );
    assert!(fail(&[0, 0, 0, 0, 0, 0, 0, 0]).contains("a number of processors that is 0"));
    assert!(fail(&[0, 0, 0, 0, 0, 0, 0, 0x81, 0x20]).contains("beyond 4096"));
    assert!(fail(&[0, 0, 0, 0, 0, 0, 0, 1, 0x07]).contains("is missing"));
    let mut bytes = file(&[]);
    bytes[8] = 9;
    assert!(matches!(read(&bytes).1, Some(FileError::Version { found: 9, .. })));
    let mut bytes = file(&samples());
    *bytes.last_mut().unwrap() ^= 1;
    assert!(matches!(read(&bytes).1, Some(FileError::Damaged { .. })));
}

#[test]
fn the_writer_refuses_what_no_reader_takes() {
    let mut writer = PageWriter::new(Vec::new(), &head(), 1).unwrap();
    let mut refused = |time_us, cpu, change| {
        assert!(writer.push(PageEvent { time_us, cpu, change }).is_err(), "{change:?}");
    };
    refused(0, 3, free(0, 0));
    refused(0, 0, free(1, 1));
    refused(0, 0, free(1 << 52, 0));
    refused(0, 0, free(0, 16));
    refused(0, 0, PageChange::Lost { count: 1 << 63 });
    writer.push(PageEvent { time_us: 5, cpu: 0, change: free(0, 0) }).unwrap();
    assert!(writer.push(PageEvent { time_us: 4, cpu: 0, change: free(0, 0) }).is_err());
    assert_eq!(writer.count(), 1);
    let writer = PageWriter::new(Vec::new(), &head(), 1).unwrap();
    assert!(writer.finish(&[0]).is_err());
    for bad in [
        PageHeader { cpus: 0, ..head() },
        PageHeader { cpus: 4097, ..head() },
        PageHeader { program: "a\nb".into(), ..head() },
    ] {
        assert!(PageWriter::new(Vec::new(), &bad, 1).is_err());
    }
}

fn any_change() -> impl Strategy<Value = PageChange> {
    let frame = prop_oneof![0..2048u64, 0..1u64 << 52];
    let kinds = (0..8u8, 0..8u8);
    (0..8, frame, 0..=15u8, 0..=15u8, kinds, 0..4usize, any::<bool>()).prop_map(
        |(which, frame, a, b, (wanted, found), zone, flag)| {
            let (small, large) = (a.min(b), a.max(b));
            let aligned = |k: u8| Pfn::new(frame >> k << k);
            let (start, order) = (aligned(small), order(small));
            let (migrate_type, zone_max) = (kind(wanted), ZoneMax::ALL[zone]);
            match which {
                0 => PageChange::Alloc { start, order, migrate_type, zone_max, read_ahead: flag },
                1 => PageChange::Free { start, order },
                2 => PageChange::FreeBatched { start },
                3 => PageChange::Drain { start, order, migrate_type },
                4 => PageChange::Take { start, order, migrate_type, per_cpu: flag },
                5 => PageChange::Fallback {
                    start: aligned(large),
                    order,
                    fallback_order: Order::new(large).unwrap(),
                    wanted: migrate_type,
                    found: kind(found),
                    claimed: flag,
                },
                6 => PageChange::Lost { count: frame },
                _ => PageChange::AllocFailed { order, migrate_type, zone_max },
            }
        },
    )
}

fn any_events() -> impl Strategy<Value = Vec<PageEvent>> {
    let passed = prop_oneof![0..5u64, 0..1u64 << 40];
    prop::collection::vec((passed, 0..3u16, any_change()), 0..600).prop_map(|all| {
        let mut time_us = 0;
        let event = |(passed, cpu, change)| {
            time_us += passed;
            PageEvent { time_us, cpu, change }
        };
        all.into_iter().map(event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn round_trips(events in any_events()) {
        let (read, failure) = read(&file(&events));
        prop_assert!(failure.is_none(), "{:?}", failure);
        prop_assert_eq!(read, events);
    }

    /// Bytes that nobody meant as a recording, bare and behind each layer.
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let layers = [
            bytes.clone(),
            file_of(&PAGE_FORMAT, &bytes),
            file_of(&PAGE_FORMAT, &[head_bytes(), bytes.clone()].concat()),
            [&PAGE_FORMAT.magic[..], &[PAGE_FORMAT.version], &bytes].concat(),
        ];
        for layer in layers {
            let (events, failure) = read(&layer);
            if let Some(failure) = failure {
                prop_assert!(!failure.to_string().is_empty());
            }
            // Whatever could be read can be written.
            prop_assert_eq!(read(&file(&events)).0, events);
        }
    }
}

#[test]
fn the_shipped_recordings() {
    let operations = ["creat-clo", "page_test", "brk_test", "exec_test", "fork_test", "link_test"]
        .into_iter()
        .chain(["disk_rr", "disk_rw", "disk_wrt", "disk_src", "shared_memory", "tcp_test"])
        .chain(["udp_test", "fifo_test", "stream_pipe", "dgram_pipe", "pipe_cpy"])
        .map(|test| (format!("operations/{test}"), "operations"));
    let programs = ["blackscholes", "bodytrack", "canneal", "dedup", "ferret", "fluidanimate"]
        .into_iter()
        .chain(["freqmine", "streamcluster", "swaptions", "vips", "x264"])
        .map(|program| (format!("programs/{program}"), "programs"))
        .chain([("programs/facesim".to_owned(), "face")]);
    let builds = [("compile".to_owned(), "make"), ("files".to_owned(), "sh")];
    for (name, program) in builds.into_iter().chain(operations).chain(programs) {
        let path = format!("{}/../swath-lab/data/{name}.swpages", env!("CARGO_MANIFEST_DIR"));
        let mut reader = PageReader::open(path.as_ref()).unwrap();
        assert_eq!((reader.head().program.as_str(), reader.head().cpus), (program, 2));
        let all: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(reader.lost(), [0, 0]);
        // A batched free is announced by a free of its own.
        let mut freed = std::collections::HashSet::new();
        for event in &all {
            match event.change {
                PageChange::Free { start, .. } => {
                    freed.insert((event.cpu, start));
                }
                PageChange::FreeBatched { start } => {
                    assert!(freed.remove(&(event.cpu, start)), "{name}: {event:?}");
                }
                _ => {}
            }
        }
        assert!(all.iter().all(|event| match event.change {
            PageChange::Alloc { order, .. } => order < ORDER_MAX,
            _ => true,
        }));
    }
}
