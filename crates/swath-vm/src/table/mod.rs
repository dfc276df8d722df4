//! TODO table.

pub mod anchor;
pub mod contiguity;
pub(crate) mod encode;
pub mod error;
pub mod flush;
pub mod inspect;
pub mod map;
pub(crate) mod parts;
pub mod protect;
pub mod sizes;
pub mod space;
pub mod superpage;
pub mod unmap;
pub(crate) mod upper;
pub(crate) mod walk;
