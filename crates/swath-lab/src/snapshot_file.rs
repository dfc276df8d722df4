//! Machine snapshots as files.
//!
//! A signature, a version, and one zstd frame of numbers: the facts, the RAM
//! ranges, and a number to each run of frames. `docs/formats.md` describes
//! each byte. Reading trusts nothing: counts are limited, nothing is allocated
//! by a length that was read, and whatever reads as a snapshot is one whose
//! invariants hold.

use std::io::{self, Read, Write};
use std::path::Path;

use swath_arch::PhysAddr;

use crate::input::{Input, NumberError, put_number};
use crate::snapshot::{
    Builder, Facts, NAME_BYTES_MAX, RANGES_MAX, RamRange, Snapshot, ZONES_MAX, Zone, check_name,
};

/// The file's first eight bytes. The line end at their close shows a copy
/// that went through text conversion.
pub const MAGIC: [u8; 8] = *b"SWSNAP\r\n";

/// The version of the format, byte 8 of the file.
pub const VERSION: u8 = 1;

/// zstd's window while reading: 8 MiB, what level 19 writes.
const WINDOW_LOG2: u32 = 23;

/// zstd's level: a snapshot is written once.
const LEVEL: i32 = 19;

/// Why a snapshot cannot be read. Offsets count bytes from 0; those of the
/// content count after decompression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file does not start as a snapshot does.
    #[error("not a machine snapshot: byte {offset} of the file is not that of the signature")]
    Magic {
        /// The first byte that differs.
        offset: u64,
    },
    /// Another version of the format.
    #[error("byte 8 says snapshot version {found}; this program reads version {VERSION}")]
    Version {
        /// The version.
        found: u8,
    },
    /// The file is cut short.
    #[error("the snapshot is cut short: byte {offset} of its content, within {what}, is missing")]
    Truncated {
        /// Offset of the first missing byte in the content.
        offset: u64,
        /// What was being read.
        what: &'static str,
    },
    /// A value that cannot be.
    #[error("byte {offset} of the snapshot's content: {what}")]
    Malformed {
        /// Where the value starts in the content.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The compressed bytes contradict themselves or their checksum.
    #[error(
        "the snapshot is damaged: its compressed data after byte {offset} of the content: {source}"
    )]
    Damaged {
        /// How much of the content was sound.
        offset: u64,
        /// The decompressor's words.
        source: io::Error,
    },
    /// The file could not be opened, read or written.
    #[error("{source}")]
    Io {
        /// The system's words.
        #[from]
        source: io::Error,
    },
}

impl Snapshot {
    /// Writes the file's bytes. The same snapshot gives the same bytes.
    /// O(runs), with about two bytes of memory to a run.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&MAGIC)?;
        to.write_all(&[VERSION])?;
        let mut out = Vec::new();
        let put_name = |out: &mut Vec<u8>, name: &str| {
            put_number(out, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
        };
        put_name(&mut out, &self.facts().kernel_release);
        for number in
            [self.facts().total_frames, self.facts().free_frames, self.facts().buddy_frames]
        {
            put_number(&mut out, number);
        }
        put_number(&mut out, self.facts().zones.len() as u64);
        for zone in &self.facts().zones {
            put_number(&mut out, zone.node);
            put_name(&mut out, &zone.name);
            for number in zone_numbers(zone) {
                put_number(&mut out, number);
            }
        }
        put_number(&mut out, self.ranges().len() as u64);
        let mut end = 0;
        for range in self.ranges() {
            put_number(&mut out, range.start.raw() - end);
            put_number(&mut out, range.len_bytes);
            end = range.start.raw() + range.len_bytes;
        }
        for run in self.runs() {
            put_number(&mut out, run.extent.count << 4 | u64::from(run.kind.code()));
        }
        let mut zstd = zstd::stream::write::Encoder::new(to, LEVEL)?;
        zstd.include_checksum(true)?;
        // Known beforehand, so that a small machine takes little memory.
        zstd.set_pledged_src_size(Some(out.len() as u64))?;
        zstd.write_all(&out)?;
        zstd.finish()?.flush()
    }

    /// Writes a file: beside its place first, then renamed, so that nobody
    /// ever sees half of it.
    ///
    /// # Errors
    /// Those of the file system; the file is then as it was.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        crate::output::replace(path, |file| self.write(file))
    }

    /// Reads a file's bytes up to their end. O(runs), and never more memory
    /// than [`RUNS_MAX`](crate::snapshot::RUNS_MAX) runs take.
    ///
    /// # Errors
    /// A [`SnapshotError`] that names the byte.
    pub fn read(mut from: impl Read) -> Result<Self, SnapshotError> {
        let mut head = Vec::new();
        from.by_ref().take(MAGIC.len() as u64 + 1).read_to_end(&mut head)?;
        if let Some(offset) = (0..MAGIC.len()).find(|&i| head.get(i) != Some(&MAGIC[i])) {
            return Err(SnapshotError::Magic { offset: offset as u64 });
        }
        match head.get(MAGIC.len()) {
            Some(&VERSION) => {}
            Some(&found) => return Err(SnapshotError::Version { found }),
            None => return Err(SnapshotError::Truncated { offset: 0, what: "the version" }),
        }
        let mut zstd = zstd::stream::read::Decoder::new(from)?;
        zstd.window_log_max(WINDOW_LOG2)?;
        Content(Input::new(zstd)).snapshot()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A [`SnapshotError`]: the file cannot be opened, or what is wrong in it.
    pub fn load(path: &Path) -> Result<Self, SnapshotError> {
        Self::read(std::fs::File::open(path)?)
    }
}

