//! Recording the accesses of a program.
//!
//! [`record`] runs a command under `valgrind --tool=lackey` and converts its
//! log on the way through a pipe; the text, some fifteen bytes to an access,
//! never reaches a disk. The program keeps its standard input, output and
//! error: valgrind opens the pipe by its name under `/proc`, so the log needs
//! none of the three. Child processes of the program are not recorded.
//!
//! System calls stand in the same log, so the trace tells what the program did
//! to its address space between which accesses. A run too long to keep is
//! thinned out by [`Sampling`].

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use crate::valgrind::options::{RecordError, RecordOptions, check};

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessRecording {
    /// Accesses of the run.
    pub run_accesses: u64,
    /// Accesses written.
    pub accesses: u64,
    /// Events written.
    pub events: u64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// How the program ended; `None` if it was stopped at the limit.
    pub exit: Option<ExitStatus>,
}

/// Runs `command` (the program and its arguments) under valgrind and writes
/// its accesses to `output`, which appears whole or not at all. Lackey gives
/// about a million accesses a second.
///
/// # Errors
/// A [`RecordError`].
pub fn record_accesses(
    command: &[OsString],
    output: &Path,
    options: &mut RecordOptions<'_>,
) -> Result<AccessRecording, RecordError> {
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
    ) -> Result<AccessRecording, RecordError> {
        Err(RecordError::Unsupported { os: std::env::consts::OS })
    }
}

#[cfg(target_os = "linux")]
pub(crate) mod system {
    use std::ffi::OsStr;
    use std::io::{PipeReader, PipeWriter, Write};
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command};

    use super::*;
    use crate::access::content::TraceError;
    use crate::access::event::{TraceHeader, TraceItem};
    use crate::access::file::TraceWriter;
    use crate::access::reader::{TraceFormat, TraceReader};
    use crate::access::sample::Sampler;
    use crate::command::{cancelled, close_after, name, program_name};

    /// Accesses between two looks at the outside.
    const LOOK_EVERY: u64 = 1 << 16;

    /// What was written.
    struct Written {
        run_accesses: u64,
        accesses: u64,
        events: u64,
    }

    pub(crate) fn record(
        command: &[OsString],
        output: &Path,
        options: &mut RecordOptions<'_>,
    ) -> Result<AccessRecording, RecordError> {
        let arguments = ["--trace-syscalls=yes"];
        let made =
            under_lackey(command, output, options, &arguments, None, |log, file, options| {
                convert(command, log, file, options)
            })?;
        let Made { made: Written { run_accesses, accesses, events }, file_bytes, exit } = made;
        Ok(AccessRecording { run_accesses, accesses, events, file_bytes, exit })
    }

    /// The log of a process, from its first line on.
    pub(crate) struct Log {
        pub(crate) pid: u32,
        pub(crate) lines: PipeReader,
    }

    /// A file that was made of a log.
    pub(crate) struct Made<T> {
        /// What `convert` says of it.
        pub(crate) made: T,
        pub(crate) file_bytes: u64,
        /// How the program ended; `None` if it was stopped.
        pub(crate) exit: Option<ExitStatus>,
    }

    /// Runs `command` under lackey, with further `arguments` for valgrind and
    /// a library to preload, and lets `convert` write `output` from the log; it
    /// says as well whether the log came to its end. The file appears whole or
    /// not at all.
    pub(crate) fn under_lackey<T>(
        command: &[OsString],
        output: &Path,
        options: &mut RecordOptions<'_>,
        arguments: &[&str],
        preload: Option<&OsStr>,
        convert: impl FnOnce(
            Log,
            &mut dyn Write,
            &mut RecordOptions<'_>,
        ) -> Result<(T, bool), RecordError>,
    ) -> Result<Made<T>, RecordError> {
        let (made, exit) = crate::output::replace(output, |file| {
            let (log, log_end) = io::pipe()?;
            let mut child = start(command, &options.valgrind, arguments, preload, &log_end)?;
            // With this process's end open, the log does not end before the
            // child has opened it, nor go on after the child is gone.
            let watcher = close_after(&child, log_end);
            let converted = convert(Log { pid: child.id(), lines: log }, file, options);
            // Not reaped yet, whatever the watcher saw, so the number is still
            // this child's; killing one that has ended does nothing.
            child.kill()?;
            let status = child.wait()?;
            let _ = watcher.join();
            match converted {
                Ok((made, ended)) => Ok((made, ended.then_some(status))),
                Err(RecordError::Trace {
                    source: TraceError::Empty | TraceError::NoAccesses { .. },
                }) => Err(RecordError::NothingRecorded { command: name(command), status }),
                Err(error) => Err(error),
            }
        })?;
        Ok(Made { made, file_bytes: std::fs::metadata(output)?.len(), exit })
    }

    /// Whether the access after `seen` others is within the limit. Now and then
    /// looks at the outside.
    pub(crate) fn goes_on(seen: u64, options: &mut RecordOptions<'_>) -> Result<bool, RecordError> {
        if options.accesses_max.is_some_and(|max| seen >= max) {
            return Ok(false);
        }
        if seen.is_multiple_of(LOOK_EVERY) {
            (options.progress)(seen);
            if cancelled(options.cancel) {
                return Err(RecordError::Cancelled);
            }
        }
        Ok(true)
    }

    fn start(
        command: &[OsString],
        valgrind: &Path,
        arguments: &[&str],
        preload: Option<&OsStr>,
        log_end: &PipeWriter,
    ) -> Result<Child, RecordError> {
        let log = format!("/proc/{}/fd/{}", std::process::id(), log_end.as_raw_fd());
        let mut start = Command::new(valgrind);
        if let Some(library) = preload {
            start.env("LD_PRELOAD", library);
        }
        start
            .args(["-q", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
            .arg("--child-silent-after-fork=yes")
            .args(arguments)
            .arg(format!("--log-file={log}"))
            .arg("--")
            .args(command)
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => {
                    RecordError::NoValgrind { valgrind: valgrind.to_owned() }
                }
                _ => RecordError::Io { source },
            })
    }

    /// Copies the log into the trace.
    fn convert(
        command: &[OsString],
        log: Log,
        file: &mut dyn Write,
        options: &mut RecordOptions<'_>,
    ) -> Result<(Written, bool), RecordError> {
        let Log { pid, lines } = log;
        let trace = |source| RecordError::Trace { source };
        let header = TraceHeader { program: program_name(command), sampling: options.sampling };
        let writer = TraceWriter::with_header(file, options.level, &header)?;
        let mut sampler = Sampler::new(writer, options.sampling);
        let mut ended = true;
        let accesses = TraceReader::from_reader(lines, Some(TraceFormat::Lackey)).map_err(trace)?;
        // The log has begun, so the program is loaded and little more. Without
        // the list its image is mapped page by page.
        if let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) {
            sampler.started_with(&maps);
        }
        for item in accesses.items() {
            let access = match item.map_err(trace)? {
                TraceItem::Access(access) => access,
                TraceItem::Event(event) => {
                    sampler.event(event)?;
                    continue;
                }
            };
            if !goes_on(sampler.seen(), options)? {
                ended = false;
                break;
            }
            sampler.access(access)?;
        }
        if cancelled(options.cancel) {
            return Err(RecordError::Cancelled);
        }
        let run_accesses = sampler.seen();
        let writer = sampler.finish()?;
        let (accesses, events) = (writer.count(), writer.events());
        writer.finish()?;
        (options.progress)(run_accesses);
        Ok((Written { run_accesses, accesses, events }, ended))
    }
}
