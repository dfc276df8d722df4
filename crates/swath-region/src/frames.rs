//! One pool of frames for several spaces of regions, with a bound and a guarantee
//! for each.
//!
//! Free frames are a list through one word per frame, and so are the frames of each
//! region. To give a region's frames back is to put its list before the
//! free one: two words, whatever its length (requirement 2 of Böhnert and Scholl,
//! section IV-A1). Frames that were never used are in no list but counted from the
//! end, so that a pool needs no initialisation.
//!
//! A space's [`Quota`] says how many frames it may have at most, and how
//! many it is sure to get. The pool keeps back as many free frames as are guaranteed and not
//! yet taken, so a task that stays within its guarantee never meets an empty pool,
//! whatever others do.

use core::cell::Cell;

use swath_arch::{Extent, Pfn, validity};

/// No frame: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// The number of frames that a space may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Frames that the pool keeps for the space: so many it will always get.
    pub guaranteed: u32,
    /// Frames that the space will never exceed; not less than `guaranteed`.
    pub limit: u32,
}

impl Quota {
    /// No guarantee and no bound but the pool's.
    pub const OPEN: Self = Self { guaranteed: 0, limit: u32::MAX };

    /// Returns a quota of exactly so many frames, all guaranteed.
    pub const fn fixed(frames: u32) -> Self {
        Self { guaranteed: frames, limit: frames }
    }
}

/// Reasons why a quota is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuotaError {
    /// More is guaranteed than the limit.
    #[error("{} frames guaranteed of at most {}", quota.guaranteed, quota.limit)]
    AboveLimit {
        /// The quota asked for.
        quota: Quota,
    },
    /// The space has more frames than the limit already.
    #[error("a limit of {limit} frames, and {used} are in use")]
    InUse {
        /// Frames that it has.
        used: u32,
        /// The limit asked for.
        limit: u32,
    },
    /// Fewer frames are free and not promised to others than would have to be kept.
    #[error("{wanted} frames to keep, {available} are free and not promised")]
    TooFew {
        /// Frames to keep.
        wanted: u32,
        /// Frames that are free and not promised.
        available: u32,
    },
}

/// Reasons why there is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoFrame {
    Limit,
    Empty,
}

/// Reasons why a pool is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FramePoolError {
    /// A frame is beyond what an entry of the data array can say.
    #[error("frames up to {end}, entries reach to {end_max}")]
    FrameOutOfReach {
        /// One past the last frame.
        end: Pfn,
        /// One past the last that could be.
        end_max: Pfn,
    },
    /// Fewer links than frames.
    #[error("{given} links for {needed} frames")]
    Short {
        /// Links needed.
        needed: u64,
        /// Links given.
        given: usize,
    },
}

/// A space's share of a pool.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) used: u32,
    pub(crate) quota: Quota,
}

impl Account {
    /// Returns the account of a space with nothing, and no claim.
    pub(crate) const fn empty() -> Self {
        Self { used: 0, quota: Quota::OPEN }
    }

    /// Counts the free frames that the pool keeps for this account.
    fn promised(&self, used: u32) -> u32 {
        self.quota.guaranteed.saturating_sub(used)
    }
}

/// Frames that spaces of regions share; frames come and go one by one or as whole
/// lists, each in O(1).
///
/// It is shared by reference and by one thread.
///
/// Invariants: every frame is on the free list, or on the list of one region of one
/// space, or at or above `fresh`. `free` counts the first and the last. `promised` is
/// the sum over spaces of what is guaranteed beyond what is used, and no more than
/// `free`.
#[derive(Debug)]
pub struct FramePool<'p> {
    frames: Extent,
    /// For each frame the next of its list.
    links: &'p [Cell<u32>],
    head: Cell<u32>,
    fresh: Cell<u32>,
    free: Cell<u32>,
    promised: Cell<u32>,
}

impl<'p> FramePool<'p> {
    /// Makes a pool of `frames`, all free, with a link for each. O(1): the links may hold
    /// anything.
    ///
    /// # Errors
    /// [`FramePoolError`] if links are too few or a frame's number is too large.
    pub fn new(frames: Extent, links: &'p mut [u32]) -> Result<Self, FramePoolError> {
        let end_max = Pfn::new(validity::FRAME.max() + 1);
        if frames.checked_end().is_none_or(|end| end > end_max) {
            return Err(FramePoolError::FrameOutOfReach { end: frames.end(), end_max });
        }
        if (links.len() as u64) < frames.count {
            return Err(FramePoolError::Short { needed: frames.count, given: links.len() });
        }
        Ok(Self {
            frames,
            links: Cell::from_mut(links).as_slice_of_cells(),
            head: Cell::new(NONE),
            fresh: Cell::new(0),
            free: Cell::new(frames.count as u32),
            promised: Cell::new(0),
        })
    }

