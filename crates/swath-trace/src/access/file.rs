//! Swath's own trace format: each access as its difference from a guess.
//!
//! Programs run loops: an instruction that comes again fetches from the same
//! place and moves its operands by the same stride. So a fetch is guessed to
//! follow the one before, an operand to lie where this instruction's operand
//! lay last time, and what is stored is the difference, which repeats; zstd
//! then finds the repetitions. `docs/formats.md` describes each byte.
//!
//! Version 2 added a header and events, version 3 the programs of the command;
//! the older ones are still read.

use std::io::{self, Write};

use swath_arch::{PageRange, VirtAddr};

use crate::access::content::{Content, TraceError};
use crate::access::event::{AccessKind, BATCH, MemoryAccess};
use crate::access::event::{
    Batch, MapBacking, MapProtection, Sampling, TraceEvent, TraceHeader, page_range,
};
use crate::container::{FileFormat, NAME_BYTES_MAX, check_name, invalid, put_name};
use crate::input::{Input, NumberError, put_number, unzigzag, zigzag};
use crate::programs::{CommandPrograms, ProgramSource};
use crate::unpack::{Limit, Packer};

/// The format; versions 1 and 2 are read as well.
pub static TRACE_FORMAT: FileFormat = FileFormat {
    noun: "trace",
    magic: *b"SWTRAC\r\n",
    version: 3,
    oldest: 1,
    limit: Limit::STREAM,
};

/// Places for the last address of operands: enough for 16384 bytes of code
/// before two instructions share.
const SLOTS: usize = 1 << 16;

/// Operands of one instruction that have a place each; the last is shared by
/// all that follow.
const OPERANDS: u64 = 4;

/// Encoded accesses gathered before zstd sees them, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Guess at the next access; reader and writer hold the same.
struct Guess {
    /// Address at which the last fetch ended.
    next_fetch: u64,
    /// Address of the last fetch.
    instruction: u64,
    /// Data accesses since, at most `OPERANDS - 1`.
    operand: u64,
    last: Box<[u64]>,
}

impl Guess {
    fn new() -> Self {
        let last = vec![0; SLOTS].into_boxed_slice();
        Self { next_fetch: 0, instruction: 0, operand: 0, last }
    }

    #[inline]
    fn slot(&self) -> usize {
        self.instruction.wrapping_mul(OPERANDS).wrapping_add(self.operand) as usize % SLOTS
    }

    #[inline]
    fn of(&self, kind: AccessKind) -> u64 {
        match kind {
            AccessKind::Fetch => self.next_fetch,
            AccessKind::Read | AccessKind::Write => self.last[self.slot()],
        }
    }

    #[inline]
    fn learn(&mut self, access: MemoryAccess) {
        let addr = access.addr.raw();
        match access.kind {
            AccessKind::Fetch => {
                self.next_fetch = addr.wrapping_add(u64::from(access.len_bytes));
                self.instruction = addr;
                self.operand = 0;
            }
            AccessKind::Read | AccessKind::Write => {
                let slot = self.slot();
                self.last[slot] = addr;
                self.operand = (self.operand + 1).min(OPERANDS - 1);
            }
        }
    }
}

/// Bits 7 to 2 of an event's first byte, whose two low bits are 0.
const MAP: u8 = 1;
const UNMAP: u8 = 2;
const PROTECT: u8 = 3;
const DISCARD: u8 = 4;
const MOVE: u8 = 5;
const FORK: u8 = 6;
const SKIP: u8 = 7;

/// Flags of a mapping beside the three bits of its protection.
const SHARED: u64 = 8;
const FILE: u64 = 16;

/// The two low bits of an access's first byte; 0 is an event or the end.
const fn code(kind: AccessKind) -> u8 {
    match kind {
        AccessKind::Read => 1,
        AccessKind::Write => 2,
        AccessKind::Fetch => 3,
    }
}

