//! The shape of free memory: how much is free, and in runs of which lengths.

use std::collections::BTreeSet;

use rand::RngExt;
use swath_arch::{Extent, Pfn};
use swath_trace::histogram::Histogram;
use swath_trace::machine::RamRange;

use crate::papers::green::machine::age::{AgeError, AgeTarget};
use crate::papers::green::machine::config::MachineName;

/// Frames that stay held at the ends of an extent.
const ENDS: u64 = 2;

/// The share of memory that is free, and the part of that in runs of each length.
///
/// Invariant: `parts` sums to 1, or is empty if nothing is free.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Shape {
    /// Of all frames, the share that is free.
    pub free: f64,
    /// Of the free frames, the share in runs of 2^k to 2^(k+1) - 1 frames, by k.
    pub parts: Vec<f64>,
}

impl Shape {
    /// The shape of the free runs of so many frames. O(bins).
    pub fn of(total_frames: u64, free_runs: &Histogram) -> Self {
        let sum = free_runs.sum;
        let part = |frames: u64| frames as f64 / sum.max(1) as f64;
        let parts = free_runs.bins.iter().map(|bin| part(bin.sum)).collect();
        let free = sum as f64 / total_frames.max(1) as f64;
        Self { free, parts: if sum == 0 { Vec::new() } else { parts } }
    }

    /// The shape of a stated fragmentation, drawn from `seed`. O(frames) of a small machine.
    ///
    /// # Errors
    /// The target's shares contradict each other.
    pub fn of_target(target: AgeTarget, seed: u64) -> Result<Self, AgeError> {
        let start = target.start(MachineName::FourGib, seed)?;
        let areas = start
            .ranges()
            .iter()
            .map(|range| RamRange { start: range.start, len_bytes: range.len_bytes });
        let runs = areas
            .map(RamRange::frames)
            .flat_map(|range| start.free(range))
            .map(|extent| extent.count);
        Ok(Self::of(start.frames(), &runs.collect()))
    }

    /// Of the free frames, the share that lies in runs of another length than here: half the sum of
    /// the parts' differences, from 0 to 1. O(bins).
    pub fn distance(&self, other: &Self) -> f64 {
        let part = |of: &Self, k: usize| of.parts.get(k).copied().unwrap_or(0.0);
        let bins = self.parts.len().max(other.parts.len());
        (0..bins).map(|k| (part(self, k) - part(other, k)).abs()).sum::<f64>() / 2.0
    }

    /// The shape, as near as so many free frames can have it: what is less than one run of its length
    /// counts to the next shorter ones. O(bins).
    pub fn fitted(&self, free: u64) -> Self {
        let mut parts = self.parts.clone();
        for k in (1..parts.len()).rev() {
            if parts[k] * (free as f64) < (1_u64 << k.min(63)) as f64 {
                parts[k - 1] += std::mem::take(&mut parts[k]);
            }
        }
        Self { free: self.free, parts }
    }

    /// The frames in each bin where so many are free.
    fn frames(&self, free: u64) -> impl Iterator<Item = u64> {
        self.parts.iter().map(move |part| (part * free as f64).round() as u64)
    }
}

