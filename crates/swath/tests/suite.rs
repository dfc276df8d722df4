//! The tests of `swath` in one program: it is linked once, and all of them share the cores.

mod cl;
mod green;
#[cfg(target_os = "linux")]
mod hostile;
mod plans;
mod program;
mod real_memory;
#[cfg(target_os = "linux")]
mod record_faults;
mod resume;
mod study_command;
