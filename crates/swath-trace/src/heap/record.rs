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
use crate::valgrind::options::{RecordError, RecordOptions, check};

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapRecording {
    /// Calls, accesses and gaps written.
    pub events: u64,
    /// What the run did.
    pub totals: HeapTotals,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// How the program ended; `None` if it was stopped at the limit.
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
    use std::io::{self, Write};
    use std::os::fd::AsRawFd;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;
    use crate::access::event::AccessKind;
    use crate::access::event::TraceItem;
    use crate::access::reader::{TraceFormat, TraceReader};
    use crate::access::record::system::{Log, Made, goes_on, under_lackey};
    use crate::command::{cancelled, name, program_name};
    use crate::heap::calls::{Call, Calls};
    use crate::heap::events::HeapHeader;
    use crate::heap::file::HeapWriter;
    use crate::heap::live::Live;

    /// The library as a file that has no name in any directory: a path with a
    /// space or a colon could not be preloaded, a directory be mounted `noexec`.
    fn library() -> Result<File, RecordError> {
        let bytes = swath_preload::LIBRARY.ok_or_else(|| {
            let target = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
            RecordError::NoLibrary { target }
        })?;
        let descriptor = memfd_create(c"swath-preload", MFdFlags::MFD_CLOEXEC);
        let mut file = File::from(descriptor.map_err(io::Error::from)?);
        file.write_all(bytes)?;
        Ok(file)
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
        let made =
            under_lackey(command, output, options, &[], Some(&preload), |log, file, options| {
                convert(command, log, file, options)
            })?;
        let Made { made: (events, totals), file_bytes, exit } = made;
        Ok(HeapRecording { events, totals, file_bytes, exit })
    }

    /// Turns the log into a recording; gives its events and totals, and whether
    /// the log came to its end.
    fn convert(
        command: &[OsString],
        log: Log,
        file: &mut dyn Write,
        options: &mut RecordOptions<'_>,
    ) -> Result<((u64, HeapTotals), bool), RecordError> {
        let trace = |source| RecordError::Trace { source };
        let head = HeapHeader { program: program_name(command), sampling: options.sampling };
        let mut live = Live::new(HeapWriter::new(file, &head, options.level)?, options.sampling);
        let mut calls = Calls::new();
        let (mut seen, mut ended, mut started) = (0u64, true, false);
        let accesses =
            TraceReader::from_reader(log.lines, Some(TraceFormat::Lackey)).map_err(trace)?;
        for item in accesses.items() {
            let TraceItem::Access(access) = item.map_err(trace)? else { continue };
            if !goes_on(seen, options)? {
                ended = false;
                break;
            }
            seen += 1;
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
        if cancelled(options.cancel) {
            return Err(RecordError::Cancelled);
        }
        (options.progress)(seen);
        if ended && !started {
            return Err(RecordError::NotPreloaded { command: name(command) });
        }
        Ok((live.finish(calls.lost())?, ended))
    }
}
