//! The counters of a memory, in one shape for any number of channels.

use alloc::boxed::Box;

use crate::histogram::Histogram;

/// The counters of one channel, or of several together.
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
    /// Refresh commands, each of one set of a rank's banks.
    pub set_refreshes: u64,
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
    /// Returns the mean of the requests in the queues of a channel.
    pub fn queued_mean(&self) -> f64 {
        if self.elapsed_cycles == 0 {
            return 0.0;
        }
        self.queued_cycles as f64 / self.elapsed_cycles as f64
    }

    /// Returns the share of its cycles in which a data bus carried data.
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
        self.set_refreshes += other.set_refreshes;
        self.full += other.full;
        self.read_latency.merge(&other.read_latency);
        self.write_latency.merge(&other.write_latency);
        self.queued_cycles += other.queued_cycles;
        self.queued_max = self.queued_max.max(other.queued_max);
        self.data_cycles += other.data_cycles;
        self.elapsed_cycles += other.elapsed_cycles;
    }
}

/// The counters of a memory: one entry for each channel, be it one or many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DramStats {
    /// The channels, by number.
    pub channels: Box<[ChannelStats]>,
}

impl DramStats {
    /// Returns the counters of all channels together. O(channels).
    pub fn total(&self) -> ChannelStats {
        let mut total = ChannelStats::default();
        for channel in &self.channels {
            total.merge(channel);
        }
        total
    }
}