/// Chooses which of the frames that are held must become free, so that the memory has the shape:
/// extents within the held runs, with a held frame at each end of each, so that they are as long
/// as they should be. The longest come first, each into a random run with room for it; where there
/// is none, the longest that can be.
///
/// `free_frames` are to be free, and at most `free_frames_max`, as runs of other lengths cannot be taken
/// back; `spared` frames of the longest runs remain as they are; `held` are runs of frames, each as long as it can be; `free` the free runs that there are now.
/// O(n × log n) for n runs and extents.
pub(super) fn choose(
    target: &Shape,
    free_frames: u64,
    free_frames_max: u64,
    free: &Histogram,
    held: &[Extent],
    spared: u64,
    random: &mut impl RngExt,
) -> Vec<Extent> {
    let mut left = free_frames_max.saturating_sub(free.sum);
    let mut lengths = Vec::new();
    let now = |k: usize| free.bins.get(k).map_or(0, |bin| bin.sum);
    let mut lacks: Vec<(usize, u64)> = target
        .frames(free_frames)
        .enumerate()
        .map(|(k, want)| (k, want.saturating_sub(now(k))))
        .collect();
    // What is too much elsewhere is missing in all: the long ones first.
    lacks.reverse();
    for (k, lack) in lacks {
        let mut lack = lack.min(left);
        let (least, most) = (1 << k, (2 << k) - 1);
        while lack >= least {
            let len = random.random_range(least..=most.min(lack));
            // No rest that is too short for the bin.
            let len = if lack - len < least { lack.min(most) } else { len };
            lengths.push(len);
            lack -= len;
            left -= len;
        }
    }
    let kept = held.iter().filter(|run| run.count > ENDS);
    let mut runs: BTreeSet<(u64, Pfn)> = kept.map(|run| (run.count, run.start)).collect();
    // Where long runs can still be made when they are missing later.
    let mut spared = spared;
    while spared > ENDS {
        let Some((count, start)) = runs.pop_last() else { break };
        let part = spared.min(count);
        spared -= part;
        if count - part > ENDS {
            runs.insert((count - part, start));
        }
    }
    let mut chosen = Vec::new();
    for len in lengths {
        let Some(&(longest, _)) = runs.last() else { break };
        let len = len.min(longest - ENDS);
        // Not always the shortest run with room, so that extents do not lie side by side.
        let room = random.random_range(len + ENDS..=longest);
        let Some(&(count, start)) = runs.range((room, Pfn::new(0))..).next() else { break };
        runs.remove(&(count, start));
        let offset = random.random_range(1..count - len);
        chosen.push(Extent::new(start + offset, len));
        let rest = [(offset, start), (count - offset - len, start + offset + len)];
        runs.extend(rest.into_iter().filter(|(count, _)| *count > ENDS));
    }
    chosen.sort_unstable_by_key(|extent| extent.start);
    chosen
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// The runs of free frames where those that are chosen are free, beside those before.
    fn after(free: &[u64], chosen: &[Extent]) -> Histogram {
        free.iter().copied().chain(chosen.iter().map(|extent| extent.count)).collect()
    }

    #[test]
    fn what_is_chosen_has_the_shape() {
        for seed in 1..=40 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            // A few long runs and many short ones, as a kernel hands memory out.
            let (mut held, mut at) = (Vec::new(), 100);
            for _ in 0..400 {
                let count = 1 << random.random_range(0..11);
                held.push(Extent::new(Pfn::new(at), count));
                at += count + random.random_range(1..50);
            }
            held.push(Extent::new(Pfn::new(at), 200_000));
            let total: u64 = held.iter().map(|run| run.count).sum();
            let parts: Vec<f64> = (0..11).map(|_| random.random::<f64>()).collect();
            let sum: f64 = parts.iter().sum();
            let parts = parts.iter().map(|part| part / sum).collect();
            let target = Shape { free: 0.3, parts };
            let free: Vec<u64> = (0..200).map(|_| random.random_range(1..4)).collect();
            let wanted = total * 3 / 10;
            let now = free.iter().copied().collect();
            let chosen = choose(&target, wanted, wanted, &now, &held, 0, &mut random);
            // Each lies within a held run with a held frame at either end, and apart from the others.
            let mut runs = held.iter();
            let mut run = runs.next().unwrap();
            let mut end = Pfn::new(0);
            for extent in &chosen {
                while run.end() <= extent.start {
                    run = runs.next().unwrap();
                }
                assert!(extent.start > run.start && extent.end() < run.end(), "seed {seed}");
                assert!(extent.start > end, "seed {seed}: extents touch");
                assert!(extent.count > 0);
                end = extent.end();
            }
            let shape = Shape::of(total, &after(&free, &chosen));
            assert!(target.distance(&shape) < 0.02, "seed {seed}: {}", target.distance(&shape));
            assert!((shape.free - 0.3).abs() < 0.01, "seed {seed}: {}", shape.free);
        }
    }

    #[test]
    fn where_no_run_is_long_enough_the_longest_is_cut() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let held: Vec<Extent> = (0..100).map(|i| Extent::new(Pfn::new(i * 20), 16)).collect();
        let mut parts = vec![0.0; 10];
        parts[9] = 1.0;
        let target = Shape { free: 0.5, parts };
        let chosen = choose(&target, 1024, 1024, &Histogram::default(), &held, 0, &mut random);
        assert!(chosen.iter().all(|extent| extent.count <= 14) && !chosen.is_empty());
        // Nothing is held, or nothing is wanted.
        assert!(choose(&target, 1024, 1024, &Histogram::default(), &[], 0, &mut random).is_empty());
        let enough = [2000].into_iter().collect();
        assert!(choose(&target, 1024, 1024, &enough, &held, 0, &mut random).is_empty());
    }

    #[test]
    fn a_small_machine_has_no_long_runs() {
        let target = Shape { free: 0.5, parts: vec![0.5, 0.0, 0.0, 0.0, 0.25, 0.25] };
        assert_eq!(target.fitted(128), target);
        assert_eq!(target.fitted(100).parts, [0.5, 0.0, 0.0, 0.0, 0.5, 0.0]);
        assert_eq!(target.fitted(20).parts, [0.5, 0.0, 0.0, 0.5, 0.0, 0.0]);
        assert_eq!(target.fitted(2).parts, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn distances_are_shares() {
        let shape = |runs: &[u64]| Shape::of(1000, &runs.iter().copied().collect());
        assert!(shape(&[1, 1, 8]).distance(&shape(&[8, 1, 1])) < 1e-12);
        assert!((shape(&[1, 1]).distance(&shape(&[8])) - 1.0).abs() < 1e-12);
        assert!((shape(&[1, 1, 2]).distance(&shape(&[2, 2])) - 0.5).abs() < 1e-12);
        assert_eq!(shape(&[]), Shape { free: 0.0, parts: Vec::new() });
    }
}
