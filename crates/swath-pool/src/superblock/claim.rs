//! The claims: which front may free the slots of a unit.

use core::sync::atomic::Ordering::Relaxed;

use crate::superblock::atomic::Shared32;

/// The claim of a front to one unit: storage that the caller supplies, one for each unit. All zeroes is a valid and
/// the initial value.
///
/// Invariant: it is the owner's word of the superblock that the unit lies in, the first unit or another, of which then no
/// slot waits to be collected, except while a return is under way; or [`CLOSED`], or 0 where no superblock ever lay.
///
/// Nearly every free reads one, and of the unit nothing else but its live bits: so they lie side by side, those of
/// sixteen units in a cache line.
#[repr(transparent)]
pub struct Claim(Shared32);

/// Says that no front may free slots of a unit. It is no superblock's word, and no flipped bit makes it one, or 0, which a
/// front of no pool has.
pub(crate) const CLOSED: u32 = 6 << 8;

impl Claim {
    /// Makes the claim to a unit without a superblock.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self(Shared32::new(0))
    }

    /// The owner's word, if its front may free slots of this unit; else another number.
    #[inline(always)]
    pub(crate) fn front(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Says whose front may free slots of this unit, or with [`CLOSED`] that none may.
    ///
    /// Who returns a slot closes it after it has set its bit of `queued`. Who opens it changes the same word after,
    /// and sees that bit; or whoever sets one later sees that change, and closes it after it was opened.
    pub(crate) fn set_front(&self, front: u32) {
        self.0.store(front, Relaxed);
    }
}
