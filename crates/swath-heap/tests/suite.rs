//! The tests of `swath-heap` in one program: it is linked once, and all of them share the cores.

mod conformance;
mod flips;
mod mapped;
mod model;
mod named;
mod safe_calls;
mod sizing;
mod support;
