//! Errors of a [`Pmap`](crate::Pmap), and the faults that its check finds.

use swath_arch::{BusError, Pfn, Vpn};

use crate::pmap::entries::{ReverseFault, Site, SpaceId};
use crate::table::error::{DemoteError, MapPagesError, PageSizeError, SpaceFault, UnmapError};

/// Reasons why a pmap refuses an operation. Mappings are as before, except that
/// superpages may have been demoted, and as each operation says of
/// [`Bus`](PmapError::Bus).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PmapError {
    /// There is no space of this number.
    #[error("there is no space {}", space.0)]
    NoSpace {
        /// The number.
        space: SpaceId,
    },
    /// The space was not made for superpages, or has a size that the reverse map
    /// has no lists for.
    #[error("space {} has other superpages than the reverse map", space.0)]
    Sizes {
        /// The space.
        space: SpaceId,
    },
    /// The reverse map does not know the frame.
    #[error("frame {frame} is not in the reverse map")]
    UnknownFrame {
        /// The first such frame.
        frame: Pfn,
    },
    /// A write, where the attributes permit none.
    #[error("page {page} is not to be written")]
    Denied {
        /// The page.
        page: Vpn,
    },
    /// No PV entry is free.
    #[error("no PV entry is free")]
    OutOfEntries,
    /// A page is none that the format translates.
    #[error("page {page} is not translated")]
    NotCanonical {
        /// The page.
        page: Vpn,
    },
    /// The page is not mapped.
    #[error("page {page} is not mapped")]
    NotMapped {
        /// The page.
        page: Vpn,
    },
    /// The page could not be mapped.
    #[error(transparent)]
    Map(MapPagesError),
    /// The superpage could not be mapped.
    #[error(transparent)]
    MapSuperpage(PageSizeError),
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// A breach of an invariant, found by [`Pmap::check`](crate::Pmap::check).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PmapFault {
    /// There is no space of this number.
    #[error("there is no space {}", space.0)]
    NoSpace {
        /// The number.
        space: SpaceId,
    },
    /// A space's own check failed.
    #[error("space {}: {error}", space.0)]
    Space {
        /// The space.
        space: SpaceId,
        /// The fault found.
        error: SpaceFault,
    },
    /// The reverse map's own check failed.
    #[error(transparent)]
    Reverse(ReverseFault),
    /// A mapping is in no PV entry.
    #[error("page {} of space {} is in no PV entry", site.page, site.space.0)]
    Missing {
        /// The mapping.
        site: Site,
    },
    /// The flags in a PV entry differ from the table's.
    #[error("page {} of space {}: flags differ", site.page, site.space.0)]
    Flags {
        /// The mapping.
        site: Site,
    },
    /// PV entries say more mappings than there are.
    #[error("{entered} mappings in PV entries, {mappings} in tables")]
    Surplus {
        /// Mappings in PV entries.
        entered: u64,
        /// Mappings in tables.
        mappings: u64,
    },
}

impl PmapError {
    /// Converts the error of a demotion; those that end in a removal do not come here.
    pub(crate) fn demotion(space: SpaceId, page: Vpn, error: DemoteError) -> Self {
        match error {
            DemoteError::Bus(bus) => Self::Bus(bus),
            DemoteError::NotCanonical { page } => Self::NotCanonical { page },
            DemoteError::NotForSuperpages => Self::Sizes { space },
            _ => Self::NotMapped { page },
        }
    }

    pub(crate) fn unmapping(page: Vpn, error: UnmapError) -> Self {
        match error {
            UnmapError::Bus(bus) => Self::Bus(bus),
            UnmapError::NotCanonical { page } => Self::NotCanonical { page },
            _ => Self::NotMapped { page },
        }
    }
}
