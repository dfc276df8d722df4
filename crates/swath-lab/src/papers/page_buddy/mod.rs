//! The page buddy system with TLB coalescing (Duong and Hur): an allocator
//! whose free lists are those of the page sizes, and whose blocks may have any
//! length and alignment, so that a TLB entry covers more.
//!
//! | part of the paper | file |
//! |---|---|
//! | worked examples: Fig. 2, 3, 5 to 8, Table 2 | [`cases`] |
//! | Table 3, the machine and its memory; Table 4, the workloads | [`setting`], [`workload`] |
//! | TRAD, PCAD, AT and PBS translating (sections III-B, IV-E) | [`translation`] |
//! | section V-B, TLB hit rates: Fig. 10 to 14 | [`tlb`] |
//! | Fig. 9, the timed system; section V-C, cycles: Fig. 15 to 18 | [`timed`], [`system`], [`savings`], `energy` |
//! | section V-D, cost of allocation: Fig. 19, 20 | `subject`, [`allocation`] |
//! | section V-E, nodes of the free lists: Fig. 21 | [`lists`], [`freelist`] |
//! | not in the paper: width of the fields, readings of Table 4, best fit | [`widths`], [`readings`], [`fit`] |

use crate::entry;
use crate::study::paper::Paper;

pub mod allocation;
pub mod cases;
pub(crate) mod energy;
pub mod fit;
pub mod freelist;
pub mod lists;
pub mod readings;
pub mod savings;
pub mod setting;
pub(crate) mod subject;
pub mod system;
pub mod timed;
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
        entry!(cases::Cases, "cases.toml"),
        entry!(tlb::Tlb, "tlb.toml"),
        entry!(tlb::Tlb, "tlb_armv8.toml"),
        entry!(tlb::Tlb, "tlb_aged.toml"),
        entry!(tlb::Tlb, "tlb_real.toml"),
        entry!(system::System, "system.toml"),
        entry!(system::System, "system_cpu.toml"),
        entry!(readings::Readings, "readings.toml"),
        entry!(widths::Widths, "widths.toml"),
        entry!(allocation::Allocation, "allocation.toml"),
        entry!(freelist::Freelist, "freelist.toml"),
        entry!(fit::Fit, "fit.toml"),
    ],
};
