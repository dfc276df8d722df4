//! The journal of a study: every point is written down when it is measured, so that a
//! run that was killed goes on where it was.
//!
//! A journal is a file of records, each appended by one call: its length, a checksum,
//! and its bytes. The first record is the **key**: all that the points follow from
//! (plan, seed, form, real input, program, machine), as text. Of the others there are three kinds. A point
//! that is **done**: its stage (a study measures its points in one or more lists, one after the other),
//! its number in that list, and its result. A point that is **begun**, by stage and number, so that the
//! next run can say what a kill cost. And a run that goes on, **opened**, before which none is under way.
//!
//! ```text
//!   "swath journal 2\n"   [length u32][CRC-32 u32][key]   [length][CRC-32][kind u8, stage u32, point u32, result] …
//! ```
//!
//! A kill loses the points under way, one on each thread, and at most the record that was
//! being written, which is cut off by the next run. A loss of power may take the records of
//! the last second before it: the file is synced by the first record that comes a second or
//! more after the last sync. Journals are removed when the command that began them has ended
//! and all its results are in the report, so that a run of many studies resumes as a whole.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The beginning of a journal's file.
const MAGIC: &[u8] = b"swath journal 2\n";
/// The time that a loss of power may take.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What a record is of: its first byte.
const OPENED: u8 = 0;
const BEGUN: u8 = 1;
const DONE: u8 = 2;

/// A journal that cannot be read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct JournalError {
    /// Its file.
    pub path: PathBuf,
    /// The fault.
    pub what: String,
}

/// The beginning of a journal's use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// There was none.
    Anew,
    /// So many points were in it.
    Resumed {
        /// Points that need not be measured again.
        points: u64,
        /// Points that the last run had begun and not done: what its end has cost.
        under_way: u64,
        /// Bytes at its end that were no whole record.
        cut_bytes: u64,
    },
    /// The file was no journal with this key, and was written anew.
    Replaced,
}

/// The points of one run of a study, those measured before it included.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// Each write goes to its end, so that threads need no lock around one.
    file: File,
    /// When it was opened, and the milliseconds from then to the last sync.
    opened: Instant,
    synced_ms: AtomicU64,
    is_empty: AtomicBool,
    /// The places of results in the file, by stage and point.
    recorded: Recorded,
    stages: AtomicU32,
    counts: Counts,
}

/// A journal without a point is of no use to anybody.
impl Drop for Journal {
    fn drop(&mut self) {
        if *self.is_empty.get_mut() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    points: AtomicU64,
    resumed: AtomicU64,
}

impl Journal {
    /// Opens the journal in `path`, or begins one. O(b) for its bytes, of which one record at a time
    /// is in memory.
    ///
    /// # Errors
    /// [`JournalError`] if the file system refuses, or the key is longer than 4 GiB.
    pub fn open(path: &Path, key: &str) -> Result<(Self, Begun), JournalError> {
        let fault =
            |error: io::Error| JournalError { path: path.to_owned(), what: error.to_string() };
        let mut file = File::options().read(true).append(true).create(true).open(path);
        let file = file.as_mut().map_err(|error| fault(io::Error::from(error.kind())))?;
        // What was made for nothing goes; what may have points in it stays.
        let remove = || drop(std::fs::remove_file(path));
        let scanned =
            file.metadata().and_then(|about| Ok((about.len(), scan(file, about.len(), key)?)));
        let (all, Scanned { recorded, under_way, whole }) = match scanned {
            Ok((all, found)) => (all, found.unwrap_or_default()),
            Err(error) => {
                if file.metadata().is_ok_and(|about| about.len() == 0) {
                    remove();
                }
                return Err(fault(error));
            }
        };
        let begun = match (all, whole) {
            (0, _) => Begun::Anew,
            (_, 0) => Begun::Replaced,
            (all, whole) => {
                let (points, under_way) = (recorded.len() as u64, under_way.len() as u64);
                Begun::Resumed { points, under_way, cut_bytes: all - whole }
            }
        };
        let file = start(file, key, whole).map_err(|error| {
            if whole == 0 {
                remove();
            }
            fault(error)
        })?;
        let journal = Self {
            path: path.to_owned(),
            file,
            opened: Instant::now(),
            synced_ms: AtomicU64::new(0),
            is_empty: AtomicBool::new(recorded.is_empty()),
            recorded,
            stages: AtomicU32::new(0),
            counts: Counts::default(),
        };
        Ok((journal, begun))
    }

