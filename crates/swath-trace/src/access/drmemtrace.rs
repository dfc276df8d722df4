//! DynamoRIO's memory traces as its `drmemtrace` framework writes them for analysis
//! (`trace_entry_t` in its `common/trace_entry.h`): a thread's or a core's file, not the raw files
//! before they are converted.
//!
//! 12 bytes to an entry, numbers with the lowest byte first:
//!
//! ```text
//! byte  0  type   2
//!       2  size   2   bytes of an access or an instruction
//!       4  addr   8   or the version, in the header that comes first
//! ```
//!
//! An instruction gives its fetch, then its reads and writes. Entries that are neither (threads,
//! markers, encodings, flushes, prefetches) give nothing, nor do instructions that are not fetched
//! anew. An access whose length the tracer did not know is one byte long.

use swath_arch::VirtAddr;

use crate::access::content::{Content, TraceError};
use crate::access::event::{AccessKind, MemoryAccess};
use crate::access::records;
use crate::input::Input;

const ENTRY_BYTES: usize = 12;

/// The highest version of the format that a header is believed to have.
const VERSION_MAX: u64 = 0xff;

/// The types that matter here.
mod kind {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    /// An instruction that is no branch; the next six are branches.
    pub(super) const INSTR: u16 = 10;
    pub(super) const RETURN: u16 = 16;
    /// Instructions behind the last one, one byte of length for each in place of the address.
    pub(super) const BUNDLE: u16 = 17;
    pub(super) const HEADER: u16 = 25;
    pub(super) const SYSENTER: u16 = 31;
    pub(super) const TAKEN_JUMP: u16 = 48;
    pub(super) const UNTAKEN_JUMP: u16 = 49;
    /// No type that is known today is higher.
    pub(super) const MAX: u16 = UNTAKEN_JUMP;
}

struct TraceEntry {
    of: u16,
    size: u16,
    addr: [u8; 8],
}

impl TraceEntry {
    #[inline]
    fn read(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [a, b, c, d, addr @ ..] = *bytes;
        Self { of: u16::from_le_bytes([a, b]), size: u16::from_le_bytes([c, d]), addr }
    }

    fn value(&self) -> u64 {
        u64::from_le_bytes(self.addr)
    }
}

/// A reader of such traces.
pub(crate) struct DrMemTrace {
    input: Input<Content>,
    /// The end of the last instruction.
    next: u64,
}

impl DrMemTrace {
    pub(crate) fn new(input: Input<Content>) -> Self {
        Self { input, next: 0 }
    }

    /// Returns true if `head` starts with a header and holds no entry that cannot be.
    pub(crate) fn is_plausible(head: &[u8]) -> bool {
        let (entries, _) = head.as_chunks();
        let mut entries = entries.iter().map(TraceEntry::read);
        let begins = entries.next().is_some_and(|first| {
            first.of == kind::HEADER && first.size == 0 && first.value() <= VERSION_MAX
        });
        begins && entries.all(|entry| entry.of <= kind::MAX)
    }

    /// Appends accesses; none at the end.
    pub(crate) fn decode(&mut self, out: &mut Vec<MemoryAccess>) -> Result<(), TraceError> {
        let next = &mut self.next;
        records::decode(&mut self.input, out, "an entry of 12 bytes", |bytes, out| {
            push(&TraceEntry::read(bytes), next, out).map_err(|what| (0, what))
        })
    }
}

/// Appends the accesses of an entry; `next` is the end of the last instruction.
fn push(
    entry: &TraceEntry,
    next: &mut u64,
    out: &mut Vec<MemoryAccess>,
) -> Result<(), &'static str> {
    let mut access = |addr: u64, size: u16, kind| {
        let access = MemoryAccess::new(VirtAddr::new(addr), size.max(1), kind);
        out.push(access.ok_or("an access that ends beyond the last address")?);
        Ok(())
    };
    match entry.of {
        kind::READ => access(entry.value(), entry.size, AccessKind::Read),
        kind::WRITE => access(entry.value(), entry.size, AccessKind::Write),
        kind::INSTR..=kind::RETURN | kind::SYSENTER | kind::TAKEN_JUMP | kind::UNTAKEN_JUMP => {
            *next = entry.value().wrapping_add(u64::from(entry.size));
            access(entry.value(), entry.size, AccessKind::Fetch)
        }
        kind::BUNDLE => {
            let lengths = entry.addr.get(..usize::from(entry.size));
            for &length in lengths.ok_or("a bundle of more than 8 instructions")? {
                access(*next, length.into(), AccessKind::Fetch)?;
                *next = next.wrapping_add(length.into());
            }
            Ok(())
        }
        of if of <= kind::MAX => Ok(()),
        _ => Err("a type of entry that does not exist"),
    }
}
