//! Options and errors of a recording under valgrind.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::access::content::TraceError;
use crate::access::event::Sampling;

/// Options of a recording.
pub struct RecordOptions<'a> {
    /// Stop the program after so many accesses; `None` lets it run to its end.
    pub accesses_max: Option<u64>,
    /// Stop the program after so long; `None` lets it run to its end.
    pub time_max: Option<Duration>,
    /// Write only bursts of the run; `None` writes every access.
    pub sampling: Option<Sampling>,
    /// zstd's level, 1 (fast) to 19 (small).
    pub level: i32,
    /// The valgrind to run, a path or a name to be found in `PATH`.
    pub valgrind: PathBuf,
    /// Set by a handler of Ctrl-C: the recording stops and leaves no file.
    pub cancel: Option<&'a AtomicBool>,
    /// Told the accesses so far, now and then.
    pub progress: &'a mut dyn FnMut(u64),
}

/// Reasons why nothing was recorded; no file is left, and an older one is untouched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no such valgrind.
    #[error(
        "{valgrind} was not found: install valgrind (for example `apt install valgrind`), or \
         record where it is installed"
    )]
    NoValgrind {
        /// Name that was looked for.
        valgrind: PathBuf,
    },
    /// There is no command to run.
    #[error("no command to record")]
    NoCommand,
    /// This system has no `/proc` to name the pipe by.
    #[error("recording needs Linux; this is {os}")]
    Unsupported {
        /// The operating system.
        os: &'static str,
    },
    /// Valgrind ended without a single access.
    #[error("nothing was recorded: {command} ended with {status} before its first access")]
    NothingRecorded {
        /// The program.
        command: String,
        /// Status with which it ended.
        status: ExitStatus,
    },
    /// Valgrind's log is not what lackey writes.
    #[error("valgrind's log: {source}")]
    Trace {
        /// Description of the fault.
        source: TraceError,
    },
    /// A sampling that leaves nothing out, or everything.
    #[error("a burst has at least one access and fewer than there are from burst to burst")]
    Sampling,
    /// No library for the program's allocator.
    #[error(
        "recording a heap needs 64-bit Linux with the GNU C library; this program was built for \
         {target}"
    )]
    NoLibrary {
        /// Architecture and operating system.
        target: String,
    },
    /// The program runs without the library that tells of its allocator.
    #[error(
        "nothing of {command}'s heap was told: it is linked statically, runs with another's \
         rights, or its loader did not load what LD_PRELOAD names"
    )]
    NotPreloaded {
        /// The program.
        command: String,
    },
    /// Ctrl-C.
    #[error("cancelled")]
    Cancelled,
    /// The file could not be created or written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The file that was asked for, or the place of temporary ones.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The processes of the command could not be followed.
    #[error("the command's processes cannot be followed (ptrace, threads): {source}")]
    Follow {
        /// The system's words.
        source: io::Error,
    },
    /// A file, pipe or process could not be made or written.
    #[error("{source}")]
    Io {
        /// The system's words.
        #[from]
        source: io::Error,
    },
}

/// Checks what can be known to be wrong before anything runs.
pub(crate) fn check(command: &[OsString], options: &RecordOptions<'_>) -> Result<(), RecordError> {
    if command.is_empty() {
        return Err(RecordError::NoCommand);
    }
    let sound = |s: &Sampling| Sampling::new(s.burst_accesses, s.period_accesses).is_some();
    if !options.sampling.as_ref().is_none_or(sound) {
        return Err(RecordError::Sampling);
    }
    Ok(())
}
