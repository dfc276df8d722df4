//! Machine snapshots: round trips, hostile files, and a made-up `/proc`.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use swath_arch::{Extent, Pfn, PhysAddr};
use swath_trace::container::FileError;
use swath_trace::histogram::Histogram;
use swath_trace::machine::{
    CaptureError, FrameKind, MachineFacts, RamRange, SNAPSHOT_FORMAT, Snapshot, UnknownFrames,
    ZoneFacts, capture_from, classify,
};

fn range(start: u64, len_bytes: u64) -> RamRange {
    RamRange { start: PhysAddr::new(start), len_bytes }
}

fn facts() -> MachineFacts {
    MachineFacts {
        kernel_release: "6.1.0-test".into(),
        total_frames: 100,
        free_frames: 40,
        buddy_frames: 30,
        zones: vec![ZoneFacts {
            node: 1,
            name: "Normal".into(),
            start_frame: 1,
            spanned_frames: 200,
            present_frames: 100,
            managed_frames: 90,
            free_frames: 30,
            per_cpu_frames: 3,
        }],
    }
}

fn small() -> Snapshot {
    use FrameKind::{Anon, Free, Reserved, Unknown};
    let ranges = vec![range(0x1000, 0x8800), range(0x10_0000, 0x4000)];
    let runs = [(Free, 3), (Unknown, 2), (Anon, 3), (Free, 1), (Free, 2), (Reserved, 1)];
    Snapshot::new(facts(), ranges, runs).unwrap()
}

fn bytes_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes).unwrap();
    bytes
}

/// A file around the given content.
fn file_of(content: &[u8]) -> Vec<u8> {
    let mut bytes = SNAPSHOT_FORMAT.magic.to_vec();
    bytes.push(SNAPSHOT_FORMAT.version);
    bytes.extend(zstd::encode_all(content, 1).unwrap());
    bytes
}

/// The kind of each frame, in the plainest way: the model of the tests.
type Frames = Vec<(u64, FrameKind)>;

fn frames_of(snapshot: &Snapshot) -> Frames {
    snapshot.runs().flat_map(|run| run.extent.iter().map(move |f| (f.raw(), run.kind))).collect()
}

fn naive_extents(frames: &Frames, unknown: UnknownFrames) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for &(frame, kind) in frames {
        let free = kind == FrameKind::Free
            || (kind == FrameKind::Unknown && unknown == UnknownFrames::Free);
        match extents.last_mut() {
            Some(last) if free && last.end() == Pfn::new(frame) => last.count += 1,
            _ if free => extents.push(Extent::new(Pfn::new(frame), 1)),
            _ => {}
        }
    }
    extents
}

