//! Files that are read as a whole, up to a length.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reasons why a file is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WholeError {
    /// It is longer than anybody needs; nothing says by how much, since some files have no
    /// end.
    #[error("{path}: too large: more than {limit_bytes} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most bytes that are read.
        limit_bytes: u64,
    },
    /// The operating system refuses.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl WholeError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::TooLarge { path, .. } | Self::Io { path, .. } => path,
        }
    }
}

/// The bytes of a file of at most `limit_bytes`.
///
/// # Errors
/// A [`WholeError`].
pub fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, WholeError> {
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > limit_bytes => {
            Err(WholeError::TooLarge { path: path.to_owned(), limit_bytes })
        }
        Ok(_) => Ok(bytes),
        Err(source) => Err(WholeError::Io { path: path.to_owned(), source }),
    }
}

/// The text of a file of at most `limit_bytes`.
///
/// # Errors
/// A [`WholeError`]; [`io::ErrorKind::InvalidData`] for what is not UTF-8.
pub fn read_text(path: &Path, limit_bytes: u64) -> Result<String, WholeError> {
    String::from_utf8(read(path, limit_bytes)?).map_err(|error| {
        let source = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
        WholeError::Io { path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_the_limit_and_no_further() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "1234");
        let error = read(&path, 3).unwrap_err();
        assert!(matches!(error, WholeError::TooLarge { limit_bytes: 3, .. }), "{error}");
        std::fs::write(&path, b"\xff").unwrap();
        assert!(matches!(read_text(&path, 4), Err(WholeError::Io { .. })));
        assert!(matches!(read(&dir.path().join("none"), 4), Err(WholeError::Io { .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_an_end() {
        let error = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert!(error.to_string().contains("/dev/zero: too large: more than 1048576 bytes"));
    }
}
