//! The green memory manager (Panwar and Gopinath).

pub mod allocator;
pub(crate) mod blocks;
pub mod cost;
pub mod hotplug;
pub mod layout;
pub mod machine;
pub mod migration;
pub mod paper;
pub mod plan;
pub mod plan_cost;
pub mod power;
pub mod recorded;
pub mod replay;
pub mod sample;
pub(crate) mod track;
pub mod view;
pub mod working_set;
pub(crate) mod zone;