#[test]
fn the_small_machine() {
    let snapshot = small();
    snapshot.check().unwrap();
    let extents = |unknown| -> Vec<(u64, u64)> {
        snapshot.free_extents(unknown).map(|e| (e.start.raw(), e.count)).collect()
    };
    // The first range holds frames 1 to 8: its last 0x800 bytes are no frame.
    assert_eq!(extents(UnknownFrames::Used), [(1, 3), (0x100, 3)]);
    assert_eq!(extents(UnknownFrames::Free), [(1, 5), (0x100, 3)]);
    let summary = snapshot.summary();
    assert_eq!(summary.count(FrameKind::Free), 6);
    assert_eq!(summary.count(FrameKind::Unknown), 2);
    assert_eq!(summary.total_frames(), 12);
    assert_eq!(summary.runs, 5);
    assert_eq!((summary.free.count, summary.free.largest), (2, 3));
    assert_eq!(summary.free_beyond_buddyinfo(snapshot.facts()), -24);
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["free_or_unknown"]["bins"][2]["sum"], 5);
    assert_eq!(serde_json::to_value(FrameKind::HugeTlb).unwrap(), "huge_tlb");
    for kind in FrameKind::ALL {
        assert_eq!(FrameKind::from_code(kind.code()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
    assert_eq!(FrameKind::from_code(12), None);
}

/// The content byte by byte, as docs/formats.md tells it.
#[test]
fn the_documented_bytes() {
    let bytes = bytes_of(&small());
    assert_eq!(bytes[..9], *b"SWSNAP\r\n\x01");
    let content = zstd::decode_all(&bytes[9..]).unwrap();
    let expected: Vec<u8> = [
        &b"\x0a6.1.0-test"[..],
        &[100, 40, 30],
        &[1, 1],
        b"\x06Normal",
        &[1, 0xc8, 1, 100, 90, 30, 3],
        &[2],
        &[0x80, 0x20, 0x80, 0x90, 0x02],
        // 0x100000 - 0x9800 = 0xf6800; 0x4000.
        &[0x80, 0xd0, 0x3d, 0x80, 0x80, 0x01],
        &[3 << 4 | 1, 2 << 4, 3 << 4 | 3, 3 << 4 | 1, 1 << 4 | 9],
    ]
    .concat();
    assert_eq!(content, expected);
    assert_eq!(Snapshot::read(&file_of(&expected)[..]).unwrap(), small());
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = bytes_of(&small());
    for len in 0..bytes.len() {
        let error = Snapshot::read(&bytes[..len]).unwrap_err();
        match error {
            FileError::Magic { offset, .. } if len < 8 => assert_eq!(offset, len as u64),
            FileError::Truncated { .. } if len >= 8 => {}
            other => panic!("{len} bytes: {other:?}"),
        }
    }
    // The same for the content, whose every number is missed at its place.
    let content = zstd::decode_all(&bytes[9..]).unwrap();
    for len in 0..content.len() {
        match Snapshot::read(&file_of(&content[..len])[..]).unwrap_err() {
            FileError::Truncated { offset, .. } => assert_eq!(offset, len as u64),
            other => panic!("{len} bytes: {other:?}"),
        }
    }
}

#[test]
fn every_flip_is_an_error_or_a_snapshot() {
    let bytes = bytes_of(&small());
    let (mut errors, mut same) = (0, 0);
    for at in 0..bytes.len() {
        for flip in 1..=255u8 {
            let mut bad = bytes.clone();
            bad[at] ^= flip;
            match Snapshot::read(&bad[..]) {
                Ok(snapshot) => {
                    snapshot.check().unwrap();
                    // The checksum lets nothing through that differs.
                    assert_eq!(snapshot, small(), "byte {at} ^ {flip:#x}");
                    same += 1;
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    errors += 1;
                }
            }
        }
    }
    assert!(errors > 100 * same, "{errors} errors, {same} unharmed");
}

/// The content is not protected by luck: each value that cannot be has an
/// error that names it.
#[test]
fn hostile_contents() {
    let head = b"\x016\x01\x01\x01\x00";
    let read = |rest: &[u8]| {
        let content = [&head[..], rest].concat();
        match Snapshot::read(&file_of(&content)[..]) {
            Err(FileError::Malformed { offset, what, .. }) => (offset, what),
            other => panic!("{other:?}"),
        }
    };
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let cases: [(&[u8], u64, &str); 10] = [
        (&huge, 6, "a count beyond the limit of the format"),
        (&[2, 1, 0x80, 0x20, 0, 0x80, 0x20], 6, "RAM ranges that touch, overlap or do not ascend"),
        (&[1, 1, 0], 6, "a RAM range of no bytes"),
        (&[&[1, 1][..], &huge].concat(), 7, "a RAM range beyond the last address"),
        (&[1, 0, 0x80, 0x40, 0x31], 10, "a run beyond the end of its RAM range"),
        (&[&[1, 0, 0x80, 0x40][..], &huge].concat(), 10, "a kind of frame that does not exist"),
        (&[1, 0, 0x80, 0x40, 0x01], 10, "a run of no frames"),
        (&[1, 0, 0x80, 0x40, 0x11, 0x11], 11, "two runs of the same kind in a row"),
        (&[1, 0, 0x80, 0x40, 0x1c], 10, "a kind of frame that does not exist"),
        (&[1, 0, 0x80, 0x40, 0x21, 7], 11, "bytes after the last run"),
    ];
    for (rest, offset, what) in cases {
        assert_eq!(read(rest), (offset, what), "{rest:x?}");
    }
    let read = |content: &[u8]| Snapshot::read(&file_of(content)[..]).unwrap_err().to_string();
    assert!(
        read(b"\x02\x1b[").contains("byte 1 of the machine snapshot's content: a name that is not")
    );
    assert!(read(&[0xac, 2]).contains("count beyond the limit"));
    assert!(read(&[0x80, 0]).contains("byte 0"));
    // A version to come, and a checksum that is not the content's.
    let mut bytes = bytes_of(&small());
    bytes[8] = 2;
    assert!(matches!(Snapshot::read(&bytes[..]), Err(FileError::Version { found: 2, .. })));
    let mut bytes = bytes_of(&small());
    *bytes.last_mut().unwrap() ^= 1;
    assert!(matches!(Snapshot::read(&bytes[..]), Err(FileError::Damaged { .. })));
    // A frame that asks for a window of 2 GiB is refused before it gets one.
    let window = [
        &SNAPSHOT_FORMAT.magic[..],
        &[SNAPSHOT_FORMAT.version],
        &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 1, 0, 0],
    ]
    .concat();
    assert!(matches!(Snapshot::read(&window[..]), Err(FileError::Damaged { .. })));
}

fn any_kind() -> impl Strategy<Value = FrameKind> {
    (0..FrameKind::COUNT).prop_map(|i| FrameKind::ALL[i])
}

/// Ranges at any byte, with a kind for each whole frame in them.
fn any_machine() -> impl Strategy<Value = (Vec<RamRange>, Vec<FrameKind>)> {
    prop::collection::vec((1u64..20_000, 1u64..40_000), 0..5).prop_flat_map(|pieces| {
        let mut end = 0;
        let ranges: Vec<_> = pieces
            .into_iter()
            .map(|(gap, len)| {
                let start = end + gap;
                end = start + len;
                range(start, len)
            })
            .collect();
        let frames: u64 = ranges.iter().map(|range| range.frames().count).sum();
        let kinds = prop::collection::vec(any_kind(), frames as usize);
        (Just(ranges), kinds)
    })
}

proptest! {
    /// What goes in comes out, and the extents are those of the naive model.
    #[test]
    fn round_trip((ranges, kinds) in any_machine()) {
        let model: Frames = ranges
            .iter()
            .flat_map(|range| range.frames().iter())
            .map(Pfn::raw)
            .zip(kinds.iter().copied())
            .collect();
        let runs = kinds.iter().map(|&kind| (kind, 1));
        let snapshot = Snapshot::new(facts(), ranges, runs).unwrap();
        snapshot.check().unwrap();
        prop_assert_eq!(&frames_of(&snapshot), &model);
        let bytes = bytes_of(&snapshot);
        let back = Snapshot::read(&bytes[..]).unwrap();
        prop_assert_eq!(&back, &snapshot);
        prop_assert_eq!(bytes_of(&back), bytes);
        for unknown in [UnknownFrames::Used, UnknownFrames::Free] {
            let extents = naive_extents(&model, unknown);
            prop_assert_eq!(snapshot.free_extents(unknown).collect::<Vec<_>>(), extents.clone());
            let lengths: Histogram = extents.iter().map(|extent| extent.count).collect();
            prop_assert_eq!(lengths.bins.iter().map(|bin| bin.count).sum::<u64>(), lengths.count);
            prop_assert_eq!(lengths.bins.iter().map(|bin| bin.sum).sum::<u64>(), lengths.sum);
        }
    }

    /// Bytes that nobody meant as a snapshot, bare and behind each layer.
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let layers = [bytes.clone(), [&SNAPSHOT_FORMAT.magic[..], &[SNAPSHOT_FORMAT.version], &bytes].concat(), file_of(&bytes)];
        for layer in layers {
            if let Ok(snapshot) = Snapshot::read(&layer[..]) {
                snapshot.check().unwrap();
            }
        }
    }
}