    /// Returns true if [`open`](Self::open) would not write over a file of something else: if `path` is
    /// a journal with this key, empty or not there. O(b) for its bytes.
    ///
    /// # Errors
    /// [`JournalError`] if it cannot be read.
    pub fn fits(path: &Path, key: &str) -> Result<bool, JournalError> {
        let fault =
            |error: io::Error| JournalError { path: path.to_owned(), what: error.to_string() };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            opened => opened.map_err(fault)?,
        };
        let length = file.metadata().map_err(fault)?.len();
        Ok(length == 0 || scan(&file, length, key).map_err(fault)?.is_some())
    }

    /// Points so far that were in the journal when it was opened, and all.
    pub fn counts(&self) -> (u64, u64) {
        let Counts { points, resumed } = &self.counts;
        (resumed.load(Ordering::Relaxed), points.load(Ordering::Relaxed))
    }

    /// The next list of points, of which there are so many.
    pub fn stage(&self, points: usize) -> u32 {
        self.counts.points.fetch_add(points as u64, Ordering::Relaxed);
        self.stages.fetch_add(1, Ordering::Relaxed)
    }

    /// The result of a point that was measured before.
    pub fn recall<R: DeserializeOwned>(&self, stage: u32, point: u32) -> Option<R> {
        let &(at, length) = self.recorded.get(&(stage, point))?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        let result = postcard::from_bytes(&bytes).ok()?;
        self.counts.resumed.fetch_add(1, Ordering::Relaxed);
        Some(result)
    }

    /// Writes down that a point is measured from now on.
    ///
    /// # Errors
    /// [`JournalError`] if the file system refuses.
    pub fn begin(&self, stage: u32, point: u32) -> Result<(), JournalError> {
        self.append(&head(BEGUN, stage, point))
    }

    /// Writes down the result of a point.
    ///
    /// # Errors
    /// [`JournalError`] if the file system refuses, or it is longer than 4 GiB.
    pub fn record<R: Serialize>(
        &self,
        stage: u32,
        point: u32,
        result: &R,
    ) -> Result<(), JournalError> {
        let bytes = postcard::to_extend(result, head(DONE, stage, point))
            .map_err(|error| self.fault(error.to_string()))?;
        self.append(&bytes)?;
        self.is_empty.store(false, Ordering::Relaxed);
        let (now_ms, synced_ms) =
            (self.opened.elapsed().as_millis() as u64, self.synced_ms.load(Ordering::Relaxed));
        // Of the threads that find it due, one syncs.
        let due = now_ms.saturating_sub(synced_ms) >= SYNC_EVERY.as_millis() as u64;
        let take = |from| {
            self.synced_ms.compare_exchange(from, now_ms, Ordering::Relaxed, Ordering::Relaxed)
        };
        if due && take(synced_ms).is_ok() {
            self.file.sync_data().map_err(|error| self.fault(error.to_string()))?;
        }
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> Result<(), JournalError> {
        let record = record(bytes).ok_or_else(|| self.fault("a point of 4 GiB".to_owned()))?;
        (&self.file).write_all(&record).map_err(|error| self.fault(error.to_string()))
    }

    fn fault(&self, what: String) -> JournalError {
        JournalError { path: self.path.clone(), what }
    }
}

/// What a record of a point begins with.
fn head(kind: u8, stage: u32, point: u32) -> Vec<u8> {
    [&[kind][..], &stage.to_le_bytes(), &point.to_le_bytes()].concat()
}

/// Cuts a journal after its whole records, writes the key if there are none, or that it was opened, and
/// gives the file to append to.
fn start(file: &mut File, key: &str, whole: u64) -> io::Result<File> {
    file.set_len(whole)?;
    if whole == 0 {
        let record = record(key.as_bytes()).ok_or(io::ErrorKind::FileTooLarge)?;
        file.write_all(&[MAGIC, &record].concat())?;
    } else {
        file.write_all(&record(&head(OPENED, 0, 0)).ok_or(io::ErrorKind::FileTooLarge)?)?;
    }
    file.sync_all()?;
    file.try_clone()
}

/// Bytes with their length and checksum before them.
fn record(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(bytes.len()).ok()?;
    Some([&length.to_le_bytes()[..], &checksum(length, bytes).to_le_bytes(), bytes].concat())
}

/// Over the length, too, so that no stretch of zeros is a record.
fn checksum(length: u32, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&length.to_le_bytes());
    sum.update(bytes);
    sum.finalize()
}

