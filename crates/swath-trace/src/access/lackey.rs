//! The text of `valgrind --tool=lackey --trace-mem=yes`.
//!
//! One access to a line: `I  ADDR,LEN` fetches, ` L ADDR,LEN` loads,
//! ` S ADDR,LEN` stores, ` M ADDR,LEN` modifies, which is a load and then a
//! store of the same bytes and is handed out as those two. ADDR is hexadecimal
//! without a prefix, LEN decimal. With `--trace-syscalls=yes` the calls that
//! change the address space are read as well
//! ([`Syscalls`]). Every other line is skipped:
//! valgrind's own (`==PID== …`) and what the program wrote.
//!
//! Each line, the last too, ends in a line feed: without it nobody knows
//! whether digits are missing, so a last line without one is an error.

use swath_arch::VirtAddr;

use crate::access::content::{Content, TraceError};
use crate::access::event::Batch;
use crate::access::event::{AccessKind, BATCH, MemoryAccess};
use crate::access::syscall;
use crate::access::syscall::Syscalls;
use crate::input::Input;

/// More than the longest access line: 3 + 16 digits + comma + 5 digits + line
/// feed are 26.
const LINE_BYTES: usize = 32;

/// A reader of lackey's text.
pub(crate) struct Lackey {
    input: Input<Content>,
    /// Lines that are done.
    lines: u64,
    any: bool,
    syscalls: Syscalls,
}

/// Line at the start of some bytes.
enum LackeyLine {
    /// An access, ` M` if `modifies`, and the bytes that its line takes.
    Access { access: MemoryAccess, modifies: bool, len: usize },
    /// Something else.
    Other,
    /// An access whose line has not ended where the bytes do.
    Cut,
    /// It starts as an access but is none.
    Wrong(&'static str),
}

const NO_DIGIT: u8 = 0xff;

const HEX: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut i = 0;
    while i < 16 {
        table[b"0123456789abcdef"[i] as usize] = i as u8;
        table[b"0123456789ABCDEF"[i] as usize] = i as u8;
        i += 1;
    }
    table
};

#[inline]
fn parse(bytes: &[u8]) -> LackeyLine {
    let (kind, modifies) = match bytes {
        [b'I', b' ', b' ', ..] => (AccessKind::Fetch, false),
        [b' ', b'L', b' ', ..] => (AccessKind::Read, false),
        [b' ', b'S', b' ', ..] => (AccessKind::Write, false),
        [b' ', b'M', b' ', ..] => (AccessKind::Read, true),
        _ => return LackeyLine::Other,
    };
    let mut at = 3;
    let mut addr = 0u64;
    loop {
        let Some(&byte) = bytes.get(at) else { return LackeyLine::Cut };
        let digit = HEX[usize::from(byte)];
        if digit == NO_DIGIT {
            break;
        }
        if at == 3 + 16 {
            return LackeyLine::Wrong("an address of more than 16 digits");
        }
        addr = addr << 4 | u64::from(digit);
        at += 1;
    }
    if at == 3 {
        return LackeyLine::Wrong("no hexadecimal address");
    }
    if bytes[at] != b',' {
        return LackeyLine::Wrong("no comma after the address");
    }
    let digits = at + 1;
    at = digits;
    let mut len_bytes = 0u32;
    loop {
        let Some(&byte) = bytes.get(at) else { return LackeyLine::Cut };
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if at == digits + 5 {
            return LackeyLine::Wrong("a length of more than 5 digits");
        }
        len_bytes = len_bytes * 10 + u32::from(digit);
        at += 1;
    }
    if at == digits {
        return LackeyLine::Wrong("no length");
    }
    if bytes[at] != b'\n' {
        return LackeyLine::Wrong("something after the length");
    }
    let Ok(len_bytes) = u16::try_from(len_bytes) else {
        return LackeyLine::Wrong("a length of more than 65535 bytes");
    };
    match MemoryAccess::new(VirtAddr::new(addr), len_bytes, kind) {
        Some(access) => LackeyLine::Access { access, modifies, len: at + 1 },
        None => LackeyLine::Wrong("an access of no bytes or beyond the last address"),
    }
}

impl Lackey {
    pub(crate) fn new(input: Input<Content>) -> Self {
        Self { input, lines: 0, any: false, syscalls: Syscalls::default() }
    }

    /// Appends accesses and events; none at the end.
    pub(crate) fn decode(&mut self, out: &mut Batch) -> Result<(), TraceError> {
        while out.len() < BATCH {
            if let Err(source) = self.input.fill(LINE_BYTES) {
                return Err(self.input.source().explain(source));
            }
            let bytes = self.input.buffered();
            if bytes.is_empty() {
                return match self.any {
                    true => Ok(()),
                    false => Err(TraceError::NoAccesses { lines: self.lines }),
                };
            }
            // All lines that lie in the buffer with certainty, at least one.
            let mut at = 0;
            let mut lines = 0;
            let stop = loop {
                match parse(&bytes[at..]) {
                    LackeyLine::Access { access, modifies, len } => {
                        out.accesses.push(access);
                        if modifies {
                            out.accesses.push(MemoryAccess { kind: AccessKind::Write, ..access });
                        }
                        at += len;
                        lines += 1;
                    }
                    other => break other,
                }
                if bytes.len() - at < LINE_BYTES || out.len() >= BATCH {
                    break LackeyLine::Cut;
                }
            };
            self.any |= lines > 0;
            self.lines += lines;
            self.input.consume(at);
            let offset = self.input.offset();
            match stop {
                LackeyLine::Access { .. } => {}
                LackeyLine::Other => self.other_line(out)?,
                LackeyLine::Wrong(what) => {
                    return Err(TraceError::Line { line: self.lines + 1, offset, what });
                }
                // Cut with nothing done: a refill gave all there is.
                LackeyLine::Cut if at == 0 => {
                    let offset = offset + self.input.buffered().len() as u64;
                    return Err(TraceError::Truncated { offset, what: "a line" });
                }
                LackeyLine::Cut => {}
            }
        }
        Ok(())
    }

    /// A line that is no access: perhaps a system call.
    fn other_line(&mut self, out: &mut Batch) -> Result<(), TraceError> {
        if self.input.buffered().starts_with(syscall::START) {
            if let Err(source) = self.input.fill(syscall::LINE_BYTES_MAX) {
                return Err(self.input.source().explain(source));
            }
            let bytes = self.input.buffered();
            let bytes = &bytes[..bytes.len().min(syscall::LINE_BYTES_MAX)];
            if let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
                match self.syscalls.line(&bytes[..end]) {
                    Ok(event) => {
                        if let Some(event) = event {
                            out.push_event(event);
                        }
                    }
                    Err(what) => {
                        let (line, offset) = (self.lines + 1, self.input.offset());
                        return Err(TraceError::Line { line, offset, what });
                    }
                }
            }
        }
        self.skip_line()
    }

    /// Drops a line of any length.
    fn skip_line(&mut self) -> Result<(), TraceError> {
        loop {
            let bytes = match self.input.fill(1) {
                Ok(bytes) => bytes,
                Err(source) => return Err(self.input.source().explain(source)),
            };
            if bytes.is_empty() {
                let offset = self.input.offset();
                return Err(TraceError::Truncated { offset, what: "a line" });
            }
            let len = bytes.len();
            match bytes.iter().position(|&byte| byte == b'\n') {
                Some(at) => {
                    self.input.consume(at + 1);
                    self.lines += 1;
                    return Ok(());
                }
                None => self.input.consume(len),
            }
        }
    }
}
