//! A zone under one of the green memory manager's allocators, and a sequence of
//! single frames taken from it: the same in a timed run and in a counted child.

use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::bank::{AdaptiveBuddy, ArrayBuddy, BankLayout, ListBuddy};
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{ByteRange, LinuxZone, MemoryMap, Mobility, ZoneAllocator};

use crate::papers::green::allocator::{AllocatorName, FallbackTally, GreenZone, ZonePlace, linux};
use crate::source::memory::random;

/// The allocators that differ within a zone, the baseline first.
pub(crate) const MEASURED: [AllocatorName; 5] = [
    AllocatorName::Linux,
    AllocatorName::BankArray,
    AllocatorName::BankList,
    AllocatorName::Adaptive,
    AllocatorName::AdaptivePacked,
];

fn place<'a>(
    map: &'a MemoryMap<'a>,
    span: Extent,
    bank_frames: u64,
) -> Result<ZonePlace<'a>, String> {
    let banks = BankLayout::new(Pfn::new(0), bank_frames, ORDER_MAX);
    Ok(ZonePlace { map, span, banks: banks.map_err(|error| error.to_string())? })
}

/// A zone of the frames of `map` in `span`, all of them free.
pub(crate) fn zone(
    name: AllocatorName,
    map: &MemoryMap<'_>,
    span: Extent,
    bank_frames: u64,
) -> Result<Box<dyn ZoneAllocator>, String> {
    use AllocatorName as Name;
    let place = place(map, span, bank_frames)?;
    Ok(match name {
        Name::Linux | Name::LinuxMovable => Box::new(linux(&place)?),
        Name::BankArray => Box::new(ArrayBuddy::build(&place, name)?),
        Name::BankList => Box::new(ListBuddy::build(&place, name)?),
        Name::Adaptive | Name::AdaptivePacked => Box::new(AdaptiveBuddy::build(&place, name)?),
    })
}

/// Words that such a zone stores its state in, beside its struct.
pub(crate) fn storage_words(
    name: AllocatorName,
    map: &MemoryMap<'_>,
    span: Extent,
    bank_frames: u64,
) -> Result<usize, String> {
    use AllocatorName as Name;
    let place = place(map, span, bank_frames)?;
    match name {
        Name::Linux | Name::LinuxMovable => {
            <LinuxZone<_, FallbackTally> as GreenZone>::storage_words(&place, name)
        }
        Name::BankArray => <ArrayBuddy<_> as GreenZone>::storage_words(&place, name),
        Name::BankList => <ListBuddy<_> as GreenZone>::storage_words(&place, name),
        Name::Adaptive | Name::AdaptivePacked => {
            <AdaptiveBuddy<_> as GreenZone>::storage_words(&place, name)
        }
    }
}

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
}

impl Sequence {
    pub(crate) fn mobility(&self) -> Mobility {
        if self.movable { Mobility::Movable } else { Mobility::Unmovable }
    }

    /// Whether nothing was ever taken from the zone.
    pub(crate) fn is_whole(&self) -> bool {
        self.free_share >= 1.0
    }

    /// How many frames it takes.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Which frames are given back to a scattered zone, in this order. Nothing
    /// for one of which nothing was taken.
    pub(crate) fn given_back(&self) -> Vec<u32> {
        if self.is_whole() {
            return Vec::new();
        }
        let mut frames: Vec<u32> = (0..self.frames as u32).collect();
        let count = (self.frames as f64 * self.free_share) as usize;
        let (chosen, _) = frames.partial_shuffle(&mut random(self.seed, 0), count);
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
            for frame in self.given_back() {
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
            };
            let mut expected: Vec<u64> = sequence.given_back().into_iter().map(u64::from).collect();
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
