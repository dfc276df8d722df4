//! Address traces of real programs, as one stream of accesses.
//!
//! [`Accesses`] reads three formats, each plain or compressed with gzip, xz or
//! zstd, and never holds more than a buffer of the file: valgrind lackey's
//! text ([`access_lackey`](crate::access::lackey)), ChampSim's binary records
//! ([`access_champsim`](crate::access::champsim)) and Swath's own
//! ([`access_swath`]), which
//! [`access_record`](crate::access::record) writes. `docs/formats.md` describes
//! them byte by byte. What a program did to its address space meanwhile comes
//! with [`Accesses::items`] ([`access_event`](crate::access::event)).
//!
//! Which format a file has follows from its bytes; its name decides only where
//! they cannot.

use std::fs::File;
use std::io::{
    BufRead, BufReader, Read, {self},
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use swath_arch::{PageRange, VirtAddr};

use crate::access::champsim::ChampSim;
use crate::access::event::{Batch, Event, TraceHeader};
use crate::access::lackey::Lackey;
use crate::access::swath;
use crate::access::swath::Swath;
use crate::container;
use crate::input::Input;

/// The most memory that a compressed file may make its decompressor take:
/// `xz -9` needs 65 MiB, zstd's largest window without `--ultra` 128 MiB.
const DECOMPRESSOR_BYTES_MAX: u64 = 128 << 20;

/// How much of the content decides on the format.
const HEAD_BYTES: usize = 4096;

/// Accesses decoded at a time. A line or record adds at most seven more.
pub(crate) const BATCH: usize = 4096;

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// Loads data.
    Read,
    /// Stores data.
    Write,
    /// Fetches an instruction.
    Fetch,
}

/// One access of a program to its memory.
///
/// Every reader hands out accesses of at least one byte that end within the
/// address space. An access that lies across a page boundary is **one**
/// access; [`Access::pages`] gives each page that it needs translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// Address of the first byte.
    pub addr: VirtAddr,
    /// Length in bytes, 1 or more.
    pub len_bytes: u16,
    /// What it does.
    pub kind: AccessKind,
}

impl Access {
    /// An access of `len_bytes` at `addr`, or `None` if it is empty or ends
    /// beyond the last address.
    #[inline]
    pub const fn new(addr: VirtAddr, len_bytes: u16, kind: AccessKind) -> Option<Self> {
        if len_bytes == 0 || addr.raw().checked_add(len_bytes as u64 - 1).is_none() {
            return None;
        }
        Some(Self { addr, len_bytes, kind })
    }

    /// The pages that the access touches, ascending: one, or two where it
    /// lies across a boundary (more only beyond 4097 bytes). A TLB is asked
    /// once for each.
    #[inline]
    pub const fn pages(self) -> PageRange {
        let first = self.addr.page();
        let last = VirtAddr::new(self.addr.raw().wrapping_add(self.len_bytes as u64 - 1)).page();
        PageRange::new(first, last.raw().wrapping_sub(first.raw()).wrapping_add(1))
    }
}

/// The format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// Text of `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// ChampSim's 64-byte records.
    #[serde(rename = "champsim")]
    ChampSim,
    /// Swath's own.
    Swath,
}

impl TraceFormat {
    /// What a file's name says of its format: `NAME.lackey`, `.log` and
    /// `.txt`; `NAME.champsim` and `.champsimtrace`; `NAME.swtrace`; all of
    /// them also with `.gz`, `.xz` or `.zst` after it.
    pub fn of_name(path: &Path) -> Option<Self> {
        let extension = |path: &Path| Some(path.extension()?.to_str()?.to_ascii_lowercase());
        let found = match extension(path)?.as_str() {
            "gz" | "xz" | "zst" => extension(Path::new(path.file_stem()?))?,
            _ => extension(path)?,
        };
        match found.as_str() {
            "lackey" | "log" | "txt" => Some(Self::Lackey),
            "champsim" | "champsimtrace" => Some(Self::ChampSim),
            "swtrace" => Some(Self::Swath),
            _ => None,
        }
    }

