//! The traces that come with the program.

use std::path::Path;

use swath_trace::access::{
    AccessKind, MapBacking, Sampling, TraceEvent, TraceHeader, TraceItem, TraceReader,
};

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
