//! Address traces: hand-written samples, round trips, compression, hostile
//! input, and recording.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use crate::files::{cut_everywhere, file_of, read_all, turn_every_bit};
use proptest::prelude::*;
use swath_arch::{PageRange, VirtAddr, Vpn};
use swath_trace::access::{
    AccessKind, Compression, MapBacking, MapProtection, MemoryAccess, Sampling, TRACE_FORMAT,
    TraceError, TraceEvent, TraceFormat, TraceHeader, TraceItem, TraceReader, TraceWriter,
};
use swath_trace::container::FileFormat;

fn access(addr: u64, len: u16, kind: AccessKind) -> MemoryAccess {
    MemoryAccess::new(VirtAddr::new(addr), len, kind).unwrap()
}

fn open(bytes: &[u8], format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
    TraceReader::from_reader(Cursor::new(bytes.to_vec()), format)
}

/// The accesses before an error or the end, and the error.
fn read(bytes: &[u8], format: Option<TraceFormat>) -> (Vec<MemoryAccess>, Option<TraceError>) {
    match open(bytes, format) {
        Ok(mut accesses) => read_all(&mut accesses),
        Err(error) => (Vec::new(), Some(error)),
    }
}

fn whole(bytes: &[u8]) -> Vec<MemoryAccess> {
    let (all, failure) = read(bytes, None);
    assert!(failure.is_none(), "{failure:?}");
    all
}

fn swath(accesses: &[MemoryAccess]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), 3).unwrap();
    for &access in accesses {
        writer.push(access).unwrap();
    }
    writer.finish().unwrap()
}

/// A trace of a version around the given content.
fn version(version: u8, content: &[u8]) -> Vec<u8> {
    file_of(&FileFormat { version, ..TRACE_FORMAT }, content)
}

/// Accesses and events before an error or the end, and the error.
fn items(bytes: &[u8]) -> (Vec<TraceItem>, Option<TraceError>) {
    match open(bytes, None) {
        Ok(accesses) => read_all(&mut accesses.items()),
        Err(error) => (Vec::new(), Some(error)),
    }
}

fn swath_items(header: &TraceHeader, items: &[TraceItem]) -> Vec<u8> {
    let mut writer = TraceWriter::with_header(Vec::new(), 3, header).unwrap();
    for item in items {
        match *item {
            TraceItem::Access(access) => writer.push(access).unwrap(),
            TraceItem::Event(event) => writer.push_event(event).unwrap(),
        }
    }
    writer.finish().unwrap()
}

fn pages(start: u64, count: u64) -> PageRange {
    PageRange::new(Vpn::new(start), count)
}

fn anonymous(start: u64, count: u64) -> TraceEvent {
    let (protection, backing) = (MapProtection::READ_WRITE, MapBacking::Anonymous);
    TraceEvent::Map { pages: pages(start, count), protection, backing, shared: false }
}

fn compressed(bytes: &[u8]) -> [(Compression, Vec<u8>); 3] {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(bytes).unwrap();
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    zstd.include_checksum(true).unwrap();
    zstd.write_all(bytes).unwrap();
    [
        (Compression::Gzip, gzip.finish().unwrap()),
        (Compression::Xz, xz.finish().unwrap()),
        (Compression::Zstd, zstd.finish().unwrap()),
    ]
}

const LACKEY: &str = "\
==42== Lackey, an example Valgrind tool
==42== Command: true
I  0401ab70,3
 S 1fff000758,8
 L 1ffeffe7e,8
 words of the program
I  0401AB73,5
 M 0000000000001ffd,4

 L ffffffffffffffff,1
==42== Exit code:       0
";

fn lackey_accesses() -> Vec<MemoryAccess> {
    use AccessKind::{Fetch, Read, Write};
    vec![
        access(0x401_ab70, 3, Fetch),
        access(0x1f_ff00_0758, 8, Write),
        access(0x1_ffef_fe7e, 8, Read),
        access(0x401_ab73, 5, Fetch),
        access(0x1ffd, 4, Read),
        access(0x1ffd, 4, Write),
        access(u64::MAX, 1, Read),
    ]
}

/// A record of ChampSim's with these operands.
fn record(ip: u64, destinations: [u64; 2], sources: [u64; 4]) -> Vec<u8> {
    let mut bytes = ip.to_le_bytes().to_vec();
    bytes.extend([1, 0, 26, 0, 6, 0, 0, 0]);
    bytes.extend(destinations.iter().chain(&sources).flat_map(|addr| addr.to_le_bytes()));
    assert_eq!(bytes.len(), 64);
    bytes
}

fn champsim() -> (Vec<u8>, Vec<MemoryAccess>) {
    use AccessKind::{Fetch, Read, Write};
    let bytes = [
        record(0x40_0000, [0, 0], [0; 4]),
        record(0x40_0004, [0x7fff_0000, 0], [0, 0x1fff, 0, u64::MAX]),
    ]
    .concat();
    let accesses = vec![
        access(0x40_0000, 1, Fetch),
        access(0x40_0004, 1, Fetch),
        access(0x1fff, 1, Read),
        access(u64::MAX, 1, Read),
        access(0x7fff_0000, 1, Write),
    ];
    (bytes, accesses)
}

