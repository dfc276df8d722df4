//! Failures of the program, and their exit codes.

use std::io;
use std::sync::OnceLock;

use swath_lab::report::error::ReportError;
use swath_lab::source::real::InputError;
use swath_lab::study::journal::JournalError;
use swath_lab::study::run::StudyError;
use swath_lab::sweep::definition::SweepError;
use swath_lab::sweep::merge::MergeError;
use swath_lab::sweep::run::RunError;

/// A failure and its exit code.
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl std::fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }
}

/// The first failure to write what a command prints.
static OUTPUT: OnceLock<io::Error> = OnceLock::new();

/// Notes a failure to print, unless the reader closed the pipe.
pub(crate) fn note_output(printed: io::Result<()>) {
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = OUTPUT.set(error);
    }
}

/// Fails if something was not printed.
pub(crate) fn of_output() -> Result<(), Failure> {
    match OUTPUT.get() {
        Some(error) => Err(Failure::new(1, format!("standard output: {error}"))),
        None => Ok(()),
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::new(1, error)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::new(1, error)
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        // The place that was named is not one for a report.
        let is_place = matches!(error, ReportError::Foreign { .. } | ReportError::Whole(_));
        let code = if is_place { 2 } else { 1 };
        Self::new(code, error)
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        let code = match error {
            StudyError::Interrupted => 130,
            StudyError::Plan(_) | StudyError::TooFull(_) | StudyError::NoDesign { .. } => 2,
            _ => 1,
        };
        Self::new(code, error)
    }
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Self {
        Self::new(2, error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Study(error) => error.into(),
            RunError::Folder(error) => error.into(),
            RunError::Journal(error) => error.into(),
            RunError::Plan(error) => Self::new(2, error),
            RunError::Table(_) | RunError::Threads(_) => Self::new(1, error),
        }
    }
}

impl From<MergeError> for Failure {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::Folder(error) => error.into(),
            MergeError::Table(_) => Self::new(1, error),
            // The shards that were named do not go together.
            _ => Self::new(2, error),
        }
    }
}
