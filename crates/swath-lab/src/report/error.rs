//! Reasons why a report is not written or read.

use std::io;
use std::path::{Path, PathBuf};

use swath_trace::whole::WholeError;

use crate::report::figure::FigureError;
use crate::study::results::ResultError;

/// A file that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The operating system refuses.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file cannot be read, or is too large to be one of a report.
    #[error(transparent)]
    Whole(#[from] WholeError),
    /// A file's text is not a result.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The fault, with line and column.
        source: serde_json::Error,
    },
    /// A result cannot be written, or one that was read is wrong in itself.
    #[error("{path}: {source}")]
    Result {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: ResultError,
    },
    /// The directory has another name than the study in it.
    #[error("{path}: holds the study {study:?}, which is not the directory's name")]
    Misplaced {
        /// The file.
        path: PathBuf,
        /// The study that it holds.
        study: String,
    },
    /// The directory's page was written by another program.
    #[error("{path}: not a page of this program; choose another --out or move it away")]
    Foreign {
        /// The page.
        path: PathBuf,
    },
    /// Another run holds the directory.
    #[error("{path}: held by another run, process {holder}; wait for it or choose another --out")]
    Busy {
        /// The directory.
        path: PathBuf,
        /// The number of the other's process.
        holder: String,
    },
    /// A figure cannot be drawn.
    #[error("{path}: {source}")]
    Figure {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: FigureError,
    },
}

impl ReportError {
    /// The file or directory at fault.
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. }
            | Self::Json { path, .. }
            | Self::Result { path, .. }
            | Self::Misplaced { path, .. }
            | Self::Foreign { path }
            | Self::Busy { path, .. }
            | Self::Figure { path, .. } => path,
            Self::Whole(error) => error.path(),
        }
    }
}
