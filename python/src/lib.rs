//! The module `swath._native`: the laboratory, called without the interpreter's lock.
//!
//! Values cross as text, bytes and tables; the package around it (`package/swath`) makes Python's
//! objects of them.

#![forbid(unsafe_code)]

mod error;
mod frames;
mod interrupt;
mod plan;
mod source;
mod sweep;
mod table;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::frames::{Frames, Segments, Zone};
    #[pymodule_export]
    use crate::plan::{Outcome, plan_get, plan_set, plan_text, run, studies, study_of};
    #[pymodule_export]
    use crate::source::{Memory, read_accesses, write_accesses};
    #[pymodule_export]
    use crate::sweep::{Journal, Sweep, sweep_text};
    #[pymodule_export]
    use crate::table::{Table, load};

    /// The version of the crates that it is built from.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
