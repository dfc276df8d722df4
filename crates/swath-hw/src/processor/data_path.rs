//! The way of a processor's data and instructions: two caches of data, one more of instructions if they
//! have their own, and a memory with time, lines under way between them.
//!
//! Tags change when an access is made; the data of a line that was missing arrive later, and
//! until then the line is a [`Flight`]. An access to a line in flight waits for that
//! flight. The memory schedules what it has been offered when time comes to it, and not
//! before: what a later request changes in its schedule is seen.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use swath_arch::PhysAddr;

use crate::clock::Cycle;
use crate::dram::memory::Dram;
use crate::dram::request::{Completion, DramRequest, OfferError};
use crate::processor::cache::{Cache, CacheOutcome};
use crate::processor::config::WalksFrom;
use crate::processor::patterns::{Strides, WriteRuns};

/// The kind of access that waits for a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiting {
    Load,
    Store,
    /// None: it was read ahead.
    Prefetch,
}

/// The time of arrival of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    /// In this cycle.
    At(Cycle),
    /// With the arrival of the flight of this name.
    With(u64),
}

/// A line under way. `ready` is the cycle of its arrival, [`UNKNOWN`] while the memory has
/// not told.
#[derive(Clone, Copy, Debug)]
struct Flight {
    id: u64,
    line: u64,
    ready: Cycle,
    waiting: Waiting,
}

const UNKNOWN: Cycle = Cycle::MAX;
/// The line of a read past the caches, which no other access finds.
const NO_LINE: u64 = u64::MAX;

/// A request on its way to the memory: when it will be there (in the memory's cycles),
/// how many were before it, its name, its address, whether it writes.
type Offer = (Cycle, u64, u64, PhysAddr, bool);

/// The ratio of the clocks: `core` cycles of the core are `dram` cycles of the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) core: u32,
    pub(crate) dram: u32,
}

impl Clocks {
    /// Returns the first cycle of the memory that begins with or after that of the core.
    fn to_dram(self, cycle: Cycle) -> Cycle {
        scale(cycle, self.dram, self.core)
    }

    /// Returns the first cycle of the core that begins with or after that of the memory.
    fn to_core(self, cycle: Cycle) -> Cycle {
        scale(cycle, self.core, self.dram)
    }
}

/// `cycle * to / from`, rounded up. Beyond 64 bits it stays at the end, where the memory
/// accepts nothing.
fn scale(cycle: Cycle, to: u32, from: u32) -> Cycle {
    let scaled = (u128::from(cycle) * u128::from(to)).div_ceil(u128::from(from.max(1)));
    Cycle::try_from(scaled).unwrap_or(Cycle::MAX)
}

/// The caches and the memory behind a core.
///
/// Invariants: all events of the memory up to the last cycle that was settled
/// have been seen; a flight whose arrival is unknown has a request at the memory or on its
/// way there.
#[derive(Clone, Debug)]
pub(crate) struct DataPath {
    pub(crate) l1: Cache,
    /// The first cache of instructions; without one they are in `l1`.
    pub(crate) instructions: Option<Cache>,
    pub(crate) l2: Cache,
    pub(crate) dram: Dram,
    pub(crate) l1_cycles: Cycle,
    pub(crate) l2_cycles: Cycle,
    pub(crate) memory_cycles: Cycle,
    pub(crate) clocks: Clocks,
    /// Length of the memory.
    pub(crate) len_bytes: u64,
    flights: Vec<Flight>,
    offers: BinaryHeap<Reverse<Offer>>,
    /// Requests made so far: the names of flights, and the order of offers.
    made: u64,
    pub(crate) runs: WriteRuns,
    pub(crate) strides: Strides,
    pub(crate) dram_reads: u64,
    pub(crate) dram_writes: u64,
}

impl DataPath {
    pub(crate) fn new(
        caches: [Cache; 2],
        cycles: [u32; 3],
        dram: Dram,
        len_bytes: u64,
        clocks: Clocks,
    ) -> Self {
        let [l1, l2] = caches;
        let [l1_cycles, l2_cycles, memory_cycles] = cycles.map(Cycle::from);
        Self {
            l1,
            instructions: None,
            l2,
            dram,
            l1_cycles,
            l2_cycles,
            memory_cycles,
            clocks,
            len_bytes,
            flights: Vec::new(),
            offers: BinaryHeap::new(),
            made: 0,
            runs: WriteRuns::default(),
            strides: Strides::default(),
            dram_reads: 0,
            dram_writes: 0,
        }
    }

