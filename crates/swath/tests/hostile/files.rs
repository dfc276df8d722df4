//! Files that ask for more than they are: of every format the shapes by which a few
//! bytes turn into gigabytes of memory, hours of work or sums beyond 64 bits.

use std::io::Write as _;

use swath_trace::access::TRACE_FORMAT;
use swath_trace::container::FileFormat;
use swath_trace::heap::HEAP_FORMAT;
use swath_trace::machine::SNAPSHOT_FORMAT;
use swath_trace::pages::PAGE_FORMAT;

/// The commands that read a file of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Snapshot,
    Trace,
    Text,
    Heap,
    Pages,
}

/// A hostile file.
pub(super) struct Hostile {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    /// The answer of `swath show`.
    pub(super) shown: Shown,
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shown {
    /// An answer that holds these words.
    Answer(&'static str),
    /// An error that holds these words.
    Refused(&'static str),
}

use Kind::{Heap, Pages, Snapshot, Text, Trace};
use Shown::{Answer, Refused};

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn numbers(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|&value| number(&mut out, value));
    out
}

fn name(out: &mut Vec<u8>, name: &str) {
    number(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
}

/// A zstd frame of parts, each so many times.
fn packed(parts: &[(&[u8], u64)]) -> Vec<u8> {
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    zstd.include_checksum(true).unwrap();
    for &(part, times) in parts {
        // Many at a time: the encoder's calls would take longer than its work.
        let chunk = part.repeat((65536 / part.len().max(1)).clamp(1, times.max(1) as usize));
        let (mut left, whole) = (times * part.len() as u64, chunk.len() as u64);
        while left > 0 {
            zstd.write_all(&chunk[..left.min(whole) as usize]).unwrap();
            left -= left.min(whole);
        }
    }
    zstd.finish().unwrap()
}

fn file(format: &FileFormat, parts: &[(&[u8], u64)]) -> Vec<u8> {
    [&format.magic[..], &[format.version], &packed(parts)].concat()
}

/// What stands before the events of a trace or a heap recording: no name, no sampling.
const HEAD: &[u8] = &[0, 0, 0];

/// No programs.
const NO_PROGRAMS: [u64; 3] = [0, 0, 0];

/// A trace of an access, and the same difference again and again.
fn trace(first: &[u8], times: u64) -> Vec<u8> {
    let end = [&[0][..], &numbers(&[times, 0]), &numbers(&NO_PROGRAMS)].concat();
    file(&TRACE_FORMAT, &[(HEAD, 1), (first, times), (&end, 1)])
}

/// A trace of events.
fn events(event: &[u8], times: u64) -> Vec<u8> {
    let end = [&[0][..], &numbers(&[0, times]), &numbers(&NO_PROGRAMS)].concat();
    file(&TRACE_FORMAT, &[(HEAD, 1), (event, times), (&end, 1)])
}

fn traces() -> Vec<Hostile> {
    let hostile = |name, bytes, shown| Hostile { name, kind: Trace, bytes, shown };
    // A read of 65535 bytes, 256 KiB after the one before: 17 pages.
    let long = [&[1][..], &numbers(&[65535, 2 << 18])].concat();
    // A read of one byte, 256 KiB after the one before.
    let apart = [&[1 | 1 << 2][..], &numbers(&[2 << 18])].concat();
    let mut many = vec![0];
    number(&mut many, 0);
    number(&mut many, 0);
    number(&mut many, 1024);
    for _ in 0..1024 {
        name(&mut many, &"x".repeat(255));
        many.extend(numbers(&[u64::MAX, u64::MAX, 0]));
    }
    many.extend(numbers(&[u64::MAX, u64::MAX]));
    let (map, skip) = (1 << 2, 7 << 2);
    let fork = [6 << 2];
    // A range begins where the last one ended, so each goes back by its length.
    let whole = [&[map][..], &numbers(&[0, 1 << 52, 3])].concat();
    let again = [&[map][..], &numbers(&[(2 << 52) - 1, 1 << 52, 3])].concat();
    let end = [&[0][..], &numbers(&[0, 100_001]), &numbers(&NO_PROGRAMS)].concat();
    let maps = file(&TRACE_FORMAT, &[(HEAD, 1), (&whole, 1), (&again, 100_000), (&end, 1)]);
    // The longest event: a page of a file.
    let page = [&[map][..], &numbers(&[0, 1, 16, u64::MAX, 1 << 51])].concat();
    let wrapped = [&[skip][..], &numbers(&[u64::MAX])].concat();
    // Sampling of every second access gives as many windows.
    let sampled = [&[0][..], &numbers(&[1, 2])].concat();
    let one = [1 | 1 << 2, 0];
    let end = [&[0][..], &numbers(&[2_500_000, 0]), &numbers(&NO_PROGRAMS)].concat();
    vec![
        hostile("long.swtrace", trace(&long, 3_000_000), Refused("too large: more than 1835008")),
        hostile("apart.swtrace", trace(&apart, 3_000_000), Refused("too large: more than 1835008")),
        hostile(
            "bomb.swtrace",
            events(&page, 4_000_000),
            Refused("too large: more than 67108864 bytes"),
        ),
        hostile("forks.swtrace", events(&fork, 2_000_000), Answer("0 reads")),
        hostile("maps.swtrace", maps, Answer("0 reads")),
        hostile("skips.swtrace", events(&wrapped, 2), Refused("accesses")),
        hostile(
            "programs.swtrace",
            file(&TRACE_FORMAT, &[(HEAD, 1), (&many, 1)]),
            Answer("18446744073709551615"),
        ),
        hostile(
            "windows.swtrace",
            file(&TRACE_FORMAT, &[(&sampled, 1), (&one, 2_500_000), (&end, 1)]),
            Answer("2500000 reads"),
        ),
        hostile("top.swtrace", trace(&[1 | 1 << 2, 1], 1), Answer("1 pages")),
    ]
}

/// Traces of other programs, in each compression.
fn texts() -> Vec<Hostile> {
    let hostile = |name, bytes, shown| Hostile { name, kind: Text, bytes, shown };
    let gzip = |part: &[u8], times: usize| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..times).for_each(|_| gzip.write_all(part).unwrap());
        gzip.finish().unwrap()
    };
    let xz = |part: &[u8], times: usize| {
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        (0..times).for_each(|_| xz.write_all(part).unwrap());
        xz.finish().unwrap()
    };
    let noise =
        b"==1== a line of another tool's, which no reader of traces looks at\n".repeat(4096);
    let line = b" L 1000,65535\n".repeat(4096);
    let threads: Vec<u8> = (0..12_000)
        .flat_map(|thread| {
            format!("SYSCALL[1,{thread}](9) sys_mmap ( 0x0, 8192, 3, 34, 0, 0 ) --> [async] ...\n")
                .into_bytes()
        })
        .chain(*b" L 1000,4\n")
        .collect();
    vec![
        hostile(
            "bomb.lackey.zst",
            packed(&[(&line[..14], 1), (&noise, 300)]),
            Refused("too large: more than 67108864 bytes"),
        ),
        hostile("bomb.lackey.xz", xz(&noise, 300), Refused("too large: more than 67108864 bytes")),
        hostile("long.lackey.gz", gzip(&line, 100), Answer("409600 reads")),
        hostile("endless.lackey.zst", packed(&[(&[b'x'; 1024], 50_000)]), Refused("within a line")),
        hostile("threads.lackey", threads, Answer("1 reads")),
        hostile("bomb.champsim.zst", packed(&[(&[0; 4096], 10_000)]), Answer("640000 fetches")),
    ]
}

fn heap(parts: &[(&[u8], u64)], count: u64, totals: [u64; 6]) -> Vec<u8> {
    let end = [&[0][..], &numbers(&[count]), &numbers(&totals), &numbers(&NO_PROGRAMS)].concat();
    let parts: Vec<_> = [(HEAD, 1)].iter().chain(parts).copied().chain([(&end[..], 1)]).collect();
    file(&HEAP_FORMAT, &parts)
}

fn heaps() -> Vec<Hostile> {
    let hostile = |name, bytes, shown| Hostile { name, kind: Heap, bytes, shown };
    let largest = [&[1][..], &numbers(&[1 << 48])].concat();
    let resized = [&[5][..], &numbers(&[1 << 48])].concat();
    let totals = [0, 0, u64::MAX, u64::MAX, u64::MAX, u64::MAX];
    let mut threads = Vec::new();
    for thread in 1..=100_000 {
        threads.extend([1 | 1 << 5]);
        number(&mut threads, thread);
        threads.push(0);
    }
    vec![
        hostile(
            "sum.swheap",
            heap(&[(&largest, 65_536)], 65_536, totals),
            Refused("2^64 bytes or more"),
        ),
        hostile(
            "edge.swheap",
            heap(&[(&largest, 65_535)], 65_535, totals),
            Answer("18446462598732840960 bytes"),
        ),
        hostile(
            "blocks.swheap",
            heap(&[(&[1, 1], 5_000_000)], 5_000_000, totals),
            Refused("3670016"),
        ),
        hostile(
            "resized.swheap",
            heap(&[(&largest, 1), (&resized, 9)], 10, totals),
            Answer("9 changes"),
        ),
        hostile(
            "threads.swheap",
            heap(&[(&threads, 1)], 100_000, totals),
            Answer("65536 or more threads"),
        ),
    ]
}

/// What stands before the events: no facts, no name, the whole system.
fn page_head(cpus: u64) -> Vec<u8> {
    let mut head = Vec::new();
    name(&mut head, "x");
    head.extend(numbers(&[0, 0, 0, 0]));
    name(&mut head, "");
    head.extend(numbers(&[1, cpus]));
    head
}

fn pages(cpus: u64, parts: &[(&[u8], u64)], count: u64, lost: u64) -> Vec<u8> {
    let head = page_head(cpus);
    let mut end = vec![0];
    number(&mut end, count);
    let losses = numbers(&[lost]).repeat(cpus as usize);
    let parts: Vec<_> = [(&head[..], 1)]
        .iter()
        .chain(parts)
        .copied()
        .chain([(&end[..], 1), (&losses[..], 1)])
        .collect();
    file(&PAGE_FORMAT, &parts)
}

fn recordings() -> Vec<Hostile> {
    let hostile = |name, bytes, shown| Hostile { name, kind: Pages, bytes, shown };
    const DIFFERENCE: u8 = 1 << 5;
    const ATTRIBUTES: u8 = 1 << 4;
    // A frame is taken, the one after the last, and allocated: both as guessed.
    let allocs = [5, 1];
    // Frees of the largest order of which nobody saw the allocation.
    let mut frees = vec![2 | ATTRIBUTES, 15];
    for block in 1..50_000u64 {
        frees.push(2 | DIFFERENCE);
        number(&mut frees, block << 17);
    }
    let one = [1 | DIFFERENCE, 2];
    let late = [&[2 | 3 << 6][..], &numbers(&[1 << 63])].concat();
    let later = [&[2 | 3 << 6][..], &numbers(&[1 << 34])].concat();
    let losses = [&[7 | ATTRIBUTES][..], &numbers(&[(1u64 << 63) - 2])].concat();
    let processors: Vec<u8> =
        (1..4096).flat_map(|cpu| [&[1 | 1 << 3][..], &numbers(&[cpu])].concat()).collect();
    vec![
        hostile(
            "blocks.swpages",
            pages(1, &[(&allocs, 2_500_000)], 5_000_000, 0),
            Refused("too large: more than 18"),
        ),
        hostile(
            "unseen.swpages",
            pages(1, &[(&frees, 1)], 50_000, 0),
            Answer("frames freed that were allocated before"),
        ),
        hostile("lost.swpages", pages(2, &[(&one, 1)], 1, u64::MAX), Refused("2^64 lost events")),
        hostile(
            "loser.swpages",
            pages(1, &[(&one, 1), (&losses, 1), (&[7], 9)], 11, u64::MAX),
            Answer("18446744073709551615 lost"),
        ),
        hostile(
            "instant.swpages",
            pages(1, &[(&one, 1)], 1, 0),
            Answer("1 events in 0.0 s, 0 lost"),
        ),
        hostile(
            "late.swpages",
            pages(1, &[(&one, 1), (&late, 1)], 2, 0),
            Answer("2 events in 9223372036854.8 s"),
        ),
        hostile(
            "processors.swpages",
            pages(4096, &[(&processors, 1)], 4095, 0),
            Answer("4096 processors"),
        ),
        hostile(
            "bomb.swpages",
            pages(1, &[(&one, 1), (&later, 12_000_000)], 12_000_001, 0),
            Refused("too large: more than 67108864 bytes"),
        ),
    ]
}

fn snapshot(ranges: &[(u64, u64)], zones: u64, parts: &[(&[u8], u64)]) -> Vec<u8> {
    let mut head = Vec::new();
    name(&mut head, "x");
    head.extend(numbers(&[u64::MAX, u64::MAX, u64::MAX, zones]));
    for _ in 0..zones {
        number(&mut head, u64::MAX);
        name(&mut head, &"z".repeat(255));
        head.extend(numbers(&[u64::MAX; 6]));
    }
    number(&mut head, ranges.len() as u64);
    for &(gap, len) in ranges {
        head.extend(numbers(&[gap, len]));
    }
    let parts: Vec<_> = [(&head[..], 1)].iter().chain(parts).copied().collect();
    file(&SNAPSHOT_FORMAT, &parts)
}

fn snapshots() -> Vec<Hostile> {
    let hostile = |name, bytes, shown| Hostile { name, kind: Snapshot, bytes, shown };
    let (free, used) = (1 << 4 | 1, 1 << 4 | 2);
    let frames = |count: u64| (0, count << 12);
    let free_frames = |count: u64| numbers(&[count << 4 | 1]);
    let all = u64::MAX >> 12;
    vec![
        hostile(
            "runs.swsnap",
            snapshot(&[frames(20_000_000)], 0, &[(&[free, used], 10_000_000)]),
            Refused("too large: more than 8388608 bytes"),
        ),
        hostile(
            "full.swsnap",
            snapshot(&[frames(8_000_000)], 0, &[(&[free, used], 4_000_000)]),
            Answer("4000000 frames in 4000000 extents"),
        ),
        hostile(
            "whole.swsnap",
            snapshot(&[(0, u64::MAX)], 0, &[(&free_frames(all), 1)]),
            Answer("4503599627370495 frames in 1 extents"),
        ),
        hostile(
            "zones.swsnap",
            snapshot(&[frames(1)], 4096, &[(&free_frames(1), 1)]),
            Answer("1 frames in 1 extents"),
        ),
        hostile(
            "far.swsnap",
            snapshot(
                &[(0, 1 << 20), ((1 << 40) - (1 << 21), 1 << 20)],
                0,
                &[(&free_frames(256), 2)],
            ),
            Answer("512 frames in 2 extents"),
        ),
    ]
}

/// Every hostile file.
pub(super) fn all() -> Vec<Hostile> {
    [traces(), texts(), heaps(), recordings(), snapshots()].into_iter().flatten().collect()
}
