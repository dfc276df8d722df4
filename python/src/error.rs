//! Errors, as Python's.

use std::fmt::Display;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use swath_lab::study::run::StudyError;

/// A plan, value or file that is refused.
pub(crate) fn refused(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A study that failed, or a file that cannot be read or written.
pub(crate) fn failed(error: impl Display) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// A study's error by its cause.
pub(crate) fn of_study(error: StudyError) -> PyErr {
    match error {
        StudyError::Plan(_) | StudyError::TooFull(_) | StudyError::NoDesign { .. } => {
            refused(error)
        }
        error => failed(error),
    }
}
