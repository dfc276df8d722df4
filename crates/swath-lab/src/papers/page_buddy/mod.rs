//! The page buddy system with TLB coalescing (Duong and Hur).

pub mod allocation;
pub mod cases;
pub(crate) mod energy;
pub mod fit;
pub mod freelist;
pub mod paper;
pub mod readings;
pub mod setting;
pub mod system;
pub mod tlb;
pub mod translation;
pub mod widths;
pub mod workload;
