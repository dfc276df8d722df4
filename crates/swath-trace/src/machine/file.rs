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

use crate::container::{Content, FileError, FileFormat};
use crate::input::put_number;
use crate::machine::facts::{put_facts, read_facts};
use crate::machine::snapshot::{Builder, RANGES_MAX, RamRange, Snapshot};
use crate::unpack::Limit;

/// The format.
pub static SNAPSHOT_FORMAT: FileFormat = FileFormat {
    noun: "machine snapshot",
    magic: *b"SWSNAP\r\n",
    version: 1,
    oldest: 1,
    limit: LIMIT,
};

/// A snapshot is held in memory, 8 bytes for a byte of content and more. One of a real
/// machine has twice as much content as bytes in its file.
const LIMIT: Limit = Limit { free_bytes: 8 << 20, ratio: 8 };

/// zstd's level: a snapshot is written once.
const LEVEL: i32 = 19;

impl Snapshot {
    /// Writes the file's bytes. The same snapshot gives the same bytes.
    /// O(runs), with about two bytes of memory to a run.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
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
        let mut packer = SNAPSHOT_FORMAT.begin(to, LEVEL)?;
        // Known beforehand, so that a small machine takes little memory.
        packer.pledge(out.len() as u64)?;
        packer.push(&out)?;
        packer.finish().map(drop)
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
    /// than [`RUNS_MAX`](crate::machine::snapshot::RUNS_MAX) runs take.
    ///
    /// # Errors
    /// A [`FileError`] that names the byte.
    pub fn read(from: impl Read) -> Result<Self, FileError> {
        snapshot(Content::open(from, &SNAPSHOT_FORMAT)?)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A [`FileError`]: the file cannot be opened, or what is wrong in it.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::read(std::fs::File::open(path)?)
    }
}

fn ranges<R: Read>(content: &mut Content<R>) -> Result<Vec<RamRange>, FileError> {
    let mut ranges = Vec::new();
    let mut end = 0u64;
    for _ in 0..content.count(RANGES_MAX, "the number of RAM ranges")? {
        let offset = content.offset();
        let gap = content.number("a RAM range's distance")?;
        let len_bytes = content.number("a RAM range's length")?;
        let overflow = SNAPSHOT_FORMAT.malformed(offset, "a RAM range beyond the last address");
        let Some(start) = end.checked_add(gap) else { return Err(overflow) };
        let Some(next) = start.checked_add(len_bytes) else { return Err(overflow) };
        end = next;
        ranges.push(RamRange { start: PhysAddr::new(start), len_bytes });
    }
    Ok(ranges)
}

fn snapshot<R: Read>(mut content: Content<R>) -> Result<Snapshot, FileError> {
    let facts = read_facts(&mut content)?;
    let offset = content.offset();
    let ranges = ranges(&mut content)?;
    let malformed = |offset| move |what| SNAPSHOT_FORMAT.malformed(offset, what);
    let mut builder = Builder::new(facts, ranges).map_err(malformed(offset))?;
    while !builder.is_complete() {
        let offset = content.offset();
        let run = content.number("a run of frames")?;
        builder.push(run).map_err(malformed(offset))?;
    }
    content.end("bytes after the last run")?;
    builder.finish().map_err(malformed(content.offset()))
}
