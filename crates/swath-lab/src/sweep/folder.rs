//! The folder of a sweep, or of one shard of it.
//!
//! `points.parquet` has the rows, `sweep.json` what they follow from. The second is written last:
//! a folder with it is whole. A shard is a folder of its own, so that several machines can work in
//! one place.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use swath_trace::whole;

use crate::report::error::ReportError;
use crate::report::folder::Folder;
use crate::study::journal::JournalError;
use crate::study::key;
use crate::sweep::definition::Sweep;

/// The file of the rows.
pub const POINTS_FILE: &str = "points.parquet";
/// The file that says what they follow from.
pub const SWEEP_FILE: &str = "sweep.json";
/// The longest of the latter: the values of 10⁶ points, and a plan.
const SWEEP_BYTES_MAX: u64 = 64 << 20;

/// Every n-th point of a sweep, from the i-th on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 1.
    pub nth: u32,
    /// Number of shards.
    pub of: u32,
}

impl Shard {
    /// The sweep as one shard.
    pub const WHOLE: Self = Self { nth: 1, of: 1 };

    /// The shard `nth` of `of`, if there is one.
    pub const fn new(nth: u32, of: u32) -> Option<Self> {
        if 1 <= nth && nth <= of { Some(Self { nth, of }) } else { None }
    }

    /// Its points, of so many.
    pub fn points(self, all: u64) -> Vec<u64> {
        (u64::from(self.nth) - 1..all).step_by(self.of as usize).collect()
    }

    /// Its folder in that of a sweep.
    pub fn place(self, out: &Path) -> PathBuf {
        match self.of {
            1 => out.to_owned(),
            of => out.join(format!("shard-{}-of-{of}", self.nth)),
        }
    }
}

/// Returns all that a sweep's table follows from: the sweep, the contents of its files, the program byte for
/// byte. O(b) for the bytes of these.
///
/// # Errors
/// [`JournalError`] if a file cannot be read.
pub fn manifest(sweep: &Sweep, shard: Shard) -> Result<Json, JournalError> {
    let definition = sweep.to_json();
    let inputs = key::inputs(&definition, &sweep.real)?;
    let mut manifest = json!({ "sweep": definition, "inputs": inputs });
    if shard != Shard::WHOLE {
        manifest["shard"] = json!([shard.nth, shard.of]);
    }
    Ok(manifest)
}

/// Puts a table and what it follows from in their places, each whole.
///
/// # Errors
/// Those of `write`, and [`ReportError`].
pub(crate) fn put<E: From<ReportError>>(
    folder: &Folder,
    manifest: &Json,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    folder.put_file(POINTS_FILE, write)?;
    let text = format!("{manifest:#}\n");
    folder.put_file(SWEEP_FILE, |path| {
        std::fs::write(path, text)
            .map_err(|source| ReportError::File { path: path.to_owned(), source })
    })?;
    Ok(())
}

/// Reads what the table in a folder follows from; nothing if none is there whole.
pub fn read_manifest(folder: &Path) -> Option<Json> {
    let text = whole::read_text(&folder.join(SWEEP_FILE), SWEEP_BYTES_MAX).ok()?;
    folder.join(POINTS_FILE).is_file().then(|| serde_json::from_str(&text).ok())?
}
