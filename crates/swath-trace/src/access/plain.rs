//! Plain text and CSV: an address, a kind and perhaps a length on a line.
//!
//! Fields stand between spaces, tabs, commas or semicolons, address and kind in either order. An
//! address is decimal, or hexadecimal after `0x`; a kind is one of the [words](kind_of), in any case;
//! a length is decimal, and 1 if it is left out, so that no access lies across pages unless it is
//! said to. A first line may name the columns (`address`, `kind`, `length`, or other
//! [names](Column::of)); those with other names are skipped. Lines that are empty or begin with `#`
//! are skipped, too. Each line, the last too, ends in a line feed, as for lackey's text.

use swath_arch::VirtAddr;

use crate::access::content::{Content, TraceError};
use crate::access::event::{AccessKind, BATCH, MemoryAccess};
use crate::input::Input;

/// The longest line.
const LINE_BYTES_MAX: usize = 4096;

/// A reader of plain text.
pub(crate) struct Plain {
    input: Input<Content>,
    /// Lines that are done.
    lines: u64,
    any: bool,
    /// What the columns hold, once the first line has said so.
    columns: Option<Vec<Column>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Address,
    Kind,
    Length,
    Other,
}

impl Column {
    /// The column of a name.
    fn of(name: &str) -> Self {
        match name.trim_matches('"').to_ascii_lowercase().as_str() {
            "address" | "addr" | "vaddr" | "va" => Self::Address,
            "kind" | "type" | "op" | "rw" | "r/w" | "access" => Self::Kind,
            "length" | "len" | "len_bytes" | "size" | "bytes" => Self::Length,
            _ => Self::Other,
        }
    }
}

/// The columns that a line names, if it is a line of names.
fn header_of(line: &str) -> Option<Vec<Column>> {
    let columns: Vec<Column> = fields(line).map(Column::of).collect();
    let one = |wanted| columns.iter().filter(|column| **column == wanted).count() == 1;
    (one(Column::Address) && one(Column::Kind)).then_some(columns)
}

/// The kind that a word says.
fn kind_of(word: &str) -> Option<AccessKind> {
    match word.to_ascii_lowercase().as_str() {
        "r" | "rd" | "read" | "l" | "ld" | "load" => Some(AccessKind::Read),
        "w" | "wr" | "write" | "s" | "st" | "store" => Some(AccessKind::Write),
        "i" | "f" | "x" | "fetch" | "ifetch" | "instr" => Some(AccessKind::Fetch),
        _ => None,
    }
}

/// The fields of a line. In CSV one can be empty; between spaces there is none.
fn fields(line: &str) -> impl Iterator<Item = &str> {
    let comma = |c: char| matches!(c, ',' | ';');
    let is_csv = line.contains(comma);
    let separator = move |c: char| if is_csv { comma(c) } else { matches!(c, ' ' | '\t') };
    line.split(separator).map(str::trim).filter(move |field| is_csv || !field.is_empty())
}

fn number_of(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        None if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    }
}

fn parse(line: &str, columns: Option<&[Column]>) -> Result<MemoryAccess, &'static str> {
    let words: Vec<&str> = fields(line).collect();
    let (address, kind, length) = match columns {
        Some(columns) => {
            let of = |wanted| {
                let nth = columns.iter().position(|column| *column == wanted);
                nth.and_then(|nth| words.get(nth).copied())
            };
            (of(Column::Address), of(Column::Kind), of(Column::Length))
        }
        None if words.len() > 3 => return Err("more than an address, a kind and a length"),
        None => {
            let first = usize::from(words.first().is_some_and(|word| kind_of(word).is_some()));
            (words.get(first).copied(), words.get(1 - first).copied(), words.get(2).copied())
        }
    };
    let address = address.and_then(number_of).ok_or("no address, decimal or after 0x")?;
    let kind = kind.and_then(kind_of).ok_or("no kind of access, as r or w")?;
    let length = match length {
        None => 1,
        Some(word) => word.parse().map_err(|_| "a length that is none from 1 to 65535")?,
    };
    let access = MemoryAccess::new(VirtAddr::new(address), length, kind);
    access.ok_or("an access of no bytes or beyond the last address")
}

fn is_skipped(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

impl Plain {
    /// Returns true if the first line of some text that is not skipped is one of this format.
    pub(crate) fn is_plausible(head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let first = text.lines().map(str::trim).find(|line| !is_skipped(line));
        first.is_some_and(|line| header_of(line).is_some() || parse(line, None).is_ok())
    }

    pub(crate) fn new(input: Input<Content>) -> Self {
        Self { input, lines: 0, any: false, columns: None }
    }

    /// Appends accesses; none at the end.
    pub(crate) fn decode(&mut self, out: &mut Vec<MemoryAccess>) -> Result<(), TraceError> {
        while out.len() < BATCH {
            if let Err(source) = self.input.fill(LINE_BYTES_MAX) {
                return Err(self.input.source().explain(source));
            }
            let offset = self.input.offset();
            let bytes = self.input.buffered();
            let bytes = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
            if bytes.is_empty() {
                return match self.any {
                    true => Ok(()),
                    false => Err(TraceError::NoAccesses { lines: self.lines }),
                };
            }
            let wrong = |what| TraceError::Line { line: self.lines + 1, offset, what };
            let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
                if bytes.len() == LINE_BYTES_MAX {
                    return Err(wrong("a line of more than 4096 bytes"));
                }
                let offset = offset + bytes.len() as u64;
                return Err(TraceError::Truncated { offset, what: "a line" });
            };
            let line = std::str::from_utf8(&bytes[..end]).map_err(|_| wrong("no UTF-8"))?.trim();
            if !is_skipped(line) {
                match header_of(line).filter(|_| !self.any && self.columns.is_none()) {
                    Some(columns) => self.columns = Some(columns),
                    None => {
                        out.push(parse(line, self.columns.as_deref()).map_err(wrong)?);
                        self.any = true;
                    }
                }
            }
            self.lines += 1;
            self.input.consume(end + 1);
        }
        Ok(())
    }
}
