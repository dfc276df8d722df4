//! The green memory manager's daemon (Panwar and Gopinath, section IV-E) on a running Linux, whose
//! memory blocks are the banks.
//!
//! [`serve`] has the rules, over a [`Machine`]; [`Linux`] is the running one, [`Rehearsal`] one that
//! only counts, for a dry run and the tests. A [`Journal`] tells what is offline when a run was
//! killed.

mod daemon;
mod error;
mod journal;
mod linux;
mod rehearsal;

pub use daemon::{BlockUse, Choice, Event, Frames, Machine, Refusal, Settings, Summary, serve};
pub use error::LiveError;
pub use journal::Journal;
pub use linux::{DamonReclaim, Linux, RECLAIM, frames, set_memory_block, uses};
pub use rehearsal::Rehearsal;
pub use swath_vm::migrate::MigrationConfig;
