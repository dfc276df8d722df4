//! CLMalloc: contiguous memory over scattered areas (Zhang, Lu and Zhang).
//!
//! [`areas`] is a machine's memory with its vacuums (section 3.2). [`availability`], [`order`],
//! [`latency`], [`large`] and [`structures`] are the studies: Table 2, and Fig. 4, 6, 7 and 8.
//! `segments` has the allocators of Table 2, and `variant` the four designs of Fig. 6 (sections
//! 4.1 to 4.3), which `timing` measures on `memory`, a file whose frames are taken and mapped
//! apart. [`bitmap`] has the questions of section 4.1, and [`translation`] the accelerator's way to its
//! segments, beside an IOMMU. `blocks`, and `records` with the `load` by [`ycsb`], are the programs of Fig. 7 and 8, on
//! `malloc` and `cmt_malloc` (`allocator`), which `rounds` times in turn, and beside other allocators
//! ([`peers`]). [`real`] runs the library itself for Table 2 and Fig. 6.

#[cfg(target_os = "linux")]
pub(crate) mod allocator;
pub mod areas;
pub mod availability;
pub mod bitmap;
#[cfg(target_os = "linux")]
pub(crate) mod blocks;
pub mod large;
pub mod latency;
pub mod load;
#[cfg(target_os = "linux")]
pub(crate) mod memory;
pub mod order;
pub mod paper;
pub mod peers;
pub mod real;
#[cfg(target_os = "linux")]
pub(crate) mod records;
pub(crate) mod rounds;
pub(crate) mod segments;
pub mod structures;
pub(crate) mod timing;
pub mod translation;
pub(crate) mod variant;
pub mod ycsb;
