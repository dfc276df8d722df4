//! Errors, as Python's.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use swath_frame::FrameAllocateError;
use swath_frame::segment::SegmentError;
use swath_lab::study::run::StudyError;
use swath_lab::table::parquet::{Fault, TableError};

/// A plan, value or file that is refused.
pub(crate) fn refused(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A file that cannot be written, or threads that cannot be had.
pub(crate) fn failed(error: impl Display) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// Refuses a file that is not there, as Python's own functions do.
pub(crate) fn there(path: &Path) -> PyResult<()> {
    let Err(error) = fs::metadata(path) else { return Ok(()) };
    let text = error.to_string();
    let what = text.split(" (os error").next().unwrap_or_default().to_owned();
    // Python takes the class from the number: `FileNotFoundError` and the like.
    Err(PyOSError::new_err((error.raw_os_error(), what, path.to_owned())))
}

/// A study's error by its cause.
pub(crate) fn of_study(error: StudyError) -> PyErr {
    match error {
        StudyError::Plan(_)
        | StudyError::TooFull(_)
        | StudyError::NoDesign { .. }
        | StudyError::Machine { .. }
        | StudyError::Input(_) => refused(error),
        StudyError::Interrupted | StudyError::Result(_) | StudyError::Journal(_) => failed(error),
    }
}

/// An error of a file of Parquet by its cause.
pub(crate) fn of_table(error: TableError) -> PyErr {
    match error.what {
        Fault::Io(_) => failed(error),
        Fault::Parquet(_) | Fault::Columns(_) | Fault::Type(_) => refused(error),
    }
}

/// An allocator's error: Python's `MemoryError` if it lacks frames.
pub(crate) fn of_frames(error: FrameAllocateError) -> PyErr {
    use FrameAllocateError::{Corrupt, Empty, NoBlock, OutOfFrames};
    match error {
        OutOfFrames { .. } | NoBlock { .. } => PyMemoryError::new_err(error.to_string()),
        Empty | Corrupt(_) => refused(error),
    }
}

/// As [`of_frames`].
pub(crate) fn of_segments(error: SegmentError) -> PyErr {
    use SegmentError::{NoSegment, OutOfFrames, Unsatisfiable};
    match error {
        OutOfFrames { .. } | NoSegment { .. } | Unsatisfiable { .. } => {
            PyMemoryError::new_err(error.to_string())
        }
        error => refused(error),
    }
}
