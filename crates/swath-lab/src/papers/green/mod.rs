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
//! | structures, allocation time, programs, a kernel's operations (Tables II, III, V and VI) | [`cost`] |
//!
//! [`recorded`] adds a real kernel's requests. [`machine`] is the machine on
//! which all of it runs, [`pages`] its loads and recordings.

pub(crate) mod compare;
pub mod cost;
pub(crate) mod followed;
pub mod hotplug;
pub mod layout;
pub mod machine;
pub mod migration;
pub mod pages;
pub mod paper;
pub mod power;
pub mod recorded;
pub(crate) mod reel;
pub mod replay;
pub mod setting;
pub mod shootout;
pub(crate) mod track;
pub mod working_set;
