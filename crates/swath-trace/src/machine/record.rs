//! Taking a machine snapshot of a live Linux machine.
//!
//! Two files say what the frames are: `/proc/iomem` where RAM lies, and
//! `/proc/kpageflags` a word of flags for each frame number, which is read in
//! chunks and over RAM alone. Reading takes no lock: a machine that works
//! meanwhile gives a picture that is blurred by what changed within the second
//! or so that it takes.
//!
//! `/proc/kpagecount` is not read: it says how often a frame is mapped, and of
//! a frame without another flag KPF_MMAP says whether it is, which is all that
//! matters here. The kernel takes both from the same word.
//!
//! Specification: the kernel's `Documentation/admin-guide/mm/pagemap.rst`, and
//! `include/uapi/linux/kernel-page-flags.h` for the flags up to bit 26. Bit 32
//! is from `include/linux/kernel-page-flags.h`, which the kernel keeps for
//! itself but has shown since 2009.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use swath_arch::{BASE_PAGE_BYTES, Extent, Pfn, PhysAddr};

use crate::machine::facts::{MachineFacts, ZoneFacts};
use crate::machine::snapshot::{Builder, FrameKind, RamRange, Snapshot};

/// Frames read at a time: 16 KiB of the table, which stay in a processor's first cache from the
/// kernel's writing to the reading here. In pieces of 512 KiB a frame takes a fifth longer.
const CHUNK_FRAMES: u64 = 1 << 11;

/// Frames of one account of progress.
const TOLD_FRAMES: u64 = 1 << 16;

/// Bytes of a frame's word.
const WORD_BYTES: u64 = 8;

const LRU: u64 = 1 << 5;
const SLAB: u64 = 1 << 7;
const BUDDY: u64 = 1 << 10;
const ANON: u64 = 1 << 12;
const HUGE: u64 = 1 << 17;
const HWPOISON: u64 = 1 << 19;
const NOPAGE: u64 = 1 << 20;
const THP: u64 = 1 << 22;
const OFFLINE: u64 = 1 << 23;
const ZERO_PAGE: u64 = 1 << 24;
const PGTABLE: u64 = 1 << 26;
const RESERVED: u64 = 1 << 32;

/// Reasons why a live machine cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Not Linux.
    #[error("a snapshot is read from Linux's /proc; this is {os}")]
    Unsupported {
        /// The operating system.
        os: &'static str,
    },
    /// The rights are missing.
    #[error(
        "{path} hides its contents from this user: to see every frame takes root or CAP_SYS_ADMIN, \
         for example by `sudo` (in a container also `--privileged`)"
    )]
    NotPermitted {
        /// The file that told.
        path: PathBuf,
    },
    /// The kernel does not offer the file.
    #[error("{path} does not exist: the kernel was built without CONFIG_PROC_PAGE_MONITOR")]
    NoPageMonitor {
        /// The file.
        path: PathBuf,
    },
    /// The kernel cannot take memory offline.
    #[error("{path} has no block_size_bytes: the kernel was built without CONFIG_MEMORY_HOTPLUG")]
    NoMemoryBlocks {
        /// The folder of memory blocks.
        path: PathBuf,
    },
    /// Frames of another size.
    #[error("this machine's base pages are {len_bytes} bytes; a snapshot counts frames of 4096")]
    PageSize {
        /// The size in bytes.
        len_bytes: u64,
    },
    /// A file whose text is not what the kernel documents.
    #[error("{path}, line {line}: {what}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The line, from 1; 0 for the whole file.
        line: usize,
        /// Description of the fault.
        what: &'static str,
    },
    /// A figure of the kernel's account is missing.
    #[error("{path}: no line {key:?} with a figure in kB")]
    MemoryFigure {
        /// The file.
        path: PathBuf,
        /// The word at the line's start.
        key: &'static str,
    },
    /// A file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// Returns the use of a frame by its word of flags.
