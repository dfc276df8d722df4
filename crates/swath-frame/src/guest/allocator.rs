//! The guest's side.

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameFreeError};
use crate::guest::shared::{SharedUnits, UNIT_FRAMES};
use crate::hotplug::FrameHotplug;

/// The words are not those of the allocator's span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the words are of {units} units from frame {first} on, the allocator of {span}")]
pub struct OtherSpan {
    /// The allocator's span.
    pub span: Extent,
    /// Units that have a word.
    pub units: usize,
    /// The first frame of the first unit.
    pub first: Pfn,
}

/// A guest's frame allocator, whose host takes free units.
///
/// `H` asks the host for the memory of a unit that it has taken: the host backs it, [gives](SharedUnits::give) it back
/// and says true, or false if the guest is to do without. A unit that is refused is removed from the
/// allocator; all such are asked for again when a request would fail otherwise.
///
/// Invariants: the word of a unit counts the frames that the allocator has handed out through this guest, and
/// those that were allocated, or no memory, when it was made; a parked unit is not in the allocator, and any other
/// is; `parked` counts them.
///
/// # Examples
/// ```
/// use std::sync::atomic::AtomicU32;
///
/// use swath_arch::{Extent, Order, Pfn};
/// use swath_frame::guest::{Guest, SharedUnits};
/// use swath_frame::{BuddyConfig, ByteRange, MemoryMap, PageBuddy};
///
/// let mut areas = [Extent::default()];
/// let all = Extent::new(Pfn::new(0), 4 * 512);
/// let map = MemoryMap::new(&[ByteRange::of_frames(all)], &mut areas).unwrap();
/// let words = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, BuddyConfig::PBS_ARMV8)];
/// let frames = PageBuddy::<_>::new(&map, BuddyConfig::PBS_ARMV8, words).unwrap();
///
/// let shared: Vec<_> = (0..SharedUnits::words_len(all)).map(|_| AtomicU32::new(0)).collect();
/// let units = SharedUnits::new(all, &shared).unwrap();
/// let mut guest = Guest::new(frames, units, |unit| units.give(unit)).unwrap();
/// let page = guest.allocate_block(1).unwrap();
///
/// // The host takes what is free, asking nobody.
/// assert_eq!(units.take_free(usize::MAX, &mut |_| ()), 3);
/// // The guest has it back when it needs it.
/// let superpage = guest.allocate_aligned(Order::known(9)).unwrap();
/// assert!(!units.take((superpage.start.raw() / 512) as usize));
/// # guest.free(page).unwrap();
/// ```
#[derive(Debug)]
pub struct Guest<'m, A, H> {
    allocator: A,
    units: SharedUnits<'m>,
    install: H,
    parked: usize,
}

impl<'m, A: FrameHotplug, H: FnMut(usize) -> bool> Guest<'m, A, H> {
    /// Puts the words before an allocator of the same span. What is not free now counts as held until it
    /// is freed through this guest. O(free blocks).
    ///
    /// # Errors
    /// [`OtherSpan`] if the words are of another span than the allocator's.
    pub fn new(allocator: A, units: SharedUnits<'m>, install: H) -> Result<Self, OtherSpan> {
        let span = allocator.span();
        let words = SharedUnits::words_len(span);
        if words != units.len() || !units.frames(0).contains(span.start) {
            let first = units.frames(0).start;
            return Err(OtherSpan { span, units: units.len(), first });
        }
        allocator.for_each_free(&mut |free| units.release(free));
        Ok(Self { allocator, units, install, parked: 0 })
    }

    /// Returns the number of free frames, with those in units that the host has taken but for parked ones. O(1).
    pub fn free_frames(&self) -> u64 {
        self.allocator.free_frames()
    }

    /// Returns the number of units that the guest was refused and does without. O(1).
    pub fn parked_units(&self) -> usize {
        self.parked
    }

    /// Returns the allocator.
    pub fn into_inner(self) -> A {
        self.allocator
    }

    /// Allocates one block of 1 to `frames_max` frames, chosen by the allocator's rule, all of it backed; `None` if
    /// no frame is free that the host lets the guest have, or `frames_max` is 0.
    pub fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if frames_max == 0 {
            return None;
        }
        let none = FrameAllocateError::OutOfFrames { wanted: 1, free: 0 };
        self.insist(|allocator| allocator.allocate_block(frames_max).ok_or(none)).ok()
    }

    /// Allocates 2^order frames whose first is a multiple of 2^order, all of them backed.
    ///
    /// # Errors
    /// As [`FrameAllocator::allocate_aligned`](crate::FrameAllocator::allocate_aligned), after all that is parked was asked for.
    pub fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.insist(|allocator| allocator.allocate_aligned(order))
    }

    /// Frees frames, which may be any part of what was allocated. A unit of which none is held from then on may
    /// be taken at any moment.
    ///
    /// # Errors
    /// A [`FrameFreeError`]; nothing changes.
    pub fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.allocator.free(extent)?;
        self.units.release(extent);
        Ok(())
    }

    /// Asks the allocator until what it gives is backed.
    fn insist(
        &mut self,
        mut ask: impl FnMut(&mut A) -> Result<Extent, FrameAllocateError>,
    ) -> Result<Extent, FrameAllocateError> {
        let mut wanted = 0;
        // Each turn parks a unit or has one again; a host that goes on taking what it has given ends it.
        for _ in 0..=2 * self.units.len() {
            match ask(&mut self.allocator) {
                Ok(block) => match self.hold(block) {
                    Ok(()) => return Ok(block),
                    Err(unit) => {
                        wanted = block.count;
                        let freed = self.allocator.free(block);
                        debug_assert!(freed.is_ok(), "what was allocated a moment ago");
                        self.park(unit);
                    }
                },
                Err(error) if !self.unpark() => return Err(error),
                Err(_) => {}
            }
        }
        Err(FrameAllocateError::OutOfFrames { wanted, free: self.free_frames() })
    }

    /// Notes that the guest holds a block, whose units the host backs where it has taken them.
    fn hold(&mut self, block: Extent) -> Result<(), usize> {
        let mut held = self.units.hold(block);
        // Once for each unit that the block lies in, and once for a host that took one again meanwhile.
        for _ in 0..=block.count.div_ceil(UNIT_FRAMES) + 1 {
            match held {
                Err(unit) if (self.install)(unit) => held = self.units.hold(block),
                _ => break,
            }
        }
        held
    }

    /// Removes a unit, which is taken, from the allocator: all of it is free.
    fn park(&mut self, unit: usize) {
        if !self.units.park(unit) {
            return;
        }
        match self.allocator.remove_frames(self.units.frames(unit)) {
            Ok(()) => self.parked += 1,
            Err(_) => self.units.unpark(unit),
        }
    }

    /// Asks for the first parked unit that the host gives, and adds it again. O(units).
    fn unpark(&mut self) -> bool {
        if self.parked == 0 {
            return false;
        }
        for unit in 0..self.units.len() {
            let state = self.units.unit_use(unit).filter(|state| state.is_parked);
            let Some(state) = state else { continue };
            if state.is_taken && !self.is_given(unit) {
                continue;
            }
            if self.allocator.add_frames(self.units.frames(unit)).is_err() {
                debug_assert!(false, "what was removed can be added");
                continue;
            }
            self.units.unpark(unit);
            self.parked -= 1;
            return true;
        }
        false
    }

    /// Asks for a unit; returns true if the host has given it.
    fn is_given(&mut self, unit: usize) -> bool {
        (self.install)(unit) && self.units.unit_use(unit).is_some_and(|state| !state.is_taken)
    }
}
