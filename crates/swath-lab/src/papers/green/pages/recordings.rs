//! Recordings of page events: those that come with the program, and files.

use std::fs::File;
use std::path::{Path, PathBuf};

use swath_frame::machine::CPUS_MAX;
use swath_trace::container::FileError;
use swath_trace::pages::{PAGE_FORMAT, PageHeader, PageReader};

use crate::papers::green::pages::requests::{
    HeldBlock, Outline, TimedOp, blocks_max, held_before, look_through, replay,
};
use crate::papers::green::pages::stream::StreamedRequests;
use crate::study::needs::bytes;

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

macro_rules! recording {
    ($folder:literal, $name:literal) => {
        (
            $name,
            include_bytes!(concat!("../../../../data/", $folder, "/", $name, ".swpages"))
                .as_slice(),
        )
    };
}

/// The recordings of single operations that come with the program, by the names of the tests of AIM9's that
/// they are after.
pub const OPERATIONS: [(&str, &[u8]); 17] = [
    recording!("operations", "creat-clo"),
    recording!("operations", "page_test"),
    recording!("operations", "brk_test"),
    recording!("operations", "exec_test"),
    recording!("operations", "fork_test"),
    recording!("operations", "link_test"),
    recording!("operations", "disk_rr"),
    recording!("operations", "disk_rw"),
    recording!("operations", "disk_wrt"),
    recording!("operations", "disk_src"),
    recording!("operations", "shared_memory"),
    recording!("operations", "tcp_test"),
    recording!("operations", "udp_test"),
    recording!("operations", "fifo_test"),
    recording!("operations", "stream_pipe"),
    recording!("operations", "dgram_pipe"),
    recording!("operations", "pipe_cpy"),
];

/// The recordings of programs with 16 threads that come with the program, by the names of those of PARSEC's that they are
/// after.
pub const PROGRAMS: [(&str, &[u8]); 12] = [
    recording!("programs", "blackscholes"),
    recording!("programs", "bodytrack"),
    recording!("programs", "canneal"),
    recording!("programs", "dedup"),
    recording!("programs", "facesim"),
    recording!("programs", "ferret"),
    recording!("programs", "fluidanimate"),
    recording!("programs", "freqmine"),
    recording!("programs", "streamcluster"),
    recording!("programs", "swaptions"),
    recording!("programs", "vips"),
    recording!("programs", "x264"),
];

/// A whole system's recording that comes with the program, to be
/// [followed](crate::papers::green::pages::follow): its name, its events, and the machine's snapshot.
pub const FOLLOWED: (&str, &[u8], &[u8]) = (
    "fragmented",
    include_bytes!("../../../../data/fragmented.swpages"),
    include_bytes!("../../../../data/fragmented.swsnap"),
);

/// The file of a recording, opened where it is not one of [`SHIPPED`], [`OPERATIONS`] or [`PROGRAMS`].
///
/// # Errors
/// [`RecordingError::File`].
pub fn open(name: &Path) -> Result<PageReader<Box<dyn std::io::Read + Send>>, RecordingError> {
    let failed = |error| RecordingError::File { file: name.to_owned(), error };
    let mut all = SHIPPED.iter().chain(&OPERATIONS).chain(&PROGRAMS);
    let shipped = all.find(|(shipped, _)| name == Path::new(shipped));
    let from: Box<dyn std::io::Read + Send> = match shipped {
        Some((_, bytes)) => Box::new(*bytes),
        None => Box::new(File::open(name).map_err(|error| failed(error.into()))?),
    };
    PageReader::new(from).map_err(failed)
}

/// Bytes of the requests of recordings that are held in memory, those that come with the program left out.
pub(crate) fn requests_bytes<'n>(names: impl Iterator<Item = &'n String>) -> u64 {
    let files = names.filter_map(|name| std::fs::metadata(name).ok());
    // Events are packed in a file.
    files.fold(0, |sum: u64, file| sum.saturating_add(bytes(&[64, file.len()])))
}

