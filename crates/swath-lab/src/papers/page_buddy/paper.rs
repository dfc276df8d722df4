//! The citation of the paper, and its studies.

use crate::entry;
use crate::papers::page_buddy::tlb;
use crate::study::citation::Citation;
use crate::study::paper::Paper;

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    citation: Citation {
        key: "Duong and Hur 2023",
        authors: "T. D. Duong and J. Y. Hur",
        title: "Page-Size Aware Buddy Allocator With Unaligned Range Supports for TLB Coalescing",
        venue: "IEEE Access 11",
        year: Some(2023),
        doi: Some("10.1109/ACCESS.2023.3308591"),
    },
    studies: &[
        entry!(tlb::Tlb, "tlb.toml"),
        entry!(tlb::Tlb, "tlb_armv8.toml"),
        entry!(tlb::Tlb, "tlb_aged.toml"),
        entry!(tlb::Tlb, "tlb_real.toml"),
    ],
};
