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

use crate::content::{Content, ContentError, put_facts};
use crate::input::put_number;
use crate::snapshot::{Builder, RANGES_MAX, RamRange, Snapshot};

/// The file's first eight bytes. The line end at their close shows a copy
/// that went through text conversion.
pub const MAGIC: [u8; 8] = *b"SWSNAP\r\n";

/// The version of the format, byte 8 of the file.
pub const VERSION: u8 = 1;

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
        put_facts(&mut out, self.facts());
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
    pub fn read(from: impl Read) -> Result<Self, SnapshotError> {
        Ok(snapshot(Content::open(from, MAGIC, VERSION)?)?)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A [`SnapshotError`]: the file cannot be opened, or what is wrong in it.
    pub fn load(path: &Path) -> Result<Self, SnapshotError> {
        Self::read(std::fs::File::open(path)?)
    }
}

impl From<ContentError> for SnapshotError {
    fn from(error: ContentError) -> Self {
        match error {
            ContentError::Magic { offset } => Self::Magic { offset },
            ContentError::Version { found } => Self::Version { found },
            ContentError::Truncated { offset, what } => Self::Truncated { offset, what },
            ContentError::Malformed { offset, what } => Self::Malformed { offset, what },
            ContentError::Damaged { offset, source } => Self::Damaged { offset, source },
            ContentError::Io { source } => Self::Io { source },
        }
    }
}

fn ranges<R: Read>(content: &mut Content<R>) -> Result<Vec<RamRange>, ContentError> {
    let mut ranges = Vec::new();
    let mut end = 0u64;
    for _ in 0..content.count(RANGES_MAX, "the number of RAM ranges")? {
        let offset = content.0.offset();
        let gap = content.number("a RAM range's distance")?;
        let len_bytes = content.number("a RAM range's length")?;
        let overflow =
            ContentError::Malformed { offset, what: "a RAM range beyond the last address" };
        let Some(start) = end.checked_add(gap) else { return Err(overflow) };
        let Some(next) = start.checked_add(len_bytes) else { return Err(overflow) };
        end = next;
        ranges.push(RamRange { start: PhysAddr::new(start), len_bytes });
    }
    Ok(ranges)
}

fn snapshot<R: Read>(mut content: Content<R>) -> Result<Snapshot, ContentError> {
    let facts = content.facts()?;
    let offset = content.0.offset();
    let ranges = ranges(&mut content)?;
    let malformed = |offset| move |what| ContentError::Malformed { offset, what };
    let mut builder = Builder::new(facts, ranges).map_err(malformed(offset))?;
    while !builder.is_complete() {
        let offset = content.0.offset();
        let run = content.number("a run of frames")?;
        builder.push(run).map_err(malformed(offset))?;
    }
    content.end("bytes after the last run")?;
    builder.finish().map_err(malformed(content.0.offset()))
}