/// Places and lengths of results by stage and point.
type Recorded = HashMap<(u32, u32), (u64, usize)>;

/// What is in a journal.
#[derive(Default)]
struct Scanned {
    recorded: Recorded,
    /// Stages and points that the last run had begun and not done.
    under_way: HashSet<(u32, u32)>,
    /// The length up to the end of the last whole record.
    whole: u64,
}

/// The records of a journal with this key; nothing if it has another.
fn scan(file: &File, length: u64, key: &str) -> io::Result<Option<Scanned>> {
    let mut records = Records { from: BufReader::new(file), at: 0, length };
    records.from.seek(SeekFrom::Start(0))?;
    let mut magic = Vec::new();
    if !records.take(MAGIC.len() as u64, &mut magic)? || magic != MAGIC {
        return Ok(None);
    }
    let mut own = Vec::new();
    if !records.next(&mut own)? || own != key.as_bytes() {
        return Ok(None);
    }
    let mut found = Scanned { whole: records.at, ..Scanned::default() };
    while records.next(&mut own)? {
        let Some((&[kind], rest)) = own.split_first_chunk::<1>() else { break };
        let Some((stage, rest)) = rest.split_first_chunk::<4>() else { break };
        let Some((point, rest)) = rest.split_first_chunk::<4>() else { break };
        let place = (u32::from_le_bytes(*stage), u32::from_le_bytes(*point));
        match kind {
            OPENED => found.under_way.clear(),
            BEGUN => drop(found.under_way.insert(place)),
            DONE => {
                found.under_way.remove(&place);
                found.recorded.insert(place, (records.at - rest.len() as u64, rest.len()));
            }
            _ => break,
        }
        found.whole = records.at;
    }
    Ok(Some(found))
}

/// The records of a file, read one after the other.
struct Records<R> {
    from: R,
    at: u64,
    /// The file's.
    length: u64,
}

impl<R: Read> Records<R> {
    /// Reads so many bytes, if there are as many.
    fn take(&mut self, count: u64, bytes: &mut Vec<u8>) -> io::Result<bool> {
        bytes.clear();
        if count > self.length - self.at {
            return Ok(false);
        }
        self.at += count;
        (&mut self.from).take(count).read_to_end(bytes).map(|read| read as u64 == count)
    }

