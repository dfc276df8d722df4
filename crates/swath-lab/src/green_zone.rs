//! A zone under one of the green memory manager's allocators, and a sequence of
//! single frames taken from it: the same in a timed run and in a counted child.

use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::bank_buddy::{Array, BankBuddy, List, Placement, Policy, Pools};
use swath_frame::banks::{Banks, BanksError};
use swath_frame::linux::{LinuxZone, ORDER_MAX, PAGEBLOCK_ORDER};
use swath_frame::{ByteRange, MemoryMap, Mobility, ZoneAllocator};

use crate::memory::random;

/// An allocator that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Design {
    /// Linux's: the baseline.
    Buddy,
    /// Section IV-A.
    Array,
    /// Section IV-B, the bank that served last first.
    List,
    /// Section IV-D with the paper's order of free blocks.
    Paper,
    /// Section IV-D, fullest banks first.
    Packed,
}

impl Design {
    /// The baseline is the first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Buddy, Self::Array, Self::List, Self::Paper, Self::Packed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Buddy => "Buddy",
            Self::Array => "Bank-Array",
            Self::List => "Bank-List",
            Self::Paper => "Adaptive-Buddy",
            Self::Packed => "Adaptive-Buddy, packed",
        }
    }

    /// A zone of the frames of `map` in `span`, all of them free.
    pub(crate) fn zone(
        self,
        map: &MemoryMap<'_>,
        span: Extent,
        bank_frames: u64,
    ) -> Result<Box<dyn ZoneAllocator>, String> {
        let pools = |policy| bank_zone(map, span, bank_frames, Pools::new(policy));
        match self {
            Self::Buddy => {
                let storage = touched(LinuxZone::<Vec<u64>>::storage_words(span));
                let zone = LinuxZone::new(map, span, PAGEBLOCK_ORDER, storage);
                Ok(Box::new(zone.map_err(|error| error.to_string())?))
            }
            Self::Array => bank_zone(map, span, bank_frames, Array),
            Self::List => bank_zone(map, span, bank_frames, List::new(true)),
            Self::Paper => pools(Policy::PAPER),
            Self::Packed => pools(Policy::PACKED),
        }
    }

    /// Words that such a zone stores its state in, beside its struct.
    pub(crate) fn storage_words(
        self,
        map: &MemoryMap<'_>,
        span: Extent,
        bank_frames: u64,
    ) -> Result<usize, String> {
        let words = match self {
            Self::Buddy => Ok(LinuxZone::<Vec<u64>>::storage_words(span)),
            Self::Array => bank_words(map, span, bank_frames, &Array),
            Self::List => bank_words(map, span, bank_frames, &List::new(true)),
            Self::Paper => bank_words(map, span, bank_frames, &Pools::new(Policy::PAPER)),
            Self::Packed => bank_words(map, span, bank_frames, &Pools::new(Policy::PACKED)),
        };
        words.map_err(|error| error.to_string())
    }
}

/// Storage that is in memory already: where it were not, page faults would be
/// part of an allocation's time.
fn touched(words: usize) -> Vec<u64> {
    vec![u64::MAX; words]
}

/// Words of storage of such a zone.
fn bank_words<P: Placement>(
    map: &MemoryMap<'_>,
    span: Extent,
    bank_frames: u64,
    rule: &P,
) -> Result<usize, BanksError> {
    let banks = Banks::new(Pfn::new(0), bank_frames, ORDER_MAX)?;
    BankBuddy::<Vec<u64>, P>::storage_words(map, span, banks, rule)
}

fn bank_zone<P: Placement + 'static>(
    map: &MemoryMap<'_>,
    span: Extent,
    bank_frames: u64,
    rule: P,
) -> Result<Box<dyn ZoneAllocator>, String> {
    let build = || {
        let banks = Banks::new(Pfn::new(0), bank_frames, ORDER_MAX)?;
        let words = bank_words(map, span, bank_frames, &rule)?;
        BankBuddy::new(map, span, banks, rule, touched(words))
    };
    Ok(Box::new(build().map_err(|error: BanksError| error.to_string())?))
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
    pub(crate) fn zone(&self, design: Design) -> Result<Box<dyn ZoneAllocator>, String> {
        let span = Extent::new(Pfn::new(0), self.frames);
        let mut areas = [Extent::default(); 1];
        let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas);
        let map = map.map_err(|error| error.to_string())?;
        let mut zone = design.zone(&map, span, self.bank_frames)?;
        if !self.is_whole() {
            while zone.take(Order::BASE, Mobility::Movable).is_some() {}
            for frame in self.given_back() {
                let given = zone.give(Pfn::new(frame.into()), Order::BASE);
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
                for design in Design::ALL {
                    let mut zone = sequence.zone(design).unwrap();
                    zone.check().unwrap();
                    assert_eq!(zone.free_frames(), expected.len() as u64);
                    let take = || zone.take(Order::BASE, sequence.mobility());
                    let mut taken: Vec<u64> = std::iter::from_fn(take).map(Pfn::raw).collect();
                    taken.sort_unstable();
                    assert_eq!(taken, expected, "{design:?}");
                }
            }
        }
    }
}
