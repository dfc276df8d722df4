//! Reasons why two reports cannot be compared.

use std::path::PathBuf;

use crate::report::error::ReportError;

/// Two reports that cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A result cannot be read, or the page cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// No results are there.
    #[error("{path}: no results; give a report's folder, or a study's folder in one")]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// The two have no study in common.
    #[error("{a} and {b} have no study in common")]
    NothingInCommon {
        /// The first folder.
        a: PathBuf,
        /// The second folder.
        b: PathBuf,
    },
}
