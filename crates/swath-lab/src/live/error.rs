//! Errors of a live machine.

use std::io;
use std::path::PathBuf;

use swath_trace::machine::CaptureError;

/// Reasons why memory blocks of a running machine are left alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The kernel's figures cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The journal cannot be read or written.
    #[error("{path}: {source}")]
    Journal {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The journal is none.
    #[error("{path}, line {line}: {what}")]
    JournalLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Description of the fault.
        what: &'static str,
    },
    /// DAMON's reclamation cannot be switched on.
    #[error("{path}: {source}")]
    Damon {
        /// Its switch.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Memory cannot be taken, given back, or its frames are not known.
    #[error("memory is held page by page: {source}")]
    Hold {
        /// The system's reason.
        source: io::Error,
    },
    /// More memory is to be free than can be.
    #[error(
        "the target has {} MiB free, and no more than {} MiB can be: the rest is in use",
        wanted >> 8,
        available >> 8
    )]
    InUse {
        /// Frames that are to be free.
        wanted: u64,
        /// Frames that are, or that the kernel would give up.
        available: u64,
    },
    /// Shares of what is held that do not add up.
    #[error("the shares of the kernel's pages and of pinned ones are more than all together")]
    Shares,
    /// Another run brings memory into a shape.
    #[error("another `swath age` is at work")]
    AgeAtWork,
    /// Another run holds the journal.
    #[error("{path}: another `swath green` is at work")]
    AtWork {
        /// The file.
        path: PathBuf,
    },
    /// A run that was killed has left blocks offline.
    #[error(
        "{path}: a run that was killed left {blocks} blocks offline; `swath green --put-back` brings them online"
    )]
    LeftOffline {
        /// The journal.
        path: PathBuf,
        /// The number of blocks.
        blocks: usize,
    },
}
