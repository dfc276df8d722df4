//! Recordings of a heap as files: round trips and hostile bytes.

#![allow(clippy::unusual_byte_groupings, reason = "the groups are the format's fields")]

use crate::files::{cut_everywhere, file_of, read_all, turn_every_bit};
use proptest::prelude::*;
use swath_trace::access::Sampling;
use swath_trace::container::FileError;
use swath_trace::heap::{
    HEAP_FORMAT, HeapEvent, HeapHeader, HeapReader, HeapSummary, HeapTotals, HeapWriter, SIZE_MAX,
};

fn head() -> HeapHeader {
    HeapHeader { program: "mc".into(), sampling: Sampling::new(10, 100) }
}

/// Totals that agree with the events.
fn totals(events: &[HeapEvent]) -> HeapTotals {
    let mut totals = HeapTotals { elsewhere: 7, failed_calls: 1, ..HeapTotals::default() };
    for event in events {
        match event {
            HeapEvent::Read { .. } => totals.reads += 1,
            HeapEvent::Write { .. } => totals.writes += 1,
            HeapEvent::Skip { accesses } => totals.reads += accesses,
            _ => {}
        }
    }
    totals
}

fn file(events: &[HeapEvent]) -> Vec<u8> {
    let mut writer = HeapWriter::new(Vec::new(), &head(), 3).unwrap();
    for &event in events {
        writer.push(event).unwrap();
    }
    assert_eq!(writer.count(), events.len() as u64);
    writer.finish(&totals(events)).unwrap()
}

/// The events before an error or the end, and the error.
fn read(bytes: &[u8]) -> (Vec<HeapEvent>, Option<FileError>) {
    let mut reader = match HeapReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (events, failure) = read_all(&mut reader);
    assert_eq!(reader.totals().is_none(), failure.is_some());
    (events, failure)
}

/// What stands before the events of `head()`.
const HEAD: [u8; 5] = [2, b'm', b'c', 10, 100];

fn allocate(block: u64, size_bytes: u64) -> HeapEvent {
    HeapEvent::Allocate { block, size_bytes, align_bytes: 1, zeroed: false, thread: 0 }
}

fn samples() -> Vec<HeapEvent> {
    vec![
        allocate(0, 100),
        HeapEvent::Allocate {
            block: 1,
            size_bytes: SIZE_MAX,
            align_bytes: 4096,
            zeroed: true,
            thread: 3,
        },
        HeapEvent::Write { block: 0, offset_bytes: 96, len_bytes: 4 },
        HeapEvent::Read { block: 0, offset_bytes: 0, len_bytes: 100 },
        HeapEvent::Skip { accesses: 1000 },
        HeapEvent::Read { block: 1, offset_bytes: SIZE_MAX - 65535, len_bytes: 65535 },
        HeapEvent::Resize { block: 0, size_bytes: 8, thread: 3 },
        HeapEvent::Release { block: 1, thread: u32::MAX },
        HeapEvent::Allocate {
            block: 2,
            size_bytes: 0,
            align_bytes: 2,
            zeroed: false,
            thread: u32::MAX,
        },
        HeapEvent::Release { block: 2, thread: 0 },
    ]
}

/// Random events that follow the rules.
fn random_events(steps: &[(u8, u64, u64)]) -> Vec<HeapEvent> {
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut blocks = 0;
    let mut events = Vec::new();
    for &(what, a, b) in steps {
        let thread = (a % 3) as u32;
        let at = a as usize % live.len().max(1);
        events.push(match what {
            0..=2 => {
                let size_bytes = b >> (a % 64) & (SIZE_MAX - 1);
                live.push((blocks, size_bytes));
                blocks += 1;
                let align_bytes = 1 << (b % 13);
                let zeroed = a & 8 == 0;
                HeapEvent::Allocate { block: blocks - 1, size_bytes, align_bytes, zeroed, thread }
            }
            3 if !live.is_empty() => HeapEvent::Release { block: live.swap_remove(at).0, thread },
            4 if !live.is_empty() => {
                live[at].1 = b % 5000;
                HeapEvent::Resize { block: live[at].0, size_bytes: live[at].1, thread }
            }
            5.. if live.get(at).is_some_and(|&(_, size)| size > 0) => {
                let (block, size) = live[at];
                let offset_bytes = b % size;
                let len_bytes = (size - offset_bytes).min(1 + a % 64) as u16;
                match what % 2 {
                    0 => HeapEvent::Read { block, offset_bytes, len_bytes },
                    _ => HeapEvent::Write { block, offset_bytes, len_bytes },
                }
            }
            _ => HeapEvent::Skip { accesses: 1 + b % 1000 },
        });
    }
    events
}

