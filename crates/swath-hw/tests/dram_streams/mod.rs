//! The streams of requests with which the memory is held against other simulators, and the
//! memories that they run on.
//!
//! A stream is a pattern of addresses with a share of reads. Which requests are writes is drawn
//! for each, except in copies, where a write follows the reads that it needs. The **held-out**
//! streams were written and run after the default scheduling had been chosen with the others.
//! No burst comes twice within [`APART`] requests: what
//! happens to a write behind a read of its own burst is no matter of scheduling, and one of the
//! simulators stands still then.

use std::collections::HashSet;

use swath_arch::testing::Random;
use swath_hw::dram::{DDR3_800, DDR4_3200, LPDDR4_3200, LPDDR5_6400};
use swath_hw::dram::{DramConfig, Part};
use swath_hw::{AddressMapping, Scheduling};

/// Requests in a stream: those of a frame of 1,280 × 720 pixels of 4 bytes.
pub(crate) const REQUESTS: u64 = 57_600;
/// Requests between two of one burst, at least.
const APART: usize = 1024;
/// Bytes of a burst.
const BURST: u64 = 64;
/// Every stream stays below this address.
const SPAN_BYTES: u64 = 1 << 30;
/// The distance between streams that meet in one bank: a multiple of what all banks hold in a row.
const SAME_BANK_BYTES: u64 = 1 << 26;
/// Bytes of a line of the frame, and its lines.
const LINE_BYTES: u64 = 1280 * 4;
const LINES: u64 = 720;

/// The memories, by name.
pub(crate) const MEMORIES: [&str; 5] =
    ["DDR3-800", "DDR4-3200", "LPDDR4-3200", "DDR5-4800", "LPDDR5-6400"];

/// The shares of reads in percent.
pub(crate) const READ_PERCENT: [u32; 3] = [100, 75, 50];

/// A pattern of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// One address after another at a distance in bytes.
    Stride(u64),
    /// From the top downwards.
    Backward,
    /// Runs of so many bursts, at random within so many bytes.
    Random { run_bursts: u64, span_bytes: u64 },
    /// A frame column by column.
    Vertical,
    /// A frame in blocks of a burst's width and so many lines.
    Blocks { lines: u64 },
    /// Readers and writers that take turns, each going through memory of its own.
    Masters { masters: u64, distance_bytes: u64 },
    /// Sources that are read into one destination, so many bursts of each at a time.
    Copy { run_bursts: u64, distance_bytes: u64 },
    /// Nine of ten requests go to 16 areas of 32 KiB, the others anywhere.
    HotRows,
    /// Every second request is the next of a stream, the others are random.
    HalfRandom,
    /// The order of a fast Fourier transform: bits of the number reversed.
    Reversed,
}

/// A pattern with its name.
pub(crate) struct Stream {
    pub(crate) name: &'static str,
    pub(crate) pattern: Pattern,
    /// Not yet written when the scheduling was chosen.
    pub(crate) held_out: bool,
}

const fn stream(name: &'static str, held_out: bool, pattern: Pattern) -> Stream {
    Stream { name, pattern, held_out }
}

/// The streams.
pub(crate) const STREAMS: [Stream; 36] = [
    stream("sequential", false, Pattern::Stride(64)),
    stream("stride 192", false, Pattern::Stride(192)),
    stream("stride 640", false, Pattern::Stride(640)),
    stream("stride 4096", false, Pattern::Stride(4096)),
    stream("stride 4160", false, Pattern::Stride(4160)),
    stream("stride 8192", false, Pattern::Stride(8192)),
    stream("stride 16448", false, Pattern::Stride(16448)),
    stream("backward", false, Pattern::Backward),
    stream("random 64 MiB", false, Pattern::Random { run_bursts: 1, span_bytes: 1 << 26 }),
    stream("random 1 GiB", false, Pattern::Random { run_bursts: 1, span_bytes: 1 << 30 }),
    stream("random 1 MiB", false, Pattern::Random { run_bursts: 1, span_bytes: 1 << 20 }),
    stream("random runs of 256", false, Pattern::Random { run_bursts: 4, span_bytes: 1 << 28 }),
    stream("random runs of 1024", false, Pattern::Random { run_bursts: 16, span_bytes: 1 << 28 }),
    stream("vertical", false, Pattern::Vertical),
    stream("blocks", false, Pattern::Blocks { lines: 16 }),
    stream("2 masters", false, Pattern::Masters { masters: 2, distance_bytes: 37 << 20 | 0x5240 }),
    stream(
        "4 masters, one bank",
        false,
        Pattern::Masters { masters: 4, distance_bytes: SAME_BANK_BYTES },
    ),
    stream("8 masters", false, Pattern::Masters { masters: 8, distance_bytes: 19 << 20 | 0x3480 }),
    stream(
        "copy in one bank",
        false,
        Pattern::Copy { run_bursts: 1, distance_bytes: SAME_BANK_BYTES },
    ),
    stream("copy", false, Pattern::Copy { run_bursts: 1, distance_bytes: 53 << 20 | 0x6600 }),
    stream(
        "copy by 1024, one bank",
        false,
        Pattern::Copy { run_bursts: 16, distance_bytes: SAME_BANK_BYTES },
    ),
    stream("hot rows", false, Pattern::HotRows),
    stream("half random", false, Pattern::HalfRandom),
    stream("bits reversed", false, Pattern::Reversed),
    stream("stride 320", true, Pattern::Stride(320)),
    stream("stride 1088", true, Pattern::Stride(1088)),
    stream("stride 12288", true, Pattern::Stride(12288)),
    stream("stride 33024", true, Pattern::Stride(33024)),
    stream("random 16 MiB", true, Pattern::Random { run_bursts: 1, span_bytes: 1 << 24 }),
    stream("random runs of 128", true, Pattern::Random { run_bursts: 2, span_bytes: 1 << 24 }),
    stream("random runs of 512", true, Pattern::Random { run_bursts: 8, span_bytes: 1 << 29 }),
    stream("blocks of 48 lines", true, Pattern::Blocks { lines: 48 }),
    stream("3 masters", true, Pattern::Masters { masters: 3, distance_bytes: 41 << 20 | 0x1b80 }),
    stream(
        "6 masters, one bank",
        true,
        Pattern::Masters { masters: 6, distance_bytes: SAME_BANK_BYTES },
    ),
    stream("copy by 256", true, Pattern::Copy { run_bursts: 4, distance_bytes: 29 << 20 | 0x4940 }),
    stream(
        "copy by 4096, one bank",
        true,
        Pattern::Copy { run_bursts: 64, distance_bytes: SAME_BANK_BYTES },
    ),
];

