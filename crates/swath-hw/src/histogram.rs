//! A histogram of lengths of time.

use alloc::vec::Vec;

use crate::clock::Cycle;

/// A count of occurrences for each length of time.
///
/// Lengths below 64 cycles are counted one by one; above, 32 counters share each power
/// of two, so that a quantile is at most 1/32 above the true one. Mean, least
/// and greatest are exact.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: Cycle,
}

/// log2 of the counters that share a power of two.
const SHARE_BITS: u32 = 5;

impl Histogram {
    fn bucket(value: Cycle) -> usize {
        if value < 2 << SHARE_BITS {
            return value as usize;
        }
        let shift = value.ilog2() - SHARE_BITS;
        ((shift as usize) << SHARE_BITS) + (value >> shift) as usize
    }

    /// Returns the greatest value of a bucket.
    fn top(bucket: usize) -> Cycle {
        if bucket < 2 << SHARE_BITS {
            return bucket as Cycle;
        }
        let shift = (bucket >> SHARE_BITS) as u32 - 1;
        let mantissa = (bucket as u64 & ((1 << SHARE_BITS) - 1)) | 1 << SHARE_BITS;
        (mantissa << shift) | ((1 << shift) - 1)
    }

    /// Counts one length of time. O(1), but for the first of its size.
    #[inline]
    pub fn record(&mut self, value_cycles: Cycle) {
        let bucket = Self::bucket(value_cycles);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(value_cycles);
        self.max = self.max.max(value_cycles);
    }

    /// Returns the number of lengths that were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns their mean; 0 where nothing was counted.
    pub fn mean_cycles(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns the longest; 0 where nothing was counted.
    pub const fn max_cycles(&self) -> Cycle {
        self.max
    }

    /// Returns the length that at least so many thousandths do not exceed: 500 gives the
    /// median, 990 the 99th percentile. 0 where nothing was counted. O(counters).
    pub fn quantile_cycles(&self, per_mille: u32) -> Cycle {
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return Self::top(bucket).min(self.max);
            }
        }
        self.max
    }

    /// Adds what another one has counted. O(counters).
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}
