//! Changes to a running Linux machine that are undone at the end.
//!
//! [`age`] brings its free memory into a stated shape and keeps it there. The rest is the green memory
//! manager's daemon (Panwar and Gopinath, section IV-E), for which memory blocks are the banks: [`serve`] has the rules, over a [`Machine`]; [`Linux`] is the running one, [`Rehearsal`] one that
//! only counts, for a dry run and the tests. A [`Journal`] tells what is offline when a run was
//! killed.

mod age;
mod daemon;
mod error;
mod hold;
mod journal;
mod linux;
mod rehearsal;
mod setting;
mod shape;

pub use age::{AgeLook, AgeSettings, age, free_runs, would_hold};
pub use daemon::{
    BlockUse, Choice, Event, Machine, OnlineFrames, Refusal, Settings, Summary, serve,
};
pub use error::LiveError;
pub use journal::Journal;
pub use linux::{DamonReclaim, Linux, RECLAIM, frames, set_memory_block, uses};
pub use rehearsal::Rehearsal;
pub use setting::restore_setting;
pub use shape::Shape;
pub use swath_vm::migrate::MigrationConfig;