/// The first that applies, from what is certain to what is left over:
///
/// | kind | flags |
/// |---|---|
/// | absent | NOPAGE |
/// | offline | HWPOISON or OFFLINE |
/// | free | BUDDY |
/// | huge_tlb | HUGE |
/// | slab | SLAB (before ANON: slab reuses the word that ANON is read from) |
/// | page_table | PGTABLE |
/// | reserved | RESERVED or ZERO_PAGE |
/// | large_folio | THP |
/// | anon | ANON |
/// | file | LRU |
/// | unknown | no flag, nor MMAP: it is not mapped either |
/// | kernel | all others |
pub fn classify(flags: u64) -> FrameKind {
    let any = |mask: u64| flags & mask != 0;
    match () {
        () if any(NOPAGE) => FrameKind::Absent,
        () if any(HWPOISON | OFFLINE) => FrameKind::Offline,
        () if any(BUDDY) => FrameKind::Free,
        () if any(HUGE) => FrameKind::HugeTlb,
        () if any(SLAB) => FrameKind::Slab,
        () if any(PGTABLE) => FrameKind::PageTable,
        () if any(RESERVED | ZERO_PAGE) => FrameKind::Reserved,
        () if any(THP) => FrameKind::LargeFolio,
        () if any(ANON) => FrameKind::Anon,
        () if any(LRU) => FrameKind::File,
        () if flags == 0 => FrameKind::Unknown,
        () => FrameKind::Kernel,
    }
}

/// Takes a snapshot of this machine. `progress` is told the frames done and
/// the frames in all, now and then. O(frames of RAM), about a second for
/// 24 GiB.
///
/// # Errors
/// [`CaptureError`], which says what to do about missing rights.
pub fn capture(progress: &mut dyn FnMut(u64, u64)) -> Result<Snapshot, CaptureError> {
    if !cfg!(target_os = "linux") {
        return Err(CaptureError::Unsupported { os: std::env::consts::OS });
    }
    capture_from(Path::new("/proc"), progress)
}

