//! The choices that a channel's controller leaves to its user.

use core::fmt;
use core::hash::{Hash, Hasher};

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
    /// Writes wait in a queue of their own, and a rule of the user's says when they are served, and reads
    /// are not. Where no read waits, writes are; where no write waits, reads.
    Own {
        /// Places in the queue of writes.
        entries: u32,
        /// The rule.
        rule: DrainRule,
    },
}

/// The requests of a channel that wait, of which neither class is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingRequests {
    /// Reads.
    pub reads: u32,
    /// Writes.
    pub writes: u32,
    /// Places in the queue of writes.
    pub entries: u32,
    /// True if writes were served before.
    pub draining: bool,
}

/// A rule that says when writes are served. Two of one name count as the same.
///
/// It is asked when requests come and go. What it answers has to stay so while they do not: with its answer for
/// `draining` and the same numbers it answers the same again.
#[derive(Clone, Copy)]
pub struct DrainRule {
    /// Its name.
    pub name: &'static str,
    /// Returns true if writes are to be served.
    pub drains: fn(WaitingRequests) -> bool,
}

impl PartialEq for DrainRule {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for DrainRule {}

impl Hash for DrainRule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for DrainRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DrainRule").field(&self.name).finish()
    }
}

/// The banks that are refreshed at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefreshMode {
    /// All banks of a rank.
    AllBank,
    /// One set of the banks of a rank after the other, while the others work: DDR5's same-bank
    /// and LPDDR5's per-bank refresh, for parts that have one
    /// ([`Part::set_refresh`](crate::dram::timing::Part::set_refresh)).
    SameBank,
}

/// The rules by which a controller schedules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scheduling {
    /// Places in the queue; in that of the reads, if writes have their own.
    pub entries: u32,
    /// The time at which writes are served.
    pub writes: WritePolicy,
    /// True if a row stays open while a request for it waits, and column commands go before
    /// others that can come in the same cycle; else the command of the oldest request goes
    /// whatever it does, so that a row may be closed under requests that the bus keeps waiting.
    pub hits_first: bool,
    /// Number of column commands of the channel that may pass the oldest request of all.
    pub bypasses_max: u32,
    /// The banks that are refreshed at once.
    pub refresh: RefreshMode,
}

impl Scheduling {
    /// Creates the default: first ready, first come first served, queues of `entries` reads and
    /// of as many writes, drains from five sixths of the writes' places to a fifth, and refreshes
    /// of whole ranks.
    ///
    /// Under it, with 32 entries, 36 streams at three shares of reads take as long on DDR3-800,
    /// DDR4-3200 and LPDDR4-3200 as in DRAMsim3 and Ramulator 2.1, or between them, give or take
    /// 3%; twelve of the streams were written after it had been chosen (the matrix is in this
    /// crate's tests, with DDR5-4800 and LPDDR5-6400, for which nothing was chosen, beside
    /// Ramulator alone).
    pub const fn fr_fcfs(entries: u32) -> Self {
        let (high, low) = (entries - entries / 6, entries / 5);
        let writes = WritePolicy::Watermark { entries, high, low };
        let refresh = RefreshMode::AllBank;
        Self { entries, writes, hits_first: false, bypasses_max: 64, refresh }
    }
}
