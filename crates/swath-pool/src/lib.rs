//! A buffer pool of superblocks for many threads.

#![no_std]

pub(crate) mod check;
pub(crate) mod class;
pub mod error;
pub(crate) mod fork;
pub(crate) mod global;
pub(crate) mod kept;
pub(crate) mod local;
pub mod pool;
pub(crate) mod segment;
pub(crate) mod source;
pub(crate) mod superblock;

pub use error::{AllocError, FreeError, ResizeError};