/// Returns the requests of a stream, as addresses and whether each is a write.
pub(crate) fn requests(pattern: Pattern, read_percent: u32) -> Vec<(u64, bool)> {
    let mut random = Random::new(1);
    let mut kind = Random::new(2);
    let mut requests: Vec<(u64, bool)> = Vec::with_capacity(REQUESTS as usize);
    let mut recent = HashSet::new();
    for n in 0..REQUESTS {
        let write = match pattern {
            Pattern::Copy { run_bursts, .. } => {
                let places = copy_places(read_percent);
                read_percent < 100 && n / run_bursts % places == places - 1
            }
            _ => kind.word() % 100 >= u64::from(read_percent),
        };
        let before = requests.last().map_or(0, |&(addr, _)| addr);
        let mut addr = address(pattern, n, before, read_percent, &mut random) % SPAN_BYTES;
        while !recent.insert(addr) {
            addr = random.word() % (SPAN_BYTES / BURST) * BURST;
        }
        requests.push((addr, write));
        if let Some(old) = requests.len().checked_sub(APART) {
            recent.remove(&requests[old].0);
        }
    }
    requests
}

/// The places that a copy goes through: a destination for one source at 50 percent, for three at
/// 75; with reads alone, two sources.
fn copy_places(read_percent: u32) -> u64 {
    if read_percent == 75 { 4 } else { 2 }
}

/// The address of the request `n`, where the last one went to `before`.
fn address(pattern: Pattern, n: u64, before: u64, read_percent: u32, random: &mut Random) -> u64 {
    let mut draw = |span: u64| random.word() % (span / BURST) * BURST;
    match pattern {
        Pattern::Stride(bytes) => n * bytes,
        Pattern::Backward => (REQUESTS - 1 - n) * BURST,
        Pattern::Random { run_bursts, .. } if !n.is_multiple_of(run_bursts) => before + BURST,
        Pattern::Random { run_bursts, span_bytes } => draw(span_bytes / run_bursts) * run_bursts,
        Pattern::Vertical => n / LINES * BURST + n % LINES * LINE_BYTES,
        Pattern::Blocks { lines } => {
            let (block, line) = (n / lines, n % lines);
            let (across, down) = (block / (LINES / lines), block % (LINES / lines));
            across * BURST + (down * lines + line) * LINE_BYTES
        }
        Pattern::Masters { masters, distance_bytes } => {
            n % masters * distance_bytes + n / masters * BURST
        }
        Pattern::Copy { run_bursts, distance_bytes } => {
            let (turn, burst, places) = (n / run_bursts, n % run_bursts, copy_places(read_percent));
            turn % places * distance_bytes + (turn / places * run_bursts + burst) * BURST
        }
        Pattern::HotRows if draw(10 * BURST) > 0 => draw(16 * BURST) << 20 | draw(1 << 15),
        Pattern::HotRows => draw(SPAN_BYTES),
        Pattern::HalfRandom if n.is_multiple_of(2) => n / 2 * BURST,
        Pattern::HalfRandom => draw(1 << 28),
        Pattern::Reversed => u64::from((n as u16).reverse_bits()) * BURST,
    }
}

/// Returns the memory of a name, with queues of 32 requests and the default scheduling.
pub(crate) fn memory(name: &str) -> DramConfig {
    let (part, channels, ranks): (Part, u32, u32) = match name {
        "DDR3-800" => (DDR3_800, 4, 1),
        "DDR4-3200" => (DDR4_3200, 1, 2),
        "LPDDR4-3200" => (LPDDR4_3200, 1, 1),
        "DDR5-4800" => return DramConfig::ddr5_module(),
        "LPDDR5-6400" => (LPDDR5_6400, 1, 1),
        _ => panic!("no memory {name}"),
    };
    let mapping = AddressMapping::interleaved(&part, channels, ranks, BURST).unwrap();
    DramConfig { part, channels, ranks, mapping, scheduling: Scheduling::fr_fcfs(32) }
}
