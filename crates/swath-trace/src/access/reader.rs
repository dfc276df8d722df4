//! Address traces of real programs, as one stream of accesses.
//!
//! [`TraceReader`] reads five formats, each plain or compressed with gzip, xz or
//! zstd, and never holds more than a buffer of the file: valgrind lackey's
//! text, the binary records of ChampSim and of DynamoRIO, plain text or CSV, and Swath's own, which a [`TraceWriter`]
//! writes. `docs/formats.md` describes them byte by byte. What a program did to
//! its address space meanwhile comes with [`TraceReader::items`].
//!
//! [`TraceWriter`]: crate::access::TraceWriter
//!
//! Which format a file has follows from its bytes; its name decides only where
//! they cannot.

use std::fs::File;
use std::io::Read;
use std::iter::FusedIterator;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::access::champsim::ChampSim;
use crate::access::content::{Compression, Content, TraceError};
use crate::access::drmemtrace::DrMemTrace;
use crate::access::event::{BATCH, Batch, MemoryAccess, TraceEvent, TraceHeader, TraceItem};
use crate::access::file::{Swath, TRACE_FORMAT};
use crate::access::lackey::Lackey;
use crate::access::plain::Plain;
use crate::input::Input;
use crate::programs::CommandPrograms;

/// Number of bytes of the content that decide on the format.
const HEAD_BYTES: usize = 4096;

/// The format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// Text of `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// ChampSim's 64-byte records.
    #[serde(rename = "champsim")]
    ChampSim,
    /// The 12-byte entries of DynamoRIO's drmemtrace.
    #[serde(rename = "drmemtrace")]
    DrMemTrace,
    /// An address, a kind and perhaps a length on a line, or CSV of these.
    Plain,
    /// Swath's own.
    Swath,
}

impl TraceFormat {
    /// Returns the format that a file's name shows: `NAME.lackey`, `.log` and
    /// `.txt`; `NAME.csv`; `NAME.champsim` and `.champsimtrace`; `NAME.drmemtrace`; `NAME.swtrace`; all of
    /// them also with `.gz`, `.xz` or `.zst` after it.
    pub fn of_name(path: &Path) -> Option<Self> {
        let extension = |path: &Path| Some(path.extension()?.to_str()?.to_ascii_lowercase());
        let found = match extension(path)?.as_str() {
            "gz" | "xz" | "zst" => extension(Path::new(path.file_stem()?))?,
            _ => extension(path)?,
        };
        match found.as_str() {
            "lackey" | "log" | "txt" => Some(Self::Lackey),
            "csv" => Some(Self::Plain),
            "champsim" | "champsimtrace" => Some(Self::ChampSim),
            "drmemtrace" => Some(Self::DrMemTrace),
            "swtrace" => Some(Self::Swath),
            _ => None,
        }
    }

    /// Returns the format that the first bytes of the content show.
    fn of_content(head: &[u8]) -> Option<Self> {
        if head.starts_with(&TRACE_FORMAT.magic) {
            Some(Self::Swath)
        } else if head.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n')) {
            Some(if Plain::is_plausible(head) { Self::Plain } else { Self::Lackey })
        } else if DrMemTrace::is_plausible(head) {
            Some(Self::DrMemTrace)
        } else if ChampSim::is_plausible(head) {
            Some(Self::ChampSim)
        } else {
            None
        }
    }
}

/// A reader of one of the formats.
enum Decoder {
    Lackey(Lackey),
    ChampSim(ChampSim),
    DrMemTrace(DrMemTrace),
    Plain(Plain),
    Swath(Swath),
}

/// The accesses of a trace, in the order of the file.
///
/// After an error or the end there is nothing more. Everything before an
/// error is handed out first. Memory: the buffers, whatever the file says
/// (plus what a decompressor needs, at most 128 MiB).
pub struct TraceReader {
    decoder: Decoder,
    format: TraceFormat,
    compression: Compression,
    file_bytes: Arc<AtomicU64>,
    batch: Batch,
    next: usize,
    next_event: usize,
    /// Error that follows the batch.
    failure: Option<TraceError>,
    ended: bool,
}

