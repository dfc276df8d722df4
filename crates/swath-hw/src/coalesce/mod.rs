//! Other ways to coalesce: what shipped processors do, and two proposals, beside the papers' PCAD and AT.
//!
//! | | a TLB entry covers | known from |
//! |---|---|---|
//! | [`Joined`], [`Join::Whole`] | an aligned group of pages on an aligned run of frames | the line of descriptors (AMD's Zen: four pages) |
//! | [`Joined`], [`Join::Part`] | a part of an aligned group whose frames go on | the line of descriptors (CoLT) |
//! | [`Joined`], [`Join::Fragment`] | an aligned power of two of pages on as many aligned frames | what the descriptor says (fragments of AMD's GPUs, Svnapot of any size) |
//! | [`RedundantRanges`] | a page; beside it a run of any length | a list of ranges beside the page table (RMM) |
//! | [`OffsetPrediction`] | a page; a wrong guess costs, a right one hides the walk | the offset of the pages before (SpOT) |

pub mod joined;
pub mod offsets;
pub mod ranges;

pub use joined::{Join, Joined};
pub use offsets::{OffsetOutcome, OffsetPrediction, OffsetStats};
pub use ranges::{RangesMiss, RedundantRanges};
