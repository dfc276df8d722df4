//! The citation of the paper, and its studies.

use crate::entry;
use crate::papers::page_buddy::allocation;
use crate::papers::page_buddy::beyond;
use crate::papers::page_buddy::cases;
use crate::papers::page_buddy::fit;
use crate::papers::page_buddy::freelist;
use crate::papers::page_buddy::reach;
use crate::papers::page_buddy::readings;
use crate::papers::page_buddy::search;
use crate::papers::page_buddy::system;
use crate::papers::page_buddy::tlb;
use crate::papers::page_buddy::widths;
use crate::study::citation::Citation;
use crate::study::paper::Paper;

/// The paper and its studies.
pub const PAPER: Paper = Paper {
    citation: Citation {
        key: "Duong and Hur 2023",
        authors: "T. D. Duong and J. Y. Hur",
        title: "Page-Size Aware Buddy Allocator With Unaligned Range Supports for TLB Coalescing",
        venue: "IEEE Access 11",
        year: Some(2023),
        doi: Some("10.1109/ACCESS.2023.3308591"),
    },
    studies: &[
        entry!(cases::Cases, "cases.toml"),
        entry!(tlb::Tlb, "tlb.toml"),
        entry!(tlb::Tlb, "tlb_armv8.toml"),
        entry!(tlb::Tlb, "tlb_aged.toml"),
        entry!(tlb::Tlb, "tlb_real.toml"),
        entry!(
            system::System,
            "system.toml",
            search: entry!(search::study::Search, "search/search.toml")
        ),
        entry!(system::System, "system_cpu.toml"),
        entry!(system::System, "system_x86_64.toml"),
        entry!(system::System, "system_sv39.toml"),
        entry!(readings::Readings, "readings.toml"),
        entry!(widths::Widths, "widths.toml"),
        entry!(allocation::Allocation, "allocation.toml"),
        entry!(freelist::Freelist, "freelist.toml"),
        entry!(fit::Fit, "fit.toml"),
        entry!(beyond::study::Beyond, "beyond/beyond.toml"),
        entry!(reach::study::Reach, "reach/reach.toml"),
        entry!(reach::hardware::InHardware, "reach/hardware.toml"),
    ],
};
