//! The page buddy system with TLB coalescing (Duong and Hur).

use crate::entry;
use crate::study::paper::Paper;

pub mod allocation;
pub mod cases;
pub(crate) mod energy;
pub mod fit;
pub mod freelist;
pub mod readings;
pub mod setting;
pub mod system;
pub mod tlb;
pub mod translation;
pub mod widths;
pub mod workload;

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    key: "Duong and Hur 2023",
    authors: "T. D. Duong and J. Y. Hur",
    title: "Page-Size Aware Buddy Allocator With Unaligned Range Supports for TLB Coalescing",
    venue: "IEEE Access 11",
    year: Some(2023),
    doi: Some("10.1109/ACCESS.2023.3308591"),
    studies: &[
        entry!(tlb::Tlb, "tlb.toml"),
        entry!(tlb::Tlb, "tlb_armv8.toml"),
        entry!(tlb::Tlb, "tlb_aged.toml"),
        entry!(tlb::Tlb, "tlb_real.toml"),
    ],
};
