//! Recording a program's heap.
//!
//! [`record_heap`] runs a command under `valgrind --tool=lackey` with the library of
//! [`swath_preload`] before the C library's allocator. The library tells of each
//! call by where it stores, and lackey prints these stores among all accesses,
//! so that calls and accesses come in one stream and in their true order. The
//! text is converted on its way through a pipe and never stored.
//!
//! Accesses to blocks are written as block and offset; all others are counted
//! alone. What the allocator does within its own calls (the copying of
//! `realloc`, the clearing of `calloc`) is no access of the program's and
//! counts among the others. Child processes are not recorded.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;

use crate::heap::events::HeapTotals;
use crate::programs::CommandPrograms;
use crate::valgrind::options::{RecordError, RecordOptions, check};

/// Facts of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeapRecording {
    /// Calls, accesses and gaps written.
    pub events: u64,
    /// Totals of the whole run.
    pub totals: HeapTotals,
    /// Programs of the command, the recorded one among them.
    pub programs: CommandPrograms,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Status with which the command ended; `None` if it was stopped at the limit.
    pub exit: Option<ExitStatus>,
}

/// Runs `command` (the program and its arguments) under valgrind and writes
/// what it does with its heap to `output`, which appears whole or not at all.
/// Sampling counts accesses to blocks, the limit all of them, instruction
/// fetches included; lackey gives about 0.65 million of those a second.
///
/// # Errors
/// A [`RecordError`].
pub fn record_heap(
    command: &[OsString],
    output: &Path,
    options: &mut RecordOptions<'_>,
) -> Result<HeapRecording, RecordError> {
    check(command, options)?;
    system::record(command, output, options)
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    pub(crate) fn record(
        _: &[OsString],
        _: &Path,
        _: &mut RecordOptions<'_>,
    ) -> Result<HeapRecording, RecordError> {
        Err(RecordError::Unsupported { os: std::env::consts::OS })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io::{self, BufWriter, Write};
    use std::os::fd::AsRawFd;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;
    use crate::access::event::{AccessKind, Sampling, TraceItem};
    use crate::access::reader::TraceItems;
    use crate::command::name;
    use crate::heap::calls::{Call, Calls};
    use crate::heap::events::HeapHeader;
    use crate::heap::file::HeapWriter;
    use crate::heap::live::Live;
    use crate::valgrind::run::{Made, Program, Share, Unfinished, record as record_programs};

    /// The library as a file that has no name in any directory: a path with a
    /// space or a colon could not be preloaded, a directory be mounted `noexec`.
    fn library() -> Result<File, RecordError> {
        let bytes = swath_preload::LIBRARY.ok_or_else(|| {
            let target = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
            RecordError::NoLibrary { target }
        })?;
        let made = || -> io::Result<File> {
            let descriptor = memfd_create(c"swath-preload", MFdFlags::MFD_CLOEXEC);
            let mut file = File::from(descriptor.map_err(io::Error::from)?);
            file.write_all(bytes)?;
            Ok(file)
        };
        made().map_err(|source| RecordError::Output { path: "memfd:swath-preload".into(), source })
    }

    pub(crate) fn record(
        command: &[OsString],
        output: &Path,
        options: &mut RecordOptions<'_>,
    ) -> Result<HeapRecording, RecordError> {
        let library = library()?;
        let mut preload =
            OsString::from(format!("/proc/{}/fd/{}", std::process::id(), library.as_raw_fd()));
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let (sampling, level) = (options.sampling, options.level);
        let made = record_programs(
            command,
            output,
            options,
            &[],
            Some(&preload),
            |program, items, file, share| convert(&program, items, file, share, sampling, level),
            |Heap { live, lost_calls, started }, programs, stopped| {
                if !started && !stopped {
                    return Err(RecordError::NotPreloaded { command: name(command) });
                }
                let (events, totals) = live.finish(lost_calls, programs)?;
                Ok((events, totals))
            },
        )?;
        let Made { made: (events, totals), programs, file_bytes, exit } = made;
        Ok(HeapRecording { events, totals, programs, file_bytes, exit })
    }

    /// A recording that lacks its end.
    struct Heap {
        live: Live<BufWriter<File>>,
        lost_calls: u64,
        /// The library was there.
        started: bool,
    }

    /// Turns the log of a program into a recording.
    fn convert(
        program: &Program,
        items: TraceItems,
        file: BufWriter<File>,
        mut share: Share,
        sampling: Option<Sampling>,
        level: i32,
    ) -> Result<Unfinished<Heap>, RecordError> {
        let head = HeapHeader { program: program.name.clone(), sampling };
        let mut live = Live::new(HeapWriter::new(file, &head, level)?, sampling);
        let mut calls = Calls::new();
        let (mut accesses, mut started) = (0u64, false);
        for item in items {
            let item = item.map_err(|source| RecordError::Trace { source })?;
            let TraceItem::Access(access) = item else { continue };
            if !share.take() {
                break;
            }
            accesses += 1;
            if access.kind == AccessKind::Fetch {
                continue;
            }
            if !Calls::is_report(&access) {
                live.access(access)?;
            } else if let Some((thread, call)) = calls.take(access) {
                started |= call == Call::Start;
                live.call(thread, call)?;
            }
        }
        let stream = Heap { live, lost_calls: calls.lost(), started };
        Ok(Unfinished { stream, accesses })
    }
}
