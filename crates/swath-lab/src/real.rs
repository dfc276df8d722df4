//! Real input of a study: the free frames of a machine and the accesses of a
//! program, from files or from the small recordings that come with the
//! program.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use swath_arch::{Extent, Pfn};

use crate::access::{Accesses, TraceError};
use crate::snapshot::{Snapshot, UnknownFrames};
use crate::study::StudyError;

/// A snapshot of a real machine.
const SHIPPED_MACHINE: &[u8] = include_bytes!("../../../data/machine.swsnap");

/// The accesses of a real program.
const SHIPPED_TRACE: &[u8] = include_bytes!("../../../data/sort.swtrace");

/// The free memory of a real machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The snapshot's file name, or what it is called.
    pub name: String,
    /// Its free extents, ascending.
    pub free: Vec<Extent>,
}

impl Machine {
    /// The free frames of the snapshot in `file`, or of the shipped one.
    ///
    /// # Errors
    /// [`StudyError::Input`], which names the file and the byte.
    pub fn load(file: Option<&Path>, unknown: UnknownFrames) -> Result<Self, StudyError> {
        let (name, snapshot) = match file {
            Some(path) => (file_name(path), Snapshot::load(path)),
            None => ("shipped snapshot".to_owned(), Snapshot::read(SHIPPED_MACHINE)),
        };
        let input = |what: String| StudyError::Input {
            file: file.map_or(name.clone(), |path| path.display().to_string()),
            what,
        };
        let snapshot = snapshot.map_err(|error| input(error.to_string()))?;
        let free: Vec<Extent> = snapshot.free_extents(unknown).collect();
        if free.is_empty() {
            return Err(input("no free frame in it".to_owned()));
        }
        Ok(Self { name, free })
    }

    /// Its free extents as far as they lie below frame `end`.
    pub fn below(&self, end: Pfn) -> Vec<Extent> {
        self.free
            .iter()
            .filter(|extent| extent.start < end)
            .map(|extent| {
                let count = extent.count.min(end.raw() - extent.start.raw());
                Extent::new(extent.start, count)
            })
            .collect()
    }

    /// How many frames are free.
    pub fn free_frames(&self) -> u64 {
        self.free.iter().map(|extent| extent.count).sum()
    }
}

/// The recorded accesses of a real program, read anew for each use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    file: Option<PathBuf>,
}

impl Trace {
    /// The trace in `file`, or the shipped one.
    pub fn new(file: Option<&Path>) -> Self {
        Self { file: file.map(Path::to_owned) }
    }

    /// What it is called.
    pub fn name(&self) -> String {
        self.file.as_deref().map_or_else(|| "sort (shipped trace)".to_owned(), file_name)
    }

    /// Its accesses from the first on.
    ///
    /// # Errors
    /// As [`Accesses::open`].
    pub fn open(&self) -> Result<Accesses, TraceError> {
        match &self.file {
            Some(path) => Accesses::open(path),
            None => Accesses::from_reader(Cursor::new(SHIPPED_TRACE), None),
        }
    }

    /// An error of this trace as a study's.
    pub fn error(&self, error: &TraceError) -> StudyError {
        let file = self.file.as_ref().map_or_else(|| self.name(), |f| f.display().to_string());
        StudyError::Input { file, what: error.to_string() }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
