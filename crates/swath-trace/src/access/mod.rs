//! Address traces: the accesses of a program, in order, and what it did to its
//! address space between them.
//!
//! A [`TraceReader`] reads five formats (valgrind lackey's text, the records of ChampSim and of
//! DynamoRIO's drmemtrace, plain text or CSV, and Swath's own `.swtrace`), plain or compressed, within bounded
//! memory; a [`TraceWriter`] writes the last, and [`record_accesses`] makes one
//! of a command that it runs.

mod champsim;
pub(crate) mod content;
mod drmemtrace;
pub(crate) mod event;
pub(crate) mod file;
mod lackey;
mod pages;
mod plain;
pub(crate) mod reader;
pub(crate) mod record;
mod records;
#[cfg(target_os = "linux")]
mod sample;
mod syscall;

pub use content::{Compression, TraceError};
pub use event::{
    AccessKind, MapBacking, MapProtection, MemoryAccess, Sampling, TraceEvent, TraceHeader,
    TraceItem, pages_of,
};
pub use file::{TRACE_FORMAT, TraceWriter};
pub use pages::PageSet;
pub use reader::{TraceFormat, TraceItems, TraceReader};
pub use record::{AccessRecording, record_accesses};
