//! The report's directory, held by one run at a time, in which a study's folder is
//! swapped whole.
//!
//! ```text
//!   report/                 held by a lock on .swath/lock, which the system drops with its holder
//!     index.html            moved here when it is whole
//!     NAME.html             likewise, the page of a study
//!     NAME/                 one study; exchanged in one step for .swath/NAME
//!     .swath/
//!       lock                the process that holds the directory
//!       NAME-….journal      points of a study that was begun and not ended
//!       NAME/               a study's folder while it is written, or the one that it replaced
//! ```
//!
//! A reader of `NAME/`, and whoever comes after a kill at any moment, finds the
//! files of one run. What a killed run left in `.swath` the next one takes away.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use swath_trace::output::is_at;
use swath_trace::whole::{self, WholeError};

use crate::report::error::ReportError;
use crate::report::page;

/// The page over all studies.
pub const INDEX_FILE: &str = "index.html";
/// The longest file of a report that is read: the largest study's results have a hundredth.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// The directory below a report's in which work is under way.
pub(crate) const WORK_DIR: &str = ".swath";
const LOCK_FILE: &str = "lock";
/// The end of a journal's name.
const JOURNAL: &str = ".journal";
/// The end of the name of a folder that was moved aside where two cannot be exchanged.
const ASIDE: &str = ".aside";

/// A report's directory that this run holds until it is dropped.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    /// True if this run made `dir`.
    is_new: bool,
    work: PathBuf,
    _lock: File,
}

/// Takes away what nobody needs once the lock is gone: the folder of work in which there is no
/// journal, and a directory that was made for nothing.
impl Drop for Folder {
    fn drop(&mut self) {
        let path = self.work.join(LOCK_FILE);
        let is_alone = entries(&self.work).is_ok_and(|left| left == [path.clone()]);
        // Who waits for the file that goes finds that it is not there any more. What cannot be
        // taken away stays, and does no harm.
        if is_alone && cfg!(unix) && fs::remove_file(&path).is_ok() {
            let is_gone = fs::remove_dir(&self.work).is_ok();
            if is_gone && self.is_new {
                let _ = fs::remove_dir(&self.dir);
            }
        }
    }
}

impl Folder {
    /// Creates `dir` if need be, locks it, and takes away what a killed run left.
    ///
    /// # Errors
    /// [`ReportError::Foreign`] if its page is another program's, [`ReportError::Whole`] if that
    /// cannot be read, [`ReportError::Busy`] if another run holds it, [`ReportError::File`] if the
    /// file system refuses.
    pub fn open(dir: &Path) -> Result<Self, ReportError> {
        check_place(dir)?;
        let (work, is_new) = (dir.join(WORK_DIR), !dir.exists());
        let folder = Self { dir: dir.to_owned(), is_new, _lock: lock(dir, &work)?, work };
        folder.mend()?;
        Ok(folder)
    }

    /// The report's directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The place of a study's journal with this key.
    pub fn journal(&self, study: &str, key: &str) -> PathBuf {
        let sum = crc32fast::hash(key.as_bytes());
        self.work.join(format!("{study}-{sum:08x}{JOURNAL}"))
    }

