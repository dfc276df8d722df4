//! The lines of `valgrind --trace-syscalls=yes`, as far as they tell of the
//! address space.
//!
//! They stand in the same log as lackey's accesses, so their order is exact:
//!
//! ```text
//! SYSCALL[31,1](9) sys_mmap ( 0x0, 8192, 3, 34, 4294967295, 0 ) --> [pre-success] Success(0x4835000)
//! SYSCALL[31,1](11) sys_munmap ( 0x483c000, 37975 )[sync] --> Success(0x0)
//! SYSCALL[31,1](28) sys_madvise ( 0x578c000, 4194304, 4 ) --> [async] ...
//! SYSCALL[31,1](28) ... [async] --> Success(0x0)
//! SYSCALL[31,1](58) sys_fork ( )   fork: process 31 created child 32
//! ```
//!
//! A call counts when it has succeeded. Calls of other names are skipped, and
//! so are those of a second process in the log: nobody knows which accesses
//! are its own.

use std::collections::BTreeMap;

use swath_arch::{BASE_PAGE_BYTES, PageRange};

use crate::access::event::{MapBacking, MapProtection, TraceEvent, page_range, pages_of};

/// Start of each of the lines.
pub(crate) const START: &[u8] = b"SYSCALL[";

/// More than the longest line of a call that counts: six numbers of 20 digits.
pub(crate) const LINE_BYTES_MAX: usize = 512;

const MAP_SHARED: u64 = 1;
const MAP_ANONYMOUS: u64 = 0x20;
const MADV_DONTNEED: u64 = 4;

/// Threads whose unfinished call is remembered, and file descriptors whose
/// file is: more than valgrind and Linux allow a process by default.
const REMEMBERED_MAX: usize = 4096;

const UNREADABLE: &str = "a system call whose arguments or result cannot be read";

/// The calls that change the address space.
#[derive(Clone, Copy)]
enum Name {
    Brk,
    Mmap,
    /// The file's offset counts pages.
    Mmap2,
    Munmap,
    Mprotect,
    Mremap,
    Madvise,
    Close,
    Fork,
}

impl Name {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "sys_brk" => Self::Brk,
            "sys_mmap" => Self::Mmap,
            "sys_mmap2" => Self::Mmap2,
            "sys_munmap" => Self::Munmap,
            "sys_mprotect" => Self::Mprotect,
            "sys_mremap" => Self::Mremap,
            "sys_madvise" => Self::Madvise,
            "sys_close" => Self::Close,
            "sys_clone" | "sys_clone3" | "sys_fork" | "sys_vfork" => Self::Fork,
            _ => return None,
        })
    }

    /// Arguments that are needed.
    fn arguments(self) -> usize {
        match self {
            Self::Fork => 0,
            Self::Brk | Self::Close => 1,
            Self::Munmap => 2,
            Self::Mprotect | Self::Madvise | Self::Mremap => 3,
            Self::Mmap | Self::Mmap2 => 6,
        }
    }
}

#[derive(Clone, Copy)]
struct Call {
    name: Name,
    arguments: [u64; 6],
}

/// State that earlier lines have left.
#[derive(Default)]
pub(crate) struct Syscalls {
    pid: Option<u64>,
    /// Address at which the heap ends.
    brk: Option<u64>,
    /// The file that each descriptor stands for.
    files: BTreeMap<u64, u64>,
    next_file: u64,
    /// Calls without a result yet, by thread.
    pending: BTreeMap<u64, Call>,
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `Success(0x…)`: its number. `Failure(…)`: none. Neither: an error.
fn result(text: &str) -> Result<Option<u64>, &'static str> {
    if let Some((_, rest)) = text.split_once("Success(") {
        let (value, _) = rest.split_once(')').ok_or(UNREADABLE)?;
        return number(value).map(Some).ok_or(UNREADABLE);
    }
    if text.contains("Failure(") { Ok(None) } else { Err(UNREADABLE) }
}