/// The most requests of a recording of so many bytes, which are held in memory. Real ones
/// have one for two bytes.
fn requests_max(file_bytes: u64) -> usize {
    const FREE: u64 = 1 << 21;
    usize::try_from(file_bytes.saturating_mul(4).max(FREE)).unwrap_or(usize::MAX)
}

/// The most simulated hours of a run.
pub const HOURS_MAX: u64 = 1000;

/// A recording that is not held in memory: each replay reads its file anew.
#[derive(Debug)]
pub struct RecordingFile {
    file: PathBuf,
    head: PageHeader,
    outline: Outline,
    blocks_max: usize,
}

impl RecordingFile {
    /// Reads a recording once. Memory is O(blocks that it frees without having allocated them, and
    /// frames in blocks that it names). A name of [`SHIPPED`] will do, too.
    ///
    /// # Errors
    /// [`RecordingError::File`] or [`RecordingError::Empty`].
    pub fn open(file: &Path) -> Result<Self, RecordingError> {
        let failed = |error| RecordingError::File { file: file.to_owned(), error };
        let reader = open(file)?;
        let head = reader.head().clone();
        if usize::from(head.cpus) > CPUS_MAX {
            return Err(failed(PAGE_FORMAT.too_large(CPUS_MAX as u64, "processors of a machine")));
        }
        // One that comes with the program, or a pipe, counts as none.
        let file_bytes = std::fs::metadata(file).map_or(0, |about| about.len());
        let blocks_max = blocks_max(file_bytes);
        let outline = look_through(reader, blocks_max).map_err(failed)?;
        if outline.last_us >= HOURS_MAX * 3_600_000_000 {
            return Err(failed(PAGE_FORMAT.too_large(HOURS_MAX, "hours")));
        }
        if outline.requests == 0 {
            return Err(RecordingError::Empty { file: file.to_owned() });
        }
        Ok(Self { file: file.to_owned(), head, outline, blocks_max })
    }

    /// Returns the file, or the name of one that comes with the program.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the facts that stand before the events.
    pub fn head(&self) -> &PageHeader {
        &self.head
    }

    /// Returns what is known of the requests.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns the processors of its machine, at least 1.
    pub fn cpus(&self) -> u16 {
        self.head.cpus.max(1)
    }

    /// The requests from the first on; those that allocate a block that was held before are left out
    /// where `is_there` says that its frames are in use already.
    ///
    /// # Errors
    /// [`RecordingError::File`].
    pub fn requests(
        &self,
        is_there: impl Fn(HeldBlock) -> bool,
    ) -> Result<StreamedRequests, RecordingError> {
        let reader = open(&self.file)?;
        let held = &self.outline.held;
        StreamedRequests::new(reader, held, self.blocks_max, is_there).map_err(|source| {
            RecordingError::File { file: self.file.clone(), error: FileError::Io { source } }
        })
    }
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
    if usize::from(cpus) > CPUS_MAX {
        return Err(failed(PAGE_FORMAT.too_large(CPUS_MAX as u64, "processors of a machine")));
    }
    // One that comes with the program, or a pipe, counts as none.
    let file_bytes = std::fs::metadata(file).map_or(0, |about| about.len());
    let (blocks_max, requests_max) = (blocks_max(file_bytes), requests_max(file_bytes));
    let held = held_before(open(file)?, blocks_max).map_err(failed)?;
    let (mut ops, mut count) = (Vec::new(), 0usize);
    let mut keep = |op| {
        count += 1;
        if count <= requests_max {
            ops.push(op);
        }
    };
    replay(second, &held, blocks_max, &mut keep).map_err(failed)?;
    if count > requests_max {
        return Err(failed(PAGE_FORMAT.too_large(requests_max as u64, "requests")));
    }
    if ops.last().is_some_and(|op| op.time_us >= HOURS_MAX * 3_600_000_000) {
        return Err(failed(PAGE_FORMAT.too_large(HOURS_MAX, "hours")));
    }
    if ops.is_empty() {
        return Err(RecordingError::Empty { file: file.to_owned() });
    }
    Ok((ops, cpus))
}
