//! The places where huge pages could be: how many can be had at once, after moves, and never.

use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::Layout;
use swath_frame::machine::UnitState;

/// The aligned blocks of one order that are memory as a whole, by what stands in them.
///
/// `places` is the sum of `free`, `movable` and `blocked`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Places {
    /// Frames of a place.
    pub frames: u64,
    /// Places in all.
    pub places: u64,
    /// Places that are free, in a zone, in per-CPU lists or at rest.
    pub free: u64,
    /// Places with frames in use, all of which can be moved.
    pub movable: u64,
    /// Places with a frame that cannot be moved.
    pub blocked: u64,
    /// The fewest frames that have to be moved for one more free place; `None` if no place is
    /// movable, or the other free frames are too few.
    pub next_moves: Option<u64>,
}

impl Places {
    /// Counts the places of an order, of which `state` tells the use. O(frames / 64).
    pub(crate) fn of(layout: &Layout, order: Order, state: impl Fn(Extent) -> UnitState) -> Self {
        let frames = order.frames();
        let mut found = Self { frames, ..Self::default() };
        let (mut fewest, mut free_frames) = (None, 0);
        for zone in layout.zones() {
            let end = zone.span.end().raw();
            free_frames += state(zone.span).free;
            let mut start = zone.span.start.raw().next_multiple_of(frames);
            while start + frames <= end {
                let state = state(Extent::new(Pfn::new(start), frames));
                start += frames;
                if state.present < frames {
                    continue;
                }
                found.places += 1;
                if state.free == frames {
                    found.free += 1;
                } else if state.unmovable > 0 {
                    found.blocked += 1;
                } else {
                    found.movable += 1;
                    fewest =
                        Some(fewest.map_or(state.movable, |least: u64| least.min(state.movable)));
                }
            }
        }
        // The place becomes free by as many free frames of others as it has in use; none of a free place.
        found.next_moves = fewest.filter(|_| free_frames - found.free * frames >= frames);
        found
    }

    /// Of the free places for which so many free frames have room, the share that there is; `None` if they have
    /// room for none.
    pub fn share_of(&self, free_frames: u64) -> Option<f64> {
        let most = free_frames / self.frames.max(1);
        (most > 0).then(|| self.free as f64 / most as f64)
    }
}