#[test]
fn samples_are_recognised_and_read() {
    let (records, from_records) = champsim();
    let own = swath(&lackey_accesses());
    let samples = [
        (TraceFormat::Lackey, LACKEY.as_bytes().to_vec(), lackey_accesses()),
        (TraceFormat::ChampSim, records, from_records),
        (TraceFormat::Swath, own, lackey_accesses()),
    ];
    for (format, bytes, expected) in samples {
        let opened = open(&bytes, None).unwrap();
        assert_eq!((opened.format(), opened.compression()), (format, Compression::None));
        assert_eq!(whole(&bytes), expected);
        assert_eq!(read(&bytes, Some(format)).0, expected);
        for (compression, packed) in compressed(&bytes) {
            let opened = open(&packed, None).unwrap();
            assert_eq!((opened.format(), opened.compression()), (format, compression));
            assert_eq!(whole(&packed), expected);
            // Members one behind the other, as parallel compressors write.
            if format != TraceFormat::Swath {
                let twice = whole(&[&packed[..], &packed].concat());
                assert_eq!(twice, [&expected[..], &expected].concat());
            }
        }
    }
}

/// A source that gives one byte at a time, as a slow pipe does.
struct Drip(Cursor<Vec<u8>>);

impl Read for Drip {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let len = to.len().min(1);
        self.0.read(&mut to[..len])
    }
}

