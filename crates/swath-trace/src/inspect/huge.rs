//! Huge pages that can be had, and the frames that are in the way of the others.

use serde::Serialize;

use crate::inspect::memory::{HUGE_FRAMES, Unit};
use crate::machine::{FrameKind, UnknownFrames};

/// Frames of a huge page of 1 GiB.
pub const GIGANTIC_FRAMES: u64 = 512 * HUGE_FRAMES;

/// One kind of frames that cannot be moved, in places where a huge page could be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Blocker {
    /// Places with such a frame.
    pub places: u64,
    /// Places with frames of no other kind that cannot be moved.
    pub alone: u64,
    /// Frames of this kind in these places.
    pub frames: u64,
}

/// The places for huge pages of one size, each aligned to its size and whole in RAM.
///
/// `places` is the sum of `free`, `in_use`, `movable`, `unsettled` and `blocked`.
///
/// **Movable** are frames of files, of anonymous memory and of folios; Linux does not show which
/// of them are pinned by a device or a system call, so that a pinned one counts as movable. All
/// other kinds cannot be moved: a single one blocks its place.
///
/// **Frames without a mark** are free, in a list of some processor, or taken by kernel code; Linux shows
/// how many are which, not which is which. A place that hangs on such frames alone is unsettled. Whether units
/// of them throughout are free, as memory is that the kernel has not initialised, the caller says:
/// [`Unmarked`](crate::inspect::Unmarked) tells.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HugePages {
    /// Frames of a huge page.
    pub frames: u64,
    /// Places in all.
    pub places: u64,
    /// Places that are free.
    pub free: u64,
    /// Places that are one huge page in use.
    pub in_use: u64,
    /// Places with frames that can be moved, and perhaps free ones, but no others.
    pub movable: u64,
    /// Of the movable places as many as can be emptied into free frames outside of them and of the
    /// free places, those with the fewest frames to move first.
    pub after_compaction: u64,
    /// Frames to be moved for `after_compaction`.
    pub frames_to_move: u64,
    /// Places with frames without a mark, and no other frame that cannot be moved: free or movable if those
    /// are free, and blocked if one of them is in use.
    pub unsettled: u64,
    /// Places with a frame that cannot be moved.
    pub blocked: u64,
    /// Blocked places with at most 1, 8 and 64 such frames.
    pub blocked_by_at_most: [(u64, u64); 3],
    /// Kinds of frames that block them, by [`FrameKind::code`]; frames without a mark do not count.
    pub blockers: [Blocker; FrameKind::COUNT],
}

impl HugePages {
    /// Judges the places among these units, ascending: huge pages of [`HUGE_FRAMES`] or a multiple
    /// of it. Units that are unmarked throughout count as `unmarked` says; a place that is free but for
    /// such is movable, with none to move, if they count as free. O(units · log units).
    ///
    /// # Panics
    /// If `frames` is no multiple of [`HUGE_FRAMES`], or none.
    pub fn of(units: &[Unit], frames: u64, unmarked: UnknownFrames) -> Self {
        assert!(frames > 0 && frames.is_multiple_of(HUGE_FRAMES), "{frames} frames");
        let per_place = frames / HUGE_FRAMES;
        let mut pages = Self { frames, ..Self::default() };
        for (limit, entry) in [1, 8, 64].into_iter().zip(&mut pages.blocked_by_at_most) {
            entry.0 = limit;
        }
        // Of each movable place the frames in use.
        let mut movable: Vec<u64> = Vec::new();
        let mut free_frames = 0;
        let of_one_place = |a: &Unit, b: &Unit| a.number / per_place == b.number / per_place;
        for place in units.chunk_by(of_one_place) {
            let mut counts = [0; FrameKind::COUNT];
            for unit in place {
                for (sum, &count) in counts.iter_mut().zip(&unit.counts) {
                    *sum += u64::from(count);
                }
            }
            let count = |kind: FrameKind| counts[usize::from(kind.code())];
            let whole = place.iter().filter(|unit| unit.is_unmarked()).count() as u64 * HUGE_FRAMES;
            let drained = match unmarked {
                UnknownFrames::Free => whole,
                UnknownFrames::Used => 0,
            };
            let unsettled = count(FrameKind::Unknown) - drained;
            free_frames += count(FrameKind::Free) + drained;
            if counts.iter().sum::<u64>() < frames {
                continue;
            }
            pages.places += 1;
            let can_move: u64 = FrameKind::MOVABLE.into_iter().map(count).sum();
            let fixed = frames - count(FrameKind::Free) - drained - can_move - unsettled;
            if count(FrameKind::Free) == frames {
                pages.free += 1;
            } else if fixed > 0 {
                pages.block(&counts, fixed);
            } else if unsettled > 0 {
                pages.unsettled += 1;
            } else if per_place == 1 && place[0].is_huge() || count(FrameKind::HugeTlb) == frames {
                pages.in_use += 1;
            } else {
                movable.push(can_move);
            }
        }
        pages.movable = movable.len() as u64;
        // Each place that is emptied takes a huge page of the free frames that are in none: those
        // inside of it, and one outside for each frame that moves.
        let room = free_frames - pages.free * frames;
        pages.after_compaction = pages.movable.min(room / frames);
        movable.sort_unstable();
        pages.frames_to_move = movable.iter().take(pages.after_compaction as usize).sum();
        pages
    }

    fn block(&mut self, counts: &[u64; FrameKind::COUNT], fixed: u64) {
        self.blocked += 1;
        for (limit, places) in &mut self.blocked_by_at_most {
            *places += u64::from(fixed <= *limit);
        }
        for kind in FrameKind::ALL {
            let frames = counts[usize::from(kind.code())];
            if frames == 0 || kind.is_free(UnknownFrames::Free) || kind.is_movable() {
                continue;
            }
            let blocker = &mut self.blockers[usize::from(kind.code())];
            blocker.places += 1;
            blocker.alone += u64::from(frames == fixed);
            blocker.frames += frames;
        }
    }
}
