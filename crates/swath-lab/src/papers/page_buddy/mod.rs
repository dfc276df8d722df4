//! The page buddy system with TLB coalescing (Duong and Hur): an allocator
//! whose free lists are those of the page sizes, and whose blocks may have any
//! length and alignment, so that a TLB entry covers more.
//!
//! | part of the paper | file |
//! |---|---|
//! | worked examples: Fig. 2, 3, 5 to 8, Table 2 | [`cases`] |
//! | Table 3, the machine and its memory; Table 4, the workloads | [`setting`], [`workload`] |
//! | TRAD, PCAD, AT and PBS translating (sections III-B, IV-E) | [`translation`] |
//! | the designs that are compared, composed by a plan or added by other crates | [`design`] |
//! | the memory behind the timed system | [`dram`] |
//! | section V-B, TLB hit rates: Fig. 10 to 14 | [`tlb`] |
//! | Fig. 9, the timed system; section V-C, cycles: Fig. 15 to 18 | [`timed`], [`system`], [`savings`], `fields`, `energy` |
//! | not in the paper: readings of the timed system searched jointly | [`search`] |
//! | section V-D, cost of allocation: Fig. 19, 20 | `subject`, [`allocation`], [`costs`] |
//! | section V-E, nodes of the free lists: Fig. 21 | [`lists`], [`freelist`] |
//! | not in the paper: width of the fields, readings of Table 4, best fit | [`widths`], [`readings`], [`fit`] |
//! | not in the paper: orders of loops, large pages, demand paging | [`beyond`] |
//! | not in the paper: TLBs that are sold, other proposals, hypervisors | [`reach`] |

pub mod allocation;
pub mod beyond;
pub mod cases;
pub mod costs;
pub mod design;
pub mod dram;
pub(crate) mod energy;
pub(crate) mod fields;
pub mod fit;
pub mod freelist;
pub mod lists;
pub mod paper;
pub mod reach;
pub mod readings;
pub mod savings;
pub mod search;
pub mod setting;
pub(crate) mod subject;
pub mod system;
pub mod timed;
pub mod tlb;
pub mod translation;
pub mod widths;
pub mod workload;