/// Lengths below this stand in the first byte.
const SHORT_LIMIT: u64 = 64;

/// Writes accesses in Swath's format.
///
/// Nothing but [`finish`](Self::finish) makes the file whole: without it a
/// reader reports a truncated trace.
pub struct TraceWriter<W: Write> {
    packer: Packer<W>,
    chunk: Vec<u8>,
    guess: Guess,
    /// Page at which the last range of an event ended.
    last_page: u64,
    count: u64,
    events: u64,
    skipped: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace of which nothing is said. `level` is zstd's, 1 (fast) to
    /// 19 (small).
    ///
    /// # Errors
    /// Those of `to`, and a level that zstd does not know.
    pub fn new(to: W, level: i32) -> io::Result<Self> {
        Self::with_header(to, level, &TraceHeader::default())
    }

    /// Starts a trace with what it says of itself.
    ///
    /// # Errors
    /// As [`TraceWriter::new`]; [`io::ErrorKind::InvalidInput`] for a name or
    /// a sampling that cannot be.
    pub fn with_header(to: W, level: i32, header: &TraceHeader) -> io::Result<Self> {
        check_name(header.program.as_bytes()).map_err(invalid)?;
        let (burst, period) =
            header.sampling.map_or((0, 0), |s| (s.burst_accesses, s.period_accesses));
        if header.sampling.is_some() && Sampling::new(burst, period).is_none() {
            return Err(invalid("a sampling without accesses or without gaps"));
        }
        let packer = TRACE_FORMAT.begin(to, level)?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 64);
        put_name(&mut chunk, &header.program);
        put_number(&mut chunk, burst);
        put_number(&mut chunk, period);
        let (guess, last_page) = (Guess::new(), 0);
        Ok(Self { packer, chunk, guess, last_page, count: 0, events: 0, skipped: 0 })
    }

    /// Adds an access. O(1).
    ///
    /// # Errors
    /// Those of the writer below; [`io::ErrorKind::InvalidInput`] for an
    /// access that is empty or ends beyond the last address, which is not
    /// written.
    #[inline]
    pub fn push(&mut self, access: MemoryAccess) -> io::Result<()> {
        let MemoryAccess { addr, len_bytes, kind } = access;
        if MemoryAccess::new(addr, len_bytes, kind).is_none() {
            return Err(invalid("an access of no bytes or beyond the last address"));
        }
        let len = u64::from(len_bytes);
        if len < SHORT_LIMIT {
            self.chunk.push(code(kind) | (len_bytes as u8) << 2);
        } else {
            self.chunk.push(code(kind));
            put_number(&mut self.chunk, len);
        }
        let difference = addr.raw().wrapping_sub(self.guess.of(kind));
        put_number(&mut self.chunk, zigzag(difference));
        self.guess.learn(access);
        self.count += 1;
        self.flush_full_chunk()
    }

    #[inline]
    fn flush_full_chunk(&mut self) -> io::Result<()> {
        if self.chunk.len() >= CHUNK_BYTES {
            self.packer.push(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }

    /// Adds an event. O(1).
    ///
    /// # Errors
    /// Those of the writer below; [`io::ErrorKind::InvalidInput`] for an
    /// event with an empty range or one beyond the last page, which is not
    /// written.
    pub fn push_event(&mut self, event: TraceEvent) -> io::Result<()> {
        let skipped = match event {
            TraceEvent::Skip { accesses } => self.skipped.checked_add(accesses),
            _ => Some(self.skipped),
        };
        let Some(skipped) = skipped.filter(|_| event.is_sound()) else {
            return Err(invalid("an event with an empty range or one beyond the last page"));
        };
        self.skipped = skipped;
        match event {
            TraceEvent::Map { pages, protection, backing, shared } => {
                self.put_pages(MAP, pages);
                let flags = u64::from(protection.bits()) | if shared { SHARED } else { 0 };
                match backing {
                    MapBacking::Anonymous => put_number(&mut self.chunk, flags),
                    MapBacking::File { file, first_page } => {
                        put_number(&mut self.chunk, flags | FILE);
                        put_number(&mut self.chunk, file);
                        put_number(&mut self.chunk, first_page);
                    }
                }
            }
            TraceEvent::Unmap { pages } => self.put_pages(UNMAP, pages),
            TraceEvent::Protect { pages, protection } => {
                self.put_pages(PROTECT, pages);
                put_number(&mut self.chunk, u64::from(protection.bits()));
            }
            TraceEvent::Discard { pages } => self.put_pages(DISCARD, pages),
            TraceEvent::Move { from, to } => {
                self.put_pages(MOVE, from);
                self.put_range(to);
            }
            TraceEvent::Fork => self.chunk.push(FORK << 2),
            TraceEvent::Skip { accesses } => {
                self.chunk.push(SKIP << 2);
                put_number(&mut self.chunk, accesses);
            }
        }
        self.events += 1;
        self.flush_full_chunk()
    }

    fn put_pages(&mut self, code: u8, pages: PageRange) {
        self.chunk.push(code << 2);
        self.put_range(pages);
    }

    fn put_range(&mut self, pages: PageRange) {
        put_number(&mut self.chunk, zigzag(pages.start.raw().wrapping_sub(self.last_page)));
        put_number(&mut self.chunk, pages.count);
        self.last_page = pages.end().raw();
    }

    /// Accesses so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Ends the trace and gives the writer back.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(self) -> io::Result<W> {
        self.finish_with(&CommandPrograms::default())
    }

    /// Ends the trace with the programs of the command that was recorded, and
    /// gives the writer back.
    ///
    /// # Errors
    /// Those of the writer; [`io::ErrorKind::InvalidInput`] for a list that no
    /// reader takes.
    pub fn finish_with(mut self, programs: &CommandPrograms) -> io::Result<W> {
        self.chunk.push(0);
        put_number(&mut self.chunk, self.count);
        put_number(&mut self.chunk, self.events);
        programs.put(&mut self.chunk)?;
        self.packer.push(&self.chunk)?;
        self.packer.finish()
    }
}

