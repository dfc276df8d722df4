//! The tests of `swath-pool` in one program: it is linked once, and all of them share the cores.

mod errors;
mod model;
mod support;
mod threads;