    /// What the first bytes of the content say.
    fn of_content(head: &[u8]) -> Option<Self> {
        if head.starts_with(&swath::FORMAT.magic) {
            Some(Self::Swath)
        } else if head.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n')) {
            Some(Self::Lackey)
        } else if ChampSim::is_plausible(head) {
            Some(Self::ChampSim)
        } else {
            None
        }
    }
}

/// How a file is compressed, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// It is not.
    None,
    /// gzip (RFC 1952), one member or more.
    Gzip,
    /// xz, one stream or more.
    Xz,
    /// zstd (RFC 8878), one frame or more.
    Zstd,
}

impl Compression {
    fn of_content(head: &[u8]) -> Self {
        if head.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if head.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            Self::Xz
        } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Self::Zstd
        } else {
            Self::None
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

/// Why a trace cannot be read on. Offsets count bytes from 0, lines from 1;
/// an offset in the content counts after decompression (Swath's own content:
/// after its zstd frame), one in the file counts the file's bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened or read.
    #[error("{source}")]
    Io {
        /// The system's words.
        #[from]
        source: io::Error,
    },
    /// There is nothing in the file.
    #[error("the trace is empty")]
    Empty,
    /// The bytes are those of no known format, and nothing says which to take.
    #[error(
        "neither lackey's text nor Swath's signature, and bytes 8 and 9 of a 64-byte record \
         are not ChampSim's: no known trace format"
    )]
    UnknownFormat,
    /// Another version of Swath's format.
    #[error(
        "byte 8 says trace version {found}; this program reads versions 1 to {}",
        swath::FORMAT.version
    )]
    Version {
        /// The version.
        found: u8,
    },
    /// The content stops within a line or a record.
    #[error("the trace is cut short: byte {offset} of its content, within {what}, is missing")]
    Truncated {
        /// Offset of the first missing byte in the content.
        offset: u64,
        /// What was being read.
        what: &'static str,
    },
    /// The compressed bytes stop too early.
    #[error("the trace is cut short: its {compression} data go on after byte {file_offset}, the file's last", compression = .compression.name())]
    TruncatedFile {
        /// How it is compressed.
        compression: Compression,
        /// The file's length.
        file_offset: u64,
    },
    /// The compressed bytes contradict themselves or their checksum.
    #[error("the trace is damaged: its {compression} data before byte {file_offset} of the file: {source}", compression = .compression.name())]
    Damaged {
        /// How it is compressed.
        compression: Compression,
        /// How much of the file had been read: the damage lies before.
        file_offset: u64,
        /// The decompressor's words.
        source: io::Error,
    },
    /// A line that starts as an access but is none.
    #[error("line {line}, byte {offset} of the content: {what}")]
    Line {
        /// The line.
        line: u64,
        /// Where the line starts in the content.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A record with a value that cannot be.
    #[error("byte {offset} of the content: {what}")]
    Record {
        /// Where the value stands in the content.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Text without a single access.
    #[error("none of {lines} lines is an access of lackey's (was it run with --trace-mem=yes?)")]
    NoAccesses {
        /// Lines read.
        lines: u64,
    },
}

/// The content of a file after decompression, and what is known of the file.
pub(crate) struct Content {
    reader: Box<dyn Read + Send>,
    compression: Compression,
    file_bytes: Arc<AtomicU64>,
}

impl Read for Content {
    #[inline]
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.reader.read(to)
    }
}

