//! The errors of populating pages and of building reservations.

use swath_arch::{Extent, Pfn};

use crate::hardening::WordFault;

/// Reasons why a page was not populated. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PopulateError {
    /// The page is not one of the bounds'.
    #[error("page {index:#x} does not lie in {start:#x}..{end:#x}")]
    OutOfBounds {
        /// The page.
        index: u64,
        /// The first page of the bounds.
        start: u64,
        /// One past their last.
        end: u64,
    },
    /// The page has a frame in a reservation already.
    #[error("page {index:#x} of object {object:#x} has frame {frame} already")]
    AlreadyPopulated {
        /// The object.
        object: u64,
        /// The page.
        index: u64,
        /// The frame it has.
        frame: Pfn,
    },
    /// No frame is free, not even in a reservation.
    #[error("no frame is free")]
    OutOfFrames,
    /// The checked tier has found a word of the storage that is wrong.
    #[error(transparent)]
    Corrupt(WordFault),
}

/// Reasons why reservations cannot be built over an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReservationsError {
    /// The storage is too small.
    #[error("{needed_words} words of storage needed, {given_words} given")]
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
    /// There would be more slots than can be numbered, 2^32 - 1.
    #[error("a span of {frames} frames has too many slots for reservations")]
    Span {
        /// Frames from the first to the last of the map.
        frames: u64,
    },
    /// The allocator does not have as many frames as the map.
    #[error("the map has {map_frames} frames, the allocator {allocator_frames}")]
    OtherFrames {
        /// Frames of the map.
        map_frames: u64,
        /// Frames of the allocator.
        allocator_frames: u64,
    },
    /// A free block of the allocator has frames that are not the map's.
    #[error("free block {block} is not in the map")]
    Foreign {
        /// The block.
        block: Extent,
    },
}
