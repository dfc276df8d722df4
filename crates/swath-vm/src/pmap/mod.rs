//! The mappings of all spaces of a machine: superpages that arise and vanish by themselves,
//! a reverse map of every frame, and the relocation of frames with their mappings.

pub mod entries;
pub mod error;
pub mod mappings;
pub mod range;
pub mod relocation;
pub mod reverse;
#[cfg(test)]
mod reverse_model;

pub use entries::{ReverseError, ReverseFault, ReverseMap, Site, SpaceId, Status};
pub use error::{PmapError, PmapFault};
pub use mappings::{Faulted, KeptPermissions, PageAccess, Pmap, PmapStatistics, Reached, Spaces};
pub use relocation::MoveError;
