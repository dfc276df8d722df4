//! Translation tables: an [`AddressSpace`] maps, translates, protects and
//! unmaps, with contiguity beside the mappings or with superpages.
//!
//! | file | concept |
//! |---|---|
//! | [`space`], [`map`], [`unmap`], [`join`], [`protect`], [`inspect`] | the space and its operations |
//! | [`superpage`], [`sizes`] | promotion and demotion of one space's pages |
//! | [`contiguity`], `line`, [`anchor`] | PCAD's and the anchors' numbers, spread over a line, and their distance |
//! | [`flush`], [`error`] | the TLB maintenance owed, and the errors |

pub mod anchor;
pub mod contiguity;
pub(crate) mod encode;
pub mod error;
pub mod flush;
pub mod inspect;
pub mod join;
pub(crate) mod line;
pub mod map;
pub(crate) mod parts;
pub(crate) mod piece;
#[cfg(test)]
mod proofs;
pub mod protect;
pub mod sizes;
pub mod space;
pub mod superpage;
pub mod unmap;
pub(crate) mod upper;
pub(crate) mod walk;

pub use anchor::anchor_distance;
pub use contiguity::PageContiguity;
pub use error::{
    DemandPagingError, DemoteError, EagerPagingError, MapPagesError, NewSpaceError, PageSizeError,
    PromoteError, Refusal, SpaceFault, TranslateError, UnmapError,
};
pub use flush::Flush;
pub use inspect::PageMapping;
pub use sizes::Sizes;
pub use space::{AddressSpace, SpaceStatistics};
pub use superpage::{Demoted, DemotedTable, Promoted};
