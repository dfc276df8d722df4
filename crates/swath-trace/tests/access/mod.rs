//! Address traces: hand-written samples, round trips, compression, hostile
//! input, and recording.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use proptest::prelude::*;
use swath_arch::VirtAddr;
use swath_trace::access::{
    AccessKind, Compression, MemoryAccess, TRACE_FORMAT, TraceError, TraceFormat, TraceReader,
    TraceWriter,
};
use swath_trace::container::FileFormat;

use crate::files::{cut_everywhere, file_of, read_all, turn_every_bit};

mod events;
mod shipped;

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
