//! Swath's own trace format: each access as its difference from a guess.
//!
//! Programs run loops: an instruction that comes again fetches from the same
//! place and moves its operands by the same stride. So a fetch is guessed to
//! follow the one before, an operand to lie where this instruction's operand
//! lay last time, and what is stored is the difference, which repeats; zstd
//! then finds the repetitions. `docs/formats.md` describes each byte.

use std::io::{self, Write};

use swath_arch::VirtAddr;

use crate::access::{Access, AccessKind, BATCH, Content, TraceError};
use crate::input::{Input, NumberError, put_number, unzigzag, zigzag};

/// The file's first eight bytes. The line end at their close shows a copy
/// that went through text conversion.
pub const MAGIC: [u8; 8] = *b"SWTRAC\r\n";

/// The version of the format, byte 8 of the file.
pub const VERSION: u8 = 1;

/// zstd's largest window: 8 MiB, what level 19 writes.
pub(crate) const WINDOW_LOG2: u32 = 23;

/// Places for the last address of operands: enough for 16384 bytes of code
/// before two instructions share.
const SLOTS: usize = 1 << 16;

/// Operands of one instruction that have a place each; the last is shared by
/// all that follow.
const OPERANDS: u64 = 4;

/// Encoded accesses gathered before zstd sees them, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// What the next access is likely to be; reader and writer hold the same.
struct Guess {
    /// Where the last fetch ended.
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
    fn learn(&mut self, access: Access) {
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

/// The two low bits of an access's first byte; 0 is the end.
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
    zstd: zstd::stream::write::Encoder<'static, W>,
    chunk: Vec<u8>,
    guess: Guess,
    count: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace. `level` is zstd's, 1 (fast) to 19 (small).
    ///
    /// # Errors
    /// Those of `to`, and a level that zstd does not know.
    pub fn new(mut to: W, level: i32) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&[VERSION])?;
        let mut zstd = zstd::stream::write::Encoder::new(to, level)?;
        zstd.include_checksum(true)?;
        zstd.window_log(WINDOW_LOG2)?;
        let chunk = Vec::with_capacity(CHUNK_BYTES + 32);
        Ok(Self { zstd, chunk, guess: Guess::new(), count: 0 })
    }

    /// Adds an access. O(1).
    ///
    /// # Errors
    /// Those of the writer below; [`io::ErrorKind::InvalidInput`] for an
    /// access that is empty or ends beyond the last address, which is not
    /// written.
    #[inline]
    pub fn push(&mut self, access: Access) -> io::Result<()> {
        let Access { addr, len_bytes, kind } = access;
        if Access::new(addr, len_bytes, kind).is_none() {
            let what = "an access of no bytes or beyond the last address";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
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
        if self.chunk.len() >= CHUNK_BYTES {
            self.zstd.write_all(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }

    /// Accesses so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Ends the trace and gives the writer back.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.chunk.push(0);
        put_number(&mut self.chunk, self.count);
        self.zstd.write_all(&self.chunk)?;
        let mut to = self.zstd.finish()?;
        to.flush()?;
        Ok(to)
    }
}

/// A reader of Swath's format.
pub(crate) struct Swath {
    input: Input<Content>,
    guess: Guess,
    count: u64,
    ended: bool,
}

impl Swath {
    /// Reads the signature and the version, which `input` starts with.
    pub(crate) fn new(mut input: Input<Content>) -> Result<Self, TraceError> {
        let head = match input.fill(MAGIC.len() + 1) {
            Ok(head) => head,
            Err(source) => return Err(input.source().explain(source)),
        };
        if !head.starts_with(&MAGIC) {
            return Err(TraceError::Record { offset: 0, what: "not the signature of a trace" });
        }
        match head.get(MAGIC.len()) {
            Some(&VERSION) => input.consume(MAGIC.len() + 1),
            Some(&found) => return Err(TraceError::Version { found }),
            None => return Err(TraceError::Truncated { offset: 8, what: "the version" }),
        }
        let input = Content::unpack(input)?;
        Ok(Self { input, guess: Guess::new(), count: 0, ended: false })
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

    /// Appends accesses; none at the end.
    pub(crate) fn decode(&mut self, out: &mut Vec<Access>) -> Result<(), TraceError> {
        while out.len() < BATCH && !self.ended {
            let first = match self.input.byte() {
                Ok(first) => first,
                Err(error) => return Err(self.explain(error, "an access")),
            };
            let kind = match first & 3 {
                1 => AccessKind::Read,
                2 => AccessKind::Write,
                3 => AccessKind::Fetch,
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
            let Some(access) = Access::new(addr, len_bytes, kind) else {
                return Err(self.wrong("before this, an access beyond the last address"));
            };
            self.guess.learn(access);
            self.count += 1;
            out.push(access);
        }
        Ok(())
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
