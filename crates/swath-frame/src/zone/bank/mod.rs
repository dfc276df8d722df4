//! Bank-aware buddy allocators, after *Panwar and Gopinath*.
//!
//! Each bank of DRAM is a buddy system of its own, so that a bank which is
//! wholly free can rest. [`BankBuddy`] is all of them: its [`Placement`] alone
//! says which bank serves a request, [`ArrayPlacement`] and [`ListPlacement`]
//! by a scan, [`PoolPlacement`] (Adaptive-Buddy) by pools of banks, [`BoundaryPlacement`] by two
//! regions as Contiguitas has them, [`TreePlacement`] by a reserved bank for each kind of request, as LLFree does.

pub(crate) mod adaptive;
pub(crate) mod blocks;
pub mod boundary;
pub mod buddy;
pub(crate) mod frames;
pub(crate) mod open;
pub(crate) mod placement;
pub mod pools;
pub mod ranges;
pub(crate) mod records;
pub(crate) mod rows;
pub mod scan;
pub(crate) mod serve;
pub(crate) mod single;
pub(crate) mod state;
pub mod trees;
pub(crate) mod walk;

pub use boundary::BoundaryPlacement;
pub use buddy::{AdaptiveBuddy, ArrayBuddy, BankBuddy, BoundaryBuddy, ListBuddy, TreeBuddy};
pub use placement::Placement;
pub use pools::{BankPreference, PoolMoves, PoolPlacement, PoolPolicy};
pub use ranges::{
    BANK_FRAMES_MAX, BANKS_MAX, BLOCK_ORDER_MAX, BankLayout, BankLayoutError, BankPool, BankState,
};
pub use scan::{ArrayPlacement, ListPlacement};
pub use trees::TreePlacement;
