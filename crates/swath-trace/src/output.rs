//! Files that are whole or not there.
//!
//! A file is written under a name of its own beside its place and moved there at its end.
//! Who is killed in between leaves it behind. So whoever writes holds a lock on it, which
//! the kernel gives up with the process, and the next one that writes to the same
//! directory takes away what nobody holds.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

/// The beginning of a temporary file's name.
const FILE_PREFIX: &str = ".swath-";

/// The beginning of a temporary directory's name.
const DIR_PREFIX: &str = "swath-logs-";

/// Random letters and digits after either.
const RANDOM: usize = 6;

/// Something that nobody else takes away until this is dropped.
struct Hold {
    _locked: Option<File>,
}

impl Hold {
    /// Locks what has just been made at `path`; `None` if a sweep was faster.
    fn of(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            // A file system without locks: nobody else gets one, and nothing is swept.
            Err(TryLockError::Error(_)) => return Ok(Some(Self { _locked: None })),
        }
        Ok(is_at(&file, path).then_some(Self { _locked: Some(file) }))
    }
}

/// Returns true if `path` still names the open file: a lock on one that was taken away locks
/// nothing.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |about: fs::Metadata| (about.dev(), about.ino());
    let named = fs::metadata(path).map(place).ok();
    named.is_some() && named == file.metadata().map(place).ok()
}

/// Returns true if something has that name: which file it is cannot be told here.
#[cfg(not(unix))]
pub fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// A temporary file, which is its writer's alone.
pub(crate) struct Beside {
    file: NamedTempFile,
    _hold: Hold,
}

impl Beside {
    pub(crate) fn as_file(&self) -> &File {
        self.file.as_file()
    }
}

/// A temporary directory, which is its maker's alone.
pub(crate) struct Scratch {
    dir: TempDir,
    _hold: Hold,
}

impl Scratch {
    /// Makes one, and takes away those that killed processes left.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn new() -> io::Result<Self> {
        let place = std::env::temp_dir();
        sweep(&place, DIR_PREFIX, |path| fs::remove_dir_all(path));
        loop {
            let dir = tempfile::Builder::new().prefix(DIR_PREFIX).tempdir_in(&place)?;
            if let Some(hold) = Hold::of(dir.path())? {
                return Ok(Self { dir, _hold: hold });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes by `remove` what bears a temporary name in `dir`, is of this user, and is held
/// by nobody. What cannot be looked at or removed stays.
fn sweep(dir: &Path, prefix: &str, remove: impl Fn(&Path) -> io::Result<()>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let temporary = |name: &std::ffi::OsStr| {
        let random = name.to_str().and_then(|name| name.strip_prefix(prefix));
        random.is_some_and(|random| {
            random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    };
    for path in entries.flatten().filter(|e| temporary(&e.file_name())).map(|e| e.path()) {
        // Neither a link, which leads elsewhere, nor a pipe, which would block.
        let kind = fs::symlink_metadata(&path).map(|about| about.file_type());
        if kind.is_ok_and(|kind| kind.is_file() || kind.is_dir())
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
            && is_at(&file, &path)
        {
            let _ = remove(&path);
        }
    }
}

/// The directory that `path` lies in.
fn dir_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Finds out whether a file can be written at `path`, and takes away what killed
/// processes left beside it.
///
/// # Errors
/// As [`beside`].
pub(crate) fn prepare(path: &Path) -> io::Result<()> {
    drop(beside(path)?);
    sweep(&dir_of(path), FILE_PREFIX, |path| fs::remove_file(path));
    Ok(())
}

/// Creates a file beside `path`, to be moved there once it is whole.
///
/// # Errors
/// Those of the file system; they do not name the file beside, which nobody
/// asked for.
pub(crate) fn beside(path: &Path) -> io::Result<Beside> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(FILE_PREFIX).rand_bytes(RANDOM);
    // Opened here, as any other new file: a temporary one is otherwise its owner's only, and its
    // errors name it and have lost their number.
    let open = |path: &Path| File::options().read(true).write(true).create_new(true).open(path);
    loop {
        let file = builder.make_in(dir_of(path), open)?;
        if let Some(hold) = Hold::of(file.path())? {
            return Ok(Beside { file, _hold: hold });
        }
    }
}

/// Moves a file that is whole to `path`.
///
/// # Errors
/// Those of the file system; `path` is then as it was.
pub(crate) fn put(Beside { file, _hold }: Beside, path: &Path) -> io::Result<()> {
    file.as_file().sync_data()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Puts at `path` what `write` writes: under another name in the same
/// directory first, then moved, so that an interrupted run leaves the old file
/// or none, and nobody ever sees half of one. The directory must exist. What killed
/// processes left in it is taken away.
///
/// # Errors
/// Those of `write` and of the file system; `path` is then as it was.
pub fn replace<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<T, E>,
) -> Result<T, E> {
    prepare(path)?;
    let temporary = beside(path)?;
    let mut file = BufWriter::new(temporary.as_file());
    let said = write(&mut file)?;
    file.into_inner().map_err(io::Error::from)?;
    put(temporary, path)?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What a killed writer left goes; what a living one holds, or another program made, stays.
    #[test]
    fn leftovers_go_and_nothing_else() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("file");
        let living = beside(&path).unwrap();
        let held = living.file.path().file_name().unwrap().to_str().unwrap().to_owned();
        for name in [".swath-a1b2C3", ".swath-abcdefg", ".swath-ab-cde", "swath-abcdef", ".swath-"]
        {
            fs::write(room.path().join(name), "left").unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink("/dev/null", room.path().join(".swath-linked")).unwrap();
        replace::<_, io::Error>(&path, |_| Ok(())).unwrap();
        let mut expected =
            vec![".swath-abcdefg", ".swath-ab-cde", "swath-abcdef", ".swath-", "file", &held];
        #[cfg(unix)]
        expected.push(".swath-linked");
        expected.sort_unstable();
        assert_eq!(names(room.path()), expected);
        // Held by nobody, and not removed by its owner.
        let Beside { file, _hold } = living;
        file.keep().unwrap();
        drop(_hold);
        replace::<_, io::Error>(&path, |_| Ok(())).unwrap();
        assert!(!names(room.path()).contains(&held));
    }

    /// A sweep between making a file and locking it is seen.
    #[test]
    fn a_file_that_was_swept_is_not_held() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join(".swath-abcdef");
        assert!(Hold::of(&path).unwrap().is_none());
        let swept = File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        assert!(!is_at(&swept, &path));
        let other = File::open(&path).unwrap();
        other.lock().unwrap();
        assert!(Hold::of(&path).unwrap().is_none());
        drop(other);
        assert!(Hold::of(&path).unwrap().is_some());
    }

    /// Writers into one directory, each of which sweeps, lose nothing.
    #[test]
    fn writers_side_by_side() {
        let room = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = room.path().join(format!("file-{writer}"));
                scope.spawn(move || {
                    for round in 0..50 {
                        let text = format!("{writer} {round}");
                        let write = |file: &mut BufWriter<&File>| {
                            io::Write::write_all(file, text.as_bytes())
                        };
                        replace::<_, io::Error>(&path, write).unwrap();
                        assert_eq!(fs::read_to_string(&path).unwrap(), text);
                    }
                });
            }
        });
        assert_eq!(names(room.path()), ["file-0", "file-1", "file-2", "file-3"]);
    }
}
