//! What a memory has counted, in one shape for any number of channels.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::dram::timing::Cycle;

/// How often each length of time occurred.
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

    /// The greatest value of a bucket.
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

    /// How many were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 where nothing was counted.
    pub fn mean_cycles(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The longest; 0 where nothing was counted.
    pub const fn max_cycles(&self) -> Cycle {
        self.max
    }

    /// The length that at least so many thousandths do not exceed: 500 gives the
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

/// What one channel has counted, or several together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChannelStats {
    /// Bursts read from the memory.
    pub reads: u64,
    /// Bursts written to the memory.
    pub writes: u64,
    /// Reads that a queued write answered; not among `reads`.
    pub forwarded_reads: u64,
    /// Bursts that found their row open: no other command was issued for them.
    pub row_hits: u64,
    /// Bursts that found their bank closed and had it opened.
    pub row_misses: u64,
    /// Bursts that found another row open and had it closed.
    pub row_conflicts: u64,
    /// Activate commands.
    pub activates: u64,
    /// Precharge commands of both kinds.
    pub precharges: u64,
    /// Refresh commands, each of one rank.
    pub refreshes: u64,
    /// Offers that were turned away because the queue was full.
    pub full: u64,
    /// Cycles from the acceptance of a read to its last data, forwarded ones included.
    pub read_latency: Histogram,
    /// Cycles from the acceptance of a write to its last data.
    pub write_latency: Histogram,
    /// Sum over cycles of the requests in the queues.
    pub queued_cycles: u128,
    /// The most requests that were in the queues at once.
    pub queued_max: u32,
    /// Cycles in which the data bus carried data.
    pub data_cycles: u64,
    /// Cycles that passed; for several channels, the sum of theirs.
    pub elapsed_cycles: u64,
}

impl ChannelStats {
    /// The mean of the requests in the queues of a channel.
    pub fn queued_mean(&self) -> f64 {
        if self.elapsed_cycles == 0 {
            return 0.0;
        }
        self.queued_cycles as f64 / self.elapsed_cycles as f64
    }

    /// The share of its cycles in which a data bus carried data.
    pub fn data_share(&self) -> f64 {
        if self.elapsed_cycles == 0 {
            return 0.0;
        }
        self.data_cycles as f64 / self.elapsed_cycles as f64
    }

    /// Adds what another channel has counted.
    pub fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.forwarded_reads += other.forwarded_reads;
        self.row_hits += other.row_hits;
        self.row_misses += other.row_misses;
        self.row_conflicts += other.row_conflicts;
        self.activates += other.activates;
        self.precharges += other.precharges;
        self.refreshes += other.refreshes;
        self.full += other.full;
        self.read_latency.merge(&other.read_latency);
        self.write_latency.merge(&other.write_latency);
        self.queued_cycles += other.queued_cycles;
        self.queued_max = self.queued_max.max(other.queued_max);
        self.data_cycles += other.data_cycles;
        self.elapsed_cycles += other.elapsed_cycles;
    }
}

/// What a memory has counted: one entry for each channel, be it one or many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DramStats {
    /// The channels, by number.
    pub channels: Box<[ChannelStats]>,
}

impl DramStats {
    /// All channels together. O(channels).
    pub fn total(&self) -> ChannelStats {
        let mut total = ChannelStats::default();
        for channel in &self.channels {
            total.merge(channel);
        }
        total
    }
}
