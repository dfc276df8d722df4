//! The plans of the studies on what the green memory manager's allocators cost
//! and on how much of a program's memory is referenced at a time.

use serde::{Deserialize, Serialize};

use crate::study::old::check::{Checked, require};
use crate::study::old::plan::About;

/// Single frames taken one after the other from a zone, by every allocator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's claims are judged.
    pub claims: bool,
    /// Frames of the zone.
    pub frames: u64,
    /// Frames of a bank.
    pub bank_frames: u64,
    /// How many frames are taken in all, one point of the x axis each; ascending.
    pub taken_frames: Vec<u64>,
    /// Those of them that a quick run measures.
    pub taken_frames_quick: Vec<u64>,
    /// How many allocations are measured.
    pub sampling: CostSampling,
    /// The same in a quick run.
    pub sampling_quick: CostSampling,
    /// Memory with some frames free here and there.
    pub scattered: ScatteredPlan,
}

/// How many allocations are measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostSampling {
    /// Those that are stepped of each class of alike ones for the average.
    pub class_samples: u64,
    /// The same on scattered frames, where few classes are told apart.
    pub scattered_samples: u64,
    /// Of each class up to so many are all stepped.
    pub rare: u64,
    /// The slowest allocations that are stepped besides, for the worst.
    pub slowest: u64,
    /// Timed runs, of which medians and minima count.
    pub runs: usize,
}

/// A zone that was taken whole by movable requests, and of which random frames
/// have been given back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScatteredPlan {
    /// The share of frames that have been given back.
    pub free_share: f64,
    /// Frames of a bank.
    pub bank_frames: u64,
    /// The numbers of banks, one point of the x axis each.
    pub banks: Vec<u64>,
    /// Those of them that a quick run measures.
    pub banks_quick: Vec<u64>,
}

impl CostPlan {
    pub(crate) fn check(&self) -> Checked {
        check_bank("bank_frames", self.bank_frames)?;
        check_zone("frames", self.frames)?;
        require(self.frames.is_multiple_of(self.bank_frames), "frames", || {
            format!("{} frames are no whole banks of {}", self.frames, self.bank_frames)
        })?;
        for (key, taken) in
            [("taken_frames", &self.taken_frames), ("taken_frames_quick", &self.taken_frames_quick)]
        {
            require(!taken.is_empty() && taken.len() <= 16, key, || "not 1 to 16 points".into())?;
            require(taken[0] > 0 && taken.is_sorted_by(|a, b| a < b), key, || {
                "0, or not ascending".into()
            })?;
            let last = taken[taken.len() - 1];
            require(last <= self.frames, key, || format!("{last} of {} frames", self.frames))?;
        }
        for (table, sampling) in
            [("sampling", &self.sampling), ("sampling_quick", &self.sampling_quick)]
        {
            let CostSampling { class_samples, scattered_samples, rare, slowest, runs } = *sampling;
            for (key, value, least) in [
                ("class_samples", class_samples, 1),
                ("scattered_samples", scattered_samples, 1),
                ("rare", rare, 0),
                ("slowest", slowest, 0),
                ("runs", runs as u64, 1),
            ] {
                require((least..=10_000).contains(&value), &format!("{table}.{key}"), || {
                    format!("{value} is not between {least} and 10000")
                })?;
            }
        }
        let scattered = &self.scattered;
        let share = scattered.free_share;
        require((0.001..=0.9).contains(&share), "scattered.free_share", || {
            format!("{share} is not between 0.001 and 0.9")
        })?;
        check_bank("scattered.bank_frames", scattered.bank_frames)?;
        for (key, banks) in [
            ("scattered.banks", &scattered.banks),
            ("scattered.banks_quick", &scattered.banks_quick),
        ] {
            require(!banks.is_empty() && banks.len() <= 16, key, || "not 1 to 16 points".into())?;
            for &banks in banks {
                check_zone(key, banks.saturating_mul(scattered.bank_frames))?;
            }
        }
        Ok(())
    }
}

fn check_bank(key: &str, frames: u64) -> Checked {
    require((1024..=1 << 20).contains(&frames) && frames.is_multiple_of(1024), key, || {
        format!("{frames} is not a multiple of 1024 up to 2^20")
    })
}

fn check_zone(key: &str, frames: u64) -> Checked {
    require((1024..=1 << 24).contains(&frames), key, || {
        format!("{frames} frames are not between 1024 and 2^24")
    })
}

/// Pages that recorded programs reference in a window of each period.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkingSetPlan {
    /// Name, title, seed.
    pub about: About,
    /// Whether the paper's figures stand beside.
    pub claims: bool,
    /// Accesses of a period, for recordings that hold every access.
    pub period_accesses: u64,
    /// Accesses at the end of a period whose pages are counted.
    pub window_accesses: u64,
    /// How many shifted copies of a recording run at once, one point each.
    pub threads: Vec<u64>,
}

impl WorkingSetPlan {
    pub(crate) fn check(&self) -> Checked {
        require((1..1 << 40).contains(&self.window_accesses), "window_accesses", || {
            format!("{} is not between 1 and 2^40", self.window_accesses)
        })?;
        let period = self.period_accesses;
        require(self.window_accesses <= period && period < 1 << 40, "period_accesses", || {
            format!("{period} is less than a window or beyond 2^40")
        })?;
        let threads = &self.threads;
        require(!threads.is_empty() && threads.len() <= 16, "threads", || {
            "not 1 to 16 points".into()
        })?;
        require(threads.is_sorted_by(|a, b| a < b), "threads", || "not ascending".into())?;
        require(threads.iter().all(|n| (1..=1024).contains(n)), "threads", || {
            "not between 1 and 1024".into()
        })
    }
}
