//! The choice of allocations of a long sequence that are stepped, and the
//! estimate of all others from them.
//!
//! A sequence of millions of allocations runs in a tenth of a second and would
//! take hours to step. But most of its allocations are alike: in a zone of which
//! nothing was taken before, the path that one takes follows from how its frame
//! lies in the blocks and words around it, and from whether it comes from
//! another bank than the one before. So a first run at full speed puts each
//! allocation into a **class** by these and counts the classes; then some of
//! each class are stepped. The average is that of the classes by their size. On
//! scattered frames only a bank's change tells, and more are stepped.
//!
//! The members that are stepped stand at the middles of equal stretches of the
//! class, so a cost that grows along the way (a search over more and more banks)
//! is averaged rightly. For the worst there are more: classes with few members
//! are stepped whole (bank changes are among them), of the others the last
//! member, and the allocations that took longest, whatever their class: time is
//! taken in several runs of the same sequence, and the smallest for each
//! allocation counts, which leaves out interrupts.

use serde::{Deserialize, Serialize};

/// A bank's change, as a bit of a class.
const BANK_CHANGED: u16 = 1;
/// Frames are told apart up to this alignment: Linux's largest order.
const ALIGNED_MAX: u32 = 10;
/// And by how the aligned block from them on ends, up to a word of 64 frames and
/// the next.
const ENDS_MAX: u32 = 7;
/// Classes of a segment.
const CLASSES: u16 = 256;

/// The allocations of a sequence by class. A **segment** is what lies between
/// two points of the x axis; there are at most 255.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classes {
    by_alignment: bool,
    class: Vec<u16>,
    /// Ends of the segments.
    ends: Vec<usize>,
    bank: Option<u64>,
}

/// The sizes of the classes, which is all that an estimate needs of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClassSizes {
    sizes: Vec<u64>,
    /// Ends of the segments.
    ends: Vec<usize>,
}

/// An allocation that is stepped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Its number in the sequence, from 0.
    pub index: u32,
    /// Its class.
    class: u16,
    /// True if it stands for its class in the average.
    pub average: bool,
}

/// The estimated cost of the allocations up to a point.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostEstimate {
    /// The average over all of them.
    pub average: f64,
    /// The largest that was stepped.
    pub worst: u64,
    /// The average's standard error, if half of what lies between a class's
    /// stepped members is its deviation.
    pub error: f64,
}

impl Classes {
    /// No allocations yet. They are told apart by their frames only where these
    /// say something of the path, which is not so on scattered frames.
    pub fn new(by_alignment: bool) -> Self {
        Self { by_alignment, class: Vec::new(), ends: Vec::new(), bank: None }
    }

    /// The next allocation: its frame, and the bank of it.
    pub fn push(&mut self, frame: u64, bank: u64) {
        let changed = if self.bank.replace(bank) == Some(bank) { 0 } else { BANK_CHANGED };
        let mut kind = 0;
        if self.by_alignment {
            let aligned = frame.trailing_zeros().min(ALIGNED_MAX);
            let ends = (frame + (1 << aligned)).trailing_zeros().min(ENDS_MAX);
            kind = (aligned << 3 | ends) as u16;
        }
        let segment = self.ends.len() as u16;
        self.class.push(segment * CLASSES + kind * 2 + changed);
    }

    /// Ends a segment, if it is not empty.
    pub fn end_segment(&mut self) {
        if self.class.len() > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(self.class.len());
        }
    }

    /// Number of allocations.
    pub fn len(&self) -> usize {
        self.class.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.class.is_empty()
    }

    /// The sizes of the classes. O(n) for n allocations.
    pub fn sizes(&self) -> ClassSizes {
        ClassSizes { sizes: self.counts(), ends: self.ends.clone() }
    }

    fn counts(&self) -> Vec<u64> {
        let mut sizes = vec![0; (self.ends.len() + 1) * CLASSES as usize];
        for &class in &self.class {
            sizes[class as usize] += 1;
        }
        sizes
    }

    /// The allocations to step, ascending: of each class `samples`, or all if
    /// there are no more than `rare`, and its last; and the `slowest` of each
    /// segment by `times`, one for each allocation. O(n log n) for n allocations.
    pub fn choose(&self, samples: u64, rare: u64, slowest: usize, times: &[u32]) -> Vec<Sample> {
        let sizes = self.counts();
        let mut seen = vec![0; sizes.len()];
        let mut chosen = Vec::new();
        for (index, &class) in self.class.iter().enumerate() {
            let (size, seen) = (sizes[class as usize], &mut seen[class as usize]);
            let all = size <= rare.max(samples);
            // The middle of stretch j of m is member (2j + 1)·size / 2m.
            let stretch = *seen * samples / size;
            let middle = (2 * stretch + 1) * size / (2 * samples) == *seen;
            if all || middle || *seen == size - 1 {
                chosen.push(Sample { index: index as u32, class, average: all || middle });
            }
            *seen += 1;
        }
        let mut start = 0;
        for &end in &self.ends {
            let mut by_time: Vec<u32> = (start as u32..end.min(times.len()) as u32).collect();
            by_time.sort_by_key(|&index| std::cmp::Reverse(times[index as usize]));
            by_time.truncate(slowest);
            let sample =
                |index: u32| Sample { index, class: self.class[index as usize], average: false };
            chosen.extend(by_time.into_iter().map(sample));
            start = end;
        }
        // Of two with one index the one that counts in the average stays.
        chosen.sort_by_key(|sample| (sample.index, !sample.average));
        chosen.dedup_by_key(|sample| sample.index);
        chosen
    }
}

