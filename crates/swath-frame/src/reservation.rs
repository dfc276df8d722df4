//! Superpages by reservation.

use core::ops::{DerefMut, Range};

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{AllocError, FrameAllocator, FreeError};
use crate::map::MemoryMap;
pub use crate::reservation_levels::{LEVELS_MAX, Levels, LevelsError};
pub use crate::reservation_types::{
    Counters, PopulateError, Populated, Reservation, ReservationsError, Source,
};

/// Reservations of superpages over an allocator `A`, with their state in `W`.
#[derive(Clone, Debug)]
pub struct Reservations<A, W> {
    under: A,
    storage: W,
    levels: Levels,
    counters: Counters,
}

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>> Reservations<A, W> {
    /// How many words of storage the frames of `map` need.
    pub fn storage_words(map: &MemoryMap<'_>, levels: Levels) -> usize {
        let _ = (map, levels);
        0
    }

    /// Reservations over `allocator`, whose frames are those of `map`. Frames
    /// of the map that are not free in it are held: they can be freed here.
    ///
    /// # Errors
    /// [`ReservationsError`].
    pub fn new(
        map: &MemoryMap<'_>,
        levels: Levels,
        allocator: A,
        storage: W,
    ) -> Result<Self, ReservationsError> {
        let _ = map;
        Ok(Self { under: allocator, storage, levels, counters: Counters::default() })
    }

    /// Gives page `index` of `object` a frame.
    ///
    /// # Errors
    /// [`PopulateError`]; nothing changes.
    pub fn populate(
        &mut self,
        object: u64,
        index: u64,
        bounds: Range<u64>,
        now: u64,
    ) -> Result<Populated, PopulateError> {
        let _ = (object, now);
        if !bounds.contains(&index) {
            let Range { start, end } = bounds;
            return Err(PopulateError::OutOfBounds { index, start, end });
        }
        let frame = self.under.take_frame().ok_or(PopulateError::OutOfFrames)?;
        self.counters.single += 1;
        Ok(Populated { frame, full: None, source: Source::Single })
    }

    /// Breaks up every reservation of `object` that meets `pages`.
    pub fn release(&mut self, object: u64, pages: Range<u64>) {
        let _ = (object, pages);
    }

    /// Whether the aligned 2^`order` frames around `frame` are all populated
    /// in one reservation.
    pub fn is_full(&self, frame: Pfn, order: Order) -> bool {
        let _ = (frame, order);
        false
    }

    /// The largest level or sub-level that [`is_full`](Self::is_full) around
    /// `frame`.
    pub fn full_order(&self, frame: Pfn) -> Option<Order> {
        let _ = frame;
        None
    }

    /// The reservation that `frame` belongs to.
    pub fn reservation_of(&self, frame: Pfn) -> Option<Reservation> {
        let _ = frame;
        None
    }

    /// The reservation that covers page `index` of `object`.
    pub fn reservation_at(&self, object: u64, index: u64) -> Option<Reservation> {
        let _ = (object, index);
        None
    }

    /// The frame that page `index` of `object` has in a reservation.
    pub fn frame_at(&self, object: u64, index: u64) -> Option<Pfn> {
        let _ = (object, index);
        None
    }

    /// Visits the partially populated reservations, the one that would be
    /// broken up first first.
    pub fn for_each_queued(&self, visit: &mut dyn FnMut(Reservation)) {
        let _ = visit;
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many reservations there are.
    pub fn reservations(&self) -> u64 {
        0
    }

    /// How many frames are reserved and not populated.
    pub fn reserved_frames(&self) -> u64 {
        0
    }

    /// The levels.
    pub fn levels(&self) -> Levels {
        self.levels
    }

    /// The allocator beneath.
    pub fn allocator(&self) -> &A {
        &self.under
    }

    /// Walks all invariants; the first that does not hold is named.
    ///
    /// # Errors
    /// What is broken.
    pub fn check(&self) -> Result<(), &'static str> {
        let _ = &self.storage;
        Ok(())
    }
}

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>> FrameAllocator for Reservations<A, W> {
    fn take_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.under.take_block(frames_max)
    }

    fn take_aligned(&mut self, order: Order) -> Result<Extent, AllocError> {
        self.under.take_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FreeError> {
        self.under.free(extent)
    }

    fn free_frames(&self) -> u64 {
        self.under.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.under.total_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.under.for_each_free(visit);
    }
}