impl TraceReader {
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
    /// As [`TraceReader::open`].
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
            // Of no more than that, for how much comes at once is the source's affair.
            Ok(head) => {
                let head = &head[..head.len().min(HEAD_BYTES)];
                format.or_else(|| TraceFormat::of_content(head)).or(name)
            }
            Err(source) => return Err(input.source().explain(source)),
        };
        let Some(format) = found else { return Err(TraceError::UnknownFormat) };
        let decoder = match format {
            TraceFormat::Lackey => Decoder::Lackey(Lackey::new(input)),
            TraceFormat::ChampSim => Decoder::ChampSim(ChampSim::new(input)),
            TraceFormat::DrMemTrace => Decoder::DrMemTrace(DrMemTrace::new(input)),
            TraceFormat::Plain => Decoder::Plain(Plain::new(input)),
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

    /// Returns the compression of the file, apart from what belongs to the format.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the facts that stand before the first access: in Swath's own format from version 2 on.
    pub fn header(&self) -> Option<&TraceHeader> {
        match &self.decoder {
            Decoder::Swath(swath) => swath.header(),
            _ => None,
        }
    }

    /// Programs of the command that was recorded: Swath's own format from
    /// version 3 on, once its end was read.
    pub fn programs(&self) -> Option<&CommandPrograms> {
        match &self.decoder {
            Decoder::Swath(swath) => swath.programs(),
            _ => None,
        }
    }

    /// Returns the number of bytes of the file read so far, for a progress bar.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// The event that stands before the next access, if there is one.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<TraceEvent> {
        let &(before, event) = self.batch.events.get(self.next_event)?;
        (before == self.next).then(|| {
            self.next_event += 1;
            event
        })
    }

    /// The next access, as long as no refill is needed.
    #[inline]
    pub(crate) fn buffered(&mut self) -> Option<MemoryAccess> {
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
            Decoder::DrMemTrace(entries) => entries.decode(&mut self.batch.accesses),
            Decoder::Plain(plain) => plain.decode(&mut self.batch.accesses),
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

impl Iterator for TraceReader {
    type Item = Result<MemoryAccess, TraceError>;

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

impl FusedIterator for TraceReader {}

/// Accesses and events of a trace, in the order of the file.
///
/// After an error or the end there is nothing more.
pub struct TraceItems(TraceReader);

impl TraceItems {
    /// Returns the facts that stand before the first access; `None` if the format has none.
    pub fn header(&self) -> Option<&TraceHeader> {
        self.0.header()
    }
}

impl TraceReader {
    /// Accesses with the events among them, from here on.
    pub fn items(self) -> TraceItems {
        TraceItems(self)
    }
}

impl TraceItems {
    /// Programs of the command that was recorded, as
    /// [`TraceReader::programs`].
    pub fn programs(&self) -> Option<&CommandPrograms> {
        self.0.programs()
    }
}

impl Iterator for TraceItems {
    type Item = Result<TraceItem, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(event) = self.0.next_event() {
            return Some(Ok(TraceItem::Event(event)));
        }
        match self.0.buffered() {
            Some(access) => Some(Ok(TraceItem::Access(access))),
            None => self.after_refill(),
        }
    }
}

impl TraceItems {
    #[cold]
    fn after_refill(&mut self) -> Option<<Self as Iterator>::Item> {
        while self.0.refill_or_fail()? {
            if let Some(event) = self.0.next_event() {
                return Some(Ok(TraceItem::Event(event)));
            }
            if let Some(access) = self.0.buffered() {
                return Some(Ok(TraceItem::Access(access)));
            }
        }
        self.0.take_failure().map(Err)
    }
}

impl FusedIterator for TraceItems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_without_end_are_no_trace() {
        let mut record = [0; 64];
        assert_eq!(TraceFormat::of_content(&record.repeat(4)), None);
        record[0] = 1;
        assert_eq!(TraceFormat::of_content(&record.repeat(4)), Some(TraceFormat::ChampSim));
        let hole = [record, [0; 64], record].concat();
        assert_eq!(TraceFormat::of_content(&hole), None);
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