/// Takes a snapshot of the machine whose `/proc` stands at `proc`.
///
/// # Errors
/// As [`capture`].
pub fn capture_from(
    proc: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Snapshot, CaptureError> {
    let ranges = read_ranges(proc)?;
    let mut frames = Frames::open(proc)?;
    let facts = read_facts(proc)?;

    let iomem = proc.join("iomem");
    let misfit = |what| CaptureError::Format { path: iomem.clone(), line: 0, what };
    let total: u64 = ranges.iter().map(|range| range.frames().count).sum();
    let mut builder = Builder::new(facts, ranges.clone()).map_err(misfit)?;
    let mut done = 0;
    for range in &ranges {
        let mut rest = range.frames();
        while !rest.is_empty() {
            let count = TOLD_FRAMES.min(rest.count);
            let mut wrong = Ok(());
            frames.read(Extent::new(rest.start, count), &mut |flags, frames| {
                wrong = wrong.and_then(|()| builder.extend(classify(flags), frames));
            })?;
            wrong.map_err(misfit)?;
            rest = Extent::new(Pfn::new(rest.start.raw() + count), rest.count - count);
            done += count;
            progress(done, total);
        }
    }
    builder.finish().map_err(misfit)
}

/// Returns where the RAM of the machine lies whose `/proc` stands at `proc`.
pub(crate) fn read_ranges(proc: &Path) -> Result<Vec<RamRange>, CaptureError> {
    check_page_size(&proc.join("self/auxv"))?;
    let iomem = proc.join("iomem");
    parse_iomem(&text(&iomem)?, &iomem)
}

/// The kernel's table of frames, open for reading.
pub(crate) struct Frames {
    path: PathBuf,
    table: File,
    words: Vec<u8>,
}

impl Frames {
    /// Opens the table of the machine whose `/proc` stands at `proc`.
    pub(crate) fn open(proc: &Path) -> Result<Self, CaptureError> {
        let path = proc.join("kpageflags");
        match File::open(&path) {
            Ok(table) => {
                Ok(Self { path, table, words: vec![0; (CHUNK_FRAMES * WORD_BYTES) as usize] })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CaptureError::NoPageMonitor { path })
            }
            Err(error) => Err(failed(&path, error)),
        }
    }

    /// Tells `each` run of frames with the same flags: the flags and the number of frames, ascending;
    /// now and then a run in two parts.
    /// Frames that the kernel knows nothing of, beyond the table's end, have the flag of such frames,
    /// NOPAGE. O(frames); a word costs the kernel 45 to 130 ns, a run here some 10 and a word of it 1.
    pub(crate) fn read(
        &mut self,
        frames: Extent,
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<(), CaptureError> {
        let mut rest = frames;
        while !rest.is_empty() {
            let count = rest.count.min(CHUNK_FRAMES);
            let words = self.words(Extent::new(rest.start, count))?.as_chunks().0;
            for run in words.chunk_by(|a, b| a == b) {
                each(u64::from_ne_bytes(run[0]), run.len() as u64);
            }
            if (words.len() as u64) < count {
                each(NOPAGE, rest.count - words.len() as u64);
                break;
            }
            rest = Extent::new(Pfn::new(rest.start.raw() + count), rest.count - count);
        }
        Ok(())
    }

    /// Returns the flags of one frame. O(1).
    pub(crate) fn flags(&mut self, frame: Pfn) -> Result<u64, CaptureError> {
        let word = self.words(Extent::new(frame, 1))?.as_chunks().0.first();
        Ok(word.map_or(NOPAGE, |word| u64::from_ne_bytes(*word)))
    }

    /// The words of so many frames, [`CHUNK_FRAMES`] at most; fewer at the table's end.
    fn words(&mut self, frames: Extent) -> Result<&[u8], CaptureError> {
        let len = (frames.count * WORD_BYTES) as usize;
        let at = frames.start.raw().checked_mul(WORD_BYTES);
        let at = at.ok_or_else(|| failed(&self.path, io::ErrorKind::InvalidInput.into()))?;
        let mut done = 0;
        while done < len {
            match self.table.read_at(&mut self.words[done..len], at.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&self.path, error)),
            }
        }
        Ok(&self.words[..done])
    }
}

fn failed(path: &Path, source: io::Error) -> CaptureError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => CaptureError::NotPermitted { path },
        _ => CaptureError::Io { path, source },
    }
}

fn text(path: &Path) -> Result<String, CaptureError> {
    fs::read_to_string(path).map_err(|error| failed(path, error))
}

/// The contents of a file that not every kernel has, nor shows to every user: nothing then.
pub(crate) fn optional_text(path: &Path) -> Result<Option<String>, CaptureError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
            _ => Err(failed(path, error)),
        },
    }
}

/// The size of a page, from the vector of pairs of words that the kernel
/// hands every process; entry 6 is the page size.
fn check_page_size(path: &Path) -> Result<(), CaptureError> {
    const AT_PAGESZ: usize = 6;
    const LEN: usize = size_of::<usize>();
    let bytes = fs::read(path).map_err(|error| failed(path, error))?;
    let mut words = bytes.as_chunks::<LEN>().0.iter().map(|bytes| usize::from_ne_bytes(*bytes));
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if key == AT_PAGESZ {
            let len_bytes = value as u64;
            return if len_bytes == BASE_PAGE_BYTES {
                Ok(())
            } else {
                Err(CaptureError::PageSize { len_bytes })
            };
        }
    }
    let what = "no entry gives the page size";
    Err(CaptureError::Format { path: path.to_owned(), line: 0, what })
}