#[test]
fn a_slow_pipe_makes_no_difference() {
    let own = swath(&lackey_accesses());
    let mut files = vec![LACKEY.as_bytes().to_vec(), champsim().0, own];
    for (_, packed) in compressed(LACKEY.as_bytes()) {
        files.push(packed);
    }
    for bytes in files {
        let expected = whole(&bytes);
        let slow = TraceReader::from_reader(Drip(Cursor::new(bytes)), None).unwrap();
        assert_eq!(slow.map(Result::unwrap).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_crossing_access_is_one_access_on_two_pages() {
    let all = whole(b" L 1ffd,4\n S 1ffc,4\n");
    assert_eq!(all.len(), 2);
    let pages: Vec<Vec<u64>> =
        all.iter().map(|access| access.pages().iter().map(|page| page.raw()).collect()).collect();
    assert_eq!(pages, [vec![1, 2], vec![1]]);
}

#[test]
fn wrong_lines_are_named() {
    let cases = [
        ("I  ,3\n", "no hexadecimal address"),
        ("I  xyz,3\n", "no hexadecimal address"),
        (" L 12345678901234567,1\n", "an address of more than 16 digits"),
        (" L 1000 8\n", "no comma after the address"),
        (" S 1000,\n", "no length"),
        (" S 1000,-8\n", "no length"),
        (" S 1000,8 \n", "something after the length"),
        (" S 1000,8\r\n", "something after the length"),
        (" M 1000,123456\n", "a length of more than 5 digits"),
        (" M 1000,65536\n", "a length of more than 65535 bytes"),
        (" M 1000,0\n", "an access of no bytes or beyond the last address"),
        (" L ffffffffffffffff,2\n", "an access of no bytes or beyond the last address"),
    ];
    for (text, expected) in cases {
        let text = format!("{LACKEY}{text}I  1,1\n");
        let (all, failure) = read(text.as_bytes(), None);
        assert_eq!(all, lackey_accesses());
        match failure {
            Some(TraceError::Line { line: 12, offset, what }) => {
                assert_eq!((offset, what), (LACKEY.len() as u64, expected));
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
    let error = read(b"==1== one\nand two\n", None).1.unwrap();
    assert!(matches!(error, TraceError::NoAccesses { lines: 2 }), "{error:?}");
}

#[test]
fn plain_text_and_csv() {
    use AccessKind::{Fetch, Read, Write};
    let expected = [access(0x1000, 1, Read), access(4096, 8, Write), access(0xffff_0000, 4, Fetch)];
    for text in [
        "0x1000 r\n4096 W 8\n0xFFFF0000\tifetch 4\n",
        "# a comment\n\n  r 0x1000\r\nst 0x1000 8\r\nI 4294901760 4\r\n",
        "0x1000,read\n4096,store,8\n0xffff0000,fetch,4\n",
        "0x1000;LD;1\n0x1000;ST;8\n0xffff0000;x;4\n",
        "size,pc,type,addr\n1,9,r,0x1000\n8,,w,4096\n4,0,i,0xffff0000\n",
        "\"kind\";\"address\";\"length\"\nr;4096;1\nw;4096;8\nf;0xffff0000;4\n",
    ] {
        assert_eq!(open(text.as_bytes(), None).unwrap().format(), TraceFormat::Plain, "{text}");
        let (all, failure) = read(text.as_bytes(), None);
        assert!(failure.is_none(), "{text}: {failure:?}");
        assert_eq!(all, expected, "{text}");
    }
    for (line, why) in [
        ("1000\n", "no kind"),
        ("r\n", "no address"),
        ("zz r\n", "no address"),
        ("0x r\n", "no address"),
        ("0x+1 r\n", "no address"),
        ("-1 r\n", "no address"),
        ("18446744073709551616 r\n", "no address"),
        ("0x10000000000000000 r\n", "no address"),
        ("0x10 q\n", "no kind"),
        ("0x10 r 0\n", "no bytes"),
        ("0x10 r 65536\n", "a length"),
        ("0x10 r 1 2\n", "more than"),
        ("0xffffffffffffffff r 2\n", "beyond the last"),
        ("addr,kind\n", "no address"),
        ("\u{e9} r\n", "no address"),
        ("0x10 r", "cut short"),
        ("1".repeat(5000).as_str(), "4096 bytes"),
    ] {
        let text = format!("0x1000 r\n{line}");
        let (all, failure) = read(text.as_bytes(), Some(TraceFormat::Plain));
        assert_eq!(all, expected[..1], "{line}");
        let failure = failure.unwrap().to_string();
        assert!(failure.contains(why), "{line}: {failure}");
        assert!(failure.contains("line 2, byte 9") || why == "cut short", "{line}: {failure}");
    }
    let (_, failure) = read(b"# nothing\n\n", Some(TraceFormat::Plain));
    assert!(matches!(failure, Some(TraceError::NoAccesses { lines: 2 })), "{failure:?}");
    // Lackey's text is still lackey's, whatever stands before it.
    assert_eq!(open(b"==1== x\nI  1,1\n", None).unwrap().format(), TraceFormat::Lackey);
    assert_eq!(open(b" L 1000,8\n", None).unwrap().format(), TraceFormat::Lackey);
}

#[test]
fn long_foreign_lines_are_skipped() {
    let mut text = "x".repeat(1 << 20).into_bytes();
    text.extend(b"\n L 5,1\n");
    assert_eq!(whole(&text), [access(5, 1, AccessKind::Read)]);
    text.truncate(1 << 20);
    let error = read(&text, None).1.unwrap();
    assert!(matches!(error, TraceError::Truncated { offset: 0x10_0000, .. }), "{error:?}");
}

/// Text and records that are cut anywhere but between two of them.
#[test]
fn cuts_in_plain_files() {
    for len in 1..LACKEY.len() {
        let (all, failure) = read(&LACKEY.as_bytes()[..len], Some(TraceFormat::Lackey));
        assert!(lackey_accesses().starts_with(&all));
        match failure {
            None => assert!(LACKEY[..len].ends_with('\n')),
            Some(TraceError::Truncated { offset, .. }) => assert_eq!(offset, len as u64),
            Some(TraceError::NoAccesses { .. }) => assert!(all.is_empty()),
            other => panic!("{len}: {other:?}"),
        }
    }
    let (records, expected) = champsim();
    for len in 1..records.len() {
        let (all, failure) = read(&records[..len], Some(TraceFormat::ChampSim));
        assert!(expected.starts_with(&all));
        match failure {
            None => assert_eq!(len % 64, 0),
            Some(TraceError::Truncated { offset, .. }) => assert_eq!(offset, len as u64),
            other => panic!("{len}: {other:?}"),
        }
    }
    assert!(matches!(read(b"", None).1, Some(TraceError::Empty)));
}

#[test]
fn every_cut_of_a_compressed_file_is_an_error() {
    let own = swath(&lackey_accesses());
    let read_own = |bytes: &[u8]| read(bytes, Some(TraceFormat::Swath));
    cut_everywhere(&own, &lackey_accesses(), read_own, |len, error| match error {
        _ if len < 9 => {}
        TraceError::TruncatedFile { file_offset, .. } => assert_eq!(file_offset, len as u64),
        TraceError::Truncated { offset: 0, .. } => assert_eq!(len, 9),
        other => panic!("{len}: {other:?}"),
    });
    for (compression, packed) in compressed(LACKEY.as_bytes()) {
        for len in 0..packed.len() {
            // Too short to show its compression, it is no text either.
            match read(&packed[..len], None).1 {
                Some(TraceError::TruncatedFile { compression: named, file_offset }) => {
                    assert_eq!((named, file_offset), (compression, len as u64));
                }
                Some(TraceError::UnknownFormat | TraceError::Empty) => assert!(len < 6),
                Some(TraceError::Truncated { .. }) => assert_eq!(len, 1, "{compression:?}"),
                other => panic!("{compression:?}, {len}: {other:?}"),
            }
        }
    }
}

#[test]
fn flips_in_a_compressed_file_are_found() {
    let mut files: Vec<Vec<u8>> = compressed(LACKEY.as_bytes()).map(|(_, bytes)| bytes).into();
    files.push(swath(&lackey_accesses()));
    for bytes in files {
        turn_every_bit(&bytes, &lackey_accesses(), |bytes| read(bytes, None));
    }
}

#[test]
fn hostile_contents() {
    let fail = |content: &[u8]| read(&version(1, content), None).1.unwrap();
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let cases: [(&[u8], u64, &str); 8] = [
        (&[4], 1, "before this, an end with a length"),
        (&[0, 1], 1, "not the number of accesses before it"),
        (&[5, 0, 0, 0], 3, "not the number of accesses before it"),
        (&[0, 0, 9], 2, "bytes after the end"),
        (&[1, 63, 0], 1, "a length that belongs into the first byte or exceeds 65535"),
        (&[1, 0x80, 0x80, 4, 0], 1, "a length that belongs into the first byte or exceeds 65535"),
        (&[5, 0x80, 0], 1, "a number of more than 64 bits or padded"),
        (&[9, 1], 2, "before this, an access beyond the last address"),
    ];
    for (content, expected, text) in cases {
        match fail(content) {
            TraceError::Record { offset, what } => {
                assert_eq!((offset, what), (expected, text), "{content:x?}");
            }
            other => panic!("{content:x?}: {other:?}"),
        }
    }
    assert!(matches!(fail(&[&[5][..], &huge[..9]].concat()), TraceError::Truncated { .. }));
    assert!(matches!(fail(&[]), TraceError::Truncated { offset: 0, .. }));
    let mut bytes = swath(&[]);
    assert_eq!(whole(&bytes), []);
    bytes[8] = 9;
    assert!(matches!(read(&bytes, None).1, Some(TraceError::Version { found: 9, .. })));
    // Neither text nor a record: the flags are 0xff.
    assert!(matches!(read(&[0xff; 64], None).1, Some(TraceError::UnknownFormat)));
    let mut records = champsim().0;
    records[64 + 9] = 2;
    let (all, failure) = read(&records, Some(TraceFormat::ChampSim));
    assert_eq!(all.len(), 1);
    assert!(matches!(failure, Some(TraceError::Record { offset: 73, .. })));
}

/// The content byte by byte, as docs/formats.md tells it.
#[test]
fn the_documented_bytes() {
    use AccessKind::{Fetch, Read, Write};
    let accesses = [
        access(0x1000, 4, Fetch),
        access(0x8000, 8, Read),
        access(0x1004, 4, Fetch),
        access(0x9000, 64, Write),
        access(0x1000, 4, Fetch),
        access(0x8008, 8, Read),
    ];
    let content: [&[u8]; 7] = [
        &[4 << 2 | 3, 0x80, 0x40],
        &[8 << 2 | 1, 0x80, 0x80, 4],
        &[4 << 2 | 3, 0],
        &[2, 64, 0x80, 0xc0, 4],
        &[4 << 2 | 3, 15],
        &[8 << 2 | 1, 16],
        &[0, 6],
    ];
    let content = content.concat();
    let bytes = swath(&accesses);
    assert_eq!(bytes[..9], *b"SWTRAC\r\n\x03");
    // Version 2: a header without name and sampling, and no events; version 3:
    // no programs, none unlisted, no process forked.
    let second = [&[0, 0, 0], &content[..], &[0]].concat();
    let third = [&second[..], &[0, 0, 0]].concat();
    assert_eq!(zstd::decode_all(&bytes[9..]).unwrap(), third);
    assert_eq!(whole(&version(2, &second)), accesses);
    assert_eq!(whole(&version(1, &content)), accesses);
    assert!(open(&version(1, &content), None).unwrap().header().is_none());
}

/// The events byte by byte, as docs/formats.md tells them.
#[test]
fn the_documented_events() {
    let sampling = Sampling::new(100, 1000);
    let header = TraceHeader { program: "cc1".into(), sampling };
    let library = TraceEvent::Map {
        pages: pages(0x4848, 16),
        protection: MapProtection { read: true, write: false, execute: true },
        backing: MapBacking::File { file: 3, first_page: 8 },
        shared: true,
    };
    let expected: [(TraceEvent, &[u8]); 8] = [
        (anonymous(0x4000, 2), &[4, 0x80, 0x80, 2, 2, 3]),
        (library, &[4, 0x8c, 0x21, 16, 29, 3, 8]),
        (
            TraceEvent::Protect { pages: pages(0x4848, 1), protection: MapProtection::READ },
            &[12, 31, 1, 1],
        ),
        (TraceEvent::Discard { pages: pages(0x4849, 2) }, &[16, 0, 2]),
        (TraceEvent::Move { from: pages(0x484b, 1), to: pages(0x484d, 4) }, &[20, 0, 1, 2, 4]),
        (TraceEvent::Unmap { pages: pages(0x4850, 1) }, &[8, 1, 1]),
        (TraceEvent::Fork, &[24]),
        (TraceEvent::Skip { accesses: 900 }, &[28, 0x84, 7]),
    ];
    let mut content = vec![3, b'c', b'c', b'1', 100, 0xe8, 7];
    content.extend(expected.iter().flat_map(|(_, bytes)| *bytes));
    content.extend([0, 0, 8]);
    let events: Vec<TraceItem> =
        expected.iter().map(|&(event, _)| TraceItem::Event(event)).collect();
    let bytes = swath_items(&header, &events);
    // Version 3: no programs, none unlisted, no process forked.
    let third = [&content[..], &[0, 0, 0]].concat();
    assert_eq!(zstd::decode_all(&bytes[9..]).unwrap(), third);
    assert_eq!(items(&version(2, &content)).0, events);
    assert_eq!(open(&bytes, None).unwrap().header(), Some(&header));
    assert_eq!(whole(&bytes), []);
}

/// Version 1 had no events: there the same bytes are an error.
#[test]
fn hostile_events() {
    let cases: [(&[u8], u64, &str); 12] = [
        (&[24, 0, 0, 0], 6, "not the number of events before it"),
        (&[32], 3, "an event that nobody knows"),
        (&[4, 0, 0, 3], 4, "an empty range of pages or one beyond the last page"),
        (&[4, 1, 1, 3], 4, "an empty range of pages or one beyond the last page"),
        (&[8, 0, 0], 4, "an empty range of pages or one beyond the last page"),
        (&[4, 0, 1, 32], 6, "a flag that nobody knows"),
        (&[12, 0, 1, 8], 6, "a flag that nobody knows"),
        (&[28, 0], 3, "an event with an empty range or one beyond the last page"),
        (&[8, 0, 0x80, 0], 5, "a number of more than 64 bits or padded"),
        (
            &[4, 0, 1, 16, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            3,
            "an event with an empty range or one beyond the last page",
        ),
        (&[0, 1, 0], 4, "not the number of accesses before it"),
        (&[0, 0, 0, 0], 6, "bytes after the end"),
    ];
    for (content, expected, text) in cases {
        match items(&version(2, &[&[0, 0, 0], content].concat())).1 {
            Some(TraceError::Record { offset, what }) => {
                assert_eq!((offset, what), (expected, text), "{content:x?}");
            }
            other => panic!("{content:x?}: {other:?}"),
        }
        assert!(items(&version(1, content)).1.is_some(), "{content:x?}");
    }
    let headers: [(&[u8], u64, &str); 4] = [
        (&[0x80, 2], 0, "a name too long or not printable ASCII"),
        (&[1, 7, 0, 0], 0, "a name too long or not printable ASCII"),
        (&[0, 0, 5], 1, "a sampling without accesses or without gaps"),
        (&[0, 5, 5], 1, "a sampling without accesses or without gaps"),
    ];
    for (content, expected, text) in headers {
        match items(&version(2, content)).1 {
            Some(TraceError::Record { offset, what }) => {
                assert_eq!((offset, what), (expected, text), "{content:x?}");
            }
            other => panic!("{content:x?}: {other:?}"),
        }
    }
    for cut in [&[][..], &[3, b'c'], &[0, 1], &[0, 0, 0, 4, 0], &[0, 0, 0, 0, 0]] {
        let failure = items(&version(2, cut)).1;
        assert!(matches!(failure, Some(TraceError::Truncated { .. })), "{cut:?}: {failure:?}");
    }
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let twice = [&[0, 0, 0, 28][..], &most, &[28], &most].concat();
    assert!(matches!(items(&version(2, &twice)).1, Some(TraceError::Record { offset: 25, .. })));

    let mut writer = TraceWriter::new(Vec::new(), 1).unwrap();
    for bad in [
        TraceEvent::Skip { accesses: 0 },
        TraceEvent::Unmap { pages: pages(1, 0) },
        TraceEvent::Unmap { pages: pages(1 << 51, 1 << 51 | 1) },
        TraceEvent::Move { from: pages(0, 1), to: pages(0, 0) },
    ] {
        assert!(writer.push_event(bad).is_err(), "{bad:?}");
    }
    assert_eq!(writer.events(), 0);
    let wrong = |program: &str, sampling| {
        let header = TraceHeader { program: program.into(), sampling };
        TraceWriter::with_header(Vec::new(), 1, &header).is_err()
    };
    assert!(wrong("a\nb", None) && wrong(&"x".repeat(256), None) && !wrong(&"x".repeat(255), None));
    assert!(wrong("", Some(Sampling { burst_accesses: 3, period_accesses: 3 })));
    assert_eq!((Sampling::new(0, 1), Sampling::new(1, 1)), (None, None));
}

/// Lines of `--trace-syscalls=yes` and what each says.
#[test]
fn system_calls() {
    let file = |start, count, file, first_page| TraceEvent::Map {
        pages: pages(start, count),
        protection: MapProtection { read: true, write: false, execute: true },
        backing: MapBacking::File { file, first_page },
        shared: false,
    };
    let cases: [(&str, &[TraceEvent]); 16] = [
        ("[7,1](12) sys_brk ( 0x0 ) --> [pre-success] Success(0x4035000) ", &[]),
        (
            "[7,1](12) sys_brk ( 0x4056000 ) --> [pre-success] Success(0x4056000) ",
            &[anonymous(0x4035, 33)],
        ),
        (
            "[7,1](12) sys_brk ( 0x4040001 ) --> [pre-success] Success(0x4040001) ",
            &[TraceEvent::Unmap { pages: pages(0x4041, 21) }],
        ),
        (
            "[7,1](9) sys_mmap ( 0x0, 16400, 3, 34, 4294967295, 0 ) --> [pre-success] Success(0x4837000) ",
            &[anonymous(0x4837, 5)],
        ),
        (
            "[7,1](9) sys_mmap ( 0x0, 4096, 5, 2, 4, 8192 ) --> [pre-success] Success(0x5000000) ",
            &[file(0x5000, 1, 0, 2)],
        ),
        (
            "[7,1](9) sys_mmap ( 0x0, 4096, 5, 2, 4, 0 ) --> [pre-success] Success(0x5001000) ",
            &[file(0x5001, 1, 0, 0)],
        ),
        ("[7,1](3) sys_close ( 4 )[sync] --> Success(0x0) ", &[]),
        (
            "[7,1](192) sys_mmap2 ( 0x0, 4096, 5, 2, 4, 3 ) --> [pre-success] Success(0x5002000) ",
            &[file(0x5002, 1, 1, 3)],
        ),
        ("[7,1](9) sys_mmap ( 0x0, 4096, 5, 2, 9, 0 ) --> [pre-fail] Failure(0xc) ", &[]),
        (
            "[7,1](10) sys_mprotect ( 0x4a15000, 16384, 1 )[sync] --> Success(0x0) ",
            &[TraceEvent::Protect { pages: pages(0x4a15, 4), protection: MapProtection::READ }],
        ),
        (
            "[7,1](11) sys_munmap ( 0x483c000, 37975 )[sync] --> Success(0x0) ",
            &[TraceEvent::Unmap { pages: pages(0x483c, 10) }],
        ),
        (
            "[7,1](25) sys_mremap ( 0x568c000, 1048576, 4194304, 0x1 ) --> [pre-success] Success(0x578c000) ",
            &[TraceEvent::Move { from: pages(0x568c, 256), to: pages(0x578c, 1024) }],
        ),
        ("[7,1](58) sys_fork ( )   fork: process 7 created child 8", &[TraceEvent::Fork]),
        (
            "[7,1](56) sys_clone ( 3d0f00, 0x638bf70, 0x638c990 ) --> [pre-success] Success(0x3a3) ",
            &[],
        ),
        ("[7,1](334) unimplemented (by the kernel) syscall: 334! (ni_syscall)", &[]),
        ("[8,1](11) sys_munmap ( 0x483c000, 37975 )[sync] --> Success(0x0) ", &[]),
    ];
    let mut text = String::from(" L 10,1\n");
    let mut expected = vec![TraceItem::Access(access(0x10, 1, AccessKind::Read))];
    for (line, events) in cases {
        text += &format!("SYSCALL{line}\n L 20,2\n");
        expected.extend(events.iter().map(|&event| TraceItem::Event(event)));
        expected.push(TraceItem::Access(access(0x20, 2, AccessKind::Read)));
    }
    // Two threads whose results come later, one of them a failure.
    text += "SYSCALL[7,1](28) sys_madvise ( 0x578c000, 4096, 4 ) --> [async] ... \n\
             SYSCALL[7,2](28) sys_madvise ( 0x578d000, 4096, 4 ) --> [async] ... \n\
             SYSCALL[7,3](28) sys_madvise ( 0x578e000, 4096, 14 ) --> [async] ... \n\
             SYSCALL[7,2](28) ... [async] --> Failure(0x16) \n\
             SYSCALL[7,1](28) ... [async] --> Success(0x0) \n\
             SYSCALL[7,3](28) ... [async] --> Success(0x0) \n\
             SYSCALL[7,1](0) ... [async] --> Success(0x340) \n";
    expected.push(TraceItem::Event(TraceEvent::Discard { pages: pages(0x578c, 1) }));
    let (all, failure) = items(text.as_bytes());
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(all, expected);
    let accesses: Vec<MemoryAccess> = whole(text.as_bytes());
    assert_eq!(accesses.len(), 17);

    for bad in [
        "sys_mmap ( 0x0, 16400, 3, 34 ) --> [pre-success] Success(0x4837000)",
        "sys_mmap ( 0x0, 16400, 3, 34, 1, 2, 3 ) --> [pre-success] Success(0x4837000)",
        "sys_munmap ( 0x483c000, x )[sync] --> Success(0x0)",
        "sys_munmap ( 0x483c000, 1 )[sync] --> ",
        "sys_munmap ( 0x483c000, 1 )[sync] --> Success(0x0",
        "sys_munmap ( 0x483c000",
    ] {
        let text = format!(" L 10,1\nSYSCALL[7,1](9) {bad}\n");
        match items(text.as_bytes()).1 {
            Some(TraceError::Line { line: 2, offset: 8, what }) => {
                assert_eq!(what, "a system call whose arguments or result cannot be read");
            }
            other => panic!("{bad:?}: {other:?}"),
        }
    }
    // Ranges that no kernel accepts, and lines that are no calls: nothing.
    for odd in [
        "[7,1](11) sys_munmap ( 0x0, 0 )[sync] --> Success(0x0)",
        "[7,1](11) sys_munmap ( 0xffffffffffffffff, 18446744073709551615 )[sync] --> Success(0x0)",
        "[7,1](9) sys_mmap ( 0x0, 4096, 5, 2, 4, 18446744073709551615 ) --> [pre-success] Success(0x5000000) ",
        "[",
        "[7",
        "[7,1]",
        "[7,1](",
        "[7,1](9)",
        "[x,1](9) sys_munmap",
        "[7,1](9) sys_munmap",
    ] {
        let text = format!("SYSCALL{odd}\n L 10,1\n");
        let (all, failure) = items(text.as_bytes());
        assert!(failure.is_none() && all.len() <= 2, "{odd}: {all:?} {failure:?}");
    }
}

#[test]
fn the_writer_refuses_what_no_reader_takes() {
    let mut writer = TraceWriter::new(Vec::new(), 1).unwrap();
    let bad = |addr, len_bytes| MemoryAccess {
        addr: VirtAddr::new(addr),
        len_bytes,
        kind: AccessKind::Read,
    };
    assert!(writer.push(bad(1, 0)).is_err());
    assert!(writer.push(bad(u64::MAX, 2)).is_err());
    writer.push(bad(u64::MAX, 1)).unwrap();
    assert_eq!(writer.count(), 1);
    assert_eq!(whole(&writer.finish().unwrap()), [bad(u64::MAX, 1)]);
}

fn any_access() -> impl Strategy<Value = MemoryAccess> {
    let kind =
        prop_oneof![Just(AccessKind::Read), Just(AccessKind::Write), Just(AccessKind::Fetch)];
    let addr = prop_oneof![0..0x10_0000u64, any::<u64>(), u64::MAX - 99..=u64::MAX];
    let len = prop_oneof![1..=8u16, 1..=u16::MAX];
    (addr, len, kind).prop_map(|(addr, len, kind)| {
        let last = u64::MAX - u64::from(len - 1);
        access(addr.min(last), len, kind)
    })
}

fn any_pages() -> impl Strategy<Value = PageRange> {
    let start = prop_oneof![0..0x1000u64, 0..1u64 << 52];
    (start, 1..1u64 << 20).prop_map(|(start, count)| pages(start, count.min((1 << 52) - start)))
}

fn any_event() -> impl Strategy<Value = TraceEvent> {
    let protection = (0..8u64).prop_map(MapProtection::of_bits);
    let backing = prop_oneof![
        Just(MapBacking::Anonymous),
        (any::<u64>(), 0..1u64 << 52)
            .prop_map(|(file, first_page)| MapBacking::File { file, first_page }),
    ];
    prop_oneof![
        (any_pages(), protection.clone(), backing, any::<bool>()).prop_map(
            |(pages, protection, backing, shared)| TraceEvent::Map {
                pages,
                protection,
                backing,
                shared
            }
        ),
        any_pages().prop_map(|pages| TraceEvent::Unmap { pages }),
        (any_pages(), protection)
            .prop_map(|(pages, protection)| TraceEvent::Protect { pages, protection }),
        any_pages().prop_map(|pages| TraceEvent::Discard { pages }),
        (any_pages(), any_pages()).prop_map(|(from, to)| TraceEvent::Move { from, to }),
        Just(TraceEvent::Fork),
        (1..1u64 << 40).prop_map(|accesses| TraceEvent::Skip { accesses }),
    ]
}

fn any_item() -> impl Strategy<Value = TraceItem> {
    prop_oneof![any_access().prop_map(TraceItem::Access), any_event().prop_map(TraceItem::Event)]
}

fn line(access: &MemoryAccess) -> String {
    let kind = match access.kind {
        AccessKind::Fetch => "I ",
        AccessKind::Read => " L",
        AccessKind::Write => " S",
    };
    format!("{kind} {:08x},{}\n", access.addr.raw(), access.len_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What was written is read again, by both formats that keep everything.
    #[test]
    fn round_trips(accesses in prop::collection::vec(any_access(), 1..20_000)) {
        prop_assert_eq!(&whole(&swath(&accesses)), &accesses);
        let text: String = accesses.iter().map(line).collect();
        prop_assert_eq!(&whole(text.as_bytes()), &accesses);
    }

    /// Bytes that nobody meant as a trace, bare and behind each layer.
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut layers = vec![bytes.clone(), version(1, &bytes), version(2, &bytes)];
        layers.push(version(2, &[&[0, 0, 0], &bytes[..]].concat()));
        layers.push([&TRACE_FORMAT.magic[..], &[TRACE_FORMAT.version], &bytes].concat());
        layers.push([LACKEY.as_bytes(), &bytes].concat());
        layers.push([&champsim().0[..], &bytes].concat());
        for magic in [&[0x1f, 0x8b, 8, 0][..], &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x28, 0xb5, 0x2f, 0xfd]] {
            layers.push([magic, &bytes].concat());
        }
        layers.extend(compressed(&bytes).map(|(_, packed)| packed));
        for layer in layers {
            for format in [None, Some(TraceFormat::Lackey), Some(TraceFormat::ChampSim), Some(TraceFormat::DrMemTrace), Some(TraceFormat::Plain), Some(TraceFormat::Swath)] {
                let (all, failure) = read(&layer, format);
                if let Some(error) = failure {
                    prop_assert!(!error.to_string().is_empty());
                }
                for access in all {
                    prop_assert!(access.len_bytes > 0 && access.pages().count > 0);
                }
            }
        }
    }

    /// Accesses and events come back as they were, in their order.
    #[test]
    fn events_round_trip(
        list in prop::collection::vec(any_item(), 0..3_000),
        program in "[ -~]{0,40}",
        burst in 0..9u64,
    ) {
        let header = TraceHeader { program, sampling: Sampling::new(burst, 9) };
        let bytes = swath_items(&header, &list);
        let opened = open(&bytes, None).unwrap();
        prop_assert_eq!(opened.header(), Some(&header));
        let (all, failure) = items(&bytes);
        prop_assert!(failure.is_none(), "{:?}", failure);
        prop_assert_eq!(&all, &list);
        let accesses: Vec<MemoryAccess> = list.iter().filter_map(|item| match item {
            TraceItem::Access(access) => Some(*access),
            TraceItem::Event(_) => None,
        }).collect();
        prop_assert_eq!(whole(&bytes), accesses);
        // A log's events, with the words of hostile programs in between.
        let cut = &bytes[..bytes.len() / 2];
        prop_assert!(items(cut).1.is_some());
    }

    /// Whatever stands behind the word, nothing breaks.
    #[test]
    fn random_system_calls_never_panic(
        text in "(SYSCALL\\[[0-9]{1,3},[0-9]{1,2}\\]\\([0-9]{1,3}\\) )?(sys_(brk|mmap|mmap2|munmap|mprotect|mremap|madvise|close|fork)|\\.\\.\\. \\[async\\])[ -~]{0,80}",
        numbers in prop::collection::vec(any::<u64>(), 0..8),
        name in 0..7usize,
    ) {
        let list: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let name = ["brk", "mmap", "mmap2", "munmap", "mprotect", "mremap", "madvise"][name];
        let call = format!("SYSCALL[1,1](9) sys_{name} ( {} )[sync] --> Success({})", list.join(", "), numbers.last().unwrap_or(&1));
        let lines = format!("{call}\n{text}\n L 10,1\n{call}\n");
        let (all, failure) = items(lines.as_bytes());
        prop_assert!(failure.is_some() || all.len() <= 4);
    }

    /// Cuts of random traces: what comes before is right, then an error.
    #[test]
    fn random_cuts(accesses in prop::collection::vec(any_access(), 1..300), cut in any::<prop::sample::Index>()) {
        let bytes = swath(&accesses);
        let (all, failure) = read(&bytes[..cut.index(bytes.len())], Some(TraceFormat::Swath));
        prop_assert!(accesses.starts_with(&all));
        prop_assert!(failure.is_some());
    }
}

#[test]
fn a_missing_file_is_an_error() {
    assert!(matches!(TraceReader::open(Path::new("/no/such/trace")), Err(TraceError::Io { .. })));
}

/// The figures of the trace that comes with the program, counted by another
/// reader written from docs/formats.md.
#[test]
fn the_shipped_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swath-lab/data/sort.swtrace");
    assert!(std::fs::metadata(&path).unwrap().len() < 300_000);
    let (mut reads, mut writes, mut fetches, mut crossing, mut sum) = (0, 0, 0, 0, 0u64);
    for access in TraceReader::open(&path).unwrap() {
        let access = access.unwrap();
        match access.kind {
            AccessKind::Read => reads += 1,
            AccessKind::Write => writes += 1,
            AccessKind::Fetch => fetches += 1,
        }
        crossing += u32::from(access.pages().count > 1);
        sum = sum.wrapping_add(access.addr.raw());
    }
    assert_eq!((reads, writes, fetches, crossing), (764_787, 390_349, 2_664_613, 1056));
    assert_eq!(sum, 0x0129_66ee_ad79_b9e9);
}

/// The figures of the face's traces, counted by another reader written from docs/formats.md.
#[test]
fn the_shipped_traces_of_threads() {
    for (threads, periods, reads, pages) in [
        (1, 222, 92_544, 56_944),
        (4, 56, 55_609, 58_083),
        (8, 29, 38_641, 59_201),
        (16, 14, 31_296, 60_442),
    ] {
        let path = format!("../swath-lab/data/face/{threads}.swtrace");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        assert!(std::fs::metadata(&path).unwrap().len() < 10_000);
        let mut touched = std::collections::BTreeSet::new();
        let (mut accesses, mut skipped) = (0, 0);
        for item in TraceReader::open(&path).unwrap().items() {
            match item.unwrap() {
                TraceItem::Access(access) => {
                    assert_eq!(access.kind, AccessKind::Read);
                    accesses += 1;
                    touched.extend(access.pages().iter());
                }
                TraceItem::Event(TraceEvent::Skip { accesses }) => skipped += accesses,
                TraceItem::Event(event) => panic!("{event:?}"),
            }
        }
        assert_eq!((accesses, touched.len()), (reads, pages), "{threads}");
        assert_eq!(accesses + skipped, threads * periods * 137_614_678, "{threads}");
    }
}

/// The figures of the compiler's trace: what docs/formats.md says of it.
#[test]
fn the_shipped_compiler_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swath-lab/data/cc1.swtrace");
    assert!(std::fs::metadata(&path).unwrap().len() < 1_500_000);
    let accesses = TraceReader::open(&path).unwrap();
    let header = TraceHeader { program: "cc1".into(), sampling: Sampling::new(20_000, 4_000_000) };
    assert_eq!(accesses.header(), Some(&header));
    let mut mapped = std::collections::BTreeSet::new();
    let mut touched = std::collections::BTreeSet::new();
    let (mut kinds, mut skipped, mut most) = ([0u64; 3], 0, 0);
    let mut events = std::collections::BTreeMap::new();
    for item in accesses.items() {
        match item.unwrap() {
            TraceItem::Access(access) => {
                kinds[match access.kind {
                    AccessKind::Read => 0,
                    AccessKind::Write => 1,
                    AccessKind::Fetch => 2,
                }] += 1;
                // Nothing is touched that is not mapped.
                for page in access.pages().iter() {
                    assert!(mapped.contains(&page), "{page}");
                    touched.insert(page);
                }
            }
            TraceItem::Event(event) => {
                let name = match event {
                    TraceEvent::Map { pages, backing, .. } => {
                        mapped.extend(pages.iter());
                        most = most.max(mapped.len());
                        if backing == MapBacking::Anonymous { "map" } else { "map a file" }
                    }
                    TraceEvent::Unmap { pages } => {
                        mapped.retain(|&page| !pages.contains(page));
                        "unmap"
                    }
                    TraceEvent::Protect { .. } => "protect",
                    TraceEvent::Discard { .. } => "discard",
                    TraceEvent::Move { from, to } => {
                        mapped.retain(|&page| !from.contains(page));
                        mapped.extend(to.iter());
                        "move"
                    }
                    TraceEvent::Fork => "fork",
                    TraceEvent::Skip { accesses } => {
                        skipped += accesses;
                        continue;
                    }
                };
                *events.entry(name).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(kinds, [520_746, 256_694, 1_927_943]);
    assert_eq!(kinds.iter().sum::<u64>() + skipped, 536_156_614);
    assert_eq!((touched.len(), most), (5284, 12_445));
    let expected = [("map", 80), ("map a file", 48), ("protect", 11), ("unmap", 15)];
    assert_eq!(Vec::from_iter(events), expected);
}
