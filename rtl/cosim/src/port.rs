//! A memory behind a port: one read at a time, answered after a latency.

use swath_arch::testing::Random;

use crate::unit::{PortIn, PortOut};

/// Reads of tables that a port makes for one access, at most: of nodes two a level.
const READS_MAX: usize = 10;

/// The memory of a port.
///
/// It accepts a request while it is idle, and in the cycle in which it offers a word, which the unit takes
/// then if it asks.
#[derive(Default)]
pub struct Port {
    /// The cycle from which on the word is offered.
    due: Option<u64>,
    word: u64,
    error: bool,
    offered: PortIn,
    asked: [u64; READS_MAX],
    reads: usize,
}

impl Port {
    /// Returns what the unit sees in cycle `now`; with `stalls`, one cycle in `stalls` accepts nothing.
    #[inline]
    pub fn offer(&mut self, now: u64, stalls: Option<&mut Random>) -> PortIn {
        let valid = self.due.is_some_and(|due| due <= now);
        let stalled = stalls.is_some_and(|random| random.one_in(3));
        let ready = (self.due.is_none() || valid) && !stalled;
        // What stands on the wires when nothing is offered is no word.
        let (data, error) = if valid { (self.word, self.error) } else { (!self.word, false) };
        self.offered = PortIn { data, ready, valid, error };
        self.offered
    }

    /// Goes by what the unit did in the cycle; returns the address that it asks for, if that is
    /// accepted.
    ///
    /// # Panics
    /// If it asks and does not take what is offered.
    #[inline]
    pub fn answer(&mut self, out: &PortOut) -> Option<u64> {
        if self.offered.valid && out.taken {
            self.due = None;
        }
        let accepted = out.valid && self.offered.ready;
        assert!(!accepted || self.due.is_none(), "a request over a word that was not taken");
        accepted.then_some(out.addr)
    }

    /// Serves an accepted request: the word is offered from cycle `due` on.
    #[inline]
    pub fn serve(&mut self, due: u64, word: Result<u64, swath_arch::BusError>) {
        self.due = Some(due);
        self.error = word.is_err();
        self.word = word.unwrap_or(0xdead_beef_dead_beef);
    }

    /// Notes a read of tables.
    #[inline]
    pub fn note(&mut self, addr: u64) {
        assert!(self.reads < READS_MAX, "more than {READS_MAX} reads for one access");
        self.asked[self.reads] = addr;
        self.reads += 1;
    }

    /// Returns the addresses that were noted since the last call.
    #[inline]
    pub fn noted(&mut self) -> &[u64] {
        let reads = std::mem::take(&mut self.reads);
        &self.asked[..reads]
    }

    /// Returns true if a read is under way or its word not taken.
    pub fn is_busy(&self) -> bool {
        self.due.is_some()
    }
}