fn steps() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    prop::collection::vec((0u8..12, any::<u64>(), any::<u64>()), 0..300)
}

proptest! {
    #[test]
    fn what_is_written_is_read(steps in steps()) {
        let events = random_events(&steps);
        let (read, failure) = read(&file(&events));
        prop_assert!(failure.is_none(), "{:?}", failure);
        prop_assert_eq!(read, events);
    }

    /// Any content: an error or events that follow the rules, which a writer
    /// then takes.
    #[test]
    fn any_content(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (events, _) = read(&file_of(&HEAP_FORMAT, &[&HEAD[..], &bytes].concat()));
        prop_assert_eq!(read(&file(&events)).0, events);
    }

    /// A sound content with a byte changed.
    #[test]
    fn a_wrong_byte(steps in steps(), at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut content = zstd::decode_all(&file(&random_events(&steps))[9..]).unwrap();
        let at = at.index(content.len());
        content[at] = value;
        let (events, failure) = read(&file_of(&HEAP_FORMAT, &content));
        if failure.is_none() {
            prop_assert_eq!(read(&file(&events)).0, events);
        }
    }
}

#[test]
fn every_kind_of_event() {
    let bytes = file(&samples());
    let (read, failure) = read(&bytes);
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(read, samples());
    let mut reader = HeapReader::new(&bytes[..]).unwrap();
    assert_eq!(*reader.head(), head());
    let summary = HeapSummary::of(&mut reader).unwrap();
    assert_eq!((summary.allocations, summary.resizes, summary.releases), (3, 1, 2));
    assert_eq!((summary.peak_blocks, summary.peak_bytes), (2, SIZE_MAX + 100));
    assert_eq!((summary.left_blocks, summary.left_bytes, summary.threads), (1, 8, 3));
    assert_eq!(summary.totals, totals(&samples()));
    assert_eq!((summary.sizes.count, summary.sizes.zeros), (3, 1));
    assert_eq!((summary.sizes.bins[6].count, summary.sizes.bins[48].count), (1, 1));
}

#[test]
fn the_documented_bytes() {
    let events = [
        allocate(0, 24),
        HeapEvent::Allocate { block: 1, size_bytes: 64, align_bytes: 64, zeroed: true, thread: 1 },
        HeapEvent::Write { block: 0, offset_bytes: 8, len_bytes: 8 },
        HeapEvent::Read { block: 0, offset_bytes: 16, len_bytes: 3 },
        HeapEvent::Skip { accesses: 5 },
        HeapEvent::Release { block: 1, thread: 1 },
    ];
    let content: [&[u8]; 9] = [
        &HEAD,
        &[0b000_00_001, 24],
        // zeroed, an alignment, another thread: 1; 2^6
        &[0b001_11_001, 1, 6, 64],
        // place 1, 2^3 bytes; 8 - 0 -> 16
        &[0b01_011_100, 16],
        // place 0, a length; 16 - 8 -> 16
        &[0b00_111_011, 3, 16],
        &[6, 5],
        &[0b01_000_010],
        &[0, 6, 6, 1, 7, 1, 0, 0],
        // No programs, none unlisted, no process forked.
        &[0, 0, 0],
    ];
    let bytes = file(&events);
    assert_eq!(bytes[..9], *b"SWHEAP\r\n\x02");
    assert_eq!(zstd::decode_all(&bytes[9..]).unwrap(), content.concat());
}

