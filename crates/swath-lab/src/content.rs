//! The decompressed content of Swath's own files: numbers, names and facts
//! after the signature and the version. One way of reading for every format
//! that is a row of numbers; each format turns [`ContentError`] into its own.

use std::io::{self, Read};

use crate::input::{Input, NumberError, put_number};
use crate::snapshot::{Facts, NAME_BYTES_MAX, ZONES_MAX, Zone, check_name};

/// zstd's window while reading: 8 MiB, what level 19 writes.
pub(crate) const WINDOW_LOG2: u32 = 23;

/// Why content cannot be read. Offsets count bytes of the content from 0, but
/// for `Magic`, which counts those of the file.
#[derive(Debug)]
pub(crate) enum ContentError {
    Magic { offset: u64 },
    Version { found: u8 },
    Truncated { offset: u64, what: &'static str },
    Malformed { offset: u64, what: &'static str },
    Damaged { offset: u64, source: io::Error },
    Io { source: io::Error },
}

impl From<io::Error> for ContentError {
    fn from(source: io::Error) -> Self {
        Self::Io { source }
    }
}

/// Content that is being read.
pub(crate) struct Content<R: Read>(
    pub(crate) Input<zstd::stream::read::Decoder<'static, io::BufReader<R>>>,
);

impl<R: Read> Content<R> {
    /// Reads the signature and the version, and starts the content.
    pub(crate) fn open(mut from: R, magic: [u8; 8], version: u8) -> Result<Self, ContentError> {
        let mut head = Vec::new();
        from.by_ref().take(magic.len() as u64 + 1).read_to_end(&mut head)?;
        if let Some(offset) = (0..magic.len()).find(|&i| head.get(i) != Some(&magic[i])) {
            return Err(ContentError::Magic { offset: offset as u64 });
        }
        match head.get(magic.len()) {
            Some(&found) if found == version => {}
            Some(&found) => return Err(ContentError::Version { found }),
            None => return Err(ContentError::Truncated { offset: 0, what: "the version" }),
        }
        let mut zstd = zstd::stream::read::Decoder::new(from)?;
        zstd.window_log_max(WINDOW_LOG2)?;
        Ok(Self(Input::new(zstd)))
    }

    #[cold]
    pub(crate) fn failed(&self, source: io::Error, what: &'static str) -> ContentError {
        let offset = self.0.offset() + self.0.buffered().len() as u64;
        match source.kind() {
            _ if source.raw_os_error().is_some() => ContentError::Io { source },
            io::ErrorKind::UnexpectedEof => ContentError::Truncated { offset, what },
            _ => ContentError::Damaged { offset, source },
        }
    }

    #[cold]
    fn explain(&self, error: NumberError, what: &'static str) -> ContentError {
        match error {
            NumberError::Io(source) => self.failed(source, what),
            NumberError::Truncated => {
                let offset = self.0.offset() + self.0.buffered().len() as u64;
                ContentError::Truncated { offset, what }
            }
            NumberError::Malformed => self.malformed("a number of more than 64 bits or padded"),
        }
    }

    #[cold]
    pub(crate) fn malformed(&self, what: &'static str) -> ContentError {
        ContentError::Malformed { offset: self.0.offset(), what }
    }

    #[inline]
    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, ContentError> {
        match self.0.byte() {
            Ok(byte) => Ok(byte),
            Err(error) => Err(self.explain(error, what)),
        }
    }

    #[inline]
    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, ContentError> {
        match self.0.number() {
            Ok(number) => Ok(number),
            Err(error) => Err(self.explain(error, what)),
        }
    }

    /// A count that stands before so many items.
    pub(crate) fn count(&mut self, max: usize, what: &'static str) -> Result<usize, ContentError> {
        let offset = self.0.offset();
        let count = self.number(what)?;
        usize::try_from(count).ok().filter(|&count| count <= max).ok_or(ContentError::Malformed {
            offset,
            what: "a count beyond the limit of the format",
        })
    }

    pub(crate) fn name(&mut self, what: &'static str) -> Result<String, ContentError> {
        let len = self.count(NAME_BYTES_MAX, what)?;
        let offset = self.0.offset();
        let bytes = match self.0.fill(len) {
            Ok(bytes) => bytes,
            Err(source) => return Err(self.failed(source, what)),
        };
        let Some(name) = bytes.get(..len) else {
            return Err(ContentError::Truncated { offset: offset + bytes.len() as u64, what });
        };
        check_name(name).map_err(|what| ContentError::Malformed { offset, what })?;
        let name = String::from_utf8_lossy(name).into_owned();
        self.0.consume(len);
        Ok(name)
    }

    pub(crate) fn facts(&mut self) -> Result<Facts, ContentError> {
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

    /// Nothing but the checksum is left; only reading on verifies it.
    pub(crate) fn end(&mut self, behind: &'static str) -> Result<(), ContentError> {
        match self.0.fill(1) {
            Ok([]) => Ok(()),
            Ok(_) => Err(self.malformed(behind)),
            Err(source) => Err(self.failed(source, "the checksum")),
        }
    }
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &str) {
    put_number(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
}

pub(crate) fn put_facts(out: &mut Vec<u8>, facts: &Facts) {
    put_name(out, &facts.kernel_release);
    for number in [facts.total_frames, facts.free_frames, facts.buddy_frames] {
        put_number(out, number);
    }
    put_number(out, facts.zones.len() as u64);
    for zone in &facts.zones {
        put_number(out, zone.node);
        put_name(out, &zone.name);
        for number in [
            zone.start_frame,
            zone.spanned_frames,
            zone.present_frames,
            zone.managed_frames,
            zone.free_frames,
            zone.per_cpu_frames,
        ] {
            put_number(out, number);
        }
    }
}
