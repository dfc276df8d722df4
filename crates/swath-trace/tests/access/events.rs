//! Events of a trace, beside its accesses: mappings, forks and gaps, in the format of their own and in
//! lackey's lines of system calls.

use proptest::prelude::*;
use swath_arch::{PageRange, Vpn};
use swath_trace::access::{
    AccessKind, MapBacking, MapProtection, MemoryAccess, Sampling, TraceError, TraceEvent,
    TraceHeader, TraceItem, TraceWriter,
};

use crate::access::{access, any_access, open, version, whole};
use crate::files::read_all;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

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
}