fn zone_numbers(zone: &Zone) -> [u64; 6] {
    [
        zone.start_frame,
        zone.spanned_frames,
        zone.present_frames,
        zone.managed_frames,
        zone.free_frames,
        zone.per_cpu_frames,
    ]
}

/// The decompressed content of a file.
struct Content<R>(Input<R>);

impl<R: Read> Content<R> {
    fn failed(&self, source: io::Error, what: &'static str) -> SnapshotError {
        let offset = self.0.offset() + self.0.buffered().len() as u64;
        match source.kind() {
            _ if source.raw_os_error().is_some() => SnapshotError::Io { source },
            io::ErrorKind::UnexpectedEof => SnapshotError::Truncated { offset, what },
            _ => SnapshotError::Damaged { offset, source },
        }
    }

    fn number(&mut self, what: &'static str) -> Result<u64, SnapshotError> {
        self.0.number().map_err(|error| match error {
            NumberError::Io(source) => self.failed(source, what),
            NumberError::Truncated => {
                let offset = self.0.offset() + self.0.buffered().len() as u64;
                SnapshotError::Truncated { offset, what }
            }
            NumberError::Malformed => self.malformed("a number of more than 64 bits or padded"),
        })
    }

    fn malformed(&self, what: &'static str) -> SnapshotError {
        SnapshotError::Malformed { offset: self.0.offset(), what }
    }

    /// A count that stands before so many items.
    fn count(&mut self, max: usize, what: &'static str) -> Result<usize, SnapshotError> {
        let offset = self.0.offset();
        let count = self.number(what)?;
        usize::try_from(count).ok().filter(|&count| count <= max).ok_or(SnapshotError::Malformed {
            offset,
            what: "a count beyond the limit of the format",
        })
    }

    fn name(&mut self, what: &'static str) -> Result<String, SnapshotError> {
        let len = self.count(NAME_BYTES_MAX, what)?;
        let offset = self.0.offset();
        let bytes = match self.0.fill(len) {
            Ok(bytes) => bytes,
            Err(source) => return Err(self.failed(source, what)),
        };
        let Some(name) = bytes.get(..len) else {
            return Err(SnapshotError::Truncated { offset: offset + bytes.len() as u64, what });
        };
        check_name(name).map_err(|what| SnapshotError::Malformed { offset, what })?;
        let name = String::from_utf8_lossy(name).into_owned();
        self.0.consume(len);
        Ok(name)
    }

    fn facts(&mut self) -> Result<Facts, SnapshotError> {
        let mut facts = Facts {
            kernel_release: self.name("the kernel release")?,
            total_frames: self.number("the frames in all")?,
            free_frames: self.number("the free frames")?,
            buddy_frames: self.number("the buddy allocator's frames")?,
            zones: Vec::new(),
        };
        for _ in 0..self.count(ZONES_MAX, "the number of zones")? {
            facts.zones.push(Zone {
                node: self.number("a zone's node")?,
                name: self.name("a zone's name")?,
                start_frame: self.number("a zone's start")?,
                spanned_frames: self.number("a zone's span")?,
                present_frames: self.number("a zone's present frames")?,
                managed_frames: self.number("a zone's managed frames")?,
                free_frames: self.number("a zone's free frames")?,
                per_cpu_frames: self.number("a zone's per-CPU frames")?,
            });
        }
        Ok(facts)
    }

    fn ranges(&mut self) -> Result<Vec<RamRange>, SnapshotError> {
        let mut ranges = Vec::new();
        let mut end = 0u64;
        for _ in 0..self.count(RANGES_MAX, "the number of RAM ranges")? {
            let offset = self.0.offset();
            let gap = self.number("a RAM range's distance")?;
            let len_bytes = self.number("a RAM range's length")?;
            let overflow =
                SnapshotError::Malformed { offset, what: "a RAM range beyond the last address" };
            let Some(start) = end.checked_add(gap) else { return Err(overflow) };
            let Some(next) = start.checked_add(len_bytes) else { return Err(overflow) };
            end = next;
            ranges.push(RamRange { start: PhysAddr::new(start), len_bytes });
        }
        Ok(ranges)
    }

    fn snapshot(mut self) -> Result<Snapshot, SnapshotError> {
        let facts = self.facts()?;
        let offset = self.0.offset();
        let ranges = self.ranges()?;
        let malformed = |offset| move |what| SnapshotError::Malformed { offset, what };
        let mut builder = Builder::new(facts, ranges).map_err(malformed(offset))?;
        while !builder.is_complete() {
            let offset = self.0.offset();
            let run = self.number("a run of frames")?;
            builder.push(run).map_err(malformed(offset))?;
        }
        // Reading on to the end is what verifies the checksum.
        match self.0.fill(1) {
            Ok([]) => builder.finish().map_err(malformed(self.0.offset())),
            Ok(_) => Err(self.malformed("bytes after the last run")),
            Err(source) => Err(self.failed(source, "the checksum")),
        }
    }
}
