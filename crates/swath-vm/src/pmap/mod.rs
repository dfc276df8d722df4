//! The mappings of all spaces of a machine: superpages that arise and vanish by themselves,
//! a reverse map of every frame, and the relocation of frames with their mappings.

pub mod error;
pub mod mappings;
pub mod range;
pub mod relocation;
pub mod reverse;

pub use error::{PmapError, PmapFault};
pub use mappings::{
    Faulted, KeptPermissions, PageAccess, Pmap, PmapStatistics, Reached, Spaces, Status,
};
pub use relocation::MoveError;
pub use reverse::{ReverseError, ReverseFault, ReverseMap, Site, SpaceId};