#[test]
fn machines_that_cannot_be() {
    let new = |ranges: &[RamRange], runs: &[(FrameKind, u64)]| {
        Snapshot::new(MachineFacts::default(), ranges.to_vec(), runs.iter().copied()).unwrap_err()
    };
    let one = [range(0, 0x2000)];
    assert_eq!(new(&one, &[(FrameKind::Free, 1)]), "frames without a kind");
    assert_eq!(new(&one, &[(FrameKind::Free, 3)]), "a run beyond the end of its RAM range");
    assert_eq!(new(&one, &[(FrameKind::Free, u64::MAX)]), "a run beyond the end of its RAM range");
    assert_eq!(new(&one, &[(FrameKind::Free, 0)]), "a run of no frames");
    assert_eq!(new(&[range(u64::MAX, 2)], &[]), "a RAM range beyond the last address");
    let touching = [range(0, 0x1000), range(0x1000, 0x1000)];
    assert_eq!(new(&touching, &[]), "RAM ranges that touch, overlap or do not ascend");
}

#[test]
fn flags_by_precedence() {
    let bit = |bits: &[u32]| bits.iter().fold(0, |flags, bit| flags | 1u64 << bit);
    let cases: [(&[u32], FrameKind); 14] = [
        (&[], FrameKind::Unknown),
        (&[11], FrameKind::Kernel),
        (&[10], FrameKind::Free),
        (&[3, 10], FrameKind::Free),
        (&[3, 5, 36], FrameKind::File),
        (&[2, 3, 5, 11, 12, 14], FrameKind::Anon),
        (&[3, 5, 11, 12, 15, 22], FrameKind::LargeFolio),
        (&[15, 17], FrameKind::HugeTlb),
        (&[7, 12, 16, 21], FrameKind::Slab),
        (&[26], FrameKind::PageTable),
        (&[16], FrameKind::Kernel),
        (&[24, 32], FrameKind::Reserved),
        (&[19, 5], FrameKind::Offline),
        (&[20], FrameKind::Absent),
    ];
    for (bits, kind) in cases {
        assert_eq!(classify(bit(bits)), kind, "{bits:?}");
    }
}

