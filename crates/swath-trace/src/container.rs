//! The decompressed content of Swath's own files: numbers, names and facts
//! after the signature and the version. One way of reading, and one error, for
//! every format that is a row of numbers.

use std::io::{self, Read, Write};

use crate::input::{Input, NumberError, put_number};
use crate::unpack::{Bounded, Counted, Limit, Packer, TooMuch};

/// zstd's window: 8 MiB, what level 19 writes.
pub(crate) const WINDOW_LOG2: u32 = 23;

/// The longest name (kernel release, zone, program), in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// One of Swath's formats.
#[derive(Debug)]
pub struct FileFormat {
    /// Noun for a file of the format.
    pub noun: &'static str,
    /// The file's first eight bytes. The line end at their close shows a copy
    /// that went through text conversion.
    pub magic: [u8; 8],
    /// Version that is written, byte 8 of the file.
    pub version: u8,
    /// Oldest version that is read.
    pub oldest: u8,
    /// The most content that is read.
    pub limit: Limit,
}

impl FileFormat {
    /// Writes what stands before the content, whose bytes the encoder then
    /// takes. `level` is zstd's.
    pub(crate) fn begin<W: Write>(&self, mut to: W, level: i32) -> io::Result<Packer<W>> {
        to.write_all(&self.magic)?;
        to.write_all(&[self.version])?;
        Packer::new(to, level, WINDOW_LOG2, self.limit)
    }

    pub(crate) fn malformed(&'static self, offset: u64, what: &'static str) -> FileError {
        FileError::Malformed { format: self, offset, what }
    }

    /// Returns the error of a file that asks for more of something than is done.
    pub const fn too_large(&'static self, limit: u64, what: &'static str) -> FileError {
        FileError::TooLarge { format: self, limit, what }
    }
}

/// Reasons why a file cannot be read. Offsets count bytes from 0; those of the content
/// count after decompression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file does not start as one of the format does.
    #[error("no {}: byte {offset} of the file is not that of the signature", format.noun)]
    Magic {
        /// Name that was looked for.
        format: &'static FileFormat,
        /// The first byte that differs.
        offset: u64,
    },
    /// Another version of the format.
    #[error(
        "byte 8 says version {found}; this program reads {}s of version {}{}",
        format.noun, format.oldest, if format.oldest == format.version { String::new() } else { format!(" to {}", format.version) }
    )]
    Version {
        /// Format of the file.
        format: &'static FileFormat,
        /// The version.
        found: u8,
    },
    /// The file is cut short.
    #[error(
        "the {} is cut short: byte {offset} of its content, within {what}, is missing",
        format.noun
    )]
    Truncated {
        /// Format of the file.
        format: &'static FileFormat,
        /// Offset of the first missing byte in the content.
        offset: u64,
        /// Item that was being read.
        what: &'static str,
    },
    /// A value that cannot be.
    #[error("byte {offset} of the {}'s content: {what}", format.noun)]
    Malformed {
        /// Format of the file.
        format: &'static FileFormat,
        /// Offset of the event or the value in the content.
        offset: u64,
        /// Description of the fault.
        what: &'static str,
    },
    /// It asks for more than a reader does, whatever else it says.
    #[error("the {} is too large: more than {limit} {what}", format.noun)]
    TooLarge {
        /// Format of the file.
        format: &'static FileFormat,
        /// The limit.
        limit: u64,
        /// Noun for what is limited.
        what: &'static str,
    },
    /// Its content is longer than so short a file may make it.
    #[error(
        "the {} is too large: more than {limit_bytes} bytes of content in {file_bytes} bytes of \
         the file",
        format.noun
    )]
    TooDense {
        /// Format of the file.
        format: &'static FileFormat,
        /// The most bytes of content that the file may have.
        limit_bytes: u64,
        /// Number of bytes of the file read so far.
        file_bytes: u64,
    },
    /// The compressed bytes contradict themselves or their checksum.
    #[error(
        "the {} is damaged: its compressed data after byte {offset} of the content: {source}",
        format.noun
    )]
    Damaged {
        /// Format of the file.
        format: &'static FileFormat,
        /// Number of sound bytes of the content.
        offset: u64,
        /// The decompressor's words.
        source: io::Error,
    },
    /// The file could not be opened or read.
    #[error("{source}")]
    Io {
        /// The system's words.
        #[from]
        source: io::Error,
    },
}

/// Content that is being read.
pub(crate) struct Content<R: Read> {
    input: Input<Bounded<zstd::stream::read::Decoder<'static, io::BufReader<Counted<R>>>>>,
    format: &'static FileFormat,
    version: u8,
}

