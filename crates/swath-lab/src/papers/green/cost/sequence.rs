//! A sequence of single frames taken from a zone: the same in a timed run and in
//! a counted child.

use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::{ByteRange, MemoryMap, Mobility, ZoneAllocator};

use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::zone::zone;
use crate::source::memory::random;

/// Single frames taken one after the other, without a free between.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Sequence {
    pub(crate) frames: u64,
    pub(crate) bank_frames: u64,
    /// The share of frames that are free, at random places; 1 is a zone of
    /// which nothing was ever taken.
    pub(crate) free_share: f64,
    pub(crate) movable: bool,
    /// The points of the x axis: how many are taken. Never more than are free.
    pub(crate) ends: Vec<u64>,
    pub(crate) seed: u64,
    /// The number of the run, from 0: its random numbers differ from the others'.
    pub(crate) repeat: u64,
}

impl Sequence {
    pub(crate) fn mobility(&self) -> Mobility {
        if self.movable { Mobility::Movable } else { Mobility::Unmovable }
    }

    /// Returns true if nothing was ever taken from the zone.
    pub(crate) fn is_whole(&self) -> bool {
        self.free_share >= 1.0
    }

    /// Number of frames that it takes.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Frames that are freed in a scattered zone, in this order; none for one
    /// of which nothing was taken.
    pub(crate) fn freed(&self) -> Vec<u32> {
        if self.is_whole() {
            return Vec::new();
        }
        let mut frames: Vec<u32> = (0..self.frames as u32).collect();
        let count = (self.frames as f64 * self.free_share) as usize;
        let (chosen, _) = frames.partial_shuffle(&mut random(self.seed, self.repeat), count);
        chosen.to_vec()
    }

    /// The zone as the sequence finds it.
    pub(crate) fn zone(&self, name: AllocatorName) -> Result<Box<dyn ZoneAllocator>, String> {
        let span = Extent::new(Pfn::new(0), self.frames);
        let mut areas = [Extent::default(); 1];
        let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas);
        let map = map.map_err(|error| error.to_string())?;
        let mut zone = zone(name, &map, span, self.bank_frames)?;
        if !self.is_whole() {
            while zone.allocate(Order::BASE, Mobility::Movable).is_some() {}
            for frame in self.freed() {
                let given = zone.free(Pfn::new(frame.into()), Order::BASE);
                given.map_err(|error| error.to_string())?;
            }
        }
        Ok(zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::green::machine::zone::MEASURED;

    /// Every allocator hands out every frame once, and those that were given
    /// back are the ones.
    #[test]
    fn a_sequence_takes_what_is_free() {
        for free_share in [1.0, 0.3] {
            let mut sequence = Sequence {
                frames: 8192,
                bank_frames: 1024,
                free_share,
                movable: false,
                ends: Vec::new(),
                seed: 1,
                repeat: 0,
            };
            let mut expected: Vec<u64> = sequence.freed().into_iter().map(u64::from).collect();
            if free_share == 1.0 {
                expected = (0..8192).collect();
            }
            expected.sort_unstable();
            for movable in [true, false] {
                sequence.movable = movable;
                for name in MEASURED {
                    let mut zone = sequence.zone(name).unwrap();
                    zone.check().unwrap();
                    assert_eq!(zone.free_frames(), expected.len() as u64);
                    let take = || zone.allocate(Order::BASE, sequence.mobility());
                    let mut taken: Vec<u64> = std::iter::from_fn(take).map(Pfn::raw).collect();
                    taken.sort_unstable();
                    assert_eq!(taken, expected, "{name:?}");
                }
            }
        }
    }
}