    /// Returns the pool's frames.
    pub fn frames(&self) -> Extent {
        self.frames
    }

    /// Counts the frames that no space has.
    pub fn free_frames(&self) -> u32 {
        self.free.get()
    }

    /// Counts the free frames that are kept for spaces with a guarantee.
    pub fn promised_frames(&self) -> u32 {
        self.promised.get()
    }

    /// Returns the frame of this number in the pool.
    #[inline]
    pub(crate) fn frame(&self, index: u32) -> Pfn {
        self.frames.start + u64::from(index)
    }

    /// Returns the next of a frame's list.
    pub(crate) fn link(&self, index: u32) -> Option<u32> {
        self.links.get(index as usize).map(Cell::get)
    }

    /// Sets the next of a frame's list; for a frame on no list, any number of its owner's.
    pub(crate) fn set_link(&self, index: u32, value: u32) {
        if let Some(link) = self.links.get(index as usize) {
            link.set(value);
        }
    }

    /// Returns the number in the pool of a frame.
    pub(crate) fn index(&self, frame: Pfn) -> u32 {
        (frame.raw().wrapping_sub(self.frames.start.raw())) as u32
    }

    /// Returns the frame that [`allocate`](Self::allocate) would give to this account. O(1).
    #[inline]
    pub(crate) fn peek(&self, account: &Account) -> Result<u32, NoFrame> {
        if account.used >= account.quota.limit {
            return Err(NoFrame::Limit);
        }
        if account.used >= account.quota.guaranteed && self.free.get() <= self.promised.get() {
            return Err(NoFrame::Empty);
        }
        Ok(if self.head.get() == NONE { self.fresh.get() } else { self.head.get() })
    }

    /// Allocates the frame that was just seen, as the first of a list that went on with
    /// `next`. O(1).
    #[inline]
    pub(crate) fn allocate(&self, account: &mut Account, frame: u32, next: u32) {
        let Some(link) = self.links.get(frame as usize) else { return };
        if self.head.get() == NONE {
            self.fresh.set(frame + 1);
        } else {
            self.head.set(link.get());
        }
        link.set(next);
        self.free.set(self.free.get() - 1);
        if account.used < account.quota.guaranteed {
            self.promised.set(self.promised.get() - 1);
        }
        account.used += 1;
    }

    /// Frees a list of `count` frames, at least one. O(1).
    #[inline]
    pub(crate) fn free_list(&self, account: &mut Account, first: u32, last: u32, count: u32) {
        let Some(link) = self.links.get(last as usize) else { return };
        link.set(self.head.replace(first));
        self.free.set(self.free.get() + count);
        let left = account.used - count;
        let kept = account.promised(left) - account.promised(account.used);
        self.promised.set(self.promised.get() + kept);
        account.used = left;
    }

    /// Gives an account another quota.
    pub(crate) fn set_quota(&self, account: &mut Account, quota: Quota) -> Result<(), QuotaError> {
        if quota.guaranteed > quota.limit {
            return Err(QuotaError::AboveLimit { quota });
        }
        if account.used > quota.limit {
            return Err(QuotaError::InUse { used: account.used, limit: quota.limit });
        }
        let others = self.promised.get() - account.promised(account.used);
        let (wanted, available) =
            (quota.guaranteed.saturating_sub(account.used), self.free.get() - others);
        if wanted > available {
            return Err(QuotaError::TooFew { wanted, available });
        }
        self.promised.set(others + wanted);
        account.quota = quota;
        Ok(())
    }

    /// Ends the guarantee of an account that has no frames.
    pub(crate) fn close(&self, account: &mut Account) {
        self.promised.set(self.promised.get() - account.promised(account.used));
        account.quota = Quota::OPEN;
    }

    /// Returns true if the free list has as many frames as it should. O(frames).
    pub fn check(&self) -> bool {
        let (count, fresh) = (self.frames.count as u32, self.fresh.get());
        let (mut at, mut listed) = (self.head.get(), 0);
        while at < fresh && listed <= count {
            listed += 1;
            at = self.link(at).unwrap_or(0);
        }
        at == NONE
            && fresh <= count
            && listed + (count - fresh) == self.free.get()
            && self.promised.get() <= self.free.get()
    }
}
