//! The owners of a load's blocks.

use swath_frame::Mobility;

use crate::papers::green::pages::handles::HandleRow;

/// The owner of a block of frames.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) mobility: Mobility,
    /// True for a file in the page cache.
    pub(crate) cached: bool,
    pub(crate) cpu: u16,
}

impl Owner {
    /// What is no file.
    pub(crate) const fn new(mobility: Mobility, cpu: u16) -> Self {
        Self { mobility, cached: false, cpu }
    }
}

/// A process: its anonymous blocks and the kernel's for it.
pub(crate) struct Process {
    pub(crate) cpu: u16,
    pub(crate) anonymous: HandleRow,
    pub(crate) kernel: HandleRow,
    /// All of its frames, both kinds.
    pub(crate) frames: u64,
    /// Anonymous frames now, and how many there will be.
    pub(crate) grown: u64,
    pub(crate) want: u64,
    /// True if some of its memory comes as blocks of order 9.
    pub(crate) huge: bool,
    /// Begin and end, for a job.
    pub(crate) born_us: u64,
    pub(crate) exit_us: u64,
}

/// A file in the page cache.
pub(crate) struct CachedFile {
    pub(crate) blocks: HandleRow,
    pub(crate) frames: u64,
}

/// A group of processes.
#[derive(Clone, Copy)]
pub(crate) enum Group {
    Lasting,
    Workers,
    Jobs,
}