impl Content {
    fn new(file: impl Read + Send + 'static) -> io::Result<Self> {
        let file_bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, bytes: Arc::clone(&file_bytes) };
        let mut file = BufReader::with_capacity(64 << 10, counted);
        // A pipe may give its first bytes one by one; six tell.
        let mut head = Vec::new();
        file.by_ref().take(6).read_to_end(&mut head)?;
        let compression = Compression::of_content(&head);
        let file = io::Cursor::new(head).chain(file);
        Ok(Self { reader: decompress(file, compression)?, compression, file_bytes })
    }

    /// What a failed read of the content means.
    pub(crate) fn explain(&self, source: io::Error) -> TraceError {
        explain(source, self.compression, self.file_bytes.load(Ordering::Relaxed))
    }

    /// What is left of `input`, which is one more zstd frame.
    pub(crate) fn unpack(input: Input<Self>) -> io::Result<Input<Self>> {
        let file_bytes = Arc::clone(&input.source().file_bytes);
        let mut zstd = zstd::stream::read::Decoder::new(input)?;
        zstd.window_log_max(container::WINDOW_LOG2)?;
        Ok(Input::new(Self { reader: Box::new(zstd), compression: Compression::Zstd, file_bytes }))
    }
}

fn explain(source: io::Error, compression: Compression, file_offset: u64) -> TraceError {
    match source.kind() {
        _ if source.raw_os_error().is_some() || compression == Compression::None => {
            TraceError::Io { source }
        }
        io::ErrorKind::UnexpectedEof => TraceError::TruncatedFile { compression, file_offset },
        _ => TraceError::Damaged { compression, file_offset, source },
    }
}

fn decompress(
    file: impl BufRead + Send + 'static,
    compression: Compression,
) -> io::Result<Box<dyn Read + Send>> {
    Ok(match compression {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(
                DECOMPRESSOR_BYTES_MAX,
                liblzma::stream::CONCATENATED,
            )?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(file, stream))
        }
        Compression::Zstd => {
            let mut zstd = zstd::stream::read::Decoder::with_buffer(file)?;
            zstd.window_log_max(DECOMPRESSOR_BYTES_MAX.ilog2())?;
            Box::new(zstd)
        }
    })
}

/// Counts the bytes that were read.
struct Counted<R> {
    file: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(to)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A reader of one of the formats.
enum Decoder {
    Lackey(Lackey),
    ChampSim(ChampSim),
    Swath(Swath),
}

/// The accesses of a trace, in the order of the file.
///
/// After an error or the end there is nothing more. Everything before an
/// error is handed out first. Memory: the buffers, whatever the file says
/// (plus what a decompressor needs, at most 128 MiB).
pub struct Accesses {
    decoder: Decoder,
    format: TraceFormat,
    compression: Compression,
    file_bytes: Arc<AtomicU64>,
    batch: Batch,
    next: usize,
    next_event: usize,
    /// What follows the batch.
    failure: Option<TraceError>,
    ended: bool,
}

impl Accesses {
    /// Opens a file and finds out its format.
    ///
    /// # Errors
    /// The file cannot be read, is empty, or has no known format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::new(File::open(path)?, None, TraceFormat::of_name(path))
    }

    /// Reads a trace of the given format, or of the one that its bytes say.
    ///
    /// # Errors
    /// As [`Accesses::open`].
    pub fn from_reader(
        reader: impl Read + Send + 'static,
        format: Option<TraceFormat>,
    ) -> Result<Self, TraceError> {
        Self::new(reader, format, None)
    }

    fn new(
        reader: impl Read + Send + 'static,
        format: Option<TraceFormat>,
        name: Option<TraceFormat>,
    ) -> Result<Self, TraceError> {
        let content = Content::new(reader)?;
        let compression = content.compression;
        let file_bytes = Arc::clone(&content.file_bytes);
        let mut input = Input::new(content);
        let found = match input.fill(HEAD_BYTES) {
            Ok([]) => return Err(TraceError::Empty),
            Ok(head) => format.or_else(|| TraceFormat::of_content(head)).or(name),
            Err(source) => return Err(input.source().explain(source)),
        };
        let Some(format) = found else { return Err(TraceError::UnknownFormat) };
        let decoder = match format {
            TraceFormat::Lackey => Decoder::Lackey(Lackey::new(input)),
            TraceFormat::ChampSim => Decoder::ChampSim(ChampSim::new(input)),
            TraceFormat::Swath => Decoder::Swath(Swath::new(input)?),
        };
        let accesses = Vec::with_capacity(BATCH + 8);
        let batch = Batch { accesses, events: Vec::new() };
        Ok(Self {
            decoder,
            format,
            compression,
            file_bytes,
            batch,
            next: 0,
            next_event: 0,
            failure: None,
            ended: false,
        })
    }

