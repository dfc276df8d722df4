//! Page events: what a Linux kernel's page allocator does, request by request.
//!
//! [`record_pages`] listens to the kernel while a command runs; [`PageWriter`]
//! and [`PageReader`] are the recording's file.

mod events;
mod file;
mod record;
mod ring;

pub use events::{
    CPUS_MAX, FRAMES_END, MigrateType, ORDER_MAX, PageChange, PageEvent, ZoneMax, reads_ahead,
};
pub use file::{PAGE_FORMAT, PageHeader, PageReader, PageWriter};
pub use record::{
    BUFFER_KIB, PageRecordError, PageRecordOptions, PageRecording, record_pages, usual_tracefs,
};