    /// Checks that `addr` is in the memory.
    ///
    /// # Errors
    /// [`OfferError::Address`].
    #[inline]
    pub(crate) fn locate(&self, addr: PhysAddr) -> Result<(), OfferError> {
        if addr.raw() < self.len_bytes {
            return Ok(());
        }
        Err(OfferError::Address { addr, len_bytes: self.len_bytes })
    }

    /// Reads or writes at `addr`, which is in the memory, in the cycle `now` of the core.
    /// If a line must be fetched from below the first cache and `waiting` has no more
    /// than `flights_max` places for that, the access begins when there is one: that cycle
    /// is the first of the results, the arrival of the data the second. O(1) for
    /// a line in the first cache and no flights, else O(ways + flights) and the memory's
    /// events up to then.
    ///
    /// # Errors
    /// A time that the memory cannot count.
    #[inline]
    pub(crate) fn access(
        &mut self,
        now: Cycle,
        addr: PhysAddr,
        write: bool,
        waiting: Waiting,
        flights_max: u32,
    ) -> Result<(Cycle, Ready), OfferError> {
        let outcome = self.l1.access(addr, write);
        let hit_at = now.saturating_add(self.l1_cycles);
        if outcome == CacheOutcome::Hit && self.flights.is_empty() {
            return Ok((now, Ready::At(hit_at)));
        }
        self.access_slowly(now, addr, outcome, waiting, flights_max)
    }

    /// Fetches an instruction at `addr`, as [`access`](Self::access) reads data.
    ///
    /// # Errors
    /// A time that the memory cannot count.
    #[inline]
    pub(crate) fn fetch(
        &mut self,
        now: Cycle,
        addr: PhysAddr,
        flights_max: u32,
    ) -> Result<(Cycle, Ready), OfferError> {
        let Some(instructions) = &mut self.instructions else {
            return self.access(now, addr, false, Waiting::Load, flights_max);
        };
        let outcome = instructions.access(addr, false);
        if outcome == CacheOutcome::Hit && self.flights.is_empty() {
            return Ok((now, Ready::At(now.saturating_add(self.l1_cycles))));
        }
        self.access_slowly(now, addr, outcome, Waiting::Load, flights_max)
    }

    /// Loads at `addr`, and reads lines ahead of it. As [`access`](Self::access).
    ///
    /// # Errors
    /// A time that the memory cannot count.
    pub(crate) fn load_and_look_ahead(
        &mut self,
        now: Cycle,
        addr: PhysAddr,
        flights_max: u32,
    ) -> Result<(Cycle, Ready), OfferError> {
        let outcome = self.l1.access(addr, false);
        let (began, ready) = self.access_slowly(now, addr, outcome, Waiting::Load, flights_max)?;
        let missed = outcome != CacheOutcome::Hit;
        let Some(stride) = self.strides.note(self.l1.line(addr), missed) else {
            return Ok((began, ready));
        };
        let at = began.saturating_add(self.l1_cycles);
        let places = self.strides.lines_ahead as usize;
        for line in self.strides.ahead(stride) {
            let addr = self.l1.addr(line);
            let known = self.l1.peek(addr).is_some()
                || self.flights.iter().any(|flight| flight.line == line);
            if known || self.locate(addr).is_err() {
                continue;
            }
            if self.in_flight(Waiting::Prefetch) >= places {
                break;
            }
            let outcome = self.l1.place(addr, false);
            self.evicted(at, outcome)?;
            self.below(at, addr, line, Waiting::Prefetch)?;
        }
        Ok((began, ready))
    }

    /// Writes at `addr` past what does not have it, fetching nothing. The line's place in
    /// the write buffer is free again when the level that takes it has it. Results as for
    /// [`access`](Self::access).
    ///
    /// # Errors
    /// A time that the memory cannot count.
    pub(crate) fn stream(
        &mut self,
        now: Cycle,
        addr: PhysAddr,
        flights_max: u32,
    ) -> Result<(Cycle, Ready), OfferError> {
        let line = self.l1.line(addr);
        if self.runs.streamed == Some(line) {
            return Ok((now, Ready::At(now)));
        }
        self.settle(now)?;
        let in_flight = self.flights.iter().any(|flight| flight.line == line);
        if in_flight || self.l1.peek(addr).is_some() {
            return self.access(now, addr, true, Waiting::Store, flights_max);
        }
        let mut now = now;
        while self.in_flight(Waiting::Store) >= flights_max as usize {
            now = now.max(self.first_arrival(Waiting::Store)?);
            self.settle(now)?;
        }
        self.runs.streamed = Some(line);
        let at = now.saturating_add(self.l1_cycles).saturating_add(self.l2_cycles);
        self.made += 1;
        let id = self.made;
        let ready = if self.l2.peek(addr).is_some() {
            self.l2.place(addr, true);
            at
        } else {
            self.dram_writes += 1;
            self.offers.push(Reverse((self.clocks.to_dram(at), id, id, addr, true)));
            UNKNOWN
        };
        self.flights.push(Flight { id, line, ready, waiting: Waiting::Store });
        Ok((now, Ready::At(now)))
    }