    /// Reads the next record's bytes, if there is a whole one.
    fn next(&mut self, own: &mut Vec<u8>) -> io::Result<bool> {
        if !self.take(8, own)? {
            return Ok(false);
        }
        let Some((length, sum)) = own.split_first_chunk::<4>() else { return Ok(false) };
        let length = u32::from_le_bytes(*length);
        let sum = sum.try_into().map(u32::from_le_bytes).ok();
        Ok(self.take(length.into(), own)? && sum == Some(checksum(length, own)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Result = (Vec<(String, f64)>, Option<u128>);

    fn result(of: u32) -> Result {
        (vec![("rate".to_owned(), f64::from(of) / 3.0), ("none".to_owned(), f64::NAN)], None)
    }

    fn bits((metrics, more): &Result) -> (Vec<(String, u64)>, Option<u128>) {
        (metrics.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect(), *more)
    }

    /// A journal of five points, as bytes.
    fn five(path: &Path) -> Vec<u8> {
        let (journal, begun) = Journal::open(path, "key").unwrap();
        assert_eq!(begun, Begun::Anew);
        let stage = journal.stage(5);
        for point in 0..5 {
            journal.record(stage, point, &result(point)).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn points_come_back_bit_for_bit() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("journal");
        five(&path);
        let (journal, begun) = Journal::open(&path, "key").unwrap();
        assert_eq!(begun, Begun::Resumed { points: 5, under_way: 0, cut_bytes: 0 });
        let stage = journal.stage(6);
        for point in 0..5 {
            let own: Result = journal.recall(stage, point).unwrap();
            assert_eq!(bits(&own), bits(&result(point)));
        }
        assert!(journal.recall::<Result>(stage, 5).is_none());
        assert!(journal.recall::<Result>(stage + 1, 0).is_none());
        assert_eq!(journal.counts(), (5, 6));
    }

    /// Cut at every byte: the whole records before it are there, and what is appended then
    /// comes back, too.
    #[test]
    fn a_torn_end_is_cut_off() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("journal");
        let bytes = five(&path);
        // The end of the last whole record, by the number of points up to there.
        let mut ends = HashMap::new();
        for length in (0..bytes.len()).rev() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let (journal, begun) = Journal::open(&path, "key").unwrap();
            let points = journal.recorded.len() as u64;
            match begun {
                Begun::Anew => assert_eq!(length, 0),
                Begun::Replaced => assert_eq!(points, 0),
                Begun::Resumed { points: said, cut_bytes, .. } => {
                    assert_eq!(points, said);
                    let end = length as u64 - cut_bytes;
                    assert_eq!(*ends.entry(points).or_insert(end), end, "{length}");
                }
            }
            journal.record(7, 9, &result(9)).unwrap();
            let (journal, begun) = Journal::open(&path, "key").unwrap();
            assert_eq!(begun, Begun::Resumed { points: points + 1, under_way: 0, cut_bytes: 0 });
            assert!(journal.recall::<Result>(7, 9).is_some(), "{length}");
        }
        assert_eq!(ends.len(), 5);
    }

    /// Of the run that a kill ended, and not of one before it; a result that was being written is lost.
    #[test]
    fn points_under_way_are_counted() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("journal");
        let opened = |begun: &[u32], done: &[u32]| {
            let (journal, found) = Journal::open(&path, "key").unwrap();
            begun.iter().for_each(|&point| journal.begin(0, point).unwrap());
            done.iter().for_each(|&point| journal.record(0, point, &result(point)).unwrap());
            // As if it was killed, with or without a point.
            std::mem::forget(journal);
            found
        };
        assert_eq!(opened(&[0, 1, 2], &[1]), Begun::Anew);
        let resumed = |points, under_way| Begun::Resumed { points, under_way, cut_bytes: 0 };
        assert_eq!(opened(&[], &[]), resumed(1, 2));
        assert_eq!(opened(&[2, 0, 3], &[3, 2, 0]), resumed(1, 0));
        assert_eq!(opened(&[4], &[4]), resumed(4, 0));
        let file = File::options().write(true).open(&path).unwrap();
        let cut = file.metadata().unwrap().len() - 1;
        file.set_len(cut).unwrap();
        let Begun::Resumed { points: 4, under_way: 1, cut_bytes } = opened(&[], &[]) else {
            panic!("the point whose result was cut is not told");
        };
        assert!(cut_bytes > 8);
    }

    /// A bit that flips costs its record and those after it, never a wrong result.
    #[test]
    fn a_flipped_bit_is_found() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("journal");
        let bytes = five(&path);
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &wrong).unwrap();
            let (journal, _) = Journal::open(&path, "key").unwrap();
            assert!(journal.recorded.len() < 5, "bit {bit}");
            for &(stage, point) in journal.recorded.keys() {
                let own: Result = journal.recall(stage, point).unwrap();
                assert_eq!((stage, bits(&own)), (0, bits(&result(point))), "bit {bit}");
            }
        }
    }

    #[test]
    fn threads_append_side_by_side() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("journal");
        let (journal, _) = Journal::open(&path, "key").unwrap();
        let stage = journal.stage(1000);
        std::thread::scope(|scope| {
            for first in (0..1000).step_by(250) {
                let journal = &journal;
                scope.spawn(move || {
                    let mut points = first..first + 250;
                    points.try_for_each(|point| journal.record(stage, point, &result(point)))
                });
            }
        });
        drop(journal);
        let (journal, begun) = Journal::open(&path, "key").unwrap();
        assert_eq!(begun, Begun::Resumed { points: 1000, under_way: 0, cut_bytes: 0 });
        for point in 0..1000 {
            let own: Result = journal.recall(0, point).unwrap();
            assert_eq!(bits(&own), bits(&result(point)));
        }
    }

    #[test]
    fn another_key_begins_anew() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("journal");
        assert!(Journal::fits(&path, "key").unwrap());
        five(&path);
        assert!(Journal::fits(&path, "key").unwrap() && !Journal::fits(&path, "another").unwrap());
        let (journal, begun) = Journal::open(&path, "another").unwrap();
        assert_eq!((begun, journal.recorded.len()), (Begun::Replaced, 0));
        std::fs::write(&path, "no journal").unwrap();
        assert_eq!(Journal::open(&path, "key").unwrap().1, Begun::Replaced);
    }
}
