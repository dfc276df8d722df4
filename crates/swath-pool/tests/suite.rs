//! The tests of `swath-pool` in one program: it is linked once, and all of them share the cores.

mod errors;
mod flips;
#[cfg(all(target_os = "linux", not(miri)))]
#[path = "../../swath-heap/tests/support/forked.rs"]
mod forked;
mod front;
mod model;
mod places;
mod safe_calls;
mod stats;
mod support;
mod threads;