    #[inline(never)]
    fn access_slowly(
        &mut self,
        now: Cycle,
        addr: PhysAddr,
        outcome: CacheOutcome,
        waiting: Waiting,
        flights_max: u32,
    ) -> Result<(Cycle, Ready), OfferError> {
        self.settle(now)?;
        let line = self.l1.line(addr);
        if let Some(flight) = self.flights.iter().find(|flight| flight.line == line) {
            let (id, ready) = (flight.id, flight.ready);
            self.evicted(now, outcome)?;
            return Ok((
                now,
                match ready {
                    UNKNOWN => Ready::With(id),
                    _ => Ready::At(ready.max(now.saturating_add(self.l1_cycles))),
                },
            ));
        }
        if outcome == CacheOutcome::Hit {
            return Ok((now, Ready::At(now.saturating_add(self.l1_cycles))));
        }
        let mut now = now;
        while self.in_flight(waiting) >= flights_max as usize {
            now = now.max(self.first_arrival(waiting)?);
            self.settle(now)?;
        }
        let missed_at = now.saturating_add(self.l1_cycles);
        self.evicted(missed_at, outcome)?;
        Ok((now, self.below(missed_at, addr, line, waiting)?))
    }

    /// Writes the victim of a miss in the first cache to the second.
    fn evicted(&mut self, now: Cycle, outcome: CacheOutcome) -> Result<(), OfferError> {
        if let CacheOutcome::Miss(Some(victim)) = outcome
            && victim.dirty
            && let Some(next) = self.l2.take_back(victim.addr)
            && next.dirty
        {
            self.write(now.saturating_add(self.l2_cycles), next.addr);
        }
        Ok(())
    }

    /// Fetches a line from the second cache or the memory.
    fn below(
        &mut self,
        now: Cycle,
        addr: PhysAddr,
        line: u64,
        waiting: Waiting,
    ) -> Result<Ready, OfferError> {
        let outcome = self.l2.access(addr, false);
        let at = now.saturating_add(self.l2_cycles);
        let CacheOutcome::Miss(victim) = outcome else {
            self.made += 1;
            self.flights.push(Flight { id: self.made, line, ready: at, waiting });
            return Ok(Ready::At(at));
        };
        let ready = self.request(at, addr, line, waiting);
        if let Some(victim) = victim.filter(|victim| victim.dirty) {
            self.write(at, victim.addr);
        }
        Ok(ready)
    }

    /// Reads at `addr` for a walk, or past the caches, and waits for it; returns the cycle in which
    /// the data are there.
    ///
    /// # Errors
    /// An address beyond the memory, or a time that the memory cannot count.
    pub(crate) fn read_and_wait(
        &mut self,
        now: Cycle,
        addr: PhysAddr,
        source: WalksFrom,
    ) -> Result<Cycle, OfferError> {
        self.locate(addr)?;
        let ready = match source {
            WalksFrom::L1 => {
                let (_, ready) = self.access(now, addr, false, Waiting::Load, u32::MAX)?;
                ready
            }
            WalksFrom::L2 => {
                self.settle(now)?;
                let line = self.l1.line(addr);
                match self.flights.iter().find(|flight| flight.line == line) {
                    Some(Flight { id, ready: UNKNOWN, .. }) => Ready::With(*id),
                    Some(Flight { ready, .. }) => Ready::At(*ready),
                    None => self.below(now, addr, line, Waiting::Load)?,
                }
            }
            WalksFrom::Memory => self.request(now, addr, NO_LINE, Waiting::Load),
        };
        self.wait(ready)
    }

    /// Writes past the caches.
    pub(crate) fn write(&mut self, now: Cycle, addr: PhysAddr) {
        self.dram_writes += 1;
        self.made += 1;
        self.offers.push(Reverse((self.clocks.to_dram(now), self.made, 0, addr, true)));
    }

    fn request(&mut self, now: Cycle, addr: PhysAddr, line: u64, waiting: Waiting) -> Ready {
        self.dram_reads += 1;
        self.made += 1;
        let id = self.made;
        self.offers.push(Reverse((self.clocks.to_dram(now), id, id, addr, false)));
        self.flights.push(Flight { id, line, ready: UNKNOWN, waiting });
        Ready::With(id)
    }

