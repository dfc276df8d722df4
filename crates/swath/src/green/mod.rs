//! `swath green`: the daemon of the green memory manager (Panwar and Gopinath, section IV-E) on a
//! running Linux, whose memory blocks are the banks.
//!
//! [`daemon`] has the rules, over a [`Machine`](daemon::Machine); [`linux`] is the running one,
//! [`rehearsal`] one that only counts, for a dry run and the tests.

mod command;
mod daemon;
mod journal;
mod linux;
mod rehearsal;

pub(crate) use command::{GreenArgs, run};
pub(crate) use linux::set_memory_block;