impl Syscalls {
    /// The event of a line, which begins with [`START`], if it tells of one.
    /// O(length of the line).
    ///
    /// # Errors
    /// What is wrong with a line that names a call that counts.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<Option<TraceEvent>, &'static str> {
        // SYSCALL[PID,TID](NUMBER) then a call, or "... [async] -->" and the
        // result of one.
        let head = line.strip_prefix(START).and_then(|rest| {
            let rest = std::str::from_utf8(rest).ok()?;
            let (ids, rest) = rest.split_once("](")?;
            let (pid, tid) = ids.split_once(',')?;
            let (_, rest) = rest.split_once(')')?;
            Some((number(pid)?, number(tid)?, rest.trim_start()))
        });
        let Some((pid, tid, text)) = head else { return Ok(None) };
        if *self.pid.get_or_insert(pid) != pid {
            return Ok(None);
        }
        if let Some(text) = text.strip_prefix("... [async]") {
            return match self.pending.remove(&tid) {
                Some(call) => Ok(result(text)?.and_then(|value| self.done(call, value))),
                None => Ok(None),
            };
        }
        let Some((name, text)) = text.split_once(['(', ' ']) else { return Ok(None) };
        let Some(name) = Name::of(name) else { return Ok(None) };
        if let Name::Fork = name {
            // A thread shares the address space; only a child is announced.
            return Ok(text.contains("created child").then_some(TraceEvent::Fork));
        }
        let (inside, text) = text.split_once(')').ok_or(UNREADABLE)?;
        let mut arguments = [0; 6];
        let mut count = 0;
        for part in inside.trim_start_matches(['(', ' ']).split(',') {
            let slot = arguments.get_mut(count).ok_or(UNREADABLE)?;
            *slot = number(part.trim()).ok_or(UNREADABLE)?;
            count += 1;
        }
        if count < name.arguments() {
            return Err(UNREADABLE);
        }
        let call = Call { name, arguments };
        if text.contains("[async] ...") {
            if self.pending.len() < REMEMBERED_MAX {
                self.pending.insert(tid, call);
            }
            return Ok(None);
        }
        Ok(result(text)?.and_then(|value| self.done(call, value)))
    }

    /// Returns what a call did that returned `value`. Ranges that no kernel would
    /// have accepted give nothing.
    fn done(&mut self, call: Call, value: u64) -> Option<TraceEvent> {
        let [a, b, c, d, e, f] = call.arguments;
        match call.name {
            Name::Brk => self.moved_brk(value),
            Name::Mmap => self.mapped(pages_of(value, b)?, c, d, e, f / BASE_PAGE_BYTES),
            Name::Mmap2 => self.mapped(pages_of(value, b)?, c, d, e, f),
            Name::Munmap => Some(TraceEvent::Unmap { pages: pages_of(a, b)? }),
            Name::Mprotect => Some(TraceEvent::Protect {
                pages: pages_of(a, b)?,
                protection: MapProtection::of_bits(c),
            }),
            Name::Mremap => {
                Some(TraceEvent::Move { from: pages_of(a, b)?, to: pages_of(value, c)? })
            }
            Name::Madvise if c == MADV_DONTNEED => {
                Some(TraceEvent::Discard { pages: pages_of(a, b)? })
            }
            Name::Close => {
                self.files.remove(&a);
                None
            }
            Name::Madvise | Name::Fork => None,
        }
    }

    fn mapped(
        &mut self,
        pages: PageRange,
        protection: u64,
        flags: u64,
        descriptor: u64,
        first_page: u64,
    ) -> Option<TraceEvent> {
        let backing = if flags & MAP_ANONYMOUS != 0 {
            MapBacking::Anonymous
        } else {
            let file = match self.files.get(&descriptor) {
                Some(&file) => file,
                None => {
                    let file = self.next_file;
                    self.next_file += 1;
                    if self.files.len() < REMEMBERED_MAX {
                        self.files.insert(descriptor, file);
                    }
                    file
                }
            };
            page_range(first_page, pages.count)?;
            MapBacking::File { file, first_page }
        };
        let protection = MapProtection::of_bits(protection);
        let shared = flags & MAP_SHARED != 0;
        Some(TraceEvent::Map { pages, protection, backing, shared })
    }

    fn moved_brk(&mut self, end: u64) -> Option<TraceEvent> {
        let page = |addr: u64| addr.div_ceil(BASE_PAGE_BYTES);
        let before = page(self.brk.replace(end)?);
        let after = page(end);
        if after < before {
            return Some(TraceEvent::Unmap { pages: page_range(after, before - after)? });
        }
        let pages = page_range(before, after - before)?;
        let (protection, backing) = (MapProtection::READ_WRITE, MapBacking::Anonymous);
        Some(TraceEvent::Map { pages, protection, backing, shared: false })
    }
}