/// A reader of Swath's format.
pub(crate) struct Swath {
    input: Input<Content>,
    /// `None` in version 1, which has no events either.
    header: Option<TraceHeader>,
    guess: Guess,
    last_page: u64,
    count: u64,
    events: u64,
    skipped: u64,
    version: u8,
    programs: Option<CommandPrograms>,
    ended: bool,
}

impl Swath {
    /// Reads what stands before the first access; `input` starts with the
    /// signature.
    pub(crate) fn new(mut input: Input<Content>) -> Result<Self, TraceError> {
        let FileFormat { magic, version: last, oldest, .. } = TRACE_FORMAT;
        let head = match input.fill(magic.len() + 1) {
            Ok(head) => head,
            Err(source) => return Err(input.source().explain(source)),
        };
        if !head.starts_with(&magic) {
            return Err(TraceError::Record { offset: 0, what: "not the signature of a trace" });
        }
        let version = match head.get(magic.len()) {
            Some(&version) if (oldest..=last).contains(&version) => version,
            Some(&found) => return Err(TraceError::Version { found, newest: last }),
            None => return Err(TraceError::Truncated { offset: 8, what: "the version" }),
        };
        input.consume(magic.len() + 1);
        let input = Content::unpack(input)?;
        let mut swath = Self {
            input,
            header: None,
            guess: Guess::new(),
            last_page: 0,
            count: 0,
            events: 0,
            skipped: 0,
            version,
            programs: None,
            ended: false,
        };
        if version > 1 {
            swath.header = Some(swath.read_header()?);
        }
        Ok(swath)
    }

    pub(crate) fn header(&self) -> Option<&TraceHeader> {
        self.header.as_ref()
    }

