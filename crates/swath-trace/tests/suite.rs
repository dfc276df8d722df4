//! The tests of `swath-trace` in one program: it is linked once, and all of them share the cores.

mod access;
mod access_record;
mod drmemtrace;
mod files;
mod heap_events;
mod heap_record;
mod inspect;
mod page_events;
mod page_record;
mod programs;
mod snapshot;
