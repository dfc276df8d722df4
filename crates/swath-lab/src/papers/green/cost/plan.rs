//! The plan of the study of costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::green::cost::sequence::Sequence;
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::claim::Conditions;
use crate::study::plan::{Head, Refused, require};

/// Frames of a bank.
pub type BankFrames = Bounded<1024, { 1 << 20 }>;

/// Frames of a zone.
pub type ZoneFrames = Bounded<1024, { 1 << 24 }>;

/// Single frames taken one after the other from a zone, by every allocator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of times that everything is measured, each with other random numbers.
    pub repeats: Forms<Repeats>,
    /// Frames of the zone.
    pub frames: ZoneFrames,
    /// Frames of a bank.
    pub bank_frames: BankFrames,
    /// Numbers of frames that are taken in all, one point of the x axis each.
    pub taken_frames: Forms<Ascending<ZoneTaken>>,
    /// Numbers of allocations that are measured.
    pub sampling: CostSampling,
    /// Memory with some frames free here and there.
    pub scattered: ScatteredPlan,
}

crate::plan!(CostPlan, CostPlan::check);

/// Frames taken from a zone.
pub type ZoneTaken = Bounded<1, { 1 << 24 }>;

/// Numbers of allocations that are measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostSampling {
    /// Those that are stepped of each class of alike ones for the average.
    pub class_samples: Forms<Bounded<1, 10_000>>,
    /// The same on scattered frames, where few classes are told apart.
    pub scattered_samples: Forms<Bounded<1, 10_000>>,
    /// The largest class of which all are stepped.
    pub rare: Forms<Bounded<0, 10_000>>,
    /// The slowest allocations that are stepped besides, for the worst.
    pub slowest: Forms<Bounded<0, 10_000>>,
    /// Timed runs, of which medians and minima count.
    pub runs: Forms<Bounded<1, 10_000>>,
}

/// A zone that was taken whole by movable requests, and of which random frames
/// have been freed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScatteredPlan {
    /// The share of frames that have been freed, 0.001 to 0.9.
    pub free_share: Share,
    /// Frames of a bank.
    pub bank_frames: BankFrames,
    /// The numbers of banks, one point of the x axis each.
    pub banks: Forms<Ascending<Bounded<1, 16_384>>>,
}

impl CostPlan {
    fn check(&self) -> Result<(), Refused> {
        let (frames, bank) = (self.frames.get(), self.bank_frames.get());
        require(bank.is_multiple_of(1024), "bank_frames", || {
            format!("{bank} is not a multiple of 1024")
        })?;
        require(frames.is_multiple_of(bank), "frames", || {
            format!("{frames} frames are no whole banks of {bank}")
        })?;
        for taken in [&self.taken_frames.full, &self.taken_frames.quick] {
            // The largest of an ascending list stands last.
            let last = taken[taken.len() - 1].get();
            require(taken.len() <= 16, "taken_frames", || "more than 16 points".to_owned())?;
            require(last <= frames, "taken_frames", || format!("{last} of {frames} frames"))?;
        }
        let scattered = &self.scattered;
        let (share, bank) = (scattered.free_share.get(), scattered.bank_frames.get());
        require((0.001..=0.9).contains(&share), "scattered.free_share", || {
            format!("{share} is not between 0.001 and 0.9")
        })?;
        require(bank.is_multiple_of(1024), "scattered.bank_frames", || {
            format!("{bank} is not a multiple of 1024")
        })?;
        for banks in [&scattered.banks.full, &scattered.banks.quick] {
            let last = banks[banks.len() - 1].get();
            require(last * bank <= 1 << 24, "scattered.banks", || {
                format!("{last} banks of {bank} frames are more than 2^24 frames")
            })?;
        }
        Ok(())
    }

    /// The zone of Table III as conditions: 16 GiB in banks of 256 MiB.
    pub(crate) fn conditions(&self) -> Conditions {
        Conditions::new().same("frames of the zone", 1 << 22, self.frames.get()).same(
            "frames of a bank",
            1 << 16,
            self.bank_frames.get(),
        )
    }

    /// The sequences of a repeat: the whole zone, and scattered ones by banks.
    pub(crate) fn sequences(&self, quick: bool, repeat: u64) -> Vec<Sequence> {
        let seed = self.about.seed;
        let whole = Sequence {
            frames: self.frames.get(),
            bank_frames: self.bank_frames.get(),
            free_share: 1.0,
            movable: true,
            ends: self.taken_frames.of(quick).iter().map(|end| end.get()).collect(),
            seed,
            repeat,
        };
        let scattered = self.scattered.banks.of(quick).iter().map(|banks| {
            let bank_frames = self.scattered.bank_frames.get();
            let mut sequence = Sequence {
                frames: banks.get() * bank_frames,
                bank_frames,
                free_share: self.scattered.free_share.get(),
                movable: false,
                ends: Vec::new(),
                seed,
                repeat,
            };
            sequence.ends = vec![sequence.freed().len() as u64];
            sequence
        });
        [whole].into_iter().chain(scattered).collect()
    }
}
