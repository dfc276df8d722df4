//! The green memory manager (Panwar and Gopinath): memory in use is kept in few
//! banks, so that the others can rest.
//!
//! | rule of the paper | file |
//! |---|---|
//! | Linux's layout: sections in use and kernel sections (section III-A, Fig. 1, 2, 7) | [`layout`] |
//! | working sets of many threads (section III-B, Fig. 3) | [`working_set`] |
//! | bank-buddies and Adaptive-Buddy (section IV-A to D) | [`machine::allocator`]; the allocators are `swath_frame`'s |
//! | the migration thread (section IV-E, Fig. 9) | [`migration`]; the thread is `swath_vm`'s |
//! | removable sections (section V-A, Fig. 8) | [`hotplug`] |
//! | offlined memory and c (section V-B and D, Table IV) | [`power`] |
//! | structures and allocation time (Tables II and III) | [`cost`] |
//!
//! [`recorded`] adds a real kernel's requests. [`machine`] is the machine on
//! which all of it runs, [`pages`] its loads and recordings.

use crate::entry;
use crate::study::paper::Paper;

pub(crate) mod compare;
pub mod cost;
pub(crate) mod followed;
pub mod hotplug;
pub mod layout;
pub mod machine;
pub mod migration;
pub mod pages;
pub mod power;
pub mod recorded;
pub mod replay;
pub mod setting;
pub(crate) mod track;
pub mod working_set;

/// The paper and its studies.
pub static PAPER: Paper = Paper {
    key: "Panwar and Gopinath 2015",
    authors: "A. Panwar and K. Gopinath",
    title: "Towards Practical Page Placement for a Green Memory Manager",
    venue: "IEEE International Conference on High Performance Computing, Data, and Analytics (HiPC)",
    year: Some(2015),
    doi: None,
    studies: &[
        entry!(layout::Layout, "layout.toml"),
        entry!(hotplug::Hotplug, "hotplug.toml"),
        entry!(power::Power, "power.toml"),
        entry!(migration::Migration, "migration.toml"),
        entry!(recorded::Recorded, "recorded.toml"),
        entry!(cost::study::Cost, "cost/study.toml"),
        entry!(working_set::WorkingSet, "working_set.toml"),
    ],
};
