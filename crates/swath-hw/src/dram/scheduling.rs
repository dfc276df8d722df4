//! The choices that a channel's controller leaves to its user.

/// The time at which writes are served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WritePolicy {
    /// Reads and writes share the queue, and are treated alike.
    Unified,
    /// Writes wait in a queue of their own. They are served, and reads are
    /// not, from the time that `high` of them wait, or that no read waits,
    /// until no more than `low` of them wait and a read does, or none is left.
    Watermark {
        /// Places in the queue of writes.
        entries: u32,
        /// So many waiting writes begin a drain: 1 to `entries`.
        high: u32,
        /// So many end it: less than `high`.
        low: u32,
    },
}

/// The rules by which a controller schedules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scheduling {
    /// Places in the queue; in that of the reads, if writes have their own.
    pub entries: u32,
    /// The time at which writes are served.
    pub writes: WritePolicy,
    /// Number of column commands of a bank that may pass the oldest request of that bank.
    ///
    /// It matters where streams meet in one bank. Two reads and a write
    /// going through three frames that begin in the same bank (the tests' stream
    /// *blend*, 57,600 transactions, queue of 32, [`WritePolicy::Unified`]) take
    /// 104,738 cycles with 2, 84,658 with 4, 72,875 with 8 and 65,645 without a limit; a
    /// single stream does not notice. The presets have 4 here and 64 below: without limits
    /// *blend* was 19% faster than in an independent simulator.
    pub bank_bypasses_max: u32,
    /// Number of column commands of the channel that may pass the oldest request of all.
    pub bypasses_max: u32,
}