    pub(crate) fn programs(&self) -> Option<&CommandPrograms> {
        self.programs.as_ref()
    }

    fn read_header(&mut self) -> Result<TraceHeader, TraceError> {
        let program = self.name("the program's name")?;
        let offset = self.input.offset();
        let burst = self.number("the sampling")?;
        let period = self.number("the sampling")?;
        let sampling = match (burst, period) {
            (0, 0) => None,
            _ => {
                let what = "a sampling without accesses or without gaps";
                let sampling = Sampling::new(burst, period);
                Some(sampling.ok_or(TraceError::Record { offset, what })?)
            }
        };
        Ok(TraceHeader { program, sampling })
    }

    fn name(&mut self, what: &'static str) -> Result<String, TraceError> {
        let offset = self.input.offset();
        let wrong = TraceError::Record { offset, what: "a name too long or not printable ASCII" };
        let len = match usize::try_from(self.number(what)?) {
            Ok(len) if len <= NAME_BYTES_MAX => len,
            _ => return Err(wrong),
        };
        let start = self.input.offset();
        let bytes = match self.input.fill(len) {
            Ok(bytes) => bytes,
            Err(source) => return Err(self.input.source().explain(source)),
        };
        let Some(name) = bytes.get(..len) else {
            let offset = start + bytes.len() as u64;
            return Err(TraceError::Truncated { offset, what });
        };
        if check_name(name).is_err() {
            return Err(wrong);
        }
        let name = String::from_utf8_lossy(name).into_owned();
        self.input.consume(len);
        Ok(name)
    }

    #[inline]
    fn number(&mut self, what: &'static str) -> Result<u64, TraceError> {
        match self.input.number() {
            Ok(number) => Ok(number),
            Err(error) => Err(self.explain(error, what)),
        }
    }

    #[cold]
    fn explain(&self, error: NumberError, what: &'static str) -> TraceError {
        match error {
            NumberError::Io(source) => self.input.source().explain(source),
            NumberError::Truncated => {
                let offset = self.input.offset() + self.input.buffered().len() as u64;
                TraceError::Truncated { offset, what }
            }
            NumberError::Malformed => self.wrong("a number of more than 64 bits or padded"),
        }
    }

    fn wrong(&self, what: &'static str) -> TraceError {
        TraceError::Record { offset: self.input.offset(), what }
    }

    /// Appends accesses and events; none at the end.
    pub(crate) fn decode(&mut self, out: &mut Batch) -> Result<(), TraceError> {
        while out.len() < BATCH && !self.ended {
            let first = match self.input.byte() {
                Ok(first) => first,
                Err(error) => return Err(self.explain(error, "an access")),
            };
            let kind = match first & 3 {
                1 => AccessKind::Read,
                2 => AccessKind::Write,
                3 => AccessKind::Fetch,
                _ if first != 0 && self.header.is_some() => {
                    let event = self.event(first >> 2)?;
                    self.events += 1;
                    out.push_event(event);
                    continue;
                }
                _ => {
                    self.end(first)?;
                    break;
                }
            };
            let len_bytes = match first >> 2 {
                0 => self.long_length()?,
                short => u16::from(short),
            };
            let difference = unzigzag(self.number("an address")?);
            let addr = VirtAddr::new(self.guess.of(kind).wrapping_add(difference));
            let Some(access) = MemoryAccess::new(addr, len_bytes, kind) else {
                return Err(self.wrong("before this, an access beyond the last address"));
            };
            self.guess.learn(access);
            self.count += 1;
            out.accesses.push(access);
        }
        Ok(())
    }