/// A `/proc` of 16 frames of RAM in two ranges, with tables that end early.
fn made_up_proc(dir: &Path) {
    let put = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).unwrap();
    fs::create_dir_all(dir.join("self")).unwrap();
    fs::create_dir_all(dir.join("sys/kernel")).unwrap();
    let auxv: Vec<u8> =
        [33usize, 7, 6, 4096, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    put("self/auxv", &auxv);
    put("sys/kernel/osrelease", b"1.2.3\n");
    put("iomem", b"00000000-00000fff : Reserved\n00001000-000087ff : System RAM\n  00002000-00002fff : Kernel code\n00010000-00017fff : System RAM\n");
    put("meminfo", b"MemTotal:             64 kB\nMemFree:              16 kB\n");
    put("buddyinfo", b"Node 0, zone      DMA      1      1 \n");
    put("zoneinfo", b"Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 7\n  pages free     3\n        spanned  24\n        present  16\n        managed  15\n        protection: (0, 1)\n  pagesets\n    cpu: 0\n              count: 2\n    cpu: 1\n              count:    3\n  start_pfn:           1\nNode 0, zone   Movable\n  pages free     0\n        present  0\n");
    let mut flags = [0u64; 20];
    flags[1..4].fill(1 << 10);
    flags[4] = 1 << 7;
    flags[5] = 1 << 11;
    flags[16..18].fill(1 << 5);
    let words =
        |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    put("kpageflags", &words(&flags));
}

#[test]
fn a_made_up_machine() {
    let dir = tempfile::tempdir().unwrap();
    made_up_proc(dir.path());
    let mut told = Vec::new();
    let snapshot = capture_from(dir.path(), &mut |done, all| told.push((done, all))).unwrap();
    snapshot.check().unwrap();
    assert_eq!(told, [(7, 15), (15, 15)]);
    let runs: Vec<_> =
        snapshot.runs().map(|r| (r.extent.start.raw(), r.extent.count, r.kind)).collect();
    use FrameKind::{Absent, File, Free, Kernel, Slab, Unknown};
    let expected = [
        (1, 3, Free),
        (4, 1, Slab),
        (5, 1, Kernel),
        (6, 2, Unknown),
        (16, 2, File),
        (18, 2, Unknown),
        (20, 4, Absent),
    ];
    assert_eq!(runs, expected);
    let zone = ZoneFacts {
        node: 0,
        name: "DMA".into(),
        start_frame: 1,
        spanned_frames: 24,
        present_frames: 16,
        managed_frames: 15,
        free_frames: 3,
        per_cpu_frames: 5,
    };
    let facts = MachineFacts {
        kernel_release: "1.2.3".into(),
        total_frames: 16,
        free_frames: 4,
        buddy_frames: 3,
        zones: vec![zone],
    };
    assert_eq!(*snapshot.facts(), facts);
    let file = dir.path().join("machine.swsnap");
    snapshot.save(&file).unwrap();
    assert_eq!(Snapshot::load(&file).unwrap(), snapshot);
}

