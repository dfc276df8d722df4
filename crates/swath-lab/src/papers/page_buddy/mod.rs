//! TODO papers/page_buddy.

pub mod allocation;
pub mod cases;
pub(crate) mod energy;
pub mod fit;
pub mod freelist;
pub mod readings;
pub mod system;
pub mod tlb;
pub mod translation;
pub mod widths;
pub mod workload;
