//! DynamoRIO's memory traces: every type of entry, cuts, and what cannot be.

use std::io::Cursor;

use crate::files::read_all;
use swath_arch::VirtAddr;
use swath_trace::access::{AccessKind, MemoryAccess, TraceError, TraceFormat, TraceReader};

fn entry(of: u16, size: u16, addr: u64) -> Vec<u8> {
    [&of.to_le_bytes()[..], &size.to_le_bytes(), &addr.to_le_bytes()].concat()
}

fn access(addr: u64, len: u16, kind: AccessKind) -> MemoryAccess {
    MemoryAccess::new(VirtAddr::new(addr), len, kind).unwrap()
}

fn open(bytes: &[u8], format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
    TraceReader::from_reader(Cursor::new(bytes.to_vec()), format)
}

/// The accesses before an error or the end, and the error; the format follows from the bytes.
fn read(bytes: &[u8]) -> (Vec<MemoryAccess>, Option<TraceError>) {
    let mut reader = open(bytes, None).unwrap();
    assert_eq!(reader.format(), TraceFormat::DrMemTrace);
    read_all(&mut reader)
}

/// A header, a thread, and some entries of every kind; their accesses.
fn sample() -> (Vec<u8>, Vec<MemoryAccess>) {
    use AccessKind::{Fetch, Read, Write};
    let mut bytes = entry(25, 0, 7);
    for (of, size, addr) in [
        (22, 4, 1533),
        (24, 4, 1533),
        (28, 2, 0x002e_dc0c_00c7_7676),
        (47, 3, 0x0000_0000_0011_8948),
        (10, 3, 0x7fa8_bb23_c118),
        (1, 8, 0x7ffc_37e1_1fc8),
        (48, 2, 0x40_1000),
        (0, 64, 0x7ffc_37e1_1fc0),
        (2, 1, 0x1000),
        (29, 2, 0x40_1000),
        (0, 0, 0x2000),
        (21, 0, 0x2000),
        (17, 3, 0x0000_0000_0002_0503),
        (23, 4, 1533),
        (26, 0, 0),
    ] {
        bytes.extend(entry(of, size, addr));
    }
    let accesses = vec![
        access(0x7fa8_bb23_c118, 3, Fetch),
        access(0x7ffc_37e1_1fc8, 8, Write),
        access(0x40_1000, 2, Fetch),
        access(0x7ffc_37e1_1fc0, 64, Read),
        access(0x2000, 1, Read),
        // The bundle's instructions lie behind the last one that was fetched.
        access(0x40_1002, 3, Fetch),
        access(0x40_1005, 5, Fetch),
        access(0x40_100a, 2, Fetch),
    ];
    (bytes, accesses)
}

#[test]
fn instructions_reads_and_writes_are_accesses() {
    let (bytes, expected) = sample();
    let (all, failure) = read(&bytes);
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(all, expected);
    // More than a buffer of them.
    let many = [&bytes[..12], &bytes[12..].repeat(20_000)].concat();
    let (all, failure) = read(&many);
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(all, expected.repeat(20_000));
}

#[test]
fn branches_and_others_by_their_number() {
    for of in 0..50 {
        let (all, failure) = read(&[entry(25, 0, 1), entry(of, 4, 0x1000)].concat());
        assert!(failure.is_none(), "{of}: {failure:?}");
        let kinds: Vec<AccessKind> = all.iter().map(|access| access.kind).collect();
        let expected = match of {
            0 => vec![AccessKind::Read],
            1 => vec![AccessKind::Write],
            10..=16 | 31 | 48 | 49 => vec![AccessKind::Fetch],
            // The bundle's four lengths.
            17 => vec![AccessKind::Fetch; 4],
            _ => vec![],
        };
        assert_eq!(kinds, expected, "{of}");
    }
}

#[test]
fn cuts_and_what_cannot_be_name_their_byte() {
    let (bytes, expected) = sample();
    for len in 12..bytes.len() {
        let (all, failure) = read(&bytes[..len]);
        assert!(expected.starts_with(&all), "{len}");
        match (len % 12, failure) {
            (0, None) => {}
            (1.., Some(TraceError::Truncated { offset, .. })) => assert_eq!(offset, len as u64),
            (_, other) => panic!("{len}: {other:?}"),
        }
    }
    let good = [entry(25, 0, 1), entry(0, 8, 64).repeat(1000)].concat();
    for (bad, why) in [
        (entry(50, 0, 0), "a type of entry"),
        (entry(0, 2, u64::MAX), "beyond the last address"),
        (entry(17, 9, 0), "more than 8"),
    ] {
        // The bytes alone need not say the format, as they may be seen by what decides on it.
        let bytes = [&good[..], &bad].concat();
        let (all, failure) = read_all(&mut open(&bytes, Some(TraceFormat::DrMemTrace)).unwrap());
        assert_eq!(all.len(), 1000);
        match failure {
            Some(TraceError::Record { offset, what }) => {
                assert_eq!(offset, good.len() as u64);
                assert!(what.contains(why), "{what}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn other_binaries_are_not_taken_for_it() {
    // No header, a header of no known version, a type that does not exist.
    for bytes in [
        entry(0, 8, 64),
        entry(25, 0, 0x100),
        entry(25, 1, 1),
        [entry(25, 0, 1), entry(50, 0, 0)].concat(),
    ] {
        let format = open(&bytes.repeat(6), None).ok().map(|reader| reader.format());
        assert_ne!(format, Some(TraceFormat::DrMemTrace), "{bytes:?}");
    }
}