    #[cold]
    fn event(&mut self, code: u8) -> Result<TraceEvent, TraceError> {
        let offset = self.input.offset() - 1;
        let event = match code {
            MAP => {
                let pages = self.range()?;
                let flags = self.flags(7 | SHARED | FILE)?;
                let backing = match flags & FILE {
                    0 => MapBacking::Anonymous,
                    _ => MapBacking::File {
                        file: self.number("a file's number")?,
                        first_page: self.number("a page of a file")?,
                    },
                };
                let protection = MapProtection::of_bits(flags);
                TraceEvent::Map { pages, protection, backing, shared: flags & SHARED != 0 }
            }
            UNMAP => TraceEvent::Unmap { pages: self.range()? },
            PROTECT => {
                let pages = self.range()?;
                TraceEvent::Protect { pages, protection: MapProtection::of_bits(self.flags(7)?) }
            }
            DISCARD => TraceEvent::Discard { pages: self.range()? },
            MOVE => TraceEvent::Move { from: self.range()?, to: self.range()? },
            FORK => TraceEvent::Fork,
            SKIP => {
                let accesses = self.number("a number of accesses")?;
                let Some(skipped) = self.skipped.checked_add(accesses) else {
                    return Err(self.wrong("before this, more than 2^64 accesses left out"));
                };
                self.skipped = skipped;
                TraceEvent::Skip { accesses }
            }
            _ => return Err(TraceError::Record { offset, what: "an event that nobody knows" }),
        };
        if !event.is_sound() {
            let what = "an event with an empty range or one beyond the last page";
            return Err(TraceError::Record { offset, what });
        }
        Ok(event)
    }

    fn range(&mut self) -> Result<PageRange, TraceError> {
        let offset = self.input.offset();
        let difference = unzigzag(self.number("a page")?);
        let count = self.number("a number of pages")?;
        let pages = page_range(self.last_page.wrapping_add(difference), count);
        let what = "an empty range of pages or one beyond the last page";
        let pages = pages.ok_or(TraceError::Record { offset, what })?;
        self.last_page = pages.end().raw();
        Ok(pages)
    }

    fn flags(&mut self, known: u64) -> Result<u64, TraceError> {
        let offset = self.input.offset();
        let flags = self.number("flags")?;
        match flags & !known {
            0 => Ok(flags),
            _ => Err(TraceError::Record { offset, what: "a flag that nobody knows" }),
        }
    }

    #[cold]
    fn long_length(&mut self) -> Result<u16, TraceError> {
        let offset = self.input.offset();
        let len = self.number("a length")?;
        let what = "a length that belongs into the first byte or exceeds 65535";
        let len = u16::try_from(len).ok().filter(|&len| u64::from(len) >= SHORT_LIMIT);
        len.ok_or(TraceError::Record { offset, what })
    }

    #[cold]
    fn end(&mut self, first: u8) -> Result<(), TraceError> {
        if first != 0 {
            return Err(self.wrong("before this, an end with a length"));
        }
        let offset = self.input.offset();
        if self.number("the number of accesses")? != self.count {
            let what = "not the number of accesses before it";
            return Err(TraceError::Record { offset, what });
        }
        let offset = self.input.offset();
        if self.header.is_some() && self.number("the number of events")? != self.events {
            let what = "not the number of events before it";
            return Err(TraceError::Record { offset, what });
        }
        if self.version > 2 {
            self.programs = Some(CommandPrograms::read(self)?);
        }
        // Reading on to the end is what verifies the checksum.
        match self.input.fill(1) {
            Ok([]) => {
                self.ended = true;
                Ok(())
            }
            Ok(_) => Err(self.wrong("bytes after the end")),
            Err(source) => Err(self.input.source().explain(source)),
        }
    }
}

impl ProgramSource for Swath {
    type Error = TraceError;

    fn number(&mut self, what: &'static str) -> Result<u64, TraceError> {
        Self::number(self, what)
    }

    fn name(&mut self, what: &'static str) -> Result<String, TraceError> {
        Self::name(self, what)
    }

    fn wrong(&self, what: &'static str) -> TraceError {
        Self::wrong(self, what)
    }
}