    /// The format.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// How the file is compressed, apart from what belongs to the format.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// What the trace says of itself: Swath's own format from version 2 on.
    pub fn header(&self) -> Option<&TraceHeader> {
        match &self.decoder {
            Decoder::Swath(swath) => swath.header(),
            Decoder::Lackey(_) | Decoder::ChampSim(_) => None,
        }
    }

    /// How many bytes of the file have been read: for a progress bar.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// The event that stands before the next access, if there is one.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let &(before, event) = self.batch.events.get(self.next_event)?;
        (before == self.next).then(|| {
            self.next_event += 1;
            event
        })
    }

    /// The next access, as long as no refill is needed.
    #[inline]
    pub(crate) fn buffered(&mut self) -> Option<Access> {
        let access = *self.batch.accesses.get(self.next)?;
        self.next += 1;
        Some(access)
    }

    /// True: there may be more now. False: there is an error instead. `None`:
    /// there is nothing more.
    pub(crate) fn refill_or_fail(&mut self) -> Option<bool> {
        if self.failure.is_some() {
            return Some(false);
        }
        if self.ended {
            return None;
        }
        self.refill();
        Some(true)
    }

    /// The error that follows the last access.
    pub(crate) fn take_failure(&mut self) -> Option<TraceError> {
        self.failure.take()
    }

    #[cold]
    fn refill(&mut self) {
        self.batch.clear();
        self.next = 0;
        self.next_event = 0;
        if self.ended {
            return;
        }
        let decoded = match &mut self.decoder {
            Decoder::Lackey(lackey) => lackey.decode(&mut self.batch),
            Decoder::ChampSim(champsim) => champsim.decode(&mut self.batch.accesses),
            Decoder::Swath(swath) => swath.decode(&mut self.batch),
        };
        match decoded {
            Ok(()) => self.ended = self.batch.len() == 0,
            Err(error) => {
                self.failure = Some(error);
                self.ended = true;
            }
        }
    }
}

impl Iterator for Accesses {
    type Item = Result<Access, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(access) = self.buffered() {
                return Some(Ok(access));
            }
            if !self.refill_or_fail()? {
                return self.take_failure().map(Err);
            }
        }
    }
}

impl std::iter::FusedIterator for Accesses {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_an_access() {
        let pages = |addr, len| {
            let pages = Access::new(VirtAddr::new(addr), len, AccessKind::Read).unwrap().pages();
            (pages.start.raw(), pages.count)
        };
        assert_eq!(pages(0x1fff, 1), (1, 1));
        assert_eq!(pages(0x1fff, 2), (1, 2));
        assert_eq!(pages(0x1000, 4096), (1, 1));
        assert_eq!(pages(0x1fff, 4098), (1, 3));
        assert_eq!(pages(u64::MAX, 1), (u64::MAX >> 12, 1));
        assert_eq!(Access::new(VirtAddr::new(u64::MAX), 2, AccessKind::Read), None);
        assert_eq!(Access::new(VirtAddr::new(0), 0, AccessKind::Read), None);
    }

    #[test]
    fn names_say_the_format() {
        let of = |name: &str| TraceFormat::of_name(Path::new(name));
        assert_eq!(of("a/x.champsimtrace.xz"), Some(TraceFormat::ChampSim));
        assert_eq!(of("x.LOG"), Some(TraceFormat::Lackey));
        assert_eq!(of("x.swtrace"), Some(TraceFormat::Swath));
        assert_eq!(of("x.gz"), None);
        assert_eq!(of("x"), None);
        assert_eq!(of("txt"), None);
    }
}
