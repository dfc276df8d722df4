//! Recordings of page events: those that come with the program, and files.

use std::fs::File;
use std::path::{Path, PathBuf};

use swath_trace::container::FileError;
use swath_trace::pages::PageReader;

use crate::papers::green::pages::requests::{TimedOp, held_before, replay};

/// Reasons why a recording gives no requests.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The recording, or the snapshot of its machine, cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The fault.
        error: FileError,
    },
    /// The recording has no request.
    #[error("{}: no request in it", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

/// The recordings that come with the program, by name.
pub const SHIPPED: [(&str, &[u8]); 2] = [
    ("compile", include_bytes!("../../../../data/compile.swpages")),
    ("files", include_bytes!("../../../../data/files.swpages")),
];

/// A whole system's recording that comes with the program, to be
/// [followed](crate::papers::green::pages::follow): its name, its events, and the machine's snapshot.
pub const FOLLOWED: (&str, &[u8], &[u8]) = (
    "fragmented",
    include_bytes!("../../../../data/fragmented.swpages"),
    include_bytes!("../../../../data/fragmented.swsnap"),
);

/// The file of a recording, opened where it is not one of [`SHIPPED`].
///
/// # Errors
/// [`RecordingError::File`].
pub fn open(name: &Path) -> Result<PageReader<Box<dyn std::io::Read + Send>>, RecordingError> {
    let failed = |error| RecordingError::File { file: name.to_owned(), error };
    let shipped = SHIPPED.iter().find(|(shipped, _)| name == Path::new(shipped));
    let from: Box<dyn std::io::Read + Send> = match shipped {
        Some((_, bytes)) => Box::new(*bytes),
        None => Box::new(File::open(name).map_err(|error| failed(error.into()))?),
    };
    PageReader::new(from).map_err(failed)
}

/// The requests of a recording, what was held before it began among them, and
/// the number of processors of its machine. A name of [`SHIPPED`] will do, too.
///
/// # Errors
/// [`RecordingError::File`] or [`RecordingError::Empty`].
pub fn read_recording(file: &Path) -> Result<(Vec<TimedOp>, u16), RecordingError> {
    let failed = |error| RecordingError::File { file: file.to_owned(), error };
    let second = open(file)?;
    let cpus = second.head().cpus.max(1);
    let held = held_before(open(file)?).map_err(failed)?;
    let mut ops = Vec::new();
    replay(second, &held, &mut |op| ops.push(op)).map_err(failed)?;
    if ops.is_empty() {
        return Err(RecordingError::Empty { file: file.to_owned() });
    }
    Ok((ops, cpus))
}
