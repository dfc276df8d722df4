//! The means to test an allocator: naive models, and one conformance suite for
//! each trait, to be run on every implementation of it.
//!
//! * [`frames`] for [`FrameAllocator`](crate::FrameAllocator), with the lists of
//!   the page buddy paper as they are written in [`lists`];
//! * [`ranges`] for [`ContiguousAllocator`](crate::ContiguousAllocator) and
//!   [`FrameHotplug`](crate::FrameHotplug);
//! * [`zones`] for [`ZoneAllocator`](crate::ZoneAllocator);
//! * [`segments`] for [`SegmentAllocator`](crate::segment::SegmentAllocator);
//! * [`reservations`] for [`Reservations`](crate::Reservations).

pub mod frames;
pub mod lists;
pub mod ranges;
pub mod reservations;
pub mod segments;
pub mod zones;
