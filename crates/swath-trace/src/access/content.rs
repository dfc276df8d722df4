//! The bytes of a trace, decompressed, and the errors that they can hold.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::container;
use crate::input::Input;
use crate::unpack::{Bounded, Counted, Limit, TooMuch};

/// The most memory that a compressed file may make its decompressor take:
/// `xz -9` needs 65 MiB, zstd's largest window without `--ultra` 128 MiB.
const DECOMPRESSOR_BYTES_MAX: u64 = 128 << 20;

/// Compression of a file, known by its first bytes.
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
    pub(crate) fn of_content(head: &[u8]) -> Self {
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

/// Reasons why a trace cannot be read on. Offsets count bytes from 0, lines from 1;
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
        "neither lackey's text nor Swath's signature, and a record of 64 bytes is empty, or \
         its bytes 8 and 9 are not ChampSim's: no known trace format"
    )]
    UnknownFormat,
    /// Another version of Swath's format.
    #[error("byte 8 says trace version {found}; this program reads versions 1 to {newest}")]
    Version {
        /// The newest version that can be read.
        newest: u8,
        /// The version.
        found: u8,
    },
    /// The content stops within a line or a record.
    #[error("the trace is cut short: byte {offset} of its content, within {what}, is missing")]
    Truncated {
        /// Offset of the first missing byte in the content.
        offset: u64,
        /// Item that was being read.
        what: &'static str,
    },
    /// The compressed bytes stop too early.
    #[error("the trace is cut short: its {compression} data go on after byte {file_offset}, the file's last", compression = .compression.name())]
    TruncatedFile {
        /// Compression of the file.
        compression: Compression,
        /// The file's length.
        file_offset: u64,
    },
    /// The compressed bytes contradict themselves or their checksum.
    #[error("the trace is damaged: its {compression} data before byte {file_offset} of the file: {source}", compression = .compression.name())]
    Damaged {
        /// Compression of the file.
        compression: Compression,
        /// Number of bytes of the file read so far: the damage lies before.
        file_offset: u64,
        /// The decompressor's words.
        source: io::Error,
    },
    /// Its content is longer than so short a file may make it.
    #[error(
        "the trace is too large: more than {limit_bytes} bytes of content in {file_bytes} bytes \
         of the file"
    )]
    TooDense {
        /// The most bytes of content that the file may have.
        limit_bytes: u64,
        /// Number of bytes of the file read so far.
        file_bytes: u64,
    },
    /// It asks for more than is done with any trace.
    #[error("the trace is too large: more than {limit} {what}")]
    TooLarge {
        /// The limit.
        limit: u64,
        /// Noun for what is limited.
        what: &'static str,
    },
    /// A line that starts as an access but is none.
    #[error("line {line}, byte {offset} of the content: {what}")]
    Line {
        /// The line.
        line: u64,
        /// Offset of the line in the content.
        offset: u64,
        /// Description of the fault.
        what: &'static str,
    },
    /// A record with a value that cannot be.
    #[error("byte {offset} of the content: {what}")]
    Record {
        /// Offset of the value in the content.
        offset: u64,
        /// Description of the fault.
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
    pub(crate) compression: Compression,
    /// Bytes of the file read so far.
    pub(crate) file_bytes: Arc<AtomicU64>,
}

impl Read for Content {
    #[inline]
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.reader.read(to)
    }
}

impl Content {
    pub(crate) fn new(file: impl Read + Send + 'static) -> io::Result<Self> {
        let counted = Counted::new(file);
        let file_bytes = counted.counter();
        let mut file = BufReader::with_capacity(64 << 10, counted);
        // A pipe may give its first bytes one by one; six tell.
        let mut head = Vec::new();
        file.by_ref().take(6).read_to_end(&mut head)?;
        let compression = Compression::of_content(&head);
        let file = io::Cursor::new(head).chain(file);
        let reader: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(file),
            _ => {
                let content = decompress(file, compression)?;
                Box::new(Bounded::new(content, Limit::STREAM, Arc::clone(&file_bytes)))
            }
        };
        Ok(Self { reader, compression, file_bytes })
    }

    /// Returns the error that a failed read of the content means.
    pub(crate) fn explain(&self, source: io::Error) -> TraceError {
        explain(source, self.compression, self.file_bytes.load(Ordering::Relaxed))
    }

    /// Unpacks the rest of `input`, which is one more zstd frame.
    pub(crate) fn unpack(input: Input<Self>) -> io::Result<Input<Self>> {
        let file_bytes = Arc::clone(&input.source().file_bytes);
        let mut zstd = zstd::stream::read::Decoder::new(input)?;
        zstd.window_log_max(container::WINDOW_LOG2)?;
        let zstd = Bounded::new(zstd, Limit::STREAM, Arc::clone(&file_bytes));
        Ok(Input::new(Self { reader: Box::new(zstd), compression: Compression::Zstd, file_bytes }))
    }
}

fn explain(source: io::Error, compression: Compression, file_offset: u64) -> TraceError {
    if let Some(TooMuch { limit_bytes, file_bytes }) = TooMuch::of(&source) {
        return TraceError::TooDense { limit_bytes, file_bytes };
    }
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