impl ClassSizes {
    /// The cost of all allocations by those that were stepped, at the end of each segment.
    /// `stepped` are those that were chosen, with their instructions. O(c + s)
    /// for c classes and s stepped.
    pub fn estimate(&self, stepped: &[(Sample, u64)]) -> Vec<CostEstimate> {
        let Self { sizes, .. } = self;
        let mut found = vec![Stepped::default(); sizes.len()];
        let mut worst = vec![0; self.ends.len()];
        for &(sample, instructions) in stepped {
            let class = sample.class as usize;
            found[class].add(instructions, sample.average);
            if let Some(worst) = worst.get_mut(class / CLASSES as usize) {
                *worst = instructions.max(*worst);
            }
        }
        let (mut total, mut spread, mut worst_so_far) = (0.0, 0.0, 0);
        let mut estimates = Vec::new();
        for (segment, &end) in self.ends.iter().enumerate() {
            let classes = segment * CLASSES as usize..(segment + 1) * CLASSES as usize;
            for (size, found) in sizes[classes.clone()].iter().zip(&found[classes]) {
                if found.count > 0 {
                    let mean = found.sum as f64 / found.count as f64;
                    total += *size as f64 * mean;
                    if found.count < *size {
                        let deviation = (found.most - found.least) as f64 / 2.0;
                        spread += (*size as f64 * deviation).powi(2) / found.count as f64;
                    }
                }
            }
            worst_so_far = worst[segment].max(worst_so_far);
            estimates.push(CostEstimate {
                average: total / end as f64,
                worst: worst_so_far,
                error: spread.sqrt() / end as f64,
            });
        }
        estimates
    }
}

/// The stepped members of a class.
#[derive(Clone, Copy, Default)]
struct Stepped {
    /// Those of the average.
    count: u64,
    sum: u64,
    /// Of all.
    least: u64,
    most: u64,
    any: bool,
}

impl Stepped {
    fn add(&mut self, instructions: u64, average: bool) {
        self.least = if self.any { self.least.min(instructions) } else { instructions };
        self.most = self.most.max(instructions);
        self.any = true;
        if average {
            self.count += 1;
            self.sum += instructions;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANK: u64 = 4096;

    fn ascending(ends: &[u64]) -> Classes {
        let mut classes = Classes::new(true);
        for frame in 0..*ends.last().unwrap() {
            classes.push(frame, frame / BANK);
            if ends.contains(&(frame + 1)) {
                classes.end_segment();
            }
        }
        classes
    }

    /// Every allocation counted, against those that were chosen.
    fn compare(classes: &Classes, ends: &[u64], cost: impl Fn(u64) -> u64, slack: f64) {
        let chosen = classes.choose(4, 32, 4, &vec![0; classes.len()]);
        assert!(chosen.len() < classes.len() / 4, "{}", chosen.len());
        let stepped: Vec<(Sample, u64)> =
            chosen.iter().map(|&sample| (sample, cost(sample.index.into()))).collect();
        let estimates = classes.sizes().estimate(&stepped);
        assert_eq!(estimates.len(), ends.len());
        for (estimate, &end) in estimates.iter().zip(ends) {
            let all = (0..end).map(&cost);
            let average = all.clone().sum::<u64>() as f64 / end as f64;
            assert_eq!(estimate.worst, all.max().unwrap());
            let off = (estimate.average - average).abs();
            assert!(off <= slack * average, "{estimate:?}, not {average}");
            assert!(off <= 2.0 * estimate.error + 1e-9, "{estimate:?}, not {average}");
        }
    }

    #[test]
    fn a_cost_by_alignment_is_found_exactly() {
        let ends = [1000, 10_000, 40_960];
        let classes = ascending(&ends);
        // A block is split down from its order; a new bank costs more.
        let cost = |frame: u64| {
            let split = u64::from(frame.trailing_zeros().min(10));
            20 + 13 * split + if frame.is_multiple_of(BANK) { 500 } else { 0 }
        };
        compare(&classes, &ends, cost, 1e-12);
    }

    #[test]
    fn a_cost_that_grows_with_the_banks_is_averaged() {
        let ends = [10_000, 100_000];
        let classes = ascending(&ends);
        compare(&classes, &ends, |frame| 40 + 5 * (frame / BANK), 0.02);
    }

    #[test]
    fn the_slowest_are_stepped_whatever_their_class() {
        let classes = ascending(&[10_000]);
        let mut times = vec![10; 10_000];
        times[4321] = 99;
        let chosen = classes.choose(2, 2, 1, &times);
        assert!(chosen.iter().any(|sample| sample.index == 4321 && !sample.average));
        assert!(chosen.is_sorted_by(|a, b| a.index < b.index));
    }

    #[test]
    fn every_member_of_a_small_sequence_counts_once() {
        let mut classes = Classes::new(true);
        assert!(classes.is_empty());
        for frame in [7, 7, 8, 0] {
            classes.push(frame, 0);
        }
        classes.end_segment();
        classes.end_segment();
        let chosen = classes.choose(4, 4, 4, &[1, 2, 3, 4]);
        assert_eq!(chosen.len(), 4);
        assert!(chosen.iter().all(|sample| sample.average));
        let stepped: Vec<_> = chosen.into_iter().zip([10, 20, 30, 40]).collect();
        let expected = CostEstimate { average: 25.0, worst: 40, error: 0.0 };
        assert_eq!(classes.sizes().estimate(&stepped), [expected]);
    }
}