#[test]
fn what_a_machine_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    let fail = || capture_from(dir.path(), &mut |_, _| {}).unwrap_err();
    made_up_proc(dir.path());
    put("iomem", b"00000000-00000000 : System RAM\n00000000-00000000 : System RAM\n");
    let error = fail();
    assert!(matches!(error, CaptureError::NotPermitted { .. }));
    assert!(error.to_string().contains("CAP_SYS_ADMIN"));
    put("iomem", b"1000-1fff : System RAM\n3000-2fff : System RAM\n");
    assert!(fail().to_string().ends_with("iomem, line 2: a range that ends before it starts"));
    put("iomem", b"1000-1fff : Video RAM\n");
    assert!(fail().to_string().ends_with("no System RAM"));
    made_up_proc(dir.path());
    put("buddyinfo", b"Node 0, zone DMA 1 x\n");
    assert!(fail().to_string().ends_with("buddyinfo, line 1: no count of blocks"));
    made_up_proc(dir.path());
    fs::remove_file(dir.path().join("kpageflags")).unwrap();
    assert!(matches!(fail(), CaptureError::NoPageMonitor { .. }));
    made_up_proc(dir.path());
    let auxv: Vec<u8> = [6usize, 65536].iter().flat_map(|word| word.to_ne_bytes()).collect();
    put("self/auxv", &auxv);
    assert!(matches!(fail(), CaptureError::PageSize { len_bytes: 65536 }));
}

/// The machine that runs the tests either gives a snapshot whose figures hang
/// together or says what is missing.
#[cfg(target_os = "linux")]
#[test]
fn this_machine() {
    match swath_trace::machine::capture(&mut |_, _| {}) {
        Ok(snapshot) => {
            snapshot.check().unwrap();
            let bytes = bytes_of(&snapshot);
            assert_eq!(Snapshot::read(&bytes[..]).unwrap(), snapshot);
            assert!(snapshot.summary().total_frames() >= snapshot.facts().total_frames);
        }
        Err(error) => assert!(
            matches!(error, CaptureError::NotPermitted { .. } | CaptureError::NoPageMonitor { .. }),
            "{error}"
        ),
    }
}

/// The figures of the snapshot that comes with the program, counted by
/// another reader written from docs/formats.md.
#[test]
fn the_shipped_snapshot() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swath-lab/data/machine.swsnap");
    assert!(fs::metadata(&path).unwrap().len() < 300_000);
    let snapshot = Snapshot::load(&path).unwrap();
    snapshot.check().unwrap();
    let summary = snapshot.summary();
    let expected = [55257, 4457419, 725071, 364367, 475144, 0, 88521, 2872, 2370, 120337, 0, 0];
    assert_eq!(summary.frames, expected);
    assert_eq!((summary.runs, summary.free.count, summary.free.largest), (361027, 51361, 392155));
    let frames: Vec<_> = snapshot.ranges().iter().map(|range| range.frames()).collect();
    let extent = |start, end| Extent::new(Pfn::new(start), end - start);
    assert_eq!(frames, [extent(1, 159), extent(256, 786432), extent(1048576, 6553600)]);
    // Marked free within a thousandth of what the kernel says.
    let facts = snapshot.facts();
    assert_eq!((facts.free_frames, facts.buddy_frames), (4458734, 4458750));
    assert!(summary.free_beyond_buddyinfo(facts).unsigned_abs() * 1000 < facts.buddy_frames);
}
