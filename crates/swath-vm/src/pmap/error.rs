//! What a [`Pmap`](crate::Pmap) refuses, and what its check finds.

use core::fmt;

use swath_arch::{BusError, Pfn, Vpn};

use crate::pmap::reverse::{ReverseFault, Site, SpaceId};
use crate::table::error::{CheckError, DemoteError, MapError, PageSizeError, UnmapError};

/// Why a pmap did not do what it was asked. Mappings are as before, except that
/// superpages may have been demoted, and as each operation says of
/// [`Bus`](PmapError::Bus).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmapError {
    /// There is no space of this number.
    NoSpace {
        /// The number.
        space: SpaceId,
    },
    /// The space was not made for superpages, or has a size that the reverse map
    /// has no lists for.
    Sizes {
        /// The space.
        space: SpaceId,
    },
    /// The reverse map does not know the frame.
    UnknownFrame {
        /// The first such frame.
        frame: Pfn,
    },
    /// A write, where the attributes permit none.
    Denied {
        /// The page.
        page: Vpn,
    },
    /// No PV entry is free.
    OutOfEntries,
    /// A page is none that the format translates.
    NotCanonical {
        /// The page.
        page: Vpn,
    },
    /// The page is not mapped.
    NotMapped {
        /// The page.
        page: Vpn,
    },
    /// The page could not be mapped.
    Map(MapError),
    /// The superpage could not be mapped.
    MapSuperpage(PageSizeError),
    /// Memory did not answer.
    Bus(BusError),
}

/// What [`Pmap::check`](crate::Pmap::check) found wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmapFault {
    /// There is no space of this number.
    NoSpace {
        /// The number.
        space: SpaceId,
    },
    /// A space's own check failed.
    Space {
        /// The space.
        space: SpaceId,
        /// What it found.
        error: CheckError,
    },
    /// The reverse map's own check failed.
    Reverse(ReverseFault),
    /// A mapping has no PV entry.
    Missing {
        /// The mapping.
        site: Site,
    },
    /// A PV entry's flags differ from the table's.
    Flags {
        /// The mapping.
        site: Site,
    },
    /// There are more PV entries than mappings.
    Surplus {
        /// PV entries in use.
        entries: u64,
        /// Mappings.
        mappings: u64,
    },
}

impl fmt::Display for PmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace { space } => write!(f, "there is no space {}", space.0),
            Self::Sizes { space } => {
                write!(f, "space {} has other superpages than the reverse map", space.0)
            }
            Self::UnknownFrame { frame } => write!(f, "frame {frame} is not in the reverse map"),
            Self::Denied { page } => write!(f, "page {page} is not to be written"),
            Self::OutOfEntries => write!(f, "no PV entry is free"),
            Self::NotCanonical { page } => write!(f, "page {page} is not translated"),
            Self::NotMapped { page } => write!(f, "page {page} is not mapped"),
            Self::Map(error) => error.fmt(f),
            Self::MapSuperpage(error) => error.fmt(f),
            Self::Bus(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for PmapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace { space } => write!(f, "there is no space {}", space.0),
            Self::Space { space, error } => write!(f, "space {}: {error}", space.0),
            Self::Reverse(error) => error.fmt(f),
            Self::Missing { site } => {
                write!(f, "page {} of space {} has no PV entry", site.page, site.space.0)
            }
            Self::Flags { site } => {
                write!(f, "page {} of space {}: flags differ", site.page, site.space.0)
            }
            Self::Surplus { entries, mappings } => {
                write!(f, "{entries} PV entries for {mappings} mappings")
            }
        }
    }
}

impl core::error::Error for PmapError {}
impl core::error::Error for PmapFault {}

impl From<BusError> for PmapError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl PmapError {
    /// What a demotion said; those that end in a removal do not come here.
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
