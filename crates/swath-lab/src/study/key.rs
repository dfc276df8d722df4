//! The key of a study's journal: all that its points follow from.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use crate::host::machine::host_name;
use crate::source::real::RealInput;
use crate::study::journal::JournalError;
use crate::study::run::Run;

/// The key of a study's journal: the plan as it is run, what it reads, and the machine. O(b)
/// for the bytes of these files.
///
/// # Errors
/// [`JournalError`] if a file cannot be read.
pub(crate) fn journal_key(plan: &Json, run: &Run<'_>) -> Result<String, JournalError> {
    let key = json!({
        "plan": plan,
        "inputs": inputs(plan, run.real)?,
        "measures_machine": run.real.measure,
        "machine": host_name(),
    });
    Ok(key.to_string())
}

/// The program byte for byte, and the contents of the files that a plan or its real input names.
///
/// # Errors
/// [`JournalError`] if a file cannot be read.
pub(crate) fn inputs(plan: &Json, real: &RealInput) -> Result<Json, JournalError> {
    let program = PROGRAM.clone()?;
    let memory = real.memory.as_ref();
    let mut files = Vec::new();
    files.extend(memory.and_then(|machine| machine.file.clone()));
    files.extend(real.accesses.clone());
    named_files(plan, &mut files);
    let contents: Result<Vec<Json>, JournalError> =
        files.iter().map(|path| content(path)).collect();
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "program": program,
        "unknown_frames": memory.map(|machine| format!("{:?}", machine.unknown)),
        "files": contents?,
    }))
}

/// The program's length and checksum, read once for all studies.
static PROGRAM: LazyLock<Result<Json, JournalError>> = LazyLock::new(|| {
    let fault = |error: io::Error| JournalError {
        path: PathBuf::from("the program"),
        what: error.to_string(),
    };
    content(&std::env::current_exe().map_err(fault)?)
});

/// Files by the names that stand in a plan, wherever: a recording, a snapshot.
fn named_files(plan: &Json, files: &mut Vec<PathBuf>) {
    match plan {
        Json::String(text) if Path::new(text).is_file() => files.push(text.into()),
        Json::Array(values) => values.iter().for_each(|value| named_files(value, files)),
        Json::Object(values) => values.values().for_each(|value| named_files(value, files)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// A file's length and checksum.
fn content(path: &Path) -> Result<Json, JournalError> {
    let read = || -> io::Result<Json> {
        let (mut file, mut sum) = (File::open(path)?, crc32fast::Hasher::new());
        let (mut part, mut length) = (vec![0; 1 << 16], 0_u64);
        loop {
            match file.read(&mut part)? {
                0 => return Ok(json!([length, sum.finalize()])),
                count => {
                    sum.update(&part[..count]);
                    length += count as u64;
                }
            }
        }
    };
    read().map_err(|error| JournalError { path: path.to_owned(), what: error.to_string() })
}
