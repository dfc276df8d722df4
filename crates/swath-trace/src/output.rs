//! Files that are whole or not there.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use tempfile::NamedTempFile;

/// Creates a file beside `path`, to be moved there once it is whole.
///
/// # Errors
/// Those of the file system; they do not name the file beside, which nobody
/// asked for.
pub(crate) fn beside(path: &Path) -> io::Result<NamedTempFile> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let dir = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".swath-");
    // As any other new file, less what the user's mask takes away; a temporary
    // file is otherwise its owner's only.
    #[cfg(unix)]
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(all);
    builder.tempfile_in(dir).map_err(|error| error.kind().into())
}

/// Moves a file that is whole to `path`.
///
/// # Errors
/// Those of the file system; `path` is then as it was.
pub(crate) fn put(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_data()?;
    file.persist(path).map_err(|error| io::Error::from(error.error.kind()))?;
    Ok(())
}

/// Puts at `path` what `write` writes: under another name in the same
/// directory first, then moved, so that an interrupted run leaves the old file
/// or none, and nobody ever sees half of one. The directory must exist.
///
/// # Errors
/// Those of `write` and of the file system; `path` is then as it was.
pub fn replace<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<T, E>,
) -> Result<T, E> {
    let temporary = beside(path)?;
    let mut file = BufWriter::new(temporary.as_file());
    let said = write(&mut file)?;
    file.into_inner().map_err(io::Error::from)?;
    put(temporary, path)?;
    Ok(said)
}
