//! valgrind's lackey.

use swath_arch::VirtAddr;
use swath_trace::access::{AccessKind, Compression, MemoryAccess, TraceFormat, TraceItem};

use super::file::{items_in_pieces, open};

/// Reads a text, and as well line by line; the accesses and whether there is an error agree.
pub fn run(text: &[u8]) {
    let format = Some(TraceFormat::Lackey);
    let found = items_in_pieces(text, 5, format);
    let Ok(reader) = open(text, usize::MAX, format) else { return };
    // What system calls do to the address space is more than the naive reader knows.
    let calls = text.windows(8).any(|part| part == b"SYSCALL[");
    if reader.compression() != Compression::None || calls {
        return;
    }
    let (expected, is_whole) = naive(text);
    let accesses: Vec<MemoryAccess> = found.0.iter().filter_map(access_of).collect();
    assert_eq!(accesses.len(), found.0.len(), "an event without a system call");
    assert_eq!((accesses, found.1.is_none()), (expected, is_whole), "{:?}", found.1);
}

fn access_of(item: &TraceItem) -> Option<MemoryAccess> {
    match *item {
        TraceItem::Access(access) => Some(access),
        TraceItem::Event(_) => None,
    }
}

/// Returns the accesses before an error or the end, and true at the end.
fn naive(text: &[u8]) -> (Vec<MemoryAccess>, bool) {
    let mut all = Vec::new();
    let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    for line in lines {
        let (kind, modifies) = match line.get(..3) {
            Some(b"I  ") => (AccessKind::Fetch, false),
            Some(b" L ") => (AccessKind::Read, false),
            Some(b" S ") => (AccessKind::Write, false),
            Some(b" M ") => (AccessKind::Read, true),
            _ => continue,
        };
        let Some(access) = operand(&line[3..], kind) else { return (all, false) };
        all.push(access);
        if modifies {
            all.push(MemoryAccess { kind: AccessKind::Write, ..access });
        }
    }
    let is_whole = rest.is_empty() && !all.is_empty();
    (all, is_whole)
}

/// Reads `ADDR,LEN`.
fn operand(text: &[u8], kind: AccessKind) -> Option<MemoryAccess> {
    let (addr, len) = std::str::from_utf8(text).ok()?.split_once(',')?;
    let is_short = (1..=16).contains(&addr.len()) && (1..=5).contains(&len.len());
    let digits = addr.bytes().all(|digit| digit.is_ascii_hexdigit())
        && len.bytes().all(|digit| digit.is_ascii_digit());
    if !is_short || !digits {
        return None;
    }
    let addr = u64::from_str_radix(addr, 16).ok()?;
    MemoryAccess::new(VirtAddr::new(addr), len.parse().ok()?, kind)
}
