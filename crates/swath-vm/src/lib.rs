#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

pub mod migrate;
pub mod pmap;
pub mod segments;
pub mod table;

pub use pmap::{
    Faulted, KeptPermissions, MoveError, PageAccess, Pmap, PmapError, PmapFault, PmapStatistics,
    ReverseError, ReverseFault, ReverseMap, Site, SpaceId, Spaces, Status,
};
pub use segments::{SegmentEntry, SegmentListError, write_segment_list};
pub use table::{
    AddressSpace, DemandPagingError, DemoteError, Demoted, DemotedTable, EagerPagingError, Flush,
    MapPagesError, NewSpaceError, PageContiguity, PageMapping, PageSizeError, PromoteError,
    Promoted, Refusal, Sizes, SpaceFault, SpaceStatistics, TranslateError, UnmapError,
    anchor_distance,
};