    /// Journals of a study, whatever their key.
    ///
    /// # Errors
    /// [`ReportError::File`].
    pub fn journals(&self, study: &str) -> Result<Vec<PathBuf>, ReportError> {
        let of_study = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            let sum = name.and_then(|name| name.strip_suffix(JOURNAL)?.strip_prefix(study));
            // A study whose name goes on has more than the sum here.
            sum.is_some_and(|sum| sum.len() == 9 && sum.starts_with('-'))
        };
        let mut found = entries(&self.work)?;
        found.retain(of_study);
        found.sort();
        Ok(found)
    }

    /// Puts these files in place of the folder of `study`, in one step. Files there that
    /// are no report's, by their names' ends, move into the new folder.
    ///
    /// # Errors
    /// [`ReportError::File`]; the old folder is then as it was, or the new one is whole.
    pub(crate) fn put_study(
        &self,
        study: &str,
        files: &[(String, Vec<u8>)],
    ) -> Result<(), ReportError> {
        let swapped = self.swap_study(study, files);
        self.tidy(swapped)
    }

    fn swap_study(&self, study: &str, files: &[(String, Vec<u8>)]) -> Result<(), ReportError> {
        let (place, new) = (self.dir.join(study), self.work.join(study));
        // A link, too: what it names is not the report's to take away.
        let there = fs::symlink_metadata(&place).ok();
        if there.as_ref().is_some_and(|there| !there.is_dir()) {
            return Err(at(&place)(io::ErrorKind::NotADirectory.into()));
        }
        retire(&new, &place)?;
        fs::create_dir(&new).map_err(at(&new))?;
        for (name, bytes) in files {
            write(&new.join(name), bytes)?;
        }
        sync(&new);
        if there.is_some() {
            exchange(&new, &place)?;
        } else {
            fs::rename(&new, &place).map_err(at(&place))?;
        }
        sync(&self.dir);
        retire(&new, &place)
    }

    /// Puts a page in its place.
    ///
    /// # Errors
    /// [`ReportError::Foreign`] if another program's is there, [`ReportError::File`].
    pub(crate) fn put_page(&self, name: &str, page: &str) -> Result<PathBuf, ReportError> {
        check_page(&self.dir.join(name))?;
        self.put_file(name, |path| write(path, page.as_bytes()))
    }

    /// Puts a file in its place in one step, once `write` has written it aside.
    ///
    /// # Errors
    /// That of `write`, or [`ReportError::File`].
    pub(crate) fn put_file<E: From<ReportError>>(
        &self,
        name: &str,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let (path, new) = (self.dir.join(name), self.work.join(name));
        let put =
            write(&new).and_then(|()| fs::rename(&new, &path).map_err(|e| at(&path)(e).into()));
        if let Err(error) = put {
            let _ = self.mend();
            return Err(error);
        }
        sync(&self.dir);
        Ok(path)
    }

    /// After a failure, leaves no more of the work than a run that was killed leaves to the next.
    fn tidy(&self, done: Result<(), ReportError>) -> Result<(), ReportError> {
        if done.is_err() {
            // The first failure is the one to tell.
            let _ = self.mend();
        }
        done
    }

    /// Takes away what a killed run left in the work directory, but for the journals.
    fn mend(&self) -> Result<(), ReportError> {
        let mut left = entries(&self.work)?;
        // Folders moved aside come back before what took their place is looked at.
        left.sort_by_key(|path| !name_of(path).ends_with(ASIDE));
        for path in left {
            let name = name_of(&path);
            if name == LOCK_FILE || name.ends_with(JOURNAL) {
                continue;
            }
            if let Some(study) = name.strip_suffix(ASIDE) {
                let place = self.dir.join(study);
                if !place.exists() {
                    fs::rename(&path, &place).map_err(at(&place))?;
                    continue;
                }
                retire(&path, &place)?;
            } else if path.is_dir() {
                retire(&path, &self.dir.join(&name))?;
            } else {
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(())
    }
}

/// Refuses a directory whose `index.html` is another program's.
///
/// # Errors
/// [`ReportError::Foreign`], or [`ReportError::Whole`] if it cannot be read.
pub fn check_place(dir: &Path) -> Result<(), ReportError> {
    check_page(&dir.join(INDEX_FILE))
}

/// Refuses to replace a page that is another program's.
///
/// # Errors
/// As [`check_place`].
pub(crate) fn check_page(path: &Path) -> Result<(), ReportError> {
    match whole::read(path, FILE_BYTES_MAX) {
        Ok(page) if page.windows(page::MARK.len()).any(|part| part == page::MARK.as_bytes()) => {
            Ok(())
        }
        Ok(_) => Err(ReportError::Foreign { path: path.to_owned() }),
        Err(WholeError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Locks the directory; the file says which process holds it. A holder that ends takes the file
/// away, so a file that is not in its place any more is no lock.
fn lock(dir: &Path, work: &Path) -> Result<File, ReportError> {
    let path = work.join(LOCK_FILE);
    loop {
        fs::create_dir_all(work).map_err(at(work))?;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(at(&path))?,
        };
        match file.try_lock() {
            Ok(()) if is_at(&file, &path) => {
                // For the other's message alone: a lock without it is as good.
                let _ = file.set_len(0).and_then(|()| file.rewind());
                let _ = write!(file, "{}", std::process::id());
                return Ok(file);
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(20).read_to_string(&mut holder);
                return Err(ReportError::Busy { path: dir.to_owned(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(ReportError::File { path, source }),
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ReportError {
    let path = path.to_owned();
    move |source| ReportError::File { path, source }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let read = fs::read_dir(dir).map_err(at(dir))?;
    let paths: io::Result<Vec<PathBuf>> = read.map(|entry| Ok(entry?.path())).collect();
    paths.map_err(at(dir))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let mut file = File::create(path).map_err(at(path))?;
    file.write_all(bytes).and_then(|()| file.sync_data()).map_err(at(path))
}

/// Makes renames in a directory last through a loss of power, where the system can.
fn sync(dir: &Path) {
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
}

/// Removes a folder that is no longer, or was never, in its place. Files in it that are
/// no report's move to `place`.
fn retire(folder: &Path, place: &Path) -> Result<(), ReportError> {
    if !folder.exists() {
        return Ok(());
    }
    for path in entries(folder)? {
        let to = place.join(name_of(&path));
        if is_report(&path) || to.exists() {
            fs::remove_file(&path).map_err(at(&path))?;
        } else {
            fs::rename(&path, &to).map_err(at(&to))?;
        }
    }
    fs::remove_dir(folder).map_err(at(folder))
}

/// Returns true for a name that a report's files have.
fn is_report(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    matches!(end, Some("json" | "csv" | "svg")) && !path.is_dir()
}

/// Exchanges two folders in one step; where the system has no such step, in two, with the
/// old one aside between them.
fn exchange(new: &Path, place: &Path) -> Result<(), ReportError> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use nix::errno::Errno;
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        match renameat2(AT_FDCWD, new, AT_FDCWD, place, RenameFlags::RENAME_EXCHANGE) {
            Ok(()) => return Ok(()),
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOTSUP) => {}
            Err(errno) => return Err(at(place)(errno.into())),
        }
    }
    exchange_in_steps(new, place)
}

fn exchange_in_steps(new: &Path, place: &Path) -> Result<(), ReportError> {
    let mut aside = new.as_os_str().to_owned();
    aside.push(ASIDE);
    let aside = PathBuf::from(aside);
    fs::rename(place, &aside).map_err(at(place))?;
    fs::rename(new, place).map_err(at(place))?;
    fs::rename(&aside, new).map_err(at(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Vec<(String, Vec<u8>)> {
        ["results.json", "a.csv"].map(|name| (name.to_owned(), text.into())).to_vec()
    }

    fn text(path: PathBuf) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn one_run_holds_it_and_the_next_one_may() {
        let room = tempfile::tempdir().unwrap();
        let first = Folder::open(room.path()).unwrap();
        let error = Folder::open(room.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        Folder::open(room.path()).unwrap();
    }

    #[test]
    fn old_files_go_and_those_of_others_stay() {
        let room = tempfile::tempdir().unwrap();
        let folder = Folder::open(room.path()).unwrap();
        folder.put_study("one", &files("first")).unwrap();
        let place = room.path().join("one");
        fs::write(place.join("old.svg"), "first").unwrap();
        fs::write(place.join("notes.txt"), "mine").unwrap();
        fs::create_dir(place.join("more.csv")).unwrap();
        folder.put_study("one", &files("second")).unwrap();
        let mut names: Vec<String> = entries(&place).unwrap().iter().map(|p| name_of(p)).collect();
        names.sort();
        assert_eq!(names, ["a.csv", "more.csv", "notes.txt", "results.json"]);
        assert_eq!(text(place.join("a.csv")), "second");
        assert_eq!(entries(&folder.work).unwrap(), [folder.work.join(LOCK_FILE)]);
    }

    /// Every state that a kill can leave, by the steps that were done before it.
    #[test]
    fn a_kill_between_any_two_steps_leaves_one_whole_folder() {
        for steps in 0..4 {
            let room = tempfile::tempdir().unwrap();
            let folder = Folder::open(room.path()).unwrap();
            folder.put_study("one", &files("first")).unwrap();
            let (place, new) = (room.path().join("one"), folder.work.join("one"));
            fs::write(place.join("notes.txt"), "mine").unwrap();
            fs::create_dir(&new).unwrap();
            write(&new.join("a.csv"), b"second").unwrap();
            let aside = folder.work.join("one.aside");
            if steps > 0 {
                write(&new.join("results.json"), b"second").unwrap();
            }
            let moves = [(&place, &aside), (&new, &place), (&aside, &new)];
            for (from, to) in &moves[..steps] {
                fs::rename(from, to).unwrap();
            }
            drop(folder);
            let folder = Folder::open(room.path()).unwrap();
            let whole = if steps < 2 { "first" } else { "second" };
            for name in ["results.json", "a.csv"] {
                assert_eq!(text(place.join(name)), whole, "{steps} steps");
            }
            assert_eq!(text(place.join("notes.txt")), "mine", "{steps} steps");
            assert_eq!(entries(&folder.work).unwrap(), [folder.work.join(LOCK_FILE)]);
        }
    }

    /// A reader beside a writer: what it read between two looks at the same results is theirs.
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_reader_never_sees_a_mix() {
        let room = tempfile::tempdir().unwrap();
        let folder = Folder::open(room.path()).unwrap();
        folder.put_study("one", &files("0")).unwrap();
        let place = room.path().join("one");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for version in 1..200 {
                    folder.put_study("one", &files(&version.to_string())).unwrap();
                }
            });
            let mut same = 0;
            while !writer.is_finished() || same == 0 {
                let before = text(place.join("results.json"));
                let rows = text(place.join("a.csv"));
                if text(place.join("results.json")) == before {
                    assert_eq!(rows, before);
                    same += 1;
                }
            }
        });
    }

    #[test]
    fn folders_are_exchanged_in_steps_where_they_must() {
        let room = tempfile::tempdir().unwrap();
        let (new, place) = (room.path().join("new"), room.path().join("place"));
        for dir in [&new, &place] {
            fs::create_dir(dir).unwrap();
        }
        write(&new.join("a"), b"new").unwrap();
        exchange_in_steps(&new, &place).unwrap();
        assert_eq!(text(place.join("a")), "new");
        assert!(entries(&new).unwrap().is_empty());
    }

    #[test]
    fn a_journal_belongs_to_one_study() {
        let room = tempfile::tempdir().unwrap();
        let folder = Folder::open(room.path()).unwrap();
        for study in ["pbs-tlb", "pbs-tlb-aged"] {
            fs::write(folder.journal(study, "key"), "").unwrap();
        }
        assert_eq!(folder.journals("pbs-tlb").unwrap(), [folder.journal("pbs-tlb", "key")]);
        drop(folder);
        let folder = Folder::open(room.path()).unwrap();
        assert_eq!(folder.journals("pbs-tlb").unwrap().len(), 1, "kept");
    }
}