/// The lines `START-END : System RAM` (or `System RAM (…)`, as for memory
/// added by a driver), ascending and merged.
fn parse_iomem(text: &str, path: &Path) -> Result<Vec<RamRange>, CaptureError> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut hidden = false;
    for (line, content) in text.lines().enumerate() {
        let Some((range, name)) = content.split_once(" : ") else { continue };
        if name != "System RAM" && !name.starts_with("System RAM (") {
            continue;
        }
        let wrong = |what| CaptureError::Format { path: path.to_owned(), line: line + 1, what };
        let (first, last) = range.trim().split_once('-').ok_or(wrong("no range of addresses"))?;
        let hex =
            |digits| u64::from_str_radix(digits, 16).map_err(|_| wrong("no hexadecimal address"));
        let (first, last) = (hex(first)?, hex(last)?);
        if (first, last) == (0, 0) {
            hidden = true;
            continue;
        }
        match last.checked_add(1) {
            Some(end) if first < end => ranges.push((first, end)),
            _ => return Err(wrong("a range that ends before it starts")),
        }
    }
    if ranges.is_empty() {
        // Without the rights every address reads as zero.
        let path = path.to_owned();
        return Err(if hidden {
            CaptureError::NotPermitted { path }
        } else {
            CaptureError::Format { path, line: 0, what: "no System RAM" }
        });
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    let range = |(start, end)| RamRange { start: PhysAddr::new(start), len_bytes: end - start };
    Ok(merged.into_iter().map(range).collect())
}

/// The facts of the machine whose `/proc` stands at `proc`.
pub(crate) fn read_facts(proc: &Path) -> Result<MachineFacts, CaptureError> {
    let release = text(&proc.join("sys/kernel/osrelease"))?;
    let [total_frames, free_frames] = memory_frames(proc, ["MemTotal:", "MemFree:"])?;
    Ok(MachineFacts {
        kernel_release: release.trim().to_owned(),
        total_frames,
        free_frames,
        buddy_frames: free_blocks(proc)?.iter().map(|zone| zone.of_order(0)).sum(),
        zones: read_zones(proc)?,
    })
}

/// The zones of the machine whose `/proc` stands at `proc`.
pub(crate) fn read_zones(proc: &Path) -> Result<Vec<ZoneFacts>, CaptureError> {
    let zoneinfo = proc.join("zoneinfo");
    parse_zoneinfo(&text(&zoneinfo)?, &zoneinfo)
}

/// The frames that the kernel counts as free, by the `meminfo` of the `/proc` that stands at
/// `proc`. O(1).
///
/// # Errors
/// [`CaptureError`].
pub fn free_frames(proc: &Path) -> Result<u64, CaptureError> {
    memory_frames(proc, ["MemFree:"]).map(|[frames]| frames)
}

/// The frames that programs could have if they asked for them: those that are free, and what the kernel would
/// give up for it; by the same file. O(1).
///
/// # Errors
/// [`CaptureError`].
pub fn available_frames(proc: &Path) -> Result<u64, CaptureError> {
    memory_frames(proc, ["MemAvailable:"]).map(|[frames]| frames)
}

/// The frames that the kernel manages, by the same file. O(1).
///
/// # Errors
/// [`CaptureError`].
pub fn total_frames(proc: &Path) -> Result<u64, CaptureError> {
    memory_frames(proc, ["MemTotal:"]).map(|[frames]| frames)
}

/// Figures of `meminfo` in frames, each by the word at the start of its line.
pub(crate) fn memory_frames<const N: usize>(
    proc: &Path,
    keys: [&'static str; N],
) -> Result<[u64; N], CaptureError> {
    let path = proc.join("meminfo");
    let memory = text(&path)?;
    let mut frames = [0; N];
    for (frames, key) in frames.iter_mut().zip(keys) {
        let line = memory.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        let missing = CaptureError::MemoryFigure { path: path.clone(), key };
        *frames = kib.map(|kib| kib / (BASE_PAGE_BYTES >> 10)).ok_or(missing)?;
    }
    Ok(frames)
}

/// The free blocks of one zone's buddy allocator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FreeBlocks {
    /// The NUMA node.
    pub node: u64,
    /// The zone's name.
    pub zone: String,
    /// The number of free blocks of each order.
    pub blocks: Vec<u64>,
}

