//! TODO translate.

pub mod decode;
pub mod hierarchy;
pub mod mmu;
pub mod walker;