impl<R: Read> Content<R> {
    /// Reads the signature and the version, and starts the content.
    pub(crate) fn open(from: R, format: &'static FileFormat) -> Result<Self, FileError> {
        let mut from = Counted::new(from);
        let file_bytes = from.counter();
        let FileFormat { magic, version: newest, oldest, .. } = *format;
        let mut head = Vec::new();
        from.by_ref().take(magic.len() as u64 + 1).read_to_end(&mut head)?;
        if let Some(offset) = (0..magic.len()).find(|&i| head.get(i) != Some(&magic[i])) {
            return Err(FileError::Magic { format, offset: offset as u64 });
        }
        let version = match head.get(magic.len()) {
            Some(&found) if (oldest..=newest).contains(&found) => found,
            Some(&found) => return Err(FileError::Version { format, found }),
            None => return Err(FileError::Truncated { format, offset: 0, what: "the version" }),
        };
        let mut zstd = zstd::stream::read::Decoder::new(from)?;
        zstd.window_log_max(WINDOW_LOG2)?;
        let input = Input::new(Bounded::new(zstd, format.limit, file_bytes));
        Ok(Self { input, format, version })
    }

    /// Version of the file.
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// Offset of the next byte.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The error of a value before the next byte.
    #[cold]
    pub(crate) fn malformed(&self, what: &'static str) -> FileError {
        self.format.malformed(self.offset(), what)
    }

    #[cold]
    fn failed(&self, source: io::Error, what: &'static str) -> FileError {
        let (format, offset) = (self.format, self.offset() + self.input.buffered().len() as u64);
        if let Some(TooMuch { limit_bytes, file_bytes }) = TooMuch::of(&source) {
            return FileError::TooDense { format, limit_bytes, file_bytes };
        }
        match source.kind() {
            _ if source.raw_os_error().is_some() => FileError::Io { source },
            io::ErrorKind::UnexpectedEof => FileError::Truncated { format, offset, what },
            _ => FileError::Damaged { format, offset, source },
        }
    }

    #[cold]
    fn explain(&self, error: NumberError, what: &'static str) -> FileError {
        match error {
            NumberError::Io(source) => self.failed(source, what),
            NumberError::Truncated => self.failed(io::ErrorKind::UnexpectedEof.into(), what),
            NumberError::Malformed => {
                self.format.malformed(self.offset(), "a number of more than 64 bits or padded")
            }
        }
    }

    #[inline]
    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, FileError> {
        match self.input.byte() {
            Ok(byte) => Ok(byte),
            Err(error) => Err(self.explain(error, what)),
        }
    }

    #[inline]
    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, FileError> {
        match self.input.number() {
            Ok(number) => Ok(number),
            Err(error) => Err(self.explain(error, what)),
        }
    }

    /// A count that stands before so many items.
    pub(crate) fn count(&mut self, max: usize, what: &'static str) -> Result<usize, FileError> {
        let offset = self.offset();
        let count = self.number(what)?;
        let what = "a count beyond the limit of the format";
        let count = usize::try_from(count).ok().filter(|&count| count <= max);
        count.ok_or(self.format.malformed(offset, what))
    }

    pub(crate) fn name(&mut self, what: &'static str) -> Result<String, FileError> {
        let len = self.count(NAME_BYTES_MAX, what)?;
        let offset = self.offset();
        let bytes = match self.input.fill(len) {
            Ok(bytes) => bytes,
            Err(source) => return Err(self.failed(source, what)),
        };
        let Some(name) = bytes.get(..len) else {
            return Err(self.failed(io::ErrorKind::UnexpectedEof.into(), what));
        };
        check_name(name).map_err(|what| self.format.malformed(offset, what))?;
        let name = String::from_utf8_lossy(name).into_owned();
        self.input.consume(len);
        Ok(name)
    }

    /// Nothing but the checksum is left; only reading on verifies it.
    pub(crate) fn end(&mut self, behind: &'static str) -> Result<(), FileError> {
        match self.input.fill(1) {
            Ok([]) => Ok(()),
            Ok(_) => Err(self.format.malformed(self.offset(), behind)),
            Err(source) => Err(self.failed(source, "the checksum")),
        }
    }
}

/// A reason why a value cannot stand in a file; the caller knows the place.
pub(crate) type Misfit = &'static str;

/// Names are shown on terminals and in reports: printable ASCII only.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Misfit> {
    if name.len() > NAME_BYTES_MAX {
        return Err("a name of more than 255 bytes");
    }
    if !name.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return Err("a name that is not printable ASCII");
    }
    Ok(())
}

/// Returns the error of a value that no reader would take.
pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &str) {
    put_number(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
}
