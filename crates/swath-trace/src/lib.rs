//! TODO.

pub mod access;
#[cfg(target_os = "linux")]
pub mod command;
pub mod container;
pub mod heap;
pub mod input;
pub mod machine;
pub mod output;
pub mod pages;
