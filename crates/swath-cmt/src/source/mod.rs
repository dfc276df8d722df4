//! The source of the pool's units on Linux: an arena of reserved addresses, which chunks of 2 MiB
//! back with the largest pages that the kernel has.

pub(crate) mod backing;
pub(crate) mod choose;
pub(crate) mod chunk;
pub(crate) mod dma_heap;
pub(crate) mod mapping;
pub(crate) mod mend;
pub(crate) mod ordinary;
pub(crate) mod pages;
pub(crate) mod protect;
pub(crate) mod runs;
pub(crate) mod scratch;