    /// Returns the cycle in which data are there. The core stands still until then.
    ///
    /// # Errors
    /// A time that the memory cannot count.
    pub(crate) fn wait(&mut self, ready: Ready) -> Result<Cycle, OfferError> {
        let id = match ready {
            Ready::At(cycle) => return Ok(cycle),
            Ready::With(id) => id,
        };
        loop {
            match self.flights.iter().find(|flight| flight.id == id) {
                // Arrived long ago.
                None => return Ok(0),
                Some(Flight { ready: UNKNOWN, .. }) => {}
                Some(Flight { ready, .. }) => return Ok(*ready),
            }
            if !self.next_event(Cycle::MAX)? {
                return Ok(0);
            }
        }
    }

    /// Returns the cycle by which everything in flight has arrived.
    pub(crate) fn wait_for_all(&mut self) -> Result<Cycle, OfferError> {
        // At the end of time nothing happens any more, and nothing is known.
        while self.flights.iter().any(|flight| flight.ready == UNKNOWN)
            && self.next_event(Cycle::MAX)?
        {}
        let last = self.flights.iter().map(|flight| flight.ready).max();
        self.flights.clear();
        Ok(last.unwrap_or(0))
    }

    /// Sees what has happened by the cycle `now` of the core, and forgets what has arrived.
    fn settle(&mut self, now: Cycle) -> Result<(), OfferError> {
        if self.flights.is_empty() {
            return Ok(());
        }
        // Nothing waits for the memory if all arrivals are known.
        if self.flights.iter().any(|flight| flight.ready == UNKNOWN) {
            while self.next_event(now)? {}
        }
        self.flights.retain(|flight| flight.ready > now);
        Ok(())
    }

    fn in_flight(&self, waiting: Waiting) -> usize {
        self.flights.iter().filter(|flight| flight.waiting == waiting).count()
    }

    /// Returns the cycle in which the first flight that waits so will have arrived.
    fn first_arrival(&mut self, waiting: Waiting) -> Result<Cycle, OfferError> {
        loop {
            let of_kind = self.flights.iter().filter(|flight| flight.waiting == waiting);
            let first = of_kind.map(|flight| flight.ready).min().unwrap_or(0);
            // An event after `first` cannot bring anything earlier.
            if !self.next_event(first)? {
                return Ok(first);
            }
        }
    }

    /// Sees the next thing that happens at the memory, if it does by the cycle `until` of
    /// the core: a request that gets there, or data that leave.
    fn next_event(&mut self, until: Cycle) -> Result<bool, OfferError> {
        let offer = self.offers.peek().map(|Reverse(offer)| offer.0);
        let event = self.dram.next_event();
        let Some(cycle) = [offer, event].into_iter().flatten().min() else {
            return Ok(false);
        };
        if until != Cycle::MAX && self.clocks.to_core(cycle) > until {
            return Ok(false);
        }
        if event == Some(cycle) {
            self.dram.advance(cycle);
            while let Some(Completion { cycle, id, .. }) = self.dram.take_done(cycle) {
                let ready = self.clocks.to_core(cycle).saturating_add(self.memory_cycles);
                let flight = self.flights.iter_mut().find(|flight| flight.id == id);
                if let Some(flight) = flight {
                    flight.ready = ready;
                }
            }
            return Ok(true);
        }
        let Some(Reverse((cycle, order, id, addr, write))) = self.offers.pop() else {
            return Ok(false);
        };
        match self.dram.offer(cycle, DramRequest { id, addr, write }) {
            Ok(()) => Ok(true),
            Err(error @ OfferError::Full { .. }) => {
                // Later, and still before what was made after it.
                let later = self.dram.next_event().ok_or(error)?;
                self.offers.push(Reverse((later, order, id, addr, write)));
                Ok(true)
            }
            Err(error) => {
                self.offers.push(Reverse((cycle, order, id, addr, write)));
                Err(error)
            }
        }
    }

    /// Walks every invariant.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.l1.check()?;
        self.instructions.as_ref().map_or(Ok(()), Cache::check)?;
        self.l2.check()?;
        self.dram.check()?;
        let unknown = self.flights.iter().filter(|flight| flight.ready == UNKNOWN).count();
        let offered = self.offers.iter().filter(|Reverse(offer)| !offer.4).count();
        if offered > unknown {
            return Err("a read is on its way without a flight");
        }
        for (i, flight) in self.flights.iter().enumerate() {
            let again = |other: &Flight| other.line == flight.line && flight.line != NO_LINE;
            if self.flights[..i].iter().any(again) {
                return Err("a line is in flight twice");
            }
        }
        Ok(())
    }
}
