//! Real input of a study: the free frames of a machine and the accesses of a
//! program, from files or from the small recordings that come with the
//! program.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_arch::{Extent, Pfn};

use swath_trace::access::{TraceError, TraceReader};
use swath_trace::machine::{Snapshot, UnknownFrames};

/// A snapshot of a real machine.
const SHIPPED_MACHINE: &[u8] = include_bytes!("../../data/machine.swsnap");

/// The accesses of a real program.
const SHIPPED_TRACE: &[u8] = include_bytes!("../../data/sort.swtrace");

/// A recording that comes with the program, of a compiler.
macro_rules! compiler {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../data/compilers/", $name, ".swtrace")))
    };
}

/// The recordings of [`Trace::build`], of which the first is that of [`Trace::compiler`].
const GCC_BUILD: [Shipped; 7] = [
    compiler!("gcc-build-1"),
    compiler!("gcc-build-1-as"),
    compiler!("gcc-build-2"),
    compiler!("gcc-build-2-as"),
    compiler!("gcc-build-3"),
    compiler!("gcc-build-3-as"),
    compiler!("gcc-build-ld"),
];
const CLANG_BUILD: [Shipped; 4] = [
    compiler!("clang-build-1"),
    compiler!("clang-build-2"),
    compiler!("clang-build-3"),
    compiler!("clang-build-ld"),
];

/// The pages that a simulation of a face references, of [`Trace::face`].
macro_rules! face {
    ($threads:literal) => {
        ($threads, ("face", include_bytes!(concat!("../../data/face/", $threads, ".swtrace"))))
    };
}
const FACE: [(u64, Shipped); 4] = [face!(1), face!(4), face!(8), face!(16)];

/// The name of a recording that comes with the program, and its bytes.
type Shipped = (&'static str, &'static [u8]);

/// A compiler of which recordings come with the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// GCC's `cc1`, with the assembler that it needs.
    Gcc,
    /// Clang.
    Clang,
}

/// Real input that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {what}")]
pub struct InputError {
    /// The file, or what the shipped recording is called.
    pub file: String,
    /// The fault, with the byte where there is one.
    pub what: String,
}

/// Real input in place of what a plan names.
#[derive(Clone, Default, Debug)]
pub struct RealInput {
    /// The free extents of a machine, from a snapshot.
    pub memory: Option<Arc<Machine>>,
    /// A file of recorded accesses.
    pub accesses: Option<PathBuf>,
    /// Measure the machine that runs the study, too.
    pub measure: bool,
}

impl RealInput {
    /// The name of its file of accesses, as a result gives it: the same file gives the same bytes
    /// wherever it lies.
    pub fn accesses_name(&self) -> Option<String> {
        self.accesses.as_deref().map(file_name)
    }
}

/// The free memory of a real machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The snapshot's file name, or what it is called.
    pub name: String,
    /// The file that it was loaded from, to load it again in another process; `None`
    /// is the shipped one.
    pub file: Option<PathBuf>,
    /// The counting of its unknown frames.
    pub unknown: UnknownFrames,
    /// Its free extents, ascending.
    pub free: Vec<Extent>,
}

impl Machine {
    /// The free frames of the snapshot in `file`, or of the shipped one.
    ///
    /// # Errors
    /// [`InputError`], which names the file and the byte.
    pub fn load(file: Option<&Path>, unknown: UnknownFrames) -> Result<Self, InputError> {
        let (name, snapshot) = match file {
            Some(path) => (file_name(path), Snapshot::load(path)),
            None => ("shipped snapshot".to_owned(), Snapshot::read(SHIPPED_MACHINE)),
        };
        let input = |what: String| InputError {
            file: file.map_or(name.clone(), |path| path.display().to_string()),
            what,
        };
        let snapshot = snapshot.map_err(|error| input(error.to_string()))?;
        let free: Vec<Extent> = snapshot.free_extents(unknown).collect();
        if free.is_empty() {
            return Err(input("no free frame in it".to_owned()));
        }
        Ok(Self { name, file: file.map(Path::to_owned), unknown, free })
    }

    /// Its free extents as far as they lie below frame `end`.
    pub fn below(&self, end: Pfn) -> Vec<Extent> {
        self.free
            .iter()
            .filter(|extent| extent.start < end)
            .map(|extent| {
                let count = extent.count.min(end - extent.start);
                Extent::new(extent.start, count)
            })
            .collect()
    }

    /// Counts the free frames.
    pub fn free_frames(&self) -> u64 {
        self.free.iter().map(|extent| extent.count).sum()
    }
}

/// The recorded accesses of a real program, read anew for each use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    recording: Recording,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Recording {
    File(PathBuf),
    Shipped(Shipped),
}

impl Trace {
    /// The trace in `file`, or the shipped one.
    pub fn new(file: Option<&Path>) -> Self {
        let recording = file.map_or(Recording::Shipped(("sort", SHIPPED_TRACE)), |file| {
            Recording::File(file.to_owned())
        });
        Self { recording }
    }

    /// The shipped run of a face's simulation with so many threads: the pages that each references in the last 10 of
    /// each 100 ms of its time (docs/formats.md). `None` if it was not run with so many.
    pub fn face(threads: u64) -> Option<Self> {
        let (_, shipped) = FACE.iter().find(|(recorded, _)| *recorded == threads)?;
        Some(Self { recording: Recording::Shipped(*shipped) })
    }

    /// The shipped run of a compiler on a source of 7,843 lines, with its mappings.
    pub const fn compiler(compiler: Compiler) -> Self {
        let recording = match compiler {
            Compiler::Gcc => GCC_BUILD[0],
            Compiler::Clang => CLANG_BUILD[0],
        };
        Self { recording: Recording::Shipped(recording) }
    }

    /// The shipped runs of a build of three sources, of which that is the first: each compiled, and all linked.
    pub fn build(compiler: Compiler) -> Vec<Self> {
        let programs: &[Shipped] = match compiler {
            Compiler::Gcc => &GCC_BUILD,
            Compiler::Clang => &CLANG_BUILD,
        };
        programs.iter().map(|&program| Self { recording: Recording::Shipped(program) }).collect()
    }

    /// Its name.
    pub fn name(&self) -> String {
        match &self.recording {
            Recording::File(file) => file_name(file),
            Recording::Shipped((name, _)) => format!("{name} (shipped trace)"),
        }
    }

    /// Its accesses from the first on.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn open(&self) -> Result<TraceReader, TraceError> {
        match &self.recording {
            Recording::File(path) => TraceReader::open(path),
            Recording::Shipped((_, bytes)) => TraceReader::from_reader(Cursor::new(*bytes), None),
        }
    }

    /// An error of this trace with its name.
    pub fn error(&self, error: &TraceError) -> InputError {
        let file = match &self.recording {
            Recording::File(file) => file.display().to_string(),
            _ => self.name(),
        };
        InputError { file, what: error.to_string() }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