#[test]
fn cut_short_and_damaged() {
    let bytes = file(&samples());
    cut_everywhere(&bytes, &samples(), read, |_, _| {});
    turn_every_bit(&bytes, &samples(), read);
    let content = zstd::decode_all(&bytes[9..]).unwrap();
    for len in 0..content.len() {
        let failure = read(&file_of(&HEAP_FORMAT, &content[..len])).1;
        assert!(matches!(failure, Some(FileError::Truncated { .. })), "{len}: {failure:?}");
    }
    let more = file_of(&HEAP_FORMAT, &[&content[..], &[0]].concat());
    assert!(matches!(read(&more).1, Some(FileError::Malformed { .. })));
    for at in 0..=8 {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x10;
        match (at, read(&wrong).1) {
            (0..8, Some(FileError::Magic { offset, .. })) => assert_eq!(offset, at as u64),
            (8, Some(FileError::Version { found: 0x12, .. })) => {}
            (_, failure) => panic!("byte {at}: {failure:?}"),
        }
    }
}

#[test]
fn what_cannot_be() {
    let cases: [(&[u8], &str); 12] = [
        (&[0b11_000_001, 24], "bits"),
        (&[7], "nobody knows"),
        (&[0b00_000_010], "never allocated"),
        (&[1, 24, 0b01_000_010], "never allocated"),
        (&[1, 24, 0b00_110_011, 0], "length"),
        (&[1, 24, 0b00_011_011, 40], "beyond its block"),
        (&[1, 24, 0b00_011_011, 1], "beyond its block"),
        (&[1, 24, 0b00_000_010, 0b11_000_010, 13], "not allocated"),
        (&[0b000_10_001, 0, 24], "alignment"),
        (&[1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40], "size"),
        (&[6, 0], "left out"),
        (&[0, 0, 1, 0, 0, 0, 0, 0], "totals"),
    ];
    for (bytes, what) in cases {
        let failure = read(&file_of(&HEAP_FORMAT, &[&HEAD[..], bytes].concat())).1.unwrap();
        assert!(matches!(failure, FileError::Malformed { .. }), "{bytes:?}: {failure:?}");
        assert!(failure.to_string().contains(what), "{bytes:?}: {failure}");
    }
    let sampling = read(&file_of(&HEAP_FORMAT, &[0, 5, 5])).1;
    assert!(matches!(sampling, Some(FileError::Malformed { offset: 1, .. })), "{sampling:?}");
}

#[test]
fn a_writer_refuses_and_stays_as_it_was() {
    let mut writer = HeapWriter::new(Vec::new(), &head(), 3).unwrap();
    writer.push(allocate(0, 16)).unwrap();
    let bad = [
        allocate(0, 1),
        allocate(2, 1),
        allocate(1, SIZE_MAX + 1),
        HeapEvent::Release { block: 1, thread: 0 },
        HeapEvent::Resize { block: 5, size_bytes: 1, thread: 0 },
        HeapEvent::Read { block: 0, offset_bytes: 16, len_bytes: 1 },
        HeapEvent::Read { block: 0, offset_bytes: u64::MAX, len_bytes: 2 },
        HeapEvent::Write { block: 0, offset_bytes: 0, len_bytes: 0 },
        HeapEvent::Skip { accesses: 0 },
    ];
    for event in bad {
        let error = writer.push(event).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{event:?}");
    }
    let bytes = writer.finish(&HeapTotals::default()).unwrap();
    assert_eq!(read(&bytes).0, [allocate(0, 16)]);
    let long = HeapHeader { program: "x".repeat(256), sampling: None };
    assert!(HeapWriter::new(Vec::new(), &long, 3).is_err());
}

#[test]
fn the_recordings_that_come_with_swath() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../swath-lab/data");
    let mut count = 0;
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "swheap") {
            continue;
        }
        count += 1;
        let mut reader = HeapReader::open(&path).unwrap();
        assert!(!reader.head().program.is_empty());
        let summary = HeapSummary::of(&mut reader).unwrap();
        assert_eq!(summary.totals.lost_calls, 0, "{}", path.display());
        assert_eq!(summary.totals.unknown_calls, 0, "{}", path.display());
        assert!(summary.allocations > 0 && summary.reads > 0 && summary.writes > 0);
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!(bytes < 2_000_000, "{}: {bytes} bytes", path.display());
    }
    assert!(count >= 6, "{count} recordings");
}