impl FreeBlocks {
    /// Returns the blocks of 2^order frames that lie in the free blocks of this order and above, and
    /// `u64::MAX` if there are more.
    pub fn of_order(&self, order: usize) -> u64 {
        let above = self.blocks.iter().enumerate().skip(order);
        let within = |(at, blocks): (usize, &u64)| {
            1u64.checked_shl((at - order) as u32).and_then(|size| size.checked_mul(*blocks))
        };
        above.fold(0u64, |sum, at| sum.saturating_add(within(at).unwrap_or(u64::MAX)))
    }
}

/// Reads the free blocks of each zone of the machine whose `/proc` stands at `proc`; any user may.
///
/// # Errors
/// [`CaptureError`].
pub fn free_blocks(proc: &Path) -> Result<Vec<FreeBlocks>, CaptureError> {
    let path = proc.join("buddyinfo");
    parse_buddyinfo(&text(&path)?, &path)
}

/// Lines `Node 0, zone Normal 12 5 …`: free blocks of each order, of fewer than 2^64 frames in all.
fn parse_buddyinfo(text: &str, path: &Path) -> Result<Vec<FreeBlocks>, CaptureError> {
    let mut zones = Vec::new();
    let mut total: u64 = 0;
    for (line, content) in text.lines().enumerate() {
        let wrong = |what| CaptureError::Format { path: path.to_owned(), line: line + 1, what };
        let mut words = content.split_whitespace();
        let [Some("Node"), Some(node), Some("zone"), Some(zone)] = [(); 4].map(|()| words.next())
        else {
            return Err(wrong("no zone of a node"));
        };
        let node = node.trim_end_matches(',').parse().map_err(|_| wrong("no number of a node"))?;
        let blocks = words.map(str::parse).collect::<Result<_, _>>();
        let blocks = blocks.map_err(|_| wrong("no count of blocks"))?;
        let zone = FreeBlocks { node, zone: zone.to_owned(), blocks };
        total = total.saturating_add(zone.of_order(0));
        if total == u64::MAX {
            return Err(wrong("no count of blocks"));
        }
        zones.push(zone);
    }
    Ok(zones)
}

/// Blocks that start with `Node 0, zone Normal`, one fact to a line.
fn parse_zoneinfo(text: &str, path: &Path) -> Result<Vec<ZoneFacts>, CaptureError> {
    let mut zones: Vec<ZoneFacts> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let words: Vec<&str> = content.split_whitespace().collect();
        let number = |digits: &str| {
            let what = "no number";
            digits.trim_end_matches(',').parse::<u64>().map_err(|_| CaptureError::Format {
                path: path.to_owned(),
                line: line + 1,
                what,
            })
        };
        match (&words[..], zones.last_mut()) {
            (["Node", node, "zone", name], _) => zones.push(ZoneFacts {
                node: number(node)?,
                name: (*name).to_owned(),
                ..ZoneFacts::default()
            }),
            (["pages", "free", n], Some(zone)) => zone.free_frames = number(n)?,
            (["spanned", n], Some(zone)) => zone.spanned_frames = number(n)?,
            (["present", n], Some(zone)) => zone.present_frames = number(n)?,
            (["managed", n], Some(zone)) => zone.managed_frames = number(n)?,
            (["start_pfn:", n], Some(zone)) => zone.start_frame = number(n)?,
            (["count:", n], Some(zone)) => {
                zone.per_cpu_frames = zone.per_cpu_frames.saturating_add(number(n)?);
            }
            _ => {}
        }
    }
    zones.retain(|zone| zone.present_frames > 0);
    Ok(zones)
}
