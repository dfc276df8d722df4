//! Running a command under valgrind's lackey, every program of it: what the
//! recorders of accesses and of heaps share.
//!
//! A command is rarely one program. `env`, `nice`, a shell's `exec` and the
//! shims of version managers replace themselves by another, and a shell starts
//! others beside itself. Each program of each process has a log of its own
//! here, and the recording is that of the program that counts.

#[cfg(target_os = "linux")]
mod log;
pub(crate) mod options;
#[cfg(target_os = "linux")]
pub(crate) mod run;
#[cfg(target_os = "linux")]
mod supervise;

pub use options::{RecordError, RecordOptions};

pub use crate::programs::{CommandPrograms, PROGRAMS_MAX, ProgramRun};
