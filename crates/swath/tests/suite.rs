//! The tests of `swath` in one program: it is linked once, and all of them share the cores.

mod book;
mod cl;
mod compare;
#[cfg(target_os = "linux")]
mod faults;
mod green;
#[cfg(target_os = "linux")]
mod hostile;
mod plans;
mod program;
mod real_memory;
mod replay_start;
mod resume;
mod study_command;
mod sweep;
