//! Parsers: whatever a file says, each ends with items or with an error that names the place, and
//! what it took for good is written and read again as the same.

pub mod accesses;
pub mod champsim;
pub mod compressed;
mod file;
pub mod heap_events;
pub mod lackey;
pub mod page_events;
pub mod plans;
pub mod results;
pub mod snapshot;
